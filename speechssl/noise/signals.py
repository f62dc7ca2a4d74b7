"""Noise that is made, not recorded: white, pink, and many voices at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import fft

from speechssl.audio import SAMPLE_RATE
from speechssl.noise.level import active_level
from speechssl.noise.mixing import fit_length

TALKERS = 5  # the middle of the three to seven of Snyder et al., "X-vectors" (ICASSP 2018), data augmentation
PINK_FROM = 20.0  # Hz; below, 1/f would put more inaudible power into a long recording than into a short one


def gaussian(n: int, rng: np.random.Generator) -> np.ndarray:
    """White Gaussian noise of power 1. Returns (n,)."""
    return rng.standard_normal(n)


def pink(n: int, rng: np.random.Generator, sample_rate: int = SAMPLE_RATE) -> np.ndarray:
    """Noise of power about 1 whose power density falls as 1/f from 20 Hz on (-3 dB an octave). Returns (n,)."""
    return _weighted(n, rng, lambda frequency: 1 / np.sqrt(frequency), sample_rate)


def coloured(n: int, rng: np.random.Generator, slope: float, sample_rate: int = SAMPLE_RATE) -> np.ndarray:
    """Noise of power about 1 whose density changes by `slope` dB an octave from 20 Hz on: -6 brown, 0 white. Returns (n,)."""
    exponent = slope / (20 * np.log10(2))
    return _weighted(n, rng, lambda frequency: (frequency / 1000) ** exponent, sample_rate)


def _weighted(n: int, rng: np.random.Generator, weight: Callable[[np.ndarray], np.ndarray], sample_rate: int) -> np.ndarray:
    size = fft.next_fast_len(max(n, 2), real=True)
    frequency = fft.rfftfreq(size, 1 / sample_rate)
    weights = np.where(frequency >= PINK_FROM, weight(np.maximum(frequency, PINK_FROM)), 0)
    noise = fft.irfft(fft.rfft(rng.standard_normal(size)) * weights, size)
    return np.asarray(noise[:n] / np.sqrt(np.mean(noise**2)))


def babble(
    voices: Sequence[np.ndarray],
    n: int,
    rng: np.random.Generator,
    talkers: int = TALKERS,
    sample_rate: int = SAMPLE_RATE,
) -> np.ndarray:
    """Several talkers at once, each at the same active level. voices: recordings (M_i,), at least one. Returns (n,).

    A talker is a random voice; none is taken twice before each was taken once. Raises ValueError without voices.
    """
    if not voices:
        raise ValueError("babble needs recordings of voices")
    order = talker_order(len(voices), talkers, rng)
    return at_one_level([fit_length(voices[index], n, rng, sample_rate) for index in order], n, sample_rate)


def talker_order(voices: int, talkers: int, rng: np.random.Generator) -> list[int]:
    """Which of so many voices speak, none twice before each did once."""
    order = np.concatenate([rng.permutation(voices) for _ in range(-(-talkers // voices))])
    return [int(index) for index in order[:talkers]]


def at_one_level(crops: Sequence[np.ndarray], n: int, sample_rate: int = SAMPLE_RATE) -> np.ndarray:
    """Sum (n,) of voices (n,) each, brought to the same active level. A crop that fell into a pause adds nothing."""
    total = np.zeros(n)
    for crop in crops:
        if np.isfinite(level := active_level(crop, sample_rate)):
            total += crop * 10 ** (-level / 20)
    return total
