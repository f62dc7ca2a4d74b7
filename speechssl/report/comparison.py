"""Write compare.json, tables.md and a page from the folders of evaluations: `speechssl compare`.

The page has the scores, paired differences, and crossings: the word error rates at which a cascade
falls below a system without a transcript (`eval.crossings`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from speechssl import __version__
from speechssl.artifacts import hold_output, read_json, write_json, write_text
from speechssl.eval.compare import (
    CLEAN,
    WER,
    Comparison,
    PairedTest,
    compare,
    is_reference,
    make_paired_tests,
    read_results,
)
from speechssl.eval.crossings import (
    FAMILIES,
    NEAR,
    Crossing,
    describe_crossing,
    find_crossings,
    fit_falling,
)
from speechssl.report.figures import (
    Drawing,
    add_legend,
    choose_line_style,
    make_axes,
    plot_scores,
    save_svg,
)
from speechssl.report.options import Compare
from speechssl.report.page import Section, write_page
from speechssl.results import (
    MUTED,
    UNITS_FROM,
    Table,
    describe_range,
    format_interval,
    format_markdown,
    make_published_tables,
    name_condition,
    name_metric,
)
from speechssl.stats import FEWEST, Estimate, Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Systems beside each other"
CAPTION = (
    "Each point is a cascade: along, how often its recogniser errs; up, what is left of the "
    "answer. Lines are fitted and never rise. Dotted: where a line falls below the system without "
    "a transcript."
)
LABEL_DISTANCE = 8.0  # points of WER between conditions that both have a label in the figure


class Compilation(NamedTuple):
    """A compilation has the results of a comparison on one corpus."""

    compared: Comparison
    tests: Sequence[PairedTest]
    crossings: Sequence[Crossing]


def compare_systems(o: Compare) -> dict[str, Any]:
    """Compare systems, print the tables, and return the contents of compare.json. Raises InputError
    where `run_comparison` does."""
    with hold_output(o.out):
        print(run_comparison(o))
        return read_json(o.out / "compare.json")


def run_comparison(o: Compare) -> str:
    """Compare, write everything into `o.out`, and return the tables.

    Raises InputError where `read_results`, `compare` or `make_paired_tests` does.
    """
    pairs = []
    for text in o.pairs:
        first, second = text.split(",")
        pairs.append((first, second))
    comparisons = compare(read_results(o.results, o.systems), o.metric, o.common, o.seed)
    tests = make_paired_tests(comparisons, pairs)
    corpora = []
    for c, corpus_tests in zip(comparisons, tests, strict=True):
        corpora.append(Compilation(c, corpus_tests, find_crossings(c)))
    tables = [table for c in corpora for table in make_tables(c)]
    published = make_published_tables([c.corpus for c in comparisons])
    version = f"speechssl {__version__}"
    settings = {
        "results": [str(r) for r in o.results],
        "seed": o.seed,
        "common": o.common,
        "made_by": version,
    }
    write_json(
        o.out / "compare.json", settings | {"corpora": [serialise_compilation(c) for c in corpora]}
    )
    write_text(o.out / "tables.md", format_markdown([*tables, *published]))
    details = {"Results": ", ".join(map(str, o.results)), "Made by": version}
    details |= {f"Corpus {c.corpus}": describe_corpus(c) for c in comparisons}
    sections = [make_corpus_section(c) for c in corpora]
    sections.append(Section("Further tables", tables=published))
    synthetic = " ".join(
        dict.fromkeys(c.synthetic_sentence for c in comparisons if c.synthetic_sentence)
    )
    write_page(o.out / "compare.html", TITLE, sections, details, synthetic)
    return f"{format_markdown(tables)}\n{o.out / 'compare.html'}: open it in a browser"


# ---- tables


def make_tables(compilation: Compilation) -> list[Table]:
    """Make the tables: scores, word errors, paired differences, crossings. Tables without rows are
    left out."""
    compared = compilation.compared
    tables = [
        make_score_table(compared, compared.metric),
        make_score_table(compared, WER),
        make_paired_table(compilation),
        make_crossing_table(compilation),
    ]
    data_note = " ".join(filter(None, [compared.synthetic_sentence, compared.seen_sentence]))
    with_notes = []
    for table in tables:
        if table.rows:
            title = f"{compared.corpus}: {table.title}"
            with_notes.append(replace(table, title=title, note=f"{table.note} {data_note}".strip()))
    return with_notes


def make_score_table(compared: Comparison, metric: str) -> Table:
    """Make a table of scores, with a row for each system and a column for each condition. metric:
    that of the comparison, or WER."""
    cells = [(s, c) for s, c, name in compared.estimates if name == metric]
    measured_systems = {system for system, _ in cells}
    measured_conditions = {condition for _, condition in cells}
    systems = [s for s in compared.systems if s in measured_systems]
    conditions = [c for c in compared.conditions if c in measured_conditions]
    rows = []
    for system in systems:
        row = [system]
        for condition in conditions:
            estimate = compared.find_estimate(system, condition, metric)
            row.append(format_interval(estimate.interval.percent if estimate else None))
        rows.append(tuple(row))
    n = next(iter(compared.estimates.values())).n
    items = f"{n} questions"
    title = name_metric(metric)
    left_out = ""
    if metric == WER:
        items = f"the passages of {n} questions"
        title = compared.error_rate
    elif compared.without_metric:
        left_out = f" Left out, for they have none: {', '.join(compared.without_metric)}."
    units, draws_enough = describe_units(compared, metric)
    note = f"Percent, {items}.{left_out} "
    if draws_enough:
        note += (
            f"95 % intervals draw {units} for all systems together (those of `evaluate` are drawn "
            "anew and may differ in the last digits)."
        )
    else:
        note += f"No intervals: {units}, fewer than {FEWEST}."
    return Table(title, ("system", *(name_condition(*c) for c in conditions)), tuple(rows), note)


def make_paired_table(compilation: Compilation) -> Table:
    """Make a table of paired differences, with a row for each test."""
    compared, tests = compilation.compared, compilation.tests
    units, draws_enough = describe_units(compared, compared.metric)
    rows = []
    for test in tests:
        condition = name_condition(*test.condition)
        difference = format_interval(test.difference.interval, "+")
        p_value, adjusted = f"{test.difference.p_value:.4f}", f"{test.p_holm:.4f}"
        rows.append((test.first, test.second, condition, difference, p_value, adjusted))
    intervals = ""
    if draws_enough:
        intervals = f", with 95 % intervals by a paired bootstrap that draws {units}"
    note = (
        f"Points of the first over the second on the same questions{intervals}; p by changing the "
        f"signs of {units}, two-sided; p (Holm) is adjusted over all tests of this comparison."
    )
    if tests:  # with very few groups nothing can be significant
        family = tests[0].family
        smallest = 2.0 ** (1 - tests[0].difference.groups)  # of a sign test
        if family * smallest > 0.05:
            note += f" With {units} no p can be below {smallest:.2g}"
            if family > 1:
                adjusted_smallest = min(1.0, family * smallest)
                note += f", nor below {adjusted_smallest:.2g} after Holm over {family} tests"
            note += "."
    columns = ("first", "second", "condition", "difference", "p", "p (Holm)")
    title = f"paired differences, {name_metric(compared.metric)}"
    return Table(title, columns, tuple(rows), note)


def make_crossing_table(compilation: Compilation) -> Table:
    """Make a table of crossings, with a row for each family of points."""
    errors = compilation.compared.error_rate
    rows = []
    for x in compilation.crossings:
        measured = f"{100 * x.low_wer:.1f}-{100 * x.high_wer:.1f} %"
        rows.append((x.textless, name_family(x), len(x.points), measured, describe_crossing(x)))
    note = (
        f"The {errors} at which the cascade falls to the system without a transcript, on a "
        "fitted curve that never rises, with the middle 95 % of the resamples; given where points "
        f"were measured within {100 * NEAR:.0f} points of {errors} on both sides. Who is ahead is "
        f"told from the points. Without a transcript: of what is asked about; {UNITS_FROM}."
    )
    columns = (
        "without a transcript",
        f"{errors} is varied by",
        "points",
        f"{errors} measured",
        "they cross at",
    )
    return Table("where the lines cross", columns, tuple(rows), note)


def name_family(crossing: Crossing) -> str:
    """Name the source of the errors of a crossing."""
    return FAMILIES.get(crossing.family, crossing.family)


def describe_units(compared: Comparison, metric: str) -> tuple[str, bool]:
    """Describe the units that all intervals of a metric draw, such as "8 voices × askers", and say
    whether they are enough for intervals."""
    estimates = [e for (_, _, name), e in compared.estimates.items() if name == metric]
    if not estimates:
        return "", True
    units = describe_range([estimates[0].groups], estimates[0].unit)
    return units, all(estimate.groups >= FEWEST for estimate in estimates)


# ---- compare.json


def serialise_compilation(compilation: Compilation) -> dict[str, Any]:
    """Make a corpus's entry of compare.json. Scores are fractions, not percent; differences are in
    points. low and high are null where too few voices or passages are drawn."""
    compared = compilation.compared
    cells = []
    for (system, condition, metric), estimate in compared.estimates.items():
        cell = {"system": system, "condition": name_condition(*condition), "metric": metric}
        cells.append(cell | _serialise_interval(estimate.interval))
    facts = ("corpus", "split", "data", "synthetic", "languages")
    return {name: compared.card.get(name) for name in facts} | {
        "seen": {s.system: s.card["seen"] for s in compared.scores if s.card.get("seen")},
        "metric": compared.metric,
        "error_rate": compared.error_rate,
        "drawn": next(iter(compared.estimates.values())).unit,
        "cells": cells,
        "tests": list(map(_serialise_test, compilation.tests)),
        "crossings": list(map(_serialise_crossing, compilation.crossings)),
    }


def _serialise_test(test: PairedTest) -> dict[str, Any]:
    return {
        "first": test.first,
        "second": test.second,
        "condition": name_condition(*test.condition),
        **_serialise_interval(test.difference.interval),
        "p_value": test.difference.p_value,
        "p_holm": test.p_holm,
    }


def _serialise_crossing(crossing: Crossing) -> dict[str, Any]:
    points = []
    for p in crossing.points:
        rates = {"wer": p.wer.value, "cascade": p.cascade.value, "textless": p.textless.value}
        points.append({"system": p.system, "condition": name_condition(*p.condition)} | rates)
    return {
        "textless": crossing.textless,
        "family": crossing.family,
        "at": crossing.at,
        "low": None if crossing.share is None else crossing.low,
        "high": None if crossing.share is None else crossing.high,
        "share": crossing.share,
        "between": crossing.between,
        "text": describe_crossing(crossing),
        "wer_measured": [crossing.low_wer, crossing.high_wer],
        "points": points,
    }


def _serialise_interval(interval: Interval) -> dict[str, Any]:
    values = asdict(interval)
    del values["estimated"]
    values["low"], values["high"] = interval.ends
    return values


def describe_corpus(compared: Comparison) -> str:
    """Describe the size, the hash and the speech of a corpus."""
    n = next(iter(compared.estimates.values())).n
    passages = len({line["passage"] for line in compared.scores[0].lines.values()})
    size = f"{describe_range([n], 'question')} about {describe_range([passages], 'passage')}"
    speech = compared.card.get("synthetic") or "speech or text as the corpus has it"
    return f"{size}, {compared.card.get('data')}; {speech}"


# ---- the page


def make_corpus_section(compilation: Compilation) -> Section:
    """Make the section of one corpus, with its tables and crossing figures."""
    compared = compilation.compared
    drawings = []
    for textless in compared.textless:
        crossings = [
            x for x in compilation.crossings if x.textless == textless and x.family != "all"
        ]
        drawings.append(draw_crossings(compared, textless, crossings))
    summary = summarise(compilation)
    return Section(compared.corpus, summary, make_tables(compilation), drawings, leading=1)


def summarise(compilation: Compilation) -> str:
    """Describe where a cascade crosses the system without a transcript, and how many of the tests
    are significant."""
    errors, tests = compilation.compared.error_rate, compilation.tests
    parts = []
    if compilation.crossings:
        preferred = {"simulated": 0, "all": 1}
        chosen = min(compilation.crossings, key=lambda x: preferred.get(x.family, 2))
        where = describe_crossing(chosen)
        if chosen.at is not None:  # else the text is a sentence
            where = f"the cascade falls to {chosen.textless} at a {errors} of {where}"
        parts.append(f"{errors} varied by {name_family(chosen)}: {where}.")
    if tests:
        significant = sum(test.p_holm < 0.05 for test in tests)
        parts.append(
            f"{significant} of {len(tests)} paired differences have p < 0.05 (after Holm)."
        )
    return " ".join(parts)


# ---- the figure of crossings: scores against the word error rate, a curve for each family


def draw_crossings(
    compared: Comparison, textless: str, crossings: Sequence[Crossing]
) -> Drawing | None:
    """Draw scores of cascades over their word error rate, and those of a system without a
    transcript, so that one sees at which rate the cascades fall below it (a crossing). crossings:
    those of this system, one for each family of cascades; None is returned where there are none."""
    if not crossings:
        return None
    metric = name_metric(compared.metric)
    with make_axes(1, 1, 3.9) as (figure, ((ax,),)):
        for slot, crossing in enumerate(crossings, 1):
            _plot_textless(ax, crossing)
            _plot_family(ax, crossing, slot)
        ax.set_ylim(bottom=0)
        ax.set_xlim(left=0)
        ax.set_xlabel(f"{compared.error_rate} of the cascade's recogniser (%)")
        ax.set_ylabel(f"{metric} (%)")
        add_legend(figure, columns=2)
        title = f"{metric} against the {compared.error_rate}, {textless} and cascades"
        title += f", {compared.corpus}"
        return Drawing(title, save_svg(figure), CAPTION)


def _plot_family(ax: Axes, crossing: Crossing, slot: int) -> None:
    """Plot the cascades of a family with their fitted curve and their crossing."""
    colour = choose_line_style(slot)["color"]
    label = name_family(crossing)
    if crossing.at is not None:
        label += f": cross at {describe_crossing(crossing)}"
        ax.axvline(100 * crossing.at, color=colour, linewidth=0.9, linestyle=":")
    rates = [100 * p.wer.value for p in crossing.points]
    scores = _tabulate_intervals(p.cascade for p in crossing.points)
    plot_scores(ax, rates, scores, slot, label, linestyle="none")
    ax.plot(rates, fit_falling(scores.value.to_numpy()), color=colour)
    last_labelled = -LABEL_DISTANCE
    for p, rate, score in zip(crossing.points, rates, scores.value, strict=True):
        # points of simulated errors need no label
        if rate - last_labelled >= LABEL_DISTANCE and not is_reference(p.system):
            last_labelled = rate
            style: Any = {"textcoords": "offset points", "fontsize": 7, "color": MUTED}
            ax.annotate(name_condition(*p.condition), (rate, score), (5, 5), **style)


def _plot_textless(ax: Axes, crossing: Crossing) -> None:
    """Plot a system without a transcript: its level where the cascades are in clean speech, else
    its scores in their noise."""
    scores = _tabulate_intervals(p.textless for p in crossing.points)
    if all(p.condition == CLEAN for p in crossing.points):
        colour, level = choose_line_style(0)["color"], scores.iloc[0]
        ax.axhspan(level.low, level.high, color=colour, alpha=0.12)
        ax.axhline(level.value, color=colour, label=crossing.textless)
    else:
        rates = [100 * p.wer.value for p in crossing.points]
        plot_scores(ax, rates, scores, 0, f"{crossing.textless}, in noise", linestyle="--")


def _tabulate_intervals(estimates: Iterable[Estimate]) -> pd.DataFrame:
    """Make a table of intervals in percent."""
    return pd.DataFrame([vars(e.interval.percent) for e in estimates])
