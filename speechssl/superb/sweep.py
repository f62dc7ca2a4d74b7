"""Learning rates against each other, by successive halving (Jamieson and Talwalkar, arXiv 1502.07943), on dev.

All rates begin with the same weights and batches. After a small share of the steps the better half goes on for as many again, and
so on; the last one is trained for all steps. Seven rates cost less than three trainings. The rate that SUPERB names as the task's
own is trained for all steps as well, so that a table can say what tuning is worth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from pathlib import Path

import torch

from speechssl.superb.fit import Attempt, Run, advance

LEADERBOARD = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)  # the rates of SUPERB's rules for its constrained track
Go = Callable[[Sequence[Run], int], list[Attempt]]


@dataclass(frozen=True)
class Swept:
    """What the rates came to. Each as far as it was trained, in the order they were given."""

    attempts: tuple[Attempt, ...]
    tuned: Run
    default: Run
    best: Attempt  # of `tuned`
    untuned: Attempt  # of `default`


def sweep(run: Run, rates: Sequence[float], metric: str, go: Go, halving: bool = True) -> Swept:
    """Find the rate that does best on dev. run.settings.learning_rate is the task's own, run.folder gets a folder a rate.

    metric: the task's first. go: trains runs to a step, several at once where that helps. halving: else every rate gets all steps.
    A single rate is taken, however the task's own does. Ties go to the rate nearest to the task's own.
    """
    own = run.settings.learning_rate
    runs = {rate: of_rate(run, rate) for rate in dict.fromkeys([*rates, own])}
    found: dict[float, Attempt] = {}
    left = list(dict.fromkeys(rates)) or [own]
    for steps in rungs(len(left) if halving else 1, run.settings.steps):
        found.update(zip(left, go([runs[rate] for rate in left], steps), strict=True))
        left = better_half([found[rate] for rate in left], metric, own) if steps < run.settings.steps else left
    finalists = left if own in left else [*left, own]
    found.update(zip(finalists, go([runs[rate] for rate in finalists], run.settings.steps), strict=True))
    best = better_half([found[rate] for rate in (finalists if len(rates) > 1 else left)], metric, own)[0]
    attempts = tuple(found[rate] for rate in runs)
    return Swept(attempts, runs[best], runs[own], found[best], found[own])


def of_rate(run: Run, rate: float) -> Run:
    """The same run at another learning rate, in a folder of its own."""
    return replace(run, settings=replace(run.settings, learning_rate=rate), folder=Path(run.folder) / f"lr-{rate:g}")


def rungs(rates: int, steps: int) -> list[int]:
    """The steps after which half of the rates go on: 7 rates and 800 steps give 100 (7 left), 200 (4), 400 (2), 800 (1)."""
    count = max(math.ceil(math.log2(max(rates, 1))), 0)
    return [max(steps >> k, 1) for k in range(count, -1, -1)]


def better_half(attempts: Sequence[Attempt], metric: str, own: float) -> list[float]:
    """The rates of the better half (at least one), the best first; of equals those nearest to the task's own."""

    def compare(a: Attempt, b: Attempt) -> int:
        return -1 if a.beats(b, metric) else 1 if b.beats(a, metric) else 0

    near = sorted(attempts, key=lambda a: abs(math.log(a.learning_rate / own)))
    ordered = sorted(near, key=cmp_to_key(compare))
    return [a.learning_rate for a in ordered[: math.ceil(len(ordered) / 2)]]


def one_after_another(runs: Sequence[Run], steps: int, tell: Callable[[int], None] = lambda steps: None) -> list[Attempt]:
    """In this process, on one thread where there is no GPU: so no result depends on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = []
        for run in runs:
            tell(0)  # it may have been ended while another was trained
            found.append(advance(run, steps, tell))
        return found
    finally:
        torch.set_num_threads(before)
