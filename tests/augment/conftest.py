"""Make steady noise, and voices for babble."""

import numpy as np
import pytest

from speechssl.audio import SAMPLE_RATE, write_flac


def steady(n=SAMPLE_RATE, seed=0, level=0.05):
    """Make noise (n,) of constant level, whose active level is its RMS level."""
    return (level * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


@pytest.fixture
def voices(tmp_path):
    """Recordings of five "people": a tone each, with syllables of 0.2 s and pauses of 0.1 s."""
    time = np.arange(2 * SAMPLE_RATE) / SAMPLE_RATE
    for person in range(5):
        pitch = 110 + 37 * person  # Hz
        carrier = 0.3 * np.sin(2 * np.pi * pitch * time)
        syllables = (time + 0.05 * person) % 0.3 < 0.2
        write_flac(tmp_path / "voices" / f"{person}.flac", carrier * syllables)
    return tuple(sorted((tmp_path / "voices").iterdir()))
