"""Noise that is made, not recorded: white, pink, and many voices at once."""

from __future__ import annotations

from collections.abc import Sequence

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
    size = fft.next_fast_len(max(n, 2), real=True)
    frequency = fft.rfftfreq(size, 1 / sample_rate)
    weight = np.where(frequency >= PINK_FROM, 1 / np.sqrt(np.maximum(frequency, PINK_FROM)), 0)
    noise = fft.irfft(fft.rfft(rng.standard_normal(size)) * weight, size)
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
    order = np.concatenate([rng.permutation(len(voices)) for _ in range(-(-talkers // len(voices)))])
    total = np.zeros(n)
    for index in order[:talkers]:
        talker = fit_length(voices[index], n, rng, sample_rate)
        if np.isfinite(level := active_level(talker, sample_rate)):  # a crop may fall into a long pause
            total += talker * 10 ** (-level / 20)
    return total
