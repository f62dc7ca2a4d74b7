"""Pictures of units: under the spectrogram of a recording, and their distances between people."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speechssl.audio import SAMPLE_RATE
from speechssl.errors import InputError
from speechssl.results import INK, save_figure, style_figures
from speechssl.timing import FrameGrid, RunLength, unit_samples
from speechssl.units.phones import Phone

Block = tuple[str, float, float, str]  # label, start and end in seconds, colour
ROW_SECONDS, ROWS = 3.0, 12  # what one row of the picture shows, and how many there are at most
INCHES, HEIGHTS = 13.0, (1.5, 0.34, 0.26)  # width; of spectrogram, units, phones
HOP, BANDS = 80, 80  # samples between columns, mel bands
RANGE_DB = 70.0  # shown below the loudest
SILENT = "#eef0f3"
SUFFIXES = (".png", ".svg", ".pdf")


def check_picture(path: Path) -> None:
    """Raise InputError where a picture cannot be written by this name."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"cannot draw a picture as {path}; end its name in {', '.join(SUFFIXES)}")


def draw_units(
    path: Path,
    samples: np.ndarray,
    runs: RunLength,
    grid: FrameGrid,
    phones: Sequence[Phone] = (),
    title: str = "",
    span: tuple[float, float] | None = None,
) -> None:
    """Draw [start, end) seconds (None: all) of samples (N,) at 16 kHz: log-mel spectrogram, units,
    phones.

    A unit is drawn over the samples it owns. Raises InputError for a span that holds nothing or too
    much.
    """
    seconds = len(samples) / SAMPLE_RATE
    start, end = span or (0.0, seconds)
    start, end = max(start, 0.0), min(end, seconds)
    if not 0 < end - start <= ROWS * ROW_SECONDS:
        raise InputError(
            f"[{start:g}, {end:g}) s of a recording of {seconds:.2f} s cannot be drawn; name at "
            f"most {ROWS * ROW_SECONDS:g} s of it with --span"
        )
    strips = {"units": list(unit_blocks(runs, grid, (start, end)))}
    if phones:
        fills = [SILENT, "white"]
        strips["phones"] = [(*phone, fills[i % 2]) for i, phone in enumerate(phones)]
    rows = math.ceil((end - start) / ROW_SECONDS - 1e-9)
    length = ROW_SECONDS if rows > 1 else end - start
    heights = HEIGHTS[: 1 + len(strips)]
    size = (INCHES, rows * (sum(heights) + 0.42) + 0.3)
    part = samples[round(start * SAMPLE_RATE) : round(end * SAMPLE_RATE)]
    mel = log_mel(part)
    look = {"font_size": 8, "axes_grid": False, "svg_hashsalt": "units"}
    with style_figures(**look) as Figure:
        figure = Figure(figsize=size, layout="constrained")
        note = f"{len(runs)} units of {runs.frames} frames in {seconds:.2f} s"
        figure.suptitle(f"{title}   {note}".strip(), x=0.01, ha="left", fontsize=9, color=INK)
        axes = figure.subplots(rows * len(heights), 1, height_ratios=heights * rows)
        for row in range(rows):
            left = start + row * length
            spectrum, *others = axes[row * len(heights) : (row + 1) * len(heights)]
            spectrum.imshow(
                mel,
                extent=(start, end, 0, BANDS),
                aspect="auto",
                origin="lower",
                cmap="magma",
                vmin=-RANGE_DB,
                vmax=0,
            )
            spectrum.set_ylabel("mel", rotation=0, ha="right", va="center")
            for ax, (name, blocks) in zip(others, strips.items(), strict=True):
                _draw_strip(ax, blocks, left, left + length)
                ax.set_ylabel(name, rotation=0, ha="right", va="center")
            for ax in (spectrum, *others):
                ax.set_xlim(left, left + length)
                ax.set_yticks([])
                ax.tick_params(bottom=ax is others[-1], labelbottom=ax is others[-1])
        save_figure(figure, path)


def _draw_strip(ax: Any, blocks: Sequence[Block], start: float, end: float) -> None:
    """Draw the blocks within [start, end) seconds, with a label in each that is wide enough for it,
    upright or on its side."""
    size = 7.5  # points
    points = INCHES * 0.95 * 72 / (end - start)  # a second
    for label, first, last, fill in blocks:
        low, high = max(first, start), min(last, end)
        if high <= low:
            continue
        ax.axvspan(first, last, facecolor=fill, edgecolor="white", linewidth=0.6)
        wide = (high - low) * points
        turn = 0 if wide > 0.66 * size * len(label) else 90
        if not turn or wide > 0.9 * size:
            middle = (low + high) / 2
            ax.text(middle, 0.5, label, fontsize=size, ha="center", va="center", rotation=turn)
    ax.set_ylim(0, 1)


def log_mel(samples: np.ndarray) -> np.ndarray:
    """Compute the log-mel spectrogram (BANDS, C) in decibels below its loudest, of which column j
    is centred at sample HOP j."""
    from torchaudio.transforms import MelSpectrogram

    mel = MelSpectrogram(
        SAMPLE_RATE, n_fft=1024, win_length=400, hop_length=HOP, n_mels=BANDS, f_min=40.0
    )
    padded = np.pad(np.asarray(samples, np.float32), (0, max(1024 - len(samples), 0)))
    power = np.maximum(mel(torch.from_numpy(padded)).numpy(), 1e-20)
    return np.maximum(10 * np.log10(power / power.max()), -RANGE_DB)


def unit_blocks(
    runs: RunLength, grid: FrameGrid, span: tuple[float, float] = (0.0, math.inf)
) -> Iterator[Block]:
    """Yield every run within the span, with the seconds it owns."""
    seconds = unit_samples(grid, runs) / grid.sample_rate
    for index in np.flatnonzero((seconds[1:] > span[0]) & (seconds[:-1] < span[1])):
        unit = int(runs.units[index])
        yield str(unit), float(seconds[index]), float(seconds[index + 1]), choose_colour(unit)


def choose_colour(unit: int) -> str:
    """Return the colour of a unit, always the same; hues go round by the golden ratio, so that
    units of near numbers look different."""
    light, strong = (0.80, 0.68, 0.74)[unit % 3], (0.62, 0.55, 0.45)[unit // 3 % 3]
    red, green, blue = colorsys.hls_to_rgb(unit * 0.6180339887 % 1, light, strong)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def draw_violins(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw a pair of violins for each row of `same_text`: the distances of pairs of recordings of
    the same text, beside those of other texts."""
    with style_figures(svg_hashsalt="units") as Figure:
        # at least as wide as the title
        figure = Figure(figsize=(max(4.8, 1.5 + 1.6 * len(rows)), 3.6), layout="constrained")
        ax = figure.subplots()
        for place, row in enumerate(rows):
            same, other = row["distances"]
            for distances, left, fill in ((same, -0.18, "#2f6fab"), (other, 0.18, "#b9bec6")):
                violin: Any = ax.violinplot(
                    [distances], [place + left], widths=0.34, showmedians=True, showextrema=False
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
