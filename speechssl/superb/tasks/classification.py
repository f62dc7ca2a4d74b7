"""Tasks of classification, such as KS, SID, IC and ER, give each utterance one label or several,
from the mean over time of every hidden state.

The head has no non-linearity (s3prl
`downstream/{speech_commands,voxceleb1,fluent_commands,emotion}`), so the mean over time may be
taken first: of a frozen encoder the head needs only the mean of every hidden state, (S, D) for a
recording. s3prl crops the training utterances of SID to 8 s at random; here the mean is over the
whole utterance.
Letters: B batch, S hidden states, T frames, D width, C classes of all slots together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from speechssl.data.superb import LabelledSet, Utterance
from speechssl.superb.data import Batch, Featurizer, HeadEvaluation, Task, measure_rate
from speechssl.timing import FrameGrid

METRIC = "acc"


class UtteranceClassifier(nn.Module):
    """The head is a weighted sum, a projection and a linear layer, on the mean over time of every
    hidden state.

    classes: number of classes of every slot (IC: action, object and location in one head).
    """

    def __init__(
        self, states: int, width: int, classes: tuple[int, ...], projection: int = 256
    ) -> None:
        super().__init__()
        self.classes = classes
        self.featurizer = Featurizer(states)
        self.projection = nn.Linear(width, projection)
        self.output = nn.Linear(projection, sum(classes))

    def forward(self, means: Tensor) -> Tensor:
        """Return the logits of all slots, one slot after another, (B, C). means: (B, S, D), over
        the real frames of every hidden state."""
        return self.output(self.projection(self.featurizer(means)))  # type: ignore[no-any-return]

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the sum of the slots' cross-entropies, in nats. labels: (B, slots) numbers of
        classes."""
        losses = []
        for slot_logits, slot_labels in zip(logits.split(self.classes, 1), labels.T, strict=True):
            losses.append(cross_entropy(slot_logits, slot_labels))
        return torch.stack(losses).sum()


@dataclass(frozen=True)
class Classification(Task):
    """In classification an utterance is right when all its slots are right (IC: three)."""

    name: str
    data: LabelledSet
    grid: FrameGrid
    projection: int = 256

    pooled = True

    def build(self, states: int, width: int) -> UtteranceClassifier:
        classes = tuple(map(len, self.data.classes.values()))
        return UtteranceClassifier(states, width, classes, self.projection)

    def loss(self, head: Any, batch: Batch) -> Tensor:
        labels = self.number_labels(batch.utterances).to(batch.states.device)
        return head.loss(head(batch.states), labels)  # type: ignore[no-any-return]

    def predict(self, head: Any, batch: Batch) -> list[list[float]]:
        """Return the log-probabilities of all classes, one slot after another."""
        slots = head(batch.states).split(head.classes, 1)
        log_probs = torch.cat([logits.log_softmax(1) for logits in slots], 1)
        return log_probs.tolist()  # type: ignore[no-any-return]

    def evaluate(
        self, split: str, predicted: Mapping[str, list[float]], resamples: int
    ) -> HeadEvaluation:
        """Measure acc; the detail has the confusion of every slot, and the mean loss."""
        utterances = self.data.splits[split]
        is_right = {u.id: 0.0 for u in utterances}
        usable = [u for u in utterances if u.id in predicted]
        detail: dict[str, Any] = {}
        if usable:
            truth = self.number_labels(usable)
            sizes = [len(names) for names in self.data.classes.values()]
            slots = torch.tensor([predicted[u.id] for u in usable]).split(sizes, 1)
            chosen = torch.stack([log_probs.argmax(1) for log_probs in slots], 1)
            for u, matches in zip(usable, (chosen == truth).all(1).tolist(), strict=True):
                is_right[u.id] = float(matches)
            losses, confusion = [], {}
            for i, (slot, names) in enumerate(self.data.classes.items()):
                losses.append(-slots[i].gather(1, truth[:, i, None]).mean())
                counts = np.zeros((len(names), len(names)), int)
                np.add.at(counts, (truth[:, i], chosen[:, i]), 1)
                confusion[slot] = {"classes": list(names), "counts": counts.tolist()}
            detail = {"loss": float(torch.stack(losses).sum()), "confusion": confusion}
        accuracy = measure_rate(list(is_right.values()), None, self.data, split, resamples)
        return HeadEvaluation({METRIC: accuracy}, detail)

    def number_labels(self, utterances: Sequence[Utterance]) -> Tensor:
        """Number the true classes, (B, slots). Raises ValueError for a label that is no class."""
        classes = self.data.classes
        numbers = []
        for u in utterances:
            numbers.append([names.index(u.labels[slot]) for slot, names in classes.items()])
        return torch.tensor(numbers)

    def compute_weights(self, utterances: Sequence[Utterance]) -> Tensor:
        """Compute the sampling weights, (B,), by which all classes come equally often: 1 over the
        number of utterances with the same labels."""
        keys = [tuple(sorted(u.labels.items())) for u in utterances]
        counts = Counter(keys)
        return torch.tensor([1 / counts[key] for key in keys])

    def choose(self, log_probs: Sequence[float]) -> dict[str, str]:
        """Choose the likeliest label of every slot."""
        labels = {}
        first = 0
        for slot, names in self.data.classes.items():
            part = log_probs[first : first + len(names)]
            labels[slot] = names[int(np.argmax(part))]
            first += len(names)
        return labels
