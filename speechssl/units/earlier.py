"""What earlier runs left in the folder of a unit corpus: whose it is, whether another run holds it, and which rows are there.

Only names that an extraction gives to its files are touched. A part whose rows belong into other parts now is first renamed
`.moved-<hash>.parquet`, and goes when all rows are where they belong: a kill in between loses none.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.artefacts import differing, hash_bytes, read_json
from speechssl.corpora.sources import Recording
from speechssl.errors import InputError
from speechssl.units.shards import MOVED, Shard, hash_audio, named
from speechssl.units.storage import part_card, part_columns

PART = re.compile(r"part-\d{5,}\.parquet")
TEMPORARY = re.compile(r"\.(part-\d{5,}-\w{8}\.parquet|card-\w{8}\.json|failed-\w{8}\.jsonl)")  # `replacing` makes these


@dataclass(frozen=True)
class Earlier:
    """The rows of all sound parts, without the units. parts: ids; seconds, audio: by id."""

    parts: Mapping[Path, Sequence[str]]
    seconds: Mapping[str, float]
    audio: Mapping[str, str]


def find_earlier(out: Path) -> Earlier:
    """A damaged part counts as none."""
    parts: dict[Path, Sequence[str]] = {}
    seconds: dict[str, float] = {}
    audio: dict[str, str] = {}
    for path in (*named(out, MOVED), *named(out, PART)):
        try:
            ids, *columns = part_columns(path, ("id", "seconds", "audio"))
        except ValueError:
            continue
        parts[path] = ids
        seconds |= zip(ids, columns[0], strict=True)
        audio |= zip(ids, columns[1], strict=True)
    return Earlier(parts, seconds, audio)


def check_parts(out: Path, wanted: Mapping[str, Any]) -> None:
    """Raises InputError where the folder has Parquet files that are not ours, or units made in another way than `wanted`."""
    for path in sorted(out.glob("*.parquet")):
        if path.name.startswith(".") and not MOVED.fullmatch(path.name):
            continue
        try:
            card = part_card(path)
        except ValueError:  # damaged
            continue
        if card is None:
            raise InputError(f"{path} was not written by `speechssl units extract`; choose another folder for the units")
        if names := differing(card, dict(wanted)):
            remedy = (
                f"give --shard-size {card.get('shard_size')}" if names == ["shard_size"] else "choose another folder or delete it"
            )
            raise InputError(f"{out} holds units made in another way ({', '.join(names)} differ); {remedy}")


def check_source(out: Path, earlier: Earlier, recordings: Sequence[Recording], source: Mapping[str, Any]) -> None:
    """Raises InputError where the units are of another corpus or split, or no recording of theirs is among the given ones."""
    remedy = "choose another folder or delete it"
    there = _made_from(out)
    if there is not None and (names := [name for name in ("corpus", "split") if there.get(name) != source.get(name)]):
        raise InputError(f"{out} holds the units of another source ({', '.join(names)} differ); {remedy}")
    shared = [r for r in recordings if r.id in earlier.audio]
    if earlier.audio and not shared:
        raise InputError(f"{out} holds the units of other recordings ({next(iter(earlier.audio))}, ...); {remedy}")
    if shared and not _any_is_the_same(shared, earlier):
        raise InputError(f"{out} holds units of other audio under the same ids ({shared[0].id}, ...); {remedy}")


def _made_from(out: Path) -> dict[str, Any] | None:
    try:
        made_from = read_json(out / "card.json")["made_from"]
    except (InputError, KeyError, TypeError):  # none, or cut off: made again
        return None
    return made_from if isinstance(made_from, dict) else None


def _any_is_the_same(shared: Sequence[Recording], earlier: Earlier) -> bool:
    """Whether one file is still what units were made from; and where no file can be read, they may all be."""
    away = True
    for recording in shared:
        audio = hash_audio(recording.path)
        if audio == earlier.audio[recording.id]:
            return True
        away &= not audio
    return away


def move_aside(out: Path, earlier: Earlier, shards: Sequence[Shard]) -> None:
    """Rename the parts that hold rows which belong elsewhere now, or nowhere."""
    wanted = {shard.path(out): {r.id for r in shard.recordings} for shard in shards}
    for path, ids in earlier.parts.items():
        if PART.fullmatch(path.name) and not wanted.get(path, set()).issuperset(ids):
            os.replace(path, out / f".moved-{hash_bytes(path.read_bytes())}.parquet")


def sweep(out: Path, *patterns: re.Pattern[str]) -> None:
    """Remove what has a name of ours."""
    for pattern in patterns:
        for path in named(out, pattern):
            path.unlink()


def tell_kept(away: int, dropped: int, out: Path) -> None:
    """One line on stderr each."""
    if away:
        said = f"{away} recordings cannot be read now; their finished units are kept"
        tqdm.write(f"{out}: {said}", file=sys.stderr)
    if dropped:
        tqdm.write(f"{out}: the units of {dropped} recordings that the source has no more were removed", file=sys.stderr)
