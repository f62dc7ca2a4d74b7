"""QbE (query by example) asks which recordings contain a spoken query. Nothing is trained: states
of a layer of the encoder are compared by DTW (SUPERB, section 3).

The scores are those of s3prl's `downstream/quesst14_dtw`: every dimension is normalised over all
frames of the queries and documents together, the score of a query and a document is minus the cost,
scores are normalised over the documents of a query, and a score above 2 is a detection. A query of
fewer than five frames has the score 0 for every document. Silence is not cut out (s3prl's
configuration names no `silence_frame`). MTWV is computed for every layer on dev; the test set is
evaluated with the best layer.
Letters: T frames, n frames of a query, S hidden states, D width, L layers that are compared, Q
queries, R documents, B documents side by side, K thresholds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import normalize, pad
from torch.nn.utils.rnn import pad_sequence

from speechssl.data.superb import DOCUMENTS, Utterance, UtteranceSet, group_recordings
from speechssl.encoders.encoder import open_pool
from speechssl.encoders.hubert import mask_lengths
from speechssl.errors import InputError
from speechssl.stats import (
    BootstrapUnits,
    Interval,
    draw_counts,
    estimate_ends,
    estimate_mean,
    estimate_scale,
)
from speechssl.superb.data import HeadEvaluation

# id -> (T, S, D) of any precision; raises KeyError for a recording that could not be read
StatesOf = Callable[[str], Tensor]
# float32 numbers in the documents' states that are in memory at a time: 256 MB
BLOCK = 1 << 26
PAIRS = 1 << 23  # distances that every worker has in memory at a time
DECISION = 2.0  # standard deviations above which a score is a detection
SHORTEST = 5  # frames; a shorter query has the score 0 for every document
PRIOR = 0.0008  # probability that a document contains a query, of QUESST 2014
MISS = 100.0  # cost of a miss in false alarms, of QUESST 2014
BETA = (1 - PRIOR) / (MISS * PRIOR)
FLAT = 1e-5  # distances, which lie in [0, 6.4], count as equal when they differ by less


@dataclass(frozen=True)
class SpokenTerms:
    """The task `qbe` is query by example.

    Raises InputError for a query that matches an unknown document, or a split in which no query
    matches any.
    """

    data: UtteranceSet
    name = "qbe"

    def __post_init__(self) -> None:
        document_ids = {u.id for u in self.data.splits[DOCUMENTS]}
        for split in ("dev", "test"):
            for query in self.data.splits[split]:
                unknown = set(query.matches) - document_ids
                if unknown:
                    raise InputError(
                        f"{self.data.root / split}.jsonl, query {query.id}, matches "
                        f"{min(unknown)!r}, which is not in {DOCUMENTS}.jsonl; correct the id"
                    )

    def choose_layer(
        self, states_of: StatesOf, layers: int, workers: int = 2
    ) -> tuple[int, list[float]]:
        """Choose the best layer on dev (of equals the first); return it, and the MTWV of every
        layer in percent. layers: their number, S.

        states_of is called from this thread alone, twice for every recording.
        """
        scores = self.score_pairs(states_of, "dev", range(layers), workers)
        truth = self.mark_matches("dev")
        mtwvs = [
            100 * compute_mtwv(compute_term_values(layer_scores, truth)) for layer_scores in scores
        ]
        return int(np.argmax(mtwvs)), mtwvs

    def evaluate(
        self, states_of: StatesOf, split: str, layer: int, resamples: int, workers: int = 2
    ) -> HeadEvaluation:
        """Measure MTWV, and the value at the published decision (`atwv`), in percent. The intervals
        draw the speakers of the queries."""
        scores = self.score_pairs(states_of, split, [layer], workers)[0]
        truth = self.mark_matches(split)
        units = group_recordings(self.data, self.list_queries(split), "query")
        # a score of exactly 2 is no detection
        actual = compute_values_at(scores, truth, np.nextafter(DECISION, np.inf))
        mtwv = estimate_mtwv(compute_term_values(scores, truth), units, resamples)
        atwv = estimate_mean(actual, units, resamples=resamples)
        return HeadEvaluation({"mtwv": mtwv.percent, "atwv": atwv.percent})

    def list_queries(self, split: str) -> list[Utterance]:
        """List the Q queries that some document contains; the others count in no measure."""
        return [u for u in self.data.splits[split] if u.matches]

    def mark_matches(self, split: str) -> np.ndarray:
        """Mark in (Q, R) bool where a document contains a query."""
        documents = [d.id for d in self.data.splits[DOCUMENTS]]
        return np.array(
            [[name in q.matches for name in documents] for q in self.list_queries(split)]
        )

    def score_pairs(
        self, states_of: StatesOf, split: str, layers: Sequence[int], workers: int = 2
    ) -> np.ndarray:
        """Score all pairs of a query and a document, (L, Q, R) float64; -inf where one of them
        could not be read.

        Scores are normalised to mean 0 and deviation 1 over the finite scores of a query; 0 where
        all are equal.
        """
        documents = self.data.splits[DOCUMENTS]
        queries = self.list_queries(split)
        layers = list(layers)
        names = [u.id for u in (*documents, *self.data.splits[split])]
        frames, mean, deviation = _measure_frames(states_of, names, layers)

        def normalise_states(name: str) -> Tensor:
            """Return the normalised states of a recording, (L, T, D) float32."""
            return ((states_of(name)[:, layers].float() - mean) / deviation).transpose(0, 1)

        columns = [i for i, d in enumerate(documents) if d.id in frames]
        rows = [i for i, q in enumerate(queries) if q.id in frames]
        scores = np.full((len(layers), len(queries), len(documents)), -np.inf)
        scores[np.ix_(range(len(layers)), rows, columns)] = 0
        long_rows = [i for i in rows if frames[queries[i].id] >= SHORTEST]
        query_states = [normalise_states(queries[i].id) for i in long_rows]
        longest = max((states.shape[1] for states in query_states), default=1)
        block_frames = min(BLOCK // mean.numel(), PAIRS // longest)
        lengths = [frames[documents[i].id] for i in columns]
        with open_pool(workers) as pool:
            for block in _yield_blocks(columns, lengths, block_frames):
                document_states = [normalise_states(documents[i].id) for i in block]
                for layer in range(len(layers)):
                    stacked, beyond = stack_documents([states[layer] for states in document_states])
                    costs_of = partial(compute_subsequence_costs, frames=stacked, beyond=beyond)
                    costs = pool.map(costs_of, [states[layer] for states in query_states])
                    for row, query_costs in zip(long_rows, costs, strict=True):
                        scores[layer, row, block] = -query_costs.numpy()
        return _normalise_scores(scores)


def _normalise_scores(scores: np.ndarray) -> np.ndarray:
    """Normalise the finite scores of every query in (L, Q, R) to mean 0 and deviation 1."""
    finite = np.ma.masked_invalid(scores)
    centred = finite - finite.mean(2, keepdims=True)
    deviations = np.ma.maximum(finite.std(2, keepdims=True), 1e-9)
    return (centred / deviations).filled(-np.inf)  # type: ignore[no-any-return]


def _measure_frames(
    states_of: StatesOf, names: Sequence[str], layers: Sequence[int]
) -> tuple[dict[str, int], Tensor, Tensor]:
    """Count the frames of every recording that can be read and has any, and measure the mean and
    standard deviation of every dimension, (L, D) float32, over all frames."""
    frames: dict[str, int] = {}
    sums = torch.zeros(2, 1, 1, dtype=torch.float64)
    for name in names:
        try:
            states = states_of(name)[:, layers].double()
        except KeyError:
            continue
        if len(states):
            frames[name] = len(states)
            sums = sums + torch.stack([states.sum(0), states.square().sum(0)])
    count = max(sum(frames.values()), 1)
    mean = sums[0] / count
    variance = (sums[1] - count * mean.square()).clamp(min=0) / max(count - 1, 1)
    return frames, mean.float(), variance.sqrt().float().clamp(min=1e-9)


def _yield_blocks(items: Sequence[int], lengths: Sequence[int], frames: int) -> Iterator[list[int]]:
    """Yield the items, the shortest first, in blocks of at most so many frames when padded, or of a
    single longer item."""
    block: list[int] = []
    for length, item in sorted(zip(lengths, items, strict=True), key=lambda pair: pair[0]):
        if block and (len(block) + 1) * length > frames:
            yield block
            block = []
        block.append(item)
    if block:
        yield block


# ---- subsequence DTW, which compares a spoken query with many documents at once


def stack_documents(documents: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Normalise the frames of B documents (T, D) to length 1 and stack them to (B, T, D) float32,
    with zeros after the end of a document. Return them with (B, T) bool, true after the end."""
    frames = pad_sequence([normalize(x.float(), dim=1) for x in documents], batch_first=True)
    lengths = torch.tensor([len(x) for x in documents])
    return frames, ~mask_lengths(lengths, frames.shape[1])


