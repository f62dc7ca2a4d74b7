"""Local attention: which token attends to which, in every encoder that takes a mask, with the mask
and in blocks, in training and in answering."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from speechssl.dual import model as dual_model
from speechssl.dual.data import collate
from speechssl.dual.model import Bert, load_reader, save_reader
from speechssl.dual.system import Reader
from speechssl.errors import InputError
from speechssl.textlm import attention
from speechssl.textlm.attention import attend_locally, block_attention, local_mask

from .conftest import KINDS, LAYOUT, SYMBOLS

IN_BLOCKS = ("bert", "roberta", "distilbert", "electra", "albert", "modernbert")
TAKES_MASKS = (*IN_BLOCKS, "t5")


def random_batch(*sizes):
    """Make a batch of random sequences. sizes: tokens of (question, window)."""
    rng = np.random.default_rng(0)
    sequences = []
    for question, window in sizes:
        ids = rng.integers(0, SYMBOLS, question), rng.integers(0, SYMBOLS, window)
        sequences.append(LAYOUT.make_sequence(*ids))
    return collate(sequences, LAYOUT.pad)


def test_a_unit_sees_its_neighbours_and_the_question_and_the_question_sees_all():
    batch = random_batch((1, 4), (1, 2))
    real = batch["mask"].bool()
    sees = local_mask(real, real & (batch["segments"] == 0), 1)
    assert sees.shape == (2, 1, 8, 8)
    # [CLS] q [SEP] u u u u [SEP]
    assert sees[0, 0, 0].all()
    assert sees[0, 0, 2].all()
    assert sees[0, 0, 5].tolist() == [True, True, True, False, True, True, True, False]
    assert not sees[1, 0, :, 6:].any()  # padding
    assert sees.any(-1).all()  # the softmax of a token that sees nothing would be NaN


@pytest.mark.parametrize("kind", KINDS)
def test_a_family_attends_as_the_mask_says_or_is_refused(text_encoder, kind):
    encoder = text_encoder(kind)
    if kind in TAKES_MASKS:
        assert attend_locally(encoder, 3, kind) == (kind in IN_BLOCKS)
        return
    with pytest.raises(InputError, match=f"{kind}.*--attention-width"):
        attend_locally(encoder, 3, kind)


def test_wide_enough_attention_is_attention_of_all_to_all(span_model):
    model = span_model()
    batch = random_batch((3, 20), (4, 7))
    with torch.no_grad():
        full = model.logits(**batch)
        model.inputs.attend(model.encoder, 40, "bert")
        torch.testing.assert_close(model.logits(**batch), full, atol=1e-5, rtol=1e-5)
        model.inputs.attend(model.encoder, 2, "bert")
        assert not torch.allclose(model.logits(**batch), full, atol=1e-3)


def test_blocks_attend_as_the_mask_says():
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(3, 2, 300, 4, generator=generator) for _ in range(3))
    lengths = (300, 290, 140)
    positions = torch.arange(300)
    real = positions < torch.tensor(lengths)[:, None]
    question = positions < torch.tensor([1, 40, 7])[:, None]
    mask = local_mask(real, question, 5)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)
    attended = block_attention(query, key, value, real, question, 5)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(attended[row, :, :length], expected[row, :, :length])


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert", "t5"])
def test_a_long_sequence_is_read_in_blocks_as_with_the_mask(span_model, monkeypatch, kind):
    model = span_model(kind)
    batch = random_batch((3, 20), (4, 7))
    model.inputs.attend(model.encoder, 2, kind)
    with torch.no_grad():
        masked = model.logits(**batch)
        monkeypatch.setattr(dual_model, "LONG", 8)
        monkeypatch.setattr(attention, "BLOCK", 8)
        torch.testing.assert_close(model.logits(**batch), masked, atol=1e-5, rtol=1e-5)


@pytest.fixture
def saved_locally(span_model, tmp_path):
    """A folder with a reader of local attention, three tokens to either side."""
    save_reader(tmp_path, span_model(), replace(LAYOUT, attention_width=3), {"what": "toy"})
    return tmp_path


def test_the_bert_that_only_answers_attends_as_that_of_transformers(saved_locally, monkeypatch):
    trained_model, _, _ = load_reader(saved_locally)
    answering_model, layout, _ = load_reader(saved_locally, answering=True)
    assert isinstance(answering_model.encoder, Bert)
    assert layout.attention_width == 3
    batch = random_batch((4, 20), (4, 7))
    with torch.no_grad():
        expected = trained_model.logits(**batch)
        torch.testing.assert_close(answering_model.logits(**batch), expected, atol=1e-5, rtol=0)
        trained_model.inputs.attention_width = 0
        assert not torch.allclose(trained_model.logits(**batch), expected, atol=1e-3)
        monkeypatch.setattr(dual_model, "LONG", 8)  # computes in blocks
        torch.testing.assert_close(answering_model.logits(**batch), expected, atol=1e-5, rtol=0)


def test_a_batch_of_long_passages_is_answered_as_they_are_one_by_one(saved_locally, monkeypatch):
    monkeypatch.setattr(dual_model, "LONG", 8)
    model, layout, _ = load_reader(saved_locally, answering=True)
    reader = Reader(model, layout)
    rng = np.random.default_rng(0)
    items = [(rng.integers(0, SYMBOLS, 4), rng.integers(0, SYMBOLS, 70)) for _ in range(3)]
    for answer, item in zip(reader.read(items), items, strict=True):
        (single,) = reader.read([item])
        assert (answer.first, answer.last) == (single.first, single.last)
