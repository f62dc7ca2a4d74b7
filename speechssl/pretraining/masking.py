"""Which frames are hidden from the encoder: spans of frames at random places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class MaskOptions:
    """Spans of frames to hide: `probability` times the frames, were there no overlap (`span_mask`; HuBERT: 0.80, length 10)."""

    probability: float = 0.65
    length: int = 10
    visible_weight: float = 0.0  # weight of frames that are not masked


def span_mask(rng: np.random.Generator, frames: int, probability: float, length: int) -> np.ndarray:
    """(T,) bool; frames * probability / length spans of `length` frames, at least two, that may overlap (fairseq's rule)."""
    count = max(int(frames * probability / length + rng.random()), 2)
    mask = np.zeros(frames, bool)
    for start in rng.choice(max(frames - length, 1), size=min(count, max(frames - length, 1)), replace=False):
        mask[start : start + length] = True
    return mask
