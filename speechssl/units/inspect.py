"""Quality of units as a table and a picture: of a prepared corpus, a manifest or a folder, with or without known phones.

The picture shows the log-mel spectrogram of a recording, beneath it its run-length units with their numbers, then its phones. A
unit is drawn over the samples it owns (`timing.py`), a column of the spectrogram around its middle: what stands above each other is
at the same time, to the sample.
"""

from __future__ import annotations

import colorsys
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.data.records import Corpus, load_corpus
from speechssl.data.sources import list_recordings
from speechssl.encoders.base import single_threaded
from speechssl.errors import InputError, MissingExtra, tell_set_aside
from speechssl.io import read_json, replacing, write_json
from speechssl.signal import ACTIVE
from speechssl.synth.minisqa import speak_pairs
from speechssl.timing import FrameGrid, RunLength, interval_of_units, units_of_interval
from speechssl.units.config import InspectOptions
from speechssl.units.extract import load_extractor
from speechssl.units.fit import check_mfcc
from speechssl.units.quality import (
    Phone,
    bit_rate,
    checked,
    phone_frames,
    purity,
    read_alignment,
    same_text,
    stability,
    usable,
    usage,
)

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
    from matplotlib.font_manager import get_font_names

    check_picture(path)
    rows = _rows(span or (0.0, len(samples) / SAMPLE_RATE), len(samples) / SAMPLE_RATE)
    strips = [list(unit_blocks(runs, grid, (rows[0][0], rows[-1][1])))]
    if phones:
        strips.append([(name, start, end, "white" if n % 2 else SILENT) for n, (name, start, end) in enumerate(phones)])
    seconds = len(samples) / SAMPLE_RATE
    title = f"{title}   {len(runs)} units of {runs.frames} frames in {seconds:.2f} s, {len(runs) / seconds:.1f} a second".strip()
    first = _columns(rows[0])[0]
    mel = log_mel(samples, first, _columns(rows[-1])[1])
    fonts = ["DejaVu Sans", *(name for name in FONTS if name in set(get_font_names()))]  # matplotlib warns of those it lacks
    with matplotlib.rc_context(STYLE | {"font.family": fonts}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from")  # a box stands for it, and the file is no worse for that
        from matplotlib.figure import Figure

        heights = HEIGHTS[: 1 + len(strips)]
        figure = Figure(figsize=(INCHES, len(rows) * (sum(heights) + 0.42) + 0.3), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontsize=9, color=INK)
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
        raise InputError(f"[{span[0]:g}, {span[1]:g}) s is outside a recording of {seconds:.2f} s; change --span")
    count = math.ceil((end - start) / ROW_SECONDS - 1e-9)
    if count > ROWS:
        raise InputError(f"{end - start:.1f} s are too long for a picture; name at most {ROWS * ROW_SECONDS:g} s with --span")
    length = ROW_SECONDS if count > 1 else end - start
    return [(start + i * length, start + (i + 1) * length) for i in range(count)]


def _columns(row: tuple[float, float]) -> tuple[int, int]:
    """The columns of the spectrogram from before the row to after it."""
    return max(math.floor(row[0] * SAMPLE_RATE / HOP) - 1, 0), math.ceil(row[1] * SAMPLE_RATE / HOP) + 2


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


SPLIT = "test"
PAIRS = 100  # questions of MiniSQA that are spoken twice


@dataclass(frozen=True)
class Item:
    """A recording to be looked at. phones: of its alignment, empty where there is none."""

    id: str
    path: Path
    phones: tuple[Phone, ...] = ()
    seconds: float | None = None  # as its manifest says


@dataclass(frozen=True)
class Units:
    """A codebook at work. K = size."""

    of: Callable[[np.ndarray], RunLength]  # (N,) samples at 16 kHz
    grid: FrameGrid
    size: int
    pool: Executor  # in which recordings are encoded


def inspect_units(
    source: Path, encoder: str, codebook: Path | None, options: InspectOptions = InspectOptions(), out: Path | None = None
) -> dict[str, Any]:
    """Quality of units. What cannot be measured on this source is left out, and reported.

    encoder: folder, hub id or shipped name; `mfcc` for a codebook on MFCCs; `phones` for the phones of the manifest as units (the
    topline, without a codebook). Raises InputError where there is nothing to look at.
    """
    if encoder == "mfcc":
        check_mfcc(options.precision, options.device)
    is_corpus = any(source.glob("*/passages.jsonl"))
    if options.split is not None and not is_corpus:
        raise InputError(f"{source} is not a prepared corpus and has no split {options.split}; leave out --split")
    if options.picture is None and (options.recording is not None or options.span is not None):
        raise InputError("--recording and --span need --picture; give the file to draw to, or leave them out")
    if options.pairs == 1:
        raise InputError("one pair of questions is too few for a comparison; give --pairs 2 or more, or 0")
    conditions, distorter = _conditions(options), Distorter(options.seed, snr_over=options.snr_over)
    for condition in conditions:
        distorter.check(condition)
    if options.picture:
        check_picture(options.picture)
    with single_threaded(len(os.sched_getaffinity(0))) as pool:
        torch.set_num_threads(1)  # here too, or what an encoder folds as it is loaded had other bits; the end puts it back
        units = None
        if encoder != "phones":
            if codebook is None:
                raise InputError(f"units of {encoder} need a codebook; name the file that `speechssl units fit` wrote")
            extractor = load_extractor(encoder, codebook, options.precision, options.device)
            units = Units(extractor.units, extractor.grid, extractor.codebook.size, pool)
        corpus = load_corpus(source, options.split or SPLIT) if is_corpus else None
        items = _items(source, corpus, options)
        values: dict[str, Any] = {}
        if units:
            values = {"K": units.size} | _measured(items, corpus, units, options, conditions, distorter)
        elif corpus is None or not all(item.phones for item in items):
            raise InputError(f"{source} has passages without phones; units that are phones need a prepared corpus that has them")
        if corpus and (phones := sum(len(p.phones) for p in corpus.passages.values())):
            values["phones_a_second"] = phones / sum(p.seconds for p in corpus.passages.values())
        values |= _same_text(source, corpus, units, options)
    if out:
        write_json(out, values)
    return values


def _conditions(options: InspectOptions) -> list[Condition]:
    found = [parse_condition(f"{options.noise}@{snr:g}") for snr in options.snrs]
    if any(c.name != "noise" or c.kind == "babble" for c in found):
        raise InputError(f"the noise {options.noise} cannot be added at an SNR; give gaussian, pink, or a recording or folder")
    return found


def _items(source: Path, corpus: Corpus | None, options: InspectOptions) -> list[Item]:
    """What to look at, in order."""
    phones = known = read_alignment(options.alignment) if options.alignment else {}
    if corpus is None:
        found = [Item(r.id, r.path, tuple(known.get(r.id, ()))) for r in list_recordings(source)]
    else:
        own = {p.id: [(s.text, s.start, s.end) for s in p.phones] for p in corpus.passages.values() if p.phones}
        phones = usable(((name, partial(checked, tier, name)) for name, tier in own.items()), "the corpus") | known
        found = [Item(p.id, corpus.path(p), tuple(phones.get(p.id, ())), p.seconds) for p in corpus.passages.values()]
    if not found:
        raise InputError(f"{source / (options.split or SPLIT)} has no passages; name a split that has some with --split")
    if known and not any(item.phones for item in found):
        raise InputError(
            f"{options.alignment} has no recording of {source} (its first id is {next(iter(known))}); make the ids match"
        )
    if options.recording is not None and options.recording not in [item.id for item in found[: options.recordings]]:
        raise InputError(
            f"{source} has no recording {options.recording} (its first is {found[0].id}); give another with --recording"
        )
    return found[: options.recordings]


def _measured(
    items: Sequence[Item],
    corpus: Corpus | None,
    units: Units,
    options: InspectOptions,
    conditions: Sequence[Condition],
    distorter: Distorter,
) -> dict[str, Any]:
    """All that needs the units of the recordings; those that cannot be read are listed and counted."""

    def encode(item: Item) -> tuple[RunLength, float]:
        samples = read_audio(item.path)
        return units.of(samples), item.seconds or len(samples) / SAMPLE_RATE

    found: dict[str, RunLength] = {}
    failed: dict[str, str] = {}
    seconds = 0.0
    futures = [units.pool.submit(encode, item) for item in items]
    for item, future in zip(tqdm(items, desc="units", unit="file"), futures, strict=True):
        try:
            found[item.id], length = future.result()
            seconds += length
        except (InputError, ValueError) as error:
            failed[item.id] = str(error)
    tell_set_aside(failed, "quality of units")
    if not found:
        raise InputError(f"no recording of {len(failed)} can be read ({next(iter(failed.values()))}); restore the audio")
    items = [item for item in items if item.id in found]
    used, bits = usage(list(found.values()), units.size), bit_rate(list(found.values()), seconds)
    values: dict[str, Any] = {
        "usage_entropy_bits": used.entropy,
        "usage_entropy_share": used.share,
        "unused_units": used.unused,
        "most_used": [{"unit": unit, "share": share} for unit, share in used.most],
        "units_a_second": sum(map(len, found.values())) / seconds,
        "bits_a_second": bits.units,
        "bits_a_second_timed": bits.timed,
    }
    aligned = [item for item in items if item.phones]
    if len(aligned) < len(items):
        _note(f"{len(items) - len(aligned)} of {len(items)} recordings have no phones and are left out of purity and PNMI")
    if aligned:
        names: dict[str, int] = {}
        phones = [phone_frames(item.phones, units.grid, found[item.id].frames, names) for item in aligned]
        pure = purity([found[item.id].expand() for item in aligned], phones)
        values |= {"phone_purity": pure.phone, "cluster_purity": pure.cluster, "pnmi": pure.pnmi}
    if corpus:
        values["oracle_ff1"] = _oracle(corpus, found, units.grid)
    if conditions:
        values["stability"] = _stability(items, found, units, options, conditions, distorter)
    if options.picture:
        wanted = [item for item in items if options.recording in (None, item.id)]
        if not wanted:
            raise InputError(f"the recording {options.recording} was set aside; give another with --recording")
        item, samples = wanted[0], read_audio(wanted[0].path)
        draw_units(options.picture, samples, found[item.id], units.grid, item.phones, item.id, options.span)
        _note(f"{options.picture}: the units of {item.id}")
    return values


def _oracle(data: Corpus, units: dict[str, RunLength], grid: FrameGrid) -> float:
    """FF1 (0 to 1) of the annotated answers after label -> decode: what no reader of these units can beat."""
    scores = []
    for question in data.answerable:
        if question.passage not in units:
            continue
        for start, end in [(a.start, a.end) for a in question.answers if a.start is not None and a.end is not None][:1]:
            passage = units[question.passage]
            first, last = interval_of_units(grid, passage, *units_of_interval(grid, passage, start, end))
            shared = max(min(last, end) - max(first, start), 0.0)
            scores.append(2 * shared / (last - first + end - start))
    return float(np.mean(scores)) if scores else math.nan


def _stability(
    items: Sequence[Item],
    found: dict[str, RunLength],
    units: Units,
    options: InspectOptions,
    conditions: Sequence[Condition],
    distorter: Distorter,
) -> list[dict[str, Any]]:
    """Clean against noisy, on some of the recordings, spread over all. The noise is decided by seed and id alone."""
    places = np.unique(np.linspace(0, len(items) - 1, min(options.noisy, len(items))).round().astype(int))
    chosen = [items[i] for i in places]

    def encode(item: Item) -> list[RunLength]:
        samples = read_audio(item.path)
        return [units.of(distorter.apply(samples, condition, item.id)) for condition in conditions]

    noisy = list(tqdm(units.pool.map(encode, chosen), total=len(chosen), desc="units in noise", unit="file"))
    rows = []
    for number, condition in enumerate(conditions):
        stable = stability([found[item.id] for item in chosen], [encoded[number] for encoded in noisy])
        row = {"condition": condition.short, "snr_db": condition.snr_db, "recordings": len(chosen)}
        row |= {} if options.snr_over == ACTIVE else {"snr_over": options.snr_over}
        rows.append(row | {"unit_error_rate": stable.error_rate, "frames_changed": stable.changed})
    return rows


def _same_text(source: Path, corpus: Corpus | None, units: Units | None, options: InspectOptions) -> dict[str, Any]:
    """One sentence by two voices, synthesised on the spot (needs speechssl[synth]); MiniSQA only, whose questions are known."""
    card = source / "card.json"
    minisqa = corpus is not None and options.pairs != 0 and card.is_file() and read_json(card).get("corpus") == "minisqa"
    if corpus is None or not minisqa:
        if options.pairs or (units is None and options.pairs != 0):
            raise InputError(
                f"{source} is not a MiniSQA corpus, and only its questions can be synthesised in pairs; leave out --pairs"
            )
        return {}
    try:
        pairs = options.pairs or PAIRS
        language = next(iter(corpus.passages.values())).language
        spoken = list(tqdm(speak_pairs(language, options.split or SPLIT, pairs), total=pairs, desc="speaking pairs", unit="pair"))
    except MissingExtra as error:
        if options.pairs or units is None:
            raise
        _note(f"the same-text distance is left out: {error}")
        return {}
    names: dict[str, int] = {}
    if units is None:
        sides = [[np.array([names.setdefault(p.text, len(names)) for p in side[i].phones]) for side in spoken] for i in (0, 1)]
    else:
        sides = [[x.units for x in units.pool.map(units.of, [pair[i].samples for pair in spoken])] for i in (0, 1)]
    alike = same_text(*sides)
    values = {"same_text_distance": alike.distance, "same_text_auc": alike.auc, "pairs": alike.pairs}
    return values if units else {"K": len(names)} | values


def lines(values: dict[str, Any]) -> list[str]:
    """The figures as text."""
    flat = {k: v for k, v in values.items() if not isinstance(v, list)}
    flat |= {f"unit {u['unit']}": u["share"] for u in values.get("most_used", [])}
    for row in values.get("stability", []):
        where = f"{row['condition']} {row['snr_db']:g} dB"
        flat |= {f"unit error rate, {where}": row["unit_error_rate"], f"frames changed, {where}": row["frames_changed"]}
    return [f"{name:>32}  {value:.3f}" if isinstance(value, float) else f"{name:>32}  {value}" for name, value in flat.items()]


def _note(line: str) -> None:
    tqdm.write(line, file=sys.stderr)
