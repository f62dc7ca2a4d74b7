"""Numbers written out, as digits: "nineteen eighty-four" and 一九八四 are 1984, whichever a recogniser or an annotator wrote."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

_DIGITS = {c: str(i) for i, c in enumerate("零一二三四五六七八九")} | {"〇": "0", "两": "2"}
_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10**4, "亿": 10**8}
_DIGIT, _UNIT = "".join(_DIGITS), "".join(_UNITS)
_TO_DIGITS = str.maketrans(_DIGITS)
_LONGEST = 40  # characters of a number; what is longer is none
_LATIN = "a-z\u00c0-\u024f"
_DECIMAL = re.compile(rf"(?<=[{_DIGIT}{_UNIT}])点(?=[{_DIGIT}]+(?![0-9{_DIGIT}{_UNIT}分]))")  # 三点五, but not 三点五分 (3:05)
_PERCENT = re.compile(rf"(?<![0-9{_DIGIT}{_UNIT}])百分之(?=[0-9{_DIGIT}十])")
_WHOLE = re.compile(rf"(?<![0-9{_DIGIT}{_UNIT}])百分之?百(?![0-9{_DIGIT}{_UNIT}])")  # 100 %
_NUMBER = re.compile(rf"([{_LATIN}]?)((?:[0-9]+(?:\.[0-9]+)?|[{_DIGIT}十])[0-9{_DIGIT}{_UNIT}]*(?:\.[{_DIGIT}]+)?)([{_LATIN}]?)")


def chinese_digits(text: str) -> str:
    """Simplified Chinese with its numbers as digits: 三千零二十四 and 3千零24 are 3024, 三点五 is 3.5, 两 is 2.

    百分之五 is 5 and 百分之百 100: normal forms have no percent sign.

    一 is a number wherever it stands (一起 is 1起), as it is on the other side of a comparison.
    """
    return _NUMBER.sub(_chinese, _PERCENT.sub("", _WHOLE.sub("一百", _DECIMAL.sub(".", text))))


def _chinese(found: re.Match[str]) -> str:
    before, number, after = found.groups()
    value = _value(number)
    if value == number:
        return found.group()
    left, right = (" " if letter and not number[i].isascii() else "" for letter, i in ((before, 0), (after, -1)))
    return before + left + value + right + after


def _value(number: str) -> str:
    if len(number) > _LONGEST:
        return number
    if not set(number) & set(_UNITS):  # 一九八四
        return number.translate(_TO_DIGITS)
    total, section, digits, unit = Decimal(0), Decimal(0), "", 1
    for c in number:
        if c not in _UNITS:
            digits += _DIGITS.get(c, c)
            continue
        unit = _UNITS[c]
        if unit < 10**4:
            section += unit * Decimal(digits or 1)
        else:  # 一万二千亿 is (10000 + 2000) 亿, 一亿三千万 is 1 亿 + 3000 万
            section += Decimal(digits or 0)
            total = total + section * unit if section and total >= unit else (total + section) * unit
            section = Decimal(0)
        digits = ""
    short = len(digits) == 1 and unit > 10  # 三万五 is 35000
    value = total + section + Decimal(digits or 0) * (unit // 10 if short else 1)
    return format(value if "." in digits else value.normalize(), "f")  # 十点五零 is 10.50, and 3.5万 is 35000


def english_digits(text: str) -> str:
    """Lower-case English with its numbers as digits: "nineteen eighty-four" is 1984, "20 million" 20000000, "third" 3rd, "two and a
    half" 2.5, "thirty-one point five percent" 31.5%, "five dollars" $5.

    Only what spells a number is rewritten, by the rules of Whisper's normaliser (arXiv 2212.04356, appendix C): successive digit
    words are one number ("two three" is 23); "one" is 1.
    """
    halves, pattern, normaliser = _english()
    text = halves.sub(r"\1 point five", text)
    return pattern.sub(lambda found: " ".join(normaliser.process_words(re.split("[ -]+", found.group().replace(",", "")))), text)


def whisper_numbers() -> Any:
    """Whisper's rules for English numbers, which in transformers 5 know "nineth" in the place of "ninth"."""
    # Imported late: transformers takes a second, and Chinese does not need it.
    from transformers.models.whisper.english_normalizer import EnglishNumberNormalizer

    made = EnglishNumberNormalizer()
    made.ones_suffixed["ninth"] = made.ones_suffixed["nineth"]
    made.words.add("ninth")
    return made


@lru_cache(1)
def _english() -> tuple[re.Pattern[str], re.Pattern[str], Any]:
    """What "and a half" follows, what spells a number, and Whisper's rules."""
    made = whisper_numbers()
    plain = {*made.ones, *made.tens, *made.multipliers, "zero"}
    last = {*made.ones_suffixed, *made.tens_suffixed, *made.multipliers_suffixed}  # an ordinal or a plural ends the number
    listed = (plain, last, made.multipliers, {*made.ones, *made.tens, "zero", "oh"})
    plains, lasts, units, decimals = ("|".join(sorted(words, key=len, reverse=True)) for words in listed)
    digits = r"\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?"
    sign = r"percent|per +cent|dollars?"
    point = rf"point +(?=(?:{decimals})\b)"
    hundred_and = rf"(?:{'|'.join(f'(?<={unit})' for unit in made.multipliers)}) +and +"
    between = rf"(?:[ -]+(?:oh[ -]+)?| +{point}(?:oh +)*|{hundred_and})"
    begin = rf"(?:(?:{plains})|(?:{digits})(?= +{point}|[ -]+(?:{units}|{sign})\b))"
    number = rf"{begin}(?:{between}(?:{plains}))*(?:{between}(?:{lasts})| +(?:{sign}))?|(?:{lasts})"
    halves = re.compile(rf"(?<![\w.,'])({digits}|{plains}) +and +a +half(?![\w'])")
    return halves, re.compile(rf"(?<![\w.,'])(?:{number})(?![\w'])"), made
