"""Auxiliary losses of pre-training on distorted speech: a teacher on the clean signal, and a domain adversary.

Letters: B utterances, N samples, T frames, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from speechssl.encoders.load import load_checkpoint
from speechssl.encoders.training import training_states
from speechssl.errors import InputError
from speechssl.pretrain.adversarial import AdversaryOptions, DomainAdversary
from speechssl.pretrain.data import Distortions
from speechssl.processes import mean_of_processes, processes
from speechssl.trainer import Batch


@dataclass(frozen=True)
class DistilOptions:
    """The teacher is a frozen copy of the encoder that training starts from."""

    weight: float = 1.0
    layers: tuple[int, ...] = ()  # none: all


class CleanTeacher(nn.Module):
    """Adds `weight` times the mean squared distance of the student's layers from those of a teacher that gets the clean signal.

    Each layer's distance is divided by the variance of the teacher's layer, so that 1 is what the teacher's mean would get and
    layers count alike; frames that the student does not see are left out. teacher: of the same architecture; it is not trained
    and not saved with the student. layers: which (0 the input of the first transformer layer, n the output of layer n).
    """

    def __init__(self, teacher: nn.Module, layers: Sequence[int], weight: float = 1.0) -> None:
        super().__init__()
        self.hidden = [teacher.eval().requires_grad_(False)]  # in a list: no part of the student's state
        self.layers, self.weight = tuple(layers), weight

    def forward(self, layers: Sequence[torch.Tensor], mask: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> Batch:
        """layers: (B, T, D) each; mask: (B, T) bool, the hidden frames; batch: with `clean_samples`, (B, N)."""
        with torch.no_grad():
            teacher = self.hidden[0].to(batch["clean_samples"].device)
            _, wanted = training_states(teacher, batch["clean_samples"], last=max(self.layers))
        distance = torch.stack([_distance(layers[i], wanted[i], ~mask) for i in self.layers]).mean()
        return {"loss": self.weight * distance, "distillation": distance.detach()}


def _distance(student: torch.Tensor, teacher: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Mean squared distance over the seen frames of all processes, in variances of the teacher over them."""
    own, wanted = student[seen].float(), teacher[seen].float()
    count = mean_of_processes(seen.sum()).clamp(min=1 / processes())
    mean = mean_of_processes(wanted.sum(0) / count)
    variance = mean_of_processes((wanted - mean).square().sum(0) / count).mean()
    return (own - wanted).square().mean(1).sum() / count / variance.clamp(min=1e-6)


def auxiliary_losses(
    encoder: Any,
    start: str | None,
    distort: Distortions | None,
    distil: DistilOptions | None,
    adversary: AdversaryOptions | None,
) -> list[nn.Module]:
    """Modules that add to the loss of pre-training, called with the layers, the mask and the whole batch.

    Raises InputError for one that needs distorted speech, or a start, without it, and for layers that the encoder has not.
    """
    if (distil or adversary) and distort is None:
        raise InputError("--distil and --domain-adversary need distorted speech; give --distort, such as m+g+r")
    layers = encoder.config.num_hidden_layers

    def checked(chosen: Sequence[int]) -> tuple[int, ...]:
        if not all(0 <= layer <= layers for layer in chosen):
            raise InputError(f"the encoder has the layers 0 to {layers}, not {', '.join(map(str, chosen))}; choose among them")
        return tuple(chosen)

    found: list[nn.Module] = []
    if distil:
        if not start:
            raise InputError("--distil compares with the encoder that training starts from; give one with --start")
        teacher = load_checkpoint(start).model
        found.append(CleanTeacher(teacher, checked(distil.layers or range(layers + 1)), distil.weight))
    if adversary and distort:
        chosen = replace(adversary, layers=checked(adversary.layers or (layers,)))
        found.append(DomainAdversary(encoder.config.hidden_size, len(distort.domains), chosen))
    return found


def add_auxiliary(
    found: Batch, modules: nn.ModuleList, layers: Sequence[torch.Tensor], mask: torch.Tensor, batch: Mapping[str, torch.Tensor]
) -> Batch:
    """What a model found, with the losses of `auxiliary_losses` added to its own and their scalars beside it."""
    for module in modules:
        added = module(layers, mask, batch)
        found |= {"loss": found["loss"] + added.pop("loss")} | added
    return found
