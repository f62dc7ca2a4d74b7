"""The families of sounds of the training noise (the generated stand-in for MUSAN). None of them is in `dev` or `held_out`.

A family is a function of (n samples, generator) that draws its own parameters, so that no two clips are alike; any level.
"""

from __future__ import annotations

import numpy as np
from scipy import fft

from speechssl.audio import SAMPLE_RATE
from speechssl.synth.sounds.shapes import (
    Family,
    attack_decay,
    harmonics,
    modal,
    on_and_off,
    phase,
    poisson,
    resonances,
    strikes,
    tilted,
    unit,
    wander,
)

PERCUSSION = 0.4  # share of music with a beat


def coloured(n: int, rng: np.random.Generator) -> np.ndarray:
    """Steady: ventilation, a far street, a tap, hiss. Any tilt from -12 to +6 dB an octave, a rough spectrum, sometimes a band."""
    low, high = np.sort(np.exp2(rng.uniform(np.log2(60), np.log2(7500), 2)))
    band = (low, max(high, 2 * low)) if rng.random() < 0.3 else (20.0, 8000.0)
    return tilted(n, rng, rng.uniform(-12, 6), rng.uniform(0, 8), band)


def gusts(n: int, rng: np.random.Generator) -> np.ndarray:
    """Wind, surf, passing cars, rustling: noise that swells, its highs more than its lows."""
    rate, depth = np.exp(rng.uniform(np.log(0.2), np.log(8))), rng.uniform(3, 12)
    swell = wander(n, rng, rate)
    low, high = (tilted(n, rng, rng.uniform(-9, 0), 4) for _ in range(2))
    return unit(low) * 10 ** (depth * swell / 20) + rng.uniform(0, 1) * unit(high) * 10 ** (1.5 * depth * swell / 20)


def hum(n: int, rng: np.random.Generator) -> np.ndarray:
    """Mains, transformers, refrigerators: a steady low tone with harmonics, and some noise."""
    f0 = rng.uniform(40, 130) * (1 + 0.003 * wander(n, rng, 0.5))
    heights = rng.exponential(1, 40) * np.arange(1, 41.0) ** -rng.uniform(0.5, 2)
    return unit(harmonics(f0, heights, rng)) + rng.uniform(0.05, 0.7) * unit(tilted(n, rng, rng.uniform(-9, 0), 4))


def engine(n: int, rng: np.random.Generator) -> np.ndarray:
    """Motors, mixers, vacuum cleaners, drills: a drifting harmonic series through resonances, and noise that turns with it."""
    f0 = np.exp2(rng.uniform(np.log2(18), np.log2(350))) * 2 ** (rng.uniform(0, 0.25) * wander(n, rng, rng.uniform(0.2, 2)))
    numbers = np.arange(1, 61) * float(f0.mean())
    body = resonances(numbers, rng.uniform(100, 4500, 5), rng.uniform(80, 900, 5))
    tone = harmonics(f0, body * rng.exponential(1, 60) * numbers ** -rng.uniform(0, 1), rng)
    turning = 1 + rng.uniform(0, 0.9) * np.sin(phase(f0 / rng.integers(1, 4)))
    return unit(tone) + rng.uniform(0.1, 1.5) * unit(tilted(n, rng, rng.uniform(-8, 3), 5) * turning)


def impacts(n: int, rng: np.random.Generator) -> np.ndarray:
    """Dishes, cutlery, knocks, doors, tools: struck objects that ring, at random times, singly and in flurries."""
    total = np.zeros(n)
    for _ in range(rng.integers(2, 7)):
        times = poisson(n, rng, np.exp(rng.uniform(np.log(0.3), np.log(6))))
        flurry = np.repeat(times, rng.integers(1, 6)) + rng.integers(0, round(0.15 * SAMPLE_RATE))
        times = np.minimum(flurry + rng.integers(0, 2000, len(flurry)), n - 1)
        hit = modal(rng, np.exp2(rng.uniform(np.log2(120), np.log2(4000))), int(rng.integers(4, 24)), rng.uniform(0.05, 1.2))
        click = rng.standard_normal(len(hit)) * np.exp(-np.arange(len(hit)) / rng.uniform(20, 400))
        total += strikes(n, times, rng.exponential(1, len(times)), unit(hit) + rng.uniform(0, 1) * unit(click))
    return total


