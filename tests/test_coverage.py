"""Intervals cover the truth as often as they say, and tests reject a true hypothesis as rarely as
they say, on simulated corpora with few voices, some of which read much more than others. The
bootstrap draws voices, or voices and askers.
"""

import numpy as np
import pytest

from speechssl.stats import (
    BootstrapUnits,
    ItemScore,
    combine_estimates,
    estimate_difference,
    estimate_ratio,
    resample_cells,
)

# standard deviations of what a voice and an asker add to a score; that of a question by itself is 1
VOICE = ASKER = 0.35
# parameter of a Dirichlet distribution: of eight voices the busiest reads about four times as much
# as the least busy
UNEQUAL = 4.0


def simulate_corpora(groups, askers, count):
    """Yield corpora of questions: differences between two systems, on average 0, and the units that
    the bootstrap draws. groups: voices. askers: whether these are drawn, too."""
    rng = np.random.default_rng([0, groups, askers])
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
def test_intervals_of_a_difference_cover_it_and_p_values_reject_rarely(groups, askers):
    count = 1000
    covered = rejected = 0
    for scores, units in simulate_corpora(groups, askers, count):
        difference = estimate_difference(scores, np.zeros(len(scores)), units, resamples=50)
        covered += difference.interval.low <= 0 <= difference.interval.high
        rejected += difference.p_value < 0.05
    assert 0.93 <= covered / count <= 0.97
    # 6 %, and most of the standard error of a thousand corpora (0.7 %): of 3,000 it is 5.8 %
    assert rejected / count <= 0.065


def test_intervals_of_an_error_rate_cover_it():
    """Eight voices have their own error rates and numbers of words; the mean rate is known."""
    rng, count, covered = np.random.default_rng(1), 500, 0
    for _ in range(count):
        voices = np.repeat(
            np.arange(8), 3 + rng.multinomial(56, rng.dirichlet(np.full(8, UNEQUAL)))
        )
        words = rng.integers(5, 40, len(voices))
        errors = rng.binomial(words, rng.beta(4, 16, 8)[voices])  # 20 % on average
        units = BootstrapUnits("voice", tuple((str(voice),) for voice in voices))
        interval = estimate_ratio(errors, words, units, resamples=100)
        covered += interval.low <= 0.2 <= interval.high
    assert 0.93 <= covered / count <= 0.97


@pytest.mark.parametrize("groups", [5, 8])
def test_the_difference_of_two_resampled_scores_is_the_paired_difference(groups):
    def make_items(scores, units):
        items = []
        for i, (score, voice) in enumerate(zip(scores, units.labels, strict=True)):
            items.append(
                ItemScore(
                    id=str(i),
                    group=voice,
                    numerator=score,
                    denominator=1.0,
                    voice=voice,
                    asker=units.askers[i],
                )
            )
        return items

    for scores, units in simulate_corpora(groups, askers=True, count=5):
        zeros = np.zeros(len(scores))
        cells = {"one": make_items(scores, units), "other": make_items(zeros, units)}
        resampled = resample_cells(cells)
        difference = combine_estimates(np.subtract, resampled["one"], resampled["other"])
        paired = estimate_difference(scores, zeros, units)
        assert (paired.unit, paired.groups) == ("voice × asker", groups)
        assert (difference.unit, difference.groups) == ("voice × asker", groups)
        assert difference.p_value == pytest.approx(paired.p_value)
        low, high = paired.interval.ends
        assert difference.interval.ends == pytest.approx((low, high), abs=0.05 * (high - low))
