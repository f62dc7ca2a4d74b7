"""Tests of the batches that heads are trained on: the loaders, and random crops."""

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
    OnlineLoader,
    cache_states,
    crop_randomly,
    list_split_recordings,
)


class ThisThread:
    """This pool computes in the thread that calls it."""

    map = staticmethod(lambda function, items: [function(item) for item in items])


@pytest.fixture
def data(labelled):
    return load_labelled(labelled())


@pytest.mark.parametrize("pooled", [True, False])
def test_the_cache_gives_the_batch_of_the_encoder(data, encoder, tmp_path, pooled):
    cache_states(encoder, list_split_recordings(data, TRAINING), tmp_path / "f", pooled)
    task = SimpleNamespace(data=data, pooled=pooled, wants_waves=True)
    cached = CachedLoader(task, tmp_path / "f")
    online = OnlineLoader(encoder, read_audio, task, ThisThread())
    assert cached.shape == (3, 32)  # hidden states and their width
    assert online.shape == (3, 32)
    utterances = data.splits["train"][3:6]
    batch, expected = cached.make_batch(utterances), online.make_batch(utterances)
    assert batch.utterances == utterances
    assert expected.utterances == utterances
    # frames are cached in bf16, means in fp32
    expected_states = expected.states if pooled else expected.states.bfloat16().float()
    torch.testing.assert_close(batch.states, expected_states)
    assert batch.states.shape == ((3, 3, 32) if pooled else (3, 3, 24, 32))
    assert torch.equal(batch.lengths, expected.lengths)
    for wave, expected_wave in zip(batch.waves, expected.waves, strict=True):
        assert np.array_equal(wave, expected_wave)


def make_numbered_batch(*lengths):
    """Make a batch of recordings with these numbers of frames, in which every frame holds its
    number, counted from 1."""
    states = torch.zeros(len(lengths), 2, max(lengths), 1)
    for i, n in enumerate(lengths):
        states[i, :, :n, 0] = torch.arange(1.0, n + 1)
    return Batch((), states, torch.tensor(lengths))


def test_crops_are_consecutive_frames_from_any_start():
    torch.manual_seed(0)
    first_starts = set()
    for _ in range(200):
        crops, starts = crop_randomly(make_numbered_batch(12, 5, 3), frames=5)
        assert crops.states.shape == (3, 2, 5, 1)
        assert crops.lengths.tolist() == [5, 5, 3]
        assert starts[1:] == [0, 0]
        assert crops.states[0, 1, :, 0].tolist() == [starts[0] + i for i in range(1, 6)]
        assert crops.states[2, 0, :, 0].tolist() == [1, 2, 3, 0, 0]
        first_starts.add(starts[0])
    assert first_starts == set(range(12 - 5 + 1))
