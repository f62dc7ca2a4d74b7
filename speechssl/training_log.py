"""What a training run writes down while it goes: `log.jsonl`, the curves for TensorBoard, how fast it is."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path

from transformers import TrainerCallback
from transformers.integrations import TensorBoardCallback

from speechssl.artefacts import write_text


def logs(folder: Path, tensorboard: bool) -> list[TrainerCallback]:
    """`folder`/log.jsonl and, where wanted, `folder`/tensorboard."""
    return [ScalarLog(folder / "log.jsonl"), *([Curves(folder / "tensorboard")] if tensorboard else [])]


class ScalarLog(TrainerCallback):
    """Appends what the module reports beside the loss to `log.jsonl`, a line every `log_every` steps.

    A run that goes on from a checkpoint makes the steps after it again: their lines from before the kill are dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_begin(self, args, state, control, **kwargs):  # type: ignore[no-untyped-def]
        if state.is_world_process_zero and self.path.is_file():
            lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
            write_text(self.path, "".join(line for line in lines if _logged_at(line) <= state.global_step))

    def on_log(self, args, state, control, logs=None, **kwargs):  # type: ignore[no-untyped-def]
        if state.is_world_process_zero and logs:
            values = {k: v if not isinstance(v, float) or math.isfinite(v) else None for k, v in logs.items()}  # NaN is not JSON
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": state.global_step} | values) + "\n")


def _logged_at(line: str) -> float:
    """The step of a line of the log; of one that the kill cut short: infinity."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


class Curves(TensorBoardCallback):
    """The log for TensorBoard: one run in one folder, however often it was killed. (Trainer would begin another at each start.)"""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def on_train_begin(self, args, state, control, **kwargs):  # type: ignore[no-untyped-def]
        if state.is_world_process_zero:  # what was logged after the checkpoint is made again: TensorBoard forgets it
            self.tb_writer = self._SummaryWriter(str(self.folder), purge_step=state.global_step + 1)
        super().on_train_begin(args, state, control, **kwargs)


class Pace(TrainerCallback):
    """How much audio goes through a second, from one log line to the next: saving and waiting for batches count as time too.

    seconds: number of a batch -> seconds of audio in it. batches: an update.
    """

    def __init__(self, seconds: Callable[[int], float] | None, batches: int = 1) -> None:
        self.seconds, self.batches, self.since, self.step = seconds, batches, time.perf_counter(), 0

    def on_train_begin(self, args, state, control, **kwargs):  # type: ignore[no-untyped-def]
        self.since, self.step = time.perf_counter(), state.global_step

    def times_real_time(self, step: int) -> dict[str, float]:
        """Seconds of audio over seconds of time since this was last asked; {} where neither is known."""
        now, heard = time.perf_counter(), range(self.step * self.batches, step * self.batches)
        passed, self.since, self.step = now - self.since, now, step
        return {"times_real_time": round(math.fsum(map(self.seconds, heard)) / passed, 2)} if self.seconds and heard else {}
