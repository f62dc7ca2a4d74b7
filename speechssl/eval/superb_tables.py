"""Tables of SUPERB from rows of results: encoders by tasks, the gain by tuning, and clean above seen above unseen noise."""

from __future__ import annotations

from collections.abc import Sequence

from speechssl.eval.tables import Table, seeds_text
from speechssl.results import DEFAULT, LOWER_IS_BETTER, Row, decimals, drawn_sentence, unit
from speechssl.superb.catalogue import ORDER


def superb_tables(rows: Sequence[Row], encoders: Sequence[str], at: float) -> list[Table]:
    """Clean speech; learning rates; noise. at: dB, the SNR that stands for noise. Tables without rows are left out."""
    mine = [row for row in rows if row.system in ORDER and row.encoder in encoders]
    clean = [row for row in mine if row.condition == "clean"]

    def main(some: Sequence[Row]) -> list[Row]:
        return [row for row in some if not (row.metric.endswith(DEFAULT) or row.metric.startswith("ratio"))]

    def measures(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Tasks with their metrics, in SUPERB's order."""
        return sorted(dict.fromkeys(pairs), key=lambda pair: ORDER.index(pair[0]))

    def of(some: Sequence[Row], task: str, metric: str, encoder: str) -> list[Row]:
        return [r for r in some if (r.system, r.metric, r.encoder) == (task, metric, encoder)]

    head = ("task", *encoders)
    listed = measures([(row.system, row.metric) for row in main(clean)])
    scores = [(name(t, m), *(seeds_text(of(clean, t, m, e)) for e in encoders)) for t, m in listed]
    seeds = len({row.seed for row in clean})
    note = "Test sets, clean speech; ↑ more is better, ↓ less is. "
    note += drawn_sentence((row.system, row.drawn, row.groups) for row in main(clean))
    note += f" Means over {seeds} seeds, the interval reaches over those of all." if seeds > 1 else ""

    # the first measure of every task at the learning rate that does best on dev, and at the task's own
    tuning = []
    for t, m in measures([(r.system, r.metric.removesuffix(DEFAULT)) for r in clean if r.metric.endswith(DEFAULT)]):
        both = [[seeds_text(of(clean, t, x, e)).partition(" ")[0] for x in (m, f"{m}{DEFAULT}")] for e in encoders]
        tuning.append((name(t, m), *(" / ".join(values) for values in both)))

    # as the lecture has it: each group at the SNR nearest to `at`, the mean over its noises
    groups = [g for g in ("clean", "seen", "unseen") if any(row.condition.partition("-")[0] == g for row in mine)]

    def cell(found: Sequence[Row]) -> str:
        return " | ".join(_nearest([r for r in found if r.condition.partition("-")[0] == group], at) for group in groups)

    listed = measures([(row.system, row.metric) for row in main(mine)]) if len(groups) > 1 else []
    noise = [(name(t, m), *(cell(of(mine, t, m, e)) for e in encoders)) for t, m in listed]
    but = ", but for those of encoders with + in their names" if any("+" in e for e in encoders) else ""
    about = f"Noise at the SNR nearest to {at:g} dB, the mean over the noises of a group. Heads were trained on clean speech{but}."
    tables = [
        Table("SUPERB", head, tuple(scores), note.strip()),
        Table("Learning rate tuned on dev / the task's own", head, tuple(tuning), "Test sets, clean speech."),
        Table(" | ".join(groups), head, tuple(noise), about),
    ]
    return [table for table in tables if table.rows]


def name(task: str, metric: str) -> str:
    """ "sid acc ↑", "ss si_sdri (dB) ↑"."""
    shown = f" ({unit(metric)})" if unit(metric) not in ("", "%") else ""
    return f"{task} {metric}{shown} {'↓' if metric in LOWER_IS_BETTER else '↑'}"


def _nearest(rows: Sequence[Row], at: float) -> str:
    if not rows:
        return "-"
    rows = [r for r in rows if r.snr_db is not None] or rows  # one without an SNR counts where there is no other
    best = min(abs((at if r.snr_db is None else r.snr_db) - at) for r in rows)
    values = [r.value for r in rows if abs((at if r.snr_db is None else r.snr_db) - at) == best]
    return f"{sum(values) / len(values):.{decimals(rows[0].metric)}f}"
