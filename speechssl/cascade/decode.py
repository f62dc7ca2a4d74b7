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
from typing import NamedTuple

import numpy as np
from torch import Tensor

from speechssl.artifacts import read_json
from speechssl.cascade.model import BLANK, CtcVocabulary
from speechssl.cascade.ngrams import END, SPECIAL, UNKNOWN, NgramModel, load_ngrams

NGRAM_FOLDER, NGRAM_FILE = "ngram", "ngrams.npz"  # in the folder of a CTC head
NGRAM_THRESHOLD = 12.0  # nats; on MiniSQA dev as good as 25 and three times as fast
# the last character of Unicode: prefix + _LAST sorts behind all words that begin with the prefix
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
        # of one recording they are needed again and again, of many they would fill the memory
        self._scores.clear()
        root = self.lexicon.root
        empty = _Prefix("", 0, BLANK, self.model.start, 0.0, 0.0, root, ends_in_blank=0.0)
        prefixes = [empty]
        for frame in log_probs.double().cpu().numpy():
            prefixes = self._step(prefixes, frame)
        texts: dict[str, _TextScore] = {}  # of whole words
        for prefix in prefixes:
            ended: _Prefix | None = prefix
            if prefix.is_within_word:
                ended = self._end_word(prefix, prefix.text + " ")
            if ended is None:
                continue
            acoustic = prefix.acoustic
            if ended.text in texts:
                acoustic = _add(acoustic, texts[ended.text].acoustic)
            end_score = self._language(ended.context, self.model.numbers[END])
            texts[ended.text] = _TextScore(acoustic, ended.score + end_score)
        if not texts:
            return prefixes[0].text[: prefixes[0].word_start].strip()
        return max(texts, key=lambda text: sum(texts[text])).strip()

    def _step(self, prefixes: list[_Prefix], frame: np.ndarray) -> list[_Prefix]:
        """Return the prefixes after one more frame. frame: (V,)."""
        likeliest_first = [int(i) for i in np.argsort(-frame, kind="stable") if i != BLANK]
        scores = frame.tolist()
        floor = max(p.rank for p in prefixes) + scores[BLANK] - self.options.threshold
        following: dict[str, _Prefix] = {}
        for prefix in prefixes:
            _stay(prefix, scores, following)
            acoustic, rank = prefix.acoustic, prefix.rank
            for symbol in likeliest_first:
                if rank + scores[symbol] < floor:
                    break
                # without a blank between them, two equal symbols are one
                before = prefix.ends_in_blank if symbol == prefix.last else acoustic
                if before == -math.inf:
                    continue
                longer = self._lengthen(prefix, symbol, following)
                if longer is not None:
                    longer.ends_in_symbol = _add(longer.ends_in_symbol, before + scores[symbol])
        ranked = sorted(following.values(), key=lambda p: -p.rank)[: self.options.beam]
        return [p for p in ranked if p.rank >= ranked[0].rank - self.options.threshold]

    def _lengthen(
        self, prefix: _Prefix, symbol: int, following: dict[str, _Prefix]
    ) -> _Prefix | None:
        """Return the prefix that is longer by one symbol, which is added to `following` unless it
        is there; None where the lexicon forbids it, or a word would be empty."""
        is_separator = symbol == self._separator
        text = prefix.text + (" " if is_separator else self.vocabulary.symbols[symbol])
        if text in following:
            return following[text]
        longer: _Prefix | None = None
        if is_separator:
            if prefix.is_within_word:
                longer = self._end_word(prefix, text)
        elif self._separator is None:  # every symbol is a word
            numbers = self.model.numbers
            word = numbers.get(self.vocabulary.symbols[symbol], numbers[UNKNOWN])
            longer = self._add_word(prefix, text, symbol, word)
        else:
            longer = self._add_letter(prefix, text, symbol)
        if longer is not None:
            following[text] = longer
        return longer

    def _add_letter(self, prefix: _Prefix, text: str, symbol: int) -> _Prefix | None:
        """Begin a word or go on with one; None where no word of the lexicon begins so."""
        start = prefix.word_start
        candidates = self.lexicon.find(text[start:], prefix.candidates)
        if candidates is None:
            return None
        lookahead = self.options.lm_weight * candidates.best
        return _Prefix(text, start, symbol, prefix.context, prefix.score, lookahead, candidates)

    def _end_word(self, prefix: _Prefix, text: str) -> _Prefix | None:
        """End the word at the end of a prefix; None where the lexicon does not have it."""
        word = prefix.candidates.word
        if word < 0:
            return None
        assert self._separator is not None  # else every symbol ends a word
        return self._add_word(prefix, text, self._separator, word)

    def _add_word(self, prefix: _Prefix, text: str, symbol: int, word: int) -> _Prefix:
        """Return the prefix with a whole word more, by its number."""
        score = prefix.score + self.options.word_score + self._language(prefix.context, word)
        context = self.model.after(prefix.context, word)
        return _Prefix(text, len(text), symbol, context, score, 0.0, self.lexicon.root)

    def _language(self, context: tuple[int, ...], word: int) -> float:
        """Return the nats of a word in its context."""
        if (context, word) not in self._scores:
            log_prob = self.model.log_prob(context, word)
            self._scores[context, word] = self.options.lm_weight * log_prob
        return self._scores[context, word]


