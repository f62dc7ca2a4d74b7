"""What lies in the folder already: nothing of others is touched, nothing finished is lost, one run at a time."""

import fcntl
import json
import multiprocessing
import os
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

from speechssl import cli
from speechssl.audio import read_audio, write_flac
from speechssl.data.sources import Recording, list_recordings, source_card
from speechssl.errors import InputError
from speechssl.units import corpus as shards_module
from speechssl.units.corpus import SHARD_SECONDS, LocalEngine, ShardMaker, extract_corpus, plan
from speechssl.units.storage import load_units


def extract(extractor, source, out, size=2, **options):
    recordings = source if isinstance(source, list) else list_recordings(source, **options)
    card = source_card(source, options.get("split"), options.get("passages"))
    return extract_corpus(ShardMaker(extractor, out, size), recordings, LocalEngine(2), card)


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.fixture
def recordings(tmp_path):
    """A folder of seven files of 0.2 to 1.9 s."""
    rng = np.random.default_rng(0)
    for i in range(7):
        write_flac(tmp_path / f"audio/{i}.flac", rng.uniform(-0.5, 0.5, 3_000 + 4_517 * (i * 3 % 7)))
    return tmp_path / "audio"


# ---- others' files


def test_only_what_a_killed_run_leaves_is_removed(extractor, recordings, tmp_path):
    out = tmp_path / "units"
    out.mkdir()
    others = [".pre-commit-config.yaml", ".part-1.txt", ".card-x.json", "part-00009.parquet.bak", "notes-1.md", ".a-b.parquet"]
    for name in others:
        (out / name).write_text("mine")
    ours = [".part-00003-ab_d1234.parquet", ".card-abcd1234.json", ".failed-abcd1234.jsonl"]
    for name in ours:
        (out / name).write_text("half")
    extract(extractor, recordings, out)
    there = contents(out)
    assert all(there[name] == b"mine" for name in others) and not set(ours) & set(there)


@pytest.mark.parametrize("name", ["part-00000-abcd.snappy.parquet", "part-00000.parquet", "part-00077.parquet", "table.parquet"])
def test_parquet_of_others_is_refused_and_left_alone(extractor, recordings, tmp_path, name):
    out = tmp_path / "units"
    out.mkdir()
    pq.write_table(pa.table({"x": [1]}), out / name)
    before = contents(out)
    with pytest.raises(InputError, match=f"{name} was not written by .*choose another folder"):
        extract(extractor, recordings, out)
    assert contents(out) == before


def test_a_damaged_file_with_another_name_is_left_alone_and_a_part_beyond_the_last_goes(extractor, recordings, tmp_path):
    out = tmp_path / "units"
    out.mkdir()
    for name in ("part-00000-abcd.snappy.parquet", "part-00077.parquet"):
        (out / name).write_bytes(b"half")
    extract(extractor, recordings, out)
    assert (out / "part-00000-abcd.snappy.parquet").read_bytes() == b"half" and not (out / "part-00077.parquet").exists()


# ---- audio that is away


def test_units_of_audio_that_is_away_are_kept(extractor, recordings, tmp_path, capsys):
    out = tmp_path / "units"
    listed = list_recordings(recordings)
    extract(extractor, listed, out)
    before, away = contents(out), tmp_path / "away"
    recordings.rename(away)
    made = extract(extractor, listed, out)
    assert contents(out) == before and made.failed == {} and "7 recordings cannot be read now" in capsys.readouterr().err
    recordings.mkdir()
    shutil.copy(away / "4.flac", recordings)
    (recordings / "5.flac").write_bytes(b"damaged")  # there, and something else: its units are of no file
    made = extract(extractor, listed, out)
    assert list(made.failed) == ["5"] and list(load_units(out)) == ["0", "1", "2", "3", "4", "6"]
    shutil.rmtree(recordings)
    away.rename(recordings)
    extract(extractor, listed, out)
    assert contents(out) == before


