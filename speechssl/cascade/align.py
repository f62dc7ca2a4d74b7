"""Align known words with a recording of any length by a CTC recogniser.

`CtcAligner.align` spells the words, asks the recogniser for log-probabilities piece by piece, and
finds the likeliest path through the text in windows (`align_windows`). `Alignment` says how much
less likely each word is than what the recogniser would have written.

Sources: CTC forced alignment: Graves et al., ICML 2006, torchaudio's `forced_align`; windows whose
part of the text is not known: CTC-segmentation (Kürzinger et al., arXiv 2007.09127); a symbol that
stands for anything: Pratap et al., arXiv 2305.13516, section 3.
Letters: N samples, T frames, V symbols, W words.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from speechssl.audio import SAMPLE_RATE
from speechssl.cascade.data import check_samples, show_pieces, split_at_pauses
from speechssl.cascade.model import BLANK, CtcRecogniser, TokenSpan, align_spans
from speechssl.data.records import Span
from speechssl.text import fold_letters
from speechssl.timing import FrameGrid

HEAD_LONGEST = 60.0  # seconds that a head of ours is given at once
WINDOW = 6000  # frames from which on a recording is aligned in windows (two minutes at 50 Hz)
MARGIN = 500  # frames at the end of a window whose words wait for the next one
DENSEST = 0.6  # symbols a frame: 30 a second, more than anybody speaks
STAR_BLANK = 0.5  # nats that a silent frame costs within a word that cannot be spelt
GAP = 0.1  # seconds that a word of a CTC recogniser may grow on either side
SIGNS = "&%@#"  # spoken, as currencies and the signs of mathematics are; other punctuation is not


@dataclass(frozen=True)
class Alignment:
    """An alignment is the words of one recording with their times. losses: (W,) nats by which the
    known words are less likely than what the recogniser finds likeliest; symbols: (W,) how many
    symbols it scores in each.
    """

    words: tuple[Span, ...]
    losses: np.ndarray
    symbols: np.ndarray

    def confidence(self, first: int = 0, last: int | None = None) -> float:
        """Return how likely words first..last (inclusive; all) are, 0 to 1, relative to the
        recogniser's own, as a mean per symbol."""
        inside = slice(first, None if last is None else last + 1)
        loss = max(self.losses[inside].sum(), 0.0)
        return float(np.exp(-loss / max(self.symbols[inside].sum(), 1)))


# ---- the likeliest path through the text


class _PieceFrames(NamedTuple):
    """The frames of a piece have these, (T_i,) each: the log-probability of the likeliest symbol,
    whether one begins, and start and end in seconds."""

    best: np.ndarray
    begun: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


