"""Tests of levels, mixtures, rooms, codecs, pitches, voices and missing bands."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal

from speechssl.audio import SAMPLE_RATE
from speechssl.signal import (
    EQUALISER,
    apply_codec,
    change_voice,
    draw_impulse,
    equalise,
    fit_length,
    measure_active_level,
    mix,
    reject_band,
    reverberate,
    shift_pitch,
)

SEEDS = st.integers(0, 2**32)
LENGTHS = st.integers(800, 20_000)
FRAME = 320  # samples of 20 ms
QUIET = 0.003  # RMS far below full scale, so that no mixture is scaled down


def steady(n=SAMPLE_RATE, seed=0, level=0.05):
    """Make noise of a constant level, so that its active level is its RMS level."""
    return (level * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


def rms_db(samples):
    return float(10 * np.log10(np.mean(np.square(samples, dtype=np.float64))))


@given(n=LENGTHS, m=LENGTHS, snr=st.floats(-20, 40), level=st.floats(1e-3, 2))
def test_a_mixture_has_the_snr(n, m, snr, level):
    speech, noise = steady(n, seed=1, level=QUIET), steady(m, seed=2, level=level)
    mixture = mix(speech, noise, snr)
    added = mixture.astype(np.float64) - speech
    assert rms_db(speech) - rms_db(added) == pytest.approx(snr, abs=0.1)


@given(speech=st.integers(3, 60), silence=st.integers(0, 100), snr=st.floats(-20, 40))
def test_an_snr_over_the_whole_signal_counts_its_silence(speech, silence, snr):
    """speech, silence: frames of 20 ms."""
    spoken = steady(FRAME * speech, seed=1, level=QUIET)
    samples = np.concatenate([spoken, np.zeros(FRAME * silence, np.float32)])
    noise = steady(len(samples), seed=2)
    added = mix(samples, noise, snr, over="signal").astype(np.float64) - samples
    assert rms_db(samples) - rms_db(added) == pytest.approx(snr, abs=0.01)
    added_to_active = mix(samples, noise, snr, over="active").astype(np.float64) - samples
    difference = 10 * np.log10((speech + silence) / speech)  # dB
    assert rms_db(added_to_active) - rms_db(added) == pytest.approx(difference, abs=0.01)


@given(n=LENGTHS, snr=st.floats(-30, -6), level=st.floats(0.4, 1))
def test_a_mixture_beyond_full_scale_is_scaled_and_not_clipped(n, snr, level):
    speech, noise = np.clip(steady(n, seed=1, level=level), -1, 1), steady(n, seed=2)
    mixture = mix(speech, noise, snr)
    assert mixture.dtype == np.float32
    assert len(mixture) == n
    assert np.abs(mixture).max() == 1.0
    # a mixture that was not clipped is a weighted sum of speech and noise
    columns = np.stack([speech, noise], 1).astype(np.float64)
    weights, residual, *_ = np.linalg.lstsq(columns, mixture, rcond=None)
    assert residual[0] < 1e-6 * n
    assert weights[0] < 1
    ratio = rms_db(weights[0] * speech) - rms_db(weights[1] * noise)
    assert ratio == pytest.approx(snr, abs=0.1)


@given(m=st.integers(1, 9000), n=st.integers(1, 30_000), seed=SEEDS)
def test_noise_is_fitted_without_gaps(m, n, seed):
    """A constant never falls at a join; equal-power fades raise it by 3 dB at most."""
    fitted = fit_length(np.ones(m), n, np.random.default_rng(seed))
    assert fitted.shape == (n,)
    assert fitted.min() > 1 - 1e-9
    assert fitted.max() < np.sqrt(2) + 1e-9


@given(seed=SEEDS, rt60=st.floats(0.1, 1.5), delay=st.integers(0, 500))
def test_reverberation_does_not_move_the_direct_path(seed, rt60, delay):
    click = 3000  # sample
    speech = np.zeros(8000, np.float32)
    speech[click] = 0.1
    impulse = np.concatenate([np.zeros(delay), draw_impulse(np.random.default_rng(seed), rt60)])
    wet = reverberate(speech, impulse)
    assert wet.shape == speech.shape
    assert np.argmax(np.abs(wet)) == click
    assert np.abs(wet[:click]).max() < 1e-3 * np.abs(wet).max()


def test_reverberation_keeps_the_level_and_reaches_into_pauses():
    speech = np.concatenate([steady(), np.zeros(SAMPLE_RATE // 2, np.float32)])
    wet = reverberate(speech, draw_impulse(np.random.default_rng(0), rt60=0.6))
    assert measure_active_level(wet) == pytest.approx(measure_active_level(speech), abs=0.01)
    start_of_pause = wet[SAMPLE_RATE : SAMPLE_RATE + SAMPLE_RATE // 10]
    assert rms_db(start_of_pause) > rms_db(speech) - 20


@pytest.mark.parametrize("rt60", [0.3, 0.6, 1.0])
def test_a_room_has_its_reverberation_time(rt60):
    """It is measured by Schroeder's backward integral from -5 to -25 dB, a third of 60 dB (ISO 3382
    T20), over ten rooms."""
    times = []
    for seed in range(10):
        impulse = draw_impulse(np.random.default_rng(seed), rt60)
        energy = np.cumsum(impulse[::-1] ** 2)[::-1]
        decay = 10 * np.log10(energy / energy[0])
        samples = np.argmax(decay < -25) - np.argmax(decay < -5)
        times.append(3 * int(samples) / SAMPLE_RATE)
    assert np.mean(times) == pytest.approx(rt60, rel=0.15)


@given(pauses=st.lists(st.integers(0, 30), min_size=3, max_size=3), gain=st.floats(0.01, 3))
def test_the_active_level_ignores_pauses_and_follows_the_gain(pauses, gain):
    """pauses: frames of 20 ms."""
    loud, soft = steady(6400, seed=1), 0.4 * steady(6400, seed=2)  # both are speech
    before, between, after = (1e-4 * steady(FRAME * pause, seed=3) for pause in pauses)
    samples = np.concatenate([before, loud, between, soft, after])
    expected = rms_db(np.concatenate([loud, soft])) + 20 * np.log10(gain)
    assert measure_active_level(gain * samples) == pytest.approx(expected, abs=1e-3)


# ---- codecs, pitch and missing bands


def low_noise(n):
    """Make noise below 2,500 Hz, where codecs keep most of speech."""
    low_pass = signal.butter(4, 2500, fs=SAMPLE_RATE, output="sos")
    noise = 0.1 * np.random.default_rng(0).standard_normal(n)
    return signal.sosfilt(low_pass, noise).astype(np.float32)


def measure_delay(delayed, samples):
    """Return the samples by which `delayed` comes after `samples`."""
    correlation = signal.correlate(delayed, samples, "full", "fft")
    return int(np.argmax(correlation)) - (len(samples) - 1)


@pytest.mark.parametrize(("codec", "kbps"), [("mp3", 16), ("mp3", 160), ("opus", 6), ("opus", 256)])
@pytest.mark.parametrize("n", [3000, 48_000])
def test_a_codec_delays_by_less_than_a_millisecond(codec, kbps, n):
    samples = low_noise(n)
    decoded = apply_codec(samples, codec, kbps)
    assert decoded.shape == (n,)
    assert abs(measure_delay(decoded, samples)) < 0.001 * SAMPLE_RATE


def test_pitch_moves_and_time_does_not():
    seconds = 2
    time = np.arange(seconds * SAMPLE_RATE) / SAMPLE_RATE
    tone_from_1_s = 0.3 * np.sin(2 * np.pi * 400 * time) * (time > 1)
    shifted = shift_pitch(tone_from_1_s, semitones=12)
    assert shifted.shape == time.shape
    assert shifted.dtype == np.float32
    strongest = np.argmax(np.abs(np.fft.rfft(shifted))) / seconds  # Hz
    assert strongest == pytest.approx(2 * 400, abs=10)
    start = np.argmax(np.abs(shifted) > 0.05) / SAMPLE_RATE
    assert start == pytest.approx(1.0, abs=0.03)


def test_a_band_is_rejected_without_delay():
    time = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    below, within = (0.3 * np.sin(2 * np.pi * hertz * time) for hertz in (400, 1500))
    filtered = reject_band(below + within, low=1000, high=2000)
    np.testing.assert_allclose(filtered[2000:-2000], below[2000:-2000], atol=0.01)


# ---- voices


def vowel(pitch):
    """Make a second of a buzz of this pitch (Hz) with resonances at three formants."""
    n = np.arange(SAMPLE_RATE)
    x = ((n * pitch / SAMPLE_RATE) % 1 < pitch / SAMPLE_RATE).astype(float)
    for formant in (700, 1220, 2600):  # Hz
        radius = np.exp(-np.pi * 80 / SAMPLE_RATE)  # of the pole: a bandwidth of 80 Hz
        angle = 2 * np.pi * formant / SAMPLE_RATE
        x = signal.lfilter([1], [1, -2 * radius * np.cos(angle), radius * radius], x)
    return np.asarray(0.3 * x / np.abs(x).max(), np.float32)


def measure_pitch(x):
    """Return the pitch in Hz, from 60 to 400, by autocorrelation."""
    middle = x[len(x) // 4 : -len(x) // 4].astype(float)
    autocorrelation = signal.correlate(middle, middle, "full", "fft")[len(middle) - 1 :]
    lags = np.arange(round(SAMPLE_RATE / 400), round(SAMPLE_RATE / 60))
    return SAMPLE_RATE / float(lags[np.argmax(autocorrelation[lags])])


def measure_first_formant(x):
    """Return the frequency in Hz of the lowest resonance of a linear prediction."""
    import librosa

    coefficients = librosa.lpc(signal.lfilter([1, -0.9], [1], x.astype(float)), order=14)
    frequencies, response = signal.freqz(1, coefficients, 4096, fs=SAMPLE_RATE)
    peaks, _ = signal.find_peaks(np.abs(response))
    return float(frequencies[peaks[0]])


@pytest.mark.slow
def test_another_voice_has_another_pitch_or_other_formants_at_the_same_times():
    pytest.importorskip("parselmouth", reason="needs speechssl[voices]")
    silence = np.zeros(8000, np.float32)
    speech = np.concatenate([silence, vowel(pitch=120), silence])
    spoken = slice(8000, -8000)
    formant = measure_first_formant(speech[spoken])
    higher = change_voice(speech, formants=1.0, pitch=1.5, pitch_range=1.0)
    assert higher.shape == speech.shape
    assert higher.dtype == np.float32
    assert measure_pitch(higher[spoken]) == pytest.approx(1.5 * 120, rel=0.05)
    assert measure_first_formant(higher[spoken]) == pytest.approx(formant, rel=0.1)
    assert np.abs(higher[:6000]).max() < 0.01
    assert np.abs(higher[-6000:]).max() < 0.01
    smaller = change_voice(speech, formants=1.25, pitch=1.0, pitch_range=1.0)
    assert measure_pitch(smaller[spoken]) == pytest.approx(120, rel=0.05)
    assert measure_first_formant(smaller[spoken]) == pytest.approx(1.25 * formant, rel=0.1)


def test_another_voice_is_the_same_every_time():
    """Praat draws random numbers where there is no pitch, and is seeded by the sound."""
    pytest.importorskip("parselmouth", reason="needs speechssl[voices]")
    hiss = np.random.default_rng(3).normal(0, 0.03, 6_000).astype(np.float32)
    speech = np.concatenate([vowel(pitch=120), hiss, vowel(pitch=130)])
    first, second = (
        change_voice(speech, formants=1.1, pitch=1.2, pitch_range=1.1) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, speech)


def test_samples_without_a_pitch_keep_their_voice():
    pytest.importorskip("parselmouth", reason="needs speechssl[voices]")
    for samples in (np.zeros(8000, np.float32), low_noise(50), steady(400, level=0.1)):
        changed = change_voice(samples, formants=1.2, pitch=1.5, pitch_range=1.2)
        np.testing.assert_array_equal(changed, samples)


BANDS = len(EQUALISER)


def measure_gain(samples, equalised, hertz, reference_hertz):
    """Return by how many dB more one frequency was raised than another."""
    frequencies, before = signal.welch(samples, SAMPLE_RATE, nperseg=4096)
    _, after = signal.welch(equalised, SAMPLE_RATE, nperseg=4096)
    gain = 10 * np.log10(after / before)
    place, reference = (np.argmin(np.abs(frequencies - f)) for f in (hertz, reference_hertz))
    return gain[place] - gain[reference]


def test_an_equaliser_of_no_gain_changes_nothing():
    noise = steady(4 * SAMPLE_RATE)
    flat = equalise(noise, decibels=np.zeros(BANDS), quality=np.full(BANDS, 3.0))
    np.testing.assert_allclose(flat, noise, atol=1e-5)


def test_a_peak_of_the_equaliser_has_its_gain():
    noise, decibels = steady(4 * SAMPLE_RATE), np.zeros(BANDS)
    decibels[5] = 12.0
    raised = equalise(noise, decibels, quality=np.full(BANDS, 3.0))
    gain = measure_gain(noise, raised, EQUALISER[5], reference_hertz=EQUALISER[8])
    assert gain == pytest.approx(12, abs=1)


@pytest.mark.parametrize(("band", "edge"), [(0, 15.0), (9, 7980.0)])  # edge in Hz
def test_a_shelf_of_the_equaliser_has_its_gain(band, edge):
    noise, decibels = steady(4 * SAMPLE_RATE), np.zeros(BANDS)
    decibels[band] = -6.0
    lowered = equalise(noise, decibels, quality=np.full(BANDS, 0.7))
    gain = measure_gain(noise, lowered, edge, reference_hertz=1000.0)
    assert gain == pytest.approx(-6, abs=1.5)


@pytest.mark.parametrize(("pitch", "pitch_range"), [(0.77, 1.46), (0.5, 1.5), (0.1, 1.5)])
def test_a_changed_pitch_never_falls_to_nothing(pitch, pitch_range):
    """Praat's "Change gender" ran for ever where the lowest pitch, moved away from the median, fell
    below 0 Hz."""
    pytest.importorskip("parselmouth", reason="needs speechssl[voices]")
    hertz = np.where(np.arange(32_000) < 8_000, 85.0, 335.0)  # the pitch, first low
    phase = 2 * np.pi * np.cumsum(hertz) / 16_000
    speech = np.float32(0.2) * sum(np.sin(k * phase) / k for k in range(1, 8)).astype(np.float32)
    changed = change_voice(speech, 0.9, pitch, pitch_range)
    assert len(changed) == len(speech)
