"""What may be added to any kind of pre-training on distorted speech: a clean teacher, a domain adversary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from speechssl.encoders.load import load_checkpoint
from speechssl.encoders.training import training_states
from speechssl.errors import InputError
from speechssl.pretrain.adversarial import AdversaryOptions, DomainAdversary
from speechssl.pretrain.data import Distortions
from speechssl.processes import mean_of_processes, processes
from speechssl.trainer import Batch

# A frozen teacher that hears the clean signal: the student's layers, hearing it distorted, are to be the teacher's.
#
# Letters: B utterances, N samples, T frames, D width.


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


class Run(Protocol):
    """The options of a run, as far as they matter here."""

    @property
    def start(self) -> str | None: ...
    @property
    def distort(self) -> Distortions | None: ...
    @property
    def distil(self) -> DistilOptions | None: ...
    @property
    def adversary(self) -> AdversaryOptions | None: ...


def extras(encoder: Any, options: Run) -> list[nn.Module]:
    """What is added to the loss. Raises InputError for what needs distorted speech, or a start, without one."""
    found: list[nn.Module] = []
    if (options.distil or options.adversary) and options.distort is None:
        raise InputError("a clean teacher and a domain classifier need distorted speech; give --distort, such as m+g+r")
    layers = encoder.config.num_hidden_layers
    if options.distil:
        if not options.start:
            raise InputError("the clean teacher is the encoder that training starts from; name one with --from")
        chosen = options.distil.layers or range(layers + 1)
        found.append(CleanTeacher(load_checkpoint(options.start).model, _checked(chosen, layers), options.distil.weight))
    if options.adversary and options.distort:
        chosen = _checked(options.adversary.layers or (layers,), layers)
        adversary = replace(options.adversary, layers=chosen)
        found.append(DomainAdversary(encoder.config.hidden_size, len(options.distort.domains), adversary))
    return found


def _checked(chosen: Any, layers: int) -> tuple[int, ...]:
    if not all(0 <= layer <= layers for layer in chosen):
        raise InputError(f"the encoder has the layers 0 to {layers}, not {', '.join(map(str, chosen))}; choose among them")
    return tuple(chosen)


def plain(options: Any) -> dict[str, Any]:
    """As JSON holds it; what was not asked for is left out, so that folders from before there was such an option stay valid."""
    values = asdict(replace(options, distort=None)) | {"distort": getattr(options.distort, "card", None)}
    if not values["mask"]["same_masks"]:
        del values["mask"]["same_masks"]
    return {name: value for name, value in values.items() if value is not None}


def named(options: Any) -> dict[str, Any]:
    """`plain` for a card, which says what things are called and not where on this machine they lie."""
    values = plain(options)
    places = {name: "/".join(Path(values[name]).parts[-2:]) for name in ("teacher", "start", "codebook") if name in values}
    return values | places
