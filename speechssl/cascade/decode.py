"""Decode CTC by prefix beam search with a word n-gram language model and a lexicon.

Search: Hannun et al., arXiv 1408.2873, with the lexicon, smearing and weights of flashlight's
decoder, which SUPERB uses. Two things differ: all paths of a prefix are added up (flashlight keeps
the likeliest), and what can still follow is scored without context (there as the first word of a
sentence), which decides what is dropped, not what a text scores.
Letters: T frames, V symbols.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor

from speechssl.artifacts import read_json
from speechssl.cascade.model import BLANK, CtcVocabulary
from speechssl.cascade.ngrams import END, SPECIAL, UNKNOWN, NgramModel, load_ngrams

NGRAM_FOLDER, NGRAM_FILE = "ngram", "ngrams.npz"  # in the folder of a CTC head
NGRAM_THRESHOLD = 12.0  # nats; on MiniSQA dev as good as 25 and three times as fast
_LAST = "\U0010ffff"


@dataclass(frozen=True)
class BeamOptions:
    """Beam search has these options; the defaults are those of SUPERB's ASR (s3prl 0.4.18,
    downstream/asr)."""

    beam: int = 5  # prefixes kept after each frame
    lm_weight: float = 2.0  # nats for each unit of log10 probability
    word_score: float = -1.0  # nats for each word
    threshold: float = 25.0  # nats below the best prefix at which others are dropped


class BeamDecoder:
    """The decoder finds texts for a recogniser by beam search. Its words are separated by a symbol,
    or every symbol is a word (Chinese characters)."""

    def __init__(
        self, model: NgramModel, vocabulary: CtcVocabulary, options: BeamOptions = BeamOptions()
    ) -> None:
        self.model, self.vocabulary, self.options = model, vocabulary, options
        self.lexicon = Lexicon(model, vocabulary.symbols[1:])
        separator = vocabulary.separator
        self._separator = vocabulary.symbols.index(separator) if separator else None
        self._scores: dict[tuple[tuple[int, ...], int], float] = {}

    @classmethod
    def load(cls, folder: Path, vocabulary: CtcVocabulary) -> BeamDecoder:
        """Load what `speechssl train ngram` left in a folder."""
        options = BeamOptions(**read_json(folder / "card.json")["decoding"])
        return cls(load_ngrams(folder / NGRAM_FILE), vocabulary, options)

    def decode(self, log_probs: Tensor) -> str:
        """Find the best text of (T, V) log-probabilities; a word that is not whole at the end is
        left out if that cannot be helped."""
        # of one recording they are asked for again and again, of many they would fill the memory
        self._scores.clear()
        prefixes = [_Prefix("", 0, BLANK, self.model.start, 0.0, 0.0, self.lexicon.root, blank=0.0)]
        for frame in log_probs.double().cpu().numpy():
            prefixes = self._step(prefixes, frame)
        # texts that are whole words: all their paths, and the language model
        ended: dict[str, tuple[float, float]] = {}
        for prefix in prefixes:
            whole: _Prefix | None = prefix
            if len(prefix.text) > prefix.begun:
                whole = self._end_word(prefix, prefix.text + " ")
            if whole is not None:
                end = whole.score + self._language(whole.context, self.model.numbers[END])
                before, _ = ended.get(whole.text, (-math.inf, 0.0))
                ended[whole.text] = (_add(prefix.acoustic, before), end)
        if not ended:
            return prefixes[0].text[: prefixes[0].begun].strip()
        return max(ended, key=lambda text: sum(ended[text])).strip()

    def _step(self, prefixes: list[_Prefix], frame: np.ndarray) -> list[_Prefix]:
        """Return the prefixes after one more frame. frame: (V,)."""
        symbols = [int(symbol) for symbol in np.argsort(-frame, kind="stable") if symbol != BLANK]
        scores, following = frame.tolist(), dict[str, _Prefix]()
        floor = max(p.rank for p in prefixes) + scores[BLANK] - self.options.threshold
        for prefix in prefixes:
            acoustic, base = prefix.acoustic, prefix.rank
            # nothing new: a blank, or the last symbol goes on
            if prefix.text not in following:
                following[prefix.text] = replace(prefix, blank=-math.inf, symbol=-math.inf)
            same = following[prefix.text]
            same.blank = _add(same.blank, acoustic + scores[BLANK])
            if prefix.last != BLANK:
                same.symbol = _add(same.symbol, prefix.symbol + scores[prefix.last])
            for symbol in symbols:
                if base + scores[symbol] < floor:
                    break  # the symbols come from the likeliest on
                before = prefix.blank if symbol == prefix.last else acoustic
                if before == -math.inf:
                    continue
                between = symbol == self._separator
                text = prefix.text + (" " if between else self.vocabulary.symbols[symbol])
                if text not in following:
                    longer = self._longer(prefix, text, symbol)
                    if longer is None:
                        continue
                    following[text] = longer
                following[text].symbol = _add(following[text].symbol, before + scores[symbol])
        ranked = sorted(following.values(), key=lambda p: -p.rank)[: self.options.beam]
        return [p for p in ranked if p.rank >= ranked[0].rank - self.options.threshold]

    def _longer(self, prefix: _Prefix, text: str, symbol: int) -> _Prefix | None:
        """Add one symbol to a prefix; None where the lexicon forbids it, or a word would be
        empty."""
        if symbol == self._separator:
            return self._end_word(prefix, text) if len(prefix.text) > prefix.begun else None
        if self._separator is None:  # a word by itself
            numbers = self.model.numbers
            word = numbers.get(self.vocabulary.symbols[symbol], numbers[UNKNOWN])
            return self._add_word(prefix, text, symbol, word)
        stem = self.lexicon.find(text[prefix.begun :], prefix.stem)
        if stem is None:
            return None
        ahead = self.options.lm_weight * stem.best
        return _Prefix(text, prefix.begun, symbol, prefix.context, prefix.score, ahead, stem)

    def _end_word(self, prefix: _Prefix, text: str) -> _Prefix | None:
        """End the word that has begun; None where it is none."""
        if prefix.stem.word < 0:
            return None
        assert self._separator is not None  # or no word is ever begun and not whole
        return self._add_word(prefix, text, self._separator, prefix.stem.word)

    def _add_word(self, prefix: _Prefix, text: str, symbol: int, word: int) -> _Prefix:
        score = prefix.score + self.options.word_score + self._language(prefix.context, word)
        context = self.model.after(prefix.context, word)
        return _Prefix(text, len(text), symbol, context, score, 0.0, self.lexicon.root)

    def _language(self, context: tuple[int, ...], word: int) -> float:
        """Return the nats of a word in its context."""
        if (context, word) not in self._scores:
            log_prob = self.model.log_prob(context, word)
            self._scores[context, word] = self.options.lm_weight * log_prob
        return self._scores[context, word]


def _add(a: float, b: float) -> float:
    """Return log(exp(a) + exp(b))."""
    if a < b:
        a, b = b, a
    return a if b == -math.inf else a + math.log1p(math.exp(b - a))


@dataclass
class _Prefix:
    """A prefix is a text so far, its score by the language model, and the log-probabilities of all
    its paths: those that end in a blank, and those that do not.
    """

    text: str  # whole words, each with a space after it, and the beginning of the next
    begun: int  # where that beginning begins
    last: int  # the last symbol; BLANK at the beginning
    context: tuple[int, ...]  # of the language model
    score: float  # nats of the language model and the word scores for whole words
    # and for the word that has begun: what the best that it can become would score without its
    # context
    ahead: float
    stem: Stem
    blank: float = -math.inf
    symbol: float = -math.inf

    @property
    def acoustic(self) -> float:
        return _add(self.blank, self.symbol)

    @property
    def rank(self) -> float:
        return self.acoustic + (self.score + self.ahead)


class Lexicon:
    """A lexicon holds the words of a language model as they are spelt with a recogniser's symbols;
    of words spelt alike the likeliest counts.

    A recogniser that knows no capitals spells in small letters, so that a model in capitals
    (LibriSpeech's) fits it.
    """

    def __init__(self, model: NgramModel, symbols: Sequence[str]) -> None:
        small = not any(symbol.lower() != symbol for symbol in symbols)
        alone = model.ngrams[0].log_probs.tolist()
        best: dict[str, tuple[float, int]] = {}
        for i, word in enumerate(model.words):
            spelt = word.lower() if small else word
            if word not in SPECIAL and (spelt not in best or alone[i] > best[spelt][0]):
                best[spelt] = (alone[i], i)
        unique = [(word, *best[word]) for word in sorted(best)]
        self.words = [word for word, _, _ in unique]
        self.numbers = [number for *_, number in unique]
        self.scores = np.array([score for _, score, _ in unique])
        self.root = Stem(0, len(unique), 0.0, -1)
        self._known: dict[tuple[str, int], Stem | None] = {}

    def find(self, prefix: str, within: Stem) -> Stem | None:
        """Find the stem of a prefix that is one letter longer than that of another; None where no
        word begins so."""
        key = (prefix, within.first)
        if key not in self._known:
            first = bisect_left(self.words, prefix, within.first, within.last)
            last = bisect_left(self.words, prefix + _LAST, first, within.last)
            stem = None
            if first < last:
                word = self.numbers[first] if self.words[first] == prefix else -1
                stem = Stem(first, last, float(self.scores[first:last].max()), word)
            self._known[key] = stem
        return self._known[key]


@dataclass(frozen=True)
class Stem:
    """A stem is the beginning of a word. first, last: the words of a lexicon that begin so, [first,
    last); best: log10 of the likeliest."""

    first: int
    last: int
    best: float
    word: int  # its number if it is itself one, else -1
