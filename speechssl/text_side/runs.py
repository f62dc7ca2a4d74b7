"""What a run leaves, and what its start gains over scratch.

RESULTS/runs/TASK/ARM-SEED/scores.json has what every test item got, so that arms are compared on the same items. Intervals draw
seeds and items, each with replacement and crossed: a run with one seed on one item counts as often as both were drawn together
(`stats.drawn_weights` has the source). With three seeds there are ten ways to draw them: such an interval is too narrow rather
than too wide. Letters: R resamples, I items or groups of items, G seeds, C columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from torch import nn

from speechssl.config import TrainingOptions
from speechssl.errors import InputError
from speechssl.eval.compare import read_results
from speechssl.finetuning import METHODS
from speechssl.io import hash_files, hash_json, read_json, write_json
from speechssl.results import DEFAULT, Row, Table, append_rows, drawn_sentence, interval_text, read_rows
from speechssl.stats import RESAMPLES, Estimate, Interval, Units, choose_units, drawn_counts, mean_of
from speechssl.text_side.continued import read_continuations
from speechssl.text_side.published import (
    ALIGNMENT,
    ARTIFICIAL,
    CONDITION,
    CONVERTED,
    CROSS,
    CROSS_PAPER,
    FROZEN,
    FROZEN_NOTE,
    GAIN,
    MEAN,
    NATS,
    NOTE,
    OTHER_LANGUAGE,
    PERPLEXITY,
    PRECISION,
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
    of_languages,
)
from speechssl.text_side.tasks import columns, value
from speechssl.trainer import Batch, fit

_QA = re.compile(r"(?:dual|text\+text)-([^~]+)-(\d+)(~.+)?")  # what stands behind ~ is a shift
DECIMALS = {PERPLEXITY: 2, NATS: 3}  # metrics that are not shares, and their decimals
_ARM = re.compile(r"[A-Za-z0-9][\w.+*-]*")
EQUAL_LOSS = "Test score at equal training loss"
TUNED = {"finetuned": "all"} | {device: device for device in METHODS}  # what `superb run` adds to an encoder's name
Point = tuple[float, float, float]  # steps, training loss, score


# ---- one run


def run_folder(results: Path, task: str, arm: str, seed: int) -> Path:
    """Raises InputError for a name of an arm that is no name of a folder."""
    return results / "runs" / task / f"{arm_name(arm)}-{seed}"


def arm_name(arm: str) -> str:
    """The arm. Raises InputError for one that is no name of a folder."""
    if not _ARM.fullmatch(arm):
        raise InputError(f"--arm {arm!r} is no name; take letters, digits, and . + * - _ behind the first")
    return arm


def encoder_named(encoder: str) -> dict[str, str]:
    """What a card says of a text encoder: its name, not where it lies on this machine, and the hash of weights that lie here."""
    path = Path(encoder)
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else []
    return {"encoder": "/".join(path.parts[-2:])} | ({"weights": hash_files(files)} if files else {})


def fit_and_score(
    model: nn.Module,
    batches: Callable[[int], Batch],
    training: TrainingOptions,
    folder: Path,
    score: Callable[[], float],
    every: int,
) -> tuple[dict[str, Any], list[dict[str, float]]]:
    """Train, and score the model every so many steps (0: never before the end): what `fit` gives, and a curve of steps, training
    loss and score, which lies in `folder` as curve.json too. The schedule is that of the whole training. A killed run goes on.
    """
    path, steps = folder / "curve.json", training.steps
    curve: list[dict[str, float]] = read_json(path) if path.is_file() else []
    result: dict[str, Any] = {}
    for stop in [*range(every, steps, every), steps] if every else [steps]:
        if stop < steps and any(point["step"] == stop for point in curve):
            continue
        result = fit(model, batches, replace(training, steps=stop, horizon=training.horizon or steps), folder)
        if result["steps"] == stop and not any(point["step"] == stop for point in curve):
            curve.append({"step": stop, "loss": result["loss"], "score": score()})
            write_json(path, curve)
            model.train()
    return result, curve


def steps_to(curve: Sequence[Mapping[str, float]], score: float = 0.5) -> int | None:
    """Steps after which a curve first reaches a score; None: never."""
    return next((int(point["step"]) for point in curve if point["score"] >= score), None)


def write_scores(
    results: Path,
    folder: Path,
    task: str,
    metric: str,
    arm: str,
    seed: int,
    items: Mapping[str, tuple[float, float]],
    about: Mapping[str, Any],
    drawn: Units | None = None,
) -> dict[str, Any]:
    """The card of a run, and its row in RESULTS/results.jsonl. items: id -> (gold, predicted); of metrics without a gold answer the
    score of the item stands in the second place. drawn: what intervals draw of the items; None: themselves.
    """
    made = {"task": task, "metric": metric, "arm": arm, "seed": seed, **about}
    found = Run(task, arm, seed, metric, columns(metric, *_arrays(items)), tuple(items), tuple(items))
    if drawn:
        found = replace(found, groups=tuple(drawn.labels), unit=drawn.name)
    groups = {"groups": list(found.groups), "unit": found.unit} if drawn else {}
    write_json(folder / "scores.json", made | {"items": {name: list(pair) for name, pair in items.items()}} | groups)
    decisive = {name: value for name, value in made.items() if name != "training"}  # which says how long it took
    v, about_row = shown(estimate([found]).interval, metric), (task, arm, CONDITION, None, metric)
    row = Row(*about_row, v.value, *v.ends, v.n, seed, hash_json(decisive), v.drawn, v.groups)
    append_rows(results / "results.jsonl", [row], any_card=True)
    return made | {"value": row.value}


def shown(interval: Interval, metric: str) -> Interval:
    """As it is printed: in percent, but for metrics that are not shares."""
    return interval if metric in DECIMALS else interval.percent


def _arrays(items: Mapping[str, Sequence[float]]) -> tuple[np.ndarray, np.ndarray]:
    gold, predicted = np.array(list(items.values()), np.float64).T
    return gold, predicted


# ---- all runs


@dataclass(frozen=True, eq=False)
class Run:
    """columns: (S, C) of S items; groups: (S,) what is drawn, an item itself, or the passage or the voice of a question; unit:
    which of these. curve: as of `fit_and_score`; symbols: the task is no text.
    """

    task: str
    arm: str
    seed: int
    metric: str
    columns: np.ndarray
    items: tuple[str, ...]
    groups: tuple[str, ...]
    unit: str = "item"
    note: str = ""
    curve: tuple[Mapping[str, float], ...] = ()
    symbols: bool = False

    def only(self, items: Sequence[str]) -> Run:
        place = {name: i for i, name in enumerate(self.items)}
        rows = [place[name] for name in items]
        return replace(self, columns=self.columns[rows], items=tuple(items), groups=tuple(self.groups[i] for i in rows))


def read_runs(results: Path, answers: Iterable[Path] = ()) -> list[Run]:
    """Raises InputError where there are none, or they are damaged."""
    found = []
    for path in sorted(results.glob("runs/*/*/scores.json")):
        values = read_json(path)
        try:
            items = values["items"]
            made = columns(values["metric"], *_arrays(items))
            about = values["task"], values["arm"], int(values["seed"]), values["metric"]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is not what `speechssl text` leaves ({error}); delete its folder and run it again") from error
        drawn = tuple(map(str, values.get("groups", items))), str(values.get("unit", "item"))
        curve: tuple[Mapping[str, float], ...] = tuple(values.get("curve", ()))
        run = Run(*about, made, tuple(items), *drawn, curve=curve)
        found.append(replace(run, note=str(values.get("note", "")), symbols=bool(values.get("symbols"))))
    for folder in answers:
        for scores in read_results([folder]):
            named = _QA.fullmatch(scores.system)
            if named and scores.condition == ("clean", None):
                metric = "ff1" if scores.system.startswith("dual") else "f1"
                lines = {i: line for i, line in scores.lines.items() if line.get(metric) is not None}
                made = np.array([[float(line[metric])] for line in lines.values()])
                voices, passages = ([str(line.get(name, "")) for line in lines.values()] for name in ("voice", "passage"))
                units = choose_units(voices, passages, "passage")
                spoken = "+".join(scores.card.get("languages", ("en",)))
                task = ("dual" if metric == "ff1" else "text-qa") + (f" {spoken}" if spoken != "en" else "")
                about = task, named[1] + (named[3] or ""), int(named[2]), metric
                found.append(Run(*about, made, tuple(lines), tuple(units.labels), units.name))
    if not found:
        raise InputError(f"{results} has no runs; make some with `speechssl text classify` or `speechssl text compute`")
    return found


def estimate(runs: Sequence[Run], against: Sequence[Run] = (), seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The mean over seeds of a score; with `against`, of its difference from theirs, seed by seed.

    Seeds that both have, and items that all have, are counted. Raises ValueError where there are none.
    """
    pairs: list[tuple[Run, Run | None]] = [(run, None) for run in runs]
    if against:
        other = {run.seed: run for run in against}
        pairs = [(run, other[run.seed]) for run in runs if run.seed in other]
    every = [run for pair in pairs for run in pair if run is not None]
    common = [name for name in every[0].items if all(name in run.items for run in every)] if every else []
    if not common:
        raise ValueError("the runs have no seed or no item in common")
    labels = every[0].only(common).groups
    numbers = {name: i for i, name in enumerate(dict.fromkeys(labels))}
    places, count = np.array([numbers[name] for name in labels]), len(numbers)
    sizes = np.bincount(places, minlength=count).astype(np.float64)

    def summed(run: Run) -> np.ndarray:
        """(I, C) sums over the items of a group."""
        made = run.only(common).columns
        return np.stack([np.bincount(places, weights=column, minlength=count) for column in made.T], axis=1)

    def scores(weights: np.ndarray) -> np.ndarray:
        """(r, I) -> (r, G) scores, or differences."""
        total = (weights @ sizes)[:, None]
        found = [[value(run.metric, weights @ made[id(run)] / total) for run in pair if run is not None] for pair in pairs]
        return np.stack([some[0] - some[1] if len(some) > 1 else some[0] for some in found], axis=1)

    made = {id(run): summed(run) for run in every}
    seeds = np.concatenate(list(drawn_counts(len(pairs), len(pairs), seed, resamples))).astype(np.float64)
    drawn, done = [], 0
    for weights in drawn_counts(count, count, seed + 1, resamples):
        part = seeds[done : done + len(weights)]
        drawn.append((scores(weights.astype(np.float64)) * part).sum(1) / len(pairs))
        done += len(weights)
    here = float(scores(np.ones((1, count))).mean())
    group = every[0].unit
    several = len(pairs) > 1
    spread = np.concatenate(drawn) if count > 1 else np.full(resamples, np.nan)
    return Estimate(here, spread, len(common), min(len(pairs), count) if several else count, f"seed, {group}" if several else group)


