"""Levels, mixtures, rooms, codecs, pitch and missing bands."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal

from speechssl.audio import SAMPLE_RATE
from speechssl.signal import (
    EQUALISER,
    active_level,
    apply_codec,
    band_reject,
    change_voice,
    equalise,
    fit_length,
    mix,
    pitch_shift,
    reverberate,
    room_impulse,
)

SEEDS = st.integers(0, 2**32)
LENGTHS = st.integers(800, 20_000)


def steady(n=SAMPLE_RATE, seed=0, level=0.05):
    """Something as loud everywhere, so that its active level is its RMS level."""
    return (level * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


def rms_db(samples):
    return float(10 * np.log10(np.mean(np.square(samples, dtype=np.float64))))


@given(n=LENGTHS, m=LENGTHS, snr=st.floats(-20, 40), level=st.floats(1e-3, 2), seed=SEEDS)
def test_measured_snr_is_the_asked_one(n, m, snr, level, seed):
    speech = steady(n, 1, 0.003)  # far from full scale, so that nothing is scaled down
    added = (
        mix(speech, steady(m, 2, level), snr, np.random.default_rng(seed)).astype(np.float64)
        - speech
    )
    assert rms_db(speech) - rms_db(added) == pytest.approx(snr, abs=0.1)


@given(spoken=st.integers(3, 60), silent=st.integers(0, 100), snr=st.floats(-20, 40))
def test_an_snr_over_the_whole_signal_counts_its_silence(spoken, silent, snr):
    """spoken, silent: frames of 20 ms."""
    speech = np.concatenate([steady(320 * spoken, 1, 0.003), np.zeros(320 * silent, np.float32)])
    noise = steady(len(speech), 2)
    added = mix(speech, noise, snr, over="signal").astype(np.float64) - speech
    assert rms_db(speech) - rms_db(added) == pytest.approx(snr, abs=0.01)
    louder = mix(speech, noise, snr).astype(np.float64) - speech  # over active speech
    assert rms_db(louder) - rms_db(added) == pytest.approx(
        10 * np.log10(1 + silent / spoken), abs=0.01
    )


@given(n=LENGTHS, snr=st.floats(-30, -6), level=st.floats(0.4, 1))
def test_clip_guard_scales_the_whole(n, snr, level):
    speech, noise = np.clip(steady(n, 1, level), -1, 1), steady(n, 2)
    mixture = mix(speech, noise, snr)
    assert mixture.dtype == np.float32 and len(mixture) == n and np.abs(mixture).max() == 1.0
    weights, residual, *_ = np.linalg.lstsq(
        np.stack([speech, noise], 1).astype(np.float64), mixture, rcond=None
    )
    assert residual[0] < 1e-6 * n and weights[0] < 1  # still a sum of the two: nothing was clipped
    ratio = rms_db(weights[0] * speech) - rms_db(weights[1] * noise)
    assert ratio == pytest.approx(snr, abs=0.1)


@given(m=st.integers(1, 9000), n=st.integers(1, 30_000), seed=SEEDS)
def test_noise_is_fitted_without_gaps(m, n, seed):
    """A constant never falls at a join (equal-power fades raise it by 3 dB at most)."""
    fitted = fit_length(np.ones(m), n, np.random.default_rng(seed))
    assert fitted.shape == (n,) and fitted.min() > 1 - 1e-9 and fitted.max() < np.sqrt(2) + 1e-9


@given(seed=SEEDS, rt60=st.floats(0.1, 1.5), delay=st.integers(0, 500))
def test_reverberation_does_not_move_the_direct_path(seed, rt60, delay):
    speech = np.zeros(8000, np.float32)
    speech[3000] = 0.1
    impulse = np.concatenate([np.zeros(delay), room_impulse(np.random.default_rng(seed), rt60)])
    wet = reverberate(speech, impulse)
    assert wet.shape == speech.shape and int(np.argmax(np.abs(wet))) == 3000
    assert np.abs(wet[:3000]).max() < 1e-3 * np.abs(wet).max()  # nothing comes before it


def test_reverberation_keeps_the_level_and_reaches_into_pauses():
    speech = np.concatenate([steady(), np.zeros(SAMPLE_RATE // 2, np.float32)])
    wet = reverberate(speech, room_impulse(np.random.default_rng(0), 0.6))
    assert active_level(wet) == pytest.approx(active_level(speech), abs=0.01)
    assert rms_db(wet[16000:17600]) > rms_db(speech) - 20


@pytest.mark.parametrize("rt60", [0.3, 0.6, 1.0])
def test_room_decays_in_the_asked_time(rt60):
    """Schroeder's backward integral between -5 and -25 dB (ISO 3382 T20), over ten rooms."""
    measured = []
    for seed in range(10):
        energy = np.cumsum(room_impulse(np.random.default_rng(seed), rt60)[::-1] ** 2)[::-1]
        decay = 10 * np.log10(energy / energy[0])
        measured.append(3 * int(np.argmax(decay < -25) - np.argmax(decay < -5)) / SAMPLE_RATE)
    assert np.mean(measured) == pytest.approx(rt60, rel=0.15)


