"""A feature store keeps the features of recordings on disk: they are computed once, and read when
they are needed.

Its folder holds `made_from.json`, shards `shard-NNNNN.safetensors` with the features of consecutive
recordings, and at the end `card.json`. A killed run loses one shard at most.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor
from tqdm import tqdm

from speechssl.artifacts import CARD, begin_stage, read_json, replace_file
from speechssl.encoders.encoder import open_pool
from speechssl.errors import InputError, report_set_aside
from speechssl.processes import is_main, main_first

T = TypeVar("T")


class Place(NamedTuple):
    """A place says where the rows of a recording are."""

    shard: Path
    first: int  # row of the shard
    length: int  # number of rows


@dataclass(frozen=True)
class FeatureStore:
    """A store maps the id of a recording to its rows (T, ...) on disk."""

    places: dict[str, Place] = field(default_factory=dict)
    # id -> what `encode` returned beside the rows
    facts: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # id -> why it has no rows
    _open: dict[Path, Any] = field(default_factory=dict, repr=False, compare=False)

    def __contains__(self, name: str) -> bool:
        return name in self.places

    def __getitem__(self, name: str) -> Tensor:
        return self.read_rows(name, 0, self.places[name].length)

    def read_rows(self, name: str, first: int, last: int) -> Tensor:
        """Read (last - first, ...) rows of a recording. Raises KeyError for an unknown
        recording."""
        path, start, _ = self.places[name]
        if path not in self._open:
            self._open[path] = safe_open(path, "pt")
        selected: Tensor = self._open[path].get_slice("states")[start + first : start + last]
        return selected

    @classmethod
    def load(cls, folder: Path | str) -> FeatureStore:
        """Open a finished store. Raises InputError for another folder."""
        names = read_json(Path(folder) / CARD)["shards"]
        return cls.open_shards(Path(folder) / name for name in names)

    @classmethod
    def open_shards(cls, shards: Iterable[Path]) -> FeatureStore:
        """Open a store of these shards."""
        store = cls()
        for path in shards:
            index = json.loads(safe_open(path, "pt").metadata()["index"])
            first = 0
            for name, count in index["rows"]:
                if count:
                    store.places[name] = Place(path, first, count)
                first += count
            store.facts.update(index.get("facts", {}))
            store.failed.update(index["failed"])
        return store

    def __reduce__(self) -> Any:
        """Pickle the store without its open files, which another process opens itself."""
        return FeatureStore, (self.places, self.facts, self.failed)


class StoredRows:
    """The rows of all recordings of a store are one array (F, ...), of which slices are read from
    disk."""

    def __init__(self, store: FeatureStore) -> None:
        borders = itertools.accumulate((place.length for place in store.places.values()), initial=0)
        # id -> its rows, [first, last)
        self.bounds = dict(zip(store.places, itertools.pairwise(borders), strict=True))
        self.names = list(self.bounds)
        self.starts = [first for first, _ in self.bounds.values()]
        _, total = self.bounds[self.names[-1]]
        self.shape = (total, *store.read_rows(self.names[0], 0, 1).shape[1:])
        self.store = store

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, step = rows.indices(len(self))
        parts = [np.zeros((0, *self.shape[1:]), np.float16)]
        while start < stop:
            name = self.names[bisect_right(self.starts, start) - 1]
            first, last = self.bounds[name]
            frames = self.store.read_rows(name, start - first, min(stop, last) - first)
            part = frames[::step].numpy()
            parts.append(part)
            start += len(part) * step
        return np.concatenate(parts)


def store_features(
    folder: Path | str,
    recordings: Mapping[str, T],
    encode: Callable[[T], tuple[Tensor, Any]],
    sizes: Mapping[str, int],
    made_from: Mapping[str, Any],
    what: str,
    workers: int | None = None,
    shard_mb: float = 64.0,
) -> FeatureStore:
    """Compute the features of all recordings, once, and return the store. Where several processes
    call it, the first computes and the others wait. The size is reported before the work begins.

    encode: recording -> rows (T, ...), and a further value for JSON or None (`FeatureStore.facts`).
    Recordings for which it raises InputError or ValueError are set aside, listed, and tried again
    by the next run. sizes: id -> approximate number of bytes of its rows; it must depend on the
    recording's length alone, so that a run that was killed finds the same shards again. what: a
    name of the features, or their purpose. workers: number of threads; None: that of torch.
    shard_mb: size at which a shard ends.
    Raises InputError where `folder` was made from other inputs, the disk is too small, or no
    recording can be used.
    """
    folder = Path(folder)
    shards = _plan_shards(folder, sizes, recordings, shard_mb * 1e6)
    with begin_stage(folder, made_from, wait=True) as step, main_first():
        if is_main():
            # A shard is complete only with all its recordings: files that could not be read may
            # have been corrected.
            incomplete = {}
            for path, ids in shards.items():
                if not path.is_file() or list(FeatureStore.open_shards([path]).places) != ids:
                    incomplete[path] = ids
            names = [name for ids in incomplete.values() for name in ids]
            if names:
                needed = sum(sizes[name] for name in names) / 1e9
                _check_disk(folder, f"{what} of {len(names)} recordings", needed)
            bar = tqdm(names, what, unit="file", disable=not names)
            with bar, open_pool(workers or torch.get_num_threads()) as pool:
                for path, ids in incomplete.items():
                    _write_shard(path, {name: recordings[name] for name in ids}, encode, pool, bar)
            step.finish(
                {
                    "kind": "hidden-states",
                    "shards": [path.name for path in shards],
                    "made_from": step.made_from,
                }
            )
        store = FeatureStore.load(folder)
        refuse_if_all_failed(store.failed, len(recordings), what)
    return store


def refuse_if_all_failed(failed: Mapping[str, str], count: int, what: str) -> None:
    """List the recordings that cannot be used. Raises InputError where none of `count` can. failed:
    id -> the reason; what: the purpose."""
    report_set_aside(failed, what)
    if len(failed) == count:
        reason = next(iter(failed.values()), "there are none")
        raise InputError(f"none of {count} recordings can be used for {what} ({reason}); mend that")


def _plan_shards(
    folder: Path, sizes: Mapping[str, int], names: Iterable[str], shard_bytes: float
) -> dict[Path, list[str]]:
    """Divide the recordings among shards, in order; a shard ends when it has `shard_bytes`."""
    shards: dict[Path, list[str]] = {}
    size = math.inf
    for name in names:
        if size >= shard_bytes:
            shard = folder / f"shard-{len(shards):05d}.safetensors"
            shards[shard] = []
            size = 0.0
        shards[shard].append(name)
        size += sizes[name]
    return shards


def _check_disk(folder: Path, work: str, needed: float) -> None:
    """Report the gigabytes that are needed on stderr. Raises InputError where they are more than
    are free."""
    free = shutil.disk_usage(folder).free / 1e9
    tqdm.write(f"{work}: {needed:.3g} GB in {folder} ({free:.3g} GB free)", file=sys.stderr)
    if needed > free:
        raise InputError(
            f"{work} in {folder} need {needed:.3g} GB and {free:.3g} GB are free; take fewer "
            "recordings or another disk"
        )


def _write_shard(
    path: Path,
    recordings: Mapping[str, T],
    encode: Callable[[T], tuple[Tensor, Any]],
    pool: ThreadPoolExecutor,
    bar: tqdm,
) -> None:
    """Encode the recordings of a shard and write it."""
    index: dict[str, Any] = {"rows": [], "failed": {}}
    parts: list[Tensor] = []
    results = pool.map(partial(_encode_checked, encode), recordings.values())
    for name, (rows, fact, reason) in zip(recordings, results, strict=True):
        index["rows"].append((name, len(rows)))
        if len(rows):
            parts.append(rows)
        if reason is not None:
            index["failed"][name] = reason
        if fact is not None:
            index.setdefault("facts", {})[name] = fact
        bar.update()
    with replace_file(path) as temporary:
        # a single entry of metadata, because safetensors writes several in a random order
        tensors = {"states": torch.cat(parts) if parts else torch.zeros(0, 1, 1)}
        temporary.write_bytes(save(tensors, {"index": json.dumps(index)}))


def _encode_checked(
    encode: Callable[[T], tuple[Tensor, Any]], recording: T
) -> tuple[Tensor, Any, str | None]:
    """Return the rows of a recording, the further value of `encode`, and the reason if there are no
    rows."""
    try:
        rows, fact = encode(recording)
        if not len(rows):
            raise ValueError("it is too short")
        if not torch.isfinite(rows).all():
            raise ValueError("the encoder gives features that are not finite")
    except (InputError, ValueError) as error:
        return torch.zeros(0), None, str(error)
    return rows.contiguous(), fact, None
