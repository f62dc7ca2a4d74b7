"""A reader gets a question and windows of a passage as sequences of token ids; here are these
sequences, and examples and batches of them to train on.

A sequence is `[CLS] question [SEP] window [SEP]`. Its tokens are units (DUAL), word pieces (text
QA, the cascade) or audio words (SpeechBERT); nothing here knows which. Spans are inclusive at both
ends: a span of one token has first == last.
Letters: B sequences, S tokens in a sequence, Q tokens in a question, P tokens in a passage, K units
of a codebook.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from speechssl.data.records import Corpus, Question, hash_data
from speechssl.dual.options import MAX_TOKENS, QaOptions
from speechssl.errors import InputError
from speechssl.timing import FrameGrid, RunLength, find_units

if TYPE_CHECKING:  # the Trainer takes long to import, and answering does not need it
    from speechssl.training import Batch
    from speechssl.units.pieces import Pieces


@dataclass(frozen=True)
class Window:
    """A window holds tokens first to first + length - 1 of a passage."""

    first: int
    length: int

    @property
    def stop(self) -> int:
        """Return one past the number of the last token."""
        return self.first + self.length


def cut_windows(total: int, size: int, stride: int) -> tuple[Window, ...]:
    """Cut a passage of `total` tokens into windows of `size`, `stride` apart; the last one ends
    flush with the passage.

    Every token is covered, and every span of at most size - stride + 1 tokens lies wholly in some
    window. A passage that is not longer than `size` is one window; one without tokens has none.
    T5lephone (arXiv 2211.00586) slides by 256 tokens.
    """
    if total <= size:
        return (Window(0, total),) if total else ()
    starts = [*range(0, total - size, stride), total - size]
    return tuple(Window(start, size) for start in starts)


@dataclass(frozen=True)
class Layout:
    """A layout says how a question and a passage become sequences. All sizes are in tokens; the
    names of the fields are keys of cards."""

    # ids of [CLS], [SEP] and [PAD]
    cls: int
    sep: int
    pad: int
    size: int = 320  # passage tokens a window
    stride: int = 160
    question: int = 120  # longer questions lose their tail
    answer: int = MAX_TOKENS  # longest answer
    # weights of start and end in the score of a span; 1 and 1 are BERT's, DUAL's are in
    # `dual.system`
    start_weight: float = 1.0
    end_weight: float = 1.0
    attention_width: int = 0  # tokens that a token sees on either side; 0: all of the sequence

    def make_sequence(self, question: np.ndarray, window: np.ndarray) -> tuple[np.ndarray, int]:
        """Return the ids (S,) of a question and a window, and the position of the window's first
        token."""
        question = question[: self.question]
        ids = np.concatenate([[self.cls], question, [self.sep], window, [self.sep]])
        return ids.astype(np.int64), len(question) + 2

    @property
    def symbols(self) -> int:
        """Return the number of units, whose ids come before those of specials. It is 0 for word
        pieces and audio words, whose specials come first."""
        return min(self.cls, self.sep, self.pad)


def collate(sequences: Sequence[tuple[np.ndarray, int]], pad: int) -> dict[str, torch.Tensor]:
    """Pad sequences to one length; return ids, mask, segments (B, S). Segments are BERT's: 1 for
    the window and its [SEP], 0 for the rest."""
    rows = [torch.from_numpy(sequence) for sequence, _ in sequences]
    ids = pad_sequence(rows, batch_first=True, padding_value=pad)
    mask = torch.zeros_like(ids)
    segments = torch.zeros_like(ids)
    for row, (sequence, offset) in enumerate(sequences):
        mask[row, : len(sequence)] = 1
        segments[row, offset : len(sequence)] = 1
    return {"ids": ids, "mask": mask, "segments": segments}


def mark_window(mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
    """Mark the tokens of the window (B, S): segment 1 without the [SEP] that ends a sequence.
    mask, segments: (B, S) of `collate`."""
    return segments * functional.pad(mask[:, 1:], (0, 1))


def draw_batch(
    step: int, examples: int, size: int, seed: int
) -> tuple[np.ndarray, np.random.Generator]:
    """Draw the examples of the batch of a step. Returns their numbers, (size,) or fewer, and a
    generator for what else is drawn for the batch.

    Every epoch has another order and leaves out the examples that do not fill a batch.
    """
    epoch, index = divmod(step, max(examples // size, 1))
    order = np.random.default_rng([seed, epoch]).permutation(examples)
    return order[index * size : (index + 1) * size], np.random.default_rng([seed, epoch, index])


def replace_tokens(
    rng: np.random.Generator, sequence: np.ndarray, share: float, symbols: int
) -> None:
    """Replace, in place, a share of the tokens by random ids below `symbols`, so that the reader
    bears units that another voice changes.

    Specials, whose ids are `symbols` and above, stay. sequence: (S,).
    """
    if share:
        replaced = (rng.random(len(sequence)) < share) & (sequence < symbols)
        sequence[replaced] = rng.integers(symbols, size=int(replaced.sum()))


@dataclass(frozen=True)
class Example:
    """An example is a question to train on: token ids, and the answer's first and last passage
    token (inclusive)."""

    question: np.ndarray  # (Q,) int
    passage: np.ndarray  # (P,) int
    first: int
    last: int


@dataclass(frozen=True)
class ExampleBatches:
    """These are the batches of a training on examples, a function of (seed, step) only.

    The answer stands anywhere in its window. A share of `empty` windows is cut anywhere in the
    passage; a window that does not hold the answer has its label at [CLS].

    The first `short_steps` steps have windows of `short_window` tokens, and as many of them as give
    the tokens of a batch of whole windows. A reader learns to match a question with one of three
    sentences long before it learns to match it with one of ten: trained on whole windows from the
    start, it points at any fact for hundreds of steps.
    """

    examples: Sequence[Example]
    layout: Layout
    options: QaOptions

    def __call__(self, step: int) -> Batch:
        """Return ids, mask, segments (B, S) and first, last (B,): positions of the answer in its
        sequence, 0 where the window lacks it."""
        o = self.options
        size, length = o.batch, self.layout.size
        if step < o.short_steps and o.short_batch:
            size, length = o.short_batch, o.short_window
        numbers, rng = draw_batch(step, len(self.examples), size, o.training.seed)
        sequences = []
        answers = []
        for number in numbers:
            example = self.examples[number]
            start = self._choose_start(rng, example, length)
            window = example.passage[start : start + length]
            sequence, offset = self.layout.make_sequence(example.question, window)
            replace_tokens(rng, sequence, o.random_units, self.layout.symbols)
            sequences.append((sequence, offset))
            first = last = 0
            if start <= example.first and example.last < start + length:
                first = offset + example.first - start
                last = offset + example.last - start
            answers.append((first, last))
        batch = collate(sequences, self.layout.pad)
        batch["first"], batch["last"] = torch.tensor(answers).T
        return batch

    def _choose_start(self, rng: np.random.Generator, example: Example, length: int) -> int:
        """Choose where the window of `length` tokens starts: such that it holds the answer, or, for
        a share of `empty` and where the answer does not fit, anywhere in the passage."""
        latest = max(len(example.passage) - length, 0)
        low = max(example.last - length + 1, 0)  # the window ends with the answer
        high = min(example.first, latest)  # the window begins with the answer
        if low > high or rng.random() < self.options.empty:
            low, high = 0, latest
        return int(rng.integers(low, high + 1))


class UnitSource(NamedTuple):
    """A UnitSource describes the units of a split, as their card does."""

    made_from: dict[str, Any]  # encoder, layer, codebook, corpus and so on
    symbols: int  # K
    grid: FrameGrid  # of their frames
    # hashes of the codebooks whose unit k means the same; first that of these units
    codebooks: tuple[str, ...]


def read_unit_source(units: Path, corpus: Path, pieces: Pieces | None = None) -> UnitSource:
    """Read the card of extracted units. units: the folder of a split; pieces: the frequent n-grams
    of units to which they will be joined, if any. Raises InputError where the units are of another
    corpus, or the pieces of other units."""
    # imports pyarrow, which answering does not need
    from speechssl.units.storage import read_units_card

    card = read_units_card(units)
    grid = FrameGrid(**card["grid"])
    source = UnitSource(card["made_from"], card["K"], grid, tuple(card["codebooks"]))
    if source.made_from.get("corpus") != hash_data(corpus, units.name):
        raise InputError(
            f"the units in {units} were made from another corpus than {corpus}; extract them again"
        )
    if pieces is None:
        return source
    if set(source.codebooks).isdisjoint(pieces.card["codebooks"]):
        raise InputError(
            f"the pieces are not of the units in {units}; make them with `speechssl units pieces`"
        )
    made_from = source.made_from | {"pieces": pieces.hash}
    return UnitSource(made_from, pieces.size, grid, (pieces.hash,))


def load_joined_units(folder: Path, pieces: Pieces | None) -> dict[str, RunLength]:
    """Load the units of a split, joined to `pieces` if there are any. Returns id -> units."""
    from speechssl.units.storage import load_units

    units = load_units(folder)
    return units if pieces is None else {name: pieces.join(runs) for name, runs in units.items()}


def list_codebooks(card: Mapping[str, Any]) -> set[str]:
    """List the hashes of the codebooks (or pieces) whose unit k means to a reader what it meant in
    training. card: of the reader; one that does not read units has none."""
    if "units" not in card:
        return set()
    if "pieces" in card["units"]:
        return {card["units"]["pieces"]}
    return {card["units"]["codebook"], *card.get("codebooks", ())}


def make_unit_examples(
    data: Corpus, units: Mapping[str, RunLength], grid: FrameGrid
) -> tuple[list[Example], dict[str, str]]:
    """Make one example a question, from the first answer with times. Returns the examples, and, id
    -> reason, the questions that are left out.

    The label is the span of units that fits the answer's seconds best.
    """
    examples = []
    left_out = {}
    for question in data.answerable:
        times = find_answer_times(question)
        missing = [name for name in (question.id, question.passage) if name not in units]
        if times is None:
            left_out[question.id] = "no answer has times"
        elif missing:
            left_out[question.id] = f"no units of {missing[0]}"
        else:
            passage = units[question.passage]
            first, last = find_units(grid, passage, *times)
            examples.append(Example(units[question.id].units, passage.units, first, last))
    return examples, left_out


def find_answer_times(question: Question) -> tuple[float, float] | None:
    """Find start and end, in seconds, of the first answer with times; None where no answer has
    any."""
    for answer in question.answers:
        if answer.start is not None and answer.end is not None:
            return answer.start, answer.end
    return None
