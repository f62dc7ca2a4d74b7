"""This module has the tasks of the robustness grid: each encodes recordings and scores them.

Heads classify (`HeadTask`), recognisers transcribe questions (`RecognitionTask`), units are
compared with those of clean speech (`UnitsTask`), systems answer questions (`AnswersTask`), and
cascades transcribe passages (`TranscriptsTask`). `make_tasks` makes the tasks of an encoder, and
trains the heads that are missing on clean speech.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from rapidfuzz.distance import Levenshtein

from speechssl.artifacts import hash_json, read_json
from speechssl.cascade.model import CtcRecogniser, decode_greedily
from speechssl.cascade.options import CtcOptions, ReaderOptions, TrainCtc
from speechssl.cascade.train import fit_ctc
from speechssl.checkpoints import SHIPPED
from speechssl.data.recordings import describe_split, list_recordings
from speechssl.data.records import (
    Corpus,
    Passage,
    Question,
    find_voices,
    hash_data,
    load_corpus,
    read_known_voices,
    take_first_passages,
)
from speechssl.data.superb import RECORDING, LabelledSet, list_unknown_speakers, load_labelled
from speechssl.encoders.encoder import SharedEncoder, SpeechEncoder
from speechssl.encoders.load import load_encoder, load_shared_encoder
from speechssl.errors import InputError, report_set_aside
from speechssl.eval.conditions import Item, Setting, check_unseen, read_trained_noises
from speechssl.eval.options import TEST, Robustness
from speechssl.eval.predict import answer_questions, parse_predictions
from speechssl.eval.score import count_word_errors, score_questions
from speechssl.eval.spoken_qa import list_asked_passages
from speechssl.options import PLAIN, TrainingOptions
from speechssl.results import CASCADE
from speechssl.stats import ItemScore, hide_voice
from speechssl.superb.data import (
    TRAINING,
    Batch,
    CachedLoader,
    HeadSettings,
    cache_states,
    describe_encoder,
    list_split_recordings,
)
from speechssl.superb.tasks.classification import METRIC, Classification
from speechssl.superb.train import HeadRun, TrainedHead, train_heads
from speechssl.systems import System, load_systems
from speechssl.timing import RunLength
from speechssl.units.codebook import load_codebook
from speechssl.units.corpus import LocalEngine, ShardMaker, extract_corpus
from speechssl.units.features import UnitExtractor, make_extractor
from speechssl.units.options import SHARD
from speechssl.units.storage import load_units

T = TypeVar("T", bound=Any)  # an utterance, a question or a recording
# learning rates of a classification head; the best on dev is kept
HEAD_LEARNING_RATES = (1e-4, 1e-3, 1e-2, 1e-1)
RECOGNISER = CtcOptions(
    TrainingOptions(steps=800, learning_rate=4e-3, warmup_steps=100, **vars(PLAIN)),
    passages=200,
    crop_seconds=4.0,
    lstm_width=192,
)
CLASSIFICATION = ("ks", "ic", "sid", "style")
CASCADES = ("cascade-ctc", "cascade-ctc-greedy")
WITH_MODELS = ("units", "dual", "speechbert", *CASCADES)  # tasks that need a folder of models
GRID_TASKS = (*CLASSIFICATION, "asr", *WITH_MODELS)


class GridTask(ABC):
    """A task scores a model, such as a head with its encoder, on its test recordings."""

    name: str
    metric: str  # acc and ff1 (more is better), wer and unit_error (less is better)
    unit: str  # name of `ItemScore.group` in its scores: "recording", "passage"
    card: Mapping[str, Any]  # everything that decides its scores, except the condition
    items: Sequence[Item]

    @property
    def label(self) -> str:
        """Return the name of the folder of the task's scores."""
        return f"{self.name}-{self.metric}"

    @abstractmethod
    def encode(self, record: Any, samples: Any) -> Any:
        """Encode samples (N,), float32 at 16 kHz. Several threads call it at once. Raises
        ValueError for fewer samples than one frame of the encoder.

        record: None here; `Job.encode` has this argument for systems that read a corpus's text.
        """

    @abstractmethod
    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        """Score features by the id of the item. An item without features counts as wrong (for wer:
        every word is missing)."""


