"""HuBERT and wav2vec 2.0 on a CPU without the passes over memory that are not needed, on transformers' own weights.

One utterance at a time: nothing is padded, and no utterance sees its batch mates. oneDNN adds bias, GELU and residual to a product
while the result is still in registers. The group norm after the first convolution is folded into that utterance's weights: mean and
variance of a channel follow from mean and covariance of the windows of raw samples. The convolutions run in blocks of time that
stay in the cache, and give what one pass would give.

Letters: N samples, T frames, C channels, D width, H heads, K kernel size, S stride.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from speechssl.errors import InputError
from speechssl.timing import FrameGrid

# In which type of numbers a convolution is computed.


def convolution_dtype(weight: torch.Tensor, dtype: torch.dtype, stride: int = 1) -> torch.dtype:
    """float32 where oneDNN's sums in `dtype` may be wrong, else `dtype`. weight: (C', C / groups, K) of any further axes.

    On a processor with AMX, oneDNN 3.10.2 (that of torch 2.11) computes two kinds of bf16 convolutions wrongly, by as much as the
    result is large and without a warning: of C / groups = 2 to 14 channels, where a kernel's K C / groups numbers are a multiple of
    32 above 32; and of 16 to 30 channels with a stride of 4 or more that divides both K and the frames. Found by trying; with one
    channel, with 16 and small strides, and from 32 on all that were tried are right, and so are all gradients. The published sizes
    (512 channels in the front end, 48 or 64 in each of 16 groups of the positional convolution) stay in bf16.
    tests/known_issues/test_onednn_grouped_bf16.py measures it.
    """
    narrow = 1 < weight.shape[1] < (16 if stride < 4 else 32)
    return torch.float32 if narrow and weight.device.type == "cpu" and dtype == torch.bfloat16 else dtype


onednn, quantised = torch.ops.mkldnn, torch.ops.onednn.qlinear_pointwise
BLOCK = 64  # frames of the front end computed at a time, about 1.3 s of speech
LN_2 = math.log(2)
SMALLEST = 1e-30  # sum of attention weights that is neither too small nor, inverted, too large
SCORES = 6 << 20  # bytes of attention scores that are worked on at a time, for the cache


def is_known(config: Any) -> bool:
    """Whether this file computes an architecture: HuBERT or wav2vec 2.0 with GELU and without adapters or batch norm."""
    return (
        config.model_type in ("hubert", "wav2vec2")
        and config.feat_extract_activation == config.hidden_act == "gelu"
        and not getattr(config, "conv_pos_batch_norm", False)
        and not getattr(config, "add_adapter", False)
        and getattr(config, "adapter_attn_dim", None) is None
    )


def own(tensor: Any, dtype: torch.dtype) -> Any:
    """A copy (of None: None): what is only a view keeps the whole checkpoint in memory."""
    return None if tensor is None else tensor.to(dtype, copy=True)


class Linear:
    """x W^T + b, and what follows it, in one pass. x: (T, in) -> (T, out)."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype):
        self.weight = onednn._reorder_linear_weight(weight.to(dtype).contiguous())
        self.bias = own(bias, dtype)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return onednn._linear_pointwise(x, self.weight, self.bias, "none", [], "")

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return onednn._linear_pointwise(x, self.weight, self.bias, "gelu", [], "none")

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return onednn._linear_pointwise.binary(x, other, self.weight, self.bias, "add")


def in_bytes(x: torch.Tensor) -> tuple[torch.Tensor, float, int]:
    """x as uint8, and the scale and zero point that use its range."""
    low, high = (float(value) for value in torch.aminmax(x))
    low, high = min(low, 0.0), max(high, 0.0)
    scale = max(high - low, 1e-12) / 255
    zero = round(-low / scale)
    levels = torch.quantize_per_tensor(x.float(), scale, zero, torch.quint8)
    return torch.empty(0, dtype=torch.uint8).set_(levels.untyped_storage(), 0, levels.shape, levels.stride()), scale, zero


