"""From evidence to the options that are chosen, and what a choice is worth.

All windows of a passage are read with every option; `ChoiceModel.scores` combines them. Set accuracy: the options chosen are
exactly the right ones, one or several. Accuracy: the same on the questions with one right option. Systems know how many options are
right (see `model`), and so do the baselines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from speechssl.data.records import Question
from speechssl.dual.data import Layout, collate
from speechssl.dual.decode import device_of, run_model
from speechssl.multiple_choice.data import ChoiceTokens


@dataclass(frozen=True)
class ChoiceReader:
    """A trained ChoiceModel. It is moved to its device."""

    model: Any
    layout: Layout
    batch: int = 16
    bf16: bool = False
    device: str = "auto"  # a GPU where there is one

    def __post_init__(self) -> None:
        self.model.to(device_of(self.device))

    @torch.inference_mode()
    def score_many(self, items: Sequence[ChoiceTokens]) -> list[np.ndarray]:
        """(O,) log-probabilities of the options of every question, as if one were right. All windows are read."""
        layout, device = self.layout, next(self.model.parameters()).device
        cut = [(item, o, w) for item in items for w in item.windows(layout) for o in range(len(item.options))]
        sequences = [item.sequence(layout, option, window) for item, option, window in cut]
        found = iter(run_model(self.model.evidence, device, sequences, partial(collate, pad=layout.pad), self.batch, self.bf16))
        scores = []
        for item in items:
            sizes = len(item.windows(layout)), len(item.options)
            evidence = torch.stack([next(found) for _ in range(sizes[0] * sizes[1])]).view(*sizes, -1)
            evidence = evidence.transpose(0, 1)[None].to(device)  # (1, O, W, 1 or 2)
            present = torch.ones(evidence.shape[:3], dtype=torch.bool, device=device)
            scores.append(np.asarray(self.model.scores(evidence, present)[0].log_softmax(-1).double().cpu()))
        return scores


def chosen(scores: np.ndarray, size: int) -> tuple[int, ...]:
    """The `size` best options in order of their index; of equals the earlier. scores: (O,)."""
    return tuple(sorted(int(i) for i in np.argsort(-scores, kind="stable")[:size]))


def longest_options(question: Question) -> tuple[int, ...]:
    """As many options as are right, those with the most characters; of equals the earlier."""
    return chosen(np.array([len(option) for option in question.options]), len(question.correct))


@dataclass(frozen=True)
class ScoredChoice:
    """One question's scores, 0 to 1 (expected ones for chance); accuracy is None where several options are right."""

    id: str
    passage: str
    set_accuracy: float
    accuracy: float | None
    options: int
    correct: tuple[int, ...]
    chosen: tuple[int, ...] | None  # None: by chance; (): the question could not be answered


def score_choice(question: Question, picked: Sequence[int] | None) -> ScoredChoice:
    """Of the options picked, in any order; None: exactly what a set drawn from all of the right size is worth on average."""
    right = sorted(question.correct)
    value = 1 / math.comb(len(question.options), len(right)) if picked is None else float(sorted(picked) == right)
    single, chosen_ones = value if len(right) == 1 else None, None if picked is None else tuple(sorted(picked))
    return ScoredChoice(question.id, question.passage, value, single, len(question.options), tuple(right), chosen_ones)
