"""Rows arranged for figures, and matplotlib figures as inline SVG: no file, no font, no identifier
shared between two of a page.

Text stays text. Colours are written as CSS variables with the colour itself as the fallback, so
that a page can recolour a figure for a dark background and the SVG still looks right alone. Same
numbers, same bytes.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speechssl.results import INK, METRICS, MUTED, PAPER, RULE, Row, style_figures
from speechssl.stats import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# ---- rows arranged: order, names and colours of systems, conditions and metrics, and a cell for
# each combination

# Okabe and Ito (2008), safe for colour-blind readers. Yellow is kept for the gold answers. The
# second colour of a
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
SYSTEMS = {  # in the order of pages; those of question answering have the names that commands take
    **{
        name: name
        for name in (
            "dual",
            "cascade",
            "cascade-ctc",
            "speechbert",
            "units",
        )
    },
    "ks": "KS (keywords)",
    "ic": "IC (intents)",
    "sid": "SID (speakers)",
    "style": "Style",
    "asr": "ASR (CTC)",
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
READERS = (  # systems without audio, before any @ or +
    *("text", "cascade-given", "cascade-simulated", "chance", "longest-option"),
    *(
        f"{method}-{source}"
        for method in ("bm25", "tfidf", "embeddings")
        for source in ("text", "given")
    ),
)


@dataclass(frozen=True)
class Series:
    """One line of a figure. slot: index into PALETTE and MARKERS (after seven a colour comes again
    with another marker)."""

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
class ShownCondition:
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
class ScoreCell:
    """One number. low, high: 95 % interval or None. n: questions or None. seeds: how many runs it
    is the mean of.

    drawn, groups: what the interval draws, and of how many (`Row`).
    """

    value: float
    low: float | None
    high: float | None
    n: int | None
    seeds: int = 1
    drawn: str = ""
    groups: int = 0


def in_order(conditions: Iterable[ShownCondition]) -> list[ShownCondition]:
    """Clean first, then by name, easiest signal-to-noise ratio first."""
    return sorted(
        conditions,
        key=lambda c: (c.name != "clean", c.name, -math.inf if c.snr_db is None else -c.snr_db),
    )


CLEAN = ShownCondition("clean")
Points = list[tuple[ShownCondition, ScoreCell]]


@dataclass(frozen=True)
class Results:
    """The rows, arranged. Cells whose value is not finite are absent."""

    series: tuple[Series, ...]
    cells: dict[tuple[Series, str, ShownCondition], ScoreCell]

    @property
    def metrics(self) -> tuple[str, ...]:
        """METRICS first, in their order; then the others by name."""
        names = {metric for _, metric, _ in self.cells}
        return tuple(m for m in METRICS if m in names) + tuple(sorted(names - set(METRICS)))

    @property
    def recognition(self) -> str:
        """Return what recognition errors are counted in: words, or characters where nothing else
        was counted (Chinese)."""
        return "cer" if self.having("cer") and not self.having("wer") else "wer"

    def conditions(self, metric: str) -> tuple[ShownCondition, ...]:
        return tuple(in_order({c for _, m, c in self.cells if m == metric}))

    def having(self, metric: str) -> tuple[Series, ...]:
        with_metric = {s for s, m, _ in self.cells if m == metric}
        return tuple(s for s in self.series if s in with_metric)

    def get(self, series: Series, metric: str, condition: ShownCondition) -> ScoreCell | None:
        return self.cells.get((series, metric, condition))

    def named(self, system: str) -> Series | None:
        """The series that a prediction or a breakdown calls `system`: its system, its label or
        `system/encoder`."""
        return next(
            (s for s in self.series if system in (f"{s.system}/{s.encoder}", s.label, s.system)),
            None,
        )

    def of_series(self, other: Results) -> Results:
        """These cells under the series that the systems have in `other`; those that it does not
        have are left out."""
        series = {(s.system, s.encoder): s for s in other.series}
        cells = {
            (series[s.system, s.encoder], m, c): x
            for (s, m, c), x in self.cells.items()
            if (s.system, s.encoder) in series
        }
        return Results(other.series, cells)


def arrange(rows: Iterable[Row], also: Sequence[str] = ()) -> Results:
    """Sort rows into cells; rows that differ in their seed alone are averaged, of rows that differ
    in their card alone the last counts (as in `results.results_table`).

    also: systems that occur in examples or breakdowns, so that they get a colour even without rows.
    Where none of all these needs audio, "clean" is not of speech: the condition is "written".
    """
    rows = list(rows)
    text_only = all(
        re.split("[@+]", system)[0] in READERS for system in (*(row.name for row in rows), *also)
    )
    groups: dict[tuple[tuple[str, str], str, ShownCondition], dict[int, Row]] = {}
    names = list(dict.fromkeys((row.name, row.encoder or "") for row in rows))
    for row in rows:
        if math.isfinite(row.value):
            where = "written" if text_only and row.condition == "clean" else row.full_condition
            condition = ShownCondition(where, _finite(row.snr_db))
            groups.setdefault(((row.name, row.encoder or ""), row.metric.lower(), condition), {})[
                row.seed
            ] = row
    present = {n for system, encoder in names for n in (system, f"{system}/{encoder}")}
    names += [(system, "") for system in dict.fromkeys(also) if system not in present]
    order = list(SYSTEMS)
    names.sort(key=lambda n: (order.index(n[0]) if n[0] in order else len(order), n))
    systems, series = [system for system, _ in names], {}
    for slot, (system, encoder) in enumerate(names):
        label = SYSTEMS.get(system, system)
        ambiguous = encoder and systems.count(system) > 1
        series[system, encoder] = Series(
            system, encoder, (f"{label} · {encoder}") if ambiguous else label, slot
        )
    cells = {}
    for (name, metric, condition), by_seed in groups.items():
        # their mean; the interval reaches from the least lower to the greatest upper end
        seeds = list(by_seed.values())
        ends = [(_finite(r.low), _finite(r.high)) for r in seeds]
        whole = [(a, b) for a, b in ends if a is not None and b is not None]
        low, high = (
            (min(a for a, _ in whole), max(b for _, b in whole))
            if len(whole) == len(seeds)
            else (None, None)
        )
        first, value = seeds[0], sum(r.value for r in seeds) / len(seeds)
        cells[series[name], metric, condition] = ScoreCell(
            value, low, high, first.n or None, len(seeds), first.drawn, first.groups
        )
    return Results(tuple(series.values()), cells)


def decibels(snr_db: float) -> str:
    return f"{snr_db:g}\u00a0dB".replace("-", "\u2212")


def points_in(results: Results, series: Series, metric: str, noise: str) -> Points:
    """The points of one line over the SNRs of a noise, hardest first, clean speech last."""
    conditions = [
        c
        for c in results.conditions(metric)
        if c == CLEAN or (c.name == noise and c.snr_db is not None)
    ]
    return [(c, cell) for c in conditions[::-1] if (cell := results.get(series, metric, c))]


def points_text(points: Points) -> str:
    return ", ".join(f"{c.label} {cell.value:.1f}" for c, cell in points)


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


# ---- figures

INCHES = 8.6  # width of a figure
NAMES, ROW = 1.55, 0.27  # inches: beside a heat map, for the names of the encoders; a line of it


@dataclass(frozen=True)
class Drawing:
    """svg: an <svg> element. alt: what it shows, in words and numbers. common: of the questions
    that all systems answered, to be switched to; None: it stays.
    """

    svg: str
    alt: str
    common: Drawing | None = None


@contextmanager
def blank(height: float) -> Iterator[Figure]:
    """An empty figure of the width of a page, with the look of all, whatever the user's own
    settings are. height: inches."""
    with style_figures() as figure:
        yield figure(figsize=(INCHES, height))


def axes_at(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """All in inches."""
    tall = figure.get_figheight()
    return figure.add_axes((left / INCHES, bottom / tall, width / INCHES, height / tall))


def draw_interval(ax: Axes, x: float, estimate: ScoreCell | Row | Interval, **style: Any) -> None:
    if estimate.low is not None and estimate.high is not None:
        ax.plot(
            [x, x],
            [estimate.low, estimate.high],
            **{"linewidth": 1.3, "solid_capstyle": "round", **style},
        )


def cell_axes(
    figure: Figure, left: float, bottom: float, width: float, height: float, columns: int, rows: int
) -> Axes:
    """Axes for a table of cells: their middles lie at whole numbers, the first row is on top. No
    grid, no frame. All in inches."""
    ax = axes_at(figure, left, bottom, width, height)
    ax.set_xlim(-0.5, columns - 0.5)
    ax.set_ylim(rows - 0.5, -0.5)
    ax.grid(False)
    ax.spines[:].set_visible(False)
    return ax


def draw_cell(
    ax: Axes,
    x: int,
    y: int,
    text: str,
    colour: Any,
    ink: str,
    size: float = 8,
    alpha: float = 1,
    **style: Any,
) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(
        Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=colour, alpha=alpha, linewidth=0)
    )
    ax.text(x, y, text, ha="center", va="center", fontsize=size, color=ink, **style)


def legend(
    figure: Figure,
    entries: Iterable[tuple[Series, str]],
    place: tuple[float, float],
    width: float = 1.6,
    dashes: Any = None,
    **style: Any,
) -> None:
    """entries: series and their names; dashes: line styles by name; place: of the upper left
    corner, in shares of the figure."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], linewidth=width, marker=s.marker, color=s.colour, markersize=5, label=label)
        for s, label in entries
    ]
    handles += [
        Line2D([], [], linewidth=width, color=INK, linestyle=dash, label=name)
        for name, dash in (dashes or {}).items()
    ]
    if handles:
        figure.legend(handles=handles, loc="upper left", bbox_to_anchor=place, **style)


