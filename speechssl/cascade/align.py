"""Align known words with a recording of any length by a CTC recogniser.

`CtcAligner.align` spells the words, asks the recogniser for log-probabilities piece by piece, and
finds the likeliest path through the text in windows (`align_windows`). An `Alignment` has the times
of the words, and how much less likely each is than what the recogniser would have written.

Sources: CTC forced alignment is that of Graves et al., ICML 2006, by torchaudio's `forced_align`;
windows whose part of the text is not known are those of CTC-segmentation (Kürzinger et al., arXiv
2007.09127); the star, a symbol that stands for anything, is that of Pratap et al., arXiv
2305.13516, section 3.
Letters: N samples, T frames, V symbols, W words.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from speechssl.audio import SAMPLE_RATE
from speechssl.cascade.data import show_pieces, split_at_pauses
from speechssl.cascade.model import BLANK, CtcRecogniser, align_spans
from speechssl.data.records import Span
from speechssl.text import fold_letters
from speechssl.timing import FrameGrid

if TYPE_CHECKING:  # slow to import
    from torchaudio.functional import TokenSpan

HEAD_LONGEST = 60.0  # seconds of audio that a CTC head trained here gets at once
WINDOW = 6000  # frames: a longer recording is aligned in windows (two minutes at 50 Hz)
MARGIN = 500  # frames at the end of a window; words that end in them are aligned again in the next
DENSEST = 0.6  # symbols a frame: 30 a second at 50 Hz, more than anybody speaks
STAR = -1  # number of the star, which stands for any symbol where the vocabulary cannot spell
STAR_BLANK = 0.5  # nats that a silent frame costs within a star
GAP = 0.1  # seconds that a word of a CTC recogniser may grow on either side
SIGNS = "&%@#"  # signs that are read aloud; so are those of currencies and of mathematics


@dataclass(frozen=True)
class Alignment:
    """An alignment holds the words of one recording with their times."""

    words: tuple[Span, ...]
    # (W,) nats by which each known word is less likely than what the recogniser finds likeliest
    losses: np.ndarray
    # (W,) number of symbols in each word, as spelt or as recognised: of the two the larger
    symbols: np.ndarray

    def measure_confidence(self, first: int = 0, last: int | None = None) -> float:
        """Measure how likely the words first..last (inclusive; None: to the end) are relative to
        what the recogniser finds likeliest, 0 to 1, as a geometric mean over symbols."""
        selected = slice(first, None if last is None else last + 1)
        loss = max(self.losses[selected].sum(), 0.0)
        return float(np.exp(-loss / max(self.symbols[selected].sum(), 1)))


# ---- the likeliest path through the text


class _PieceFrames(NamedTuple):
    """A piece of a recording has these arrays, (T_i,) each, with one number a frame."""

    best: np.ndarray  # log-probability of the likeliest symbol
    is_onset: np.ndarray  # whether the likeliest symbol begins here
    starts: np.ndarray  # seconds from the beginning of the recording
    ends: np.ndarray


@dataclass(frozen=True)
class CtcAligner:
    """This aligner aligns words with a recording by a CTC recogniser (forced alignment). Its memory
    grows with the recording by a few numbers a frame."""

    name: str  # of the recogniser, for messages
    weights: str  # hash of the recogniser's weights
    log_probs: Callable[[np.ndarray], Tensor]  # samples (N,) -> (T, V), T by the grid
    symbols: Sequence[str]  # the text of each of the V symbols, "" for one that writes nothing
    separator: str  # the symbol between words, "" for none
    blank: int  # number of the blank
    grid: FrameGrid
    longest: float  # seconds of audio that `log_probs` gets at once

    @cached_property
    def _columns(self) -> dict[str, int]:
        """Map the texts of symbols to their columns of `log_probs`: as they are written, and also
        folded (`fold_letters`) where no other symbol is written like the folded one."""
        exact: dict[str, int] = {}
        for i, text in enumerate(self.symbols):
            if text not in ("", self.separator) and i != self.blank:
                exact[text] = i
        folded: dict[str, int] = {}
        for text, i in exact.items():
            folded.setdefault(fold_letters(text), i)
        return folded | exact

    def _spell_character(self, character: str) -> list[int]:
        """Return the numbers of a character's symbols; none for one that cannot be spelt."""
        columns = self._columns
        if character in columns:
            return [columns[character]]
        folded = fold_letters(character)
        if any(c not in columns for c in folded):
            return []
        return [columns[c] for c in folded]

    def measure_spellable_share(self, text: str) -> float:
        """Measure the share of the letters of a text that the recogniser could write, 0 to 1; 1 for
        a text without letters."""
        letters = [c for c in text if c.isalpha()]
        if not letters:
            return 1.0
        return sum(bool(self._spell_character(c)) for c in letters) / len(letters)

    def spell(self, word: str) -> list[int]:
        """Return the numbers of a word's symbols, with a STAR for every run of letters, digits and
        signs that the vocabulary lacks. Punctuation that is no symbol is left out."""
        first, stop = find_core(word)
        symbols: list[int] = []
        for character in word[first:stop]:
            spelling = self._spell_character(character)
            if spelling:
                symbols += spelling
            elif is_spoken(character) and symbols[-1:] != [STAR]:
                symbols.append(STAR)
        return symbols

    def align(self, samples: np.ndarray, words: Sequence[str]) -> Alignment:
        """Align words with a recording. samples: (N,) float32 at 16 kHz; words: one or more, each
        with something spoken in it (`is_spoken`).

        Raises ValueError for words that cannot be those of this audio, such as more symbols than
        frames.
        """
        spellings = [self.spell(word) for word in words]
        # the path needs the columns of the text's symbols only, and one of the star
        in_text = sorted({n for spelling in spellings for n in spelling if n != STAR})
        separators = [self.symbols.index(self.separator)] if self.separator else []
        columns = [self.blank, *in_text, *separators]
        target_of = {n: i for i, n in enumerate(columns)} | {STAR: len(columns)}
        targets: list[int] = []
        word_targets: list[tuple[int, int]] = []  # [first, stop) of the targets of every word
        for spelling in spellings:
            if targets:
                targets += [target_of[n] for n in separators]
            word_targets.append((len(targets), len(targets) + len(spelling)))
            targets += [target_of[n] for n in spelling]

        pieces: list[_PieceFrames] = []
        spans, path = align_windows(self._compute_emissions(samples, columns, pieces), targets)
        best = np.concatenate([piece.best for piece in pieces])
        is_onset = np.concatenate([piece.is_onset for piece in pieces])
        starts = np.concatenate([piece.starts for piece in pieces])
        ends = np.concatenate([piece.ends for piece in pieces])
        spelt_bounds = [(spans[first].start, spans[stop - 1].end) for first, stop in word_targets]
        unspelt = [spelling == [STAR] for spelling in spellings]
        bounds = share_by_length(spelt_bounds, words, unspelt)

        # frames between two words count for the first of them
        counted_from = [0, *(first for first, _ in bounds[1:]), len(path)]
        frame_losses = best - path
        timed_words: list[Span] = []
        losses: list[float] = []
        symbols: list[int] = []
        for i, (first, stop) in enumerate(bounds):
            timed_words.append(Span(words[i], float(starts[first]), float(ends[stop - 1])))
            counted = slice(counted_from[i], counted_from[i + 1])
            losses.append(frame_losses[counted].sum())
            spelt = len(spellings[i]) + len(separators)
            recognised = int(is_onset[counted].sum())
            symbols.append(max(spelt, recognised))
        return Alignment(
            widen_words(timed_words, len(samples) / SAMPLE_RATE),
            np.array(losses),
            np.array(symbols),
        )

    def _compute_emissions(
        self, samples: np.ndarray, columns: Sequence[int], pieces: list[_PieceFrames]
    ) -> Iterator[Tensor]:
        """Yield log-probabilities of the symbols in `columns` and, last, of a star, piece by piece:
        (T_i, len(columns) + 1). Append what is known of each piece's frames to `pieces`."""
        for start, end in show_pieces(split_at_pauses(samples, self.longest), "aligning"):
            scores = self.log_probs(samples[start:end])  # (T, V)
            if not len(scores):
                continue
            best, likeliest = (values.numpy() for values in scores.max(-1))
            differs = np.r_[True, likeliest[1:] != likeliest[:-1]]  # from the frame before
            is_onset = (likeliest != self.blank) & differs
            edges = [start / SAMPLE_RATE + self.grid.find_start(t) for t in range(len(scores) + 1)]
            edges[-1] = min(edges[-1], end / SAMPLE_RATE)
            pieces.append(_PieceFrames(best, is_onset, np.array(edges[:-1]), np.array(edges[1:])))
            # a star stands for any symbol, and for silence at a price
            others = torch.cat([scores[:, : self.blank], scores[:, self.blank + 1 :]], 1)
            star = torch.maximum(others.amax(1), scores[:, self.blank] - STAR_BLANK)
            yield torch.cat([scores[:, columns], star[:, None]], 1)


