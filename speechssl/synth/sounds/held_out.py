"""The families of sounds that are never in training: for the test in noise that is new to an encoder. None is in `seen` or `dev`.

A family is a function of (n samples, generator), as there. What is shared is arithmetic (`shapes`), not a sound: but for a faint
bed no steady noise, no struck objects, fixed tones, music or pulsed voices here; no drops, sweeps, keys, songs and murmurs there.
"""

from __future__ import annotations

import numpy as np
from scipy import signal

from speechssl.audio import SAMPLE_RATE
from speechssl.synth.sounds.shapes import Family, attack_decay, on_and_off, phase, poisson, strikes, tilted, unit, wander

CROWD = (10, 26)  # people: more than the seven of training


def droplets(n: int, rng: np.random.Generator) -> np.ndarray:
    """Rain, a fountain, pouring, bubbling: tones of bubbles that rise as they fade, many a second and of all sizes."""
    total = np.zeros(n)
    for _ in range(24):
        pitch, length = np.exp2(rng.uniform(np.log2(400), np.log2(5000))), round(rng.uniform(0.01, 0.09) * SAMPLE_RATE)
        rise = 1 + rng.uniform(0.1, 1) * np.arange(length) / length
        drop = np.sin(phase(np.minimum(pitch * rise, 7600))) * attack_decay(length, 0.001, length / SAMPLE_RATE)
        times = poisson(n, rng, np.exp(rng.uniform(np.log(0.3), np.log(30))))
        total += strikes(n, times, rng.exponential(1, len(times)) * rng.choice([-1, 1], len(times)), drop)
    return total


def sirens(n: int, rng: np.random.Generator) -> np.ndarray:
    """Ambulances, whistles, sweeping alarms: one or two loud tones that go up and down all the time."""
    total = np.zeros(n)
    for _ in range(rng.integers(1, 3)):
        time, rate = np.arange(n) / SAMPLE_RATE, np.exp(rng.uniform(np.log(0.15), np.log(6)))
        sweep = signal.sawtooth(2 * np.pi * (rate * time + rng.random()), rng.choice([0.5, 0.9, 0.1]))
        frequency = rng.uniform(500, 1800) * 2 ** (rng.uniform(0.3, 1.2) * sweep)
        tone = np.tanh(rng.uniform(0.5, 4) * np.sin(phase(np.minimum(frequency, 3500))))
        total += unit(tone) * 10 ** (4 * wander(n, rng, 0.3) / 20) * rng.uniform(0.3, 1)
    return total


def crowd(n: int, rng: np.random.Generator) -> np.ndarray:
    """A hall full of people: ten to twenty-five murmurs, each noise in bands that come and go like syllables; and some applause."""
    total, voices = np.zeros(n), rng.integers(*CROWD)
    for centre in rng.uniform(300, 2500, 5):  # what differs most between the voices is when they speak
        band = unit(tilted(n, rng, -6, 3, (centre / 2, centre * 1.5)))
        for _ in range(voices // 5):
            total += np.maximum(wander(n, rng, rng.uniform(4, 8)), 0) * rng.uniform(0.3, 1) * np.roll(band, rng.integers(n))
    claps = poisson(n, rng, rng.uniform(5, 60))
    clap = tilted(1200, rng, 0, 3, (700, 3500)) * attack_decay(1200, 0.001, 0.05)
    applause = strikes(n, claps, rng.uniform(0.2, 1, len(claps)), clap) * on_and_off(n, rng, 2, 4)
    return unit(total) + rng.uniform(0, 0.5) * unit(applause)


def typing(n: int, rng: np.random.Generator) -> np.ndarray:
    """A keyboard or mouse: pairs of dry clicks, down and up, in bursts of words, each key a little different."""
    total = np.zeros(n)
    gate = on_and_off(n, rng, rng.uniform(0.5, 3), rng.uniform(0.2, 1))
    for _ in range(8):
        key = tilted(320, rng, rng.uniform(0, 6), 6, (rng.uniform(500, 2500), 8000)) * attack_decay(320, 0.0005, 0.012)
        times = poisson(n, rng, rng.uniform(0.5, 2))
        times = times[gate[times] > 0.5]
        up = np.minimum(times + rng.integers(800, 2000, len(times)), n - 1)
        total += strikes(n, np.r_[times, up], np.r_[rng.uniform(0.5, 1, len(times)), rng.uniform(0.1, 0.5, len(up))], key)
    return total + 0.01 * unit(tilted(n, rng, -3, 0)) * max(float(np.abs(total).max()), 1e-3)


def printer(n: int, rng: np.random.Generator) -> np.ndarray:
    """A printer or plotter: a stepping motor that jumps between speeds, its carriage going to and fro, and dry ratchets."""
    step, speeds = round(rng.uniform(0.1, 0.5) * SAMPLE_RATE), np.exp2(rng.uniform(np.log2(150), np.log2(1200), 6))
    speed = np.resize(np.repeat(rng.choice(speeds, 64), step), n)
    motor = signal.square(phase(speed), rng.uniform(0.1, 0.5)) * np.resize(np.repeat(rng.random(64) < 0.7, step), n)
    motor = signal.sosfilt(
        signal.butter(2, [rng.uniform(200, 600), rng.uniform(2000, 5000)], "band", fs=SAMPLE_RATE, output="sos"), motor
    )
    teeth = np.arange(int(rng.integers(400)), n, round(rng.uniform(0.015, 0.05) * SAMPLE_RATE))
    tooth = tilted(160, rng, 3, 3) * attack_decay(160, 0.0005, 0.006)
    return unit(motor) + rng.uniform(0.3, 1.5) * unit(strikes(n, teeth, rng.uniform(0.5, 1, len(teeth)), tooth))


def birdsong(n: int, rng: np.random.Generator) -> np.ndarray:
    """Birds: short phrases of fast whistled glides and trills, each bird with its own phrase, repeated."""
    total = np.zeros(n)
    for _ in range(rng.integers(1, 5)):
        song = np.concatenate([_syllable(rng) for _ in range(rng.integers(2, 7))])
        times = poisson(n, rng, rng.uniform(0.3, 1.2))
        total += strikes(n, times, rng.uniform(0.4, 1, len(times)), song) * rng.uniform(0.3, 1)
    return total + 0.02 * unit(tilted(n, rng, -3, 0)) * max(float(np.abs(total).max()), 1e-3)


def _syllable(rng: np.random.Generator) -> np.ndarray:
    length = round(rng.uniform(0.04, 0.25) * SAMPLE_RATE)
    time = np.arange(length) / length
    glide = rng.uniform(-0.8, 0.8) * time + rng.uniform(0, 0.15) * np.sin(2 * np.pi * rng.uniform(2, 12) * time)
    whistle = np.sin(phase(np.clip(rng.uniform(2000, 5500) * 2**glide, 1000, 7600))) * np.hanning(length)
    return np.pad(whistle, (0, round(rng.uniform(0.01, 0.1) * SAMPLE_RATE)))


FAMILIES: dict[str, Family] = {
    "droplets": droplets,
    "sirens": sirens,
    "crowd": crowd,
    "typing": typing,
    "printer": printer,
    "birdsong": birdsong,
}