# ---- tables


@dataclass(frozen=True, eq=False)
class Gains:
    """Of every arm and task: the score, and the gain over the baseline, in that of every task alone and of their mean."""

    scores: Mapping[tuple[str, str], Estimate]  # (task, arm)
    gains: Mapping[tuple[str, str], Estimate]
    metrics: Mapping[str, str]  # of tasks
    seeds: Mapping[tuple[str, str], int]
    notes: tuple[str, ...]  # on tasks of text and speech
    symbols: Mapping[str, str] = field(default_factory=dict)  # tasks that are no text -> notes

    @property
    def arms(self) -> list[str]:
        """Those of the lecture's chart in its order, then the others."""
        return in_order(arm for _, arm in self.scores)


def gains_of(runs: Sequence[Run], baseline: str, seed: int = 0) -> Gains:
    """Tasks without the baseline have scores and no gains."""
    cells: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        cells.setdefault((run.task, run.arm), []).append(run)
    scores = {key: estimate(some, seed=seed) for key, some in cells.items()}
    gains = {}
    for (task, arm), some in cells.items():
        base = cells.get((task, baseline), [])
        if arm != baseline and {r.seed for r in some} & {r.seed for r in base}:
            gains[task, arm] = estimate(some, base, seed)
    tasks = list(dict.fromkeys(task for task, _ in gains if not has_own_table(task)))
    for arm in dict.fromkeys(arm for _, arm in gains):
        if len(tasks) > 1 and all((task, arm) in gains for task in tasks):
            gains[MEAN, arm] = mean_of([gains[task, arm] for task in tasks])
    metrics = {run.task: run.metric for run in runs}
    notes = tuple(dict.fromkeys(run.note for run in runs if run.note and not run.symbols))
    symbols = {run.task: run.note for run in runs if run.symbols}
    return Gains(scores, gains, metrics, {key: len({r.seed for r in some}) for key, some in cells.items()}, notes, symbols)


