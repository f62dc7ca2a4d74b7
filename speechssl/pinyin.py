"""How Chinese characters are read, each by itself: of a character with several readings the commonest is taken."""

from __future__ import annotations

from typing import Any

from speechssl.errors import MissingExtra


def syllables(text: str) -> str:
    """Pinyin with the tone as a digit, 5 for the neutral one: 北京 is bei3jing1; what is no Chinese character stays as it is.

    Raises MissingExtra without the package.
    """
    pypinyin = _pypinyin("readings of Chinese")
    return "".join(pypinyin.lazy_pinyin(text, pypinyin.Style.TONE3, strict=False, neutral_tone_with_five=True))


def parts(text: str) -> list[str]:
    """Initial, final and tone of each character, as far as it has them: 北 is b-, -ei, 3.

    Raises MissingExtra without the package.
    """
    pypinyin = _pypinyin("sub-word units of Chinese")
    initials = pypinyin.lazy_pinyin(text, pypinyin.Style.INITIALS, strict=False)
    finals = pypinyin.lazy_pinyin(text, pypinyin.Style.FINALS_TONE3, strict=False, neutral_tone_with_five=True)
    three = ((f"{i}-", f"-{f.rstrip('12345')}", f[-1:]) for i, f in zip(initials, finals, strict=True))
    return [unit for units in three for unit in units if unit.strip("-")]


def _pypinyin(what: str) -> Any:
    try:
        import pypinyin
    except ImportError as error:
        raise MissingExtra(what, "chinese") from error
    return pypinyin
