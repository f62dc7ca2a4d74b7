"""Recordings of passages and questions: joined without drift, left where they are, or set aside with a reason."""

import numpy as np
import pytest
import soundfile

from speechssl.audio import resample
from speechssl.data.join import Take, Takes, take_of
from speechssl.data.prepare import PrepareReport, SplitRecords
from speechssl.data.records import Passage, Question


def records(*names):
    passages = [Passage(name, "", 0.0, "text", "", "en") for name in names]
    return SplitRecords(passages, [Question(f"{name}-q", name, "", 0.0, "why", "", "en") for name in names])


def reasons(report):
    return {line["id"]: line["reason"] for line in report.aside}


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


def test_every_record_is_heard_or_set_aside(tmp_path, recording):
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
    report = PrepareReport("corpus")
    heard = Takes(takes, unused=3).attach(
        tmp_path / "out", "test", records("whole", "joined", "cut", "holed", "gone", "none"), report, 1
    )
    assert [(p.id, p.seconds) for p in heard.passages] == [("whole", 0.5), ("joined", 1.0)]
    assert heard.passages[0].audio == str(tmp_path / "whole.wav") and heard.passages[1].audio == "test/audio/p-joined.flac"
    assert reasons(report) == {
        "cut": "its recording is damaged",
        "holed": "segments of its recording are missing",
        "gone": "its recording is damaged",
        "none": "it has no recording, and others have",
        **{f"{name}-q": "its passage is set aside" for name in ("cut", "holed", "gone", "none")},
    }
    assert [q.id for q in heard.questions] == ["whole-q", "joined-q"] and len(report.found) == 1
    assert next(line for line in report.aside if line["id"] == "holed")["missing"] == 2
    assert "cut.flac" in next(line for line in report.aside if line["id"] == "cut")["why"]


def test_without_any_recording_all_stays_text(tmp_path):
    report, texts = PrepareReport("corpus"), records("a", "b")
    assert Takes().attach(tmp_path, "test", texts, report, 1) == texts and not report.aside


@pytest.mark.parametrize(
    ("numbers", "first", "missing"), [([0, 1, 2], 0, 0), ([0, 2], 0, 1), ([1, 2], 1, 0), ([2], 0, 2), ([3], 1, 2)]
)
def test_numbered_segments(tmp_path, numbers, first, missing):
    take = take_of({n: tmp_path / str(n) for n in reversed(numbers)}, first)
    assert [int(p.name) for p in take.paths] == numbers and take.missing == missing
