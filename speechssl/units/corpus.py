"""A corpus is extracted: recordings -> a folder of Parquet parts, its card, and the list of those
set aside.

The recordings are cut into fixed shards, runs of consecutive ones, each of which becomes one part.
The bytes of a part depend on its recordings and settings alone, not on workers, engine or `--shard
i/n`. A part that is there is verified row by row against the audio.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch
from tqdm import tqdm

from speechssl.artifacts import (
    hash_bytes,
    hash_json,
    list_differences,
    lock_folder,
    read_json,
    replacing,
    say_what_differs,
    write_json,
    write_text,
)
from speechssl.audio import SAMPLE_RATE, duration, read_audio
from speechssl.data.files import Recording, digest
from speechssl.encoders.load import single_threaded
from speechssl.errors import InputError, make_printable
from speechssl.processes import processes
from speechssl.timing import RunLength
from speechssl.units.features import UnitExtractor
from speechssl.units.kmeans import PADDING
from speechssl.units.storage import (
    CARD,
    FAILED,
    PART,
    Part,
    UtteranceUnits,
    decode,
    encode,
    part_card,
    part_columns,
    part_name,
)

SHARD_SECONDS = 600.0  # of audio: a shard that has reached them ends
READERS = 8  # threads that read headers
AT_A_TIME = 10_000  # recordings that wait for them
# `replacing` makes these
TEMPORARY = re.compile(r"\.(part-\d{5,}-\w{8}\.parquet|_?card-\w{8}\.json|_?failed-\w{8}\.jsonl)")
ANOTHER = "choose another folder or delete it"
Report = Callable[[Recording, bool], None]  # a recording is done; whether it was computed now


@dataclass(frozen=True)
class Shard:
    """A shard is consecutive recordings that become one part."""

    index: int
    recordings: Sequence[Recording]

    def path(self, out: Path) -> Path:
        return out / part_name(self.index)


@dataclass(frozen=True)
class ShardResult:
    """The part that was made of a shard, and the recordings that have none of it."""

    index: int
    hash: str  # of the part
    data: str  # of the ids and contents of its recordings
    recordings: int
    seconds: float
    failed: dict[str, str]  # id -> why
    away: int = 0  # recordings that cannot be read now, whose units were kept


@dataclass(frozen=True)
class ExtractionResult:
    """A recording has units; or a reason why it has none; or samples, which wait for a batch."""

    utterance: UtteranceUnits | None = None
    why: str = ""
    samples: np.ndarray | None = None
    audio: str = ""  # hash of its file
    away: bool = False  # it cannot be read now, and has the units it had


def plan_shards(recordings: Sequence[Recording], size: int) -> list[Shard]:
    """Cut the recordings into shards, each of which ends with the recording that makes it `size`
    recordings or SHARD_SECONDS long."""
    ends = [0]
    first, seconds = 0, 0.0
    for end, recording in enumerate(recordings, 1):
        seconds += recording.seconds or 0.0
        if end - first == size or seconds >= SHARD_SECONDS or end == len(recordings):
            ends.append(end)
            first, seconds = end, 0.0
    return [Shard(index, recordings[a:b]) for index, (a, b) in enumerate(pairwise(ends))]


@dataclass(frozen=True)
class ShardMaker:
    """Makes shards in the folder `out`. size: most recordings of a shard, which every part
    states."""

    extractor: UnitExtractor
    out: Path
    size: int

    @property
    def card(self) -> dict[str, Any]:
        """The settings that made the rows of a part."""
        features = self.extractor.features
        return self.extractor.card | {
            "padding": PADDING,
            "chunking": asdict(features.chunking),
            "device": features.device,  # its kind: sums are grouped in another way on another
            "K": self.extractor.codebook.size,
            "shard_size": self.size,
            "shard_seconds": SHARD_SECONDS,
        }

    def begin(self, shard: Shard, pool: Executor, report: Report) -> list[Future[ExtractionResult]]:
        """Hand the recordings to the pool, the longest first, so that no thread is left with one at
        the end."""
        try:
            part = decode(shard.path(self.out).read_bytes())
            finished = {u.id: u for u in part.utterances} if part.card == self.card else {}
        except (OSError, ValueError):  # none, or cut off by a full disk: made again
            finished = {}
        longest = sorted(shard.recordings, key=lambda r: -(r.seconds or 0))
        futures = {r.id: pool.submit(self._extract, r, finished.get(r.id), report) for r in longest}
        return [futures[r.id] for r in shard.recordings]

    def finish(
        self, shard: Shard, results: Sequence[Future[ExtractionResult]], report: Report
    ) -> ShardResult:
        """Encode together the recordings that wait for a batch, and write the part if it is not
        there as it should be."""
        rows = [future.result() for future in results]
        waiting = {n: row.samples for n, row in enumerate(rows) if row.samples is not None}
        if waiting:
            units = self.extractor.units_of_many(list(waiting.values()))
            for (n, samples), result in zip(waiting.items(), units, strict=True):
                rows[n] = _result(shard.recordings[n], samples, rows[n].audio, result)
                report(shard.recordings[n], True)
        done = [row.utterance for row in rows if row.utterance]
        failed = {
            r.id: row.why
            for r, row in zip(shard.recordings, rows, strict=True)
            if not row.utterance
        }
        path = shard.path(self.out)
        content = encode(Part(done, self.card))
        if not path.is_file() or path.read_bytes() != content:
            with replacing(path) as temporary:
                temporary.write_bytes(content)
        return ShardResult(
            index=shard.index,
            hash=hash_bytes(content),
            data=hash_json([[u.id, u.audio] for u in done]),
            recordings=len(done),
            seconds=sum(u.seconds for u in done),
            failed=failed,
            away=sum(row.away for row in rows),
        )

    def _extract(
        self, recording: Recording, finished: UtteranceUnits | None, report: Report
    ) -> ExtractionResult:
        """Extract one recording, or keep `finished`, the utterance of this id in the part that is
        there."""
        audio = hash_audio(recording.path)
        if finished is not None and audio in (finished.audio, ""):
            report(recording, False)
            return ExtractionResult(finished, away=not audio)
        try:
            samples = read_audio(recording.path)
            if self.extractor.features.fits_a_batch(samples):
                return ExtractionResult(samples=samples, audio=audio)
            result = _result(recording, samples, audio, self.extractor.units(samples))
        except InputError as error:
            result = ExtractionResult(why=make_printable(str(error)))
        except ValueError as error:
            result = _result(recording, np.zeros(0), audio, error)
        report(recording, True)
        return result


def _result(
    recording: Recording, samples: np.ndarray, audio: str, units: RunLength | ValueError
) -> ExtractionResult:
    if isinstance(units, ValueError):
        return ExtractionResult(
            why=make_printable(f"{recording.path} gives no units ({units}); listen to it")
        )
    return ExtractionResult(UtteranceUnits(recording.id, len(samples) / SAMPLE_RATE, units, audio))


def hash_audio(path: Path) -> str:
    """Hash the contents of a file; empty where it cannot be read, which `read_audio` then puts into
    words."""
    return digest(path)[:16]


# makes every shard once, in any order, on whatever machines
Engine = Callable[[ShardMaker, Sequence[Shard], Report], Iterator[ShardResult]]


@dataclass(frozen=True)
class LocalEngine:
    """Runs threads of this process: each reads a recording and encodes it, while the others do the
    same."""

    workers: int | None = None  # None: one a core

    def __call__(
        self, maker: ShardMaker, shards: Sequence[Shard], report: Report
    ) -> Iterator[ShardResult]:
        """Make the shards. While the first ends, those after it hold a recording for every thread,
        so that none waits."""
        begun: deque[tuple[Shard, list]] = deque()
        workers = self.workers or len(os.sched_getaffinity(0))
        ahead = 0  # recordings after the first shard
        with single_threaded(workers) as pool:
            for shard in shards:
                ahead += len(shard.recordings) if begun else 0
                begun.append((shard, maker.begin(shard, pool, report)))
                while ahead >= workers:
                    ahead -= len(begun[1][0].recordings)
                    yield maker.finish(*begun.popleft(), report)
            while begun:
                yield maker.finish(*begun.popleft(), report)


@dataclass(frozen=True)
class Extraction:
    """The outcome of a corpus. card: of the units, empty while other processes make parts of it;
    failed: set aside, id -> why."""

    card: dict[str, Any]
    failed: dict[str, str]


def extract_corpus(
    maker: ShardMaker,
    recordings: Sequence[Recording],
    engine: Engine,
    source: dict[str, Any] | None = None,
    share: tuple[int, int] | None = None,
) -> Extraction:
    """Write the units of all recordings into the maker's folder. source: the entries of the card
    that say where they come from.

    Recordings that cannot be read are set aside and listed in `_failed.jsonl`; the same command
    tries them again, and resumes a run that was killed. Units of a recording that was read once and
    cannot be now are kept. share: (i, n), this process is number i of n, from 1, which make every
    n-th shard each, at once or after one another; the last to end verifies all parts and writes the
    card.

    Raises InputError when nothing at all can be read, or the folder holds units that were made in
    another way or of another source, or something else, or another run holds it.
    """
    out = maker.out
    if processes() > 1:
        raise InputError(
            f"units are extracted by one process, not by {processes()}; start it "
            "without torchrun and give --workers"
        )
    if share is not None:
        number, count = share
        with lock_folder(out, wait=False, shared=True):
            finished = FinishedRows.read(out, recordings)
            shards = _plan(maker, recordings, source or {}, finished)
            results = _make_shards(maker, shards[number - 1 :: count], engine)
        if not all(shard.path(out).is_file() for shard in shards):
            return Extraction({}, {name: why for m in results for name, why in m.failed.items()})
        # the last to end plans again, and both at once are 0.1 GB of a million recordings
        del shards, results
    with lock_folder(out, wait=share is not None):
        return _extract(maker, recordings, engine, source or {})


@dataclass
class FinishedRows:
    """Sums up the rows that are there, read part by part: all of a million at once would take 0.3
    GB."""

    example: str = ""  # an id of a row
    dropped: int = 0  # rows that are of no recording
    shared: str = ""  # the first id of a row that is of one
    same: bool = False  # a recording was found whose audio is that of its row
    away: bool = True  # no file could be read that would show it
    # of recordings whose manifest does not say
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, out: Path, recordings: Sequence[Recording]) -> FinishedRows:
        """Read all parts that are not damaged."""
        finished, by_id = cls(), {r.id: r for r in recordings}
        for path in _list_files(out, PART):
            try:
                columns = part_columns(path, ("id", "seconds", "audio_hash"))
            except ValueError:
                continue
            for name, seconds, audio in zip(*columns, strict=True):
                finished.example = finished.example or name
                recording = by_id.get(name)
                if recording is None:
                    finished.dropped += 1
                    continue
                finished.shared = finished.shared or name
                if recording.seconds is None:
                    finished.seconds[name] = seconds
                if not finished.same:
                    now = hash_audio(recording.path)
                    finished.same = now == audio
                    finished.away = finished.away and not now
        return finished


def _list_files(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    """List the files of a folder whose whole name matches, in order."""
    return sorted(path for path in folder.glob("*") if pattern.fullmatch(path.name))


def _plan(
    maker: ShardMaker,
    recordings: Sequence[Recording],
    source: Mapping[str, Any],
    finished: FinishedRows,
) -> list[Shard]:
    """Check that the folder is one for these units, and plan the shards. Raises InputError as
    `extract_corpus` does."""
    _check_parts(maker)
    _check_source(maker.out, source, finished)
    return plan_shards(_measure(recordings, finished.seconds), maker.size)


def _check_parts(maker: ShardMaker) -> None:
    out = maker.out
    for path in sorted(out.glob("[!.]*.parquet")):
        try:
            card = part_card(path)
        except ValueError:  # damaged
            continue
        if card is None:
            raise InputError(
                f"{path} was not written by `speechssl units extract`; choose "
                "another folder for the units"
            )
        names = list_differences(card, maker.card)
        if names:
            remedy = ANOTHER
            if names == ["shard_size"]:
                remedy = f"give --shard-size {card.get('shard_size')}"
            raise InputError(
                f"{out} holds units made in another way ({say_what_differs(names)}); {remedy}"
            )


def _check_source(out: Path, source: Mapping[str, Any], finished: FinishedRows) -> None:
    try:
        made_from = read_json(out / CARD)["made_from"]
    except (InputError, KeyError, TypeError):  # none, or cut off: made again
        made_from = source
    names = [n for n in ("corpus", "split") if made_from.get(n) != source.get(n)]
    if names:
        raise InputError(
            f"{out} holds the units of another source ({say_what_differs(names)}); {ANOTHER}"
        )
    if finished.example and not finished.shared:
        raise InputError(
            f"{out} holds the units of other recordings ({finished.example}, ...); {ANOTHER}"
        )
    # where no file can be read, they may all be the same; else one must be what units were made
    # from
    if finished.shared and not finished.same and not finished.away:
        raise InputError(
            f"{out} holds units of other audio under the same ids "
            f"({finished.shared}, ...); {ANOTHER}"
        )


def _measure(recordings: Sequence[Recording], finished: Mapping[str, float]) -> list[Recording]:
    """Give recordings their seconds, from the headers where the manifest does not say; 0 for one
    that is damaged.

    finished: id -> seconds of the row that is there. A recording that cannot be read now has those,
    so that its part stays what it is.
    """

    def measure(recording: Recording) -> Recording:
        if recording.seconds is not None:
            return recording
        try:
            return replace(recording, seconds=duration(recording.path))
        except (InputError, ValueError):
            away = recording.id in finished and not hash_audio(recording.path)
            return replace(recording, seconds=finished[recording.id] if away else 0.0)

    if all(r.seconds is not None for r in recordings):
        return list(recordings)
    measured: list[Recording] = []
    with ThreadPoolExecutor(READERS) as pool:
        # so many at a time: each that waits for a thread takes a kilobyte
        for at in range(0, len(recordings), AT_A_TIME):
            measured += pool.map(measure, recordings[at : at + AT_A_TIME])
    return measured


def _make_shards(maker: ShardMaker, shards: Sequence[Shard], engine: Engine) -> list[ShardResult]:
    with Progress(shards) as progress:
        return sorted(engine(maker, shards, progress.report), key=lambda m: m.index)


def _extract(
    maker: ShardMaker, recordings: Sequence[Recording], engine: Engine, source: dict[str, Any]
) -> Extraction:
    out, finished = maker.out, FinishedRows.read(maker.out, recordings)
    shards = _plan(maker, recordings, source, finished)
    for path in _list_files(out, TEMPORARY):  # a killed run was writing them
        path.unlink()
    results = _make_shards(maker, shards, engine)
    failed = {name: why for m in results for name, why in m.failed.items()}
    _write_failed(out / FAILED, recordings, failed)
    for path in set(_list_files(out, PART)) - {s.path(out) for s in shards}:
        path.unlink()  # of a longer list
    if len(failed) == len(recordings):
        for path in (out / CARD, *(shard.path(out) for shard in shards)):
            path.unlink(missing_ok=True)
        what = "the recording" if len(failed) == 1 else f"the {len(failed)} recordings"
        raise InputError(
            f"no units could be extracted from {what}; see the reasons in {out / FAILED}"
        )
    card = _card(maker, results, source, failed)
    try:
        written = bool(read_json(out / CARD) == card)
    except InputError:
        written = False
    if not written:
        write_json(out / CARD, card)
    away = sum(m.away for m in results)
    if away:
        tqdm.write(
            f"{out}: {away} recordings cannot be read now; their finished units are kept",
            file=sys.stderr,
        )
    if finished.dropped:
        tqdm.write(
            f"{out}: the units of {finished.dropped} recordings that the source has no "
            "more were removed",
            file=sys.stderr,
        )
    return Extraction(card, failed)


def _write_failed(path: Path, recordings: Sequence[Recording], failed: Mapping[str, str]) -> None:
    """Write a line for each recording that was set aside; no file where there is none."""
    if not failed:
        path.unlink(missing_ok=True)
        return
    paths = {r.id: str(r.path) for r in recordings if r.id in failed}
    records = [{"id": name, "path": paths[name], "reason": why} for name, why in failed.items()]
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))


def _card(
    maker: ShardMaker,
    results: Sequence[ShardResult],
    source: Mapping[str, Any],
    failed: Mapping[str, str],
) -> dict[str, Any]:
    """Describe the units: their settings, source, parts and recordings."""
    return {
        "what": "units",
        "made_from": maker.extractor.card | dict(source),
        **{name: value for name, value in maker.card.items() if name not in maker.extractor.card},
        "frame_rate": maker.extractor.grid.frame_rate,
        "grid": asdict(maker.extractor.grid),
        "read_out": maker.extractor.codebook.card.get("read_out", "k-means"),
        # hashes of those whose unit k means the same, its own first
        "codebooks": list(maker.extractor.codebook.names),
        "data": hash_bytes(*(m.data.encode() for m in results)),
        "recordings": sum(m.recordings for m in results),
        "seconds": round(sum(m.seconds for m in results), 3),
        "failed": list(failed),
        "parts": [
            {"file": part_name(m.index), "hash": m.hash, "recordings": m.recordings}
            for m in results
        ],
        "versions": {
            "speechssl": version("speechssl"),
            "torch": torch.__version__,
            "pyarrow": pyarrow.__version__,
        },
    }


class Progress:
    """Shows a bar over the seconds of audio, with the speed of this run, the time that is left, and
    the number of files."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        recordings = [r for s in shards for r in s.recordings]
        self.total, self.files = sum(r.seconds or 0 for r in recordings), len(recordings)
        self.done, self.computed, self.count = 0.0, 0.0, 0
        self.lock, self.start = threading.Lock(), time.monotonic()

    def __enter__(self) -> Progress:
        shape = "{desc}: {percentage:3.0f}%|{bar:20}|{postfix}"
        self.bar = tqdm(
            desc="units",
            total=self.total or 1,
            bar_format=shape,
            mininterval=0.2,
            postfix=self.text,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.set_postfix_str(self.text, refresh=False)
        self.bar.close()

    @property
    def text(self) -> str:
        speed = self.computed / max(time.monotonic() - self.start, 1e-9)
        left = tqdm.format_interval(max(self.total - self.done, 0) / speed) if speed else "?"
        seconds = f"{self.done:.0f} of {self.total:.0f} s of audio"
        return (
            f"{seconds}, {speed:.1f} x real time, {left} left, {self.count} of {self.files} files"
        )

    def report(self, recording: Recording, fresh: bool) -> None:
        """Count a recording, in any thread. fresh: it was computed now, and not read from disk."""
        seconds = recording.seconds or 0.0
        with self.lock:
            self.done += seconds
            self.computed += seconds * fresh
            self.count += 1
            self.bar.set_postfix_str(self.text, refresh=False)
            # lest a sum of floats go past the end
            self.bar.update(min(self.done, self.bar.total) - self.bar.n)
