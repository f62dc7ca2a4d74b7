"""Generate noise: families of sounds, and clips that mix some of them.

A family is a function of a number of samples n (at 16 kHz) and a random generator. It returns a
sound (n,) of any level. The numbers in its code are ranges from which it draws its parameters, in
Hz, seconds, dB, octaves or events a second, so that no two sounds are alike.

There are three sets, without a family in common. SEEN is for training, where no MUSAN is given (the
"stand-in"); DEV is for choosing settings; HELD_OUT is for tests in noise that is new to an encoder.
DEV has no steady noise (but for a faint background), motors with a tone, struck objects, clicks,
fixed tones, music or voices. HELD_OUT comes nearer to SEEN: typing clicks, a printer has a motor,
a crowd murmurs. But no family is in two sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy import fft, signal

from speechssl.audio import SAMPLE_RATE, to_int16
from speechssl.signal import draw_impulse, make_generator

# (n samples, generator) -> a sound (n,) of any level
Family = Callable[[int, Generator], np.ndarray]
MIN_HZ = 20.0  # lower frequencies are of no use in 16 kHz speech audio
MAX_HZ = 7600.0  # highest frequency of a tone: it stays below half the sample rate
# RMS of a generated clip, full scale 1: far above the steps of 16 bits, far below clipping
CLIP_RMS = 0.05
# Peaks are compressed towards this multiple of the RMS; otherwise a single loud click would leave
# the rest of a clip inaudible.
CREST = 12.0
VERSION = 3  # raised when the generated sounds change
# Clips of the stand-in: 50 minutes in all, about as varied as the 900 clips of MUSAN's noise.
CLIPS = 300
SECONDS = 10.0  # length of a clip of the stand-in


def generate_clip(families: Sequence[Family], rng: Generator, n: int) -> np.ndarray:
    """Generate noise (n,) int16: one to three sounds, half of the time in a room. The second and
    the third are up to 15 dB below the first, and come and go."""
    weights = np.array([WEIGHTS.get(family, 1.0) for family in families])
    total = np.zeros(n)
    for number in range(rng.choice([1, 2, 3], p=[0.4, 0.4, 0.2])):
        family = families[rng.choice(len(families), p=weights / weights.sum())]
        sound = normalise(family(n, rng)) * to_gain(-rng.uniform(0, 15) * (number > 0))
        if number > 0 or rng.random() < 0.2:  # the first sound mostly goes on without a pause
            sound = sound * draw_gate(n, rng, rng.uniform(0.5, 5), rng.uniform(0.2, 3))
        total += sound
    if rng.random() < 0.5:
        room = draw_impulse(rng, rng.uniform(0.15, 0.9), rng.uniform(0.3, 1.7))
        total = signal.oaconvolve(total, room)[:n]
    compressed = CREST * np.tanh(normalise(total) / CREST)
    return to_int16(np.clip(CLIP_RMS * normalise(compressed), -1, 1))


def generate_clips(seed: int) -> Iterator[np.ndarray]:
    """Generate the stand-in for MUSAN: clips (n,) int16, each of which depends on the seed and its
    number alone."""
    for number in range(CLIPS):
        rng = make_generator(seed, "stand-in", str(number))
        yield generate_clip(SEEN, rng, round(SECONDS * SAMPLE_RATE))


# ---- helpers of the families


def normalise(sound: np.ndarray) -> np.ndarray:
    """Scale a sound (n,) to power 1; silence stays as it is."""
    power = float(np.mean(np.square(sound)))
    return sound / np.sqrt(power) if power > 0 else sound


def blend(sound: np.ndarray, share: float, other: np.ndarray) -> np.ndarray:
    """Scale two sounds (n,) to power 1, and add the other, times the amplitude `share`, to the
    first."""
    return normalise(sound) + share * normalise(other)


def add_faint_bed(sound: np.ndarray, rng: Generator, share: float) -> np.ndarray:
    """Add faint noise to a sound (n,), whose RMS is this share of the sound's peak, so that no
    pause is silent."""
    bed = share * normalise(tilt_noise(len(sound), rng, -3, 0))
    return sound + bed * max(float(np.abs(sound).max()), 1e-3)


def to_gain(decibels: float | np.ndarray) -> float | np.ndarray:
    """Return the amplitude factor of a level in dB."""
    return 10 ** (decibels / 20)


def draw_pitch(rng: Generator, low: float, high: float, count: int | None = None) -> Any:
    """Draw a frequency in Hz, or an array of them, uniformly in octaves."""
    return np.exp2(rng.uniform(np.log2(low), np.log2(high), count))


def draw_drifting(
    n: int, rng: Generator, low: float, high: float, depth: float, rate: float
) -> np.ndarray:
    """Draw a frequency (n,) in Hz that begins anywhere between two frequencies and drifts by about
    `depth` octaves. rate: as in `wander`."""
    return rng.uniform(low, high) * 2 ** (depth * wander(n, rng, rate))


def draw_rate(rng: Generator, low: float, high: float) -> float:
    """Draw a number of events a second, uniformly on a log scale."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def draw_length(rng: Generator, low: float, high: float) -> int:
    """Draw a length in samples between two lengths in seconds."""
    return round(rng.uniform(low, high) * SAMPLE_RATE)


