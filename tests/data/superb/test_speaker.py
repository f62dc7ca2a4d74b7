"""VoxCeleb1, Libri2Mix and VoiceBank-DEMAND: what is read of each, and one sentence for what is wrong with it."""

import random
from pathlib import Path

import pytest

from speechssl.data.superb import Turn, Utterance, load_labelled, load_set, load_trials, speakers_of
from speechssl.data.superb import speaker as speakers
from speechssl.data.superb.speaker import (
    PARTS,
    VOICEBANK_COUNTS,
    dev_trials,
    prepare_libri2mix,
    prepare_voicebank_demand,
    prepare_voxceleb1,
    subsample,
)
from speechssl.errors import InputError

# ---- VoxCeleb1

TRAINING, TESTED = ("id10001", "id10002"), ("id10270", "id10271")


@pytest.fixture
def voxceleb1(tmp_path, write, say, monkeypatch):
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
    monkeypatch.setattr(speakers, "SID_COUNTS", {"train": 8, "dev": 8, "test": 4, "speakers": 4})
    counts = {"recordings to train on": 10, "training speakers": 2, "test speakers": 2, "trials": 2}
    monkeypatch.setattr(speakers, "ASV_COUNTS", counts)
    return root


def test_identification(voxceleb1, tmp_path):
    prepare_voxceleb1(voxceleb1, tmp_path / "out", ["sid"])
    data = load_labelled(tmp_path / "out/sid", "sid")
    assert data.classes == {"speaker": TRAINING + TESTED}
    assert {split: len(found) for split, found in data.splits.items()} == {"train": 8, "dev": 8, "test": 4}
    assert data.splits["test"][-1].id == "id10271-vc-00001" and data.splits["train"][1].seconds == 0.5
    assert not (tmp_path / "out/asv").exists()


def test_verification(voxceleb1, tmp_path):
    (voxceleb1 / "wav").mkdir()  # somebody has put all speakers into one folder
    for path in [*voxceleb1.glob("dev/wav/*"), *voxceleb1.glob("test/wav/*")]:
        path.rename(voxceleb1 / "wav" / path.name)
    prepare_voxceleb1(voxceleb1, tmp_path / "out")
    data = load_set(tmp_path / "out/asv", "asv")
    names = {split: {u.id for u in found} for split, found in data.splits.items()}
    assert names["train"] == {f"{s}-{name}" for s in TRAINING for name in ("va-00001", "vc-00001")}  # the short one is left out
    assert names["dev"] == {f"{s}-{name}" for s in TRAINING for name in ("va-00003", "vb-00001")}
    assert names["test"] == {"id10270-va-00001", "id10270-vb-00001", "id10271-va-00001"}  # those that are tried
    assert [t.same for t in load_trials(data, "test")] == [True, False]
    same = {(t.first, t.second) for t in load_trials(data, "dev") if t.same}
    assert same == {(f"{s}-va-00003", f"{s}-vb-00001") for s in TRAINING}


def test_trials_of_dev():
    def utterances(*names):
        return [Utterance(name, f"/{name}.wav", 1.0, name.split("-")[0]) for name in names]

    found = utterances("a-x-1", "a-x-2", "a-y-1", "b-x-1", "b-x-2", "c-x-1")
    trials = dev_trials(found)
    assert trials == dev_trials(found) and len({(t.first, t.second) for t in trials}) == len(trials)
    assert all(t.same == (t.first[0] == t.second[0]) and t.first != t.second for t in trials)
    assert {(t.first, t.second) for t in trials if t.same} >= {("a-x-1", "a-y-1"), ("a-x-2", "a-y-1"), ("b-x-1", "b-x-2")}
    assert not [t for t in trials if (t.first, t.second) == ("a-x-1", "a-x-2")]  # there is another video
    assert not [t for t in trials if t.same and "c-x-1" in (t.first, t.second)]
    assert {t.same for t in dev_trials(utterances("a-x-1", "a-x-2"))} == {True}


