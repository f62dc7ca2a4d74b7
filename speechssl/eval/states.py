"""The hidden states of an encoder for the tasks of a benchmark: computed once and kept, where the disk has room for them.

A folder of states is named after what is in it, so that tasks on the same recordings (PR and ASR) share it.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.augment import Condition, Distorter
from speechssl.data.sources import Recording
from speechssl.data.utterances import Utterance, UtteranceSet
from speechssl.encoders.base import SpeechEncoder
from speechssl.encoders.states import CachedStates, CacheOptions, Hearing, Hears, cache_states, encoder_card, estimate
from speechssl.errors import InputError
from speechssl.io import hash_json
from speechssl.signal import generator
from speechssl.superb.data import Cached, InTheLoop, Supply
from speechssl.superb.task import Task

MODES = ("auto", "cached", "loop")
TRAINING = ("train", "dev")
RESERVED = 0.9  # of the free disk


@dataclass(frozen=True)
class Augmentation:
    """Training recordings are heard through one of these conditions, or none of them, drawn anew every time they are heard.

    How often a recording was heard is not kept: a killed run goes on with other draws than one that was not killed.
    """

    conditions: tuple[Condition, ...]
    distorter: Distorter
    heard: Counter[str] = field(default_factory=Counter)  # by id; grows

    def apply(self, samples: np.ndarray, name: str) -> np.ndarray:
        """samples: (N,) float32 at 16 kHz. Raises InputError or ValueError as the distorter does."""
        self.heard[name] += 1
        time = f"{name}, heard {self.heard[name]} times"
        drawn = generator(self.distorter.seed, "augmentation", time).integers(len(self.conditions) + 1)
        return samples if drawn == len(self.conditions) else self.distorter.apply(samples, self.conditions[drawn], time)


@dataclass
class Stock:
    """mode: cached, loop (the encoder in the loop), or auto: cached where it fits into limit_gb and the disk.

    augmentation: what training hears; it needs the encoder in the loop.
    """

    encoder: SpeechEncoder
    root: Path
    mode: str = "auto"
    limit_gb: float = 50.0
    workers: int = 2
    augmentation: Augmentation | None = None
    told: set[str] = field(default_factory=set)

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))

    def supply(self, task: Task, splits: Sequence[str] = TRAINING) -> Supply:
        """What the heads of a task train on. Raises InputError where mode is cached and there is no room."""
        options = options_of(task.pooled, self.limit_gb)
        folder = self.folder(task.data, splits, options)
        augmented = self.augmentation is not None and "train" in splits
        if augmented or self.mode == "loop" or not self.fits(task.name, task.data, splits, options, folder):
            return self.loop(task)
        self.states(task.data, splits, options)
        return Cached(task.data, (folder,), task.pooled, task.wants_waves)

    def loop(self, task: Task) -> InTheLoop:
        """With the encoder in the loop."""
        return InTheLoop(self.encoder, self._hear(task), task.pooled, task.wants_waves, self.pool)

    def _hear(self, task: Task) -> Callable[[Utterance], np.ndarray]:
        """Clean, but for the training recordings where there is an augmentation."""
        augmentation = self.augmentation
        trained = {u.id for u in task.data.splits["train"]} if augmentation else set()

        def hear(u: Utterance) -> np.ndarray:
            samples = read_audio(task.data.path(u))
            return augmentation.apply(samples, u.id) if augmentation and u.id in trained else samples

        return hear

    def states(self, data: UtteranceSet, splits: Sequence[str], options: CacheOptions, hearing: Hears = Hearing()) -> CachedStates:
        """Computed where they are not there. Raises InputError as `cache_states`."""
        folder = self.folder(data, splits, options, hearing)
        return cache_states(self.encoder, recordings_of(data, splits), folder, options, hearing, self.workers)

    def folder(self, data: UtteranceSet, splits: Sequence[str], options: CacheOptions, hearing: Hears = Hearing()) -> Path:
        """Named after encoder, recordings and options."""
        files = [[r.id, str(r.path.resolve())] for r in recordings_of(data, splits)]
        kept = [options.pooled, options.precision, options.shard_mb]
        return self.root / hash_json([files, kept, encoder_card(self.encoder), hearing.card])

    def room(self) -> float:
        """GB that states may still take. What heads need beside them stays free."""
        self.root.mkdir(parents=True, exist_ok=True)
        return min(RESERVED * shutil.disk_usage(self.root).free / 1e9, self.limit_gb - _size(self.root))

    def fits(self, name: str, data: UtteranceSet, splits: Sequence[str], options: CacheOptions, folder: Path) -> bool:
        """Whether there is room for what is not there yet; told where not. name: of the task."""
        if (folder / "card.json").is_file():
            return True
        needed = estimate(self.encoder, recordings_of(data, splits), options) / 1e9 - _size(folder)
        room = self.room()
        if needed <= room or self.mode == "cached":  # then `cache_states` refuses
            return True
        if name not in self.told:
            self.told.add(name)
            tqdm.write(
                f"{name}: its hidden states need {needed:.3g} GB and there is room for {max(room, 0):.3g} GB; "
                f"the encoder stays in the loop, which is slower (--cache-gb, or another disk)",
                file=sys.stderr,
            )
        return False


def _size(folder: Path) -> float:
    """GB of the states in it; a killed run may have left some."""
    return sum(f.stat().st_size for f in folder.rglob("*.safetensors")) / 1e9


def options_of(pooled: bool, limit_gb: float = 50.0) -> CacheOptions:
    """Means over time are few and kept as they are; frames in two bytes a number."""
    return CacheOptions(pooled, "float32" if pooled else "bfloat16", limit_gb=limit_gb)


def recordings_of(data: UtteranceSet, splits: Sequence[str]) -> list[Recording]:
    """Raises InputError for a set without one of these splits."""
    if missing := [split for split in splits if split not in data.splits]:
        raise InputError(f"{data.root} has no {missing[0]}.jsonl; prepare the set with it")
    return [Recording(u.id, data.path(u), u.seconds) for split in splits for u in data.splits[split]]
