"""The gain of caching: training of heads from cached states beside the same heads with the encoder in the loop, in one process.

For every task both take steps on the same batches in turns; medians are compared. The time of a benchmark is that of computing the
cache and of all steps of a sweep, at the median of the timed ones; without a cache, that of all the steps with the encoder in each.
Evaluations on dev are left out on both sides. QbE compares all layers on dev; without a cache every layer is encoded anew, as by
s3prl's program.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

from speechssl.data.superb import DOCUMENTS
from speechssl.errors import InputError
from speechssl.eval.config import LEADERBOARD, Superb
from speechssl.eval.superb import Part, choose_layer, feature_cache, parts_of, plan_of
from speechssl.results import Row, Table, append_rows
from speechssl.superb.data import TRAINING, CachedLoader, FeatureCache
from speechssl.superb.tasks import QBE
from speechssl.superb.tasks.spoken_terms import SpokenTerms
from speechssl.superb.train import Run, own_generator, rungs, shuffled_batches

Timed = tuple[str, int, float, float, float]  # task, updates of the whole sweep; seconds: of a cached step, of another, of caching


def compare_cached(o: Superb, turns: int) -> str:
    """Time every task, write rows `ratio_cached` (of each task, and of `all` together), and return the table.

    The states are computed anew into a folder of their own, which is removed. Raises InputError as `run_superb`.
    """
    plan, out = plan_of(o), o.out
    name, where = next(iter(plan.encoders.items()))
    parts = [parts_of(task, plan.data[task], o.sets.preset)[0] for task in plan.data]
    out.mkdir(parents=True, exist_ok=True)
    timed = []
    with tempfile.TemporaryDirectory(dir=out, prefix=".speed-") as folder:
        cache = feature_cache(Path(folder), name, where, plan)
        cache.encoder.hidden_states(np.random.default_rng(0).standard_normal(32_000).astype(np.float32))  # the first call is slow
        for part in tqdm(parts, "timing", unit="task"):
            timed.append(_time_terms(cache, part) if part.task == QBE else _time_heads(cache, part, turns))
    lines, every, ratios = [], [0.0, 0.0, 0.0], []
    for task, count, cached_step, online_step, caching in timed:
        cached, online = caching + count * cached_step, count * online_step
        every = [a + b for a, b in zip(every, (caching, cached, online), strict=True)]
        ratios.append((task, online / cached))
        steps = (f"{count:,}", f"{1000 * cached_step:.1f}", f"{1000 * online_step:.1f}")
        lines.append((task, *steps, f"{caching:.1f}", f"{cached:.0f}", f"{online:.0f}", f"{online / cached:.1f}"))
    caching, cached, online = every
    lines.append(("all", "", "", "", f"{caching:.1f}", f"{cached:.0f}", f"{online:.0f}", f"{online / cached:.1f}"))
    ratios += [("all", online / cached)] if len(timed) > 1 else []
    card = {"preset": o.sets.preset, "workers": o.sets.workers}
    rows = [Row(task, name, "clean", None, "ratio_cached", ratio, None, None, 1, 0, card) for task, ratio in ratios]
    append_rows(out / "results.jsonl", rows, any_card=True)
    steps = ("updates", "ms a step, cached", "ms a step, encoder in the loop")
    columns = ("task", *steps, "caching, s", "all, cached, s", "all, in the loop, s", "ratio")
    note = "Updates of a whole sweep of seven learning rates."
    return Table("Heads from the cache beside the encoder in the loop", columns, tuple(lines), note).text


def _time_heads(cache: FeatureCache, part: Part, turns: int) -> Timed:
    task, settings = part.make(cache.encoder.grid)
    caching = _time_caching(cache, part, TRAINING, task.pooled)
    loader = cache.loader(task)
    if not isinstance(loader, CachedLoader):
        raise InputError(f"the hidden states of {part.task} do not fit on the disk; leave the task out with --tasks")
    left, before, steps = len(LEADERBOARD), 0, settings.steps  # a sweep without early ends, and the task's own rate
    for rung in rungs(left, settings.steps):
        steps += left * (rung - before)
        left, before = -(-left // 2), rung
    taken: tuple[list[float], list[float]] = ([], [])
    with own_generator():
        trainers = [Run(task, x, settings, 0, cache.root / "heads").trainer() for x in (loader, cache.online(task))]
        batches = shuffled_batches(loader.usable(task.data.splits["train"]), settings.batch, 0, by_length=not task.pooled)
        for turn in range(turns + 1):
            utterances = next(batches)
            for trainer, seconds in zip(trainers, taken, strict=True):
                began = time.perf_counter()
                trainer.update(utterances, turn + 1)
                if turn:  # the first warms up
                    seconds.append(time.perf_counter() - began)
    return part.task, steps, statistics.median(taken[0]), statistics.median(taken[1]), caching


def _time_caching(cache: FeatureCache, part: Part, splits: tuple[str, ...], pooled: bool) -> float:
    """Seconds; 0 where another task did it."""
    began, options = time.perf_counter(), cache.options(pooled)
    if (cache.folder(part.data, splits, options) / "card.json").is_file():
        return 0.0
    cache.states(part.data, splits, options)
    return time.perf_counter() - began


def _time_terms(cache: FeatureCache, part: Part) -> Timed:
    """A step is the search with the states of one layer.

    With the cache the states are computed once; without, once for each layer and for the test queries. The search itself is the
    same for both and is timed once.
    """
    caching = sum(_time_caching(cache, part, (split,), False) for split in (DOCUMENTS, "dev"))
    layers, began = cache.encoder.layers + 1, time.perf_counter()
    choose_layer(SpokenTerms(part.data), cache, cache.root / "qbe.json")
    search = (time.perf_counter() - began) / layers
    return QBE, layers, search, search + caching, caching
