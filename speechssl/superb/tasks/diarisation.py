"""Speaker diarisation (SD): who of a recording's speakers speaks when (Libri2Mix; s3prl `downstream/diarization`).

A head gives the probability that each of K speakers speaks in a frame. A speaker is said to speak where it is above a threshold,
after a median filter over frames, as `make_rttm.py` has it; turns lie where the encoder's frames do. The error is that of dscore
with its defaults, by which the published rows were made: no collar, speech of both at once counted.
The published number is the least of ten, thresholds .3 to .7 with and without the filter, on the test data themselves (`score.sh`);
here threshold and filter are .5 and 11 frames or what is best on dev (`tuned`), and `decisions` in the detail holds all ten.
Two more differences. s3prl cuts a test recording into chunks of 2,000 frames, of which each may name the speakers anew; here it is
heard as a whole. It cuts training recordings into all their chunks; here a random one is taken whenever a recording's turn comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn.functional import pad, softplus
from torch.nn.utils.rnn import pad_sequence

from speechssl.data.utterances import Turn, Utterance, UtteranceSet
from speechssl.data.voices import recording_units
from speechssl.errors import InputError
from speechssl.stats import ratio_interval
from speechssl.superb.data import random_stretches
from speechssl.superb.task import Batch, Featurizer, Judgement, Measure, Settings
from speechssl.timing import FrameGrid, RunLength

# Who spoke when: the diarisation error rate, exactly, from turns in seconds.
#
# Time is cut at every border of a turn, so that in each piece the same persons speak all the while. Of a piece in which R persons
# speak and K are said to, max(R - K, 0) are missed, max(K - R, 0) are false alarms, and of the min(R, K) others those are confused
# whose names do not belong together. Names belong together, one to one, so that the least is confused (Fiscus et al., NIST RT-06S).
# Speech of several at once counts for each of them. A collar leaves out what is nearer than so many seconds to a border of the
# truth
# (`md-eval.pl -c`; the collar of pyannote.metrics is both sides together); names are matched on what is left, as pyannote does it.
# Letters: P pieces, R persons in truth, K persons as said.


@dataclass(frozen=True)
class Errors:
    """Of one recording or several; seconds of speech, each person's counted."""

    speech: float  # in truth
    missed: float
    false_alarms: float
    confused: float

    @property
    def wrong(self) -> float:
        return self.missed + self.false_alarms + self.confused

    @property
    def rate(self) -> float:
        """The diarisation error rate; more than 1 is possible. NaN where nobody speaks."""
        return self.wrong / self.speech if self.speech else float("nan")

    def __add__(self, other: Errors) -> Errors:
        return Errors(
            self.speech + other.speech,
            self.missed + other.missed,
            self.false_alarms + other.false_alarms,
            self.confused + other.confused,
        )


NONE = Errors(0.0, 0.0, 0.0, 0.0)


def diarisation_errors(truth: Sequence[Turn], said: Sequence[Turn], collar: float = 0.0) -> Errors:
    """The errors of one recording. Turns of one person may touch or overlap: they are one then. collar: seconds on either side."""
    durations, heard, claimed = _pieces(truth, said, collar)
    persons, claims = heard.sum(0), claimed.sum(0)
    rows, columns = _matched(durations, heard, claimed)
    right = (heard[rows] & claimed[columns]).sum(0)
    return Errors(
        speech=float(durations @ persons),
        missed=float(durations @ (persons - claims).clip(min=0)),
        false_alarms=float(durations @ (claims - persons).clip(min=0)),
        confused=float(durations @ (np.minimum(persons, claims) - right)),
    )


def names_together(truth: Sequence[Turn], said: Sequence[Turn], collar: float = 0.0) -> dict[str, str]:
    """Said name -> the person it belongs to, where they speak at once at all."""
    durations, heard, claimed = _pieces(truth, said, collar)
    persons, claims = _names(truth), _names(said)
    pairs = zip(*_matched(durations, heard, claimed), strict=True)
    return {claims[k]: persons[r] for r, k in pairs if durations @ (heard[r] & claimed[k])}


