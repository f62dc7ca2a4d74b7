"""Whisper's encoder (arXiv 2212.04356, section 2.2) as a speech encoder: log-mel in, hidden states at 50 Hz out.

Whisper always reads 30 s, shorter audio with silence after it, so every piece costs the same. Frame t is centred on sample 320 t
(HuBERT's on 320 t + 200). Layer 0 is the input of the first transformer layer, layer n the output of layer n; the last one is
taken after the encoder's final norm, as transformers' `hidden_states` has it.
Letters: N samples, T frames, L layers, D width.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from transformers import WhisperFeatureExtractor
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.base import Chunking
from speechssl.errors import InputError
from speechssl.timing import FrameGrid

GRID = FrameGrid(SAMPLE_RATE, hop=320, receptive=1)  # a receptive field of 1 sample puts the centre of frame t on sample 320 t


@dataclass(frozen=True)
class Windows(Chunking):
    """Whisper always reads 30 s: a piece with its context, or shorter audio as a whole."""

    seconds: float = 26.0

    @property
    def whole(self) -> float:
        return self.seconds + 2 * self.context


class WhisperEngine:
    """Runs transformers' encoder on one window of at most 30 s, up to the layer that is asked for.

    Raises InputError for a precision other than fp32 and bf16.
    """

    def __init__(self, encoder: WhisperEncoder, precision: str, device: str) -> None:
        if precision not in ("fp32", "bf16"):
            raise InputError(f"Whisper's encoder runs in fp32 or bf16, not in {precision}")
        self.device = torch.device(device)
        self.model = encoder.to(device, torch.float32 if precision == "fp32" else torch.bfloat16)
        self.mel = WhisperFeatureExtractor(feature_size=encoder.config.num_mel_bins)
        self.lock = threading.Lock()  # torch's layers are safe beside each other, the extractor's buffers are not known to be

    def statistics(self, wave: torch.Tensor) -> None:
        """None: the loudest point of the log-mel, which scales it, is that of the window."""

    @torch.inference_mode()
    def states(self, piece: torch.Tensor, statistics: None, last: int) -> Iterator[torch.Tensor]:
        """Layers 0 to `last`, (T, D) each. piece: (N,) float32, at most 30 s."""
        frames, weight = GRID.frames(len(piece)), self.model.conv1.weight
        with self.lock:
            mel = self.mel(piece.numpy(), sampling_rate=SAMPLE_RATE, return_tensors="pt").input_features
        x = nn.functional.gelu(self.model.conv1(mel.to(weight.device, weight.dtype)))
        x = nn.functional.gelu(self.model.conv2(x)).transpose(1, 2)
        x = x + self.model.embed_positions.weight[: x.shape[1]]
        for n in range(last + 1):
            if n:
                x = self.model.layers[n - 1](x, None)
            yield (self.model.layer_norm(x) if n == len(self.model.layers) else x)[0, :frames].cpu()
