"""EER, detection cost and DET points: sklearn's and s3prl's own numbers, ties, trials that nobody heard, and the bootstrap."""

import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import interp1d
from scipy.optimize import brentq
from sklearn.metrics import roc_curve

from speechssl.superb.tasks.verification import ErrorCurve, ScoredTrials


def trials(count, seed, apart=1.0, digits=8):
    """Scores with as many ties as few digits make, and at least one trial of each kind."""
    rng = np.random.default_rng(seed)
    same = np.r_[True, False, rng.random(count - 2) < rng.uniform(0.05, 0.95)]
    return (rng.normal(size=count) + apart * same).round(digits), same


random_trials = st.builds(
    trials, st.integers(2, 400), st.integers(0, 10**6), st.sampled_from([-1.0, 0.0, 1.0, 3.0]), st.sampled_from([0, 1, 8])
)


@given(random_trials)
def test_the_curve_is_sklearns(drawn):
    scores, same = drawn
    false_alarms, hits, _ = roc_curve(same, scores, drop_intermediate=False)
    curve = ErrorCurve.of_scores(scores, same)
    assert np.allclose(curve.false_alarms, false_alarms) and np.allclose(curve.misses, 1 - hits)
    fpr, tpr, _ = roc_curve(same, scores)
    assert curve.eer == pytest.approx(brentq(lambda x: 1.0 - x - interp1d(fpr, tpr)(x), 0.0, 1.0), abs=1e-9)


@given(random_trials)
def test_it_is_s3prls(drawn):
    """`downstream/sv_voxceleb1/utils.py` and `metric/common.py`."""
    EER, compute_eer, compute_min_dcf = s3prls()
    scores, same = drawn
    curve = ErrorCurve.of_scores(scores, same)
    assert curve.eer == pytest.approx(EER(same.astype(int), scores)[0], abs=1e-9)
    assert curve.eer == pytest.approx(compute_eer(same.astype(int), scores)[0], abs=1e-9)
    assert curve.min_dcf() == pytest.approx(compute_min_dcf(same.astype(int), scores)[0], abs=1e-9)
    expected = compute_min_dcf(same.astype(int), scores, p_target=0.3, c_miss=10, c_fa=2)[0]
    assert curve.min_dcf(target=0.3, miss=10, false_alarm=2) == pytest.approx(expected, abs=1e-9)


def s3prls():
    pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")
    from speechssl.encoders.s3prl import import_hub

    import_hub()
    sys.modules.setdefault("editdistance", types.ModuleType("editdistance"))  # which their word error rate wants
    from s3prl.downstream.sv_voxceleb1.utils import EER
    from s3prl.metric.common import compute_eer, compute_minDCF

    return EER, compute_eer, compute_minDCF


def test_by_hand():
    curve = ErrorCurve.of_scores([4, 3, 2, 1], [True, False, True, False])
    assert curve.false_alarms.tolist() == [0, 0, 0.5, 0.5, 1] and curve.misses.tolist() == [1, 0.5, 0.5, 0, 0]
    assert curve.eer == 0.5 and curve.min_dcf(0.5) == 0.5
    assert ErrorCurve.of_scores([2, 1], [True, False]).eer == 0 and ErrorCurve.of_scores([1, 2], [True, False]).eer == 1
    assert ErrorCurve.of_scores([1, 1, 1], [True, False, True]).eer == 0.5  # all alike: a coin


@given(random_trials, st.integers(0, 99))
def test_weights_are_repetitions(drawn, seed):
    scores, same = drawn
    times = np.random.default_rng(seed).integers(0, 4, (3, len(scores)))
    times[:, :2] += 1  # of either kind
    curves = ErrorCurve.of_scores(scores, same, times)
    for row, eer, cost in zip(times, curves.eer, curves.min_dcf(), strict=True):
        repeated = ErrorCurve.of_scores(scores.repeat(row), same.repeat(row))
        assert eer == pytest.approx(repeated.eer) and cost == pytest.approx(repeated.min_dcf())


