"""The robustness grid from the command line: encoders, tasks and noises by name; heads, mixtures, scores, tables in one folder.

    out/heads/<encoder>/<task>/      what was trained, on clean speech
    out/noise.jsonl                  the mixtures, frozen before anything is encoded
    out/scores/<encoder>/<task>/     a file a condition, item by item
    out/results.jsonl                a row a cell
    out/degradation.json, tables.md  what noise costs, and how much of it an encoder saves

Each is there or is made by the same command; a killed run goes on. On another split than test, all but the heads lies in
out/<split>: scores that settings are chosen by are never mixed with scores that are published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from speechssl.augment import Distorter
from speechssl.config import noise_folders, parse_named
from speechssl.data.records import synthetic_note
from speechssl.errors import InputError
from speechssl.eval.config import Robustness
from speechssl.eval.degradation import Grid, Task, against_cascade, degradation, gain, gather, rows_of
from speechssl.eval.grid import GridTask, Setting, freeze_mixtures, name_utterances, run_grid, settings_of
from speechssl.eval.grid_tasks import MAKERS, TEST, Maker, load_tested
from speechssl.eval.run import check_conditions
from speechssl.eval.tables import Table, condition_name, interval_text, markdown
from speechssl.io import write_json, write_text
from speechssl.results import LOWER_IS_BETTER, append_rows
from speechssl.signal import snr_note
from speechssl.stats import LEVEL, Estimate, holm, mean_of

ON_DEV = (
    "Scored on the dev split, whose clean speech has chosen the learning rates and steps of the heads of ks, ic, sid and style: "
    "good for comparing settings, no test score."
)


def run_robustness(o: Robustness, makers: Mapping[str, Maker] = MAKERS) -> str:
    """Train the missing heads, freeze the noise, fill the grid, write rows, `degradation.json` and `tables.md`. Returns the tables.

    Heads go to the folder `o.out`, and so does all else where the split is test; of another split it goes to a folder of its name.

    Raises InputError for encoders, tasks, data or noises that cannot be had, before anything is trained where it can be known.
    """
    encoders = parse_named(o.encoders, "--encoders")
    data = {task: Path(where) for task, where in parse_named(o.tasks, "--tasks").items()}
    settings = settings_of(o.seen, o.unseen, o.snr)
    if len(settings) == 1:
        raise InputError("the grid has no noise; name a condition with --seen or --unseen")
    if not re.fullmatch(r"[\w-][\w.-]*", o.split) or o.split in ("heads", "scores"):
        raise InputError(f"the split's name {o.split!r} cannot name a folder; choose train, dev, test or another of the corpus")
    if unknown := [task for task in data if task not in makers]:
        raise InputError(f"there is no task {unknown[0]!r}; choose from {', '.join(sorted(makers))}")
    for name in encoders:
        if name.startswith(".") or "/" in name or "\\" in name:
            raise InputError(f"the encoder's name {name!r} cannot name a folder; choose one without slashes")
    for task, where in data.items():
        if not where.exists():
            raise InputError(f"the data {where} of the task {task} does not exist; check the path")
    distorter = Distorter(o.seed, o.voices, noise_folders(o.noise), o.snr_over)
    check_conditions(settings, distorter)
    under_test = [load_tested(name, where) for name, where in encoders.items()]
    for tested in under_test:
        tested.check(data, settings)

    trained: dict[str, list[GridTask]] = {}
    for tested in under_test:
        made = [makers[task](tested, where, o.out / "heads" / tested.name / task, o) for task, where in data.items()]
        trained[tested.name] = [task for some in made for task in some]
    out = o.out if o.split == TEST else o.out / o.split
    utterances = name_utterances((task.name, task.items) for tasks in trained.values() for task in tasks)
    recordings = {name: item.path for item, name in utterances.items()}
    mixtures = freeze_mixtures(distorter, recordings, [s.condition for s in settings], out / "noise.jsonl", o.workers)
    grid = gather(run_grid(trained, settings, out, mixtures, o.workers), o.seed)

    append_rows(out / "results.jsonl", rows_of(grid), any_card=True)  # of a head that was made again
    values = degradation(grid) | {"dual_against_cascade": against_cascade(grid)}
    spoken = [task for task, where in data.items() if synthetic_note(where)]
    synthetic = f"Synthetic speech: {', '.join(spoken)}." if spoken else ""
    notes = [ON_DEV if o.split == "dev" else "", synthetic, snr_note(o.snr_over)]
    lecture = lecture_table(grid, o.at, o.holm)
    found = [lecture, *degradation_tables(values), *score_tables(grid, o.at, o.holm)]
    noted = [replace(t, note=" ".join(filter(None, [t.note, *notes]))) for t in found]
    tables = noted[1:]  # the lecture's stands in Markdown alone: its cells have several lines
    write_json(out / "degradation.json", values | {"tables": [t.values for t in tables]})
    write_text(out / "tables.md", markdown(noted))
    return "\n\n".join(table.text for table in tables)


# ---- tables of scores: the lecture's (encoders x tasks, clean | seen | unseen), and what lies behind it
#
# A star marks a score that differs from the baseline's in the same column (p < 0.05, two-sided; by Holm's procedure over all such
# tests of the table, where that is asked for). A column is the mean over its conditions.

Columns = Mapping[str, Sequence[Setting]]
Place = tuple[str, ...]  # task, metric, encoder and column


def lecture_columns(grid: Grid, at: float) -> dict[str, list[Setting]]:
    """Clean, and every group at the SNR that lies nearest to `at` (dB); a group without SNRs as it is."""
    columns = {"clean": [grid.clean]}
    for group in dict.fromkeys(s.group for s in grid.settings[1:]):
        mine = [found for found in grid.levels if found[0].group == group]
        ratios = [found for found in mine if found[0].snr_db is not None]
        best = min(ratios or mine, key=lambda found: abs((found[0].snr_db or 0.0) - at))
        columns[condition_name(group, best[0].snr_db)] = best
    return columns


def lecture_table(grid: Grid, at: float, corrected: bool) -> Table:
    """As the lecture has it: a line an encoder, a column a task, clean above seen above unseen in every cell."""
    columns = lecture_columns(grid, at)
    cells = _score_cells(grid, grid.tasks, columns, corrected)
    rows = [
        (e, *("<br>".join(cells.get((*t, e, c), "-") for c in columns) if grid.has(t, e) else "-" for t in grid.tasks))
        for e in grid.encoders
    ]
    head = ("encoder", *(f"{task} {metric}" for task, metric in grid.tasks))
    return Table(f"Encoders and tasks: {', '.join(columns)}", head, tuple(rows), _note(grid, grid.tasks, corrected))


def score_tables(grid: Grid, at: float, corrected: bool) -> list[Table]:
    """The lecture's table, a line an encoder in a task, and for each task all conditions."""
    columns = lecture_columns(grid, at)
    over = []
    for name, settings in list(columns.items())[1:]:
        noises = [s.name.removeprefix(f"{s.group}-") for s in settings]
        over.append(f"{name}: {'mean of ' if len(noises) > 1 else ''}{', '.join(noises)}")
    every = {s.label: [s] for s in grid.settings}
    wanted: list[tuple[Sequence[Task], Columns, str]] = [(grid.tasks, columns, f"Clean, seen and unseen: {'; '.join(over)}")]
    wanted += [([task], every, f"{task[0]}, {task[1]}") for task in grid.tasks]
    tables = []
    for tasks, some, title in wanted:
        cells, several = _score_cells(grid, tasks, some, corrected), len(tasks) > 1
        rows = [
            ((f"{t[0]} {t[1]}, {e}" if several else e), *(cells[(*t, e, c)] for c in some))
            for t in tasks
            for e in grid.encoders
            if grid.has(t, e)
        ]
        head = ("task, encoder" if several else "encoder", *some)
        tables.append(Table(title, head, tuple(rows), _note(grid, tasks, corrected)))
    return tables