def test_another_voxceleb1_is_one_sentence(voxceleb1, tmp_path, say):
    (voxceleb1 / "dev/wav/id10001/va/00001.wav").unlink()
    with pytest.raises(InputError, match=r"has 7 train and not 8 as published, where .*id10001/va/00001.wav is missing"):
        prepare_voxceleb1(voxceleb1, tmp_path / "out", ["sid"])
    with pytest.raises(InputError, match="has 9 recordings to train on and not 10 as published"):
        prepare_voxceleb1(voxceleb1, tmp_path / "out", ["asv"])
    assert prepare_voxceleb1(voxceleb1, tmp_path / "part", any_count=True)["asv"]["sizes"]["train"] == 3
    say(voxceleb1 / "veri_test.txt", "1 id10270/va/00001.wav id10270/vb/00001.wav")
    with pytest.raises(InputError, match="does not have both kinds of asv trials for test"):
        prepare_voxceleb1(voxceleb1, tmp_path / "out", ["asv"], any_count=True)
    say(voxceleb1 / "iden_split.txt", "4 id10001/va/00001.wav")
    with pytest.raises(InputError, match=r"iden_split.txt:1 has the split '4', which is not 1, 2 or 3"):
        prepare_voxceleb1(voxceleb1, tmp_path / "out")
    (voxceleb1 / "veri_test.txt").unlink()
    say(voxceleb1 / "iden_split.txt", "1 id10001/va/00002.wav")
    with pytest.raises(InputError, match=r"veri_test.txt does not exist; give the folder that holds dev/wav"):
        prepare_voxceleb1(voxceleb1, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---- Libri2Mix: sources for SS, turns of either kind for SD

MIXES = {"train": ("1-2-3_4-5-6", "1-2-4_7-5-6"), "dev": ("8-2-3_9-5-6",), "test": ("10-2-3_11-5-6",)}


@pytest.fixture
def libri2mix(tmp_path, write, monkeypatch):
    for name in ("SD_COUNTS", "SS_COUNTS"):
        monkeypatch.setattr(speakers, name, {"train": 2, "dev": 1, "test": 1})
    for split, names in MIXES.items():
        for name in names:
            for kind in ("mix_clean", "s1", "s2"):
                write(tmp_path / f"Libri2Mix/wav16k/min/{PARTS[split]}/{kind}/{name}.wav")
    return tmp_path / "Libri2Mix"


@pytest.fixture
def kaldi(tmp_path, write, say):
    """The first speaker speaks twice; both end at once."""
    root = tmp_path / "diarization"
    for split, names in MIXES.items():
        lines = {"wav.scp": [], "rttm": [], "segments": [], "utt2spk": []}
        for name in names:
            lines["wav.scp"].append(f"{name} {write(tmp_path / f'max/{split}/{name}.wav', 2.0)}")
            one, two = (half.split("-")[0] for half in name.split("_"))
            for speaker, start, end in ((one, 0.25, 0.5), (one, 0.75, 1.5), (two, 0.1, 1.5)):
                lines["rttm"].append(f"SPEAKER\t{name}\t1\t{start}\t{end - start}\t<NA>\t<NA>\t{speaker}\t<NA>")
                lines["segments"].append(f"{speaker}_{name}_{start} {name} {start} {end}")
                lines["utt2spk"].append(f"{speaker}_{name}_{start} {speaker}")
        for file, some in lines.items():
            say(root / split / file, *some)
    return root


def test_separation(libri2mix, tmp_path):
    prepare_libri2mix(libri2mix, tmp_path / "out", tasks=["ss"])
    data = load_set(tmp_path / "out/ss", "ss")
    one = data.splits["train"][0]
    assert one.id == "1-2-3_4-5-6" and speakers_of(one) == ("1", "4") and Path(one.audio).parent.name == "mix_clean"
    assert one.sources == tuple(str(libri2mix / f"wav16k/min/train-100/{s}/1-2-3_4-5-6.wav") for s in ("s1", "s2"))
    assert [len(found) for found in data.splits.values()] == [2, 1, 1]


@pytest.mark.parametrize("kind", ["rttm", "segments", "folder"])
def test_diarisation(libri2mix, kaldi, tmp_path, kind):
    for split, names in MIXES.items():
        (kaldi / split / ("rttm" if kind == "segments" else "segments")).unlink()
        if kind == "folder":  # of recordings, in the place of wav.scp
            (kaldi / split / "wav.scp").unlink()
            (kaldi / split / "wav").mkdir()
            for name in names:
                (tmp_path / f"max/{split}/{name}.wav").rename(kaldi / split / f"wav/{name}.wav")
    prepare_libri2mix(libri2mix, tmp_path / "out", kaldi)
    one = load_set(tmp_path / "out/sd", "sd").splits["train"][0]
    assert one.turns == (Turn("4", 0.1, 1.5), Turn("1", 0.25, 0.5), Turn("1", 0.75, 1.5)) and one.seconds == 2.0


def test_turns_are_those_of_the_rttm_where_segments_share_a_name(libri2mix, kaldi, tmp_path, say):
    """In the published recipe two speakers from and to the same moment have one name, and utt2spk knows the last of them."""
    say(kaldi / "dev/segments", "m_0_1 8-2-3_9-5-6 0 1", "m_0_1 8-2-3_9-5-6 0 1")
    say(kaldi / "dev/utt2spk", "m_0_1 8", "m_0_1 9")
    say(kaldi / "dev/rttm", *(f"SPEAKER 8-2-3_9-5-6 1 0 1 <NA> <NA> {speaker} <NA>" for speaker in (8, 9)))
    prepare_libri2mix(libri2mix, tmp_path / "out", kaldi, ["sd"])
    assert {turn.speaker for turn in load_set(tmp_path / "out/sd").splits["dev"][0].turns} == {"8", "9"}


def test_dev_of_separation_is_the_draw_of_s3prl():
    """Names sorted, `random.seed(7)`, `random.shuffle`, the first thousand, sorted."""
    names = [f"{number * 7919 % 3000:04d}" for number in range(3000)]
    expected = sorted(names)
    random.seed(7)
    random.shuffle(expected)
    assert [path.stem for path in subsample([Path(f"{name}.wav") for name in names])] == sorted(expected[:1000])


def test_another_libri2mix_is_one_sentence(libri2mix, kaldi, tmp_path):
    (libri2mix / "wav16k/min/dev/s2/8-2-3_9-5-6.wav").unlink()
    for source, diarization, tasks, message in (
        (libri2mix, None, ["sd", "ss"], "sd needs the turns; give --diarization the folder"),
        (libri2mix, kaldi, ["se"], "Libri2Mix has no task se; choose from sd, ss"),
        (kaldi, kaldi, ["ss"], r"wav16k/min does not exist; give the folder Libri2Mix"),
        (libri2mix, libri2mix, ["sd"], r"Libri2Mix/train has neither wav.scp nor wav/"),
        (libri2mix, None, ["ss"], r"has 0 dev and not 1 as published, where .*dev/s2/8-2-3_9-5-6.wav is missing"),
    ):
        with pytest.raises(InputError, match=message):
            prepare_libri2mix(source, tmp_path / "out", diarization, tasks)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("rttm", "SPEAKER 8-2-3_9-5-6 1 soon 1 <NA> <NA> 8 <NA>", r"rttm:1 has 'soon' instead of a number"),
        ("rttm", "SPEAKER 8-2-3_9-5-6 1 1 -1 <NA> <NA> 8 <NA>", r"rttm:1 has a turn from 1.0 to 0.0 s"),
        ("rttm", "SPEAKER other 1 0 1 <NA> <NA> 8 <NA>", r"dev has no speaker in 8-2-3_9-5-6"),
        ("wav.scp", "8-2-3_9-5-6 sox x.wav -t wav - |", r"wav.scp:1 is a command, not a recording"),
        ("wav.scp", "8-2-3_9-5-6", r"wav.scp:1 has 1 fields instead of 2"),
        ("segments", "who 8-2-3_9-5-6 0 1", r"segments:1 names who, which utt2spk does not have"),
    ],
)
def test_damage_of_turns_is_one_sentence(libri2mix, kaldi, tmp_path, say, file, line, message):
    if file == "segments":
        (kaldi / "dev/rttm").unlink()
    say(kaldi / "dev" / file, line)
    with pytest.raises(InputError, match=message):
        prepare_libri2mix(libri2mix, tmp_path / "out", kaldi, ["sd"])


