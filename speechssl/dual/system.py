"""DUAL answers a question in six steps (arXiv 2203.04911): encoder -> one layer -> k-means ->
run-length units -> reader -> one span -> seconds.

DUAL's code chooses, among the 3 best starts and the 3 best ends, the span of at most 275 units with
the greatest 0.4 log p(start) + 0.6 log p(end). Text QA and SpeechBERT are decoded as BERT on SQuAD
is (arXiv 1810.04805, section 4.2): by the sum of both logits, at most 30 word pieces. Here every
pair of a start and an end in the window is a candidate.
Letters: L tokens in a window, S in a sequence. Spans are inclusive at both ends.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from speechssl.dual.data import Layout, Window, collate, cut_windows, list_codebooks
from speechssl.dual.model import load_reader
from speechssl.errors import InputError
from speechssl.text.tfidf import list_ngrams, tfidf
from speechssl.timing import FrameGrid, RunLength, find_interval
from speechssl.units.features import UnitExtractor

START_WEIGHT, END_WEIGHT = 0.4, 0.6  # of DUAL's reader


@dataclass(frozen=True)
class AnswerSpan:
    """An answer is the tokens first..last, both inclusive."""

    first: int
    last: int
    score: float  # weighted sum of the start and the end score, higher is better
    # the span of a whole passage has these as well, see `find_best_span_of_windows`
    confidence: float = 1.0  # in [0, 1]
    null: float = -math.inf  # score of "no answer"


class ScoredWindow(NamedTuple):
    """A scored window has the reader's scores for a window of a passage."""

    window: Window
    logits: np.ndarray  # (L, 2), of start and end
    cls_logits: np.ndarray  # (2,), of start and end at [CLS], which stands for "no answer here"


def find_best_span(
    start: np.ndarray | Sequence[float],
    end: np.ndarray | Sequence[float],
    max_length: int,
    start_weight: float,
    end_weight: float,
) -> AnswerSpan:
    """Find the span with the greatest start_weight * start[first] + end_weight * end[last], where
    first <= last < first + max_length.

    start, end: (L,) log-probabilities, or logits (these differ by a constant only). Of equal spans
    the one that ends first, and then the shortest, is chosen. Raises ValueError for scores that are
    not finite.
    """
    starts = np.asarray(start, np.float64)
    ends = np.asarray(end, np.float64)
    if not np.isfinite([starts, ends]).all():
        raise ValueError("the scores of a span are not finite")
    width = min(max_length, len(starts))
    padded = np.concatenate([np.full(width - 1, -np.inf), start_weight * starts])
    # Row l of the view is padded[l : l + width]: the scores of the starts l - width + 1 .. l. Of
    # the reversed rows, scores[l, w] is the score of the span that ends at l, w tokens after its
    # start; -inf where it would start before 0.
    start_scores = np.lib.stride_tricks.sliding_window_view(padded, width)[:, ::-1]
    scores = start_scores + (end_weight * ends)[:, None]
    last, back = divmod(int(scores.argmax()), width)
    return AnswerSpan(last - back, last, float(scores[last, back]))


