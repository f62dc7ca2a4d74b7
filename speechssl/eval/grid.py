"""Encoders x tasks x conditions: every cell is a file of scores, item by item.

A cell is `scores/<encoder>/<task>-<metric>/<condition>.json`, whole or not at all; a killed run goes on with the missing.
In each condition an encoder hears every recording once, for all tasks that ask about it. All encoders hear the same mixtures: what
is random about one depends on the seed, the condition and the utterance alone (`mixtures`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.augment import Condition, Distorter
from speechssl.augment.mixtures import FrozenDistorter, freeze
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import hash_files, hash_json, read_json, write_json
from speechssl.superb.trained import Item, Scored, TrainedTask
from speechssl.units.extract import single_threaded

# What the encoders of a grid hear: mixtures frozen before the first of them listens, the same for all and for later runs.


class Mixtures(Protocol):
    """Distorts recordings by their names, always alike."""

    @property
    def seed(self) -> int: ...
    def apply(self, samples: np.ndarray, condition: Condition, utterance: str) -> np.ndarray:
        """samples: (N,) float32 at 16 kHz. Raises InputError or ValueError where it cannot be distorted."""
        ...

    def made_from(self, condition: Condition, utterances: Sequence[str]) -> Any:
        """What decides these mixtures, as JSON values."""
        ...


@dataclass(frozen=True)
class LiveMixtures:
    """Made when they are heard."""

    distorter: Distorter

    @property
    def seed(self) -> int:
        return self.distorter.seed

    def apply(self, samples: np.ndarray, condition: Condition, utterance: str) -> np.ndarray:
        """samples: (N,) float32 at 16 kHz."""
        return self.distorter.apply(samples, condition, utterance)

    def made_from(self, condition: Condition, utterances: Sequence[str]) -> Any:
        return [list(source) for source in self.distorter.sources(condition)]


@dataclass(frozen=True)
class FrozenMixtures:
    """Those of a manifest. rows: (utterance, condition) -> hash of the line that describes the mixture."""

    frozen: FrozenDistorter
    rows: Mapping[tuple[str, str], str]

    @property
    def seed(self) -> int:
        return self.frozen.seed

    def apply(self, samples: np.ndarray, condition: Condition, utterance: str) -> np.ndarray:
        """samples: (N,) float32 at 16 kHz."""
        return self.frozen.apply(samples, condition, utterance)

    def made_from(self, condition: Condition, utterances: Sequence[str]) -> Any:
        """Of these utterances alone: a manifest that has grown leaves what was heard before as it is."""
        return hash_json([self.rows.get((utterance, condition.text), "") for utterance in utterances])


def freeze_mixtures(
    distorter: Distorter, recordings: Mapping[str, Path], conditions: Sequence[Condition], path: Path, workers: int = 2
) -> FrozenMixtures:
    """Write the manifest where it is not there or was made from other inputs. recordings: by the name that noise knows them by.

    Recordings that cannot be read are left out; they are told when they are to be heard. Raises InputError for noise that cannot be
    had, for noise that has changed since it was frozen, and where no recording can be read.
    """
    card, made_from = path.with_suffix(".card.json"), _made_from(distorter, recordings, conditions)
    if not _is_frozen(path, card, made_from):
        freeze(conditions, _lengths(recordings, workers), distorter, path)
        write_json(card, {"what": "frozen noise", "made_from": made_from, "hash": hash_files([path]), "seed": distorter.seed})
    frozen = FrozenDistorter(path)
    for condition in conditions:
        frozen.check(condition)
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return FrozenMixtures(frozen, {(row["utterance"], row["condition"]): hash_json(row) for row in lines})


def _made_from(distorter: Distorter, recordings: Mapping[str, Path], conditions: Sequence[Condition]) -> str:
    files = [[name, file_size(file)] for name, file in recordings.items()]
    noise = [[c.text, [list(source) for source in distorter.sources(c)]] for c in conditions]
    return hash_json([files, noise, distorter.seed])


def _is_frozen(path: Path, card: Path, made_from: str) -> bool:
    if not (path.is_file() and card.is_file()):
        return False
    try:
        there = read_json(card)
    except InputError:
        return False
    return bool(isinstance(there, dict) and there.get("made_from") == made_from and there.get("hash") == hash_files([path]))


def _lengths(recordings: Mapping[str, Path], workers: int) -> dict[str, int]:
    """Samples at 16 kHz of all that can be read."""

    def length(file: Path) -> int | str:
        try:
            return len(read_audio(file))
        except (InputError, ValueError) as error:
            return str(error)

    with ThreadPoolExecutor(workers) as pool:
        found = list(tqdm(pool.map(length, recordings.values()), total=len(recordings), desc="freezing noise", unit="file"))
    lengths = {name: n for name, n in zip(recordings, found, strict=True) if not isinstance(n, str)}
    if not lengths:
        raise InputError(f"none of the {len(found)} recordings can be read ({found[0] if found else 'there are none'}); mend them")
    return lengths


def file_size(path: Path) -> int:
    """In bytes; -1 for a file that is not there, which is told when it is to be heard."""
    return path.stat().st_size if path.is_file() else -1


Source = tuple[str, Path]  # what an item is: its id and its recording


@dataclass(frozen=True)
class Setting:
    """A condition and what the encoders know of it. group: clean, seen (in training) or unseen."""

    group: str
    condition: Condition

    @property
    def name(self) -> str:
        """As in `results.jsonl`, which has a column for the SNR: "clean", "seen-m+g+r", "unseen-kitchen"."""
        return "clean" if self.condition.name == "clean" else f"{self.group}-{self.condition.short}"

    @property
    def snr_db(self) -> float | None:
        return self.condition.snr_db

    @property
    def label(self) -> str:
        """For tables and names of files: "unseen-kitchen 5 dB"."""
        return self.name if self.snr_db is None else f"{self.name} {self.snr_db:g} dB"


@dataclass(frozen=True)
class Cell:
    """The scores of an encoder in a task under a condition. scored: every item once; card: hash of what made the head."""

    encoder: str
    task: str
    metric: str
    setting: Setting
    scored: tuple[Scored, ...]
    seed: int
    card: str
    failed: Mapping[str, str]  # id of a recording that could not be heard -> why
    unit: str = "recording"  # what the groups of its scores are (`TrainedTask.unit`)


@dataclass(frozen=True)
class Listener:
    """An encoder with its tasks, in one condition."""

    encoder: str
    tasks: Sequence[TrainedTask]
    setting: Setting
    mixtures: Mixtures
    utterances: Mapping[Source, str]  # the name that the distorter knows a recording by
    out: Path

    def path(self, task: TrainedTask) -> Path:
        file = self.setting.label.replace(" ", "-").replace("/", "-")
        return self.out / "scores" / self.encoder / f"{task.name}-{task.metric}" / f"{file}.json"

    def made_from(self, task: TrainedTask) -> str:
        items = [[i.id, self.utterances[source_of(i)], file_size(i.path)] for i in task.items()]
        noise = self.mixtures.made_from(self.setting.condition, [self.utterances[source_of(i)] for i in task.items()])
        setting = [self.setting.group, asdict(self.setting.condition), noise, self.mixtures.seed]
        return hash_json([dict(task.card), task.metric, items, *setting])


def run_grid(
    encoders: Mapping[str, Sequence[TrainedTask]],
    settings: Sequence[Setting],
    out: Path,
    mixtures: Mixtures,
    workers: int = 2,
) -> list[Cell]:
    """Fill in the cells that are missing and return all of them.

    Recordings that cannot be read are set aside and told; they count as wrong, and are tried again by the next run.
    Raises InputError for noise that cannot be had, and where nothing at all can be heard.
    """
    utterances = name_utterances([task for tasks in encoders.values() for task in tasks])
    cells = []
    for name, tasks in encoders.items():
        for number, setting in enumerate(settings, 1):
            listener = Listener(name, tasks, setting, mixtures, utterances, out)
            _fill(listener, workers, f"{name}, {setting.label} ({number} of {len(settings)})")
            cells += [_read(listener, task) for task in tasks]
    return cells


def check_settings(settings: Sequence[Setting], distorter: Distorter) -> None:
    """Raises InputError for conditions of one name and for noise that cannot be had; call it before a long run."""
    labels = [s.label for s in settings]
    if twins := [label for i, label in enumerate(labels) if label in labels[:i]]:
        raise InputError(f"two conditions are both called {twins[0]!r}; rename a noise file, or leave one of them out")
    for setting in settings:
        distorter.check(setting.condition)


def source_of(item: Item) -> Source:
    """Two tasks may write the path of one recording in two ways."""
    return item.id, Path(os.path.abspath(item.path))


def name_utterances(tasks: Iterable[TrainedTask]) -> dict[Source, str]:
    """What the distorter shall call every recording: its id; `<task>/<id>` where the tasks give one id to different recordings."""
    owners: dict[Source, str] = {}
    for task in tasks:
        for item in task.items():
            source = source_of(item)
            owners[source] = min(owners.get(source, task.name), task.name)
    paths: dict[str, set[Path]] = {}
    for name, path in owners:
        paths.setdefault(name, set()).add(path)
    return {(name, path): name if len(paths[name]) == 1 else f"{owner}/{name}" for (name, path), owner in owners.items()}


def _fill(listener: Listener, workers: int, what: str) -> None:
    missing = [task for task in listener.tasks if not _is_done(listener, task)]
    if not missing:
        return
    heard, failed = _hear(listener, missing, workers, what)
    for task, there in zip(missing, heard, strict=True):
        sources = {item.id: failed[source_of(item)] for item in task.items() if source_of(item) in failed}
        scored = [_plain(s) for s in task.score(there)]
        write_json(
            listener.path(task),
            {
                "made_from": listener.made_from(task),
                "hash": hash_json(scored),
                "encoder": listener.encoder,
                "task": task.name,
                "metric": task.metric,
                "condition": listener.setting.name,
                "snr_db": listener.setting.snr_db,
                "seed": listener.mixtures.seed,
                "failed": sources,
                "items": scored,
            },
        )


def _plain(s: Scored) -> dict[str, Any]:
    """As JSON values, numpy's scalars made Python's."""
    return asdict(s) | {"numerator": float(s.numerator), "denominator": float(s.denominator)}


def _hear(
    listener: Listener, tasks: Sequence[TrainedTask], workers: int, what: str
) -> tuple[list[dict[str, Any]], dict[Source, str]]:
    """What every task keeps of its recordings by id, and why there is nothing of some. Each is read and distorted once."""
    wanted: dict[Source, list[int]] = {}
    for number, task in enumerate(tasks):
        for item in task.items():
            wanted.setdefault(source_of(item), []).append(number)

    def one(source: Source) -> dict[int, Any] | str:
        try:
            samples = read_audio(source[1])
        except (InputError, ValueError) as error:
            return str(error)
        try:  # an InputError is the noise's, and no encoder's fault: it ends the run
            samples = listener.mixtures.apply(samples, listener.setting.condition, listener.utterances[source])
        except ValueError as error:
            return str(error)
        try:
            return {number: tasks[number].hear(samples) for number in wanted[source]}
        except (InputError, ValueError) as error:
            return str(error)

    with single_threaded(workers) as pool:
        found = list(tqdm(pool.map(one, wanted), total=len(wanted), desc=what, unit="file"))
    failed = {source: why for source, why in zip(wanted, found, strict=True) if isinstance(why, str)}
    if wanted and len(failed) == len(wanted):
        why = next(iter(failed.values()))
        raise InputError(f"none of the {len(failed)} recordings could be heard by {what} ({why}); mend them")
    heard: list[dict[str, Any]] = [{} for _ in tasks]
    for (name, _), kept in zip(wanted, found, strict=True):
        for number, thing in ({} if isinstance(kept, str) else kept).items():
            heard[number][name] = thing
    return heard, failed


def _is_done(listener: Listener, task: TrainedTask) -> bool:
    """Whether a cell is there. One with recordings that could not be heard is made again: they may have been mended."""
    path = listener.path(task)
    if not path.is_file():
        return False
    try:
        there = _checked(path)
    except InputError as error:
        tqdm.write(f"{error}; it is made again", file=sys.stderr)
        return False
    return there["made_from"] == listener.made_from(task) and not there["failed"]


def _read(listener: Listener, task: TrainedTask) -> Cell:
    values = _checked(listener.path(task))
    failed = values["failed"]
    tell_set_aside(failed, f"{listener.encoder}, {task.name}, {listener.setting.label} (they count as wrong)")
    scored = tuple(Scored(**s) for s in values["items"])
    made = hash_json(dict(task.card))
    return Cell(listener.encoder, task.name, task.metric, listener.setting, scored, listener.mixtures.seed, made, failed, task.unit)


def _checked(path: Path) -> dict[str, Any]:
    """The contents of a file of scores. Raises InputError for anything but what `_fill` wrote."""
    values = read_json(path)
    known = isinstance(values, dict) and {"made_from", "hash", "failed", "items"} <= set(values)
    if not known or values["hash"] != hash_json(values["items"]):
        raise InputError(f"{path} does not hold the scores that were written into it")
    return dict(values)


def first_items(items: Sequence[Item], count: int | None, seed: int) -> list[Item]:
    """So many of the items, drawn by the seed and their ids, in the order in which they stand; None: all."""
    if count is None or count >= len(items):
        return list(items)
    chosen = set(sorted(range(len(items)), key=lambda i: hash_json([seed, items[i].id]))[:count])
    return [item for i, item in enumerate(items) if i in chosen]
