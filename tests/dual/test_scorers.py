"""Random predictions against the scorers of SQuAD v1.1 and of DUAL, written from what they compute, faults excepted."""

from __future__ import annotations

import re
import string
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.metrics import exact_match, frame_f1, overlap_score, token_f1

WORDS = (*"the The a an An cat cat, Cat 10 1,000 U.S. new-york anthem ä — 's (b) a—b _a_ É ß ٣ 中".split(), "\u200b", " ", "\n")
texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
ticks = st.integers(0, 60)


def squad_words(text: str) -> list[str]:
    """Lower case, then punctuation, then articles, then white space: the order of the script matters ("a." is an article, and so
    is the "a" of "a—b").
    """
    kept = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return "".join(" " if part in ("a", "an", "the") else part for part in re.split(r"(\W)", kept)).split()


def squad_scores(predicted: str, gold: list[str]) -> tuple[float, float]:
    found = squad_words(predicted)
    exact, f1 = [], []
    for answer in map(squad_words, gold):
        shared, left = 0, list(answer)
        for word in found:
            if word in left:
                left.remove(word)
                shared += 1
        exact.append(found == answer)
        f1.append(2 * shared / (len(found) + len(answer)) if shared else 0.0)
    return float(max(exact)), max(f1)


@given(texts, st.lists(texts, min_size=1, max_size=4))
def test_text_scores_are_those_of_squad(predicted: str, gold: list[str]) -> None:
    """Where the prediction or an annotation is empty the rule is that of v2.0: such an annotation does not count."""
    kept = [answer for answer in gold if squad_words(answer)]
    if not kept or not squad_words(predicted):
        assert exact_match(predicted, gold) == token_f1(predicted, gold) == float(not kept and not squad_words(predicted))
        return
    exact, f1 = squad_scores(predicted, kept)
    assert exact_match(predicted, gold) == exact
    assert token_f1(predicted, gold) == pytest.approx(f1)


def dual_scores(predicted: tuple[int, int], gold: tuple[int, int]) -> tuple[Fraction, Fraction]:
    """FF1 and AOS by counting the ticks of a clock in each interval: no arithmetic on borders."""
    units, wanted = set(range(*predicted)), set(range(*gold))
    shared = len(units & wanted)
    if not shared:
        return Fraction(0), Fraction(0)
    precision, recall = Fraction(shared, len(units)), Fraction(shared, len(wanted))
    return 2 * precision * recall / (precision + recall), Fraction(shared, len(units | wanted))


@given(st.tuples(ticks, ticks).map(sorted), st.lists(st.tuples(ticks, st.integers(1, 20)), min_size=1, max_size=4))
def test_time_scores_are_those_of_dual_and_no_annotation_is_dropped(predicted: list[int], gold: list[tuple[int, int]]) -> None:
    """Its aggregate takes the best of all annotations but the last; here the last counts as well."""
    span, wanted = (predicted[0], predicted[1]), [(start, start + length) for start, length in gold]
    found = [dual_scores(span, g) for g in wanted]
    seconds = [(a * 0.02, b * 0.02) for a, b in wanted]
    assert frame_f1((span[0] * 0.02, span[1] * 0.02), seconds) == pytest.approx(float(max(f for f, _ in found)), abs=1e-9)
    assert overlap_score((span[0] * 0.02, span[1] * 0.02), seconds) == pytest.approx(float(max(a for _, a in found)), abs=1e-9)
