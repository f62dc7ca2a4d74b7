"""Span models with random weights on every family of text encoders."""

import pytest
import torch
from torch import nn

from speechssl.dual.data import Layout
from speechssl.dual.model import SpanModel

KINDS = ("bert", "roberta", "longformer", "modernbert", "bigbird", "deberta-v2", "t5")
SYMBOLS = 30  # ids of tokens are 0 to 29; specials follow
LAYOUT = Layout(cls=30, sep=31, pad=32, size=24, stride=12, question=6, answer=5)


@pytest.fixture(scope="module")
def span_model(text_encoder):
    """A function (kind) -> a SpanModel in eval mode; its random weights are so large that every
    input has other logits."""

    def make(kind="bert"):
        encoder = text_encoder(kind)
        torch.manual_seed(1)
        width = encoder.get_input_embeddings().embedding_dim
        return SpanModel(encoder, nn.Embedding(SYMBOLS + 3, width)).eval()

    return make
