"""One HTML page from sections, which holds all that it shows: tables, figures as SVG, and examples
to listen to.

Letters: N samples, P points of an envelope. Waveforms are WIDTH units wide, whatever the length of
the passage; the page stretches them sideways only, so that one unit is one pixel in height.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np

from speechssl.artifacts import write_text
from speechssl.audio import SAMPLE_RATE
from speechssl.report.figures import PALETTE, Drawing, Results, ScoreCell, Series, decibels
from speechssl.results import (
    LOWER_IS_BETTER,
    METRICS,
    Cell,
    Row,
    Table,
    decimals,
    interval_note,
    metric_name,
    unit,
)
from speechssl.stats import FEWEST

COLUMNS = tuple(f.name for f in fields(Row))
UNKNOWN = Series("", "", "", len(PALETTE) - 1)  # grey, for a system without results
WIDTH, HEIGHT = 1000, 88
LEAST = 3.0  # width below which a span could not be seen or clicked
# LAME's average rate: about 105 kB for 30 seconds of speech. Not its constant rate: that low, a
# frame is too small for
# the header that tells the encoder's delay, and everything would sound 1,105 samples late.
MP3 = {"bitrate_mode": "AVERAGE", "compression_level": 0.89}


# ---- sections


class Placed(NamedTuple):
    """A table of scores. Those with a tab share a place; the others stand by themselves. about:
    what the metric is.

    strange: numbers that were not measured here. common: the same columns of the questions that all
    systems answered, to be switched to; None: there is nothing to switch.
    """

    table: Table
    tab: bool = False
    about: str = ""
    strange: bool = False
    common: Table | None = None


class Method(NamedTuple):
    """A sentence with a link: `name` leads to `url`."""

    before: str
    name: str
    url: str
    after: str


@dataclass(frozen=True)
class Explorer:
    """A table to filter and sort, drawn by the page's script. data: for JSON, see
    `spoken_qa.explorer_of`."""

    title: str
    data: Mapping[str, Any]
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page by one kind of result: parts of a kind stand together, in the order of the
    sections."""

    summary: str = ""
    grids: Sequence[Placed] = ()
    # title, caption, drawing; None: left out
    figures: Sequence[tuple[str, str, Drawing | None]] = ()
    tables: Sequence[Table] = ()
    examples: Sequence[tuple[ListeningExample, Sequence[Lane]]] = ()
    listening: str = ""  # which questions the examples are
    methods: Sequence[Method] = ()
    # what `Placed.common` is of; without such grids a sentence to stand in its place
    switch: str = ""
    explorers: Sequence[Explorer] = ()


