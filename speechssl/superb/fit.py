"""Trains one head at one learning rate up to a step, and resumes it later.

A run is a folder with one file, `state.safetensors`: weights (of the head, and of what is trained with it: `tuning`), the
optimiser's moments, and the best head so far by the first measure on dev. It is written at every evaluation on dev, whole or not at
all, so that a killed run resumes there and comes to the same head: what is random in a step depends on the seed and the number of
the step alone.

Heads do not train with `speechssl/trainer.py`: on one core the Hugging Face Trainer took 128 steps a second of a KS head on cached
means, this loop 200, and choosing the best head on dev, its ties and the resumed sweep would all be callbacks.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from statistics import fmean as mean
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from speechssl.data.utterances import Utterance
from speechssl.errors import InputError
from speechssl.io import hash_json, replacing
from speechssl.results import LOWER_IS_BETTER
from speechssl.superb.data import Loader
from speechssl.superb.task import Batch, Settings, Task

STATE = "state.safetensors"
UNSIZED = ("name", "data", "grid", "language_model", "beam")  # fields of a task that its head does not depend on
POOL = 20  # batches whose recordings are sorted by length, so that little is padding
_GENERATOR = threading.RLock()


@dataclass(frozen=True)
class Attempt:
    """How far a learning rate was trained, and its best evaluation on dev."""

    learning_rate: float
    value: float  # the first measure on dev, percent or dB; NaN before the first evaluation
    tie: float  # decides between equal values: the loss on dev, nats, where the task gives it
    best: int  # the step of that evaluation
    steps: int  # steps done
    stale: int = 0  # evaluations since the best
    ended: bool = False  # patience is used up, or loss or gradient are not finite
    seconds: float = 0.0  # of training, evaluations included

    def beats(self, other: Attempt, metric: str) -> bool:
        """Whether it is better on dev; False for equals."""
        if math.isnan(self.value) or math.isnan(other.value):
            return math.isnan(other.value) and not math.isnan(self.value)
        sign = -1 if metric in LOWER_IS_BETTER else 1
        return (sign * self.value, -self.tie) > (sign * other.value, -other.tie)


@dataclass(frozen=True)
class Run:
    """A task's head, trained on the batches of a loader, in a folder. tuning: None for a frozen encoder in clean speech."""

    task: Task
    loader: Loader
    settings: Settings
    seed: int
    folder: Path
    device: str = "cpu"
    tuning: Any = None  # a `tuning.Tuning`

    @property
    def card(self) -> dict[str, Any]:
        """What decides the head, beside the hidden states."""
        settings = {name: value for name, value in asdict(self.settings).items() if name != "steps"}  # a run may be made longer
        card = {"task": task_card(self.task), "settings": settings, "seed": self.seed, "shape": list(self.loader.shape)}
        return card | ({} if self.tuning is None else {"tuning": self.tuning.card, "steps": self.settings.steps})  # its schedules

    def trainer(self) -> Trainer:
        return Trainer(self) if self.tuning is None else self.tuning.trainer(self)


def task_card(task: Task) -> dict[str, Any]:
    """The task with its data and the sizes of its head, as JSON values."""
    names: list[str] = [f.name for f in fields(task)] if is_dataclass(task) else []
    sizes = {name: getattr(task, name) for name in names if name not in UNSIZED}
    return {"name": task.name, "data": task.data.hash, "sizes": json.loads(json.dumps(sizes, default=str))}


@contextmanager
def own_generator() -> Iterator[None]:
    """torch's generator for one thread alone; its state is restored afterwards."""
    with _GENERATOR, torch.random.fork_rng(devices=[]):
        yield


def advance(run: Run, until: int, on_step: Callable[[int], None] = lambda steps: None) -> Attempt:
    """Train to this step, or resume there; does nothing where the run has come so far or has ended.

    on_step: called with 1 after every step; an exception from it ends the run, which resumes from its last evaluation. The state of
    torch's generator is left alone.
    Raises InputError where no recording of a split can be read or the folder holds another run.
    """
    with own_generator():
        return run.trainer().advance(min(until, run.settings.steps), on_step)


