"""From audio to units: the right encoder only, the same units however the audio is cut and whoever asks."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from speechssl.encoders.base import Chunking, single_threaded
from speechssl.encoders.shared import SharedEncoder
from speechssl.errors import InputError
from speechssl.units.extract import extractor_of, load_extractor


def noise(samples, seed=0):
    return np.random.default_rng(seed).uniform(-0.5, 0.5, samples).astype(np.float32)


def test_units_are_the_nearest_centroids_of_the_layer(encoder, codebook_for):
    extractor = extractor_of(encoder, codebook_for(encoder))
    samples = noise(9_000)
    features = encoder.hidden_states(samples)[1].numpy()
    nearest = np.square(features[:, None] - extractor.codebook.centroids).sum(-1).argmin(1)
    assert np.array_equal(extractor.frames(samples), nearest)
    units = extractor.units(samples)
    assert np.array_equal(units.expand(), nearest) and units.frames == extractor.grid.frames(9_000)
    assert len(set(nearest)) > 2


def test_the_codebook_says_how_much_to_smooth(encoder, codebook_for):
    samples, plain = noise(9_000), codebook_for(encoder)
    smoothed = extractor_of(encoder, codebook_for(encoder, smooth=5))
    features = encoder.features(samples, 1)
    expected = torch.stack([features[max(t - 2, 0) : t + 3].mean(0) for t in range(len(features))])
    assert np.array_equal(smoothed.frames(samples), plain.assign(expected))
    assert not np.array_equal(smoothed.frames(samples), plain.assign(features))


def test_smoothing_goes_on_across_the_pieces_of_long_audio(encoder, codebook_for):
    pieces = replace(encoder, chunking=Chunking(1.0, 0.5))
    samples, book = noise(70_123), codebook_for(encoder, smooth=5)
    whole = torch.nn.functional.avg_pool1d(pieces.features(samples, 1).T[None], 5, 1, 2, count_include_pad=False)[0].T
    assert np.array_equal(extractor_of(pieces, book).frames(samples), book.assign(whole))


def test_an_encoder_that_remembers_gives_the_same_units(encoder, extractor):
    shared, samples = extractor_of(SharedEncoder(encoder), extractor.codebook), noise(50_000)
    assert np.array_equal(shared.frames(samples), extractor.frames(samples)) and shared.card == extractor.card
    assert np.array_equal(shared.frames(samples), extractor.frames(samples))  # from what it remembers


@pytest.mark.parametrize("card", [{"encoder": "0123456789abcdef"}, {"encoder": "mfcc"}, {"encoder": None}])
def test_a_codebook_of_another_encoder_is_refused(encoder, codebook_for, card):
    with pytest.raises(InputError, match=f"{card['encoder']}, not on {encoder.name} .*fit one for this encoder"):
        extractor_of(encoder, codebook_for(encoder, **card))


def test_different_units_have_different_cards(encoder, extractor, codebook_for):
    facts = {"encoder": encoder.hash, "layer": 1, "smooth": 3, "codebook": extractor.codebook.hash, "precision": "fp32"}
    assert extractor.card == facts
    assert extractor_of(encoder, codebook_for(encoder, smooth=3, seed=1)).card != extractor.card
    assert extractor_of(encoder, codebook_for(encoder, smooth=3, layer=2)).card != extractor.card
    assert extractor_of(replace(encoder, precision="bf16"), extractor.codebook).card != extractor.card


def test_an_extractor_is_loaded_in_the_precision_asked_for(hubert_folder, extractor, tmp_path):
    extractor.codebook.save(tmp_path / "book.safetensors")
    made = load_extractor(str(hubert_folder("layer")), tmp_path / "book.safetensors", "bf16")
    assert made.card == extractor.card | {"precision": "bf16"}
    alike = np.mean(made.frames(noise(16_000)) == extractor.frames(noise(16_000)))
    assert 0.8 < alike
    with pytest.raises(InputError, match="no precision fp8"):
        load_extractor(str(hubert_folder("layer")), tmp_path / "book.safetensors", "fp8")


def test_features_that_are_not_finite_give_no_units(extractor):
    with pytest.raises(ValueError, match="samples hold numbers that are not finite"):
        extractor.frames(np.full(9_000, np.nan, np.float32))
    broken = replace(extractor.features, raw=lambda samples: iter([torch.full((9, 32), torch.nan)]))
    with pytest.raises(ValueError, match="features that are not finite"):
        replace(extractor, features=broken).frames(np.zeros(9_000, np.float32))


def test_every_worker_has_one_thread_and_threads_are_given_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        barrier = threading.Barrier(3)
        with pytest.raises(KeyError), single_threaded(3) as pool:
            asked = [pool.submit(lambda: (barrier.wait() and 0) or torch.get_num_threads()) for _ in range(3)]
            assert [future.result() for future in asked] == [1, 1, 1]
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_what_has_not_begun_when_a_run_is_stopped_is_not_begun():
    begun = threading.Event()
    with pytest.raises(KeyboardInterrupt), single_threaded(1) as pool:
        first, *others = [pool.submit(begun.wait, 0.2) for _ in range(50)]
        raise KeyboardInterrupt
    assert first.done() and all(future.cancelled() for future in others[1:])
