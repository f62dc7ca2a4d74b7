"""tests/test_processes.py launches this by torchrun: two processes train a toy model, and then run
calls of the command line, in the last of which the second process kills itself.

Arguments: a folder, and a JSON file with a list of the arguments of every call. Each process writes
process-RANK.json (`facts`) into the folder, and codes-RANK (the exit codes).
"""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from speechssl.cli import main
from speechssl.options import TrainingOptions
from speechssl.pretrain.data import Cropper
from speechssl.processes import average_processes, broadcast_value, get_rank, main_first
from speechssl.training import fit

BROKEN = 2  # the step of the toy whose gradient is NaN
KILLED = 4  # the step of pre-training at which the second process is killed


class Toy(nn.Module):
    """The toy is a regression with dropout. It notes the rows that it sees, and its dropout masks."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(get_rank())  # DDP gives all processes the weights of the first
        self.net = nn.Linear(4, 1)
        self.dropout = nn.Dropout(0.5)
        # of every step
        self.first_columns = []  # of the rows
        self.dropout_masks = []

    def forward(self, x, y, number):
        """x: (B, 4), y: (B,), number: () the step."""
        assert number.ndim == 0  # a tensor without rows is not divided among processes
        self.first_columns.append(x[:, 0].tolist())
        self.dropout_masks.append(self.dropout(torch.ones(64)).tolist())
        loss = (self.net(self.dropout(x))[:, 0] - y).square().mean()
        return {"loss": loss, "rank": torch.tensor(float(get_rank()))}


def make_batch(step):
    """Make the batch of a step, six rows, which are divided among the processes."""
    rng = np.random.default_rng([7, step])
    x = torch.from_numpy(rng.standard_normal((6, 4)).astype(np.float32))
    y = x.sum(1)
    if step == BROKEN:
        y[1] = float("nan")  # this row goes to the second process alone
    return {"x": x, "y": y, "number": torch.tensor(step)}


def train_toy(folder):
    """Train the toy, and write what this process saw."""
    model = Toy()
    options = TrainingOptions(steps=5, learning_rate=1e-2, save_every=2, log_every=1)
    result = fit(model, make_batch, options, folder / "toy")
    facts = {
        "result": result,
        "first_columns": model.first_columns,
        "dropout_masks": model.dropout_masks,
        "weights": model.net.weight.tolist(),
        "broadcast": broadcast_value(f"process {get_rank()}"),
        "mean_rank": float(average_processes(torch.tensor(get_rank()))),
    }
    with main_first():  # the second process finds the file of the first
        facts["files_before"] = [p.name for p in folder.glob("was-*")]
        (folder / f"was-{get_rank()}").touch()
    (folder / f"process-{get_rank()}.json").write_text(json.dumps(facts))


def kill_at_step(make_batch):
    """Wrap a method that makes the batch of a step: at KILLED the second process is killed."""

    def make_or_kill(self, step):
        if step == KILLED and get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return make_batch(self, step)

    return make_or_kill


if __name__ == "__main__":
    torch.set_num_threads(1)
    train_toy(Path(sys.argv[1]))
    Cropper.__call__ = kill_at_step(Cropper.__call__)
    for arguments in json.loads(Path(sys.argv[2]).read_text()):
        code = main(arguments)
        with Path(sys.argv[1], f"codes-{get_rank()}").open("a") as file:
            file.write(f"{code}\n")