def score_words(
    records: Sequence[Any],
    groups: Sequence[str],
    transcripts: Mapping[str, str],
    voices: Sequence[str],
) -> list[ItemScore]:
    """Score the transcripts of passages or questions, by their ids: errors over words. groups,
    voices: of each record, as `ItemScore` has them."""
    errors = count_word_errors(records, transcripts)
    scored = []
    for record, group, edits, words, voice in zip(
        records, groups, errors.errors, errors.words, voices, strict=True
    ):
        scored.append(ItemScore(record.id, group, float(edits), float(words), voice))
    return scored


def draw_recordings(recordings: Sequence[T], o: Robustness) -> list[T]:
    """Draw `o.recordings` of these (None: all) by the seed and their ids, and return them in their
    order."""
    order = sorted(range(len(recordings)), key=lambda i: hash_json([o.seed, recordings[i].id]))
    return [recordings[i] for i in sorted(order[: o.recordings])]


# ---- heads


class HeadTask(GridTask):
    """A head classifies recordings of a labelled set. An item is right when the labels of all its
    slots are right (IC has three slots, other tasks one)."""

    metric = METRIC
    unit = RECORDING

    def __init__(
        self, data: LabelledSet, encoder: SpeechEncoder, head: TrainedHead, o: Robustness
    ) -> None:
        self.name = data.task
        self.data, self.encoder, self.head = data, encoder, head
        self.utterances = draw_recordings(data.splits[o.split], o)
        self.items = [Item(u.id, data.path(u)) for u in self.utterances]
        self.card = {
            "task": data.task,
            "weights": head.card["weights"]["tuned"],
            "classes": data.classes,
            "encoder": describe_encoder(encoder),
            "data": data.hash,
            "split": o.split,
        }

    def encode(self, record: Any, samples: Any) -> dict[str, str]:
        """Return the labels of a recording, by slot, from the mean of every hidden state over
        time."""
        task: Any = self.head.task
        means = self.encoder.hidden_states(samples).cpu().mean(1)
        # a batch of one recording, pooled to one frame
        batch = Batch(utterances=(), states=means[None], lengths=torch.ones(1).long())
        with torch.inference_mode():
            labels: dict[str, str] = task.choose(task.predict(self.head.head, batch)[0])
        return labels

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        speakers = list_unknown_speakers(self.data, self.utterances)
        scored = []
        for utterance, names in zip(self.utterances, speakers, strict=True):
            is_right = features.get(utterance.id) == dict(utterance.labels)
            item = ItemScore(
                id=utterance.id,
                group=utterance.id,
                numerator=float(is_right),
                voice="".join(names),  # one name, or none where training knows the speaker
            )
            scored.append(item)
        return scored


def train_classifier(
    data: LabelledSet, encoder: SpeechEncoder, out: Path, o: Robustness
) -> TrainedHead:
    """Train a head and save it in `out`, or load the one that is there. It has the learning rate
    that is best on clean speech of dev; training at a rate ends early where dev improves no more.

    The hidden states of the set are kept in `out`-features. Raises InputError where `cache_states`
    or `train_heads` does.
    """
    folder = out.with_name(f"{out.name}-features") / "train-dev"
    if not (out / "card.json").is_file():
        recordings = list_split_recordings(data, TRAINING)
        cache_states(encoder, recordings, folder, pooled=True, workers=o.workers)
    task = Classification(data.task, data, encoder.grid)
    settings = HeadSettings(
        learning_rate=HEAD_LEARNING_RATES[0],
        steps=o.head_steps,
        batch=32,
        every=100,
        patience=8,
    )
    loader = CachedLoader(task, folder)
    run = HeadRun(task, loader, settings, o.seed, out, rates=HEAD_LEARNING_RATES)
    (head,) = train_heads([run], describe_encoder(encoder))
    return head


# ---- recognition


class RecognitionTask(GridTask):
    """A recogniser transcribes the questions of a spoken-QA corpus by greedy decoding.

    folder: that of `train ctc`. Raises InputError where the encoder is not the recogniser's.
    """

    name = "asr"
    metric = "wer"
    unit = "passage"

    def __init__(self, folder: Path, corpus: Path, encoder: SpeechEncoder, o: Robustness) -> None:
        data = load_corpus(corpus, o.split)
        self.recogniser = CtcRecogniser.load(folder, encoder)
        self.training_voices = read_known_voices(corpus)
        self.questions = draw_recordings(data.questions, o)
        self.items = [Item(q.id, corpus / q.audio) for q in self.questions]
        self.card = {
            "task": "asr",
            "weights": read_json(folder / "card.json")["weights"],
            "layer": self.recogniser.layer,
            "encoder": encoder.hash,
            "data": hash_json([[q.id, q.audio, q.text] for q in data.questions]),
        }

    def encode(self, record: Any, samples: Any) -> str:
        """Return the transcript; "" for audio of less than one frame."""
        return decode_greedily(
            self.recogniser.compute_log_probs(samples), self.recogniser.vocabulary
        )

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        groups = [q.passage for q in self.questions]
        voices = [hide_voice(q.speaker, self.training_voices) for q in self.questions]
        return score_words(self.questions, groups, features, voices)


