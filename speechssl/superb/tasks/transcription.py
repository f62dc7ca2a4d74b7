"""PR, ASR and SF transcribe speech: as phones, as words, and as words with slots.

Settings, heads and metrics are those of s3prl 0.4.18, `downstream/{asr,ctc}` (config.yaml,
libriphone.yaml, snips.yaml). The symbols are those of the training split, sorted. Other symbols, in
dev or test, cannot be predicted and count as errors.
Letters: B batch, S hidden states, T frames, D width, V symbols, N frames of one recording.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from rapidfuzz.distance import Levenshtein
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad

from speechssl.cascade.decode import BeamDecoder, BeamOptions
from speechssl.cascade.model import (
    CtcHead,
    CtcVocabulary,
    HeadShape,
    decode_greedily,
    find_greedy_symbols,
)
from speechssl.cascade.ngrams import NgramModel, train_ngram
from speechssl.data.superb import Slot, Utterance, UtteranceSet
from speechssl.errors import InputError
from speechssl.stats import Interval
from speechssl.superb.data import Batch, Featurizer, HeadEvaluation, Task, measure_rate
from speechssl.text import spell_letters
from speechssl.timing import FrameGrid

SEPARATOR = "|"  # between words


# ---- head


@dataclass(frozen=True)
class SpecAugment:
    """SpecAugment (arXiv 1904.08779) masks the weighted sum of hidden states; the defaults are
    those of SUPERB's ASR and SF.

    s3prl 0.4.18 (`downstream/specaug.py`) draws masks over the frames of the padded batch, so that
    a short recording may get no mask or be masked altogether, and depends on the rest of the batch.
    Here each recording has masks over its own frames; for a batch of one recording both draw the
    same numbers.
    """

    warp: int = 5  # largest number of frames by which a frame is moved; 0: time is not warped
    frequency_masks: int = 4
    frequency_width: int = 50  # masks are narrower than this
    time_masks: int = 2
    time_width: int = 40  # masks are shorter than this

    def __call__(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Warp and mask features (B, T, D), with zeros beyond a length. Random numbers come from
        torch's generator of the CPU."""
        # unbound and stacked, because gradients of rows written in place cost B times as much
        augmented = []
        for recording, n in zip(features.unbind(), lengths.tolist(), strict=True):
            augmented.append(pad(self._augment(recording[:n]), (0, 0, 0, features.shape[1] - n)))
        return torch.stack(augmented)

    def _augment(self, features: Tensor) -> Tensor:
        """Warp and mask the features of one recording, (N, D)."""
        n, width = features.shape
        # time warping moves a frame, and resamples the frames before and after it (bicubic)
        if self.warp and n > 2 * self.warp:
            old = int(torch.randint(self.warp, n - self.warp, (1,)))
            new = int(torch.randint(old - self.warp, old + self.warp, (1,))) + 1
            before = interpolate(features[None, None, :old], (new, width), mode="bicubic")
            after = interpolate(features[None, None, old:], (n - new, width), mode="bicubic")
            features = torch.cat([before[0, 0], after[0, 0]])
        dimensions = _draw_masks(width, self.frequency_masks, self.frequency_width)
        frames = _draw_masks(n, self.time_masks, self.time_width)
        hidden = dimensions[None] | frames[:, None]
        return features.masked_fill(hidden.to(features.device), 0.0)


def _draw_masks(size: int, count: int, limit: int) -> Tensor:
    """Draw `count` masks narrower than `limit`; return (size,) bool, true where hidden."""
    widths = torch.randint(0, limit, (count, 1))
    starts = torch.randint(0, max(1, size - int(widths.max())), (count, 1))
    positions = torch.arange(size)
    return ((starts <= positions) & (positions < starts + widths)).any(0)


