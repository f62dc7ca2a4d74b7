"""Fixtures of units: recordings, a codebook for the tiny encoder, and an extractor of the two."""

import numpy as np
import pytest


def same_runs(one, other):
    """Return whether two RunLengths are equal: their units, lengths and seconds."""
    return (
        np.array_equal(one.units, other.units)
        and np.array_equal(one.lengths, other.lengths)
        and one.seconds == other.seconds
    )


@pytest.fixture
def recordings(tmp_path):
    """Return a folder of seven files, 0.flac to 6.flac, of 0.2 to 1.9 s; the longest are not the
    last."""
    from speechssl.audio import write_flac

    rng = np.random.default_rng(0)
    for i in range(7):
        noise = rng.uniform(-0.5, 0.5, 3_000 + 4_517 * (i * 3 % 7))
        write_flac(tmp_path / f"audio/{i}.flac", noise)
    return tmp_path / "audio"


@pytest.fixture(scope="session")
def codebook_for():
    """Return a function (encoder, seed, **entries of the card) -> Codebook, whose eight centroids
    are layer 1 of frames of noise."""
    from speechssl.units.codebook import Codebook

    def make(model, seed=0, **entries):
        noise = np.random.default_rng(99).uniform(-0.5, 0.5, 8_000).astype(np.float32)
        features = model.features(noise, 1).numpy()
        frames = np.random.default_rng(seed).choice(len(features), 8, replace=False)
        card = {"encoder": model.hash, "layer": 1, "frame_rate": 50.0} | entries
        return Codebook(features[frames], card)

    return make


@pytest.fixture(scope="session")
def extractor(encoder, codebook_for):
    """Return an extractor of eight units of layer 1, smoothed over three frames."""
    from speechssl.units.features import make_extractor

    return make_extractor(encoder, codebook_for(encoder, smooth=3))
