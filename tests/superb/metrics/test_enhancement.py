"""SI-SDR, PESQ and STOI: equal to the formula and the libraries on random estimates; silence, NaN and a missing library."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.errors import MissingExtra
from speechssl.superb.tasks.enhancement import LIMIT, SILENT, WORST_PESQ, pesq_wideband, si_sdr, si_sdr_improvement, stoi_percent


def speechlike(seed, seconds=2.0):
    """Noise in syllables."""
    rng = np.random.default_rng(seed)
    count = int(16_000 * seconds)
    envelope = np.repeat(rng.random(count // 1600 + 1) ** 2, 1600)[:count]
    return (0.2 * envelope * rng.standard_normal(count)).astype(np.float32)


def noisy(clean, seed, level):
    return (clean + level * np.random.default_rng(seed).standard_normal(len(clean))).astype(np.float32)


@given(st.integers(2, 4000), st.floats(1e-3, 30), st.integers(0, 999))
def test_si_sdr_is_the_formula(length, level, seed):
    """Le Roux and others (2018), equation 5, and in decibels: |αs|² over |αs - ŝ|² with α = ŝ·s / |s|²."""
    clean = np.random.default_rng(seed).standard_normal(length)
    estimate = clean + level * np.random.default_rng(seed + 1).standard_normal(length)
    scaled = np.dot(estimate, clean) / np.linalg.norm(clean) ** 2 * clean
    wanted = 20 * np.log10(np.linalg.norm(scaled) / np.linalg.norm(scaled - estimate))
    assert si_sdr(clean, estimate) == pytest.approx(wanted, abs=1e-6)
    assert si_sdr(clean, -3e-4 * estimate) == pytest.approx(si_sdr(clean, estimate), abs=1e-6)


def test_si_sdr_at_its_ends():
    clean = speechlike(0)
    assert si_sdr(clean, 2 * clean) == LIMIT
    assert si_sdr(clean, 0 * clean) == si_sdr(clean, np.full_like(clean, np.nan)) == SILENT
    assert si_sdr(np.array([1.0, 0]), np.array([0, 1.0])) == -LIMIT
    for reference in (0 * clean, clean[:-1]):
        with pytest.raises(ValueError, match="as long and not silent"):
            si_sdr(reference, clean)


def test_improvement_is_in_the_better_order():
    clean = np.stack([speechlike(0), speechlike(1)])
    mixture = clean.sum(0)
    found = np.stack([noisy(clean[1], 2, 0.01), noisy(clean[0], 3, 0.01)])
    wanted = np.mean([si_sdr(clean[0], found[1]), si_sdr(clean[1], found[0])]) - np.mean([si_sdr(c, mixture) for c in clean])
    assert si_sdr_improvement(clean, found, mixture) == pytest.approx(wanted)
    assert wanted > 10 and si_sdr_improvement(clean, np.stack([mixture, mixture]), mixture) == pytest.approx(0)


@pytest.mark.parametrize("level", [1e-4, 0.01, 0.3])
def test_pesq_and_stoi_are_the_libraries(level):
    pesq = pytest.importorskip("pesq", reason="the optional extra superb is not installed")
    stoi = pytest.importorskip("pystoi", reason="the optional extra superb is not installed").stoi
    clean = speechlike(5)
    estimate = noisy(clean, 6, level)
    assert pesq_wideband(clean, estimate) == pesq.pesq(16_000, clean, estimate, "wb")
    assert stoi_percent(clean, estimate) == 100 * stoi(clean, estimate, 16_000)


def test_more_noise_is_worse_and_silence_is_worst():
    pytest.importorskip("pesq", reason="the optional extra superb is not installed")
    pytest.importorskip("pystoi", reason="the optional extra superb is not installed")
    clean = speechlike(7)
    for measure in (pesq_wideband, stoi_percent):
        good, bad = (measure(clean, noisy(clean, 8, level)) for level in (0.001, 0.1))
        assert good > bad > measure(clean, 0 * clean) - 1e-9
        assert measure(clean, np.full_like(clean, np.inf)) == (WORST_PESQ if measure is pesq_wideband else 0)
    assert pesq_wideband(clean, 0 * clean) == pesq_wideband(clean[:2000], clean[:2000]) == WORST_PESQ


@pytest.mark.parametrize(("package", "measure"), [("pesq", pesq_wideband), ("pystoi", stoi_percent)])
def test_without_the_library(monkeypatch, package, measure):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"speechssl\[superb\]"):
        measure(speechlike(0), speechlike(0))
