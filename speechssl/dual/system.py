"""DUAL: spoken question answering without text (arXiv 2203.04911).

Encoder -> features of one layer -> k-means -> run-length units -> rows of a text encoder's embedding table -> span head -> seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from speechssl.dual.model import Example, Reader
from speechssl.timing import FrameGrid, RunLength, interval_of_units, units_of_interval
from speechssl.units.extract import UnitExtractor


@dataclass(frozen=True)
class TimedAnswer:
    """An answer: seconds in the passage, a confidence in [0, 1], and the words where the system has words."""

    start: float
    end: float
    confidence: float
    text: str | None = None


@dataclass(frozen=True)
class Dual:
    """The end-to-end system."""

    extractor: UnitExtractor
    reader: Reader

    def answer(self, passage: np.ndarray, question: np.ndarray) -> TimedAnswer:
        """passage, question: (N,) float32 at 16 kHz. Raises ValueError for audio shorter than one frame."""
        return self.answer_units([(self.extractor.units(question), self.extractor.units(passage))])[0]

    def answer_units(self, items: Sequence[tuple[RunLength, RunLength]]) -> list[TimedAnswer]:
        """(question, passage) units -> answers."""
        choices = self.reader.read_many([(q.units, p.units) for q, p in items])
        return [
            TimedAnswer(*interval_of_units(self.extractor.grid, passage, c.first, c.last), c.confidence)
            for c, (_, passage) in zip(choices, items, strict=True)
        ]


def example(grid: FrameGrid, question: RunLength, passage: RunLength, start: float, end: float) -> Example:
    """A training example: the span of units that fits the answer best. start, end: seconds."""
    return Example(question.units, passage.units, *units_of_interval(grid, passage, start, end))
