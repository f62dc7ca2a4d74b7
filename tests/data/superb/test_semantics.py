"""Fluent Speech Commands, Audio SNIPS and IEMOCAP: what is read of each, and one sentence for what is wrong with it."""

import pytest
import torch

from speechssl.data.superb import content
from speechssl.data.superb.content import (
    IEMOCAP_COUNTS,
    VOICES,
    parse_slots,
    prepare_audio_snips,
    prepare_fluent_speech_commands,
    prepare_iemocap,
)
from speechssl.data.utterances import Slot, load_labelled, load_set
from speechssl.errors import InputError

# ---- Fluent Speech Commands

HEADER = ",path,speakerId,transcription,action,object,location"


@pytest.fixture
def fluent(tmp_path, write, say, monkeypatch):
    counts = {"train": 2, "dev": 1, "test": 1, "actions": 2, "objects": 2, "locations": 1}
    monkeypatch.setattr(content, "FLUENT_COUNTS", counts)
    root = tmp_path / "fsc"
    rows = {
        "train": (
            "wavs/speakers/ann/a.wav,ann,Bring me the newspaper,bring,newspaper,none",
            'wavs/speakers/bob/b.wav,bob,"Louder, please",increase,volume,none',
        ),
        "valid": ("wavs/speakers/cid/c.wav,cid,Louder,increase,volume,none",),
        "test": ("wavs/speakers/dee/d.wav,dee,Volume up,increase,volume,none",),
    }
    for split, lines in rows.items():
        say(root / f"data/{split}_data.csv", HEADER, *(f"{i},{line}" for i, line in enumerate(lines)))
        for line in lines:
            write(root / line.split(",")[0])
    return root


def test_intents(fluent, tmp_path):
    prepare_fluent_speech_commands(fluent, tmp_path / "out")
    data = load_labelled(tmp_path / "out/ic", "ic")
    assert data.classes == {"action": ("bring", "increase"), "location": ("none",), "object": ("newspaper", "volume")}
    two = data.splits["train"][1]
    assert (two.id, two.speaker, two.text) == ("b", "bob", "Louder, please")
    assert two.labels == {"action": "increase", "object": "volume", "location": "none"}
    assert [u.id for split in ("dev", "test") for u in data.splits[split]] == ["c", "d"]


def test_another_table_is_one_sentence(fluent, tmp_path, say):
    table = fluent / "data/train_data.csv"
    say(table, HEADER, *(line.replace("increase", "bring") for line in table.read_text().splitlines()[1:]))
    with pytest.raises(InputError, match="has 1 actions and not 2 as published"):
        prepare_fluent_speech_commands(fluent, tmp_path / "out")
    say(table, "path,speakerId", "wavs/speakers/ann/a.wav,ann")
    with pytest.raises(InputError, match=r"train_data.csv:2 has no transcription; unpack"):
        prepare_fluent_speech_commands(fluent, tmp_path / "out")
    table.unlink()
    with pytest.raises(InputError, match=r"train_data.csv does not exist; give the folder fluent_speech_commands_dataset"):
        prepare_fluent_speech_commands(fluent, tmp_path / "out")


# ---- Audio SNIPS


@pytest.fixture
def snips(tmp_path, write, say, monkeypatch):
    """Every voice in every split, of which three are wanted."""
    monkeypatch.setattr(content, "SNIPS_COUNTS", {"train": 1, "dev": 1, "test": 1})
    root, names = tmp_path / "SNIPS", []
    for split in ("train", "valid", "test"):
        for voice in ("Ivy", "Amy", "Brian"):
            names.append(f"{voice}-snips-{split}-7")
            write(root / f"{split}/{names[-1]}.wav", rate=22_050)
    line = "{} BOS PLAY SOME ACID JAZZ EOS\tO O O genre genre PlayMusic"
    say(root / "all.iob.snips.txt", *map(line.format, names))
    return root


def test_voices_and_slots(snips, tmp_path):
    prepare_audio_snips(snips, tmp_path / "out")
    splits = load_set(tmp_path / "out/sf", "sf").splits
    named = {split: [u.id for u in found] for split, found in splits.items()}
    assert named == {"train": ["Ivy-snips-train-7"], "dev": ["Amy-snips-valid-7"], "test": ["Brian-snips-test-7"]}
    one = splits["test"][0]
    assert (one.text, one.slots, one.speaker) == ("PLAY SOME ACID JAZZ", (Slot("genre", "ACID JAZZ"),), "Brian")
    voices = [voice for found in VOICES.values() for voice in found]
    assert len(voices) == len(set(voices)) == 16


@pytest.mark.parametrize(
    ("words", "tags", "text", "slots"),
    [
        ("a b c", "O O O", "A B C", []),
        ("a b c", "x x y", "A B C", [("x", "A B"), ("y", "C")]),
        ("a b c", "B-x I-x B-x", "A B C", [("x", "A B"), ("x", "C")]),
        ("a b c d", "x O x x", "A B C D", [("x", "A"), ("x", "C D")]),
        ("rock & roll !", "g g g O", "ROCK AND ROLL", [("g", "ROCK AND ROLL")]),
        ("a , b", "x x x", "A B", [("x", "A B")]),
        ("a ,", "O x", "A", []),
    ],
)
def test_slots_of_tags(words, tags, text, slots):
    assert parse_slots("here", words.split(), tags.split()) == (text, tuple(Slot(*slot) for slot in slots))


