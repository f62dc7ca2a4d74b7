"""Intervals against closed forms and their coverage; estimates paired over cells; Holm's
procedure."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl import stats

values = np.random.default_rng(1).normal(0.5, 0.2, 400)


def units(labels):
    return stats.BootstrapUnits("group", tuple((str(label),) for label in labels))


def test_close_to_the_normal_interval():
    interval = stats.mean_interval(values, resamples=4000)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert interval.value == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.1 * half)
    assert interval.n == 400


def test_questions_of_one_passage_are_not_independent():
    """Twenty identical questions a passage are worth one: clustering widens the interval by about
    sqrt(20)."""
    each = np.random.default_rng(2).normal(size=50)
    repeated, passages = np.repeat(each, 20), units(np.repeat(np.arange(50), 20))
    naive = stats.mean_interval(repeated, resamples=2000)
    clustered = stats.mean_interval(repeated, passages, resamples=2000)
    wider = (clustered.high - clustered.low) / (naive.high - naive.low)
    assert wider == pytest.approx(20**0.5, rel=0.1)
    assert clustered.ends == pytest.approx(stats.mean_interval(each, resamples=2000).ends)
    assert (clustered.n, clustered.drawn, clustered.groups) == (1000, "group", 50)


def test_the_mean_of_unequal_groups_is_over_items():
    interval = stats.mean_interval([0, 0, 0, 1, 1, 1, 1, 1], units("aaabcdef"), resamples=500)
    # a share, which ends at 1
    assert (interval.value, interval.groups, interval.high) == (0.625, 6, 1.0)


def test_fewer_than_five_groups_say_too_little_about_the_spread():
    assert stats.mean_interval([0.0, 1.0], units("pp"), resamples=50) == stats.Interval(
        0.5, 0.5, 0.5, 2, False, "group", 1
    )
    assert stats.mean_interval([0, 0, 0, 1], units("abcd"), resamples=50).ends == (None, None)
    assert not stats.mean_interval([1.0] * 4, resamples=50).estimated
    assert stats.mean_interval([1.0] * 5, resamples=50).estimated
    # an empty reference is no fifth one
    assert not stats.ratio_interval([3] * 4 + [0], [10] * 4 + [0], resamples=50).estimated
    difference = stats.paired_difference([1.0, 0.5], [0.0, 0.0], units("pp"), resamples=50)
    assert (difference.value, difference.interval.ends) == (0.75, (None, None))
    assert difference.p_value == 1


def test_a_rate_is_a_ratio_of_sums_and_not_a_mean_of_ratios():
    errors, words = [10, 0, 1, 2, 0, 3], [10, 100, 0, 20, 30, 20]
    interval = stats.ratio_interval(errors, words, resamples=3000)
    assert interval.value == pytest.approx(16 / 180)
    assert interval.low <= interval.value <= interval.high
    # resamples of the empty reference alone are left out
    assert np.isfinite([interval.low, interval.high]).all()


def test_pairs_see_what_two_intervals_do_not():
    noise = np.random.default_rng(3).normal(0, 1, 300)
    small = np.random.default_rng(4).normal(0.05, 0.1, 300)
    difference = stats.paired_difference(noise + small, noise, resamples=2000)
    assert difference.value == pytest.approx(small.mean())
    assert 0 < difference.interval.low < difference.interval.high
    assert 0 < difference.p_value < 0.01
    one = stats.mean_interval(noise + small, resamples=500)
    two = stats.mean_interval(noise, resamples=500)
    assert one.low < two.high  # unpaired, they overlap
    reverse = stats.paired_difference(noise, noise + small, resamples=2000)
    assert reverse.value == pytest.approx(-difference.value)
    assert reverse.p_value == difference.p_value


@pytest.mark.parametrize(
    ("groups", "least"), [(1, 1.0), (2, 0.5), (5, 0.0625), (6, 0.03125), (40, 0.0)]
)
def test_a_few_groups_prove_nothing_however_large_the_difference(groups, least):
    drawn = units(i % groups for i in range(80))
    found = stats.paired_difference(np.ones(80), np.zeros(80), drawn, resamples=999)
    assert found.p_value == pytest.approx(max(least, 1 / 10_001))
    assert found.unit == "group"


@pytest.mark.parametrize("wrong", [[], [1.0, float("nan")], [float("inf")]])
def test_scores_that_are_refused(wrong):
    with pytest.raises(ValueError, match="must be finite"):
        stats.mean_interval(wrong)


def scored(values, groups=None, weights=None):
    groups = groups or [str(i) for i in range(len(values))]
    weights = weights or [1.0] * len(values)
    return [
        stats.ItemScore(str(i), g, v, w)
        for i, (v, g, w) in enumerate(zip(values, groups, weights, strict=True))
    ]


def test_two_calls_about_the_same_groups_draw_the_same():
    values = np.random.default_rng(2).normal(size=50).tolist()
    one = stats.resample_cells({"a": scored(values)}, seed=1)["a"].resampled
    backwards = {"x": scored(values)[::-1], "y": scored(values[::-1])}
    assert np.allclose(one, stats.resample_cells(backwards, seed=1)["x"].resampled)
    assert not np.allclose(one, stats.resample_cells({"a": scored(values)}, seed=2)["a"].resampled)


def test_only_items_that_all_cells_have_count():
    found = stats.resample_cells({"a": scored([1, 1, 0, 0]), "b": scored([1, 1, 0])})
    assert found["a"].value == found["b"].value == pytest.approx(2 / 3) and found["a"].n == 3


def test_what_is_divided_by_nothing_is_not_defined_and_harms_no_interval():
    a = stats.Estimate(1.0, np.array([1.0, 2.0, 3.0]), 3, 3)
    b = stats.Estimate(0.5, np.array([0.0, 1.0, 1.0]), 3, 2)
    nothing = stats.Estimate(0.0, np.zeros(3), 3, 3)
    found = stats.combine_estimates(np.divide, a, b)
    assert np.isnan(found.resampled[0])
    assert found.value == 2.0
    assert 2.0 <= found.interval.low <= found.interval.high <= 3.0
    assert np.isnan(stats.combine_estimates(np.divide, a, nothing).value)


def spoken(values, voices, prefix=""):
    return [
        stats.ItemScore(f"{prefix}{i}", f"p{i}", v, 1.0, w)
        for i, (v, w) in enumerate(zip(values, voices, strict=True))
    ]


def test_voices_are_drawn_where_there_are_enough_and_all_is_recorded():
    values = np.random.default_rng(3).random(20).tolist()
    by_voice = stats.resample_cells({"a": spoken(values, "abcde" * 4)}, unit="passage")["a"]
    by_passage = stats.resample_cells({"a": spoken(values, "abcd" * 5)}, unit="passage")["a"]
    assert (by_voice.unit, by_voice.groups) == ("voice", 5)
    assert (by_voice.interval.drawn, by_voice.interval.groups) == ("voice", 5)
    assert (by_passage.unit, by_passage.groups) == ("passage (about these 4 voices)", 20)
    mean = stats.mean_estimate([by_voice, by_passage, by_voice])
    assert (mean.unit, mean.groups, mean.n) == ("voice, passage (about these 4 voices)", 5, 60)


def test_tasks_that_share_a_voice_are_drawn_together():
    """A share of a task's voices in common is enough: what is hard for a voice is hard in both."""
    rng = np.random.default_rng(4)
    hard = dict(zip("abcdefghi", rng.random(9), strict=True))
    tasks = {"ks": "abcdefgh" * 3, "ic": "bcdefghi" * 4, "other": "uvwxy" * 3, "none": [""] * 12}
    cells = {
        t: spoken([hard.get(v, 0.3) + rng.normal(0, 0.01) for v in voices], voices, t)
        for t, voices in tasks.items()
    }
    drawn_of = {t: stats.common_units({t: scored}, "passage")[1] for t, scored in cells.items()}
    together = stats.find_shared_groups(drawn_of)
    assert together["ks"] == together["ic"] == set("abcdefghi")
    assert together["other"] == set("uvwxy")
    assert together["none"] == {f"p{i}" for i in range(12)} and drawn_of["none"].name == "passage"
    drawn = {
        t: stats.resample_cells({t: scored}, 0, 2000, "passage", together[t])[t].resampled
        for t, scored in cells.items()
    }
    usual = np.isfinite(drawn["ks"])
    assert np.corrcoef(drawn["ks"][usual], drawn["ic"][usual])[0, 1] > 0.7
    assert abs(np.corrcoef(drawn["ks"][usual], drawn["other"][usual])[0, 1]) < 0.1


def test_holm_by_hand():
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert stats.holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_the_p_value_and_bonferroni_and_keeps_the_order(p_values):
    found, given = np.array(stats.holm(p_values)), np.array(p_values)
    assert (given <= found).all()
    assert (found <= np.minimum(1.0, len(given) * given) + 1e-12).all()
    assert (np.diff(found[np.argsort(given, kind="stable")]) >= 0).all()
