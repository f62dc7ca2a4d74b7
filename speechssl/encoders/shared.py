"""One encoder under several systems: what it computed last is remembered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speechssl.encoders.base import SpeechEncoder
from speechssl.encoders.load import load_encoder


class SharedEncoder:
    """Remembers, in every thread, the last array it encoded: systems that are given one array encode it once."""

    batches = False  # it remembers one recording

    def __init__(self, inner: SpeechEncoder) -> None:
        self.inner, self.last = inner, threading.local()
        self.name, self.hash, self.settings = inner.name, inner.hash, inner.settings
        self.grid, self.layers, self.width = inner.grid, inner.layers, inner.width
        self.precision, self.device, self.chunking = inner.precision, inner.device, inner.chunking

    def hidden_states(self, samples: np.ndarray) -> torch.Tensor:
        """samples: (N,) float32 at 16 kHz -> (L + 1, T, D)."""
        return self._remembered(samples, None, self.inner.hidden_states)

    def features(self, samples: np.ndarray, layer: int) -> torch.Tensor:
        """samples: (N,) float32 at 16 kHz -> (T, D) of one layer."""
        return torch.cat(list(self.stream(samples, layer)))

    def stream(self, samples: np.ndarray, layer: int) -> Iterator[torch.Tensor]:
        """`features` in the pieces of the encoder."""
        yield from self._remembered(samples, layer, lambda x: list(self.inner.stream(x, layer)))

    def _remembered(self, samples: np.ndarray, layer: int | None, encode: Callable[[np.ndarray], Any]) -> Any:
        if getattr(self.last, "samples", None) is not samples:
            self.last.states, self.last.samples = {}, samples
        if layer not in self.last.states:
            self.last.states[layer] = encode(samples)
        return self.last.states[layer]


def shared_encoder(models: Path) -> SharedEncoder:
    """That of a model folder."""
    return SharedEncoder(load_encoder(models / "encoder"))
