"""Steps of training DUAL on long passages: the published Longformer beside exact attention.

    python recipes/speed/reading.py CONFIG EXP

The published setting (arXiv 2203.04911) is Longformer with global attention on the question, all
sequences padded to 4,096 tokens. Ours is the model of `train dual`, a sequence at a time and so
without padding (`--batch 1 --accumulation 4`), on encoders with exact attention (SDPA), and on BERT
with local attention as wide as Longformer's (`--attention-width 256`). All have random weights of
the base shape; a step is forward, backward and AdamW (fused), without dropout.
bf16 is autocast.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
import torch
from common import save, settings
from torch import nn

from speechssl.dual.data import collate
from speechssl.dual.model import SpanModel
from speechssl.textlm.encoders import make_encoder, remove_dropout

PUBLISHED = "transformers Longformer, padded"
WIDTH = 256  # tokens on either side: half of Longformer's window
UNITS, QUESTION = 500, 100  # of a codebook; tokens of a question
ENCODERS: dict[str, dict[str, Any]] = {
    "Longformer": {
        "model_type": "longformer",
        "attention_window": 512,
        "max_position_embeddings": 4098,
        "vocab_size": 50_265,
    },
    "BERT": {"model_type": "bert", "max_position_embeddings": 4096},
    "ModernBERT": {"model_type": "modernbert"},
}


def sequences(lengths: Sequence[int]) -> list[dict[str, torch.Tensor]]:
    """A batch of one each: a question and a window of random units, whose answer is the first
    ten."""
    rng = np.random.default_rng(0)
    found = []
    for length in lengths:
        asked, passage = (
            rng.integers(UNITS, size=size) for size in (QUESTION, length - QUESTION - 3)
        )
        ids = np.concatenate([[UNITS], asked, [UNITS + 1], passage])
        batch = collate([(np.append(ids, UNITS + 1), QUESTION + 2)], UNITS + 2)
        found.append(
            batch | {"first": torch.tensor([QUESTION + 2]), "last": torch.tensor([QUESTION + 12])}
        )
    return found


def padded(
    batches: Sequence[dict[str, torch.Tensor]], length: int
) -> list[dict[str, torch.Tensor]]:
    """The same, all of one length."""

    def fill(name: str, tensor: torch.Tensor) -> torch.Tensor:
        value = UNITS + 2 if name == "ids" else 0
        return (
            nn.functional.pad(tensor, (0, length - tensor.shape[1]), value=value)
            if tensor.ndim == 2
            else tensor
        )

    return [{name: fill(name, tensor) for name, tensor in batch.items()} for batch in batches]


class Step:
    """One contender: its own model and optimiser. Called, it makes a step over all sequences and
    returns its seconds."""

    def __init__(
        self,
        name: str,
        precision: str,
        shape: dict[str, Any],
        clock: str,
        device: torch.device = torch.device("cpu"),
        width: int = 0,
    ):
        self.clock = time.process_time if clock == "cpu" else time.perf_counter
        torch.manual_seed(0)
        encoder = remove_dropout(make_encoder(ENCODERS[name] | shape))
        table = nn.Embedding(UNITS + 3, encoder.config.hidden_size)
        self.model, self.precision, self.device = (
            SpanModel(encoder, table).to(device).train(),
            precision,
            device,
        )
        self.model.inputs.attend(encoder, width, name)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-6, fused=True)

    def __call__(self, batches: Sequence[dict[str, torch.Tensor]]) -> float:
        start = self.clock()
        self.optimiser.zero_grad(set_to_none=True)
        for batch in batches:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                loss = self.model(**batch)["loss"] / len(batches)
            loss.backward()
        self.optimiser.step()
        return self.clock() - start


def main() -> None:
    step = settings("reading")
    repeats, precisions = step.values["repeats"], step.values["precisions"]
    longest = max(map(max, step.values["lengths"]))
    for lengths in step.values["lengths"]:
        batches = sequences(lengths)
        contenders = [(PUBLISHED, "Longformer", padded(batches, longest), 0)]
        contenders += [(f"speechssl {encoder}", encoder, batches, 0) for encoder in ENCODERS]
        contenders.append(("speechssl BERT, local attention", "BERT", batches, WIDTH))
        times: dict[tuple[str, str], list[float]] = {}
        # one after the other: two of them with their gradients take 10 GB
        shape, clock = step.values["shape"], step.values["clock"]
        for system, encoder, its, width in contenders:
            for precision in precisions:
                contender = Step(encoder, precision, shape, clock, width=width)
                contender(its)
                times[system, precision] = [contender(its) for _ in range(repeats)]
        condition = f"reading {'-'.join(map(str, lengths))} units"
        for (system, precision), values in times.items():
            took = median(values)
            found = {"seconds_a_step": took}
            for other in precisions:
                found[f"over_longformer_{other}"] = median(times[PUBLISHED, other]) / took
            save(step.exp, f"{system} {precision}", "base", condition, found, repeats)


if __name__ == "__main__":
    main()
