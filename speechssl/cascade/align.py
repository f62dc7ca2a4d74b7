"""Times of known words in a recording of any length, and how much less likely each is than what the
recogniser would have written; and `speechssl align`, which gives them to a corpus.

Sources: CTC forced alignment: Graves et al., ICML 2006, torchaudio's `forced_align`; windows whose
part of the text is not known: CTC-segmentation (Kürzinger et al., arXiv 2007.09127); a symbol that
stands for anything: Pratap et al., arXiv 2305.13516, section 3; times by Whisper's cross-attention:
github.com/openai/whisper, timing.py.
Letters: N samples, T frames, V symbols, W words, K tokens.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rapidfuzz.distance import Levenshtein
from torch import Tensor
from tqdm import tqdm

from speechssl.artifacts import CARD, read_json, stage, write_json, write_lines
from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.cascade.data import MANY_PIECES, check_samples, split_at_pauses
from speechssl.cascade.model import BLANK, CtcRecogniser, TokenSpan, align_spans
from speechssl.cascade.options import Align
from speechssl.cascade.system import is_ctc_head, load_recogniser
from speechssl.checkpoints import model_folder
from speechssl.data.files import safe_name
from speechssl.data.prepare import (
    PARTS,
    UNTIMED,
    UNUSABLE,
    Kind,
    PrepareReport,
    SplitRecords,
    count_set_aside_items,
    format_report,
    write_corpus,
)
from speechssl.data.records import (
    INVENTED,
    TOLERANCE,
    Corpus,
    Passage,
    Question,
    Span,
    data_hash,
    load_corpus,
    locate,
    read_lines,
)
from speechssl.data.squad import places, touched_words
from speechssl.encoders.load import hash_weights, shared_encoder, single_threaded
from speechssl.errors import InputError, count_set_aside
from speechssl.text import fold_letters, joiner, language_of, pieces
from speechssl.timing import FrameGrid

if TYPE_CHECKING:
    from speechssl.cascade.engines import WhisperCheckpoint

HEAD_LONGEST = 60.0  # seconds that a head of ours is given at once
WINDOW = 6000  # frames from which on a recording is aligned in windows (two minutes at 50 Hz)
# frames at the end of a window whose words wait for the next one, which sees what follows them
MARGIN = 500
DENSEST = 0.6  # symbols a frame: 30 a second, more than anybody speaks
# nats that a silent frame costs within a word that cannot be spelt, so that it ends where its sound
# ends
STAR_BLANK = 0.5
GAP = 0.1  # seconds that a word of a CTC recogniser may grow on either side
TOKEN_SECONDS = 0.02  # a frame of Whisper's encoder
MEDIAN = 7  # frames of the filter over Whisper's attention
# words on either side that count for the confidence of an answer: one short word says little
CONTEXT = 3
# Share of symbols beyond the text among words from which on a recording says more than its text. On
# dev sets of MiniSQA (espeak-ng, flite, piper): at most 0.16 in 360 recordings with their whole
# text; above 0.3 in 71 of 72 texts without a tenth.
UNWRITTEN = 0.3
# letters that a digit may be said in: "seven hundred and seventy-seven" has nine for each of 777
SAID = 10
SIGNS = "&%@#"  # spoken, as currencies and the signs of mathematics are; other punctuation is not


@dataclass(frozen=True)
class Alignment:
    """An alignment is the words of one recording with their times. losses: (W,) nats by which the
    known words are less likely than what the recogniser finds likeliest; symbols: (W,) how many
    symbols it scores in each; beyond: (W,) how many of these the text has not.
    """

    words: tuple[Span, ...]
    losses: np.ndarray
    symbols: np.ndarray
    beyond: np.ndarray

    def confidence(self, first: int = 0, last: int | None = None) -> float:
        """Return how likely words first..last (inclusive; all) are, 0 to 1, relative to the
        recogniser's own, as a mean per symbol."""
        inside = slice(first, None if last is None else last + 1)
        return float(
            np.exp(-max(self.losses[inside].sum(), 0.0) / max(self.symbols[inside].sum(), 1))
        )

    def says_more(self) -> np.ndarray:
        """Tell (W,) where the recording says more around a word than the text has: a word there may
        be put where another is."""
        around = [slice(max(i - CONTEXT, 0), i + CONTEXT + 1) for i in range(len(self.words))]
        return np.array(
            [
                self.beyond[window].sum() > UNWRITTEN * self.symbols[window].sum()
                for window in around
            ]
        )


