"""A corpus is extracted: recordings -> a folder of Parquet parts, its card, and the list of those
set aside.

The recordings are cut into fixed shards, runs of consecutive ones, each of which becomes one part.
The bytes of a part depend on its recordings and settings alone, not on workers, engine or `--shard
i/n`. A part that is there is verified row by row against the audio.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
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
from speechssl.data.files import digest
from speechssl.data.recordings import Recording
from speechssl.encoders.encoder import single_threaded
from speechssl.errors import InputError, make_printable
from speechssl.timing import RunLength
from speechssl.units.codebook import PADDING
from speechssl.units.features import UnitExtractor
from speechssl.units.storage import (
    CARD,
    FAILED,
    PART,
    Part,
    UtteranceUnits,
    decode,
    encode,
    part_card,
    part_name,
)

SHARD_SECONDS = 600.0  # of audio: a shard that has reached them ends
READERS = 8  # threads that read headers
AT_A_TIME = 10_000  # recordings that wait for them
# `replacing` makes these
TEMPORARY = r"\.(part-\d{5,}-\w{8}\.parquet|_?card-\w{8}\.json|_?failed-\w{8}\.jsonl)"
Report = Callable[[Recording], None]  # a recording is done


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


@dataclass(frozen=True)
class ExtractionResult:
    """A recording has units; or a reason why it has none; or samples, which wait for a batch."""

    utterance: UtteranceUnits | None = None
    why: str = ""
    samples: np.ndarray | None = None
    audio: str = ""  # hash of its file


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
                rows[n] = _make_result(shard.recordings[n], samples, rows[n].audio, result)
                report(shard.recordings[n])
        done: list[UtteranceUnits] = []
        failed: dict[str, str] = {}
        for recording, row in zip(shard.recordings, rows, strict=True):
            if row.utterance:
                done.append(row.utterance)
            else:
                failed[recording.id] = row.why
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
        )

    def _extract(
        self, recording: Recording, finished: UtteranceUnits | None, report: Report
    ) -> ExtractionResult:
        """Extract one recording, or keep `finished`, the utterance of this id in the part that is
        there."""
        audio = hash_audio(recording.path)
        if finished is not None and audio in (finished.audio, ""):  # or it is away
            report(recording)
            return ExtractionResult(finished)
        try:
            samples = read_audio(recording.path)
            if self.extractor.features.fits_a_batch(samples):
                return ExtractionResult(samples=samples, audio=audio)
            result = _make_result(recording, samples, audio, self.extractor.units(samples))
        except InputError as error:
            result = ExtractionResult(why=make_printable(str(error)))
        except ValueError as error:
            result = _make_result(recording, np.zeros(0), audio, error)
        report(recording)
        return result


def _make_result(
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
        begun: deque[tuple[Shard, list[Future[ExtractionResult]]]] = deque()
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
    source: Mapping[str, Any] | None = None,
    share: tuple[int, int] | None = None,
) -> Extraction:
    """Write the units of all recordings into the maker's folder. source: the entries of the card
    that say where they come from.

    Recordings that cannot be read are set aside and listed in `_failed.jsonl`; the same command
    tries them again, and resumes a run that was killed. Units of a recording that was read once and
    cannot be now are kept. share: (i, n), this process is number i of
    n, from 1, which make every n-th shard each, at once or after one another; the last to end
    verifies all parts and writes the card.

    Raises InputError when nothing at all can be read, or the folder holds units that were made in
    another way or of another source, or something else, or another run holds it.
    """
    out = maker.out
    facts = dict(source or {})
    if share is not None:
        number, count = share
        with lock_folder(out, wait=False, shared=True):
            _check_folder(maker, recordings, facts)
            shards = plan_shards(_measure(recordings, out), maker.size)
            results = _make_shards(maker, shards[number - 1 :: count], engine)
        if not all(shard.path(out).is_file() for shard in shards):
            return Extraction({}, _failed(results))
    with lock_folder(out, wait=share is not None):
        return _extract(maker, recordings, engine, facts)


def _extract(
    maker: ShardMaker, recordings: Sequence[Recording], engine: Engine, source: dict[str, Any]
) -> Extraction:
    out = maker.out
    _check_folder(maker, recordings, source)
    for path in _list_files(out, TEMPORARY):  # a killed run was writing them
        path.unlink()
    shards = plan_shards(_measure(recordings, out), maker.size)
    results = _make_shards(maker, shards, engine)
    failed = _failed(results)
    _write_failed(out / FAILED, recordings, failed)
    for path in set(_list_files(out, PART)) - {s.path(out) for s in shards}:
        path.unlink()  # of a longer list
    if len(failed) == len(recordings):
        for path in (out / CARD, *(shard.path(out) for shard in shards)):
            path.unlink(missing_ok=True)
        raise InputError(
            f"no units could be extracted from {len(failed)} recordings; see the reasons in "
            f"{out / FAILED}"
        )
    card = _make_card(maker, results, source, failed)
    if _read_card(out) != card:
        write_json(out / CARD, card)
    return Extraction(card, failed)


def _read_card(out: Path) -> dict[str, Any]:
    """Read the card; an empty one where there is none, or it was cut off."""
    try:
        return dict(read_json(out / CARD))
    except InputError:
        return {}


def _list_files(folder: Path, pattern: str) -> list[Path]:
    """List the files of a folder whose whole name matches, in order."""
    return sorted(path for path in folder.glob("*") if re.fullmatch(pattern, path.name))


def _check_folder(
    maker: ShardMaker, recordings: Sequence[Recording], source: Mapping[str, Any]
) -> None:
    """Raise InputError where the folder holds units of another source, or made in another way, or
    other tables."""
    out = maker.out
    faults = []
    for path in sorted(out.glob("[!.]*.parquet")):
        try:
            names = list_differences(part_card(path), maker.card)
        except ValueError:  # damaged
            continue
        if names:
            faults.append(f"units made in another way, or other tables ({say_what_differs(names)})")
    made_from = _read_card(out).get("made_from", source)
    if any(made_from.get(name) != source.get(name) for name in ("corpus", "split")):
        faults.append("the units of another corpus or split")
    try:
        first = decode((out / part_name(0)).read_bytes()).utterances
    except (OSError, ValueError):  # none, or damaged
        first = []
    if first and {u.id for u in first}.isdisjoint(r.id for r in recordings):
        faults.append(f"the units of other recordings ({first[0].id}, ...)")
    if faults:
        raise InputError(f"{out} holds {faults[0]}; choose another folder or delete it")


def _measure(recordings: Sequence[Recording], out: Path) -> list[Recording]:
    """Give recordings their seconds, from the headers where the manifest does not say; 0 for one
    that is damaged. A recording that is away has those of its row, so that its part stays what it
    is."""

    def measure(recording: Recording) -> Recording:
        if recording.seconds is not None:
            return recording
        try:
            return replace(recording, seconds=duration(recording.path))
        except (InputError, ValueError):
            return replace(recording, seconds=0.0)

    measured: list[Recording] = []
    with ThreadPoolExecutor(READERS) as pool:
        # so many at a time: each that waits for a thread takes a kilobyte
        for at in range(0, len(recordings), AT_A_TIME):
            measured += pool.map(measure, recordings[at : at + AT_A_TIME])
    away = {r.id: n for n, r in enumerate(measured) if not r.seconds and not r.path.is_file()}
    for path in _list_files(out, PART) if away else ():
        try:
            rows = decode(path.read_bytes()).utterances
        except ValueError:  # damaged
            continue
        for row in rows:
            if row.id in away:
                place = away[row.id]
                measured[place] = replace(measured[place], seconds=row.seconds)
    return measured


def _make_shards(maker: ShardMaker, shards: Sequence[Shard], engine: Engine) -> list[ShardResult]:
    seconds = sum(r.seconds or 0 for s in shards for r in s.recordings)
    with tqdm(desc="units", total=math.ceil(seconds), unit="s") as bar:
        results = engine(maker, shards, lambda recording: bar.update(recording.seconds or 0.0))
        return sorted(results, key=lambda result: result.index)


def _failed(results: Sequence[ShardResult]) -> dict[str, str]:
    failed: dict[str, str] = {}
    for result in results:
        failed |= result.failed
    return failed


def _write_failed(path: Path, recordings: Sequence[Recording], failed: Mapping[str, str]) -> None:
    """Write a line for each recording that was set aside; no file where there is none."""
    if not failed:
        path.unlink(missing_ok=True)
        return
    paths = {r.id: str(r.path) for r in recordings if r.id in failed}
    records = [{"id": name, "path": paths[name], "reason": why} for name, why in failed.items()]
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))


def _make_card(
    maker: ShardMaker,
    results: Sequence[ShardResult],
    source: Mapping[str, Any],
    failed: Mapping[str, str],
) -> dict[str, Any]:
    """Describe the units: their settings, source, parts and recordings."""
    extractor = maker.extractor
    parts = []
    for result in results:
        part = {"file": part_name(result.index), "hash": result.hash}
        parts.append(part | {"recordings": result.recordings})
    versions = {"torch": torch.__version__, "pyarrow": pyarrow.__version__}
    return {
        "what": "units",
        "made_from": extractor.card | dict(source),
        **{name: value for name, value in maker.card.items() if name not in extractor.card},
        "frame_rate": extractor.grid.frame_rate,
        "grid": asdict(extractor.grid),
        "read_out": extractor.codebook.card.get("read_out", "k-means"),
        # hashes of those whose unit k means the same, its own first
        "codebooks": list(extractor.codebook.names),
        "data": hash_bytes(*(result.data.encode() for result in results)),
        "recordings": sum(result.recordings for result in results),
        "seconds": round(sum(result.seconds for result in results), 3),
        "failed": list(failed),
        "parts": parts,
        "versions": {"speechssl": version("speechssl"), **versions},
    }
