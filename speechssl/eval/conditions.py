"""Conditions of the robustness grid and of SUPERB: seen in training by their encoders, or not; and
their mixtures, frozen before the first encoder runs, so that what is random about one depends on
the seed, the condition and the utterance alone.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from speechssl.artifacts import hash_files, hash_json, read_json, write_json
from speechssl.audio import read_audio
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.augment.conditions import FrozenDistorter, freeze
from speechssl.checkpoints import SHIPPED
from speechssl.errors import InputError
from speechssl.results import condition_name


@dataclass(frozen=True)
class Setting:
    """A setting is a condition and what the encoders know of it. group: clean, seen (in training)
    or unseen."""

    group: str
    condition: Condition

    @property
    def name(self) -> str:
        """Return the name in `results.jsonl`, where the SNR is apart: "clean", "seen-m+g+r"."""
        return "clean" if self.condition.name == "clean" else f"{self.group}-{self.condition.short}"

    @property
    def snr_db(self) -> float | None:
        return self.condition.snr_db

    @property
    def label(self) -> str:
        return condition_name(self.name, self.snr_db)

    @property
    def file(self) -> str:
        return self.label.replace(" ", "-").replace("/", "-")


def list_settings(
    seen: Sequence[str], unseen: Sequence[str], snrs: Sequence[float]
) -> list[Setting]:
    """Return the settings: clean speech, then these conditions, each at every SNR (dB) where it
    needs one and has none of its own."""
    settings = [Setting("clean", Condition("clean"))]
    for group, texts in (("seen", seen), ("unseen", unseen)):
        for text in texts:
            settings += [Setting(group, condition) for condition in _with_snrs(text, snrs)]
    return settings


def _with_snrs(text: str, snrs: Sequence[float]) -> list[Condition]:
    """Return the condition of a text, or one at every SNR where the text lacks it."""
    try:
        return [parse_condition(text)]
    except InputError:
        last_step = text.rpartition("+")[2]
        has_number = re.search(r"@[^/@]+$", last_step)  # then that is wrong
        if has_number or not snrs:
            raise
        return [parse_condition(f"{text}@{snr:g}") for snr in snrs]


def trained_noises(where: str | Path) -> frozenset[str]:
    """Read from the card of an encoder which noises it was trained on; none where it has no card of
    ours.

    where: the encoder or the folder of models that it lies in, as `load_encoder` takes it.
    """
    for folder in (Path(where), SHIPPED / where):
        for path in (folder / "encoder/card.json", folder / "card.json"):
            if path.is_file():
                return noises_in(read_json(path).get("options") or {})
    return frozenset()


def noises_in(options: Mapping[str, Any]) -> frozenset[str]:
    """Return what the options of a training call the noises in it."""
    distort = options.get("distort")
    kinds = distort.get("kinds", []) if isinstance(distort, dict) else []
    return frozenset(kind[key] for kind in kinds for key in ("name", "set") if key in kind)


def check_unseen(encoder: str, noises: frozenset[str], settings: Iterable[Setting]) -> None:
    """Raise InputError where noise is called unseen that an encoder was trained on. noises: those
    that its card names."""
    for setting in settings:
        steps = setting.condition.steps or (setting.condition,)
        seen = noises & {name for step in steps for name in step.short.split("+")}
        if setting.group == "unseen" and seen:
            raise InputError(
                f"{encoder} was trained on the noise {min(seen)}, according to its card; give it "
                "with --seen instead of --unseen"
            )


def check_conditions(conditions: Sequence[Any], distorter: Distorter) -> None:
    """Raise InputError for conditions of one name and for noise that cannot be had; call it before
    a long run.

    conditions: or settings.
    """
    labels = Counter(one.label for one in conditions)
    for one in conditions:
        if labels[one.label] > 1:
            raise InputError(
                f"two conditions have the name {one.label!r}; rename a noise file, or evaluate "
                "them separately into two folders"
            )
        condition = getattr(one, "condition", one)
        if condition.name != "clean":
            distorter.check(condition)


# ---- recordings, and what noise knows them by


class Item(NamedTuple):
    """An item is one test recording. id: what the random part of a distortion depends on."""

    id: str
    path: Path


def normalise_paths(items: Iterable[Item]) -> list[Item]:
    """Make paths absolute: two tasks may write that of one recording in two ways."""
    return [Item(name, Path(os.path.abspath(path))) for name, path in items]


def name_utterances(tasks: Iterable[tuple[str, Sequence[Item]]]) -> dict[Item, str]:
    """Name recordings for noise: by id; `<task>/<id>` where the tasks give one id to different
    recordings.

    tasks: their names and items. The paths of the keys are absolute.
    """
    owners: dict[Item, str] = {}
    for task, items in tasks:
        for item in normalise_paths(items):
            owners[item] = min(owners.get(item, task), task)
    paths: dict[str, set[Path]] = {}
    for item in owners:
        paths.setdefault(item.id, set()).add(item.path)
    return {
        item: item.id if len(paths[item.id]) == 1 else f"{task}/{item.id}"
        for item, task in owners.items()
    }


def file_size(path: Path) -> int:
    """Return the size in bytes; -1 for a file that is not there, which is reported when it is to be
    encoded."""
    return path.stat().st_size if path.is_file() else -1


# ---- frozen mixtures


class FrozenMixtures(FrozenDistorter):
    """Mixtures are made as a manifest says, by the names of recordings."""

    def made_from(self, condition: Condition, utterances: Sequence[str]) -> str:
        """Return what decides the mixtures of these utterances alone: a manifest that has grown
        leaves earlier results as they are."""
        rows = [self._rows.get((utterance, condition.text)) for utterance in utterances]
        return hash_json([hash_json(row) if row else "" for row in rows])


def freeze_mixtures(
    distorter: Distorter,
    recordings: Mapping[str, Path],
    conditions: Sequence[Condition],
    path: Path,
    workers: int = 2,
) -> FrozenMixtures:
    """Write the manifest where it is not there or was made from other inputs. recordings: by the
    name that noise knows them by.

    Recordings that cannot be read are left out, and reported when they are to be encoded. Raises
    InputError for noise that cannot be had, for noise that has changed since it was frozen, and
    where no recording can be read.
    """
    card = path.with_suffix(".card.json")
    files = [[name, file_size(file)] for name, file in recordings.items()]
    noise = [[c.text, [list(source) for source in distorter.sources(c)]] for c in conditions]
    made_from = hash_json([files, noise, distorter.seed])
    if not (path.is_file() and card.is_file() and read_json(card)["made_from"] == made_from):
        card.unlink(missing_ok=True)  # of another manifest
        freeze(conditions, measure_lengths(recordings, workers), distorter, path)
        facts = {"what": "frozen noise", "made_from": made_from, "hash": hash_files([path])}
        write_json(card, facts | {"seed": distorter.seed})
    frozen = FrozenMixtures(path)
    for condition in conditions:
        frozen.check(condition)
    return frozen


def measure_lengths(recordings: Mapping[str, Path], workers: int) -> dict[str, int]:
    """Measure the samples at 16 kHz of every recording that can be read. Raises InputError where
    none can."""

    def measure(file: Path) -> int | Exception:
        try:
            return len(read_audio(file))
        except (InputError, ValueError) as error:
            return error

    lengths: dict[str, int] = {}
    why: Any = "there are none"
    with ThreadPoolExecutor(workers) as pool:
        measured = pool.map(measure, recordings.values())
        bar = tqdm(measured, "freezing noise", len(recordings), unit="file")
        for name, length in zip(recordings, bar, strict=True):
            if isinstance(length, int):
                lengths[name] = length
            else:
                why = length
    if not lengths:
        raise InputError(f"none of the {len(recordings)} recordings can be read ({why}); fix them")
    return lengths
