"""Gradients that some weights get less of."""

from __future__ import annotations

import weakref

from torch import nn
from torch.utils.hooks import RemovableHandle

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
