"""Tables of SUPERB from rows of results: encoders by tasks, what tuning is worth, and clean above seen above unseen noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from speechssl.evaluation.results import DEFAULT, LOWER_IS_BETTER, Row, decimals, drawn_sentence, unit
from speechssl.evaluation.robustness_tables import TextTable
from speechssl.superb.catalogue import ORDER

GROUPS = ("clean", "seen", "unseen")


def superb_tables(rows: Sequence[Row], encoders: Sequence[str], at: float) -> list[TextTable]:
    """at: dB, the SNR that stands for noise. Tables that have nothing to say are left out."""
    mine = [row for row in rows if row.system in ORDER and row.encoder in encoders]
    clean = [row for row in mine if row.condition == "clean"]
    found = [_scores(clean, encoders), _tuning(clean, encoders), _noise(mine, encoders, at)]
    return [table for table in found if table.rows]


def _measures(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Tasks with their metrics, in SUPERB's order."""
    found = dict.fromkeys((row.system, row.metric) for row in rows if not _aside(row))
    return sorted(found, key=lambda pair: ORDER.index(pair[0]))


def _aside(row: Row) -> bool:
    return row.metric.endswith(DEFAULT) or row.metric.startswith("ratio")


def _scores(rows: Sequence[Row], encoders: Sequence[str]) -> TextTable:
    """A line a measure, a column an encoder: value [interval], mean over seeds."""
    lines = [
        (name(task, metric), *(_cell([r for r in rows if (r.system, r.metric, r.encoder) == (task, metric, e)]) for e in encoders))
        for task, metric in _measures(rows)
    ]
    seeds = len({row.seed for row in rows})
    note = "Test sets, clean speech; ↑ more is better, ↓ less is. "
    note += drawn_sentence((row.system, row.drawn, row.groups) for row in rows if not _aside(row))
    note += f" Means over {seeds} seeds, the interval reaches over those of all." if seeds > 1 else ""
    return TextTable("SUPERB", ("task", *encoders), tuple(lines), note.strip())


def _tuning(rows: Sequence[Row], encoders: Sequence[str]) -> TextTable:
    """The first measure of every task at the learning rate that does best on dev, and at the task's own."""
    tasks = dict.fromkeys((r.system, r.metric.removesuffix(DEFAULT)) for r in rows if r.metric.endswith(DEFAULT))

    def cell(task: str, metric: str, encoder: str) -> str:
        both = [
            _cell([r for r in rows if (r.system, r.metric, r.encoder) == (task, m, encoder)])
            for m in (metric, f"{metric}{DEFAULT}")
        ]
        return " / ".join(text.partition(" ")[0] for text in both)

    ordered = sorted(tasks, key=lambda pair: ORDER.index(pair[0]))
    lines = [(name(task, metric), *(cell(task, metric, e) for e in encoders)) for task, metric in ordered]
    return TextTable("Learning rate tuned on dev / the task's own", ("task", *encoders), tuple(lines), "Test sets, clean speech.")


def _noise(rows: Sequence[Row], encoders: Sequence[str], at: float) -> TextTable:
    """As the lecture has it: clean, seen noise, unseen noise; each group at the SNR nearest to `at`, the mean over its noises."""
    groups = [g for g in GROUPS if any(_group(row) == g for row in rows)]
    if len(groups) == 1:
        return TextTable("", (), ())
    lines = [
        (
            name(task, metric),
            *(_stack([r for r in rows if (r.system, r.metric, r.encoder) == (task, metric, e)], groups, at) for e in encoders),
        )
        for task, metric in _measures(rows)
    ]
    but = ", but for those of encoders with + in their names" if any("+" in e for e in encoders) else ""
    note = f"Noise at the SNR nearest to {at:g} dB, the mean over the noises of a group. Heads were trained on clean speech{but}."
    return TextTable(" | ".join(groups), ("task", *encoders), tuple(lines), note)


def _stack(rows: Sequence[Row], groups: Sequence[str], at: float) -> str:
    return " | ".join(_near([r for r in rows if _group(r) == group], at) for group in groups)


def _near(rows: Sequence[Row], at: float) -> str:
    if not rows:
        return "-"
    distance: Callable[[Row], float] = lambda r: abs((at if r.snr_db is None else r.snr_db) - at)  # noqa: E731
    rows = [r for r in rows if r.snr_db is not None] or rows  # one without an SNR counts where there is no other
    best = min(map(distance, rows))
    values = [r.value for r in rows if distance(r) == best]
    return _number(rows[0].metric, sum(values) / len(values))


def _group(row: Row) -> str:
    return row.condition.partition("-")[0]


def name(task: str, metric: str) -> str:
    """ "sid acc ↑", "ss si_sdri (dB) ↑"."""
    shown = f" ({unit(metric)})" if unit(metric) not in ("", "%") else ""
    return f"{task} {metric}{shown} {'↓' if metric in LOWER_IS_BETTER else '↑'}"


def _cell(rows: Sequence[Row]) -> str:
    if not rows:
        return "-"
    metric = rows[0].metric
    text = _number(metric, sum(r.value for r in rows) / len(rows))
    lows, highs = [r.low for r in rows if r.low is not None], [r.high for r in rows if r.high is not None]
    return f"{text} [{_number(metric, min(lows))}, {_number(metric, max(highs))}]" if lows and highs else text


def _number(metric: str, value: float) -> str:
    return f"{value:.{decimals(metric)}f}"
