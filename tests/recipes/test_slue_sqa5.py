"""The SLUE-SQA-5 recipe on almost nothing: codebook, DUAL and text QA are made from nothing and evaluated on every split."""

from __future__ import annotations

from pathlib import Path

import pytest

from speechssl.io import read_json
from speechssl.results import read_rows

from . import published

STAGES = {
    "corpus": "prepare slue-sqa5",
    "units": "units fit",
    "extract": "units extract",
    "dual": "train dual",
    "text-qa": "train text-qa",
    "ctc": "train ctc",
    "speechbert": "train speechbert",
    "evaluate": "evaluate qa",
    "report": "report",
}
SMOKE = {stage: verb for stage, verb in STAGES.items() if stage not in ("ctc", "speechbert")}  # which are shipped


@pytest.mark.parametrize(("config", "stages"), [("base", STAGES), ("smoke", SMOKE)])
def test_sections_hold_only_options_that_exist(config: str, stages: dict[str, str]) -> None:
    published.check_options("slue_sqa5", config, stages)


def test_checkpoints_are_found_by_name_in_a_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published.check_checkpoints("slue_sqa5", tmp_path, monkeypatch)


def test_without_the_corpus_it_says_what_to_give(tmp_path: Path) -> None:
    published.check_needs_a_corpus("slue_sqa5", tmp_path / "exp")


@published.speaks
def test_smoke_run_trains_all_parts_and_evaluates_every_split(tmp_path: Path, quick: str) -> None:
    published.smoke("slue_sqa5", tmp_path, quick)
    assert read_json(tmp_path / "models/units.card.json")["K"] == 20
    assert {read_json(tmp_path / f"models/{part}/card.json")["training"]["steps"] for part in ("dual", "text-qa")} == {2}
    for split in published.sections("slue_sqa5", "smoke")["recipe"]["splits"]:
        rows = {(r.system, r.metric): r.value for r in read_rows(tmp_path / split / "results.jsonl")}
        assert 0 <= rows["dual", "ff1"] <= 100 and ("text", "f1") in rows and ("speechbert", "ff1") in rows
        assert 0 <= rows["cascade-ctc", "ff1"] <= 100
        assert "<html" in (tmp_path / split / "report.html").read_text()
