"""Processes that train heads side by side, and tell how far they are.

Small heads gain nothing from several threads, and much from each having a core to itself. A process is begun once and trains
whatever comes; what it needs is on disk (cached states, the state of the run), so little is handed over.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import torch
from tqdm import tqdm

from speechssl.errors import InputError
from speechssl.superb.fit import Attempt, Run, advance
from speechssl.superb.sweep import Go, one_after_another

TOLD_EVERY = 0.5  # seconds
_TOLD: Any = None  # in a process of the crew: the queue to the one that began it


class Stopped(Exception):
    """A run in this process ends, because another one or the user has ended them all."""


@contextmanager
def crew(workers: int, what: str) -> Iterator[Go]:
    """Something that trains runs to a step, `workers` at once, with a bar that counts steps.

    Runs whose states come from the encoder in the loop, or that train on a GPU, are trained in this process, one after another.
    Leaving the block by an exception ends all that is under way; what is missing is trained by the next run.
    """
    context, ended = multiprocessing.get_context("spawn"), threading.Event()
    told = context.Queue()
    bar = tqdm(desc=what, unit="step", unit_scale=True)
    counter = threading.Thread(target=_count, args=(told, bar), daemon=True)
    counter.start()
    pool = ProcessPoolExecutor(workers, context, _begin, (told,))

    def tell(steps: int) -> None:
        if ended.is_set():
            raise Stopped
        bar.update(steps)

    def go(runs: Sequence[Run], steps: int) -> list[Attempt]:
        if workers == 1 or any(run.device != "cpu" or not hasattr(run.supply, "folders") for run in runs):
            return one_after_another(runs, steps, tell)
        try:
            return [future.result() for future in [pool.submit(_advance, run, steps) for run in runs]]
        except BrokenProcessPool as error:
            raise InputError(
                f"a process that trained {runs[0].folder.parent} was killed, perhaps for want of memory; "
                f"the same command goes on, with fewer --workers where memory is short"
            ) from error

    try:
        yield go
    except BaseException:
        ended.set()
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=not ended.is_set(), cancel_futures=True)
        told.put(None)
        counter.join()
        bar.close()


def _begin(told: Any) -> None:
    global _TOLD
    _TOLD = told
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who began it is told, and ends it
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    """A killed parent cannot end its processes; they see that they are orphans."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _advance(run: Run, steps: int) -> Attempt:
    done, last = 0, time.monotonic()

    def tell(steps: int) -> None:
        nonlocal done, last
        done += steps
        if time.monotonic() - last > TOLD_EVERY:
            _TOLD.put(done)
            done, last = 0, time.monotonic()

    found = advance(run, steps, tell)
    _TOLD.put(done)
    return found


def _count(told: Any, bar: Any) -> None:
    while (steps := told.get()) is not None:
        bar.update(steps)
