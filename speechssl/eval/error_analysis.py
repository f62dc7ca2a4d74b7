"""Which answers systems miss: scores by kind and relation, length and place of the answer, and by the errors in its sentence.

Every table is about the questions of one condition; systems stand beside each other on the same questions. Errors are those of one
recogniser for all systems, which a table names: how good is each where that one errs? Intervals draw what the comparison draws
(`Compared.drawn`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from speechssl.eval.compare import CLEAN, SIMULATED, Compared, Where, reads_reference
from speechssl.eval.scores import TYPES
from speechssl.stats import Difference, Interval, Units, mean_interval, paired_difference

RESAMPLES = 1000
FEWEST = 5  # questions of a relation that stands by itself
MOST = 15  # relations that do
LENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0, float("inf"))  # seconds
WORDS = (1, 2, 3, 5, 9, float("inf"))
PLACES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
RATES = (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, float("inf"))  # word error rates of sentences and passages
Line = Mapping[str, Any]


@dataclass(frozen=True)
class Bucket:
    """The questions of one line of a table. scores: by system."""

    name: str
    n: int
    scores: Mapping[str, Interval]


@dataclass(frozen=True)
class Analysis:
    """One table. by: what the questions are sorted by. recogniser: whose errors, "" where none count."""

    by: str
    condition: Where
    buckets: tuple[Bucket, ...]
    recogniser: str = ""


def analyses(c: Compared, condition: Where) -> list[Analysis]:
    """All tables that the lines of a condition give; those with a single bucket are left out."""
    lines = next((s.lines for s in c.scores if s.condition == condition), {})
    relations = Counter(str(line.get("relation") or "") for line in lines.values())
    del relations[""]
    named = {r: r.replace("_", " ") for r, n in relations.most_common(MOST) if n >= FEWEST}
    rest = len(relations) - len(named)
    others = f"{rest} other{'s' * (rest > 1)}"

    def relation_of(line: Line) -> str | None:
        return named.get(r, others) if (r := line.get("relation")) else None

    seconds = _ranges("answer_seconds", LENGTHS, lambda a, b: f"{a:g}-{b:g} s" if b < 1e9 else f"over {a:g} s")
    words = "characters of the answer" if c.errors == "CER" else "words of the answer"
    sortings: list[tuple[str, Callable[[Line], str | None], Sequence[str]]] = [
        ("type of the answer", lambda line: line.get("type"), TYPES),
        ("relation (of the corpus)", relation_of, [*named.values(), others]),
        ("length of the answer", *seconds),
        (words, *_ranges("answer_words", WORDS, _count)),
        ("place in the passage", *_ranges("position", PLACES, lambda a, b: f"{100 * a:.0f}-{100 * b:.0f} %")),
    ]
    found = [Analysis(by, condition, _buckets(c, condition, lines, bucket_of, order)) for by, bucket_of, order in sortings]
    for recogniser in c.recognisers:
        scores = c.of(recogniser, condition)
        if scores and any(line.get("sentence_wer") is not None for line in scores.lines.values()):
            by = f"{c.errors} of the answer's sentence"
            buckets = _buckets(c, condition, scores.lines, *_ranges("sentence_wer", RATES, _percent))
            found.append(Analysis(by, condition, buckets, recogniser))
    return [a for a in found if len(a.buckets) > 1]


def _ranges(
    field: str, edges: Sequence[float], name: Callable[[float, float], str]
) -> tuple[Callable[[Line], str | None], Sequence[str]]:
    """Half-open ranges of a field, the last one closed."""
    names = [name(a, b) for a, b in pairwise(edges)]

    def bucket_of(line: Line) -> str | None:
        value = line.get(field)
        if value is None or value < edges[0]:
            return None
        return names[min(sum(value >= edge for edge in edges), len(names)) - 1]

    return bucket_of, names


def _percent(low: float, high: float) -> str:
    return f"{100 * low:.0f}-{100 * high:.0f} %" if high < 1e9 else f"over {100 * low:.0f} %"


def _count(low: float, high: float) -> str:
    last = high - 1
    return f"{low:g} or more" if high > 1e9 else f"{low:g}" if last == low else f"{low:g}-{last:g}"


def _buckets(
    c: Compared, condition: Where, lines: Mapping[str, Line], bucket_of: Callable[[Line], str | None], order: Sequence[str]
) -> tuple[Bucket, ...]:
    ids: dict[str | None, list[str]] = {}
    for i, line in lines.items():
        ids.setdefault(bucket_of(line), []).append(i)
    systems = [s for s in c.scores if s.condition == condition and not s.system.startswith(SIMULATED)]
    found = []
    for name in order:
        if some := ids.get(name):
            groups = _units(c, some)
            scores = {s.system: mean_interval([s.lines[i][c.metric] for i in some], groups, 0, RESAMPLES) for s in systems}
            found.append(Bucket(name, len(some), scores))
    return tuple(found)


def _units(c: Compared, questions: Sequence[str]) -> Units:
    return Units(c.drawn, tuple((c.groups[i],) for i in questions))


# ---- by the word error rate of the passage, or of the sentence with the answer


@dataclass(frozen=True)
class Bin:
    """Questions whose passage (or sentence) a cascade recognised with a word error rate in this range. wer: of these passages."""

    name: str
    wer: float
    cascade: Interval
    textless: Interval
    difference: Difference


def by_own_wer(c: Compared, textless: str, family: str, sentences: bool = False) -> list[Bin]:
    """The conditions of a family pooled, and sorted by the word error rate of every passage (or sentence) by itself.

    family: a recogniser, or "simulated".
    """
    names = [_percent(a, b) for a, b in pairwise(RATES)]
    found: dict[str, list[tuple[Line, float, float]]] = {}  # line, score of the cascade, of the other
    for cascade in c.scores:
        of_family = cascade.system == family or (family == "simulated" and reads_reference(cascade.system))
        other = c.of(textless, cascade.condition) if of_family else None
        for i, line in cascade.lines.items() if other else ():
            if not line.get("passage_words"):
                continue
            wer = line.get("sentence_wer") if sentences else line["passage_errors"] / line["passage_words"]
            if other and wer is not None:
                name = names[min(sum(wer >= edge for edge in RATES), len(names)) - 1]
                found.setdefault(name, []).append((line, float(line[c.metric]), float(other.lines[i][c.metric])))
    bins = []
    for name in names:
        if some := found.get(name):
            groups = _units(c, [str(line["id"]) for line, _, _ in some])
            a, b = [x for _, x, _ in some], [y for _, _, y in some]
            wer = sum(line["passage_errors"] for line, _, _ in some) / sum(line["passage_words"] for line, _, _ in some)
            first, second = (mean_interval(x, groups, 0, RESAMPLES) for x in (a, b))
            bins.append(Bin(name, wer, first, second, paired_difference(a, b, groups, 0, RESAMPLES)))
    return bins


def shown(c: Compared) -> Where:
    """The condition that tables are about: clean speech, or else the first."""
    return CLEAN if CLEAN in c.conditions else c.conditions[0]
