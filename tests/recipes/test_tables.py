"""What the tables of recipes print of results: values with their intervals, and values of one passage, which has none."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from speechssl.evaluation.results import Row

RECIPES = Path(__file__).parents[2] / "recipes"
ROW = Row("dual", "", "clean", None, "ff1", 61.25, 58.04, 64.5, 9, 0, "")


def tables(recipe: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{recipe}_tables", RECIPES / recipe / "tables.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("recipe", ["minisqa", "odsqa", "spoken_squad"])
def test_one_passage_has_no_interval(recipe: str) -> None:
    cell = tables(recipe)._cell
    assert cell(ROW) == "61.2 [58.0, 64.5]" and cell(replace(ROW, low=None, high=None)) == "61.2"


def test_a_gain_on_one_passage_has_no_interval() -> None:
    gain = tables("odsqa")._gain
    test = {"value": 1.5, "low": -0.25, "high": 3.0, "p_holm": 0.25}
    assert gain(test) == "+1.5 [-0.2, +3.0], 0.250" and gain(test | {"low": None, "high": None}) == "+1.5, 0.250"
