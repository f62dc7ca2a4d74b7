"""A frozen teacher that hears the clean signal: the student's layers, hearing it distorted, are to be the teacher's.

Letters: B utterances, N samples, T frames, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from speechssl.encoders.training_forward import training_states
from speechssl.processes import mean_of_processes, processes
from speechssl.training import Batch


@dataclass(frozen=True)
class DistilOptions:
    """The teacher is a frozen copy of the encoder that training starts from."""

    weight: float = 1.0
    layers: tuple[int, ...] = ()  # none: all


class CleanTeacher(nn.Module):
    """Adds `weight` times the mean squared distance of the student's layers from the clean teacher's.

    Each layer's distance is divided by the variance of the teacher's layer, so that 1 is what the teacher's mean would get and
    layers count alike; frames that the student does not see are left out. teacher: of the same architecture; it is not trained
    and not saved with the student. layers: which (0 the input of the first transformer layer, n the output of layer n).
    """

    def __init__(self, teacher: nn.Module, layers: Sequence[int], weight: float = 1.0) -> None:
        super().__init__()
        self.hidden = [teacher.eval().requires_grad_(False)]  # in a list: no part of the student's state
        self.layers, self.weight = tuple(layers), weight

    def forward(self, layers: Sequence[torch.Tensor], mask: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> Batch:
        """layers: (B, T, D) each; batch: with `clean_samples`, (B, N), what the teacher hears."""
        with torch.no_grad():
            teacher = self.hidden[0].to(batch["clean_samples"].device)
            _, wanted = training_states(teacher, batch["clean_samples"], last=max(self.layers))
        distances = [_distance(layers[i], wanted[i], ~mask) for i in self.layers]
        distance = torch.stack(distances).mean()
        return {"loss": self.weight * distance, "distillation": distance.detach()}


def _distance(student: torch.Tensor, teacher: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Mean squared distance over the seen frames of all processes, in variances of the teacher over them."""
    own, wanted = student[seen].float(), teacher[seen].float()
    count = mean_of_processes(seen.sum()).clamp(min=1 / processes())
    mean = mean_of_processes(wanted.sum(0) / count)
    variance = mean_of_processes((wanted - mean).square().sum(0) / count).mean()
    return (own - wanted).square().mean(1).sum() / count / variance.clamp(min=1e-6)
