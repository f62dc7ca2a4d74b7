"""The model of multiple choice, on token sequences of any kind, reads every window of a story with
every option and gives each option a score.

The sequence is `[CLS] question [SEP] option [SEP] window [SEP]`. A window gives an option evidence;
a learned combination of all windows gives the option's score. How many options are right, k, is
part of the question (the TOEFL prints it). A set S of k options has the probability exp(sum of the
scores in S) / sum over all sets T of k options of exp(sum of the scores in T), the conditional
Bernoulli distribution (Chen and Liu 1997, Statistica Sinica 7); for k = 1 it is the softmax. The k
best options are its mode.
Set accuracy is the share of questions for which exactly the right options are chosen; accuracy is
the same over the questions with one right option.
Letters: B questions, O options, W windows, N sequences, S tokens in a sequence, H hidden width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from speechssl.data.records import Question
from speechssl.dual.data import Layout, collate, mark_window
from speechssl.dual.model import IGNORED, EncoderInputs, load_parts
from speechssl.dual.system import run_model
from speechssl.errors import InputError
from speechssl.multiple_choice.data import ChoiceTokens

if TYPE_CHECKING:  # both take long to import, and answering needs neither
    from transformers import PreTrainedModel

    from speechssl.training import Batch

LIKENESS = 20.0  # initial weight, in logits, of the cosine of question and window
# initial sharpness of the combination of windows: at 0 it is their mean, at infinity the best one
SHARPNESS = 5.0


class ChoiceModel(nn.Module):
    """The model is an embedding table, a text encoder, a head that weighs a window's evidence, and
    the combination of windows."""

    def __init__(self, encoder: PreTrainedModel, embedding: nn.Embedding) -> None:
        super().__init__()
        self.inputs = EncoderInputs(encoder, embedding.embedding_dim)
        self.encoder = encoder
        self.embedding = embedding
        width = encoder.config.hidden_size
        self.dense = nn.Linear(3 * width, width)
        self.head = nn.Linear(width, 2)  # gives the evidence, and its logit for attention
        # at zero: at first the evidence is the likeness of question (with option) and window alone
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.likeness = nn.Parameter(torch.full((1,), LIKENESS))
        self.sharpness = nn.Parameter(torch.full((1,), SHARPNESS).log())  # the logarithm is trained

    def measure_evidence(
        self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor
    ) -> torch.Tensor:
        """Measure the evidence of each sequence and its logit for attention, (N, 2). ids, mask,
        segments: (N, S)."""
        inputs = self.inputs(self.embedding(ids), mask, segments)
        hidden = self.encoder(**inputs).last_hidden_state.float()
        question = _average(hidden, (1 - segments) * mask)
        window = _average(hidden, mark_window(mask, segments))
        likeness = self.likeness * functional.cosine_similarity(question, window)[:, None]
        features = torch.cat([question, window, question * window], -1)
        return likeness + self.head(torch.tanh(self.dense(features))).float()

    def combine_evidence(self, evidence: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """Combine the evidence of all windows; return scores (B, O), IGNORED for options that are
        padding. evidence: (B, O, W, 2); present: (B, O, W) bool, False for padding."""
        attention = self.sharpness.exp() * evidence[..., 1]
        weights = torch.where(present, attention, IGNORED).softmax(-1)
        combined = (weights * torch.where(present, evidence[..., 0], 0.0)).sum(-1)
        return torch.where(present.any(-1), combined, IGNORED)

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor, correct: torch.Tensor
    ) -> Batch:
        """Return loss and exact. ids, mask, segments: (B, O, W, S), where the mask of an option or
        window that is padding is all zeros; correct: (B, O), 1 for right.

        loss: the mean negative log-likelihood of the right options. exact: the share of questions
        whose options are all right.
        """
        present = mask.any(-1)
        # (N, 2), of the N sequences that are no padding
        rows = self.measure_evidence(ids[present], mask[present], segments[present])
        evidence = rows.new_zeros(*present.shape, 2).masked_scatter(present[..., None], rows)
        scores = self.combine_evidence(evidence, present)  # (B, O)
        sizes = correct.sum(-1)  # (B,), how many options are right
        loss = (sum_over_sets(scores, sizes) - (scores * correct).sum(-1)).mean()
        # exact: the worst of the right options is before the best of the others
        worst_right = torch.where(correct.bool(), scores, torch.inf).amin(-1)
        best_wrong = torch.where(correct.bool(), -torch.inf, scores).amax(-1)
        exact = (worst_right > best_wrong).float().mean()
        return {"loss": loss, "exact": exact.detach()}


def _average(hidden: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Average hidden states (N, S, H) by weights (N, S) of 0 or 1, -> (N, H); zeros where all
    weights are 0."""
    weights = weights.to(hidden.dtype)[..., None]
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)


