"""How sure is a score: seeded percentile bootstraps of a mean, a ratio of sums (WER), and a paired difference.

Letters: S items (questions or utterances), G groups, R resamples. Questions about one passage are not independent: give
the passage of every question as `groups`, and whole passages are drawn (the cluster bootstrap; Davison and Hinkley
1997, section 3.8). Without groups every item is its own. One group says nothing about the spread: its interval is
[value, value], marked as not estimated, and what is written and printed has none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES = 10_000
LEVEL = 0.95
_BLOCK = 1 << 21  # drawn indices held at a time: 16 MB


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval [low, high], and the number of items n it is about.

    estimated: False for one group, where low and high are the value for want of anything better.
    """

    value: float
    low: float
    high: float
    n: int
    estimated: bool = True

    @property
    def percent(self) -> Interval:
        """The same times 100."""
        return Interval(100 * self.value, 100 * self.low, 100 * self.high, self.n, self.estimated)

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """low and high as results have them: None where they were not estimated."""
        return (self.low, self.high) if self.estimated else (None, None)


@dataclass(frozen=True)
class Difference(Interval):
    """A paired difference (first minus second) with its interval, and the two-sided p-value of there being none."""

    p_value: float = 1.0


def mean_interval(
    values: ArrayLike,
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Interval:
    """The mean of S values. values: (S,). groups: S labels. level: 0.95 for a 95 % interval.

    Raises ValueError for no values, values that are not finite, or groups of another length.
    """
    values = _vector(values)
    return ratio_interval(values, np.ones_like(values), groups, seed, resamples, level)


def ratio_interval(
    numerators: ArrayLike,
    denominators: ArrayLike,
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Interval:
    """sum(numerators) / sum(denominators), as WER = errors / words. Both (S,), denominators >= 0.

    Raises ValueError as `mean_interval`, for a negative denominator, or when all denominators are 0.
    """
    value, drawn, n, estimated = _bootstrap(numerators, denominators, groups, seed, resamples)
    low, high = percentiles(drawn, level)
    return Interval(value, low, high, n, estimated)


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    weights: ArrayLike | None = None,
) -> Difference:
    """Mean of first - second over the same S items, both drawn together.

    weights: (S,) reference words make it a difference of WERs, sum(first - second) / sum(weights), of two systems'
    error counts.
    p-value: 2 (1 + number of resampled differences on the far side of 0) / (R + 1), at most 1 (Davison and Hinkley
    1997, chapter 4): never 0, and below 1 - level about where the interval leaves 0 out; but see `two_sided`.
    Raises ValueError as `ratio_interval`.
    """
    first, second = _vector(first), _vector(second)
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} items are not pairs")
    below = np.ones_like(first) if weights is None else weights
    value, drawn, n, estimated = _bootstrap(first - second, below, groups, seed, resamples)
    low, high = percentiles(drawn, level)
    return Difference(value, low, high, n, estimated, two_sided(drawn, n if groups is None else len(set(groups))))


def two_sided(drawn: np.ndarray, groups: int) -> float:
    """The p-value of a quantity's being 0, from (R,) resampled values of it, as in `paired_difference`.

    It is at least 2 / 2^G for G groups, which is what G differences of one sign have in a test by changing signs: however large,
    two of them prove nothing (0.5), and six are the fewest that can get below 0.05.
    """
    tail = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    return min(1.0, max(2 * (1 + tail) / (len(drawn) + 1), 2.0 ** (1 - groups)))


def _bootstrap(
    above: ArrayLike, below: ArrayLike, groups: Sequence[Hashable] | None, seed: int, resamples: int
) -> tuple[float, np.ndarray, int, bool]:
    """The ratio of sums, (R,) resampled ratios, S, and whether there are two groups at least that have a ratio."""
    above, below = _vector(above), _vector(below)
    if len(above) != len(below) or (below < 0).any() or not below.sum():
        raise ValueError("every numerator needs a denominator of at least 0, and not all of them may be 0")
    if resamples < 1:
        raise ValueError("resamples must be at least 1")
    sums = np.stack([_group_sums(above, groups), _group_sums(below, groups)], axis=1)
    drawn = np.concatenate(list(_resampled_sums(sums, seed, resamples)))
    drawn = drawn[drawn[:, 1] > 0]  # a resample of empty references alone has no rate
    return float(above.sum() / below.sum()), drawn[:, 0] / drawn[:, 1], len(above), int((sums[:, 1] > 0).sum()) > 1


def _resampled_sums(sums: np.ndarray, seed: int, resamples: int) -> Iterator[np.ndarray]:
    """Blocks of (r, 2) sums over G groups drawn with replacement. sums: (G, 2)."""
    generator = np.random.default_rng(seed)
    block = max(1, _BLOCK // len(sums))
    for start in range(0, resamples, block):
        chosen = generator.integers(0, len(sums), (min(block, resamples - start), len(sums)))
        yield np.stack([column[chosen].sum(axis=1) for column in sums.T], axis=1)


def _group_sums(values: np.ndarray, groups: Sequence[Hashable] | None) -> np.ndarray:
    """(G,) sums of values in each group, groups in order of appearance, so that equal partitions give equal draws."""
    if groups is None:
        return values
    if len(groups) != len(values):
        raise ValueError(f"{len(groups)} groups do not fit {len(values)} values")
    index = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    return np.bincount([index[group] for group in groups], weights=values, minlength=len(index))


def _vector(values: ArrayLike) -> np.ndarray:
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
        raise ValueError(f"scores must be one vector of finite numbers, this has the shape {vector.shape}")
    return vector


def percentiles(drawn: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """The ends of the interval that holds this share of (R,) resampled values."""
    if not 0 < level < 1:
        raise ValueError("level must lie between 0 and 1")
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
