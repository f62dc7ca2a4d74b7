"""The families of sounds that settings are chosen on: neither training (`seen`) nor a final test (`held_out`) has any of them.

A family is a function of (n samples, generator), as there. What is shared is arithmetic (`shapes`), not a sound: no steady noise,
motors with a tone, struck objects, clicks, sweeping or fixed tones, voices or song here; no rotors, saws, insects, animals, hinges
or breath there.
"""

from __future__ import annotations

import numpy as np
from scipy import signal

from speechssl.audio import SAMPLE_RATE
from speechssl.synth.sounds.shapes import (
    Family,
    attack_decay,
    harmonics,
    on_and_off,
    phase,
    poisson,
    resonances,
    shaped,
    strikes,
    tilted,
    unit,
    wander,
)


def rotor(n: int, rng: np.random.Generator) -> np.ndarray:
    """A helicopter, a washing drum, a flapping flag: thuds of low noise 4 to 22 times a second, without a tone."""
    turn = phase(rng.uniform(4, 22) * 2 ** (0.1 * wander(n, rng, 0.3))) + rng.uniform(0, 2 * np.pi)
    blade = np.exp(rng.uniform(2, 25) * (np.cos(turn) - 1)) * (1 + rng.uniform(0, 0.5) * np.cos(turn / 2))
    low = tilted(n, rng, rng.uniform(-9, -3), 4, (40, rng.uniform(400, 2500)))
    air = tilted(n, rng, rng.uniform(-3, 3), 4, (800, 7000))
    distance = 10 ** (5 * wander(n, rng, 0.2) / 20)
    return (unit(low * blade) + rng.uniform(0.05, 0.6) * unit(air * np.roll(blade, int(rng.integers(2000))))) * distance


def sawing(n: int, rng: np.random.Generator) -> np.ndarray:
    """A hand saw, a file, sandpaper: strokes to and fro; the teeth pass as fast as the hand moves, and slow down at its turns."""
    stroke = phase(rng.uniform(0.6, 2.5) * 2 ** (0.2 * wander(n, rng, 1.0))) + rng.uniform(0, 2 * np.pi)
    speed = np.abs(np.sin(stroke)) * np.where(np.sin(stroke) > 0, 1.0, rng.uniform(0.3, 1))
    teeth = 0.5 + 0.5 * signal.sawtooth(phase(rng.uniform(60, 500) * speed))
    wood = rng.uniform([300, 1200, 3000], [1200, 3000, 6500])
    at = np.geomspace(20, 8000, 120)
    noise = shaped(n, rng, 20 * np.log10(resonances(at, wood, rng.uniform(150, 1500, 3)) + 0.02), at)
    rests = on_and_off(n, rng, rng.uniform(2, 8), rng.uniform(0.2, 1))
    return noise * teeth ** rng.uniform(1, 4) * speed ** rng.uniform(0.7, 2) * (0.02 + rests)


def insects(n: int, rng: np.random.Generator) -> np.ndarray:
    """Crickets and cicadas: a narrow band at 2 to 7.5 kHz in pulses of wings, 15 to 250 a second, in chirps or without an end."""
    total = np.zeros(n)
    for _ in range(rng.integers(1, 5)):
        centre = np.exp2(rng.uniform(np.log2(2000), np.log2(7000)))
        band = tilted(n, rng, 0, 0, (centre * 0.97, min(centre * 1.03, 7900)))
        wings = np.maximum(np.sin(phase(rng.uniform(15, 250) * (1 + 0.02 * wander(n, rng, 1)))), 0) ** rng.uniform(0.5, 3)
        chirps = signal.square(phase(rng.uniform(0.6, 4) * 2 ** (0.1 * wander(n, rng, 0.5))), rng.uniform(0.15, 0.7)) > 0
        singing = chirps if rng.random() < 0.6 else np.ones(n)
        total += unit(band * wings * (0.02 + singing)) * 10 ** (3 * wander(n, rng, 0.3) / 20) * rng.uniform(0.2, 1)
    return total


