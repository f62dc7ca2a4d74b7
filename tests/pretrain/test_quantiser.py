"""The quantiser: hard choices with soft gradients, and how many entries are used."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.pretrain.wav2vec2 import GumbelQuantiser, perplexity


@pytest.fixture
def quantiser():
    torch.manual_seed(0)
    return GumbelQuantiser(8, codebooks=2, entries=5, width=6)


@pytest.mark.parametrize("training", [True, False])
def test_vectors_are_entries_of_the_codebooks_side_by_side(quantiser, training):
    found = quantiser.train(training)(torch.randn(4, 7, 8), 0.7)
    books = quantiser.codevectors.view(2, 5, 3)
    assert found.vectors.shape == (4, 7, 6) and found.codes.shape == (4, 7, 2)
    expected = torch.cat([books[g][found.codes[..., g]] for g in (0, 1)], dim=-1)
    assert torch.equal(found.vectors, expected)  # to the bit, while training too


def test_noise_is_drawn_while_training_only(quantiser):
    x = torch.randn(200, 8) / 10
    likely = quantiser.eval()(x, 1.0)
    assert torch.equal(likely.codes, likely.likely.argmax(-1)) and torch.equal(likely.codes, quantiser(x, 9.0).codes)
    first, second = quantiser.train()(x, 1.0), quantiser(x, 1.0)
    assert not torch.equal(first.codes, second.codes) and torch.equal(first.likely, likely.likely)


def test_the_gradient_is_that_of_the_soft_choice(quantiser, monkeypatch):
    monkeypatch.setattr(torch.nn.functional, "gumbel_softmax", lambda logits, tau: (logits / tau).softmax(-1))
    x, wanted = torch.randn(3, 8), torch.randn(3, 6)
    (quantiser(x, 2.0).vectors * wanted).sum().backward()
    found = quantiser.weight_proj.weight.grad.clone()
    quantiser.zero_grad()
    soft = (quantiser.weight_proj(x).view(3, 2, 5) / 2.0).softmax(-1)
    (torch.einsum("ngv,gvd->ngd", soft, quantiser.codevectors.view(2, 5, 3)).flatten(1) * wanted).sum().backward()
    torch.testing.assert_close(found, quantiser.weight_proj.weight.grad)


def test_choices_are_made_in_full_precision_under_bf16(quantiser):
    with torch.autocast("cpu", torch.bfloat16):
        found = quantiser(torch.randn(9, 8), torch.tensor(0.5))
    assert found.vectors.dtype == found.likely.dtype == torch.float32


@given(st.integers(1, 6), st.integers(1, 4))
def test_perplexity_counts_the_entries_that_are_used_alike(used, more):
    one_hot = torch.eye(used + more)[:used]
    probabilities = torch.stack([one_hot, torch.eye(used + more)[:1].expand(used, -1)], dim=1)  # the second codebook uses one
    assert perplexity(probabilities).tolist() == pytest.approx([used, 1.0], rel=1e-4)


def test_perplexity_is_of_the_mean_distribution_and_has_finite_gradients():
    logits = torch.tensor([[[200.0, -200.0, 0.0]], [[-200.0, 200.0, 0.0]]], requires_grad=True)
    found = perplexity(logits.softmax(-1))
    found.sum().backward()
    assert found.item() == pytest.approx(2.0, rel=1e-4) and logits.grad.isfinite().all()
    third = torch.full((1, 3, 4), 0.25)
    assert perplexity(third).tolist() == pytest.approx([4.0] * 3) and math.isclose(float(third.sum()), 3.0)
