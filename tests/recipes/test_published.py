"""The recipes of published corpora: checkpoints are found, and settings are the published ones."""

import os
import subprocess
import sys

import pytest

from speechssl.cascade.engines import HuggingFaceRecogniser
from speechssl.encoders.load import load_encoder
from speechssl.textlm.encoders import load_text_encoder, longest_sequence

from . import shared
from .stand_ins import fill

RECIPES = ("nmsqa", "slue_sqa5", "spoken_squad", "toefl_qa")


@pytest.mark.parametrize("recipe", RECIPES)
def test_checkpoints_are_found_by_name_in_a_local_folder(recipe, tmp_path, monkeypatch):
    """By the loaders that are to read them, and long enough for their windows."""
    found = shared.sections(recipe, "base")
    systems = [*found["recipe"].get("cascades", ()), *found["recipe"].get("systems", ())]
    recognisers = {
        s.removeprefix("cascade-") for s in systems if s.startswith("cascade-") and "/" in s
    }
    texts = {
        section["text-encoder"]: section
        for section in found.values()
        if {"text-encoder", "window"} <= set(section)
    }
    encoders = {found["recipe"]["encoder"]} if "encoder" in found["recipe"] else set()
    assert texts and (encoders or recipe == "spoken_squad")
    monkeypatch.setenv("SPEECHSSL_MODELS", str(fill(tmp_path, {*encoders, *recognisers, *texts})))
    for name in encoders:
        assert load_encoder(name).layers >= found["units"]["layer"]
    for name in recognisers:
        assert HuggingFaceRecogniser(name).name == name.split("/")[1]
    for name, section in texts.items():
        longest = longest_sequence(load_text_encoder(name)[0])
        asked = section.get("max-question", section.get("asked"))
        # DeBERTa's positions are relative, without an end
        assert section["window"] + asked + 4 <= (longest or 10**6) + 1
        assert section["stride"] <= section["window"]


def test_whisper_is_evaluated_where_it_is_and_named_where_it_is_not(tmp_path):
    (tmp_path / "openai/whisper-base").mkdir(parents=True)
    command = [
        sys.executable,
        "recipes/whispers.py",
        "openai/whisper-tiny.en",
        "openai/whisper-base",
    ]
    there = os.environ | {"SPEECHSSL_MODELS": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub")}
    done = subprocess.run(
        command, cwd=shared.ROOT, env=there, capture_output=True, text=True, check=True
    )
    assert done.stdout == "cascade-openai/whisper-base\n"
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("left out: cascade-openai/whisper-tiny.en")


def test_settings_are_those_of_the_released_code_of_dual():
    found = shared.sections("nmsqa", "base")
    assert found["recipe"]["codebooks"] == [64, 128, 512] and found["units"]["layer"] == 22
    dual = found["dual"]
    assert (dual["batch"], dual["accumulation"], dual["steps"], dual["warmup-steps"]) == (
        2,
        16,
        5000,
        500,
    )
    assert dual["assignment"] == "released" and float(dual["learning-rate"]) == 1e-4
    assert dual["window"] + dual["max-question"] + 3 == 4096 and dual["answer"] == 275
