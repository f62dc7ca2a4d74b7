"""MFCCs at the right time on any grid; from audio to units: the same however it is cut and whoever
asks, the right encoder only."""

from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
import torch
import torchaudio.compliance.kaldi as kaldi

from speechssl.audio import read_audio, write_flac
from speechssl.encoders.encoder import Chunking
from speechssl.timing import FrameGrid
from speechssl.units.codebook import cheapest_path
from speechssl.units.features import extractor_of, load_extractor, load_features, smooth
from speechssl.units.measures import normalised_distance
from speechssl.units.spectral import nearest_rows, spectral_encoder, spectral_stream

from ..files import refused

HUBERT = FrameGrid(16_000, 320, 400)
SMALL = FrameGrid(16_000, 320, 745)  # the small HuBERT that ships


def mfcc(samples, grid):
    return torch.cat(list(spectral_stream(samples, grid, "mfcc")))


def noise(samples, seed=0):
    return np.random.default_rng(seed).uniform(-0.5, 0.5, samples).astype(np.float32)


def test_static_coefficients_are_kaldis_at_the_frames_centre():
    """HuBERT's frame t sees the 25 ms from 20 t ms on: the 10 ms row 2 t sees the same samples."""
    samples = noise(8_000)
    wave = torch.from_numpy(samples)[None] * 32768
    static = kaldi.mfcc(wave, sample_frequency=16_000, use_energy=False, dither=0.0)
    rows = mfcc(samples, HUBERT)
    assert torch.equal(rows[:, :13], static[: 2 * len(rows) : 2])
    mel = torch.cat(list(load_features("fbank", None).stream(samples)))
    wanted = kaldi.fbank(wave, num_mel_bins=80, sample_frequency=16_000, dither=0.0)
    rows = nearest_rows(SMALL, np.arange(len(mel)), len(wanted))
    assert torch.equal(mel, wanted[rows])


def differences(rows):
    """Slope of a line through five rows: (R, 13) -> (R - 4, 13)."""
    return (rows[3:-1] - rows[1:-3] + 2 * (rows[4:] - rows[:-4])) / 10