def gains_tables(results: Path, answers: Sequence[Path], baseline: str, seed: int) -> list[Table]:
    """All tables of RESULTS; their gains are appended to its results. Raises InputError where there is nothing."""
    every = read_runs(results, answers)
    runs = [run for run in every if not of_languages(run.task)]
    found = gains_of(runs, baseline, seed)
    rows = [
        Row.of(e.interval, task, arm, CONDITION, None, GAIN, seed, f"over {baseline}")
        for (task, arm), e in found.gains.items()
        if found.metrics.get(task) not in DECIMALS
    ]
    append_rows(results / "results.jsonl", rows, any_card=True)
    own = [task for task in found.metrics if has_own_table(task) or task in found.symbols]
    scores = [score_table(found)] if len(own) < len(found.metrics) else []
    gains = [gain_table(found, baseline)] if any(not has_own_table(task) for task, _ in found.gains) else []
    learned = [*equal_loss_tables(runs), *frozen_table(found), *plateau_table(runs)]
    made = [*scores, *gains, *symbol_table(found), *learned, *unit_lm_table(found, baseline)]
    tables = [*made, *read_continuations(results), *surface_tables(found, baseline), *language_tables(results, every, seed)]
    write_json(results / "tables" / "text_side.json", [table.values for table in tables])
    return tables