def is_spoken(character: str) -> bool:
    """Tell whether a character is a letter, a digit or a sign that is read aloud."""
    return (
        character.isalnum()
        or character in SIGNS
        or unicodedata.category(character) in ("Sc", "Sm", "So")
    )


def find_core(word: str) -> tuple[int, int]:
    """Find [first, last) of a word without the punctuation around it."""
    inside = [i for i, c in enumerate(word) if is_spoken(c)]
    return (inside[0], inside[-1] + 1) if inside else (0, 0)


def widen_words(words: Sequence[Span], seconds: float) -> tuple[Span, ...]:
    """Let words meet in the middle of the gap between them, where it is short; else let each end
    GAP s later, or start earlier.

    A CTC recogniser says when it emits the letters of a word; the word sounds a little before and
    after. seconds: length of the recording.
    """
    stops = [0.0, *(w.end for w in words)]
    starts = [*(w.start for w in words), seconds]
    room = [min(max(start - stop, 0.0) / 2, GAP) for stop, start in zip(stops, starts, strict=True)]
    return tuple(Span(w.text, w.start - room[i], w.end + room[i + 1]) for i, w in enumerate(words))


# ---- CTC: the likeliest path through the text


@dataclass(frozen=True)
class RecognisedFrames:
    """This is what a recogniser finds in the frames of a recording, an array (T_i,) a piece."""

    best: list[np.ndarray] = field(default_factory=list)  # log-probability of the likeliest symbol
    begun: list[np.ndarray] = field(default_factory=list)  # whether a symbol begins there
    starts: list[np.ndarray] = field(default_factory=list)  # seconds
    ends: list[np.ndarray] = field(default_factory=list)


@dataclass(frozen=True)
class CtcAligner:
    """This aligns with a CTC recogniser (forced alignment), in memory that grows with the recording
    by two numbers a frame.

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
        written = {
            s: i
            for i, s in enumerate(self.symbols)
            if s and i != self.blank and s != self.separator
        }
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
        the vocabulary lacks.

        Punctuation within it is left out, but for what is a symbol (an apostrophe).
        """
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
        used = sorted({n for word in spelt for n in word if n >= 0})
        between = [self.symbols.index(self.separator)] if self.separator else []
        columns = [self.blank, *used, *between]
        # the star is the last column
        of_number = {n: i for i, n in enumerate(columns)} | {-1: len(columns)}
        targets: list[int] = []  # columns
        firsts: list[int] = []  # of every word the place of its first symbol
        for word in spelt:
            targets += [of_number[n] for n in between] * bool(targets)
            firsts.append(len(targets))
            targets += [of_number[n] for n in word]
        lasts = [first + len(word) for first, word in zip(firsts, spelt, strict=True)]

        frames = RecognisedFrames()
        spans, path = align_windows(self._emissions(samples, columns, frames), targets)
        losses = np.concatenate(frames.best) - path
        symbols = np.concatenate(frames.begun)
        starts = np.concatenate(frames.starts)
        ends = np.concatenate(frames.ends)
        bounds = [
            (spans[first].start, spans[last - 1].end)
            for first, last in zip(firsts, lasts, strict=True)
        ]
        bounds = share_by_length(bounds, words, [word == [-1] for word in spelt])
        timed = [
            Span(word, float(starts[a]), float(ends[b - 1]))
            for word, (a, b) in zip(words, bounds, strict=True)
        ]
        # what lies between two words counts for the first of them: speech that the text does not
        # have
        borders = [0, *(a for a, _ in bounds[1:]), len(path)]
        counted = [int(symbols[a:b].sum()) for a, b in pairwise(borders)]
        expected = np.array([len(word) + len(between) for word in spelt])
        # a number is said in more letters than it has digits
        for i, (text, (a, b)) in enumerate(zip(words, bounds, strict=True)):
            unspelt = sum(is_spoken(c) and not self._numbers(c) for c in text)
            if unspelt:
                expected[i] = max(
                    expected[i], min(int(symbols[a:b].sum()), expected[i] + SAID * unspelt)
                )
        loss = np.array([losses[a:b].sum() for a, b in pairwise(borders)])
        scored = np.maximum(counted, expected)
        return Alignment(
            widen_words(timed, len(samples) / SAMPLE_RATE), loss, scored, scored - expected
        )

    def _emissions(
        self, samples: np.ndarray, columns: Sequence[int], frames: RecognisedFrames
    ) -> Iterator[Tensor]:
        """Yield log-probabilities (T_i, V') of these symbols and, last, of a star, piece by piece;
        and note in `frames` what the recogniser finds."""
        pieces = split_at_pauses(samples, self.longest, SAMPLE_RATE)
        for start, end in tqdm(
            pieces, "aligning", unit="piece", leave=False, disable=len(pieces) < MANY_PIECES
        ):
            scores = self.log_probs(samples[start:end])  # (T, V)
            if not len(scores):
                continue
            highest, path = scores.max(-1)
            changed = np.r_[True, (path[1:] != path[:-1]).numpy()]
            frames.best.append(highest.numpy())
            frames.begun.append((path != self.blank).numpy() & changed)
            edges = np.array(
                [start / SAMPLE_RATE + self.grid.seconds(t) for t in range(len(scores) + 1)]
            )
            edges[-1] = min(edges[-1], end / SAMPLE_RATE)
            frames.starts.append(edges[:-1])
            frames.ends.append(edges[1:])
            # a star is any symbol, and the silences within what it stands for
            others = torch.cat([scores[:, : self.blank], scores[:, self.blank + 1 :]], 1)
            star = torch.maximum(others.amax(1), scores[:, self.blank] - STAR_BLANK)
            yield torch.cat([scores[:, columns], star[:, None]], 1)


