"""Intervals cover the truth as often as they say, and tests of no difference find one as seldom as they say: simulated corpora with
few voices, some of which read much more than others, drawn by voice, and by voice and asker.
"""

from __future__ import annotations

import numpy as np
import pytest

from speechssl.stats import BootstrapUnits, ItemScore, combined, mean_interval, paired_difference, ratio_interval, resampled

TRIALS = 500
VOICE, ASKER = 0.35, 0.35  # standard deviations of what voices add; that of a question is 1


def corpora(groups: int, askers: bool, seed: int = 0):
    """Scores with the mean 0, and their units: passages of a few questions, of voices of unequal size."""
    rng = np.random.default_rng([seed, groups, askers])
    for _ in range(TRIALS):
        sizes = 4 + rng.multinomial(16 * groups, rng.dirichlet(np.full(groups, 4.0)))
        voices = np.repeat(np.arange(groups), sizes)
        asking = rng.choice(groups, len(voices), p=rng.dirichlet(np.full(groups, 4.0)))
        scores = rng.normal(0, VOICE, groups)[voices] + rng.normal(0, 1, len(voices))
        if askers:
            scores += rng.normal(0, ASKER, groups)[asking]
        yield scores, BootstrapUnits("voice", tuple((str(v),) for v in voices), tuple(map(str, asking)) if askers else ())


@pytest.mark.parametrize("askers", [False, True], ids=["voices", "voices and askers"])
@pytest.mark.parametrize("groups", [5, 8, 20])
def test_intervals_cover_the_truth_and_no_difference_is_seldom_found(groups: int, askers: bool) -> None:
    covered, found = 0, 0
    for scores, units in corpora(groups, askers):
        difference = paired_difference(scores, np.zeros(len(scores)), units, resamples=200)
        covered += difference.low <= 0 <= difference.high
        found += difference.p_value < 0.05
    print(groups, askers, covered/TRIALS, found/TRIALS)
    assert 0.93 <= covered / TRIALS <= 0.97
    assert found / TRIALS <= 0.06
