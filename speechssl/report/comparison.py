"""`speechssl compare`: from folders that `evaluate` wrote to compare.json, tables.md and a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from speechssl import __version__
from speechssl.errors import InputError
from speechssl.eval.compare import (
    CLEAN,
    METRICS,
    WER,
    Compared,
    Crossing,
    PairedTest,
    Point,
    compare,
    crossings,
    falling,
    families,
    paired_tests,
    read_results,
    reads_reference,
)
from speechssl.eval.compare_tables import Compilation, as_json, crossing_text, family_name, synthetic, tables_of, where_name
from speechssl.eval.error_analysis import analyses, by_own_wer, shown
from speechssl.eval.tables import Table, markdown
from speechssl.io import write_json, write_text
from speechssl.report.figures import INCHES, MUTED, Drawing, Series, arrange, metric_name, styled, svg_of
from speechssl.report.page import Figure as PageFigure
from speechssl.report.page import Grid, grid_of, write_parts
from speechssl.report.published import MARK_OF_PUBLISHED_QA as MARK
from speechssl.report.published import TITLE as TITLE_published
from speechssl.report.published import published_columns, published_rows
from speechssl.results import Row
from speechssl.stats import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# The crossing figure of a comparison: score against word error rate, from every source of errors.

NAMES = {"simulated": "Simulated errors", "recognisers": "Recognisers, clean speech"}
HEIGHT, LINE = 4.0, 0.19  # inches: of the figure without its legend, of a line of the legend
APART = 8.0  # points of WER between conditions that are both named


def crossing_figure(found: Sequence[Crossing], metric: str, errors: str, name: str) -> Drawing | None:
    """found: of one system without a transcript; None where they have no family of their own. errors: WER or CER. name: unique
    on the page.

    A line is the fitted curve of a family, which never rises; a bar at the foot the interval in which it crosses.
    """
    shown = [x for x in found if x.family != "all"]
    if not shown:
        return None
    series = {x.family: Series("", "", _label(x.family), slot) for slot, x in enumerate(shown, 1)}
    textless = Series("", "", found[0].textless, 0)
    with _blank([textless, *series.values()]) as (figure, ax):
        far = 100 * max(x.high_wer for x in shown) * 1.06
        _textless(ax, shown, textless)
        for place, x in enumerate(shown):
            _family(ax, x.points, series[x.family])
            _place(ax, x, series[x.family], 1.6 + 2.4 * place)
        ax.set_xlim(-0.012 * far, far)
        ax.set_ylim(0, min(108.0, _top(shown)))
        ax.set_xlabel(f"{errors} of the cascade's recogniser (%)")
        ax.set_ylabel(f"{metric_name(metric)} (%)")
        svg = svg_of(figure, name)
    return Drawing(svg, _alt(shown, metric, errors))


def _label(family: str) -> str:
    return NAMES.get(family) or family.replace("noise, ", "Noise, ")


@contextmanager
def _blank(series: Sequence[Series]) -> Iterator[tuple[Figure, Axes]]:
    """An axis under a legend."""
    from matplotlib.figure import Figure  # slow to import
    from matplotlib.lines import Line2D

    rows = -(-len(series) // 3)
    height = HEIGHT + LINE * rows + 0.12
    with styled():
        figure = Figure(figsize=(INCHES, height))
        ax = figure.subplots()
        figure.subplots_adjust(left=0.062, right=0.985, bottom=0.5 / height, top=1 - (LINE * rows + 0.2) / height)
        handles = [Line2D([], [], color=s.colour, marker=s.marker, markersize=5.5, linewidth=1.6, label=s.label) for s in series]
        figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.05, 1.0), ncols=min(3, len(handles)))
        yield figure, ax


def _textless(ax: Axes, found: Sequence[Crossing], series: Series) -> None:
    """Its level in clean speech as far as errors there go, and its scores in noise where the recogniser stands in that noise."""
    for points in (x.points for x in found):
        xs, ys = [100 * p.wer.value for p in points], [100 * p.textless.value for p in points]
        if all(p.condition == CLEAN for p in points):
            v = points[0].textless.interval.percent
            ax.fill_between([0, max(xs)], v.low, v.high, color=series.colour, alpha=0.12, linewidth=0)
            ax.plot([0, max(xs)], [v.value, v.value], color=series.colour, linewidth=1.6)
            continue
        ax.plot(xs, ys, color=series.colour, linewidth=1.2, linestyle=(0, (4, 2)), marker=series.marker, markersize=5.5)
        for p in points:
            _bars(ax, p.wer, p.textless, series, along=False)


def _family(ax: Axes, points: Sequence[Point], series: Series) -> None:
    xs, ys = [100 * p.wer.value for p in points], [100 * p.cascade.value for p in points]
    ax.plot(xs, falling(np.array(ys)), color=series.colour, linewidth=1.6)
    named = -APART
    for p, x, y in zip(points, xs, ys, strict=True):
        _bars(ax, p.wer, p.cascade, series)
        ax.plot([x], [y], marker=series.marker, color=series.colour, markersize=5.5)
        if (name := _name(p)) and x - named >= APART:
            named = x
            ax.annotate(name, (x, y), (5, 5), textcoords="offset points", fontsize=7, color=MUTED)


def _name(p: Point) -> str:
    """Simulated errors say all by their place."""
    if reads_reference(p.system):
        return "reference text" if p.wer.value == 0 else ""
    return where_name(p.condition)


def _bars(ax: Axes, wer: Estimate, score: Estimate, series: Series, along: bool = True) -> None:
    x, y = wer.interval.percent, score.interval.percent
    style: dict[str, Any] = {"color": series.colour, "linewidth": 1.2, "alpha": 0.5, "solid_capstyle": "round"}
    ax.plot([x.value, x.value], [y.low, y.high], **style)
    if along:
        ax.plot([x.low, x.high], [y.value, y.value], **style)


def _place(ax: Axes, x: Crossing, series: Series, foot: float) -> None:
    """The crossing at the foot of the figure, with its interval as far as it lies in the range. foot: height of the bar."""
    if x.at is None:
        return
    low, high = (100 * (end if end is not None else other) for end, other in ((x.low, x.low_wer), (x.high, x.high_wer)))
    ax.plot([100 * x.at] * 2, [0, 200], color=series.colour, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
    ax.plot([low, high], [foot, foot], color=series.colour, linewidth=3, solid_capstyle="round")
    ax.annotate(f"{100 * x.at:.1f} %", (high, foot), (6, -2.5), textcoords="offset points", fontsize=7.5, color=MUTED)


def _top(found: Sequence[Crossing]) -> float:
    ends = [e.interval.percent.high for x in found for p in x.points for e in (p.cascade, p.textless)]
    return max(10.0, 10.0 * (int(max(ends) * 1.04 / 10) + 1))


def _alt(found: Sequence[Crossing], metric: str, errors: str) -> str:
    parts = []
    for x in found:
        values = [[100 * e.value for e in (p.wer, p.cascade, p.textless)] for p in x.points]
        places = ", ".join(f"{wer:.1f}: {a:.1f} and {b:.1f}" for wer, a, b in values)
        parts.append(f"{_label(x.family)}: they cross at {crossing_text(x)}; {errors}, cascade and {x.textless}: {places}")
    return f"{metric_name(metric)} against the {errors}, in percent. " + ". ".join(parts) + "."


# The page of a comparison: scores, where the lines cross, paired differences, and which answers are missed.

TITLE = "Systems beside each other"
CAPTION = (
    "Each point is a cascade: along, how often its recogniser errs; up, what is left of the answer. Lines are fitted and never "
    "rise. The system without a transcript has a level line beside errors in clean speech, and in noise its own score in the same "
    "noise, joined by dashes. At the foot: where a line falls below it, with the interval."
)


def write_page(out: Path, found: Sequence[Compilation], further: Sequence[Table], provenance: Mapping[str, str]) -> None:
    """further: tables to stand at the end. Written whole or not at all; the same input gives the same bytes."""
    grids = [grid for c in found for grid in _grids(c.compared)]
    tables = [t for c in found for t in tables_of(c) if not _is_grid(c.compared, t)]
    write_parts(
        out,
        title=TITLE,
        summary=" ".join(_summary(c) for c in found),
        provenance=dict(provenance) | {f"Corpus {c.compared.corpus}": _about(c.compared) for c in found},
        grids=grids,
        figures=[figure for number, c in enumerate(found) for figure in _figures(c, number)],
        tables=[*tables, *further],
        synthetic=" ".join(dict.fromkeys(note for c in found if (note := synthetic(c.compared)))),
    )


def _is_grid(c: Compared, t: Table) -> bool:
    return t.title in [f"{c.corpus}: {metric_name(metric)}" for metric in (c.metric, c.errors.lower())]


def rows_of(c: Compared) -> list[Row]:
    """The estimates as rows of results, percent."""
    rows = []
    for (system, (condition, snr), metric), e in c.estimates.items():
        v, name = e.interval.percent, c.errors.lower() if metric == WER else metric
        rows.append(Row(system, "", condition, snr, name, v.value, *v.ends, v.n, 0, "", v.drawn, v.groups))
    return rows


def _grids(c: Compared) -> list[Grid]:
    results, order = arrange(rows_of(c)), {s: i for i, s in enumerate(c.systems)}
    found = [grid_of(results, metric) for metric in results.metrics]
    grids = [replace(g, name=f"{g.name}, {c.corpus}", note=f"{g.note} {synthetic(c)}".strip()) for g in found]
    return [replace(g, lines=tuple(sorted(g.lines, key=lambda line: order[line[0].system]))) for g in grids]


def _figures(c: Compilation, number: int) -> list[PageFigure]:
    figures = []
    for place, textless in enumerate(c.compared.textless):
        crossings = [x for x in c.crossings if x.textless == textless]
        drawing = crossing_figure(crossings, c.compared.metric, c.compared.errors, f"cross-{number}-{place}") if crossings else None
        if drawing:
            title = (
                f"{metric_name(c.compared.metric)} against the {c.compared.errors}, {textless} and cascades, {c.compared.corpus}"
            )
            figures.append(PageFigure(title, CAPTION, drawing))
    return figures


def _about(c: Compared) -> str:
    n = next(iter(c.estimates.values())).n
    passages = len({line["passage"] for line in c.scores[0].lines.values()})
    made = c.card.get("synthetic") or "speech or text as the corpus has it"
    return f"{counted(n, 'question')} about {counted(passages, 'passage')}, {c.card.get('data')}; {made}"


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _summary(c: Compilation) -> str:
    """Two sentences at most: where the lines cross, and how many of the tests say something."""
    parts = []
    by_family = {x.family: x for x in reversed(c.crossings)}
    if x := by_family.get("simulated") or by_family.get("all") or next(iter(by_family.values()), None):
        where = (
            crossing_text(x)
            if x.at is None
            else f"the cascade falls to {x.textless} at a {c.compared.errors} of {crossing_text(x)}"
        )
        parts.append(f"{c.compared.corpus}, {c.compared.errors} varied by {family_name(x.family)}: {where}.")
    if c.tests:
        sure = sum(t.p_holm < 0.05 for t in c.tests)
        parts.append(f"{c.compared.corpus}: {sure} of {len(c.tests)} paired differences have p < 0.05 (after Holm).")
    return " ".join(parts)


FEW = 15  # paired tests that the terminal shows


def run_comparison(
    results: Sequence[Path],
    out: Path,
    metric: str = "",
    pairs: Sequence[str] = (),
    systems: Sequence[str] = (),
    common: bool = False,
    seed: int = 0,
) -> str:
    """Compare, write everything into `out`, and return the tables of scores and crossings, and of paired tests where they are few.

    pairs: "dual,cascade-ctc"; systems: only these. Raises InputError as `read_results`, `compare` and `paired_tests` do.
    """
    if metric and metric not in METRICS:
        raise InputError(f"there is no metric {metric!r}; choose one of {', '.join(METRICS)}")
    parsed = [_pair(p) for p in pairs]
    compared = compare(read_results(results, systems), metric, common, seed)
    found = [compile_corpus(c, t) for c, t in zip(compared, paired_tests(compared, parsed), strict=True)]
    printed = [t for c in found for t in tables_of(c)]
    note = _published(found)
    write_json(out / "compare.json", _settings(results, seed, common) | {"corpora": [as_json(c) for c in found]})
    write_text(out / "tables.md", markdown([*printed, note]))
    write_page(
        out / "compare.html", found, [note], {"Results": ", ".join(map(str, results)), "Made by": f"speechssl {__version__}"}
    )
    few = [t for t in printed if ": paired differences" in t.title and len(t.rows) <= FEW]
    crossing = [t for t in printed if t.title.endswith("where the lines cross")]
    told = [*(t for c in found for t in tables_of(c)[:1]), *few, *crossing]
    return markdown(told) + f"\n{out / 'compare.html'}: open it in a browser; {out / 'tables.md'} has every table"


def compile_corpus(c: Compared, some_tests: Sequence[PairedTest]) -> Compilation:
    bins = {}
    for textless in c.textless:
        names = ["simulated", *c.recognisers] if "simulated" in families(c, textless) else c.recognisers
        for family in names:
            for what in ("passage", "sentence"):
                if len(found := by_own_wer(c, textless, family, what == "sentence")) > 1:
                    bins[textless, family, what] = found
    return Compilation(c, some_tests, crossings(c), bins, analyses(c, shown(c)))


def _pair(text: str) -> tuple[str, str]:
    names = text.split(",")
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise InputError(f"--pairs {text!r} is not a pair of systems; write dual,cascade-ctc")
    return names[0], names[1]


def _settings(results: Sequence[Path], seed: int, common: bool) -> dict[str, Any]:
    return {"results": [str(r) for r in results], "seed": seed, "common": common, "made_by": f"speechssl {__version__}"}


def _published(found: Sequence[Compilation]) -> Table:
    rows = published_rows([c.compared.corpus for c in found]) or published_rows(["nmsqa dev", "nmsqa test"])
    return Table(TITLE_published, *published_columns(rows), MARK)
