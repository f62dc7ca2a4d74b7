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
STAR = -1  # in the place of a symbol: any symbol, for what the vocabulary cannot spell
STAR_BLANK = 0.5  # nats that a silent frame costs within a word that cannot be spelt
GAP = 0.1  # seconds that a word of a CTC recogniser may grow on either side
SIGNS = "&%@#"  # spoken, as currencies and the signs of mathematics are; other punctuation is not


@dataclass(frozen=True)
class Alignment:
    """An alignment is the words of one recording with their times.

    losses: (W,) nats by which the known words are less likely than what the recogniser finds
    likeliest; symbols: (W,) how many symbols it scores in each.
    """

    words: tuple[Span, ...]
    losses: np.ndarray
    symbols: np.ndarray

    def confidence(self, first: int = 0, last: int | None = None) -> float:
        """Return how likely the words first..last (inclusive; None: to the end) are, 0 to 1,
        relative to the recogniser's own, as a mean per symbol."""
        words = slice(first, None if last is None else last + 1)
        loss = max(self.losses[words].sum(), 0.0)
        return float(np.exp(-loss / max(self.symbols[words].sum(), 1)))


# ---- the likeliest path through the text


class _PieceFrames(NamedTuple):
    """These are facts about the frames of a piece, (T_i,) each."""

    best: np.ndarray  # log-probability of the likeliest symbol
    is_onset: np.ndarray  # whether the likeliest symbol begins here
    starts: np.ndarray  # seconds
    ends: np.ndarray


@dataclass(frozen=True)
class CtcAligner:
    """The aligner aligns with a CTC recogniser (forced alignment), in memory that grows with the
    recording by a few numbers a frame."""

    name: str  # for messages
    weights: str  # hash of the recogniser
    log_probs: Callable[[np.ndarray], Tensor]  # samples (N,) -> (T, V), T by the grid
    symbols: Sequence[str]  # V texts, "" for what writes nothing
    separator: str  # the symbol between words, "" for none
    blank: int  # number of the blank
    grid: FrameGrid
    longest: float  # seconds that `log_probs` is given at once

    @cached_property
    def _columns(self) -> dict[str, int]:
        """Map texts of symbols to their columns: as they are and, where no other symbol is written
        so, without case, accents and form."""
        silent = ("", self.separator)
        exact = {s: i for i, s in enumerate(self.symbols) if s not in silent and i != self.blank}
        folded = {fold_letters(s): i for s, i in reversed(exact.items())}
        return folded | exact

    def _spell_character(self, character: str) -> list[int]:
        """Return the symbols of a character; none for one that cannot be spelt."""
        columns = self._columns
        if character in columns:
            return [columns[character]]
        folded = fold_letters(character)
        if any(c not in columns for c in folded):
            return []
        return [columns[c] for c in folded]

    def spellable_share(self, text: str) -> float:
        """Return the share of the letters of a text that the recogniser could write, 0 to 1; 1 for
        a text without letters."""
        letters = [c for c in text if c.isalpha()]
        if not letters:
            return 1.0
        return sum(bool(self._spell_character(c)) for c in letters) / len(letters)

    def spell(self, word: str) -> list[int]:
        """Return the symbols of a word, STAR for every run of letters, digits and signs that the
        vocabulary lacks. Punctuation that is no symbol is left out."""
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
        samples = check_samples(samples)
        spellings = [self.spell(word) for word in words]
        # of all symbols only those of the text are aligned
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
        spans, path = align_windows(self._emissions(samples, columns, pieces), targets)
        best, is_onset, starts, ends = map(np.concatenate, zip(*pieces, strict=True))
        bounds = [(spans[first].start, spans[stop - 1].end) for first, stop in word_targets]
        bounds = share_by_length(bounds, words, [spelling == [STAR] for spelling in spellings])

        # frames between two words count for the first of them
        counted_from = [0, *(first for first, _ in bounds[1:]), len(path)]
        frame_losses = best - path
        timed, losses, symbols = [], [], []
        for i, (first, stop) in enumerate(bounds):
            timed.append(Span(words[i], float(starts[first]), float(ends[stop - 1])))
            counted = slice(counted_from[i], counted_from[i + 1])
            losses.append(frame_losses[counted].sum())
            least = len(spellings[i]) + len(separators)
            symbols.append(max(int(is_onset[counted].sum()), least))
        widened = widen_words(timed, len(samples) / SAMPLE_RATE)
        return Alignment(widened, np.array(losses), np.array(symbols))

    def _emissions(
        self, samples: np.ndarray, columns: Sequence[int], pieces: list[_PieceFrames]
    ) -> Iterator[Tensor]:
        """Yield log-probabilities (T_i, V') of these symbols and, last, of a star, piece by piece;
        append the facts about the frames of each to `pieces`."""
        for start, end in show_pieces(split_at_pauses(samples, self.longest), "aligning"):
            scores = self.log_probs(samples[start:end])  # (T, V)
            if not len(scores):
                continue
            best, path = (values.numpy() for values in scores.max(-1))
            changes = np.r_[True, path[1:] != path[:-1]]  # nothing stands before the first frame
            is_onset = (path != self.blank) & changes
            edges = [start / SAMPLE_RATE + self.grid.seconds(t) for t in range(len(scores) + 1)]
            edges[-1] = min(edges[-1], end / SAMPLE_RATE)
            pieces.append(_PieceFrames(best, is_onset, np.array(edges[:-1]), np.array(edges[1:])))
            # a star is any symbol, and the silences within what it stands for
            others = torch.cat([scores[:, : self.blank], scores[:, self.blank + 1 :]], 1)
            star = torch.maximum(others.amax(1), scores[:, self.blank] - STAR_BLANK)
            yield torch.cat([scores[:, columns], star[:, None]], 1)


