"""What all published sets share: counts, what is written and when, and what is left alone."""

import json

import pytest

from speechssl.data import superb
from speechssl.data.superb import Utterance, load_labelled, load_set, measured, read_fields, read_table, speaker
from speechssl.data.superb.speaker import prepare_voicebank_demand
from speechssl.errors import InputError
from speechssl.io import read_json

from ...files import read_lines, write_lines


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


# ---- labelled utterances: what is read, and every way a set can be wrong


@pytest.fixture
def root(tmp_path):
    (tmp_path / "audio").mkdir()
    for split, count in (("train", 4), ("dev", 2), ("test", 2)):
        lines = []
        for i in range(count):
            (tmp_path / f"audio/{split}-{i}.flac").write_bytes(b"x")
            labels = {"action": "ab"[i % 2], "object": "lamp"}
            name = f"{split}-{i}"
            lines.append({"audio": f"audio/{name}.flac", "id": name, "seconds": 1.5, "speaker": "s", "labels": labels})
        write_lines(tmp_path / f"{split}.jsonl", lines)
    (tmp_path / "card.json").write_text('{"task": "ic", "seed": 0}')
    return tmp_path


def change(root, split, number, **values):
    """Set fields of a line, or remove those that are None."""
    lines = read_lines(root / f"{split}.jsonl")
    lines[number] = {k: v for k, v in (lines[number] | values).items() if v is not None}
    write_lines(root / f"{split}.jsonl", lines)


def test_a_set_is_read_and_known_by_its_manifests(root):
    data = load_labelled(root)
    assert (data.task, data.classes) == ("ic", {"action": ("a", "b"), "object": ("lamp",)})
    assert [len(data.splits[split]) for split in ("train", "dev", "test")] == [4, 2, 2]
    assert data.path(data.splits["dev"][1]) == root / "audio/dev-1.flac" and data.splits["dev"][1].text == ""
    (root / "card.json").write_text('{"task": "ic", "seed": 1}')
    assert load_labelled(root).hash == data.hash
    change(root, "test", 0, text="hello")
    assert load_labelled(root).hash != data.hash


LAMP = {"object": "lamp"}


@pytest.mark.parametrize(
    ("split", "values", "message"),
    [
        ("test", {"labels": LAMP | {"action": "c"}}, "test.jsonl, utterance test-0, has the action 'c', which no training utter"),
        ("train", {"labels": {"action": "a"}}, "train.jsonl, utterance train-0, has labels for action; give every line labels for"),
        ("dev", {"labels": {}}, r"dev.jsonl, utterance dev-0, has no label; give every line at least one"),
        ("dev", {"labels": None}, r"dev.jsonl, utterance dev-0, has no label; give every line at least one"),
        ("dev", {"labels": LAMP | {"action": 1}}, r"dev.jsonl:1 is not an utterance \(a label is not text\)"),
        ("dev", {"id": "train-2"}, r"dev.jsonl:1: the id train-2 is also that of .*train.jsonl:3"),
        ("dev", {"audio": "audio/none.flac"}, r"dev.jsonl:1 names .*none.flac, which does not exist"),
        ("dev", {"seconds": 0}, r"dev.jsonl:1 is not an utterance \(seconds is 0\)"),
        ("dev", {"seconds": "long"}, r"dev.jsonl:1 is not an utterance"),
        ("dev", {"speaker": 7}, r"dev.jsonl:1 is not an utterance \(speaker is 7, which is not text\)"),
        ("dev", {"label": "a"}, r"dev.jsonl:1 has the unknown field 'label'"),
        ("train", {"slots": [{"type": "city", "start": 1}]}, "is not a slot, which has type and value"),
        ("train", {"slots": ["city"]}, "'city' is not a slot"),
        ("train", {"turns": [{"speaker": "a"}]}, "is not a turn, which has speaker and start and end"),
        ("train", {"turns": [{"speaker": "a", "start": 2, "end": 1}]}, "a turn of 'a' lasts from 2 to 1 s"),
    ],
)
def test_a_wrong_line_is_one_sentence(root, split, values, message):
    change(root, split, 0, **values)
    with pytest.raises(InputError, match=message):
        load_labelled(root)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("card.json", None, "is not a labelled set"),
        ("card.json", "[]", "is not a JSON object"),
        ("card.json", "{", "cannot read .*card.json as JSON"),
        ("test.jsonl", None, "cannot read the manifest .*test.jsonl"),
        ("test.jsonl", "\n", "test.jsonl has no utterance"),
        ("train.jsonl", "{", "train.jsonl:1 is not JSON"),
    ],
)
def test_a_missing_or_damaged_file_is_one_sentence(root, name, content, message):
    (root / name).unlink() if content is None else (root / name).write_text(content)
    with pytest.raises(InputError, match=message):
        load_labelled(root)


def test_without_dev_a_tenth_of_train_is_it(root, capsys):
    (root / "dev.jsonl").unlink()
    data = load_labelled(root)
    assert "has no dev.jsonl; 2 of the 4 recordings of train.jsonl are it" in capsys.readouterr().err
    assert [u.id for u in data.splits["dev"]] == ["train-2", "train-3"] and len(data.splits["train"]) == 2
    lines = read_lines(root / "train.jsonl")
    write_lines(root / "train.jsonl", [line | {"id": f"{line['id']}-{n}"} for n in range(10) for line in lines])
    data = load_labelled(root)
    assert len(data.splits["dev"]) == 4 and {u.labels["action"] for u in data.splits["dev"]} == {"a", "b"}


def test_lines_need_no_more_than_audio_and_labels(tmp_path, write):
    for split in ("train", "dev", "test"):
        lines = []
        for label in ("yes", "no"):
            path = write(tmp_path / f"{split}/{label}/1.wav", 0.5, 8000)
            lines.append({"audio": str(path.relative_to(tmp_path)), "labels": {"keyword": label}})
        write_lines(tmp_path / f"{split}.jsonl", lines)
    first = load_labelled(tmp_path, "ks").splits["train"][0]
    assert (first.id, first.seconds, first.speaker) == ("train/yes/1", 0.5, "")
