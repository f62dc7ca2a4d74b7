"""Give scores intervals, p-values and paired differences by resampling.

Units of the bootstrap. Items of one voice, or questions about one passage, are not independent, so
whole groups of items are drawn (the cluster bootstrap; Davison and Hinkley 1997, section 3.8).
Where the asker's voice is known too, both voices are drawn, independently (the pigeonhole
bootstrap; Owen 2007, Annals of Applied Statistics 1(2)). `choose_units` chooses the groups, by one
rule for every interval and every test; without groups every item is its own.

Intervals (`estimate_ends`). Percentiles of the bootstrap are too narrow for few groups (with eight
groups 89 % of the 95 % intervals cover the truth, with five 84 %), and those of the pigeonhole
bootstrap are too wide. So the resamples decide the shape of the interval, and the jackknife its
width: Student's t with G - 1 degrees of freedom times the standard error V^(1/2),

    V = (G - 1) / G sum over the groups g of (value without g - value)^2,

and with askers V = max(V_voice + V_asker - V_both, V_voice, V_asker), where "both" are the pairs of
a voice and an asker (Cameron, Gelbach and Miller 2011), and G is the smaller of the two numbers.
Where the values without a group are not known, the standard error is that of the resamples times
(G / (G - 1))^(1/2). Fewer than FEWEST groups say too little about the spread: there is no interval.
tests/test_coverage.py measures the share of intervals that cover, from 5 groups to 20.

p-values (`Estimate.p_value`) are two-sided. The signs of the groups are flipped: in all 2^G
patterns up to EXACT groups, in R random ones above that. With askers the p-value is the largest of
those by voice, by asker, and by Student's t with V. The sign test is exact for any number of
groups, but with five it cannot give less than 2 / 2^5 = 0.0625, whatever the interval is.

An `Estimate` holds a value, its resampled values and its values without a group, so that other
quantities can be computed from several estimates (`combine_estimates`); `resample_cells` makes
estimates whose items are drawn together.

Letters: S items (questions or recordings), G groups, A askers, R resamples, C columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from speechssl.artifacts import hash_json

K = TypeVar("K", bound=Hashable)

RESAMPLES = 10_000
LEVEL = 0.95  # of confidence
TAIL = (1 - LEVEL) / 2
FEWEST = 5  # groups at least for an interval
EXACT = 12  # most groups whose signs are flipped in all patterns
VOICE, ASKER = "voice", "asker"
CROSSED = " × "  # between the names of two populations that are drawn independently
_BLOCK = 1 << 21  # drawn numbers that are in memory at a time: 16 MB


# ---- the units of a bootstrap


@dataclass(frozen=True)
class BootstrapUnits:
    """These units are drawn by a bootstrap: groups of items, and perhaps askers (the voices of
    questions)."""

    name: str  # what a group is: "voice", "passage", "recording", "query", ...
    # the group of every item, or its groups (the voices of a conversation)
    groups: tuple[tuple[str, ...], ...]
    askers: tuple[str, ...] = ()  # the asker of every item; (): askers are not drawn
    # populations too small to be drawn, to which the result is limited: "these 3 voices"
    about: str = ""

    @property
    def text(self) -> str:
        """Return the name of the units in results: "voice", "voice × asker", "passage (about these
        3 voices)"."""
        name = f"{self.name}{CROSSED}{ASKER}" if self.askers else self.name
        return f"{name} (about {self.about})" if self.about else name

    def select(self, indices: Sequence[int]) -> BootstrapUnits:
        """Return the units of the items with these indices."""
        askers = tuple(self.askers[i] for i in indices) if self.askers else ()
        return replace(self, groups=tuple(self.groups[i] for i in indices), askers=askers)

    @property
    def labels(self) -> list[str]:
        """Return the group of every item, which must have one only."""
        return [name for (name,) in self.groups]


