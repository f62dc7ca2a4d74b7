"""Windows, spans and confidences are compared with brute force."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.dual.data import MAX_TOKENS, Window, cut_windows
from speechssl.dual.system import (
    END_WEIGHT,
    START_WEIGHT,
    AnswerSpan,
    ScoredWindow,
    find_best_span,
    find_best_span_of_windows,
)

WEIGHTS = START_WEIGHT, END_WEIGHT


@given(st.integers(1, 400), st.integers(1, 60), st.data())
def test_windows_cover_everything_and_short_spans_lie_wholly_in_one(total, size, data):
    stride = data.draw(st.integers(1, size))
    tiling = cut_windows(total, size, stride)
    assert tiling[0].first == 0
    assert tiling[-1].stop == total
    assert {w.length for w in tiling} == {min(size, total)}
    for left, right in pairwise(tiling):
        assert 0 < right.first - left.first <= stride
    first = data.draw(st.integers(0, total - 1))
    last = data.draw(st.integers(first, min(total - 1, first + size - stride)))
    assert any(w.first <= first and last < w.stop for w in tiling)


logits = st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=14)


@given(logits, st.integers(1, 16), st.randoms())
def test_the_best_span_is_that_of_brute_force(start, longest, random):
    end = list(start)
    random.shuffle(end)  # type: ignore[attr-defined]
    spans = []
    for first in range(len(start)):
        for last in range(first, min(len(end), first + longest)):
            score = START_WEIGHT * start[first] + END_WEIGHT * end[last]
            spans.append(AnswerSpan(first, last, score))
    expected = min(spans, key=lambda s: (-s.score, s.last, -s.first))
    assert find_best_span(start, end, longest, *WEIGHTS) == expected


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_refused(score):
    for start, end in (([0.0, score], [0.0, 1.0]), ([0.0, 1.0], [score, 0.0])):
        with pytest.raises(ValueError, match="not finite"):
            find_best_span(start, end, 2, *WEIGHTS)


def score_window(window, start, end=None, null=-np.inf):
    """Make a scored window; end: its end logits, by default those of the start."""
    logits = np.stack([start, start if end is None else end], 1)
    return ScoredWindow(window, logits, np.full(2, null))


@settings(max_examples=50)
@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 2**32 - 1), st.data())
def test_cut_logits_give_the_uncut_choice(total, size, seed, data):
    """Windows of one vector of logits choose what the whole vector chooses, where a window holds
    the longest span."""
    stride = data.draw(st.integers(1, size))
    start, end = np.random.default_rng(seed).normal(size=(2, total))
    scored = []
    for w in cut_windows(total, size, stride):
        scored.append(score_window(w, start[w.first : w.stop], end[w.first : w.stop]))
    choice = find_best_span_of_windows(scored, size - stride + 1, *WEIGHTS)
    whole = find_best_span(start, end, size - stride + 1, *WEIGHTS)
    assert (choice.first, choice.last, choice.score) == (whole.first, whole.last, whole.score)
    assert 0 <= choice.confidence <= 1


def test_windows_are_compared_by_logits():
    """By log-probability the window with one clear peak would win."""
    high = np.array([8.0, 7.9, 7.9])
    peaked = np.array([1.0, -9.0, -9.0])
    scored = [score_window(Window(0, 3), high), score_window(Window(3, 3), peaked)]
    for order in (scored, scored[::-1]):
        assert find_best_span_of_windows(order, MAX_TOKENS, *WEIGHTS).first == 0


def test_confidence_is_the_share_of_the_best_span_among_those_of_windows_and_no_answer():
    best = Window(0, 2), [4.0, 0.0]
    other = Window(2, 2), [1.0, 0.0]

    def confidence(*scored):
        return find_best_span_of_windows(scored, MAX_TOKENS, *WEIGHTS).confidence

    assert confidence(score_window(*best)) == 1
    of_two = confidence(score_window(*best), score_window(*other))
    assert of_two == pytest.approx(1 / (1 + math.exp(1 - 4)))
    # the least score of "no answer" counts
    with_null = confidence(score_window(*best, null=2.0), score_window(*other, null=9.0))
    assert with_null == pytest.approx(1 / (1 + math.exp(1 - 4) + math.exp(2 - 4)))
    assert confidence(score_window(*best, null=900.0)) == pytest.approx(0)
