"""Read the interval tiers of TextGrids, the files of Praat and the Montreal Forced Aligner."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from speechssl.errors import InputError

# a text, a comment, a number of an item, a free-standing number
TOKEN = re.compile(
    r'"((?:[^"]|"")*)"|!.*|\[\s*\d*\s*\]|(?<![\w.])([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![\w.])'
)
Tier = tuple[str, list[tuple[str, float, float]]]


def read_tiers(path: Path) -> list[Tier]:
    """Read the names of the interval tiers of a TextGrid and their intervals (text, start, end in
    seconds), in order.

    TextGrids are those of Praat and the Montreal Forced Aligner, long or short, old or new, in
    UTF-8 or UTF-16. Where more intervals follow than a tier counts they are read, where fewer do
    the file was cut off. praatio 6.2 is not used: it reads one that is cut off as if it were whole,
    takes -0.1 for 0.1, and refuses 5e-05 and intervals that overlap or have no length, which
    aligners write. Raises InputError for a file that is no TextGrid, or not whole.
    """
    try:
        content = path.read_bytes()
        wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
        # texts and free-standing numbers, in order: all there is to either format
        tokens: list[str | float] = []
        for match in TOKEN.finditer(content.decode("utf-16" if wide else "utf-8-sig")):
            if match[1] is not None:
                tokens.append(match[1].replace('""', '"'))
            elif match[2] is not None:
                tokens.append(float(match[2]))
        return _parse_tiers(tokens)
    except (EOFError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"cannot read {path} as a TextGrid ({error}); save it again from Praat as a text file"
        ) from error


def _parse_tiers(tokens: Sequence[str | float]) -> list[Tier]:
    """Parse the tokens of a TextGrid. Raises EOFError where less follows than is counted,
    LookupError, TypeError or ValueError for tokens of something else."""
    if tokens[0] not in ("ooTextFile", "ooTextFile short") or tokens[1] != "TextGrid":
        raise TypeError("another header")
    tiers: list[Tier] = []
    found, place = 0, 5  # after the two times and the number of tiers
    while place < len(tokens):
        kind, name = tokens[place : place + 2]
        _, _, size = map(float, tokens[place + 2 : place + 5])
        width = {"IntervalTier": 3, "TextTier": 2}[str(kind)]
        place += 5
        end = place  # of the entries, which begin with a number
        while end < len(tokens) and not isinstance(tokens[end], str):
            end += width
        last = min(end, len(tokens) - width + 1)
        entries = [tokens[i : i + width] for i in range(place, last, width)]
        if len(entries) < size or end > len(tokens):
            raise EOFError(f"its tier {name} counts {size:g} and {len(entries)} follow")
        if width == 3:
            intervals = [(str(label), float(start), float(stop)) for start, stop, label in entries]
            tiers.append((str(name), intervals))
        found += 1
        place = end
    if found < float(tokens[4]):
        raise EOFError(f"it counts {tokens[4]:g} tiers and {found} follow")
    return tiers
