"""Checkpoints by name: local folders first, then the hub."""

from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.utils import filter_repo_objects

from speechssl.checkpoints import MODELS_VARIABLE, checkpoint_folder, find_checkpoint

from .files import contents, refused

NAME = "someone/tiny-hubert"
WHOLE = {
    "config.json": b"{}",
    "vocab.txt": b"a",
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"the same again",
}
WHOLE |= {"tf_model.h5": b"and again", "onnx/config.json": b"{}"}


def folder(path):
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    return path


def test_folders_come_first_then_models_with_and_without_their_owner(tmp_path, monkeypatch):
    models = tmp_path / "models"
    monkeypatch.setenv(MODELS_VARIABLE, str(models))
    for place in ("tiny-hubert", NAME):
        there = folder(models / place)
        assert checkpoint_folder(NAME, "text encoder") == there
    # no name for the hub's client, which raises an error of its own
    odd = folder(models / "some--thing")
    assert find_checkpoint(odd.name) == odd
    here = folder(tmp_path / NAME)
    monkeypatch.chdir(tmp_path)
    assert checkpoint_folder(here, "speech encoder") == here
    assert checkpoint_folder(NAME, "speech encoder") == Path(NAME)


@pytest.mark.parametrize("name", ["/no/such/folder", "../models", "a name", "owner/.."])
def test_what_cannot_be_on_the_hub_is_not_looked_for_there(name):
    wanted = r"found no text encoder at .*; give a folder with config.json.* or a hub id"
    refused(wanted, checkpoint_folder, name, "text encoder")


# ---- the hub


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub that has NAME alone, and writes a snapshot of what is asked for."""

    def snapshot_download(name, allow_patterns, ignore_patterns, etag_timeout):
        if name != NAME:
            raise OSError("not found")
        for file in filter_repo_objects(
            WHOLE, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns
        ):
            (tmp_path / "snapshot").mkdir(exist_ok=True)
            (tmp_path / "snapshot" / file).write_bytes(WHOLE[file])
        return str(tmp_path / "snapshot")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setenv(MODELS_VARIABLE, str(tmp_path / "models"))


def test_the_hub_gives_one_format_of_the_weights(hub):
    there = checkpoint_folder(NAME, "text encoder")
    fetched = ("config.json", "vocab.txt", "model.safetensors")
    assert contents(there) == {name: WHOLE[name] for name in fetched}


def test_what_the_hub_does_not_have_is_named(hub):
    refused(
        "the hub and its cache have none.*someone/else", checkpoint_folder, "someone/else", "reader"
    )
