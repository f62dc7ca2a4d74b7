"""Text is scored and searched here: normal forms and tokens; forms and readings of Chinese
characters; numbers; and TF-IDF, which finds documents that share rare terms with a query.

`normalise` is for recognition errors (WER, CER); `answer_tokens` is for the text of an answer
(exact match and F1). Languages are `en` (words) and `zh` (characters); `language_of` reads tags.

Chinese characters are compared without regard to their form (FORMS): traditional, simplified and
regional forms of a character are the same, by OpenCC's tables (github.com/BYVoid/OpenCC,
Apache-2.0: TSCharacters, TWVariants, HKVariants) with a few more forms that corpora mix. Characters
with a common simplified form are the same (發 and 髮 are 发); words that differ by region (軟體,
软件) are different words. OpenCC's own t2s (1.4) is not used: of the 2,979 forms here it leaves 23
as they are (著 and 瞭 among them), gives 5 another form, and folds 2,163 rare ones more.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Sequence
from decimal import Decimal, localcontext
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from speechssl.errors import InputError, MissingExtra

T = TypeVar("T")

# languages of TyDi QA whose answers are scored; there are no further rules for them
ANSWERS_ONLY = ("ar", "bn", "ko", "sw")
# a run of letters and digits of the Latin script: "mp3", "3.5"
_RUN = r"(?:[0-9a-z\u00c0-\u024f]|(?<=[0-9])\.(?=[0-9]))+"
# a token of Chinese: a run, or any other character
_ZH_TOKEN = re.compile(rf"{_RUN}|\S")
_PIECE = re.compile(r"\S+")
# a Chinese character, a run of other letters or digits, or a punctuation mark
_ZH_PIECE = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+|[^\w\s]")
# punctuation and symbols, but not the point in "3.5"
_MARK = re.compile(r"(?<![0-9])\.|\.(?![0-9])|[^\w\s.]|_")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_APOSTROPHES = str.maketrans("’‘ʼ", "'''")


def normalise(text: str, language: str, digits: bool = True) -> str:
    """Return the normal form of a text, in which recognised words are compared with the reference.

    en: typographic apostrophes become plain, and signs become words (see `english_digits`); then
    follows Whisper's English normaliser (arXiv 2212.04356, appendix C), which writes contractions
    out, drops hesitations, and turns number words into digits ("twenty one" and "21" are the same).
    It joins successive digit words ("two three" becomes "23") but not successive digits ("2 3"
    stays), so digit strings should be spelled out both in transcript and reference.
    zh: NFKC (full-width letters and digits become plain), lower case, one form for each character
    (爲 and 為 become 为, 裏 and 裡 里, 著 着: FORMS), no punctuation, white space between Latin runs
    alone, and with `digits` numbers as digits (二十 is 20: `chinese_digits`). Words that differ by
    region (計程車, 出租车) stay different.
    Raises InputError for another language.
    """
    if language_of(language) == "en":
        return _normalise_english(text)
    if digits:  # before NFKC: the comma in 1,000 is ASCII, that of a Chinese list is not
        text = _GROUPED.sub("", _split_vulgar(text, "又"))
        text = _YAO.sub("一", text)
    folded = unicodedata.normalize("NFKC", text).lower().translate(FORMS)
    for pattern, new in _CHINESE_SIGNS if digits else ():
        folded = pattern.sub(new, folded)
    plain = ""
    # no white space but for one space between two Latin runs, which would merge
    for token in _ZH_TOKEN.findall(_MARK.sub(" ", folded)):
        follows_run = re.match(_RUN, token) and re.fullmatch(_RUN, plain[-1:])
        plain += f" {token}" if follows_run else token
    return chinese_digits(plain) if digits else plain


def _normalise_english(text: str) -> str:
    """Apply Whisper's normaliser to a text with its signs as words, and correct the result."""
    spoken = _as_spoken(text.lower().translate(_APOSTROPHES))
    words = _whisper()(spoken).replace(_APART[0], "").replace(_OVER, "/").split()
    # Whisper's normaliser leaves the last point of "a ..."
    plain = " ".join(word for word in words if any(map(str.isalnum, word)))
    # and it writes 1 as "one"
    return _dates().sub(lambda m: f"{m[1]} {'one' if m[2] == '1' else m[2]}", plain)