def find_best_span_of_windows(
    scored: Sequence[ScoredWindow], max_length: int, start_weight: float, end_weight: float
) -> AnswerSpan:
    """Find the best span over all windows, in tokens of the passage.

    Spans of several windows are compared by logits, for log-probabilities of one window do not
    compare with those of another. With one window this is DUAL's choice; T5lephone (arXiv
    2211.00586, its code) has weights 1, 1 and a stride of 256.

        confidence = exp(s) / (sum over windows of exp(s_w) + exp(s_null))

    where s is the score of the chosen span and s_w the best score of window w; a span that is the
    best of two windows counts once. s_null is the least score of "no answer" of any window, and is
    returned as `null`: a window without the answer should point at [CLS], so there is no answer
    only where all windows say so. Raises ValueError as `find_best_span` does.
    """
    best_by_span: dict[tuple[int, int], AnswerSpan] = {}
    nulls = []
    for window, logits, cls_logits in scored:
        span = find_best_span(logits[:, 0], logits[:, 1], max_length, start_weight, end_weight)
        place = span.first + window.first, span.last + window.first
        if place not in best_by_span or span.score > best_by_span[place].score:
            best_by_span[place] = AnswerSpan(*place, span.score)
        nulls.append(start_weight * float(cls_logits[0]) + end_weight * float(cls_logits[1]))
    best = min(best_by_span.values(), key=lambda s: (-s.score, s.last, -s.first))
    null = min(nulls)
    scores = np.asarray([*(s.score for s in best_by_span.values()), null], np.float64)
    highest = scores.max()
    confidence = np.exp(best.score - highest) / np.exp(scores - highest).sum()
    return replace(best, confidence=float(confidence), null=null)


