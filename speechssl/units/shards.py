"""One shard of a unit corpus: recordings in, a Parquet part out, the same bytes whoever makes it and however often.

A shard is a run of consecutive recordings that depends on nothing but their number and length. What an earlier run left of its part
is taken over row by row, where the audio is still the same file or cannot be read now; the rest is computed; and the part is
written only if its bytes differ from those that are there. Where a file was mended, added or taken away, later shards may begin
elsewhere: their parts are made again from the rows that are there, wherever they lay.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.artefacts import hash_bytes, hash_json, replacing
from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.corpora.sources import Recording
from speechssl.errors import InputError, printable
from speechssl.timing import RunLength
from speechssl.units.extract import UnitExtractor
from speechssl.units.kmeans import PADDING
from speechssl.units.storage import Part, Utterance, decode, encode, part_columns, part_name

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
