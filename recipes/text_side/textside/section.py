"""The text side's section of a page: the chart of gains over scratch of Hung-yi Lee's lecture with
what was published, the gain against the length of dependencies, optimisation and generalisation
apart, and the tables that `gains.py` left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import TYPE_CHECKING, get_args

import numpy as np

from speechssl.artifacts import CARD, MADE_FROM, read_json
from speechssl.errors import InputError
from speechssl.report.figures import (
    Drawing,
    add_legend,
    line_style,
    new_axes,
    save_svg,
    shorten,
)
from speechssl.report.page import Section, text_grid
from speechssl.results import INK, MUTED, Row, Table, interval_text, join_words, table_of
from textside.data import dependency
from textside.options import Objective
from textside.published import (
    ALIGNMENT,
    ARTIFICIAL,
    CONVERTED,
    DUAL_NOTE,
    FLOORS,
    FROZEN,
    FROZEN_PAPER,
    GAIN,
    MEAN,
    PAPER,
    PRECISION,
    SURFACE,
    SYMBOL_ARMS,
    SYMBOL_PAPER,
    SYMBOL_TITLE,
    SYMBOLS,
    UNIT_LM,
    family,
    has_own_table,
    in_order,
    of_languages,
)
from textside.runs import CONDITION, DECIMALS, PERPLEXITY, read_curve
from textside.tables import EQUAL_LOSS, Point, mean_curve, points_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "What a text-pre-trained encoder knows that units can use"


@dataclass(frozen=True)
class Lectures:
    """curves: (task, arm) -> the points of every seed; tables: as `gains.py` wrote
    them; begun: what is not done yet; ended: whether gains were taken.
    """

    rows: tuple[Row, ...] = ()
    curves: Mapping[tuple[str, str], Sequence[Sequence[Point]]] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    surfaces: tuple[SurfaceRun, ...] = ()
    begun: tuple[str, ...] = ()
    ended: bool = False

    def gains(self, task: str) -> dict[str, Row]:
        """By arm, in the order of the chart."""
        by_arm = {row.encoder: row for row in self.rows if row.metric == GAIN and row.task == task}
        return {arm: by_arm[arm] for arm in in_order(by_arm)}


def read_lectures(out: Path, rows: Sequence[Row]) -> Lectures:
    """What lies in a folder of results. Raises InputError for a file that is damaged."""
    lecture_rows = tuple(row for row in rows if row.condition == CONDITION)
    curves: dict[tuple[str, str], list[list[Point]]] = {}
    for path in sorted(out.glob("runs/*/*/scores.json")) if lecture_rows else ():
        values = read_json(path)
        try:
            points = points_of(values["curve"])
            key = values["task"], values["arm"]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path} is not what a run leaves ({error}); delete its folder and run it again"
            ) from error
        if len(points) > 1:
            curves.setdefault(key, []).append(points)
    tables: list[Table] = []
    for name, program in (("text_side", "gains"), ("devices", "devices")):
        path = out / f"tables/{name}.json"
        try:
            present = lecture_rows and path.is_file()
            values = read_json(path) if present else {"tables": []}
            tables += map(table_of, values["tables"])
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{path} is not what `{program}.py` writes ({error}); run it again"
            ) from error
    if not lecture_rows:
        return Lectures()
    ended = (out / "tables/text_side.json").is_file()
    return Lectures(
        lecture_rows, curves, tuple(tables), read_surfaces(out), tuple(read_begun(out)), ended
    )


def read_begun(out: Path) -> Iterator[str]:
    """What was begun in a folder of results and is not done, with its steps where it was scored as
    it learned."""
    for place in ("encoders/*", "models/*", "runs/*/*", "devices/readers/*", "devices/runs/*/*"):
        for path in sorted(out.glob(f"{place}/{MADE_FROM}")):
            folder = path.parent
            if not (folder / CARD).is_file():
                try:
                    points = read_curve(folder / "checkpoints")
                    steps = read_json(path)["options"].get("training", {}).get("steps")
                    at = f" ({points[-1]['step']} of {steps} steps)" if points and steps else ""
                except (AttributeError, KeyError, TypeError, InputError) as error:
                    if not folder.is_dir():  # a run that is refused takes its folder away
                        continue
                    raise InputError(
                        f"{folder} is not a run that was begun ({error!r}); delete "
                        "it and run it again"
                    ) from error
                yield f"{folder.relative_to(out).as_posix()}{at}"


# ---- a run in progress

PARTS = {  # of recipes/text_side -> what it is about
    1: "artificial data",
    2: "other symbols",
    3: "the frozen transformer",
    4: "languages",
    5: "objectives and devices",
    6: "a language model of units",
    7: "loss surfaces",
}
TITLED = {  # what titles of tables begin with -> the part that they are of, the first that fits
    "Scores": 1,
    "Gain": 1,
    "Steps of DUAL": 1,
    f"{EQUAL_LOSS}, symbols": 2,
    EQUAL_LOSS: 1,
    SYMBOL_TITLE: 2,
    "The frozen transformer": 3,
    "ListOps": 3,
    "Mean reciprocal rank": 4,
    "Token translation": 4,
    "Zero-shot": 4,
    "What is trained": 5,
    "A language model": 6,
    "Continuations": 6,
    "Loss surfaces": 7,
}


def in_parts(tables: Iterable[Table]) -> list[Table]:
    """In the order of the parts, which their titles begin with; first those of none."""
    numbered = []
    for table in tables:
        part = next((n for title, n in TITLED.items() if table.title.startswith(title)), 0)
        numbered.append((part, replace(table, title=titled(part, table.title)) if part else table))
    return [table for _, table in sorted(numbered, key=lambda pair: pair[0])]


def titled(part: int, title: str) -> str:
    return f"Part {part}, {PARTS[part]}: {title}"


def part_of(row: Row, symbols: Collection[str]) -> tuple[int, str]:
    """The part of the recipe that a row is of, and the task without layers and measures. symbols:
    tasks of part 2."""
    task, kind = row.task, row.task.partition("-")[0]
    if task.endswith(", devices"):
        return 5, task.removesuffix(", devices")
    if of_languages(task):
        return 4, {CONVERTED: "translation", PRECISION: "translation", ALIGNMENT: ALIGNMENT}.get(
            kind, task
        )
    if has_own_table(task):
        return (
            (3, task)
            if task in FROZEN
            else (6, task)
            if task in UNIT_LM
            else (7, "dual" if kind == "dual" else "text-qa")
        )
    return (
        (2, task)
        if task in symbols
        else (5, task)
        if row.encoder in get_args(Objective)
        else (1, task)
    )


def so_far(lectures: Lectures) -> list[Table]:
    """What was run and what is still to come, where a run is in progress; then also its scores,
    until gains are taken."""
    rows = [row for row in lectures.rows if row.metric != GAIN]
    if not rows or (lectures.ended and not lectures.begun):
        return []
    symbols = {row.task for row in rows if row.encoder in ("specific", "bert", "re-emb")}
    runs: dict[int, dict[str, set[tuple[str, str, int]]]] = {}
    for row in rows:
        part, task = part_of(row, symbols)
        runs.setdefault(part, {}).setdefault(row.encoder, set()).add((task, row.encoder, row.seed))
    lines = []
    for part, title in PARTS.items():
        arms = runs.get(part, {})
        done = set().union(*arms.values())
        tasks = ", ".join(dict.fromkeys(task for task, *_ in sorted(done)))
        lines.append(
            (
                f"{part} {title}",
                tasks or "still to come",
                ", ".join(in_order(arms)) or None,
                len(done),
            )
        )
    begun = f"Begun and not done: {', '.join(lectures.begun)}. " if lectures.begun else ""
    note = (
        f"{begun}Gains over scratch and the lectures' tables follow from `gains.py`, "
        "which the recipe ends with."
    )
    tables = [
        Table(
            "So far: what was run, part by part",
            ("part", "tasks", "starts", "runs"),
            tuple(lines),
            note,
        )
    ]
    scored = [row for row in rows if not of_languages(row.task)]
    if lectures.ended or not scored:
        return tables
    tasks_of = list(dict.fromkeys((row.task, row.metric) for row in scored))

    def cell(arm: str, task: tuple[str, str]) -> str | None:
        seeds = [row for row in scored if (row.encoder, row.task, row.metric) == (arm, *task)]
        number = (
            f"{fmean(row.value for row in seeds):.{DECIMALS.get(task[1], 1)}f}" if seeds else ""
        )
        return f"{number} ({len(seeds)} seed{'s' * (len(seeds) > 1)})" if seeds else None

    arms_of = in_order({row.encoder for row in scored})
    cells = tuple((arm, *(cell(arm, task) for task in tasks_of)) for arm in arms_of)
    columns = ("start", *(f"{task} ({metric})" for task, metric in tasks_of))
    return [
        *tables,
        Table(
            "So far: scores",
            columns,
            cells,
            "Means over the seeds that are done; –: still to come, or not asked for.",
        ),
    ]


def text_side_section(lectures: Lectures) -> Section:
    tasks = list(
        dict.fromkeys(
            row.task for row in lectures.rows if row.metric == GAIN and not has_own_table(row.task)
        )
    )
    tasks = [MEAN] * (MEAN in tasks) + [task for task in tasks if task != MEAN]
    drawn: list[tuple[int, Drawing | None]] = []  # by part
    if tasks:
        drawn.append((1, gain_bars(lectures, tasks)))
        drawn.append((1, gain_by_length(lectures, tasks)))
    symbols = list(dict.fromkeys(row.task for row in lectures.rows if row.encoder == "re-emb"))
    if symbols:
        drawn.append((2, symbol_bars(lectures, symbols)))
    computed = [task for task in FROZEN if any(row.task == task for row in lectures.rows)]
    if computed:
        drawn.append((3, frozen_bars(lectures, computed)))
    drawn.append((4, alignment_by_layer(lectures)))
    learned = dict.fromkeys(task for task, _ in lectures.curves)
    for task in sorted(learned, key=lambda task: task == PERPLEXITY):
        part = 2 if task in symbols else 3 if task in FROZEN else 6 if task == PERPLEXITY else 1
        drawn.append((part, curves(lectures, task)))
    drawn += [(7, drawing) for drawing in surface_figures(lectures.surfaces)]
    drawings = []
    for part, drawing in sorted(drawn, key=lambda pair: pair[0]):
        if drawing:
            drawings.append(replace(drawing, title=titled(part, drawing.title)))
    grids = [text_grid(table) for table in (*so_far(lectures), *in_parts(lectures.tables))]
    return Section("", summary(lectures, tasks), grids, drawings)


def summary(lectures: Lectures, tasks: Sequence[str]) -> str:
    """Which starts gain over scratch on the first task, the mean if there is one; "" where no gain
    was measured."""
    if not tasks:
        return ""
    gains = lectures.gains(tasks[0])
    sure = [arm for arm, row in gains.items() if row.low is not None and row.low > 0]
    where = "in the mean of the tasks" if tasks[0] == MEAN else f"on {tasks[0]}"
    if not sure:
        return f"No start gains over scratch {where} by more than its interval."
    starts = join_words([f"{arm} {interval_text(gains[arm], '+')}" for arm in sure])
    return f"Gain over scratch, {where}: {starts} points."


def draw_rows(ax: Axes, xs: Sequence[float], rows: Sequence[Row], slot: int, label: str) -> None:
    """Draw a line of rows with their intervals, where they have any."""
    errors: list[list[float]] = [[], []]
    for row in rows:
        errors[0].append(0.0 if row.low is None else row.value - row.low)
        errors[1].append(0.0 if row.high is None else row.high - row.value)
    ax.errorbar(xs, [row.value for row in rows], errors, label=label, **line_style(slot))


def gain_bars(lectures: Lectures, tasks: Sequence[str]) -> Drawing:
    arms = in_order({arm for task in tasks for arm in lectures.gains(task)})
    with new_axes(len(tasks), 1, 2.0, sharex="all") as (figure, axes):
        for n, (task, ax) in enumerate(zip(tasks, axes[:, 0], strict=True)):
            gains = lectures.gains(task)
            places = [place for place, arm in enumerate(arms) if arm in gains]
            rows = [gains[arms[place]] for place in places]
            colour = line_style(n)["color"]
            ax.bar(places, [row.value for row in rows], 0.62, color=colour, alpha=0.85)
            for place, row in zip(places, rows, strict=True):
                if row.low is not None and row.high is not None:
                    ax.plot([place, place], [row.low, row.high], color=INK)
            ax.axhline(0, color=MUTED, linewidth=0.8)
            ax.set_ylabel("points")
            ax.set_title(task, loc="left", fontsize=9)
        labels = [
            f"{shorten(arm, 14)}\n{fill(ARTIFICIAL.get(family(arm), ''), 12)}" for arm in arms
        ]
        axes[-1, 0].set_xticks(range(len(arms)), labels, fontsize=7)
        svg = save_svg(figure)
    caption = (
        "Points over training from scratch, with 95 % intervals over seeds and items. Below the "
        f"bars: what Hung-yi Lee's lecture says of the chart of {PAPER} (GLUE, published size)."
    )
    return Drawing("Gain over scratch", svg, caption)


def symbol_bars(lectures: Lectures, tasks: Sequence[str]) -> Drawing:
    caption = (
        f"Our scores (bars, means over seeds) beside those of {SYMBOL_PAPER} (lines across, where "
        "it has the task)."
    )
    return bars(lectures, tasks, SYMBOL_ARMS, SYMBOLS, SYMBOL_TITLE, caption)


def frozen_bars(lectures: Lectures, tasks: Sequence[str]) -> Drawing:
    caption = (
        f"Our accuracy (bars, means over seeds) beside that of {FROZEN_PAPER} (lines across, where "
        "it has the task) and the highest floor, which needs no encoder (dotted)."
    )
    arms = list(FROZEN["listops"])
    return bars(lectures, tasks, arms, FROZEN, "The frozen transformer", caption)


def mean_score(lectures: Lectures, task: str, arm: str) -> float | None:
    """Over seeds; None where it was not run."""
    seeds = [
        r.value for r in lectures.rows if (r.task, r.encoder) == (task, arm) and r.metric != GAIN
    ]
    return fmean(seeds) if seeds else None


def highest_floor(lectures: Lectures, task: str) -> tuple[float, str] | None:
    """Its score and its name; None where the task has none."""
    floors = [
        (value, arm) for arm in FLOORS if (value := mean_score(lectures, task, arm)) is not None
    ]
    return max(floors, default=None)


def bars(
    lectures: Lectures,
    tasks: Sequence[str],
    arms: Sequence[str],
    published: Mapping[str, Mapping[str, float | None]],
    title: str,
    caption: str,
) -> Drawing:
    """Draw four bars a task, in the order of the lecture, with what is published of each, and the
    floor of the task."""
    with new_axes() as (figure, ((ax,),)):
        for n, task in enumerate(tasks):
            for place, arm in enumerate(arms):
                x = n + 0.2 * (place - 1.5)
                ours, theirs = mean_score(lectures, task, arm), published.get(task, {}).get(arm)
                if ours is not None:
                    ax.bar([x], [ours], 0.18, color=line_style(place)["color"], label=arm)
                if theirs is not None:
                    ax.plot([x - 0.09, x + 0.09], [theirs, theirs], color=INK, linewidth=1.6)
            if floor := highest_floor(lectures, task):
                ax.plot([n - 0.4, n + 0.4], [floor[0], floor[0]], ":", color=MUTED, linewidth=1.6)
        ax.set_xticks(range(len(tasks)), [shorten(task, 14) for task in tasks])
        ax.set_ylabel("score (%)")
        add_legend(figure)
        return Drawing(title, save_svg(figure), caption)


def kinds_by_length(lectures: Lectures, task: str) -> dict[str, list[tuple[int, Row]]]:
    """Return the gains of every kind of data that has two lengths of dependencies, by length."""
    kinds: dict[str, list[tuple[int, Row]]] = {}
    for arm, row in lectures.gains(task).items():
        if (length := dependency(arm)) is not None:
            kinds.setdefault(family(arm), []).append((length, row))
    return {
        kind: sorted(pairs, key=lambda pair: pair[0])
        for kind, pairs in kinds.items()
        if len(pairs) > 1
    }


def gain_by_length(lectures: Lectures, tasks: Sequence[str]) -> Drawing | None:
    """Draw a line a kind of data, on the first task that has two lengths of one; None where no
    task has."""
    task = next((task for task in tasks if kinds_by_length(lectures, task)), None)
    if task is None:
        return None
    kinds = kinds_by_length(lectures, task)
    with new_axes() as (figure, ((ax,),)):
        for n, (kind, pairs) in enumerate(kinds.items()):
            draw_rows(ax, [length for length, _ in pairs], [row for _, row in pairs], n, kind)
        ax.set_xscale("log", base=2)
        shown = sorted({length for pairs in kinds.values() for length, _ in pairs})
        ax.set_xticks(shown, [str(n) for n in shown])
        ax.minorticks_off()
        ax.set_xlabel("places between what depends on each other, at most")
        ax.set_ylabel(f"points, {task}")
        add_legend(figure)
        svg = save_svg(figure)
    caption = "Runs that are shuffled, pairs and copies whose parts lie further and further apart."
    return Drawing("Gain against the length of dependencies", svg, caption)


def alignment_by_layer(lectures: Lectures) -> Drawing | None:
    """Draw a line a start, the mean of its seeds; None where no alignment was measured."""
    lines: dict[tuple[bool, str], dict[int, list[float]]] = {}
    for row in lectures.rows:
        kind, _, rest = row.task.partition("-")
        if kind == ALIGNMENT:
            layer, _, states = rest.partition("-")
            of_line = lines.setdefault((bool(states), row.encoder), {})
            of_line.setdefault(int(layer), []).append(row.value)
    if not lines:
        return None
    arms = sorted({arm for _, arm in lines})
    with new_axes(1, 2) as (figure, axes):
        for (less, arm), layers in sorted(lines.items()):
            xs = sorted(layers)
            ys = [fmean(layers[x]) for x in xs]
            axes[0, int(less)].plot(xs, ys, label=arm, **line_style(arms.index(arm)))
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


def curves(lectures: Lectures, task: str) -> Drawing:
    """Draw three panels: training loss and score against steps, and score against training loss;
    means over seeds."""
    arms = in_order(arm for name, arm in lectures.curves if name == task)
    scale, score_name = (1, task) if task == PERPLEXITY else (100, "score (%)")
    with new_axes(1, 3) as (figure, axes):
        panels = axes[0]
        for n, arm in enumerate(arms):
            points = mean_curve(lectures.curves[task, arm])
            steps, losses, scores = zip(*points, strict=True)
            scores = tuple(scale * score for score in scores)
            panels[0].plot(steps, losses, label=arm, **line_style(n))
            panels[1].plot(steps, scores, label=arm, **line_style(n))
            panels[2].plot(losses, scores, label=arm, **line_style(n))
        if floor := highest_floor(lectures, task):
            for ax in panels[1:]:
                ax.axhline(floor[0], color=MUTED, linestyle=":", linewidth=1.2)
        names = (("steps", "training loss"), ("steps", score_name), ("training loss", score_name))
        for ax, (x, y) in zip(panels, names, strict=True):
            ax.set_xlabel(x)
            ax.set_title(y, loc="left", fontsize=8)
        panels[2].invert_xaxis()
        add_legend(figure)
        svg = save_svg(figure)
    caption = (
        "Optimisation: loss in training. Generalisation: the score on the test set, against "
        "steps and at equal training loss."
    )
    note = f" {DUAL_NOTE}" if task == "dual" else ""
    return Drawing(f"{task}: optimisation and generalisation", svg, caption + note)


# ---- loss surfaces: lines from start to end and in a random direction, and contours of planes

LINES = {"path": "from the start (0) to the end (1)", "random": "random direction"}
PLANES = {
    "plane": "two random directions",
    "path-plane": ("from start (0) to end (1), and a random direction"),
}
LEVELS = 9  # contours


@dataclass(frozen=True)
class SurfaceRun:
    """parts: line or plane -> "at" (P,), or "x" and "y", and for every split the mean loss there,
    in nats."""

    kind: str  # "dual" or "text-qa"
    arm: str
    seed: int
    splits: tuple[str, str]  # of training, and the other
    parts: Mapping[str, Mapping[str, np.ndarray]]


def read_surfaces(out: Path) -> tuple[SurfaceRun, ...]:
    """Those in a folder of results. Raises InputError for a file that is damaged."""
    surfaces = []
    for path in sorted(out.glob(f"runs/*-{SURFACE}/*/surface.json")):
        values = read_json(path)
        try:
            parts = {
                part: {name: np.array(rows, float) for name, rows in one.items()}
                for part, one in values["parts"].items()
            }
            train, dev = values["splits"]
            for part, one in parts.items():
                shape = (len(one["at"]),) if part in LINES else (len(one["y"]), len(one["x"]))
                if any(one[split].shape != shape for split in (train, dev)):
                    raise ValueError(f"{part} has gaps")
            surfaces.append(
                SurfaceRun(values["kind"], values["arm"], int(values["seed"]), (train, dev), parts)
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"{path} is not what `surface.py` leaves ({error}); delete its folder"
            ) from error
    return tuple(surfaces)


def surface_figures(all_runs: Sequence[SurfaceRun]) -> list[Drawing]:
    """Draw of each kind of reader the lines, and the planes of the first seed."""
    drawings = []
    for kind in dict.fromkeys(run.kind for run in all_runs):
        runs = [run for run in all_runs if run.kind == kind]
        drawings.append(line_figure(runs, kind))
        for part in PLANES:
            first = {run.arm: run for run in reversed(runs) if part in run.parts}
            if first:
                drawings.append(plane_figure([first[arm] for arm in in_order(first)], part, kind))
    return drawings


def line_figure(runs: Sequence[SurfaceRun], kind: str) -> Drawing:
    with new_axes(1, 2, sharey="row") as (figure, axes):
        for part, ax in zip(LINES, axes[0], strict=True):
            for n, arm in enumerate(in_order(run.arm for run in runs)):
                of_arm = [run for run in runs if run.arm == arm]
                at = of_arm[0].parts[part]["at"]
                alike = [run for run in of_arm if np.array_equal(run.parts[part]["at"], at)]
                for split, dash in zip(of_arm[0].splits, ("-", "--"), strict=True):
                    loss = np.mean([run.parts[part][split] for run in alike], axis=0)
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
    low = max(min(float(x.min()) for x in losses), 1e-3)
    high = max(max(float(x.max()) for x in losses), 2e-3)
    levels = np.geomspace(low, high, LEVELS)
    with new_axes(-(-len(runs) // 3), 3, 2.9) as (figure, axes):
        for ax in axes.ravel()[len(runs) :]:
            ax.remove()
        for ax, run, loss in zip(axes.ravel(), runs, losses, strict=False):
            x, y = run.parts[part]["x"], run.parts[part]["y"]
            drawn = ax.contour(x, y, loss, levels=levels, cmap="viridis", linewidths=1.0)
            ax.clabel(drawn, fmt=lambda v: f"{v:.2g}", fontsize=6, colors=MUTED)
            ends = (1.0, 0.0) if part == "path-plane" else (0.0, 0.0)
            ax.plot(*ends, marker="+", color=INK, markersize=8)
            if part == "path-plane":
                ax.plot(0.0, 0.0, marker="o", markerfacecolor="none", color=INK, markersize=6)
            ax.grid(False)
            ax.set_title(f"{shorten(run.arm, 23)}, seed {run.seed}", loc="left", fontsize=8)
        svg = save_svg(figure)
    axes_text = PLANES[part]
    caption = (
        f"Loss in nats on {runs[0].splits[0]}; {axes_text}. The cross is where training ended, the "
        "ring where it began."
    )
    return Drawing(f"{kind}: the loss in a plane ({axes_text})", svg, caption)
