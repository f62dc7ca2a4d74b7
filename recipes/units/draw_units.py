"""Draw the units of a recording under its spectrogram."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.cli import script
from speechssl.errors import InputError
from speechssl.options import ENCODERS, Weight, argument, option
from speechssl.results import INK, save_figure, style_figures
from speechssl.timing import FrameGrid, RunLength
from speechssl.units.features import load_extractor
from speechssl.units.options import CODEBOOK
from speechssl.units.phones import Phone, read_alignment
from speechssl.units.picture import Block, unit_blocks

ROW_SECONDS, ROWS = 3.0, 12  # what one row of the picture shows, and how many there are at most
INCHES, HEIGHTS = 13.0, (1.5, 0.34, 0.26)  # width; of spectrogram, units, phones
FONT = 7.5  # points
RANGE_DB = 70.0  # shown below the loudest


@dataclass(frozen=True, kw_only=True)
class Picture:
    """draw the units of a recording under its spectrogram

    python recipes/units/draw_units.py a.wav people-en/encoder people-en/units.safetensors a.png
    """

    recording: Path = argument("audio file")
    encoder: str = argument(f"{ENCODERS}, mfcc or fbank")
    codebook: Path = argument(CODEBOOK)
    out: Path = argument(".png, .svg or .pdf file to write")
    alignment: Path | None = option(None, "TextGrid, or .jsonl of phones by the name of the file")
    span: tuple[Weight, Weight] | None = option(
        None, "part of the recording, in seconds", metavar=("START", "END")
    )


def draw(o: Picture) -> None:
    samples = read_audio(o.recording)
    extractor = load_extractor(o.encoder, o.codebook)
    phones = read_alignment(o.alignment).get(o.recording.stem, ()) if o.alignment else ()
    runs = extractor.units(samples)
    draw_units(o.out, samples, runs, extractor.grid, phones, o.recording.stem, o.span)
    print(o.out)


def draw_units(
    path: Path,
    samples: np.ndarray,
    runs: RunLength,
    grid: FrameGrid,
    phones: Sequence[Phone] = (),
    title: str = "",
    span: tuple[float, float] | None = None,
) -> None:
    """Draw [start, end) seconds (None: all) of samples (N,) at 16 kHz: spectrogram, units, phones.

    A unit is drawn over the samples it owns. Raises InputError for a span that holds nothing or too
    much.
    """
    seconds = len(samples) / SAMPLE_RATE
    start, end = span or (0.0, seconds)
    if not 0 < min(end, seconds) - start <= ROWS * ROW_SECONDS:
        raise InputError(
            f"[{start:g}, {end:g}) s of a recording of {seconds:.2f} s cannot be drawn; name at "
            f"most {ROWS * ROW_SECONDS:g} s of it with --span"
        )
    end = min(end, seconds)
    strips = {"units": list(unit_blocks(runs, grid))}
    if phones:
        fills = ["#eef0f3", "white"]
        strips["phones"] = [(*phone, fills[i % 2]) for i, phone in enumerate(phones)]
    rows = math.ceil((end - start) / ROW_SECONDS - 1e-9)
    length = ROW_SECONDS if rows > 1 else end - start
    heights = HEIGHTS[: 1 + len(strips)]
    look = {"font_size": 8, "axes_grid": False, "svg_hashsalt": "units"}
    with style_figures(**look) as Figure, np.errstate(divide="ignore"):
        size = (INCHES, rows * (sum(heights) + 0.42) + 0.3)
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontsize=9, color=INK)
        axes = figure.subplots(rows * len(heights), 1, height_ratios=heights * rows)
        for row in range(rows):
            spectrum, *others = axes[row * len(heights) : (row + 1) * len(heights)]
            image = spectrum.specgram(
                samples, NFFT=400, Fs=SAMPLE_RATE, noverlap=320, cmap="magma"
            )[3]
            loudest = image.get_clim()[1]
            image.set_clim(loudest - RANGE_DB, loudest)
            left = start + row * length
            for ax in (spectrum, *others):
                ax.set_xlim(left, left + length)
                ax.set_yticks([])
                ax.tick_params(bottom=ax is others[-1], labelbottom=ax is others[-1])
            for ax, (name, blocks) in zip(others, strips.items(), strict=True):
                ax.set_ylabel(name, rotation=0, ha="right", va="center")
                _draw_strip(ax, blocks, left, left + length)
        save_figure(figure, path)


def _draw_strip(ax: Any, blocks: Sequence[Block], start: float, end: float) -> None:
    """Draw the blocks within [start, end) seconds, with a label in each that is wide enough for it,
    upright or on its side."""
    for label, first, last, fill in blocks:
        low, high = max(first, start), min(last, end)
        if high <= low:
            continue
        ax.axvspan(first, last, facecolor=fill, edgecolor="white", linewidth=0.6)
        points = (high - low) / (end - start) * INCHES * 0.95 * 72
        is_wide = points > 0.66 * FONT * len(label)
        if is_wide or points > 0.9 * FONT:
            middle, turn = (low + high) / 2, 0 if is_wide else 90
            ax.text(middle, 0.5, label, fontsize=FONT, ha="center", va="center", rotation=turn)


if __name__ == "__main__":
    sys.exit(script(draw, Picture))
