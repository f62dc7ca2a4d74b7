"""Write Chinese numbers as digits and signs as words, so that texts compare equal whichever form a
recogniser or an annotator chose: 一九八四 becomes 1984."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, localcontext

from speechssl.text.fractions import split_vulgar, write_fraction

_GROUPED = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")  # the comma in 1,000
_DIGITS = {c: str(i) for i, c in enumerate("零一二三四五六七八九")} | {"〇": "0", "两": "2"}
# 幺 (yao) is "one" beside other digits, in telephone numbers: 幺三八
_YAO = re.compile(rf"(?<=[0-9幺{''.join(_DIGITS)}])幺|幺(?=[0-9幺{''.join(_DIGITS)}])")
_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10**4, "亿": 10**8}
_DIGIT, _UNIT = "".join(_DIGITS), "".join(_UNITS)
_TO_DIGITS = str.maketrans(_DIGITS)
_LONGEST = 40  # characters; a longer string of digits is not taken for a number
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
# 两 begins a number (两百, 两个), or stands before a unit in one (一千两百); elsewhere it is a weight
# (三两)
_DIGIT_BUT_LIANG = _DIGIT.replace("两", "")
_INSIDE = rf"(?:[0-9{_UNIT}{_DIGIT_BUT_LIANG}]|两(?=[百千万亿]))*"
_NUMBER = re.compile(
    rf"""
    ([{_LATIN}]?)                     # a Latin letter before the number
    (                                 # the number, such as 3千零24 or 一万二; it begins with
        (?:
            [0-9]+(?:\.[0-9]+)?       # 3 or 3.5
            | [{_DIGIT_BUT_LIANG}十]  # 三, or 十 as in 十二
            | (?<![0-9{_DIGIT}{_UNIT}])两  # 两, but not that of 三两
        )
        {_INSIDE}                     # further digits and units
        (?:
            \.[{_DIGIT}]+             # decimals: the .五 of 三.五
            (?:[万亿]{_INSIDE})?      # 亿 in 一.五亿
        )?
    )
    ([{_LATIN}]?)                     # a Latin letter behind it
    """,
    re.VERBOSE,
)
# two neighbouring digits make a number approximate: 二三十 is 20 or 30, 十七八 is 17 or 18
_ABOUT = re.compile(r"(?<![零〇])(?:一二|二三|两三|三四|三五|四五|五六|六七|七八|八九)")
_AMOUNT = r"[0-9]+(?:\.[0-9]+)?"
# signs -> words, in this order
_SIGNS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (
        re.compile(r"(?<![0-9a-z/.])([0-9]{1,2})/([0-9]{1,2})(?![0-9a-z/])"),
        lambda match: write_fraction(match, "{1}分之{0}"),  # 1/2 -> 2分之1
    ),
    (re.compile(r"(?<![^\s(])(?<![0-9] )[-−](?=[0-9])"), "负"),  # -5 -> 负5
    (re.compile(rf"({_AMOUNT}) ?‰"), r"千分之\1"),  # 5 ‰ -> 千分之5
    (re.compile(r"(?<![0-9:])([01]?[0-9]|2[0-4]):00(?![0-9:])"), r"\1点"),  # 7:00 -> 7点
    (
        re.compile(r"(?<![0-9:])([01]?[0-9]|2[0-4]):([0-5][0-9])(?![0-9:])"),
        r"\1点\2分",  # 7:30 -> 7点30分
    ),
    (
        re.compile(rf"(?<=[0-9{_DIGIT}十]点)半(?!个|天|年|月|径|点|信|途)"),
        "30分",  # 三点半 -> 三点30分
    ),
    # the amount is an atomic group: €50欧元 stays as it is, where a group that gives back digits
    # would make 5欧元0欧元 of it
    *(
        (re.compile(rf"{sign} ?((?>{_AMOUNT}[百千万亿]*))(?!.?元|英镑)"), rf"\1{name}")
        for sign, name in (
            ("€", "欧元"),  # €5 -> 5欧元
            ("£", "英镑"),  # £5万 -> 5万英镑
            ("¥", "元"),  # ¥5 -> 5元
            (r"(?<![a-z])(?:us)?\$", "美元"),  # US$5 -> 5美元
        )
    ),
)


def prepare_signs(text: str) -> str:
    """Prepare the numbers of a Chinese text before NFKC, which would change its signs: 1,000
    becomes 1000, 3½ becomes 3又1/2, and 幺三八 becomes 一三八."""
    return _YAO.sub("一", _GROUPED.sub("", split_vulgar(text, "又")))


def write_signs_as_words(text: str) -> str:
    """Write the signs of a Chinese text in lower case as the words that are said for them: -5
    becomes 负5, €5 becomes 5欧元."""
    for pattern, new in _SIGNS:
        text = pattern.sub(new, text)
    return text


def write_chinese_digits(text: str) -> str:
    """Write the numbers of simplified Chinese as digits: 三千零二十四 and 3千零24 become 3024, 三点五
    becomes 3.5, 两 becomes 2, 廿一 becomes 21, 贰佰 becomes 200.

    百分之五 becomes 5 and 百分之百 becomes 100: normal forms have no percent sign. 二三十 (20 or 30) and
    the weight in 三两 do not become digits. 一 becomes 1 in any word (一起 becomes 1起), which does no
    harm, because both sides of a comparison are treated so.
    """
    text = _CHEQUE.sub(lambda match: match.group().translate(_FROM_CHEQUE), text)
    text = _TENS.sub(lambda match: _TEN_TIMES[match.group()], text)
    text = _DECIMAL.sub(".", text)
    text = _WHOLE.sub("一百", text)
    text = _PERCENT.sub("", text)
    return _NUMBER.sub(_rewrite_number, text)


def _rewrite_number(match: re.Match[str]) -> str:
    """Write a match of `_NUMBER` in digits, with a space between these and Latin letters."""
    before, number, after = match.groups()
    digits = _write_digits(number)
    if digits == number:
        return match.group()
    left = " " if before and not number[0].isascii() else ""
    right = " " if after and not number[-1].isascii() else ""
    return before + left + digits + right + after


def _write_digits(number: str) -> str:
    """Write a Chinese number in digits; a text that is no exact number stays as it is."""
    if len(number) > _LONGEST:
        return number
    has_unit = bool(set(number) & set(_UNITS))
    approximate = _ABOUT.search(number.split(".")[0])
    if approximate and (has_unit or "两" in approximate.group()):
        return number
    if not has_unit:  # 一九八四
        return number.translate(_TO_DIGITS)
    with localcontext(prec=9 * _LONGEST):  # so many digits that none is rounded
        return _add_up(number)


def _add_up(number: str) -> str:
    """Add up a Chinese number, and return its digits.

    `section` is the sum of the digits before the next 万 (10⁴) or 亿 (10⁸), `total` the sum of all
    sections before. A 万 or 亿 multiplies the section alone, if the total has as large a unit
    already, or otherwise all that was read.
    """
    total = Decimal(0)
    section = Decimal(0)
    digits = ""  # since the last unit
    unit = 1  # the last unit
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
    last_unit_is_left_out = len(digits) == 1 and unit > 10  # 三万五 is 35000
    last_unit = unit // 10 if last_unit_is_left_out else 1
    value = total + section + Decimal(digits or 0) * last_unit
    # 十点五零 is 10.50, and 3.5万 is 35000
    return format(value if "." in digits else value.normalize(), "f")
