"""The crossing figure of a comparison: score against word error rate, from every source of errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from speechssl.evaluation.comparison import CLEAN, reads_reference
from speechssl.evaluation.comparison_tables import told, where_name
from speechssl.evaluation.crossing import Crossing, Point, falling
from speechssl.evaluation.resampling import Estimate
from speechssl.report.figures import INCHES, MUTED, Drawing, styled, svg_of
from speechssl.report.series import Series, metric_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {"simulated": "Simulated errors", "recognisers": "Recognisers, clean speech"}
HEIGHT, LINE = 4.0, 0.19  # inches: of the figure without its legend, of a line of the legend
APART = 8.0  # points of WER between conditions that are both named


def crossing_figure(found: Sequence[Crossing], metric: str, errors: str, name: str) -> Drawing | None:
    """found: of one system without a transcript; None where they have no family of their own. errors: WER or CER. name: unique
    on the page.

    A line is the fitted curve of a family, which never rises; a bar at the foot the interval in which it crosses.
    """
    shown = [x for x in found if x.family != "all"]
    if not shown:
        return None
    series = {x.family: Series("", "", _label(x.family), slot) for slot, x in enumerate(shown, 1)}
    textless = Series("", "", found[0].textless, 0)
    with _blank([textless, *series.values()]) as (figure, ax):
        far = 100 * max(x.high_wer for x in shown) * 1.06
        _textless(ax, shown, textless)
        for place, x in enumerate(shown):
            _family(ax, x.points, series[x.family])
            _place(ax, x, series[x.family], 1.6 + 2.4 * place)
        ax.set_xlim(-0.012 * far, far)
        ax.set_ylim(0, min(108.0, _top(shown)))
        ax.set_xlabel(f"{errors} of the cascade's recogniser (%)")
        ax.set_ylabel(f"{metric_name(metric)} (%)")
        svg = svg_of(figure, name)
    return Drawing(svg, _alt(shown, metric, errors))


def _label(family: str) -> str:
    return NAMES.get(family) or family.replace("noise, ", "Noise, ")


@contextmanager
def _blank(series: Sequence[Series]) -> Iterator[tuple[Figure, Axes]]:
    """An axis under a legend."""
    from matplotlib.figure import Figure  # slow to import
    from matplotlib.lines import Line2D

    rows = -(-len(series) // 3)
    height = HEIGHT + LINE * rows + 0.12
    with styled():
        figure = Figure(figsize=(INCHES, height))
        ax = figure.subplots()
        figure.subplots_adjust(left=0.062, right=0.985, bottom=0.5 / height, top=1 - (LINE * rows + 0.2) / height)
        handles = [Line2D([], [], color=s.colour, marker=s.marker, markersize=5.5, linewidth=1.6, label=s.label) for s in series]
        figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.05, 1.0), ncols=min(3, len(handles)))
        yield figure, ax


def _textless(ax: Axes, found: Sequence[Crossing], series: Series) -> None:
    """Its level in clean speech as far as errors there go, and its scores in noise where the recogniser stands in that noise."""
    for points in (x.points for x in found):
        xs, ys = [100 * p.wer.value for p in points], [100 * p.textless.value for p in points]
        if all(p.condition == CLEAN for p in points):
            v = points[0].textless.interval.percent
            ax.fill_between([0, max(xs)], v.low, v.high, color=series.colour, alpha=0.12, linewidth=0)
            ax.plot([0, max(xs)], [v.value, v.value], color=series.colour, linewidth=1.6)
            continue
        ax.plot(xs, ys, color=series.colour, linewidth=1.2, linestyle=(0, (4, 2)), marker=series.marker, markersize=5.5)
        for p in points:
            _bars(ax, p.wer, p.textless, series, along=False)


def _family(ax: Axes, points: Sequence[Point], series: Series) -> None:
    xs, ys = [100 * p.wer.value for p in points], [100 * p.cascade.value for p in points]
    ax.plot(xs, falling(np.array(ys)), color=series.colour, linewidth=1.6)
    named = -APART
    for p, x, y in zip(points, xs, ys, strict=True):
        _bars(ax, p.wer, p.cascade, series)
        ax.plot([x], [y], marker=series.marker, color=series.colour, markersize=5.5)
        if (name := _name(p)) and x - named >= APART:
            named = x
            ax.annotate(name, (x, y), (5, 5), textcoords="offset points", fontsize=7, color=MUTED)


def _name(p: Point) -> str:
    """Simulated errors say all by their place."""
    if reads_reference(p.system):
        return "reference text" if p.wer.value == 0 else ""
    return where_name(p.condition)


def _bars(ax: Axes, wer: Estimate, score: Estimate, series: Series, along: bool = True) -> None:
    x, y = wer.interval.percent, score.interval.percent
    style: dict[str, Any] = {"color": series.colour, "linewidth": 1.2, "alpha": 0.5, "solid_capstyle": "round"}
    ax.plot([x.value, x.value], [y.low, y.high], **style)
    if along:
        ax.plot([x.low, x.high], [y.value, y.value], **style)


def _place(ax: Axes, x: Crossing, series: Series, foot: float) -> None:
    """The crossing at the foot of the figure, with its interval as far as it lies in the range. foot: height of the bar."""
    if x.at is None:
        return
    low, high = (100 * (end if end is not None else other) for end, other in ((x.low, x.low_wer), (x.high, x.high_wer)))
    ax.plot([100 * x.at] * 2, [0, 200], color=series.colour, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
    ax.plot([low, high], [foot, foot], color=series.colour, linewidth=3, solid_capstyle="round")
    ax.annotate(f"{100 * x.at:.1f} %", (high, foot), (6, -2.5), textcoords="offset points", fontsize=7.5, color=MUTED)


def _top(found: Sequence[Crossing]) -> float:
    ends = [e.interval.percent.high for x in found for p in x.points for e in (p.cascade, p.textless)]
    return max(10.0, 10.0 * (int(max(ends) * 1.04 / 10) + 1))


def _alt(found: Sequence[Crossing], metric: str, errors: str) -> str:
    parts = []
    for x in found:
        values = [[100 * e.value for e in (p.wer, p.cascade, p.textless)] for p in x.points]
        places = ", ".join(f"{wer:.1f}: {a:.1f} and {b:.1f}" for wer, a, b in values)
        parts.append(f"{_label(x.family)}: they cross at {told(x)}; {errors}, cascade and {x.textless}: {places}")
    return f"{metric_name(metric)} against the {errors}, in percent. " + ". ".join(parts) + "."
