"""Factors of gradients: of a whole module, one at a time, and not of what is frozen."""

import torch
from torch import nn

from speechssl.pretrain.hubert import scale_gradients


def gradient(module, rest):
    for weight in (*module.parameters(), *rest.parameters()):
        weight.grad = None
    rest(module(torch.ones(2, 3))).square().sum().backward()
    return [weight.grad for weight in (*module.parameters(), *rest.parameters())]


def test_a_factor_replaces_the_one_before():
    torch.manual_seed(0)
    module, rest = nn.Linear(3, 3), nn.Linear(3, 1)
    full = gradient(module, rest)
    for factor in (0.1, 0.5, 1.0, 0.1):
        scale_gradients(module, factor)
        for place, (found, before) in enumerate(zip(gradient(module, rest), full, strict=True)):
            torch.testing.assert_close(found, before * (factor if place < 2 else 1.0))


def test_frozen_weights_stay_as_they_are():
    module, rest = nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 1)
    scale_gradients(module, 0.1)
    assert gradient(module, rest)[:2] == [None, None]