def share_by_length(
    bounds: Sequence[tuple[int, int]], words: Sequence[str], unspelt: Sequence[bool]
) -> list[tuple[int, int]]:
    """Correct the frames [first, last) of words that cannot be spelt. Words in a row of which
    nothing can be spelt share the frames from the first to the last of them by their lengths: no
    border between them is likelier than another.
    """
    shared: list[tuple[int, int]] = []
    for alike, run in groupby(range(len(words)), lambda i: unspelt[i]):
        places = list(run)
        start, end = bounds[places[0]][0], bounds[places[-1]][1]
        if not alike or end - start < len(places):
            shared += [bounds[i] for i in places]
            continue
        lengths = np.cumsum([0, *(find_core(words[i])[1] - find_core(words[i])[0] for i in places)])
        borders = np.rint(start + lengths / lengths[-1] * (end - start)).astype(int)
        for n in range(1, len(places)):  # a frame each at least
            borders[n] = np.clip(borders[n], borders[n - 1] + 1, end - (len(places) - n))
        shared += [(int(a), int(b)) for a, b in pairwise(borders)]
    return shared


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
        spans.extend(TokenSpan(s.token, s.start + passed, s.end + passed, s.score) for s in aligned)
        pending, passed = pending[frames:].clone(), passed + frames

    for piece in pieces:
        pending = torch.cat([pending, piece]) if len(pending) else piece
        if len(pending) >= WINDOW:
            ahead = targets[len(spans) : len(spans) + int(len(pending) * DENSEST)]
            aligned = align_spans(pending, ahead[: spoken_prefix(pending, ahead)])
            sure = [span for span in aligned if span.end <= len(pending) - MARGIN]
            following = aligned[len(sure)].start if len(sure) < len(aligned) else len(pending)
            settle(
                sure,
                max(
                    sure[-1].end if sure else 0,
                    min(following, len(pending) - MARGIN),
                    len(pending) - 2 * MARGIN,
                ),
            )
    settle(align_spans(pending, targets[len(spans) :]), len(pending))
    return spans, np.concatenate(path)


def spoken_prefix(log_probs: Tensor, targets: Sequence[int]) -> int:
    """Count the targets that have begun where the likeliest path through all frames ends, which may
    be anywhere in them.

    log_probs: (T, V), the blank first. Holds 2 K + 1 numbers for K targets.
    """
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


# ---- Whisper: where its decoder looks while it is given the text


