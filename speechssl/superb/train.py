"""Trained heads: a sweep of learning rates into a folder, and back.

`head.safetensors` is the best head on dev, `default.safetensors` that of the task's own learning rate, `card.json` describes both.
An encoder that was trained with them (`tuning`) lies beside them: `encoder`, and `encoder-default` where the rates differ. During
training each rate has a folder of its own, from which a killed run resumes.
"""

from __future__ import annotations

import importlib.metadata
import math
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cmp_to_key
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from tqdm import tqdm

from speechssl.errors import InputError
from speechssl.io import hash_files, read_json, replacing, stage, write_json
from speechssl.superb.fit import Attempt, Run, advance, best_models, own_generator, task_card
from speechssl.superb.task import Task
from speechssl.superb.tuning import save_upstream

KIND = "superb-head"
NEEDED = {"task", "encoder", "states", "width", "settings", "learning_rate", "weights"}  # of a card
HEADS = {"tuned": "head.safetensors", "default": "default.safetensors"}
TrainRuns = Callable[[Sequence[Run], int], list[Attempt]]  # runs, step -> each trained to the step


@dataclass(frozen=True)
class TrainedHead:
    """A head in eval mode with the task it was trained for."""

    task: Task
    head: nn.Module
    card: Mapping[str, Any]
    which: str = "tuned"  # or default: of the task's own learning rate
    upstream: Path | None = None  # the encoder that was trained with it; None: the frozen one it was trained on

    @property
    def weights(self) -> str:
        """Their hash."""
        return str(self.card["weights"][self.which])


