"""Gains over scratch are paired by seed and item, their intervals draw both, and tables put them
beside published scores."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import matthews_corrcoef

from gains import Gains, make_tables
from speechssl.results import read_rows
from speechssl.stats import BootstrapUnits, estimate_difference
from textside.runs import (
    compute_score,
    estimate,
    find_bounds,
    read_runs,
    score_columns,
    write_scores,
)
from textside.tables import (
    interpolate_score,
    make_depth_table,
    make_equal_loss_tables,
    make_plateau_tables,
)
from textside.tasks import MCC, SPEARMAN

from .shared import make_runs


def estimate_gain(right, baseline, **options):
    """Estimate the gain of an arm over a baseline, whose right answers are (seeds, items)."""
    return estimate(make_runs("x", right), make_runs("scratch", baseline), **options)


@pytest.mark.slow
def test_seeds_that_differ_widen_the_interval():
    rng = np.random.default_rng(1)
    baseline = rng.random((6, 400)) < 0.5
    equal_seeds = rng.random((6, 400)) < 0.7
    unequal_seeds = rng.random((6, 400)) < np.array([[0.5], [0.5], [0.7], [0.7], [0.9], [0.9]])
    narrow = estimate_gain(equal_seeds, baseline).interval
    wide = estimate_gain(unequal_seeds, baseline).interval
    assert narrow.value == pytest.approx(0.2, abs=0.05)
    assert wide.value == pytest.approx(0.2, abs=0.05)
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
    assert (narrow.drawn, narrow.groups) == ("seed × item", 6)


def test_the_interval_of_three_seeds_is_that_of_their_mean_item_by_item():
    rng = np.random.default_rng(2)
    baseline, better = rng.random((3, 60)) < 0.5, rng.random((3, 60)) < 0.8
    gain = estimate_gain(better, baseline)
    assert (gain.interval.drawn, gain.interval.groups) == ("item (about these 3 seeds)", 60)
    of_means = estimate_difference(better.mean(0), baseline.mean(0))
    low, high = of_means.interval.ends
    student_t = 2.001  # 97.5 % with 59 degrees of freedom
    assert gain.error == pytest.approx((high - low) / 2 / student_t, rel=0.02)
    assert gain.p_value == of_means.p_value


def test_intervals_of_six_seeds_cover_the_gain_and_p_values_reject_as_rarely_as_they_say():
    trials, seeds, items = 200, 6, 20
    rng = np.random.default_rng(3)
    covered = rejected = 0
    for _ in range(trials):
        # no gain; seeds differ as much as items do
        scores = rng.normal(0, 0.4, (seeds, 1)) + rng.normal(0, 0.4, (1, items))
        scores = scores + rng.normal(0, 1, (seeds, items))
        gain = estimate_gain(scores, np.zeros((seeds, items)), resamples=200)
        covered += gain.interval.low <= 0 <= gain.interval.high
        rejected += gain.p_value < 0.05
    assert 0.92 <= covered / trials <= 0.99
    assert rejected / trials <= 0.06


def test_only_common_seeds_and_items_are_compared():
    runs = make_runs("x", np.ones((3, 10)))
    first_items = [f"i{n}" for n in range(6)]
    baseline = [run.select(first_items) for run in make_runs("scratch", np.zeros((2, 10)))]
    gain = estimate(runs, baseline)
    assert gain.value == 1
    assert (gain.n, gain.groups) == (6, 6)
    with pytest.raises(ValueError, match="no seed or no item in common"):
        estimate(runs[2:], baseline)


def test_items_of_a_passage_are_drawn_together():
    rng = np.random.default_rng(0)
    passages = np.repeat(np.arange(8), 20)
    right = (rng.random(8) < 0.5)[passages]  # all or none of a passage
    (by_item,) = make_runs("x", right[None])
    units = BootstrapUnits("passage", tuple((str(passage),) for passage in passages))
    by_passage = replace(by_item, task="dual", metric="ff1", units=units)
    narrow, wide = estimate([by_item]).interval, estimate([by_passage]).interval
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
    assert (wide.drawn, wide.groups) == ("passage", 8)


@pytest.fixture
def results(tmp_path):
    """A folder of results: three seeds of order by `scratch` (25 % right) and `nested` (75 %), and
    of listops by `frozen`."""

    def write_run(task, metric, arm, seed, right):
        items = {f"i{n}": (1.0, float(x)) for n, x in enumerate(right)}
        write_scores(tmp_path, task, metric, arm, seed, items, {"encoder": "e"})

    for seed in range(3):
        write_run("order", "accuracy", "scratch", seed, [1, 0, 0, 0] * 5)
        write_run("order", "accuracy", "nested", seed, [1, 1, 1, 0] * 5)
        write_run("listops", "share", "frozen", seed, [1, 0] * 5)
    return tmp_path


def read_gain(results):
    """Return the only row of a gain, which is of task order."""
    (gain,) = (row for row in read_rows(results / "results.jsonl") if row.metric == "gain")
    return gain


def test_runs_on_disk_become_tables(results):
    claims, scores, gains, frozen = make_tables(Gains(results=results))
    _, _, start, published, ours, judgement = claims.rows[0]
    assert (start, published) == ("order: nested against scratch", "most of English's")
    assert ours.startswith("75.0 against 25.0: +50.0 [+")
    assert judgement == "yes"
    assert scores.rows[0][1].startswith("75.0 [")
    assert gains.rows[0][1].startswith("+50.0 [+")
    assert frozen.rows[1] == ("frozen, published", 38.4)


def test_gains_become_rows_once(results):
    make_tables(Gains(results=results))
    gain = read_gain(results)
    assert (gain.task, gain.encoder, gain.value) == ("order", "nested", 50.0)
    assert gain.card == "over scratch"
    assert gain.low < 50 < gain.high
    rows = read_rows(results / "results.jsonl")
    make_tables(Gains(results=results))
    assert read_rows(results / "results.jsonl") == rows


def test_gains_over_another_baseline_replace_the_rows(results):
    make_tables(Gains(results=results))
    make_tables(Gains(results=results, baseline="nested"))
    gain = read_gain(results)
    assert (gain.encoder, gain.card) == ("scratch", "over nested")


def test_listops_are_scored_by_the_depth_of_the_expressions(tmp_path):
    right = {"outer-operator": [1, 1, 0, 1, 0, 0], "frozen": [1, 1, 1, 0, 0, 0]}
    names = ("8", "9", "10", "11", "12", "13")  # which JSON sorts otherwise
    depths = zip(names, [[1, 3], [1, 5], [2, 6], [2, 8], [3, 7], [3, 7]], strict=True)
    about = {"outer-operator": {"expressions": dict(depths)}, "frozen": {}}
    for seed in (0, 1):
        for arm, shares in right.items():
            items = {name: (1.0, float(x)) for name, x in zip(names, shares, strict=True)}
            write_scores(tmp_path, "listops", "share", arm, seed, items, about[arm])
    (table,) = make_depth_table(read_runs(tmp_path))
    depths = [f"depth {n} (2 expressions)" for n in (1, 2, 3)]
    assert table.columns == ("start", *depths, "all (6 expressions)")
    assert table.rows[0] == ("digits, mean", "4.0", "7.0", "7.0", "6.0")
    values = {row[0]: [float(c.partition(" ")[0]) for c in row[1:]] for row in table.rows[1:]}
    assert values == {arm: [100, 50, 0, 50] for arm in right}


@pytest.mark.parametrize(("loss", "score"), [(2.0, 0.5), (0.8, 0.6), (0.6, 0.7), (0.1, 0.9)])
def test_a_score_is_interpolated_where_the_loss_first_falls_to_a_value(loss, score):
    # steps, loss, score; a loss above the first or below the last gets the score there
    points = [(10.0, 1.0, 0.5), (20.0, 0.6, 0.7), (30.0, 0.7, 0.75), (40.0, 0.2, 0.9)]
    assert interpolate_score(points, loss) == pytest.approx(score)


def test_scores_are_compared_at_the_lowest_loss_that_all_starts_reach():
    def make_run(arm, *losses_and_scores):
        curve = []
        for step, (loss, score) in enumerate(losses_and_scores):
            curve.append({"step": step, "loss": loss, "score": score})
        (run,) = make_runs(arm, np.ones((1, 4)))
        return replace(run, curve=tuple(curve))

    fast = make_run("fast", (1.0, 0.5), (0.0, 0.9))
    slow = make_run("slow", (1.2, 0.4), (0.5, 0.6))
    (table,) = make_equal_loss_tables([fast, slow])
    assert table.columns == ("task", "training loss", "fast", "slow")
    assert table.rows[0] == ("order", "0.500", pytest.approx(70), pytest.approx(60))
    assert make_equal_loss_tables([fast]) == []
    assert make_equal_loss_tables([replace(fast, symbols=True), slow]) == []


def test_metrics_of_means_are_those_of_scikit_learn_and_scipy():
    def score(metric, gold, predicted, weights=None):
        means = np.average(score_columns(metric, gold, predicted), 0, weights)
        return compute_score(metric, means)

    rng = np.random.default_rng(0)
    gold, predicted = rng.integers(2, size=(2, 200))
    assert score(MCC, gold, predicted) == pytest.approx(matthews_corrcoef(gold, predicted))
    weights = rng.integers(3, size=200)
    repeated = np.repeat(np.arange(200), weights)
    expected = matthews_corrcoef(gold[repeated], predicted[repeated])
    assert score(MCC, gold, predicted, weights) == pytest.approx(expected)
    assert score(MCC, gold, np.ones(200)) == 0  # not defined
    a = rng.normal(size=200).round(1)
    b = a + rng.normal(size=200)
    assert score(SPEARMAN, a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert score("accuracy", gold, predicted) == pytest.approx((gold == predicted).mean())


def test_steps_to_a_score_have_a_mean_over_seeds_and_a_distance_from_text():
    def make_run(arm, seed, reached):
        """Make a run whose FF1 rises from 0.1 to 0.3 after so many steps; None: never."""
        curve = []
        for step in (100, 200, 300, 400):
            score = 0.3 if reached and step >= reached else 0.1
            curve.append({"step": step, "loss": 1.0, "score": score})
        (run,) = make_runs(arm, np.ones((1, 1)), task="dual")
        return replace(run, seed=seed, curve=tuple(curve))

    steps = {  # arm -> of three seeds
        "text": (100, 200, 300),
        "text.copy": (200, 400, 400),
        "text.units": (100, None, 300),
    }
    runs = [make_run(arm, i, reached) for arm in steps for i, reached in enumerate(steps[arm])]
    to_25, _ = make_plateau_tables(runs)  # steps to FF1 25, and to 50
    rows = {row[0]: row[1:] for row in to_25.rows}
    assert rows["text"] == ("100", "200", "300", "200", "–")  # three seeds have no interval
    assert rows["text.copy"] == ("200", "400", "400", "333", "+133")
    assert rows["text.units"] == ("100", "–", "300", "–", "–")


def test_scores_and_their_differences_have_bounds():
    assert find_bounds("acc", differ=False) == (0, 1)
    assert find_bounds("acc", differ=True) == (-1, 1)
    assert find_bounds(MCC, differ=False) == (-1, 1)
    assert find_bounds(SPEARMAN, differ=True) == (-2, 2)
