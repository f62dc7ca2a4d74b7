"""Speaker diarisation (SD) asks which of a recording's speakers speaks when (Libri2Mix; s3prl
`downstream/diarization`).

A head gives the probability that each of K speakers speaks in a frame. A speaker is active where it
is above a threshold, after a median filter over frames (`make_rttm.py`); turns lie where the
encoder's frames do. The error is that of dscore with its defaults, by which the published rows were
made: no collar, overlapping speech counted.
The published number is the least of ten, thresholds .3 to .7 with and without the filter, on the
test data themselves (`score.sh`); here threshold and filter are those of the ten that are best on
dev (`tune`).
Two more differences. s3prl cuts a test recording into chunks of 2,000 frames, each of which may
name the speakers anew; here it is taken whole. It cuts training recordings into all their chunks;
here a random one is taken whenever a recording's turn comes. pyannote.metrics gives the same error
rates and is the reference of the tests; it would bring pandas, pyannote.core and pyannote.database.
Letters: B batch, S hidden states, T frames, D width, K outputs or predicted speakers, R true
speakers, P pieces of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import ndimage
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn.functional import pad, softplus
from torch.nn.utils.rnn import pad_sequence

from speechssl.data.superb import Turn, Utterance, UtteranceSet
from speechssl.superb.data import (
    Batch,
    Featurizer,
    HeadEvaluation,
    Task,
    random_crops,
    rate_measure,
)
from speechssl.timing import FrameGrid

THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7)
MEDIANS = (1, 11)
CHUNK = 2_000  # frames of a training recording in a step


class SpeakerActivity(nn.Module):
    """The head is weighted sum, LSTM and linear layer. It reads no future, so that padding at the
    end never matters."""

    def __init__(self, states: int, width: int, speakers: int, hidden: int = 512) -> None:
        super().__init__()
        self.featurizer = Featurizer(states)
        self.lstm = nn.LSTM(width, hidden, batch_first=True)
        self.output = nn.Linear(hidden, speakers)

    def forward(self, states: Tensor) -> Tensor:
        """Return logits (B, T, K) of states (B, S, T, D)."""
        logits: Tensor = self.output(self.lstm(self.featurizer(states))[0])
        return logits


def permutation_free_loss(logits: Tensor, truth: Tensor, lengths: Tensor) -> Tensor:
    """Return the mean binary cross-entropy of the real frames and outputs, nats, with the best
    assignment of speakers to outputs.

    This is permutation-invariant training (Fujita et al. 2019). The loss is linear in its target,
    so the cost of every pair of output and speaker is known at once, and the best assignment needs
    no search through K! permutations. Outputs without a speaker (R < K) are to be silent; of more
    speakers than outputs (R > K) the costliest are left out. truth: (B, T, R) of 0 and 1; lengths:
    (B,) real frames, beyond which nothing matters.
    """
    outputs, lengths = logits.shape[2], lengths.to(logits.device)
    real = torch.arange(logits.shape[1], device=logits.device)[:, None] < lengths[:, None, None]
    logits, truth = logits.masked_fill(~real, 0), truth.masked_fill(~real, 0)
    truth = pad(truth, (0, max(0, outputs - truth.shape[2])))
    silent = (softplus(logits) * real).sum(1)[..., None]
    costs = silent - logits.transpose(1, 2) @ truth  # (B, K, R)
    best = [linear_sum_assignment(np.nan_to_num(cost)) for cost in costs.detach().cpu().numpy()]
    chosen = [cost[rows, columns].sum() for cost, (rows, columns) in zip(costs, best, strict=True)]
    return torch.stack(chosen).sum() / (outputs * lengths.sum())


@dataclass(frozen=True)
class Diarisation(Task):
    """Diarisation is the task `sd`. Raises InputError where nobody speaks in a split."""

    data: UtteranceSet
    grid: FrameGrid
    hidden: int = 512
    threshold: float = 0.5
    median: int = 11  # frames of the filter, odd; 1: none

    name = "sd"

    def build(self, states: int, width: int) -> SpeakerActivity:
        # as many outputs as a training recording has speakers at most (Libri2Mix: 2)
        most = max(len({turn.speaker for turn in u.turns}) for u in self.data.splits["train"])
        return SpeakerActivity(states, width, most, self.hidden)

    def loss(self, head: Any, batch: Batch) -> Tensor:
        """Return the loss of a random chunk of every recording, nats a frame and output."""
        whole = [
            active_frames(u.turns, self.grid, int(n))
            for u, n in zip(batch.utterances, batch.lengths, strict=True)
        ]
        batch, starts = random_crops(batch, CHUNK)
        frames = batch.states.shape[2]
        speakers = max(truth.shape[1] for truth in whole)
        crops = [
            pad(x[start : start + frames], (0, speakers - x.shape[1]))
            for x, start in zip(whole, starts, strict=True)
        ]
        truth = pad_sequence(crops, batch_first=True)
        truth = pad(truth, (0, 0, 0, frames - truth.shape[1])).to(batch.states.device)
        return permutation_free_loss(head(batch.states), truth, batch.lengths)

    @torch.no_grad()
    def predict(self, head: Any, batch: Batch) -> list[np.ndarray]:
        """Return (T, K) float32 of every recording: probabilities that a speaker speaks."""
        probabilities = head(batch.states).sigmoid().cpu().numpy()
        return [x[:n].copy() for x, n in zip(probabilities, batch.lengths.tolist(), strict=True)]

    def evaluate(self, split: str, predicted: Mapping[str, Any], resamples: int) -> HeadEvaluation:
        """Evaluate probabilities. Of a recording that could not be read all speech is missed."""
        errors = self._errors(split, predicted)
        wrong = [e.wrong for e in errors]
        speech = [e.speech for e in errors]
        return HeadEvaluation((rate_measure("der", wrong, speech, self.data, split, resamples),))

    def tune(self, predicted: Mapping[str, Any]) -> Diarisation:
        """Return the task with the threshold and the filter that are best on dev. predicted: of
        dev."""
        tried = []
        for median in MEDIANS:
            for threshold in THRESHOLDS:
                task = replace(self, threshold=threshold, median=median)
                tried.append((sum(e.wrong for e in task._errors("dev", predicted)), task))
        return min(tried, key=lambda one: one[0])[1]

    def turns(self, utterance: Utterance, probabilities: np.ndarray) -> tuple[Turn, ...]:
        """Return the predicted turns; speakers are called 1, 2 and so on. probabilities: (T, K)."""
        active = median_filter(probabilities > self.threshold, self.median)
        turns = []
        for number, frames in enumerate(active.T, 1):
            for start, end in active_intervals(frames, self.grid, utterance.seconds):
                turns.append(Turn(str(number), start, end))
        return tuple(turns)

    def _errors(self, split: str, predicted: Mapping[str, Any]) -> list[DiarisationErrors]:
        """Return the errors of every recording."""
        errors = []
        for u in self.data.splits[split]:
            turns = self.turns(u, predicted[u.id]) if u.id in predicted else ()
            errors.append(diarisation_errors(u.turns, turns))
        return errors


def active_frames(turns: Sequence[Turn], grid: FrameGrid, frames: int) -> Tensor:
    """Mark with 1, in (T, R) of 0 and 1, who speaks in the middle of what a frame owns. Speakers
    are in the order of their names."""
    middles = np.array([grid.first_sample(frame) for frame in range(frames)]) + grid.hop // 2
    names = sorted({turn.speaker for turn in turns})
    active = np.zeros((frames, len(names)), np.float32)
    for turn in turns:
        first, last = np.searchsorted(middles, [grid.sample(turn.start), grid.sample(turn.end)])
        active[first:last, names.index(turn.speaker)] = 1
    return torch.from_numpy(active)


def median_filter(active: np.ndarray, median: int) -> np.ndarray:
    """Replace each frame of (T, K) bool by the median of so many around it; nobody speaks beyond
    the ends."""
    return np.asarray(ndimage.median_filter(active, (median, 1), mode="constant"))


def active_intervals(
    active: np.ndarray, grid: FrameGrid, seconds: float
) -> list[tuple[float, float]]:
    """List [start, end) in seconds of every run of frames in which somebody speaks. active: (T,)
    bool.

    The last frame owns all up to the end of the recording, at `seconds` as far as T frames leave it
    open.
    """
    change = np.diff(np.r_[False, active, False].astype(int))
    starts, ends = np.flatnonzero(change == 1).tolist(), np.flatnonzero(change == -1).tolist()
    least = grid.samples_for(len(active)) / grid.sample_rate
    most = grid.samples_for(len(active) + 1) / grid.sample_rate
    last = min(max(seconds, least), most)
    intervals = []
    for start, end in zip(starts, ends, strict=True):
        intervals.append((grid.seconds(start), last if end == len(active) else grid.seconds(end)))
    return intervals


# ---- diarisation error rate


@dataclass(frozen=True)
class DiarisationErrors:
    """Errors of one recording are seconds of speech, each speaker's counted."""

    speech: float  # in truth
    missed: float
    false_alarms: float
    confused: float

    @property
    def wrong(self) -> float:
        return self.missed + self.false_alarms + self.confused


