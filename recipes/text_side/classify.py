"""Fine-tune an encoder on a classification task, and test it.

BERT's way (arXiv 1810.04805, section 4.1): [CLS] text [SEP] pair [SEP], and a layer on the output
of the first token. Symbols that are no tokens get rows of the embedding table as the units of DUAL
do (`textlm.symbols`; for DNA, protein and music: 2103.07162). Letters: B sequences, S tokens
in a sequence, C classes, K symbols, V tokens in the vocabulary, E width of the embeddings.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from speechssl.cli import script
from speechssl.dual.data import collate, draw_batch
from speechssl.dual.model import EncoderInputs
from speechssl.dual.options import BATCH, DROPOUT, TEXT_ENCODER
from speechssl.dual.system import run_model
from speechssl.errors import InputError
from speechssl.finetuning import count_trained, train_only
from speechssl.options import (
    BERT,
    DEVICE,
    TRAINED,
    Count,
    Trained,
    TrainingOptions,
    Whole,
    argument,
    group,
    option,
)
from speechssl.textlm.encoders import load_text_encoder, remove_dropout
from speechssl.textlm.symbols import ASSIGNMENTS, SPECIALS, embed_symbols, list_specials
from speechssl.textlm.tokenizers import find_special_tokens
from speechssl.training import Batch, check_share
from textside import runs
from textside.data import find_tokens
from textside.objectives import check_length
from textside.options import ARM, RESULTS
from textside.tasks import TaskExample, TextTask, load_task


@dataclass(frozen=True, kw_only=True)
class Classify:
    """fine-tune an encoder on a classification task, and test it

    DATA is a folder of `sentence_tasks.py`, one of GLUE as it is published (its name says which:
    CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI), or any folder with train.jsonl, dev.jsonl
    and test.jsonl whose lines are {"text": ..., "pair": ..., "label": ...}. In the place of a text
    a line may have "symbols", as `symbols.py` writes them: a sequence of DNA, of notes, of
    anything, which get rows of the encoder as units do (--assignment). --assignment scratch draws a
    new encoder, re-init new embeddings. RESULTS/runs/TASK/ARM-SEED has what every test item got. A
    killed run resumes with the same command.

      python recipes/text_side/classify.py exp/tasks/order exp/dyck/encoder exp/text_side \\
        --arm dyck-64 --seed 1
      python recipes/text_side/classify.py GLUE/RTE bert-base-uncased exp/text_side --arm bert
    """

    data: Path = argument("folder of a task")
    encoder: str = argument(TEXT_ENCODER)
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    assignment: str = option(
        "own",
        "own (the encoder's tokens; of symbols those of their names), re-init (new embeddings), "
        "scratch (a new encoder as well); of symbols also those of `train dual`",
    )
    device: str = option("auto", DEVICE)
    training: TrainingOptions = group(
        TrainingOptions(steps=1000, learning_rate=5e-5, warmup_steps=100, **vars(BERT)), "training"
    )
    batch: Count = option(32, BATCH)
    length: Count = option(
        128, "tokens in a sequence, specials included; longer texts lose their tail"
    )
    dropout: bool = option(False, DROPOUT)
    eval_every: Whole = option(0, "steps between scores, for curves; 0: only at the end")
    trained: Trained = option("all", TRAINED)


OWN = "own"  # the assignment that keeps an encoder's embeddings
RANDOM = ("re-init", "scratch")  # assignments of a text: embeddings, or all weights, are drawn anew
WordSequence = tuple[np.ndarray, int]  # ids (S,), and the place where the second segment begins


def classify(o: Classify) -> None:
    """Fine-tune (once) and test.

    Raises InputError for a task that cannot be read, an assignment that does not suit it, sequences
    longer than the encoder's positions, or where this arm and seed were run from other inputs.
    """
    check_share(o.batch)
    task = load_task(o.data)
    seed = o.training.seed
    folder = runs.run_folder(o.results, task.name, o.arm, seed)
    identity = runs.describe_encoder(o.encoder)
    options = runs.keep_decisive(o) | {"trained": o.trained}

    def make() -> dict[str, Any]:
        items, details = train_and_answer(task, o, folder)
        details |= identity | {"assignment": o.assignment, "options": options}
        if task.note:
            details["note"] = task.note
        if task.vocabulary:
            details["symbols"] = len(task.vocabulary)
        return runs.write_scores(o.results, task.name, task.metric, o.arm, seed, items, details)

    card = runs.run_once(folder, {"task": task.hash} | identity, options, make)
    scored = f"{task.name} {card['metric']} {card['value']:.1f} %"
    print(f"{folder}: {scored} ({o.arm}, seed {seed})")


def train_and_answer(
    task: TextTask, o: Classify, folder: Path
) -> tuple[dict[str, tuple[float, float]], dict[str, Any]]:
    """Fine-tune an encoder; return the label and the answer of every test example, and the details
    of the training. folder: for its checkpoints."""
    seed = o.training.seed
    loaded, tokenizer = load_text_encoder(o.encoder)
    paired = any(e.pair is not None for examples in task.splits.values() for e in examples)
    check_length(o.length, loaded, "tokens", o.encoder, 5 if paired else 3)
    start = begin_task(task, loaded, tokenizer, o.assignment, seed, o.length)
    train_only(start.encoder, o.trained)
    all_trained = o.trained == "all" or o.assignment != OWN or bool(task.vocabulary)
    start.table.requires_grad_(all_trained)
    if not o.dropout:
        remove_dropout(start.encoder)
    torch.manual_seed(seed)
    model = Classifier(start.encoder.train(), start.table, len(task.classes))
    train, test = ([start.encode(e) for e in task.splits[split]] for split in ("train", "test"))
    train_labels = np.array([e.label for e in task.splits["train"]])
    test_labels = np.array([e.label for e in task.splits["test"]])
    batches = TaskBatches(train, train_labels, start.pad, o.batch, seed)

    def answer() -> np.ndarray:
        """Return the class, or the number, that the model gives every test example."""
        model.eval()
        device = next(model.parameters()).device
        bf16 = bool(o.training.bf16) and device.type == "cuda"
        make_batch = partial(collate, pad=start.pad)
        rows = run_model(model.logits, device, test, make_batch, o.batch, bf16)
        logits = np.stack([row.numpy() for row in rows])
        chosen = logits.argmax(1) if task.classes else logits[:, 0]
        return chosen.astype(np.float64)

    def score() -> float:
        means = runs.score_columns(task.metric, test_labels, answer()).mean(0)
        return float(runs.compute_score(task.metric, means))

    training, curve = runs.fit_and_score(
        model, batches, o.training, folder / "checkpoints", score, o.eval_every
    )
    pairs = zip(test_labels, answer(), strict=True)
    items = {e.id: pair for e, pair in zip(task.splits["test"], pairs, strict=True)}
    parameters = count_trained(model)
    return items, {"training": training, "curve": curve, "trained_parameters": parameters}


# ---- sequences


class TaskStart(NamedTuple):
    """Fine-tuning begins from an encoder and the embeddings of a task's tokens or symbols."""

    encoder: PreTrainedModel
    table: nn.Embedding
    encode: Callable[[TaskExample], WordSequence]
    pad: int  # id of padding


