"""What SpeechBERT begins with on the side of text: a text-pre-trained encoder, or a reader that has learnt to answer from text.

The paper begins with BERT. To go on from a reader of words is ours: it has seen the questions of its corpus in writing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from speechssl.artefacts import hash_bytes
from speechssl.errors import InputError
from speechssl.qa.reader import SpanModel
from speechssl.qa.speechbert.reading import SPECIALS
from speechssl.qa.train import QaOptions
from speechssl.qa.weights import load_reader
from speechssl.textlm.pretrained import load_text_encoder


@dataclass(frozen=True, eq=False)
class TextHalf:
    """What SpeechBERT has of text: a span model, the embeddings (V, E) of its words, and its tokeniser."""

    reader: SpanModel  # its embedding has the SPECIALS rows
    embeddings: Tensor
    tokenizer: PreTrainedTokenizerBase
    card: dict[str, Any]


def text_half(options: QaOptions, start: Path | None) -> TextHalf:
    """A text-pre-trained encoder, or `start`: a reader of `speechssl train text-qa`, whose span head comes along.

    Raises InputError where that is no reader of words.
    """
    torch.manual_seed(options.training.seed)
    if start is None:
        encoder, tokenizer = load_text_encoder(options.text_encoder)
        table, card = encoder.get_input_embeddings().weight.detach().clone(), _card(options.text_encoder, encoder)
        return TextHalf(_span_model(encoder, table, None, tokenizer), table, tokenizer, card)
    if not (start / "tokenizer.json").is_file():
        raise InputError(f"{start} has no tokenizer.json; --start takes a folder of `speechssl train text-qa`")
    model, _, made = load_reader(start)
    if model.subwords is not None:
        raise InputError(f"{start} reads sub-word units, which speech has not; --start takes one of --subwords none")
    tokenizer = AutoTokenizer.from_pretrained(start)
    table = model.embedding.weight.detach().clone()
    card = {"text_encoder": made.get("text_encoder"), "start": made["weights"], "start_corpus": made.get("corpus")}
    return TextHalf(_span_model(model.encoder.train().requires_grad_(True), table, model.head, tokenizer), table, tokenizer, card)


def _card(name: str, encoder: PreTrainedModel) -> dict[str, Any]:
    """Which encoder it was: a name may come to mean another."""
    weights = encoder.state_dict()
    return {"text_encoder": name, "text_weights": hash_bytes(*(weights[k].numpy().tobytes() for k in sorted(weights)))}


def _span_model(encoder: Any, table: Tensor, head: nn.Linear | None, tokenizer: PreTrainedTokenizerBase) -> SpanModel:
    if tokenizer.mask_token_id is None:
        raise InputError("the text encoder's tokeniser has no mask token; choose an encoder that was trained by masking")
    specials = nn.Embedding(SPECIALS, table.shape[1])
    with torch.no_grad():
        specials.weight.copy_(table[[tokenizer.cls_token_id, tokenizer.sep_token_id, pad_of(tokenizer)]])
    model = SpanModel(encoder, specials)
    if head is not None:
        model.head.load_state_dict(head.state_dict())
    return model


def pad_of(tokenizer: PreTrainedTokenizerBase) -> int:
    """The token that fills a batch up."""
    return tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.sep_token_id
