"""Decode CTC by prefix beam search with a word n-gram language model and a lexicon.

The search is that of Hannun et al., arXiv 1408.2873, with the lexicon, smearing and weights of
flashlight's decoder, which SUPERB uses. Smearing gives a word that has only begun the score of the
likeliest word it can become. Two things differ from flashlight: the probabilities of all paths of a
prefix are added up (flashlight keeps the likeliest path), and smearing takes the unigram
probability (flashlight: that of the first word of a sentence). Smearing decides which prefixes are
dropped, not what a text scores.
Letters: T frames, V symbols, P prefixes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor

from speechssl.artifacts import check_hash, read_json
from speechssl.cascade.model import BLANK, CtcVocabulary
from speechssl.cascade.ngrams import END, SPECIAL, UNKNOWN, NgramModel, load_ngrams

NGRAM_FOLDER = "ngram"  # in the folder of a CTC head
NGRAM_FILE = "ngrams.npz"  # in that of an n-gram, with card.json, which has the `BeamOptions`
NGRAM_THRESHOLD = 12.0  # nats; on MiniSQA dev as good as 25 and three times as fast
# the last character of Unicode: prefix + _LAST sorts behind all words that begin with the prefix
_LAST = "\U0010ffff"


@dataclass(frozen=True)
class BeamOptions:
    """Beam search has these options; the defaults are those of SUPERB's ASR (s3prl 0.4.18,
    downstream/asr)."""

    beam: int = 5  # most prefixes that are kept after each frame
    lm_weight: float = 2.0  # nats for each unit of log10 probability
    word_score: float = -1.0  # nats for each word
    threshold: float = 25.0  # nats below the best prefix at which others are dropped


class BeamDecoder:
    """The decoder finds texts for a recogniser by beam search. The vocabulary has a symbol between
    words, or every symbol is a word (Chinese characters)."""

    def __init__(
        self, model: NgramModel, vocabulary: CtcVocabulary, options: BeamOptions = BeamOptions()
    ) -> None:
        self.model, self.vocabulary, self.options = model, vocabulary, options
        self.lexicon = Lexicon(model, vocabulary.symbols[1:])
        separator = vocabulary.separator
        self._separator = vocabulary.symbols.index(separator) if separator else None
        # nats of (context, word), for `_score_word`
        self._word_scores: dict[tuple[tuple[int, ...], int], float] = {}
        # where every symbol is a word: the number of each, and (V,) nats of all in a context
        unknown = model.numbers[UNKNOWN]
        self._words = [model.numbers.get(symbol, unknown) for symbol in vocabulary.symbols]
        self._symbol_scores: dict[tuple[int, ...], np.ndarray] = {}

    @classmethod
    def load(cls, folder: Path, vocabulary: CtcVocabulary) -> BeamDecoder:
        """Load a decoder from a folder that `speechssl train ngram` wrote."""
        card = read_json(folder / "card.json")
        check_hash(folder / NGRAM_FILE, card["weights"])
        options = BeamOptions(**card["decoding"])
        return cls(load_ngrams(folder / NGRAM_FILE), vocabulary, options)

    def decode(self, log_probs: Tensor) -> str:
        """Find the best text of (T, V) log-probabilities; a word that is not whole at the end is
        left out if that cannot be helped."""
        # within one recording the same scores are needed often; those of many would fill the memory
        self._word_scores.clear()
        self._symbol_scores.clear()
        empty = _Prefix(
            text="",
            word_start=0,
            last=BLANK,
            context=self.model.start,
            score=0.0,
            lookahead=0.0,
            candidates=self.lexicon.root,
            ends_in_blank=0.0,
        )
        prefixes = [empty]
        for frame in log_probs.double().cpu().numpy():
            prefixes = self._step(prefixes, frame)
        # the texts of whole words -> their scores by the recogniser and by the language model
        texts: dict[str, tuple[float, float]] = {}
        for prefix in prefixes:
            ended: _Prefix | None = prefix
            if prefix.is_within_word:
                ended = self._end_word(prefix, prefix.text + " ")
            if ended is None:
                continue
            acoustic = prefix.acoustic
            if ended.text in texts:
                acoustic = _add(acoustic, texts[ended.text][0])
            end_score = self._score_word(ended.context, self.model.numbers[END])
            texts[ended.text] = (acoustic, ended.score + end_score)
        if not texts:
            return prefixes[0].text[: prefixes[0].word_start].strip()
        return max(texts, key=lambda text: sum(texts[text])).strip()

    def _step(self, prefixes: list[_Prefix], frame: np.ndarray) -> list[_Prefix]:
        """Return the prefixes after one more frame. frame: (V,)."""
        scores = frame.tolist()
        ranks = np.array([p.rank for p in prefixes])[:, None] + frame  # (P, V)
        ranks[ranks < ranks[:, BLANK].max() - self.options.threshold] = -np.inf
        ranks[:, BLANK] = -np.inf
        if self._separator is None:
            ranks = self._keep_best(prefixes, ranks)
        following: dict[str, _Prefix] = {}  # the new prefixes by their texts
        for prefix, symbol_ranks in zip(prefixes, ranks, strict=True):
            _keep_prefix(prefix, scores, following)
            acoustic = prefix.acoustic
            for symbol in np.flatnonzero(symbol_ranks > -np.inf).tolist():
                # two equal symbols without a blank between them are one, so a symbol can only be
                # repeated on the paths that end in a blank
                path_score = prefix.ends_in_blank if symbol == prefix.last else acoustic
                if path_score == -math.inf:
                    continue
                longer = self._lengthen(prefix, symbol, following)
                if longer is not None:
                    longer.ends_in_symbol = _add(longer.ends_in_symbol, path_score + scores[symbol])
        ranked = sorted(following.values(), key=lambda p: -p.rank)[: self.options.beam]
        return [p for p in ranked if p.rank >= ranked[0].rank - self.options.threshold]

    def _keep_best(self, prefixes: list[_Prefix], ranks: np.ndarray) -> np.ndarray:
        """Return the ranks (P, V) of new prefixes, -inf for all but as many as the beam can keep;
        every symbol is a word. ranks: (P, V) without the language model, which is added in
        place."""
        # (V,) for each context would fill the memory: those of prefixes that are gone are dropped
        contexts = {p.context for p in prefixes}
        self._symbol_scores = {c: s for c, s in self._symbol_scores.items() if c in contexts}
        parents = {p.text: row for row, p in enumerate(prefixes)}
        joined = []  # row and symbol of what becomes a prefix that is there, and adds to its paths
        for row, prefix in enumerate(prefixes):
            if prefix.context not in self._symbol_scores:
                log_probs = self.model.compute_log_probs(prefix.context)[self._words]
                self._symbol_scores[prefix.context] = self.options.lm_weight * log_probs
            ranks[row] += self._symbol_scores[prefix.context]
            ranks[row, prefix.last] += prefix.ends_in_blank - prefix.acoustic
            parent = prefix.text[: len(prefix.text) - len(self.vocabulary.symbols[prefix.last])]
            if prefix.text and parent in parents:
                joined.append((parents[parent], prefix.last))
        kept = np.full_like(ranks, -np.inf)
        for pair in joined:
            kept[pair], ranks[pair] = ranks[pair], -np.inf
        allowed = np.flatnonzero(ranks > -np.inf)
        if len(allowed) > self.options.beam:
            order = np.argpartition(ranks.flat[allowed], -self.options.beam)
            allowed = allowed[order[-self.options.beam :]]
        kept.flat[allowed] = ranks.flat[allowed]
        return kept

    def _lengthen(
        self, prefix: _Prefix, symbol: int, following: dict[str, _Prefix]
    ) -> _Prefix | None:
        """Return the prefix that is longer by one symbol, and add it to `following` unless it is
        there; return None where the lexicon forbids it, or a word would be empty."""
        is_separator = symbol == self._separator
        text = prefix.text + (" " if is_separator else self.vocabulary.symbols[symbol])
        if text in following:
            return following[text]
        longer: _Prefix | None = None
        if is_separator:
            if prefix.is_within_word:
                longer = self._end_word(prefix, text)
        elif self._separator is None:  # every symbol is a word
            longer = self._add_word(prefix, text, symbol, self._words[symbol])
        else:
            longer = self._add_letter(prefix, text, symbol)
        if longer is not None:
            following[text] = longer
        return longer

    def _add_letter(self, prefix: _Prefix, text: str, symbol: int) -> _Prefix | None:
        """Return a prefix that begins a word or goes on with one; None where no word of the lexicon
        begins so. text: that of the new prefix."""
        candidates = self.lexicon.find(text[prefix.word_start :], prefix.candidates)
        if candidates is None:
            return None
        return _Prefix(
            text=text,
            word_start=prefix.word_start,
            last=symbol,
            context=prefix.context,
            score=prefix.score,
            lookahead=self.options.lm_weight * candidates.best,
            candidates=candidates,
        )

    def _end_word(self, prefix: _Prefix, text: str) -> _Prefix | None:
        """Return a prefix whose last word is ended by a separator; None where the lexicon does not
        have this word. text: that of the new prefix."""
        word = prefix.candidates.word
        if word < 0:
            return None
        assert self._separator is not None  # else every symbol ends a word
        return self._add_word(prefix, text, self._separator, word)

    def _add_word(self, prefix: _Prefix, text: str, symbol: int, word: int) -> _Prefix:
        """Return a prefix with one whole word more. text, symbol: those of the new prefix; word:
        number of the word."""
        word_score = self._score_word(prefix.context, word)
        return _Prefix(
            text=text,
            word_start=len(text),
            last=symbol,
            context=self.model.extend_context(prefix.context, word),
            score=prefix.score + self.options.word_score + word_score,
            lookahead=0.0,
            candidates=self.lexicon.root,
        )

    def _score_word(self, context: tuple[int, ...], word: int) -> float:
        """Return the score of a word in its context by the language model, in nats."""
        if (context, word) not in self._word_scores:
            log_prob = self.model.compute_log_prob(context, word)
            self._word_scores[context, word] = self.options.lm_weight * log_prob
        return self._word_scores[context, word]


def _keep_prefix(prefix: _Prefix, scores: list[float], following: dict[str, _Prefix]) -> None:
    """Add to `following` the paths on which a prefix stays as it is: by a blank, or by its last
    symbol again. scores: (V,)."""
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
    score: float  # nats that the language model and the word score give to its whole words
    lookahead: float  # nats of the likeliest candidate (smearing); 0 until a word has begun
    candidates: LexiconRange  # the words that the one at `word_start` may become
    ends_in_blank: float = -math.inf  # log-probability of the paths that end in a blank
    ends_in_symbol: float = -math.inf  # log-probability of those that end in the last symbol

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


class Lexicon:
    """A lexicon holds the words of a language model as they are spelt with a recogniser's symbols;
    of words with the same spelling it has the likeliest.

    A recogniser without capitals spells in lower case, so that a model in capitals (LibriSpeech's)
    fits it.
    """

    def __init__(self, model: NgramModel, symbols: Sequence[str]) -> None:
        has_no_capitals = all(symbol.lower() == symbol for symbol in symbols)
        log_probs = model.ngrams[0].log_probs.tolist()
        number_of: dict[str, int] = {}
        for i, word in enumerate(model.words):
            if word in SPECIAL:
                continue
            spelling = word.lower() if has_no_capitals else word
            if spelling not in number_of or log_probs[i] > log_probs[number_of[spelling]]:
                number_of[spelling] = i
        self.words = sorted(number_of)
        self.numbers = [number_of[word] for word in self.words]
        self.log_probs = np.array([log_probs[number] for number in self.numbers])
        self.root = LexiconRange(first=0, stop=len(self.words), best=0.0, word=-1)
        self._ranges: dict[tuple[str, int], LexiconRange | None] = {}

    def find(self, prefix: str, within: LexiconRange) -> LexiconRange | None:
        """Find the words that begin with a prefix; None where there are none. within: the range of
        the prefix without its last letter."""
        key = (prefix, within.first)
        if key not in self._ranges:
            first = bisect_left(self.words, prefix, within.first, within.stop)
            stop = bisect_left(self.words, prefix + _LAST, first, within.stop)
            words = None
            if first < stop:
                best = float(self.log_probs[first:stop].max())
                word = self.numbers[first] if self.words[first] == prefix else -1
                words = LexiconRange(first, stop, best, word)
            self._ranges[key] = words
        return self._ranges[key]


@dataclass(frozen=True)
class LexiconRange:
    """A range holds the words [first, stop) of a lexicon: all that begin with one prefix."""

    first: int
    stop: int
    best: float  # log10 of the unigram probability of the likeliest of them
    word: int  # number of the word that is the prefix itself; -1 where there is none
