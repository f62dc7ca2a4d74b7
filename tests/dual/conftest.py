"""Span models with random weights on every family of text encoders."""

import pytest
import torch
from torch import nn

from speechssl.dual.data import Layout
from speechssl.dual.model import SpanModel

KINDS = ("bert", "roberta", "longformer", "modernbert", "bigbird", "deberta-v2", "t5")
LAYOUT = Layout(cls=30, sep=31, pad=32, size=24, stride=12, question=6, answer=5)


@pytest.fixture(scope="module")
def span_model(text_encoder):
    """A function (kind) -> a SpanModel with random weights of a size that gives every input other
    logits; eval mode."""

    def make(kind="bert"):
        encoder = text_encoder(kind)
        torch.manual_seed(1)
        return SpanModel(
            encoder, nn.Embedding(33, encoder.get_input_embeddings().embedding_dim)
        ).eval()

    return make
