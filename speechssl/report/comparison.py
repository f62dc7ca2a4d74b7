"""`speechssl compare`: from folders that `evaluate` wrote to compare.json, tables.md and a page.

The page has the scores, where the lines cross, paired differences, and which answers are missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from speechssl import __version__
from speechssl.artifacts import hold_output, read_json, write_json, write_text
from speechssl.eval.compare import (
    CLEAN,
    WER,
    Compared,
    Compilation,
    Crossing,
    Point,
    as_json,
    compare,
    compile_corpus,
    crossing_text,
    falling,
    family_name,
    paired_tests,
    read_results,
    reads_reference,
    tables_of,
)
from speechssl.report.figures import Drawing, Series, arrange, draw_interval, panels_in, svg_of
from speechssl.report.options import Compare
from speechssl.report.page import Section, grid_of, write_page
from speechssl.report.spoken_qa import error_table, explorer_of, methods_of, predictions_path
from speechssl.results import (
    MUTED,
    Row,
    condition_name,
    describe_range,
    markdown,
    metric_name,
    published_table,
)
from speechssl.stats import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Systems beside each other"
CAPTION = (
    "Each point is a cascade: along, how often its recogniser errs; up, what is left of the "
    "answer. Lines are fitted and never "
    "rise. The system without a transcript has a level line beside errors in clean speech, and "
    "in noise its own score in the same "
    "noise, joined by dashes. At the foot: where a line falls below it, with the interval and "
    "the share of resamples that cross. A "
    "line stops where it would fall below it with nothing measured nearby."
)
FEW = 15  # paired tests that the terminal shows
NAMES = {"simulated": "Simulated errors", "recognisers": "Recognisers, clean speech"}
SPOKEN = ("ff1", "f1", "em", "aos")  # metrics of question answering, whose predictions are listed
APART = 8.0  # points of WER between conditions that are both named


def compare_systems(o: Compare) -> dict[str, Any]:
    """Compare, print the tables, and return what is in compare.json. Raises InputError as
    `run_comparison` does."""
    with hold_output(o.out):
        print(run_comparison(o))
        return read_json(o.out / "compare.json")


def run_comparison(o: Compare) -> str:
    """Compare, write everything into `o.out`, and return the tables of scores and crossings, and
    those of few paired tests.

    Raises InputError as `read_results`, `compare` and `paired_tests` do.
    """
    pairs = [(first, second) for first, second in (text.split(",") for text in o.pairs)]
    compared = compare(read_results(o.results, o.systems), o.metric, o.common, o.seed)
    corpora = [
        compile_corpus(c, t) for c, t in zip(compared, paired_tests(compared, pairs), strict=True)
    ]
    tables = [tables_of(c) for c in corpora]
    every = [t for group in tables for t in group]
    published = published_table([c.compared.corpus for c in corpora]) or published_table(
        ["nmsqa dev", "nmsqa test"]
    )
    further, version = [published] if published else [], f"speechssl {__version__}"
    settings = {
        "results": [str(r) for r in o.results],
        "seed": o.seed,
        "common": o.common,
        "made_by": version,
    }
    write_json(o.out / "compare.json", settings | {"corpora": [as_json(c) for c in corpora]})
    write_text(o.out / "tables.md", markdown([*every, *further]))
    details = {"Results": ", ".join(map(str, o.results)), "Made by": version}
    for c in compared:
        n, passages = (
            next(iter(c.estimates.values())).n,
            len({line["passage"] for line in c.scores[0].lines.values()}),
        )
        size = f"{describe_range([n], 'question')} about {describe_range([passages], 'passage')}"
        details[f"Corpus {c.corpus}"] = (
            f"{size}, {c.card.get('data')}; "
            f"{c.card.get('synthetic') or 'speech or text as the corpus has it'}"
        )
    sections = [
        *(corpus_section(c, number) for number, c in enumerate(corpora)),
        Section(tables=further),
    ]
    write_page(
        o.out / "compare.html",
        TITLE,
        sections,
        details,
        " ".join(dict.fromkeys(c.synthetic for c in compared if c.synthetic)),
    )
    few = [t for t in every if ": paired differences" in t.title and len(t.rows) <= FEW]
    crossing = [t for t in every if t.title.endswith("where the lines cross")]
    printed = markdown([*(t for group in tables for t in group[:1]), *few, *crossing])
    return (
        f"{printed}\n{o.out / 'compare.html'}: open it in a browser; {o.out / 'tables.md'} "
        "has every table"
    )


# ---- the page


def corpus_section(c: Compilation, number: int) -> Section:
    """number: of the corpus on the page. Scores and error rates stand in grids, not in tables."""
    metric, errors, corpus = c.compared.metric, c.compared.errors, c.compared.corpus
    figures = []
    for place, textless in enumerate(c.compared.textless):
        of_textless = [x for x in c.crossings if x.textless == textless]
        if drawing := crossing_figure(of_textless, metric, errors, f"cross-{number}-{place}"):
            title = f"{metric_name(metric)} against the {errors}, {textless} and cascades, {corpus}"
            figures.append((title, CAPTION, drawing))
    in_grids = [f"{corpus}: {metric_name(name)}" for name in (metric, errors.lower())]
    tables = [t for t in tables_of(c) if t.title not in in_grids]
    results, order = arrange(rows_of(c.compared)), {s: i for i, s in enumerate(c.compared.systems)}
    listed = replace(results, series=tuple(sorted(results.series, key=lambda s: order[s.system])))
    more = " ".join(filter(None, [c.compared.synthetic, c.compared.seen]))
    grids = [
        grid_of(listed, name, f"{metric_name(name)}, {corpus}", more) for name in results.metrics
    ]
    explorers = []
    if metric in SPOKEN:
        paths = {f.path: predictions_path(f) for f in c.compared.scores}
        answers = {scores: read_json(path) for scores, path in paths.items() if path.is_file()}
        explorers = [
            explorer_of(c.compared.scores, answers, results, title=(f"All predictions, {corpus}"))
        ]
        mistakes = error_table(
            c.compared.scores, results, c.compared.synthetic, f"{corpus}: how answers err"
        )
        tables += [mistakes] if mistakes else []
    return Section(
        summary=_summary(c),
        grids=grids,
        figures=figures,
        tables=tables,
        methods=methods_of(results),
        explorers=explorers,
    )


def rows_of(c: Compared) -> list[Row]:
    over = {s.condition: str(s.card.get("snr_over", "")) for s in c.scores}
    return [
        Row.from_interval(
            e.interval,
            "qa",
            system,
            "",
            *where,
            c.errors.lower() if metric == WER else metric,
            snr_over=over.get(where, ""),
        )
        for (system, where, metric), e in c.estimates.items()
    ]


def _summary(c: Compilation) -> str:
    """Two sentences at most: where the lines cross, and how many of the tests are significant."""
    parts = []
    by_family = {x.family: x for x in reversed(c.crossings)}
    if (
        x := by_family.get("simulated")
        or by_family.get("all")
        or next(iter(by_family.values()), None)
    ):
        where = crossing_text(x)
        if x.at is not None:  # else the text is a sentence
            where = f"the cascade falls to {x.textless} at a {c.compared.errors} of {where}"
        parts.append(
            f"{c.compared.corpus}, {c.compared.errors} varied by {family_name(x.family)}: {where}."
        )
    if c.tests:
        sure = sum(t.p_holm < 0.05 for t in c.tests)
        parts.append(
            f"{c.compared.corpus}: {sure} of {len(c.tests)} paired differences have p < "
            "0.05 (after Holm)."
        )
    return " ".join(parts)


# ---- the crossing figure: score against word error rate, from every source of errors


def crossing_figure(
    crossings: Sequence[Crossing], metric: str, errors: str, name: str
) -> Drawing | None:
    """crossings: of one system without a transcript; None where they have no family of their own.
    errors: WER or CER. name: unique on the page.

    A line is the fitted curve of a family, which never rises; a bar at the foot the interval in
    which it crosses.
    """
    drawn = [crossing for crossing in crossings if crossing.family != "all"]
    if not drawn:
        return None
    series = {}  # by family
    for slot, crossing in enumerate(drawn, 1):
        label = NAMES.get(crossing.family) or crossing.family.replace("noise, ", "Noise, ")
        series[crossing.family] = Series("", "", label, slot)
    textless = Series("", "", crossings[0].textless, 0)
    with panels_in(1, 1, 3.3, entries=[textless, *series.values()], below=0.5) as (
        figure,
        ((ax,),),
    ):
        far = 100 * max(crossing.high_wer for crossing in drawn) * 1.06
        ax.set_xlim(-0.012 * far, far)
        for crossing in drawn:
            _draw_textless(ax, crossing.points, textless)
        for place, crossing in enumerate(drawn):
            _draw_family(ax, crossing, series[crossing.family])
            if crossing.at is not None:
                _draw_place(
                    ax, crossing, crossing.at, 1.6 + 2.4 * place, series[crossing.family].colour
                )
        estimates = [
            estimate
            for crossing in drawn
            for p in crossing.points
            for estimate in (p.cascade, p.textless)
        ]
        highest = max(estimate.interval.percent.high for estimate in estimates)
        ax.set_ylim(0, min(108.0, max(10.0, 10.0 * (int(highest * 1.04 / 10) + 1))))
        ax.set_xlabel(f"{errors} of the cascade's recogniser (%)")
        ax.set_ylabel(f"{metric_name(metric)} (%)")
        svg = svg_of(figure, name)
    parts = []
    for crossing in drawn:
        places = []
        for p in crossing.points:
            places.append(
                f"{100 * p.wer.value:.1f}: {100 * p.cascade.value:.1f} and "
                f"{100 * p.textless.value:.1f}"
            )
        columns = f"{errors}, cascade and {crossing.textless}"
        label = series[crossing.family].label
        crossed = "" if crossing.at is None else "they cross at "
        parts.append(f"{label}: {crossed}{crossing_text(crossing)}; {columns}: {', '.join(places)}")
    return Drawing(
        svg, f"{metric_name(metric)} against the {errors}, in percent. {'. '.join(parts)}."
    )


def _draw_place(ax: Axes, x: Crossing, at: float, foot: float, colour: str) -> None:
    """Draw where the lines cross: an upright, and at the foot the interval as far as it lies in the
    range."""
    low, high = (
        100 * (x.low_wer if x.low is None else x.low),
        100 * (x.high_wer if x.high is None else x.high),
    )
    ax.plot([100 * at] * 2, [0, 200], color=colour, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
    ax.plot([low, high], [foot, foot], color=colour, linewidth=3, solid_capstyle="round")
    share = "" if x.share is None else f", {100 * x.share:.0f} % of resamples"
    beside: dict[str, Any] = {"color": MUTED, "fontsize": 7.5, "textcoords": "offset points"}
    right = high < ax.get_xlim()[1] / 2
    place, shift = ((high, foot), (6, -2.5)) if right else ((low, foot), (-6, -2.5))
    ax.annotate(f"{100 * at:.1f} %{share}", place, shift, ha="left" if right else "right", **beside)


def _draw_family(ax: Axes, x: Crossing, series: Series) -> None:
    xs, ys = [100 * p.wer.value for p in x.points], [100 * p.cascade.value for p in x.points]
    line = list(zip(xs, falling(np.array(ys)), strict=True))
    if x.between and x.at is None:
        gap = sum(at <= 100 * x.between[0] for at in xs)
        line.insert(gap, (np.nan, np.nan))
    ax.plot(*zip(*line, strict=True), color=series.colour, linewidth=1.6)
    last_named = -APART
    for p, at, y in zip(x.points, xs, ys, strict=True):
        _bars(ax, p.wer, p.cascade, series)
        ax.plot([at], [y], marker=series.marker, color=series.colour, markersize=5.5)
        name = condition_name(*p.condition)
        if reads_reference(p.system):  # the place of simulated errors needs no name
            name = "reference text" if p.wer.value == 0 else ""
        if name and at - last_named >= APART:
            last_named = at
            ax.annotate(name, (at, y), (5, 5), textcoords="offset points", fontsize=7, color=MUTED)


def _draw_textless(ax: Axes, points: Sequence[Point], series: Series) -> None:
    """Draw a textless system: its level in clean speech as far as errors there go, and its scores
    in noise where the recogniser stands in that noise."""
    xs, ys = [100 * p.wer.value for p in points], [100 * p.textless.value for p in points]
    if all(p.condition == CLEAN for p in points):
        v = points[0].textless.interval.percent
        ax.fill_between([0, max(xs)], v.low, v.high, color=series.colour, alpha=0.12, linewidth=0)
        ax.plot([0, max(xs)], [v.value, v.value], color=series.colour, linewidth=1.6)
        return
    ax.plot(
        xs,
        ys,
        color=series.colour,
        linewidth=1.2,
        linestyle=(0, (4, 2)),
        marker=series.marker,
        markersize=5.5,
    )
    for p in points:
        _bars(ax, p.wer, p.textless, series, along=False)


def _bars(ax: Axes, wer: Estimate, score: Estimate, series: Series, along: bool = True) -> None:
    x, y = wer.interval.percent, score.interval.percent
    style: dict[str, Any] = {
        "color": series.colour,
        "linewidth": 1.2,
        "alpha": 0.5,
        "solid_capstyle": "round",
    }
    draw_interval(ax, x.value, y, **style)
    if along:
        ax.plot([x.low, x.high], [y.value, y.value], **style)
