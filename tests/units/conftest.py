"""A codebook for the tiny encoder, and the two together."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def codebook_for():
    """A function (encoder, seed, **more of the card) -> a Codebook: eight frames of noise as centroids."""
    from speechssl.units.kmeans import Codebook

    def make(model, seed=0, **card):
        noise = np.random.default_rng(99).uniform(-0.5, 0.5, 8_000).astype(np.float32)
        features = model.features(noise, 1).numpy()
        chosen = np.random.default_rng(seed).choice(len(features), 8, replace=False)
        return Codebook(features[chosen], {"encoder": model.hash, "layer": 1, "frame_rate": 50.0} | card)

    return make


@pytest.fixture(scope="session")
def extractor(encoder, codebook_for):
    from speechssl.units.features import extractor_of

    return extractor_of(encoder, codebook_for(encoder, smooth=3))
