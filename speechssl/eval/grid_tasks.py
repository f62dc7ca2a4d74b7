"""The tasks of the robustness grid: encoders under test, and how each task is made ready for one (`MAKERS`, task name -> function).

A maker gets an encoder, the task's data and a folder that is its own; it trains there what is missing, on clean speech, and returns
the tasks to be scored. Classification and recognition are heads (`grid_heads`); here are the stability of units, and spoken
question answering by DUAL, the cascade and SpeechBERT.
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

from speechssl.cascade.config import CtcOptions
from speechssl.cascade.train import train_ctc
from speechssl.config import PLAIN, TrainingOptions
from speechssl.data.records import Corpus, Passage, Question, data_hash, first_passages, load_corpus
from speechssl.data.sources import Recording, list_recordings, source_card
from speechssl.data.utterances import load_labelled
from speechssl.data.voices import voices_of
from speechssl.encoders.load import load_encoder
from speechssl.encoders.shared import SharedEncoder, shared_encoder
from speechssl.errors import InputError, tell_set_aside
from speechssl.eval.grid import Setting, first_items
from speechssl.eval.grid_heads import GridTask, Item, check_split, load_classification, load_recognition
from speechssl.eval.spoken_qa import answer_questions, asked_passages, score_questions, word_errors
from speechssl.io import SHIPPED, hash_json, read_json
from speechssl.stats import ItemScore
from speechssl.superb.tasks.classification import ClassifierOptions, train_classifier
from speechssl.systems import System, load_systems
from speechssl.timing import RunLength
from speechssl.units.corpus import SHARD, LocalEngine, ShardMaker, extract_corpus
from speechssl.units.extract import UnitExtractor, extractor_of
from speechssl.units.kmeans import load_codebook
from speechssl.units.storage import load_units

TEST = "test"  # the split that tasks are scored on by default
NEEDS = {  # what a folder of models must have in it
    "units": "encoder/ and units.safetensors",
    "dual": "encoder/, units.safetensors and dual/",
    "cascade-ctc": "encoder/, ctc/ and text-qa/",
    "speechbert": "encoder/, speechbert/ and ctc/",
}

# ---- encoders under test


@dataclass(frozen=True)
class TestedEncoder:
    """models: its folder of models (`systems`), None for an encoder alone. trained_noises: noises it was trained on."""

    name: str
    encoder: SharedEncoder
    models: Path | None
    trained_noises: frozenset[str] = frozenset()


def load_tested(name: str, where: str) -> TestedEncoder:
    """where: a folder of models or the name of a shipped one, else what `load_encoder` takes. Raises InputError as these do."""
    for folder in (Path(where), SHIPPED / where):
        if (folder / "encoder").is_dir():
            return TestedEncoder(name, shared_encoder(folder), folder, trained_noises(folder / "encoder"))
    noises = trained_noises(Path(where)) | trained_noises(SHIPPED / where)
    return TestedEncoder(name, SharedEncoder(load_encoder(where)), None, noises)


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


def check_tested(tested: TestedEncoder, tasks: Iterable[str], settings: Iterable[Setting] = ()) -> None:
    """Call it before anything is trained.

    Raises InputError where a task needs a folder of models and the encoder comes alone, and for unseen noise it was trained on.
    """
    for task in tasks:
        if task in NEEDS:
            _models(tested, task)
    check_unseen(tested.name, tested.trained_noises, settings)


def check_unseen(encoder: str, noises: frozenset[str], settings: Iterable[Setting]) -> None:
    """Raises InputError where noise is called unseen that an encoder was trained on. noises: those that its card names."""
    for condition in [s.condition for s in settings if s.group == "unseen"]:
        if known := noises & {name for step in (condition.steps or (condition,)) for name in step.short.split("+")}:
            raise InputError(
                f"{encoder} was trained on the noise {min(known)}, as its card says; name it with --seen instead of --unseen"
            )


def _models(tested: TestedEncoder, task: str) -> Path:
    if tested.models is None:
        needs = f"give a folder with {NEEDS[task]} in it"
        raise InputError(f"the encoder {tested.name} comes alone, and the task {task} needs more; {needs}")
    return tested.models


# ---- tasks


@dataclass(frozen=True, eq=False)
class UnitsTask:
    """How far the units of distorted speech are from those of clean speech, of the same encoder and codebook.

    A recording adds the edits between the run-length units of the two, over the units of clean speech (arXiv 2209.15483): clean
    speech has no error by definition, and a recording that could not be encoded has every unit missing.
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

    def encode(self, samples: np.ndarray) -> RunLength:
        """(N,) float32 at 16 kHz."""
        return self.extractor.units(samples)

    def score(self, features: Mapping[str, RunLength]) -> list[ItemScore]:
        found = {item.id: features[item.id].units.tolist() if item.id in features else [] for item in self.items()}
        return [
            ItemScore(i, i, Levenshtein.distance(self.clean[i].units.tolist(), units), len(self.clean[i]), self.voices.get(i, ""))
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
class EncodedOnce:
    """A system that remembers, in every thread, what it last encoded: its answers and its transcripts are scored as two tasks."""

    system: System
    last: threading.local = field(default_factory=threading.local)

    def encode(self, samples: np.ndarray) -> Any:
        """(N,) float32 at 16 kHz."""
        if getattr(self.last, "samples", None) is not samples:
            self.last.features = self.system.encode(None, samples)
            self.last.samples = samples
        return self.last.features


@dataclass(frozen=True, eq=False)
class QaTask:
    """Spoken question answering: frame F1 of the questions whose answers have times. Their voice is that of the passage.

    A question scores 0 where it or its passage could not be encoded.
    """

    encoder: EncodedOnce
    corpus: Corpus
    metric: str = "ff1"

    unit = "passage"

    @property
    def name(self) -> str:
        return self.encoder.system.name

    @property
    def card(self) -> Mapping[str, Any]:
        questions = hash_json([q.id for q in self.corpus.answerable])
        return {**self.encoder.system.card, "data": data_hash(self.corpus.root, self.corpus.split), "questions": questions}

    def items(self) -> Sequence[Item]:
        records: list[Passage | Question] = [*asked_passages(self.corpus), *self.corpus.answerable]
        return [Item(r.id, self.corpus.path(r)) for r in records]

    def encode(self, samples: np.ndarray) -> Any:
        """(N,) float32 at 16 kHz."""
        return self.encoder.encode(samples)

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        predictions = answer_questions(self.encoder.system, self.corpus, features, f"{len(features)} recordings")
        scored, voices = score_questions(predictions, self.corpus), voices_of(self.corpus)
        return [ItemScore(s.id, s.passage, s.ff1, 1.0, voices[s.passage]) for s in scored if s.ff1 is not None]


@dataclass(frozen=True, eq=False)
class TranscriptTask:
    """Word error rate of the cascade's recogniser, over the passages that are asked about."""

    encoder: EncodedOnce
    corpus: Corpus
    metric: str = "wer"

    unit = "passage"

    @property
    def name(self) -> str:
        return self.encoder.system.name

    @property
    def card(self) -> Mapping[str, Any]:
        asr = self.encoder.system.card.get("asr")
        return {"asr": asr, "data": data_hash(self.corpus.root, self.corpus.split), "passages": len(asked_passages(self.corpus))}

    def items(self) -> Sequence[Item]:
        return [Item(p.id, self.corpus.path(p)) for p in asked_passages(self.corpus)]

    def encode(self, samples: np.ndarray) -> Any:
        """(N,) float32 at 16 kHz."""
        return self.encoder.encode(samples)

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        passages = asked_passages(self.corpus)
        errors = word_errors(passages, {name: transcript.text for name, transcript in features.items()})
        counts, voices = zip(passages, errors.errors, errors.words, strict=True), voices_of(self.corpus)
        return [ItemScore(p.id, p.id, float(wrong), float(words), voices[p.id]) for p, wrong, words in counts]


def qa_tasks(system: System, corpus: Corpus) -> list[GridTask]:
    """The tasks that a system is scored by: its answers, and its transcripts where it makes any.

    Raises InputError where no question has an answer with times.
    """
    if not any(a.start is not None for q in corpus.answerable for a in q.answers):
        raise InputError(f"{corpus.root / corpus.split} has no question whose answer has times; leave the task {system.name} out")
    encoder = EncodedOnce(system)
    answers: list[GridTask] = [QaTask(encoder, corpus)]
    return answers + ([TranscriptTask(encoder, corpus)] if system.name.startswith("cascade") else [])


class Limited:
    """A task on some of its items only, drawn by the seed."""

    def __init__(self, task: GridTask, count: int, seed: int) -> None:
        self.task, self.count, self.seed = task, count, seed
        self.name, self.metric, self.unit, self.card = task.name, task.metric, task.unit, task.card

    def encode(self, samples: np.ndarray) -> Any:
        """(N,) float32 at 16 kHz."""
        return self.task.encode(samples)

    def items(self) -> Sequence[Item]:
        return first_items(self.task.items(), self.count, self.seed)

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        kept = {item.id for item in self.items()}
        return [s for s in self.task.score(features) if s.id in kept]


# ---- making tasks ready


@dataclass(frozen=True)
class Setup:
    """How the tasks are made ready, and how much of the data they are scored on is used (None: all)."""

    split: str = TEST  # that tasks are scored on; heads are trained on train, whichever it is
    passages: int | None = None  # the first so many, of spoken QA
    recordings: int | None = None  # of every other task, drawn by the seed
    seed: int = 0  # of noise, heads, draws of recordings and bootstrap
    workers: int = 2  # threads
    classifier: ClassifierOptions = ClassifierOptions()
    asr: CtcOptions = CtcOptions(TrainingOptions(steps=1500, learning_rate=2e-3, warmup_steps=100, **vars(PLAIN)), layer=None)
    bf16: bool = False  # the text encoders of spoken QA read in bfloat16


class Maker(Protocol):
    """Makes a task ready for an encoder."""

    def __call__(self, tested: TestedEncoder, data: Path, out: Path, setup: Setup) -> list[GridTask]: ...


def limited(task: GridTask, setup: Setup) -> GridTask:
    """The task on as many recordings as the setup asks for."""
    return task if setup.recordings is None else Limited(task, setup.recordings, setup.seed)


def _classification(name: str, tested: TestedEncoder, data: Path, out: Path, setup: Setup) -> list[GridTask]:
    """data: a labelled set of this task. The head's learning rate is chosen on clean speech of its dev split."""
    labelled = load_labelled(data)
    if labelled.task != name:
        raise InputError(f"{data} is a set of the task {labelled.task}, not of {name}; name the set of {name}")
    check_split(labelled, setup.split)
    options, encoder = replace(setup.classifier, seed=setup.seed), tested.encoder
    train_classifier(labelled, encoder, out, options, workers=setup.workers)  # type: ignore[arg-type]
    return [limited(load_classification(out, data, encoder, setup.split), setup)]  # type: ignore[arg-type]


def _asr(tested: TestedEncoder, data: Path, out: Path, setup: Setup) -> list[GridTask]:
    """data: a prepared corpus of questions, whose words have times in the training data. A `ctc` of the models is used."""
    encoder, head = tested.encoder, out
    if tested.models and (tested.models / "ctc").is_dir():
        head = tested.models / "ctc"
    else:
        train_ctc(data, encoder, out, replace(setup.asr, training=replace(setup.asr.training, seed=setup.seed)))  # type: ignore[arg-type]
    return [limited(load_recognition(head, data, encoder, setup.split), setup)]  # type: ignore[arg-type]


def _units(tested: TestedEncoder, data: Path, out: Path, setup: Setup) -> list[GridTask]:
    """data: a prepared corpus, a manifest, a folder or a file; no labels are needed."""
    book = load_codebook(_models(tested, "units") / "units.safetensors")
    split = setup.split if any(data.glob("*/passages.jsonl")) else None
    out = out if setup.split == TEST else out.with_name(f"{out.name}-{setup.split}")  # units of clean speech are kept there
    extractor = extractor_of(tested.encoder, book)  # type: ignore[arg-type]
    return [units_task(extractor, data, out, split, setup.recordings, setup.seed, setup.workers)]


def _question_answering(name: str, tested: TestedEncoder, data: Path, out: Path, setup: Setup) -> list[GridTask]:
    """data: a prepared corpus of questions."""
    corpus = first_passages(load_corpus(data, setup.split), setup.passages)
    return qa_tasks(load_systems(_models(tested, name), [name], setup.bf16, tested.encoder)[0], corpus)


MAKERS: Mapping[str, Maker] = {
    **{name: partial(_classification, name) for name in ("ks", "ic", "sid", "style")},
    "asr": _asr,
    "units": _units,
    **{name: partial(_question_answering, name) for name in ("dual", "cascade-ctc", "speechbert")},
}
