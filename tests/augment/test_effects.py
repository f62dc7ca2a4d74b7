"""Codecs, pitch and missing bands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

from speechssl.audio import SAMPLE_RATE
from speechssl.signal import EQUALISER, band_reject, bit_rates, equalise, other_voice, pitch_shift, through_codec


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


def vowel(pitch: float, formants: tuple[float, ...] = (700, 1220, 2600), seconds: float = 1.0) -> np.ndarray:
    """A buzz of this pitch (Hz) through resonances at these formants (Hz)."""
    n = np.arange(round(seconds * SAMPLE_RATE))
    x = ((n * pitch / SAMPLE_RATE) % 1 < pitch / SAMPLE_RATE).astype(float)
    for f in formants:
        r = np.exp(-np.pi * 80 / SAMPLE_RATE)
        x = signal.lfilter([1], [1, -2 * r * np.cos(2 * np.pi * f / SAMPLE_RATE), r * r], x)
    return np.asarray(0.3 * x / np.abs(x).max(), np.float32)


def pitch_of(x: np.ndarray) -> float:
    middle = x[len(x) // 4 : -len(x) // 4].astype(float)
    found = signal.correlate(middle, middle, "full", "fft")[len(middle) - 1 :]
    lags = np.arange(round(SAMPLE_RATE / 400), round(SAMPLE_RATE / 60))
    return SAMPLE_RATE / float(lags[np.argmax(found[lags])])


def first_formant(x: np.ndarray) -> float:
    """Hz of the strongest resonance of a linear prediction."""
    import librosa

    a = librosa.lpc(signal.lfilter([1, -0.9], [1], x.astype(float)), order=14)
    found, response = signal.freqz(1, a, 4096, fs=SAMPLE_RATE)
    peaks, _ = signal.find_peaks(np.abs(response))
    return float(found[peaks[0]])


def test_another_voice_has_other_formants_and_another_pitch_at_the_same_times() -> None:
    pytest.importorskip("parselmouth", reason="needs speechssl[voices]")
    speech = np.concatenate([np.zeros(8000, np.float32), vowel(120), np.zeros(8000, np.float32)])
    higher = other_voice(speech, 1.0, 1.5, 1.0)
    assert higher.shape == speech.shape and higher.dtype == np.float32
    assert pitch_of(higher[8000:-8000]) == pytest.approx(180, rel=0.05)
    assert first_formant(higher[8000:-8000]) == pytest.approx(first_formant(speech[8000:-8000]), rel=0.1)
    smaller = other_voice(speech, 1.25, 1.0, 1.0)
    assert pitch_of(smaller[8000:-8000]) == pytest.approx(120, rel=0.05)
    assert first_formant(smaller[8000:-8000]) == pytest.approx(1.25 * first_formant(speech[8000:-8000]), rel=0.1)
    assert np.abs(higher[:6000]).max() < 0.01 and np.abs(higher[-6000:]).max() < 0.01


def test_what_has_no_pitch_keeps_its_voice() -> None:
    pytest.importorskip("parselmouth", reason="needs speechssl[voices]")
    for samples in (
        np.zeros(8000, np.float32),
        speechlike(50),
        0.1 * np.random.default_rng(0).standard_normal(400).astype(np.float32),
    ):
        np.testing.assert_array_equal(other_voice(samples, 1.2, 1.5, 1.2), samples)


def test_the_equaliser_has_its_gains_where_it_should() -> None:
    decibels = np.zeros(10)
    decibels[5] = 12.0
    noise = np.random.default_rng(0).standard_normal(4 * SAMPLE_RATE).astype(np.float32) * 0.05
    flat, raised = (equalise(noise, d, np.full(10, 3.0)) for d in (np.zeros(10), decibels))
    np.testing.assert_allclose(flat, noise, atol=1e-5)
    frequencies, before = signal.welch(noise, SAMPLE_RATE, nperseg=4096)
    after = signal.welch(raised, SAMPLE_RATE, nperseg=4096)[1]
    gain = 10 * np.log10(after / before)
    peak, far = (int(np.argmin(np.abs(frequencies - f))) for f in (EQUALISER[5], EQUALISER[8]))
    assert gain[peak] - gain[far] == pytest.approx(12, abs=1)
    for n, edge in ((0, 15.0), (9, 7980.0)):  # the shelves
        decibels = np.zeros(10)
        decibels[n] = -6.0
        shelf = signal.welch(equalise(noise, decibels, np.full(10, 0.7)), SAMPLE_RATE, nperseg=4096)[1]
        gain = 10 * np.log10(shelf / before)
        edge_bin, middle = (int(np.argmin(np.abs(frequencies - f))) for f in (edge, 1000.0))
        assert gain[edge_bin] - gain[middle] == pytest.approx(-6, abs=1.5)