def sum_over_sets(scores: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """Compute the log of the sum, over all sets of `sizes` options, of exp(sum of their scores),
    (B,). scores: (B, O); sizes: (B,).

    These are the elementary symmetric polynomials of exp(scores), by their recursion over the
    options, in logarithms.
    """
    largest = int(sizes.max())
    none = torch.full_like(scores[:, 0], IGNORED)
    sums = [torch.zeros_like(none)] + [none] * largest  # by the size of the sets
    for score in scores.unbind(1):
        with_score = [torch.logaddexp(sums[k + 1], sums[k] + score) for k in range(largest)]
        sums = [sums[0], *with_score]
    return torch.stack(sums, 1).gather(1, sizes[:, None].long())[:, 0]


@torch.random.fork_rng(devices=[])  # weights are drawn here, then replaced by those of the file
def load_choice(folder: Path) -> tuple[ChoiceModel, Layout, dict[str, Any]]:
    """Load a model of choices. Raises InputError where the folder holds none, or a file is another
    than its card says."""
    parts = load_parts(folder)
    if not is_choice(parts.card):
        raise InputError(f"{folder} does not choose between options; train it by `train choice`")
    return parts.fill(ChoiceModel(parts.encoder, parts.embedding))


def is_choice(card: Mapping[str, Any]) -> bool:
    """Return whether a reader with this card chooses between options."""
    return str(card.get("what")).startswith("multiple choice")


@dataclass(frozen=True)
class ChoiceReader:
    """A reader scores options with a trained ChoiceModel, on the device where that is."""

    model: Any
    layout: Layout
    batch: int = 16
    bf16: bool = False

    @torch.inference_mode()
    def score_many(self, items: Sequence[ChoiceTokens]) -> list[np.ndarray]:
        """Return log-probabilities (O,) of the options of every question, as if exactly one were
        right. All windows are read."""
        layout = self.layout
        device = next(self.model.parameters()).device
        sequences = []
        for item in items:
            for window in item.cut_windows(layout):
                for option in range(len(item.options)):
                    sequences.append(item.make_sequence(layout, option, window))
        pad_batch = partial(collate, pad=layout.pad)
        rows = run_model(
            self.model.measure_evidence, device, sequences, pad_batch, self.batch, self.bf16
        )
        outputs = iter(rows)
        scores = []
        for item in items:
            windows, options = len(item.cut_windows(layout)), len(item.options)
            evidence = torch.stack([next(outputs) for _ in range(windows * options)])
            # (1, O, W, 2)
            evidence = evidence.view(windows, options, 2).transpose(0, 1)[None].to(device)
            present = torch.ones(evidence.shape[:3], dtype=torch.bool, device=device)
            log_probs = self.model.combine_evidence(evidence, present)[0].log_softmax(-1)
            scores.append(log_probs.double().cpu().numpy())
        return scores


def choose_options(scores: np.ndarray, size: int) -> tuple[int, ...]:
    """Choose the `size` options with the greatest scores (O,), of equals the earlier; return them
    in order of their index."""
    return tuple(sorted(int(i) for i in np.argsort(-scores, kind="stable")[:size]))


def choose_longest(question: Question) -> tuple[int, ...]:
    """Choose as many options as are right, those with the most characters; of equals the
    earlier."""
    lengths = np.array([len(option) for option in question.options])
    return choose_options(lengths, len(question.correct))


@dataclass(frozen=True)
class ScoredChoice:
    """The scores of a question are from 0 to 1; those of chance are expected values."""

    id: str
    passage: str
    set_accuracy: float
    accuracy: float | None  # None where several options are right
    options: int
    correct: tuple[int, ...]
    chosen: tuple[int, ...] | None  # None: by chance; (): the question could not be answered


def score_choice(question: Question, options: Sequence[int] | None) -> ScoredChoice:
    """Score the chosen options, in any order; None: by chance, the expected score of a random set
    of the right size."""
    right = tuple(sorted(question.correct))
    count = len(question.options)
    chosen = None
    set_accuracy = 1 / math.comb(count, len(right))
    if options is not None:
        chosen = tuple(sorted(options))
        set_accuracy = float(chosen == right)
    return ScoredChoice(
        id=question.id,
        passage=question.passage,
        set_accuracy=set_accuracy,
        accuracy=set_accuracy if len(right) == 1 else None,
        options=count,
        correct=right,
        chosen=chosen,
    )