def _pieces(truth: Sequence[Turn], said: Sequence[Turn], collar: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(P,) seconds of what is scored, (R, P) who speaks, (K, P) who is said to."""
    borders = _borders([*truth, *said])
    if collar:
        around = _changes(borders, _speaking(truth, borders))
        borders = np.unique(np.r_[borders, around - collar, around + collar])
    durations, middles = np.diff(borders), (borders[1:] + borders[:-1]) / 2
    if collar and len(around):
        nearest = np.abs(middles[:, None] - around).min(1)
        durations = np.where(nearest < collar, 0.0, durations)
    return durations, _speaking(truth, borders), _speaking(said, borders)


def _borders(turns: Iterable[Turn]) -> np.ndarray:
    return np.unique(np.array([second for turn in turns for second in (turn.start, turn.end)], np.float64))


def _speaking(turns: Sequence[Turn], borders: np.ndarray) -> np.ndarray:
    """(persons, P) whether they speak in a piece."""
    names, middles = _names(turns), (borders[1:] + borders[:-1]) / 2
    found = np.zeros((len(names), len(middles)), bool)
    for turn in turns:
        found[names.index(turn.speaker)] |= (turn.start < middles) & (middles < turn.end)
    return found


def _changes(borders: np.ndarray, speaking: np.ndarray) -> np.ndarray:
    """The borders at which somebody begins or ends, once touching turns of one person are one."""
    around = np.pad(speaking, ((0, 0), (1, 1)))
    return borders[(around[:, 1:] != around[:, :-1]).any(0)] if len(borders) else borders


def _names(turns: Iterable[Turn]) -> list[str]:
    return sorted({turn.speaker for turn in turns})


def _matched(durations: np.ndarray, heard: np.ndarray, claimed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of persons in truth and of those said that belong together: with the most seconds in common."""
    rows, columns = linear_sum_assignment((heard * durations) @ claimed.T.astype(np.float64), maximize=True)
    return rows, columns


# The head of SUPERB's diarisation: who of K speakers speaks in a frame, by an LSTM (s3prl `downstream/diarization`).
#
# Which output stands for whom is not said: a recording's loss is the least that any way of giving speakers to outputs has
# (permutation-invariant training; Fujita et al. 2019). A binary cross-entropy is linear in its target, so that the cost of
# every pair
# of an output and a speaker is had at once and the best way is an assignment, not a search through K! of them.
# Letters: B batch, S hidden states, T frames, D width, K outputs, R speakers.


@dataclass(frozen=True)
class ActivityShape:
    """Sizes of a head."""

    states: int  # S
    width: int  # D
    speakers: int  # K
    hidden: int = 512
    layers: int = 1


class SpeakerActivity(nn.Module):
    """Weighted sum, LSTM, linear. It hears no future, so that padding at the end never matters."""

    def __init__(self, shape: ActivityShape) -> None:
        super().__init__()
        self.shape = shape
        self.featurizer = Featurizer(shape.states)
        self.lstm = nn.LSTM(shape.width, shape.hidden, shape.layers, batch_first=True)
        self.output = nn.Linear(shape.hidden, shape.speakers)

    def forward(self, states: Tensor) -> Tensor:
        """Logits (B, T, K). states: (B, S, T, D)."""
        logits: Tensor = self.output(self.lstm(self.featurizer(states))[0])
        return logits


def permutation_free_loss(logits: Tensor, truth: Tensor, lengths: Tensor) -> Tensor:
    """Mean binary cross-entropy of the real frames and outputs, nats, with speakers given to outputs as is best for each recording.

    truth: (B, T, R) of 0 and 1. Outputs without a speaker (R < K) are to be silent; of more speakers than outputs (R > K) those are
    left out whom it costs most to follow. What is beyond a length never matters. lengths: (B,) real frames.
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


PUBLISHED = Settings(learning_rate=1e-4, steps=30_000, batch=32, every=500)
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7)
MEDIANS = (1, 11)


@dataclass(frozen=True)
class Diarisation:
    """The task `sd`. Raises InputError where nobody speaks in a split, or a filter has no middle."""

    data: UtteranceSet
    grid: FrameGrid
    speakers: int | None = None  # outputs K; None: as many as a training recording has at most (Libri2Mix: 2)
    hidden: int = 512
    layers: int = 1
    chunk: int = 2_000  # frames of a recording that training hears at a time
    threshold: float = 0.5
    median: int = 11  # frames of the filter, odd; 1: none
    collar: float = 0.0  # seconds on either side of a border of the truth that are not scored

    name = "sd"
    pooled = False
    wants_waves = False

    def __post_init__(self) -> None:
        for split, found in self.data.splits.items():
            if not any(u.turns for u in found):
                raise InputError(f"nobody speaks in {self.data.root / split}.jsonl; write who speaks when as turns")
        if self.median < 1 or self.median % 2 == 0:
            raise InputError(f"a median filter of {self.median} frames has no middle; give an odd number")

    @cached_property
    def _outputs(self) -> int:
        return self.speakers or max(len({turn.speaker for turn in u.turns}) for u in self.data.splits["train"])

    def build(self, states: int, width: int) -> SpeakerActivity:
        """A new head for S states of width D."""
        return SpeakerActivity(ActivityShape(states, width, self._outputs, self.hidden, self.layers))

    def loss(self, head: Any, batch: Batch) -> Tensor:
        """Of a random chunk of every recording, nats a frame and output."""
        whole = [active_frames(u.turns, self.grid, int(n)) for u, n in zip(batch.utterances, batch.lengths, strict=True)]
        batch, starts = random_stretches(batch, self.chunk)
        frames = batch.states.shape[2]
        return permutation_free_loss(
            head(batch.states),
            stacked([truth[start : start + frames] for truth, start in zip(whole, starts, strict=True)], frames).to(
                batch.states.device
            ),
            batch.lengths,
        )

    @torch.no_grad()
    def predict(self, head: Any, batch: Batch) -> list[np.ndarray]:
        """(T, K) float32 probabilities that a speaker speaks in a frame, of every recording."""
        probabilities = head(batch.states).sigmoid().cpu().numpy()
        return [x[:n].copy() for x, n in zip(probabilities, batch.lengths.tolist(), strict=True)]

    def judge(self, split: str, predicted: Mapping[str, Any], resamples: int) -> Judgement:
        """predicted: probabilities. Of a recording that could not be heard all speech is missed."""
        found = self._errors(split, predicted)
        total = sum(found, NONE)
        if not total.speech:
            raise InputError(f"a collar of {self.collar} s leaves no speech of {self.data.root / split}.jsonl; give a smaller one")
        measure = Measure.fixed("der", 100 * total.rate, len(found))
        detail: dict[str, Any] = {"timeline": self._timeline(split, predicted), "parts": _parts(total)}
        if resamples:
            wrong, speech = [e.wrong for e in found], [e.speech for e in found]
            units = recording_units(self.data, self.data.splits[split])
            measure = Measure.of("der", ratio_interval(wrong, speech, units, resamples=resamples).percent)
            detail["decisions"] = self.decisions(split, predicted)
        return Judgement((measure,), detail)

    def decisions(self, split: str, predicted: Mapping[str, Any]) -> list[dict[str, float]]:
        """The error with every threshold and filter that s3prl tries, percent."""
        found = []
        for median in MEDIANS:
            for threshold in THRESHOLDS:
                task = replace(self, threshold=threshold, median=median)
                rate = sum(task._errors(split, predicted), NONE).rate
                found.append({"threshold": threshold, "median": median, "der": 100 * rate})
        return found

    def tuned(self, predicted: Mapping[str, Any]) -> Diarisation:
        """The same with the threshold and the filter that are best on dev. predicted: of dev."""
        best = min(self.decisions("dev", predicted), key=lambda decision: decision["der"])
        return replace(self, threshold=best["threshold"], median=int(best["median"]))

    def turns(self, utterance: Utterance, probabilities: np.ndarray) -> tuple[Turn, ...]:
        """Who is said to speak when; the speakers are called 1, 2 and so on. probabilities: (T, K)."""
        active = smoothed(probabilities > self.threshold, self.median)
        return tuple(
            Turn(str(number), start, end)
            for number, frames in enumerate(active.T, 1)
            for start, end in intervals(frames, self.grid, utterance.seconds)
        )

    def _errors(self, split: str, predicted: Mapping[str, Any]) -> list[Errors]:
        """Of every recording."""
        said = {u.id: self.turns(u, predicted[u.id]) if u.id in predicted else () for u in self.data.splits[split]}
        return [diarisation_errors(u.turns, said[u.id], self.collar) for u in self.data.splits[split]]

    def _timeline(self, split: str, predicted: Mapping[str, Any]) -> dict[str, Any]:
        """Of the first recording; those said have the name of whom they belong to, or `?` and their number."""
        first = self.data.splits[split][0]
        said = self.turns(first, predicted[first.id]) if first.id in predicted else ()
        names = names_together(first.turns, said, self.collar)
        named = [replace(turn, speaker=names.get(turn.speaker, f"?{turn.speaker}")) for turn in said]
        return {"id": first.id, "seconds": first.seconds, "truth": _told(first.turns), "said": _told(named)}


def active_frames(turns: Sequence[Turn], grid: FrameGrid, frames: int) -> Tensor:
    """(T, R) of 0 and 1: whether a speaker speaks in the middle of what a frame owns. Speakers are in the order of their names."""
    middles = np.array([grid.first_sample(frame) for frame in range(frames)]) + grid.hop // 2
    names = sorted({turn.speaker for turn in turns})
    active = np.zeros((frames, len(names)), np.float32)
    for turn in turns:
        first, last = np.searchsorted(middles, [grid.sample(turn.start), grid.sample(turn.end)])
        active[first:last, names.index(turn.speaker)] = 1
    return torch.from_numpy(active)


def stacked(truths: Sequence[Tensor], frames: int) -> Tensor:
    """(B, T, R) of B that are (t, r): more frames and more speakers are silent."""
    speakers = max(truth.shape[1] for truth in truths)
    wide = [torch.nn.functional.pad(truth, (0, speakers - truth.shape[1])) for truth in truths]
    together = pad_sequence(wide, batch_first=True)
    return torch.nn.functional.pad(together, (0, 0, 0, frames - together.shape[1]))


def smoothed(active: np.ndarray, median: int) -> np.ndarray:
    """(T, K) bool, the median of so many frames around each; beyond the ends nobody speaks (scipy's `medfilt`)."""
    half = median // 2
    sums = np.pad(active, ((half + 1, half), (0, 0))).cumsum(0)
    return (sums[median:] - sums[:-median]) > half


def intervals(active: np.ndarray, grid: FrameGrid, seconds: float) -> list[tuple[float, float]]:
    """[start, end) in seconds of every stretch of frames in which somebody speaks. active: (T,) bool.

    The last frame owns all up to the end of the recording, which `seconds` tells as far as T frames leave it open.
    """
    if not len(active):
        return []
    runs, count = RunLength.of_frames(active), len(active)
    least, most = (grid.samples_for(n) / grid.sample_rate for n in (count, count + 1))
    borders = [grid.seconds(int(frame)) for frame in runs.borders[:-1]] + [min(max(seconds, least), most)]
    return [(borders[i], borders[i + 1]) for i, speaks in enumerate(runs.units) if speaks]


def _parts(total: Errors) -> dict[str, float]:
    """Percent of the speech in truth."""
    parts = {"miss": total.missed, "false_alarm": total.false_alarms, "confusion": total.confused}
    return {name: 100 * seconds / total.speech for name, seconds in parts.items()}


def _told(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    return [{"speaker": turn.speaker, "start": turn.start, "end": turn.end} for turn in turns]
