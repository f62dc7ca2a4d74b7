"""Codecs, pitch and missing bands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

from speechssl.audio import SAMPLE_RATE
from speechssl.augment.effects import band_reject, bit_rates, pitch_shift, through_codec


def speechlike(n: int, seed: int = 0) -> np.ndarray:
    low = signal.butter(4, 2500, fs=SAMPLE_RATE, output="sos")
    return signal.sosfilt(low, 0.1 * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


def lag(one: np.ndarray, two: np.ndarray) -> int:
    """Samples by which one comes after two."""
    return int(np.argmax(signal.correlate(one, two, "full", "fft"))) - (len(two) - 1)


@pytest.mark.parametrize(
    ("codec", "kbps"), [("mp3", k) for k in (16, 20, 24, 32, 40, 64, 160)] + [("opus", k) for k in (6, 12, 24, 64, 256)]
)
@pytest.mark.parametrize("n", [3000, 8001, 48_000])
def test_timing_is_kept_to_a_millisecond(codec: str, kbps: float, n: int) -> None:
    samples = speechlike(n)
    decoded = through_codec(samples, codec, kbps)
    assert decoded.shape == (n,) and decoded.dtype == np.float32
    assert abs(lag(decoded, samples)) < 0.001 * SAMPLE_RATE
    assert not np.array_equal(decoded, samples)


@pytest.mark.parametrize("codec", ["mp3", "opus"])
def test_more_bits_are_closer(codec: str) -> None:
    samples = speechlike(2 * SAMPLE_RATE)
    low, high = bit_rates(codec)
    errors = [float(np.mean((through_codec(samples, codec, k) - samples) ** 2)) for k in (low, 32, high)]
    assert errors[0] > errors[1] > errors[2]


@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 4000), codec=st.sampled_from(["mp3", "opus"]), level=st.floats(1e-3, 5))
def test_any_length_and_level(n: int, codec: str, level: float) -> None:
    decoded = through_codec(level * speechlike(n), codec, 24)
    assert decoded.shape == (n,) and np.isfinite(decoded).all() and np.abs(decoded).max(initial=0) <= 1


@pytest.mark.parametrize(("codec", "kbps"), [("aac", 64), ("mp3", 8), ("opus", 300), ("opus", float("nan"))])
def test_no_such_codec(codec: str, kbps: float) -> None:
    with pytest.raises(ValueError, match="is none of"):
        through_codec(speechlike(1000), codec, kbps)


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
