"""Utterances of SUPERB's tasks: what is read, and every way a set can be wrong."""

import pytest

from speechssl.data.superb import load_labelled

from ..files import read_lines, refused, write_lines


@pytest.fixture
def root(tmp_path):
    (tmp_path / "audio").mkdir()
    for split, count in (("train", 4), ("dev", 2), ("test", 2)):
        lines = []
        for i in range(count):
            (tmp_path / f"audio/{split}-{i}.flac").write_bytes(b"x")
            labels = {"action": "ab"[i % 2], "object": "lamp"}
            name = f"{split}-{i}"
            lines.append(
                {
                    "audio": f"audio/{name}.flac",
                    "id": name,
                    "seconds": 1.5,
                    "speaker": "s",
                    "labels": labels,
                }
            )
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
    assert (
        data.path(data.splits["dev"][1]) == root / "audio/dev-1.flac"
        and data.splits["dev"][1].text == ""
    )
    (root / "card.json").write_text('{"task": "ic", "seed": 1}')
    assert load_labelled(root).hash == data.hash
    change(root, "test", 0, text="hello")
    assert load_labelled(root).hash != data.hash


LAMP = {"object": "lamp"}


@pytest.mark.parametrize(
    ("split", "values", "message"),
    [
        (
            "test",
            {"labels": LAMP | {"action": "c"}},
            "test.jsonl, utterance test-0, has the action 'c', which no training utter",
        ),
        (
            "train",
            {"labels": {"action": "a"}},
            "train.jsonl, utterance train-0, has labels for action; give every line labels for",
        ),
        (
            "dev",
            {"labels": {}},
            r"dev.jsonl, utterance dev-0, has no label; give every line at "
            r"least one",
        ),
        (
            "dev",
            {"labels": None},
            r"dev.jsonl, utterance dev-0, has no label; give every line at "
            r"least one",
        ),
        (
            "dev",
            {"labels": LAMP | {"action": 1}},
            r"dev.jsonl:1 is not an utterance \(a label is "
            r"not text\)",
        ),
        ("dev", {"id": "train-2"}, r"dev.jsonl:1: the id train-2 is also that of .*train.jsonl:3"),
        (
            "dev",
            {"audio": "audio/none.flac"},
            r"dev.jsonl:1 names .*none.flac, which does not "
            r"exist",
        ),
        (
            "dev",
            {"audio": "../../none.flac"},
            r"dev.jsonl:1 names .*/../../none.flac, which "
            r"leads out of",
        ),
        # sets may share a folder
        ("dev", {"audio": "../none.flac"}, r"dev.jsonl:1 names .*none.flac, which does not exist"),
        ("dev", {"seconds": 0}, r"dev.jsonl:1 is not an utterance \(seconds is 0\)"),
        ("dev", {"seconds": "long"}, r"dev.jsonl:1 is not an utterance"),
        (
            "dev",
            {"speaker": 7},
            r"dev.jsonl:1 is not an utterance \(speaker is 7, which is not "
            r"text\)",
        ),
        ("dev", {"label": "a"}, r"dev.jsonl:1 has the unknown field 'label'"),
        (
            "train",
            {"slots": [{"type": "city", "start": 1}]},
            "is not a slot, which has type and value",
        ),
        ("train", {"slots": ["city"]}, "'city' is not a slot"),
        (
            "train",
            {"turns": [{"speaker": "a"}]},
            "is not a turn, which has speaker and start and end",
        ),
        (
            "train",
            {"turns": [{"speaker": "a", "start": 2, "end": 1}]},
            "a turn of 'a' lasts from 2 to 1 s",
        ),
    ],
)
def test_a_wrong_line_is_one_sentence(root, split, values, message):
    change(root, split, 0, **values)
    refused(message, load_labelled, root)


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
    refused(message, load_labelled, root)


def test_without_dev_a_tenth_of_train_is_it(root, capsys):
    (root / "dev.jsonl").unlink()
    data = load_labelled(root)
    assert (
        "has no dev.jsonl; 2 of the 4 recordings of train.jsonl are it"
    ) in capsys.readouterr().err
    assert [u.id for u in data.splits["dev"]] == ["train-2", "train-3"] and len(
        data.splits["train"]
    ) == 2
    lines = read_lines(root / "train.jsonl")
    write_lines(
        root / "train.jsonl",
        [line | {"id": f"{line['id']}-{n}"} for n in range(10) for line in lines],
    )
    data = load_labelled(root)
    assert len(data.splits["dev"]) == 4 and {u.labels["action"] for u in data.splits["dev"]} == {
        "a",
        "b",
    }


def test_lines_need_no_more_than_audio_and_labels(tmp_path, recording):
    for split in ("train", "dev", "test"):
        lines = []
        for label in ("yes", "no"):
            path = tmp_path / f"{split}/{label}/1.wav"
            recording(path, 0.5, 8000)
            lines.append({"audio": str(path.relative_to(tmp_path)), "labels": {"keyword": label}})
        write_lines(tmp_path / f"{split}.jsonl", lines)
    first = load_labelled(tmp_path, "ks").splits["train"][0]
    assert (first.id, first.seconds, first.speaker) == ("train/yes/1", 0.5, "")
