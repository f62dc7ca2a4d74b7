"""Speaker verification (ASV) asks whether one person speaks in both of two recordings, by the
cosine of their x-vectors.

Heads are trained to tell the speakers of the training data apart, on random crops of 8 s, and
tested on other speakers (VoxCeleb1, s3prl `downstream/sv_voxceleb1`). s3prl evaluates on no dev
data: it tests every checkpoint on the test trials and keeps the best; here the head that is best on
the trials of dev is tested on those of test.
The error curve does not come from torchmetrics, whose EER takes the nearest threshold instead of
the interpolated crossing, and no weights; with weights all resamples of the bootstrap are computed
at once.
Letters: B batch, S hidden states, T frames, D width, E embedding, C speakers, N trials, P points of
a curve, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, relu

from speechssl.data.superb import Trial, UtteranceSet, group_recordings, load_trials
from speechssl.encoders.hubert import mask_lengths
from speechssl.errors import InputError
from speechssl.stats import Interval, draw_weights, estimate_ends
from speechssl.superb.data import Batch, Featurizer, HeadEvaluation, Task, crop_randomly
from speechssl.timing import FrameGrid

# number of frames in the window of every TDNN layer, and its dilation
CONTEXTS = ((5, 1), (3, 2), (3, 3), (1, 1), (1, 1))
# frames by which the output of the layers is shorter than their input: 14
CONTEXT = sum((frames - 1) * dilation for frames, dilation in CONTEXTS)
SHORTEST = CONTEXT + 2  # frames; a standard deviation needs two
SCALE, MARGIN = 30.0, 0.4  # s and m of the softmax
DET_POINTS = 200  # largest number of points of a curve in the results
PRIOR = 0.01  # probability that one person speaks in both recordings, in min DCF


class XVector(nn.Module):
    """X-vectors (Snyder et al. 2018) are trained by additive-margin softmax (Wang et al. 2018).

    The head is a weighted sum, a projection, five layers over time (TDNN), mean and standard
    deviation over time, and two layers. Its source is s3prl's `downstream/sv_voxceleb1/model.py`
    (XVector, SP, UtteranceExtractor, AMSoftmaxLoss) with `configs/amsoftmax.yaml`. Three things
    differ. s3prl's pooling includes one padded frame where the batch is longer; here padding is
    never read. s3prl's deviation of a single frame is NaN, and it fails on recordings shorter than
    the context of the TDNN; here a recording of fewer than SHORTEST frames is repeated up to
    SHORTEST. s3prl's softmax overflows for large s; here it does not.
    """

    def __init__(
        self,
        states: int,
        width: int,
        speakers: int,
        projection: int = 512,
        last: int = 1500,
    ) -> None:
        super().__init__()
        self.featurizer = Featurizer(states)
        self.projection = nn.Linear(width, projection)
        outputs = [projection] * (len(CONTEXTS) - 1) + [last]
        self.layers = nn.ModuleList(
            nn.Conv1d(projection, output, frames, dilation=dilation)
            for output, (frames, dilation) in zip(outputs, CONTEXTS, strict=True)
        )
        self.embedding = nn.Linear(2 * last, projection)
        self.second = nn.Linear(projection, projection)
        self.speakers = nn.Parameter(nn.init.xavier_normal_(torch.empty(projection, speakers)))

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Return embeddings (B, E), compared by their cosine. states: (B, S, T, D); lengths: (B,)
        real frames, at least 1."""
        frames = self.projection(self.featurizer(states))
        frames, lengths = repeat_short(frames, lengths.to(states.device))
        hidden = frames.transpose(1, 2)
        for layer in self.layers:
            hidden = relu(layer(hidden))
        return relu(self.embedding(pool_statistics(hidden, lengths - CONTEXT)))

    def loss(self, embeddings: Tensor, speakers: Tensor) -> Tensor:
        """Return the mean cross-entropy, in nats, of logits s cos(speaker), where m is subtracted
        from the cosine of the right speaker. speakers: (B,) numbers."""
        cosines = normalize(relu(self.second(embeddings)), dim=1) @ normalize(self.speakers, dim=0)
        right = nn.functional.one_hot(speakers, self.speakers.shape[1])
        return cross_entropy(SCALE * (cosines - MARGIN * right), speakers)


