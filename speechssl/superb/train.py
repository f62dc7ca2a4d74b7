"""This module trains heads: a run at one learning rate, and sweeps of rates.

A run is a folder with one file, `state.pt`: the weights (of the head, and of an encoder that is
trained with it: `tuning`), the optimiser's moments, and the best head so far by the first measure
on dev. It is written, whole or not at all, at every evaluation on dev. A killed run resumes there
and comes to the same head, because the random numbers of a step depend on the seed and the number
of the step alone. Heads do not train with `training.fit`: on one core the Hugging Face Trainer took
128 steps a second of a KS head on cached means, this loop 200, and callbacks would have to choose
the best head on dev and break ties.

A trained head is a folder: `head.safetensors` is the best on dev, `default.safetensors` the one of
the task's own learning rate, `card.json` describes both. An encoder that was trained with them
(`tuning`) lies beside them: `encoder`, and `encoder-default` where the rates differ.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from statistics import fmean as mean
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from tqdm import tqdm

from speechssl.artifacts import begin_stage, hash_files, read_json, replace_file
from speechssl.data.superb import Utterance
from speechssl.errors import InputError
from speechssl.finetuning import count_trained
from speechssl.results import LOWER_IS_BETTER
from speechssl.superb.data import CachedLoader, HeadSettings, Loader, Task

STATE = "state.pt"
# fields of a task that are not sizes of its head
UNSIZED = ("name", "data", "grid", "language_model", "beam")
POOL = 20  # batches whose recordings are sorted by length together, so that little is padding
# the head that is best on dev, and that of the task's own learning rate
HEADS = {"tuned": "head.safetensors", "default": "default.safetensors"}


# ---- a run


@dataclass(frozen=True)
class Attempt:
    """An attempt says how far a learning rate was trained, and its best evaluation on dev."""

    learning_rate: float
    metric: str = ""  # the first measure of the task
    value: float = math.nan  # of the metric on dev, percent or dB
    tie: float = 0.0  # decides between equal values: the loss on dev, nats, if the task gives it
    best: int = 0  # step of the best evaluation
    steps: int = 0  # number of steps that were made
    stale: int = 0  # number of evaluations since the best
    ended: bool = False  # patience is used up, or loss or gradient were not finite
    seconds: float = 0.0  # of training, evaluations included

    @property
    def rank(self) -> tuple[float, float]:
        """Return a pair that is larger for an attempt that is better on dev."""
        if math.isnan(self.value):
            return -math.inf, 0.0
        sign = -1 if self.metric in LOWER_IS_BETTER else 1
        return sign * self.value, -self.tie


@dataclass(frozen=True)
class HeadRun:
    """A run trains a task's head on the batches of a loader, in a folder."""

    task: Task
    loader: Loader
    settings: HeadSettings  # with the task's own learning rate
    seed: int
    folder: Path
    device: str = "cpu"
    tuning: Any = None  # a `tuning.Tuning`; None for a frozen encoder and clean speech
    rates: tuple[float, ...] = ()  # learning rates to compare; () for the task's own alone

    def make_trainer(self) -> Trainer:
        """Make the trainer, with the state of the folder."""
        return Trainer(self) if self.tuning is None else self.tuning.make_trainer(self)

    def copy_at_rate(self, rate: float) -> HeadRun:
        """Make the same run at another learning rate, in a folder of its own."""
        settings = replace(self.settings, learning_rate=rate)
        return replace(self, settings=settings, folder=self.folder / f"lr-{rate:g}")


def describe_task(task: Any) -> dict[str, Any]:
    """Describe a task by its name, its data and the sizes of its head, as JSON values."""
    sizes = {f.name: getattr(task, f.name) for f in fields(task) if f.name not in UNSIZED}
    as_json = json.loads(json.dumps(sizes, default=str))
    return {"name": task.name, "data": task.data.hash, "sizes": as_json}


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Let torch compute on one thread, so that no result depends on the number of threads, and
    restore the state of its generator afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)


def train_run(run: HeadRun) -> Attempt:
    """Train a run to its end, or resume it; a run that has ended stays as it is. Raises InputError
    where no recording of a split can be read."""
    with use_one_thread():
        return run.make_trainer().train()


def load_best(run: HeadRun) -> nn.ModuleDict:
    """Load the head as it was at the best evaluation on dev, and the models trained with it."""
    with use_one_thread():
        trainer = run.make_trainer()
    trainer.models.load_state_dict(trainer.best_weights)
    return trainer.models.eval()


