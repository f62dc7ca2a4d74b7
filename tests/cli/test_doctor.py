"""Test `speechssl doctor`: packages, engine, models, and what is missing."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from speechssl.cli import doctor, main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of models, and an empty cache of the hub."""
    monkeypatch.setenv("SPEECHSSL_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path


def add_checkpoint(folder: Path, architecture: str) -> None:
    """Write the config.json of a checkpoint."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture]}))


def test_every_extra_has_a_purpose() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*doctor.EXTRAS} == {*project["optional-dependencies"]}


def test_doctor_names_packages_engine_and_shipped_models(models: Path, capsys) -> None:
    assert main(["doctor", "--json"]) == 0
    sections = json.loads(capsys.readouterr().out)
    assert sections["installed"]["torch"]
    assert sections["engine"]["people-en/encoder, precision fp32"].startswith("torch in fp32")
    assert "dual" in sections["models"]["ship with the package"]["people-en"]
    assert "openai/whisper-base" in sections["missing"]


def test_models_are_found_in_the_models_folder_and_in_the_cache(models: Path) -> None:
    whisper = models / "models/openai/whisper-tiny"
    add_checkpoint(whisper, "WhisperForConditionalGeneration")
    reader = models / "cache/models--deepset--roberta/snapshots/abc"
    add_checkpoint(reader, "RobertaForQuestionAnswering")
    (models / "models/broken").mkdir()
    (models / "models/broken/config.json").write_text("{")
    models_by_place = doctor.find_models()
    _, in_folder, cached = models_by_place.values()
    assert in_folder == {
        "broken": "unreadable config.json",
        "openai/whisper-tiny": "WhisperForConditionalGeneration",
    }
    assert cached == {"deepset/roberta": "RobertaForQuestionAnswering"}
    assert [*doctor.find_missing_models(models_by_place)] == ["facebook/hubert-base-ls960"]


def test_another_version_than_is_needed_is_named() -> None:
    assert doctor.why_unmet("numpy>=2") == ""
    assert doctor.why_unmet("numpy<1").endswith("is installed")
    assert doctor.why_unmet("no-such-package") == "not installed"