def repeat_short(frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Repeat the recordings among frames (B, T, E) that have fewer than SHORTEST frames from their
    beginning until they have as many; return all with their (B,) lengths."""
    if not (lengths < SHORTEST).any():
        return frames, lengths
    positions = torch.arange(max(frames.shape[1], SHORTEST), device=frames.device)
    repeating = positions % lengths[:, None]
    unchanged = positions.clamp(max=frames.shape[1] - 1)
    sources = torch.where(lengths[:, None] < SHORTEST, repeating, unchanged)
    repeated = frames.gather(1, sources[..., None].expand(-1, -1, frames.shape[2]))
    return repeated, lengths.clamp(min=SHORTEST)


def pool_statistics(frames: Tensor, lengths: Tensor) -> Tensor:
    """Pool frames (B, E, T) to statistics (B, 2E): means and standard deviations (over T - 1) of
    the real frames. lengths: (B,), at least 2."""
    real = mask_lengths(lengths, frames.shape[2])[:, None]
    frames = frames.masked_fill(~real, 0)
    mean = frames.sum(2) / lengths[:, None]
    squares = (frames - mean[..., None]).square().masked_fill(~real, 0).sum(2)
    variance = squares / (lengths[:, None] - 1)
    # clamped, because the root of 0 has no gradient
    return torch.cat([mean, variance.clamp(min=1e-12).sqrt()], 1)


@dataclass(frozen=True)
class Verification(Task):
    """Verification is the task `asv`. Raises InputError for training data without two speakers, or
    a split without trials of both kinds."""

    data: UtteranceSet
    grid: FrameGrid
    projection: int = 512  # width of the projection and of an embedding
    last: int = 1500  # width of the last layer of the TDNN
    crop: float = 8.0  # seconds of a training recording in a step

    name = "asv"

    def __post_init__(self) -> None:
        _ = self._speakers, self._trials  # raises their errors now rather than after hours

    @cached_property
    def _speakers(self) -> dict[str, int]:
        """Number the speakers of the training data."""
        path = self.data.root / "train.jsonl"
        train = self.data.splits["train"]
        names = sorted({u.speaker for u in train})
        if "" in names or len(names) < 2:
            raise InputError(
                f"{path} does not name two speakers, and that of every line; add them to it"
            )
        return {name: i for i, name in enumerate(names)}

    @cached_property
    def _trials(self) -> dict[str, tuple[Trial, ...]]:
        return {split: load_trials(self.data, split) for split in ("dev", "test")}

    def build(self, states: int, width: int) -> XVector:
        return XVector(states, width, len(self._speakers), self.projection, self.last)

    def loss(self, head: Any, batch: Batch) -> Tensor:
        """Return the loss of a random crop of every recording, in nats. Raises KeyError for a
        speaker who is not in the training data."""
        batch, _ = crop_randomly(
            batch, max(1, self.grid.count_frames(self.grid.find_sample(self.crop)))
        )
        numbers = [self._speakers[u.speaker] for u in batch.utterances]
        speakers = torch.tensor(numbers, device=batch.states.device)
        return head.loss(head(batch.states, batch.lengths), speakers)

    @torch.no_grad()
    def predict(self, head: Any, batch: Batch) -> list[np.ndarray]:
        """Return the embedding of every recording, (E,) float32."""
        return list(head(batch.states, batch.lengths).cpu().numpy())

    def evaluate(self, split: str, predicted: Mapping[str, Any], resamples: int) -> HeadEvaluation:
        """Measure EER and min DCF. A trial of a recording that could not be read is wrong at any
        threshold."""
        trials = self._trials[split]
        utterances = self.data.splits[split]
        scores = score_trials(trials, predicted)
        same = np.array([t.same for t in trials])
        units = group_recordings(self.data, utterances)
        speaker = dict(zip([u.id for u in utterances], units.labels, strict=True))
        first = [speaker[t.first] for t in trials]
        second = [speaker[t.second] for t in trials]
        eer, cost = estimate_verification_intervals(
            scores, same, first, second, resamples, units.text
        )
        curve = ErrorCurve.from_scores(scores, same).thin()
        det = {"false_alarms": curve.false_alarms.tolist(), "misses": curve.misses.tolist()}
        return HeadEvaluation({"eer": eer.percent, "min_dcf": cost}, {"det": det})


def score_trials(trials: Sequence[Trial], embeddings: Mapping[str, np.ndarray]) -> np.ndarray:
    """Score trials by their cosines, (N,). Those of a recording without an embedding are always
    wrong: -inf for those of one speaker, inf for those of two."""
    unit = {}
    for name, embedding in embeddings.items():
        unit[name] = embedding / max(np.linalg.norm(embedding), 1e-8)
    scores = []
    for trial in trials:
        if trial.first in unit and trial.second in unit:
            scores.append(float(unit[trial.first] @ unit[trial.second]))
        else:
            scores.append(-np.inf if trial.same else np.inf)
    return np.array(scores)


# ---- errors at every threshold


@dataclass(frozen=True)
class ErrorCurve:
    """An error curve goes from a threshold that rejects all trials to one that accepts all.

    A trial is accepted where its score is at least the threshold. A score of -inf is rejected and
    one of inf accepted at any finite threshold. Several curves have the same number of points.
    """

    # (..., P): share of the trials of two speakers that are accepted; rises from 0 to 1
    false_alarms: np.ndarray
    # (..., P): share of the trials of one speaker that are rejected; falls from 1 to 0
    misses: np.ndarray

    @classmethod
    def from_scores(
        cls, scores: np.ndarray, same: np.ndarray, weights: np.ndarray | None = None
    ) -> ErrorCurve:
        """Make one curve, or one for each row of weights.

        scores: (N,), higher where one person is likelier. same: (N,) whether one person speaks in
        both. weights: (..., N), counts of trials, above 0 for some trials of each kind.
        """
        order = np.argsort(-scores, kind="stable")
        scores, same = scores[order], same[order]
        # One sort serves all resamples: a trial that was drawn twice has weight 2.
        weights = np.ones(len(scores)) if weights is None else weights[..., order]
        # equal scores are accepted together
        ends = np.flatnonzero(np.r_[scores[1:] != scores[:-1], True])
        return cls(
            _accumulate_shares(weights * ~same, ends), 1 - _accumulate_shares(weights * same, ends)
        )

    @property
    def eer(self) -> Any:
        """Return the equal error rate in [0, 1], interpolated linearly between two points: one
        number, or (...) for several curves.

        This is where 1 - FPR crosses the interpolated TPR (s3prl `sv_voxceleb1/utils.py`).
        """
        difference = self.misses - self.false_alarms  # falls from 1 to -1
        crossing = np.argmax(difference <= 0, -1)[..., None].clip(min=1)
        above = np.take_along_axis(difference, crossing - 1, -1)[..., 0]
        below = np.take_along_axis(difference, crossing, -1)[..., 0]
        before = np.take_along_axis(self.false_alarms, crossing - 1, -1)[..., 0]
        after = np.take_along_axis(self.false_alarms, crossing, -1)[..., 0]
        return before + (after - before) * above / (above - below)

    @property
    def min_dcf(self) -> Any:
        """Return the least cost of detection at any threshold, over the cost of deciding without
        listening (NIST SRE 2016, section 3): one number, or (...) for several curves.

        The prior probability of one person is PRIOR, and both errors cost the same.
        """
        return (PRIOR * self.misses + (1 - PRIOR) * self.false_alarms).min(-1) / PRIOR

    def thin(self) -> ErrorCurve:
        """Keep at most DET_POINTS of a curve, spread evenly as a DET plot (normal deviates on both
        axes) shows them."""
        if len(self.misses) <= DET_POINTS:
            return self
        false_alarms = norm.ppf(self.false_alarms.clip(1e-5, 1 - 1e-5))
        misses = norm.ppf(self.misses.clip(1e-5, 1 - 1e-5))
        along = false_alarms - misses  # never falls
        chosen = np.unique(np.searchsorted(along, np.linspace(along[0], along[-1], DET_POINTS)))
        return ErrorCurve(self.false_alarms[chosen], self.misses[chosen])


def _accumulate_shares(weights: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return 0, and the share of the weights (..., N) up to each of the last positions `ends` of
    equal scores: (..., P)."""
    sums = weights.cumsum(-1)[..., ends]
    shares = sums / sums[..., -1:]
    return np.concatenate([np.zeros_like(shares[..., :1]), shares], -1)


def estimate_verification_intervals(
    scores: np.ndarray,
    same: np.ndarray,
    first: Sequence[str],
    second: Sequence[str],
    resamples: int,
    drawn: str = "",
) -> tuple[Interval, Interval]:
    """Estimate the equal error rate and the least cost with their 95 % intervals; [value, value]
    without resamples or with too few groups.

    scores, same: (N,), as in `ErrorCurve.from_scores`. first, second: the speakers of both
    recordings, N each. Trials that share a speaker are not independent, so that the bootstrap draws
    speakers and weights trials (`stats.draw_weights`). drawn: the name of the drawn units.
    """
    groups = len({*first, *second})
    pairs = [tuple(dict.fromkeys(pair)) for pair in zip(first, second, strict=True)]
    eers, costs = [np.zeros(0)], [np.zeros(0)]
    for weights in draw_weights(pairs, [*first, *second], 0, resamples):
        # leaves out resamples without trials of both kinds
        weights = weights[(weights * same).any(1) & (weights * ~same).any(1)]
        curve = ErrorCurve.from_scores(scores, same, weights)
        eers.append(curve.eer)
        costs.append(curve.min_dcf)
    curve = ErrorCurve.from_scores(scores, same)
    intervals = []
    for value, resampled in ((curve.eer, eers), (curve.min_dcf, costs)):
        ends = estimate_ends(float(value), np.concatenate(resampled), groups, bounds=(0.0, 1.0))
        intervals.append(Interval(float(value), *ends, len(scores), drawn=drawn, groups=groups))
    return intervals[0], intervals[1]
