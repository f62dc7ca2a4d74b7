"""Timed words, the interface of a recogniser, and long recordings in pieces, cut where it is quietest, seldom within a word."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from tqdm import tqdm


@dataclass(frozen=True)
class TimedWord:
    """A recognised word. start, end: seconds from the beginning of the audio, half-open, 0 <= start <= end."""

    text: str
    start: float
    end: float
    confidence: float  # 0 to 1, comparable only within one engine; nan where the engine gives none


@dataclass(frozen=True)
class Transcript:
    """The words of one recording in the order spoken."""

    words: tuple[TimedWord, ...]
    separator: str = " "  # "" for Chinese, where a word is one character

    @property
    def text(self) -> str:
        return self.separator.join(word.text for word in self.words)


@runtime_checkable
class Recogniser(Protocol):
    """Anything that turns speech into words with times. name: what tables of results call it."""

    name: str

    def transcribe(self, samples: np.ndarray) -> Transcript:
        """samples: (N,) float32 mono at 16 kHz, full scale 1, of any length. Raises ValueError for any other shape."""
        ...


def check_samples(samples: np.ndarray) -> np.ndarray:
    """(N,) float32. Raises ValueError for anything but one channel of finite numbers."""
    if samples.ndim != 1:
        raise ValueError(f"a recogniser takes one channel (N,), not an array of shape {samples.shape}")
    samples = np.asarray(samples, np.float32)
    if not np.isfinite(samples).all():
        raise ValueError("the samples are not all finite")
    return samples


STEP_SECONDS = 0.01  # cuts fall on multiples of this
MANY_PIECES = 8  # from here on there is a progress bar
PAUSE_SECONDS = 0.2  # the energy is averaged over this: longer than a stop closure, shorter than a pause between phrases


def split_at_pauses(samples: np.ndarray, longest: float, sample_rate: int) -> list[tuple[int, int]]:
    """Tile a recording with pieces of at most `longest` seconds.

    Every cut is at the quietest point of the second half of the longest piece that may begin at the cut before it.
    samples: (N,); sample_rate: Hz. Returns [start, end) in samples, without gap or overlap; nothing for N = 0.
    Raises ValueError where `longest` is too short to look for a pause in.
    """
    step = round(STEP_SECONDS * sample_rate)
    most = int(longest * sample_rate) // step
    if most * STEP_SECONDS < 2 * PAUSE_SECONDS:
        raise ValueError(f"pieces of {longest} s are too short; give at least {2 * PAUSE_SECONDS} s")
    loudness = _loudness(samples, step)
    cuts = [0]
    while len(samples) - cuts[-1] * step > most * step:
        low, high = cuts[-1] + most // 2, cuts[-1] + most + 1
        cuts.append(low + int(np.argmin(loudness[low:high])))
    borders = [cut * step for cut in cuts] + [len(samples)]
    return [(a, b) for a, b in itertools.pairwise(borders) if b > a]


def _loudness(samples: np.ndarray, step: int) -> np.ndarray:
    """Mean power around every cut that is possible: (N // step + 1,)."""
    half = round(PAUSE_SECONDS / STEP_SECONDS / 2)
    blocks = np.square(samples[: len(samples) // step * step].astype(np.float64)).reshape(-1, step).mean(axis=1)
    total = np.concatenate(([0.0], np.cumsum(blocks)))
    at = np.arange(len(blocks) + 1)
    first, last = np.maximum(at - half, 0), np.minimum(at + half, len(blocks))
    return (total[last] - total[first]) / np.maximum(last - first, 1)


def transcribe_pieces(
    samples: np.ndarray, longest: float, sample_rate: int, decode: Callable[[np.ndarray], list[TimedWord]]
) -> tuple[TimedWord, ...]:
    """Decode every piece by itself and put the words back in their places. Times in seconds, never outside their piece."""
    words: list[TimedWord] = []
    pieces = split_at_pauses(samples, longest, sample_rate)
    for start, end in tqdm(pieces, desc="recognising", unit="piece", leave=False, disable=len(pieces) < MANY_PIECES):
        offset, limit = start / sample_rate, end / sample_rate
        for word in decode(samples[start:end]):
            words.append(replace(word, start=min(offset + word.start, limit), end=min(offset + word.end, limit)))
    return tuple(words)
