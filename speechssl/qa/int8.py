"""Matrices as int8 with one scale a row: a quarter of float32; the largest error of a weight is 1/254 of its row's largest."""

from __future__ import annotations

import torch

SCALE = ".row_scale"


def quantise(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Matrices (R, C) as int8 plus `name.row_scale` (R,) float32; what `dequantise` returns is packed to the same bits."""
    packed: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        if value.ndim != 2 or not value.is_floating_point():
            packed[name] = value.contiguous()
            continue
        # scales of 17 significant bits, rounded up: 127 times one is then exact in float32, and gives the same scale again
        scale = value.float().abs().amax(1).clamp(min=1e-12) / 127
        scale = ((scale.view(torch.int32) + 127) & ~127).view(torch.float32)
        packed[name] = torch.round(value / scale[:, None]).to(torch.int8)
        packed[name + SCALE] = scale
    return packed


def dequantise(packed: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inverse of `quantise`, in float32."""
    scales = {name: value for name, value in packed.items() if name.endswith(SCALE)}
    return {
        name: value.float() * scales[name + SCALE][:, None] if name + SCALE in scales else value.float()
        for name, value in packed.items()
        if name not in scales
    }
