"""The kernels of training compute what transformers' modules do, with gradients, in fewer passes
over memory.

Parameters stay where they are, so that optimiser, checkpoints and loading know nothing of it.
Dropout and layer drop are drawn as transformers draws them: with the same seed they drop the same.
Everything lies in memory as (batch, time, channel), which oneDNN's convolutions read as it is; the
gradient of a convolution's weights is one product with windows that lie in memory already. Weights
are cast to bf16 once a step, where they are used. In fp32 oneDNN computes all products: on
processors of other makers than its own, the library behind `torch.mm` is half as fast. On a GPU
torch's own operations are taken: the many small products that are fast on a CPU would wait for each
other.

Letters: B utterances, N samples, T frames, C channels, D width, H heads, K kernel size, M rows of a
product.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd import Function
from torch.nn import functional as F

from speechssl.encoders.batched import PARTS, convolve_blockwise, first_convolution, toeplitz
from speechssl.encoders.hubert import (
    HubertBody,
    Plain,
    before_end,
    check_known,
    convolution_dtype,
    fold,
    frames_of_samples,
    has_onednn,
    moments,
    split_in_halves,
)

onednn = torch.ops.mkldnn
BLOCK = 1024  # windows that are copied at a time
# bytes of attention weights that a layer keeps for its gradient; above, they are computed again
KEPT = 64 << 20


def product(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Return x W^T + b. x: (M, in), weight: (out, in), either of any strides."""
    if not x.is_cpu or not has_onednn():
        return F.linear(x, weight, bias)
    half = x.dtype == torch.bfloat16 and bias is not None
    if x.dtype == torch.float32 or (half and onednn._is_mkldnn_bf16_supported()):
        return onednn._linear_pointwise(x, weight, bias, "none", [], "")
    return F.linear(x, weight, bias)


class LinearFunction(Function):
    """Compute x W^T + b for several (W, b) side by side. x: (..., in) -> (..., sum of out)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        weights, biases = parameters[::2], parameters[1::2]
        rows = x.reshape(-1, x.shape[-1])
        weight = concatenate(weights, x.dtype)
        ctx.sizes, ctx.kind = [len(w) for w in weights], weights[0].dtype
        ctx.save_for_backward(rows, weight)
        return product(rows, weight, concatenate(biases, x.dtype)).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = product(rows, weight.t()).view(*gradient.shape[:-1], -1)
        if not any(ctx.needs_input_grad[1:]):
            return of_x, *[None] * (2 * len(ctx.sizes))
        of_weights = product(rows.t(), x.t()).split(ctx.sizes)
        of_biases = rows.sum(0).split(ctx.sizes)
        pairs = zip(of_weights, of_biases, strict=True)
        return of_x, *(part.to(ctx.kind) for pair in pairs for part in pair)


def concatenate(parts: tuple[torch.Tensor, ...], dtype: torch.dtype) -> torch.Tensor:
    """Concatenate and cast in one pass."""
    if len(parts) == 1:
        return parts[0].to(dtype)
    whole = parts[0].new_empty((sum(len(p) for p in parts), *parts[0].shape[1:]), dtype=dtype)
    if dtype == parts[0].dtype:
        return torch.cat(parts, out=whole)
    for place, part in zip(whole.split([len(p) for p in parts]), parts, strict=True):
        place.copy_(part)
    return whole


class ConvolutionFunction(Function):
    """Convolve over time in G groups. x: (B, T, C), contiguous -> (B, T', C'), where there is
    padding no longer than x."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        stride: int,
        padding: int = 0,
        groups: int = 1,
    ) -> torch.Tensor:
        # (C', C / G, 1, K)
        kernel = image_of(weight.to(convolution_dtype(weight, x.dtype, stride)).transpose(1, 2))
        ctx.save_for_backward(x, kernel)
        ctx.settings, ctx.kind = (stride, padding, groups), weight.dtype
        bias = None if bias is None else bias.to(kernel.dtype)
        image = torch.conv2d(
            image_of(x.to(kernel.dtype)), kernel, bias, (1, stride), (0, padding), groups=groups
        )
        # an even kernel gives a frame too many
        return frames_of(image[..., : x.shape[1]]).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, kernel = ctx.saved_tensors
        (stride, padding, groups), size = ctx.settings, kernel.shape[3]
        gradient = gradient.contiguous()
        of_x, of_weight, of_bias = None, None, None
        if ctx.needs_input_grad[0]:
            # frames that were left out
            cut = (x.shape[1] + 2 * padding - size) // stride + 1 - gradient.shape[1]
            whole = F.pad(gradient, (0, 0, 0, cut)) if cut else gradient
            settings = (
                [1, stride],
                [0, padding],
                [1, 1],
                False,
                [0, 0],
                groups,
                [True, False, False],
            )
            images = (image_of(each.to(kernel.dtype)) for each in (whole, x))
            of_x = frames_of(
                torch.ops.aten.convolution_backward(*images, kernel, None, *settings)[0]
            ).to(x.dtype)
        if ctx.needs_input_grad[1]:
            padded = F.pad(x, (0, 0, padding, padding)) if padding else x
            inputs, outputs = (
                part.unflatten(2, (groups, -1)).permute(2, 0, 1, 3) for part in (padded, gradient)
            )
            inputs = inputs.contiguous()  # (G, B, T, C / G)
            gradients = [
                sum(
                    kernel_gradient(out, block, size, stride)
                    for block, out in zip(*rows, strict=True)
                )
                for rows in zip(inputs, outputs, strict=True)
            ]
            of_weight = (
                torch.cat(gradients).view(kernel.shape[0], size, -1).transpose(1, 2).to(ctx.kind)
            )
        if ctx.needs_input_grad[2]:
            of_bias = gradient.sum((0, 1)).to(ctx.kind)
        return of_x, of_weight, of_bias, None, None, None


