"""Train, keep and read n-gram language models of words.

`train_ngram` trains a model on texts; `save_ngrams` and `load_ngrams` keep it in a file;
`read_arpa` reads models of other tools. `NgramModel.compute_log_prob` scores a word.

Training is interpolated Kneser-Ney with one discount an order (Chen and Goodman 1999, section 2.7).
The vocabulary is the words of the training texts and `<unk>`. Logarithms are to the base 10, as in
KenLM and in ARPA files (SRILM's manual, ngram-format), which are read plain or compressed (.gz).
The n-grams of one length are the rows of sorted arrays, 16 bytes each. The key of a row
(w1 ... wn) is V times the row of (w1 ... wn-1) among the n-grams shorter by one word, plus the
number of wn.
Letters: V words of a model, N order, R rows (n-grams of one length), I tokens of the training
texts.
"""

from __future__ import annotations

import gzip
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from speechssl.artifacts import replace_file
from speechssl.errors import InputError, cut_error

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
SPECIAL = (BEGIN, END, UNKNOWN)
NEVER = -99.0  # the log-probability that ARPA files give to what is never predicted: <s>
LEVELS = 256  # to which logarithms are rounded on disk, as KenLM does with 8 bits
_BLOCK = 1 << 18  # lines read at a time


@dataclass(frozen=True, eq=False)
class Ngrams:
    """These arrays hold all n-grams of one length, a row each."""

    keys: np.ndarray  # (R,) int64, sorted; of single words: 0 to V - 1
    log_probs: np.ndarray  # (R,) float32
    # (R,) float32 logarithm of the back-off weight of this n-gram as a context; 0 for the longest
    backoffs: np.ndarray

    def find_row(self, key: int) -> int:
        """Find the row of a key, -1 where there is none."""
        row = int(self.keys.searchsorted(key))
        return row if row < len(self.keys) and self.keys[row] == key else -1

    def find_rows(self, keys: np.ndarray) -> np.ndarray:
        """Find the rows (K,) of keys (K,), -1 where there is none."""
        rows = self.keys.searchsorted(keys)
        rows[rows == len(self.keys)] = 0  # any row, as the keys of all differ from this one
        return np.where(self.keys[rows] == keys, rows, -1)


@dataclass(frozen=True, eq=False)
class NgramModel:
    """An n-gram model predicts a word in its context: the numbers of up to N - 1 words."""

    words: tuple[str, ...]  # by their numbers, with <s>, </s> and <unk>
    ngrams: tuple[Ngrams, ...]  # of 1 to N words

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Map words to their numbers."""
        return {word: i for i, word in enumerate(self.words)}

    @property
    def start(self) -> tuple[int, ...]:
        """Return the context of a sentence's first word."""
        return (self.numbers[BEGIN],)[: len(self.ngrams) - 1]

    def extend_context(self, context: tuple[int, ...], word: int) -> tuple[int, ...]:
        """Return the context of the next word: the last N - 1 words of context and word."""
        return (*context, word)[max(0, len(context) + 2 - len(self.ngrams)) :]

    def compute_log_prob(self, context: tuple[int, ...], word: int) -> float:
        """Compute log10 P(word | context), backed off where the n-gram was not seen."""
        backed_off = 0.0
        while context:
            row = self._find(context)
            if row >= 0:
                longer = self.ngrams[len(context)]
                longer_row = longer.find_row(row * len(self.words) + word)
                if longer_row >= 0:
                    return backed_off + float(longer.log_probs[longer_row])
                backed_off += float(self.ngrams[len(context) - 1].backoffs[row])
            context = context[1:]
        return backed_off + float(self.ngrams[0].log_probs[word])

    def compute_log_probs(self, context: tuple[int, ...]) -> np.ndarray:
        """Compute log10 P(word | context) of all words: (V,) float64."""
        if not context:
            return self.ngrams[0].log_probs.astype(float)
        log_probs = self.compute_log_probs(context[1:])
        row = self._find(context)
        if row >= 0:
            longer, size = self.ngrams[len(context)], len(self.words)
            first, stop = longer.keys.searchsorted([row * size, (row + 1) * size])
            log_probs += self.ngrams[len(context) - 1].backoffs[row]
            log_probs[longer.keys[first:stop] - row * size] = longer.log_probs[first:stop]
        return log_probs

    def _find(self, words: tuple[int, ...]) -> int:
        """Return the row of an n-gram among those of its length, -1 where it was not seen."""
        row = words[0]
        for n, following in enumerate(words[1:], 1):
            row = self.ngrams[n].find_row(row * len(self.words) + following)
            if row < 0:
                break
        return row


