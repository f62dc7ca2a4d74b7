"""Define the tasks of the robustness grid: each encodes recordings and scores them item by item.

Heads classify (`HeadTask`), recognisers transcribe questions (`RecognitionTask`), units are
compared with those of clean speech (`UnitsTask`), and systems answer questions (`AnswersTask`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from rapidfuzz.distance import Levenshtein

from speechssl.artifacts import hash_json, read_json
from speechssl.cascade.model import CtcRecogniser, greedy_decode
from speechssl.data.recordings import list_recordings, source_card
from speechssl.data.records import (
    Corpus,
    Passage,
    Question,
    data_hash,
    known_voices,
    load_corpus,
    voices_of,
)
from speechssl.data.superb import RECORDING, LabelledSet, load_labelled, unknown_speakers
from speechssl.encoders.encoder import SpeechEncoder
from speechssl.errors import InputError, report_set_aside
from speechssl.eval.conditions import Item
from speechssl.eval.options import TEST
from speechssl.eval.predict import answer_questions, parse_predictions
from speechssl.eval.score import score_questions, word_errors
from speechssl.eval.spoken_qa import passages_with_questions
from speechssl.metrics import word_error_rate
from speechssl.results import CASCADE
from speechssl.stats import ItemScore, unknown_voice
from speechssl.superb.data import Batch, encoder_card
from speechssl.superb.tasks.classification import METRIC, Classification
from speechssl.superb.train import TrainedHead, load_head
from speechssl.systems import System
from speechssl.timing import RunLength
from speechssl.units.corpus import LocalEngine, ShardMaker, extract_corpus
from speechssl.units.features import UnitExtractor
from speechssl.units.options import SHARD
from speechssl.units.storage import load_units


@dataclass(frozen=True, eq=False, kw_only=True)
class GridTask(ABC):
    """A task is what is evaluated, such as a head with its encoder, on its test recordings.

    metric: acc (more is better) or wer (less is). unit: what the groups of its scores are called:
    "recording", "passage". card: all that its scores depend on, beside the condition.
    """

    name: str
    metric: str
    unit: str
    card: Mapping[str, Any]
    items: Sequence[Item]

    @property
    def label(self) -> str:
        return f"{self.name}-{self.metric}"

    @abstractmethod
    def encode(self, record: Any, samples: Any) -> Any:
        """Encode samples (N,), float32 at 16 kHz, of which nothing else is known. Several threads
        call it at once. Raises ValueError for fewer samples than one frame of the encoder."""

    @abstractmethod
    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        """Score features by the id of the item. An item without any counts as wrong (for wer: every
        word is missing)."""

    def limit_items(self, count: int | None, seed: int) -> Self:
        """Keep so many of its items only, drawn by the seed; None: all."""
        return replace(self, items=first_items(self.items, count, seed))


def first_items(items: Sequence[Item], count: int | None, seed: int) -> list[Item]:
    """Return so many of the items, drawn by the seed and their ids, in the order in which they
    stand; None: all."""
    if count is None or count >= len(items):
        return list(items)
    chosen = set(sorted(range(len(items)), key=lambda i: hash_json([seed, items[i].id]))[:count])
    return [item for i, item in enumerate(items) if i in chosen]


# ---- heads


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadTask(GridTask):
    """A head classifies recordings. An item is right when all its slots are (IC: three)."""

    encoder: Any
    task: Classification
    head: TrainedHead
    utterances: Sequence[Any]

    def encode(self, record: Any, samples: Any) -> dict[str, str]:
        """Return the labels of a recording, by slot, from the mean of every hidden state over
        time."""
        means = self.encoder.hidden_states(samples).cpu().mean(1)
        batch = Batch((), means[None], torch.ones(1).long())
        with torch.inference_mode():
            return self.task.choose(self.task.predict(self.head.head, batch)[0])

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        voices = unknown_speakers(self.task.data, self.utterances)
        scored = []
        for u, who in zip(self.utterances, voices, strict=True):
            right = float(features.get(u.id) == dict(u.labels))
            scored.append(ItemScore(u.id, u.id, right, 1.0, "".join(who)))
        return scored


def load_classification(
    folder: Path | str, data: Path | str, encoder: SpeechEncoder, split: str = TEST
) -> HeadTask:
    """Load a head from the folder that training wrote, on a split of its set.

    Raises InputError where head, set and encoder do not belong together, and for a split that the
    set does not have.
    """
    labelled = load_labelled(data)
    check_split(labelled, split)
    sizes = read_json(Path(folder) / "card.json").get("task", {}).get("sizes", {})
    task = Classification(labelled.task, labelled, encoder.grid, sizes.get("projection", 256))
    head = load_head(folder, task, encoder_card(encoder))
    utterances = labelled.splits[split]
    card = {
        "task": labelled.task,
        "weights": head.weights,
        "classes": labelled.classes,
        "encoder": encoder_card(encoder),
        "data": labelled.hash,
        "split": split,
    }
    return HeadTask(
        name=labelled.task,
        metric=METRIC,
        unit=RECORDING,
        card=card,
        items=[Item(u.id, labelled.path(u)) for u in utterances],
        encoder=encoder,
        task=task,
        head=head,
        utterances=utterances,
    )


def check_split(data: LabelledSet, split: str) -> None:
    """Raise InputError for a split that a set does not have; call it before a head is trained to be
    tested on it."""
    if split not in data.splits:
        raise InputError(
            f"{data.root} has no split {split!r}; choose from {', '.join(data.splits)}"
        )


# ---- recognition


@dataclass(frozen=True, eq=False, kw_only=True)
class RecognitionTask(GridTask):
    """A recogniser, decoded greedily, hears the questions of a spoken-QA corpus."""

    recogniser: CtcRecogniser
    questions: Sequence[Question]
    trained: frozenset[str]  # voices that training knew

    def encode(self, record: Any, samples: Any) -> str:
        # "" below a frame
        return greedy_decode(self.recogniser.log_probs(samples), self.recogniser.vocabulary)

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        heard = [features.get(q.id, "") for q in self.questions]
        texts = [q.text for q in self.questions]
        errors = word_error_rate(texts, heard, self.questions[0].language)
        scored = []
        for q, wrong, words in zip(self.questions, errors.errors, errors.words, strict=True):
            voice = unknown_voice(q.speaker, self.trained)
            scored.append(ItemScore(q.id, q.passage, float(wrong), float(words), voice))
        return scored


def load_recognition(
    folder: Path | str, corpus: Path | str, encoder: SpeechEncoder, split: str = TEST
) -> RecognitionTask:
    """Load a recogniser from the folder that `train ctc` wrote. Raises InputError where the split
    has no questions or the encoder is not the recogniser's."""
    questions = load_corpus(corpus, split).questions
    if not questions:
        raise InputError(
            f"{Path(corpus) / split} has no questions to recognise; prepare the corpus with some"
        )
    recogniser = CtcRecogniser.load(folder, encoder)
    card = {
        "task": "asr",
        "weights": read_json(Path(folder) / "card.json")["weights"],
        "layer": recogniser.layer,
        "encoder": encoder.hash,
        "data": hash_json([[q.id, q.audio, q.text] for q in questions]),
    }
    return RecognitionTask(
        name="asr",
        metric="wer",
        unit="passage",
        card=card,
        items=[Item(q.id, Path(corpus) / q.audio) for q in questions],
        recogniser=recogniser,
        questions=questions,
        trained=known_voices(corpus),
    )