def diarisation_errors(truth: Sequence[Turn], predicted: Sequence[Turn]) -> DiarisationErrors:
    """Return the errors of one recording, exactly. Turns of one speaker may touch or overlap: they
    are merged.

    Time is cut at every border of a turn, so that in each piece the same persons speak all the
    while. Of a piece with R true and K predicted speakers, max(R - K, 0) are missed, max(K - R, 0)
    are false alarms, and of the min(R, K) others those are confused whose names do not match. Names
    match one to one so that the most seconds are in common (Fiscus et al., NIST RT-06S).
    """
    borders = np.unique([time for turn in (*truth, *predicted) for time in (turn.start, turn.end)])
    durations = np.diff(borders)
    reference, hypothesis = _speaking(truth, borders), _speaking(predicted, borders)
    common = (reference * durations) @ hypothesis.T.astype(np.float64)
    rows, columns = linear_sum_assignment(common, maximize=True)
    right = (reference[rows] & hypothesis[columns]).sum(0)
    persons, predictions = reference.sum(0), hypothesis.sum(0)
    return DiarisationErrors(
        speech=float(durations @ persons),
        missed=float(durations @ (persons - predictions).clip(min=0)),
        false_alarms=float(durations @ (predictions - persons).clip(min=0)),
        confused=float(durations @ (np.minimum(persons, predictions) - right)),
    )


def _speaking(turns: Sequence[Turn], borders: np.ndarray) -> np.ndarray:
    """Mark who speaks in a piece of time, (speakers, P) bool."""
    names = sorted({turn.speaker for turn in turns})
    middles = (borders[1:] + borders[:-1]) / 2
    active = np.zeros((len(names), len(middles)), bool)
    for turn in turns:
        active[names.index(turn.speaker)] |= (turn.start < middles) & (middles < turn.end)
    return active
