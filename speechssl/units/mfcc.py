"""39 MFCC features (13 coefficients, first and second differences), the targets of HuBERT's first iteration (section IV-A)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torchaudio.compliance.kaldi as kaldi
import torchaudio.functional

from speechssl.audio import SAMPLE_RATE
from speechssl.timing import FrameGrid

_SHIFT, _WINDOW = 160, 400  # samples: 10 and 25 ms
_PIECE = 12_000  # 10 ms rows, two minutes: what is longer is computed in pieces
_CONTEXT = 4  # rows on either side that second differences see


def mfcc(samples: np.ndarray, grid: FrameGrid) -> torch.Tensor:
    """(T, 39) float32, one row a frame of `grid`: the 10 ms MFCC frame whose centre is nearest to what the frame owns.

    samples: (N,) float32 at 16 kHz. Differences are taken at 100 Hz. Raises ValueError for fewer samples than one window.
    """
    return torch.cat(list(mfcc_stream(samples, grid)))


def mfcc_stream(samples: np.ndarray, grid: FrameGrid) -> Iterator[torch.Tensor]:
    """`mfcc` piece by piece, (T_i, 39) float32 each: hours of audio in constant memory.

    Where the pieces are cut leaves no trace but float32 rounding, which in a matrix product may depend on its number of rows.
    As _PIECE is constant, a recording has the same bits every time on one machine.
    """
    if len(samples) < max(_WINDOW, grid.receptive):
        raise ValueError(f"{len(samples)} samples are fewer than the {max(_WINDOW, grid.receptive)} that one frame needs")
    rows = (len(samples) - _WINDOW) // _SHIFT + 1
    wanted = mfcc_rows(grid, np.arange(grid.frames(len(samples))), rows)
    for first in range(0, rows, _PIECE):
        here = wanted[np.searchsorted(wanted, first) : np.searchsorted(wanted, first + _PIECE)] - first
        left, right = max(first - _CONTEXT, 0), min(first + _PIECE + _CONTEXT, rows)
        if len(here):
            piece = samples[left * _SHIFT : (right - 1) * _SHIFT + _WINDOW]
            yield coefficients(piece)[first - left :][here]


def coefficients(samples: np.ndarray) -> torch.Tensor:
    """(R, 39) float32, every 10 ms (R by a grid of hop 160 and receptive field 400). samples: (N,) float32 at 16 kHz."""
    wave = torch.from_numpy(np.ascontiguousarray(samples, np.float32))[None] * 32768
    static = kaldi.mfcc(wave, sample_frequency=SAMPLE_RATE, use_energy=False, dither=0.0).T
    first = torchaudio.functional.compute_deltas(static)
    return torch.cat([static, first, torchaudio.functional.compute_deltas(first)]).T


def mfcc_rows(grid: FrameGrid, frames: np.ndarray, rows: int) -> np.ndarray:
    """The 10 ms row for each frame."""
    centres = frames * grid.hop + grid.offset + grid.hop // 2
    return np.clip(np.round((centres - _WINDOW / 2) / _SHIFT).astype(int), 0, rows - 1)
