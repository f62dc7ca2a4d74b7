"""The recordings of a corpus for the training of SpeechBERT: features in one array on disk, and the words with their times.

A recording is cut by the words of the manifest, or where that has none by aligning what is written with the recogniser; and, where
there is a recogniser, a second time by what it heard, as it will be when questions are answered. Of its words only the times count.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.cascade.ctc import CtcRecogniser, CtcVocabulary
from speechssl.data.records import Corpus, Passage, Question, Span
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import read_json, replacing, write_json
from speechssl.timing import FrameGrid
from speechssl.units.extract import single_threaded
from speechssl.units.features import Features

# Recordings cut into words: where each begins and ends, which rows of features are its own, and, in training, what it says.
#
# Letters: F rows of features of all recordings, N words of all recordings, W words of one, D feature width.

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


def recognised(recogniser: Any, samples: np.ndarray) -> tuple[Span, ...]:
    """Words as a recogniser cuts them, each with what the recogniser took it for. samples: (N,) float32 at 16 kHz."""
    words = spans_of(recogniser.transcribe(samples).words)
    return widened(words, len(samples) / SAMPLE_RATE)


def known_words(record: Passage | Question, samples: np.ndarray, recogniser: CtcRecogniser | None) -> tuple[Span, ...]:
    """Words that are said, with times. Raises ValueError where there are none, and none can be aligned."""
    if words := spans_of(record.words):
        return words
    if recogniser is None or not record.text:
        raise ValueError("its manifest has no words with times (`train speechbert --recogniser` aligns its text)")
    written = [_spelt(word, recogniser.vocabulary) for word in recogniser.vocabulary.words(record.text)]
    found = recogniser.align(samples, " ".join(filter(None, written)))
    return widened(spans_of(found), len(samples) / SAMPLE_RATE)


def _spelt(word: str, vocabulary: CtcVocabulary) -> str:
    """A word in the recogniser's symbols, which are lower-case letters where words are spelt; those it lacks are left out."""
    return "".join(c for c in (word.lower() if vocabulary.separator else word) if c in vocabulary.symbols)


def encode_corpus(data: Corpus, features: Features, recogniser: CtcRecogniser | None, folder: Path) -> WordTable:
    """The words of all recordings of a corpus; features are kept in `folder`, and not computed again.

    Recordings that cannot be read or have no words are set aside and listed. Raises InputError where none is left.
    """
    records: list[Passage | Question] = [*data.passages.values(), *data.questions]
    path, index = folder / "features.f16", folder / "index.json"
    if not index.is_file():
        write_json(index, _write(data, records, features, recogniser, path))
    found = read_json(index)
    bounds = dict(zip((r.id for r in records), itertools.pairwise(found["bounds"]), strict=True))
    cuts = {name: [_read(words) for words in ways] for name, ways in found["words"].items()}
    if not cuts:
        raise InputError(f"no recording of {data.root / data.split} has words with times; SpeechBERT cannot be trained on it")
    rows = np.memmap(path, np.float16, "r", shape=(found["bounds"][-1], found["width"]))
    return word_table(rows, bounds, cuts, features.grid)


def _read(words: Sequence[Any]) -> tuple[Span, ...]:
    return tuple(Span(*word) for word in words)


def _write(
    data: Corpus, records: Sequence[Passage | Question], features: Features, recogniser: CtcRecogniser | None, path: Path
) -> dict[str, Any]:
    """A raw (F, D) float16 array that grows as recordings are heard, and an index of what is in it."""

    def one(record: Passage | Question) -> tuple[np.ndarray, list[list[Any]]] | str:
        try:
            samples = read_audio(data.path(record))
            rows = torch.cat(list(features.stream(samples))).cpu().numpy().astype(np.float16)
            return rows, _ways(record, samples, recogniser)
        except (InputError, ValueError) as error:
            return str(error)

    bounds, words, failed, width = [0], {}, {}, 0
    with replacing(path) as temporary, temporary.open("wb") as file, single_threaded(torch.get_num_threads()) as pool:
        found = tqdm(pool.map(one, records), total=len(records), desc="audio words", unit="file", disable=not records)
        for record, result in zip(records, found, strict=True):
            if isinstance(result, str):
                failed[record.id] = result
                bounds.append(bounds[-1])
                continue
            rows, words[record.id] = result
            file.write(rows.tobytes())
            bounds.append(bounds[-1] + len(rows))
            width = rows.shape[1]
    tell_set_aside(failed, "audio words")
    return {"bounds": bounds, "words": words, "width": width, "failed": failed}


def _ways(record: Passage | Question, samples: np.ndarray, recogniser: CtcRecogniser | None) -> list[list[Any]]:
    """The words cut by what is known, and cut by the recogniser; these with the text of the known words that they are."""
    known = known_words(record, samples, recogniser)
    ways = [known] if recogniser is None else [known, matched(recognised(recogniser, samples), known)]
    return [[[w.text, w.start, w.end] for w in way] for way in ways]
