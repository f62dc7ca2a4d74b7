"""Python's face: what a notebook completes, the ten lines of DUAL, and names on a hub."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import speechssl
from speechssl import api
from speechssl.audio import write_clip
from speechssl.checkpoints import SHIPPED, model_folder, push_to_hub
from speechssl.errors import InputError
from speechssl.units.kmeans import load_codebook

from .files import refused

MODELS = model_folder("people-en")


@pytest.fixture
def speech(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    noise = np.random.default_rng(0).normal(0, 0.1, 40_000).astype(np.float32)
    write_clip(tmp_path / "lecture.mp3", noise, 0.0, 2.5)
    write_clip(tmp_path / "question.wav", noise, 0.0, 0.6)
    return tmp_path


def test_a_notebook_completes_what_is_public_and_the_import_takes_no_torch() -> None:
    code = (
        "import speechssl, sys; names = dir(speechssl); print({*speechssl.__all__} <= "
        "{*names}, 'torch' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    assert ran.stdout.split() == ["True", "False"]
    assert (
        sorted(speechssl._HOMES)
        == sorted(speechssl.__all__)
        == [name for name in dir(speechssl) if not name.startswith("_")]
    )


@pytest.mark.parametrize("name", speechssl.__all__)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    assert getattr(speechssl, name).__doc__


def test_a_buffer_that_is_filled_again_is_heard_again() -> None:
    cascade = speechssl.Cascade.from_pretrained("people-en")
    t = np.arange(32_000) / 16_000

    def voice(pitch: float) -> np.ndarray:
        """A vowel of so many Hz, four syllables a second: the recogniser finds letters in it, and
        in noise perhaps none."""
        vowel = sum(np.sin(2 * np.pi * pitch * k * t) / k for k in range(1, 20))
        return (0.05 * vowel * (1 + np.sin(2 * np.pi * 4 * t))).astype(np.float32)

    buffer, later = voice(100), voice(220)
    before = cascade.transcribe(buffer)
    buffer[:] = later
    assert cascade.transcribe(buffer) == cascade.transcribe(later) != before


def test_the_documented_lines_run(speech: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They stand in the docstring of the module and are ten at most."""
    assert api.__doc__
    lines = [line for line in api.__doc__.splitlines() if line.startswith("    ")]
    code = textwrap.dedent("\n".join(lines))
    assert len(lines) <= 10 and ast.parse(code)
    found: dict[str, Any] = {}
    exec(code, found)
    start, end, confidence = map(float, capsys.readouterr().out.split()[-3:])
    assert 0 <= start < end <= 2.6 and 0 < confidence <= 1
    dual, units = found["dual"], found["units"]
    # paths and strings alike
    again = dual.answer(speech / "lecture.mp3", str(speech / "question.wav"))
    assert again == found["span"] and units.card["codebook"] == found["codebook"].hash
    assert units.seconds(found["passage"], 0, len(found["passage"]) - 1)[0] == 0.0
    assert (
        speechssl.Dual.from_pretrained("people-en").answer("lecture.mp3", "question.wav") == again
    )
    assert (
        speechssl.Dual("people-en", "people-en/dual").answer("lecture.mp3", "question.wav") == again
    )
    assert speechssl.load_encoder(MODELS).hash == found["encoder"].hash
    encoder, codebook = (
        ("SpeechEncoder(encoder: 5 layers of 256"),
        "units.safetensors: 50 units of layer 5)",
    )
    assert (
        str(dual).startswith(f"Dual(people-en/dual on Units({encoder}")
        and codebook in str(dual)
        and len(str(dual)) < 300
    )
    refused(
        "DUAL reads no text such as 'who[?]'; give a recording of the question",
        dual.answer,
        found["passage"],
        "who?",
    )
    with pytest.raises(InputError, match="was trained on other units"):
        speechssl.Dual(
            speechssl.Units("people-en/encoder", MODELS / "words.safetensors"), "people-en/dual"
        )
    refused("text-qa is no reader of units", speechssl.Dual, units, "people-en/text-qa")


def test_a_cascade_reads_texts_and_recordings(speech: Path) -> None:
    cascade = speechssl.Cascade.from_pretrained("people-en")
    words = cascade.transcribe("lecture.mp3")
    assert cascade.answer(words, "Where is the noise?") == cascade.answer(
        "lecture.mp3", "Where is the noise?"
    )
    assert cascade.answer(words, speech / "question.wav").text is not None
    refused(
        "ctc belongs to an encoder; take Cascade.from_pretrained",
        speechssl.Cascade,
        "ctc",
        "people-en/text-qa",
    )


def test_an_unknown_option_of_evaluate_is_one_sentence(tmp_path: Path) -> None:
    refused(
        "evaluate has no such option .*colour",
        speechssl.evaluate,
        tmp_path,
        tmp_path / "out",
        colour="red",
    )


def test_one_name_stands_for_a_list_of_one(tmp_path: Path) -> None:
    assert [system.name for system in speechssl.QA(systems="dual").systems] == ["dual"]
    # and not: 'c' is no condition
    with pytest.raises(InputError, match="is not a split of a prepared corpus"):
        speechssl.evaluate(tmp_path, tmp_path / "out", systems="dual", conditions="clean")


# ---- names on a hub; HF_HUB_OFFLINE is set in tests


def test_what_was_pushed_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEECHSSL_MODELS", str(tmp_path))
    for part, name in (
        ("encoder", "me/encoder"),
        ("dual", "me/reader"),
        ("units.safetensors", "me/units"),
    ):
        assert push_to_hub(MODELS / part, name) == str(tmp_path / name)
    units = speechssl.Units("me/encoder", "me/units")
    assert (
        speechssl.Dual(units, "me/reader").system.card
        == speechssl.Dual.from_pretrained("people-en").system.card
    )
    assert (
        load_codebook(tmp_path / "me/units").hash
        == load_codebook("people-en/units.safetensors").hash
    )


def test_a_whole_folder_of_models_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEECHSSL_MODELS", str(tmp_path))
    push_to_hub(str(MODELS), "me/models")
    assert model_folder("me/models") == tmp_path / "me/models"
    assert (tmp_path / "me/models/dual/card.json").read_bytes() == (
        MODELS / "dual/card.json"
    ).read_bytes()
    refused("neither a folder", model_folder, "me/nothing")


@pytest.mark.parametrize("name", ["alone", "a/b/c", "../x", "a/.."])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    refused("is not OWNER/NAME", push_to_hub, MODELS / "dual", name)


def test_what_has_no_card_is_not_published(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    refused("has no card", push_to_hub, tmp_path, "me/it")


def test_the_hub_gets_the_files_of_a_part_and_its_refusal_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []

    class Hub:
        def create_repo(self, name: str, **options: Any) -> None:
            calls.append((name, options))

        def upload_folder(self, **options: Any) -> None:
            calls.append(options)
            if options["repo_id"] == "me/forbidden":
                raise ConnectionError("403 Forbidden")

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: False)
    assert push_to_hub(MODELS / "units.safetensors", "me/units").endswith("/me/units")
    assert calls[0] == ("me/units", {"private": True, "exist_ok": True})
    assert (
        calls[1]["allow_patterns"] == ["units.safetensors", "units.card.json"]
        and calls[1]["folder_path"] == MODELS
    )
    with pytest.raises(
        InputError, match=("could not be uploaded as me/forbidden .403 Forbidden.; log in")
    ):
        push_to_hub(SHIPPED / "people-en/dual", "me/forbidden")
