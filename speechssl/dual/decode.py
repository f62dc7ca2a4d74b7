"""From the scores of a span head to a span: sliding windows, and one choice over all of them.

Letters: U tokens (units or word pieces) in a passage, L tokens in a window. Spans are inclusive at both ends, so a span
of one token has first == last and an empty span cannot be expressed. No question is dropped and no position outside the
passage (question, separators, padding) can be chosen, because scores are given for the tokens of the window alone.

DUAL (arXiv 2203.04911 and its code) looks for at most 275 units with the greatest 0.4 log p(start) + 0.6 log p(end) among the 3
best of either; these are the defaults here. BERT on SQuAD (arXiv 1810.04805, section 4.2, and its run_squad.py) adds both logits as
they are, for at most 30 word pieces among the 20 best: so text QA and SpeechBERT are decoded. Here every pair is looked at, and how
many are listed changes no answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

Vector: TypeAlias = np.ndarray | torch.Tensor | Sequence[float]

MAX_TOKENS = 275
START_WEIGHT = 0.4
END_WEIGHT = 0.6
N_BEST = 3


@dataclass(frozen=True)
class Window:
    """Tokens first .. first + length - 1 of a passage."""

    first: int
    length: int

    @property
    def stop(self) -> int:
        """One past the last token."""
        return self.first + self.length

    def local(self, first: int, last: int) -> tuple[int, int] | None:
        """The span first..last of the passage, counted from this window's first token; None if not wholly inside."""
        inside = self.first <= first <= last < self.stop
        return (first - self.first, last - self.first) if inside else None


def windows(total: int, size: int, stride: int) -> tuple[Window, ...]:
    """Windows of `size` tokens, `stride` apart, over a passage of `total` tokens; the last one ends flush with the
    passage.

    Every token is covered, and every span of at most size - stride + 1 tokens lies wholly in some window. A passage
    that is not longer than `size` is one window; one without tokens has none. T5lephone slides by 256 tokens.
    Raises ValueError unless 1 <= stride <= size, or for a negative total.
    """
    if not 1 <= stride <= size or total < 0:
        raise ValueError(f"windows of {size} tokens, {stride} apart, cannot cover {total} tokens")
    if total <= size:
        return (Window(0, total),) if total else ()
    starts = [*range(0, total - size, stride), total - size]
    return tuple(Window(start, size) for start in starts)


@dataclass(frozen=True)
class Span:
    """Tokens first..last, both inclusive. score: weighted sum of the start and the end score, higher is better."""

    first: int
    last: int
    score: float


def best_span(
    start_logp: Vector,
    end_logp: Vector,
    max_length: int = MAX_TOKENS,
    start_weight: float = START_WEIGHT,
    end_weight: float = END_WEIGHT,
) -> Span:
    """The span with the greatest start_weight * start_logp[first] + end_weight * end_logp[last].

    start_logp, end_logp: (L,) log-probabilities, or logits (these differ by a constant only). first <= last < first +
    max_length.
    -inf excludes a position. Of equal spans the one that ends first, and then the shortest, wins.
    Raises ValueError for vectors of different sizes, without elements, with NaN or +inf, or when every span is
    excluded.
    """
    return best_spans(start_logp, end_logp, max_length, 1, start_weight, end_weight)[0]


def best_spans(
    start_logp: Vector,
    end_logp: Vector,
    max_length: int = MAX_TOKENS,
    n: int = N_BEST,
    start_weight: float = START_WEIGHT,
    end_weight: float = END_WEIGHT,
) -> tuple[Span, ...]:
    """The n best spans (fewer if there are fewer), best first; arguments and errors as for `best_span`.

    DUAL's code pairs the 3 best starts with the 3 best ends, and can find no valid pair. Here every pair is looked at,
    in O(L * max_length) and vectorised.
    """
    scores = _band(start_logp, end_logp, max_length, start_weight, end_weight)
    order = _top(scores.ravel(), n)
    last, back = np.divmod(order, scores.shape[1])
    return tuple(Span(int(e - b), int(e), float(scores[e, b])) for e, b in zip(last, back, strict=True))


def _band(start: Vector, end: Vector, max_length: int, start_weight: float, end_weight: float) -> np.ndarray:
    """(L, W) score of the span that ends at row l, w tokens after its start; -inf where it would start before 0."""
    starts, ends = _vector(start), _vector(end)
    if len(starts) != len(ends) or not len(starts):
        raise ValueError(f"{len(starts)} start scores and {len(ends)} end scores do not describe a window")
    if max_length < 1 or min(start_weight, end_weight) <= 0:
        raise ValueError("max_length must be at least 1 and both weights positive")
    width = min(max_length, len(starts))
    padded = np.concatenate([np.full(width - 1, -np.inf), start_weight * starts])
    # Row l of the view is padded[l : l + width], that is the starts l - width + 1 .. l.
    scores = np.lib.stride_tricks.sliding_window_view(padded, width)[:, ::-1] + (end_weight * ends)[:, None]
    if np.isneginf(scores).all():
        raise ValueError("every span is excluded: no position may both start and end one within max_length")
    return np.asarray(scores)


