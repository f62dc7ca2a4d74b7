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
    """The questions of one line of a table. scores: by system; None where it was not scored."""

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
    """All tables that the lines of a condition give: those with a single bucket say nothing and are left out."""
    lines = next((s.lines for s in c.scores if s.condition == condition), {})
    found = [
        Analysis(by, condition, _buckets(c, condition, lines, name_of, order)) for by, name_of, order in _sortings(lines, c.errors)
    ]
    for recogniser in c.recognisers:
        if (heard := c.of(recogniser, condition)) and any(line.get("sentence_wer") is not None for line in heard.lines.values()):
            name_of, order = _ranges("sentence_wer", RATES, _percent)
            found.append(
                Analysis(
                    f"{c.errors} of the answer's sentence",
                    condition,
                    _buckets(c, condition, heard.lines, name_of, order),
                    recogniser,
                )
            )
    return [a for a in found if len(a.buckets) > 1]


Sorting = tuple[Callable[[Line], str | None], Sequence[str]]


def _sortings(lines: Mapping[str, Line], errors: str) -> list[tuple[str, Callable[[Line], str | None], Sequence[str]]]:
    relations = Counter(str(line.get("relation") or "") for line in lines.values())
    del relations[""]
    kept = [r for r, n in relations.most_common(MOST) if n >= FEWEST]
    named = {r: r.replace("_", " ") for r in kept}
    rest = len(relations) - len(kept)
    others = f"{rest} other{'s' * (rest > 1)}"
    return [
        ("type of the answer", lambda line: line.get("type"), TYPES),
        (
            "relation (of the corpus)",
            lambda line: named.get(r, others) if (r := line.get("relation")) else None,
            [*named.values(), others],
        ),
        (
            "length of the answer",
            *_ranges("answer_seconds", LENGTHS, lambda a, b: f"{a:g}-{b:g} s" if b < 1e9 else f"over {a:g} s"),
        ),
        ("characters of the answer" if errors == "CER" else "words of the answer", *_ranges("answer_words", WORDS, _count)),
        ("place in the passage", *_ranges("position", PLACES, lambda a, b: f"{100 * a:.0f}-{100 * b:.0f} %")),
    ]


def _ranges(field: str, edges: Sequence[float], name: Callable[[float, float], str]) -> Sorting:
    """Half-open ranges of a field, the last one closed."""
    names = [name(a, b) for a, b in pairwise(edges)]

    def name_of(line: Line) -> str | None:
        value = line.get(field)
        if value is None or value < edges[0]:
            return None
        return names[min(sum(value >= edge for edge in edges), len(names)) - 1]

    return name_of, names


def _percent(low: float, high: float) -> str:
    return f"{100 * low:.0f}-{100 * high:.0f} %" if high < 1e9 else f"over {100 * low:.0f} %"


def _count(low: float, high: float) -> str:
    last = high - 1
    return f"{low:g} or more" if high > 1e9 else f"{low:g}" if last == low else f"{low:g}-{last:g}"


def _buckets(
    c: Compared, condition: Where, lines: Mapping[str, Line], name_of: Callable[[Line], str | None], order: Sequence[str]
) -> tuple[Bucket, ...]:
    ids: dict[str, list[str]] = {}
    for i, line in lines.items():
        if (name := name_of(line)) is not None:
            ids.setdefault(name, []).append(i)
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
    """Questions whose passage (or sentence) a cascade heard with a word error rate in this range. wer: of these passages."""

    name: str
    wer: float
    cascade: Interval
    textless: Interval
    difference: Difference


def by_own_wer(c: Compared, textless: str, family: str, sentences: bool = False) -> list[Bin]:
    """The conditions of a family pooled, and sorted by the word error rate of every passage (or sentence) by itself.

    family: a recogniser, or "simulated".
    """
    mine = [s for s in c.scores if s.system == family or (family == "simulated" and reads_reference(s.system))]
    names = [_percent(a, b) for a, b in pairwise(RATES)]
    found: dict[str, list[tuple[Line, float, float]]] = {}
    for line, cascade, other in (pair for s in mine for pair in _pairs(c, s, textless)):
        wer = line.get("sentence_wer") if sentences else line["passage_errors"] / line["passage_words"]
        if wer is not None:
            found.setdefault(names[min(sum(wer >= edge for edge in RATES), len(names)) - 1], []).append((line, cascade, other))
    return [_bin(c, name, found[name]) for name in names if name in found]


def _pairs(c: Compared, cascade: Any, textless: str) -> list[tuple[Line, float, float]]:
    other = c.of(textless, cascade.condition)
    if other is None:
        return []
    scored = [(line, line[c.metric], other.lines[i][c.metric]) for i, line in cascade.lines.items()]
    return [(line, float(a), float(b)) for line, a, b in scored if line.get("passage_words")]


def _bin(c: Compared, name: str, pairs: Sequence[tuple[Line, float, float]]) -> Bin:
    groups = _units(c, [str(line["id"]) for line, _, _ in pairs])
    a, b = [x for _, x, _ in pairs], [y for _, _, y in pairs]
    wer = sum(line["passage_errors"] for line, _, _ in pairs) / sum(line["passage_words"] for line, _, _ in pairs)
    first, second = mean_interval(a, groups, 0, RESAMPLES), mean_interval(b, groups, 0, RESAMPLES)
    return Bin(name, wer, first, second, paired_difference(a, b, groups, 0, RESAMPLES))


def shown(c: Compared) -> Where:
    """The condition that tables are about: clean speech, or else the first."""
    return CLEAN if CLEAN in c.conditions else c.conditions[0]
