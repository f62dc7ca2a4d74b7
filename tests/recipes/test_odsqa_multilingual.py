"""recipes/odsqa/multilingual.py gives characters rows of words, masks a share of the tokens, and
trains once."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from speechssl.data.records import Passage, write_records
from speechssl.options import TrainingOptions
from speechssl.textlm.tokenizers import TextCodec

from ..files import refused
from .shared import script


@pytest.fixture(scope="module")
def multilingual():
    return script("odsqa/multilingual.py")


@pytest.fixture
def encoder(text_encoder, tokenizer, tmp_path):
    text_encoder().save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    return str(tmp_path / "encoder")


def write_corpus(root, language, text):
    """Write a corpus of one passage without questions. Returns its folder."""
    (root / "train").mkdir(parents=True)
    passage = Passage(id="p", audio="", seconds=0.0, text=text, speaker="", language=language)
    write_records(root / "train/passages.jsonl", [passage])
    (root / "train/questions.jsonl").write_text("")
    return root


def test_characters_get_rows_of_words_and_words_keep_theirs(multilingual, encoder, tokenizer):
    model, extended = multilingual.add_characters(encoder, ["安娜 lost 灯笼", "安"], seed=0)
    before = AutoModel.from_pretrained(encoder).get_input_embeddings().weight
    table = model.get_input_embeddings().weight
    assert len(table) == len(tokenizer) + 4  # 安娜灯笼
    assert len(extended) == len(table)
    assert torch.equal(table[: len(before)], before)
    rows_of_words = {tuple(row.tolist()) for row in before}
    assert {tuple(row.tolist()) for row in table[-4:]} <= rows_of_words
    codec = TextCodec(extended)
    for word in ("安", "娜", "lost"):
        ids, _ = codec.encode([word])
        assert extended.convert_ids_to_tokens(ids.tolist()) == [word]


def test_a_share_of_the_tokens_is_predicted_and_never_the_specials(multilingual, tokenizer):
    text = np.arange(10, 40)  # 30 tokens, and 5 in turn
    batches = multilingual.MaskedBatches([[text], [text[:5]]], tokenizer, size=40, seed=0)
    batch = batches(step=3)
    predicted = batch["targets"] != -100
    masked = batch["ids"] == tokenizer.mask_token_id
    assert 0.1 < predicted[0::2].float().mean() < 0.25  # of the long text
    assert predicted.any(1).all()
    assert not predicted[:, 0].any()  # [CLS]
    assert 0.6 < (masked & predicted).sum() / predicted.sum() < 0.95
    assert not (masked & ~predicted).any()
    tokens_of_text = torch.arange(10, 40)[predicted[0][1:31]]  # behind [CLS]
    assert torch.equal(batch["targets"][0][predicted[0]], tokens_of_text)

    for name, tensor in batches(step=3).items():
        assert torch.equal(tensor, batch[name])
    assert not torch.equal(batches(step=4)["ids"], batch["ids"])


def test_an_encoder_is_trained_once_from_these_corpora_and_can_be_loaded(
    multilingual, encoder, tmp_path
):
    out = tmp_path / "out"
    english = write_corpus(tmp_path / "en", "en", "anna lost the silver lantern")
    chinese = write_corpus(tmp_path / "zh", "zh", "安娜丢了灯笼")
    options = multilingual.Multilingual(
        out=out,
        corpora=(english, chinese),
        text_encoder=encoder,
        batch=2,
        training=TrainingOptions(steps=2, learning_rate=5e-4, warmup_steps=1, bf16=False),
    )
    multilingual.make_encoder(options)
    size = AutoModel.from_pretrained(out).config.vocab_size
    assert len(AutoTokenizer.from_pretrained(out)) == size
    before = (out / "model.safetensors").stat().st_mtime_ns
    multilingual.make_encoder(options)
    assert (out / "model.safetensors").stat().st_mtime_ns == before
    assert len(json.loads((out / "card.json").read_text())["made_from"]["data"]) == 2
    refused("made from other inputs", multilingual.make_encoder, replace(options, batch=3))
