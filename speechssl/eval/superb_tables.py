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
    every = [row for row in rows if row.task in ORDER and row.encoder in encoders]
    cells: dict[tuple[str, ...], list[Row]] = {}  # by task, metric, encoder and group
    for row in every:
        group = row.condition.partition("-")[0]
        cells.setdefault((row.task, row.metric, row.encoder, group), []).append(row)
    measured = dict.fromkeys((row.task, row.metric) for row in every)
    in_order = sorted(measured, key=lambda pair: ORDER.index(pair[0]))
    # without those at the task's own rate and those of the gain of caching
    main = [m for m in in_order if not m[1].endswith(DEFAULT) and not m[1].startswith("ratio")]

    scores, rates, noise = [], [], []
    groups = [g for g in GROUPS if any(key[3] == g for key in cells)]
    for task, metric in main:
        name = measure_name(task, metric)
        texts = [seeds_text(cells.get((task, metric, e, "clean"), [])) for e in encoders]
        if set(texts) != {"-"}:
            scores.append((name, *texts))
        if (task, f"{metric}{DEFAULT}") in measured:
            line = []
            for encoder, tuned in zip(encoders, texts, strict=True):
                own = seeds_text(cells.get((task, f"{metric}{DEFAULT}", encoder, "clean"), []))
                line.append(f"{tuned.partition(' ')[0]} / {own.partition(' ')[0]}")
            rates.append((name, *line))
        if len(groups) > 1:
            line = []
            for encoder in encoders:
                of_groups = [cells.get((task, metric, encoder, g), []) for g in groups]
                line.append(" | ".join(mean_text(rows, metric, at) for rows in of_groups))
            noise.append((name, *line))

    clean = [row for row in every if row.condition == "clean" and (row.task, row.metric) in main]
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
    head, compared = ("task", *encoders), "Learning rate tuned on dev / the task's own"
    tables = [
        Table("SUPERB", head, tuple(scores), note.strip()),
        Table(compared, head, tuple(rates), "Test sets, clean speech."),
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