class Quantised:
    """`Linear` with 8-bit weights (a scale a row) and inputs (a scale and zero point a call, from what is there)."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype):
        self.scale = weight.abs().amax(1).clamp_min(1e-12) / 127
        self.weight = torch.ops.onednn.qlinear_prepack((weight / self.scale[:, None]).round().to(torch.int8), None)
        self.bias, self.zero, self.dtype = own(bias, torch.float32), torch.zeros(len(weight), dtype=torch.long), dtype

    def product(self, levels: torch.Tensor, scale: float, zero: int, gelu: bool = False) -> torch.Tensor:
        """levels: (T, in) uint8."""
        after: tuple[str, list[float], str] = ("gelu", [], "none") if gelu else ("none", [], "")
        return quantised(levels, scale, zero, self.weight, self.scale, self.zero, self.bias, 1.0, 0, self.dtype, *after)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(*in_bytes(x))

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(*in_bytes(x), gelu=True)

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        product = *in_bytes(x), self.weight, self.scale, self.zero
        return quantised.binary(*product, other, self.bias, 1.0, 0, self.dtype, 1.0, 0, "add", 1.0, "none", [], "")


class Norm:
    """Layer norm over the last axis."""

    def __init__(self, norm: nn.Module, dtype: torch.dtype):
        self.weight, self.bias, self.eps = own(norm.weight, dtype), own(norm.bias, dtype), norm.eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class Convolution:
    """A strided convolution over time of what lies in memory as (T, C). x: (T, C) -> (T', C')."""

    def __init__(self, conv: nn.Conv1d, dtype: torch.dtype):
        self.stride, self.padding, self.groups = [1, conv.stride[0]], [0, int(conv.padding[0])], conv.groups
        self.dtype = convolution_dtype(conv.weight, dtype, conv.stride[0])
        weight = conv.weight.to(self.dtype)[:, :, None].contiguous()  # (C', C / groups, 1, K)
        shape = [1, conv.in_channels, 1, (BLOCK - 1) * conv.stride[0] + conv.kernel_size[0]]
        self.weight = onednn._reorder_convolution_weight(weight, self.padding, self.stride, [1, 1], conv.groups, shape)
        self.bias = own(conv.bias, self.dtype)

    def __call__(self, x: torch.Tensor, gelu: bool) -> torch.Tensor:
        image = x.to(self.dtype).t()[None, :, None]  # (1, C, 1, T), channels last
        after: tuple[str, list[float], str] = ("gelu", [], "none") if gelu else ("none", [], "")
        y = onednn._convolution_pointwise(image, self.weight, self.bias, self.padding, self.stride, [1, 1], self.groups, *after)
        return y[0, :, 0].t().to(x.dtype)


class QuantisedConvolution:
    """`Convolution` in 8 bits: what lies in memory as (T, C) holds windows of K frames as K C neighbouring numbers."""

    def __init__(self, conv: nn.Conv1d, dtype: torch.dtype):
        self.size, self.stride = conv.kernel_size[0], conv.stride[0]
        self.linear = Quantised(conv.weight.transpose(1, 2).flatten(1), conv.bias, dtype)

    def __call__(self, x: torch.Tensor, gelu: bool) -> torch.Tensor:
        levels, scale, zero = in_bytes(x)
        shape = (len(x) - self.size) // self.stride + 1, self.size * x.shape[1]
        return self.linear.product(levels.as_strided(shape, (self.stride * x.shape[1], 1)), scale, zero, gelu)


class Fitted(NamedTuple):
    """The first convolution for one utterance, and what is to be taken from its samples before."""

    linear: Linear
    offset: torch.Tensor


class Samples:
    """The first convolution, as a product of windows of raw samples. In bf16, samples and weights are each the sum of two bf16
    numbers, and three of the four products fit into the same 32 columns that one would take."""

    def __init__(self, conv: nn.Conv1d, norm: nn.Module, stride: int, group: bool, dtype: torch.dtype):
        self.weight = conv.weight[:, 0].double()  # (C, K)
        self.bias = torch.zeros(len(self.weight), dtype=torch.double) if conv.bias is None else conv.bias.double()
        self.norm, self.stride, self.group, self.dtype = Norm(norm, torch.double), stride, group, dtype
        self.after = None if group else Norm(norm, dtype)

    def fitted(self, wave: torch.Tensor) -> Fitted:
        """The convolution of one utterance, its group norm folded in. wave: (N,) float32.

        That norm takes away what a constant adds, so that it may as well be taken from the samples: else little would be left of
        quiet speech beside it in bf16.
        """
        offset = wave.mean(dtype=torch.double).float() if self.group else wave.new_zeros(())
        return Fitted(self._folded(wave, offset), offset)

    def _folded(self, wave: torch.Tensor, offset: torch.Tensor) -> Linear:
        weight, bias = self.weight, self.bias
        if self.group:
            mean, covariance = self._moments(wave, offset)
            variance = ((weight @ covariance) * weight).sum(1)
            scale = self.norm.weight / torch.sqrt(variance + self.norm.eps)
            bias = self.norm.bias - scale * (weight @ mean)  # the convolution's own bias is part of the mean
            weight = scale[:, None] * weight
        weight = weight.float()
        if self.dtype == torch.bfloat16:
            high = weight.bfloat16().float()
            weight = torch.cat([high, high, weight - high], 1)
        return Linear(weight, bias.float(), self.dtype)

    def _moments(self, wave: torch.Tensor, offset: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean (K,) and covariance (K, K) of all windows, in float64."""
        windows = self._windows(wave)
        total = torch.zeros(windows.shape[1], dtype=torch.double)
        squares = torch.outer(total, total)
        for part in windows.split(1 << 16):
            part = part.double() - offset
            total += part.sum(0)
            squares += part.t() @ part
        mean = total / len(windows)
        return mean, squares / len(windows) - torch.outer(mean, mean)

    def _windows(self, wave: torch.Tensor) -> torch.Tensor:
        return wave.unfold(0, self.weight.shape[1], self.stride)

    def __call__(self, wave: torch.Tensor, linear: Linear) -> torch.Tensor:
        x = self._windows(wave)
        if self.dtype == torch.bfloat16:
            high = wave.bfloat16()
            low = self._windows((wave - high.float()).bfloat16())
            high = self._windows(high)
            x = torch.cat([high, low, high], 1)
        else:
            x = x.contiguous()
        if self.after is None:
            return linear.gelu(x)
        return F.gelu(self.after(linear(x)))


