"""Make tables of the scores of every arm, and of its gains over scratch, beside published ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from speechssl.artifacts import read_json
from speechssl.results import Table, describe_drawn, format_interval
from speechssl.stats import FEWEST, Estimate, average_estimates, estimate_mean
from textside import published as papers
from textside.runs import (
    DECIMALS,
    PERPLEXITY,
    Run,
    count_steps,
    estimate,
    group_runs,
    in_percent,
    is_share,
)

EQUAL_LOSS = "Test score at equal training loss"  # title of a table
Point = tuple[float, float, float]  # steps, training loss, score
Cells = Mapping[tuple[str, str], Estimate]  # (task, arm)


@dataclass(frozen=True, eq=False)
class Gains:
    """Every arm has a score in every task, and a gain over the baseline in every task and in their
    mean."""

    scores: Cells
    gains: Cells
    metrics: Mapping[str, str]  # task -> metric
    seeds: Mapping[tuple[str, str], int]  # task, arm -> number of seeds
    baseline: str
    notes: tuple[str, ...]  # on tasks of text and speech
    symbols: Mapping[str, str] = field(default_factory=dict)  # task of symbols -> note

    @property
    def arms(self) -> list[str]:
        return papers.sort_arms(arm for _, arm in self.scores)

    def texts(self, cells: Cells, tasks: Sequence[str], arm: str, sign: str = "") -> list[Any]:
        """Return the texts of an arm's cells in the tasks; [] where it has none of them."""
        texts = []
        for task in tasks:
            cell = cells.get((task, arm))
            metric = self.metrics.get(task, "")
            digits = DECIMALS.get(metric, 1)
            interval = cell and in_percent(cell, metric)
            texts.append(format_interval(interval, sign, digits=digits) if interval else None)
        return texts if any(texts) else []


def estimate_gains(runs: Sequence[Run], baseline: str = "") -> Gains:
    """Estimate scores and gains. An arm without a seed in common with the baseline has no gain."""
    cells = group_runs(runs)
    scores = {key: estimate(cell) for key, cell in cells.items()}
    gains = {}
    for (task, arm), cell in cells.items():
        base = cells.get((task, baseline), [])
        if arm != baseline and {run.seed for run in cell} & {run.seed for run in base}:
            gains[task, arm] = estimate(cell, base)
    tasks = list(dict.fromkeys(task for task, _ in gains if not papers.has_own_table(task)))
    for arm in dict.fromkeys(arm for _, arm in gains):
        if len(tasks) > 1 and all((task, arm) in gains for task in tasks):
            gains[papers.MEAN, arm] = average_estimates([gains[task, arm] for task in tasks])
    metrics = {run.task: run.metric for run in runs}
    notes = tuple(dict.fromkeys(run.note for run in runs if run.note and not run.symbols))
    symbols = {run.task: run.note for run in runs if run.symbols}
    seeds = {key: len({run.seed for run in cell}) for key, cell in cells.items()}
    return Gains(scores, gains, metrics, seeds, baseline, notes, symbols)


def make_note(cells: Cells, tasks: Sequence[str], *sentences: str) -> str:
    """Return a note: what the bootstrap draws for the intervals of these tasks, and sentences that
    are not empty."""
    drawn = describe_drawn((t, e.unit, e.groups) for (t, _), e in cells.items() if t in tasks)
    return " ".join(filter(None, [drawn, *sentences]))


def name_column(scored: Gains, task: str) -> str:
    return f"{task} ({scored.metrics[task]})"


def make_score_table(scored: Gains) -> list[Table]:
    """Make the table of scores; none without tasks of text or speech."""
    tasks = [t for t in scored.metrics if not papers.has_own_table(t) and t not in scored.symbols]
    if not tasks:
        return []
    rows = []
    for arm in scored.arms:
        if texts := scored.texts(scored.scores, tasks, arm):
            rows.append((arm, *texts))
    counts = sorted({n for (task, _), n in scored.seeds.items() if task in tasks})
    note = make_note(scored.scores, tasks, *scored.notes)
    note = f"Percent; seeds: {' or '.join(map(str, counts))}. {note}"
    columns = ("start", *(name_column(scored, task) for task in tasks))
    return [Table("Scores", columns, tuple(rows), note)]


