"""Measure how many points noise costs an encoder, and how much less it costs than the baseline.

Scores are rates: s(e, t, c) of encoder e in task t under condition c; b is the baseline. o is +1
where more is better and -1 where less is better (error rates). Values are in percentage points, or
in percent of another quantity.

    loss       L(e, t, c) = o (s(e, t, clean) - s(e, t, c))
               points that e loses under c against its own clean speech
    gain       o (s(e, t, c) - s(b, t, c))
               points by which e is better than b
    removed    100 (1 - L(e, t, c) / L(b, t, c))
               percent of b's loss, e against its own clean speech
    recovered  100 (1 - o (s(b, t, clean) - s(e, t, c)) / L(b, t, c))
               percent of b's loss, both against b's clean speech

An encoder that is also bad in clean speech easily gets a high `removed`, not a high `recovered`:
this is 100 where e in noise is as good as b in clean speech, and 0 where it is as good as b in
noise. They agree where both are equally good in clean speech. Averages give the same weight to all
tasks of `choose_averaged_tasks` and to all conditions. No task is left out because the baseline
loses little in it, which would make the shares too large. Where the baseline loses nothing in a
task, the averaged shares are not defined, and the task is named.

The relative robustness of DUAL and of a cascade is 100 s(c) / s(clean): FF1 of a system under a
condition over its own FF1 in clean speech.

Intervals are 95 % paired cluster bootstraps (`stats.resample_cells`); p-values are two-sided, and
adjusted by Holm over the cells of a table. Every task draws voices where `stats.choose_units`
allows it; tasks that share a voice (by its name) draw it together, other tasks draw independently.
The unit error compares an encoder with itself, so that an encoder whose units never change loses
nothing: units are in no average.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, product
from typing import Any, TypeVar

import numpy as np

from speechssl.eval.conditions import Setting
from speechssl.results import (
    CASCADE,
    LOWER_IS_BETTER,
    Table,
    choose_averaged_tasks,
    choose_nearest_snr,
    describe_drawn,
    format_interval,
    name_condition,
)
from speechssl.stats import (
    LEVEL,
    RESAMPLES,
    Estimate,
    ItemScore,
    average_estimates,
    combine_estimates,
    find_common_units,
    find_shared_groups,
    holm,
    resample_cells,
)

K = TypeVar("K", bound=Hashable)
TaskMetric = tuple[str, str]  # name and metric
Cell = tuple[TaskMetric, str, Setting]  # task, encoder, setting


def draw_together(
    tasks: Mapping[str | TaskMetric, Mapping[K, Sequence[ItemScore]]],
    units: Mapping[str | TaskMetric, str],
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[K, Estimate]:
    """Estimate the score of every cell. The items of a task are drawn together for all its cells;
    tasks that share a voice draw it together.

    tasks: the cells of each task with their items; units: the name of `ItemScore.group` in each
    task, such as "passage".
    """
    bootstrap_units = {}
    for task, cells in tasks.items():
        _, bootstrap_units[task] = find_common_units(cells, units[task])
    shared_groups = find_shared_groups(bootstrap_units)
    scores: dict[K, Estimate] = {}
    for task, cells in tasks.items():
        scores |= resample_cells(cells, seed, resamples, units[task], shared_groups[task])
    return scores


@dataclass(frozen=True, eq=False)
class Grid:
    """A grid has the scores of encoders in tasks under conditions. The first encoder is the
    baseline."""

    items: Mapping[Cell, Sequence[ItemScore]]
    units: Mapping[TaskMetric, str]  # `ItemScore.group` of each task: "passage", "recording"
    seed: int = 0
    resamples: int = RESAMPLES

    @cached_property
    def scores(self) -> dict[Cell, Estimate]:
        """Estimate the score of every cell."""
        tasks: dict[Any, dict[Cell, Sequence[ItemScore]]] = {task: {} for task in self.tasks}
        for cell, items in self.items.items():
            tasks[cell[0]][cell] = items
        return draw_together(tasks, dict(self.units), self.seed, self.resamples)

    @cached_property
    def tasks(self) -> list[TaskMetric]:
        return list(dict.fromkeys(task for task, _, _ in self.items))

    @cached_property
    def encoders(self) -> list[str]:
        return list(dict.fromkeys(encoder for _, encoder, _ in self.items))

    @property
    def baseline(self) -> str:
        return self.encoders[0]

    @property
    def averaged(self) -> list[TaskMetric]:
        """List the tasks that averages are over."""
        return choose_averaged_tasks(self.tasks)

    @cached_property
    def settings(self) -> list[Setting]:
        """List clean speech first, then group by group and noise by noise, from the quietest to the
        loudest."""
        settings = list(dict.fromkeys(setting for _, _, setting in self.items))
        names = list(dict.fromkeys(s.name for s in settings))

        def sort_key(s: Setting) -> tuple[bool, int, float]:
            return s.group != "clean", names.index(s.name), -(s.snr_db or 0.0)

        return sorted(settings, key=sort_key)

    @property
    def clean(self) -> Setting:
        """Return the setting of clean speech."""
        return self.settings[0]

    def has(self, task: TaskMetric, encoder: str) -> bool:
        """Return whether an encoder has scores in a task."""
        return (task, encoder, self.clean) in self.items

    def describe_units(self, tasks: Sequence[TaskMetric]) -> str:
        """Write a sentence about the units that the intervals of these tasks draw."""
        names = [name for name, _ in tasks]
        intervals = []
        for (task, _, _), estimate in self.scores.items():
            if task in tasks:
                # a task of two metrics is named with each
                name = task[0] if names.count(task[0]) == 1 else " ".join(task)
                intervals.append((name, estimate.unit, estimate.groups))
        return describe_drawn(intervals)

    def measure_loss(self, task: TaskMetric, encoder: str, setting: Setting) -> Estimate:
        """Measure L, the points that the condition costs against the encoder's own clean speech."""
        clean = self.scores[task, encoder, self.clean]
        noisy = self.scores[task, encoder, setting]
        return _subtract_scores(task, clean, noisy)

    def measure_gain(self, task: TaskMetric, encoder: str, setting: Setting) -> Estimate:
        """Measure the points by which the encoder is better than the baseline."""
        score = self.scores[task, encoder, setting]
        baseline_score = self.scores[task, self.baseline, setting]
        return _subtract_scores(task, score, baseline_score)

    def measure_removed(self, task: TaskMetric, encoder: str, setting: Setting) -> Estimate:
        """Measure the percent of the baseline's loss that the encoder does not lose, each against
        its own clean speech. It means nothing where the baseline loses nothing."""
        loss = self.measure_loss(task, encoder, setting)
        return _compute_share_removed(loss, self.measure_loss(task, self.baseline, setting))

    def measure_recovered(self, task: TaskMetric, encoder: str, setting: Setting) -> Estimate:
        """Measure the percent of the baseline's loss that the encoder does not lose, both against
        the baseline's clean speech. It means nothing where the baseline loses nothing."""
        clean = self.scores[task, self.baseline, self.clean]
        loss = _subtract_scores(task, clean, self.scores[task, encoder, setting])
        return _compute_share_removed(loss, self.measure_loss(task, self.baseline, setting))