@given(pauses=st.lists(st.integers(0, 30), min_size=3, max_size=3), gain=st.floats(0.01, 3))
def test_level_ignores_pauses_and_follows_gain(pauses, gain):
    parts = [steady(6400, 1), 0.4 * steady(6400, 2)]  # what is softer is speech, too
    gaps = [1e-4 * steady(320 * p, 3) for p in pauses]
    samples = np.concatenate([gaps[0], parts[0], gaps[1], parts[1], gaps[2]])
    assert active_level(gain * samples) == pytest.approx(
        rms_db(np.concatenate(parts)) + 20 * np.log10(gain), abs=1e-3
    )


# ---- codecs, pitch and missing bands


def speechlike(n, seed=0):
    low = signal.butter(4, 2500, fs=SAMPLE_RATE, output="sos")
    return signal.sosfilt(low, 0.1 * np.random.default_rng(seed).standard_normal(n)).astype(
        np.float32
    )


def lag(one, two):
    """Samples by which one comes after two."""
    return int(np.argmax(signal.correlate(one, two, "full", "fft"))) - (len(two) - 1)


@pytest.mark.parametrize(("codec", "kbps"), [("mp3", 16), ("mp3", 160), ("opus", 6), ("opus", 256)])
@pytest.mark.parametrize("n", [3000, 48_000])
def test_timing_is_kept_to_a_millisecond(codec, kbps, n):
    samples = speechlike(n)
    decoded = apply_codec(samples, codec, kbps)
    assert decoded.shape == (n,)
    assert abs(lag(decoded, samples)) < 0.001 * SAMPLE_RATE


def test_pitch_moves_and_time_does_not():
    time = np.arange(2 * SAMPLE_RATE) / SAMPLE_RATE
    shifted = pitch_shift(0.3 * np.sin(2 * np.pi * 400 * time) * (time > 1), 12)
    assert shifted.shape == time.shape and shifted.dtype == np.float32
    assert np.argmax(np.abs(np.fft.rfft(shifted))) / 2 == pytest.approx(800, abs=10)
    assert np.argmax(np.abs(shifted) > 0.05) / SAMPLE_RATE == pytest.approx(1.0, abs=0.03)


def test_band_is_rejected_without_delay():
    time = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    kept, removed = (0.3 * np.sin(2 * np.pi * f * time) for f in (400, 1500))
    filtered = band_reject(kept + removed, 1000, 2000)
    np.testing.assert_allclose(filtered[2000:-2000], kept[2000:-2000], atol=0.01)


def vowel(pitch, formants=(700, 1220, 2600), seconds=1.0):
    """A buzz of this pitch (Hz) through resonances at these formants (Hz)."""
    n = np.arange(round(seconds * SAMPLE_RATE))
    x = ((n * pitch / SAMPLE_RATE) % 1 < pitch / SAMPLE_RATE).astype(float)
    for f in formants:
        r = np.exp(-np.pi * 80 / SAMPLE_RATE)
        x = signal.lfilter([1], [1, -2 * r * np.cos(2 * np.pi * f / SAMPLE_RATE), r * r], x)
    return np.asarray(0.3 * x / np.abs(x).max(), np.float32)


