"""Characters as a vocabulary: every one a token, rows of the text encoder for them, and other vocabularies of Chinese."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from speechssl.errors import InputError
from speechssl.textlm import TextCodec, character_encoder, character_tokenizer

TEXT = "他在北京，買了 iPhone。"


def test_tokens_are_characters_from_the_commonest_and_the_specials_follow(tmp_path):
    character_tokenizer([TEXT, "北北"]).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == ["[UNK]", "[MASK]", "北"] and tokenizer.mask_token_id == 1
    assert [tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id] == [len(tokenizer) - n for n in (3, 2, 1)]
    assert tokenizer.tokenize(" 北京 iPhone龜") == ["北", "京", "i", "p", "h", "o", "n", "e", "[UNK]"]


def test_nothing_written_is_refused():
    with pytest.raises(InputError, match="leave out --characters"):
        character_tokenizer(["", "  "])


def test_characters_begin_as_words_of_the_encoder(text_encoder, tokenizer):
    encoder, table, characters = character_encoder(text_encoder(), tokenizer, ["anna在北京"], seed=3)
    source = {tuple(row.tolist()) for row in encoder.get_input_embeddings().weight}
    assert table.num_embeddings == len(characters) == 2 + 5 + 3
    assert len({tuple(row.tolist()) for row in table.weight} & source) == 10
    masked = encoder.get_input_embeddings().weight[tokenizer.mask_token_id]
    assert table.weight[characters.mask_token_id].equal(masked)
    with pytest.raises(InputError, match="too few for"):
        character_encoder(text_encoder(), tokenizer, map(chr, range(0x4E00, 0x4F00)))


# ---- the codec on the vocabularies of published encoders


def bert(listed):
    """As bert-base-chinese and bert-base-multilingual-cased have it: WordPiece, every Chinese character by itself."""
    core = Tokenizer(models.WordPiece({t: i for i, t in enumerate(["[UNK]", *listed])}, unk_token="[UNK]"))
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
    [bert([*"他在北京買了", "phone", "##s"]), xlm_roberta([*"他在北京買了", "北京", "▁phone", "s"]), character_tokenizer([TEXT])],
)
def test_every_chinese_character_is_a_token_that_knows_its_place(made):
    codec = TextCodec(made)
    ids, owners = codec.encode(["他", "在", "北", "京", "，", "買", "了"])
    assert [t.strip("▁") for t in made.convert_ids_to_tokens(ids)] == list("他在北京買了") and owners.tolist() == [0, 1, 2, 3, 5, 6]


@pytest.mark.parametrize("made", [bert(["phone", "##s"]), xlm_roberta(["▁phone", "s"])])
def test_words_among_chinese_keep_their_pieces(made):
    ids, owners = TextCodec(made).encode(["phones", "。"])
    assert len(ids) == 2 and owners.tolist() == [0, 0]


@given(st.text(alphabet="北京a，。（） ", max_size=6))
def test_signs_of_any_script_around_a_word_are_dropped(word):
    codec = TextCodec(character_tokenizer(["北京a，。（）"]))
    assert codec.encode([word])[0].tolist() == codec.encode([f"「{word}」!"])[0].tolist()
