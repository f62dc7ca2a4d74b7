"""Multiple-choice questions as token ids, from units or from words, and batches of them to train on.

A story of five minutes is about 900 word pieces or 4,000 units: with four options 20 to 100 sequences a question, whose activations
no small machine holds. A step reads some windows only. Half of them are those with most in common with the question and its
options, by n-grams that are rare in the story: where an answer is written they hold it most of the time. The other half is drawn at
random, so that the combination learns to pass over windows that say nothing, of which a whole story is full. Answering reads all.
Letters: B questions, O options, W windows, S tokens in a sequence, Q tokens in a question, P in a passage.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from speechssl.data.records import Corpus, Passage, Question
from speechssl.dual.data import Layout, Window, collate, draw_batch, windows
from speechssl.errors import InputError
from speechssl.text import pieces
from speechssl.textlm.encoders import TextCodec
from speechssl.timing import RunLength
from speechssl.trainer import Batch

LONGEST = 4  # tokens of an n-gram: a word piece says something by itself, a unit only together with its neighbours
SOURCES = ("text", "given")  # texts of a record: the reference, or the transcript that came with the corpus


@dataclass(frozen=True, eq=False)
class Choice:
    """A question to be answered: token ids of each part."""

    question: np.ndarray  # (Q,) int
    options: tuple[np.ndarray, ...]
    passage: np.ndarray  # (P,) int, may be empty

    def windows(self, layout: Layout) -> tuple[Window, ...]:
        """Of a passage without tokens, one without tokens: question and options are still read."""
        return windows(len(self.passage), layout.size, layout.stride) or (Window(0, 0),)

    def sequence(self, layout: Layout, option: int, window: Window) -> tuple[np.ndarray, int]:
        """Ids (S,) of `[CLS] question [SEP] option [SEP] window [SEP]` and the position of the window's first token.

        Where question and option are too long, the question loses its tail first.
        """
        offered = self.options[option][: layout.question // 2]
        asked = np.concatenate([self.question[: layout.question - 1 - len(offered)], [layout.sep], offered])
        return layout.sequence(asked, self.passage[window.first : window.stop])


@dataclass(frozen=True, eq=False)
class ChoiceExample:
    """A question to train on, its windows from the most to the least in common with it, and the indices of its right options."""

    choice: Choice
    windows: tuple[Window, ...]
    correct: tuple[int, ...]

    @classmethod
    def of(cls, choice: Choice, correct: Sequence[int], layout: Layout) -> ChoiceExample:
        return cls(choice, by_overlap(choice, choice.windows(layout)), tuple(correct))


def by_overlap(choice: Choice, windows: Sequence[Window]) -> tuple[Window, ...]:
    """The windows by the weight of the n-grams that they share with the question and its options, the greatest first.

    An n-gram weighs the logarithm of (windows / windows that hold it): what stands everywhere weighs nothing.
    """

    def ngrams(tokens: np.ndarray) -> set[tuple[int, ...]]:
        listed = tokens.tolist()
        return {tuple(listed[i : i + n]) for n in range(1, LONGEST + 1) for i in range(len(listed) - n + 1)}

    asked = set().union(*(ngrams(tokens) for tokens in (choice.question, *choice.options)))
    shared = [asked & ngrams(choice.passage[w.first : w.stop]) for w in windows]
    held = Counter(ngram for some in shared for ngram in some)
    weights = [math.fsum(math.log(len(windows) / held[ngram]) for ngram in some) for some in shared]
    return tuple(windows[i] for i in sorted(range(len(windows)), key=lambda i: -weights[i]))


Examples = tuple[list[ChoiceExample], dict[str, str]]  # and the questions left out: id -> why


def unit_examples(data: Corpus, units: Mapping[str, RunLength], layout: Layout) -> Examples:
    """One example a question, of the units of its recordings; and the questions left out: id -> why."""

    def tokens(question: Question) -> Choice | str:
        names = (question.id, question.passage, *question.option_ids)
        if missing := [name for name in names if name not in units]:
            return f"no units of {missing[0]}"
        options = tuple(units[name].units for name in question.option_ids)
        return Choice(units[question.id].units, options, units[question.passage].units)

    return _examples(data, tokens, layout)


def text_examples(data: Corpus, codec: TextCodec, layout: Layout, source: str) -> Examples:
    """One example a question, of its words; and the questions left out: id -> why. Raises InputError for an unknown source."""
    if source not in SOURCES:
        raise InputError(f"there is no source {source!r} of what is written; choose one of {', '.join(SOURCES)}")

    def tokens(question: Question) -> Choice | str:
        passage = data.passages[question.passage]
        read = written(passage, source)
        if not read:
            return f"passage {passage.id} has no {'text' if source == 'text' else 'transcript'}"
        return text_choice(codec, written(question, source), question.options, read, question.language)

    return _examples(data, tokens, layout)


def _examples(data: Corpus, tokens: Callable[[Question], Choice | str], layout: Layout) -> Examples:
    found, left_out = [], {}
    for question in data.choices:
        made = tokens(question)
        if isinstance(made, str):
            left_out[question.id] = made
        else:
            found.append(ChoiceExample.of(made, question.correct, layout))
    return found, left_out


def written(record: Passage | Question, source: str) -> str:
    """The text of a record. Questions of corpora that transcribe their passages only are read as they are asked."""
    if source == "text":
        return record.text
    return record.transcript or (record.text if isinstance(record, Question) else "")


def text_choice(codec: TextCodec, question: str, options: Sequence[str], passage: str, language: str) -> Choice:
    """From texts to token ids."""
    asked, *offered, read = (
        codec.encode([word for word, _ in pieces(text, language)])[0] for text in (question, *options, passage)
    )
    return Choice(asked, tuple(offered), read)


@dataclass(frozen=True)
class ChoiceBatches:
    """Batches of questions, a function of (seed, step) only. Tensors are (B, O, W, S), padded; `correct` is (B, O)."""

    examples: Sequence[ChoiceExample]
    layout: Layout
    size: int = 4  # B
    windows: int = 2  # a question; 0: all
    seed: int = 0
    noise: float = 0.0  # share of the tokens that are replaced
    symbols: int = 0  # by one of these ids, 0..symbols - 1

    def __call__(self, step: int) -> Batch:
        numbers, rng = draw_batch(step, len(self.examples), self.size, self.seed)
        examples = [self.examples[i] for i in numbers]
        drawn = [self._draw(rng, example) for example in examples]
        options, windows = max(len(e.choice.options) for e in examples), max(map(len, drawn))
        places, sequences = [], []
        for b, (example, some) in enumerate(zip(examples, drawn, strict=True)):
            for o in range(len(example.choice.options)):
                places += [(b * options + o) * windows + w for w in range(len(some))]
                sequences += [self._disturbed(rng, *example.choice.sequence(self.layout, o, window)) for window in some]
        batch = {}
        for name, value in collate(sequences, self.layout.pad).items():  # (N, S); zeros where there is no option or window
            rows = value.new_zeros(len(examples) * options * windows, value.shape[1])
            batch[name] = rows.index_copy(0, torch.tensor(places), value).view(len(examples), options, windows, -1)
        batch["correct"] = torch.stack([functional.one_hot(torch.tensor(e.correct), options).sum(0) for e in examples])
        return batch

    def _draw(self, rng: np.random.Generator, example: ChoiceExample) -> tuple[Window, ...]:
        """Half of them (rounded up) the first, the others anywhere; in order, so that the combination learns no order."""
        count = self.windows or len(example.windows)
        first, rest = example.windows[: (count + 1) // 2], example.windows[(count + 1) // 2 :]
        others = rng.permutation(len(rest))[: count - len(first)]
        return (*first, *(rest[i] for i in others))

    def _disturbed(self, rng: np.random.Generator, sequence: np.ndarray, offset: int) -> tuple[np.ndarray, int]:
        """With tokens replaced, as another voice would; those of the layout stay."""
        if self.noise:
            where = (rng.random(len(sequence)) < self.noise) & (sequence < self.symbols)
            sequence[where] = rng.integers(self.symbols, size=int(where.sum()))
        return sequence, offset
