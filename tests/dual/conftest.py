"""Span models with random weights on every family of text encoders."""

import numpy as np
import pytest
import torch
from torch import nn

from speechssl.dual.data import Layout, collate
from speechssl.dual.model import SpanModel

KINDS = ("bert", "roberta", "longformer", "modernbert", "bigbird", "deberta-v2", "t5")
SYMBOLS = 30  # ids of tokens are 0 to 29; specials follow
LAYOUT = Layout(cls=30, sep=31, pad=32, size=24, stride=12, question=6, answer=5)


def random_tokens(count, seed=0):
    return np.random.default_rng(seed).integers(0, SYMBOLS, count)


def random_sequence(question, window, seed=0):
    """Make a sequence of so many random tokens of a question and of a window."""
    return LAYOUT.make_sequence(random_tokens(question, seed), random_tokens(window, seed + 1))


def random_batch(*sizes):
    """Make a batch of random sequences. sizes: tokens of (question, window)."""
    sequences = [random_sequence(*size, seed=5 * i) for i, size in enumerate(sizes)]
    return collate(sequences, LAYOUT.pad)


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
