"""The text side: characters, units and sub-word units as rows of the embedding table."""

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from speechssl.artifacts import write_json, write_text
from speechssl.checkpoints import SHIPPED
from speechssl.textlm.encoders import MINILM, licences
from speechssl.textlm.layers import Shift
from speechssl.textlm.subwords import SubwordUnits, make_subword_units
from speechssl.textlm.symbols import (
    assign_tokens,
    character_encoder,
    plain_words,
    special_ids,
    symbol_encoder,
)
from speechssl.textlm.tokenizers import TextCodec, character_tokenizer, word_pieces

from .files import refused

# ---- the five assignments of DUAL: which rows of a text encoder's table become units

SYMBOLS = 20
KEPT = ("most-frequent", "least-frequent", "random")
MARKS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def vocabulary(*tokens, **marks):
    """A tokeniser of whole words. marks: its special tokens beside <unk>."""
    core = Tokenizer(models.WordLevel({t: i for i, t in enumerate(tokens)}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", **marks)


@pytest.mark.parametrize("seed", [0, 1])
def test_assignments_take_the_words_they_are_named_for(tokenizer, seed):
    words = plain_words(tokenizer)
    most, least, random = (
        assign_tokens(tokenizer, SYMBOLS, assignment, seed) for assignment in KEPT
    )
    assert set(most) == set(words[:SYMBOLS]) and set(least) == set(words[-SYMBOLS:])
    assert set(random) <= set(words) and len(set(random)) == SYMBOLS
    assert set(random) not in (set(most), set(least))
    assert most != words[:SYMBOLS]  # which of the words a unit gets is drawn


def test_released_takes_the_ids_from_5_in_order():
    # ids 0 to 9 of its vocabulary
    first = ("<s>", "<pad>", "</s>", "<unk>", ".", "Ġthe", ",", "Ġto", "s", "Ġ-")
    longformer = vocabulary(*first, **MARKS)
    assert [assign_tokens(longformer, 5, "released", seed) for seed in (0, 1)] == [
        [5, 6, 7, 8, 9]
    ] * 2


@pytest.mark.parametrize("kind", ["bert", "electra"])  # electra's table is narrower than its layers
@pytest.mark.parametrize("assignment", KEPT)
def test_rows_are_those_of_the_text_encoder(tokenizer, text_encoder, kind, assignment):
    model = text_encoder(kind)
    source = model.get_input_embeddings().weight.detach().clone()
    encoder, table = symbol_encoder(model, tokenizer, SYMBOLS, assignment, seed=5)
    assert encoder is model and table.weight.shape == (SYMBOLS + 3, source.shape[1])
    assert torch.equal(
        table.weight[:SYMBOLS], source[assign_tokens(tokenizer, SYMBOLS, assignment, 5)]
    )
    specials = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]", "[PAD]"])
    assert torch.equal(table.weight[list(special_ids(SYMBOLS))], source[specials])
    assert torch.equal(model.get_input_embeddings().weight, source)
    assert table.weight.requires_grad


@pytest.mark.parametrize("assignment", ["re-init", "scratch"])
def test_re_init_draws_the_rows_and_scratch_the_layers_too(tokenizer, text_encoder, assignment):
    model = text_encoder()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    # more than there are words
    encoder, table = symbol_encoder(model, tokenizer, 500, assignment, seed=7)
    matrices = [n for n, p in model.named_parameters() if p.ndim == 2]
    kept = [torch.equal(encoder.state_dict()[n], before[n]) for n in matrices]
    assert all(kept) if assignment == "re-init" else not any(kept)
    assert encoder.config.to_dict() == model.config.to_dict()
    assert table.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert torch.cdist(table.weight, model.get_input_embeddings().weight).min() > 0.01
    again, other = (
        symbol_encoder(text_encoder(), tokenizer, 500, assignment, s)[1] for s in (7, 8)
    )
    assert torch.equal(table.weight, again.weight)
    assert not torch.equal(table.weight, other.weight)


WORDS = ["<s>", "</s>", "<unk>", "<pad>", *(f"w{c}" for c in "abcdefghij")]


def test_what_does_not_fit_is_one_sentence(text_encoder, tokenizer):
    model, words = text_encoder(), plain_words(tokenizer)
    refused("no assignment 'best'", symbol_encoder, model, tokenizer, SYMBOLS, "best")
    refused("too few for", assign_tokens, tokenizer, len(words) + 1, "random")
    unmarked = vocabulary(*WORDS)
    refused("has no .CLS. and .SEP.", symbol_encoder, model, unmarked, 5, "random")
    short = vocabulary("<s>", "<pad>", "</s>", "<unk>", ".", **MARKS)
    refused("ids 5 to 6, of which 2 are no tokens", assign_tokens, short, 2, "released")
    refused("no sub-word units 'syllables'", make_subword_units, tokenizer, "syllables", 100, 8)
    width = model.config.hidden_size
    shift = Shift(1, torch.zeros(width + 1))
    refused(f"the shift has {width + 1} numbers", shift.attach, model)


def test_sentence_marks_stand_in_for_cls_and_sep(text_encoder):
    model = text_encoder()
    _, table = symbol_encoder(
        model, vocabulary(*WORDS, bos_token="<s>", eos_token="</s>"), 5, "random"
    )
    source = model.get_input_embeddings().weight
    assert torch.equal(table.weight[5:], source[[0, 1, 1]])  # [PAD] is never looked at


# ---- characters as a vocabulary: every one a token, rows of the text encoder for them, and other
# vocabularies of Chinese


TEXT = "他在北京，買了 iPhone。"


def test_tokens_are_characters_from_the_commonest_and_the_specials_follow(tmp_path):
    character_tokenizer([TEXT, "北北"]).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == ["[UNK]", "[MASK]", "北"]
    assert tokenizer.mask_token_id == 1
    last = [tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id]
    assert [len(tokenizer) - i for i in last] == [3, 2, 1]
    assert tokenizer.tokenize(" 北京 iPhone龜") == [*"北京iphone", "[UNK]"]


def test_characters_begin_as_words_of_the_encoder(text_encoder, tokenizer):
    encoder, table, characters = character_encoder(
        text_encoder(), tokenizer, ["anna在北京"], seed=3
    )
    source = {tuple(row.tolist()) for row in encoder.get_input_embeddings().weight}
    assert table.num_embeddings == len(characters) == 2 + 5 + 3
    assert len({tuple(row.tolist()) for row in table.weight} & source) == 10
    masked = encoder.get_input_embeddings().weight[tokenizer.mask_token_id]
    assert table.weight[characters.mask_token_id].equal(masked)
    refused(
        "too few for", character_encoder, text_encoder(), tokenizer, map(chr, range(0x4E00, 0x4F00))
    )


def test_licences_are_those_of_the_data_the_text_encoder_and_the_start(tmp_path):
    squad, mine, start = (tmp_path / name for name in ("squad", "mine", "start"))
    write_json(squad / "card.json", {"corpus": "squad", "licence": "CC BY-SA 4.0"})
    made = licences(squad, MINILM)
    minilm, of_squad = ["all-MiniLM-L6-v2, Apache-2.0"], ["squad, CC BY-SA 4.0"]
    assert made == {"licences": {"trained_on": of_squad, "contains": minilm}}
    write_json(start / "card.json", made)
    again = licences(mine, "another", start)["licences"]  # it needs no card
    assert again == {"trained_on": [*of_squad, "mine, licence not known"], "contains": minilm}
    write_text(mine / "README.md", "---\nlanguage: en\nlicense: apache-2.0\n---\nlicense: none\n")
    assert licences(squad, str(mine))["licences"]["contains"] == [f"{mine}, apache-2.0"]


# ---- the codec on the vocabularies of published encoders


def bert(listed):
    """As bert-base-chinese and bert-base-multilingual-cased have it: WordPiece, every Chinese
    character by itself."""
    core = Tokenizer(
        models.WordPiece({t: i for i, t in enumerate(["[UNK]", *listed])}, unk_token="[UNK]")
    )
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.normalizer = normalizers.BertNormalizer(lowercase=False)
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]")


