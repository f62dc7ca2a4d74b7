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


def superb_tables(rows: Sequence[Row], encoders: Sequence[str], at: float) -> list[Table]:
    """Make the tables: clean speech; learning rates; noise. at: dB, the SNR that stands for noise.
    Tables without rows are left out."""
    cells: dict[tuple[str, ...], list[Row]] = {}  # by task, metric, encoder and group
    metrics = set()
    for row in rows:
        if row.task in ORDER and row.encoder in encoders:
            group = row.condition.partition("-")[0]
            cells.setdefault((row.task, row.metric, row.encoder, group), []).append(row)
            # without those at the task's own rate and those of the gain of caching
            if not row.metric.endswith(DEFAULT) and not row.metric.startswith("ratio"):
                metrics.add((row.task, row.metric))
    groups = [g for g in GROUPS if any(key[3] == g for key in cells)]
    scores, rates, noise, clean = [], [], [], []
    in_order = list(dict.fromkeys((task, metric) for task, metric, *_ in cells))
    for task, metric in sorted(in_order, key=lambda pair: ORDER.index(pair[0])):
        if (task, metric) not in metrics:
            continue
        tuned, compared, averaged = [], [], []
        for encoder in encoders:
            of_clean = cells.get((task, metric, encoder, "clean"), [])
            own = seeds_text(cells.get((task, f"{metric}{DEFAULT}", encoder, "clean"), []))
            tuned.append(seeds_text(of_clean))
            compared.append(f"{tuned[-1].partition(' ')[0]} / {own.partition(' ')[0]}")
            of_groups = [cells.get((task, metric, encoder, g), []) for g in groups]
            averaged.append(" | ".join(mean_text(some, metric, at) for some in of_groups))
            clean += of_clean
        name = measure_name(task, metric)
        if set(tuned) != {"-"}:
            scores.append((name, *tuned))
        if any(not text.endswith("/ -") for text in compared):
            rates.append((name, *compared))
        if len(groups) > 1:
            noise.append((name, *averaged))

    seeds = len({row.seed for row in clean})
    note = "Test sets, clean speech; ↑ more is better, ↓ less is. "
    note += drawn_sentence((row.task, row.drawn, row.groups) for row in clean)
    if seeds > 1:
        note += f" Means over {seeds} seeds, the interval reaches over those of all."
    but = ", but for those of encoders with + in their names" * any("+" in e for e in encoders)
    legend = (
        f"Noise at the SNR nearest to {at:g} dB, the mean over the noises of a group. Heads "
        f"were trained on clean speech{but}."
    )
    head, title = ("task", *encoders), "Learning rate tuned on dev / the task's own"
    tables = [
        Table("SUPERB", head, tuple(scores), note.strip()),
        Table(title, head, tuple(rates), "Test sets, clean speech."),
        Table(" | ".join(groups), head, tuple(noise), legend),
    ]
    return [table for table in tables if table.rows]


def mean_text(rows: Sequence[Row], metric: str, at: float) -> str:
    """Return the mean over the noises of a group at the SNR nearest to `at`, "-" without rows."""
    values = [row.value for row in nearest_snr(rows, at)]
    return f"{statistics.fmean(values):.{decimals(metric)}f}" if values else "-"


def measure_name(task: str, metric: str) -> str:
    """Return a column's name: "sid acc ↑", "ss si_sdri (dB) ↑"."""
    shown = f" ({unit(metric)})" if unit(metric) not in ("", "%") else ""
    return f"{task} {metric}{shown} {'↓' if metric in LOWER_IS_BETTER else '↑'}"
