"""What noise costs an encoder, and how much of what it costs the baseline another encoder saves.

Scores are rates: s(e, t, c) of encoder e in task t under condition c; b is the baseline. o is +1 where more is better and -1 where
less is (error rates). Everything below is in points, which are percent, or in percent of something.

    loss       L(e, t, c) = o (s(e, t, clean) - s(e, t, c))                  points that c costs e against its own clean speech
    relative   100 L(e, t, c) / s(e, t, clean)                               the same in percent of the clean score (or error)
    gain       o (s(e, t, c) - s(b, t, c))                                   points by which e is better than b
    removed    100 (1 - L(e, t, c) / L(b, t, c))                             of b's loss, e against its own clean speech
    recovered  100 (1 - o (s(b, t, clean) - s(e, t, c)) / L(b, t, c))        of b's loss, both against b's clean speech

`removed` can be had for nothing by an encoder that is bad in clean speech too; `recovered` cannot: it is 100 where e in noise is as
good as b in clean speech, and 0 where it is as good as b in noise. They agree where both are equally good in clean speech.
Averages over tasks and conditions give every one of them the same weight. A share of a loss that may be 0 means nothing: tasks in
which the interval of the baseline's loss reaches 0 are left out of averaged shares, and named. `pooled` needs no such choice: it is
`removed` of the losses in points, added up over all tasks.

Relative robustness, for DUAL beside a cascade: 100 s(c) / s(clean), FF1 of a system under a condition over its own in clean speech.

Intervals are 95 % paired cluster bootstraps (`stats.resampled`), p-values two-sided, and adjusted by Holm over the cells of a task.
Every task draws voices where `stats.choose_units` allows it, and tasks that share a voice (by its name) draw it together; others
are drawn each by itself. The unit error compares an encoder with itself, so that one whose units never change loses nothing: units
stand in no average.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from speechssl.errors import InputError
from speechssl.eval.grid import Cell, Setting
from speechssl.results import CASCADE, LOWER_IS_BETTER, Row, averaged, drawn_sentence
from speechssl.stats import RESAMPLES, Estimate, Units, combined, common_units, drawn_together, holm, mean_of, resampled

Task = tuple[str, str]  # name and metric


@dataclass(frozen=True, eq=False)
class Grid:
    """The scores of all cells as estimates that were drawn together. The first encoder is the baseline."""

    scores: Mapping[tuple[Task, str, Setting], Estimate]
    cells: Mapping[tuple[Task, str, Setting], Cell]
    seed: int
    resamples: int = RESAMPLES

    @property
    def tasks(self) -> list[Task]:
        return list(dict.fromkeys(task for task, _, _ in self.scores))

    @property
    def averaged(self) -> list[Task]:
        """The tasks that averages are over."""
        return averaged(self.tasks)

    @property
    def encoders(self) -> list[str]:
        return list(dict.fromkeys(encoder for _, encoder, _ in self.scores))

    @property
    def baseline(self) -> str:
        return self.encoders[0]

    @property
    def settings(self) -> list[Setting]:
        """Clean first, then group by group and noise by noise, from the quietest to the loudest."""
        found = list(dict.fromkeys(setting for _, _, setting in self.scores))
        order = {name: i for i, name in enumerate(dict.fromkeys(s.name for s in found))}
        return sorted(found, key=lambda s: (s.group != "clean", order[s.name], -(s.snr_db or 0.0)))

    @property
    def clean(self) -> Setting:
        return self.settings[0]

    def has(self, task: Task, encoder: str) -> bool:
        return (task, encoder, self.clean) in self.scores

    def score(self, task: Task, encoder: str, setting: Setting) -> Estimate:
        return self.scores[task, encoder, setting]


def gather(cells: Sequence[Cell], seed: int, resamples: int = RESAMPLES) -> Grid:
    """Draw the items of every task together for all encoders and conditions, and tasks that share a voice with each other.

    What is drawn is chosen by task (`stats.choose_units`). Raises InputError where a task has no item in common.
    """
    by_key = {((c.task, c.metric), c.encoder, c.setting): c for c in cells}
    of_task: dict[Task, dict[tuple[Task, str, Setting], Cell]] = {}
    for key, cell in by_key.items():
        of_task.setdefault(key[0], {})[key] = cell
    units: dict[Task, Units] = {}
    scores: dict[tuple[Task, str, Setting], Estimate] = {}
    for task, mine in of_task.items():
        try:
            units[task] = common_units({key: cell.scored for key, cell in mine.items()}, next(iter(mine.values())).unit)[1]
        except ValueError as error:
            raise InputError(f"the encoders cannot be compared in the task {task[0]} ({error}); check its test data") from error
    together = drawn_together(units)
    for task, mine in of_task.items():
        scored = {key: cell.scored for key, cell in mine.items()}
        scores |= resampled(scored, seed, resamples, next(iter(mine.values())).unit, together[task])
    return Grid({key: scores[key] for key in by_key}, by_key, seed, resamples)


def rows_of(grid: Grid) -> list[Row]:
    """A row for `results.jsonl` from every cell."""
    rows = []
    for (task, encoder, setting), score in grid.scores.items():
        cell = grid.cells[task, encoder, setting]
        rows.append(Row.of(score.interval, task[0], encoder, setting.name, setting.snr_db, task[1], cell.seed, cell.card))
    return rows


# ---- quantities


def sign(task: Task) -> int:
    """+1 where more is better, -1 where less is."""
    return -1 if task[1] in LOWER_IS_BETTER else 1


def loss(grid: Grid, task: Task, encoder: str, setting: Setting, reference: str | None = None) -> Estimate:
    """Points that the condition costs. reference: the encoder whose clean score counts; None: its own."""
    o, clean = sign(task), grid.score(task, reference or encoder, grid.clean)
    return combined(lambda a, b: 100 * o * (a - b), clean, grid.score(task, encoder, setting))


def relative(grid: Grid, task: Task, encoder: str, setting: Setting) -> Estimate | None:
    """The loss in percent of the clean score or error rate; None where that is 0."""
    clean = grid.score(task, encoder, grid.clean)
    return combined(lambda a, b: a / b, loss(grid, task, encoder, setting), clean) if clean.value else None


def gain(grid: Grid, task: Task, encoder: str, setting: Setting) -> Estimate:
    """Points by which it is better than the baseline."""
    o = sign(task)
    return combined(lambda a, b: 100 * o * (a - b), grid.score(task, encoder, setting), grid.score(task, grid.baseline, setting))


def removed(grid: Grid, task: Task, encoder: str, setting: Setting, own_clean: bool = True) -> Estimate:
    """`removed`, or with own_clean False `recovered`, in percent; NaN where the baseline loses nothing."""
    mine = loss(grid, task, encoder, setting, None if own_clean else grid.baseline)
    return combined(lambda a, b: 100 * (1 - a / b), mine, loss(grid, task, grid.baseline, setting))


def loses(grid: Grid, task: Task, settings: Sequence[Setting]) -> bool:
    """Whether the baseline loses something for certain in every one of the conditions."""
    found = [loss(grid, task, grid.baseline, s).interval for s in settings]
    return all(v.estimated and v.low > 0 for v in found)


# ---- what goes into degradation.json


def degradation(grid: Grid) -> dict[str, Any]:
    """Everything, cell by cell, averaged over tasks, and DUAL beside the cascade. Numbers are points or percent."""
    return {
        "definitions": __doc__,
        "baseline": grid.baseline,
        "seed": grid.seed,
        "averaged_over": [list(task) for task in grid.averaged],
        "drawn": drawn(grid),
        "cells": [cell for task in grid.tasks for cell in _cells(grid, task)],
        "averages": averages(grid),
        "clean": [clean_gain(grid, encoder) for encoder in complete(grid)[1:]],
    }


def _cells(grid: Grid, task: Task) -> list[dict[str, Any]]:
    keys = [(e, s) for e in grid.encoders if grid.has(task, e) for s in grid.settings]
    cells = [_cell(grid, task, encoder, setting) for encoder, setting in keys]
    tested = [cell["gain"] for cell in cells if cell["gain"]]
    for test, adjusted in zip(tested, holm([t["p_value"] for t in tested]), strict=True):
        test["p_holm"] = adjusted
    return cells


def _cell(grid: Grid, task: Task, encoder: str, setting: Setting) -> dict[str, Any]:
    score, noisy = grid.score(task, encoder, setting), setting != grid.clean
    other = encoder != grid.baseline and grid.has(task, grid.baseline)
    better = gain(grid, task, encoder, setting) if other else None
    return {
        "task": task[0],
        "metric": task[1],
        "encoder": encoder,
        "group": setting.group,
        "condition": setting.name,
        "snr_db": setting.snr_db,
        "n": score.n,
        "drawn": score.unit,
        "groups": score.groups,
        "failed": len(grid.cells[task, encoder, setting].failed),
        "score": numbers(score, 100),
        "loss": numbers(loss(grid, task, encoder, setting)) if noisy else None,
        "relative": numbers(relative(grid, task, encoder, setting)) if noisy else None,
        "gain": {**(numbers(better) or {}), "p_value": better.p_value} if better else None,
        "removed": numbers(removed(grid, task, encoder, setting)) if noisy and other else None,
        "recovered": numbers(removed(grid, task, encoder, setting, own_clean=False)) if noisy and other else None,
    }


def numbers(estimate: Estimate | None, times: float = 1) -> dict[str, float | None] | None:
    """Value and interval as JSON has them, ends of None where one group has none; None for what is not defined."""
    if estimate is None or not np.isfinite(estimate.value):
        return None
    v = estimate.interval
    low, high = (times * v.low, times * v.high) if v.estimated else (None, None)
    return {"value": times * v.value, "low": low, "high": high}


def drawn(grid: Grid, tasks: Iterable[Task] = ()) -> str:
    """What intervals draw, as a sentence. tasks: of these; none: of all."""
    chosen = list(tasks) or grid.tasks
    names = {task: task[0] if [t[0] for t in chosen].count(task[0]) == 1 else " ".join(task) for task in chosen}
    return drawn_sentence((names[task], e.unit, e.groups) for (task, _, _), e in grid.scores.items() if task in names)


def averages(grid: Grid) -> list[dict[str, Any]]:
    """Over the tasks, for every encoder and every group of conditions at one SNR; none where no task counts."""
    if not grid.averaged:
        return []
    return [average(grid, encoder, settings) for encoder in complete(grid) for settings in levels(grid)]


def complete(grid: Grid) -> list[str]:
    """The encoders that did all averaged tasks, the baseline first; none where it did not."""
    found = [e for e in grid.encoders if all(grid.has(task, e) for task in grid.averaged)]
    return found if found[:1] == [grid.baseline] else []


def clean_gain(grid: Grid, encoder: str) -> dict[str, Any]:
    """What clean speech gains (or, below 0, loses) against the baseline: mean over the tasks, and the worst of them."""
    found = {t: gain(grid, t, encoder, grid.clean) for t in grid.averaged}
    if not found:
        return {"encoder": encoder, "gain": None, "worst": None}
    task, worst = min(found.items(), key=lambda pair: pair[1].value)
    values = {"task": f"{task[0]} {task[1]}", **(numbers(worst) or {}), "p_value": worst.p_value}
    return {"encoder": encoder, "gain": numbers(mean_of(list(found.values()))), "worst": values}


def levels(grid: Grid) -> list[list[Setting]]:
    """The conditions other than clean that belong together: of one group, at one SNR."""
    noisy = sorted(grid.settings[1:], key=_level)
    return [list(found) for _, found in groupby(noisy, key=_level)]


def _level(setting: Setting) -> tuple[str, bool, float]:
    return setting.group, setting.snr_db is None, -(setting.snr_db or 0.0)


def average(grid: Grid, encoder: str, settings: Sequence[Setting]) -> dict[str, Any]:
    """Means over the tasks and these conditions, which are of one group and SNR."""
    counted = [task for task in grid.averaged if loses(grid, task, settings)]
    pairs, every = ([(t, s) for t in tasks for s in settings] for tasks in (counted, grid.averaged))
    other = encoder != grid.baseline
    share = {
        name: numbers(mean_of([removed(grid, t, encoder, s, own) for t, s in pairs])) if other and pairs else None
        for name, own in (("removed", True), ("recovered", False))
    }
    own, base = (mean_of([loss(grid, t, e, s) for t, s in every]) for e in (encoder, grid.baseline))
    pooled = combined(lambda a, b: 100 * (1 - a / b), own, base)
    return {
        "encoder": encoder,
        "group": settings[0].group,
        "snr_db": settings[0].snr_db,
        "conditions": [s.name for s in settings],
        "tasks": [f"{name} {metric}" for name, metric in counted],
        "left_out": [f"{name} {metric}" for name, metric in grid.averaged if (name, metric) not in counted],
        "loss": numbers(own),
        **share,
        "pooled": numbers(pooled) if other else None,
    }


# ---- DUAL beside the cascade


@dataclass(frozen=True)
class EncoderSystem:
    """A system of question answering with the encoder under it."""

    task: Task
    encoder: str


def against_cascade(grid: Grid) -> list[dict[str, Any]]:
    """The relative robustness of every DUAL beside the cascades of its own encoder and of the baseline: in every condition, and
    averaged over the SNRs of one noise (`mean_over`, which spares the choice of an SNR). difference: DUAL's minus the cascade's, in
    points. Questions are drawn together for both systems and all conditions.
    """
    systems = [EncoderSystem(task, e) for task in grid.tasks if task[1] == "ff1" for e in grid.encoders if grid.has(task, e)]
    duals = [s for s in systems if s.task[0].startswith("dual")]
    cascades = [s for s in systems if s.task[0].startswith(CASCADE)]
    pairs = [(d, c) for d in duals for c in cascades if c.encoder in (d.encoder, grid.baseline)]
    return [line for dual, cascade in pairs for line in _pair(grid, dual, cascade)]


def _pair(grid: Grid, dual: EncoderSystem, cascade: EncoderSystem) -> list[dict[str, Any]]:
    cells = {(x, s): grid.cells[x.task, x.encoder, s].scored for x in (dual, cascade) for s in grid.settings}
    scores = resampled(cells, grid.seed, grid.resamples, grid.cells[dual.task, dual.encoder, grid.clean].unit)
    noisy = grid.settings[1:]
    relative_to_clean = [
        [combined(lambda a, b: 100 * a / b, scores[x, s], scores[x, grid.clean]) for s in noisy] for x in (dual, cascade)
    ]
    lines = []

    def add(condition: str, snr: float | None, over: Sequence[float | None], a: Estimate, b: Estimate) -> None:
        difference = combined(np.subtract, a, b)
        lines.append(
            {
                "dual": dual.task[0],
                "dual_encoder": dual.encoder,
                "cascade": cascade.task[0],
                "cascade_encoder": cascade.encoder,
                "condition": condition,
                "snr_db": snr,
                "mean_over": list(over),
                "dual_relative": numbers(a),
                "cascade_relative": numbers(b),
                "difference": {**(numbers(difference) or {}), "p_value": difference.p_value},
            }
        )

    for name, group in groupby(zip(noisy, *relative_to_clean, strict=True), key=lambda line: line[0].name):
        some = list(group)
        for s, a, b in some:
            add(name, s.snr_db, [s.snr_db], a, b)
        if len(some) > 1:
            add(name, None, [s.snr_db for s, _, _ in some], mean_of([a for _, a, _ in some]), mean_of([b for _, _, b in some]))
    return lines
