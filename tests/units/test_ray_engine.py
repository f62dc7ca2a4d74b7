"""A local Ray with two workers: the same bytes as threads give, what is bad comes back as a sentence, and nothing stays behind."""

import json
import os
import subprocess
import sys
from functools import partial
from importlib import util

import numpy as np
import pytest

from speechssl.audio import write_flac
from speechssl.corpora.sources import list_recordings
from speechssl.errors import InputError, MissingExtra
from speechssl.units import ray_engine
from speechssl.units.corpus import LocalEngine, extract_corpus
from speechssl.units.extract import load_extractor
from speechssl.units.ray_engine import RayEngine
from speechssl.units.shards import ShardMaker

needs_ray = pytest.mark.skipif(util.find_spec("ray") is None, reason="extraction on a cluster needs speechssl[ray]")


@pytest.fixture
def recordings(tmp_path):
    """Seven good files, one of which has a name that is not text, and a bad one."""
    rng = np.random.default_rng(0)
    for i in range(7):
        write_flac(tmp_path / f"audio/{i}.flac", rng.uniform(-0.5, 0.5, 3_000 + 4_517 * (i * 3 % 7)))
    os.replace(tmp_path / "audio/6.flac", os.fsencode(tmp_path) + b"/audio/caf\xe9.flac")
    (tmp_path / "audio/bad.flac").write_bytes(b"no audio")
    return list_recordings(tmp_path / "audio")


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@needs_ray
def test_two_workers_of_ray_give_the_bytes_that_threads_give(extractor, hubert_folder, recordings, tmp_path):
    import ray

    extractor.codebook.save(tmp_path / "book.safetensors")
    load = partial(load_extractor, str(hubert_folder("layer")), tmp_path / "book.safetensors")
    extract_corpus(ShardMaker(extractor, tmp_path / "threads", 2), recordings, LocalEngine(2))
    whole, out = contents(tmp_path / "threads"), tmp_path / "ray"
    ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=100_000_000, log_to_driver=False)
    try:
        made = extract_corpus(ShardMaker(extractor, out, 2), recordings, RayEngine(load, 2))
        assert list(made.failed) == ["bad"] and len(whole) == 6
        assert contents(out) == whole
        (out / "part-00001.parquet").write_bytes(whole["part-00001.parquet"][:99])  # it goes on where a kill left it, too
        (out / "part-00002.parquet").unlink()
        (out / "card.json").unlink()
        extract_corpus(ShardMaker(extractor, out, 2), recordings, RayEngine(load, 2))
        assert contents(out) == whole
        lost = partial(load_extractor, str(tmp_path / "no-encoder"), tmp_path / "book.safetensors")
        with pytest.raises(InputError, match="found no speech encoder at .*no-encoder"):
            extract_corpus(ShardMaker(extractor, tmp_path / "none", 2), recordings, RayEngine(lost, 2))
        assert ray.is_initialized()  # whose cluster it is ends it
    finally:
        ray.shutdown()


@needs_ray
def test_a_cluster_that_cannot_be_reached_is_one_sentence(monkeypatch):
    import ray

    def refused(**_):
        raise ConnectionError("Failed to connect")

    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setattr(ray, "init", refused)
    with pytest.raises(InputError, match=r"cannot join the Ray cluster at 10\.0\.0\.1:6379; start it"), ray_engine._cluster(2):
        pytest.fail("connected")


def test_an_actor_makes_shards_and_says_what_was_computed(extractor, recordings, tmp_path):
    """Without Ray: what runs in its workers."""

    class Batch(list):
        def to_pylist(self):
            return [ray_engine._item(shard) for shard in self]

    from speechssl.units.shards import plan

    shards, told = plan(recordings, 4), []
    actor = ray_engine._Actor(lambda: extractor, tmp_path / "units", 4, ShardMaker(extractor, tmp_path, 4).card, os.getcwd())
    for wanted in (["0", "1", "2", "3"], []):  # the second time everything is there
        (answer,) = actor(Batch(shards[:1]))["made"]
        assert sorted(json.loads(answer)["computed"]) == wanted
    made = ray_engine._received(json.loads(answer), shards, lambda recording, fresh: told.append((recording.id, fresh)))
    assert (made.index, made.recordings, made.failed) == (0, 4, {}) and told == [(str(i), False) for i in range(4)]


def test_what_an_actor_cannot_do_is_a_sentence(recordings, tmp_path):
    (tmp_path / "file").write_text("")
    for folder, said in ((tmp_path / "gone", "gone"), (tmp_path / "file", "file")):
        actor = ray_engine._Actor(lambda: pytest.fail("loaded"), tmp_path, 4, {}, str(folder))
        answer = json.loads(actor(type("Batch", (), {"to_pylist": lambda _: [{"index": 0, "ids": [], "paths": []}]})())["made"][0])
        assert said in answer["error"]
        with pytest.raises(InputError, match="check its path"):
            ray_engine._received(answer, [], print)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r'pip install "speechssl\[ray\]"'):
        RayEngine(lambda: pytest.fail("loaded"))


def test_ray_is_not_imported_unless_it_is_asked_for():
    asked = "import sys, speechssl.units.ray_engine, speechssl.units.corpus; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked]).returncode == 0
