"""Tables of SUPERB from rows of results: encoders by tasks, the gain by tuning, and clean above seen above unseen noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from speechssl.eval.tables import Table
from speechssl.results import DEFAULT, LOWER_IS_BETTER, Row, cell_text, decimals, drawn_sentence, unit
from speechssl.superb.catalogue import ORDER

GROUPS = ("clean", "seen", "unseen")


def superb_tables(rows: Sequence[Row], encoders: Sequence[str], at: float) -> list[Table]:
    """at: dB, the SNR that stands for noise. Tables without rows are left out."""
    mine = [row for row in rows if row.system in ORDER and row.encoder in encoders]
    clean = [row for row in mine if row.condition == "clean"]
    found = [_scores(clean, encoders), _tuning(clean, encoders), _noise(mine, encoders, at)]
    return [table for table in found if table.rows]


def name(task: str, metric: str) -> str:
    """ "sid acc ↑", "ss si_sdri (dB) ↑"."""
    shown = f" ({unit(metric)})" if unit(metric) not in ("", "%") else ""
    return f"{task} {metric}{shown} {'↓' if metric in LOWER_IS_BETTER else '↑'}"


def _main(row: Row) -> bool:
    return not (row.metric.endswith(DEFAULT) or row.metric.startswith("ratio"))


def _measures(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Tasks with their metrics, in SUPERB's order."""
    found = dict.fromkeys((row.system, row.metric) for row in rows if _main(row))
    return sorted(found, key=lambda pair: ORDER.index(pair[0]))


def _of(rows: Sequence[Row], task: str, metric: str, encoder: str) -> list[Row]:
    return [r for r in rows if (r.system, r.metric, r.encoder) == (task, metric, encoder)]


def _scores(rows: Sequence[Row], encoders: Sequence[str]) -> Table:
    """A line a measure, a column an encoder: value [interval], mean over seeds."""
    lines = [(name(t, metric), *(cell_text(_of(rows, t, metric, e)) for e in encoders)) for t, metric in _measures(rows)]
    seeds = len({row.seed for row in rows})
    note = "Test sets, clean speech; ↑ more is better, ↓ less is. "
    note += drawn_sentence((row.system, row.drawn, row.groups) for row in rows if _main(row))
    note += f" Means over {seeds} seeds, the interval reaches over those of all." if seeds > 1 else ""
    return Table("SUPERB", ("task", *encoders), tuple(lines), note.strip())


def _tuning(rows: Sequence[Row], encoders: Sequence[str]) -> Table:
    """The first measure of every task at the learning rate that does best on dev, and at the task's own."""
    tasks = dict.fromkeys((r.system, r.metric.removesuffix(DEFAULT)) for r in rows if r.metric.endswith(DEFAULT))
    lines = []
    for task, metric in sorted(tasks, key=lambda pair: ORDER.index(pair[0])):
        both = [[cell_text(_of(rows, task, m, e)).partition(" ")[0] for m in (metric, f"{metric}{DEFAULT}")] for e in encoders]
        lines.append((name(task, metric), *(" / ".join(values) for values in both)))
    return Table("Learning rate tuned on dev / the task's own", ("task", *encoders), tuple(lines), "Test sets, clean speech.")


def _noise(rows: Sequence[Row], encoders: Sequence[str], at: float) -> Table:
    """As the lecture has it: clean, seen noise, unseen noise; each group at the SNR nearest to `at`, the mean over its noises."""
    groups = [g for g in GROUPS if any(row.condition.partition("-")[0] == g for row in rows)]
    if len(groups) == 1:
        return Table("", (), ())

    def cell(found: Sequence[Row]) -> str:
        each = [[r for r in found if r.condition.partition("-")[0] == group] for group in groups]
        return " | ".join(_nearest(some, at) for some in each)

    lines = [(name(t, metric), *(cell(_of(rows, t, metric, e)) for e in encoders)) for t, metric in _measures(rows)]
    but = ", but for those of encoders with + in their names" if any("+" in e for e in encoders) else ""
    note = f"Noise at the SNR nearest to {at:g} dB, the mean over the noises of a group. Heads were trained on clean speech{but}."
    return Table(" | ".join(groups), ("task", *encoders), tuple(lines), note)


def _nearest(rows: Sequence[Row], at: float) -> str:
    if not rows:
        return "-"
    distance: Callable[[Row], float] = lambda r: abs((at if r.snr_db is None else r.snr_db) - at)  # noqa: E731
    rows = [r for r in rows if r.snr_db is not None] or rows  # one without an SNR counts where there is no other
    best = min(map(distance, rows))
    values = [r.value for r in rows if distance(r) == best]
    return f"{sum(values) / len(values):.{decimals(rows[0].metric)}f}"
