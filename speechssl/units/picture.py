"""Draw units as coloured blocks, and distances of recordings as violins."""

from __future__ import annotations

import colorsys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from speechssl.results import INK, save_figure, style_figures
from speechssl.timing import FrameGrid, RunLength, find_unit_samples

Block = tuple[str, float, float, str]  # label, start and end in seconds, colour
GOLDEN_RATIO = 0.6180339887
BLUE, GREY = "#2f6fab", "#b9bec6"


def make_blocks(runs: RunLength, grid: FrameGrid) -> Iterator[Block]:
    """Yield a block for every run of a unit, over the seconds that it owns."""
    seconds = find_unit_samples(grid, runs) / grid.sample_rate
    for unit, (start, end) in zip(runs.units.tolist(), pairwise(seconds.tolist()), strict=True):
        yield str(unit), start, end, choose_colour(unit)


def choose_colour(unit: int) -> str:
    """Return the colour of a unit, always the same. Hues go round by the golden ratio, so that
    units with near numbers look different."""
    hue = unit * GOLDEN_RATIO % 1
    lightness = (0.80, 0.68, 0.74)[unit % 3]
    saturation = (0.62, 0.55, 0.45)[unit // 3 % 3]
    red, green, blue = colorsys.hls_to_rgb(hue, lightness, saturation)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def draw_violins(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw two violins for each row of `compare_texts`: the distances of pairs of recordings of the
    same text, beside those of pairs of other texts."""
    with style_figures(svg_hashsalt="units") as Figure:
        # at least as wide as the title
        figure = Figure(figsize=(max(4.8, 1.5 + 1.6 * len(rows)), 3.6), layout="constrained")
        ax = figure.subplots()
        for place, row in enumerate(rows):  # at 0, 1, ... on the horizontal axis
            same, other = row["distances"]
            for distances, shift, fill in ((same, -0.18, BLUE), (other, 0.18, GREY)):
                violin: Any = ax.violinplot(
                    [distances], [place + shift], widths=0.34, showmedians=True, showextrema=False
                )
                violin["bodies"][0].set(facecolor=fill, alpha=0.9)
                violin["cmedians"].set_color(INK)
            ax.text(place, 1.04, f"AUC {row['same_text_auc']:.2f}", ha="center", color=INK)
        ax.set_xticks(range(len(rows)), [row["groups"].replace(" - ", "\n") for row in rows])
        ax.set(
            ylim=(0, 1.12),
            ylabel="edit distance of units / longer length",
            title="the same text (blue) and other texts (grey)",
        )
        save_figure(figure, path)
