"""Local attention: which token attends to which, in every encoder that takes a mask, with the mask
and in blocks, in training and in answering."""

from dataclasses import replace

import pytest
import torch

from speechssl.dual import model as dual_model
from speechssl.dual.model import Bert, load_reader, save_reader
from speechssl.errors import InputError
from speechssl.textlm import attention
from speechssl.textlm.attention import attend_in_blocks, attend_locally, make_local_mask

from .conftest import KINDS, LAYOUT, random_batch

IN_BLOCKS = ("bert", "roberta", "distilbert", "electra", "albert", "modernbert")
TAKES_MASKS = (*IN_BLOCKS, "t5")


def test_a_unit_sees_its_neighbours_and_the_question_and_the_question_sees_all():
    batch = random_batch((1, 4), (1, 2))
    real = batch["mask"].bool()
    sees = make_local_mask(real, real & (batch["segments"] == 0), 1)
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


def test_the_bert_that_only_answers_attends_as_that_of_transformers(
    span_model, tmp_path, monkeypatch
):
    save_reader(tmp_path, span_model(), replace(LAYOUT, attention_width=3), {"what": "toy"})
    trained_model, _, _ = load_reader(tmp_path)
    answering_model, _, _ = load_reader(tmp_path, answering=True)
    assert isinstance(answering_model.encoder, Bert)
    batch = random_batch((4, 20), (4, 7))
    with torch.no_grad():
        expected = trained_model.logits(**batch)
        torch.testing.assert_close(answering_model.logits(**batch), expected, atol=1e-5, rtol=0)
        trained_model.inputs.attention_width = 0
        assert not torch.allclose(trained_model.logits(**batch), expected, atol=1e-3)
        monkeypatch.setattr(dual_model, "LONG", 8)  # computes in blocks
        torch.testing.assert_close(answering_model.logits(**batch), expected, atol=1e-5, rtol=0)


def test_attention_in_blocks_drops_weights_in_training():
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 300, 4)
    real = torch.ones(1, 300, dtype=torch.bool)
    question = torch.arange(300)[None] < 5
    inputs = (query, key, value, real, question, 8)
    plain = attend_in_blocks(*inputs)
    draws = torch.stack([attend_in_blocks(*inputs, dropout=0.2) for _ in range(400)])
    # every token of either kind of row loses weights, and the mean of the draws is as without
    assert (draws.std(0).amax(-1) > 0.01).all()
    torch.testing.assert_close(draws.mean(0), plain, atol=0.15, rtol=0)