def write_page(
    out: Path | str,
    title: str,
    sections: Sequence[Section],
    provenance: Mapping[str, str],
    synthetic: str = "",
    rows: Sequence[Row] = (),
    heading: str = "Results",
) -> None:
    """Write the page, whole or not at all; the same input gives the same bytes.

    synthetic: what a synthesiser spoke of the data; stands under the title. rows: all values behind
    the page, to be unfolded and downloaded. heading: of the grids that share a place.
    """
    environment = jinja2.Environment(
        # template.html with page.css and page.js
        loader=jinja2.PackageLoader("speechssl.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    environment.filters |= {"data_uri": data_uri, "outline": outline}
    environment.globals |= {"ticks": ticks}
    environment.tests["cell"] = lambda value: isinstance(value, Cell)

    def text(value: Any) -> str:
        if isinstance(value, Mapping):
            return json.dumps(dict(value), sort_keys=True, ensure_ascii=False)
        return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)

    lines = [tuple(text(getattr(row, name)) for name in COLUMNS) for row in rows]
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([COLUMNS, *lines])
    kinds, texts = (
        ("grids", "figures", "tables", "examples", "methods", "explorers"),
        ("summary", "listening", "switch"),
    )
    parts: dict[str, Any] = {
        kind: [part for section in sections for part in getattr(section, kind)] for kind in kinds
    }
    series = {lane.series for _, lanes in parts["examples"] for lane in lanes if lane.series}
    page = environment.get_template("template.html").render(
        parts,
        **{
            name: " ".join(filter(None, (getattr(section, name) for section in sections)))
            for name in texts
        },
        title=title,
        synthetic=synthetic,
        provenance=provenance,
        heading=heading,
        players=sorted(series, key=lambda s: s.slot),
        rows=lines,
        columns=COLUMNS,
        download="data:text/csv;charset=utf-8;base64,"
        + base64.b64encode(buffer.getvalue().encode()).decode("ascii"),
        palette=PALETTE,
    )
    write_text(out, page)


def grid_of(
    results: Results, metric: str, title: str = "", more: str = "", common: Results | None = None
) -> Placed:
    """One metric of the results: a line a series, a column a condition. more: to follow the note.
    common: the results of the questions that all systems answered.
    """
    conditions = results.conditions(metric)

    def table_of(shown: Results) -> Table:
        cells = {
            series: [shown.get(series, metric, c) for c in conditions]
            for series in shown.having(metric)
        }
        best = [best_of(metric, column) for column in zip(*cells.values(), strict=True)]
        sizes = {
            series: sorted({cell.n for cell in row if cell and cell.n})
            for series, row in cells.items()
        }
        counted = any(sizes.values())  # whether there is a column n
        rows = []
        for series, row in cells.items():
            n = sizes[series]
            hints = [f"n = {cell.n:,}" if cell and cell.n and len(n) > 1 else "" for cell in row]
            line: list[Any] = [Cell(series.label, slot=series.slot)]
            line += [cell_of(metric, *x) for x in zip(row, best, hints, strict=True)]
            line += (
                ["–".join(f"{size:,}" for size in dict.fromkeys((n[0], n[-1]))) if n else ""]
                if counted
                else []
            )
            rows.append(tuple(line))
        what = {"%": "Percent", "dB": "Decibels", "×": "Times"}.get(
            unit(metric), "On its own scale"
        )
        notes = [f"{what}; {'lower' if metric in LOWER_IS_BETTER else 'higher'} is better."]
        notes += cell_notes(("", cell) for row in cells.values() for cell in row if cell)
        notes += [more] if more else []
        notes += ["Bold: best of the column."] if len(rows) > 1 else []
        heads = [c.family if c.snr_db is None else decibels(c.snr_db) for c in conditions]
        columns, groups = ("System", *heads), ("", *(c.family for c in conditions))
        last = ("n",) if counted else ()
        return Table(
            title or metric_name(metric),
            (*columns, *last),
            tuple(rows),
            " ".join(notes),
            (*groups, *("" for _ in last)),
            labels=1,
        )

    same = table_of(common.of_series(results)) if common else None
    return Placed(
        table_of(results), True, METRICS[metric][1] if metric in METRICS else "", common=same
    )


def printed(metric: str, value: float) -> str:
    return f"{value:.{decimals(metric)}f}".replace("-", "\u2212")


def best_of(metric: str, cells: Iterable[ScoreCell | None]) -> str:
    """Return the best cell as printed; empty where nothing competes, or so little was drawn that
    there is no interval."""
    competing = [cell for cell in cells if cell]
    if any(cell.drawn and cell.groups < FEWEST for cell in competing):
        return ""
    values = [cell.value for cell in competing]
    return (
        printed(metric, (min if metric in LOWER_IS_BETTER else max)(values))
        if len(values) > 1
        else ""
    )


def cell_of(metric: str, score: ScoreCell | None, best: str = "", about: str = "") -> Cell | None:
    """A score with its interval; bold where it is the best as printed."""
    if score is None:
        return None
    ends = (
        []
        if score.low is None or score.high is None
        else [printed(metric, score.low), printed(metric, score.high)]
    )
    text, dash = (
        printed(metric, score.value),
        " to " if score.low is not None and score.low < 0 else "–",
    )
    return Cell(text, dash.join(ends), bool(best) and text == best, about)


def cell_notes(cells: Iterable[tuple[str, ScoreCell]]) -> list[str]:
    """Say what the intervals of a table are, and over how many seeds its means are taken. cells:
    with names of what they are of."""
    cells, notes = list(cells), []
    if any(cell.low is not None for _, cell in cells):
        notes.append(
            interval_note("Grey", ((name, cell.drawn, cell.groups) for name, cell in cells))
        )
    if (seeds := max((cell.seeds for _, cell in cells), default=1)) > 1:
        notes.append(
            f"Means over up to {seeds} seeds; an interval reaches over those of all seeds."
        )
    return notes


# ---- examples to listen to


class Region(NamedTuple):
    """A span as drawn. x, width: in [0, WIDTH]; start, end: seconds, to be played."""

    x: float
    width: float
    start: float
    end: float


class Prediction(NamedTuple):
    """The answer of one system. start, end: seconds in the passage, None where it found nothing.
    ff1: percent, or
    None where it is scored by its text alone."""

    system: str
    start: float | None
    end: float | None
    confidence: float | None
    ff1: float | None
    transcript: str | None = None  # the recognised text, where the system makes one
    answer_text: str | None = None


class Strip(NamedTuple):
    """A row of blocks under a waveform. blocks: text, start, end in seconds. coloured: equal texts
    have equal colours."""

    label: str
    blocks: tuple[tuple[str, float, float], ...]
    coloured: bool = False


@dataclass(frozen=True)
class ListeningExample:
    """One question to listen to.

    seconds: length of the passage. envelope: (P,) peaks in [0, 1]. gold: [start, end) in seconds,
    every annotation.
    """

    id: str
    question_text: str
    question_audio: bytes  # MP3
    passage_text: str
    passage_audio: bytes
    seconds: float
    envelope: tuple[float, ...]
    gold: tuple[tuple[float, float], ...]
    answer_text: str
    predictions: tuple[Prediction, ...]
    condition: str = ""  # as it shall be printed, such as "Pink noise, 5 dB"
    # what groups it belongs to beside its condition: name of a grouping, group
    badges: tuple[tuple[str, str], ...] = ()
    strips: tuple[Strip, ...] = ()


class Lane(NamedTuple):
    """One line under a waveform. pieces: a transcript cut into before, answer, after; None where
    there is no transcript."""

    series: Series | None  # None: gold
    label: str
    regions: tuple[Region, ...]
    prediction: Prediction | None
    pieces: tuple[str, str, str] | None


def lanes_of(example: ListeningExample, results: Results) -> list[Lane]:
    """Gold first, then the predictions in the order of the systems."""

    def cut(text: str, answer: str, regions: Sequence[Region]) -> tuple[str, str, str]:
        near = (regions[0].start + regions[0].end) / 2 / example.seconds if regions else 0.5
        return locate(text, answer, near) or (text, "", "")

    golden = tuple(region(start, end, example.seconds) for start, end in example.gold)
    gold = Lane(
        None, "Gold answer", golden, None, cut(example.passage_text, example.answer_text, golden)
    )
    lanes = []
    for p in example.predictions:
        series = results.named(p.system) or UNKNOWN
        regions = (
            () if p.start is None or p.end is None else (region(p.start, p.end, example.seconds),)
        )
        pieces = None if p.transcript is None else cut(p.transcript, p.answer_text or "", regions)
        lanes.append((series.slot, Lane(series, series.label or p.system, regions, p, pieces)))
    return [gold, *(lane for _, lane in sorted(lanes, key=lambda pair: pair[0]))]


def locate(text: str, answer: str, near: float = 0.5) -> tuple[str, str, str] | None:
    """Cut a text at the occurrence of the answer that lies nearest to this fraction of the text:
    before, answer, after.

    Case does not count; whole words are preferred. None where the text does not hold the answer.
    """
    words = re.escape(answer.strip())
    matches = list(re.finditer(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE)) or list(
        re.finditer(words, text, re.IGNORECASE)
    )
    if not words or not matches:
        return None
    best = min(matches, key=lambda m: abs((m.start() + m.end()) / 2 - near * len(text)))
    return text[: best.start()], best[0], text[best.end() :]


def envelope(samples: np.ndarray, points: int = 600) -> tuple[float, ...]:
    """Peaks of |samples| in P equal parts, the greatest at 1 (all 0 for silence). samples: (N,).
    Gives min(N, points) numbers."""
    edges = np.linspace(0, len(samples), min(points, len(samples)) + 1).astype(int)[:-1]
    peaks = np.maximum.reduceat(np.abs(samples), edges)
    return tuple(round(float(p), 3) for p in peaks / max(peaks.max(), 1e-9))


def encode_audio(samples: np.ndarray) -> bytes:
    """MP3 in memory, sample for sample in time with what went in. samples: (N,) in [-1, 1] at 16
    kHz."""
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(buffer, np.clip(samples, -1, 1), SAMPLE_RATE, format="MP3", **MP3)
    return buffer.getvalue()


def data_uri(audio: bytes) -> str:
    return f"data:audio/mpeg;base64,{base64.b64encode(audio).decode('ascii')}"


def outline(peaks: Sequence[float]) -> str:
    """SVG path of the envelope mirrored about its middle, WIDTH wide. peaks: (P,) in [0, 1]; empty:
    a flat line."""
    values = list(peaks) or [0.0]
    step, middle = WIDTH / len(values), HEIGHT / 2
    points = [(step * (i + 0.5), max(0.6, v * (middle - 3))) for i, v in enumerate(values)]
    top = [f"{x:.1f} {middle - y:.1f}" for x, y in points]
    bottom = [f"{x:.1f} {middle + y:.1f}" for x, y in reversed(points)]
    return f"M0 {middle:g}L" + "L".join([*top, f"{WIDTH} {middle:g}", *bottom]) + "Z"


def region(start: float, end: float, seconds: float) -> Region:
    """Return where [start, end) of a passage of this length lies. Parts outside the passage are cut
    off; all in seconds."""
    first, last = (min(max(t, 0.0), seconds) for t in (start, end))
    width = max((last - first) / seconds * WIDTH, LEAST)
    x = min(first / seconds * WIDTH, WIDTH - width)
    return Region(round(x, 2), round(width, 2), round(first, 3), round(last, 3))


def ticks(seconds: float) -> tuple[tuple[float, str], ...]:
    """(percent from the left, label) for a time axis at round seconds, with seven steps at most."""
    steps = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
    step = next((s for s in steps if seconds / s <= 7), 1800)
    return tuple(
        (round(100 * i * step / seconds, 3), f"{i * step:g} s")
        for i in range(int(seconds / step + 1e-6) + 1)
    )
