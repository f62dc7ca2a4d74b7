"""Rewrite fractions that are written in signs (1/2, ½), for both languages."""

from __future__ import annotations

import re
import unicodedata

# The second number of a fraction is one of these; 9/11 is no fraction but a date.
_DENOMINATORS = (*range(2, 11), 12, 16, 20)
_VULGAR = re.compile("([0-9]?)([¼-¾⅐-⅞])")  # ½, 3½


def split_vulgar(text: str, between: str) -> str:
    """Write ½ as 1/2, and 3½ as 3, then `between`, then 1/2."""

    def split(match: re.Match[str]) -> str:
        fraction = unicodedata.normalize("NFKC", match[2]).replace("⁄", "/")
        return f"{match[1]}{between}{fraction}" if match[1] else fraction

    return _VULGAR.sub(split, text)


def write_fraction(match: re.Match[str], form: str) -> str:
    """Write a fraction in a form such as "{1}分之{0}", whose {0} is the numerator and {1} the
    denominator. match: has numerator and denominator as groups. What is no proper fraction with a
    denominator of _DENOMINATORS, such as 9/11 and 5/2, stays as it is."""
    above, below = int(match[1]), int(match[2])
    if 0 < above < below and below in _DENOMINATORS:
        return form.format(above, below)
    return match.group()
