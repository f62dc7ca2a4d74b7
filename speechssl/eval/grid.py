"""The robustness grid: encoders x tasks x conditions, every cell a file of scores, item by item.

A cell is `scores/<encoder>/<task>-<metric>/<condition>.json`; `eval.run` has the loop. In each condition an encoder gets every
recording once, for all tasks that ask about it. All encoders get the same mixtures, which are frozen before the first of them runs:
what is random about a mixture depends on the seed, the condition and the utterance alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.augment.conditions import FrozenDistorter, freeze
from speechssl.errors import InputError, tell_set_aside
from speechssl.eval.run import Encoded, Encoding, ResultFile, encode_recordings, evaluate_files
from speechssl.eval.tables import condition_name
from speechssl.io import hash_files, hash_json, read_json, write_json
from speechssl.stats import ItemScore


class Item(NamedTuple):
    """One test recording. id: what the random part of a distortion depends on."""

    id: str
    path: Path


@dataclass(frozen=True, eq=False)
class GridTask:
    """What is evaluated, such as a head with its encoder, and its test recordings, in the order of the manifest.

    metric: acc (more is better) or wer (less is). unit: what the groups of its scores are called: "recording", "passage".
    card: all that its scores depend on, beside the condition.
    encode: (N,) float32 at 16 kHz -> the features that `score` takes. Several threads may call it at once. Raises ValueError for
    fewer samples than one frame of the encoder.
    score: features by the id of the item -> scores. An item without any counts as wrong (for wer: every word is missing).
    """

    name: str
    metric: str
    unit: str
    card: Mapping[str, Any]
    items: Sequence[Item]
    encode: Callable[[np.ndarray], Any]
    score: Callable[[Mapping[str, Any]], list[ItemScore]]

    def limited(self, count: int | None, seed: int) -> GridTask:
        """On so many of its items only, drawn by the seed; None: on all."""
        if count is None:
            return self
        items = first_items(self.items, count, seed)
        kept = {item.id for item in items}
        return replace(self, items=items, score=lambda features: [s for s in self.score(features) if s.id in kept])


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
        """For tables and messages: "unseen-kitchen 5 dB"."""
        return condition_name(self.name, self.snr_db)

    @property
    def file(self) -> str:
        """The name of a file."""
        return f"{self.label.replace(' ', '-').replace('/', '-')}.json"


def settings_of(seen: Sequence[str], unseen: Sequence[str], snrs: Sequence[float]) -> list[Setting]:
    """Clean speech, then these conditions, each at every SNR (dB) where it needs one and has none of its own."""
    found = [Setting("clean", parse_condition("clean"))]
    for group, texts in (("seen", seen), ("unseen", unseen)):
        for text in texts:
            try:
                conditions = [parse_condition(text)]
            except InputError:
                if re.search(r"@[^/@]+$", text.rpartition("+")[2]) or not snrs:  # the last step has its number, and it is wrong
                    raise
                conditions = [parse_condition(f"{text}@{snr:g}") for snr in snrs]
            found += [Setting(group, condition) for condition in conditions]
    return found


def trained_noises(folder: Path) -> frozenset[str]:
    """What the card of an encoder calls the noises it was trained on; none where it has no card of ours."""
    card = read_json(folder / "card.json") if (folder / "card.json").is_file() else {}
    options = card.get("options") if isinstance(card, dict) else None
    return noises_in(options) if isinstance(options, dict) else frozenset()


def noises_in(options: Mapping[str, Any]) -> frozenset[str]:
    """What the options of a training call the noises in it."""
    distort = options.get("distort")
    kinds = distort.get("kinds", []) if isinstance(distort, dict) else []
    return frozenset(kind[key] for kind in kinds for key in ("name", "set") if key in kind)


def check_unseen(encoder: str, noises: frozenset[str], settings: Iterable[Setting]) -> None:
    """Raises InputError where noise is called unseen that an encoder was trained on. noises: those that its card names."""
    for condition in [s.condition for s in settings if s.group == "unseen"]:
        if known := noises & {name for step in (condition.steps or (condition,)) for name in step.short.split("+")}:
            raise InputError(
                f"{encoder} was trained on the noise {min(known)}, according to its card; give it with --seen instead of --unseen"
            )


# ---- recordings


def normalised(items: Iterable[Item]) -> list[Item]:
    """Two tasks may write the path of one recording in two ways."""
    return [Item(name, Path(os.path.abspath(path))) for name, path in items]


def name_utterances(tasks: Iterable[tuple[str, Sequence[Item]]]) -> dict[Item, str]:
    """What noise shall know every recording by: its id; `<task>/<id>` where the tasks give one id to different recordings.

    tasks: their names and items. Keys are normalised.
    """
    owners: dict[Item, str] = {}
    for task, items in tasks:
        for item in normalised(items):
            owners[item] = min(owners.get(item, task), task)
    paths: dict[str, set[Path]] = {}
    for item in owners:
        paths.setdefault(item.id, set()).add(item.path)
    return {item: item.id if len(paths[item.id]) == 1 else f"{task}/{item.id}" for item, task in owners.items()}


def first_items(items: Sequence[Item], count: int | None, seed: int) -> list[Item]:
    """So many of the items, drawn by the seed and their ids, in the order in which they stand; None: all."""
    if count is None or count >= len(items):
        return list(items)
    chosen = set(sorted(range(len(items)), key=lambda i: hash_json([seed, items[i].id]))[:count])
    return [item for i, item in enumerate(items) if i in chosen]


def file_size(path: Path) -> int:
    """In bytes; -1 for a file that is not there, which is reported when it is to be encoded."""
    return path.stat().st_size if path.is_file() else -1


# ---- frozen mixtures


class FrozenMixtures(FrozenDistorter):
    """The mixtures of a manifest, by the names of recordings."""

    def made_from(self, condition: Condition, utterances: Sequence[str]) -> str:
        """What decides the mixtures of these utterances alone: a manifest that has grown leaves earlier results as they are."""
        rows = [self._rows.get((utterance, condition.text)) for utterance in utterances]
        return hash_json([hash_json(row) if row else "" for row in rows])


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
    try:
        stored = read_json(card) if path.is_file() and card.is_file() else None
    except InputError:
        stored = None
    current = isinstance(stored, dict) and stored.get("made_from") == made_from and stored.get("hash") == hash_files([path])
    if not current:

        def length(file: Path) -> int | str:
            """In samples at 16 kHz, or why it cannot be read."""
            try:
                return len(read_audio(file))
            except (InputError, ValueError) as error:
                return str(error)

        with ThreadPoolExecutor(workers) as pool:
            found = list(tqdm(pool.map(length, recordings.values()), total=len(recordings), desc="freezing noise", unit="file"))
        lengths = {name: n for name, n in zip(recordings, found, strict=True) if not isinstance(n, str)}
        if not lengths:
            why = found[0] if found else "there are none"
            raise InputError(f"none of the {len(found)} recordings can be read ({why}); fix them")
        freeze(conditions, lengths, distorter, path)
        write_json(card, {"what": "frozen noise", "made_from": made_from, "hash": hash_files([path]), "seed": distorter.seed})
    frozen = FrozenMixtures(path)
    for condition in conditions:
        frozen.check(condition)
    return frozen


# ---- the grid


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
    encoders: Mapping[str, Sequence[GridTask]], settings: Sequence[Setting], out: Path, mixtures: FrozenMixtures, workers: int = 2
) -> list[Cell]:
    """Fill in the cells that are missing and return all of them.

    Recordings that cannot be read are set aside and reported; they count as wrong, and are tried again by the next run.
    Raises InputError for noise that cannot be had, and where no recording of a task can be encoded.
    """
    utterances = name_utterances((task.name, task.items) for tasks in encoders.values() for task in tasks)
    return [
        cell
        for encoder, tasks in encoders.items()
        for number, setting in enumerate(settings, 1)
        for cell in _run_tasks(encoder, tasks, setting, out, mixtures, utterances, workers, f"({number} of {len(settings)})")
    ]


def _run_tasks(
    encoder: str,
    tasks: Sequence[GridTask],
    setting: Setting,
    out: Path,
    mixtures: FrozenMixtures,
    utterances: Mapping[Item, str],
    workers: int,
    place: str,
) -> list[Cell]:
    """All tasks of an encoder under one condition. utterances: the name that noise knows a recording by."""
    condition, seed = setting.condition, mixtures.seed
    by_name = {f"{task.name}-{task.metric}": task for task in tasks}
    items = {name: dict.fromkeys(normalised(task.items)) for name, task in by_name.items()}
    files = []
    for name, task in by_name.items():
        noise = mixtures.made_from(condition, [utterances[item] for item in items[name]])
        listed = [[item.id, utterances[item], file_size(item.path)] for item in items[name]]
        made_from = hash_json([dict(task.card), task.metric, listed, setting.group, asdict(condition), noise, seed])
        path = out / "scores" / encoder / name / setting.file
        files.append(ResultFile(name, path, made_from, f"{encoder}, {task.name}, {setting.label}"))

    def encode(missing: Sequence[ResultFile]) -> Mapping[str, Encoded[str]]:
        encodings = {
            file.system: Encoding(lambda _, x, task=by_name[file.system]: task.encode(x), recordings=items[file.system].keys())  # type: ignore[misc]
            for file in missing
        }
        found = encode_recordings(
            dict.fromkeys(item for file in missing for item in items[file.system]),
            lambda item: read_audio(item.path),
            lambda samples, item: mixtures.apply(samples, condition, utterances[item]),
            encodings,
            workers,
            f"{encoder}, {setting.label} {place}",
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
