"""List the conditions of the robustness grid and of SUPERB, and freeze their noise.

A condition is clean, seen (in the training of the encoders) or unseen. Mixtures are frozen before
the first encoder runs: their random numbers depend on the seed, the condition and the utterance
alone.
"""

from __future__ import annotations

import os
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
from speechssl.results import name_condition


@dataclass(frozen=True)
class Setting:
    """A setting is a condition and its group."""

    group: str  # clean, seen (in the training of the encoders) or unseen
    condition: Condition

    @property
    def name(self) -> str:
        """Return the name in `results.jsonl`, without the SNR: "clean", "unseen-kitchen"."""
        return "clean" if self.condition.name == "clean" else f"{self.group}-{self.condition.short}"

    @property
    def snr_db(self) -> float | None:
        """Return the SNR in dB; None where the condition has none."""
        return self.condition.snr_db

    @property
    def label(self) -> str:
        """Return the name with the SNR: "unseen-kitchen 5 dB"."""
        return name_condition(self.name, self.snr_db)

    @property
    def file(self) -> str:
        """Return the label as the name of a file: "unseen-kitchen-5-dB"."""
        return self.label.replace(" ", "-")


def list_settings(
    seen: Sequence[str], unseen: Sequence[str], snrs: Sequence[float]
) -> list[Setting]:
    """List the settings: clean speech, then the conditions seen and unseen. A condition that needs
    an SNR and has none of its own is taken at each of `snrs` (dB)."""
    settings = [Setting("clean", Condition("clean"))]
    for group, texts in (("seen", seen), ("unseen", unseen)):
        for text in texts:
            settings += [Setting(group, condition) for condition in _expand_snrs(text, snrs)]
    return settings


def _expand_snrs(text: str, snrs: Sequence[float]) -> list[Condition]:
    """Parse a condition; where its noise lacks an SNR, return that condition at each of `snrs`."""
    try:
        return [parse_condition(text)]
    except InputError:
        # the number of pink@500 is the fault; the @ of a@b/bus.wav belongs to its name
        if not snrs or _is_number(text.rpartition("@")[2]):
            raise
        return [parse_condition(f"{text}@{snr:g}") for snr in snrs]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_trained_noises(where: str | Path) -> frozenset[str]:
    """Read from the card of an encoder the noises that it was trained on; none where it has no
    card of this project.

    where: the encoder or the folder of its models, as `load_encoder` takes it.
    """
    for folder in (Path(where), SHIPPED / where):
        for path in (folder / "encoder/card.json", folder / "card.json"):
            if path.is_file():
                return list_noises(read_json(path).get("options") or {})
    return frozenset()


