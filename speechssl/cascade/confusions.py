"""This module models what a recogniser gets wrong, and makes as many such errors in a text as are
asked for.

It holds, without context: for every word (zh: character) how often it was substituted, by what, and
how often it was deleted; which words were inserted, and how often. To simulate a word error rate,
the odds of a word's being substituted are those of the fit times a, those of its being deleted
times b, where a and b are such
that the expected rates of this text are what is asked for: words that are hard stay harder than
others, and the shares of substitutions, deletions and insertions are those of the fit. A word that
was seen too rarely is substituted by a word of the recognised vocabulary that is about as far from
it by letters (zh: of its pinyin with the tone) as a real confusion (the distance
is drawn from the fit). Of errors side by side fewer may be counted than were made; `calibration`
says which rates to make.
The random part of a text depends on the seed and its id alone: errors at a low rate are among those
at a higher one.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from speechssl.artifacts import hash_json, read_json, write_json
from speechssl.errors import InputError
from speechssl.text import language_of, spell_letters, syllables, tokens

MOST = 0.8  # word error rate that can be asked for
PRIOR = 5.0  # occurrences that a word's rates are drawn towards those of rare words with
RARE = 3  # occurrences up to which a word is rare
NEAR = 0.02  # normalised letter distance within which words are equally far
KIND = "confusions"

# a word, and the index of the reference word it stands at (an insertion: after)
Edit = tuple[str, int]


def spell_words(text: str, language: str) -> list[str]:
    """Split a text into what the model counts: en: words as a recogniser of letters spells them;
    zh: characters, a Latin run kept as one."""
    return tokens(text, language) if language_of(language) == "zh" else spell_letters(text).split()


@lru_cache(maxsize=100_000)
def letters_of(word: str, language: str) -> str:
    """Return the letters that distances are counted on."""
    return syllables(word) if language_of(language) == "zh" else word


class Rates(NamedTuple):
    """Rates are errors of each kind over reference words."""

    substituted: float
    deleted: float
    inserted: float

    @property
    def wer(self) -> float:
        return self.substituted + self.deleted + self.inserted

    def scaled_to(self, wer: float) -> Rates:
        """Return the same mix at another word error rate."""
        share = wer / self.wer
        return Rates(self.substituted * share, self.deleted * share, self.inserted * share)


@dataclass(frozen=True)
class WordConfusions:
    """This is a reference word of the fit: how often it occurred, was deleted, and what it was
    taken for."""

    count: int = 0
    deleted: int = 0
    taken_for: Mapping[str, int] = field(default_factory=dict)

    @property
    def substituted(self) -> int:
        return sum(self.taken_for.values())


@dataclass(frozen=True)
class ConfusionModel:
    """A confusion model holds the errors of a recogniser. vocabulary: recognised words with counts.
    distances: normalised letter distances of real substitutions, ascending.

    calibration: word error rate asked for, rates to make.
    """

    language: str
    words: Mapping[str, WordConfusions]
    inserted: Mapping[str, int]
    vocabulary: Mapping[str, int]
    distances: tuple[float, ...]
    rates: Rates
    calibration: tuple[tuple[float, Rates], ...] = ()
    # of what drawing asks for again and again
    cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def simulate(self, words: Sequence[str], wer: float, name: str, seed: int = 0) -> list[Edit]:
        """Simulate what a recogniser with this word error rate makes of the words, in order.

        words: as `spell_words` gives them. name: of the text, which decides the random part
        together with the seed.
        Raises InputError for a rate outside (0, MOST].
        """
        if not 0 < wer <= MOST:
            raise InputError(
                f"a word error rate of {100 * wer:g} % cannot be simulated; ask for more than 0 "
                f"and at most {100 * MOST:g}"
            )
        rates = self.rates.scaled_to(wer)
        if self.calibration:  # the rates to make lie between those of the calibration
            levels = np.array([0.0, *(level for level, _ in self.calibration)])
            calibrated = np.array([[0.0] * 3, *(r for _, r in self.calibration)])
            rates = Rates(*(float(np.interp(wer, levels, column)) for column in calibrated.T))
        return self.errors([words], [rates], [name], seed)[0] if words else []

    def errors(
        self,
        texts: Sequence[Sequence[str]],
        rates: Sequence[Rates],
        names: Sequence[str],
        seed: int,
    ) -> list[list[Edit]]:
        """Errors at these rates in texts of one length, as they are made; where they stand side by
        side fewer are counted."""
        edited = []
        for words, rate, name, chances in zip(
            texts, rates, names, self._chances(texts, rates).tolist(), strict=True
        ):
            # what happens to a word, what it is taken for (two draws), what comes after it
            draws = (
                np.random.default_rng(int(hash_json([seed, name]), 16))
                .random((len(words), 4))
                .tolist()
            )
            left = max(1 - rate.deleted, 0.1)  # no word is inserted after a deleted one
            edits: list[Edit] = []
            for i, (word, (what, first, second, after)) in enumerate(
                zip(words, draws, strict=True)
            ):
                substituted, deleted = chances[i]
                if what < deleted:
                    continue
                edits.append(
                    (
                        self._sample_confusion(word, first, second)
                        if what > 1 - substituted
                        else word,
                        i,
                    )
                )
                if self.inserted and after < rate.inserted / left:
                    edits.append(
                        (self._sample_word(None, self.inserted, after * left / rate.inserted), i)
                    )
            edited.append(edits)
        return edited

    def _chances(self, texts: Sequence[Sequence[str]], rates: Sequence[Rates]) -> np.ndarray:
        """Return the chances (B, N, 2) of each word's being substituted and deleted; their means
        over a text are those asked for."""
        odds = {word: self._odds(word) for word in {word for words in texts for word in words}}
        every = np.array([[odds[word] for word in words] for words in texts])
        targets, scale, chances = (
            np.array([rate[:2] for rate in rates]),
            np.ones((len(texts), 2)),
            np.empty_like(every),
        )
        going = np.arange(len(texts))  # texts whose means are not yet what is wanted
        # means have no closed form: a word's chances are bounded by 1, whatever its odds are scaled
        # by
        for _ in range(200):
            scaled = every[going] * scale[going, None]
            chances[going] = scaled / (1 + scaled.sum(axis=2, keepdims=True))
            mean = chances[going].mean(axis=1)
            far = ~(np.abs(mean - targets[going]).max(axis=1) < 1e-5)
            going = going[far]
            scale[going] *= targets[going] / np.maximum(mean[far], 1e-12)
        return chances

    def _odds(self, word: str) -> tuple[float, float]:
        """Return the odds of a word's being substituted and deleted in the fit."""
        confusions, rare = self.words.get(word, WordConfusions()), self._rare
        total = confusions.count + PRIOR
        substituted, deleted = (
            (confusions.substituted + PRIOR * rare[0]) / total,
            (confusions.deleted + PRIOR * rare[1]) / total,
        )
        right = max(1 - substituted - deleted, 1e-3)
        return max(substituted, 1e-6) / right, max(deleted, 1e-6) / right

    @cached_property
    def _rare(self) -> tuple[float, float]:
        """Count how often words that occurred rarely were substituted and deleted; of all words
        where there are few such."""
        words = [w for w in self.words.values() if w.count <= RARE]
        words = words if sum(w.count for w in words) >= 50 else list(self.words.values())
        total = max(sum(w.count for w in words), 1)
        return sum(w.substituted for w in words) / total, sum(w.deleted for w in words) / total

    def _sample_confusion(self, word: str, first: float, second: float) -> str:
        """Draw one of a word's known confusions; or a recognised word that is as far from it as a
        real confusion, among those by how often they were recognised. first, second: uniform draws.
        """
        confusions = self.words.get(word, WordConfusions())
        trusted = confusions.substituted / (confusions.substituted + 1)
        if first < trusted:
            return self._sample_word(word, confusions.taken_for, first / trusted)
        if ("far", word) not in self.cache:
            from rapidfuzz.distance import Levenshtein  # every cascade imports this file
            from rapidfuzz.process import cdist

            others = [w for w in self.vocabulary if w != word]
            spelling = [letters_of(w, self.language) for w in others]
            distances = cdist(
                [letters_of(word, self.language)], spelling, scorer=Levenshtein.normalized_distance
            )[0]
            self.cache["far", word] = others, distances
        others, distances = self.cache["far", word]
        if not others or not self.distances:
            return word
        distance = self.distances[int((first - trusted) / (1 - trusted) * len(self.distances))]
        if ("near", word, distance) not in self.cache:
            gaps = np.abs(distances - distance)
            near = np.flatnonzero(gaps <= gaps.min() + NEAR)
            self.cache["near", word, distance] = {
                others[i]: self.vocabulary[others[i]] for i in near
            }
        return self._sample_word((word, distance), self.cache["near", word, distance], second)

    def _sample_word(self, key: Any, counts: Mapping[str, int], chance: float) -> str:
        """A word by how often it occurs. key: of these counts; chance: uniform in [0, 1)."""
        if ("drawn", key) not in self.cache:
            self.cache["drawn", key] = (
                list(counts),
                np.cumsum(list(counts.values()), dtype=np.float64).tolist(),
            )
        names, cumulated = self.cache["drawn", key]
        return names[min(bisect_right(cumulated, chance * cumulated[-1]), len(names) - 1)]


