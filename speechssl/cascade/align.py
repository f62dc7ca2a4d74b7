"""Align known words with a recording of any length, and say how much less likely each is than what
the recogniser would have written; `speechssl align` gives a corpus these times.

Sources: CTC forced alignment: Graves et al., ICML 2006, torchaudio's `forced_align`; windows whose
part of the text is not known: CTC-segmentation (Kürzinger et al., arXiv 2007.09127); a symbol that
stands for anything: Pratap et al., arXiv 2305.13516, section 3; times by Whisper's cross-attention:
github.com/openai/whisper, timing.py.
Letters: N samples, T frames, V symbols, W words, K tokens.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from speechssl.cascade.data import check_samples, show_pieces, split_at_pauses
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
    Answer,
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
from speechssl.encoders.encoder import single_threaded
from speechssl.encoders.load import hash_weights, shared_encoder
from speechssl.errors import InputError, count_set_aside
from speechssl.text import fold_letters, joiner, language_of, pieces
from speechssl.timing import FrameGrid

if TYPE_CHECKING:
    from speechssl.cascade.engines import WhisperCheckpoint

HEAD_LONGEST = 60.0  # seconds that a head of ours is given at once
WINDOW = 6000  # frames from which on a recording is aligned in windows (two minutes at 50 Hz)
MARGIN = 500  # frames at the end of a window whose words wait for the next one
DENSEST = 0.6  # symbols a frame: 30 a second, more than anybody speaks
STAR_BLANK = 0.5  # nats that a silent frame costs within a word that cannot be spelt
GAP = 0.1  # seconds that a word of a CTC recogniser may grow on either side
TOKEN_SECONDS = 0.02  # a frame of Whisper's encoder
MEDIAN = 7  # frames of the filter over Whisper's attention
CONTEXT = 3  # words on either side that count for the confidence of an answer
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


# ---- CTC: the likeliest path through the text


@dataclass(frozen=True)
class CtcAligner:
    """This aligns with a CTC recogniser (forced alignment), in memory that grows with the recording
    by a few numbers a frame.

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
        used = sorted({n for word in spelt for n in word if n >= 0})
        between = [self.symbols.index(self.separator)] if self.separator else []
        columns = [self.blank, *used, *between]
        place = {n: i for i, n in enumerate(columns)} | {-1: len(columns)}  # the star is last
        targets: list[int] = []
        inside: list[tuple[int, int]] = []  # first and last + 1 of the targets of every word
        for word in spelt:
            if targets:
                targets += [place[n] for n in between]
            inside.append((len(targets), len(targets) + len(word)))
            targets += [place[n] for n in word]

        found: list[tuple[np.ndarray, ...]] = []
        spans, path = align_windows(self._emissions(samples, columns, found), targets)
        best, begun, starts, ends = map(np.concatenate, zip(*found, strict=True))
        bounds = [(spans[first].start, spans[stop - 1].end) for first, stop in inside]
        bounds = share_by_length(bounds, words, [word == [-1] for word in spelt])
        timed = [
            Span(word, float(starts[a]), float(ends[b - 1]))
            for word, (a, b) in zip(words, bounds, strict=True)
        ]
        # what lies between two words counts for the first of them
        borders = [0, *(a for a, _ in bounds[1:])]
        stretches = list(pairwise([*borders, len(path)]))
        losses = best - path
        loss = np.array([losses[a:b].sum() for a, b in stretches])
        counted = [int(begun[a:b].sum()) for a, b in stretches]
        expected = [len(word) + len(between) for word in spelt]
        seconds = len(samples) / SAMPLE_RATE
        return Alignment(widen_words(timed, seconds), loss, np.maximum(counted, expected))

    def _emissions(
        self, samples: np.ndarray, columns: Sequence[int], found: list[tuple[np.ndarray, ...]]
    ) -> Iterator[Tensor]:
        """Yield log-probabilities (T_i, V') of these symbols and, last, of a star, piece by piece;
        note in `found`, (T_i,) each, the log-probability of the likeliest symbol, whether one
        begins, and where the frame starts and ends in seconds."""
        for start, end in show_pieces(split_at_pauses(samples, self.longest), "aligning"):
            scores = self.log_probs(samples[start:end])  # (T, V)
            if not len(scores):
                continue
            best, path = (values.numpy() for values in scores.max(-1))
            begun = (path != self.blank) & np.r_[True, path[1:] != path[:-1]]
            edges = [start / SAMPLE_RATE + self.grid.seconds(t) for t in range(len(scores) + 1)]
            edges[-1] = min(edges[-1], end / SAMPLE_RATE)
            found.append((best, begun, np.array(edges[:-1]), np.array(edges[1:])))
            # a star is any symbol, and the silences within what it stands for
            others = torch.cat([scores[:, : self.blank], scores[:, self.blank + 1 :]], 1)
            star = torch.maximum(others.amax(1), scores[:, self.blank] - STAR_BLANK)
            yield torch.cat([scores[:, columns], star[:, None]], 1)


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


