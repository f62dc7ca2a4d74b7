"""Extraction of a whole corpus: recordings -> a folder of Parquet parts, its card, and the list of what was set aside.

Constant memory, any number of workers, one machine or many; a run that was killed at any moment goes on with the same command and
ends in the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow
import torch
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, duration, read_audio
from speechssl.data.sources import Recording
from speechssl.errors import InputError, printable
from speechssl.io import differing, hash_bytes, hash_json, locked, read_json, replacing, write_json, write_text
from speechssl.processes import processes
from speechssl.timing import RunLength
from speechssl.units.extract import UnitExtractor, single_threaded
from speechssl.units.kmeans import PADDING
from speechssl.units.storage import Part, Utterance, decode, encode, part_card, part_columns, part_name

# One shard of a unit corpus: recordings in, a Parquet part out, the same bytes whoever makes it and however often.
#
# A shard is a run of consecutive recordings that depends on nothing but their number and length. What an earlier run left of
# its part
# is taken over row by row, where the audio is still the same file or cannot be read now; the rest is computed; and the part is
# written only if its bytes differ from those that are there. Where a file was mended, added or taken away, later shards may begin
# elsewhere: their parts are made again from the rows that are there, wherever they lay.

SHARD_SECONDS = 600.0  # of audio: a shard that has reached them ends
MOVED = re.compile(r"\.moved-[0-9a-f]{16}\.parquet")  # a part whose rows belong into others now
Tell = Callable[[Recording, bool], None]  # a recording is done; whether it was computed now


@dataclass(frozen=True)
class Shard:
    """Consecutive recordings that become one part."""

    index: int
    recordings: Sequence[Recording]

    def path(self, out: Path) -> Path:
        return out / part_name(self.index)


@dataclass(frozen=True)
class Made:
    """What a shard came to."""

    index: int
    hash: str  # of the part
    data: str  # of the ids and contents of its recordings
    recordings: int
    seconds: float
    failed: dict[str, str]  # id -> why
    away: int = 0  # recordings that cannot be read now, whose rows were kept


@dataclass(frozen=True)
class Heard:
    """A recording that has been read and waits for a batch."""

    recording: Recording
    samples: np.ndarray
    audio: str


@dataclass(frozen=True)
class Kept:
    """The row of a recording that cannot be read now."""

    utterance: Utterance


Result = Utterance | Heard | Kept | str  # str: why there are no units


@dataclass(frozen=True)
class ShardMaker:
    """Makes shards in the folder `out`. size: recordings a shard at most, which every part states."""

    extractor: UnitExtractor
    out: Path
    size: int

    @property
    def card(self) -> dict[str, Any]:
        """What made the rows of a part, but for the audio."""
        features = self.extractor.features
        device = getattr(features, "device", "cpu")  # its kind: sums are grouped in another way on another
        encoder = {"padding": PADDING, "chunking": asdict(features.chunking), "device": device}
        shards = {"shard_size": self.size, "shard_seconds": SHARD_SECONDS}
        return self.extractor.card | encoder | {"K": self.extractor.codebook.size} | shards

    def begin(self, shard: Shard, pool: Executor, tell: Tell) -> list[Future[Result]]:
        """Hand the recordings to the pool, the longest first, so that no thread is left with one at the end."""
        there = self._there(shard)
        longest = sorted(shard.recordings, key=lambda r: -(r.seconds or 0))
        futures = {r.id: pool.submit(self._one, r, there.get(r.id), tell) for r in longest}
        return [futures[r.id] for r in shard.recordings]

    def finish(self, shard: Shard, results: Sequence[Future[Result]], tell: Tell) -> Made:
        """Write the part, if it is not there as it should be."""
        found = self._encoded([future.result() for future in results], tell)
        away = sum(isinstance(f, Kept) for f in found)
        done = [f.utterance if isinstance(f, Kept) else f for f in found if not isinstance(f, str)]
        failed = {r.id: f for r, f in zip(shard.recordings, found, strict=True) if isinstance(f, str)}
        path, content = shard.path(self.out), encode(Part(done, self.card))
        if not path.is_file() or path.read_bytes() != content:
            with replacing(path) as temporary:
                temporary.write_bytes(content)
        data = hash_json([[u.id, u.audio] for u in done])
        return Made(shard.index, hash_bytes(content), data, len(done), sum(u.seconds for u in done), failed, away)

    def _there(self, shard: Shard) -> dict[str, Utterance]:
        """The rows of an earlier run by id, from the shard's own part and those that were moved."""
        wanted = {r.id for r in shard.recordings}
        paths = dict.fromkeys(self._moved[r.id] for r in shard.recordings if r.id in self._moved)
        return {u.id: u for path in (*paths, shard.path(self.out)) for u in self._rows(path) if u.id in wanted}

    @cached_property
    def _moved(self) -> dict[str, Path]:
        """Where the rows lie that an earlier run put elsewhere."""
        moved: dict[str, Path] = {}
        for path in named(self.out, MOVED):
            try:
                moved |= dict.fromkeys(part_columns(path, ("id",))[0], path)
            except ValueError:  # damaged
                continue
        return moved

    def _rows(self, path: Path) -> Sequence[Utterance]:
        try:
            part = decode(path.read_bytes())
        except (OSError, ValueError):  # none, or cut off by a full disk: made again
            return []
        return part.utterances if part.card == self.card else []

    def _encoded(self, results: Sequence[Result], tell: Tell) -> list[Utterance | Kept | str]:
        """Encode together what waits for it."""
        waiting = [r for r in results if isinstance(r, Heard)]
        units = self.extractor.units_of_many([h.samples for h in waiting]) if waiting else []
        done = {h.recording.id: _utterance(h, found) for h, found in zip(waiting, units, strict=True)}
        for heard in waiting:
            tell(heard.recording, True)
        return [done[r.recording.id] if isinstance(r, Heard) else r for r in results]

    def _one(self, recording: Recording, there: Utterance | None, tell: Tell) -> Result:
        """Units of a recording, or why there are none, or its samples where it is to be encoded with others."""
        audio = hash_audio(recording.path)
        if there is not None and audio in (there.audio, ""):
            tell(recording, False)
            return there if audio else Kept(there)
        result: Result
        try:
            heard = Heard(recording, read_audio(recording.path), audio)
            if self.extractor.features.fits_a_batch(heard.samples):
                return heard
            result = _utterance(heard, self.extractor.units(heard.samples))
        except InputError as error:
            result = printable(str(error))
        except ValueError as error:
            result = _no_units(recording, error)
        tell(recording, True)
        return result


