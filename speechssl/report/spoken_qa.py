"""Make the section of question answering on a page: tables, and scores over the SNR. `speechssl
compare` draws them over recognition errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from speechssl.report.figures import draw_over_snr
from speechssl.report.page import Section
from speechssl.report.scores import arrange
from speechssl.results import (
    METRICS,
    UNITS_FROM,
    Row,
    Table,
    drawn_sentence,
    interval_note,
    metric_name,
    metric_tables,
)


def qa_section(
    rows: Sequence[Row], slots: Mapping[str, int], synthetic: str, errors: Sequence[Table]
) -> Section:
    """Make the tables and figures. synthetic: what a synthesiser spoke of the data; stands at every
    table. errors: tables of how answers err."""
    if not rows:
        return Section("Results")
    scores = arrange(rows)
    ff1 = scores[scores.metric == "ff1"]
    bars = interval_note("Error bars", zip(ff1.label, ff1.drawn, ff1.groups, strict=True))
    tables = []
    for metric, table in metric_tables(rows).items():
        name = metric_name(metric)
        about = f"{name}: {METRICS[metric][1]}." if metric in METRICS else ""
        drawn = drawn_sentence((r.name, r.drawn, r.groups) for r in rows if r.metric == metric)
        note = " ".join(filter(None, [about, drawn, synthetic]))
        tables.append(replace(table, title=name, note=note))
    needs_note = scores.system.str.startswith("dual").any()
    summary = f"dual needs no transcript ({UNITS_FROM})." if needs_note else ""
    title = "FF1 against the signal-to-noise ratio (SNR)"
    drawing = draw_over_snr(title, bars, {"FF1": ff1} if len(ff1) else {}, slots)
    return Section("Results", summary, [*tables, *errors], [drawing], leading=1)
