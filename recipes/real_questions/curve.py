"""DUAL's FF1 on dev against the number of training questions, and what a line in its logarithm
predicts for more of them.

    python recipes/real_questions/curve.py passages OUT N
        how many of the first passages have 1/N of the questions
    python recipes/real_questions/curve.py fit OUT dual-8 ... dual  reads models, parts and \\
      on-dev in OUT, writes curve.svg, .json

A part of the data is whole articles, so that it grows as SQuAD does: its training set has ten times
the articles of dev, each with as many questions. Parts are nested. OUT: folder of textless.sh,
whose corpus `train` is in the order of articles.
"""

import re
import sys
from collections import defaultdict
from itertools import groupby
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.artifacts import read_json, write_json
from speechssl.data.records import load_corpus, synthetic_note
from speechssl.errors import InputError
from speechssl.eval.compare import read_results
from speechssl.report.figures import add_legend, line_style, new_axes
from speechssl.results import MUTED, Table, drawn_sentence, interval_text, save_figure
from speechssl.stats import Estimate, ItemScore, combine_estimates, resample_cells

MORE = (2, 4, 10)  # times the questions; 10: about those of SQuAD's training set, 87,599 to 7,649
# ARTICLE_PARAGRAPH at the end of a passage's id, whoever reads it
PLACE = re.compile(r"(\d+)_\d+$")


def count_articles(out: Path) -> list[tuple[int, int]]:
    """Count, for every article in order, passages and questions so far. A question counts once,
    however many voices read it."""
    data = load_corpus(out / "train", "train")
    asked: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for question in data.questions:
        asked[question.passage].add((data.passages[question.passage].text, question.text))
    found, passages, questions = [], 0, 0
    for _, some in groupby(data.passages, key=lambda name: PLACE.search(name)[1]):
        names = list(some)
        passages += len(names)
        questions += len(set().union(*(asked[name] for name in names)))
        found.append((passages, questions))
    return found


def first_passages(found: list[tuple[int, int]], part: int) -> int:
    """Count the passages of the articles whose questions come nearest to 1/part of all."""
    return min(found, key=lambda article: abs(article[1] - found[-1][1] / part))[0]


def weigh_scores(xs: np.ndarray, at: float) -> np.ndarray:
    """Return what every score counts in the line of least squares at a place. xs: (S,) -> (S,), sum
    1."""
    middle = xs - xs.mean()
    return 1 / len(xs) + (at - xs.mean()) * middle / (middle**2).sum()


def predict_score(xs: np.ndarray, scores: list[Estimate], at: float) -> Estimate:
    """Return the line's value, with the resamples of the scores it is fitted to. xs: (S,) of S
    scores."""
    weights = weigh_scores(xs, at)
    return combine_estimates(lambda *values: sum(map(mul, weights, values)), *scores)


def read_scores(out: Path, systems: list[str]) -> dict[str, Estimate]:
    """Return the FF1 of every system on clean dev, drawn together."""

    def item(name: str, line: dict[str, Any]) -> ItemScore:
        voices = (str(line.get(role, "")) for role in ("voice", "asker"))
        return ItemScore(name, str(line["passage"]), line["ff1"], 1.0, *voices)

    cells = {}
    for scores in read_results([out / "parts", out / "on-dev"], systems):
        if scores.condition == ("clean", None):
            scored = [
                (name, line) for name, line in scores.lines.items() if line["ff1"] is not None
            ]
            cells[scores.system] = [item(*pair) for pair in scored]
    drawn = resample_cells(cells, unit="passage")
    return {system: drawn[system] for system in systems}


