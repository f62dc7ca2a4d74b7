"""Text encoders with other vocabularies: units and characters get rows of the embedding table, and
sub-word units an embedding of their own; licences; and the codec on published vocabularies."""

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from speechssl.artifacts import write_json, write_text
from speechssl.checkpoints import SHIPPED
from speechssl.textlm.encoders import MINILM, collect_licences
from speechssl.textlm.subwords import SubwordUnits, make_subword_units
from speechssl.textlm.symbols import (
    assign_tokens,
    embed_characters,
    embed_symbols,
    list_specials,
    list_words,
)
from speechssl.textlm.tokenizers import TextCodec, make_character_tokenizer, read_wordpiece

from .files import refused

# ---- the five assignments of DUAL: which rows of a text encoder's table become units

SYMBOLS = 20
COPYING = ("most-frequent", "least-frequent", "random")  # assignments that copy rows of words
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def make_tokenizer(*tokens, **special_tokens):
    """Make a tokeniser of whole words. special_tokens: those beside <unk>."""
    core = Tokenizer(models.WordLevel({t: i for i, t in enumerate(tokens)}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", **special_tokens)


def test_assignments_take_the_words_they_are_named_for(tokenizer):
    words = list_words(tokenizer)
    most, least, random = (
        assign_tokens(tokenizer, SYMBOLS, assignment, seed=0) for assignment in COPYING
    )
    assert set(most) == set(words[:SYMBOLS])
    assert most != words[:SYMBOLS]  # they are shuffled
    assert set(least) == set(words[-SYMBOLS:])
    assert set(random) <= set(words)
    assert len(set(random)) == SYMBOLS
    assert set(random) not in (set(most), set(least))


def test_released_takes_the_ids_from_5_in_order():
    # ids 0 to 9 of its vocabulary
    first = ("<s>", "<pad>", "</s>", "<unk>", ".", "Ġthe", ",", "Ġto", "s", "Ġ-")
    longformer = make_tokenizer(*first, **SPECIAL_TOKENS)
    assert assign_tokens(longformer, 5, "released") == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("kind", ["bert", "electra"])  # electra's table is narrower than its layers
@pytest.mark.parametrize("assignment", COPYING)
def test_rows_are_those_of_the_text_encoder(tokenizer, text_encoder, kind, assignment):
    model = text_encoder(kind)
    source = model.get_input_embeddings().weight.detach().clone()
    encoder, table = embed_symbols(model, tokenizer, SYMBOLS, assignment, seed=5)
    assert encoder is model
    assert table.weight.shape == (SYMBOLS + 3, source.shape[1])
    tokens = assign_tokens(tokenizer, SYMBOLS, assignment, seed=5)
    assert torch.equal(table.weight[:SYMBOLS], source[tokens])
    specials = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]", "[PAD]"])
    assert torch.equal(table.weight[list(list_specials(SYMBOLS))], source[specials])
    assert torch.equal(model.get_input_embeddings().weight, source)


@pytest.mark.parametrize("assignment", ["re-init", "scratch"])
def test_re_init_initialises_the_rows_and_scratch_the_layers_too(
    tokenizer, text_encoder, assignment
):
    model = text_encoder()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    more_than_words = 500
    encoder, table = embed_symbols(model, tokenizer, more_than_words, assignment, seed=7)
    matrices = [n for n, p in model.named_parameters() if p.ndim == 2]
    unchanged = [torch.equal(encoder.state_dict()[n], before[n]) for n in matrices]
    if assignment == "re-init":
        assert all(unchanged)
    else:
        assert not any(unchanged)
    assert table.weight.std().item() == pytest.approx(0.02, rel=0.1)  # initializer_range
    assert torch.cdist(table.weight, model.get_input_embeddings().weight).min() > 0.01


@pytest.mark.parametrize("assignment", ["re-init", "scratch"])
def test_new_rows_depend_on_the_seed_only(tokenizer, text_encoder, assignment):
    tables = []
    for seed in (7, 7, 8):
        _, table = embed_symbols(text_encoder(), tokenizer, SYMBOLS, assignment, seed)
        tables.append(table.weight)
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])