def test_audio_that_is_away_and_has_no_units_yet_is_set_aside(extractor, recordings, tmp_path):
    listed = list_recordings(recordings)
    extract(extractor, listed[:3], tmp_path / "units")
    shutil.rmtree(recordings)
    made = extract(extractor, listed, tmp_path / "units")
    assert list(made.failed) == ["3", "4", "5", "6"] and list(load_units(tmp_path / "units")) == ["0", "1", "2"]


# ---- another source


def test_another_source_is_refused(extractor, recordings, mini_corpus, tmp_path):
    out = tmp_path / "units"
    extract(extractor, recordings, out)
    before = contents(out)
    with pytest.raises(InputError, match=r"another source \(corpus, split differ\); choose another folder"):
        extract(extractor, mini_corpus(), out, split="train")
    write_flac(tmp_path / "other/x.flac", np.random.default_rng(5).uniform(-0.5, 0.5, 9_000))
    with pytest.raises(InputError, match=r"units of other recordings \(0, \.\.\.\); choose another folder"):
        extract(extractor, tmp_path / "other", out)
    (tmp_path / "other/x.flac").rename(tmp_path / "other/3.flac")
    with pytest.raises(InputError, match=r"other audio under the same ids \(3, \.\.\.\); choose another folder"):
        extract(extractor, tmp_path / "other", out)
    (out / "card.json").unlink()  # as after a kill
    before.pop("card.json")
    with pytest.raises(InputError, match="other audio under the same ids"):
        extract(extractor, tmp_path / "other", out)
    assert contents(out) == before


def test_more_passages_of_one_split_are_the_same_source(extractor, mini_corpus, tmp_path):
    root, out = mini_corpus(), tmp_path / "units"
    extract(extractor, root, out, split="train", passages=1)
    extract(extractor, root, out, split="train")
    extract(extractor, root, tmp_path / "whole", split="train")
    assert contents(out) == contents(tmp_path / "whole")


# ---- shards by seconds


def seconds(*lengths):
    return [Recording(str(i), Path(f"{i}.wav"), length) for i, length in enumerate(lengths)]


def test_a_shard_ends_at_its_seconds_or_its_count():
    assert SHARD_SECONDS == 600
    shards = plan(seconds(300, 299, 1, 5, 700, 0, 0, 0, 0), 3)
    assert [[r.id for r in s.recordings] for s in shards] == [["0", "1", "2"], ["3", "4"], ["5", "6", "7"], ["8"]]
    assert [s.index for s in shards] == [0, 1, 2, 3] and plan([], 3) == []


@pytest.fixture
def short_shards(monkeypatch):
    monkeypatch.setattr(shards_module, "SHARD_SECONDS", 2.0)


@pytest.fixture
def moving(short_shards, extractor, recordings, tmp_path):
    """A folder of units in which one file was damaged, so that its mending moves where shards begin; and what it becomes."""
    extract(extractor, recordings, tmp_path / "whole", size=200)
    content = (recordings / "2.flac").read_bytes()
    (recordings / "2.flac").write_bytes(content[:500])
    extract(extractor, recordings, tmp_path / "units", size=200)
    (recordings / "2.flac").write_bytes(content)
    return tmp_path / "units", contents(tmp_path / "whole")


def test_a_mended_file_moves_rows_and_computes_none_again(moving, extractor, recordings, monkeypatch):
    out, whole = moving
    read, bounds = [], [json.loads(c)["parts"] for c in (contents(out)["card.json"], whole["card.json"])]
    assert [p["recordings"] for p in bounds[0]] != [p["recordings"] for p in bounds[1]][: len(bounds[0])]
    monkeypatch.setattr(shards_module, "read_audio", lambda path: read.append(path.name) or read_audio(path))
    extract(extractor, recordings, out, size=200)
    assert contents(out) == whole and read == ["2.flac"]


@pytest.mark.parametrize("steps", range(3))
def test_a_kill_while_rows_move_loses_none(moving, extractor, recordings, monkeypatch, steps):
    out, whole = moving
    left, encode, read = [steps], shards_module.encode, []

    def dying(part):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return encode(part)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(shards_module, "encode", dying)
        extract(extractor, recordings, out, size=200)
    monkeypatch.setattr(shards_module, "read_audio", lambda path: read.append(path.name) or read_audio(path))
    extract(extractor, recordings, out, size=200)
    assert contents(out) == whole and set(read) <= {"2.flac"}


