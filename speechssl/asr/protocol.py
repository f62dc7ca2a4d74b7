"""What a recogniser is: samples in, timed words out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np


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
