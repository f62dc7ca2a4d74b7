"""The tasks of the robustness grid that are trained heads: classification (KS, IC, SID, style) and recognition (ASR)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from speechssl.cascade.ctc import CtcRecogniser, greedy_decode
from speechssl.data.records import Passage, Question, load_corpus
from speechssl.data.utterances import LabelledSet, Utterance, load_labelled
from speechssl.data.voices import RECORDING, known_voices, unknown_speakers
from speechssl.encoders.base import SpeechEncoder
from speechssl.encoders.states import encoder_card
from speechssl.errors import InputError
from speechssl.eval.metrics import word_error_rate
from speechssl.io import hash_json, read_json
from speechssl.stats import ItemScore, unknown_voice
from speechssl.superb.tasks.classification import METRIC, Classification, classify_mean
from speechssl.superb.train import TrainedHead, load_head


@dataclass(frozen=True)
class Item:
    """One test recording."""

    id: str  # what the random part of a distortion depends on
    path: Path


class Listed(Protocol):
    """A set of test recordings."""

    @property
    def name(self) -> str: ...

    def items(self) -> Sequence[Item]:
        """The test recordings, in the order of the manifest."""


class GridTask(Listed, Protocol):
    """What is evaluated, such as a head with its encoder, and its test recordings."""

    @property
    def metric(self) -> str:
        """acc (more is better) or wer (less is)."""

    @property
    def unit(self) -> str:
        """What the groups of its scores are called: "recording", "passage"."""

    @property
    def card(self) -> Mapping[str, Any]:
        """All that its scores depend on, beside the condition."""

    def encode(self, samples: np.ndarray) -> Any:
        """(N,) float32 at 16 kHz -> the features that `score` takes. Several threads may call it at once.

        Raises ValueError for fewer samples than one frame of the encoder.
        """

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        """features: by the id of the item. An item without any counts as wrong (for wer: every word is missing)."""


SPLIT = "test"


@dataclass(frozen=True)
class ClassificationTask:
    """A head and the set that it was trained on. An item is right when all its slots are (IC: three)."""

    encoder: SpeechEncoder
    trained: TrainedHead
    data: LabelledSet
    split: str = SPLIT
    metric: str = METRIC

    unit = RECORDING

    @property
    def name(self) -> str:
        return self.data.task

    @property
    def card(self) -> Mapping[str, Any]:
        """The head, the encoder and the recordings."""
        head = {"task": self.name, "weights": self.trained.weights, "classes": self.data.classes}
        return head | {"encoder": encoder_card(self.encoder), "data": self.data.hash, "split": self.split}

    def items(self) -> Sequence[Item]:
        """The recordings of the split."""
        return [Item(u.id, self.data.path(u)) for u in self.data.splits[self.split]]

    def encode(self, samples: np.ndarray) -> dict[str, str]:
        """The label of every slot."""
        return classify_mean(self.trained, self.encoder.hidden_states(samples).cpu().mean(1))

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        truth: dict[str, Utterance] = {u.id: u for u in self.data.splits[self.split]}
        right = {name: float(features.get(name) == dict(u.labels)) for name, u in truth.items()}
        voices = unknown_speakers(self.data, list(truth.values()))
        return [ItemScore(i, i, ok, 1.0, "".join(who)) for (i, ok), who in zip(right.items(), voices, strict=True)]


def load_classification(folder: Path | str, data: Path | str, encoder: SpeechEncoder, split: str = SPLIT) -> ClassificationTask:
    """A head from the folder that training wrote, with its set and the split it is tested on.

    Raises InputError where head, set and encoder do not belong together, and for a split that the set does not have.
    """
    found = load_labelled(data)
    check_split(found, split)
    sizes = read_json(Path(folder) / "card.json").get("task", {}).get("sizes", {})
    task = Classification(found.task, found, encoder.grid, sizes.get("projection", 256))
    return ClassificationTask(encoder, load_head(folder, task, encoder_card(encoder)), found, split)


def check_split(data: LabelledSet, split: str) -> None:
    """Raises InputError for a split that a set does not have; call it before a head is trained to be tested on it."""
    if split not in data.splits:
        raise InputError(f"{data.root} has no split {split!r}; choose from {', '.join(data.splits)}")


@dataclass(frozen=True)
class RecognitionTask:
    """A recogniser and recordings with texts, which are in one language. Greedy decoding."""

    recogniser: CtcRecogniser
    root: Path
    records: Sequence[Passage | Question]
    weights: str  # hash of the head
    name: str = "asr"
    metric: str = "wer"
    known: frozenset[str] = frozenset()  # voices of the training data

    unit = "passage"

    @property
    def card(self) -> Mapping[str, Any]:
        """The head, the encoder and the recordings."""
        facts = {"weights": self.weights, "layer": self.recogniser.layer, "encoder": self.recogniser.encoder.hash}
        return facts | {"task": self.name, "data": hash_json([[r.id, r.audio, r.text] for r in self.records])}

    def items(self) -> Sequence[Item]:
        """The recordings."""
        return [Item(r.id, self.root / r.audio) for r in self.records]

    def encode(self, samples: np.ndarray) -> str:
        """The recognised text; empty for audio shorter than a frame."""
        return greedy_decode(self.recogniser.log_probs(samples), self.recogniser.vocabulary)

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        predicted = [features.get(r.id, "") for r in self.records]
        errors = word_error_rate([r.text for r in self.records], predicted, self.records[0].language)
        counted = zip(self.records, errors.errors, errors.words, strict=True)
        return [
            ItemScore(r.id, getattr(r, "passage", r.id), float(wrong), float(words), unknown_voice(r.speaker, self.known))
            for r, wrong, words in counted
        ]


def load_recognition(
    folder: Path | str, corpus: Path | str, encoder: SpeechEncoder, split: str = SPLIT, limit: int | None = None
) -> RecognitionTask:
    """A recogniser from the folder that `train_ctc` wrote, with the first `limit` questions of a split of a spoken-QA corpus.

    Raises InputError where the split has no questions or the encoder is not the recogniser's.
    """
    questions = load_corpus(corpus, split).questions[:limit]
    if not questions:
        raise InputError(f"{Path(corpus) / split} has no questions to recognise; prepare the corpus with some")
    recogniser = CtcRecogniser.load(folder, encoder)
    weights = read_json(Path(folder) / "card.json")["weights"]
    return RecognitionTask(recogniser, Path(corpus), questions, weights, known=known_voices(corpus))