class TranscriptionHead(nn.Module):
    """The head is a weighted sum of the hidden states, SpecAugment in training, a projection,
    LSTMs and CTC.

    Source: s3prl 0.4.18, `downstream/asr/model.py` (`RNNs`) and `downstream/model.py`
    (`FrameLevel`) behind a projector; outputs for real frames are equal to theirs. Two things are
    left out: the end of a sentence is no symbol (CTC does not need it), and padded frames are never
    read (s3prl's greedy decoding reads them, which does no harm at its batch size of 1).
    shape: sizes of the layers after the weighted sum. masks: None for no SpecAugment.
    """

    def __init__(self, states: int, shape: HeadShape, masks: SpecAugment | None = None) -> None:
        super().__init__()
        self.featurizer = Featurizer(states)
        self.ctc = CtcHead(shape)
        self.masks = masks

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Return log-probabilities (B, T, V). states: (B, S, T, D); lengths: (B,) real frames, at
        least 1."""
        return self.ctc(self._sum_states(states, lengths), lengths)

    def loss(self, states: Tensor, lengths: Tensor, targets: Sequence[Sequence[int]]) -> Tensor:
        """Return the CTC loss in nats per symbol, the mean over the batch. targets: the numbers of
        each recording's symbols; those with too few frames add nothing."""
        return self.ctc.loss(self._sum_states(states, lengths), lengths, targets)

    def _sum_states(self, states: Tensor, lengths: Tensor) -> Tensor:
        features: Tensor = self.featurizer(states)
        return self.masks(features, lengths) if self.masks and self.training else features


@torch.inference_mode()
def compute_log_probabilities(head: nn.Module, batch: Batch) -> list[Tensor]:
    """Compute the log-probabilities of every recording's real frames, (T, V)."""
    outputs = head(batch.states, batch.lengths).cpu()
    return [log_probs[:n] for log_probs, n in zip(outputs, batch.lengths.tolist(), strict=True)]


# ---- tasks


class Transcription(Task):
    """The three tasks transcribe by CTC on the symbols of the training split."""

    separator = SEPARATOR

    @abstractmethod
    def list_symbols(self, utterance: Utterance) -> Sequence[str]:
        """List the true symbols of an utterance."""

    @cached_property
    def vocabulary(self) -> CtcVocabulary:
        train = self.data.splits["train"]
        return CtcVocabulary.from_symbols(map(self.list_symbols, train), self.separator)

    def loss(self, head: Any, batch: Batch) -> Tensor:
        targets = [self.vocabulary.number_symbols(self.list_symbols(u)) for u in batch.utterances]
        return head.loss(batch.states, batch.lengths, targets)  # type: ignore[no-any-return]

    def check_field(self, field: str) -> None:
        """Raise InputError for a split in which no utterance has this field."""
        for split, utterances in self.data.splits.items():
            if not any(getattr(u, field) for u in utterances):
                raise InputError(
                    f'{self.data.root / split}.jsonl has no "{field}", which {self.data.task} '
                    "needs; add it to its lines"
                )

    def measure_errors(
        self,
        truth: Mapping[str, str],
        predicted: Mapping[str, str],
        split: str,
        resamples: int,
    ) -> Interval:
        """Measure the errors in words, or other symbols with spaces between them, pooled over the
        split.

        truth, predicted: texts by id; all words of an utterance without a prediction are wrong.
        """
        errors, lengths = [], []
        for name, text in truth.items():
            words = text.split()
            errors.append(Levenshtein.distance(words, predicted.get(name, "").split()))
            lengths.append(len(words))
        return measure_rate(errors, lengths, self.data, split, resamples)


@dataclass(frozen=True)
class Phones(Transcription):
    """Phone recognition, the task `pr`, has a linear head. Raises InputError where a split has no
    phones."""

    data: UtteranceSet
    grid: FrameGrid
    projection: int = 256

    name = "pr"
    separator = ""

    def __post_init__(self) -> None:
        self.check_field("phones")

    def list_symbols(self, utterance: Utterance) -> list[str]:
        return utterance.phones.split()

    def build(self, states: int, width: int) -> TranscriptionHead:
        symbols = len(self.vocabulary)
        shape = HeadShape(width, symbols, projection=self.projection, lstm_layers=0)
        return TranscriptionHead(states, shape)

    def predict(self, head: nn.Module, batch: Batch) -> list[str]:
        """Return the phones of each recording, separated by spaces."""
        outputs = compute_log_probabilities(head, batch)
        return [" ".join(find_greedy_symbols(log_probs, self.vocabulary)) for log_probs in outputs]

    def evaluate(self, split: str, predicted: Mapping[str, str], resamples: int) -> HeadEvaluation:
        """Measure PER, pooled over the split."""
        truth = {u.id: u.phones for u in self.data.splits[split]}
        return HeadEvaluation({"per": self.measure_errors(truth, predicted, split, resamples)})


