"""The section of question answering on a page: a paragraph from the numbers, tables, figures, and examples to listen to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from speechssl.errors import InputError
from speechssl.eval.tables import listed
from speechssl.report.figures import CLEAN, METRICS, Cell, Condition, Results, Series, decibels, metric_name
from speechssl.report.listening import Example, lanes_of
from speechssl.report.page import Figure, Section, grid_of
from speechssl.report.qa_figures import Breakdown, bars, score_against_snr, score_against_wer
from speechssl.results import LOWER_IS_BETTER, drawn_sentence

MOST = 4  # systems in one sentence


def qa_section(results: Results, examples: Sequence[Example], breakdowns: Sequence[Breakdown], synthetic: str = "") -> Section:
    """synthetic: what a synthesiser spoke of the data; stands at every table. Raises InputError when an example has no length."""
    for example in examples:
        if not example.seconds > 0:
            raise InputError(f"the example {example.id} lasts {example.seconds} s; give the length of its passage in seconds")
    grids = [grid_of(results, metric) for metric in results.metrics]
    drawn = drawn_sentence(("", cell.drawn, cell.groups) for (_, metric, _), cell in results.cells.items() if metric == "ff1")
    snr = f"Error bars: 95 % intervals. {drawn} Points of one condition stand side by side so that the bars can be told apart."
    crossing = (
        "Each point is one condition: along, what the recogniser of the cascade does to the words; up, what is left of "
        "the answer. A dotted upright joins the systems in one condition. Hollow: a condition outside the noise series."
    )
    what = "as written" if Condition("written") in results.conditions("ff1") else "clean speech"
    figures = [
        ("FF1 as the noise grows", snr, score_against_snr(results)),
        ("FF1 against the recognition errors of the cascade", crossing, score_against_wer(results)),
        (f"FF1 by the length of the answer, {what}", f"Dark lines: 95 % intervals. {drawn}".strip(), bars(results, breakdowns)),
    ]
    return Section(
        summary=summarise(results),
        grids=[replace(grid, note=f"{grid.note} {synthetic}".strip()) for grid in grids],
        figures=[Figure(title, caption, drawing) for title, caption, drawing in figures if drawing],
        examples=[(example, lanes_of(example, results)) for example in examples],
    )


def summarise(results: Results, metric: str = "ff1") -> str:
    """A few plain sentences about one metric, or about the first there is where it is missing. Empty without any."""
    if metric not in results.metrics:
        metric = next(iter(results.metrics), "")
    conditions = results.conditions(metric)
    if not conditions:
        return ""
    sentences = [_scores(results, metric, conditions[0])]
    if len(conditions) > 1:  # the least signal-to-noise ratio, else the last condition
        noisy = [c for c in conditions[1:] if c.snr_db is not None]
        hardest = min(noisy, key=lambda c: c.snr_db or 0.0, default=conditions[-1])
        sentences += [
            _scores(results, metric, hardest),
            _leader(results, metric, conditions[0], hardest),
            _errors(results, hardest),
        ]
    return " ".join(filter(None, sentences))


def _ranked(results: Results, metric: str, condition: Condition) -> list[tuple[Series, Cell]]:
    found = [(s, cell) for s in results.series if (cell := results.get(s, metric, condition))]
    return sorted(found, key=lambda pair: pair[1].value, reverse=metric not in LOWER_IS_BETTER)


def _scores(results: Results, metric: str, condition: Condition) -> str:
    ranked, parts = _ranked(results, metric, condition), []
    for i, (series, cell) in enumerate(ranked[:MOST]):
        interval = "" if cell.low is None or cell.high is None else f" [{cell.low:.1f}, {cell.high:.1f}]"
        reaches = f"reaches {metric_name(metric)} " if not i else ""
        parts.append(f"{series.label} {reaches}{cell.value:.1f}{interval}")
    more = f" ({len(ranked) - MOST} more in the table)" if len(ranked) > MOST else ""
    where = _where(condition)
    return f"{where[0].upper()}{where[1:]} {listed(parts)}{more}."


def _leader(results: Results, metric: str, easy: Condition, hard: Condition) -> str:
    """Who leads at either end, and whether the intervals of the first two at the hard end overlap."""
    before, after = _ranked(results, metric, easy), _ranked(results, metric, hard)
    if len(before) < 2 or len(after) < 2:
        return ""
    (leader, a), (_, b) = after[:2]
    overlap = None not in (a.low, a.high, b.low, b.high) and not (a.low > b.high or b.low > a.high)  # type: ignore[operator]
    sure = ", though the intervals of the first two overlap" if overlap else ""
    if leader == before[0][0]:
        return f"{leader.label} leads at both ends{sure}."
    return f"The order changes on the way: {before[0][0].label} leads {_where(easy)}, {leader.label} {_where(hard)}{sure}."


def _errors(results: Results, hard: Condition) -> str:
    errors = results.recognition
    pairs = [(s, results.get(s, errors, CLEAN), results.get(s, errors, hard)) for s in results.having(errors)]
    parts = [f"from {a.value:.1f} to {b.value:.1f} % for {s.label}" for s, a, b in pairs if a and b]
    return f"The {METRICS[errors][1].removesuffix(' of the transcript')} goes {listed(parts)}." if parts else ""


def _where(condition: Condition) -> str:
    if condition == CLEAN:
        return "in clean speech"
    if condition == Condition("written"):
        return "as written"
    if condition.snr_db is not None:
        return f"in {condition.family.lower()} at {decibels(condition.snr_db)}"
    return f"with {condition.family.lower()}"
