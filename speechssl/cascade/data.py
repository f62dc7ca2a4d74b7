"""`Transcript` holds recognised words with times, `Recogniser` is the interface of all recognisers,
and `split_at_pauses` cuts long recordings into pieces."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE
from speechssl.data.records import Passage, Question

Record = Passage | Question


@dataclass(frozen=True)
class TimedWord:
    """A timed word is a recognised word and the seconds [start, end) of the audio in which it is
    said, 0 <= start <= end."""

    text: str
    start: float
    end: float
    confidence: float  # 0 to 1, comparable only within one engine; nan where the engine gives none


@dataclass(frozen=True)
class Transcript:
    """A transcript is the words of one recording in the order spoken."""

    words: tuple[TimedWord, ...]
    separator: str = " "  # "" for Chinese, where a word is one character

    @property
    def text(self) -> str:
        return self.separator.join(word.text for word in self.words)


class Recogniser(Protocol):
    """A recogniser turns speech into words with times.

    name: the name in tables of results. card: what the card of a system says of it, with `asr` (its
    name, or the hash of a CTC head that was trained here) and, where a name does not say which
    weights, `asr_weights`.
    """

    name: str
    card: Mapping[str, Any]

    def transcribe(self, samples: np.ndarray) -> Transcript:
        """Recognise a recording. samples: (N,) float32 mono at 16 kHz, full scale 1, of any
        length."""
        ...


# ---- long recordings are cut where they are quietest, so seldom within a word

STEP_SECONDS = 0.01  # cuts fall on multiples of this
MANY_PIECES = 8  # from this number on a progress bar is shown
# the power is averaged over this: longer than a stop closure, shorter than a pause between phrases
PAUSE_SECONDS = 0.2


def split_at_pauses(samples: np.ndarray, longest: float) -> list[tuple[int, int]]:
    """Cut a recording into pieces of at most `longest` seconds.

    A piece ends at the quietest point between `longest / 2` and `longest` seconds after its start.
    samples: (N,) at 16 kHz. Returns [start, end) in samples, without gap or overlap; an empty list
    for N = 0.
    """
    step = round(STEP_SECONDS * SAMPLE_RATE)
    steps_per_piece = int(longest * SAMPLE_RATE) // step
    power = _measure_power_at_cuts(samples, step)
    cuts = [0]  # as numbers of steps
    while len(samples) - cuts[-1] * step > steps_per_piece * step:
        earliest = cuts[-1] + steps_per_piece // 2
        latest = cuts[-1] + steps_per_piece
        cuts.append(earliest + int(np.argmin(power[earliest : latest + 1])))
    borders = [cut * step for cut in cuts] + [len(samples)]
    return [(start, end) for start, end in itertools.pairwise(borders) if end > start]


def _measure_power_at_cuts(samples: np.ndarray, step: int) -> np.ndarray:
    """Measure the mean power within PAUSE_SECONDS around every possible cut, (N // step + 1,)."""
    usable = samples[: len(samples) // step * step].astype(np.float64)
    step_power = np.square(usable).reshape(-1, step).mean(axis=1)
    cumulative_power = np.concatenate(([0.0], np.cumsum(step_power)))
    cut_steps = np.arange(len(step_power) + 1)
    half_window = round(PAUSE_SECONDS / STEP_SECONDS / 2)
    window_start = np.maximum(cut_steps - half_window, 0)
    window_end = np.minimum(cut_steps + half_window, len(step_power))
    power = cumulative_power[window_end] - cumulative_power[window_start]
    return power / np.maximum(window_end - window_start, 1)


def show_pieces(pieces: Sequence[tuple[int, int]], title: str) -> Iterable[tuple[int, int]]:
    """Yield the pieces of a recording, with a progress bar where there are many."""
    return tqdm(pieces, title, unit="piece", leave=False, disable=len(pieces) < MANY_PIECES)
