"""Same person or not: the errors of scored trials at every threshold, the equal error rate and the least detection cost.

A trial is accepted where its score is at least the threshold. Trials of one person that are refused are misses, trials of two that
are accepted are false alarms. A score of -inf is refused and one of inf accepted at any finite threshold: the first is what a trial
of one person gets, the second what a trial of two gets, where nothing is known of it, so that it is decided wrongly everywhere.
Letters: N trials, P points of a curve, G groups, R resamples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from speechssl.bootstrap import Interval, percentiles

DET_POINTS = 200
_BLOCK = 1 << 21  # resampled trials held at a time: 16 MB an array


@dataclass(frozen=True)
class ErrorCurve:
    """From a threshold that refuses all trials to one that accepts all. Both (..., P), one curve or several of as many points."""

    false_alarms: np.ndarray  # share of the trials of two persons that are accepted: rises from 0 to 1
    misses: np.ndarray  # share of the trials of one person that are refused: falls from 1 to 0

    @classmethod
    def of_scores(cls, scores: ArrayLike, same: ArrayLike, weights: ArrayLike | None = None) -> ErrorCurve:
        """scores: (N,), more is liker. same: (N,) whether one person speaks in both. weights: (..., N) how often a trial counts.

        Every curve needs weight on both kinds of trial. Raises ValueError where there is no trial of a kind, a score is NaN, or
        lengths differ.
        """
        scores, same = np.asarray(scores, np.float64), np.asarray(same, bool)
        if scores.shape != same.shape or scores.ndim != 1 or np.isnan(scores).any():
            raise ValueError(f"scores must be one vector of numbers as long as the {same.size} decisions")
        if same.all() or not same.any():
            raise ValueError("trials of one person and of two are needed")
        order = np.argsort(-scores, kind="stable")
        scores, same = scores[order], same[order]
        weights = np.ones(len(scores)) if weights is None else np.asarray(weights)[..., order]
        ends = np.flatnonzero(np.r_[scores[1:] != scores[:-1], True])  # equal scores are accepted together
        return cls(_accepted(weights * ~same, ends), 1 - _accepted(weights * same, ends))

    @property
    def eer(self) -> Any:
        """The share of errors, in [0, 1], where both kinds are as frequent: between two points, on the line that joins them.

        This is where 1 - FPR crosses the interpolated TPR (s3prl `sv_voxceleb1/utils.py`). A float, or (...) of them.
        """
        more = self.misses - self.false_alarms  # falls from 1 to -1
        crossing = np.argmax(more <= 0, -1)[..., None].clip(min=1)
        above, below = (np.take_along_axis(more, at, -1)[..., 0] for at in (crossing - 1, crossing))
        before, after = (np.take_along_axis(self.false_alarms, at, -1)[..., 0] for at in (crossing - 1, crossing))
        return before + (after - before) * above / (above - below)

    def min_dcf(self, target: float = 0.01, miss: float = 1.0, false_alarm: float = 1.0) -> Any:
        """The least cost of detection at any threshold, over that of deciding without listening (NIST SRE 2016, section 3).

        target: the prior probability of one person. miss, false_alarm: what an error costs. A float, or (...) of them.
        """
        costs = miss * target * self.misses + false_alarm * (1 - target) * self.false_alarms
        return costs.min(-1) / min(miss * target, false_alarm * (1 - target))

    def thinned(self, points: int = DET_POINTS) -> ErrorCurve:
        """At most so many points of a curve, spread evenly as a DET plot (normal deviates on both axes) shows them."""
        if len(self.misses) <= points:
            return self
        along = _deviate(self.false_alarms) - _deviate(self.misses)  # never falls
        chosen = np.unique(np.searchsorted(along, np.linspace(along[0], along[-1], points)))
        return ErrorCurve(self.false_alarms[chosen], self.misses[chosen])


def _accepted(weights: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """(..., P) 0, and the share of the weight up to every end. weights: (..., N)."""
    sums = weights.cumsum(-1)[..., ends]
    shares = sums / sums[..., -1:]
    return np.concatenate([np.zeros_like(shares[..., :1]), shares], -1)


def _deviate(shares: np.ndarray) -> np.ndarray:
    return norm.ppf(shares.clip(1e-5, 1 - 1e-5))


@dataclass(frozen=True)
class ScoredTrials:
    """scores, same: (N,) as `ErrorCurve.of_scores` takes them. first, second: who is to speak in either recording, N each.

    Trials that share a speaker are not independent: speakers are drawn with replacement, and a trial counts as often as both of its
    speakers were drawn together (once for every time, where it is one): the pigeonhole bootstrap (Owen 2007).
    """

    scores: np.ndarray
    same: np.ndarray
    first: Sequence[str]
    second: Sequence[str]

    def intervals(self, resamples: int, seed: int = 0) -> tuple[Interval, Interval]:
        """The equal error rate and the least cost with their 95 % intervals; [value, value] without resamples or with one group."""
        curve = ErrorCurve.of_scores(self.scores, self.same)
        values, drawn = (curve.eer, curve.min_dcf()), np.zeros((0, 2))
        if resamples:
            drawn = np.concatenate(list(self._resampled(resamples, seed)))
        eer, cost = (_interval(value, column, len(self.scores)) for value, column in zip(values, drawn.T, strict=True))
        return eer, cost

    def _resampled(self, resamples: int, seed: int) -> Iterator[np.ndarray]:
        """Blocks of (r, 2): both measures of resamples that have trials of both kinds."""
        order = np.argsort(-self.scores, kind="stable")
        scores, same = self.scores[order], self.same[order]
        index = {name: i for i, name in enumerate(dict.fromkeys([*self.first, *self.second]))}
        first, second = (np.array([index[name] for name in names])[order] for names in (self.first, self.second))
        generator, block = np.random.default_rng(seed), max(1, _BLOCK // len(scores))
        for start in range(0, resamples, block):
            times = generator.multinomial(len(index), np.full(len(index), 1 / len(index)), min(block, resamples - start))
            weights = times[:, first] * np.where(first == second, 1, times[:, second])
            weights = weights[(weights * same).any(1) & (weights * ~same).any(1)]
            curve = ErrorCurve.of_scores(scores, same, weights)
            yield np.stack([curve.eer, curve.min_dcf()], 1)


def _interval(value: float, drawn: np.ndarray, trials: int) -> Interval:
    low, high = percentiles(drawn) if len(drawn) else (value, value)
    return Interval(float(value), low, high, trials, len(drawn) > 0)
