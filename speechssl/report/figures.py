"""The figures of a report as inline SVG: no file, no font, no identifier shared between two figures of a page.

Text stays text. Colours are written as CSS variables with the colour itself as the fallback, so that a page can
recolour a figure for a dark background and the SVG still looks right alone. Same numbers, same bytes.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypedDict

from speechssl.results import DEFAULT, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Which systems, conditions and metrics the rows hold: order, names and colours, and a cell for each combination.

# Okabe and Ito (2008), safe for colour-blind readers. Yellow is kept for the gold answers. The second colour of a
# pair is the same hue, lighter, for dark backgrounds.
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
SYSTEMS = {
    "dual": "DUAL",
    "cascade": "Cascade",
    "cascade-ctc": "Cascade (CTC)",
    "cascade-pocketsphinx": "Cascade (PocketSphinx)",
    "speechbert": "SpeechBERT",
    "ks": "KS (keywords)",
    "ic": "IC (intents)",
    "sid": "SID (speakers)",
    "style": "Style",
    "asr": "ASR (CTC)",
    "units": "Units",
    "pr": "PR (phones)",
    "qbe": "QbE (spoken terms)",
    "asv": "ASV (verification)",
    "sd": "SD (diarisation)",
    "sf": "SF (slots)",
    "er": "ER (emotions)",
    "se": "SE (enhancement)",
    "ss": "SS (separation)",
}
CONDITIONS = {
    "clean": "Clean speech",
    "written": "As written",
    "reverb": "Reverberation",
    "pink": "Pink noise",
    "gaussian": "Gaussian noise",
}
READERS = ("text", "cascade-given", "cascade-simulated", "chance", "longest-option")  # systems that hear nothing, before any @
METRICS = {  # in the order of the page: short name, what it is
    "ff1": ("FF1", "frame F1 of the answer's time span against the gold span"),
    "aos": ("AOS", "audio overlap score: intersection over union of the two time spans"),
    "f1": ("F1", "token F1 of the answer's text"),
    "em": ("EM", "exact match of the answer's text"),
    "set_accuracy": ("set accuracy", "share of the questions for which all right options and no other are chosen"),
    "accuracy": ("accuracy", "share of the questions with one right option for which it is chosen"),
    "wer": ("WER", "word error rate of the transcript"),
    "cer": ("CER", "character error rate of the transcript"),
    "acc": ("accuracy", "share of the recordings that are classified rightly"),
    "unit_error": ("unit error", "edits between the units of distorted and of clean speech, over the units of clean speech"),
    "per": ("PER", "phone error rate"),
    "wer_lm": ("WER with LM", "word error rate of the transcript, decoded with an n-gram language model"),
    "mtwv": ("MTWV", "maximum term-weighted value, times 100"),
    "eer": ("EER", "equal error rate: where as many impostors are let in as speakers are turned away"),
    "der": ("DER", "diarisation error rate: time missed, wrongly claimed or given to another speaker, over the time spoken"),
    "slot_f1": ("slot F1", "F1 of the slot types"),
    "slot_cer": ("slot CER", "character error rate of the values of the slots"),
    "pesq": ("PESQ", "perceptual evaluation of speech quality (wide band), from 1 to 4.6"),
    "stoi": ("STOI", "short-time objective intelligibility, times 100"),
    "si_sdr": ("SI-SDR", "scale-invariant signal-to-distortion ratio"),
    "si_sdri": ("SI-SDRi", "scale-invariant signal-to-distortion ratio, gained over the mixture"),
    "ratio_cached": ("speed-up", "time with the encoder in the loop over time from cached features"),
}


@dataclass(frozen=True)
class Series:
    """One line of a figure. slot: index into PALETTE and MARKERS (after seven a colour comes again with another marker)."""

    system: str
    encoder: str
    label: str
    slot: int

    @property
    def colour(self) -> str:
        return PALETTE[self.slot % len(PALETTE)][0]

    @property
    def marker(self) -> str:
        return MARKERS[(self.slot + self.slot // len(PALETTE)) % len(MARKERS)]


@dataclass(frozen=True)
class Condition:
    """snr_db: signal-to-noise ratio in dB, None where there is none."""

    name: str
    snr_db: float | None = None

    @property
    def family(self) -> str:
        return CONDITIONS.get(self.name, self.name.replace("_", " ").replace("-", " ").capitalize())

    @property
    def label(self) -> str:
        return self.family if self.snr_db is None else f"{self.family}, {decibels(self.snr_db)}"


@dataclass(frozen=True)
class Cell:
    """One number. low, high: 95 % interval or None. n: questions or None. seeds: how many runs it is the mean of.

    drawn, groups: what the interval draws, and of how many (`Row`).
    """

    value: float
    low: float | None
    high: float | None
    n: int | None
    seeds: int = 1
    drawn: str = ""
    groups: int = 0


@dataclass(frozen=True)
class Results:
    """The rows, arranged. Cells whose value is not finite are absent."""

    series: tuple[Series, ...]
    cells: dict[tuple[Series, str, Condition], Cell]

    @property
    def metrics(self) -> tuple[str, ...]:
        """METRICS first, in their order; then the others by name."""
        found = {metric for _, metric, _ in self.cells}
        return tuple(m for m in METRICS if m in found) + tuple(sorted(found - set(METRICS)))

    @property
    def recognition(self) -> str:
        """What recognition errors are counted in: words, or characters where nothing else was counted (Chinese)."""
        return "cer" if self.having("cer") and not self.having("wer") else "wer"

    def conditions(self, metric: str) -> tuple[Condition, ...]:
        """Clean first, then by name, easiest signal-to-noise ratio first."""
        return tuple(sorted({c for _, m, c in self.cells if m == metric}, key=_severity))

    def having(self, metric: str) -> tuple[Series, ...]:
        found = {s for s, m, _ in self.cells if m == metric}
        return tuple(s for s in self.series if s in found)

    def get(self, series: Series, metric: str, condition: Condition) -> Cell | None:
        return self.cells.get((series, metric, condition))

    def named(self, system: str) -> Series | None:
        """The series that a prediction or a breakdown calls `system`: its system, its label or `system/encoder`."""
        return next((s for s in self.series if system in (f"{s.system}/{s.encoder}", s.label, s.system)), None)


def arrange(rows: Iterable[Row], also: Sequence[str] = ()) -> Results:
    """Sort rows into cells; rows that differ in their seed alone are averaged, of rows that differ in their
    card alone the last counts (as in `evaluation.results.table`).

    also: systems that occur in examples or breakdowns, so that they get a colour even without rows.
    Where none of all these listens, "clean" is not of speech: the condition is "written".
    """
    rows = list(rows)
    deaf = not any(listens(system) for system in (*(row.system for row in rows), *also))
    groups: dict[tuple[tuple[str, str], str, Condition], dict[int, Row]] = {}
    names: list[tuple[str, str]] = []
    for row in rows:
        name = (row.system, row.encoder or "")
        if name not in names:
            names.append(name)
        if math.isfinite(row.value):
            key = (
                name,
                row.metric.lower(),
                Condition("written" if deaf and row.condition == "clean" else row.condition, _number(row.snr_db)),
            )
            groups.setdefault(key, {})[row.seed] = row
    series = _series(names, also)
    by_name = {(s.system, s.encoder): s for s in series}
    return Results(series, {(by_name[n], m, c): _cell(list(g.values())) for (n, m, c), g in groups.items()})


def listens(system: str) -> bool:
    """Whether a system, by its name, hears anything."""
    return system.partition("@")[0] not in READERS


def decibels(snr_db: float) -> str:
    return f"{snr_db:g}\u00a0dB".replace("-", "\u2212")


def metric_name(metric: str) -> str:
    if metric.endswith(DEFAULT):
        return f"{metric_name(metric.removesuffix(DEFAULT))} at the default learning rate"
    return METRICS[metric][0] if metric in METRICS else metric.upper() if len(metric) <= 4 else metric.replace("_", " ")


def _series(names: list[tuple[str, str]], also: Sequence[str]) -> tuple[Series, ...]:
    known = {n for system, encoder in names for n in (system, f"{system}/{encoder}")}
    names = names + [(system, "") for system in dict.fromkeys(also) if system not in known]
    order = list(SYSTEMS)
    names.sort(key=lambda n: (order.index(n[0]) if n[0] in order else len(order), n))
    systems = [system for system, _ in names]
    return tuple(Series(s, e, _label(s, e, systems.count(s) > 1), slot) for slot, (s, e) in enumerate(names))


def _label(system: str, encoder: str, ambiguous: bool) -> str:
    label = SYSTEMS.get(system, system)
    return f"{label} · {encoder}" if ambiguous and encoder else label


def _cell(rows: Sequence[Row]) -> Cell:
    """Mean over seeds; the interval then reaches from the least lower to the greatest upper end."""
    lows, highs = [_number(r.low) for r in rows], [_number(r.high) for r in rows]
    known = [(a, b) for a, b in zip(lows, highs, strict=True) if a is not None and b is not None]
    low, high = (min(a for a, _ in known), max(b for _, b in known)) if len(known) == len(rows) else (None, None)
    return Cell(sum(r.value for r in rows) / len(rows), low, high, rows[0].n or None, len(rows), rows[0].drawn, rows[0].groups)


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _severity(condition: Condition) -> tuple[bool, str, float]:
    return condition.name != "clean", condition.name, -math.inf if condition.snr_db is None else -condition.snr_db


INK, MUTED, RULE, PAPER = "#1d2127", "#69707a", "#d9dde3", "#fffffe"
INCHES = 8.6  # width of a figure
STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a system may be called "a$b$"
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": RULE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "ytick.major.size": 0,
    "legend.frameon": False,
}


class Breakdown(TypedDict):
    """One bar: the FF1 (percent) of a system on the answers of one bucket of lengths, as `bucket` prints it."""

    system: str
    bucket: str
    value: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Drawing:
    """svg: an <svg> element. alt: what it shows, in words and numbers."""

    svg: str
    alt: str


def score_against_snr(results: Results, metric: str = "ff1") -> Drawing | None:
    """A line a system over the signal-to-noise ratio, clean speech at the right end, a panel for each kind of noise.

    None where no system has two points. Error bars are the 95 % intervals, where there are any.
    """
    names = sorted({c.name for c in results.conditions(metric) if c.snr_db is not None})
    panels = [(name, _lines(results, metric, name)) for name in names]
    panels = [(name, lines) for name, lines in panels if any(len(points) > 1 for _, points in lines)]
    if not panels:
        return None
    with _figure(len(panels), 3.6, names=max(len(s.label) for _, lines in panels for s, _ in lines)) as (figure, axes):
        top = _top(cell for _, lines in panels for _, points in lines for _, cell in points)
        for number, ((name, lines), ax) in enumerate(zip(panels, axes, strict=True)):
            _noise_panel(ax, lines, top, named=number == len(panels) - 1)
            ax.set_xlabel(f"Signal-to-noise ratio, {Condition(name).family.lower()}")
        axes[0].set_ylabel(f"{metric_name(metric)} (%)")
        svg = svg_of(figure, f"snr-{metric}")
    alt = "; ".join(_told(s, points) for _, lines in panels for s, points in lines)
    return Drawing(svg, f"{metric_name(metric)} in percent against the signal-to-noise ratio. {alt}.")


def score_against_wer(results: Results, metric: str = "ff1") -> Drawing | None:
    """The crossing figure of DUAL (arXiv 2203.04911): a panel for each cascade, its WER along, everybody's score up.

    A thin upright joins the points of one condition; lines join the conditions of one kind of noise. None where no
    cascade has both WER and score in two conditions, or where no system without a transcript is there to compare.
    """
    cascades = [s for s in results.having(results.recognition) if len(_common(results, s, metric)) > 1]
    others = [s for s in results.having(metric) if s not in results.having(results.recognition)]
    if not cascades or not others:
        return None
    above = max(len(name) for s in cascades for name in _short_names(_common(results, s, metric)).values())
    with _figure(len(cascades), 3.3, above=above, legend=len(cascades) + len(others)) as (figure, axes):
        shown = [cell for (s, m, _), cell in results.cells.items() if m == metric and s in (*cascades, *others)]
        for cascade, ax in zip(cascades, axes, strict=True):
            _crossing_panel(ax, results, cascade, others, metric)
            ax.set_ylim(0, _top(shown))
        axes[0].set_ylabel(f"{metric_name(metric)} (%)")
        _legend(figure, [*others, *cascades])
        svg = svg_of(figure, f"wer-{metric}")
    return Drawing(svg, _crossing_told(results, cascades, others, metric))


def bars(results: Results, breakdowns: Sequence[Breakdown], metric: str = "ff1") -> Drawing | None:
    """Grouped bars with intervals, a group a bucket in order of appearance. None where nothing finite is there."""
    cells = {(b["bucket"], b["system"]): _bar(b) for b in breakdowns if b["value"] == b["value"]}
    buckets = list(dict.fromkeys(bucket for bucket, _ in cells))
    found = {system: results.named(system) for _, system in cells}
    series = sorted({s for s in found.values() if s}, key=lambda s: s.slot)
    if not buckets or not series:
        return None
    with _figure(1, 3.2, legend=len(series)) as (figure, (ax,)):
        for (bucket, system), cell in cells.items():
            if drawn := found[system]:
                _draw_bar(ax, buckets.index(bucket), series.index(drawn), len(series), drawn, cell)
        ax.set_xticks(range(len(buckets)), [_bucket_label(b, cells) for b in buckets])
        ax.tick_params(axis="x", length=0)
        ax.set_ylim(0, _top(cells.values()))
        ax.set_ylabel(f"{metric_name(metric)} (%)")
        ax.set_xlabel("Length of the answer")
        _legend(figure, series)
        svg = svg_of(figure, f"bars-{metric}")
    alt = "; ".join(f"{found[s].label}, {b}: {c.value:.1f}" for (b, s), c in cells.items() if found[s])  # type: ignore[union-attr]
    return Drawing(svg, f"{metric_name(metric)} in percent by the length of the answer. {alt}.")


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move places apart until neighbours are `gap` apart, inside [low, high] where there is room; the order stays."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    gap = min(gap, (high - low) / max(len(places) - 1, 1))
    moved = list(places)
    for _ in range(200):  # settles long before for the handful of labels there are
        for a, b in pairwise(order):
            if (short := gap - (moved[b] - moved[a])) > 1e-9:
                moved[a], moved[b] = moved[a] - short / 2, moved[b] + short / 2
        moved = [min(max(m, low), high) for m in moved]
    return moved


# ---- points --------------------------------------------------------------------------------------

Points = list[tuple[Condition, Cell]]


def _lines(results: Results, metric: str, noise: str) -> list[tuple[Series, Points]]:
    """For every system its points in this noise, hardest first, clean last."""
    wanted = [c for c in results.conditions(metric) if c == Condition("clean") or (c.name == noise and c.snr_db is not None)]
    lines = [(s, [(c, cell) for c in wanted[::-1] if (cell := results.get(s, metric, c))]) for s in results.series]
    return [(s, points) for s, points in lines if points]


def _common(results: Results, cascade: Series, metric: str) -> list[Condition]:
    """The conditions in which the cascade has both a word error rate and the score."""
    return [
        c for c in results.conditions(metric) if results.get(cascade, metric, c) and results.get(cascade, results.recognition, c)
    ]


def _bar(breakdown: Breakdown) -> Cell:
    return Cell(breakdown["value"], breakdown.get("low"), breakdown.get("high"), breakdown.get("n"))


def _bucket_label(bucket: str, cells: Mapping[tuple[str, str], Cell]) -> str:
    sizes = {cell.n for (b, _), cell in cells.items() if b == bucket and cell.n}
    return bucket if len(sizes) != 1 else f"{bucket}\n{sizes.pop():,} questions"


def _told(series: Series, points: Points) -> str:
    return f"{series.label}: " + ", ".join(f"{c.label} {cell.value:.1f}" for c, cell in points)


def _crossing_told(results: Results, cascades: Sequence[Series], others: Sequence[Series], metric: str) -> str:
    parts = []
    for cascade in cascades:
        for condition in _common(results, cascade, metric):
            wer = results.cells[cascade, results.recognition, condition].value
            scores = [(s, results.get(s, metric, condition)) for s in (*others, cascade)]
            told = ", ".join(f"{s.label} {cell.value:.1f}" for s, cell in scores if cell)
            parts.append(f"{condition.label}, {metric_name(results.recognition)} of {cascade.label} {wer:.1f}: {told}")
    errors = METRICS[results.recognition][1].removesuffix(" of the transcript")
    return f"{metric_name(metric)} against the {errors} of the cascade, both in percent. {'; '.join(parts)}."


# ---- drawing -------------------------------------------------------------------------------------


def _noise_panel(ax: Axes, lines: Sequence[tuple[Series, Points]], top: float, named: bool) -> None:
    ratios = sorted({c.snr_db for _, points in lines for c, _ in points if c.snr_db is not None})
    clean = ratios[-1] + max(5.0, (ratios[-1] - ratios[0]) / 4)
    places = {r: decibels(r) for r in ratios} | ({clean: "clean"} if any(c.snr_db is None for _, p in lines for c, _ in p) else {})
    unit = (clean - ratios[0]) / 90  # so that error bars of one condition stand side by side
    for number, (series, points) in enumerate(lines):
        aside = (number - (len(lines) - 1) / 2) * unit
        xs = [(clean if c.snr_db is None else c.snr_db) + aside for c, _ in points]
        _draw_line(ax, xs, [cell for _, cell in points], series)
    ax.set_xticks(list(places), list(places.values()))
    ax.set_xlim(ratios[0] - 4 * unit, clean + 4 * unit)
    ax.set_ylim(0, top)
    if named:
        _name_lines(ax, lines, top)


def _name_lines(ax: Axes, lines: Sequence[tuple[Series, Points]], top: float) -> None:
    """The systems' names at the right ends of their lines, instead of a legend."""
    ends = [points[-1][1].value for _, points in lines]
    inch = ax.figure.dpi / ax.get_window_extent().width  # in parts of the axis
    for (series, _), y in zip(lines, spread(ends, 0.068 * top, 0.02 * top, 0.98 * top), strict=True):
        style: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "clip_on": False}
        ax.plot([1 + 0.16 * inch], [y], marker=series.marker, color=series.colour, markersize=5.5, **style)
        ax.text(1 + 0.27 * inch, y, series.label, va="center", **style)


