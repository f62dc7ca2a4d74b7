"""Who spoke when: the diarisation error rate, exactly, from turns in seconds.

Time is cut at every border of a turn, so that in each piece the same persons speak all the while. Of a piece in which R persons
speak and K are said to, max(R - K, 0) are missed, max(K - R, 0) are false alarms, and of the min(R, K) others those are confused
whose names do not belong together. Names belong together, one to one, so that the least is confused (Fiscus et al., NIST RT-06S).
Speech of several at once counts for each of them. A collar leaves out what is nearer than so many seconds to a border of the truth
(`md-eval.pl -c`; the collar of pyannote.metrics is both sides together); names are matched on what is left, as pyannote does it.
Letters: P pieces, R persons in truth, K persons as said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from speechssl.corpora.utterances import Turn


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