WORDS = ["<s>", "</s>", "<unk>", "<pad>", *(f"w{c}" for c in "abcdefghij")]
FIVE_TOKENS = make_tokenizer("<s>", "<pad>", "</s>", "<unk>", ".", **SPECIAL_TOKENS)


@pytest.mark.parametrize(
    ("vocabulary", "symbols", "assignment", "message"),
    [
        (None, SYMBOLS, "best", "no assignment 'best'"),
        (None, 10_000, "random", "too few for 10000 units"),
        (make_tokenizer(*WORDS), 5, "random", "has no .CLS. and .SEP."),
        (FIVE_TOKENS, 2, "released", "ids 5 to 6, of which 2 are no tokens"),
    ],
)
def test_a_vocabulary_that_does_not_do_is_refused(
    text_encoder, tokenizer, vocabulary, symbols, assignment, message
):
    vocabulary = vocabulary or tokenizer
    refused(message, embed_symbols, text_encoder(), vocabulary, symbols, assignment)


def test_begin_and_end_of_a_sentence_serve_as_cls_and_sep(text_encoder):
    model = text_encoder()
    tokenizer = make_tokenizer(*WORDS, bos_token="<s>", eos_token="</s>")
    _, table = embed_symbols(model, tokenizer, 5, "random")
    source = model.get_input_embeddings().weight
    assert torch.equal(table.weight[5:], source[[0, 1, 1]])  # the row of [PAD] does not matter


# ---- characters as a vocabulary


TEXT = "他在北京，買了 iPhone。"


def test_tokens_are_characters_from_the_commonest_and_the_specials_follow(tmp_path):
    make_character_tokenizer([TEXT, "北北"]).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == ["[UNK]", "[MASK]", "北"]
    assert tokenizer.mask_token_id == 1
    specials = [tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id]
    assert [len(tokenizer) - i for i in specials] == [3, 2, 1]
    assert tokenizer.tokenize(" 北京 iPhone龜") == [*"北京iphone", "[UNK]"]


def test_characters_begin_as_words_of_the_encoder(text_encoder, tokenizer):
    encoder, table, characters = embed_characters(text_encoder(), tokenizer, ["anna在北京"], seed=3)
    source = encoder.get_input_embeddings().weight
    # [UNK] and [MASK], a, n, 在, 北, 京, and [CLS], [SEP], [PAD]
    assert table.num_embeddings == len(characters) == 2 + 5 + 3
    rows = {tuple(row.tolist()) for row in table.weight}
    assert len(rows) == len(characters)
    assert rows <= {tuple(row.tolist()) for row in source}
    assert table.weight[characters.mask_token_id].equal(source[tokenizer.mask_token_id])


# ---- licences


def test_a_reader_takes_over_the_licences_of_the_reader_it_starts_from(tmp_path):
    write_json(tmp_path / "squad/card.json", {"corpus": "squad", "licence": "CC BY-SA 4.0"})
    start = tmp_path / "start"
    write_json(start / "card.json", collect_licences(tmp_path / "squad", MINILM))
    taken_over = collect_licences(tmp_path / "without-card", "another", start)["licences"]
    assert taken_over["trained_on"][0] == "squad, CC BY-SA 4.0"
    assert taken_over["contains"] == ["all-MiniLM-L6-v2, Apache-2.0"]


def test_the_licence_of_a_text_encoder_is_read_from_its_model_card(tmp_path):
    page = "---\nlanguage: en\nlicense: apache-2.0\n---\nlicense: none\n"
    write_text(tmp_path / "encoder/README.md", page)
    name = str(tmp_path / "encoder")
    assert collect_licences(tmp_path, name)["licences"]["contains"] == [f"{name}, apache-2.0"]


# ---- the codec on the vocabularies of published encoders


