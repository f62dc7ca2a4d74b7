"""Fine-tuning of an encoder on a classification task, and its answers on the test set.

BERT's way (arXiv 1810.04805, section 4.1): [CLS] text [SEP] pair [SEP], and a layer on the output
of the first token. Symbols that are no tokens get rows of the embedding table as the units of DUAL
do (`textlm.symbol_encoder`; for DNA, protein and music: 2103.07162). Letters: B sequences, S tokens
in a sequence, C classes, K symbols, V tokens in the vocabulary, E width of the embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from speechssl.dual.data import collate, draw_batch
from speechssl.dual.model import EncoderInputs
from speechssl.dual.system import run_model
from speechssl.errors import InputError
from speechssl.finetuning import train_only, trained_parameters
from speechssl.io import stage
from speechssl.options import settings
from speechssl.text_side.objectives import check_length
from speechssl.text_side.options import ClassifyOptions
from speechssl.text_side.runs import (
    columns,
    encoder_named,
    fit_and_score,
    run_folder,
    value,
    write_scores,
)
from speechssl.text_side.tasks import TaskExample, TextTask, load_task
from speechssl.textlm import (
    ASSIGNMENTS,
    SPECIALS,
    load_text_encoder,
    rows_named,
    special_ids,
    special_tokens,
    symbol_encoder,
    without_dropout,
)
from speechssl.trainer import Batch, check_share

OWN, DRAWN = "own", ("re-init", "scratch")  # assignments of an encoder's own tokens
Sequence_ = tuple[np.ndarray, int]  # ids (S,), and where its second segment begins


def classify(
    data: Path, encoder: str, results: Path, arm: str, assignment: str, o: ClassifyOptions
) -> str:
    """Fine-tune (once) and test; a line that says what came out.

    Raises InputError for a task that cannot be read, an assignment that does not suit it, sequences
    longer than the encoder's positions, or where this arm and seed were run from other inputs.
    """
    check_share(o.batch)
    task, seed = load_task(data), o.training.seed
    folder = run_folder(results, task.name, arm, seed)
    identity = encoder_named(encoder)
    options = settings(o) | {"trained": o.trained}
    with stage(folder, {"task": task.hash, "assignment": assignment} | identity, options) as step:
        if step.done:
            card = step.card
        else:
            loaded, tokenizer = load_text_encoder(encoder)
            paired = any(e.pair is not None for examples in task.splits.values() for e in examples)
            check_length(o.length, loaded, "tokens", encoder, 5 if paired else 3)
            body, table, encode, pad = starts(task, loaded, tokenizer, assignment, seed, o.length)
            train_only(body, o.trained)
            table.requires_grad_(o.trained == "all" or assignment != OWN or bool(task.vocabulary))
            if not o.dropout:
                without_dropout(body)
            torch.manual_seed(seed)
            model = Classifier(body.train(), table, len(task.classes))
            sequences = {
                split: [encode(e) for e in examples] for split, examples in task.splits.items()
            }
            labels = {
                split: np.array([e.label for e in examples])
                for split, examples in task.splits.items()
            }
            batches = TaskBatches(sequences["train"], labels["train"], pad, o.batch, seed)

            def answers(split: str) -> np.ndarray:
                model.eval()
                device = next(model.parameters()).device
                rows = run_model(
                    model.logits,
                    device,
                    sequences[split],
                    lambda batch: collate(batch, pad),
                    o.batch,
                    o.training.bf16 and device.type == "cuda",
                )
                logits = np.stack([row.numpy() for row in rows])
                return (
                    logits.argmax(1).astype(np.float64)
                    if task.classes
                    else logits[:, 0].astype(np.float64)
                )

            def score() -> float:
                return float(
                    value(
                        task.metric, columns(task.metric, labels["test"], answers("test")).mean(0)
                    )
                )

            result, curve = fit_and_score(
                model, batches, o.training, folder / "checkpoints", score, o.evaluate_every
            )
            items = dict(
                zip(
                    (e.id for e in task.splits["test"]),
                    zip(labels["test"], answers("test"), strict=True),
                    strict=True,
                )
            )
            details: dict[str, Any] = identity | {
                "assignment": assignment,
                "options": options,
                "training": result,
                "curve": curve,
            }
            details |= {"trained_parameters": trained_parameters(model)}
            details |= {"note": task.note} if task.note else {}
            details |= {"symbols": len(task.vocabulary)} if task.vocabulary else {}
            card = step.finish(
                write_scores(results, task.name, task.metric, arm, seed, items, details)
            )
        return f"{folder}: {task.name} {card['metric']} {card['value']:.1f} % ({arm}, seed {seed})"


# ---- sequences

Encode = Callable[[TaskExample], Sequence_]


def starts(
    task: TextTask,
    encoder: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    assignment: str,
    seed: int,
    longest: int,
) -> tuple[PreTrainedModel, nn.Embedding, Encode, int]:
    """The encoder, the embeddings of a task's tokens or symbols, how its examples are encoded, and
    the id of padding.

    longest: S at most; what is longer loses the tail of the longer of its texts.
    Raises InputError for an assignment that does not suit the task, or a symbol that training does
    not know.
    """
    spoken = [e for examples in task.splits.values() for e in examples if e.symbols]
    if spoken:
        if assignment not in (OWN, *ASSIGNMENTS):
            raise InputError(
                f"symbols have no assignment {assignment!r}; choose one of "
                f"{', '.join((OWN, *ASSIGNMENTS))}"
            )
        index = {symbol: i for i, symbol in enumerate(task.vocabulary)}
        if strange := sorted({s for e in spoken for s in e.symbols} - set(index)):
            raise InputError(
                f"the symbol {strange[0]!r} of the task {task.name} is not in its training data; "
                "take it out or train on it"
            )
        if assignment == OWN:
            chosen = torch.tensor(
                [*rows_named(tokenizer, task.vocabulary), *special_tokens(tokenizer)]
            )
            body, table = (
                encoder,
                nn.Embedding.from_pretrained(
                    encoder.get_input_embeddings().weight[chosen], freeze=False
                ),
            )
        else:
            body, table = symbol_encoder(encoder, tokenizer, len(index), assignment, seed)
        cls, sep, pad = special_ids(len(index))

        def encode_symbols(e: TaskExample) -> Sequence_:
            ids = [index[s] for s in e.symbols][: longest - 2]
            return np.array([cls, *ids, sep], np.int64), len(ids) + 2

        return body, table, encode_symbols, pad
    if assignment not in (OWN, *DRAWN):
        raise InputError(
            f"a task of text has no assignment {assignment!r}; choose one of "
            f"{', '.join((OWN, *DRAWN))}"
        )
    rows = encoder.get_input_embeddings().weight.detach()
    if assignment == OWN:
        body, table = encoder, nn.Embedding.from_pretrained(rows.clone(), freeze=False)
    else:
        body, table = symbol_encoder(encoder, tokenizer, len(rows) - SPECIALS, assignment, seed)

    cls, sep, pad = special_tokens(tokenizer)

    def encode(e: TaskExample) -> Sequence_:
        text, pair = (
            tokenizer(x, add_special_tokens=False)["input_ids"] for x in (e.text, e.pair or "")
        )
        if e.pair is None:
            text = text[: longest - 2]
            return np.array([cls, *text, sep], np.int64), len(text) + 2
        room = longest - 3  # of it, the first text has what the second leaves, but half at least
        cut = min(len(text), max(room - len(pair), room - room // 2))
        return np.array([cls, *text[:cut], sep, *pair[: room - cut], sep], np.int64), cut + 2

    return body, table, encode, pad


@dataclass(frozen=True)
class TaskBatches:
    """Batches of examples, a function of (seed, step) only."""

    sequences: Sequence[Sequence_]
    labels: np.ndarray
    pad: int
    size: int
    seed: int

    def __call__(self, step: int) -> Batch:
        """ids, mask, segments (B, S); labels (B,)."""
        numbers, _ = draw_batch(step, len(self.sequences), self.size, self.seed)
        return collate([self.sequences[i] for i in numbers], self.pad) | {
            "labels": torch.from_numpy(self.labels[numbers])
        }


class Classifier(nn.Module):
    """An encoder, embeddings, and two layers on the output of the first token."""

    def __init__(self, encoder: PreTrainedModel, table: nn.Embedding, classes: int) -> None:
        """table: (V, E). classes: C; 0: a number is predicted."""
        super().__init__()
        self.inputs, self.encoder, self.table = (
            EncoderInputs(encoder, table.embedding_dim),
            encoder,
            table,
        )
        width, self.classes = encoder.config.hidden_size, classes
        self.head = nn.Sequential(
            nn.Linear(width, width), nn.Tanh(), nn.Linear(width, max(classes, 1))
        )

    def logits(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """All (B, S). Returns (B, C), or (B, 1)."""
        return self.head(
            self.encoder(**self.inputs(self.table(ids), mask, segments)).last_hidden_state[:, 0]
        ).float()

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor, labels: torch.Tensor
    ) -> Batch:
        """labels: (B,). loss: cross-entropy, or the mean square of the error. right: how many are
        right."""
        logits = self.logits(ids, mask, segments)
        if not self.classes:
            return {"loss": functional.mse_loss(logits[:, 0], labels.float())}
        right = (logits.argmax(1) == labels).float().mean().detach()
        return {"loss": functional.cross_entropy(logits, labels.long()), "right": right}
