"""Extraction of a corpus: equal bytes with any workers and after any kill; 200 damaged files are
listed and the rest is done."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
import torch

from speechssl import cli
from speechssl.artifacts import read_json
from speechssl.audio import read_audio, write_flac
from speechssl.data.files import Recording, list_recordings, source_card
from speechssl.encoders.batched import BatchedEngine
from speechssl.encoders.load import load_checkpoint
from speechssl.errors import InputError
from speechssl.timing import FrameGrid
from speechssl.units import corpus
from speechssl.units.corpus import (
    SHARD_SECONDS,
    LocalEngine,
    Progress,
    ShardMaker,
    extract_corpus,
    plan_shards,
)
from speechssl.units.extract import parse_shard
from speechssl.units.features import extractor_of
from speechssl.units.storage import iterate_units, load_units

from ..files import contents, read_lines, refused, write_lines
from .conftest import same


def extract(extractor, source, out, size=2, workers=2, share=None, **options):
    recordings = source if isinstance(source, list) else list_recordings(source, **options)
    card = source_card(source, options.get("split"), options.get("passages"))
    return extract_corpus(
        ShardMaker(extractor, out, size), recordings, LocalEngine(workers), card, share
    )


def times(folder):
    return {p.name: p.stat().st_mtime_ns for p in folder.iterdir()}


def test_a_split_becomes_parts_and_a_card(extractor, mini_corpus, tmp_path):
    root, out = mini_corpus(), tmp_path / "units"
    made = extract(extractor, root, out, size=4, split="train")
    assert (
        sorted(contents(out)) == ["_card.json", "part-00000.parquet", "part-00001.parquet"]
        and made.failed == {}
    )
    loaded = load_units(out)
    assert list(loaded) == ["p0", "p1", "p2", "q0", "q1", "q2"]
    assert same(loaded["p1"], extractor.units(read_audio(root / "train/audio/p1.flac")))
    card = read_json(out / "_card.json")
    assert card == made.card
    assert card["made_from"] == extractor.card | source_card(root, "train", None)
    assert (card["K"], card["frame_rate"], card["recordings"], card["failed"]) == (8, 50, 6, [])
    # for `train dual`
    assert (
        FrameGrid(**card["grid"]) == extractor.grid
        and card["codebooks"][0] == extractor.codebook.hash
    )
    assert card["padding"].startswith("none") and card["chunking"] == {
        "seconds": 40.0,
        "context": 2.0,
    }
    assert card["seconds"] == pytest.approx((16_000 + 24_123 + 9_999 + 24_000) / 16_000, abs=1e-3)
    assert card["seconds"] == round(sum(u.seconds for u in iterate_units(out)), 3)


def test_an_utterance_alone_has_the_units_it_has_among_others_and_workers_change_no_byte(
    extractor, recordings, tmp_path, set_threads
):
    made = []
    for workers in (1, 2, 3):
        set_threads(workers)  # what torch may use changes nothing either
        extract(extractor, recordings, tmp_path / f"units-{workers}", workers=workers)
        assert torch.get_num_threads() == workers
        made.append(contents(tmp_path / f"units-{workers}"))
    assert made[0] == made[1] == made[2] and len(made[0]) == 5
    for name, runs in load_units(tmp_path / "units-3").items():
        assert same(runs, extractor.units(read_audio(recordings / f"{name}.flac")))
        extract(extractor, recordings / f"{name}.flac", tmp_path / "alone" / name, workers=1)
        assert same(runs, load_units(tmp_path / "alone" / name)[name])


# ---- again


def test_a_changed_recording_is_done_again_and_nothing_else_is(
    extractor, recordings, tmp_path, monkeypatch
):
    out, read = tmp_path / "units", []
    extract(extractor, recordings, out)
    before, written = contents(out), times(out)
    monkeypatch.setattr(
        corpus, "read_audio", lambda path: read.append(path.name) or read_audio(path)
    )
    extract(extractor, recordings, out)
    assert read == [] and times(out) == written
    write_flac(recordings / "3.flac", read_audio(recordings / "3.flac")[::-1])
    extract(extractor, recordings, out)
    after = contents(out)
    assert read == ["3.flac"] and {name for name in after if after[name] != before[name]} == {
        "part-00001.parquet",
        "_card.json",
    }
    assert same(load_units(out)["3"], extractor.units(read_audio(recordings / "3.flac")))


def test_more_and_fewer_recordings(extractor, recordings, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "units"
    extract(extractor, recordings, whole)
    shutil.copytree(recordings, tmp_path / "fewer", ignore=shutil.ignore_patterns("[3-6].flac"))
    extract(extractor, tmp_path / "fewer", out)
    assert list(load_units(out)) == ["0", "1", "2"]
    extract(extractor, recordings, out)
    assert contents(out) == contents(whole)
    extract(extractor, tmp_path / "fewer", out)
    assert sorted(contents(out)) == ["_card.json", "part-00000.parquet", "part-00001.parquet"]


@pytest.mark.parametrize("damage", ["cut", "empty", "changed", "gone", "card cut", "card gone"])
def test_what_was_damaged_is_made_again(extractor, recordings, tmp_path, damage):
    out = tmp_path / "units"
    extract(extractor, recordings, out)
    whole, part = contents(out), out / "part-00001.parquet"
    content = part.read_bytes()
    changes = {
        "cut": content[: len(content) // 2],
        "empty": b"",
        "changed": content[:900] + b"?" + content[901:],
    }
    if damage in changes:
        part.write_bytes(changes[damage])
        refused(r"part-00001\.parquet", load_units, out)
    elif damage == "card cut":
        (out / "_card.json").write_text("{")
    else:
        (part if damage == "gone" else out / "_card.json").unlink()
    extract(extractor, recordings, out)
    assert contents(out) == whole


def test_units_made_in_another_way_are_not_overwritten(
    encoder, codebook_for, extractor, recordings, tmp_path
):
    class OnGpu:
        device = "cuda"

        def __getattr__(self, name):
            return getattr(extractor.features, name)

    out = tmp_path / "units"
    extract(extractor, recordings, out)
    before = contents(out)
    refused(r"\(device differs\)", extract, replace(extractor, features=OnGpu()), recordings, out)
    other = extractor_of(encoder, codebook_for(encoder, smooth=3, seed=1))
    refused(
        r"\(codebook differs\); choose another folder or "
        r"delete it",
        extract,
        other,
        recordings,
        out,
    )
    refused(
        r"\(shard_size differs\); give --shard-size 2", extract, extractor, recordings, out, size=3
    )
    assert contents(out) == before


# ---- kills


@pytest.mark.parametrize(
    ("name", "call"),
    [("encode", 3), ("hash_json", 3), ("write_json", 1)],
    ids=["write", "rename", "card"],
)
def test_a_kill_between_any_two_steps(
    extractor, recordings, tmp_path, monkeypatch, dies_in, name, call
):
    """What a signal cannot be aimed at (faults/test_kills.py sends some)."""
    whole, out = tmp_path / "whole", tmp_path / "units"
    extract(extractor, recordings, whole)
    with dies_in(corpus, name, call):
        extract(extractor, recordings, out)
    assert not (out / "_card.json").exists()
    refused(r"no _card\.json", load_units, out)
    (out / ".part-00003-abcd_123.parquet").write_bytes(b"half")  # what kill -9 leaves
    (out / ".card-abcdefgh.json").write_bytes(b"half")
    read, there = [], len(list(out.glob("part-*")))
    monkeypatch.setattr(corpus, "read_audio", lambda path: read.append(path) or read_audio(path))
    extract(extractor, recordings, out)
    assert contents(out) == contents(whole)
    assert there > 0 and len(read) == max(7 - 2 * there, 0)  # it goes on where it was killed


# ---- what cannot be read


def damaged(folder, whole):
    """200 files of every kind that is not a recording; whole: a good WAV."""
    rng, content = np.random.default_rng(3), whole.read_bytes()
    kinds = {
        "truncated": lambda path: path.write_bytes(
            content[: int(rng.integers(50, len(content) - 100))]
        ),
        "no header": lambda path: path.write_bytes(content[int(rng.integers(1, 40)) : 44]),
        "empty": lambda path: path.write_bytes(b""),
        "text": lambda path: path.write_text("not audio\n" * int(rng.integers(1, 500))),
        "bytes": lambda path: path.write_bytes(rng.bytes(int(rng.integers(1, 5_000)))),
        "nan": lambda path: soundfile.write(
            path, np.r_[0.1 * np.ones(9_000), np.nan], 16_000, "FLOAT", format="WAV"
        ),
        "huge": lambda path: soundfile.write(
            path, rng.uniform(-1, 1, 9_000) * 1e30, 16_000, "FLOAT", format="WAV"
        ),
        "silent": lambda path: soundfile.write(path, np.zeros(16_000), 16_000, format="WAV"),
        "no samples": lambda path: soundfile.write(path, np.zeros(0), 16_000, format="WAV"),
        "short": lambda path: soundfile.write(path, rng.uniform(-1, 1, 300), 16_000, format="WAV"),
        "folder": lambda path: path.mkdir(),
        "nowhere": lambda path: path.symlink_to(folder / "nothing"),
        "itself": lambda path: path.symlink_to(path),
        "wrong suffix": lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + rng.bytes(2_000)),
    }
    for i in range(200):
        kind = list(kinds)[i % len(kinds)]
        kinds[kind](
            folder
            / f"{kind} {i:03d}{('.wav', '.mp3', '.flac', '.ogg')[i % 4] if kind != 'huge' else '.wav'}"
        )


@pytest.mark.slow
def test_200_damaged_files_are_listed_and_the_good_ones_are_done(
    extractor, hubert_folder, recordings, tmp_path, capsys
):
    extract(extractor, recordings, tmp_path / "whole")
    soundfile.write(
        recordings / ("6 as a wav with a wrong suffix.mp3"),
        read_audio(recordings / "6.flac"),
        16_000,
        format="WAV",
    )
    damaged(recordings, recordings / "6 as a wav with a wrong suffix.mp3")
    out = tmp_path / "units"
    extractor.codebook.save(tmp_path / "book.safetensors")
    arguments = [
        "units",
        "extract",
        recordings,
        hubert_folder("layer"),
        tmp_path / "book.safetensors",
        out,
        "--shard-size",
        "50",
    ]
    assert cli.main([str(a) for a in arguments]) == 0
    output = capsys.readouterr()
    assert output.out.splitlines()[-1].startswith(
        f"{out}: units of 8 recordings (8.6 s) in 5 parts; 200 set aside"
    )
    listed = read_lines(out / "_failed.jsonl")
    assert len(listed) == 200 and all(x["path"] in x["reason"] for x in listed)
    # many of one reason are one line
    lines = [line for line in output.err.splitlines() if line.startswith("set aside ")]
    together = [int(line.split()[2].rstrip(",")) for line in lines if ", such as " in line]
    assert sum(together) + len(lines) - len(together) == 200 and len(lines) < 60, output.err
    assert f"{out / '_failed.jsonl'}: 200 recordings set aside" in output.err
    assert json.loads((out / "_card.json").read_text())["failed"] == [x["id"] for x in listed]
    whole, loaded = load_units(tmp_path / "whole"), load_units(out)
    assert len(loaded) == 8 and all(same(loaded[name], runs) for name, runs in whole.items())


def test_what_was_mended_is_taken_in_by_the_same_command(extractor, recordings, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "units"
    extract(extractor, recordings, whole)
    audio = recordings / "2.flac"
    content = audio.read_bytes()
    audio.write_bytes(content[:700])
    made = extract(extractor, recordings, out)
    assert (
        list(made.failed) == ["2"]
        and "2" not in load_units(out)
        and (out / "_failed.jsonl").is_file()
    )
    before = times(out)
    assert extract(extractor, recordings, out).failed == made.failed
    changed = {name for name, at in times(out).items() if at != before[name]}
    assert changed <= {"_failed.jsonl"}
    audio.write_bytes(content)
    assert extract(extractor, recordings, out).failed == {}
    assert contents(out) == contents(whole)


def test_names_that_are_not_text_do_not_stop_a_run(extractor, recordings, tmp_path):
    name = bytes(recordings) + b"/caf\xe9"
    shutil.copyfile(recordings / "1.flac", name + b".flac")
    with open(name + b"-bad.flac", "wb") as file:
        file.write(b"no audio")
    made = extract(extractor, recordings, tmp_path / "units")
    assert list(made.failed) == ["caf\\udce9-bad"] and "caf\\udce9" in load_units(
        tmp_path / "units"
    )


# ---- progress


def test_progress_shows_speed_and_time_left_and_leaves_out_what_was_there(recordings, monkeypatch):
    lines = [
        {"audio": "audio/0.flac", "seconds": 77.0},
        {"audio": "audio/1.flac"},
        {"audio": "audio/none.flac"},
    ]
    write_lines(recordings.parent / "m.jsonl", lines)
    measured = [
        r.seconds for r in corpus._measure(list_recordings(recordings.parent / "m.jsonl"), {})
    ]
    # the manifest's, or the header's
    assert measured == [77.0, pytest.approx((3_000 + 4_517 * 3) / 16_000), 0.0]
    found = corpus._measure(list_recordings(recordings), {})
    now = [100.0]
    monkeypatch.setattr(corpus.time, "monotonic", lambda: now[0])
    with Progress(plan_shards(found, 3)) as progress:
        assert "? left, 0 of 7 files" in progress.text
        progress.report(found[0], False)
        now[0] += 0.1
        progress.report(found[1], True)
        total, done = sum(r.seconds for r in found), found[0].seconds + found[1].seconds
        speed = found[1].seconds / 0.1
        assert f"{speed:.1f} x real time, 00:00 left, 2 of 7 files" in progress.text
        assert progress.text.startswith(f"{done:.0f} of {total:.0f} s of audio")
        now[0] += 1000.0
        left = int((total - done) / found[1].seconds * 1000.1)
        assert f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left" in progress.text


# ---- batches, as on a GPU


@pytest.fixture
def batching(encoder, codebook_for, hubert_folder, monkeypatch):
    """An extractor whose encoder computes several recordings at a time."""
    # what a batch lacks is filled with silence
    monkeypatch.setattr("speechssl.encoders.batched.BATCH_SECONDS", 8.0)
    checkpoint = load_checkpoint(hubert_folder("layer"))
    engine = BatchedEngine(checkpoint.model, encoder.grid, "fp32", "cpu")
    return extractor_of(replace(encoder, engine=engine), codebook_for(encoder, smooth=3))


@pytest.mark.slow
def test_recordings_that_are_encoded_together_get_the_units_of_each_alone(
    batching, extractor, recordings, tmp_path
):
    # longer than a chunk
    write_flac(recordings / "long.flac", np.random.default_rng(9).uniform(-0.5, 0.5, 41 * 16_000))
    (recordings / "bad.wav").write_bytes(b"RIFF")
    soundfile.write(recordings / "short.wav", np.full(399, 0.1), 16_000)
    made = extract(batching, recordings, tmp_path / "units", size=4)
    found = load_units(tmp_path / "units")
    assert set(made.failed) == {"bad", "short"} and len(found) == 8
    for name, units in found.items():
        samples = read_audio(recordings / f"{name}.flac")
        assert same(
            units,
            batching.units_of_many([samples])[0] if name != "long" else batching.units(samples),
        )
        # another engine, to rounding
        assert np.mean(units.expand() != extractor.units(samples).expand()) < 0.01
    before = contents(tmp_path / "units")
    for workers in (1, 3):
        extract(batching, recordings, tmp_path / f"units-{workers}", size=4, workers=workers)
        assert contents(tmp_path / f"units-{workers}") == before


@pytest.mark.slow
def test_a_recording_without_finite_features_spoils_no_batch(
    batching, recordings, tmp_path, monkeypatch
):
    many = batching.features.many
    spoilt = replace(
        batching.features,
        many=lambda x: [f * (np.nan if i == 0 else 1) for i, f in enumerate(many(x))],
    )
    made = extract(replace(batching, features=spoilt), recordings, tmp_path / "units", size=10)
    assert (
        list(made.failed) == ["0"]
        and "not finite" in made.failed["0"]
        and len(load_units(tmp_path / "units")) == 6
    )


def test_nothing_but_damage_is_an_error_that_leaves_the_reasons_and_other_errors_are_not_hidden(
    extractor, recordings, tmp_path, monkeypatch
):
    out = tmp_path / "units"
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(corpus, "read_audio", lambda path: 1 / 0)
        extract(extractor, recordings, tmp_path / "none")
    for path in recordings.iterdir():
        path.write_bytes(b"no")
    refused(
        r"no units could be extracted from the 7 recordings; "
        r".*failed\.jsonl",
        extract,
        extractor,
        recordings,
        out,
    )
    assert list(contents(out)) == ["_failed.jsonl"]
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused(
        "by one process, not by 2; start it without torchrun", extract, extractor, recordings, out
    )


# ---- others' files


def test_only_what_a_killed_run_leaves_is_removed(extractor, recordings, tmp_path):
    out = tmp_path / "units"
    out.mkdir()
    others = [
        ".pre-commit-config.yaml",
        ".part-1.txt",
        ".card-x.json",
        "part-00009.parquet.bak",
        "notes-1.md",
        ".a-b.parquet",
    ]
    others.append("part-00000-abcd.snappy.parquet")  # damaged
    ours = [
        ".part-00003-ab_d1234.parquet",
        ".card-abcd1234.json",
        ".failed-abcd1234.jsonl",
        "part-00077.parquet",
    ]
    for name in (*others, *ours):
        (out / name).write_text("half")
    extract(extractor, recordings, out)
    there = contents(out)
    assert all(there[name] == b"half" for name in others) and not set(ours) & set(there)


@pytest.mark.parametrize(
    "name",
    ["part-00000-abcd.snappy.parquet", "part-00000.parquet", "part-00077.parquet", "table.parquet"],
)
def test_parquet_of_others_is_refused_and_left_alone(extractor, recordings, tmp_path, name):
    out = tmp_path / "units"
    out.mkdir()
    pq.write_table(pa.table({"x": [1]}), out / name)
    before = contents(out)
    refused(
        f"{name} was not written by .*choose another folder", extract, extractor, recordings, out
    )
    assert contents(out) == before


# ---- audio that is away


def test_units_of_audio_that_is_away_are_kept(extractor, recordings, tmp_path, capsys):
    out = tmp_path / "units"
    listed = list_recordings(recordings)
    extract(extractor, listed, out)
    before, away = contents(out), tmp_path / "away"
    recordings.rename(away)
    made = extract(extractor, listed, out)
    assert (
        contents(out) == before
        and made.failed == {}
        and ("7 recordings cannot be read now") in capsys.readouterr().err
    )
    recordings.mkdir()
    shutil.copy(away / "4.flac", recordings)
    # there, and something else: its units are of no file
    (recordings / "5.flac").write_bytes(b"damaged")
    made = extract(extractor, listed, out)
    assert list(made.failed) == ["5"] and list(load_units(out)) == ["0", "1", "2", "3", "4", "6"]
    shutil.rmtree(recordings)
    away.rename(recordings)
    extract(extractor, listed, out)
    assert contents(out) == before
    extract(extractor, listed[:3], tmp_path / "few")
    shutil.rmtree(recordings)
    made = extract(extractor, listed, tmp_path / "few")  # audio that is away and has no units yet
    assert list(made.failed) == ["3", "4", "5", "6"] and list(load_units(tmp_path / "few")) == [
        "0",
        "1",
        "2",
    ]


# ---- another source


def test_another_source_is_refused(extractor, recordings, mini_corpus, tmp_path):
    out = tmp_path / "units"
    extract(extractor, recordings, out)
    before = contents(out)
    with pytest.raises(
        InputError,
        match=(
            r"another source \(corpus, split differ\); choose "
            r"another folder"
        ),
    ):
        extract(extractor, mini_corpus(), out, split="train")
    write_flac(tmp_path / "other/x.flac", np.random.default_rng(5).uniform(-0.5, 0.5, 9_000))
    refused(
        r"units of other recordings \(0, \.\.\.\); choose another "
        r"folder",
        extract,
        extractor,
        tmp_path / "other",
        out,
    )
    (tmp_path / "other/x.flac").rename(tmp_path / "other/3.flac")
    refused(
        r"other audio under the same ids \(3, \.\.\.\); choose another "
        r"folder",
        extract,
        extractor,
        tmp_path / "other",
        out,
    )
    (out / "_card.json").unlink()  # as after a kill
    before.pop("_card.json")
    refused("other audio under the same ids", extract, extractor, tmp_path / "other", out)
    assert contents(out) == before
    root = mini_corpus()
    # more passages of one split are the same source
    for name, passages in (("a", 1), ("a", None), ("b", None)):
        extract(extractor, root, tmp_path / name, split="train", passages=passages)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


# ---- shards by seconds


def seconds(*lengths):
    return [Recording(str(i), Path(f"{i}.wav"), length) for i, length in enumerate(lengths)]


def test_a_shard_ends_at_its_seconds_or_its_count():
    assert SHARD_SECONDS == 600
    shards = plan_shards(seconds(300, 299, 1, 5, 700, 0, 0, 0, 0), 3)
    assert [[r.id for r in s.recordings] for s in shards] == [
        ["0", "1", "2"],
        ["3", "4"],
        ["5", "6", "7"],
        ["8"],
    ]
    assert [s.index for s in shards] == [0, 1, 2, 3] and plan_shards([], 3) == []


@pytest.mark.parametrize("killed", [None, 1, 2, 3])
def test_a_mended_file_that_moves_where_shards_begin(
    extractor, recordings, tmp_path, monkeypatch, dies_in, killed
):
    """One file was damaged, and its mending moves the borders of the shards; a kill on the way
    changes nothing."""
    monkeypatch.setattr(corpus, "SHARD_SECONDS", 2.0)
    whole, out = tmp_path / "whole", tmp_path / "units"
    extract(extractor, recordings, whole, size=200)
    content = (recordings / "2.flac").read_bytes()
    (recordings / "2.flac").write_bytes(content[:500])
    extract(extractor, recordings, out, size=200)
    counts = [
        [p["recordings"] for p in json.loads((f / "_card.json").read_text())["parts"]]
        for f in (out, whole)
    ]
    assert counts[0] != counts[1][: len(counts[0])]
    (recordings / "2.flac").write_bytes(content)
    if killed:
        with dies_in(corpus, "encode", killed):
            extract(extractor, recordings, out, size=200)
    extract(extractor, recordings, out, size=200)
    assert contents(out) == contents(whole)


# ---- several processes


def test_shares_of_the_work_give_the_bytes_of_one_run(extractor, recordings, tmp_path):
    (recordings / "bad.flac").write_bytes(b"no audio")
    whole, out = tmp_path / "whole", tmp_path / "units"
    card = extract(extractor, recordings, whole).card
    made = [extract(extractor, recordings, out, share=(i, 3)) for i in (2, 1, 1)]
    assert all(m.card == {} for m in made) and sorted(contents(out)) == [
        f"part-0000{i}.parquet" for i in (0, 1, 3)
    ]
    last = extract(extractor, recordings, out, share=(3, 3))
    assert last.card == card and list(last.failed) == ["bad"] and contents(out) == contents(whole)


@pytest.mark.parametrize("text", ["4/3", "0/3", "2", "a/3", "-1/3"])
def test_a_share_that_is_none_is_refused(text):
    assert parse_shard("2/8") == (2, 8)
    refused(f"--shard {text} is not I/N with I from 1 to N; write it as 2/8", parse_shard, text)


@pytest.mark.parametrize(
    ("lengths", "most"), [((700,) * 12, 5), ((1,) * 40, 2), ((700, 1, 1, 700, 700, 700, 1), 4)]
)
def test_shards_of_one_recording_keep_all_threads_busy(lengths, most):
    """Four workers: long recordings leave no thread idle, and of short ones no more than two shards
    are in the making."""
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

    shards = plan_shards(seconds(*lengths), 10)
    assert (
        list(LocalEngine(4)(Maker(), shards, print)) == begun == ended == [s.index for s in shards]
    )
    assert max(held) == most


# ---- one run at a time, and shares at once


@pytest.mark.parametrize("shared", [False, True])
def test_a_second_run_is_refused_while_the_first_writes(extractor, recordings, tmp_path, shared):
    out = tmp_path / "units"
    out.mkdir()
    handle = os.open(out, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    if shared:  # as another share holds it
        assert extract(extractor, recordings, out, share=(1, 4)).card == {}
    before = contents(out)
    refused(
        f"another run is writing into {re.escape(str(out))}; wait for it",
        extract,
        extractor,
        recordings,
        out,
    )
    assert contents(out) == before
    os.close(handle)
    extract(extractor, recordings, out)
    assert all(name.startswith(("part-", "_card")) for name in contents(out))


# ---- long audio in one file: every frame, in constant memory


SCRIPT = """
import json, sys
from pathlib import Path
from speechssl.cli import main
from speechssl.units.storage import load_units
import torch, transformers, torchaudio, pyarrow  # what the verb imports anyway
torch.set_num_threads(1)
peak = lambda: next(int(x.split()[1]) * 1024 for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
before, code = peak(), main(["units", "extract", *sys.argv[1:5], "--workers", "1"])
found = {"code": code, "bytes": peak() - before, "frames": [u.frames for u in load_units(Path(sys.argv[4])).values()]}
print(json.dumps(found | {"ray": "ray" in sys.modules}))
"""


@pytest.mark.slow
def test_twenty_minutes_lose_no_frame_take_little_memory_and_need_no_ray(
    hubert_folder, codebook_for, encoder, tmp_path
):
    rng = np.random.default_rng(0)
    samples = 1_200 * 16_000 + 123
    (tmp_path / "audio").mkdir()
    with soundfile.SoundFile(tmp_path / "audio/long.flac", "w", 16_000, 1) as file:
        minute = rng.uniform(-0.3, 0.3, 60 * 16_000)
        for _ in range(20):
            file.write(minute)
        file.write(minute[:123])
    codebook_for(encoder).save(tmp_path / "book.safetensors")
    arguments = [
        tmp_path / "audio",
        hubert_folder("layer"),
        tmp_path / "book.safetensors",
        tmp_path / "units",
    ]
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["code"] == 0 and found["frames"] == [encoder.grid.frames(samples)] == [60_000]
    assert not found["ray"]  # it is imported where it is asked for
    held = samples * 4  # the samples, once as they are and once normalised
    # the first convolution of the whole alone takes 250 MB
    assert found["bytes"] < 2.5 * held + 300e6
