"""Test checkpoints that are found by name: local folders first, then the hub."""

from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.utils import filter_repo_objects

from speechssl.checkpoints import MODELS_VARIABLE, fetch_checkpoint, find_checkpoint

from .files import contents, refused

NAME = "someone/tiny-hubert"
ON_HUB = {  # file of NAME on the hub -> its content
    "config.json": b"{}",
    "vocab.txt": b"a",
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"the same weights",
    "tf_model.h5": b"the same weights",
    "onnx/config.json": b"{}",
}


def make_checkpoint(path):
    """Make a folder with a config.json."""
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    return path


def test_folders_come_first_then_models_with_and_without_their_owner(tmp_path, monkeypatch):
    models = tmp_path / "models"
    monkeypatch.setenv(MODELS_VARIABLE, str(models))
    for place in ("tiny-hubert", NAME):  # OWNER/NAME comes before NAME
        in_models = make_checkpoint(models / place)
        assert fetch_checkpoint(NAME, "text encoder") == in_models
    # the hub's client refuses this name by an error
    odd = make_checkpoint(models / "some--thing")
    assert find_checkpoint(odd.name) == odd
    local = make_checkpoint(tmp_path / NAME)
    monkeypatch.chdir(tmp_path)
    assert fetch_checkpoint(local, "speech encoder") == local
    assert fetch_checkpoint(NAME, "speech encoder") == Path(NAME)


@pytest.mark.parametrize("name", ["/no/such/folder", "../models", "a name", "owner/.."])
def test_impossible_hub_names_are_refused_without_asking_the_hub(name):
    message = r"found no text encoder at .*; give a folder with config.json.* or a hub id"
    refused(message, fetch_checkpoint, name, "text encoder")


def test_a_file_is_no_name_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes.wav").touch()
    refused("found no codebook at notes.wav; give", fetch_checkpoint, "notes.wav", "codebook")


# ---- the hub


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub that has only NAME, and writes a snapshot of the files that match the patterns."""

    def snapshot_download(name, allow_patterns, ignore_patterns, etag_timeout):
        if name != NAME:
            raise OSError("not found")
        for file in filter_repo_objects(
            ON_HUB, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns
        ):
            (tmp_path / "snapshot").mkdir(exist_ok=True)
            (tmp_path / "snapshot" / file).write_bytes(ON_HUB[file])
        return str(tmp_path / "snapshot")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setenv(MODELS_VARIABLE, str(tmp_path / "models"))


def test_the_hub_gives_one_format_of_the_weights(hub):
    snapshot = fetch_checkpoint(NAME, "text encoder")
    fetched = ("config.json", "vocab.txt", "model.safetensors")
    assert contents(snapshot) == {name: ON_HUB[name] for name in fetched}


def test_a_name_that_the_hub_does_not_have_is_refused(hub):
    refused(
        "the hub and its cache have none.*someone/else", fetch_checkpoint, "someone/else", "reader"
    )
