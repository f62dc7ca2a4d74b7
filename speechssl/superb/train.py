"""Heads are trained here: one run at one learning rate, a sweep of rates into a folder, several
runs in processes.

A run is a folder with one file, `state.pt`: weights (of the head, and of what is trained with it:
`tuning`), the optimiser's moments, and the best head so far by the first measure on dev. It is
written at every evaluation on dev, whole or not at all, so that a killed run resumes there and
comes to the same head: what is random in a step depends on the seed and the number of the step
alone. Heads do not train with `training.fit`: on one core the Hugging Face Trainer took 128 steps a
second of a KS head on cached means, this loop 200, and choosing the best head on dev and its ties
would be callbacks.

A trained head is a folder: `head.safetensors` is the best on dev, `default.safetensors` that of the
task's own learning rate, `card.json` describes both. An encoder that was trained with them
(`tuning`) lies beside them: `encoder`, and `encoder-default` where the rates differ.
"""

from __future__ import annotations

import importlib.metadata
import json
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
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean as mean
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from tqdm import tqdm

from speechssl.artifacts import hash_files, read_json, replacing, stage
from speechssl.data.superb import Utterance
from speechssl.errors import InputError
from speechssl.finetuning import trained_parameters
from speechssl.results import LOWER_IS_BETTER
from speechssl.superb.data import HeadSettings, Loader, Task

STATE = "state.pt"
# fields of a task that its head does not depend on
UNSIZED = ("name", "data", "grid", "language_model", "beam")
POOL = 20  # batches whose recordings are sorted by length, so that little is padding
# torch has one generator for all threads, and tasks are trained side by side
_GENERATOR = threading.RLock()
KIND = "superb-head"
HEADS = {"tuned": "head.safetensors", "default": "default.safetensors"}
OnStep = Callable[[int], None]  # is told how many steps were made


# ---- a run


@dataclass(frozen=True)
class Attempt:
    """An attempt says how far a learning rate was trained, and its best evaluation on dev."""

    learning_rate: float
    value: float = math.nan  # the first measure on dev, percent or dB
    tie: float = 0.0  # decides between equal values: the loss on dev, nats, if the task gives it
    best: int = 0  # the step of that evaluation
    steps: int = 0  # steps done
    stale: int = 0  # evaluations since the best
    ended: bool = False  # patience is used up, or loss or gradient are not finite
    seconds: float = 0.0  # of training, evaluations included

    def beats(self, other: Attempt, metric: str) -> bool:
        """Say whether it is better on dev; False for equals."""
        if math.isnan(self.value) or math.isnan(other.value):
            return math.isnan(other.value) and not math.isnan(self.value)
        sign = -1 if metric in LOWER_IS_BETTER else 1
        return (sign * self.value, -self.tie) > (sign * other.value, -other.tie)


@dataclass(frozen=True)
class HeadRun:
    """A run trains a task's head on the batches of a loader, in a folder. tuning: None for a frozen
    encoder in clean speech."""

    task: Task
    loader: Loader
    settings: HeadSettings
    seed: int
    folder: Path
    device: str = "cpu"
    tuning: Any = None  # a `tuning.Tuning`

    def trainer(self) -> Trainer:
        return Trainer(self) if self.tuning is None else self.tuning.trainer(self)


def task_card(task: Task) -> dict[str, Any]:
    """Describe the task with its data and the sizes of its head, as JSON values."""
    names: list[str] = [f.name for f in fields(task)] if is_dataclass(task) else []
    sizes = {name: getattr(task, name) for name in names if name not in UNSIZED}
    return {
        "name": task.name,
        "data": task.data.hash,
        "sizes": json.loads(json.dumps(sizes, default=str)),
    }


@contextmanager
def own_generator() -> Iterator[None]:
    """Give torch's generator to one thread alone; its state is restored afterwards."""
    with _GENERATOR, torch.random.fork_rng(devices=[]):
        yield


def train_run(run: HeadRun, on_step: OnStep = lambda steps: None) -> Attempt:
    """Train a run to its end, or resume it; nothing is done where it has ended.

    An exception from `on_step` ends the run, which resumes from its last evaluation. The state of
    torch's generator is left alone. Raises InputError where no recording of a split can be read.
    """
    with own_generator():
        return run.trainer().train(on_step)


