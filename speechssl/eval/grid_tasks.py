"""Encoders that are put to the test, and how each task of the grid is made ready for one: task name -> function.

A function gets an encoder, the task's data and a folder that is its own; it trains there what is missing, on clean speech, and
returns what is to be scored.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from rapidfuzz.distance import Levenshtein

from speechssl.cascade.train import CtcOptions, train_ctc
from speechssl.data.records import Corpus, Passage, Question, data_hash, first_passages, load_corpus
from speechssl.data.sources import Recording, list_recordings, source_card
from speechssl.data.utterances import load_labelled
from speechssl.data.voices import voices_of
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError, tell_set_aside
from speechssl.eval.grid import Setting, first_items
from speechssl.eval.spoken_qa import answered, asked_passages, score_questions, word_errors
from speechssl.io import SHIPPED, hash_json, read_json
from speechssl.superb.tasks.classification import ClassifierOptions, train_classifier
from speechssl.superb.trained import Item, Scored, TrainedTask, check_split, load_classification, load_recognition
from speechssl.systems import SharedEncoder, System, load_systems, shared_encoder
from speechssl.timing import RunLength
from speechssl.trainer import PLAIN, TrainingOptions
from speechssl.units.corpus import SHARD, LocalEngine, ShardMaker, extract_corpus
from speechssl.units.extract import UnitExtractor, extractor_of
from speechssl.units.kmeans import load_codebook
from speechssl.units.storage import load_units

# What exists already, as tasks of the grid: the stability of units, and question answering by DUAL and by the cascade.


@dataclass(frozen=True, eq=False)
class UnitsTask:
    """How far the units of distorted speech are from those of clean speech, of the same encoder and codebook.

    A recording adds the edits between the run-length units of the two, over the units of clean speech (arXiv 2209.15483): clean
    speech has no error by definition, and a recording that could not be heard has every unit missing.
    """

    extractor: UnitExtractor
    recordings: Sequence[Recording]
    clean: Mapping[str, RunLength]  # of those that gave units
    voices: Mapping[str, str] = field(default_factory=dict)  # by recording: who speaks, where training did not know them
    name: str = "units"
    metric: str = "unit_error"

    unit = "recording"

    @cached_property
    def card(self) -> Mapping[str, Any]:
        units = [[i, self.clean[i].units.tolist()] for i in sorted(self.clean)]
        return {"task": self.name, **self.extractor.card, "clean": hash_json(units)}

    def items(self) -> Sequence[Item]:
        return [Item(r.id, r.path) for r in self.recordings if r.id in self.clean]

    def hear(self, samples: np.ndarray) -> RunLength:
        """(N,) float32 at 16 kHz."""
        return self.extractor.units(samples)

    def score(self, heard: Mapping[str, RunLength]) -> list[Scored]:
        found = {item.id: heard[item.id].units.tolist() if item.id in heard else [] for item in self.items()}
        return [
            Scored(i, i, Levenshtein.distance(self.clean[i].units.tolist(), units), len(self.clean[i]), self.voices.get(i, ""))
            for i, units in found.items()
        ]


def units_task(
    extractor: UnitExtractor,
    source: Path,
    out: Path,
    split: str | None,
    count: int | None = None,
    seed: int = 0,
    workers: int | None = None,
) -> UnitsTask:
    """Units of a corpus (with its split), a manifest, a folder or a file. Those of clean speech go into `out`, and stay there.

    count: so many recordings, drawn by the seed; None: all. Raises InputError as `list_recordings` and `extract_corpus` do.
    """
    every = {r.id: r for r in list_recordings(source, split)}
    recordings = [every[i.id] for i in first_items([Item(r.id, r.path) for r in every.values()], count, seed)]
    maker = ShardMaker(extractor, out, SHARD)
    made = extract_corpus(maker, recordings, LocalEngine(workers), {"drawn": [count, seed]} | source_card(source, split, None))
    tell_set_aside(made.failed, "units of clean speech")
    return UnitsTask(extractor, recordings, load_units(out), {} if split is None else voices_of(load_corpus(source, split)))


@dataclass(eq=False)
class HeardOnce:
    """A system that remembers, in every thread, what it last heard: its answers and its transcripts are scored as two tasks."""

    system: System
    last: threading.local = field(default_factory=threading.local)

    def hear(self, samples: np.ndarray) -> Any:
        """(N,) float32 at 16 kHz."""
        if getattr(self.last, "samples", None) is not samples:
            self.last.kept = self.system.encode(None, samples)
            self.last.samples = samples
        return self.last.kept


@dataclass(frozen=True, eq=False)
class QaTask:
    """Spoken question answering: frame F1 of the questions whose answers have times. Their voice is that of the passage.

    A question that was not heard, or whose passage was not, scores 0.
    """

    listener: HeardOnce
    corpus: Corpus
    metric: str = "ff1"

    unit = "passage"

    @property
    def name(self) -> str:
        return self.listener.system.name

    @property
    def card(self) -> Mapping[str, Any]:
        questions = hash_json([q.id for q in self.corpus.answerable])
        return {**self.listener.system.card, "data": data_hash(self.corpus.root, self.corpus.split), "questions": questions}

    def items(self) -> Sequence[Item]:
        records: list[Passage | Question] = [*asked_passages(self.corpus), *self.corpus.answerable]
        return [Item(r.id, self.corpus.path(r)) for r in records]

    def hear(self, samples: np.ndarray) -> Any:
        """(N,) float32 at 16 kHz."""
        return self.listener.hear(samples)

    def score(self, heard: Mapping[str, Any]) -> list[Scored]:
        predictions = answered(self.listener.system, self.corpus, heard, f"{len(heard)} recordings")
        scored, voices = score_questions(predictions, self.corpus), voices_of(self.corpus)
        return [Scored(s.id, s.passage, s.ff1, 1.0, voices[s.passage]) for s in scored if s.ff1 is not None]


@dataclass(frozen=True, eq=False)
class TranscriptTask:
    """Word error rate of the cascade's recogniser, over the passages that are asked about."""

    listener: HeardOnce
    corpus: Corpus
    metric: str = "wer"

    unit = "passage"

    @property
    def name(self) -> str:
        return self.listener.system.name

    @property
    def card(self) -> Mapping[str, Any]:
        asr = self.listener.system.card.get("asr")
        return {"asr": asr, "data": data_hash(self.corpus.root, self.corpus.split), "passages": len(asked_passages(self.corpus))}

    def items(self) -> Sequence[Item]:
        return [Item(p.id, self.corpus.path(p)) for p in asked_passages(self.corpus)]

    def hear(self, samples: np.ndarray) -> Any:
        """(N,) float32 at 16 kHz."""
        return self.listener.hear(samples)

    def score(self, heard: Mapping[str, Any]) -> list[Scored]:
        passages = asked_passages(self.corpus)
        errors = word_errors(passages, {name: transcript.text for name, transcript in heard.items()})
        counts, voices = zip(passages, errors.errors, errors.words, strict=True), voices_of(self.corpus)
        return [Scored(p.id, p.id, float(wrong), float(words), voices[p.id]) for p, wrong, words in counts]


