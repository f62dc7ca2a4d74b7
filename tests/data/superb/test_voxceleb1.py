"""VoxCeleb1: the split of the corpus, the trials of the test, and trials of our own for dev."""

import pytest

from speechssl.data.superb import voxceleb1
from speechssl.data.superb.voxceleb1 import dev_trials, prepare_voxceleb1
from speechssl.data.utterances import Utterance, load_labelled, load_set, load_trials
from speechssl.errors import InputError

TRAINING, TESTED = ("id10001", "id10002"), ("id10270", "id10271")


@pytest.fixture
def source(tmp_path, write, say, monkeypatch):
    """Of every speaker two training recordings (one of them short), two for validation from two videos, one for the test."""
    lines, root = [], tmp_path / "vox"
    for speaker in TRAINING + TESTED:
        for code, name in (("1", "va/00001"), ("1", "va/00002"), ("2", "va/00003"), ("2", "vb/00001"), ("3", "vc/00001")):
            lines.append(f"{code} {speaker}/{name}.wav")
            folder = root / ("dev" if speaker in TRAINING else "test") / "wav"
            write(folder / speaker / f"{name}.wav", 0.5 if name == "va/00002" else 2.0, 8_000)
    say(root / "iden_split.txt", *lines)
    first, second = (f"{speaker}/va/00001.wav" for speaker in TESTED)
    say(root / "veri_test.txt", f"1 {first} {TESTED[0]}/vb/00001.wav", f"0 {first} {second}")
    monkeypatch.setattr(voxceleb1, "SID_COUNTS", {"train": 8, "dev": 8, "test": 4, "speakers": 4})
    counts = {"recordings to train on": 10, "training speakers": 2, "test speakers": 2, "trials": 2}
    monkeypatch.setattr(voxceleb1, "ASV_COUNTS", counts)
    return root


def test_identification(source, tmp_path):
    prepare_voxceleb1(source, tmp_path / "out", ["sid"])
    data = load_labelled(tmp_path / "out/sid", "sid")
    assert data.classes == {"speaker": TRAINING + TESTED}
    assert {split: len(found) for split, found in data.splits.items()} == {"train": 8, "dev": 8, "test": 4}
    assert data.splits["test"][-1].id == "id10271-vc-00001" and data.splits["train"][1].seconds == 0.5
    assert not (tmp_path / "out/asv").exists()


def test_verification(source, tmp_path):
    prepare_voxceleb1(source, tmp_path / "out")
    data = load_set(tmp_path / "out/asv", "asv")
    names = {split: {u.id for u in found} for split, found in data.splits.items()}
    assert names["train"] == {f"{s}-{name}" for s in TRAINING for name in ("va-00001", "vc-00001")}  # the short one is left out
    assert names["dev"] == {f"{s}-{name}" for s in TRAINING for name in ("va-00003", "vb-00001")}
    assert names["test"] == {"id10270-va-00001", "id10270-vb-00001", "id10271-va-00001"}  # those that are tried
    assert [t.same for t in load_trials(data, "test")] == [True, False]
    same = {(t.first, t.second) for t in load_trials(data, "dev") if t.same}
    assert same == {(f"{s}-va-00003", f"{s}-vb-00001") for s in TRAINING}


def test_speakers_may_lie_in_one_folder(source, tmp_path):
    (source / "wav").mkdir()
    for path in [*source.glob("dev/wav/*"), *source.glob("test/wav/*")]:
        path.rename(source / "wav" / path.name)
    assert prepare_voxceleb1(source, tmp_path / "out")["asv"]["sizes"] == {"train": 4, "dev": 4, "test": 3}


def utterances(*names):
    return [Utterance(name, f"/{name}.wav", 1.0, name.split("-")[0]) for name in names]


def test_trials_of_dev():
    found = utterances("a-x-1", "a-x-2", "a-y-1", "b-x-1", "b-x-2", "c-x-1")
    trials = dev_trials(found)
    assert trials == dev_trials(found) and len({(t.first, t.second) for t in trials}) == len(trials)
    assert all(t.same == (t.first[0] == t.second[0]) and t.first != t.second for t in trials)
    assert {(t.first, t.second) for t in trials if t.same} >= {("a-x-1", "a-y-1"), ("a-x-2", "a-y-1"), ("b-x-1", "b-x-2")}
    assert not [t for t in trials if (t.first, t.second) == ("a-x-1", "a-x-2")]  # there is another video
    assert not [t for t in trials if t.same and "c-x-1" in (t.first, t.second)]
    assert {t.same for t in dev_trials(utterances("a-x-1", "a-x-2"))} == {True}


def test_what_is_wrong_is_one_sentence(source, tmp_path, say):
    (source / "dev/wav/id10001/va/00001.wav").unlink()
    with pytest.raises(InputError, match=r"has 7 train and not 8 as published, where .*id10001/va/00001.wav is missing"):
        prepare_voxceleb1(source, tmp_path / "out", ["sid"])
    with pytest.raises(InputError, match="has 9 recordings to train on and not 10 as published"):
        prepare_voxceleb1(source, tmp_path / "out", ["asv"])
    assert prepare_voxceleb1(source, tmp_path / "part", any_count=True)["asv"]["sizes"]["train"] == 3
    say(source / "iden_split.txt", "4 id10001/va/00001.wav")
    with pytest.raises(InputError, match=r"iden_split.txt:1 has the split '4', which is not 1, 2 or 3"):
        prepare_voxceleb1(source, tmp_path / "out")
    (source / "veri_test.txt").unlink()
    say(source / "iden_split.txt", "1 id10001/va/00002.wav")
    with pytest.raises(InputError, match=r"veri_test.txt does not exist; give the folder that holds dev/wav"):
        prepare_voxceleb1(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_trials_need_both_kinds(source, tmp_path, say):
    first = "id10270/va/00001.wav"
    say(source / "veri_test.txt", f"1 {first} id10270/vb/00001.wav")
    with pytest.raises(InputError, match="does not give test of asv trials of one speaker and of two"):
        prepare_voxceleb1(source, tmp_path / "out", ["asv"], any_count=True)
