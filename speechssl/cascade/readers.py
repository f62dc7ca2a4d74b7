"""Read words by text QA of `speechssl train text-qa`, or by an extractive-QA checkpoint of Hugging
Face.

A checkpoint is asked as transformers' run_qa.py asks it (windows, joined by its own tokeniser; a
span is worth both of its logits, "no answer" both at [CLS], the least of all windows: arXiv
1810.04805, section 4.3), but every pair of a start and an end is looked at, not those of the 20
best.
Letters: B sequences, S tokens in a sequence, P tokens of a passage.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from speechssl.artifacts import read_json
from speechssl.cascade.data import TimedWord, Transcript
from speechssl.cascade.options import ReaderOptions
from speechssl.checkpoints import checkpoint_folder, hash_of_weights
from speechssl.dual.data import Window
from speechssl.dual.model import load_reader
from speechssl.dual.system import (
    Reader,
    best_span_of_windows,
    choose_device,
    retrieve_windows,
    run_model,
)
from speechssl.errors import InputError
from speechssl.options import find_shipped
from speechssl.textlm.encoders import longest_sequence, reason_of, text_config
from speechssl.textlm.layers import SHIFT, load_shift
from speechssl.textlm.tokenizers import TextCodec, load_tokenizer, read_tokenizer, word_pieces

if TYPE_CHECKING:  # it takes seconds to import
    from transformers import PreTrainedTokenizerBase

lengths_of = attrgetter("max_seq_length", "doc_stride", "max_answer_length")  # of ReaderOptions


@dataclass(frozen=True)
class WordSpan:
    """An answer is words first..last of a passage, inclusive, and its text.

    score, null: of the span and of "no answer", on one scale. confidence: in [0, 1].
    """

    first: int
    last: int
    text: str
    score: float
    null: float
    confidence: float


@dataclass(frozen=True)
class TextQa:
    """Text QA has a reader, what the card of a system says of it, and what it adds to the system's
    name: nothing where it is the models' own.

    threshold: "no answer" is the answer where it is worth more than the best span by more than
    this; None: there always is one.
    """

    reader: TrainedReader | HuggingFaceReader
    card: dict[str, Any] = field(default_factory=dict)
    suffix: str = ""
    threshold: float | None = None


def load_text_qa(models: Path, options: ReaderOptions, bf16: bool = False) -> TextQa:
    """Load the reader that the options name, or `text-qa/` of the models: trained here, or a
    checkpoint of Hugging Face.

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
    shift = options.shift
    if shift is None and (folder / SHIFT).is_file():
        shift = folder / SHIFT
    added, shifted = load_shift(shift) if shift else (None, {})
    if added:
        card["shift"] = shifted
    reader: TrainedReader | HuggingFaceReader
    if "symbols" not in read_json(folder / "config.json"):  # which `dual.model.save_reader` adds
        reader = load_huggingface(folder, options, bf16)
        encoder = reader.model.base_model
        card |= {"text_qa": hash_of_weights(str(folder)), "lengths": lengths_of(options)}
    else:
        if lengths_of(options) != lengths_of(ReaderOptions()):
            raise InputError(
                f"{folder} was trained by `speechssl train text-qa`, whose lengths are in its "
                "card; leave out --max-seq-length, --doc-stride and --max-answer-length"
            )
        model, layout, reader_card = load_reader(folder, answering=True)
        if reader_card.get("what") == "DUAL reader":
            raise InputError(
                f"{folder} is a DUAL reader, of units and not of words; give its --encoder and "
                "--codebook as well, or a reader of `train text-qa`"
            )
        encoder = model.encoder
        codec = TextCodec(word_pieces(folder) or load_tokenizer(folder))
        reader = TrainedReader(codec, Reader(model, layout, bf16=bf16))
        card |= {"text_qa": reader_card["weights"], "layout": reader_card["layout"]}
    if added:
        added.attach(encoder)
    suffix = ""
    if options.named and options.reader:
        suffix = f"+{Path(options.reader).absolute().name}"
    if options.named and options.shift:
        suffix += f"~{options.shift.stem}"
    return TextQa(reader, card, suffix, options.null_threshold)