def footsteps(n: int, rng: np.random.Generator) -> np.ndarray:
    """Steps, hammering, chopping: dull blows at a pace that wavers a little."""
    period = round(rng.uniform(0.25, 1.2) * SAMPLE_RATE)
    times = np.arange(int(rng.integers(period)), n, period)
    times = np.clip(times + rng.normal(0, 0.03 * period, len(times)).astype(int), 0, n - 1)
    thud = modal(rng, rng.uniform(60, 500), 10, rng.uniform(0.05, 0.3))
    scuff = tilted(len(thud), rng, rng.uniform(-6, 3), 4) * attack_decay(len(thud), 0.005, rng.uniform(0.03, 0.2))
    return strikes(n, times, rng.uniform(0.5, 1.5, len(times)), unit(thud) + rng.uniform(0, 2) * unit(scuff))


def scrapes(n: int, rng: np.random.Generator) -> np.ndarray:
    """Chairs, paper, cloth, brushes, sizzling: bursts of banded noise with a rough surface."""
    total = np.zeros(n)
    for _ in range(rng.integers(1, 4)):
        centre = np.exp2(rng.uniform(np.log2(300), np.log2(6500)))
        noise = tilted(n, rng, 0, 5, (centre / rng.uniform(1.2, 3), min(centre * rng.uniform(1.2, 3), 8000)))
        grain = np.abs(wander(n, rng, np.exp(rng.uniform(np.log(15), np.log(200))))) ** rng.uniform(0.5, 3)
        total += unit(noise * grain) * on_and_off(n, rng, rng.uniform(0.1, 1.5), rng.uniform(0.1, 2))
    return total


def crackle(n: int, rng: np.random.Generator) -> np.ndarray:
    """Fire, frying, plastic, a bad contact: many short clicks of all sizes, over a bed of noise."""
    times = poisson(n, rng, np.exp(rng.uniform(np.log(20), np.log(600))))
    click = rng.standard_normal(200) * np.exp(-np.arange(200) / rng.uniform(2, 40))
    heights = rng.pareto(rng.uniform(1.2, 3), len(times)).clip(0, 50) * rng.choice([-1, 1], len(times))
    return unit(strikes(n, times, heights, click)) + rng.uniform(0.1, 1) * unit(tilted(n, rng, rng.uniform(-6, 3), 4))


def beeps(n: int, rng: np.random.Generator) -> np.ndarray:
    """Alarms, timers, telephones: tones of a fixed pitch in a fixed pattern."""
    tones = np.exp2(rng.uniform(np.log2(300), np.log2(4000), rng.integers(1, 4)))
    step = round(rng.uniform(0.05, 0.6) * SAMPLE_RATE)
    pattern = rng.integers(-1, len(tones), rng.integers(2, 9))  # -1: a rest
    pattern[0] = 0
    note = np.resize(np.repeat(pattern, step), n)
    frequency = np.where(note >= 0, tones[note], tones[0])
    gate = np.convolve(note >= 0, np.ones(64) / 64, "same")
    return harmonics(frequency, rng.uniform(0, 1, 5) * np.array([1, 0.5, 0.5, 0.3, 0.2]) + [1, 0, 0, 0, 0], rng) * gate