def _stay(prefix: _Prefix, scores: list[float], following: dict[str, _Prefix]) -> None:
    """Add the paths on which a prefix stays as it is: by a blank, or by its last symbol again.
    scores: (V,)."""
    if prefix.text not in following:
        never = -math.inf
        following[prefix.text] = replace(prefix, ends_in_blank=never, ends_in_symbol=never)
    same = following[prefix.text]
    same.ends_in_blank = _add(same.ends_in_blank, prefix.acoustic + scores[BLANK])
    if prefix.last != BLANK:
        repeated = prefix.ends_in_symbol + scores[prefix.last]
        same.ends_in_symbol = _add(same.ends_in_symbol, repeated)


def _add(a: float, b: float) -> float:
    """Return log(exp(a) + exp(b))."""
    if a < b:
        a, b = b, a
    return a if b == -math.inf else a + math.log1p(math.exp(b - a))


@dataclass
class _Prefix:
    """A prefix is the beginning of a text, its score by the language model, and the
    log-probabilities of all its paths."""

    text: str  # whole words, each with a space after it, and the beginning of the next
    word_start: int  # where in the text the next word begins
    last: int  # the last symbol; BLANK at the beginning
    context: tuple[int, ...]  # of the language model
    score: float  # nats of the language model and the word scores for whole words
    lookahead: float  # weighted nats of the likeliest candidate; 0 until a word has begun
    candidates: LexiconRange  # for the word at `word_start`
    ends_in_blank: float = -math.inf  # log-probability of these paths
    ends_in_symbol: float = -math.inf

    @property
    def is_within_word(self) -> bool:
        """Return whether a word has begun and is not ended by a space."""
        return len(self.text) > self.word_start

    @property
    def acoustic(self) -> float:
        """Return the log-probability of all paths."""
        return _add(self.ends_in_blank, self.ends_in_symbol)

    @property
    def rank(self) -> float:
        """Return the score by which prefixes are kept or dropped."""
        return self.acoustic + (self.score + self.lookahead)


class _TextScore(NamedTuple):
    """A whole text has these two scores, in nats; their sum decides."""

    acoustic: float
    language: float


class Lexicon:
    """A lexicon holds the words of a language model as they are spelt with a recogniser's symbols;
    of words spelt alike the likeliest counts.

    A recogniser without capitals spells in lower case, so that a model in capitals (LibriSpeech's)
    fits it.
    """

    def __init__(self, model: NgramModel, symbols: Sequence[str]) -> None:
        is_lower = all(symbol.lower() == symbol for symbol in symbols)
        log_probs = model.ngrams[0].log_probs.tolist()
        number_of: dict[str, int] = {}
        for i, word in enumerate(model.words):
            spelling = word.lower() if is_lower else word
            if word in SPECIAL:
                continue
            if spelling not in number_of or log_probs[i] > log_probs[number_of[spelling]]:
                number_of[spelling] = i
        self.words = sorted(number_of)
        self.numbers = [number_of[word] for word in self.words]
        self.log_probs = np.array([log_probs[number] for number in self.numbers])
        self.root = LexiconRange(0, len(self.words), 0.0, -1)
        self._ranges: dict[tuple[str, int], LexiconRange | None] = {}

    def find(self, prefix: str, within: LexiconRange) -> LexiconRange | None:
        """Find the words that begin with a prefix; None where there are none. within: the words
        that begin with the same but its last letter."""
        key = (prefix, within.first)
        if key not in self._ranges:
            first = bisect_left(self.words, prefix, within.first, within.stop)
            stop = bisect_left(self.words, prefix + _LAST, first, within.stop)
            words = None
            if first < stop:
                word = self.numbers[first] if self.words[first] == prefix else -1
                words = LexiconRange(first, stop, float(self.log_probs[first:stop].max()), word)
            self._ranges[key] = words
        return self._ranges[key]


@dataclass(frozen=True)
class LexiconRange:
    """A range holds the words [first, stop) of a lexicon, all that begin alike."""

    first: int
    stop: int
    best: float  # log10 P of the likeliest
    word: int  # number of the word that is this beginning and no more; -1 where there is none
