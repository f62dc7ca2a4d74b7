"""The small multilingual encoder of recipes/odsqa: rows for characters, and what is masked."""

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
def recipe():
    return script("odsqa/multilingual.py")


@pytest.fixture
def encoder(text_encoder, tokenizer, tmp_path):
    text_encoder().save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    return str(tmp_path / "encoder")


def corpus(root, language, text):
    (root / "train").mkdir(parents=True)
    write_records(root / "train/passages.jsonl", [Passage("p", "", 0.0, text, "", language)])
    (root / "train/questions.jsonl").write_text("")
    return root


def test_characters_get_rows_of_words_and_words_keep_theirs(recipe, encoder, tokenizer):
    model, found = recipe.add_characters(encoder, ["安娜 lost 灯笼", "安"], 0)
    before = AutoModel.from_pretrained(encoder).get_input_embeddings().weight
    table = model.get_input_embeddings().weight
    assert len(found) == len(table) == len(tokenizer) + 4
    assert torch.equal(table[: len(before)], before)
    assert {tuple(row.tolist()) for row in table[-4:]} <= {tuple(row.tolist()) for row in before}
    ids = [TextCodec(found).encode([word])[0].tolist() for word in ("安", "娜", "lost")]
    assert [found.convert_ids_to_tokens(i) for i in ids] == [["安"], ["娜"], ["lost"]]


def test_a_share_of_the_tokens_is_guessed_and_never_the_specials(recipe, tokenizer):
    text = np.arange(10, 40)
    batches = recipe.Masking([[text], [text[:5]]], tokenizer, 40, 0)
    batch = batches(3)
    guessed, mask = batch["targets"] != -100, batch["ids"] == tokenizer.mask_token_id
    assert 0.1 < guessed[0::2].float().mean() < 0.25
    assert guessed.any(1).all()
    assert not guessed[:, 0].any()
    assert 0.6 < (mask & guessed).sum() / guessed.sum() < 0.95 and not (mask & ~guessed).any()
    assert torch.equal(batch["targets"][0][guessed[0]], torch.from_numpy(text)[guessed[0][1:31]])
    assert all(torch.equal(batch[name], batches(3)[name]) for name in batch)
    assert not torch.equal(batch["ids"], batches(4)["ids"])


def test_it_is_made_once_from_these_corpora_and_can_be_loaded(recipe, encoder, tmp_path):
    english = corpus(tmp_path / "en", "en", "anna lost the silver lantern")
    chinese = corpus(tmp_path / "zh", "zh", "安娜丢了灯笼")
    given = {"out": tmp_path / "out", "corpora": (english, chinese), "text_encoder": encoder}
    options = recipe.Make(**given, batch=2, training=TrainingOptions(2, 5e-4, 1, bf16=False))
    recipe.make(options)
    size = AutoModel.from_pretrained(tmp_path / "out").config.vocab_size
    assert len(AutoTokenizer.from_pretrained(tmp_path / "out")) == size
    before = (tmp_path / "out/model.safetensors").stat().st_mtime_ns
    recipe.make(options)
    assert (tmp_path / "out/model.safetensors").stat().st_mtime_ns == before
    assert len(json.loads((tmp_path / "out/card.json").read_text())["made_from"]["data"]) == 2
    refused("made from other inputs", recipe.make, replace(options, batch=3))
