"""A head learns what there is to learn, the same way every time, and belongs to its encoder and its set."""

import json

import pytest

from speechssl.data.utterances import load_labelled
from speechssl.encoders.load import load_encoder
from speechssl.encoders.states import encoder_card
from speechssl.errors import InputError
from speechssl.superb import fit, train
from speechssl.superb.data import Cached
from speechssl.superb.tasks.classification import Classification, ClassifierOptions, train_classifier
from speechssl.superb.train import load_head

QUICK = ClassifierOptions(learning_rates=(1e-3, 1e-2), steps=60, every=20, patience=3)


def judged(made, folder, split="dev"):
    supply = Cached(made.task.data, (folder,), True, False)
    said = fit.predictions(made.task, made.head, supply, made.task.data.splits[split], 3)
    return said, made.task.judge(split, said, 0)


def test_a_head_is_trained_once_saved_and_loaded(labelled, encoder, tmp_path):
    data = load_labelled(labelled())
    made = train_classifier(data, encoder, tmp_path / "head", QUICK, tmp_path / "features")
    card = json.loads((tmp_path / "head/card.json").read_text())
    assert card["dev"]["acc"] == 100 and [x["learning_rate"] for x in card["sweep"]] == [1e-3, 1e-2]
    assert sum(card["layer_weights"]) == pytest.approx(1) and card["default_learning_rate"] == 1e-3
    said, found = judged(made, tmp_path / "features/train-dev")
    assert found.measures[0].value == 100 and found.measures[0].n == 4
    assert found.detail["confusion"]["keyword"] == {"classes": ["high", "low"], "counts": [[2, 0], [0, 2]]}
    assert [made.task.choose(said[f"dev-{i}"]) for i in (0, 1)] == [{"keyword": "low"}, {"keyword": "high"}]
    before = (tmp_path / "head/head.safetensors").stat().st_mtime_ns
    train_classifier(data, encoder, tmp_path / "head", QUICK, tmp_path / "features")
    assert (tmp_path / "head/head.safetensors").stat().st_mtime_ns == before
    assert not list((tmp_path / "head").glob("lr-*"))
    again = load_head(tmp_path / "head", made.task, encoder_card(encoder))
    assert judged(again, tmp_path / "features/train-dev")[0] == said


def test_what_could_not_be_heard_is_wrong(labelled, encoder, tmp_path):
    data = load_labelled(labelled())
    made = train_classifier(data, encoder, tmp_path / "head", QUICK, tmp_path / "features")
    said, _ = judged(made, tmp_path / "features/train-dev")
    del said["dev-1"]
    found = made.task.judge("dev", said, 50).measures[0]
    assert (found.value, found.n) == (75.0, 4) and found.low <= 75 <= found.high
    assert made.task.judge("dev", {}, 50).measures[0].value == 0


def test_all_slots_must_be_right(labelled, encoder):
    data = load_labelled(labelled(slots=("action", "object")))
    task = Classification("ic", data, encoder.grid)
    right, half = [-0.1, -3.0, -0.1, -3.0], [-0.1, -3.0, -3.0, -0.1]
    truth = {u.id: (u.labels["action"], u.labels["object"]) for u in data.splits["dev"]}
    said = {name: half if labels == ("high", "low") else right for name, labels in truth.items()}
    expected = 100 * sum(task.choose(said[n]) == {"action": a, "object": o} for n, (a, o) in truth.items()) / len(truth)
    assert task.judge("dev", said, 0).measures[0].value == expected


@pytest.mark.parametrize("at", ["sweep", "write_json"])  # while it is trained, and with the head written and its card not
def test_a_killed_run_makes_the_same_head(labelled, encoder, tmp_path, monkeypatch, at):
    class Killed(BaseException):
        pass

    def dying(*_):
        raise Killed

    data = load_labelled(labelled())
    train_classifier(data, encoder, tmp_path / "whole", QUICK)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(train, at, dying)
        train_classifier(data, encoder, tmp_path / "killed", QUICK)
    assert (tmp_path / "killed/head.safetensors").exists() is (at == "write_json")
    assert not (tmp_path / "killed/card.json").exists()
    train_classifier(data, encoder, tmp_path / "killed", QUICK)
    whole, killed = ((tmp_path / name / "head.safetensors").read_bytes() for name in ("whole", "killed"))
    assert whole == killed


def test_other_inputs_are_refused(labelled, encoder, hubert_folder, tmp_path):
    root = labelled()
    made = train_classifier(load_labelled(root), encoder, tmp_path / "head", QUICK)
    other = load_encoder(hubert_folder("group"))
    with pytest.raises(InputError, match="trained on another encoder"):
        load_head(tmp_path / "head", made.task, encoder_card(other))
    with pytest.raises(InputError, match="encoder"):
        train_classifier(load_labelled(root), other, tmp_path / "head", QUICK)
    lines = (root / "train.jsonl").read_text().splitlines(keepends=True)
    (root / "train.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(InputError, match="data"):
        train_classifier(load_labelled(root), encoder, tmp_path / "head", QUICK, tmp_path / "elsewhere")


def test_damage_is_one_sentence(labelled, encoder, tmp_path):
    made = train_classifier(load_labelled(labelled()), encoder, tmp_path / "head", QUICK)
    weights = tmp_path / "head/head.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(InputError, match="does not hold the weights of its card"):
        load_head(tmp_path / "head", made.task, encoder_card(encoder))
    (tmp_path / "head/card.json").write_text("{}")
    with pytest.raises(InputError, match="not the card of a head"):
        load_head(tmp_path / "head", made.task, encoder_card(encoder))


def test_bad_recordings_are_left_out_and_a_split_without_any_is_refused(labelled, encoder, tmp_path, capsys):
    root = labelled()
    (root / "audio/train-3.flac").write_bytes(b"nothing")
    train_classifier(load_labelled(root), encoder, tmp_path / "head", QUICK)
    assert "set aside train-3" in capsys.readouterr().err
    for i in range(4):
        (root / f"audio/dev-{i}.flac").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"dev.jsonl could be heard"):
        train_classifier(load_labelled(root), encoder, tmp_path / "other", QUICK)
    assert not (tmp_path / "other").exists()


def test_classes_come_equally_often_where_that_is_wanted(labelled, encoder, tmp_path):
    data = load_labelled(labelled(counts=(9, 4, 4)))  # five low, four high
    weights = Classification("ks", data, encoder.grid).weights(data.splits["train"])
    assert weights[::2].sum() == pytest.approx(1) and weights[1::2].sum() == pytest.approx(1)
