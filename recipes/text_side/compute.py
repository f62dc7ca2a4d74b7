"""Train the frozen pre-trained transformer on tasks that are no language (arXiv 2103.05247).

The encoders here see both ways, and are any text encoder of Hugging Face; the paper's is GPT-2.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speechssl.artifacts import hash_bytes
from speechssl.cli import script
from speechssl.dual.options import BATCH, TEXT_ENCODER
from speechssl.finetuning import count_trained, train_only
from speechssl.options import (
    DEVICE,
    PLAIN,
    TRAINED,
    Amount,
    Count,
    Trained,
    TrainingOptions,
    argument,
    group,
    option,
)
from speechssl.textlm.encoders import load_text_encoder, remove_dropout
from speechssl.training import Batch, check_share, fit
from textside.objectives import check_length, initialise
from textside.options import ARM, RESULTS, Init
from textside.published import MAJORITY
from textside.puzzles import (
    Examples,
    Floor,
    Puzzle,
    PuzzleModel,
    list_digits,
    load_puzzle,
    measure_depth,
    read_signs,
)
from textside.runs import describe_encoder, keep_decisive, run_folder, run_once, write_scores


@dataclass(frozen=True, kw_only=True)
class Compute:
    """train the frozen pre-trained transformer on a task that is no language

    Attention and feed-forward layers of a text encoder stay as they are; what is read in and out is
    learnt, with the layer norms and the positions (arXiv 2103.05247). TASK: bit-memory (a string is
    shown again with half of its bits masked), bit-xor, listops (nested MIN, MAX, MED, SUM_MOD),
    digits (scikit-learn's 8 x 8 images), or images in a file .npz with x_train, y_train, x_test and
    y_test, as Keras has mnist.npz. Starts: pretrained; statistics (random weights with the mean and
    variance of each pre-trained matrix); default (the encoder's own initialisation). --trained all
    trains everything. RESULTS gets the floors of the task as well: what needs no encoder, on the
    same test examples.

      python recipes/text_side/compute.py bit-memory minilm exp/text_side --arm frozen
      python recipes/text_side/compute.py digits minilm exp/text_side --arm full --trained all \\
        --learning-rates 1e-3 3e-4 1e-4
    """

    task: str = argument("bit-memory, bit-xor, listops, digits, or a file of images, .npz")
    encoder: str = argument(TEXT_ENCODER)
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    init: Init = option("pretrained", "where the weights begin")
    trained: Trained = option("frozen", TRAINED)
    learning_rates: tuple[Amount, ...] = option(
        (),
        "train with each of these learning rates and take the one that is best on dev: as many "
        "other generated examples as are tested, or a tenth of the training images, on which "
        "nothing is trained then; default: --learning-rate",
        least=1,
    )
    device: str = option("auto", DEVICE)
    training: TrainingOptions = group(
        TrainingOptions(steps=2000, learning_rate=1e-3, warmup_steps=50, **vars(PLAIN)), "training"
    )
    batch: Count = option(32, BATCH)
    length: Count | None = option(
        None,
        "bits of a string, or places of an expression; default: the paper's (1,000; 5; 512 tokens)",
    )
    test: Count = option(500, "generated test examples; of images all are tested")


def compute(o: Compute) -> None:
    """Train (once) and test, and score the floors of the task.

    Raises InputError for a task or an encoder that cannot be had.
    """
    check_share(o.batch)
    puzzle = load_puzzle(o.task, o.length)
    seed = o.training.seed
    folder = run_folder(o.results, puzzle.name, o.arm, seed)
    data = hash_bytes(*(x.tobytes() for x in (*puzzle.train, *puzzle.test)))
    # a finished run of the same start is not repeated
    made_of = {"init": o.init, "trained": o.trained} | describe_encoder(o.encoder)
    options = keep_decisive(o) | {"task": puzzle.name}

    def make() -> dict[str, Any]:
        train_model = choose_rate if o.learning_rates else train
        model, details = train_model(puzzle, o, folder)
        items = _score_by_item(score_examples(model, puzzle.draw_test(o.test), o.batch))
        details |= made_of | {"options": options, "trained_parameters": count_trained(model)}
        return write_scores(o.results, puzzle.name, "share", o.arm, seed, items, details)

    card = run_once(folder, {"task": puzzle.name, "data": data} | made_of, options, make)
    score_floors(puzzle, o)
    print(f"{folder}: {puzzle.name} {card['value']:.1f} % right ({o.arm}, seed {seed})")


def train(puzzle: Puzzle, o: Compute, folder: Path) -> tuple[PuzzleModel, dict[str, Any]]:
    """Train a model; return it, and the details of its training. folder: for its checkpoints."""
    encoder, _ = load_text_encoder(o.encoder)
    check_length(puzzle.places, encoder, f"places ({puzzle.name})", o.encoder, fewest=1)
    seed = o.training.seed
    encoder = initialise(encoder, o.init, seed)
    torch.manual_seed(seed)
    model = PuzzleModel(remove_dropout(encoder.train()), puzzle)
    train_only(model.encoder, o.trained)

    def batches(step: int) -> Batch:
        shown, targets = puzzle.batch(step, o.batch, seed)
        return {"shown": torch.from_numpy(shown), "targets": torch.from_numpy(targets)}

    return model, {"training": fit(model, batches, o.training, folder / "checkpoints")}


def choose_rate(puzzle: Puzzle, o: Compute, folder: Path) -> tuple[PuzzleModel, dict[str, Any]]:
    """Train at each learning rate; return as `train` does the model that is best on dev, with the
    scores of all. Dev is in neither training nor test."""
    puzzle, dev = puzzle.split_dev(o.test)
    sweep: list[dict[str, float]] = []
    best: tuple[PuzzleModel, dict[str, Any]] | None = None  # model and details
    for rate in o.learning_rates:
        tuned = replace(o, training=replace(o.training, learning_rate=rate))
        model, details = train(puzzle, tuned, folder / "sweep" / f"learning-rate={rate:g}")
        score = float(score_examples(model, dev, o.batch).mean())
        if best is None or score > max(other["score"] for other in sweep):
            best = model, details | {"learning_rate": rate}
        sweep.append({"learning_rate": rate, "score": score})
    assert best
    model, details = best
    details["chosen_on"] = {"split": "dev", "items": len(dev[0])}
    return model, details | {"sweep": sweep}


@torch.inference_mode()
def score_examples(model: PuzzleModel, examples: Examples, batch: int) -> np.ndarray:
    """Return the share of right answers of every example, (n,)."""
    model.eval()
    inputs, targets = examples
    device = next(model.parameters()).device
    shares = []
    for first in range(0, len(inputs), batch):
        logits = model.logits(torch.from_numpy(inputs[first : first + batch]).to(device))
        shares.append((logits.argmax(-1).cpu().numpy() == targets[first : first + batch]).mean(1))
    return np.concatenate(shares)


def score_floors(puzzle: Puzzle, o: Compute) -> None:
    """Score every floor of the task (once) on the test examples, under the seed of this run as
    well: arms and floors are compared seed by seed."""
    shown, targets = puzzle.draw_test(o.test)
    commonest = puzzle.find_commonest()
    floors: dict[str, Floor] = {
        MAJORITY: lambda shown: np.tile(commonest, (len(shown), 1)),
        **puzzle.floors,
    }
    details: dict[str, Any] = {}
    if puzzle.name == "listops":
        expressions = {}
        for i, signs in enumerate(map(read_signs, shown)):
            expressions[str(i)] = [measure_depth(signs), len(list_digits(signs))]
        details["expressions"] = expressions
    for name, guess in floors.items():
        folder = run_folder(o.results, puzzle.name, name, o.training.seed)
        if not (folder / "scores.json").is_file():
            items = _score_by_item((guess(shown) == targets).mean(1))
            write_scores(o.results, puzzle.name, "share", name, o.training.seed, items, details)


def _score_by_item(shares: np.ndarray) -> dict[str, tuple[float, float]]:
    """Return number of an example -> weight, and share of right answers."""
    return {str(i): (1.0, float(share)) for i, share in enumerate(shares)}


if __name__ == "__main__":
    sys.exit(script(compute, Compute))