def draw_times(n: int, rng: Generator, rate: float) -> np.ndarray:
    """Draw the times of events as numbers of samples, in order: about `rate` events a second, at
    least one in all."""
    return np.sort(rng.integers(0, n, max(int(rng.poisson(rate * n / SAMPLE_RATE)), 1)))


def filter_noise(n: int, rng: Generator, weight: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Generate filtered Gaussian noise of n samples or a few more, a length at which the FFT is
    fast. weight: a function, frequency in Hz -> amplitude density."""
    size = fft.next_fast_len(max(n, 2), real=True)
    weights = weight(fft.rfftfreq(size, 1 / SAMPLE_RATE))
    return fft.irfft(fft.rfft(rng.standard_normal(size)) * weights, size)


def generate_spectrum(
    n: int, rng: Generator, weight: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Generate filtered Gaussian noise (n,) of power about 1. weight: a function, frequency in Hz
    -> amplitude density.

    There is no noise below MIN_HZ, where 1/f would put more inaudible power into a long recording
    than into a short one.
    """

    def audible(frequency: np.ndarray) -> np.ndarray:
        return np.where(frequency >= MIN_HZ, weight(np.maximum(frequency, MIN_HZ)), 0)

    noise = filter_noise(n, rng, audible)
    return noise[:n] / np.sqrt(np.mean(noise**2))


def shape_noise(n: int, rng: Generator, gain_db: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """Generate Gaussian noise (n,) whose power density is `gain_db` (dB) at the `frequencies` (Hz,
    rising). Between them, the dB are interpolated linearly in octaves."""

    def weight(frequency: np.ndarray) -> np.ndarray:
        octaves = np.log2(np.maximum(frequency, MIN_HZ))
        return 10 ** (np.interp(octaves, np.log2(frequencies), gain_db) / 20)

    return filter_noise(n, rng, weight)[:n]


def tilt_noise(
    n: int,
    rng: Generator,
    slope: float,
    ripple: float = 0.0,
    band: tuple[float, float] = (MIN_HZ, 8000.0),
) -> np.ndarray:
    """Generate noise (n,) with a slope in dB an octave, and a random smooth ripple in dB. Outside
    the band (Hz) it falls by 30 dB an octave."""
    low, high = band
    frequencies = np.geomspace(MIN_HZ, SAMPLE_RATE / 2, 40)
    level = slope * np.log2(frequencies / 1000)
    if ripple:
        level = level + np.interp(np.linspace(0, 11, 40), np.arange(12), rng.normal(0, ripple, 12))
    outside = np.maximum(np.log2(low / frequencies), 0) + np.maximum(np.log2(frequencies / high), 0)
    return shape_noise(n, rng, level - 30 * outside, frequencies)


def wander(n: int, rng: Generator, rate: float) -> np.ndarray:
    """Draw a slow random curve (n,) of mean about 0 and variance about 1: straight lines between
    `rate` random values a second."""
    knots = rng.standard_normal(max(int(n / SAMPLE_RATE * rate), 1) + 4)
    smooth = signal.convolve(knots, [0.3, 0.9, 0.3], "same")
    return np.interp(np.linspace(1, len(knots) - 2, n), np.arange(len(knots)), smooth)


def to_phase(frequency: np.ndarray) -> np.ndarray:
    """Return the phase (n,) in radians of an oscillator with a changing frequency (n,) in Hz."""
    return 2 * np.pi * np.cumsum(frequency) / SAMPLE_RATE


def sum_harmonics(f0: np.ndarray, heights: np.ndarray, rng: Generator) -> np.ndarray:
    """Return the sum (n,) of sines at the multiples of the frequency f0 (n,) that lie below MAX_HZ,
    with random phases. heights: the amplitudes of the sines, that of f0 first."""
    rotation = np.exp(1j * to_phase(f0)).astype(np.complex64)
    power = np.ones_like(rotation)  # rotation ** number is the harmonic of this number
    total = np.zeros(len(f0))
    for number, height in enumerate(heights, 1):
        if number * f0.max() > MAX_HZ:
            break
        power *= rotation
        start = np.complex64(height * np.exp(1j * rng.uniform(0, 2 * np.pi)))
        total += (start * power).imag
    return total


def resonate(frequency: np.ndarray, centres: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Return the amplitude response of resonances at each frequency (F,). centres, widths: (R,)
    of the resonances, in Hz. The highest amplitude is about 1."""
    distances = (frequency[:, None] - centres) / (widths / 2)
    return np.max(1 / np.sqrt(1 + distances**2), axis=1)


def repeat_at(n: int, times: np.ndarray, heights: np.ndarray, hit: np.ndarray) -> np.ndarray:
    """Add the sound `hit` (m,) at every time, a number of samples, with the amplitude in `heights`.
    Hits may overlap. Returns (n,)."""
    if len(times) * len(hit) < 20 * n:  # then adding is faster than a convolution
        total = np.zeros(n + len(hit))
        for time, height in zip(times, heights, strict=True):
            total[time : time + len(hit)] += height * hit
        return total[:n]
    return signal.fftconvolve(np.bincount(times, heights, minlength=n)[:n], hit)[:n]


def strike_object(rng: Generator, centre: float, modes: int, decay: float) -> np.ndarray:
    """Generate the sound (m,) of a struck object: decaying sines at unrelated frequencies around
    `centre` Hz. modes: their number; decay: seconds in which they fall by 60 dB."""
    frequency = np.minimum(centre * 2 ** rng.uniform(-1, 2, modes), MAX_HZ)
    time = np.arange(max(round(decay * SAMPLE_RATE), 64))[:, None] / SAMPLE_RATE
    decays = decay * (centre / np.maximum(frequency, centre)) ** rng.uniform(0.2, 1)
    sines = np.sin(2 * np.pi * frequency * time + rng.uniform(0, 2 * np.pi, modes))
    # exp(-6.9) is -60 dB
    return (sines * np.exp(-6.9 * time / decays)) @ rng.exponential(1, modes)


def make_envelope(n: int, attack: float, decay: float) -> np.ndarray:
    """Make an envelope (n,) that rises in `attack` s and falls by 60 dB in `decay` s."""
    time = np.arange(n) / SAMPLE_RATE
    fall = np.exp(-6.9 * np.maximum(time - attack, 0) / decay)  # exp(-6.9) is -60 dB
    return np.minimum(time / attack, 1) * fall


def draw_gate(n: int, rng: Generator, on: float, off: float) -> np.ndarray:
    """Draw a gate (n,) between 0 (off) and 1 (on) with ramps of 60 ms. A state lasts 0.1 s and a
    random time, whose mean is `on` or `off` seconds."""
    gate = np.zeros(n)
    start = 0
    is_on = bool(rng.random() < on / (on + off))
    while start < n:
        length = round((0.1 + rng.exponential(on if is_on else off)) * SAMPLE_RATE)
        gate[start : start + length] = is_on
        start += length
        is_on = not is_on
    ramp = np.hanning(round(0.06 * SAMPLE_RATE))
    return signal.oaconvolve(gate, ramp / ramp.sum(), "same")


# ---- SEEN: sounds of training


def make_coloured(n: int, rng: Generator) -> np.ndarray:
    """Generate steady noise (n,): ventilation, a far street, a tap, hiss. It has a tilt from -12 to
    +6 dB an octave, a rough spectrum, and sometimes only a band."""
    low, high = np.sort(draw_pitch(rng, 60, 7500, 2))
    band = (low, max(high, 2 * low)) if rng.random() < 0.3 else (20.0, 8000.0)
    return tilt_noise(n, rng, rng.uniform(-12, 6), rng.uniform(0, 8), band)


def make_gusts(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of wind, surf, passing cars, rustling: noise that swells, its highs
    more than its lows."""
    rate = draw_rate(rng, 0.2, 8)
    depth = rng.uniform(3, 12)  # dB
    swell = wander(n, rng, rate)
    lows = normalise(tilt_noise(n, rng, rng.uniform(-9, 0), 4))
    highs = normalise(tilt_noise(n, rng, rng.uniform(-9, 0), 4))
    share = rng.uniform(0, 1)
    return lows * to_gain(depth * swell) + share * highs * to_gain(1.5 * depth * swell)


def make_hum(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of mains, transformers, refrigerators: a steady low tone with
    harmonics, and some noise."""
    f0 = rng.uniform(40, 130) * (1 + 0.003 * wander(n, rng, 0.5))
    heights = rng.exponential(1, 40) * np.arange(1, 41.0) ** -rng.uniform(0.5, 2)
    tone = sum_harmonics(f0, heights, rng)
    return blend(tone, rng.uniform(0.05, 0.7), tilt_noise(n, rng, rng.uniform(-9, 0), 4))


def make_engine(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of motors, mixers, vacuum cleaners, drills: a drifting harmonic
    series through resonances, and noise that turns with it."""
    pitch = draw_pitch(rng, 18, 350)
    drift = rng.uniform(0, 0.25) * wander(n, rng, rng.uniform(0.2, 2))  # octaves
    f0 = pitch * 2**drift
    numbers = np.arange(1, 61) * float(f0.mean())
    body = resonate(numbers, rng.uniform(100, 4500, 5), rng.uniform(80, 900, 5))
    tone = sum_harmonics(f0, body * rng.exponential(1, 60) * numbers ** -rng.uniform(0, 1), rng)
    turning = 1 + rng.uniform(0, 0.9) * np.sin(to_phase(f0 / rng.integers(1, 4)))
    share = rng.uniform(0.1, 1.5)
    return blend(tone, share, tilt_noise(n, rng, rng.uniform(-8, 3), 5) * turning)


def make_impacts(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of dishes, cutlery, knocks, doors, tools: struck objects that ring,
    at random times, singly and in flurries."""
    total = np.zeros(n)
    for _ in range(rng.integers(2, 7)):
        times = draw_times(n, rng, draw_rate(rng, 0.3, 6))
        flurry = np.repeat(times, rng.integers(1, 6)) + rng.integers(0, round(0.15 * SAMPLE_RATE))
        times = np.minimum(flurry + rng.integers(0, 2000, len(flurry)), n - 1)
        centre = draw_pitch(rng, 120, 4000)
        modes = int(rng.integers(4, 24))
        hit = strike_object(rng, centre, modes, decay=rng.uniform(0.05, 1.2))
        click = rng.standard_normal(len(hit)) * np.exp(-np.arange(len(hit)) / rng.uniform(20, 400))
        heights = rng.exponential(1, len(times))
        total += repeat_at(n, times, heights, blend(hit, rng.uniform(0, 1), click))
    return total


def make_footsteps(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of steps, hammering, chopping: dull blows at a pace that wavers a
    little."""
    period = draw_length(rng, 0.25, 1.2)
    times = np.arange(rng.integers(period), n, period)
    times = np.clip(times + rng.normal(0, 0.03 * period, len(times)).astype(int), 0, n - 1)
    thud = strike_object(rng, rng.uniform(60, 500), modes=10, decay=rng.uniform(0.05, 0.3))
    scuff = tilt_noise(len(thud), rng, rng.uniform(-6, 3), 4)
    scuff *= make_envelope(len(thud), 0.005, rng.uniform(0.03, 0.2))
    heights = rng.uniform(0.5, 1.5, len(times))
    return repeat_at(n, times, heights, blend(thud, rng.uniform(0, 2), scuff))


def make_scrapes(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of chairs, paper, cloth, brushes, sizzling: bursts of banded noise
    with a rough surface."""
    total = np.zeros(n)
    for _ in range(rng.integers(1, 4)):
        centre = draw_pitch(rng, 300, 6500)
        low, high = centre / rng.uniform(1.2, 3), centre * rng.uniform(1.2, 3)
        noise = tilt_noise(n, rng, 0, 5, (low, min(high, 8000)))
        grain = np.abs(wander(n, rng, draw_rate(rng, 15, 200))) ** rng.uniform(0.5, 3)
        bursts = draw_gate(n, rng, rng.uniform(0.1, 1.5), rng.uniform(0.1, 2))
        total += normalise(noise * grain) * bursts
    return total


def make_crackle(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of fire, frying, plastic, a bad contact: many short clicks of all
    sizes, over a bed of noise."""
    times = draw_times(n, rng, draw_rate(rng, 20, 600))
    click = rng.standard_normal(200) * np.exp(-np.arange(200) / rng.uniform(2, 40))
    heights = rng.pareto(rng.uniform(1.2, 3), len(times)).clip(0, 50)
    heights *= rng.choice([-1, 1], len(times))
    clicks = repeat_at(n, times, heights, click)
    return blend(clicks, rng.uniform(0.1, 1), tilt_noise(n, rng, rng.uniform(-6, 3), 4))


def make_beeps(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of alarms, timers, telephones: tones of a fixed pitch in a fixed
    pattern."""
    tones = draw_pitch(rng, 300, 4000, int(rng.integers(1, 4)))
    step = draw_length(rng, 0.05, 0.6)
    pattern = rng.integers(-1, len(tones), rng.integers(2, 9))  # -1: a rest
    pattern[0] = 0
    note = np.resize(np.repeat(pattern, step), n)
    frequency = np.where(note >= 0, tones[note], tones[0])
    gate = np.convolve(note >= 0, np.ones(64) / 64, "same")
    heights = rng.uniform(0, 1, 5) * np.array([1, 0.5, 0.5, 0.3, 0.2]) + [1, 0, 0, 0, 0]
    return sum_harmonics(frequency, heights, rng) * gate


def make_music(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of chords and a melody in a key and a tempo, plucked or held,
    sometimes with a beat."""
    beat = round(60 / rng.uniform(60, 180) * SAMPLE_RATE)
    scale = np.array([0, 2, 4, 5, 7, 9, 11] if rng.random() < 0.5 else [0, 2, 3, 5, 7, 8, 10])
    root = rng.uniform(90, 220)  # Hz
    pluck = rng.uniform(0.2, 3)  # seconds of decay
    heights = np.arange(1, 13.0) ** -rng.uniform(0.8, 2.5) * rng.uniform(0.2, 1, 12)
    total = np.zeros(n + 4 * beat)
    for start in range(0, n, beat):
        if start % (4 * beat):  # a note of the melody
            degrees = np.array([rng.integers(7) + 7])
            length = beat
        else:  # a chord, which lasts for the bar
            degrees = rng.integers(7) + np.array([0, 2, 4])
            length = 4 * beat
        if rng.random() >= 0.85:  # a rest
            continue
        for degree in degrees:
            pitch = root * 2 ** ((scale[degree % 7] + 12 * (degree // 7)) / 12)
            vibrato = 1 + 0.004 * np.sin(2 * np.pi * 5.5 * np.arange(length) / SAMPLE_RATE)
            note = sum_harmonics(pitch * vibrato, heights, rng) * make_envelope(length, 0.01, pluck)
            total[start : start + length] += note
    music = normalise(total[:n])
    if rng.random() >= 0.4:  # without drums
        return music
    # samples between hits, tilt in dB an octave, seconds of decay
    instruments = ((2 * beat, -9, 0.3), (2 * beat, 0, 0.2), (beat // 2, 6, 0.06))
    drums = np.zeros(n)
    length = round(0.3 * SAMPLE_RATE)
    for step, slope, decay in instruments:
        hit = tilt_noise(length, rng, slope, 3) * make_envelope(length, 0.001, decay)
        times = np.arange(rng.integers(2) * beat, n, step)
        share = rng.uniform(0.2, 1)
        heights = rng.uniform(0.6, 1, len(times))
        drums += share * normalise(repeat_at(n, times, heights, hit))
    return music + drums


def make_talkers(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of a room of two to seven people, for babble where no recordings of
    voices are given. A voice has 3 to 6 random vowels a second, whose formants glide, fricatives,
    and pauses."""
    total = np.zeros(n)
    for _ in range(rng.integers(2, 8)):
        f0 = draw_drifting(n, rng, 85, 260, 0.25, 2)
        buzz = normalise(sum_harmonics(f0, np.arange(1, 45.0) ** -1.0, rng))
        voiced = _filter_formants(buzz, rng, rng.uniform(3, 6))
        syllables = np.maximum(wander(n, rng, rng.uniform(3, 7)) + 0.4, 0)
        hisses = tilt_noise(n, rng, 3, 3, (2000, 8000)) * np.maximum(wander(n, rng, 4) - 0.8, 0)
        voice = blend(voiced * syllables, 0.3, hisses) * draw_gate(n, rng, 2.5, 0.6)
        total += normalise(voice) * rng.uniform(0.4, 1)
    return total


def _filter_formants(source: np.ndarray, rng: Generator, rate: float) -> np.ndarray:
    """Filter the source through three resonances, which are drawn anew for every vowel;
    neighbouring vowels are cross-faded. rate: vowels a second."""
    step = fft.next_fast_len(round(SAMPLE_RATE / rate), real=True)  # samples of a vowel
    window = np.hanning(2 * step + 1)[:-1]
    total = np.zeros(len(source) + 2 * step)
    frequency = fft.rfftfreq(2 * step, 1 / SAMPLE_RATE)
    for start in range(0, len(source), step):
        piece = np.zeros(2 * step)
        piece[: len(source[start : start + 2 * step])] = source[start : start + 2 * step]
        centres = rng.uniform([250, 800, 2200], [850, 2300, 3400])
        throat = resonate(frequency, centres, rng.uniform(60, 250, 3))
        throat /= 1 + (frequency / 3500) ** 2
        total[start : start + 2 * step] += fft.irfft(fft.rfft(piece * window) * throat, 2 * step)
    return total[: len(source)]


# ---- HELD_OUT: sounds of tests


def make_droplets(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of rain, a fountain, pouring, bubbling: tones of bubbles that rise as
    they fade, many a second and of all sizes."""
    total = np.zeros(n)
    for _ in range(24):
        pitch = draw_pitch(rng, 400, 5000)
        length = draw_length(rng, 0.01, 0.09)
        rise = 1 + rng.uniform(0.1, 1) * np.arange(length) / length
        drop = np.sin(to_phase(np.minimum(pitch * rise, MAX_HZ)))
        drop *= make_envelope(length, 0.001, length / SAMPLE_RATE)
        times = draw_times(n, rng, draw_rate(rng, 0.3, 30))
        heights = rng.exponential(1, len(times)) * rng.choice([-1, 1], len(times))
        total += repeat_at(n, times, heights, drop)
    return total


def make_sirens(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of ambulances, whistles, sweeping alarms: one or two loud tones that
    go up and down all the time."""
    total = np.zeros(n)
    for _ in range(rng.integers(1, 3)):
        time = np.arange(n) / SAMPLE_RATE
        rate = draw_rate(rng, 0.15, 6)
        turns = rate * time + rng.random()
        sweep = signal.sawtooth(2 * np.pi * turns, rng.choice([0.5, 0.9, 0.1]))
        frequency = rng.uniform(500, 1800) * 2 ** (rng.uniform(0.3, 1.2) * sweep)
        tone = np.tanh(rng.uniform(0.5, 4) * np.sin(to_phase(np.minimum(frequency, 3500))))
        total += normalise(tone) * to_gain(4 * wander(n, rng, 0.3)) * rng.uniform(0.3, 1)
    return total


def make_crowd(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of a hall full of people: ten to twenty-five murmurs, each noise in
    bands that come and go like syllables; and some applause."""
    total = np.zeros(n)
    voices = rng.integers(10, 26)  # more than the seven in the noise of training
    # the voices share five bands of noise: they differ mostly in when they speak
    for centre in rng.uniform(300, 2500, 5):
        band = normalise(tilt_noise(n, rng, -6, 3, (centre / 2, centre * 1.5)))
        for _ in range(voices // 5):
            syllables = np.maximum(wander(n, rng, rng.uniform(4, 8)), 0) * rng.uniform(0.3, 1)
            total += syllables * np.roll(band, rng.integers(n))
    claps = draw_times(n, rng, rng.uniform(5, 60))
    clap = tilt_noise(1200, rng, 0, 3, (700, 3500)) * make_envelope(1200, 0.001, 0.05)
    applause = repeat_at(n, claps, rng.uniform(0.2, 1, len(claps)), clap) * draw_gate(n, rng, 2, 4)
    return blend(total, rng.uniform(0, 0.5), applause)


def make_typing(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of a keyboard or mouse: pairs of dry clicks, down and up, in bursts
    of words, each key a little different."""
    total = np.zeros(n)
    gate = draw_gate(n, rng, rng.uniform(0.5, 3), rng.uniform(0.2, 1))
    for _ in range(8):
        key = tilt_noise(320, rng, rng.uniform(0, 6), 6, (rng.uniform(500, 2500), 8000))
        key *= make_envelope(320, 0.0005, 0.012)
        times = draw_times(n, rng, rng.uniform(0.5, 2))
        times = times[gate[times] > 0.5]
        up = np.minimum(times + rng.integers(800, 2000, len(times)), n - 1)
        heights = np.r_[rng.uniform(0.5, 1, len(times)), rng.uniform(0.1, 0.5, len(up))]
        total += repeat_at(n, np.r_[times, up], heights, key)
    return add_faint_bed(total, rng, 0.01)


def make_printer(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of a printer or plotter: a stepping motor that jumps between speeds,
    its carriage going to and fro, and dry ratchets."""
    step = draw_length(rng, 0.1, 0.5)
    speeds = draw_pitch(rng, 150, 1200, 6)
    speed = np.resize(np.repeat(rng.choice(speeds, 64), step), n)
    motor = signal.square(to_phase(speed), rng.uniform(0.1, 0.5))
    motor *= np.resize(np.repeat(rng.random(64) < 0.7, step), n)
    band = [rng.uniform(200, 600), rng.uniform(2000, 5000)]
    housing_filter = signal.butter(2, band, "band", fs=SAMPLE_RATE, output="sos")
    motor = signal.sosfilt(housing_filter, motor)
    teeth = np.arange(rng.integers(400), n, draw_length(rng, 0.015, 0.05))
    tooth = tilt_noise(160, rng, 3, 3) * make_envelope(160, 0.0005, 0.006)
    share = rng.uniform(0.3, 1.5)
    heights = rng.uniform(0.5, 1, len(teeth))
    return blend(motor, share, repeat_at(n, teeth, heights, tooth))


def make_birdsong(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of birds: short phrases of fast whistled glides and trills, each bird
    with its own phrase, repeated."""
    total = np.zeros(n)
    for _ in range(rng.integers(1, 5)):
        song = np.zeros(0)
        for _ in range(rng.integers(2, 7)):  # syllables
            length = draw_length(rng, 0.04, 0.25)
            time = np.arange(length) / length
            glide = rng.uniform(-0.8, 0.8) * time  # octaves
            depth = rng.uniform(0, 0.15)
            glide += depth * np.sin(2 * np.pi * rng.uniform(2, 12) * time)
            frequency = np.clip(rng.uniform(2000, 5500) * 2**glide, 1000, MAX_HZ)
            whistle = np.sin(to_phase(frequency)) * np.hanning(length)
            song = np.r_[song, whistle, np.zeros(draw_length(rng, 0.01, 0.1))]
        times = draw_times(n, rng, rng.uniform(0.3, 1.2))
        total += repeat_at(n, times, rng.uniform(0.4, 1, len(times)), song) * rng.uniform(0.3, 1)
    return add_faint_bed(total, rng, 0.02)


# ---- DEV: sounds for choosing settings


def make_rotor(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of a helicopter, a washing drum, a flapping flag: thuds of low noise
    4 to 22 times a second, without a tone."""
    turn = to_phase(draw_drifting(n, rng, 4, 22, 0.1, 0.3)) + rng.uniform(0, 2 * np.pi)
    blade = np.exp(rng.uniform(2, 25) * (np.cos(turn) - 1))
    blade *= 1 + rng.uniform(0, 0.5) * np.cos(turn / 2)
    low = tilt_noise(n, rng, rng.uniform(-9, -3), 4, (40, rng.uniform(400, 2500)))
    air = tilt_noise(n, rng, rng.uniform(-3, 3), 4, (800, 7000))
    distance = to_gain(5 * wander(n, rng, 0.2))
    share = rng.uniform(0.05, 0.6)
    delayed = np.roll(blade, rng.integers(2000))
    return blend(low * blade, share, air * delayed) * distance


def make_sawing(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of a hand saw, a file, sandpaper: strokes to and fro; the teeth pass
    as fast as the hand moves, and slow down at its turns."""
    stroke = to_phase(draw_drifting(n, rng, 0.6, 2.5, 0.2, 1)) + rng.uniform(0, 2 * np.pi)
    speed = np.abs(np.sin(stroke)) * np.where(np.sin(stroke) > 0, 1.0, rng.uniform(0.3, 1))
    teeth = 0.5 + 0.5 * signal.sawtooth(to_phase(rng.uniform(60, 500) * speed))
    wood = rng.uniform([300, 1200, 3000], [1200, 3000, 6500])
    frequencies = np.geomspace(20, 8000, 120)
    board = resonate(frequencies, wood, rng.uniform(150, 1500, 3))
    noise = shape_noise(n, rng, 20 * np.log10(board + 0.02), frequencies)
    rests = draw_gate(n, rng, rng.uniform(2, 8), rng.uniform(0.2, 1))
    return noise * teeth ** rng.uniform(1, 4) * speed ** rng.uniform(0.7, 2) * (0.02 + rests)


def make_insects(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of crickets and cicadas: a narrow band at 2 to 7.5 kHz in pulses of
    wings, 15 to 250 a second, in chirps or without an end."""
    total = np.zeros(n)
    for _ in range(rng.integers(1, 5)):
        centre = draw_pitch(rng, 2000, 7000)
        band = tilt_noise(n, rng, 0, 0, (centre * 0.97, min(centre * 1.03, 7900)))
        beat = to_phase(rng.uniform(15, 250) * (1 + 0.02 * wander(n, rng, 1)))
        wings = np.maximum(np.sin(beat), 0) ** rng.uniform(0.5, 3)
        turn = to_phase(draw_drifting(n, rng, 0.6, 4, 0.1, 0.5))
        chirps = signal.square(turn, rng.uniform(0.15, 0.7)) > 0
        singing = chirps if rng.random() < 0.6 else np.ones(n)
        song = normalise(band * wings * (0.02 + singing)) * to_gain(3 * wander(n, rng, 0.3))
        total += song * rng.uniform(0.2, 1)
    return total


def make_barks(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of dogs, geese, seals: rough short calls whose pitch rises and falls
    within a fifth of a second, alone and in rows."""
    total = np.zeros(n)
    for _ in range(rng.integers(1, 4)):
        times = draw_times(n, rng, rng.uniform(0.4, 1.5))
        row = np.arange(rng.integers(1, 5)) * draw_length(rng, 0.25, 0.6)
        times = np.minimum((times[:, None] + row).ravel(), n - 1)
        heights = rng.uniform(0.4, 1, len(times))
        length = draw_length(rng, 0.08, 0.35)
        arch = np.sin(np.pi * np.linspace(0.1, 1, length))
        f0 = rng.uniform(180, 900) * 2 ** (rng.uniform(0.3, 1) * arch)
        f0 = f0 * (1 + rng.uniform(0.01, 0.08) * wander(length, rng, 300))
        numbers = np.arange(1, 31) * float(f0.mean())
        centres = rng.uniform([400, 1200], [1100, 3200])
        throat = resonate(numbers, centres, rng.uniform(200, 900, 2))
        tone = sum_harmonics(f0, throat, rng)
        share = rng.uniform(0.1, 0.7)
        rough = blend(tone, share, tilt_noise(length, rng, -3, 3, (300, 5000)))
        call = normalise(rough * make_envelope(length, 0.01, 1.5 * length / SAMPLE_RATE))
        total += repeat_at(n, times, heights, call) * rng.uniform(0.3, 1)
    return total


def make_squeaks(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of hinges, brakes, soles, cork, which stick and slip: a hoarse tone
    that wanders and breaks off, no two alike."""
    total = np.zeros(n)
    for time in draw_times(n, rng, rng.uniform(0.6, 3)):
        length = draw_length(rng, 0.06, 0.9)
        glide = rng.uniform(-0.7, 0.7) * np.linspace(0, 1, length)  # octaves
        glide += rng.uniform(0.02, 0.2) * wander(length, rng, 12)
        f0 = np.clip(draw_pitch(rng, 200, 2800) * 2**glide, 100, 3800)
        # each slip comes a little early or late
        f0 = f0 * (1 + rng.uniform(0.005, 0.06) * wander(length, rng, 400))
        heights = np.arange(1, 21.0) ** -rng.uniform(0.3, 1.5) * rng.uniform(0.2, 1, 20)
        tone = sum_harmonics(f0, heights, rng)
        grip = np.hanning(length) ** 0.5 * (1 + 0.6 * np.tanh(wander(length, rng, 40)))
        squeak = (normalise(tone * grip) * rng.uniform(0.3, 1))[: n - time]
        total[time : time + len(squeak)] += squeak
    return total


def make_breath(n: int, rng: Generator) -> np.ndarray:
    """Generate the sound (n,) of snores, a diver's regulator, panting: a rattle of 20 to 80 pulses
    a second breathed in through a throat, air breathed out."""
    cycle = to_phase(draw_drifting(n, rng, 0.25, 1.6, 0.15, 0.5)) + rng.uniform(0, 2 * np.pi)
    inwards = np.maximum(np.sin(cycle), 0)
    outwards = np.maximum(-np.sin(cycle), 0)
    f0 = draw_drifting(n, rng, 20, 80, 0.2, 3)
    numbers = np.arange(1, 61) * float(f0.mean())
    centres = rng.uniform([150, 500, 1500], [500, 1500, 3200])
    throat = resonate(numbers, centres, rng.uniform(60, 500, 3))
    rattle = sum_harmonics(f0, throat * rng.uniform(0.3, 1, 60), rng)
    rattle *= 1 + 0.5 * np.tanh(wander(n, rng, 25))
    air_in, air_out = (
        tilt_noise(n, rng, rng.uniform(-6, 0), 5, (rng.uniform(150, 600), rng.uniform(2500, 7000)))
        for _ in range(2)
    )
    inhaled = normalise(rattle * inwards) * rng.uniform(0.2, 1)
    inhaled += rng.uniform(0.1, 1) * normalise(air_in * inwards)
    return inhaled + rng.uniform(0.2, 1) * normalise(air_out * outwards**2)


# ---- the sets, by name

SEEN: tuple[Family, ...] = (
    make_coloured,
    make_gusts,
    make_hum,
    make_engine,
    make_impacts,
    make_footsteps,
    make_scrapes,
    make_crackle,
    make_beeps,
    make_music,
    make_talkers,
)
HELD_OUT: tuple[Family, ...] = (
    make_droplets,
    make_sirens,
    make_crowd,
    make_typing,
    make_printer,
    make_birdsong,
)
DEV: tuple[Family, ...] = (
    make_rotor,
    make_sawing,
    make_insects,
    make_barks,
    make_squeaks,
    make_breath,
)
WEIGHTS: dict[Family, float] = {  # with which a family is drawn; 1 for the others
    make_coloured: 1.5,
    make_impacts: 2.0,
    make_music: 1.5,
    make_talkers: 1.5,
    make_beeps: 0.6,
    make_footsteps: 0.7,
}
GENERATED = {"stand-in": SEEN, "dev": DEV, "held-out": HELD_OUT}