def _utterance(heard: Heard, units: RunLength | ValueError) -> Utterance | str:
    if isinstance(units, ValueError):
        return _no_units(heard.recording, units)
    return Utterance(heard.recording.id, len(heard.samples) / SAMPLE_RATE, units, heard.audio)


def _no_units(recording: Recording, error: ValueError) -> str:
    return printable(f"{recording.path} gives no units ({error}); listen to it")


def plan(recordings: Sequence[Recording], size: int) -> list[Shard]:
    """Shards in order, each of which ends with the recording that makes it `size` recordings or SHARD_SECONDS long."""
    ends, first, seconds = [0], 0, 0.0
    for end, recording in enumerate(recordings, 1):
        seconds += recording.seconds or 0.0
        if end - first == size or seconds >= SHARD_SECONDS or end == len(recordings):
            ends.append(end)
            first, seconds = end, 0.0
    return [Shard(index, recordings[a:b]) for index, (a, b) in enumerate(pairwise(ends))]


def named(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    """The files of a folder whose whole name matches, in order."""
    return sorted(path for path in folder.glob("*") if pattern.fullmatch(path.name))


def hash_audio(path: Path) -> str:
    """Of the contents of a file; empty where it cannot be read, which `read_audio` then puts into words."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError:
        return ""


# What earlier runs left in the folder of a unit corpus: whose it is, whether another run holds it, and which rows are there.
#
# Only names that an extraction gives to its files are touched. A part whose rows belong into other parts now is first renamed
# `.moved-<hash>.parquet`, and goes when all rows are where they belong: a kill in between loses none.

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


SHARD = 200  # recordings at most; a kill costs the shards that are in the making
READERS = 8  # threads that read headers


class Engine(Protocol):
    """What makes shards, wherever."""

    def __call__(self, maker: ShardMaker, shards: Sequence[Shard], tell: Tell) -> Iterator[Made]:
        """Every shard once, in any order."""


@dataclass(frozen=True)
class LocalEngine:
    """Threads of this process: each reads a recording and encodes it, while the others do the same."""

    workers: int | None = None  # None: one a core

    def __call__(self, maker: ShardMaker, shards: Sequence[Shard], tell: Tell) -> Iterator[Made]:
        """While the first shard ends, those after it hold a recording for every thread, so that none waits."""
        begun: deque[tuple[Shard, list]] = deque()
        workers, ahead = self.workers or len(os.sched_getaffinity(0)), 0  # recordings after the first shard
        with single_threaded(workers) as pool:
            for shard in shards:
                ahead += len(shard.recordings) if begun else 0
                begun.append((shard, maker.begin(shard, pool, tell)))
                while ahead >= workers:
                    ahead -= len(begun[1][0].recordings)
                    yield maker.finish(*begun.popleft(), tell)
            while begun:
                yield maker.finish(*begun.popleft(), tell)


@dataclass(frozen=True)
class Extraction:
    """What came of a corpus. card: of the units; failed: what was set aside, id -> why."""

    card: dict[str, Any]
    failed: dict[str, str]


def extract_corpus(
    maker: ShardMaker, recordings: Sequence[Recording], engine: Engine, source: dict[str, Any] | None = None
) -> Extraction:
    """Write the units of all recordings into the maker's folder. source: what the card shall say about where they come from.

    What cannot be read is set aside and listed in `failed.jsonl`; the same command tries it again, and goes on where an earlier
    run was killed. Units of a recording that was read once and cannot be now are kept. Raises InputError when nothing at all can be
    read, or the folder holds units that were made in another way or of another source, or something else, or another run holds it.
    """
    if processes() > 1:
        raise InputError(f"units are extracted by one process, not by {processes()}; start it without torchrun, with --workers")
    with locked(maker.out, wait=False):
        check_parts(maker.out, maker.card)
        return _extract(replace(maker), recordings, engine, source or {})  # a new one, that has seen no rows


def _extract(maker: ShardMaker, recordings: Sequence[Recording], engine: Engine, source: dict[str, Any]) -> Extraction:
    out = maker.out
    earlier = find_earlier(out)
    check_source(out, earlier, recordings, source)
    sweep(out, TEMPORARY)  # what a killed run was writing
    shards = plan(_measured(recordings, earlier), maker.size)
    move_aside(out, earlier, shards)
    with Progress(shards) as progress:
        made = sorted(engine(maker, shards, progress.tell), key=lambda m: m.index)
    failed = {name: why for m in made for name, why in m.failed.items()}
    _list_failed(out, recordings, failed)
    for path in set(named(out, PART)) - {s.path(out) for s in shards}:
        path.unlink()  # of an earlier, longer list, and damaged
    if len(failed) == len(recordings):
        _remove(maker, shards)
        sweep(out, MOVED)
        raise InputError(f"none of the {len(failed)} recordings gives units; {out / 'failed.jsonl'} says why")
    card = _card(maker, shards, made, source, failed)
    if not _is_written(out / "card.json", card):
        write_json(out / "card.json", card)
    sweep(out, MOVED)
    tell_kept(sum(m.away for m in made), len(earlier.audio.keys() - {r.id for r in recordings}), out)
    return Extraction(card, failed)


def _is_written(path: Path, card: dict[str, Any]) -> bool:
    try:
        return bool(read_json(path) == card)
    except InputError:
        return False


def _measured(recordings: Sequence[Recording], earlier: Earlier) -> list[Recording]:
    """With their seconds, from the headers where the manifest does not say; 0 for what is damaged.

    What cannot be read now has those of its row, so that its part stays what it is.
    """

    def measured(recording: Recording) -> Recording:
        if recording.seconds is not None:
            return recording
        try:
            return replace(recording, seconds=duration(recording.path))
        except (InputError, ValueError):
            away = recording.id in earlier.seconds and not hash_audio(recording.path)
            return replace(recording, seconds=earlier.seconds[recording.id] if away else 0.0)

    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(measured, recordings))


def _list_failed(out: Path, recordings: Sequence[Recording], failed: dict[str, str]) -> None:
    if not failed:
        (out / "failed.jsonl").unlink(missing_ok=True)
        return
    paths = {r.id: str(r.path) for r in recordings}
    lines = [json.dumps({"id": name, "path": paths[name], "reason": why}) for name, why in failed.items()]
    write_text(out / "failed.jsonl", "".join(line + "\n" for line in lines))


def _remove(maker: ShardMaker, shards: Sequence[Shard]) -> None:
    (maker.out / "card.json").unlink(missing_ok=True)
    for shard in shards:
        shard.path(maker.out).unlink()


def _card(
    maker: ShardMaker, shards: Sequence[Shard], made: Sequence[Made], source: dict[str, Any], failed: dict[str, str]
) -> dict[str, Any]:
    return {
        "what": "units",
        "made_from": maker.extractor.card | source,
        **{name: value for name, value in maker.card.items() if name not in maker.extractor.card},
        "frame_rate": maker.extractor.grid.frame_rate,
        "grid": asdict(maker.extractor.grid),
        "codebooks": list(maker.extractor.codebook.names),  # hashes of those whose unit k means the same, its own first
        "data": hash_bytes(*(m.data.encode() for m in made)),
        "recordings": sum(m.recordings for m in made),
        "seconds": round(sum(m.seconds for m in made), 3),
        "failed": list(failed),
        "parts": [
            {"file": s.path(maker.out).name, "hash": m.hash, "recordings": m.recordings} for s, m in zip(shards, made, strict=True)
        ],
        "versions": {"speechssl": version("speechssl"), "torch": torch.__version__, "pyarrow": pyarrow.__version__},
    }


class Progress:
    """A bar over the seconds of audio, with the speed of this run, the time that is left, and the number of files."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        recordings = [r for s in shards for r in s.recordings]
        self.total, self.files = sum(r.seconds or 0 for r in recordings), len(recordings)
        self.done, self.computed, self.count = 0.0, 0.0, 0
        self.lock, self.start = threading.Lock(), time.monotonic()

    def __enter__(self) -> Progress:
        interval = 0.2 if sys.stderr.isatty() else 30.0  # a log gets two lines a minute
        shape = "{desc}: {percentage:3.0f}%|{bar:20}|{postfix}"
        self.bar = tqdm(desc="units", total=self.total or 1, bar_format=shape, mininterval=interval, postfix=self.text)
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.set_postfix_str(self.text, refresh=False)
        self.bar.close()

    @property
    def text(self) -> str:
        elapsed = max(time.monotonic() - self.start, 1e-9)
        speed = self.computed / elapsed
        left = tqdm.format_interval(max(self.total - self.done, 0) / speed) if speed else "?"
        seconds = f"{self.done:.0f} of {self.total:.0f} s of audio"
        return f"{seconds}, {speed:.1f} x real time, {left} left, {self.count} of {self.files} files"

    def tell(self, recording: Recording, fresh: bool) -> None:
        """Called by any thread. fresh: it was computed now, and not by an earlier run."""
        seconds = recording.seconds or 0.0
        with self.lock:
            self.done += seconds
            self.computed += seconds * fresh
            self.count += 1
            self.bar.set_postfix_str(self.text, refresh=False)
            self.bar.update(min(self.done, self.bar.total) - self.bar.n)  # lest a sum of floats go past the end
