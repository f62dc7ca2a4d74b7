"""What heads are trained on: from the cache as from the encoder in the loop; crops; weighted sums."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from speechssl.audio import read_audio
from speechssl.data.superb import Utterance, load_labelled
from speechssl.encoders.states import CacheOptions, cache_states
from speechssl.superb.data import (
    Batch,
    CachedLoader,
    Featurizer,
    OnlineLoader,
    padded,
    random_crops,
    recordings_of,
)


class Now:
    """A pool of this thread alone."""

    map = staticmethod(lambda function, items: [function(item) for item in items])


@pytest.fixture
def data(labelled):
    return load_labelled(labelled())


def cache_of(data, encoder, folder, pooled, precision="float32", waves=False):
    cache_states(encoder, recordings_of(data, ("train", "dev")), folder, CacheOptions(pooled, precision))
    return CachedLoader(data, folder, pooled, waves)


@pytest.mark.parametrize("pooled", [True, False])
def test_both_give_the_same(data, encoder, tmp_path, pooled):
    stored = cache_of(data, encoder, tmp_path / "f", pooled, waves=True)
    online = OnlineLoader(encoder, lambda u: read_audio(data.path(u)), pooled, True, Now())
    chosen = data.splits["train"][3:6]
    a, b = stored.batch(chosen), online.batch(chosen)
    assert a.utterances == b.utterances == chosen and stored.shape == online.shape == (3, 32)
    torch.testing.assert_close(a.states, b.states)
    assert torch.equal(a.lengths, b.lengths) and all(np.array_equal(x, y) for x, y in zip(a.waves, b.waves, strict=True))
    assert a.states.shape == ((3, 3, 32) if pooled else (3, 3, 24, 32))


def test_frames_in_two_bytes_come_back_as_float32(data, encoder, tmp_path):
    exact, short = (cache_of(data, encoder, tmp_path / p, False, p) for p in ("float32", "bfloat16"))
    a, b = (s.batch(data.splits["dev"]).states for s in (exact, short))
    assert b.dtype == torch.float32 and (a - b).abs().max() <= 2**-8 * a.abs().max()


def test_it_travels_to_another_process_without_what_it_has_read(data, encoder, tmp_path):
    stored = cache_of(data, encoder, tmp_path / "f", True)
    wanted = stored.batch(data.splits["dev"]).states
    pickled = pickle.dumps(stored)
    assert len(pickled) < 20_000
    assert torch.equal(pickle.loads(pickled).batch(data.splits["dev"]).states, wanted)


def test_unreadable_recordings_are_left_out(data, encoder, tmp_path):
    for i in (0, 1):
        (data.root / f"audio/dev-{i}.flac").write_bytes(b"nothing")
    online = OnlineLoader(encoder, lambda u: read_audio(data.path(u)), True, False, Now())
    dev = data.splits["dev"]
    assert [u.id for u in online.batch(dev).utterances] == ["dev-2", "dev-3"]
    assert online.batch(dev[:2]) is None and set(online.failed) == {"dev-0", "dev-1"} and len(online.usable(dev)) == 2
    stored = cache_of(data, encoder, tmp_path / "f", True)
    assert [u.id for u in stored.usable(dev)] == ["dev-2", "dev-3"]
    with pytest.raises(KeyError):
        stored.states["dev-0"]


def test_padding_is_zero():
    batch = padded([Utterance("a", "x", 1.0), Utterance("b", "x", 1.0)], [torch.ones(5, 2, 3), torch.ones(2, 2, 3)], ())
    assert batch.states.shape == (2, 2, 5, 3) and batch.states[1, :, 2:].abs().sum() == 0 and batch.lengths.tolist() == [5, 2]


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
        assert found.states.shape == (3, 2, 5, 1) and found.lengths.tolist() == [5, 5, 3] and starts[1:] == [0, 0]
        assert found.states[0, 1, :, 0].tolist() == [starts[0] + i for i in range(1, 6)]
        assert found.states[2, 0, :, 0].tolist() == [1, 2, 3, 0, 0]
        seen.add(starts[0])
    assert seen == set(range(8))  # every one there is


def test_the_seed_decides():
    torch.manual_seed(3)
    first = random_crops(batch(900, 800), 100)[1]
    torch.manual_seed(3)
    assert random_crops(batch(900, 800), 100)[1] == first != random_crops(batch(900, 800), 100)[1]


def test_what_is_short_enough_is_left_alone():
    given = batch(4, 2)
    found, starts = random_crops(given, 4)
    assert found is given and starts == [0, 0]


def test_weights_begin_equal():
    states = torch.randn(2, 5, 7, 3)
    assert torch.allclose(Featurizer(5)(states), states.mean(1), atol=1e-6)
    assert torch.allclose(Featurizer(5).shares, torch.full((5,), 0.2))


def test_one_state_is_itself():
    states = torch.randn(2, 1, 7, 3)
    assert torch.equal(Featurizer(1)(states), states[:, 0])
