"""Domain-adversarial training: an encoder whose layers do not show which distortion was applied (Ganin et al., JMLR 17, 2016).

A classifier guesses the domain of an utterance from some layers, and the encoder learns to mislead it. `reversal` trains both at
once through a layer that reverses the gradient; `alternating` trains the classifier alone in every other step and subtracts its
loss from the encoder's in the steps between. Two trainings use it: that of a task's model with its upstream (`superb.tuning`),
which is the DAT of arXiv 2203.16104, and continual pre-training, which is ours.
Letters: B utterances, T frames, D width, C domains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from speechssl.errors import InputError
from speechssl.trainer import Batch

LABELS = ("binary", "multi")
MODES = ("reversal", "alternating")
SCHEDULES = ("ganin", "constant")


@dataclass(frozen=True)
class AdversaryOptions:
    """labels: `binary` (clean or distorted) or `multi` (one each). weight: the largest lambda; `schedule`: the way to it."""

    labels: str = "binary"
    layers: tuple[int, ...] = ()  # none: the last one
    weight: float = 1.0
    mode: str = "reversal"
    schedule: str = "ganin"
    width: int = 256  # of the classifier's hidden layer
    frames: bool = False  # guess from every frame, not from the mean over time


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(weight)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return -ctx.saved_tensors[0] * gradients[0], None


def reverse_gradient(values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The values themselves; their gradient times -weight (a scalar tensor)."""
    return _Reverse.apply(values, weight)  # type: ignore[no-any-return]


def ganin(progress: float | torch.Tensor) -> Any:
    """lambda / its largest value = 2 / (1 + exp(-10 p)) - 1, p: 0 to 1 of the training (section 5.2.2)."""
    return 2 / (1 + (torch.exp(-10 * progress) if torch.is_tensor(progress) else math.exp(-10 * progress))) - 1


class DomainAdversary(nn.Module):
    """A classifier for each layer (one hidden layer, on the mean over time), and the part of its loss that the encoder gets.

    Raises InputError for options that do not exist.
    """

    def __init__(self, width: int, domains: int, options: AdversaryOptions) -> None:
        super().__init__()
        for name, known in (("labels", LABELS), ("mode", MODES), ("schedule", SCHEDULES)):
            if (value := getattr(options, name)) not in known:
                raise InputError(f"domain-adversarial training has no {name} {value!r}; choose {' or '.join(known)}")
        self.options, self.classes = options, 2 if options.labels == "binary" else domains
        self.classifiers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, options.width), nn.ReLU(), nn.Linear(options.width, self.classes))
            for _ in options.layers
        )

    def forward(self, layers: Sequence[torch.Tensor], mask: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> Batch:
        """layers: (B, T, D) each; batch: with `domains` (B,) int, 0 clean; `progress`, `step` (updates): scalars."""
        domains = batch["domains"].clamp(max=1) if self.options.labels == "binary" else batch["domains"]
        weight = torch.as_tensor(self.options.weight, device=domains.device)
        if self.options.schedule == "ganin":
            weight = weight * ganin(batch["progress"])
        reversal = self.options.mode == "reversal"
        against = not reversal and int(batch["step"]) % 2 == 1  # an odd step of `alternating` trains the encoder
        losses, accuracies = [], []
        for classifier, number in zip(self.classifiers, self.options.layers, strict=True):
            features = (layers[number] if self.options.frames else layers[number].mean(1, keepdim=True)).float()
            if reversal:
                logits = classifier(reverse_gradient(features, weight))
            elif against:  # the classifier gets no gradient at all, so that no momentum moves it
                fixed = {name: value.detach() for name, value in classifier.named_parameters()}
                logits = functional_call(classifier, fixed, (features,))
            else:
                logits = classifier(features.detach())
            targets = domains[:, None].expand(logits.shape[:2])  # every frame is of the utterance's domain
            loss = functional.cross_entropy(logits.transpose(1, 2), targets)
            losses.append(-weight * loss if against else loss)
            accuracies.append((logits.argmax(-1) == targets).float().mean())
        return {
            "loss": torch.stack(losses).mean(),
            "domain_accuracy": torch.stack(accuracies).mean().detach(),
            "adversary_weight": weight.detach().float(),
        }
