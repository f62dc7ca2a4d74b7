"""The kernels of a CPU: one utterance at a time, without the passes over memory that are not needed.

Nothing is padded, and no utterance depends on others. oneDNN adds bias, GELU and residual to a product while the result is still in
registers. The convolutions run in blocks of time that stay in the cache, and give what one pass would give.

Letters: N samples, T frames, C channels, D width, H heads, K kernel size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from speechssl.encoders.hubert import Hubert, convolution_dtype, fold, identity, in_halves
from speechssl.errors import InputError
from speechssl.timing import FrameGrid

onednn, quantised = torch.ops.mkldnn, torch.ops.onednn.qlinear_pointwise
BLOCK = 64  # frames of the front end computed at a time, about 1.3 s of speech
WINDOWS = 1 << 16  # windows of samples whose moments are taken at a time
LN_2 = math.log(2)
SMALLEST = 1e-30  # sum of attention weights that is neither too small nor, inverted, too large
SCORES = 6 << 20  # bytes of attention scores that are worked on at a time, for the cache
NOTHING: tuple[str, list[float], str] = ("none", [], "")  # what follows a product
GELU: tuple[str, list[float], str] = ("gelu", [], "none")


def own(tensor: Any, dtype: torch.dtype) -> Any:
    """A copy (of None: None): what is only a view keeps the whole checkpoint in memory."""
    return None if tensor is None else tensor.to(dtype, copy=True)


class Linear:
    """x W^T + b, and what follows it, in one pass. x: (T, in) -> (T, out)."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype):
        self.weight = onednn._reorder_linear_weight(weight.to(dtype).contiguous())
        self.bias = own(bias, dtype)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return onednn._linear_pointwise(x, self.weight, self.bias, *NOTHING)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return onednn._linear_pointwise(x, self.weight, self.bias, *GELU)

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return onednn._linear_pointwise.binary(x, other, self.weight, self.bias, "add")


