"""Recordings of passages and questions: joined without drift, left where they are, or set aside with a reason."""

from fractions import Fraction
from math import ceil

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.audio import SAMPLE_RATE, read_audio, read_native, resample, write_clip
from speechssl.data.join import Take, Takes, join, join_job, measure_job, take_of, write_joined
from speechssl.data.prepare import PrepareReport, SplitRecords, in_parallel
from speechssl.data.records import Passage, Question
from speechssl.errors import InputError

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
    with pytest.raises(ValueError, match="nothing to join"):
        join([])


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
        patched.setattr("speechssl.data.join.read_native", lambda _: pytest.fail("this was joined before"))
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
    assert joined.starts[26] == Fraction(26 * 252_864, 24_000) and joined.seconds == pytest.approx(27 * 10.536, abs=1 / SAMPLE_RATE)
    start, end = (round(joined.moved(26, t) * SAMPLE_RATE) for t in (7.44, 8.14))
    original = resample(samples, rate, SAMPLE_RATE)[round(7.44 * SAMPLE_RATE) : round(8.14 * SAMPLE_RATE)]
    assert np.corrcoef(read_audio(tmp_path / "p.flac")[start:end], original)[0, 1] > 0.999


# ---- attached to records


def records(*names):
    passages = [Passage(name, "", 0.0, "text", "", "en") for name in names]
    return SplitRecords(passages, [Question(f"{name}-q", name, "", 0.0, "why", "", "en") for name in names])


@pytest.mark.parametrize("rate", [16_000, 22_050])
def test_a_passage_of_sentences_is_resampled_once(tmp_path, recording, rate):
    """27 segments of odd lengths, as in NMSQA: resampled one by one they would gain up to a sample each."""
    paths = [tmp_path / f"{n}.wav" for n in range(27)]
    parts = [recording(path, (997 + 13 * n) / rate, rate) for n, path in enumerate(paths)]
    report = PrepareReport("corpus")
    (passage,) = Takes({"p": Take(tuple(paths))}).attach(tmp_path / "out", "test", records("p"), report, 1).passages
    samples, found = soundfile.read(tmp_path / "out" / passage.audio, dtype="float32")
    whole = resample(np.concatenate(parts), rate, 16_000)
    assert found == 16_000 and len(samples) == len(whole) == round(passage.seconds * 16_000)
    assert np.allclose(samples, whole.clip(-1, 1), atol=2 / 32_768)
    assert abs(passage.seconds - sum(map(len, parts)) / rate) < 1 / 16_000


def test_every_record_has_audio_or_is_set_aside(tmp_path, recording):
    recording(tmp_path / "whole.wav", 0.5)
    for name in ("first", "second", "cut"):
        recording(tmp_path / f"{name}.flac", 0.5)
    cut = (tmp_path / "cut.flac").read_bytes()
    (tmp_path / "cut.flac").write_bytes(cut[: len(cut) // 2])
    takes = {
        "whole": Take((tmp_path / "whole.wav",)),
        "joined": Take((tmp_path / "first.flac", tmp_path / "second.flac")),
        "cut": Take((tmp_path / "first.flac", tmp_path / "cut.flac")),
        "holed": Take((tmp_path / "first.flac",), 2),
        "gone": Take((tmp_path / "gone.wav",)),
        "unknown": Take((tmp_path / "first.flac",)),
    }
    report, texts = PrepareReport("corpus"), records("whole", "joined", "cut", "holed", "gone", "none")
    found = Takes(takes, unused=3).attach(tmp_path / "out", "test", texts, report, 1)
    assert [(p.id, p.seconds) for p in found.passages] == [("whole", 0.5), ("joined", 1.0)]
    assert found.passages[0].audio == str(tmp_path / "whole.wav") and found.passages[1].audio == "test/audio/p-joined.flac"
    aside = {line["id"]: line for line in report.aside}
    assert {name: line["reason"] for name, line in aside.items()} == {
        "cut": "its recording is damaged",
        "holed": "segments of its recording are missing",
        "gone": "its recording is damaged",
        "none": "it has no recording, and others have",
        **{f"{name}-q": "its passage is set aside" for name in ("cut", "holed", "gone", "none")},
    }
    assert [q.id for q in found.questions] == ["whole-q", "joined-q"] and len(report.found) == 1
    assert aside["holed"]["missing"] == 2 and "cut.flac" in aside["cut"]["why"]
    report = PrepareReport("corpus")  # without any recording all stays text
    assert Takes().attach(tmp_path, "test", texts, report, 1) == texts and not report.aside


@pytest.mark.parametrize(
    ("numbers", "first", "missing"), [([0, 1, 2], 0, 0), ([0, 2], 0, 1), ([1, 2], 1, 0), ([2], 0, 2), ([3], 1, 2)]
)
def test_numbered_segments(tmp_path, numbers, first, missing):
    take = take_of({n: tmp_path / str(n) for n in reversed(numbers)}, first)
    assert [int(p.name) for p in take.paths] == numbers and take.missing == missing
