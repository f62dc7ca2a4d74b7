"""Clips of generated noise: one to three sounds at a time, in and out, near and in rooms; decided by (seed, set, number)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from scipy import signal

from speechssl.audio import SAMPLE_RATE, to_int16
from speechssl.signal import generator, room_impulse
from speechssl.synth.sounds.seen import FAMILIES, WEIGHTS, Family
from speechssl.synth.sounds.shapes import on_and_off, unit

LEVEL = 0.05  # RMS of a clip, full scale 1: far above the steps of 16 bits, far below clipping
CREST = 12.0  # what is louder than this times the RMS is rounded off, as microphones do; else one click would be all of a clip
VERSION = 3  # of the generated sounds: raised when they change, so that what was made before is made anew
CLIPS, SECONDS = 300, 10.0  # 50 minutes in all, about the variety of the 900 clips of MUSAN's noise


def clips(
    name: str, families: Mapping[str, Family], seed: int, count: int = CLIPS, seconds: float = SECONDS
) -> Iterator[np.ndarray]:
    """Clips (n,) int16 of a set of families at 16 kHz. name: of the set; the same arguments give the same samples."""
    for number in range(count):
        yield clip(families, generator(seed, name, str(number)), round(seconds * SAMPLE_RATE))


def clip(families: Mapping[str, Family], rng: np.random.Generator, n: int) -> np.ndarray:
    """One clip (n,) int16: up to three of the families mixed at up to 15 dB from each other."""
    weights = np.array([WEIGHTS.get(name, 1.0) for name in families])
    total = np.zeros(n)
    for place in range(rng.choice([1, 2, 3], p=[0.4, 0.4, 0.2])):
        family = list(families.values())[rng.choice(len(families), p=weights / weights.sum())]
        sound = unit(family(n, rng)) * 10 ** (-rng.uniform(0, 15) * (place > 0) / 20)
        if place or rng.random() < 0.2:  # what is alone mostly lasts
            sound = sound * on_and_off(n, rng, rng.uniform(0.5, 5), rng.uniform(0.2, 3))
        total += sound
    if rng.random() < 0.5:
        room = room_impulse(rng, rng.uniform(0.15, 0.9), rng.uniform(0.3, 1.7))
        total = signal.oaconvolve(total, room)[:n]
    return to_int16(np.clip(LEVEL * unit(CREST * np.tanh(unit(total) / CREST)), -1, 1))


def stand_in(seed: int, count: int = CLIPS, seconds: float = SECONDS) -> Iterator[np.ndarray]:
    """The generated stand-in for MUSAN: clips of all families that training has."""
    return clips("stand-in", FAMILIES, seed, count, seconds)
