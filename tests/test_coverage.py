"""Intervals cover the truth as often as they say, and tests find a difference where there is none
as seldom as they say: simulated corpora with few voices, some of which read much more than others,
drawn by voice, and by voice and asker.
"""

import numpy as np
import pytest

from speechssl.stats import (
    BootstrapUnits,
    ItemScore,
    combine_estimates,
    paired_difference,
    ratio_interval,
    resample_cells,
)

VOICE = ASKER = 0.35  # standard deviations of what a voice adds; that of a question by itself is 1
# of a Dirichlet distribution: of eight voices the busiest reads about four times as much as the
# least busy
UNEQUAL = 4.0


def corpora(groups, askers, count, seed=0):
    """Differences of two systems, on average 0, and what is drawn of them."""
    rng = np.random.default_rng([seed, groups, askers])
    for _ in range(count):
        sizes = 4 + rng.multinomial(16 * groups, rng.dirichlet(np.full(groups, UNEQUAL)))
        voices = np.repeat(np.arange(groups), sizes)
        asking = rng.choice(groups, len(voices), p=rng.dirichlet(np.full(groups, UNEQUAL)))
        scores = rng.normal(0, VOICE, groups)[voices] + rng.normal(0, 1, len(voices))
        scores += rng.normal(0, ASKER, groups)[asking] if askers else 0.0
        groups_of_items = tuple((str(v),) for v in voices)
        asker_of_items = tuple(map(str, asking)) if askers else ()
        yield scores, BootstrapUnits("voice", groups_of_items, asker_of_items)


@pytest.mark.parametrize("askers", [False, True], ids=["voices", "voices-and-askers"])
@pytest.mark.parametrize("groups", [5, 8, 20])
def test_intervals_cover_and_no_difference_is_seldom_found(groups, askers):
    count = 1000
    every = [
        paired_difference(x, np.zeros(len(x)), units, resamples=50)
        for x, units in corpora(groups, askers, count)
    ]
    intervals = [found.interval for found in every]
    covered = sum(interval.low <= 0 <= interval.high for interval in intervals) / count
    assert 0.93 <= covered <= 0.97
    # 6 %, and most of the standard error of a thousand corpora (0.7 %): of 3,000 it is 5.8 %
    assert sum(found.p_value < 0.05 for found in every) / count <= 0.065


def test_so_do_those_of_rates_of_errors():
    """Eight voices with their own rates, and numbers of words that differ: a ratio of sums, whose
    truth is known."""
    rng, count, covered = np.random.default_rng(1), 500, 0
    for _ in range(count):
        voices = np.repeat(
            np.arange(8), 3 + rng.multinomial(56, rng.dirichlet(np.full(8, UNEQUAL)))
        )
        words = rng.integers(5, 40, len(voices))
        errors = rng.binomial(words, rng.beta(4, 16, 8)[voices])  # 20 % on average
        found = ratio_interval(
            errors, words, BootstrapUnits("voice", tuple((str(v),) for v in voices)), resamples=100
        )
        covered += found.low <= 0.2 <= found.high
    assert 0.93 <= covered / count <= 0.97


@pytest.mark.parametrize("groups", [5, 8])
def test_so_do_those_of_what_is_computed_of_several_scores(groups):
    """The difference of two systems that were drawn together is that of `paired_difference`,
    interval and p-value."""
    for scores, units in corpora(groups, True, 5):
        zeros, cells = np.zeros(len(scores)), {}
        for name, values in (("one", scores), ("other", zeros)):
            rows = enumerate(zip(values, units.labels, units.askers, strict=True))
            cells[name] = [ItemScore(str(i), v, x, 1.0, v, asker) for i, (x, v, asker) in rows]
        drawn = resample_cells(cells)
        found = combine_estimates(np.subtract, drawn["one"], drawn["other"])
        plain = paired_difference(scores, zeros, units)
        assert (plain.unit, plain.groups) == ("voice × asker", groups)
        assert (found.unit, found.groups) == ("voice × asker", groups)
        assert found.p_value == pytest.approx(plain.p_value)
        low, high = plain.interval.ends
        assert found.interval.ends == pytest.approx((low, high), abs=0.05 * (high - low))
