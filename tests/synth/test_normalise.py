"""What is spoken in place of what is written."""

import pytest

from speechssl.synth.normalise import cardinal, mandarin, mandarin_digits, normalise, ordinal, plural, year


def spoken_text(text, language):
    return " ".join(f"{w.spoken}{w.pause}" for w in normalise(text, language) if w.spoken)


@pytest.mark.parametrize(
    ("digits", "words"),
    [
        ("0", "zero"), ("13", "thirteen"), ("40", "forty"), ("101", "one hundred one"), ("007", "zero zero seven"),
        ("11000", "eleven thousand"), ("1000001", "one million one"), ("1" * 16, " ".join(["one"] * 16)),
    ],
)  # fmt: skip
def test_cardinals(digits, words):
    assert cardinal(digits) == words


def test_every_number_below_a_million_is_said_differently():
    numbers = [str(n) for n in (*range(3000), *range(3000, 1_000_000, 997))]
    assert all(len(set(map(said, numbers))) == len(numbers) for said in (cardinal, mandarin, ordinal))


@pytest.mark.parametrize(
    ("digits", "words"),
    [
        ("1922", "nineteen twenty two"), ("1905", "nineteen oh five"), ("1900", "nineteen hundred"), ("2005", "two thousand five"),
        ("2022", "twenty twenty two"), ("1066", "one thousand sixty six"), ("4000", "four thousand"),
    ],
)  # fmt: skip
def test_years(digits, words):
    assert year(digits) == words


def test_ordinals_and_decades():
    numbers = ("1", "2", "3", "5", "8", "9", "12", "20")
    assert " ".join(map(ordinal, numbers)) == "first second third fifth eighth ninth twelfth twentieth"
    assert (ordinal("145"), ordinal("100")) == ("one hundred forty fifth", "one hundredth")
    assert [plural(w) for w in ("ninety", "hundred")] == ["nineties", "hundreds"]


@pytest.mark.parametrize(
    ("digits", "words"),
    [
        ("0", "零"), ("10", "十"), ("12", "十二"), ("20", "二十"), ("101", "一百零一"), ("110", "一百一十"), ("1001", "一千零一"),
        ("1010", "一千零一十"), ("10000", "一万"), ("10010", "一万零一十"), ("100000000", "一亿"), ("100000001", "一亿零一"),
        ("1000000000000", "一万亿"), ("007", "零零七"),
    ],
)  # fmt: skip
def test_mandarin_numbers(digits, words):
    assert mandarin(digits) == words and mandarin_digits("1990") == "一九九零"


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("$25 million, or 25 $ (3.5%) .", "twenty five million dollars, or twenty five dollars three point five percent,"),
        ("the 1990s, the 19th century", "the nineteen nineties, the nineteenth century"),
        ("Dr. Smith vs. the U.S. e.g. here", "doctor Smith versus the U S for example here"),
        ("St. Louis is no. Really", "saint Louis is no. Really"),
        ("World War II 1914-1918", "World War two nineteen fourteen to nineteen eighteen"),
        ("co2 in8 X.25 .5 1973's", "co two in eight X twenty five zero point five nineteen seventy three's"),
        ("this—of −4 3—4", "this of minus four three four"),
        ("α-helix A&B 10:30 1,024", "alpha helix A and B ten thirty one thousand twenty four"),
        ("“don’t” rock'n'roll café Şile", "don't rock'n'roll café Sile"),
        ("Παρά 中文 😀 \u200bzero\u200b x", "zero x"),
        ("um ,  , well", "um well"),
        ("<b> ---", "less than b greater than"),
        ("١٢٣", "one hundred twenty three"),
        ("½ 5½ 2¾ ⅔", "one half five and one half two and three quarters two thirds"),
        ("10² 10¹² x²", "ten two ten twelve x two"),
        ("$1 $1.50 50%-60%", "one dollar one point five zero dollars fifty percent to sixty percent"),
        ("", ""),
    ],
)
def test_english(written, spoken):
    assert spoken_text(written, "en") == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("1990年", "一九九零 年"),
        ("25.5%的人", "百分之二十五点五 的 人"),
        ("1,234元，10-20個", "一千二百三十四 元 十到二十 個"),
        ("用iPhone和DNA。", "用 iPhone 和 DNA"),
        ("３．５％", "百分之三点五"),
        ("3500年前3/4", "三千五百 年 前 四分之三"),
        ("窮兒，兄", "其顒 而 西擁"),
        ("10℃ 3:2 𠀀あ", "十 摄氏度 三比二"),
        ("二〇〇三年，一九九○年，○", "二 零零 三 年 一 九 九 零 年"),
        ("1990-1995年 1990-1995人", "一九九零到一九九五 年 一千九百九十到一千九百九十五 人"),
        ("½ 5½ 10² ١٢年", "二分之一 五又二分之一 十 二 十二 年"),
    ],
)
def test_mandarin(written, spoken):
    assert " ".join(w.spoken for w in normalise(written, "zh") if w.spoken) == spoken


def test_sentences_end_where_they_do():
    text = "Mr. J. Smith, of the U.S. Army, left... He did! Did he?\nno stop here\nlast"
    assert [w.text for w in normalise(text, "en") if w.ends] == ["left...", "did!", "he?", "here"]
    assert [w.text for w in normalise("他說：「好。」然後？走了；", "zh") if w.ends] == ["。」", "？", "；"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_tokens_are_those_of_the_text_at_their_places(language):
    text = " 1990年，「iPhone」 costs $5;\n\n x\u3000y "
    words = normalise(text, language)
    assert "".join(w.text for w in words) == "".join(text.split())
    assert all(text[w.start :].startswith(w.text) for w in words)