def compute_subsequence_costs(query: Tensor, frames: Tensor, beyond: Tensor) -> Tensor:
    """Compute the cost of the query where it fits best in each document, (B,), from 0 to 1. query:
    (n, D); frames, beyond: from `stack_documents`. n B T numbers are in memory.

    The local distance is e^(1 - cosine) - 1, scaled to [0, 1] for every frame of the query over the
    frames of the document. A path takes every frame of the query once, may begin and end anywhere
    in the document, and advances by 0, 1 or 2 of its frames: Rabiner and Juang's asymmetric step
    pattern (dtw-python's `asymmetric`, open begin and end). Its cost is the mean distance. s3prl
    (`downstream/quesst14_dtw`) computes the same, one pair at a time, with one difference: there a
    frame of the query that is equally far from all frames of the document costs nothing, so that a
    document of one frame fits every query; here it costs 1. librosa's `sequence.dtw` gives the same
    costs, one pair at a time in 1.5 times the time, and would save no line.
    """
    # (n, B, T); a frame of zeros is orthogonal to all
    cosines = torch.einsum("nd,btd->nbt", normalize(query.float(), dim=1), frames)
    distances = cosines.neg_().add_(1).expm1_()
    # scaled over T; infinite after the end of a document
    highest = distances.masked_fill_(beyond, -torch.inf).amax(2, keepdim=True)
    lowest = distances.masked_fill_(beyond, torch.inf).amin(2, keepdim=True)
    spread = highest - lowest
    flat = spread < FLAT
    distances.sub_(lowest).div_(spread.masked_fill_(flat, 1))
    distances.add_(flat)  # 1 where all are equal
    # the cheapest paths, a frame of the query at a time
    total = pad(distances[0], (2, 0), value=torch.inf)  # no path begins before the document
    for row in distances[1:]:
        cheapest = torch.minimum(torch.minimum(total[:, 2:], total[:, 1:-1]), total[:, :-2])
        torch.add(row, cheapest, out=total[:, 2:])
    return total.amin(1) / len(distances)


