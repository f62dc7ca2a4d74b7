"""Auxiliary losses of training on distorted speech: a teacher on the clean signal, and a domain adversary.

Domain-adversarial training makes an encoder whose layers do not show which distortion was applied (Ganin et al., JMLR 17, 2016):
a classifier guesses the domain of an utterance from some layers, and the encoder learns to mislead it. `reversal` trains both at
once through a layer that reverses the gradient; `alternating` trains the classifier alone in every other step and subtracts its
loss from the encoder's in the steps between. Two trainings use it: that of a task's model with its upstream (`superb.tuning`),
which is the DAT of arXiv 2203.16104, and continual pre-training, which is ours.
Letters: B utterances, N samples, T frames, D width, C domains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from speechssl.augment.training import TrainingDistortions
from speechssl.encoders.load import load_checkpoint
from speechssl.encoders.training import training_states
from speechssl.errors import InputError
from speechssl.pretrain.config import Labels, Mode, Schedule
from speechssl.processes import mean_of_processes, processes
from speechssl.trainer import Batch


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


class Reverse(torch.autograd.Function):
    """The values themselves; their gradient times -weight (a scalar tensor)."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(weight)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return -ctx.saved_tensors[0] * gradients[0], None


class DomainAdversary(nn.Module):
    """A classifier for each layer (one hidden layer, on the mean over time), and the part of its loss that the encoder gets.

    Raises InputError for options that do not exist.
    """

    def __init__(self, width: int, domains: int, options: AdversaryOptions) -> None:
        super().__init__()
        for name, known in (("labels", Labels), ("mode", Mode), ("schedule", Schedule)):
            if (value := getattr(options, name)) not in get_args(known):
                raise InputError(f"domain-adversarial training has no {name} {value!r}; choose {' or '.join(get_args(known))}")
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
            weight = weight * (2 / (1 + torch.exp(-10 * batch["progress"])) - 1)  # Ganin et al., section 5.2.2
        reversal = self.options.mode == "reversal"
        against = not reversal and int(batch["step"]) % 2 == 1  # an odd step of `alternating` trains the encoder
        losses, accuracies = [], []
        for classifier, number in zip(self.classifiers, self.options.layers, strict=True):
            features = (layers[number] if self.options.frames else layers[number].mean(1, keepdim=True)).float()
            if reversal:
                logits = classifier(Reverse.apply(features, weight))
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
        distances = []
        for i in self.layers:  # over the frames of all processes
            own, right = layers[i][~mask].float(), wanted[i][~mask].float()
            count = mean_of_processes((~mask).sum()).clamp(min=1 / processes())
            mean = mean_of_processes(right.sum(0) / count)
            variance = mean_of_processes((right - mean).square().sum(0) / count).mean()
            distances.append((own - right).square().mean(1).sum() / count / variance.clamp(min=1e-6))
        distance = torch.stack(distances).mean()
        return {"loss": self.weight * distance, "distillation": distance.detach()}


def auxiliary_losses(
    encoder: Any,
    start: str | None,
    distort: TrainingDistortions | None,
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
