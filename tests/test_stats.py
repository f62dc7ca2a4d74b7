"""Intervals against closed forms and against their coverage."""

from __future__ import annotations

import numpy as np
import pytest

from speechssl.stats import Interval, mean_interval, paired_difference, ratio_interval

values = np.random.default_rng(1).normal(0.5, 0.2, 400)


def test_close_to_the_normal_interval() -> None:
    interval = mean_interval(values, resamples=4000)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert interval.value == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.1 * half)
    assert interval.n == 400


def test_seeds_make_it_the_same_or_another() -> None:
    one, same, other = (mean_interval(values, seed=seed, resamples=200) for seed in (3, 3, 4))
    assert one == same
    assert one.value == other.value
    assert one.low != other.low


def test_blocks_draw_every_resample(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = mean_interval(values[:7], resamples=1000)
    monkeypatch.setattr("speechssl.stats._BLOCK", 7 * 300)  # three blocks of 300 and one of 100
    assert mean_interval(values[:7], resamples=1000) == whole


def test_covers_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    hits = 0
    for trial in range(300):
        interval = mean_interval(generator.normal(size=40), seed=trial, resamples=300)
        hits += interval.low <= 0 <= interval.high
    assert 0.89 <= hits / 300 <= 0.98


def test_questions_of_one_passage_are_not_independent() -> None:
    """Twenty identical questions a passage are worth one: clustering widens the interval by about sqrt(20)."""
    each = np.random.default_rng(2).normal(size=50)
    repeated, passages = np.repeat(each, 20), np.repeat(np.arange(50), 20).tolist()
    naive, clustered = mean_interval(repeated, resamples=2000), mean_interval(repeated, passages, resamples=2000)
    alone = mean_interval(each, resamples=2000)
    assert (clustered.high - clustered.low) / (naive.high - naive.low) == pytest.approx(20**0.5, rel=0.1)
    assert (clustered.low, clustered.high) == pytest.approx((alone.low, alone.high))
    assert clustered.n == 1000


def test_the_mean_of_unequal_groups_is_over_items() -> None:
    interval = mean_interval([0, 0, 0, 1], ["a", "a", "a", "b"], resamples=500)
    assert (interval.value, interval.low, interval.high) == (0.25, 0.0, 1.0)


def test_one_group_says_nothing_about_the_spread() -> None:
    assert mean_interval([0.0, 1.0], ["p", "p"], resamples=50) == Interval(0.5, 0.5, 0.5, 2, False, "group", 1)
    assert not mean_interval([1.0], resamples=50).estimated and mean_interval([1.0, 1.0], resamples=50).estimated
    assert not ratio_interval([3, 0], [10, 0], resamples=50).estimated  # an empty reference is no second one
    difference = paired_difference([1.0, 0.5], [0.0, 0.0], ["p", "p"], resamples=50)
    assert (difference.value, difference.ends, difference.p_value) == (0.75, (None, None), 1)
    assert difference.percent.ends == (None, None) and Interval(0.5, 0.25, 0.75, 9).ends == (0.25, 0.75)


def test_a_rate_is_a_ratio_of_sums_and_not_a_mean_of_ratios() -> None:
    errors, words = [10, 0, 1], [10, 100, 0]
    interval = ratio_interval(errors, words, resamples=3000)
    assert interval.value == pytest.approx(11 / 110)
    assert interval.low <= interval.value <= interval.high
    assert np.isfinite([interval.low, interval.high]).all()  # resamples of the empty reference alone are left out


def test_equal_rates_have_no_spread() -> None:
    interval = ratio_interval([1, 2, 3], [10, 20, 30], resamples=100)
    assert (interval.value, interval.low, interval.high) == pytest.approx((0.1, 0.1, 0.1))


def test_percent() -> None:
    assert Interval(0.5, 0.25, 0.75, 9).percent == Interval(50, 25, 75, 9)


def test_pairs_see_what_two_intervals_do_not() -> None:
    noise = np.random.default_rng(3).normal(0, 1, 300)
    small = np.random.default_rng(4).normal(0.05, 0.1, 300)
    difference = paired_difference(noise + small, noise, resamples=2000)
    assert difference.value == pytest.approx(small.mean())
    assert 0 < difference.low < difference.high
    assert 0 < difference.p_value < 0.01
    one, two = mean_interval(noise + small, resamples=500), mean_interval(noise, resamples=500)
    assert one.low < two.high  # unpaired, they overlap
    reverse = paired_difference(noise, noise + small, resamples=2000)
    assert (reverse.value, reverse.p_value) == (pytest.approx(-difference.value), difference.p_value)


@pytest.mark.parametrize(("groups", "least"), [(1, 1.0), (2, 0.5), (5, 0.0625), (6, 0.03125), (40, 0.0)])
def test_a_few_groups_prove_nothing_however_large_the_difference(groups: int, least: float) -> None:
    names = [str(i % groups) for i in range(80)]
    p = paired_difference(np.ones(80), np.zeros(80), names, resamples=999).p_value
    assert p == pytest.approx(max(least, 2 / 1000))


def test_no_difference_at_all() -> None:
    difference = paired_difference(values, values, resamples=100)
    assert (difference.value, difference.low, difference.high, difference.p_value) == (0, 0, 0, 1)


def test_p_values_under_the_null_are_uniform() -> None:
    generator = np.random.default_rng(5)
    pairs = generator.normal(size=(300, 2, 60))
    p = [paired_difference(a, b, seed=i, resamples=300).p_value for i, (a, b) in enumerate(pairs)]
    assert 0.01 <= np.mean(np.array(p) < 0.05) <= 0.1
    assert 0.4 <= np.mean(np.array(p) < 0.5) <= 0.6


def test_a_difference_of_word_error_rates() -> None:
    difference = paired_difference([5, 1], [2, 1], weights=[10, 90], resamples=200)
    assert difference.value == pytest.approx(0.03)
    assert difference.n == 2


@pytest.mark.parametrize("wrong", [[], [1.0, float("nan")], [float("inf")], [[1.0]]])
def test_scores_that_are_refused(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match="one vector of finite numbers"):
        mean_interval(wrong)


def test_lengths_and_options_that_are_refused() -> None:
    with pytest.raises(ValueError, match="3 groups do not fit 2 values"):
        mean_interval([1, 2], ["a", "b", "c"])
    with pytest.raises(ValueError, match="are not pairs"):
        paired_difference([1, 2], [1])
    for below in ([0, 0], [1, -1], [1]):
        with pytest.raises(ValueError, match="denominator"):
            ratio_interval([1, 2], below)
    with pytest.raises(ValueError, match="resamples"):
        mean_interval([1], resamples=0)
