"""A head learns what there is to learn, the same way every time, and belongs to its encoder and its set."""

import json

import pytest
import torch

from speechssl.corpora.utterances import load_labelled
from speechssl.encoders.loading import load_encoder
from speechssl.errors import InputError
from speechssl.superb import classify
from speechssl.superb.classify import Classifier, ClassifierOptions, Examples, attempt, sweep, train_classifier
from speechssl.superb.features import CachedStates
from speechssl.superb.heads import ClassifierShape, UtteranceClassifier

QUICK = ClassifierOptions(learning_rates=(1e-3, 1e-2), steps=60, every=20, patience=3)


def toy(count, seed):
    """Two classes that the second of three states tells apart."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (count, 1), generator=generator)
    means = torch.randn(count, 3, 8, generator=generator)
    means[:, 1, 0] += 4.0 * labels[:, 0]
    return Examples(means, labels)


def test_a_sweep_is_the_same_every_time_and_leaves_the_random_state_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second = (sweep(toy(64, 0), toy(32, 1), (2,), QUICK) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(first, second, strict=True):
        assert a.rank == b.rank and all(torch.equal(x, b.head.state_dict()[n]) for n, x in a.head.state_dict().items())
    assert [a.learning_rate for a in first] == [1e-3, 1e-2]


def test_it_learns_which_state_tells():
    found = sweep(toy(256, 0), toy(64, 1), (2,), ClassifierOptions(learning_rates=(1e-2,), steps=400))[0]
    assert found.accuracy >= 0.95 and int(found.head.featurizer.shares.argmax()) == 1


def test_the_best_look_is_kept_and_it_ends_early():
    options = ClassifierOptions(steps=5000, every=10, patience=2)
    head = UtteranceClassifier(ClassifierShape(3, 8, (2,)))
    found = attempt(head, toy(64, 0), toy(32, 1), 1e-1, options)
    logits = found.head.of_means(toy(32, 1).means)
    assert float((found.head.choose(logits) == toy(32, 1).labels).float().mean()) == pytest.approx(found.accuracy)
    assert found.step < 5000


def test_fewer_examples_than_a_batch_are_all_used():
    assert sweep(toy(5, 0), toy(4, 1), (2,), QUICK)[0].step <= 60


def test_a_head_is_trained_once_saved_and_loaded(labelled, encoder, tmp_path):
    data = load_labelled(labelled())
    made = train_classifier(data, encoder, tmp_path / "head", QUICK)
    card = json.loads((tmp_path / "head/card.json").read_text())
    assert card["dev"]["acc"] == 1.0 and card["classes"] == {"keyword": ["high", "low"]} and len(card["sweep"]) == 2
    assert sum(card["layer_weights"]) == pytest.approx(1)
    means = CachedStates.load(tmp_path / "head/features/train-dev").stacked(["dev-0", "dev-1"])
    assert made.predict(means) == [{"keyword": "low"}, {"keyword": "high"}]
    before = (tmp_path / "head/head.safetensors").stat().st_mtime_ns
    train_classifier(data, encoder, tmp_path / "head", QUICK)
    assert (tmp_path / "head/head.safetensors").stat().st_mtime_ns == before
    assert Classifier.load(tmp_path / "head", encoder).predict(means) == made.predict(means)


@pytest.mark.parametrize("at", ["attempt", "write_json"])  # while it is trained, and with the head written and its card not
def test_a_killed_run_makes_the_same_head(labelled, encoder, tmp_path, monkeypatch, at):
    class Killed(BaseException):
        pass

    def dying(*_):
        raise Killed

    data = load_labelled(labelled())
    train_classifier(data, encoder, tmp_path / "whole", QUICK)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(classify, at, dying)
        train_classifier(data, encoder, tmp_path / "killed", QUICK)
    assert (tmp_path / "killed/head.safetensors").exists() is (at == "write_json")
    assert not (tmp_path / "killed/card.json").exists()
    train_classifier(data, encoder, tmp_path / "killed", QUICK)
    whole, killed = ((tmp_path / name / "head.safetensors").read_bytes() for name in ("whole", "killed"))
    assert whole == killed


def test_other_inputs_are_refused(labelled, encoder, hubert_folder, tmp_path):
    root = labelled()
    train_classifier(load_labelled(root), encoder, tmp_path / "head", QUICK)
    other = load_encoder(hubert_folder("group"))
    with pytest.raises(InputError, match="trained on another encoder"):
        Classifier.load(tmp_path / "head", other)
    with pytest.raises(InputError, match="encoder"):
        train_classifier(load_labelled(root), other, tmp_path / "head", QUICK)
    lines = (root / "train.jsonl").read_text().splitlines(keepends=True)
    (root / "train.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(InputError, match="data"):
        train_classifier(load_labelled(root), encoder, tmp_path / "head", QUICK)


def test_damage_is_one_sentence(labelled, encoder, tmp_path):
    train_classifier(load_labelled(labelled()), encoder, tmp_path / "head", QUICK)
    weights = tmp_path / "head/head.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(InputError, match="does not hold the weights of its card"):
        Classifier.load(tmp_path / "head", encoder)
    (tmp_path / "head/card.json").write_text("{}")
    with pytest.raises(InputError, match="not the card of a classifier"):
        Classifier.load(tmp_path / "head", encoder)


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
