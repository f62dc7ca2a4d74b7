"""Find the word error rate at which a cascade falls below a system without a transcript.

Every point is one system in one condition, its word error rate and the difference D of its score
and that of the system without a transcript in the same condition. A curve that never rises is
fitted to D over WER (isotonic regression, straight between points); the lines cross where it
reaches 0, which is given where points were measured within NEAR on both sides. Where it comes to 0
and stays there (nobody answers any more) they do not. Who is ahead without a crossing is told from
the points, not from the curve.

The points of a family have one source of errors: `noise` one recogniser in several conditions,
`simulated` the reference text and simulated errors, `recognisers` several in clean speech, `all`
all of them. The interval holds 95 % of the resamples; one in which the lines do not cross counts as
crossing beyond that end of the range, and an end of the interval that lies there is None.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from speechssl.eval.compare import CLEAN, WER, Compared, Where, reads_reference
from speechssl.stats import Estimate, combine_estimates

DRAWS = 2000  # resamples that the curve is fitted to
NEAR = 0.15  # WER, on either side of a crossing, within which something was measured


@dataclass(frozen=True)
class Point:
    """A point is a cascade, and the system without a transcript in the same condition."""

    system: str
    condition: Where
    wer: Estimate
    cascade: Estimate
    textless: Estimate

    @property
    def difference(self) -> float:
        return self.cascade.value - self.textless.value


@dataclass(frozen=True)
class Crossing:
    """At a crossing a cascade falls below a system without a transcript. points: by their WER; at,
    low, high: WER, a fraction; None: beyond what was measured, or not near it.

    between: the WER of the points that are nearest to the zero of the curve, left and right; None
    where it has none.
    share: of resamples that cross; None where too few voices or passages are drawn, and low and
    high are then at.
    """

    textless: str
    family: str
    points: tuple[Point, ...]
    at: float | None
    low: float | None
    high: float | None
    share: float | None
    between: tuple[float, float] | None

    @property
    def low_wer(self) -> float:
        return self.points[0].wer.value

    @property
    def high_wer(self) -> float:
        return self.points[-1].wer.value


def crossings(c: Compared) -> list[Crossing]:
    """Find the crossings of every system without a transcript and every family of points of two
    word error rates and more."""
    found = []
    for textless in c.textless:
        for family, points in families(c, textless).items():
            if points[0].wer.value < points[-1].wer.value:
                found.append(_find_crossing(textless, family, points))
    return found


def _find_crossing(textless: str, family: str, points: list[Point]) -> Crossing:
    wer = np.array([p.wer.value for p in points])
    zero = find_zero(wer, np.array([p.difference for p in points]))
    at, between = None, None
    if np.isfinite(zero):
        between = float(wer[wer <= zero].max()), float(wer[wer >= zero].min())
        if max(zero - between[0], between[1] - zero) <= NEAR + 1e-9:
            at = zero
    low, high, share = at, at, None
    wers = np.stack([p.wer.widened[:DRAWS] for p in points], axis=1)
    apart = [combine_estimates(np.subtract, p.cascade, p.textless) for p in points]
    differences = np.stack([d.widened[:DRAWS] for d in apart], axis=1)
    usable = np.isfinite(wers).all(axis=1) & np.isfinite(differences).all(axis=1)
    if usable.any():
        pairs = zip(wers[usable], differences[usable], strict=True)
        zeros = np.sort([find_zero(x, y) for x, y in pairs])
        share = float(np.isfinite(zeros).mean())
        last = len(zeros) - 1
        ends = zeros[int(0.025 * len(zeros))], zeros[min(int(np.ceil(0.975 * len(zeros))), last)]
        low, high = (float(x) if at is not None and np.isfinite(x) else None for x in ends)
    return Crossing(textless, family, tuple(points), at, low, high, share, between)


def families(c: Compared, textless: str) -> dict[str, list[Point]]:
    """Sort the points that a system without a transcript is compared at, by their WER."""
    points = []
    for system in c.systems:
        for where in c.conditions:
            wer, cascade = c.get(system, where, WER), c.get(system, where)
            other = c.get(textless, where)
            if wer and cascade and other:
                points.append(Point(system, where, wer, cascade, other))
    points.sort(key=lambda p: p.wer.value)
    by_name = {f"noise, {name}": [p for p in points if p.system == name] for name in c.recognisers}
    by_name["simulated"] = [p for p in points if reads_reference(p.system)]
    by_name["recognisers"] = [
        p for p in points if p.system in c.recognisers and p.condition == CLEAN
    ]
    several = {name: members for name, members in by_name.items() if len(members) > 1}
    return several | {"all": points} if len(several) > 1 else several


def find_zero(wer: np.ndarray, difference: np.ndarray) -> float:
    """Find the WER at which the curve through the points falls below 0. wer, difference: (P,).

    Where it is below 0 from the first point on, that is -inf; where it never falls below 0, inf.
    """
    order = np.argsort(wer, kind="stable")
    x, y = wer[order], fit_falling(difference[order])
    if y[0] <= 0 or y[-1] >= 0:
        return -np.inf if y[-1] < 0 else np.inf
    level = np.flatnonzero(y == 0)
    if len(level):  # along a level stretch: its middle
        return float(x[level[0]] + x[level[-1]]) / 2
    after = int(np.argmax(y < 0))
    a, b = y[after - 1], y[after]
    return float(x[after - 1] + (x[after] - x[after - 1]) * a / (a - b))


def fit_falling(values: np.ndarray) -> np.ndarray:
    """Return the nearest values that never rise, by least squares (isotonic regression). values:
    (P,)."""
    from sklearn.isotonic import isotonic_regression  # slow to import

    fitted: np.ndarray = isotonic_regression(values, increasing=False)
    return fitted


# ---- in words


def family_name(family: str) -> str:
    """Name what the word error rate is varied by."""
    names = {
        "simulated": "simulated errors",
        "recognisers": "recognisers, clean",
        "all": "all of these",
    }
    return names.get(family, family)


def crossing_text(x: Crossing) -> str:
    """Say where they cross, or who is ahead at which points, and in how many resamples they do."""
    share = "" if x.share is None else f"; {100 * x.share:.0f} % of the resamples cross"
    if x.at is not None:
        low = "below the range" if x.low is None else f"{100 * x.low:.1f}"
        high = "above the range" if x.high is None else f"{100 * x.high:.1f}"
        return f"{100 * x.at:.1f} %{f' [{low}, {high}]' if share else ''}{share}"
    if x.between:
        left, right = (f"{100 * wer:.1f}" for wer in x.between)
        return (
            f"they cross where nothing was measured nearby: the nearest points have {left} and "
            f"{right} %{share}"
        )
    ahead = []
    for name, sign in (("the cascade", 1), (x.textless, -1)):
        points = [f"{100 * p.wer.value:.1f}" for p in x.points if p.difference * sign > 0]
        where = "everywhere" if len(points) == len(x.points) else f"at {', '.join(points)} %"
        if points:
            ahead.append(f"{name} is ahead {where}")
    return f"they do not cross in the range measured: {', '.join(ahead) or 'they are equal'}{share}"
