"""Test questions to recordings, from Python and from the command line, and models that are pushed to
a hub."""

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import soundfile

import speechssl
from speechssl import pipelines
from speechssl.checkpoints import model_folder, push_to_hub
from speechssl.cli import main
from speechssl.units.codebook import load_codebook

from .files import refused

MODELS = model_folder("people-en")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    """A passage (FLAC, stereo, 48 kHz) and a question (WAV, 8 kHz): noise bursts that stand for
    words."""
    folder = tmp_path_factory.mktemp("speech")
    rng = np.random.default_rng(0)
    passage = rng.normal(0, 0.1, (48_000 * 4, 2)) * np.repeat(rng.random(16), 12_000)[:, None]
    question = rng.normal(0, 0.1, 8_000) * np.repeat(rng.random(8), 1_000)
    soundfile.write(folder / "lecture.flac", passage, 48_000)
    soundfile.write(folder / "question.wav", question, 8_000)
    return folder / "lecture.flac", folder / "question.wav"


def ask(speech, *options):
    """Run `speechssl answer` on (passage, question); return the exit code."""
    files = ["--passage", speech[0], "--question", speech[1]]
    return main(["answer", *map(str, [*files, *options])])


# ---- the Python interface


def test_public_names_are_documented_and_importing_them_takes_no_torch():
    code = "import speechssl, sys; print(*dir(speechssl), 'torch' in sys.modules)"
    options = {"capture_output": True, "text": True, "cwd": Path(__file__).parents[1]}
    process = subprocess.run([sys.executable, "-c", code], check=True, **options)
    *names, is_torch_imported = process.stdout.split()
    assert is_torch_imported == "False"
    assert [name for name in names if not name.startswith("_")] == sorted(speechssl.__all__)
    assert all(getattr(speechssl, name).__doc__ for name in speechssl.__all__)


def test_the_example_of_the_module_runs(speech, monkeypatch, capsys):
    """The example is in the docstring of speechssl.pipelines."""
    monkeypatch.chdir(speech[0].parent)
    lines = [line for line in pipelines.__doc__.splitlines() if line.startswith("    ")]
    code = textwrap.dedent("\n".join(lines)).replace("lecture.mp3", "lecture.flac")
    variables = {}  # of the example
    exec(code, variables)
    start, end, confidence = map(float, capsys.readouterr().out.split()[-3:])
    assert 0 <= start < end <= 4.0
    assert 0 < confidence <= 1
    dual, units, passage = (variables[name] for name in ("dual", "units", "passage"))
    assert speechssl.Dual.from_pretrained("people-en").answer(*speech) == variables["span"]
    assert units.seconds(passage, 0, len(passage) - 1)[0] == 0.0
    refused("DUAL reads no text such as 'who[?]'", dual.answer, passage, "who?")
    words = speechssl.Units("people-en/encoder", MODELS / "words.safetensors")
    refused("no reader of the units", speechssl.Dual, words, "people-en/dual")
    refused("text-qa is no reader of", speechssl.Dual, units, "people-en/text-qa")


def test_a_cascade_reads_texts_and_recordings(speech):
    cascade = speechssl.Cascade.from_pretrained("people-en")
    words = cascade.transcribe(speech[0])
    text = "Where is the noise?"
    assert cascade.answer(words, text) == cascade.answer(speech[0], text)
    assert cascade.answer(words, speech[1]).text is not None


@pytest.mark.parametrize(
    "name", ["ctc/head.safetensors", "ctc/ngram/ngrams.npz", "text-qa/model.safetensors"]
)
def test_a_file_of_a_model_that_was_cut_off_is_named(tmp_path, name):
    for part in ("encoder", "ctc", "text-qa"):
        shutil.copytree(MODELS / part, tmp_path / part)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-1000])
    refused(
        f"{name} is missing or does not match its card", speechssl.Cascade.from_pretrained, tmp_path
    )


def test_an_array_whose_content_changes_is_recognised_again():
    cascade = speechssl.Cascade.from_pretrained("people-en")
    time = np.arange(32_000) / 16_000

    def voice(pitch):
        """Make a vowel of this pitch (Hz), four syllables a second, in which the recogniser finds
        letters."""
        vowel = sum(np.sin(2 * np.pi * pitch * k * time) / k for k in range(1, 20))
        return (0.05 * vowel * (1 + np.sin(2 * np.pi * 4 * time))).astype(np.float32)

    buffer = voice(pitch=100)
    other = voice(pitch=220)
    first_transcript = cascade.transcribe(buffer)
    buffer[:] = other
    second_transcript = cascade.transcribe(buffer)
    assert second_transcript == cascade.transcribe(other)
    assert second_transcript != first_transcript


# ---- questions


