"""QbE: which recordings hold a spoken query? Nothing is trained; layers of the encoder are compared by DTW (SUPERB, section 3).

As s3prl's `downstream/quesst14_dtw`: every dimension is normalised over all frames of the queries and documents together, a pair's
score is minus its cost (`dtw.py`), scores are normalised over the documents of a query, and a document with more than 2 is said to
hold it. Queries of fewer than five frames have 0 everywhere. Silence is not cut out (its configuration names no `silence_frame`).
MTWV is found for every layer on dev; the test set is judged with the best of them.
Letters: T frames, S hidden states, D width, L layers that are looked at, Q queries, R documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, pad
from torch.nn.utils.rnn import pad_sequence

from speechssl.data.utterances import DOCUMENTS, Utterance, UtteranceSet
from speechssl.data.voices import recording_units
from speechssl.errors import InputError
from speechssl.stats import Interval, Units, mean_interval, percentiles
from speechssl.superb.task import Judgement, Measure
from speechssl.units.extract import single_threaded

# Term-weighted values of spoken-term detection (NIST STD 2006), with the costs and trials of QUESST 2014.
#
# TWV(θ) is the mean over the queries of 1 - P_miss(θ) - β P_fa(θ), where a document is said to hold a query when its score is at
# least θ; β = C_fa (1 - P) / (C_miss P). Every pair of query and document is a trial, as in MediaEval's scorer, so that P_fa is the
# share of the documents without the query that are said to hold it. MTWV is the value at the best θ; saying nothing has 0.
# Queries that no document holds are left out, as NIST does. A score of -inf is never a detection.
# Letters: Q queries, R documents, K thresholds.

_BLOCK = 1 << 22  # numbers held at a time by the bootstrap


@dataclass(frozen=True)
class Costs:
    """QUESST 2014's."""

    prior: float = 0.0008  # of a document's holding a query
    miss: float = 100.0
    false_alarm: float = 1.0

    @property
    def beta(self) -> float:
        return self.false_alarm * (1 - self.prior) / (self.miss * self.prior)


@dataclass(frozen=True)
class Curves:
    """The value of every query at every threshold at which the mean can be highest, highest threshold first."""

    thresholds: np.ndarray  # (K,), the first is inf
    values: np.ndarray  # (Q, K)

    @property
    def best(self) -> int:
        """Of the K; of equals the highest threshold."""
        return int(self.values.mean(0).argmax())


def term_curves(scores: np.ndarray, truth: np.ndarray, costs: Costs = Costs()) -> Curves:
    """scores: (Q, R); truth: (Q, R) bool. Thresholds between two true scores add false alarms alone, so those at true ones do.

    Raises ValueError where a query is in no document, or a score is NaN.
    """
    if not len(truth) or not truth.any(1).all() or np.isnan(scores).any():
        raise ValueError("every query must be in a document, and every score a number")
    found = np.unique(scores[truth & np.isfinite(scores)])[::-1]
    thresholds = np.concatenate([[np.inf], found])
    return Curves(thresholds, np.stack([_values(s, t, thresholds, costs) for s, t in zip(scores, truth, strict=True)]))


def values_at(scores: np.ndarray, truth: np.ndarray, threshold: float, costs: Costs = Costs()) -> np.ndarray:
    """(Q,) 1 - P_miss - β P_fa of every query at one threshold."""
    return np.stack([_values(s, t, np.array([threshold]), costs)[0] for s, t in zip(scores, truth, strict=True)])


