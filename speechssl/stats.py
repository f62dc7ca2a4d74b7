"""How sure is a score: seeded percentile bootstraps of a mean, a ratio of sums (WER), and a paired difference.

Letters: S items (questions or recordings), G groups, R resamples. Items of one voice, or questions about one passage, are not
independent: whole groups are drawn (the cluster bootstrap; Davison and Hinkley 1997, section 3.8). `choose_units` says what the
groups are, by one rule for every interval and every test; without groups every item is its own. One group says nothing about the
spread: its interval is [value, value], marked as not estimated, and what is written and printed has none.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES = 10_000
LEVEL = 0.95
FEWEST = 5  # voices whose spread says something of other voices
VOICE = "voice"
_BLOCK = 1 << 21  # drawn indices held at a time: 16 MB


@dataclass(frozen=True)
class Units:
    """What a bootstrap draws. groups: of every item the group that it belongs to, or all of them (the voices of a conversation)."""

    name: str  # "voice", "passage", "recording", "query", ...
    groups: tuple[tuple[str, ...], ...]

    @property
    def count(self) -> int:
        """G."""
        return len({group for some in self.groups for group in some})

    def at(self, places: Sequence[int]) -> Units:
        """Of some of the items."""
        return Units(self.name, tuple(self.groups[i] for i in places))

    @property
    def labels(self) -> list[str]:
        """The group of every item. Raises ValueError where an item belongs to several."""
        if any(len(some) != 1 for some in self.groups):
            raise ValueError("an item belongs to several groups")
        return [some[0] for some in self.groups]


def choose_units(voices: Sequence[str | Iterable[str]], larger: Sequence[str], name: str) -> Units:
    """The rule: voices are drawn, with all that they say, where training knew none of them and there are at least FEWEST.

    Where there are fewer, or who speaks is not known of every item, the next larger unit than the item is drawn, which is the item
    itself where there is none.

    voices: (S,) who speaks in every item, or all who do; "" where that is not known or training knew the voice (`unknown_voice`).
    larger: (S,) the next larger unit; name: what it is called. Raises ValueError for lengths that differ.
    """
    if len(voices) != len(larger):
        raise ValueError(f"{len(voices)} voices do not fit {len(larger)} items")
    spoken = [(v,) if isinstance(v, str) else tuple(dict.fromkeys(v)) for v in voices]
    if all(some and all(some) for some in spoken) and len({v for some in spoken for v in some}) >= FEWEST:
        return Units(VOICE, tuple(spoken))
    return Units(name, tuple((group,) for group in larger))


def unknown_voice(speaker: str, known: Collection[str]) -> str:
    """The speaker where training did not know them, else "". known: the speakers of the training data."""
    return "" if speaker in known else speaker


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval [low, high], and the number of items n it is about.

    estimated: False for one group, where low and high are the value for want of anything better.
    drawn, groups: what was drawn, and of how many ("voice", 8).
    """

    value: float
    low: float
    high: float
    n: int
    estimated: bool = True
    drawn: str = ""
    groups: int = 0

    @property
    def percent(self) -> Interval:
        """The same times 100."""
        return replace(self, value=100 * self.value, low=100 * self.low, high=100 * self.high)

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """low and high as results have them: None where they were not estimated."""
        return (self.low, self.high) if self.estimated else (None, None)


@dataclass(frozen=True)
class Difference(Interval):
    """A paired difference (first minus second) with its interval, and the two-sided p-value of there being none."""

    p_value: float = 1.0


Groups = Units | Sequence[Hashable] | None  # None: every item is its own


