"""Libri2Mix: sources for SS, turns of either kind for SD."""

from pathlib import Path

import pytest

from speechssl.data.superb import libri2mix
from speechssl.data.superb.libri2mix import prepare_libri2mix, subsample
from speechssl.data.utterances import Turn, load_set
from speechssl.data.voices import speakers_of
from speechssl.errors import InputError

MIXES = {"train": ("1-2-3_4-5-6", "1-2-4_7-5-6"), "dev": ("8-2-3_9-5-6",), "test": ("10-2-3_11-5-6",)}


@pytest.fixture(autouse=True)
def counts(monkeypatch):
    for name in ("SD_COUNTS", "SS_COUNTS"):
        monkeypatch.setattr(libri2mix, name, {"train": 2, "dev": 1, "test": 1})


@pytest.fixture
def source(tmp_path, write):
    for split, names in MIXES.items():
        for name in names:
            for kind in ("mix_clean", "s1", "s2"):
                write(tmp_path / f"Libri2Mix/wav16k/min/{libri2mix.PARTS[split]}/{kind}/{name}.wav")
    return tmp_path / "Libri2Mix"


@pytest.fixture
def kaldi(tmp_path, write, say):
    """The first speaker speaks twice; both end at once."""
    root = tmp_path / "diarization"
    for split, names in MIXES.items():
        scp, rttm, segments, speakers = [], [], [], []
        for name in names:
            scp.append(f"{name} {write(tmp_path / f'max/{split}/{name}.wav', 2.0)}")
            one, two = (half.split("-")[0] for half in name.split("_"))
            for speaker, start, end in ((one, 0.25, 0.5), (one, 0.75, 1.5), (two, 0.1, 1.5)):
                rttm.append(f"SPEAKER\t{name}\t1\t{start}\t{end - start}\t<NA>\t<NA>\t{speaker}\t<NA>")
                segments.append(f"{speaker}_{name}_{start} {name} {start} {end}")
                speakers.append(f"{speaker}_{name}_{start} {speaker}")
        for file, lines in (("wav.scp", scp), ("rttm", rttm), ("segments", segments), ("utt2spk", speakers)):
            say(root / split / file, *lines)
    return root


def test_separation(source, tmp_path):
    prepare_libri2mix(source, tmp_path / "out", tasks=["ss"])
    data = load_set(tmp_path / "out/ss", "ss")
    one = data.splits["train"][0]
    assert one.id == "1-2-3_4-5-6" and speakers_of(one) == ("1", "4") and Path(one.audio).parent.name == "mix_clean"
    assert one.sources == tuple(str(source / f"wav16k/min/train-100/{s}/1-2-3_4-5-6.wav") for s in ("s1", "s2"))
    assert [len(found) for found in data.splits.values()] == [2, 1, 1]


@pytest.mark.parametrize("kind", ["rttm", "segments"])
def test_diarisation(source, kaldi, tmp_path, kind):
    for split in MIXES:
        (kaldi / split / {"rttm": "segments", "segments": "rttm"}[kind]).unlink()
    prepare_libri2mix(source, tmp_path / "out", kaldi)
    data = load_set(tmp_path / "out/sd", "sd")
    one = data.splits["train"][0]
    assert one.turns == (Turn("4", 0.1, 1.5), Turn("1", 0.25, 0.5), Turn("1", 0.75, 1.5)) and one.seconds == 2.0


def test_turns_are_those_of_the_rttm_where_segments_share_a_name(source, kaldi, tmp_path, say):
    """In the published recipe two speakers from and to the same moment have one name, and utt2spk knows the last of them."""
    say(kaldi / "dev/segments", "m_0_1 8-2-3_9-5-6 0 1", "m_0_1 8-2-3_9-5-6 0 1")
    say(kaldi / "dev/utt2spk", "m_0_1 8", "m_0_1 9")
    say(kaldi / "dev/rttm", *(f"SPEAKER 8-2-3_9-5-6 1 0 1 <NA> <NA> {speaker} <NA>" for speaker in (8, 9)))
    prepare_libri2mix(source, tmp_path / "out", kaldi, ["sd"])
    assert {turn.speaker for turn in load_set(tmp_path / "out/sd").splits["dev"][0].turns} == {"8", "9"}


