"""A picture of units: the log-mel spectrogram of a recording, its run-length units and their numbers beneath, then its phones.

A unit is drawn over the samples it owns (`timing.py`), a column of the spectrogram around its middle: what stands above each other
is at the same time, to the sample.
"""

from __future__ import annotations

import colorsys
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from speechssl.artefacts import replacing
from speechssl.audio import SAMPLE_RATE
from speechssl.errors import InputError
from speechssl.timing import FrameGrid, RunLength
from speechssl.units.alignment import Phone

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Block = tuple[str, float, float, str]  # label, start and end in seconds, colour

ROW_SECONDS = 3.0  # what one row of the picture shows
ROWS = 12  # a picture holds no more; the span must be named then
INCHES, HEIGHTS = 13.0, (1.5, 0.34, 0.26)  # width; of spectrogram, units, phones
HOP, WINDOW, BANDS = 80, 400, 80  # samples between columns and under one, mel bands
POINTS, PIECE = 1024, 2_000  # of the Fourier transform; columns that are computed at a time
MARGIN = math.ceil(POINTS / HOP) * HOP  # samples on either side, so that no column in between sees a cut
RANGE_DB = 70.0  # shown below the loudest
INK, RULE, SILENT = "#1d2127", "#d9dde3", "#eef0f3"
FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei",
    "PingFang SC", "Microsoft YaHei", "SimHei", "Droid Sans Fallback", "Noto Sans", "Arial Unicode MS",
)  # fmt: skip  # what is there of them shows what DejaVu has not
STYLE = {"font.size": 8, "text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "units"}
SUFFIXES = (".png", ".svg", ".pdf")


def draw_units(
    path: Path,
    samples: np.ndarray,
    runs: RunLength,
    grid: FrameGrid,
    phones: Sequence[Phone] = (),
    title: str = "",
    span: tuple[float, float] | None = None,
) -> None:
    """Write the picture of [start, end) seconds (None: of all) of samples (N,) at 16 kHz.

    Raises InputError for another suffix than .png, .svg or .pdf, and for a span that holds nothing or too much.
    """
    import matplotlib

    check_picture(path)
    rows = _rows(span or (0.0, len(samples) / SAMPLE_RATE), len(samples) / SAMPLE_RATE)
    strips = [list(unit_blocks(runs, grid, (rows[0][0], rows[-1][1])))] + ([list(_phone_blocks(phones))] if phones else [])
    first = _columns(rows[0])[0]
    mel = log_mel(samples, first, _columns(rows[-1])[1])
    with matplotlib.rc_context(STYLE | {"font.family": _fonts()}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from")  # a box stands for it, and the file is no worse for that
        from matplotlib.figure import Figure

        heights = HEIGHTS[: 1 + len(strips)]
        figure = Figure(figsize=(INCHES, len(rows) * (sum(heights) + 0.42) + 0.3), layout="constrained")
        figure.suptitle(_title(title, runs, len(samples)), x=0.01, ha="left", fontsize=9, color=INK)
        parts = figure.subfigures(len(rows), 1, squeeze=False, hspace=0.0)[:, 0]
        for part, row in zip(parts, rows, strict=True):
            axes = part.subplots(len(heights), 1, sharex=True, height_ratios=heights, gridspec_kw={"hspace": 0.0})
            _draw_row(list(axes), mel, first, strips, row)
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)


def check_picture(path: Path) -> None:
    """Raises InputError where a picture cannot be written by this name."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"cannot draw a picture as {path}; end its name in {', '.join(SUFFIXES)}")


def _rows(span: tuple[float, float], seconds: float) -> list[tuple[float, float]]:
    """The span in rows of equal length."""
    start, end = max(span[0], 0.0), min(span[1], seconds)
    if not (math.isfinite(start) and math.isfinite(end)) or end <= start:
        raise InputError(f"[{span[0]:g}, {span[1]:g}) s holds nothing of a recording of {seconds:.2f} s; change --span")
    count = math.ceil((end - start) / ROW_SECONDS - 1e-9)
    if count > ROWS:
        raise InputError(f"{end - start:.1f} s are too long for a picture; name at most {ROWS * ROW_SECONDS:g} s with --span")
    length = ROW_SECONDS if count > 1 else end - start
    return [(start + i * length, start + (i + 1) * length) for i in range(count)]


def _columns(row: tuple[float, float]) -> tuple[int, int]:
    """The columns of the spectrogram from before the row to after it."""
    return max(math.floor(row[0] * SAMPLE_RATE / HOP) - 1, 0), math.ceil(row[1] * SAMPLE_RATE / HOP) + 2


def _fonts() -> list[str]:
    """What is there of the fonts wanted: matplotlib tells of every one that is not."""
    from matplotlib.font_manager import get_font_names

    return ["DejaVu Sans", *(name for name in FONTS if name in set(get_font_names()))]


def _title(title: str, runs: RunLength, samples: int) -> str:
    seconds = samples / SAMPLE_RATE
    what = f"{len(runs)} units of {runs.frames} frames in {seconds:.2f} s, {len(runs) / seconds:.1f} a second"
    return f"{title}   {what}".strip()


def log_mel(samples: np.ndarray, first: int = 0, last: int | None = None) -> np.ndarray:
    """(BANDS, C) decibels below the loudest of the recording, columns [first, last) of it; column j is centred at sample HOP j."""
    columns = len(samples) // HOP + 1
    last = columns if last is None else min(last, columns)
    loudest = max(float(_power(samples, at, min(at + PIECE, columns)).max()) for at in range(0, columns, PIECE))
    power = np.concatenate([_power(samples, at, min(at + PIECE, last)) for at in range(first, last, PIECE)], axis=1)
    return np.maximum(10 * np.log10(np.maximum(power, 1e-20) / max(loudest, 1e-20)), -RANGE_DB)


def _power(samples: np.ndarray, first: int, last: int) -> np.ndarray:
    """(BANDS, last - first) mel power of those columns, from the samples they see."""
    left = max(first * HOP - MARGIN, 0)
    part = np.ascontiguousarray(samples[left : last * HOP + MARGIN], np.float32)
    return _transform()(torch.from_numpy(part)).numpy()[:, first - left // HOP : last - left // HOP]


@cache
def _transform() -> Callable[[torch.Tensor], torch.Tensor]:
    from torchaudio.transforms import MelSpectrogram

    return MelSpectrogram(SAMPLE_RATE, n_fft=POINTS, win_length=WINDOW, hop_length=HOP, n_mels=BANDS, f_min=40.0)


def unit_blocks(runs: RunLength, grid: FrameGrid, span: tuple[float, float] = (0.0, math.inf)) -> Iterator[Block]:
    """Every run within the span with the seconds it owns."""
    borders = runs.borders
    samples = np.where(borders > 0, borders * grid.hop + grid.offset, 0)
    samples[-1] = grid.samples_for(runs.frames)
    seconds = samples / grid.sample_rate
    for index in np.flatnonzero((seconds[1:] > span[0]) & (seconds[:-1] < span[1])):
        unit = int(runs.units[index])
        yield str(unit), float(seconds[index]), float(seconds[index + 1]), colour(unit)


def _phone_blocks(phones: Sequence[Phone]) -> Iterator[Block]:
    for number, (name, start, end) in enumerate(phones):
        yield name, start, end, "white" if number % 2 else SILENT


def colour(unit: int) -> str:
    """Of a unit, always the same; hues go round by the golden ratio, so that units of near numbers look different."""
    light, strong = (0.80, 0.68, 0.74)[unit % 3], (0.62, 0.55, 0.45)[unit // 3 % 3]
    red, green, blue = colorsys.hls_to_rgb(unit * 0.6180339887 % 1, light, strong)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def _draw_row(axes: list[Axes], mel: np.ndarray, begin: int, strips: Sequence[Sequence[Block]], row: tuple[float, float]) -> None:
    """One row of the picture: axes[0] takes the spectrogram, the others a strip each. mel: from column `begin` on."""
    first, last = _columns(row)
    part = mel[:, first - begin : last - begin]
    left, right = ((first + at - 0.5) * HOP / SAMPLE_RATE for at in (0, part.shape[1]))
    extent = (left, right, 0, BANDS)
    axes[0].imshow(
        part, extent=extent, aspect="auto", origin="lower", cmap="magma", vmin=-RANGE_DB, vmax=0, interpolation="nearest"
    )
    axes[0].set_yticks([])
    axes[0].set_ylabel("mel", rotation=0, ha="right", va="center", color=INK)
    for ax, blocks, name in zip(axes[1:], strips, ("units", "phones"), strict=False):
        _draw_strip(ax, blocks, row)
        ax.set_ylabel(name, rotation=0, ha="right", va="center", color=INK)
    axes[-1].set_xlim(*row)
    for ax in axes:
        ax.tick_params(bottom=ax is axes[-1], labelbottom=ax is axes[-1], color=RULE, labelcolor=INK)
        for spine in ax.spines.values():
            spine.set_color(RULE)
    ticks = np.arange(math.ceil(row[0] / 0.25 - 1e-9), math.floor(row[1] / 0.25 + 1e-9) + 1) * 0.25
    axes[-1].set_xticks(ticks, [f"{t:g} s" if t == int(t) else f"{t:.2f}" for t in ticks])


def _draw_strip(ax: Axes, blocks: Sequence[Block], row: tuple[float, float]) -> None:
    """Blocks side by side; a label stands in each that is wide enough for it, upright or on its side."""
    inches = INCHES * 0.95 / (row[1] - row[0])  # a second
    for label, start, end, fill in blocks:
        low, high = max(start, row[0]), min(end, row[1])
        if high <= low:
            continue
        ax.axvspan(start, end, facecolor=fill, edgecolor="white", linewidth=0.6)
        size, wide = 7.5, (high - low) * inches * 72  # points
        upright = wide > 0.66 * size * len(label)
        if upright or wide > 0.9 * size:
            ax.text((low + high) / 2, 0.5, label, fontsize=size, color=INK, ha="center", va="center", rotation=0 if upright else 90)
    ax.set_ylim(0, 1)
    ax.set_yticks([])
