"""Write one HTML page from sections. It is self-contained: tables, figures as SVG, and examples to
listen to are in the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from speechssl.artifacts import write_text
from speechssl.report.figures import PALETTE, Drawing
from speechssl.report.listening import ListeningExample, draw_outline, list_ticks, make_data_uri
from speechssl.results import Row, Table, read_table


@dataclass(frozen=True)
class Section:
    """A section is a part of a page; its empty parts are left out."""

    title: str
    summary: str = ""
    tables: Sequence[Table] = ()
    drawings: Sequence[Drawing | None] = ()
    leading: int = 99  # number of tables before the figures
    examples: Sequence[ListeningExample] = ()
    # numbers of the colours of systems in examples
    slots: Mapping[str, int] = field(default_factory=dict)
    explorer: Mapping[str, Any] | None = None  # predictions for page.js, by `make_explorer`

    @property
    def empty(self) -> bool:
        """Return whether there is nothing but the title."""
        drawings = [d for d in self.drawings if d]
        return not (self.summary or self.tables or drawings or self.examples or self.explorer)


def write_page(
    out: Path | str,
    title: str,
    sections: Sequence[Section],
    provenance: Mapping[str, str],
    synthetic: str = "",
    rows: Sequence[Row] = (),
    opening: str = "",
) -> None:
    """Write the page, whole or not at all; the same input gives the same bytes.

    opening: the first paragraph. synthetic: the sentence about synthetic speech under it.
    provenance: name and value of what made the results. rows: all values of the page, which can be
    unfolded and downloaded.
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
    environment.filters |= {"data_uri": make_data_uri, "outline": draw_outline}
    environment.globals |= {"ticks": list_ticks}
    values = read_table(rows).astype(dict.fromkeys(["snr_db", "low", "high"], float))
    values["card"] = [row.card if isinstance(row.card, str) else row.card_text for row in rows]
    csv = values.to_csv(index=False, float_format="%.6g")
    page = environment.get_template("template.html").render(
        title=title,
        opening=opening,
        sections=[section for section in sections if not section.empty],
        synthetic=synthetic,
        provenance=provenance,
        count=len(rows),
        rows=values.to_html(index=False, border=0, na_rep="", float_format="{:.6g}".format),
        download=make_data_uri(csv.encode(), "text/csv;charset=utf-8"),
        palette=PALETTE,
    )
    write_text(out, page)
