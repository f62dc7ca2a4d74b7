"""What the tables of recipes print of results: values with their intervals, and values of one passage, which has none."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from speechssl.results import Row, append_rows

RECIPES = Path(__file__).parents[2] / "recipes"
ROW = Row("dual", "", "clean", None, "ff1", 61.25, 58.04, 64.5, 9, 0, "")


def tables(recipe: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{recipe}_tables", RECIPES / recipe / "tables.py")
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("recipe", ["minisqa", "odsqa", "spoken_squad"])
def test_one_passage_has_no_interval(recipe: str) -> None:
    cell = tables(recipe)._cell
    assert cell(ROW) == "61.2 [58.0, 64.5]" and cell(replace(ROW, low=None, high=None)) == "61.2"


def test_a_cell_of_the_grid_on_one_passage_has_no_interval() -> None:
    cell = tables("robustness").cell
    found = {"value": 61.25, "low": 58.04, "high": 64.5}
    assert cell(found) == "61.2 [58.0, 64.5]" and cell(found | {"low": None, "high": None}, "+") == "+61.2"
    assert cell(None) == cell({"task": "ks acc"}) == "–"


def test_a_grid_without_any_ratio_has_its_tables(tmp_path: Path) -> None:
    robustness = tables("robustness")
    rows = [replace(ROW, encoder=e, condition=c) for e in ("a", "b") for c in ("clean", "unseen-reverb")]
    append_rows(tmp_path / "results.jsonl", rows)
    scores = robustness.Scores.read(tmp_path / "results.jsonl")
    assert "61.2 · – · 61.2" in scores.lecture() and "| dual ff1 | unseen-reverb | 61.2 [58.0, 64.5] |" in scores.everything()
    average = {"group": "unseen", "snr_db": None, "removed": {"value": 40.0, "low": None, "high": None}, "recovered": None}
    clean = [{"encoder": e, "gain": None, "worst": None} for e in ("a", "b")]
    values = {"clean": clean, "averages": [average | {"encoder": "b"}], "dual_against_cascade": []}
    assert "loss in unseen noise | – | 40.0 |" in robustness.targets(values)


def test_a_gain_on_one_passage_has_no_interval() -> None:
    gain = tables("odsqa")._gain
    test = {"value": 1.5, "low": -0.25, "high": 3.0, "p_holm": 0.25}
    assert gain(test) == "+1.5 [-0.2, +3.0], 0.250" and gain(test | {"low": None, "high": None}) == "+1.5, 0.250"
