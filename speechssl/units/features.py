"""What units are clusters of: a layer of an encoder or MFCCs, averaged over neighbouring frames, from recordings of any length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.loading import load_encoder
from speechssl.encoders.pretraining import small_config
from speechssl.encoders.speech_encoder import Chunking, SpeechEncoder
from speechssl.errors import InputError
from speechssl.timing import FrameGrid
from speechssl.units.kmeans import PADDING, Codebook, smooth_stream
from speechssl.units.mfcc import mfcc_stream

MFCC_GRID = FrameGrid.of_convolutions(SAMPLE_RATE, small_config().conv_kernel, small_config().conv_stride)  # as in `pretrain`


@dataclass(frozen=True)
class Features:
    """One kind of features: (N,) samples at 16 kHz -> (T, D), in pieces, so that hours of audio take constant memory."""

    encoder: str  # hash of the weights, or "mfcc"
    grid: FrameGrid
    raw: Callable[[np.ndarray], Iterator[torch.Tensor]]
    layer: int = 0
    smooth: int = 1  # frames that are averaged
    precision: str = "fp32"
    chunking: Chunking = Chunking()  # what of a longer recording is seen at a time

    @property
    def card(self) -> dict[str, Any]:
        """What decides the features."""
        card = {"encoder": self.encoder, "layer": self.layer, "smooth": self.smooth, "frame_rate": self.grid.frame_rate}
        return card | {"precision": self.precision, "padding": PADDING}

    def stream(self, samples: np.ndarray) -> Iterator[torch.Tensor]:
        """(T_i, D) float32 each. Raises ValueError for fewer samples than one frame needs."""
        return smooth_stream(self.raw(samples), self.smooth)


def load_features(encoder: str, layer: int, smooth: int = 1, precision: str = "fp32") -> Features:
    """encoder: folder, hub id or shipped name, or `mfcc`, which has no layers.

    Raises InputError for an encoder that cannot be loaded, a layer it does not have, and an even `smooth`.
    """
    if smooth < 1 or smooth % 2 == 0:
        raise InputError(f"features are averaged over an odd number of frames, not {smooth}; change --smooth")
    if encoder == "mfcc":
        return Features("mfcc", MFCC_GRID, partial(mfcc_stream, grid=MFCC_GRID), smooth=smooth)
    return encoder_features(load_encoder(encoder, precision), layer, smooth)


def encoder_features(encoder: SpeechEncoder, layer: int, smooth: int) -> Features:
    """A layer of an encoder that is at hand. Raises InputError for a layer it does not have."""
    if not 0 <= layer <= encoder.layers:
        raise InputError(f"{encoder.name} has the layers 0 to {encoder.layers}, not {layer}; change --layer")
    return Features(
        encoder.hash, encoder.grid, partial(encoder.stream, layer=layer), layer, smooth, encoder.precision, encoder.chunking
    )


def features_of(codebook: Codebook, encoder: SpeechEncoder) -> Features:
    """The layer and smoothing that a codebook was fitted on, from the encoder that it was fitted on.

    Raises InputError where it was another encoder.
    """
    card: Mapping[str, Any] = codebook.card
    if card.get("encoder") != encoder.hash:
        raise InputError(
            f"{codebook.name} was fitted on encoder {card.get('encoder')}, not on {encoder.name} ({encoder.hash}); "
            f"fit one for this encoder with `speechssl units fit`"
        )
    return encoder_features(encoder, int(card.get("layer", 0)), int(card.get("smooth", 1)))


def load_features_of(codebook: Codebook, encoder: str, precision: str | None = None) -> Features:
    """`features_of`, the encoder by its name: folder, hub id or shipped name, or `mfcc`. precision: None is the codebook's."""
    card: Mapping[str, Any] = codebook.card
    if (encoder == "mfcc") != (card.get("encoder") == "mfcc"):
        made = "MFCCs; give mfcc as the encoder" if encoder != "mfcc" else f"the encoder {card.get('encoder')}; name that encoder"
        raise InputError(f"{codebook.name} was not fitted on {encoder} but on {made}")
    if encoder == "mfcc":
        return load_features(encoder, 0, int(card.get("smooth", 1)))
    return features_of(codebook, load_encoder(encoder, precision or card.get("precision", "fp32")))
