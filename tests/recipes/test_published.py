"""The recipes of published corpora find their checkpoints in a local folder, and have the published
settings."""

import os
import subprocess
import sys

import pytest

from speechssl.cascade.engines import HuggingFaceRecogniser
from speechssl.encoders.load import load_encoder
from speechssl.textlm.encoders import load_text_encoder, longest_sequence

from . import shared
from .stand_ins import write_stand_ins

SPECIALS = 3  # [CLS] question [SEP] window [SEP]


@pytest.mark.parametrize("recipe", ["nmsqa", "slue_sqa5", "spoken_squad", "toefl_qa"])
def test_checkpoints_are_found_and_have_the_layer_and_the_positions(recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("SPEECHSSL_MODELS", str(tmp_path))
    sections = shared.sections(recipe, "base")
    options = sections["recipe"]
    if "encoder" in options:
        write_stand_ins(tmp_path, [options["encoder"]])
        assert load_encoder(options["encoder"]).layers >= sections["units"]["layer"]
    for system in (*options.get("cascades", ()), *options.get("systems", ())):
        name = system.removeprefix("cascade-")
        if system.startswith("cascade-") and "/" in name:  # "cascade-facebook/wav2vec2-base-960h"
            write_stand_ins(tmp_path, [name])
            assert HuggingFaceRecogniser(name).name == name.split("/")[1]
    readers = [
        section for section in sections.values() if {"text-encoder", "window"} <= set(section)
    ]
    assert readers
    for reader in readers:
        write_stand_ins(tmp_path, [reader["text-encoder"]])
        encoder, _ = load_text_encoder(reader["text-encoder"])
        longest = longest_sequence(encoder)
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
