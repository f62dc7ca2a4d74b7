"""Plan a run of SUPERB: encoders, data of tasks, parts, and audio of the conditions.

A part is a task, or a fold of it (er/fold-1). `make_plan` reads the options, `list_parts` the sets,
`freeze_audio` draws the noise of the test sets, `load_benchmarked` loads an encoder.
"""

from __future__ import annotations

import os
import re
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
    list_settings,
    name_utterances,
    noises_in,
    trained_noises,
)
from speechssl.options import noise_folders
from speechssl.superb.data import FeatureCache, HeadSettings, Task, encoder_card
from speechssl.superb.options import Data, Superb
from speechssl.superb.tasks import ORDER, QBE, TASKS
from speechssl.superb.tasks.classification import METRIC
from speechssl.superb.tasks.enhancement import check_installed
from speechssl.superb.train import TrainedHead
from speechssl.superb.tuning import NO_HEADS, Tuning, make_tuning
from speechssl.timing import FrameGrid
from speechssl.units.features import load_extractor, unit_encoder
from speechssl.units.spectral import SPECTRAL, spectral_encoder

ALL = "all"
HOURS = 3.0  # of training speech: the preset `auto` is `small` below it


@dataclass(frozen=True)
class TaskPart:
    """A part is a set that heads are trained on: a task, or one fold of it. label: "ks",
    "er/fold-1"."""

    task: str
    label: str
    data: UtteranceSet
    preset: str

    @property
    def items(self) -> list[Item]:
        splits = (DOCUMENTS, "test") if self.task == QBE else ("test",)
        return [Item(u.id, self.data.path(u)) for split in splits for u in self.data.splits[split]]

    def make(self, grid: FrameGrid) -> tuple[Task, HeadSettings]:
        """Make the task with a head for an encoder of this grid, and how the head is trained."""
        entry = TASKS[self.task]
        if self.preset == "small":
            return entry.make(self.data, grid, **entry.sizes), entry.small
        return entry.make(self.data, grid), entry.published


@dataclass(frozen=True)
class Plan:
    """A plan says what a run does. encoders: name -> where; parts: of each task, in order; tuning:
    how heads are trained on distorted speech, or with their upstream; None: on clean speech, with a
    frozen one."""

    options: Superb
    encoders: Mapping[str, str]
    parts: Mapping[str, Sequence[TaskPart]]
    settings: Sequence[Setting]
    distorter: Distorter
    tuning: Tuning | None


@dataclass(frozen=True)
class Benchmarked:
    """An encoder is benchmarked as the results name it, with what the tuning adds to its name:
    "robust+distorted"."""

    name: str
    cache: FeatureCache
    device: str  # of the heads
    tuning: Tuning | None = None

    @property
    def card(self) -> dict[str, Any]:
        """Return the card of what heads are trained on, or with."""
        tuning = {"tuning": self.tuning.card} if self.tuning else {}
        return encoder_card(self.cache.encoder) | tuning

    def encoder_of(self, head: TrainedHead, plan: Plan) -> SpeechEncoder:
        """Return the encoder that was trained with a head, or the frozen one."""
        sets = plan.options.sets
        if head.upstream is None:
            return self.cache.encoder
        return _loaded(head.upstream, sets.precision, sets.device)


UNITS_OF = "units:"  # WHERE of an encoder's units
_loaded = lru_cache(maxsize=1)(load_encoder)  # a head is evaluated in one condition after another
HeadName = tuple[int, str]  # the seed, and "tuned" or "default": of the task's own learning rate
Heads = Mapping[str, Mapping[HeadName, TrainedHead]]  # by the label of a part


@dataclass(frozen=True)
class ConditionAudio:
    """Test recordings are heard under a setting. names: what frozen noise knows a recording by, by
    its path."""

    setting: Setting
    mixtures: FrozenMixtures | None  # None: clean speech
    names: Mapping[str, str]

    def read(self, path: Path) -> np.ndarray:
        """Read samples (N,), float32 at 16 kHz. Raises InputError or ValueError where it cannot be
        read or distorted."""
        samples = read_audio(path)
        if self.mixtures is None:
            return samples
        name = self.names[os.path.abspath(path)]
        return self.mixtures.apply(samples, self.setting.condition, name)

    def hash(self, items: Sequence[Item]) -> str:
        """Return the hash of what is done to these recordings."""
        if self.mixtures is None:
            return "clean"
        names = [self.names[os.path.abspath(item.path)] for item in items]
        condition = self.setting.condition
        return hash_json([condition.text, self.mixtures.made_from(condition, names)])

    def snr_over(self, plan: Plan) -> str:
        """Return what the SNR is over, as rows have it."""
        if self.mixtures is None:
            return ""
        return str(plan.distorter.card(self.setting.condition).get("snr_over", ""))


# ---- making them