def _draw_line(ax: Axes, xs: Sequence[float], cells: Sequence[Cell], series: Series, joined: bool = True) -> None:
    ys = [cell.value for cell in cells]
    for x, cell in zip(xs, cells, strict=True):
        if cell.low is not None and cell.high is not None:
            ax.plot([x, x], [cell.low, cell.high], color=series.colour, linewidth=1.3, alpha=0.55, solid_capstyle="round")
    line = "-" if joined else "none"
    face = series.colour if joined else "none"
    ax.plot(xs, ys, line, marker=series.marker, color=series.colour, markersize=5.5, markerfacecolor=face, linewidth=1.8)


def _crossing_panel(ax: Axes, results: Results, cascade: Series, others: Sequence[Series], metric: str) -> None:
    common = _common(results, cascade, metric)
    wer = {c: results.cells[cascade, results.recognition, c].value for c in common}
    far = max(max(wer.values()) * 1.06, 1.0)
    for series in (*others, cascade):
        for group, joined in _families(common):
            points = [(wer[c], cell) for c in group if (cell := results.get(series, metric, c))]
            if points:
                _draw_line(ax, [x for x, _ in points], [cell for _, cell in points], series, joined)
    for condition in common:
        ys = [cell.value for s in (*others, cascade) if (cell := results.get(s, metric, condition))]
        ax.plot([wer[condition]] * 2, [min(ys), max(ys)], color=MUTED, linewidth=0.8, linestyle=(0, (1.5, 2)), zorder=1)
    _name_conditions(ax, wer, far)
    ax.set_xlim(0, far)
    ax.set_xlabel(f"{metric_name(results.recognition)} of {cascade.label} (%)")


