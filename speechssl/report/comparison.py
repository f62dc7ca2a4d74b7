"""`speechssl compare`: from folders that `evaluate` wrote to compare.json, tables.md and a page.

The page has the scores, where the lines cross, paired differences, and which answers are missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from speechssl import __version__
from speechssl.artifacts import hold_output, read_json, write_json, write_text
from speechssl.eval.compare import (
    CLEAN,
    WER,
    Compared,
    compare,
    paired_tests,
    read_results,
    reads_reference,
)
from speechssl.eval.compilation import Compilation, as_json, compile_corpus, tables_of
from speechssl.eval.crossings import Crossing, crossing_text, family_name, fit_falling
from speechssl.eval.predict import read_predictions
from speechssl.report.figures import (
    Drawing,
    add_legend,
    line_style,
    new_axes,
    save_svg,
    score_limit,
)
from speechssl.report.listening import error_table, explorer_of, list_predictions, predictions_path
from speechssl.report.options import Compare
from speechssl.report.page import Section, metric_grids, text_grid, write_page
from speechssl.report.scores import arrange, assign_slots
from speechssl.results import (
    MUTED,
    Row,
    condition_name,
    describe_range,
    markdown,
    metric_name,
    published_table,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Systems beside each other"
CAPTION = (
    "Each point is a cascade: along, how often its recogniser errs; up, what is left of the "
    "answer. Lines are fitted and never rise. At the foot: where a line falls below the system "
    "without a transcript, with the interval."
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
    tests = paired_tests(compared, pairs)
    corpora = [compile_corpus(c, t) for c, t in zip(compared, tests, strict=True)]
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
        details[f"Corpus {c.corpus}"] = describe_corpus(c)
    sections = [section for c in corpora for section in corpus_sections(c)]
    sections.append(Section("Further tables", grids=[text_grid(t) for t in further]))
    synthetic = " ".join(dict.fromkeys(c.synthetic for c in compared if c.synthetic))
    write_page(o.out / "compare.html", TITLE, sections, details, synthetic)
    few = [t for t in every if ": paired differences" in t.title and len(t.rows) <= FEW]
    crossing = [t for t in every if t.title.endswith("where the lines cross")]
    printed = markdown([*(t for group in tables for t in group[:1]), *few, *crossing])
    return (
        f"{printed}\n{o.out / 'compare.html'}: open it in a browser; {o.out / 'tables.md'} "
        "has every table"
    )


def describe_corpus(c: Compared) -> str:
    n = next(iter(c.estimates.values())).n
    passages = len({line["passage"] for line in c.scores[0].lines.values()})
    size = f"{describe_range([n], 'question')} about {describe_range([passages], 'passage')}"
    spoken = c.card.get("synthetic") or "speech or text as the corpus has it"
    return f"{size}, {c.card.get('data')}; {spoken}"


# ---- the page


def corpus_sections(c: Compilation) -> list[Section]:
    """Make the section of one corpus, and the one of its predictions."""
    compared = c.compared
    metric, errors, corpus = compared.metric, compared.errors, compared.corpus
    drawings = []
    for textless in compared.textless:
        crossings = [x for x in c.crossings if x.textless == textless and x.family != "all"]
        title = f"{metric_name(metric)} against the {errors}, {textless} and cascades, {corpus}"
        drawings.append(draw_crossings(title, crossings, metric, errors))
    scores = arrange(rows_of(compared))
    order = {system: place for place, system in enumerate(compared.systems)}
    scores = scores.iloc[np.argsort([order[s] for s in scores.system], kind="stable")]
    more = " ".join(filter(None, [compared.synthetic, compared.seen]))
    # scores and error rates stand in grids, not in tables
    in_grids = [f"{corpus}: {metric_name(name)}" for name in (metric, errors.lower())]
    tables = [t for t in tables_of(c) if t.title not in in_grids]
    explorer = None
    slots = assign_slots(scores.label)
    if metric in SPOKEN:
        scored = []
        for score in compared.scores:
            path = predictions_path(score)
            scored.append((score, read_predictions(path) if path.is_file() else {}))
        explorer = explorer_of(list_predictions(scored, scores), scores, slots)
        mistakes = error_table(explorer, compared.synthetic)
        tables += [mistakes] if mistakes else []
    grids = [*metric_grids(scores, more), *map(text_grid, tables)]
    return [
        Section(corpus, summarise(c), grids, drawings),
        Section(f"All predictions, {corpus}", explorer=explorer),
    ]


def rows_of(c: Compared) -> list[Row]:
    over = {s.condition: str(s.card.get("snr_over", "")) for s in c.scores}
    rows = []
    for (system, where, metric), e in c.estimates.items():
        name = c.errors.lower() if metric == WER else metric
        place = ("qa", system, "", *where, name)
        rows.append(Row.from_interval(e.interval, *place, snr_over=over.get(where, "")))
    return rows


def summarise(c: Compilation) -> str:
    """Write two sentences at most: where the lines cross, and how many of the tests are
    significant."""
    parts = []
    by_family = {x.family: x for x in reversed(c.crossings)}
    chosen = by_family.get("simulated") or by_family.get("all")
    if c.crossings:
        x = chosen or next(iter(by_family.values()))
        where = crossing_text(x)
        if x.at is not None:  # else the text is a sentence
            where = f"the cascade falls to {x.textless} at a {c.compared.errors} of {where}"
        parts.append(f"{c.compared.errors} varied by {family_name(x.family)}: {where}.")
    if c.tests:
        sure = sum(t.p_holm < 0.05 for t in c.tests)
        parts.append(f"{sure} of {len(c.tests)} paired differences have p < 0.05 (after Holm).")
    return " ".join(parts)


# ---- the crossing figure: score against word error rate, from every source of errors


def draw_crossings(
    title: str, crossings: Sequence[Crossing], metric: str, errors: str
) -> Drawing | None:
    """Draw the fitted curve of every family of errors, and of one system without a transcript its
    level in clean speech or its scores in the same noise. errors: WER or CER."""
    if not crossings:
        return None
    with new_axes(1, 1, 3.9) as (figure, ((ax,),)):
        for slot, crossing in enumerate(crossings, 1):
            _plot_textless(ax, crossing)
            _plot_family(ax, crossing, slot)
        every = [e for x in crossings for p in x.points for e in (p.cascade, p.textless)]
        ax.set_ylim(0, min(108.0, score_limit(e.interval.percent.high for e in every)))
        ax.set_xlim(left=0)
        ax.set_xlabel(f"{errors} of the cascade's recogniser (%)")
        ax.set_ylabel(f"{metric_name(metric)} (%)")
        add_legend(figure, columns=2)
        return Drawing(title, save_svg(figure), CAPTION)


def _plot_family(ax: Axes, x: Crossing, slot: int) -> None:
    """Plot the cascades of a family with the curve that is fitted to them; at the foot, where it
    crosses."""
    style = line_style(slot)
    label = NAMES.get(x.family) or x.family.replace("noise, ", "Noise, ")
    if x.at is not None:
        label += f": cross at {crossing_text(x)}"
    wer = [p.wer.interval.percent for p in x.points]
    scores = [p.cascade.interval.percent for p in x.points]
    xs, ys = [v.value for v in wer], [v.value for v in scores]
    ax.errorbar(xs, ys, _errors(scores), _errors(wer), fmt="none", ecolor=style["color"], alpha=0.5)
    line = list(zip(xs, fit_falling(np.array(ys)), strict=True))
    if x.between and x.at is None:  # nothing was measured where it would cross
        gap = sum(place <= 100 * x.between[0] for place in xs)
        line.insert(gap, (np.nan, np.nan))
    ax.plot(*zip(*line, strict=True), color=style["color"])
    ax.plot(xs, ys, linestyle="none", label=label, **style)
    last_named = -APART
    for p, place, y in zip(x.points, xs, ys, strict=True):
        name = condition_name(*p.condition)
        if reads_reference(p.system):  # the place of simulated errors needs no name
            name = "reference text" if p.wer.value == 0 else ""
        if name and place - last_named >= APART:
            last_named = place
            offset: Any = {"textcoords": "offset points", "fontsize": 7, "color": MUTED}
            ax.annotate(name, (place, y), (5, 5), **offset)
    if x.at is not None:
        low = x.low_wer if x.low is None else x.low
        high = x.high_wer if x.high is None else x.high
        ends = [[100 * (x.at - low)], [100 * (high - x.at)]]
        ax.errorbar([100 * x.at], [1.5 * slot], xerr=ends, color=style["color"], linewidth=2.5)
        ax.axvline(100 * x.at, color=style["color"], linewidth=0.9, linestyle=":")


def _plot_textless(ax: Axes, x: Crossing) -> None:
    """Plot a textless system: its level in clean speech as far as errors there go, and its scores
    in noise where the recogniser stands in that noise."""
    style = line_style(0)
    xs = [100 * p.wer.value for p in x.points]
    scores = [p.textless.interval.percent for p in x.points]
    if all(p.condition == CLEAN for p in x.points):
        level = scores[0]
        ax.fill_between([0, max(xs)], level.low, level.high, color=style["color"], alpha=0.12)
        ax.plot([0, max(xs)], [level.value] * 2, color=style["color"], label=x.textless)
        return
    ys = [v.value for v in scores]
    ax.errorbar(xs, ys, _errors(scores), linestyle="--", label=f"{x.textless}, in noise", **style)


def _errors(intervals: Sequence[Any]) -> np.ndarray:
    """Return the distances (2, P) from the values to the ends of P intervals."""
    below = [v.value - v.low for v in intervals]
    above = [v.high - v.value for v in intervals]
    return np.array([below, above])