@dataclass(frozen=True)
class Recurrent(Transcription):
    """ASR and SF have a recurrent head that predicts letters. The defaults are the published
    sizes."""

    data: UtteranceSet
    grid: FrameGrid
    projection: int = 1024
    lstm_width: int = 1024  # a direction
    lstm_layers: int = 2
    dropout: float = 0.2
    masks: SpecAugment | None = SpecAugment()

    def build(self, states: int, width: int) -> TranscriptionHead:
        shape = HeadShape(
            width,
            len(self.vocabulary),
            projection=self.projection,
            lstm_width=self.lstm_width,
            lstm_layers=self.lstm_layers,
            dropout=self.dropout,
        )
        return TranscriptionHead(states, shape, self.masks)


@dataclass(frozen=True)
class Speech(Recurrent):
    """Speech recognition, the task `asr`, predicts the letters of texts that `spell_letters`
    spells. Raises InputError where a split has no words."""

    # decodes as well (`wer_lm`); None for greedy decoding alone, which is fast
    language_model: NgramModel | None = None
    beam: BeamOptions = BeamOptions()

    name = "asr"

    def __post_init__(self) -> None:
        self.check_field("text")

    def list_symbols(self, utterance: Utterance) -> str:
        return SEPARATOR.join(spell_letters(utterance.text).split())

    @cached_property
    def _decoder(self) -> BeamDecoder | None:
        if self.language_model is None:
            return None
        return BeamDecoder(self.language_model, self.vocabulary, self.beam)

    def predict(self, head: nn.Module, batch: Batch) -> list[dict[str, str]]:
        """Decode greedily (`wer`), and with the language model where there is one (`wer_lm`)."""
        decoded = []
        for log_probs in compute_log_probabilities(head, batch):
            texts = {"wer": decode_greedily(log_probs, self.vocabulary)}
            if self._decoder is not None:
                texts["wer_lm"] = self._decoder.decode(log_probs)
            decoded.append(texts)
        return decoded

    def evaluate(
        self, split: str, predicted: Mapping[str, Mapping[str, str]], resamples: int
    ) -> HeadEvaluation:
        """Measure WER of the greedy texts and, with a language model, of those decoded with it,
        pooled over the split."""
        truth = {u.id: spell_letters(u.text) for u in self.data.splits[split]}
        measures = {}
        for metric in ("wer", "wer_lm") if self.language_model else ("wer",):
            texts = {name: by_metric[metric] for name, by_metric in predicted.items()}
            measures[metric] = self.measure_errors(truth, texts, split, resamples)
        return HeadEvaluation(measures)


@dataclass(frozen=True)
class SlotFilling(Recurrent):
    """Slot filling, the task `sf`, predicts letters, with a symbol before and after the value of
    each slot.

    Raises InputError where a split has no slots, or a text does not have the values of its slots in
    their order.
    """

    name = "sf"

    def __post_init__(self) -> None:
        self.check_field("slots")
        for split, utterances in self.data.splits.items():
            for u in utterances:
                try:
                    self.list_symbols(u)
                except ValueError as error:
                    place = f"{self.data.root / split}.jsonl, utterance {u.id}"
                    raise InputError(
                        f"{place}: the slot {error}; correct the text or the slots"
                    ) from error

    def list_symbols(self, utterance: Utterance) -> list[str]:
        return list_slot_symbols(utterance.text, utterance.slots)

    def predict(self, head: nn.Module, batch: Batch) -> list[str]:
        """Return texts with their slots, such as "play B-artist madonna E-artist"."""
        outputs = compute_log_probabilities(head, batch)
        return [
            join_marked_text(find_greedy_symbols(log_probs, self.vocabulary))
            for log_probs in outputs
        ]

    def evaluate(self, split: str, predicted: Mapping[str, str], resamples: int) -> HeadEvaluation:
        """Measure F1 of the slots' types, the mean over utterances, and CER of their values,
        pooled over the split."""
        f1_scores, errors, lengths = [], [], []
        for u in self.data.splits[split]:
            truth = join_marked_text(self.list_symbols(u))
            text = predicted.get(u.id, "")
            f1_scores.append(slot_type_f1(text, truth) if u.id in predicted else 0.0)
            edits, characters = count_slot_errors(text, truth)
            errors.append(edits)
            lengths.append(characters)
        f1 = measure_rate(f1_scores, None, self.data, split, resamples)
        cer = measure_rate(errors, lengths, self.data, split, resamples)
        return HeadEvaluation({"slot_f1": f1, "slot_cer": cer})


