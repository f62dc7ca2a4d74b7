"""Training: one thin adapter over the Hugging Face Trainer.

A training run is a module whose forward gives `{"loss": ...}` and a map from step number to batch. The batch of a step depends on
(seed, step) only, so that a run that was killed and resumed sees the same batches and ends with the same weights.

Several processes (`torchrun`, `accelerate launch`) divide every batch among them: steps and batch mean what they mean in one
process, and so does the gradient, where the loss is a mean over the rows of the batch or takes its counts through
`mean_of_processes`. The random numbers that the module draws, for dropout, depend on how many there are. The first process writes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from speechssl.artefacts import read_json
from speechssl.errors import InputError
from speechssl.processes import agreed, mean_of_processes, processes, rank

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class TrainingOptions:
    """How long and how fast. One step is one optimiser update on one batch, which the processes share."""

    steps: int
    learning_rate: float
    warmup_steps: int = 100
    horizon: int | None = None  # steps the schedule is laid out for, where training stops earlier
    schedule: str = "linear"  # any transformers schedule
    weight_decay: float = 0.01
    adam_betas: tuple[float, float] = (0.9, 0.98)  # HuBERT, arXiv 2106.07447 section IV-C
    adam_epsilon: float = 1e-6
    clip: float = 1.0  # gradient norm
    bf16: bool = True  # autocast; weights stay float32
    seed: int = 0
    save_every: int = 500
    log_every: int = 50
    accumulation: int = 1
    tensorboard: bool = False
    workers: int = 0  # processes that make batches ahead of the model


class StepBatches(Dataset[Batch]):
    """Gives Trainer one ready batch a step. Of P processes, accelerate gives number p the items p, p + P, ...: its shares."""

    def __init__(self, make: Callable[[int], Batch], steps: int) -> None:
        self.make, self.steps, self.processes = make, steps, processes()

    def __len__(self) -> int:
        return self.steps * self.processes

    def __getitem__(self, item: int) -> Batch:
        step, share = divmod(item, self.processes)
        batch = self.make(step)
        if self.processes == 1:
            return batch
        for rows in {len(value) for value in batch.values() if value.ndim}:
            check_share(rows)
        return {name: value[share :: self.processes] if value.ndim else value for name, value in batch.items()}


def check_share(batch: int) -> None:
    """Raises InputError unless the processes can divide a batch of this size into equal shares."""
    if batch % processes():
        raise InputError(
            f"{processes()} processes cannot share a batch of {batch}; give a batch that is a multiple of {processes()}"
        )


class StopAt(TrainerCallback):
    """Ends (and saves) at a step, whatever the schedule was laid out for."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):  # type: ignore[no-untyped-def]
        if state.global_step >= self.step:
            control.should_training_stop = control.should_save = True


class SkipNonFinite(TrainerCallback):
    """Drops the update of a batch whose gradient is not finite, counts it, and stops when that becomes the rule.

    The gradient has been averaged over the processes by then: all decide alike.
    """

    def __init__(self, path: Path, patience: int = 20) -> None:
        self.path, self.patience, self.in_a_row = path, patience, 0

    @property
    def skipped(self) -> int:
        """Batches that were dropped, those before a kill among them."""
        return len(set(self.path.read_text().split())) if self.path.is_file() else 0

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):  # type: ignore[no-untyped-def]
        finite = all(p.grad is None or bool(torch.isfinite(p.grad).all()) for p in model.parameters())
        self.in_a_row = 0 if finite else self.in_a_row + 1
        if finite:
            return
        if state.is_world_process_zero:
            with self.path.open("a") as file:
                file.write(f"{state.global_step}\n")
        model.zero_grad(set_to_none=True)
        if self.in_a_row > self.patience:
            raise FloatingPointError(
                f"the gradient was not finite {self.in_a_row} times in a row at step {state.global_step}; lower the learning rate"
            )


