"""FSDD: the customary split, both tasks on the same audio, and what is refused."""

import numpy as np
import pytest
import soundfile

from speechssl.audio import read_audio
from speechssl.data.fsdd import prepare_fsdd
from speechssl.data.utterances import load_labelled
from speechssl.errors import InputError


@pytest.fixture
def source(tmp_path):
    """Two digits by two speakers, twelve times."""
    folder = tmp_path / "fsdd/recordings"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for digit in (0, 7):
        for speaker in ("jackson", "theo"):
            for index in range(12):
                soundfile.write(folder / f"{digit}_{speaker}_{index}.wav", rng.uniform(-0.5, 0.5, 2_001 + index), 8_000)
    (folder / "notes.txt").write_text("not a recording")
    return folder.parent


def test_both_tasks_share_the_audio_and_the_customary_split(source, tmp_path):
    prepare_fsdd(source, tmp_path / "out")
    ks, sid = (load_labelled(tmp_path / "out" / task) for task in ("ks", "sid"))
    assert ks.classes == {"keyword": ("seven", "zero")} and sid.classes == {"speaker": ("jackson", "theo")}
    assert [len(ks.splits[s]) for s in ("train", "dev", "test")] == [8, 20, 20]
    assert {u.id for u in ks.splits["test"]} == {f"{d}_{s}_{i}" for d in (0, 7) for s in ("jackson", "theo") for i in range(5)}
    one = next(u for u in ks.splits["train"] if u.id == "7_theo_11")
    assert one.labels == {"keyword": "seven"} and one.speaker == "theo"
    samples = read_audio(ks.path(one))
    assert len(samples) == 2 * 2_012 and one.seconds == len(samples) / 16_000
    assert ks.path(one).samefile(sid.path(next(u for u in sid.splits["train"] if u.id == one.id)))


def test_it_is_made_once_from_either_folder(source, tmp_path):
    first = prepare_fsdd(source, tmp_path / "out")
    before = (tmp_path / "out/audio/0_theo_3.flac").stat().st_mtime_ns
    assert prepare_fsdd(source / "recordings", tmp_path / "out") == first
    assert (tmp_path / "out/audio/0_theo_3.flac").stat().st_mtime_ns == before


def test_other_recordings_are_refused(source, tmp_path):
    prepare_fsdd(source, tmp_path / "out")
    (source / "recordings/0_theo_3.wav").unlink()
    with pytest.raises(InputError, match="FSDD corpus made with other settings"):
        prepare_fsdd(source, tmp_path / "out")


def test_what_is_not_the_dataset_is_one_sentence(source, tmp_path):
    with pytest.raises(InputError, match="has no recordings like 7_jackson_32.wav"):
        prepare_fsdd(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(InputError, match="has no recordings like"):
        prepare_fsdd(tmp_path, tmp_path / "out")
    for path in (source / "recordings").glob("*_[5-9].wav"):
        path.unlink()
    with pytest.raises(InputError, match="has no recordings for dev"):
        prepare_fsdd(source, tmp_path / "out")


def test_a_damaged_recording_is_named(source, tmp_path):
    (source / "recordings/0_theo_3.wav").write_bytes(b"nothing")
    with pytest.raises(InputError, match="0_theo_3.wav"):
        prepare_fsdd(source, tmp_path / "out")
