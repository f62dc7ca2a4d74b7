"""Read the interval tiers of TextGrids, the files of Praat and the Montreal Forced Aligner."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from speechssl.errors import InputError

TOKEN = re.compile(
    r"""
    "((?:[^"]|"")*)"  # the first group: a text, in which quotation marks are doubled
    | !.*             # a comment
    | \[\s*\d*\s*\]   # the number of an item, as in intervals [3]:
    | (?<![\w.])([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![\w.])  # the second group: a number
    """,
    re.VERBOSE,
)
# name of the tier, its intervals (text, start, end in seconds)
Tier = tuple[str, list[tuple[str, float, float]]]


def read_tiers(path: Path) -> list[Tier]:
    """Read the interval tiers of a TextGrid, in order.

    The file may be in the long or the short format, old or new, in UTF-8 or UTF-16. A tier with
    more intervals than it counts is read; a tier with fewer is refused, because it was cut off.
    praatio 6.2 is not used: it reads files that are cut off as if they were whole, takes -0.1 for
    0.1, and refuses 5e-05 and intervals that overlap or have no length, which aligners write.
    Raises InputError for a file that is no TextGrid, or not whole.
    """
    try:
        content = path.read_bytes()
        is_utf16 = content.startswith((b"\xff\xfe", b"\xfe\xff"))
        # the long format writes "xmin = 0.5" where the short one writes "0.5": both have the same
        # texts and numbers in the same order
        tokens: list[str | float] = []
        for match in TOKEN.finditer(content.decode("utf-16" if is_utf16 else "utf-8-sig")):
            text, number = match.groups()
            if text is not None:
                tokens.append(text.replace('""', '"'))
            elif number is not None:
                tokens.append(float(number))
        return _parse_tiers(tokens)
    except (EOFError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"cannot read {path} as a TextGrid ({error}); save it again from Praat as a text file"
        ) from error


def _parse_tiers(tokens: Sequence[str | float]) -> list[Tier]:
    """Parse the tokens of a TextGrid: "ooTextFile", "TextGrid", start, end, number of tiers, and of
    every tier its kind, name, start, end, number of entries, and the entries.

    Raises EOFError where fewer tiers or entries follow than are counted, LookupError, TypeError or
    ValueError for other tokens.
    """
    if tokens[0] not in ("ooTextFile", "ooTextFile short") or tokens[1] != "TextGrid":
        raise TypeError("another header")
    tiers: list[Tier] = []
    tier_count = 0  # also counts the tiers of points, which are not returned
    place = 5  # of the first tier: behind the five tokens of the header
    while place < len(tokens):
        kind, name = tokens[place : place + 2]
        _, _, size = map(float, tokens[place + 2 : place + 5])
        # an interval is start, end and text; a point is time and text
        width = {"IntervalTier": 3, "TextTier": 2}[str(kind)]
        place += 5
        end = place  # the end of the entries, each of which begins with a number
        while end < len(tokens) and not isinstance(tokens[end], str):
            end += width
        last = min(end, len(tokens) - width + 1)
        entries = [tokens[i : i + width] for i in range(place, last, width)]
        if len(entries) < size or end > len(tokens):
            raise EOFError(f"its tier {name} counts {size:g} and {len(entries)} follow")
        if width == 3:
            intervals = [(str(label), float(start), float(stop)) for start, stop, label in entries]
            tiers.append((str(name), intervals))
        tier_count += 1
        place = end
    if tier_count < float(tokens[4]):
        raise EOFError(f"it counts {tokens[4]:g} tiers and {tier_count} follow")
    return tiers