def barks(n: int, rng: np.random.Generator) -> np.ndarray:
    """Dogs, geese, seals: rough short calls whose pitch rises and falls within a fifth of a second, alone and in rows."""
    total = np.zeros(n)
    for _ in range(rng.integers(1, 4)):
        times = poisson(n, rng, rng.uniform(0.4, 1.5))
        row = np.arange(rng.integers(1, 5)) * round(rng.uniform(0.25, 0.6) * SAMPLE_RATE)
        times = np.minimum((times[:, None] + row).ravel(), n - 1)
        total += strikes(n, times, rng.uniform(0.4, 1, len(times)), _call(rng)) * rng.uniform(0.3, 1)
    return total


def _call(rng: np.random.Generator) -> np.ndarray:
    length = round(rng.uniform(0.08, 0.35) * SAMPLE_RATE)
    arch = np.sin(np.pi * np.linspace(0.1, 1, length))
    f0 = rng.uniform(180, 900) * 2 ** (rng.uniform(0.3, 1) * arch) * (1 + rng.uniform(0.01, 0.08) * wander(length, rng, 300))
    numbers = np.arange(1, 31) * float(f0.mean())
    throat = resonances(numbers, rng.uniform([400, 1200], [1100, 3200]), rng.uniform(200, 900, 2))
    rough = unit(harmonics(f0, throat, rng)) + rng.uniform(0.1, 0.7) * unit(tilted(length, rng, -3, 3, (300, 5000)))
    return unit(rough * attack_decay(length, 0.01, 1.5 * length / SAMPLE_RATE))


def squeaks(n: int, rng: np.random.Generator) -> np.ndarray:
    """Hinges, brakes, soles, cork: what sticks and slips, a hoarse tone that wanders and breaks off, no two alike."""
    total = np.zeros(n)
    for time in poisson(n, rng, rng.uniform(0.6, 3)):
        length = round(rng.uniform(0.06, 0.9) * SAMPLE_RATE)
        glide = rng.uniform(-0.7, 0.7) * np.linspace(0, 1, length) + rng.uniform(0.02, 0.2) * wander(length, rng, 12)
        f0 = np.clip(np.exp2(rng.uniform(np.log2(200), np.log2(2800))) * 2**glide, 100, 3800)
        f0 = f0 * (1 + rng.uniform(0.005, 0.06) * wander(length, rng, 400))  # each slip comes a little early or late
        tone = harmonics(f0, np.arange(1, 21.0) ** -rng.uniform(0.3, 1.5) * rng.uniform(0.2, 1, 20), rng)
        grip = np.hanning(length) ** 0.5 * (1 + 0.6 * np.tanh(wander(length, rng, 40)))
        squeak = (unit(tone * grip) * rng.uniform(0.3, 1))[: n - time]
        total[time : time + len(squeak)] += squeak
    return total


def breath(n: int, rng: np.random.Generator) -> np.ndarray:
    """Snores, a diver's regulator, panting: a rattle of 20 to 80 pulses a second breathed in through a throat, air breathed out."""
    cycle = phase(rng.uniform(0.25, 1.6) * 2 ** (0.15 * wander(n, rng, 0.5))) + rng.uniform(0, 2 * np.pi)
    inwards, outwards = np.maximum(np.sin(cycle), 0), np.maximum(-np.sin(cycle), 0)
    f0 = rng.uniform(20, 80) * 2 ** (0.2 * wander(n, rng, 3))
    numbers = np.arange(1, 61) * float(f0.mean())
    throat = resonances(numbers, rng.uniform([150, 500, 1500], [500, 1500, 3200]), rng.uniform(60, 500, 3))
    rattle = harmonics(f0, throat * rng.uniform(0.3, 1, 60), rng) * (1 + 0.5 * np.tanh(wander(n, rng, 25)))
    air_in, air_out = (tilted(n, rng, rng.uniform(-6, 0), 5, (rng.uniform(150, 600), rng.uniform(2500, 7000))) for _ in range(2))
    inhaled = unit(rattle * inwards) * rng.uniform(0.2, 1) + rng.uniform(0.1, 1) * unit(air_in * inwards)
    return inhaled + rng.uniform(0.2, 1) * unit(air_out * outwards**2)


FAMILIES: dict[str, Family] = {
    "rotor": rotor,
    "sawing": sawing,
    "insects": insects,
    "barks": barks,
    "squeaks": squeaks,
    "breath": breath,
}