@given(random_trials, st.integers(0, 10), st.integers(0, 10))
def test_a_trial_decided_wrongly_everywhere_never_helps(drawn, missed, alarmed):
    scores, same = drawn
    lost = np.r_[np.full(missed, -np.inf), np.full(alarmed, np.inf)]
    curve = ErrorCurve.of_scores(np.r_[scores, lost], np.r_[same, np.ones(missed, bool), np.zeros(alarmed, bool)])
    before = ErrorCurve.of_scores(scores, same)
    if before.eer <= 0.5:
        assert curve.eer >= before.eer - 1e-12
    everything = ErrorCurve.of_scores(np.where(same, -np.inf, np.inf), same)
    assert everything.eer == 1 and everything.min_dcf() == 1


@pytest.mark.parametrize("count", [2, 50, 20_000])
def test_a_det_curve_of_few_points(count):
    curve = ErrorCurve.of_scores(*trials(count, 0, apart=2.0))
    thin = curve.thinned(100)
    assert len(thin.misses) == len(thin.false_alarms) <= 100 or len(curve.misses) <= 100
    assert (np.diff(thin.false_alarms) >= 0).all() and (np.diff(thin.misses) <= 0).all()
    assert (thin.false_alarms[0], thin.misses[0], thin.false_alarms[-1], thin.misses[-1]) == (0, 1, 1, 0)
    assert thin.eer == pytest.approx(curve.eer, abs=0.02)


@pytest.mark.parametrize(
    ("scores", "same"),
    [([1, 2], [True, True]), ([1, 2], [False, False]), ([1, float("nan")], [True, False]), ([1], [True, False]), ([], [])],
)
def test_what_cannot_be_judged(scores, same):
    with pytest.raises(ValueError):
        ErrorCurve.of_scores(scores, same)


def speakers(persons, count, seed):
    rng = np.random.default_rng(seed)
    first, same = rng.integers(0, persons, count), rng.random(count) < 0.5
    second = np.where(same, first, (first + rng.integers(1, persons, count)) % persons)
    return ScoredTrials(rng.normal(size=count) + 2 * same, same, [str(i) for i in first], [str(i) for i in second])


def test_the_bootstrap_draws_speakers():
    scored = speakers(8, 300, 0)
    eer, cost = scored.intervals(200)
    assert eer.low < eer.value < eer.high and cost.low <= cost.value <= cost.high and eer.n == 300
    assert eer.value == ErrorCurve.of_scores(scored.scores, scored.same).eer
    assert scored.intervals(200) == (eer, cost) != scored.intervals(200, seed=1)  # the seed decides
    assert scored.intervals(0)[0].low == scored.intervals(0)[0].high == eer.value
    order = np.random.default_rng(0).permutation(300)
    names = [list(np.array(side)[order]) for side in (scored.first, scored.second)]
    assert ScoredTrials(scored.scores[order], scored.same[order], *names).intervals(0)[0] == scored.intervals(0)[0]


def test_a_resample_by_hand():
    scored = speakers(5, 60, 3)
    times = np.random.default_rng(0).multinomial(5, np.full(5, 0.2), 1)[0]  # the first that is drawn
    index = {name: i for i, name in enumerate(dict.fromkeys([*scored.first, *scored.second]))}
    pairs = [(index[a], index[b]) for a, b in zip(scored.first, scored.second, strict=True)]
    weights = np.array([times[a] if a == b else times[a] * times[b] for a, b in pairs])
    expected = ErrorCurve.of_scores(scored.scores.repeat(weights), scored.same.repeat(weights))
    (drawn,) = scored._resampled(1, 0)
    assert drawn[0] == pytest.approx([expected.eer, expected.min_dcf()])


def test_more_speakers_are_surer():
    few, many = (speakers(persons, 4_000, 0).intervals(200)[0] for persons in (6, 60))
    assert many.high - many.low < few.high - few.low


def test_one_person_has_no_spread():
    scored = ScoredTrials(np.array([2.0, 1.0, 0.0]), np.array([True, False, True]), ["a"] * 3, ["a"] * 3)
    assert scored.intervals(50)[0].low == scored.intervals(50)[0].high
