"""Phones with their times, from what forced aligners write: TextGrids (Praat, Montreal Forced Aligner) or JSONL.

Phones are (name, start, end) in seconds. Where an aligner leaves a gap there is silence, so that every frame has a phone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from speechssl.corpora.records import read_lines
from speechssl.corpora.textgrid import read_tiers
from speechssl.errors import InputError, tell_set_aside

Phone = tuple[str, float, float]
SILENCE = "sil"  # what an interval without a name is called
PAUSES = ("", "_")  # names of silence: of MFA, of eSpeak
OVERLAP = 0.02  # seconds, a frame: aligners that count in frames may let neighbours overlap by as much
TIERS = re.compile(r"(^|\W)(phones?|phonemes?|phn|segments?)$", re.IGNORECASE)  # MFA writes "phones" or "SPEAKER - phones"


def read_alignment(path: Path) -> dict[str, list[Phone]]:
    """Phones by recording. path: a .jsonl of {"id", "phones": [[name, start, end], ...]}, a .TextGrid, or a folder of them, in
    which the id is the path below the folder without its suffix.

    Recordings whose phones cannot be used are listed and left out. Raises InputError for a file that cannot be read, an id that
    comes twice, and where no recording can be used.
    """
    if path.suffix.lower() == ".jsonl":
        return usable(_of_lines(path), str(path))
    if path.is_dir():
        grids = {p.relative_to(path).with_suffix("").as_posix(): p for p in sorted(path.rglob("*")) if _is_grid(p)}
    else:
        grids = {path.stem: path} if _is_grid(path) else {}
    if not grids:
        raise InputError(f"{path} holds no alignment; give a .jsonl, a .TextGrid or a folder of TextGrids")
    return usable(((name, partial(read_textgrid, grid)) for name, grid in grids.items()), str(path))


def usable(recordings: Iterable[tuple[str, Callable[[], list[Phone]]]], where: str) -> dict[str, list[Phone]]:
    """Phones by recording, of those whose phones can be had; the others are listed. Raises the first's InputError if all are."""
    found: dict[str, list[Phone]] = {}
    failed: dict[str, InputError] = {}
    for name, phones in recordings:
        try:
            found[name] = phones()
        except InputError as error:
            failed[name] = error
    if failed and not found:
        raise next(iter(failed.values()))
    tell_set_aside({name: str(error) for name, error in failed.items()}, f"phones of {where}")
    return found


def _is_grid(path: Path) -> bool:
    return path.suffix.lower() == ".textgrid" and path.is_file()


def _of_lines(path: Path) -> Iterator[tuple[str, Callable[[], list[Phone]]]]:
    lines: dict[str, int] = {}
    for number, values in read_lines(path):
        where = f"{path}:{number}"
        try:
            name, phones = str(values["id"]), [(str(n), float(a), float(b)) for n, a, b in values["phones"]]
        except (KeyError, TypeError, ValueError) as error:
            shape = '{"id": ..., "phones": [[name, start, end], ...]}'
            raise InputError(f"{where} is not {shape} ({error!r}); mend the line") from error
        if name in lines:
            raise InputError(f"{where} has the id {name}, as line {lines[name]} has; give each recording one line")
        lines[name] = number
        yield name, partial(checked, phones, where)


def read_textgrid(path: Path) -> list[Phone]:
    """The intervals of the tier of phones of a TextGrid, long or short, in UTF-8 or UTF-16."""
    tiers = dict(read_tiers(path))
    phones = [name for name in tiers if TIERS.search(name)] or (list(tiers) if len(tiers) == 1 else [])
    if len(phones) != 1:
        raise InputError(f"{path} has the interval tiers {', '.join(tiers) or 'none'}; give it one that is named phones")
    return checked(tiers[phones[0]], str(path))


def checked(phones: Sequence[Phone], where: str) -> list[Phone]:
    """Phones in order, gaps filled with silence, pauses named so; those of no length go, overlaps of up to OVERLAP to the earlier.

    Raises InputError for times that are not finite or do not go forward.
    """
    filled: list[Phone] = []
    at = 0.0
    for name, start, end in phones:
        if not (math.isfinite(start) and math.isfinite(end)) or end < start or start < at - OVERLAP - 1e-6:
            raise InputError(f"{where}: the phone {name} has the times [{start}, {end}) s after {at} s; times must go forward")
        if end <= max(start, at):
            continue
        if start > at + 1e-6:
            filled.append((SILENCE, at, start))
        filled.append((SILENCE if name.strip() in PAUSES else name.strip(), at if start < at - 1e-6 else start, end))
        at = end
    if not filled:
        raise InputError(f"{where} has no phones; leave it out or align it again")
    return filled
