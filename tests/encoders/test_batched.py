"""Batches: every utterance as if it were alone, on the CPU here."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.encoders import batched
from speechssl.encoders.batched import BatchedEngine
from speechssl.encoders.encoder import SpeechEncoder
from speechssl.timing import FrameGrid

from ..files import refused
from .test_hubert import SHAPES, error, expected, layers, network, speech

LENGTHS = (16_000, 15_000, 400, 40_321, 16_100)


def grid(model):
    return FrameGrid.of_convolutions(16_000, model.config.conv_kernel, model.config.conv_stride)


def engine(precision="fp32", kind="Hubert", **changes):
    model = network(kind, **changes)
    return BatchedEngine(model, grid(model), precision, "cpu")


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    monkeypatch.setattr(batched, "BATCH_SECONDS", 3.0)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        *(
            ("Hubert", shape)
            for shape in (
                "base",
                "large",
                "group norm, convolutions with bias",
                "odd positions",
                "other strides",
            )
        ),
        ("Hubert", "adapters"),
        ("Wav2Vec2", "base"),
    ],
)
def test_a_batch_gives_what_transformers_gives_for_each_alone(kind, shape):
    waves = [speech(n, seed=n) for n in LENGTHS]
    exact = [expected(network(kind, **SHAPES[shape]), wave)[2] for wave in waves]
    found = engine("fp32", kind, **SHAPES[shape]).features(waves, 2)
    assert [x.shape for x in found] == [x.shape for x in exact]
    assert max(error(a, b) for a, b in zip(found, exact, strict=True)) < 5e-6


@pytest.mark.parametrize(("precision", "bound"), [("fp32", 5e-6), ("bf16", 0.03)])
def test_one_utterance_alone_has_all_layers(precision, bound):
    wave = speech(30_011)
    found, exact = layers(engine(precision), wave, 3), expected(network(), wave)
    assert len(found) == 4 and max(error(a, b) for a, b in zip(found, exact, strict=True)) < bound


@pytest.mark.slow
@settings(max_examples=15)
@given(
    st.lists(st.sampled_from([400, 9_000, 15_900, 16_000, 16_400, 31_000]), min_size=1, max_size=7),
    st.integers(0, 5),
)
def test_no_utterance_depends_on_its_batch_mates(lengths, seed):
    """Bit for bit: the shape that it is computed in is its own."""
    one = engine("bf16")
    waves = [speech(n, seed=seed + i) for i, n in enumerate(lengths)]
    together = one.features(waves, 3)
    for wave, features in zip(waves, together, strict=True):
        assert torch.equal(one.features([wave], 3)[0], features)


def test_the_encoder_gives_batches_to_it_and_long_recordings_in_pieces():
    model = network()
    encoder = SpeechEncoder(
        "x", BatchedEngine(model, grid(model), "fp32", "cpu"), grid(model), 3, 48, True, "hash"
    )
    recordings = [speech(n, seed=n).numpy() for n in (16_000, 700_000, 9_000)]
    found = encoder.features_of(recordings, 2)
    assert [len(x) for x in found] == [encoder.grid.frames(len(x)) for x in recordings]
    for recording, features in zip(recordings, found, strict=True):
        assert torch.equal(encoder.features(recording, 2), features)
    normal = (recordings[0] - recordings[0].mean()) / (recordings[0].var() + 1e-7) ** 0.5
    assert error(found[0], expected(network(), torch.from_numpy(normal))[2]) < 5e-6
    refused("layers 0 to 3, not 4", encoder.features_of, recordings, 4)
    with pytest.raises(ValueError, match="fewer than the 400"):
        encoder.features_of([recordings[0][:399]], 1)


def test_threads_that_share_an_encoder_leave_each_other_in_full_precision():
    """cuDNN's flags are the process's: the one that leaves first must not let the others'
    convolutions be rounded."""
    before, seen = torch.backends.cudnn.allow_tf32, []

    def one(_):
        with batched.exact():
            time.sleep(0.002)
            seen.append(torch.backends.cudnn.allow_tf32)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(40)))
    assert seen == [False] * 40 and torch.backends.cudnn.allow_tf32 == before
