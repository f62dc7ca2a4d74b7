"""The tasks of SUPERB that write down what is said: phones (PR), words (ASR), words with slots (SF).

Settings, heads and metrics: s3prl 0.4.18, `downstream/{asr,ctc}` (config.yaml, libriphone.yaml, snips.yaml). Symbols are those of
the training split, sorted. Others, in dev or test, cannot be said and count as errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from speechssl.asr.beam import BeamDecoder, BeamOptions
from speechssl.asr.ctc import CtcVocabulary, HeadShape, greedy_decode, greedy_symbols
from speechssl.asr.ngram import NgramModel, train_ngram
from speechssl.corpora.utterances import Utterance, UtteranceSet
from speechssl.corpora.voices import recording_units
from speechssl.errors import InputError
from speechssl.superb.slots import SEPARATOR, marked_text, slot_symbols, slot_type_f1, slot_value_errors
from speechssl.superb.specaugment import SpecAugment
from speechssl.superb.task import Batch, Judgement, Settings
from speechssl.superb.transcription_head import TranscriptionHead
from speechssl.superb.transcription_measures import edits, examples, mean_measure, rate_measure
from speechssl.text import spelt
from speechssl.timing import FrameGrid

PUBLISHED_PR = Settings(learning_rate=1e-2, steps=100_000, batch=32, every=1_000)
PUBLISHED_ASR = Settings(learning_rate=1e-4, steps=200_000, batch=32, every=2_000)
PUBLISHED_SF = PUBLISHED_ASR


@dataclass(frozen=True)
class Phones:
    """Phone recognition: a linear head. Raises InputError where a split has no phones."""

    data: UtteranceSet
    grid: FrameGrid
    projection: int = 256
    name: str = "pr"
    pooled: bool = False
    wants_waves: bool = False

    def __post_init__(self) -> None:
        _check(self.data, "phones", lambda u: bool(u.phones.split()))

    @cached_property
    def vocabulary(self) -> CtcVocabulary:
        return CtcVocabulary.of_symbols(u.phones.split() for u in self.data.splits["train"])

    def build(self, states: int, width: int) -> TranscriptionHead:
        return TranscriptionHead(states, HeadShape(width, len(self.vocabulary), projection=self.projection, lstm_layers=0))

    def loss(self, head: nn.Module, batch: Batch) -> Tensor:
        targets = [self.vocabulary.numbers(u.phones.split()) for u in batch.utterances]
        return head.loss(batch.states, batch.lengths, targets)  # type: ignore[no-any-return, operator]

    def predict(self, head: nn.Module, batch: Batch) -> list[str]:
        """Phones, separated by spaces."""
        return [" ".join(greedy_symbols(found, self.vocabulary)) for found in log_probabilities(head, batch)]

    def judge(self, split: str, predicted: Mapping[str, str], resamples: int) -> Judgement:
        """PER, pooled over the split."""
        utterances = self.data.splits[split]
        truth = {u.id: " ".join(u.phones.split()) for u in utterances}
        said = {u.id: predicted.get(u.id, "") for u in utterances}
        units = recording_units(self.data, utterances)
        return Judgement((rate_measure("per", edits(truth, said), units, resamples),), examples(truth, said))


@dataclass(frozen=True)
class Speech:
    """Speech recognition by letters; `spelt` makes texts so. Raises InputError where a split has no words.

    language_model: what texts are decoded with beside the greedy ones (`wer_lm`); None for greedy decoding alone, which is fast.
    """

    data: UtteranceSet
    grid: FrameGrid
    projection: int = 1024
    lstm_width: int = 1024  # a direction
    lstm_layers: int = 2
    dropout: float = 0.2
    masks: SpecAugment | None = SpecAugment()
    language_model: NgramModel | None = None
    beam: BeamOptions = BeamOptions()
    name: str = "asr"
    pooled: bool = False
    wants_waves: bool = False

    def __post_init__(self) -> None:
        _check(self.data, "text", lambda u: bool(spelt(u.text)))

    @cached_property
    def vocabulary(self) -> CtcVocabulary:
        words = (word for u in self.data.splits["train"] for word in spelt(u.text).split())
        return CtcVocabulary.of_symbols(words, SEPARATOR)

    def build(self, states: int, width: int) -> TranscriptionHead:
        return TranscriptionHead(states, _recurrent(self, width), self.masks)

    def loss(self, head: nn.Module, batch: Batch) -> Tensor:
        targets = [self.vocabulary.numbers(spelt(u.text).replace(" ", SEPARATOR)) for u in batch.utterances]
        return head.loss(batch.states, batch.lengths, targets)  # type: ignore[no-any-return, operator]

    def predict(self, head: nn.Module, batch: Batch) -> list[dict[str, str]]:
        """`greedy`, and `lm` where there is a language model."""
        return [self._texts(found) for found in log_probabilities(head, batch)]

    def judge(self, split: str, predicted: Mapping[str, Mapping[str, str]], resamples: int) -> Judgement:
        """WER of the greedy texts and, with a language model, of those decoded with it (`wer_lm`), pooled over the split."""
        utterances = self.data.splits[split]
        truth = {u.id: spelt(u.text) for u in utterances}
        ways = {"wer": "greedy"} | ({"wer_lm": "lm"} if self.language_model else {})
        texts = {metric: {u.id: predicted.get(u.id, {}).get(way, "") for u in utterances} for metric, way in ways.items()}
        units = recording_units(self.data, utterances)
        measures = [rate_measure(metric, edits(truth, said), units, resamples) for metric, said in texts.items()]
        return Judgement(tuple(measures), examples(truth, texts["wer"]))

    @cached_property
    def _decoder(self) -> BeamDecoder | None:
        return None if self.language_model is None else BeamDecoder(self.language_model, self.vocabulary, self.beam)

    def _texts(self, log_probs: Tensor) -> dict[str, str]:
        texts = {"greedy": greedy_decode(log_probs, self.vocabulary)}
        return texts if self._decoder is None else texts | {"lm": self._decoder.decode(log_probs)}


@dataclass(frozen=True)
class SlotFilling:
    """Letters with a symbol before and after the value of each slot. Raises InputError where a split has no slots, or a text does
    not have the values of its slots in their order."""

    data: UtteranceSet
    grid: FrameGrid
    projection: int = 1024
    lstm_width: int = 1024  # a direction
    lstm_layers: int = 2
    dropout: float = 0.2
    masks: SpecAugment | None = SpecAugment()
    name: str = "sf"
    pooled: bool = False
    wants_waves: bool = False

    def __post_init__(self) -> None:
        _check(self.data, "slots", lambda u: bool(u.slots))
        for split, utterances in self.data.splits.items():
            for utterance in utterances:
                try:
                    _symbols(utterance)
                except ValueError as error:
                    place = f"{self.data.root / split}.jsonl, utterance {utterance.id}"
                    raise InputError(f"{place}: the slot {error}; correct the text or the slots") from error

    @cached_property
    def vocabulary(self) -> CtcVocabulary:
        return CtcVocabulary.of_symbols(map(_symbols, self.data.splits["train"]), SEPARATOR)

    def build(self, states: int, width: int) -> TranscriptionHead:
        return TranscriptionHead(states, _recurrent(self, width), self.masks)

    def loss(self, head: nn.Module, batch: Batch) -> Tensor:
        targets = [self.vocabulary.numbers(_symbols(u)) for u in batch.utterances]
        return head.loss(batch.states, batch.lengths, targets)  # type: ignore[no-any-return, operator]

    def predict(self, head: nn.Module, batch: Batch) -> list[str]:
        """Texts with their slots, as in "play B-artist madonna E-artist"."""
        return [marked_text(greedy_symbols(found, self.vocabulary)) for found in log_probabilities(head, batch)]

    def judge(self, split: str, predicted: Mapping[str, str], resamples: int) -> Judgement:
        """F1 of the slots' types, the mean over utterances, and CER of their values, pooled."""
        utterances = self.data.splits[split]
        truth = {u.id: marked_text(_symbols(u)) for u in utterances}
        said = {u.id: predicted.get(u.id, "") for u in utterances}
        types = [slot_type_f1(said[name], truth[name]) if name in predicted else 0.0 for name in truth]
        values = [slot_value_errors(said[name], truth[name]) for name in truth]
        units = recording_units(self.data, utterances)
        f1 = mean_measure("slot_f1", types, units, resamples)
        return Judgement((f1, rate_measure("slot_cer", values, units, resamples)), examples(truth, said))


