"""Train a language model of units (GSLM, arXiv 2102.01192), from a text-pre-trained start (TWIST,
2305.13009) or from its shape alone.

Symbols are the K units of a codebook, of which runs are one symbol, and one more, id K, that stands
before every recording and behind the last.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from speechssl.artifacts import begin_stage, read_json
from speechssl.cli import script
from speechssl.dual.options import BATCH
from speechssl.options import BERT, DEVICE, Count, TrainingOptions, Whole, argument, group, option
from speechssl.processes import is_main, main_first
from speechssl.textlm.encoders import count_positions, remove_dropout
from speechssl.training import check_share
from speechssl.units.storage import load_units, read_units_card
from textside.lm import WHAT, UnitLm, check_codebook
from textside.objectives import (
    CausalBatches,
    CausalModel,
    check_length,
    load_causal,
    make_source,
    save_causal,
    set_rows,
)
from textside.runs import describe_encoder, fit_and_score, keep_decisive


@dataclass(frozen=True, kw_only=True)
class TrainUnitLm:
    """train a language model of units, from a text-pre-trained start or from its shape alone

    A model that reads from left to right predicts the next unit; runs of a unit are one symbol. The
    layers are those of a language model of text and the rows of the units are new (TWIST, arXiv
    2305.13009). UNITS is the output of `speechssl units extract`. OUT/model is a checkpoint of
    transformers. A killed run resumes with the same command.

      python recipes/text_side/pretrain.py exp/gpt --text texts/ --objective causal \\
        --layers 4 --width 128 --heads 4 --steps 2000
      python recipes/text_side/unit_lm.py units exp/lm-text --start exp/gpt/encoder
      python recipes/text_side/unit_lm.py units exp/lm-scratch --start exp/gpt/encoder \\
        --assignment scratch
      python recipes/text_side/unit_lm.py units exp/lm-opt --start facebook/opt-125m \\
        --eval-split dev --eval-every 500
    """

    units: Path = argument("folder of `speechssl units extract`")
    out: Path = argument("folder for the model")
    device: str = option("auto", DEVICE)
    training: TrainingOptions = group(
        TrainingOptions(20_000, 2.5e-4, 1000, **vars(BERT)), "training"
    )
    start: str = option(
        MISSING,
        "language model to start from: folder or hub id of any that reads from left to right",
    )
    assignment: Literal["re-init", "scratch"] = option(
        "re-init", "what is drawn anew: re-init, the rows of the units (as TWIST); scratch, all"
    )
    split: str = option("train", "split of UNITS to train on")
    eval_split: str = option("dev", "split of UNITS whose perplexity is taken in training")
    eval_every: Whole = option(0, "steps between perplexities, for curves; 0: only at the end")
    length: Count = option(512, "units in a sequence")
    batch: Count = option(32, BATCH)
    dropout: bool = option(False, "use the language model's dropout in training")


def train_unit_lm(o: TrainUnitLm) -> None:
    """Train (once) on a split, and leave the model in `o.out`/model.

    Raises InputError for units that there are not, a start that is no language model, sequences
    longer than its positions, or an `o.out` that was made from other inputs.
    """
    check_share(o.batch)
    card = read_units_card(o.units / o.split)
    scored = read_units_card(o.units / o.eval_split)
    check_codebook(scored, card, o.units / o.eval_split)
    identity = describe_encoder(o.start)
    inputs = {
        "units": [part["hash"] for part in card["parts"]],
        "K": int(card["K"]),
        "scored": [part["hash"] for part in scored["parts"]],
        "start": identity,
    }
    options = keep_decisive(o) | {"start": identity["encoder"]}
    with begin_stage(o.out, inputs, options) as step:
        if not step.done:
            facts = {name: card[name] for name in ("K", "codebooks")} | {"units": card["made_from"]}
            trained = _train(o, int(card["K"]))
            with main_first():
                if is_main():
                    weights = describe_encoder(str(o.out / "model"))["weights"]
                    about = {"what": WHAT, "options": options, "start": identity}
                    step.finish(about | facts | trained | {"weights": weights})
        curve = read_json(o.out / "card.json")["curve"]
    kind = f"unit language model of K = {card['K']}, {o.assignment}"
    print(f"{o.out}: {kind}, perplexity of {o.eval_split} {curve[-1]['score']:.2f}")


def _train(o: TrainUnitLm, symbols: int) -> dict[str, Any]:
    """Train and write the model; return the details of the training. symbols: K."""
    torch.manual_seed(o.training.seed)
    model = make_start(o, symbols)
    check_length(o.length, model, "symbols", "the language model")
    if not o.dropout:
        remove_dropout(model)
    stream = Recordings([runs.units for runs in load_units(o.units / o.split).values()], symbols)
    trained = CausalModel(model)
    held_out = [runs.units for runs in load_units(o.units / o.eval_split).values()]

    def measure_perplexity() -> float:
        lm = UnitLm(trained, symbols, count_positions(model) or o.length, window=o.length)
        scores = lm.log_probs(held_out)
        trained.train()
        return float(np.exp(-np.concatenate(scores).mean()))

    batches = CausalBatches(
        make_source(stream),
        first=None,  # id K is in the stream
        pad=symbols,
        batch=o.batch,
        length=o.length,
        seed=o.training.seed,
    )
    training, curve = fit_and_score(
        trained, batches, o.training, o.out / "checkpoints", measure_perplexity, o.eval_every
    )
    with main_first():
        if is_main():
            save_causal(model, trained, o.out / "model")
    return {"training": training, "curve": curve}


def make_start(o: TrainUnitLm, symbols: int) -> PreTrainedModel:
    """Make the model that training begins from. Raises InputError for a start that is no language
    model."""
    model = load_causal(o.start)
    if o.assignment == "scratch":
        model = AutoModelForCausalLM.from_config(model.config)
    source = model.get_input_embeddings().weight.detach()
    std = getattr(model.config, "initializer_range", None)
    rows = torch.randn(symbols + 1, source.shape[1])
    set_rows(model, rows * float(source.std() if std is None else std), symbols)
    return model.train()


class Recordings:
    """Recordings make a `Stream`: they follow each other in an endless circle, with id K before
    each."""

    def __init__(self, recordings: Sequence[np.ndarray], symbols: int) -> None:
        """Join recordings that are not empty. recordings: units of each, 0 to K - 1."""
        parts = [np.append(symbols, units) for units in recordings if len(units)]
        self.ids = np.concatenate(parts, dtype=np.int64)

    def __call__(self, rng: np.random.Generator, length: int) -> np.ndarray:
        return np.take(self.ids, np.arange(length) + rng.integers(len(self.ids)), mode="wrap")


if __name__ == "__main__":
    sys.exit(script(train_unit_lm, TrainUnitLm))