@pytest.mark.slow
def test_all_systems_answer_recordings_and_cascades_answer_texts(speech, capsys):
    qa = speechssl.QA()
    assert "name a recogniser (--recogniser openai/whisper-base" in capsys.readouterr().err
    of_recording, of_text = qa.answer(speech[0], [speech[1], "Where is the noise?"])
    assert set(of_recording) == {"dual", "cascade-ctc"}
    assert set(of_text) == {"cascade-ctc"}
    assert of_recording["cascade-ctc"] == speechssl.answer(*speech, "cascade-ctc")["cascade-ctc"]
    with pytest.raises(TypeError, match="questions come in a list"):
        qa.answer(speech[0], "Where is the noise?")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"systems": ["dual", "cascade-given"]}, "cascade-given reads transcripts"),
        ({"models": "nowhere"}, "nowhere is neither a folder"),
    ],
)
def test_systems_that_cannot_be_asked_are_refused(options, message):
    refused(message, speechssl.QA, **options)


@pytest.fixture(scope="module")
def dual():
    """A QA whose only system is DUAL."""
    return speechssl.QA(systems="dual")


# longer than a question may be
MINUTE = np.random.default_rng(0).normal(0, 0.1, 61 * 16_000)


@pytest.mark.parametrize(
    ("passage", "question", "message"),
    [
        (MINUTE, "Where is the noise?", "dual can only listen"),
        (MINUTE, MINUTE, "lasts 61 s, and a question at most 60 s"),
        (np.zeros(16_000), MINUTE[:16_000], "the array given"),
        (MINUTE[:100], MINUTE[:16_000], "the array given is 0.006 s long"),
    ],
)
def test_recordings_that_cannot_be_used_are_refused(passage, question, message, dual):
    refused(message, dual.answer, passage, [question])


# ---- speechssl answer


@pytest.mark.slow
def test_the_command_prints_answers_and_writes_a_clip(speech, tmp_path, capsys):
    clip = tmp_path / "clip.wav"
    assert ask(speech, "--systems", "dual", "--clip", clip) == 0
    printed = capsys.readouterr().out
    assert "trained on recipes/units" in printed
    start, end = float(printed.split()[1]), float(printed.split()[3])
    assert soundfile.info(clip).duration == pytest.approx(end - start, abs=0.02)
    text = "Where is the noise?"
    assert ask(speech, text, "--systems", "dual", "cascade-ctc", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    answered = [
        (a["system"], isinstance(a["question_transcript"], str)) for a in printed["answers"]
    ]
    assert answered == [("dual", False), ("cascade-ctc", True), ("cascade-ctc", False)]
    (unanswered,) = printed["unanswered"]
    assert (unanswered["question"], unanswered["system"]) == (text, "dual")


@pytest.mark.slow
def test_a_reader_of_hugging_face_may_give_no_answer(speech, checkpoint, tmp_path, capsys):
    reader = str(checkpoint("BERT", "AutoModelForQuestionAnswering"))
    options = ["--systems", "cascade-ctc", "--reader", reader]
    assert ask(speech, *options) == 0
    assert f"answers by {reader}" in capsys.readouterr().out
    clip = tmp_path / "clip.wav"
    assert ask(speech, *options, "--null-threshold", "-1000000", "--clip", clip) == 0
    assert "cascade-ctc  no answer" in capsys.readouterr().out
    assert not clip.exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--clip x.doc", "x.doc"),
        ("--language fr", "'fr'; use en or zh"),
        ("--passage founded-in-1088", "founded-in-1088"),
        ("--question silent.wav", "silent.wav is silent"),
        ("--clip taken.wav --question Where? Who?", "overwrite the recording taken-2.wav"),
    ],
)
def test_bad_options_and_recordings_are_refused_and_no_clip_is_written(
    options, named, speech, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    soundfile.write("silent.wav", np.zeros(16_000), 16_000)
    passage = shutil.copy(speech[1], "taken-2.wav")
    assert ask((passage, speech[1]), "--clip", "clip.wav", *options.split()) == 2
    assert named in capsys.readouterr().err
    assert not Path("clip.wav").exists()


# ---- pushing to a hub: with HF_HUB_OFFLINE, as in tests, models are copied to the models folder


def test_pushed_models_are_found_by_their_names(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEECHSSL_MODELS", str(tmp_path))
    parts = {"me/encoder": "encoder", "me/reader": "dual", "me/units": "units.safetensors"}
    for name, part in parts.items():
        assert push_to_hub(MODELS / part, name) == str(tmp_path / name)
    dual = speechssl.Dual(speechssl.Units("me/encoder", "me/units"), "me/reader")
    assert dual.system.card == speechssl.Dual.from_pretrained("people-en").system.card
    assert load_codebook("me/units").hash == load_codebook("people-en/units.safetensors").hash
    kept = tmp_path / "checkpoints/mine"  # nothing but its checkpoints/ is left out
    shutil.copytree(MODELS / "encoder", kept)
    assert Path(push_to_hub(kept, "me/kept"), "config.json").is_file()
    push_to_hub(str(MODELS), "me/models")
    assert model_folder("me/models") == tmp_path / "me/models"
    refused("neither a folder", model_folder, "me/nothing")
