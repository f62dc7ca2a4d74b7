"""Draw figures of pages with matplotlib, saved as SVG.

A figure is drawn within `new_axes`, and ends with `add_legend` and `save_svg`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from speechssl.report.scores import decibels, family_name
from speechssl.results import INK, PAPER, style_figures, unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito (2008), safe for colour-blind readers. Yellow is kept for the gold answers. The
# second colour of a pair is the same hue, lighter, for dark backgrounds.
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
LONGEST = 34  # letters of a name in a figure


@dataclass(frozen=True)
class Drawing:
    """A drawing is a figure on a page. svg: a whole <svg> element."""

    title: str
    svg: str
    caption: str = ""


def line_style(slot: int) -> dict[str, Any]:
    """Return the colour and marker of a line; after seven a colour comes again with another
    marker."""
    marker = MARKERS[(slot + slot // len(PALETTE)) % len(MARKERS)]
    return {"color": PALETTE[slot % len(PALETTE)][0], "marker": marker, "markersize": 4.5}


@contextmanager
def new_axes(
    rows: int = 1, columns: int = 1, height: float = 2.8, **options: Any
) -> Iterator[tuple[Figure, np.ndarray]]:
    """Make axes as wide as a page, with the look of all figures. height: of a row, in inches."""
    with style_figures(font_family="sans-serif", svg_hashsalt="report") as figure_class:
        figure = figure_class(figsize=(INCHES, rows * height), layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False, **options)


def add_legend(figure: Figure, columns: int = 4) -> None:
    """Add one legend of all axes above them, every name once."""
    handles: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        names = [shorten(label) for label in handles]
        figure.legend(list(handles.values()), names, loc="outside upper left", ncols=columns)


def save_svg(figure: Figure) -> str:
    """Return the <svg> element; the same figure gives the same text."""
    buffer = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    return re.sub(r"<metadata>.*?</metadata>\s*", "", text[text.index("<svg") :], flags=re.DOTALL)


def shorten(name: str, most: int = LONGEST) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def plot_scores(
    ax: Axes, xs: Sequence[float], scores: pd.DataFrame, slot: int, label: str, **style: Any
) -> None:
    """Plot values with their intervals. scores: a line each of xs."""
    errors = [scores.value - scores.low, scores.high - scores.value]
    ax.errorbar(
        xs,
        scores.value,
        errors,
        **line_style(slot),
        label=label,
        elinewidth=0.9,
        capsize=2,
        **style,
    )


def draw_over_snr(
    title: str, caption: str, panels: Mapping[str, pd.DataFrame], slots: Mapping[str, int]
) -> Drawing | None:
    """Draw a row a panel, a column a kind of noise, a line a label over the SNR, clean speech at
    the right end.

    panels: scores of one metric by title. None without noise.
    """
    every = pd.concat(panels.values()) if panels else pd.DataFrame(columns=["condition", "snr_db"])
    noises = sorted(every.condition[every.snr_db.notna()].unique())
    if not noises:
        return None
    height = 2.9 if len(panels) == 1 else 1.7
    share: Any = {"sharex": "col", "sharey": "row"}
    with new_axes(len(panels), len(noises), height, **share) as (figure, axes):
        for (name, scores), line in zip(panels.items(), axes, strict=True):
            for noise, ax in zip(noises, line, strict=True):
                here = scores[(scores.condition == noise) | (scores.condition == "clean")]
                _plot_over_snr(ax, here, every.snr_db[every.condition == noise], slots)
            axis = unit(scores.metric.iloc[0])
            line[0].set_ylabel(f"{name.replace(', ', chr(10))} ({axis})" if axis else name)
        for noise, top, bottom in zip(noises, axes[0], axes[-1], strict=True):
            top.set_title(family_name(noise), fontsize=9)
            bottom.set_xlabel(SNR_AXIS if len(noises) < 3 else "SNR (dB)")
        add_legend(figure)
        return Drawing(title, save_svg(figure), caption)


def _plot_over_snr(
    ax: Axes, scores: pd.DataFrame, ratios: pd.Series, slots: Mapping[str, int]
) -> None:
    shown = sorted(ratios.dropna().unique())
    clean = shown[-1] + max(5.0, (shown[-1] - shown[0]) / 4)
    lines = scores.groupby("label", sort=False)
    for number, (label, line) in enumerate(lines):
        line = line.assign(x=line.snr_db.fillna(clean)).sort_values("x")
        aside = (number - (lines.ngroups - 1) / 2) * (clean - shown[0]) / 98
        plot_scores(ax, line.x + aside, line, slots[label], label)
    ax.set_xticks([*shown, clean], [*(decibels(snr)[:-3] for snr in shown), "clean"])


def shade(
    ax: Axes,
    shares: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    texts: Sequence[Sequence[str]] = (),
    cmap: str = "Blues",
    upright: bool = False,
) -> Any:
    """Draw a matrix as squares, darker for more. shares: (R, C) in [0, 1], NaN where there is
    nothing; texts: what stands in the cells."""
    image = ax.imshow(shares, cmap=cmap, vmin=0, vmax=1, aspect="auto")
    for y, line in enumerate(texts):
        for x, text in enumerate(line):
            ink = PAPER if shares[y, x] > 0.6 else INK
            ax.text(x, y, text, ha="center", va="center", fontsize=7.5, color=ink)
    step_x, step_y = -(-len(columns) // 40), -(-len(rows) // 40)
    rotation = 90 if upright else 0
    ax.set_xticks(range(0, len(columns), step_x), columns[::step_x], rotation=rotation, fontsize=7)
    ax.set_yticks(range(0, len(rows), step_y), rows[::step_y], fontsize=7)
    ax.grid(False)
    ax.spines[:].set_visible(False)
    return image
