"""A local Ray with two workers: the same bytes as threads give, what is bad comes back as a
sentence, and nothing stays behind."""

import os
import sys
import threading
from functools import partial
from importlib import util
from types import SimpleNamespace

import pytest

from speechssl import cli
from speechssl.data.recordings import list_recordings
from speechssl.errors import InputError, MissingExtra
from speechssl.units import ray_engine
from speechssl.units.corpus import LocalEngine, ShardMaker, extract_corpus
from speechssl.units.features import load_extractor
from speechssl.units.ray_engine import RayEngine

from ..files import contents, read_lines, refused

needs_ray = pytest.mark.skipif(
    util.find_spec("ray") is None, reason=("extraction on a cluster needs speechssl[ray]")
)


@pytest.fixture
def listed(recordings):
    """Seven good files, one of which has a name that is not text, and a bad one."""
    os.replace(recordings / "6.flac", os.fsencode(recordings) + b"/caf\xe9.flac")
    (recordings / "bad.flac").write_bytes(b"no audio")
    return list_recordings(recordings)


@pytest.mark.slow
@needs_ray
def test_two_workers_of_ray_give_the_bytes_that_threads_give(
    extractor, hubert_folder, listed, tmp_path, monkeypatch
):
    import ray

    extractor.codebook.save(tmp_path / "book.safetensors")
    extract_corpus(ShardMaker(extractor, tmp_path / "threads", 2), listed, LocalEngine(2))
    whole, out = contents(tmp_path / "threads"), tmp_path / "ray"
    out.mkdir()
    # it goes on where a kill left it
    (out / "part-00000.parquet").write_bytes(whole["part-00000.parquet"])
    (out / "part-00001.parquet").write_bytes(whole["part-00001.parquet"][:99])
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    lost = partial(load_extractor, str(tmp_path / "no-encoder"), tmp_path / "book.safetensors")
    threads = set(threading.enumerate())
    with pytest.raises(InputError, match="found no speech encoder at .*no-encoder"):
        extract_corpus(ShardMaker(extractor, tmp_path / "none", 2), listed, RayEngine(lost, 2))
    assert not ray.is_initialized()  # it ends the cluster that it began
    left = {t.name for t in set(threading.enumerate()) - threads}
    # one that asks Ray for something after `ray.shutdown` ends the program
    assert left <= set(ray_engine.FOR_GOOD)
    monkeypatch.delenv("RAY_DATA_USAGE_DISABLED")
    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100_000_000,
        log_to_driver=False,
    )
    try:
        arguments = [tmp_path / "audio", hubert_folder("layer"), tmp_path / "book.safetensors", out]
        options = ["--shard-size", "2", "--engine", "ray", "--workers", "2"]
        assert cli.main(["units", "extract", *map(str, arguments), *options]) == 0
        assert ray.is_initialized()  # whose cluster it is ends it
    finally:
        ray.shutdown()
    assert [line["id"] for line in read_lines(out / "_failed.jsonl")] == ["bad"]
    assert contents(out) == whole and len(whole) == 6


@pytest.mark.slow
@needs_ray
@pytest.mark.parametrize("address", ["", "10.0.0.1:6379"])
def test_whatever_ray_fails_with_at_its_start_is_one_sentence(monkeypatch, address):
    import ray

    def failing(*_, **__):
        raise RuntimeError("Version mismatch:\n    Ray: 2.9")

    monkeypatch.setattr(ray, "init", failing)
    monkeypatch.setenv("RAY_ADDRESS", address)
    sentence = f"{address or 'this machine'} .Version mismatch: Ray: 2.9"
    with pytest.raises(InputError, match=sentence), ray_engine._cluster(2):
        pytest.fail("connected")


def test_an_actor_whose_units_would_not_be_the_drivers_is_refused(extractor, tmp_path):
    card = ShardMaker(extractor, tmp_path, 2).card | {"device": "cuda"}
    actor = ray_engine._Actor(lambda: extractor, tmp_path, 2, card, os.getcwd())
    refused("device differs", actor._prepare)


def test_what_an_actor_cannot_do_is_a_sentence(tmp_path):
    item = {"index": 0, "ids": [], "paths": []}
    actor = ray_engine._Actor(lambda: None, tmp_path, 4, {}, str(tmp_path / "gone"))
    (answer,) = actor(SimpleNamespace(to_pylist=lambda: [item]))["made"]
    refused("gone", ray_engine._receive, answer)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'ray"):
        RayEngine(lambda: pytest.fail("loaded"))
