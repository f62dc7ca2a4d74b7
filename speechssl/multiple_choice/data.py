"""Batches of multiple-choice questions to train on: a few windows of each story, those that share most with what is asked first.

A story of five minutes is about 900 word pieces or 4,000 units: with four options 20 to 100 sequences a question, whose activations
no small machine holds. A step reads some windows only. Half of them are those with most in common with the question and its
options, by n-grams that are rare in the story: where an answer is written they hold it most of the time. The other half is drawn at
random, so that the combination learns to pass over windows that say nothing, of which a whole story is full. Answering reads all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from speechssl.dual.decode import Window
from speechssl.dual.model import Layout, collate, drawn_at
from speechssl.multiple_choice.model import Choice
from speechssl.trainer import Batch

LONGEST = 4  # tokens of an n-gram: a word piece says something by itself, a unit only together with its neighbours


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

    An n-gram weighs the logarithm of (windows / windows that hold it): what is said everywhere weighs nothing.
    """
    asked = set().union(*(_ngrams(tokens) for tokens in (choice.question, *choice.options)))
    shared = [asked & _ngrams(choice.passage[w.first : w.stop]) for w in windows]
    held = Counter(ngram for some in shared for ngram in some)
    weights = [math.fsum(math.log(len(windows) / held[ngram]) for ngram in some) for some in shared]
    return tuple(windows[i] for i in sorted(range(len(windows)), key=lambda i: -weights[i]))


def _ngrams(tokens: np.ndarray) -> set[tuple[int, ...]]:
    listed = tokens.tolist()
    return {tuple(listed[i : i + n]) for n in range(1, LONGEST + 1) for i in range(len(listed) - n + 1)}


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
        numbers, rng = drawn_at(step, len(self.examples), self.size, self.seed)
        return self._padded(rng, [self.examples[i] for i in numbers])

    def _padded(self, rng: np.random.Generator, examples: Sequence[ChoiceExample]) -> Batch:
        drawn = [self._draw(rng, example) for example in examples]
        options, windows = max(len(e.choice.options) for e in examples), max(map(len, drawn))
        places, sequences = [], []
        for b, (example, some) in enumerate(zip(examples, drawn, strict=True)):
            for o in range(len(example.choice.options)):
                places += [(b * options + o) * windows + w for w in range(len(some))]
                sequences += [self._disturbed(rng, *example.choice.sequence(self.layout, o, window)) for window in some]
        rows = len(examples) * options * windows
        flat = {name: _placed(value, places, rows) for name, value in collate(sequences, self.layout.pad).items()}
        batch = {name: value.view(len(examples), options, windows, -1) for name, value in flat.items()}
        right = [functional.one_hot(torch.tensor(e.correct), options).sum(0) for e in examples]
        return batch | {"correct": torch.stack(right)}

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


def _placed(value: torch.Tensor, places: Sequence[int], rows: int) -> torch.Tensor:
    """(N, S) -> (rows, S) with row n at places[n] and zeros elsewhere."""
    return value.new_zeros(rows, value.shape[1]).index_copy(0, torch.tensor(places), value)
