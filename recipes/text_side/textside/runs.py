"""What a run leaves, and what its start gains over scratch.

RESULTS/runs/TASK/ARM-SEED/scores.json has what every test item got, so that arms are compared on
the same items. Intervals are those of `stats`, and draw items as `stats.choose_units` says. From
`stats.FEWEST` seeds on they draw seeds and items, crossed: a run with one seed on one item counts
as often as both were drawn together. Of fewer seeds the spread is not known: the interval is about
these, and says so. Letters: R resamples, I groups of items, G seeds, C columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from speechssl.artifacts import hash_json, read_json, write_json
from speechssl.checkpoints import hash_of_weights
from speechssl.errors import InputError
from speechssl.eval.compare import read_results
from speechssl.options import TrainingOptions, settings
from speechssl.results import HEAD, Row, append_rows
from speechssl.stats import (
    CROSSED,
    FEWEST,
    RESAMPLES,
    BootstrapUnits,
    Estimate,
    Interval,
    LeftOut,
    Way,
    choose_units,
    draw_counts,
    list_ways,
)
from textside.tasks import ACCURACY, MCC, SPEARMAN

if TYPE_CHECKING:  # it takes long to import, and who only reads what runs left needs it not
    from speechssl.training import Batch

_QA = re.compile(r"(?:dual|text\+text)-([^~]+)-(\d+)(~.+)?")  # what stands behind ~ is a shift
CONDITION = "text side"  # of the rows of this room
CURVE = "curve.json"  # of a training in progress
# options that say who runs where, and names of encoders, which stages have with their hashes
HERE = ("arm", "device", "encoder", "model", "start", "text_encoder")
PERPLEXITY, NATS = "perplexity", "nats"
DECIMALS = {PERPLEXITY: 2, NATS: 3}  # metrics that are not shares, and their decimals
_ARM = re.compile(r"[A-Za-z0-9][\w.+*-]*")


# ---- scores: functions of weighted means of columns, so that a bootstrap draws items once for all
# of them


def columns(metric: str, gold: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """(S, C) what the means are taken of. gold, predicted: (S,) classes or numbers."""
    if metric == MCC:
        a, b = gold == 1, predicted == 1
        return np.stack([a & b, a & ~b, ~a & b, ~a & ~b], axis=1).astype(np.float64)
    if metric == SPEARMAN:  # Pearson's correlation of ranks
        from scipy.stats import rankdata

        a, b = (rankdata(x) / len(x) for x in (gold, predicted))
        return np.stack([a, b, a * a, b * b, a * b], axis=1)
    if metric == PERPLEXITY:  # number of units, and their negative log-likelihood
        return np.stack([gold, predicted], axis=1).astype(np.float64)
    if metric == ACCURACY:  # half right, where two answers are as good as each other
        return np.maximum(1 - np.abs(gold - predicted), 0.0)[:, None].astype(np.float64)
    return predicted.astype(np.float64)[:, None]


def value(metric: str, means: np.ndarray) -> np.ndarray:
    """means: (..., C) of `columns`. Returns (...); 0 where a correlation is not defined, as for
    answers that are all alike."""
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
    """Raises InputError for a name of an arm that is no name of a folder."""
    return results / "runs" / task / f"{arm_name(arm)}-{seed}"


def arm_name(arm: str) -> str:
    """The arm. Raises InputError for one that is no name of a folder."""
    if not _ARM.fullmatch(arm):
        raise InputError(
            f"--arm {arm!r} is no name; take letters, digits, and . + * - _ behind the first"
        )
    return arm


def decisive(options: Any) -> dict[str, Any]:
    """The options that decide what comes out, as a stage and a card have them: not the device, and
    not the places on this machine of what is read, whose hashes a stage has.
    """

    def kept(values: dict[str, Any]) -> dict[str, Any]:
        return {
            name: kept(value) if isinstance(value, dict) else value
            for name, value in values.items()
            if not isinstance(value, Path) and name not in HERE
        }

    return kept(settings(options))


def encoder_named(encoder: str) -> dict[str, str]:
    """What a card says of a text encoder: its name, not where it lies on this machine, and the hash
    of weights that lie here."""
    path = Path(encoder)
    weights = hash_of_weights(encoder) if path.is_dir() else None
    return {"encoder": "/".join(path.parts[-2:])} | ({"weights": weights} if weights else {})


def fit_and_score(
    model: nn.Module,
    batches: Callable[[int], Batch],
    training: TrainingOptions,
    folder: Path,
    score: Callable[[], float],
    every: int,
) -> tuple[dict[str, Any], list[dict[str, float]]]:
    """Train, and score the model every so many steps (0: never before the end): what `fit` gives,
    and a curve of steps, training loss and score, which lies in `folder` too (`read_curve`). The
    schedule is that of the whole training. A killed run goes on.
    """
    from speechssl.training import fit

    steps = training.steps
    curve = read_curve(folder)
    result: dict[str, Any] = {}
    for stop in [*range(every, steps, every), steps] if every else [steps]:
        if stop < steps and any(point["step"] == stop for point in curve):
            continue
        result = fit(
            model, batches, replace(training, steps=stop, horizon=training.horizon or steps), folder
        )
        if result["steps"] == stop and not any(point["step"] == stop for point in curve):
            curve.append({"step": stop, "loss": result["loss"], "score": score()})
            write_json(folder / CURVE, {"points": curve})
            model.train()
    return result, curve


def read_curve(folder: Path) -> list[dict[str, float]]:
    """The curve of a training, as far as it has come. Raises InputError for a file of something
    else."""
    path = folder / CURVE
    try:
        points = read_json(path)["points"] if path.is_file() else []
        return [{name: point[name] for name in ("step", "loss", "score")} for point in points]
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{path} is not the curve of a training ({error!r}); delete its folder and train again"
        ) from error


def steps_to(curve: Sequence[Mapping[str, float]], score: float = 0.5) -> int | None:
    """Steps after which a curve first reaches a score; None: never."""
    return next((int(point["step"]) for point in curve if point["score"] >= score), None)


def write_scores(
    results: Path,
    task: str,
    metric: str,
    arm: str,
    seed: int,
    items: Mapping[str, tuple[float, float]],
    details: Mapping[str, Any],
    drawn: BootstrapUnits | None = None,
) -> dict[str, Any]:
    """The card of a run, and its row in RESULTS/results.jsonl. items: id -> (gold, predicted); of
    metrics without a gold answer the score of the item stands in the second place. drawn: what
    intervals draw of the items; None: themselves.
    """
    card = {"task": task, "metric": metric, "arm": arm, "seed": seed, **details}
    names = list(items)
    order = sorted(range(len(names)), key=names.__getitem__)  # that of the items in JSON
    items = {names[i]: items[names[i]] for i in order}
    drawn = drawn and drawn.at(order)
    units = drawn or BootstrapUnits("item", tuple((name,) for name in items))
    run = Run(task, arm, seed, metric, columns(metric, *_arrays(items)), tuple(items), units)
    groups = (
        {"groups": units.labels, "unit": units.name, "askers": units.askers, "about": units.about}
        if drawn
        else {}
    )
    written = {"items": {name: list(pair) for name, pair in items.items()}} | groups
    write_json(run_folder(results, task, arm, seed) / "scores.json", card | written)
    # which says how long it took
    decisive = {name: value for name, value in card.items() if name != "training"}
    v = shown(estimate([run]).interval, metric)
    cell = (task, HEAD, arm, CONDITION, None, metric)
    row = Row(*cell, v.value, *v.ends, v.n, seed, hash_json(decisive), v.drawn, v.groups)
    append_rows(results / "results.jsonl", [row], any_card=True)
    return card | {"value": row.value}


def shown(interval: Interval, metric: str) -> Interval:
    """As it is printed: in percent, but for metrics that are not shares."""
    return interval if metric in DECIMALS else interval.percent


def _arrays(items: Mapping[str, Sequence[float]]) -> tuple[np.ndarray, np.ndarray]:
    gold, predicted = np.array(list(items.values()), np.float64).T
    return gold, predicted


# ---- all runs


@dataclass(frozen=True, eq=False)
class Run:
    """columns: (S, C) of S items; units: what is drawn of them. curve: as of `fit_and_score`;
    symbols: the task is no text. learning_rate: that was chosen on dev, of `rates`. expressions:
    depth and number of digits of every item, of ListOps.
    """

    task: str
    arm: str
    seed: int
    metric: str
    columns: np.ndarray
    items: tuple[str, ...]
    units: BootstrapUnits
    note: str = ""
    curve: tuple[Mapping[str, float], ...] = ()
    symbols: bool = False
    learning_rate: float | None = None
    rates: tuple[float, ...] = ()
    expressions: tuple[tuple[int, int], ...] = ()

    def only(self, items: Sequence[str]) -> Run:
        place = {name: i for i, name in enumerate(self.items)}
        rows = [place[name] for name in items]
        expressions = tuple(self.expressions[i] for i in rows) if self.expressions else ()
        return replace(
            self,
            columns=self.columns[rows],
            items=tuple(items),
            units=self.units.at(rows),
            expressions=expressions,
        )


def read_runs(results: Path, answers: Iterable[Path] = ()) -> list[Run]:
    """Raises InputError where there are none, or they are damaged."""
    runs = []
    for path in sorted(results.glob("runs/*/*/scores.json")):
        values = read_json(path)
        try:
            items = values["items"]
            scores = columns(values["metric"], *_arrays(items))
            key = values["task"], values["arm"], int(values["seed"]), values["metric"]
            if not all(isinstance(name, str) for name in (key[0], key[1], key[3])):
                raise TypeError("its task, its arm or its metric is no name")
            for point in values.get("curve", ()):
                _ = (
                    float(point["step"]),
                    float(point["score"]),
                    point["loss"] is None or float(point["loss"]),
                )
            units = BootstrapUnits(
                str(values.get("unit", "item")),
                tuple((str(group),) for group in values.get("groups", items)),
                tuple(map(str, values.get("askers", ()))),
                str(values.get("about", "")),
            )
            curve: tuple[Mapping[str, float], ...] = tuple(values.get("curve", ()))
            rates = tuple(float(tried["learning_rate"]) for tried in values.get("sweep", ()))
            chosen = float(values["learning_rate"]) if rates else None
            about = values.get("expressions", {})
            expressions = (
                tuple((int(deep), int(count)) for deep, count in (about[name] for name in items))
                if about
                else ()
            )
            if not np.isfinite(scores).all() or {len(items)} != {
                len(units.groups),
                len(units.askers) or len(items),
            }:
                raise ValueError("an item has no score or no group")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path} is not what a run leaves ({error}); delete its folder and run it again"
            ) from error
        run = Run(
            *key,
            scores,
            tuple(items),
            units,
            curve=curve,
            learning_rate=chosen,
            rates=rates,
            expressions=expressions,
        )
        runs.append(
            replace(run, note=str(values.get("note", "")), symbols=bool(values.get("symbols")))
        )
    runs += read_answers(answers)
    if not runs:
        raise InputError(f"{results} has no runs; make some with `classify.py` or `compute.py`")
    return runs


def cells_of(runs: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
    """Of every task and arm the runs, one a seed."""
    cells: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        cells.setdefault((run.task, run.arm), []).append(run)
    return cells


def read_answers(folders: Iterable[Path], written: str = "f1") -> Iterator[Run]:
    """Of the readers called dual-ARM-SEED and text+text-ARM-SEED, in clean speech. folders: of
    `evaluate qa`; written: the metric of written answers, f1 or em. Raises InputError where two
    folders have answers of the same reader.
    """
    place: dict[tuple[str, str, int], Path] = {}  # of every run
    for folder in folders:
        for scores in read_results([folder]):
            match = _QA.fullmatch(scores.system)
            if not match or scores.condition != ("clean", None):
                continue
            metric = "ff1" if scores.system.startswith("dual") else written
            spoken = "+".join(scores.card.get("languages", ("en",)))
            task = ("dual" if metric == "ff1" else "text-qa") + (
                f" {spoken}" if spoken != "en" else ""
            )
            key = task, match[1] + (match[3] or ""), int(match[2])
            if key in place:
                raise InputError(
                    f"{place[key]} and {folder} both have answers of "
                    f"{scores.system}; keep one of them"
                )
            place[key] = folder
            lines = {i: line for i, line in scores.lines.items() if line.get(metric) is not None}
            column = np.array([[float(line[metric])] for line in lines.values()])
            fields = ("voice", "passage", "asker")
            voices, passages, askers = (
                [str(line.get(name, "")) for line in lines.values()] for name in fields
            )
            yield Run(
                *key,
                metric,
                column,
                tuple(lines),
                choose_units(voices, passages, "passage", askers),
            )


def estimate(
    runs: Sequence[Run], against: Sequence[Run] = (), seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """The mean over seeds of a score; with `against`, of its difference from theirs, seed by seed.

    Seeds that both have, and items that all have, are counted. Raises ValueError where there are
    none.
    """
    pairs: list[tuple[Run, Run | None]] = [(run, None) for run in runs]
    if against:
        by_seed = {run.seed: run for run in against}
        pairs = [(run, by_seed[run.seed]) for run in runs if run.seed in by_seed]
    every = [run for pair in pairs for run in pair if run is not None]
    item_sets = [set(run.items) for run in every]
    common = (
        [name for name in every[0].items if all(name in items for items in item_sets)]
        if every
        else []
    )
    if not common:
        raise ValueError("the runs have no seed or no item in common")
    units, seeds = every[0].only(common).units, len(pairs)
    if seeds >= FEWEST:  # they are the second population that is drawn
        units = replace(units, askers=())
    elif seeds > 1:
        units = replace(
            units,
            about=(f"{units.about} and {seeds} seeds") if units.about else f"these {seeds} seeds",
        )
    ways = list_ways(units)
    tables = {id(run): run.only(common).columns for run in every}

    def scores(weigh: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """(r, G) scores, or differences. weigh: gives (r, C) means of (S, C) columns."""
        by_pair = [
            [value(run.metric, weigh(tables[id(run)])) for run in pair if run is not None]
            for pair in pairs
        ]
        return np.stack(
            [scored[0] - scored[1] if len(scored) > 1 else scored[0] for scored in by_pair], axis=1
        )

    def summed(table: np.ndarray, way: Way) -> np.ndarray:
        """(I, C) sums over the items of a group."""
        groups, places = way
        return np.stack(
            [np.bincount(places, weights=column, minlength=len(groups)) for column in table.T],
            axis=1,
        )

    def without(way: Way) -> np.ndarray:
        """(I, G) the same without one group."""
        sizes = summed(np.ones((len(common), 1)), way)
        return scores(lambda table: (table.sum(0) - summed(table, way)) / (len(common) - sizes))

    def drawn_means(weights: np.ndarray, table: np.ndarray) -> np.ndarray:
        """weights: (r, P) of pairs of a group and an asker, or of groups."""
        return (
            weights
            @ summed(table, ways[-1])
            / (weights @ summed(np.ones((len(common), 1)), ways[-1]))
        )

    whole = scores(lambda table: table.mean(0, keepdims=True))
    mean, drawn = float(whole.mean()), []
    second = len(ways[1][0]) if units.askers else seeds if seeds >= FEWEST else 0
    size = len(ways[-1][0])
    others = (
        np.concatenate(list(draw_counts(second, second, seed, resamples)))
        if second
        else np.ones((resamples, 1))
    )
    if units.askers:  # of every pair its group and its asker
        first_of, asker_of = np.zeros(size, int), np.zeros(size, int)
        first_of[ways[2][1]], asker_of[ways[2][1]] = ways[0][1], ways[1][1]
    done = 0
    # a resample, or what is left, may be empty
    with np.errstate(divide="ignore", invalid="ignore"):
        for counts in draw_counts(len(ways[0][0]), size, seed + 1, resamples):
            part = others[done : done + len(counts)].astype(np.float64)
            weights = (
                counts[:, first_of] * part[:, asker_of]
                if units.askers
                else counts.astype(np.float64)
            )
            scored = scores(partial(drawn_means, weights))
            drawn.append((scored * part).sum(1) / seeds if seeds >= FEWEST else scored.mean(1))
            done += len(counts)
        by_way = [without(way) for way in ways]
    shares = [summed(np.ones((len(common), 1)), way)[:, 0] / len(common) for way in ways]
    left = [
        LeftOut(way[0], share, values.mean(1))
        for way, share, values in zip(ways, shares, by_way, strict=True)
    ]
    if seeds >= FEWEST:
        names, numbers = tuple(f"seed {run.seed}" for run, _ in pairs), np.full(seeds, 1 / seeds)
        left.append(LeftOut(names, numbers, (whole.sum() - whole[0]) / (seeds - 1)))
        both = tuple(f"{group}{CROSSED}{name}" for group in ways[0][0] for name in names)
        left.append(
            LeftOut(
                both,
                np.outer(shares[0], numbers).ravel(),
                (mean + (by_way[0] - whole) / seeds).ravel(),
            )
        )
    groups = min(len(ways[0][0]), second or len(ways[0][0]))
    name = replace(units, name=f"seed{CROSSED}{units.name}") if seeds >= FEWEST else units
    return Estimate(mean, np.concatenate(drawn), len(common), groups, name.text, tuple(left))
