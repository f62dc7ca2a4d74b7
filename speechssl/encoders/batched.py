"""HuBERT and wav2vec 2.0 for a GPU: many utterances at a time, and none that depends on its batch mates.

Utterances are padded to a few fixed shapes (a batch that is not full, with silence), so that a kernel is chosen by an utterance's
own length alone. What padding would leak is kept out: the group norm has the utterance's own statistics, frames beyond its end are
set to zero before the positional convolution, as its zero padding would be, and no frame attends to them.

Letters: B utterances, N samples, T frames, C channels, K kernel size, D width, H heads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from speechssl.encoders.hubert import convolution_dtype
from speechssl.errors import InputError
from speechssl.timing import FrameGrid

# weights (B, C, K) and biases (B, C) of the first convolution, norm included, and what is taken from the samples before (B, 1)
Fitted = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
BATCH_SECONDS = 320.0  # of audio that are computed at a time
SHAPES = 128  # shapes that are compiled at most: one a rounded length and layer
STEP = 50  # frames: lengths are rounded up to a multiple of this, about 1 s

_FLAGS = threading.Lock()


@contextmanager
def exact() -> Iterator[None]:
    """fp32 is to be fp32, and not TF32, in convolutions too. cuDNN's flags are those of the process: of threads that share an
    encoder one at a time changes them, else the first to leave would have the others' convolutions rounded."""
    with _FLAGS, torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


