"""Weights are stored as int8 with one float32 scale a row: a quarter of the size, and no weight is
off by more than 1/254 of the largest in its row. Models that ship, and every reader that is saved,
are stored so. A model can be loaded and saved any number of times and stays the same.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

SCALE = ".row_scale"  # ends the name of a matrix's scales
State = dict[str, torch.Tensor]


def quantise(state: State, kernels: bool = False) -> State:
    """Pack matrices (R, C) as int8 plus `name.row_scale` (R,) float32, and keep everything else.

    kernels: pack convolutions (R, C, K), too, with one scale for each of their R output channels.
    """
    packed: State = {}
    for name, value in state.items():
        is_packed = value.ndim == 2 or (kernels and value.ndim > 2)
        if not (is_packed and value.is_floating_point()):
            packed[name] = value.contiguous()
            continue
        rows = value.float().flatten(1)
        # A scale is rounded up to 17 significant bits: clearing the last 7 of float32's 24. Then
        # 127 times the scale is exact in float32, and quantising again gives the same scale.
        scale = rows.abs().amax(1).clamp(min=1e-12) / 127
        scale = ((scale.view(torch.int32) + 127) & ~127).view(torch.float32)
        packed[name] = torch.round(rows / scale[:, None]).to(torch.int8).view(value.shape)
        packed[name + SCALE] = scale
    return packed


def dequantise(packed: State) -> State:
    """Undo `quantise`, in float32, which `quantise` packs to the same bits again."""
    state: State = {}
    for name, value in packed.items():
        if name.endswith(SCALE):
            continue
        state[name] = value.float()
        if name + SCALE in packed:
            scale = packed[name + SCALE].view(-1, *[1] * (value.ndim - 1))
            state[name] = state[name] * scale
    return state


def load_quantised(path: Path) -> State | None:
    """Load the float32 weights of a safetensors file that `quantise` packed; None for one that
    holds no scales.

    Raises what safetensors raises for a file it cannot read.
    """
    with safe_open(path, "pt") as file:
        packed = any(name.endswith(SCALE) for name in file.keys())  # noqa: SIM118
    return dequantise(load_file(path)) if packed else None
