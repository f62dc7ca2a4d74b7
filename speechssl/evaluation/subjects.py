"""Encoders that are put to the test, and how each task of the grid is made ready for one: task name -> function.

A function gets an encoder, the task's data and a folder that is its own; it trains there what is missing, on clean speech, and
returns what is to be scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from speechssl.adam import PLAIN
from speechssl.artefacts import read_json
from speechssl.asr.train import CtcOptions, train_ctc
from speechssl.corpora.records import first_passages, load_corpus
from speechssl.corpora.utterances import load_labelled
from speechssl.encoders.loading import load_encoder
from speechssl.errors import InputError
from speechssl.evaluation.grid import Setting
from speechssl.evaluation.grid_tasks import Limited, qa_tasks, units_task
from speechssl.shipped import SHIPPED
from speechssl.superb.classify import ClassifierOptions, train_classifier
from speechssl.superb.tasks import TrainedTask
from speechssl.superb.trained import check_split, load_classification, load_recognition
from speechssl.systems import SharedEncoder, System, load_systems, shared_encoder
from speechssl.training import TrainingOptions
from speechssl.units.extract import extractor_of
from speechssl.units.kmeans import load_codebook

TEST = "test"  # the split that everything is judged on, where nothing else is asked for


@dataclass(frozen=True)
class Subject:
    """models: its folder of models (`systems`), None for an encoder alone. heard: noises it was trained on."""

    name: str
    encoder: SharedEncoder
    models: Path | None
    heard: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Setup:
    """How the tasks are made ready, and how much of the data they are judged on is used (None: all)."""

    split: str = TEST  # that tasks are judged on; heads are trained on train, whichever it is
    passages: int | None = None  # the first so many, of spoken QA
    recordings: int | None = None  # of every other task, drawn by the seed
    seed: int = 0  # of noise, heads, draws of recordings and bootstrap
    workers: int = 2  # threads
    classifier: ClassifierOptions = ClassifierOptions()
    asr: CtcOptions = CtcOptions(TrainingOptions(steps=1500, learning_rate=2e-3, warmup_steps=100, **vars(PLAIN)), layer=None)
    bf16: bool = False  # the text encoders of spoken QA read in bfloat16


class Maker(Protocol):
    """Makes a task ready for an encoder."""

    def __call__(self, subject: Subject, data: Path, out: Path, setup: Setup) -> list[TrainedTask]: ...


def load_subject(name: str, where: str) -> Subject:
    """where: a folder of models or the name of a shipped one, else what `load_encoder` takes. Raises InputError as these do."""
    for folder in (Path(where), SHIPPED / where):
        if (folder / "encoder").is_dir():
            return Subject(name, shared_encoder(folder), folder, heard_by(folder / "encoder"))
    return Subject(name, SharedEncoder(load_encoder(where)), None, heard_by(Path(where)) | heard_by(SHIPPED / where))


def heard_by(folder: Path) -> frozenset[str]:
    """What the card of an encoder calls the noises it was trained on; none where it has no card of ours."""
    card = read_json(folder / "card.json") if (folder / "card.json").is_file() else {}
    options = card.get("options") if isinstance(card, dict) else None
    return names_in(options) if isinstance(options, dict) else frozenset()


def names_in(options: Mapping[str, Any]) -> frozenset[str]:
    """What the options of a training call the noises in it."""
    distort = options.get("distort")
    kinds = distort.get("kinds", []) if isinstance(distort, dict) else []
    return frozenset(kind[key] for kind in kinds for key in ("name", "set") if key in kind)


def limited(task: TrainedTask, setup: Setup) -> TrainedTask:
    """The task on as many recordings as are to be heard."""
    return task if setup.recordings is None else Limited(task, setup.recordings, setup.seed)


def _classification(name: str, subject: Subject, data: Path, out: Path, setup: Setup) -> list[TrainedTask]:
    """data: a labelled set of this task. The head's learning rate is chosen on clean speech of its dev split."""
    labelled = load_labelled(data)
    if labelled.task != name:
        raise InputError(f"{data} is a set of the task {labelled.task}, not of {name}; name the set of {name}")
    check_split(labelled, setup.split)
    options, encoder = replace(setup.classifier, seed=setup.seed), subject.encoder
    train_classifier(labelled, encoder, out, options, workers=setup.workers)  # type: ignore[arg-type]
    return [limited(load_classification(out, data, encoder, setup.split), setup)]  # type: ignore[arg-type]


