"""The feature store: hidden states of a frozen encoder, computed once and kept on disk in shards that are read as they are needed.

A folder holds `made_from.json`, one `shard-NNNNN.safetensors` for every so many recordings, and at the end `card.json`. A shard
has a checksum of its index and of every recording. What is kept of a recording is either its (T, S, D) hidden states or, for heads
that see their mean over time alone, (S, D).

Letters: S hidden states (the encoder's layers and the input of the first), T frames, D width, R recordings.
"""

from __future__ import annotations

import json
import shutil
import sys
import zlib
from collections.abc import Sequence
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
from speechssl.data.files import Recording
from speechssl.encoders.load import SpeechEncoder, single_threaded
from speechssl.errors import InputError, first_line, tell_set_aside
from speechssl.io import hash_bytes, hash_json, read_json, replacing, stage

MADE_AGAIN = "delete it and give the same command, which makes it again"
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class CacheOptions:
    """What is kept of a recording, and how exactly."""

    pooled: bool = True  # the mean over time; else every frame
    precision: str = "float32"  # a key of PRECISIONS; frames are worth 2 bytes a number
    shard_mb: float = 64.0  # a shard is closed when it is so large
    limit_gb: float = 50.0  # more is refused before it begins


class AudioReader(Protocol):
    """How recordings are read before they are encoded: (N,) float32 at 16 kHz; InputError or ValueError for what cannot be."""

    @property
    def card(self) -> dict[str, Any]: ...  # what decides the sound, beside the recordings
    def read(self, recording: Recording) -> np.ndarray: ...


@dataclass(frozen=True)
class ConditionReader:
    """Reads recordings as they sound in a condition."""

    condition: Condition = Condition("clean")
    distorter: Distorter = field(default_factory=Distorter)

    @property
    def card(self) -> dict[str, Any]:
        if self.condition.name == "clean":
            return {"condition": "clean"}
        sources = [list(source) for source in self.distorter.sources(self.condition)]
        return {"condition": asdict(self.condition), "sources": sources, "seed": self.distorter.seed}

    def read(self, recording: Recording) -> np.ndarray:
        samples = read_audio(recording.path)
        return samples if self.condition.name == "clean" else self.distorter.apply(samples, self.condition, recording.id)


@dataclass(frozen=True)
class CachedStates:
    """Hidden states on disk, a mapping from the id of a recording to its tensor."""

    folder: Path
    pooled: bool
    rows: dict[str, tuple[Path, int, int, int]]  # shard, first row, rows, checksum
    failed: dict[str, str]  # id -> why it has none
    _open: dict[Path, Any] = field(default_factory=dict, repr=False, compare=False)
    _sound: set[str] = field(default_factory=set, repr=False, compare=False)  # recordings that have been found as they were written

    def __contains__(self, name: str) -> bool:
        return name in self.rows

    def __getitem__(self, name: str) -> Tensor:
        """(S, D) of a pooled recording, else (T, S, D), in the precision of the cache; only this is read.

        Raises KeyError for a recording that is not there, InputError where its states are not those that were written.
        """
        path, first, count, wanted = self.rows[name]
        if path not in self._open:
            self._open[path] = _opened(path)
        found: Tensor = self._open[path].get_slice("states")[first : first + count]
        if name not in self._sound:
            if checksum(found) != wanted:
                raise InputError(f"{path} is damaged (the states of {name} are not those that were written); {MADE_AGAIN}")
            self._sound.add(name)
        return found[0] if self.pooled else found

    def stacked(self, names: Sequence[str]) -> Tensor:
        """(R, S, D) float32 of pooled recordings."""
        return torch.stack([self[name] for name in names]).float()

    @classmethod
    def load(cls, folder: Path | str) -> CachedStates:
        """A finished store. Raises InputError where the folder is none or a shard is damaged."""
        folder = Path(folder)
        rows: dict[str, tuple[Path, int, int, int]] = {}
        failed: dict[str, str] = {}
        card = read_json(folder / "card.json")
        try:
            shards, pooled = [folder / name for name in card["shards"]], bool(card["made_from"]["options"]["pooled"])
        except (KeyError, TypeError) as error:
            raise InputError(f"{folder / 'card.json'} is damaged (it lacks {error}); {MADE_AGAIN}") from None
        for path in shards:
            if not path.is_file():
                raise InputError(f"{path} is missing or damaged (card.json names it, and it is not there); {MADE_AGAIN}")
            index, at = _index(path), 0
            for name, count, wanted in index["rows"]:
                if count:
                    rows[name] = (path, at, count, wanted)
                at += count
            failed |= index["failed"]
        return cls(folder, pooled, rows, failed)