# ---- units


class UnitsTask(GridTask):
    """The task compares the units of distorted speech with those of clean speech, of the same
    encoder and codebook.

    The unit error is the number of edits between the deduplicated units of both, over the number
    of units of clean speech (arXiv 2209.15483). Clean speech has no error by definition; a
    recording that could not be encoded counts as one without units.
    source: a corpus, a manifest, a folder or a file of recordings; their units of clean speech are
    extracted into `out` and kept there.
    """

    name = "units"
    metric = "unit_error"
    unit = RECORDING

    def __init__(self, extractor: UnitExtractor, source: Path, out: Path, o: Robustness) -> None:
        split = o.split if any(source.glob("*/passages.jsonl")) else None
        drawn = draw_recordings(list_recordings(source, split), o)
        facts = {"drawn": [o.recordings, o.seed]} | describe_split(source, split, None)
        extracted = extract_corpus(
            ShardMaker(extractor, out, SHARD),
            drawn,
            LocalEngine(o.workers),
            facts,
        )
        report_set_aside(extracted.failed, "units of clean speech")
        self.extractor = extractor
        self.clean = load_units(out)
        self.voices = {} if split is None else find_voices(load_corpus(source, split))
        self.items = [Item(r.id, r.path) for r in drawn if r.id in self.clean]
        units = [[i, self.clean[i].units.tolist()] for i in sorted(self.clean)]
        self.card = {"task": "units", **extractor.card, "clean": hash_json(units)}

    def encode(self, record: Any, samples: Any) -> RunLength:
        return self.extractor.extract(samples)

    def score(self, features: Mapping[str, RunLength]) -> list[ItemScore]:
        scored = []
        for name, _ in self.items:
            units = features[name].units.tolist() if name in features else []
            clean = self.clean[name].units.tolist()
            item = ItemScore(
                id=name,
                group=name,
                numerator=float(Levenshtein.distance(clean, units)),
                denominator=float(len(clean)),
                voice=self.voices.get(name, ""),
            )
            scored.append(item)
        return scored


# ---- question answering


class AnswersTask(GridTask):
    """A system answers questions, and FF1 scores those whose answers have times. A question scores
    0 where it or its passage could not be encoded."""

    metric = "ff1"
    unit = "passage"

    def __init__(self, system: System, corpus: Corpus) -> None:
        self.name = system.name
        self.system, self.corpus = system, corpus
        records: list[Passage | Question] = [*list_asked_passages(corpus), *corpus.answerable]
        self.items = [Item(r.id, corpus.path(r)) for r in records]
        self.card = {
            **system.card,
            "data": hash_data(corpus.root, corpus.split),
            "questions": hash_json([q.id for q in corpus.answerable]),
        }

    def encode(self, record: Any, samples: Any) -> Any:
        return self.system.encode(None, samples)

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        where = f"{len(features)} recordings"
        rows = answer_questions(self.system, self.corpus, features, where)
        voices = find_voices(self.corpus)
        scored = []
        for s in score_questions(parse_predictions(rows, {"task": "qa"}), self.corpus):
            if s.ff1 is not None:
                item = ItemScore(
                    id=s.id,
                    group=s.passage,
                    numerator=s.ff1,
                    voice=voices[s.passage],
                    asker=voices[s.id],
                )
                scored.append(item)
        return scored


class TranscriptsTask(AnswersTask):
    """A cascade transcribes the passages that have questions and a text; WER scores them."""

    metric = "wer"

    def __init__(self, system: System, corpus: Corpus) -> None:
        super().__init__(system, corpus)
        passages = list_asked_passages(corpus)
        self.passages = [p for p in passages if p.text]
        self.items = [Item(p.id, corpus.path(p)) for p in self.passages]
        about_recogniser = ("asr", "asr_weights", "decoding", "ngram")
        recogniser = {name: x for name, x in system.card.items() if name in about_recogniser}
        data = hash_data(corpus.root, corpus.split)
        self.card = recogniser | {"data": data, "passages": len(passages)}

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        transcripts = {name: transcript.text for name, transcript in features.items()}
        voices = find_voices(self.corpus)
        ids = [p.id for p in self.passages]
        return score_words(self.passages, ids, transcripts, [voices[i] for i in ids])


