"""Write English numbers as digits and signs as words, so that texts compare equal whichever form a
recogniser or an annotator chose: "nineteen eighty-four" becomes 1984."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from speechssl.text.fractions import split_vulgar, write_fraction

# Two letters that English does not have mark places in a text; letters, so that no rule removes them:
OVER = "ǀ"  # the stroke of a fraction
APART_MARK = "ǁ"  # between two numbers that must not be joined
_APART = APART_MARK + " "


@lru_cache(1)
def load_spoken_english() -> dict[str, Any]:
    """Load spoken_english.yaml: lists of words, and rules that turn signs into words."""
    import yaml

    path = Path(__file__).parent / "spoken_english.yaml"
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def _parse_roman(numeral: str) -> int:
    """Read a Roman numeral in lower case, up to 89."""
    values = [{"i": 1, "v": 5, "x": 10, "l": 50}[c] for c in numeral]
    return sum(-left if left < right else left for left, right in pairwise([*values, 0]))


def _write_ruler(match: re.Match[str]) -> str:
    """Write "henry viii" as "henry the 8th"."""
    number = _parse_roman(match[2])
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{match[1]} the {number}{'th' if 10 < number < 14 else ending}"


def _write_spoken_fraction(match: re.Match[str]) -> str:
    """Write "three quarters" as 3/4; "three quarter" and "one thirds" stay as they are."""
    above = (
        int(match[1]) if match[1].isdigit() else load_spoken_english()["ones"].index(match[1]) + 1
    )
    below = load_spoken_english()["below"][match[2]]
    number_agrees = (above == 1) != bool(match[3])
    is_proper = 0 < above < below
    return f"{above}{OVER}{below}" if is_proper and number_agrees else match.group()


def _write_and_a_part_of(match: re.Match[str]) -> str:
    """Write "a million and a half" as "one and a half million", and so "a million and 3/4"."""
    part = f"a {match[3]}" if match[3] else f"{match[4]}{OVER}{match[5]}"
    return f"{match[1] or 'one'} and {part} {match[2]}"


def _write_quarters(match: re.Match[str]) -> str:
    """Write "2 and 1/2" as "2 point five". Groups 3 and 4 are numerator and denominator."""
    quarters = 4 // int(match[4]) * int(match[3])
    return f"{match[1] or match[2]} point {('', 'two five', 'five', 'seven five')[quarters]}"


def _write_money(match: re.Match[str]) -> str:
    """Write £5 million as 5 million pounds. The dollar sign stays, since SQuAD's script removes
    it."""
    is_one = match[2] == "1" and not match[3]
    name = load_spoken_english()["currencies"][match[1]]
    if is_one and match[1] != "¥":
        name = name[:-1]  # without the s
    return f"{match[2]}{match[3] or ''} {name}"


def _write_measure(match: re.Match[str]) -> str:
    """Write 5km as 5 kilometers, 1km as 1 kilometer, 5km/h as 5 kilometers per hour."""
    one, number, unit = match.groups()  # `one` is "1", or None where the number is another
    name, *rest = load_spoken_english()["measures"][unit].split(" ", 1)  # "kilometer", ["per hour"]
    return " ".join((one or number, name if one else f"{name}s", *rest))


# A rule of spoken_english.yaml is a pattern with a replacement, or with the name of one of these.
_REPLACEMENTS: dict[str, Callable[[re.Match[str]], str]] = {
    # "$5bn" -> "$5 billion"
    "=scaled": lambda match: f"{match[1]} {load_spoken_english()['scales'][match[2]]}",
    "=money": _write_money,
    # "1/2" -> "1ǀ2"
    "=fraction": lambda match: write_fraction(match, f"{{0}}{OVER}{{1}}"),
    "=spoken_fraction": _write_spoken_fraction,
    # "two and a half" -> "two and 1ǀ2"
    "=and_a_part": lambda match: (
        f"{match[1]} and 1{OVER}{load_spoken_english()['below'][match[2]]}"
    ),
    # "a million and a half" -> "one and a half million"
    "=and_a_part_of": _write_and_a_part_of,
    # "half a million" -> "0.5 million"
    "=part_of": lambda match: f"{'0.5' if match[1] else '0.25'} {match[3]}",
    # "3ǀ4 of a million" -> "0.75 million"
    "=parts_of": lambda match: f"{int(match[1]) / int(match[2]):g} {match[3]}",
    "=quarters": _write_quarters,
    "=measure": _write_measure,
    "=ruler": _write_ruler,
    # "chapter iv" -> "chapter 4"
    "=counted": lambda match: f"{match[1]} {_parse_roman(match[2])}",
}


@lru_cache(1)
def _compile_signs() -> list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]]:
    """Compile the patterns of spoken_english.yaml, each with its replacement."""
    words = load_spoken_english()
    patterns = words["patterns"] | {"over": OVER, "apart": _APART}

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
def compile_dates() -> re.Pattern[str]:
    """Compile a pattern of "january 7th" and "january the 7th", which are written "january 7"."""
    return re.compile(
        rf"\b({'|'.join(load_spoken_english()['months'])})(?: the)? "
        rf"([0-9]{{1,2}})(?:st|nd|rd|th)(?!\w)"
    )


# "$5 and 20 cents", "5 pounds 20 pence", once numbers are digits
_CENTS = re.compile(
    r"""
    (\$[0-9]+|[0-9]+(?=[ ](?:euro|pound)s?[ ]))  # "$5", or the 5 of "5 pounds"
    ([ ]euros?|[ ]pounds?|)                      # " pounds", or nothing behind "$5"
    [ ](?:and[ ])?
    ([0-9]{1,2})[ ](?:cents?|pence)(?!\w)        # "20 cents"
    """,
    re.VERBOSE,
)


def write_signs_as_words(text: str) -> str:
    """Write the signs of a lower-case English text as the words that are said for them, with
    `OVER` in fractions and `_APART` between numbers that must not be joined."""
    text = split_vulgar(text.replace(OVER, " ").replace(APART_MARK, " "), " ")
    for pattern, new in _compile_signs():
        text = pattern.sub(new, text)
    return text


def write_english_digits(text: str) -> str:
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
    return mark_digits(text).replace(OVER, "/")


def mark_digits(text: str) -> str:
    """Write numbers as `write_english_digits` does, but with `OVER` in fractions, which is kept when
    punctuation is removed."""
    pattern, normaliser = _compile_numbers()

    def write_digits(match: re.Match[str]) -> str:
        words = re.split("[ -]+", match.group().replace(",", ""))
        return " ".join(normaliser.process_words(words))

    digits = pattern.sub(write_digits, write_signs_as_words(text))
    digits = _CENTS.sub(lambda match: f"{match[1]}.{match[3]:0>2}{match[2]}", digits)
    return compile_dates().sub(r"\1 \2", digits.replace(_APART, ""))


def load_whisper_numbers() -> Any:
    """Load Whisper's rules for English numbers, and correct those of transformers 5, which have
    "nineth" for "ninth"."""
    # Imported late: transformers takes a second, and Chinese does not need it.
    from transformers.models.whisper.english_normalizer import EnglishNumberNormalizer

    normaliser = EnglishNumberNormalizer()
    normaliser.ones_suffixed["ninth"] = normaliser.ones_suffixed["nineth"]
    normaliser.words.add("ninth")
    return normaliser


def _match_any(words: Iterable[str]) -> str:
    """Write a pattern that matches any of the words, the longest first."""
    return "|".join(sorted(words, key=len, reverse=True))


@lru_cache(1)
def _compile_numbers() -> tuple[re.Pattern[str], Any]:
    """Compile a pattern of numbers in words ("two million and five", "20 percent", "third"); return
    it with Whisper's rules that turn them into digits."""
    rules = load_whisper_numbers()
    cardinals = {*rules.ones, *rules.tens, *rules.multipliers, "zero"}
    ordinals = {*rules.ones_suffixed, *rules.tens_suffixed, *rules.multipliers_suffixed}
    any_cardinal = _match_any(cardinals)
    any_ordinal = _match_any(ordinals)  # or a plural, such as "twenties"
    any_multiplier = _match_any(rules.multipliers)
    # the words behind "point"
    any_decimal = _match_any({*rules.ones, *rules.tens, "zero", "oh", "o"})
    # "1,000", "20", "3.5"
    digits = r"\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?"
    # "percent", "dollars"
    sign = r"percent|per +cent|dollars?"
    # the "point" of "two point five"
    point = rf"point +(?=(?:{any_decimal})\b)"
    # the "and" of "two hundred and five"
    hundred_and = rf"(?:{'|'.join(f'(?<={unit})' for unit in rules.multipliers)}) +and +"
    # what may stand between two number words: a space, a hyphen, "oh" or "o", "point", "and"
    between = rf"(?:[ -]+(?:oh?[ -]+)?| +{point}(?:oh? +)*|{hundred_and})"
    # "two", or "20" before "million", "percent", "point five"
    begin = (
        rf"(?:(?:{any_cardinal})"
        rf"|(?:{digits})(?= +{point}|[ -]+(?:{any_multiplier}|{sign})\b))"
    )
    # "two hundred and five", "twenty first", "five percent", or "first" alone: an ordinal and a
    # sign end the number
    number = (
        rf"{begin}(?:{between}(?:{any_cardinal}))*(?:{between}(?:{any_ordinal})| +(?:{sign}))?"
        rf"|(?:{any_ordinal})"
    )
    # The end is not inside a word. 's may follow ("nineteen eighty's"), but not that of "one's".
    return re.compile(rf"(?<![\w.,'])(?:{number})(?:(?![\w'])|(?<!\bone)(?='s\b))"), rules