def xlm_roberta(listed):
    """A unigram model with the mark of a word's beginning, which joins characters where it can."""
    scores = [("<unk>", 0.0), ("▁", -2.0), *((token, -3.0) for token in listed)]
    core = Tokenizer(models.Unigram(scores, unk_id=0))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>")
    tokenizer.add_tokens([AddedToken("<extra>", special=True)])
    return tokenizer


@pytest.mark.parametrize(
    "made",
    [
        bert([*"他在北京买了", "phone", "##s"]),
        xlm_roberta([*"他在北京买了", "北京", "▁phone", "s"]),
        character_tokenizer([TEXT]),
    ],
)
def test_every_chinese_character_is_a_token_in_simplified_form_that_knows_its_place(made):
    codec = TextCodec(made)
    ids, owners = codec.encode(["他", "在", "北", "京", "，", "買", "了"])
    assert [t.strip("▁") for t in made.convert_ids_to_tokens(ids)] == list("他在北京买了")
    assert owners.tolist() == [0, 1, 2, 3, 5, 6]


def test_a_berts_word_pieces_are_the_same_without_transformers():
    folder = SHIPPED / "people-en/text-qa"
    theirs = AutoTokenizer.from_pretrained(folder)
    ours, words = (
        word_pieces(folder),
        ("Where the café's fishmongers 1,984 [SEP] naïve-ish 安娜 x\u0301 unable").split(),
    )
    assert TextCodec(ours).encode(words)[0].tolist() == TextCodec(theirs).encode(words)[0].tolist()
    assert word_pieces(folder.parent) is None


