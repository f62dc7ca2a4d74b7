"""Training of one head at one learning rate, as far as it is wanted now and further another time.

A run is a folder with one file, `state.safetensors`: weights (of the head, and of what is trained with it: `tuning`), the
optimiser's moments, and the best head so far by the first measure on dev. It is written at every look at dev, whole or not at all,
so that a killed run goes on from the last look, and comes to the same head: what is random in a step depends on the seed and the
number of the step alone.
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
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from speechssl.data.utterances import Utterance
from speechssl.errors import InputError
from speechssl.io import hash_json, replacing
from speechssl.results import LOWER_IS_BETTER
from speechssl.superb.data import Supply
from speechssl.superb.task import Batch, Judgement, Settings, Task

STATE = "state.safetensors"
_GENERATOR = threading.RLock()
UNSIZED = ("name", "data", "grid", "language_model", "beam")  # of a task: what its head does not depend on
POOL = 20  # batches whose recordings are sorted by length, so that little is padding


@dataclass(frozen=True)
class Attempt:
    """How far a learning rate has come, and its best look at dev."""

    learning_rate: float
    value: float  # the first measure on dev, percent or dB; NaN before the first look
    tie: float  # decides between equals: dev loss, nats, where the task tells it
    best: int  # the step of that look
    steps: int  # that were done
    stale: int = 0  # looks since the best
    ended: bool = False  # nothing better came for long, or the loss is no number any more
    seconds: float = 0.0  # of training, looks included

    def beats(self, other: Attempt, metric: str) -> bool:
        """Whether it is better on dev; not, where they are equal."""
        if math.isnan(self.value) or math.isnan(other.value):
            return math.isnan(other.value) and not math.isnan(self.value)
        sign = -1 if metric in LOWER_IS_BETTER else 1
        return (sign * self.value, -self.tie) > (sign * other.value, -other.tie)


class Training(Protocol):
    """How a head is trained where that is not on the states of a frozen encoder in clean speech (`tuning`)."""

    @property
    def card(self) -> dict[str, Any]:
        """What decides the head, beside the run."""

    def trainer(self, run: Run) -> Trainer: ...


@dataclass(frozen=True)
class Run:
    """What is trained: a task's head on what a supply gives, into a folder. tuning: None for a frozen encoder in clean speech."""

    task: Task
    supply: Supply
    settings: Settings
    seed: int
    folder: Path
    device: str = "cpu"
    tuning: Training | None = None

    def trainer(self) -> Trainer:
        return Trainer(self) if self.tuning is None else self.tuning.trainer(self)


@contextmanager
def own_generator() -> Iterator[None]:
    """torch's generator for one thread alone, and as it was afterwards."""
    with _GENERATOR, torch.random.fork_rng(devices=[]):
        yield


def advance(run: Run, until: int, tell: Callable[[int], None] = lambda steps: None) -> Attempt:
    """Train to this step, or from where it was left to there; nothing is done where it has come so far or has ended.

    tell: is called after every step, with their number, 1; what it raises ends the run, which goes on from its last look. The
    state of torch's generator is left alone.
    Raises InputError where nothing of a split can be heard or the folder holds another run.
    """
    with own_generator():
        return run.trainer().advance(min(until, run.settings.steps), tell)


def best_models(run: Run) -> nn.ModuleDict:
    """`head` as it was at the best look at dev, and what was trained with it. Raises InputError where the folder has none."""
    with own_generator():
        trainer = run.trainer()
    trainer.models.load_state_dict(trainer.best)
    return trainer.models.eval()


