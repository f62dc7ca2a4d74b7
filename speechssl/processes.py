"""Several processes can train one model (`torchrun`, `accelerate launch`). This module decides
which process writes, and lets the others wait and get its values.

The processes share one file system. The first does what is done once, such as preparing a corpus,
while the others wait however long it takes; if it fails, they stop too. With one process none
of this has an effect. `count_cores`, `has_bf16` and `trim_memory` describe the machine.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch  # elsewhere imported within functions: every command imports this module


Value = TypeVar("Value")
# Preparing a corpus may take longer than the half hour that torch waits by default.
TIMEOUT = timedelta(days=30)


def count_processes() -> int:
    """Return the number of processes."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def get_rank() -> int:
    """Return the number of this process, from 0."""
    return int(os.environ.get("RANK", "0"))


def is_main() -> bool:
    """Return whether this process is the one that writes."""
    return get_rank() == 0


@contextmanager
def main_first() -> Iterator[None]:
    """Let the first process run the block, and then the other processes, which find the files that
    the first wrote. If the first fails, the others exit with code 1."""
    if not is_main() and not broadcast_value(False):
        raise SystemExit(1)  # the first process has reported the reason
    try:
        yield
    except BaseException:
        if is_main():
            broadcast_value(False)
        raise
    if is_main():
        broadcast_value(True)


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def measure_peak_memory() -> float:
    """Return the peak memory of this process so far, in GB."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)  # bytes on macOS, else KiB


def trim_memory() -> None:
    """Give freed memory back to the system. glibc keeps the tensors that threads freed, of all
    lengths, as pieces that fit no other: several GB after some hundred recordings."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim:
        trim(0)


def measure_gpu_memory() -> float:
    """Return the peak memory of this process's tensors on its GPU so far, in GB; 0 without one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0.0
    return float(torch.cuda.max_memory_allocated() / 2**30)


def broadcast_value(value: Value) -> Value:
    """Return the value that the first process gives, in every process."""
    if count_processes() == 1:
        return value
    import torch

    box = [value]
    torch.distributed.broadcast_object_list(box, src=0, group=_make_group())
    return box[0]


def average_processes(value: torch.Tensor) -> torch.Tensor:
    """Return the mean of a tensor over the processes, without gradient. A single process gets the
    tensor itself."""
    if count_processes() == 1:
        return value
    import torch

    _make_group()
    total = value.detach().to(torch.float32, copy=True)
    torch.distributed.all_reduce(total)
    return total / count_processes()


def wait_for_all() -> None:
    """Wait until all processes have come here."""
    if count_processes() > 1:
        import torch

        torch.distributed.barrier(group=_make_group())


def wait_before_exit() -> None:
    """Wait for the other processes, so that none ends while another still needs it."""
    group_exists = _make_group.cache_info().currsize > 0
    if group_exists:
        wait_for_all()


@cache
def _make_group() -> Any:
    """Return the group of processes for everything but the training itself: on the CPU, with a long
    timeout, and set up as accelerate wants it."""
    import torch
    from accelerate import PartialState

    PartialState(cpu=not torch.cuda.is_available())
    return torch.distributed.new_group(backend="gloo", timeout=TIMEOUT)


def list_cpu_capabilities() -> dict[str, Any]:
    """Return what torch knows about the processor (avx512_bf16, amx_bf16 ...); nothing where torch
    is older than 2.11."""
    import torch

    get_capabilities = getattr(torch.cpu, "get_capabilities", dict)
    return dict(get_capabilities())


def has_bf16(on_cpu: bool) -> bool:
    """Return whether the device has bf16 arithmetic. on_cpu: ask the processor; False: the GPU."""
    import torch

    if on_cpu:
        return bool(list_cpu_capabilities().get("avx512_bf16"))
    return torch.cuda.is_bf16_supported(including_emulation=False)
