"""Asking one recording another, from Python and from the command line; and what bad recordings come to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

import speechssl
from speechssl.cli import main
from speechssl.errors import InputError

ROOT = Path(__file__).parents[1]
REAL = ROOT.parent / "shared/data/nmsqa/context-34_4_4.mp3"
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A question (WAV, 8 kHz) and a passage (FLAC, stereo, 48 kHz): noise bursts that stand for words."""
    folder = tmp_path_factory.mktemp("speech")
    rng = np.random.default_rng(0)
    passage = rng.normal(0, 0.1, (48_000 * 4, 2)) * np.repeat(rng.random(16), 12_000)[:, None]
    soundfile.write(folder / "passage.flac", passage, 48_000)
    soundfile.write(folder / "question.wav", rng.normal(0, 0.1, 8_000), 8_000)
    return folder / "passage.flac", folder / "question.wav"


@pytest.mark.slow
def test_answers_lie_in_the_passage(speech: tuple[Path, Path]) -> None:
    answers = speechssl.answer(*speech)
    assert set(answers) == {"dual", "cascade-ctc"}
    dual = answers["dual"]
    assert 0 <= dual.start < dual.end <= 4.0
    assert 0 <= dual.confidence <= 1
    assert answers["cascade-ctc"].text is not None


@pytest.mark.slow
def test_command_prints_times_and_says_which_models(speech: tuple[Path, Path], tmp_path: Path, capsys) -> None:
    clip = tmp_path / "clip.wav"
    code = main(["answer", "--passage", str(speech[0]), "--question", str(speech[1]), "--systems", "dual", "--clip", str(clip)])
    out = capsys.readouterr().out
    assert code == 0
    assert "dual" in out and "confidence" in out and "trained on minisqa" in out
    start, end = float(out.split()[1]), float(out.split()[3])
    assert soundfile.info(clip).duration == pytest.approx(end - start, abs=0.02)


@pytest.mark.parametrize(
    ("name", "content"),
    [("empty.wav", b""), ("text.wav", b"this is not audio" * 100), ("cut.flac", b"fLaC" + bytes(50))],
)
def test_bad_audio_is_one_sentence_and_exit_code_2(
    name: str, content: bytes, speech: tuple[Path, Path], tmp_path: Path, capsys
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    clip = tmp_path / "clip.wav"
    code = main(["answer", "--passage", str(path), "--question", str(speech[1]), "--clip", str(clip)])
    message = capsys.readouterr().err
    assert code == 2
    assert str(path) in message
    assert message.count("\n") == 1
    assert not clip.exists()


@pytest.mark.parametrize(
    ("samples", "rate", "expected"),
    [
        (np.zeros(16_000), 16_000, "is silent"),
        (np.full(16_000, np.nan), 16_000, "not finite"),
        (np.zeros(0), 16_000, "holds no samples"),
        (np.full(100, 0.1), 8_000, "0.013 s long"),
    ],
)
def test_audio_without_speech_is_one_sentence(samples, rate, expected, speech: tuple[Path, Path], tmp_path: Path, capsys) -> None:
    path = tmp_path / "odd.wav"
    soundfile.write(path, samples, rate, subtype="FLOAT")
    assert main(["answer", "--passage", str(speech[0]), "--question", str(path)]) == 2
    message = capsys.readouterr().err
    assert str(path) in message and expected in message and message.count("\n") == 1


@pytest.mark.parametrize("samples", [np.zeros(16_000), np.full(16_000, np.nan), np.ones((16_000, 2)), np.zeros(0)])
def test_arrays_are_checked_like_files(samples, speech: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="the array given"):
        speechssl.answer(samples, speech[1])


@pytest.mark.slow
def test_minutes_are_answered(speech: tuple[Path, Path]) -> None:
    passage = np.random.default_rng(0).normal(0, 0.1, 16_000 * 130)
    found = speechssl.answer(passage, speech[1], system="dual")["dual"]
    assert 0 <= found.start < found.end <= 130


def test_a_clip_in_an_unknown_format_is_refused_before_the_work(speech: tuple[Path, Path], capsys) -> None:
    assert main(["answer", "--passage", "nowhere.wav", "--question", "nowhere.wav", "--clip", "x.doc"]) == 2
    assert "x.doc" in capsys.readouterr().err


def test_unknown_models_are_named(speech: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="minisqa-en-robust"):
        speechssl.answer(*speech, models="no-such-models")


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_file(), reason="the real NMSQA recording is not here")
def test_real_recording(speech: tuple[Path, Path]) -> None:
    answers = speechssl.answer(REAL, speech[1])
    assert 0 <= answers["dual"].start < answers["dual"].end <= 11.5
