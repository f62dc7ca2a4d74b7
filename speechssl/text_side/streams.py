"""Artificial data for pre-training: sequences of ids that have one property of language and no meaning (arXiv 2109.03537).

A stream makes one sequence from a generator of random numbers and a length. Its ids are 0 to V - 1; which token of a vocabulary an
id becomes is the business of whoever asks. Names, of which several can be mixed ("nested+copy", "0.7*dyck-8+0.3*set"; every
sequence is of one of them):

    random      ids drawn uniformly
    unigram     ids as frequent as the tokens of a text
    bigram      ids that follow each other as often as the tokens of a text
    nested      every id occurs in pairs, one pair around another, as brackets do
    flat        every id occurs in pairs that may cross; flat-D: partners at most D places apart
    shuffle-N   runs of N consecutive ids, each in random order; N = 4, 6, 64 in the paper
    dyck-K      brackets of K kinds, opening and closing ones with different ids, well nested
    copy        a random half, and the same again; copy-N: pieces of N ids, each said twice
    set         ids with repetitions, and then each of them once (the simplest tasks of arXiv 2206.10139)

Letters: V ids, L length of a sequence, N tokens of a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from speechssl.errors import InputError

Stream = Callable[[np.random.Generator, int], np.ndarray]  # (generator, L) -> (L,) int64
NAMES = ("random", "unigram", "bigram", "nested", "flat", "shuffle-N", "dyck-K", "copy", "set")
OF_TEXT = ("unigram", "bigram")  # those that imitate a text
_PART = re.compile(r"(?:(\d*\.?\d+)\*)?([a-z]+)(?:-([1-9]\d*))?")
_NUMBER = {"shuffle": "run length", "dyck": "number of kinds", "flat": "longest distance", "copy": "length of a piece"}
_MUST = ("shuffle", "dyck")


def make_stream(name: str, symbols: int, text: np.ndarray | None = None) -> Stream:
    """The stream of a name. symbols: V; text: (N,) ids of a real text, which unigram and bigram imitate.

    Raises InputError for a name that there is not, a number that does not fit V, or an imitation without a text.
    """
    parts, weights = [], []
    for part in name.split("+"):
        found = _PART.fullmatch(part.strip())
        kind, number = (found[2], int(found[3]) if found[3] else None) if found else ("", None)
        known = kind in {n.partition("-")[0] for n in NAMES} and (number is None or kind in _NUMBER)
        if not found or not known or (number is None and kind in _MUST) or float(found[1] or 1) <= 0:
            raise InputError(
                f"there is no artificial data {part.strip()!r}; choose from {', '.join(NAMES)}, joined by + for a mixture"
            )
        parts.append(_one(kind, number, symbols, text))
        weights.append(float(found[1] or 1))
    shares = np.array(weights) / sum(weights)

    def mixed(rng: np.random.Generator, length: int) -> np.ndarray:
        return parts[int(rng.choice(len(parts), p=shares))](rng, length)

    return parts[0] if len(parts) == 1 else mixed


def imitates(name: str) -> bool:
    """Whether a stream, or a part of a mixture, takes its frequencies from a text."""
    return any((found := _PART.fullmatch(part.strip())) is not None and found[2] in OF_TEXT for part in name.split("+"))


def dependency(name: str) -> int | None:
    """How many places, at most, lie between tokens that depend on each other; None where the name does not say."""
    found = _PART.fullmatch(name)
    return int(found[3]) if found and found[3] and found[2] in ("shuffle", "flat", "copy") else None


def _one(kind: str, number: int | None, symbols: int, text: np.ndarray | None) -> Stream:
    needed = {"shuffle": number or 0, "dyck": 2 * (number or 0)}.get(kind, 1)
    if needed > symbols:
        raise InputError(
            f"{kind}-{number} needs {needed} symbols, and the vocabulary has {symbols}; give a smaller number or a larger one"
        )
    if kind in OF_TEXT:
        if text is None or len(text) < 2:
            raise InputError(f"the artificial data {kind} imitate a text; give one with --text")
        return Unigram(text) if kind == "unigram" else Bigram(text)
    makers: dict[str, Stream] = {
        "random": lambda rng, length: rng.integers(symbols, size=length),
        "nested": lambda rng, length: _nested(rng, length, symbols),
        "flat": lambda rng, length: _flat(rng, length, symbols, number or length),
        "shuffle": lambda rng, length: _shuffled(rng, length, symbols, number or 1),
        "dyck": lambda rng, length: _dyck(rng, length, number or 1),
        "copy": lambda rng, length: _copied(rng, length, symbols, number or max(length // 2, 1)),
        "set": lambda rng, length: _sets(rng, length, symbols),
    }
    return makers[kind]


@dataclass(frozen=True)
class Unigram:
    """Tokens of a text, drawn by themselves. text: (N,)."""

    text: np.ndarray

    def __call__(self, rng: np.random.Generator, length: int) -> np.ndarray:
        return self.text[rng.integers(len(self.text), size=length)]


class Bigram:
    """A walk through a text: from a token to what follows it at one of its places, drawn uniformly."""

    def __init__(self, text: np.ndarray) -> None:
        """text: (N,)."""
        self.text = text
        self.places = np.argsort(text[:-1], kind="stable")
        kinds, counts = np.unique(text[:-1], return_counts=True)
        firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        self.at = dict(zip(kinds.tolist(), zip(firsts.tolist(), counts.tolist(), strict=True), strict=True))

    def __call__(self, rng: np.random.Generator, length: int) -> np.ndarray:
        made, draws = [int(self.text[rng.integers(len(self.text))])], rng.random(length)
        while len(made) < length:
            first, count = self.at.get(made[-1], (0, len(self.places)))  # the text's last token may occur nowhere else: anywhere
            place = self.places[first + int(draws[len(made)] * count)]
            made.append(int(self.text[place + 1]))
        return np.array(made, np.int64)


def brackets(rng: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    """A sequence of nested pairs: the number of the pair at every place (L,), and whether the pair opens there (L,).

    An even number of places is filled with whole pairs; of an odd one the last place opens a pair that is cut off.
    """
    whole, coins = length - length % 2, rng.random(length) < 0.5
    pairs, opens, count = np.empty(length, np.int64), np.zeros(length, bool), 0
    stack: list[int] = []
    for i in range(length):
        remaining = whole - i  # places that are left for those on the stack
        if i == whole or not stack or (coins[i] and len(stack) < remaining):
            stack.append(count)
            pairs[i], opens[i] = count, True
            count += 1
        else:
            pairs[i] = stack.pop()
    return pairs, opens


def _nested(rng: np.random.Generator, length: int, symbols: int) -> np.ndarray:
    pairs, _ = brackets(rng, length)
    return rng.integers(symbols, size=length)[pairs]


def _dyck(rng: np.random.Generator, length: int, kinds: int) -> np.ndarray:
    """Kind k opens as id k and closes as id K + k."""
    pairs, opens = brackets(rng, length)
    return rng.integers(kinds, size=length)[pairs] + np.where(opens, 0, kinds)


def _flat(rng: np.random.Generator, length: int, symbols: int, farthest: int) -> np.ndarray:
    """From left to right every place gets a partner among the free ones within reach; where there is none it stays alone."""
    made, ids, draws = np.full(length, -1, np.int64), rng.integers(symbols, size=length), rng.random(length)
    for i in range(length):
        if made[i] < 0:
            made[i] = ids[i]
            free = np.flatnonzero(made[i + 1 : i + 1 + farthest] < 0)
            if len(free):
                made[i + 1 + free[int(draws[i] * len(free))]] = ids[i]
    return made


def _shuffled(rng: np.random.Generator, length: int, symbols: int, run: int) -> np.ndarray:
    firsts = rng.integers(symbols - run + 1, size=-(-length // run))
    return np.concatenate([first + rng.permutation(run) for first in firsts])[:length].astype(np.int64)


def _copied(rng: np.random.Generator, length: int, symbols: int, piece: int) -> np.ndarray:
    pieces: Sequence[np.ndarray] = [np.tile(rng.integers(symbols, size=piece), 2) for _ in range(-(-length // (2 * piece)))]
    return np.concatenate(pieces)[:length]


def _sets(rng: np.random.Generator, length: int, symbols: int) -> np.ndarray:
    """Two thirds of the places repeat a few ids; then each of these comes once, in order of occurrence."""
    made: list[np.ndarray] = []
    while (left := length - sum(map(len, made))) > 0:
        some = rng.integers(symbols, size=max(left // 3, 1))
        drawn = some[rng.integers(len(some), size=max(2 * left // 3, 1))]
        _, firsts = np.unique(drawn, return_index=True)
        made += [drawn, drawn[np.sort(firsts)]]
    return np.concatenate(made)[:length]