def make_gain_table(scored: Gains) -> list[Table]:
    """Make the table of gains over the baseline; none without gains."""
    with_gain = {task for task, _ in scored.gains if not papers.has_own_table(task)}
    tasks = [task for task in (*scored.metrics, papers.MEAN) if task in with_gain]
    if not tasks:
        return []
    rows = []
    for arm in scored.arms:
        if texts := scored.texts(scored.gains, tasks, arm, "+"):
            rows.append((arm, *texts, papers.ARTIFICIAL.get(papers.parse_family(arm))))
    note = make_note(scored.gains, tasks, papers.NOTE)
    columns = ("start", *tasks, "published (GLUE)")
    return [Table(f"Gain over {scored.baseline}, in points", columns, tuple(rows), note)]


def make_rows_beside_published(
    scored: Gains, tasks: Sequence[str], arms: Sequence[str], published: papers.Scores
) -> tuple[tuple[Any, ...], ...]:
    """Make a row for the scores of every arm that was run, and one for its published scores."""
    rows: list[tuple[Any, ...]] = []
    for arm in arms:
        texts = scored.texts(scored.scores, tasks, arm)
        values = [published.get(task, {}).get(arm) for task in tasks]
        if texts:
            rows.append((arm, *texts))
        if texts and any(value is not None for value in values):
            rows.append((f"{arm}, published", *values))
    return tuple(rows)


def sort_floors_last(arms: Iterable[str]) -> list[str]:
    floors = list(papers.FLOORS)
    return sorted(arms, key=lambda arm: floors.index(arm) if arm in floors else -1)


def make_frozen_table(scored: Gains, runs: Sequence[Run]) -> list[Table]:
    """Make the lecture's table of the frozen transformer, with its floors."""
    tasks = [task for task in papers.FROZEN if task in scored.metrics]
    if not tasks:
        return []
    rows = make_rows_beside_published(scored, tasks, sort_floors_last(scored.arms), papers.FROZEN)
    floors = "; ".join(
        f"{arm}, {what}" for arm, what in papers.FLOORS.items() if arm in scored.arms
    )
    floors = floors and f"Floors, which are no encoders: {floors}."
    note = make_note(scored.scores, tasks, floors, describe_rates(runs), papers.FROZEN_NOTE)
    return [Table("The frozen transformer, accuracy", ("start", *tasks), rows, note)]


