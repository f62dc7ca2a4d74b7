"""The bootstrap: seeded percentile intervals, paired differences, and quantities computed from scores that are drawn together.

Letters: S items (questions or recordings), G groups, R resamples, C columns. Items of one voice, or questions about one passage,
are not independent: whole groups are drawn (the cluster bootstrap; Davison and Hinkley 1997, section 3.8). `choose_units` says what
the groups are, by one rule for every interval and every test; without groups every item is its own. One group says nothing about
the spread: its interval is [value, value], marked as not estimated, and what is written and printed has none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from speechssl.io import hash_json

K = TypeVar("K", bound=Hashable)

RESAMPLES = 10_000
LEVEL = 0.95
FEWEST = 5  # voices whose spread says something of other voices
VOICE = "voice"
_BLOCK = 1 << 21  # drawn indices held at a time: 16 MB


# ---- what is drawn


@dataclass(frozen=True)
class BootstrapUnits:
    """What a bootstrap draws. groups: of every item the group that it belongs to, or all of them (the voices of a conversation)."""

    name: str  # "voice", "passage", "recording", "query", ...
    groups: tuple[tuple[str, ...], ...]

    @property
    def count(self) -> int:
        return len({group for names in self.groups for group in names})

    def at(self, places: Sequence[int]) -> BootstrapUnits:
        """Of some of the items."""
        return BootstrapUnits(self.name, tuple(self.groups[i] for i in places))

    @property
    def labels(self) -> list[str]:
        """The group of every item. Raises ValueError where an item belongs to several."""
        if any(len(names) != 1 for names in self.groups):
            raise ValueError("an item belongs to several groups")
        return [names[0] for names in self.groups]


def choose_units(voices: Sequence[str | Iterable[str]], larger: Sequence[str], name: str) -> BootstrapUnits:
    """The rule: voices are drawn, with all their items, where training knew none of them and there are at least FEWEST.

    Where there are fewer, or the speaker of an item is not known, the next larger unit than the item is drawn, which is the item
    itself where there is none.

    voices: (S,) who speaks in every item, or all who do; "" where that is not known or training knew the voice (`unknown_voice`).
    larger: (S,) the next larger unit; name: what it is called. Raises ValueError for lengths that differ.
    """
    if len(voices) != len(larger):
        raise ValueError(f"{len(voices)} voices do not fit {len(larger)} items")
    spoken = [(v,) if isinstance(v, str) else tuple(dict.fromkeys(v)) for v in voices]
    if all(names and all(names) for names in spoken) and len({v for names in spoken for v in names}) >= FEWEST:
        return BootstrapUnits(VOICE, tuple(spoken))
    return BootstrapUnits(name, tuple((group,) for group in larger))


def unknown_voice(speaker: str, trained: Collection[str]) -> str:
    """The speaker where training did not know them, else "". trained: the speakers of the training data."""
    return "" if speaker in trained else speaker


# ---- one score


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


def mean_interval(values: ArrayLike, units: BootstrapUnits | None = None, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """The mean of S values with its 95 % interval. values: (S,). units: of the items; None: every item is its own.

    Raises ValueError for no values, values that are not finite, or groups of another length.
    """
    values = _vector(values)
    return _bootstrap(values, np.ones_like(values), units, seed, resamples)[0]


def ratio_interval(
    numerators: ArrayLike, denominators: ArrayLike, units: BootstrapUnits | None = None, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """sum(numerators) / sum(denominators), as WER = errors / words. Both (S,), denominators >= 0.

    Raises ValueError as `mean_interval`, for a negative denominator, or when all denominators are 0.
    """
    return _bootstrap(_vector(numerators), _vector(denominators), units, seed, resamples)[0]


def paired_difference(
    first: ArrayLike, second: ArrayLike, units: BootstrapUnits | None = None, seed: int = 0, resamples: int = RESAMPLES
) -> Difference:
    """Mean of first - second over the same S items, both drawn together.

    p-value: 2 (1 + number of resampled differences on the far side of 0) / (R + 1), at most 1 (Davison and Hinkley 1997,
    chapter 4): never 0, and below 0.05 about where the interval leaves 0 out; but see `two_sided`.
    Raises ValueError as `mean_interval`.
    """
    first, second = _vector(first), _vector(second)
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} items are not pairs")
    v, drawn = _bootstrap(first - second, np.ones_like(first), units, seed, resamples)
    return Difference(**vars(v), p_value=two_sided(drawn, v.groups))


def two_sided(drawn: np.ndarray, groups: int) -> float:
    """The p-value of a quantity's being 0, from (R,) resampled values of it, as in `paired_difference`.

    It is at least 2 / 2^G for G groups, which is what G differences of one sign have in a test by changing signs: however large,
    two of them prove nothing (0.5), and six are the fewest that can get below 0.05.
    """
    tail = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    return min(1.0, max(2 * (1 + tail) / (len(drawn) + 1), 2.0 ** (1 - groups)))


def percentiles(drawn: np.ndarray) -> tuple[float, float]:
    """The ends of the interval that holds LEVEL of (R,) resampled values."""
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of a family of tests, adjusted so that any error at all in it has the stated probability (Holm, 1979)."""
    order = np.argsort(p_values, kind="stable")
    adjusted, most = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        most = max(most, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = most
    return adjusted


def _bootstrap(
    above: np.ndarray, below: np.ndarray, units: BootstrapUnits | None, seed: int, resamples: int
) -> tuple[Interval, np.ndarray]:
    """The ratio of sums with its interval, and (R,) resampled ratios. above, below: (S,)."""
    if len(above) != len(below) or (below < 0).any() or not below.sum():
        raise ValueError("every numerator needs a denominator of at least 0, and not all of them may be 0")
    if resamples < 1:
        raise ValueError("resamples must be at least 1")
    if units and len(units.groups) != len(above):
        raise ValueError(f"{len(units.groups)} groups do not fit {len(above)} values")
    sums = np.stack([above, below], axis=1)
    if units and any(len(names) != 1 for names in units.groups):
        order = (name for names in units.groups for name in names)
        drawn = np.concatenate([times @ sums for times in drawn_weights(units.groups, order, seed, resamples)])
    else:
        if units:  # groups in order of appearance, so that equal partitions give equal draws
            index = {group: i for i, group in enumerate(dict.fromkeys(units.labels))}
            places = [index[group] for group in units.labels]
            sums = np.stack([np.bincount(places, weights=v, minlength=len(index)) for v in (above, below)], axis=1)
        blocks = _draws(len(sums), np.random.default_rng(seed), resamples)
        drawn = np.concatenate([np.stack([column[chosen].sum(axis=1) for column in sums.T], axis=1) for chosen in blocks])
    drawn = drawn[drawn[:, 1] > 0]  # a resample of empty references alone has no rate
    ratios = drawn[:, 0] / drawn[:, 1]
    estimated = int((sums[:, 1] > 0).sum()) > 1  # two groups at least have a ratio
    name, count = (units.name, units.count) if units else ("item", len(above))
    return Interval(float(above.sum() / below.sum()), *percentiles(ratios), len(above), estimated, name, count), ratios


def _draws(groups: int, generator: np.random.Generator, resamples: int) -> Iterator[np.ndarray]:
    """Blocks of (r, G) groups drawn with replacement, R resamples in all."""
    block = max(1, _BLOCK // groups)
    for start in range(0, resamples, block):
        yield generator.integers(0, groups, (min(block, resamples - start), groups))


def drawn_counts(groups: int, numbers: float, seed: int, resamples: int) -> Iterator[np.ndarray]:
    """Blocks of (r, G) how often each group was drawn, with replacement, R resamples in all.

    numbers: how many whoever asks holds for every resample, which r depends on.
    """
    generator, block = np.random.default_rng(seed), max(1, int(_BLOCK // numbers))
    for start in range(0, resamples, block):
        yield generator.multinomial(groups, np.full(groups, 1 / groups), min(block, resamples - start))


def drawn_weights(groups: Sequence[Sequence[str]], order: Iterable[str], seed: int, resamples: int) -> Iterator[np.ndarray]:
    """Blocks of (r, S) how often each item counts whose groups are these: as often as all of them were drawn together, the product
    of their numbers (the pigeonhole bootstrap; Owen 2007, Annals of Applied Statistics 1(2)). order: of all groups.
    """
    index = {name: i for i, name in enumerate(dict.fromkeys(order))}
    most, always = max(map(len, groups)), [len(index)]  # the place of a group that is drawn once in every resample
    places = np.array([[index[name] for name in names] + always * (most - len(names)) for names in groups])
    for times in drawn_counts(len(index), len(groups), seed, resamples):
        times = np.concatenate([times, np.ones((len(times), 1), times.dtype)], axis=1)
        yield np.prod([times[:, column] for column in places.T], axis=0)


def _vector(values: ArrayLike) -> np.ndarray:
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
        raise ValueError(f"scores must be one vector of finite numbers, this has the shape {vector.shape}")
    return vector


# ---- several scores, drawn together


@dataclass(frozen=True)
class ItemScore:
    """What one item adds to a score, which is the sum of the numerators over the sum of the denominators.

    group, voice: what `choose_units` chooses from to draw items together.
    """

    id: str
    group: str  # the next larger unit than the item (of a question its passage), or the item itself
    numerator: float  # accuracy: 1 where right; word error rate: errors
    denominator: float  # accuracy: 1; word error rate: words of the reference
    voice: str = ""  # who speaks; "" where that is not known, or training knew the voice


@dataclass(frozen=True, eq=False)
class Estimate:
    """A quantity over n items in G groups, with its resampled values, on which arithmetic works; `interval` is taken at the end.

    drawn: (R,) its value in the resamples, NaN in those where it is not defined. unit: what the groups are ("voice"); of quantities
    with different ones all of them, joined by ", ". groups: then the fewest.
    """

    value: float
    drawn: np.ndarray
    n: int
    groups: int
    unit: str = "item"

    @property
    def interval(self) -> Interval:
        """With its 95 % interval; [value, value], which is not estimated, where no resample gives it."""
        finite = self.drawn[np.isfinite(self.drawn)]
        low, high = percentiles(finite) if len(finite) else (self.value, self.value)
        return Interval(self.value, low, high, self.n, len(finite) > 0, self.unit, self.groups)

    @property
    def p_value(self) -> float:
        """Two-sided, of its being 0, as of `paired_difference`."""
        return two_sided(self.drawn[np.isfinite(self.drawn)], self.groups)


def combined(function: Callable[..., np.ndarray], *estimates: Estimate) -> Estimate:
    """The function of some quantities, resample by resample. It takes arrays; dividing by 0 gives what is not defined (NaN)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(function(*(np.float64(e.value) for e in estimates)))
        drawn = np.asarray(function(*(e.drawn for e in estimates)), np.float64)
    n, groups = min(e.n for e in estimates), min(e.groups for e in estimates)
    unit = ", ".join(dict.fromkeys(name for e in estimates for name in e.unit.split(", ")))
    return Estimate(value if np.isfinite(value) else np.nan, np.where(np.isfinite(drawn), drawn, np.nan), n, groups, unit)


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """Their mean, every one with the same weight. Raises ValueError for none."""
    if not estimates:
        raise ValueError("there is nothing to take the mean of")
    mean = combined(lambda *values: sum(values) / len(values), *estimates)
    return replace(mean, n=sum(e.n for e in estimates))


def resampled(
    cells: Mapping[K, Sequence[ItemScore]],
    seed: int = 0,
    resamples: int = RESAMPLES,
    unit: str = "group",
    among: Collection[str] = (),
) -> dict[K, Estimate]:
    """Every cell's sum of numerators over sum of denominators, on the items that all cells have, drawn together.

    What is drawn is what `common_units` says. among: groups of other cells that are drawn together with these (`drawn_together`).
    Equal sets of groups give equal draws, so that estimates of two calls about the same groups are paired as well.
    Raises ValueError as `common_units`, and when denominators are all 0.
    """
    common, units = common_units(cells, unit)
    groups = units.labels
    order = {group: number for number, group in enumerate(sorted({*groups, *among}))}
    places = np.array([order[group] for group in groups])
    columns = []
    for scored in cells.values():
        items = {s.id: s for s in scored}
        for weights in ([items[i].numerator for i in common], [items[i].denominator for i in common]):
            columns.append(np.bincount(places, weights=weights, minlength=len(order)))
    sums, blocks = np.stack(columns, axis=1), []  # (G, C), two columns a cell
    for chosen in _draws(len(order), np.random.default_rng(int(hash_json([seed, list(order)]), 16)), resamples):
        rows = len(chosen)  # counts of the groups, once for all columns
        flat = (chosen + len(order) * np.arange(rows)[:, None]).ravel()
        counts = np.bincount(flat, minlength=rows * len(order)).reshape(rows, len(order))
        blocks.append(counts.astype(np.float64) @ sums)
    drawn, totals = np.concatenate(blocks), sums.sum(axis=0)
    if units.count == 1:
        drawn = np.full_like(drawn, np.nan)
    estimates = {}
    for i, key in enumerate(cells):
        above, below = totals[2 * i : 2 * i + 2]
        if not below > 0:
            raise ValueError("the denominators of a score are all 0")
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(drawn[:, 2 * i + 1] > 0, drawn[:, 2 * i] / drawn[:, 2 * i + 1], np.nan)
        estimates[key] = Estimate(float(above / below), rates, len(common), units.count, units.name)
    return estimates


def common_units(cells: Mapping[K, Sequence[ItemScore]], unit: str) -> tuple[list[str], BootstrapUnits]:
    """The ids of the items that all cells have, and what is drawn of them (`choose_units`).

    unit: what `ItemScore.group` is, the next larger unit than the item.
    Raises ValueError when the cells have no item in common, or an item is in other groups or of another voice elsewhere.
    """
    items = [{s.id: s for s in scored} for scored in cells.values()]
    common = [s for s in (items[0] if items else {}).values() if all(s.id in by_id for by_id in items)]
    if not common:
        raise ValueError("the cells have no items in common")
    for s in common:
        for name in ("group", "voice"):
            if len(several := sorted({getattr(by_id[s.id], name) for by_id in items})) > 1:
                raise ValueError(f"the item {s.id} is in the {name}s {', '.join(map(repr, several))}")
    return [s.id for s in common], choose_units([s.voice for s in common], [s.group for s in common], unit)


def drawn_together(units: Mapping[K, BootstrapUnits]) -> dict[K, set[str]]:
    """The groups that every key's are to be drawn with: those of all keys that share one of them, directly or through others.

    Tasks that share a voice are paired by this: where it is drawn twice in a resample, it is so in all of them.
    """
    components: list[tuple[set[K], set[str]]] = []
    for key, bootstrap in units.items():
        keys, labels = {key}, {f"{bootstrap.name} {label}" for label in bootstrap.labels}
        apart = []
        for other in components:
            if other[1] & labels:
                keys, labels = keys | other[0], labels | other[1]
            else:
                apart.append(other)
        components = [*apart, (keys, labels)]
    return {key: {label.partition(" ")[2] for label in labels} for keys, labels in components for key in keys}
