"""Time the training of heads on cached features beside training with the encoder in the loop.

    python recipes/superb/speed.py ENCODER EXP --data SETS

Every task is timed by `time_heads`, or by `time_terms` (QbE); rows `ratio_cached` go to
EXP/results.jsonl.
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

from speechssl.audio import SAMPLE_RATE
from speechssl.cli import script
from speechssl.data.superb import DOCUMENTS
from speechssl.errors import InputError
from speechssl.eval.superb_plan import ALL, TaskPart, load_frozen, make_plan
from speechssl.eval.superb_scores import choose_layer
from speechssl.options import Count, argument, group, option
from speechssl.results import HEAD, Row, Table, append_rows, list_rows
from speechssl.superb.data import CachedLoader, FeatureCache
from speechssl.superb.options import LEADERBOARD, QBE, UPSTREAM, Data, Superb
from speechssl.superb.tasks.spoken_terms import SpokenTerms
from speechssl.superb.train import HeadRun, draw_shuffled_batches


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
    """A timing has the seconds that a task takes from the cache, and with the encoder in the
    loop."""

    task: str
    updates: int  # of the whole sweep; of QbE: layers
    cached_step: float  # seconds of an update from the cache
    online_step: float  # seconds of an update with the encoder in the loop
    caching: float  # seconds that computing the cache takes

    @property
    def cached(self) -> float:
        """Return the seconds of the whole sweep from the cache."""
        return self.caching + self.updates * self.cached_step

    @property
    def online(self) -> float:
        """Return the seconds of the whole sweep with the encoder in the loop."""
        return self.updates * self.online_step


def time_superb(o: SuperbSpeed) -> list[dict[str, Any]]:
    """Time the tasks, print the table, and return the rows of `o.out`."""
    print(compare_cached(Superb(out=o.out, encoders=(o.encoder,), sets=o.sets), o.turns))
    return list_rows(o.out)


def compare_cached(o: Superb, turns: int) -> str:
    """Compare training of heads from cached states with the same heads and the encoder in the loop,
    on the same batches in turns; write rows `ratio_cached`, and return the table.

    The time of a benchmark is that of computing the cache and of all steps of a sweep, at the
    median of the timed ones; without a cache, that of all the steps with the encoder in each.
    Evaluations on dev are left out on both sides. QbE compares all layers on dev; without a cache
    every layer is encoded anew, as by s3prl's program. The states are computed anew into a folder
    of their own, which is removed.
    """
    plan, out = make_plan(o), o.out
    name, where = next(iter(plan.encoders.items()))
    encoder = load_frozen(where, o.sets)
    # the first call of an encoder is slow
    two_seconds = np.random.default_rng(0).standard_normal(2 * SAMPLE_RATE)
    encoder.hidden_states(two_seconds.astype(np.float32))
    out.mkdir(parents=True, exist_ok=True)
    timings = []
    with tempfile.TemporaryDirectory(dir=out, prefix=".speed-") as folder:
        cache = FeatureCache(encoder, Path(folder), workers=o.sets.workers)
        for task, parts in tqdm(plan.parts.items(), "timing", unit="task"):
            if task == QBE:
                timings.append(time_terms(cache, parts[0]))
            else:
                timings.append(time_heads(cache, parts[0], turns))
    ratios: dict[str, float] = {}
    lines = []
    for t in timings:
        ratios[t.task] = t.online / t.cached
        steps = (f"{t.updates:,}", f"{1000 * t.cached_step:.1f}", f"{1000 * t.online_step:.1f}")
        lines.append((t.task, *steps, *_format_totals([t])))
    if len(timings) > 1:
        ratios[ALL] = sum(t.online for t in timings) / sum(t.cached for t in timings)
        lines.append((ALL, "", "", "", *_format_totals(timings)))
    card = {"preset": o.sets.preset, "workers": o.sets.workers}
    rows = []
    for task, ratio in ratios.items():
        row = Row(
            task=task,
            system=HEAD,
            encoder=name,
            condition="clean",
            snr_db=None,
            metric="ratio_cached",
            value=ratio,
            low=None,
            high=None,
            n=1,
            seed=0,
            card=card,
        )
        rows.append(row)
    append_rows(out / "results.jsonl", rows)
    columns = (
        "task",
        "updates",
        "ms a step, cached",
        "ms a step, encoder in the loop",
        "caching, s",
        "all, cached, s",
        "all, in the loop, s",
        "ratio",
    )
    note = (
        "Updates of a whole sweep without early stopping: the leaderboard's seven learning rates, "
        "and the task's own where it is another; of QbE layers. Of a task with folds, the first."
    )
    title = "Heads from the cache beside the encoder in the loop"
    return Table(title, columns, tuple(lines), note).text


def _format_totals(timings: list[TaskTiming]) -> tuple[str, ...]:
    """Return the last four cells of a line, for all timings together."""
    caching = sum(t.caching for t in timings)
    cached, online = sum(t.cached for t in timings), sum(t.online for t in timings)
    return f"{caching:.1f}", f"{cached:.0f}", f"{online:.0f}", f"{online / cached:.1f}"


# ---- timing of one task


def time_heads(cache: FeatureCache, part: TaskPart, turns: int) -> TaskTiming:
    """Time updates of a head on the same batches, from the cache and with the encoder, in turns."""
    task, settings = part.make(cache.encoder.grid)
    start = time.perf_counter()
    loader = cache.make_loader(task)
    caching = time.perf_counter() - start  # little where another task has cached the states
    if not isinstance(loader, CachedLoader):
        raise InputError(
            f"the hidden states of {part.task} do not fit into the cache; leave the "
            "task out with --tasks"
        )
    durations: dict[str, list[float]] = {"cached": [], "online": []}  # seconds of each update
    with torch.random.fork_rng(devices=[]):
        trainers = {}
        for side, states in {"cached": loader, "online": cache.make_online_loader(task)}.items():
            run = HeadRun(task, states, settings, 0, cache.root / "heads")
            trainers[side] = run.make_trainer()
        train = loader.list_usable(task.data.splits["train"])
        batches = draw_shuffled_batches(train, settings.batch, 0, by_length=not task.pooled)
        for turn in range(turns + 1):
            utterances = next(batches)
            for side, trainer in trainers.items():
                start = time.perf_counter()
                trainer.update(utterances, turn + 1)
                if turn > 0:  # the first turn warms up
                    durations[side].append(time.perf_counter() - start)
    return TaskTiming(
        task=part.task,
        # of a whole sweep, as if none ended early
        updates=len({*LEADERBOARD, settings.learning_rate}) * settings.steps,
        cached_step=statistics.median(durations["cached"]),
        online_step=statistics.median(durations["online"]),
        caching=caching,
    )


def time_terms(cache: FeatureCache, part: TaskPart) -> TaskTiming:
    """Time the search of terms. A step is the search with the states of one layer.

    With the cache the states of documents and dev queries are computed once; without, once for
    each layer. The search itself is the same for both and is timed once.
    """
    start = time.perf_counter()
    for split in (DOCUMENTS, "dev"):
        cache.load_states(part.data, (split,), False)
    caching = time.perf_counter() - start
    choose_layer(SpokenTerms(part.data), cache, cache.root / "qbe.json")
    layers = cache.encoder.layers + 1
    search = (time.perf_counter() - start - caching) / layers
    return TaskTiming(
        task=QBE,
        updates=layers,
        cached_step=search,
        online_step=search + caching,
        caching=caching,
    )


if __name__ == "__main__":
    sys.exit(script(time_superb, SuperbSpeed))
