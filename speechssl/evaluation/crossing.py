"""Where a cascade falls below a system without a transcript as its recogniser errs more.

Every point is one system in one condition: its word error rate, and the difference D of its score and that of the system without a
transcript in the same condition. A curve that never rises is fitted to D over WER (isotonic regression, straight between points);
the lines cross where it reaches 0. Points that a family has in common come from one source of errors:

    noise          one recogniser in several conditions
    simulated      the reference text, and simulated errors
    recognisers    several recognisers in clean speech
    all            all of them

Where the difference comes to 0 and stays there (nobody answers any more) the lines do not cross. The interval holds 95 % of what
resamples give (voices or passages, drawn for scores and WER together). A resample in which the lines do not cross counts as
crossing beyond that end of the range; an end of the interval that lies there is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from speechssl.evaluation.comparison import CLEAN, WER, Compared, Where, reads_reference
from speechssl.evaluation.resampling import Estimate

DRAWS = 2000  # resamples that the curve is fitted to


@dataclass(frozen=True)
class Point:
    """A cascade, and the system without a transcript in the same condition."""

    system: str
    condition: Where
    wer: Estimate
    cascade: Estimate
    textless: Estimate


@dataclass(frozen=True)
class Crossing:
    """at, low, high: WER, a fraction; None: beyond what was measured. low_wer, high_wer: the range.

    share: of resamples that cross; None where there are none (one voice or passage), and low and high are then at.
    ahead: "cascade" or "textless" where the other is nowhere ahead, "neither" where they are equal throughout, "" where they cross.
    """

    textless: str
    family: str
    points: tuple[Point, ...]
    at: float | None
    low: float | None
    high: float | None
    share: float | None
    ahead: str

    @property
    def low_wer(self) -> float:
        return min(p.wer.value for p in self.points)

    @property
    def high_wer(self) -> float:
        return max(p.wer.value for p in self.points)


def crossings(c: Compared) -> list[Crossing]:
    """Of every system without a transcript and every family of at least two points."""
    return [
        _cross(textless, family, points)
        for textless in c.textless
        for family, points in families(c, textless).items()
        if len({p.wer.value for p in points}) > 1
    ]


def families(c: Compared, textless: str) -> dict[str, list[Point]]:
    """Points by family, from the lowest word error rate to the highest."""
    points = [p for system in c.systems for where in c.conditions if (p := _point(c, textless, system, where))]
    found = {f"noise, {name}": [p for p in points if p.system == name] for name in c.recognisers}
    found["simulated"] = [p for p in points if reads_reference(p.system)]
    found["recognisers"] = [p for p in points if p.system in c.recognisers and p.condition == CLEAN]
    several = [name for name, some in found.items() if len(some) > 1]
    if len(several) > 1:
        found["all"] = points
    return {name: sorted(found[name], key=lambda p: p.wer.value) for name in found if name in several or name == "all"}


def _point(c: Compared, textless: str, system: str, where: Where) -> Point | None:
    wer, cascade, other = c.get(system, where, WER), c.get(system, where), c.get(textless, where)
    return Point(system, where, wer, cascade, other) if wer and cascade and other else None


def _cross(textless: str, family: str, points: Sequence[Point]) -> Crossing:
    wer, difference = (
        np.array(column) for column in zip(*((p.wer.value, p.cascade.value - p.textless.value) for p in points), strict=True)
    )
    at, ahead = zero(wer, difference)
    wers = np.stack([p.wer.drawn[:DRAWS] for p in points], axis=1)
    differences = np.stack([(p.cascade.drawn - p.textless.drawn)[:DRAWS] for p in points], axis=1)
    usable = np.isfinite(wers).all(axis=1) & np.isfinite(differences).all(axis=1)
    drawn = [zero(x, y) for x, y in zip(wers[usable], differences[usable], strict=True)]
    low, high = _interval(drawn) if drawn else (at, at)
    share = sum(not side for _, side in drawn) / len(drawn) if drawn else None
    return Crossing(textless, family, tuple(points), at, low, high, share, ahead)


def zero(wer: np.ndarray, difference: np.ndarray) -> tuple[float | None, str]:
    """Where the curve through the points comes from above 0 to below, and who is ahead where it does not. wer, difference: (P,)."""
    order = np.argsort(wer, kind="stable")
    x, y = wer[order], falling(difference[order])
    if y[0] <= 0 or y[-1] >= 0:
        return None, "textless" if y[-1] < 0 else "cascade" if y[0] > 0 else "neither"
    level = np.flatnonzero(y == 0)
    if len(level):  # along a level stretch: its middle
        return float(x[level[0]] + x[level[-1]]) / 2, ""
    after = int(np.argmax(y < 0))
    a, b = y[after - 1], y[after]
    return float(x[after - 1] + (x[after] - x[after - 1]) * a / (a - b)), ""


def falling(values: np.ndarray) -> np.ndarray:
    """The nearest values that never rise, by least squares (isotonic regression). values: (P,)."""
    from sklearn.isotonic import isotonic_regression  # slow to import

    fitted: np.ndarray = isotonic_regression(values, increasing=False)
    return fitted


def _interval(drawn: Sequence[tuple[float | None, str]]) -> tuple[float | None, float | None]:
    """Ends of the middle 95 %, None where they lie beyond the range."""
    beyond = {"textless": -np.inf, "cascade": np.inf, "neither": np.inf}
    places = np.sort([beyond[side] if at is None else at for at, side in drawn])
    ends = (places[int(0.025 * len(places))], places[min(int(np.ceil(0.975 * len(places))), len(places)) - 1])
    low, high = (float(end) if np.isfinite(end) else None for end in ends)
    return low, high
