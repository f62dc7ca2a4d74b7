"""Test distortions for training: libraries of noise, and the distortion of each crop."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.audio import SAMPLE_RATE, to_int16, write_flac
from speechssl.augment import training
from speechssl.augment.sounds import generate_clips
from speechssl.augment.training import Library, decode_recordings, parse_distortions
from speechssl.errors import InputError

from ..files import refused
from ..test_signal import QUIET, steady

PROPERTY = settings(max_examples=30, deadline=None)


def noise(seed, n=SAMPLE_RATE):
    """Make noise (n,)."""
    return 0.1 * np.random.default_rng(seed).standard_normal(n)


def speech(n=SAMPLE_RATE, level=QUIET):
    """Make a crop (n,)."""
    return steady(n, seed=1, level=level)


def snr_db(samples, distorted):
    """Measure the SNR of a distorted crop in dB."""
    added = distorted.astype(np.float64) - samples
    return float(10 * np.log10(np.mean(samples.astype(np.float64) ** 2) / np.mean(added**2)))


def test_bad_files_are_set_aside_and_named(tmp_path, capsys):
    good = tmp_path / "good.flac"
    write_flac(good, noise(0))
    soundfile.write(tmp_path / "silent.wav", np.zeros(SAMPLE_RATE), SAMPLE_RATE)
    (tmp_path / "text.wav").write_text("not audio")
    bad = [tmp_path / name for name in ("silent.wav", "text.wav", "missing.wav")]
    assert len(decode_recordings([good, *bad], "street").edges) == 2  # of one recording
    listed = capsys.readouterr().err
    assert all(path.name in listed for path in bad)
    refused("no recording of street noise can be used", decode_recordings, bad, "street")


def test_of_many_files_as_many_are_decoded_as_have_the_hours(tmp_path, monkeypatch):
    files = [tmp_path / f"{i}.flac" for i in range(12)]
    for number, path in enumerate(files):
        write_flac(path, noise(number))
    seconds = len(noise(0)) / SAMPLE_RATE
    monkeypatch.setattr(training, "MIN_PART", seconds)
    for hours, parts in ((5, 5), (20, 12)):  # shorter files than MIN_PART are all taken
        monkeypatch.setattr(training, "MAX_HOURS", hours * seconds / 3600)
        assert len(decode_recordings(files, "street").edges) == parts + 1
    monkeypatch.setattr(training, "MIN_PART", 2 * seconds)
    assert len(decode_recordings(files, "street").edges) == 12 + 1


def test_pauses_are_drawn_again():
    samples = to_int16(noise(0, 200_000))
    samples[:150_000] = 0
    library = Library(samples, edges=np.array([0, len(samples)]), card={})
    loud = [bool(np.any(library.crop(np.random.default_rng(i), 1000))) for i in range(100)]
    assert np.mean(loud) > 0.85  # a single draw is loud in a quarter of the cases


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory):
    """Distortions of every kind, which distort every crop."""
    folder = tmp_path_factory.mktemp("noises")
    for i, seconds in enumerate((0.3, 1.5, 4.0)):  # some are shorter than a crop
        write_flac(folder / f"{i}.flac", noise(i, round(seconds * SAMPLE_RATE)))
    folders = {"voices": folder, "street": folder}
    with pytest.MonkeyPatch.context() as patch:
        # four clips of ten seconds in the place of 50 minutes
        patch.setattr(training, "generate_clips", lambda seed: islice(generate_clips(seed), 4))
        return parse_distortions(
            "m+g+r+p+b+c+s+street", folders, probability=(1, 1), change_share=0.3
        )


@PROPERTY
@given(
    n=st.integers(600, 30_000),
    key=st.tuples(st.integers(0, 9), st.integers(0, 10**6)),
    progress=st.floats(0, 1),
)
def test_a_distorted_crop_keeps_its_shape_and_type(every_kind, n, key, progress):
    samples = speech(n, 0.05)
    before = samples.copy()
    distorted, domain = every_kind.apply(samples, key, progress)
    assert distorted.shape == (n,)
    assert distorted.dtype == np.float32
    assert 0 <= domain < len(every_kind.domains)
    assert np.isfinite(distorted).all()
    assert np.abs(distorted).max() <= 1
    np.testing.assert_array_equal(samples, before)


def test_domains_are_clean_speech_and_the_kinds(every_kind):
    assert every_kind.domains == ("clean", "m", "g", "r", "p", "b", "c", "s", "street")
    assert {every_kind.apply(speech(4000), (i,), 0.0)[1] for i in range(150)} == set(range(1, 9))
    distortions = parse_distortions("g+r+c", probability=(1, 1))
    for n in (1, 2, 50):  # very short crops are distorted as well
        for i in range(12):
            assert distortions.apply(np.full(n, 0.1, np.float32), (i,), 0.0)[0].shape == (n,)


@PROPERTY
@given(
    low=st.floats(-10, 20),
    width=st.floats(0, 15),
    progress=st.floats(0, 1),
    key=st.integers(0, 10**9),
)
def test_the_snr_is_in_its_range(low, width, progress, key):
    distortions = parse_distortions(
        "g", probability=(1, 1), snr=(low, low + width), snr_end=(low - 5, low + width + 5)
    )
    samples = speech()
    distorted, _ = distortions.apply(samples, (key,), progress)
    spread = 5 * progress  # the range widens by 5 dB at either end until the end of training
    assert low - spread - 0.1 <= snr_db(samples, distorted) <= low + width + spread + 0.1


@pytest.mark.slow
def test_shares_and_probability_are_kept():
    distortions = parse_distortions("g:1+r:3", probability=(0.2, 0.8))
    samples = speech(800)
    for progress, probability in ((0.0, 0.2), (1.0, 0.8)):
        # domain (0 clean, 1 Gaussian noise, 2 a room) -> crops
        counts = Counter(distortions.apply(samples, (i,), progress)[1] for i in range(3000))
        assert 1 - counts[0] / 3000 == pytest.approx(probability, abs=0.03)
        assert counts[2] / (counts[1] + counts[2]) == pytest.approx(0.75, abs=0.04)


@pytest.mark.parametrize(("count", "level"), [(0, 0.0), (4000, 0.0), (900, 1e-6)])
def test_silence_stays_as_it_is(every_kind, count, level):
    samples = np.full(count, level, np.float32)
    for i in range(20):
        distorted, domain = every_kind.apply(samples, (i,), 0.5)
        assert domain == 0
        assert distorted is samples


@pytest.mark.parametrize(("over", "snr"), [("signal", 5), ("active", 5 - 10 * np.log10(4))])
def test_an_snr_over_the_whole_signal_counts_its_silence(over, snr):
    """Three quarters of the crop are silence: over the whole signal its level is 6 dB lower."""
    samples = np.concatenate([speech(), np.zeros(3 * SAMPLE_RATE, np.float32)])
    distortions = parse_distortions("g", probability=(1, 1), snr=(5, 5), snr_over=over)
    measured = snr_db(samples, distortions.apply(samples, (0, 0))[0])
    assert measured == pytest.approx(snr, abs=0.01 if over == "signal" else 0.1)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("g:x", {}, "not a list"),
        ("g:nan", {}, "not a list"),
        ("held-out", {}, "not a list"),
        ("s", {}, "no recordings in voices for voices"),
        ("g", {"snr": (19, 10)}, "lower number first"),
        ("g", {"snr_end": (0, float("nan"))}, "SNR range"),
    ],
)
def test_malformed_distortions_and_impossible_ranges_are_refused(text, options, message):
    with pytest.raises(InputError, match=message):
        parse_distortions(text, **options)
