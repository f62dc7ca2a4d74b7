"""Domain-adversarial training: an encoder whose layers do not tell which distortion was heard (Ganin et al., JMLR 17, 2016).

A classifier guesses the domain of an utterance from some layers, and the encoder learns to mislead it. `reversal` trains both at
once through a layer that turns the gradient round; `alternating` trains the classifier alone in every other step and subtracts its
loss from the encoder's in the steps between. Two trainings have it: that of a task's model with its upstream (`superb.tuning`),
which is the DAT of arXiv 2203.16104, and continual pre-training, which is ours.
Letters: B utterances, T frames, D width, C domains.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from speechssl.errors import InputError
from speechssl.trainer import Batch

# Gradients that some weights get less of.

_HOOKS: weakref.WeakKeyDictionary[nn.Module, list[RemovableHandle]] = weakref.WeakKeyDictionary()


def scale_gradients(module: nn.Module, factor: float) -> None:
    """Multiply the gradients of all weights of a module by a factor, in place of any factor before.

    For the convolutions, all of whose gradient comes through their output, this is fairseq's `feature_grad_mult` (0.1 for both base
    models), the feature penalty's share included, whoever computes them.
    """
    for handle in _HOOKS.pop(module, []):
        handle.remove()
    if factor != 1:
        weights = [weight for weight in module.parameters() if weight.requires_grad]
        _HOOKS[module] = [weight.register_hook(lambda gradient: gradient * factor) for weight in weights]


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
    """A classifier a layer (mean over time, one hidden layer), and what of its loss the encoder gets.

    Raises InputError for options that there are not.
    """

    def __init__(self, width: int, domains: int, options: AdversaryOptions) -> None:
        super().__init__()
        _check(options)
        classes = 2 if options.labels == "binary" else domains
        self.options, self.classes = options, classes
        self.classifiers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, options.width), nn.ReLU(), nn.Linear(options.width, classes)) for _ in options.layers
        )

    def forward(self, layers: Sequence[torch.Tensor], mask: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> Batch:
        """layers: (B, T, D) each; batch: with `domains` (B,) int, 0 clean; `progress`, `step` (updates): scalars."""
        wanted = batch["domains"].clamp(max=self.classes - 1) if self.options.labels == "binary" else batch["domains"]
        weight = torch.as_tensor(self.options.weight, device=wanted.device)
        if self.options.schedule == "ganin":
            weight = weight * ganin(batch["progress"])
        heard = [layers[i] if self.options.frames else layers[i].mean(1, keepdim=True) for i in self.options.layers]
        step = self._reversed if self.options.mode == "reversal" else self._alternating
        pairs = [step(c, h.float(), wanted, weight, batch) for c, h in zip(self.classifiers, heard, strict=True)]
        losses, right = zip(*pairs, strict=True)
        return {
            "loss": torch.stack(losses).mean(),
            "domain_accuracy": torch.stack(right).mean().detach(),
            "adversary_weight": weight.detach().float(),
        }

    def _reversed(self, classifier: nn.Module, heard: torch.Tensor, wanted: torch.Tensor, weight: torch.Tensor, _: Any) -> tuple:
        return _classified(classifier(reverse_gradient(heard, weight)), wanted)

    def _alternating(
        self, classifier: nn.Module, heard: torch.Tensor, wanted: torch.Tensor, weight: torch.Tensor, batch: Mapping
    ) -> tuple:
        """Even steps train the classifier, odd ones the encoder against it: it gets no gradient, so that no momentum moves it."""
        if int(batch["step"]) % 2 == 0:
            return _classified(classifier(heard.detach()), wanted)
        fixed = {name: value.detach() for name, value in classifier.named_parameters()}
        loss, right = _classified(functional_call(classifier, fixed, (heard,)), wanted)
        return -weight * loss, right


def _check(options: AdversaryOptions) -> None:
    for name, there_are in (("labels", LABELS), ("mode", MODES), ("schedule", SCHEDULES)):
        if (value := getattr(options, name)) not in there_are:
            raise InputError(f"domain-adversarial training has no {name} {value!r}; choose {' or '.join(there_are)}")


def _classified(logits: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross-entropy and accuracy of (B, T, C) logits, every frame being of the utterance's domain."""
    wanted = wanted[:, None].expand(logits.shape[:2])
    loss = functional.cross_entropy(logits.transpose(1, 2), wanted)
    return loss, (logits.argmax(-1) == wanted).float().mean()
