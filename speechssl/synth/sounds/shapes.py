"""What generated sounds are built of: spectra, envelopes, resonances, trains of events. n: samples at 16 kHz."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import fft, signal

from speechssl.audio import SAMPLE_RATE

Family = Callable[[int, np.random.Generator], np.ndarray]  # (n samples, generator) -> a sound (n,) of any level
LOWEST = 20.0  # Hz; there is no use for less in 16 kHz speech audio


def shaped(n: int, rng: np.random.Generator, gain_db: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Gaussian noise (n,) whose power density is gain_db at the frequencies `at` (Hz, rising), straight on a log axis between."""
    size = fft.next_fast_len(n, real=True)
    frequency = np.maximum(fft.rfftfreq(size, 1 / SAMPLE_RATE), LOWEST)
    weight = 10 ** (np.interp(np.log2(frequency), np.log2(at), gain_db) / 20)
    return np.asarray(fft.irfft(fft.rfft(rng.standard_normal(size)) * weight, size)[:n])


def tilted(
    n: int, rng: np.random.Generator, slope: float, ripple: float = 0.0, band: tuple[float, float] = (LOWEST, 8000.0)
) -> np.ndarray:
    """Noise (n,) of a slope in dB an octave with a random smooth ripple (dB); 30 dB an octave down beyond the band (Hz)."""
    at = np.geomspace(LOWEST, SAMPLE_RATE / 2, 40)
    smooth = np.interp(np.linspace(0, 11, 40), np.arange(12), rng.normal(0, ripple, 12)) if ripple else 0.0
    outside = np.maximum(np.log2(band[0] / at), 0) + np.maximum(np.log2(at / band[1]), 0)
    return shaped(n, rng, slope * np.log2(at / 1000) + smooth - 30 * outside, at)


def wander(n: int, rng: np.random.Generator, rate: float) -> np.ndarray:
    """A slow random curve (n,) of mean about 0 and variance about 1 that turns about `rate` times a second."""
    knots = rng.standard_normal(max(int(n / SAMPLE_RATE * rate), 1) + 4)
    return np.interp(np.linspace(1, len(knots) - 2, n), np.arange(len(knots)), signal.convolve(knots, [0.3, 0.9, 0.3], "same"))


def phase(frequency: np.ndarray) -> np.ndarray:
    """Phase (n,) in radians of an oscillator of a changing frequency in Hz (n,)."""
    return np.asarray(2 * np.pi * np.cumsum(frequency) / SAMPLE_RATE)


def harmonics(f0: np.ndarray, heights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sum of sines (n,) at multiples of f0 (n,), in Hz; heights: amplitudes from the first. What is above 7.6 kHz is left out."""
    turn = np.exp(1j * phase(f0)).astype(np.complex64)
    power, total = np.ones_like(turn), np.zeros(len(f0))  # the powers of one rotation are its harmonics
    for number, height in enumerate(heights, 1):
        if number * f0.max() > 7600:
            break
        power *= turn
        start = np.complex64(height * np.exp(1j * rng.uniform(0, 2 * np.pi)))
        total += (start * power).imag
    return total


def resonances(frequency: np.ndarray, centres: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Amplitude at each frequency (F,) of resonances at centres and with widths in Hz, the highest about 1."""
    return np.asarray(np.max(1 / np.sqrt(1 + ((frequency[:, None] - centres) / (widths / 2)) ** 2), axis=1))


def poisson(n: int, rng: np.random.Generator, rate: float) -> np.ndarray:
    """Times of events in samples, rising, about `rate` a second; at least one."""
    return np.sort(rng.integers(0, n, max(int(rng.poisson(rate * n / SAMPLE_RATE)), 1)))


def strikes(n: int, times: np.ndarray, heights: np.ndarray, hit: np.ndarray) -> np.ndarray:
    """The same sound `hit` (m,) at each time (samples) with each height, overlapping. Returns (n,)."""
    if len(times) * len(hit) < 20 * n:  # cheaper one by one than as a convolution
        total = np.zeros(n + len(hit))
        for time, height in zip(times, heights, strict=True):
            total[time : time + len(hit)] += height * hit
        return total[:n]
    return np.asarray(signal.fftconvolve(np.bincount(times, heights, minlength=n)[:n], hit)[:n])


def modal(rng: np.random.Generator, centre: float, modes: int, decay: float) -> np.ndarray:
    """A struck object (m,): decaying sines at unrelated frequencies around `centre` Hz; decay: seconds to -60 dB."""
    frequency = np.minimum(centre * 2 ** rng.uniform(-1, 2, modes), 7600)
    time = np.arange(max(round(decay * SAMPLE_RATE), 64))[:, None] / SAMPLE_RATE
    rings = decay * (centre / np.maximum(frequency, centre)) ** rng.uniform(0.2, 1)
    sines = np.sin(2 * np.pi * frequency * time + rng.uniform(0, 2 * np.pi, modes))
    return np.asarray((sines * np.exp(-6.9 * time / rings)) @ rng.exponential(1, modes))


def attack_decay(n: int, attack: float, decay: float) -> np.ndarray:
    """Envelope (n,) that rises in `attack` s and falls by 60 dB in `decay` s."""
    time = np.arange(n) / SAMPLE_RATE
    return np.asarray(np.minimum(time / attack, 1) * np.exp(-6.9 * np.maximum(time - attack, 0) / decay))


def on_and_off(n: int, rng: np.random.Generator, on: float, off: float) -> np.ndarray:
    """A gate (n,) between 0 and 1 with ramps of 30 ms; on and off: mean seconds of the two states."""
    gate, at, state = np.zeros(n), 0, bool(rng.random() < on / (on + off))
    while at < n:
        length = round((0.1 + rng.exponential(on if state else off)) * SAMPLE_RATE)
        gate[at : at + length] = state
        at, state = at + length, not state
    ramp = np.hanning(round(0.06 * SAMPLE_RATE))
    return np.asarray(signal.oaconvolve(gate, ramp / ramp.sum(), "same"))


def unit(sound: np.ndarray) -> np.ndarray:
    """Scaled to power 1; silence stays silence."""
    power = float(np.mean(np.square(sound)))
    return sound / np.sqrt(power) if power > 0 else sound