def best_models(run: Run) -> nn.ModuleDict:
    """`head` as it was at the best evaluation on dev, and what was trained with it."""
    with own_generator():
        trainer = run.trainer()
    trainer.models.load_state_dict(trainer.best)
    return trainer.models.eval()


class Trainer:
    """models: all that is trained, the head first. `tuning.TuningTrainer` replaces build, rates, prepare, loss and dev_loaders."""

    def __init__(self, run: Run) -> None:
        self.run, self.card = run, hash_json(run.card)
        torch.manual_seed(run.seed)
        self.models = self.build().to(run.device)
        self.head = self.models["head"]
        kinds: dict[str, Any] = {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}
        groups = [{"params": list(self.models[name].parameters()), "lr": rate} for name, rate in self.rates().items()]
        self.optimiser = kinds[run.settings.optimiser](groups, run.settings.learning_rate, fused=True)
        self.best: dict[str, Tensor] = {}
        self.attempt = Attempt(run.settings.learning_rate, math.nan, 0.0, 0, 0)
        if (run.folder / STATE).is_file():
            self._restore(run.folder / STATE)

    def build(self) -> nn.ModuleDict:
        """New models, on the CPU."""
        return nn.ModuleDict({"head": self.run.task.build(*self.run.loader.shape)})

    def rates(self) -> dict[str, float]:
        """The learning rate of each model."""
        return dict.fromkeys(self.models, self.run.settings.learning_rate)

    def prepare(self, steps: Iterator[tuple[int, list[Utterance]]]) -> Iterator[tuple[int, Any]]:
        """(step, input of `loss`). It may read ahead."""
        return steps

    def loss(self, utterances: Any, step: int) -> Tensor:
        """The loss of this step. Raises InputError where none of the recordings can be read."""
        batch = self.run.loader.batch(utterances)
        if batch is None:
            raise InputError(unreadable(utterances))
        return self.run.task.loss(self.head, on_device(batch, self.run.device))

    def dev_loaders(self) -> list[Loader]:
        """A head is chosen by its mean score over these."""
        return [self.run.loader]

    def advance(self, until: int, on_step: Callable[[int], None]) -> Attempt:
        if self.attempt.ended or self.attempt.steps >= until:
            return self.attempt
        run, splits = self.run, self.run.task.data.splits
        train, dev = (run.loader.usable(splits[name]) for name in ("train", "dev"))
        for name, usable in (("train", train), ("dev", dev)):
            if not usable:
                path = run.task.data.root / f"{name}.jsonl"
                raise InputError(f"no recording of {path} could be read; fix them or prepare the set again")
        if run.settings.balanced:
            weights = run.task.weights(train)  # type: ignore[attr-defined]
            batches = weighted_batches(train, run.settings.batch, run.seed, weights)
        else:
            batches = shuffled_batches(train, run.settings.batch, run.seed, run.tuning is not None or not run.task.pooled)

        began = time.perf_counter()
        if not self.best:
            self._evaluate(dev, 0)
        done = self.attempt.steps
        ahead = ((step, batch) for step, batch in enumerate(batches, 1) if step > done)
        for step, batch in self.prepare(ahead):
            finite = self.update(batch, step)
            on_step(1)
            if finite and step % run.settings.every and step < until:
                continue
            if finite:
                self._evaluate(dev, step)
            else:
                self.attempt = replace(self.attempt, steps=step, ended=True)
            self.attempt = replace(self.attempt, seconds=self.attempt.seconds + time.perf_counter() - began)
            began = time.perf_counter()
            self._save()
            if self.attempt.ended or step >= until:
                break
        return self.attempt

    def update(self, prepared: Any, step: int) -> bool:
        """One step of the optimiser. Whether loss and gradient were finite; the weights stay as they are where not."""
        if self.run.tuning or not self.run.task.pooled:  # heads of means have nothing random in them
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

    def _evaluate(self, dev: Sequence[Utterance], step: int) -> None:
        """Evaluate the head on dev; keep it where it is the best so far."""
        run, before = self.run, self.attempt
        self.models.eval()
        predicted = [predictions(run.task, self.head, x, dev, run.settings.batch, run.device) for x in self.dev_loaders()]
        found = [run.task.evaluate("dev", each, 0) for each in predicted]
        value = mean(x.measures[0].value for x in found)
        tie = mean(float(x.detail.get("loss", 0.0)) for x in found)
        attempt = replace(before, value=value, tie=tie, best=step, steps=step, stale=0)
        if attempt.beats(before, found[0].measures[0].metric):
            self.attempt = attempt
            self.best = {name: weight.detach().cpu().clone() for name, weight in self.models.state_dict().items()}
        else:
            stale = before.stale + 1
            self.attempt = replace(before, steps=step, stale=stale, ended=0 < run.settings.patience <= stale)

    def _save(self) -> None:
        moments = self.optimiser.state_dict()["state"]
        tensors = {f"now.{name}": weight for name, weight in self.models.state_dict().items()}
        tensors |= {f"best.{name}": weight for name, weight in self.best.items()}
        tensors |= {f"moments.{i}.{name}": value for i, state in moments.items() for name, value in state.items()}
        facts = {"card": self.card, "attempt": json.dumps(asdict(self.attempt))}
        with replacing(self.run.folder / STATE) as temporary:
            temporary.write_bytes(save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, facts))

    def _restore(self, path: Path) -> None:
        try:
            with safe_open(path, "pt") as file:
                facts, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{path} is damaged ({reason}); delete it and give the same command") from error
        if facts["card"] != self.card:
            raise InputError(f"{path} was trained with other settings, data or states; choose another folder or delete it")
        parts: dict[str, dict[str, Tensor]] = {"now": {}, "best": {}, "moments": {}}
        for name, tensor in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = tensor
        self.attempt = Attempt(**json.loads(facts["attempt"]))
        self.models.load_state_dict(parts["now"])
        self.best = parts["best"]
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in parts["moments"].items():
            number, _, key = name.partition(".")
            state.setdefault(int(number), {})[key] = tensor
        self.optimiser.load_state_dict({"state": state, "param_groups": self.optimiser.state_dict()["param_groups"]})


