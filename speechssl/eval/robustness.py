"""Run the robustness grid from the command line: encoders, tasks and noises by name; heads,
mixtures, scores, tables in one folder.

Each file is there or is made by the same command; a killed run goes on. Heads lie in out/heads. Of
another split than test, all else lies in out/<split>: scores that settings are chosen by are never
mixed with scores that are published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.artifacts import hold_output, write_json, write_text
from speechssl.augment import Distorter
from speechssl.data.records import synthetic_note
from speechssl.errors import InputError
from speechssl.eval.conditions import (
    Setting,
    check_conditions,
    freeze_mixtures,
    list_settings,
    name_utterances,
)
from speechssl.eval.grid import GridCell, run_grid
from speechssl.eval.grid_makers import MAKERS, Maker, load_tested
from speechssl.eval.grid_tasks import GridTask
from speechssl.eval.options import TEST, Robustness
from speechssl.options import noise_folders, parse_named
from speechssl.results import (
    CASCADE,
    LOWER_IS_BETTER,
    Row,
    Table,
    append_rows,
    choose_averaged_tasks,
    condition_name,
    drawn_sentence,
    interval_text,
    list_rows,
    markdown,
    nearest_snr,
    snr_note,
)
from speechssl.stats import (
    LEVEL,
    RESAMPLES,
    BootstrapUnits,
    Estimate,
    ItemScore,
    combine_estimates,
    common_units,
    find_shared_groups,
    holm,
    mean_estimate,
    resample_cells,
)

Task = tuple[str, str]  # name and metric
ON_DEV = (
    "Scored on the dev split, whose clean speech has chosen the learning rates and steps of the "
    "heads of ks, ic, sid and style: "
    "good for comparing settings, no test score."
)


def results_folder(o: Robustness) -> Path:
    return o.out if o.split == TEST else o.out / o.split


def evaluate_robustness(o: Robustness) -> list[dict[str, Any]]:
    """Fill the grid, print its tables, and return its rows. Raises InputError as `run_robustness`
    does."""
    with hold_output(o.out):
        print(run_robustness(o))
        return list_rows(results_folder(o))


def run_robustness(o: Robustness, makers: Mapping[str, Maker] = MAKERS) -> str:
    """Train the missing heads, freeze the noise, fill the grid, write rows, `degradation.json` and
    `tables.md`. Returns the tables.

    Heads go to the folder `o.out`, and so does all else where the split is test; of another split
    it goes to a folder of its name.

    Raises InputError for encoders, tasks, data or noises that cannot be had, before anything is
    trained where it can be known.
    """
    encoders = parse_named(o.encoders, "--encoders")
    data = {task: Path(where) for task, where in parse_named(o.tasks, "--tasks").items()}
    settings = list_settings(o.noise.seen, o.noise.unseen, o.noise.snr)
    if unknown := [task for task in data if task not in makers]:
        raise InputError(
            f"there is no task {unknown[0]!r}; choose from {', '.join(sorted(makers))}"
        )
    for task, where in data.items():
        if not where.exists():
            raise InputError(f"the data {where} of the task {task} does not exist; check the path")
    distorter = Distorter(o.seed, o.noise.voices, noise_folders(o.noise.noise), o.noise.snr_over)
    check_conditions(settings, distorter)
    under_test = [load_tested(name, where) for name, where in encoders.items()]
    for tested in under_test:
        tested.check(data, settings)

    trained: dict[str, list[GridTask]] = {}
    for tested in under_test:
        by_task = [
            makers[task](tested, where, o.out / "heads" / tested.name / task, o)
            for task, where in data.items()
        ]
        trained[tested.name] = [task for of_task in by_task for task in of_task]
    out = results_folder(o)
    utterances = name_utterances(
        (task.name, task.items) for tasks in trained.values() for task in tasks
    )
    recordings = {name: item.path for item, name in utterances.items()}
    mixtures = freeze_mixtures(
        distorter, recordings, [s.condition for s in settings], out / "noise.jsonl", o.workers
    )
    grid = draw_together(run_grid(trained, settings, out, mixtures, o.workers), o.seed)

    # of a head that was made again
    append_rows(out / "results.jsonl", make_rows(grid, distorter), any_card=True)
    return write_tables(o, grid, data)


def write_tables(o: Robustness, grid: Grid, data: Mapping[str, Path]) -> str:
    """Write degradation.json and tables.md, and return the tables as text. data: task -> where."""
    out = results_folder(o)
    values = degradation(grid) | {"dual_against_cascade": against_cascade(grid)}
    spoken = [task for task, where in data.items() if synthetic_note(where)]
    synthetic = f"Synthetic speech: {', '.join(spoken)}." if spoken else ""
    notes = [ON_DEV if o.split == "dev" else "", synthetic, snr_note(o.noise.snr_over)]
    lecture, *scores = score_tables(grid, o.noise.at)
    lecture, *tables = (
        replace(t, note=" ".join(filter(None, [t.note, *notes])))
        for t in (lecture, *degradation_tables(values), *scores)
    )
    write_json(out / "degradation.json", values | {"tables": [t.values for t in tables]})
    # the lecture's here alone: its cells have several lines
    write_text(out / "tables.md", markdown([lecture, *tables]))
    return "\n\n".join(table.text for table in tables)


# ---- what noise costs an encoder, and how much of what it costs the baseline another encoder saves

DEFINITIONS = """What noise costs an encoder, and how much of what it costs the baseline another
encoder saves.

