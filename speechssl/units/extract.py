"""Audio in, run-length units out: an encoder, a layer and a codebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speechssl.encoders.base import SpeechEncoder
from speechssl.timing import FrameGrid, RunLength
from speechssl.units.features import Features, features_of, load_features_of
from speechssl.units.kmeans import Codebook, load_codebook


@dataclass(frozen=True)
class UnitExtractor:
    """Turns samples into units."""

    features: Features  # that the codebook was fitted on
    codebook: Codebook

    @property
    def grid(self) -> FrameGrid:
        return self.features.grid

    @property
    def card(self) -> dict[str, Any]:
        """What decides the units. (Cards from before there was a precision mean fp32.)"""
        features = self.features
        facts = {"layer": features.layer, "smooth": features.smooth, "precision": features.precision}
        return {"encoder": features.encoder, "codebook": self.codebook.hash} | facts

    def frames(self, samples: np.ndarray) -> np.ndarray:
        """(N,) float32 at 16 kHz -> (T,) the unit of every frame. Never holds the features of more than a piece of the audio.

        Raises ValueError for fewer samples than one receptive field, or of such a size that the features are not finite.
        """
        return np.concatenate([self.codebook.assign(_finite(piece)) for piece in self.features.stream(samples)])

    def units(self, samples: np.ndarray) -> RunLength:
        """(N,) float32 at 16 kHz -> run-length units."""
        return RunLength.of_frames(self.frames(samples))

    def units_of_many(self, recordings: Sequence[np.ndarray]) -> list[RunLength | ValueError]:
        """`units`, or what `units` would raise, of recordings that fit a batch of the encoder."""

        def one(features: torch.Tensor) -> RunLength | ValueError:
            try:
                return RunLength.of_frames(self.codebook.assign(_finite(features)))
            except ValueError as error:
                return error

        return [one(features) for features in self.features.of_many(recordings)]


def extractor_of(encoder: SpeechEncoder, codebook: Codebook) -> UnitExtractor:
    """Raises InputError where the codebook was fitted on another encoder."""
    return UnitExtractor(features_of(codebook, encoder), codebook)


def load_extractor(encoder: str, codebook: Path, precision: str | None = None, device: str = "auto") -> UnitExtractor:
    """encoder: what `load_encoder` takes, or `mfcc`. precision: None is the codebook's.

    Raises InputError where either cannot be loaded or they do not belong together.
    """
    book = load_codebook(codebook)
    return UnitExtractor(load_features_of(book, encoder, precision, device), book)


def _finite(features: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(features.sum()):  # any NaN or infinity is one of the sum's
        raise ValueError("the encoder gives features that are not finite")
    return features
