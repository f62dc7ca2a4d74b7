"""The recordings of a corpus for the training of SpeechBERT: features in one array on disk, and the words with their times.

A recording is cut by the words of the manifest, or where that has none by aligning what is written with the recogniser; and, where
there is a recogniser, a second time by what it heard, as it will be when questions are answered. Of its words only the times count.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.artefacts import read_json, replacing, write_json
from speechssl.asr.ctc import CtcRecogniser, CtcVocabulary
from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.corpora.records import Corpus, Passage, Question, Span
from speechssl.errors import InputError, tell_set_aside
from speechssl.qa.speechbert.words import WordTable, matched, spans_of, widened, word_table
from speechssl.units.extract import single_threaded
from speechssl.units.features import Features


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


def hear_corpus(data: Corpus, features: Features, recogniser: CtcRecogniser | None, folder: Path) -> WordTable:
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
