"""Speaker verification (ASV): does one person speak in both of two recordings? By the cosine of their x-vectors.

Heads are trained to tell the speakers of the training data apart, on a random stretch of 8 s of a recording, and judged on speakers
that they never met (VoxCeleb1, s3prl `downstream/sv_voxceleb1`). s3prl looks at no dev data: it judges every checkpoint on the test
trials and keeps the best; here the one that is best on the trials of dev is judged on those of test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.stats import norm
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, relu

from speechssl.data.utterances import Trial, UtteranceSet, load_trials
from speechssl.data.voices import recording_units
from speechssl.errors import InputError
from speechssl.stats import Interval, percentiles
from speechssl.superb.data import random_stretches
from speechssl.superb.task import Batch, Featurizer, Judgement, Measure, Settings
from speechssl.timing import FrameGrid

# Same person or not: the errors of scored trials at every threshold, the equal error rate and the least detection cost.
#
# A trial is accepted where its score is at least the threshold. Trials of one person that are refused are misses, trials of two
# that
# are accepted are false alarms. A score of -inf is refused and one of inf accepted at any finite threshold: the first is what a
# trial
# of one person gets, the second what a trial of two gets, where nothing is known of it, so that it is decided wrongly everywhere.
# Letters: N trials, P points of a curve, G groups, R resamples.

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


# The head of SUPERB's speaker verification: x-vectors (Snyder et al. 2018), trained by additive-margin softmax (Wang et al. 2018).
#
# As s3prl's `downstream/sv_voxceleb1/model.py` (XVector, SP, UtteranceExtractor, AMSoftmaxLoss) with the settings of its
# `configs/amsoftmax.yaml`, but for three things. Its pooling takes one frame of padding in where a batch mate is longer; here
# none is
# ever seen. Its standard deviation of a single frame is NaN and recordings within the context of the TDNN make it fail; here a
# recording of fewer than LEAST frames is repeated until it has so many. Its softmax overflows for large s; here it does not.
# Letters: B batch, S hidden states, T frames, D width, P projection, E embedding (as wide as the projection), C speakers.

CONTEXTS = ((5, 1), (3, 2), (3, 3), (1, 1), (1, 1))  # of every layer: frames that it sees, how far apart
CONTEXT = sum((frames - 1) * apart for frames, apart in CONTEXTS)  # 14 frames fewer come out than go in
LEAST = CONTEXT + 2  # a standard deviation needs two


@dataclass(frozen=True)
class XVectorShape:
    """Sizes of a head."""

    states: int  # S
    width: int  # D
    speakers: int  # C, of the training data
    projection: int = 512
    last: int = 1500  # width of the last layer of the TDNN


@dataclass(frozen=True)
class Margin:
    """Of the softmax."""

    scale: float = 30.0  # s
    margin: float = 0.4  # m: how much less the cosine with the right speaker is made


class XVector(nn.Module):
    """Weighted sum, projection, five layers over time, mean and standard deviation over time, and two layers."""

    def __init__(self, shape: XVectorShape, margin: Margin = Margin()) -> None:
        super().__init__()
        self.shape, self.margin = shape, margin
        self.featurizer = Featurizer(shape.states)
        self.projection = nn.Linear(shape.width, shape.projection)
        outputs = [shape.projection] * (len(CONTEXTS) - 1) + [shape.last]
        self.layers = nn.ModuleList(
            nn.Conv1d(shape.projection, output, frames, dilation=apart)
            for output, (frames, apart) in zip(outputs, CONTEXTS, strict=True)
        )
        self.embedding = nn.Linear(2 * shape.last, shape.projection)
        self.second = nn.Linear(shape.projection, shape.projection)
        self.speakers = nn.Parameter(nn.init.xavier_normal_(torch.empty(shape.projection, shape.speakers)))

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """(B, E) embeddings, which are compared by their cosine. states: (B, S, T, D); lengths: (B,) real frames, at least 1."""
        frames, lengths = repeated(self.projection(self.featurizer(states)), lengths.to(states.device), LEAST)
        hidden = frames.transpose(1, 2)
        for layer in self.layers:
            hidden = relu(layer(hidden))
        return relu(self.embedding(statistics(hidden, lengths - CONTEXT)))

    def loss(self, embeddings: Tensor, speakers: Tensor) -> Tensor:
        """Mean of -log of the softmax over s cos(speaker), the right one's cosine less m, in nats. speakers: (B,) numbers."""
        cosines = normalize(relu(self.second(embeddings)), dim=1) @ normalize(self.speakers, dim=0)
        right = nn.functional.one_hot(speakers, self.shape.speakers)
        return cross_entropy(self.margin.scale * (cosines - self.margin.margin * right), speakers)


def repeated(frames: Tensor, lengths: Tensor, least: int) -> tuple[Tensor, Tensor]:
    """(B, T, P) with their (B,) lengths; those shorter than `least` are repeated from their beginning until they are so long."""
    if not (lengths < least).any():
        return frames, lengths
    times = torch.arange(max(frames.shape[1], least), device=frames.device)
    around = torch.where(lengths[:, None] < least, times % lengths[:, None], times.clamp(max=frames.shape[1] - 1))
    return frames.gather(1, around[..., None].expand(-1, -1, frames.shape[2])), lengths.clamp(min=least)