def qa_tasks(system: System, corpus: Corpus) -> list[TrainedTask]:
    """The tasks that a system is judged by: its answers, and its transcripts where it makes any.

    Raises InputError where no question has an answer with times.
    """
    if not any(a.start is not None for q in corpus.answerable for a in q.answers):
        raise InputError(f"{corpus.root / corpus.split} has no question whose answer has times; leave the task {system.name} out")
    listener = HeardOnce(system)
    answers: list[TrainedTask] = [QaTask(listener, corpus)]
    return answers + ([TranscriptTask(listener, corpus)] if system.name.startswith("cascade") else [])


@dataclass(frozen=True, eq=False)
class Limited:
    """A task on some of its items only, drawn by the seed."""

    task: TrainedTask
    count: int
    seed: int

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def metric(self) -> str:
        return self.task.metric

    @property
    def unit(self) -> str:
        return self.task.unit

    @property
    def card(self) -> Mapping[str, Any]:
        return self.task.card

    def items(self) -> Sequence[Item]:
        return first_items(self.task.items(), self.count, self.seed)

    def hear(self, samples: np.ndarray) -> Any:
        """(N,) float32 at 16 kHz."""
        return self.task.hear(samples)

    def score(self, heard: Mapping[str, Any]) -> list[Scored]:
        mine = {item.id for item in self.items()}
        return [s for s in self.task.score(heard) if s.id in mine]


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
