"""HuBERT and wav2vec 2.0 for training: what transformers' modules compute, on their own parameters, in fewer passes over memory.

Parameters stay where they are, so that optimiser, checkpoints and loading know nothing of it. Everything lies in memory as (batch,
time, channel). Dropout and layer drop are drawn as transformers draws them: with the same seed they drop the same.

Letters: B utterances, N samples, T frames, C channels, D width, K kernel size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from speechssl.encoders.fast import is_known
from speechssl.encoders.training_products import Attention, Convolution, Linear, Positions, Samples
from speechssl.errors import InputError


def training_states(
    model: nn.Module,
    samples: torch.Tensor,
    mask: torch.Tensor | None = None,
    last: int | None = None,
    lengths: torch.Tensor | None = None,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The convolutions' output before its layer norm, (B, T, C), and layers 0 to `last`, (B, T, D) each; 0 is what the first reads.

    samples: (B, N) float32, normalised. mask: (B, T) bool, frames to hide behind the model's mask vector. last: None is all layers.
    lengths: (B,) samples that are an utterance's own, at least one receptive field; those after them are padding, on which none of
    its frames depends, whatever the norms (`frames_of_samples` says how many frames these are). None: there is no padding.
    The norm that follows the last layer of a pre-norm model is left to the caller. Computes in autocast's type where autocast is
    on. Raises InputError on an architecture that `fast.is_known` does not know.
    """
    check_known(model)
    kind = samples.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else next(model.parameters()).dtype
    with torch.autocast(kind, enabled=False):
        features = convolved(model.feature_extractor, samples, dtype, lengths)
        x = projected(model.feature_projection, features)
        real = None if lengths is None else before_end(frames_of_samples(model.config, lengths), x.shape[1])
        if real is not None:
            x = x.masked_fill(~real[..., None], 0)  # as the zeros that the convolution of positions pads with
        if mask is not None:
            x = torch.where(mask[..., None], model.masked_spec_embed.to(x.dtype), x)
        return features, encoded(model.encoder, x, model.config, last, real)


def frames_of_samples(config: Any, lengths: torch.Tensor) -> torch.Tensor:
    """(B,) frames that the convolutions make of (B,) samples."""
    for kernel, stride in zip(config.conv_kernel, config.conv_stride, strict=True):
        lengths = (lengths - kernel) // stride + 1
    return lengths


def before_end(lengths: torch.Tensor, size: int) -> torch.Tensor:
    """(B, size) whether each place comes before the end of its row. lengths: (B,)."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def check_known(model: Any, name: str = "the encoder") -> None:
    """Raises InputError on an architecture that cannot be computed here, for whoever wants to know before any work."""
    if not is_known(model.config):
        raise InputError(
            f"{name} is a {model.config.model_type} model, but no plain HuBERT or wav2vec 2.0 (GELU, no adapters, no batch norm), "
            "which alone can be trained here; go on from another"
        )


def convolved(front: Any, samples: torch.Tensor, dtype: torch.dtype, lengths: torch.Tensor | None = None) -> torch.Tensor:
    """(B, N) -> (B, T, C)."""
    first, *others = front.conv_layers
    x = from_samples(first, samples, dtype, lengths)
    for layer in others:
        x = convolution(layer.conv, x)
        x = F.gelu(normed(layer.layer_norm, x) if hasattr(layer, "layer_norm") else x)
    return x


def on_cpu(x: torch.Tensor) -> bool:
    return x.device.type == "cpu"


def convolution(conv: Any, x: torch.Tensor) -> torch.Tensor:
    """(B, T, C) -> (B, T', C'). On a GPU torch's own: many small products, which are fast on a CPU, would wait for each other."""
    if on_cpu(x):
        return Convolution.apply(x, conv.weight, conv.bias, conv.stride[0])
    bias = None if conv.bias is None else conv.bias.to(x.dtype)
    return F.conv1d(x.transpose(1, 2), conv.weight.to(x.dtype), bias, conv.stride).transpose(1, 2)


