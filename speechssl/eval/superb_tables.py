"""Tables of SUPERB from its rows: clean speech, learning rates, noise. `run_superb` prints them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from speechssl.results import (
    DEFAULT,
    LOWER_IS_BETTER,
    Row,
    Table,
    decimals,
    drawn_sentence,
    nearest_snr,
    seeds_text,
    unit,
)
from speechssl.superb.tasks import ORDER

GROUPS = ("clean", "seen", "unseen")


Cells = dict[tuple[str, ...], list[Row]]  # by task, metric, encoder and group
Measure = tuple[str, str]  # task and metric


def superb_tables(rows: Sequence[Row], encoders: Sequence[str], at: float) -> list[Table]:
    """Make the tables: clean speech; learning rates; noise. at: dB, the SNR that stands for noise.
    Tables without rows are left out."""
    cells: Cells = {}
    for row in rows:
        if row.task in ORDER and row.encoder in encoders:
            group = row.condition.partition("-")[0]
            cells.setdefault((row.task, row.metric, row.encoder, group), []).append(row)
    measures: list[Measure] = []
    for task, metric, *_ in cells:
        # without those at the task's own rate and those of the gain of caching
        extra = metric.endswith(DEFAULT) or metric.startswith("ratio")
        if not extra and (task, metric) not in measures:
            measures.append((task, metric))
    measures.sort(key=lambda measure: ORDER.index(measure[0]))
    tables = [
        _clean_table(cells, measures, encoders),
        _rates_table(cells, measures, encoders),
        _noise_table(cells, measures, encoders, at),
    ]
    return [table for table in tables if table.rows]


def _clean_table(cells: Cells, measures: Sequence[Measure], encoders: Sequence[str]) -> Table:
    """Make the table of clean speech, with intervals."""
    rows, clean = [], []
    for measure in measures:
        of_encoders = [cells.get((*measure, encoder, "clean"), []) for encoder in encoders]
        if any(of_encoders):
            rows.append((measure_name(*measure), *map(seeds_text, of_encoders)))
        for some in of_encoders:
            clean += some
    note = "Test sets, clean speech; ↑ more is better, ↓ less is. "
    note += drawn_sentence((row.task, row.drawn, row.groups) for row in clean)
    seeds = len({row.seed for row in clean})
    if seeds > 1:
        note += f" Means over {seeds} seeds, the interval reaches over those of all."
    return Table("SUPERB", ("task", *encoders), tuple(rows), note.strip())


def _rates_table(cells: Cells, measures: Sequence[Measure], encoders: Sequence[str]) -> Table:
    """Make the table of two learning rates: tuned on dev, and the task's own."""
    rows = []
    for task, metric in measures:
        owns = [cells.get((task, f"{metric}{DEFAULT}", e, "clean"), []) for e in encoders]
        texts = []
        for encoder, own in zip(encoders, owns, strict=True):
            both = cells.get((task, metric, encoder, "clean"), []), own
            texts.append(" / ".join(seeds_text(some).partition(" ")[0] for some in both))
        if any(owns):
            rows.append((measure_name(task, metric), *texts))
    title = "Learning rate tuned on dev / the task's own"
    return Table(title, ("task", *encoders), tuple(rows), "Test sets, clean speech.")


def _noise_table(
    cells: Cells, measures: Sequence[Measure], encoders: Sequence[str], at: float
) -> Table:
    """Make the table of clean speech beside the groups of noises."""
    found = {group for *_, group in cells}
    groups = [group for group in GROUPS if group in found]
    rows = []
    for measure in measures if len(groups) > 1 else ():
        texts = []
        for encoder in encoders:
            of_groups = [cells.get((*measure, encoder, group), []) for group in groups]
            texts.append(" | ".join(mean_text(some, measure[1], at) for some in of_groups))
        rows.append((measure_name(*measure), *texts))
    but = ", but for those of encoders with + in their names" * any("+" in e for e in encoders)
    legend = (
        f"Noise at the SNR nearest to {at:g} dB, the mean over the noises of a group. Heads "
        f"were trained on clean speech{but}."
    )
    return Table(" | ".join(groups), ("task", *encoders), tuple(rows), legend)


def mean_text(rows: Sequence[Row], metric: str, at: float) -> str:
    """Return the mean over the noises of a group at the SNR nearest to `at`, "-" without rows."""
    values = [row.value for row in nearest_snr(rows, at)]
    return f"{statistics.fmean(values):.{decimals(metric)}f}" if values else "-"


def measure_name(task: str, metric: str) -> str:
    """Return a column's name: "sid acc ↑", "ss si_sdri (dB) ↑"."""
    shown = f" ({unit(metric)})" if unit(metric) not in ("", "%") else ""
    return f"{task} {metric}{shown} {'↓' if metric in LOWER_IS_BETTER else '↑'}"