def maximum(curves: Curves, resamples: int, units: Units | None = None, seed: int = 0) -> Interval:
    """MTWV. Its interval is that of a bootstrap, each resample at its own best threshold; 0: [value, value].

    units: what is drawn of the Q queries, such as their voices; None: the queries.
    """
    queries, thresholds = curves.values.shape
    value = float(curves.values[:, curves.best].mean())
    if not resamples:
        return Interval(value, value, value, queries)
    labels = units.labels if units else list(map(str, range(queries)))
    order = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    of_group = np.zeros((len(order), queries))
    of_group[[order[label] for label in labels], range(queries)] = 1
    sums, sizes = of_group @ curves.values, of_group.sum(1)
    generator, drawn = np.random.default_rng(seed), []
    block = max(1, _BLOCK // (queries + thresholds))
    for start in range(0, resamples, block):
        counts = generator.multinomial(len(order), np.full(len(order), 1 / len(order)), min(block, resamples - start))
        drawn.append((counts @ sums).max(1) / (counts @ sizes))
    ends = percentiles(np.concatenate(drawn))
    return Interval(value, *ends, queries, len(order) > 1, units.name if units else "query", len(order))


def _values(scores: np.ndarray, truth: np.ndarray, thresholds: np.ndarray, costs: Costs) -> np.ndarray:
    """(K,) of one query. scores, truth: (R,)."""
    hits, alarms = _at_least(scores[truth], thresholds), _at_least(scores[~truth], thresholds)
    return hits / truth.sum() - costs.beta * alarms / max((~truth).sum(), 1)


def _at_least(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """(K,) how many scores reach each threshold."""
    return len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")


# Where a spoken query may lie in recordings: subsequence DTW of one query against many documents at once.
#
# The local distance is e^(1 - cosine) - 1, brought to [0, 1] for every frame of the query over the frames of the document. A path
# takes every frame of the query once, may begin and end anywhere in the document, and goes on by 0, 1 or 2 of its frames:
# Rabiner and
# Juang's asymmetric step pattern (`asymmetric` in dtw-python, with open begin and open end). Its cost is the mean distance on it.
# s3prl does the same, one pair at a time (`downstream/quesst14_dtw`). One thing differs: there a frame of the query that is equally
# far from all frames of the document costs nothing, so that a document of one frame fits every query perfectly; here it costs 1.
# Letters: B documents, T frames of a document, n frames of the query, D width.

FLAT = 1e-5  # distances, which lie in [0, 6.4], are equal when they differ by no more


@dataclass(frozen=True)
class Documents:
    """Recordings of about one length, side by side."""

    frames: Tensor  # (B, T, D) float32 of length 1, zeros beyond the end
    beyond: Tensor  # (B, T) bool: not in the document

    @classmethod
    def of(cls, documents: Sequence[Tensor]) -> Documents:
        """documents: B of (T, D), each with a frame at least."""
        lengths = torch.tensor([len(x) for x in documents])
        frames = pad_sequence([normalize(x.float(), dim=1) for x in documents], batch_first=True)
        return cls(frames, torch.arange(frames.shape[1]) >= lengths[:, None])


def subsequence_costs(query: Tensor, documents: Documents) -> Tensor:
    """(B,) how badly the query fits where it fits best, 0 to 1. query: (n, D). Takes memory for n B T numbers."""
    return cheapest_paths(relative(distances(query, documents), documents.beyond))


def distances(query: Tensor, documents: Documents) -> Tensor:
    """(n, B, T) e^(1 - cosine) - 1. A frame of zeros is at right angles to all."""
    return torch.einsum("nd,btd->nbt", normalize(query.float(), dim=1), documents.frames).neg_().add_(1).expm1_()


def relative(found: Tensor, beyond: Tensor) -> Tensor:
    """(n, B, T) brought to [0, 1] over T, in place; infinite beyond the end of a document."""
    highest = found.masked_fill_(beyond, -torch.inf).amax(2, keepdim=True)
    lowest = found.masked_fill_(beyond, torch.inf).amin(2, keepdim=True)
    spread = highest - lowest
    flat = spread < FLAT
    return found.sub_(lowest).div_(spread.masked_fill_(flat, 1)).add_(flat)


def cheapest_paths(found: Tensor) -> Tensor:
    """(B,) cost of the best path over n. found: (n, B, T), infinite where no path may go."""
    total = pad(found[0], (2, 0), value=torch.inf)  # nothing lies before the document
    for row in found[1:]:
        before = torch.minimum(torch.minimum(total[:, 2:], total[:, 1:-1]), total[:, :-2])
        torch.add(row, before, out=total[:, 2:])
    return total.amin(1) / len(found)


States = Callable[[str], Tensor]  # id -> (T, S, D) of any precision; raises KeyError for what could not be heard
BLOCK = 1 << 26  # numbers of hidden states of documents, and of queries, held at a time: 256 MB each
PAIRS = 1 << 23  # numbers of distances held at a time by every worker


@dataclass(frozen=True)
class SpokenTerms:
    """Raises InputError for a query that matches an unknown document, or a split in which no query matches any."""

    data: UtteranceSet
    costs: Costs = Costs()
    decision: float = 2.0  # standard deviations from which on a document is said to hold the query
    shortest: int = 5  # frames; of a shorter query nothing is said

    name = "qbe"

    def __post_init__(self) -> None:
        known = {u.id for u in self.data.splits[DOCUMENTS]}
        for split in ("dev", "test"):
            path, queries = self.data.root / f"{split}.jsonl", self.data.splits[split]
            for query in queries:
                if unknown := set(query.matches) - known:
                    raise InputError(
                        f"{path}, query {query.id}, matches {min(unknown)!r}, which is not in {DOCUMENTS}.jsonl; correct the id"
                    )
            if not any(query.matches for query in queries):
                raise InputError(f"{path} has no query with matches; name the documents that hold each as its matches")

    def choose_layer(self, states_of: States, layers: int, workers: int = 2) -> tuple[int, list[float]]:
        """The best layer on dev (of equals the first), and the MTWV of every layer in percent. layers: S.

        states_of is called from this thread alone: once for everything, then once for every query and, where all queries fit
        BLOCK, once for every document.
        """
        scores, truth = self.scores(states_of, "dev", range(layers), workers), self.truth("dev")
        found = [100 * maximum(term_curves(of_layer, truth, self.costs), 0).value for of_layer in scores]
        return int(np.argmax(found)), found

    def judge(self, states_of: States, split: str, layer: int, resamples: int, workers: int = 2) -> Judgement:
        """MTWV, and the value at the published decision (`atwv`), in percent; intervals over the queries, by who says them.

        detail: {"layer", "threshold": the best one, None where saying nothing is best}.
        Raises InputError where no document could be heard.
        """
        scores, truth = self.scores(states_of, split, [layer], workers)[0], self.truth(split)
        curves = term_curves(scores, truth, self.costs)
        beyond = np.nextafter(self.decision, np.inf)  # more than 2, not 2
        actual = values_at(scores, truth, beyond, self.costs)
        units = recording_units(self.data, self.queries(split), "query")
        if resamples:
            intervals = {"mtwv": maximum(curves, resamples, units), "atwv": mean_interval(actual, units, resamples=resamples)}
            measures = tuple(Measure.of(name, interval.percent) for name, interval in intervals.items())
        else:
            values = {"mtwv": maximum(curves, 0).value, "atwv": float(actual.mean())}
            measures = tuple(Measure.fixed(name, 100 * value, len(actual)) for name, value in values.items())
        best = float(curves.thresholds[curves.best])
        return Judgement(measures, {"layer": layer, "threshold": best if np.isfinite(best) else None})

    def queries(self, split: str) -> list[Utterance]:
        """Q: those that some document holds; the others count in no measure."""
        return [u for u in self.data.splits[split] if u.matches]

    def truth(self, split: str) -> np.ndarray:
        """(Q, R) whether the document holds the query."""
        return np.array([[d.id in q.matches for d in self.data.splits[DOCUMENTS]] for q in self.queries(split)])

    def scores(self, states_of: States, split: str, layers: Sequence[int], workers: int = 2) -> np.ndarray:
        """(L, Q, R) float64; -inf where query or document could not be heard. Raises InputError where no document could be."""
        documents, queries = self.data.splits[DOCUMENTS], self.queries(split)
        hearing = survey(states_of, [u.id for u in (*documents, *self.data.splits[split])], list(layers))
        columns = [i for i, d in enumerate(documents) if d.id in hearing.frames]
        if not columns:
            path = self.data.root / f"{DOCUMENTS}.jsonl"
            raise InputError(f"no recording of {path} could be heard; mend them or prepare the set again")
        found = np.full((len(layers), len(queries), len(documents)), -np.inf)
        rows = [i for i, q in enumerate(queries) if q.id in hearing.frames]
        long = [i for i in rows if hearing.frames[queries[i].id] >= self.shortest]
        found[np.ix_(range(len(layers)), rows, columns)] = 0
        with single_threaded(workers) as pool:
            for part, block, costs in _costs(hearing, [queries[i].id for i in long], [documents[i].id for i in columns], pool):
                found[np.ix_(range(len(layers)), [long[i] for i in part], [columns[i] for i in block])] = -costs
        return _standardised(found)


@dataclass(frozen=True)
class Survey:
    """What can be heard, and the statistics of it."""

    states_of: States
    layers: list[int]
    frames: dict[str, int]  # id -> T of what could be heard and has a frame
    mean: Tensor  # (L, D)
    deviation: Tensor  # (L, D)

    def states(self, name: str) -> Tensor:
        """(L, T, D) float32, every dimension normalised."""
        return ((self.states_of(name)[:, self.layers].float() - self.mean) / self.deviation).transpose(0, 1)

    @property
    def size(self) -> int:
        """Numbers of a frame: L D."""
        return self.mean.numel()


def survey(states_of: States, names: Sequence[str], layers: list[int]) -> Survey:
    """Mean and standard deviation of every dimension over all frames of what can be heard."""
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
    return Survey(states_of, layers, frames, mean.float(), variance.sqrt().float().clamp(min=1e-9))


def _costs(
    hearing: Survey, queries: list[str], documents: list[str], pool: Executor
) -> Iterator[tuple[list[int], list[int], np.ndarray]]:
    """Numbers of some queries and of some documents, with their costs (L, queries, documents), until all have been met."""
    lengths = [hearing.frames[name] for name in queries]
    for part in _parts(lengths, BLOCK // hearing.size):
        spoken = [hearing.states(queries[i]) for i in part]
        most = min(BLOCK // hearing.size, PAIRS // max(lengths[i] for i in part))
        for block in _parts([hearing.frames[name] for name in documents], most):
            states = [hearing.states(documents[i]) for i in block]
            costs = np.empty((len(hearing.layers), len(part), len(block)))
            for layer in range(len(hearing.layers)):
                side_by_side = Documents.of([x[layer] for x in states])
                of_queries = pool.map(lambda query, at=layer, found=side_by_side: subsequence_costs(query[at], found), spoken)
                costs[layer] = torch.stack(list(of_queries)).numpy()
            yield part, block, costs


def _parts(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Numbers of recordings, the shortest first, in parts that take at most so many frames when padded, or are one recording."""
    part: list[int] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if part and (len(part) + 1) * lengths[i] > most:
            yield part
            part = []
        part.append(i)
    if part:
        yield part


def _standardised(scores: np.ndarray) -> np.ndarray:
    """(L, Q, R) with mean 0 and deviation 1 over the finite ones of a query; where all are equal, 0."""
    heard = np.isfinite(scores)
    count = np.maximum(heard.sum(2, keepdims=True), 1)
    kept = np.where(heard, scores, 0)
    kept = np.where(heard, kept - kept.sum(2, keepdims=True) / count, 0)
    deviation = np.sqrt(np.square(kept).sum(2, keepdims=True) / count)
    return np.where(heard, kept / np.maximum(deviation, 1e-9), -np.inf)
