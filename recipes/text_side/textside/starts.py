"""What weights training begins from."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from speechssl.textlm.encoders import make_encoder


def begin(encoder: PreTrainedModel, init: str, seed: int) -> PreTrainedModel:
    """pretrained: as it is; default: the weights that its family draws; statistics: every matrix
    normal, with its own mean and standard deviation, vectors as they are.
    """
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
