"""A program that tests/test_processes.py launches with torchrun: it fits a toy model, then makes
calls of the command line, the last of which is killed in pre-training.

Arguments: a folder, and a JSON file with a list of the arguments of every call. Process N writes
FOLDER/process-N.json, what its toy model saw, and FOLDER/codes-N, the exit codes of the calls.
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
from speechssl.processes import broadcast_value, main_first, mean_of_processes, rank
from speechssl.training import fit

BROKEN = 2  # step at which a row of the toy's batch is NaN
KILLED = 4  # step of pre-training at which the second process is killed


class Toy(nn.Module):
    """A regression with dropout, which remembers the rows of its batches and its dropout masks."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(rank())  # DDP gives all processes the weights of the first
        self.net = nn.Linear(4, 1)
        self.dropout = nn.Dropout(0.5)
        self.seen = []  # of every step: first columns of the rows
        self.drawn = []  # of every step: ones after dropout

    def forward(self, x, y, number):
        assert number.ndim == 0  # a tensor without rows is not divided among the processes
        self.seen.append(x[:, 0].tolist())
        self.drawn.append(self.dropout(torch.ones(64)).tolist())
        loss = (self.net(self.dropout(x))[:, 0] - y).square().mean()
        return {"loss": loss, "mine": torch.tensor(float(rank()))}


def make_batch(step):
    x = torch.from_numpy(
        np.random.default_rng([7, step]).standard_normal((6, 4)).astype(np.float32)
    )
    y = x.sum(1)
    if step == BROKEN:
        y[1] = float("nan")  # a row of the second process
    return {"x": x, "y": y, "number": torch.tensor(step)}


def fit_toy(folder):
    model = Toy()
    options = TrainingOptions(steps=5, learning_rate=1e-2, save_every=2, log_every=1)
    result = fit(model, make_batch, options, folder / "toy")
    facts = {
        "result": result,
        "seen": model.seen,
        "drawn": model.drawn,
        "weights": model.net.weight.tolist(),
        "agreed": broadcast_value(f"process {rank()}"),
        "mean": float(mean_of_processes(torch.tensor(rank()))),
    }
    with main_first():
        facts["order"] = [path.name for path in folder.glob("was-*")]  # of processes before
        (folder / f"was-{rank()}").touch()
    (folder / f"process-{rank()}.json").write_text(json.dumps(facts))


def kill_second_process(make_crops):
    """Wrap `Cropper.__call__`, so that it kills the second process at step KILLED."""

    def make_crops_or_die(self, step):
        if step == KILLED and rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return make_crops(self, step)

    return make_crops_or_die


if __name__ == "__main__":
    torch.set_num_threads(1)
    fit_toy(Path(sys.argv[1]))
    Cropper.__call__ = kill_second_process(Cropper.__call__)
    for arguments in json.loads(Path(sys.argv[2]).read_text()):
        code = main(arguments)
        with Path(sys.argv[1], f"codes-{rank()}").open("a") as file:
            file.write(f"{code}\n")
