"""Fluent Speech Commands: the corpus's own tables."""

import pytest

from speechssl.data.superb import fluent_speech_commands
from speechssl.data.superb.fluent_speech_commands import prepare_fluent_speech_commands
from speechssl.data.utterances import load_labelled
from speechssl.errors import InputError

HEADER = ",path,speakerId,transcription,action,object,location"


@pytest.fixture
def source(tmp_path, write, say, monkeypatch):
    counts = {"train": 2, "dev": 1, "test": 1, "actions": 2, "objects": 2, "locations": 1}
    monkeypatch.setattr(fluent_speech_commands, "COUNTS", counts)
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


def test_intents(source, tmp_path):
    prepare_fluent_speech_commands(source, tmp_path / "out")
    data = load_labelled(tmp_path / "out/ic", "ic")
    assert data.classes == {"action": ("bring", "increase"), "location": ("none",), "object": ("newspaper", "volume")}
    two = data.splits["train"][1]
    assert (two.id, two.speaker, two.text) == ("b", "bob", "Louder, please")
    assert two.labels == {"action": "increase", "object": "volume", "location": "none"}
    assert [u.id for split in ("dev", "test") for u in data.splits[split]] == ["c", "d"]


def test_another_table_is_one_sentence(source, tmp_path, say):
    table = source / "data/train_data.csv"
    say(table, HEADER, *(line.replace("increase", "bring") for line in table.read_text().splitlines()[1:]))
    with pytest.raises(InputError, match="has 1 actions and not 2 as published"):
        prepare_fluent_speech_commands(source, tmp_path / "out")
    say(table, "path,speakerId", "wavs/speakers/ann/a.wav,ann")
    with pytest.raises(InputError, match=r"train_data.csv:2 has no transcription; unpack"):
        prepare_fluent_speech_commands(source, tmp_path / "out")
    table.unlink()
    with pytest.raises(InputError, match=r"train_data.csv does not exist; give the folder fluent_speech_commands_dataset"):
        prepare_fluent_speech_commands(source, tmp_path / "out")
