"""SpeechBERT is trained on recordings that are cut into audio words. This module cuts them, and
makes the batches of the first two stages and the examples of the third.

A recording is cut by the words of the manifest, or by aligning its text with the recogniser. Where
there is a recogniser, the recording is cut a second time by its output, as in answering.
In the stage of masked words the ids are those of word pieces, and V + n for audio word n. In the
stage of spans the ids 0, 1 and 2 are [CLS], [SEP] and [PAD], and 3 + n is audio word n.
Letters: F rows of features of all recordings, D their width, N words of all recordings, W words of
one, B words or sequences of a batch, T rows of the longest of them, S positions, V vocabulary, E
embedding width, P pieces of a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from speechssl.artifacts import hash_json
from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.cascade.align import find_core, make_ctc_aligner, widen_words
from speechssl.cascade.model import CtcRecogniser
from speechssl.data.records import Corpus, Passage, Question, Span
from speechssl.dual.data import Example, find_answer_times
from speechssl.encoders.store import StoredRows, store_features
from speechssl.text import split_pieces
from speechssl.timing import FrameGrid
from speechssl.units.features import Features

if TYPE_CHECKING:  # the Trainer takes long to import, and answering does not need it
    from speechssl.training import Batch

SAME = 0.5  # least intersection over union of two words that are taken for one
LONGEST = 150  # rows of a word that are read (3 s at 50 Hz): no word is longer
SPECIAL_IDS = CLS, SEP, PAD = 0, 1, 2
SPECIALS = 3  # number of special ids
NONE = -1  # target where there is no piece to predict
# shares of the predicted positions that keep their id or get another; the others are masked
KEEP = 0.1
REPLACE = 0.1
K = TypeVar("K")


def sort_spans(words: Sequence[Any]) -> tuple[Span, ...]:
    """Sort words with text, start and end by time, and leave out those without duration."""
    ordered = sorted(words, key=lambda w: (w.start, w.end))
    return tuple(Span(w.text, w.start, w.end) for w in ordered if w.end > w.start)


def attach_texts(words: Sequence[Span], reference: Sequence[Span]) -> tuple[Span, ...]:
    """Give each word the text of the reference word with which it overlaps most; "" where their
    intersection is less than half of their union."""
    if not reference:
        return tuple(Span("", w.start, w.end) for w in words)
    starts = np.array([w.start for w in reference])
    ends = np.array([w.end for w in reference])
    spans = []
    for word in words:
        overlap = np.minimum(word.end, ends) - np.maximum(word.start, starts)
        union = np.maximum(word.end, ends) - np.minimum(word.start, starts)
        iou = np.maximum(overlap, 0.0) / union
        nearest = int(iou.argmax())
        text = reference[nearest].text if iou[nearest] >= SAME else ""
        spans.append(Span(text, word.start, word.end))
    return tuple(spans)


def recognise_words(recogniser: Any, samples: np.ndarray) -> tuple[Span, ...]:
    """Cut a recording into words with a recogniser, each with its recognised text. samples: (N,)
    float32 at 16 kHz."""
    return widen_words(sort_spans(recogniser.transcribe(samples).words), len(samples) / SAMPLE_RATE)


def find_words(
    record: Passage | Question, samples: np.ndarray, recogniser: CtcRecogniser | None
) -> tuple[Span, ...]:
    """Find the words of the reference with times: those of the record, or else those of its text,
    aligned by the recogniser. Raises ValueError where there is neither."""
    words = sort_spans(record.words)
    if words:
        return words
    if recogniser is None or not record.text:
        raise ValueError(
            "its manifest has no words with times (`train speechbert --ctc` aligns its text)"
        )
    cores = []
    for word, _ in split_pieces(record.text, record.language):
        first, stop = find_core(word)
        if first < stop:
            cores.append(word[first:stop])
    return make_ctc_aligner(recogniser).align(samples, cores).words


def find_rows(words: Sequence[Span], grid: FrameGrid, frames: int) -> np.ndarray:
    """Find the first row and one past the last row of every word, (W, 2) int64; a word has one row
    at least. frames: number of rows of the recording, not 0."""
    rows = []
    for word in words:
        first = grid.find_sample(word.start)
        last = max(grid.find_sample(word.end) - 1, first)
        rows.append((grid.find_frame(first, frames), grid.find_frame(last, frames) + 1))
    return np.array(rows, np.int64).reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class WordSequence:
    """A word sequence has the words of one recording, cut in one way."""

    numbers: np.ndarray  # (W,) among the words of all recordings
    starts: np.ndarray  # (W,) seconds
    ends: np.ndarray  # (W,)

    def find_inside(self, start: float, end: float) -> np.ndarray:
        """Find the words, counted from 0 in this recording, whose middle is in [start, end)
        seconds."""
        middles = (self.starts + self.ends) / 2
        return np.flatnonzero((middles >= start) & (middles < end))


@dataclass(frozen=True, eq=False)
class WordTable:
    """A word table holds the words of all recordings that a model is trained on."""

    features: np.ndarray | StoredRows  # (F, D)
    rows: np.ndarray  # (N, 2) first row and one past the last
    texts: tuple[str, ...]  # N, "" where the word is not known
    # id of a recording -> one sequence for every way it was cut
    sequences: Mapping[str, tuple[WordSequence, ...]]


def make_word_table(
    features: Any,
    bounds: Mapping[str, tuple[int, int]],
    cuts: Mapping[str, Sequence[Sequence[Span]]],
    grid: FrameGrid,
) -> WordTable:
    """Make a table of words. features: (F, D); bounds: id -> rows of the recording, [first, last);
    cuts: id -> its words, cut in one or more ways."""
    rows = [np.zeros((0, 2), np.int64)]
    texts: list[str] = []
    sequences = {}
    for name, cuttings in cuts.items():
        first, last = bounds[name]
        cut_sequences = []
        for words in cuttings:
            numbers = np.arange(len(texts), len(texts) + len(words))
            starts, ends = np.array([(w.start, w.end) for w in words], float).reshape(-1, 2).T
            cut_sequences.append(WordSequence(numbers, starts, ends))
            rows.append(find_rows(words, grid, last - first) + first)
            texts += [w.text for w in words]
        sequences[name] = tuple(cut_sequences)
    return WordTable(features, np.concatenate(rows), tuple(texts), sequences)


def encode_corpus(
    data: Corpus, features: Features, recogniser: CtcRecogniser | None, folder: Path
) -> WordTable:
    """Make the table of all words of a corpus, cut by the reference and, where there is a
    recogniser, by its output. Features are kept in `folder` (`store_features`).

    Recordings that cannot be read or have no words are set aside and listed. Raises InputError
    where none is left.
    """

    def encode(record: Passage | Question) -> tuple[Tensor, list[list[list[Any]]]]:
        samples = read_audio(data.path(record))
        rows = torch.cat(list(features.stream(samples))).cpu().half()
        reference = find_words(record, samples, recogniser)
        cuttings = [reference]
        if recogniser is not None:
            cuttings.append(attach_texts(recognise_words(recogniser, samples), reference))
        return rows, [[[w.text, w.start, w.end] for w in cutting] for cutting in cuttings]

    grid, width = features.grid, next(features.stream(np.zeros(SAMPLE_RATE, np.float32))).shape[1]
    # bytes: float16
    sizes = {r.id: 2 * width * grid.count_frames(grid.find_sample(r.seconds)) for r in data.records}
    records = {r.id: r for r in data.records}
    made_from = {
        "features": features.card,
        "recogniser": None if recogniser is None else recogniser.card["asr"],
        "recordings": hash_json(list(records)),
    }
    store = store_features(folder, records, encode, sizes, made_from, "audio words")
    cuts = {}
    for name, cuttings in store.facts.items():
        cuts[name] = [tuple(Span(*word) for word in cutting) for cutting in cuttings]
    rows = StoredRows(store)
    return make_word_table(rows, rows.bounds, cuts, grid)


def pad_words(table: WordTable, numbers: np.ndarray) -> dict[str, Tensor]:
    """Pad the features of the words of these numbers in a table. Returns features (B, T, D) float32
    and lengths (B,)."""
    features = []
    for first, last in table.rows[numbers]:
        word = table.features[first : min(last, first + LONGEST)]
        features.append(torch.from_numpy(np.asarray(word, np.float32)))
    return {
        "features": pad_sequence(features, batch_first=True),
        "lengths": torch.tensor([len(f) for f in features]),
    }


@dataclass(frozen=True)
class WordBatches:
    """Calling this gives a batch of stage 1: words of about one length. It depends on (seed, step)
    only.

    In an epoch every word comes at most once; fewer than `size` words are left out, in every epoch
    others.
    """

    table: WordTable
    numbers: np.ndarray  # of the words of the table to train on
    targets: Callable[[np.ndarray], Tensor]  # numbers (B,) -> targets (B, E) of the codes
    size: int = 128  # B
    seed: int = 0

    def __call__(self, step: int) -> Batch:
        count = max(len(self.numbers) // self.size, 1)
        epoch, index = divmod(step, count)
        rng = np.random.default_rng([self.seed, epoch])
        lengths = np.diff(self.table.rows[self.numbers], axis=1)[:, 0]
        # sort by length, which is disturbed so that a word has other neighbours in every epoch
        disturbed_lengths = lengths * rng.uniform(0.8, 1.25, len(lengths))
        order = np.argsort(disturbed_lengths, kind="stable")
        # begin anywhere, so that other words are left over at the end
        order = np.roll(order, int(rng.integers(len(order))))
        # the batches come in random order
        start = int(rng.permutation(count)[index]) * self.size
        chosen = self.numbers[order[start : start + self.size]]
        return pad_words(self.table, chosen) | {"targets": self.targets(chosen)}


# ids (W,) of one recording or text, and for each the word pieces (P,) to predict, which may be none
Sentence = tuple[np.ndarray, Sequence[np.ndarray]]


@dataclass(frozen=True)
class MaskedBatches:
    """Calling this gives a batch of stage 2, which depends on (seed, step) only: half of the
    sequences are text, half speech.

    Texts and recordings are sampled in proportion to their length; a sequence is a random crop of
    at most `window` words.
    """

    text: Sequence[Sentence]
    speech: Sequence[Sentence]
    specials: tuple[int, int, int, int]  # ids of [CLS], [SEP], [PAD] and [MASK]
    vocabulary: int  # V
    words: int  # N
    size: int = 16  # B
    window: int = 100
    share: float = 0.15  # of the positions, as BERT's
    seed: int = 0

    def __call__(self, step: int) -> Batch:
        """Return ids, mask (B, S); targets (B, S, P), NONE where nothing is predicted; speech
        (B,)."""
        rng = np.random.default_rng([self.seed, step])
        half = self.size // 2
        chosen: list[Sentence] = []
        for sentences, count in ((self.text, self.size - half), (self.speech, half)):
            lengths = np.array([len(ids) for ids, _ in sentences], float)
            sampled = rng.choice(len(sentences), count, p=lengths / lengths.sum())
            chosen += [sentences[i] for i in sampled]
        examples = [self.mask_sentence(rng, sentence) for sentence in chosen]
        rows = [torch.from_numpy(ids) for ids, _ in examples]
        ids = pad_sequence(rows, batch_first=True, padding_value=self.specials[2])
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        targets = torch.full((*ids.shape, max(t.shape[1] for _, t in examples)), NONE)
        for row, (_, labels) in enumerate(examples):
            targets[row, : len(labels), : labels.shape[1]] = torch.from_numpy(labels)
        return {
            "ids": ids,
            "mask": mask,
            "targets": targets,
            "speech": (torch.arange(self.size) >= self.size - half).long(),
        }

    def mask_sentence(
        self, rng: np.random.Generator, sentence: Sentence
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return ids (S,) of a crop with [CLS] and [SEP], and targets (S, P)."""
        cls, sep, _, _ = self.specials
        ids, labels = sentence
        first = int(rng.integers(max(len(ids) - self.window, 0) + 1))
        ids = ids[first : first + self.window]
        labels = labels[first : first + self.window]
        chosen = self.choose_positions(rng, labels)
        masked = self.replace_masked(rng, ids)
        ids = np.concatenate([[cls], np.where(chosen, masked, ids), [sep]]).astype(np.int64)
        targets = np.full((len(ids), max(map(len, labels), default=1) or 1), NONE, np.int64)
        for position in np.flatnonzero(chosen).tolist():
            # behind [CLS]
            targets[position + 1, : len(labels[position])] = labels[position]
        return ids, targets

    def choose_positions(
        self, rng: np.random.Generator, labels: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Choose the positions to predict, (S,) bool: `share` of those that have word pieces, and
        at least one."""
        predictable = np.array([len(pieces) > 0 for pieces in labels])
        chosen = predictable & (rng.random(len(predictable)) < self.share)
        if not chosen.any() and predictable.any():
            chosen[rng.choice(np.flatnonzero(predictable))] = True
        return chosen

    def replace_masked(self, rng: np.random.Generator, ids: np.ndarray) -> np.ndarray:
        """Return the ids (S,) that the model reads where it predicts: 80 % [MASK], 10 % another id
        of their kind, 10 % the ids themselves, as in BERT."""
        draw = rng.random(len(ids))
        others = ids.copy()
        spoken = ids >= self.vocabulary
        others[spoken] = self.vocabulary + rng.integers(self.words, size=int(spoken.sum()))
        others[~spoken] = rng.integers(self.vocabulary, size=int((~spoken).sum()))
        mask = self.specials[3]
        return np.where(draw < KEEP, ids, np.where(draw < KEEP + REPLACE, others, mask))


def make_span_examples(data: Corpus, table: WordTable) -> tuple[list[Example], dict[str, str]]:
    """Make the examples of stage 3: for every answerable question one example for each way of
    cutting. Returns the examples, and, id -> reason, the questions that are left out."""
    examples: list[Example] = []
    left_out = {}
    for question in data.answerable:
        times = find_answer_times(question)
        if times is None:
            left_out[question.id] = "no answer has times"
            continue
        before = len(examples)
        question_cuts = table.sequences.get(question.id, ())
        passage_cuts = table.sequences.get(question.passage, ())
        for question_words, passage_words in zip(question_cuts, passage_cuts, strict=False):
            in_answer = passage_words.find_inside(*times)
            if len(question_words.numbers) and len(in_answer):
                first, last = in_answer[[0, -1]].tolist()
                tokens = question_words.numbers + SPECIALS, passage_words.numbers + SPECIALS
                examples.append(Example(*tokens, first, last))
        if len(examples) == before:
            left_out[question.id] = (
                f"it, or the answer in passage {question.passage}, has no audio word"
            )
    return examples, left_out


def stack_codes(codes: Mapping[K, np.ndarray], width: int) -> tuple[Tensor, dict[K, np.ndarray]]:
    """Join the codes (W, E) of recordings in one table (N, E). Returns the table, and for each
    recording the ids (W,) of its words. width: E."""
    ids = {}
    first = SPECIALS
    for name, rows in codes.items():
        ids[name] = np.arange(first, first + len(rows))
        first += len(rows)
    table = np.concatenate([np.zeros((0, width), np.float32), *codes.values()])
    return torch.from_numpy(table), ids