@dataclass(frozen=True)
class CtcAligner:
    """The aligner aligns with a CTC recogniser (forced alignment), in memory that grows with the
    recording by a few numbers a frame.

    name: for messages; weights: a hash of the recogniser; log_probs: samples (N,) -> (T, V), T by
    the grid; symbols: V texts, "" for what writes nothing; separator: the symbol between words, ""
    for none; blank: number of the blank; longest: seconds that `log_probs` is given at once.
    """

    name: str
    weights: str
    log_probs: Callable[[np.ndarray], Tensor]
    symbols: Sequence[str]
    separator: str
    blank: int
    grid: FrameGrid
    longest: float

    @cached_property
    def _columns(self) -> dict[str, int]:
        """Map symbols to their numbers, as they are written and, where no other is written so,
        without case, accents and form."""
        silent = ("", self.separator)
        written = {s: i for i, s in enumerate(self.symbols) if s not in silent and i != self.blank}
        folded = {fold_letters(s): i for s, i in reversed(written.items())}
        return folded | written

    def _numbers(self, character: str) -> list[int]:
        """Return the symbols of a character; none for one that cannot be spelt."""
        columns = self._columns
        if character in columns:
            return [columns[character]]
        plain = fold_letters(character)
        return [columns[c] for c in plain] if all(c in columns for c in plain) else []

    def spells(self, text: str) -> float:
        """Return the share of the letters of a text that the recogniser could write, 0 to 1; 1 for
        a text without letters."""
        letters = [c for c in text if c.isalpha()]
        return sum(bool(self._numbers(c)) for c in letters) / len(letters) if letters else 1.0

    def spell(self, word: str) -> list[int]:
        """Return the symbols of a word, -1 (a star) for every run of letters, digits and signs that
        the vocabulary lacks. Punctuation that is no symbol is left out."""
        first, last = find_core(word)
        numbers: list[int] = []
        for character in word[first:last]:
            spelling = self._numbers(character)
            if spelling:
                numbers += spelling
            elif is_spoken(character) and numbers[-1:] != [-1]:
                numbers.append(-1)
        return numbers

    def align(self, samples: np.ndarray, words: Sequence[str]) -> Alignment:
        """Align words with a recording. samples: (N,) float32 at 16 kHz; words: one or more, each
        with something spoken in it (`is_spoken`).

        Raises ValueError for words that cannot be those of this audio, such as more symbols than
        frames.
        """
        samples = check_samples(samples)
        spelt = [self.spell(word) for word in words]
        # of all symbols only those of the text are aligned
        used = sorted({n for spelling in spelt for n in spelling if n >= 0})
        between = [self.symbols.index(self.separator)] if self.separator else []
        columns = [self.blank, *used, *between]
        place = {n: i for i, n in enumerate(columns)} | {-1: len(columns)}  # the star is last
        targets: list[int] = []
        inside: list[tuple[int, int]] = []  # [first, stop) of the targets of every word
        for spelling in spelt:
            if targets:
                targets += [place[n] for n in between]
            inside.append((len(targets), len(targets) + len(spelling)))
            targets += [place[n] for n in spelling]

        pieces: list[_PieceFrames] = []
        spans, path = align_windows(self._emissions(samples, columns, pieces), targets)
        best, begun, starts, ends = map(np.concatenate, zip(*pieces, strict=True))
        bounds = [(spans[first].start, spans[stop - 1].end) for first, stop in inside]
        bounds = share_by_length(bounds, words, [spelling == [-1] for spelling in spelt])

        # what lies between two words counts for the first of them
        stops = [*(first for first, _ in bounds[1:]), len(path)]
        missed = best - path
        timed, losses, symbols, start = [], [], [], 0
        for word, spelling, (first, end), stop in zip(words, spelt, bounds, stops, strict=True):
            timed.append(Span(word, float(starts[first]), float(ends[end - 1])))
            losses.append(missed[start:stop].sum())
            symbols.append(max(int(begun[start:stop].sum()), len(spelling) + len(between)))
            start = stop
        widened = widen_words(timed, len(samples) / SAMPLE_RATE)
        return Alignment(widened, np.array(losses), np.array(symbols))

    def _emissions(
        self, samples: np.ndarray, columns: Sequence[int], pieces: list[_PieceFrames]
    ) -> Iterator[Tensor]:
        """Yield log-probabilities (T_i, V') of these symbols and, last, of a star, piece by piece;
        add to `pieces` what is known of the frames of each."""
        for start, end in show_pieces(split_at_pauses(samples, self.longest), "aligning"):
            scores = self.log_probs(samples[start:end])  # (T, V)
            if not len(scores):
                continue
            best, path = (values.numpy() for values in scores.max(-1))
            begun = (path != self.blank) & np.r_[True, path[1:] != path[:-1]]
            edges = [start / SAMPLE_RATE + self.grid.seconds(t) for t in range(len(scores) + 1)]
            edges[-1] = min(edges[-1], end / SAMPLE_RATE)
            pieces.append(_PieceFrames(best, begun, np.array(edges[:-1]), np.array(edges[1:])))
            # a star is any symbol, and the silences within what it stands for
            others = torch.cat([scores[:, : self.blank], scores[:, self.blank + 1 :]], 1)
            star = torch.maximum(others.amax(1), scores[:, self.blank] - STAR_BLANK)
            yield torch.cat([scores[:, columns], star[:, None]], 1)


def ctc_aligner(head: CtcRecogniser) -> CtcAligner:
    """Make an aligner of a recogniser of ours."""
    vocabulary = head.vocabulary
    parts = head.log_probs, vocabulary.symbols, vocabulary.separator, BLANK, head.encoder.grid
    return CtcAligner(head.name, str(head.card["asr"]), *parts, HEAD_LONGEST)


