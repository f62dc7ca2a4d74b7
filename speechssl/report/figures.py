"""Draw the figures of pages with matplotlib, as SVG.

A figure is drawn within `make_axes`; `add_legend` and `save_svg` finish it.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from speechssl.report.scores import title_condition, write_decibels
from speechssl.results import INK, PAPER, name_metric_unit, style_figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours are those of Okabe and Ito (2008), safe for colour-blind readers. Yellow is left for
# the gold answers. The second colour of a pair is the same hue, lighter, for dark backgrounds.
PALETTE = (
    ("#0072b2", "#4ba6e3"),  # blue
    ("#d55e00", "#f28a45"),  # vermillion
    ("#009e73", "#35c39a"),  # bluish green
    ("#cc79a7", "#e0a2c4"),  # reddish purple
    ("#e69f00", "#f2b93b"),  # orange
    ("#56b4e9", "#8fd0f5"),  # sky blue
    ("#666666", "#b5b5b5"),  # grey, in the place of black
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INCHES = 8.6  # width of a figure
SNR_AXIS = "← more noise\N{EM SPACE}SNR (dB)\N{EM SPACE}less noise →"
LONGEST = 34  # most letters of a name in a figure
MOST_NAMES = 40  # most names on an axis


@dataclass(frozen=True)
class Drawing:
    """A drawing is a figure on a page."""

    title: str
    svg: str  # an <svg> element
    caption: str = ""


def choose_line_style(slot: int) -> dict[str, Any]:
    """Choose the colour and marker of a line; after seven lines the colours are repeated with other
    markers. slot: the number of the line, by `scores.assign_slots`."""
    marker = MARKERS[(slot + slot // len(PALETTE)) % len(MARKERS)]
    return {"color": PALETTE[slot % len(PALETTE)][0], "marker": marker, "markersize": 4.5}


@contextmanager
def make_axes(
    rows: int, columns: int, height: float = 2.8, **options: Any
) -> Iterator[tuple[Figure, np.ndarray]]:
    """Make axes as wide as a page, in the style of all figures. height: of a row, in inches."""
    with style_figures(font_family="sans-serif", svg_hashsalt="report") as figure_class:
        figure = figure_class(figsize=(INCHES, rows * height), layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False, **options)


def add_legend(figure: Figure, columns: int = 4) -> None:
    """Add one legend of all axes above them, with every name once."""
    handles: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        names = [shorten(label) for label in handles]
        figure.legend(list(handles.values()), names, loc="outside upper left", ncols=columns)


def save_svg(figure: Figure) -> str:
    """Write a figure as an <svg> element; the same figure gives the same text."""
    buffer = io.StringIO()
    no_metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(buffer, format="svg", metadata=no_metadata)
    text = buffer.getvalue()
    return re.sub(r"<metadata>.*?</metadata>\s*", "", text[text.index("<svg") :], flags=re.DOTALL)


def shorten(name: str, longest: int = LONGEST) -> str:
    """Shorten a name to at most `longest` letters."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


def plot_scores(
    ax: Axes, xs: Sequence[float], scores: pd.DataFrame, slot: int, label: str, **style: Any
) -> None:
    """Plot values with their intervals. scores: a row for each of the xs."""
    errors = [scores.value - scores.low, scores.high - scores.value]
    ax.errorbar(
        xs,
        scores.value,
        errors,
        **choose_line_style(slot),
        label=label,
        elinewidth=0.9,
        capsize=2,
        **style,
    )


def draw_over_snr(
    title: str, caption: str, panels: Mapping[str, pd.DataFrame], slots: Mapping[str, int]
) -> Drawing | None:
    """Draw scores over the SNR, with clean speech at the right end: a row for each panel, a column
    for each kind of noise, and in it a line for each label.

    panels: title -> scores of one metric. None without noise.
    """
    if not panels:
        return None
    all_scores = pd.concat(panels.values())
    noises = sorted(all_scores.condition[all_scores.snr_db.notna()].unique())
    if not noises:
        return None
    height = 2.9 if len(panels) == 1 else 1.7
    shared_axes: Any = {"sharex": "col", "sharey": "row"}
    with make_axes(len(panels), len(noises), height, **shared_axes) as (figure, axes):
        for (name, scores), row in zip(panels.items(), axes, strict=True):
            for noise, ax in zip(noises, row, strict=True):
                plotted = scores[(scores.condition == noise) | (scores.condition == "clean")]
                snrs = all_scores.snr_db[all_scores.condition == noise]
                _plot_over_snr(ax, plotted, snrs, slots)
            axis_unit = name_metric_unit(scores.metric.iloc[0])
            two_lines = name.replace(", ", "\n")
            row[0].set_ylabel(f"{two_lines} ({axis_unit})" if axis_unit else name)
        for noise, top, bottom in zip(noises, axes[0], axes[-1], strict=True):
            top.set_title(title_condition(noise), fontsize=9)
            bottom.set_xlabel(SNR_AXIS if len(noises) < 3 else "SNR (dB)")
        add_legend(figure)
        return Drawing(title, save_svg(figure), caption)


def _plot_over_snr(
    ax: Axes, scores: pd.DataFrame, snrs: pd.Series, slots: Mapping[str, int]
) -> None:
    """Plot a line for each label. snrs: those of the noise in all panels."""
    ticks = sorted(snrs.dropna().unique())
    clean = ticks[-1] + max(5.0, (ticks[-1] - ticks[0]) / 4)  # place of clean speech, in dB
    lines = scores.groupby("label", sort=False)
    # lines are shifted by about 1 % of the axis, so that their error bars do not overlap
    spacing = (clean - ticks[0]) / 98
    for number, (label, label_scores) in enumerate(lines):
        line = label_scores.assign(x=label_scores.snr_db.fillna(clean)).sort_values("x")
        shift = (number - (lines.ngroups - 1) / 2) * spacing
        plot_scores(ax, line.x + shift, line, slots[label], label)
    numbers = [write_decibels(snr).removesuffix("\u00a0dB") for snr in ticks]
    ax.set_xticks([*ticks, clean], [*numbers, "clean"])


def shade(
    ax: Axes,
    shares: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    texts: Sequence[Sequence[str]] = (),
    cmap: str = "Blues",
    upright: bool = False,
) -> None:
    """Draw a matrix as squares, darker for larger shares. shares: (R, C) in [0, 1], NaN for empty
    cells; texts: (R, C), printed in the cells. upright: write column names vertically."""
    ax.imshow(shares, cmap=cmap, vmin=0, vmax=1, aspect="auto")
    for y, row in enumerate(texts):
        for x, text in enumerate(row):
            ink = PAPER if shares[y, x] > 0.6 else INK
            ax.text(x, y, text, ha="center", va="center", fontsize=7.5, color=ink)
    step_x = math.ceil(len(columns) / MOST_NAMES)
    step_y = math.ceil(len(rows) / MOST_NAMES)
    rotation = 90 if upright else 0
    ax.set_xticks(range(0, len(columns), step_x), columns[::step_x], rotation=rotation, fontsize=7)
    ax.set_yticks(range(0, len(rows), step_y), rows[::step_y], fontsize=7)
    ax.grid(False)
    ax.spines[:].set_visible(False)
