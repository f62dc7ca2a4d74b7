"""Tests of a local Ray with two workers: it writes the bytes that threads write, lists a bad
recording, and leaves no thread behind but those that Ray never ends."""

import os
import sys
import threading
from importlib import util

import pytest

from speechssl import cli
from speechssl.data.recordings import list_recordings
from speechssl.errors import MissingExtra
from speechssl.units import ray_engine
from speechssl.units.corpus import LocalEngine, ShardMaker, extract_corpus
from speechssl.units.ray_engine import RayEngine

from ..files import contents, read_lines

needs_ray = pytest.mark.skipif(
    util.find_spec("ray") is None, reason="extraction on a cluster needs speechssl[ray]"
)


@pytest.fixture
def recordings_with_a_bad_one(recordings):
    """List seven good files, one of which has a name that is not UTF-8, and a bad one."""
    os.replace(recordings / "6.flac", os.fsencode(recordings) + b"/caf\xe9.flac")
    (recordings / "bad.flac").write_bytes(b"no audio")
    return list_recordings(recordings)


@pytest.mark.slow
@needs_ray
def test_two_workers_of_ray_give_the_bytes_that_threads_give(
    extractor, hubert_folder, recordings_with_a_bad_one, tmp_path, monkeypatch
):
    import ray

    extractor.codebook.save(tmp_path / "book.safetensors")
    maker = ShardMaker(extractor, tmp_path / "threads", size=2)
    extract_corpus(maker, recordings_with_a_bad_one, LocalEngine(workers=2))
    whole, out = contents(tmp_path / "threads"), tmp_path / "ray"
    assert len(whole) == 6  # four parts, the card and the list of what failed
    out.mkdir()
    # as a killed run leaves the folder: a whole part and half a one
    (out / "part-00000.parquet").write_bytes(whole["part-00000.parquet"])
    (out / "part-00001.parquet").write_bytes(whole["part-00001.parquet"][:99])
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    threads = set(threading.enumerate())
    arguments = [tmp_path / "audio", hubert_folder("layer"), tmp_path / "book.safetensors", out]
    options = ["--shard-size", "2", "--engine", "ray", "--workers", "2"]
    assert cli.main(["units", "extract", *map(str, arguments), *options]) == 0
    assert not ray.is_initialized()  # the command ends the cluster that it began
    threads_left = {thread.name for thread in set(threading.enumerate()) - threads}
    # those of Ray that may never end; any other that asks Ray for something after `ray.shutdown`
    # would end the program
    assert threads_left <= set(ray_engine.ENDLESS_THREADS)
    assert [line["id"] for line in read_lines(out / "_failed.jsonl")] == ["bad"]
    assert contents(out) == whole


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'ray"):
        RayEngine(lambda: pytest.fail("loaded"))
