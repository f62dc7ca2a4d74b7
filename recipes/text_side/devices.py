"""Compare methods of fine-tuning few weights: parameters, scores, time."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from speechssl.artifacts import read_json, write_json
from speechssl.cli import script
from speechssl.finetuning import METHODS
from speechssl.options import argument
from speechssl.results import (
    DEFAULT,
    HEAD,
    Row,
    Table,
    append_rows,
    format_interval,
    format_seeds,
    read_rows,
)
from textside.options import RESULTS
from textside.runs import CONDITION, read_answers, read_runs
from textside.tables import estimate_gains, make_note


@dataclass(frozen=True, kw_only=True)
class Devices:
    """compare methods of fine-tuning few weights: parameters, scores, time

    Reads, below RESULTS/devices, what was trained with --trained: runs of `plateau.py`, whose
    arms are called after the method (runs/dual/lora-0); readers/text-METHOD-SEED of `train text-qa`
    with answers/, or several answers-*/, of `evaluate qa`; and superb/ of `superb run`, where
    weighted-sum is the frozen encoder that heads read. frozen.statistics and frozen.default are
    names of the method frozen on encoders of `pretrain.py --init`. Appends the scores to
    RESULTS/results.jsonl, of which `page.py RESULTS` makes a page.

      python recipes/text_side/devices.py exp/text_side
    """

    results: Path = argument(RESULTS)


# suffix that `superb run` adds to an encoder's name -> method
TUNED = {"finetuned": "all"} | {method: method for method in METHODS}


@dataclass
class Cost:
    """A method of fine-tuning costs parameters and time on a task."""

    scores: dict[str, str] = field(default_factory=dict)  # metric -> score, as it is printed
    parameters: int | None = None  # that are trained
    seconds: tuple[float, ...] = ()  # of training, of every seed


Costs = dict[tuple[str, str], Cost]  # task, method -> cost


def compare_methods(o: Devices) -> None:
    """Print the table."""
    print(make_method_table(o).text)


def make_method_table(o: Devices) -> Table:
    """Tabulate trained parameters, score and time of every method on every task."""
    folder = o.results / "devices"
    costs: Costs = {}
    notes = [
        "Percent; trained parameters, heads and embeddings of units with them; seconds of "
        "training, mean over seeds."
    ]
    notes += add_readers(costs, folder, o)
    notes += add_superb(costs, folder)
    metrics: dict[str, dict[str, None]] = {}  # task -> its metrics, in the order of reading
    for (task, _), cost in costs.items():
        metrics.setdefault(task, {}).update(dict.fromkeys(cost.scores))
    columns = ["trained"]
    for task, names in metrics.items():
        columns += [*(f"{task} ({metric})" for metric in names), f"{task}: trained", f"{task}: s"]
    lines = []
    for method in sorted({method for _, method in costs}, key=rank_method):
        line: list[Any] = [method]
        for task, names in metrics.items():
            cost = costs.get((task, method), Cost())
            line += [*(cost.scores.get(metric, "–") for metric in names), cost.parameters]
            line.append(f"{fmean(cost.seconds):.0f}" if cost.seconds else None)
        lines.append(tuple(line))
    title = "What is trained: score, parameters, time"
    table = Table(title, tuple(columns), tuple(lines), " ".join(filter(None, notes)))
    write_json(o.results / "tables" / "devices.json", {"tables": [table.values]})
    return table


def rank_method(method: str) -> tuple[int, str]:
    """Return the key that sorts methods as METHODS does; frozen.statistics follows frozen."""
    methods = list(METHODS)
    family = method.partition(".")[0]
    return methods.index(family) if family in methods else len(methods), method


def add_readers(costs: Costs, folder: Path, o: Devices) -> list[str]:
    """Add the costs of DUAL and text QA, and rows of their scores to RESULTS; return notes.

    Intervals draw seeds and voices or passages, as in the other tables.
    """
    answers = sorted({path.parents[2] for path in folder.glob("answers*/scores/*/*.parquet")})
    if not answers and not any(folder.glob("runs/*/*/scores.json")):
        return []
    usual = estimate_gains(read_runs(folder, answers))  # FF1 and F1
    exact = estimate_gains(list(read_answers(answers, "em")))
    rows = []
    for scored in (usual, exact):
        for (task, method), score in scored.scores.items():
            metric = scored.metrics[task]
            row = Row.from_interval(
                score.interval,
                task=f"{task}, devices",
                system=HEAD,
                encoder=method,
                condition=CONDITION,
                snr_db=None,
                metric=metric,
                seed=0,
                card="text devices",
            )
            rows.append(row)
            cost = costs.setdefault((task, method), Cost())
            cost.scores[metric] = format_interval(score.interval.percent)
    append_rows(o.results / "results.jsonl", rows)
    cards = {"dual": "runs/dual/*/scores.json", "text-qa": "readers/text-*/card.json"}
    for task, pattern in cards.items():
        for path in sorted(folder.glob(pattern)):
            method = path.parent.name.removeprefix("text-").rpartition("-")[0]
            cost = costs.setdefault((task, method), Cost())
            cost.parameters, seconds = read_cost(path)
            cost.seconds += (seconds,)
    seeds = []
    for task in usual.metrics:
        counts = sorted({n for (name, _), n in usual.seeds.items() if name == task})
        seeds.append(f"{' or '.join(map(str, counts))} ({task})")
    return [f"Seeds: {', '.join(seeds)}.", make_note(usual.scores, list(usual.metrics))]


def add_superb(costs: Costs, folder: Path) -> list[str]:
    """Add the costs of the tasks of SUPERB, by their first metric; return notes."""
    results = folder / "superb/results.jsonl"
    measured: dict[tuple[str, str], list[Row]] = {}  # task, method -> a row a seed
    for row in read_rows(results) if results.is_file() else ():
        method: str | None = "weighted-sum"
        if "+" in row.encoder:
            method = TUNED.get(row.encoder.rpartition("+")[2])
        heads = sorted(folder.glob(f"superb/heads/{row.encoder}/{row.task}/seed-*/card.json"))
        if method is None or not heads:
            continue
        if row.condition != "clean" or row.metric.endswith(DEFAULT):
            continue
        seeds = measured.setdefault((row.task, method), [])
        if seeds and (row.encoder, row.metric) != (seeds[0].encoder, seeds[0].metric):
            continue  # another metric of the task
        seeds.append(row)
        parameters, _ = read_cost(heads[0])
        seconds = tuple(read_cost(path)[1] for path in heads)
        costs[row.task, method] = Cost({row.metric: format_seeds(seeds)}, parameters, seconds)
    if not measured:
        return []
    tasks = ", ".join(dict.fromkeys(task for task, _ in measured))
    return [
        f"Of {tasks} an interval reaches from the lowest to the highest end of those of the seeds."
    ]


def read_cost(path: Path) -> tuple[int, float]:
    """Read the trained parameters and the seconds of training from the card of a reader or a head,
    or from the scores of a run."""
    card = read_json(path)
    seconds = card["training"]["seconds"] if "training" in card else card.get("seconds", 0.0)
    return card["trained_parameters"], seconds


if __name__ == "__main__":
    sys.exit(script(compare_methods, Devices))
