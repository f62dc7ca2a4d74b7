"""Fit the errors of a recogniser, and simulate such errors in texts at any word error rate, for
systems such as cascade-simulated@30 of `evaluate qa`.

    python recipes/minisqa/confusions.py --help

Fit. The words (zh: characters) of reference texts are aligned with those that were recognised
(Levenshtein) and counted without context: how often each word was substituted, by which words, and
how often it was deleted; which words were inserted, and how often.

Simulate. For a target word error rate a word w is substituted, deleted or left with the chances

    p_s(w) = a s(w) / (1 + a s(w) + b d(w)),    p_d(w) = b d(w) / (1 + a s(w) + b d(w))

where s(w) and d(w) are its odds in the fit, and a and b are such that the means of p_s and p_d over
a text are the target. Hard words stay harder than others, and substitutions, deletions and
insertions have the shares of the fit. A word with few confusions of its own is substituted by a
recognised word that is about as far from it by letters (zh: of its pinyin with the tone) as words
and their confusions in the fit are; this distance is sampled. The random draws of a text depend on
the seed and its id alone, so errors at a low rate are among those at a higher one.

Calibrate. Of errors side by side an alignment may count fewer than were made. The calibration finds
the rates of errors to make so that an alignment counts the target.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

from speechssl.artifacts import begin_stage, hash_json, write_lines
from speechssl.augment import Condition, Distorter
from speechssl.cascade.data import Recogniser
from speechssl.cascade.system import load_recogniser
from speechssl.checkpoints import model_folder
from speechssl.cli import script
from speechssl.data.records import Corpus, Passage, Question, Span, hash_data, load_corpus
from speechssl.encoders.load import load_shared_encoder
from speechssl.errors import InputError, report_set_aside
from speechssl.eval.encode import Job, encode_recordings
from speechssl.eval.spoken_qa import find_recordings
from speechssl.options import DEVICE, Amount, Count, Whole, argument, option
from speechssl.text import find_language, spell_letters, split_tokens
from speechssl.text.chinese import write_pinyin

HIGHEST = 0.8  # highest word error rate that is simulated
# additive smoothing: every word is counted as if it had occurred so many times more, with the
# rates of rare words
PSEUDO_COUNT = 5.0
RARE = 3  # most occurrences of a rare word
FEW = 50  # with fewer occurrences of rare words, the rates of all words are taken for theirs
NEAR = 0.02  # normalised letter distance within which words are equally far
LEVELS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, HIGHEST)  # word error rates of the calibration
ROUNDS = 3  # corrections of the calibration
CALIBRATION_WORDS = 6_000  # words that the calibration simulates in each round
WORDS_PER_TEXT = 100  # of the calibration
SCALE_ROUNDS = 200  # most corrections of a and b
TOLERANCE = 1e-5  # of the mean chances that a and b give


class Edit(NamedTuple):
    """An edit is a word of a text with errors."""

    word: str
    position: int  # of the reference word that it stands for, or, inserted, that it follows


def spell_words(text: str, language: str) -> list[str]:
    """Split a text into the words that the model counts: as a recogniser of letters spells them;
    zh: characters, a Latin run kept as one."""
    if find_language(language) == "zh":
        return split_tokens(text, language)
    return spell_letters(text).split()


@lru_cache(maxsize=100_000)
def spell_sound(word: str, language: str) -> str:
    """Return the letters that distances are counted on: those of the word; zh: of its pinyin."""
    return write_pinyin(word) if find_language(language) == "zh" else word


class Rates(NamedTuple):
    """Rates are errors of each kind over reference words."""

    substituted: float
    deleted: float
    inserted: float

    @property
    def wer(self) -> float:
        return self.substituted + self.deleted + self.inserted

    def scaled_to(self, wer: float) -> Rates:
        """Return rates with the same shares and another word error rate."""
        ratio = wer / self.wer
        return Rates(self.substituted * ratio, self.deleted * ratio, self.inserted * ratio)


@dataclass(frozen=True)
class WordConfusions:
    """A reference word has counts in the fit."""

    count: int = 0  # of its occurrences
    deleted: int = 0
    taken_for: Mapping[str, int] = field(default_factory=dict)  # word recognised instead -> count

    @property
    def substituted(self) -> int:
        return sum(self.taken_for.values())


def _cache_field() -> Any:
    """Make a field of a frozen dataclass for a dictionary that its methods fill; it is no part of
    the value."""
    return field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class ConfusionModel:
    """A confusion model holds the errors of a recogniser."""

    language: str
    words: Mapping[str, WordConfusions]
    inserted: Mapping[str, int]  # words with counts
    vocabulary: Mapping[str, int]  # recognised words with counts
    distances: tuple[float, ...]  # normalised letter distances of substitutions, ascending
    rates: Rates
    calibration: tuple[tuple[float, Rates], ...] = ()  # target word error rate, rates to make
    # caches of `_measure_others`, `_find_near` and `_sample_word`
    others: dict[str, tuple[list[str], np.ndarray]] = _cache_field()  # by word
    near: dict[tuple[str, float], dict[str, int]] = _cache_field()  # by word and distance
    cumulated: dict[Any, tuple[list[str], list[float]]] = _cache_field()  # by key

    def simulate(self, words: Sequence[str], wer: float, name: str, seed: int = 0) -> list[Edit]:
        """Simulate what a recogniser with this word error rate makes of the words, in order.

        words: as `spell_words` gives them. name: of the text; name and seed determine the random
        draws.
        """
        # the rates to make are interpolated between those of the calibration
        levels = np.array([0.0, *(level for level, _ in self.calibration)])
        calibrated = np.array([[0.0] * 3, *(rates for _, rates in self.calibration)])
        rates = Rates(*(float(np.interp(wer, levels, column)) for column in calibrated.T))
        return self.make_errors([words], rates, [name], seed)[0] if words else []

    def make_errors(
        self, texts: Sequence[Sequence[str]], rates: Rates, names: Sequence[str], seed: int
    ) -> list[list[Edit]]:
        """Make errors at these rates in texts of one length."""
        edited = []
        left = max(1 - rates.deleted, 0.1)  # share of words that are not deleted
        insertion = rates.inserted / left  # chance after such a word; none follows a deleted one
        chances = self._scale_odds(texts, rates)
        for words, chances_of_text, name in zip(texts, chances.tolist(), names, strict=True):
            # draws of what happens to a word, of what it is taken for (two), of what follows it
            rng = np.random.default_rng(int(hash_json([seed, name]), 16))
            draws = rng.random((len(words), 4)).tolist()
            edits: list[Edit] = []
            for i, word in enumerate(words):
                substituted, deleted = chances_of_text[i]
                event, first, second, after = draws[i]
                if event < deleted:
                    continue
                if event > 1 - substituted:
                    word = self._sample_confusion(word, first, second)
                edits.append(Edit(word, i))
                if self.inserted and after < insertion:
                    # given after < insertion, after / insertion is uniform: it samples the word
                    chance = after * left / rates.inserted
                    edits.append(Edit(self._sample_word(None, self.inserted, chance), i))
            edited.append(edits)
        return edited

    def _scale_odds(self, texts: Sequence[Sequence[str]], rates: Rates) -> np.ndarray:
        """Return the chances (B, N, 2) of each of the N words of B texts to be substituted and
        deleted; their means over a text are `rates`."""
        odds_of_word = {word: self._estimate_odds(word) for words in texts for word in words}
        odds = np.array([[odds_of_word[word] for word in words] for words in texts])
        target = np.array(rates[:2])
        scale = np.ones((len(texts), 2))  # a and b of every text
        chances = np.empty_like(odds)
        # numbers of the texts whose means are not yet the target
        open_texts = np.arange(len(texts))
        # the scale has no closed form: a word's chances are below 1, whatever its odds are
        for _ in range(SCALE_ROUNDS):
            scaled = odds[open_texts] * scale[open_texts, None]
            chances[open_texts] = scaled / (1 + scaled.sum(axis=2, keepdims=True))
            mean = chances[open_texts].mean(axis=1)
            close = np.abs(mean - target).max(axis=1) < TOLERANCE  # False for NaN
            open_texts = open_texts[~close]
            scale[open_texts] *= target / np.maximum(mean[~close], 1e-12)
        return chances

    def _estimate_odds(self, word: str) -> tuple[float, float]:
        """Return the odds of a word to be substituted and deleted in the fit."""
        confusions = self.words.get(word, WordConfusions())
        total = confusions.count + PSEUDO_COUNT
        substituted = (confusions.substituted + PSEUDO_COUNT * self._rare_rates[0]) / total
        deleted = (confusions.deleted + PSEUDO_COUNT * self._rare_rates[1]) / total
        right = max(1 - substituted - deleted, 1e-3)
        return max(substituted, 1e-6) / right, max(deleted, 1e-6) / right

    @cached_property
    def _rare_rates(self) -> tuple[float, float]:
        """Return the shares of rare words that were substituted and deleted; of all words where
        rare ones are few."""
        words = [w for w in self.words.values() if w.count <= RARE]
        if sum(w.count for w in words) < FEW:
            words = list(self.words.values())
        total = max(sum(w.count for w in words), 1)
        return sum(w.substituted for w in words) / total, sum(w.deleted for w in words) / total

    def _sample_confusion(self, word: str, first: float, second: float) -> str:
        """Sample one of a word's known confusions; or a recognised word that is as far from it as a
        real confusion, in proportion to how often it was recognised. first, second: uniform draws.
        """
        confusions = self.words.get(word, WordConfusions())
        # the more often a word was confused, the more often one of its own confusions is sampled
        own_share = confusions.substituted / (confusions.substituted + 1)
        if first < own_share:
            return self._sample_word(word, confusions.taken_for, first / own_share)
        others, _ = self._measure_others(word)
        if not others or not self.distances:
            return word
        distance = self.distances[int((first - own_share) / (1 - own_share) * len(self.distances))]
        return self._sample_word((word, distance), self._find_near(word, distance), second)

    def _measure_others(self, word: str) -> tuple[list[str], np.ndarray]:
        """Return the other recognised words, and their distances (V,) from this one."""
        if word not in self.others:
            others = [other for other in self.vocabulary if other != word]
            spellings = [spell_sound(other, self.language) for other in others]
            spelling = spell_sound(word, self.language)
            distances = cdist([spelling], spellings, scorer=Levenshtein.normalized_distance)[0]
            self.others[word] = others, distances
        return self.others[word]

    def _find_near(self, word: str, distance: float) -> dict[str, int]:
        """Return the words, with their counts, whose distance is the nearest to this one."""
        if (word, distance) not in self.near:
            others, distances = self._measure_others(word)
            gaps = np.abs(distances - distance)
            near = [others[i] for i in np.flatnonzero(gaps <= gaps.min() + NEAR)]
            self.near[word, distance] = {other: self.vocabulary[other] for other in near}
        return self.near[word, distance]

    def _sample_word(self, key: Any, counts: Mapping[str, int], chance: float) -> str:
        """Sample a word in proportion to its count. key: that of these counts in the cache
        `cumulated`; chance: a uniform draw."""
        if key not in self.cumulated:
            cumulated = np.cumsum(list(counts.values()), dtype=np.float64).tolist()
            self.cumulated[key] = list(counts), cumulated
        words, cumulated = self.cumulated[key]
        return words[min(bisect_right(cumulated, chance * cumulated[-1]), len(words) - 1)]


@dataclass(frozen=True, kw_only=True)
class Confusions:
    """fit the errors of a recogniser, and simulate transcripts with any error rate

    The errors are fitted on the output of a recogniser for a split that is not used for testing.
    OUT/simulated.jsonl gets the texts of another split with such errors. `evaluate qa` reads it for
    systems such as cascade-simulated@30: text QA on texts with errors of this kind, a WER of 30 %.

      python recipes/minisqa/confusions.py corpus exp/errors --models exp/models \\
        --recogniser ctc --split dev --rates 10 30
      speechssl evaluate qa corpus exp/sweep \\
        --systems text cascade-simulated@10 cascade-simulated@30 --conditions clean \\
        --errors exp/errors/simulated.jsonl
    """

    corpus: Path = argument("prepared corpus")
    out: Path = argument("folder for simulated.jsonl")
    models: str = option("people-en", "shipped set or model folder of the recogniser")
    recogniser: str = option(
        "ctc",
        "recogniser: ctc, ctc-NAME, ctc-greedy (without its n-gram), or a MODEL of Hugging Face",
    )
    split: str = option("dev", "split of the corpus that errors are fitted on: any except test")
    test: str = option("test", "split of the corpus whose texts get errors")
    rates: tuple[Amount, ...] = option((10.0, 30.0), "their word error rates, in %", least=1)
    seed: Whole = option(0, "seed of the errors")
    device: str = option("auto", DEVICE)
    workers: Count = option(2, "number of threads")

    def __post_init__(self) -> None:
        """Raise InputError for a test split to fit on, one split for both, or rates that are too
        high."""
        if "test" in self.split:  # a part of the name: SLUE-SQA-5 has verified_test
            raise InputError(
                f"errors cannot be fitted on {self.corpus / self.split}, the test data of the "
                "systems; give --split dev"
            )
        if self.split == self.test:
            raise InputError(
                f"errors are fitted on {self.split} and cannot be simulated there; give another "
                "--test than --split"
            )
        if max(self.rates) > 100 * HIGHEST:
            raise InputError(
                f"--rates of more than {100 * HIGHEST:g} are not simulated; lower them"
            )


def fit_recogniser(o: Confusions) -> dict[str, Any]:
    """Fit a recogniser's errors on its transcripts of passages and questions, print their rates,
    simulate them in the texts of `o.test`, and return the card.

    A finished folder is not written again. Recordings that cannot be read are set aside and
    reported. Raises InputError for recordings without reference texts.
    """
    corpus = load_corpus(o.corpus, o.split)
    models = model_folder(o.models)
    recogniser = load_recogniser(models, o.recogniser, load_shared_encoder(models), corpus.language)
    card = {
        "corpus": o.corpus.resolve().name,
        "split": o.split,
        "data": hash_data(o.corpus, o.split),
        "asr": recogniser.name,
        "recogniser": recogniser.card["asr"],
        "asr_weights": recogniser.card.get("asr_weights"),
        "seed": o.seed,
        "test": hash_data(o.corpus, o.test),
        "simulated": list(o.rates),
    }
    out = o.out / "simulated.jsonl"
    with begin_stage(o.out, card) as step:
        if step.done:
            print(f"{out} is there already")
            return {"out": str(out), "card": card, "rates": step.card["rates"]}
        pairs = transcribe(recogniser, corpus, o.workers)
        model = fit_confusions(pairs, corpus.language)
        rates = model.rates._asdict()
        write_lines(out, simulate_split(model, o))
        step.finish(card | {"rates": rates})
    mix = ", ".join(f"{100 * rate:.1f} % {kind}" for kind, rate in rates.items())
    simulated = " and ".join(f"{rate:g}" for rate in o.rates)
    print(
        f"{out}: texts of {o.test} with simulated errors at {simulated} %; fitted on {len(pairs)} "
        f"texts of {o.split}, WER {100 * model.rates.wer:.1f} % ({mix})"
    )
    return {"out": str(out), "card": card, "rates": rates}


def transcribe(recogniser: Recogniser, corpus: Corpus, workers: int) -> list[tuple[str, str]]:
    """Return reference and recognised text of every recording that has a reference. Recordings
    that cannot be read are set aside and reported."""
    all_records: list[Passage | Question] = [*corpus.passages.values(), *corpus.questions]
    records = {record.id: record for record in all_records if record.text and record.audio}
    name = recogniser.name
    jobs = [Job(name, lambda _, samples: recogniser.transcribe(samples), records.keys())]
    recordings, what = find_recordings(corpus, records.values()), f"{name} transcribes"
    encoded = encode_recordings(jobs, recordings, Condition("clean"), Distorter(), workers, what)
    report_set_aside(encoded[name].failed, name)
    transcripts = encoded[name].features
    return [(records[i].text, transcript.text) for i, transcript in transcripts.items()]


def simulate_split(model: ConfusionModel, o: Confusions) -> list[dict[str, Any]]:
    """Return the lines of simulated.jsonl, one for every text of `o.test` and every rate: its words
    with errors.

    A word keeps its time whatever it is taken for; one that is inserted shares the time of the word
    before it, by letters; the time of a deleted word is lost.
    """
    lines = []
    corpus = load_corpus(o.corpus, o.test)
    records: list[Passage | Question] = [*corpus.passages.values(), *corpus.questions]
    for record in records:
        spans = reference_words(record)
        for rate in o.rates:
            edits = model.simulate([s.text for s in spans], rate / 100, record.id, o.seed)
            words = [[s.text, s.start, s.end] for s in time_edits(edits, spans)]
            lines.append({"rate": rate, "id": record.id, "words": words})
    return lines


def reference_words(record: Passage | Question) -> list[Span]:
    """Return the words (zh: characters) of the reference with their times, nan where the manifest
    has none."""
    spans = []
    for word in record.words or (Span(record.text, math.nan, math.nan),):
        spans += share_time(spell_words(word.text, record.language), word)
    return spans


def time_edits(edits: Sequence[Edit], spans: Sequence[Span]) -> list[Span]:
    """Give the words with errors the times of the reference words; several words of one reference
    word share its time."""
    timed = []
    for index, edits_there in groupby(edits, key=lambda edit: edit.position):
        timed += share_time([edit.word for edit in edits_there], spans[index])
    return timed


def share_time(words: Sequence[str], span: Span) -> list[Span]:
    """Put words one after another in the time of the span, by letters."""
    letters = [len(w) for w in words]
    seconds_per_letter = (span.end - span.start) / max(sum(letters), 1)
    borders = [span.start + seconds_per_letter * sum(letters[:i]) for i in range(len(words))]
    borders.append(span.end)
    return [Span(w, borders[i], borders[i + 1]) for i, w in enumerate(words)]


# ---- the fit


def fit_confusions(pairs: Sequence[tuple[str, str]], language: str) -> ConfusionModel:
    """Count the errors of one recogniser. pairs: reference and recognised texts."""
    counts, deleted = Counter[str](), Counter[str]()
    inserted, vocabulary = Counter[str](), Counter[str]()
    taken_for: dict[str, Counter[str]] = {}
    for text, recognised_text in pairs:
        reference = spell_words(text, language)
        hypothesis = spell_words(recognised_text, language)
        for code in Levenshtein.opcodes(reference, hypothesis):
            spoken = reference[code.src_start : code.src_end]
            recognised = hypothesis[code.dest_start : code.dest_end]
            counts.update(spoken)
            vocabulary.update(recognised)
            if code.tag == "replace":  # as many words by as many
                for word, other in zip(spoken, recognised, strict=True):
                    taken_for.setdefault(word, Counter())[other] += 1
            elif code.tag != "equal":  # one of the two is empty
                deleted.update(spoken)
                inserted.update(recognised)

    rates = count_errors(pairs, language)
    distances = []
    for word, others in taken_for.items():
        spelling = spell_sound(word, language)
        for other in others.elements():
            other_spelling = spell_sound(other, language)
            distances.append(Levenshtein.normalized_distance(spelling, other_spelling))
    words = {}
    # counts are sorted, as the words that are sampled depend on their order
    for word, count in sorted(counts.items()):
        confusions = dict(sorted(taken_for.get(word, {}).items()))
        words[word] = WordConfusions(count, deleted[word], confusions)
    model = ConfusionModel(
        language=language,
        words=words,
        inserted=dict(sorted(inserted.items())),
        vocabulary=dict(sorted(vocabulary.items())),
        distances=tuple(sorted(distances)),
        rates=rates,
    )
    return replace(model, calibration=calibrate(model, [text for text, _ in pairs]))


def count_errors(pairs: Sequence[tuple[str, str]], language: str) -> Rates:
    """Count the rates of errors on the words that WER counts (`text.split_tokens`). pairs:
    reference and recognised texts."""
    counts, total = Counter[str](), 0
    for reference, hypothesis in pairs:
        words = split_words(reference, language)
        edits = Levenshtein.editops(words, split_words(hypothesis, language))
        counts.update(edit.tag for edit in edits)
        total += len(words)
    total = max(total, 1)
    return Rates(counts["replace"] / total, counts["delete"] / total, counts["insert"] / total)


# each round of the calibration has the same texts
split_words = lru_cache(maxsize=4096)(split_tokens)


def calibrate(model: ConfusionModel, references: Sequence[str]) -> tuple[tuple[float, Rates], ...]:
    """For each word error rate of LEVELS find the rates of errors to make in the texts of the fit
    such that an alignment counts that rate. Returns (level, rates to make)."""
    endless = cycle(word for text in references for word in spell_words(text, model.language))
    words = list(islice(endless, CALIBRATION_WORDS))
    starts = range(0, len(words), WORDS_PER_TEXT)
    texts = [words[start : start + WORDS_PER_TEXT] for start in starts]
    return tuple((level, calibrate_level(model, texts, level)) for level in LEVELS)


def calibrate_level(model: ConfusionModel, texts: Sequence[Sequence[str]], wer: float) -> Rates:
    """Find the rates of errors to make in texts of one length such that an alignment counts `wer`,
    with the shares of the fit."""
    target = np.array(model.rates.scaled_to(wer))
    to_make = target
    references = [" ".join(words) for words in texts]
    names = [str(i) for i in range(len(texts))]
    for _ in range(ROUNDS):
        edited = model.make_errors(texts, Rates(*to_make), names, 0)
        hypotheses = [" ".join(edit.word for edit in edits) for edits in edited]
        counted = count_errors(list(zip(references, hypotheses, strict=True)), model.language)
        to_make = np.maximum(target + count_made_errors(texts, edited) - np.array(counted), 0.0)
        # no more words can be wrong than there are
        to_make[:2] *= min(1.0, 0.98 / max(to_make[:2].sum(), 1e-9))
    return Rates(*map(float, to_make))


def count_made_errors(
    texts: Sequence[Sequence[str]], edited: Sequence[Sequence[Edit]]
) -> np.ndarray:
    """Return the rates (3,) of the errors that were made: by chance a few more or fewer than the
    rates to make."""
    total = sum(len(words) for words in texts)
    substituted = present = inserted = 0
    for words, edits in zip(texts, edited, strict=True):
        previous = None
        for word, index in edits:
            if index == previous:  # an inserted word follows that of its index
                inserted += 1
            else:
                present += 1
                substituted += word != words[index]
            previous = index
    return np.array([substituted, total - present, inserted]) / max(total, 1)


if __name__ == "__main__":
    sys.exit(script(fit_recogniser, Confusions))
