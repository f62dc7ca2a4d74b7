"""The robustness grid: encoders x tasks x conditions, every cell a file of scores, item by item.

A cell is `scores/<encoder>/<task>-<metric>/<condition>.json`; `eval.run` has the loop. In each condition an encoder gets every
recording once, for all tasks that ask about it. All encoders get the same mixtures, which are frozen before the first of them runs:
what is random about a mixture depends on the seed, the condition and the utterance alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.augment import Condition, Distorter
from speechssl.augment.mixtures import FrozenDistorter, freeze
from speechssl.errors import InputError, tell_set_aside
from speechssl.eval.grid_heads import GridTask, Item, Listed
from speechssl.eval.run import Encoded, Encoding, ResultFile, check_conditions, encode_recordings, evaluate_files
from speechssl.io import hash_files, hash_json, read_json, write_json
from speechssl.stats import ItemScore

Source = tuple[str, Path]  # what an item is: its id and its recording

# ---- frozen mixtures


@dataclass(frozen=True)
class FrozenMixtures:
    """The mixtures of a manifest, by the names of recordings. rows: (utterance, condition) -> hash of its line."""

    frozen: FrozenDistorter
    rows: Mapping[tuple[str, str], str]

    @property
    def seed(self) -> int:
        return self.frozen.seed

    def apply(self, samples: np.ndarray, condition: Condition, utterance: str) -> np.ndarray:
        """samples: (N,) float32 at 16 kHz. Raises ValueError for silent speech, InputError for noise that cannot be had."""
        return self.frozen.apply(samples, condition, utterance)

    def made_from(self, condition: Condition, utterances: Sequence[str]) -> Any:
        """What decides the mixtures of these utterances alone: a manifest that has grown leaves earlier results as they are."""
        return hash_json([self.rows.get((utterance, condition.text), "") for utterance in utterances])


def freeze_mixtures(
    distorter: Distorter, recordings: Mapping[str, Path], conditions: Sequence[Condition], path: Path, workers: int = 2
) -> FrozenMixtures:
    """Write the manifest where it is not there or was made from other inputs. recordings: by the name that noise knows them by.

    Recordings that cannot be read are left out, and reported when they are to be encoded. Raises InputError for noise that cannot
    be had, for noise that has changed since it was frozen, and where no recording can be read.
    """
    card = path.with_suffix(".card.json")
    files = [[name, file_size(file)] for name, file in recordings.items()]
    noise = [[c.text, [list(source) for source in distorter.sources(c)]] for c in conditions]
    made_from = hash_json([files, noise, distorter.seed])
    if not _is_frozen(path, card, made_from):
        freeze(conditions, _lengths(recordings, workers), distorter, path)
        write_json(card, {"what": "frozen noise", "made_from": made_from, "hash": hash_files([path]), "seed": distorter.seed})
    frozen = FrozenDistorter(path)
    for condition in conditions:
        frozen.check(condition)
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return FrozenMixtures(frozen, {(row["utterance"], row["condition"]): hash_json(row) for row in lines})


def _is_frozen(path: Path, card: Path, made_from: str) -> bool:
    if not (path.is_file() and card.is_file()):
        return False
    try:
        stored = read_json(card)
    except InputError:
        return False
    return bool(isinstance(stored, dict) and stored.get("made_from") == made_from and stored.get("hash") == hash_files([path]))


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
    """In bytes; -1 for a file that is not there, which is reported when it is to be encoded."""
    return path.stat().st_size if path.is_file() else -1


# ---- the grid


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

    @property
    def stem(self) -> str:
        """The name of a file."""
        return self.label.replace(" ", "-").replace("/", "-")


@dataclass(frozen=True)
class Cell:
    """The scores of an encoder in a task under a condition. scored: every item once; card: hash of what made the head."""

    encoder: str
    task: str
    metric: str
    setting: Setting
    scored: tuple[ItemScore, ...]
    seed: int
    card: str
    failed: Mapping[str, str]  # id of a recording that could not be encoded -> why
    unit: str = "recording"  # what the groups of its scores are (`GridTask.unit`)


def run_grid(
    encoders: Mapping[str, Sequence[GridTask]],
    settings: Sequence[Setting],
    out: Path,
    mixtures: FrozenMixtures,
    workers: int = 2,
) -> list[Cell]:
    """Fill in the cells that are missing and return all of them.

    Recordings that cannot be read are set aside and reported; they count as wrong, and are tried again by the next run.
    Raises InputError for noise that cannot be had, and where no recording of a task can be encoded.
    """
    utterances = name_utterances([task for tasks in encoders.values() for task in tasks])
    cells = []
    for name, tasks in encoders.items():
        for number, setting in enumerate(settings, 1):
            what = f"{name}, {setting.label} ({number} of {len(settings)})"
            cells += _run_tasks(name, tasks, setting, out, mixtures, utterances, workers, what)
    return cells


def _run_tasks(
    encoder: str,
    tasks: Sequence[GridTask],
    setting: Setting,
    out: Path,
    mixtures: FrozenMixtures,
    utterances: Mapping[Source, str],
    workers: int,
    what: str,
) -> list[Cell]:
    """All tasks of an encoder under one condition. utterances: the name that noise knows a recording by."""
    condition, seed = setting.condition, mixtures.seed
    by_name = {f"{task.name}-{task.metric}": task for task in tasks}
    sources = {name: {source_of(i): i for i in task.items()} for name, task in by_name.items()}
    files = []
    for name, task in by_name.items():
        names = [utterances[source] for source in sources[name]]
        items = [[item.id, utterances[source], file_size(item.path)] for source, item in sources[name].items()]
        noise = mixtures.made_from(condition, names)
        made_from = hash_json([dict(task.card), task.metric, items, setting.group, asdict(condition), noise, seed])
        path = out / "scores" / encoder / name / f"{setting.stem}.json"
        files.append(ResultFile(name, path, made_from, f"{encoder}, {task.name}, {setting.label}"))

    def encode(missing: Sequence[ResultFile]) -> Mapping[str, Encoded[str]]:
        encodings = {
            file.system: Encoding(lambda _, x, task=by_name[file.system]: task.encode(x), recordings=sources[file.system].keys())  # type: ignore[misc]
            for file in missing
        }
        found = encode_recordings(
            dict.fromkeys(source for file in missing for source in sources[file.system]),
            lambda source: read_audio(source[1]),
            lambda samples, source: mixtures.apply(samples, condition, utterances[source]),
            encodings,
            workers,
            what,
        )
        return {
            name: Encoded({i: x for (i, _), x in e.features.items()}, {i: why for (i, _), why in e.failed.items()})
            for name, e in found.items()
        }

    def score(file: ResultFile, features: Mapping[str, Any]) -> dict[str, Any]:
        task = by_name[file.system]
        about = {"encoder": encoder, "task": task.name, "metric": task.metric, "condition": setting.name}
        scored = [
            asdict(s) | {"numerator": float(s.numerator), "denominator": float(s.denominator)}  # numpy's scalars made Python's
            for s in task.score(features)
        ]
        return about | {"snr_db": setting.snr_db, "seed": seed, "items": scored}

    cells = []
    for task, file, contents in zip(tasks, files, evaluate_files(files, encode, score), strict=True):
        tell_set_aside(contents["failed"], f"{file.label} (they count as wrong)")
        scored, card = tuple(ItemScore(**s) for s in contents["items"]), hash_json(dict(task.card))
        cells.append(Cell(encoder, task.name, task.metric, setting, scored, seed, card, contents["failed"], task.unit))
    return cells


def check_settings(settings: Sequence[Setting], distorter: Distorter) -> None:
    """Raises InputError for conditions of one name and for noise that cannot be had; call it before a long run."""
    check_conditions([s.condition for s in settings], [s.label for s in settings], distorter)


def source_of(item: Item) -> Source:
    """Two tasks may write the path of one recording in two ways."""
    return item.id, Path(os.path.abspath(item.path))


def name_utterances(tasks: Iterable[Listed]) -> dict[Source, str]:
    """What noise shall know every recording by: its id; `<task>/<id>` where the tasks give one id to different recordings."""
    owners: dict[Source, str] = {}
    for task in tasks:
        for item in task.items():
            source = source_of(item)
            owners[source] = min(owners.get(source, task.name), task.name)
    paths: dict[str, set[Path]] = {}
    for name, path in owners:
        paths.setdefault(name, set()).add(path)
    return {(name, path): name if len(paths[name]) == 1 else f"{owner}/{name}" for (name, path), owner in owners.items()}


def first_items(items: Sequence[Item], count: int | None, seed: int) -> list[Item]:
    """So many of the items, drawn by the seed and their ids, in the order in which they stand; None: all."""
    if count is None or count >= len(items):
        return list(items)
    chosen = set(sorted(range(len(items)), key=lambda i: hash_json([seed, items[i].id]))[:count])
    return [item for i, item in enumerate(items) if i in chosen]
