"""The active level: pauses count for nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.audio import SAMPLE_RATE
from speechssl.augment import active_level

PROPERTY = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 2**32)


def steady(n: int = SAMPLE_RATE, seed: int = 0, level: float = 0.05) -> np.ndarray:
    """Something as loud everywhere, so that its active level is its RMS level."""
    return (level * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


def rms_db(samples: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(np.square(samples, dtype=np.float64))))


@PROPERTY
@given(n=st.integers(1, 5000), seed=SEEDS)
def test_level_without_pauses_is_the_rms_level(n: int, seed: int) -> None:
    samples = np.sign(steady(n, seed)) * 0.1
    assert active_level(samples) == pytest.approx(rms_db(samples), abs=1e-6)


@PROPERTY
@given(pauses=st.lists(st.integers(0, 30), min_size=3, max_size=3), gain=st.floats(0.01, 3))
def test_level_ignores_pauses_and_follows_gain(pauses: list[int], gain: float) -> None:
    parts = [steady(6400, 1), steady(6400, 2)]
    gaps = [1e-4 * steady(320 * p, 3) for p in pauses]
    samples = np.concatenate([gaps[0], parts[0], gaps[1], parts[1], gaps[2]])
    assert active_level(gain * samples) == pytest.approx(rms_db(np.concatenate(parts)) + 20 * np.log10(gain), abs=1e-3)


def test_level_of_silence() -> None:
    assert active_level(np.zeros(1000)) == -np.inf
    with pytest.raises(ValueError, match="no samples"):
        active_level(np.zeros(0))