def _subtract_scores(task: TaskMetric, first: Estimate, second: Estimate) -> Estimate:
    """Subtract two scores of a task: the points by which the first is better than the second."""
    sign = -1 if task[1] in LOWER_IS_BETTER else 1
    return combine_estimates(lambda a, b: 100 * sign * (a - b), first, second)


def _compute_share_removed(loss: Estimate, baseline_loss: Estimate) -> Estimate:
    """Compute by how much a loss is smaller than the baseline's, in percent of the latter."""
    return combine_estimates(lambda a, b: 100 * (1 - a / b), loss, baseline_loss)


# ---- contents of degradation.json: values with intervals, in points or percent


def measure_degradation(grid: Grid) -> dict[str, Any]:
    """Measure losses averaged over tasks, clean speech, and DUAL beside the cascade.

    Only encoders with scores of all averaged tasks have averages; there are none where the baseline
    lacks a score.
    """
    complete = [e for e in grid.encoders if all(grid.has(task, e) for task in grid.averaged)]
    if not grid.averaged or grid.baseline not in complete:
        complete = []

    def group_and_snr(setting: Setting) -> tuple[str, bool, float]:
        """Return a key for settings that are averaged, as they have the same group and SNR."""
        return setting.group, setting.snr_db is None, -(setting.snr_db or 0.0)

    noisy = sorted(grid.settings[1:], key=group_and_snr)
    averages = []
    for encoder in complete:
        for _, settings in groupby(noisy, key=group_and_snr):
            averages.append(average_settings(grid, encoder, list(settings)))
    return {
        "definitions": __doc__,
        "baseline": grid.baseline,
        "seed": grid.seed,
        "averaged_over": [list(task) for task in grid.averaged],
        "drawn": grid.describe_units(grid.averaged),
        "averages": averages,
        "clean": [measure_clean_gain(grid, encoder) for encoder in complete[1:]],
        "dual_against_cascade": compare_with_cascade(grid),
    }


