"""39 MFCC features (13 coefficients, first and second differences), the targets of HuBERT's first iteration (section IV-A)."""

from __future__ import annotations

import numpy as np
import torch
import torchaudio.compliance.kaldi as kaldi
import torchaudio.functional

from speechssl.audio import SAMPLE_RATE
from speechssl.timing import FrameGrid

_SHIFT, _WINDOW = 160, 400  # samples: 10 and 25 ms


def mfcc(samples: np.ndarray, grid: FrameGrid) -> torch.Tensor:
    """(T, 39) float32, one row a frame of `grid`: the 10 ms MFCC frame whose centre is nearest to what the frame owns.

    samples: (N,) float32 at 16 kHz. Differences are taken at 100 Hz.
    """
    wave = torch.from_numpy(np.ascontiguousarray(samples, np.float32))[None] * 32768
    static = kaldi.mfcc(wave, sample_frequency=SAMPLE_RATE, use_energy=False, dither=0.0).T
    first = torchaudio.functional.compute_deltas(static)
    rows = torch.cat([static, first, torchaudio.functional.compute_deltas(first)]).T
    return rows[mfcc_rows(grid, np.arange(grid.frames(len(samples))), len(rows))]


def mfcc_rows(grid: FrameGrid, frames: np.ndarray, rows: int) -> np.ndarray:
    """The 10 ms row for each frame."""
    centres = frames * grid.hop + grid.offset + grid.hop // 2
    return np.clip(np.round((centres - _WINDOW / 2) / _SHIFT).astype(int), 0, rows - 1)
