"""What every start scores, and what it gains over scratch, in tables beside what is `published`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from speechssl.artifacts import read_json
from speechssl.errors import InputError
from speechssl.results import (
    Table,
    drawn_sentence,
    interval_text,
)
from speechssl.stats import FEWEST, Estimate, mean_estimate, mean_interval
from textside.published import (
    ALIGNMENT,
    ARTIFICIAL,
    CONVERTED,
    CROSS,
    CROSS_PAPER,
    DUAL_NOTE,
    FLOORS,
    FROZEN,
    FROZEN_NOTE,
    MEAN,
    NOTE,
    OTHER_LANGUAGE,
    PRECISION,
    READERS,
    SHIFTED,
    SURFACE_NOTE,
    SURFACES,
    SYMBOL_ARMS,
    SYMBOL_NOTE,
    SYMBOL_TITLE,
    SYMBOLS,
    UNIT_LM,
    UNIT_LM_NOTE,
    family,
    has_own_table,
    in_order,
)
from textside.runs import (
    DECIMALS,
    PERPLEXITY,
    Run,
    cells_of,
    estimate,
    shown,
    steps_to,
)

EQUAL_LOSS = "Test score at equal training loss"
Point = tuple[float, float, float]  # steps, training loss, score
SHOWN, UNITS_SHOWN = 3, 16  # recordings of the second table; units of each
REAL = "what followed"  # of a continuation


@dataclass(frozen=True, eq=False)
class Gains:
    """Of every arm and task: the score, and the gain over the baseline, in that of every task alone
    and of their mean."""

    scores: Mapping[tuple[str, str], Estimate]  # (task, arm)
    gains: Mapping[tuple[str, str], Estimate]
    metrics: Mapping[str, str]  # of tasks
    seeds: Mapping[tuple[str, str], int]
    notes: tuple[str, ...]  # on tasks of text and speech
    symbols: Mapping[str, str] = field(default_factory=dict)  # tasks that are no text -> notes
    # (task, arm) that have no gain, for want of a seed in common with the baseline
    apart: tuple[tuple[str, str], ...] = ()

    @property
    def arms(self) -> list[str]:
        """Those of the lecture's chart in its order, then the others."""
        return in_order(arm for _, arm in self.scores)

    def lacking(self, tasks: Sequence[str], baseline: str) -> str:
        """A sentence on the gains of these tasks that there are not; "" where there are all."""
        arms = {task: in_order(arm for of, arm in self.apart if of == task) for task in tasks}
        missing = "; of ".join(
            (f"{', '.join(names)} in {task}") for task, names in arms.items() if names
        )
        return missing and f"No gain of {missing}: no seed in common with {baseline}."


def gains_of(runs: Sequence[Run], baseline: str, seed: int = 0) -> Gains:
    """Tasks without the baseline have scores and no gains."""
    cells = cells_of(runs)
    scores = {key: estimate(cell, seed=seed) for key, cell in cells.items()}
    gains, apart = {}, []
    for (task, arm), cell in cells.items():
        base = cells.get((task, baseline), [])
        if arm != baseline and {r.seed for r in cell} & {r.seed for r in base}:
            gains[task, arm] = estimate(cell, base, seed)
        elif arm != baseline and base:
            apart.append((task, arm))
    tasks = list(dict.fromkeys(task for task, _ in gains if not has_own_table(task)))
    for arm in dict.fromkeys(arm for _, arm in gains):
        if len(tasks) > 1 and all((task, arm) in gains for task in tasks):
            gains[MEAN, arm] = mean_estimate([gains[task, arm] for task in tasks])
    metrics = {run.task: run.metric for run in runs}
    notes = tuple(dict.fromkeys(run.note for run in runs if run.note and not run.symbols))
    symbols = {run.task: run.note for run in runs if run.symbols}
    seeds = {key: len({r.seed for r in cell}) for key, cell in cells.items()}
    return Gains(scores, gains, metrics, seeds, notes, symbols, tuple(apart))


