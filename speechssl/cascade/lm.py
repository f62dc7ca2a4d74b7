"""N-gram language models of words: probabilities with back-off, training from texts, and ARPA files.

The model is interpolated Kneser-Ney with one discount an order (Chen and Goodman 1999, section 2.7): closed under the words of the
training texts and `<unk>`, which stands for every other. Logarithms are to the base 10 throughout, as in ARPA files and in KenLM,
whose scores the published settings of beam search weigh. N-grams are kept in sorted arrays, 16 bytes each: the key of (w1 ... wn)
is V times the row of (w1 ... wn-1) among the shorter ones, plus the number of wn. A model of 145 million of them takes 2.4 GB.

ARPA files, plain or compressed (.gz), are what SRILM and KenLM write, and the official models of LibriSpeech (the format: Doug
Paul's, as described in SRILM's manual, ngram-format): every line of a section holds a log-probability, the words of an n-gram, and,
if longer ones begin with it, a back-off weight. KenLM's binary files are not read.
Letters: V words, N order, R rows (n-grams of one length), I tokens of the training texts.
"""

from __future__ import annotations

import gzip
import itertools
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from speechssl.errors import InputError
from speechssl.io import replacing

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
SPECIAL = (BEGIN, END, UNKNOWN)
NEVER = -99.0  # the log-probability that ARPA files give to what is never predicted: <s>


@dataclass(frozen=True, eq=False)
class Ngrams:
    """All n-grams of one length, by their keys."""

    keys: np.ndarray  # (R,) int64, sorted; of single words: 0 to V - 1
    log_probs: np.ndarray  # (R,) float32
    backoffs: np.ndarray  # (R,) float32 log-weight of shorter n-grams after this one; 0 for the longest

    def row(self, key: int) -> int:
        """-1 where there is none."""
        at = int(self.keys.searchsorted(key))
        return at if at < len(self.keys) and self.keys[at] == key else -1

    def rows(self, keys: np.ndarray) -> np.ndarray:
        """(K,) rows of (K,) keys."""
        if not len(self.keys):
            return np.full(len(keys), -1)
        at = self.keys.searchsorted(keys)
        at[at == len(self.keys)] = 0
        return np.where(self.keys[at] == keys, at, -1)


@dataclass(frozen=True, eq=False)
class NgramModel:
    """words: by their numbers, with <s>, </s> and <unk>. ngrams: of 1 to N words. A context is the numbers of up to N - 1 words."""

    words: tuple[str, ...]
    ngrams: tuple[Ngrams, ...]
    numbers: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", {word: i for i, word in enumerate(self.words)})

    @property
    def order(self) -> int:
        return len(self.ngrams)

    @property
    def start(self) -> tuple[int, ...]:
        """The context of a sentence's first word."""
        return (self.numbers[BEGIN],)[: self.order - 1]

    def number(self, word: str) -> int:
        """That of <unk> for a word the model does not have."""
        return self.numbers.get(word, self.numbers[UNKNOWN])

    def after(self, context: tuple[int, ...], word: int) -> tuple[int, ...]:
        """The context of the word that follows."""
        return (*context, word)[max(0, len(context) + 2 - self.order) :]

    def log_prob(self, context: tuple[int, ...], word: int) -> float:
        """log10 P(word | context), backed off where the n-gram was not seen."""
        backed_off = 0.0
        for first in range(len(context)):
            history = context[first:]
            row = self._row(history)
            if row < 0:
                continue
            found = self.ngrams[len(history)].row(row * len(self.words) + word)
            if found >= 0:
                return backed_off + float(self.ngrams[len(history)].log_probs[found])
            backed_off += float(self.ngrams[len(history) - 1].backoffs[row])
        return backed_off + float(self.ngrams[0].log_probs[word])

    def sentence_log_prob(self, words: Sequence[str]) -> float:
        """log10 of the probability of a whole sentence, its end included."""
        context, total = self.start, 0.0
        for number in [*map(self.number, words), self.numbers[END]]:
            total += self.log_prob(context, number)
            context = self.after(context, number)
        return total

    def perplexity(self, texts: Iterable[str]) -> float:
        """Of a word or an end of a sentence. Raises ValueError for no texts."""
        sentences = [text.split() for text in texts]
        if not sentences:
            raise ValueError("there is no text to be perplexed at")
        total = sum(map(self.sentence_log_prob, sentences))
        return math.pow(10.0, -total / sum(len(sentence) + 1 for sentence in sentences))

    def _row(self, words: tuple[int, ...]) -> int:
        row = words[0]
        for n, word in enumerate(words[1:], 1):
            row = self.ngrams[n].row(row * len(self.words) + word)
            if row < 0:
                break
        return row


def train_ngram(texts: Iterable[str], order: int = 4) -> NgramModel:
    """A model of sentences, their words separated by white space. order: N; the published one of LibriSpeech is 4.

    Raises InputError for texts without a word, ValueError for an order below 1.
    """
    if order < 1:
        raise ValueError(f"the order of an n-gram model is at least 1, not {order}")
    sentences = [words for words in (text.split() for text in texts) if words]
    if not sentences:
        raise InputError("the texts for the language model have no words; give texts with some")
    words = (*SPECIAL, *sorted({word for sentence in sentences for word in sentence} - set(SPECIAL)))
    numbers = {word: i for i, word in enumerate(words)}
    marked = [[numbers[BEGIN], *(numbers[w] for w in sentence), numbers[END]] for sentence in sentences]
    tokens = np.array([number for sentence in marked for number in sentence], np.int64)  # (I,)
    left = np.concatenate([np.arange(len(sentence), 0, -1) for sentence in marked])  # tokens of its sentence from each one on
    return NgramModel(words, tuple(_estimate(_count(tokens, left, order, len(words)), len(words))))


