"""The span model (BERT's question answering, arXiv 1810.04805, section 4.2): embedding table, text encoder, two vectors.

Both vectors are dotted with every output of the encoder and give the logits of an answer's start and end. DUAL reads units with it
(arXiv 2203.04911), the cascade word pieces, SpeechBERT audio words.
Letters: B sequences, S tokens in a sequence, E embedding width.
"""

from __future__ import annotations

import inspect

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from speechssl.dual.data import window_mask
from speechssl.textlm.symbols import SubwordUnits
from speechssl.trainer import Batch

IGNORED = -1e4  # logit of positions that are not allowed; finite in bf16


class EncoderInputs:
    """Gives a text encoder vectors in the place of its own token ids, with the arguments that this kind of encoder takes."""

    def __init__(self, encoder: PreTrainedModel, width: int) -> None:
        """Replaces the encoder's own embedding table, of this width, by an empty one."""
        accepted = inspect.signature(encoder.forward).parameters
        self.global_attention = "global_attention_mask" in accepted  # Longformer
        self.segments = "token_type_ids" in accepted and getattr(encoder.config, "type_vocab_size", 0) > 1
        # Longformer still looks up its own padding, to fill its last attention window
        rows = 1 + (getattr(encoder.config, "pad_token_id", None) or 0) if self.global_attention else 1
        encoder.set_input_embeddings(nn.Embedding(rows, width))

    def __call__(self, embedded: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """The encoder's keyword arguments.

        embedded: (B, S, E); mask: (B, S); segments: (B, S), None for sequences in which nothing is asked. Longformer's global
        attention is on the question with [CLS] and its [SEP] (arXiv 2004.05150, section 6.1): segment 0.
        """
        given = {"inputs_embeds": embedded, "attention_mask": mask}
        if segments is not None and self.segments:
            given["token_type_ids"] = segments
        if segments is not None and self.global_attention:
            given["global_attention_mask"] = (1 - segments) * mask
        return given


class SpanModel(nn.Module):
    """Embedding table, text encoder, span head. subwords: added to the embedding of every token."""

    def __init__(self, encoder: PreTrainedModel, embedding: nn.Embedding, subwords: SubwordUnits | None = None) -> None:
        super().__init__()
        self.inputs = EncoderInputs(encoder, embedding.embedding_dim)
        self.encoder = encoder
        self.embedding = embedding
        self.subwords = subwords
        self.head = nn.Linear(encoder.config.hidden_size, 2)

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor, first: torch.Tensor, last: torch.Tensor
    ) -> Batch:
        """first, last: (B,) positions of the answer's first and last token, 0 where the window holds no answer."""
        return span_loss(self.logits(ids, mask, segments), first, last)

    def logits(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """ids, mask, segments: (B, S). Returns (B, S, 2): start and end logits; IGNORED outside [CLS] and the window."""
        embedded = self.embedding(ids) if self.subwords is None else self.embedding(ids) + self.subwords(ids)
        return self.logits_of(embedded, mask, segments)

    def logits_of(self, embedded: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """`logits` of vectors (B, S, E) in the place of ids."""
        hidden = self.hidden(embedded, mask, segments)
        allowed = window_mask(mask, segments).bool()
        allowed[:, 0] = True
        return torch.where(allowed[..., None], self.head(hidden).float(), IGNORED)

    def hidden(self, embedded: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor | None) -> torch.Tensor:
        """The encoder's output for vectors (B, S, E). segments None: one text, in which nothing is asked."""
        return self.encoder(**self.inputs(embedded, mask, segments)).last_hidden_state


def span_loss(logits: torch.Tensor, first: torch.Tensor, last: torch.Tensor) -> Batch:
    """logits: (B, S, 2); first, last: (B,). The mean cross-entropy of both ends, and how often both are right."""
    loss = (functional.cross_entropy(logits[..., 0], first) + functional.cross_entropy(logits[..., 1], last)) / 2
    right = (logits[..., 0].argmax(1) == first) & (logits[..., 1].argmax(1) == last)
    return {"loss": loss, "exact": right.float().mean().detach()}
