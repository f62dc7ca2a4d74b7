"""One HTML page from sections, which holds all that it shows: tables, figures as SVG, and examples
to listen to."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import pandas as pd
from markupsafe import escape

from speechssl.artifacts import hash_json, write_text
from speechssl.report.figures import PALETTE, Drawing
from speechssl.report.listening import ListeningExample, data_uri, outline, ticks
from speechssl.report.scores import describe_scores, metrics_of
from speechssl.results import METRICS, Row, Table, metric_name, read_table


class Grid(NamedTuple):
    """A grid is a table as it stands on a page. html: a <table>."""

    title: str
    html: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A section is a part of a page, of which what is empty is left out. leading: how many tables
    stand before the figures; listening: which questions the examples are; slots: of the colours of
    their systems; explorer: the predictions for the page's script."""

    title: str
    summary: str = ""
    grids: Sequence[Grid] = ()
    drawings: Sequence[Drawing | None] = ()
    leading: int = 99
    examples: Sequence[ListeningExample] = ()
    listening: str = ""
    slots: Mapping[str, int] = field(default_factory=dict)
    explorer: Mapping[str, Any] | None = None

    @property
    def empty(self) -> bool:
        shown = [d for d in self.drawings if d]
        return not (self.summary or self.grids or shown or self.examples or self.explorer)


def write_page(
    out: Path | str,
    title: str,
    sections: Sequence[Section],
    provenance: Mapping[str, str],
    synthetic: str = "",
    rows: Sequence[Row] = (),
) -> None:
    """Write the page, whole or not at all; the same input gives the same bytes.

    synthetic: what a synthesiser spoke of the data; stands under the title. rows: all values behind
    the page, to be unfolded and downloaded.
    """
    environment = jinja2.Environment(
        # template.html with page.css and page.js
        loader=jinja2.PackageLoader("speechssl.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    environment.filters |= {"data_uri": data_uri, "outline": outline, "svg_uri": svg_uri}
    environment.globals |= {"ticks": ticks}
    every = read_table(rows).astype(dict.fromkeys(["snr_db", "low", "high"], float))
    every["card"] = [row.card if isinstance(row.card, str) else row.card_text for row in rows]
    page = environment.get_template("template.html").render(
        title=title,
        sections=[section for section in sections if not section.empty],
        synthetic=synthetic,
        provenance=provenance,
        count=len(rows),
        rows=every.to_html(index=False, border=0, na_rep="", float_format="{:.6g}".format),
        download=_uri("text/csv;charset=utf-8", every.to_csv(index=False, float_format="%.6g")),
        palette=PALETTE,
    )
    write_text(out, page)


def _uri(kind: str, text: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(text.encode()).decode('ascii')}"


def svg_uri(svg: str) -> str:
    return _uri("image/svg+xml", svg)


# ---- tables


def make_grid(
    title: str,
    frame: pd.DataFrame,
    note: str = "",
    best: pd.DataFrame | None = None,
    heads: Sequence[str] = (),
) -> Grid:
    """Render a table of texts. best: which of its cells are marked, by the same columns; heads: in
    the place of the names of the columns."""
    styler = frame.style.hide(axis="index").format(na_rep="–", escape="html")
    styler = styler.format_index(escape="html", axis="columns")
    if heads:
        styler.relabel_index([str(escape(head)) for head in heads], axis="columns")
    words = [{"selector": "", "props": "text-align: left; white-space: pre-line"}]
    left = {}
    for number, column in enumerate(frame.columns):
        if number == 0 or any(str(text)[:1].isalpha() for text in frame[column].dropna()):
            left[column] = words
    styler.set_table_styles(left)
    if best is not None:
        styler.set_td_classes(best.eq(True).replace({True: "best", False: ""}))
    styler.set_uuid(hash_json([title, frame.to_json()])[:8])
    return Grid(title, styler.to_html(sparse_columns=True), note)


def text_grid(table: Table) -> Grid:
    """Render a table of texts and numbers, whose columns may have equal names."""
    frame = pd.DataFrame(table.texts, columns=range(len(table.columns)))
    return make_grid(table.title, frame, table.note, heads=[str(name) for name in table.columns])


def pivot_scores(
    title: str,
    scores: pd.DataFrame,
    columns: Sequence[str],
    head: str,
    note: str = "",
    counted: bool = False,
) -> Grid:
    """Render a line a label, and a column each of some columns. counted: with how many items a line
    is of."""
    names, labels = list(columns), scores.label.unique()
    order = pd.MultiIndex.from_frame(scores[names].drop_duplicates())

    def pivot(values: str) -> pd.DataFrame:
        found = scores.pivot(index="label", columns=names, values=values)
        return found.reindex(columns=order).loc[labels]

    frame, best = pivot("text"), pivot("best")
    frame.insert(0, ("", head), labels)
    if counted:
        sizes = scores.groupby("label").n.agg(["min", "max"]).loc[labels]
        both = zip(sizes["min"], sizes["max"], strict=True)
        frame["", "n"] = [f"{a:,}" if a == b else f"{a:,}–{b:,}" for a, b in both]
    return make_grid(title, frame, note, best)


def metric_grids(scores: pd.DataFrame, note: str = "") -> list[Grid]:
    """Render a table a metric: a line a system, a column a condition."""
    grids = []
    for metric in metrics_of(scores):
        of_metric = scores[scores.metric == metric].sort_values("place", kind="stable")
        what = METRICS[metric][1] if metric in METRICS else ""
        about = f"{what[:1].upper()}{what[1:]}. " if what else ""
        text = f"{about}{describe_scores(of_metric)} {note}".strip()
        title = metric_name(metric)
        grids.append(pivot_scores(title, of_metric, ["family", "level"], "System", text, True))
    return grids
