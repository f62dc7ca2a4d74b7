"""CTC prefix beam search with a word n-gram language model and a lexicon.

Source: Hannun et al., arXiv 1408.2873 (paths of the same text are summed). Which words are allowed, when the language model is
asked and what it weighs are as in flashlight's lexicon decoder, with which SUPERB decodes: only words of the model, the best word
that can still follow counted from its first letter on ("smearing"), and log-probabilities to the base 10 times `lm_weight`.
Two things differ: of several paths of a prefix flashlight keeps the likeliest alone, here they are added up; and what can still
follow is scored without context, there as the first word of a sentence (which decides what is dropped, not what a text scores).
Letters: T frames, V symbols.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from speechssl.cascade.lm import END, SPECIAL, UNKNOWN, NgramModel
from speechssl.cascade.model import BLANK, CtcVocabulary

_LAST = "\U0010ffff"


@dataclass(frozen=True)
class BeamOptions:
    """The defaults are those of SUPERB's ASR (s3prl 0.4.18, downstream/asr)."""

    beam: int = 5  # prefixes kept after each frame
    lm_weight: float = 2.0  # nats for each unit of log10 probability
    word_score: float = -1.0  # nats for each word
    threshold: float = 25.0  # nats below the best prefix at which others are dropped
    symbols: int = 0  # the likeliest symbols of a frame that are tried; 0: all
    unknown_score: float = -math.inf  # nats for a word that the model does not have; -inf: it is not allowed


@dataclass(frozen=True)
class Stem:
    """The beginning of a word. first, last: the words of a lexicon that begin so, [first, last); best: log10 of the likeliest."""

    first: int
    last: int
    best: float
    word: int  # its number if it is itself one, else -1


class Lexicon:
    """The words of a language model as they are spelt with a recogniser's symbols; of words spelt alike the likeliest counts.

    A recogniser that knows no capitals spells in small letters, so that a model in capitals (LibriSpeech's) fits it.
    """

    def __init__(self, model: NgramModel, symbols: Sequence[str]) -> None:
        small = not any(symbol.lower() != symbol for symbol in symbols)
        alone = model.ngrams[0].log_probs.tolist()
        entries = [(w.lower() if small else w, -alone[i], i) for i, w in enumerate(model.words) if w not in SPECIAL]
        entries.sort()
        kept = [entry for i, entry in enumerate(entries) if i == 0 or entries[i - 1][0] != entry[0]]
        self.words = [word for word, _, _ in kept]
        self.numbers = [number for _, _, number in kept]
        self.scores = np.array([-score for _, score, _ in kept])
        self.root = self._stem("", 0, len(kept))
        self._known: dict[tuple[str, int], Stem | None] = {}

    def find(self, prefix: str, within: Stem) -> Stem | None:
        """The stem of a prefix that is one letter longer than that of another; None where no word begins so."""
        key = (prefix, within.first)
        if key not in self._known:
            first = bisect_left(self.words, prefix, within.first, within.last)
            last = bisect_left(self.words, prefix + _LAST, first, within.last)
            self._known[key] = self._stem(prefix, first, last) if first < last else None
        return self._known[key]

    def _stem(self, prefix: str, first: int, last: int) -> Stem:
        whole = first < last and self.words[first] == prefix
        best = float(self.scores[first:last].max()) if first < last else -math.inf
        return Stem(first, last, best, self.numbers[first] if whole else -1)


@dataclass(frozen=True)
class _Prefix:
    """A text so far, and its score by the language model."""

    text: str  # whole words, each with a space after it, and the beginning of the next
    begun: int  # where that beginning begins
    last: int  # the last symbol; BLANK at the beginning
    context: tuple[int, ...]  # of the language model
    score: float  # nats of the language model and the word scores for whole words
    ahead: float  # and for the word that has begun: what the best that it can become would score without its context
    stem: Stem | None  # None: no word of the lexicon begins so

    @property
    def total(self) -> float:
        return self.score + self.ahead


@dataclass
class _Paths:
    """Log-probabilities of all paths of a prefix: those that end in a blank, and those that do not."""

    prefix: _Prefix
    blank: float = -math.inf
    symbol: float = -math.inf

    @property
    def acoustic(self) -> float:
        return _add(self.blank, self.symbol)

    @property
    def rank(self) -> float:
        return self.acoustic + self.prefix.total