def ctc_aligner(head: CtcRecogniser) -> CtcAligner:
    """Make an aligner of a recogniser of ours."""
    return CtcAligner(
        name=head.name,
        weights=str(head.card["asr"]),
        log_probs=head.log_probs,
        symbols=head.vocabulary.symbols,
        separator=head.vocabulary.separator,
        blank=BLANK,
        grid=head.encoder.grid,
        longest=HEAD_LONGEST,
    )


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
    # spans that are settled, and the log-probabilities of their frames, at first of the blank
    settled: list[tuple[Sequence[TokenSpan], np.ndarray]] = []
    done = 0  # targets
    window = torch.zeros(0, 0)  # the frames that are not settled
    for piece in pieces:
        window = torch.cat([window, piece]) if len(window) else piece
        if len(window) < WINDOW:
            continue
        candidates = targets[done : done + int(len(window) * DENSEST)]
        aligned = align_spans(window, candidates[: spoken_prefix(window, candidates)])
        sure = [span for span in aligned if span.end <= len(window) - MARGIN]
        # cut between the last sure target and the next, in the margin or at most as long before it
        last_end = sure[-1].end if sure else 0
        next_start = aligned[len(sure)].start if len(sure) < len(aligned) else len(window)
        cut = min(next_start, len(window) - MARGIN)
        cut = max(last_end, cut, len(window) - 2 * MARGIN)
        settled.append((sure, window[:cut, BLANK].numpy().copy()))
        done += len(sure)
        window = window[cut:].clone()
    rest = align_spans(window, targets[done:])
    settled.append((rest, window[:, BLANK].numpy().copy()))

    spans: list[TokenSpan] = []
    frames = 0
    for part, scores in settled:
        for span in part:
            scores[span.start : span.end] = span.score
            spans.append(replace(span, start=span.start + frames, end=span.end + frames))
        frames += len(scores)
    return spans, np.concatenate([scores for _, scores in settled])


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
    new_bounds: list[tuple[int, int]] = []
    for is_unspelt, group in groupby(range(len(words)), lambda i: unspelt[i]):
        run = list(group)
        start, end = bounds[run[0]][0], bounds[run[-1]][1]
        if not is_unspelt or end - start < len(run):
            new_bounds += [bounds[i] for i in run]
            continue
        cores = [find_core(words[i]) for i in run]
        letters_before = np.cumsum([0, *(stop - first for first, stop in cores)])
        shares = letters_before / letters_before[-1]
        borders = np.rint(start + shares * (end - start)).astype(int)
        for n in range(1, len(run)):  # a frame each at least
            borders[n] = np.clip(borders[n], borders[n - 1] + 1, end - (len(run) - n))
        new_bounds += [(int(first), int(last)) for first, last in pairwise(borders)]
    return new_bounds


# ---- words


def is_spoken(character: str) -> bool:
    """Return whether a character is a letter, a digit or a sign that is read aloud."""
    # symbols of currencies, of mathematics, and others
    is_sign = character in SIGNS or unicodedata.category(character) in ("Sc", "Sm", "So")
    return is_sign or character.isalnum()


def find_core(word: str) -> tuple[int, int]:
    """Find the characters [first, stop) of a word without the punctuation around it."""
    inside = [i for i, c in enumerate(word) if is_spoken(c)]
    return (inside[0], inside[-1] + 1) if inside else (0, 0)


def widen_words(words: Sequence[Span], seconds: float) -> tuple[Span, ...]:
    """Let words meet in the middle of the gap between them, where it is short; else let each end
    GAP s later, or start earlier: a word sounds a little before and after its letters are emitted.
    seconds: length of the recording.
    """
    ends = [0.0, *(w.end for w in words)]
    starts = [*(w.start for w in words), seconds]
    gaps = [max(start - end, 0.0) for end, start in zip(ends, starts, strict=True)]
    grow = [min(gap / 2, GAP) for gap in gaps]  # of the words on either side of a gap
    return tuple(Span(w.text, w.start - grow[i], w.end + grow[i + 1]) for i, w in enumerate(words))
