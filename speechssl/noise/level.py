"""How loud: the active level of speech, the RMS level of noise, and the seeded draws that everything random here comes from."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from speechssl.audio import SAMPLE_RATE

LEVEL_FRAME = 0.02  # seconds over which power is measured
ACTIVE = "active"
SNR_OVER = (ACTIVE, "signal")  # what of the speech an SNR is measured over: the active parts, or all of it
MARGIN_DB = 15.9  # ITU-T P.56 (12/2011), method B: active speech is what lies less than this below the active level


def generator(seed: int, *keys: str) -> np.random.Generator:
    """A random generator that depends on these values only, not on the process or on what was drawn before."""
    digest = hashlib.sha256(json.dumps([seed, *keys]).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def active_level(samples: np.ndarray, sample_rate: int = SAMPLE_RATE) -> float:
    """Level of the speech without its pauses, in dB below full scale (RMS 1); -inf for silence. samples: (N,).

    A simple form of ITU-T P.56 method B: the mean power A of the 20 ms frames whose power is above A - 15.9 dB. It has
    no hangover, so pauses of any length count for nothing. Without pauses it is the RMS level. ValueError if N = 0.
    """
    if not len(samples):
        raise ValueError("no samples to measure")
    starts = np.arange(0, len(samples), round(LEVEL_FRAME * sample_rate))
    energies = np.add.reduceat(np.square(samples, dtype=np.float64), starts)
    counts = np.diff(np.r_[starts, len(samples)])
    active, before = np.ones(len(starts), bool), 0
    while before != (before := int(active.sum())):  # each round only drops frames below the mean, so this ends
        power = energies[active].sum() / counts[active].sum()
        active &= energies >= counts * power * 10 ** (-MARGIN_DB / 10)
    return decibels(float(energies[active].sum() / counts[active].sum()))


def decibels(power: float) -> float:
    """A power in dB; -inf for none."""
    return 10 * float(np.log10(power)) if power > 0 else -np.inf


def rms_level(samples: np.ndarray) -> float:
    """RMS level in dB below full scale (RMS 1), pauses and all; -inf for silence. samples: (N,)."""
    return decibels(float(np.mean(np.square(samples, dtype=np.float64))))


def speech_level(samples: np.ndarray, over: str = ACTIVE, sample_rate: int = SAMPLE_RATE) -> float:
    """Level of speech that an SNR is counted from, in dB; -inf for silence. samples: (N,); over: one of SNR_OVER.

    "active", the default here: `active_level`, so that pauses do not make the noise quieter. "signal": `rms_level` of the whole
    signal, as in arXiv 2210.07978. Raises ValueError for another word.
    """
    if over not in SNR_OVER:
        raise ValueError(f"an SNR is over {' or '.join(SNR_OVER)}, not over {over!r}")
    return active_level(samples, sample_rate) if over == ACTIVE else rms_level(samples)


def snr_note(over: str) -> str:
    """A sentence below tables; none where SNRs are over active speech, as they are by default."""
    return "" if over == ACTIVE else "SNRs are over the whole signal, pauses and all."


def guard(samples: np.ndarray) -> np.ndarray:
    """samples (N,) as float32, scaled down to full scale where beyond: quieter is harmless, clipped is another distortion."""
    return np.asarray(samples / max(1.0, float(np.abs(samples).max(initial=0))), np.float32)
