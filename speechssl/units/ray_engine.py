"""The units of a corpus are extracted on a cluster: actors, each of which holds an encoder, make
the shards.

Every machine sees the same files under the same paths (a shared disk) and has speechssl installed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechssl.artifacts import describe_refusal, list_differences, say_what_differs
from speechssl.encoders.encoder import single_threaded
from speechssl.errors import InputError, MissingExtra
from speechssl.units.corpus import Shard, ShardMaker, ShardResult
from speechssl.units.features import UnitExtractor

STORE_BYTES = 200_000_000  # of Ray's object store on this machine: lists of paths


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
        with _cluster(self.workers):
            resources = ray.cluster_resources()
            gpus = int(resources.get("GPU", 0))
            slots = gpus or int(resources.get("CPU", 0))
            # at least one: a cluster that grows on demand may begin with a head without cores
            count = max(min(self.workers or slots, slots, len(shards)), 1)
            make_actor = ray.remote(
                num_cpus=1,
                num_gpus=min(gpus, 1),  # an actor sees only the GPUs that it asks for
                max_restarts=-1,  # a machine that leaves the cluster costs the shards it has begun
                max_task_retries=-1,
            )(ShardActor)
            arguments = (self.load, maker.out, maker.size, maker.card, os.getcwd())
            pool = ray.util.ActorPool([make_actor.remote(*arguments) for _ in range(count)])
            for answer in pool.map_unordered(lambda actor, shard: actor.make.remote(shard), shards):
                if isinstance(answer, str):
                    raise InputError(answer)
                yield answer


def _import_ray() -> Any:
    try:
        import ray
        import ray.util
    except ImportError:
        raise MissingExtra("extraction on a cluster", "ray") from None
    return ray


@contextmanager
def _cluster(workers: int | None) -> Iterator[None]:
    """Connect to the cluster at RAY_ADDRESS, or start one on this machine that ends with the block.
    Where the program is connected to a cluster already, that is used."""
    ray = _import_ray()
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


class ShardActor:
    """An actor holds an extractor on some machine, and makes one shard a call. Errors that the user
    can mend come back as sentences, not as exceptions of Ray."""

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

    def make(self, shard: Shard) -> ShardResult | str:
        """Make a shard; return its result, or why there is none."""
        try:
            with single_threaded(1) as pool:
                maker = self._load_once()
                return maker.finish(shard, maker.begin(shard, pool))
        except InputError as error:
            return str(error)
        except OSError as error:
            return describe_refusal(error, self.out, f" on {os.uname().nodename}")

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
