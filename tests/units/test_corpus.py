"""Tests of extracting the units of a corpus: the bytes are equal with any workers and after a kill,
and damaged files are listed while the others are extracted."""

from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch

from speechssl import cli
from speechssl.artifacts import read_json
from speechssl.audio import read_audio, write_flac
from speechssl.data.recordings import describe_split, list_recordings
from speechssl.encoders.hubert import TorchEngine
from speechssl.encoders.load import load_checkpoint
from speechssl.timing import FrameGrid
from speechssl.units import corpus
from speechssl.units.corpus import LocalEngine, ShardMaker, extract_corpus, parse_share
from speechssl.units.features import make_extractor
from speechssl.units.storage import load_units

from ..files import contents, read_lines, refused, untouched
from .conftest import same_runs


def extract(extractor, source, out, size=2, workers=2, share=None, split=None):
    """Extract a source into `out`, parts of at most `size` recordings. Returns the Extraction."""
    recordings = list_recordings(source, split)
    maker = ShardMaker(extractor, out, size)
    card = describe_split(source, split, None)
    return extract_corpus(maker, recordings, LocalEngine(workers), card, share)


@pytest.fixture
def files_read(monkeypatch):
    """Return a list that grows by the name of every audio file that the extraction reads."""
    names = []

    def read_and_note(path):
        names.append(path.name)
        return read_audio(path)

    monkeypatch.setattr(corpus, "read_audio", read_and_note)
    return names


def test_a_split_becomes_parts_and_a_card(extractor, mini_corpus, tmp_path):
    root, out = mini_corpus(), tmp_path / "units"
    extract(extractor, root, out, size=4, split="train")
    assert sorted(contents(out)) == ["_card.json", "part-00000.parquet", "part-00001.parquet"]
    loaded = load_units(out)
    assert list(loaded) == ["p0", "p1", "p2", "q0", "q1", "q2"]
    for name, runs in loaded.items():
        assert same_runs(runs, extractor.extract(read_audio(root / f"train/audio/{name}.flac")))
    card = read_json(out / "_card.json")
    assert card["made_from"] == extractor.card | describe_split(root, "train", None)
    assert card["K"] == 8
    assert card["frame_rate"] == 50
    assert card["recordings"] == 6
    assert card["failed"] == []
    assert FrameGrid(**card["grid"]) == extractor.grid  # `train dual` reads it
    assert card["codebooks"][0] == extractor.codebook.hash
    passages = 16_000 + 24_123 + 9_999  # samples
    questions = 3 * 8_000
    assert card["seconds"] == pytest.approx((passages + questions) / 16_000, abs=1e-3)


def test_workers_and_threads_change_no_byte(extractor, recordings, tmp_path, set_threads):
    extract(extractor, recordings, tmp_path / "units", workers=1)
    assert len(contents(tmp_path / "units")) == 5  # four parts of seven recordings, and the card
    for workers in (2, 3):
        out = tmp_path / f"units-{workers}"
        set_threads(workers)
        extract(extractor, recordings, out, workers=workers)
        assert torch.get_num_threads() == workers  # as it was before
        assert contents(out) == contents(tmp_path / "units")


def test_a_recording_alone_has_the_units_that_it_has_among_others(extractor, recordings, tmp_path):
    extract(extractor, recordings, tmp_path / "units")
    for name, runs in load_units(tmp_path / "units").items():
        assert same_runs(runs, extractor.extract(read_audio(recordings / f"{name}.flac")))
        extract(extractor, recordings / f"{name}.flac", tmp_path / "alone" / name, workers=1)
        assert same_runs(runs, load_units(tmp_path / "alone" / name)[name])


# ---- the same command again


def test_only_a_changed_recording_is_read_again(extractor, recordings, tmp_path, files_read):
    out = tmp_path / "units"
    extract(extractor, recordings, out)
    before = contents(out)
    files_read.clear()
    extract(extractor, recordings, out)
    assert files_read == []
    assert contents(out) == before
    write_flac(recordings / "3.flac", read_audio(recordings / "3.flac")[::-1])
    extract(extractor, recordings, out)
    assert files_read == ["3.flac"]
    after = contents(out)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"part-00001.parquet", "_card.json"}
    assert same_runs(load_units(out)["3"], extractor.extract(read_audio(recordings / "3.flac")))


# ---- kills


def test_a_killed_extraction_resumes(extractor, recordings, tmp_path, files_read, dies_in):
    whole, out = tmp_path / "whole", tmp_path / "units"
    extract(extractor, recordings, whole)
    with dies_in(corpus, "encode_part", 3):  # while the third part is made
        extract(extractor, recordings, out)
    assert not (out / "_card.json").exists()
    refused(r"no _card\.json", load_units, out)
    parts_before = len(list(out.glob("part-*")))
    assert parts_before > 0
    files_read.clear()
    extract(extractor, recordings, out)
    assert contents(out) == contents(whole)
    assert len(files_read) == 7 - 2 * parts_before  # each part has two of the seven recordings


