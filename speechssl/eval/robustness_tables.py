"""The tables of the robustness grid: the lecture's (encoders x tasks, clean | seen | unseen), and what lies behind it.

They go to the terminal, to `tables.md` and, as they are, into the report. A star marks a score that differs from the baseline's in
the same column (p < 0.05, two-sided; by Holm's procedure over all such tests of the table, where that is asked for).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speechssl.eval.degradation import Grid, Task, drawn, gain, levels
from speechssl.eval.grid import Setting
from speechssl.eval.tables import Table, with_interval
from speechssl.results import LOWER_IS_BETTER
from speechssl.stats import LEVEL, Estimate, holm, mean_of

Numbers = Mapping[str, Any] | None  # value, low, high
Place = tuple[str, ...]  # names of a line and a column


@dataclass(frozen=True)
class Columns:
    """Conditions that make one column of the lecture's table: the mean over them is shown."""

    name: str
    settings: tuple[Setting, ...]


# ---- scores


def lecture_columns(grid: Grid, at: float) -> list[Columns]:
    """Clean, and every group at the SNR that lies nearest to `at` (dB); a group without SNRs as it is."""
    columns = [Columns("clean", (grid.clean,))]
    for group in dict.fromkeys(s.group for s in grid.settings[1:]):
        mine = [found for found in levels(grid) if found[0].group == group]
        ratios = [found for found in mine if found[0].snr_db is not None]
        best = min(ratios or mine, key=lambda found: abs((found[0].snr_db or 0.0) - at))
        snr = best[0].snr_db
        columns.append(Columns(group if snr is None else f"{group} {snr:g} dB", tuple(best)))
    return columns


def score_tables(grid: Grid, at: float, corrected: bool) -> list[Table]:
    """The lecture's table, a line an encoder in a task, and for each task all conditions."""
    names, over = lecture_columns(grid, at), []
    for column in names[1:]:
        noises = [s.name.removeprefix(f"{s.group}-") for s in column.settings]
        mean = "mean of " if len(noises) > 1 else ""
        over.append(f"{column.name}: {mean}{', '.join(noises)}")
    every = [Columns(s.label, (s,)) for s in grid.settings]
    lecture = _scores(grid, grid.tasks, names, f"Clean, seen and unseen: {'; '.join(over)}", corrected)
    return [lecture, *(_scores(grid, [task], every, f"{task[0]}, {task[1]}", corrected) for task in grid.tasks)]


def lecture_table(grid: Grid, at: float, corrected: bool) -> Table:
    """As the lecture has it: a line an encoder, a column a task, clean above seen above unseen in every cell."""
    names = lecture_columns(grid, at)
    cells = _score_cells(grid, grid.tasks, names, corrected)
    rows = [
        (e, *("<br>".join(cells.get((*t, e, c.name), "-") for c in names) if grid.has(t, e) else "-" for t in grid.tasks))
        for e in grid.encoders
    ]
    title = f"Encoders and tasks: {', '.join(c.name for c in names)}"
    columns = ("encoder", *(f"{task} {metric}" for task, metric in grid.tasks))
    return Table(title, columns, tuple(rows), _note(grid, grid.tasks, corrected))


def _scores(grid: Grid, tasks: Sequence[Task], columns: Sequence[Columns], title: str, corrected: bool) -> Table:
    cells = _score_cells(grid, tasks, columns, corrected)
    rows = [
        ((f"{task[0]} {task[1]}, {e}" if len(tasks) > 1 else e), *(cells[(*task, e, c.name)] for c in columns))
        for task in tasks
        for e in grid.encoders
        if grid.has(task, e)
    ]
    first = "task, encoder" if len(tasks) > 1 else "encoder"
    return Table(title, (first, *(c.name for c in columns)), tuple(rows), _note(grid, tasks, corrected))


def _score_cells(grid: Grid, tasks: Sequence[Task], columns: Sequence[Columns], corrected: bool) -> dict[Place, str]:
    """By task, metric, encoder and column: value, interval, and a star where it differs from the baseline's."""
    scores: dict[Place, Estimate] = {}
    tests: dict[Place, Estimate] = {}
    for t, e, c in ((t, e, c) for t in tasks for e in grid.encoders if grid.has(t, e) for c in columns):
        scores[*t, e, c.name] = mean_of([grid.score(t, e, s) for s in c.settings])
        if e != grid.baseline and grid.has(t, grid.baseline):
            tests[*t, e, c.name] = mean_of([gain(grid, t, e, s) for s in c.settings])
    p_values = [test.p_value for test in tests.values()]
    stars = {place for place, p in zip(tests, holm(p_values) if corrected else p_values, strict=True) if p < 1 - LEVEL}
    return {place: with_interval(score.interval.percent) + "*" * (place in stars) for place, score in scores.items()}


