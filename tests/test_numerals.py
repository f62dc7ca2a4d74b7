from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.numerals import chinese_digits, english_digits
from speechssl.synth.normalise import cardinal, mandarin, mandarin_digits, ordinal, year
from speechssl.text import FORMS, answer_tokens, normalise, tokens


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


@given(st.integers(0, 10**12))
def test_any_english_number_is_its_digits(number: int) -> None:
    assert english_digits(cardinal(str(number))) == str(number)


@given(st.integers(0, 10**6), st.text("0123456789", min_size=1, max_size=4))
def test_any_english_decimal_is_its_digits(whole: int, decimals: str) -> None:
    spoken = f"{cardinal(str(whole))} point {' '.join(cardinal(digit) for digit in decimals)}"
    assert english_digits(spoken) == f"{whole}.{decimals}"
    assert answer_tokens(f"{spoken} percent", "en") == answer_tokens(f"{whole:,}.{decimals}%", "en")


@given(st.integers(1100, 2099))
def test_any_year_is_its_digits(number: int) -> None:
    assert english_digits(year(str(number))) == str(number)


@given(st.integers(1, 9999))
def test_any_ordinal_is_its_digits(number: int) -> None:
    assert english_digits(ordinal(str(number)))[:-2] == str(number)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("三千零二十四", "3024"),
        ("3千零24", "3024"),
        ("三点五", "3.5"),
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


@given(st.integers(0, 10**15 - 1))
def test_any_chinese_number_is_its_digits(number: int) -> None:
    assert chinese_digits(mandarin(str(number)).translate(FORMS)) == str(number)
    assert chinese_digits(mandarin_digits(str(number)).translate(FORMS)) == str(number)


@given(st.integers(0, 10**6), st.text("0123456789", min_size=1, max_size=4))
def test_any_chinese_share_is_its_digits(whole: int, decimals: str) -> None:
    spoken = f"百分之{mandarin(str(whole))}点{mandarin_digits(decimals)}"
    assert tokens(spoken, "zh") == tokens(f"{whole}.{decimals}%", "zh")


@given(st.text("零〇一二两三四五六七八九十百千万亿点分之.0123456789a "))
def test_chinese_numbers_have_one_normal_form(text: str) -> None:
    once = normalise(text, "zh")
    assert normalise(once, "zh") == once


def test_it_does_not_matter_who_wrote_digits() -> None:
    assert tokens("In nineteen eighty-four he had two hundred men", "en") == tokens("in 1984 he had 200 men", "en")
    assert tokens("他在一九八四年有二百人", "zh") == tokens("他在1984年有200人", "zh")
    assert answer_tokens("In nineteen eighty-four", "en") == answer_tokens("in 1984", "en")
    assert tokens("the twenty-ninth of May", "en") == tokens("the 29th of May", "en")
    assert answer_tokens("The 1,984 men.", "en") == answer_tokens("one thousand nine hundred eighty-four men", "en")
    assert answer_tokens("31.5%", "en") == answer_tokens("thirty-one point five percent", "en") == ["315"]
    assert answer_tokens("$5 million", "en") == answer_tokens("five million dollars", "en")
    assert answer_tokens("三百二十", "zh") == answer_tokens("320", "zh")