def positions(conv: Any, x: torch.Tensor) -> torch.Tensor:
    """The convolution of positions, (B, T, D) -> (B, T, D); on a GPU torch's own. An even kernel gives a frame too many."""
    if on_cpu(x):
        return Positions.apply(x, conv.weight, conv.bias, conv.groups)
    weight, bias = conv.weight.to(x.dtype), conv.bias.to(x.dtype)
    found = F.conv1d(x.transpose(1, 2), weight, bias, padding=weight.shape[2] // 2, groups=conv.groups)
    return found[..., : x.shape[1]].transpose(1, 2)


def from_samples(layer: Any, samples: torch.Tensor, dtype: torch.dtype, lengths: torch.Tensor | None) -> torch.Tensor:
    """The first convolution, its norm, GELU. (B, N) -> (B, T, C)."""
    x = samples.float().unfold(1, layer.conv.kernel_size[0], layer.conv.stride[0]).contiguous()  # (B, T, K)
    weight = layer.conv.weight[:, 0].float()
    bias = weight.new_zeros(len(weight)) if layer.conv.bias is None else layer.conv.bias.float()
    if isinstance(layer.layer_norm, nn.GroupNorm):
        count = None if lengths is None else (lengths - layer.conv.kernel_size[0]) // layer.conv.stride[0] + 1
        weights, biases = folded(layer.layer_norm, weight, x, count)
        return Samples.apply(x, weights, biases + 0 * bias, dtype, True)  # the norm takes a constant away: its gradient is zero
    sums = Samples.apply(x.view(1, -1, x.shape[2]), weight[None], bias[None], dtype, False)
    return F.gelu(normed(layer.layer_norm, sums)).view(*x.shape[:2], -1)


def folded(
    norm: nn.GroupNorm, weight: torch.Tensor, x: torch.Tensor, count: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The group norm as an affine map an utterance, from mean and covariance of the windows of its samples. (B, C, K), (B, C).

    count: (B,) windows that are its own; None: all.
    """
    windows = x.double()
    if count is None:
        count = torch.full((len(x),), x.shape[1], device=x.device)
    else:
        windows = windows * before_end(count, x.shape[1])[..., None]
    mean = windows.sum(1) / count[:, None]  # (B, K)
    covariance = windows.transpose(1, 2) @ windows / count[:, None, None] - mean[:, :, None] * mean[:, None]
    w = weight.double()
    variance = ((w @ covariance) * w).sum(-1)  # (B, C)
    scale = norm.weight.double() / torch.sqrt(variance + norm.eps)
    return (scale[..., None] * w).float(), (norm.bias.double() - scale * (mean @ w.t())).float()


def normed(norm: Any, x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def linear(x: torch.Tensor, *layers: Any) -> torch.Tensor:
    """Linear layers side by side."""
    return Linear.apply(x, *(p for layer in layers for p in (layer.weight, layer.bias)))


def projected(projection: Any, x: torch.Tensor) -> torch.Tensor:
    if hasattr(projection, "layer_norm"):
        x = normed(projection.layer_norm, x)
    return projection.dropout(linear(x, projection.projection))


def encoded(encoder: Any, x: torch.Tensor, config: Any, last: int | None, real: torch.Tensor | None = None) -> list[torch.Tensor]:
    """Layers 0 to `last` of what the transformer makes of (B, T, D). real: (B, T) the frames to attend to; None: all."""
    x = x + F.gelu(positions(encoder.pos_conv_embed.conv, x))
    x = encoder.dropout(x if config.do_stable_layer_norm else normed(encoder.layer_norm, x))
    states = [x]
    for layer in encoder.layers[:last]:
        if not (encoder.training and config.layerdrop > 0 and torch.rand([]) < config.layerdrop):
            x = before(layer, x, real) if config.do_stable_layer_norm else after(layer, x, real)
        states.append(x)
    return states


def before(layer: Any, x: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor:
    """A transformer layer with norms before its products."""
    x = x + layer.dropout(attended(layer.attention, normed(layer.layer_norm, x), real))
    return x + fed(layer.feed_forward, normed(layer.final_layer_norm, x))


def after(layer: Any, x: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor:
    """A transformer layer with norms after its sums."""
    x = normed(layer.layer_norm, x + layer.dropout(attended(layer.attention, x, real)))
    return normed(layer.final_layer_norm, x + fed(layer.feed_forward, x))


def attended(attention: Any, x: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor:
    qkv = linear(x, attention.q_proj, attention.k_proj, attention.v_proj)
    dropout = attention.dropout if attention.training else 0.0
    if dropout > 0 or real is not None or not on_cpu(x):
        among = None if real is None else real[:, None, None]
        q, k, v = qkv.view(*x.shape[:2], 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
        heard = F.scaled_dot_product_attention(q, k, v, among, dropout_p=dropout).transpose(1, 2).flatten(2)
    else:
        heard = Attention.apply(qkv, attention.num_heads)
    return linear(heard, attention.out_proj)


def fed(feed: Any, x: torch.Tensor) -> torch.Tensor:
    x = feed.intermediate_dropout(F.gelu(linear(x, feed.intermediate_dense)))
    return feed.output_dropout(linear(x, feed.output_dense))
