"""Time the training of heads on cached features beside training with the encoder in the loop.

    python recipes/superb/speed.py ENCODER EXP --data SETS

Every task is timed with `time_heads`, or with `time_terms` (QbE).
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.cli import script
from speechssl.data.superb import DOCUMENTS
from speechssl.eval.superb_plan import ALL, TaskPart, load_frozen, make_plan
from speechssl.eval.superb_scores import choose_layer
from speechssl.options import Count, argument, group, option
from speechssl.results import HEAD, Row, Table, append_rows, list_rows
from speechssl.superb.data import CachedLoader, FeatureCache
from speechssl.superb.options import LEADERBOARD, UPSTREAM, Data, Superb
from speechssl.superb.tasks import QBE
from speechssl.superb.tasks.spoken_terms import SpokenTerms
from speechssl.superb.train import HeadRun, shuffled_batches


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
    """Compare training of heads from cached states beside the same heads with the encoder in the
    loop, on the same batches in turns; print the table, add rows `ratio_cached`, and return all.

    The time of a benchmark is that of computing the cache and of all steps of a sweep, at the
    median of the timed ones; without a cache, that of all the steps with the encoder in each.
    Evaluations on dev are left out on both sides. QbE compares all layers on dev; without a cache
    every layer is encoded anew, as by s3prl's program. The states are computed anew into a folder
    of their own, which is removed.
    """
    plan, out = make_plan(Superb(out=o.out, encoders=(o.encoder,), sets=o.sets)), o.out
    name, where = next(iter(plan.encoders.items()))
    encoder = load_frozen(where, o.sets)
    # the first call is slow
    encoder.hidden_states(np.random.default_rng(0).standard_normal(32_000).astype(np.float32))
    out.mkdir(parents=True, exist_ok=True)
    timed = []
    with tempfile.TemporaryDirectory(dir=out, prefix=".speed-") as folder:
        cache = FeatureCache(encoder, Path(folder), workers=o.sets.workers)
        for task, parts in tqdm(plan.parts.items(), "timing", unit="task"):
            timed.append(
                time_terms(cache, parts[0]) if task == QBE else time_heads(cache, parts[0], o.turns)
            )
    ratios, lines = {}, []
    for t in timed:
        ratios[t.task] = t.online / t.cached
        steps = (f"{t.updates:,}", f"{1000 * t.cached_step:.1f}", f"{1000 * t.online_step:.1f}")
        lines.append((t.task, *steps, *_totals([t])))
    if len(timed) > 1:
        ratios[ALL] = sum(t.online for t in timed) / sum(t.cached for t in timed)
        lines.append((ALL, "", "", "", *_totals(timed)))
    rows = []
    for task, ratio in ratios.items():
        cell = (task, HEAD, name, "clean", None, "ratio_cached")
        card = {"preset": o.sets.preset, "workers": o.sets.workers}
        rows.append(Row(*cell, ratio, None, None, 1, 0, card))
    append_rows(out / "results.jsonl", rows, any_card=True)
    each = ("updates", "ms a step, cached", "ms a step, encoder in the loop")
    columns = ("task", *each, "caching, s", "all, cached, s", "all, in the loop, s", "ratio")
    note = "Updates of a whole sweep of seven learning rates."
    title = "Heads from the cache beside the encoder in the loop"
    print(Table(title, columns, tuple(lines), note).text)
    return list_rows(out)


def _totals(timed: list[TaskTiming]) -> tuple[str, ...]:
    caching = sum(t.caching for t in timed)
    cached, online = sum(t.cached for t in timed), sum(t.online for t in timed)
    return f"{caching:.1f}", f"{cached:.0f}", f"{online:.0f}", f"{online / cached:.1f}"


# ---- timing of one task


def time_heads(cache: FeatureCache, part: TaskPart, turns: int) -> TaskTiming:
    """Time updates of a head on the same batches, from the cache and with the encoder, in turns."""
    task, settings = part.make(cache.encoder.grid)
    began = time.perf_counter()
    loader = cache.loader(task)
    caching = time.perf_counter() - began  # little where another task did it
    assert isinstance(loader, CachedLoader)
    durations: tuple[list[float], list[float]] = ([], [])
    with torch.random.fork_rng(devices=[]):
        trainers = []
        for states in (loader, cache.online(task)):
            trainers.append(HeadRun(task, states, settings, 0, cache.root / "heads").trainer())
        train = loader.usable(task.data.splits["train"])
        batches = shuffled_batches(train, settings.batch, 0, by_length=not task.pooled)
        for turn in range(turns + 1):
            utterances = next(batches)
            for trainer, seconds in zip(trainers, durations, strict=True):
                began = time.perf_counter()
                trainer.update(utterances, turn + 1)
                if turn:  # the first warms up
                    seconds.append(time.perf_counter() - began)
    # a sweep without early ends, and the task's own rate
    updates = (len(LEADERBOARD) + 1) * settings.steps
    return TaskTiming(part.task, updates, *map(statistics.median, durations), caching)


def time_terms(cache: FeatureCache, part: TaskPart) -> TaskTiming:
    """Time the search of terms. A step is the search with the states of one layer.

    With the cache the states are computed once; without, once for each layer and for the test
    queries. The search itself is the same for both and is timed once.
    """
    began = time.perf_counter()
    for split in (DOCUMENTS, "dev"):
        cache.states(part.data, (split,), False)
    cached = time.perf_counter()
    choose_layer(SpokenTerms(part.data), cache, cache.root / "qbe.json")
    layers = cache.encoder.layers + 1
    search, caching = (time.perf_counter() - cached) / layers, cached - began
    return TaskTiming(QBE, layers, search, search + caching, caching)


if __name__ == "__main__":
    sys.exit(script(time_superb, SuperbSpeed))
