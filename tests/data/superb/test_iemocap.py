"""IEMOCAP: four classes, five folds."""

import pytest
import torch

from speechssl.data.superb import iemocap
from speechssl.data.superb.iemocap import COUNTS, SESSIONS, prepare_iemocap
from speechssl.data.utterances import load_labelled
from speechssl.errors import InputError

SAID = ("neu", "exc", "hap", "ang", "sad", "fru", "xxx")  # the last two are no class
PUBLISHED = dict(COUNTS)


@pytest.fixture
def source(tmp_path, write, say, monkeypatch):
    monkeypatch.setattr(iemocap, "COUNTS", dict.fromkeys(SESSIONS, 10))
    root = tmp_path / "IEMOCAP"
    for number, session in enumerate(SESSIONS, 1):
        for dialogue in (f"Ses0{number}F_impro01", f"Ses0{number}M_script01_1"):
            lines = ["% [START_TIME - END_TIME] TURN_NAME EMOTION [V, A, D]", ""]
            for i, emotion in enumerate(SAID):
                name = f"{dialogue}_{'FM'[i % 2]}{i:03d}"
                lines += [f"[{i}.0 - {i}.5]\t{name}\t{emotion}\t[2.5, 2.5, 2.5]", "C-E1:\tNeutral;\t()", ""]
                write(root / f"{session}/sentences/wav/{dialogue}/{name}.wav")
            say(root / f"{session}/dialog/EmoEvaluation/{dialogue}.txt", *lines)
        (root / f"{session}/dialog/EmoEvaluation/._Ses.txt").write_bytes(b"\x00\xff")
    return root


def test_a_fold_tests_on_a_session(source, tmp_path):
    cards = prepare_iemocap(source, tmp_path / "out")
    assert list(cards) == [f"er/fold-{i}" for i in range(1, 6)]
    for number in range(1, 6):
        data = load_labelled(tmp_path / f"out/er/fold-{number}", "er")
        assert data.classes == {"emotion": ("ang", "hap", "neu", "sad")}
        assert {split: len(found) for split, found in data.splits.items()} == {"train": 32, "dev": 8, "test": 10}
        assert {u.id[:5] for u in data.splits["test"]} == {f"Ses0{number}"}
        assert {u.id[:5] for u in data.splits["train"] + data.splits["dev"]} == {f"Ses0{i}" for i in range(1, 6) if i != number}


def test_who_speaks_and_what(source, tmp_path):
    prepare_iemocap(source, tmp_path / "out")
    found = {u.id: u for u in load_labelled(tmp_path / "out/er/fold-2").splits["test"]}
    assert found["Ses02F_impro01_M001"].labels == {"emotion": "hap"} and found["Ses02F_impro01_M001"].speaker == "Ses02M"
    assert found["Ses02M_script01_1_F002"].speaker == "Ses02F" and "Ses02F_impro01_M005" not in found


def test_dev_is_drawn_as_s3prl_draws_it(source, tmp_path):
    """`random_split` after `torch.manual_seed(0)`, over the utterances in order."""
    prepare_iemocap(source, tmp_path / "out")
    data = load_labelled(tmp_path / "out/er/fold-5")
    ours = [u.id for split in ("train", "dev") for u in data.splits[split]]
    torch.manual_seed(0)
    train, dev = torch.utils.data.random_split(sorted(ours, key=lambda name: (name[:-5], name[-3:])), [32, 8])
    assert [u.id for u in data.splits["train"]] == list(train) and [u.id for u in data.splits["dev"]] == list(dev)


def test_the_published_counts_are_5531():
    assert sum(PUBLISHED.values()) == 5531


def test_another_tree_is_one_sentence(source, tmp_path):
    (source / "Session3/sentences/wav/Ses03F_impro01/Ses03F_impro01_F000.wav").unlink()
    with pytest.raises(InputError, match=r"has 9 Session3 and not 10 as published, where .*Ses03F_impro01_F000.wav is missing"):
        prepare_iemocap(source, tmp_path / "out")
    assert len(prepare_iemocap(source, tmp_path / "part", any_count=True)) == 5
    with pytest.raises(InputError, match=r"Session1/sentences/wav does not exist; give the folder IEMOCAP_full_release"):
        prepare_iemocap(source / "Session3", tmp_path / "out")
    assert not (tmp_path / "out").exists()
