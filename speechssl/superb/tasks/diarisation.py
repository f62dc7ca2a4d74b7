"""Speaker diarisation (SD) asks which of a recording's speakers speaks when (Libri2Mix; s3prl
`downstream/diarization`).

A head gives the probability that each of K speakers speaks in a frame. A speaker is active where it
is above a threshold, after a median filter over frames (`make_rttm.py`); turns lie where the
encoder's frames do. The error is that of dscore with its defaults, by which the published rows were
made: no collar, overlapping speech counted.
The published number is the least of ten, thresholds .3 to .7 with and without the filter, on the
test data themselves (`score.sh`); here threshold and filter are .5 and 11 frames or what is best on
dev (`tune`), and `decisions` in the detail holds all ten.
Two more differences. s3prl cuts a test recording into chunks of 2,000 frames, each of which may
name the speakers anew; here it is taken whole. It cuts training recordings into all their chunks;
here a random one is taken whenever a recording's turn comes. pyannote.metrics gives the same error
rates and is the reference of the tests; it would bring pandas, pyannote.core and pyannote.database.
Letters: B batch, S hidden states, T frames, D width, K outputs or predicted speakers, R true
speakers, P pieces of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn.functional import pad, softplus
from torch.nn.utils.rnn import pad_sequence

from speechssl.data.superb import Turn, Utterance, UtteranceSet
from speechssl.superb.data import Batch, Featurizer, HeadEvaluation, random_crops, rate_measure
from speechssl.timing import FrameGrid, RunLength

THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7)
MEDIANS = (1, 11)


class SpeakerActivity(nn.Module):
    """The head is weighted sum, LSTM and linear layer. It reads no future, so that padding at the
    end never matters."""

    def __init__(
        self, states: int, width: int, speakers: int, hidden: int = 512, layers: int = 1
    ) -> None:
        super().__init__()
        self.featurizer = Featurizer(states)
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True)
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
class Diarisation:
    """Diarisation is the task `sd`. Raises InputError where nobody speaks in a split."""

    data: UtteranceSet
    grid: FrameGrid
    # outputs K; None: as many as a training recording has at most (Libri2Mix: 2)
    speakers: int | None = None
    hidden: int = 512
    layers: int = 1
    chunk: int = 2_000  # frames of a training recording in a step
    threshold: float = 0.5
    median: int = 11  # frames of the filter, odd; 1: none

    name = "sd"
    pooled = False
    wants_waves = False

    def build(self, states: int, width: int) -> SpeakerActivity:
        most = max(len({turn.speaker for turn in u.turns}) for u in self.data.splits["train"])
        outputs = self.speakers or most
        return SpeakerActivity(states, width, outputs, self.hidden, self.layers)

    def loss(self, head: Any, batch: Batch) -> Tensor:
        """Return the loss of a random chunk of every recording, nats a frame and output."""
        whole = [
            active_frames(u.turns, self.grid, int(n))
            for u, n in zip(batch.utterances, batch.lengths, strict=True)
        ]
        batch, starts = random_crops(batch, self.chunk)
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
        total = sum(errors, DiarisationErrors())
        wrong = [e.wrong for e in errors]
        speech = [e.speech for e in errors]
        measure = rate_measure("der", wrong, speech, self.data, split, resamples)
        parts = {
            "miss": total.missed,
            "false_alarm": total.false_alarms,
            "confusion": total.confused,
        }
        percent = {name: 100 * seconds / total.speech for name, seconds in parts.items()}
        detail: dict[str, Any] = {"timeline": self._timeline(split, predicted), "parts": percent}
        if resamples:
            detail["decisions"] = self.try_decisions(split, predicted)
        return HeadEvaluation((measure,), detail)

    def try_decisions(self, split: str, predicted: Mapping[str, Any]) -> list[dict[str, float]]:
        """Return the error with every threshold and filter that s3prl tries, percent."""
        decisions = []
        for median in MEDIANS:
            for threshold in THRESHOLDS:
                errors = replace(self, threshold=threshold, median=median)._errors(split, predicted)
                der = 100 * sum(errors, DiarisationErrors()).rate
                decisions.append({"threshold": threshold, "median": median, "der": der})
        return decisions

    def tune(self, predicted: Mapping[str, Any]) -> Diarisation:
        """Return the task with the threshold and the filter that are best on dev. predicted: of
        dev."""
        best = min(self.try_decisions("dev", predicted), key=lambda decision: decision["der"])
        return replace(self, threshold=best["threshold"], median=int(best["median"]))

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

    def _timeline(self, split: str, predicted: Mapping[str, Any]) -> dict[str, Any]:
        """Return the turns of the first recording; predicted speakers are named after the true ones
        they match, or `?` and their number."""
        first = self.data.splits[split][0]
        turns = self.turns(first, predicted[first.id]) if first.id in predicted else ()
        names = matching_names(first.turns, turns)
        hypothesis = [
            replace(turn, speaker=names.get(turn.speaker, f"?{turn.speaker}")) for turn in turns
        ]
        return {
            "id": first.id,
            "seconds": first.seconds,
            "truth": _as_json(first.turns),
            "predicted": _as_json(hypothesis),
        }


def _as_json(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    return [{"speaker": t.speaker, "start": t.start, "end": t.end} for t in turns]


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
    the ends (scipy's `medfilt`)."""
    # the median of zeros and ones is 1 where more than half of them are: a difference of two
    # running sums
    half = median // 2
    sums = np.pad(active, ((half + 1, half), (0, 0))).cumsum(0)
    return (sums[median:] - sums[:-median]) > half