class FrontEnd:
    """The convolutions: samples to frames."""

    def __init__(self, model: nn.Module, dtype: torch.dtype, convolution: type[Convolution] | type[QuantisedConvolution]):
        config: Any = model.config
        layers: Any = model.feature_extractor.conv_layers
        group = config.feat_extract_norm == "group"
        self.samples = Samples(layers[0].conv, layers[0].layer_norm, config.conv_stride[0], group, dtype)
        self.convolutions = [convolution(x.conv, dtype) for x in layers[1:]]
        self.norms = [None if group else Norm(x.layer_norm, dtype) for x in layers[1:]]
        self.grid = FrameGrid.of_convolutions(16_000, config.conv_kernel, config.conv_stride)

    def blocks(self, wave: torch.Tensor, linear: Linear) -> Iterator[torch.Tensor]:
        """(up to BLOCK, C) frames at a time. wave: (N,) float32."""
        frames = self.grid.frames(len(wave))
        for first in range(0, frames, BLOCK):
            start, count = first * self.grid.hop, min(BLOCK, frames - first)
            x = self.samples(wave[start : start + self.grid.samples_for(count)], linear)
            for convolution, norm in zip(self.convolutions, self.norms, strict=True):
                x = convolution(x, norm is None)
                if norm is not None:
                    x = F.gelu(norm(x))
            yield x

    def __call__(self, wave: torch.Tensor, linear: Linear) -> torch.Tensor:
        """(N,) float32 -> (T, C)."""
        return torch.cat(list(self.blocks(wave, linear)))


class Positions:
    """The convolution that tells places apart: GELU of a grouped one, added to its input. (T, D) -> (T, D)."""

    def __init__(self, conv: nn.Conv1d, dtype: torch.dtype):
        self.convolution = Convolution(conv, dtype)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.convolution(x, gelu=True)[: len(x)]  # an even kernel gives a frame too many


def _weights(scores: torch.Tensor) -> torch.Tensor | None:
    """Powers of two of scores, in place, and their sums over the last axis: a softmax without its maximum and its division.

    None where a sum leaves the range in which nothing has overflowed or vanished that counts.
    """
    total = torch.exp2(scores, out=scores).sum(-1)
    low, high = torch.aminmax(total)
    return total if low > SMALLEST and high < 1 / SMALLEST else None