def _note(grid: Grid, tasks: Sequence[Task], corrected: bool) -> str:
    lower = [metric for _, metric in tasks if metric in LOWER_IS_BETTER]
    if len(lower) == len(tasks):
        better = "less is better"
    else:
        better = f"more is better, but for {', '.join(dict.fromkeys(lower))}" if lower else "more is better"
    how = "by Holm's procedure over this table" if corrected else "not corrected for the number of tests"
    return f"Percent; {better}. {drawn(grid, tasks)} * differs from the baseline, p < 0.05, {how}."


# ---- degradation


def degradation_tables(values: Mapping[str, Any]) -> list[Table]:
    """From what `degradation` and `against_cascade` give: averages over tasks, clean speech, DUAL beside the cascade."""
    found = [_shares(values), _clean(values), _against_cascade(values.get("dual_against_cascade", []))]
    return [table for table in found if table.rows]


def _shares(values: Mapping[str, Any]) -> Table:
    base = {(a["group"], a["snr_db"]): a["loss"] for a in values["averages"] if a["encoder"] == values["baseline"]}
    rows = []
    for a in values["averages"]:
        if a["encoder"] != values["baseline"]:
            noise = a["group"] if a["snr_db"] is None else f"{a['group']} {a['snr_db']:g} dB"
            numbers = [base[a["group"], a["snr_db"]], *(a[name] for name in ("loss", "removed", "recovered", "pooled"))]
            rows.append((a["encoder"], noise, *map(_signed, numbers)))
    left = sorted({task for a in values["averages"] for task in a["left_out"]})
    note = (
        "Means over the tasks. removed: share of the baseline's loss, each against its own clean speech; recovered: both against "
        "the baseline's clean speech; pooled: removed, of the losses in points added up. " + values["drawn"]
    ).strip()
    if left:
        note += f" Somewhere the baseline's loss was not certain, and the task left out of the shares: {', '.join(left)}."
    columns = ("encoder", "noise", "baseline loses", "it loses", "removed %", "recovered %", "pooled %")
    return Table("Loss in noise, averaged over tasks (points)", columns, tuple(rows), note)


def _clean(values: Mapping[str, Any]) -> Table:
    rows = tuple(
        (line["encoder"], _signed(line["gain"], "+"), f"{line['worst']['task']}: {_signed(line['worst'], '+')}")
        for line in values["clean"]
        if line["worst"]
    )
    note = f"Points by which it is better than the baseline in clean speech (below 0: worse). {values['drawn']}".strip()
    return Table("Clean speech", ("encoder", "mean over tasks", "worst task"), rows, note)


def _against_cascade(lines: Sequence[Mapping[str, Any]]) -> Table:
    """A line a pair in one noise, a column an SNR."""
    pairs: dict[Place, dict[float | None, Mapping[str, Any]]] = {}
    for x in lines:
        place = (f"{x['dual']}, {x['dual_encoder']}", f"{x['cascade']}, {x['cascade_encoder']}", x["condition"])
        pairs.setdefault(place, {})[x["snr_db"]] = x
    ratios = sorted({x["snr_db"] for x in lines if x["snr_db"] is not None}, reverse=True)

    def cell(line: Mapping[str, Any] | None) -> str:
        if not line or "value" not in line["difference"]:
            return "-"
        dual, cascade = (f"{n['value']:.1f}" if (n := line[name]) else "-" for name in ("dual_relative", "cascade_relative"))
        star = "*" if line["difference"]["p_value"] < 1 - LEVEL else ""
        return f"{dual} - {cascade} = {_signed(line['difference'], '+')}{star}"

    rows = tuple((*place, *(cell(found.get(snr)) for snr in (*ratios, None))) for place, found in pairs.items())
    columns = ("DUAL", "cascade", "noise", *(f"{snr:g} dB" for snr in ratios), "mean, or without SNR")
    note = (
        "FF1 in percent of the system's own FF1 in clean speech: DUAL's - the cascade's = difference in points with its interval; "
        "the questions are drawn together. * p < 0.05, not corrected."
    )
    return Table("What DUAL and the cascade keep of their clean FF1", columns, rows, note)


def _signed(n: Numbers, sign: str = "") -> str:
    if not n or "value" not in n:
        return "-"
    return f"{n['value']:{sign}.1f}" + (f" [{n['low']:{sign}.1f}, {n['high']:{sign}.1f}]" if n["low"] is not None else "")
