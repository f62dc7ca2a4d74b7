"""Several processes that train one model (`torchrun`, `accelerate launch`): who writes, who waits,
and on what all agree.

They share one file system. The first process makes what is made once, while the others wait however
long it takes; where it fails they stop too. With one process nothing here does anything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch  # here and below: not before it is needed, for everything imports this file


Value = TypeVar("Value")
# a corpus may be prepared for longer than the half hour that torch waits
PATIENCE = timedelta(days=30)


def processes() -> int:
    """Return the number of processes."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Return the number of this process, from 0."""
    return int(os.environ.get("RANK", "0"))


def is_main() -> bool:
    """Return whether this process is the one that writes."""
    return rank() == 0


@contextmanager
def main_first() -> Iterator[None]:
    """Let the first process go through the block, then the others, which find what it left. Where
    it fails they exit (1)."""
    if not is_main() and not broadcast_value(False):
        raise SystemExit(1)  # the first has reported why
    try:
        yield
    except BaseException:
        if is_main():
            broadcast_value(False)
        raise
    if is_main():
        broadcast_value(True)


def peak_memory() -> float:
    """Return the peak memory of this process until now, in GB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1 << 20 if sys.platform != "darwin" else 1 << 30
    )


def peak_gpu_memory() -> float:
    """Return the peak memory of this process's tensors on its GPU until now, in GB; 0 where none
    was used."""
    torch = sys.modules.get("torch")
    return (
        torch.cuda.max_memory_allocated() / 2**30
        if torch is not None and torch.cuda.is_initialized()
        else 0.0
    )


def broadcast_value(value: Value) -> Value:
    """Return the value of the first process, whatever the others have."""
    if processes() == 1:
        return value
    import torch

    box = [value]
    torch.distributed.broadcast_object_list(box, src=0, group=_group())
    return box[0]


def mean_of_processes(value: torch.Tensor) -> torch.Tensor:
    """Return the mean of a tensor over the processes, without gradient; the tensor itself where
    there is one process."""
    if processes() == 1:
        return value
    import torch

    _group()
    total = value.detach().to(torch.float32, copy=True)
    torch.distributed.all_reduce(total)
    return total / processes()


def wait_for_all() -> None:
    """Wait until all are here."""
    if processes() > 1:
        import torch

        torch.distributed.barrier(group=_group())


def wait_before_exit() -> None:
    """Wait for the others, so that none ends while another still needs it."""
    if _group.cache_info().currsize:
        import torch

        torch.distributed.barrier(group=_group())


@cache
def _group() -> Any:
    """Return the group of processes for all but the training itself: on the CPU, with patience, and
    started as accelerate wants it."""
    import torch
    from accelerate import PartialState

    PartialState(cpu=not torch.cuda.is_available())
    return torch.distributed.new_group(backend="gloo", timeout=PATIENCE)


def cpu_capabilities() -> dict[str, Any]:
    """Return what torch knows of the processor (avx512_bf16, amx_bf16 ...); nothing where it is
    older than 2.11."""
    import torch

    known = getattr(torch.cpu, "get_capabilities", dict)
    return dict(known())


def has_bf16(on_cpu: bool) -> bool:
    """Say whether the processor, or else the GPU, has bf16 arithmetic."""
    import torch

    if on_cpu:
        return bool(cpu_capabilities().get("avx512_bf16"))
    return torch.cuda.is_bf16_supported(including_emulation=False)