def _asr(subject: Subject, data: Path, out: Path, setup: Setup) -> list[TrainedTask]:
    """data: a prepared corpus of questions, whose words have times in the training data. A `ctc` among the models is judged."""
    if subject.models and (subject.models / "ctc").is_dir():
        return [limited(load_recognition(subject.models / "ctc", data, subject.encoder, setup.split), setup)]  # type: ignore[arg-type]
    options, encoder = replace(setup.asr, training=replace(setup.asr.training, seed=setup.seed)), subject.encoder
    train_ctc(data, encoder, out, options)  # type: ignore[arg-type]
    return [limited(load_recognition(out, data, encoder, setup.split), setup)]  # type: ignore[arg-type]


def _units(subject: Subject, data: Path, out: Path, setup: Setup) -> list[TrainedTask]:
    """data: a prepared corpus, a manifest, a folder or a file; no labels are needed."""
    book = load_codebook(_models(subject, "units") / "units.safetensors")
    split = setup.split if any(data.glob("*/passages.jsonl")) else None
    out = out if setup.split == TEST else out.with_name(f"{out.name}-{setup.split}")  # units of clean speech are kept there
    extractor = extractor_of(subject.encoder, book)  # type: ignore[arg-type]
    return [units_task(extractor, data, out, split, setup.recordings, setup.seed, setup.workers)]


def _qa(system: str) -> Maker:
    def make(subject: Subject, data: Path, out: Path, setup: Setup) -> list[TrainedTask]:
        """data: a prepared corpus of questions."""
        corpus = first_passages(load_corpus(data, setup.split), setup.passages)
        return qa_tasks(_system(subject, system, setup.bf16), corpus)

    return make


def _system(subject: Subject, name: str, bf16: bool) -> System:
    return load_systems(_models(subject, name), [name], bf16, subject.encoder)[0]


def _models(subject: Subject, task: str) -> Path:
    """Raises InputError for an encoder alone."""
    if subject.models is None:
        needs = f"give a folder with {NEEDS[task]} in it"
        raise InputError(f"the encoder {subject.name} comes alone, and the task {task} needs more; {needs}")
    return subject.models


def check_subject(subject: Subject, tasks: Iterable[str], settings: Iterable[Setting] = ()) -> None:
    """Call it before anything is trained.

    Raises InputError where a task needs a folder of models and the encoder comes alone, and for unseen noise it was trained on.
    """
    for task in tasks:
        if task in NEEDS:
            _models(subject, task)
    check_unseen(subject.name, subject.heard, settings)


def check_unseen(encoder: str, heard: frozenset[str], settings: Iterable[Setting]) -> None:
    """Raises InputError where noise is called unseen that an encoder was trained on. heard: the noises that its card names."""
    for condition in [s.condition for s in settings if s.group == "unseen"]:
        if known := heard & {name for step in (condition.steps or (condition,)) for name in step.short.split("+")}:
            raise InputError(
                f"{encoder} was trained on the noise {min(known)}, as its card says; name it with --seen instead of --unseen"
            )


NEEDS = {  # of a folder of models
    "units": "encoder/ and units.safetensors",
    "dual": "encoder/, units.safetensors and dual/",
    "cascade-ctc": "encoder/, ctc/ and text-qa/",
    "speechbert": "encoder/, speechbert/ and ctc/",
}
MAKERS: Mapping[str, Maker] = {
    **{name: partial(_classification, name) for name in ("ks", "ic", "sid", "style")},
    "asr": _asr,
    "units": _units,
    "dual": _qa("dual"),
    "cascade-ctc": _qa("cascade-ctc"),
    "speechbert": _qa("speechbert"),
}
