"""The head of SUPERB's utterance classification (KS, SID, IC, ER): weighted sum, projection, mean over time, linear.

There is no non-linearity in it (s3prl `downstream/{speech_commands,voxceleb1,fluent_commands,emotion}`), so that the mean over time
may as well be taken first: of a frozen encoder the head need only see the mean of every hidden state, (S, D) a recording.
Letters: B batch, S hidden states, T frames, D width, C classes of all slots together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from speechssl.superb.featurizer import Featurizer


@dataclass(frozen=True)
class ClassifierShape:
    """Sizes of a head."""

    states: int  # S
    width: int  # D
    classes: tuple[int, ...]  # of every slot
    projection: int = 256


class UtteranceClassifier(nn.Module):
    """One or several labels an utterance: action, object and location are three slots of one head."""

    def __init__(self, shape: ClassifierShape) -> None:
        super().__init__()
        self.shape = shape
        self.featurizer = Featurizer(shape.states)
        self.projection = nn.Linear(shape.width, shape.projection)
        self.output = nn.Linear(shape.projection, sum(shape.classes))

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Logits (B, C), of the slots one after another. states: (B, S, T, D); lengths: (B,) real frames, at least 1."""
        return self.output(mean_over_time(self.projection(self.featurizer(states)), lengths))

    def of_means(self, means: Tensor) -> Tensor:
        """The same from the mean of every hidden state over the real frames. means: (B, S, D)."""
        return self.output(self.projection(self.featurizer(means)))

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The sum of the slots' cross-entropies, in nats. labels: (B, slots) numbers of classes."""
        slots = zip(logits.split(self.shape.classes, 1), labels.T, strict=True)
        return torch.stack([cross_entropy(of_slot, wanted) for of_slot, wanted in slots]).sum()

    def choose(self, logits: Tensor) -> Tensor:
        """(B, slots) the likeliest class of every slot."""
        return torch.stack([of_slot.argmax(1) for of_slot in logits.split(self.shape.classes, 1)], 1)


def mean_over_time(features: Tensor, lengths: Tensor) -> Tensor:
    """(B, T, D) -> (B, D), over the real frames; what others hold never matters. lengths: (B,)."""
    real = torch.arange(features.shape[1], device=features.device) < lengths.to(features.device)[:, None]
    return features.masked_fill(~real[..., None], 0).sum(1) / real.sum(1, keepdim=True)


def accuracy(chosen: Tensor, labels: Tensor) -> float:
    """Share of the utterances of which every slot is right. Both (B, slots)."""
    return float((chosen == labels).all(1).float().mean())


def numbers(labels: Sequence[Sequence[str]], classes: Sequence[Sequence[str]]) -> Tensor:
    """(B, slots) numbers of classes. Raises ValueError for a label that is no class."""
    return torch.tensor([[names.index(label) for names, label in zip(classes, row, strict=True)] for row in labels])
