"""Fit DUAL's FF1 on dev to a line in the logarithm of the number of training questions, and predict
FF1 for more questions.

    python recipes/real_questions/curve.py passages OUT N
        prints how many of the first passages have 1/N of the questions
    python recipes/real_questions/curve.py fit OUT dual-8 ... dual
        reads OUT/models, OUT/parts and OUT/on-dev; writes OUT/curve.svg and OUT/curve.json

OUT is the folder of textless.sh. Its corpus `train` is in the order of articles, so that a part of
it is whole articles, and a smaller part lies in a larger one. SQuAD grows in the same way: its
training set has ten times the articles of dev, each with as many questions.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.artifacts import read_json, write_json
from speechssl.cli import run_program
from speechssl.data.records import load_corpus, read_synthetic_note
from speechssl.errors import InputError
from speechssl.eval.compare import read_results
from speechssl.report.figures import add_legend, choose_line_style, make_axes
from speechssl.results import MUTED, Table, describe_drawn, format_interval, save_figure
from speechssl.stats import Estimate, Interval, ItemScore, combine_estimates, resample_cells

# FF1 is predicted for so many times all questions; 10: about SQuAD's training set (87,599 : 7,649)
MULTIPLES = (2, 4, 10)
# ARTICLE_PARAGRAPH at the end of a passage's id, whichever voice reads it
PLACE = re.compile(r"(\d+)_\d+$")


@dataclass(frozen=True)
class Part:
    """A part of the training set is its first articles."""

    articles: int
    passages: int
    questions: int  # a question counts once, however many voices read it


def list_parts(out: Path) -> list[Part]:
    """List the parts of the training set, from the first article alone to all articles."""
    data = load_corpus(out / "train", "train")
    questions_of: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for question in data.questions:
        text = data.passages[question.passage].text
        questions_of[question.passage].add((text, question.text))
    parts: list[Part] = []
    passages = questions = 0
    for _, article in groupby(data.passages, key=lambda name: PLACE.search(name)[1]):
        names = list(article)
        passages += len(names)
        questions += len(set().union(*(questions_of[name] for name in names)))
        parts.append(Part(len(parts) + 1, passages, questions))
    return parts


def choose_part(parts: list[Part], divisor: int) -> Part:
    """Return the part whose questions come nearest to 1/divisor of all."""
    wanted = parts[-1].questions / divisor
    return min(parts, key=lambda part: abs(part.questions - wanted))


def weigh_scores(xs: np.ndarray, at: float) -> np.ndarray:
    """Return the weight of every score in the value at a place of the line of least squares.

    xs: (S,) places of the scores -> (S,), sum 1.
    """
    centred = xs - xs.mean()
    return 1 / len(xs) + (at - xs.mean()) * centred / (centred**2).sum()


def predict_score(xs: np.ndarray, scores: list[Estimate], at: float) -> Estimate:
    """Return the line's value at a place, with a line for every resample of the scores.

    xs: (S,) places of the S scores.
    """
    weights = weigh_scores(xs, at)

    def weighted_sum(*values: np.ndarray) -> np.ndarray:
        return sum(weight * value for weight, value in zip(weights, values, strict=True))

    return combine_estimates(weighted_sum, *scores)


def read_scores(out: Path, systems: tuple[str, ...]) -> list[Estimate]:
    """Return the FF1 of every system on clean dev; one bootstrap draws for all systems."""
    cells: dict[str, list[ItemScore]] = {}
    for scores in read_results([out / "parts", out / "on-dev"], systems):
        if scores.condition != ("clean", None):
            continue
        cells[scores.system] = [
            make_item(name, line) for name, line in scores.lines.items() if line["ff1"] is not None
        ]
    estimates = resample_cells(cells, unit="passage")
    return [estimates[system] for system in systems]


def make_item(name: str, line: dict[str, Any]) -> ItemScore:
    """Return the FF1 of a question for the bootstrap. line: of `evaluate qa`'s questions."""
    return ItemScore(
        id=name,
        group=str(line["passage"]),
        numerator=line["ff1"],
        denominator=1.0,
        voice=str(line.get("voice", "")),
        asker=str(line.get("asker", "")),
    )