def tokens(text: str, language: str) -> list[str]:
    """Split a text into the units of WER (en: words) or CER (zh: characters; a Latin run is one),
    after `normalise`."""
    plain = normalise(text, language)
    return _by_language(language, plain.split(), _ZH_TOKEN.findall(plain))


def error_metric(language: str) -> str:
    """Return the name of the error rate over `tokens`: "wer", or "cer" in Chinese. Raises
    InputError for another language, of which answers are not scored either."""
    if _primary(language) in ANSWERS_ONLY:
        return "wer"
    return _by_language(language, "wer", "cer")


def pieces(text: str, language: str) -> list[tuple[str, int]]:
    """Split a text at white space (zh: into Chinese characters, punctuation marks, and runs of
    other letters or digits) and return every piece unchanged, with its offset.

    Raises InputError for another language.
    """
    pattern = _by_language(language, _PIECE, _ZH_PIECE)
    return [(match.group(), match.start()) for match in pattern.finditer(text)]


def joiner(language: str) -> str:
    """Return the string between words: a space, or "" (zh). Raises InputError for another
    language."""
    return _by_language(language, " ", "")


def spell_letters(text: str) -> str:
    """Write English as a recogniser of letters does: in lower case, with digits, plain apostrophes
    and single spaces, and "and" for "&".

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


def answer_tokens(text: str, language: str, digits: bool = True) -> list[str]:
    """Split an answer into the tokens that F1 counts and exact match compares: words (en) or
    characters (zh).

    en: numbers become digits ("nineteen eighty-four" is 1984: `english_digits`); then follows the
    evaluation script of SQuAD v1.1: lower case, no ASCII punctuation, no articles. Texts without
    numbers, or with plain digits, $ and % alone ("3.5" is 35), have the tokens of that script. A
    fraction is one token (1/2, not 12); signs, units and Roman numerals become those of
    `english_digits`.
    zh: `tokens`, so that white space does not matter to exact match. digits: False leaves numbers
    as they are.
    ANSWERS_ONLY: the script of SQuAD v1.1 alone, as TyDi QA's gold passage task has it. Raises
    InputError for another language.
    """
    if _primary(language) in ANSWERS_ONLY:
        digits = False
    elif language_of(language) == "zh":
        return _ZH_TOKEN.findall(normalise(text, "zh", digits))
    text = text.lower()
    if digits:
        text = _english_digits(text)
    plain = _ARTICLES.sub(" ", "".join(c for c in text if c not in string.punctuation))
    return (plain.replace(_OVER, "/") if digits else plain).split()


def language_of(tag: str) -> str:
    """Return the language whose rules a tag stands for: "zh" for zh-TW, cmn and cmn-Hant, "en" for
    en-gb. Raises InputError for another language."""
    return _by_language(tag, "en", "zh")


def _by_language(language: str, english: T, chinese: T) -> T:
    """Return the value for the language of a tag. Raises InputError for another language."""
    tag = _primary(language)
    rules = {"en": english, "zh": chinese, "cmn": chinese}
    if tag not in rules:
        raise InputError(f"there are no text rules for the language {language!r}; use en or zh")
    return rules[tag]


def _primary(tag: str) -> str:
    """Return the language of a tag without its script or region."""
    return re.split("[-_]", tag.lower())[0]


@lru_cache(1)
def _whisper() -> Callable[[str], str]:
    # Imported late: transformers takes a second, and Chinese or answer scoring does not need it.
    from transformers.models.whisper import english_normalizer

    normaliser: Any = english_normalizer.EnglishTextNormalizer(spoken_english()["spellings"])
    normaliser.standardize_numbers = whisper_numbers()
    return cast(Callable[[str], str], normaliser)


def syllables(text: str) -> str:
    """Write Chinese as pinyin with the tone as a digit, 5 for the neutral one: 北京 is bei3jing1.

    Other characters stay as they are. A character with several readings gets the commonest,
    whatever the context. Raises MissingExtra without the package.
    """
    return "".join(_pinyin(text, "TONE3", "readings of Chinese"))


def syllable_parts(text: str) -> list[str]:
    """Split each character into those of initial, final and tone that it has: 北 is b-, -ei, 3.

    Raises MissingExtra without the package.
    """
    what = "sub-word units of Chinese"
    initials = _pinyin(text, "INITIALS", what)
    finals = _pinyin(text, "FINALS_TONE3", what)
    units = []
    for initial, final in zip(initials, finals, strict=True):
        for unit in (f"{initial}-", f"-{final.rstrip('12345')}", final[-1:]):
            if unit.strip("-"):
                units.append(unit)
    return units


def _pinyin(text: str, style: str, what: str) -> list[str]:
    try:
        import pypinyin
    except ImportError as error:
        raise MissingExtra(what, "chinese") from error
    wanted = getattr(pypinyin.Style, style)
    return list(pypinyin.lazy_pinyin(text, wanted, strict=False, neutral_tone_with_five=True))


# Each group of the table begins with the form that stands for all (the simplified one, if any).
_GROUPS = (Path(__file__).parent / "chinese_forms.txt").read_text(encoding="utf-8").split()
FORMS = str.maketrans({form: group[0] for group in _GROUPS for form in group[1:]})


# ---- number words become digits: "nineteen eighty-four" and 一九八四 are 1984, whichever form a
# recogniser or an annotator chose

_DENOMINATORS = (*range(2, 11), 12, 16, 20)  # of fractions: 9/11 is a date
_VULGAR = re.compile("([0-9]?)([¼-¾⅐-⅞])")  # ½, 3½
_GROUPED = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")  # the comma in 1,000
# Letters, so that all rules keep them: the stroke of a fraction, and a mark between two numbers
# that must not be joined.
_OVER, _APART = "ǀ", "ǁ "


def _split_vulgar(text: str, between: str) -> str:
    """Write ½ as 1/2, and 3½ as 3, then `between`, then 1/2."""

    def split(match: re.Match[str]) -> str:
        fraction = unicodedata.normalize("NFKC", match[2]).replace("⁄", "/")
        return f"{match[1]}{between}{fraction}" if match[1] else fraction

    return _VULGAR.sub(split, text)


_DIGITS = {c: str(i) for i, c in enumerate("零一二三四五六七八九")} | {"〇": "0", "两": "2"}
# 幺 (yao) is "one" beside other digits, in telephone numbers: 幺三八
_YAO = re.compile(rf"(?<=[0-9幺{''.join(_DIGITS)}])幺|幺(?=[0-9幺{''.join(_DIGITS)}])")
_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10**4, "亿": 10**8}
_DIGIT, _UNIT = "".join(_DIGITS), "".join(_UNITS)
_TO_DIGITS = str.maketrans(_DIGITS)
_LONGEST = 40  # characters of a number; a longer string of digits is no number
_LATIN = "a-z\u00c0-\u024f"
# the point in 三点五 and 一点五亿; 三点五分 is 3:05
_DECIMAL = re.compile(
    rf"(?<=[{_DIGIT}{_UNIT}])点(?=[{_DIGIT}]+(?:[万亿]|(?![0-9{_DIGIT}{_UNIT}分])))"
)
# "percent of" before its number: 百分之五
_PERCENT = re.compile(rf"(?<![0-9{_DIGIT}{_UNIT}])百分之(?=[0-9{_DIGIT}十])")
_WHOLE = re.compile(rf"(?<![0-9{_DIGIT}{_UNIT}])百分之?百(?![0-9{_DIGIT}{_UNIT}])")  # 100 %
# words for 20, 30 and 40, but not in 五卅, the 30th of May
_TENS = re.compile(rf"(?<![0-9{_DIGIT}{_UNIT}])[廿卅卌]")
_TEN_TIMES = {"廿": "二十", "卅": "三十", "卌": "四十"}
_FINANCIAL = "零壹贰叁肆伍陆柒捌玖拾佰仟"  # digits on cheques; alone they are names and verbs
_CHEQUE = re.compile(rf"(?<![{_FINANCIAL}万亿])[{_FINANCIAL[1:10]}][拾佰仟][{_FINANCIAL}万亿]*")
_FROM_CHEQUE = str.maketrans(_FINANCIAL, "零一二三四五六七八九十百千")
# 两 begins a number (两百, 两个), or stands before a unit in one (一千两百); elsewhere it is a weight, 三两
_INSIDE = rf"(?:[0-9{_UNIT}{_DIGIT.replace('两', '')}]|两(?=[百千万亿]))*"
# a number such as 3千零24 or 一万二, with the Latin letters before and after it
_NUMBER = re.compile(
    rf"([{_LATIN}]?)((?:[0-9]+(?:\.[0-9]+)?|[{_DIGIT.replace('两', '')}十]|(?<![0-9{_DIGIT}{_UNIT}])两){_INSIDE}"
    rf"(?:\.[{_DIGIT}]+(?:[万亿]{_INSIDE})?)?)([{_LATIN}]?)"
)
# two digits in a row make a number approximate: 二三十 is 20 or 30, 十七八 17 or 18
_ABOUT = re.compile(r"(?<![零〇])(?:一二|二三|两三|三四|三五|四五|五六|六七|七八|八九)")
# signs -> words, in this order: 1/2, -5, 5 ‰, 7:00, 7:30, 三点半, €5
_CHINESE_SIGNS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (
        re.compile(r"(?<![0-9a-z/.])([0-9]{1,2})/([0-9]{1,2})(?![0-9a-z/])"),
        lambda match: _fraction(match, "{1}分之{0}"),
    ),
    (re.compile(r"(?<![^\s(])(?<![0-9] )[-−](?=[0-9])"), "负"),
    (re.compile(r"([0-9]+(?:\.[0-9]+)?) ?‰"), r"千分之\1"),
    (re.compile(r"(?<![0-9:])([01]?[0-9]|2[0-4]):00(?![0-9:])"), r"\1点"),
    (re.compile(r"(?<![0-9:])([01]?[0-9]|2[0-4]):([0-5][0-9])(?![0-9:])"), r"\1点\2分"),
    (re.compile(rf"(?<=[0-9{_DIGIT}十]点)半(?!个|天|年|月|径|点|信|途)"), "30分"),
    *(
        (re.compile(rf"{sign} ?((?>[0-9]+(?:\.[0-9]+)?[百千万亿]*))(?!.?元|英镑)"), rf"\1{name}")
        for sign, name in (
            ("€", "欧元"),
            ("£", "英镑"),
            ("¥", "元"),
            (r"(?<![a-z])(?:us)?\$", "美元"),
        )
    ),
)


def _fraction(match: re.Match[str], form: str) -> str:
    """Write numerator and denominator in a form; 9/11 and 5/2 stay."""
    above, below = int(match[1]), int(match[2])
    return form.format(above, below) if 0 < above < below in _DENOMINATORS else match.group()


def chinese_digits(text: str) -> str:
    """Write the numbers of simplified Chinese as digits: 三千零二十四 and 3千零24 are 3024, 三点五 is
    3.5, 两 is 2, 廿一 21, 贰佰 200.

    百分之五 is 5 and 百分之百 100: normal forms have no percent sign. 二三十 (20 or 30) and the weight in
    三两 do not become digits. 一 becomes 1 in any word (一起 is 1起), which does no harm, because both
    sides of a comparison are treated so.
    """
    text = _CHEQUE.sub(lambda match: match.group().translate(_FROM_CHEQUE), text)
    text = _TENS.sub(lambda match: _TEN_TIMES[match.group()], text)
    text = _DECIMAL.sub(".", text)
    text = _WHOLE.sub("一百", text)
    text = _PERCENT.sub("", text)
    return _NUMBER.sub(_rewrite_number, text)


def _rewrite_number(match: re.Match[str]) -> str:
    """Write a number of `_NUMBER` as digits, with a space between them and Latin letters."""
    before, number, after = match.groups()
    digits = _number_digits(number)
    if digits == number:
        return match.group()
    left = " " if before and not number[0].isascii() else ""
    right = " " if after and not number[-1].isascii() else ""
    return before + left + digits + right + after


def _number_digits(number: str) -> str:
    """Return a Chinese number as digits; a text that is no exact number stays as it is."""
    if len(number) > _LONGEST:
        return number
    has_unit = bool(set(number) & set(_UNITS))
    approximate = _ABOUT.search(number.split(".")[0])
    if approximate and (has_unit or "两" in approximate.group()):
        return number
    if not has_unit:  # 一九八四
        return number.translate(_TO_DIGITS)
    with localcontext(prec=9 * _LONGEST):  # enough that no digit is rounded
        return _add_up(number)


def _add_up(number: str) -> str:
    """Add up a Chinese number: its digits times its units, in sections of 万 and 亿."""
    total = Decimal(0)
    section = Decimal(0)
    digits = ""
    unit = 1
    for c in number:
        if c not in _UNITS:
            digits += _DIGITS.get(c, c)
            continue
        unit = _UNITS[c]
        if unit < 10**4:
            section += unit * Decimal(digits or 1)
        else:  # 一万二千亿 is (10000 + 2000) 亿, 一亿三千万 is 1 亿 + 3000 万
            section += Decimal(digits or 0)
            if section and total >= unit:
                total += section * unit
            else:
                total = (total + section) * unit
            section = Decimal(0)
        digits = ""
    short = len(digits) == 1 and unit > 10  # 三万五 is 35000
    value = total + section + Decimal(digits or 0) * (unit // 10 if short else 1)
    # 十点五零 is 10.50, and 3.5万 is 35000
    return format(value if "." in digits else value.normalize(), "f")


@lru_cache(1)
def spoken_english() -> dict[str, Any]:
    """Load spoken_english.yaml: lists of words, and rules that turn signs into words."""
    import yaml

    path = Path(__file__).parent / "spoken_english.yaml"
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def _arabic(numeral: str) -> int:
    """Read a Roman numeral in lower case, up to 89."""
    values = [{"i": 1, "v": 5, "x": 10, "l": 50}[c] for c in numeral]
    return sum(-left if left < right else left for left, right in pairwise([*values, 0]))


def _ruler(match: re.Match[str]) -> str:
    """Write "henry viii" as "henry the 8th"."""
    number = _arabic(match[2])
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{match[1]} the {number}{'th' if 10 < number < 14 else ending}"


def _spoken_fraction(match: re.Match[str]) -> str:
    """Write "three quarters" as 3/4; "three quarter" and "one thirds" stay as they are."""
    above = int(match[1]) if match[1].isdigit() else spoken_english()["ones"].index(match[1]) + 1
    below = spoken_english()["below"][match[2]]
    number_agrees = (above == 1) != bool(match[3])
    return f"{above}{_OVER}{below}" if 0 < above < below and number_agrees else match.group()


def _quarters(match: re.Match[str]) -> str:
    """Write "2 and 1/2" as "2 point five"."""
    quarters = 4 // int(match[4]) * int(match[3])
    return f"{match[1] or match[2]} point {('', 'two five', 'five', 'seven five')[quarters]}"


def _money(match: re.Match[str]) -> str:
    """Write £5 million as 5 million pounds. The dollar sign stays, since SQuAD's script removes
    it."""
    is_one = match[2] == "1" and not match[3]
    name = spoken_english()["currencies"][match[1]]
    if is_one and match[1] != "¥":
        name = name[:-1]  # without the s
    return f"{match[2]}{match[3] or ''} {name}"


def _measure(match: re.Match[str]) -> str:
    """Write 5km as 5 kilometers, 1km as 1 kilometer, 5km/h as 5 kilometers per hour."""
    one, number, unit = match.groups()
    name, *rest = spoken_english()["measures"][unit].split(" ", 1)
    return " ".join((one or number, name if one else f"{name}s", *rest))


# Functions that the rules of spoken_english.yaml name in the place of a replacement.
_REPLACEMENTS: dict[str, Callable[[re.Match[str]], str]] = {
    "=scaled": lambda match: f"{match[1]} {spoken_english()['scales'][match[2]]}",
    "=money": _money,
    "=fraction": lambda match: _fraction(match, f"{{0}}{_OVER}{{1}}"),
    "=spoken_fraction": _spoken_fraction,
    "=and_a_part": lambda match: f"{match[1]} and 1{_OVER}{spoken_english()['below'][match[2]]}",
    "=and_a_part_of": lambda match: f"{match[1] or 'one'} and a {match[3]} {match[2]}",
    "=part_of": lambda match: f"{'0.5' if match[1] else '0.25'} {match[3]}",
    "=parts_of": lambda match: f"{int(match[1]) / int(match[2]):g} {match[3]}",
    "=quarters": _quarters,
    "=measure": _measure,
    "=ruler": _ruler,
    "=counted": lambda match: f"{match[1]} {_arabic(match[2])}",
}


@lru_cache(1)
def _signs() -> list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]]:
    """List the patterns of spoken_english.yaml, each with its replacement."""
    words = spoken_english()
    patterns = words["patterns"] | {"over": _OVER, "apart": _APART}

    def fill(text: str) -> str:
        """Replace names in braces by a pattern, or by the alternatives of a list of words."""
        return re.sub(
            r"\{([a-z_]+)\}",
            lambda match: fill(patterns.get(match[1]) or "|".join(words[match[1]])),
            text,
        )

    rules = []
    for pattern, new in words["signs"]:
        rules.append((re.compile(fill(pattern)), _REPLACEMENTS.get(new) or fill(new)))
    return rules


@lru_cache(1)
def _dates() -> re.Pattern[str]:
    """Return a pattern of "january 7th" and "january the 7th", which are written "january 7"."""
    return re.compile(
        rf"\b({'|'.join(spoken_english()['months'])})(?: the)? "
        rf"([0-9]{{1,2}})(?:st|nd|rd|th)(?!\w)"
    )


# "$5 and 20 cents", "5 pounds 20 pence", once numbers are digits
_CENTS = re.compile(
    r"(\$[0-9]+|[0-9]+(?= (?:euro|pound)s? ))( euros?| pounds?|) (?:and "
    r")?([0-9]{1,2}) (?:cents?|pence)(?!\w)"
)


def _as_spoken(text: str) -> str:
    """Write the signs of a lower-case English text as the words that are said for them, with
    `_OVER` in fractions and `_APART` between numbers that must not be joined."""
    text = _split_vulgar(text.replace(_OVER, " ").replace(_APART[0], " "), " ")
    for pattern, new in _signs():
        text = pattern.sub(new, text)
    return text


def english_digits(text: str) -> str:
    """Write the numbers of lower-case English as digits: "nineteen eighty-four" is 1984, "20
    million" 20000000, "third" 3rd, "two and a half" 2.5, "a million and a half" 1500000, "three
    quarters" 3/4, "thirty-one point five percent" 31.5%, "five dollars" $5.

    Number words alone are rewritten, by the rules of Whisper's normaliser (arXiv 2212.04356,
    appendix C): successive digit words are one number ("two three" is 23); "one" is 1. Signs become
    the words that are said for them: ½ and 1/2 (with the denominators 2 to 10, 12, 16, 20), $5bn,
    £5 ("5 pounds"), 50¢, 7:30 (730: "seven thirty"), 7:00 ("7 oclock"), 7 p.m., -5, 5km ("5
    kilometers"), 20°C, #5 and No. 5 ("number 5"), the day after a month (January 7th is "january
    7"), and Roman numerals after some forty names of rulers ("Henry VIII" is "henry the 8th") and
    words that count ("chapter IV"), but never I.
    """
    return _english_digits(text).replace(_OVER, "/")


def _english_digits(text: str) -> str:
    """Write numbers as `english_digits` does, with `_OVER` in fractions."""
    pattern, normaliser = _english()

    def write_digits(match: re.Match[str]) -> str:
        words = re.split("[ -]+", match.group().replace(",", ""))
        return " ".join(normaliser.process_words(words))

    digits = pattern.sub(write_digits, _as_spoken(text))
    digits = _CENTS.sub(lambda match: f"{match[1]}.{match[3]:0>2}{match[2]}", digits)
    return _dates().sub(r"\1 \2", digits.replace(_APART, ""))


def whisper_numbers() -> Any:
    """Return Whisper's rules for English numbers, and correct those of transformers 5, which have
    "nineth" for "ninth"."""
    # Imported late: transformers takes a second, and Chinese does not need it.
    from transformers.models.whisper.english_normalizer import EnglishNumberNormalizer

    normaliser = EnglishNumberNormalizer()
    normaliser.ones_suffixed["ninth"] = normaliser.ones_suffixed["nineth"]
    normaliser.words.add("ninth")
    return normaliser


def _any_of(words: Iterable[str]) -> str:
    """Return a pattern that matches any of the words, the longest first."""
    return "|".join(sorted(words, key=len, reverse=True))


@lru_cache(1)
def _english() -> tuple[re.Pattern[str], Any]:
    """Return a pattern of numbers in words ("two million and five", "20 percent", "third"), and
    Whisper's rules that turn them into digits."""
    rules = whisper_numbers()
    plain = {*rules.ones, *rules.tens, *rules.multipliers, "zero"}
    # an ordinal or a plural ends the number
    last = {*rules.ones_suffixed, *rules.tens_suffixed, *rules.multipliers_suffixed}
    plains = _any_of(plain)
    lasts = _any_of(last)
    units = _any_of(rules.multipliers)
    decimals = _any_of({*rules.ones, *rules.tens, "zero", "oh"})
    digits = r"\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?"
    sign = r"percent|per +cent|dollars?"
    point = rf"point +(?=(?:{decimals})\b)"
    hundred_and = rf"(?:{'|'.join(f'(?<={unit})' for unit in rules.multipliers)}) +and +"
    between = rf"(?:[ -]+(?:oh[ -]+)?| +{point}(?:oh +)*|{hundred_and})"
    begin = rf"(?:(?:{plains})|(?:{digits})(?= +{point}|[ -]+(?:{units}|{sign})\b))"
    number = rf"{begin}(?:{between}(?:{plains}))*(?:{between}(?:{lasts})| +(?:{sign}))?|(?:{lasts})"
    return re.compile(rf"(?<![\w.,'])(?:{number})(?:(?![\w'])|(?<!\bone)(?='s\b))"), rules


# ---- TF-IDF: documents that share rare terms with a query. A term is a word, or an n-gram of
# letters or units. Letters: Q queries, P documents, V terms

NGRAM = 3  # units or letters of a term: the best of 1 to 8 on the development set of MiniSQA
Terms = Sequence[Hashable]


def ngrams(symbols: Terms, n: int) -> list[Hashable]:
    """List every n symbols in a row; an empty list where there are fewer."""
    return list(zip(*(symbols[i:] for i in range(n)), strict=False))


def tfidf(queries: Sequence[Terms], documents: Sequence[Terms]) -> np.ndarray:
    """Return (Q, P) cosines of term counts times inverse document frequencies (scikit-learn's), 0
    where no term is shared."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # slow to import

    if not any(documents):
        return np.zeros((len(queries), len(documents)))
    vectorizer = TfidfVectorizer(analyzer=list)
    weights = vectorizer.fit_transform(documents)
    return (vectorizer.transform(queries) @ weights.T).toarray()
