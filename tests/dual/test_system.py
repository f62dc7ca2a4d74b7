"""Windows and spans against brute force, and what perfect labels are worth (fault 1 of the released
DUAL code)."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.dual.data import MAX_TOKENS, Window, windows
from speechssl.dual.system import (
    END_WEIGHT,
    START_WEIGHT,
    AnswerSpan,
    ScoredWindow,
    find_best_span,
    find_best_span_of_windows,
)
from speechssl.metrics import frame_f1, overlap_score
from speechssl.timing import FrameGrid, RunLength, interval_of_units, units_of_interval

HUBERT = FrameGrid(16_000, 320, 400)
WEIGHTS = START_WEIGHT, END_WEIGHT


@given(st.integers(1, 400), st.integers(1, 60), st.data())
def test_windows_cover_everything_and_short_spans_lie_wholly_in_one(total, size, data):
    stride = data.draw(st.integers(1, size))
    found = windows(total, size, stride)
    assert found[0].first == 0
    assert found[-1].stop == total
    assert {w.length for w in found} == {min(size, total)}
    assert all(0 < right.first - left.first <= stride for left, right in pairwise(found))
    first = data.draw(st.integers(0, total - 1))
    last = data.draw(st.integers(first, min(total - 1, first + size - stride)))
    assert any(w.first <= first and last < w.stop for w in found)


logits = st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=14)


@given(logits, st.integers(1, 16), st.randoms())
def test_the_best_span_is_that_of_brute_force(start, longest, random):
    end = list(start)
    random.shuffle(end)  # type: ignore[attr-defined]
    pairs = [(i, j) for i in range(len(start)) for j in range(i, min(len(end), i + longest))]
    spans = [AnswerSpan(i, j, START_WEIGHT * start[i] + END_WEIGHT * end[j]) for i, j in pairs]
    assert find_best_span(start, end, longest, *WEIGHTS) == min(
        spans, key=lambda s: (-s.score, s.last, -s.first)
    )


def test_spans_do_not_end_before_they_start_are_not_too_long_and_hold_no_excluded_position():
    hidden = -math.inf
    for start, end, longest, wanted in (
        ([0, 0, 0, 9], [9, 0, 0, 0], 4, (0, 0)),
        ([9, 0, 0, 0], [0, 0, 0, 9], 3, (3, 3)),
        ([9, 0, 0, 0], [0, 0, 0, 9], 4, (0, 3)),
        ([hidden, 1.0, hidden], [9.0, hidden, 0.0], 4, (1, 2)),
    ):
        span = find_best_span(start, end, longest, *WEIGHTS)
        assert (span.first, span.last) == wanted
    with pytest.raises(ValueError, match="every span is excluded"):
        find_best_span([hidden, 1.0], [1.0, hidden], 2, *WEIGHTS)


def item(window, start, end=None, null=-np.inf):
    logits = np.stack([start, start if end is None else end], 1)
    return ScoredWindow(window, logits, np.full(2, null))


@settings(max_examples=50)
@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 2**32 - 1), st.data())
def test_cut_logits_give_the_uncut_choice(total, size, seed, data):
    """Windows of one vector of logits choose what the whole vector chooses, where a window holds
    the longest span."""
    stride = data.draw(st.integers(1, size))
    start, end = np.random.default_rng(seed).normal(size=(2, total))
    scored = [
        item(w, start[w.first : w.stop], end[w.first : w.stop])
        for w in windows(total, size, stride)
    ]
    choice = find_best_span_of_windows(scored, size - stride + 1, *WEIGHTS)
    whole = find_best_span(start, end, size - stride + 1, *WEIGHTS)
    assert (choice.first, choice.last, choice.score) == (whole.first, whole.last, whole.score)
    assert 0 <= choice.confidence <= 1


def test_logits_compare_between_windows_and_log_probabilities_would_not():
    """A flat window with a small peak wins by log-probability; by logit the window that is sure of
    itself wins."""
    sure, shy = np.array([8.0, 7.9, 7.9]), np.array([1.0, -9.0, -9.0])
    for scored in (
        [item(Window(0, 3), sure), item(Window(3, 3), shy)],
        [item(Window(3, 3), shy), item(Window(0, 3), sure)],
    ):
        assert find_best_span_of_windows(scored, MAX_TOKENS, *WEIGHTS).first == 0
    logp = [x - np.log(np.exp(x).sum()) for x in (sure, shy)]
    scores = [find_best_span(row, row, MAX_TOKENS, *WEIGHTS).score for row in logp]
    assert scores[1] > scores[0]


def test_confidence_against_other_windows_and_no_answer():
    one, other = (Window(0, 2), [4.0, 0.0]), (Window(2, 2), [1.0, 0.0])

    def confidence(*scored):
        return find_best_span_of_windows(scored, MAX_TOKENS, *WEIGHTS).confidence

    assert confidence(item(*one)) == 1
    assert confidence(item(*one), item(*other)) == pytest.approx(1 / (1 + math.exp(-3)))
    assert confidence(item(*one, null=2.0), item(*other, null=9.0)) == pytest.approx(
        1 / (1 + math.exp(-3) + math.exp(-2))
    )
    assert confidence(item(*one, null=900.0)) == pytest.approx(0)


def oracle(runs, gold):
    """FF1 of a span head that puts all its mass on the label."""
    first, last = units_of_interval(HUBERT, runs, *gold)
    start, end = np.zeros(len(runs)), np.zeros(len(runs))
    start[first] = end[last] = 10.0
    span = find_best_span(start, end, max(MAX_TOKENS, last - first + 1), *WEIGHTS)
    assert (span.first, span.last) == (first, last)
    return frame_f1(interval_of_units(HUBERT, runs, span.first, span.last), [gold])


def random_runs(generator, seconds, mean):
    """Runs of 1 + Poisson frames over at least these seconds."""
    lengths = 1 + generator.poisson(mean - 1, size=math.ceil(seconds * HUBERT.frame_rate) + 1)
    kept = lengths[: int(np.searchsorted(np.cumsum(lengths), seconds * HUBERT.frame_rate)) + 1]
    return RunLength(np.arange(len(kept)) % 100, kept)


def test_the_example_that_scored_nothing():
    runs = RunLength(np.array([1, 2, 3]), np.array([2, 3, 4]))
    gold = HUBERT.seconds(5), HUBERT.samples_for(9) / HUBERT.sample_rate
    assert units_of_interval(HUBERT, runs, *gold) == (2, 2)
    assert oracle(runs, gold) == overlap_score(interval_of_units(HUBERT, runs, 2, 2), [gold]) == 1


@given(st.integers(0, 2**32 - 1), st.floats(0, 8), st.floats(0.02, 2))
def test_perfect_labels_always_overlap_the_answer(seed, start, length):
    runs = random_runs(np.random.default_rng(seed), 10, 2.5)
    gold = start, start + length
    found = interval_of_units(HUBERT, runs, *units_of_interval(HUBERT, runs, *gold))
    assert frame_f1(found, [gold]) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("mean", "least"), [(2.0, 0.985), (3.0, 0.98), (4.0, 0.975)])
def test_oracle_on_answers_of_a_third_to_three_seconds(mean, least):
    rng = np.random.default_rng(0)
    spans = [(start, start + length) for start, length in rng.uniform((0, 0.3), (16, 3), (300, 2))]
    scores = [oracle(random_runs(rng, 20, mean), span) for span in spans]
    assert np.mean(scores) >= least
    # A run that holds a given instant has E[L^2] / E[L] frames, and a quarter of it lies between
    # that and its nearer border.
    spare = (mean - 1 + mean**2) / mean / 2 / HUBERT.frame_rate
    expected = np.mean([2 / (2 + spare / (end - start)) for start, end in spans])
    assert np.mean(scores) == pytest.approx(expected, abs=0.004)