class BatchedEngine:
    """Runs on `device`. precision: fp32 or bf16. Raises InputError for another precision."""

    def __init__(self, model: nn.Module, grid: FrameGrid, precision: str, device: str) -> None:
        if precision not in ("fp32", "bf16"):
            raise InputError(f"on {device} an encoder runs in fp32 or bf16, not in {precision}")
        self.config: Any = model.config
        self.grid, self.device = grid, torch.device(device)
        self.dtype = torch.float32 if precision == "fp32" else torch.bfloat16
        self.first = deepcopy(model.feature_extractor.conv_layers[0]).to(self.device)  # stays in float32
        positions = model.encoder.pos_conv_embed.conv.weight.to(self.device)  # once, not from its norm at every call
        self.positions = positions.to(convolution_dtype(positions, self.dtype))
        self.model: Any = model.to(self.device, self.dtype)
        self.group = self.config.feat_extract_norm == "group"
        self.compiled: Callable[..., torch.Tensor] = self._features
        if self.device.type == "cuda":
            torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, SHAPES)
            self.compiled = torch.compile(self._features, dynamic=False, fullgraph=True)

    @torch.inference_mode()
    def statistics(self, wave: torch.Tensor) -> Fitted:
        """The first convolution with this utterance's group norm in it. wave: (N,) float32."""
        return self._fitted(wave[None].to(self.device), torch.tensor([len(wave)], device=self.device))

    @torch.inference_mode()
    def states(self, piece: torch.Tensor, statistics: Fitted, last: int) -> Iterator[torch.Tensor]:
        """Layers 0 to `last` of one piece, (T, D) each. piece: (N,) float32."""
        piece = piece.to(self.device)
        frames = torch.tensor([self.grid.frames(len(piece))], device=self.device)
        states = self._states(piece[None], statistics, frames, last)
        while True:
            with exact():
                x = next(states, None)
            if x is None:
                return
            yield x[0].cpu()

    @torch.inference_mode()
    def features(self, waves: Sequence[torch.Tensor], layer: int) -> list[torch.Tensor]:
        """One layer of many utterances, in their order: (T_i, D) each, on the device. waves: (N_i,) float32 each."""
        found: list[torch.Tensor] = [torch.empty(0)] * len(waves)
        for size, places in self._buckets(waves):
            batch = torch.zeros(size, self.grid.samples_for(self._rounded(len(waves[places[0]]))) + self.grid.hop - 1)
            for row, place in enumerate(places):
                batch[row, : len(waves[place])] = waves[place]
            samples = torch.tensor([len(waves[p]) for p in places] + [self.grid.receptive] * (size - len(places)))
            with exact():
                x = self.compiled(batch.to(self.device), samples.to(self.device), layer)
            for row, place in enumerate(places):
                found[place] = x[row, : self.grid.frames(len(waves[place]))]
        return found

    def _rounded(self, samples: int) -> int:
        return -(-self.grid.frames(samples) // STEP) * STEP

    def _buckets(self, waves: Sequence[torch.Tensor]) -> Iterator[tuple[int, list[int]]]:
        """Batch size, and which utterances (at most so many) of one rounded length."""
        lengths: dict[int, list[int]] = {}
        for place, wave in enumerate(waves):
            lengths.setdefault(self._rounded(len(wave)), []).append(place)
        for frames, places in sorted(lengths.items()):
            size = max(int(BATCH_SECONDS * self.grid.frame_rate) // frames, 1)
            for start in range(0, len(places), size):
                yield size, places[start : start + size]

    def _features(self, waves: torch.Tensor, samples: torch.Tensor, layer: int) -> torch.Tensor:
        """(B, N), (B,) -> (B, T, D)."""
        frames = (samples - self.grid.receptive) // self.grid.hop + 1
        x = torch.empty(0)
        for x in self._states(waves, self._fitted(waves, samples), frames, layer):  # noqa: B007
            pass
        return x

    def _fitted(self, waves: torch.Tensor, samples: torch.Tensor) -> Fitted:
        """waves: (B, N); samples: (B,) how many of them are the utterance's."""
        conv, norm = self.first.conv, self.first.layer_norm
        weight = conv.weight[:, 0].double()  # (C, K)
        bias = torch.zeros_like(weight[:, 0]) if conv.bias is None else conv.bias.double()
        if not self.group:
            return weight.float().expand(len(waves), -1, -1), bias.float().expand(len(waves), -1), torch.zeros_like(waves[:, :1])
        there = torch.arange(waves.shape[1], device=waves.device) < samples[:, None]
        offset = ((waves.double() * there).sum(1, keepdim=True) / samples[:, None]).float()  # which the norm takes away in any case
        waves = waves - offset
        windows = waves.unfold(1, weight.shape[1], conv.stride[0]).double()  # (B, T, K)
        count = (samples - weight.shape[1]) // conv.stride[0] + 1
        mine = torch.arange(windows.shape[1], device=waves.device) < count[:, None]
        windows = windows * mine[..., None]
        mean = windows.sum(1) / count[:, None]  # (B, K)
        covariance = windows.transpose(1, 2) @ windows / count[:, None, None] - mean[:, :, None] * mean[:, None]
        variance = ((weight @ covariance) * weight).sum(-1)  # (B, C)
        scale = norm.weight.double() / torch.sqrt(variance + norm.eps)
        shift = norm.bias.double() - scale * (mean @ weight.T)
        return (scale[..., None] * weight).float(), shift.float(), offset

    def _states(self, waves: torch.Tensor, fitted: Fitted, frames: torch.Tensor, last: int) -> Iterator[torch.Tensor]:
        encoder, before = self.model.encoder, self.config.do_stable_layer_norm
        x = self.model.feature_projection(self._front(waves, *fitted))
        x = x[0] if isinstance(x, tuple) else x  # wav2vec 2.0 returns what it normalised as well
        mine = torch.arange(x.shape[1], device=x.device) < frames[:, None]  # (B, T)
        x = x * mine[..., None]
        x = x + self._places(encoder.pos_conv_embed.conv, x)
        x = x if before else encoder.layer_norm(x)
        yield x
        for layer in encoder.layers[:last]:
            x = self._layer(layer, x, mine[:, None, None], before)
            yield x

    def _front(self, waves: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
        """(B, N) -> (B, T, C)."""
        layers = self.model.feature_extractor.conv_layers
        windows, products = (waves - offset).unfold(1, weight.shape[2], layers[0].conv.stride[0]), weight.transpose(1, 2)
        if self.dtype == torch.bfloat16:  # samples and weights as sums of two bf16 numbers, three of the four products
            high, top = windows.bfloat16(), products.bfloat16()
            windows = torch.cat([high, (windows - high).bfloat16(), high], 2)
            products = torch.cat([top, top, (products - top).bfloat16()], 1)
        x = torch.baddbmm(bias[:, None].to(self.dtype), windows, products)
        x = F.gelu(x if self.group else layers[0].layer_norm(x))
        for layer in layers[1:]:
            weight, bias, stride = layer.conv.weight[:, :, None], layer.conv.bias, layer.conv.stride[0]
            kind = convolution_dtype(weight, self.dtype, stride)
            image = x.to(kind).transpose(1, 2)[:, :, None]  # (B, C, 1, T), channels last
            image = F.conv2d(image, weight.to(kind), None if bias is None else bias.to(kind), (1, stride))
            x = image[:, :, 0].transpose(1, 2).to(self.dtype)
            x = F.gelu(x if self.group else layer.layer_norm(x))
        return x

    def _places(self, conv: Any, x: torch.Tensor) -> torch.Tensor:
        """The positional convolution, (B, T, D) -> (B, T, D). An even kernel gives a frame too many."""
        weight = self.positions
        bias, image = conv.bias.to(weight.dtype), x.transpose(1, 2).to(weight.dtype)
        placed = F.conv1d(image, weight, bias, padding=conv.padding[0], groups=conv.groups).to(x.dtype)
        return F.gelu(placed[:, :, : x.shape[1]]).transpose(1, 2)

    def _layer(self, layer: Any, x: torch.Tensor, mine: torch.Tensor, before: bool) -> torch.Tensor:
        if before:
            x = x + self._attention(layer.attention, layer.layer_norm(x), mine)
            return x + layer.feed_forward(layer.final_layer_norm(x))
        x = layer.layer_norm(x + self._attention(layer.attention, x, mine))
        return layer.final_layer_norm(x + layer.feed_forward(x))

    def _attention(self, attention: Any, x: torch.Tensor, mine: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, T, D)."""
        projections = attention.q_proj, attention.k_proj, attention.v_proj
        q, k, v = (p(x).unflatten(-1, (self.config.num_attention_heads, -1)).transpose(1, 2) for p in projections)
        return attention.out_proj(F.scaled_dot_product_attention(q, k, v, attn_mask=mine).transpose(1, 2).flatten(2))