def write_confusions(path: Path | str, model: ConfusionModel, card: Mapping[str, Any]) -> None:
    """Write a model. card: what it was fitted on."""
    values = {
        name: getattr(model, name)
        for name in ("language", "inserted", "vocabulary", "distances", "rates", "calibration")
    }
    words = {w: astuple(k) for w, k in model.words.items()}
    write_json(path, values | {"kind": KIND, "card": dict(card), "words": words})


def read_confusions(path: Path | str) -> ConfusionModel:
    """Read a model. Raises InputError for a file that is missing, damaged, or something else."""

    def counts(entries: Mapping[str, Any]) -> dict[str, int]:
        return {str(word): int(count) for word, count in entries.items()}

    values = read_json(path)
    try:
        if values["kind"] != KIND:
            raise ValueError(f"it is {values['kind']!r}")
        model = ConfusionModel(
            str(values["language"]),
            {
                w: WordConfusions(int(n), int(gone), counts(occurrences))
                for w, (n, gone, occurrences) in values["words"].items()
            },
            counts(values["inserted"]),
            counts(values["vocabulary"]),
            tuple(map(float, values["distances"])),
            Rates(*map(float, values["rates"])),
            tuple(
                (float(level), Rates(*map(float, rates))) for level, rates in values["calibration"]
            ),
        )
        # what cannot be drawn from
        numbers = [
            rate for rates in (model.rates, *(r for _, r in model.calibration)) for rate in rates
        ]
        if not model.words or not model.rates.wer > 0:
            raise ValueError("it holds no errors")
        if not all(math.isfinite(x) and x >= 0 for x in (*numbers, *model.distances)):
            raise ValueError("a rate or distance is not a number of at least 0")
        occurrences = (n for w in model.words.values() for n in w.taken_for.values())
        least = min((*model.inserted.values(), *model.vocabulary.values(), *occurrences), default=1)
        if least < 1 or any(min(w.count, w.deleted) < 0 for w in model.words.values()):
            raise ValueError("a count is not positive")
        if (levels := [level for level, _ in model.calibration]) != sorted(levels):
            raise ValueError("its calibration is out of order")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is not a model of a recogniser's errors ({error}); fit one "
            "(docs/methods.md, The cascade)"
        ) from error
    return model


def confusions_card(path: Path) -> dict[str, Any]:
    """Read what a file was fitted on; nothing of a file that is something else. Raises InputError
    for one that is no JSON."""
    values = read_json(path)
    card = values.get("card") if isinstance(values, dict) and values.get("kind") == KIND else None
    return card if isinstance(card, dict) else {}
