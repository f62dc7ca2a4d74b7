"""Levels, noise under speech at an SNR, and simulated rooms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.audio import SAMPLE_RATE
from speechssl.signal import active_level, fit_length, generator, mix, reverberate, room_impulse

PROPERTY = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 2**32)
LENGTHS = st.integers(800, 20_000)


def steady(n: int = SAMPLE_RATE, seed: int = 0, level: float = 0.05) -> np.ndarray:
    """Something as loud everywhere, so that its active level is its RMS level."""
    return (level * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


def rms_db(samples: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(np.square(samples, dtype=np.float64))))


@PROPERTY
@given(n=LENGTHS, m=LENGTHS, snr=st.floats(-20, 40), level=st.floats(1e-3, 2), seed=SEEDS)
def test_measured_snr_is_the_asked_one(n: int, m: int, snr: float, level: float, seed: int) -> None:
    speech = steady(n, 1, 0.003)  # far from full scale, so that nothing is scaled down
    added = mix(speech, steady(m, 2, level), snr, np.random.default_rng(seed)).astype(np.float64) - speech
    assert rms_db(speech) - rms_db(added) == pytest.approx(snr, abs=0.1)


def test_pauses_do_not_change_the_noise() -> None:
    speech, noise = steady(16000, 1, 0.01), steady(48000, 2)
    paused = np.concatenate([speech, np.zeros(32000, np.float32)])
    added = [mix(s, noise[: len(s)], 5.0) - s for s in (speech, paused)]
    assert rms_db(added[0]) == pytest.approx(rms_db(added[1]), abs=0.1)


@PROPERTY
@given(spoken=st.integers(3, 60), silent=st.integers(0, 100), snr=st.floats(-20, 40))
def test_an_snr_over_the_whole_signal_counts_its_silence(spoken: int, silent: int, snr: float) -> None:
    """spoken, silent: frames of 20 ms."""
    speech = np.concatenate([steady(320 * spoken, 1, 0.003), np.zeros(320 * silent, np.float32)])
    noise = steady(len(speech), 2)
    added = mix(speech, noise, snr, over="signal").astype(np.float64) - speech
    assert rms_db(speech) - rms_db(added) == pytest.approx(snr, abs=0.01)
    louder = mix(speech, noise, snr).astype(np.float64) - speech  # over active speech
    assert rms_db(louder) - rms_db(added) == pytest.approx(10 * np.log10(1 + silent / spoken), abs=0.01)


def test_without_silence_both_snrs_are_the_same() -> None:
    speech, noise = steady(16_000, 1, 0.003), steady(16_000, 2)
    np.testing.assert_array_equal(mix(speech, noise, 5.0), mix(speech, noise, 5.0, over="signal"))
    with pytest.raises(ValueError, match="over active or signal, not over 'speech'"):
        mix(speech, noise, 5.0, over="speech")


@PROPERTY
@given(n=LENGTHS, snr=st.floats(-30, -6), level=st.floats(0.4, 1))
def test_clip_guard_scales_the_whole(n: int, snr: float, level: float) -> None:
    speech, noise = np.clip(steady(n, 1, level), -1, 1), steady(n, 2)
    mixture = mix(speech, noise, snr)
    assert mixture.dtype == np.float32 and len(mixture) == n and np.abs(mixture).max() == 1.0
    weights, residual, *_ = np.linalg.lstsq(np.stack([speech, noise], 1).astype(np.float64), mixture, rcond=None)
    assert residual[0] < 1e-6 * n and weights[0] < 1  # still a sum of the two: nothing was clipped
    ratio = rms_db(weights[0] * speech) - rms_db(weights[1] * noise)
    assert ratio == pytest.approx(snr, abs=0.1)


@pytest.mark.parametrize(
    ("speech", "noise", "snr"),
    [(0, 1, 5.0), (1, 0, 5.0), (1, 1, float("nan")), (1, 1, float("inf"))],
)
def test_no_snr_to_be_had(speech: int, noise: int, snr: float) -> None:
    with pytest.raises(ValueError, match="SNR"):
        mix(speech * steady(), noise * steady(seed=1), snr)


@PROPERTY
@given(m=st.integers(1, 9000), n=st.integers(1, 30_000), seed=SEEDS)
def test_noise_is_fitted_without_gaps(m: int, n: int, seed: int) -> None:
    """A constant never falls at a join (equal-power fades raise it by 3 dB at most)."""
    fitted = fit_length(np.ones(m), n, np.random.default_rng(seed))
    assert fitted.shape == (n,) and fitted.min() > 1 - 1e-9 and fitted.max() < np.sqrt(2) + 1e-9


def test_joins_do_not_click() -> None:
    ramp = np.linspace(-1, 1, 4000)  # its two ends are as far apart as can be
    assert np.abs(np.diff(fit_length(ramp, 40_000))).max() < 0.01


def test_noise_is_repeated_not_stretched() -> None:
    time = np.arange(4000) / SAMPLE_RATE
    fitted = fit_length(np.sin(2 * np.pi * 1000 * time), 64_000)
    assert np.argmax(np.abs(np.fft.rfft(fitted))) == 4000  # 1000 Hz over 4 s


def test_long_noise_is_cropped_at_changing_places() -> None:
    noise = np.arange(100_000.0)
    starts = {float(fit_length(noise, 1000, generator(0, str(i)))[0]) for i in range(20)}
    assert len(starts) == 20 and fit_length(noise, 1000)[0] == 0


@PROPERTY
@given(seed=SEEDS, rt60=st.floats(0.1, 1.5), delay=st.integers(0, 500))
def test_reverberation_does_not_move_the_direct_path(seed: int, rt60: float, delay: int) -> None:
    speech = np.zeros(8000, np.float32)
    speech[3000] = 0.1
    impulse = np.concatenate([np.zeros(delay), room_impulse(np.random.default_rng(seed), rt60)])
    wet = reverberate(speech, impulse)
    assert wet.shape == speech.shape and int(np.argmax(np.abs(wet))) == 3000
    assert np.abs(wet[:3000]).max() < 1e-3 * np.abs(wet).max()  # nothing comes before it


def test_reverberation_keeps_the_level_and_reaches_into_pauses() -> None:
    speech = np.concatenate([steady(), np.zeros(SAMPLE_RATE // 2, np.float32)])
    wet = reverberate(speech, room_impulse(np.random.default_rng(0), 0.6))
    assert active_level(wet) == pytest.approx(active_level(speech), abs=0.01)
    assert rms_db(wet[16000:17600]) > rms_db(speech) - 20


@pytest.mark.parametrize("rt60", [0.3, 0.6, 1.0])
def test_room_decays_in_the_asked_time(rt60: float) -> None:
    """Schroeder's backward integral between -5 and -25 dB (ISO 3382 T20), over ten rooms."""
    measured = []
    for seed in range(10):
        energy = np.cumsum(room_impulse(np.random.default_rng(seed), rt60)[::-1] ** 2)[::-1]
        decay = 10 * np.log10(energy / energy[0])
        measured.append(3 * int(np.argmax(decay < -25) - np.argmax(decay < -5)) / SAMPLE_RATE)
    assert np.mean(measured) == pytest.approx(rt60, rel=0.15)
    assert len({round(m, 6) for m in measured}) > 5  # the rooms differ