def describe_value(estimate: Estimate) -> dict[str, float | None] | None:
    """Return value and interval as JSON values; None for an undefined value. Ends are None where
    no interval was estimated (too few groups)."""
    if not np.isfinite(estimate.value):
        return None
    low, high = estimate.interval.ends
    return {"value": estimate.value, "low": low, "high": high}


def average_settings(grid: Grid, encoder: str, settings: Sequence[Setting]) -> dict[str, Any]:
    """Return means over the averaged tasks and these conditions, which have the same group and
    SNR."""
    pairs = [(t, s) for t in grid.averaged for s in settings]
    # tasks in which the baseline loses nothing, so that mean shares are not defined
    unhurt: list[TaskMetric] = []
    for task, setting in pairs:
        if grid.measure_loss(task, grid.baseline, setting).value <= 0 and task not in unhurt:
            unhurt.append(task)
    loss = average_estimates([grid.measure_loss(t, encoder, s) for t, s in pairs])
    values: dict[str, Any] = {
        "encoder": encoder,
        "group": settings[0].group,
        "snr_db": settings[0].snr_db,
        "unhurt": [" ".join(task) for task in unhurt],
        "loss": describe_value(loss),
        "removed": None,
        "recovered": None,
    }
    if encoder != grid.baseline and not unhurt:
        for name, measure in (
            ("removed", grid.measure_removed),
            ("recovered", grid.measure_recovered),
        ):
            shares = [measure(t, encoder, s) for t, s in pairs]
            values[name] = describe_value(average_estimates(shares))
    return values


def measure_clean_gain(grid: Grid, encoder: str) -> dict[str, Any]:
    """Return the points by which an encoder is better than the baseline in clean speech: the mean
    over the tasks, and the worst of them."""
    gains = {" ".join(t): grid.measure_gain(t, encoder, grid.clean) for t in grid.averaged}
    worst = min(gains, key=lambda task: gains[task].value)
    return {
        "encoder": encoder,
        "gain": describe_value(average_estimates(list(gains.values()))),
        "worst": {"task": worst, **(describe_value(gains[worst]) or {})},
    }


def compare_with_cascade(grid: Grid) -> list[dict[str, Any]]:
    """Measure the relative robustness (percent of clean FF1) of DUAL and of the cascades of the
    same encoder: in every condition, and averaged over the SNRs of a noise, so that no SNR needs to
    be chosen.

    A comparison has `difference`, DUAL's robustness minus the cascade's in points. Questions are
    drawn together for both systems and all conditions.
    """
    comparisons: list[dict[str, Any]] = []
    for encoder in grid.encoders:
        tasks = [task for task in grid.tasks if task[1] == "ff1" and grid.has(task, encoder)]
        duals = [task for task in tasks if task[0].startswith("dual")]
        cascades = [task for task in tasks if task[0].startswith(CASCADE)]
        for dual, cascade in product(duals, cascades):
            comparisons += _compare_pair(grid, encoder, dual, cascade)
    return comparisons


