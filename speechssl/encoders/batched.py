"""The kernels of a GPU compute many utterances at a time, of which none depends on the others in
its batch.

Utterances are padded to a few fixed shapes (a batch that is not full, with silence), so that a
kernel is chosen by an utterance's own length alone. What padding would leak is kept out: the group
norm has the utterance's own statistics, frames beyond its end are set to zero before the positional
convolution, as its zero padding would be, and no frame attends to them.

Letters: B utterances, N samples, T frames, C channels, K kernel size, D width.
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

from speechssl.encoders.hubert import (
    HubertBody,
    Plain,
    before_end,
    convolution_dtype,
    fold,
    identity,
    moments,
    split_in_halves,
)
from speechssl.timing import FrameGrid

# weights (B, C, K) and biases (B, C) of the first convolution, norm included, and what is taken
# from the samples before (B, 1)
Fitted = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
BATCH_SECONDS = 320.0  # of audio that are computed at a time
# frames: lengths are rounded up to a multiple of this, 1.3 s, which keeps rows aligned for the
# kernels of attention
STEP = 64
BLOCK = 16  # frames that one product of the positional convolution makes
PARTS = 64  # products that the moments of an utterance are the sum of

_FLAGS = threading.Lock()


@contextmanager
def exact() -> Iterator[None]:
    """Compute fp32 as fp32, and not TF32, in convolutions too. cuDNN's flags are those of the
    process: of threads that share an encoder one at a time changes them, else the first to leave
    would have the others' convolutions rounded."""
    with _FLAGS, torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


