"""Extraction of a whole corpus: recordings -> a folder of Parquet parts, its card, and the list of what was set aside.

Constant memory, any number of workers, one machine or many; a run that was killed at any moment goes on with the same command and
ends in the same bytes.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import pyarrow
import torch
from tqdm import tqdm

from speechssl.artefacts import hash_bytes, locked, read_json, write_json, write_text
from speechssl.audio import duration
from speechssl.corpora.sources import Recording
from speechssl.errors import InputError
from speechssl.processes import processes
from speechssl.units.earlier import (
    PART,
    TEMPORARY,
    Earlier,
    check_parts,
    check_source,
    find_earlier,
    move_aside,
    sweep,
    tell_kept,
)
from speechssl.units.extract import single_threaded
from speechssl.units.shards import MOVED, Made, Shard, ShardMaker, Tell, hash_audio, named, plan

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
