"""From evidence to the options that are chosen, and what a choice is worth.

All windows of a passage are read with every option; `ChoiceModel.scores` combines them. Set accuracy: the options chosen are
exactly the right ones, one or several. Accuracy: the same on the questions with one right option. Systems know how many options are
right (see `model`), and so do the baselines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from speechssl.data.records import Question
from speechssl.dual.data import Layout, collate
from speechssl.dual.decode import device_of
from speechssl.multiple_choice.data import Choice
from speechssl.multiple_choice.model import Scores


@dataclass(frozen=True)
class ChoiceReader:
    """A trained model that chooses. It is moved to its device."""

    model: Scores
    layout: Layout
    batch: int = 16
    bf16: bool = False
    device: str = "auto"  # a GPU where there is one

    def __post_init__(self) -> None:
        self.model.to(device_of(self.device))

    @torch.inference_mode()
    def score_many(self, items: Sequence[Choice]) -> list[np.ndarray]:
        """(O,) log-probabilities of the options of every question, as if one were right. All windows are read."""
        cut = [
            (i, o, w, *item.sequence(self.layout, o, window))
            for i, item in enumerate(items)
            for w, window in enumerate(item.windows(self.layout))
            for o in range(len(item.options))
        ]
        order = sorted(range(len(cut)), key=lambda n: len(cut[n][3]))  # as little padding as may be
        evidence = [torch.zeros(len(item.options), len(item.windows(self.layout)), 2) for item in items]
        device = next(self.model.parameters()).device
        for start in range(0, len(order), self.batch):
            part = [cut[n] for n in order[start : start + self.batch]]
            batch = collate([(ids, offset) for *_, ids, offset in part], self.layout.pad)
            with torch.autocast(device.type, torch.bfloat16, enabled=self.bf16):
                found = self.model.evidence(**{name: value.to(device) for name, value in batch.items()}).float().cpu()
            for (i, o, w, *_), value in zip(part, found, strict=True):
                evidence[i][o, w, : len(value)] = value
        scores = []
        for some in evidence:
            present = torch.ones(1, *some.shape[:2], dtype=torch.bool, device=device)
            scores.append(np.asarray(self.model.scores(some[None].to(device), present)[0].log_softmax(-1).double().cpu()))
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


def score_choice(question: Question, picked: Sequence[int]) -> ScoredChoice:
    """Of the options picked, in any order."""
    return _scored(question, float(sorted(picked) == sorted(question.correct)), tuple(sorted(picked)))


def score_chance(question: Question) -> ScoredChoice:
    """Exact: what a set drawn from all of the right size is worth on average."""
    return _scored(question, 1 / math.comb(len(question.options), len(question.correct)), None)


def _scored(question: Question, value: float, picked: tuple[int, ...] | None) -> ScoredChoice:
    single = value if len(question.correct) == 1 else None
    right = tuple(sorted(question.correct))
    return ScoredChoice(question.id, question.passage, value, single, len(question.options), right, picked)
