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
    same_masks: bool = False  # all rows of a batch have equally many masked frames (`cut_to_same`)


def span_mask(rng: np.random.Generator, frames: int, probability: float, length: int) -> np.ndarray:
    """(T,) bool; frames * probability / length spans of `length` frames, at least two, that may overlap (fairseq's rule)."""
    count = max(int(frames * probability / length + rng.random()), 2)
    mask = np.zeros(frames, bool)
    for start in rng.choice(max(frames - length, 1), size=min(count, max(frames - length, 1)), replace=False):
        mask[start : start + length] = True
    return mask


def cut_to_same(rng: np.random.Generator, masks: np.ndarray) -> np.ndarray:
    """(B, T) bool -> (B, T) bool: every row with as many masked frames as the row that has fewest; single frames are drawn.

    fairseq's `require_same_masks`, on in its HuBERT and wav2vec 2.0. Its rows are those of one GPU, these those of the whole batch.
    """
    fewest = int(masks.sum(axis=1).min())
    cut = np.zeros_like(masks)
    for row, mask in zip(cut, masks, strict=True):
        row[rng.choice(np.flatnonzero(mask), fewest, replace=False)] = True
    return cut
