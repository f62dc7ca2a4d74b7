"""What all published sets share: counts, what is written and when, and what is left alone."""

import json

import pytest

from speechssl.data import superb
from speechssl.data.superb import measured, read_fields, read_table, speaker
from speechssl.data.superb.speaker import prepare_voicebank_demand
from speechssl.data.utterances import Utterance, load_set
from speechssl.errors import InputError
from speechssl.io import read_json


@pytest.fixture
def source(tmp_path, write, monkeypatch):
    """A VoiceBank-DEMAND of five recordings, as published."""
    monkeypatch.setattr(speaker, "VOICEBANK_COUNTS", {"train": 2, "dev": 1, "test": 2})
    root = tmp_path / "vb"
    for kind in ("clean", "noisy"):
        for name in ("p226_001", "p227_001", "p230_001"):
            write(root / f"{kind}_trainset_28spk_wav/{name}.wav", 0.25, 48_000)
        for name in ("p232_001", "p257_003"):
            write(root / f"{kind}_testset_wav/{name}.wav")
    return root


def test_a_set_is_written_and_left_alone(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cards = prepare_voicebank_demand("vb", "out")  # a relative source gives absolute paths
    monkeypatch.chdir("/")
    assert read_json(tmp_path / "out/se/card.json") == cards["se"]
    assert (cards["se"]["task"], cards["se"]["sizes"]) == ("se", {"train": 2, "dev": 1, "test": 2})
    assert set(cards["se"]["manifests"]) == {"train", "dev", "test"}
    data = load_set(tmp_path / "out/se", "se")
    assert all(data.path(u).is_absolute() and data.path(u).is_file() for found in data.splits.values() for u in found)
    line = json.loads((tmp_path / "out/se/dev.jsonl").read_text())
    assert set(line) == {"id", "audio", "seconds", "speaker", "sources"}  # no field that is empty
    with monkeypatch.context() as patched:
        patched.setattr(superb, "measured", lambda *_: pytest.fail("this was read before"))
        assert prepare_voicebank_demand(source, tmp_path / "out") == cards
    for name in ("card.json", "test.jsonl"):  # what a kill left is finished
        (tmp_path / "out/se" / name).unlink()
    assert prepare_voicebank_demand(source, tmp_path / "out") == cards and len(load_set(tmp_path / "out/se").splits["test"]) == 2
    source.rename(tmp_path / "moved")
    with pytest.raises(InputError, match="made with other settings"):
        prepare_voicebank_demand(tmp_path / "moved", tmp_path / "out")


def test_another_count_is_one_sentence_and_nothing_is_written(source, tmp_path, capsys):
    (source / "clean_testset_wav/p257_003.wav").unlink()
    with pytest.raises(InputError, match=r"has 1 test and not 2 as published, where .*clean_testset_wav/p257_003.wav is missing;"):
        prepare_voicebank_demand(source, tmp_path / "out")
    assert prepare_voicebank_demand(source, tmp_path / "part", any_count=True)["se"]["sizes"]["test"] == 1
    assert "warning: " in capsys.readouterr().err
    (source / "noisy_testset_wav/p257_003.wav").unlink()
    with pytest.raises(InputError, match=r"vb has 1 test and not 2 as published; unpack voicebank-demand again, or"):
        prepare_voicebank_demand(source, tmp_path / "out")
    (source / "noisy_testset_wav/p232_001.wav").write_bytes(b"RIFF")
    with pytest.raises(InputError, match=r"p232_001.wav"):  # damaged
        prepare_voicebank_demand(source, tmp_path / "out", any_count=True)
    (source / "noisy_testset_wav/p232_001.wav").unlink()
    with pytest.raises(InputError, match="has no utterance of se for test; give the folder"):
        prepare_voicebank_demand(source, tmp_path / "out", any_count=True)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_else_is_refused_before_reading(source, tmp_path, monkeypatch):
    (tmp_path / "out/se").mkdir(parents=True)
    (tmp_path / "out/se/thesis.txt").write_text("mine")
    monkeypatch.setattr(superb, "measured", lambda *_: pytest.fail("this is in vain"))
    with pytest.raises(InputError, match="is not empty and not the voicebank-demand corpus"):
        prepare_voicebank_demand(source, tmp_path / "out")


def test_what_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="nowhere is not a folder; give the folder that holds"):
        prepare_voicebank_demand(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(InputError, match=r"noisy_trainset_28spk_wav_16k does not exist; give the folder that holds"):
        prepare_voicebank_demand(tmp_path, tmp_path / "out")


def test_measuring_keeps_the_order(tmp_path, write):
    drafts = [Utterance(str(i), str(write(tmp_path / f"{i}.wav", 0.1 + i / 100)), 0.0) for i in range(40)]
    drafts.insert(7, Utterance("gone", str(tmp_path / "gone.wav"), 0.0))
    found, missing = measured(drafts, "x")
    assert [u.id for u in found] == [str(i) for i in range(40)] and missing == [str(tmp_path / "gone.wav")]
    assert [u.seconds for u in found] == pytest.approx([0.1 + i / 100 for i in range(40)])
    with pytest.raises(InputError, match="empty.wav"):
        measured([Utterance("x", str(write(tmp_path / "empty.wav", 0)), 0.0)], "x")


def test_damaged_tables_are_named(tmp_path, say):
    say(tmp_path / "short.txt", "a b", "", "c")
    (tmp_path / "latin.txt").write_bytes(b"\xff\xfe\xff")
    for name, message in (
        ("short.txt", "short.txt:3 has 1 fields instead of 2"),
        ("none.txt", "cannot read .*none.txt"),
        ("latin.txt", "cannot read .*latin.txt"),
    ):
        with pytest.raises(InputError, match=message):
            list(read_fields(tmp_path / name, 2))
    say(tmp_path / "t.csv", "a,b", "1,2", "3")
    with pytest.raises(InputError, match=r"t.csv:3 has no b"):
        read_table(tmp_path / "t.csv", ["a", "b"])
    assert read_table(tmp_path / "t.csv", ["a"])[1]["a"] == "3"
