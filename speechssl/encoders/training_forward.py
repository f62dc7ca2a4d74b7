"""The forward pass for training (plain; to be replaced)."""

from __future__ import annotations

from typing import Any

import torch


def training_states(
    model: Any, samples: torch.Tensor, mask: torch.Tensor | None = None, last: int | None = None, gradient_scale: float = 1.0
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    features = model.feature_extractor(samples).transpose(1, 2)
    hidden = model.feature_projection(features)
    hidden = hidden[0] if isinstance(hidden, tuple) else hidden
    if mask is not None:
        hidden = torch.where(mask[..., None], model.masked_spec_embed.to(hidden.dtype), hidden)
    hidden = hidden + model.encoder.pos_conv_embed(hidden)
    if not model.config.do_stable_layer_norm:
        hidden = model.encoder.layer_norm(hidden)
    states = [model.encoder.dropout(hidden)]
    for layer in model.encoder.layers[:last]:
        found = layer(states[-1])
        states.append(found[0] if isinstance(found, tuple) else found)
    return features, states
