"""Rooms decay as asked and do not move the speech."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.audio import SAMPLE_RATE
from speechssl.augment import active_level, reverberate
from speechssl.signal import room_impulse

PROPERTY = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 2**32)


def steady(n: int = SAMPLE_RATE, seed: int = 0, level: float = 0.05) -> np.ndarray:
    """Something as loud everywhere, so that its active level is its RMS level."""
    return (level * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


def rms_db(samples: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(np.square(samples, dtype=np.float64))))


@PROPERTY
@given(seed=SEEDS, rt60=st.floats(0.1, 1.5), delay=st.integers(0, 500))
def test_reverberation_does_not_move_the_direct_path(seed: int, rt60: float, delay: int) -> None:
    speech = np.zeros(8000, np.float32)
    speech[3000] = 0.1
    impulse = np.concatenate([np.zeros(delay), room_impulse(np.random.default_rng(seed), rt60)])
    wet = reverberate(speech, impulse)
    assert wet.shape == speech.shape and int(np.argmax(np.abs(wet))) == 3000
    assert np.abs(wet[:3000]).max() < 1e-3 * np.abs(wet).max()  # nothing comes before it


def test_reverberation_keeps_the_level_and_reaches_into_pauses() -> None:
    speech = np.concatenate([steady(), np.zeros(SAMPLE_RATE // 2, np.float32)])
    wet = reverberate(speech, room_impulse(np.random.default_rng(0), 0.6))
    assert active_level(wet) == pytest.approx(active_level(speech), abs=0.01)
    assert rms_db(wet[16000:17600]) > rms_db(speech) - 20


@pytest.mark.parametrize("rt60", [0.3, 0.6, 1.0])
def test_room_decays_in_the_asked_time(rt60: float) -> None:
    """Schroeder's backward integral between -5 and -25 dB (ISO 3382 T20), over ten rooms."""
    measured = []
    for seed in range(10):
        energy = np.cumsum(room_impulse(np.random.default_rng(seed), rt60)[::-1] ** 2)[::-1]
        decay = 10 * np.log10(energy / energy[0])
        measured.append(3 * int(np.argmax(decay < -25) - np.argmax(decay < -5)) / SAMPLE_RATE)
    assert np.mean(measured) == pytest.approx(rt60, rel=0.15)
    assert len({round(m, 6) for m in measured}) > 5  # the rooms differ


@pytest.mark.parametrize(("rt60", "distance"), [(0.0, 1.0), (9.0, 1.0), (float("nan"), 1.0), (0.5, 0.0), (0.5, 4.0)])
def test_impossible_room(rt60: float, distance: float) -> None:
    with pytest.raises(ValueError, match="must lie in"):
        room_impulse(np.random.default_rng(0), rt60, distance)


@pytest.mark.parametrize("impulse", [np.zeros(0), np.zeros(10)])
def test_empty_impulse(impulse: np.ndarray) -> None:
    with pytest.raises(ValueError, match="empty or zero"):
        reverberate(steady(), impulse)
