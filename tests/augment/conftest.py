"""Voices for babble."""

import numpy as np
import pytest

from speechssl.audio import SAMPLE_RATE, write_flac


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