def choose_device() -> torch.device:
    """Return the GPU where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@torch.inference_mode()
def run_model(
    model: Callable[..., torch.Tensor],
    device: torch.device,
    sequences: Sequence[tuple[np.ndarray, Any]],
    collate: Callable[[Sequence[tuple[np.ndarray, Any]]], Mapping[str, torch.Tensor]],
    batch: int,
    bf16: bool,
) -> list[torch.Tensor]:
    """Run a model on every sequence; return its outputs, float32 on the CPU, in the order of the
    sequences.

    sequences: pairs of ids (S,) and whatever `collate` needs beside them to make the model's
    arguments. A batch has sequences of about one length, for little padding; an output may have
    padding at its end.
    """
    outputs: list[torch.Tensor] = [torch.empty(0)] * len(sequences)
    order = sorted(range(len(sequences)), key=lambda n: len(sequences[n][0]))
    for start in range(0, len(order), batch):
        numbers = order[start : start + batch]
        collated = collate([sequences[n] for n in numbers])
        inputs = {name: value.to(device) for name, value in collated.items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            rows = model(**inputs).float().cpu()
        for n, row in zip(numbers, rows, strict=True):
            outputs[n] = row
    return outputs


def retrieve_windows(
    candidates: tuple[Window, ...],
    question: np.ndarray,
    passage: np.ndarray,
    count: int | None,
    ngram: int = 1,
) -> tuple[Window, ...]:
    """Select the `count` windows (None: all) that are most like the question by TF-IDF of n-grams,
    where the windows are the documents. Returns them in their order. question, passage: token ids.
    """
    if count is None or len(candidates) <= count:
        return candidates
    documents = [list_ngrams(passage[w.first : w.stop].tolist(), ngram) for w in candidates]
    (scores,) = tfidf([list_ngrams(question.tolist(), ngram)], documents)
    best = np.argsort(-scores, kind="stable")[:count]
    return tuple(candidates[i] for i in sorted(best))


@dataclass(frozen=True)
class Reader:
    """A reader answers with a trained SpanModel, on the device where that is."""

    model: Any
    layout: Layout
    batch: int = 16
    bf16: bool = False
    retrieve: int | None = None  # windows of a passage that are read; None: all
    ngram: int = 1  # tokens of the n-grams by which they are retrieved

    def read(self, items: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[AnswerSpan]:
        """Find the best span of each passage. items: (question, passage), token ids. Warns of
        questions that are longer than the layout allows: they lose their tail. Raises ValueError
        for an empty passage.
        """
        layout = self.layout
        truncated = sum(len(question) > layout.question for question, _ in items)
        if truncated:
            limit = f"{layout.question} tokens"
            message = f"{truncated} of {len(items)} questions lost what is beyond {limit}"
            warnings.warn(message, stacklevel=3)
        item_windows: list[tuple[int, Window]] = []
        sequences = []
        for i, (question, passage) in enumerate(items):
            tiling = cut_windows(len(passage), layout.size, layout.stride)
            for window in retrieve_windows(tiling, question, passage, self.retrieve, self.ngram):
                item_windows.append((i, window))
                sequences.append(
                    layout.make_sequence(question, passage[window.first : window.stop])
                )
        device = next(self.model.parameters()).device
        pad_batch = partial(collate, pad=layout.pad)
        rows = run_model(self.model.logits, device, sequences, pad_batch, self.batch, self.bf16)
        scored: list[list[ScoredWindow]] = [[] for _ in items]
        for (i, window), (_, offset), row in zip(item_windows, sequences, rows, strict=True):
            logits = row.double().numpy()
            window_logits = logits[offset : offset + window.length]
            scored[i].append(ScoredWindow(window, window_logits, logits[0]))
        weights = layout.start_weight, layout.end_weight
        return [find_best_span_of_windows(of_item, layout.answer, *weights) for of_item in scored]


@dataclass(frozen=True)
class TimedAnswer:
    """An answer is an interval of the passage in seconds, with a confidence in [0, 1], and the
    words where the system has words."""

    start: float
    end: float
    confidence: float
    text: str | None = None


def answer_units(
    reader: Reader, items: Sequence[tuple[RunLength, RunLength]], grid: FrameGrid
) -> list[TimedAnswer]:
    """Answer questions in seconds. items: units of (question, passage); grid: of their frames."""
    spans = reader.read([(question.units, passage.units) for question, passage in items])
    answers = []
    for span, (_, passage) in zip(spans, items, strict=True):
        start, end = find_interval(grid, passage, span.first, span.last)
        answers.append(TimedAnswer(start, end, span.confidence))
    return answers


@dataclass(frozen=True)
class DualSystem:
    """DUAL is the end-to-end system: units of speech, and a reader of them."""

    extractor: UnitExtractor
    reader: Reader
    card: Mapping[str, Any]
    name: str = "dual"
    needs_audio: bool = True

    def encode(self, record: Any, samples: Any) -> RunLength:
        """Encode a recording as units. samples: (N,) float32 at 16 kHz. Raises ValueError for audio
        shorter than one frame."""
        return self.extractor.extract(samples)

    def answer_all(self, items: Sequence[tuple[RunLength, RunLength]]) -> list[TimedAnswer]:
        """Answer questions. items: units of (question, passage)."""
        return answer_units(self.reader, items, self.extractor.grid)


def load_dual(
    folder: Path, extractor: UnitExtractor, name: str = "dual", bf16: bool = False
) -> DualSystem:
    """Load the system with the reader in `folder`. Raises InputError where the reader was trained
    on units that mean something else than those of the extractor."""
    model, layout, card = load_reader(folder, answering=True)
    extractor = adapt_extractor(folder, card, extractor)
    system_card = {"dual": card["weights"], "layout": card["layout"], **extractor.card}
    if bf16:
        system_card["bf16"] = True
    reader = Reader(model.to(choose_device()), layout, bf16=bf16)
    return DualSystem(extractor, reader, system_card, name)


def adapt_extractor(
    folder: Path, card: Mapping[str, Any], extractor: UnitExtractor
) -> UnitExtractor:
    """Return the extractor with the settings of a reader's training: the price of a change of unit,
    which smooths the units, and the pieces (frequent n-grams of units) to which they are joined.

    folder, card: of the reader. Raises InputError where it was trained on units that mean something
    else.
    """
    units = card.get("units", {})
    pieces = None
    if "pieces" in units:
        from speechssl.units.pieces import load_pieces

        pieces = load_pieces(folder)
        if pieces.hash != units["pieces"]:
            raise InputError(
                f"{folder} has other pieces than its reader was trained on; copy it whole"
            )
    known = list_codebooks(card) if pieces is None else set(pieces.card["codebooks"])
    if known.isdisjoint(extractor.codebook.equivalents):
        raise InputError(
            f"{folder} is no reader of the units of {extractor.codebook.name}; train one on them"
        )
    return replace(extractor, price=units.get("price", 0.0), pieces=pieces)