Scores are rates: s(e, t, c) of encoder e in task t under condition c; b is the baseline. o is +1
where more is better and -1 where less is (error rates). Everything below is in points, which are
percent, or in percent of something.

    loss       L(e, t, c) = o (s(e, t, clean) - s(e, t, c))
               points that c costs e against its own clean speech
    relative   100 L(e, t, c) / s(e, t, clean)
               the same in percent of the clean score (or error)
    gain       o (s(e, t, c) - s(b, t, c))
               points by which e is better than b
    removed    100 (1 - L(e, t, c) / L(b, t, c))
               of b's loss, e against its own clean speech
    recovered  100 (1 - o (s(b, t, clean) - s(e, t, c)) / L(b, t, c))
               of b's loss, both against b's clean speech

`removed` can be had for nothing by an encoder that is bad in clean speech too; `recovered` cannot:
it is 100 where e in noise is as good as b in clean speech, and 0 where it is as good as b in noise.
They agree where both are equally good in clean speech. Averages over tasks and conditions give
every one of them the same weight, and are over all tasks: leaving out those in which the baseline
loses little on test would make the shares too great. Where it loses nothing in one of them, the
averaged shares are not defined, and the task is named. `pooled` is: it is `removed` of the losses
in points, added up over all tasks.

Relative robustness, for DUAL beside a cascade: 100 s(c) / s(clean), FF1 of a system under a
condition over its own in clean speech.

