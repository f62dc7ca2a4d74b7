"""TextGrids (Praat, Montreal Forced Aligner), long or short, in UTF-8 or UTF-16: names and times of their interval tiers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from speechssl.errors import InputError

Interval = tuple[str, float, float]  # name, start, end in seconds
TOKEN = re.compile(r'"((?:[^"]|"")*)"|\[\s*\d*\s*\]|(?<![\w.])([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![\w.])')


def read_tiers(path: Path) -> Iterator[tuple[str, list[Interval]]]:
    """Names and intervals of the interval tiers, in order. Raises InputError for a file that is no TextGrid."""
    tokens = iter(_tokens(path))
    try:
        if [next(tokens), next(tokens)] != ["ooTextFile", "TextGrid"]:
            raise ValueError("no TextGrid")
        _, _, count = (float(next(tokens)) for _ in range(3))
        for _ in range(int(count)):
            kind, name = next(tokens), next(tokens)
            _, _, size = (float(next(tokens)) for _ in range(3))
            if kind == "IntervalTier":
                yield name, [_interval(tokens) for _ in range(int(size))]
            else:  # points
                _ = [(next(tokens), next(tokens)) for _ in range(int(size))]
    except (StopIteration, ValueError, RuntimeError) as error:
        raise InputError(f"cannot read {path} as a TextGrid; save it again from Praat as a text file") from error


def _interval(tokens: Iterator[str]) -> Interval:
    start, end = float(next(tokens)), float(next(tokens))
    return next(tokens), start, end


def _tokens(path: Path) -> list[str]:
    """Texts and free-standing numbers, in order: all there is to either format of a TextGrid."""
    try:
        content = path.read_bytes()
        text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path} as a TextGrid ({error}); save it again as UTF-8") from error
    found = (m for m in TOKEN.finditer(text) if m[1] is not None or m[2] is not None)
    return [m[2] if m[1] is None else m[1].replace('""', '"') for m in found]
