"""The tables of the robustness grid: the lecture's (encoders x tasks, clean | seen | unseen), and what lies behind it.

They go to the terminal, to `tables.md` and, as they are, into the report. A star marks a score that differs from the baseline's in
the same column (p < 0.05, two-sided; by Holm's procedure over all such tests of the table, where that is asked for).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speechssl.bootstrap import LEVEL
from speechssl.evaluation.degradation import Grid, Task, drawn, gain, levels
from speechssl.evaluation.grid import Setting
from speechssl.evaluation.resampling import Estimate, holm, mean_of
from speechssl.evaluation.results import LOWER_IS_BETTER, aligned

Numbers = Mapping[str, Any] | None
Place = tuple[str, ...]  # names of a line and a column


@dataclass(frozen=True)
class TextTable:
    """rows: as many texts as columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    @property
    def text(self) -> str:
        return "\n".join(filter(None, [self.title, aligned([self.columns, *self.rows]), self.note]))

    @property
    def markdown(self) -> str:
        lines = [self.columns, ("---",) + ("---:",) * (len(self.columns) - 1), *self.rows]
        body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return "\n\n".join(filter(None, [f"### {self.title}", body, self.note]))


@dataclass(frozen=True)
class Columns:
    """Conditions that make one column of the lecture's table: the mean over them is shown."""

    name: str
    settings: tuple[Setting, ...]


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


def score_tables(grid: Grid, at: float, corrected: bool) -> list[TextTable]:
    """The lecture's table, a line an encoder in a task, and for each task all conditions."""
    names = lecture_columns(grid, at)
    over = "; ".join(f"{c.name}: {_listed(c.settings)}" for c in names[1:])
    every = [Columns(s.label, (s,)) for s in grid.settings]
    tables = [_scores(grid, grid.tasks, names, f"Clean, seen and unseen: {over}", corrected)]
    return tables + [_scores(grid, [task], every, f"{task[0]}, {task[1]}", corrected) for task in grid.tasks]


def lecture_markdown(grid: Grid, at: float, corrected: bool) -> str:
    """As the lecture has it: a line an encoder, a column a task, clean above seen above unseen in every cell."""
    names = lecture_columns(grid, at)
    cells = _score_cells(grid, grid.tasks, names, corrected)
    head = ["encoder", *(f"{task} {metric}" for task, metric in grid.tasks)]
    rows = [
        [e, *("<br>".join(cells.get((*t, e, c.name), "-") for c in names) if grid.has(t, e) else "-" for t in grid.tasks)]
        for e in grid.encoders
    ]
    table = TextTable(f"Encoders and tasks: {', '.join(c.name for c in names)}", tuple(head), tuple(map(tuple, rows)))
    return table.markdown + f"\n\n{_note(grid, grid.tasks, corrected)}"


def degradation_tables(values: Mapping[str, Any]) -> list[TextTable]:
    """From what `degradation` and `against_cascade` give: averages over tasks, clean speech, DUAL beside the cascade."""
    found = [_shares(values), _clean(values), _retained(values.get("dual_against_cascade", []))]
    return [table for table in found if table.rows]


# ---- scores


def _scores(grid: Grid, tasks: Sequence[Task], columns: Sequence[Columns], title: str, corrected: bool) -> TextTable:
    cells = _score_cells(grid, tasks, columns, corrected)
    rows = [
        ((f"{task[0]} {task[1]}, {e}" if len(tasks) > 1 else e), *(cells[(*task, e, c.name)] for c in columns))
        for task in tasks
        for e in grid.encoders
        if grid.has(task, e)
    ]
    first = "task, encoder" if len(tasks) > 1 else "encoder"
    return TextTable(title, (first, *(c.name for c in columns)), tuple(rows), _note(grid, tasks, corrected))


def _score_cells(grid: Grid, tasks: Sequence[Task], columns: Sequence[Columns], corrected: bool) -> dict[Place, str]:
    """By task, metric, encoder and column: value, interval, and a star where it differs from the baseline's."""
    keys = [(t, e, c) for t in tasks for e in grid.encoders if grid.has(t, e) for c in columns]
    scores = {(*t, e, c.name): mean_of([grid.score(t, e, s) for s in c.settings]) for t, e, c in keys}
    tests: dict[Place, Estimate] = {
        (*t, e, c.name): mean_of([gain(grid, t, e, s) for s in c.settings])
        for t, e, c in keys
        if e != grid.baseline and grid.has(t, grid.baseline)
    }
    stars = significant(tests, corrected)
    return {place: f"{_cell(score)}{'*' if place in stars else ''}" for place, score in scores.items()}


def significant(tests: Mapping[Place, Estimate], corrected: bool) -> set[Place]:
    """Which of a family of quantities are not 0. corrected: by Holm's procedure over the family."""
    p_values = [test.p_value for test in tests.values()]
    adjusted = holm(p_values) if corrected else p_values
    return {place for place, p in zip(tests, adjusted, strict=True) if p < 1 - LEVEL}


