"""From logits to one span: all windows of a passage through the model, the best spans of each, one choice over all.

DUAL (arXiv 2203.04911 and its code) looks for at most 275 units with the greatest 0.4 log p(start) + 0.6 log p(end) among the 3
best of either; these are the defaults here. BERT on SQuAD (arXiv 1810.04805, section 4.2, and its run_squad.py) adds both logits as
they are, for at most 30 word pieces among the 20 best: so text QA and SpeechBERT are decoded. Here every pair is looked at, and how
many are listed changes no answer. No question is dropped, and no position outside the passage (question, separators, padding) can
be chosen, because scores are given for the tokens of the window alone.
Letters: L tokens in a window, S in a sequence. Spans are inclusive at both ends.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from torch import nn

from speechssl.dual.data import MAX_TOKENS, Layout, Window, collate, windows

Vector: TypeAlias = np.ndarray | torch.Tensor | Sequence[float]

START_WEIGHT = 0.4
END_WEIGHT = 0.6
N_BEST = 3


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
    """The first of `best_spans`."""
    return best_spans(start_logp, end_logp, max_length, 1, start_weight, end_weight)[0]


def best_spans(
    start_logp: Vector,
    end_logp: Vector,
    max_length: int = MAX_TOKENS,
    n: int = N_BEST,
    start_weight: float = START_WEIGHT,
    end_weight: float = END_WEIGHT,
) -> tuple[Span, ...]:
    """The n spans (fewer if there are fewer) with the greatest start_weight * start_logp[first] + end_weight * end_logp[last].

    start_logp, end_logp: (L,) log-probabilities, or logits (these differ by a constant only); -inf excludes a position.
    first <= last < first + max_length. Of equal spans the one that ends first, and then the shortest, comes first.
    DUAL's code pairs the 3 best starts with the 3 best ends, and can find no valid pair; here every pair is looked at.
    Raises ValueError for vectors of different sizes, without elements, with NaN or +inf, or when every span is excluded.
    """
    starts, ends = _vector(start_logp), _vector(end_logp)
    if len(starts) != len(ends) or not len(starts):
        raise ValueError(f"{len(starts)} start scores and {len(ends)} end scores do not describe a window")
    if max_length < 1 or min(start_weight, end_weight) <= 0:
        raise ValueError("max_length must be at least 1 and both weights positive")
    if n < 1:
        raise ValueError("n must be at least 1")
    width = min(max_length, len(starts))
    padded = np.concatenate([np.full(width - 1, -np.inf), start_weight * starts])
    # Row l of the view is padded[l : l + width], the starts l - width + 1 .. l. Reversed, scores[l, w] is the score of the span
    # that ends at l, w tokens after its start; -inf where it would start before 0.
    scores = np.lib.stride_tricks.sliding_window_view(padded, width)[:, ::-1] + (end_weight * ends)[:, None]
    if np.isneginf(scores).all():
        raise ValueError("every span is excluded: no position may both start and end one within max_length")
    flat = scores.ravel()
    kth = len(flat) - min(n, len(flat))
    candidates = np.flatnonzero((flat >= np.partition(flat, kth)[kth]) & ~np.isneginf(flat))
    order = candidates[np.argsort(-flat[candidates], kind="stable")][:n]
    last, back = np.divmod(order, width)
    return tuple(Span(int(e - b), int(e), float(scores[e, b])) for e, b in zip(last, back, strict=True))


def _vector(values: Vector) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        values = values.detach().float().cpu().numpy()  # float: numpy has no bfloat16
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or np.isnan(vector).any() or np.isposinf(vector).any():
        raise ValueError(f"scores must be one vector without NaN or +inf, this has the shape {vector.shape}")
    return vector


class WindowScores(NamedTuple):
    """Un-normalised logits of one window. start, end: (L,) for the tokens of the window alone, L = window.length.

    null: (start, end) logit at [CLS], the score of "no answer here"; None when the model was not trained to point there.
    """

    window: Window
    start: Vector
    end: Vector
    null: tuple[float, float] | None = None

    @classmethod
    def of_sequence(
        cls, window: Window, start: torch.Tensor, end: torch.Tensor, offset: int, cls_index: int | None = 0
    ) -> WindowScores:
        """Cut the window's tokens out of model outputs. start, end: (S,) logits of `[CLS] question [SEP] window [SEP] padding`.

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
    Raises ValueError without windows, for scores that do not fit their window, or as `best_spans` does.
    """
    items = [WindowScores(*item) for item in scored]
    if not items:
        raise ValueError("there are no windows to choose from")
    found: dict[tuple[int, int], tuple[Span, Window]] = {}
    tops: dict[tuple[int, int], float] = {}  # the best span of every window, once
    for window, start, end, _ in items:
        if len(start) != window.length or len(end) != window.length:
            sizes = f"{len(start)} start and {len(end)} end scores"
            raise ValueError(f"{sizes} do not fit a window of {window.length} tokens")
        spans = best_spans(start, end, max_length, n, start_weight, end_weight)
        spans = tuple(Span(s.first + window.first, s.last + window.first, s.score) for s in spans)
        for span in spans:
            key = (span.first, span.last)
            if key not in found or span.score > found[key][0].score:
                found[key] = (span, window)
        top = (spans[0].first, spans[0].last)
        tops[top] = max(spans[0].score, tops.get(top, -np.inf))
    ranked = sorted(found.values(), key=lambda pair: (-pair[0].score, pair[0].last, -pair[0].first))[:n]
    best, window = ranked[0]
    nulls = [start_weight * item.null[0] + end_weight * item.null[1] for item in items if item.null is not None]
    rivals = np.asarray([*tops.values(), *([min(nulls)] if nulls else [])], np.float64)
    most = rivals.max()
    confidence = float(np.exp(best.score - most) / np.exp(rivals - most).sum())
    return SpanChoice(best.first, best.last, best.score, confidence, window, tuple(span for span, _ in ranked))


class Scorer(Protocol):
    """What a reader needs of a model: start and end logits, as those of SpanModel."""

    def logits(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor: ...
    def to(self, device: torch.device) -> Any: ...
    def parameters(self) -> Iterator[nn.Parameter]: ...


def device_of(name: str) -> torch.device:
    """name: of torch, or `auto`: a GPU where there is one."""
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


@dataclass(frozen=True)
class Reader:
    """A trained span model that answers. It is moved to its device."""

    model: Scorer
    layout: Layout
    batch: int = 16
    bf16: bool = False
    device: str = "auto"  # a GPU where there is one

    def __post_init__(self) -> None:
        self.model.to(device_of(self.device))

    def read(self, question: np.ndarray, passage: np.ndarray) -> SpanChoice:
        """The best span of the passage. question, passage: token ids. Raises ValueError for an empty passage."""
        return self.read_many([(question, passage)])[0]

    @torch.inference_mode()
    def read_many(self, items: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[SpanChoice]:
        """(question, passage) pairs -> one choice each. Windows are sorted by length and run in batches.

        Warns of questions that are longer than the layout allows: they lose their tail.
        """
        if long := sum(len(question) > self.layout.question for question, _ in items):
            warnings.warn(f"{long} of {len(items)} questions lost what is beyond {self.layout.question} tokens", stacklevel=3)
        cut = [(i, w) for i, (_, p) in enumerate(items) for w in windows(len(p), self.layout.size, self.layout.stride)]
        sequences = [self.layout.sequence(items[i][0], items[i][1][w.first : w.stop]) for i, w in cut]
        order = sorted(range(len(cut)), key=lambda n: len(sequences[n][0]))  # as little padding as may be
        scored: dict[int, WindowScores] = {}
        device = next(self.model.parameters()).device
        for start in range(0, len(order), self.batch):
            part = order[start : start + self.batch]
            batch = {name: value.to(device) for name, value in collate([sequences[n] for n in part], self.layout.pad).items()}
            with torch.autocast(device.type, torch.bfloat16, enabled=self.bf16):
                logits = self.model.logits(**batch).cpu()
            for row, n in enumerate(part):
                scored[n] = WindowScores.of_sequence(cut[n][1], logits[row, :, 0], logits[row, :, 1], sequences[n][1])
        by_item: list[list[WindowScores]] = [[] for _ in items]
        for n, (i, _) in enumerate(cut):
            by_item[i].append(scored[n])
        how = self.layout.answer, self.layout.start_weight, self.layout.end_weight
        return [best_span_of_windows(found, *how) for found in by_item]