def _compare_pair(
    grid: Grid, encoder: str, dual: TaskMetric, cascade: TaskMetric
) -> list[dict[str, Any]]:
    """Compare DUAL with a cascade in every noise: at every SNR, and in the mean over them."""
    cells = {}
    for task, setting in product((dual, cascade), grid.settings):
        cells[task, setting] = grid.items[task, encoder, setting]
    scores = resample_cells(cells, grid.seed, grid.resamples, grid.units[dual])
    relative = {}  # percent of a system's own clean FF1
    for task, setting in cells:
        noisy, clean = scores[task, setting], scores[task, grid.clean]
        relative[task, setting] = combine_estimates(lambda a, b: 100 * a / b, noisy, clean)
    comparisons = []
    for name, noise_settings in groupby(grid.settings[1:], key=lambda s: s.name):
        settings = list(noise_settings)
        averaged: list[tuple[float | None, list[Setting]]] = [(s.snr_db, [s]) for s in settings]
        if len(settings) > 1:
            averaged.append((None, settings))  # the mean over the SNRs
        for snr, snr_settings in averaged:
            dual_mean = average_estimates([relative[dual, s] for s in snr_settings])
            cascade_mean = average_estimates([relative[cascade, s] for s in snr_settings])
            difference = combine_estimates(np.subtract, dual_mean, cascade_mean)
            comparisons.append(
                {
                    "encoder": encoder,
                    "dual": dual[0],
                    "cascade": cascade[0],
                    "condition": name,
                    "snr_db": snr,
                    "dual_relative": describe_value(dual_mean),
                    "cascade_relative": describe_value(cascade_mean),
                    "difference": describe_value(difference),
                }
            )
    return comparisons


# ---- tables of scores
#
# A star marks a score that differs from the baseline's in the same column (p < 0.05, two-sided, by
# Holm's procedure over all such tests of the table). A column is the mean over its conditions.


def choose_columns(grid: Grid, at: float) -> dict[str, list[Setting]]:
    """Choose the columns: clean speech, and every group at the SNR nearest to `at` (dB), or all of
    a group that has no SNRs."""
    columns = {"clean": [grid.clean]}
    for group in dict.fromkeys(s.group for s in grid.settings[1:]):
        best = choose_nearest_snr((s for s in grid.settings[1:] if s.group == group), at)
        columns[name_condition(group, best[0].snr_db)] = best
    return columns


def make_score_tables(grid: Grid, at: float) -> list[Table]:
    """Make a table of all tasks in clean speech and in noise of each group, and for each task one
    of all conditions. at: SNR in dB, as in `choose_columns`."""
    columns = choose_columns(grid, at)
    explanations = []
    for name, settings in columns.items():
        if settings != [grid.clean]:
            noises = [s.name.removeprefix(f"{s.group}-") for s in settings]
            mean_of = "mean of " if len(noises) > 1 else ""
            explanations.append(f"{name}: {mean_of}{', '.join(noises)}")
    title = f"Clean, seen and unseen: {'; '.join(explanations)}"
    tables = [_make_score_table(title, grid, grid.tasks, columns)]
    all_columns = {s.label: [s] for s in grid.settings}
    for task in grid.tasks:
        tables.append(_make_score_table(", ".join(task), grid, [task], all_columns))
    return tables


def _make_score_table(
    title: str, grid: Grid, tasks: Sequence[TaskMetric], columns: Mapping[str, Sequence[Setting]]
) -> Table:
    """Make a table with a row for each encoder in each task, with intervals and stars."""
    lines = [(t, e) for t in tasks for e in grid.encoders if grid.has(t, e)]
    # p-values of the differences from the baseline
    tests: dict[tuple[TaskMetric, str, str], float] = {}
    for task, encoder in lines:
        if encoder != grid.baseline and grid.has(task, grid.baseline):
            for column, settings in columns.items():
                gain = average_estimates([grid.measure_gain(task, encoder, s) for s in settings])
                tests[task, encoder, column] = gain.p_value
    adjusted = dict(zip(tests, holm(list(tests.values())), strict=True))
    rows = []
    for task, encoder in lines:
        row = [encoder if len(tasks) == 1 else f"{' '.join(task)}, {encoder}"]
        for column, settings in columns.items():
            score = average_estimates([grid.scores[task, encoder, s] for s in settings])
            star = "*" * (adjusted.get((task, encoder, column), 1.0) < 1 - LEVEL)
            row.append(format_interval(score.interval.percent) + star)
        rows.append(tuple(row))
    lower = ", ".join(dict.fromkeys(metric for _, metric in tasks if metric in LOWER_IS_BETTER))
    better = f"less is better of {lower}" if lower else "more is better"
    differing = sum(p < 1 - LEVEL for p in adjusted.values())
    note = (
        f"Percent; {better}. {grid.describe_units(tasks)} * differs from the baseline, p < 0.05, "
        f"by Holm's procedure over this table: {differing} of {len(adjusted)} scores do."
    )
    first = "encoder" if len(tasks) == 1 else "task, encoder"
    return Table(title, (first, *columns), tuple(rows), note)


