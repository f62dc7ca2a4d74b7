"""`speechssl compare`: from folders that `evaluate` wrote to compare.json, tables.md and a page.

The page has the scores, where the lines cross, and paired differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from speechssl import __version__
from speechssl.artifacts import hold_output, read_json, write_json, write_text
from speechssl.eval.compare import (
    CLEAN,
    Compared,
    compare,
    paired_tests,
    read_results,
    reads_reference,
)
from speechssl.eval.compilation import Compilation, as_json, compile_corpus, tables_of
from speechssl.eval.crossings import Crossing, crossing_text, family_name, fit_falling
from speechssl.report.figures import (
    Drawing,
    add_legend,
    line_style,
    new_axes,
    plot_scores,
    save_svg,
)
from speechssl.report.options import Compare
from speechssl.report.page import Section, write_page
from speechssl.results import (
    MUTED,
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
    "answer. Lines are fitted and never rise. Dotted: where a line falls below the system without "
    "a transcript."
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
    tables = {c.compared.corpus: tables_of(c) for c in corpora}
    every = [table for of_corpus in tables.values() for table in of_corpus]
    published = published_table(list(tables))
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
    details |= {f"Corpus {c.corpus}": describe_corpus(c) for c in compared}
    sections = [corpus_section(c) for c in corpora]
    sections.append(Section("Further tables", tables=further))
    synthetic = " ".join(dict.fromkeys(c.synthetic for c in compared if c.synthetic))
    write_page(o.out / "compare.html", TITLE, sections, details, synthetic)
    few = [t for t in every if ": paired differences" in t.title and len(t.rows) <= FEW]
    crossing = [t for t in every if t.title.endswith("where the lines cross")]
    printed = markdown([*(of_corpus[0] for of_corpus in tables.values()), *few, *crossing])
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


def corpus_section(c: Compilation) -> Section:
    """Make the tables and crossing figures of one corpus."""
    compared = c.compared
    drawings = []
    for textless in compared.textless:
        crossings = [x for x in c.crossings if x.textless == textless and x.family != "all"]
        drawings.append(draw_crossings(compared, textless, crossings))
    return Section(compared.corpus, summarise(c), tables_of(c), drawings, leading=1)


def summarise(c: Compilation) -> str:
    """Say where the lines cross, and how many of the tests are significant."""
    parts = []
    by_family = {x.family: x for x in reversed(c.crossings)}
    if by_family:
        chosen = by_family.get("simulated") or by_family.get("all") or c.crossings[0]
        where = crossing_text(chosen)
        if chosen.at is not None:  # else the text is a sentence
            where = f"the cascade falls to {chosen.textless} at a {c.compared.errors} of {where}"
        parts.append(f"{c.compared.errors} varied by {family_name(chosen.family)}: {where}.")
    if c.tests:
        sure = sum(t.p_holm < 0.05 for t in c.tests)
        parts.append(f"{sure} of {len(c.tests)} paired differences have p < 0.05 (after Holm).")
    return " ".join(parts)


# ---- the crossing figure: score against word error rate, from every source of errors


def draw_crossings(c: Compared, textless: str, crossings: Sequence[Crossing]) -> Drawing | None:
    """Draw the fitted curve of every family of errors, and of one system without a transcript its
    level in clean speech or its scores in the same noise."""
    if not crossings:
        return None
    metric = metric_name(c.metric)
    with new_axes(1, 1, 3.9) as (figure, ((ax,),)):
        for slot, crossing in enumerate(crossings, 1):
            _plot_textless(ax, crossing)
            _plot_family(ax, crossing, slot)
        ax.set_ylim(bottom=0)
        ax.set_xlim(left=0)
        ax.set_xlabel(f"{c.errors} of the cascade's recogniser (%)")
        ax.set_ylabel(f"{metric} (%)")
        add_legend(figure, columns=2)
        title = f"{metric} against the {c.errors}, {textless} and cascades, {c.corpus}"
        return Drawing(title, save_svg(figure), CAPTION)


def _plot_family(ax: Axes, x: Crossing, slot: int) -> None:
    """Plot the cascades of a family with the curve that is fitted to them, and where it crosses."""
    colour = line_style(slot)["color"]
    label = NAMES.get(x.family) or x.family.replace("noise, ", "Noise, ")
    if x.at is not None:
        label += f": cross at {crossing_text(x)}"
        ax.axvline(100 * x.at, color=colour, linewidth=0.9, linestyle=":")
    rates = [100 * p.wer.value for p in x.points]
    scores = _frame(p.cascade for p in x.points)
    plot_scores(ax, rates, scores, slot, label, linestyle="none")
    ax.plot(rates, fit_falling(scores.value.to_numpy()), color=colour)
    last_named = -APART
    for p, place, y in zip(x.points, rates, scores.value, strict=True):
        # the place of simulated errors needs no name
        if place - last_named >= APART and not reads_reference(p.system):
            last_named = place
            offset: Any = {"textcoords": "offset points", "fontsize": 7, "color": MUTED}
            ax.annotate(condition_name(*p.condition), (place, y), (5, 5), **offset)


def _plot_textless(ax: Axes, x: Crossing) -> None:
    """Plot a textless system: its level in clean speech, and its scores in noise where the
    recogniser stands in that noise."""
    scores = _frame(p.textless for p in x.points)
    if all(p.condition == CLEAN for p in x.points):
        colour, level = line_style(0)["color"], scores.iloc[0]
        ax.axhspan(level.low, level.high, color=colour, alpha=0.12)
        ax.axhline(level.value, color=colour, label=x.textless)
    else:
        rates = [100 * p.wer.value for p in x.points]
        plot_scores(ax, rates, scores, 0, f"{x.textless}, in noise", linestyle="--")


def _frame(estimates: Iterable[Estimate]) -> pd.DataFrame:
    return pd.DataFrame([vars(e.interval.percent) for e in estimates])
