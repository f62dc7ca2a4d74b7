"""Write the page of a folder of results: charts of Hung-yi Lee's lectures, curves, loss surfaces,
and the tables that `gains.py` and `devices.py` left."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd

from speechssl.artifacts import hold_output, read_json
from speechssl.cli import script
from speechssl.errors import InputError
from speechssl.options import argument
from speechssl.report.build import describe_machine
from speechssl.report.figures import (
    Drawing,
    add_legend,
    choose_line_style,
    make_axes,
    save_svg,
    shorten,
)
from speechssl.report.page import Section, write_page
from speechssl.results import INK, MUTED, Row, Table, make_table, read_rows
from speechssl.schema import convert
from textside import published as papers
from textside.options import RESULTS
from textside.runs import CONDITION, PERPLEXITY, read_scores
from textside.tables import Point, average_curves, list_points

TITLE = "What a text-pre-trained encoder knows that units can use"


@dataclass(frozen=True, kw_only=True)
class Page:
    """write report.html from the results of the text side in a folder

    One self-contained page of what is there, of a run in progress too.

      python recipes/text_side/page.py exp/text_side
    """

    results: Path = argument(RESULTS)


def write_text_page(o: Page) -> dict[str, str]:
    """Write `o.results`/report.html, and return its path."""
    page = o.results / "report.html"
    with hold_output(o.results):
        rows = read_rows(o.results / "results.jsonl")
        results = read_results(o.results, rows)
        write_page(page, TITLE, [make_section(results)], describe_machine(), rows=rows)
    print(f"{page}: open it in a browser")
    return {"page": str(page)}


@dataclass(frozen=True)
class Results:
    """These are the rows, curves, tables and loss surfaces of a folder of results."""

    rows: tuple[Row, ...]
    curves: Mapping[tuple[str, str], Sequence[Sequence[Point]]]  # task, arm -> points of every seed
    tables: tuple[Table, ...]  # of `gains.py` and `devices.py`
    surfaces: tuple[SurfaceRun, ...]

    def find_gains(self, task: str) -> dict[str, Row]:
        """Return the gains of a task by arm, in the order of the chart."""
        rows = (row for row in self.rows if (row.metric, row.task) == (papers.GAIN, task))
        by_arm = {row.encoder: row for row in rows}
        return {arm: by_arm[arm] for arm in papers.sort_arms(by_arm)}


def read_results(out: Path, rows: Sequence[Row]) -> Results:
    """Read a folder of results."""
    kept = tuple(row for row in rows if row.condition == CONDITION)
    curves: dict[tuple[str, str], list[list[Point]]] = {}
    for path in sorted(out.glob("runs/*/*/scores.json")):
        run = read_scores(path)
        points = list_points(run.curve)
        if len(points) > 1:
            curves.setdefault((run.task, run.arm), []).append(points)
    tables: list[Table] = []
    for name in ("text_side", "devices"):
        path = out / f"tables/{name}.json"
        if path.is_file():
            tables += map(make_table, read_json(path)["tables"])
    return Results(kept, curves, tuple(tables), read_surfaces(out))


def make_section(results: Results) -> Section:
    """Draw the charts, and add the tables."""
    gained = [row.task for row in results.rows if row.metric == papers.GAIN]
    tasks = list(dict.fromkeys(task for task in gained if not papers.has_own_table(task)))
    tasks.sort(key=lambda task: task != papers.MEAN)  # the mean comes first
    drawings = []
    if tasks:
        drawings.append(draw_gains(results, tasks))
    if alignment := draw_alignment(results):
        drawings.append(alignment)
    for task in dict.fromkeys(task for task, _ in results.curves):
        drawings.append(draw_curves(results, task))
    drawings += draw_surfaces(results.surfaces)
    return Section("", "", results.tables, drawings)


def draw_gains(results: Results, tasks: Sequence[str]) -> Drawing:
    """Draw a bar an arm, a panel a task."""
    arms = papers.sort_arms({arm for task in tasks for arm in results.find_gains(task)})
    with make_axes(len(tasks), 1, 2.0, sharex="all") as (figure, axes):
        for n, (task, ax) in enumerate(zip(tasks, axes[:, 0], strict=True)):
            gains = results.find_gains(task)
            places = [place for place, arm in enumerate(arms) if arm in gains]
            rows = list(gains.values())
            low = [0.0 if row.low is None else row.value - row.low for row in rows]
            high = [0.0 if row.high is None else row.high - row.value for row in rows]
            style = {"color": choose_line_style(n)["color"], "alpha": 0.85, "ecolor": INK}
            ax.bar(places, [row.value for row in rows], 0.62, yerr=np.array([low, high]), **style)
            ax.axhline(0, color=MUTED, linewidth=0.8)
            ax.set_ylabel("points")
            ax.set_title(task, loc="left", fontsize=9)
        labels = []
        for arm in arms:
            published = papers.ARTIFICIAL.get(papers.parse_family(arm), "")
            labels.append(f"{shorten(arm, 14)}\n{fill(published, 12)}")
        axes[-1, 0].set_xticks(range(len(arms)), labels, fontsize=7)
        svg = save_svg(figure)
    caption = (
        "Points over training from scratch, with 95 % intervals over seeds and items. Below the "
        f"bars: what Hung-yi Lee's lecture says of the chart of {papers.PAPER} (GLUE, published "
        "size)."
    )
    return Drawing("Gain over scratch", svg, caption)


def draw_alignment(results: Results) -> Drawing | None:
    """Draw a line a start, the mean of its seeds; None where no alignment was measured."""
    rows = []
    for row in results.rows:  # of a task such as alignment-3 or alignment-3-zero-mean
        kind, _, rest = row.task.partition("-")
        if kind == papers.ALIGNMENT:
            layer, _, states = rest.partition("-")
            rows.append((states, row.encoder, int(layer), row.value))
    if not rows:
        return None
    frame = pd.DataFrame(rows, columns=["states", "arm", "layer", "mrr"])
    arms = sorted(set(frame.arm))
    with make_axes(1, 2) as (figure, axes):
        for (states, arm), line in frame.groupby(["states", "arm"]):
            means = line.groupby("layer").mrr.mean()
            style = choose_line_style(arms.index(arm))
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


def draw_curves(results: Results, task: str) -> Drawing:
    """Draw three panels: training loss and score against steps, and score against training loss;
    means over seeds."""
    arms = papers.sort_arms(arm for name, arm in results.curves if name == task)
    scale, score_name = (1, task) if task == PERPLEXITY else (100, "score (%)")
    names = (("steps", "training loss"), ("steps", score_name), ("training loss", score_name))
    with make_axes(1, 3) as (figure, axes):
        panels = axes[0]
        for n, arm in enumerate(arms):
            steps, losses, scores = np.array(average_curves(results.curves[task, arm])).T
            panels[0].plot(steps, losses, label=arm, **choose_line_style(n))
            panels[1].plot(steps, scale * scores, label=arm, **choose_line_style(n))
            panels[2].plot(losses, scale * scores, label=arm, **choose_line_style(n))
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

LINES = {  # part of a surface -> label of its axis
    "path": "from the start (0) to the end (1)",
    "random": "random direction",
}
PLANES = {  # part of a surface -> its axes
    "plane": "two random directions",
    "path-plane": "from start (0) to end (1), and a random direction",
}
LEVELS = 9  # contours


@dataclass(frozen=True)
class SurfaceRun:
    """A surface has the losses around a reader; surface.py writes it to surface.json."""

    kind: str  # "dual" or "text-qa"
    arm: str
    seed: int
    splits: tuple[str, str]  # that of training, and another one
    # line or plane -> "at" (P,), or "x" and "y"; and for every split the mean loss there, in nats
    parts: dict[str, dict[str, list[Any]]]


def read_surfaces(out: Path) -> tuple[SurfaceRun, ...]:
    """Read the surfaces in a folder of results."""
    files = sorted(out.glob(f"runs/*-{papers.SURFACE}/*/surface.json"))
    return tuple(convert(read_json(path), SurfaceRun, path) for path in files)


def draw_surfaces(surfaces: Sequence[SurfaceRun]) -> list[Drawing]:
    """Draw the lines of each kind of reader, and the planes of its first seed."""
    drawings = []
    for kind in dict.fromkeys(run.kind for run in surfaces):
        runs = [run for run in surfaces if run.kind == kind]
        drawings.append(draw_lines(runs, kind))
        for part in PLANES:
            first_seeds = {run.arm: run for run in reversed(runs) if part in run.parts}
            if first_seeds:
                sorted_runs = [first_seeds[arm] for arm in papers.sort_arms(first_seeds)]
                drawings.append(draw_plane(sorted_runs, part, kind))
    return drawings


def draw_lines(runs: Sequence[SurfaceRun], kind: str) -> Drawing:
    """Draw the loss along the path and along a random line, a line an arm and split."""
    with make_axes(1, 2, sharey="row") as (figure, axes):
        for part, ax in zip(LINES, axes[0], strict=True):
            for n, arm in enumerate(papers.sort_arms(run.arm for run in runs)):
                lines = [run.parts[part] for run in runs if run.arm == arm]
                points = lines[0]["at"]
                if any(line["at"] != points for line in lines):
                    raise InputError(f"the surfaces of {arm} have different points; measure again")
                for split, dash in zip(runs[0].splits, ("-", "--"), strict=True):
                    loss = np.mean([line[split] for line in lines], axis=0)
                    label = arm if dash == "-" else ""  # the legend names an arm once
                    ax.plot(points, loss, dash, color=choose_line_style(n)["color"], label=label)
            ax.set_xlabel(LINES[part])
        axes[0, 0].set_ylabel("loss")
        add_legend(figure)
        svg = save_svg(figure)
    solid, dashed = runs[0].splits
    caption = f"Means over seeds. Solid: {solid}; dashed: {dashed}. Loss in nats."
    return Drawing(f"{kind}: the loss along lines", svg, caption)


def draw_plane(runs: Sequence[SurfaceRun], part: str, kind: str) -> Drawing:
    """Draw a panel a start, three in a row, with the same contours."""
    losses = [np.maximum(run.parts[part][run.splits[0]], 1e-4) for run in runs]
    low = max(min(float(loss.min()) for loss in losses), 1e-3)
    high = max(max(float(loss.max()) for loss in losses), 2e-3)
    levels = np.geomspace(low, high, LEVELS)
    on_path = part == "path-plane"
    with make_axes(ceil(len(runs) / 3), 3, 2.9) as (figure, axes):
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


if __name__ == "__main__":
    sys.exit(script(write_text_page, Page))
