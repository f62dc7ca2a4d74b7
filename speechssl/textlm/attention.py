"""Local attention: which token attends to which, for encoders of text that read long sequences of
units.

A token sees those at most `width` places away. The question with [CLS] and its [SEP] (segment 0)
sees and is seen by every token, as in Longformer (arXiv 2004.05150, section 6.1), but with the
weights that the encoder has for all others. Units have no word identity: they must first be joined
with their neighbours, and only then compared with the question. Letters: B sequences, S tokens.
"""

from __future__ import annotations

from typing import Any

import torch

from speechssl.errors import InputError


def local_mask(mask: torch.Tensor, segments: torch.Tensor, width: int) -> torch.Tensor:
    """Return which token (row) attends to which (column), (B, 1, S, S) bool.

    mask: (B, S), 0 for padding; segments: (B, S), 0 for the question with [CLS] and its [SEP].
    """
    places = torch.arange(mask.shape[1], device=mask.device)
    near = (places[:, None] - places).abs() <= width
    real = mask.bool()
    asked = real & (segments == 0)
    seen = near | asked[:, :, None] | asked[:, None, :]
    return (seen & real[:, None, :])[:, None]


@torch.inference_mode()
def check_local(encoder: Any, name: str) -> None:
    """Raise InputError for an encoder that does not attend as a mask (B, 1, S, S) says."""
    layers = encoder.config.num_hidden_layers
    width = encoder.get_input_embeddings().embedding_dim
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(1, layers + 3, width, generator=generator)
    other = vectors.clone()
    other[:, -1] = -other[:, -1]  # out of the reach of token 0, which sees one place a layer
    mask = torch.ones(1, layers + 3, dtype=torch.long)
    seen = local_mask(mask, mask, 1)
    was_training = encoder.training
    encoder.eval()
    try:
        first, second = (
            encoder(inputs_embeds=v, attention_mask=seen).last_hidden_state[0]
            for v in (vectors, other)
        )
        fits = first[0].equal(second[0]) and not first[-2].equal(second[-2])
    except Exception:  # whatever a family raises for a mask of this shape
        fits = False
    encoder.train(was_training)
    if not fits:
        raise InputError(
            f"{name} ({encoder.config.model_type}) takes no mask of who attends to whom; leave out "
            "--attention-width, or choose a BERT, RoBERTa or the like"
        )