def score_table(scored: Gains) -> Table:
    tasks = [
        task for task in scored.metrics if not has_own_table(task) and task not in scored.symbols
    ]
    rows = [(arm, *cells) for arm in scored.arms if (cells := _percents(scored.scores, tasks, arm))]
    counts = sorted({n for (task, _), n in scored.seeds.items() if task in tasks})
    note = (
        f"Percent; seeds: {' or '.join(map(str, counts))}. "
        f"{note_on(scored.scores, tasks, *scored.notes)}"
    )
    return Table(
        "Scores",
        ("start", *(f"{task} ({scored.metrics[task]})" for task in tasks)),
        tuple(rows),
        note,
    )


def gain_table(scored: Gains, baseline: str) -> Table:
    with_gain = {task for task, _ in (*scored.gains, *scored.apart) if not has_own_table(task)}
    tasks = [task for task in (*scored.metrics, MEAN) if task in with_gain]
    every = {arm: _percents(scored.gains, tasks, arm, "+") for arm in scored.arms}
    rows = [
        (arm, *cells, ARTIFICIAL.get(family(arm), "–")) for arm, cells in every.items() if cells
    ]
    title, columns = f"Gain over {baseline}, in points", ("start", *tasks, "published (GLUE)")
    return Table(
        title,
        columns,
        tuple(rows),
        note_on(scored.gains, tasks, scored.lacking(tasks, baseline), NOTE),
    )


def frozen_table(scored: Gains, runs: Sequence[Run]) -> list[Table]:
    """The lecture's table of the frozen transformer, with its floors; none where nothing of it was
    run."""
    tasks = [task for task in FROZEN if task in scored.metrics]
    if not tasks:
        return []
    rows = _beside_published(scored, tasks, floors_last(scored.arms), FROZEN)
    note = note_on(
        scored.scores, tasks, floorsnote_on(scored.arms), ratesnote_on(runs), FROZEN_NOTE
    )
    return [Table("The frozen transformer, accuracy", ("start", *tasks), rows, note)]


def floors_last(arms: Iterable[str]) -> list[str]:
    return sorted(arms, key=lambda arm: list(FLOORS).index(arm) if arm in FLOORS else -1)


def floorsnote_on(arms: Sequence[str]) -> str:
    floors = "; ".join(f"{arm}, {what}" for arm, what in FLOORS.items() if arm in arms)
    return floors and f"Floors, which are no encoders: {floors}."


