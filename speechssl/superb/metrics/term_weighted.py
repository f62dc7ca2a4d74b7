"""Term-weighted values of spoken-term detection (NIST STD 2006), with the costs and trials of QUESST 2014.

TWV(θ) is the mean over the queries of 1 - P_miss(θ) - β P_fa(θ), where a document is said to hold a query when its score is at
least θ; β = C_fa (1 - P) / (C_miss P). Every pair of query and document is a trial, as in MediaEval's scorer, so that P_fa is the
share of the documents without the query that are said to hold it. MTWV is the value at the best θ; saying nothing has 0.
Queries that no document holds are left out, as NIST does. A score of -inf is never a detection.
Letters: Q queries, R documents, K thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from speechssl.bootstrap import Interval, Units, percentiles

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