def find_reader(models: Path, name: str | None) -> Path:
    """Find a reader. name: a folder, a hub id, or what ships; None: text-qa/ of the models. Raises
    InputError where there is none."""
    if name is not None:
        return checkpoint_folder(find_shipped(Path(name)) or name, "reader")
    if not (models / "text-qa").is_dir():
        raise InputError(
            f"{models} has no text-qa/; train one (speechssl train text-qa), or name a "
            "question-answering model of Hugging Face with --reader"
        )
    return models / "text-qa"


# ---- readers that were trained here


@dataclass(frozen=True)
class TrainedReader:
    """The reader reads with a span model on word pieces."""

    codec: TextCodec
    reader: Reader

    def limit_windows(self, count: int) -> TrainedReader:
        """Make a reader that reads no more windows of a passage than these, which are most like the
        question."""
        return replace(self, reader=replace(self.reader, retrieve=count))

    def read(self, items: Sequence[tuple[Transcript, Transcript]]) -> list[WordSpan | None]:
        """Find the best span of each passage. items: (question, passage); None where it has no word
        that can be read."""
        coded = []
        for question, passage in items:
            question_ids, _ = self.codec.encode([w.text for w in question.words])
            coded.append((question_ids, *self.codec.encode([w.text for w in passage.words])))
        usable = [i for i, (_, ids, _) in enumerate(coded) if len(ids)]
        spans = self.reader.read([coded[i][:2] for i in usable])
        answers: list[WordSpan | None] = [None] * len(items)
        for i, span in zip(usable, spans, strict=True):
            passage, owners = items[i][1], coded[i][2]
            first, last = int(owners[span.first]), int(owners[span.last])
            text = passage.separator.join(w.text for w in passage.words[first : last + 1])
            answers[i] = WordSpan(first, last, text, span.score, span.null, span.confidence)
        return answers


# ---- readers of Hugging Face


def load_huggingface(folder: Path, options: ReaderOptions, bf16: bool = False) -> HuggingFaceReader:
    """Load a checkpoint of Hugging Face. Raises InputError for a checkpoint that cannot be loaded
    whole, or cannot find a span in a line of text."""
    remedy = (
        "give one that was fine-tuned for extractive question answering "
        "(AutoModelForQuestionAnswering), with its tokeniser"
    )
    from transformers import AutoModelForQuestionAnswering

    try:
        config = text_config(folder)
        if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
            # T5's, which a T5Config of transformers does not say
            config.decoder_start_token_id = config.pad_token_id
        loader: Any = AutoModelForQuestionAnswering
        model, info = loader.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            output_loading_info=True,
            trust_remote_code=False,
        )
        lacking = sorted(info["missing_keys"])
        if lacking:  # they would be random
            raise ValueError(
                f"it lacks {len(lacking)} weights, such as {lacking[0]}, which only fine-tuning "
                "makes"
            )
        tokenizer = read_tokenizer(folder, remedy)
        if not tokenizer.is_fast:
            raise ValueError("its tokeniser does not say where in a text its tokens stand")
        reader = HuggingFaceReader(model.eval().requires_grad_(False), tokenizer, options, bf16)
        # a model may want images, boxes or other outputs
        line = Transcript((TimedWord("anna", math.nan, math.nan, math.nan),))
        reader.read([(line, line)])
    except InputError:
        raise
    except Exception as error:  # transformers and safetensors each raise their own
        raise InputError(
            f"cannot load the reader {folder} ({reason_of(error)}); {remedy}"
        ) from error
    return reader


class JoinedText(NamedTuple):
    """A joined text is a question and a passage as one sequence.

    ids, segments: (S,), segments all 0 where the tokeniser gives none; part: (S,), 1 for the
    passage, 0 for the question, -1 for specials; characters: (P, 2), where each token of the
    passage begins and ends in its text.
    """

    ids: np.ndarray
    segments: np.ndarray
    part: np.ndarray
    characters: np.ndarray


class TextWindow(NamedTuple):
    """A window of a passage has its question with it. item: number of the pair; window: which
    tokens of the passage; ids, segments: (S,); offset: position of the first of them."""

    item: int
    window: Window
    ids: np.ndarray
    segments: np.ndarray
    offset: int


