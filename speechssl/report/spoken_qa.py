"""The section of question answering on a page: a paragraph from the numbers, tables, examples to
listen to, and its figures.

Figures: scores over the SNR and over the recognition errors, bars by the length of the answer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from speechssl.data.records import Corpus
from speechssl.eval.compare import NEAR, Scores
from speechssl.eval.score import ERRORS, TYPES
from speechssl.report.figures import (
    CLEAN,
    INCHES,
    Drawing,
    Points,
    Results,
    ScoreCell,
    Series,
    ShownCondition,
    decibels,
    draw_interval,
    in_order,
    panels_in,
    points_in,
    points_text,
    snr_axis,
    svg_of,
)
from speechssl.report.page import (
    UNKNOWN,
    Explorer,
    ListeningExample,
    Method,
    Section,
    grid_of,
    lanes_of,
)
from speechssl.results import (
    INK,
    LOWER_IS_BETTER,
    METRICS,
    MUTED,
    RULE,
    UNITS_FROM,
    Table,
    describe_range,
    full_condition,
    interval_note,
    join_words,
    metric_name,
)
from speechssl.stats import FEWEST

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 4  # systems in one sentence
ABREAST = 3  # panels of the crossing figure
SIMULATED = "cascade-simulated"
DUAL_PAPER = "https://arxiv.org/abs/2203.04911"
METHODS = {  # by what the names of its systems begin with
    "dual": Method(
        "",
        "dual",
        DUAL_PAPER,
        f" finds the answer in discrete units of the speech, without a transcript ({UNITS_FROM}).",
    ),
    "cascade": Method(
        "A ",
        "cascade",
        DUAL_PAPER,
        " recognises the speech first and finds the answer in the words of its transcript.",
    ),
    "speechbert": Method(
        "",
        "speechbert",
        "https://arxiv.org/abs/1910.11559",
        " reads a vector for every spoken word that a recogniser cuts out.",
    ),
}


Answers = Mapping[str, Any]  # predictions of one system in one condition, as `evaluate` left them
KINDS = (
    "Right: an FF1 of 50 or more (of an answer without times, the F1 of its words). Below that: "
    "too long, where it holds half of "
    "the gold answer or more; too short, where half of it or more lies in that. Little overlap: "
    "less than half of either."
)


class Breakdown(TypedDict):
    """One bar: the FF1 (percent) of a system on the answers of one bucket of lengths, as `bucket`
    prints it."""

    system: str
    bucket: str
    value: float
    low: float | None
    high: float | None
    n: int


# ---- the section


def methods_of(results: Results) -> list[Method]:
    """Say what the systems are that have results, in a sentence each."""
    return [
        method
        for start, method in METHODS.items()
        if any(s.system.startswith(start) for s in results.series)
    ]


def qa_section(
    results: Results,
    examples: Sequence[ListeningExample],
    breakdowns: Sequence[Breakdown],
    synthetic: str = "",
    common: Results | None = None,
    common_breakdowns: Sequence[Breakdown] = (),
    **more: Any,
) -> Section:
    """synthetic: what a synthesiser spoke of the data; stands at every table. common,
    common_breakdowns: of the questions that all systems answered, to switch to. more: of the
    section.
    """
    drawn = [
        ("", cell.drawn, cell.groups)
        for (_, metric, _), cell in results.cells.items()
        if metric == "ff1"
    ]
    snr = (
        f"{interval_note('Error bars', drawn)} Points of one condition stand side by side so "
        "that the bars do not overlap."
    )
    crossing = (
        "Each point is one condition: along, what the recogniser of the cascade does to the "
        "words; up, what is left of "
        "the answer. A dotted upright joins the systems in one condition. Hollow: a condition "
        "outside the noise series."
    )
    cells = [
        (series.label, cell.n or 0)
        for (series, metric, _), cell in results.cells.items()
        if metric == "ff1"
    ]
    counts = {label: max(n for other, n in cells if other == label) for label, _ in cells}
    if fewer := [f"{label} {n}" for label, n in counts.items() if n < max(counts.values())]:
        remedy = "tick the box above the tables" if common else "compare them by the table"
        crossing += (
            f" Of the {max(counts.values())} questions some systems answered fewer: "
            f"{join_words(fewer)}; {remedy}."
        )
    on_snr, on_errors, by_length = (
        score_against_snr(results),
        score_against_wer(results),
        bars(results, breakdowns),
    )
    if common:
        same = common.of_series(results)
        on_snr = on_snr and replace(on_snr, common=score_against_snr(same, "common-snr"))
        on_errors = on_errors and replace(on_errors, common=score_against_wer(same, "common-wer"))
        by_length = by_length and replace(
            by_length, common=bars(same, common_breakdowns, "common-bars")
        )
    what = (
        "as written" if ShownCondition("written") in results.conditions("ff1") else "clean speech"
    )
    figures: list[tuple[str, str, Drawing | None]] = [
        ("FF1 against the signal-to-noise ratio (SNR)", snr, on_snr),
        ("FF1 against the recognition errors of the cascade", crossing, on_errors),
        (
            f"FF1 by the length of the answer, {what}",
            interval_note("Upright lines", drawn),
            by_length,
        ),
    ]
    lead = (
        (" FF1, from 0 to 100, says how well the time of the answer is found.")
        if "ff1" in results.metrics
        else ""
    )
    return Section(
        summary=summarise(results) + lead,
        grids=[
            grid_of(results, metric, more=synthetic, common=common) for metric in results.metrics
        ],
        figures=figures,
        examples=[(example, lanes_of(example, results)) for example in examples],
        methods=methods_of(results),
        **more,
    )


def summarise(results: Results) -> str:
    """A few plain sentences about FF1, or about the first metric there is where it is missing.
    Empty without any.

    They are about the first condition and the one with the least signal-to-noise ratio, else the
    last: who reaches what, who leads at either end, and what becomes of the recognition errors.
    """
    metric = "ff1" if "ff1" in results.metrics else next(iter(results.metrics), "")
    conditions = results.conditions(metric)
    if not conditions:
        return ""

    def ranked(condition: ShownCondition) -> list[tuple[Series, ScoreCell]]:
        scored = [(s, cell) for s in results.series if (cell := results.get(s, metric, condition))]
        return sorted(scored, key=lambda pair: pair[1].value, reverse=metric not in LOWER_IS_BETTER)

    def scores(condition: ShownCondition) -> str:
        scored, parts = ranked(condition), []
        most = max(cell.n or 0 for _, cell in scored)
        for i, (series, cell) in enumerate(scored[:MOST]):
            interval = (
                ""
                if cell.low is None or cell.high is None
                else (f" [{cell.low:.1f}, {cell.high:.1f}]")
            )
            reaches = f"reaches {metric_name(metric)} " if not i else ""
            fewer = f" on {cell.n} of the {most} questions" if cell.n and cell.n < most else ""
            parts.append(f"{series.label} {reaches}{cell.value:.1f}{interval}{fewer}")
        more = f" ({len(scored) - MOST} more in the table)" if len(scored) > MOST else ""
        where = _where(condition)
        return f"{where[0].upper()}{where[1:]} {join_words(parts)}{more}."

    easy = conditions[0]
    if len(conditions) == 1:
        return scores(easy)
    hard = min(
        (c for c in conditions[1:] if c.snr_db is not None),
        key=lambda c: c.snr_db or 0.0,
        default=conditions[-1],
    )
    sentences, before, after = [scores(easy), scores(hard)], ranked(easy), ranked(hard)
    if len(before) > 1 and len(after) > 1:
        (leader, a), (_, b) = after[:2]
        overlap = False
        if a.low is not None and a.high is not None and b.low is not None and b.high is not None:
            overlap = a.low <= b.high and b.low <= a.high
        sure = f", though {_where(hard)} the intervals of the first two overlap" if overlap else ""
        if any(cell.drawn and cell.groups < FEWEST for cell in (a, b)):
            sure = f", though {describe_range([a.groups], a.drawn)} are too few to tell"
        first = before[0][0]
        if leader == first:
            sentences.append(f"{leader.label} leads at both ends{sure}.")
        else:
            ends = f"{first.label} leads {_where(easy)}, {leader.label} {_where(hard)}"
            sentences.append(f"The order changes on the way: {ends}{sure}.")
    errors = results.recognition
    pairs = [
        (s, results.get(s, errors, CLEAN), results.get(s, errors, hard))
        for s in results.having(errors)
    ]
    if parts := [
        (f"from {a.value:.1f} to {b.value:.1f} % for {s.label}") for s, a, b in pairs if a and b
    ]:
        sentences.append(
            f"The {METRICS[errors][1].removesuffix(' of the transcript')} goes {join_words(parts)}."
        )
    return " ".join(sentences)


def _where(condition: ShownCondition) -> str:
    if condition.snr_db is not None:
        return f"in {condition.family.lower()} at {decibels(condition.snr_db)}"
    names = {CLEAN: "in clean speech", ShownCondition("written"): "as written"}
    return names.get(condition, f"with {condition.family.lower()}")


# ---- scores over the SNR


def score_against_snr(results: Results, name: str = "snr-ff1") -> Drawing | None:
    """FF1, a line a system over the signal-to-noise ratio, clean speech at the right end, a panel
    for each kind of noise.

    None where no system has two points. Error bars are the 95 % intervals, where there are any.
    """
    panels: dict[str, dict[Series, Points]] = {}  # by noise
    for noise in sorted({c.name for c in results.conditions("ff1") if c.snr_db is not None}):
        lines = {
            s: points for s in results.series if (points := points_in(results, s, "ff1", noise))
        }
        if any(len(points) > 1 for points in lines.values()):
            panels[noise] = lines
    if not panels:
        return None
    every = [(series, points) for lines in panels.values() for series, points in lines.items()]
    longest = max(len(series.label) for series, _ in every)
    top = _top(cell for _, points in every for _, cell in points)
    with panels_in(1, len(panels), 2.95, right=1 - (0.35 + 0.073 * min(longest, 34)) / INCHES) as (
        figure,
        (axes,),
    ):
        for (noise, lines), ax in zip(panels.items(), axes, strict=True):
            clean = snr_axis(ax, lines.values())
            low, high = ax.get_xlim()
            # error bars of one condition stand side by side
            for number, (series, points) in enumerate(lines.items()):
                aside = (number - (len(lines) - 1) / 2) * (high - low) / 98
                xs = [
                    (clean if condition.snr_db is None else condition.snr_db) + aside
                    for condition, _ in points
                ]
                _draw_line(ax, xs, [cell for _, cell in points], series)
            ax.set_xlabel(
                f"← more noise\N{EM SPACE}SNR of "
                f"{ShownCondition(noise).family.lower()}\N{EM SPACE}less noise →"
            )
            ax.set_ylim(0, top)
        axes[0].set_ylabel("FF1 (%)")
        _name_lines(
            axes[-1], {series: points[-1][1].value for series, points in lines.items()}, top
        )
        svg = svg_of(figure, name)
    alt = "; ".join(f"{series.label}: {points_text(points)}" for series, points in every)
    return Drawing(svg, f"FF1 in percent against the signal-to-noise ratio. {alt}.")


def _name_lines(ax: Axes, ends: Mapping[Series, float], top: float) -> None:
    """Names at the right ends of the lines, instead of a legend. ends: where each line ends; top:
    of the axis."""
    inch = ax.figure.dpi / ax.get_window_extent().width  # in parts of the axis
    style: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "clip_on": False}
    for series, y in zip(
        ends, spread(list(ends.values()), 0.068 * top, 0.02 * top, 0.98 * top), strict=True
    ):
        ax.plot(
            [1 + 0.16 * inch],
            [y],
            marker=series.marker,
            color=series.colour,
            markersize=5.5,
            **style,
        )
        ax.text(1 + 0.27 * inch, y, series.label, va="center", **style)


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move places apart until neighbours are `gap` apart, inside [low, high] where there is room;
    the order stays."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    gap = min(gap, (high - low) / max(len(places) - 1, 1))
    moved = list(places)
    for _ in range(200):  # settles long before for the handful of labels there are
        for a, b in pairwise(order):
            if (short := gap - (moved[b] - moved[a])) > 1e-9:
                moved[a], moved[b] = moved[a] - short / 2, moved[b] + short / 2
        moved = [min(max(m, low), high) for m in moved]
    return moved


def _draw_line(
    ax: Axes, xs: Sequence[float], cells: Sequence[ScoreCell], series: Series, joined: bool = True
) -> None:
    for x, cell in zip(xs, cells, strict=True):
        draw_interval(ax, x, cell, color=series.colour, alpha=0.55)
    line, face = ("-", series.colour) if joined else ("none", "none")
    ys = [cell.value for cell in cells]
    ax.plot(
        xs,
        ys,
        line,
        marker=series.marker,
        color=series.colour,
        markersize=5.5,
        markerfacecolor=face,
        linewidth=1.8,
    )


def _top(cells: Iterable[ScoreCell]) -> float:
    """Upper end of an axis of scores: the next ten above everything."""
    most = max((max(cell.value, cell.high or 0.0) for cell in cells), default=0.0)
    return max(10.0, 10.0 * (int(most * 1.04 / 10) + 1))


# ---- scores over recognition errors


def score_against_wer(results: Results, name: str = "wer-ff1") -> Drawing | None:
    """The crossing figure of DUAL (arXiv 2203.04911): a panel for each cascade, its WER along,
    everybody's score up; first, where there are several, one of all recognisers in clean speech.

    A thin upright joins the points of one condition; lines join the conditions of one kind of
    noise. None where no cascade has both WER and score in two conditions, nor two have them in
    clean speech, or where no system without a transcript is there to compare.
    """
    errors = results.recognition
    cascades = results.having(errors)
    others = [series for series in results.having("ff1") if series not in cascades]
    common: dict[Series, list[ShownCondition]] = {}  # cascade -> conditions in which it has both
    recognisers: dict[Series, float] = {}  # cascade -> its error rate in clean speech
    for cascade in cascades:
        both = [
            c
            for c in results.conditions("ff1")
            if results.get(cascade, "ff1", c) and results.get(cascade, errors, c)
        ]
        if len(both) > 1:
            common[cascade] = both
        if CLEAN in both and not cascade.system.startswith(SIMULATED):
            recognisers[cascade] = results.cells[cascade, errors, CLEAN].value
    recognisers = recognisers if len(recognisers) > 1 else {}
    if not (common or recognisers) or not others:
        return None
    longest = max(
        (len(name) for conditions in common.values() for name in _short_names(conditions).values()),
        default=0,
    )
    shown = [*others, *dict.fromkeys([*recognisers, *common])]
    top = _top(
        cell
        for (series, metric, _), cell in results.cells.items()
        if metric == "ff1" and series in shown
    )
    count = len(common) + bool(recognisers)
    columns, above = min(count, ABREAST), 0.22 + 0.058 * min(longest, 24)
    rows, parts = -(-count // columns), list[str]()
    with panels_in(rows, columns, 2.75, entries=shown, above=above, between=above + 0.55) as (
        figure,
        lines,
    ):
        axes = [ax for line in lines for ax in line]
        for ax in axes[count:]:
            ax.remove()
        if recognisers:
            ax, axes = axes[0], axes[1:]
            parts.append(_recogniser_panel(ax, results, others, recognisers))
            ax.set_xlabel(f"{metric_name(errors)} of the recognisers, clean speech (%)")
            ax.set_ylim(0, top)
        for (cascade, conditions), ax in zip(common.items(), axes, strict=False):
            wer = {
                condition: results.cells[cascade, errors, condition].value
                for condition in conditions
            }
            _crossing_panel(ax, results, [*others, cascade], wer)
            ax.set_xlabel(f"{metric_name(errors)} of {cascade.label} (%)")
            ax.set_ylim(0, top)
            for condition, rate in wer.items():
                scores = [
                    (series, results.get(series, "ff1", condition)) for series in (*others, cascade)
                ]
                values = ", ".join(
                    (f"{series.label} {cell.value:.1f}") for series, cell in scores if cell
                )
                parts.append(
                    f"{condition.label}, {metric_name(errors)} of {cascade.label} "
                    f"{rate:.1f}: {values}"
                )
        for line in lines:
            line[0].set_ylabel("FF1 (%)")
        svg = svg_of(figure, name)
    what = METRICS[errors][1].removesuffix(" of the transcript")
    return Drawing(
        svg, f"FF1 against the {what} of the cascade, both in percent. {'; '.join(parts)}."
    )


def _recogniser_panel(
    ax: Axes, results: Results, others: Sequence[Series], recognisers: Mapping[Series, float]
) -> str:
    """Every cascade where its WER is, neighbours joined; the others level. Returns the numbers, in
    words."""
    near, far = _error_axis(recognisers.values())
    ordered = sorted(recognisers, key=lambda s: recognisers[s])
    points = [(s, recognisers[s], cell) for s in ordered if (cell := results.get(s, "ff1", CLEAN))]
    for (_, x, cell), (_, following, other) in pairwise(points):
        # farther apart, a line would show scores where nothing was measured
        if following - x <= 200 * NEAR:
            ax.plot([x, following], [cell.value, other.value], color=MUTED, linewidth=1.0, zorder=1)
    for series, x, cell in points:
        _draw_line(ax, [x], [cell], series)
    level = [(s, cell) for s in others if (cell := results.get(s, "ff1", CLEAN))]
    for series, cell in level:
        ax.plot([near, far], [cell.value] * 2, color=series.colour, linewidth=1.6)
        if cell.low is not None and cell.high is not None:
            ax.fill_between(
                [near, far], cell.low, cell.high, color=series.colour, alpha=0.12, linewidth=0
            )
    ax.set_xlim(near - 0.012 * (far - near), far)
    texts = [f"{s.label} {cell.value:.1f} at {x:.1f}" for s, x, cell in points]
    return (
        "Clean speech: "
        f"{', '.join([*texts, *(f'{s.label} {cell.value:.1f}' for s, cell in level)])}"
    )


def _crossing_panel(
    ax: Axes, results: Results, shown: Sequence[Series], wer: Mapping[ShownCondition, float]
) -> None:
    """wer: of the cascade, by condition. A line joins clean with each kind of noise; other
    conditions stand alone."""
    conditions = list(wer)
    clean = [c for c in conditions if c == CLEAN]
    noises = sorted({c.name for c in conditions if c.snr_db is not None})
    joined = [
        clean + [c for c in conditions if c.name == name and c.snr_db is not None]
        for name in noises
    ] or [clean]
    alone = [[c] for c in conditions if c.snr_db is None and c not in clean]
    for series in shown:
        for group in (*joined, *alone):
            points = [(wer[c], cell) for c in group if (cell := results.get(series, "ff1", c))]
            if points:
                _draw_line(
                    ax,
                    [x for x, _ in points],
                    [cell for _, cell in points],
                    series,
                    group not in alone,
                )
    for c in conditions:
        ys = [cell.value for s in shown if (cell := results.get(s, "ff1", c))]
        ax.plot(
            [wer[c]] * 2,
            [min(ys), max(ys)],
            color=MUTED,
            linewidth=0.8,
            linestyle=(0, (1.5, 2)),
            zorder=1,
        )
    near, far = _error_axis(wer.values())
    ax.set_xlim(near, far)
    names, inches = _short_names(conditions), ax.get_window_extent().width / ax.figure.dpi
    for (c, x), place in zip(
        wer.items(),
        spread(list(wer.values()), 0.17 / inches * (far - near), near, far),
        strict=True,
    ):
        # upright labels with thin leaders
        style: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "clip_on": False}
        ax.plot([x, x, place], [0.985, 1.0, 1.04], color=RULE, linewidth=0.8, **style)
        ax.text(
            place,
            1.055,
            names[c],
            rotation=90,
            ha="center",
            va="bottom",
            fontsize=7.5,
            color=MUTED,
            **style,
        )


def _error_axis(rates: Collection[float]) -> tuple[float, float]:
    """Ends of an axis of error rates (percent): from 0, or from a ten below the least where a third
    or more would be empty."""
    far = max(max(rates) * 1.06, 1.0)
    return (10.0 * int((min(rates) - 0.05 * far) / 10) if min(rates) > far / 3 else 0.0), far


def _short_names(conditions: Sequence[ShownCondition]) -> dict[ShownCondition, str]:
    """Without the kind of noise where there is one kind only."""
    several = len({c.name for c in conditions if c.snr_db is not None}) > 1
    names = {c: c.label if several or c.snr_db is None else decibels(c.snr_db) for c in conditions}
    return {c: "Clean" if c == CLEAN else name for c, name in names.items()}


# ---- bars


def bars(
    results: Results, breakdowns: Sequence[Breakdown], name: str = "bars-ff1"
) -> Drawing | None:
    """Grouped bars with intervals, a group a bucket in order of appearance. None where nothing
    finite is there."""
    # NaN: a bucket without any score
    finite = [b for b in breakdowns if not math.isnan(b["value"])]
    cells: dict[tuple[str, Series], ScoreCell] = {}
    for row in finite:
        if series := results.named(row["system"]):
            cells[row["bucket"], series] = ScoreCell(
                row["value"], row.get("low"), row.get("high"), row.get("n")
            )
    if not cells:
        return None
    buckets = list(dict.fromkeys(row["bucket"] for row in finite))
    shown = sorted({series for _, series in cells}, key=lambda series: series.slot)
    width = min(0.8 / len(shown), 0.26)
    with panels_in(1, 1, 2.65, entries=shown) as (figure, ((ax,),)):
        for (bucket, series), cell in cells.items():
            x = buckets.index(bucket) + (shown.index(series) - (len(shown) - 1) / 2) * width
            ax.bar(x, cell.value, width * 0.9, color=series.colour)
            draw_interval(ax, x, cell, color=INK, linewidth=1.1)
            place = (x, cell.high if cell.high is not None else cell.value)
            ax.annotate(
                f"{cell.value:.0f}",
                place,
                (0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=7.5,
                color=MUTED,
            )
        labels = []
        for bucket in buckets:
            sizes = {cell.n for (other, _), cell in cells.items() if other == bucket and cell.n}
            labels.append(
                bucket if len(sizes) != 1 else f"{bucket}\n{describe_range(sizes, 'question')}"
            )
        ax.set_xticks(range(len(buckets)), labels)
        ax.tick_params(axis="x", length=0)
        ax.set_ylim(0, _top(cells.values()))
        ax.set_ylabel("FF1 (%)")
        ax.set_xlabel("Length of the answer")
        svg = svg_of(figure, name)
    alt = "; ".join(
        (f"{series.label}, {bucket}: {cell.value:.1f}") for (bucket, series), cell in cells.items()
    )
    return Drawing(svg, f"FF1 in percent by the length of the answer. {alt}.")


# ---- every prediction in one table to filter and sort, and how answers err


def predictions_path(scores: Scores) -> Path:
    return scores.path.parents[2] / "predictions" / scores.path.parent.name / scores.path.name


def shown_condition(scores: Scores, results: Results) -> ShownCondition:
    """Name a condition as the tables of the page have it ("written", where no system needs
    audio)."""
    name, snr = scores.condition
    condition = ShownCondition(full_condition(name, scores.card.get("snr_over")), snr)
    written = ShownCondition("written", condition.snr_db)
    return (
        written
        if condition.name == "clean" and any(written == c for _, _, c in results.cells)
        else condition
    )


def explorer_of(
    scored: Sequence[Scores],
    answers: Mapping[Path, Answers],
    results: Results,
    corpus: Corpus | None = None,
    common: Collection[str] | None = None,
    examples: Mapping[tuple[str, str], str] | None = None,
    title: str = "All predictions",
) -> Explorer:
    """A line a question, system and condition, as compact JSON.

    answers: by the path of their scores, as far as there are any. corpus: None leaves out what only
    it knows, the texts of questions and gold answers and the words that are said in an answer.
    common: ids of the questions that all systems answered; None: no difference is made. examples:
    (id of a question, label of its condition) -> identifier of its element on the page.
    """
    order = {series: i for i, series in enumerate(results.series)}
    placed = [
        (results.named(scores.system) or UNKNOWN, shown_condition(scores, results), scores)
        for scores in scored
    ]
    systems = sorted(
        dict.fromkeys(series for series, _, _ in placed),
        key=lambda series: order.get(series, len(order)),
    )
    conditions = in_order({condition for _, condition, _ in placed})
    by_path = {scores.path: answers.get(scores.path, {}).get("answers", {}) for scores in scored}
    # systems that answer in words; of the others those of the span are shown
    reading = {
        series
        for series, _, scores in placed
        if any(answer.get("text") for answer in by_path[scores.path].values())
    }

    by_id = {q.id: q for q in corpus.questions} if corpus else {}
    lines: dict[str, Mapping[str, Any]] = {}  # of a question the first that there is
    for scores in scored:
        lines = dict(scores.lines) | lines
    questions: list[list[Any]] = []
    for name, line in lines.items():
        question, seconds = by_id.get(name), line.get("answer_seconds")
        texts = (
            [question.written, question.answers[0].text if question.answers else ""]
            if question
            else ["", ""]
        )
        kind = TYPES.index(line["type"]) if line.get("type") in TYPES else -1
        questions.append(
            [
                name,
                *texts,
                kind,
                None if seconds is None else round(seconds, 2),
                int(common is None or name in common),
            ]
        )

    number = {name: i for i, name in enumerate(lines)}
    rows: list[list[Any]] = []
    for series, condition, scores in placed:
        for name, line in scores.lines.items():
            answer = by_path[scores.path].get(name) or {}
            timed = answer.get("start") is not None and answer["end"] > answer["start"]
            text = answer.get("text") or ""
            if timed and series not in reading and corpus:
                words = corpus.passages[line["passage"]].words
                text = " ".join(
                    w.text
                    for w in words
                    if answer["start"] <= (w.start + w.end) / 2 < answer["end"]
                )
            row: list[Any] = [number[name], systems.index(series), conditions.index(condition)]
            row += [_percent(line.get("ff1")), _percent(line.get("f1"))]
            row += [ERRORS.index(line["error"]) if line.get("error") in ERRORS else -1]
            row += [round(answer["start"], 2), round(answer["end"], 2)] if timed else [None, None]
            rows.append([*row, text, (examples or {}).get((name, condition.label), "")])
    rows.sort(key=lambda row: (row[2], row[0], row[1]))

    data = {
        "systems": [
            {"label": series.label, "slot": series.slot, "words": series in reading}
            for series in systems
        ],
        "conditions": [condition.label for condition in conditions],
        "types": TYPES,
        "errors": ERRORS,
        "questions": questions,
        "rows": rows,
    }
    with_words = (
        corpus and len(reading) < len(systems) and any(p.words for p in corpus.passages.values())
    )
    note = (
        ("In italics: what is said in the time that a system without words gives as its answer.")
        if with_words
        else ""
    )
    return Explorer(title, data, note)


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 2)


def error_table(
    scored: Sequence[Scores], results: Results, note: str = "", title: str = ("How answers err")
) -> Table | None:
    """A line a system and condition, in percent of its questions; None where no score says how an
    answer errs."""
    order = {series: i for i, series in enumerate(results.series)}
    placed = [
        (results.named(scores.system) or UNKNOWN, shown_condition(scores, results), scores)
        for scores in scored
    ]
    conditions = in_order({condition for _, condition, _ in placed})
    placed.sort(key=lambda place: (order.get(place[0], len(order)), conditions.index(place[1])))
    rows = []
    for series, condition, scores in placed:
        counts = Counter(line.get("error") for line in scores.lines.values())
        if n := sum(counts[error] for error in ERRORS):
            shares = (round(100 * counts[error] / n) for error in ERRORS)
            rows.append((series.label or scores.system, condition.label, n, *shares))
    without = dict.fromkeys(
        s.system for s in scored if not any(line.get("error") for line in s.lines.values())
    )
    left = (
        (f"Left out, for their scores do not say how answers err: {', '.join(without)}.")
        if without
        else ""
    )
    notes = " ".join(filter(None, ["Percent of the questions.", KINDS, left, note]))
    return Table(title, ("system", "condition", "n", *ERRORS), tuple(rows), notes) if rows else None
