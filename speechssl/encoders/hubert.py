"""HuBERT and wav2vec 2.0: the one definition of their forward pass, computed with the kernels of a purpose.

    samples -> convolutions, each with GELU (a group norm after the first, or a layer norm after each)
            -> layer norm, projection -> + GELU of a grouped convolution over time (positions) -> transformer layers

Layer 0 is the input of the first transformer layer, layer n the output of layer n. Models with layer norms before attention and
feed-forward (pre-norm, HuBERT large) have another norm after the last layer, which is left to the caller.
The kernels are `cpu` (one utterance, oneDNN, fp32, bf16 or int8), `batched` (a GPU, many utterances, torch.compile) and `training`
(with gradients). They work on the weights of transformers' modules.

Letters: B utterances, N samples, T frames, C channels, D width, K kernel size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional as F

from speechssl.errors import InputError

Map = Callable[[torch.Tensor], torch.Tensor]


class Product(Protocol):
    """A linear map or a convolution, and what follows it: nothing, its GELU, or its sum with a residual."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...
    def gelu(self, x: torch.Tensor) -> torch.Tensor: ...
    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor: ...


class Kernels(Protocol):
    """What computes the parts of the model for one purpose. Each method takes a module of transformers."""

    layer_drop: float  # probability with which a layer is left out

    def convolution(self, conv: nn.Conv1d) -> Product: ...  # of the front end, not its first: (..., T, C) -> (..., T', C')
    def norm(self, norm: nn.Module) -> Map: ...  # over the last axis
    def projection(self, projection: Any) -> Map: ...  # (..., T, C) -> (..., T, D)
    def positions(self, conv: nn.Conv1d) -> Map: ...  # with GELU, (..., T, D) -> (..., T, D)
    def dropout(self, dropout: nn.Module) -> Map: ...  # of the input of the first layer
    def linear(self, linear: nn.Linear, dropout: nn.Module) -> Product: ...  # of a transformer layer

    # weighted values of all heads, (..., T, D) -> (..., T, D), given x and which frames to attend to, or room to work in
    def attention(self, attention: Any) -> Callable[[torch.Tensor, Any], torch.Tensor]: ...


def identity(x: torch.Tensor) -> torch.Tensor:
    return x


@dataclass(frozen=True)
class Plain:
    """A product in torch's own operations. dropout: of its GELU, or of what is added to the residual."""

    product: Map
    dropout: Map = identity

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(x)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(F.gelu(self.product(x)))

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return other + self.dropout(self.product(x))


class Layer:
    """One transformer layer."""

    def __init__(self, layer: Any, pre_norm: bool, kernels: Kernels):
        attention, feed = layer.attention, layer.feed_forward
        self.attention = kernels.attention(attention)
        self.out = kernels.linear(attention.out_proj, layer.dropout)
        self.up = kernels.linear(feed.intermediate_dense, feed.intermediate_dropout)
        self.down = kernels.linear(feed.output_dense, feed.output_dropout)
        self.norm, self.final_norm = kernels.norm(layer.layer_norm), kernels.norm(layer.final_layer_norm)
        self.pre_norm = pre_norm

    def __call__(self, x: torch.Tensor, beside: Any) -> torch.Tensor:
        """(..., T, D) -> (..., T, D). beside: see `Kernels.attention`."""
        if self.pre_norm:
            x = self.out.plus(self.attention(self.norm(x), beside), x)
            return self.down.plus(self.up.gelu(self.final_norm(x)), x)
        x = self.norm(self.out.plus(self.attention(x, beside), x))
        return self.final_norm(self.down.plus(self.up.gelu(x), x))