def score_table(found: Gains) -> Table:
    tasks = [task for task in found.metrics if not has_own_table(task) and task not in found.symbols]
    rows = [
        (arm, *(interval_text(e.interval.percent) if (e := found.scores.get((task, arm))) else "–" for task in tasks))
        for arm in found.arms
        if any((task, arm) in found.scores for task in tasks)
    ]
    counts = sorted({n for (task, _), n in found.seeds.items() if task in tasks})
    note = f"Percent; seeds: {' or '.join(map(str, counts))}. " + _drawn(found.scores, tasks)
    return Table(
        "Scores", ("start", *(f"{task} ({found.metrics[task]})" for task in tasks)), tuple(rows), " ".join([note, *found.notes])
    )


def gain_table(found: Gains, baseline: str) -> Table:
    tasks = [t for t in dict.fromkeys(task for task, _ in found.gains) if not has_own_table(t)]
    rows = []
    for arm in found.arms:
        cells = [interval_text(e.interval.percent, "+") if (e := found.gains.get((task, arm))) else "–" for task in tasks]
        if any(cell != "–" for cell in cells):
            rows.append((arm, *cells, ARTIFICIAL.get(family(arm), "–")))
    title = f"Gain over {baseline}, in points"
    return Table(
        title, ("start", *tasks, "published (GLUE)"), tuple(rows), " ".join(filter(None, [_drawn(found.gains, tasks), NOTE]))
    )


def frozen_table(found: Gains) -> list[Table]:
    """The lecture's table of the frozen transformer; none where nothing of it was run."""
    tasks = [task for task in FROZEN if task in found.metrics]
    if not tasks:
        return []
    arms = [arm for arm in found.arms if any((task, arm) in found.scores for task in tasks)]
    rows: list[tuple[Any, ...]] = []
    for arm in arms:
        cells = [interval_text(e.interval.percent) if (e := found.scores.get((task, arm))) else "–" for task in tasks]
        rows.append((arm, *cells))
        if any(published := [FROZEN[task].get(arm) for task in tasks]):
            rows.append((f"{arm}, published", *published))
    note = " ".join(filter(None, [_drawn(found.scores, tasks), FROZEN_NOTE]))
    return [Table("The frozen transformer, accuracy", ("start", *tasks), tuple(rows), note)]


def symbol_table(found: Gains) -> list[Table]:
    """The lecture's four arms on DNA, proteins and music, beside what is published; none where nothing of it was run."""
    tasks = [task for task in found.metrics if task in found.symbols]
    if not tasks:
        return []
    arms = [*SYMBOL_ARMS, *(arm for arm in found.arms if arm not in SYMBOL_ARMS)]
    rows: list[tuple[Any, ...]] = []
    for arm in arms:
        if not any((task, arm) in found.scores for task in tasks):
            continue
        cells = [interval_text(e.interval.percent) if (e := found.scores.get((task, arm))) else "–" for task in tasks]
        rows.append((arm, *cells))
        published = [SYMBOLS.get(task, {}).get(arm) for task in tasks]
        if any(value is not None for value in published):
            rows.append((f"{arm}, published", *published))
    note = " ".join([_drawn(found.scores, tasks), SYMBOL_NOTE, *dict.fromkeys(filter(None, found.symbols.values()))])
    return [Table(SYMBOL_TITLE, ("start", *(f"{task} ({found.metrics[task]})" for task in tasks)), tuple(rows), note)]


