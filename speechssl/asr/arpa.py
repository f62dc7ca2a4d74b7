"""N-gram models in ARPA files, plain or compressed (.gz): what SRILM and KenLM write, and the official ones of LibriSpeech.

The format: Doug Paul's, as described in SRILM's manual (ngram-format). Every line of a section holds a log-probability to the base
10, the words of an n-gram, and, if longer ones begin with it, a back-off weight. KenLM's binary files are not read.
"""

from __future__ import annotations

import gzip
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from speechssl.artefacts import replacing
from speechssl.asr.ngram import NEVER, SPECIAL, UNKNOWN, NgramModel, Ngrams
from speechssl.errors import InputError

_BLOCK = 1 << 18  # lines read at a time


def read_arpa(path: Path | str) -> NgramModel:
    """A model without <unk> gets one that never occurs.

    Raises InputError for a file that is missing, cut off or damaged: counts that are not kept, lines that are no n-grams, or
    n-grams of unknown words, twice, or without the shorter one they begin with.
    """
    path = Path(path)
    try:
        with _opened(path, "r") as file:
            return _read(line for line in file if line.strip())
    except (OSError, EOFError, zlib.error, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} is not a whole ARPA language model ({reason}); fetch or write it again") from error


def write_arpa(model: NgramModel, path: Path | str) -> None:
    """Compressed where the name ends in .gz."""
    with replacing(path) as temporary, _opened(temporary, "w") as file:
        file.write("\\data\\\n")
        file.writelines(f"ngram {n}={len(ngrams.keys)}\n" for n, ngrams in enumerate(model.ngrams, 1))
        for n in range(1, model.order + 1):
            file.write(f"\n\\{n}-grams:\n")
            file.writelines(_lines(model, n))
        file.write("\n\\end\\\n")


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[IO[str]]:
    if path.suffix == ".gz":
        with gzip.open(path, f"{mode}t", encoding="utf-8") as file:
            yield file  # type: ignore[misc]
    else:
        with path.open(mode, encoding="utf-8") as plain:
            yield plain


def _lines(model: NgramModel, n: int) -> Iterator[str]:
    ngrams, names = model.ngrams[n - 1], _names(model, n)
    for name, log_prob, backoff in zip(names, ngrams.log_probs.tolist(), ngrams.backoffs.tolist(), strict=True):
        yield f"{log_prob:.7g}\t{name}" + (f"\t{backoff:.7g}\n" if n < model.order else "\n")


def _names(model: NgramModel, n: int) -> list[str]:
    """The words of every n-gram of this length, by row."""
    if n == 1:
        return list(model.words)
    shorter, size = _names(model, n - 1), len(model.words)
    return [f"{shorter[key // size]} {model.words[key % size]}" for key in model.ngrams[n - 1].keys.tolist()]


def _read(lines: Iterator[str]) -> NgramModel:
    """Raises ValueError, saying what is wrong. lines: those that are not empty."""
    counts, heading = _counts(lines)
    words, unigrams = _unigrams(lines, counts[0], heading)
    ngrams, numbers = [unigrams], {word: i for i, word in enumerate(words)}
    for n, count in enumerate(counts[1:], 2):
        _expect(next(lines, ""), f"\\{n}-grams:")
        ngrams.append(_section(lines, n, count, ngrams, numbers))
    _expect(next(lines, ""), "\\end\\")
    return NgramModel(tuple(words), tuple(ngrams))


def _counts(lines: Iterator[str]) -> tuple[list[int], str]:
    """How many n-grams of each length there are, and the line after."""
    for line in lines:
        if line.strip() == "\\data\\":
            break
    counts: list[int] = []
    for line in lines:
        found = re.fullmatch(r"ngram\s+(\d+)\s*=\s*(\d+)", line.strip())
        if not found:
            break
        if int(found[1]) != len(counts) + 1:
            raise ValueError(f"it counts {found[1]}-grams where it should count {len(counts) + 1}-grams")
        counts.append(int(found[2]))
    if not counts:
        raise ValueError("it has no \\data\\ section that counts n-grams")
    return counts, line


def _expect(line: str, wanted: str) -> None:
    if line.strip() != wanted:
        raise ValueError(f"{wanted} is missing where {line.strip()[:40]!r} stands" if line else f"it ends before {wanted}")


def _unigrams(lines: Iterator[str], count: int, heading: str) -> tuple[list[str], Ngrams]:
    _expect(heading, "\\1-grams:")
    names, values = [], []
    for rows, numbers in _blocks(lines, 1, count):
        names += [row[0] for row in rows]
        values.append(numbers)
    if missing := [special for special in SPECIAL if special not in names and special != UNKNOWN]:
        raise ValueError(f"it has no {missing[0]}")
    if UNKNOWN not in names:
        names, values = [*names, UNKNOWN], [*values, np.array([[NEVER, 0.0]])]
    if len(set(names)) < len(names):
        raise ValueError("a word stands in it twice")
    found = np.concatenate(values).astype(np.float32)
    return names, Ngrams(np.arange(len(names)), found[:, 0], found[:, 1])


def _section(lines: Iterator[str], n: int, count: int, shorter: Sequence[Ngrams], numbers: dict[str, int]) -> Ngrams:
    keys, values = [np.zeros(0, np.int64)], [np.zeros((0, 2), np.float32)]
    for rows, found in _blocks(lines, n, count):
        keys.append(_keys(rows, shorter, numbers))
        values.append(found.astype(np.float32))
    joined, scores = np.concatenate(keys), np.concatenate(values)
    order = joined.argsort()
    joined = joined[order]
    if (joined[1:] == joined[:-1]).any():
        raise ValueError(f"one of the {n}-grams stands in it twice")
    return Ngrams(joined, scores[order, 0], scores[order, 1])


def _keys(rows: Iterable[Sequence[str]], shorter: Sequence[Ngrams], numbers: dict[str, int]) -> np.ndarray:
    """Keys of n-grams. Raises ValueError where the (n - 1)-gram that one begins with is not there."""
    try:
        flat = np.fromiter(map(numbers.__getitem__, itertools.chain.from_iterable(rows)), np.int64)
    except KeyError as error:
        raise ValueError(f"the word {error} is not among its single words") from None
    words = flat.reshape(-1, len(shorter) + 1)
    found = words[:, 0]
    for n in range(1, len(shorter)):
        found = shorter[n].rows(found * len(numbers) + words[:, n])
        if (found < 0).any():
            raise ValueError(f"it has {words.shape[1]}-grams that begin with {n + 1} words it does not have")
    return found * len(numbers) + words[:, -1]


def _blocks(lines: Iterator[str], n: int, count: int) -> Iterator[tuple[list[list[str]], np.ndarray]]:
    """Blocks of n-grams: their words, and (lines, 2) log-probabilities and back-off weights."""
    while count:
        rows = [line.split() for line in itertools.islice(lines, min(count, _BLOCK))]
        if bad := next((row for row in rows if not n + 1 <= len(row) <= n + 2), None):
            raise ValueError(f"{' '.join(bad)[:40]!r} is not one of its {n}-grams")
        if not rows:
            raise ValueError(f"{count} of its {n}-grams are missing")
        values = np.array([(float(row[0]), float(row[n + 1]) if len(row) > n + 1 else 0.0) for row in rows])
        if np.isnan(values).any():
            raise ValueError("a log-probability is not a number")
        yield [row[1 : n + 1] for row in rows], values
        count -= len(rows)
