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

_TOLD: Any = None  # in a process of the crew: the queue to the one that began it


@contextmanager
def crew(workers: int, what: str) -> Iterator[Go]:
    """Something that trains runs to a step, `workers` at once, with a bar that counts steps.

    Runs whose states come from the encoder in the loop, or that train on a GPU, are trained in this process, one after another.
    """
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    bar = tqdm(desc=what, unit="step", unit_scale=True)
    counter = threading.Thread(target=_count, args=(told, bar), daemon=True)
    counter.start()
    with ProcessPoolExecutor(workers, context, _begin, (told,)) as pool:

        def go(runs: Sequence[Run], steps: int) -> list[Attempt]:
            if workers == 1 or any(run.device != "cpu" or not hasattr(run.supply, "folders") for run in runs):
                return one_after_another(runs, steps, told.put)
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
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        finally:
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
    return advance(run, steps, _TOLD.put)


def _count(told: Any, bar: Any) -> None:
    while (steps := told.get()) is not None:
        bar.update(steps)
