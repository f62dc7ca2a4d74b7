"""A random stretch of every recording of a batch, for heads that are trained on no more of it at a time."""

from __future__ import annotations

from dataclasses import replace

import torch

from speechssl.superb.task import Batch


def random_stretches(batch: Batch, frames: int) -> tuple[Batch, list[int]]:
    """At most so many frames of each, and the frame where each begins. Drawn from torch's generator; waves are left as they are."""
    spare = (batch.lengths - frames).clamp(min=0).tolist()
    starts = [int(torch.randint(n + 1, ())) for n in spare]
    if batch.states.shape[2] <= frames:
        return batch, starts
    states = torch.stack([states[:, start : start + frames] for states, start in zip(batch.states, starts, strict=True)])
    return replace(batch, states=states, lengths=batch.lengths.clamp(max=frames)), starts