@torch.no_grad()
def predictions(
    task: Task, head: nn.Module, loader: Loader, utterances: Sequence[Utterance], batch: int, device: str = "cpu"
) -> dict[str, Any]:
    """The predictions for all recordings that can be read, by id. Batches are of like lengths, so that little is padding."""
    ordered = sorted(loader.usable(utterances), key=lambda u: u.seconds)
    found: dict[str, Any] = {}
    for at in range(0, len(ordered), batch):
        if part := loader.batch(ordered[at : at + batch]):
            predicted = task.predict(head, on_device(part, device))
            found |= {u.id: what for u, what in zip(part.utterances, predicted, strict=True)}
    return found


def unreadable(utterances: Sequence[Utterance]) -> str:
    return f"the recordings {', '.join(u.id for u in utterances)} cannot be read; fix them or remove their lines"


def on_device(batch: Batch, device: str) -> Batch:
    return batch if device == "cpu" else replace(batch, states=batch.states.to(device), lengths=batch.lengths.to(device))


def weighted_batches(utterances: Sequence[Utterance], size: int, seed: int, weights: Tensor) -> Iterator[list[Utterance]]:
    """Batches without end, drawn with replacement. weights: of each utterance."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield [utterances[i] for i in torch.multinomial(weights, size, replacement=True, generator=generator).tolist()]


def shuffled_batches(utterances: Sequence[Utterance], size: int, seed: int, by_length: bool) -> Iterator[list[Utterance]]:
    """Batches without end: all utterances in a new order, again and again. An incomplete last batch is left out.

    by_length: of every POOL batches those of like length go together.
    """
    generator, size = torch.Generator().manual_seed(seed), min(size, len(utterances))
    while True:
        order = torch.randperm(len(utterances), generator=generator).tolist()
        if not by_length:
            yield from ([utterances[i] for i in order[at : at + size]] for at in range(0, len(order) - size + 1, size))
            continue
        whole = order[: len(order) // size * size]
        for at in range(0, len(whole), POOL * size):
            near = sorted(whole[at : at + POOL * size], key=lambda i: utterances[i].seconds)
            starts = torch.randperm(len(near) // size, generator=generator).tolist()
            yield from ([utterances[i] for i in near[start * size : (start + 1) * size]] for start in starts)
