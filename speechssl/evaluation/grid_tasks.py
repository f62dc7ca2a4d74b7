"""What exists already, as tasks of the grid: the stability of units, and question answering by DUAL and by the cascade."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein

from speechssl.artefacts import hash_json
from speechssl.corpora.records import Corpus, Passage, Question, data_hash, load_corpus
from speechssl.corpora.sources import Recording, list_recordings, source_card
from speechssl.corpora.voices import voices_of
from speechssl.errors import InputError, tell_set_aside
from speechssl.evaluation.grid import first_items
from speechssl.evaluation.spoken_qa import answered, asked_passages, score_questions, word_errors
from speechssl.superb.tasks import Item, Scored, TrainedTask
from speechssl.systems import System
from speechssl.timing import RunLength
from speechssl.units.corpus import SHARD, LocalEngine, extract_corpus
from speechssl.units.extract import UnitExtractor
from speechssl.units.shards import ShardMaker
from speechssl.units.storage import load_units


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
            self.last.kept = self.system.hear(samples)
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