def _score_cells(grid: Grid, tasks: Sequence[Task], columns: Columns, corrected: bool) -> dict[Place, str]:
    """Value, interval, and a star where it differs from the baseline's."""
    scores: dict[Place, Estimate] = {}
    tests: dict[Place, Estimate] = {}
    for t, e, c in ((t, e, c) for t in tasks for e in grid.encoders if grid.has(t, e) for c in columns):
        scores[*t, e, c] = mean_of([grid.scores[t, e, s] for s in columns[c]])
        if e != grid.baseline and grid.has(t, grid.baseline):
            tests[*t, e, c] = mean_of([gain(grid, t, e, s) for s in columns[c]])
    p_values = [test.p_value for test in tests.values()]
    stars = {place for place, p in zip(tests, holm(p_values) if corrected else p_values, strict=True) if p < 1 - LEVEL}
    return {place: interval_text(score.interval.percent) + "*" * (place in stars) for place, score in scores.items()}


def _note(grid: Grid, tasks: Sequence[Task], corrected: bool) -> str:
    lower = [metric for _, metric in tasks if metric in LOWER_IS_BETTER]
    if len(lower) == len(tasks):
        better = "less is better"
    else:
        better = f"more is better, but for {', '.join(dict.fromkeys(lower))}" if lower else "more is better"
    how = "by Holm's procedure over this table" if corrected else "not corrected for the number of tests"
    return f"Percent; {better}. {grid.drawn(tasks)} * differs from the baseline, p < 0.05, {how}."