def load_best(run: HeadRun) -> nn.ModuleDict:
    """Load `head` as it was at the best evaluation on dev, and what was trained with it."""
    with own_generator():
        trainer = run.trainer()
    trainer.models.load_state_dict(trainer.best)
    return trainer.models.eval()


class Trainer:
    """Train all `models`, the head first. `tuning.TuningTrainer` replaces build, rates, prepare,
    loss and dev_loaders."""

    def __init__(self, run: HeadRun) -> None:
        self.run = run
        torch.manual_seed(run.seed)
        self.models = self.build().to(run.device)
        self.head = self.models["head"]
        kinds: dict[str, Any] = {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}
        groups = [
            {"params": list(self.models[name].parameters()), "lr": rate}
            for name, rate in self.rates().items()
        ]
        kind = kinds[run.settings.optimiser]
        self.optimiser = kind(groups, run.settings.learning_rate, fused=True)
        self.best: dict[str, Tensor] = {}
        self.attempt = Attempt(run.settings.learning_rate)
        if (run.folder / STATE).is_file():
            state = torch.load(run.folder / STATE, run.device, weights_only=True)
            self.models.load_state_dict(state["models"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.best = state["best"]
            self.attempt = Attempt(**state["attempt"])

    def build(self) -> nn.ModuleDict:
        """Make new models, on the CPU."""
        return nn.ModuleDict({"head": self.run.task.build(*self.run.loader.shape)})

    def rates(self) -> dict[str, float]:
        """Return the learning rate of each model."""
        return dict.fromkeys(self.models, self.run.settings.learning_rate)

    def prepare(self, steps: Iterator[tuple[int, list[Utterance]]]) -> Iterator[tuple[int, Any]]:
        """Yield (step, input of `loss`). It may read ahead."""
        return steps

    def loss(self, utterances: Any, step: int) -> Tensor:
        """Return the loss of this step. Raises InputError where no recording can be read."""
        batch = self.run.loader.batch(utterances)
        if batch is None:
            names = ", ".join(u.id for u in utterances)
            raise InputError(
                f"the recordings {names} cannot be read; fix them or remove their lines"
            )
        return self.run.task.loss(self.head, batch.to(self.run.device))

    def dev_loaders(self) -> list[Loader]:
        """Return the loaders over which the mean score chooses a head."""
        return [self.run.loader]

    def train(self, on_step: OnStep) -> Attempt:
        settings = self.run.settings
        if self.attempt.ended or self.attempt.steps == settings.steps:
            return self.attempt
        dev = self._usable("dev")
        batches = enumerate(self._batches(self._usable("train")), 1)
        began = time.perf_counter()
        if not self.best:
            self._evaluate(dev, 0)
        for step, batch in self.prepare(islice(batches, self.attempt.steps, settings.steps)):
            finite = self.update(batch, step)
            on_step(1)
            if not finite:
                self.attempt = replace(self.attempt, steps=step, ended=True)
            elif step % settings.every == 0 or step == settings.steps:
                self._evaluate(dev, step)
            else:
                continue
            now = time.perf_counter()
            self.attempt = replace(self.attempt, seconds=self.attempt.seconds + now - began)
            began = now
            self._save()
            if self.attempt.ended:
                break
        return self.attempt

    def update(self, prepared: Any, step: int) -> bool:
        """Make one step of the optimiser, and say whether loss and gradient were finite; the
        weights stay as they are where not."""
        # heads of means have nothing random in them
        if self.run.tuning or not self.run.task.pooled:
            # far apart, so that no step of one seed has the draws of a step of another
            torch.manual_seed(self.run.seed * 1_000_003 + step)
        self.models.train()
        loss = self.loss(prepared, step)
        self.optimiser.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.models.parameters(), self.run.settings.clip)
        if not torch.isfinite(norm):
            return False
        self.optimiser.step()
        return True

    def _usable(self, split: str) -> list[Utterance]:
        data = self.run.task.data
        usable = self.run.loader.usable(data.splits[split])
        if not usable:
            raise InputError(
                f"no recording of {data.root / split}.jsonl could be read; fix them or prepare "
                "the set again"
            )
        return usable

    def _batches(self, train: Sequence[Utterance]) -> Iterator[list[Utterance]]:
        run, settings = self.run, self.run.settings
        if settings.balanced:
            weights = run.task.weights(train)  # type: ignore[attr-defined]
            return weighted_batches(train, settings.batch, run.seed, weights)
        by_length = run.tuning is not None or not run.task.pooled
        return shuffled_batches(train, settings.batch, run.seed, by_length)

    def _evaluate(self, dev: Sequence[Utterance], step: int) -> None:
        """Evaluate the head on dev; keep it where it is the best so far."""
        run, before = self.run, self.attempt
        self.models.eval()
        heads = {"head": (run.task, self.head)}
        evaluations = []
        for loader in self.dev_loaders():
            predicted = predict(heads, loader, dev, run.settings.batch, run.device)["head"]
            evaluations.append(run.task.evaluate("dev", predicted, 0))
        value = mean(x.measures[0].value for x in evaluations)
        tie = mean(float(x.detail.get("loss", 0.0)) for x in evaluations)
        attempt = replace(before, value=value, tie=tie, best=step, steps=step, stale=0)
        if attempt.beats(before, evaluations[0].measures[0].metric):
            self.attempt = attempt
            weights = self.models.state_dict()
            self.best = {name: weight.detach().cpu().clone() for name, weight in weights.items()}
        else:
            stale = before.stale + 1
            ended = 0 < run.settings.patience <= stale
            self.attempt = replace(before, steps=step, stale=stale, ended=ended)

    def _save(self) -> None:
        state = {
            "models": self.models.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "best": self.best,
            "attempt": asdict(self.attempt),
        }
        with replacing(self.run.folder / STATE) as temporary:
            torch.save(state, temporary)


@torch.no_grad()
def predict(
    heads: Mapping[str, tuple[Task, nn.Module]],
    loader: Loader,
    utterances: Sequence[Utterance],
    batch: int,
    device: str = "cpu",
    what: str = "",
) -> dict[str, dict[str, Any]]:
    """Predict for all recordings that can be read: by head, then by id; every recording is encoded
    once for all heads.

    Batches are of like lengths, so that little is padding. what: for the progress bar, which there
    is none of without it.
    """
    ordered = sorted(loader.usable(utterances), key=lambda u: u.seconds)
    by_head: dict[str, dict[str, Any]] = {name: {} for name in heads}
    for at in tqdm(range(0, len(ordered), batch), desc=what, unit="batch", disable=not what):
        part = loader.batch(ordered[at : at + batch])
        if part is None:
            continue
        names = [u.id for u in part.utterances]
        for name, (task, head) in heads.items():
            predicted = task.predict(head, part.to(device))
            by_head[name].update(zip(names, predicted, strict=True))
    return by_head


def weighted_batches(
    utterances: Sequence[Utterance], size: int, seed: int, weights: Tensor
) -> Iterator[list[Utterance]]:
    """Yield batches without end, drawn with replacement. weights: of each utterance."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        drawn = torch.multinomial(weights, size, replacement=True, generator=generator)
        yield [utterances[i] for i in drawn.tolist()]


def shuffled_batches(
    utterances: Sequence[Utterance], size: int, seed: int, by_length: bool
) -> Iterator[list[Utterance]]:
    """Yield batches without end: all utterances in a new order, again and again. An incomplete last
    batch is left out.

    by_length: of every POOL batches those of like length go together.
    """
    generator = torch.Generator().manual_seed(seed)
    size = min(size, len(utterances))
    while True:
        order = torch.randperm(len(utterances), generator=generator).tolist()
        whole = order[: len(order) // size * size]
        if not by_length:
            for at in range(0, len(whole), size):
                yield [utterances[i] for i in whole[at : at + size]]
            continue
        for at in range(0, len(whole), POOL * size):
            near = sorted(whole[at : at + POOL * size], key=lambda i: utterances[i].seconds)
            for batch in torch.randperm(len(near) // size, generator=generator).tolist():
                yield [utterances[i] for i in near[batch * size : (batch + 1) * size]]


# ---- processes

TrainRuns = Callable[[Sequence[HeadRun]], list[Attempt]]  # trains each run to its end
_QUEUE: Any = None  # in a worker process: steps done, to the process that started it


def train_one_by_one(
    runs: Sequence[HeadRun], on_step: OnStep = lambda steps: None
) -> list[Attempt]:
    """Train in this process, on one thread where there is no GPU: no result depends on the number
    of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        attempts = []
        for run in runs:
            on_step(0)  # ends this run where another one has failed meanwhile
            attempts.append(train_run(run, on_step))
        return attempts
    finally:
        torch.set_num_threads(before)


class Stopped(Exception):
    """Training in this process ends because another run failed or the user interrupted."""


@contextmanager
def parallel_training(workers: int, what: str) -> Iterator[TrainRuns]:
    """Give a function that trains runs, `workers` processes at once, with a bar that counts steps.

    Small heads gain nothing from several threads and much from a core each. A process trains one
    run after another; what a run needs is on disk (cached states, its own state). Runs with the
    encoder in the loop or on a GPU are trained in this process, one after another. Leaving the
    block by an exception ends all training that is under way; the next run resumes it.
    """
    context = multiprocessing.get_context("spawn")
    ended = threading.Event()
    queue = context.Queue()
    bar = tqdm(desc=what, unit="step", unit_scale=True)

    def count_steps() -> None:
        for steps in iter(queue.get, None):
            bar.update(steps)

    def on_step(steps: int) -> None:
        if ended.is_set():
            raise Stopped
        bar.update(steps)

    def train_runs(runs: Sequence[HeadRun]) -> list[Attempt]:
        cached = all(run.device == "cpu" and hasattr(run.loader, "folder") for run in runs)
        if workers == 1 or not cached:
            return train_one_by_one(runs, on_step)
        try:
            return list(pool.map(_train_in_worker, runs))
        except BrokenProcessPool as error:
            raise InputError(
                f"a process that trained {runs[0].folder.parent} was killed, perhaps because "
                "memory was short; run the same command again, perhaps with fewer --workers"
            ) from error

    counter = threading.Thread(target=count_steps, daemon=True)
    counter.start()
    pool = ProcessPoolExecutor(workers, context, _start_worker, (queue,))
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
    _QUEUE = queue
    parent = os.getppid()
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends its workers

    def exit_with_parent() -> None:
        """Notice that this is an orphan: a killed parent cannot end its workers."""
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()


def _train_in_worker(run: HeadRun) -> Attempt:
    return train_run(run, _QUEUE.put)


# ---- learning rates


def sweep_learning_rates(
    run: HeadRun, rates: Sequence[float], metric: str, train_runs: TrainRuns
) -> tuple[list[Attempt], Attempt, Attempt]:
    """Train a head with every rate, and with the task's own, and find the one that does best on
    dev. Returns all in the given order, the best, and the task's own.

    All rates begin with the same weights and batches. run.settings.learning_rate is the task's own;
    run.folder gets a folder a rate. metric: the task's first. A single rate is taken, however the
    task's own does. Ties go to the rate nearest to the task's own.
    """
    own_rate = run.settings.learning_rate
    runs = {rate: with_rate(run, rate) for rate in (*rates, own_rate)}
    attempts = dict(zip(runs, train_runs(list(runs.values())), strict=True))
    candidates = list(attempts.values()) if len(rates) > 1 else [attempts[rates[0]]]
    best = choose_attempt(candidates, metric, own_rate)
    return list(attempts.values()), best, attempts[own_rate]


def with_rate(run: HeadRun, rate: float) -> HeadRun:
    """Return the same run at another learning rate, in a folder of its own."""
    settings = replace(run.settings, learning_rate=rate)
    return replace(run, settings=settings, folder=run.folder / f"lr-{rate:g}")


def choose_attempt(attempts: Sequence[Attempt], metric: str, own_rate: float) -> Attempt:
    """Return the best; of equals the one whose rate is nearest to the task's own."""
    near = sorted(attempts, key=lambda a: abs(math.log(a.learning_rate / own_rate)))
    best = near[0]
    for attempt in near[1:]:
        if attempt.beats(best, metric):
            best = attempt
    return best


# ---- trained heads


@dataclass(frozen=True)
class TrainedHead:
    """A trained head is in eval mode, with the task it was trained for."""

    task: Task
    head: nn.Module
    card: Mapping[str, Any]
    which: str = "tuned"  # or default: of the task's own learning rate
    # the encoder that was trained with it; None: the frozen one it was trained on
    upstream: Path | None = None

    @property
    def weights(self) -> str:
        """Return the hash of its weights."""
        return str(self.card["weights"][self.which])


def train_head(
    run: HeadRun,
    encoder: Mapping[str, Any],
    rates: Sequence[float],
    metric: str,
    train_runs: TrainRuns = train_one_by_one,
) -> TrainedHead:
    """Train (once) and save a head in run.folder. encoder: the card of what gave the states;
    metric: the first of the task.

    The learning rate and the steps of run.settings are the task's own. Raises InputError where the
    folder was made from other inputs, or no recording of a split can be read.
    """
    made_from = {
        "encoder": dict(encoder),
        "task": task_card(run.task),
        "settings": asdict(run.settings),
        "rates": list(rates),
        "seed": run.seed,
    }
    with stage(run.folder, made_from) as step:
        if not step.done:
            attempts, best, default = sweep_learning_rates(run, rates, metric, train_runs)
            facts = save_heads(run, best, default)
            sweep = []
            for a in attempts:
                value = None if math.isnan(a.value) else a.value
                steps = {"best": a.best, "steps": a.steps}
                sweep.append({"learning_rate": a.learning_rate, "value": value} | steps)
            card = made_from | facts
            card |= {
                "kind": KIND,
                "metric": metric,
                "learning_rate": best.learning_rate,
                "default_learning_rate": default.learning_rate,
                "dev": {metric: best.value, "step": best.best},
                "default": {metric: default.value, "step": default.best},
                "sweep": sweep,
                "seconds": round(sum(a.seconds for a in attempts), 1),
                "steps": sum(a.steps for a in attempts),
                "versions": {"torch": importlib.metadata.version("torch")},
            }
            step.finish(card)
            for folder in run.folder.glob("lr-*"):
                shutil.rmtree(folder)
    return load_head(run.folder, run.task, encoder)


def save_heads(run: HeadRun, best: Attempt, default: Attempt) -> dict[str, Any]:
    """Write both heads and the encoders that were trained with them; return what the card says of
    them."""
    rates = {"tuned": best.learning_rate, "default": default.learning_rate}
    upstreams: dict[str, str] = {}
    hashes = {}
    for which, rate in rates.items():
        one_run = with_rate(run, rate)
        models = load_best(one_run)
        if which == "tuned":
            head: Any = models["head"]
            shares = head.featurizer.shares.tolist()
            trained = trained_parameters(models)  # before `Tuning.save` merges some
        weights = {name: x.cpu().contiguous() for name, x in models["head"].state_dict().items()}
        path = run.folder / HEADS[which]
        with replacing(path) as temporary:
            save_file(weights, temporary)
        hashes[which] = hash_files([path])
        if "upstream" in models:
            same = which == "tuned" or rate == rates["tuned"]
            upstreams[which] = "encoder" if same else "encoder-default"
            if which == "tuned" or not same:
                run.tuning.save(models, run.folder / upstreams[which], one_run)
    states, width = run.loader.shape
    return {
        "states": states,
        "width": width,
        "layer_weights": shares,
        "trained_parameters": trained,
        "upstreams": upstreams,
        "weights": hashes,
    }


def load_head(
    folder: Path | str, task: Task, encoder: Mapping[str, Any], which: str = "tuned"
) -> TrainedHead:
    """Load a head of a folder. which: tuned or default.

    Raises InputError where a file is missing or damaged, or head, task and encoder do not belong
    together.
    """
    path = Path(folder) / "card.json"
    weights = Path(folder) / HEADS[which]
    card = read_json(path)
    if (card.get("encoder"), card.get("task")) != (dict(encoder), task_card(task)):
        raise InputError(
            f"{path} is of no head, or of one for another encoder, precision or set than "
            f"{task.data.root}; give its own, or train again"
        )
    with own_generator():
        head = task.build(card["states"], card["width"])
    try:
        head.load_state_dict(load_file(weights))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise InputError(
            f"cannot read the head {weights} ({error}); delete the folder and train again"
        ) from error
    upstream = Path(folder) / card["upstreams"][which] if card["upstreams"] else None
    return TrainedHead(task, head.eval(), card, which, upstream)