# ---- how tokens sound: the units of tokens, their embedding, and what it is for: homophones in
# what a recogniser wrote


HOMOPHONES = "北背贝 京晶 大打"


@pytest.fixture
def pinyin():
    pytest.importorskip("pypinyin", reason="sub-word units of Chinese need speechssl[chinese]")


def subword_ids(units, tokenizer, text):
    """(S, E) of the tokens of a text, after the output has learnt something."""
    torch.manual_seed(1)
    torch.nn.init.normal_(units.output.weight)
    return units(torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]]))[0].detach()


def test_characters_that_sound_alike_have_one_embedding_and_the_tone_counts(pinyin):
    tokenizer = character_tokenizer([HOMOPHONES])
    found = subword_ids(
        make_subword_units(tokenizer, "pinyin", len(tokenizer), 8), tokenizer, "背贝北京晶"
    )
    assert torch.equal(found[0], found[1]) and torch.equal(found[3], found[4])
    assert not torch.equal(found[0], found[2]) and not torch.equal(found[0], found[3])


def test_the_order_of_units_counts_and_padding_does_not():
    torch.manual_seed(0)
    tokens = torch.tensor([[1, 2, 3, 0], [3, 2, 1, 0], [1, 2, 3, 0], [0, 0, 0, 0]])
    units = SubwordUnits(tokens, 3, 6, 5)
    assert not units(torch.tensor([[0, 1]])).any()  # it begins at zero
    torch.nn.init.normal_(units.output.weight)
    found = units(torch.tensor([[0, 1], [2, 3]]))
    assert torch.equal(found[0, 0], found[1, 0])
    assert not torch.allclose(found[0, 0], found[0, 1])
    assert not found[1, 1].any()
    shorter = SubwordUnits(tokens[:, :3], 3, 6, 5)
    shorter.load_state_dict(units.state_dict() | {"tokens": tokens[:, :3]})
    assert torch.allclose(shorter(torch.tensor([[0, 1]])), units(torch.tensor([[0, 1]])), atol=1e-6)


def test_english_pieces_have_the_phones_of_espeak(tokenizer):
    pytest.importorskip("espeakng_loader")
    units = make_subword_units(tokenizer, "phones", len(tokenizer), 8)
    rows = {
        word: units.tokens[tokenizer.convert_tokens_to_ids(word)]
        for word in ("their", "there", "anna", "##a", "!", "[CLS]")
    }
    assert torch.equal(rows["their"], rows["there"])
    assert not torch.equal(rows["their"], rows["anna"])
    assert rows["##a"].any() and not rows["!"].any() and not rows["[CLS]"].any()