def image_of(x: torch.Tensor) -> torch.Tensor:
    """View (B, T, C) as (B, C, 1, T), channels last."""
    return x.contiguous().transpose(1, 2)[:, :, None]


def frames_of(image: torch.Tensor) -> torch.Tensor:
    """View (B, C, 1, T), channels last, as (B, T, C)."""
    return image[:, :, 0].transpose(1, 2).contiguous()


def kernel_gradient(
    gradient: torch.Tensor, x: torch.Tensor, size: int, stride: int
) -> torch.Tensor:
    """Return the gradient of a convolution's weights: (C', K C) float32. gradient: (T', C'), x: (T,
    C), contiguous."""
    frames, channels = x.shape
    shape = (frames - size) // stride + 1, size * channels  # all windows, without a copy
    inputs = x.as_strided(shape, (stride * channels, 1))[: len(gradient)]
    if x.dtype != torch.float32:
        return product(gradient.t(), inputs.t()).float()
    # oneDNN takes no windows that overlap
    pairs = zip(gradient.split(BLOCK), inputs.split(BLOCK), strict=True)
    return sum(product(outputs.t(), block.contiguous().t()) for outputs, block in pairs)  # type: ignore[return-value]


class Samples(Function):
    """Compute the first convolution, one affine map a recording, and GELU where it follows.

    x: (R, T, K) windows, weight: (R, C, K), bias: (R, C), all float32 -> (R, T, C). In bf16,
    samples and weights are each the sum of two bf16 numbers; three of the four products are one.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        dtype: torch.dtype,
        gelu: bool,
    ) -> torch.Tensor:
        left, right = x, weight
        if dtype != x.dtype:
            high, low = split_in_halves(x, dtype)
            top, rest = split_in_halves(weight, dtype)
            left = torch.cat([high, low, high], -1)
            right = torch.cat([top, top, rest], -1)
        sums = [product(rows, w, b) for rows, w, b in zip(left, right, bias.to(dtype), strict=True)]
        ctx.save_for_backward(x.to(dtype), *(sums if gelu else []))
        ctx.kind = weight.dtype
        if not gelu:
            return torch.stack(sums) if len(sums) > 1 else sums[0][None]
        activations = x.new_empty(*x.shape[:2], weight.shape[1], dtype=dtype)
        for place, z in zip(activations, sums, strict=True):
            torch.ops.aten.gelu.out(z, out=place)
        return activations

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, *sums = ctx.saved_tensors
        if not any(ctx.needs_input_grad):
            return None, None, None, None, None
        of_weight, of_bias = [], []
        for i, (rows, g) in enumerate(zip(x, gradient.contiguous(), strict=True)):
            g = torch.ops.aten.gelu_backward(g, sums[i]) if sums else g
            of_weight.append(product(g.t(), rows.t()))
            of_bias.append(g.sum(0))
        return (
            None,
            torch.stack(of_weight).to(ctx.kind),
            torch.stack(of_bias).to(ctx.kind),
            None,
            None,
        )


class AttentionFunction(Function):
    """Attend by softmax(Q K^T / sqrt(d) + bias) V, all heads. qkv: (B, T, 3 D) -> (B, T, D). bias:
    (B, 1 or T, T) or None, a constant."""

    @staticmethod
    def forward(
        ctx: Any, qkv: torch.Tensor, heads: int, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        q, k, v = split_heads(qkv, 3 * heads).view(3, -1, qkv.shape[1], qkv.shape[2] // (3 * heads))
        q = q * q.shape[-1] ** -0.5
        weights = attention_weights(q, k, bias)
        saved = weights.numel() * weights.element_size() <= KEPT
        ctx.save_for_backward(q, k, v, bias, weights if saved else None)
        ctx.heads = heads
        return join_heads(torch.bmm(weights, v), heads)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        q, k, v, bias, weights = ctx.saved_tensors
        if weights is None:
            weights = attention_weights(q, k, bias)
        gradient = split_heads(gradient, ctx.heads)
        parts = q.new_empty(3, *q.shape)
        torch.bmm(weights.transpose(1, 2), gradient, out=parts[2])
        scores = torch._softmax_backward_data(
            torch.bmm(gradient, v.transpose(1, 2)), weights, -1, weights.dtype
        )
        torch.bmm(scores, k, out=parts[0]).mul_(q.shape[-1] ** -0.5)
        torch.bmm(scores.transpose(1, 2), q, out=parts[1])
        return join_heads(parts.flatten(0, 1), 3 * ctx.heads), None, None


def attention_weights(q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return weights (h B, T, T), which sum to 1, of q and k (h B, T, d). bias: as of
    `AttentionFunction`."""
    scores = torch.bmm(q, k.transpose(1, 2))
    if bias is not None:
        scores.view(-1, len(bias), *scores.shape[1:]).add_(bias)
    return torch.softmax(scores, -1)