class ScalarLog(TrainerCallback):
    """Appends what the module reports beside the loss to `log.jsonl`, a line every `log_every` steps."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_log(self, args, state, control, logs=None, **kwargs):  # type: ignore[no-untyped-def]
        if state.is_world_process_zero and logs:
            values = {k: v if not isinstance(v, float) or math.isfinite(v) else None for k, v in logs.items()}  # NaN is not JSON
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": state.global_step} | values) + "\n")


class _Trainer(Trainer):
    """Trainer that takes ready batches in order and averages the module's scalars over a logging interval."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.scalars: dict[str, list[float]] = {}
        self.model_accepts_loss_kwargs = False  # a loss is a mean over its batch, whatever the signature of forward

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> None:
        return None  # in order: the order is the seed's business, in StepBatches

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):  # type: ignore[no-untyped-def]
        outputs = model(**inputs)
        for name, value in outputs.items():
            if name != "loss" and torch.is_tensor(value) and value.numel() == 1:
                self.scalars.setdefault(name, []).append(float(value))
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]  # Trainer divides by the accumulation

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        means = torch.tensor([math.fsum(v) / len(v) for v in self.scalars.values()], device=self.args.device)
        logs |= {name: round(float(x), 5) for name, x in zip(self.scalars, mean_of_processes(means), strict=True)}
        self.scalars.clear()
        super().log(logs, *args, **kwargs)


def fit(model: nn.Module, batch: Callable[[int], Batch], options: TrainingOptions, folder: Path | str) -> dict[str, Any]:
    """Train `model` in place; checkpoints and `log.jsonl` go to `folder`. Resumes from the last checkpoint there.

    batch: step number (0-based) -> keyword arguments of the model. Returns {"steps", "skipped", "loss"}.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    last = agreed(last_checkpoint(folder))
    guard = SkipNonFinite(folder / "skipped.txt")
    if last is not None and (state := read_json(last / "trainer_state.json"))["global_step"] >= options.steps:
        model.load_state_dict(load_file(last / "model.safetensors"))
        return {"steps": state["global_step"], "skipped": guard.skipped, "loss": _last_loss(state)}
    trainer = _Trainer(
        model=model,
        args=_arguments(options, folder),
        train_dataset=StepBatches(batch, (options.horizon or options.steps) * options.accumulation),
        data_collator=lambda batches: batches[0],
        callbacks=[guard, StopAt(options.steps), ScalarLog(folder / "log.jsonl")],
    )
    if processes() > 1:  # Trainer has given all the same seed, and with it the same dropout
        torch.manual_seed(options.seed * processes() + rank())
    result = trainer.train(resume_from_checkpoint=str(last) if last else None)
    return {"steps": result.global_step, "skipped": guard.skipped, "loss": _last_loss(vars(trainer.state))}


def last_checkpoint(folder: Path) -> Path | None:
    """The latest whole checkpoint. Trainer writes `trainer_state.json` last: without it, the run was killed while saving."""
    steps = {int(p.name.removeprefix("checkpoint-")): p for p in folder.glob("checkpoint-*") if re.search(r"-\d+$", p.name)}
    whole = [step for step, path in steps.items() if (path / "trainer_state.json").is_file()]
    return steps[max(whole)] if whole else None


def _last_loss(state: Mapping[str, Any]) -> float | None:
    """Training loss of the last logging interval."""
    return next((entry["loss"] for entry in reversed(state["log_history"]) if "loss" in entry), None)


def _arguments(options: TrainingOptions, folder: Path) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(folder),
        max_steps=options.horizon or options.steps,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=options.accumulation,
        learning_rate=options.learning_rate,
        warmup_steps=options.warmup_steps,
        lr_scheduler_type=options.schedule,
        weight_decay=options.weight_decay,
        adam_beta1=options.adam_betas[0],
        adam_beta2=options.adam_betas[1],
        adam_epsilon=options.adam_epsilon,
        max_grad_norm=options.clip,
        bf16=options.bf16,
        seed=options.seed,
        save_steps=options.save_every,
        save_total_limit=1,
        logging_steps=options.log_every,
        logging_nan_inf_filter=False,
        report_to=["tensorboard"] if options.tensorboard else [],
        remove_unused_columns=False,
        dataloader_num_workers=options.workers,
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=False,
    )
