"""recipes/text_side on almost nothing: every part leaves runs, gains and a page, and does nothing
the second time."""

from __future__ import annotations

from typing import get_args

import pytest

from speechssl.finetuning import METHODS
from symbols import SOURCES
from textside.data import make_stream
from textside.options import Objective
from textside.puzzles import TASKS
from textside.tasks import GLUE

from .shared import sections

LANGUAGES = ("bilingual", "pinyin", "copy", "tenth", "shallow", "deep")


@pytest.mark.parametrize("config", ["base", "small", "smoke"])
def test_settings_are_names_that_exist(config: str) -> None:
    found = sections("text_side", config)
    recipe = found.pop("recipe")
    assert set(recipe["objectives"]) <= set(get_args(Objective))
    warmed = {name.partition("/")[0] for name in recipe.get("warm-up", ())}
    for name in {*recipe["data"], *warmed, *recipe.get("alone", ())} - {
        "unigram",
        "bigram",
        "units",
    }:
        make_stream(name, found["english"]["vocabulary"] // 2)
    assert set(recipe["languages"]) <= set(LANGUAGES) & set(found)
    assert set(recipe["symbols"]) <= set(SOURCES) and set(recipe["devices"]) <= set(METHODS)
    assert set(recipe["readers"]) <= {"scratch", "english", *recipe["data"]}
    assert {name.lower() for name in recipe.get("glue", ())} <= set(GLUE)
    assert set(recipe["frozen-tasks"]) <= set(TASKS)
    assert {f"compute-{task}" for task in recipe["frozen-tasks"]} <= set(found)
