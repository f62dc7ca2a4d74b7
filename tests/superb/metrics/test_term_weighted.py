"""MTWV: the definition read aloud, hand-made cases, ties, and what was never detected."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.superb.tasks.spoken_terms import Costs, maximum, term_curves, values_at


def brute_force(scores, truth, costs):
    """(MTWV): at every score there is, and above all of them."""
    best = 0.0
    for threshold in scores[np.isfinite(scores)]:
        values = []
        for of_query, wanted in zip(scores, truth, strict=True):
            said = of_query >= threshold
            misses = sum(not s and w for s, w in zip(said, wanted, strict=True)) / sum(wanted)
            others = len(wanted) - sum(wanted)
            alarms = sum(s and not w for s, w in zip(said, wanted, strict=True)) / others if others else 0
            values.append(1 - misses - costs.beta * alarms)
        best = max(best, sum(values) / len(values))
    return best


def drawn(queries, documents, seed, ties=False, informed=2.0):
    rng = np.random.default_rng(seed)
    truth = rng.random((queries, documents)) < 0.2
    truth[np.arange(queries), rng.integers(0, documents, queries)] = True
    scores = rng.standard_normal(truth.shape) + informed * truth
    return np.round(scores) if ties else scores, truth


@given(st.integers(1, 6), st.integers(1, 25), st.integers(0, 999), st.booleans(), st.sampled_from([0.0, 2.0, 6.0]))
def test_it_is_the_definition(queries, documents, seed, ties, informed):
    scores, truth = drawn(queries, documents, seed, ties, informed)
    for costs in (Costs(), Costs(prior=0.3, miss=2.0)):
        curves = term_curves(scores, truth, costs)
        found = maximum(curves, 0)
        assert found.value == pytest.approx(brute_force(scores, truth, costs))
        assert values_at(scores, truth, curves.thresholds[curves.best], costs).mean() == pytest.approx(found.value)


def test_it_is_the_public_roc_reading_for_one_query():
    """With one query the curve is a ROC: scikit-learn's, at its own thresholds."""
    from sklearn.metrics import roc_curve

    scores, truth = drawn(1, 400, 3)
    alarms, hits, _ = roc_curve(truth[0], scores[0], drop_intermediate=False)
    assert maximum(term_curves(scores, truth), 0).value == pytest.approx((hits - Costs().beta * alarms).max())


def test_published_costs():
    assert Costs().beta == pytest.approx(12.49)  # 1 / 0.0741289 - 1: the effective prior that MediaEval's scorer is given
    assert 1 / (1 + Costs().beta) == pytest.approx(0.0741289, abs=1e-7)


def test_ends_of_the_scale():
    truth = np.array([[True, False, False], [False, True, True]])
    assert maximum(term_curves(truth * 2.0, truth), 0).value == 1
    assert maximum(term_curves(-1.0 * truth, truth), 0).value == 0  # to say nothing is best
    assert term_curves(-1.0 * truth, truth).thresholds[0] == np.inf


def test_what_could_not_be_heard_is_missed():
    scores, truth = np.array([[3.0, 0.0, 0.0], [-np.inf] * 3]), np.array([[True, False, False], [True, True, False]])
    assert maximum(term_curves(scores, truth), 0).value == 0.5
    assert values_at(scores, truth, -1e9)[1] == 0  # not even at the lowest threshold


@pytest.mark.parametrize("wrong", ["no match", "nan", "no query"])
def test_bad_input(wrong):
    scores, truth = drawn(3, 4, 0)
    if wrong == "no match":
        truth[1] = False
    if wrong == "nan":
        scores[0, 0] = np.nan
    with pytest.raises(ValueError, match="every query"):
        term_curves(scores[:0], truth[:0]) if wrong == "no query" else term_curves(scores, truth)


def test_the_interval_is_that_of_resampled_queries():
    scores, truth = drawn(40, 60, 1, informed=3.0)
    curves = term_curves(scores, truth)
    found = maximum(curves, 500)
    assert found.n == 40 and found.low < found.value < found.high and found == maximum(curves, 500)
    rng = np.random.default_rng(9)
    again = []
    for _ in range(300):
        chosen = rng.integers(0, 40, 40)
        again.append(maximum(term_curves(scores[chosen], truth[chosen]), 0).value)
    assert [found.low, found.high] == pytest.approx(np.quantile(again, [0.025, 0.975]), abs=0.04)
