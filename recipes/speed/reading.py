"""Time steps of training DUAL on long passages: the published Longformer beside exact attention.

    python recipes/speed/reading.py CONFIG EXP

The published setting (arXiv 2203.04911) is Longformer with global attention on the question, all
sequences padded to 4,096 tokens. Ours is the model of `train dual`, a sequence at a time and so
without padding (`--batch 1 --accumulation 4`), on encoders with exact attention (SDPA), and on BERT
with local attention as wide as Longformer's (`--attention-width 256`). All have random weights of
the base shape; a step is forward, backward and AdamW (fused), without dropout, and bf16 is
autocast.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from common import CLOCKS, add_rows, read_settings
from torch import nn

from speechssl.cli import run_program
from speechssl.dual.data import collate
from speechssl.dual.model import SpanModel
from speechssl.textlm.encoders import make_encoder, remove_dropout

PUBLISHED = "transformers Longformer, padded"
WIDTH = 256  # of local attention: tokens on either side, half of Longformer's window
UNITS = 500  # of a codebook; the ids behind them are [CLS], [SEP] and [PAD]
CLS, SEP, PAD = UNITS, UNITS + 1, UNITS + 2
QUESTION = 100  # units of a question
ANSWER = 11  # units of an answer
# name -> settings of its configuration that differ from transformers' own
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


Sequences = Sequence[dict[str, torch.Tensor]]  # a batch of one each


def make_sequences(lengths: Sequence[int]) -> Sequences:
    """Make sequences of a question and a passage, random units, whose answer begins the passage."""
    rng = np.random.default_rng(0)
    batches = []
    for length in lengths:
        question = rng.integers(UNITS, size=QUESTION)
        passage = rng.integers(UNITS, size=length - QUESTION - 3)
        ids = np.concatenate([[CLS], question, [SEP], passage, [SEP]])
        first = QUESTION + 2  # place of the passage's first unit
        answer = {"first": torch.tensor([first]), "last": torch.tensor([first + ANSWER - 1])}
        batches.append(collate([(ids, first)], PAD) | answer)
    return batches


def pad_sequences(batches: Sequences, length: int) -> Sequences:
    """Pad sequences to one length."""
    padded = []
    for batch in batches:
        wide = dict(batch)
        for name, tensor in batch.items():
            if tensor.ndim == 2:
                value = PAD if name == "ids" else 0
                missing = length - tensor.shape[1]
                wide[name] = nn.functional.pad(tensor, (0, missing), value=value)
        padded.append(wide)
    return padded


class Step:
    """A contender has its own model and optimiser. Called, it makes a step over all sequences and
    returns its seconds.

    name: of ENCODERS. shape: settings in the place of those of ENCODERS. clock: of CLOCKS.
    width: of local attention (0: all tokens).
    """

    def __init__(
        self,
        name: str,
        precision: str,
        shape: dict[str, Any],
        clock: str,
        device: torch.device = torch.device("cpu"),
        width: int = 0,
    ):
        self.clock = CLOCKS[clock]
        self.precision, self.device = precision, device
        torch.manual_seed(0)
        encoder = remove_dropout(make_encoder(ENCODERS[name] | shape))
        table = nn.Embedding(PAD + 1, encoder.config.hidden_size)
        self.model = SpanModel(encoder, table).to(device).train()
        self.model.inputs.attend(encoder, width, name)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-6, fused=True)

    def __call__(self, batches: Sequences) -> float:
        start = self.clock()
        self.optimiser.zero_grad(set_to_none=True)
        for batch in batches:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                loss = self.model(**batch)["loss"] / len(batches)
            loss.backward()
        self.optimiser.step()
        return self.clock() - start


def main(config: Path, exp: Path) -> None:
    settings = read_settings("reading", config, exp)
    repeats, precisions = settings.values["repeats"], settings.values["precisions"]
    shape, clock = settings.values["shape"], settings.values["clock"]
    longest = max(map(max, settings.values["lengths"]))
    for lengths in settings.values["lengths"]:
        batches = make_sequences(lengths)
        # system, encoder, its sequences, width of local attention
        contenders = [(PUBLISHED, "Longformer", pad_sequences(batches, longest), 0)]
        contenders += [(f"speechssl {encoder}", encoder, batches, 0) for encoder in ENCODERS]
        contenders.append(("speechssl BERT, local attention", "BERT", batches, WIDTH))
        times: dict[tuple[str, str], list[float]] = {}
        # one contender after the other: two with their gradients take 10 GB
        for system, encoder, sequences, width in contenders:
            for precision in precisions:
                run_step = Step(encoder, precision, shape, clock, width=width)
                run_step(sequences)  # warms up
                times[system, precision] = [run_step(sequences) for _ in range(repeats)]
        condition = f"reading {'-'.join(map(str, lengths))} units"
        for (system, precision), seconds in times.items():
            values = {"seconds_a_step": median(seconds)}
            for other in precisions:
                published = median(times[PUBLISHED, other])
                values[f"over_longformer_{other}"] = published / median(seconds)
            add_rows(settings.exp, f"{system} {precision}", "base", condition, values, repeats)


if __name__ == "__main__":
    run_program(main)