# ---- VoiceBank-DEMAND


def test_enhancement(tmp_path, write):
    """Two speakers of the training set are dev; every noisy recording knows its clean one."""
    names = {"trainset_28spk_wav": ("p226_001", "p287_004", "p227_001"), "testset_wav": ("p232_001", "p257_002")}
    for folder, found in names.items():
        for name in found:
            for kind in ("clean", "noisy"):
                write(tmp_path / f"vb/{kind}_{folder}_16k/{name}.wav")
                write(tmp_path / f"vb/{kind}_{folder}/{name}.wav", rate=48_000)  # 16 kHz is taken
    prepare_voicebank_demand(tmp_path / "vb", tmp_path / "out", any_count=True)
    splits = load_set(tmp_path / "out/se", "se").splits
    assert {split: [u.id for u in found] for split, found in splits.items()} == {
        "train": ["p227_001"],
        "dev": ["p226_001", "p287_004"],
        "test": ["p232_001", "p257_002"],
    }
    one = splits["test"][0]
    assert Path(one.audio).parent.name == "noisy_testset_wav_16k" and one.speaker == "p232" and one.seconds == 0.1
    assert one.sources == (str(tmp_path / "vb/clean_testset_wav_16k/p232_001.wav"),)
    assert VOICEBANK_COUNTS["train"] + VOICEBANK_COUNTS["dev"] == 11_572 and VOICEBANK_COUNTS["test"] == 824