@torch.inference_mode()
def log_probabilities(head: nn.Module, batch: Batch) -> list[Tensor]:
    """(T, V) of every recording, its real frames alone, without dropout and SpecAugment."""
    before = head.training
    found = head.eval()(batch.states, batch.lengths).cpu()
    head.train(before)
    return [log_probs[:n] for log_probs, n in zip(found, batch.lengths.tolist(), strict=True)]


def train_language_model(data: UtteranceSet, order: int = 4) -> NgramModel:
    """Of the training texts of a set, spelt as `Speech` spells them. It knows no words but theirs."""
    return train_ngram((spelt(u.text) for u in data.splits["train"]), order)


def _symbols(utterance: Utterance) -> list[str]:
    return slot_symbols(utterance.text, utterance.slots)


def _recurrent(task: Speech | SlotFilling, width: int) -> HeadShape:
    return HeadShape(
        width,
        len(task.vocabulary),
        projection=task.projection,
        lstm_width=task.lstm_width,
        lstm_layers=task.lstm_layers,
        dropout=task.dropout,
    )


def _check(data: UtteranceSet, what: str, has: Callable[[Utterance], bool]) -> None:
    """Raises InputError for a split of which no utterance has what the task asks for."""
    for split, utterances in data.splits.items():
        if not any(map(has, utterances)):
            raise InputError(f'{data.root / split}.jsonl has no "{what}", which {data.task} asks for; add it to its lines')
