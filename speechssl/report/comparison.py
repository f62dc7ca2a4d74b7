"""The page of a comparison: scores, where the lines cross, paired differences, and which answers are missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from speechssl.evaluation.comparison import WER, Compared
from speechssl.evaluation.comparison_tables import Compilation, Printed, family_name, synthetic, tables_of, told
from speechssl.evaluation.results import Row
from speechssl.report.comparison_figures import crossing_figure
from speechssl.report.page import Figure, Grid, Table, grid_of, write_parts
from speechssl.report.series import arrange, metric_name

TITLE = "Systems beside each other"
CAPTION = (
    "Each point is a cascade: along, how often its recogniser errs; up, what is left of the answer. Lines are fitted and never "
    "rise. The system without a transcript has a level line beside errors in clean speech, and in noise its own score in the same "
    "noise, joined by dashes. At the foot: where a line falls below it, with the interval."
)


def write_page(out: Path, found: Sequence[Compilation], further: Sequence[Printed], provenance: Mapping[str, str]) -> None:
    """further: tables to stand at the end. Written whole or not at all; the same input gives the same bytes."""
    grids = [grid for c in found for grid in _grids(c.compared)]
    tables = [t for c in found for t in tables_of(c) if not _is_grid(c.compared, t)]
    write_parts(
        out,
        title=TITLE,
        summary=" ".join(_summary(c) for c in found),
        provenance=dict(provenance) | {f"Corpus {c.compared.corpus}": _about(c.compared) for c in found},
        grids=grids,
        figures=[figure for number, c in enumerate(found) for figure in _figures(c, number)],
        tables=[Table(t.title, t.columns, t.rows, t.note) for t in (*tables, *further)],
        synthetic=" ".join(dict.fromkeys(note for c in found if (note := synthetic(c.compared)))),
    )


def _is_grid(c: Compared, t: Printed) -> bool:
    return t.title in [f"{c.corpus}: {metric_name(metric)}" for metric in (c.metric, c.errors.lower())]


def rows_of(c: Compared) -> list[Row]:
    """The estimates as rows of results, percent."""
    rows = []
    for (system, (condition, snr), metric), e in c.estimates.items():
        v, name = e.interval.percent, c.errors.lower() if metric == WER else metric
        rows.append(Row(system, "", condition, snr, name, v.value, *v.ends, v.n, 0, "", v.drawn, v.groups))
    return rows


def _grids(c: Compared) -> list[Grid]:
    results, order = arrange(rows_of(c)), {s: i for i, s in enumerate(c.systems)}
    found = [grid_of(results, metric) for metric in results.metrics]
    grids = [replace(g, name=f"{g.name}, {c.corpus}", note=f"{g.note} {synthetic(c)}".strip()) for g in found]
    return [replace(g, lines=tuple(sorted(g.lines, key=lambda line: order[line[0].system]))) for g in grids]


def _figures(c: Compilation, number: int) -> list[Figure]:
    figures = []
    for place, textless in enumerate(c.compared.textless):
        crossings = [x for x in c.crossings if x.textless == textless]
        drawing = crossing_figure(crossings, c.compared.metric, c.compared.errors, f"cross-{number}-{place}") if crossings else None
        if drawing:
            title = (
                f"{metric_name(c.compared.metric)} against the {c.compared.errors}, {textless} and cascades, {c.compared.corpus}"
            )
            figures.append(Figure(title, CAPTION, drawing))
    return figures


def _about(c: Compared) -> str:
    n = next(iter(c.estimates.values())).n
    passages = len({line["passage"] for line in c.scores[0].lines.values()})
    made = c.card.get("synthetic") or "speech or text as the corpus has it"
    return f"{counted(n, 'question')} about {counted(passages, 'passage')}, {c.card.get('data')}; {made}"


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _summary(c: Compilation) -> str:
    """Two sentences at most: where the lines cross, and how many of the tests say something."""
    parts = []
    by_family = {x.family: x for x in reversed(c.crossings)}
    if x := by_family.get("simulated") or by_family.get("all") or next(iter(by_family.values()), None):
        where = told(x) if x.at is None else f"the cascade falls to {x.textless} at a {c.compared.errors} of {told(x)}"
        parts.append(f"{c.compared.corpus}, {c.compared.errors} varied by {family_name(x.family)}: {where}.")
    if c.tests:
        sure = sum(t.p_holm < 0.05 for t in c.tests)
        parts.append(f"{c.compared.corpus}: {sure} of {len(c.tests)} paired differences have p < 0.05 (after Holm).")
    return " ".join(parts)
