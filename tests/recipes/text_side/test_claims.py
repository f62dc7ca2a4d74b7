"""Claims of the lectures about two starts are judged rightly, on runs whose answers are known."""

from dataclasses import replace

import numpy as np
import pytest

from textside.claims import decide_claim, judge_claims

from .shared import make_runs


def run_seeds(task, arm, share, metric="accuracy", symbols=False):
    """Make a run for each of three seeds: of 200 items the first `share` are right in all."""
    right = np.tile(np.arange(200) < 200 * share, (3, 1))
    return [replace(r, metric=metric, symbols=symbols) for r in make_runs(arm, right, task)]


def judge(runs):
    """Return task and start -> published scores, and judgement."""
    (table,) = judge_claims(runs)
    return {start: (published, judgement) for _, _, start, published, _, judgement in table.rows}


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
    assert decide_claim(sign, low, high, margin=2.0) == expected


def test_claims_are_about_arms_that_were_run_with_the_same_seeds():
    runs = [
        *run_seeds("order", "scratch", 0.5),
        *run_seeds("order", "random", 0.8),
        *run_seeds("order", "shuffle-64", 0.3),
        *run_seeds("order", "x", 1),  # no claim is about x
        *run_seeds("topic", "scratch", 0.5),
        *run_seeds("topic", "shuffle-64", 0.69),
        *run_seeds("h3", "random", 0.5, symbols=True),
        *run_seeds("h3", "bert", 0.9, symbols=True),
        *run_seeds("listops", "frozen", 0.5, "share"),
        *run_seeds("listops", "default", 0.5, "share"),
        *run_seeds("bit-xor", "frozen", 0.5, "share"),  # published: both 100, so no claim
        *run_seeds("bit-xor", "default", 0.1, "share"),
        *run_seeds("dual", "text", 0.5, "ff1")[:1],  # seed 0
        *run_seeds("dual", "text.scratch", 0.1, "ff1")[1:],  # seeds 1 and 2
    ]
    assert judge(runs) == {
        "order: random against scratch": ("≈ 0", "no"),
        "order, topic: shuffle-64 against scratch": ("most of English's", "within the interval"),
        "h3: bert against random": ("83.0 against 75.6", "yes"),
        "listops: frozen against default": ("38.4 against 34.3", "within the interval"),
    }
    assert judge_claims(run_seeds("order", "x", 1)) == []


def test_a_judgement_says_that_a_start_is_not_above_the_floor_of_its_task():
    runs = [
        *run_seeds("listops", "frozen", 0.5, "share"),
        *run_seeds("listops", "default", 0.3, "share"),
        *run_seeds("listops", "majority", 0.1, "share"),  # floors
        *run_seeds("listops", "outer-operator", 0.5, "share"),
        *run_seeds("digits", "frozen", 0.5, "share"),
        *run_seeds("digits", "default", 0.3, "share"),
        *run_seeds("digits", "nearest-mean", 0.2, "share"),  # a floor
    ]
    assert judge(runs) == {
        "listops: frozen against default": (
            "38.4 against 34.3",
            "yes; frozen is not above the floor outer-operator",
        ),
        "listops: frozen against outer-operator": ("–", "within the interval"),
        "digits: frozen against default": ("–", "yes"),
        "digits: frozen against nearest-mean": ("–", "yes"),
    }
