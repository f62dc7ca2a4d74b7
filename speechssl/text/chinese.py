"""Map the forms of Chinese characters to one form, and write their readings (pinyin).

Characters are compared without regard to their form (FORMS): traditional, simplified and regional
forms of a character are equal, by OpenCC's tables (github.com/BYVoid/OpenCC, Apache-2.0:
TSCharacters, TWVariants, HKVariants) and a few more forms that corpora mix. Characters with a common
simplified form are equal (發 and 髮 are 发); words that differ by region (軟體, 软件) are different.
OpenCC's own t2s (1.4) is not used: of the 2,979 forms here it leaves 23 as they are (著 and 瞭 among
them), maps 5 to another form, and maps 2,163 rare characters more.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from speechssl.errors import MissingExtra

# A group of characters, as in "为為爲", begins with the form that stands for all (the simplified one,
# if any). Groups are separated by white space.
_GROUPS = (Path(__file__).parent / "chinese_forms.txt").read_text(encoding="utf-8").split()
FORMS = str.maketrans({form: group[0] for group in _GROUPS for form in group[1:]})
# characters that are read as themselves here, and not as the form that they share with others
_OWN = re.compile(
    "著(?=[名作者述书書称稱])|(?<=[专專名原合巨显顯卓昭土论論编編])著|乾(?=[隆坤])|瞭(?=望)|(?<=狼)藉|[隻幺]"
)


def write_pinyin(text: str) -> str:
    """Write Chinese as pinyin with the tone as a digit, 5 for the neutral one: 北京 is bei3jing1.

    Other characters stay as they are. A character with several readings gets the commonest,
    whatever the context. Raises MissingExtra without the package.
    """
    return "".join(_write_readings(text, "TONE3", "readings of Chinese"))


def split_syllables(text: str) -> list[str]:
    """Split each character into initial, final and tone, as far as it has them: 北 is b-, -ei, 3.

    Raises MissingExtra without the package.
    """
    what = "sub-word units of Chinese"
    initials = _write_readings(text, "INITIALS", what)
    finals = _write_readings(text, "FINALS_TONE3", what)
    parts = []
    for initial, final in zip(initials, finals, strict=True):
        for part in (f"{initial}-", f"-{final.rstrip('12345')}", final[-1:]):
            if part.strip("-"):
                parts.append(part)
    return parts


def find_syllables(text: str) -> list[tuple[str, str, str]]:
    """Find initial, final and tone of each character of a run as they are spoken: 五 is "", "u",
    "3".

    Words decide the readings (银行 is yin hang, 行动 xing dong), and tones change as in speech (不是
    is bu2 shi4). ü is written v. A character without a reading has an empty final. Raises
    MissingExtra without the package.
    """
    what = "the synthesiser kokoro in Mandarin"
    own = {match.start() for match in _OWN.finditer(text)}
    known = ""  # pypinyin knows most words by their simplified forms
    for place, character in enumerate(text):
        known += character if place in own else character.translate(FORMS)
    known = known.replace("嗯", "恩")  # its hum has no final
    initials = _write_readings(known, "INITIALS", what, strict=True, tone_sandhi=True)
    finals = _write_readings(known, "FINALS_TONE3", what, strict=True, tone_sandhi=True)
    return [(i, f[:-1].replace("ü", "v"), f[-1:]) for i, f in zip(initials, finals, strict=True)]


def _write_readings(text: str, style: str, what: str, **options: Any) -> list[str]:
    """Write every character in a style of pypinyin. what: the purpose, for MissingExtra, which is
    raised without the package; options: of pypinyin."""
    try:
        import pypinyin
    except ImportError as error:
        raise MissingExtra(what, "chinese") from error
    pinyin_style = getattr(pypinyin.Style, style)
    options = {"strict": False, "neutral_tone_with_five": True} | options
    return list(pypinyin.lazy_pinyin(text, pinyin_style, **options))
