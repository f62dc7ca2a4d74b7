"""Attention of text encoders in training on a CPU in bf16."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from speechssl.encoders.training import KEPT, AttentionFunction

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FAST = "speechssl"  # the name that transformers knows `trained_attention` by


@contextmanager
def fast_attention(encoder: PreTrainedModel) -> Iterator[None]:
    """Train an encoder whose attention is PyTorch's (SDPA) with ours inside the block, where that
    is faster: on a CPU in bf16.

    At the lengths of readers (150 to 400 tokens) a step with SDPA takes 1.25 to 1.4 times as long
    (recipes/speed/reading.py).
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(FAST, trained_attention)
    AttentionMaskInterface.register(FAST, sdpa_mask)
    ours = getattr(encoder.config, "_attn_implementation", None) == "sdpa"
    if ours:
        encoder.set_attn_implementation(FAST)
    try:
        yield
    finally:
        if ours:
            encoder.set_attn_implementation("sdpa")  # what is saved names no attention of ours


def trained_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention as transformers asks for it.

    query, key, value: (B, h, S, d) for h heads of width d; attention_mask: (B, 1, S, S), False or
    -inf where a token is not seen. Returns (B, S, h, d). SDPA does what `AttentionFunction` does
    not (dropout, masks of a head, biases of positions, reading from left to right), or not faster
    (fp32, weights of more than KEPT bytes).
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    batch, heads, length, size = query.shape
    causal = others.get("is_causal")
    if causal is None:
        causal = getattr(module, "is_causal", True)
    causal = causal and attention_mask is None  # as SDPA decides
    one_shape = query.shape == key.shape == value.shape
    plain = one_shape and not dropout and not causal and scaling in (None, size**-0.5)
    for name in ("position_bias", "softcap", "cache"):
        plain = plain and others.get(name) is None
    if attention_mask is not None:
        plain = plain and attention_mask.shape[1] == 1 and not attention_mask.requires_grad
    # bytes of the weights, which are kept for the gradient
    fits = 2 * batch * heads * length**2 <= KEPT
    half = query.dtype == key.dtype == value.dtype == torch.bfloat16
    if not (plain and fits and half and query.is_cpu and query.requires_grad):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **others
        )
    bias = attention_mask
    if bias is not None:
        unseen = torch.finfo(query.dtype).min / 2  # with any score added still finite
        if bias.dtype == torch.bool:
            bias = query.new_zeros(bias.shape).masked_fill_(~bias, unseen)
        else:
            bias = bias.clamp(min=unseen)
        bias = bias[:, 0].to(query.dtype)
    qkv = torch.cat([x.transpose(1, 2).flatten(2) for x in (query, key, value)], -1)
    return AttentionFunction.apply(qkv, heads, bias).view(batch, length, heads, size), None