def pitch_of(x):
    middle = x[len(x) // 4 : -len(x) // 4].astype(float)
    found = signal.correlate(middle, middle, "full", "fft")[len(middle) - 1 :]
    lags = np.arange(round(SAMPLE_RATE / 400), round(SAMPLE_RATE / 60))
    return SAMPLE_RATE / float(lags[np.argmax(found[lags])])


def first_formant(x):
    """Hz of the strongest resonance of a linear prediction."""
    import librosa

    a = librosa.lpc(signal.lfilter([1, -0.9], [1], x.astype(float)), order=14)
    found, response = signal.freqz(1, a, 4096, fs=SAMPLE_RATE)
    peaks, _ = signal.find_peaks(np.abs(response))
    return float(found[peaks[0]])


@pytest.mark.slow
def test_another_voice_has_other_formants_and_another_pitch_at_the_same_times():
    pytest.importorskip("parselmouth", reason="needs speechssl[voices]")
    speech = np.concatenate([np.zeros(8000, np.float32), vowel(120), np.zeros(8000, np.float32)])
    higher = change_voice(speech, 1.0, 1.5, 1.0)
    assert higher.shape == speech.shape and higher.dtype == np.float32
    assert pitch_of(higher[8000:-8000]) == pytest.approx(180, rel=0.05)
    assert first_formant(higher[8000:-8000]) == pytest.approx(
        first_formant(speech[8000:-8000]), rel=0.1
    )
    smaller = change_voice(speech, 1.25, 1.0, 1.0)
    assert pitch_of(smaller[8000:-8000]) == pytest.approx(120, rel=0.05)
    assert first_formant(smaller[8000:-8000]) == pytest.approx(
        1.25 * first_formant(speech[8000:-8000]), rel=0.1
    )
    assert np.abs(higher[:6000]).max() < 0.01 and np.abs(higher[-6000:]).max() < 0.01


def test_another_voice_is_the_same_every_time():
    """Praat draws where it repeats the voiceless parts, by a seed of its own."""
    pytest.importorskip("parselmouth", reason="needs speechssl[voices]")
    hiss = np.random.default_rng(3).normal(0, 0.03, 6_000).astype(np.float32)
    speech = np.concatenate([vowel(120), hiss, vowel(130)])
    first, second = (change_voice(speech, 1.1, 1.2, 1.1) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, speech)


def test_what_has_no_pitch_keeps_its_voice():
    pytest.importorskip("parselmouth", reason="needs speechssl[voices]")
    for samples in (np.zeros(8000, np.float32), speechlike(50), steady(400, level=0.1)):
        np.testing.assert_array_equal(change_voice(samples, 1.2, 1.5, 1.2), samples)


def test_the_equaliser_has_its_gains_where_it_should():
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
        shelf = signal.welch(
            equalise(noise, decibels, np.full(10, 0.7)), SAMPLE_RATE, nperseg=4096
        )[1]
        gain = 10 * np.log10(shelf / before)
        edge_bin, middle = (int(np.argmin(np.abs(frequencies - f))) for f in (edge, 1000.0))
        assert gain[edge_bin] - gain[middle] == pytest.approx(-6, abs=1.5)


@pytest.mark.parametrize(("pitch", "pitch_range"), [(0.77, 1.46), (0.5, 1.5), (0.1, 1.5)])
def test_a_changed_pitch_never_falls_to_nothing(pitch, pitch_range):
    """Praat's "Change gender" ran for ever where the lowest pitch, moved away from the median, fell
    below 0 Hz."""
    pytest.importorskip("parselmouth", reason="needs speechssl[voices]")
    hertz = np.where(np.arange(32_000) < 8_000, 85.0, 335.0)
    phase = 2 * np.pi * np.cumsum(hertz) / 16_000
    speech = np.float32(0.2) * sum(np.sin(k * phase) / k for k in range(1, 8)).astype(np.float32)
    assert len(change_voice(speech, 0.9, pitch, pitch_range)) == len(speech)
