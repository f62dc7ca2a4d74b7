"""What heads are trained on: from the cache as from the encoder in the loop; crops."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from speechssl.audio import read_audio
from speechssl.data.superb import load_labelled
from speechssl.superb.data import (
    TRAINING,
    Batch,
    CachedLoader,
    FeatureCache,
    OnlineLoader,
    cache_states,
    list_split_recordings,
    random_crops,
)


class Now:
    """A pool of this thread alone."""

    map = staticmethod(lambda function, items: [function(item) for item in items])


@pytest.fixture
def data(labelled):
    return load_labelled(labelled())


def loaders(data, encoder, folder, pooled):
    """The one that reads the cache, and the one with the encoder in the loop."""
    cache_states(encoder, list_split_recordings(data, TRAINING), folder, pooled)
    task = SimpleNamespace(data=data, pooled=pooled, wants_waves=True)
    return CachedLoader(data, folder, pooled, True), OnlineLoader(encoder, read_audio, task, Now())


@pytest.mark.parametrize("pooled", [True, False])
def test_both_give_the_same(data, encoder, tmp_path, pooled):
    stored, online = loaders(data, encoder, tmp_path / "f", pooled)
    chosen = data.splits["train"][3:6]
    a, b = stored.batch(chosen), online.batch(chosen)
    assert a.utterances == b.utterances == chosen
    assert stored.shape == online.shape == (3, 32)
    # frames are kept in bf16
    torch.testing.assert_close(a.states, b.states if pooled else b.states.bfloat16().float())
    assert torch.equal(a.lengths, b.lengths)
    assert all(np.array_equal(x, y) for x, y in zip(a.waves, b.waves, strict=True))
    assert a.states.shape == ((3, 3, 32) if pooled else (3, 3, 24, 32))


def test_what_does_not_fit_stays_in_the_loop_and_is_reported(data, encoder, tmp_path, capsys):
    task = SimpleNamespace(data=data, pooled=True, wants_waves=False)
    small = FeatureCache(encoder, tmp_path / "a", limit_gb=1e-6)
    assert isinstance(small.loader(task), OnlineLoader)
    assert "--cache-gb" in capsys.readouterr().err
    assert isinstance(FeatureCache(encoder, tmp_path / "b").loader(task), CachedLoader)


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
