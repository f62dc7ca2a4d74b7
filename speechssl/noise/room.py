"""Impulse responses of simulated rooms, for `noise.reverberate`: no recordings needed, any reverberation time."""

from __future__ import annotations

import numpy as np
from scipy import signal

from speechssl.audio import SAMPLE_RATE

SOUND = 343.0  # metres a second
EARLY = 0.08  # seconds of separate reflections; later ones are too dense to tell apart
LOW_CUT = 100.0  # Hz; after Allen & Berkley 1979: images of one sign build up an offset that no room has
RT60_RANGE = (0.05, 5.0)  # seconds
FARTHEST = 1.7  # metres between talker and microphone that fit into every room drawn here


def room_impulse(rng: np.random.Generator, rt60: float, distance: float = 1.5, sample_rate: int = SAMPLE_RATE) -> np.ndarray:
    """Impulse response (M,) of a random room of 60 to 170 cubic metres; sample 0 is the direct path, of height about 1.

    rt60: seconds in which sound falls by 60 dB, in [0.05, 5]; distance of talker and microphone: metres, at most 1.7.
    Reflections of the first 80 ms by the image method for a shoebox (Allen & Berkley, JASA 65(4), 1979), walls
    absorbing by Eyring's formula; then noise decaying at the same rate (Lehmann & Johansson, IEEE TASLP 18(6), 2010).
    Raises ValueError for an rt60 or a distance outside these ranges.
    """
    if not RT60_RANGE[0] <= rt60 <= RT60_RANGE[1] or not 0 < distance <= FARTHEST:
        raise ValueError(f"rt60 {rt60} s must lie in {RT60_RANGE}, distance {distance} m in (0, {FARTHEST}]")
    room = rng.uniform([5.0, 4.5, 2.7], [8.0, 6.0, 3.5])
    microphone = room * [*rng.uniform(0.4, 0.6, 2), rng.uniform(0.35, 0.65)]
    angle = rng.uniform(0, 2 * np.pi)
    talker = microphone + distance * np.array([np.cos(angle), np.sin(angle), 0.0])
    early = _images(room, talker, microphone, _reflection(room, rt60), round(EARLY * sample_rate), sample_rate)
    impulse = _with_tail(early, rng, rt60, sample_rate)
    return np.asarray(signal.sosfilt(signal.butter(2, LOW_CUT, "highpass", fs=sample_rate, output="sos"), impulse))


def _reflection(room: np.ndarray, rt60: float) -> float:
    """Amplitude kept at each wall: Eyring's rt60 = 0.161 V / (-S ln(1 - absorption)), reflection² = 1 - absorption."""
    surface = 2 * float(room[0] * room[1] + room[1] * room[2] + room[0] * room[2])
    return float(np.exp(-0.161 * room.prod() / (2 * surface * rt60)))


def _images(
    room: np.ndarray, talker: np.ndarray, microphone: np.ndarray, reflection: float, size: int, sample_rate: int
) -> np.ndarray:
    """(size,) arrivals of all images of the talker, relative to the direct path in time and height."""
    reach = size / sample_rate * SOUND + np.linalg.norm(talker - microphone)
    orders = np.ceil(reach / (2 * room)).astype(int)
    squares, walls = [], []
    for axis in range(3):  # images at 2rL ± x, after |r - q| + |r| walls; q = 1 mirrors the talker
        r, q = np.meshgrid(np.arange(-orders[axis], orders[axis] + 1), [0, 1], indexing="ij")
        squares.append((2 * r * room[axis] + (1 - 2 * q) * talker[axis] - microphone[axis]).ravel() ** 2)
        walls.append((np.abs(r - q) + np.abs(r)).ravel())
    distances = np.sqrt(np.add.outer(np.add.outer(*squares[:2]), squares[2])).ravel()
    bounces = np.add.outer(np.add.outer(*walls[:2]), walls[2]).ravel()
    direct = np.linalg.norm(talker - microphone)
    at = np.rint((distances - direct) / SOUND * sample_rate).astype(int)
    near = at < size
    return np.bincount(at[near], (reflection**bounces * direct / distances)[near], minlength=size)


def _with_tail(early: np.ndarray, rng: np.random.Generator, rt60: float, sample_rate: int) -> np.ndarray:
    """Continue the early reflections with decaying noise, at the power that their second half has."""
    seconds = np.arange(max(round(rt60 * sample_rate), len(early))) / sample_rate
    tail = rng.standard_normal(len(seconds)) * 10 ** (-3 * seconds / rt60)
    half = len(early) // 2
    tail *= np.sqrt(np.sum(early[half:] ** 2) / np.sum(tail[half : len(early)] ** 2))
    tail[: len(early)] = early
    return tail