def test_another_snips_is_one_sentence(snips, tmp_path, say):
    (snips / "valid/Amy-snips-valid-7.wav").unlink()
    with pytest.raises(InputError, match=r"has 0 dev and not 1 as published, where .*Amy-snips-valid-7.wav is missing"):
        prepare_audio_snips(snips, tmp_path / "out")
    say(snips / "all.iob.snips.txt", "Ivy-snips-train-7 BOS PLAY JAZZ EOS\tO O PlayMusic")
    with pytest.raises(InputError, match=r"all.iob.snips.txt:1 has 2 words and 1 tags; prepare Audio SNIPS again"):
        prepare_audio_snips(snips, tmp_path / "out")
    say(snips / "all.iob.snips.txt", "Ivy-snips-train-7 BOS PLAY JAZZ EOS")
    with pytest.raises(InputError, match=r"all.iob.snips.txt:1 has 1 fields instead of 2"):
        prepare_audio_snips(snips, tmp_path / "out")
    (snips / "all.iob.snips.txt").unlink()
    with pytest.raises(InputError, match=r"all.iob.snips.txt does not exist; give the folder SNIPS"):
        prepare_audio_snips(snips, tmp_path / "out")


# ---- IEMOCAP

PUBLISHED = dict(IEMOCAP_COUNTS)


@pytest.fixture
def iemocap(tmp_path, write, say, monkeypatch):
    monkeypatch.setattr(content, "IEMOCAP_COUNTS", dict.fromkeys(PUBLISHED, 10))
    root = tmp_path / "IEMOCAP"
    for number, session in enumerate(PUBLISHED, 1):
        for dialogue in (f"Ses0{number}F_impro01", f"Ses0{number}M_script01_1"):
            lines = ["% [START_TIME - END_TIME] TURN_NAME EMOTION [V, A, D]", ""]
            for i, emotion in enumerate(("neu", "exc", "hap", "ang", "sad", "fru", "xxx")):  # the last two are no class
                name = f"{dialogue}_{'FM'[i % 2]}{i:03d}"
                lines += [f"[{i}.0 - {i}.5]\t{name}\t{emotion}\t[2.5, 2.5, 2.5]", "C-E1:\tNeutral;\t()", ""]
                write(root / f"{session}/sentences/wav/{dialogue}/{name}.wav")
            say(root / f"{session}/dialog/EmoEvaluation/{dialogue}.txt", *lines)
        (root / f"{session}/dialog/EmoEvaluation/._Ses.txt").write_bytes(b"\x00\xff")
    return root


def test_folds(iemocap, tmp_path):
    """A fold tests on a session, and draws dev as s3prl does: `random_split` after `torch.manual_seed(0)`, in order."""
    cards = prepare_iemocap(iemocap, tmp_path / "out")
    assert list(cards) == [f"er/fold-{i}" for i in range(1, 6)] and sum(PUBLISHED.values()) == 5531
    for number in range(1, 6):
        data = load_labelled(tmp_path / f"out/er/fold-{number}", "er")
        assert data.classes == {"emotion": ("ang", "hap", "neu", "sad")}
        assert {split: len(found) for split, found in data.splits.items()} == {"train": 32, "dev": 8, "test": 10}
        assert {u.id[:5] for u in data.splits["test"]} == {f"Ses0{number}"}
        assert {u.id[:5] for u in data.splits["train"] + data.splits["dev"]} == {f"Ses0{i}" for i in range(1, 6) if i != number}
        ours = [u.id for split in ("train", "dev") for u in data.splits[split]]
        torch.manual_seed(0)
        train, dev = torch.utils.data.random_split(sorted(ours, key=lambda name: (name[:-5], name[-3:])), [32, 8])
        assert [u.id for u in data.splits["train"]] == list(train) and [u.id for u in data.splits["dev"]] == list(dev)
    found = {u.id: u for u in load_labelled(tmp_path / "out/er/fold-2").splits["test"]}
    assert found["Ses02F_impro01_M001"].labels == {"emotion": "hap"} and found["Ses02F_impro01_M001"].speaker == "Ses02M"
    assert found["Ses02M_script01_1_F002"].speaker == "Ses02F" and "Ses02F_impro01_M005" not in found


def test_another_tree_than_that_of_iemocap_is_one_sentence(iemocap, tmp_path):
    (iemocap / "Session3/sentences/wav/Ses03F_impro01/Ses03F_impro01_F000.wav").unlink()
    with pytest.raises(InputError, match=r"has 9 Session3 and not 10 as published, where .*Ses03F_impro01_F000.wav is missing"):
        prepare_iemocap(iemocap, tmp_path / "out")
    assert len(prepare_iemocap(iemocap, tmp_path / "part", any_count=True)) == 5
    with pytest.raises(InputError, match=r"Session1/sentences/wav does not exist; give the folder IEMOCAP_full_release"):
        prepare_iemocap(iemocap / "Session3", tmp_path / "out")
    assert not (tmp_path / "out").exists()