class WhisperAligner:
    """This aligns as `CtcAligner` does, by dynamic time warping over the cross-attention of
    Whisper's alignment heads, given the known tokens.

    Audio beyond 30 s is cut at pauses, transcribed, and its words shared out by matching the
    transcripts with them.
    """

    def __init__(self, engine: WhisperCheckpoint, name: str, weights: str, language: str) -> None:
        self.engine, self.name, self.weights, self.joiner = engine, name, weights, joiner(language)
        self.engine.model.set_attn_implementation("eager")  # the others keep no attention
        settings = engine.model.generation_config
        self._heads = settings.alignment_heads
        self._prompt = [settings.decoder_start_token_id]
        if settings.is_multilingual:
            self._prompt += [
                settings.lang_to_id[f"<|{language}|>"],
                settings.task_to_id["transcribe"],
            ]
        self._prompt.append(settings.no_timestamps_token_id)
        # tokens that differ in case or the space before them count as one: a text may be written
        # without capitals
        written = engine.tokenizer.convert_ids_to_tokens(
            list(range(engine.model.config.vocab_size))
        )
        names = [
            t.lstrip("Ġ").lower() if t and t.replace("Ġ", "").isascii() else f"{i} {t}"
            for i, t in enumerate(written)
        ]
        self._alike = torch.from_numpy(np.unique(names, return_inverse=True)[1])

    def spells(self, text: str) -> float:
        return 1.0  # its tokens are bytes

    def align(self, samples: np.ndarray, words: Sequence[str]) -> Alignment:
        samples = check_samples(samples)
        pieces = split_at_pauses(samples, self.engine.longest, SAMPLE_RATE)
        owners = np.zeros(len(words), np.int64)
        if len(pieces) > 1:
            bar = tqdm(
                pieces, "recognising", unit="piece", leave=False, disable=len(pieces) < MANY_PIECES
            )
            recognised = [
                "".join(word.text for word in self.engine.decode(samples[a:b])) for a, b in bar
            ]
            owners = assign_to_pieces(words, recognised)
        timed: list[Span] = []
        losses, symbols = [], []
        bar = tqdm(pieces, "aligning", unit="piece", leave=False, disable=len(pieces) < MANY_PIECES)
        for n, (start, end) in enumerate(bar):
            in_piece = [word for word, owner in zip(words, owners, strict=True) if owner == n]
            if not in_piece:
                continue
            limit = end / SAMPLE_RATE
            for word, (a, b, loss, tokens) in zip(
                in_piece, self._piece(samples[start:end], in_piece), strict=True
            ):
                first = min(start / SAMPLE_RATE + a, limit - TOKEN_SECONDS)
                timed.append(
                    Span(
                        word, first, min(max(start / SAMPLE_RATE + b, first + TOKEN_SECONDS), limit)
                    )
                )
                losses.append(loss)
                symbols.append(tokens)
        # its decoder is given the text
        return Alignment(tuple(timed), np.array(losses), np.array(symbols), np.zeros(len(timed)))

    @torch.inference_mode()
    def _piece(
        self, samples: np.ndarray, words: Sequence[str]
    ) -> list[tuple[float, float, float, int]]:
        """Align at most 30 s: return of every word start and end in seconds, its loss in nats, and
        its number of tokens."""
        text, cores = "", []
        for word in words:
            text += self.joiner
            first, last = find_core(word)
            cores.append((len(text) + first, len(text) + last))
            text += word
        model, prompt = self.engine.model, self._prompt
        coded = self.engine.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids = coded["input_ids"]
        if (room := model.config.max_target_positions - len(prompt) - 1) < len(ids):
            raise ValueError(
                f"{len(ids)} tokens of text fall on "
                f"{len(samples) / SAMPLE_RATE:.1f} s of it, and {room} are possible"
            )
        decoder_ids = torch.tensor(
            [[*prompt, *ids, model.config.eos_token_id]], device=model.device
        )
        extractor = self.engine.extractor
        features = extractor(
            samples, sampling_rate=SAMPLE_RATE, return_tensors="pt"
        ).input_features.to(model.device)
        outputs = model(features, decoder_input_ids=decoder_ids, output_attentions=True)
        # row k: from what is given before token k, the last row from what is given before the end
        rows = slice(len(prompt) - 1, len(prompt) + len(ids))
        chances = outputs.logits[0, rows].float().softmax(-1)[: len(ids)].cpu()
        chances = (
            torch.zeros_like(chances).index_add_(1, self._alike, chances).clamp_min(1e-30).log()
        )
        loss = chances.amax(-1) - chances[range(len(ids)), self._alike[ids]]
        frames = max(round(len(samples) / SAMPLE_RATE / TOKEN_SECONDS), 1)
        attention = torch.stack(
            [outputs.cross_attentions[layer][0, head] for layer, head in self._heads]
        )[:, :, :frames]
        jumps = token_times(attention.float().cpu().numpy(), rows)
        # characters of every token, without the space before it
        spaces = [len(text[a:b]) - len(text[a:b].lstrip()) for a, b in coded["offset_mapping"]]
        begins = np.array(
            [a + space for (a, _), space in zip(coded["offset_mapping"], spaces, strict=True)]
        )
        stops = np.array([b for _, b in coded["offset_mapping"]])

        def time(token: int, place: int) -> float:
            """Return the time of a character in a token that may hold several, as those of Chinese
            do."""
            share = (place - begins[token]) / max(stops[token] - begins[token], 1)
            return float(jumps[token] + np.clip(share, 0, 1) * (jumps[token + 1] - jumps[token]))

        timings = []
        for first, last in cores:
            inside = np.flatnonzero((stops > first) & (begins < last))
            start, end = time(inside[0], first), time(inside[-1], last)
            timings.append((start, end, float(loss[inside].sum()), len(inside)))
        return timings


