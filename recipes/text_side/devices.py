"""Compare methods of fine-tuning few weights: parameters, scores, time."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from speechssl.artifacts import read_json, write_json
from speechssl.cli import script
from speechssl.errors import InputError
from speechssl.finetuning import METHODS
from speechssl.options import Whole, argument, option
from speechssl.results import (
    DEFAULT,
    HEAD,
    Row,
    Table,
    append_rows,
    interval_text,
    read_rows,
    seeds_text,
)
from textside.options import RESULTS
from textside.runs import CONDITION, read_answers, read_runs
from textside.tables import gains_of, note_on


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
    seed: Whole = option(0, "seed of the bootstrap")


# what `superb run` adds to an encoder's name
TUNED = {"finetuned": "all"} | {device: device for device in METHODS}


@dataclass
class Cost:
    """Of one device on one task. scores: by metric, as they are printed; parameters: trained;
    seconds: of training, a seed each."""

    scores: dict[str, str] = field(default_factory=dict)
    parameters: int | None = None
    seconds: tuple[float, ...] = ()


def compare_devices(o: Devices) -> None:
    """Print the table. Raises InputError where nothing was trained."""
    print(device_table(o).text)


def device_table(o: Devices) -> Table:
    """Trained parameters, score and time of every device on every task. Raises InputError where
    nothing was trained."""
    folder, costs = o.results / "devices", dict[tuple[str, str], Cost]()
    notes = [
        "Percent; trained parameters, heads and embeddings of units with them; seconds of "
        "training, mean over seeds."
    ]

    # DUAL and text QA: seeds and voices or passages are drawn, as in the other tables
    answers = sorted({path.parents[2] for path in folder.glob("answers*/scores/*/*.parquet")})
    runs = read_runs(folder, answers) if answers or any(folder.glob("runs/*/*/scores.json")) else []
    rows = []
    read = gains_of(runs, "", o.seed)
    for scored in (read, gains_of(list(read_answers(answers, "em")), "", o.seed)):
        for (task, device), found in scored.scores.items():
            metric = scored.metrics[task]
            cell = (f"{task}, devices", HEAD, device, CONDITION, None, metric)
            rows.append(Row.from_interval(found.interval, *cell, o.seed, "text devices"))
            cost = costs.setdefault((task, device), Cost())
            cost.scores[metric] = interval_text(found.interval.percent)
    if read.scores:
        each = []
        for task in read.metrics:
            counts = sorted({n for (name, _), n in read.seeds.items() if name == task})
            each.append(f"{' or '.join(map(str, counts))} ({task})")
        notes += [f"Seeds: {', '.join(each)}.", note_on(read.scores, list(read.metrics))]
    trained = {"dual": "runs/dual/*/scores.json", "text-qa": "readers/text-*/card.json"}
    for task, pattern in trained.items():
        for path in sorted(folder.glob(pattern)):
            device = path.parent.name.removeprefix("text-").rpartition("-")[0]
            cost = costs.setdefault((task, device), Cost())
            cost.parameters, seconds = read_cost(path)
            cost.seconds += (seconds,)

    # SUPERB: its runs have an interval a seed
    superb = folder / "superb/results.jsonl"
    measured: dict[tuple[str, str], list[Row]] = {}  # of every seed
    for row in read_rows(superb) if superb.is_file() else ():
        tuned = TUNED.get(row.encoder.rpartition("+")[2]) if "+" in row.encoder else "weighted-sum"
        heads = sorted(folder.glob(f"superb/heads/{row.encoder}/{row.task}/seed-*/card.json"))
        if tuned is None or row.condition != "clean" or row.metric.endswith(DEFAULT) or not heads:
            continue
        same = measured.setdefault((row.task, tuned), [])
        if same and (row.encoder, row.metric) != (same[0].encoder, same[0].metric):
            continue  # a task's first metric is what it is judged by
        same.append(row)
        spent = [read_cost(path) for path in heads]
        seconds_each = tuple(seconds for _, seconds in spent)
        costs[row.task, tuned] = Cost({row.metric: seeds_text(same)}, spent[0][0], seconds_each)
    if measured:
        tasks_of_superb = ", ".join(dict.fromkeys(task for task, _ in measured))
        notes.append(
            f"Of {tasks_of_superb} an interval reaches from the lowest to the highest "
            "end of those of the seeds."
        )

    if not costs:
        raise InputError(
            f"{folder} has nothing that was trained with --trained; run "
            "recipes/text_side with PARTS=5 first"
        )
    if rows:
        append_rows(o.results / "results.jsonl", rows, any_card=True)
    metrics: dict[str, list[str]] = {}  # by task, in the order in which they were read
    for (task, _), cost in costs.items():
        metrics.setdefault(task, []).extend(m for m in cost.scores if m not in metrics[task])
    columns, lines = ["trained"], []
    for task, names in metrics.items():
        columns += [*(f"{task} ({metric})" for metric in names), f"{task}: trained", f"{task}: s"]
    # frozen.statistics stands behind frozen
    order = {method: place for place, method in enumerate(METHODS)}
    for device in sorted(
        {device for _, device in costs},
        key=lambda d: (order.get(d.partition(".")[0], len(order)), d),
    ):
        line: list[Any] = [device]
        for task, names in metrics.items():
            cost = costs.get((task, device), Cost())
            line += [*(cost.scores.get(metric, "–") for metric in names), cost.parameters]
            line.append(f"{fmean(cost.seconds):.0f}" if cost.seconds else None)
        lines.append(tuple(line))
    table = Table(
        "What is trained: score, parameters, time",
        tuple(columns),
        tuple(lines),
        " ".join(filter(None, notes)),
    )
    write_json(o.results / "tables" / "devices.json", {"tables": [table.values]})
    return table


def read_cost(path: Path) -> tuple[int, float]:
    """Read the trained parameters and the seconds of training: of a reader's or a head's card, or
    of a run's scores."""
    card = read_json(path)
    seconds = card["training"]["seconds"] if "training" in card else card.get("seconds", 0.0)
    return card["trained_parameters"], seconds


if __name__ == "__main__":
    sys.exit(script(compare_devices, Devices))
