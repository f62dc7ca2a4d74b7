"""Score answers by their times (FF1, AOS) and by their texts (EM, F1), and transcripts by their
errors (WER, CER).

All scores are in [0, 1] (WER may exceed 1). With several gold annotations a score is the best over
*all* of them. A question without gold annotations has no answer: predicting nothing scores 1 and
predicting anything scores 0 (the rule of SQuAD 2.0); predicting nothing for a question that has an
answer scores 0. Intervals are half-open, [start, end) seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jiwer
import numpy as np

from speechssl.errors import InputError
from speechssl.text import split_answer_tokens, split_tokens

Interval = tuple[float, float]  # start, end in seconds


def frame_f1(predicted: Interval | None, gold: Sequence[Interval]) -> float:
    """Return FF1, the harmonic mean of overlap / predicted length and overlap / gold length.

    It is the frame F1 of DUAL (arXiv 2203.04911) in seconds, because the frames of a recogniser and
    of units need not be equally long. predicted None: no answer. An empty prediction (start == end)
    overlaps nothing and scores 0. Raises ValueError for a time that is not finite, a prediction
    that ends before it starts, or an empty gold interval.
    """
    return _find_best_score(
        predicted, gold, lambda overlap, length, gold_length: 2 * overlap / (length + gold_length)
    )


def overlap_score(predicted: Interval | None, gold: Sequence[Interval]) -> float:
    """Return AOS, the overlap / length of the union. For one pair of intervals FF1 = 2 AOS / (1 +
    AOS). The rules and errors are those of `frame_f1`."""
    return _find_best_score(
        predicted,
        gold,
        lambda overlap, length, gold_length: overlap / (length + gold_length - overlap),
    )


def _find_best_score(
    predicted: Interval | None,
    gold: Sequence[Interval],
    score: Callable[[float, float, float], float],
) -> float:
    """Return the best score over the gold intervals. score: called with the overlap of prediction
    and gold interval, and their lengths."""
    for start, end in gold:
        if not (math.isfinite(start) and math.isfinite(end) and start < end):
            raise ValueError(f"the gold times [{start}, {end}) s are not an interval")
    if predicted is not None:
        start, end = predicted
        if not (math.isfinite(start) and math.isfinite(end) and start <= end):
            raise ValueError(f"the predicted times [{start}, {end}) s are not an interval")
    if predicted is None:
        return float(not gold)
    best = 0.0
    first, last = predicted
    for start, end in gold:
        overlap = max(0.0, min(last, end) - max(first, start))
        # Rounding may make the quotient of equal intervals exceed 1 by an ulp.
        best = max(best, min(1.0, score(overlap, last - first, end - start)))
    return best


def exact_match(predicted: str | None, gold: Sequence[str], language: str = "en") -> float:
    """Return 1 if the prediction equals a gold text in `text.split_answer_tokens` (en: SQuAD's; zh:
    by character), else 0.

    As in the script of SQuAD 2.0, gold texts that are empty after normalisation do not count, and a
    question with none left has no answer. predicted None or a text that normalises to nothing is
    the prediction of no answer.
    """
    words, golds = _tokenise_answers(predicted, gold, language)
    return float(words in golds)


def token_f1(predicted: str | None, gold: Sequence[str], language: str = "en") -> float:
    """Return the F1 of the bags of words (en) or characters (zh; a Latin run counts as one). The
    rules are those of `exact_match`."""
    words, golds = _tokenise_answers(predicted, gold, language)
    return max(_compute_bag_f1(words, answer) for answer in golds)


def _tokenise_answers(
    predicted: str | None, gold: Sequence[str], language: str
) -> tuple[list[str], list[list[str]]]:
    """Return the tokens of the prediction, and those of every gold answer that has some. Where none
    has, the gold is one answer without tokens, which a prediction of no answer equals."""
    gold_tokens = [split_answer_tokens(answer, language) for answer in gold]
    gold_tokens = [words for words in gold_tokens if words]
    return split_answer_tokens(predicted or "", language), gold_tokens or [[]]


def _compute_bag_f1(predicted: list[str], gold: list[str]) -> float:
    """Return the F1 of two bags of tokens."""
    if not predicted or not gold:
        return float(predicted == gold)
    common = (Counter(predicted) & Counter(gold)).total()
    return 2 * common / (len(predicted) + len(gold))


@dataclass(frozen=True, eq=False)
class WordErrors:
    """Recognition errors are counted for each of S utterances, so that the rate can be
    bootstrapped."""

    errors: np.ndarray  # (S,) int64: substitutions + deletions + insertions
    words: np.ndarray  # (S,) int64: words of the reference (zh: characters)

    @property
    def rate(self) -> float:
        """Return all errors / all reference words; 0.15 is a WER of 15 %. It may exceed 1."""
        return float(self.errors.sum() / self.words.sum())


def word_error_rate(
    references: Sequence[str], hypotheses: Sequence[str], language: str = "en"
) -> WordErrors:
    """Count errors in the tokens of `text.split_tokens` (en: words, zh: characters) by jiwer's
    alignment. `text.name_error_metric` has the name of their rate: "wer", or "cer" in Chinese.

    An empty hypothesis deletes every word; words recognised where the reference is empty are
    insertions. Raises InputError when no reference has a word; jiwer raises ValueError for lists of
    different lengths.
    """
    reference_words = [split_tokens(text, language) for text in references]
    if not any(reference_words):
        raise InputError("the references have no words; check the texts and their language")
    hypothesis_words = [split_tokens(text, language) for text in hypotheses]
    result = jiwer.process_words(
        [" ".join(words) for words in reference_words],
        [" ".join(words) for words in hypothesis_words],
    )
    errors = []
    for chunks in result.alignments:
        count = 0
        for c in chunks:
            if c.type != "equal":
                # deletions have reference words alone, insertions hypothesis words alone, and
                # substitutions as many of both
                count += max(c.ref_end_idx - c.ref_start_idx, c.hyp_end_idx - c.hyp_start_idx)
        errors.append(count)
    return WordErrors(
        errors=np.array(errors, dtype=np.int64),
        words=np.array([len(words) for words in reference_words], dtype=np.int64),
    )
