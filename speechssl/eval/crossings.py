"""Find the word error rate at which a cascade falls below a system without a transcript.

Every point is a cascade in one condition: its word error rate, and the difference D of its score
from that of the system without a transcript in the same condition. A curve that never rises is
fitted to D over WER (isotonic regression, straight between points). A crossing is the WER at which
the curve falls below 0; it is given where points were measured within NEAR on both sides. Where the
curve comes to 0 and stays there (no system answers any more) the systems do not cross. Without a
crossing, the points and not the curve decide which system is better.

A family is the points with one source of errors: `noise, NAME` those of one recogniser in several
conditions, `simulated` those of the reference text and of simulated errors, `recognisers` those of
several recognisers in clean speech, `all` all of these. The interval contains the crossings of 95 %
of the resamples. A resample without a crossing counts as one that crosses beyond the range of the
points; an end of the interval that falls on such a resample is None.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from speechssl.eval.compare import CLEAN, WER, Comparison, ConditionAtSnr, is_reference
from speechssl.stats import Estimate, combine_estimates

DRAWS = 2000  # number of resamples that the curve is fitted to
NEAR = 0.15  # largest distance in WER of the nearest points on both sides of a crossing


@dataclass(frozen=True)
class Point:
    """A point is a cascade beside the system without a transcript in the same condition."""

    system: str  # name of the cascade
    condition: ConditionAtSnr
    wer: Estimate  # of the cascade
    cascade: Estimate  # score of the cascade
    textless: Estimate  # score of the system without a transcript

    @property
    def difference(self) -> float:
        """Return D, by how much the cascade is better."""
        return self.cascade.value - self.textless.value


@dataclass(frozen=True)
class Crossing:
    """A crossing says where the cascades of a family fall below a system without a transcript, if
    they do. WERs are fractions."""

    textless: str  # name of the system without a transcript
    family: str
    points: tuple[Point, ...]  # in the order of their WER
    at: float | None  # WER; None where no points are near, or the systems do not cross
    # ends of the interval; None beyond the range of the points, and where `at` is None
    low: float | None
    high: float | None
    # share of the resamples that cross; None, with low and high equal to at, where too few voices
    # or passages are drawn
    share: float | None
    # WER of the points next to the zero of the curve on both sides; None without a zero
    between: tuple[float, float] | None

    @property
    def low_wer(self) -> float:
        """Return the least WER of the points."""
        return self.points[0].wer.value

    @property
    def high_wer(self) -> float:
        """Return the greatest WER of the points."""
        return self.points[-1].wer.value


def find_crossings(c: Comparison) -> list[Crossing]:
    """Find the crossings of every system without a transcript with every family that has two
    different word error rates or more."""
    crossings = []
    for textless in c.textless:
        for family, points in group_points(c, textless).items():
            if points[0].wer.value < points[-1].wer.value:
                crossings.append(_find_crossing(textless, family, points))
    return crossings


def _find_crossing(textless: str, family: str, points: list[Point]) -> Crossing:
    """Find the crossing of a family, and its interval."""
    wer = np.array([p.wer.value for p in points])
    zero = find_zero(wer, np.array([p.difference for p in points]))
    at: float | None = None
    between: tuple[float, float] | None = None
    if np.isfinite(zero):
        between = float(wer[wer <= zero].max()), float(wer[wer >= zero].min())
        farther = max(zero - between[0], between[1] - zero)
        if farther <= NEAR + 1e-9:  # with a margin for rounding
            at = zero
    low, high = at, at
    share: float | None = None
    # (DRAWS, P) of every resample the WER and the difference of all points
    resampled_wers = np.stack([p.wer.widened[:DRAWS] for p in points], axis=1)
    estimates = [combine_estimates(np.subtract, p.cascade, p.textless) for p in points]
    resampled_differences = np.stack([d.widened[:DRAWS] for d in estimates], axis=1)
    usable = np.isfinite(resampled_wers).all(axis=1)
    usable &= np.isfinite(resampled_differences).all(axis=1)
    if usable.any():
        curves = zip(resampled_wers[usable], resampled_differences[usable], strict=True)
        zeros = np.sort([find_zero(x, y) for x, y in curves])
        share = float(np.isfinite(zeros).mean())
        first = int(0.025 * len(zeros))
        last = min(int(np.ceil(0.975 * len(zeros))), len(zeros) - 1)
        low = _make_interval_end(at, zeros[first])
        high = _make_interval_end(at, zeros[last])
    return Crossing(
        textless=textless,
        family=family,
        points=tuple(points),
        at=at,
        low=low,
        high=high,
        share=share,
        between=between,
    )


def _make_interval_end(at: float | None, zero: float) -> float | None:
    """Make an end of the interval from a resampled zero; None without a crossing, and beyond the
    range."""
    return float(zero) if at is not None and np.isfinite(zero) else None


def group_points(c: Comparison, textless: str) -> dict[str, list[Point]]:
    """Group the points beside a system without a transcript by family, sorted by WER; families of
    one point are left out, and so is `all` where there is one family."""
    points = []
    for system in c.systems:
        for condition in c.conditions:
            wer, score = c.find_estimate(system, condition, WER), c.find_estimate(system, condition)
            textless_score = c.find_estimate(textless, condition)
            if wer and score and textless_score:
                points.append(Point(system, condition, wer, score, textless_score))
    points.sort(key=lambda p: p.wer.value)
    clean = [p for p in points if p.condition == CLEAN]
    families = {}
    for name in c.cascades:
        families[f"noise, {name}"] = [p for p in points if p.system == name]
    families["simulated"] = [p for p in points if is_reference(p.system)]
    families["recognisers"] = [p for p in clean if p.system in c.cascades]
    families = {name: members for name, members in families.items() if len(members) > 1}
    if len(families) > 1:
        families["all"] = points
    return families


def find_zero(wer: np.ndarray, difference: np.ndarray) -> float:
    """Find the WER at which the curve through the points falls below 0. wer, difference: (P,).

    It is -inf where the curve is below 0 from the first point on, and inf where it never is.
    """
    order = np.argsort(wer, kind="stable")
    x, y = wer[order], fit_falling(difference[order])
    if y[0] <= 0 or y[-1] >= 0:
        return -np.inf if y[-1] < 0 else np.inf
    zeros = np.flatnonzero(y == 0)
    if len(zeros):  # the middle of the part of the curve that is 0
        return float(x[zeros[0]] + x[zeros[-1]]) / 2
    # the straight line from the last point above 0 to the first below it
    below = int(np.argmax(y < 0))
    a, b = y[below - 1], y[below]
    return float(x[below - 1] + (x[below] - x[below - 1]) * a / (a - b))


def fit_falling(values: np.ndarray) -> np.ndarray:
    """Fit values that never rise by least squares (isotonic regression). values: (P,)."""
    from sklearn.isotonic import isotonic_regression  # slow to import

    fitted: np.ndarray = isotonic_regression(values, increasing=False)
    return fitted


# ---- texts


FAMILIES = {  # names of families in texts; `noise, NAME` stands there as it is
    "simulated": "simulated errors",
    "recognisers": "recognisers, clean",
    "all": "all of these",
}


def describe_crossing(x: Crossing) -> str:
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
