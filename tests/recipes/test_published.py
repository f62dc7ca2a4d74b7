"""The recipes of published corpora find their checkpoints in a local folder, and have the published
settings."""

import os
import subprocess
import sys

import pytest

from speechssl.cascade.engines import HuggingFaceRecogniser
from speechssl.encoders.load import load_encoder
from speechssl.textlm.encoders import count_positions, load_text_encoder

from . import shared
from .stand_ins import write_stand_ins

SPECIALS = 3  # [CLS] question [SEP] window [SEP]


@pytest.fixture
def local_models(tmp_path, monkeypatch):
    """An empty folder of checkpoints, in which loaders look up names."""
    monkeypatch.setenv("SPEECHSSL_MODELS", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("recipe", ["nmsqa", "slue_sqa5", "toefl_qa"])
def test_the_speech_encoder_is_found_and_has_the_layer_of_the_units(recipe, local_models):
    sections = shared.sections(recipe, "base")
    name = sections["recipe"]["encoder"]
    write_stand_ins(local_models, [name])
    assert load_encoder(name).layers >= sections["units"]["layer"]


@pytest.mark.parametrize("recipe", ["nmsqa", "slue_sqa5", "spoken_squad", "toefl_qa"])
def test_recognisers_are_found(recipe, local_models):
    options = shared.sections(recipe, "base")["recipe"]
    for system in (*options.get("cascades", ()), *options.get("systems", ())):
        name = system.removeprefix("cascade-")
        if system.startswith("cascade-") and "/" in name:  # "cascade-facebook/wav2vec2-base-960h"
            write_stand_ins(local_models, [name])
            assert HuggingFaceRecogniser(name).name == name.split("/")[1]


@pytest.mark.parametrize("recipe", ["nmsqa", "slue_sqa5", "spoken_squad", "toefl_qa"])
def test_text_encoders_are_found_and_have_positions_for_the_windows(recipe, local_models):
    sections = shared.sections(recipe, "base").values()
    readers = [section for section in sections if {"text-encoder", "window"} <= set(section)]
    assert readers
    for reader in readers:
        write_stand_ins(local_models, [reader["text-encoder"]])
        encoder, _ = load_text_encoder(reader["text-encoder"])
        longest = count_positions(encoder)
        if longest is not None:  # DeBERTa's positions are relative, without an end
            assert reader["max-question"] + reader["window"] + SPECIALS <= longest
        assert reader["stride"] <= reader["window"]


def test_whisper_is_evaluated_if_its_checkpoint_is_there_and_else_named(tmp_path):
    names = ["openai/whisper-tiny.en", "openai/whisper-base"]
    (tmp_path / "openai/whisper-base").mkdir(parents=True)
    folders = {"SPEECHSSL_MODELS": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub")}
    done = subprocess.run(
        [sys.executable, "recipes/whispers.py", *names],
        cwd=shared.ROOT,
        env=os.environ | folders,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "cascade-openai/whisper-base\n"
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("left out: cascade-openai/whisper-tiny.en")


def test_settings_are_those_of_the_released_code_of_dual():
    sections = shared.sections("nmsqa", "base")
    assert sections["recipe"]["codebooks"] == [64, 128, 512]
    assert sections["units"]["layer"] == 22
    dual = sections["dual"]
    assert dual["assignment"] == "released"
    assert dual["batch"] == 2
    assert dual["accumulation"] == 16
    assert dual["steps"] == 5000
    assert dual["warmup-steps"] == 500
    assert float(dual["learning-rate"]) == 1e-4
    assert dual["max-question"] + dual["window"] + SPECIALS == 4096
    assert dual["answer"] == 275