class Hubert:
    """The model from the output of its first convolution on, which the purposes compute in ways of their own. last: layer."""

    def __init__(self, model: Any, kernels: Kernels, last: int | None = None):
        config, encoder, projection = model.config, model.encoder, model.feature_projection
        layer_norms = config.feat_extract_norm == "layer"
        self.convolutions = [
            (kernels.convolution(x.conv), kernels.norm(x.layer_norm) if layer_norms else None)
            for x in model.feature_extractor.conv_layers[1:]
        ]
        self.feature_norm = kernels.norm(projection.layer_norm) if hasattr(projection, "layer_norm") else None
        self.projection = kernels.projection(projection)
        self.positions = kernels.positions(encoder.pos_conv_embed.conv)
        self.input_norm = None if config.do_stable_layer_norm else kernels.norm(encoder.layer_norm)
        self.dropout, self.layer_drop = kernels.dropout(encoder.dropout), kernels.layer_drop
        self.layers = [Layer(x, config.do_stable_layer_norm, kernels) for x in encoder.layers[:last]]

    def convolved(self, x: torch.Tensor) -> torch.Tensor:
        """The other convolutions of the front end. (..., T', C') -> (..., T, C)."""
        for convolution, norm in self.convolutions:
            x = convolution.gelu(x) if norm is None else F.gelu(norm(convolution(x)))
        return x

    def projected(self, x: torch.Tensor) -> torch.Tensor:
        """(..., T, C) -> (..., T, D)."""
        return self.projection(x if self.feature_norm is None else self.feature_norm(x))

    def states(self, x: torch.Tensor, beside: Any, last: int | None = None) -> Iterator[torch.Tensor]:
        """Layers 0 to `last`, as they are computed. x: (..., T, D) projected, zero where there is padding."""
        x = x + self.positions(x)
        x = self.dropout(x if self.input_norm is None else self.input_norm(x))
        yield x
        for layer in self.layers[:last]:
            if not (self.layer_drop > 0 and torch.rand([]) < self.layer_drop):
                x = layer(x, beside)
            yield x


def moments(windows: torch.Tensor, count: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean (B, K) and covariance (B, K, K) of the windows of raw samples, in float64. windows: (B, T, K).

    count: (B,) windows that are an utterance's own; None: all.
    """
    windows = windows.double()
    if count is None:
        count = torch.full((len(windows),), windows.shape[1], device=windows.device)
    else:
        windows = windows * before_end(count, windows.shape[1])[..., None]
    mean = windows.sum(1) / count[:, None]
    return mean, windows.transpose(1, 2) @ windows / count[:, None, None] - mean[:, :, None] * mean[:, None]


def fold(norm: Any, weight: torch.Tensor, mean: torch.Tensor, covariance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first convolution and its group norm over time as one affine map: weights (..., C, K) and biases (..., C) in float64.

    Mean and variance of a channel follow from mean (..., K) and covariance (..., K, K) of the windows of samples. The convolution's
    own bias is part of the mean, which the norm takes away. weight: (C, K) float64.
    """
    variance = ((weight @ covariance) * weight).sum(-1)
    scale = norm.weight.double() / torch.sqrt(variance + norm.eps)
    return scale[..., None] * weight, norm.bias.double() - scale * (mean @ weight.T)


def in_halves(x: torch.Tensor, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, torch.Tensor]:
    """x as the sum of two tensors of fewer bits: rounded, and what that misses."""
    high = x.to(dtype)
    return high, (x - high).to(dtype)


def frames_of_samples(config: Any, lengths: torch.Tensor) -> torch.Tensor:
    """(B,) frames that the convolutions make of (B,) samples."""
    for kernel, stride in zip(config.conv_kernel, config.conv_stride, strict=True):
        lengths = (lengths - kernel) // stride + 1
    return lengths


def before_end(lengths: torch.Tensor, size: int) -> torch.Tensor:
    """(B, size) whether each place comes before the end of its row. lengths: (B,)."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def is_known(config: Any) -> bool:
    """Whether this file defines an architecture: HuBERT or wav2vec 2.0 with GELU and without adapters or batch norm."""
    return (
        config.model_type in ("hubert", "wav2vec2")
        and config.feat_extract_activation == config.hidden_act == "gelu"
        and not getattr(config, "conv_pos_batch_norm", False)
        and not getattr(config, "add_adapter", False)
        and getattr(config, "adapter_attn_dim", None) is None
    )


def check_known(model: Any, name: str = "the encoder") -> None:
    """Raises InputError on an architecture that cannot be trained here, for whoever wants to know before any work."""
    if not is_known(model.config):
        raise InputError(
            f"{name} is a {model.config.model_type} model, not a plain HuBERT or wav2vec 2.0 (GELU, no adapters, no batch norm), "
            "and only these can be trained; start from another"
        )


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