Intervals are 95 % paired cluster bootstraps (`stats.resample_cells`), p-values two-sided, and
adjusted by Holm over the cells of a task. Every task draws voices where `stats.choose_units` allows
it, and tasks that share a voice (by its name) draw it together; others are drawn each by itself.
The unit error compares an encoder with itself, so that one whose units never change loses nothing:
units stand in no average. """


@dataclass(frozen=True, eq=False)
class Grid:
    """The grid holds the scores of all cells as estimates that were drawn together. The first
    encoder is the baseline."""

    scores: Mapping[tuple[Task, str, Setting], Estimate]
    cells: Mapping[tuple[Task, str, Setting], GridCell]
    seed: int
    resamples: int = RESAMPLES

    @cached_property
    def tasks(self) -> list[Task]:
        return list(dict.fromkeys(task for task, _, _ in self.scores))

    @property
    def averaged(self) -> list[Task]:
        return choose_averaged_tasks(self.tasks)

    @cached_property
    def encoders(self) -> list[str]:
        return list(dict.fromkeys(encoder for _, encoder, _ in self.scores))

    @property
    def baseline(self) -> str:
        return self.encoders[0]

    @cached_property
    def settings(self) -> list[Setting]:
        """List clean speech first, then group by group and noise by noise, from the quietest to the
        loudest."""
        settings = list(dict.fromkeys(setting for _, _, setting in self.scores))
        order = {name: i for i, name in enumerate(dict.fromkeys(s.name for s in settings))}
        return sorted(
            settings, key=lambda s: (s.group != "clean", order[s.name], -(s.snr_db or 0.0))
        )

    @property
    def clean(self) -> Setting:
        return self.settings[0]

    @property
    def levels(self) -> list[list[Setting]]:
        """Group the conditions other than clean that belong together: of one group, at one SNR."""

        def level(setting: Setting) -> tuple[str, bool, float]:
            return setting.group, setting.snr_db is None, -(setting.snr_db or 0.0)

        return [
            list(members) for _, members in groupby(sorted(self.settings[1:], key=level), key=level)
        ]

    def has(self, task: Task, encoder: str) -> bool:
        return (task, encoder, self.clean) in self.scores

    def drawn(self, tasks: Sequence[Task]) -> str:
        """Return what intervals of these tasks draw, as a sentence."""
        names = {
            task: task[0] if [t[0] for t in tasks].count(task[0]) == 1 else " ".join(task)
            for task in tasks
        }
        return drawn_sentence(
            (names[task], e.unit, e.groups)
            for (task, _, _), e in self.scores.items()
            if task in names
        )


def draw_together(cells: Sequence[GridCell], seed: int, resamples: int = RESAMPLES) -> Grid:
    """Draw the items of every task together for all encoders and conditions, and tasks that share a
    voice with each other.

    What is drawn is chosen by task (`stats.choose_units`).
    """
    by_key = {((c.task, c.metric), c.encoder, c.setting): c for c in cells}
    of_task: dict[Task, dict[tuple[Task, str, Setting], Sequence[ItemScore]]] = {}
    for key, cell in by_key.items():
        of_task.setdefault(key[0], {})[key] = cell.scored
    name = {task: by_key[next(iter(task_cells))].unit for task, task_cells in of_task.items()}
    units: dict[Task, BootstrapUnits] = {}
    for task, task_cells in of_task.items():
        units[task] = common_units(task_cells, name[task])[1]
    together = find_shared_groups(units)
    scores: dict[tuple[Task, str, Setting], Estimate] = {}
    for task, task_cells in of_task.items():
        scores |= resample_cells(task_cells, seed, resamples, name[task], together[task])
    return Grid({key: scores[key] for key in by_key}, by_key, seed, resamples)


def make_rows(grid: Grid, distorter: Distorter = Distorter()) -> list[Row]:
    rows = []
    for (task, encoder, setting), score in grid.scores.items():
        cell, over = (
            grid.cells[task, encoder, setting],
            distorter.card(setting.condition).get("snr_over", ""),
        )
        cell_key = (*cell.method, encoder, setting.name, setting.snr_db, task[1])
        rows.append(Row.from_interval(score.interval, *cell_key, cell.seed, cell.card, over))
    return rows


# ---- quantities


def loss(
    grid: Grid, task: Task, encoder: str, setting: Setting, reference: str | None = None
) -> Estimate:
    """Return the points that the condition costs. reference: the encoder whose clean score counts;
    None: its own."""
    clean = grid.scores[task, reference or encoder, grid.clean]
    return combine_estimates(
        lambda a, b: 100 * sign(task) * (a - b), clean, grid.scores[task, encoder, setting]
    )


def relative(grid: Grid, task: Task, encoder: str, setting: Setting) -> Estimate | None:
    """Return the loss in percent of the clean score or error rate; None where that is 0."""
    clean = grid.scores[task, encoder, grid.clean]
    return (
        combine_estimates(lambda a, b: a / b, loss(grid, task, encoder, setting), clean)
        if clean.value
        else None
    )


def gain(grid: Grid, task: Task, encoder: str, setting: Setting) -> Estimate:
    base = grid.scores[task, grid.baseline, setting]
    return combine_estimates(
        lambda a, b: 100 * sign(task) * (a - b), grid.scores[task, encoder, setting], base
    )


def removed(
    grid: Grid, task: Task, encoder: str, setting: Setting, own_clean: bool = True
) -> Estimate:
    """Return `removed`, or with own_clean False `recovered`, in percent; NaN where the baseline
    loses nothing."""
    its_loss = loss(grid, task, encoder, setting, None if own_clean else grid.baseline)
    return combine_estimates(
        lambda a, b: 100 * (1 - a / b), its_loss, loss(grid, task, grid.baseline, setting)
    )


def sign(task: Task) -> int:
    """Return +1 where more is better, -1 where less is."""
    return -1 if task[1] in LOWER_IS_BETTER else 1


# ---- what goes into degradation.json


def describe_value(estimate: Estimate | None, times: float = 1) -> dict[str, float | None] | None:
    """Write value and interval as JSON has them, ends of None where one group has none; None for
    what is not defined."""
    if estimate is None or not np.isfinite(estimate.value):
        return None
    v = estimate.interval
    low, high = (times * v.low, times * v.high) if v.estimated else (None, None)
    return {"value": times * v.value, "low": low, "high": high}


def describe_test(estimate: Estimate) -> dict[str, float | None]:
    """Write the same with the p-value of its being 0."""
    return {**(describe_value(estimate) or {}), "p_value": estimate.p_value}


def degradation(grid: Grid) -> dict[str, Any]:
    """Measure everything, cell by cell, averaged over tasks, and DUAL beside the cascade. Numbers
    are points or percent."""
    # the encoders that did all averaged tasks, the baseline first; none where it did not
    complete = [e for e in grid.encoders if all(grid.has(task, e) for task in grid.averaged)]
    complete = complete if complete[:1] == [grid.baseline] else []
    return {
        "definitions": DEFINITIONS,
        "baseline": grid.baseline,
        "seed": grid.seed,
        "averaged_over": [list(task) for task in grid.averaged],
        "drawn": grid.drawn(grid.tasks),
        "cells": [cell for task in grid.tasks for cell in _cells(grid, task)],
        "averages": [average(grid, e, settings) for e in complete for settings in grid.levels]
        if grid.averaged
        else [],
        "clean": [clean_gain(grid, encoder) for encoder in complete[1:]],
    }


def _cells(grid: Grid, task: Task) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = []
    for e in [e for e in grid.encoders if grid.has(task, e)]:
        other = e != grid.baseline and grid.has(task, grid.baseline)
        for s in grid.settings:
            score, noisy = grid.scores[task, e, s], s != grid.clean
            cell: dict[str, Any] = {
                "task": task[0],
                "metric": task[1],
                "encoder": e,
                "group": s.group,
                "condition": s.name,
                "snr_db": s.snr_db,
                "n": score.n,
                "drawn": score.unit,
                "groups": score.groups,
                "failed": len(grid.cells[task, e, s].failed),
                "score": describe_value(score, 100),
            }
            cell |= dict.fromkeys(("loss", "relative", "gain", "removed", "recovered"))
            if noisy:
                cell["loss"] = describe_value(loss(grid, task, e, s))
                cell["relative"] = describe_value(relative(grid, task, e, s))
            if other:
                cell["gain"] = describe_test(gain(grid, task, e, s))
            if noisy and other:
                cell["removed"] = describe_value(removed(grid, task, e, s))
                cell["recovered"] = describe_value(removed(grid, task, e, s, own_clean=False))
            cells.append(cell)
    tests = [cell["gain"] for cell in cells if cell["gain"]]
    for test, adjusted in zip(tests, holm([t["p_value"] for t in tests]), strict=True):
        test["p_holm"] = adjusted
    return cells


def clean_gain(grid: Grid, encoder: str) -> dict[str, Any]:
    """Return what clean speech gains (or, below 0, loses) against the baseline: mean over the
    tasks, and the worst of them."""
    gains = {t: gain(grid, t, encoder, grid.clean) for t in grid.averaged}
    if not gains:
        return {"encoder": encoder, "gain": None, "worst": None}
    task, worst = min(gains.items(), key=lambda pair: pair[1].value)
    values = {"task": f"{task[0]} {task[1]}", **describe_test(worst)}
    return {
        "encoder": encoder,
        "gain": describe_value(mean_estimate(list(gains.values()))),
        "worst": values,
    }


def average(grid: Grid, encoder: str, settings: Sequence[Setting]) -> dict[str, Any]:
    """Return means over the tasks and these conditions, which are of one group and SNR."""
    every = [(t, s) for t in grid.averaged for s in settings]
    other = encoder != grid.baseline
    unhurt = dict.fromkeys(t for t, s in every if loss(grid, t, grid.baseline, s).value <= 0)
    share: dict[str, Any] = {"removed": None, "recovered": None}
    if other and not unhurt:
        for name in share:
            own_clean = name == "removed"
            parts = [removed(grid, t, encoder, s, own_clean) for t, s in every]
            share[name] = describe_value(mean_estimate(parts))
    lost, lost_by_baseline = (
        mean_estimate([loss(grid, t, e, s) for t, s in every]) for e in (encoder, grid.baseline)
    )
    pooled = combine_estimates(lambda a, b: 100 * (1 - a / b), lost, lost_by_baseline)
    return {
        "encoder": encoder,
        "group": settings[0].group,
        "snr_db": settings[0].snr_db,
        "conditions": [s.name for s in settings],
        "tasks": [f"{name} {metric}" for name, metric in grid.averaged],
        "unhurt": [f"{name} {metric}" for name, metric in unhurt],
        "loss": describe_value(lost),
        **share,
        "pooled": describe_value(pooled) if other else None,
    }


def against_cascade(grid: Grid) -> list[dict[str, Any]]:
    """Measure the relative robustness of every DUAL beside the cascades of its own encoder and of
    the baseline: in every condition, and averaged over the SNRs of one noise (`mean_over`, which
    spares the choice of an SNR). difference: DUAL's minus the cascade's, in points. Questions are
    drawn together for both systems and all conditions.
    """
    systems = [(t, e) for t in grid.tasks if t[1] == "ff1" for e in grid.encoders if grid.has(t, e)]
    lines: list[dict[str, Any]] = []
    for dual in [system for system in systems if system[0][0].startswith("dual")]:
        for cascade in [system for system in systems if system[0][0].startswith(CASCADE)]:
            if cascade[1] in (dual[1], grid.baseline):
                lines += _compare_pair(grid, dual, cascade)
    return lines


def _compare_pair(
    grid: Grid, dual: tuple[Task, str], cascade: tuple[Task, str]
) -> list[dict[str, Any]]:
    """Compare DUAL with a cascade in every noise and at every SNR. Both are a task and an
    encoder."""
    cells = {(of, s): grid.cells[*of, s].scored for of in (dual, cascade) for s in grid.settings}
    unit = grid.cells[*dual, grid.clean].unit
    scores = resample_cells(cells, grid.seed, grid.resamples, unit)
    kept = {}  # percent of a system's own clean FF1
    for of, setting in cells:
        both = scores[of, setting], scores[of, grid.clean]
        kept[of, setting] = combine_estimates(lambda a, b: 100 * a / b, *both)
    lines = []
    for name, members in groupby(grid.settings[1:], key=lambda s: s.name):
        settings = list(members)
        places = [(s.snr_db, [s]) for s in settings]
        if len(settings) > 1:  # and the mean over the SNRs
            places.append((None, settings))
        for snr, over in places:
            first, second = (mean_estimate([kept[of, s] for s in over]) for of in (dual, cascade))
            lines.append(
                {
                    "dual": dual[0][0],
                    "dual_encoder": dual[1],
                    "cascade": cascade[0][0],
                    "cascade_encoder": cascade[1],
                    "condition": name,
                    "snr_db": snr,
                    "mean_over": [s.snr_db for s in over],
                    "dual_relative": describe_value(first),
                    "cascade_relative": describe_value(second),
                    "difference": describe_test(combine_estimates(np.subtract, first, second)),
                }
            )
    return lines


# ---- tables of scores: the lecture's (encoders x tasks, clean | seen | unseen), and what lies
# behind it
#
# A star marks a score that differs from the baseline's in the same column (p < 0.05, two-sided, by
# Holm's procedure over all such tests of the table). A column is the mean over its conditions.

Columns = Mapping[str, Sequence[Setting]]
Place = tuple[str, ...]  # task, metric, encoder and column


def lecture_columns(grid: Grid, at: float) -> dict[str, list[Setting]]:
    """Choose the columns: clean, and every group at the SNR that lies nearest to `at` (dB); a group
    without SNRs as it is."""
    columns = {"clean": [grid.clean]}
    for group in dict.fromkeys(s.group for s in grid.settings[1:]):
        best = nearest_snr((s for s in grid.settings[1:] if s.group == group), at)
        columns[condition_name(group, best[0].snr_db)] = best
    return columns


def score_tables(grid: Grid, at: float) -> list[Table]:
    """Make the lecture's table, its scores again with a line an encoder in a task, and for each
    task all conditions.

    The lecture has a line an encoder and a column a task, clean above seen above unseen in every
    cell: for Markdown.
    """
    columns = lecture_columns(grid, at)
    cells = _score_cells(grid, grid.tasks, columns)
    lecture = []
    for e in grid.encoders:
        line = [
            "<br>".join(cells[*t, e, c] for c in columns) if grid.has(t, e) else "-"
            for t in grid.tasks
        ]
        lecture.append((e, *line))
    head = ("encoder", *(f"{task} {metric}" for task, metric in grid.tasks))
    tables = [
        Table(
            f"Encoders and tasks: {', '.join(columns)}",
            head,
            tuple(lecture),
            _note(grid, grid.tasks),
        )
    ]

    over = []
    for name, settings in list(columns.items())[1:]:
        noises = [s.name.removeprefix(f"{s.group}-") for s in settings]
        over.append(f"{name}: {'mean of ' if len(noises) > 1 else ''}{', '.join(noises)}")
    places = [(t, e) for t in grid.tasks for e in grid.encoders if grid.has(t, e)]
    one_task = len(grid.tasks) == 1
    title, first = (
        (f"Clean, seen and unseen: {'; '.join(over)}"),
        "encoder" if one_task else "task, encoder",
    )
    rows = [
        (e if one_task else f"{t[0]} {t[1]}, {e}", *(cells[*t, e, c] for c in columns))
        for t, e in places
    ]
    tables.append(Table(title, (first, *columns), tuple(rows), _note(grid, grid.tasks)))

    every = {s.label: [s] for s in grid.settings}
    for task in grid.tasks:
        cells = _score_cells(grid, [task], every)
        rows = [(e, *(cells[*t, e, c] for c in every)) for t, e in places if t == task]
        tables.append(
            Table(f"{task[0]}, {task[1]}", ("encoder", *every), tuple(rows), _note(grid, [task]))
        )
    return tables


def _score_cells(grid: Grid, tasks: Sequence[Task], columns: Columns) -> dict[Place, str]:
    """Write value, interval, and a star where it differs from the baseline's."""
    scores: dict[Place, Estimate] = {}
    tests: dict[Place, Estimate] = {}
    for task, encoder in ((t, e) for t in tasks for e in grid.encoders if grid.has(t, e)):
        for column, settings in columns.items():
            place = (*task, encoder, column)
            scores[place] = mean_estimate([grid.scores[task, encoder, s] for s in settings])
            if encoder != grid.baseline and grid.has(task, grid.baseline):
                tests[place] = mean_estimate([gain(grid, task, encoder, s) for s in settings])
    p_values = holm([test.p_value for test in tests.values()])
    stars = {place for place, p in zip(tests, p_values, strict=True) if p < 1 - LEVEL}
    return {
        place: interval_text(score.interval.percent) + "*" * (place in stars)
        for place, score in scores.items()
    }