def make_ctc_aligner(head: CtcRecogniser) -> CtcAligner:
    """Make an aligner of a CTC head that was trained here."""
    return CtcAligner(
        name=head.name,
        weights=str(head.card["asr"]),
        log_probs=head.compute_log_probs,
        symbols=head.vocabulary.symbols,
        separator=head.vocabulary.separator,
        blank=BLANK,
        grid=head.encoder.grid,
        longest=HEAD_LONGEST,
    )


def align_windows(
    pieces: Iterable[Tensor], targets: Sequence[int]
) -> tuple[list[TokenSpan], np.ndarray]:
    """Align targets with a recording of any length; return the spans of all targets, and the
    log-probability of every frame (T,) on their path.

    pieces: log-probabilities (T_i, V) of the recording from beginning to end, the blank first. Only
    about WINDOW frames of them are held at a time: the targets that are spoken in a window are
    those that the likeliest path through it passes (`count_spoken_targets`). Targets that end in
    its last MARGIN frames are aligned again in the next window. Raises ValueError where the targets
    do not fit.
    """
    # for each window that is aligned: its spans, and the log-probability of the blank in its frames
    settled: list[tuple[Sequence[TokenSpan], np.ndarray]] = []
    settled_targets = 0
    window = torch.zeros(0, 0)  # the frames that are not settled
    for piece in pieces:
        window = torch.cat([window, piece]) if len(window) else piece
        if len(window) < WINDOW:
            continue
        longest_text = int(len(window) * DENSEST)
        candidates = targets[settled_targets : settled_targets + longest_text]
        aligned = align_spans(window, candidates[: count_spoken_targets(window, candidates)])
        kept = [span for span in aligned if span.end <= len(window) - MARGIN]
        # the window is cut after the last kept span and, if possible, before the next span,
        # between one and two margins before the end of the window
        last_end = kept[-1].end if kept else 0
        next_start = aligned[len(kept)].start if len(kept) < len(aligned) else len(window)
        cut = min(next_start, len(window) - MARGIN)
        cut = max(last_end, cut, len(window) - 2 * MARGIN)
        settled.append((kept, window[:cut, BLANK].numpy().copy()))
        settled_targets += len(kept)
        window = window[cut:].clone()
    rest = align_spans(window, targets[settled_targets:])
    settled.append((rest, window[:, BLANK].numpy().copy()))

    spans: list[TokenSpan] = []
    frames_before = 0
    for window_spans, path in settled:
        for span in window_spans:
            path[span.start : span.end] = span.score
            start, end = span.start + frames_before, span.end + frames_before
            spans.append(replace(span, start=start, end=end))
        frames_before += len(path)
    return spans, np.concatenate([path for _, path in settled])


