"""One shard of a unit corpus: recordings in, a Parquet part out, the same bytes whoever makes it and however often.

A shard is a fixed run of consecutive recordings. What an earlier run left of its part is taken over row by row, where the audio is
still the same file; the rest is computed; and the part is written only if its bytes differ from those that are there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speechssl.artefacts import hash_bytes, hash_json, replacing
from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.corpora.sources import Recording
from speechssl.errors import InputError, printable
from speechssl.units.extract import UnitExtractor
from speechssl.units.kmeans import PADDING
from speechssl.units.storage import Part, Utterance, decode, encode, part_name

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


@dataclass(frozen=True)
class ShardMaker:
    """Makes shards in the folder `out`. size: recordings a shard, which every part states."""

    extractor: UnitExtractor
    out: Path
    size: int

    @property
    def card(self) -> dict[str, Any]:
        """What made the rows of a part, but for the audio."""
        encoder = {"padding": PADDING, "chunking": asdict(self.extractor.features.chunking)}
        return self.extractor.card | encoder | {"K": self.extractor.codebook.size, "shard_size": self.size}

    def begin(self, shard: Shard, pool: Executor, tell: Tell) -> list[Future[Utterance | str]]:
        """Hand the recordings to the pool, the longest first, so that no thread is left with one at the end."""
        there = {u.id: u for u in self._there(shard)}
        longest = sorted(shard.recordings, key=lambda r: -(r.seconds or 0))
        futures = {r.id: pool.submit(self._one, r, there.get(r.id), tell) for r in longest}
        return [futures[r.id] for r in shard.recordings]

    def finish(self, shard: Shard, results: Sequence[Future[Utterance | str]]) -> Made:
        """Write the part, if it is not there as it should be."""
        found = [future.result() for future in results]
        done = [u for u in found if isinstance(u, Utterance)]
        failed = {r.id: f for r, f in zip(shard.recordings, found, strict=True) if isinstance(f, str)}
        path, content = shard.path(self.out), encode(Part(done, self.card))
        if not path.is_file() or path.read_bytes() != content:
            with replacing(path) as temporary:
                temporary.write_bytes(content)
        data = hash_json([[u.id, u.audio] for u in done])
        return Made(shard.index, hash_bytes(content), data, len(done), sum(u.seconds for u in done), failed)

    def _there(self, shard: Shard) -> Sequence[Utterance]:
        """The rows of an earlier run."""
        try:
            part = decode(shard.path(self.out).read_bytes())
        except (OSError, ValueError):  # none, or cut off by a full disk: made again
            return []
        return part.utterances if part.card == self.card else []

    def _one(self, recording: Recording, there: Utterance | None, tell: Tell) -> Utterance | str:
        """Units of a recording, or why there are none."""
        fresh = True
        try:
            audio = _hash_audio(recording.path)
            if there is not None and there.audio == audio:
                fresh = False
                return there
            samples = read_audio(recording.path)
            return Utterance(recording.id, len(samples) / SAMPLE_RATE, self.extractor.units(samples), audio)
        except InputError as error:
            return printable(str(error))
        except ValueError as error:
            return printable(f"{recording.path} gives no units ({error}); listen to it")
        finally:
            tell(recording, fresh)


def plan(recordings: Sequence[Recording], size: int) -> list[Shard]:
    """Shards of `size` recordings each, in order."""
    starts = range(0, len(recordings), size)
    return [Shard(index, recordings[first : first + size]) for index, first in enumerate(starts)]


def _hash_audio(path: Path) -> str:
    """Of the contents of a file; empty where it cannot be read, which `read_audio` then puts into words."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError:
        return ""
