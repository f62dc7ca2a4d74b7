"""Normalisers, by tables; BM25 and TF-IDF against their formulas, term by term."""

from __future__ import annotations

import math
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.errors import MissingExtra
from speechssl.synth.speak import cardinal, mandarin, mandarin_digits, ordinal, year
from speechssl.text import (
    FORMS,
    SPELLINGS,
    answer_tokens,
    bm25,
    chinese_digits,
    english_digits,
    error_metric,
    fold_letters,
    language_of,
    ngrams,
    normalise,
    parts,
    pieces,
    spelt,
    syllables,
    tfidf,
    tokens,
)

from .files import refused

ENGLISH = [
    ("Hello, World!", "hello world"),
    ("  It's  twenty-one   years ", "it is 21 years"),
    ("two thousand and five", "2005"),
    ("2005", "2005"),
    ("five dollars", "$5"),
    ("um, I don’t know", "i do not know"),
    ("Mr. Smith can't", "mister smith can not"),
    ("the colour of the theatre", "the color of the theater"),
    ("the color of the theater", "the color of the theater"),
    ("1,000 people [laughter]", "1000 people"),
    ("café", "cafe"),
    ("", ""),
    ("...", ""),
    ("well ... %", "well"),
]
CHINESE = [
    ("他為什麼在家裡?", "他为什么在家里"),
    ("他爲什麼在家裏?", "他为什么在家里"),
    ("他为什么在家里？", "他为什么在家里"),
    ("著名,看着", "着名看着"),
    ("頭髮發霉", "头发发霉"),
    ("Ａ１２３，％", "a123"),
    ("三百公尺", "300公尺"),
    ("「iPhone 15 Pro」上市", "iphone 15 pro上市"),
    ("3.5 公里", "3.5公里"),
    ("第三。5月", "第35月"),
    ("我 喜 歡 A B C", "我喜欢a b c"),
    ("臺灣、台灣、台湾", "台湾台湾台湾"),
    ("_ — …", ""),
]


@pytest.mark.parametrize(("text", "wanted"), ENGLISH)
def test_english_for_word_errors(text: str, wanted: str) -> None:
    assert normalise(text, "en") == wanted
    assert tokens(text, "en") == wanted.split()


@pytest.mark.parametrize(("text", "wanted"), CHINESE)
def test_chinese_for_character_errors(text: str, wanted: str) -> None:
    assert normalise(text, "zh") == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("我在 ABC公司", ["我", "在", "abc", "公", "司"]),
        ("mp3播放", ["mp3", "播", "放"]),
        ("3.5 vs. 4", ["3.5", "vs", "4"]),
        ("", []),
    ],
)
def test_chinese_tokens_are_characters_and_latin_runs(text: str, wanted: list[str]) -> None:
    assert tokens(text, "zh") == wanted


@pytest.mark.parametrize(
    ("text", "language", "wanted"),
    [
        ("The  Eiffel-Tower, a tower.", "en", "eiffeltower tower"),
        ("An apple", "en", "apple"),
        ("theatre", "en", "theatre"),
        ("the", "en", ""),
        ("twenty", "en", "20"),  # which SQuAD's script leaves alone
        ("台 北!", "zh", "台 北"),
        ("Tokyo 塔", "zh", "tokyo 塔"),
    ],
)
def test_answers(text: str, language: str, wanted: str) -> None:
    assert answer_tokens(text, language) == wanted.split()


@given(st.text(alphabet="我在家裏爲abZ3. ,。_'é5零〇一二两三十百千万亿点分之", max_size=20))
def test_chinese_normal_form_is_stable_and_keeps_the_tokens(text: str) -> None:
    once = normalise(text, "zh")
    assert normalise(once, "zh") == once
    assert tokens(once, "zh") == tokens(text, "zh")


@given(st.text(alphabet="".join(map(chr, FORMS)) + "".join(FORMS.values()), max_size=20))
def test_a_text_and_its_simplified_form_are_the_same(text: str) -> None:
    assert normalise(text, "zh") == normalise(text.translate(FORMS), "zh")
    assert len(tokens(text, "zh")) == len(text)


@pytest.mark.parametrize(
    ("text", "language", "wanted"),
    [
        (" Anna  lost it. ", "en", ["Anna", "lost", "it."]),
        ("他 買了iPhone 15（新）。", "zh", ["他", "買", "了", "iPhone", "15", "（", "新", "）", "。"]),
        ("", "zh", []),
    ],
)
def test_pieces_stand_at_their_offsets(text: str, language: str, wanted: list[str]) -> None:
    assert [piece for piece, _ in pieces(text, language)] == wanted
    assert all(text[at:].startswith(piece) for piece, at in pieces(text, language))


@given(st.text(max_size=30))
def test_pieces_hold_every_character_that_is_not_white_space_once_and_tokens_no_white_space(text: str) -> None:
    for language in ("en", "zh"):
        assert "".join(piece for piece, _ in pieces(text, language)) == "".join(text.split())
        assert not any(not token or token != token.strip() for token in tokens(text, language))