def _note(grid: Grid, tasks: Sequence[Task]) -> str:
    lower = [metric for _, metric in tasks if metric in LOWER_IS_BETTER]
    if len(lower) == len(tasks):
        better = "less is better"
    else:
        better = (
            (f"more is better, but for {', '.join(dict.fromkeys(lower))}")
            if lower
            else "more is better"
        )
    return (
        f"Percent; {better}. {grid.drawn(tasks)} * differs from the baseline, p < 0.05, by "
        "Holm's procedure over this table."
    )


# ---- tables of what noise costs


def degradation_tables(values: Mapping[str, Any]) -> list[Table]:
    """Make tables of what `degradation` and `against_cascade` give: averages over tasks, clean
    speech, DUAL beside the cascade."""
    of_baseline = [a for a in values["averages"] if a["encoder"] == values["baseline"]]
    base = {(a["group"], a["snr_db"]): a["loss"] for a in of_baseline}
    shares = []
    for a in values["averages"]:
        if a["encoder"] != values["baseline"]:
            lost = [base[a["group"], a["snr_db"]], a["loss"]]
            intervals = [*lost, a["removed"], a["recovered"], a["pooled"]]
            noise = condition_name(a["group"], a["snr_db"])
            texts = (interval_text(n, missing="-") for n in intervals)
            shares.append((a["encoder"], noise, *texts))
    note = (
        "Means over all tasks. removed: share of the baseline's loss, each against its own clean "
        "speech; recovered: both against "
        "the baseline's clean speech; pooled: removed, of the losses in points added "
        "up. " + values["drawn"]
    ).strip()
    if unhurt := sorted({task for a in values["averages"] for task in a["unhurt"]}):
        note += (
            " Somewhere the baseline loses nothing, so that mean shares are not defined: "
            f"{', '.join(unhurt)}."
        )
    columns = (
        "encoder",
        "noise",
        "baseline loses",
        "it loses",
        "removed %",
        "recovered %",
        "pooled %",
    )

    clean = []
    for x in values["clean"]:
        if x["worst"]:
            mean, worst = (interval_text(x[name], "+", "-") for name in ("gain", "worst"))
            clean.append((x["encoder"], mean, f"{x['worst']['task']}: {worst}"))
    clean_note = (
        "Points by which it is better than the baseline in clean speech (below 0: "
        f"worse). {values['drawn']}"
    ).strip()
    tables = [
        Table("Loss in noise, averaged over tasks (points)", columns, tuple(shares), note),
        Table(
            "Clean speech", ("encoder", "mean over tasks", "worst task"), tuple(clean), clean_note
        ),
        _against_cascade(values.get("dual_against_cascade", [])),
    ]
    return [table for table in tables if table.rows]