def list_noises(options: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the noises in the options of a training, as its card has them:
    {"distort": {"kinds": [{"name": ..., "set": ...}, ...]}}."""
    distort = options.get("distort")
    kinds = distort.get("kinds", []) if isinstance(distort, dict) else []
    noises: set[str] = set()
    for kind in kinds:
        noises.update(kind[key] for key in ("name", "set") if key in kind)
    return frozenset(noises)


def check_unseen(encoder: str, noises: frozenset[str], settings: Iterable[Setting]) -> None:
    """Raise InputError where a noise of the group unseen was in the training of an encoder. noises:
    those of the training."""
    for setting in settings:
        if setting.group != "unseen":
            continue
        steps = setting.condition.steps or (setting.condition,)
        names = {name for step in steps for name in step.short.split("+")}
        seen = noises & names
        if seen:
            raise InputError(
                f"{encoder} was trained on the noise {min(seen)}, according to its card; give it "
                "with --seen instead of --unseen"
            )


def check_conditions(conditions: Sequence[Any], distorter: Distorter) -> None:
    """Raise InputError, before a long run, for two conditions of the same name and for noise that
    does not exist. conditions: `Condition` or `Setting`."""
    labels = Counter(condition.label for condition in conditions)
    for condition_or_setting in conditions:
        label = condition_or_setting.label
        if labels[label] > 1:
            raise InputError(
                f"two conditions have the name {label!r}; rename a noise file, or evaluate "
                "them separately into two folders"
            )
        condition = getattr(condition_or_setting, "condition", condition_or_setting)
        if condition.name != "clean":
            distorter.check(condition)


# ---- names of recordings, which decide their noise


class Item(NamedTuple):
    """An item is one recording of a test set, with its id in the task."""

    id: str
    path: Path


def normalise_paths(items: Iterable[Item]) -> list[Item]:
    """Make paths absolute, so that two tasks have equal items for one recording."""
    return [Item(name, Path(os.path.abspath(path))) for name, path in items]


def name_utterances(tasks: Iterable[tuple[str, Sequence[Item]]]) -> dict[Item, str]:
    """Return the names by which frozen noise identifies recordings: their ids, or `<task>/<id>`
    where different recordings have the same id.

    tasks: names and items. The items of the result have absolute paths.
    """
    owners: dict[Item, str] = {}  # the task of a recording; of several the first in the alphabet
    for task, items in tasks:
        for item in normalise_paths(items):
            owners[item] = min(owners.get(item, task), task)
    paths: dict[str, set[Path]] = {}
    for item in owners:
        paths.setdefault(item.id, set()).add(item.path)
    names = {}
    for item, task in owners.items():
        names[item] = item.id if len(paths[item.id]) == 1 else f"{task}/{item.id}"
    return names


def measure_file_size(path: Path) -> int:
    """Measure the size of a file in bytes; -1 for a missing file, which `encode` reports later."""
    return path.stat().st_size if path.is_file() else -1


# ---- frozen mixtures


class FrozenMixtures(FrozenDistorter):
    """The manifest noise.jsonl has the mixture of every recording under every condition."""

    def hash_mixtures(self, condition: Condition, utterances: Sequence[str]) -> str:
        """Hash the mixtures of these utterances. As the hash leaves out all others, earlier results
        stay valid where the manifest grows."""
        rows = [self._rows.get((utterance, condition.text)) for utterance in utterances]
        return hash_json([hash_json(row) if row else "" for row in rows])


def freeze_mixtures(
    distorter: Distorter,
    recordings: Mapping[str, Path],
    conditions: Sequence[Condition],
    path: Path,
    workers: int,
) -> FrozenMixtures:
    """Load the mixtures of recordings under conditions from the manifest `path`; write it first
    where it is missing or was made from other inputs. recordings: paths by the names of
    `name_utterances`.

    Recordings that cannot be read are left out; `encode` reports them. Raises InputError for noise
    that is missing, cannot be read, or has changed since it was frozen.
    """
    card = path.with_suffix(".card.json")
    files = [[name, measure_file_size(file)] for name, file in recordings.items()]
    noise = [[c.text, [list(source) for source in distorter.list_sources(c)]] for c in conditions]
    made_from = hash_json([files, noise, distorter.seed])
    has_manifest = path.is_file() and card.is_file()
    if not has_manifest or read_json(card)["made_from"] != made_from:
        card.unlink(missing_ok=True)  # no card stands beside a manifest that is being written
        freeze(conditions, count_samples(recordings, workers), distorter, path)
        facts = {"what": "frozen noise", "made_from": made_from, "hash": hash_files([path])}
        write_json(card, facts | {"seed": distorter.seed})
    frozen = FrozenMixtures(path)
    for condition in conditions:
        frozen.check(condition)
    return frozen


def count_samples(recordings: Mapping[str, Path], workers: int) -> dict[str, int]:
    """Count the samples at 16 kHz of every recording that can be read."""
    samples = {}
    with ThreadPoolExecutor(workers) as pool:
        lengths = pool.map(_count_samples_of, recordings.values())
        progress = tqdm(lengths, "freezing noise", len(recordings), unit="file")
        for name, length in zip(recordings, progress, strict=True):
            if length is not None:
                samples[name] = length
    return samples


def _count_samples_of(file: Path) -> int | None:
    """Return the number of samples of a recording; None where it cannot be read."""
    try:
        return len(read_audio(file))
    except (InputError, ValueError):
        return None