# ---- units


@dataclass(frozen=True, eq=False, kw_only=True)
class UnitsTask(GridTask):
    """The task measures how far the units of distorted speech are from those of clean speech, of
    the same encoder and codebook.

    A recording adds the edits between the run-length units of the two, over the units of clean
    speech (arXiv 2209.15483): clean speech has no error by definition, and a recording that could
    not be encoded has every unit missing.
    """

    extractor: UnitExtractor
    clean: Mapping[str, RunLength]
    voices: Mapping[str, str]

    def encode(self, record: Any, samples: Any) -> RunLength:
        return self.extractor.units(samples)

    def score(self, features: Mapping[str, RunLength]) -> list[ItemScore]:
        scored = []
        for name, _ in self.items:
            units = features[name].units.tolist() if name in features else []
            clean = self.clean[name].units.tolist()
            edits = Levenshtein.distance(clean, units)
            voice = self.voices.get(name, "")
            scored.append(ItemScore(name, name, float(edits), float(len(clean)), voice))
        return scored


def units_task(
    extractor: UnitExtractor,
    source: Path,
    out: Path,
    split: str | None,
    count: int | None = None,
    seed: int = 0,
    workers: int | None = None,
) -> UnitsTask:
    """Extract the units of clean speech into `out`, where they stay.

    source: a corpus (with its split), a manifest, a folder or a file. count: so many recordings,
    drawn by the seed; None: all. Raises InputError as `list_recordings` and `extract_corpus` do.
    """
    every = {r.id: r for r in list_recordings(source, split)}
    chosen = first_items([Item(r.id, r.path) for r in every.values()], count, seed)
    maker = ShardMaker(extractor, out, SHARD)
    facts = {"drawn": [count, seed]} | source_card(source, split, None)
    recordings = [every[item.id] for item in chosen]
    extracted = extract_corpus(maker, recordings, LocalEngine(workers), facts)
    report_set_aside(extracted.failed, "units of clean speech")
    clean = load_units(out)
    units = [[i, clean[i].units.tolist()] for i in sorted(clean)]
    return UnitsTask(
        name="units",
        metric="unit_error",
        unit=RECORDING,
        card={"task": "units", **extractor.card, "clean": hash_json(units)},
        items=[item for item in chosen if item.id in clean],
        extractor=extractor,
        clean=clean,
        voices={} if split is None else voices_of(load_corpus(source, split)),
    )