def fit(out: Path, *systems: str) -> None:
    """Fit the line, print its table, and write the table and the figure."""
    cards = [read_json(out / "models" / system / "card.json") for system in systems]
    part_of = {part.passages: part for part in list_parts(out)}
    parts = [part_of[card["passages"]] for card in cards]
    check_alike(systems, cards, parts)
    scores = read_scores(out, systems)
    questions = np.array([part.questions for part in parts])
    everything = parts[-1].questions
    xs = np.log2(questions / everything)  # 0: all questions, 1: twice as many
    predictions = {times: predict_score(xs, scores, np.log2(times)) for times in MULTIPLES}
    rows = []
    for part, score in zip(parts, scores, strict=True):
        name = f"measured, {part.articles} articles"
        rows.append((name, f"{part.questions:,}", format_percent(score)))
    for times, score in predictions.items():
        name = f"predicted, {times} times all"
        rows.append((name, f"{times * everything:,}", format_percent(score)))
    slope = combine_estimates(
        lambda twice, once: twice - once,
        predict_score(xs, scores, 1.0),
        predict_score(xs, scores, 0.0),
    )
    notes = [
        f"{cards[0]['training']['steps']} steps each.",
        f"Twice the questions: {format_percent(slope, '+')} points.",
    ]
    if len(xs) > 2:  # does the line hold where it can be checked?
        check = format_percent(predict_score(xs[:-1], scores[:-1], xs[-1]))
        notes.append(f"The line through the smaller parts alone gives {check} for all.")
    notes += [
        describe_drawn([("FF1", scores[0].unit, scores[0].groups)]),
        "They do not draw the training (one seed) and take the line for granted.",
        f"Training: {read_synthetic_note(out / 'train')}",
        f"Dev: {read_synthetic_note(out / 'dev')}",
    ]
    columns = ("DUAL on dev", "training questions", "FF1")
    table = Table("What more questions give", columns, tuple(rows), " ".join(notes))
    print(table.markdown)
    write_json(out / "curve.json", table.values)
    draw(out / "curve.svg", questions, scores, predictions)
    print(f"\nfigure: {out / 'curve.svg'}")


def check_alike(systems: tuple[str, ...], cards: Iterable[dict], parts: list[Part]) -> None:
    """Refuse readers that differ in more than their data, and a single one, which gives no line."""
    trainings = {json.dumps([card["options"], card.get("start")]) for card in cards}
    sizes = [part.questions for part in parts]
    if len(trainings) > 1 or len(sizes) < 2 or sizes != sorted(set(sizes)):
        raise InputError(
            f"the readers {', '.join(systems)} are no curve: they need equal options, one start "
            "and more data from one to the next"
        )


def format_percent(score: Estimate, sign: str = "") -> str:
    return format_interval(score.interval.percent, sign)


def draw(
    path: Path, questions: np.ndarray, scores: list[Estimate], predictions: dict[int, Estimate]
) -> None:
    """Draw the curve. questions: (S,) of S scores; predictions: by multiple of all questions."""
    dots, line = choose_line_style(0), choose_line_style(1)
    everything = int(questions[-1])
    xs = np.log2(questions / everything)
    grid = np.linspace(xs[0], np.log2(MULTIPLES[-1]), 60)
    band = [predict_score(xs, scores, place).interval.percent for place in grid]
    measured = [score.interval.percent for score in scores]
    with make_axes(1, 1, 3.6) as (figure, ((ax,),)):
        lows, highs = [v.low for v in band], [v.high for v in band]
        counts = everything * 2**grid
        ax.fill_between(counts, lows, highs, color=line["color"], alpha=0.12, linewidth=0)
        values = [v.value for v in band]
        ax.plot(counts, values, "--", color=line["color"], label="a line in the logarithm")
        ax.errorbar(
            questions,
            [v.value for v in measured],
            error_lengths(measured),
            linestyle="none",
            label="DUAL on dev, synthetic speech",
            **dots,
        )
        for times, score in predictions.items():
            place = (times * everything, 100 * score.value)
            ax.plot([place[0]], [place[1]], **line)
            ax.annotate(
                f"{times} times: {place[1]:.0f}",
                place,
                (0, -14),
                color=MUTED,
                textcoords="offset points",
                ha="center",
                fontsize=7.5,
            )
        ax.set_xscale("log", base=2)
        ticks = [*questions, *(times * everything for times in MULTIPLES)]
        ax.set_xticks(ticks, [f"{n:,}" for n in ticks])
        ax.minorticks_off()
        ax.set_xlim(0.85 * ticks[0], 1.2 * ticks[-1])
        ax.set_ylim(0, max(10.0, 1.08 * max(highs)))
        ax.set_xlabel("training questions")
        ax.set_ylabel("FF1 (%)")
        add_legend(figure)
        save_figure(figure, path)


def error_lengths(intervals: list[Interval]) -> list[list[float]]:
    """Return the lengths of error bars below and above the values, as matplotlib wants them."""
    below = [v.value - v.low for v in intervals]
    above = [v.high - v.value for v in intervals]
    return [below, above]


def print_passages(out: Path, divisor: int) -> None:
    print(choose_part(list_parts(out), divisor).passages)


if __name__ == "__main__":
    run_program(passages=print_passages, fit=fit)