def make_qa_tasks(system: System, corpus: Corpus) -> list[GridTask]:
    """Make the tasks that score a system of spoken question answering: its answers, and for a
    cascade its transcripts. Raises InputError where no question has an answer with times."""
    if not any(a.start is not None for q in corpus.answerable for a in q.answers):
        raise InputError(
            f"{corpus.root / corpus.split} has no question whose answer has times; "
            f"leave out the task {system.name}"
        )
    tasks: list[GridTask] = [AnswersTask(system, corpus)]
    if system.name.startswith(CASCADE) and any(p.text for p in list_asked_passages(corpus)):
        tasks.append(TranscriptsTask(system, corpus))
    return tasks


# ---- an encoder and its tasks


@dataclass(frozen=True)
class TestedEncoder:
    """An encoder under test may come in a folder of models, with readers and heads."""

    name: str
    encoder: SharedEncoder
    models: Path | None  # the folder of models (`systems`); None for an encoder alone


def load_tested(
    name: str, where: str, tasks: Collection[str], settings: Collection[Setting]
) -> TestedEncoder:
    """Load an encoder under test. where: a folder of models or the name of a shipped one, or any
    encoder that `load_encoder` loads.

    Raises InputError where it cannot be loaded, where a task needs a folder of models and the
    encoder comes alone, and for unseen noise that it was trained on.
    """
    check_unseen(name, read_trained_noises(where), settings)
    for folder in (Path(where), SHIPPED / where):
        if (folder / "encoder").is_dir():
            return TestedEncoder(name, load_shared_encoder(folder), folder)
    for task in tasks:
        if task in WITH_MODELS:
            raise InputError(
                f"the encoder {name} is not enough for the task {task}; give a folder of models "
                "that has encoder/ and the models of the task"
            )
    return TestedEncoder(name, SharedEncoder(load_encoder(where)), None)


def check_set(name: str, data: Path, o: Robustness) -> None:
    """Raise InputError where a task of classification cannot use its data: a set of another task, a
    missing recording, a missing split."""
    splits = load_labelled(data, name).splits
    if o.split not in splits:
        raise InputError(f"{data} has no split {o.split!r}; choose from {', '.join(splits)}")


def make_tasks(
    name: str, tested: TestedEncoder, data: Path, out: Path, o: Robustness
) -> list[GridTask]:
    """Make the scored tasks of a name in GRID_TASKS: a cascade has two, its answers and its
    transcripts. data: the data of the task; out: the folder of its head."""
    encoder: Any = tested.encoder
    if name in CLASSIFICATION:
        labelled = load_labelled(data, name)
        return [HeadTask(labelled, encoder, train_classifier(labelled, encoder, out, o), o)]
    if name == "asr":
        return [_make_recognition_task(tested.models, encoder, data, out, o)]
    assert tested.models  # checked by `load_tested`
    if name == "units":
        extractor = make_extractor(encoder, load_codebook(tested.models / "units.safetensors"))
        # the units of clean speech are kept there
        folder = out if o.split == TEST else out.with_name(f"{out.name}-{o.split}")
        return [UnitsTask(extractor, data, folder, o)]
    corpus = take_first_passages(load_corpus(data, o.split), o.passages)
    reading = o.reading if name in CASCADES else ReaderOptions()
    (system,) = load_systems(tested.models, [name], o.bf16, encoder, reading=reading)
    return make_qa_tasks(system, corpus)


def _make_recognition_task(
    models: Path | None, encoder: SpeechEncoder, data: Path, out: Path, o: Robustness
) -> RecognitionTask:
    """Make the task of the CTC head in the folder of models or, where there is none, of a head that
    is trained in `out`."""
    if models and (models / "ctc").is_dir():
        return RecognitionTask(models / "ctc", data, encoder, o)
    head = replace(RECOGNISER, training=replace(RECOGNISER.training, seed=o.seed))
    fit_ctc(TrainCtc(corpus=data, encoder=encoder.name, out=out, head=head), encoder)
    return RecognitionTask(out, data, encoder, o)
