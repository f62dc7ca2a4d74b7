"""What the lectures say of two starts, against runs whose answers are known."""

import numpy as np
import pytest

from speechssl.stats import BootstrapUnits
from textside.claims import agreement, verdict
from textside.runs import Run


def runs(task, arm, share, metric="accuracy", seeds=3, symbols=False):
    """Items of which the first `share` are right, alike in every seed."""
    names = tuple(f"i{n}" for n in range(200))
    units = BootstrapUnits("item", tuple((name,) for name in names))
    right = (np.arange(200) < 200 * share)[:, None].astype(float)
    return [
        Run(task, arm, seed, metric, right, names, units, symbols=symbols) for seed in range(seeds)
    ]


def verdicts(made):
    """By task and start."""
    return {row[2]: (row[3], row[5]) for table in agreement(made) for row in table.rows}


@pytest.mark.parametrize(
    ("sign", "low", "high", "expected"),
    [
        (1, 0.1, 0.3, "yes"),
        (1, -0.1, 0.1, "within the interval"),
        (-1, 0.1, 0.3, "no, the other way round"),
        (0, -40.0, 80.0, "within the interval"),
        (0, 0.1, 0.3, "yes"),  # less than the margin is nothing
        (0, 0.1, 3.0, "no"),
        (1, None, None, "no interval"),
    ],
)
def test_the_interval_decides(sign, low, high, expected):
    assert verdict(sign, low, high, 2.0) == expected


def test_claims_are_of_what_was_run_and_of_the_seeds_that_both_have():
    made = []
    for arm, share in (("scratch", 0.5), ("random", 0.8), ("shuffle-64", 0.3), ("x", 1)):
        made += runs("order", arm, share)
    made += runs("topic", "scratch", 0.5) + runs("topic", "shuffle-64", 0.69)
    made += runs("h3", "random", 0.5, symbols=True) + runs("h3", "bert", 0.9, symbols=True)
    made += runs("listops", "frozen", 0.5, "share") + runs("listops", "default", 0.5, "share")
    # published: both 100
    made += runs("bit-xor", "frozen", 0.5, "share") + runs("bit-xor", "default", 0.1, "share")
    made += runs("dual", "text", 0.5, "ff1")[:1] + runs("dual", "text.scratch", 0.1, "ff1")[1:]
    assert verdicts(made) == {
        "order: random against scratch": ("≈ 0", "no"),
        "order, topic: shuffle-64 against scratch": ("most of English's", "within the interval"),
        "h3: bert against random": ("83.0 against 75.6", "yes"),
        "listops: frozen against default": ("38.4 against 34.3", "within the interval"),
    }
    assert agreement(runs("order", "x", 1)) == []


def test_a_start_that_is_not_above_the_floor_of_its_task_agrees_with_nothing_by_itself():
    floors = {"listops": {"majority": 0.1, "outer-operator": 0.5}, "digits": {"nearest-mean": 0.2}}
    made = [
        run
        for task, floor in floors.items()
        for arm, share in ({"frozen": 0.5, "default": 0.3} | floor).items()
        for run in runs(task, arm, share, "share")
    ]
    assert verdicts(made) == {
        "listops: frozen against default": (
            "38.4 against 34.3",
            "yes; frozen is not above the floor outer-operator",
        ),
        "listops: frozen against outer-operator": ("–", "within the interval"),
        "digits: frozen against default": ("–", "yes"),
        "digits: frozen against nearest-mean": ("–", "yes"),
    }