def join_text(
    tokenizer: PreTrainedTokenizerBase, question: str, words: Sequence[str], separator: str
) -> JoinedText:
    """Join question and passage in the tokeniser's own way, as transformers has it for text. words:
    of the passage, with `separator` between them."""
    passage = separator.join(words)
    # run_qa.py puts the passage first where padding is on the left (XLNet)
    last = tokenizer.padding_side == "right"
    pair = (question, passage) if last else (passage, question)
    encoded = tokenizer(*pair, return_offsets_mapping=True, verbose=False)
    part = np.array([-1 if p is None else int(p == int(last)) for p in encoded.sequence_ids()])
    offsets = np.array(encoded["offset_mapping"]).reshape(-1, 2)
    ids = np.array(encoded["input_ids"], np.int64)
    segments = np.array(encoded.get("token_type_ids", np.zeros_like(ids)), np.int64)
    return JoinedText(ids, segments, part, _without_gaps(offsets[part == 1], passage))


def _without_gaps(characters: np.ndarray, text: str) -> np.ndarray:
    """Give letters before a token that no token has to this token. Returns offsets (P, 2).

    ByteLevel with `trim_offsets` takes the space that it put before a word for the word's first
    letter.
    """
    whole, covered = characters.copy(), 0
    for token in whole:
        while token[0] > covered and not text[token[0] - 1].isspace():
            token[0] -= 1
        covered = max(covered, token[1])
    return whole


def word_bounds(words: Sequence[str], separator: str) -> tuple[np.ndarray, np.ndarray]:
    """Find where each word begins and ends in the text, in characters."""
    sizes = np.array([len(word) for word in words], np.int64)
    ends = np.cumsum(sizes + len(separator)) - len(separator)
    return ends - sizes, ends


def cut_at_words(text: str, start: int, end: int, separator: str) -> str:
    """Cut the part [start, end) out of a text, with the rest of the letters, or of the digits, that
    it begins and ends within.

    Tokens may be parts of words, and some tokenisers give offsets that begin one character late.
    separator: between the words; "" where every character is one.
    """

    def is_within(place: int) -> bool:
        """Tell whether the characters on both sides are letters, or digits."""
        pair = text[place - 1 : place + 1]
        return 0 < place < len(text) and (pair.isalpha() or pair.isdecimal())

    while separator and is_within(start):
        start -= 1
    while separator and is_within(end):
        end += 1
    return text[start:end]


def written_words(transcript: Transcript) -> list[str]:
    """Return the words of a transcript as they are written; small letters where all are capitals,
    which some recognisers write and no one else."""
    words = [word.text for word in transcript.words]
    return [word.lower() for word in words] if "".join(words).isupper() else words


