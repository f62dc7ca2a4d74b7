"""KS, SID, IC and ER give utterances one or several labels each, from the mean over time of every
hidden state.

The head has no non-linearity (s3prl
`downstream/{speech_commands,voxceleb1,fluent_commands,emotion}`), so the mean over time may be
taken first: of a frozen encoder it needs only the mean of every hidden state, (S, D) a recording,
and a training set is one array. s3prl crops the training utterances of SID to 8 s at random; here
the mean is over the whole of each.
Letters: B batch, S hidden states, T frames, D width, C classes of all slots together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from speechssl.data.superb import LabelledSet, Utterance
from speechssl.superb.data import Batch, Featurizer, HeadEvaluation, rate_measure
from speechssl.timing import FrameGrid

METRIC = "acc"


class UtteranceClassifier(nn.Module):
    """The head is weighted sum, projection and a linear layer, on the mean over time of every
    hidden state.

    classes: of every slot (IC: action, object and location in one head).
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
        """Return logits (B, C), of the slots one after another. means: (B, S, D) over the real
        frames of every hidden state."""
        return self.output(self.projection(self.featurizer(means)))  # type: ignore[no-any-return]

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the sum of the slots' cross-entropies, in nats. labels: (B, slots) numbers of
        classes."""
        slots = zip(logits.split(self.classes, 1), labels.T, strict=True)
        return torch.stack(
            [cross_entropy(slot_logits, target) for slot_logits, target in slots]
        ).sum()


@dataclass(frozen=True)
class Classification:
    """Classification counts an utterance as right when all its slots are (IC: three)."""

    name: str
    data: LabelledSet
    grid: FrameGrid
    projection: int = 256

    pooled = True
    wants_waves = False

    def build(self, states: int, width: int) -> UtteranceClassifier:
        classes = tuple(map(len, self.data.classes.values()))
        return UtteranceClassifier(states, width, classes, self.projection)

    def loss(self, head: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(head, UtteranceClassifier)
        return head.loss(head(batch.states), self.labels(batch.utterances).to(batch.states.device))

    def predict(self, head: nn.Module, batch: Batch) -> list[list[float]]:
        """Return the log-probabilities of all classes, of the slots one after another."""
        assert isinstance(head, UtteranceClassifier)
        slots = head(batch.states).split(head.classes, 1)
        log_probs: list[list[float]] = torch.cat(
            [logits.log_softmax(1) for logits in slots], 1
        ).tolist()
        return log_probs

    def evaluate(
        self, split: str, predicted: Mapping[str, list[float]], resamples: int
    ) -> HeadEvaluation:
        """Measure acc; the detail has the confusion of every slot, and the mean loss."""
        usable = [u for u in self.data.splits[split] if u.id in predicted]
        right = dict.fromkeys((u.id for u in self.data.splits[split]), 0.0)
        detail: dict[str, Any] = {}
        if usable:
            truth = self.labels(usable)
            sizes = [len(names) for names in self.data.classes.values()]
            slots = torch.tensor([predicted[u.id] for u in usable]).split(sizes, 1)
            chosen = torch.stack([log_probs.argmax(1) for log_probs in slots], 1)
            for u, is_right in zip(usable, (chosen == truth).all(1).tolist(), strict=True):
                right[u.id] = float(is_right)
            losses = []
            for log_probs, labels in zip(slots, truth.T, strict=True):
                losses.append(-log_probs.gather(1, labels[:, None]).mean())
            confusion = {}
            for number, (slot, names) in enumerate(self.data.classes.items()):
                # a cell of the matrix is one number, true class times classes plus predicted class
                counts = torch.bincount(
                    truth[:, number] * len(names) + chosen[:, number], minlength=len(names) ** 2
                )
                confusion[slot] = {
                    "classes": list(names),
                    "counts": counts.reshape(-1, len(names)).tolist(),
                }
            detail = {"loss": float(torch.stack(losses).sum()), "confusion": confusion}
        measure = rate_measure(METRIC, list(right.values()), None, self.data, split, resamples)
        return HeadEvaluation((measure,), detail)

    def labels(self, utterances: Sequence[Utterance]) -> Tensor:
        """Return the numbers of the true classes, (B, slots). Raises ValueError for a label that is
        no class."""
        classes = self.data.classes.items()
        return torch.tensor(
            [[names.index(u.labels[slot]) for slot, names in classes] for u in utterances]
        )

    def weights(self, utterances: Sequence[Utterance]) -> Tensor:
        """Return the sampling weights, (B,), by which all classes come equally often: one over the
        number with the same labels."""
        counts = Counter(tuple(sorted(u.labels.items())) for u in utterances)
        return torch.tensor([1 / counts[tuple(sorted(u.labels.items()))] for u in utterances])

    def choose(self, log_probs: Sequence[float]) -> dict[str, str]:
        """Choose the likeliest label of every slot."""
        labels = {}
        first = 0
        for slot, names in self.data.classes.items():
            part = log_probs[first : first + len(names)]
            labels[slot] = names[max(range(len(names)), key=part.__getitem__)]
            first += len(names)
        return labels