@pytest.mark.parametrize(("lengths", "most"), [((700,) * 12, 5), ((1,) * 40, 2), ((700, 1, 1, 700, 700, 700, 1), 4)])
def test_shards_of_one_recording_keep_all_threads_busy(lengths, most):
    """Four workers: long recordings leave no thread idle, and of short ones no more than two shards are in the making."""
    begun, ended, held = [], [], []

    class Maker:
        def begin(self, shard, pool, tell):
            begun.append(shard.index)
            held.append(len(begun) - len(ended))
            return [None] * len(shard.recordings)

        def finish(self, shard, results, tell):
            assert len(results) == len(shard.recordings)
            ended.append(shard.index)
            return shard.index

    shards = plan(seconds(*lengths), 10)
    assert list(LocalEngine(4)(Maker(), shards, print)) == begun == ended == [s.index for s in shards]
    assert max(held) == most


def test_a_kill_with_the_default_flags_costs_little_of_long_recordings(extractor, hubert_folder, tmp_path):
    rng = np.random.default_rng(1)
    (tmp_path / "audio").mkdir()
    soundfile.write(tmp_path / "minute.wav", rng.uniform(-0.3, 0.3, 60 * 16_000), 16_000)
    for i in range(30):
        (tmp_path / f"audio/{i:02d}.wav").symlink_to(tmp_path / "minute.wav")
    extractor.codebook.save(tmp_path / "book.safetensors")
    out, arguments = tmp_path / "units", [tmp_path / "audio", hubert_folder("layer"), tmp_path / "book.safetensors"]
    context = multiprocessing.get_context("forkserver")
    command = ["units", "extract", *map(str, arguments)]

    def start():
        process = context.Process(target=cli.main, args=([*command, str(out)],))
        process.start()
        return process

    for wanted in (1, 2):  # the second goes on where the first was killed
        process = start()
        while len(list(out.glob("part-*"))) < wanted and process.is_alive():
            time.sleep(0.002)
        process.kill()
        process.join(10)
        assert process.exitcode == -9 and not (out / "card.json").exists()
    before = {p: p.stat().st_mtime_ns for p in out.glob("part-*")}
    assert len(before) >= 2
    assert cli.main([*command, str(out)]) == 0 and cli.main([*command, str(tmp_path / "whole")]) == 0
    assert contents(out) == contents(tmp_path / "whole")
    assert all(p.stat().st_mtime_ns == t for p, t in before.items())
    card = json.loads((out / "card.json").read_text())
    assert [p["recordings"] for p in card["parts"]] == [10] * 3 and (card["shard_size"], card["shard_seconds"]) == (200, 600)


# ---- one run at a time


def test_a_second_run_is_refused_while_the_first_writes(extractor, recordings, tmp_path):
    out = tmp_path / "units"
    out.mkdir()
    handle = os.open(out, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(InputError, match=f"another run is writing into {re.escape(str(out))}; wait for it"):
        extract(extractor, recordings, out)
    assert contents(out) == {}
    os.close(handle)
    extract(extractor, recordings, out)
    assert all(name.startswith(("part-", "card")) for name in contents(out))


def test_several_processes_of_torchrun_are_refused(extractor, recordings, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="by one process, not by 2; start it without torchrun"):
        extract(extractor, recordings, tmp_path / "units")


def test_units_of_another_device_are_not_resumed(extractor, recordings, tmp_path):
    class OnGpu:
        device = "cuda"

        def __getattr__(self, name):
            return getattr(extractor.features, name)

    extract(replace(extractor, features=OnGpu()), recordings, tmp_path / "units")
    assert json.loads((tmp_path / "units/card.json").read_text())["device"] == "cuda"
    with pytest.raises(InputError, match=r"\(device differ\)"):
        extract(extractor, recordings, tmp_path / "units")