def _against_cascade(lines: Sequence[Mapping[str, Any]]) -> Table:
    """Make a table: a line a pair in one noise, a column an SNR."""
    pairs: dict[tuple[str, ...], dict[float | None, Mapping[str, Any]]] = {}
    for x in lines:
        place = (
            f"{x['dual']}, {x['dual_encoder']}",
            f"{x['cascade']}, {x['cascade_encoder']}",
            x["condition"],
        )
        pairs.setdefault(place, {})[x["snr_db"]] = x
    ratios = sorted({x["snr_db"] for x in lines if x["snr_db"] is not None}, reverse=True)

    def cell(line: Mapping[str, Any] | None) -> str:
        if not line or "value" not in line["difference"]:
            return "-"
        dual, cascade = (
            f"{n['value']:.1f}" if (n := line[name]) else "-"
            for name in ("dual_relative", "cascade_relative")
        )
        star = "*" if line["difference"]["p_value"] < 1 - LEVEL else ""
        return f"{dual} - {cascade} = {interval_text(line['difference'], '+')}{star}"

    rows = tuple(
        (*place, *(cell(by_snr.get(snr)) for snr in (*ratios, None)))
        for place, by_snr in pairs.items()
    )
    columns = (
        "DUAL",
        "cascade",
        "noise",
        *(f"{snr:g} dB" for snr in ratios),
        "mean, or without SNR",
    )
    note = (
        "FF1 in percent of the system's own FF1 in clean speech: DUAL's - the cascade's = "
        "difference in points with its interval; "
        "the questions are drawn together. * p < 0.05, not corrected."
    )
    return Table("What DUAL and the cascade keep of their clean FF1", columns, rows, note)