def one_after_another(runs: Sequence[Run], steps: int, on_step: Callable[[int], None] = lambda steps: None) -> list[Attempt]:
    """Trains in this process, on one thread where there is no GPU: no result depends on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = []
        for run in runs:
            on_step(0)  # ends this run where another one has failed meanwhile
            found.append(advance(run, steps, on_step))
        return found
    finally:
        torch.set_num_threads(before)


def train_head(
    run: Run,
    encoder: Mapping[str, Any],
    rates: Sequence[float],
    metric: str,
    train_runs: TrainRuns = one_after_another,
    halving: bool = True,
) -> TrainedHead:
    """Train (once) and save a head in run.folder. encoder: the card of what gave the states; metric: the first of the task.

    The learning rate and the steps of run.settings are the task's own. Raises InputError where the folder was made from other
    inputs, or no recording of a split can be read.
    """
    made_from = {
        "encoder": dict(encoder),
        "task": task_card(run.task),
        "settings": asdict(run.settings),
        "rates": list(rates),
        "halving": halving,
        "seed": run.seed,
    }
    with stage(run.folder, made_from):
        if not (run.folder / "card.json").is_file():
            _save(run, encoder, sweep(run, rates, metric, train_runs, halving), metric)
    return load_head(run.folder, run.task, encoder)


def load_head(folder: Path | str, task: Task, encoder: Mapping[str, Any], which: str = "tuned") -> TrainedHead:
    """which: tuned or default.

    Raises InputError where a file is missing or damaged, or head, task and encoder do not belong together.
    """
    path, weights = Path(folder) / "card.json", Path(folder) / HEADS[which]
    card = read_json(path)
    if not isinstance(card, dict) or card.get("kind") != KIND or not NEEDED <= set(card):
        raise InputError(f"{path} is not the card of a head; give the folder that training wrote")
    if card["encoder"] != dict(encoder):
        raise InputError(f"{path} was trained on another encoder (or with another precision); load that one or train again")
    if card["task"] != task_card(task):
        raise InputError(f"{path} was trained for another set than {task.data.root}, or another head; give its own, or train again")
    with own_generator():
        head = task.build(card["states"], card["width"])
    try:
        head.load_state_dict(load_file(weights))
        if hash_files([weights]) != card["weights"][which]:
            raise ValueError("its contents are not those the card was written for")
    except (OSError, SafetensorError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{weights} does not have the weights of its card ({reason}); delete the folder and train again"
        ) from error
    upstream = Path(folder) / card["upstreams"][which] if card.get("upstreams") else None
    return TrainedHead(task, head.eval(), card, which, upstream)


# ---- learning rates

LEADERBOARD = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)  # the rates of SUPERB's rules for its constrained track


@dataclass(frozen=True)
class Sweep:
    """attempts: every rate as far as it was trained, in the given order."""

    attempts: tuple[Attempt, ...]
    tuned: Run
    default: Run
    best: Attempt  # of `tuned`
    untuned: Attempt  # of `default`


def sweep(run: Run, rates: Sequence[float], metric: str, train_runs: TrainRuns, halving: bool = True) -> Sweep:
    """Find the rate that does best on dev by successive halving (Jamieson and Talwalkar, arXiv 1502.07943).

    All rates begin with the same weights and batches. After a small share of the steps the better half goes on for as many again,
    and so on; the last one is trained for all steps: seven rates cost less than three trainings. The task's own rate is trained for
    all steps as well, so that a table can say what tuning is worth.

    run.settings.learning_rate is the task's own; run.folder gets a folder a rate. metric: the task's first. halving: False trains
    every rate for all steps. A single rate is taken, however the task's own does. Ties go to the rate nearest to the task's own.
    """
    own = run.settings.learning_rate
    runs = {rate: run_at(run, rate) for rate in dict.fromkeys([*rates, own])}
    found: dict[float, Attempt] = {}
    left = list(dict.fromkeys(rates)) or [own]
    for steps in rungs(len(left) if halving else 1, run.settings.steps):
        found.update(zip(left, train_runs([runs[rate] for rate in left], steps), strict=True))
        left = better_half([found[rate] for rate in left], metric, own) if steps < run.settings.steps else left
    finalists = left if own in left else [*left, own]
    found.update(zip(finalists, train_runs([runs[rate] for rate in finalists], run.settings.steps), strict=True))
    best = better_half([found[rate] for rate in (finalists if len(rates) > 1 else left)], metric, own)[0]
    return Sweep(tuple(found[rate] for rate in runs), runs[best], runs[own], found[best], found[own])


def run_at(run: Run, rate: float) -> Run:
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


def _save(run: Run, encoder: Mapping[str, Any], swept: Sweep, metric: str) -> None:
    models = {"tuned": best_models(swept.tuned), "default": best_models(swept.default)}
    upstreams: dict[str, str] = {}
    if "upstream" in models["tuned"]:
        upstreams = {"tuned": "encoder", "default": "encoder" if swept.tuned == swept.default else "encoder-default"}
        save_upstream(models["tuned"], run.folder / upstreams["tuned"], swept.tuned)
        if swept.tuned != swept.default:
            save_upstream(models["default"], run.folder / upstreams["default"], swept.default)
    for which, name in HEADS.items():
        weights = models[which]["head"].state_dict()
        with replacing(run.folder / name) as temporary:
            save_file({name: weight.detach().cpu().contiguous() for name, weight in weights.items()}, temporary)
    tried = [
        {"learning_rate": a.learning_rate, "value": None if math.isnan(a.value) else a.value, "best": a.best, "steps": a.steps}
        for a in swept.attempts
    ]
    states, width = run.loader.shape
    head: Any = models["tuned"]["head"]
    card = {
        "kind": KIND,
        "task": task_card(run.task),
        "encoder": dict(encoder),
        "states": states,
        "width": width,
        "metric": metric,
        "settings": asdict(run.settings),
        "seed": run.seed,
        "learning_rate": swept.best.learning_rate,
        "default_learning_rate": swept.untuned.learning_rate,
        "dev": {metric: swept.best.value, "step": swept.best.best},
        "default": {metric: swept.untuned.value, "step": swept.untuned.best},
        "sweep": tried,
        "layer_weights": head.featurizer.shares.tolist(),
        "upstreams": upstreams,
        "seconds": round(sum(a.seconds for a in swept.attempts), 1),
        "steps": sum(a.steps for a in swept.attempts),
        "weights": {which: hash_files([run.folder / name]) for which, name in HEADS.items()},
        "versions": {"torch": importlib.metadata.version("torch")},
    }
    write_json(run.folder / "card.json", card)
    for folder in run.folder.glob("lr-*"):
        shutil.rmtree(folder)


# ---- processes

REPORT_EVERY = 0.5  # seconds
_QUEUE: Any = None  # in a worker process: steps done, to the process that started it


class Stopped(Exception):
    """Training in this process ends because another run failed or the user interrupted."""


@contextmanager
def parallel_training(workers: int, what: str) -> Iterator[TrainRuns]:
    """A function that trains runs to a step, `workers` processes at once, with a bar that counts steps.

    Small heads gain nothing from several threads and much from a core each. A process trains one run after another; what a run
    needs is on disk (cached states, its own state). Runs with the encoder in the loop or on a GPU are trained in this process, one
    after another. Leaving the block by an exception ends all training that is under way; the next run resumes it.
    """
    context, ended = multiprocessing.get_context("spawn"), threading.Event()
    queue = context.Queue()
    bar = tqdm(desc=what, unit="step", unit_scale=True)

    def count_steps() -> None:
        while (steps := queue.get()) is not None:
            bar.update(steps)

    counter = threading.Thread(target=count_steps, daemon=True)
    counter.start()
    pool = ProcessPoolExecutor(workers, context, _start_worker, (queue,))

    def on_step(steps: int) -> None:
        if ended.is_set():
            raise Stopped
        bar.update(steps)

    def train_runs(runs: Sequence[Run], steps: int) -> list[Attempt]:
        if workers == 1 or any(run.device != "cpu" or not hasattr(run.loader, "folders") for run in runs):
            return one_after_another(runs, steps, on_step)
        try:
            return [future.result() for future in [pool.submit(_train_in_worker, run, steps) for run in runs]]
        except BrokenProcessPool as error:
            raise InputError(
                f"a process that trained {runs[0].folder.parent} was killed, perhaps because memory was short; "
                f"run the same command again, with fewer --workers if memory is short"
            ) from error

    try:
        yield train_runs
    except BaseException:
        ended.set()
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=not ended.is_set(), cancel_futures=True)
        queue.put(None)
        counter.join()
        bar.close()


def _start_worker(queue: Any) -> None:
    global _QUEUE
    _QUEUE, parent = queue, os.getppid()
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends its workers

    def exit_with_parent() -> None:
        """A killed parent cannot end its workers; they notice that they are orphans."""
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()


def _train_in_worker(run: Run, steps: int) -> Attempt:
    done, last = 0, time.monotonic()

    def on_step(steps: int) -> None:
        nonlocal done, last
        done += steps
        if time.monotonic() - last > REPORT_EVERY:
            _QUEUE.put(done)
            done, last = 0, time.monotonic()

    found = advance(run, steps, on_step)
    _QUEUE.put(done)
    return found
