"""Audio SNIPS: voices of a split, and slots out of tags."""

import pytest

from speechssl.data.superb import audio_snips
from speechssl.data.superb.audio_snips import VOICES, parse, prepare_audio_snips
from speechssl.data.utterances import Slot, load_set
from speechssl.errors import InputError

LINE = "{} BOS PLAY SOME ACID JAZZ EOS\tO O O genre genre PlayMusic"


@pytest.fixture
def source(tmp_path, write, say, monkeypatch):
    """Every voice in every split, of which three are wanted."""
    monkeypatch.setattr(audio_snips, "COUNTS", {"train": 1, "dev": 1, "test": 1})
    root, names = tmp_path / "SNIPS", []
    for split in ("train", "valid", "test"):
        for voice in ("Ivy", "Amy", "Brian"):
            names.append(f"{voice}-snips-{split}-7")
            write(root / f"{split}/{names[-1]}.wav", rate=22_050)
    say(root / "all.iob.snips.txt", *map(LINE.format, names))
    return root


def test_voices_and_slots(source, tmp_path):
    prepare_audio_snips(source, tmp_path / "out")
    splits = load_set(tmp_path / "out/sf", "sf").splits
    named = {split: [u.id for u in found] for split, found in splits.items()}
    assert named == {"train": ["Ivy-snips-train-7"], "dev": ["Amy-snips-valid-7"], "test": ["Brian-snips-test-7"]}
    one = splits["test"][0]
    assert (one.text, one.slots, one.speaker) == ("PLAY SOME ACID JAZZ", (Slot("genre", "ACID JAZZ"),), "Brian")


def test_the_sixteen_voices_are_in_one_split_each():
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
def test_parse(words, tags, text, slots):
    assert parse("here", words.split(), tags.split()) == (text, tuple(Slot(*slot) for slot in slots))


def test_damage_is_one_sentence(source, tmp_path, say):
    say(source / "all.iob.snips.txt", "Ivy-snips-train-7 BOS PLAY JAZZ EOS\tO O PlayMusic")
    with pytest.raises(InputError, match=r"all.iob.snips.txt:1 has 2 words and 1 tags; prepare Audio SNIPS again"):
        prepare_audio_snips(source, tmp_path / "out")
    say(source / "all.iob.snips.txt", "Ivy-snips-train-7 BOS PLAY JAZZ EOS")
    with pytest.raises(InputError, match=r"all.iob.snips.txt:1 has 1 fields where 2 belong"):
        prepare_audio_snips(source, tmp_path / "out")
    (source / "all.iob.snips.txt").unlink()
    with pytest.raises(InputError, match=r"all.iob.snips.txt does not exist; give the folder SNIPS"):
        prepare_audio_snips(source, tmp_path / "out")


def test_a_voice_that_is_missing_is_counted(source, tmp_path):
    (source / "valid/Amy-snips-valid-7.wav").unlink()
    with pytest.raises(InputError, match=r"has 0 dev and not 1 as published, where .*Amy-snips-valid-7.wav is missing"):
        prepare_audio_snips(source, tmp_path / "out")
