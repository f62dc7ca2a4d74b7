"""Bring texts into normal forms and split them into tokens, to compare them.

`normalise` is for recognition errors (WER, CER); `split_answer_tokens` is for the text of an answer
(exact match and F1). Languages are `en`, compared in words, and `zh`, compared in characters;
`find_language` maps tags such as zh-TW to them. Other modules have the forms and readings of
Chinese characters (`chinese.py`), numbers in words (`numbers_en.py`, `numbers_zh.py`), and TF-IDF
(`tfidf.py`).
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

from speechssl.errors import InputError
from speechssl.text import numbers_en, numbers_zh
from speechssl.text.chinese import FORMS

T = TypeVar("T")
# the name by which it is imported from here
english_digits = numbers_en.write_english_digits

# languages of TyDi QA of which only answers can be scored: no rules normalise their texts
ANSWERS_ONLY = ("ar", "bn", "ko", "sw")
# a run of letters and digits of the Latin script: "mp3", "3.5"
_RUN = r"(?:[0-9a-z\u00c0-\u024f]|(?<=[0-9])\.(?=[0-9]))+"
# a token of Chinese: such a run, or any other character
_ZH_TOKEN = re.compile(rf"{_RUN}|\S")
_PIECE = re.compile(r"\S+")  # a piece of English: a word with its punctuation
# a piece of Chinese: a character, a run of other letters or digits, or a punctuation mark
_ZH_PIECE = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+|[^\w\s]")
# punctuation and symbols, but not the point in "3.5"
_MARK = re.compile(r"(?<![0-9])\.|\.(?![0-9])|[^\w\s.]|_")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_APOSTROPHES = str.maketrans("’‘ʼ", "'''")


def normalise(text: str, language: str, digits: bool = True) -> str:
    """Normalise a text, to compare recognised words with the reference.

    en: typographic apostrophes become plain, and signs become words (see
    `numbers_en.write_english_digits`); then follows Whisper's English normaliser (arXiv 2212.04356,
    appendix C), which writes contractions out, drops hesitations, and turns number words into
    digits ("twenty one" and "21" are the same). It joins successive digit words ("two three"
    becomes "23") but not successive digits ("2 3" stays), so digit strings should be spelled out
    both in transcript and reference.
    zh: NFKC (full-width letters and digits become plain), lower case, one form of each character
    (爲 and 為 become 为, 裏 and 裡 become 里, 著 becomes 着: FORMS), no punctuation, white space
    only between Latin runs, and with `digits` numbers as digits (二十 becomes 20:
    `numbers_zh.write_chinese_digits`). Words that differ by region (計程車, 出租车) stay different.
    Raises InputError for another language.
    """
    if find_language(language) == "en":
        return _normalise_english(text)
    if digits:  # before NFKC: the comma in 1,000 is ASCII, that of a Chinese list is not
        text = numbers_zh.prepare_signs(text)
    folded = unicodedata.normalize("NFKC", text).lower().translate(FORMS)
    if digits:
        folded = numbers_zh.write_signs_as_words(folded)
    plain = ""
    # one space between two Latin runs, which would merge without it, and no other white space
    for token in _ZH_TOKEN.findall(_MARK.sub(" ", folded)):
        follows_run = re.match(_RUN, token) and re.fullmatch(_RUN, plain[-1:])
        plain += f" {token}" if follows_run else token
    return numbers_zh.write_chinese_digits(plain) if digits else plain


def _normalise_english(text: str) -> str:
    """Apply Whisper's normaliser to a text with its signs as words, and correct the result."""
    spoken = numbers_en.write_signs_as_words(text.lower().translate(_APOSTROPHES))
    plain = (
        _load_whisper_normaliser()(spoken)
        .replace(numbers_en.APART_MARK, "")
        .replace(numbers_en.OVER, "/")
    )
    # Whisper's normaliser leaves the last point of "a ...", which is no word
    plain = " ".join(word for word in plain.split() if any(map(str.isalnum, word)))
    # Whisper's normaliser writes 1 as "one", so this is the form of the 1st in a date as well
    return numbers_en.compile_dates().sub(
        lambda m: f"{m[1]} {'one' if m[2] == '1' else m[2]}", plain
    )


def split_tokens(text: str, language: str) -> list[str]:
    """Split a text, after `normalise`, into the tokens that WER counts (en: words) or CER (zh:
    characters; a run of Latin letters and digits is one token)."""
    plain = normalise(text, language)
    return _choose_by_language(language, plain.split(), _ZH_TOKEN.findall(plain))