def describe_rates(runs: Iterable[Run]) -> str:
    """Name the learning rates that were chosen on dev; "" where none was."""
    chosen: dict[tuple[str, tuple[float, ...]], dict[str, list[str]]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        if run.learning_rate is not None:
            tasks = chosen.setdefault((run.arm, run.rates), {})
            tasks.setdefault(run.task, []).append(f"{run.learning_rate:g}")
    sentences = []
    for (arm, rates), tasks in chosen.items():
        best = "; ".join(f"{task} {', '.join(seeds)}" for task, seeds in tasks.items())
        tried = ", ".join(f"{rate:g}" for rate in rates)
        sentences.append(f"{arm}: learning rate chosen on dev, for each seed, of {tried}: {best}.")
    return " ".join(sentences)


def make_depth_table(runs: Sequence[Run]) -> list[Table]:
    """Tabulate scores of ListOps by the depth of the expressions, which runs of floors have."""
    runs = [run for run in runs if run.task == "listops"]
    described = next((run for run in runs if run.expressions), None)
    if described is None:
        return []
    about = pd.DataFrame(described.expressions, described.items, columns=["depth", "digits"])
    groups = {f"depth {deep}": list(part.index) for deep, part in about.groupby("depth")}
    groups["all"] = list(about.index)
    means = (f"{about.digits[group].mean():.1f}" for group in groups.values())
    rows: list[tuple[Any, ...]] = [("digits, mean", *means)]
    cells = group_runs(runs)
    for arm in sort_floors_last(papers.sort_arms(arm for _, arm in cells)):
        row: list[Any] = [arm]
        for group in groups.values():
            parts = [r.select(group) for r in cells["listops", arm] if set(group) <= set(r.items)]
            found = estimate(parts).interval.percent if parts else None
            row.append(format_interval(found))
        rows.append(tuple(row))
    heads = (f"{name} ({len(group)} expressions)" for name, group in groups.items())
    note = "Percent. Depth: how many operators lie around a digit at most."
    return [Table("ListOps by depth", ("start", *heads), tuple(rows), note)]


def make_symbol_table(scored: Gains) -> list[Table]:
    """Make the lecture's table of four arms on DNA, proteins and music."""
    tasks = [task for task in scored.metrics if task in scored.symbols]
    if not tasks:
        return []
    arms = [*papers.SYMBOL_ARMS, *(arm for arm in scored.arms if arm not in papers.SYMBOL_ARMS)]
    rows = make_rows_beside_published(scored, tasks, arms, papers.SYMBOLS)
    note = make_note(
        scored.scores, tasks, papers.SYMBOL_NOTE, *dict.fromkeys(scored.symbols.values())
    )
    columns = ("start", *(name_column(scored, task) for task in tasks))
    return [Table(papers.SYMBOL_TITLE, columns, rows, note)]


# ---- curves


def list_points(curve: Iterable[Mapping[str, Any]]) -> list[Point]:
    """Return the points of a curve of `fit_and_score` that have a loss."""
    return [(p["step"], p["loss"], p["score"]) for p in curve if p["loss"] is not None]


def average_curves(seeds: Sequence[Sequence[Point]]) -> list[Point]:
    """Return the mean over seeds at every number of steps that all of them have."""
    frame = pd.DataFrame([point for points in seeds for point in points])
    by_step = frame.groupby(0)
    common = by_step.mean()[by_step.size() == len(seeds)]
    return [(float(step), float(loss), float(score)) for step, loss, score in common.itertuples()]


def interpolate_score(points: Sequence[Point], loss: float) -> float:
    """Return the score where the training loss first falls to `loss`, interpolated between two
    points of a curve."""
    (_, loss_before, score_before), *_ = points
    for _, loss_after, score_after in points:
        if loss_after <= loss:
            share = 1.0
            if loss_before > loss_after:
                share = (loss_before - loss) / (loss_before - loss_after)
            return score_before + share * (score_after - score_before)
        loss_before, score_before = loss_after, score_after
    return score_before


def make_equal_loss_tables(runs: Sequence[Run]) -> list[Table]:
    """Compare the test scores of starts at the lowest training loss that all of them reach, which
    is generalisation without optimisation; a table of text and one of symbols."""
    note = (
        "Percent, mean over seeds, at the lowest training loss that every start of the task comes "
        "down to."
    )
    tables = []
    for symbols, title in ((False, EQUAL_LOSS), (True, f"{EQUAL_LOSS}, symbols that are no text")):
        curves: dict[str, dict[str, list[list[Point]]]] = {}
        for run in runs:
            points = list_points(run.curve)
            if run.symbols == symbols and is_share(run.metric) and len(points) > 1:
                curves.setdefault(run.task, {}).setdefault(run.arm, []).append(points)
        curves = {task: by_arm for task, by_arm in curves.items() if len(by_arm) > 1}
        arms = papers.sort_arms({arm for by_arm in curves.values() for arm in by_arm})
        rows: list[tuple[Any, ...]] = []
        for task, by_arm in curves.items():
            means = {arm: average_curves(seeds) for arm, seeds in by_arm.items()}
            level = max(min(point[1] for point in points) for points in means.values())
            scores: list[float | None] = []
            for arm in arms:
                value = interpolate_score(means[arm], level) if arm in means else None
                scores.append(None if value is None else 100 * value)
            rows.append((task, f"{level:.3f}", *scores))
        if rows:
            tables.append(Table(title, ("task", "training loss", *arms), tuple(rows), note))
    return tables


def make_plateau_tables(runs: Sequence[Run]) -> list[Table]:
    """Tabulate the steps after which DUAL reaches FF1 25 and 50; short trainings reach only the
    first."""
    curves = {(r.arm, r.seed): r.curve for r in runs if r.task == "dual" and len(r.curve) > 1}
    if not curves:
        return []
    seeds = sorted({seed for _, seed in curves})
    longest = max(int(curve[-1]["step"]) for curve in curves.values())
    note = (
        f"–: not within {longest} steps, or no such run. A mean stands where all seeds got there, "
        f"with its 95 % interval over seeds where there are {FEWEST} or more; later: on the same "
        f"seeds. {papers.DUAL_NOTE}"
    )
    columns = ("start", *(f"seed {seed}" for seed in seeds), "mean", "later than text")
    tables = []
    for score in (25, 50):
        steps = {key: count_steps(curve, score / 100) for key, curve in curves.items()}
        rows = []
        for arm in papers.sort_arms(arm for arm, _ in curves):
            arm_steps = [steps[arm, seed] for seed in seeds if (arm, seed) in steps]
            later: list[int | None] = []
            for seed in seeds:
                if arm != "text" and (arm, seed) in steps and ("text", seed) in steps:
                    reached, text = steps[arm, seed], steps["text", seed]
                    later.append(None if reached is None or text is None else reached - text)
            each = (str(steps.get((arm, seed)) or "–") for seed in seeds)
            rows.append((arm, *each, average_steps(arm_steps), average_steps(later, "+")))
        tables.append(Table(f"Steps of DUAL to FF1 {score}", columns, tuple(rows), note))
    return tables


def average_steps(values: Sequence[int | None], sign: str = "") -> str:
    reached = [n for n in values if n is not None]
    if not reached or len(reached) < len(values):
        return "–"
    return format_interval(estimate_mean(reached), sign, digits=0)


# ---- units, surfaces, languages


def make_unit_lm_table(scored: Gains) -> list[Table]:
    """Tabulate the scores of language models of units, and the gains of starts."""
    tasks = [task for task in papers.UNIT_LM if task in scored.metrics]
    if not tasks:
        return []
    rows = make_score_and_gain_rows(scored, tasks)
    gained = any(arm != scored.baseline for _, arm in scored.gains)
    if gained and any(papers.UNIT_LM[task] for task in tasks):
        name = f"a text-pre-trained start over {scored.baseline}, published"
        rows.append((name, *(papers.UNIT_LM[task] for task in tasks)))
    chance = "Chance: 50 % of spot-the-word and of same or different."
    note = make_note(scored.scores, tasks, chance, *scored.notes, papers.UNIT_LM_NOTE)
    heads = [t if t == PERPLEXITY else f"{t} ({scored.metrics[t]}, %)" for t in tasks]
    return [Table("A language model of units", ("start", *heads), tuple(rows), note)]


def make_surface_tables(scored: Gains) -> list[Table]:
    """Make a table for each kind of reader."""
    tables = []
    for kind in papers.READERS:
        titles = {f"{kind}-{name}": title for name, title in papers.SURFACES.items()}
        tasks = [task for task in titles if task in scored.metrics]
        if tasks:
            rows = tuple(make_score_and_gain_rows(scored, tasks))
            note = make_note(scored.scores, tasks, papers.SURFACE_NOTE)
            heads = ("start", *(titles[task] for task in tasks))
            tables.append(Table(f"Loss surfaces: {kind}", heads, rows, note))
    return tables


def make_score_and_gain_rows(scored: Gains, tasks: Sequence[str]) -> list[tuple[Any, ...]]:
    """Make a row for the scores of every arm, and one for its gains over the baseline."""
    rows: list[tuple[Any, ...]] = []
    for arm in scored.arms:
        if scores := scored.texts(scored.scores, tasks, arm):
            rows.append((arm, *scores))
        if gains := scored.texts(scored.gains, tasks, arm, "+"):
            rows.append((f"{arm} over {scored.baseline}", *gains))
    return rows


def make_language_tables(results: Path, runs: Sequence[Run], exact: Sequence[Run]) -> list[Table]:
    """Make the tables of alignment by layer, token translation with examples, and zero-shot
    question answering. exact: the exact matches of question answering."""
    prefixes = (f"{papers.ALIGNMENT}-", f"{papers.CONVERTED}-", f"{papers.PRECISION}-", "text-qa")
    scored = estimate_gains([run for run in runs if run.task.startswith(prefixes)])
    matches = estimate_gains(exact).scores
    return [
        *make_alignment_table(results, scored),
        *make_translation_tables(results, scored),
        *make_zero_shot_table(scored, matches),
    ]


def make_alignment_table(results: Path, scored: Gains) -> list[Table]:
    """Make the table of ranks of translations, a column a layer; none without such runs."""
    cards = {}
    for path in sorted(results.glob(f"runs/{papers.ALIGNMENT}/*/card.json")):
        cards[path.parent.name.rpartition("-")[0]] = read_json(path)
    if not cards:
        return []
    deepest = max(len(card["layers"]) for card in cards.values())
    rows: list[tuple[Any, ...]] = []
    for arm, card in cards.items():
        for name in ("", "-zero-mean"):
            tasks = [f"{papers.ALIGNMENT}-{layer}{name}" for layer in range(deepest)]
            texts = scored.texts(scored.scores, tasks, arm) or [None] * deepest
            about = (card["pairs"], f"{100 * card['chance']:.1f}")
            rows.append((arm, name[1:] or "as they are", *about, *texts))
    note = (
        "Percent, both directions; with 95 % intervals over seeds and words. zero-mean: less the "
        "mean of each language."
    )
    columns = ("start", "states", "pairs", "chance", *(f"layer {n}" for n in range(deepest)))
    return [Table("Mean reciprocal rank of translations", columns, tuple(rows), note)]


def make_translation_tables(results: Path, scored: Gains) -> list[Table]:
    """Make the tables of token translation and of examples; none without such runs."""
    cards: dict[str, Any] = {}  # arm -> card of its first seed
    for path in sorted(results.glob("runs/translation/*/card.json"), reverse=True):
        cards[path.parent.name.rpartition("-")[0]] = read_json(path)
    if not cards:
        return []
    rows, examples = [], []
    for arm, card in cards.items():
        best = max(card["cells"], key=lambda cell: cell["precision"])["layer"]
        for cell in card["cells"]:
            layer, alpha = cell["layer"], f"{cell['alpha']:g}"
            tasks = [f"{name}-{layer}x{alpha}" for name in (papers.CONVERTED, papers.PRECISION)]
            rows.append((arm, layer, alpha, *scored.texts(scored.scores, tasks, arm)))
            if layer == best:
                examples += [(arm, best, alpha, *pair) for pair in cell["examples"][:2]]
    same = ", ".join(f"{arm} {100 * card['constant']:.1f}" for arm, card in cards.items())
    note = (
        "Percent. precision: where words of the lexicon stood; one and the same token everywhere "
        f"has {same}."
    )
    columns = ("start", "layer", "alpha", "tokens converted", "precision")
    shown = ("start", "layer", "alpha", "text", "becomes")
    best_note = "At the layer with the greatest precision; pieces are the first of the text."
    return [
        Table("Token translation", columns, tuple(rows), note),
        Table("Token translation: examples", shown, tuple(examples), best_note),
    ]


def make_zero_shot_table(scored: Gains, matches: Cells) -> list[Table]:
    """Make the table of readers that answer in a language which they were not trained on.

    matches: exact matches.
    """
    others = sorted(task for task in scored.metrics if papers.OTHER_LANGUAGE.match(task))
    if not others:
        return []
    rows = []
    for arm in sorted({arm for task, arm in scored.scores if task in others}):
        name, _, shift = arm.partition("~")
        row = [name, shift or None]
        for task in ("text-qa", *others):
            found = scored.scores.get((task, arm))
            text = format_interval(found.interval.percent if found else None)
            if (task, arm) in matches:
                text += f" (EM {100 * matches[task, arm].value:.1f})"
            row.append(text)
        rows.append(tuple(row))
    missing = [None] * (len(others) - 1)
    for name, (em, f1) in papers.CROSS.items():
        rows.append((f"{name} (published)", None, None, f"{f1} (EM {em})", *missing))
    shifted = (f"{name} {tags} and {trees}" for name, (tags, trees) in papers.SHIFTED.items())
    note = (
        f"F1 of words or characters, percent. Published: {papers.CROSS_PAPER}. Published shifts, "
        f"tagging and parsing: {'; '.join(shifted)}."
    )
    columns = ("reader", "shift when it reads", "text-qa", *others)
    return [Table("Zero-shot question answering", columns, tuple(rows), note)]
