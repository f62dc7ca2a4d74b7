"""What weights and which tokens training begins from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from speechssl.errors import InputError
from speechssl.textlm.encoders import make_encoder


def begin(encoder: PreTrainedModel, init: str, seed: int) -> PreTrainedModel:
    """Make what training begins with. pretrained: as it is; default: the weights that its family
    draws; statistics: every matrix normal, with its own mean and standard deviation, vectors as
    they are."""
    if init == "pretrained":
        return encoder
    torch.manual_seed(seed)
    if init == "default":
        return make_encoder(encoder.config.to_dict())
    with torch.no_grad():
        for weight in encoder.parameters():
            if weight.ndim > 1:
                weight.normal_(float(weight.mean()), float(weight.std()))
    return encoder


def find_tokens(tokenizer: PreTrainedTokenizerBase, symbols: Sequence[str]) -> list[int]:
    """Return the token of each symbol that has its name. Raises InputError for a vocabulary without
    one of them."""
    ids = tokenizer.get_vocab()
    lacking = [symbol for symbol in symbols if symbol not in ids]
    if lacking:
        raise InputError(
            f"the tokeniser has no token {lacking[0]!r}, and {len(lacking)} of {len(symbols)} "
            "symbols have none; give one that "
            "was pre-trained on them, or another --assignment"
        )
    return [ids[symbol] for symbol in symbols]
