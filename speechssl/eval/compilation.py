"""Compile what was compared on one corpus, as tables (`tables_of`) and compare.json (`as_json`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from speechssl.eval.compare import WER, Compared, PairedTest
from speechssl.eval.crossings import NEAR, Crossing, crossing_text, crossings, family_name
from speechssl.results import (
    UNITS_FROM,
    Table,
    condition_name,
    describe_range,
    interval_text,
    metric_name,
)
from speechssl.stats import Interval


class Compilation(NamedTuple):
    """A compilation has all results of one corpus."""

    compared: Compared
    tests: Sequence[PairedTest]
    crossings: Sequence[Crossing]


def compile_corpus(c: Compared, tests: Sequence[PairedTest]) -> Compilation:
    """Compile the results of one corpus."""
    return Compilation(c, tests, crossings(c))


# ---- tables


def tables_of(compilation: Compilation) -> list[Table]:
    """Make the tables: scores, word errors, paired differences, crossings; none without rows."""
    compared = compilation.compared
    tables = [
        score_table(compared, compared.metric),
        score_table(compared, WER),
        paired_table(compilation),
        crossing_table(compilation),
    ]
    about = " ".join(filter(None, [compared.synthetic, compared.seen]))
    return [
        replace(t, title=f"{compared.corpus}: {t.title}", note=f"{t.note} {about}".strip())
        for t in tables
        if t.rows
    ]


def score_table(compared: Compared, metric: str) -> Table:
    """Make a table: a line a system, a column a condition. metric: that of the comparison, or
    WER."""
    found = [key for key in compared.estimates if key[2] == metric]
    systems = [s for s in compared.systems if s in {system for system, _, _ in found}]
    conditions = [c for c in compared.conditions if c in {where for _, where, _ in found}]
    rows = []
    for system in systems:
        row = [system]
        for condition in conditions:
            estimate = compared.get(system, condition, metric)
            row.append(interval_text(estimate.interval.percent if estimate else None))
        rows.append(tuple(row))
    n = next(iter(compared.estimates.values())).n
    items, name, aside = f"{n} questions", metric_name(metric), ""
    if metric == WER:
        items, name = f"the passages of {n} questions", compared.errors
    elif compared.aside:
        aside = f" Left out, for they have none: {', '.join(compared.aside)}."
    note = f"Percent with 95 % intervals, which draw {_drawn(compared, metric)}; {items}.{aside}"
    return Table(name, ("system", *(condition_name(*c) for c in conditions)), tuple(rows), note)


def paired_table(compilation: Compilation) -> Table:
    """Make a table: a line a test."""
    tests, drawn = compilation.tests, _drawn(compilation.compared)
    rows = []
    for test in tests:
        difference = interval_text(test.difference.interval, "+")
        p_values = f"{test.difference.p_value:.4f}", f"{test.p_holm:.4f}"
        rows.append(
            (test.first, test.second, condition_name(*test.condition), difference, *p_values)
        )
    note = (
        "Points of the first over the second on the same questions, with 95 % intervals; paired "
        f"bootstrap that draws {drawn}; p by changing their signs, two-sided; p (Holm) is adjusted "
        "over all tests of this comparison."
    )
    if tests:  # so few groups may be drawn that nothing could be significant
        family, least = tests[0].family, 2.0 ** (1 - tests[0].difference.groups)
        if family * least > 0.05:
            after = f", nor below {min(1.0, family * least):.2g} after Holm over {family} tests"
            note += f" With {drawn} no p can be below {least:.2g}{after if family > 1 else ''}."
    columns = ("first", "second", "condition", "difference", "p", "p (Holm)")
    title = f"paired differences, {metric_name(compilation.compared.metric)}"
    return Table(title, columns, tuple(rows), note)


def crossing_table(compilation: Compilation) -> Table:
    """Make a table: a line a family of points."""
    errors, rows = compilation.compared.errors, []
    for x in compilation.crossings:
        measured = f"{100 * x.low_wer:.1f}-{100 * x.high_wer:.1f} %"
        rows.append((x.textless, family_name(x.family), len(x.points), measured, crossing_text(x)))
    note = (
        f"The {errors} at which the cascade falls to the system without a transcript, on a "
        "fitted curve that never rises, with the middle 95 % of the resamples; given where points "
        f"were measured within {100 * NEAR:.0f} points of {errors} on both sides. Who is ahead is "
        f"told from the points. Without a transcript: of what is asked about; {UNITS_FROM}."
    )
    varied = (f"{errors} is varied by", "points", f"{errors} measured")
    columns = ("without a transcript", *varied, "they cross at")
    return Table("where the lines cross", columns, tuple(rows), note)


def _drawn(compared: Compared, metric: str = "") -> str:
    """ "8 voices × askers": what the intervals of a metric draw."""
    for (_, _, name), estimate in compared.estimates.items():
        if name == (metric or compared.metric):
            return describe_range([estimate.groups], estimate.unit)
    return ""


# ---- compare.json


def as_json(compilation: Compilation) -> dict[str, Any]:
    """Return JSON. Numbers are fractions, not percent; differences in points. low and high are null
    where too few voices or passages are drawn."""
    compared = compilation.compared
    cells = []
    for (system, condition, metric), estimate in compared.estimates.items():
        cell = {"system": system, "condition": condition_name(*condition), "metric": metric}
        cells.append(cell | _plain(estimate.interval))
    facts = ("corpus", "split", "data", "synthetic", "languages")
    return {name: compared.card.get(name) for name in facts} | {
        "seen": {s.system: s.card["seen"] for s in compared.scores if s.card.get("seen")},
        "metric": compared.metric,
        "error_rate": compared.errors,
        "drawn": compared.drawn.text,
        "cells": cells,
        "tests": list(map(_test_as_json, compilation.tests)),
        "crossings": list(map(_crossing_as_json, compilation.crossings)),
    }


def _test_as_json(test: PairedTest) -> dict[str, Any]:
    return {
        "first": test.first,
        "second": test.second,
        "condition": condition_name(*test.condition),
        **_plain(test.difference.interval),
        "p_value": test.difference.p_value,
        "p_holm": test.p_holm,
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
        "between": x.between,
        "text": crossing_text(x),
        "wer_measured": [x.low_wer, x.high_wer],
        "points": points,
    }


def _plain(interval: Interval) -> dict[str, Any]:
    values: Mapping[str, Any] = asdict(interval)
    low, high = interval.ends
    return {k: x for k, x in values.items() if k != "estimated"} | {"low": low, "high": high}