def choose_units(
    voices: Sequence[str | Iterable[str]],
    larger: Sequence[str],
    name: str,
    askers: Sequence[str] = (),
) -> BootstrapUnits:
    """Choose the units to draw: voices, with all their items, if training heard none of them and
    there are at least FEWEST.

    If there are fewer, or the speaker of an item is not known, the next larger unit than the item
    is drawn, such as the passage of a question (the item itself where there is none). Askers are
    drawn too, independently, if all are known and there are at least FEWEST. Where voices or askers
    are known but too few to be drawn, the result is about these alone, and says nothing about
    others.

    voices: (S,) the speaker of every item, or all its speakers; "" for one that is not known or
    that training heard (`hide_voice`). larger: (S,) the next larger unit than each item; name:
    its name. askers: (S,) the asker of every item, "" as in voices; (): nobody asks.
    """
    speakers = [(v,) if isinstance(v, str) else tuple(dict.fromkeys(v)) for v in voices]
    known_voices: set[str] = set()
    if all(names and all(names) for names in speakers):
        known_voices = known_voices.union(*speakers)
    known_askers = set(askers) if all(askers) else set()
    too_few = []  # populations that cannot be drawn: "3 voices"
    for known, noun in ((known_voices, VOICE), (known_askers, ASKER)):
        if 0 < len(known) < FEWEST:
            too_few.append(f"{len(known)} {noun}{'s' * (len(known) > 1)}")
    about = " and ".join(too_few)
    if about:
        about = f"{'this' if about.startswith('1 ') else 'these'} {about}"
    groups: tuple[tuple[str, ...], ...] = tuple((group,) for group in larger)
    if len(known_voices) >= FEWEST:
        name, groups = VOICE, tuple(speakers)
    one_group = all(len(names) == 1 for names in groups)
    drawn_askers = tuple(askers) if len(known_askers) >= FEWEST and one_group else ()
    return BootstrapUnits(name, groups, drawn_askers, about)


def hide_voice(speaker: str, trained: Collection[str]) -> str:
    """Return a speaker, or "" for one of `trained`, the speakers of the training data."""
    return "" if speaker in trained else speaker


# ---- one score


@dataclass(frozen=True)
class Interval:
    """A value over n items has a confidence interval [low, high]."""

    value: float
    low: float
    high: float
    n: int
    estimated: bool = True  # False for fewer than FEWEST groups: then low and high are the value
    drawn: str = ""  # name of the units that were drawn: "voice"
    groups: int = 0  # number of these units; of two populations the smaller

    @property
    def percent(self) -> Interval:
        """Return the interval times 100."""
        return replace(self, value=100 * self.value, low=100 * self.low, high=100 * self.high)

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """Return low and high, or None and None where they were not estimated."""
        return (self.low, self.high) if self.estimated else (None, None)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust the p-values of a family of tests for its familywise error rate (Holm, 1979)."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)  # the number of tests that are not yet rejected
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, factors * np.asarray(p_values)[order]))
    return adjusted.tolist()


# ---- an estimate: its interval and its p-value


class LeftOut(NamedTuple):
    """These are the values of a score without one group of items at a time, for the jackknife."""

    groups: tuple[str, ...]
    shares: np.ndarray  # (G,) each group's share of the sum of denominators
    values: np.ndarray  # (G,) the score without the group

    def estimate_variance(self, value: float) -> float:
        """Estimate the variance by the jackknife; NaN where the score without some group is not
        defined."""
        count = int((self.shares > 0).sum())
        return float((count - 1) / count * ((self.values - value) ** 2).sum())

    def test_signs(self, value: float) -> float:
        """Return the p-value for the hypothesis that the value is 0: the contribution of each group
        gets a sign, + or -, and p is the share of patterns of signs whose sum is at least as far
        from 0 as the sum of the data (which is the value, but for means over tasks of different
        groups).

        The contribution of a group is the change that it makes, plus its share of the value. NaN as
        in `estimate_variance`.
        """
        contributions = (1 - self.shares) * (value - self.values) + self.shares * value
        contributions = contributions[self.shares > 0]
        groups = len(contributions)
        if not np.isfinite(contributions).all():
            return np.nan
        # of the pattern of the data, with a margin for rounding
        distance = abs(contributions.sum()) * (1 - 1e-9) - 1e-15
        as_far = [np.abs(signs @ contributions) >= distance for signs in _flip_signs(groups)]
        share = float(np.concatenate(as_far).mean())
        if groups <= EXACT:
            return share
        # of random patterns: the pattern of the data is added to them, and p is not below the least
        # p of all patterns
        return max((1 + RESAMPLES * share) / (1 + RESAMPLES), 2.0 ** (1 - groups))