def _families(conditions: Sequence[Condition]) -> list[tuple[list[Condition], bool]]:
    """Conditions to be joined by a line: clean with each kind of noise, from clean on; the others stand alone."""
    clean = [c for c in conditions if c == Condition("clean")]
    noises = sorted({c.name for c in conditions if c.snr_db is not None})
    alone = [c for c in conditions if c.snr_db is None and c not in clean]
    families = [(clean + [c for c in conditions if c.name == name and c.snr_db is not None], True) for name in noises]
    return (families or [(clean, True)]) + [([c], False) for c in alone]


def _name_conditions(ax: Axes, wer: Mapping[Condition, float], far: float) -> None:
    """Upright labels above the panel, moved apart, each with a thin leader to its place on the axis."""
    names = _short_names(list(wer))
    span = ax.get_window_extent().width / ax.figure.dpi  # inches
    places = spread(list(wer.values()), 0.17 / span * far, 0.0, far)
    for (condition, x), place in zip(wer.items(), places, strict=True):
        style: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "clip_on": False}
        ax.plot([x, x, place], [0.985, 1.0, 1.04], color=RULE, linewidth=0.8, **style)
        ax.text(place, 1.055, names[condition], rotation=90, ha="center", va="bottom", fontsize=7.5, color=MUTED, **style)


