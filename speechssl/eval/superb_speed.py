"""What caching is worth: training of heads from cached states beside the same heads with the encoder in the loop, in one process.

For every task both take steps on the same batches in turns; medians are compared. A benchmark is more than steps: its time with the
cache is that of computing the cache and of all steps of a sweep, at the median of the timed ones; without, that of all the steps
with the encoder in each. Looks at dev, which would hear the dev set again and again in the loop, are left out on both sides. QbE
looks at all layers on dev; without a cache every layer is heard anew, as s3prl's program does.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.data.utterances import DOCUMENTS, UtteranceSet
from speechssl.errors import InputError
from speechssl.eval.states import TRAINING, Stock, options_of
from speechssl.eval.superb import Part, Plan, parts_of, stock_of
from speechssl.eval.tables import Table
from speechssl.results import Row, append_rows
from speechssl.superb.catalogue import ORDER, QBE, make_task
from speechssl.superb.data import Cached, InTheLoop, Supply
from speechssl.superb.fit import batches_of
from speechssl.superb.task import Settings, Task
from speechssl.superb.train import LEADERBOARD, rungs


@dataclass(frozen=True)
class Timed:
    """A task, in seconds. steps: updates of the whole sweep."""

    task: str
    steps: int
    cached_step: float
    live_step: float
    caching: float  # its states, once

    @property
    def cached(self) -> float:
        return self.caching + self.steps * self.cached_step

    @property
    def live(self) -> float:
        return self.steps * self.live_step

    @property
    def ratio(self) -> float:
        return self.live / self.cached


def compare_cached(out: Path, plan: Plan, turns: int) -> str:
    """Time every task, write rows `ratio_cached` (of each task, and of `all` together), and return the table.

    The states are computed anew into a folder of their own, which is removed. Raises InputError as `run_superb`.
    """
    import tempfile

    (name, where), timed = next(iter(plan.encoders.items())), []
    parts = [parts_of(task, plan.data[task], plan.preset)[0] for task in ORDER if task in plan.data]
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".speed-") as folder:
        stock = stock_of(Path(folder), name, where, plan)
        _warm(stock)
        for part in tqdm(parts, "timing", unit="task"):
            timed.append(_terms(stock, part) if part.task == QBE else _heads(stock, part, turns))
    rows = [_row(t.task, name, t.ratio, plan) for t in timed]
    if len(timed) > 1:
        rows.append(_row("all", name, sum(t.live for t in timed) / sum(t.cached for t in timed), plan))
    append_rows(out / "results.jsonl", rows, any_card=True)
    return _table(timed).text


def _warm(stock: Stock) -> None:
    """The first call of an encoder is slower than others."""
    import numpy as np

    stock.encoder.hidden_states(np.random.default_rng(0).standard_normal(32_000).astype(np.float32))


def _heads(stock: Stock, part: Part, turns: int) -> Timed:
    task, settings = make_task(part.task, part.data, stock.encoder.grid, part.preset)
    caching = _caching(stock, part.data, TRAINING, task.pooled)
    supply = stock.supply(task, TRAINING)
    if not isinstance(supply, Cached):
        raise InputError(f"the hidden states of {part.task} do not fit on the disk; leave the task out with --tasks")
    live = InTheLoop(stock.encoder, lambda u: read_audio(task.data.path(u)), task.pooled, task.wants_waves, stock.pool)
    steps = sum(_updates(len(LEADERBOARD), settings))
    cached_step, live_step = _steps(task, settings, (supply, live), turns)
    return Timed(part.task, steps, cached_step, live_step, caching)


def _caching(stock: Stock, data: UtteranceSet, splits: tuple[str, ...], pooled: bool) -> float:
    """Seconds; 0 where another task did it."""
    began, options = time.perf_counter(), options_of(pooled, stock.limit_gb)
    there = (stock.folder(data, splits, options) / "card.json").is_file()
    stock.states(data, splits, options)
    return 0.0 if there else time.perf_counter() - began


def _updates(rates: int, settings: Settings) -> Iterator[int]:
    """Of the rungs of a sweep without early ends, and of the task's own rate."""
    left, before = rates, 0
    for steps in rungs(rates, settings.steps):
        yield left * (steps - before)
        left, before = -(-left // 2), steps
    yield settings.steps


def _steps(task: Task, settings: Settings, supplies: tuple[Supply, Supply], turns: int) -> tuple[float, float]:
    """Median seconds of an update with each supply, in turns on the same batches."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = task.build(*supplies[0].shape).train()
        optimiser = torch.optim.Adam(head.parameters(), settings.learning_rate, fused=True)
        usable = supplies[0].usable(task.data.splits["train"])
        batches = batches_of(usable, settings.batch, 0, by_length=not task.pooled)
        taken: tuple[list[float], list[float]] = ([], [])
        for turn in range(turns + 1):
            batch = next(batches)
            for supply, seconds in zip(supplies, taken, strict=True):
                began = time.perf_counter()
                _update(task, settings, head, optimiser, supply, batch)
                if turn:  # the first warms up
                    seconds.append(time.perf_counter() - began)
    return statistics.median(taken[0]), statistics.median(taken[1])


def _update(task: Task, settings: Settings, head: nn.Module, optimiser: Any, supply: Supply, batch: list[Any]) -> None:
    heard = supply.batch(batch)
    if heard is None:
        raise InputError(f"the recordings {', '.join(u.id for u in batch)} cannot be heard; mend them or remove their lines")
    optimiser.zero_grad()
    task.loss(head, heard).backward()
    torch.nn.utils.clip_grad_norm_(head.parameters(), settings.clip)
    optimiser.step()


def _terms(stock: Stock, part: Part) -> Timed:
    """A step is the search with one layer's states heard: with the cache they are computed once, without, once for each layer and
    for the test queries. The search itself is the same for both and is timed once."""
    from speechssl.eval.superb import choose
    from speechssl.superb.tasks.spoken_terms import SpokenTerms

    splits = (DOCUMENTS, "dev")
    caching = sum(_caching(stock, part.data, (split,), False) for split in splits)
    began = time.perf_counter()
    choose(SpokenTerms(part.data), stock, stock.root / "qbe.json")
    search, layers = (time.perf_counter() - began) / (stock.encoder.layers + 1), stock.encoder.layers + 1
    return Timed(QBE, layers, search, search + caching, caching)


def _row(task: str, encoder: str, ratio: float, plan: Plan) -> Row:
    return Row(
        task, encoder, "clean", None, "ratio_cached", ratio, None, None, 1, 0, {"preset": plan.preset, "workers": plan.workers}
    )


def _table(timed: list[Timed]) -> Table:
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
    lines = [
        (
            t.task,
            f"{t.steps:,}",
            f"{1000 * t.cached_step:.1f}",
            f"{1000 * t.live_step:.1f}",
            f"{t.caching:.1f}",
            f"{t.cached:.0f}",
            f"{t.live:.0f}",
            f"{t.ratio:.1f}",
        )
        for t in timed
    ]
    cached, live = sum(t.cached for t in timed), sum(t.live for t in timed)
    lines.append(
        ("all", "", "", "", f"{sum(t.caching for t in timed):.1f}", f"{cached:.0f}", f"{live:.0f}", f"{live / cached:.1f}")
    )
    return Table(
        "Heads from the cache beside the encoder in the loop",
        columns,
        tuple(lines),
        "Updates of a whole sweep of seven learning rates.",
    )
