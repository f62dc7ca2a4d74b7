"""Write and read runs, and estimate their scores and gains over scratch.

RESULTS/runs/TASK/ARM-SEED/scores.json has the answer or score of every test item, so that arms are
compared on the same items. The bootstrap of intervals draws items as `stats.choose_units` says.
From `stats.FEWEST` seeds on it draws seeds and items, crossed: the score of a seed on an item
counts as often as the seed was drawn, times as often as the item was. The spread of fewer seeds is
not known: then the interval is about these seeds, and says so. Letters: S items, R resamples, r
resamples of a part of them, I groups of items, G seeds, C columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from speechssl.artifacts import begin_stage, hash_json, read_json, write_json
from speechssl.checkpoints import hash_checkpoint
from speechssl.errors import InputError
from speechssl.eval.compare import read_results
from speechssl.options import TrainingOptions, select_settings
from speechssl.results import HEAD, Row, append_rows
from speechssl.stats import (
    CROSSED,
    FEWEST,
    RESAMPLES,
    BootstrapUnits,
    Estimate,
    Interval,
    LeftOut,
    Partition,
    choose_units,
    draw_counts,
    list_partitions,
)
from textside.tasks import ACCURACY, MCC, SPEARMAN

if TYPE_CHECKING:  # it takes long to import, and reading runs does not need it
    from speechssl.training import Batch

# a reader's arm, seed and shift: "dual-text-0", "text+text-bilingual-1~zero-mean"
_QA = re.compile(r"(?:dual|text\+text)-([^~]+)-(\d+)(~.+)?")
CONDITION = "text side"  # of the rows of this recipe
CURVE = "curve.json"  # file of a training in progress
# options of this run alone, and names of encoders, which a stage has with their hashes
NOT_DECISIVE = ("arm", "device", "encoder", "model", "start", "text_encoder")
PERPLEXITY, NATS = "perplexity", "nats"
DECIMALS = {PERPLEXITY: 2, NATS: 3}  # metrics that are not shares, and their decimals
_ARM = re.compile(r"[A-Za-z0-9][\w.+*-]*")  # "text.flat-4"


# ---- scores: functions of weighted means of columns, so that the bootstrap of all metrics draws
# weights of items


def score_columns(metric: str, gold: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return the columns whose means make a score, (S, C). gold, predicted: (S,) classes or
    numbers."""
    if metric == MCC:
        a, b = gold == 1, predicted == 1
        return np.stack([a & b, a & ~b, ~a & b, ~a & ~b], axis=1).astype(np.float64)
    if metric == SPEARMAN:  # Pearson's correlation of ranks
        from scipy.stats import rankdata

        a, b = (rankdata(x) / len(x) for x in (gold, predicted))
        return np.stack([a, b, a * a, b * b, a * b], axis=1)
    if metric == PERPLEXITY:  # number of units, and their negative log-likelihood
        return np.stack([gold, predicted], axis=1).astype(np.float64)
    if metric == ACCURACY:  # an answer of 0.5 is half right: two answers were equally good
        return np.maximum(1 - np.abs(gold - predicted), 0.0)[:, None].astype(np.float64)
    return predicted.astype(np.float64)[:, None]


def compute_score(metric: str, means: np.ndarray) -> np.ndarray:
    """Return the score (...) of means (..., C) of `score_columns`; 0 where a correlation is not
    defined, as for equal answers to all items."""
    if metric == MCC:
        tp, fn, fp, tn = np.moveaxis(means, -1, 0)
        above, below = tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    elif metric == SPEARMAN:
        a, b, aa, bb, ab = np.moveaxis(means, -1, 0)
        above, below = ab - a * b, np.sqrt(np.maximum((aa - a * a) * (bb - b * b), 0))
    elif metric == PERPLEXITY:
        return np.exp(means[..., 1] / means[..., 0])
    else:
        return means[..., 0]
    return np.where(below > 1e-12, above / np.maximum(below, 1e-12), 0.0)


# ---- one run


