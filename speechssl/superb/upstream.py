"""What heads are trained on: any encoder, or log-mel and MFCC features as the baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torchaudio.compliance.kaldi as kaldi

from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.base import SpeechEncoder
from speechssl.encoders.load import load_encoder
from speechssl.io import SHIPPED, hash_json
from speechssl.timing import FrameGrid
from speechssl.units.features import coefficients

MELS = 80
GRID = FrameGrid(SAMPLE_RATE, 160, 400)  # Kaldi's: a window of 25 ms every 10 ms


def log_mel(samples: np.ndarray) -> torch.Tensor:
    """(T, 80) log filterbank energies. samples: (N,) float32."""
    return kaldi.fbank(torch.from_numpy(samples)[None] * 32768, num_mel_bins=MELS, sample_frequency=SAMPLE_RATE, dither=0.0)


SPECTRAL: dict[str, tuple[Callable[[np.ndarray], torch.Tensor], int]] = {"fbank": (log_mel, MELS), "mfcc": (coefficients, 39)}


@dataclass(frozen=True)
class SpectralEngine:
    """Spectral features as the one layer of an encoder. They are not normalised over the utterance: mean pooling would give 0."""

    compute: Callable[[np.ndarray], torch.Tensor]

    def statistics(self, wave: torch.Tensor) -> None:
        """None: there is nothing to normalise."""

    def states(self, piece: torch.Tensor, statistics: None, last: int) -> Iterator[torch.Tensor]:
        """(T, D), once. piece: (N,) float32."""
        yield self.compute(piece.numpy())


def find_upstream(where: str | Path) -> str | Path:
    """The encoder in a folder of models, or in the shipped one of this name; else `where` itself."""
    folders = [folder / "encoder" for folder in (Path(where), SHIPPED / where) if (folder / "encoder").is_dir()]
    return folders[0] if folders else where


def load_upstream(name: str | Path, precision: str = "fp32", device: str = "auto") -> SpeechEncoder:
    """`fbank` (80 log-mel), `mfcc` (13 with differences), or what `load_encoder` takes; its errors are raised."""
    if str(name) not in SPECTRAL:
        return load_encoder(name, precision, device)
    compute, width = SPECTRAL[str(name)]
    return SpeechEncoder(
        str(name), SpectralEngine(compute), GRID, 0, width, normalise=True, hash=hash_json({"spectral": str(name)})
    )