@dataclass(frozen=True)
class HuggingFaceReader:
    """The reader reads with a question-answering model of transformers and its tokeniser. The model
    is moved to a GPU where there is one."""

    model: Any
    tokenizer: PreTrainedTokenizerBase
    options: ReaderOptions = ReaderOptions()
    bf16: bool = False
    retrieve: int | None = None  # windows of a passage that are read; None: all
    batch: int = 16

    def limit_windows(self, count: int) -> HuggingFaceReader:
        return replace(self, retrieve=count)

    def __post_init__(self) -> None:
        self.model.to(choose_device("auto"))

    def read(self, items: Sequence[tuple[Transcript, Transcript]]) -> list[WordSpan | None]:
        """Find spans as `TrainedReader` does. The text of an answer is what the span holds of the
        passage: of a word with punctuation or digits in it perhaps a part, but no part of its
        letters. Warns of questions that fill more than half of a window: they lose their tail.
        """
        length = self.options.max_seq_length
        length = min(length, longest_sequence(self.model) or length)
        texts: list[list[str]] = []
        joined: list[JoinedText] = []
        for question, passage in items:
            asked = question.separator.join(written_words(question))
            texts.append(written_words(passage))
            joined.append(join_text(self.tokenizer, asked, texts[-1], passage.separator))
        long = sum((one.part == 0).sum() > _longest_question(one, length) for one in joined)
        if long:
            warnings.warn(
                f"{long} of {len(items)} questions lost what is beyond half of {length} tokens",
                stacklevel=3,
            )
        windows: list[TextWindow] = []
        for i, one in enumerate(joined):
            windows += self._cut_windows(i, one, length)

        def find_logits(**inputs: torch.Tensor) -> torch.Tensor:
            """Return (B, S, 2): start and end."""
            outputs = self.model(**inputs)
            return torch.stack([outputs.start_logits, outputs.end_logits], -1)

        sequences = [(w.ids, w.segments) for w in windows]
        device = next(self.model.parameters()).device
        rows = run_model(find_logits, device, sequences, self._collate, self.batch, self.bf16)
        scored: list[list[tuple[Window, np.ndarray, np.ndarray]]] = [[] for _ in items]
        for w, row in zip(windows, rows, strict=True):
            scores = row.double().numpy()
            of_passage = scores[w.offset : w.offset + w.window.length]
            scored[w.item].append((w.window, of_passage, scores[self._find_null(w.ids)]))
        answers: list[WordSpan | None] = []
        for i, (_, passage) in enumerate(items):
            if scored[i]:
                answers.append(self._answer(scored[i], joined[i], texts[i], passage.separator))
            else:
                answers.append(None)
        return answers

    def _find_null(self, ids: np.ndarray) -> int:
        """Find where "no answer" is scored: at [CLS], or at what begins a sequence."""
        for token in (self.tokenizer.cls_token_id, self.tokenizer.bos_token_id):
            places = np.flatnonzero(ids == token)
            if len(places):
                return int(places[0])
        return 0

    def _answer(
        self,
        scored: Sequence[tuple[Window, np.ndarray, np.ndarray]],
        joined: JoinedText,
        words: Sequence[str],
        separator: str,
    ) -> WordSpan:
        """Return the best span of all windows, in words of the passage."""
        span = best_span_of_windows(scored, self.options.max_answer_length, 1.0, 1.0)
        start = int(joined.characters[span.first, 0])
        end = int(joined.characters[span.last, 1])
        starts, ends = word_bounds(words, separator)
        first = min(int(np.searchsorted(ends, start, "right")), len(words) - 1)
        last = max(int(np.searchsorted(starts, end, "left")) - 1, first)
        text = cut_at_words(separator.join(words), start, end, separator).strip() or words[first]
        return WordSpan(first, last, text, span.score, span.null, span.confidence)

    def _cut_windows(self, item: int, one: JoinedText, length: int) -> list[TextWindow]:
        """Cut windows of at most `length` tokens, as fast tokenisers do."""
        mask = np.ones(len(one.ids), bool)
        mask[np.flatnonzero(one.part == 0)[_longest_question(one, length) :]] = False
        ids, segments = one.ids[mask], one.segments[mask]
        places = np.flatnonzero(one.part[mask] == 1)
        total = len(places)
        if not total:
            return []
        room = max(length - (len(ids) - total), 1)
        shared = self.options.doc_stride if self.options.doc_stride < room else room // 2
        starts = range(0, max(total - shared, 1), room - shared)
        every = tuple(Window(first, min(room, total - first)) for first in starts)
        before, after = np.arange(places[0]), np.arange(places[-1] + 1, len(ids))
        cut = []
        for window in retrieve_windows(every, one.ids[one.part == 0], ids[places], self.retrieve):
            kept = np.r_[before, places[window.first : window.stop], after]
            cut.append(TextWindow(item, window, ids[kept], segments[kept], int(places[0])))
        return cut

    def _collate(
        self, sequences: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> dict[str, torch.Tensor]:
        """Return the model's keyword arguments, (B, S) each. Padding is last whatever the
        tokeniser's side: no position depends on it."""
        ids = [torch.from_numpy(ids) for ids, _ in sequences]
        pad = self.tokenizer.pad_token_id or 0
        inputs = {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=pad),
            "attention_mask": pad_sequence([torch.ones_like(i) for i in ids], batch_first=True),
        }
        name = "token_type_ids"
        if (
            name in inspect.signature(self.model.forward).parameters
            and getattr(self.model.config, "type_vocab_size", 2) > 1
            and name in self.tokenizer.model_input_names
        ):
            segments = [torch.from_numpy(segments) for _, segments in sequences]
            inputs[name] = pad_sequence(segments, batch_first=True)
        return inputs


def _longest_question(one: JoinedText, length: int) -> int:
    """Return how many tokens of a question are read."""
    return max(length // 2 - int((one.part == -1).sum()), 0)