def test_recordings_may_lie_in_a_folder(source, kaldi, tmp_path):
    for split, names in MIXES.items():
        (kaldi / split / "wav.scp").unlink()
        (kaldi / split / "wav").mkdir()
        for name in names:
            (tmp_path / f"max/{split}/{name}.wav").rename(kaldi / split / f"wav/{name}.wav")
    assert prepare_libri2mix(source, tmp_path / "out", kaldi, ["sd"])["sd"]["sizes"]["train"] == 2


def test_dev_of_separation_is_the_draw_of_s3prl():
    """Names sorted, `random.seed(7)`, `random.shuffle`, the first thousand, sorted."""
    import random

    names = [f"{number * 7919 % 3000:04d}" for number in range(3000)]
    expected = sorted(names)
    random.seed(7)
    random.shuffle(expected)
    assert [path.stem for path in subsample([Path(f"{name}.wav") for name in names])] == sorted(expected[:1000])


def test_what_is_wrong_is_one_sentence(source, kaldi, tmp_path, say):
    out = tmp_path / "out"
    with pytest.raises(InputError, match="sd needs the turns; give --diarization the folder"):
        prepare_libri2mix(source, out)
    with pytest.raises(InputError, match="Libri2Mix has no task se; choose from sd, ss"):
        prepare_libri2mix(source, out, kaldi, ["se"])
    with pytest.raises(InputError, match=r"wav16k/min does not exist; give the folder Libri2Mix"):
        prepare_libri2mix(kaldi, out, kaldi, ["ss"])
    with pytest.raises(InputError, match=r"Libri2Mix/train has neither wav.scp nor wav/"):
        prepare_libri2mix(source, out, source, ["sd"])
    (source / "wav16k/min/dev/s2/8-2-3_9-5-6.wav").unlink()
    with pytest.raises(InputError, match=r"has 0 dev and not 1 as published, where .*dev/s2/8-2-3_9-5-6.wav is missing"):
        prepare_libri2mix(source, out, tasks=["ss"])
    assert not out.exists()


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("rttm", "SPEAKER 8-2-3_9-5-6 1 soon 1 <NA> <NA> 8 <NA>", r"rttm:1 has 'soon' where a number belongs"),
        ("rttm", "SPEAKER 8-2-3_9-5-6 1 1 -1 <NA> <NA> 8 <NA>", r"rttm:1 has a turn from 1.0 to 0.0 s"),
        ("rttm", "SPEAKER other 1 0 1 <NA> <NA> 8 <NA>", r"dev says of nobody that they speak in 8-2-3_9-5-6"),
        ("wav.scp", "8-2-3_9-5-6 sox x.wav -t wav - |", r"wav.scp:1 is a command and not a recording"),
        ("wav.scp", "8-2-3_9-5-6", r"wav.scp:1 has 1 fields where 2 belong"),
    ],
)
def test_damage_is_one_sentence(source, kaldi, tmp_path, say, file, line, message):
    say(kaldi / "dev" / file, line)
    with pytest.raises(InputError, match=message):
        prepare_libri2mix(source, tmp_path / "out", kaldi, ["sd"])


def test_a_piece_of_an_unknown_speaker_is_named(source, kaldi, tmp_path, say):
    (kaldi / "test/rttm").unlink()
    say(kaldi / "test/segments", "who 10-2-3_11-5-6 0 1")
    with pytest.raises(InputError, match=r"segments:1 names who, whom utt2spk does not know"):
        prepare_libri2mix(source, tmp_path / "out", kaldi, ["sd"])