def token_times(attention: np.ndarray, rows: slice) -> np.ndarray:
    """Find the seconds at which each token begins and the last one ends, (K + 1,). attention:
    (heads, tokens given, frames); rows: those that foretell the K tokens and the end.
    """
    from librosa.sequence import dtw  # slow to import
    from scipy.ndimage import median_filter

    # the silence behind the audio is cut off
    weights = attention / np.maximum(attention.sum(-1, keepdims=True), 1e-9)
    weights = (weights - weights.mean(1, keepdims=True)) / np.maximum(
        weights.std(1, keepdims=True), 1e-9
    )
    cost = -median_filter(weights, (1, 1, MEDIAN), mode="mirror").mean(0)[rows]
    _, steps = dtw(C=cost)
    steps = steps[::-1]  # (steps, 2): row and frame
    return steps[np.r_[True, np.diff(steps[:, 0]) > 0], 1] * TOKEN_SECONDS


def assign_to_pieces(words: Sequence[str], recognised: Sequence[str]) -> np.ndarray:
    """Find the number (W,) of the piece that each known word is spoken in, in order. recognised:
    what was recognised in every piece.

    Letters of both are matched by the fewest edits; a word is where its middle letter is. Raises
    ValueError where there is
    nothing to match.
    """
    letters = [fold_letters("".join(filter(str.isalnum, word))) for word in words]
    recognised_letters = [fold_letters("".join(filter(str.isalnum, text))) for text in recognised]
    pieces = np.repeat(np.arange(len(recognised)), [len(text) for text in recognised_letters])
    if not len(pieces):
        raise ValueError("nothing was recognised in it")
    match = Levenshtein.opcodes("".join(letters), "".join(recognised_letters))
    sources, places = zip(*((o.src_start, o.dest_start) for o in match), strict=True)
    # within an edit, letters stand for letters in proportion
    total = sum(map(len, letters))
    at = np.interp(np.arange(total + 1), [*sources, total], [*places, len(pieces)])
    borders = np.cumsum([0, *map(len, letters)])
    middles = at[(borders[:-1] + borders[1:]) // 2]
    return np.maximum.accumulate(pieces[np.minimum(middles.astype(int), len(pieces) - 1)])


# ---- by name

Aligner = CtcAligner | WhisperAligner


def load_aligner(models: str | Path, recogniser: str, language: str) -> Aligner:
    """Load an aligner. models: a shipped set or a folder of models; recogniser: as of
    `load_recogniser`; language: of the texts.

    Raises InputError for a recogniser that cannot align, or not in this language.
    """
    language = language_of(language)
    if is_ctc_head(recogniser):
        head = load_recogniser(folder := model_folder(models), recogniser, shared_encoder(folder))
        assert isinstance(head, CtcRecogniser)
        return ctc_aligner(head)
    from speechssl.cascade.engines import CtcCheckpoint, HuggingFaceRecogniser

    loaded = HuggingFaceRecogniser(recogniser, joiner(language), language)
    engine, weights = loaded.engine, hash_weights(loaded.engine.model)
    if isinstance(engine, CtcCheckpoint):
        parts = engine.log_probs, engine.symbols, engine.separator, engine.blank, engine.grid
        return CtcAligner(loaded.name, weights, *parts, engine.longest)
    return WhisperAligner(engine, loaded.name, weights, language)


def ctc_aligner(head: CtcRecogniser) -> CtcAligner:
    """Make an aligner of a recogniser of ours."""
    vocabulary = head.vocabulary
    parts = head.log_probs, vocabulary.symbols, vocabulary.separator, BLANK, head.encoder.grid
    return CtcAligner(head.name, str(head.card["asr"]), *parts, HEAD_LONGEST)


# ---- `speechssl align`: a prepared corpus again, with times of its words and answers from its
# texts and recordings
#
# Words are those of the text (of the transcript where there is no text) as they are spelt there.
# What has times keeps them; recordings stay where they are. What is not spoken as it is written is
# set aside, or gets no times.

VERSION = 2  # of how words are aligned
SPELT = 0.5  # least share of a text's letters that a recogniser must be able to write
PASSAGES, REFERENCE, SAYS_MORE = "passages.jsonl", "reference.jsonl", "says_more.jsonl"
GIVE = "give a prepared corpus, a split of one, or the passages.jsonl of a split"
NO_RECORDING = "it has no recording"
NO_TEXT = "nothing that could be spoken is written of it"
UNFIT = "its text does not fit into its recording"
OTHER_TEXT = "its text is not what its recording says (low confidence)"
LOST = "its passage is set aside"
FOREIGN_WORDS = "answers of passages whose words are not those of their text"
SILENT = "answers of which nothing is spoken"
UNRECOGNISED = "answers whose words are not recognised in their place (low confidence)"
BESIDE_MORE = "answers beside speech that the text does not have"
Record = Passage | Question


@dataclass(frozen=True)
class AlignedSplit:
    """This aligns one split into the folder `out`, a file a recording in its PARTS, which a killed
    run finds again."""

    data: Corpus
    out: Path
    aligner: Aligner
    confidence: float  # the least that counts as aligned

    def part(self, kind: Kind, record: Record) -> dict[str, Any]:
        """Return words with their losses and symbols, and the length of the recording in seconds;
        or the reason why there are none."""
        path = self.out / self.data.split / PARTS / f"{kind[0]}-{safe_name(record.id)}.json"
        if path.is_file():
            return dict(read_json(path))
        part: dict[str, Any]
        try:
            samples = read_audio(self.data.path(record))
            alignment = self.aligner.align(samples, spoken_words(record))
        except InputError as error:
            part = {"reason": UNUSABLE, "why": str(error)}
        except ValueError as error:
            part = {"reason": UNFIT, "why": str(error)}
        else:
            confidence = round(alignment.confidence(), 4)
            part = {"confidence": confidence}
            if confidence < self.confidence:
                part["reason"] = OTHER_TEXT
            else:
                part["seconds"] = len(samples) / SAMPLE_RATE
                part["words"] = [
                    [w.text, round(w.start, 5), round(w.end, 5)] for w in alignment.words
                ]
                part |= {
                    "losses": alignment.losses.round(3).tolist(),
                    "symbols": alignment.symbols.tolist(),
                    "beyond": alignment.beyond.tolist(),
                }
        write_json(path, part)
        return part

    def records(
        self, report: PrepareReport, workers: int
    ) -> tuple[SplitRecords, list[dict[str, Any]]]:
        """Return the records with times, and a line for every stretch of a recording that says more
        than its text. workers: threads."""
        data, split = self.data, self.data.split
        every: list[tuple[Kind, Record]] = [("passages", p) for p in data.passages.values()]
        every += [("questions", q) for q in data.questions]
        jobs = [
            (kind, record)
            for kind, record in every
            if record.audio and not record.words and spoken_words(record)
        ]
        with single_threaded(workers) as pool:
            results = pool.map(lambda job: self.part(*job), jobs)
            shown = tqdm(
                results, f"aligning {split}", len(jobs), unit="recording", disable=not jobs
            )
            parts = {
                (kind, record.id): part for (kind, record), part in zip(jobs, shown, strict=True)
            }
        if sure := [part["confidence"] for part in parts.values() if "words" in part]:
            done = (
                f"aligned by {self.aligner.name}; confidence {median(sure):.2f} (median), "
                f"{min(sure):.2f} (least)"
            )
            report.remark(split, "recordings whose words had no times", done, len(sure))

        alignments: dict[tuple[Kind, str], Alignment] = {}
        more: list[dict[str, Any]] = []
        for (kind, name), part in parts.items():
            if "words" not in part:
                continue
            words = tuple(Span(*word) for word in part["words"])
            alignment = Alignment(
                words, *(np.array(part[numbers]) for numbers in ("losses", "symbols", "beyond"))
            )
            alignments[kind, name] = alignment
            # a word has what follows it, the first what is before it
            edges = [0.0, *(w.start for w in words[1:]), part["seconds"]]
            bounds = np.flatnonzero(np.diff(np.r_[False, alignment.says_more(), False])).reshape(
                -1, 2
            )
            more += [
                {
                    "split": split,
                    "kind": kind,
                    "id": name,
                    "start": edges[a],
                    "end": edges[b],
                    "words": [int(a), int(b)],
                }
                for a, b in bounds
            ]
        if more:
            report.remark(
                split,
                "recordings that say more than their text has",
                f"words there may have wrong times; {SAYS_MORE} has the places",
                len({(line["kind"], line["id"]) for line in more}),
            )

        passages: dict[str, Passage] = {}
        for p in data.passages.values():
            report.count(split, "passages")
            part = parts.get(("passages", p.id), {})
            if not p.words and "words" not in part:
                why = part or {"reason": NO_TEXT if p.audio else NO_RECORDING}
                report.set_aside(split, "passages", p.id, **why)
                continue
            passages[p.id] = self.relocate(p, part)
        questions = []
        for q in data.questions:
            report.count(split, "questions")
            part = parts.get(("questions", q.id), {})
            if q.passage not in passages:
                report.set_aside(split, "questions", q.id, LOST)
            elif "reason" in part:
                report.set_aside(split, "questions", q.id, **part)
            else:
                questions.append(
                    self.add_answer_times(
                        self.relocate(q, part),
                        passages[q.passage],
                        alignments.get(("passages", q.passage)),
                        report,
                    )
                )
        return SplitRecords(tuple(passages.values()), questions), more

    def relocate(self, record: Any, part: Mapping[str, Any]) -> Any:
        """Return a record with its words, and paths that hold in another folder."""
        root = self.data.root.resolve()
        moved = replace(record, audio=str(root / record.audio) if record.audio else "")
        if isinstance(record, Question):
            moved = replace(
                moved, option_audio=tuple(str(root / audio) for audio in record.option_audio)
            )
        if "words" in part:
            # a header may only estimate the length
            long = abs(part["seconds"] - record.seconds) > TOLERANCE
            seconds = part["seconds"] if long else record.seconds
            moved = replace(
                moved, words=tuple(Span(*word) for word in part["words"]), seconds=seconds
            )
        return moved

    def add_answer_times(
        self,
        question: Question,
        passage: Passage,
        alignment: Alignment | None,
        report: PrepareReport,
    ) -> Question:
        """Return the question with times of its answers. alignment: None where the passage had its
        words before."""
        spoken = places(passage.written, passage.words)
        answers = []
        for answer in question.answers:
            if answer.start is not None:
                answers.append(answer)
                continue
            place, why = locate(answer, passage.written, language_of(question.language))
            inside = touched_words(spoken, *place) if place and spoken is not None else None
            if inside is None:
                why = why or (SILENT if spoken is not None else FOREIGN_WORDS)
            elif (
                alignment
                and alignment.confidence(max(inside[0] - CONTEXT, 0), inside[1] + CONTEXT)
                < self.confidence
            ):
                why = UNRECOGNISED
            elif alignment and alignment.says_more()[inside[0] : inside[1] + 1].any():
                why = BESIDE_MORE
            if inside is None or why:
                report.remark(self.data.split, why, UNTIMED)
                answers.append(answer)
            else:
                report.remark(
                    self.data.split,
                    "answers that had no times",
                    "now timed, from the first to the last of their words",
                )
                answers.append(
                    replace(
                        answer,
                        start=passage.words[inside[0]].start,
                        end=passage.words[inside[1]].end,
                    )
                )
        return replace(question, answers=tuple(answers))


def spoken_words(record: Record) -> list[str]:
    """Return the words of what is written (zh: characters), as they stand there, without those that
    are punctuation alone."""
    return [
        word for word, _ in pieces(record.written, record.language) if any(map(is_spoken, word))
    ]


def align_corpus(o: Align) -> dict[str, Any]:
    """Write a corpus with times; return its folder and data report.

    A killed run continues. Raises InputError for a corpus without recordings, texts or anything to
    align, for a recogniser of another language, where nothing could be aligned, and where OUT holds
    something else.
    """
    root, splits = find_splits(o.manifest)
    out = o.out or folder_beside(root)
    if root in (out.resolve(), *out.resolve().parents):
        raise InputError(
            f"{out} is the corpus itself, or in it; give another folder, or none "
            f"for {root.name}-aligned"
        )
    data = {split: load_corpus(root, split) for split in splits}
    language = check_corpus(o.manifest, list(data.values()))
    aligner = load_aligner(o.models, o.recogniser, language)
    passages = [p for corpus in data.values() for p in corpus.passages.values()]
    share = aligner.spells("".join(word for p in passages for word in spoken_words(p)))
    if share < SPELT:
        raise InputError(
            f"{aligner.name} can write only {share:.0%} of the letters of {o.manifest} (language "
            f"{language}); give a recogniser of this language with --recogniser"
        )
    source = {"source": str(root), "manifests": {split: data_hash(root, split) for split in splits}}
    settings = {
        "recogniser": o.recogniser,
        "weights": aligner.weights,
        "confidence": o.confidence,
        "version": VERSION,
    }
    with stage(out, source, settings) as step:
        if not step.done:
            card = dict(read_json(root / CARD)) if (root / CARD).is_file() else {}
            invented = str(card.get("synthetic", "")).startswith(INVENTED)
            report = PrepareReport(str(card.get("corpus", root.name)), invented=invented)
            by_split: dict[str, SplitRecords] = {}
            more: list[dict[str, Any]] = []
            for split, corpus in data.items():
                aligned = AlignedSplit(corpus, out, aligner, o.confidence)
                by_split[split], stretches = aligned.records(report, o.workers)
                more += stretches
            if not any(records.passages for records in by_split.values()):
                common = report.reasons(kind="passages").most_common(3)
                why = "; ".join(f"{n:,} x {reason}" for reason, n in common)
                raise InputError(
                    f"{aligner.name} aligned no passage of {o.manifest} ({why}); "
                    "check texts and recordings"
                )
            for split in by_split:
                copy_reference(root, out, split)
            if more:
                write_lines(out / SAYS_MORE, more)
            facts = {name: card[name] for name in card if name not in ("corpus", "manifests")}
            facts["aligned"] = source | settings | {"says_more": len(more)}
            write_corpus(out, by_split, report, facts)
        warn_of_more(out / SAYS_MORE)
    made = dict(read_json(out / "data_report.json"))
    print(format_report(made))
    print(
        f"{out}: this report is in data_report.json, and every item that was set aside in "
        "set_aside.jsonl"
    )
    count_set_aside(count_set_aside_items(made))
    return {"out": str(out), "report": made}


def folder_beside(root: Path) -> Path:
    """Name the folder CORPUS-aligned beside a corpus, as people would write it."""
    out = root.parent / f"{root.name}-aligned"
    return out.relative_to(Path.cwd()) if out.is_relative_to(Path.cwd()) else out


def copy_reference(root: Path, out: Path, split: str) -> None:
    """Copy the readings of a split, if it has any, with paths that hold in another folder."""
    path = root / split / REFERENCE
    if path.is_file():
        readings = [
            reading | {"audio": str(root / str(reading.get("audio", "")))}
            for _, reading in read_lines(path)
        ]
        write_lines(out / split / REFERENCE, readings)


def warn_of_more(path: Path) -> None:
    """Warn of recordings that say more than their text, if the file of these places is there."""
    if not path.is_file():
        return
    recordings = {(line["split"], line["kind"], line["id"]) for _, line in read_lines(path)}
    who = f"{len(recordings)} recordings say" if len(recordings) > 1 else "1 recording says"
    warnings.warn(
        f"{who} more than the text has, and words there may have wrong times: {path} has the "
        "places; give the whole text, or cut what it does not cover",
        stacklevel=3,
    )


def find_splits(manifest: Path) -> tuple[Path, list[str]]:
    """Find the corpus, absolute, and its splits. Raises InputError for a path that is neither a
    corpus nor of one."""
    path = manifest.resolve()
    if path.name == PASSAGES and path.is_file():
        path = path.parent
    if (path / PASSAGES).is_file():
        return path.parent, [path.name]
    splits = sorted(table.parent.name for table in path.glob(f"*/{PASSAGES}"))
    if not splits:
        raise InputError(
            f"{manifest} {'has no passages.jsonl' if path.exists() else 'does not exist'}; {GIVE}"
        )
    return path, splits


def check_corpus(manifest: Path, splits: Sequence[Corpus]) -> str:
    """Return the language of the passages, en or zh. Raises InputError where there is nothing to
    align, or not enough for it."""
    passages = [p for data in splits for p in data.passages.values()]
    questions = [q for data in splits for q in data.questions]
    if not passages:
        raise InputError(f"{manifest} has no passages; give a corpus that has some")
    if not any(p.audio for p in passages):
        raise InputError(
            f"{manifest} has no recordings of its passages; prepare it with them, or with --speak"
        )
    if not any(p.words or (p.audio and p.written.strip()) for p in passages):
        raise InputError(
            f"{manifest} has no text of its recorded passages; give every passage "
            "the text that is spoken in it"
        )
    lacking = any(p.audio and not p.words for p in passages) or any(
        a.start is None for q in questions for a in q.answers
    )
    if not lacking:
        raise InputError(
            f"{manifest} has times of all words and answers; there is nothing to align"
        )
    languages = sorted({language_of(p.language) for p in passages})
    if len(languages) > 1:
        raise InputError(
            f"{manifest} has passages in {' and '.join(languages)}; align each language by itself"
        )
    return languages[0]
