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
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The convolutions' output before its layer norm, (B, T, C), and layers 0 to `last`, (B, T, D) each; 0 is what the first reads.

    samples: (B, N) float32, normalised, unpadded. mask: (B, T) bool, frames to hide behind the model's mask vector. last: None is
    all layers. The norm that follows the last layer of a pre-norm model is left to the caller. Computes in autocast's
    type where autocast is on. Raises InputError on an architecture that `fast.is_known` does not know.
    """
    check_known(model)
    kind = samples.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else next(model.parameters()).dtype
    with torch.autocast(kind, enabled=False):
        features = convolved(model.feature_extractor, samples, dtype)
        x = projected(model.feature_projection, features)
        if mask is not None:
            x = torch.where(mask[..., None], model.masked_spec_embed.to(x.dtype), x)
        return features, encoded(model.encoder, x, model.config, last)


def check_known(model: Any, name: str = "the encoder") -> None:
    """Raises InputError on an architecture that cannot be computed here, for whoever wants to know before any work."""
    if not is_known(model.config):
        raise InputError(
            f"{name} is a {model.config.model_type} model, but no plain HuBERT or wav2vec 2.0 (GELU, no adapters, no batch norm), "
            "which alone can be trained here; go on from another"
        )


def convolved(front: Any, samples: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """(B, N) -> (B, T, C)."""
    first, *others = front.conv_layers
    x = from_samples(first, samples, dtype)
    for layer in others:
        x = Convolution.apply(x, layer.conv.weight, layer.conv.bias, layer.conv.stride[0])
        x = F.gelu(normed(layer.layer_norm, x) if hasattr(layer, "layer_norm") else x)
    return x


def from_samples(layer: Any, samples: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The first convolution, its norm, GELU. (B, N) -> (B, T, C)."""
    x = samples.float().unfold(1, layer.conv.kernel_size[0], layer.conv.stride[0]).contiguous()  # (B, T, K)
    weight = layer.conv.weight[:, 0].float()
    bias = weight.new_zeros(len(weight)) if layer.conv.bias is None else layer.conv.bias.float()
    if isinstance(layer.layer_norm, nn.GroupNorm):
        weights, biases = folded(layer.layer_norm, weight, x)
        return Samples.apply(x, weights, biases + 0 * bias, dtype, True)  # the norm takes a constant away: its gradient is zero
    sums = Samples.apply(x.view(1, -1, x.shape[2]), weight[None], bias[None], dtype, False)
    return F.gelu(normed(layer.layer_norm, sums)).view(*x.shape[:2], -1)


def folded(norm: nn.GroupNorm, weight: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The group norm as an affine map an utterance, from mean and covariance of the windows of its samples. (B, C, K), (B, C)."""
    windows = x.double()
    mean = windows.mean(1)  # (B, K)
    covariance = windows.transpose(1, 2) @ windows / x.shape[1] - mean[:, :, None] * mean[:, None]
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


def encoded(encoder: Any, x: torch.Tensor, config: Any, last: int | None) -> list[torch.Tensor]:
    """Layers 0 to `last` of what the transformer makes of (B, T, D)."""
    conv = encoder.pos_conv_embed.conv
    x = x + F.gelu(Positions.apply(x, conv.weight, conv.bias, conv.groups))
    x = encoder.dropout(x if config.do_stable_layer_norm else normed(encoder.layer_norm, x))
    states = [x]
    for layer in encoder.layers[:last]:
        if not (encoder.training and config.layerdrop > 0 and torch.rand([]) < config.layerdrop):
            x = before(layer, x) if config.do_stable_layer_norm else after(layer, x)
        states.append(x)
    return states


def before(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """A transformer layer with norms before its products."""
    x = x + layer.dropout(attended(layer.attention, normed(layer.layer_norm, x)))
    return x + fed(layer.feed_forward, normed(layer.final_layer_norm, x))


def after(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """A transformer layer with norms after its sums."""
    x = normed(layer.layer_norm, x + layer.dropout(attended(layer.attention, x)))
    return normed(layer.final_layer_norm, x + fed(layer.feed_forward, x))


def attended(attention: Any, x: torch.Tensor) -> torch.Tensor:
    qkv = linear(x, attention.q_proj, attention.k_proj, attention.v_proj)
    dropout = attention.dropout if attention.training else 0.0
    if dropout > 0 or x.device.type != "cpu":
        q, k, v = qkv.view(*x.shape[:2], 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
        heard = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout).transpose(1, 2).flatten(2)
    else:
        heard = Attention.apply(qkv, attention.num_heads)
    return linear(heard, attention.out_proj)


def fed(feed: Any, x: torch.Tensor) -> torch.Tensor:
    x = feed.intermediate_dropout(F.gelu(linear(x, feed.intermediate_dense)))
    return feed.output_dropout(linear(x, feed.output_dense))
