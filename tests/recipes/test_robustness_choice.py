"""How the robustness recipe chooses its settings: arms that differ in one of them, evaluated on dev
in a noise of its own."""

import re

import pytest
import yaml

from speechssl.artifacts import write_json
from speechssl.eval.predict import write_items

from .shared import ROOT, script

RECIPE = ROOT / "recipes/robustness"
SECTIONS = yaml.safe_load((RECIPE / "choose.yaml").read_text())
MODULE = script("robustness/choose.py")
ARMS = [name for name in SECTIONS if name not in ("sets", "transfer", "evaluate")]


def test_base_is_what_the_recipe_trains_and_the_other_arms_differ_in_one_setting():
    continual = yaml.safe_load((RECIPE / "base.yaml").read_text())["continual"]
    assert SECTIONS["base"] == {k: v for k, v in continual.items() if k != "steps"}
    assert continual["steps"] == 6000
    schedule = {"snr-range", "snr-range-end"}
    for arm in ARMS[1:]:
        changed = {k for k, v in SECTIONS[arm].items() if v != SECTIONS["base"].get(k)}
        assert changed <= schedule or len(changed) == 1, arm
        assert changed or arm.startswith("steps-"), arm


def test_the_script_knows_the_arms_and_touches_nothing_of_the_test():
    script = (RECIPE / "choose.sh").read_text()
    (listed,) = re.findall(r"^ARMS=\((.*)\)$", script, re.M)
    assert listed.split() == ARMS
    assert "--split dev --seen --unseen dev " in script
    assert "held-out" not in script
    assert "--split test" not in script


def scored(exp, arm, clean, noisy, units=0.2, steps=7):
    """An arm's scores as `evaluate robustness` leaves them: five tasks of 20 items, of which this
    share is right.

    Training knows the voices of SID; those of the other tasks are five, which IC, style and DUAL
    have in common.
    """
    for task, *rates in [*zip(MODULE.TASKS, clean, noisy, strict=True), (MODULE.UNITS, 0.0, units)]:
        name, metric = task.split()
        voice = {"sid": "", "ks": "other-{}"}.get(name, "v{}")
        for condition, rate in zip((MODULE.CLEAN, MODULE.NOISY), rates, strict=True):
            items = []
            for i in range(20):
                about = {"id": f"u{i}", "group": f"u{i}", "voice": voice.format(i % 5)}
                right = float(i < 20 * rate)
                items.append(about | {"denominator": 1.0, "numerator": right})
            path = exp / arm / "dev/scores" / arm / f"{name}-{metric}" / f"{condition}.parquet"
            write_items(path, items, {"task": name, "metric": metric, "condition": condition})
    (exp / arm / "dev/results.jsonl").write_text("")
    write_json(exp / arm / "encoder/card.json", {"training": {"steps": steps}})


def test_the_best_mean_in_dev_noise_is_chosen_of_those_that_keep_clean_speech(tmp_path):
    scored(tmp_path, "start", [0.8] * 5, [0.1] * 5, 0.9)
    scored(tmp_path, "base", [0.8] * 5, [0.5] * 5, 0.2)
    scored(tmp_path, "distil-0", [0.7] * 5, [0.9] * 5, 0.1)  # gives up clean speech
    scored(tmp_path, "snr-low", [0.85, 0.75, 0.8, 0.8, 0.8], [0.6, 0.5, 0.5, 0.5, 0.5], 0.3)
    scores = MODULE.read_scores(tmp_path)
    arms = [MODULE.arm_of(name, scores) for name in ("start", "base", "distil-0", "snr-low")]
    assert MODULE.choose(arms).name == "snr-low"
    assert MODULE.choose(arms[:3]).name == "base"
    assert MODULE.choose(arms[:1]) is None
    assert arms[3].noisy == pytest.approx(52)
    assert arms[3].difference.value == pytest.approx(2)
    assert arms[3].difference.interval.low <= 2 <= arms[3].difference.interval.high
    lines = MODULE.table(arms, SECTIONS, tmp_path).markdown.splitlines()
    assert lines[2].startswith("| start | not trained | 80.0 · 10.0 | ")
    assert any(line.startswith("| **snr-low** | snr-range [-5, 15], 7 steps | ") for line in lines)
    # alike, with fewer edits
    scored(tmp_path, "distil-5", [0.8] * 5, [0.52 // 0.05 * 0.05, 0.6, 0.5, 0.5, 0.5], 0.25)
    scores, names = MODULE.read_scores(tmp_path), ("start", "base", "snr-low", "distil-5")
    assert MODULE.choose([MODULE.arm_of(name, scores) for name in names]).name == "distil-5"


def test_tasks_that_share_voices_draw_them_together(tmp_path, capsys):
    for arm in ("start", "base"):
        scored(tmp_path, arm, [0.8] * 5, [0.45] * 5)
    scores = MODULE.read_scores(tmp_path)
    ks, ic, sid, style, dual = (scores["base", task, MODULE.NOISY] for task in MODULE.TASKS)
    assert (ic.resampled == style.resampled).all()
    assert (ic.resampled == dual.resampled).all()
    assert (ic.resampled != ks.resampled).any()
    assert (ic.unit, sid.unit, sid.groups) == ("voice", "recording", 20)
    MODULE.main(tmp_path, RECIPE / "choose.yaml")
    printed = capsys.readouterr().out
    assert "95 % intervals draw 5 voices (" in printed and " and 20 recordings (sid acc" in printed