def statistics(frames: Tensor, lengths: Tensor) -> Tensor:
    """(B, P, T) -> (B, 2P): means and standard deviations (over T - 1) of the real frames. lengths: (B,), at least 2."""
    real = (torch.arange(frames.shape[2], device=frames.device) < lengths[:, None])[:, None]
    frames = frames.masked_fill(~real, 0)
    mean = frames.sum(2) / lengths[:, None]
    squares = (frames - mean[..., None]).square().masked_fill(~real, 0).sum(2)
    return torch.cat([mean, (squares / (lengths[:, None] - 1)).clamp(min=1e-12).sqrt()], 1)  # the root of 0 has no gradient


PUBLISHED = Settings(learning_rate=1e-4, steps=200_000, batch=50, every=10_000, optimiser="AdamW", clip=1e3)


@dataclass(frozen=True)
class Verification:
    """The task `asv`. Raises InputError for training data without two speakers, or a split without trials of both kinds."""

    data: UtteranceSet
    grid: FrameGrid
    projection: int = 512  # its width is that of an embedding too
    last: int = 1500  # width of the last layer of the TDNN
    scale: float = 30.0  # s of the softmax
    margin: float = 0.4  # m
    stretch: float = 8.0  # seconds of a recording that training hears at a time

    name = "asv"
    pooled = False
    wants_waves = False

    def __post_init__(self) -> None:
        _ = self._speakers, self._trials  # what is wrong with them is told now rather than after hours

    @cached_property
    def _speakers(self) -> dict[str, int]:
        """Number of every speaker of the training data."""
        path, train = self.data.root / "train.jsonl", self.data.splits["train"]
        if nameless := [u.id for u in train if not u.speaker]:
            raise InputError(f"{path}, utterance {nameless[0]}, has no speaker; say in every line who speaks")
        names = sorted({u.speaker for u in train})
        if len(names) < 2:
            raise InputError(f"{path} has one speaker only ({names[0]}); add recordings of others")
        return {name: i for i, name in enumerate(names)}

    @cached_property
    def _trials(self) -> dict[str, tuple[Trial, ...]]:
        return {split: load_trials(self.data, split) for split in ("dev", "test")}

    def build(self, states: int, width: int) -> XVector:
        """A new head for S states of width D."""
        shape = XVectorShape(states, width, len(self._speakers), self.projection, self.last)
        return XVector(shape, Margin(self.scale, self.margin))

    def loss(self, head: Any, batch: Batch) -> Tensor:
        """Of a random stretch of every recording, in nats. Raises KeyError for a speaker who is not in the training data."""
        batch, _ = random_stretches(batch, max(1, self.grid.frames(self.grid.sample(self.stretch))))
        speakers = torch.tensor([self._speakers[u.speaker] for u in batch.utterances], device=batch.states.device)
        return head.loss(head(batch.states, batch.lengths), speakers)

    @torch.no_grad()
    def predict(self, head: Any, batch: Batch) -> list[np.ndarray]:
        """The embedding of every recording, (E,) float32."""
        return list(head(batch.states, batch.lengths).cpu().numpy())

    def judge(self, split: str, predicted: Mapping[str, Any], resamples: int) -> Judgement:
        """predicted: embeddings. A trial of which a recording could not be heard is wrong at any threshold."""
        trials = self._trials[split]
        scores, same = scored(trials, predicted), np.array([t.same for t in trials])
        units = recording_units(self.data, self.data.splits[split])
        group = dict(zip([u.id for u in self.data.splits[split]], units.labels, strict=True))
        first, second = ([group[name] for name in names] for names in _sides(trials))
        eer, cost = ScoredTrials(scores, same, first, second).intervals(resamples)
        about = (units.name, len({*first, *second})) if resamples else ("", 0)
        measures = tuple(
            Measure.of(name, replace(found, drawn=about[0], groups=about[1]))
            for name, found in (("eer", eer.percent), ("min_dcf", cost))
        )
        curve = ErrorCurve.of_scores(scores, same).thinned()
        return Judgement(measures, {"det": {"false_alarms": curve.false_alarms.tolist(), "misses": curve.misses.tolist()}})


def scored(trials: Sequence[Trial], embeddings: Mapping[str, np.ndarray]) -> np.ndarray:
    """(N,) cosines. -inf for trials of one person and inf for trials of two that have none: they are always wrong.

    They have none where an embedding is missing or no number.
    """
    row = {name: i for i, name in enumerate(embeddings)}
    missing = np.full_like(next(iter(embeddings.values()), np.zeros(1)), np.nan)
    matrix = np.array([*embeddings.values(), missing], np.float32)
    with np.errstate(invalid="ignore"):
        unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True).clip(min=1e-8)
        cosines = np.einsum("nd,nd->n", *(unit[[row.get(name, -1) for name in names]] for names in _sides(trials)))
    wrong = np.where([t.same for t in trials], -np.inf, np.inf)
    return np.where(np.isfinite(cosines), cosines, wrong)


def _sides(trials: Sequence[Trial]) -> tuple[list[str], list[str]]:
    return [t.first for t in trials], [t.second for t in trials]
