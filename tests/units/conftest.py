"""A codebook for the tiny encoder, the two together, and recordings."""

import numpy as np
import pytest


def same(a, b):
    """Whether two RunLengths hold the same units as often, of recordings of one length."""
    return (
        np.array_equal(a.units, b.units)
        and np.array_equal(a.lengths, b.lengths)
        and a.seconds == b.seconds
    )


@pytest.fixture
def recordings(tmp_path):
    """A folder of seven files of 0.2 to 1.9 s."""
    from speechssl.audio import write_flac

    rng = np.random.default_rng(0)
    for i in range(7):
        write_flac(
            tmp_path / f"audio/{i}.flac", rng.uniform(-0.5, 0.5, 3_000 + 4_517 * (i * 3 % 7))
        )
    return tmp_path / "audio"


@pytest.fixture(scope="session")
def codebook_for():
    """A function (encoder, seed, **more of the card) -> a Codebook: eight frames of noise as
    centroids."""
    from speechssl.units.codebook import Codebook

    def make(model, seed=0, **card):
        noise = np.random.default_rng(99).uniform(-0.5, 0.5, 8_000).astype(np.float32)
        features = model.features(noise, 1).numpy()
        chosen = np.random.default_rng(seed).choice(len(features), 8, replace=False)
        return Codebook(
            features[chosen], {"encoder": model.hash, "layer": 1, "frame_rate": 50.0} | card
        )

    return make


@pytest.fixture(scope="session")
def extractor(encoder, codebook_for):
    from speechssl.units.features import extractor_of

    return extractor_of(encoder, codebook_for(encoder, smooth=3))