# ---- Whisper: where its decoder looks while it is given the text


class WhisperAligner:
    """This aligns as `CtcAligner` does, by dynamic time warping over the cross-attention of
    Whisper's alignment heads, given the known tokens.

    Audio beyond 30 s is cut at pauses, transcribed, and its words shared out by matching the
    transcripts with them.
    """

    def __init__(self, engine: WhisperCheckpoint, name: str, weights: str, language: str) -> None:
        self.engine, self.name, self.weights, self.joiner = engine, name, weights, joiner(language)
        engine.model.set_attn_implementation("eager")  # the others keep no attention
        settings = engine.model.generation_config
        self._heads = settings.alignment_heads
        self._prompt = [settings.decoder_start_token_id]
        if settings.is_multilingual:
            self._prompt.append(settings.lang_to_id[f"<|{language}|>"])
            self._prompt.append(settings.task_to_id["transcribe"])
        self._prompt.append(settings.no_timestamps_token_id)
        # tokens that differ in case or the space before them count as one: a text may be written
        # without capitals
        tokens = range(engine.model.config.vocab_size)
        names = []
        for i, token in enumerate(engine.tokenizer.convert_ids_to_tokens(list(tokens))):
            plain = token and token.replace("Ġ", "").isascii()
            names.append(token.lstrip("Ġ").lower() if plain else f"{i} {token}")
        self._alike = torch.from_numpy(np.unique(names, return_inverse=True)[1])

    def spells(self, text: str) -> float:
        """Return 1: its tokens are bytes."""
        return 1.0

    def align(self, samples: np.ndarray, words: Sequence[str]) -> Alignment:
        samples = check_samples(samples)
        pieces = split_at_pauses(samples, self.engine.longest)
        owners = np.zeros(len(words), np.int64)
        if len(pieces) > 1:
            recognised = []
            for start, end in show_pieces(pieces, "recognising"):
                decoded = self.engine.decode(samples[start:end])
                recognised.append("".join(word.text for word in decoded))
            owners = assign_to_pieces(words, recognised)
        timed: list[Span] = []
        losses, symbols = [], []
        for n, (start, end) in enumerate(show_pieces(pieces, "aligning")):
            in_piece = [word for word, owner in zip(words, owners, strict=True) if owner == n]
            if not in_piece:
                continue
            offset, limit = start / SAMPLE_RATE, end / SAMPLE_RATE
            found = self._align_piece(samples[start:end], in_piece)
            for word, (a, b, loss, tokens) in zip(in_piece, found, strict=True):
                first = min(offset + a, limit - TOKEN_SECONDS)
                last = min(max(offset + b, first + TOKEN_SECONDS), limit)
                timed.append(Span(word, first, last))
                losses.append(loss)
                symbols.append(tokens)
        return Alignment(tuple(timed), np.array(losses), np.array(symbols))

    @torch.inference_mode()
    def _align_piece(
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
        seconds = len(samples) / SAMPLE_RATE
        room = model.config.max_target_positions - len(prompt) - 1
        if room < len(ids):
            raise ValueError(
                f"{len(ids)} tokens of text fall on {seconds:.1f} s of it, and {room} are possible"
            )
        decoder_ids = torch.tensor([[*prompt, *ids, model.config.eos_token_id]])
        features = self.engine.extract(samples).input_features
        given = decoder_ids.to(model.device)
        outputs = model(features, decoder_input_ids=given, output_attentions=True)
        # row k: from what is given before token k, the last row from what is given before the end
        rows = slice(len(prompt) - 1, len(prompt) + len(ids))
        chances = outputs.logits[0, rows].float().softmax(-1)[: len(ids)].cpu()
        chances = torch.zeros_like(chances).index_add_(1, self._alike, chances)
        chances = chances.clamp_min(1e-30).log()
        loss = chances.amax(-1) - chances[range(len(ids)), self._alike[ids]]
        heads = [outputs.cross_attentions[layer][0, head] for layer, head in self._heads]
        frames = max(round(seconds / TOKEN_SECONDS), 1)
        attention = torch.stack(heads)[:, :, :frames].float().cpu().numpy()
        jumps = token_times(attention, rows)
        # characters of every token, without the space before it
        offsets = coded["offset_mapping"]
        begins = np.array([b - len(text[a:b].lstrip()) for a, b in offsets])
        stops = np.array([b for _, b in offsets])

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
    spread = np.maximum(weights.std(1, keepdims=True), 1e-9)
    weights = (weights - weights.mean(1, keepdims=True)) / spread
    cost = -median_filter(weights, (1, 1, MEDIAN), mode="mirror").mean(0)[rows]
    _, steps = dtw(C=cost)
    steps = steps[::-1]  # (steps, 2): row and frame
    return steps[np.r_[True, np.diff(steps[:, 0]) > 0], 1] * TOKEN_SECONDS


def assign_to_pieces(words: Sequence[str], recognised: Sequence[str]) -> np.ndarray:
    """Find the number (W,) of the piece that each known word is spoken in, in order. recognised:
    what was recognised in every piece.

    Letters of both are matched by the fewest edits; a word is where its middle letter is. Raises
    ValueError where there is nothing to match.
    """
    letters, heard = (
        [fold_letters("".join(filter(str.isalnum, text))) for text in texts]
        for texts in (words, recognised)
    )
    pieces = np.repeat(np.arange(len(heard)), [len(text) for text in heard])
    if not len(pieces):
        raise ValueError("nothing was recognised in it")
    match = Levenshtein.opcodes("".join(letters), "".join(heard))
    # within an edit, letters stand for letters in proportion
    borders = np.cumsum([0, *map(len, letters)])
    sources = [*(o.src_start for o in match), borders[-1]]
    targets = [*(o.dest_start for o in match), len(pieces)]
    middles = np.interp((borders[:-1] + borders[1:]) // 2, sources, targets)
    return np.maximum.accumulate(pieces[np.minimum(middles.astype(int), len(pieces) - 1)])


# ---- by name

Aligner = CtcAligner | WhisperAligner


def load_aligner(models: str | Path, recogniser: str, language: str) -> Aligner:
    """Load an aligner. models: a shipped set or a folder of models; recogniser: as of
    `load_recogniser`; language: of the texts, en or zh."""
    if is_ctc_head(recogniser):
        folder = model_folder(models)
        head = load_recogniser(folder, recogniser, shared_encoder(folder))
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


# ---- `speechssl align`: a prepared corpus again, with times of its words and answers
#
# Words are those of the text (of the transcript where there is no text) as they are spelt there.
# What has times keeps them; recordings stay where they are. What is not spoken as it is written is
# set aside, or gets no times.

VERSION = 2  # of how words are aligned
SPELT = 0.5  # least share of a text's letters that a recogniser must be able to write
PASSAGES, REFERENCE = "passages.jsonl", "reference.jsonl"
NO_RECORDING = "it has no recording"
NO_TEXT = "nothing that could be spoken is written of it"
UNFIT = "its text does not fit into its recording"
OTHER_TEXT = "its text is not what its recording says (low confidence)"
LOST = "its passage is set aside"
FOREIGN_WORDS = "answers of passages whose words are not those of their text"
SILENT = "answers of which nothing is spoken"
UNRECOGNISED = "answers whose words are not recognised in their place (low confidence)"
Record = Passage | Question


def spoken_words(record: Record) -> list[str]:
    """Return the words of what is written (zh: characters), as they stand there, without those that
    are punctuation alone."""
    words = [word for word, _ in pieces(record.written, record.language)]
    return [word for word in words if any(map(is_spoken, word))]


@dataclass(frozen=True)
class AlignedSplit:
    """This aligns one split into the folder `out`, a file a recording in its PARTS, which a killed
    run finds again."""

    data: Corpus
    out: Path
    aligner: Aligner
    confidence: float  # the least that counts as aligned

    def align_record(self, kind: Kind, record: Record) -> dict[str, Any]:
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
            part = {"confidence": round(alignment.confidence(), 4)}
            if part["confidence"] < self.confidence:
                part["reason"] = OTHER_TEXT
            else:
                words = [[w.text, round(w.start, 5), round(w.end, 5)] for w in alignment.words]
                part |= {
                    "seconds": len(samples) / SAMPLE_RATE,
                    "words": words,
                    "losses": alignment.losses.round(3).tolist(),
                    "symbols": alignment.symbols.tolist(),
                }
        write_json(path, part)
        return part

    def align_records(self, report: PrepareReport, workers: int) -> SplitRecords:
        """Return the records with times. workers: threads."""
        data, split = self.data, self.data.split
        every: list[tuple[Kind, Record]] = [("passages", p) for p in data.passages.values()]
        every += [("questions", q) for q in data.questions]
        jobs = [
            (kind, record)
            for kind, record in every
            if record.audio and not record.words and spoken_words(record)
        ]
        parts: dict[tuple[Kind, str], dict[str, Any]] = {}
        with single_threaded(workers) as pool:
            results = pool.map(lambda job: self.align_record(*job), jobs)
            bar = tqdm(results, f"aligning {split}", len(jobs), unit="recording", disable=not jobs)
            for (kind, record), part in zip(jobs, bar, strict=True):
                parts[kind, record.id] = part
        sure = [part["confidence"] for part in parts.values() if "words" in part]
        if sure:
            done = (
                f"aligned by {self.aligner.name}; confidence {median(sure):.2f} (median), "
                f"{min(sure):.2f} (least)"
            )
            report.remark(split, "recordings whose words had no times", done, len(sure))

        passages: dict[str, Passage] = {}
        for p in data.passages.values():
            report.count(split, "passages")
            part = parts.get(("passages", p.id), {})
            if p.words or "words" in part:
                passages[p.id] = self.relocate(p, part)
            else:
                why = part or {"reason": NO_TEXT if p.audio else NO_RECORDING}
                report.set_aside(split, "passages", p.id, **why)
        questions = []
        for q in data.questions:
            report.count(split, "questions")
            part = parts.get(("questions", q.id), {})
            if q.passage not in passages:
                report.set_aside(split, "questions", q.id, LOST)
            elif "reason" in part:
                report.set_aside(split, "questions", q.id, **part)
            else:
                passage, of_passage = passages[q.passage], parts.get(("passages", q.passage))
                answers = [self.time_answer(a, q, passage, of_passage, report) for a in q.answers]
                questions.append(replace(self.relocate(q, part), answers=tuple(answers)))
        return SplitRecords(tuple(passages.values()), questions)

    def relocate(self, record: Any, part: Mapping[str, Any]) -> Any:
        """Return a record with its words, and paths that hold in another folder."""
        root = self.data.root.resolve()
        moved = replace(record, audio=str(root / record.audio) if record.audio else "")
        if isinstance(record, Question):
            options = tuple(str(root / audio) for audio in record.option_audio)
            moved = replace(moved, option_audio=options)
        if "words" in part:
            # a header may only estimate the length
            differs = abs(part["seconds"] - record.seconds) > TOLERANCE
            seconds = part["seconds"] if differs else record.seconds
            words = tuple(Span(*word) for word in part["words"])
            moved = replace(moved, words=words, seconds=seconds)
        return moved

    def time_answer(
        self,
        answer: Answer,
        question: Question,
        passage: Passage,
        part: Mapping[str, Any] | None,
        report: PrepareReport,
    ) -> Answer:
        """Give an answer without times those from the first to the last of its words. part: of the
        passage; None where that had its words before."""
        if answer.start is not None:
            return answer
        spoken = places(passage.written, passage.words)
        place, why = locate(answer, passage.written, language_of(question.language))
        inside = touched_words(spoken, *place) if place and spoken is not None else None
        if inside is None:
            why = why or (FOREIGN_WORDS if spoken is None else SILENT)
        elif part:
            alignment = Alignment((), np.array(part["losses"]), np.array(part["symbols"]))
            around = max(inside[0] - CONTEXT, 0), inside[1] + CONTEXT
            if alignment.confidence(*around) < self.confidence:
                why = UNRECOGNISED
        if inside is None or why:
            report.remark(self.data.split, why, UNTIMED)
            return answer
        now = "now timed, from the first to the last of their words"
        report.remark(self.data.split, "answers that had no times", now)
        first, last = passage.words[inside[0]], passage.words[inside[1]]
        return replace(answer, start=first.start, end=last.end)


def align_corpus(o: Align) -> dict[str, Any]:
    """Write a corpus with times; return its folder and data report.

    A killed run continues. Raises InputError for a corpus without anything to align, for a
    recogniser of another language, and where nothing could be aligned.
    """
    root, splits = find_splits(o.manifest)
    out = o.out or folder_beside(root)
    data = {split: load_corpus(root, split) for split in splits}
    passages = [p for corpus in data.values() for p in corpus.passages.values()]
    if not any(p.words or (p.audio and p.written.strip()) for p in passages):
        raise InputError(
            f"{o.manifest} has no recorded passages with a text; prepare it with both, or with "
            "--speak"
        )
    language = language_of(passages[0].language)
    aligner = load_aligner(o.models, o.recogniser, language)
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
            for split, corpus in data.items():
                aligned = AlignedSplit(corpus, out, aligner, o.confidence)
                by_split[split] = aligned.align_records(report, o.workers)
            if not any(records.passages for records in by_split.values()):
                common = report.reasons(kind="passages").most_common(3)
                why = "; ".join(f"{n:,} x {reason}" for reason, n in common)
                raise InputError(
                    f"{aligner.name} aligned no passage of {o.manifest} ({why}); "
                    "check texts and recordings"
                )
            for split in by_split:
                copy_reference(root, out, split)
            facts = {name: card[name] for name in card if name not in ("corpus", "manifests")}
            facts["aligned"] = source | settings
            write_corpus(out, by_split, report, facts)
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
    if not path.is_file():
        return
    readings = []
    for _, reading in read_lines(path):
        readings.append(reading | {"audio": str(root / str(reading.get("audio", "")))})
    write_lines(out / split / REFERENCE, readings)


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
            f"{manifest} has no {PASSAGES}; give a prepared corpus, a split of one, or the "
            f"{PASSAGES} of a split"
        )
    return path, splits
