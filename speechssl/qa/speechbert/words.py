"""Recordings cut into words: where each begins and ends, which rows of features are its own, and, in training, what it says.

Letters: F rows of features of all recordings, N words of all recordings, W words of one, D feature width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from speechssl.corpora.records import Span
from speechssl.timing import FrameGrid

GAP = 0.1  # seconds that a word of a recogniser may grow on either side
SAME = 0.5  # least intersection over union of two words that are taken for one


class Timed(Protocol):
    """A word with its time in seconds."""

    @property
    def text(self) -> str: ...
    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...


def spans_of(words: Sequence[Timed]) -> tuple[Span, ...]:
    """As records have them, in order of time, none empty."""
    return tuple(Span(w.text, w.start, w.end) for w in sorted(words, key=lambda w: (w.start, w.end)) if w.end > w.start)


def widened(words: Sequence[Span], seconds: float) -> tuple[Span, ...]:
    """Words that meet in the middle of the gap between them, where it is short; else each ends GAP s later, or starts earlier.

    A CTC recogniser says when it emits the letters of a word; the word is heard a little before and after. seconds: length of
    the recording.
    """
    stops = [0.0, *(w.end for w in words)]
    starts = [*(w.start for w in words), seconds]
    room = [max(start - stop, 0.0) / 2 for stop, start in zip(stops, starts, strict=True)]
    return tuple(
        Span(w.text, w.start - min(before, GAP), w.end + min(after, GAP))
        for w, before, after in zip(words, room[:-1], room[1:], strict=True)
    )


def matched(words: Sequence[Span], known: Sequence[Span]) -> tuple[Span, ...]:
    """Words with the text of the known word each covers, "" where none is covered by half (intersection over union)."""
    if not words or not known:
        return tuple(Span("", w.start, w.end) for w in words)
    a, b = _times(words), _times(known)
    shared = np.minimum(a[:, None, 1], b[None, :, 1]) - np.maximum(a[:, None, 0], b[None, :, 0])
    either = np.maximum(a[:, None, 1], b[None, :, 1]) - np.minimum(a[:, None, 0], b[None, :, 0])
    share = np.maximum(shared, 0.0) / either
    best = share.argmax(1)
    texts = [known[k].text if share[i, k] >= SAME else "" for i, k in enumerate(best)]
    return tuple(Span(text, w.start, w.end) for text, w in zip(texts, words, strict=True))


def _times(words: Sequence[Span]) -> np.ndarray:
    """(W, 2) seconds."""
    return np.array([(w.start, w.end) for w in words], float).reshape(-1, 2)


def word_rows(words: Sequence[Span], grid: FrameGrid, frames: int) -> np.ndarray:
    """(W, 2) int64: first row and one past the last of every word; none is without rows. frames: rows of the recording, not 0."""
    first = [grid.frame_at(grid.sample(w.start), frames) for w in words]
    last = [grid.frame_at(max(grid.sample(w.end) - 1, grid.sample(w.start)), frames) for w in words]
    return np.array([first, [n + 1 for n in last]], np.int64).T.reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class WordSequence:
    """The words of one recording, cut in one way."""

    first: int  # number of the first among the words of all recordings
    starts: np.ndarray  # (W,) seconds
    ends: np.ndarray  # (W,)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def numbers(self) -> np.ndarray:
        """(W,) among the words of all recordings."""
        return np.arange(self.first, self.first + len(self), dtype=np.int64)

    def inside(self, start: float, end: float) -> np.ndarray:
        """Which words (counted from 0) have their middle in [start, end) seconds."""
        middles = (self.starts + self.ends) / 2
        return np.flatnonzero((middles >= start) & (middles < end))


@dataclass(frozen=True, eq=False)
class WordTable:
    """The words of all recordings that a model is trained on."""

    features: np.ndarray  # (F, D)
    rows: np.ndarray  # (N, 2) first row and one past the last
    texts: tuple[str, ...]  # N, "" where it is not known what is said
    sequences: Mapping[str, tuple[WordSequence, ...]]  # id of a recording -> one sequence for every way it was cut

    def __len__(self) -> int:
        return len(self.rows)


def word_table(
    features: np.ndarray, bounds: Mapping[str, tuple[int, int]], cuts: Mapping[str, Sequence[Sequence[Span]]], grid: FrameGrid
) -> WordTable:
    """bounds: id -> rows of the recording, [first, last); cuts: id -> its words, cut in one or more ways."""
    rows, texts, sequences, count = [np.zeros((0, 2), np.int64)], [], {}, 0
    for name, ways in cuts.items():
        first, last = bounds[name]
        found = []
        for words in ways:
            times = _times(words)
            found.append(WordSequence(count, times[:, 0], times[:, 1]))
            rows.append(word_rows(words, grid, last - first) + first)
            texts += [w.text for w in words]
            count += len(words)
        sequences[name] = tuple(found)
    return WordTable(features, np.concatenate(rows), tuple(texts), sequences)
