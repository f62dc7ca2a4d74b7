"""Intervals, p-values and paired differences of scores, by resampling.

What is drawn. Items of one voice, or questions about one passage, are not independent: whole groups
are drawn (the cluster bootstrap; Davison and Hinkley 1997, section 3.8), and where the asker's
voice is known too, both voices, each by itself (the pigeonhole bootstrap; Owen 2007, Annals of
Applied Statistics 1(2)). `choose_units` says what the groups are, by one rule for every interval
and every test; without groups every item is its own.

Intervals (`interval_ends`). Percentiles of the bootstrap are too narrow where there are few groups
(eight cover the truth in 89 % of cases in the place of 95, five in 84), and those of the pigeonhole
bootstrap too wide. So the resamples give the shape of the interval, and the jackknife gives its
width: Student's t with G - 1 degrees of freedom times the standard error V^(1/2),

    V = (G - 1) / G sum over the groups g of (value without g - value)^2,

and with askers V = max(V_voice + V_asker - V_both, V_voice, V_asker), where both are the pairs of a
voice and an asker (Cameron, Gelbach and Miller 2011), and G is the number of the fewer. Where no
value without a group is to be had, the standard error is that of the resamples times (G / (G -
1))^(1/2). Fewer than FEWEST groups say too little of the spread: there is no interval.
tests/test_coverage.py has the share of intervals that cover, from 5 groups to 20.

p-values (`Estimate.p_value`) are two-sided. The groups change signs: all 2^G patterns up to EXACT
groups, R random ones above that. With askers the p is the largest of that by voice, that by asker,
and that of Student's t with V. Signs are exact for any number of groups, but five cannot give less
than 2 / 2^5 = 0.0625, whatever the interval says.

An `Estimate` carries a value with its resampled values and its values without a group, so that
quantities can be computed of several (`combine_estimates`); `resample_cells` makes estimates that
are drawn together.

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
LEVEL = 0.95
TAIL = (1 - LEVEL) / 2
FEWEST = 5  # groups whose spread says something of others
EXACT = 12  # groups whose signs are changed in every way
VOICE, ASKER = "voice", "asker"
CROSSED = " × "  # between the names of two populations that are drawn each by itself
_BLOCK = 1 << 21  # drawn indices held at a time: 16 MB


# ---- what is drawn


@dataclass(frozen=True)
class BootstrapUnits:
    """These units are drawn by a bootstrap.

    groups: of every item the group that it belongs to, or all of them (the voices of a
    conversation).
    askers: of every item who asks, which is drawn too, by itself; (): they are not drawn.
    about: what there is too little of to be drawn, so that an interval is about these alone ("3
    voices").
    """

    name: str  # "voice", "passage", "recording", "query", ...
    groups: tuple[tuple[str, ...], ...]
    askers: tuple[str, ...] = ()
    about: str = ""

    @property
    def text(self) -> str:
        """Return the units as results have them: "voice", "voice × asker", "passage (about these 3
        voices)"."""
        drawn = f"{self.name}{CROSSED}{ASKER}" if self.askers else self.name
        return f"{drawn} (about {self.about})" if self.about else drawn

    def at(self, places: Sequence[int]) -> BootstrapUnits:
        """Choose the units of some of the items."""
        askers = tuple(self.askers[i] for i in places) if self.askers else ()
        return replace(self, groups=tuple(self.groups[i] for i in places), askers=askers)

    @property
    def labels(self) -> list[str]:
        """Return the one group of every item."""
        return [name for (name,) in self.groups]