def test_differences_are_slopes_at_100_hz():
    samples = noise(8_000)
    wave = torch.from_numpy(samples)[None] * 32768
    first = differences(kaldi.mfcc(wave, sample_frequency=16_000, use_energy=False, dither=0.0))
    rows = mfcc(samples, HUBERT)[2:-2]
    second, n = differences(first), len(rows)
    wanted = torch.cat([first[2::2][:n], second[::2][:n]], dim=1)
    torch.testing.assert_close(rows[:, 13:], wanted, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("grid", [HUBERT, SMALL, FrameGrid(16_000, 640, 1_000)])
def test_the_row_nearest_to_the_middle_of_a_frame_is_taken(grid):
    frames = np.arange(grid.frames(16_000))
    rows = nearest_rows(grid, frames, 98)
    middles = frames * grid.hop + grid.offset + grid.hop / 2
    centres = np.arange(98) * 160 + 200
    nearest = np.abs(middles[:, None] - centres).min(1)
    assert np.allclose(np.abs(middles - centres[rows]), nearest, atol=1)
    assert rows.min() >= 0 and rows.max() <= 97


@pytest.mark.parametrize(("grid", "piece"), [(HUBERT, 7), (SMALL, 50)])
def test_pieces_are_the_whole(grid, piece, monkeypatch):
    """To rounding (1e-5 here): MKL sums a product of one row otherwise than one of many, and which
    it does so with depends on the processor. A piece that sees one row too few of its neighbours is
    off by 0.4 or more."""
    samples = noise(24_000)
    whole = mfcc(samples, grid)
    monkeypatch.setattr("speechssl.units.spectral._PIECE", piece)
    pieces = list(spectral_stream(samples, grid, "mfcc"))
    assert len(pieces) > 1
    torch.testing.assert_close(torch.cat(pieces), whole, atol=1e-4, rtol=0)


# ---- units


def test_units_are_the_nearest_centroids_of_the_layer(encoder, codebook_for):
    extractor = extractor_of(encoder, codebook_for(encoder))
    samples = noise(9_000)
    features = encoder.hidden_states(samples)[1].numpy()
    nearest = np.square(features[:, None] - extractor.codebook.centroids).sum(-1).argmin(1)
    assert np.array_equal(extractor.frames(samples), nearest)
    units = extractor.units(samples)
    assert np.array_equal(units.expand(), nearest)
    assert units.seconds == 9_000 / 16_000


def test_the_codebook_says_how_much_to_smooth(encoder, codebook_for):
    samples, plain = noise(9_000), codebook_for(encoder)
    smoothed = extractor_of(encoder, codebook_for(encoder, smooth=5))
    features = encoder.features(samples, 1)
    expected = torch.stack([features[max(t - 2, 0) : t + 3].mean(0) for t in range(len(features))])
    assert np.array_equal(smoothed.frames(samples), plain.assign(expected))
    # it goes on across the pieces of long audio
    pieces, samples = replace(encoder, chunking=Chunking(1.0, 0.5)), noise(70_123)
    whole = smooth(pieces.features(samples, 1), 5)
    found = extractor_of(pieces, codebook_for(encoder, smooth=5)).frames(samples)
    assert np.array_equal(found, plain.assign(whole))


@pytest.mark.parametrize("card", [{"encoder": "0123456789abcdef"}, {"frame_rate": 25.0}])
def test_a_codebook_of_another_encoder_is_refused(encoder, codebook_for, card):
    refused("was not fitted on .*; give that", extractor_of, encoder, codebook_for(encoder, **card))


def test_features_that_are_not_finite_give_no_units(extractor):
    with pytest.raises(ValueError, match="samples hold numbers that are not finite"):
        extractor.frames(np.full(9_000, np.nan, np.float32))
    broken = replace(extractor.features, raw=lambda samples: iter([torch.full((9, 32), torch.nan)]))
    with pytest.raises(ValueError, match="features that are not finite"):
        replace(extractor, features=broken).frames(np.zeros(9_000, np.float32))


def test_a_price_on_changes_gives_the_cheapest_of_all_sequences():
    costs = np.random.default_rng(0).random((6, 3))

    def cost(path, price):
        return costs[np.arange(6), path].sum() + price * np.count_nonzero(np.diff(path))

    for price in (0.0, 0.2, 0.5, 9.0):
        best = min(product(range(3), repeat=6), key=lambda path: cost(np.array(path), price))
        assert cheapest_path(costs, price).tolist() == list(best)


def test_units_with_a_price_are_fewer_and_say_so(extractor):
    dear = replace(extractor, price=30.0)
    samples = noise(16_000)
    assert len(dear.units(samples).units) < len(extractor.units(samples).units)
    free = extractor.codebook.segment(torch.cat(list(extractor.features.stream(samples))), 0.0)
    assert free.tolist() == extractor.frames(samples).tolist()


@pytest.mark.parametrize("width", [1, 5])
def test_a_margin_is_silence_around_a_recording_and_no_frame_more(hubert_folder, width):
    samples = np.random.default_rng(0).normal(0, 0.1, 9_000).astype(np.float32)
    folder = str(hubert_folder("layer"))
    plain, wide = (load_features(folder, 1, width, margin=margin) for margin in (0, 7))
    found = torch.cat(list(wide.stream(samples)))
    padded = torch.cat(list(plain.stream(np.pad(samples, 7 * wide.grid.hop))))
    assert len(found) == wide.grid.frames(len(samples)) and torch.equal(found, padded[7:-7])
    pieces = replace(wide, raw=lambda x: iter(torch.cat(list(plain.raw(x))).split(3)))
    assert torch.equal(torch.cat(list(pieces.stream(samples))), found)
    with pytest.raises(ValueError, match="fewer than"):
        list(wide.stream(samples[:100]))


FSDD = Path(__file__).parents[3] / "shared/data/fsdd/recordings"


@pytest.mark.slow
@pytest.mark.skipif(not FSDD.is_dir(), reason="the Free Spoken Digit Dataset is not here")
def test_the_shipped_units_of_people_are_those_of_the_word_and_not_of_the_voice():
    extractor = load_extractor("people-en/encoder", Path("people-en/words.safetensors"))
    names = list(product(range(4), ("george", "jackson", "theo")))
    runs = {
        (digit, who): extractor.units(read_audio(FSDD / f"{digit}_{who}_0.wav")).units
        for digit, who in names
    }
    far = {True: [], False: []}
    for one, other in combinations(names, 2):
        if one[1] != other[1]:
            far[one[0] == other[0]].append(normalised_distance(runs[one], runs[other]))
    assert np.mean([s < o for s in far[True] for o in far[False]]) > 0.9


@pytest.mark.parametrize("margin", [0, 2])
def test_hours_in_a_file_have_the_units_of_memory(
    encoder, codebook_for, margin, tmp_path, monkeypatch
):
    write_flac(tmp_path / "a.flac", np.random.default_rng(0).uniform(-0.5, 0.5, 300_000))
    extractor = extractor_of(encoder, codebook_for(encoder, smooth=3, margin=margin))
    wanted = extractor.frames(read_audio(tmp_path / "a.flac"))
    for module in ("audio", "encoders.encoder"):
        monkeypatch.setattr(f"speechssl.{module}.LONG", 100_000)
    mapped = read_audio(tmp_path / "a.flac")
    assert isinstance(mapped, np.memmap)
    assert np.array_equal(extractor.frames(mapped), wanted)


@pytest.mark.parametrize(("kind", "width"), [("fbank", 80), ("mfcc", 39)])
def test_spectral_features_are_an_encoder_of_one_state(kind, width):
    encoder, samples = spectral_encoder(kind), noise(16_123)
    states = encoder.hidden_states(samples)
    assert states.shape == (1, encoder.grid.frames(16_123), width) == (1, 99, width)
    # loudness is no cue
    assert torch.allclose(encoder.hidden_states(3 * samples), states, atol=1e-2)
    with pytest.raises(ValueError, match="399 samples are fewer than the 400"):
        encoder.hidden_states(samples[:399])