def split_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Split (B, T, h d) into (h B, T, d)."""
    return x.view(*x.shape[:2], heads, -1).permute(2, 0, 1, 3).flatten(0, 1).contiguous()


def join_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Join (h B, T, d) to (B, T, h d)."""
    return x.view(heads, -1, *x.shape[1:]).permute(1, 2, 0, 3).flatten(2)


def on_cpu(x: torch.Tensor) -> bool:
    return x.is_cpu  # tests of a GPU's operations say no


def linear(x: torch.Tensor, *layers: Any) -> torch.Tensor:
    """Apply linear layers side by side. (..., in) -> (..., sum of out)."""
    parameters: list[torch.Tensor] = []
    for layer in layers:
        # LoRA, by peft: W + its low-rank update is one matrix, and one product
        low_rank = hasattr(layer, "lora_A")
        parameters += [
            layer.weight + layer.get_delta_weight("default") if low_rank else layer.weight,
            layer.bias,
        ]
    return LinearFunction.apply(x, *parameters)


def layer_norm(norm: Any, x: torch.Tensor) -> torch.Tensor:
    """Apply a layer norm over the last axis; on a GPU its weights must be of the type of what it
    reads."""
    if on_cpu(x) or x.dtype == norm.weight.dtype:
        output: torch.Tensor = norm(x)
        return output
    return F.layer_norm(
        x, norm.normalized_shape, norm.weight.to(x.dtype), norm.bias.to(x.dtype), norm.eps
    )


