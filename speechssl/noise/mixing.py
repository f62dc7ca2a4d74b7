"""Noise under speech: at an SNR, cut or repeated to the length of the speech."""

from __future__ import annotations

import numpy as np

from speechssl.audio import SAMPLE_RATE
from speechssl.noise.level import ACTIVE, guard, rms_level, speech_level

FADE = 0.05  # seconds of cross-fade where a short noise is joined to itself


def mix(
    speech: np.ndarray,
    noise: np.ndarray,
    snr_db: float,
    rng: np.random.Generator | None = None,
    sample_rate: int = SAMPLE_RATE,
    over: str = ACTIVE,
) -> np.ndarray:
    """Speech plus noise at an SNR in dB: speech level over RMS level of the noise that is added.

    speech: (N,); noise: (M,), cropped or repeated by `fit_length`; over: "active" speech or the whole "signal", see `speech_level`.
    Returns float32 (N,), scaled down as a whole where it would go beyond full scale. Raises ValueError where the speech or the
    noise is silent or the SNR is not finite.
    """
    if not np.isfinite(snr_db):
        raise ValueError(f"an SNR of {snr_db} dB is not a number")
    noise = fit_length(noise, len(speech), rng, sample_rate)
    level, noise_level = speech_level(speech, over, sample_rate), rms_level(noise)
    if not (np.isfinite(level) and np.isfinite(noise_level)):
        raise ValueError(f"no SNR between speech at {level} dB and noise at {noise_level} dB: one is silent")
    gain = 10 ** ((level - noise_level - snr_db) / 20)
    return guard(np.asarray(speech, np.float64) + gain * noise)


def fit_length(noise: np.ndarray, n: int, rng: np.random.Generator | None = None, sample_rate: int = SAMPLE_RATE) -> np.ndarray:
    """Noise (M,) to (n,): cropped at a random offset where longer, repeated with cross-fades where shorter.

    rng None: from the beginning. The fades are of equal power, so that the level does not dip at a join.
    """
    return fit_at(noise, n, 0 if rng is None else random_offset(len(noise), n, rng, sample_rate), sample_rate)


def random_offset(m: int, n: int, rng: np.random.Generator, sample_rate: int = SAMPLE_RATE) -> int:
    """Where `fit_at` is to begin in noise of m samples, so that any n of them are as likely. Raises ValueError if m = 0."""
    if not m:
        raise ValueError("no noise to repeat")
    return int(rng.integers(m - n + 1 if m >= n else m - _fade(m, sample_rate)))


def fit_at(noise: np.ndarray, n: int, offset: int, sample_rate: int = SAMPLE_RATE) -> np.ndarray:
    """As `fit_length`, from an offset in samples: of the noise where it is long enough, else of the loop that it is made into."""
    if len(noise) >= n:
        return noise[offset : offset + n]
    if not len(noise):
        raise ValueError("no noise to repeat")
    fade = _fade(len(noise), sample_rate)
    angle = (np.arange(fade) + 0.5) / max(fade, 1) * np.pi / 2
    join = noise[len(noise) - fade :] * np.cos(angle) + noise[:fade] * np.sin(angle)
    loop = np.concatenate([noise[fade : len(noise) - fade], join])  # the join ends where the loop begins
    return np.resize(np.roll(loop, -offset), n)


def _fade(m: int, sample_rate: int) -> int:
    return min(round(FADE * sample_rate), m // 2)
