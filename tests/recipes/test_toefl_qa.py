"""The TOEFL-QA recipe: text becomes audible; options are chosen on units, audio words, words heard, and words written."""

from __future__ import annotations

from pathlib import Path

import pytest

from speechssl.io import read_json
from speechssl.results import read_rows

from . import published

STAGES = {
    "corpus": "prepare toefl-qa",
    "units": "units fit",
    "extract": "units extract",
    "choice-units": "train choice",
    "choice-text": "train choice",
    "ctc": "train ctc",
    "speechbert": "train speechbert",
    "choice-speechbert": "train choice",
    "evaluate": "evaluate choice",
}
SYSTEMS = {"units", "speechbert", "cascade-ctc", "cascade-ctc-stories", "text", "chance", "longest-option"}


@pytest.mark.parametrize("config", ["base", "small", "smoke"])
def test_sections_hold_only_options_that_exist(config: str) -> None:
    published.check_options("toefl_qa", config, STAGES)


def test_checkpoints_are_found_by_name_in_a_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published.check_checkpoints("toefl_qa", tmp_path, monkeypatch)


def test_without_the_corpus_it_says_what_to_give(tmp_path: Path) -> None:
    published.check_needs_a_corpus("toefl_qa", tmp_path / "exp")


@published.speaks
def test_smoke_run_chooses_on_units_on_audio_words_and_on_words(tmp_path: Path, quick: str) -> None:
    said = published.smoke("toefl_qa", tmp_path, quick)
    rows = {(r.system, r.metric): r.value for r in read_rows(tmp_path / "dev/results.jsonl")}
    assert {(system, "set_accuracy") for system in SYSTEMS} | {("units", "accuracy"), ("cascade-ctc", "wer")} <= set(rows)
    assert rows["chance", "accuracy"] == 25
    assert "espeak" in str(read_json(tmp_path / "corpus/card.json")["synthetic"]) and "56.1" in said
    assert "set accuracy" in (tmp_path / "dev/report.html").read_text()