class Trainer:
    """A trainer trains `models`: a head, and perhaps an encoder with it. `tuning.TuningTrainer`
    overrides build, list_rates, prepare, loss and make_dev_loaders."""

    def __init__(self, run: HeadRun) -> None:
        self.run = run
        torch.manual_seed(run.seed)
        self.models = self.build().to(run.device)
        self.head = self.models["head"]
        groups = []
        for name, rate in self.list_rates().items():
            groups.append({"params": list(self.models[name].parameters()), "lr": rate})
        make_optimiser = getattr(torch.optim, run.settings.optimiser)
        self.optimiser = make_optimiser(groups, run.settings.learning_rate, fused=True)
        self.best_weights: dict[str, Tensor] = {}
        self.attempt = Attempt(run.settings.learning_rate)
        if (run.folder / STATE).is_file():
            state = torch.load(run.folder / STATE, run.device, weights_only=True)
            self.models.load_state_dict(state["models"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.best_weights = state["best"]
            self.attempt = Attempt(**state["attempt"])

    def build(self) -> nn.ModuleDict:
        """Make new models, on the CPU."""
        return nn.ModuleDict({"head": self.run.task.build(*self.run.loader.shape)})

    def list_rates(self) -> dict[str, float]:
        """List the learning rate of each model."""
        return dict.fromkeys(self.models, self.run.settings.learning_rate)

    def prepare(self, steps: Iterator[tuple[int, list[Utterance]]]) -> Iterator[tuple[int, Any]]:
        """Yield each step with the input of `loss`; batches may be prepared in advance."""
        return steps

    def loss(self, utterances: Any, step: int) -> Tensor:
        """Return the loss of this step. Raises InputError where no recording can be read."""
        batch = self.run.loader.make_batch(utterances)
        if batch is None:
            names = ", ".join(u.id for u in utterances)
            raise InputError(
                f"the recordings {names} cannot be read; fix them or remove their lines"
            )
        return self.run.task.loss(self.head, batch.to(self.run.device))

    def make_dev_loaders(self) -> list[Loader]:
        """Make the loaders of dev; heads are chosen by the mean of their scores."""
        return [self.run.loader]

    def train(self) -> Attempt:
        """Train to the end, and save the state at every evaluation on dev."""
        settings = self.run.settings
        if self.attempt.ended or self.attempt.steps == settings.steps:
            return self.attempt
        dev = self._list_usable("dev")
        batches = enumerate(self._draw_batches(self._list_usable("train")), 1)
        last_saved = time.perf_counter()
        if not self.best_weights:
            self._evaluate(dev, 0)
        for step, batch in self.prepare(islice(batches, self.attempt.steps, settings.steps)):
            if not self.update(batch, step):
                self.attempt = replace(self.attempt, steps=step, ended=True)
            elif step % settings.every == 0 or step == settings.steps:
                self._evaluate(dev, step)
            else:
                continue
            now = time.perf_counter()
            self.attempt = replace(self.attempt, seconds=self.attempt.seconds + now - last_saved)
            last_saved = now
            self._save()
            if self.attempt.ended:
                break
        return self.attempt

    def update(self, prepared: Any, step: int) -> bool:
        """Make one step of the optimiser, and return whether loss and gradient were finite; the
        weights stay as they are where they were not."""
        # far apart, so that steps of different seeds never share random numbers
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

    def _list_usable(self, split: str) -> list[Utterance]:
        """List the utterances that can be read. Raises InputError where there is none."""
        data = self.run.task.data
        usable = self.run.loader.list_usable(data.splits[split])
        if not usable:
            raise InputError(
                f"no recording of {data.root / split}.jsonl could be read; fix them or prepare "
                "the set again"
            )
        return usable

    def _draw_batches(self, train: Sequence[Utterance]) -> Iterator[list[Utterance]]:
        """Yield the batches of the training, without end."""
        run, settings = self.run, self.run.settings
        if settings.balanced:
            weights = run.task.compute_weights(train)  # type: ignore[attr-defined]
            return draw_weighted_batches(train, settings.batch, run.seed, weights)
        by_length = run.tuning is not None or not run.task.pooled
        return draw_shuffled_batches(train, settings.batch, run.seed, by_length)

    def _evaluate(self, dev: Sequence[Utterance], step: int) -> None:
        """Evaluate the head on dev; keep it where it is the best so far."""
        run, previous = self.run, self.attempt
        self.models.eval()
        heads = {"head": (run.task, self.head)}
        evaluations = []
        for loader in self.make_dev_loaders():
            predicted = predict(heads, loader, dev, run.settings.batch, run.device)["head"]
            evaluations.append(run.task.evaluate("dev", predicted, 0))
        metric = next(iter(evaluations[0].measures))
        attempt = replace(
            previous,
            metric=metric,
            value=mean(x.measures[metric].value for x in evaluations),
            tie=mean(float(x.detail.get("loss", 0.0)) for x in evaluations),
            best=step,
            steps=step,
            stale=0,
        )
        if attempt.rank > previous.rank:
            self.attempt = attempt
            weights = self.models.state_dict()
            self.best_weights = {name: x.detach().cpu().clone() for name, x in weights.items()}
        else:
            stale = previous.stale + 1
            ended = 0 < run.settings.patience <= stale
            self.attempt = replace(previous, steps=step, stale=stale, ended=ended)

    def _save(self) -> None:
        """Write the state of the run."""
        state = {
            "models": self.models.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "best": self.best_weights,
            "attempt": asdict(self.attempt),
        }
        with replace_file(self.run.folder / STATE) as temporary:
            torch.save(state, temporary)


@torch.no_grad()
def predict(
    heads: Mapping[Any, tuple[Task, nn.Module]],
    loader: Loader,
    utterances: Sequence[Utterance],
    batch: int,
    device: str = "cpu",
    what: str = "",
) -> dict[Any, dict[str, Any]]:
    """Return the predictions for all recordings that can be read, by head, then by id; every
    recording is encoded once for all heads.

    Recordings of similar length form a batch, so that little is padding. batch: its size. what:
    title of the progress bar; "" for no bar.
    """
    ordered = sorted(loader.list_usable(utterances), key=lambda u: u.seconds)
    by_head: dict[Any, dict[str, Any]] = {name: {} for name in heads}
    for first in tqdm(range(0, len(ordered), batch), desc=what, unit="batch", disable=not what):
        encoded = loader.make_batch(ordered[first : first + batch])
        if encoded is None:
            continue
        ids = [u.id for u in encoded.utterances]
        for name, (task, head) in heads.items():
            predicted = task.predict(head, encoded.to(device))
            by_head[name].update(zip(ids, predicted, strict=True))
    return by_head


def draw_weighted_batches(
    utterances: Sequence[Utterance], size: int, seed: int, weights: Tensor
) -> Iterator[list[Utterance]]:
    """Yield batches without end, drawn with replacement. weights: (R,), one for each utterance."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        numbers = torch.multinomial(weights, size, replacement=True, generator=generator)
        yield [utterances[i] for i in numbers.tolist()]


def draw_shuffled_batches(
    utterances: Sequence[Utterance], size: int, seed: int, by_length: bool
) -> Iterator[list[Utterance]]:
    """Yield batches without end: all utterances in a new order, again and again. An incomplete last
    batch is left out.

    by_length: sort the utterances of every POOL batches by length before they are divided.
    """
    generator = torch.Generator().manual_seed(seed)
    size = min(size, len(utterances))
    while True:
        order = torch.randperm(len(utterances), generator=generator).tolist()
        order = order[: len(order) // size * size]
        if not by_length:
            for first in range(0, len(order), size):
                yield [utterances[i] for i in order[first : first + size]]
            continue
        for first in range(0, len(order), POOL * size):
            pool = sorted(order[first : first + POOL * size], key=lambda i: utterances[i].seconds)
            for batch in torch.randperm(len(pool) // size, generator=generator).tolist():
                yield [utterances[i] for i in pool[batch * size : (batch + 1) * size]]


def train_runs(runs: Sequence[HeadRun], workers: int) -> dict[Path, Attempt]:
    """Train every run to its end, and return the attempts by folder.

    Small heads gain nothing from several threads and much from a core of their own, so runs on
    cached states are trained in `workers` processes. Those with the encoder in the loop, or on a
    GPU, are trained in this process, one after another.
    """
    cached = []
    if workers > 1:
        cached = [r for r in runs if r.device == "cpu" and isinstance(r.loader, CachedLoader)]
    attempts = {}
    bar = tqdm(total=len(runs), desc="training heads", unit="run", disable=not runs)
    context = multiprocessing.get_context("spawn")
    with bar, ProcessPoolExecutor(workers, context, _end_with_parent) as pool:
        for run, attempt in zip(cached, pool.map(train_run, cached), strict=True):
            attempts[run.folder] = attempt
            bar.update()
        for run in runs:
            if run.folder not in attempts:
                attempts[run.folder] = train_run(run)
                bar.update()
    return attempts


def _end_with_parent() -> None:
    """End this process when its parent ends, because a killed parent cannot end its workers."""
    parent: Any = multiprocessing.parent_process()

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


# ---- trained heads


@dataclass(frozen=True)
class TrainedHead:
    """A trained head is in eval mode, beside the task that it was trained for."""

    task: Task
    head: nn.Module
    card: Mapping[str, Any]
    # the encoder that was trained with it; None where the encoder was frozen
    upstream: Path | None


def train_heads(
    runs: Sequence[HeadRun], encoder: Mapping[str, Any], workers: int = 1
) -> list[TrainedHead]:
    """Train (once) every run with all of its learning rates and with the task's own, and save in
    its folder the head that is best on dev.

    All rates begin with the same weights and batches. Where `rates` has a single rate, its head is
    taken even if that of the task's own rate is better. encoder: the card of the encoder that the
    states come from.
    Raises InputError where a folder was made from other inputs.
    """
    with ExitStack() as stages:
        unfinished = []
        for run in runs:
            made_from = {
                "encoder": dict(encoder),
                "task": describe_task(run.task),
                "settings": asdict(run.settings),
                "rates": list(run.rates),
                "seed": run.seed,
            }
            step = stages.enter_context(begin_stage(run.folder, made_from, lasting=("lr-*",)))
            if not step.done:
                unfinished.append((run, step))
        one_rate_runs = []
        for run, _ in unfinished:
            rates = dict.fromkeys((*run.rates, run.settings.learning_rate))
            one_rate_runs += [run.copy_at_rate(rate) for rate in rates]
        attempts = train_runs(one_rate_runs, workers)
        for run, step in unfinished:
            run_attempts = [a for folder, a in attempts.items() if folder.parent == run.folder]
            step.finish(step.made_from | save_heads(run, run_attempts))
            for folder in run.folder.glob("lr-*"):
                shutil.rmtree(folder)
    return [load_head(run.folder, run.task) for run in runs]


def choose_attempt(attempts: Sequence[Attempt], own_rate: float) -> Attempt:
    """Choose the best attempt; of equals the one whose rate is nearest to the task's own."""
    nearest_first = sorted(attempts, key=lambda a: abs(math.log(a.learning_rate / own_rate)))
    return max(nearest_first, key=lambda a: a.rank)


def save_heads(run: HeadRun, attempts: Sequence[Attempt]) -> dict[str, Any]:
    """Write the best head and that of the task's own rate, with the encoders that were trained with
    them; return their entries of the card. attempts: one for each rate."""
    own_rate = run.settings.learning_rate
    by_rate = {attempt.learning_rate: attempt for attempt in attempts}
    best_attempt = choose_attempt(attempts, own_rate)
    if len(run.rates) == 1:
        best_attempt = by_rate[run.rates[0]]
    upstreams: dict[str, str] = {}
    hashes = {}
    # The tuned head comes last: the card has its `layer_weights` and `trained_parameters`.
    for which, attempt in (("default", by_rate[own_rate]), ("tuned", best_attempt)):
        one_run = run.copy_at_rate(attempt.learning_rate)
        models = load_best(one_run)
        head: Any = models["head"]
        shares = head.featurizer.shares.tolist()
        trained = count_trained(models)  # before `Tuning.save` merges some
        hashes[which] = _write_weights(head, run.folder / HEADS[which])
        if "upstream" in models:
            upstreams[which] = "encoder" if attempt is best_attempt else "encoder-default"
            # where both heads are the same one, its encoder is saved once
            if which == "tuned" or attempt is not best_attempt:
                run.tuning.save(models, run.folder / upstreams[which], one_run)
    sweep = []
    for a in attempts:
        value = None if math.isnan(a.value) else a.value
        sweep.append({"learning_rate": a.learning_rate, "value": value, "steps": a.steps})
    states, width = run.loader.shape
    return {
        "states": states,
        "width": width,
        "layer_weights": shares,
        "trained_parameters": trained,
        "upstreams": upstreams,
        "weights": hashes,
        "metric": best_attempt.metric,
        "learning_rate": best_attempt.learning_rate,
        "default_learning_rate": own_rate,
        "dev": {best_attempt.metric: best_attempt.value, "step": best_attempt.best},
        "sweep": sweep,
        "seconds": round(sum(a.seconds for a in attempts), 1),
    }


def _write_weights(head: nn.Module, path: Path) -> str:
    """Write the weights of a head, and return their hash."""
    weights = {name: weight.cpu().contiguous() for name, weight in head.state_dict().items()}
    with replace_file(path) as temporary:
        save_file(weights, temporary)
    return hash_files([path])


def load_head(folder: Path, task: Task, which: str = "tuned") -> TrainedHead:
    """Load a head that was trained for a task. which: a key of HEADS."""
    card = read_json(folder / "card.json")
    with use_one_thread():
        head = task.build(card["states"], card["width"])
    head.load_state_dict(load_file(folder / HEADS[which]))
    upstream = folder / card["upstreams"][which] if card["upstreams"] else None
    return TrainedHead(task, head.eval(), card, upstream)