class TrainingKernels:
    """Compute a model in its present mode: dropout and layer drop where it is being trained."""

    def __init__(self, model: Any):
        self.layer_drop = model.config.layerdrop if model.encoder.training else 0.0

    def convolution(self, conv: nn.Conv1d) -> Plain:
        def product(x: torch.Tensor) -> torch.Tensor:
            if on_cpu(x):
                return ConvolutionFunction.apply(x, conv.weight, conv.bias, conv.stride[0])
            bias = None if conv.bias is None else conv.bias.to(x.dtype)
            # channels last; conv1d would copy
            image, weight = x.transpose(1, 2)[:, :, None], conv.weight[:, :, None].to(x.dtype)
            return F.conv2d(image, weight, bias, (1, conv.stride[0]))[:, :, 0].transpose(1, 2)

        return Plain(product)

    def norm(self, norm: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        return partial(layer_norm, norm)

    def projection(self, projection: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: projection.dropout(linear(x, projection.projection))

    def positions(self, conv: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        def convolve(x: torch.Tensor) -> torch.Tensor:
            if on_cpu(x):
                padding = conv.weight.shape[2] // 2
                convolved = ConvolutionFunction.apply(
                    x, conv.weight, conv.bias, 1, padding, conv.groups
                )
                return F.gelu(convolved)
            weight = conv.weight.to(x.dtype)
            return F.gelu(
                convolve_blockwise(
                    x, toeplitz(weight, conv.groups), conv.bias.to(x.dtype), weight.shape[2]
                )
            )

        return convolve

    def dropout(self, dropout: nn.Module) -> nn.Module:
        return dropout

    def linear(self, layer: nn.Linear, dropout: nn.Module) -> Plain:
        return Plain(lambda x: linear(x, layer), dropout)

    def attention(
        self, attention: Any
    ) -> Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]:
        def attend(x: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor:
            """Attend, (B, T, D) -> (B, T, D). real: (B, T) the frames to attend to; None: all."""
            qkv = linear(x, attention.q_proj, attention.k_proj, attention.v_proj)
            dropout = attention.dropout if attention.training else 0.0
            if dropout == 0 and real is None and on_cpu(x):
                attended: torch.Tensor = AttentionFunction.apply(qkv, attention.num_heads)
                return attended
            q, k, v = qkv.view(*x.shape[:2], 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
            mask = None if real is None else real[:, None, None]
            attended = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout)
            return attended.transpose(1, 2).flatten(2)

        return attend


def training_states(
    model: Any,
    samples: torch.Tensor,
    mask: torch.Tensor | None = None,
    last: int | None = None,
    lengths: torch.Tensor | None = None,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the convolutions' output before its layer norm, (B, T, C), and layers 0 to `last`, (B,
    T, D) each; 0 is what the first reads.

    samples: (B, N) float32, normalised. mask: (B, T) bool, frames to hide behind the model's mask
    vector. last: None is all layers. lengths: (B,) samples that are an utterance's own, at least
    one receptive field; those after them are padding, on which none of its frames depends, whatever
    the norms (`frames_of_samples` says how many frames these are). None: there is no padding.
    The norm that follows the last layer of a pre-norm model is left to the caller. Computes in
    autocast's type where autocast is on. Raises InputError on an architecture that
    `hubert.is_known` does not know.
    """
    check_known(model)
    kind = samples.device.type
    dtype = next(model.parameters()).dtype
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
    hubert = HubertBody(model, TrainingKernels(model), last)
    with torch.autocast(kind, enabled=False):
        first = model.feature_extractor.conv_layers[0]
        features = hubert.convolve(convolve_samples(first, samples, dtype, lengths))
        x = hubert.project(features)
        real = None
        if lengths is not None:
            real = before_end(frames_of_samples(model.config, lengths), x.shape[1])
            # as the zeros that the convolution of positions pads with
            x = x.masked_fill(~real[..., None], 0)
        if mask is not None:
            x = torch.where(mask[..., None], model.masked_spec_embed.to(x.dtype), x)
        return features, list(hubert.states(x, real))


def convolve_samples(
    layer: Any, samples: torch.Tensor, dtype: torch.dtype, lengths: torch.Tensor | None
) -> torch.Tensor:
    """Apply the first convolution, its norm, GELU. (B, N) -> (B, T, C)."""
    conv, norm = layer.conv, layer.layer_norm
    x = samples.float().unfold(1, conv.kernel_size[0], conv.stride[0]).contiguous()  # (B, T, K)
    weight = conv.weight[:, 0].float()
    bias = weight.new_zeros(len(weight)) if conv.bias is None else conv.bias.float()
    if isinstance(norm, nn.GroupNorm):
        count = None if lengths is None else (lengths - conv.kernel_size[0]) // conv.stride[0] + 1
        parts = 1 if on_cpu(x) else PARTS
        mean, covariance = moments(x, count, parts)
        folded, offsets = fold(norm, weight.double(), mean, covariance)
        weights, biases = folded.float(), offsets.float()
        if not on_cpu(x):
            return F.gelu(first_convolution(x, weights, biases + 0 * bias, dtype))
        # the norm takes a constant away: its gradient is zero
        return Samples.apply(x, weights, biases + 0 * bias, dtype, True)
    windows = x.view(1, -1, x.shape[2])
    if on_cpu(x):
        sums = Samples.apply(windows, weight[None], bias[None], dtype, False)
    else:
        sums = first_convolution(windows, weight[None], bias[None], dtype)
    return F.gelu(layer_norm(norm, sums)).view(*x.shape[:2], -1)
