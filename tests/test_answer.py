"""Asking one recording another, from Python and from the command line; and what bad recordings come
to."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

import speechssl
from speechssl.cli import main
from speechssl.dual.system import TimedAnswer
from speechssl.errors import InputError
from speechssl.qa import Detail

from .files import refused, write_checkpoint

ROOT = Path(__file__).parents[1]
REAL = ROOT.parent / "shared/data/nmsqa/context-34_4_4.mp3"
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def no_checkpoints(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever lies on this machine, the shipped set answers."""
    monkeypatch.setenv("SPEECHSSL_MODELS", str(tmp_path_factory.mktemp("checkpoints")))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", "nowhere")


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A question (WAV, 8 kHz) and a passage (FLAC, stereo, 48 kHz): noise bursts that stand for
    words."""
    folder = tmp_path_factory.mktemp("speech")
    rng = np.random.default_rng(0)
    passage = rng.normal(0, 0.1, (48_000 * 4, 2)) * np.repeat(rng.random(16), 12_000)[:, None]
    soundfile.write(folder / "passage.flac", passage, 48_000)
    soundfile.write(
        folder / "question.wav", rng.normal(0, 0.1, 8_000) * np.repeat(rng.random(8), 1_000), 8_000
    )
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
def test_command_prints_times_and_says_which_models(
    speech: tuple[Path, Path], tmp_path: Path, capsys
) -> None:
    clip = tmp_path / "clip.wav"
    code = main(
        [
            "answer",
            "--passage",
            str(speech[0]),
            "--question",
            str(speech[1]),
            "--systems",
            "dual",
            "--clip",
            str(clip),
        ]
    )
    out = capsys.readouterr().out
    assert code == 0
    assert "dual" in out and "confidence" in out and "trained on recipes/units" in out
    start, end = float(out.split()[1]), float(out.split()[3])
    assert soundfile.info(clip).duration == pytest.approx(end - start, abs=0.02)


@pytest.mark.parametrize(
    ("part", "written", "expected"),
    [
        ("--passage", b"", "is empty"),
        ("--passage", b"this is not audio" * 100, "as audio"),
        ("--question", np.zeros(16_000), "is silent"),
        ("--question", np.full(16_000, np.nan), "not finite"),
        ("--question", np.full(100, 0.1), "0.006 s long; give a recording of at least"),
    ],
)
def test_bad_audio_is_one_sentence_and_makes_no_clip(
    part, written, expected, speech: tuple[Path, Path], tmp_path, capsys
) -> None:
    path, clip = tmp_path / "bad.wav", tmp_path / "new/clip.wav"
    path.write_bytes(written) if isinstance(written, bytes) else soundfile.write(
        path, written, 16_000, subtype="FLOAT"
    )
    files = {
        "--passage": str(speech[0]),
        "--question": str(speech[1]),
        part: str(path),
        "--clip": str(clip),
    }
    assert main(["answer", *(word for pair in files.items() for word in pair)]) == 2
    message = capsys.readouterr().err
    assert (
        str(path) in message
        and expected in message
        and message.count("\n") == 1
        and not clip.parent.exists()
    )


def test_of_a_broken_mp3_the_decoder_says_nothing_of_its_own(tmp_path: Path, capfd) -> None:
    path = tmp_path / "broken.mp3"
    soundfile.write(path, np.random.default_rng(0).normal(0, 0.1, 80_000), 8_000)
    path.write_bytes(path.read_bytes()[1_000:5_000] + bytes(3_000))
    assert main(["answer", "--passage", str(path), "--question", "Who?"]) == 2
    message = capfd.readouterr().err
    assert message.startswith("speechssl: ") and str(path) in message and message.count("\n") == 1


@pytest.mark.parametrize(
    "samples", [np.zeros(16_000), np.full(16_000, np.nan), np.ones((16_000, 9)), np.zeros(0)]
)
def test_arrays_are_checked_like_files(samples, speech: tuple[Path, Path]) -> None:
    refused("the array given", speechssl.answer, samples, speech[1])


@pytest.mark.slow
def test_a_reader_of_hugging_face_answers_by_name_and_may_have_no_answer(
    speech, checkpoint, tmp_path, capsys
):
    reader = str(checkpoint("BERT", "AutoModelForQuestionAnswering"))
    name, clip = "cascade-ctc", tmp_path / "clip.wav"
    assert set(speechssl.answer(*speech, ["dual", name], reader=reader)) == {"dual", name}
    asked = [
        "answer",
        "--passage",
        str(speech[0]),
        "--question",
        str(speech[1]),
        "--systems",
        "cascade-ctc",
        "--reader",
        reader,
    ]
    assert main(asked) == 0
    printed = capsys.readouterr().out
    assert name in printed and f"answers by {reader}" in printed
    assert main([*asked, "--null-threshold", "-1000000", "--clip", str(clip)]) == 0
    printed = capsys.readouterr().out
    assert (
        f"{name}  no answer" in printed
        and ("not written, cascade-ctc has no answer") in printed
        and not clip.exists()
    )


@pytest.mark.slow
def test_a_clip_is_of_the_first_system_that_has_an_answer(
    speech: tuple[Path, Path], tmp_path: Path, monkeypatch, capsys
) -> None:
    none, some = TimedAnswer(0.0, 0.0, 0.0, ""), TimedAnswer(1.0, 2.0, 0.5, "a word")
    details = {
        name: Detail(answer, None, None)
        for name, answer in {"cascade-ctc": none, "cascade-b": some}.items()
    }
    monkeypatch.setattr(speechssl.QA, "details", lambda *_: [details])
    clip = tmp_path / "clip.wav"
    asked = [
        "--passage",
        str(speech[0]),
        "--question",
        str(speech[1]),
        "--systems",
        "cascade-ctc",
        "--clip",
        str(clip),
    ]
    assert main(["answer", *asked]) == 0
    assert f"{clip}: the answer of cascade-b" in capsys.readouterr().out
    assert soundfile.info(clip).duration == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--clip", "x.doc"], "x.doc"),
        (["--language", "fr"], "no text rules for the language 'fr'; use en or zh"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_read(
    options: list[str], message: str, capsys
) -> None:
    assert main(["answer", "--passage", "nowhere.wav", "--question", "nowhere.wav", *options]) == 2
    assert message in capsys.readouterr().err


def test_a_threshold_that_is_no_number_is_refused(speech: tuple[Path, Path], capsys) -> None:
    assert (
        main(
            ["answer", "--passage", str(speech[0]), "--question", "Who?", "--null-threshold", "nan"]
        )
        == 2
    )
    assert "--null-threshold nan is no threshold; give a number" in capsys.readouterr().err


@pytest.mark.parametrize("files", [["passage.flac"], ["clip-1.wav", "clip-2.wav"]])
def test_a_clip_never_overwrites_what_is_listened_to(
    files: list[str], speech: tuple[Path, Path], tmp_path: Path, capsys
) -> None:
    paths = [tmp_path / name for name in files]
    for path in paths:
        path.write_bytes(speech[0].read_bytes())
    clip = paths[0].with_stem(paths[0].stem.removesuffix("-1"))
    asked = [str(speech[1]), "Where is the noise?"][: len(files)]
    assert (
        main(["answer", "--passage", str(paths[-1]), "--question", *asked, "--clip", str(clip)])
        == 2
    )
    assert f"would overwrite the recording {paths[-1]}" in capsys.readouterr().err
    assert all(path.read_bytes() == speech[0].read_bytes() for path in paths)


def test_a_text_in_the_place_of_the_passage_is_called_one(capsys) -> None:
    assert main(["answer", "--passage", "It was founded in 1088.", "--question", "When?"]) == 2
    assert "does not exist; a recording is wanted here, and no text" in capsys.readouterr().err


def test_systems_that_cannot_listen_and_none_at_all_are_refused(tmp_path: Path) -> None:
    refused(
        "cascade-given reads transcripts and cannot listen",
        speechssl.QA,
        systems=["dual", "cascade-given"],
    )
    refused("there are no systems to ask", speechssl.QA, systems=[])


@pytest.mark.slow
def test_systems_are_loaded_once_and_cascades_read_texts_as_well(
    speech: tuple[Path, Path], capsys
) -> None:
    qa = speechssl.QA(systems=["dual", "cascade-ctc"])
    heard, read = qa.answer(speech[0], [speech[1], "Where is the noise?"])
    assert set(heard) == {"dual", "cascade-ctc"} and set(read) == {"cascade-ctc"}
    assert heard["cascade-ctc"] == speechssl.answer(*speech, ["cascade-ctc"])["cascade-ctc"]
    refused("questions come in a list", qa.answer, speech[0], "Where is the noise?")
    refused(
        "dual can only listen; record the question",
        speechssl.answer,
        speech[0],
        "Where is the noise?",
        ["dual"],
    )
    with pytest.raises(InputError, match="lasts 61 s, and a question at most 60 s"):
        speechssl.answer(speech[0], np.random.default_rng(0).normal(0, 0.1, 61 * 16_000), ["dual"])
    question = ["--question", "Where is the noise?", str(speech[1])]
    assert (
        main(
            ["answer", "--passage", str(speech[0]), *question, "--systems", "cascade-ctc", "--json"]
        )
        == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert [a["question"] for a in printed["answers"]] == question[1:]
    assert [isinstance(a["question_transcript"], str) for a in printed["answers"]] == [False, True]
    assert "MiniSQA" in printed["systems"]["cascade-ctc"]
    assert printed["unanswered"] == []
    both = [
        "answer",
        "--passage",
        str(speech[0]),
        "--question",
        question[1],
        "--systems",
        "dual",
        "cascade-ctc",
    ]
    assert main(both) == 0
    why = "can only listen; record the question"
    assert f"dual  {why}" in capsys.readouterr().out
    assert main([*both, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unanswered"] == [
        {"question": question[1], "system": "dual", "why": why}
    ]


def test_nothing_is_searched_and_what_people_need_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whisper = {"model_type": "whisper", "d_model": 8, "encoder_layers": 1, "decoder_layers": 1}
    write_checkpoint(tmp_path / "openai/whisper-tiny.en", whisper)
    monkeypatch.setenv("SPEECHSSL_MODELS", str(tmp_path))
    speechssl.QA(systems="dual")
    assert "synthesised speech" not in capsys.readouterr().err
    assert [*speechssl.QA().about] == ["dual", "cascade-ctc"]
    said = capsys.readouterr().err
    assert "name a recogniser (--recogniser openai/whisper-base" in said
    assert "--reader deepset/minilm-uncased-squad2" in said
    named = "openai/whisper-tiny.en"
    refused("cannot load", speechssl.QA, recogniser=named)
    refused("cannot load", speechssl.QA, systems=[f"cascade-{named}"])
    refused("dual was trained on the language en, not on zh", speechssl.QA, language="zh")


def test_models_of_another_language_and_what_is_no_recording_are_refused(
    speech: tuple[Path, Path],
) -> None:
    refused(
        "dual was trained on the language en, not on zh; give models of this",
        speechssl.QA,
        systems="dual",
        language="zh",
    )
    qa = speechssl.QA(systems="dual")
    refused("3 is no recording; give the path of a file", qa.answer, speech[0], [3])
    refused("None is no recording", qa.answer, None, [speech[1]])


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_file(), reason="the real NMSQA recording is not here")
def test_real_recording(speech: tuple[Path, Path]) -> None:
    answers = speechssl.answer(REAL, speech[1])
    assert 0 <= answers["dual"].start < answers["dual"].end <= 11.5
