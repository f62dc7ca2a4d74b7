"""Two nodes of Ray, one of which is killed in the middle: the units have the bytes of one process.
Only `make faults` runs it."""

import threading
import time
from functools import partial
from importlib import util

import numpy as np
import pytest

from speechssl.audio import write_flac
from speechssl.data.recordings import list_recordings
from speechssl.units.corpus import LocalEngine, ShardMaker, extract_corpus
from speechssl.units.features import load_extractor
from speechssl.units.ray_engine import RayEngine

from ..files import contents
from .conftest import THOROUGH

SHARDS = 16


@pytest.mark.skipif(
    util.find_spec("ray") is None, reason="extraction on a cluster needs speechssl[ray]"
)
@pytest.mark.skipif(not THOROUGH, reason="a minute of two cores: make faults")
def test_a_node_that_is_killed_costs_no_unit(tmp_path, monkeypatch):
    import ray
    from ray.cluster_utils import Cluster

    rng = np.random.default_rng(0)
    for i in range(SHARDS):
        write_flac(tmp_path / f"audio/{i:02d}.flac", rng.uniform(-0.3, 0.3, 480_000))
    recordings = list_recordings(tmp_path / "audio")
    load = partial(load_extractor, "people-en/encoder", "people-en/units.safetensors")
    extract_corpus(ShardMaker(load(), tmp_path / "one", 1), recordings, LocalEngine(1))

    monkeypatch.setenv("RAY_DATA_USAGE_DISABLED", "1")
    node = {"num_cpus": 1, "object_store_memory": 100_000_000}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    second = cluster.add_node(**node)
    out = tmp_path / "two"
    free_cores = []  # before the kill

    def kill_second():
        while len(list(out.glob("part-*"))) < SHARDS // 3:
            time.sleep(0.02)
        free_cores.append(ray.available_resources().get("CPU", 0.0))
        cluster.remove_node(second, allow_graceful=False)

    try:
        ray.init(address=cluster.address, log_to_driver=False)
        killer = threading.Thread(target=kill_second)
        killer.start()
        extraction = extract_corpus(ShardMaker(load(), out, 1), recordings, RayEngine(load, 2))
        killer.join()
        assert free_cores == [0.0]  # both nodes were at work
        assert sorted(node["Alive"] for node in ray.nodes()) == [False, True]
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert not extraction.failed
    assert contents(out) == contents(tmp_path / "one")
