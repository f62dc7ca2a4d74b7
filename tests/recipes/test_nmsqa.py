"""The NMSQA recipe: its settings are options that exist, its checkpoints are found, and its smoke run fills every cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from speechssl.io import read_json
from speechssl.results import read_rows

from . import published

STAGES = {
    "corpus": "prepare nmsqa",
    "units": "units fit",
    "import": "units import",
    "extract": "units extract",
    "dual": "train dual",
    "text-qa": "train text-qa",
    "ctc": "train ctc",
    "speechbert": "train speechbert",
    "evaluate": "evaluate qa",
    "report": "report",
}
SHIPPED = ("text-qa", "ctc", "speechbert")
SMOKE = {stage: verb for stage, verb in STAGES.items() if stage not in SHIPPED}


@pytest.mark.parametrize(("config", "stages"), [("base", STAGES), ("smoke", SMOKE)])
def test_sections_hold_only_options_that_exist(config: str, stages: dict[str, str]) -> None:
    published.check_options("nmsqa", config, stages)


def test_checkpoints_are_found_by_name_in_a_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published.check_checkpoints("nmsqa", tmp_path, monkeypatch)


def test_settings_are_those_of_the_released_code() -> None:
    found = published.sections("nmsqa", "base")
    assert found["recipe"]["codebooks"] == [64, 128, 512] and found["units"]["layer"] == 22
    dual = found["dual"]
    assert (dual["batch"], dual["accumulation"], dual["steps"], dual["warmup-steps"]) == (2, 16, 5000, 500)
    assert dual["assignment"] == "released" and float(dual["learning-rate"]) == 1e-4
    assert dual["window"] + dual["question"] + 3 == 4096 and dual["answer"] == 275


def test_without_the_corpus_it_says_what_to_give(tmp_path: Path) -> None:
    published.check_needs_a_corpus("nmsqa", tmp_path / "exp")


@published.speaks
def test_smoke_run_evaluates_both_systems_and_the_topline(tmp_path: Path, quick: str) -> None:
    published.smoke("nmsqa", tmp_path, quick)
    rows = {(r.system, r.metric, r.condition): r.value for r in read_rows(tmp_path / "dev/results.jsonl")}
    for condition in ("clean", "pink"):
        assert {("dual-50", "ff1", condition), ("cascade-ctc", "ff1", condition), ("cascade-ctc", "wer", condition)} <= set(rows)
        assert ("speechbert", "ff1", condition) in rows
    assert rows["dual-50", "ff1", "clean"] > 30  # a reader that knows this kind of speech: answers lie where the corpus says
    assert rows["text", "f1", "clean"] > 50
    report = read_json(tmp_path / "corpus/data_report.json")
    assert report["splits"]["dev"]["questions"]["kept"] == 6
    assert (tmp_path / "dev/report.html").read_text().count("<audio") >= 2