# ---- training


class Counts(NamedTuple):
    """These arrays hold the counts of all n-grams of one length, a row each."""

    keys: np.ndarray  # (R,) as in `Ngrams`
    # (R,) how often each was seen; for n-grams shorter than N that do not begin a sentence instead
    # the number of different words before them (Kneser-Ney)
    seen: np.ndarray
    # (R,) for (w1 ... wn) the row of (w2 ... wn) among the n-grams shorter by one; 0 for words
    shorter: np.ndarray


def train_ngram(texts: Iterable[str], order: int = 4) -> NgramModel:
    """Train a model on sentences whose words are separated by white space. order: N; that of
    LibriSpeech's published model is 4.

    With h the context of a word w, and h' the same without its first word,

        p(w | h) = (c(hw) - D) / c(h) + share(h) p(w | h'),    share(h) = D k(h) / c(h)

    where c counts as `Counts.seen`, D is the discount of `compute_discount`, and k(h) different
    words follow h. The distribution of single words is interpolated with the uniform one. Raises
    InputError for texts without a word.
    """
    sentences = [text.split() for text in texts if text.strip()]
    if not sentences:
        raise InputError("the texts for the language model have no words; give texts with some")
    known = {word for sentence in sentences for word in sentence} - set(SPECIAL)
    words = (*SPECIAL, *sorted(known))
    counts = count_ngrams(sentences, words, order)
    probabilities = [_estimate_unigrams(counts[0].seen)]  # by length, (R,) each
    shares = []  # by length of the context, (R,) each
    for n in range(1, order):
        ngrams = counts[n]  # of n + 1 words, whose contexts have n
        context = ngrams.keys // len(words)  # (R,) rows of h
        discount = compute_discount(ngrams.seen)
        contexts = len(counts[n - 1].keys)
        totals = np.bincount(context, ngrams.seen, contexts).astype(float)  # c(h)
        followers = np.bincount(context, minlength=contexts)  # k(h)
        share = np.ones_like(totals)  # stays 1 where nothing follows h
        np.divide(discount * followers, totals, out=share, where=totals > 0)
        discounted = (ngrams.seen - discount) / totals[context]
        probabilities.append(discounted + share[context] * probabilities[-1][ngrams.shorter])
        shares.append(share)
    shares.append(np.ones(len(counts[-1].keys)))
    model = []
    for ngrams, probability, share in zip(counts, probabilities, shares, strict=True):
        model.append(Ngrams(ngrams.keys, compute_log10(probability), compute_log10(share)))
    return NgramModel(words, tuple(model))


def _estimate_unigrams(seen: np.ndarray) -> np.ndarray:
    """Estimate the probabilities (V,) of single words; that of <s>, which is never predicted, is
    0."""
    begin = SPECIAL.index(BEGIN)
    counts = seen.astype(float)
    counts[begin] = 0
    discount = compute_discount(counts[counts > 0])
    total = counts.sum()
    uniform = discount * (counts > 0).sum() / total / (len(counts) - 1)
    probabilities = np.maximum(counts - discount, 0) / total + uniform
    probabilities[begin] = 0
    return probabilities