def mean_interval(
    values: ArrayLike,
    groups: Groups = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Interval:
    """The mean of S values. values: (S,). groups: S labels or their `Units`. level: 0.95 for a 95 % interval.

    Raises ValueError for no values, values that are not finite, or groups of another length.
    """
    values = _vector(values)
    return ratio_interval(values, np.ones_like(values), groups, seed, resamples, level)


def ratio_interval(
    numerators: ArrayLike,
    denominators: ArrayLike,
    groups: Groups = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Interval:
    """sum(numerators) / sum(denominators), as WER = errors / words. Both (S,), denominators >= 0.

    Raises ValueError as `mean_interval`, for a negative denominator, or when all denominators are 0.
    """
    value, drawn, n, estimated = _bootstrap(numerators, denominators, groups, seed, resamples)
    low, high = percentiles(drawn, level)
    return Interval(value, low, high, n, estimated, *_about(groups, n))


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    groups: Groups = None,
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
    about = _about(groups, n)
    return Difference(value, low, high, n, estimated, *about, two_sided(drawn, about[1]))


def two_sided(drawn: np.ndarray, groups: int) -> float:
    """The p-value of a quantity's being 0, from (R,) resampled values of it, as in `paired_difference`.

    It is at least 2 / 2^G for G groups, which is what G differences of one sign have in a test by changing signs: however large,
    two of them prove nothing (0.5), and six are the fewest that can get below 0.05.
    """
    tail = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    return min(1.0, max(2 * (1 + tail) / (len(drawn) + 1), 2.0 ** (1 - groups)))


def _about(groups: Groups, n: int) -> tuple[str, int]:
    """What is drawn, and how many of it there are."""
    if isinstance(groups, Units):
        return groups.name, groups.count
    return ("item", n) if groups is None else ("group", len(set(groups)))


def _bootstrap(
    above: ArrayLike, below: ArrayLike, groups: Groups, seed: int, resamples: int
) -> tuple[float, np.ndarray, int, bool]:
    """The ratio of sums, (R,) resampled ratios, S, and whether there are two groups at least that have a ratio."""
    above, below = _vector(above), _vector(below)
    if len(above) != len(below) or (below < 0).any() or not below.sum():
        raise ValueError("every numerator needs a denominator of at least 0, and not all of them may be 0")
    if resamples < 1:
        raise ValueError("resamples must be at least 1")
    if isinstance(groups, Units) and any(len(some) != 1 for some in groups.groups):
        drawn, sizes = _several(np.stack([above, below], axis=1), groups.groups, seed, resamples), below
    else:
        labels = groups.labels if isinstance(groups, Units) else groups
        sums = np.stack([_group_sums(above, labels), _group_sums(below, labels)], axis=1)
        drawn, sizes = np.concatenate(list(_resampled_sums(sums, seed, resamples))), sums[:, 1]
    drawn = drawn[drawn[:, 1] > 0]  # a resample of empty references alone has no rate
    return float(above.sum() / below.sum()), drawn[:, 0] / drawn[:, 1], len(above), int((sizes > 0).sum()) > 1


def _several(values: np.ndarray, groups: Sequence[Sequence[str]], seed: int, resamples: int) -> np.ndarray:
    """(R, C) sums of (S, C) values. Groups are drawn with replacement, and an item counts as often as all its groups were drawn
    together: the product of their numbers (the pigeonhole bootstrap; Owen 2007, Annals of Applied Statistics 1(2)).
    """
    if len(groups) != len(values):
        raise ValueError(f"{len(groups)} groups do not fit {len(values)} values")
    index = {name: i for i, name in enumerate(dict.fromkeys(name for some in groups for name in some))}
    generator, block, found = np.random.default_rng(seed), max(1, _BLOCK // len(values)), []
    most, always = max(map(len, groups)), [len(index)]  # the place of a group that is drawn once in every resample
    places = np.array([[index[name] for name in some] + always * (most - len(some)) for some in groups])
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        times = generator.multinomial(len(index), np.full(len(index), 1 / len(index)), rows)
        times = np.concatenate([times, np.ones((rows, 1), times.dtype)], axis=1)
        found.append(np.prod([times[:, column] for column in places.T], axis=0) @ values)
    return np.concatenate(found)


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