def music(n: int, rng: np.random.Generator) -> np.ndarray:
    """Chords and a melody in a key and a tempo, plucked or held, sometimes with a beat."""
    beat = round(60 / rng.uniform(60, 180) * SAMPLE_RATE)
    scale = np.array([0, 2, 4, 5, 7, 9, 11] if rng.random() < 0.5 else [0, 2, 3, 5, 7, 8, 10])
    root, pluck = rng.uniform(90, 220), rng.uniform(0.2, 3)
    heights = np.arange(1, 13.0) ** -rng.uniform(0.8, 2.5) * rng.uniform(0.2, 1, 12)
    total = np.zeros(n + 4 * beat)
    for start in range(0, n, beat):
        degrees = [rng.integers(7) + 7] if start % (4 * beat) else (rng.integers(7) + np.array([0, 2, 4])).tolist()
        length = beat * (1 if start % (4 * beat) else 4)
        for degree in degrees if rng.random() < 0.85 else []:
            pitch = root * 2 ** ((scale[degree % 7] + 12 * (degree // 7)) / 12)
            vibrato = 1 + 0.004 * np.sin(2 * np.pi * 5.5 * np.arange(length) / SAMPLE_RATE)
            total[start : start + length] += harmonics(pitch * vibrato, heights, rng) * attack_decay(length, 0.01, pluck)
    return unit(total[:n]) + (_drums(n, beat, rng) if rng.random() < PERCUSSION else 0)


def _drums(n: int, beat: int, rng: np.random.Generator) -> np.ndarray:
    total = np.zeros(n)
    for every, slope, decay in ((2 * beat, -9, 0.3), (2 * beat, 0, 0.2), (beat // 2, 6, 0.06)):
        hit = tilted(round(0.3 * SAMPLE_RATE), rng, slope, 3) * attack_decay(round(0.3 * SAMPLE_RATE), 0.001, decay)
        times = np.arange(int(rng.integers(2)) * beat, n, every)
        total += rng.uniform(0.2, 1) * unit(strikes(n, times, rng.uniform(0.6, 1, len(times)), hit))
    return total


def talkers(n: int, rng: np.random.Generator) -> np.ndarray:
    """Two to seven voices of vowels, hisses and pauses: what a room of people sounds like where no recordings are given."""
    return np.sum([unit(_talker(n, rng)) * rng.uniform(0.4, 1) for _ in range(rng.integers(2, 8))], axis=0)


def _talker(n: int, rng: np.random.Generator) -> np.ndarray:
    """Vowels drawn anew 3 to 6 times a second (their formants gliding), with fricatives and pauses between."""
    f0 = rng.uniform(85, 260) * 2 ** (0.25 * wander(n, rng, 2.0))
    voiced = _formants(unit(harmonics(f0, np.arange(1, 45.0) ** -1.0, rng)), rng, rng.uniform(3, 6))
    syllables = np.maximum(wander(n, rng, rng.uniform(3, 7)) + 0.4, 0)
    hisses = tilted(n, rng, 3, 3, (2000, 8000)) * np.maximum(wander(n, rng, 4) - 0.8, 0)
    return (unit(voiced * syllables) + 0.3 * unit(hisses)) * on_and_off(n, rng, 2.5, 0.6)


def _formants(source: np.ndarray, rng: np.random.Generator, rate: float) -> np.ndarray:
    """The source through three resonances that stay for a vowel each; neighbouring vowels are cross-faded."""
    step = fft.next_fast_len(round(SAMPLE_RATE / rate), real=True)
    window, total = np.hanning(2 * step + 1)[:-1], np.zeros(len(source) + 2 * step)
    frequency = fft.rfftfreq(2 * step, 1 / SAMPLE_RATE)
    for start in range(0, len(source), step):
        piece = np.zeros(2 * step)
        piece[: len(source[start : start + 2 * step])] = source[start : start + 2 * step]
        centres = rng.uniform([250, 800, 2200], [850, 2300, 3400])
        gain = resonances(frequency, centres, rng.uniform(60, 250, 3)) / (1 + (frequency / 3500) ** 2)
        total[start : start + 2 * step] += fft.irfft(fft.rfft(piece * window) * gain, 2 * step)
    return total[: len(source)]


FAMILIES: dict[str, Family] = {
    "coloured": coloured,
    "gusts": gusts,
    "hum": hum,
    "engine": engine,
    "impacts": impacts,
    "footsteps": footsteps,
    "scrapes": scrapes,
    "crackle": crackle,
    "beeps": beeps,
    "music": music,
    "talkers": talkers,
}
WEIGHTS = {"coloured": 1.5, "impacts": 2.0, "music": 1.5, "talkers": 1.5, "beeps": 0.6, "footsteps": 0.7}  # 1 where not named