def fit(out: Path, systems: list[str]) -> None:
    cards = [read_json(out / "models" / system / "card.json") for system in systems]
    ends = {passages: (n, asked) for n, (passages, asked) in enumerate(count_articles(out), 1)}
    sizes = [ends[card["passages"]] for card in cards]
    alike = {(card["training"]["steps"], card.get("start")) for card in cards}
    if len(alike) > 1 or len(set(sizes)) < max(len(sizes), 2):
        raise InputError(
            f"the readers {', '.join(systems)} are no curve: they need equal steps, "
            "one start and different data"
        )
    scores = list(read_scores(out, systems).values())
    questions = np.array([number for _, number in sizes])
    xs, whole = np.log2(questions / questions[-1]), int(questions[-1])
    at = {more: predict_score(xs, scores, np.log2(more)) for more in MORE}
    rows = []
    for (articles, n), score in zip(sizes, scores, strict=True):
        rows.append((f"measured, {articles} articles", f"{n:,}", percent(score)))
    for more, score in at.items():
        rows.append((f"predicted, {more} times all", f"{more * whole:,}", percent(score)))
    ends_of_slope = (predict_score(xs, scores, place) for place in (1.0, 0.0))
    slope = percent(combine_estimates(lambda a, b: a - b, *ends_of_slope), "+")
    notes = f"{cards[0]['training']['steps']} steps each. Twice the questions: {slope} points. "
    if len(xs) > 2:  # does the line hold where it can be checked?
        smaller = percent(predict_score(xs[:-1], scores[:-1], xs[-1]))
        notes += f"The line through the smaller parts alone gives {smaller} for all. "
    notes += drawn_sentence([("FF1", scores[0].unit, scores[0].groups)])
    notes += " They do not draw the training (one seed) and take the line for granted."
    notes += f" Training: {synthetic_note(out / 'train')} Dev: {synthetic_note(out / 'dev')}"
    columns = ("DUAL on dev", "training questions", "FF1")
    table = Table("What more questions give", columns, tuple(rows), notes)
    print(table.markdown)
    write_json(out / "curve.json", table.values)
    draw(out / "curve.svg", questions, scores, at)
    print(f"\nfigure: {out / 'curve.svg'}")


def percent(score: Estimate, sign: str = "") -> str:
    return interval_text(score.interval.percent, sign)


def draw(
    path: Path, questions: np.ndarray, scores: list[Estimate], at: dict[int, Estimate]
) -> None:
    """Draw the curve. questions: (S,) of S scores; at: predictions by times all questions."""
    dots, line = line_style(0), line_style(1)
    xs, whole = np.log2(questions / questions[-1]), int(questions[-1])
    places = np.linspace(xs[0], np.log2(MORE[-1]), 60)
    along = [predict_score(xs, scores, place).interval.percent for place in places]
    with new_axes(1, 1, 3.6) as (figure, ((ax,),)):
        counts = whole * 2**places
        lows, highs = [v.low for v in along], [v.high for v in along]
        ax.fill_between(counts, lows, highs, color=line["color"], alpha=0.12, linewidth=0)
        values = [v.value for v in along]
        ax.plot(counts, values, "--", color=line["color"], label="a line in the logarithm")
        intervals = [score.interval.percent for score in scores]
        measured = [v.value for v in intervals]
        errors = [[v.value - v.low for v in intervals], [v.high - v.value for v in intervals]]
        label = "DUAL on dev, synthetic speech"
        ax.errorbar(questions, measured, errors, linestyle="none", label=label, **dots)
        for more, value in ((more, 100 * score.value) for more, score in at.items()):
            ax.plot([more * whole], [value], **line)
            offset = {"textcoords": "offset points", "ha": "center", "fontsize": 7.5}
            name = f"{more} times: {value:.0f}"
            ax.annotate(name, (more * whole, value), (0, -14), color=MUTED, **offset)
        ax.set_xscale("log", base=2)
        shown = [*questions, *(more * whole for more in MORE)]
        ax.set_xticks(shown, [f"{n:,}" for n in shown])
        ax.minorticks_off()
        ax.set_xlim(0.85 * shown[0], 1.2 * shown[-1])
        ax.set_ylim(0, max(10.0, 1.08 * max(v.high for v in along)))
        ax.set_xlabel("training questions")
        ax.set_ylabel("FF1 (%)")
        add_legend(figure)
        save_figure(figure, path)


if __name__ == "__main__":
    try:
        what, out, *more = sys.argv[1:]
        if what == "passages":
            print(first_passages(count_articles(Path(out)), int(more[0])))
        else:
            fit(Path(out), more)
    except InputError as error:
        sys.exit(f"speechssl: {error}")
