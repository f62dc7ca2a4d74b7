"""The section of a robustness grid on a page: a paragraph, a table a task, a heat map of encoders x
conditions, curves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from speechssl.report.figures import (
    CLEAN,
    INCHES,
    NAMES,
    ROW,
    SYSTEMS,
    Drawing,
    Points,
    Results,
    ScoreCell,
    Series,
    ShownCondition,
    arrange,
    blank,
    cell_axes,
    decibels,
    draw_cell,
    panels_in,
    points_in,
    points_text,
    shortened,
    snr_axis,
    svg_of,
)
from speechssl.report.page import Section, grid_of
from speechssl.results import (
    INK,
    LOWER_IS_BETTER,
    MUTED,
    Row,
    choose_averaged_tasks,
    decimals,
    interval_note,
    join_words,
    metric_name,
    nearest_snr,
    unit,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, PowerNorm
    from matplotlib.figure import Figure as Canvas

GROUPS = ("seen-", "unseen-")  # what the names of noisy conditions of a grid begin with
AT = 5.0  # dB, the SNR that the summary speaks of
# from no loss to the greatest, ever darker: safe for all readers
HEATS = ("#fbf6e9", "#f6d98f", "#eda04d", "#c9572b", "#6e1f1a")
DARK, LIGHT = "#17191c", "#fdfdfd"  # numbers in the cells, which keep their colours on a dark page
WHITE_FROM = 0.74  # of the colour scale
GAP, HEAD = 0.2, 0.52  # inches: between two panels of a heat map, above a panel
LEAST = {"%": 10.0, "dB": 4.0}  # the colour scale reaches at least to this loss
STEPS = 48  # of the colour scale, as drawn
CURVE, BETWEEN = 1.35, 0.42  # inches: height of a panel of curves, and what is below it

# ---- the rows, arranged: a panel a task, a series an encoder


@dataclass(frozen=True)
class Panel:
    """One task by one metric. results: every encoder is a series, with the same colour in all
    panels."""

    task: str
    metric: str
    results: Results

    @property
    def label(self) -> str:
        return f"{SYSTEMS.get(self.task, self.task)}, {metric_name(self.metric)}"

    @property
    def encoders(self) -> tuple[Series, ...]:
        return self.results.having(self.metric)

    @property
    def conditions(self) -> tuple[ShownCondition, ...]:
        return self.results.conditions(self.metric)

    def cell(self, encoder: Series, condition: ShownCondition) -> ScoreCell | None:
        return self.results.get(encoder, self.metric, condition)

    def loss(self, encoder: Series, condition: ShownCondition) -> float | None:
        """Points that a condition costs against the encoder's own clean speech; below 0 where it is
        better. None: not measured."""
        clean, noisy = self.cell(encoder, CLEAN), self.cell(encoder, condition)
        if clean is None or noisy is None:
            return None
        return (
            noisy.value - clean.value
            if self.metric in LOWER_IS_BETTER
            else clean.value - noisy.value
        )


def of_grid(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    rows = list(rows)
    measured = {(r.name, r.encoder, r.metric) for r in rows if r.condition.startswith(GROUPS)}
    parts: tuple[list[Row], list[Row]] = ([], [])
    for r in rows:
        in_grid = (r.name, r.encoder, r.metric) in measured and (
            r.condition == "clean" or r.condition.startswith(GROUPS)
        )
        parts[not in_grid].append(r)
    return parts


def panels(rows: Sequence[Row], first: Sequence[str] = ()) -> tuple[Panel, ...]:
    """rows: of a grid. Tasks and encoders in the order in which they appear. first: encoders that
    have the first colours."""
    encoders = series_of([*first, *(r.encoder for r in rows)])
    by_name, by_task = {series.system: series for series in encoders}, []
    for task, metric in dict.fromkeys((r.name, r.metric.lower()) for r in rows):
        panel_rows = [
            replace(r, task="", system=r.encoder, encoder="")
            for r in rows
            if (r.name, r.metric.lower()) == (task, metric)
        ]
        cells = {
            (by_name[s.system], m, c): cell for (s, m, c), cell in arrange(panel_rows).cells.items()
        }
        by_task.append(Panel(task, metric, Results(tuple(encoders), cells)))
    return tuple(by_task)


def series_of(encoders: Iterable[str]) -> list[Series]:
    return [Series(name, "", name, slot) for slot, name in enumerate(dict.fromkeys(encoders))]


# ---- the section


def robustness_section(panels: Sequence[Panel], summarised: Sequence[Panel]) -> Section:
    """summarised: the panels that the paragraph counts, one a task."""
    heat = (
        "The number is the score (percent); the darker its cell, the more points are lost "
        "against the encoder's own clean speech."
    )
    other = "The same for what is not measured in percent, since such a loss is on another scale."
    cells = (
        (panel.label, cell.drawn, cell.groups)
        for panel in panels
        for cell in panel.results.cells.values()
    )
    curve = f"{interval_note('Bands', cells)} Clean speech stands at the right end."
    share = (
        "FF1 of each system over its own FF1 in clean speech: the flatter, the less it minds "
        "the noise."
    )
    figures: list[tuple[str, str, Drawing | None]] = [
        ("What noise costs, task by task", heat, heat_map(panels)),
        ("What noise costs, in decibels", other, heat_map(panels, "dB")),
        ("What noise costs, on PESQ's scale", other, heat_map(panels, "")),
        ("Scores against the signal-to-noise ratio (SNR)", curve, curves(panels)),
        ("What DUAL and the cascade keep", share, relative_curves(panels)),
    ]
    return Section(
        summary=summarise_grid(summarised),
        grids=[grid_of(panel.results, panel.metric, panel.label) for panel in panels],
        figures=figures,
    )


def summarise_grid(panels: Sequence[Panel]) -> str:
    """Say what unseen (else seen) noise costs every encoder, averaged over the tasks that all of
    them did. Empty without any.

    Units and tasks that need a recogniser (a cascade, SpeechBERT) do not count
    (`choose_averaged_tasks`).
    """
    counted = choose_averaged_tasks((p.task, p.metric) for p in panels)
    tasks = [p for p in panels if (p.task, p.metric) in counted]
    encoders = [
        e for e in (tasks[0].encoders if tasks else ()) if all(e in p.encoders for p in tasks)
    ]
    every = list(dict.fromkeys(c for p in tasks for c in p.conditions))
    noisy = [c for c in every if c.name.startswith("unseen-")] or [
        c for c in every if c.name.startswith("seen-")
    ]
    level = nearest_snr(noisy, AT)
    cells = [
        (p, c) for p in tasks for c in level if any(p.loss(e, c) is not None for e in encoders)
    ]
    losses = {e: [loss for p, c in cells if (loss := p.loss(e, c)) is not None] for e in encoders}
    # a mean over other cells would not compare
    parts = [
        f"{e.label} {sum(values) / len(values):.1f}"
        for e, values in losses.items()
        if values and len(values) == len(cells)
    ]
    if not parts:
        return ""
    count = f"Averaged over {len(tasks)} tasks, " if len(tasks) > 1 else ""
    group, snr = level[0].name.split("-")[0], level[0].snr_db
    noise = f"{group} noise{'' if snr is None else f' at {decibels(snr)}'}"
    sentence = f"{count}{noise} costs {join_words(parts)} points against clean speech."
    return sentence[0].upper() + sentence[1:]


# ---- curves


def curves(panels: Sequence[Panel]) -> Drawing | None:
    """A row a task, a column a kind of noise, a line an encoder, clean speech at the right end;
    bands are 95 % intervals.

    None where no noise has two SNRs.
    """
    noises = _noises(panels)
    if not noises:
        return None
    encoders = list(dict.fromkeys(e for p in panels for e in p.encoders))
    points = {
        (p.label, e, n): points_in(p.results, e, p.metric, n)
        for p in panels
        for e in p.encoders
        for n in noises
    }
    size: dict[str, Any] = {"entries": encoders, "above": 0.38, "between": BETWEEN}
    with panels_in(len(panels), len(noises), CURVE, **size) as (figure, axes):
        for panel, line in zip(panels, axes, strict=True):
            for noise, ax in zip(noises, line, strict=True):
                _curve_panel(ax, [(e, points[panel.label, e, noise], "-") for e in panel.encoders])
            above = 19 if panel is panels[0] else 5  # points; the names of the noises come between
            place: dict[str, Any] = {
                "xycoords": "axes fraction",
                "textcoords": "offset points",
                "xytext": (0, above),
            }
            line[0].annotate(panel.label, (0, 1), fontsize=9, fontweight="bold", **place)
            line[0].set_ylabel(unit(panel.metric) or metric_name(panel.metric))
        _name_columns(axes, noises)
        svg = svg_of(figure, "robust-curves")
    texts = [
        (f"{label}, {e.label}: {points_text(series_points)}")
        for (label, e, _), series_points in points.items()
    ]
    what = "" if any(unit(p.metric) != "%" for p in panels) else " in percent"
    return Drawing(svg, f"Scores{what} against the signal-to-noise ratio. {'; '.join(texts)}.")


def relative_curves(panels: Sequence[Panel]) -> Drawing | None:
    """FF1 of DUAL and of cascades in percent of their own FF1 in clean speech, against the SNR;
    None without both.

    Without intervals: those of the tables know that the questions are the same.
    """
    duals, cascades = (
        [p for p in panels if p.task.startswith(kind) and p.metric == "ff1"]
        for kind in ("dual", "cascade")
    )
    noises = _noises([*duals, *cascades])
    if not duals or not cascades or not noises:
        return None
    shown, points = [(p, e) for p in (*duals, *cascades) for e in p.encoders], {}
    for panel, encoder in shown:
        for noise in noises:
            line = points_in(panel.results, encoder, panel.metric, noise)
            clean = next((cell.value for c, cell in line if c == CLEAN), 0.0)
            shares = (
                [(c, ScoreCell(100 * x.value / clean, None, None, x.n)) for c, x in line]
                if clean
                else []
            )
            points[panel.label, encoder, noise] = shares
    encoders, kinds = (
        list(dict.fromkeys(e for _, e in shown)),
        {"dual": "-", "cascade": (0, (4, 2))},
    )
    with panels_in(1, len(noises), 2.3, entries=encoders, dashes=kinds, above=0.25) as (
        figure,
        (axes,),
    ):
        for noise, ax in zip(noises, axes, strict=True):
            _curve_panel(
                ax,
                [
                    (e, points[p.label, e, noise], kinds["dual" if p in duals else "cascade"])
                    for p, e in shown
                ],
            )
            ax.set_ylim(0, max(105.0, *ax.get_ylim()))
        axes[0].set_ylabel("% of FF1 in clean speech")
        _name_columns([axes], noises)
        svg = svg_of(figure, "kept")
    texts = [
        (f"{p.label}, {e.label}: {points_text(points[p.label, e, n])}")
        for p, e in shown
        for n in noises
    ]
    return Drawing(
        svg, f"FF1 in percent of what the same system reaches in clean speech. {'; '.join(texts)}."
    )


def _noises(panels: Sequence[Panel]) -> list[str]:
    """Conditions with two SNRs or more, seen before unseen."""
    by_noise: dict[str, set[float]] = {}
    for condition in (c for p in panels for c in p.conditions if c.snr_db is not None):
        by_noise.setdefault(condition.name, set()).add(condition.snr_db or 0.0)
    return sorted(
        (n for n, ratios in by_noise.items() if len(ratios) > 1),
        key=lambda n: (not n.startswith(GROUPS[0]), n),
    )


def _curve_panel(ax: Axes, lines: Sequence[tuple[Series, Points, Any]]) -> None:
    if not any(c.snr_db is not None for _, points, _ in lines for c, _ in points):
        ax.set_visible(False)
        return
    clean = snr_axis(ax, [points for _, points, _ in lines])
    for series, points, dash in lines:
        xs, cells = (
            [clean if c.snr_db is None else c.snr_db for c, _ in points],
            [cell for _, cell in points],
        )
        banded = [
            (x, c.low, c.high)
            for x, c in zip(xs, cells, strict=True)
            if c.low is not None and c.high is not None
        ]
        if banded:
            places, lows, highs = zip(*banded, strict=True)
            ax.fill_between(places, lows, highs, color=series.colour, alpha=0.16, linewidth=0)
        style: dict[str, Any] = {
            "marker": series.marker,
            "color": series.colour,
            "markersize": 4,
            "linewidth": 1.5,
        }
        ax.plot(xs, [cell.value for cell in cells], linestyle=dash, **style)
    ax.set_xticks(
        ax.get_xticks(), [text.get_text().removesuffix("\u00a0dB") for text in ax.get_xticklabels()]
    )
    ax.tick_params(labelsize=8)


def _name_columns(axes: Sequence[Sequence[Axes]], noises: Sequence[str]) -> None:
    """The noise above the first row, the axis below the last."""
    for noise, ax in zip(noises, axes[0], strict=True):
        ax.set_title(ShownCondition(noise).family, loc="left", fontsize=8.5, color=MUTED, pad=4)
    for ax in axes[-1]:
        ax.set_xlabel("← more noise\N{EM SPACE}SNR (dB)\N{EM SPACE}less noise →", fontsize=8.5)


# ---- the heat map


def heat_map(panels: Sequence[Panel], measured: str = "%") -> Drawing | None:
    """The score in every cell; its colour is the points lost against the encoder's own clean
    speech, on one scale for all tasks.

    measured: tasks whose metric is in another unit are left out, since a decibel is no point. None
    where nothing is lost or
    gained because nothing noisy was measured.
    """
    panels = [panel for panel in panels if unit(panel.metric) == measured]
    losses = []
    for panel in panels:
        pairs = [(e, c) for e in panel.encoders for c in panel.conditions if c != CLEAN]
        losses += [
            loss
            for encoder, condition in pairs
            if (loss := panel.loss(encoder, condition)) is not None
        ]
    if not losses:
        return None
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    most = max(LEAST.get(measured, 1.0), *losses)
    scale, colours = (
        PowerNorm(0.5, 0, most, clip=True),
        LinearSegmentedColormap.from_list("heat", HEATS),
    )
    heights = [HEAD + ROW * len(panel.encoders) + GAP for panel in panels]
    with blank(sum(heights) + 0.5) as figure:
        top = figure.get_figheight() - 0.5
        for panel, height in zip(panels, heights, strict=True):
            _heat_panel(figure, panel, top - height + GAP, scale, colours)
            top -= height
        points = "Points" if measured == "%" else measured or metric_name(panels[0].metric)
        _heat_scale(figure, most, f"{points} lost to noise", scale, colours)
        svg = svg_of(figure, "heat" if measured == "%" else f"heat-{measured.lower() or 'own'}")
    parts = []
    for panel in panels:
        texts = []
        for encoder in panel.encoders:
            cells = [(c, panel.cell(encoder, c)) for c in panel.conditions]
            texts.append(
                f"{encoder.label}: {points_text([(c, cell) for c, cell in cells if cell])}"
            )
        parts.append(f"{panel.label}: {'; '.join(texts)}.")
    what = {"%": " in percent", "": ""}.get(measured, f" in {measured}")
    return Drawing(svg, f"Scores{what}, and what noise costs. {' '.join(parts)}")


def _heat_scale(
    figure: Canvas, most: float, label: str, scale: PowerNorm, colours: Colormap
) -> None:
    """The colour scale along the top, from 0 to `most`."""
    from matplotlib.patches import Rectangle

    tall = figure.get_figheight()
    ax = figure.add_axes((NAMES / INCHES, 1 - 0.19 / tall, 2.6 / INCHES, 0.11 / tall))
    for i in range(STEPS):
        colour = colours((i + 0.5) / STEPS)
        ax.add_patch(
            Rectangle(
                (i / STEPS, 0), 1 / STEPS, 1, facecolor=colour, edgecolor=colour, linewidth=0.5
            )
        )
    ticks = [
        t
        for t in ((0, 1, 5, 10, 20, 40, 80) if most >= 10 else (0, 0.1, 0.5, 1, 2, 4, 8))
        if t <= most
    ]
    ax.set_xticks([float(scale(t)) for t in ticks], [f"{t:g}" for t in ticks])
    ax.set_yticks([])
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.tick_params(labelsize=7.5, length=0, pad=2)
    figure.text(0.05 / INCHES, 1 - 0.135 / tall, label, fontsize=8, va="center", color=MUTED)


def _heat_panel(
    figure: Canvas, panel: Panel, bottom: float, scale: PowerNorm, colours: Colormap
) -> None:
    """The cells; the task above the names, the SNRs above the columns, and above them what these
    have in common.

    bottom: inches from the lower edge of the figure.
    """
    encoders, conditions = panel.encoders, panel.conditions
    width = min(INCHES - NAMES - 0.15, 0.85 * len(conditions))
    ax = cell_axes(
        figure, NAMES, bottom, width, ROW * len(encoders), len(conditions), len(encoders)
    )
    for y, encoder in enumerate(encoders):
        for x, condition in enumerate(conditions):
            cell = panel.cell(encoder, condition)
            if cell is None:
                ax.text(x, y, "–", ha="center", va="center", fontsize=8, color=MUTED)
                continue
            share = float(scale(max(panel.loss(encoder, condition) or 0.0, 0.0)))
            number = f"{cell.value:.{decimals(panel.metric)}f}"
            draw_cell(ax, x, y, number, colours(share), LIGHT if share > WHITE_FROM else DARK)
    ax.set_yticks(range(len(encoders)), [shortened(e.label) for e in encoders])
    ax.tick_params(axis="y", labelcolor=INK, labelsize=8.5)
    ax.set_xticks([])

    style: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "clip_on": False}
    # in parts of the axis; of the axis
    inch, across = 1 / (ROW * len(encoders)), ax.get_position().width * INCHES
    side = NAMES / across * len(conditions)
    ax.text(
        -0.45 - side,
        1 + 0.28 * inch,
        SYSTEMS.get(panel.task, panel.task),
        fontsize=9,
        fontweight="bold",
        va="center",
        **style,
    )
    ax.text(
        -0.45 - side,
        1 + 0.1 * inch,
        metric_name(panel.metric),
        fontsize=8,
        color=MUTED,
        va="center",
        **style,
    )
    x = 0
    for family, members in groupby(conditions, key=lambda c: c.family):
        columns = list(members)
        last = x + len(columns) - 1
        if any(c.snr_db is not None for c in columns):
            ax.plot(
                [x - 0.42, last + 0.42], [1 + 0.215 * inch] * 2, color=MUTED, linewidth=0.5, **style
            )
            for place, condition in enumerate(columns, x):
                text = "" if condition.snr_db is None else decibels(condition.snr_db)
                ax.text(
                    place,
                    1 + 0.1 * inch,
                    text,
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    color=MUTED,
                    **style,
                )
        lines = fitted(
            "Clean" if columns[0] == CLEAN else family, len(columns) * (across / len(conditions))
        )
        ax.text(
            (x + last) / 2,
            1 + 0.27 * inch,
            lines,
            ha="center",
            va="bottom",
            fontsize=7.5,
            linespacing=1.05,
            **style,
        )
        x = last + 1


def fitted(name: str, inches: float) -> str:
    """A name in at most two lines of so many inches, cut off where it is longer yet."""
    # letters of 7.5 points
    return "\n".join(wrap(name, max(3, int(inches / 0.066)), max_lines=2, placeholder="…"))