# ---- question answering


@dataclass(frozen=True, eq=False, kw_only=True)
class AnswersTask(GridTask):
    """A system answers questions: FF1 of those whose answers have times. A question scores 0 where
    it or its passage could not be encoded."""

    system: System
    corpus: Corpus

    def encode(self, record: Any, samples: Any) -> Any:
        return self.system.encode(None, samples)

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        where = f"{len(features)} recordings"
        rows = answer_questions(self.system, self.corpus, features, where)
        voices = voices_of(self.corpus)
        scored = []
        for s in score_questions(parse_predictions(rows, {"task": "qa"}), self.corpus):
            if s.ff1 is not None:
                who = voices[s.passage], voices[s.id]
                scored.append(ItemScore(s.id, s.passage, s.ff1, 1.0, *who))
        return scored


@dataclass(frozen=True, eq=False, kw_only=True)
class TranscriptsTask(AnswersTask):
    """A cascade transcribes the passages that are asked about and have a text: word error rate."""

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        # others have no words that could be missed
        passages = [p for p in passages_with_questions(self.corpus) if p.text]
        errors = word_errors(passages, {name: x.text for name, x in features.items()})
        voices = voices_of(self.corpus)
        scored = []
        for p, wrong, words in zip(passages, errors.errors, errors.words, strict=True):
            scored.append(ItemScore(p.id, p.id, float(wrong), float(words), voices[p.id]))
        return scored


def qa_tasks(system: System, corpus: Corpus) -> list[GridTask]:
    """Make the tasks that a system of spoken question answering is scored by: its answers, and of a
    cascade its transcripts. Raises InputError where no question has an answer with times."""
    if not any(a.start is not None for q in corpus.answerable for a in q.answers):
        raise InputError(
            f"{corpus.root / corpus.split} has no question whose answer has times; "
            f"leave out the task {system.name}"
        )
    data, passages = data_hash(corpus.root, corpus.split), passages_with_questions(corpus)
    records: list[Passage | Question] = [*passages, *corpus.answerable]
    questions = hash_json([q.id for q in corpus.answerable])
    answers = AnswersTask(
        name=system.name,
        metric="ff1",
        unit="passage",
        card={**system.card, "data": data, "questions": questions},
        items=[Item(r.id, corpus.path(r)) for r in records],
        system=system,
        corpus=corpus,
    )
    written = {p.id for p in passages if p.text}
    if not (system.name.startswith(CASCADE) and written):
        return [answers]
    recogniser = {name: x for name, x in system.card.items() if name in ("asr", "asr_weights")}
    transcripts = TranscriptsTask(
        name=system.name,
        metric="wer",
        unit="passage",
        card=recogniser | {"data": data, "passages": len(passages)},
        items=[item for item in answers.items[: len(passages)] if item.id in written],
        system=system,
        corpus=corpus,
    )
    return [answers, transcripts]
