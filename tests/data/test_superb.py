"""Test the manifests of SUPERB's tasks: what is read, and every line that is refused."""

import pytest

from speechssl.data.superb import load_labelled

from ..files import read_lines, refused, write_lines


@pytest.fixture
def root(tmp_path):
    """A set of intent classification with two slots, and empty files for recordings."""
    (tmp_path / "audio").mkdir()
    for split, count in (("train", 4), ("dev", 2), ("test", 2)):
        lines = []
        for i in range(count):
            name = f"{split}-{i}"
            (tmp_path / f"audio/{name}.flac").write_bytes(b"x")
            labels = {"action": "ab"[i % 2], "object": "lamp"}
            line = {"audio": f"audio/{name}.flac", "id": name, "seconds": 1.5, "speaker": "s"}
            lines.append(line | {"labels": labels})
        write_lines(tmp_path / f"{split}.jsonl", lines)
    (tmp_path / "card.json").write_text('{"task": "ic", "seed": 0}')
    return tmp_path


def change(root, split, number, **values):
    """Set fields of the line `number` of a manifest; a value None removes the field."""
    lines = read_lines(root / f"{split}.jsonl")
    fields = lines[number] | values
    lines[number] = {name: value for name, value in fields.items() if value is not None}
    write_lines(root / f"{split}.jsonl", lines)


def test_a_set_is_read_and_its_hash_depends_on_the_manifests_alone(root):
    data = load_labelled(root)
    assert (data.task, data.classes) == ("ic", {"action": ("a", "b"), "object": ("lamp",)})
    assert [len(data.splits[split]) for split in ("train", "dev", "test")] == [4, 2, 2]
    assert data.path(data.splits["dev"][1]) == root / "audio/dev-1.flac"
    (root / "card.json").write_text('{"task": "ic", "seed": 1}')
    assert load_labelled(root).hash == data.hash
    change(root, "test", 0, text="hello")
    assert load_labelled(root).hash != data.hash
    (root / "card.json").unlink()
    refused("no card.json", load_labelled, root)


LAMP = {"object": "lamp"}


@pytest.mark.parametrize(
    ("split", "values", "message"),
    [
        ("test", {"labels": LAMP | {"action": "c"}}, "test-0, has the labels .*'action': 'c'"),
        (
            "train",
            {"labels": {"action": "a"}},
            "train-0, has .* give every line one for action, ob",
        ),
        ("dev", {"labels": None}, "dev-0, has the labels {}"),
        ("dev", {"id": "train-2"}, "dev.jsonl:1: the id train-2 occurs twice"),
        ("dev", {"audio": "audio/none.flac"}, "dev.jsonl:1 names .*none.flac"),
        ("dev", {"audio": "../../none.flac"}, "dev.jsonl:1 names .*none.flac, which leads out of"),
        # sets beside each other may share their audio: only the missing file is wrong
        ("dev", {"audio": "../none.flac"}, "dev.jsonl:1 names .*none.flac, which does not exist"),
        ("dev", {"seconds": 0}, "dev.jsonl:1: `seconds`"),
        ("train", {"slots": [{"type": "city", "start": 1}]}, r"`slots\[0\]` has no `value`"),
        ("train", {"turns": [{"speaker": "a", "start": 2, "end": 1}]}, "a turn of a ends at 1.0 s"),
    ],
)
def test_a_wrong_line_is_refused(root, split, values, message):
    change(root, split, 0, **values)
    refused(message, load_labelled, root)


def test_without_a_dev_manifest_a_tenth_of_train_is_dev(root, capsys):
    (root / "dev.jsonl").unlink()
    splits = load_labelled(root).splits
    assert "has no dev.jsonl; 2 of the 4 recordings" in capsys.readouterr().err
    assert [u.id for u in splits["dev"]] == ["train-2", "train-3"]
    assert len(splits["train"]) == 2
    lines = read_lines(root / "train.jsonl")
    ten_times = [line | {"id": f"{line['id']}-{n}"} for n in range(10) for line in lines]
    write_lines(root / "train.jsonl", ten_times)
    dev = load_labelled(root).splits["dev"]
    assert len(dev) == 4
    assert {u.labels["action"] for u in dev} == {"a", "b"}


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