def mean_curve(seeds: Sequence[Sequence[Point]]) -> list[Point]:
    """The mean over seeds at every number of steps that all have. Points: steps, training loss, score."""
    by_step = [{p[0]: p for p in points} for points in seeds]
    steps = sorted(set.intersection(*map(set, by_step)))
    return [(step, fmean(points[step][1] for points in by_step), fmean(points[step][2] for points in by_step)) for step in steps]


def score_at(points: Sequence[Point], loss: float) -> float:
    """The score where the training loss first comes down to this one, on a straight line between two points of a curve."""
    for before, here in zip([points[0], *points], points, strict=False):
        if here[1] <= loss:
            share = (before[1] - loss) / (before[1] - here[1]) if before[1] > here[1] else 1.0
            return before[2] + share * (here[2] - before[2])
    return points[-1][2]


def equal_loss_tables(runs: Sequence[Run]) -> list[Table]:
    """The test score of every start at the lowest training loss that all come down to: generalisation without optimisation. Of
    text and of symbols; none where no run was scored as it learned.
    """
    tables = []
    for symbols, title in ((False, EQUAL_LOSS), (True, f"{EQUAL_LOSS}, symbols that are no text")):
        curves: dict[str, dict[str, list[list[Point]]]] = {}
        for run in runs:
            points = [(float(p["step"]), float(p["loss"]), float(p["score"])) for p in run.curve if p["loss"] is not None]
            if run.symbols == symbols and run.metric not in DECIMALS and len(points) > 1:
                curves.setdefault(run.task, {}).setdefault(run.arm, []).append(points)
        means = {task: {arm: mean_curve(seeds) for arm, seeds in of.items()} for task, of in curves.items() if len(of) > 1}
        arms = in_order({arm for of in means.values() for arm in of})
        rows: list[tuple[Any, ...]] = []
        for task, of in means.items():
            level = max(min(p[1] for p in points) for points in of.values())
            found = [100 * score_at(of[arm], level) if arm in of else None for arm in arms]
            rows.append((task, f"{level:.3f}", *found))
        if rows:
            note = "Percent, mean over seeds, at the lowest training loss that every start of the task comes down to."
            tables.append(Table(title, ("task", "training loss", *arms), tuple(rows), note))
    return tables


def unit_lm_table(found: Gains, baseline: str) -> list[Table]:
    """What language models of units know, and what a start gains; none where none was tested."""
    tasks = [task for task in UNIT_LM if task in found.metrics]
    if not tasks:
        return []
    rows = _scored(found, tasks, baseline)
    if any(UNIT_LM[task] for task in tasks) and any(arm != baseline for _, arm in found.gains):
        rows.append((f"a text-pre-trained start over {baseline}, published", *(UNIT_LM[task] for task in tasks)))
    note = " ".join(
        filter(
            None,
            [_drawn(found.scores, tasks), "Chance: 50 % of spot-the-word and of same or different.", *found.notes, UNIT_LM_NOTE],
        )
    )
    heads = [f"{task} ({found.metrics[task]}, %)" if task != PERPLEXITY else task for task in tasks]
    return [Table("A language model of units", ("start", *heads), tuple(rows), note)]


def surface_tables(found: Gains, baseline: str) -> list[Table]:
    """A table for each kind of reader; none where no loss surface was taken."""
    made = []
    for kind in ("dual", "text-qa"):
        tasks = [f"{kind}-{name}" for name in SURFACES if f"{kind}-{name}" in found.metrics]
        if tasks:
            heads = [SURFACES[task.removeprefix(f"{kind}-")] for task in tasks]
            note = " ".join(filter(None, [_drawn(found.scores, tasks), SURFACE_NOTE]))
            made.append(Table(f"Loss surfaces: {kind}", ("start", *heads), tuple(_scored(found, tasks, baseline)), note))
    return made


