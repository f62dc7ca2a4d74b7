"""How tokens sound: the units of tokens, their embedding, and what it is for: homophones in what a recogniser wrote."""

import random
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertModel, PreTrainedTokenizerFast

from speechssl.cascade.data import text_examples
from speechssl.cascade.train import train_text
from speechssl.config import TrainingOptions
from speechssl.data.records import Answer, Passage, Question, load_corpus, write_records
from speechssl.dual.decode import Reader
from speechssl.dual.model import load_reader
from speechssl.dual.train import QaOptions
from speechssl.errors import InputError
from speechssl.textlm import SubwordUnits, TextCodec, character_tokenizer, subword_units

HOMOPHONES = "北背贝 京晶 大打"


@pytest.fixture
def pinyin():
    pytest.importorskip("pypinyin", reason="sub-word units of Chinese need speechssl[chinese]")


def subword_ids(units: SubwordUnits, tokenizer: PreTrainedTokenizerFast, text: str) -> torch.Tensor:
    """(S, E) of the tokens of a text, after the output has learnt something."""
    torch.manual_seed(1)
    torch.nn.init.normal_(units.output.weight)
    return units(torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]]))[0].detach()


def test_characters_that_sound_alike_have_one_embedding_and_the_tone_counts(pinyin):
    tokenizer = character_tokenizer([HOMOPHONES])
    found = subword_ids(subword_units(tokenizer, "pinyin", len(tokenizer), 8), tokenizer, "背贝北京晶")
    assert torch.equal(found[0], found[1]) and torch.equal(found[3], found[4])
    assert not torch.equal(found[0], found[2]) and not torch.equal(found[0], found[3])


def test_what_is_not_chinese_has_no_pinyin_and_specials_have_none(pinyin):
    tokenizer = character_tokenizer([HOMOPHONES + "a3。"])
    units = subword_units(tokenizer, "pinyin", len(tokenizer) + 5, 8)
    assert units.tokens.shape[0] == len(tokenizer) + 5
    silent = {token for token, i in tokenizer.get_vocab().items() if not units.tokens[i].any()}
    assert silent == {"[UNK]", "[MASK]", "[CLS]", "[SEP]", "[PAD]", "a", "3", "。"}
    assert not subword_ids(units, tokenizer, "a3。").any()


def test_the_order_of_units_counts_and_padding_does_not():
    torch.manual_seed(0)
    tokens = torch.tensor([[1, 2, 3, 0], [3, 2, 1, 0], [1, 2, 3, 0], [0, 0, 0, 0]])
    units = SubwordUnits(tokens, 3, 6, 5)
    assert not units(torch.tensor([[0, 1]])).any()  # it begins at zero
    torch.nn.init.normal_(units.output.weight)
    found = units(torch.tensor([[0, 1], [2, 3]]))
    assert torch.equal(found[0, 0], found[1, 0]) and not torch.allclose(found[0, 0], found[0, 1]) and not found[1, 1].any()
    shorter = SubwordUnits(tokens[:, :3], 3, 6, 5)
    shorter.load_state_dict(units.state_dict() | {"tokens": tokens[:, :3]})
    assert torch.allclose(shorter(torch.tensor([[0, 1]])), units(torch.tensor([[0, 1]])), atol=1e-6)


def test_english_pieces_have_the_phones_of_espeak(tokenizer):
    pytest.importorskip("espeakng_loader")
    units = subword_units(tokenizer, "phones", len(tokenizer), 8)
    rows = {word: units.tokens[tokenizer.convert_tokens_to_ids(word)] for word in ("their", "there", "anna", "##a", "!", "[CLS]")}
    assert torch.equal(rows["their"], rows["there"]) and not torch.equal(rows["their"], rows["anna"])
    assert rows["##a"].any() and not rows["!"].any() and not rows["[CLS]"].any()


def test_other_kinds_and_vocabularies_without_units_are_refused(tokenizer, pinyin):
    with pytest.raises(InputError, match="no sub-word units 'syllables'; choose one of none, pinyin, phones"):
        subword_units(tokenizer, "syllables", 100, 8)
    with pytest.raises(InputError, match="no token of this text encoder has pinyin"):
        subword_units(tokenizer, "pinyin", len(tokenizer), 8)
    assert subword_units(tokenizer, "none", 100, 8) is None


# ---- what it is for


@cache
def syllables() -> list[list[str]]:
    """Forty syllables of four characters each."""
    from pypinyin import Style, lazy_pinyin

    groups = defaultdict(list)
    for c in map(chr, range(0x4E00, 0x9000)):
        groups[lazy_pinyin(c, Style.TONE3)[0]].append(c)
    return [g[:4] for sound, g in sorted(groups.items()) if sound[-1] in "1234" and len(g) >= 4][::6][:40]


def write_homophones(root: Path, split: str, which: tuple[int, int], count: int) -> None:
    """Six characters and the question: which of them sounds like this other one? which: two of the four of a syllable."""
    rng, passages, questions = random.Random(split), [], []
    for i in range(count):
        some, flips = rng.sample(syllables(), 6), [rng.randrange(2) for _ in range(6)]
        text, at = "".join(g[which[f]] for g, f in zip(some, flips, strict=True)), rng.randrange(6)
        asked = some[at][which[1 - flips[at]]]
        passages.append(Passage(f"p{i}", "", 0.0, text, "", "zh"))
        questions.append(Question(f"q{i}", f"p{i}", "", 0.0, asked, "", "zh", answers=(Answer(text[at], char_start=at),)))
    (root / split).mkdir(parents=True)
    write_records(root / split / "passages.jsonl", passages)
    write_records(root / split / "questions.jsonl", questions)


def save_bert(folder: Path) -> None:
    """A tiny BERT with fresh weights whose vocabulary is the characters of `syllables`, as a local checkpoint."""
    tokenizer = character_tokenizer("".join(g) for g in syllables())
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=192, **sizes)).save_pretrained(folder)


@pytest.mark.slow
def test_homophones_that_training_never_saw_are_found_by_their_sound_and_not_without(pinyin, tmp_path):
    save_bert(tmp_path / "bert")
    write_homophones(tmp_path / "corpus", "train", (0, 1), 400)
    write_homophones(tmp_path / "corpus", "test", (2, 3), 100)
    (tmp_path / "corpus/card.json").write_text("{}")
    training = TrainingOptions(steps=150, learning_rate=3e-3, warmup_steps=10, save_every=1000, bf16=False)
    found = {}
    for kind in ("pinyin", "none"):
        options = QaOptions(training, str(tmp_path / "bert"), 32, empty=0, window=8, stride=8, answer=2, subwords=kind)
        train_text(tmp_path / "corpus", tmp_path / kind, options)
        model, layout, card = load_reader(tmp_path / kind)
        assert card["subwords"] == kind and (model.subwords is None) == (kind == "none")
        codec = TextCodec(AutoTokenizer.from_pretrained(tmp_path / kind))
        examples, left_out = text_examples(load_corpus(tmp_path / "corpus", "test"), codec)
        choices = Reader(model, layout).read_many([(e.question, e.passage) for e in examples])
        found[kind] = np.mean([c.first == e.first for c, e in zip(choices, examples, strict=True)])
        assert len(examples) == 100 and not left_out
    assert found["pinyin"] > 0.8 and found["none"] < 0.4  # by chance 0.17