def _cell(score: Estimate) -> str:
    v = score.interval.percent
    return f"{v.value:.1f}" + (f" [{v.low:.1f}, {v.high:.1f}]" if v.estimated else "")


def _note(grid: Grid, tasks: Sequence[Task], corrected: bool) -> str:
    kinds = {metric in LOWER_IS_BETTER for _, metric in tasks}
    lower = ", ".join(dict.fromkeys(metric for _, metric in tasks if metric in LOWER_IS_BETTER))
    better = {frozenset({True}): "less is better", frozenset({False}): "more is better"}.get(
        frozenset(kinds), f"more is better, but for {lower}"
    )
    how = "by Holm's procedure over this table" if corrected else "not corrected for the number of tests"
    return f"Percent; {better}. {drawn(grid, tasks)} * differs from the baseline, p < 0.05, {how}."


def _listed(settings: Sequence[Setting]) -> str:
    names = [s.name.removeprefix(f"{s.group}-") for s in settings]
    return names[0] if len(names) == 1 else f"mean of {', '.join(names)}"


# ---- degradation


def _shares(values: Mapping[str, Any]) -> TextTable:
    base = {(a["group"], a["snr_db"]): a["loss"] for a in values["averages"] if a["encoder"] == values["baseline"]}
    others = [a for a in values["averages"] if a["encoder"] != values["baseline"]]
    lines = [_share(a, base[a["group"], a["snr_db"]]) for a in others]
    left = sorted({task for a in values["averages"] for task in a["left_out"]})
    columns = ("encoder", "noise", "baseline loses", "it loses", "removed %", "recovered %", "pooled %")
    note = (
        "Means over the tasks. removed: share of the baseline's loss, each against its own clean speech; recovered: both against "
        "the baseline's clean speech; pooled: removed, of the losses in points added up. " + values["drawn"]
    ).strip()
    kept = (
        f" Somewhere the baseline's loss was not certain, and the task left out of the shares: {', '.join(left)}." if left else ""
    )
    return TextTable("Loss in noise, averaged over tasks (points)", columns, tuple(lines), note + kept)


def _share(a: Mapping[str, Any], base: Numbers) -> tuple[str, ...]:
    noise = a["group"] if a["snr_db"] is None else f"{a['group']} {a['snr_db']:g} dB"
    return a["encoder"], noise, _signed(base), *(_signed(a[name]) for name in ("loss", "removed", "recovered", "pooled"))


def _clean(values: Mapping[str, Any]) -> TextTable:
    rows = tuple(
        (line["encoder"], _signed(line["gain"], "+"), f"{line['worst']['task']}: {_signed(line['worst'], '+')}")
        for line in values["clean"]
        if line["worst"]
    )
    note = f"Points by which it is better than the baseline in clean speech (below 0: worse). {values['drawn']}".strip()
    return TextTable("Clean speech", ("encoder", "mean over tasks", "worst task"), rows, note)


def _retained(lines: Sequence[Mapping[str, Any]]) -> TextTable:
    """A line a pair in one noise, a column an SNR."""
    pairs: dict[Place, dict[float | None, Mapping[str, Any]]] = {}
    for x in lines:
        place = (f"{x['dual']}, {x['dual_encoder']}", f"{x['cascade']}, {x['cascade_encoder']}", x["condition"])
        pairs.setdefault(place, {})[x["snr_db"]] = x
    ratios = sorted({x["snr_db"] for x in lines if x["snr_db"] is not None}, reverse=True)
    rows = tuple((*place, *(_kept(found.get(snr)) for snr in (*ratios, None))) for place, found in pairs.items())
    columns = ("DUAL", "cascade", "noise", *(f"{snr:g} dB" for snr in ratios), "mean, or without SNR")
    note = (
        "FF1 in percent of the system's own FF1 in clean speech: DUAL's - the cascade's = difference in points with its interval; "
        "the questions are drawn together. * p < 0.05, not corrected."
    )
    return TextTable("What DUAL and the cascade keep of their clean FF1", columns, rows, note)


def _kept(line: Mapping[str, Any] | None) -> str:
    if not line or "value" not in line["difference"]:
        return "-"
    star = "*" if line["difference"]["p_value"] < 1 - LEVEL else ""
    return f"{_short(line['dual_retained'])} - {_short(line['cascade_retained'])} = {_signed(line['difference'], '+')}{star}"


def _signed(n: Numbers, sign: str = "") -> str:
    if not n or "value" not in n:
        return "-"
    return f"{n['value']:{sign}.1f}" + (f" [{n['low']:{sign}.1f}, {n['high']:{sign}.1f}]" if n["low"] is not None else "")


def _short(n: Numbers) -> str:
    return f"{n['value']:.1f}" if n else "-"


def page_of(tables: Sequence[TextTable], lecture: str) -> str:
    """The Markdown of all tables."""
    return "\n\n".join([lecture, *(table.markdown for table in tables)]) + "\n"
