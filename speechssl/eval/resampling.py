"""Quantities that are computed from several scores of the same items, with their bootstrap.

Letters: S items, G groups, R resamples. In every resample the groups (voices, or what `bootstrap.choose_units` names instead) are
drawn once, for all cells together (the paired cluster bootstrap; Davison and Hinkley 1997, section 3.8), so that what encoders and
conditions have in common cancels in a difference. A quantity is carried through the arithmetic together with its R resampled
values; the interval is taken at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from speechssl.io import hash_json
from speechssl.stats import LEVEL, RESAMPLES, Interval, Units, choose_units, percentiles, two_sided
from speechssl.superb.trained import Scored

K = TypeVar("K", bound=Hashable)
_BLOCK = 1 << 21  # drawn groups held at a time: 16 MB


@dataclass(frozen=True, eq=False)
class Estimate:
    """A quantity over n items in G groups. drawn: (R,) what it is in the resamples, NaN in those where it is not defined.

    unit: what the groups are ("voice"); of quantities with different ones all of them, joined by ", ". groups: then the fewest.
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
        low, high = percentiles(finite, LEVEL) if len(finite) else (self.value, self.value)
        return Interval(self.value, low, high, self.n, len(finite) > 0, self.unit, self.groups)

    @property
    def p_value(self) -> float:
        """Two-sided, of its being 0, as of `paired_difference`."""
        return two_sided(self.drawn[np.isfinite(self.drawn)], self.groups)


def combined(function: Callable[..., np.ndarray], *estimates: Estimate) -> Estimate:
    """The function of some quantities, resample by resample. It takes arrays; dividing by 0 gives what is not defined (NaN)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = function(*(np.float64(e.value) for e in estimates))
        drawn = np.asarray(function(*(e.drawn for e in estimates)), np.float64)
    n, groups = min(e.n for e in estimates), min(e.groups for e in estimates)
    unit = ", ".join(dict.fromkeys(name for e in estimates for name in e.unit.split(", ")))
    return Estimate(_finite(float(value)), np.where(np.isfinite(drawn), drawn, np.nan), n, groups, unit)


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """Their mean, every one with the same weight. Raises ValueError for none."""
    if not estimates:
        raise ValueError("there is nothing to take the mean of")
    mean = combined(lambda *values: sum(values) / len(values), *estimates)
    return replace(mean, n=sum(e.n for e in estimates))


def resampled(
    cells: Mapping[K, Sequence[Scored]],
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
    items = {key: {s.id: s for s in scored} for key, scored in cells.items()}
    sums = np.stack(
        [column for found in items.values() for column in _sums([found[i] for i in common], places, len(order))], axis=1
    )
    drawn = _drawn(sums, np.random.default_rng(int(hash_json([seed, list(order)]), 16)), resamples)
    if units.count == 1:
        drawn = np.full_like(drawn, np.nan)  # one group says nothing about the spread
    total = sums.sum(axis=0)
    return {
        key: _estimate(total[2 * i : 2 * i + 2], drawn[:, 2 * i : 2 * i + 2], len(common), units) for i, key in enumerate(items)
    }


def common_units(cells: Mapping[K, Sequence[Scored]], unit: str) -> tuple[list[str], Units]:
    """The ids of the items that all cells have, and what is drawn of them (`bootstrap.choose_units`).

    unit: what `Scored.group` is, the next larger unit than the item.
    Raises ValueError when the cells have no item in common, or an item is in other groups or of another voice elsewhere.
    """
    items = [{s.id: s for s in scored} for scored in cells.values()]
    common = [s for s in (items[0] if items else {}).values() if all(s.id in found for found in items)]
    if not common:
        raise ValueError("the cells have no items in common")
    for s in common:
        for name in ("group", "voice"):
            if len(several := sorted({getattr(found[s.id], name) for found in items})) > 1:
                raise ValueError(f"the item {s.id} is in the {name}s {', '.join(map(repr, several))}")
    return [s.id for s in common], choose_units([s.voice for s in common], [s.group for s in common], unit)


def drawn_together(units: Mapping[K, Units]) -> dict[K, set[str]]:
    """The groups that every key's are to be drawn with: those of all keys that share one of them, directly or through others.

    Tasks that share a voice are paired by this: where it is drawn twice in a resample, it is so in all of them.
    """
    found: list[tuple[set[K], set[str]]] = []
    for key, some in units.items():
        mine: tuple[set[K], set[str]] = ({key}, {f"{some.name} {label}" for label in some.labels})
        apart = []
        for keys, labels in found:
            if labels & mine[1]:
                mine = (mine[0] | keys, mine[1] | labels)
            else:
                apart.append((keys, labels))
        found = [*apart, mine]
    return {key: {label.partition(" ")[2] for label in labels} for keys, labels in found for key in keys}


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of a family of tests, adjusted so that any error at all in it has the stated probability (Holm, 1979)."""
    order = np.argsort(p_values, kind="stable")
    adjusted, most = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        most = max(most, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = most
    return adjusted


def _sums(scored: Sequence[Scored], places: np.ndarray, groups: int) -> list[np.ndarray]:
    """(G,) numerators and (G,) denominators. places: (S,) the group of every item."""
    columns = ([s.numerator for s in scored], [s.denominator for s in scored])
    return [np.bincount(places, weights=column, minlength=groups) for column in columns]


def _drawn(sums: np.ndarray, generator: np.random.Generator, resamples: int) -> np.ndarray:
    """(R, C) sums over G groups drawn with replacement. sums: (G, C)."""
    groups, blocks = len(sums), []
    block = max(1, _BLOCK // groups)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        chosen = generator.integers(0, groups, (rows, groups)) + groups * np.arange(rows)[:, None]
        counts = np.bincount(chosen.ravel(), minlength=rows * groups).reshape(rows, groups)
        blocks.append(counts.astype(np.float64) @ sums)
    return np.concatenate(blocks)


def _estimate(total: np.ndarray, drawn: np.ndarray, n: int, units: Units) -> Estimate:
    if not total[1] > 0:
        raise ValueError("the denominators of a score are all 0")
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.where(drawn[:, 1] > 0, drawn[:, 0] / drawn[:, 1], np.nan)
    return Estimate(float(total[0] / total[1]), rates, n, units.count, units.name)


def _finite(value: float) -> float:
    return value if np.isfinite(value) else float("nan")