# ---- tables of losses


def make_degradation_tables(values: Mapping[str, Any]) -> list[Table]:
    """Make the tables of `degradation`: averages over tasks, clean speech, DUAL beside the cascade;
    tables without rows are left out."""
    tables = [_make_loss_table(values), _make_clean_table(values), _make_cascade_table(values)]
    return [table for table in tables if table.rows]


def _make_loss_table(values: Mapping[str, Any]) -> Table:
    """Make the table of losses averaged over tasks."""
    baseline_losses = {}
    for a in values["averages"]:
        if a["encoder"] == values["baseline"]:
            baseline_losses[a["group"], a["snr_db"]] = a["loss"]
    rows = []
    for a in values["averages"]:
        if a["encoder"] != values["baseline"]:
            noise = a["group"], a["snr_db"]
            intervals = [baseline_losses[noise], a["loss"], a["removed"], a["recovered"]]
            texts = (format_interval(n, missing="-") for n in intervals)
            rows.append((a["encoder"], name_condition(*noise), *texts))
    tasks = ", ".join(" ".join(task) for task in values["averaged_over"])
    note = (
        f"Means over {tasks}. removed: share of the baseline's loss, each against its own clean "
        f"speech; recovered: both against the baseline's clean speech. {values['drawn']}"
    ).strip()
    unhurt = sorted({task for a in values["averages"] for task in a["unhurt"]})
    if unhurt:
        note += (
            " Somewhere the baseline loses nothing, so that mean shares are not defined: "
            f"{', '.join(unhurt)}."
        )
    losses = ("baseline loses", "it loses", "removed %", "recovered %")
    columns = ("encoder", "noise", *losses)
    return Table("Loss in noise, averaged over tasks (points)", columns, tuple(rows), note)


def _make_clean_table(values: Mapping[str, Any]) -> Table:
    """Make the table of gains in clean speech."""
    rows = []
    for x in values["clean"]:
        mean, worst = (format_interval(x[name], "+", "-") for name in ("gain", "worst"))
        rows.append((x["encoder"], mean, f"{x['worst']['task']}: {worst}"))
    note = (
        "Points by which it is better than the baseline in clean speech (below 0: worse). "
        f"{values['drawn']}"
    ).strip()
    return Table("Clean speech", ("encoder", "mean over tasks", "worst task"), tuple(rows), note)


def _make_cascade_table(values: Mapping[str, Any]) -> Table:
    """Make the table with a row for each pair of DUAL and a cascade in each condition."""
    rows = []
    for x in values["dual_against_cascade"]:
        where = name_condition(x["condition"], x["snr_db"])
        texts = [format_interval(x[name]) for name in ("dual_relative", "cascade_relative")]
        difference = format_interval(x["difference"], "+")
        rows.append((x["encoder"], x["dual"], x["cascade"], where, *texts, difference))
    note = (
        "FF1 in percent of the system's own FF1 in clean speech, and the difference in points; the "
        "questions are drawn together. A row of a noise without its SNR is the mean over its SNRs; "
        "rooms, codecs and pitch have none."
    )
    columns = ("encoder", "DUAL", "cascade", "noise", "DUAL keeps", "cascade keeps", "difference")
    return Table("What DUAL and the cascade keep of their clean FF1", columns, tuple(rows), note)