def ratesnote_on(runs: Iterable[Run]) -> str:
    """The learning rates that were chosen on dev; "" where none was."""
    chosen: dict[tuple[str, tuple[float, ...]], dict[str, list[str]]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        if run.learning_rate is not None:
            tasks = chosen.setdefault((run.arm, run.rates), {})
            tasks.setdefault(run.task, []).append(f"{run.learning_rate:g}")
    sentences = []
    for (arm, rates), tasks in chosen.items():
        best = "; ".join(f"{task} {', '.join(seeds)}" for task, seeds in tasks.items())
        sentences.append(
            f"{arm}: learning rate chosen on dev, for each seed, of "
            f"{', '.join(f'{r:g}' for r in rates)}: {best}."
        )
    return " ".join(sentences)


def depth_table(runs: Sequence[Run], seed: int = 0) -> list[Table]:
    """ListOps by how deep the expressions are; none where no floor says it."""
    runs = [run for run in runs if run.task == "listops"]
    described = next((run for run in runs if run.expressions), None)
    if described is None:
        return []
    items = dict(zip(described.items, described.expressions, strict=True))
    groups = {
        f"depth {deep}": [i for i, (d, _) in items.items() if d == deep]
        for deep in sorted({d for d, _ in items.values()})
    }
    groups["all"] = list(items)
    digits: list[Any] = ["digits, mean"]
    digits += [f"{fmean(items[i][1] for i in group):.1f}" for group in groups.values()]
    rows = [tuple(digits)]
    cells = cells_of(runs)
    for arm in floors_last(in_order(arm for _, arm in cells)):
        row: list[Any] = [arm]
        for group in groups.values():
            common = [run for run in cells["listops", arm] if set(group) <= set(run.items)]
            parts = [run.only(group) for run in common]
            row.append(
                interval_text(estimate(parts, seed=seed).interval.percent) if parts else None
            )
        rows.append(tuple(row))
    heads = (f"{name} ({len(group)} expressions)" for name, group in groups.items())
    note = "Percent. Depth: how many operators lie around a digit at most."
    return [Table("ListOps by depth", ("start", *heads), tuple(rows), note)]


def symbol_table(scored: Gains) -> list[Table]:
    """The lecture's four arms on DNA, proteins and music, beside what is published; none where
    nothing of it was run."""
    tasks = [task for task in scored.metrics if task in scored.symbols]
    if not tasks:
        return []
    arms = [*SYMBOL_ARMS, *(arm for arm in scored.arms if arm not in SYMBOL_ARMS)]
    rows = _beside_published(scored, tasks, arms, SYMBOLS)
    note = note_on(scored.scores, tasks, SYMBOL_NOTE, *dict.fromkeys(scored.symbols.values()))
    return [
        Table(
            SYMBOL_TITLE,
            ("start", *(f"{task} ({scored.metrics[task]})" for task in tasks)),
            rows,
            note,
        )
    ]


def _percents(
    cells: Mapping[tuple[str, str], Estimate], tasks: Sequence[str], arm: str, sign: str = ""
) -> list[str]:
    """What an arm has in every task; nothing where it has none in any."""
    estimates = [cells.get((task, arm)) for task in tasks]
    return (
        [interval_text(e.interval.percent, sign) if e else "–" for e in estimates]
        if any(estimates)
        else []
    )


def _beside_published(
    scored: Gains,
    tasks: Sequence[str],
    arms: Sequence[str],
    published: Mapping[str, Mapping[str, float | None]],
) -> tuple[tuple[Any, ...], ...]:
    """A row for the scores of every arm that was run, and one for those that are published of
    it."""
    rows: list[tuple[Any, ...]] = []
    for arm in arms:
        if cells := _percents(scored.scores, tasks, arm):
            rows.append((arm, *cells))
            values = [published.get(task, {}).get(arm) for task in tasks]
            if any(value is not None for value in values):
                rows.append((f"{arm}, published", *values))
    return tuple(rows)


def points_of(curve: Iterable[Mapping[str, Any]]) -> list[Point]:
    """Of a curve as `fit_and_score` has it, where a loss was taken."""
    return [
        (float(p["step"]), float(p["loss"]), float(p["score"]))
        for p in curve
        if p["loss"] is not None
    ]


def mean_curve(seeds: Sequence[Sequence[Point]]) -> list[Point]:
    """The mean over seeds at every number of steps that all have. Points: steps, training loss,
    score."""
    by_step = [{p[0]: p for p in points} for points in seeds]
    steps = sorted(set.intersection(*map(set, by_step)))
    return [
        (
            step,
            fmean(points[step][1] for points in by_step),
            fmean(points[step][2] for points in by_step),
        )
        for step in steps
    ]


def score_at(points: Sequence[Point], loss: float) -> float:
    """The score where the training loss first comes down to this one, on a straight line between
    two points of a curve."""
    for before, after in zip([points[0], *points], points, strict=False):
        if after[1] <= loss:
            share = (before[1] - loss) / (before[1] - after[1]) if before[1] > after[1] else 1.0
            return before[2] + share * (after[2] - before[2])
    return points[-1][2]


def equal_loss_tables(runs: Sequence[Run]) -> list[Table]:
    """The test score of every start at the lowest training loss that all come down to:
    generalisation without optimisation. Of
    text and of symbols; none where no run was scored as it learned.
    """
    tables = []
    for symbols, title in ((False, EQUAL_LOSS), (True, f"{EQUAL_LOSS}, symbols that are no text")):
        curves: dict[str, dict[str, list[list[Point]]]] = {}
        for run in runs:
            points = points_of(run.curve)
            if run.symbols == symbols and run.metric not in DECIMALS and len(points) > 1:
                curves.setdefault(run.task, {}).setdefault(run.arm, []).append(points)
        means = {
            task: {arm: mean_curve(seeds) for arm, seeds in of.items()}
            for task, of in curves.items()
            if len(of) > 1
        }
        arms = in_order({arm for of in means.values() for arm in of})
        rows: list[tuple[Any, ...]] = []
        for task, of in means.items():
            level = max(min(p[1] for p in points) for points in of.values())
            scores = [100 * score_at(of[arm], level) if arm in of else None for arm in arms]
            rows.append((task, f"{level:.3f}", *scores))
        if rows:
            note = (
                "Percent, mean over seeds, at the lowest training loss that every start of "
                "the task comes down to."
            )
            tables.append(Table(title, ("task", "training loss", *arms), tuple(rows), note))
    return tables


def unit_lm_table(scored: Gains, baseline: str) -> list[Table]:
    """What language models of units know, and what a start gains; none where none was tested."""
    tasks = [task for task in UNIT_LM if task in scored.metrics]
    if not tasks:
        return []
    rows = _scored(scored, tasks, baseline)
    if any(UNIT_LM[task] for task in tasks) and any(arm != baseline for _, arm in scored.gains):
        rows.append(
            (
                f"a text-pre-trained start over {baseline}, published",
                *(UNIT_LM[task] for task in tasks),
            )
        )
    chance = "Chance: 50 % of spot-the-word and of same or different."
    note = note_on(
        scored.scores, tasks, scored.lacking(tasks, baseline), chance, *scored.notes, UNIT_LM_NOTE
    )
    heads = [
        f"{task} ({scored.metrics[task]}, %)" if task != PERPLEXITY else task for task in tasks
    ]
    return [Table("A language model of units", ("start", *heads), tuple(rows), note)]


def surface_tables(scored: Gains, baseline: str) -> list[Table]:
    """A table for each kind of reader; none where no loss surface was taken."""
    tables = []
    for kind in READERS:
        tasks = [f"{kind}-{name}" for name in SURFACES if f"{kind}-{name}" in scored.metrics]
        if tasks:
            heads = [SURFACES[task.removeprefix(f"{kind}-")] for task in tasks]
            rows = tuple(_scored(scored, tasks, baseline))
            note = note_on(scored.scores, tasks, scored.lacking(tasks, baseline), SURFACE_NOTE)
            tables.append(Table(f"Loss surfaces: {kind}", ("start", *heads), rows, note))
    return tables


def _scored(scored: Gains, tasks: Sequence[str], baseline: str) -> list[tuple[Any, ...]]:
    """A row for the scores of an arm, and one for what it has over the baseline."""
    rows: list[tuple[Any, ...]] = []
    for arm in scored.arms:
        for title, cells, sign in (
            (arm, scored.scores, ""),
            (f"{arm} over {baseline}", scored.gains, "+"),
        ):
            estimates = [cells.get((task, arm)) for task in tasks]
            if any(estimates):
                texts = [
                    interval_text(
                        shown(e.interval, m := scored.metrics[task]),
                        sign,
                        digits=DECIMALS.get(m, 1),
                    )
                    if e
                    else None
                    for task, e in zip(tasks, estimates, strict=True)
                ]
                rows.append((title, *texts))
    return rows


def plateau_table(runs: Sequence[Run]) -> list[Table]:
    """After how many steps DUAL reaches FF1 25 and 50; none where no run was scored as it
    learned."""
    curves = {
        (run.arm, run.seed): run.curve for run in runs if run.task == "dual" and len(run.curve) > 1
    }
    if not curves:
        return []
    seeds = sorted({seed for _, seed in curves})
    longest = max(int(curve[-1]["step"]) for curve in curves.values())
    note = (
        f"–: not within {longest} steps, or no such run. A mean stands where all seeds got "
        "there, with its 95 % interval over "
        f"seeds where there are {FEWEST} or more; later: on the same seeds. {DUAL_NOTE}"
    )
    columns = ("start", *(f"seed {seed}" for seed in seeds), "mean", "later than text")
    tables = []
    # half of the way shows a shorter plateau where training ends too soon for 50
    for score in (25, 50):
        steps = {key: steps_to(curve, score / 100) for key, curve in curves.items()}

        def mean(values: Sequence[int | None], sign: str = "") -> str:
            reached = [n for n in values if n is not None]
            return (
                interval_text(mean_interval(reached), sign, digits=0)
                if reached and len(reached) == len(values)
                else "–"
            )

        rows = []
        for arm in in_order(arm for arm, _ in curves):
            own = [seed for seed in seeds if (arm, seed) in curves]
            pairs = [
                (steps[arm, seed], steps["text", seed])
                for seed in own
                if arm != "text" and ("text", seed) in curves
            ]
            later = [None if n is None or other is None else n - other for n, other in pairs]
            each = (str(steps.get((arm, seed)) or "–") for seed in seeds)
            rows.append((arm, *each, mean([steps[arm, seed] for seed in own]), mean(later, "+")))
        tables.append(Table(f"Steps of DUAL to FF1 {score}", columns, tuple(rows), note))
    return tables


def language_tables(
    results: Path, runs: Sequence[Run], exact: Sequence[Run], seed: int
) -> list[Table]:
    """Alignment by layer, token translation with examples, and zero-shot question answering; those
    that were run. exact: the exact matches of question answering.
    """
    cells, matches = cells_of(runs), cells_of(exact)

    def cell(task: str, arm: str) -> str:
        return (
            interval_text(estimate(cells[task, arm], seed=seed).interval.percent)
            if (task, arm) in cells
            else "–"
        )

    def answered(task: str, arm: str) -> str:
        answers = matches.get((task, arm))
        return cell(task, arm) + (
            f" (EM {100 * estimate(answers, seed=seed).value:.1f})" if answers else ""
        )

    tables = []
    cards = {
        path.parent.name.rpartition("-")[0]: read_json(path)
        for path in sorted(results.glob(f"runs/{ALIGNMENT}/*/card.json"))
    }
    if cards:
        deepest = max(len(card["layers"]) for card in cards.values())
        rows: list[tuple[Any, ...]] = []
        for arm, card in cards.items():
            for name in ("", "-zero-mean"):
                values = (cell(f"{ALIGNMENT}-{layer}{name}", arm) for layer in range(deepest))
                rows.append(
                    (
                        arm,
                        name[1:] or "as they are",
                        card["pairs"],
                        f"{100 * card['chance']:.1f}",
                        *values,
                    )
                )
        note = (
            "Percent, both directions; with 95 % intervals over seeds and words. zero-mean: "
            "less the mean of each language."
        )
        columns = ("start", "states", "pairs", "chance", *(f"layer {n}" for n in range(deepest)))
        tables.append(Table("Mean reciprocal rank of translations", columns, tuple(rows), note))
    cards = {
        path.parent.name: read_json(path)
        for path in sorted(results.glob("runs/translation/*/card.json"))
    }
    if cards:
        # of the first seed
        first = {folder.rpartition("-")[0]: card for folder, card in reversed(cards.items())}
        rows = [
            (
                arm,
                c["layer"],
                f"{c['alpha']:g}",
                *(
                    cell(f"{name}-{c['layer']}x{c['alpha']:g}", arm)
                    for name in (CONVERTED, PRECISION)
                ),
            )
            for arm, card in first.items()
            for c in card["cells"]
        ]
        same = ", ".join(f"{arm} {100 * card['constant']:.1f}" for arm, card in first.items())
        note = (
            "Percent. precision: where words of the lexicon stood; one and the same token "
            f"everywhere has {same}."
        )
        tables.append(
            Table(
                "Token translation",
                ("start", "layer", "alpha", "tokens converted", "precision"),
                tuple(rows),
                note,
            )
        )
        examples = []
        for arm, card in first.items():
            best = max(card["cells"], key=lambda c: c["precision"])["layer"]
            examples += [
                (arm, best, f"{c['alpha']:g}", *pair)
                for c in card["cells"]
                if c["layer"] == best
                for pair in c["examples"][:2]
            ]
        note = "At the layer with the greatest precision; pieces are the first of the text."
        tables.append(
            Table(
                "Token translation: examples",
                ("start", "layer", "alpha", "text", "becomes"),
                tuple(examples),
                note,
            )
        )
    if others := sorted({task for task, _ in cells if OTHER_LANGUAGE.match(task)}):
        arms = sorted({arm for task, arm in cells if task in others})
        rows = [
            (
                arm.partition("~")[0],
                arm.partition("~")[2] or "–",
                *(answered(task, arm) for task in ("text-qa", *others)),
            )
            for arm in arms
        ]
        rows += [
            (f"{name} (published)", "–", "–", f"{f1} (EM {em})", *("–" for _ in others[1:]))
            for name, (em, f1) in CROSS.items()
        ]
        tagging = "; ".join(f"{name} {tags} and {trees}" for name, (tags, trees) in SHIFTED.items())
        note = (
            f"F1 of words or characters, percent. Published: {CROSS_PAPER}. Published shifts, "
            f"tagging and parsing: {tagging}."
        )
        columns = ("reader", "shift when it reads", "text-qa", *others)
        tables.append(Table("Zero-shot question answering", columns, tuple(rows), note))
    return tables


def read_continuations(results: Path) -> list[Table]:
    """The tables of what lies in RESULTS/continuations; none where nothing does. Raises InputError
    for what is damaged."""
    continuations = []
    for path in sorted(results.glob("continuations/*.json")):
        values = read_json(path)
        try:
            if not isinstance(values["arm"], str):
                raise TypeError("its arm is no name")
            continuation_tables([values])
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path} is not what `continuations.py` writes; delete it and run it again"
            ) from error
        continuations.append(values)
    return continuation_tables(continuations) if continuations else []