def name_error_metric(language: str) -> str:
    """Name the error rate over `split_tokens`: "cer" in Chinese, otherwise "wer". Raises InputError
    for a language that is neither en, zh, nor one of ANSWERS_ONLY."""
    if find_primary_tag(language) in ANSWERS_ONLY:
        return "wer"
    return _choose_by_language(language, "wer", "cer")


def split_pieces(text: str, language: str) -> list[tuple[str, int]]:
    """Split a text at white space (zh: into Chinese characters, punctuation marks, and runs of
    other letters or digits) and return every piece unchanged, with its offset.

    Raises InputError for another language.
    """
    pattern = _choose_by_language(language, _PIECE, _ZH_PIECE)
    return [(match.group(), match.start()) for match in pattern.finditer(text)]


def choose_joiner(language: str) -> str:
    """Choose the string between words: a space, or "" (zh). Raises InputError for another
    language."""
    return _choose_by_language(language, " ", "")


def spell_letters(text: str) -> str:
    """Write English with the letters that a CTC recogniser has: in lower case, with digits, plain
    apostrophes and single spaces, and "and" for "&".

    Numbers and contractions stay as they are, so that words are counted as in corpora of speech
    recognition. Words without a letter or a digit are dropped.
    """
    plain = unicodedata.normalize("NFKC", text.translate(_APOSTROPHES)).lower()
    letters = ""
    for c in plain.replace("&", " and "):
        letters += c if c == "'" or unicodedata.category(c)[0] in "LMN" else " "
    return " ".join(word for word in letters.split() if any(map(str.isalnum, word)))


def fold_letters(text: str) -> str:
    """Remove the differences between spellings: case, accents, typographic variants, forms of
    Chinese characters."""
    plain = unicodedata.normalize("NFKD", text.translate(_APOSTROPHES)).casefold().translate(FORMS)
    return "".join(c for c in plain if not unicodedata.combining(c))


def split_answer_tokens(text: str, language: str, digits: bool = True) -> list[str]:
    """Split an answer into the tokens that F1 counts and exact match compares: words (en) or
    characters (zh).

    en: numbers become digits ("nineteen eighty-four" is 1984), and signs, units and Roman numerals
    words or digits (`numbers_en.write_english_digits`); then follows the evaluation script of SQuAD
    v1.1: lower case, no ASCII punctuation, no articles. Texts without numbers, or whose only numbers are
    plain digits with $ and % ("3.5" is 35), have the tokens of that script. A fraction is one token
    (1/2, not 12).
    zh: the tokens of `split_tokens`, so that white space does not matter to exact match.
    ANSWERS_ONLY: the script of SQuAD v1.1 alone, as in TyDi QA's gold passage task.
    digits: False leaves numbers as they are. Raises InputError for another language.
    """
    if find_primary_tag(language) in ANSWERS_ONLY:
        digits = False
    elif find_language(language) == "zh":
        return _ZH_TOKEN.findall(normalise(text, "zh", digits))
    text = text.lower()
    if digits:
        text = numbers_en.mark_digits(text)
    plain = _ARTICLES.sub(" ", "".join(c for c in text if c not in string.punctuation))
    if digits:
        plain = plain.replace(numbers_en.OVER, "/")
    return plain.split()


def find_language(tag: str) -> str:
    """Find the language whose rules a tag stands for: "zh" for zh-TW, cmn and cmn-Hant, "en" for
    en-gb. Raises InputError for another language."""
    return _choose_by_language(tag, "en", "zh")


def _choose_by_language(language: str, english: T, chinese: T) -> T:
    """Choose between two values by the language. Raises InputError for another language."""
    tag = find_primary_tag(language)
    rules = {"en": english, "zh": chinese, "cmn": chinese}
    if tag not in rules:
        raise InputError(f"there are no text rules for the language {language!r}; use en or zh")
    return rules[tag]


def find_primary_tag(tag: str) -> str:
    """Find the language in a tag, without script and region: "zh" of "zh-TW"."""
    return re.split("[-_]", tag.lower())[0]


@lru_cache(1)
def _load_whisper_normaliser() -> Callable[[str], str]:
    """Load Whisper's normaliser of English, with corrected rules for numbers."""
    # Imported late: transformers takes a second, and Chinese or answer scoring does not need it.
    from transformers.models.whisper import english_normalizer

    normaliser: Any = english_normalizer.EnglishTextNormalizer(
        numbers_en.load_spoken_english()["spellings"]
    )
    normaliser.standardize_numbers = numbers_en.load_whisper_numbers()
    return cast(Callable[[str], str], normaliser)