def _scored(found: Gains, tasks: Sequence[str], baseline: str) -> list[tuple[Any, ...]]:
    """A row for the scores of an arm, and one for what it has over the baseline."""
    rows: list[tuple[Any, ...]] = []
    for arm in found.arms:
        for title, cells, sign in ((arm, found.scores, ""), (f"{arm} over {baseline}", found.gains, "+")):
            some = [cells.get((task, arm)) for task in tasks]
            if any(some):
                texts = [
                    interval_text(shown(e.interval, m := found.metrics[task]), sign, digits=DECIMALS.get(m, 1)) if e else None
                    for task, e in zip(tasks, some, strict=True)
                ]
                rows.append((title, *texts))
    return rows


def plateau_table(runs: Sequence[Run]) -> list[Table]:
    """After how many steps DUAL reaches FF1 50; none where no run was scored as it learned."""
    curves = {(run.arm, run.seed): run.curve for run in runs if run.task == "dual" and len(run.curve) > 1}
    if not curves:
        return []
    seeds = sorted({seed for _, seed in curves})
    rows = []
    for arm in in_order(arm for arm, _ in curves):
        reached = {seed: steps_to(curves[arm, seed]) for seed in seeds if (arm, seed) in curves}
        steps = [n for n in reached.values() if n is not None]
        mean = f"{sum(steps) / len(steps):.0f}" if steps and len(steps) == len(reached) else "–"
        rows.append((arm, *(str(reached.get(seed) or "–") for seed in seeds), mean))
    longest = max(int(curve[-1]["step"]) for curve in curves.values())
    note = f"–: not within {longest} steps, or no such run. A mean stands where all seeds got there."
    return [Table("Steps of DUAL to FF1 50", ("start", *(f"seed {seed}" for seed in seeds), "mean"), tuple(rows), note)]


def language_tables(results: Path, runs: Sequence[Run], seed: int) -> list[Table]:
    """Alignment by layer, token translation with examples, and zero-shot question answering; those that were run."""
    cells: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        cells.setdefault((run.task, run.arm), []).append(run)

    def cell(task: str, arm: str) -> str:
        return interval_text(estimate(cells[task, arm], seed=seed).interval.percent) if (task, arm) in cells else "–"

    tables = []
    cards = {path.parent.name.rpartition("-")[0]: read_json(path) for path in sorted(results.glob(f"runs/{ALIGNMENT}/*/card.json"))}
    if cards:
        deepest = max(len(card["layers"]) for card in cards.values())
        rows: list[tuple[Any, ...]] = []
        for arm, card in cards.items():
            for name in ("", "-zero-mean"):
                values = (cell(f"{ALIGNMENT}-{layer}{name}", arm) for layer in range(deepest))
                rows.append((arm, name[1:] or "as they are", card["pairs"], f"{100 * card['chance']:.1f}", *values))
        note = "Percent, both directions; with 95 % intervals over seeds and words. zero-mean: less the mean of each language."
        columns = ("start", "states", "pairs", "chance", *(f"layer {n}" for n in range(deepest)))
        tables.append(Table("Mean reciprocal rank of translations", columns, tuple(rows), note))
    cards = {path.parent.name: read_json(path) for path in sorted(results.glob("runs/translation/*/card.json"))}
    if cards:
        first = {named.rpartition("-")[0]: card for named, card in reversed(cards.items())}  # of the first seed
        rows = [
            (
                arm,
                c["layer"],
                f"{c['alpha']:g}",
                *(cell(f"{name}-{c['layer']}x{c['alpha']:g}", arm) for name in (CONVERTED, PRECISION)),
            )
            for arm, card in first.items()
            for c in card["cells"]
        ]
        same = ", ".join(f"{arm} {100 * card['constant']:.1f}" for arm, card in first.items())
        note = f"Percent. precision: where words of the lexicon stood; one and the same token everywhere has {same}."
        tables.append(Table("Token translation", ("start", "layer", "alpha", "tokens converted", "precision"), tuple(rows), note))
        examples = []
        for arm, card in first.items():
            best = max(card["cells"], key=lambda c: c["precision"])["layer"]
            examples += [
                (arm, best, f"{c['alpha']:g}", *pair) for c in card["cells"] if c["layer"] == best for pair in c["examples"][:2]
            ]
        note = "At the layer with the greatest precision; pieces are the first of the text."
        tables.append(Table("Token translation: examples", ("start", "layer", "alpha", "text", "becomes"), tuple(examples), note))
    if others := sorted({task for task, _ in cells if OTHER_LANGUAGE.match(task)}):
        arms = sorted({arm for task, arm in cells if task in others})
        rows = [
            (arm.partition("~")[0], arm.partition("~")[2] or "–", cell("text-qa", arm), *(cell(t, arm) for t in others))
            for arm in arms
        ]
        rows += [
            (f"{name} (published)", "–", "–", f"{f1} (EM {em})", *("–" for _ in others[1:])) for name, (em, f1) in CROSS.items()
        ]
        tagging = "; ".join(f"{name} {tags} and {trees}" for name, (tags, trees) in SHIFTED.items())
        note = f"F1 of words or characters, percent. Published: {CROSS_PAPER}. Published shifts, tagging and parsing: {tagging}."
        columns = ("reader", "shift when it reads", "text-qa", *others)
        tables.append(Table("Zero-shot question answering", columns, tuple(rows), note))
    return tables


