"""LibriSpeech: transcripts, and phones by the first pronunciation."""

import pytest

from speechssl.data.superb import librispeech
from speechssl.data.superb.librispeech import PHONES, prepare_librispeech, read_lexicons
from speechssl.data.utterances import load_set
from speechssl.errors import InputError


@pytest.fixture
def source(tmp_path, write, say, monkeypatch):
    monkeypatch.setattr(librispeech, "COUNTS", {"train": 2, "dev": 1, "test": 1})
    for folder, speaker, lines in (
        ("train-clean-100", "103", ("GO ON", "IT'S A GO")),
        ("dev-clean", "84", ("A GO",)),
        ("test-clean", "61", ("ON",)),
    ):
        chapter = tmp_path / f"LibriSpeech/{folder}/{speaker}/9"
        say(chapter / f"{speaker}-9.trans.txt", *(f"{speaker}-9-{i:04d} {line}" for i, line in enumerate(lines)))
        for i in range(len(lines)):
            write(chapter / f"{speaker}-9-{i:04d}.flac", 0.1 + i)
    return tmp_path / "LibriSpeech"


@pytest.fixture
def lexicon(tmp_path, say):
    say(tmp_path / "lexicon.txt", "A\tAH0", "A  EY1", "GO\tG OW1", "ON\tAA1 N")
    return tmp_path / "lexicon.txt"


@pytest.fixture
def more(tmp_path, say):
    say(tmp_path / "more.txt", "IT'S IH1 T S", "GO G AA1")
    return tmp_path / "more.txt"


def test_text_and_phones(source, lexicon, more, tmp_path):
    cards = prepare_librispeech(source, tmp_path / "out", [lexicon, more])
    asr, pr = (load_set(tmp_path / "out" / task, task) for task in ("asr", "pr"))
    assert [u.text for u in asr.splits["train"]] == ["GO ON", "IT'S A GO"]
    assert [u.phones for u in pr.splits["train"]] == ["G OW1 AA1 N", "IH1 T S AH0 G OW1"]  # the first file, the first line
    assert [u.text for u in pr.splits["train"]] == ["", ""]
    two = asr.splits["train"][1]
    assert (two.id, two.speaker, two.seconds) == ("103-9-0001", "103", 1.1) and asr.path(two).name == "103-9-0001.flac"
    assert cards["pr"]["sizes"] == {"train": 2, "dev": 1, "test": 1} and "lexicons" not in cards["asr"]


def test_asr_needs_no_lexicon_and_pr_can_come_later(source, lexicon, more, tmp_path):
    first = prepare_librispeech(source, tmp_path / "out", tasks=["asr"])
    assert set(first) == {"asr"} and not (tmp_path / "out/pr").exists()
    assert prepare_librispeech(source, tmp_path / "out", [lexicon, more])["asr"] == first["asr"]
    with pytest.raises(InputError, match="made with other settings"):
        prepare_librispeech(source, tmp_path / "out", [more, lexicon])


def test_what_pr_lacks_is_one_sentence(source, lexicon, tmp_path, say):
    with pytest.raises(InputError, match="pr needs the phones of words; give --lexicon"):
        prepare_librispeech(source, tmp_path / "out")
    with pytest.raises(InputError, match=r"the lexicon lacks 1 words, such as \"IT'S\" in 103-9-0001; give --lexicon a sec"):
        prepare_librispeech(source, tmp_path / "out", [lexicon])
    say(tmp_path / "plain.txt", "A AH")
    with pytest.raises(InputError, match=r"plain.txt:1 has the phone 'AH'; give a lexicon of ARPAbet with stress"):
        prepare_librispeech(source, tmp_path / "out", [tmp_path / "plain.txt"])
    with pytest.raises(InputError, match="LibriSpeech has no task ks; choose from pr, asr"):
        prepare_librispeech(source, tmp_path / "out", tasks=["ks"])
    assert not (tmp_path / "out").exists()


def test_a_transcript_without_a_recording_is_counted(source, tmp_path):
    (source / "train-clean-100/103/9/103-9-0001.flac").unlink()
    with pytest.raises(InputError, match=r"1 train and not 2 as published, where .*103-9-0001.flac is missing; unpack"):
        prepare_librispeech(source, tmp_path / "out", tasks=["asr"])
    assert prepare_librispeech(source, tmp_path / "out", tasks=["asr"], any_count=True)["asr"]["sizes"]["train"] == 1


def test_a_split_that_is_not_there_is_named(source, tmp_path):
    (source / "dev-clean").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"dev-clean does not exist; give the folder LibriSpeech, which holds train-clean-100"):
        prepare_librispeech(source, tmp_path / "out", tasks=["asr"])


def test_the_phones_are_the_71_of_superb(lexicon):
    assert len(PHONES) == 71 and read_lexicons([lexicon])["A"] == "AH0"