class BatchedKernels:
    """Compute by torch's own operations on the modules of transformers, which lie on the device in
    the type that is computed in."""

    layer_drop = 0.0

    def __init__(self, dtype: torch.dtype, device: torch.device):
        self.dtype = dtype
        self.device = device

    def convolution(self, conv: nn.Conv1d) -> Plain:
        def product(x: torch.Tensor) -> torch.Tensor:
            weight, bias, stride = conv.weight[:, :, None], conv.bias, conv.stride[0]
            kind = convolution_dtype(weight, self.dtype, stride)
            image = x.to(kind).transpose(1, 2)[:, :, None]  # (B, C, 1, T), channels last
            bias = None if bias is None else bias.to(kind)
            image = F.conv2d(image, weight.to(kind), bias, (1, stride))
            return image[:, :, 0].transpose(1, 2).to(self.dtype)

        return Plain(product)

    def norm(self, norm: nn.Module) -> nn.Module:
        return norm

    def projection(self, projection: Any) -> nn.Module:
        module: nn.Module = projection.projection
        return module

    def positions(self, conv: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        # once, not from its norm at every call
        weight = toeplitz(conv.weight.to(self.device), conv.groups).to(self.dtype)
        size = conv.weight.shape[2]

        def convolve(x: torch.Tensor) -> torch.Tensor:
            return F.gelu(convolve_blockwise(x, weight, conv.bias.to(x.dtype), size))

        return convolve

    def dropout(self, dropout: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        return identity

    def linear(self, linear: nn.Linear, dropout: nn.Module) -> Plain:
        # an adapter's hook is not called: `hubert.Adapted`
        return Plain(lambda x: F.linear(x, linear.weight, linear.bias))

    def attention(self, attention: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        def attend(x: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
            """Attend, (B, T, D) -> (B, T, D). real: (B, 1, 1, T) the frames to attend to."""
            projections = attention.q_proj, attention.k_proj, attention.v_proj
            q, k, v = (
                p(x).unflatten(-1, (attention.num_heads, -1)).transpose(1, 2) for p in projections
            )
            attended = F.scaled_dot_product_attention(q, k, v, attn_mask=real)
            return attended.transpose(1, 2).flatten(2)

        return attend


def toeplitz(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """Make the matrices by which `convolve_blockwise` computes a convolution in G groups: (C',
    C / G, K) -> (G, (K + 15) C / G, 16 C' / G)."""
    # (G, C' / G, C / G, K + 30)
    padded = F.pad(weight.unflatten(0, (groups, -1)), (BLOCK - 1, BLOCK - 1))
    # (..., K + 15, 16): frame i of a block has the kernel i places later
    shifted = padded.unfold(3, BLOCK, 1).flip(4)
    return shifted.permute(0, 3, 2, 4, 1).flatten(3).flatten(1, 2)


def convolve_blockwise(
    x: torch.Tensor, matrices: torch.Tensor, bias: torch.Tensor, size: int
) -> torch.Tensor:
    """Convolve over time with padding that keeps T, 16 frames by one product: a GPU has fast
    kernels for large products, and none for 48 channels a group and kernels of 128. The zeros in
    the matrices are an eighth more arithmetic.

    x: (B, T, C); matrices: those of `toeplitz`; size: K. Returns (B, T, C').
    """
    frames, groups = x.shape[1], len(matrices)
    blocks = -(-frames // BLOCK)
    x = F.pad(x, (0, 0, size // 2, blocks * BLOCK + size - 1 - size // 2 - frames))
    # (B, blocks, G, C / G, K + 15)
    windows = x.unflatten(2, (groups, -1)).unfold(1, BLOCK + size - 1, BLOCK)
    # (G, B blocks, 16 C' / G)
    y = torch.bmm(windows.permute(2, 0, 1, 4, 3).flatten(3).flatten(1, 2), matrices)
    y = y.unflatten(1, (len(x), -1)).unflatten(3, (BLOCK, -1)).permute(1, 2, 3, 0, 4)
    return y.flatten(3).flatten(1, 2)[:, :frames] + bias


def first_convolution(
    windows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Compute the first convolution: (B, T, K), (B, C, K), (B, C), all float32 -> (B, T, C).

    The bias is the weight of a column of ones. In bf16, samples and weights are each the sum of two
    bf16 numbers, three of whose four products are one. Rows of a multiple of 16 bytes are what a
    GPU's fast kernels can read.
    """
    left = torch.cat([windows, torch.ones_like(windows[..., :1])], 2)
    right = torch.cat([weight, bias[..., None]], 2)
    if dtype == torch.bfloat16:
        high, low = split_in_halves(left)
        top, rest = split_in_halves(right)
        left = torch.cat([high, low[..., :-1], high], 2)
        right = torch.cat([top, top[..., :-1], rest], 2)
    room = -left.shape[2] % 8
    return torch.bmm(F.pad(left, (0, room)), F.pad(right, (0, room)).transpose(1, 2))


class BatchedEngine:
    """Run the encoder on `device`. precision: fp32 or bf16."""

    def __init__(self, model: Any, grid: FrameGrid, precision: str, device: str) -> None:
        self.grid = grid
        self.device = torch.device(device)
        self.dtype = torch.float32 if precision == "fp32" else torch.bfloat16
        self.group = model.config.feat_extract_norm == "group"
        first = model.feature_extractor.conv_layers[0]
        self.first = deepcopy(first).to(self.device)  # stays in float32
        self.first_norm = None if self.group else first.layer_norm
        kernels = BatchedKernels(self.dtype, self.device)
        with torch.no_grad():
            positions = kernels.positions(model.encoder.pos_conv_embed.conv)
        self.hubert = HubertBody(model.to(self.device, self.dtype), kernels)
        self.hubert.positions = positions  # from weights that are not rounded yet

    @torch.inference_mode()
    def statistics(self, wave: torch.Tensor) -> Fitted:
        """Fold this utterance's group norm into the first convolution. wave: (N,) float32."""
        samples = torch.tensor([len(wave)], device=self.device)
        return self._fit(wave[None].to(self.device), samples)

    @torch.inference_mode()
    def states(self, piece: torch.Tensor, statistics: Fitted, last: int) -> Iterator[torch.Tensor]:
        """Yield layers 0 to `last` of one piece, (T, D) each. piece: (N,) float32."""
        frames = torch.tensor([self.grid.frames(len(piece))], device=self.device)
        states = self._states(piece[None].to(self.device), statistics, frames, last)
        while True:
            with exact():
                x = next(states, None)
            if x is None:
                return
            yield x[0].cpu()

    @torch.inference_mode()
    def features(self, waves: Sequence[torch.Tensor], layer: int) -> list[torch.Tensor]:
        """Return one layer of many utterances, in their order: (T_i, D) each, on the device. waves:
        (N_i,) float32 each."""
        lengths: dict[int, list[int]] = {}  # in frames, rounded up, of which utterances
        for place, wave in enumerate(waves):
            frames = -(-self.grid.frames(len(wave)) // STEP) * STEP
            lengths.setdefault(frames, []).append(place)
        features: list[torch.Tensor] = [torch.empty(0)] * len(waves)
        for frames, utterances in sorted(lengths.items()):
            size = max(int(BATCH_SECONDS * self.grid.frame_rate) // frames, 1)
            for start in range(0, len(utterances), size):
                places = utterances[start : start + size]
                # pinned, so that the next batch is filled while the GPU still computes this one
                pinned = self.device.type == "cuda"
                width = self.grid.samples_for(frames) + self.grid.hop - 1
                batch = torch.empty(size, width, pin_memory=pinned)
                samples = torch.full((size,), self.grid.receptive, pin_memory=pinned)
                batch[len(places) :] = 0
                for row, place in enumerate(places):
                    length = len(waves[place])
                    samples[row] = length
                    batch[row, :length] = waves[place]
                    batch[row, length:] = 0
                with exact():
                    x = self._features(
                        batch.to(self.device, non_blocking=True),
                        samples.to(self.device, non_blocking=True),
                        layer,
                    )
                for row, place in enumerate(places):
                    features[place] = x[row, : self.grid.frames(len(waves[place]))]
        return features

    def _features(self, waves: torch.Tensor, samples: torch.Tensor, layer: int) -> torch.Tensor:
        """Return one layer, (B, T, D), of waves (B, N), of which `samples` (B,) are real."""
        frames = (samples - self.grid.receptive) // self.grid.hop + 1
        x = torch.empty(0)
        for x in self._states(waves, self._fit(waves, samples), frames, layer):  # noqa: B007
            pass
        return x

    def _fit(self, waves: torch.Tensor, samples: torch.Tensor) -> Fitted:
        """Fold the group norm of every utterance into the first convolution.

        waves: (B, N); samples: (B,) how many of them are the utterance's.
        """
        conv = self.first.conv
        weight = conv.weight[:, 0].double()  # (C, K)
        if not self.group:
            bias = torch.zeros_like(weight[:, 0]) if conv.bias is None else conv.bias
            return (
                weight.float().expand(len(waves), -1, -1),
                bias.float().expand(len(waves), -1),
                torch.zeros_like(waves[:, :1]),
            )
        real = before_end(samples, waves.shape[1])
        # which the norm takes away in any case
        offset = ((waves.double() * real).sum(1, keepdim=True) / samples[:, None]).float()
        windows = (waves - offset).unfold(1, weight.shape[1], conv.stride[0])  # (B, T, K)
        statistics = moments(windows, (samples - weight.shape[1]) // conv.stride[0] + 1, PARTS)
        weights, biases = fold(self.first.layer_norm, weight, *statistics)
        return weights.float(), biases.float(), offset

    def _states(
        self, waves: torch.Tensor, fitted: Fitted, frames: torch.Tensor, last: int
    ) -> Iterator[torch.Tensor]:
        weight, bias, offset = fitted
        windows = (waves - offset).unfold(1, weight.shape[2], self.first.conv.stride[0])
        x = first_convolution(windows, weight, bias, self.dtype)
        x = F.gelu(x if self.first_norm is None else self.first_norm(x))
        x = self.hubert.project(self.hubert.convolve(x))
        real = before_end(frames, x.shape[1])
        yield from self.hubert.states(x * real[..., None], real[:, None, None], last)