def run_folder(results: Path, task: str, arm: str, seed: int) -> Path:
    """Return the folder of a run. Raises InputError for a name of an arm that is no name of a
    folder."""
    if not _ARM.fullmatch(arm):
        raise InputError(
            f"--arm {arm!r} is no name; take letters, digits, and . + * - _ behind the first"
        )
    return results / "runs" / task / f"{arm}-{seed}"


def keep_decisive(options: Any) -> dict[str, Any]:
    """Return the options that decide the result, for stages and cards: neither the device nor
    paths; stages have the hashes of the files that are read."""

    def keep(values: dict[str, Any]) -> dict[str, Any]:
        decisive = {}
        for name, value in values.items():
            if not isinstance(value, Path) and name not in NOT_DECISIVE:
                decisive[name] = keep(value) if isinstance(value, dict) else value
        return decisive

    return keep(select_settings(options))


def run_once(
    folder: Path,
    inputs: Mapping[str, Any],
    options: Mapping[str, Any],
    make: Callable[[], Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the card of a folder; `make` fills the folder and returns the card, once.

    Raises InputError where the folder was made from other inputs or options.
    """
    with begin_stage(folder, inputs, options) as step:
        return dict(step.card) if step.done else step.finish(make())


def describe_encoder(encoder: str) -> dict[str, str]:
    """Return the entries of a text encoder on a card: its name, not its path on this machine, and
    the hash of its weights if it is a folder."""
    path = Path(encoder)
    weights = hash_checkpoint(encoder) if path.is_dir() else None
    return {"encoder": "/".join(path.parts[-2:])} | ({"weights": weights} if weights else {})


def fit_and_score(
    model: nn.Module,
    batches: Callable[[int], Batch],
    training: TrainingOptions,
    folder: Path,
    score: Callable[[], float],
    eval_every: int,
) -> tuple[dict[str, Any], list[dict[str, float]]]:
    """Train, and score the model every `eval_every` steps (0: only at the end). Return the result
    of `fit`, and the curve of steps, training loss and score, which is written to `folder`, too.

    The schedule is that of the whole training. A killed run goes on.
    """
    from speechssl.training import fit

    steps = training.steps
    curve = read_curve(folder)
    result: dict[str, Any] = {}
    horizon = training.horizon or steps
    stops = [*range(eval_every, steps, eval_every), steps] if eval_every else [steps]
    for stop in stops:
        if stop < steps and any(point["step"] == stop for point in curve):
            continue
        part = replace(training, steps=stop, horizon=horizon)
        result = fit(model, batches, part, folder)
        if result["steps"] == stop and not any(point["step"] == stop for point in curve):
            curve.append({"step": stop, "loss": result["loss"], "score": score()})
            write_json(folder / CURVE, {"points": curve})
            model.train()
    return result, curve


def read_curve(folder: Path) -> list[dict[str, float]]:
    """Read the curve of a training so far."""
    path = folder / CURVE
    return read_json(path)["points"] if path.is_file() else []


def count_steps(curve: Sequence[Mapping[str, float]], score: float = 0.5) -> int | None:
    """Count the steps after which a curve first reaches a score; None: never."""
    return next((int(point["step"]) for point in curve if point["score"] >= score), None)


def write_scores(
    results: Path,
    task: str,
    metric: str,
    arm: str,
    seed: int,
    items: Mapping[str, tuple[float, float]],
    details: Mapping[str, Any],
    units: BootstrapUnits | None = None,
) -> dict[str, Any]:
    """Write the card of a run, and its row in RESULTS/results.jsonl.

    items: id -> (gold, predicted); of metrics without gold answers (any number, score of the item).
    units: what intervals draw of the items; None: the items themselves.
    """
    card = {"task": task, "metric": metric, "arm": arm, "seed": seed, **details}
    names = sorted(items)  # the order of JSON
    pairs = [list(map(float, items[name])) for name in names]
    scores: dict[str, Any] = {"items": dict(zip(names, pairs, strict=True))}
    if units is None:
        units = BootstrapUnits("item", tuple((name,) for name in names))
    else:
        place = {name: i for i, name in enumerate(items)}
        units = units.select([place[name] for name in names])
        scores |= {"groups": units.labels, "unit": units.name}
        scores |= {"askers": units.askers, "about": units.about}
    write_json(run_folder(results, task, arm, seed) / "scores.json", card | scores)
    columns = score_columns(metric, *np.array(pairs).T)
    run = Run(task, arm, seed, metric, columns, tuple(names), units)
    # without the training, which has times
    hashed = hash_json({name: value for name, value in card.items() if name != "training"})
    interval = in_percent(estimate([run]), metric)
    low, high = interval.ends
    row = Row(
        task=task,
        system=HEAD,
        encoder=arm,
        condition=CONDITION,
        snr_db=None,
        metric=metric,
        value=interval.value,
        low=low,
        high=high,
        n=interval.n,
        seed=seed,
        card=hashed,
        drawn=interval.drawn,
        groups=interval.groups,
    )
    append_rows(results / "results.jsonl", [row])
    return card | {"value": row.value}


def is_share(metric: str) -> bool:
    """Return whether a metric is a share, and not a perplexity or a number of nats."""
    return metric not in DECIMALS


def find_bounds(metric: str, differ: bool) -> tuple[float, float]:
    """Return the least and the greatest value of a score, or (differ) of a difference of two."""
    if not is_share(metric):
        return -np.inf, np.inf
    least = -1.0 if metric in (MCC, SPEARMAN) else 0.0
    return (least - 1, 1 - least) if differ else (least, 1.0)


def in_percent(found: Estimate, metric: str) -> Interval:
    """Return an interval in percent, or as it is of metrics that are not shares."""
    return found.interval.percent if is_share(metric) else found.interval


# ---- all runs


@dataclass(frozen=True, eq=False)
class Run:
    """A run has scores of items."""

    task: str
    arm: str
    seed: int
    metric: str
    columns: np.ndarray  # (S, C)
    items: tuple[str, ...]  # S ids
    units: BootstrapUnits  # of the items, which intervals draw
    note: str = ""
    curve: tuple[Mapping[str, float], ...] = ()  # of `fit_and_score`
    symbols: bool = False  # whether the task is one of symbols that are no text
    learning_rate: float | None = None  # chosen on dev, from `rates`
    rates: tuple[float, ...] = ()
    expressions: tuple[tuple[int, int], ...] = ()  # of ListOps: depth and digits of every item

    def select(self, items: Sequence[str]) -> Run:
        """Return the run on some of the items."""
        place = {name: i for i, name in enumerate(self.items)}
        rows = [place[name] for name in items]
        units = self.units.select(rows)
        return replace(self, columns=self.columns[rows], items=tuple(items), units=units)


def read_scores(path: Path) -> Run:
    """Read scores.json of a run."""
    card = read_json(path)
    names = tuple(card["items"])
    groups = tuple((group,) for group in card.get("groups", names))
    askers, about = tuple(card.get("askers", ())), card.get("about", "")
    expressions = card.get("expressions", {})
    rates = tuple(tried["learning_rate"] for tried in card.get("sweep", ()))
    pairs = np.array(list(card["items"].values()), np.float64)
    return Run(
        card["task"],
        card["arm"],
        card["seed"],
        card["metric"],
        columns=score_columns(card["metric"], *pairs.T),
        items=names,
        units=BootstrapUnits(card.get("unit", "item"), groups, askers, about),
        note=card.get("note", ""),
        curve=tuple(card.get("curve", ())),
        symbols=bool(card.get("symbols")),
        learning_rate=card["learning_rate"] if rates else None,
        rates=rates,
        expressions=tuple(tuple(expressions[name]) for name in names if expressions),
    )


def read_runs(results: Path, answers: Iterable[Path] = ()) -> list[Run]:
    """Read the runs of a folder and readers' answers. Raises InputError where there are none."""
    runs = [read_scores(path) for path in sorted(results.glob("runs/*/*/scores.json"))]
    runs += read_answers(answers)
    if not runs:
        raise InputError(f"{results} has no runs; make some with `classify.py` or `compute.py`")
    return runs


def group_runs(runs: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
    """Group runs by task and arm, one a seed."""
    cells: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        cells.setdefault((run.task, run.arm), []).append(run)
    return cells


def read_answers(folders: Iterable[Path], text_metric: str = "f1") -> Iterator[Run]:
    """Read the answers of readers called dual-ARM-SEED and text+text-ARM-SEED in clean speech.

    folders: of `evaluate qa`; text_metric: the metric of text QA, f1 or em.
    """
    # folder by folder, so that equal systems of several keep their names
    for scores in chain.from_iterable(read_results([folder]) for folder in folders):
        match = _QA.fullmatch(scores.system)
        if not match or scores.condition != ("clean", None):
            continue
        spoken = scores.system.startswith("dual")
        metric = "ff1" if spoken else text_metric
        task = "dual" if spoken else "text-qa"
        languages = "+".join(scores.card.get("languages", ("en",)))
        if languages != "en":
            task += f" {languages}"
        lines = {i: line for i, line in scores.lines.items() if line.get(metric) is not None}
        column = np.array([[float(line[metric])] for line in lines.values()])
        names = ("voice", "passage", "asker")
        labels = {name: [str(line.get(name, "")) for line in lines.values()] for name in names}
        units = choose_units(labels["voice"], labels["passage"], "passage", labels["asker"])
        arm = match[1] + (match[3] or "")
        yield Run(task, arm, int(match[2]), metric, column, tuple(lines), units)


# ---- means over seeds


def estimate(
    runs: Sequence[Run], against: Sequence[Run] = (), resamples: int = RESAMPLES
) -> Estimate:
    """Estimate the mean over seeds of a score; with `against`, of its difference from theirs, seed
    by seed.

    Seeds of both sides and items of all runs are counted. Raises ValueError where there are none.
    """
    by_seed = {run.seed: run for run in against}
    sides = [[run for run in runs if not against or run.seed in by_seed]]
    if against:
        sides.append([by_seed[run.seed] for run in sides[0]])
    return _SeedMeans(sides).estimate(resamples)


class _SeedMeans:
    """Scores of runs, or their differences, are means with one number a seed.

    Groups of items are drawn, crossed with askers, or with seeds from FEWEST seeds on.
    """

    def __init__(self, sides: Sequence[Sequence[Run]]) -> None:
        """Find the items that all runs have. sides: the runs of G seeds, and of a difference those
        that are subtracted."""
        runs = [run for side in sides for run in side]
        common: list[str] = []
        if runs:
            shared = set.intersection(*(set(run.items) for run in runs))
            common = [name for name in runs[0].items if name in shared]
        if not common:
            raise ValueError("the runs have no seed or no item in common")
        self.metric = runs[0].metric
        self.names = [f"seed {run.seed}" for run in sides[0]]
        self.count = len(common)
        self.tables = [[run.select(common).columns for run in side] for side in sides]
        units = runs[0].select(common).units
        seeds = len(self.names)
        self.draws_seeds = seeds >= FEWEST
        if self.draws_seeds:  # seeds are drawn in the place of askers
            units = replace(units, askers=())
        elif seeds > 1:
            about = f"these {seeds} seeds"
            units = replace(units, about=f"{units.about} and {about}" if units.about else about)
        self.units = units
        # of the items by groups; with askers, also by askers, and by pairs of both
        self.partitions = list_partitions(units)

    def score(self, average: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Score every seed, (r, G). average: returns (r, C) means of (S, C) columns."""
        sides = []
        for tables in self.tables:
            scores = [compute_score(self.metric, average(table)) for table in tables]
            sides.append(np.stack(scores, axis=1))
        return sides[0] - sides[1] if len(sides) > 1 else sides[0]

    def leave_out(self, partition: Partition) -> np.ndarray:
        """Score every seed without one group at a time, (I, G)."""
        rest = self.count - sum_groups(np.ones((self.count, 1)), partition)
        return self.score(lambda table: (table.sum(0) - sum_groups(table, partition)) / rest)

    def draw(self, resamples: int) -> np.ndarray:
        """Draw means over seeds, (R,), by drawing groups, and askers or seeds if these are
        drawn."""
        others = self.draw_others(resamples)
        by_group, finest = self.partitions[0], self.partitions[-1]
        sizes = sum_groups(np.ones((self.count, 1)), finest)
        drawn: list[np.ndarray] = []
        done = 0
        for counts in draw_counts(len(by_group.groups), len(finest.groups), 1, resamples):
            part = others[done : done + len(counts)]
            done += len(counts)
            weights = counts.astype(np.float64)
            if self.units.askers:
                weights = self.weigh_pairs(counts, part)
            scores = self.score(self.average_by(weights, sizes))
            if self.draws_seeds:
                drawn.append((scores * part).sum(1) / len(self.names))
            else:
                drawn.append(scores.mean(1))
        return np.concatenate(drawn)

    def draw_others(self, resamples: int) -> np.ndarray:
        """Draw the number of times of each asker or seed, (R, askers or seeds); (R, 1) ones where
        only groups are drawn."""
        count = 0
        if self.units.askers:
            count = len(self.partitions[1].groups)
        elif self.draws_seeds:
            count = len(self.names)
        if not count:
            return np.ones((resamples, 1))
        return np.concatenate(list(draw_counts(count, count, 0, resamples))).astype(np.float64)

    def weigh_pairs(self, groups: np.ndarray, askers: np.ndarray) -> np.ndarray:
        """Return the number of times of each pair of a group and an asker, (r, pairs): the product
        of those of both."""
        (_, group_of), (_, asker_of), (pairs, pair_of) = self.partitions
        group_of_pair, asker_of_pair = np.zeros((2, len(pairs)), int)
        group_of_pair[pair_of] = group_of
        asker_of_pair[pair_of] = asker_of
        return groups[:, group_of_pair] * askers[:, asker_of_pair]

    def average_by(
        self, weights: np.ndarray, sizes: np.ndarray
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Make a function that returns weighted means of (S, C) columns. weights: (r, I) of
        groups, or of pairs of a group and an asker; sizes: (I, 1)."""
        return lambda table: weights @ sum_groups(table, self.partitions[-1]) / (weights @ sizes)

    def estimate(self, resamples: int) -> Estimate:
        scores = self.score(lambda table: table.mean(0, keepdims=True))  # (1, G)
        mean, seeds = float(scores.mean()), len(self.names)
        # a resample, or all but one group, may be empty
        with np.errstate(divide="ignore", invalid="ignore"):
            drawn = self.draw(resamples)
            without = [self.leave_out(partition) for partition in self.partitions]
        ones = np.ones((self.count, 1))
        left_out = []
        for partition, values in zip(self.partitions, without, strict=True):
            shares = sum_groups(ones, partition)[:, 0] / self.count
            left_out.append(LeftOut(partition.groups, shares, values.mean(1)))
        groups = min(len(partition.groups) for partition in self.partitions[:2])
        unit = self.units.text
        if self.draws_seeds:
            seed_shares = np.full(seeds, 1 / seeds)
            others = (scores.sum() - scores[0]) / (seeds - 1)
            left_out.append(LeftOut(tuple(self.names), seed_shares, others))
            by_group = left_out[0]
            pairs = tuple(f"{g}{CROSSED}{name}" for g in by_group.groups for name in self.names)
            pair_shares = np.outer(by_group.shares, seed_shares).ravel()
            values = mean + (without[0] - scores) / seeds
            left_out.append(LeftOut(pairs, pair_shares, values.ravel()))
            groups = min(groups, seeds)
            unit = replace(self.units, name=f"seed{CROSSED}{self.units.name}").text
        bounds = find_bounds(self.metric, differ=len(self.tables) > 1)
        return Estimate(mean, drawn, self.count, groups, unit, tuple(left_out), bounds)


def sum_groups(table: np.ndarray, partition: Partition) -> np.ndarray:
    """Sum (S, C) columns over the items of every group: (I, C)."""
    groups, indices = partition
    sums = [np.bincount(indices, weights=column, minlength=len(groups)) for column in table.T]
    return np.stack(sums, axis=1)
