"""Nothing moves in time, and what is random depends on seed, kind and utterance alone."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from speechssl.audio import SAMPLE_RATE
from speechssl.noise import (
    Condition,
    Distorter,
    NoiseBank,
    distort,
    parse_condition,
)

ROOT = Path(__file__).parents[2]


def steady(n: int = SAMPLE_RATE, seed: int = 0, level: float = 0.05) -> np.ndarray:
    """Something as loud everywhere, so that its active level is its RMS level."""
    return (level * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


CONDITIONS = ["pink@10", "gaussian@0", "babble@5", "reverb@0.4", "pitch@3", "band@500-1500"]


@pytest.mark.parametrize("text", CONDITIONS)
@pytest.mark.parametrize("n", [800, 16_001])
def test_length_and_type_are_kept_and_the_input_is_not_touched(text: str, n: int, voices: tuple[Path, ...]) -> None:
    samples = steady(n)
    before = samples.copy()
    distorted = Distorter(0, voices).apply(samples, parse_condition(text), "u1")
    assert distorted.shape == (n,) and distorted.dtype == np.float32 and np.abs(distorted).max() <= 1
    np.testing.assert_array_equal(samples, before)
    assert not np.array_equal(distorted, samples)


def test_clean_is_the_input() -> None:
    samples = steady()
    assert distort(samples, Condition("clean"), "u1") is samples


def test_order_and_workers_do_not_matter(voices: tuple[Path, ...]) -> None:
    distorter, jobs = Distorter(3, voices), [(parse_condition(c), f"u{i}") for c in CONDITIONS for i in range(3)]
    samples = steady(4000)
    forwards = [distorter.apply(samples, *job) for job in jobs]
    backwards = [Distorter(3, voices).apply(samples, *job) for job in reversed(jobs)][::-1]
    with ThreadPoolExecutor(2) as pool:
        parallel = list(pool.map(lambda job: distorter.apply(samples, *job), jobs))
    for one, two, three in zip(forwards, backwards, parallel, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


def test_another_process_draws_the_same() -> None:
    program = "from speechssl.noise import NoiseBank; print(NoiseBank('pink', seed=7).sample('u1', 5).tolist())"
    printed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == str(NoiseBank("pink", seed=7).sample("u1", 5).tolist())


@pytest.mark.parametrize("text", ["pink@10", "babble@5", "reverb@0.4"])
def test_utterances_and_seeds_differ(text: str, voices: tuple[Path, ...]) -> None:
    samples, condition = steady(4000), parse_condition(text)
    results = [Distorter(s, voices).apply(samples, condition, u) for s, u in [(0, "u1"), (0, "u2"), (1, "u1")]]
    assert len({r.tobytes() for r in results}) == 3


def test_every_snr_has_the_same_noise() -> None:
    samples = steady(8000, 0, 0.01)
    added = [distort(samples, parse_condition(f"pink@{snr}"), "u1").astype(np.float64) - samples for snr in (0, 10)]
    np.testing.assert_allclose(added[0], added[1] * np.sqrt(10), atol=1e-6)