def choose_units(
    voices: Sequence[str | Iterable[str]],
    larger: Sequence[str],
    name: str,
    askers: Sequence[str] = (),
) -> BootstrapUnits:
    """Choose what is drawn: voices, with all their items, where training knew none of them and
    there are at least FEWEST.

    Where there are fewer, or the speaker of an item is not known, the next larger unit than the
    item is drawn, which is the item itself where there is none. Those who ask are drawn as well, by
    themselves, by the same rule; where they are not, nothing is. What is known and too few to be
    drawn, the result is about: it says nothing of other voices.

    voices: (S,) who speaks in every item, or all who do; "" where that is not known or training
    knew the voice (`unknown_voice`). larger: (S,) the next larger unit; name: what it is called.
    askers: (S,) who asks, "" as of voices; (): nobody does.
    """
    spoken = [(v,) if isinstance(v, str) else tuple(dict.fromkeys(v)) for v in voices]
    known: set[str] = set()
    if all(names and all(names) for names in spoken):
        known = known.union(*spoken)
    asking = set(askers) if all(askers) else set()
    few = []
    for who, what in ((known, VOICE), (asking, ASKER)):
        if 0 < len(who) < FEWEST:
            few.append(f"{len(who)} {what}{'s' * (len(who) > 1)}")
    about = " and ".join(few)
    if about:
        about = f"{'this' if about.startswith('1 ') else 'these'} {about}"
    groups: tuple[tuple[str, ...], ...] = tuple((group,) for group in larger)
    if len(known) >= FEWEST:
        name, groups = VOICE, tuple(spoken)
    one_group = all(len(names) == 1 for names in groups)
    drawn_askers = tuple(askers) if len(asking) >= FEWEST and one_group else ()
    return BootstrapUnits(name, groups, drawn_askers, about)


def unknown_voice(speaker: str, trained: Collection[str]) -> str:
    """Return the speaker where training did not know them, else "". trained: the speakers of the
    training data."""
    return "" if speaker in trained else speaker


# ---- one score


@dataclass(frozen=True)
class Interval:
    """A value has a confidence interval [low, high], and is about n items.

    estimated: False for fewer than FEWEST groups, where low and high are the value for want of
    anything better.
    drawn, groups: what was drawn, and of how many ("voice", 8; of two populations the fewer).
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
        """Return the interval times 100."""
        return replace(self, value=100 * self.value, low=100 * self.low, high=100 * self.high)

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """Return low and high as results have them: None where they were not estimated."""
        return (self.low, self.high) if self.estimated else (None, None)


@dataclass(frozen=True)
class Difference(Interval):
    """A paired difference (first minus second) has an interval, and the two-sided p-value of there
    being none."""

    p_value: float = 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust the p-values of a family of tests so that any error at all in it has the stated
    probability (Holm, 1979)."""
    order = np.argsort(p_values, kind="stable")
    tests = np.arange(len(p_values), 0, -1)  # of as many the smallest p has to be the smallest
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, tests * np.asarray(p_values)[order]))
    return adjusted.tolist()


# ---- an estimate: its interval and its p-value


class LeftOut(NamedTuple):
    """These are the values of a score without one group at a time: the jackknife."""

    groups: tuple[str, ...]
    shares: np.ndarray  # (G,) of the denominators that a group has, of all
    values: np.ndarray  # (G,) without it

    def variance(self, value: float) -> float:
        """Estimate the variance by the jackknife; NaN where the value is not defined without some
        group."""
        count = int((self.shares > 0).sum())
        return float((count - 1) / count * ((self.values - value) ** 2).sum())

    def p_value(self, value: float) -> float:
        """Return the p-value of the value's being 0: the share of patterns of signs, one a group,
        which give a value at least as far from it.

        What a group adds to the value is what it changes, and its share of the value. NaN as of
        `variance`.
        """
        added = (1 - self.shares) * (value - self.values) + self.shares * value
        added = added[self.shares > 0]
        groups = len(added)
        if not np.isfinite(added).all():
            return np.nan
        least = abs(value) * (1 - 1e-9) - 1e-15  # with room for rounding
        as_far = [np.abs(signs @ added) >= least for signs in _flip_signs(groups)]
        share = float(np.concatenate(as_far).mean())
        if groups <= EXACT:
            return share
        # of random patterns: the observed one counts too, and none can be rarer than one of all
        return max((1 + RESAMPLES * share) / (1 + RESAMPLES), 2.0 ** (1 - groups))


