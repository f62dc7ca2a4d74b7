"""A comparison as tables, which the page and Markdown have in common, and as JSON; and which answers are missed.

Tables of missed answers are about the questions of one condition, sorted by kind and relation, length and place of the answer, and
by the errors in its sentence; systems stand beside each other on the same questions. Errors are those of one recogniser for all
systems, which a table names: how good is each where that one errs? Intervals draw what the comparison draws (`Compared.drawn`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

from speechssl.data.records import synthetic_sentence
from speechssl.eval.compare import (
    CLEAN,
    SIMULATED,
    WER,
    Compared,
    Crossing,
    PairedTest,
    Where,
    crossings,
    families,
    reads_reference,
)
from speechssl.eval.scores import TYPES
from speechssl.eval.tables import Table, condition_name, interval_text
from speechssl.results import counted_range
from speechssl.stats import Difference, Interval, Units, mean_interval, paired_difference

NEVER = "they do not cross in the range measured"
METRIC_NAMES = {"ff1": "FF1", "aos": "AOS", "f1": "F1", "em": "EM"}
RESAMPLES = 1000  # of tables of missed answers
FEWEST = 5  # questions of a relation that stands by itself
MOST = 15  # relations that do
LENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0, float("inf"))  # seconds
WORDS = (1, 2, 3, 5, 9, float("inf"))
PLACES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
RATES = (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, float("inf"))  # word error rates of sentences and passages
Line = Mapping[str, Any]


class Bucket(NamedTuple):
    """The questions of one line of a table. scores: by system."""

    name: str
    n: int
    scores: Mapping[str, Interval]


class Analysis(NamedTuple):
    """One table. by: what the questions are sorted by. recogniser: whose errors, "" where none count."""

    by: str
    condition: Where
    buckets: Sequence[Bucket]
    recogniser: str = ""


class Bin(NamedTuple):
    """Questions whose passage (or sentence) a cascade recognised with a word error rate in this range. wer: of these passages."""

    name: str
    wer: float
    cascade: Interval
    textless: Interval
    difference: Difference


@dataclass(frozen=True, eq=False)
class Compilation:
    """All results of one corpus. bins: by system without a transcript, family, and "passage" or "sentence"."""

    compared: Compared
    tests: Sequence[PairedTest]
    crossings: Sequence[Crossing]
    bins: Mapping[tuple[str, str, str], Sequence[Bin]]
    analyses: Sequence[Analysis]


def compile_corpus(c: Compared, tests: Sequence[PairedTest]) -> Compilation:
    """Missed answers are those in clean speech, or else in the first condition."""
    bins = {}
    for textless in c.textless:
        names = ["simulated", *c.recognisers] if "simulated" in families(c, textless) else c.recognisers
        for family in names:
            for what in ("passage", "sentence"):
                if len(found := by_own_wer(c, textless, family, what == "sentence")) > 1:
                    bins[textless, family, what] = found
    shown = CLEAN if CLEAN in c.conditions else c.conditions[0]
    return Compilation(c, tests, crossings(c), bins, analyses(c, shown))


# ---- which answers are missed


def analyses(c: Compared, condition: Where) -> list[Analysis]:
    """All tables that the lines of a condition give; those with a single bucket are left out."""
    lines = next((s.lines for s in c.scores if s.condition == condition), {})
    relations = Counter(str(line.get("relation") or "") for line in lines.values())
    del relations[""]
    named = {r: r.replace("_", " ") for r, n in relations.most_common(MOST) if n >= FEWEST}
    rest = len(relations) - len(named)
    others = f"{rest} other{'s' * (rest > 1)}"

    def ranges(field: str, edges: Sequence[float], name: Callable[[float, float], str]) -> tuple[Any, list[str]]:
        """Half-open ranges of a field, the last one closed."""
        names = [name(a, b) for a, b in pairwise(edges)]

        def bucket_of(line: Line) -> str | None:
            value = line.get(field)
            return None if value is None or value < edges[0] else _range(value, edges, names)

        return bucket_of, names

    def seconds(low: float, high: float) -> str:
        return f"{low:g}-{high:g} s" if high < 1e9 else f"over {low:g} s"

    def count(low: float, high: float) -> str:
        last = high - 1
        return f"{low:g} or more" if high > 1e9 else f"{low:g}" if last == low else f"{low:g}-{last:g}"

    def buckets(some_lines: Mapping[str, Line], bucket_of: Callable[[Line], str | None], order: Sequence[str]) -> list[Bucket]:
        ids: dict[str | None, list[str]] = {}
        for i, line in some_lines.items():
            ids.setdefault(bucket_of(line), []).append(i)
        systems = [s for s in c.scores if s.condition == condition and not s.system.startswith(SIMULATED)]
        found = []
        for name in order:
            if some := ids.get(name):
                units = Units(c.drawn, tuple((c.groups[i],) for i in some))
                scores = {s.system: mean_interval([s.lines[i][c.metric] for i in some], units, 0, RESAMPLES) for s in systems}
                found.append(Bucket(name, len(some), scores))
        return found

    def relation_of(line: Line) -> str | None:
        return named.get(r, others) if (r := line.get("relation")) else None

    words = "characters of the answer" if c.errors == "CER" else "words of the answer"
    sortings = [
        ("type of the answer", lambda line: line.get("type"), TYPES),
        ("relation (of the corpus)", relation_of, [*named.values(), others]),
        ("length of the answer", *ranges("answer_seconds", LENGTHS, seconds)),
        (words, *ranges("answer_words", WORDS, count)),
        ("place in the passage", *ranges("position", PLACES, lambda a, b: f"{100 * a:.0f}-{100 * b:.0f} %")),
    ]
    found = [Analysis(by, condition, buckets(lines, bucket_of, order)) for by, bucket_of, order in sortings]
    for recogniser in c.recognisers:
        scores = c.of(recogniser, condition)
        if scores and any(line.get("sentence_wer") is not None for line in scores.lines.values()):
            by = f"{c.errors} of the answer's sentence"
            found.append(Analysis(by, condition, buckets(scores.lines, *ranges("sentence_wer", RATES, _percent)), recogniser))
    return [a for a in found if len(a.buckets) > 1]


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
            if other and line.get("passage_words"):
                wer = line.get("sentence_wer") if sentences else line["passage_errors"] / line["passage_words"]
                if wer is not None:
                    both = line, float(line[c.metric]), float(other.lines[i][c.metric])
                    found.setdefault(_range(wer, RATES, names), []).append(both)
    bins = []
    for name in names:
        if some := found.get(name):
            units = Units(c.drawn, tuple((c.groups[str(line["id"])],) for line, _, _ in some))
            a, b = [x for _, x, _ in some], [y for _, _, y in some]
            wer = sum(line["passage_errors"] for line, _, _ in some) / sum(line["passage_words"] for line, _, _ in some)
            first, second = (mean_interval(x, units, 0, RESAMPLES) for x in (a, b))
            bins.append(Bin(name, wer, first, second, paired_difference(a, b, units, 0, RESAMPLES)))
    return bins


def _range(value: float, edges: Sequence[float], names: Sequence[str]) -> str:
    return names[min(sum(value >= edge for edge in edges), len(names)) - 1]


def _percent(low: float, high: float) -> str:
    return f"{100 * low:.0f}-{100 * high:.0f} %" if high < 1e9 else f"over {100 * low:.0f} %"


# ---- words


def family_name(family: str) -> str:
    """What the word error rate is varied by."""
    return {"simulated": "simulated errors", "recognisers": "recognisers, clean", "all": "all of these"}.get(family, family)


def crossing_text(x: Crossing) -> str:
    """Where the lines cross, or that they do not."""
    if x.at is None:
        if x.ahead == "neither":
            return f"{NEVER}: they are equal throughout"
        ahead, other = (x.textless, "the cascade") if x.ahead == "textless" else ("the cascade", x.textless)
        level = any(p.cascade.value == p.textless.value for p in x.points)
        return f"{NEVER}: {other} is nowhere ahead" if level else f"{NEVER}: {ahead} is ahead throughout"
    if x.share is None:
        return f"{100 * x.at:.1f} %"
    low = "below the range" if x.low is None else f"{100 * x.low:.1f}"
    high = "above the range" if x.high is None else f"{100 * x.high:.1f}"
    return f"{100 * x.at:.1f} % [{low}, {high}]"


def synthetic(c: Compared) -> str:
    """What tables of a corpus say where a synthesiser spoke some of it."""
    return synthetic_sentence(c.card.get("synthetic") or "")


def other_noise(tests: Sequence[PairedTest]) -> str:
    """One line that names the pairs which did not get the same audio, and why; "" where all did."""
    places: dict[str, list[str]] = {}
    for t in tests:
        if t.seeds:
            pair = f"{t.first} (seed {t.seeds[0]}) and {t.second} (seed {t.seeds[1]})"
            places.setdefault(pair, []).append(condition_name(*t.condition))
    named = "; ".join(f"{pair} in {', '.join(some)}" for pair, some in places.items())
    return f"Not the same audio, for noise and rooms were drawn with different seeds: {named}." if named else ""


def _name(metric: str) -> str:
    return METRIC_NAMES.get(metric, metric.replace("_", " "))


# ---- tables


def tables_of(found: Compilation) -> list[Table]:
    """Scores, word errors, paired differences, crossings, scores by word error rate, missed answers; none without rows."""
    c = found.compared
    units = counted_range([next(iter(c.estimates.values())).groups], c.drawn)  # "8 voices": what all intervals of a corpus draw

    def without_interval(some: Iterable[Interval]) -> str:
        return "" if all(v.estimated for v in some) else f" One {c.drawn} has no interval."

    tables, rows = [], list[tuple[Any, ...]]()
    for metric in (c.metric, WER):
        conditions = [w for w in c.conditions if any(c.get(s, w, metric) for s in c.systems)]
        estimates = {s: [c.get(s, w, metric) for w in conditions] for s in c.systems}
        rows = [
            (s, *(interval_text(e.interval.percent if e else None) for e in some)) for s, some in estimates.items() if any(some)
        ]
        n = next(iter(c.estimates.values())).n
        lone = without_interval(e.interval for some in estimates.values() for e in some if e)
        items = f"the passages of {n} questions" if metric == WER else f"{n} questions"
        aside = f" Left out, for they have none: {', '.join(c.aside)}." if c.aside and metric == c.metric else ""
        note = f"Percent with 95 % intervals, which draw {units}; {items}.{lone}{aside}"
        title = f"{c.corpus}: {c.errors if metric == WER else _name(metric)}"
        tables.append(Table(title, ("system", *(condition_name(*w) for w in conditions)), tuple(rows), note))

    tests = [
        (
            t.first,
            t.second,
            condition_name(*t.condition),
            interval_text(t.difference.interval, "+"),
            f"{t.difference.p_value:.4f}",
            f"{t.p_holm:.4f}",
        )
        for t in found.tests
    ]
    note = (
        f"Points of the first over the second on the same questions, with 95 % intervals; paired bootstrap that draws "
        f"{units}, two-sided; p (Holm) is adjusted over all tests of this comparison."
        f"{without_interval(t.difference.interval for t in found.tests)}"
    )
    if tests and (family := found.tests[0].family) * (least := 2.0 ** (1 - found.tests[0].difference.groups)) > 0.05:
        after = f", nor below {min(1.0, family * least):.2g} after Holm over {family} tests" if family > 1 else ""
        note += f" With {units} no p can be below {least:.2g}{after}."
    columns = ("first", "second", "condition", "difference", "p", "p (Holm)")
    title = f"{c.corpus}: paired differences, {_name(c.metric)}"
    tables.append(Table(title, columns, tuple(tests), f"{note} {other_noise(found.tests)}".strip()))

    crossed = []
    for x in found.crossings:
        measured = f"{100 * x.low_wer:.1f}-{100 * x.high_wer:.1f} %"
        share = "–" if x.share is None else f"{100 * x.share:.0f} %"
        crossed.append((x.textless, family_name(x.family), len(x.points), measured, crossing_text(x), share))
    note = (
        f"The {c.errors} at which the cascade falls to the system without a transcript, on a fitted curve that never "
        "rises, with the middle 95 % of the resamples; the last column says in how many the lines cross in the range measured."
    )
    columns = (
        "without a transcript",
        f"{c.errors} is varied by",
        "points",
        f"{c.errors} measured",
        "they cross at",
        "in resamples",
    )
    tables.append(Table(f"{c.corpus}: where the lines cross", columns, tuple(crossed), note))

    for (textless, family_of, what), bins in found.bins.items():
        rows = [
            (b.name, b.cascade.n, f"{100 * b.wer:.1f}")
            + (interval_text(b.cascade.percent), interval_text(b.textless.percent), interval_text(b.difference.percent, "+"))
            for b in bins
        ]
        head = (f"{c.errors} of the {what}", "questions", f"{c.errors} of these passages (%)", family_of, textless, "difference")
        note = f"All conditions pooled; every {what} counts in the range of its own {c.errors}, a question once a condition."
        note += without_interval(b.difference for b in bins)
        title = f"{c.corpus}: {_name(c.metric)} by the {c.errors} of the {what}, {family_of} and {textless}"
        tables.append(Table(title, head, tuple(rows), note))

    for a in found.analyses:
        systems = [s for s in c.systems if any(s in b.scores for b in a.buckets)]
        rows = [(b.name, b.n, *(interval_text(b.scores[s].percent if s in b.scores else None) for s in systems)) for b in a.buckets]
        note = f"{_name(c.metric)} in percent with 95 % intervals, which draw {c.drawn}s, {condition_name(*a.condition)}."
        note += without_interval(v for b in a.buckets for v in b.scores.values())
        title = f"{c.corpus}: by {a.by} ({a.recogniser})" if a.recogniser else f"{c.corpus}: by {a.by}"
        tables.append(Table(title, (a.by, "n", *systems), tuple(rows), note))
    return [replace(t, note=f"{t.note} {synthetic(c)}".strip()) for t in tables if t.rows]


# ---- compare.json


def as_json(found: Compilation) -> dict[str, Any]:
    """Fractions, not percent; differences in points. low and high are null where there is one voice or passage alone."""
    c = found.compared

    def plain(v: Interval) -> dict[str, Any]:
        low, high = v.ends
        return {name: value for name, value in (asdict(v) | {"low": low, "high": high}).items() if name != "estimated"}

    return {name: c.card.get(name) for name in ("corpus", "split", "data", "synthetic", "languages")} | {
        "metric": c.metric,
        "error_rate": c.errors,
        "drawn": c.drawn,
        "cells": [
            {"system": s, "condition": condition_name(*w), "metric": metric, **plain(e.interval)}
            for (s, w, metric), e in c.estimates.items()
        ],
        "tests": [
            {"first": t.first, "second": t.second, "condition": condition_name(*t.condition), **plain(t.difference.interval)}
            | {"p_value": t.difference.p_value, "p_holm": t.p_holm, "seeds": t.seeds}
            for t in found.tests
        ],
        "other_noise": other_noise(found.tests),
        "crossings": [
            {
                "textless": x.textless,
                "family": x.family,
                "at": x.at,
                "low": None if x.share is None else x.low,
                "high": None if x.share is None else x.high,
                "share": x.share,
                "text": crossing_text(x),
                "wer_measured": [x.low_wer, x.high_wer],
                "points": [
                    {"system": p.system, "condition": condition_name(*p.condition)}
                    | {"wer": p.wer.value, "cascade": p.cascade.value, "textless": p.textless.value}
                    for p in x.points
                ],
            }
            for x in found.crossings
        ],
        "by_own_wer": [
            {
                "textless": textless,
                "family": family,
                "of": what,
                "bins": [
                    {"name": b.name, "wer": b.wer}
                    | {part: plain(getattr(b, part)) for part in ("cascade", "textless", "difference")}
                    for b in bins
                ],
            }
            for (textless, family, what), bins in found.bins.items()
        ],
        "errors": [
            {
                "by": a.by,
                "condition": condition_name(*a.condition),
                "recogniser": a.recogniser,
                "buckets": [{"name": b.name, "n": b.n, "scores": {s: plain(v) for s, v in b.scores.items()}} for b in a.buckets],
            }
            for a in found.analyses
        ],
    }