def make_plan(o: Superb) -> Plan:
    """Make the plan. Raises InputError for options that cannot be followed, as far as that can be
    known before anything is computed."""
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
    distorter = Distorter(o.seed[0], o.noise.voices, noise_folders(o.noise.noise), o.noise.snr_over)
    check_conditions(settings, distorter)
    tuning = make_tuning(o)
    trained_on = noises_in(tuning.card) if tuning else frozenset()
    left = [task for task in parts if task in NO_HEADS]
    left += [name for name, where in encoders.items() if is_fixed(where)]
    if tuning and left:
        raise InputError(
            f"{', '.join(left)} cannot be trained with --finetune or --distort; leave out these "
            "tasks and encoders, or both options"
        )
    for name, where in encoders.items():
        learned = trained_noises(where.removeprefix(UNITS_OF))
        check_unseen(name, learned | trained_on, settings)
    return Plan(o, encoders, parts, settings, distorter, tuning)


def is_fixed(where: str) -> bool:
    """Tell units and spectral features, which cannot be trained, from encoders."""
    return where in SPECTRAL or where.startswith(UNITS_OF)


def name_encoders(texts: Sequence[str]) -> dict[str, str]:
    """Name encoders by `NAME=WHERE`, or WHERE alone, whose last part is the name (exp/mine/encoder
    is mine, hubert.pt is hubert). Raises InputError for names that cannot be folders."""
    by_name: dict[str, str] = {}
    for text in texts:
        name, equals, where = text.partition("=")
        if not equals:
            where, path = text, Path(text)
            path = path.parent if path.name == "encoder" and path.parent.name else path
            name = (path.stem if path.suffix in (".pt", ".pth") else path.name).replace(":", "-")
        if not re.fullmatch(r"[^./\\][^/\\]*", name) or not where or name in by_name:
            raise InputError(
                f"--encoders {text} has no name of its own that can be a folder's; write NAME=WHERE"
            )
        by_name[name] = where
    return by_name


def find_data(sets: Data) -> dict[str, Path]:
    """Find the data: task -> folder. Raises InputError for an unknown task, and for folders that
    are not there or not given."""
    given = dict(text.split("=", 1) for text in sets.tasks if "=" in text)
    named = [text for text in sets.tasks if "=" not in text]
    unknown = [task for task in (*given, *named) if task not in (*ORDER, ALL)]
    if unknown:
        raise InputError(f"there is no task {unknown[0]!r}; choose from {', '.join(ORDER)}, or all")
    found = {}
    for task in ORDER:
        places = []
        if task in given:
            places = [Path(given[task])]
        elif sets.data and (task in named or ALL in named):
            folders = TASKS[task].folders if task != QBE else ()
            places = [sets.data / name for name in (task, *folders)]
        present = [place for place in places if place.is_dir()]
        if present:
            found[task] = present[0]
    missing = [task for task in (*given, *named) if task not in (*found, ALL)]
    if missing or not found:
        task = missing[0] if missing else "any task"
        raise InputError(
            f"there is no data for {task} in {given.get(task, sets.data)}; prepare it, and give "
            "--data the folder of all sets, or one set with TASK=FOLDER"
        )
    left = [task for task in ORDER if ALL in named and task not in found]
    if left:
        without = f"{sets.data} has no data for {', '.join(left)}"
        tqdm.write(f"{without}; these are left out", file=sys.stderr)
    return found


def list_parts(task: str, folder: Path, preset: str) -> list[TaskPart]:
    """Return the set in a folder, or its folds. Raises InputError where there is none."""
    folds = [fold for fold in folder.glob("fold-*") if fold.is_dir()]
    folds.sort(key=lambda fold: int(fold.name.removeprefix("fold-")))
    folders = {f"{task}/{fold.name}": fold for fold in folds} or {task: folder}
    parts = []
    for label, where in folders.items():
        card = where / "card.json"
        if task == QBE:
            data = load_set(where, task)
        else:
            entry = TASKS[task]
            own = read_json(card).get("task") if card.is_file() else task
            load = load_labelled if entry.metric == METRIC else load_set
            data = load(where, own if own in entry.folders else task)
        hours = sum(u.seconds for u in data.splits.get("train", ())) / 3600
        usual = "small" if hours < HOURS else "published"
        parts.append(TaskPart(task, label, data, usual if preset == "auto" else preset))
    return parts


def freeze_audio(plan: Plan) -> list[ConditionAudio]:
    """Return the test recordings under every setting, mixtures frozen in noise.jsonl. Raises
    InputError as `freeze_mixtures`."""
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
        of_setting = None if setting.group == "clean" else mixtures
        audio.append(ConditionAudio(setting, of_setting, names))
    return audio


def load_benchmarked(name: str, plan: Plan) -> Benchmarked:
    """Load an encoder. Heads are trained where it is."""
    o, sets, where = plan.options, plan.options.sets, plan.encoders[name]
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
    """Load an encoder, the spectral features that are called so, or `units:MODELS`: one-hot vectors
    of the units of a model folder."""
    if where in SPECTRAL:
        return spectral_encoder(where)
    if where.startswith(UNITS_OF):
        folder = model_folder(where.removeprefix(UNITS_OF))
        codebook = folder / "units.safetensors"
        return unit_encoder(
            load_extractor(str(folder / "encoder"), codebook, sets.precision, sets.device)
        )
    return load_encoder(where, sets.precision, sets.device)
