"""Scores of multiple choice, and the baselines that hear nothing.

Set accuracy: the options chosen are exactly the right ones, one or several. Accuracy: the same on the questions with one right
option. Systems know how many options are right (see `qa/choice.py`), and so do the baselines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from speechssl.corpora.records import Question


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


def score_choice(question: Question, chosen: Sequence[int]) -> ScoredChoice:
    """Of the options chosen, in any order."""
    picked = tuple(sorted(chosen))
    return _scored(question, float(picked == tuple(sorted(question.correct))), picked)


def score_chance(question: Question) -> ScoredChoice:
    """Exact: what a set drawn from all of the right size is worth on average."""
    return _scored(question, 1 / math.comb(len(question.options), len(question.correct)), None)


def longest_options(question: Question) -> tuple[int, ...]:
    """As many options as are right, those with the most characters; of equals the earlier."""
    order = sorted(range(len(question.options)), key=lambda i: -len(question.options[i]))
    return tuple(sorted(order[: len(question.correct)]))


def _scored(question: Question, value: float, picked: tuple[int, ...] | None) -> ScoredChoice:
    single = value if len(question.correct) == 1 else None
    right = tuple(sorted(question.correct))
    return ScoredChoice(question.id, question.passage, value, single, len(question.options), right, picked)