def align_windows(
    pieces: Iterable[Tensor], targets: Sequence[int]
) -> tuple[list[TokenSpan], np.ndarray]:
    """Align a recording of any length: the spans of all targets, and the log-probability of every
    frame (T,) on their path.

    pieces: log-probabilities (T_i, V) of a recording from beginning to end, the blank first. Of a
    long one only about WINDOW frames are held: the part of the text that is in a window is what
    the likeliest path through it passes (`spoken_prefix`); what ends in its last MARGIN frames is
    aligned again with the next.
    Raises ValueError where the targets do not fit.
    """
    spans: list[TokenSpan] = []
    path: list[np.ndarray] = []
    pending, passed = torch.zeros(0, 0), 0  # frames that are not settled, and how many are

    def settle(aligned: Sequence[TokenSpan], frames: int) -> None:
        nonlocal pending, passed
        scores = pending[:frames, BLANK].numpy().copy()
        for span in aligned:
            scores[span.start : span.end] = span.score
        path.append(scores)
        spans.extend(replace(s, start=s.start + passed, end=s.end + passed) for s in aligned)
        pending, passed = pending[frames:].clone(), passed + frames

    for piece in pieces:
        pending = torch.cat([pending, piece]) if len(pending) else piece
        if len(pending) < WINDOW:
            continue
        ahead = targets[len(spans) : len(spans) + int(len(pending) * DENSEST)]
        aligned = align_spans(pending, ahead[: spoken_prefix(pending, ahead)])
        sure = [span for span in aligned if span.end <= len(pending) - MARGIN]
        following = aligned[len(sure)].start if len(sure) < len(aligned) else len(pending)
        done = sure[-1].end if sure else 0
        settle(sure, max(done, min(following, len(pending) - MARGIN), len(pending) - 2 * MARGIN))
    settle(align_spans(pending, targets[len(spans) :]), len(pending))
    return spans, np.concatenate(path)


def spoken_prefix(log_probs: Tensor, targets: Sequence[int]) -> int:
    """Count the targets that have begun where the likeliest path through all frames ends, which may
    be anywhere in them. log_probs: (T, V), the blank first."""
    # a blank before, between and after the targets
    states = np.zeros(2 * len(targets) + 1, np.int64)
    states[1::2] = targets
    # 0 where a symbol may follow the one before it, which is another
    skip = np.full(len(states), -np.inf, np.float32)
    skip[3::2][states[3::2] != states[1:-2:2]] = 0
    frames = log_probs.numpy()
    score = np.full(len(states), -np.inf, np.float32)
    score[:2] = frames[0, states[:2]]
    for frame in frames[1:]:
        skipped = score[:-2] + skip[2:]
        score[1:] = np.maximum(score[1:], score[:-1])
        np.maximum(score[2:], skipped, out=score[2:])
        score += frame.take(states)
    return (int(score.argmax()) + 1) // 2


def share_by_length(
    bounds: Sequence[tuple[int, int]], words: Sequence[str], unspelt: Sequence[bool]
) -> list[tuple[int, int]]:
    """Let words in a row of which nothing can be spelt share the frames [first, last) of all of
    them by their lengths: no border between them is likelier than another."""
    shared: list[tuple[int, int]] = []
    for alike, run in groupby(range(len(words)), lambda i: unspelt[i]):
        row = list(run)
        start, end = bounds[row[0]][0], bounds[row[-1]][1]
        if not alike or end - start < len(row):
            shared += [bounds[i] for i in row]
            continue
        cores = [find_core(words[i]) for i in row]
        lengths = np.cumsum([0, *(last - first for first, last in cores)])
        borders = np.rint(start + lengths / lengths[-1] * (end - start)).astype(int)
        for n in range(1, len(row)):  # a frame each at least
            borders[n] = np.clip(borders[n], borders[n - 1] + 1, end - (len(row) - n))
        shared += [(int(a), int(b)) for a, b in pairwise(borders)]
    return shared


# ---- words


def is_spoken(character: str) -> bool:
    """Tell whether a character is a letter, a digit or a sign that is read aloud."""
    sign = character in SIGNS or unicodedata.category(character) in ("Sc", "Sm", "So")
    return sign or character.isalnum()


def find_core(word: str) -> tuple[int, int]:
    """Find [first, last) of a word without the punctuation around it."""
    inside = [i for i, c in enumerate(word) if is_spoken(c)]
    return (inside[0], inside[-1] + 1) if inside else (0, 0)


def widen_words(words: Sequence[Span], seconds: float) -> tuple[Span, ...]:
    """Let words meet in the middle of the gap between them, where it is short; else let each end
    GAP s later, or start earlier: a word sounds a little before and after its letters are emitted.
    seconds: length of the recording.
    """
    stops = [0.0, *(w.end for w in words)]
    starts = [*(w.start for w in words), seconds]
    room = [min(max(start - stop, 0.0) / 2, GAP) for stop, start in zip(stops, starts, strict=True)]
    return tuple(Span(w.text, w.start - room[i], w.end + room[i + 1]) for i, w in enumerate(words))
