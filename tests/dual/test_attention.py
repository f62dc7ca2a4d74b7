"""Local attention: who sees whom, in every encoder that takes a mask, in training as in reading."""

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

from .conftest import KINDS, LAYOUT

TAKES_MASKS = ("bert", "roberta", "distilbert", "electra", "albert", "modernbert", "t5")

IN_BLOCKS = ("bert", "roberta", "distilbert", "electra", "albert", "modernbert")


def batch_of(*sizes, seed=0):
    rng = np.random.default_rng(seed)
    sequences = [
        LAYOUT.sequence(rng.integers(0, 30, asked), rng.integers(0, 30, size))
        for asked, size in sizes
    ]
    return collate(sequences, LAYOUT.pad)


def test_a_unit_sees_its_neighbours_and_the_question_and_the_question_all():
    batch = batch_of((1, 4), (1, 2))
    real = batch["mask"].bool()
    seen = local_mask(real, real & (batch["segments"] == 0), 1)
    assert seen.shape == (2, 1, 8, 8)
    # [CLS] q [SEP] u u u u [SEP]
    assert seen[0, 0, 0].all()
    assert seen[0, 0, 2].all()
    assert seen[0, 0, 5].tolist() == [True, True, True, False, True, True, True, False]
    assert not seen[1, 0, :, 6:].any()  # padding
    assert seen.any(-1).all()  # a row without any would be NaN


@pytest.mark.parametrize("kind", KINDS)
def test_a_family_attends_as_the_mask_says_or_is_refused(text_encoder, kind):
    encoder = text_encoder(kind)
    if kind in TAKES_MASKS:
        assert attend_locally(encoder, 3, kind) == (kind in IN_BLOCKS)
        return
    with pytest.raises(InputError, match=f"{kind}.*--attention-width"):
        attend_locally(encoder, 3, kind)


def test_wide_enough_attention_is_attention_of_all_to_all(span_model):
    model, batch = span_model(), batch_of((3, 20), (4, 7))
    with torch.no_grad():
        everything = model.logits(**batch)
        model.inputs.attend(model.encoder, 40, "bert")
        torch.testing.assert_close(model.logits(**batch), everything, atol=1e-5, rtol=1e-5)
        model.inputs.attend(model.encoder, 2, "bert")
        assert not torch.allclose(model.logits(**batch), everything, atol=1e-3)


def test_blocks_attend_as_the_mask_says():
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(3, 2, 300, 4, generator=generator) for _ in range(3))
    places = torch.arange(300)
    real = places < torch.tensor([300, 290, 140])[:, None]
    asked = places < torch.tensor([1, 40, 7])[:, None]
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, local_mask(real, asked, 5)
    )
    found = block_attention(query, key, value, real, asked, 5)
    for row, tokens in enumerate((300, 290, 140)):
        torch.testing.assert_close(found[row, :, :tokens], expected[row, :, :tokens])


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert", "t5"])
def test_a_long_sequence_is_read_in_blocks_as_with_the_mask(span_model, monkeypatch, kind):
    model, batch = span_model(kind), batch_of((3, 20), (4, 7))
    model.inputs.attend(model.encoder, 2, kind)
    with torch.no_grad():
        masked = model.logits(**batch)
        monkeypatch.setattr(dual_model, "LONG", 8)
        monkeypatch.setattr(attention, "BLOCK", 8)
        torch.testing.assert_close(model.logits(**batch), masked, atol=1e-5, rtol=1e-5)


def test_the_reader_that_answers_attends_as_the_one_that_was_trained(
    span_model, tmp_path, monkeypatch
):
    model, layout = span_model(), replace(LAYOUT, attention_width=3)
    save_reader(tmp_path, model, layout, {"what": "toy"})
    theirs, _, _ = load_reader(tmp_path)
    ours, read, _ = load_reader(tmp_path, answering=True)
    assert isinstance(ours.encoder, Bert)
    assert read == layout
    batch = batch_of((4, 20), (4, 7))
    with torch.no_grad():
        local = theirs.logits(**batch)
        torch.testing.assert_close(ours.logits(**batch), local, atol=1e-5, rtol=0)
        theirs.inputs.attention_width = 0
        assert not torch.allclose(theirs.logits(**batch), local, atol=1e-3)
        ours.inputs.attend(ours.encoder, 3, "bert")
        monkeypatch.setattr(dual_model, "LONG", 8)
        torch.testing.assert_close(ours.logits(**batch), local, atol=1e-5, rtol=0)
    rng = np.random.default_rng(0)
    items = [(rng.integers(0, 30, 4), rng.integers(0, 30, 70)) for _ in range(3)]
    many, single = Reader(ours, read).read(items), [Reader(ours, read).read([i])[0] for i in items]
    assert [(a.first, a.last) for a in many] == [(a.first, a.last) for a in single]