def continuation_tables(continuations: Sequence[dict[str, Any]]) -> list[Table]:
    """Means over recordings and seeds, and the first recordings of the first seed of each arm."""
    cells: dict[tuple[str, str], list[dict[str, float | None]]] = {}
    examples: list[tuple[Any, ...]] = []
    arms: set[str] = set()
    for card in continuations:
        for line in card["continuations"]:
            for way, values in line["measures"].items():
                cells.setdefault((card["arm"], way), []).append(values)
        if card["arm"] not in arms:
            arms.add(card["arm"])
            for line in card["continuations"][:SHOWN]:
                begins = " ".join(map(str, line["prompt"][-UNITS_SHOWN // 2 :]))
                for way, units in {**line["drawn"], REAL: line["followed"]}.items():
                    examples.append(
                        (
                            line["id"],
                            f"{card['arm']}, {way}",
                            begins,
                            " ".join(map(str, units[:UNITS_SHOWN])),
                        )
                    )

    def mean(cell: Sequence[dict[str, float | None]], name: str) -> float | None:
        values = [v for one in cell if (v := one[name]) is not None]
        return sum(values) / len(values) if values else None

    rows = []
    for (arm, way), cell in sorted(cells.items()):
        surprise = mean(cell, "surprise")
        percents = [
            None if (v := mean(cell, name)) is None else f"{100 * v:.1f}"
            for name in ("different", "known")
        ]
        rows.append(
            (
                arm,
                way,
                len(cell),
                f"{mean(cell, 'units'):.1f}",
                None if surprise is None else f"{np.exp(surprise):.2f}",
                *percents,
            )
        )
    seconds = ", ".join(
        dict.fromkeys(f"{card['options']['prompt_seconds']:g} s" for card in continuations)
    )
    note = (
        f"Prompts of {seconds}. A run of five is known where it occurs in the units of training. "
        "Means over recordings and seeds."
    )
    columns = (
        "start",
        "temperature",
        "continuations",
        "units",
        "perplexity",
        "different pairs (%)",
        "known runs of five (%)",
    )
    return [
        Table("Continuations", columns, tuple(rows), note),
        Table(
            "Continuations, the first recordings",
            ("recording", "start, temperature", "prompt ends", "goes on"),
            tuple(examples),
        ),
    ]


def note_on(cells: Mapping[tuple[str, str], Estimate], tasks: Sequence[str], *more: str) -> str:
    """What the intervals of these tasks draw, and more sentences."""
    drawn = drawn_sentence(
        (task, e.unit, e.groups) for (task, _), e in cells.items() if task in tasks
    )
    return " ".join(filter(None, [drawn, *more]))
