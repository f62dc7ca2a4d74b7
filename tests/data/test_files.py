"""Ids as names of files, and recordings joined of pieces without drift."""

from fractions import Fraction
from math import ceil

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.audio import SAMPLE_RATE, read_audio, read_native, resample, write_clip
from speechssl.data.files import join, join_job, measure_job, safe_name, write_joined
from speechssl.data.prepare import in_parallel
from speechssl.errors import InputError


@pytest.mark.slow
@settings(max_examples=50)
@given(st.text(min_size=1), st.text(min_size=1))
def test_names_of_files_are_safe_and_different(one, other):
    for name in (one, other):
        made = safe_name(name)
        assert "/" not in made and "\0" not in made and 0 < len(made.encode("utf-8", "surrogatepass")) <= 255
    assert one == other or safe_name(one) != safe_name(other)


@pytest.mark.parametrize("name", ["p", "tpo_1-lecture_2", "5733be284776f41900661182"])
def test_plain_ids_name_their_files(name):
    assert safe_name(name) == name


def test_other_ids_have_names_of_their_own():
    names = ["a/b", "a_b", "A_b", "../a", ".", "", "x" * 300, "問題", "問題二", "a b", "\ud800"]
    files = [safe_name(n) for n in names]
    assert len(set(map(str.lower, files))) == len(names) and all("/" not in f and 0 < len(f) < 120 and f != "." for f in files)


# ---- recordings in pieces

RATES = (8_000, 16_000, 22_050, 24_000, 44_100)


def noise(n, seed=0):
    return (0.1 * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


@given(st.sampled_from(RATES), st.lists(st.integers(1, 3_000), min_size=1, max_size=27))
@settings(max_examples=40)
def test_pieces_of_one_rate_are_the_whole_resampled_once(rate, lengths):
    pieces = [noise(n, seed) for seed, n in enumerate(lengths)]
    samples, joined = join([(piece, rate) for piece in pieces])
    assert np.array_equal(samples, resample(np.concatenate(pieces), rate, SAMPLE_RATE))
    assert joined.samples == len(samples) == ceil(sum(lengths) * SAMPLE_RATE / rate)
    assert joined.starts == tuple(Fraction(sum(lengths[:k]), rate) for k in range(len(lengths) + 1))
    for k, length in enumerate(lengths):
        assert joined.length(k) == length / rate
        assert joined.moved(k, 0.25) == float(Fraction(sum(lengths[:k]), rate) + Fraction(1, 4))


@given(st.lists(st.tuples(st.integers(200, 3_000), st.sampled_from(RATES)), min_size=1, max_size=27))
@settings(max_examples=40)
def test_rates_may_change_and_still_nothing_drifts(parts):
    """A click in the middle of every piece is where the exact beginning of the piece says, in the last as in the first."""
    pieces = []
    for n, rate in parts:
        piece = np.zeros(n, np.float32)
        piece[n // 2] = 0.5
        pieces.append((piece, rate))
    samples, joined = join(pieces)
    assert len(samples) == joined.samples == ceil(sum(Fraction(n, rate) for n, rate in parts) * SAMPLE_RATE)
    for k, (n, rate) in enumerate(parts):
        low, high = (round(joined.moved(k, t) * SAMPLE_RATE) for t in (0.0, n / rate))
        peak = low + int(np.abs(samples[low:high]).argmax())
        assert abs(peak - joined.moved(k, n // 2 / rate) * SAMPLE_RATE) <= 2


def test_pieces_resampled_one_by_one_would_drift():
    """What joining first avoids: at 22,050 Hz every piece of 1,000 samples would last a third of a sample too long."""
    pieces = [noise(1_000, k) for k in range(27)]
    one_by_one = sum(len(resample(piece, 22_050, SAMPLE_RATE)) for piece in pieces)
    assert one_by_one > join([(piece, 22_050) for piece in pieces])[1].samples + 8


@pytest.fixture
def sentences(tmp_path):
    paths = [tmp_path / f"s{k}.wav" for k in range(3)]
    for k, path in enumerate(paths):
        write_clip(path, noise(5_000 + 333 * k, k), 0.0, 1.0, 22_050)
    return paths


def test_a_joined_passage_is_written_once(sentences, tmp_path, monkeypatch):
    out = tmp_path / "out" / "passage.flac"
    joined = write_joined(sentences, out)
    assert joined.lengths == (5_000, 5_333, 5_666) and soundfile.info(out).samplerate == SAMPLE_RATE
    assert len(read_audio(out)) == joined.samples
    with monkeypatch.context() as patched:
        patched.setattr("speechssl.data.files.read_native", lambda _: pytest.fail("this was joined before"))
        assert write_joined(sentences, out) == joined
    out.with_suffix(".json").unlink()  # what a kill left is joined again, and other recordings are
    assert write_joined(sentences, out) == joined
    assert write_joined(sentences[:2], out).lengths == joined.lengths[:2] and len(read_audio(out)) < joined.samples


def test_a_silent_piece_is_kept_and_a_silent_whole_is_not(sentences, tmp_path):
    write_clip(sentences[1], np.zeros(9_000, np.float32), 0.0, 1.0, 22_050)
    assert write_joined(sentences, tmp_path / "a.flac").lengths[1] == 9_000
    with pytest.raises(InputError, match=r"s1.wav and 0 more is silent"):
        write_joined(sentences[1:2], tmp_path / "b.flac")
    assert not (tmp_path / "b.flac").exists()


@pytest.mark.slow
def test_jobs_give_their_results_or_what_cannot_be_read(sentences, tmp_path):
    jobs = [(str(k), sentences[: k + 1], tmp_path / f"{k}.flac") for k in range(3)]
    found = dict(in_parallel(join_job, jobs, 2))
    assert {name: len(joined.lengths) for name, joined in found.items()} == {"0": 1, "1": 2, "2": 3}
    sentences[1].write_bytes(sentences[1].read_bytes()[:2_000])
    name, reason = join_job(("p", sentences, tmp_path / "p.flac"))
    assert name == "p" and "s1.wav is cut off" in reason and not (tmp_path / "p.flac").exists()
    assert join_job(("p", [tmp_path / "gone.mp3"], tmp_path / "p.flac"))[1].endswith("does not exist; check the path")
    assert "s1.wav is cut off" in measure_job(("q", sentences[1]))[1]
    assert measure_job(("q", sentences[0])) == ("q", ceil(5_000 * SAMPLE_RATE / 22_050) / SAMPLE_RATE)


def test_a_real_mp3_is_as_long_as_what_is_decoded(shared, tmp_path):
    """NMSQA's have no count of their frames: the header guesses 10.543 s, decoding gives 10.536 s; over 27 this is 0.19 s."""
    path = shared("nmsqa", "context-34_4_4.mp3")
    samples, rate = read_native(path)
    assert (len(samples), rate) == (252_864, 24_000)
    joined = write_joined([path] * 27, tmp_path / "p.flac")
    assert joined.starts[26] == Fraction(26 * 252_864, 24_000) and joined.samples == pytest.approx(27 * 10.536 * SAMPLE_RATE, abs=1)
    start, end = (round(joined.moved(26, t) * SAMPLE_RATE) for t in (7.44, 8.14))
    original = resample(samples, rate, SAMPLE_RATE)[round(7.44 * SAMPLE_RATE) : round(8.14 * SAMPLE_RATE)]
    assert np.corrcoef(read_audio(tmp_path / "p.flac")[start:end], original)[0, 1] > 0.999
