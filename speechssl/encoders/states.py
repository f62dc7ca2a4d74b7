"""Hidden states of a frozen encoder, computed once and kept on disk in shards that are read as they are needed.

A folder holds `made_from.json`, one `shard-NNNNN.safetensors` for every so many recordings, and at the end `card.json`. A shard is
there whole or not at all, so a killed run goes on with the next. What is kept of a recording is either its (T, S, D) hidden states
or, for heads that see their mean over time alone, (S, D).
Letters: S hidden states (the encoder's layers and the input of the first), T frames, D width, R recordings.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from tqdm import tqdm

from speechssl.audio import duration, read_audio
from speechssl.augment import Condition, Distorter
from speechssl.data.sources import Recording
from speechssl.encoders.base import SpeechEncoder, single_threaded
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import hash_json, read_json, replacing, stage, write_json

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class CacheOptions:
    """What is kept of a recording, and how exactly."""

    pooled: bool = True  # the mean over time; else every frame
    precision: str = "float32"  # a key of PRECISIONS; frames are worth 2 bytes a number
    shard_mb: float = 64.0  # a shard is closed when it is so large
    limit_gb: float = 50.0  # more is refused before it begins


class Hears(Protocol):
    """Through what recordings are heard."""

    @property
    def card(self) -> dict[str, Any]:
        """What decides the sound, beside the recordings."""
        ...

    def read(self, recording: Recording) -> np.ndarray:
        """(N,) float32 at 16 kHz. Raises InputError or ValueError for what cannot be read or distorted."""
        ...


@dataclass(frozen=True)
class Hearing:
    """Through a condition."""

    condition: Condition = Condition("clean")
    distorter: Distorter = field(default_factory=Distorter)

    @property
    def card(self) -> dict[str, Any]:
        """What decides the sound, beside the recordings."""
        if self.condition.name == "clean":
            return {"condition": "clean"}
        sources = [list(source) for source in self.distorter.sources(self.condition)]
        return {"condition": asdict(self.condition), "sources": sources, "seed": self.distorter.seed}

    def read(self, recording: Recording) -> np.ndarray:
        """(N,) float32. Raises InputError or ValueError for what cannot be read or distorted."""
        return self.distorter.apply(read_audio(recording.path), self.condition, recording.id)


@dataclass(frozen=True)
class CachedStates:
    """Hidden states on disk, by the id of the recording."""

    folder: Path
    pooled: bool
    rows: dict[str, tuple[Path, int, int]]  # shard, first row, rows
    failed: dict[str, str]  # id -> why it has none
    _open: dict[Path, Any] = field(default_factory=dict, repr=False, compare=False)

    def __contains__(self, name: str) -> bool:
        return name in self.rows

    def __getitem__(self, name: str) -> Tensor:
        """(S, D) of a pooled recording, else (T, S, D), in the precision of the cache; only this is read. Raises KeyError."""
        path, first, count = self.rows[name]
        if path not in self._open:
            self._open[path] = _opened(path)
        found: Tensor = self._open[path].get_slice("states")[first : first + count]
        return found[0] if self.pooled else found

    def stacked(self, names: Sequence[str]) -> Tensor:
        """(R, S, D) float32 of pooled recordings."""
        return torch.stack([self[name] for name in names]).float()

    @classmethod
    def load(cls, folder: Path | str) -> CachedStates:
        """Raises InputError where the folder is not a finished cache or a shard is damaged."""
        folder = Path(folder)
        rows: dict[str, tuple[Path, int, int]] = {}
        failed: dict[str, str] = {}
        card = read_json(folder / "card.json")
        for path in [folder / name for name in card["shards"]]:
            index, at = _index(path), 0
            for name, count in index["rows"]:
                if count:
                    rows[name] = (path, at, count)
                at += count
            failed |= index["failed"]
        return cls(folder, bool(card["made_from"]["options"]["pooled"]), rows, failed)


def cache_states(
    encoder: SpeechEncoder,
    recordings: Sequence[Recording],
    folder: Path | str,
    options: CacheOptions = CacheOptions(),
    hearing: Hears = Hearing(),
    workers: int = 2,
) -> CachedStates:
    """Compute (once) the hidden states of all recordings. Those that cannot be read are set aside and tried again next time.

    The size is told before it begins. Raises InputError where `folder` was made from other inputs, the disk has too little room for
    it, or no recording can be read.
    """
    folder = Path(folder)
    kept = {"pooled": options.pooled, "precision": options.precision, "shard_mb": options.shard_mb}
    made_from = {"encoder": encoder_card(encoder), "recordings": _names(recordings), "options": kept, "hearing": hearing.card}
    with stage(folder, made_from):
        plan = dict(_plan(encoder, recordings, folder, options))
        missing = {path: part for path, part in plan.items() if not _is_done(path)}
        if missing:
            _check_room(encoder, [r for part in missing.values() for r in part], folder, options)
            _compute_all(missing, lambda r: _states(encoder, hearing.read(r), options), workers, f"hidden states, {encoder.name}")
        write_json(folder / "card.json", {"kind": "hidden-states", "shards": [p.name for p in plan], "made_from": made_from})
        cached = CachedStates.load(folder)
        tell_set_aside(cached.failed, "hidden states")
        if not cached.rows:
            raise InputError(f"none of the {len(recordings)} recordings for {folder} could be heard; mend them or the manifest")
    return cached


def encoder_card(encoder: SpeechEncoder) -> dict[str, Any]:
    """What decides the features of an encoder."""
    facts = {"encoder": encoder.hash, "settings": encoder.settings, "precision": encoder.precision}
    return facts | {"states": encoder.layers + 1, "width": encoder.width, "chunking": asdict(encoder.chunking)}


def _names(recordings: Sequence[Recording]) -> str:
    """Hash of what is to be heard, in this order; audio is known by id, name and size."""
    sizes = [(r.id, r.path.name, r.path.stat().st_size if r.path.is_file() else 0) for r in recordings]
    if len({r.id for r in recordings}) < len(recordings):
        raise InputError("two recordings have the same id; make ids unique")
    return hash_json(sizes)


def _plan(
    encoder: SpeechEncoder, recordings: Sequence[Recording], folder: Path, options: CacheOptions
) -> Iterator[tuple[Path, list[Recording]]]:
    """The shards and what goes into each, by the estimated sizes."""
    part: list[Recording] = []
    size = number = 0
    for recording in recordings:
        part.append(recording)
        size += _estimate(encoder, recording, options)
        if size >= options.shard_mb * 1e6 or recording is recordings[-1]:
            yield folder / f"shard-{number:05d}.safetensors", part
            part, size, number = [], 0, number + 1


def estimate(encoder: SpeechEncoder, recordings: Sequence[Recording], options: CacheOptions) -> int:
    """Bytes that the hidden states of these recordings need, of those that can be opened."""
    return sum(_estimate(encoder, recording, options) for recording in recordings)


def _estimate(encoder: SpeechEncoder, recording: Recording, options: CacheOptions) -> int:
    """Bytes of a recording. One that cannot be opened has none."""
    frames = 1
    if not options.pooled:
        try:
            seconds = recording.seconds or duration(recording.path)
        except InputError:
            return 0
        frames = encoder.grid.frames(encoder.grid.sample(seconds))
    return frames * (encoder.layers + 1) * encoder.width * PRECISIONS[options.precision].itemsize


def _check_room(encoder: SpeechEncoder, recordings: Sequence[Recording], folder: Path, options: CacheOptions) -> None:
    needed = estimate(encoder, recordings, options) / 1e9
    free = shutil.disk_usage(folder).free / 1e9
    tqdm.write(f"hidden states of {len(recordings)} recordings: {needed:.3g} GB in {folder} ({free:.3g} GB free)", file=sys.stderr)
    if needed > min(free, options.limit_gb):
        short = f"{free:.3g} GB are free" if needed > free else f"the limit is {options.limit_gb:g} GB"
        raise InputError(f"the hidden states for {folder} need {needed:.3g} GB and {short}; take fewer recordings or another disk")


def _compute_all(missing: dict[Path, list[Recording]], compute: Callable[[Recording], Tensor], workers: int, what: str) -> None:
    total = sum(map(len, missing.values()))
    with single_threaded(workers) as pool, tqdm(total=total, desc=what, unit="file") as bar:
        for path, part in missing.items():
            _write_shard(path, part, compute, pool, bar)


def _write_shard(path: Path, part: Sequence[Recording], compute: Callable[[Recording], Tensor], pool: Executor, bar: Any) -> None:
    def one(recording: Recording) -> Tensor | str:
        try:
            return compute(recording)
        except (InputError, ValueError) as error:
            return str(error)

    found: list[Tensor | str] = []
    for states in pool.map(one, part):
        found.append(states)
        bar.update()
    named = list(zip([r.id for r in part], found, strict=True))
    rows = [(name, 0 if isinstance(states, str) else len(states)) for name, states in named]
    failed = {name: why for name, why in named if isinstance(why, str)}
    states = [x for x in found if not isinstance(x, str)]
    tensors = {"states": torch.cat(states) if states else torch.zeros(0, 1, 1)}
    with replacing(path) as temporary:
        temporary.write_bytes(save(tensors, {"index": json.dumps({"rows": rows, "failed": failed})}))


def _states(encoder: SpeechEncoder, samples: np.ndarray, options: CacheOptions) -> Tensor:
    """(T, S, D), or (1, S, D) where pooled. Raises ValueError for fewer samples than one frame needs."""
    states = encoder.hidden_states(samples).cpu()
    if not torch.isfinite(states.sum()):
        raise ValueError("the encoder gives hidden states that are not finite")
    kept = states.mean(1)[None] if options.pooled else states.transpose(0, 1)
    return kept.to(PRECISIONS[options.precision]).contiguous()


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, "pt")
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{path} is missing or damaged ({' '.join(str(error).split())}); delete its folder and compute it again"
        ) from error


def _index(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_opened(path).metadata() or {}).get("index", '{"rows": [], "failed": {}}'))
    return found


def _is_done(path: Path) -> bool:
    """Whether a shard is there, with all its recordings: those that could not be read may have been mended."""
    return path.is_file() and not _index(path)["failed"]