def begin_task(
    task: TextTask,
    encoder: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    assignment: str,
    seed: int,
    longest: int,
) -> TaskStart:
    """Give the tokens or symbols of a task embeddings, by an assignment.

    longest: S at most; an example that is longer loses the tail of the longer of its texts. Raises
    InputError for an assignment that does not suit the task.
    """
    vocabulary = task.vocabulary
    assignments = (OWN, *ASSIGNMENTS) if vocabulary else (OWN, *RANDOM)
    if assignment not in assignments:
        raise InputError(
            f"the task {task.name} has no assignment {assignment!r}; choose from "
            f"{', '.join(assignments)}"
        )
    rows = encoder.get_input_embeddings().weight.detach()
    count = len(vocabulary) or len(rows) - SPECIALS
    body, table = encoder, nn.Embedding.from_pretrained(rows.clone(), freeze=False)
    if assignment != OWN:
        body, table = embed_symbols(encoder, tokenizer, count, assignment, seed)
    elif vocabulary:
        token_ids = [*find_tokens(tokenizer, vocabulary), *find_special_tokens(tokenizer)]
        table = nn.Embedding.from_pretrained(rows[token_ids], freeze=False)
    cls, sep, pad = list_specials(count) if vocabulary else find_special_tokens(tokenizer)
    index = {symbol: i for i, symbol in enumerate(vocabulary)}

    def encode(e: TaskExample) -> WordSequence:
        if vocabulary:
            text = [index[symbol] for symbol in e.symbols]
        else:
            text = tokenizer(e.text, add_special_tokens=False)["input_ids"]
        if e.pair is None:
            text = text[: longest - 2]
            return np.array([cls, *text, sep], np.int64), len(text) + 2
        pair = tokenizer(e.pair, add_special_tokens=False)["input_ids"]
        space = longest - 3
        # the first text gets the space that the second leaves, but half of it at least
        cut = min(len(text), max(space - len(pair), space - space // 2))
        return np.array([cls, *text[:cut], sep, *pair[: space - cut], sep], np.int64), cut + 2

    return TaskStart(body, table, encode, pad)


@dataclass(frozen=True)
class TaskBatches:
    """Batches of examples are a function of (seed, step) only."""

    sequences: Sequence[WordSequence]
    labels: np.ndarray
    pad: int
    size: int
    seed: int

    def __call__(self, step: int) -> Batch:
        """Return ids, mask, segments (B, S), and labels (B,)."""
        numbers, _ = draw_batch(step, len(self.sequences), self.size, self.seed)
        labels = {"labels": torch.from_numpy(self.labels[numbers])}
        return collate([self.sequences[i] for i in numbers], self.pad) | labels


class Classifier(nn.Module):
    """A classifier has an encoder, embeddings, and two layers on the output of the first token."""

    def __init__(self, encoder: PreTrainedModel, table: nn.Embedding, classes: int) -> None:
        """Put a head on an encoder. table: (V, E); classes: C; 0: a number is predicted."""
        super().__init__()
        self.inputs = EncoderInputs(encoder, table.embedding_dim)
        self.encoder, self.table = encoder, table
        width, self.classes = encoder.config.hidden_size, classes
        first, last = nn.Linear(width, width), nn.Linear(width, max(classes, 1))
        self.head = nn.Sequential(first, nn.Tanh(), last)

    def logits(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """Return (B, C), or (B, 1) for a number. ids, mask, segments: (B, S)."""
        hidden = self.encoder(**self.inputs(self.table(ids), mask, segments)).last_hidden_state
        return self.head(hidden[:, 0]).float()

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor, labels: torch.Tensor
    ) -> Batch:
        """Return the loss, cross-entropy or the mean square of the error; and of classes the share
        of right answers. labels: (B,)."""
        logits = self.logits(ids, mask, segments)
        if not self.classes:
            return {"loss": functional.mse_loss(logits[:, 0], labels.float())}
        right = (logits.argmax(1) == labels).float().mean().detach()
        return {"loss": functional.cross_entropy(logits, labels.long()), "right": right}


if __name__ == "__main__":
    sys.exit(script(classify, Classify))
