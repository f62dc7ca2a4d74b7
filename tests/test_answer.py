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


def test_answers_lie_in_the_passage(speech: tuple[Path, Path]) -> None:
    answers = speechssl.answer(*speech)
    assert set(answers) == {"dual", "cascade-ctc"}
    dual = answers["dual"]
    assert 0 <= dual.start < dual.end <= 4.0
    assert 0 <= dual.confidence <= 1
    assert answers["cascade-ctc"].text is not None


def test_command_prints_times_and_says_which_models(speech: tuple[Path, Path], tmp_path: Path, capsys) -> None:
    clip = tmp_path / "clip.wav"
    code = main(["answer", "--passage", str(speech[0]), "--question", str(speech[1]), "--system", "dual", "--clip", str(clip)])
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


def test_unknown_models_are_named(speech: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="minisqa-en"):
        speechssl.answer(*speech, models="no-such-models")


@pytest.mark.skipif(not REAL.is_file(), reason="the real NMSQA recording is not here")
def test_real_recording(speech: tuple[Path, Path]) -> None:
    answers = speechssl.answer(REAL, speech[1])
    assert 0 <= answers["dual"].start < answers["dual"].end <= 11.5
