"""Find answers in words: by text QA of `speechssl train text-qa`, or by an extractive-QA checkpoint
of Hugging Face.

A checkpoint reads as in transformers' run_qa.py: in windows, which its own tokeniser joins to the
question. The score of a span is the sum of its start and end logits; that of "no answer" is the sum
of both logits at [CLS], in the window where it is least (arXiv 1810.04805, section 4.3). Here every
pair of a start and an end is a candidate; run_qa.py takes those of the 20 best starts and ends.
Letters: B sequences, S tokens in a sequence, P tokens of a passage.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from speechssl.artifacts import read_json
from speechssl.cascade.data import TimedWord, Transcript
from speechssl.cascade.options import ReaderOptions
from speechssl.checkpoints import fetch_checkpoint, hash_checkpoint
from speechssl.dual.data import Window
from speechssl.dual.model import load_reader
from speechssl.dual.system import (
    Reader,
    ScoredWindow,
    choose_device,
    find_best_span_of_windows,
    retrieve_windows,
    run_model,
)
from speechssl.errors import InputError
from speechssl.options import find_shipped
from speechssl.textlm.encoders import (
    check_missing,
    count_positions,
    read_text_config,
    shorten_error,
)
from speechssl.textlm.layers import SHIFT, Shift, load_shift
from speechssl.textlm.tokenizers import TextCodec, load_tokenizer, read_tokenizer, read_wordpiece

if TYPE_CHECKING:  # it takes seconds to import
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class WordSpan:
    """An answer has the words first..last of a passage, inclusive, and a text."""

    first: int
    last: int
    text: str
    score: float
    null: float  # score of "no answer", on the same scale
    confidence: float  # in [0, 1]


@dataclass(frozen=True)
class TextQa:
    """Text QA is a reader, with what it adds to the card and the name of a system."""

    reader: TrainedReader | HuggingFaceReader
    card: dict[str, Any] = field(default_factory=dict)
    suffix: str = ""  # of the system's name; "" for the reader in the folder of models
    # "no answer" is given where its score exceeds that of the best span by more than this; None:
    # never
    threshold: float | None = None


def load_text_qa(models: Path, options: ReaderOptions, bf16: bool = False) -> TextQa:
    """Load the reader that the options name, or that in `text-qa/` of the folder of models: one
    that was trained here, or a checkpoint of Hugging Face. bf16: whether it computes in bfloat16.

    Raises InputError where it cannot be found, loaded whole, or used.
    """
    folder = find_reader(models, options.reader)
    card: dict[str, Any] = {}
    if options.reader:
        card["reader"] = options.reader
    if bf16:
        card["bf16"] = True
    if options.null_threshold is not None:
        card["null_threshold"] = options.null_threshold
    shift_path = options.shift
    if shift_path is None and (folder / SHIFT).is_file():
        shift_path = folder / SHIFT
    shift: Shift | None = None
    if shift_path is not None:
        shift, card["shift"] = load_shift(shift_path)
    reader: TrainedReader | HuggingFaceReader
    is_trained_here = "symbols" in read_json(folder / "config.json")  # by `dual.model.save_reader`
    if is_trained_here:
        reader, facts = _load_trained(folder, bf16)
        card |= facts
    else:
        reader = load_huggingface(folder, options, bf16)
        lengths = (options.max_seq_length, options.doc_stride, options.max_answer_length)
        card |= {"text_qa": hash_checkpoint(str(folder)), "lengths": lengths}
    if shift is not None:
        shift.attach(reader.encoder)
    return TextQa(reader, card, _name_suffix(options), options.null_threshold)


def _name_suffix(options: ReaderOptions) -> str:
    """Return what a reader and its shift add to the name of a system, such as "+minilm~shift"."""
    suffix = ""
    if options.named and options.reader:
        suffix = f"+{Path(options.reader).absolute().name}"
    if options.named and options.shift:
        suffix += f"~{options.shift.stem}"
    return suffix


def find_reader(models: Path, name: str | None) -> Path:
    """Find the folder of a reader. name: a folder, a hub id, or a reader that ships; None: text-qa/
    of the folder of models. Raises InputError where there is none."""
    if name is not None:
        return fetch_checkpoint(find_shipped(Path(name)), "reader")
    if not (models / "text-qa").is_dir():
        raise InputError(
            f"{models} has no text-qa/; train one (speechssl train text-qa), or name a "
            "question-answering model of Hugging Face with --reader"
        )
    return models / "text-qa"


# ---- readers that were trained here


@dataclass(frozen=True)
class TrainedReader:
    """This reader finds answers by a span model on word pieces, which was trained here."""

    codec: TextCodec
    reader: Reader

    @property
    def encoder(self) -> Any:
        return self.reader.model.encoder

    def limit_windows(self, count: int) -> TrainedReader:
        """Return this reader for at most `count` windows of each passage: those that are most like
        the question."""
        return replace(self, reader=replace(self.reader, retrieve=count))

    def read(self, items: Sequence[tuple[Transcript, Transcript]]) -> list[WordSpan | None]:
        """Find the best span of each passage; None where the passage has no word with tokens.
        items: (question, passage)."""
        usable: list[int] = []  # numbers of the items whose passages have tokens
        pairs = []
        word_of_token = []
        for i, (question, passage) in enumerate(items):
            question_ids, _ = self.codec.encode([w.text for w in question.words])
            ids, word_numbers = self.codec.encode([w.text for w in passage.words])
            if len(ids):
                usable.append(i)
                pairs.append((question_ids, ids))
                word_of_token.append(word_numbers)
        spans = self.reader.read(pairs)
        answers: list[WordSpan | None] = [None] * len(items)
        for i, word_numbers, span in zip(usable, word_of_token, spans, strict=True):
            _, passage = items[i]
            first, last = int(word_numbers[span.first]), int(word_numbers[span.last])
            text = passage.separator.join(w.text for w in passage.words[first : last + 1])
            answers[i] = WordSpan(first, last, text, span.score, span.null, span.confidence)
        return answers


def _load_trained(folder: Path, bf16: bool) -> tuple[TrainedReader, dict[str, Any]]:
    """Load a reader that was trained here; return it with its entries of a system's card. Raises
    InputError for a reader of units, which has no tokeniser."""
    model, layout, card = load_reader(folder, answering=True)
    codec = TextCodec(read_wordpiece(folder) or load_tokenizer(folder))
    reader = TrainedReader(codec, Reader(model.to(choose_device()), layout, bf16=bf16))
    return reader, {"text_qa": card["weights"], "layout": card["layout"]}


# ---- readers of Hugging Face


def load_huggingface(folder: Path, options: ReaderOptions, bf16: bool = False) -> HuggingFaceReader:
    """Load a checkpoint of Hugging Face. Raises InputError for a checkpoint that cannot be loaded
    whole, or that fails to find a span in a line of text."""
    from transformers import AutoModelForQuestionAnswering

    remedy = (
        "give one that was fine-tuned for extractive question answering "
        "(AutoModelForQuestionAnswering), with its tokeniser"
    )
    try:
        config = read_text_config(folder)
        if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
            # T5 starts its decoder with padding, but transformers' T5Config does not say so
            config.decoder_start_token_id = config.pad_token_id
        loader: Any = AutoModelForQuestionAnswering
        model, info = loader.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            output_loading_info=True,
            trust_remote_code=False,
        )
        check_missing(info["missing_keys"], ", which only fine-tuning makes")
        tokenizer = read_tokenizer(folder, remedy)
        if not tokenizer.is_fast:
            raise ValueError("its tokeniser does not say where in a text its tokens stand")
        model = model.eval().requires_grad_(False).to(choose_device())
        reader = HuggingFaceReader(model, tokenizer, options, bf16)
        # reading one word tells whether the model needs other inputs, such as images or boxes
        one_word = Transcript((TimedWord("anna", math.nan, math.nan, math.nan),))
        reader.read([(one_word, one_word)])
    except InputError:
        raise
    except Exception as error:  # transformers and safetensors each raise their own
        raise InputError(
            f"cannot load the reader {folder} ({shorten_error(error)}); {remedy}"
        ) from error
    return reader


class JoinedText(NamedTuple):
    """A question and a passage are joined to one sequence of tokens."""

    ids: np.ndarray  # (S,)
    segments: np.ndarray  # (S,), all 0 where the tokeniser gives none
    part: np.ndarray  # (S,), 1 for the passage, 0 for the question, -1 for special tokens
    characters: np.ndarray  # (P, 2), where each token of the passage begins and ends in its text
    words: Sequence[str]  # of the passage
    separator: str  # between the words


class TextWindow(NamedTuple):
    """A window of a passage is joined with the question to one sequence of tokens."""

    item: int  # number of the pair of question and passage
    window: Window
    ids: np.ndarray  # (S,)
    segments: np.ndarray  # (S,)
    offset: int  # place of the window's first token in the sequence


def join_text(
    tokenizer: PreTrainedTokenizerBase, question: str, words: Sequence[str], separator: str
) -> JoinedText:
    """Join a question and a passage as the tokeniser joins two texts. words: of the passage, with
    `separator` between them."""
    passage = separator.join(words)
    # run_qa.py puts the passage first where padding is on the left (XLNet)
    passage_last = tokenizer.padding_side == "right"
    pair = (question, passage) if passage_last else (passage, question)
    encoded = tokenizer(*pair, return_offsets_mapping=True, verbose=False)
    part = np.full(len(encoded["input_ids"]), -1)
    for token, text_number in enumerate(encoded.sequence_ids()):
        if text_number is not None:
            part[token] = text_number == int(passage_last)
    offsets = np.array(encoded["offset_mapping"]).reshape(-1, 2)
    characters = _close_gaps(offsets[part == 1], passage)
    ids = np.array(encoded["input_ids"], np.int64)
    segments = np.array(encoded.get("token_type_ids", np.zeros_like(ids)), np.int64)
    return JoinedText(ids, segments, part, characters, words, separator)


def _close_gaps(characters: np.ndarray, text: str) -> np.ndarray:
    """Extend the offsets (P, 2) of tokens to the letters before each that belong to no token:
    ByteLevel with `trim_offsets` gives offsets that lack the first letter of a word."""
    extended = characters.copy()
    covered = 0  # characters before this one belong to a token
    for token in extended:
        while token[0] > covered and not text[token[0] - 1].isspace():
            token[0] -= 1
        covered = max(covered, token[1])
    return extended


def find_word_bounds(words: Sequence[str], separator: str) -> tuple[np.ndarray, np.ndarray]:
    """Find where each word begins and ends in the joined text, in characters: (W,) each."""
    sizes = np.array([len(word) for word in words], np.int64)
    ends = np.cumsum(sizes + len(separator)) - len(separator)
    return ends - sizes, ends


def cut_at_words(text: str, start: int, end: int, separator: str) -> str:
    """Cut the characters [start, end) out of a text; where they begin or end inside a run of
    letters or a run of digits, the whole run is taken.

    A span needs this where tokens are parts of words, or begin one character late. separator:
    between the words; "" where every character is a word, so that nothing is added.
    """
    while separator and _is_within_word(text, start):
        start -= 1
    while separator and _is_within_word(text, end):
        end += 1
    return text[start:end]


def _is_within_word(text: str, place: int) -> bool:
    """Return whether the characters on both sides of a place are both letters or both digits."""
    pair = text[place - 1 : place + 1]
    return 0 < place < len(text) and (pair.isalpha() or pair.isdecimal())


def list_written_words(transcript: Transcript) -> list[str]:
    """List the words of a transcript, in lower case where the recogniser writes capitals only."""
    words = [word.text for word in transcript.words]
    if "".join(words).isupper():
        return [word.lower() for word in words]
    return words


@dataclass(frozen=True)
class HuggingFaceReader:
    """This reader finds answers by a question-answering model of transformers and its
    tokeniser."""

    model: Any
    tokenizer: PreTrainedTokenizerBase
    options: ReaderOptions
    bf16: bool
    retrieve: int | None = None  # windows of a passage that are read; None: all
    batch: int = 16

    @property
    def encoder(self) -> Any:
        return self.model.base_model

    def limit_windows(self, count: int) -> HuggingFaceReader:
        """Return this reader for at most `count` windows of each passage, as `TrainedReader`
        does."""
        return replace(self, retrieve=count)

    def read(self, items: Sequence[tuple[Transcript, Transcript]]) -> list[WordSpan | None]:
        """Find spans as `TrainedReader` does. The text of an answer is cut out of the passage by
        `cut_at_words`. Questions are cut off that fill more than half of a window."""
        length = self.options.max_seq_length
        length = min(length, count_positions(self.model) or length)
        pairs: list[JoinedText] = []
        for question, passage in items:
            text = question.separator.join(list_written_words(question))
            words = list_written_words(passage)
            pairs.append(join_text(self.tokenizer, text, words, passage.separator))
        windows: list[TextWindow] = []
        for i, pair in enumerate(pairs):
            windows += self._cut_windows(i, pair, length)

        sequences = [(w.ids, w.segments) for w in windows]
        device = next(self.model.parameters()).device
        rows = run_model(
            self._compute_logits, device, sequences, self._collate, self.batch, self.bf16
        )
        scored: list[list[ScoredWindow]] = [[] for _ in items]
        for w, row in zip(windows, rows, strict=True):
            logits = row.double().numpy()
            window_logits = logits[w.offset : w.offset + w.window.length]
            cls_logits = logits[self._find_null(w.ids)]
            scored[w.item].append(ScoredWindow(w.window, window_logits, cls_logits))
        answers: list[WordSpan | None] = []
        for pair, pair_windows in zip(pairs, scored, strict=True):
            answers.append(self._answer(pair_windows, pair) if pair_windows else None)
        return answers

    def _compute_logits(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Compute start and end logits, (B, S, 2). inputs: those that `_collate` makes."""
        outputs = self.model(**inputs)
        return torch.stack([outputs.start_logits, outputs.end_logits], -1)

    def _find_null(self, ids: np.ndarray) -> int:
        """Find the token that scores "no answer": [CLS], or else that which begins a sequence, or
        else the first."""
        for token in (self.tokenizer.cls_token_id, self.tokenizer.bos_token_id):
            positions = np.flatnonzero(ids == token)
            if len(positions):
                return int(positions[0])
        return 0

    def _answer(self, scored: Sequence[ScoredWindow], joined: JoinedText) -> WordSpan:
        """Return the best span of all windows of a passage, in words of the passage."""
        span = find_best_span_of_windows(scored, self.options.max_answer_length, 1.0, 1.0)
        start = int(joined.characters[span.first, 0])
        end = int(joined.characters[span.last, 1])
        words, separator = joined.words, joined.separator
        starts, ends = find_word_bounds(words, separator)
        first = min(int(np.searchsorted(ends, start, "right")), len(words) - 1)
        last = max(int(np.searchsorted(starts, end, "left")) - 1, first)
        text = cut_at_words(separator.join(words), start, end, separator).strip() or words[first]
        return WordSpan(first, last, text, span.score, span.null, span.confidence)

    def _cut_windows(self, item: int, joined: JoinedText, length: int) -> list[TextWindow]:
        """Cut a passage into windows of at most `length` tokens, with the question, as fast
        tokenisers do. item: number of the pair."""
        question = np.flatnonzero(joined.part == 0)  # positions in the sequence
        passage = np.flatnonzero(joined.part == 1)
        if not len(passage):
            return []
        # at most half of a window, less the special tokens, is read of a question
        limit = max(length // 2 - int((joined.part == -1).sum()), 0)
        others = np.setdiff1d(np.flatnonzero(joined.part != 1), question[limit:])
        before, after = others[others < passage[0]], others[others > passage[-1]]
        size = max(length - len(others), 1)
        overlap = self.options.doc_stride
        if overlap >= size:
            overlap = size // 2
        windows = []
        for first in range(0, max(len(passage) - overlap, 1), size - overlap):
            windows.append(Window(first, min(size, len(passage) - first)))
        ids, segments = joined.ids, joined.segments
        text_windows = []
        for window in retrieve_windows(tuple(windows), ids[question], ids[passage], self.retrieve):
            inside = passage[window.first : window.stop]
            positions = np.concatenate([before, inside, after])
            text_windows.append(
                TextWindow(item, window, ids[positions], segments[positions], len(before))
            )
        return text_windows

    def _collate(
        self, sequences: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> dict[str, torch.Tensor]:
        """Return the model's keyword arguments, (B, S) each. sequences: ids and segments, (S,)
        each. Padding is put last even where the tokeniser puts it first: no position depends on
        it."""
        ids = [torch.from_numpy(ids) for ids, _ in sequences]
        pad = self.tokenizer.pad_token_id or 0
        inputs = {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=pad),
            "attention_mask": pad_sequence([torch.ones_like(i) for i in ids], batch_first=True),
        }
        if self._has_segments():
            segments = [torch.from_numpy(segments) for _, segments in sequences]
            inputs["token_type_ids"] = pad_sequence(segments, batch_first=True)
        return inputs

    def _has_segments(self) -> bool:
        """Return whether model and tokeniser have a segment for each of two texts."""
        name = "token_type_ids"
        if name not in self.tokenizer.model_input_names:
            return False
        if getattr(self.model.config, "type_vocab_size", 2) < 2:
            return False
        return name in inspect.signature(self.model.forward).parameters
