"""What tests/test_processes.py launches with torchrun: fit on a toy, then calls of the command
line, the last of them killed.

Arguments: a folder for what the processes saw, and a JSON file with a list of the arguments of
every call.
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

BROKEN, KILLED = 2, 4  # steps of the toy and of pre-training


class Toy(nn.Module):
    """A regression with dropout that remembers its rows."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(rank())  # DDP takes the first one's weights
        self.net, self.dropout, self.seen, self.drawn = nn.Linear(4, 1), nn.Dropout(0.5), [], []

    def forward(self, x, y, number):
        assert number.ndim == 0  # what has no rows is not divided
        self.seen.append(x[:, 0].tolist())
        self.drawn.append(self.dropout(torch.ones(64)).tolist())
        loss = (self.net(self.dropout(x))[:, 0] - y).square().mean()
        return {"loss": loss, "mine": torch.tensor(float(rank()))}


def batch(step):
    x = torch.from_numpy(
        np.random.default_rng([7, step]).standard_normal((6, 4)).astype(np.float32)
    )
    y = x.sum(1)
    y[1] = float("nan") if step == BROKEN else y[1]  # a row of the second process alone
    return {"x": x, "y": y, "number": torch.tensor(step)}


def toy(folder):
    model = Toy()
    result = fit(model, batch, TrainingOptions(5, 1e-2, save_every=2, log_every=1), folder / "toy")
    found = {
        "result": result,
        "seen": model.seen,
        "drawn": model.drawn,
        "weights": model.net.weight.tolist(),
    }
    found |= {
        "agreed": broadcast_value(f"process {rank()}"),
        "mean": float(mean_of_processes(torch.tensor(rank()))),
    }
    with main_first():
        found["order"] = [p.name for p in folder.glob("was-*")]
        (folder / f"was-{rank()}").touch()
    (folder / f"process-{rank()}.json").write_text(json.dumps(found))


def killing(call):
    def made(self, step):
        if step == KILLED and rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(self, step)

    return made


if __name__ == "__main__":
    torch.set_num_threads(1)
    toy(Path(sys.argv[1]))
    Cropper.__call__ = killing(Cropper.__call__)
    for arguments in json.loads(Path(sys.argv[2]).read_text()):
        code = main(arguments)
        with Path(sys.argv[1], f"codes-{rank()}").open("a") as file:
            file.write(f"{code}\n")