class Layer:
    """One transformer layer."""

    def __init__(self, layer: nn.Module, before: bool, heads: int, dtype: torch.dtype, linear: type[Linear] | type[Quantised]):
        a, f = layer.attention, layer.feed_forward
        scale = (a.q_proj.out_features // heads) ** -0.5 / LN_2  # of the scores, for powers of two, moved into the queries
        weight = torch.cat([a.q_proj.weight * scale, a.k_proj.weight, a.v_proj.weight])
        self.qkv = linear(weight, torch.cat([a.q_proj.bias * scale, a.k_proj.bias, a.v_proj.bias]), dtype)
        self.out = linear(a.out_proj.weight, a.out_proj.bias, dtype)
        self.up = linear(f.intermediate_dense.weight, f.intermediate_dense.bias, dtype)
        self.down = linear(f.output_dense.weight, f.output_dense.bias, dtype)
        self.norm, self.final = Norm(layer.layer_norm, dtype), Norm(layer.final_layer_norm, dtype)
        self.before, self.heads = before, heads

    def attention(self, x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Plain products and exponentials that stay in the cache: faster than the fused attention of a CPU, above all in bf16.

        scores: (h, T, T) to work in, for h heads at a time.
        """
        q, k, v = self.qkv(x).view(len(x), 3, self.heads, -1).permute(1, 2, 0, 3)
        heard = x.new_empty(q.shape)
        for first in range(0, self.heads, len(scores)):
            some = slice(first, min(first + len(scores), self.heads))
            room = scores[: some.stop - first]
            torch.bmm(q[some], k[some].transpose(1, 2), out=room)
            total = _weights(room)
            if total is None:  # numbers that are too far apart for the short way
                torch.bmm(q[some], k[some].transpose(1, 2), out=room)
                torch.softmax(room.mul_(LN_2), -1, out=room)
            torch.bmm(room, v[some], out=heard[some])
            if total is not None:
                heard[some] /= total[..., None]
        return heard.transpose(0, 1).reshape(len(x), -1)

    def __call__(self, x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self.before:
            x = self.out.plus(self.attention(self.norm(x), scores), x)
            return self.down.plus(self.up.gelu(self.final(x)), x)
        x = self.norm(self.out.plus(self.attention(x, scores), x))
        return self.final(self.down.plus(self.up.gelu(x), x))


class FastEngine:
    """All of it. precision: fp32 (what transformers gives, to rounding), bf16, or int8 (convolutions and linear maps).

    Raises InputError where the processor has no bf16 products.
    """

    @torch.inference_mode()
    def __init__(self, model: nn.Module, precision: str = "fp32"):
        config: Any = model.config
        dtype = torch.float32 if precision == "fp32" else torch.bfloat16
        if dtype == torch.bfloat16 and not onednn._is_mkldnn_bf16_supported():
            raise InputError(f"this processor has no bf16 arithmetic, which {precision} needs; encode in fp32")
        linear = Quantised if precision == "int8" else Linear
        convolution = QuantisedConvolution if precision == "int8" else Convolution
        before = config.do_stable_layer_norm
        self.front = FrontEnd(model, dtype, convolution)
        projection = model.feature_projection
        self.norm = Norm(projection.layer_norm, dtype) if hasattr(projection, "layer_norm") else None
        self.project = Linear(projection.projection.weight, projection.projection.bias, dtype)
        self.positions = Positions(model.encoder.pos_conv_embed.conv, dtype)
        self.first = None if before else Norm(model.encoder.layer_norm, dtype)  # else it comes after the last layer
        self.heads = config.num_attention_heads
        self.layers = [Layer(x, before, self.heads, dtype, linear) for x in model.encoder.layers]

    @torch.inference_mode()
    def statistics(self, wave: torch.Tensor) -> Fitted:
        """The first convolution with this utterance's group norm in it."""
        return self.front.samples.fitted(wave)

    @torch.inference_mode()
    def states(self, piece: torch.Tensor, statistics: Fitted, last: int) -> Iterator[torch.Tensor]:
        """Layers 0 to `last`, (T, D) each, as they are computed. piece: (N,) float32."""
        x = self.front(piece - statistics.offset, statistics.linear)
        x = self.project(x if self.norm is None else self.norm(x))
        x = self.positions(x)
        x = x if self.first is None else self.first(x)
        yield x
        at_once = max(min(SCORES // (len(x) ** 2 * x.element_size()), self.heads), 1)
        scores = x.new_empty(at_once, len(x), len(x))
        for layer in self.layers[:last]:
            x = layer(x, scores)
            yield x
