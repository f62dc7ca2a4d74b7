"""Time the training of heads on cached features beside training with the encoder in the loop.

    python recipes/superb/speed.py ENCODER EXP --data SETS

`compare_cached` times every task with `time_heads`, or with `time_terms` (QbE), writes rows
`ratio_cached` to EXP/results.jsonl, and prints the table.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.cli import script
from speechssl.data.superb import DOCUMENTS
from speechssl.errors import InputError
from speechssl.eval.superb_plan import ALL, TaskPart, feature_cache, list_parts, make_plan
from speechssl.eval.superb_scores import choose_layer
from speechssl.options import Count, argument, group, option
from speechssl.results import HEAD, Row, Table, append_rows, list_rows
from speechssl.superb.data import TRAINING, CachedLoader, FeatureCache
from speechssl.superb.options import LEADERBOARD, UPSTREAM, Data, Superb
from speechssl.superb.tasks import QBE
from speechssl.superb.tasks.spoken_terms import SpokenTerms
from speechssl.superb.train import HeadRun, own_generator, shuffled_batches


@dataclass(frozen=True, kw_only=True)
class SuperbSpeed:
    """time the training of heads on cached features against training with the encoder in the loop

    Both are timed alternately in one process, on the same batches of every task; the time of
    caching is included. Appends rows `ratio_cached` to OUT/results.jsonl of a `superb run`.

      python recipes/superb/speed.py people-en exp/superb --data sets
    """

    encoder: str = argument(f"{UPSTREAM}; NAME=WHERE names it")
    out: Path = argument("folder of `superb run`")
    sets: Data = group(Data(), "")
    turns: Count = option(5, "number of batches to time on each side")


@dataclass(frozen=True)
class TaskTiming:
    """TaskTiming holds the seconds that a task takes. updates: of the whole sweep; of QbE: layers.

    cached_step, online_step: seconds of an update from the cache, and with the encoder in the loop.
    """

    task: str
    updates: int
    cached_step: float
    online_step: float
    caching: float

    @property
    def cached(self) -> float:
        return self.caching + self.updates * self.cached_step

    @property
    def online(self) -> float:
        return self.updates * self.online_step


def time_superb(o: SuperbSpeed) -> list[dict[str, Any]]:
    """Time the tasks, print the table, and return the rows of `o.out`."""
    print(compare_cached(Superb(out=o.out, encoders=(o.encoder,), sets=o.sets), o.turns))
    return list_rows(o.out)


def compare_cached(o: Superb, turns: int) -> str:
    """Compare training of heads from cached states beside the same heads with the encoder in the
    loop, on the same batches in turns; write rows `ratio_cached`, and return the table.

    The time of a benchmark is that of computing the cache and of all steps of a sweep, at the
    median of the timed ones; without a cache, that of all the steps with the encoder in each.
    Evaluations on dev are left out on both sides. QbE compares all layers on dev; without a cache
    every layer is encoded anew, as by s3prl's program. The states are computed anew into a folder
    of their own, which is removed.
    """
    plan, out = make_plan(o), o.out
    name, where = next(iter(plan.encoders.items()))
    parts = [list_parts(task, plan.data[task], o.sets.preset)[0] for task in plan.data]
    out.mkdir(parents=True, exist_ok=True)
    timed = []
    with tempfile.TemporaryDirectory(dir=out, prefix=".speed-") as folder:
        cache = feature_cache(Path(folder), name, where, plan)
        # the first call is slow
        noise = np.random.default_rng(0).standard_normal(32_000)
        cache.encoder.hidden_states(noise.astype(np.float32))
        for part in tqdm(parts, "timing", unit="task"):
            if part.task == QBE:
                timed.append(time_terms(cache, part))
            else:
                timed.append(time_heads(cache, part, turns))

    write_ratios(o, name, timed)
    return tabulate(timed).text


def write_ratios(o: Superb, encoder: str, timed: Sequence[TaskTiming]) -> None:
    """Write a row `ratio_cached` of each task, and of `all` together."""
    ratios = {t.task: t.online / t.cached for t in timed}
    if len(timed) > 1:
        ratios[ALL] = sum(t.online for t in timed) / sum(t.cached for t in timed)
    card = {"preset": o.sets.preset, "workers": o.sets.workers}
    rows = []
    for task, ratio in ratios.items():
        cell = (task, HEAD, encoder, "clean", None, "ratio_cached")
        rows.append(Row(*cell, ratio, None, None, 1, 0, card))
    append_rows(o.out / "results.jsonl", rows, any_card=True)


def tabulate(timed: Sequence[TaskTiming]) -> Table:
    """Return a table: a line a task, and one of all together."""
    lines = []
    for t in timed:
        steps = (f"{t.updates:,}", f"{1000 * t.cached_step:.1f}", f"{1000 * t.online_step:.1f}")
        lines.append((t.task, *steps, *_totals(t.caching, t.cached, t.online)))
    if len(timed) > 1:
        caching = sum(t.caching for t in timed)
        cached = sum(t.cached for t in timed)
        online = sum(t.online for t in timed)
        lines.append((ALL, "", "", "", *_totals(caching, cached, online)))
    each = ("updates", "ms a step, cached", "ms a step, encoder in the loop")
    columns = ("task", *each, "caching, s", "all, cached, s", "all, in the loop, s", "ratio")
    note = "Updates of a whole sweep of seven learning rates."
    return Table("Heads from the cache beside the encoder in the loop", columns, tuple(lines), note)


def _totals(caching: float, cached: float, online: float) -> tuple[str, ...]:
    return f"{caching:.1f}", f"{cached:.0f}", f"{online:.0f}", f"{online / cached:.1f}"


# ---- timing of one task


def time_heads(cache: FeatureCache, part: TaskPart, turns: int) -> TaskTiming:
    """Time updates of a head on the same batches, from the cache and with the encoder, in turns."""
    task, settings = part.make(cache.encoder.grid)
    caching = _time_caching(cache, part, TRAINING, task.pooled)
    loader = cache.loader(task)
    if not isinstance(loader, CachedLoader):
        raise InputError(
            f"the hidden states of {part.task} do not fit on the disk; leave the "
            "task out with --tasks"
        )
    # a sweep without early ends, and the task's own rate
    steps = (len(LEADERBOARD) + 1) * settings.steps
    durations: tuple[list[float], list[float]] = ([], [])
    with own_generator():
        trainers = [
            HeadRun(task, x, settings, 0, cache.root / "heads").trainer()
            for x in (loader, cache.online(task))
        ]
        batches = shuffled_batches(
            loader.usable(task.data.splits["train"]), settings.batch, 0, by_length=not task.pooled
        )
        for turn in range(turns + 1):
            utterances = next(batches)
            for trainer, seconds in zip(trainers, durations, strict=True):
                began = time.perf_counter()
                trainer.update(utterances, turn + 1)
                if turn:  # the first warms up
                    seconds.append(time.perf_counter() - began)
    cached_step, online_step = map(statistics.median, durations)
    return TaskTiming(part.task, steps, cached_step, online_step, caching)


def time_terms(cache: FeatureCache, part: TaskPart) -> TaskTiming:
    """Time the search of terms. A step is the search with the states of one layer.

    With the cache the states are computed once; without, once for each layer and for the test
    queries. The search itself is the same for both and is timed once.
    """
    caching = sum(_time_caching(cache, part, (split,), False) for split in (DOCUMENTS, "dev"))
    layers, began = cache.encoder.layers + 1, time.perf_counter()
    choose_layer(SpokenTerms(part.data), cache, cache.root / "qbe.json")
    search = (time.perf_counter() - began) / layers
    return TaskTiming(QBE, layers, search, search + caching, caching)


def _time_caching(
    cache: FeatureCache, part: TaskPart, splits: tuple[str, ...], pooled: bool
) -> float:
    """Compute the states of splits, and return the seconds; 0 where another task did it."""
    began, options = time.perf_counter(), cache.options(pooled)
    if (cache.folder(part.data, splits, options) / "card.json").is_file():
        return 0.0
    cache.states(part.data, splits, options)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(script(time_superb, SuperbSpeed))
