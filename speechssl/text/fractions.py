"""Fractions are written in signs (1/2, ½) in both languages."""

from __future__ import annotations

import re
import unicodedata

_DENOMINATORS = (*range(2, 11), 12, 16, 20)  # of fractions: 9/11 is a date
_VULGAR = re.compile("([0-9]?)([¼-¾⅐-⅞])")  # ½, 3½


def split_vulgar(text: str, between: str) -> str:
    """Write ½ as 1/2, and 3½ as 3, then `between`, then 1/2."""

    def split(match: re.Match[str]) -> str:
        fraction = unicodedata.normalize("NFKC", match[2]).replace("⁄", "/")
        return f"{match[1]}{between}{fraction}" if match[1] else fraction

    return _VULGAR.sub(split, text)


def write_fraction(match: re.Match[str], form: str) -> str:
    """Write the numerator and denominator that a match has in a form ("{1}分之{0}"); 9/11 and 5/2
    stay."""
    above, below = int(match[1]), int(match[2])
    return form.format(above, below) if 0 < above < below in _DENOMINATORS else match.group()
