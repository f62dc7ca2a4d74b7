"""Compile what was compared on one corpus, as tables (`tables_of`) and compare.json (`as_json`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from speechssl.eval.compare import CLEAN, WER, Compared, PairedTest
from speechssl.eval.crossings import NEAR, Crossing, crossing_text, crossings, families, family_name
from speechssl.eval.missed import Analysis, Bin, QuestionBucket, analyses, by_own_wer
from speechssl.results import (
    UNITS_FROM,
    Table,
    condition_name,
    describe_range,
    interval_text,
    metric_name,
)
from speechssl.stats import FEWEST as FEWEST_GROUPS
from speechssl.stats import Interval


class Compilation(NamedTuple):
    """A compilation has all results of one corpus. bins: by system without a transcript, family,
    and "passage" or "sentence"."""

    compared: Compared
    tests: Sequence[PairedTest]
    crossings: Sequence[Crossing]
    bins: Mapping[tuple[str, str, str], Sequence[Bin]]
    analyses: Sequence[Analysis]


def compile_corpus(c: Compared, tests: Sequence[PairedTest]) -> Compilation:
    """Compile the results of one corpus. Missed answers are those in clean speech, or else in the
    first condition."""
    bins = {}
    for textless in c.textless:
        for family in ["simulated"] * ("simulated" in families(c, textless)) + c.recognisers:
            for what in ("passage", "sentence"):
                if len(of_family := by_own_wer(c, textless, family, what == "sentence")) > 1:
                    bins[textless, family, what] = of_family
    shown = CLEAN if CLEAN in c.conditions else c.conditions[0]
    return Compilation(c, tests, crossings(c), bins, analyses(c, shown))


# ---- tables


def tables_of(compilation: Compilation) -> list[Table]:
    """Make the tables: scores, word errors, paired differences, crossings, scores by word error
    rate, missed answers; none without rows."""
    compared = compilation.compared
    tables = [
        score_table(compared, compared.metric),
        score_table(compared, WER),
        paired_table(compilation),
        crossing_table(compilation),
        *(binned_table(compared, *key, bins) for key, bins in compilation.bins.items()),
        *(analysis_table(compared, analysis) for analysis in compilation.analyses),
    ]
    corpus, synthetic = compared.corpus, " ".join(filter(None, [compared.synthetic, compared.seen]))
    return [
        replace(t, title=f"{corpus}: {t.title}", note=f"{t.note} {synthetic}".strip())
        for t in tables
        if t.rows
    ]


def score_table(compared: Compared, metric: str) -> Table:
    """Make a table: a line a system, a column a condition. metric: that of the comparison, or
    WER."""
    conditions = [
        c for c in compared.conditions if any(compared.get(s, c, metric) for s in compared.systems)
    ]
    rows, intervals = [], []
    for system in compared.systems:
        estimates = [compared.get(system, condition, metric) for condition in conditions]
        if any(estimates):
            rows.append(
                (system, *(interval_text(e.interval.percent if e else None) for e in estimates))
            )
            intervals += [e.interval for e in estimates if e]
    n = next(iter(compared.estimates.values())).n
    items, name, aside = f"{n} questions", metric_name(metric), ""
    if metric == WER:
        items, name = f"the passages of {n} questions", compared.errors
    elif compared.aside:
        aside = f" Left out, for they have none: {', '.join(compared.aside)}."
    lone = _without_interval(compared, intervals)
    note = (
        f"Percent with 95 % intervals, which draw {_drawn(compared, metric)}; {items}.{lone}{aside}"
    )
    return Table(name, ("system", *(condition_name(*c) for c in conditions)), tuple(rows), note)


def paired_table(compilation: Compilation) -> Table:
    """Make a table: a line a test."""
    compared, tests, drawn = compilation.compared, compilation.tests, _drawn(compilation.compared)
    rows = []
    for test in tests:
        difference = interval_text(test.difference.interval, "+")
        p_values = f"{test.difference.p_value:.4f}", f"{test.p_holm:.4f}"
        rows.append(
            (test.first, test.second, condition_name(*test.condition), difference, *p_values)
        )
    note = (
        "Points of the first over the second on the same questions, with 95 % intervals; paired "
        "bootstrap that draws "
        f"{drawn}; p by changing their signs, two-sided; p (Holm) is adjusted over all tests of "
        "this comparison."
        f"{_without_interval(compared, (t.difference.interval for t in tests))}"
    )
    if tests:  # so few groups may be drawn that nothing could be significant
        family, least = tests[0].family, 2.0 ** (1 - tests[0].difference.groups)
        if family * least > 0.05:
            after = (
                (f", nor below {min(1.0, family * least):.2g} after Holm over {family} tests")
                if family > 1
                else ""
            )
            note += f" With {drawn} no p can be below {least:.2g}{after}."
    columns = ("first", "second", "condition", "difference", "p", "p (Holm)")
    return Table(
        f"paired differences, {metric_name(compared.metric)}",
        columns,
        tuple(rows),
        f"{note} {other_noise(tests)}".strip(),
    )


def crossing_table(compilation: Compilation) -> Table:
    """Make a table: a line a family of points."""
    errors, rows = compilation.compared.errors, []
    for x in compilation.crossings:
        measured = f"{100 * x.low_wer:.1f}-{100 * x.high_wer:.1f} %"
        rows.append((x.textless, family_name(x.family), len(x.points), measured, crossing_text(x)))
    note = (
        f"The {errors} at which the cascade falls to the system without a transcript, on a "
        "fitted curve that never rises, with the "
        f"middle 95 % of the resamples; given where points were measured within {100 * NEAR:.0f} "
        f"points of {errors} on both sides. "
        "Who is ahead is told from the points. Without a transcript: of what is asked about; "
        f"{UNITS_FROM}."
    )
    columns = (
        "without a transcript",
        f"{errors} is varied by",
        "points",
        f"{errors} measured",
        "they cross at",
    )
    return Table("where the lines cross", columns, tuple(rows), note)


def binned_table(
    compared: Compared, textless: str, family: str, what: str, bins: Sequence[Bin]
) -> Table:
    """Make a table: a line a range of error rates. what: "passage" or "sentence"."""
    errors, rows = compared.errors, []
    for b in bins:
        scores = (
            interval_text(b.cascade.percent),
            interval_text(b.textless.percent),
            interval_text(b.difference.percent, "+"),
        )
        rows.append((b.name, b.cascade.n, f"{100 * b.wer:.1f}", *scores))
    title = f"{metric_name(compared.metric)} by the {errors} of the {what}, {family} and {textless}"
    columns = (
        f"{errors} of the {what}",
        "questions",
        f"{errors} of these passages (%)",
        family,
        textless,
        "difference",
    )
    note = (
        f"All conditions pooled; every {what} counts in the range of its own {errors}, a "
        "question once a condition."
    )
    return Table(
        title,
        columns,
        tuple(rows),
        note + _without_interval(compared, (b.difference for b in bins)),
    )


def analysis_table(compared: Compared, analysis: Analysis) -> Table:
    """Make a table: a line a kind of question, a column a system."""
    systems = [
        s for s in compared.systems if any(s in bucket.scores for bucket in analysis.buckets)
    ]
    rows = []
    for bucket in analysis.buckets:
        scores = [bucket.scores.get(system) for system in systems]
        rows.append(
            (
                bucket.name,
                bucket.n,
                *(interval_text(score.percent if score else None) for score in scores),
            )
        )
    note = (
        f"{metric_name(compared.metric)} in percent with 95 % intervals, which draw "
        f"{_drawn(compared)}, "
        f"{condition_name(*analysis.condition)}."
    )
    note += _without_interval(
        compared, (score for bucket in analysis.buckets for score in bucket.scores.values())
    )
    title = f"by {analysis.by}" + (f" ({analysis.recogniser})" if analysis.recogniser else "")
    return Table(title, (analysis.by, "n", *systems), tuple(rows), note)


def _drawn(compared: Compared, metric: str = "") -> str:
    """ "8 voices × askers": what the intervals of a metric draw."""
    of_metric = [
        e for (_, _, name), e in compared.estimates.items() if name == (metric or compared.metric)
    ]
    return describe_range([of_metric[0].groups], of_metric[0].unit) if of_metric else ""


def _without_interval(compared: Compared, intervals: Iterable[Interval]) -> str:
    """Write a sentence where one has no interval."""
    fewest = describe_range([FEWEST_GROUPS], compared.drawn.text)
    return (
        ""
        if all(interval.estimated for interval in intervals)
        else (f" Fewer than {fewest} have no interval.")
    )


def other_noise(tests: Sequence[PairedTest]) -> str:
    """Write one line that names the pairs which did not get the same audio, and why; "" where all
    did."""
    places: dict[str, list[str]] = {}
    for t in tests:
        if t.seeds:
            pair = f"{t.first} (seed {t.seeds[0]}) and {t.second} (seed {t.seeds[1]})"
            places.setdefault(pair, []).append(condition_name(*t.condition))
    texts = "; ".join(f"{pair} in {', '.join(names)}" for pair, names in places.items())
    return (
        (f"Not the same audio, for noise and rooms were drawn with different seeds: {texts}.")
        if texts
        else ""
    )


# ---- compare.json


def as_json(compilation: Compilation) -> dict[str, Any]:
    """Return JSON. Numbers are fractions, not percent; differences in points. low and high are null
    where too few voices or passages are drawn."""
    compared = compilation.compared
    cells = []
    for (system, condition, metric), estimate in compared.estimates.items():
        cell = {"system": system, "condition": condition_name(*condition), "metric": metric}
        cells.append(cell | _plain(estimate.interval))
    by_own_wer = [
        {"textless": textless, "family": family, "of": what, "bins": list(map(_plain, bins))}
        for (textless, family, what), bins in compilation.bins.items()
    ]
    errors = []
    for analysis in compilation.analyses:
        condition_text = condition_name(*analysis.condition)
        buckets = list(map(_plain, analysis.buckets))
        errors.append(analysis._asdict() | {"condition": condition_text, "buckets": buckets})
    facts = ("corpus", "split", "data", "synthetic", "languages")
    return {name: compared.card.get(name) for name in facts} | {
        "seen": {s.system: s.card["seen"] for s in compared.scores if s.card.get("seen")},
        "metric": compared.metric,
        "error_rate": compared.errors,
        "drawn": compared.drawn.text,
        "cells": cells,
        "tests": list(map(_test_as_json, compilation.tests)),
        "other_noise": other_noise(compilation.tests),
        "crossings": list(map(_crossing_as_json, compilation.crossings)),
        "by_own_wer": by_own_wer,
        "errors": errors,
    }


def _test_as_json(test: PairedTest) -> dict[str, Any]:
    return {
        "first": test.first,
        "second": test.second,
        "condition": condition_name(*test.condition),
        **_plain(test.difference.interval),
        "p_value": test.difference.p_value,
        "p_holm": test.p_holm,
        "seeds": test.seeds,
    }


def _crossing_as_json(x: Crossing) -> dict[str, Any]:
    points = []
    for p in x.points:
        rates = {"wer": p.wer.value, "cascade": p.cascade.value, "textless": p.textless.value}
        points.append({"system": p.system, "condition": condition_name(*p.condition)} | rates)
    return {
        "textless": x.textless,
        "family": x.family,
        "at": x.at,
        "low": None if x.share is None else x.low,
        "high": None if x.share is None else x.high,
        "share": x.share,
        "ahead": x.ahead,
        "between": x.between,
        "text": crossing_text(x),
        "wer_measured": [x.low_wer, x.high_wer],
        "points": points,
    }


def _plain(value: Any) -> Any:
    """Return intervals, bins and buckets as dictionaries."""
    if isinstance(value, Interval):
        values = asdict(value) | dict(zip(("low", "high"), value.ends, strict=True))
        del values["estimated"]
        return values
    if isinstance(value, (Bin, QuestionBucket)):
        return _plain(value._asdict())
    return {name: _plain(x) for name, x in value.items()} if isinstance(value, dict) else value
