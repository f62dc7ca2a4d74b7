"""MFCC targets: one row a frame, at the right time, on any grid."""

import numpy as np
import pytest
import torch
import torchaudio.compliance.kaldi as kaldi

from speechssl.timing import FrameGrid
from speechssl.units.features import mfcc, mfcc_rows, mfcc_stream

HUBERT = FrameGrid(16_000, 320, 400)
SMALL = FrameGrid(16_000, 320, 745)  # the small HuBERT that ships


def noise(samples, seed=0):
    return np.random.default_rng(seed).uniform(-0.5, 0.5, samples).astype(np.float32)


@pytest.mark.parametrize("grid", [HUBERT, SMALL])
@pytest.mark.parametrize("samples", [745, 1_064, 1_065, 16_000, 16_321])
def test_one_row_of_39_a_frame(grid, samples):
    rows = mfcc(noise(samples), grid)
    assert rows.shape == (grid.frames(samples), 39) and rows.dtype == torch.float32
    assert torch.isfinite(rows).all()


@pytest.mark.parametrize("grid", [HUBERT, SMALL])
def test_a_shift_by_one_hop_shifts_the_rows_by_one(grid):
    samples = noise(16_000)
    whole, later = mfcc(samples, grid), mfcc(samples[grid.hop :], grid)
    # The first rows differ: differences reach two 10 ms rows back, twice.
    torch.testing.assert_close(whole[4:-3], later[3:-3], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(whole[3:-4], later[3:-3], atol=1.0)


def test_static_coefficients_are_kaldis_at_the_frames_centre():
    """HuBERT's frame t sees the 25 ms from 20 t ms on: the 10 ms row 2 t sees the same samples."""
    samples = noise(8_000)
    wave = torch.from_numpy(samples)[None] * 32768
    static = kaldi.mfcc(wave, sample_frequency=16_000, use_energy=False, dither=0.0)
    rows = mfcc(samples, HUBERT)
    assert torch.equal(rows[:, :13], static[: 2 * len(rows) : 2])


def differences(rows):
    """Slope of a line through five rows: (R, 13) -> (R - 4, 13)."""
    return (rows[3:-1] - rows[1:-3] + 2 * (rows[4:] - rows[:-4])) / 10


def test_differences_are_slopes_at_100_hz():
    samples = noise(8_000)
    wave = torch.from_numpy(samples)[None] * 32768
    first = differences(kaldi.mfcc(wave, sample_frequency=16_000, use_energy=False, dither=0.0))
    rows, second = mfcc(samples, HUBERT), differences(first)
    torch.testing.assert_close(rows[2:-2, 13:26], first[2 : 2 * len(rows) - 6 : 2], atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(rows[2:-2, 26:], second[: 2 * len(rows) - 8 : 2], atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("grid", [HUBERT, SMALL, FrameGrid(16_000, 160, 400), FrameGrid(16_000, 640, 1_000)])
def test_the_row_nearest_to_the_middle_of_a_frame_is_taken(grid):
    frames = np.arange(grid.frames(16_000))
    rows = mfcc_rows(grid, frames, 98)
    middles = frames * grid.hop + grid.offset + grid.hop / 2
    centres = np.arange(98) * 160 + 200
    nearest = np.abs(middles[:, None] - centres).min(1)
    assert np.allclose(np.abs(middles - centres[rows]), nearest, atol=1)
    assert rows.min() >= 0 and rows.max() <= 97


@pytest.mark.parametrize("grid", [HUBERT, SMALL, FrameGrid(16_000, 160, 400), FrameGrid(16_000, 640, 1_000)])
@pytest.mark.parametrize("piece", [1, 7, 50, 99])
def test_pieces_are_the_whole(grid, piece, monkeypatch):
    """To rounding (1e-5 here): MKL sums a product of one row otherwise than one of many, and which it does so with depends on the
    processor. A piece that sees one row too few of its neighbours is off by 0.4 or more."""
    samples = noise(24_000)
    whole = mfcc(samples, grid)
    monkeypatch.setattr("speechssl.units.features._PIECE", piece)
    pieces = list(mfcc_stream(samples, grid))
    assert len(pieces) > 1
    torch.testing.assert_close(torch.cat(pieces), whole, atol=1e-4, rtol=0)


def test_less_than_a_window_is_refused():
    with pytest.raises(ValueError, match="399 samples are fewer than the 400 that one frame needs"):
        mfcc(noise(399), HUBERT)