def _vector(values: Vector) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        values = values.detach().float().cpu().numpy()  # float: numpy has no bfloat16
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or np.isnan(vector).any() or np.isposinf(vector).any():
        raise ValueError(f"scores must be one vector without NaN or +inf, this has the shape {vector.shape}")
    return vector


def _top(scores: np.ndarray, n: int) -> np.ndarray:
    """Indices of the n greatest finite scores, best first, equal ones in order of index."""
    if n < 1:
        raise ValueError("n must be at least 1")
    kth = np.partition(scores, len(scores) - min(n, len(scores)))[len(scores) - min(n, len(scores))]
    candidates = np.flatnonzero((scores >= kth) & ~np.isneginf(scores))
    return candidates[np.argsort(-scores[candidates], kind="stable")][:n]


class WindowScores(NamedTuple):
    """Un-normalised logits of one window. start, end: (L,) for the tokens of the window alone, L = window.length.

    null: (start, end) logit at [CLS], the score of "no answer here"; None when the model was not trained to point
    there.
    """

    window: Window
    start: Vector
    end: Vector
    null: tuple[float, float] | None = None

    @classmethod
    def of_sequence(
        cls, window: Window, start: torch.Tensor, end: torch.Tensor, offset: int, cls_index: int | None = 0
    ) -> WindowScores:
        """Cut the window's tokens out of model outputs. start, end: (S,) logits of `[CLS] question [SEP] window [SEP]
        padding`.

        offset: index of the window's first token in the sequence. cls_index: index of [CLS], None for no null score.
        """
        stop = offset + window.length
        null = None if cls_index is None else (float(start[cls_index]), float(end[cls_index]))
        return cls(window, start[offset:stop], end[offset:stop], null)


@dataclass(frozen=True)
class SpanChoice:
    """The answer over all windows. first, last: tokens of the passage, both inclusive.

    score: weighted start + end logit. confidence: in [0, 1], see `best_span_of_windows`. window: where it was found.
    n_best: distinct spans of the passage, best first, the chosen one included.
    """

    first: int
    last: int
    score: float
    confidence: float
    window: Window
    n_best: tuple[Span, ...]


def best_span_of_windows(
    scored: Sequence[WindowScores | tuple[Window, Vector, Vector]],
    max_length: int = MAX_TOKENS,
    start_weight: float = START_WEIGHT,
    end_weight: float = END_WEIGHT,
    n: int = N_BEST,
) -> SpanChoice:
    """The best span over all windows, by logits: these compare between windows, log-probabilities do not.

    With one window this is DUAL's choice; T5lephone (arXiv 2211.00586, its code) has weights 1, 1 and a stride of 256.
    confidence = exp(s) / (sum over windows of exp(s_w) + exp(s_null)), where s is the chosen score, s_w the best score
    of window w (a span found in two windows counts once), and s_null the least null score of any window: a window
    without the answer should point at [CLS], so only what every window says about "no answer" counts. The null is left
    out when no window has one; a single window then gives confidence 1.
    Raises ValueError without windows, for scores that do not fit their window, or as `best_span` does.
    """
    items = [WindowScores(*item) for item in scored]
    if not items:
        raise ValueError("there are no windows to choose from")
    found: dict[tuple[int, int], tuple[Span, Window]] = {}
    tops: dict[tuple[int, int], float] = {}
    for item in items:
        spans = _spans_of_window(item, max_length, n, start_weight, end_weight)
        for span in spans:
            key = (span.first, span.last)
            if key not in found or span.score > found[key][0].score:
                found[key] = (span, item.window)
        top = (spans[0].first, spans[0].last)
        tops[top] = max(spans[0].score, tops.get(top, -np.inf))
    ranked = sorted(found.values(), key=lambda pair: (-pair[0].score, pair[0].last, -pair[0].first))[:n]
    best, window = ranked[0]
    nulls = [start_weight * item.null[0] + end_weight * item.null[1] for item in items if item.null is not None]
    confidence = _softmax_of(best.score, [*tops.values(), *([min(nulls)] if nulls else [])])
    return SpanChoice(best.first, best.last, best.score, confidence, window, tuple(span for span, _ in ranked))


def _spans_of_window(item: WindowScores, max_length: int, n: int, start_weight: float, end_weight: float) -> list[Span]:
    """The n best spans of one window, in tokens of the passage."""
    if len(item.start) != item.window.length or len(item.end) != item.window.length:
        sizes = f"{len(item.start)} start and {len(item.end)} end scores"
        raise ValueError(f"{sizes} do not fit a window of {item.window.length} tokens")
    spans = best_spans(item.start, item.end, max_length, n, start_weight, end_weight)
    return [Span(s.first + item.window.first, s.last + item.window.first, s.score) for s in spans]


def _softmax_of(score: float, others: Sequence[float]) -> float:
    """exp(score) / sum of exp(others), where score is among others."""
    values = np.asarray(others, dtype=np.float64)
    top = values.max()
    return float(np.exp(score - top) / np.exp(values - top).sum())
