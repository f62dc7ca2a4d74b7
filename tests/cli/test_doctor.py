"""Test `speechssl doctor`: packages, engine, models, and what is missing."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from speechssl.cli import doctor, main

ROOT = Path(__file__).parents[2]


def test_every_extra_has_a_purpose() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*doctor.EXTRAS} == {*project["optional-dependencies"]}


def test_doctor_names_packages_engine_models_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("SPEECHSSL_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    for folder, text in (
        ("models/broken", "{"),
        ("models/openai/whisper-tiny", '{"architectures": ["WhisperForConditionalGeneration"]}'),
        (
            "cache/models--deepset--roberta/snapshots/abc",
            '{"architectures": ["RobertaForQuestionAnswering"]}',
        ),
    ):
        config = tmp_path / folder / "config.json"
        config.parent.mkdir(parents=True)
        config.write_text(text)
    assert main(["doctor", "--json"]) == 0
    sections = json.loads(capsys.readouterr().out)
    assert sections["installed"]["torch"]
    assert sections["engine"]["people-en/encoder, precision fp32"].startswith("torch in fp32")
    shipped, in_folder, cached = sections["models"].values()
    assert "dual" in shipped["people-en"]
    assert in_folder == {
        "broken": "unreadable config.json",
        "openai/whisper-tiny": "WhisperForConditionalGeneration",
    }
    assert cached == {"deepset/roberta": "RobertaForQuestionAnswering"}
    assert "facebook/hubert-base-ls960" in sections["missing"]
    assert "openai/whisper-base" not in sections["missing"]


def test_another_version_than_is_needed_is_named() -> None:
    assert doctor.explain_unmet("numpy>=2") == ""
    assert doctor.explain_unmet("numpy<1").endswith("is installed")
    assert doctor.explain_unmet("no-such-package") == "not installed"
