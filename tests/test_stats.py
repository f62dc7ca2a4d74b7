"""Intervals and p-values against closed forms; estimates that are drawn together; Holm's
procedure. (test_coverage.py measures how often intervals cover.)"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl import stats


def group_units(labels):
    """Make the units that draw the groups of items with these labels, a label for each item."""
    return stats.BootstrapUnits("group", tuple((str(label),) for label in labels))


def test_the_interval_of_many_values_is_close_to_the_normal_one():
    values = np.random.default_rng(1).normal(0.5, 0.2, 400)
    interval = stats.estimate_mean(values, resamples=4000)
    half_width = 1.96 * values.std() / np.sqrt(len(values))
    assert interval.value == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - half_width, abs=0.1 * half_width)
    assert interval.high == pytest.approx(values.mean() + half_width, abs=0.1 * half_width)
    assert interval.n == 400


def test_questions_of_one_passage_are_not_independent():
    """Twenty identical questions about a passage are worth one: drawing passages widens the
    interval by about sqrt(20)."""
    passages, questions = 50, 20
    scores = np.random.default_rng(2).normal(size=passages)
    repeated = np.repeat(scores, questions)
    by_passage = group_units(np.repeat(np.arange(passages), questions))
    naive = stats.estimate_mean(repeated, resamples=2000)
    clustered = stats.estimate_mean(repeated, by_passage, resamples=2000)
    widening = (clustered.high - clustered.low) / (naive.high - naive.low)
    assert widening == pytest.approx(questions**0.5, rel=0.1)
    assert clustered.ends == pytest.approx(stats.estimate_mean(scores, resamples=2000).ends)
    assert (clustered.n, clustered.drawn, clustered.groups) == (1000, "group", passages)


def test_the_mean_of_unequal_groups_is_over_items():
    values, groups = [0, 0, 0, 1, 1, 1, 1, 1], group_units("aaabcdef")
    interval = stats.estimate_mean(values, groups, resamples=500)
    assert interval.value == 5 / 8
    assert interval.groups == 6
    assert interval.high == 1.0  # a share is not greater


def test_fewer_than_five_groups_have_no_interval():
    one_group = stats.estimate_mean([0.0, 1.0], group_units("pp"), resamples=50)
    assert one_group == stats.Interval(
        value=0.5, low=0.5, high=0.5, n=2, estimated=False, drawn="group", groups=1
    )
    four_groups = stats.estimate_mean([0, 0, 0, 1], group_units("abcd"), resamples=50)
    assert four_groups.ends == (None, None)
    assert not stats.estimate_mean([1.0] * 4, resamples=50).estimated
    assert stats.estimate_mean([1.0] * 5, resamples=50).estimated
    # an utterance without reference words does not count
    errors, words = [3] * 4 + [0], [10] * 4 + [0]
    assert not stats.estimate_ratio(errors, words, resamples=50).estimated


def test_the_difference_in_one_group_has_neither_interval_nor_p_value():
    difference = stats.estimate_difference([1.0, 0.5], [0.0, 0.0], group_units("pp"), resamples=50)
    assert difference.value == 0.75
    assert difference.interval.ends == (None, None)
    assert difference.p_value == 1


def test_a_rate_is_a_ratio_of_sums_and_not_a_mean_of_ratios():
    errors, words = [10, 0, 1, 2, 0, 3], [10, 100, 0, 20, 30, 20]
    interval = stats.estimate_ratio(errors, words, resamples=3000)
    assert interval.value == pytest.approx(16 / 180)
    assert interval.low <= interval.value <= interval.high
    # resamples that draw only the empty reference, the third, are left out
    assert np.isfinite([interval.low, interval.high]).all()


def test_a_paired_difference_is_significant_where_two_intervals_overlap():
    scores = np.random.default_rng(3).normal(0, 1, 300)
    better = scores + np.random.default_rng(4).normal(0.05, 0.1, 300)
    low = stats.estimate_mean(better, resamples=500).low
    assert low < stats.estimate_mean(scores, resamples=500).high
    difference = stats.estimate_difference(better, scores, resamples=2000)
    assert difference.value == pytest.approx((better - scores).mean())
    assert difference.interval.low > 0
    assert 0 < difference.p_value < 0.01
    reverse = stats.estimate_difference(scores, better, resamples=2000)
    assert reverse.value == pytest.approx(-difference.value)
    assert reverse.p_value == difference.p_value


@pytest.mark.parametrize(
    ("groups", "least"), [(1, 1.0), (2, 0.5), (5, 0.0625), (6, 0.03125), (40, 0.0)]
)
def test_a_few_groups_prove_nothing_however_large_the_difference(groups, least):
    """least: 2 / 2^G, or 0 where the patterns of signs are random ones."""
    units = group_units(i % groups for i in range(80))
    difference = stats.estimate_difference(np.ones(80), np.zeros(80), units, resamples=999)
    assert difference.p_value == pytest.approx(max(least, 1 / (1 + stats.RESAMPLES)))
    assert difference.unit == "group"


@pytest.mark.parametrize("wrong", [[], [1.0, float("nan")], [float("inf")]])
def test_scores_that_are_refused(wrong):
    with pytest.raises(ValueError, match="must be finite"):
        stats.estimate_mean(wrong)


def make_items(values):
    """Make an item for each value, each a group of its own."""
    return [stats.ItemScore(str(i), str(i), value, 1.0) for i, value in enumerate(values)]


def test_two_calls_about_the_same_groups_draw_the_same():
    values = np.random.default_rng(2).normal(size=50).tolist()
    items = make_items(values)
    resampled = stats.resample_cells({"a": items}, seed=1)["a"].resampled
    other_order = {"x": items[::-1], "y": make_items(values[::-1])}
    assert np.allclose(resampled, stats.resample_cells(other_order, seed=1)["x"].resampled)
    other_seed = stats.resample_cells({"a": items}, seed=2)["a"].resampled
    assert not np.allclose(resampled, other_seed)


def test_only_items_that_all_cells_have_count():
    cells = {"a": make_items([1, 1, 0, 0]), "b": make_items([1, 1, 0])}
    for estimate in stats.resample_cells(cells).values():
        assert estimate.value == pytest.approx(2 / 3)
        assert estimate.n == 3


def test_a_division_by_zero_is_not_defined_and_harms_no_interval():
    a = stats.Estimate(1.0, np.array([1.0, 2.0, 3.0]), n=3, groups=3)
    b = stats.Estimate(0.5, np.array([0.0, 1.0, 1.0]), n=3, groups=2)
    zero = stats.Estimate(0.0, np.zeros(3), n=3, groups=3)
    ratio = stats.combine_estimates(np.divide, a, b)
    assert np.isnan(ratio.resampled[0])
    assert ratio.value == 2.0
    assert 2.0 <= ratio.interval.low <= ratio.interval.high <= 3.0
    assert np.isnan(stats.combine_estimates(np.divide, a, zero).value)


def make_voiced_items(values, voices, prefix=""):
    """Make an item for each value, about passages p0, p1, ...; voices: the speaker of each."""
    items = []
    for i, (value, voice) in enumerate(zip(values, voices, strict=True)):
        items.append(stats.ItemScore(f"{prefix}{i}", f"p{i}", value, 1.0, voice))
    return items


def test_voices_are_drawn_where_there_are_five_and_else_passages():
    values = np.random.default_rng(3).random(20).tolist()
    cells = {"five": make_voiced_items(values, "abcde" * 4)}
    by_voice = stats.resample_cells(cells, unit="passage")["five"]
    cells = {"four": make_voiced_items(values, "abcd" * 5)}
    by_passage = stats.resample_cells(cells, unit="passage")["four"]
    assert (by_voice.unit, by_voice.groups) == ("voice", 5)
    assert (by_voice.interval.drawn, by_voice.interval.groups) == ("voice", 5)
    assert (by_passage.unit, by_passage.groups) == ("passage (about these 4 voices)", 20)
    mean = stats.average_estimates([by_voice, by_passage, by_voice])
    assert (mean.unit, mean.groups, mean.n) == ("voice, passage (about these 4 voices)", 5, 60)


def test_tasks_that_share_a_voice_are_drawn_together():
    """A voice that scores low in one task scores low in the other, so that their resamples
    correlate."""
    rng = np.random.default_rng(4)
    level = dict(zip("abcdefghi", rng.random(9), strict=True))  # of each voice
    tasks = {"ks": "abcdefgh" * 3, "ic": "bcdefghi" * 4, "other": "uvwxy" * 3, "none": [""] * 12}
    items = {}
    for task, voices in tasks.items():
        values = [level.get(voice, 0.3) + rng.normal(0, 0.01) for voice in voices]
        items[task] = make_voiced_items(values, voices, prefix=task)
    units = {}
    for task in tasks:
        _, units[task] = stats.find_common_units({task: items[task]}, "passage")
    shared = stats.find_shared_groups(units)
    assert shared["ks"] == set("abcdefghi")
    assert shared["ic"] == shared["ks"]
    assert shared["other"] == set("uvwxy")
    assert units["none"].name == "passage"
    assert shared["none"] == {f"p{i}" for i in range(12)}
    resampled = {}
    for task in tasks:
        estimates = stats.resample_cells(
            {task: items[task]}, seed=0, resamples=2000, unit="passage", among=shared[task]
        )
        resampled[task] = estimates[task].resampled
    defined = np.isfinite(resampled["ks"])  # where a voice of the task was drawn

    def correlate(first, second):
        return np.corrcoef(resampled[first][defined], resampled[second][defined])[0, 1]

    assert correlate("ks", "ic") > 0.7
    assert abs(correlate("ks", "other")) < 0.1


def test_holm_by_hand():
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert stats.holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_the_p_value_and_bonferroni_and_keeps_the_order(p_values):
    adjusted, unadjusted = np.array(stats.holm(p_values)), np.array(p_values)
    bonferroni = np.minimum(1.0, len(unadjusted) * unadjusted)
    assert (unadjusted <= adjusted).all()
    assert (adjusted <= bonferroni + 1e-12).all()
    assert (np.diff(adjusted[np.argsort(unadjusted, kind="stable")]) >= 0).all()


def test_no_p_value_is_below_that_of_the_pattern_of_the_data():
    """The data are one of the patterns of signs, also where the value, a mean over tasks of
    different groups, is farther from 0 than the sum of the contributions of groups."""
    shares = np.array([0.1, 0.2, 0.3, 0.2, 0.2])
    without = stats.LeftOut(tuple("abcde"), shares, np.full(5, 1.1))
    assert without.test_signs(1.0) == pytest.approx(2 / 2**5)  # all signs + and all -