def _flip_signs(groups: int) -> Iterator[np.ndarray]:
    """Yield blocks (r, G) of patterns of signs: all of them up to EXACT groups, RESAMPLES random
    ones above that."""
    if groups <= EXACT:
        yield _all_signs(groups)
        return
    generator = np.random.default_rng(0)
    rows = max(1, _BLOCK // groups)
    for start in range(0, RESAMPLES, rows):
        yield 2.0 * generator.integers(0, 2, (min(rows, RESAMPLES - start), groups), np.int8) - 1


@lru_cache
def _all_signs(groups: int) -> np.ndarray:
    return np.array(list(product((-1.0, 1.0), repeat=groups)))


@dataclass(frozen=True, eq=False)
class Estimate:
    """A quantity over n items in G groups is estimated with its resampled values, on which
    arithmetic works; `interval` is taken at the end.

    drawn: (R,) its value in the resamples, NaN in those where it is not defined. unit: what the
    groups are ("voice"); of quantities with different ones all of them, joined by ", ". groups:
    then the fewest. left: without one group at a time; with askers, also without one of these, and
    without a pair of both; (): not known. within: the range of the score.
    """

    value: float
    drawn: np.ndarray
    n: int
    groups: int
    unit: str = "item"
    left: tuple[LeftOut, ...] = ()
    within: tuple[float, float] = (-np.inf, np.inf)

    @property
    def error(self) -> float | None:
        """Return the standard error by the jackknife; None where it is not to be had."""
        variances = [without.variance(self.value) for without in self.left]
        if not variances or not np.isfinite(variances).all():
            return None
        if len(variances) > 1:
            by_voice, by_asker, by_pair = variances
            variances = [by_voice, by_asker, by_voice + by_asker - by_pair]
        return float(np.sqrt(max(variances)))

    @property
    def interval(self) -> Interval:
        """Return the value with its 95 % interval; [value, value], which is not estimated, for too
        few groups, or where no resample gives it."""
        estimated = interval_scale(self.drawn, self.groups, self.error) is not None
        ends = interval_ends(self.value, self.drawn, self.groups, self.error, self.within)
        return Interval(self.value, *ends, self.n, estimated, self.unit, self.groups)

    @property
    def widened(self) -> np.ndarray:
        """Return (R,) resampled values as far from the value as those of its interval: what is
        computed of these has one, too. NaN for too few groups.
        """
        scale = interval_scale(self.drawn, self.groups, self.error)
        return self.value + (np.nan if scale is None else scale) * (self.drawn - self.value)

    @property
    def p_value(self) -> float:
        """Return the two-sided p-value of the quantity's being 0, as the head of this module says;
        1 for a single group."""
        if not np.isfinite(self.value) or self.groups < 2:
            return 1.0
        by_signs = [without.p_value(self.value) for without in self.left[:2]]  # voices, askers
        if len(by_signs) == 1 and np.isfinite(by_signs).all():
            return by_signs[0]
        error = self.error
        if error is None or not np.isfinite(by_signs).all():
            by_signs = [2.0 ** (1 - self.groups)]  # the least that signs can give
            error = float(np.nanstd(self.drawn) * np.sqrt(self.groups / (self.groups - 1)))
        t = 0.0
        if self.value:
            t = abs(self.value) / error if error else np.inf
        from scipy.special import stdtr

        by_t = 2 * stdtr(self.groups - 1, -t)
        return float(min(1.0, max(*by_signs, by_t)))


def interval_ends(
    value: float,
    drawn: np.ndarray,
    groups: int,
    error: float | None = None,
    within: tuple[float, float] = (-np.inf, np.inf),
) -> tuple[float, float]:
    """Return the 95 % interval of a value, from its (R,) resampled values, as the head of this
    module says; NaN is left out.

    groups: how many were drawn. error: its standard error, None: that of the resamples, corrected
    for the groups.
    within: the range of the score, which the interval does not leave. [value, value] for fewer than
    FEWEST groups.
    """
    scale = interval_scale(drawn, groups, error)
    if scale is None:
        return value, value
    low, high = np.nanquantile(drawn, [TAIL, 1 - TAIL])
    below, above = max(0.0, value - float(low)), max(0.0, float(high) - value)
    return max(within[0], value - scale * below), min(within[1], value + scale * above)


def interval_scale(drawn: np.ndarray, groups: int, error: float | None = None) -> float | None:
    """Return how many times as far from the value as those of its resamples the ends of its
    interval are; None where it has none."""
    if groups < FEWEST or np.isnan(drawn).all():
        return None
    low, high = np.nanquantile(drawn, [TAIL, 1 - TAIL])
    half = float(high - low) / 2
    if half <= 0:
        return 1.0
    from scipy.special import ndtri, stdtrit  # here, for who only answers needs none of it

    if error is None:
        error = half / -float(ndtri(TAIL)) * (groups / (groups - 1)) ** 0.5
    return -float(stdtrit(groups - 1, TAIL)) * error / half


# ---- the estimate of a ratio of sums


def mean_interval(
    values: ArrayLike,
    units: BootstrapUnits | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return the mean of S values with its 95 % interval. values: (S,). units: of the items; None:
    every item is its own.

    Where all values are from 0 to 1, so is the interval.
    Raises ValueError for no values and for values that are not finite.
    """
    return ratio_interval(values, np.ones(np.shape(values)), units, seed, resamples)


def ratio_interval(
    numerators: ArrayLike,
    denominators: ArrayLike,
    units: BootstrapUnits | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return sum(numerators) / sum(denominators) with its 95 % interval, as WER = errors / words.
    Both are (S,), denominators >= 0.

    Where no numerator is below 0 the interval is not, and where none is above its denominator it is
    not above 1.
    Raises ValueError as `mean_interval`, and when all denominators are 0.
    """
    return _estimate(numerators, denominators, units, seed, resamples).interval


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    units: BootstrapUnits | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Difference:
    """Return the mean of first - second over the same S items, both drawn together, and the p-value
    of `Estimate`.

    Raises ValueError as `mean_interval`.
    """
    apart = np.subtract(first, second, dtype=np.float64)
    found = _estimate(apart, np.ones_like(apart), units, seed, resamples)
    return Difference(**vars(found.interval), p_value=found.p_value)


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
        drawn = _draw_sums(sums, units, order, [seed, seed + 1], resamples)
        return _estimate_by_group(sums, drawn, units)
    # conversations, which belong to several voices: no voice can be left out by itself
    weights = draw_weights(units.groups, order, seed, resamples)
    drawn = np.concatenate([times @ sums for times in weights])
    counted: set[str] = set()
    for names, (_, denominator) in zip(units.groups, sums, strict=True):
        if denominator > 0:
            counted.update(names)
    return _make_estimate(sums, drawn, len(counted), units)


def _make_estimate(
    sums: np.ndarray,
    drawn: np.ndarray,
    groups: int,
    units: BootstrapUnits,
    left: tuple[LeftOut, ...] = (),
) -> Estimate:
    """Estimate the ratio of (S, 2) sums from (R, 2) drawn ones."""
    numerators, denominators = sums.T
    if (numerators < 0).any():
        within = (-np.inf, np.inf)
    elif (numerators <= denominators).all():
        within = (0.0, 1.0)  # a share
    else:
        within = (0.0, np.inf)  # a rate of errors
    value = float(numerators.sum() / denominators.sum())
    return Estimate(value, _ratio(drawn), len(sums), groups, units.text, left, within)


def _estimate_by_group(sums: np.ndarray, drawn: np.ndarray, units: BootstrapUnits) -> Estimate:
    """Estimate as `_make_estimate`, where every item has one group, so that the values without one
    are known."""
    left = tuple(_leave_out(sums, way) for way in list_ways(units))
    # groups that have something to count, of two populations the fewer
    groups = min(int((without.shares > 0).sum()) for without in left)
    return _make_estimate(sums, drawn, groups, units, left)


def _ratio(sums: np.ndarray) -> np.ndarray:
    """Divide (..., 2) numerators by denominators; NaN where there is no denominator."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sums[..., 1] > 0, sums[..., 0] / sums[..., 1], np.nan)


# ---- resamples


def draw_counts(groups: int, numbers: float, seed: int, resamples: int) -> Iterator[np.ndarray]:
    """Yield blocks (r, G) of how often each group is drawn, with replacement, R resamples in all.

    numbers: how many whoever asks holds for every resample, which r depends on.
    """
    generator = np.random.default_rng(seed)
    block = max(1, int(_BLOCK // numbers))
    shares = np.full(groups, 1 / groups)
    for start in range(0, resamples, block):
        yield generator.multinomial(groups, shares, min(block, resamples - start))


def draw_weights(
    groups: Sequence[Sequence[str]], order: Iterable[str], seed: int, resamples: int
) -> Iterator[np.ndarray]:
    """Yield blocks (r, S) of how often each item counts: as often as all of its groups were drawn
    together, the product of their numbers (the pigeonhole bootstrap; Owen 2007, Annals of Applied
    Statistics 1(2)).

    groups: of every item; order: of all groups.
    """
    index = {name: i for i, name in enumerate(dict.fromkeys(order))}
    once = len(index)  # the place of a group that is drawn once in every resample
    most = max(map(len, groups))
    places = np.full((most, len(groups)), once)
    for item, names in enumerate(groups):
        places[: len(names), item] = [index[name] for name in names]
    for times in draw_counts(len(index), len(groups), seed, resamples):
        times = np.pad(times, ((0, 0), (0, 1)), constant_values=1)
        yield np.prod([times[:, of_items] for of_items in places], axis=0)


def _draw_sums(
    sums: np.ndarray,
    units: BootstrapUnits,
    order: Iterable[str],
    seeds: Sequence[int],
    resamples: int,
) -> np.ndarray:
    """Draw sums over groups, or over pairs of a group and an asker: (R, C).

    sums: (S, C) of the items; order: of all groups; seeds: for groups and for askers.
    """
    askers = units.askers or ("",) * len(sums)
    group_places = {group: i for i, group in enumerate(order)}
    asker_places = {asker: i for i, asker in enumerate(sorted(set(askers)))}
    groups_of_items = [group_places[group] for group in units.labels]
    askers_of_items = [asker_places[asker] for asker in askers]
    table = np.zeros((len(group_places), len(asker_places), sums.shape[1]))  # (G, A, C)
    np.add.at(table, (groups_of_items, askers_of_items), sums)
    of_group = table.reshape(len(group_places), -1)  # (G, A C)
    rows = max(1, _BLOCK // (len(group_places) + len(asker_places) * sums.shape[1]))
    drawn_groups = _draw_groups(len(group_places), seeds[0], resamples, rows)
    if not units.askers:
        return np.concatenate([counts @ of_group for counts in drawn_groups])
    drawn_askers = _draw_groups(len(asker_places), seeds[1], resamples, rows)
    blocks = []
    for counts, asker_counts in zip(drawn_groups, drawn_askers, strict=True):
        of_asker = (counts @ of_group).reshape(len(counts), len(asker_places), -1)
        blocks.append(np.einsum("rac,ra->rc", of_asker, asker_counts))
    return np.concatenate(blocks)


def _draw_groups(groups: int, seed: int, resamples: int, rows: int) -> Iterator[np.ndarray]:
    """Yield blocks (r, G) of how often each group is drawn, as `draw_counts` does, from indices."""
    generator = np.random.default_rng(seed)
    for start in range(0, resamples, rows):
        chosen = generator.integers(0, groups, (min(rows, resamples - start), groups))
        flat = (chosen + groups * np.arange(len(chosen))[:, None]).ravel()
        yield np.bincount(flat, minlength=chosen.size).reshape(chosen.shape).astype(np.float64)


# ---- without one group at a time


Way = tuple[tuple[str, ...], np.ndarray]  # groups to leave out, and (S,) the place of every item's


def list_ways(units: BootstrapUnits) -> list[Way]:
    """List the ways to leave something out: a group; with askers, also an asker, and a pair of
    both."""
    groups = [f"{units.name} {label}" for label in units.labels]
    ways: list[Sequence[str]] = [groups]
    if units.askers:
        pairs = [f"{a}{CROSSED}{b}" for a, b in zip(groups, units.askers, strict=True)]
        ways += [units.askers, pairs]
    found = []
    for labels in ways:
        names, places = np.unique(labels, return_inverse=True)
        found.append((tuple(names.tolist()), places))
    return found


def _leave_out(sums: np.ndarray, way: Way) -> LeftOut:
    """Compute the ratio of (S, 2) sums without one group at a time."""
    groups, places = way
    total = sums.sum(0)
    of_group = np.stack([np.bincount(places, column, len(groups)) for column in sums.T], axis=1)
    shares = of_group[:, 1] / total[1]
    return LeftOut(groups, shares, _ratio(total - of_group))


# ---- several scores, drawn together


@dataclass(frozen=True)
class ItemScore:
    """An item has a part in a score, which is the sum of the numerators over the sum of the
    denominators.

    group, voice, asker: what `choose_units` chooses from to draw items together.
    """

    id: str
    group: str  # the next larger unit than the item (of a question its passage), or the item itself
    numerator: float  # accuracy: 1 where right; word error rate: errors
    denominator: float  # accuracy: 1; word error rate: words of the reference
    voice: str = ""  # who speaks; "" where that is not known, or training knew the voice
    asker: str = ""  # who asks, as voice; "" where nobody does


def resample_cells(
    cells: Mapping[K, Sequence[ItemScore]],
    seed: int = 0,
    resamples: int = RESAMPLES,
    unit: str = "group",
    among: Collection[str] = (),
) -> dict[K, Estimate]:
    """Estimate every cell's sum of numerators over sum of denominators, on the items that all cells
    have, drawn together.

    What is drawn is what `common_units` says. among: groups of other cells that are drawn together
    with these (`find_shared_groups`). Equal sets of groups give equal draws, so that estimates of
    two calls about the same groups are paired as well. Raises ValueError as `common_units`.
    """
    common, units = common_units(cells, unit)
    order = sorted({*units.labels, *among})
    # one seed for the groups and one for the askers, by their names
    askers = [ASKER, *sorted(set(units.askers))]
    seeds = [int(hash_json([seed, names]), 16) for names in (order, askers)]
    sums: dict[K, np.ndarray] = {}  # (S, 2)
    units_of: dict[K, BootstrapUnits] = {}
    for key, scored in cells.items():
        by_id = {s.id: s for s in scored}
        items = [by_id[i] for i in common]
        sums[key] = np.array([(s.numerator, s.denominator) for s in items], np.float64)
        unasked = choose_units([s.voice for s in items], [s.group for s in items], unit)
        units_of[key] = units if any(s.asker for s in items) else unasked
    estimates: dict[K, Estimate] = {}
    for kind in dict.fromkeys(units_of.values()):
        keys = [key for key in cells if units_of[key] == kind]
        table = np.concatenate([sums[key] for key in keys], axis=1)
        drawn = _draw_sums(table, kind, order, seeds, resamples)
        for i, key in enumerate(keys):
            estimates[key] = _estimate_by_group(sums[key], drawn[:, 2 * i : 2 * i + 2], kind)
    return {key: estimates[key] for key in cells}


def common_units(
    cells: Mapping[K, Sequence[ItemScore]], unit: str
) -> tuple[list[str], BootstrapUnits]:
    """Return the ids of the items that all cells have, and what is drawn of them (`choose_units`).

    unit: what `ItemScore.group` is, the next larger unit than the item.
    A cell whose items nobody asks (words of a passage) is drawn by voice alone.
    Raises ValueError when the cells have no item in common.
    """
    by_cell = [{s.id: s for s in scored} for scored in cells.values()]
    first = by_cell[0] if by_cell else {}
    common = [s for s in first.values() if all(s.id in by_id for by_id in by_cell)]
    if not common:
        raise ValueError("the cells have no items in common")
    asked = next((by_id for by_id in by_cell if any(s.asker for s in by_id.values())), {})
    askers = [asked[s.id].asker for s in common] if asked else []
    voices, larger = [s.voice for s in common], [s.group for s in common]
    return [s.id for s in common], choose_units(voices, larger, unit, askers)


def find_shared_groups(units: Mapping[K, BootstrapUnits]) -> dict[K, set[str]]:
    """Find the groups that every key's are to be drawn with: those of all keys that share one of
    them, directly or through others.

    Tasks that share a voice are paired by this: where it is drawn twice in a resample, it is so in
    all of them.
    """
    labels = {key: {(u.name, label) for label in u.labels} for key, u in units.items()}
    components: list[set[tuple[str, str]]] = []
    for own in labels.values():
        touching = [component for component in components if component & own]
        components = [component for component in components if not component & own]
        components.append(own.union(*touching))
    shared: dict[K, set[str]] = {}
    for key, own in labels.items():
        (component,) = (component for component in components if component & own)
        shared[key] = {label for _, label in component}
    return shared


def combine_estimates(function: Callable[..., np.ndarray], *estimates: Estimate) -> Estimate:
    """Apply a function to some quantities, resample by resample, and without the same group of all
    at a time.

    function: takes arrays; dividing by 0 gives what is not defined (NaN).
    """

    def evaluate(*arrays: Any) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.asarray(function(*arrays), np.float64)
        return np.where(np.isfinite(values), values, np.nan)

    value = float(evaluate(*(np.float64(e.value) for e in estimates)))
    drawn = evaluate(*(e.drawn for e in estimates))
    n = min(e.n for e in estimates)
    groups = min(e.groups for e in estimates)
    unit = ", ".join(dict.fromkeys(name for e in estimates for name in e.unit.split(", ")))
    left = []
    if all(e.left for e in estimates):
        for place in range(max(len(e.left) for e in estimates)):  # groups, askers, pairs
            names, shares, values = _align(estimates, place)
            left.append(LeftOut(names, shares, evaluate(*values)))
    return Estimate(value, drawn, n, groups, unit, tuple(left))


def _align(
    estimates: Sequence[Estimate], place: int
) -> tuple[tuple[str, ...], np.ndarray, list[np.ndarray]]:
    """Return the groups of all quantities, their mean shares, and of each quantity its values
    without these: one that has not a group keeps its value without it. place: in `Estimate.left`.
    """
    known = [e.left[place] for e in estimates if place < len(e.left)]
    names = sorted({group for left in known for group in left.groups})
    index = {group: i for i, group in enumerate(names)}
    shares = np.zeros(len(names))
    values = []
    for e in estimates:
        without = np.full(len(names), e.value)
        for left in e.left[place : place + 1]:
            places = [index[group] for group in left.groups]
            without[places] = left.values
            shares[places] += left.shares
        values.append(without)
    return tuple(names), shares / len(known), values


def mean_estimate(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of quantities, at least one, every one with the same weight."""
    mean = combine_estimates(lambda *values: sum(values) / len(values), *estimates)
    within = min(e.within[0] for e in estimates), max(e.within[1] for e in estimates)
    return replace(mean, n=sum(e.n for e in estimates), within=within)
