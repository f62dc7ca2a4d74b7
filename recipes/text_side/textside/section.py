"""The page: charts of Hung-yi Lee's lectures with what was published, curves, loss surfaces, and
the tables that `gains.py` left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd

from speechssl.artifacts import read_json
from speechssl.report.figures import Drawing, add_legend, line_style, new_axes, save_svg, shorten
from speechssl.report.page import Section
from speechssl.results import INK, MUTED, Row, Table, table_of
from speechssl.schema import convert
from textside import published as papers
from textside.data import dependency
from textside.runs import CONDITION, PERPLEXITY, read_scores
from textside.tables import EQUAL_LOSS, Point, mean_curve, points_of

TITLE = "What a text-pre-trained encoder knows that units can use"


@dataclass(frozen=True)
class Lectures:
    """What lies in a folder of results.

    curves: (task, arm) -> the points of every seed; tables: as `gains.py` wrote them.
    """

    rows: tuple[Row, ...] = ()
    curves: Mapping[tuple[str, str], Sequence[Sequence[Point]]] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    surfaces: tuple[SurfaceRun, ...] = ()

    def gains(self, task: str) -> dict[str, Row]:
        """Return the gains of a task by arm, in the order of the chart."""
        by_arm = {
            row.encoder: row for row in self.rows if row.metric == papers.GAIN and row.task == task
        }
        return {arm: by_arm[arm] for arm in papers.sort_arms(by_arm)}

    def score(self, task: str, arm: str) -> float | None:
        """Return the mean score over seeds; None where it was not run."""
        cell = (task, arm)
        scores = [row for row in self.rows if row.metric != papers.GAIN]
        values = [row.value for row in scores if (row.task, row.encoder) == cell]
        return fmean(values) if values else None

    def highest_floor(self, task: str) -> float | None:
        scores = [self.score(task, arm) for arm in papers.FLOORS]
        return max((score for score in scores if score is not None), default=None)


def read_lectures(out: Path, rows: Sequence[Row]) -> Lectures:
    """Read a folder of results."""
    lecture_rows = tuple(row for row in rows if row.condition == CONDITION)
    if not lecture_rows:
        return Lectures()
    curves: dict[tuple[str, str], list[list[Point]]] = {}
    for path in sorted(out.glob("runs/*/*/scores.json")):
        run = read_scores(path)
        points = points_of(run.curve)
        if len(points) > 1:
            curves.setdefault((run.task, run.arm), []).append(points)
    tables: list[Table] = []
    for name in ("text_side", "devices"):
        path = out / f"tables/{name}.json"
        if path.is_file():
            tables += map(table_of, read_json(path)["tables"])
    return Lectures(lecture_rows, curves, tuple(tables), read_surfaces(out))


# ---- parts

PARTS = {  # of recipes/text_side -> what it is about
    1: "artificial data",
    2: "other symbols",
    3: "the frozen transformer",
    4: "languages",
    5: "objectives and devices",
    6: "a language model of units",
    7: "loss surfaces",
}
# what titles of tables begin with -> the part that they are of, the first that fits
TITLED = {"Scores": 1, "Gain": 1, "Steps of DUAL": 1, f"{EQUAL_LOSS}, symbols": 2, EQUAL_LOSS: 1}
TITLED |= {papers.SYMBOL_TITLE: 2, "The frozen transformer": 3, "ListOps": 3}
TITLED |= {"Mean reciprocal rank": 4, "Token translation": 4, "Zero-shot": 4}
TITLED |= {"What is trained": 5, "A language model": 6, "Continuations": 6, "Loss surfaces": 7}


def sort_by_part(tables: Iterable[Table]) -> list[Table]:
    """Sort tables by part, which their titles then begin with; first those of none."""
    numbered = []
    for table in tables:
        part = next((n for title, n in TITLED.items() if table.title.startswith(title)), 0)
        numbered.append((part, replace(table, title=name_part(part, table.title))))
    return [table for _, table in sorted(numbered, key=lambda pair: pair[0])]


def name_part(part: int, title: str) -> str:
    return f"Part {part}, {PARTS[part]}: {title}" if part else title


# ---- the section


def text_side_section(lectures: Lectures) -> Section:
    gained = [row.task for row in lectures.rows if row.metric == papers.GAIN]
    tasks = list(dict.fromkeys(task for task in gained if not papers.has_own_table(task)))
    tasks = [papers.MEAN] * (papers.MEAN in tasks) + [task for task in tasks if task != papers.MEAN]
    drawn: list[tuple[int, Drawing | None]] = []  # by part
    if tasks:
        drawn.append((1, gain_bars(lectures, tasks)))
        drawn.append((1, gain_by_length(lectures, tasks)))
    symbols = list(dict.fromkeys(row.task for row in lectures.rows if row.encoder == "re-emb"))
    if symbols:
        caption = (
            f"Our scores (bars, means over seeds) beside those of {papers.SYMBOL_PAPER} (lines "
            "across, where it has the task)."
        )
        svg = draw_bars(lectures, symbols, papers.SYMBOL_ARMS, papers.SYMBOLS)
        drawn.append((2, Drawing(papers.SYMBOL_TITLE, svg, caption)))
    computed = [task for task in papers.FROZEN if any(row.task == task for row in lectures.rows)]
    if computed:
        caption = (
            f"Our accuracy (bars, means over seeds) beside that of {papers.FROZEN_PAPER} (lines "
            "across, where it has the task) and the highest floor, which needs no encoder (dotted)."
        )
        svg = draw_bars(lectures, computed, list(papers.FROZEN["listops"]), papers.FROZEN)
        drawn.append((3, Drawing("The frozen transformer", svg, caption)))
    drawn.append((4, alignment_by_layer(lectures)))
    learned = dict.fromkeys(task for task, _ in lectures.curves)
    for task in sorted(learned, key=lambda task: task == PERPLEXITY):
        part = (
            2 if task in symbols else 3 if task in papers.FROZEN else 6 if task == PERPLEXITY else 1
        )
        drawn.append((part, draw_curves(lectures, task)))
    drawn += [(7, drawing) for drawing in surface_figures(lectures.surfaces)]
    drawings = []
    for part, drawing in sorted(drawn, key=lambda pair: pair[0]):
        if drawing:
            drawings.append(replace(drawing, title=name_part(part, drawing.title)))
    return Section("", "", sort_by_part(lectures.tables), drawings)


def error_bars(rows: Sequence[Row]) -> np.ndarray:
    """Return how far intervals reach below and above their values, (2, N)."""
    low = [0.0 if row.low is None else row.value - row.low for row in rows]
    high = [0.0 if row.high is None else row.high - row.value for row in rows]
    return np.array([low, high])


def gain_bars(lectures: Lectures, tasks: Sequence[str]) -> Drawing:
    arms = papers.sort_arms({arm for task in tasks for arm in lectures.gains(task)})
    with new_axes(len(tasks), 1, 2.0, sharex="all") as (figure, axes):
        for n, (task, ax) in enumerate(zip(tasks, axes[:, 0], strict=True)):
            gains = lectures.gains(task)
            places = [place for place, arm in enumerate(arms) if arm in gains]
            rows = list(gains.values())
            style = {"color": line_style(n)["color"], "alpha": 0.85, "ecolor": INK}
            ax.bar(places, [row.value for row in rows], 0.62, yerr=error_bars(rows), **style)
            ax.axhline(0, color=MUTED, linewidth=0.8)
            ax.set_ylabel("points")
            ax.set_title(task, loc="left", fontsize=9)
        said = (fill(papers.ARTIFICIAL.get(papers.family(arm), ""), 12) for arm in arms)
        labels = [f"{shorten(arm, 14)}\n{text}" for arm, text in zip(arms, said, strict=True)]
        axes[-1, 0].set_xticks(range(len(arms)), labels, fontsize=7)
        svg = save_svg(figure)
    caption = (
        "Points over training from scratch, with 95 % intervals over seeds and items. Below the "
        f"bars: what Hung-yi Lee's lecture says of the chart of {papers.PAPER} (GLUE, published "
        "size)."
    )
    return Drawing("Gain over scratch", svg, caption)


def draw_bars(
    lectures: Lectures, tasks: Sequence[str], arms: Sequence[str], published: papers.Scores
) -> str:
    """Draw four bars a task, in the order of the lecture, with what is published of each, and the
    floor of the task."""
    with new_axes() as (figure, ((ax,),)):
        for n, task in enumerate(tasks):
            for place, arm in enumerate(arms):
                x = n + 0.2 * (place - 1.5)
                ours, theirs = lectures.score(task, arm), published.get(task, {}).get(arm)
                if ours is not None:
                    ax.bar([x], [ours], 0.18, color=line_style(place)["color"], label=arm)
                if theirs is not None:
                    ax.plot([x - 0.09, x + 0.09], [theirs, theirs], color=INK, linewidth=1.6)
            floor = lectures.highest_floor(task)
            if floor is not None:
                ax.plot([n - 0.4, n + 0.4], [floor, floor], ":", color=MUTED, linewidth=1.6)
        ax.set_xticks(range(len(tasks)), [shorten(task, 14) for task in tasks])
        ax.set_ylabel("score (%)")
        add_legend(figure)
        return save_svg(figure)


def kinds_by_length(lectures: Lectures, task: str) -> dict[str, list[tuple[int, Row]]]:
    """Return the gains of every kind of data that has two lengths of dependencies, by length."""
    kinds: dict[str, list[tuple[int, Row]]] = {}
    for arm, row in lectures.gains(task).items():
        length = dependency(arm)
        if length is not None:
            kinds.setdefault(papers.family(arm), []).append((length, row))
    return {kind: pairs for kind, pairs in kinds.items() if len(pairs) > 1}


def gain_by_length(lectures: Lectures, tasks: Sequence[str]) -> Drawing | None:
    """Draw a line a kind of data, on the first task that has two lengths of one; None where no
    task has."""
    task = next((task for task in tasks if kinds_by_length(lectures, task)), None)
    if task is None:
        return None
    kinds = kinds_by_length(lectures, task)
    with new_axes() as (figure, ((ax,),)):
        for n, (kind, pairs) in enumerate(kinds.items()):
            lengths, rows = zip(*pairs, strict=True)
            values = [row.value for row in rows]
            ax.errorbar(lengths, values, error_bars(rows), label=kind, **line_style(n))
        ax.set_xscale("log", base=2)
        ticks = sorted({length for pairs in kinds.values() for length, _ in pairs})
        ax.set_xticks(ticks, [str(n) for n in ticks])
        ax.minorticks_off()
        ax.set_xlabel("places between what depends on each other, at most")
        ax.set_ylabel(f"points, {task}")
        add_legend(figure)
        svg = save_svg(figure)
    caption = "Runs that are shuffled, pairs and copies whose parts lie further and further apart."
    return Drawing("Gain against the length of dependencies", svg, caption)


def alignment_by_layer(lectures: Lectures) -> Drawing | None:
    """Draw a line a start, the mean of its seeds; None where no alignment was measured."""
    rows = []
    for row in lectures.rows:
        kind, _, rest = row.task.partition("-")
        if kind == papers.ALIGNMENT:
            layer, _, states = rest.partition("-")
            rows.append((states, row.encoder, int(layer), row.value))
    if not rows:
        return None
    frame = pd.DataFrame(rows, columns=["states", "arm", "layer", "mrr"])
    arms = sorted(set(frame.arm))
    with new_axes(1, 2) as (figure, axes):
        for (states, arm), line in frame.groupby(["states", "arm"]):
            means = line.groupby("layer").mrr.mean()
            style = line_style(arms.index(arm))
            axes[0, int(bool(states))].plot(means.index, means, label=arm, **style)
        titles = ("as they are", "less the mean of each language")
        for ax, title in zip(axes[0], titles, strict=True):
            ax.set_xlabel("layer")
            ax.set_ylim(bottom=0)
            ax.set_title(f"MRR (%), states {title}", loc="left", fontsize=8)
        add_legend(figure)
        svg = save_svg(figure)
    caption = (
        "Mean reciprocal rank of translations among the words of the other language, as states "
        "are and less the mean of each."
    )
    return Drawing("One space for languages", svg, caption)


def draw_curves(lectures: Lectures, task: str) -> Drawing:
    """Draw three panels: training loss and score against steps, and score against training loss;
    means over seeds."""
    arms = papers.sort_arms(arm for name, arm in lectures.curves if name == task)
    scale, score_name = (1, task) if task == PERPLEXITY else (100, "score (%)")
    names = (("steps", "training loss"), ("steps", score_name), ("training loss", score_name))
    with new_axes(1, 3) as (figure, axes):
        panels = axes[0]
        for n, arm in enumerate(arms):
            steps, losses, scores = np.array(mean_curve(lectures.curves[task, arm])).T
            panels[0].plot(steps, losses, label=arm, **line_style(n))
            panels[1].plot(steps, scale * scores, label=arm, **line_style(n))
            panels[2].plot(losses, scale * scores, label=arm, **line_style(n))
        floor = lectures.highest_floor(task)
        if floor is not None:
            for ax in panels[1:]:
                ax.axhline(floor, color=MUTED, linestyle=":", linewidth=1.2)
        for ax, (x, y) in zip(panels, names, strict=True):
            ax.set_xlabel(x)
            ax.set_title(y, loc="left", fontsize=8)
        panels[2].invert_xaxis()
        add_legend(figure)
        svg = save_svg(figure)
    caption = (
        "Optimisation: loss in training. Generalisation: the score on the test set, against steps "
        "and at equal training loss."
    )
    note = f" {papers.DUAL_NOTE}" if task == "dual" else ""
    return Drawing(f"{task}: optimisation and generalisation", svg, caption + note)


# ---- loss surfaces: lines from start to end and in a random direction, and contours of planes

LINES = {"path": "from the start (0) to the end (1)", "random": "random direction"}
PLANES = {
    "plane": "two random directions",
    "path-plane": "from start (0) to end (1), and a random direction",
}
LEVELS = 9  # contours


@dataclass(frozen=True)
class SurfaceRun:
    """A file surface.json: parts has for a line or plane "at" (P,), or "x" and "y", and for every
    split the mean loss there, in nats."""

    kind: str  # "dual" or "text-qa"
    arm: str
    seed: int
    splits: tuple[str, str]  # of training, and the other
    parts: dict[str, dict[str, list[Any]]]


def read_surfaces(out: Path) -> tuple[SurfaceRun, ...]:
    """Read the surfaces in a folder of results."""
    files = sorted(out.glob(f"runs/*-{papers.SURFACE}/*/surface.json"))
    return tuple(convert(read_json(path), SurfaceRun, path) for path in files)


def surface_figures(surfaces: Sequence[SurfaceRun]) -> list[Drawing]:
    """Draw of each kind of reader the lines, and the planes of the first seed."""
    drawings = []
    for kind in dict.fromkeys(run.kind for run in surfaces):
        runs = [run for run in surfaces if run.kind == kind]
        drawings.append(line_figure(runs, kind))
        for part in PLANES:
            first = {run.arm: run for run in reversed(runs) if part in run.parts}
            if first:
                drawings.append(
                    plane_figure([first[arm] for arm in papers.sort_arms(first)], part, kind)
                )
    return drawings


def line_figure(runs: Sequence[SurfaceRun], kind: str) -> Drawing:
    with new_axes(1, 2, sharey="row") as (figure, axes):
        for part, ax in zip(LINES, axes[0], strict=True):
            for n, arm in enumerate(papers.sort_arms(run.arm for run in runs)):
                lines = [run.parts[part] for run in runs if run.arm == arm]
                at = lines[0]["at"]
                alike = [line for line in lines if line["at"] == at]
                for split, dash in zip(runs[0].splits, ("-", "--"), strict=True):
                    loss = np.mean([line[split] for line in alike], axis=0)
                    name = arm if dash == "-" else ""
                    ax.plot(at, loss, dash, color=line_style(n)["color"], label=name)
            ax.set_xlabel(LINES[part])
        axes[0, 0].set_ylabel("loss")
        add_legend(figure)
        svg = save_svg(figure)
    solid, dashed = runs[0].splits
    caption = f"Means over seeds. Solid: {solid}; dashed: {dashed}. Loss in nats."
    return Drawing(f"{kind}: the loss along lines", svg, caption)


def plane_figure(runs: Sequence[SurfaceRun], part: str, kind: str) -> Drawing:
    """Draw a panel a start, three in a row, with the same contours."""
    losses = [np.maximum(run.parts[part][run.splits[0]], 1e-4) for run in runs]
    low = max(min(float(loss.min()) for loss in losses), 1e-3)
    high = max(max(float(loss.max()) for loss in losses), 2e-3)
    levels = np.geomspace(low, high, LEVELS)
    on_path = part == "path-plane"
    with new_axes(-(-len(runs) // 3), 3, 2.9) as (figure, axes):
        for ax in axes.ravel()[len(runs) :]:
            ax.remove()
        for ax, run, loss in zip(axes.ravel(), runs, losses, strict=False):
            x, y = run.parts[part]["x"], run.parts[part]["y"]
            contours = ax.contour(x, y, loss, levels=levels, cmap="viridis", linewidths=1.0)
            ax.clabel(contours, fmt=lambda v: f"{v:.2g}", fontsize=6, colors=MUTED)
            ax.plot(1.0 if on_path else 0.0, 0.0, marker="+", color=INK, markersize=8)
            if on_path:
                ax.plot(0.0, 0.0, marker="o", markerfacecolor="none", color=INK, markersize=6)
            ax.grid(False)
            ax.set_title(f"{shorten(run.arm, 23)}, seed {run.seed}", loc="left", fontsize=8)
        svg = save_svg(figure)
    caption = (
        f"Loss in nats on {runs[0].splits[0]}; {PLANES[part]}. The cross is where training ended, "
        "the ring where it began."
    )
    return Drawing(f"{kind}: the loss in a plane ({PLANES[part]})", svg, caption)