# ---- recordings that cannot be read


def test_damaged_files_are_listed_and_the_others_are_extracted(
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
    arguments = map(str, [recordings, hubert_folder("layer"), book, out])
    assert cli.main(["units", "extract", *arguments]) == 0
    assert "5 recordings set aside" in capsys.readouterr().err
    listed = read_lines(out / "_failed.jsonl")
    assert all(x["path"] in x["reason"] for x in listed)
    assert read_json(out / "_card.json")["failed"] == [x["id"] for x in listed]
    whole, loaded = load_units(tmp_path / "whole"), load_units(out)
    assert loaded.keys() == whole.keys()
    for name, runs in whole.items():
        assert same_runs(loaded[name], runs)
    for path in recordings.glob("*.flac"):
        path.write_bytes(b"no")
    refused("_failed.jsonl", extract, extractor, recordings, tmp_path / "no")
    assert list(contents(tmp_path / "no")) == ["_failed.jsonl"]


# ---- batches, as on a GPU


@pytest.fixture
def batching_extractor(encoder, codebook_for, hubert_folder, monkeypatch):
    """Return an extractor whose encoder computes several recordings at a time."""
    # seconds of a batch; where recordings are fewer, silence fills it
    monkeypatch.setattr("speechssl.encoders.hubert.BATCH_SECONDS", 8.0)
    checkpoint = load_checkpoint(hubert_folder("layer"))
    engine = TorchEngine(checkpoint.model)
    engine.backend = "elsewhere"  # on the CPU recordings are encoded one by one
    return make_extractor(replace(encoder, engine=engine), codebook_for(encoder, smooth=3))


@pytest.mark.slow
def test_recordings_that_are_encoded_together_get_the_units_of_each_alone(
    batching_extractor, extractor, recordings, tmp_path
):
    noise = np.random.default_rng(9).uniform(-0.5, 0.5, 41 * 16_000)
    write_flac(recordings / "long.flac", noise)  # longer than a chunk, so that no batch takes it
    (recordings / "bad.wav").write_bytes(b"RIFF")
    soundfile.write(recordings / "short.wav", np.full(399, 0.1), 16_000)  # a frame needs 400
    extraction = extract(batching_extractor, recordings, tmp_path / "units", size=4)
    loaded = load_units(tmp_path / "units")
    assert set(extraction.failed) == {"bad", "short"}
    assert len(loaded) == 8
    for name, runs in loaded.items():
        samples = read_audio(recordings / f"{name}.flac")
        if name == "long":
            alone = batching_extractor.extract(samples)
        else:
            (alone,) = batching_extractor.extract_batch([samples])
        assert same_runs(runs, alone)
        # the engine of the CPU rounds otherwise, which may change a unit
        assert np.mean(runs.expand() != extractor.extract(samples).expand()) < 0.01
    extract(batching_extractor, recordings, tmp_path / "units-1", size=4, workers=1)
    assert contents(tmp_path / "units-1") == contents(tmp_path / "units")


# ---- several processes


def test_shares_of_the_work_give_the_bytes_of_one_run(extractor, recordings, tmp_path):
    (recordings / "bad.flac").write_bytes(b"no audio")
    whole, out = tmp_path / "whole", tmp_path / "units"
    card = extract(extractor, recordings, whole).card
    assert extract(extractor, recordings, out, share=(2, 3)).card == {}
    assert extract(extractor, recordings, out, share=(1, 3)).card == {}
    # of four parts, the first share has 0 and 3, the second 1
    assert sorted(contents(out)) == [f"part-0000{i}.parquet" for i in (0, 1, 3)]
    last = extract(extractor, recordings, out, share=(3, 3))
    assert last.card == card
    assert list(last.failed) == ["bad"]
    assert contents(out) == contents(whole)


def test_a_share_is_a_number_and_a_count():
    assert parse_share("2/8") == (2, 8)


@pytest.mark.parametrize("text", ["4/3", "a/3"])
def test_a_share_that_does_not_exist_is_refused(text):
    refused(f"--shard {text} is not I/N with I from 1 to N; write it as 2/8", parse_share, text)


def test_a_folder_with_the_units_of_other_recordings_is_refused(extractor, recordings, tmp_path):
    out = tmp_path / "units"
    extract(extractor, recordings, out)
    for path in sorted(recordings.iterdir()):
        path.rename(path.with_name(f"other-{path.name}"))
    with untouched(out):
        refused("the units of other recordings", extract, extractor, recordings, out)