# ---- tables of what noise costs


def degradation_tables(values: Mapping[str, Any]) -> list[Table]:
    """From what `degradation` and `against_cascade` give: averages over tasks, clean speech, DUAL beside the cascade."""
    shares, base = [], {(a["group"], a["snr_db"]): a["loss"] for a in values["averages"] if a["encoder"] == values["baseline"]}
    for a in values["averages"]:
        if a["encoder"] != values["baseline"]:
            found = [base[a["group"], a["snr_db"]], *(a[name] for name in ("loss", "removed", "recovered", "pooled"))]
            noise = condition_name(a["group"], a["snr_db"])
            shares.append((a["encoder"], noise, *(interval_text(n, missing="-") for n in found)))
    note = (
        "Means over the tasks. removed: share of the baseline's loss, each against its own clean speech; recovered: both against "
        "the baseline's clean speech; pooled: removed, of the losses in points added up. " + values["drawn"]
    ).strip()
    if left := sorted({task for a in values["averages"] for task in a["left_out"]}):
        note += f" Somewhere the baseline's loss was not certain, and the task left out of the shares: {', '.join(left)}."
    columns = ("encoder", "noise", "baseline loses", "it loses", "removed %", "recovered %", "pooled %")

    clean = [
        (x["encoder"], interval_text(x["gain"], "+", "-"), f"{x['worst']['task']}: {interval_text(x['worst'], '+', '-')}")
        for x in values["clean"]
        if x["worst"]
    ]
    clean_note = f"Points by which it is better than the baseline in clean speech (below 0: worse). {values['drawn']}".strip()
    found = [
        Table("Loss in noise, averaged over tasks (points)", columns, tuple(shares), note),
        Table("Clean speech", ("encoder", "mean over tasks", "worst task"), tuple(clean), clean_note),
        _against_cascade(values.get("dual_against_cascade", [])),
    ]
    return [table for table in found if table.rows]


def _against_cascade(lines: Sequence[Mapping[str, Any]]) -> Table:
    """A line a pair in one noise, a column an SNR."""
    pairs: dict[tuple[str, ...], dict[float | None, Mapping[str, Any]]] = {}
    for x in lines:
        place = (f"{x['dual']}, {x['dual_encoder']}", f"{x['cascade']}, {x['cascade_encoder']}", x["condition"])
        pairs.setdefault(place, {})[x["snr_db"]] = x
    ratios = sorted({x["snr_db"] for x in lines if x["snr_db"] is not None}, reverse=True)

    def cell(line: Mapping[str, Any] | None) -> str:
        if not line or "value" not in line["difference"]:
            return "-"
        dual, cascade = (f"{n['value']:.1f}" if (n := line[name]) else "-" for name in ("dual_relative", "cascade_relative"))
        star = "*" if line["difference"]["p_value"] < 1 - LEVEL else ""
        return f"{dual} - {cascade} = {interval_text(line['difference'], '+')}{star}"

    rows = tuple((*place, *(cell(found.get(snr)) for snr in (*ratios, None))) for place, found in pairs.items())
    columns = ("DUAL", "cascade", "noise", *(f"{snr:g} dB" for snr in ratios), "mean, or without SNR")
    note = (
        "FF1 in percent of the system's own FF1 in clean speech: DUAL's - the cascade's = difference in points with its interval; "
        "the questions are drawn together. * p < 0.05, not corrected."
    )
    return Table("What DUAL and the cascade keep of their clean FF1", columns, rows, note)