def train_language_model(data: UtteranceSet) -> NgramModel:
    """Count the 4-grams of the training texts of a set in the spelling of `Speech`; the model has
    no other words."""
    return train_ngram((spell_letters(u.text) for u in data.splits["train"]), 4)


# ---- slots
#
# "play B-artist madonna E-artist" is a text with its slots. Its symbols are the letters, "|"
# between words, and the markers.

# The rule of s3prl's metric: a value ends at the next E- of its type, even after other markers.
_SLOT = re.compile(r"B-(\S+) (.+?) E-\1")


def list_slot_symbols(text: str, slots: Sequence[Slot]) -> list[str]:
    """List the symbols of a text with its slots. Raises ValueError where the text does not have
    their values in their order."""
    words = spell_letters(text).split()
    pieces: list[list[str]] = []  # symbols of every word or slot
    next_word = 0
    for slot in slots:
        value = spell_letters(slot.value).split()
        positions = range(next_word, len(words) - len(value) + 1)
        first = next((i for i in positions if words[i : i + len(value)] == value), None)
        if first is None:
            raise ValueError(
                f"{slot.type} {slot.value!r} does not occur in {text!r} after the slots before it"
            )
        name = "_".join(slot.type.split())
        value_symbols = [f"B-{name}", *SEPARATOR.join(value), f"E-{name}"]
        pieces += map(list, words[next_word:first])
        pieces.append(value_symbols)
        next_word = first + len(value)
    pieces += map(list, words[next_word:])
    symbols: list[str] = []
    for piece in pieces:
        if symbols:
            symbols.append(SEPARATOR)
        symbols += piece
    return symbols


def join_marked_text(symbols: Sequence[str]) -> str:
    """Join symbols to a text with its slots, with spaces around the values as in s3prl."""
    spaced = []
    for symbol in symbols:
        if symbol.startswith("B-"):
            spaced.append(f"{symbol} ")
        elif symbol.startswith("E-"):
            spaced.append(f" {symbol}")
        else:
            spaced.append(symbol.replace(SEPARATOR, " "))
    return re.sub(" +", " ", "".join(spaced)).strip()


def find_slots(marked: str, *, strip_markers: bool) -> dict[str, list[str]]:
    """Find the values of each type, in their order. strip_markers: remove the markers of other
    slots from a value, which only recognised texts have there."""
    slots: dict[str, list[str]] = {}
    for slot_type, value in _SLOT.findall(re.sub(" +", " ", marked)):
        if strip_markers:
            value = re.sub(r"B-\S+ ", "", value)
            value = re.sub(r" E-\S+", "", value)
        slots.setdefault(slot_type, []).append(value)
    return slots


def slot_type_f1(predicted: str, truth: str) -> float:
    """Return F1 of the types of one utterance's slots, each counted once; 1 where there are none in
    either (s3prl `slot_filling.py`)."""
    predicted_types = set(find_slots(predicted, strip_markers=True))
    true_types = set(find_slots(truth, strip_markers=False))
    if not predicted_types and not true_types:
        return 1.0
    return 2 * len(predicted_types & true_types) / (len(predicted_types) + len(true_types))


def count_slot_errors(predicted: str, truth: str) -> tuple[int, int]:
    """Count edits and characters of the true slots' values; each is compared with the nearest of
    its type, or with nothing."""
    predicted_slots = find_slots(predicted, strip_markers=True)
    errors = characters = 0
    for slot_type, values in find_slots(truth, strip_markers=False).items():
        candidates = predicted_slots.get(slot_type, [])
        for value in values:
            distances = [Levenshtein.distance(candidate, value) for candidate in candidates]
            nearest = min(distances, default=len(value))
            # as in s3prl, at a hundred times the length or more the value counts as missing
            errors += nearest if nearest < 100 * len(value) else len(value)
            characters += len(value)
    return errors, characters