def test_language_tags_and_unknown_languages() -> None:
    assert {language_of(tag) for tag in ("zh", "zh-TW", "zh_Hant", "cmn", "CMN-Hans")} == {"zh"}
    assert normalise("colour", "en-GB") == normalise("colour", "en_us") == "color" and tokens("爲", "zh-TW") == ["为"]
    assert (error_metric("en-gb"), error_metric("zh"), error_metric("cmn")) == ("wer", "cer", "cer")
    refused("'fr'; use en or zh", normalise, "bonjour", "fr")
    refused("'zha'", language_of, "zha")  # Zhuang


def test_tables_fold_once() -> None:
    assert len(FORMS) > 2900 and not {chr(form) for form in FORMS} & set(FORMS.values())
    assert not set(SPELLINGS) & set(SPELLINGS.values())


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("MISTER QUILTER IS THE APOSTLE", "mister quilter is the apostle"),
        ("It\u2019s 5 o'clock \u2014 isn\u2019t it?", "it's 5 o'clock isn't it"),
        ("rock & roll, well-known\n\tsongs", "rock and roll well known songs"),
        ("caf\u00e9 e\u0301 \uff21 | < >", "caf\u00e9 \u00e9 a"),
        (" ' '' . ", ""),
        ("B-city new york E-city", "b city new york e city"),
    ],
)
def test_spelt_text_is_small_letters_digits_and_apostrophes(text, form):
    assert spelt(text) == form and spelt(form) == form


def test_folded_letters_are_those_that_spellings_share():
    assert fold_letters("Café ’S") == "cafe 's" and fold_letters("臺灣ＡＢ") == fold_letters("台湾ab") == "台湾ab"


# ---- readings of Chinese characters


pytest.importorskip("pypinyin")


def test_a_syllable_has_its_tone_and_parts_are_initial_final_and_tone_as_far_as_a_character_has_them():
    assert syllables("北京3Tesla的") == "bei3jing13Teslade5" and syllables("臺") == syllables("台") == "tai2"
    assert parts("北") == ["b-", "-ei", "3"] and parts("安的") == ["-an", "1", "d-", "-e", "5"] and parts("") == []


@pytest.mark.parametrize("read", [parts, syllables])
def test_without_the_package_it_is_named(read, monkeypatch):
    monkeypatch.setitem(sys.modules, "pypinyin", None)
    with pytest.raises(MissingExtra, match=r"needs the extra chinese: pip install '"):
        read("北")


# ---- numbers written out, as digits


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("nineteen eighty-four", "1984"),
        ("in nineteen oh four, he", "in 1904, he"),
        ("two hundred and five, and six", "205, and 6"),
        ("two billion and five", "2000000005"),
        ("one thousand and one nights", "1001 nights"),
        ("20.5 million people", "20500000 people"),
        ("1,200 people", "1,200 people"),
        ("the twenty-first century", "the 21st century"),
        ("the nineteen eighties", "the 1980s"),
        ("two three", "23"),
        ("thirty-one point five", "31.5"),
        ("one point five million", "1500000"),
        ("three point one four", "3.14"),
        ("three point oh five", "3.05"),
        ("at this point five men", "at this point 5 men"),
        ("the point", "the point"),
        ("two and a half million", "2500000"),
        ("two men and a half", "2 men and a half"),
        ("thirty-one point five percent of it", "31.5% of it"),
        ("one hundred per cent", "100%"),
        ("20 percent", "20%"),
        ("percent", "percent"),
        ("five million dollars", "$5000000"),
        ("thirty seconds", "30 seconds"),
        ("someone won", "someone won"),
        ("o'one and and", "o'one and and"),
        ("one's", "one's"),
    ],
)
def test_english(text: str, wanted: str) -> None:
    assert english_digits(text) == wanted


@given(st.integers(0, 10**12), st.integers(1100, 2099), st.integers(1, 9999), st.text("0123456789", min_size=1, max_size=4))
def test_any_english_number_year_ordinal_and_decimal_is_its_digits(number: int, when: int, rank: int, decimals: str) -> None:
    assert english_digits(cardinal(str(number))) == str(number) and english_digits(year(str(when))) == str(when)
    assert english_digits(ordinal(str(rank)))[:-2] == str(rank)
    spoken = f"{cardinal(str(rank))} point {' '.join(cardinal(digit) for digit in decimals)}"
    assert english_digits(spoken) == f"{rank}.{decimals}"
    assert answer_tokens(f"{spoken} percent", "en") == answer_tokens(f"{rank:,}.{decimals}%", "en")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("三千零二十四", "3024"),
        ("3千零24", "3024"),
        ("三点五", "3.5"),
        ("一点五亿人", "150000000人"),
        ("两点五万亿", "2500000000000"),
        ("一点五亿三千万", "180000000"),
        ("十二点三", "12.3"),
        ("三点五分", "3点5分"),
        ("三点五十", "3点50"),
        ("百分之五十", "50"),
        ("百分之百", "100"),
        ("百分百", "100"),
        ("百分之零点五", "0.5"),
        ("五百分之一", "500分之1"),
        ("一亿三千万", "130000000"),
        ("一万二千亿", "1200000000000"),
        ("三万五", "35000"),
        ("3.5万", "35000"),
        ("一九八四年", "1984年"),
        ("b三c", "b 3 c"),
        ("千万", "千万"),
        ("两个", "2个"),
    ],
)
def test_chinese(text: str, wanted: str) -> None:
    assert chinese_digits(text) == wanted


