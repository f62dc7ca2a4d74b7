"""Find the word error rate at which a cascade falls below a system without a transcript.

Every point is a cascade in one condition: its word error rate, and the difference D of its score
from that of the system without a transcript in the same condition. A curve that never rises is
fitted to D over WER (isotonic regression, straight between points). The systems cross where the
curve falls below 0; the crossing is given where points were measured within NEAR on both sides.
Where the curve comes to 0 and stays there (no system answers any more) they do not cross. Without a
crossing, the points and not the curve decide which system is better.

The points of a family have one source of errors: `noise` one recogniser in several conditions,
`simulated` the reference text and simulated errors, `recognisers` several recognisers in clean
speech, `all` all of them. The interval contains 95 % of the resamples. A resample without a
crossing counts as crossing beyond the low or high end of the range, and an end of the interval
there is None.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from speechssl.eval.compare import CLEAN, WER, Compared, ConditionAtSnr, reads_reference
from speechssl.stats import Estimate, combine_estimates

DRAWS = 2000  # number of resamples that the curve is fitted to
NEAR = 0.15  # largest distance in WER of the nearest points on both sides of a crossing


@dataclass(frozen=True)
class Point:
    """A point is a cascade, and the system without a transcript in the same condition."""

    system: str
    condition: ConditionAtSnr
    wer: Estimate
    cascade: Estimate
    textless: Estimate

    @property
    def difference(self) -> float:
        return self.cascade.value - self.textless.value


@dataclass(frozen=True)
class Crossing:
    """At a crossing the cascades of a family fall below a system without a transcript."""

    textless: str
    family: str
    points: tuple[Point, ...]  # in the order of their WER
    at: float | None  # WER as a fraction; None where no points are near, or there is no crossing
    # ends of the interval; None beyond the range of the points, and where `at` is None
    low: float | None
    high: float | None
    # of the resamples, those that cross; None, with low and high equal to at, where too few voices
    # or passages are drawn
    share: float | None
    # WER of the points next to the zero of the curve on both sides; None without a zero
    between: tuple[float, float] | None

    @property
    def low_wer(self) -> float:
        return self.points[0].wer.value

    @property
    def high_wer(self) -> float:
        return self.points[-1].wer.value


def crossings(c: Compared) -> list[Crossing]:
    """Find the crossings of every system without a transcript with every family that has two word
    error rates or more."""
    crossings_found = []
    for textless in c.textless:
        for family, points in families(c, textless).items():
            if points[0].wer.value < points[-1].wer.value:
                crossings_found.append(_find_crossing(textless, family, points))
    return crossings_found


def _find_crossing(textless: str, family: str, points: list[Point]) -> Crossing:
    """Find the crossing of a family, and its interval."""
    wer = np.array([p.wer.value for p in points])
    zero = find_zero(wer, np.array([p.difference for p in points]))
    at, between = None, None
    if np.isfinite(zero):
        between = float(wer[wer <= zero].max()), float(wer[wer >= zero].min())
        if max(zero - between[0], between[1] - zero) <= NEAR + 1e-9:
            at = zero
    low, high, share = at, at, None
    wers = np.stack([p.wer.widened[:DRAWS] for p in points], axis=1)
    estimates = [combine_estimates(np.subtract, p.cascade, p.textless) for p in points]
    differences = np.stack([d.widened[:DRAWS] for d in estimates], axis=1)
    usable = np.isfinite(wers).all(axis=1) & np.isfinite(differences).all(axis=1)
    if usable.any():
        pairs = zip(wers[usable], differences[usable], strict=True)
        zeros = np.sort([find_zero(x, y) for x, y in pairs])
        share = float(np.isfinite(zeros).mean())
        first = int(0.025 * len(zeros))
        last = min(int(np.ceil(0.975 * len(zeros))), len(zeros) - 1)
        low = _interval_end(at, zeros[first])
        high = _interval_end(at, zeros[last])
    return Crossing(textless, family, tuple(points), at, low, high, share, between)


def _interval_end(at: float | None, zero: float) -> float | None:
    """Return an end of the interval; None without a crossing, and beyond the range."""
    return float(zero) if at is not None and np.isfinite(zero) else None


def families(c: Compared, textless: str) -> dict[str, list[Point]]:
    """List the points of every family beside a system without a transcript, sorted by WER."""
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

    It is -inf where the curve is below 0 from the first point on, and inf where it never is.
    """
    order = np.argsort(wer, kind="stable")
    x, y = wer[order], fit_falling(difference[order])
    if y[0] <= 0 or y[-1] >= 0:
        return -np.inf if y[-1] < 0 else np.inf
    level = np.flatnonzero(y == 0)
    if len(level):  # the middle of a level part
        return float(x[level[0]] + x[level[-1]]) / 2
    after = int(np.argmax(y < 0))
    a, b = y[after - 1], y[after]
    return float(x[after - 1] + (x[after] - x[after - 1]) * a / (a - b))


def fit_falling(values: np.ndarray) -> np.ndarray:
    """Fit values that never rise by least squares (isotonic regression). values: (P,)."""
    from sklearn.isotonic import isotonic_regression  # slow to import

    fitted: np.ndarray = isotonic_regression(values, increasing=False)
    return fitted


# ---- texts


FAMILIES = {  # names in texts; that of a recogniser in noise is its own
    "simulated": "simulated errors",
    "recognisers": "recognisers, clean",
    "all": "all of these",
}


def crossing_text(x: Crossing) -> str:
    """Describe where the systems cross, or which is better at which points, and in how many
    resamples they cross."""
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
    better = []
    for name, sign in (("the cascade", 1), (x.textless, -1)):
        points = [f"{100 * p.wer.value:.1f}" for p in x.points if p.difference * sign > 0]
        where = "everywhere" if len(points) == len(x.points) else f"at {', '.join(points)} %"
        if points:
            better.append(f"{name} is ahead {where}")
    comparison = ", ".join(better) or "they are equal"
    return f"they do not cross in the range measured: {comparison}{share}"
