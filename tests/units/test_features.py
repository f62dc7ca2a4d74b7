"""Tests of spectral features, which must stand at the right time on any grid, and of the way from
samples to units: it does not depend on how a recording is cut, and refuses another encoder."""

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
from speechssl.units.codebook import find_cheapest_path
from speechssl.units.features import load_extractor, load_features, make_extractor, smooth
from speechssl.units.measures import measure_distance
from speechssl.units.spectral import find_nearest_rows, make_spectral_encoder, stream_spectral

from ..files import refused

HUBERT = FrameGrid(16_000, 320, 400)
SMALL = FrameGrid(16_000, 320, 745)  # the small HuBERT that ships


def mfcc(samples, grid):
    return torch.cat(list(stream_spectral(samples, grid, "mfcc")))


def noise(samples, seed=0):
    return np.random.default_rng(seed).uniform(-0.5, 0.5, samples).astype(np.float32)


def mfcc_of_kaldi(samples):
    wave = torch.from_numpy(samples)[None] * 32768
    return kaldi.mfcc(wave, sample_frequency=16_000, use_energy=False, dither=0.0)


def test_static_coefficients_and_log_mel_energies_are_kaldis_at_the_frames_centre():
    """HuBERT's frame t sees the 25 ms from 20 t ms on: the 10 ms row 2 t sees the same samples."""
    samples = noise(8_000)
    rows = mfcc(samples, HUBERT)
    assert torch.equal(rows[:, :13], mfcc_of_kaldi(samples)[: 2 * len(rows) : 2])
    mel = torch.cat(list(load_features("fbank", None).stream(samples)))
    wave = torch.from_numpy(samples)[None] * 32768
    wanted = kaldi.fbank(wave, num_mel_bins=80, sample_frequency=16_000, dither=0.0)
    assert torch.equal(mel, wanted[find_nearest_rows(SMALL, np.arange(len(mel)), len(wanted))])


def compute_slopes(rows):
    """Return the slope of a line through each five rows: (R, 13) -> (R - 4, 13)."""
    return (rows[3:-1] - rows[1:-3] + 2 * (rows[4:] - rows[:-4])) / 10


