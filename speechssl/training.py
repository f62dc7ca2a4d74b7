"""This module is a thin adapter over the Hugging Face Trainer.

A training run takes a module whose forward gives `{"loss": ...}`, and a function from step number
to batch, which depends on (seed, step) only: a run that was killed and resumed sees the same
batches and ends with the same weights.
Several processes (`torchrun`, `accelerate launch`) divide every batch among them: steps, batch and
gradient mean what they mean in one process, where the loss is a mean over the rows of the batch or
takes its counts through `average_processes`. Only dropout depends on how many there are. The first
process writes.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import Dataset
from tqdm import tqdm
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.integrations import TensorBoardCallback

from speechssl.artifacts import read_json, write_lines
from speechssl.errors import InputError
from speechssl.options import EvalOptions, TrainingOptions
from speechssl.processes import (
    average_processes,
    broadcast_value,
    count_cores,
    count_processes,
    get_rank,
    has_bf16,
    is_main,
    main_first,
    measure_gpu_memory,
    measure_peak_memory,
    wait_for_all,
)

Batch = dict[str, Tensor]
PATIENCE = 20  # updates in a row that may be dropped
NO_SCORE = (0, math.nan)  # step and score where there was no evaluation
MOST_WORKERS = 16  # processes that make batches, unless the options name a number


@dataclass(frozen=True)
class Evaluation:
    """A module is evaluated on held-out items while it is trained."""

    options: EvalOptions
    metric: str  # name of the score, such as "ff1"
    items: int  # number of held-out items
    # scores the module as it is, in evaluation mode, by decoding; only the first process calls it
    score: Callable[[], float]
    lower: bool = False  # whether a lower score is better

    def list_scores(self, state: Mapping[str, Any]) -> list[tuple[int, float]]:
        """List (step, score) of every evaluation until the checkpoint with this trainer state."""
        name = f"eval_{self.metric}"
        lines = [line for line in state["log_history"] if name in line]
        return [(int(line["step"]), float(line[name])) for line in lines]

    def find_best(self, state: Mapping[str, Any]) -> tuple[int, float]:
        """Return (step, score) of the best evaluation, of equals the first; (0, NaN) where there
        was none."""
        sign = 1 if self.lower else -1
        scores = self.list_scores(state)
        return min(scores, key=lambda step_and_score: sign * step_and_score[1], default=NO_SCORE)

    def is_over(self, state: Mapping[str, Any]) -> bool:
        """Return whether the options have a patience, and as many evaluations followed the best."""
        best_step, _ = self.find_best(state)
        later = [step for step, _ in self.list_scores(state) if step > best_step]
        return 0 < self.options.patience <= len(later)


class Watch(TrainerCallback):
    """A watch logs a run, drops updates that are not finite, and says where the run ends.

    `log.jsonl` gets a line every `log_every` steps with the means of the loss and the other numbers
    that the module returns; the seconds that training has taken, before a kill too; and the peak of
    memory in GB, resident and of the GPU, until then. A run that goes on from a checkpoint makes
    the steps after it again: their lines from before the kill are dropped. The update of a batch
    whose gradient is not finite is dropped, its step printed and added to `skipped.txt`; training
    stops after more than PATIENCE in a row.
    """

    def __init__(
        self, folder: Path, options: TrainingOptions, evaluation: Evaluation | None = None
    ) -> None:
        """Begin the log. evaluation: as in `fit`."""
        self.path = folder / "log.jsonl"
        self.skips = folder / "skipped.txt"
        self.options = options
        self.evaluation = evaluation
        self.started = time.monotonic()  # when this process began to train
        self.seconds_before = 0.0  # of training, before a kill
        self.dropped_in_a_row = 0  # updates
        # The numbers that the module returned, a dictionary a batch: for the current update, and
        # since the last line of the log, but for dropped updates.
        self.update_outputs: list[dict[str, float]] = []
        self.interval_outputs: list[dict[str, float]] = []

    @property
    def skipped(self) -> int:
        """Count the updates that were dropped, those before a kill among them."""
        return len(set(_read_whole_lines(self.skips)))

    def report(self, outputs: Mapping[str, Tensor]) -> None:
        """Note all outputs of the module that are one number."""
        names = [name for name, value in outputs.items() if value.numel() == 1]
        # stacked, so that a GPU is waited for once
        numbers = torch.stack([outputs[name].detach().double().reshape(()) for name in names])
        self.update_outputs.append(dict(zip(names, numbers.tolist(), strict=True)))

    def take_means(self) -> dict[str, float]:
        """Return the means of the numbers since the last call."""
        batches, self.interval_outputs = self.interval_outputs, []
        means = {}
        for name in batches[0] if batches else ():
            means[name] = math.fsum(values[name] for values in batches) / len(batches)
        return means

    def read_usage(self) -> dict[str, float]:
        """Return the seconds of training until the last line of the log, those before kills
        included, and peaks of memory, in GB: `seconds`, `peak_gb`, and on a GPU `gpu_gb`.
        """
        lines = _read_whole_lines(self.path)
        usage = {}
        for name in ("seconds", "peak_gb", "gpu_gb"):
            values = [line[name] for line in lines if name in line]
            if values:
                usage[name] = max(values)
        return usage

    def is_over(self, state: Mapping[str, Any]) -> bool:
        """Return whether training ended at the checkpoint with this state."""
        if self.evaluation and self.evaluation.is_over(state):
            return True
        return bool(state["global_step"] >= self.options.steps)

    def on_train_begin(self, args, state, control, **kwargs):  # type: ignore[no-untyped-def]
        best_step = self.evaluation.find_best(vars(state))[0] if self.evaluation else 0
        if best_step:  # in this folder, which may have been moved since
            state.best_model_checkpoint = str(Path(args.output_dir) / f"checkpoint-{best_step}")
        if state.is_world_process_zero and self.path.is_file():
            lines = _read_whole_lines(self.path)
            write_lines(self.path, [line for line in lines if line["step"] <= state.global_step])
        self.started = time.monotonic()
        self.seconds_before = self.read_usage().get("seconds", 0.0)

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):  # type: ignore[no-untyped-def]
        """Drop the update of a gradient that is not finite. The gradient has been averaged over the
        processes by then, so that all decide alike."""
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        batches, self.update_outputs = self.update_outputs, []
        if torch.nn.utils.get_total_norm(gradients).isfinite():
            self.dropped_in_a_row = 0
            self.interval_outputs += batches
            return
        self.dropped_in_a_row += 1
        step = state.global_step  # from 0, as `fit` counts
        if state.is_world_process_zero:
            with self.skips.open("a") as file:
                file.write(f"{step}\n")
            losses = ", ".join(f"{values['loss']:.4g}" for values in batches)
            tqdm.write(
                f"step {step}: dropped, its gradient is not finite (loss {losses})",
                file=sys.stderr,
            )
        model.zero_grad(set_to_none=True)
        if self.dropped_in_a_row > PATIENCE:
            raise FloatingPointError(
                f"the gradient was not finite {self.dropped_in_a_row} times in a row at step "
                f"{step}; lower the learning rate"
            )

    def on_step_end(self, args, state, control, **kwargs):  # type: ignore[no-untyped-def]
        if self.is_over(vars(state)):  # the schedule may be longer
            control.should_training_stop = control.should_save = True
        if self.evaluation:
            due = state.global_step % self.evaluation.options.eval_every == 0
            control.should_evaluate = due or control.should_training_stop

    def on_evaluate(self, args, state, control, **kwargs):  # type: ignore[no-untyped-def]
        """Save the best checkpoint so far, and the last."""
        assert self.evaluation
        if self.evaluation.find_best(vars(state))[0] == state.global_step:
            control.should_save = True
        if self.is_over(vars(state)):
            control.should_training_stop = control.should_save = True

    def on_log(self, args, state, control, logs=None, **kwargs):  # type: ignore[no-untyped-def]
        if state.is_world_process_zero and logs:
            values = {"step": state.global_step} | logs
            for name, value in values.items():
                if isinstance(value, float) and not math.isfinite(value):
                    values[name] = None  # NaN is not JSON
            values["seconds"] = round(self.seconds_before + time.monotonic() - self.started, 2)
            values["peak_gb"] = round(measure_peak_memory(), 3)
            gpu = measure_gpu_memory()
            if gpu:
                values["gpu_gb"] = round(gpu, 3)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")

    def on_save(self, args, state, control, **kwargs):  # type: ignore[no-untyped-def]
        wait_for_all()  # each process writes its random state


def _read_whole_lines(path: Path) -> list[Any]:
    """Read the JSON lines of a file, without a last one that a kill cut short."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


