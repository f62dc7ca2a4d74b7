"""recipes/robustness/choose.sh trains arms that differ in one setting, and choose.py chooses among
them on the dev splits, in a noise that no test uses."""

import re

import pytest
import yaml

from speechssl.artifacts import write_json
from speechssl.eval.predict import write_items

from .shared import ROOT, script

RECIPE = ROOT / "recipes/robustness"
SECTIONS = yaml.safe_load((RECIPE / "choose.yaml").read_text())
CHOOSE = script("robustness/choose.py")
ARMS = [name for name in SECTIONS if name not in ("sets", "transfer", "evaluate")]


def test_base_is_what_the_recipe_trains():
    continual = yaml.safe_load((RECIPE / "base.yaml").read_text())["continual"]
    assert continual.pop("steps") == 6000  # the default of choose.sh's STEPS
    assert SECTIONS["base"] == continual


@pytest.mark.parametrize("arm", ARMS[1:])
def test_an_arm_differs_from_base_in_one_setting(arm):
    base = SECTIONS["base"]
    changed = {name for name, value in SECTIONS[arm].items() if value != base.get(name)}
    if arm.startswith("snr-"):
        assert changed <= {"snr-range", "snr-range-end"}  # beginning and end of one schedule
    elif arm.startswith("steps-"):
        assert not changed  # choose.sh gives the steps
    else:
        assert len(changed) == 1


def test_the_script_knows_the_arms():
    (names,) = re.findall(r"^ARMS=\((.*)\)$", (RECIPE / "choose.sh").read_text(), re.M)
    assert names.split() == ARMS


def test_the_script_touches_no_test_data():
    text = (RECIPE / "choose.sh").read_text()
    assert "--split dev --seen --unseen dev " in text
    assert "held-out" not in text
    assert "--split test" not in text


def write_cell(exp, cell, rate):
    """Write 20 items of a task under a condition, of which the share `rate` is right.

    Items of KS have five voices; those of IC, style and DUAL have five others, in common. Training
    knows the voices of SID, so that these are "".
    """
    name, metric = cell.task.split()
    voice_pattern = {"sid": "", "ks": "other-{}"}.get(name, "v{}")
    items = []
    for i in range(20):
        item = {"id": f"u{i}", "group": f"u{i}", "voice": voice_pattern.format(i % 5)}
        items.append(item | {"denominator": 1.0, "numerator": float(i < 20 * rate)})
    folder = exp / cell.arm / "dev/scores" / cell.arm / f"{name}-{metric}"
    card = {"task": name, "metric": metric, "condition": cell.condition}
    write_items(folder / f"{cell.condition}.parquet", items, card)


def write_arm(exp, arm, *, clean, noisy, ued=0.2):
    """Write an arm that was trained 7 steps, with its scores as `evaluate robustness` leaves them.

    clean, noisy: five scores, of the tasks of TASKS.
    """
    for task, clean_rate, noisy_rate in zip(CHOOSE.TASKS, clean, noisy, strict=True):
        write_cell(exp, CHOOSE.Cell(arm, task, CHOOSE.CLEAN), clean_rate)
        write_cell(exp, CHOOSE.Cell(arm, task, CHOOSE.NOISY), noisy_rate)
    write_cell(exp, CHOOSE.Cell(arm, CHOOSE.UED, CHOOSE.CLEAN), 0.0)
    write_cell(exp, CHOOSE.Cell(arm, CHOOSE.UED, CHOOSE.NOISY), ued)
    (exp / arm / "dev/results.jsonl").write_text("")
    write_json(exp / arm / "encoder/card.json", {"training": {"steps": 7}})


@pytest.fixture
def exp(tmp_path):
    """An experiment with the start and three arms: `distil-0` is best in noise but loses clean
    speech, `snr-low` is the second best (mean 52 % in noise), `base` the third (50 %)."""
    write_arm(tmp_path, "start", clean=[0.8] * 5, noisy=[0.1] * 5, ued=0.9)
    write_arm(tmp_path, "base", clean=[0.8] * 5, noisy=[0.5] * 5, ued=0.2)
    write_arm(tmp_path, "distil-0", clean=[0.7] * 5, noisy=[0.9] * 5, ued=0.1)
    write_arm(
        tmp_path,
        "snr-low",
        clean=[0.85, 0.75, 0.8, 0.8, 0.8],
        noisy=[0.6, 0.5, 0.5, 0.5, 0.5],
        ued=0.3,
    )
    return tmp_path


def summarise(exp, *names):
    scores = CHOOSE.read_scores(exp)
    return [CHOOSE.summarise_arm(name, scores) for name in names]


def test_the_best_mean_in_noise_is_chosen_of_arms_that_keep_clean_speech(exp):
    arms = summarise(exp, "start", "base", "distil-0", "snr-low")
    assert CHOOSE.choose(arms).name == "snr-low"
    assert CHOOSE.choose(arms[:3]).name == "base"
    assert CHOOSE.choose(arms[:1]) is None


def test_of_equal_means_the_arm_with_the_lowest_unit_edit_distance_is_chosen(exp):
    write_arm(
        exp, "distil-5", clean=[0.8] * 5, noisy=[0.5, 0.6, 0.5, 0.5, 0.5], ued=0.25
    )  # snr-low has 0.3
    arms = summarise(exp, "start", "base", "snr-low", "distil-5")
    assert CHOOSE.choose(arms).name == "distil-5"


def test_an_arm_has_its_mean_and_its_difference_from_base(exp):
    (arm,) = summarise(exp, "snr-low")
    assert arm.noisy == pytest.approx(52)
    assert arm.difference.value == pytest.approx(2)
    assert arm.difference.interval.low <= 2
    assert arm.difference.interval.high >= 2


def test_the_table_shows_what_an_arm_changes_and_the_chosen_one_in_bold(exp):
    arms = summarise(exp, "start", "base", "snr-low")
    _, _, start, _, snr_low = CHOOSE.make_table(arms, SECTIONS, exp).markdown.splitlines()[:5]
    assert start.startswith("| start | not trained | 80.0 · 10.0 | ")
    assert snr_low.startswith("| **snr-low** | snr-range [-5, 15], 7 steps | ")


def test_tasks_that_share_voices_draw_them_together(tmp_path, capsys):
    for arm in ("start", "base"):
        write_arm(tmp_path, arm, clean=[0.8] * 5, noisy=[0.45] * 5)
    scores = CHOOSE.read_scores(tmp_path)
    ks, ic, sid, style, dual = (
        scores[CHOOSE.Cell("base", task, CHOOSE.NOISY)] for task in CHOOSE.TASKS
    )
    assert (ic.resampled == style.resampled).all()
    assert (ic.resampled == dual.resampled).all()
    assert (ic.resampled != ks.resampled).any()
    assert ic.unit == "voice"
    assert (sid.unit, sid.groups) == ("recording", 20)
    CHOOSE.main(tmp_path, RECIPE / "choose.yaml")
    printed = capsys.readouterr().out
    assert "95 % intervals draw 5 voices (" in printed
    assert " and 20 recordings (sid acc" in printed
