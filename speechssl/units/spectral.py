"""Spectral features take the place of an encoder's hidden states, and are computed in chunks.

`mfcc`, 39 a frame (13 coefficients, first and second differences), are the targets of HuBERT's
first iteration (arXiv 2106.07447, section IV-A); `fbank`, 80 log-mel energies, is like the lower
bound of SUPERB (arXiv 2105.01051), which has first and second differences too and is normalised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from speechssl.artifacts import hash_json
from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.encoder import FunctionEngine, SpeechEncoder
from speechssl.encoders.load import SMALL_KERNELS, SMALL_STRIDES
from speechssl.timing import FrameGrid

_SHIFT, _WINDOW = 160, 400  # samples: 10 and 25 ms
_CHUNK = 12_000  # rows of 10 ms that are computed at a time, two minutes
# Rows on either side that second differences depend on: a difference sees two, and is taken twice.
_CONTEXT = 4
MELS = 80
MFCC_GRID = FrameGrid.of_convolutions(SAMPLE_RATE, SMALL_KERNELS, SMALL_STRIDES)  # as in `pretrain`


def stream_spectral(samples: np.ndarray, grid: FrameGrid, kind: str) -> Iterator[torch.Tensor]:
    """Compute the features `kind` of `SPECTRAL` in chunks, (T_i, D) float32 each, so that hours of
    audio take constant memory.

    samples: (N,) float32 at 16 kHz. Rows are computed every 10 ms; a frame of `grid` gets the row
    whose centre is nearest to the middle of the samples that the frame owns. Cutting into chunks
    changes float32 rounding at most, since a matrix product may depend on its number of rows. As
    _CHUNK is constant, a recording has the same bits every time on one machine. Raises ValueError
    for fewer samples than a window.
    """
    least = max(_WINDOW, grid.receptive)
    if len(samples) < least:
        raise ValueError(f"{len(samples)} samples are fewer than the {least} that one frame needs")
    compute, _ = SPECTRAL[kind]
    rows = (len(samples) - _WINDOW) // _SHIFT + 1
    row_of_frame = find_nearest_rows(grid, np.arange(grid.count_frames(len(samples))), rows)
    for first in range(0, rows, _CHUNK):
        rows_of_chunk = row_of_frame[(row_of_frame >= first) & (row_of_frame < first + _CHUNK)]
        left = max(first - _CONTEXT, 0)
        right = min(first + _CHUNK + _CONTEXT, rows)
        if len(rows_of_chunk):
            chunk = samples[left * _SHIFT : (right - 1) * _SHIFT + _WINDOW]
            yield compute(chunk)[rows_of_chunk - left]


def make_spectral_encoder(kind: str) -> SpeechEncoder:
    """Make an encoder whose one layer is the features `kind` of `SPECTRAL`, every 10 ms: a baseline
    of SUPERB. They are not normalised over the utterance, since mean pooling would then give 0."""
    compute, width = SPECTRAL[kind]
    grid = FrameGrid(SAMPLE_RATE, _SHIFT, _WINDOW)
    hash = hash_json({"spectral": kind})
    return SpeechEncoder(kind, FunctionEngine(compute), grid, 0, width, normalise=True, hash=hash)


def mfcc(samples: np.ndarray) -> torch.Tensor:
    """Compute MFCCs and their first and second differences, (R, 39) float32, one of R rows every
    10 ms. samples: (N,) float32 at 16 kHz."""
    import torchaudio.compliance.kaldi as kaldi  # takes half a second, and encoders do not need it
    from torchaudio.functional import compute_deltas

    wave = _scale_to_int16(samples)
    static = kaldi.mfcc(wave, sample_frequency=SAMPLE_RATE, use_energy=False, dither=0.0).T
    first = compute_deltas(static)
    return torch.cat([static, first, compute_deltas(first)]).T


def log_mel(samples: np.ndarray) -> torch.Tensor:
    """Compute log filterbank energies, (R, 80), a row every 10 ms. samples: (N,) float32 at
    16 kHz."""
    import torchaudio.compliance.kaldi as kaldi  # as above

    wave = _scale_to_int16(samples)
    return kaldi.fbank(wave, num_mel_bins=MELS, sample_frequency=SAMPLE_RATE, dither=0.0)


def _scale_to_int16(samples: np.ndarray) -> torch.Tensor:
    """Return samples (N,) as Kaldi has them, (1, N) on the scale of 16-bit integers."""
    return torch.from_numpy(np.ascontiguousarray(samples, np.float32))[None] * 32768


# name -> function of samples, and its number of dimensions D
SPECTRAL: dict[str, tuple[Callable[[np.ndarray], torch.Tensor], int]] = {
    "mfcc": (mfcc, 39),
    "fbank": (log_mel, MELS),
}


def find_nearest_rows(grid: FrameGrid, frames: np.ndarray, rows: int) -> np.ndarray:
    """Return the 10 ms row that is nearest to each of the frames (T,), from 0 to `rows` - 1."""
    centres = frames * grid.hop + grid.offset + grid.hop // 2
    return np.clip(np.round((centres - _WINDOW / 2) / _SHIFT).astype(int), 0, rows - 1)
