"""One HTML page from sections. It holds all that it shows, figures as SVG and sound as data."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from speechssl.eval.tables import Table
from speechssl.io import write_text
from speechssl.report.figures import METRICS, PALETTE, Cell, Condition, Drawing, Results, Series, decibels, metric_name
from speechssl.report.listening import Example, Lane, Region, data_uri, outline, ticks
from speechssl.results import LOWER_IS_BETTER, Row, decimals, drawn_sentence, unit

COLUMNS = ("system", "encoder", "condition", "snr_db", "metric", "value", "low", "high", "n", "seed", "card", "drawn", "groups")


@dataclass(frozen=True)
class Figure:
    title: str
    caption: str
    drawing: Drawing


@dataclass(frozen=True)
class Grid:
    """One metric as a table: a line a series, a column a condition.

    groups: kind of condition, number of its columns. lines: the flag says that the cell is the best of its column.
    """

    metric: str
    name: str
    about: str
    conditions: tuple[Condition, ...]
    groups: tuple[tuple[str, int], ...]
    lines: tuple[tuple[Series, tuple[tuple[Cell | None, bool], ...]], ...]
    note: str
    decimals: int = 1


@dataclass(frozen=True)
class Section:
    """What one kind of result adds to a page: on it parts of a kind stand together, in the order of the sections."""

    summary: str = ""
    blocks: Sequence[Any] = ()  # tables of SUPERB with heads of two lines, `superb.Block`
    grids: Sequence[Grid] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    examples: Sequence[tuple[Example, Sequence[Lane]]] = ()


def write_page(
    out: Path | str,
    title: str,
    sections: Sequence[Section],
    provenance: Mapping[str, str],
    synthetic: str = "",
    commentary: Sequence[str] = (),
    rows: Sequence[Row] = (),
    heading: str = "Results",
) -> None:
    """Write the page, whole or not at all; the same input gives the same bytes.

    synthetic: what a synthesiser spoke of the data; stands under the title. commentary: paragraphs to follow the summary.
    rows: all values behind the page, to be unfolded and downloaded. heading: of the grids.
    """
    source = resources.files("speechssl.report").joinpath("template.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"data_uri": data_uri, "outline": outline, "number": _number, "span": _span}
    environment.globals |= {"decibels": decibels, "ticks": ticks}
    lines = [tuple(_text(getattr(row, name)) for name in COLUMNS) for row in rows]
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([COLUMNS, *lines])
    page = environment.from_string(source).render(
        title=title,
        summary=" ".join(section.summary for section in sections if section.summary),
        synthetic=synthetic,
        commentary=commentary,
        provenance=provenance,
        blocks=[block for section in sections for block in section.blocks],
        heading=heading,
        grids=[grid for section in sections for grid in section.grids],
        figures=[figure for section in sections for figure in section.figures],
        tables=[(table, table.texts) for section in sections for table in section.tables],
        examples=[example for section in sections for example in section.examples],
        rows=lines,
        columns=COLUMNS,
        download="data:text/csv;charset=utf-8;base64," + base64.b64encode(buffer.getvalue().encode()).decode("ascii"),
        palette=PALETTE,
    )
    write_text(out, page)


def grid_of(results: Results, metric: str) -> Grid:
    """One metric of the results."""
    conditions, series = results.conditions(metric), results.having(metric)
    digits, best = decimals(metric), {}
    for condition in conditions:  # the best value as printed, where several compete
        values = [cell.value for s in series if (cell := results.get(s, metric, condition))]
        best[condition] = _number((min if metric in LOWER_IS_BETTER else max)(values), digits) if len(values) > 1 else None
    lines = []
    for s in series:
        cells = [results.get(s, metric, c) for c in conditions]
        marked = [(x, x is not None and _number(x.value, digits) == best[c]) for x, c in zip(cells, conditions, strict=True)]
        lines.append((s, tuple(marked)))
    groups = dict.fromkeys((c.family, sum(d.family == c.family for d in conditions)) for c in conditions)
    about = METRICS[metric][1] if metric in METRICS else ""
    every = [cell for c in conditions for s in series if (cell := results.get(s, metric, c))]
    return Grid(metric, metric_name(metric), about, conditions, tuple(groups), tuple(lines), _note(metric, every), digits)


def _note(metric: str, cells: Sequence[Cell]) -> str:
    what = {"%": "Percent", "dB": "Decibels", "×": "Times"}.get(unit(metric), "On its own scale")
    parts = [f"{what}; {'lower' if metric in LOWER_IS_BETTER else 'higher'} is better."]
    if any(cell.low is not None for cell in cells):
        parts.append(" ".join(filter(None, ["Grey: 95 % interval.", drawn_sentence(("", c.drawn, c.groups) for c in cells)])))
    sizes = sorted({cell.n for cell in cells if cell.n})
    if sizes:
        parts.append(f"n = {sizes[0]:,}." if len(sizes) == 1 else f"n = {sizes[0]:,} to {sizes[-1]:,}.")
    if (seeds := max(cell.seeds for cell in cells)) > 1:
        parts.append(f"Means over up to {seeds} seeds; an interval reaches over those of all seeds.")
    return " ".join(parts)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps(dict(value), sort_keys=True, ensure_ascii=False)
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _number(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}f}"


def _span(region: Region) -> str:
    return f"{region.start:.2f} to {region.end:.2f} s"
