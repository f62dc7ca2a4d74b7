"""Sort questions by what may make them hard, and score every kind by itself.

`analyses` sorts by answer, place and word errors in one condition; `by_own_wer` pools the
conditions and sorts by the word error rate of every passage or sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from speechssl.eval.compare import SIMULATED, Compared, Where, reads_reference
from speechssl.eval.score import TYPES
from speechssl.results import seconds_range
from speechssl.stats import Difference, Interval, mean_interval, paired_difference

FEW_RESAMPLES = 1000  # of tables of missed answers
FEWEST = 5  # questions of a relation that stands by itself
MOST = 15  # relations that do
LENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0, float("inf"))  # seconds
WORDS = (1, 2, 3, 5, 9, float("inf"))
PLACES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
RATES = (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, float("inf"))  # word error rates of sentences and passages
Line = Mapping[str, Any]


class QuestionBucket(NamedTuple):
    """A bucket has the questions of one line of a table. scores: by system."""

    name: str
    n: int
    scores: Mapping[str, Interval]


class Analysis(NamedTuple):
    """An analysis is one table. by: what the questions are sorted by. recogniser: whose errors, for
    all systems; "" where none count."""

    by: str
    condition: Where
    recogniser: str
    buckets: Sequence[QuestionBucket]


class Bin(NamedTuple):
    """A bin holds questions whose passage (or sentence) a cascade recognised with a word error rate
    in this range. wer: of these passages."""

    name: str
    wer: float
    cascade: Interval
    textless: Interval
    difference: Difference


def analyses(c: Compared, condition: Where) -> list[Analysis]:
    """Make all tables that the lines of a condition give; those with a single bucket are left
    out."""
    scored = [s for s in c.scores if s.condition == condition]
    lines: Mapping[str, Line] = scored[0].lines if scored else {}
    # what questions are sorted by, the recogniser whose errors count, bucket by question, order
    sortings: list[tuple[str, str, Mapping[str, str | None], Sequence[str]]] = [
        ("type of the answer", "", {i: x.get("type") for i, x in lines.items()}, TYPES),
        ("relation (of the corpus)", "", *_sort_relations(lines)),
    ]
    words = "characters" if c.errors == "CER" else "words"
    for by, field, edges, name in (
        ("length of the answer", "answer_seconds", LENGTHS, seconds_range),
        (f"{words} of the answer", "answer_words", WORDS, _count_range),
        ("place in the passage", "position", PLACES, _percent),
    ):
        names = [name(*ends) for ends in pairwise(edges)]
        sortings.append((by, "", _sort(lines, field, edges, names), names))
    names = [_percent(*ends) for ends in pairwise(RATES)]
    for scores in scored:
        if scores.system in c.recognisers:
            found = _sort(scores.lines, "sentence_wer", RATES, names)
            sortings.append((f"{c.errors} of the answer's sentence", scores.system, found, names))

    systems = [s for s in scored if not s.system.startswith(SIMULATED)]
    analyses = []
    for by, recogniser, bucket_of, order in sortings:
        buckets = []
        for bucket in order:
            ids = [i for i, name in bucket_of.items() if name == bucket]
            if ids:
                units, values = c.units(ids), {}
                for s in systems:
                    of_system = [s.lines[i][c.metric] for i in ids]
                    values[s.system] = mean_interval(of_system, units, 0, FEW_RESAMPLES)
                buckets.append(QuestionBucket(bucket, len(ids), values))
        if len(buckets) > 1:
            analyses.append(Analysis(by, condition, recogniser, buckets))
    return analyses


def by_own_wer(c: Compared, textless: str, family: str, sentences: bool = False) -> list[Bin]:
    """Pool the conditions of a family, and sort them by the word error rate of every passage (or
    sentence) by itself.

    family: a recogniser, or "simulated".
    """
    names = [_percent(*ends) for ends in pairwise(RATES)]
    # line, score of the cascade, of the other
    by_range: dict[str, list[tuple[Line, float, float]]] = {name: [] for name in names}
    for cascade in c.scores:
        simulated = family == "simulated" and reads_reference(cascade.system)
        other = c.find(textless, cascade.condition)
        if other is None or not (simulated or cascade.system == family):
            continue
        for i, line in cascade.lines.items():
            wer = line.get("sentence_wer") if sentences else None
            if line.get("passage_words") and not sentences:
                wer = line["passage_errors"] / line["passage_words"]
            if wer is not None:
                both = float(line[c.metric]), float(other.lines[i][c.metric])
                by_range[_range(wer, RATES, names)].append((line, *both))
    bins = []
    for name, members in by_range.items():
        if members:
            lines, first, second = zip(*members, strict=True)
            units = c.units(line["id"] for line in lines)
            wer = sum(x["passage_errors"] for x in lines) / sum(x["passage_words"] for x in lines)
            a, b = (mean_interval(x, units, 0, FEW_RESAMPLES) for x in (first, second))
            difference = paired_difference(first, second, units, 0, FEW_RESAMPLES)
            bins.append(Bin(name, wer, a, b, difference))
    return bins


# ---- buckets


def _sort(
    lines: Mapping[str, Line], field: str, edges: Sequence[float], names: Sequence[str]
) -> dict[str, str | None]:
    """Sort lines into half-open ranges of a field, the last one closed."""
    buckets: dict[str, str | None] = {}
    for i, line in lines.items():
        value = line.get(field)
        buckets[i] = None
        if value is not None and value >= edges[0]:
            buckets[i] = _range(value, edges, names)
    return buckets


def _sort_relations(lines: Mapping[str, Line]) -> tuple[dict[str, str | None], list[str]]:
    """Sort lines by relation: the most frequent by themselves, the others together."""
    of_line = {i: str(line.get("relation") or "") for i, line in lines.items()}
    counts = Counter(filter(None, of_line.values()))
    names = {r: r.replace("_", " ") for r, n in counts.most_common(MOST) if n >= FEWEST}
    rest = len(counts) - len(names)
    others = f"{rest} other{'s' * (rest > 1)}"
    buckets = {i: names.get(r, others) if r else None for i, r in of_line.items()}
    return buckets, [*names.values(), others]


def _range(value: float, edges: Sequence[float], names: Sequence[str]) -> str:
    return names[min(sum(value >= edge for edge in edges), len(names)) - 1]


def _percent(low: float, high: float) -> str:
    return f"{100 * low:.0f}-{100 * high:.0f} %" if high < 1e9 else f"over {100 * low:.0f} %"


def _count_range(low: float, high: float) -> str:
    if high > 1e9:
        return f"{low:g} or more"
    return f"{low:g}" if high == low + 1 else f"{low:g}-{high - 1:g}"