def _flip_signs(groups: int) -> Iterator[np.ndarray]:
    """Yield blocks (r, G) of patterns of signs -1 and 1: all patterns up to EXACT groups, RESAMPLES
    random ones above that."""
    if groups <= EXACT:
        yield _list_signs(groups)
        return
    generator = np.random.default_rng(0)
    rows = max(1, _BLOCK // groups)
    for start in range(0, RESAMPLES, rows):
        yield 2.0 * generator.integers(0, 2, (min(rows, RESAMPLES - start), groups), np.int8) - 1


@lru_cache
def _list_signs(groups: int) -> np.ndarray:
    """Return all 2^G patterns of signs, (2^G, G)."""
    return np.array(list(product((-1.0, 1.0), repeat=groups)))


@dataclass(frozen=True, eq=False)
class Estimate:
    """An estimate is a quantity over n items in G groups with its resampled values. Arithmetic is
    done on these, and `interval` is computed at the end."""

    value: float
    resampled: np.ndarray  # (R,) its value in each resample; NaN where it is not defined
    n: int
    groups: int  # where estimates are combined, the smallest number
    unit: str = "item"  # what a group is; where estimates are combined, all names joined by ", "
    # the values without one group at a time; with askers, then those without an asker, and those
    # without a pair of a group and an asker; (): not known
    left_out: tuple[LeftOut, ...] = ()
    bounds: tuple[float, float] = (-np.inf, np.inf)  # least and greatest possible value

    @property
    def error(self) -> float | None:
        """Return the standard error by the jackknife; None where it cannot be computed."""
        variances = [without.estimate_variance(self.value) for without in self.left_out]
        if not variances or not np.isfinite(variances).all():
            return None
        if len(variances) > 1:
            by_voice, by_asker, by_pair = variances
            variances = [by_voice, by_asker, by_voice + by_asker - by_pair]
        return float(np.sqrt(max(variances)))

    @property
    def interval(self) -> Interval:
        """Return the value with its 95 % interval. It is [value, value], and not estimated, for too
        few groups, or where the quantity is defined in no resample."""
        estimated = estimate_scale(self.resampled, self.groups, self.error) is not None
        ends = estimate_ends(self.value, self.resampled, self.groups, self.error, self.bounds)
        return Interval(self.value, *ends, self.n, estimated, self.unit, self.groups)

    @property
    def widened(self) -> np.ndarray:
        """Return (R,) the resampled values, moved away from the value as the ends of the interval
        are, so that the percentiles of a quantity computed from them are its interval. NaN for too
        few groups."""
        scale = estimate_scale(self.resampled, self.groups, self.error)
        return self.value + (np.nan if scale is None else scale) * (self.resampled - self.value)

    @property
    def p_value(self) -> float:
        """Return the two-sided p-value for the hypothesis that the quantity is 0, as described at
        the head of this module; 1 for a single group."""
        if not np.isfinite(self.value) or self.groups < 2:
            return 1.0
        # the sign test by groups and, if there are askers, by askers
        by_signs = [without.test_signs(self.value) for without in self.left_out[:2]]
        if len(by_signs) == 1 and np.isfinite(by_signs).all():
            return by_signs[0]
        error = self.error
        if error is None or not np.isfinite(by_signs).all():
            by_signs = [2.0 ** (1 - self.groups)]  # the least p of a sign test
            error = float(np.nanstd(self.resampled) * np.sqrt(self.groups / (self.groups - 1)))
        t = 0.0
        if self.value:
            t = abs(self.value) / error if error else np.inf
        from scipy.special import stdtr  # imported here: `speechssl answer` does not need it

        by_t = 2 * stdtr(self.groups - 1, -t)
        return float(min(1.0, max(*by_signs, by_t)))


def estimate_ends(
    value: float,
    resampled: np.ndarray,
    groups: int,
    error: float | None = None,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> tuple[float, float]:
    """Return the 95 % interval of a value, as described at the head of this module; [value, value]
    for fewer than FEWEST groups.

    resampled: (R,) the resampled values, of which NaN is ignored. groups: the number of groups.
    error: the standard error; None: that of the resamples, corrected for the number of groups.
    bounds: the least and the greatest possible value, at which the interval is cut off.
    """
    scale = estimate_scale(resampled, groups, error)
    if scale is None:
        return value, value
    low, high = np.nanquantile(resampled, [TAIL, 1 - TAIL])
    below, above = max(0.0, value - float(low)), max(0.0, float(high) - value)
    return max(bounds[0], value - scale * below), min(bounds[1], value + scale * above)


def estimate_scale(resampled: np.ndarray, groups: int, error: float | None = None) -> float | None:
    """Return the factor by which the percentiles of the resamples are moved away from the value to
    give its interval; None where it has no interval."""
    if groups < FEWEST or np.isnan(resampled).all():
        return None
    low, high = np.nanquantile(resampled, [TAIL, 1 - TAIL])
    half_width = float(high - low) / 2
    if half_width <= 0:
        return 1.0
    from scipy.special import ndtri, stdtrit  # imported here: `speechssl answer` does not need it

    if error is None:
        error = half_width / -float(ndtri(TAIL)) * (groups / (groups - 1)) ** 0.5
    return -float(stdtrit(groups - 1, TAIL)) * error / half_width


# ---- the estimate of a ratio of sums


def estimate_mean(
    values: ArrayLike,
    units: BootstrapUnits | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return the mean of S values with its 95 % interval, which lies in [0, 1] if all values do.

    values: (S,). units: the units that are drawn; None: every item by itself. Raises ValueError for
    no values and for values that are not finite.
    """
    return estimate_ratio(values, np.ones(np.shape(values)), units, seed, resamples)


def estimate_ratio(
    numerators: ArrayLike,
    denominators: ArrayLike,
    units: BootstrapUnits | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return sum(numerators) / sum(denominators), such as WER = errors / words, with its 95 %
    interval.

    Both are (S,), denominators >= 0. The interval has no negative values if no numerator is
    negative, and none above 1 if no numerator exceeds its denominator. Raises ValueError as
    `estimate_mean` does, and when all denominators are 0.
    """
    return _estimate(numerators, denominators, units, seed, resamples).interval


def estimate_difference(
    first: ArrayLike,
    second: ArrayLike,
    units: BootstrapUnits | None = None,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Estimate the mean of first - second over the same S items. Raises ValueError as
    `estimate_mean` does."""
    differences = np.subtract(first, second, dtype=np.float64)
    return _estimate(differences, np.ones_like(differences), units, 0, resamples)


def _estimate(
    numerators: ArrayLike,
    denominators: ArrayLike,
    units: BootstrapUnits | None,
    seed: int,
    resamples: int,
) -> Estimate:
    """Estimate the ratio of sums of (S,) numerators and denominators."""
    sums = np.stack([numerators, denominators], axis=1).astype(np.float64)  # (S, 2)
    if not (np.isfinite(sums).all() and sums[:, 1].sum() > 0):
        raise ValueError("scores must be finite, and their denominators not all 0")
    units = units or BootstrapUnits("item", tuple((str(i),) for i in range(len(sums))))
    # groups in order of appearance, so that equal partitions give equal draws
    order = dict.fromkeys(name for names in units.groups for name in names)
    if all(len(names) == 1 for names in units.groups):
        resampled = _draw_sums(sums, units, order, [seed, seed + 1], resamples)
        return _estimate_by_group(sums, resampled, units)
    # conversations, which belong to several voices: no voice can be left out by itself
    weights = draw_weights(units.groups, order, seed, resamples)
    resampled = np.concatenate([block @ sums for block in weights])
    groups: set[str] = set()  # those of items whose denominator is not 0
    for names, (_, denominator) in zip(units.groups, sums, strict=True):
        if denominator > 0:
            groups.update(names)
    return _make_estimate(sums, resampled, len(groups), units)


def _make_estimate(
    sums: np.ndarray,
    resampled: np.ndarray,
    groups: int,
    units: BootstrapUnits,
    left_out: tuple[LeftOut, ...] = (),
) -> Estimate:
    """Estimate the ratio of sums. sums: (S, 2) numerator and denominator of every item; resampled:
    (R, 2) their sums in every resample."""
    numerators, denominators = sums.T
    if (numerators < 0).any():
        bounds = (-np.inf, np.inf)
    elif (numerators <= denominators).all():
        bounds = (0.0, 1.0)  # a share
    else:
        bounds = (0.0, np.inf)  # a rate of errors
    value = float(numerators.sum() / denominators.sum())
    return Estimate(value, _divide(resampled), len(sums), groups, units.text, left_out, bounds)


def _estimate_by_group(sums: np.ndarray, resampled: np.ndarray, units: BootstrapUnits) -> Estimate:
    """Estimate as `_make_estimate` does, with the values without each group; every item must have
    one group."""
    left_out = tuple(_leave_out(sums, partition) for partition in list_partitions(units))
    # groups whose denominator is not 0; of two populations the smaller number
    groups = min(int((without.shares > 0).sum()) for without in left_out)
    return _make_estimate(sums, resampled, groups, units, left_out)


def _divide(sums: np.ndarray) -> np.ndarray:
    """Divide the numerators in sums (..., 2) by the denominators; NaN where the denominator is
    0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sums[..., 1] > 0, sums[..., 0] / sums[..., 1], np.nan)


# ---- resamples


def draw_counts(groups: int, numbers: float, seed: int, resamples: int) -> Iterator[np.ndarray]:
    """Yield blocks (r, G) of how often each group is drawn, with replacement, R resamples in all.

    numbers: how many numbers the caller keeps for each resample; the more, the smaller r.
    """
    generator = np.random.default_rng(seed)
    block = max(1, int(_BLOCK // numbers))
    shares = np.full(groups, 1 / groups)
    for start in range(0, resamples, block):
        yield generator.multinomial(groups, shares, min(block, resamples - start))


def draw_weights(
    groups: Sequence[Sequence[str]], order: Iterable[str], seed: int, resamples: int
) -> Iterator[np.ndarray]:
    """Yield blocks (r, S) of the weights of the items: the product of how often each of an item's
    groups was drawn (the pigeonhole bootstrap; Owen 2007, Annals of Applied Statistics 1(2)).

    groups: the groups of every item; order: all groups in the order in which they are drawn.
    """
    index = {name: i for i, name in enumerate(dict.fromkeys(order))}
    # items with fewer groups than others are filled up with one that is drawn once in every
    # resample
    filler = len(index)
    indices = np.full((max(map(len, groups)), len(groups)), filler)
    for item, names in enumerate(groups):
        indices[: len(names), item] = [index[name] for name in names]
    for counts in draw_counts(len(index), len(groups), seed, resamples):
        counts = np.pad(counts, ((0, 0), (0, 1)), constant_values=1)
        yield np.prod([counts[:, columns] for columns in indices], axis=0)


def _draw_sums(
    sums: np.ndarray,
    units: BootstrapUnits,
    order: Iterable[str],
    seeds: Sequence[int],
    resamples: int,
) -> np.ndarray:
    """Return (R, C) sums over the items of the drawn groups, or of the drawn groups and askers.

    sums: (S, C) the numbers of every item; order: all groups in the order in which they are drawn;
    seeds: of the draws of groups and of askers.
    """
    askers = units.askers or ("",) * len(sums)
    group_index = {group: i for i, group in enumerate(order)}
    asker_index = {asker: i for i, asker in enumerate(sorted(set(askers)))}
    item_groups = [group_index[group] for group in units.labels]
    item_askers = [asker_index[asker] for asker in askers]
    table = np.zeros((len(group_index), len(asker_index), sums.shape[1]))  # (G, A, C)
    np.add.at(table, (item_groups, item_askers), sums)
    group_sums = table.reshape(len(group_index), -1)  # (G, A C)
    rows = max(1, _BLOCK // (len(group_index) + len(asker_index) * sums.shape[1]))
    group_blocks = _draw_groups(len(group_index), seeds[0], resamples, rows)
    if not units.askers:
        return np.concatenate([counts @ group_sums for counts in group_blocks])
    asker_blocks = _draw_groups(len(asker_index), seeds[1], resamples, rows)
    blocks = []
    for counts, asker_counts in zip(group_blocks, asker_blocks, strict=True):
        asker_sums = (counts @ group_sums).reshape(len(counts), len(asker_index), -1)
        blocks.append(np.einsum("rac,ra->rc", asker_sums, asker_counts))
    return np.concatenate(blocks)


def _draw_groups(groups: int, seed: int, resamples: int, rows: int) -> Iterator[np.ndarray]:
    """Yield blocks (r, G) of how often each group is drawn, as `draw_counts` does, but from random
    indices and in blocks of at most `rows`."""
    generator = np.random.default_rng(seed)
    for start in range(0, resamples, rows):
        chosen = generator.integers(0, groups, (min(rows, resamples - start), groups))
        flat = (chosen + groups * np.arange(len(chosen))[:, None]).ravel()
        yield np.bincount(flat, minlength=chosen.size).reshape(chosen.shape).astype(np.float64)


# ---- values without one group at a time, for the jackknife


class Partition(NamedTuple):
    """A partition divides the items into groups."""

    groups: tuple[str, ...]
    indices: np.ndarray  # (S,) number of the group of every item


def list_partitions(units: BootstrapUnits) -> list[Partition]:
    """List the partitions of which a group is left out: by groups; with askers, also by askers, and
    by pairs of a group and an asker."""
    groups = [f"{units.name} {label}" for label in units.labels]
    labels_of_items: list[Sequence[str]] = [groups]
    if units.askers:
        pairs = [f"{a}{CROSSED}{b}" for a, b in zip(groups, units.askers, strict=True)]
        labels_of_items += [units.askers, pairs]
    partitions = []
    for labels in labels_of_items:
        names, indices = np.unique(labels, return_inverse=True)
        partitions.append(Partition(tuple(names.tolist()), indices))
    return partitions


def _leave_out(sums: np.ndarray, partition: Partition) -> LeftOut:
    """Compute the ratio of (S, 2) sums without one group at a time."""
    total = sums.sum(0)
    groups = len(partition.groups)
    columns = [np.bincount(partition.indices, column, groups) for column in sums.T]
    group_sums = np.stack(columns, axis=1)
    return LeftOut(partition.groups, group_sums[:, 1] / total[1], _divide(total - group_sums))


# ---- several scores, drawn together


@dataclass(frozen=True)
class ItemScore:
    """An item contributes to a score, which is the sum of the numerators over the sum of the
    denominators. Of group, voice and asker `choose_units` chooses what is drawn."""

    id: str
    group: str  # the next larger unit than the item (of a question its passage), or the item itself
    numerator: float  # accuracy: 1 where right; word error rate: errors
    denominator: float = 1.0  # accuracy: 1; word error rate: words of the reference
    voice: str = ""  # the speaker; "" where that is not known, or training heard the voice
    asker: str = ""  # the voice of the question; "" as in voice, and where nobody asks


def resample_cells(
    cells: Mapping[K, Sequence[ItemScore]],
    seed: int = 0,
    resamples: int = RESAMPLES,
    unit: str = "group",
    among: Collection[str] = (),
) -> dict[K, Estimate]:
    """Estimate every cell's sum of numerators over sum of denominators, on the items that all cells
    have, drawn together.

    `find_common_units` chooses the units. unit: name of `ItemScore.group`, such as "passage".
    among: groups of other cells that are drawn together with these (`find_shared_groups`). Equal
    sets of groups give equal draws, so that the estimates of two calls about the same groups are
    paired as well. Raises ValueError as `find_common_units` does.
    """
    common, units = find_common_units(cells, unit)
    order = sorted({*units.labels, *among})
    # the names of the groups decide one seed, those of the askers another
    askers = [ASKER, *sorted(set(units.askers))]
    seeds = [int(hash_json([seed, names]), 16) for names in (order, askers)]
    sums: dict[K, np.ndarray] = {}  # (S, 2) of every cell
    units_of: dict[K, BootstrapUnits] = {}
    for key, scores in cells.items():
        by_id = {s.id: s for s in scores}
        items = [by_id[i] for i in common]
        sums[key] = np.array([(s.numerator, s.denominator) for s in items], np.float64)
        without_askers = choose_units([s.voice for s in items], [s.group for s in items], unit)
        units_of[key] = units if any(s.asker for s in items) else without_askers
    estimates: dict[K, Estimate] = {}
    for cell_units in dict.fromkeys(units_of.values()):
        # cells with the same units are drawn at once: two columns each
        keys = [key for key in cells if units_of[key] == cell_units]
        table = np.concatenate([sums[key] for key in keys], axis=1)
        resampled = _draw_sums(table, cell_units, order, seeds, resamples)
        for i, key in enumerate(keys):
            columns = resampled[:, 2 * i : 2 * i + 2]
            estimates[key] = _estimate_by_group(sums[key], columns, cell_units)
    return {key: estimates[key] for key in cells}


def find_common_units(
    cells: Mapping[K, Sequence[ItemScore]], unit: str
) -> tuple[list[str], BootstrapUnits]:
    """Return the ids of the items that all cells have, and their units (`choose_units`).

    unit: name of `ItemScore.group`, such as "passage". The askers are those of the first cell that
    has some; `resample_cells` draws a cell without askers (words of a passage) by voice alone.
    Raises ValueError when the cells have no item in common.
    """
    by_cell = [{s.id: s for s in scores} for scores in cells.values()]
    first = by_cell[0] if by_cell else {}
    common = [s for s in first.values() if all(s.id in by_id for by_id in by_cell)]
    if not common:
        raise ValueError("the cells have no items in common")
    askers: list[str] = []
    for by_id in by_cell:
        if any(s.asker for s in by_id.values()):
            askers = [by_id[s.id].asker for s in common]
            break
    voices, larger = [s.voice for s in common], [s.group for s in common]
    return [s.id for s in common], choose_units(voices, larger, unit, askers)


def find_shared_groups(units: Mapping[K, BootstrapUnits]) -> dict[K, set[str]]:
    """Find for each task the groups that are drawn together with its own: those of all tasks that
    share a group with it, directly or through other tasks. units: by task.

    This pairs tasks that share a voice: where a resample has the voice twice, it has it twice in
    all of them.
    """
    groups: dict[K, set[tuple[str, str]]] = {}  # by task, with the name of the units
    for task, task_units in units.items():
        groups[task] = {(task_units.name, label) for label in task_units.labels}
    shared: dict[K, set[str]] = {}
    for task, task_groups in groups.items():
        together = set(task_groups)
        for _ in groups:  # in every round it grows by the tasks that share a group with it
            for other in groups.values():
                if other & together:
                    together |= other
        shared[task] = {label for _, label in together}
    return shared


def combine_estimates(function: Callable[..., np.ndarray], *estimates: Estimate) -> Estimate:
    """Apply a function to several estimates: to their values, to their values in each resample, and
    to their values without each group.

    function: called with an array of each estimate. A result that is not finite becomes NaN.
    """

    def evaluate(*arrays: Any) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.asarray(function(*arrays), np.float64)
        return np.where(np.isfinite(values), values, np.nan)

    value = float(evaluate(*(np.float64(e.value) for e in estimates)))
    resampled = evaluate(*(e.resampled for e in estimates))
    n = min(e.n for e in estimates)
    groups = min(e.groups for e in estimates)
    unit = ", ".join(dict.fromkeys(name for e in estimates for name in e.unit.split(", ")))
    left_out = []
    if all(e.left_out for e in estimates):
        partitions = max(len(e.left_out) for e in estimates)  # by groups, by askers, by pairs
        for partition in range(partitions):
            names, shares, values = _align(estimates, partition)
            left_out.append(LeftOut(names, shares, evaluate(*values)))
    return Estimate(value, resampled, n, groups, unit, tuple(left_out))


def _align(
    estimates: Sequence[Estimate], partition: int
) -> tuple[tuple[str, ...], np.ndarray, list[np.ndarray]]:
    """Return the groups of all estimates, their mean shares, and for each estimate its values
    without these groups. An estimate that does not have a group keeps its value. partition: index
    into `Estimate.left_out`."""
    known = [e.left_out[partition] for e in estimates if partition < len(e.left_out)]
    names = sorted({group for left_out in known for group in left_out.groups})
    index = {group: i for i, group in enumerate(names)}
    shares = np.zeros(len(names))
    values = []
    for e in estimates:
        without = np.full(len(names), e.value)
        if partition < len(e.left_out):
            indices = [index[group] for group in e.left_out[partition].groups]
            without[indices] = e.left_out[partition].values
            shares[indices] += e.left_out[partition].shares
        values.append(without)
    return tuple(names), shares / len(known), values


def average_estimates(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of at least one estimate, all with the same weight."""
    mean = combine_estimates(lambda *values: sum(values) / len(values), *estimates)
    bounds = min(e.bounds[0] for e in estimates), max(e.bounds[1] for e in estimates)
    return replace(mean, n=sum(e.n for e in estimates), bounds=bounds)
