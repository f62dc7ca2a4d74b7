"""What all published sets share: counts, what is written and when, and what is left alone."""

import json

import pytest

from speechssl.data.superb import sets, voicebank_demand
from speechssl.data.superb.sets import measured, read_fields, read_table
from speechssl.data.superb.voicebank_demand import prepare_voicebank_demand
from speechssl.data.utterances import Utterance, load_set
from speechssl.errors import InputError
from speechssl.io import read_json


@pytest.fixture
def source(tmp_path, write, monkeypatch):
    """A VoiceBank-DEMAND of five recordings, as published."""
    monkeypatch.setattr(voicebank_demand, "COUNTS", {"train": 2, "dev": 1, "test": 2})
    root = tmp_path / "vb"
    for name in ("p226_001", "p227_001", "p230_001"):
        for kind in ("clean", "noisy"):
            write(root / f"{kind}_trainset_28spk_wav/{name}.wav", 0.25, 48_000)
    for name in ("p232_001", "p257_003"):
        for kind in ("clean", "noisy"):
            write(root / f"{kind}_testset_wav/{name}.wav")
    return root


def test_a_set_is_written_and_left_alone(source, tmp_path, monkeypatch):
    cards = prepare_voicebank_demand(source, tmp_path / "out")
    card = cards["se"]
    assert read_json(tmp_path / "out/se/card.json") == card
    assert (card["task"], card["sizes"]) == ("se", {"train": 2, "dev": 1, "test": 2})
    assert set(card["manifests"]) == {"train", "dev", "test"}
    monkeypatch.setattr(sets, "measured", lambda *_: pytest.fail("this was read before"))
    assert prepare_voicebank_demand(source, tmp_path / "out") == cards


def test_what_a_kill_left_is_finished(source, tmp_path):
    card = prepare_voicebank_demand(source, tmp_path / "out")["se"]
    (tmp_path / "out/se/card.json").unlink()
    (tmp_path / "out/se/test.jsonl").unlink()
    assert prepare_voicebank_demand(source, tmp_path / "out")["se"] == card
    assert len(load_set(tmp_path / "out/se").splits["test"]) == 2


def test_a_relative_source_gives_absolute_paths(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare_voicebank_demand("vb", "out")
    monkeypatch.chdir("/")
    data = load_set(tmp_path / "out/se", "se")
    assert all(data.path(u).is_absolute() and data.path(u).is_file() for found in data.splits.values() for u in found)


def test_another_count_is_one_sentence_and_nothing_is_written(source, tmp_path):
    gone = source / "noisy_testset_wav/p257_003.wav"
    gone.unlink()
    with pytest.raises(InputError, match=r"vb has 1 test and not 2 as published; unpack voicebank-demand again, or"):
        prepare_voicebank_demand(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_recording_that_is_missing_is_named(source, tmp_path, capsys):
    (source / "clean_testset_wav/p257_003.wav").unlink()
    with pytest.raises(InputError, match=r"has 1 test and not 2 as published, where .*clean_testset_wav/p257_003.wav is missing;"):
        prepare_voicebank_demand(source, tmp_path / "out")
    assert prepare_voicebank_demand(source, tmp_path / "out", any_count=True)["se"]["sizes"]["test"] == 1
    assert "warning: " in capsys.readouterr().err


def test_no_split_may_be_empty(source, tmp_path):
    for path in source.glob("*_testset_wav/*.wav"):
        path.unlink()
    with pytest.raises(InputError, match="has no utterance of se for test; give the folder"):
        prepare_voicebank_demand(source, tmp_path / "out", any_count=True)
    assert not (tmp_path / "out").exists()


def test_a_damaged_recording_is_named(source, tmp_path):
    (source / "noisy_testset_wav/p257_003.wav").write_bytes(b"RIFF")
    with pytest.raises(InputError, match=r"p257_003.wav"):
        prepare_voicebank_demand(source, tmp_path / "out", any_count=True)


def test_a_recording_without_a_sample_is_named(tmp_path, write):
    path = write(tmp_path / "x.wav", 0)
    with pytest.raises(InputError, match="x.wav"):
        measured([Utterance("x", str(path), 0.0)], "x")


def test_a_folder_that_holds_something_else_is_refused_before_reading(source, tmp_path, monkeypatch):
    (tmp_path / "out/se").mkdir(parents=True)
    (tmp_path / "out/se/thesis.txt").write_text("mine")
    monkeypatch.setattr(sets, "measured", lambda *_: pytest.fail("this is in vain"))
    with pytest.raises(InputError, match="is not empty and not the voicebank-demand corpus"):
        prepare_voicebank_demand(source, tmp_path / "out")


def test_a_set_of_another_source_is_refused(source, tmp_path):
    prepare_voicebank_demand(source, tmp_path / "out")
    source.rename(tmp_path / "moved")
    with pytest.raises(InputError, match="made with other settings"):
        prepare_voicebank_demand(tmp_path / "moved", tmp_path / "out")


def test_what_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="nowhere is not a folder; give the folder that holds"):
        prepare_voicebank_demand(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(InputError, match=r"noisy_trainset_28spk_wav_16k does not exist; give the folder that holds"):
        prepare_voicebank_demand(tmp_path, tmp_path / "out")


def test_measuring_keeps_the_order(tmp_path, write):
    drafts = [Utterance(str(i), str(write(tmp_path / f"{i}.wav", 0.1 + i / 100)), 0.0) for i in range(40)]
    drafts.insert(7, Utterance("gone", str(tmp_path / "gone.wav"), 0.0))
    done = measured(drafts, "x")
    assert [u.id for u in done.found] == [str(i) for i in range(40)] and done.missing == [str(tmp_path / "gone.wav")]
    assert [u.seconds for u in done.found] == pytest.approx([0.1 + i / 100 for i in range(40)])


def test_damaged_tables_are_named(tmp_path, say):
    say(tmp_path / "short.txt", "a b", "", "c")
    with pytest.raises(InputError, match=r"short.txt:3 has 1 fields where 2 belong"):
        list(read_fields(tmp_path / "short.txt", 2))
    with pytest.raises(InputError, match=r"cannot read .*none.txt"):
        list(read_fields(tmp_path / "none.txt", 2))
    (tmp_path / "latin.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InputError, match=r"cannot read .*latin.txt"):
        list(read_fields(tmp_path / "latin.txt", 2))
    say(tmp_path / "t.csv", "a,b", "1,2", "3")
    with pytest.raises(InputError, match=r"t.csv:3 has no b"):
        read_table(tmp_path / "t.csv", ["a", "b"])
    assert read_table(tmp_path / "t.csv", ["a"])[1]["a"] == "3"


def test_manifests_say_only_what_is_said(source, tmp_path):
    prepare_voicebank_demand(source, tmp_path / "out")
    line = json.loads((tmp_path / "out/se/dev.jsonl").read_text())
    assert set(line) == {"id", "audio", "seconds", "speaker", "sources"}