class Quantised:
    """`Linear` with 8-bit weights (a scale a row) and inputs (a scale and zero point a call, from what is there)."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype):
        self.scale = weight.abs().amax(1).clamp_min(1e-12) / 127
        self.weight = torch.ops.onednn.qlinear_prepack((weight / self.scale[:, None]).round().to(torch.int8), None)
        self.bias, self.zero, self.dtype = own(bias, torch.float32), torch.zeros(len(weight), dtype=torch.long), dtype

    def levels(self, x: torch.Tensor) -> tuple[torch.Tensor, float, int]:
        """x as uint8, and the scale and zero point that use its range."""
        low, high = (float(value) for value in torch.aminmax(x))
        low, high = min(low, 0.0), max(high, 0.0)
        scale = max(high - low, 1e-12) / 255
        zero = round(-low / scale)
        levels = torch.quantize_per_tensor(x.float(), scale, zero, torch.quint8)
        return torch.empty(0, dtype=torch.uint8).set_(levels.untyped_storage(), 0, levels.shape, levels.stride()), scale, zero

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return quantised(*self.levels(x), self.weight, self.scale, self.zero, self.bias, 1.0, 0, self.dtype, *NOTHING)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return quantised(*self.levels(x), self.weight, self.scale, self.zero, self.bias, 1.0, 0, self.dtype, *GELU)

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        product = *self.levels(x), self.weight, self.scale, self.zero
        return quantised.binary(*product, other, self.bias, 1.0, 0, self.dtype, 1.0, 0, "add", 1.0, *NOTHING)


class QuantisedConvolution(Quantised):
    """`Convolution` in 8 bits: what lies in memory as (T, C) holds windows of K frames as K C neighbouring numbers."""

    def __init__(self, conv: nn.Conv1d, dtype: torch.dtype):
        self.size, self.stride = conv.kernel_size[0], conv.stride[0]
        super().__init__(conv.weight.transpose(1, 2).flatten(1), conv.bias, dtype)

    def levels(self, x: torch.Tensor) -> tuple[torch.Tensor, float, int]:
        levels, scale, zero = super().levels(x)
        shape = (len(x) - self.size) // self.stride + 1, self.size * x.shape[1]
        return levels.as_strided(shape, (self.stride * x.shape[1], 1)), scale, zero


class Convolution:
    """A strided convolution over time of what lies in memory as (T, C). x: (T, C) -> (T', C')."""

    def __init__(self, conv: nn.Conv1d, dtype: torch.dtype):
        self.stride, self.padding, self.groups = [1, conv.stride[0]], [0, int(conv.padding[0])], conv.groups
        self.dtype = convolution_dtype(conv.weight, dtype, conv.stride[0])
        weight = conv.weight.to(self.dtype)[:, :, None].contiguous()  # (C', C / groups, 1, K)
        shape = [1, conv.in_channels, 1, (BLOCK - 1) * conv.stride[0] + conv.kernel_size[0]]
        self.weight = onednn._reorder_convolution_weight(weight, self.padding, self.stride, [1, 1], conv.groups, shape)
        self.bias = own(conv.bias, self.dtype)

    def __call__(self, x: torch.Tensor, after: tuple[str, list[float], str] = NOTHING) -> torch.Tensor:
        image = x.to(self.dtype).t()[None, :, None]  # (1, C, 1, T), channels last
        y = onednn._convolution_pointwise(image, self.weight, self.bias, self.padding, self.stride, [1, 1], self.groups, *after)
        return y[0, :, 0].t().to(x.dtype)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return self(x, GELU)

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return other + self(x)


class Attention:
    """Plain products and exponentials that stay in the cache: faster than the fused attention of a CPU, above all in bf16."""

    def __init__(self, attention: Any, dtype: torch.dtype, linear: type[Linear] | type[Quantised]):
        self.heads = attention.num_heads
        q, k, v = attention.q_proj, attention.k_proj, attention.v_proj
        scale = (q.out_features // self.heads) ** -0.5 / LN_2  # of the scores, for powers of two, moved into the queries
        weight, bias = torch.cat([q.weight * scale, k.weight, v.weight]), torch.cat([q.bias * scale, k.bias, v.bias])
        self.qkv = linear(weight, bias, dtype)

    def __call__(self, x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """(T, D) -> (T, D). scores: (h, T, T) to work in, for h heads at a time.

        A softmax without its maximum and its division: powers of two of the scores, in place, and their sums. Where a sum leaves
        the range in which nothing has overflowed or vanished that counts, torch's own takes over.
        """
        q, k, v = self.qkv(x).view(len(x), 3, self.heads, -1).permute(1, 2, 0, 3)
        found = x.new_empty(q.shape)
        for first in range(0, self.heads, len(scores)):
            some = slice(first, min(first + len(scores), self.heads))
            room = scores[: some.stop - first]
            torch.bmm(q[some], k[some].transpose(1, 2), out=room)
            total = torch.exp2(room, out=room).sum(-1)
            low, high = torch.aminmax(total)
            in_range = bool(low > SMALLEST and high < 1 / SMALLEST)
            if not in_range:
                torch.bmm(q[some], k[some].transpose(1, 2), out=room)
                torch.softmax(room.mul_(LN_2), -1, out=room)
            torch.bmm(room, v[some], out=found[some])
            if in_range:
                found[some] /= total[..., None]
        return found.transpose(0, 1).reshape(len(x), -1)


class CpuKernels:
    """precision: fp32, bf16, or int8 (convolutions of the front end and linear maps of the layers; the rest in bf16)."""

    layer_drop = 0.0

    def __init__(self, precision: str):
        self.dtype = torch.float32 if precision == "fp32" else torch.bfloat16
        self.int8 = precision == "int8"

    def convolution(self, conv: nn.Conv1d) -> Convolution | QuantisedConvolution:
        return QuantisedConvolution(conv, self.dtype) if self.int8 else Convolution(conv, self.dtype)

    def norm(self, norm: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        weight, bias = own(norm.weight, self.dtype), own(norm.bias, self.dtype)
        return partial(F.layer_norm, normalized_shape=weight.shape, weight=weight, bias=bias, eps=norm.eps)

    def projection(self, projection: Any) -> Linear:
        return Linear(projection.projection.weight, projection.projection.bias, self.dtype)

    def positions(self, conv: nn.Conv1d) -> Callable[[torch.Tensor], torch.Tensor]:
        convolution = Convolution(conv, self.dtype)
        return lambda x: convolution.gelu(x)[: len(x)]  # an even kernel gives a frame too many

    def dropout(self, dropout: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        return identity

    def linear(self, linear: nn.Linear, dropout: nn.Module) -> Linear | Quantised:
        return (Quantised if self.int8 else Linear)(linear.weight, linear.bias, self.dtype)

    def attention(self, attention: Any) -> Attention:
        return Attention(attention, self.dtype, Quantised if self.int8 else Linear)


Fitted = tuple[Linear, torch.Tensor]  # the first convolution for one utterance, and what is to be taken from its samples before


class FastEngine:
    """The whole encoder. precision: fp32 (what transformers gives, to rounding), bf16, or int8.

    The first convolution is a product of windows of raw samples. In bf16, samples and weights are each the sum of two bf16 numbers,
    and three of the four products fit into the same 32 columns that one would take.
    Raises InputError where the processor has no bf16 products.
    """

    @torch.inference_mode()
    def __init__(self, model: Any, precision: str = "fp32"):
        kernels, config = CpuKernels(precision), model.config
        self.dtype = kernels.dtype
        if self.dtype == torch.bfloat16 and not onednn._is_mkldnn_bf16_supported():
            raise InputError(f"this processor has no bf16 arithmetic, which {precision} needs; encode in fp32")
        first = model.feature_extractor.conv_layers[0]
        self.weight = first.conv.weight[:, 0].double()  # (C, K)
        self.bias = torch.zeros(len(self.weight), dtype=torch.double) if first.conv.bias is None else first.conv.bias.double()
        self.stride = first.conv.stride[0]
        group = config.feat_extract_norm == "group"
        self.group_norm = deepcopy(first.layer_norm) if group else None
        self.norm = None if group else kernels.norm(first.layer_norm)
        self.hubert, self.heads = Hubert(model, kernels), config.num_attention_heads
        self.grid = FrameGrid.of_convolutions(16_000, config.conv_kernel, config.conv_stride)

    @torch.inference_mode()
    def statistics(self, wave: torch.Tensor) -> Fitted:
        """The first convolution with this utterance's group norm folded in. wave: (N,) float32.

        That norm takes away what a constant adds, so that it may as well be taken from the samples: else little would be left of
        quiet speech beside it in bf16.
        """
        weight, bias, offset = self.weight, self.bias, wave.new_zeros(())
        if self.group_norm is not None:
            offset = wave.mean(dtype=torch.double).float()
            windows = wave.unfold(0, weight.shape[1], self.stride)
            total = torch.zeros(windows.shape[1], dtype=torch.double)
            squares = torch.outer(total, total)
            for part in windows.split(WINDOWS):  # `moments` of an hour would not fit
                part = part.double() - offset
                total += part.sum(0)
                squares += part.t() @ part
            mean = total / len(windows)
            weight, bias = fold(self.group_norm, weight, mean, squares / len(windows) - torch.outer(mean, mean))
        weight = weight.float()
        if self.dtype == torch.bfloat16:
            high = weight.bfloat16().float()
            weight = torch.cat([high, high, weight - high], 1)
        return Linear(weight, bias.float(), self.dtype), offset

    @torch.inference_mode()
    def states(self, piece: torch.Tensor, statistics: Fitted, last: int) -> Iterator[torch.Tensor]:
        """Layers 0 to `last`, (T, D) each, as they are computed. piece: (N,) float32."""
        linear, offset = statistics
        wave, frames = piece - offset, self.grid.frames(len(piece))
        blocks = []
        for first in range(0, frames, BLOCK):  # of the front end
            start = first * self.grid.hop
            block = wave[start : start + self.grid.samples_for(min(BLOCK, frames - first))]
            if self.dtype == torch.bfloat16:
                high, low = (x.unfold(0, self.weight.shape[1], self.stride) for x in in_halves(block))
                windows = torch.cat([high, low, high], 1)
            else:
                windows = block.unfold(0, self.weight.shape[1], self.stride).contiguous()
            x = linear.gelu(windows) if self.norm is None else F.gelu(self.norm(linear(windows)))
            blocks.append(self.hubert.convolved(x))
        x = self.hubert.projected(torch.cat(blocks))
        at_once = max(min(SCORES // (len(x) ** 2 * x.element_size()), self.heads), 1)
        yield from self.hubert.states(x, x.new_empty(at_once, len(x), len(x)), last)