def count_spoken_targets(log_probs: Tensor, targets: Sequence[int]) -> int:
    """Count the targets that the likeliest path through all frames has begun; the path may end at
    any of them. log_probs: (T, V), the blank first."""
    # the states of CTC: a blank before, between and after the targets
    states = np.zeros(2 * len(targets) + 1, np.int64)
    states[1::2] = targets
    # 0 where a target may follow the one before it without a blank, as they differ; else -inf
    skip = np.full(len(states), -np.inf, np.float32)
    skip[3::2][states[3::2] != states[1:-2:2]] = 0
    frames = log_probs.numpy()
    score = np.full(len(states), -np.inf, np.float32)  # of the best path that ends in each state
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
    """Divide the frames of consecutive words that cannot be spelt among these words by their
    lengths: no border between them is likelier than another. bounds: the frames [first, last) of
    every word; unspelt: whether nothing of a word can be spelt. Returns new bounds."""
    new_bounds: list[tuple[int, int]] = []
    for is_unspelt, group in groupby(range(len(words)), lambda i: unspelt[i]):
        run = list(group)  # numbers of consecutive words
        start, end = bounds[run[0]][0], bounds[run[-1]][1]
        if not is_unspelt or end - start < len(run):
            new_bounds += [bounds[i] for i in run]
            continue
        cores = [find_core(words[i]) for i in run]
        letters_before = np.cumsum([0, *(stop - first for first, stop in cores)])
        shares = letters_before / letters_before[-1]
        borders = np.rint(start + shares * (end - start)).astype(int)
        for n in range(1, len(run)):  # every word gets a frame at least
            borders[n] = np.clip(borders[n], borders[n - 1] + 1, end - (len(run) - n))
        new_bounds += [(int(first), int(last)) for first, last in pairwise(borders)]
    return new_bounds


# ---- words


def is_spoken(character: str) -> bool:
    """Return whether a character is a letter, a digit or a sign that is read aloud."""
    categories = ("Sc", "Sm", "So")  # Unicode's symbols of currency, mathematics, and others
    is_sign = character in SIGNS or unicodedata.category(character) in categories
    return is_sign or character.isalnum()


def find_core(word: str) -> tuple[int, int]:
    """Find the characters [first, stop) of a word without the punctuation around it."""
    inside = [i for i, c in enumerate(word) if is_spoken(c)]
    return (inside[0], inside[-1] + 1) if inside else (0, 0)


def widen_words(words: Sequence[Span], seconds: float) -> tuple[Span, ...]:
    """Widen each word by GAP s on either side, or by half of the gap to its neighbour where that is
    less: a word sounds a little before and after its letters are emitted. seconds: length of the
    recording."""
    ends = [0.0, *(w.end for w in words)]
    starts = [*(w.start for w in words), seconds]
    gaps = [max(start - end, 0.0) for end, start in zip(ends, starts, strict=True)]
    added = [min(gap / 2, GAP) for gap in gaps]  # to the word before and to the word after a gap
    widened = []
    for i, word in enumerate(words):
        widened.append(Span(word.text, word.start - added[i], word.end + added[i + 1]))
    return tuple(widened)
