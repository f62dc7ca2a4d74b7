"""Hidden states on disk: what the encoder gives, once, whole or not at all, and nobody else's."""

import dataclasses

import numpy as np
import pytest
import torch

from speechssl.audio import read_audio, write_flac
from speechssl.augment import Distorter, parse_condition
from speechssl.data.files import Recording
from speechssl.encoders import states as features
from speechssl.encoders.states import CachedStates, CacheOptions, ConditionReader, cache_states
from speechssl.errors import InputError

FRAMES = CacheOptions(pooled=False, precision="float16", shard_mb=0.01)


@pytest.fixture
def recordings(tmp_path):
    rng, found = np.random.default_rng(0), []
    for i, length in enumerate((8_000, 16_123, 5_001, 12_345)):
        write_flac(tmp_path / f"{i}.flac", rng.uniform(-0.5, 0.5, length))
        found.append(Recording(f"r{i}", tmp_path / f"{i}.flac", length / 16_000))
    return found


def test_means_are_the_means_of_the_hidden_states(encoder, recordings, tmp_path):
    cached = cache_states(encoder, recordings, tmp_path / "c")
    for r in recordings:
        assert torch.equal(cached[r.id], encoder.hidden_states(read_audio(r.path)).mean(1))
    assert cached.stacked(["r2", "r0"]).shape == (2, 3, 32) and torch.equal(cached.stacked(["r2"])[0], cached["r2"])
    (tmp_path / "c/shard-00000.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match="shard-00000.safetensors is missing or damaged"):
        CachedStates.load(tmp_path / "c")


@pytest.mark.parametrize(("precision", "error"), [("float16", 1e-3), ("bfloat16", 8e-3), ("float32", 0)])
def test_frames_are_the_hidden_states_to_rounding(encoder, recordings, tmp_path, precision, error):
    cached = cache_states(encoder, recordings, tmp_path / "c", dataclasses.replace(FRAMES, precision=precision))
    for r in recordings:
        exact = encoder.hidden_states(read_audio(r.path)).transpose(0, 1)
        assert cached[r.id].shape == exact.shape and cached[r.id].dtype == features.PRECISIONS[precision]
        assert float((cached[r.id].float() - exact).abs().max()) <= error * float(exact.abs().max())
    assert len(list((tmp_path / "c").glob("shard-*"))) > 1


def test_the_size_is_printed_before_and_is_right(encoder, recordings, tmp_path, capsys):
    cached = cache_states(encoder, recordings, tmp_path / "c", FRAMES)
    printed = next(line for line in capsys.readouterr().err.split("\n") if "GB in" in line)
    written = sum(cached[r.id].numel() * 2 for r in recordings)
    assert float(printed.partition(": ")[2].split(" GB")[0].split()[-1]) == pytest.approx(written / 1e9, rel=0.01)


def test_any_number_of_workers_gives_the_same_bytes(encoder, recordings, tmp_path):
    for workers in (1, 3):
        cache_states(encoder, recordings, tmp_path / f"c{workers}", FRAMES, workers=workers)
    one, three = ({p.name: p.read_bytes() for p in (tmp_path / f"c{n}").iterdir()} for n in (1, 3))
    assert one == three


def test_a_killed_run_goes_on_and_a_finished_one_computes_nothing(encoder, recordings, tmp_path, monkeypatch, dies_in):
    with dies_in(features, "read_audio", 3):
        cache_states(encoder, recordings, tmp_path / "c", FRAMES, workers=1)
    done = len(list((tmp_path / "c").glob("shard-*")))
    assert done >= 1 and not (tmp_path / "c/card.json").exists()
    read = []
    monkeypatch.setattr(features, "read_audio", lambda path: read.append(path) or read_audio(path))
    cache_states(encoder, recordings, tmp_path / "c", FRAMES, workers=1)
    assert 0 < len(read) <= len(recordings) - done
    before = len(read)
    cache_states(encoder, recordings, tmp_path / "c", FRAMES)
    assert len(read) == before
    fresh = cache_states(encoder, recordings, tmp_path / "fresh", FRAMES)
    assert all(torch.equal(fresh[r.id], CachedStates.load(tmp_path / "c")[r.id]) for r in recordings)


def test_noise_is_in_the_states_and_in_the_card(encoder, recordings, tmp_path):
    condition = parse_condition("gaussian@5")
    cached = cache_states(encoder, recordings, tmp_path / "c", reader=ConditionReader(condition, Distorter(3)))
    noisy = Distorter(3).apply(read_audio(recordings[1].path), condition, "r1")
    assert torch.equal(cached["r1"], encoder.hidden_states(noisy).mean(1))
    for other in (
        ConditionReader(),
        ConditionReader(condition, Distorter(4)),
        ConditionReader(parse_condition("gaussian@6"), Distorter(3)),
    ):
        with pytest.raises(InputError, match="hearing"):
            cache_states(encoder, recordings, tmp_path / "c", reader=other)


def test_other_inputs_are_refused(encoder, hubert_folder, recordings, tmp_path):
    from speechssl.encoders.load import load_encoder

    cache_states(encoder, recordings, tmp_path / "c")
    with pytest.raises(InputError, match=r"encoder.encoder"):
        cache_states(load_encoder(hubert_folder("group")), recordings, tmp_path / "c")
    with pytest.raises(InputError, match="recordings"):
        cache_states(encoder, recordings[:2], tmp_path / "c")
    write_flac(recordings[0].path, np.random.default_rng(1).uniform(-0.5, 0.5, 9_000))
    with pytest.raises(InputError, match="recordings"):
        cache_states(encoder, recordings, tmp_path / "c")


def test_what_cannot_be_read_is_set_aside_and_tried_again(encoder, recordings, tmp_path, capsys):
    whole = recordings[1].path.read_bytes()
    recordings[1].path.write_bytes(bytes(len(whole)))  # of the same size
    assert "r1" not in cache_states(encoder, recordings, tmp_path / "c")
    assert "set aside r1" in capsys.readouterr().err
    recordings[1].path.write_bytes(whole)
    assert "r1" in cache_states(encoder, recordings, tmp_path / "c")


def test_nothing_that_can_be_read_or_one_id_twice_is_one_sentence_and_leaves_nothing(encoder, tmp_path):
    with pytest.raises(InputError, match="none of the 1 recordings"):
        cache_states(encoder, [Recording("x", tmp_path / "no.flac", 1.0)], tmp_path / "c")
    with pytest.raises(InputError, match="same id"):
        cache_states(encoder, [Recording("x", tmp_path / "no.flac", 1.0)] * 2, tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_too_little_room_is_one_sentence_before_anything_is_computed(encoder, recordings, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "read_audio", lambda *_: pytest.fail("this should not have begun"))
    with pytest.raises(InputError, match="need .* GB and the limit is 1e-09 GB"):
        cache_states(encoder, recordings, tmp_path / "c", CacheOptions(limit_gb=1e-9))
    monkeypatch.setattr(features.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(InputError, match="need .* GB and 1e-08 GB are free"):
        cache_states(encoder, recordings, tmp_path / "c")