@dataclass(eq=False)
class BeamDecoder:
    """Texts for a recogniser whose words are separated by a symbol. Raises ValueError for one without."""

    model: NgramModel
    vocabulary: CtcVocabulary
    options: BeamOptions = BeamOptions()
    lexicon: Lexicon = field(init=False, repr=False)
    _scores: dict[tuple[tuple[int, ...], int], float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.vocabulary.separator:
            raise ValueError("a language model of words needs a symbol between words")
        self.lexicon = Lexicon(self.model, self.vocabulary.symbols[1:])
        self._separator = self.vocabulary.symbols.index(self.vocabulary.separator)

    def decode(self, log_probs: Tensor) -> str:
        """The best text of (T, V) log-probabilities; a word that is not whole at the end is left out if that cannot be helped."""
        self._scores.clear()  # of one recording they are asked for again and again, of many they would fill the memory
        root = _Prefix("", 0, BLANK, self.model.start, 0.0, 0.0, self.lexicon.root)
        found = [_Paths(root, blank=0.0)]
        for frame in log_probs.double().cpu().numpy():
            found = self._step(found, frame)
        return self._best(found)

    def _step(self, found: list[_Paths], frame: np.ndarray) -> list[_Paths]:
        """The prefixes after one more frame. frame: (V,)."""
        order = np.argsort(-frame, kind="stable")[: self.options.symbols or None]
        tried, scores = [int(symbol) for symbol in order if symbol != BLANK], frame.tolist()
        following: dict[str, _Paths] = {}
        floor = max(p.rank for p in found) + scores[BLANK] - self.options.threshold
        for paths in found:
            prefix, acoustic = paths.prefix, paths.acoustic
            there = following.setdefault(prefix.text, _Paths(prefix))  # nothing new: a blank, or the last symbol goes on
            there.blank = _add(there.blank, acoustic + scores[BLANK])
            if prefix.last != BLANK:
                there.symbol = _add(there.symbol, paths.symbol + scores[prefix.last])
            base = acoustic + prefix.total
            for symbol in tried:
                if base + scores[symbol] < floor:
                    break  # the symbols come from the likeliest on
                before = paths.blank if symbol == prefix.last else acoustic
                if before == -math.inf:
                    continue
                text = prefix.text + (" " if symbol == self._separator else self.vocabulary.symbols[symbol])
                if text not in following:
                    longer = self._longer(prefix, text, symbol)
                    if longer is None:
                        continue
                    following[text] = _Paths(longer)
                following[text].symbol = _add(following[text].symbol, before + scores[symbol])
        ranked = sorted(following.values(), key=lambda p: -p.rank)[: self.options.beam]
        return [p for p in ranked if p.rank >= ranked[0].rank - self.options.threshold]

    def _longer(self, prefix: _Prefix, text: str, symbol: int) -> _Prefix | None:
        """One symbol more; None where the lexicon forbids it, or a word would be empty."""
        if symbol == self._separator:
            return self._whole(prefix, text) if len(prefix.text) > prefix.begun else None
        stem = None if prefix.stem is None else self.lexicon.find(text[prefix.begun :], prefix.stem)
        unknown = float(self.model.ngrams[0].log_probs[self.model.numbers[UNKNOWN]])
        ahead = self._value(stem.best) if stem else self._value(unknown) + self.options.unknown_score
        if ahead == -math.inf:
            return None
        return _Prefix(text, prefix.begun, symbol, prefix.context, prefix.score, ahead, stem)

    def _whole(self, prefix: _Prefix, text: str) -> _Prefix | None:
        """With the word that has begun ended; None where it is none."""
        known = prefix.stem is not None and prefix.stem.word >= 0
        word = prefix.stem.word if prefix.stem and known else self.model.numbers[UNKNOWN]
        bonus = self.options.word_score + (0.0 if known else self.options.unknown_score)
        score = prefix.score + bonus + self._value(self._log_prob(prefix.context, word))
        if score == -math.inf:
            return None
        return _Prefix(text, len(text), self._separator, self.model.after(prefix.context, word), score, 0.0, self.lexicon.root)

    def _best(self, found: list[_Paths]) -> str:
        """The text of the best prefix that is whole words once the last has ended."""
        ended: dict[str, tuple[float, float]] = {}
        for paths in found:
            prefix: _Prefix | None = paths.prefix
            if len(paths.prefix.text) > paths.prefix.begun:
                prefix = self._whole(paths.prefix, paths.prefix.text + " ")
            if prefix is not None:
                end = prefix.score + self._value(self._log_prob(prefix.context, self.model.numbers[END]))
                ended[prefix.text] = (_add(paths.acoustic, ended.get(prefix.text, (-math.inf,))[0]), end)
        if not ended:
            return found[0].prefix.text[: found[0].prefix.begun].strip()
        return max(ended, key=lambda text: sum(ended[text])).strip()

    def _value(self, log10: float) -> float:
        return self.options.lm_weight * log10 if self.options.lm_weight else 0.0

    def _log_prob(self, context: tuple[int, ...], word: int) -> float:
        if (context, word) not in self._scores:
            self._scores[context, word] = self.model.log_prob(context, word)
        return self._scores[context, word]


def _add(a: float, b: float) -> float:
    """log(exp(a) + exp(b))."""
    if a < b:
        a, b = b, a
    return a if b == -math.inf else a + math.log1p(math.exp(b - a))
