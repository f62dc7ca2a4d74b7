"""Gains over scratch: paired by seed and item, intervals that draw both, tables beside what was
published."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import matthews_corrcoef

from gains import Gains, make_tables
from speechssl.results import read_rows
from speechssl.stats import BootstrapUnits, paired_difference
from textside.runs import Run, compute_score, estimate, read_runs, score_columns, write_scores
from textside.tables import (
    interpolate_score,
    make_depth_table,
    make_equal_loss_tables,
    make_plateau_tables,
)
from textside.tasks import MCC, SPEARMAN


def runs(arm, right, task="order"):
    """right: (seeds, items)."""
    names = tuple(f"i{n}" for n in range(right.shape[1]))
    units = BootstrapUnits("item", tuple((name,) for name in names))
    return [
        Run(task, arm, seed, "accuracy", line[:, None].astype(float), names, units)
        for seed, line in enumerate(right)
    ]


@pytest.mark.slow
def test_seeds_that_differ_widen_the_interval():
    rng = np.random.default_rng(1)
    base, even = rng.random((6, 400)) < 0.5, rng.random((6, 400)) < 0.7
    uneven = rng.random((6, 400)) < np.array([[0.5], [0.5], [0.7], [0.7], [0.9], [0.9]])
    alike, apart = (
        estimate(runs("x", some), runs("scratch", base)).interval for some in (even, uneven)
    )
    assert [alike.value, apart.value] == pytest.approx([0.2, 0.2], abs=0.05)
    assert apart.high - apart.low > 2 * (alike.high - alike.low)
    assert (alike.drawn, alike.groups) == ("seed × item", 6)


def test_of_three_seeds_the_interval_is_about_these():
    """Which is that of their mean, item by item."""
    rng = np.random.default_rng(2)
    base, better = rng.random((3, 60)) < 0.5, rng.random((3, 60)) < 0.8
    found = estimate(runs("x", better), runs("scratch", base))
    known = paired_difference(better.mean(0), base.mean(0))
    assert (found.interval.drawn, found.interval.groups) == ("item (about these 3 seeds)", 60)
    low, high = known.interval.ends
    assert found.error == pytest.approx((high - low) / 2 / 2.001, rel=0.02)
    assert found.p_value == known.p_value


def test_five_seeds_are_drawn_beside_the_items_and_cover():
    """Seeds that add as much as items do, and no gain: 95 % of the intervals hold 0."""
    rng = np.random.default_rng(3)
    held = found = 0
    for _ in range(200):
        gains = rng.normal(0, 0.4, (6, 1)) + rng.normal(0, 0.4, (1, 20)) + rng.normal(0, 1, (6, 20))
        quantity = estimate(runs("x", gains), runs("scratch", np.zeros((6, 20))), resamples=200)
        held += quantity.interval.low <= 0 <= quantity.interval.high
        found += quantity.p_value < 0.05
    assert 0.92 <= held / 200 <= 0.99 and found / 200 <= 0.06


def test_only_common_seeds_and_items_are_compared():
    a, b = runs("x", np.ones((3, 10))), runs("scratch", np.zeros((2, 10)))
    b = [run.select([f"i{n}" for n in range(6)]) for run in b]
    found = estimate(a, b)
    assert (found.value, found.n, found.groups) == (1, 6, 6)
    with pytest.raises(ValueError, match="no seed or no item in common"):
        estimate(a[2:], b)


def test_items_of_a_passage_are_drawn_together():
    rng = np.random.default_rng(0)
    passages = np.repeat(np.arange(8), 20)
    (alone,) = runs("x", (rng.random(8) < 0.5)[passages][None])  # alike within a passage
    units = BootstrapUnits("passage", tuple((str(p),) for p in passages))
    together = replace(alone, task="dual", metric="ff1", units=units)
    wide, narrow = (estimate([run]).interval for run in (together, alone))
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
    assert (wide.drawn, wide.groups) == ("passage", 8)


def leave(results, task, arm, seed, right, metric="accuracy"):
    items = {f"i{n}": (1.0, float(x)) for n, x in enumerate(right)}
    write_scores(results, task, metric, arm, seed, items, {"encoder": "e"})


def test_runs_on_disk_become_tables_rows_and_gains(tmp_path):
    for seed in range(3):
        leave(tmp_path, "order", "scratch", seed, [1, 0, 0, 0] * 5)
        leave(tmp_path, "order", "nested", seed, [1, 1, 1, 0] * 5)
        leave(tmp_path, "listops", "frozen", seed, [1, 0] * 5, "share")
    agrees, scores, gains, frozen = make_tables(Gains(results=tmp_path))
    name, published, found, verdict = agrees.rows[0][2:]
    assert (name, published) == ("order: nested against scratch", "most of English's")
    assert found.startswith("75.0 against 25.0: +50.0 [+")
    assert verdict == "yes"
    assert scores.rows[0][1].startswith("75.0 [")
    assert gains.rows[0][1].startswith("+50.0 [+")
    assert frozen.rows[1] == ("frozen, published", 38.4)
    rows = read_rows(tmp_path / "results.jsonl")
    (gain,) = (r for r in rows if r.metric == "gain")
    assert (gain.task, gain.encoder, gain.value) == ("order", "nested", 50.0)
    assert gain.card == "over scratch"
    assert gain.low < 50 < gain.high
    make_tables(Gains(results=tmp_path))
    assert read_rows(tmp_path / "results.jsonl") == rows
    # gains over another start are of another scale
    make_tables(Gains(results=tmp_path, baseline="nested"))
    (gain,) = (r for r in read_rows(tmp_path / "results.jsonl") if r.metric == "gain")
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


def test_scores_are_compared_at_the_loss_that_all_come_down_to():
    points = [(10.0, 1.0, 0.5), (20.0, 0.6, 0.7), (30.0, 0.7, 0.75), (40.0, 0.2, 0.9)]
    found = [interpolate_score(points, loss) for loss in (2.0, 0.8, 0.6, 0.1)]
    assert found == pytest.approx([0.5, 0.6, 0.7, 0.9])

    def curve(arm, *pairs):
        points = [{"step": n, "loss": a, "score": b} for n, (a, b) in enumerate(pairs)]
        return replace(runs(arm, np.ones((1, 4)))[0], curve=tuple(points))

    fast, slow = curve("fast", (1.0, 0.5), (0.0, 0.9)), curve("slow", (1.2, 0.4), (0.5, 0.6))
    (table,) = make_equal_loss_tables([fast, slow])
    assert table.columns == ("task", "training loss", "fast", "slow")
    assert table.rows[0] == ("order", "0.500", pytest.approx(70), pytest.approx(60))
    assert make_equal_loss_tables([fast]) == []
    assert make_equal_loss_tables([replace(fast, symbols=True), slow]) == []


def test_metrics_of_means_are_those_of_scikit_learn_and_scipy():
    def score(metric, a, b, weights=None):
        return compute_score(metric, np.average(score_columns(metric, a, b), 0, weights))

    rng = np.random.default_rng(0)
    gold, predicted = rng.integers(2, size=(2, 200))
    assert score(MCC, gold, predicted) == pytest.approx(matthews_corrcoef(gold, predicted))
    weights = rng.integers(3, size=200)
    drawn = np.repeat(np.arange(200), weights)
    wanted = matthews_corrcoef(gold[drawn], predicted[drawn])
    assert score(MCC, gold, predicted, weights) == pytest.approx(wanted)
    assert score(MCC, gold, np.ones(200)) == 0
    a = rng.normal(size=200).round(1)
    b = a + rng.normal(size=200)
    assert score(SPEARMAN, a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert score("accuracy", gold, predicted) == pytest.approx((gold == predicted).mean())


def test_steps_to_a_score_have_a_mean_over_seeds_and_a_distance_from_text():
    def run(arm, seed, at):
        scores = {s: 0.3 if at and s >= at else 0.1 for s in (100, 200, 300, 400)}
        curve = tuple({"step": s, "loss": 1.0, "score": score} for s, score in scores.items())
        return replace(runs(arm, np.ones((1, 1)), "dual")[0], seed=seed, curve=curve)

    text, copy, units = (100, 200, 300), (200, 400, 400), (100, None, 300)
    reached = {"text": text, "text.copy": copy, "text.units": units}
    made = [run(arm, seed, at) for arm, each in reached.items() for seed, at in enumerate(each)]
    rows = {row[0]: row[1:] for row in make_plateau_tables(made)[0].rows}
    assert rows["text"] == ("100", "200", "300", "200", "–")  # three seeds have no interval
    assert rows["text.copy"] == ("200", "400", "400", "333", "+133")
    assert rows["text.units"] == ("100", "–", "300", "–", "–")