@dataclass(frozen=True, eq=False)
class _Counts:
    """The n-grams of one length."""

    keys: np.ndarray  # (R,)
    seen: np.ndarray  # (R,) how often; for all but the longest, after how many different words
    first: np.ndarray  # (R,) a token it begins at
    row_at: np.ndarray  # (I,) the row of the one that begins at a token; -1 where none does


def _count(tokens: np.ndarray, left: np.ndarray, order: int, size: int) -> list[_Counts]:
    """Of every length. Below the highest, an n-gram counts the words that were seen before it, not its occurrences."""
    found: list[_Counts] = []
    rows = np.where(left > 0, tokens, -1)
    for n in range(1, order + 1):
        if n > 1:
            ahead = np.concatenate([tokens[n - 1 :], np.zeros(n - 1, np.int64)])[: len(tokens)]
            rows = np.where(left >= n, rows * size + ahead, -1)
        valid = np.flatnonzero(left >= n)
        keys, first, inverse, counts = np.unique(rows[valid], return_index=True, return_inverse=True, return_counts=True)
        if n == 1:  # every word has its row, seen or not, under its own number
            spread = np.full(size, -1)
            spread[keys] = valid[first]
            first = spread
            keys, inverse, counts = np.arange(size), rows[valid], np.bincount(rows[valid], minlength=size)
        else:
            first = valid[first]
        rows = np.full(len(tokens), -1)
        rows[valid] = inverse
        found.append(_Counts(keys, counts, first, rows))
    for n, longer in enumerate(found[1:]):
        # the number of different words before each; nothing comes before <s>: an n-gram that begins with it keeps its count
        before = np.bincount(found[n].row_at[longer.first + 1], minlength=len(found[n].keys))
        found[n] = replace(found[n], seen=np.where(before > 0, before, found[n].seen))
    return found


def _estimate(counts: Sequence[_Counts], size: int) -> Iterable[Ngrams]:
    """p(w | h) = (c(hw) - D) / c(h) + D k(h) / c(h) p(w | h'), k(h) different words follow h; of single words, h' is uniform."""
    everything = [_unigrams(counts[0].seen.astype(float), size)]
    shares = []  # what is left for shorter n-grams, by row of the context
    for n in range(1, len(counts)):
        here, context = counts[n], counts[n].keys // size
        totals = np.bincount(context, here.seen, minlength=len(counts[n - 1].keys)).astype(float)
        kinds = np.bincount(context, minlength=len(totals))
        discount = _discount(here.seen)
        share = np.divide(discount * kinds, totals, out=np.ones_like(totals), where=totals > 0)
        shorter = everything[-1][counts[n - 1].row_at[here.first + 1]]
        everything.append((here.seen - discount) / totals[context] + share[context] * shorter)
        shares.append(share)
    shares.append(np.ones(len(counts[-1].keys)))
    for c, probabilities, share in zip(counts, everything, shares, strict=True):
        yield Ngrams(c.keys, _log10(probabilities), _log10(share))


def _unigrams(seen: np.ndarray, size: int) -> np.ndarray:
    """(V,) probabilities, that of <s> being 0."""
    seen[SPECIAL.index(BEGIN)] = 0  # it is given, never predicted
    discount = _discount(seen[seen > 0])
    left = discount * (seen > 0).sum() / seen.sum()
    found = np.maximum(seen - discount, 0) / seen.sum() + left / (size - 1)
    found[SPECIAL.index(BEGIN)] = 0
    return found


def _discount(seen: np.ndarray) -> float:
    """Ney's estimate from how many n-grams were seen once and twice, kept away from 0 and 1, where small texts drive it."""
    once, twice = int((seen == 1).sum()), int((seen == 2).sum())
    return float(np.clip(once / (once + 2 * twice) if once else 0.0, 0.1, 0.9))


def _log10(values: np.ndarray) -> Any:
    with np.errstate(divide="ignore"):
        return np.maximum(np.log10(values), NEVER).astype(np.float32)


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
            ngrams = model.ngrams[n - 1]
            for name, log_prob, backoff in zip(_names(model, n), ngrams.log_probs.tolist(), ngrams.backoffs.tolist(), strict=True):
                file.write(f"{log_prob:.7g}\t{name}" + (f"\t{backoff:.7g}\n" if n < model.order else "\n"))
        file.write("\n\\end\\\n")


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[IO[str]]:
    if path.suffix == ".gz":
        with gzip.open(path, f"{mode}t", encoding="utf-8") as file:
            yield file  # type: ignore[misc]
    else:
        with path.open(mode, encoding="utf-8") as plain:
            yield plain


def _names(model: NgramModel, n: int) -> list[str]:
    """The words of every n-gram of this length, by row."""
    if n == 1:
        return list(model.words)
    shorter, size = _names(model, n - 1), len(model.words)
    return [f"{shorter[key // size]} {model.words[key % size]}" for key in model.ngrams[n - 1].keys.tolist()]


def _read(lines: Iterator[str]) -> NgramModel:
    """Raises ValueError, saying what is wrong. lines: those that are not empty."""
    counts, heading = _counts(lines)
    words, unigrams = _unigrams_of_arpa(lines, counts[0], heading)
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


def _unigrams_of_arpa(lines: Iterator[str], count: int, heading: str) -> tuple[list[str], Ngrams]:
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
