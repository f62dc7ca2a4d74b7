"""The units of a corpus are extracted on a cluster: the shards are the rows of a Ray Data pipeline,
and actors, each of which holds an encoder, write whole parts.

Every machine sees the same files under the same paths (a shared disk) and has speechssl installed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechssl.artifacts import describe_refusal, list_differences, say_what_differs
from speechssl.encoders.encoder import open_pool
from speechssl.errors import InputError, MissingExtra
from speechssl.units.corpus import Shard, ShardMaker, ShardResult
from speechssl.units.features import UnitExtractor

STORE_BYTES = 200_000_000  # of Ray's object store on this machine: lists of paths
# Threads of Ray that may never end: one sleeps after an error, the other collects statistics.
ENDLESS_THREADS = ("Prefetcher", "data-usage-metrics-poller")


@dataclass(frozen=True)
class RayEngine:
    """This engine runs actors on the cluster at RAY_ADDRESS or, without one, on this machine."""

    load: Callable[[], UnitExtractor]  # every actor calls it once
    workers: int | None = None  # number of actors; None: one a GPU, or a core where there is none

    def __post_init__(self) -> None:
        _import_ray()  # else a missing Ray is noticed only after the encoder has been loaded

    def __call__(self, maker: ShardMaker, shards: Sequence[Shard]) -> Iterator[ShardResult]:
        """Make the shards. Raises InputError with the sentence of an actor that could not load the
        encoder or write a part."""
        ray = _import_ray()
        with _connect(self.workers):
            # the only progress bar is that of `extract_corpus`, which counts seconds of audio
            context = ray.data.DataContext.get_current()
            context.enable_progress_bars = context.print_on_execution_start = False
            logging.getLogger("ray.data").setLevel(logging.ERROR)
            resources = ray.cluster_resources()
            gpus = int(resources.get("GPU", 0))
            slots = gpus or int(resources.get("CPU", 0))
            # at least one: a cluster that grows on demand may begin with a head without cores
            actors = max(min(self.workers or slots, slots, len(shards)), 1)
            rows = [{"shard": shard} for shard in shards]
            pipeline = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
                ShardActor,
                batch_size=1,
                batch_format="numpy",
                compute=ray.data.ActorPoolStrategy(size=actors),
                num_cpus=1,
                num_gpus=min(gpus, 1),  # an actor sees only the GPUs that it asks for
                fn_constructor_args=(self.load, maker.out, maker.size, maker.card, os.getcwd()),
            )
            with _open_rows(pipeline) as answers:
                for row in answers:
                    if isinstance(row["answer"], InputError):
                        raise row["answer"]
                    yield row["answer"]


def _import_ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError:
        raise MissingExtra("extraction on a cluster", "ray") from None
    return ray


@contextmanager
def _connect(workers: int | None) -> Iterator[None]:
    """Connect to the cluster at RAY_ADDRESS, or start one on this machine that ends with the block.
    Where the program is connected to a cluster already, that is used."""
    ray = _import_ray()
    # no thread that collects statistics as long as the program runs
    os.environ.setdefault("RAY_DATA_USAGE_DISABLED", "1")
    # else the driver prints messages about Ray's own actors
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    if ray.is_initialized():
        yield
        return
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        settings |= {
            "address": "local",
            "num_cpus": workers,
            "include_dashboard": False,
            "object_store_memory": STORE_BYTES,
        }
    try:
        ray.init(**settings)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"cannot use the Ray cluster at {address or 'this machine'} ({reason}); start it with "
            "this version of Ray, or give --engine local"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _open_rows(dataset: Any) -> Iterator[Iterator[dict[str, Any]]]:
    """Open the rows of a pipeline, and wait at the end of the block, or after an error, until its
    threads have ended: a thread that calls Ray after `ray.shutdown` would end the whole program,
    with exit code 1 and no message."""
    before = set(threading.enumerate())
    rows = iter(dataset.iter_rows())
    try:
        yield rows
    finally:
        rows.close()
        for thread in set(threading.enumerate()) - before:
            if thread.name not in ENDLESS_THREADS:
                thread.join(timeout=10)


class ShardActor:
    """An actor holds an extractor on some machine, and makes one shard a call. It returns errors
    that the user can mend, since Ray would wrap them in its own exceptions."""

    def __init__(
        self,
        load: Callable[[], UnitExtractor],
        out: Path,
        size: int,
        card: dict[str, Any],
        folder: str,
    ) -> None:
        """load, out and size make the actor's `ShardMaker`; card: that of the driver's maker;
        folder: the driver's working folder."""
        self.load, self.out, self.size, self.card, self.folder = load, out, size, card, folder
        self.maker: ShardMaker | None = None

    def __call__(self, batch: Any) -> dict[str, list[ShardResult | InputError]]:
        """Make the shard of a table of one row."""
        (shard,) = batch["shard"]
        answer: ShardResult | InputError
        try:
            with open_pool(1) as pool:
                maker = self._load_once()
                answer = maker.finish(shard, maker.begin(shard, pool))
        except InputError as error:
            answer = error
        except OSError as error:
            reason = describe_refusal(error, self.out, f" on {os.uname().nodename}")
            answer = InputError(reason)
        return {"answer": [answer]}

    def _load_once(self) -> ShardMaker:
        """Load the extractor in the first call. Raises InputError where its units would differ from
        those of the driver, such as on another device."""
        if self.maker is not None:
            return self.maker
        os.chdir(self.folder)  # the driver's: paths may be relative to it
        maker = ShardMaker(self.load(), self.out, self.size)
        names = list_differences(maker.card, self.card)
        if names:
            raise InputError(
                f"units made on {os.uname().nodename} are not the driver's "
                f"({say_what_differs(names)}); give both the same files and --device"
            )
        self.maker = maker
        return maker
