"""Phones with their times, from what forced aligners write: TextGrids (Praat, Montreal Forced Aligner) or JSONL.

Phones are (name, start, end) in seconds. Where an aligner leaves a gap there is silence, so that every frame has a phone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from speechssl.corpora.records import read_lines
from speechssl.errors import InputError

Phone = tuple[str, float, float]
SILENCE = "sil"  # what an interval without a name is called
TIERS = re.compile(r"(^|\W)(phones?|phonemes?|phn|segments?)$", re.IGNORECASE)  # MFA writes "phones" or "SPEAKER - phones"
TOKEN = re.compile(r'"((?:[^"]|"")*)"|\[\s*\d*\s*\]|(?<![\w.])([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![\w.])')


def read_alignment(path: Path) -> dict[str, list[Phone]]:
    """Phones by recording. path: a .jsonl of {"id", "phones": [[name, start, end], ...]}, a .TextGrid, or a folder of them, in
    which the id is the path below the folder without its suffix.

    Raises InputError for what cannot be read, times that do not go forward, and a TextGrid without a tier of phones.
    """
    if path.suffix.lower() == ".jsonl":
        return dict(_of_line(values, f"{path}:{number}") for number, values in read_lines(path))
    if path.is_dir():
        grids = {p.relative_to(path).with_suffix("").as_posix(): p for p in sorted(path.rglob("*")) if _is_grid(p)}
    else:
        grids = {path.stem: path} if _is_grid(path) else {}
    if not grids:
        raise InputError(f"{path} holds no alignment; give a .jsonl, a .TextGrid or a folder of TextGrids")
    return {name: read_textgrid(grid) for name, grid in grids.items()}


def _is_grid(path: Path) -> bool:
    return path.suffix.lower() == ".textgrid" and path.is_file()


def _of_line(values: dict[str, Any], where: str) -> tuple[str, list[Phone]]:
    try:
        return str(values["id"]), checked([(str(n), float(a), float(b)) for n, a, b in values["phones"]], where)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f'{where} is not {{"id": ..., "phones": [[name, start, end], ...]}} ({error!r}); mend the line') from error


def read_textgrid(path: Path) -> list[Phone]:
    """The intervals of the tier of phones of a TextGrid, long or short, in UTF-8 or UTF-16."""
    tiers = dict(_tiers(path))
    phones = [name for name in tiers if TIERS.search(name)] or (list(tiers) if len(tiers) == 1 else [])
    if len(phones) != 1:
        raise InputError(f"{path} has the interval tiers {', '.join(tiers) or 'none'}; give it one that is named phones")
    return checked(tiers[phones[0]], str(path))


def _tiers(path: Path) -> Iterator[tuple[str, list[Phone]]]:
    """Names and intervals of the interval tiers."""
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


def _interval(tokens: Iterator[str]) -> Phone:
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


def checked(phones: Sequence[Phone], where: str) -> list[Phone]:
    """Phones in order, gaps filled with silence. Raises InputError for times that are not finite or do not go forward."""
    filled: list[Phone] = []
    at = 0.0
    for name, start, end in phones:
        if not (math.isfinite(start) and math.isfinite(end)) or end <= start or start < at - 1e-6:
            raise InputError(f"{where}: the phone {name} has the times [{start}, {end}) s after {at} s; times must go forward")
        if start > at + 1e-6:
            filled.append((SILENCE, at, start))
        filled.append((name.strip() or SILENCE, start, end))
        at = end
    if not filled:
        raise InputError(f"{where} has no phones; leave it out or align it again")
    return filled
