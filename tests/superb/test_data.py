"""What heads are trained on: from the cache as from the encoder in the loop; crops; weighted
sums."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from speechssl.audio import read_audio, write_flac
from speechssl.augment import Distorter, parse_condition
from speechssl.data.recordings import Recording
from speechssl.data.superb import Utterance, load_labelled
from speechssl.encoders.store import FeatureStore
from speechssl.superb import data as features
from speechssl.superb.data import (
    CLEAN,
    AudioReader,
    Batch,
    CachedLoader,
    CacheOptions,
    OnlineLoader,
    cache_states,
    list_split_recordings,
    pad_batch,
    random_crops,
)

from ..files import refused


class Now:
    """A pool of this thread alone."""

    map = staticmethod(lambda function, items: [function(item) for item in items])


@pytest.fixture
def data(labelled):
    return load_labelled(labelled())


def cache_of(data, encoder, folder, pooled, precision="float32", waves=False):
    cache_states(
        encoder,
        list_split_recordings(data, ("train", "dev")),
        folder,
        CacheOptions(pooled, precision),
    )
    return CachedLoader(data, folder, pooled, waves)


@pytest.mark.parametrize("pooled", [True, False])
def test_both_give_the_same(data, encoder, tmp_path, pooled):
    stored = cache_of(data, encoder, tmp_path / "f", pooled, waves=True)
    online = OnlineLoader(encoder, lambda u: read_audio(data.path(u)), pooled, True, Now())
    chosen = data.splits["train"][3:6]
    a, b = stored.batch(chosen), online.batch(chosen)
    assert a.utterances == b.utterances == chosen
    assert stored.shape == online.shape == (3, 32)
    torch.testing.assert_close(a.states, b.states)
    assert torch.equal(a.lengths, b.lengths)
    assert all(np.array_equal(x, y) for x, y in zip(a.waves, b.waves, strict=True))
    assert a.states.shape == ((3, 3, 32) if pooled else (3, 3, 24, 32))


def test_unreadable_recordings_are_left_out(data, encoder, tmp_path):
    for i in (0, 1):
        (data.root / f"audio/dev-{i}.flac").write_bytes(b"nothing")
    online = OnlineLoader(encoder, lambda u: read_audio(data.path(u)), True, False, Now())
    dev = data.splits["dev"]
    assert [u.id for u in online.batch(dev).utterances] == ["dev-2", "dev-3"]
    assert online.batch(dev[:2]) is None
    assert set(online.failed) == {"dev-0", "dev-1"}
    assert len(online.usable(dev)) == 2
    stored = cache_of(data, encoder, tmp_path / "f", True)
    assert [u.id for u in stored.usable(dev)] == ["dev-2", "dev-3"]
    with pytest.raises(KeyError):
        stored.states["dev-0"]


def test_padding_is_zero():
    batch = pad_batch(
        [Utterance("a", "x", 1.0), Utterance("b", "x", 1.0)],
        [torch.ones(5, 2, 3), torch.ones(2, 2, 3)],
        (),
    )
    assert batch.states.shape == (2, 2, 5, 3)
    assert batch.states[1, :, 2:].abs().sum() == 0
    assert batch.lengths.tolist() == [5, 2]


def batch(*lengths):
    states = torch.zeros(len(lengths), 2, max(lengths), 1)
    for i, n in enumerate(lengths):
        states[i, :, :n, 0] = torch.arange(1.0, n + 1)
    return Batch((), states, torch.tensor(lengths))


def test_a_crop_is_of_the_recording():
    torch.manual_seed(0)
    seen = set()
    for _ in range(200):
        found, starts = random_crops(batch(12, 5, 3), 5)
        assert found.states.shape == (3, 2, 5, 1)
        assert found.lengths.tolist() == [5, 5, 3]
        assert starts[1:] == [0, 0]
        assert found.states[0, 1, :, 0].tolist() == [starts[0] + i for i in range(1, 6)]
        assert found.states[2, 0, :, 0].tolist() == [1, 2, 3, 0, 0]
        seen.add(starts[0])
    assert seen == set(range(8))  # every one there is


# ---- hidden states on disk: what the encoder gives, once, whole or not at all, and nobody else's

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
        assert torch.equal(cached[r.id][0], encoder.hidden_states(read_audio(r.path)).mean(1))


@pytest.mark.parametrize(
    ("precision", "error"), [("float16", 1e-3), ("bfloat16", 8e-3), ("float32", 0)]
)
def test_frames_are_the_hidden_states_to_rounding(encoder, recordings, tmp_path, precision, error):
    cached = cache_states(
        encoder, recordings, tmp_path / "c", dataclasses.replace(FRAMES, precision=precision)
    )
    for r in recordings:
        exact = encoder.hidden_states(read_audio(r.path)).transpose(0, 1)
        assert cached[r.id].shape == exact.shape
        assert cached[r.id].dtype == features.PRECISIONS[precision]
        assert float((cached[r.id].float() - exact).abs().max()) <= error * float(exact.abs().max())
    assert len(list((tmp_path / "c").glob("shard-*"))) > 1


def test_a_killed_run_goes_on_and_a_finished_one_computes_nothing(
    encoder, recordings, tmp_path, monkeypatch, dies_in
):
    with dies_in(features, "read_audio", 3):
        cache_states(encoder, recordings, tmp_path / "c", FRAMES, workers=1)
    done = len(list((tmp_path / "c").glob("shard-*")))
    assert done >= 1
    assert not (tmp_path / "c/card.json").exists()
    read = []
    monkeypatch.setattr(features, "read_audio", lambda path: read.append(path) or read_audio(path))
    cache_states(encoder, recordings, tmp_path / "c", FRAMES, workers=1)
    assert 0 < len(read) <= len(recordings) - done
    before = len(read)
    cache_states(encoder, recordings, tmp_path / "c", FRAMES)
    assert len(read) == before
    fresh = cache_states(encoder, recordings, tmp_path / "fresh", FRAMES)
    assert all(
        torch.equal(fresh[r.id], FeatureStore.load(tmp_path / "c")[r.id]) for r in recordings
    )


def test_noise_is_in_the_states_and_in_the_card(encoder, recordings, tmp_path):
    condition = parse_condition("gaussian@5")

    def noisy(recording):
        return Distorter(3).apply(read_audio(recording.path), condition, recording.id)

    cached = cache_states(
        encoder, recordings, tmp_path / "c", reader=AudioReader({"seed": 3}, noisy)
    )
    assert torch.equal(cached["r1"][0], encoder.hidden_states(noisy(recordings[1])).mean(1))
    for other in (CLEAN, AudioReader({"seed": 4}, noisy)):
        refused("hearing", cache_states, encoder, recordings, tmp_path / "c", reader=other)


def test_what_cannot_be_read_is_set_aside_and_tried_again(encoder, recordings, tmp_path, capsys):
    whole = recordings[1].path.read_bytes()
    recordings[1].path.write_bytes(bytes(len(whole)))  # of the same size
    assert "r1" not in cache_states(encoder, recordings, tmp_path / "c")
    assert "set aside r1" in capsys.readouterr().err
    recordings[1].path.write_bytes(whole)
    assert "r1" in cache_states(encoder, recordings, tmp_path / "c")
