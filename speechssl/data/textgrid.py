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
    UTF-8 or UTF-16. praatio 6.2 is not used: it reads one that is cut off as if it were whole,
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
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"cannot read {path} as a TextGrid ({error}); save it again from Praat as a text file"
        ) from error


def _parse_tiers(tokens: Sequence[str | float]) -> list[Tier]:
    """Parse the tokens of a TextGrid. Raises LookupError, TypeError or ValueError for tokens of
    something else, and where less follows than is counted."""
    if tokens[0] not in ("ooTextFile", "ooTextFile short") or tokens[1] != "TextGrid":
        raise TypeError("another header")
    tiers: list[Tier] = []
    place = 5  # after the two times and the number of tiers
    for _ in range(int(tokens[4])):
        kind, name, _, _, size = tokens[place : place + 5]
        place += 5
        width = {"IntervalTier": 3, "TextTier": 2}[str(kind)]
        end = place + width * int(size)
        if end > len(tokens):
            raise ValueError(f"its tier {name} counts {size:g}, and fewer follow")
        if width == 3:
            intervals = []
            for i in range(place, end, width):
                start, stop, label = tokens[i : i + width]
                intervals.append((str(label), float(start), float(stop)))
            tiers.append((str(name), intervals))
        place = end
    return tiers
