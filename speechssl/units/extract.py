"""Audio in, run-length units out: an encoder, a layer and a codebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speechssl.encoders.loading import load_encoder
from speechssl.encoders.speech_encoder import SpeechEncoder
from speechssl.errors import InputError
from speechssl.timing import FrameGrid, RunLength
from speechssl.units.kmeans import Codebook, load_codebook, smooth, smooth_stream


@dataclass(frozen=True)
class UnitExtractor:
    """Turns samples into units. Layer and smoothing are the codebook's: it was fitted on them."""

    encoder: SpeechEncoder
    codebook: Codebook

    def __post_init__(self) -> None:
        card = self.codebook.card
        if card.get("encoder") != self.encoder.hash:
            raise InputError(
                f"{self.codebook.name} was fitted on encoder {card.get('encoder')}, not on {self.encoder.name} "
                f"({self.encoder.hash}); fit one for this encoder with `speechssl units fit`"
            )

    @property
    def layer(self) -> int:
        return int(self.codebook.card["layer"])

    @property
    def smoothing(self) -> int:
        """Frames that features are averaged over."""
        return int(self.codebook.card.get("smooth", 1))

    @property
    def grid(self) -> FrameGrid:
        return self.encoder.grid

    @property
    def card(self) -> dict[str, Any]:
        """What decides the units. (Cards from before there was a precision mean fp32.)"""
        facts = {"layer": self.layer, "smooth": self.smoothing, "precision": self.encoder.precision}
        return {"encoder": self.encoder.hash, "codebook": self.codebook.hash} | facts

    def frames(self, samples: np.ndarray) -> np.ndarray:
        """(N,) float32 at 16 kHz -> (T,) the unit of every frame. Never holds the features of more than a piece of the audio.

        Raises ValueError for fewer samples than one receptive field, or of such a size that the features are not finite.
        """
        pieces = smooth_stream(self.encoder.stream(samples, self.layer), self.smoothing)
        return np.concatenate([self.codebook.assign(_finite(piece)) for piece in pieces])

    def units(self, samples: np.ndarray) -> RunLength:
        """(N,) float32 at 16 kHz -> run-length units."""
        return RunLength.of_frames(self.frames(samples))


def load_extractor(encoder: str, codebook: Path, precision: str = "fp32") -> UnitExtractor:
    """Raises InputError where either cannot be loaded or they do not belong together."""
    return UnitExtractor(load_encoder(encoder, precision), load_codebook(codebook))


def _finite(features: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(features.sum()):  # any NaN or infinity is one of the sum's
        raise ValueError("the encoder gives features that are not finite")
    return features


def layer_features(encoder: SpeechEncoder, samples: np.ndarray, card: Mapping[str, Any]) -> torch.Tensor:
    """(T, D) features of a card's `layer`, averaged over its `smooth` frames."""
    return smooth(encoder.features(samples, int(card["layer"])), int(card.get("smooth", 1)))


@contextmanager
def single_threaded(workers: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads, in each of which torch uses one thread, however many there are.

    Many small models side by side beat one small model on many threads; and as sums are grouped by threads, no result depends on
    the number of workers. What has not begun when the block is left by an exception is not begun any more.
    """
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)  # the workers' setting is also the default of threads to come
