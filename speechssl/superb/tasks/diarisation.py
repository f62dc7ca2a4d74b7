"""Speaker diarisation (SD) asks which of a recording's speakers speaks when (Libri2Mix; s3prl
`downstream/diarization`).

A head gives the probability that each of K speakers speaks in a frame. A speaker is active where
the probability is above a threshold, after a median filter over frames (`make_rttm.py`); turns
begin and end with the encoder's frames. The error rate is that of dscore with its defaults, by
which the published numbers were computed: no collar, overlapping speech counted.
The published number is the lowest of ten, for thresholds from .3 to .7 with and without the filter,
on the test data themselves (`score.sh`); here the threshold and filter that are best on dev are
taken (`tune`).
Two more things differ. s3prl cuts a test recording into chunks of 2,000 frames, each of which may
name the speakers anew; here a recording is not cut. s3prl trains on all chunks of a recording; here
a random chunk is drawn whenever the recording is in a batch.
pyannote.metrics gives the same error rates and is the reference of the tests; as a dependency it
would need pyannote.core and pyannote.database.
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
from speechssl.encoders.hubert import mask_lengths
from speechssl.errors import InputError
from speechssl.superb.data import (
    Batch,
    Featurizer,
    HeadEvaluation,
    Task,
    crop_randomly,
    measure_rate,
)
from speechssl.timing import FrameGrid

THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7)
MEDIANS = (1, 11)  # frames of the filter; 1: no filter
CHUNK = 2_000  # frames of a training recording in a step


class SpeakerActivity(nn.Module):
    """The head is a weighted sum, an LSTM and a linear layer. It reads no later frames, so that
    padding at the end never matters."""

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
    """Return the mean binary cross-entropy of the real frames and outputs, in nats, with the best
    assignment of speakers to outputs.

    This is permutation-invariant training (Fujita et al. 2019). The loss is linear in its target,
    so the cost of every pair of output and speaker can be computed first, and the best assignment
    needs no search through K! permutations. The target of an output without a speaker (R < K) is
    silence; where there are more speakers than outputs (R > K) the costliest are left out. truth:
    (B, T, R) of 0 and 1; lengths: (B,) real frames; the padding beyond them never matters.
    """
    outputs = logits.shape[2]
    lengths = lengths.to(logits.device)
    real = mask_lengths(lengths, logits.shape[1])[..., None]
    logits, truth = logits.masked_fill(~real, 0), truth.masked_fill(~real, 0)
    truth = pad(truth, (0, max(0, outputs - truth.shape[2])))
    # The cross-entropy of logit x and target y is softplus(x) - x y.
    silent = (softplus(logits) * real).sum(1)[..., None]
    costs = silent - logits.transpose(1, 2) @ truth  # (B, K, R)
    lowest = []
    for cost, values in zip(costs, costs.detach().cpu().numpy(), strict=True):
        rows, columns = linear_sum_assignment(np.nan_to_num(values))
        lowest.append(cost[rows, columns].sum())
    return torch.stack(lowest).sum() / (outputs * lengths.sum())


@dataclass(frozen=True)
class Diarisation(Task):
    """Diarisation is the task `sd`. Raises InputError where nobody speaks in a split."""

    data: UtteranceSet
    grid: FrameGrid
    hidden: int = 512
    threshold: float = 0.5
    median: int = 11  # frames of the filter, odd; 1: none

    name = "sd"

    def __post_init__(self) -> None:
        for split, utterances in self.data.splits.items():
            if not any(utterance.turns for utterance in utterances):
                raise InputError(
                    f'{self.data.root / split}.jsonl has no "turns", which sd needs; add them to '
                    "its lines"
                )

    def build(self, states: int, width: int) -> SpeakerActivity:
        # the largest number of speakers in a training recording (Libri2Mix: 2)
        speakers = max(len({turn.speaker for turn in u.turns}) for u in self.data.splits["train"])
        return SpeakerActivity(states, width, speakers, self.hidden)

    def loss(self, head: Any, batch: Batch) -> Tensor:
        """Return the loss of a random chunk of every recording, in nats for a frame and output."""
        activities = []
        for u, length in zip(batch.utterances, batch.lengths, strict=True):
            activities.append(mark_active_frames(u.turns, self.grid, int(length)))
        batch, starts = crop_randomly(batch, CHUNK)
        frames = batch.states.shape[2]
        speakers = max(activity.shape[1] for activity in activities)
        crops = []
        for activity, start in zip(activities, starts, strict=True):
            crop = activity[start : start + frames]
            crops.append(pad(crop, (0, speakers - activity.shape[1])))
        truth = pad_sequence(crops, batch_first=True)
        truth = pad(truth, (0, 0, 0, frames - truth.shape[1])).to(batch.states.device)
        return permutation_free_loss(head(batch.states), truth, batch.lengths)

    @torch.no_grad()
    def predict(self, head: Any, batch: Batch) -> list[np.ndarray]:
        """Return the probabilities that each speaker speaks, (T, K) float32 for each recording."""
        probabilities = head(batch.states).sigmoid().cpu().numpy()
        return [x[:n].copy() for x, n in zip(probabilities, batch.lengths.tolist(), strict=True)]

    def evaluate(self, split: str, predicted: Mapping[str, Any], resamples: int) -> HeadEvaluation:
        """Measure DER. In a recording that could not be read all speech is missed."""
        errors = self._measure_errors(split, predicted)
        wrong = [e.wrong for e in errors]
        speech = [e.speech for e in errors]
        return HeadEvaluation({"der": measure_rate(wrong, speech, self.data, split, resamples)})

    def tune(self, predicted: Mapping[str, Any]) -> Diarisation:
        """Return the task with the threshold and the filter that are best on dev. predicted: the
        predictions for dev."""
        tasks = []
        for median in MEDIANS:
            for threshold in THRESHOLDS:
                tasks.append(replace(self, threshold=threshold, median=median))
        return min(
            tasks, key=lambda task: sum(e.wrong for e in task._measure_errors("dev", predicted))
        )

    def find_turns(self, utterance: Utterance, probabilities: np.ndarray) -> tuple[Turn, ...]:
        """Find the predicted turns; speakers are called 1, 2 and so on. probabilities: (T, K)."""
        # nobody speaks before the first frame and after the last
        active = ndimage.median_filter(
            probabilities > self.threshold, (self.median, 1), mode="constant"
        )
        turns = []
        for number, frames in enumerate(active.T, 1):
            for start, end in list_active_intervals(frames, self.grid, utterance.seconds):
                turns.append(Turn(str(number), start, end))
        return tuple(turns)

    def _measure_errors(self, split: str, predicted: Mapping[str, Any]) -> list[DiarisationErrors]:
        """Measure the errors of every recording."""
        errors = []
        for u in self.data.splits[split]:
            turns = self.find_turns(u, predicted[u.id]) if u.id in predicted else ()
            errors.append(measure_diarisation_errors(u.turns, turns))
        return errors


def mark_active_frames(turns: Sequence[Turn], grid: FrameGrid, frames: int) -> Tensor:
    """Mark by 1 in (T, R) where a speaker speaks in the middle of the hop that a frame owns; the
    rest is 0. Speakers are in the order of their names."""
    middles = np.array([grid.find_first_sample(frame) for frame in range(frames)]) + grid.hop // 2
    names = sorted({turn.speaker for turn in turns})
    active = np.zeros((frames, len(names)), np.float32)
    for turn in turns:
        first, last = np.searchsorted(
            middles, [grid.find_sample(turn.start), grid.find_sample(turn.end)]
        )
        active[first:last, names.index(turn.speaker)] = 1
    return torch.from_numpy(active)


def list_active_intervals(
    active: np.ndarray, grid: FrameGrid, seconds: float
) -> list[tuple[float, float]]:
    """List [start, end) in seconds of every run of active frames. active: (T,) bool.

    A run up to the last frame ends with the recording: at `seconds`, or at the shortest or longest
    length that gives T frames where `seconds` is not between them.
    """
    change = np.diff(np.r_[False, active, False].astype(int))
    starts = np.flatnonzero(change == 1).tolist()
    ends = np.flatnonzero(change == -1).tolist()
    shortest = grid.count_samples(len(active)) / grid.sample_rate
    longest = grid.count_samples(len(active) + 1) / grid.sample_rate
    end_of_recording = min(max(seconds, shortest), longest)
    intervals = []
    for start, end in zip(starts, ends, strict=True):
        end_seconds = end_of_recording if end == len(active) else grid.find_start(end)
        intervals.append((grid.find_start(start), end_seconds))
    return intervals


# ---- diarisation error rate


@dataclass(frozen=True)
class DiarisationErrors:
    """The errors of a recording are seconds of speech, where speakers count separately."""

    speech: float  # true speech
    missed: float
    false_alarms: float
    confused: float

    @property
    def wrong(self) -> float:
        """Return the seconds of all errors."""
        return self.missed + self.false_alarms + self.confused


def measure_diarisation_errors(
    truth: Sequence[Turn], predicted: Sequence[Turn]
) -> DiarisationErrors:
    """Measure the exact errors of one recording. Turns of one speaker that touch or overlap are
    merged.

    Time is cut at every border of a turn, so that in each piece the same speakers speak throughout.
    Of a piece with R true and K predicted speakers, max(R - K, 0) are missed, max(K - R, 0) are
    false alarms, and of the min(R, K) others those are confused whose names do not match. Names
    match one to one so that true and predicted speakers have the most seconds in common (Fiscus et
    al., NIST RT-06S).
    """
    borders = np.unique([time for turn in (*truth, *predicted) for time in (turn.start, turn.end)])
    durations = np.diff(borders)
    reference = _mark_active_pieces(truth, borders)
    hypothesis = _mark_active_pieces(predicted, borders)
    common = (reference * durations) @ hypothesis.T.astype(np.float64)
    rows, columns = linear_sum_assignment(common, maximize=True)
    right = (reference[rows] & hypothesis[columns]).sum(0)  # speakers of a piece whose names match
    true_count, predicted_count = reference.sum(0), hypothesis.sum(0)
    return DiarisationErrors(
        speech=float(durations @ true_count),
        missed=float(durations @ (true_count - predicted_count).clip(min=0)),
        false_alarms=float(durations @ (predicted_count - true_count).clip(min=0)),
        confused=float(durations @ (np.minimum(true_count, predicted_count) - right)),
    )


def _mark_active_pieces(turns: Sequence[Turn], borders: np.ndarray) -> np.ndarray:
    """Mark in (speakers, P) bool where a speaker speaks in a piece of time."""
    names = sorted({turn.speaker for turn in turns})
    middles = (borders[1:] + borders[:-1]) / 2
    active = np.zeros((len(names), len(middles)), bool)
    for turn in turns:
        active[names.index(turn.speaker)] |= (turn.start < middles) & (middles < turn.end)
    return active