# ---- term-weighted values (NIST STD 2006), with the costs and trials of QUESST 2014


def compute_values_at(
    scores: np.ndarray, truth: np.ndarray, thresholds: np.ndarray | float
) -> np.ndarray:
    """Compute 1 - P_miss - β P_fa of every query: (Q,) or, for (K,) thresholds, (Q, K). scores: (Q,
    R); truth: (Q, R) bool.

    A score of at least the threshold is a detection; -inf never is. β = C_fa (1 - P) / (C_miss P).
    Every pair of query and document is a trial, as in MediaEval's scorer, so that P_fa is the share
    of detections among the documents without the query.
    """

    def count_detections(scores: np.ndarray) -> np.ndarray:
        return len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")

    values = []
    for row, matches in zip(scores, truth, strict=True):
        hits = count_detections(row[matches]) / matches.sum()
        false_alarms = count_detections(row[~matches])
        values.append(hits - BETA * false_alarms / max((~matches).sum(), 1))
    return np.stack(values)


def compute_term_values(scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Compute the value of every query at every threshold at which the mean can be highest, (Q, K),
    highest threshold first. scores: (Q, R); truth: (Q, R) bool.

    Thresholds between the scores of two true pairs only add false alarms, so the thresholds are
    these scores; the first is above all of them. Queries that no document contains are left out
    beforehand, as NIST does.
    """
    thresholds = np.concatenate([[np.inf], np.unique(scores[truth & np.isfinite(scores)])[::-1]])
    return compute_values_at(scores, truth, thresholds)


def compute_mtwv(values: np.ndarray) -> float:
    """Compute MTWV of (Q, K) values: the mean over the queries at the best threshold; it is 0 where
    no detection at all is best."""
    return float(values[:, values.mean(0).argmax()].mean())


def estimate_mtwv(values: np.ndarray, units: BootstrapUnits, resamples: int) -> Interval:
    """Estimate MTWV with the interval of a bootstrap, each resample at its own best threshold.

    units: the drawn units of the Q queries, such as their speakers.
    """
    queries, thresholds = values.shape
    by_group = pd.DataFrame(values).groupby(list(units.labels), sort=False)
    sums = by_group.sum().to_numpy()
    sizes = by_group.size().to_numpy()
    blocks = draw_counts(len(sizes), (queries + thresholds) / 2, 0, resamples)
    resampled = np.concatenate([(counts @ sums).max(1) / (counts @ sizes) for counts in blocks])
    mtwv = compute_mtwv(values)
    # without any detection the value is 0
    groups = len(sizes)
    ends = estimate_ends(mtwv, resampled, groups, bounds=(0.0, 1.0))
    estimated = estimate_scale(resampled, groups) is not None
    return Interval(mtwv, *ends, queries, estimated, units.text, groups)