class StepBatches(Dataset[Batch]):
    """The data set gives Trainer one ready batch a step. Of P processes, accelerate gives number p
    the items p, p + P, ...: its shares of the batches."""

    def __init__(self, make: Callable[[int], Batch], steps: int) -> None:
        self.make = make
        self.steps = steps
        self.processes = count_processes()

    def __len__(self) -> int:
        return self.steps * self.processes

    def __getitem__(self, item: int) -> Batch:
        step, process = divmod(item, self.processes)
        share = {}
        for name, value in self.make(step).items():
            share[name] = value[process :: self.processes] if value.ndim else value
        return share


def check_share(*batches: int) -> None:
    """Raise InputError for a batch size that the processes cannot divide into equal shares."""
    count = count_processes()
    for batch in batches:
        if batch % count:
            raise InputError(
                f"{count} processes cannot share a batch of {batch}; give a batch "
                f"that is a multiple of {count}"
            )


class _Trainer(Trainer):
    """This Trainer takes ready batches in order and averages what the module reports over a logging
    interval."""

    def __init__(self, *args: Any, watch: Watch, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.watch = watch
        # a loss is a mean over its batch, whatever the signature of forward
        self.model_accepts_loss_kwargs = False

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> None:
        return None  # batches come in order

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Go on at the rate of this schedule, not at the saved one: the optimiser of a shorter
        schedule was saved with 0."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            schedule: Any = self.lr_scheduler
            factors = [factor_at(schedule.last_epoch) for factor_at in schedule.lr_lambdas]
            rates = [rate * f for rate, f in zip(schedule.base_lrs, factors, strict=True)]
            schedule._last_lr = rates
            for group, rate in zip(schedule.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):  # type: ignore[no-untyped-def]
        outputs = model(**inputs)
        self.watch.report(outputs)
        # Trainer divides the loss by the number of accumulated batches
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Evaluate by `Evaluation.score`, in the place of Trainer's loop over batches. Training
        then goes on as if there had been no evaluation."""
        evaluation = self.watch.evaluation
        assert self.model is not None and evaluation
        started = time.monotonic()
        self.model.eval()
        # a model that draws random numbers in evaluation does not change those of training
        with torch.random.fork_rng(devices=[]):
            value = broadcast_value(evaluation.score() if is_main() else None)
        self.model.train()
        metrics: dict[str, Any] = {
            f"eval_{evaluation.metric}": value,
            "eval_items": evaluation.items,
        }
        self.log(metrics | {"eval_seconds": round(time.monotonic() - started, 2)})
        self.control: Any = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        if "loss" in logs:  # else it is the summary at the end
            local_means = self.watch.take_means()
            values = list(local_means.values())
            local = torch.tensor(values, dtype=torch.float64, device=self.args.device)
            means = average_processes(local)
            logs["loss"] = math.nan  # where all updates were dropped
            for name, mean in zip(local_means, means.tolist(), strict=True):
                logs[name] = mean if name == "loss" else round(mean, 5)
        logs.pop("train_samples_per_second", None)  # a batch would count as one sample
        super().log(logs, *args, **kwargs)


def fit(
    model: nn.Module,
    batch: Callable[[int], Batch],
    options: TrainingOptions,
    folder: Path,
    evaluation: Evaluation | None = None,
) -> dict[str, Any]:
    """Train `model` in place, and return the metrics of the training; checkpoints and `log.jsonl`
    go to `folder`. Resumes from the last checkpoint there, also that of a run that had fewer steps.

    batch: step number (0-based) -> keyword arguments of the model. evaluation: chooses the best
    checkpoint, whose weights the model has at the end; without it, it has those of the last.
    Returns {"steps", "skipped", "precision", "loss"}, the values of `Watch.read_usage`, and with an
    evaluation "best": step, metric, score, split and number of items of the best.
    """
    folder.mkdir(parents=True, exist_ok=True)
    watch = Watch(folder, options, evaluation)
    last = broadcast_value(find_last_checkpoint(folder))
    state: dict[str, Any] = {"global_step": 0, "log_history": []}
    if last is not None:
        state = read_json(last / "trainer_state.json")
    if last is not None and watch.is_over(state):
        model.load_state_dict(load_file(last / "model.safetensors"))
    else:
        state = _train(model, batch, watch, last, state["global_step"])

    losses = [line["loss"] for line in state["log_history"] if "loss" in line]
    # the loss is NaN for a logging interval in which all updates were dropped
    finite = [loss for loss in losses if math.isfinite(loss)]
    result = {"steps": state["global_step"], "skipped": watch.skipped}
    result["precision"] = "bf16" if computes_in_bf16(options) else "fp32"
    result |= {"loss": finite[-1] if finite else None} | broadcast_value(watch.read_usage())
    if evaluation:
        step, score = evaluation.find_best(state)
        model.load_state_dict(load_file(folder / f"checkpoint-{step}/model.safetensors"))
        result["best"] = {
            "step": step,
            "metric": evaluation.metric,
            "score": round(score, 5),
            "split": evaluation.options.eval_split,
            "items": evaluation.items,
        }
    return result


def computes_in_bf16(options: TrainingOptions) -> bool:
    """Return whether training computes in bf16: as the options say, else where the GPU or processor
    has it."""
    return has_bf16(not torch.cuda.is_available()) if options.bf16 is None else options.bf16


def describe_steps(result: Mapping[str, Any]) -> str:
    """Describe the result of `fit`: how many steps there were, and the last loss."""
    loss = result.get("loss")
    return f"{result['steps']:,} steps" + ("" if loss is None else f", loss {loss:.3g}")


def _train(
    model: nn.Module,
    batch: Callable[[int], Batch],
    watch: Watch,
    last: Path | None,
    step: int,
) -> dict[str, Any]:
    """Train until the end, and return the state there. last: the checkpoint to go on from, if any;
    step: its step."""
    options = watch.options
    arguments = _make_arguments(watch)
    callbacks: list[TrainerCallback] = [watch]
    if "tensorboard" in options.report_to and is_main():
        from torch.utils.tensorboard import SummaryWriter

        # one run in one folder: what was logged after the checkpoint is made again
        writer = SummaryWriter(str(watch.path.parent / "tensorboard"), purge_step=step + 1)
        callbacks.append(TensorBoardCallback(writer))
    trainer = _Trainer(
        model=model,
        args=arguments,
        train_dataset=StepBatches(batch, arguments.max_steps * options.accumulation),
        data_collator=lambda batches: batches[0],
        callbacks=callbacks,
        watch=watch,
    )
    if count_processes() > 1:  # Trainer would give all processes one seed, and so the same dropout
        torch.manual_seed(options.seed * count_processes() + get_rank())
    if last and is_main():
        tqdm.write(f"{watch.path.parent.parent}: goes on from step {step}", file=sys.stderr)
    # Trainer prints its log, which is progress and no result
    with redirect_stdout(sys.stderr if is_main() else sys.stdout):
        trainer.train(resume_from_checkpoint=str(last) if last else None)
    if "wandb" in options.report_to and is_main():
        import wandb

        # the next training of this process, such as that of a sweep, is a run of its own
        wandb.finish()
    return dict(vars(trainer.state))


def _make_arguments(watch: Watch) -> TrainingArguments:
    """Return the options of a training in the form of Trainer's."""
    options, evaluation, folder = watch.options, watch.evaluation, watch.path.parent
    on_gpu = torch.cuda.is_available()
    workers = options.workers
    if workers is None:
        cores = count_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        workers = min(max(cores - 1, 0), MOST_WORKERS) if on_gpu else 0
    return TrainingArguments(
        output_dir=str(folder),
        run_name="/".join(part for part in folder.parts[-3:] if part != "checkpoints"),
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
        bf16=computes_in_bf16(options),
        seed=options.seed,
        save_steps=options.save_every,
        save_total_limit=2 if evaluation else 1,  # the best and the last
        metric_for_best_model=f"eval_{evaluation.metric}" if evaluation else None,
        greater_is_better=not evaluation.lower if evaluation else None,
        logging_steps=options.log_every,
        report_to=[name for name in options.report_to if name != "tensorboard"],
        remove_unused_columns=False,
        dataloader_num_workers=workers,
        use_cpu=not on_gpu,
        disable_tqdm=False,
    )


def write_by_main(write: Callable[..., object], *arguments: Any) -> None:
    """Let the first process write the results of a training, while the others wait."""
    with main_first():
        if is_main():
            write(*arguments)


def find_last_checkpoint(folder: Path) -> Path | None:
    """Find the latest whole checkpoint. Trainer writes `trainer_state.json` last: without it, the
    run was killed while saving."""
    folders = [state.parent for state in folder.glob("checkpoint-*/trainer_state.json")]
    return max(folders, key=lambda p: int(p.name.removeprefix("checkpoint-")), default=None)