def cache_states(
    encoder: SpeechEncoder,
    recordings: Sequence[Recording],
    folder: Path | str,
    options: CacheOptions = CacheOptions(),
    reader: AudioReader = ConditionReader(),
    workers: int = 2,
) -> CachedStates:
    """Compute (once) the hidden states of all recordings. Those that cannot be read are set aside and tried again next time.

    The size is reported before it begins. Raises InputError where `folder` was made from other inputs, the disk has too little room
    for it, or no recording can be read.
    """
    folder = Path(folder)
    kept = {"pooled": options.pooled, "precision": options.precision, "shard_mb": options.shard_mb}
    # audio is known by id, name and size, in this order
    sizes = [(r.id, r.path.name, r.path.stat().st_size if r.path.is_file() else 0) for r in recordings]
    if len({r.id for r in recordings}) < len(recordings):
        raise InputError("two recordings have the same id; make ids unique")
    made_from = {"encoder": encoder_card(encoder), "recordings": hash_json(sizes), "options": kept, "hearing": reader.card}
    with stage(folder, made_from, wait=True) as step:
        shards: dict[Path, list[Recording]] = {}
        part: list[Recording] = []
        size = 0
        for recording in recordings:
            part.append(recording)
            size += estimate(encoder, [recording], options)
            if size >= options.shard_mb * 1e6 or recording is recordings[-1]:
                shards[folder / f"shard-{len(shards):05d}.safetensors"], part, size = part, [], 0
        # a shard is done with all its recordings: those that could not be read may have been mended
        missing = {path: part for path, part in shards.items() if not path.is_file() or _index(path)["failed"]}
        if missing:
            _compute(encoder, missing, options, reader, workers)
        step.finish({"kind": "hidden-states", "shards": [p.name for p in shards], "made_from": made_from})
        cached = CachedStates.load(folder)
        tell_set_aside(cached.failed, "hidden states")
        if not cached.rows:
            raise InputError(
                f"none of the {len(recordings)} recordings for {folder} could be read; fix them or correct the manifest"
            )
    return cached


def encoder_card(encoder: SpeechEncoder) -> dict[str, Any]:
    """What decides the features of an encoder."""
    facts = {"encoder": encoder.hash, "settings": encoder.settings, "precision": encoder.precision}
    return facts | {"states": encoder.layers + 1, "width": encoder.width, "chunking": asdict(encoder.chunking)}


def estimate(encoder: SpeechEncoder, recordings: Sequence[Recording], options: CacheOptions) -> int:
    """Bytes that the hidden states of these recordings need, of those that can be opened."""
    frames = 0
    for recording in recordings:
        if options.pooled:
            frames += 1
            continue
        try:
            seconds = recording.seconds or duration(recording.path)
        except InputError:
            continue
        frames += encoder.grid.frames(encoder.grid.sample(seconds))
    return frames * (encoder.layers + 1) * encoder.width * PRECISIONS[options.precision].itemsize


def _compute(
    encoder: SpeechEncoder, missing: dict[Path, list[Recording]], options: CacheOptions, reader: AudioReader, workers: int
) -> None:
    """Write the shards. Raises InputError where there is too little room for them."""
    recordings, folder = [r for part in missing.values() for r in part], next(iter(missing)).parent
    needed, free = estimate(encoder, recordings, options) / 1e9, shutil.disk_usage(folder).free / 1e9
    tqdm.write(f"hidden states of {len(recordings)} recordings: {needed:.3g} GB in {folder} ({free:.3g} GB free)", file=sys.stderr)
    if needed > min(free, options.limit_gb):
        short = f"{free:.3g} GB are free" if needed > free else f"the limit is {options.limit_gb:g} GB"
        raise InputError(f"the hidden states for {folder} need {needed:.3g} GB and {short}; take fewer recordings or another disk")

    def encode(recording: Recording) -> Tensor | str:
        """(T, S, D), or (1, S, D) where pooled; or why there are none."""
        try:
            states = encoder.hidden_states(reader.read(recording)).cpu()
            if not torch.isfinite(states.sum()):
                raise ValueError("the encoder gives hidden states that are not finite")
        except (InputError, ValueError) as error:
            return str(error)
        kept = states.mean(1)[None] if options.pooled else states.transpose(0, 1)
        return kept.to(PRECISIONS[options.precision]).contiguous()

    with single_threaded(workers) as pool, tqdm(total=len(recordings), desc=f"hidden states, {encoder.name}", unit="file") as bar:
        for path, part in missing.items():
            rows: list[tuple[str, int, int]] = []
            failed: dict[str, str] = {}
            whole: list[Tensor] = []
            for recording, states in zip(part, pool.map(encode, part), strict=True):
                if isinstance(states, str):
                    failed[recording.id] = states
                else:
                    whole.append(states)
                rows.append((recording.id, 0, 0) if isinstance(states, str) else (recording.id, len(states), checksum(states)))
                bar.update()
            tensors = {"states": torch.cat(whole) if whole else torch.zeros(0, 1, 1)}
            with replacing(path) as temporary:
                index: dict[str, Any] = {"rows": rows, "failed": failed}
                index["hash"] = hash_bytes(json.dumps(index).encode())
                # one entry: safetensors writes several in an order that changes from run to run
                temporary.write_bytes(save(tensors, {"index": json.dumps(index)}))


def checksum(states: Tensor) -> int:
    """CRC-32 of what is stored."""
    return zlib.crc32(states.contiguous().view(torch.uint8).numpy())


def _opened(path: Path) -> Any:
    """Raises InputError for a file that is not whole or has no states."""
    try:
        file = safe_open(path, "pt")
        file.get_slice("states")
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} is missing or damaged ({first_line(error)}); {MADE_AGAIN}") from error
    return file


def _index(path: Path) -> dict[str, Any]:
    """Raises InputError for one that is not what was written."""
    about = _opened(path).metadata() or {}
    try:
        found: dict[str, Any] = json.loads(about["index"])
        if found.pop("hash") != hash_bytes(json.dumps(found).encode()):
            raise ValueError("its index is not the one that was written")
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged ({first_line(error)}); {MADE_AGAIN}") from error
    return found
