"""Extraction of a corpus: equal bytes with any workers and after a kill; damaged files are listed
and the rest is done."""

from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch

from speechssl import cli
from speechssl.artifacts import read_json
from speechssl.audio import read_audio, write_flac
from speechssl.data.recordings import list_recordings, source_card
from speechssl.encoders.hubert import TorchEngine
from speechssl.encoders.load import load_checkpoint
from speechssl.timing import FrameGrid
from speechssl.units import corpus
from speechssl.units.corpus import LocalEngine, ShardMaker, extract_corpus, parse_share
from speechssl.units.features import extractor_of
from speechssl.units.storage import load_units

from ..files import contents, read_lines, refused, untouched
from .conftest import same


def extract(extractor, source, out, size=2, workers=2, share=None, split=None):
    recordings = list_recordings(source, **{"split": split} if split else {})
    maker = ShardMaker(extractor, out, size)
    card = source_card(source, split, None)
    return extract_corpus(maker, recordings, LocalEngine(workers), card, share)


def test_a_split_becomes_parts_and_a_card(extractor, mini_corpus, tmp_path):
    root, out = mini_corpus(), tmp_path / "units"
    extract(extractor, root, out, size=4, split="train")
    assert sorted(contents(out)) == ["_card.json", "part-00000.parquet", "part-00001.parquet"]
    loaded = load_units(out)
    assert list(loaded) == ["p0", "p1", "p2", "q0", "q1", "q2"]
    assert same(loaded["p1"], extractor.units(read_audio(root / "train/audio/p1.flac")))
    card = read_json(out / "_card.json")
    assert card["made_from"] == extractor.card | source_card(root, "train", None)
    assert (card["K"], card["frame_rate"], card["recordings"], card["failed"]) == (8, 50, 6, [])
    assert FrameGrid(**card["grid"]) == extractor.grid  # for `train dual`
    assert card["codebooks"][0] == extractor.codebook.hash
    assert card["seconds"] == pytest.approx((16_000 + 24_123 + 9_999 + 24_000) / 16_000, abs=1e-3)


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
    before = contents(out)
    monkeypatch.setattr(
        corpus, "read_audio", lambda path: read.append(path.name) or read_audio(path)
    )
    extract(extractor, recordings, out)
    assert read == []
    assert contents(out) == before
    write_flac(recordings / "3.flac", read_audio(recordings / "3.flac")[::-1])
    extract(extractor, recordings, out)
    after = contents(out)
    assert read == ["3.flac"]
    assert {name for name in after if after[name] != before[name]} == {
        "part-00001.parquet",
        "_card.json",
    }
    assert same(load_units(out)["3"], extractor.units(read_audio(recordings / "3.flac")))


# ---- kills


def test_a_killed_extraction_goes_on(extractor, recordings, tmp_path, monkeypatch, dies_in):
    whole, out = tmp_path / "whole", tmp_path / "units"
    extract(extractor, recordings, whole)
    with dies_in(corpus, "encode_part", 3):
        extract(extractor, recordings, out)
    assert not (out / "_card.json").exists()
    refused(r"no _card\.json", load_units, out)
    read, there = [], len(list(out.glob("part-*")))
    monkeypatch.setattr(corpus, "read_audio", lambda path: read.append(path) or read_audio(path))
    extract(extractor, recordings, out)
    assert contents(out) == contents(whole)
    assert there > 0 and len(read) == max(7 - 2 * there, 0)  # it goes on where it was killed


# ---- what cannot be read


def test_damaged_files_are_listed_and_the_good_ones_are_done(
    extractor, hubert_folder, recordings, tmp_path, capsys
):
    extract(extractor, recordings, tmp_path / "whole")
    damaged = {
        "text.mp3": b"not audio\n" * 50,
        "empty.ogg": b"",
        "cut.flac": (recordings / "6.flac").read_bytes()[:900],
    }
    for name, content in damaged.items():
        (recordings / name).write_bytes(content)
    soundfile.write(recordings / "silent.wav", np.zeros(16_000), 16_000)
    (recordings / "nowhere.wav").symlink_to(recordings / "nothing")
    out, book = tmp_path / "units", tmp_path / "book.safetensors"
    extractor.codebook.save(book)
    arguments = ["units", "extract", recordings, hubert_folder("layer"), book, out]
    assert cli.main([str(a) for a in arguments]) == 0
    assert "5 recordings set aside" in capsys.readouterr().err
    listed = read_lines(out / "_failed.jsonl")
    assert len(listed) == 5
    assert all(x["path"] in x["reason"] for x in listed)
    assert read_json(out / "_card.json")["failed"] == [x["id"] for x in listed]
    whole, loaded = load_units(tmp_path / "whole"), load_units(out)
    assert loaded.keys() == whole.keys()
    assert all(same(loaded[name], runs) for name, runs in whole.items())


# ---- batches, as on a GPU


@pytest.fixture
def batching(encoder, codebook_for, hubert_folder, monkeypatch):
    """An extractor whose encoder computes several recordings at a time."""
    # what a batch lacks is filled with silence
    monkeypatch.setattr("speechssl.encoders.hubert.BATCH_SECONDS", 8.0)
    checkpoint = load_checkpoint(hubert_folder("layer"))
    engine = TorchEngine(checkpoint.model)
    engine.backend = "elsewhere"
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
            batching.units_of_batch([samples])[0] if name != "long" else batching.units(samples),
        )
        # another engine, to rounding
        assert np.mean(units.expand() != extractor.units(samples).expand()) < 0.01
    extract(batching, recordings, tmp_path / "units-1", size=4, workers=1)
    assert contents(tmp_path / "units-1") == contents(tmp_path / "units")


def test_nothing_but_damage_is_an_error_that_leaves_the_reasons(extractor, recordings, tmp_path):
    for path in recordings.iterdir():
        path.write_bytes(b"no")
    sentence = r"no units could be extracted from 7 recordings; .*failed\.jsonl"
    refused(sentence, extract, extractor, recordings, tmp_path / "units")
    assert list(contents(tmp_path / "units")) == ["_failed.jsonl"]


# ---- several processes


def test_shares_of_the_work_give_the_bytes_of_one_run(extractor, recordings, tmp_path):
    (recordings / "bad.flac").write_bytes(b"no audio")
    whole, out = tmp_path / "whole", tmp_path / "units"
    card = extract(extractor, recordings, whole).card
    assert all(extract(extractor, recordings, out, share=(i, 3)).card == {} for i in (2, 1))
    assert sorted(contents(out)) == [f"part-0000{i}.parquet" for i in (0, 1, 3)]
    last = extract(extractor, recordings, out, share=(3, 3))
    assert last.card == card and list(last.failed) == ["bad"] and contents(out) == contents(whole)


@pytest.mark.parametrize("text", ["4/3", "a/3"])
def test_a_share_that_is_none_is_refused(text):
    assert parse_share("2/8") == (2, 8)
    refused(f"--shard {text} is not I/N with I from 1 to N; write it as 2/8", parse_share, text)


def test_a_folder_with_the_units_of_other_recordings_is_refused(extractor, recordings, tmp_path):
    out = tmp_path / "units"
    extract(extractor, recordings, out)
    for path in sorted(recordings.iterdir()):
        path.rename(path.with_name(f"other-{path.name}"))
    with untouched(out):
        refused("the units of other recordings", extract, extractor, recordings, out)
