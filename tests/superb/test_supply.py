"""From the cache and from the encoder in the loop come the same batches; what cannot be heard is left out."""

import pickle

import numpy as np
import pytest
import torch

from speechssl.audio import read_audio
from speechssl.data.utterances import Utterance, load_labelled
from speechssl.encoders.states import CacheOptions
from speechssl.superb.data import Cached, InTheLoop, padded
from speechssl.superb.tasks.classification import cache


class Now:
    """A pool of this thread alone."""

    map = staticmethod(lambda function, items: [function(item) for item in items])


@pytest.fixture
def data(labelled):
    return load_labelled(labelled())


def cached(data, encoder, folder, pooled, precision="float32", waves=False):
    cache(data, encoder, folder, ("train", "dev"), CacheOptions(pooled, precision))
    return Cached(data, (folder,), pooled, waves)


@pytest.mark.parametrize("pooled", [True, False])
def test_both_give_the_same(data, encoder, tmp_path, pooled):
    stored = cached(data, encoder, tmp_path / "f", pooled, waves=True)
    live = InTheLoop(encoder, lambda u: read_audio(data.path(u)), pooled, True, Now())
    chosen = data.splits["train"][3:6]
    a, b = stored.batch(chosen), live.batch(chosen)
    assert a.utterances == b.utterances == chosen and stored.shape == live.shape == (3, 32)
    torch.testing.assert_close(a.states, b.states)
    assert torch.equal(a.lengths, b.lengths) and all(np.array_equal(x, y) for x, y in zip(a.waves, b.waves, strict=True))
    assert a.states.shape == ((3, 3, 32) if pooled else (3, 3, 24, 32))


def test_frames_in_two_bytes_come_back_as_float32(data, encoder, tmp_path):
    exact, short = (cached(data, encoder, tmp_path / p, False, p) for p in ("float32", "bfloat16"))
    a, b = (s.batch(data.splits["dev"]).states for s in (exact, short))
    assert b.dtype == torch.float32 and (a - b).abs().max() <= 2**-8 * a.abs().max()


def test_it_travels_to_another_process_without_what_it_has_read(data, encoder, tmp_path):
    stored = cached(data, encoder, tmp_path / "f", True)
    wanted = stored.batch(data.splits["dev"]).states
    sent = pickle.dumps(stored)
    assert len(sent) < 20_000
    assert torch.equal(pickle.loads(sent).batch(data.splits["dev"]).states, wanted)


def test_what_cannot_be_heard(data, encoder, tmp_path):
    for i in (0, 1):
        (data.root / f"audio/dev-{i}.flac").write_bytes(b"nothing")
    live = InTheLoop(encoder, lambda u: read_audio(data.path(u)), True, False, Now())
    dev = data.splits["dev"]
    assert [u.id for u in live.batch(dev).utterances] == ["dev-2", "dev-3"]
    assert live.batch(dev[:2]) is None and set(live.failed) == {"dev-0", "dev-1"} and len(live.usable(dev)) == 2
    stored = cached(data, encoder, tmp_path / "f", True)
    assert [u.id for u in stored.usable(dev)] == ["dev-2", "dev-3"]
    with pytest.raises(KeyError):
        stored["dev-0"]


def test_padding_is_zero():
    batch = padded([Utterance("a", "x", 1.0), Utterance("b", "x", 1.0)], [torch.ones(5, 2, 3), torch.ones(2, 2, 3)], ())
    assert batch.states.shape == (2, 2, 5, 3) and batch.states[1, :, 2:].abs().sum() == 0 and batch.lengths.tolist() == [5, 2]