@given(st.integers(0, 10**15 - 1), st.integers(0, 10**6), st.text("0123456789", min_size=1, max_size=4))
def test_any_chinese_number_and_share_is_its_digits(number: int, whole: int, decimals: str) -> None:
    assert chinese_digits(mandarin(str(number)).translate(FORMS)) == str(number)
    assert chinese_digits(mandarin_digits(str(number)).translate(FORMS)) == str(number)
    spoken = f"百分之{mandarin(str(whole))}点{mandarin_digits(decimals)}"
    assert tokens(spoken, "zh") == tokens(f"{whole}.{decimals}%", "zh")


def test_it_does_not_matter_who_wrote_digits() -> None:
    assert tokens("In nineteen eighty-four he had two hundred men", "en") == tokens("in 1984 he had 200 men", "en")
    assert tokens("他在一九八四年有二百人", "zh") == tokens("他在1984年有200人", "zh")
    assert answer_tokens("In nineteen eighty-four", "en") == answer_tokens("in 1984", "en")
    assert tokens("the twenty-ninth of May", "en") == tokens("the 29th of May", "en")
    assert answer_tokens("The 1,984 men.", "en") == answer_tokens("one thousand nine hundred eighty-four men", "en")
    assert answer_tokens("31.5%", "en") == answer_tokens("thirty-one point five percent", "en") == ["315"]
    assert answer_tokens("$5 million", "en") == answer_tokens("five million dollars", "en")
    assert answer_tokens("三百二十", "zh") == answer_tokens("320", "zh")


# ---- terms that are shared

DOCUMENTS = ["the red boat sails".split(), "the boat the boat".split(), "two cats".split(), []]


def lucene(query, document, documents):
    """BM25 of one pair, as the formula stands."""
    mean, score = sum(map(len, documents)) / len(documents), 0.0
    for term in query:
        having = sum(term in d for d in documents)
        idf = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
        times = Counter(document)[term]
        score += idf * times / (times + 1.2 * (1 - 0.75 + 0.75 * len(document) / mean))
    return score


WORDS = st.lists(st.sampled_from("abcdef"), max_size=6)


@given(st.lists(WORDS, min_size=1, max_size=4), st.lists(WORDS, min_size=1, max_size=6))
def test_bm25_is_the_formula(queries, documents):
    found = bm25(queries, documents)
    wanted = [[lucene(q, d, documents) if any(documents) else 0 for d in documents] for q in queries]
    assert found == pytest.approx(np.array(wanted))


def test_bm25_is_that_of_bm25s():
    found = bm25([["red", "boat"], ["boat", "boat"], ["dog"]], DOCUMENTS)
    given = [[0.6923796, 0.37066695, 0, 0], [0.5059469, 0.7413339, 0, 0], [0, 0, 0, 0]]  # 0.3.16, "lucene", k1 1.2, b 0.75
    assert found == pytest.approx(np.array(given), abs=1e-6)


def test_tfidf_is_a_cosine_of_weighted_counts():
    (found,) = tfidf([["red", "boat"]], DOCUMENTS)
    idf = {term: math.log(5 / (1 + sum(term in d for d in DOCUMENTS))) + 1 for d in DOCUMENTS for term in d}

    def vector(terms):
        return np.array([Counter(terms)[t] * idf[t] for t in sorted(idf)])

    q, d = vector(["red", "boat"]), vector(DOCUMENTS[0])
    assert found[0] == pytest.approx(q @ d / np.linalg.norm(q) / np.linalg.norm(d))
    assert found[2] == found[3] == 0 < found[1] < found[0]


@pytest.mark.parametrize("score", [bm25, tfidf])
def test_documents_without_terms_and_unknown_terms_score_nothing(score):
    assert not score([["a"]], [[], []]).any()
    assert not score([["z"], []], [["a"], ["b"]]).any()


def test_ngrams_of_units_and_letters():
    assert ngrams([1, 2, 3, 2], 3) == [(1, 2, 3), (2, 3, 2)]
    assert ngrams("red", 2) == [("r", "e"), ("e", "d")]
    assert ngrams([1, 2], 3) == []
