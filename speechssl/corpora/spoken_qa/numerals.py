"""Numbers as they are said, English and Mandarin.

espeak-ng knows no years (it reads 1922 as nineteen hundred twenty two), and says % in English in the middle of Mandarin.
"""

from __future__ import annotations

_ONES = (
    "zero one two three four five six seven eight nine ten "
    "eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
).split()
_TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()
_SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred"))
_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth", "twelve": "twelfth"
}  # fmt: skip
_DIGITS = "零一二三四五六七八九"
_UNITS = ((1000, "千"), (100, "百"), (10, "十"))
LONGEST = 15  # digits that are still read as a number


def cardinal(digits: str) -> str:
    """ "1024" -> "one thousand twenty four". A leading zero, or more than LONGEST digits: digit by digit."""
    if len(digits) > LONGEST or (len(digits) > 1 and digits[0] == "0"):
        return " ".join(_ONES[int(d)] for d in digits)
    return _cardinal(int(digits))


def _cardinal(number: int) -> str:
    if number < 20:
        return _ONES[number]
    if number < 100:
        return _TENS[number // 10] + (f" {_ONES[number % 10]}" if number % 10 else "")
    size, name = next((size, name) for size, name in _SCALES if number >= size)
    rest = number % size
    return f"{_cardinal(number // size)} {name}" + (f" {_cardinal(rest)}" if rest else "")


def year(digits: str) -> str:
    """Four digits as a year where they may be one (1100 to 2099), else as a number."""
    first, last = int(digits[:2]), int(digits[2:])
    if len(digits) != 4 or not 11 <= first <= 20 or (first == 20 and last < 10):
        return cardinal(digits)
    if last == 0:
        return f"{_cardinal(first)} hundred"
    return f"{_cardinal(first)} {'oh ' if last < 10 else ''}{_cardinal(last)}"


def plural(words: str) -> str:
    """ "nineteen ninety" -> "nineteen nineties": decades."""
    return words[:-1] + "ies" if words.endswith("ty") else words + ("es" if words.endswith("six") else "s")


def ordinal(digits: str) -> str:
    """ "19" -> "nineteenth"."""
    *before, last = cardinal(digits).split()
    last = _ORDINALS.get(last) or (last[:-1] + "ieth" if last.endswith("ty") else last + "th" * (last[-2:] != "th"))
    return " ".join([*before, last])


def decimal(digits: str, places: str) -> str:
    """ "3", "14" -> "three point one four"."""
    return f"{cardinal(digits or '0')} point {' '.join(_ONES[int(d)] for d in places)}"


def mandarin_digits(digits: str) -> str:
    """ "1990" -> "一九九零": years, telephone numbers, decimal places."""
    return "".join(_DIGITS[int(d)] for d in digits)


def mandarin(digits: str) -> str:
    """ "1024" -> "一千零二十四". A leading zero, or more than LONGEST digits: digit by digit."""
    if len(digits) > LONGEST or (len(digits) > 1 and digits[0] == "0"):
        return mandarin_digits(digits)
    said = _mandarin(int(digits))
    return said[1:] if said.startswith("一十") else said


def _mandarin(number: int) -> str:
    """Groups of four digits: 萬, 億, 萬億."""
    for size, name in ((10**12, "万亿"), (10**8, "亿"), (10**4, "万")):
        if number >= size:
            rest = number % size
            gap = "零" if 0 < rest < size // 10 else ""
            return _mandarin(number // size) + name + gap + (_mandarin(rest) if rest else "")
    return _below_ten_thousand(number)


def _below_ten_thousand(number: int) -> str:
    said, gap = "", False
    for size, name in _UNITS:
        digit, number = divmod(number, size)
        if digit:
            said += ("零" if gap else "") + _DIGITS[digit] + name
        gap = bool(said) and not digit if digit or said else False
    if number:
        said += ("零" if gap else "") + _DIGITS[number]
    return said or _DIGITS[0]
