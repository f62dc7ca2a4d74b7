"""Text normalisation for synthesis, token by token: what is spoken changes, the written text never does.

espeak-ng reads no years (1922 as nineteen hundred twenty two), and % in English in the middle of Mandarin. Brackets, quotation
marks and letters of other scripts are not spoken (but one alone is, by its name: "α" alpha). English numerals are those of
num2words. Mandarin's are our own: from 10^8 on cn2an leaves out the 零 of a gap (100001001) and reads 万亿 as 万, so that spoken
corpora would change. espeak-ng's Mandarin reads traditional characters as it does simplified ones, but spells the syllables xiong,
qiong and jiong and 兒 in English letters: `_MISREAD` gives it what sounds like them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from speechssl.errors import MissingExtra

_DIGITS = "零一二三四五六七八九"
LONGEST = 15  # digits that are still read as a number


def cardinal(digits: str) -> str:
    """ "1024" -> "one thousand twenty four". A leading zero, or more than LONGEST digits: digit by digit."""
    if len(digits) > LONGEST or (len(digits) > 1 and digits[0] == "0"):
        return _digit_by_digit(digits)
    return _numeral(int(digits), "cardinal")


def _digit_by_digit(digits: str) -> str:
    return " ".join(_numeral(int(d), "cardinal") for d in digits)


@cache
def _numeral(number: int, to: str) -> str:
    """Raises MissingExtra without num2words."""
    try:
        from num2words import num2words  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtra("reading numbers aloud", "synth") from error
    return str(num2words(number, to=to)).replace(" and ", " ").replace(",", "").replace("-", " ")


def year(digits: str) -> str:
    """Four digits as a year where they may be one (1100 to 2099), else as a number."""
    first, last = int(digits[:2]), int(digits[2:])
    if len(digits) != 4 or not 11 <= first <= 20 or (first == 20 and last < 10):
        return cardinal(digits)
    if last == 0:
        return f"{cardinal(digits[:2])} hundred"
    return f"{cardinal(digits[:2])} {'oh ' if last < 10 else ''}{_numeral(last, 'cardinal')}"


def plural(words: str) -> str:
    """ "nineteen ninety" -> "nineteen nineties": decades."""
    return words[:-1] + "ies" if words.endswith("ty") else words + "s"


def ordinal(digits: str) -> str:
    """ "19" -> "nineteenth"."""
    if len(digits) > LONGEST or (len(digits) > 1 and digits[0] == "0"):
        return f"{_digit_by_digit(digits[:-1])} {_numeral(int(digits[-1]), 'ordinal')}"
    return _numeral(int(digits), "ordinal")


def mandarin_digits(digits: str) -> str:
    """ "1990" -> "一九九零": years, telephone numbers, decimal places."""
    return "".join(_DIGITS[int(d)] for d in digits)


def mandarin(digits: str) -> str:
    """ "1024" -> "一千零二十四". A leading zero, or more than LONGEST digits: digit by digit."""
    if len(digits) > LONGEST or (len(digits) > 1 and digits[0] == "0"):
        return mandarin_digits(digits)
    spoken = _mandarin(int(digits))
    return spoken[1:] if spoken.startswith("一十") else spoken


def _mandarin(number: int) -> str:
    """Groups of four digits: 萬, 億, 萬億."""
    for size, name in ((10**12, "万亿"), (10**8, "亿"), (10**4, "万")):
        if number >= size:
            rest = number % size
            gap = "零" if 0 < rest < size // 10 else ""
            return _mandarin(number // size) + name + gap + (_mandarin(rest) if rest else "")
    spoken, gap = "", ""
    for size, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, number = divmod(number, size)
        if digit:
            spoken, gap = spoken + gap + _DIGITS[digit] + name, ""
        elif spoken:
            gap = "零"
    return spoken or _DIGITS[0]


HAN = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_LETTER = rf"(?![{HAN}])[^\W_]"
_ZH_TOKEN = re.compile(rf"[{HAN}]|{_LETTER}(?:(?:{_LETTER}|[.．,:'’&@/+_％%-])*(?:{_LETTER}|[%％]))?|(?:(?!{_LETTER})[^\s{HAN}])+")
_EN_TOKEN = re.compile(r"\S+")

_ABBREVIATIONS = {
    "mr": "mister", "mrs": "missus", "ms": "miz", "dr": "doctor", "prof": "professor", "st": "saint", "jr": "junior",
    "sr": "senior", "vs": "versus", "etc": "et cetera", "e.g": "for example", "i.e": "that is", "no": "number",
    "gen": "general", "col": "colonel", "capt": "captain", "lt": "lieutenant", "sgt": "sergeant",
    "rev": "reverend", "gov": "governor", "sen": "senator", "mt": "mount",
    "ft": "fort", "approx": "approximately", "ca": "circa", "a.m": "a m", "p.m": "p m",
}  # fmt: skip
_WORDS_TOO = ("no", "gen", "col", "sen", "st", "ft", "mt", "ca")  # words as well: abbreviations only with a capital before more
_ROMAN = {"II": "two", "III": "three", "IV": "four", "VI": "six", "VII": "seven", "VIII": "eight", "IX": "nine"}
_CURRENCIES = {"$": "dollars", "£": "pounds", "€": "euros", "¥": "yen"}
_SCALES = ("hundred", "thousand", "million", "billion", "trillion")
_SYMBOLS = {
    "&": "and", "+": "plus", "=": "equals", "×": "times", "÷": "divided by", "°": "degrees", "@": "at", "#": "number",
    "%": "percent", "‰": "per mille", "<": "less than", ">": "greater than", "±": "plus or minus", "√": "root", "∞": "infinity",
    **_CURRENCIES,
}  # fmt: skip
_ZH_SYMBOLS = {
    "&": "和", "+": "加", "=": "等于", "×": "乘", "÷": "除以", "°": "度", "%": "百分号", "‰": "千分号", "$": "美元", "£": "英镑",
    "€": "欧元", "¥": "元", "~": "到", "〇": "零",
}  # fmt: skip
_PLAIN = str.maketrans({**dict.fromkeys("’‘ʼ′", "'"), **dict.fromkeys("“”", '"'), **dict.fromkeys("–−‐‑", "-"), "—": "--"})
_RAISED = re.compile(r"(?<=\d)(?=[⁰¹²³⁴-⁹⁻¼-¾⅐-⅞])")  # 5½ is not 51/2, nor 10² 102
_MISREAD = {
    **dict.fromkeys("兄兇凶匈哅忷恟汹洶胷胸訩詾讻賯㐫", "西擁"),
    **dict.fromkeys("熊赨雄䧺", "席顒"),
    **dict.fromkeys("夐敻詗诇", "戲用"),
    **dict.fromkeys("匔焪芎", "七擁"),
    **dict.fromkeys("儝卭宆惸桏棾橩焭煢琼瓊睘瞏穷穹窮竆笻筇茕藑藭蛩赹跫輁邛銎㒌㧭㮪㷀㼇䅃䆳䊄䓖䛪䠻", "其顒"),
    **dict.fromkeys("冂冋坰埛扃蘏蘔駫", "機擁"),
    **dict.fromkeys("侰僒冏囧幜泂炯烱煚煛熲皛窘絅綗褧迥逈顈颎駉㓏㖥㢠㤯㷗㷡䌹䐃䢛", "幾永"),
    **dict.fromkeys("澃㑋", "記用"),
    "兒": "而",
}
_ENDS = re.compile(r"[.!?…。！？；;][\"'”’」』）)\]》]*$")
_NUMBER = re.compile(
    r"""(?P<money>[$£€¥])?(?P<digits>\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:(?<![a-z])\.(?P<places>\d+))?
        (?:(?P<ordinal>(?:st|nd|rd|th)(?![a-z]))|(?P<decade>'?s(?![a-z]))|(?P<percent>%))?""",
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True)
class Word:
    """A token of the written text. spoken: what the synthesiser is given for it, "" where nothing can be spoken."""

    text: str
    start: int  # offset in the written text
    spoken: str
    pause: str = ""  # punctuation to speak after it
    ends: bool = False  # a sentence


def normalise(text: str, language: str) -> list[Word]:
    """Every token of a text, en or zh. en: what white space separates; zh: characters, Latin runs, punctuation.

    A sentence ends at . ! ? … ; and at a line break, but not at an abbreviation.
    """
    chinese = language == "zh"
    found = [(m.start(), m.group()) for m in (_ZH_TOKEN if chinese else _EN_TOKEN).finditer(text)]
    plain = [unicodedata.normalize("NFKC", _RAISED.sub(" ", token)).translate(_PLAIN) for _, token in found]
    following = [*(start for start, _ in found), len(text)][1:]
    words: list[Word] = []
    for i, ((start, token), after) in enumerate(zip(found, following, strict=True)):
        core = plain[i].strip("\"'()[]")  # Dr., J. or U.S., whose points end no sentence
        short = core.endswith(".") and (_expanded(plain, i) != "" or re.fullmatch(r"(?:[A-Za-z]\.)+", core) is not None)
        ends = "\n" in text[start + len(token) : after] or (_ENDS.search(plain[i]) is not None and not short)
        spoken = (_mandarin_token if chinese else _english_token)(plain, i)
        words.append(Word(token, start, spoken, "" if short else _pause(plain[i], chinese), ends))
    return words


def _expanded(tokens: Sequence[str], i: int) -> str:
    """What an abbreviation stands for; "" for other tokens. "No." is one before a number, "St." before a name."""
    core, after = tokens[i].strip("\"'()[],;:?!"), tokens[i + 1] if i + 1 < len(tokens) else ""
    name = core[:-1].lower()
    if not core.endswith(".") or name not in _ABBREVIATIONS:
        return ""
    if name in _WORDS_TOO and not (core[:1].isupper() and (after[:1].isdigit() if name == "no" else after[:1].isupper())):
        return ""
    return _ABBREVIATIONS[name]


def _pause(token: str, chinese: bool) -> str:
    """The punctuation that changes how it is spoken, of a token that ends in some."""
    tail = re.search(r"[^\w%]*$", token)
    marks = tail.group() if tail else ""
    for mark, plain in (("?？", "?"), ("!！", "!"), (".。…;；", "."), (",，、:：-()", ",")):
        if any(m in marks for m in mark):
            return "？！。，"["?!.,".index(plain)] if chinese else plain
    return ""


def _english_token(tokens: Sequence[str], i: int) -> str:
    token = tokens[i].strip('"()[]{}*_|~^`\\')
    before, after = (tokens[i - 1] if i else ""), (tokens[i + 1] if i + 1 < len(tokens) else "")
    core = token.strip(".,;:?!…-").lower()
    if expanded := _expanded(tokens, i):
        return expanded
    if token.strip(".,;:?!'") in _ROMAN:
        return _ROMAN[token.strip(".,;:?!'")]
    if core in _SCALES and before[:1] in _CURRENCIES and any(map(str.isdigit, before)):
        return f"{core} {_CURRENCIES[before[0]]}"  # $25 million
    if re.fullmatch(r"(?:[A-Za-z]\.)+[A-Za-z]?", token.rstrip(",;:?!")):
        return " ".join(re.findall("[A-Za-z]", token))
    token = re.sub(r"^-(?=\d)", "minus ", token.replace("--", " "))
    token = re.sub(r"(?<=[\d%])-(?=\d)", " to ", token)
    token = re.sub(r"(?<=\d) (?=\d+⁄)", " and ", token)
    token = re.sub(r"(\d+)⁄(\d+)", lambda m: _fraction(m[1], m[2]), token)
    token = re.sub(r"(?<=\d):(?=\d)|[/\\]", " ", token)
    scaled = after.strip(".,;:?!").lower() in _SCALES
    return _letters(_NUMBER.sub(lambda m: _number(m, scaled), token))


def _fraction(above: str, below: str) -> str:
    """ "3", "4" -> "three quarters"."""
    part = {"2": "half", "4": "quarter"}.get(below) or ordinal(below)
    return f"{cardinal(above)} {part if int(above) == 1 else 'halves' if part == 'half' else part + 's'}"


def _number(found: re.Match[str], scaled: bool) -> str:
    digits, places = (found["digits"] or "").replace(",", ""), found["places"]
    if not digits and not places:
        return found.group()
    if places:
        spoken = f"{cardinal(digits or '0')} point {_digit_by_digit(places)}"  # "3", "14": three point one four
    elif found["ordinal"]:
        spoken = ordinal(digits)
    else:
        spoken = year(digits) if len(found["digits"]) == 4 and not found["money"] and not found["percent"] else cardinal(digits)
    if found["decade"]:
        spoken = plural(spoken) if digits.endswith("0") else f"{spoken}'s"
    money = "" if scaled or not found["money"] else _CURRENCIES[found["money"]]
    money = money.removesuffix("s") if spoken == "one" else money
    return f" {spoken} {'percent' if found['percent'] else ''} {money} "


def _letters(text: str) -> str:
    """Latin letters, apostrophes and hyphens within words; symbols by name, single letters of other scripts too."""
    text = "".join(f" {_SYMBOLS[c]} " if c in _SYMBOLS else c for c in text)
    # without the accents that Latin-1 lacks: espeak-ng's English reads é, and names ş
    plain = (c if c < "\u0100" else "".join(d for d in unicodedata.normalize("NFKD", c) if d.isalnum()) for c in text)
    pieces = re.findall(r"[^\W\d_]+(?:['.-][^\W\d_]+)*'?|\d+", "".join(plain))
    return " ".join(filter(None, map(_word, pieces)))


def _word(piece: str) -> str:
    if piece.isdecimal():  # digits of another script
        return cardinal("".join(str(int(d)) for d in piece))
    if all(c < "\u0250" for c in piece):
        return piece.strip("'") if re.search(r"[a-zA-Z]", piece) is None else piece.lstrip("'")
    if "-" in piece:
        return " ".join(filter(None, map(_word, piece.split("-"))))
    if len(piece) == 1 and (name := unicodedata.name(piece, "")).startswith(("GREEK", "CYRILLIC", "HEBREW")):
        return name.split()[-1].lower()
    return ""


def _mandarin_token(tokens: Sequence[str], i: int) -> str:
    token, after = tokens[i], tokens[i + 1] if i + 1 < len(tokens) else ""
    if re.fullmatch(rf"[{HAN}]", token):
        return "" if token > "\uffff" else _MISREAD.get(token, token)
    if tokens[i - 1 : i] and tokens[i - 1] in _DIGITS and re.fullmatch("○+", token):  # 二○○三, a circle for 〇
        return "零" * len(token)
    token = re.sub(r"\d", lambda m: str(int(m[0])), token)  # of other scripts
    token = token.replace("°C", "摄氏度").replace("°F", "华氏度")
    token = re.sub(r"^-(?=\d)", "负", token)
    token = re.sub(r"(?<=[\d%])[-~](?=\d)", "到", token)
    token = re.sub(r"(?<=\d):(?=\d)", "比", token)
    token = re.sub(r"(\d),(?=\d{3})", r"\1", token)
    token = re.sub(r"(\d+(?:\.\d+)?)%", r"百分之\1", token)
    token = re.sub(r"(?<=\d) (?=\d+⁄)", "又", token)
    token = re.sub(r"(\d+)[/⁄](\d+)", r"\2分之\1", token)
    token = re.sub(r"(\d+)\.(\d+)", lambda m: f"{mandarin(m[1])}点{mandarin_digits(m[2])}", token)
    yearly = after == "年" and re.fullmatch(r"(?:1\d{3}|20\d{2})(?:到(?:1\d{3}|20\d{2}))?", token) is not None
    token = re.sub(r"\d+", lambda m: (mandarin_digits if yearly else mandarin)(m[0]), token)
    token = "".join(_ZH_SYMBOLS.get(c, c) for c in token)
    return " ".join(re.findall(rf"[{HAN}]+|[A-Za-zÀ-ÖØ-öø-ÿ]+(?:'[a-z]+)?|[α-ωΑ-Ω]", token))
