"""Plan a run of SUPERB: its encoders, the data of its tasks, and the audio of its conditions.

A part is a task, or a fold of it (er/fold-1). `make_plan` makes the plan from the options; with the
plan `freeze_audio` draws the noise of the test sets, and `load_benchmarked` loads an encoder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.artifacts import hash_json, read_json
from speechssl.audio import read_audio
from speechssl.augment import Distorter
from speechssl.checkpoints import model_folder
from speechssl.data.superb import DOCUMENTS, UtteranceSet, load_labelled, load_set
from speechssl.encoders.encoder import SpeechEncoder
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError
from speechssl.eval.conditions import (
    FrozenMixtures,
    Item,
    Setting,
    check_conditions,
    check_unseen,
    freeze_mixtures,
    list_noises,
    list_settings,
    name_utterances,
    read_trained_noises,
)
from speechssl.options import parse_named, parse_noise_folders
from speechssl.superb.data import FeatureCache, HeadSettings, Task, describe_encoder
from speechssl.superb.options import ORDER, QBE, Data, Superb
from speechssl.superb.tasks import TASKS
from speechssl.superb.tasks.classification import METRIC
from speechssl.superb.tasks.enhancement import check_installed
from speechssl.superb.train import TrainedHead
from speechssl.superb.tuning import UNTRAINABLE_TASKS, Tuning, make_tuning
from speechssl.timing import FrameGrid
from speechssl.units.features import load_extractor, make_unit_encoder
from speechssl.units.spectral import SPECTRAL, make_spectral_encoder

ALL = "all"
HOURS = 3.0  # hours of training speech; for less of it the preset `auto` means `small`
UNITS_OF = "units:"  # prefix of the units of an encoder, in the place of the encoder itself


@dataclass(frozen=True)
class TaskPart:
    """A part is a set that heads are trained on: a task, or one fold of it."""

    task: str
    label: str  # "ks", "er/fold-1"
    data: UtteranceSet
    preset: str  # "small" or "published": the settings of the head

    @property
    def items(self) -> list[Item]:
        """List the test recordings."""
        items = []
        for split in (DOCUMENTS, "test") if self.task == QBE else ("test",):
            items += [Item(u.id, self.data.path(u)) for u in self.data.splits[split]]
        return items

    def make(self, grid: FrameGrid) -> tuple[Task, HeadSettings]:
        """Make the task for an encoder of this grid, and return it with the settings of its head's
        training."""
        entry = TASKS[self.task]
        if self.preset == "small":
            return entry.make(self.data, grid, **entry.sizes), entry.small
        return entry.make(self.data, grid), entry.published


@dataclass(frozen=True)
class Plan:
    """A plan has everything that a run needs to know before it computes."""

    options: Superb
    encoders: Mapping[str, str]  # by name the folder, hub id or shipped name (WHERE)
    parts: Mapping[str, Sequence[TaskPart]]  # by task, in the order of SUPERB
    settings: Sequence[Setting]
    distorter: Distorter
    tuning: Tuning | None  # None for heads on clean speech and a frozen encoder


@dataclass(frozen=True)
class Benchmarked:
    """An encoder is benchmarked with the cache of its hidden states."""

    name: str  # in results, with the suffix of the tuning: "robust+distorted"
    cache: FeatureCache
    device: str  # of the heads
    tuning: Tuning | None = None

    @property
    def card(self) -> dict[str, Any]:
        """Return the card of the encoder, and of the tuning where heads are trained by it."""
        tuning = {"tuning": self.tuning.card} if self.tuning else {}
        return describe_encoder(self.cache.encoder) | tuning

    def find_encoder(self, head: TrainedHead, plan: Plan) -> SpeechEncoder:
        """Find the encoder that was trained with a head, or the frozen one of all heads."""
        sets = plan.options.sets
        if head.upstream is None:
            return self.cache.encoder
        return _load_cached(head.upstream, sets.precision, sets.device)


# one encoder is kept, because a head is evaluated in one condition after another
_load_cached = lru_cache(maxsize=1)(load_encoder)
HeadName = tuple[int, str]  # the seed, and "tuned" or "default" (a key of `superb.train.HEADS`)
Heads = Mapping[str, Mapping[HeadName, TrainedHead]]  # by the label of a part


@dataclass(frozen=True)
class ConditionAudio:
    """The audio of a setting is the test recordings with its distortion."""

    setting: Setting
    mixtures: FrozenMixtures | None  # None for clean speech
    names: Mapping[str, str]  # the names of `name_utterances` by absolute path

    def read(self, path: Path) -> np.ndarray:
        """Read samples (N,), float32 at 16 kHz. Raises InputError or ValueError where it cannot be
        read or distorted."""
        samples = read_audio(path)
        if self.mixtures is None:
            return samples
        name = self.names[os.path.abspath(path)]
        return self.mixtures.apply(samples, self.setting.condition, name)

    def hash(self, items: Sequence[Item]) -> str:
        """Hash the distortions of these recordings."""
        if self.mixtures is None:
            return "clean"
        names = [self.names[os.path.abspath(item.path)] for item in items]
        condition = self.setting.condition
        return hash_json([condition.text, self.mixtures.hash_mixtures(condition, names)])

    def find_snr_over(self, plan: Plan) -> str:
        """Find `Row.snr_over` of this setting: what the SNR is over, "" for clean speech."""
        if self.mixtures is None:
            return ""
        return str(plan.distorter.describe(self.setting.condition).get("snr_over", ""))


# ---- making a plan


def make_plan(o: Superb) -> Plan:
    """Make the plan of a run. Raises InputError for options that cannot be followed, as far as this
    is known before anything is computed."""
    encoders = name_encoders(o.encoders)
    if o.units:
        for name, where in list(encoders.items()):
            if where not in SPECTRAL:
                encoders[f"{name}-units"] = f"{UNITS_OF}{where}"
    parts = {}
    for task, folder in find_data(o.sets).items():
        parts[task] = list_parts(task, folder, o.sets.preset)
    if "se" in parts:
        check_installed()
    settings = list_settings(o.noise.seen, o.noise.unseen, o.noise.snr)
    distorter = Distorter(
        o.seed[0], o.noise.voices, parse_noise_folders(o.noise.noise), o.noise.snr_over
    )
    check_conditions(settings, distorter)
    tuning = make_tuning(o)
    trained_on = list_noises(tuning.card) if tuning else frozenset()
    untrainable = [task for task in parts if task in UNTRAINABLE_TASKS]
    for name, where in encoders.items():
        if where in SPECTRAL or where.startswith(UNITS_OF):
            untrainable.append(name)
    if tuning and untrainable:
        raise InputError(
            f"{', '.join(untrainable)} cannot be trained with --finetune or --distort; leave out "
            "these tasks and encoders, or both options"
        )
    for name, where in encoders.items():
        known_noises = read_trained_noises(where.removeprefix(UNITS_OF)) | trained_on
        check_unseen(name, known_noises, settings)
    return Plan(o, encoders, parts, settings, distorter, tuning)


def name_encoders(texts: Sequence[str]) -> dict[str, str]:
    """Return where each encoder is loaded from, by name. texts: NAME=WHERE, or WHERE alone, of
    which the name is made (`_name_of_path`). Raises InputError for names that cannot be folders, or
    that two encoders have."""
    named = [text if "=" in text else f"{_name_of_path(Path(text))}={text}" for text in texts]
    by_name = parse_named(named, "--encoders")
    for name in by_name:
        if name.startswith(".") or Path(name).name != name:
            raise InputError(f"--encoders {name}=... names no folder; give it a plain name")
    return by_name


def _name_of_path(path: Path) -> str:
    """Name an encoder after its path: exp/mine/encoder is mine, hubert.pt is hubert."""
    if path.name == "encoder" and path.parent.name:
        path = path.parent
    name = path.stem if path.suffix in (".pt", ".pth") else path.name
    return name.replace(":", "-")


def find_data(sets: Data) -> dict[str, Path]:
    """Find the folder of each task. Raises InputError for an unknown task, and for a folder that is
    missing or not given."""
    where: dict[str, str] = {}  # "" for a task whose folder is in --data
    for text in sets.tasks:
        task, _, folder = text.partition("=")
        where[task] = folder
        if task not in (*ORDER, ALL):
            raise InputError(f"there is no task {task!r}; choose from {', '.join(ORDER)}, or all")
    folders = {}
    left_out = []
    for task in ORDER:
        candidates = []
        if where.get(task):
            candidates = [Path(where[task])]
        elif sets.data and (task in where or ALL in where):
            other_names = TASKS[task].also_called if task != QBE else ()
            candidates = [sets.data / name for name in (task, *other_names)]
        existing = [folder for folder in candidates if folder.is_dir()]
        if existing:
            folders[task] = existing[0]
        else:
            left_out.append(task)
    missing = [task for task in where if task in left_out] or ([] if folders else ["any task"])
    if missing:
        raise InputError(
            f"there is no data for {missing[0]} in {where.get(missing[0]) or sets.data}; prepare "
            "it, and give --data the folder of all sets, or one set with TASK=FOLDER"
        )
    if ALL in where and left_out:
        names = ", ".join(left_out)
        tqdm.write(f"{sets.data} has no data for {names}; these are left out", file=sys.stderr)
    return folders


def list_parts(task: str, folder: Path, preset: str) -> list[TaskPart]:
    """List the parts of a task: the set in its folder, or the sets in fold-1, fold-2, ... there.
    preset: "auto", "small" or "published". Raises InputError where there is no set."""
    folds = [fold for fold in folder.glob("fold-*") if fold.is_dir()]
    folds.sort(key=lambda fold: int(fold.name.removeprefix("fold-")))
    set_folders = {f"{task}/{fold.name}": fold for fold in folds} or {task: folder}
    parts = []
    for label, set_folder in set_folders.items():
        data = _load_part(task, set_folder)
        part_preset = preset
        if preset == "auto":
            hours = sum(u.seconds for u in data.splits.get("train", ())) / 3600
            part_preset = "small" if hours < HOURS else "published"
        parts.append(TaskPart(task, label, data, part_preset))
    return parts


def _load_part(task: str, folder: Path) -> UtteranceSet:
    """Load the set in a folder, whose card may have another name of the task (`also_called`
    of its entry in TASKS)."""
    if task == QBE:
        return load_set(folder, task)
    entry = TASKS[task]
    card = folder / "card.json"
    name_in_card = read_json(card).get("task") if card.is_file() else task
    load = load_labelled if entry.metric == METRIC else load_set
    return load(folder, name_in_card if name_in_card in entry.also_called else task)


def freeze_audio(plan: Plan) -> list[ConditionAudio]:
    """Freeze the mixtures in noise.jsonl, and return the audio of every setting. Raises InputError
    where `freeze_mixtures` does."""
    o = plan.options
    items = [(task, part.items) for task, parts in plan.parts.items() for part in parts]
    utterances = name_utterances(items)
    mixtures = None
    if len(plan.settings) > 1:
        recordings = {name: item.path for item, name in utterances.items()}
        conditions = [setting.condition for setting in plan.settings]
        mixtures = freeze_mixtures(
            plan.distorter, recordings, conditions, o.out / "noise.jsonl", o.sets.workers
        )
    names = {str(item.path): name for item, name in utterances.items()}
    audio = []
    for setting in plan.settings:
        is_clean = setting.group == "clean"
        audio.append(ConditionAudio(setting, None if is_clean else mixtures, names))
    return audio


def load_benchmarked(name: str, plan: Plan) -> Benchmarked:
    """Load an encoder of the plan; its heads are trained on the same device."""
    o = plan.options
    sets = o.sets
    where = plan.encoders[name]
    device = sets.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    encoder = load_frozen(where, sets)
    cache = FeatureCache(encoder, o.out / "features" / name, o.cache_gb, sets.workers)
    if plan.tuning is None:
        return Benchmarked(name, cache, device)
    tuning = replace(plan.tuning, source=where)
    return Benchmarked(f"{name}{tuning.name}", cache, device, tuning)


def load_frozen(where: str, sets: Data) -> SpeechEncoder:
    """Load an encoder; or spectral features, by their name; or, for `units:MODELS`, an encoder
    whose features are one-hot vectors of the units of a model folder."""
    if where in SPECTRAL:
        return make_spectral_encoder(where)
    if where.startswith(UNITS_OF):
        folder = model_folder(where.removeprefix(UNITS_OF))
        codebook = folder / "units.safetensors"
        return make_unit_encoder(
            load_extractor(str(folder / "encoder"), codebook, sets.precision, sets.device)
        )
    return load_encoder(where, sets.precision, sets.device)