def shortened(name: str, most: int = 23) -> str:
    """A name that fits beside a line of a figure."""
    return name if len(name) <= most else name[: most - 1] + "…"


@contextmanager
def panels_in(
    rows: int,
    columns: int,
    height: float,
    *,
    entries: Sequence[Series] = (),
    dashes: Mapping[str, Any] | None = None,
    above: float = 0.1,
    below: float = 0.55,
    between: float = 0.0,
    right: float = 0.985,
) -> Iterator[tuple[Figure, list[list[Axes]]]]:
    """Panels that share their axis up, under one legend.

    height: of a panel; above: from the legend to the first row; below: under the last row; between:
    two rows; all in inches. entries, dashes: of the legend: series, and line styles by name. right:
    end of the panels, a share of the width.
    """
    count = len(entries) + len(dashes or ())
    above += 0.12 + 0.2 * -(-count // 4) if count else 0.0
    total = above + rows * height + (rows - 1) * between + below
    with blank(total) as figure:
        axes = figure.subplots(rows, columns, squeeze=False, sharey="row")
        edges = {"left": 0.062, "right": right, "top": 1 - above / total, "bottom": below / total}
        figure.subplots_adjust(**edges, wspace=0.08, hspace=between / height)
        labels = [(s, s.label) for s in entries]
        legend(figure, labels, (0.045, 1.0), dashes=dashes, ncols=min(count, 4), columnspacing=1.6)
        yield figure, [list(line) for line in axes]


def snr_axis(ax: Axes, lines: Iterable[Points]) -> float:
    """Mark the SNRs of some lines along an axis, clean speech at the right end; where that
    stands."""
    conditions = {c for points in lines for c, _ in points}
    ratios = sorted({c.snr_db for c in conditions if c.snr_db is not None})
    clean = ratios[-1] + max(5.0, (ratios[-1] - ratios[0]) / 4)
    places = {r: decibels(r) for r in ratios} | (
        {clean: "clean"} if any(c.snr_db is None for c in conditions) else {}
    )
    ax.set_xticks(list(places), list(places.values()))
    edge = (clean - ratios[0]) / 22
    ax.set_xlim(ratios[0] - edge, clean + edge)
    return clean


def svg_of(figure: Figure, name: str) -> str:
    """The <svg> element with its own identifiers, CSS colours, and no size but its shape."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    svg = buffer.getvalue()
    svg = re.sub(
        r"<metadata>.*?</metadata>|<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.DOTALL
    )
    svg = re.sub(
        r"<svg [^>]*viewBox=\"([^\"]*)\"[^>]*>",
        r'<svg viewBox="\1" aria-hidden="true" '
        r'focusable="false">',
        svg,
        count=1,
    )
    svg = re.sub(r'\bid="', f'id="{name}-', svg).replace("url(#", f"url(#{name}-")
    svg = re.sub(r'xlink:href="#', f'href="#{name}-', svg)
    svg = re.sub(
        r" font-family: [^;\"]*;|<style.*?</style>| transform=\"rotate\(-0 "
        r"[^\"]*\"",
        "",
        svg,
        flags=re.DOTALL,
    )
    names = {INK: "ink", MUTED: "muted", RULE: "rule", PAPER: "paper"} | {
        light: f"s{i}" for i, (light, _) in enumerate(PALETTE)
    }
    svg = re.sub("|".join(names), lambda m: f"var(--{names[m[0]]}, {m[0]})", svg)
    return re.sub(r"\n\s*", "\n", svg).strip()
