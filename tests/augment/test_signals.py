"""Made noise has its length, its power and its spectrum."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal

from speechssl.audio import SAMPLE_RATE
from speechssl.augment import babble, coloured, gaussian, generator, pink


def rms_db(samples: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(np.square(samples, dtype=np.float64))))


@pytest.mark.parametrize("n", [1, 2, 777, 16000, 16001])
def test_generated_noise_has_its_length_and_power(n: int) -> None:
    for noise in (gaussian(n, generator(0)), pink(n, generator(0))):
        assert noise.shape == (n,) and np.isfinite(noise).all() and np.any(noise)
    if n >= 16000:
        assert rms_db(pink(n, generator(0))) == pytest.approx(0, abs=0.5)


def test_pink_falls_by_three_decibels_an_octave() -> None:
    frequency, density = signal.welch(pink(60 * SAMPLE_RATE, generator(1)), SAMPLE_RATE, nperseg=4096)
    band = (frequency > 50) & (frequency < 7000)
    slope = np.polyfit(np.log2(frequency[band]), 10 * np.log10(density[band]), 1)[0]
    assert slope == pytest.approx(-3.01, abs=0.1)


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_babble_mixes_every_talker_at_one_level(count: int) -> None:
    time = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    voices = [10.0**-i * np.sin(2 * np.pi * 100 * (i + 1) * time) for i in range(count)]
    spectrum = np.abs(np.fft.rfft(babble(voices, SAMPLE_RATE, generator(0), talkers=count)))
    heights = spectrum[100 : 100 * count + 1 : 100]
    np.testing.assert_allclose(heights, heights[0], rtol=1e-3)


def test_babble_needs_voices() -> None:
    with pytest.raises(ValueError, match="voices"):
        babble([], 100, generator(0))


@pytest.mark.parametrize("slope", [-12.0, -6.0, 0.0, 3.0, 6.0])
def test_coloured_noise_has_its_slope(slope: float) -> None:
    noise = coloured(60 * SAMPLE_RATE, generator(1), slope)
    frequency, density = signal.welch(noise, SAMPLE_RATE, "blackmanharris", 4096)
    band = (frequency > 100) & (frequency < 7000)
    assert np.polyfit(np.log2(frequency[band]), 10 * np.log10(density[band]), 1)[0] == pytest.approx(slope, abs=0.15)
    assert rms_db(noise) == pytest.approx(0, abs=0.5)