def test_differences_are_slopes_at_100_hz():
    samples = noise(8_000)
    first = compute_slopes(mfcc_of_kaldi(samples))  # row i belongs to row i + 2 of the MFCCs
    second = compute_slopes(first)  # to row i + 4
    # HuBERT's frame t is row 2 t of them; at the edges rows are padded
    frames = mfcc(samples, HUBERT)[2:-2]
    wanted = torch.cat([first[2::2][: len(frames)], second[::2][: len(frames)]], dim=1)
    torch.testing.assert_close(frames[:, 13:], wanted, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("grid", [HUBERT, SMALL, FrameGrid(16_000, hop=640, receptive=1_000)])
def test_the_row_nearest_to_the_middle_of_a_frame_is_taken(grid):
    frames = np.arange(grid.count_frames(16_000))
    count = 98  # windows of 400 samples every 160 in 16,000 samples
    rows = find_nearest_rows(grid, frames, count)
    middles = frames * grid.hop + grid.offset + grid.hop / 2
    centres = np.arange(count) * 160 + 200
    nearest = np.abs(middles[:, None] - centres).min(1)
    assert np.allclose(np.abs(middles - centres[rows]), nearest, atol=1)
    assert rows.min() >= 0
    assert rows.max() < count


@pytest.mark.parametrize(("grid", "chunk"), [(HUBERT, 7), (SMALL, 50)])
def test_chunks_are_the_whole(grid, chunk, monkeypatch):
    """They are equal to rounding (1e-5 here), since MKL may sum a product of one row otherwise than
    one of many. A chunk that sees one row too few of its neighbours is off by 0.4 or more."""
    samples = noise(24_000)
    whole = mfcc(samples, grid)
    monkeypatch.setattr("speechssl.units.spectral._CHUNK", chunk)
    chunks = list(stream_spectral(samples, grid, "mfcc"))
    assert len(chunks) > 1
    torch.testing.assert_close(torch.cat(chunks), whole, atol=1e-4, rtol=0)


# ---- units


def test_units_are_the_nearest_centroids_of_the_layer(encoder, codebook_for):
    extractor = make_extractor(encoder, codebook_for(encoder))
    samples = noise(9_000)
    features = encoder.hidden_states(samples)[1].numpy()
    nearest = np.square(features[:, None] - extractor.codebook.centroids).sum(-1).argmin(1)
    assert np.array_equal(extractor.extract_frames(samples), nearest)
    units = extractor.extract(samples)
    assert np.array_equal(units.expand(), nearest)
    assert units.seconds == 9_000 / 16_000


def test_the_codebook_says_how_much_to_smooth(encoder, codebook_for):
    samples, plain = noise(9_000), codebook_for(encoder)
    smoothed = make_extractor(encoder, codebook_for(encoder, smooth=5))
    features = encoder.features(samples, 1)
    expected = torch.stack([features[max(t - 2, 0) : t + 3].mean(0) for t in range(len(features))])
    assert np.array_equal(smoothed.extract_frames(samples), plain.assign(expected))


def test_smoothing_goes_on_across_the_chunks_of_long_audio(encoder, codebook_for):
    chunking_encoder = replace(encoder, chunking=Chunking(1.0, 0.5))
    samples = noise(70_123)
    whole = smooth(chunking_encoder.features(samples, 1), 5)
    units = make_extractor(chunking_encoder, codebook_for(encoder, smooth=5)).extract_frames(
        samples
    )
    assert np.array_equal(units, codebook_for(encoder).assign(whole))


@pytest.mark.parametrize("card", [{"encoder": "0123456789abcdef"}, {"frame_rate": 25.0}])
def test_a_codebook_of_another_encoder_is_refused(encoder, codebook_for, card):
    refused(
        "was not fitted on .*; give that", make_extractor, encoder, codebook_for(encoder, **card)
    )


def test_features_that_are_not_finite_give_no_units(extractor):
    with pytest.raises(ValueError, match="samples hold numbers that are not finite"):
        extractor.extract_frames(np.full(9_000, np.nan, np.float32))
    nan_features = torch.full((9, 32), torch.nan)
    broken = replace(extractor.features, raw=lambda samples: iter([nan_features]))
    with pytest.raises(ValueError, match="features .* not finite"):
        replace(extractor, features=broken).extract_frames(np.zeros(9_000, np.float32))


# ---- a price of changes: what a change of unit costs in dynamic programming


@pytest.mark.parametrize("price", [0.0, 0.2, 0.5, 9.0])
def test_the_cheapest_path_is_the_cheapest_of_all_sequences(price):
    frames, size = 6, 3
    costs = np.random.default_rng(0).random((frames, size))

    def sum_costs(path):
        changes = np.count_nonzero(np.diff(path))
        return costs[np.arange(frames), path].sum() + price * changes

    best = min(product(range(size), repeat=frames), key=sum_costs)
    assert find_cheapest_path(costs, price).tolist() == list(best)


def test_a_price_makes_units_fewer_and_none_gives_the_nearest_centroids(extractor):
    samples = noise(16_000)
    frames = extractor.extract_frames(samples)
    priced = replace(extractor, price=30.0).extract_frames(samples)
    assert np.count_nonzero(np.diff(priced)) < np.count_nonzero(np.diff(frames))
    features = torch.cat(list(extractor.features.stream(samples)))
    assert extractor.codebook.segment(features, price=0.0).tolist() == frames.tolist()


@pytest.mark.parametrize("width", [1, 5])
def test_a_margin_is_silence_around_a_recording_and_adds_no_frame(hubert_folder, width):
    samples = np.random.default_rng(0).normal(0, 0.1, 9_000).astype(np.float32)
    folder = str(hubert_folder("layer"))
    margin = 7  # frames
    plain = load_features(folder, layer=1, smooth=width)
    with_margin = load_features(folder, layer=1, smooth=width, margin=margin)
    features = torch.cat(list(with_margin.stream(samples)))
    assert len(features) == plain.grid.count_frames(len(samples))
    padded = np.pad(samples, margin * plain.grid.hop)
    features_of_padded = torch.cat(list(plain.stream(padded)))
    assert torch.equal(features, features_of_padded[margin:-margin])
    # the same in chunks of three frames
    cut = replace(with_margin, raw=lambda x: iter(torch.cat(list(plain.raw(x))).split(3)))
    assert torch.equal(torch.cat(list(cut.stream(samples))), features)
    with pytest.raises(ValueError, match="fewer than"):
        list(with_margin.stream(samples[:100]))


FSDD = Path(__file__).parents[3] / "shared/data/fsdd/recordings"


@pytest.mark.slow
@pytest.mark.skipif(not FSDD.is_dir(), reason="the Free Spoken Digit Dataset is not here")
def test_the_shipped_units_tell_words_and_not_voices():
    """Two speakers' units of one digit are nearer than those of two digits."""
    extractor = load_extractor("people-en/encoder", Path("people-en/words.safetensors"))
    units = {}  # by (digit, speaker)
    for digit, speaker in product(range(4), ("george", "jackson", "theo")):
        samples = read_audio(FSDD / f"{digit}_{speaker}_0.wav")
        units[digit, speaker] = extractor.extract(samples).units
    same_digit, other_digit = [], []  # distances
    for (digit, speaker), (second_digit, second_speaker) in combinations(units, 2):
        if speaker != second_speaker:
            distances = same_digit if digit == second_digit else other_digit
            one, other = units[digit, speaker], units[second_digit, second_speaker]
            distances.append(measure_distance(one, other))
    assert np.mean([same < other for same in same_digit for other in other_digit]) > 0.9


@pytest.mark.parametrize("margin", [0, 2])
def test_audio_that_is_mapped_from_a_file_has_the_units_of_audio_in_memory(
    encoder, codebook_for, margin, tmp_path, monkeypatch
):
    write_flac(tmp_path / "a.flac", np.random.default_rng(0).uniform(-0.5, 0.5, 300_000))
    extractor = make_extractor(encoder, codebook_for(encoder, smooth=3, margin=margin))
    wanted = extractor.extract_frames(read_audio(tmp_path / "a.flac"))
    for module in ("audio", "encoders.encoder"):  # samples from which on a recording is mapped
        monkeypatch.setattr(f"speechssl.{module}.LONG", 100_000)
    mapped = read_audio(tmp_path / "a.flac")
    assert isinstance(mapped, np.memmap)
    assert np.array_equal(extractor.extract_frames(mapped), wanted)


@pytest.mark.parametrize(("kind", "width"), [("fbank", 80), ("mfcc", 39)])
def test_spectral_features_are_an_encoder_with_one_layer(kind, width):
    encoder, samples = make_spectral_encoder(kind), noise(16_123)
    states = encoder.hidden_states(samples)
    assert encoder.grid.count_frames(16_123) == 99
    assert states.shape == (1, 99, width)
    # louder speech has the same features
    assert torch.allclose(encoder.hidden_states(3 * samples), states, atol=1e-2)
    with pytest.raises(ValueError, match="fewer than"):
        encoder.hidden_states(samples[:399])
