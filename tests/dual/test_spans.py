"""Windows and spans against brute force, and what perfect labels are worth (fault 1 of the released DUAL code)."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.dual.data import MAX_TOKENS, Window, windows
from speechssl.dual.decode import (
    END_WEIGHT,
    N_BEST,
    START_WEIGHT,
    Span,
    WindowScores,
    best_span,
    best_span_of_windows,
    best_spans,
)
from speechssl.eval.metrics import frame_f1, overlap_score
from speechssl.timing import FrameGrid, RunLength, interval_of_units, units_of_interval

HUBERT = FrameGrid(16_000, 320, 400)
NMSQA = Path(__file__).parents[3] / "shared" / "data" / "nmsqa" / "dev.parquet"


def test_constants_are_those_of_dual() -> None:
    assert (MAX_TOKENS, START_WEIGHT, END_WEIGHT, N_BEST) == (275, 0.4, 0.6, 3)


@given(st.integers(1, 400), st.integers(1, 60), st.data())
def test_windows_cover_everything(total: int, size: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, size))
    found = windows(total, size, stride)
    assert found[0].first == 0
    assert found[-1].stop == total
    assert {w.length for w in found} == {min(size, total)}
    assert all(0 < right.first - left.first <= stride for left, right in pairwise(found))


@given(st.integers(1, 200), st.integers(1, 40), st.data())
def test_short_spans_lie_wholly_in_a_window(total: int, size: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, size))
    first = data.draw(st.integers(0, total - 1))
    last = data.draw(st.integers(first, min(total - 1, first + size - stride)))
    local = [(w, w.local(first, last)) for w in windows(total, size, stride)]
    inside = [(w, pair) for w, pair in local if pair is not None]
    assert inside
    assert all((w.first + pair[0], w.first + pair[1]) == (first, last) for w, pair in inside)


def test_a_span_across_the_border_is_not_inside() -> None:
    window = Window(10, 5)
    assert window.local(10, 14) == (0, 4)
    assert window.local(9, 12) is window.local(13, 15) is None


def test_windows_of_nothing_and_impossible_ones() -> None:
    assert windows(0, 8, 4) == ()
    assert windows(8, 8, 4) == (Window(0, 8),)
    assert windows(9, 8, 4) == (Window(0, 8), Window(1, 8))
    for total, size, stride in ((5, 4, 5), (5, 4, 0), (5, 0, 0), (-1, 4, 2)):
        with pytest.raises(ValueError, match="cannot cover"):
            windows(total, size, stride)


logits = st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=14)


def brute_force(start: list[float], end: list[float], max_length: int) -> list[Span]:
    pairs = [(i, j) for i in range(len(start)) for j in range(i, min(len(end), i + max_length))]
    spans = [Span(i, j, START_WEIGHT * start[i] + END_WEIGHT * end[j]) for i, j in pairs]
    return sorted(spans, key=lambda s: (-s.score, s.last, -s.first))


@given(logits, st.integers(1, 16), st.integers(1, 5), st.randoms())
def test_best_spans_are_those_of_brute_force(start: list[float], longest: int, n: int, random: object) -> None:
    end = list(start)
    random.shuffle(end)  # type: ignore[attr-defined]
    wanted = brute_force(start, end, longest)
    assert list(best_spans(start, end, longest, n)) == wanted[:n]
    assert best_span(start, end, longest) == wanted[0]


def test_ends_before_starts_and_spans_that_are_too_long_are_not_spans() -> None:
    assert places(best_span([0, 0, 0, 9], [9, 0, 0, 0], 4)) == (0, 0)
    assert places(best_span([9, 0, 0, 0], [0, 0, 0, 9], 3)) == (3, 3)
    assert places(best_span([9, 0, 0, 0], [0, 0, 0, 9], 4)) == (0, 3)


def places(span: Span) -> tuple[int, int]:
    return span.first, span.last


def test_tensors_of_any_precision_with_gradient() -> None:
    start = torch.tensor([0.0, 3.0, 1.0], dtype=torch.bfloat16, requires_grad=True)
    span = best_span(start, torch.tensor([0.0, 1.0, 4.0], dtype=torch.float16))
    assert places(span) == (1, 2)
    assert span.score == pytest.approx(0.4 * 3 + 0.6 * 4)


def test_excluded_positions_cannot_be_chosen() -> None:
    hidden = -math.inf
    span = best_span([hidden, 1.0, hidden], [9.0, hidden, 0.0])
    assert (span.first, span.last) == (1, 2)
    assert len(best_spans([hidden, 1.0, hidden], [9.0, hidden, 0.0], n=5)) == 1
    with pytest.raises(ValueError, match="every span is excluded"):
        best_span([hidden, 1.0], [1.0, hidden])


@pytest.mark.parametrize(
    ("start", "end", "longest", "what"),
    [
        ([1.0], [1.0, 2.0], 3, "do not describe a window"),
        ([], [], 3, "do not describe a window"),
        ([math.nan], [1.0], 3, "without NaN"),
        ([math.inf], [1.0], 3, "without NaN"),
        ([[1.0]], [[1.0]], 3, "one vector"),
        ([1.0], [1.0], 0, "max_length"),
    ],
)
def test_scores_that_are_refused(start: list[float], end: list[float], longest: int, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        best_span(start, end, longest)


def test_weights_and_n_that_are_refused() -> None:
    with pytest.raises(ValueError, match="weights positive"):
        best_span([1.0], [1.0], 1, 0.0, 1.0)
    with pytest.raises(ValueError, match="n must be"):
        best_spans([1.0], [1.0], 1, 0)


@settings(max_examples=50)
@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 2**32 - 1), st.data())
def test_cut_logits_give_the_uncut_choice(total: int, size: int, seed: int, data: st.DataObject) -> None:
    """Windows of one vector of logits choose what the whole vector chooses, where a window holds the longest span."""
    stride = data.draw(st.integers(1, size))
    start, end = np.random.default_rng(seed).normal(size=(2, total))
    scored = [(w, start[w.first : w.stop], end[w.first : w.stop]) for w in windows(total, size, stride)]
    longest = size - stride + 1
    choice = best_span_of_windows(scored, longest)
    assert choice.n_best == best_spans(start, end, longest)
    assert Span(choice.first, choice.last, choice.score) == best_span(start, end, longest)
    assert choice.window.local(choice.first, choice.last) is not None
    assert 0 <= choice.confidence <= 1


def test_logits_compare_between_windows_and_log_probabilities_would_not() -> None:
    """A flat window with a small peak wins by log-probability; by logit the window that is sure of itself wins."""
    sure, shy = np.array([8.0, 7.9, 7.9]), np.array([1.0, -9.0, -9.0])
    assert (
        best_span_of_windows([(Window(0, 3), sure, sure), (Window(3, 3), shy, shy)]).first
        == best_span_of_windows([(Window(3, 3), shy, shy), (Window(0, 3), sure, sure)]).first
        == 0
    )
    logp = [x - np.log(np.exp(x).sum()) for x in (sure, shy)]
    assert best_span(logp[1], logp[1]).score > best_span(logp[0], logp[0]).score


def test_confidence_against_other_windows_and_no_answer() -> None:
    one, other = (Window(0, 2), [4.0, 0.0], [4.0, 0.0]), (Window(2, 2), [1.0, 0.0], [1.0, 0.0])
    assert best_span_of_windows([one]).confidence == 1
    assert best_span_of_windows([one, other]).confidence == pytest.approx(1 / (1 + math.exp(-3)))
    with_null = [WindowScores(*one, (2.0, 2.0)), WindowScores(*other, (9.0, 9.0))]
    assert best_span_of_windows(with_null).confidence == pytest.approx(1 / (1 + math.exp(-3) + math.exp(-2)))
    assert best_span_of_windows([WindowScores(*one, (900.0, 900.0))]).confidence == pytest.approx(0)


def test_a_span_found_twice_counts_once() -> None:
    left, right = (Window(0, 3), [0.0, 5.0, 0.0], [0.0, 5.0, 0.0]), (Window(1, 3), [6.0, 0.0, 0.0], [6.0, 0.0, 0.0])
    choice = best_span_of_windows([left, right])
    assert (choice.first, choice.last, choice.window, choice.confidence) == (1, 1, Window(1, 3), 1)
    assert len({(s.first, s.last) for s in choice.n_best}) == len(choice.n_best) == 3


def test_question_separators_and_padding_cannot_be_chosen() -> None:
    """[CLS] q q [SEP] p p p [SEP] pad pad, with the greatest logits everywhere but in the passage."""
    start = torch.tensor([7.0, 99, 99, 99, 1, 3, 2, 99, 99, 99])
    end = torch.tensor([7.0, 99, 99, 99, 2, 1, 3, 99, 99, 99])
    item = WindowScores.of_sequence(Window(20, 3), start, end, offset=4)
    choice = best_span_of_windows([item])
    assert (choice.first, choice.last) == (21, 22)
    assert item.null == (7.0, 7.0)
    assert choice.confidence == pytest.approx(1 / (1 + math.exp(4)))
    assert WindowScores.of_sequence(Window(20, 3), start, end, offset=4, cls_index=None).null is None


def test_no_windows_and_scores_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="no windows"):
        best_span_of_windows([])
    with pytest.raises(ValueError, match="do not fit a window of 3"):
        best_span_of_windows([(Window(0, 3), [1.0, 2.0], [1.0, 2.0])])


def oracle(runs: RunLength, gold: tuple[float, float]) -> float:
    """FF1 of a span head that puts all its mass on the label."""
    first, last = units_of_interval(HUBERT, runs, *gold)
    start, end = np.zeros(len(runs)), np.zeros(len(runs))
    start[first] = end[last] = 10.0
    span = best_span(start, end, max(MAX_TOKENS, last - first + 1))
    assert (span.first, span.last) == (first, last)
    return frame_f1(interval_of_units(HUBERT, runs, span.first, span.last), [gold])


def random_runs(generator: np.random.Generator, seconds: float, mean: float) -> RunLength:
    """Runs of 1 + Poisson frames over at least these seconds."""
    lengths = 1 + generator.poisson(mean - 1, size=math.ceil(seconds * HUBERT.frame_rate) + 1)
    kept = lengths[: int(np.searchsorted(np.cumsum(lengths), seconds * HUBERT.frame_rate)) + 1]
    return RunLength(np.arange(len(kept)) % 100, kept)


def test_the_example_that_scored_nothing() -> None:
    runs = RunLength(np.array([1, 2, 3]), np.array([2, 3, 4]))
    gold = HUBERT.seconds(5), HUBERT.samples_for(9) / HUBERT.sample_rate
    assert units_of_interval(HUBERT, runs, *gold) == (2, 2)
    assert oracle(runs, gold) == overlap_score(interval_of_units(HUBERT, runs, 2, 2), [gold]) == 1


@given(st.integers(0, 2**32 - 1), st.floats(0, 8), st.floats(0.02, 2))
def test_perfect_labels_always_overlap_the_answer(seed: int, start: float, length: float) -> None:
    runs = random_runs(np.random.default_rng(seed), 10, 2.5)
    gold = start, start + length
    found = interval_of_units(HUBERT, runs, *units_of_interval(HUBERT, runs, *gold))
    assert frame_f1(found, [gold]) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("mean", "least"), [(2.0, 0.985), (3.0, 0.98), (4.0, 0.975)])
def test_oracle_on_answers_of_a_third_to_three_seconds(mean: float, least: float) -> None:
    generator = np.random.default_rng(0)
    spans = [(start, start + length) for start, length in generator.uniform((0, 0.3), (16, 3), (300, 2))]
    scores = [oracle(random_runs(generator, 20, mean), span) for span in spans]
    assert np.mean(scores) >= least
    # A run that holds a given instant has E[L^2] / E[L] frames, and a quarter of it lies between that and its nearer border.
    spare = (mean - 1 + mean**2) / mean / 2 / HUBERT.frame_rate
    assert np.mean(scores) == pytest.approx(np.mean([2 / (2 + spare / (end - start)) for start, end in spans]), abs=0.004)


@pytest.mark.slow
def test_oracle_on_real_answers() -> None:
    if not NMSQA.is_file():
        pytest.skip("the NMSQA dev table is not beside the checkout")
    parquet = pytest.importorskip("pyarrow.parquet", reason="reading the NMSQA dev table needs pyarrow")
    answers = parquet.read_table(NMSQA, columns=["answers"])["answers"].to_pylist()[:600]
    starts = [time for answer in answers for time in answer["audio_segment_answer_start"] or ()]
    ends = [time for answer in answers for time in answer["audio_segment_answer_end"] or ()]
    spans = [(start, end) for start, end in zip(starts, ends, strict=True) if 0 <= start < end][:600]
    generator = np.random.default_rng(0)
    scores = [oracle(random_runs(generator, end + 1, 2.0), (start, end)) for start, end in spans]
    assert len(scores) > 100
    assert np.mean(scores) >= 0.975