def count_ngrams(
    sentences: Sequence[Sequence[str]], words: Sequence[str], order: int
) -> list[Counts]:
    """Count the n-grams of lengths 1 to N in the sentences. words: all V words, the special ones
    too; the row of a word among the n-grams of length 1, seen or not, is its number."""
    numbers = {word: i for i, word in enumerate(words)}
    size = len(words)
    marked = [[BEGIN, *sentence, END] for sentence in sentences]
    tokens = np.array([numbers[word] for sentence in marked for word in sentence], np.int64)  # (I,)
    # (I,) number of tokens from each one to the end of its sentence
    remaining = np.concatenate([np.arange(len(sentence), 0, -1) for sentence in marked])

    # these lists have one array for every length:
    keys = [np.arange(size)]
    seen = [np.bincount(tokens, minlength=size)]
    # (I,) row of the n-gram that begins at a token, -1 where its sentence is too short for one
    row_at = [tokens]
    # (R,) token at which an n-gram begins for the first time, -1 where it does not occur
    examples = [np.full(size, -1)]
    examples[0][tokens[::-1]] = np.arange(len(tokens))[::-1]  # the first occurrence is written last
    for n in range(2, order + 1):
        begins = np.flatnonzero(remaining >= n)
        unique, first, inverse, occurrences = np.unique(
            row_at[-1][begins] * size + tokens[begins + n - 1],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        rows = np.full(len(tokens), -1)
        rows[begins] = inverse
        keys.append(unique)
        seen.append(occurrences)
        examples.append(begins[first])
        row_at.append(rows)
    shorter = [np.zeros(size, np.int64)]
    for n in range(1, order):
        shorter.append(row_at[n - 1][examples[n] + 1])
    for n in range(order - 1):
        # each n-gram longer by one that ends with this one has a different word before it; nothing
        # comes before <s>, so an n-gram that begins with it keeps its count
        words_before = np.bincount(shorter[n + 1], minlength=len(keys[n]))
        seen[n] = np.where(words_before > 0, words_before, seen[n])
    return [Counts(*columns) for columns in zip(keys, seen, shorter, strict=True)]


def compute_discount(seen: np.ndarray) -> float:
    """Return Ney's discount n1 / (n1 + 2 n2), where n1 n-grams were seen once and n2 twice. It is
    kept within 0.1 and 0.9, as small texts would drive it to 0 or 1."""
    once, twice = int((seen == 1).sum()), int((seen == 2).sum())
    discount = once / (once + 2 * twice) if once else 0.0
    return float(np.clip(discount, 0.1, 0.9))


def compute_log10(probabilities: np.ndarray) -> np.ndarray:
    """Compute log10 of probabilities as float32, NEVER for 0."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log10(probabilities), NEVER).astype(np.float32)


# ---- files


def save_ngrams(model: NgramModel, path: Path) -> None:
    """Write a model as compressed arrays (.npz).

    They are `words`, joined by line ends, and for every length n five: `n.keys`, the differences of
    the keys; `n.log_probs` and `n.backoffs`, each value as the number of the nearest among LEVELS
    quantiles; and these quantiles, `n.log_probs.levels` and `n.backoffs.levels`.
    """
    arrays: dict[str, np.ndarray] = {"words": np.array("\n".join(model.words))}
    for n, ngrams in enumerate(model.ngrams, 1):
        steps = np.diff(ngrams.keys, prepend=0)
        arrays[f"{n}.keys"] = steps.astype(np.min_scalar_type(steps.max(initial=0)))
        for name in ("log_probs", "backoffs"):
            values = getattr(ngrams, name)
            quantiles = np.quantile(values, np.linspace(0, 1, LEVELS), method="nearest")
            levels = np.unique(quantiles).astype(np.float32)
            borders = (levels[1:] + levels[:-1]) / 2
            arrays[f"{n}.{name}"] = np.searchsorted(borders, values).astype(np.uint8)
            arrays[f"{n}.{name}.levels"] = levels
    with replace_file(path) as temporary:
        np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]


def load_ngrams(path: Path) -> NgramModel:
    """Read a file of `save_ngrams`."""
    ngrams = []
    with np.load(path) as file:
        words = tuple(str(file["words"]).split("\n"))
        order = len(file.files) // 5  # five arrays for every length
        for n in range(1, order + 1):
            keys = np.cumsum(file[f"{n}.keys"], dtype=np.int64)
            log_probs = file[f"{n}.log_probs.levels"][file[f"{n}.log_probs"]]
            backoffs = file[f"{n}.backoffs.levels"][file[f"{n}.backoffs"]]
            ngrams.append(Ngrams(keys, log_probs, backoffs))
    return NgramModel(words, tuple(ngrams))


# ---- ARPA files


def read_arpa(path: Path | str) -> NgramModel:
    """Read an ARPA file, plain or compressed. A model without <unk> gets one that never occurs.

    Raises InputError for a file that is missing or cut off, and for n-grams of unknown words.
    """
    path = Path(path)
    open_text: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with open_text(path, "rt", encoding="utf-8") as file:
            return _parse(line for line in file if line.strip())
    except (OSError, EOFError, zlib.error, ValueError, KeyError) as error:
        raise InputError(
            f"{path} is not a whole ARPA language model ({cut_error(error)}); fetch or write it "
            "again"
        ) from error


def _parse(lines: Iterator[str]) -> NgramModel:
    """Parse an ARPA model. lines: its lines that are not empty. Raises ValueError or KeyError for
    any other text.

    The head of the file counts the n-grams of every length; then each length has a section:

        ngram 2=3
        \\2-grams:
        -0.25 HELLO WORLD -0.4      log-probability, words, and, if any, back-off weight
    """
    counts: list[int] = []  # numbers of n-grams by length, as the head of the file has them
    for line in lines:
        if line.strip() == "\\1-grams:":
            break
        match = re.fullmatch(r"ngram\s+\d+\s*=\s*(\d+)", line.strip())
        if match:
            counts.append(int(match[1]))
    if not counts:
        raise ValueError("it has no \\data\\ section that counts n-grams")

    names: list[str] = []
    blocks: list[np.ndarray] = []
    for rows, values in _read_blocks(lines, 1, counts[0]):
        names += [word for (word,) in rows]
        blocks.append(values)
    if UNKNOWN not in names:
        names.append(UNKNOWN)
        blocks.append(np.array([[NEVER, 0.0]], np.float32))
    numbers = {word: i for i, word in enumerate(names)}
    scores = np.concatenate(blocks)
    ngrams = [Ngrams(np.arange(len(names)), scores[:, 0], scores[:, 1])]
    for n, count in enumerate(counts[1:], 2):
        next(lines, "")  # the heading of the section
        keys = [np.zeros(0, np.int64)]
        blocks = [np.zeros((0, 2), np.float32)]
        for rows, values in _read_blocks(lines, n, count):
            words = np.array([[numbers[word] for word in row] for row in rows])
            context = words[:, 0]  # the rows of the first m words, for m up to n - 1
            for m in range(1, n - 1):
                context = ngrams[m].find_rows(context * len(numbers) + words[:, m])
            if (context < 0).any():
                raise ValueError(f"it has {n}-grams that begin with words it does not have")
            keys.append(context * len(numbers) + words[:, -1])
            blocks.append(values)
        all_keys = np.concatenate(keys)
        scores = np.concatenate(blocks)
        order = all_keys.argsort()
        ngrams.append(Ngrams(all_keys[order], scores[order, 0], scores[order, 1]))
    return NgramModel(tuple(names), tuple(ngrams))


def _read_blocks(
    lines: Iterator[str], n: int, count: int
) -> Iterator[tuple[list[list[str]], np.ndarray]]:
    """Yield `count` n-grams of n words in blocks that fit into memory: their words, and (lines, 2)
    log-probabilities and back-off weights."""
    for first in range(0, count, _BLOCK):
        size = min(count - first, _BLOCK)
        rows = [line.split() for line in itertools.islice(lines, size)]
        if len(rows) < size or any(len(row) not in (n + 1, n + 2) for row in rows):
            raise ValueError(f"it has not the {count} {n}-grams that it counts")
        words = [row[1 : n + 1] for row in rows]
        # the longest n-grams and some others have no back-off weight
        scores = [(row[0], row[-1] if len(row) == n + 2 else 0) for row in rows]
        yield words, np.array(scores, float).astype(np.float32)
