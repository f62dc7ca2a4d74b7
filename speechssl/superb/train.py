"""A head from a sweep to a folder, and back: `head.safetensors` is the best on dev, `default.safetensors` that of the task's own
learning rate, `card.json` says what they are. An encoder that was trained with them (`tuning`) lies beside them: `encoder`, and
`encoder-default` where the rates differ. While they are made there is a folder a rate, in which a killed run goes on."""

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
from speechssl.io import claim, hash_files, read_json, replacing, write_json
from speechssl.superb.fit import Attempt, Run, advance, best_models, own_generator, task_card
from speechssl.superb.task import Task
from speechssl.superb.tuning import save_upstream

# Learning rates against each other, by successive halving (Jamieson and Talwalkar, arXiv 1502.07943), on dev.
#
# All rates begin with the same weights and batches. After a small share of the steps the better half goes on for as many again, and
# so on; the last one is trained for all steps. Seven rates cost less than three trainings. The rate that SUPERB names as the task's
# own is trained for all steps as well, so that a table can say what tuning is worth.

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


# Processes that train heads side by side, and tell how far they are.
#
# Small heads gain nothing from several threads, and much from each having a core to itself. A process is begun once and trains
# whatever comes; what it needs is on disk (cached states, the state of the run), so little is handed over.

TOLD_EVERY = 0.5  # seconds
_TOLD: Any = None  # in a process of the crew: the queue to the one that began it


class Stopped(Exception):
    """A run in this process ends, because another one or the user has ended them all."""


@contextmanager
def crew(workers: int, what: str) -> Iterator[Go]:
    """Something that trains runs to a step, `workers` at once, with a bar that counts steps.

    Runs whose states come from the encoder in the loop, or that train on a GPU, are trained in this process, one after another.
    Leaving the block by an exception ends all that is under way; what is missing is trained by the next run.
    """
    context, ended = multiprocessing.get_context("spawn"), threading.Event()
    told = context.Queue()
    bar = tqdm(desc=what, unit="step", unit_scale=True)
    counter = threading.Thread(target=_count, args=(told, bar), daemon=True)
    counter.start()
    pool = ProcessPoolExecutor(workers, context, _begin, (told,))

    def tell(steps: int) -> None:
        if ended.is_set():
            raise Stopped
        bar.update(steps)

    def go(runs: Sequence[Run], steps: int) -> list[Attempt]:
        if workers == 1 or any(run.device != "cpu" or not hasattr(run.supply, "folders") for run in runs):
            return one_after_another(runs, steps, tell)
        try:
            return [future.result() for future in [pool.submit(_advance, run, steps) for run in runs]]
        except BrokenProcessPool as error:
            raise InputError(
                f"a process that trained {runs[0].folder.parent} was killed, perhaps for want of memory; "
                f"the same command goes on, with fewer --workers where memory is short"
            ) from error

    try:
        yield go
    except BaseException:
        ended.set()
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=not ended.is_set(), cancel_futures=True)
        told.put(None)
        counter.join()
        bar.close()


def _begin(told: Any) -> None:
    global _TOLD
    _TOLD = told
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who began it is told, and ends it
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    """A killed parent cannot end its processes; they see that they are orphans."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _advance(run: Run, steps: int) -> Attempt:
    done, last = 0, time.monotonic()

    def tell(steps: int) -> None:
        nonlocal done, last
        done += steps
        if time.monotonic() - last > TOLD_EVERY:
            _TOLD.put(done)
            done, last = 0, time.monotonic()

    found = advance(run, steps, tell)
    _TOLD.put(done)
    return found


def _count(told: Any, bar: Any) -> None:
    while (steps := told.get()) is not None:
        bar.update(steps)


KIND = "superb-head"
NEEDED = {"task", "encoder", "states", "width", "settings", "learning_rate", "weights"}  # of a card
HEADS = {"tuned": "head.safetensors", "default": "default.safetensors"}


@dataclass(frozen=True)
class TrainedHead:
    """A head in eval mode with the task it was trained for."""

    task: Task
    head: nn.Module
    card: Mapping[str, Any]
    which: str = "tuned"  # or default: of the task's own learning rate
    upstream: Path | None = None  # the encoder that was trained with it; None: it sits on the one that it was trained for

    @property
    def weights(self) -> str:
        """Their hash."""
        return str(self.card["weights"][self.which])


def train_head(
    run: Run,
    encoder: Mapping[str, Any],
    rates: Sequence[float],
    metric: str,
    go: Go = one_after_another,
    halving: bool = True,
) -> TrainedHead:
    """Train (once) and save a head in run.folder. encoder: the card of what gave the states; metric: the first of the task.

    The learning rate and the steps of run.settings are the task's own. Raises InputError where the folder was made from other
    inputs, or all recordings of a split had to be set aside.
    """
    made_from = {
        "encoder": dict(encoder),
        "task": task_card(run.task),
        "settings": asdict(run.settings),
        "rates": list(rates),
        "halving": halving,
        "seed": run.seed,
    }
    with claim(run.folder, made_from):
        if not (run.folder / "card.json").is_file():
            _save(run, encoder, sweep(run, rates, metric, go, halving), metric)
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
        raise InputError(f"{path} was trained on another encoder (or its other precision); load that one or train again")
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
            f"{weights} does not hold the weights of its card ({reason}); delete the folder and train again"
        ) from error
    upstream = Path(folder) / card["upstreams"][which] if card.get("upstreams") else None
    return TrainedHead(task, head.eval(), card, which, upstream)


def _save(run: Run, encoder: Mapping[str, Any], swept: Swept, metric: str) -> None:
    models = {"tuned": best_models(swept.tuned), "default": best_models(swept.default)}
    heads = {which: found["head"] for which, found in models.items()}
    upstreams: dict[str, str] = {}
    if "upstream" in models["tuned"]:
        upstreams = {"tuned": "encoder", "default": "encoder" if swept.tuned == swept.default else "encoder-default"}
        save_upstream(models["tuned"], run.folder / upstreams["tuned"], swept.tuned)
        if swept.tuned != swept.default:
            save_upstream(models["default"], run.folder / upstreams["default"], swept.default)
    for which, head in heads.items():
        with replacing(run.folder / HEADS[which]) as temporary:
            save_file({name: weight.detach().cpu().contiguous() for name, weight in head.state_dict().items()}, temporary)
    states, width = run.supply.shape
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
        "sweep": [_told(attempt) for attempt in swept.attempts],
        "layer_weights": _shares(heads["tuned"]),
        "upstreams": upstreams,
        "seconds": round(sum(a.seconds for a in swept.attempts), 1),
        "steps": sum(a.steps for a in swept.attempts),
        "weights": {which: hash_files([run.folder / name]) for which, name in HEADS.items()},
        "versions": {"torch": importlib.metadata.version("torch")},
    }
    write_json(run.folder / "card.json", card)
    for folder in run.folder.glob("lr-*"):
        shutil.rmtree(folder)


def _told(attempt: Attempt) -> dict[str, Any]:
    value = None if math.isnan(attempt.value) else attempt.value
    return {"learning_rate": attempt.learning_rate, "value": value, "best": attempt.best, "steps": attempt.steps}


def _shares(head: nn.Module) -> list[float]:
    """How much of the weighted sum each hidden state is."""
    shares: list[float] = head.featurizer.shares.tolist()  # type: ignore[union-attr, operator]
    return shares