class Trainer:
    """models: all that is trained, the head first."""

    def __init__(self, run: Run) -> None:
        self.run, self.card = run, hash_json(run_card(run))
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
        return nn.ModuleDict({"head": self.run.task.build(*self.run.supply.shape)})

    def rates(self) -> dict[str, float]:
        """The learning rate of each of them."""
        return dict.fromkeys(self.models, self.run.settings.learning_rate)

    def prepared(self, steps: Iterator[tuple[int, list[Utterance]]]) -> Iterator[tuple[int, Any]]:
        """(step, what `loss` takes). It may look ahead."""
        return steps

    def loss(self, utterances: Any, step: int) -> Tensor:
        """The loss of this step. Raises InputError where none of the recordings can be heard."""
        batch = self.run.supply.batch(utterances)
        if batch is None:
            raise InputError(
                f"the recordings {', '.join(u.id for u in utterances)} cannot be heard; mend them or remove their lines"
            )
        return self.run.task.loss(self.head, on_device(batch, self.run.device))

    def dev_supplies(self) -> list[Supply]:
        """The ways dev is given: a head is chosen by its mean score over them."""
        return [self.run.supply]

    def advance(self, until: int, tell: Callable[[int], None]) -> Attempt:
        if self.attempt.ended or self.attempt.steps >= until:
            return self.attempt
        train, dev = (self._heard(split) for split in ("train", "dev"))
        began = time.perf_counter()
        if not self.best:
            self._look(dev, 0)
        done = self.attempt.steps
        ahead = ((step, batch) for step, batch in enumerate(self._batches(train), 1) if step > done)
        for step, batch in self.prepared(ahead):
            finite = self._step(batch, step)
            tell(1)
            if finite and step % self.run.settings.every and step < until:
                continue
            self._look(dev, step) if finite else self._end(step)
            self.attempt = replace(self.attempt, seconds=self.attempt.seconds + time.perf_counter() - began)
            began = time.perf_counter()
            self._save()
            if self.attempt.ended or step >= until:
                break
        return self.attempt

    def _heard(self, split: str) -> list[Utterance]:
        data = self.run.task.data
        heard = self.run.supply.usable(data.splits[split])
        if not heard:
            raise InputError(f"no recording of {data.root / split}.jsonl could be heard; mend them or prepare the set again")
        return heard

    def _batches(self, train: Sequence[Utterance]) -> Iterator[list[Utterance]]:
        run = self.run
        if run.settings.balanced:
            return drawn_batches(train, run.settings.batch, run.seed, run.task.weights(train))  # type: ignore[attr-defined]
        by_length = run.tuning is not None or not run.task.pooled
        return batches_of(train, run.settings.batch, run.seed, by_length)

    def _step(self, prepared: Any, step: int) -> bool:
        """One update. Whether the loss and its gradient were numbers."""
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

    def _look(self, dev: Sequence[Utterance], step: int) -> None:
        """How good the head is on dev; it is kept where it is the best so far."""
        run, before = self.run, self.attempt
        self.models.eval()
        heard = [predictions(run.task, self.head, s, dev, run.settings.batch, run.device) for s in self.dev_supplies()]
        judged = [run.task.judge("dev", predicted, 0) for predicted in heard]
        value, tie = mean(j.measures[0].value for j in judged), mean(map(tie_of, judged))
        found = replace(before, value=value, tie=tie, best=step, steps=step, stale=0)
        if found.beats(before, judged[0].measures[0].metric):
            self.attempt = found
            self.best = {name: weight.detach().cpu().clone() for name, weight in self.models.state_dict().items()}
        else:
            patience = self.run.settings.patience
            self.attempt = replace(before, steps=step, stale=before.stale + 1, ended=0 < patience <= before.stale + 1)

    def _end(self, step: int) -> None:
        self.attempt = replace(self.attempt, steps=step, ended=True)

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
        self.attempt = Attempt(**json.loads(facts["attempt"]))
        self.models.load_state_dict(_below(tensors, "now"))
        self.best = _below(tensors, "best")
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _below(tensors, "moments").items():
            number, _, key = name.partition(".")
            state.setdefault(int(number), {})[key] = tensor
        self.optimiser.load_state_dict({"state": state, "param_groups": self.optimiser.state_dict()["param_groups"]})


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}."): t for name, t in tensors.items() if name.startswith(f"{prefix}.")}


def run_card(run: Run) -> dict[str, Any]:
    """What decides the head, beside the hidden states."""
    settings = {name: value for name, value in asdict(run.settings).items() if name != "steps"}  # a run may be made longer
    card = {"task": task_card(run.task), "settings": settings, "seed": run.seed, "shape": list(run.supply.shape)}
    return card | ({} if run.tuning is None else {"tuning": run.tuning.card, "steps": run.settings.steps})  # of its schedules


def task_card(task: Task) -> dict[str, Any]:
    """The task with its data and the sizes of its head, as JSON values."""
    names: list[str] = [f.name for f in fields(task)] if is_dataclass(task) else []
    sizes = {name: getattr(task, name) for name in names if name not in UNSIZED}
    return {"name": task.name, "data": task.data.hash, "sizes": json.loads(json.dumps(sizes, default=str))}


def tie_of(judged: Judgement) -> float:
    """What decides between equals: the less the better."""
    return float(judged.detail.get("loss", 0.0))


@torch.no_grad()
def predictions(
    task: Task, head: nn.Module, supply: Supply, utterances: Sequence[Utterance], batch: int, device: str = "cpu"
) -> dict[str, Any]:
    """What the head says of every recording that can be heard, by id. They are taken by length, so that little is padding."""
    ordered = sorted(supply.usable(utterances), key=lambda u: u.seconds)
    found: dict[str, Any] = {}
    for at in range(0, len(ordered), batch):
        heard = supply.batch(ordered[at : at + batch])
        said = task.predict(head, on_device(heard, device)) if heard else []
        found |= {u.id: what for u, what in zip(heard.utterances if heard else (), said, strict=True)}
    return found


def on_device(batch: Batch, device: str) -> Batch:
    return batch if device == "cpu" else replace(batch, states=batch.states.to(device), lengths=batch.lengths.to(device))


def drawn_batches(utterances: Sequence[Utterance], size: int, seed: int, weights: Tensor) -> Iterator[list[Utterance]]:
    """Batches without end, drawn with replacement. weights: of each utterance."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield [utterances[i] for i in torch.multinomial(weights, size, replacement=True, generator=generator).tolist()]


def batches_of(utterances: Sequence[Utterance], size: int, seed: int, by_length: bool) -> Iterator[list[Utterance]]:
    """Batches without end: all utterances in a new order, again and again. What is left over of an order is left out.

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