@pytest.mark.parametrize(("rt60", "distance"), [(0.0, 1.0), (9.0, 1.0), (float("nan"), 1.0), (0.5, 0.0), (0.5, 4.0)])
def test_impossible_room(rt60: float, distance: float) -> None:
    with pytest.raises(ValueError, match="must lie in"):
        room_impulse(np.random.default_rng(0), rt60, distance)


@pytest.mark.parametrize("impulse", [np.zeros(0), np.zeros(10)])
def test_empty_impulse(impulse: np.ndarray) -> None:
    with pytest.raises(ValueError, match="empty or zero"):
        reverberate(steady(), impulse)


@PROPERTY
@given(n=st.integers(1, 5000), seed=SEEDS)
def test_level_without_pauses_is_the_rms_level(n: int, seed: int) -> None:
    samples = np.sign(steady(n, seed)) * 0.1
    assert active_level(samples) == pytest.approx(rms_db(samples), abs=1e-6)


@PROPERTY
@given(pauses=st.lists(st.integers(0, 30), min_size=3, max_size=3), gain=st.floats(0.01, 3))
def test_level_ignores_pauses_and_follows_gain(pauses: list[int], gain: float) -> None:
    parts = [steady(6400, 1), steady(6400, 2)]
    gaps = [1e-4 * steady(320 * p, 3) for p in pauses]
    samples = np.concatenate([gaps[0], parts[0], gaps[1], parts[1], gaps[2]])
    assert active_level(gain * samples) == pytest.approx(rms_db(np.concatenate(parts)) + 20 * np.log10(gain), abs=1e-3)


def test_level_of_silence() -> None:
    assert active_level(np.zeros(1000)) == -np.inf
    with pytest.raises(ValueError, match="no samples"):
        active_level(np.zeros(0))