def make_xlm_roberta_tokenizer(tokens):
    """Make a tokeniser such as XLM-RoBERTa's: a unigram model with ▁ at the beginning of a word,
    which joins characters where it can."""
    scores = [("<unk>", 0.0), ("▁", -2.0), *((token, -3.0) for token in tokens)]
    core = Tokenizer(models.Unigram(scores, unk_id=0))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>")
    tokenizer.add_tokens([AddedToken("<extra>", special=True)])
    return tokenizer


@pytest.mark.parametrize(
    "tokenizer",
    [
        make_xlm_roberta_tokenizer([*"他在北京买了", "北京", "▁phone", "s"]),
        make_character_tokenizer([TEXT]),
    ],
)
def test_every_chinese_character_is_a_token_in_simplified_form_with_its_place(tokenizer):
    codec = TextCodec(tokenizer)
    ids, owners = codec.encode(["他", "在", "北", "京", "，", "買", "了"])
    assert [t.strip("▁") for t in tokenizer.convert_ids_to_tokens(ids)] == list("他在北京买了")
    assert owners.tolist() == [0, 1, 2, 3, 5, 6]


def test_the_word_pieces_of_a_bert_are_the_same_without_transformers():
    folder = SHIPPED / "people-en/text-qa"
    words = "Where the café's fishmongers 1,984 [SEP] naïve-ish 安娜 x\u0301 unable".split()
    ids, _ = TextCodec(read_wordpiece(folder)).encode(words)
    expected, _ = TextCodec(AutoTokenizer.from_pretrained(folder)).encode(words)
    assert ids.tolist() == expected.tolist()
    assert read_wordpiece(folder.parent) is None  # it has no tokeniser


# ---- sub-word units: tokens that sound alike have one embedding


def test_characters_that_sound_alike_have_one_embedding_and_the_tone_counts():
    pytest.importorskip("pypinyin", reason="sub-word units of Chinese need speechssl[chinese]")
    tokenizer = make_character_tokenizer(["北背贝 京晶 大打"])
    units = make_subword_units(tokenizer, "pinyin", len(tokenizer), 8)
    torch.manual_seed(1)
    torch.nn.init.normal_(units.output.weight)  # as after some training
    ids = tokenizer("背贝北京晶", add_special_tokens=False)["input_ids"]
    bei4, also_bei4, bei3, jing1, also_jing1 = units(torch.tensor([ids]))[0].detach()
    assert torch.equal(bei4, also_bei4)
    assert torch.equal(jing1, also_jing1)
    assert not torch.equal(bei4, bei3)
    assert not torch.equal(bei4, jing1)


def test_the_order_of_units_counts_and_their_padding_does_not():
    torch.manual_seed(0)
    # two tokens alike, one in reverse order, one without any units
    tokens = torch.tensor([[1, 2, 3, 0], [3, 2, 1, 0], [1, 2, 3, 0], [0, 0, 0, 0]])
    units = SubwordUnits(tokens, unit_count=3, width=6, out=5)
    assert not units(torch.tensor([[0, 1]])).any()  # before training
    torch.nn.init.normal_(units.output.weight)
    (first, reverse), (same, empty) = units(torch.tensor([[0, 1], [2, 3]]))
    assert torch.equal(first, same)
    assert not torch.allclose(first, reverse)
    assert not empty.any()
    unpadded = SubwordUnits(tokens[:, :3], unit_count=3, width=6, out=5)
    unpadded.load_state_dict(units.state_dict() | {"tokens": tokens[:, :3]})
    ids = torch.tensor([[0, 1]])
    assert torch.allclose(unpadded(ids), units(ids), atol=1e-6)


def test_english_pieces_have_the_phones_of_espeak(tokenizer):
    pytest.importorskip("espeakng_loader")
    units = make_subword_units(tokenizer, "phones", len(tokenizer), 8)

    def find_units(token):
        return units.tokens[tokenizer.convert_tokens_to_ids(token)]

    assert torch.equal(find_units("their"), find_units("there"))
    assert not torch.equal(find_units("their"), find_units("anna"))
    assert find_units("##a").any()
    assert not find_units("!").any()
    assert not find_units("[CLS]").any()
