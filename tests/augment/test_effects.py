"""Pitch and band change what they should, and not the time."""

from __future__ import annotations

import numpy as np
import pytest

from speechssl.audio import SAMPLE_RATE
from speechssl.augment import band_reject, pitch_shift


def test_pitch_moves_and_time_does_not() -> None:
    time = np.arange(2 * SAMPLE_RATE) / SAMPLE_RATE
    shifted = pitch_shift(0.3 * np.sin(2 * np.pi * 400 * time) * (time > 1), 12)
    assert shifted.shape == time.shape and shifted.dtype == np.float32
    assert np.argmax(np.abs(np.fft.rfft(shifted))) / 2 == pytest.approx(800, abs=10)
    assert np.argmax(np.abs(shifted) > 0.05) / SAMPLE_RATE == pytest.approx(1.0, abs=0.03)


def test_band_is_rejected_without_delay() -> None:
    time = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    kept, removed = (0.3 * np.sin(2 * np.pi * f * time) for f in (400, 1500))
    filtered = band_reject(kept + removed, 1000, 2000)
    np.testing.assert_allclose(filtered[2000:-2000], kept[2000:-2000], atol=0.01)
    with pytest.raises(ValueError, match="not a band"):
        band_reject(kept, 2000, 1000)