def active_intervals(
    active: np.ndarray, grid: FrameGrid, seconds: float
) -> list[tuple[float, float]]:
    """List [start, end) in seconds of every run of frames in which somebody speaks. active: (T,)
    bool.

    The last frame owns all up to the end of the recording, at `seconds` as far as T frames leave it
    open.
    """
    if not len(active):
        return []
    runs = RunLength.of_frames(active)
    least = grid.samples_for(len(active)) / grid.sample_rate
    most = grid.samples_for(len(active) + 1) / grid.sample_rate
    borders = [grid.seconds(int(frame)) for frame in runs.borders[:-1]]
    borders.append(min(max(seconds, least), most))
    return [(borders[i], borders[i + 1]) for i, speaks in enumerate(runs.units) if speaks]


# ---- diarisation error rate


@dataclass(frozen=True)
class DiarisationErrors:
    """Errors of one recording or several are seconds of speech, each speaker's counted."""

    speech: float = 0.0  # in truth
    missed: float = 0.0
    false_alarms: float = 0.0
    confused: float = 0.0

    @property
    def wrong(self) -> float:
        return self.missed + self.false_alarms + self.confused

    @property
    def rate(self) -> float:
        """Return the diarisation error rate; more than 1 is possible. NaN where nobody speaks."""
        return self.wrong / self.speech if self.speech else float("nan")

    def __add__(self, other: DiarisationErrors) -> DiarisationErrors:
        return DiarisationErrors(*np.add(astuple(self), astuple(other)).tolist())


def diarisation_errors(truth: Sequence[Turn], predicted: Sequence[Turn]) -> DiarisationErrors:
    """Return the errors of one recording, exactly. Turns of one speaker may touch or overlap: they
    are merged.

    Time is cut at every border of a turn, so that in each piece the same persons speak all the
    while. Of a piece with R true and K predicted speakers, max(R - K, 0) are missed, max(K - R, 0)
    are false alarms, and of the min(R, K) others those are confused whose names do not match. Names
    match one to one so that the least is confused (Fiscus et al., NIST RT-06S).
    """
    durations, reference, hypothesis = _pieces(truth, predicted)
    persons, predictions = reference.sum(0), hypothesis.sum(0)
    rows, columns = _match(durations, reference, hypothesis)
    right = (reference[rows] & hypothesis[columns]).sum(0)
    return DiarisationErrors(
        speech=float(durations @ persons),
        missed=float(durations @ (persons - predictions).clip(min=0)),
        false_alarms=float(durations @ (predictions - persons).clip(min=0)),
        confused=float(durations @ (np.minimum(persons, predictions) - right)),
    )


def matching_names(truth: Sequence[Turn], predicted: Sequence[Turn]) -> dict[str, str]:
    """Map each predicted name to the true one that it matches, where they speak at once at all."""
    durations, reference, hypothesis = _pieces(truth, predicted)
    persons = sorted({turn.speaker for turn in truth})
    voices = sorted({turn.speaker for turn in predicted})
    names = {}
    for r, k in zip(*_match(durations, reference, hypothesis), strict=True):
        if durations @ (reference[r] & hypothesis[k]):
            names[voices[k]] = persons[r]
    return names


def _pieces(
    truth: Sequence[Turn], predicted: Sequence[Turn]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut time at the borders of turns: (P,) seconds, (R, P) who speaks, (K, P) who is predicted
    to."""
    borders = np.unique([time for turn in (*truth, *predicted) for time in (turn.start, turn.end)])
    return np.diff(borders), _speaking(truth, borders), _speaking(predicted, borders)


def _speaking(turns: Sequence[Turn], borders: np.ndarray) -> np.ndarray:
    """Mark who speaks in a piece, (speakers, P) bool; speakers are in the order of their names."""
    names = sorted({turn.speaker for turn in turns})
    middles = (borders[1:] + borders[:-1]) / 2
    active = np.zeros((len(names), len(middles)), bool)
    for turn in turns:
        active[names.index(turn.speaker)] |= (turn.start < middles) & (middles < turn.end)
    return active


def _match(
    durations: np.ndarray, reference: np.ndarray, hypothesis: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of true and of predicted speakers that match: with the most seconds in
    common."""
    common = (reference * durations) @ hypothesis.T.astype(np.float64)
    rows, columns = linear_sum_assignment(common, maximize=True)
    return rows, columns