def _short_names(conditions: Sequence[Condition]) -> dict[Condition, str]:
    """Without the kind of noise where there is one kind only."""
    several = len({c.name for c in conditions if c.snr_db is not None}) > 1
    names = {c: c.label if several or c.snr_db is None else decibels(c.snr_db) for c in conditions}
    return {c: "Clean" if c == Condition("clean") else name for c, name in names.items()}


def _draw_bar(ax: Axes, group: int, number: int, count: int, series: Series, cell: Cell) -> None:
    width = min(0.8 / count, 0.26)
    x = group + (number - (count - 1) / 2) * width
    ax.bar(x, cell.value, width * 0.9, color=series.colour)
    if cell.low is not None and cell.high is not None:
        ax.plot([x, x], [cell.low, cell.high], color=INK, linewidth=1.1, solid_capstyle="round")
    top = cell.high if cell.high is not None else cell.value
    ax.annotate(f"{cell.value:.0f}", (x, top), (0, 3), textcoords="offset points", ha="center", fontsize=7.5, color=MUTED)


def _legend(figure: Figure, series: Sequence[Series]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], linestyle="none", marker=s.marker, color=s.colour, markersize=6, label=s.label) for s in series]
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.055, 1.0), ncols=min(len(handles), 4), handletextpad=0.2)


