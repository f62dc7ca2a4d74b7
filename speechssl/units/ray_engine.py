"""A corpus is extracted over a cluster: actors of Ray, each of which holds an encoder, write whole
parts.

Every machine sees the same files under the same paths (a shared disk) and has speechssl installed.
"""

from __future__ import annotations

import logging
import os
from collections import deque
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

STORE = 200_000_000  # bytes for Ray's objects on one machine: lists of paths


@dataclass(frozen=True)
class RayEngine:
    """This engine runs actors on the cluster at RAY_ADDRESS or, without one, on this machine. load:
    how each gets an extractor."""

    load: Callable[[], UnitExtractor]
    workers: int | None = None  # None: one a GPU, or a core where there is none

    def __post_init__(self) -> None:
        _import_ray()  # or it would be missed only after the encoder has been loaded

    def __call__(self, maker: ShardMaker, shards: Sequence[Shard]) -> Iterator[ShardResult]:
        """Make the shards. Raises InputError with the sentence of an actor that could not load the
        encoder or write a part."""
        ray = _import_ray()
        with _cluster(self.workers):
            resources = ray.cluster_resources()
            gpus = int(resources.get("GPU", 0))
            most = gpus or int(resources.get("CPU", 0))
            # one at least: a cluster that grows on demand may have a head without cores, and
            # nothing else yet
            count = max(min(self.workers or most, most, len(shards)), 1)
            # an actor sees no GPU that it did not ask for
            make_actor = ray.remote(num_cpus=1, num_gpus=min(gpus, 1))(ShardActor).remote
            idle = []
            for _ in range(count):
                idle.append(make_actor(self.load, maker.out, maker.size, maker.card, os.getcwd()))
            waiting = deque(shards)
            running: dict[Any, tuple[Any, Shard]] = {}  # by what Ray will answer
            while waiting or running:
                while idle and waiting:
                    actor, shard = idle.pop(), waiting.popleft()
                    running[actor.make.remote(shard)] = actor, shard
                if not running:
                    raise InputError("no machine of the cluster is left; mend it and try again")
                (answer,), _ = ray.wait(list(running))
                actor, shard = running.pop(answer)
                try:
                    made = ray.get(answer)
                except ray.exceptions.RayActorError:  # its machine is lost
                    waiting.append(shard)
                    continue
                if isinstance(made, str):
                    raise InputError(made)
                idle.append(actor)
                yield made


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtra("extraction on a cluster", "ray") from None
    return ray


@contextmanager
def _cluster(workers: int | None) -> Iterator[None]:
    """Connect to the cluster at RAY_ADDRESS, or start one on this machine that ends with the block;
    one that the program is connected to is used as it is."""
    ray = _import_ray()
    # else the driver prints what concerns Ray's own actors
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
            "object_store_memory": STORE,
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
    """An actor holds an extractor on some machine, and makes one shard a call."""

    def __init__(
        self,
        load: Callable[[], UnitExtractor],
        out: Path,
        size: int,
        card: dict[str, Any],
        folder: str,
    ) -> None:
        self.load, self.out, self.size, self.card, self.folder = load, out, size, card, folder
        self.maker: ShardMaker | None = None

    def make(self, shard: Shard) -> ShardResult | str:
        """Make a shard; return the sentence of an error that the user can mend."""
        try:
            with single_threaded(1) as pool:
                maker = self._load_once()
                return maker.finish(shard, maker.begin(shard, pool))
        except InputError as error:
            return str(error)
        except OSError as error:
            return describe_refusal(error, self.out, f" on {os.uname().nodename}")

    def _load_once(self) -> ShardMaker:
        """Load the extractor in the first call. Raises InputError where its units would not be
        those of the driver, such as on another device."""
        if self.maker is not None:
            return self.maker
        os.chdir(self.folder)  # that of the driver: paths may be relative to it
        maker = ShardMaker(self.load(), self.out, self.size)
        names = list_differences(maker.card, self.card)
        if names:
            raise InputError(
                f"units made on {os.uname().nodename} are not the driver's "
                f"({say_what_differs(names)}); give both the same files and --device"
            )
        self.maker = maker
        return maker