# ---- devices


@dataclass
class Cost:
    """Of one device on one task. score: as it is printed; parameters: trained; seconds: of training, a seed each."""

    score: str = "–"
    parameters: int | None = None
    seconds: tuple[float, ...] = ()


def device_table(results: Path, seed: int) -> Table:
    """Trained parameters, score and time of every device on every task. Raises InputError where nothing was trained."""
    folder, costs, rows = results / "devices", dict[tuple[str, str], Cost](), list[Row]()
    answers = [folder / "answers"] if (folder / "answers").is_dir() else []
    runs = read_runs(folder, answers) if answers or any(folder.glob("runs/*/*/scores.json")) else []
    for (task, device), e in gains_of(runs, "", seed).scores.items():
        rows.append(Row.of(e.interval, f"{task}, devices", device, CONDITION, None, _metric(runs, task), seed, "text devices"))
        costs[task, device] = Cost(interval_text(e.interval.percent))
    found = [*folder.glob("runs/dual/*/scores.json"), *folder.glob("readers/text-*/card.json")]
    for path in sorted(found):
        values = read_json(path)
        device = path.parent.name.removeprefix("text-").rpartition("-")[0]
        cost = costs.setdefault(("dual" if path.name == "scores.json" else "text-qa", device), Cost())
        cost.parameters, cost.seconds = values["trained_parameters"], (*cost.seconds, values["training"]["seconds"])
    superb = folder / "superb/results.jsonl"
    for row in read_rows(superb) if superb.is_file() else ():
        tuned = TUNED.get(row.encoder.rpartition("+")[2]) if "+" in row.encoder else "weighted-sum"
        heads = sorted(folder.glob(f"superb/heads/{row.encoder}/{row.system}/seed-*/card.json"))
        if tuned is None or row.condition != "clean" or row.metric.endswith(DEFAULT) or not heads or (row.system, tuned) in costs:
            continue  # a task's first metric is what it is judged by
        cards = [read_json(path) for path in heads]
        costs[row.system, tuned] = Cost(
            interval_text(row), cards[0]["trained_parameters"], tuple(float(card["seconds"]) for card in cards)
        )
    if not costs:
        raise InputError(f"{folder} has nothing that was trained with --trained; run recipes/text_side with PARTS=5 first")
    if rows:
        append_rows(results / "results.jsonl", rows, any_card=True)
    tasks = list(dict.fromkeys(task for task, _ in costs))
    lines = []
    for device in (d for d in METHODS if any((task, d) in costs for task in tasks)):
        line: list[Any] = [device]
        for task in tasks:
            cost = costs.get((task, device), Cost())
            line += [cost.score, cost.parameters, f"{fmean(cost.seconds):.0f}" if cost.seconds else None]
        lines.append(tuple(line))
    heads_of = (cell for task in tasks for cell in (task, f"{task}: trained", f"{task}: s"))
    note = "Percent; trained parameters, heads and embeddings of units with them; seconds of training, mean over seeds."
    table = Table("What is trained: score, parameters, time", ("trained", *heads_of), tuple(lines), note)
    write_json(results / "tables" / "devices.json", [table.values])
    return table


def _metric(runs: Sequence[Run], task: str) -> str:
    return next(run.metric for run in runs if run.task == task)


def _drawn(found: Mapping[tuple[str, str], Estimate], tasks: Iterable[str]) -> str:
    wanted = set(tasks)
    return drawn_sentence((task, e.unit, e.groups) for (task, _), e in found.items() if task in wanted)