def _top(cells: Any) -> float:
    """Upper end of an axis of scores: the next ten above everything."""
    most = max((max(cell.value, cell.high or 0.0) for cell in cells), default=0.0)
    return max(10.0, 10.0 * (int(most * 1.04 / 10) + 1))


@contextmanager
def styled() -> Iterator[None]:
    """The look of every figure, whatever the user's own settings are."""
    import matplotlib

    with matplotlib.rc_context({**matplotlib.rcParamsDefault, "backend": matplotlib.rcParams["backend"], **STYLE}):
        yield


@contextmanager
def _figure(panels: int, height: float, names: int = 0, above: int = 0, legend: int = 0) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure with panels side by side.

    height: inches without the room above. names: letters of the longest name at the right. above: letters of the
    longest upright label. legend: number of its entries, at the top.
    """
    from matplotlib.figure import Figure  # slow to import

    with styled():
        room = 0.1 + (0.12 + 0.18 * -(-legend // 4) if legend else 0) + (0.12 + 0.058 * min(above, 24) if above else 0)
        height += room
        figure = Figure(figsize=(INCHES, height))
        axes = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
        right = 1 - (0.35 + 0.073 * min(names, 34)) / INCHES if names else 0.985
        figure.subplots_adjust(left=0.062, right=right, bottom=0.55 / height, top=1 - room / height, wspace=0.07)
        yield figure, list(axes)


def svg_of(figure: Figure, name: str) -> str:
    """The <svg> element with its own identifiers, CSS colours, and no size but its shape."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    svg = buffer.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(
        r"<svg [^>]*viewBox=\"([^\"]*)\"[^>]*>",
        r'<svg viewBox="\1" aria-hidden="true" focusable="false">',
        svg,
        count=1,
    )
    svg = re.sub(r'\bid="', f'id="{name}-', svg).replace("url(#", f"url(#{name}-")
    svg = re.sub(r'xlink:href="#', f'href="#{name}-', svg)
    svg = re.sub(r" font-family: [^;\"]*;|<style.*?</style>| transform=\"rotate\(-0 [^\"]*\"", "", svg, flags=re.DOTALL)
    return re.sub(r"\n\s*", "\n", _recoloured(svg)).strip()


def _recoloured(svg: str) -> str:
    names = {INK: "ink", MUTED: "muted", RULE: "rule", PAPER: "paper"} | {light: f"s{i}" for i, (light, _) in enumerate(PALETTE)}
    return re.sub("|".join(names), lambda m: f"var(--{names[m[0]]}, {m[0]})", svg)
