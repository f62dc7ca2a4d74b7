"""Classification: the head on means and on frames, its training, and s3prl's own experts."""

import importlib
import json
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from speechssl.data.superb import load_labelled
from speechssl.encoders.load import load_encoder
from speechssl.encoders.s3prl import stand_in_for_programs
from speechssl.encoders.s3prl_upstream import register
from speechssl.encoders.states import encoder_card
from speechssl.errors import InputError
from speechssl.superb import train
from speechssl.superb.data import CachedLoader, Featurizer
from speechssl.superb.export import TASKS
from speechssl.superb.tasks.classification import Classification, ClassifierOptions, UtteranceClassifier, train_classifier
from speechssl.superb.train import load_head

QUICK = ClassifierOptions(learning_rates=(1e-3, 1e-2), steps=60, every=20, patience=3)


def evaluated(made, folder, split="dev"):
    loader = CachedLoader(made.task.data, folder, True, False)
    predicted = train.predictions({"it": (made.task, made.head)}, loader, made.task.data.splits[split], 3)["it"]
    return predicted, made.task.evaluate(split, predicted, 0)


@pytest.mark.slow
def test_a_head_is_trained_once_saved_and_loaded(labelled, encoder, tmp_path):
    data = load_labelled(labelled())
    made = train_classifier(data, encoder, tmp_path / "head", QUICK)
    card = json.loads((tmp_path / "head/card.json").read_text())
    assert card["dev"]["acc"] == 100 and [x["learning_rate"] for x in card["sweep"]] == [1e-3, 1e-2]
    assert sum(card["layer_weights"]) == pytest.approx(1) and card["default_learning_rate"] == 1e-3
    predicted, found = evaluated(made, tmp_path / "head-features/train-dev")
    assert found.measures[0].value == 100 and found.measures[0].n == 4
    assert found.detail["confusion"]["keyword"] == {"classes": ["high", "low"], "counts": [[2, 0], [0, 2]]}
    assert [made.task.choose(predicted[f"dev-{i}"]) for i in (0, 1)] == [{"keyword": "low"}, {"keyword": "high"}]
    before = (tmp_path / "head/head.safetensors").stat().st_mtime_ns
    train_classifier(data, encoder, tmp_path / "head", QUICK)
    assert (tmp_path / "head/head.safetensors").stat().st_mtime_ns == before
    assert not list((tmp_path / "head").glob("lr-*"))
    again = load_head(tmp_path / "head", made.task, encoder_card(encoder))
    assert evaluated(again, tmp_path / "head-features/train-dev")[0] == predicted
    del predicted["dev-1"]  # an unreadable recording counts as wrong
    found = made.task.evaluate("dev", predicted, 50).measures[0]
    assert (found.value, found.n) == (75.0, 4) and found.low <= 75 <= found.high
    assert made.task.evaluate("dev", {}, 50).measures[0].value == 0


def test_all_slots_must_be_right(labelled, encoder):
    data = load_labelled(labelled(slots=("action", "object")))
    task = Classification("ic", data, encoder.grid)
    right, half = [-0.1, -3.0, -0.1, -3.0], [-0.1, -3.0, -3.0, -0.1]
    truth = {u.id: (u.labels["action"], u.labels["object"]) for u in data.splits["dev"]}
    predicted = {name: half if labels == ("high", "low") else right for name, labels in truth.items()}
    expected = 100 * sum(task.choose(predicted[n]) == {"action": a, "object": o} for n, (a, o) in truth.items()) / len(truth)
    assert task.evaluate("dev", predicted, 0).measures[0].value == expected


@pytest.mark.slow
def test_a_killed_run_makes_the_same_head(labelled, encoder, tmp_path, dies_in):
    data = load_labelled(labelled())
    train_classifier(data, encoder, tmp_path / "whole", QUICK)
    for at in ("sweep", "write_json"):  # while it is trained, and with the head written and its card not
        with dies_in(train, at):
            train_classifier(data, encoder, tmp_path / at, QUICK)
        assert (tmp_path / at / "head.safetensors").exists() is (at == "write_json")
        assert not (tmp_path / at / "card.json").exists()
        train_classifier(data, encoder, tmp_path / at, QUICK)
        whole, killed = ((tmp_path / name / "head.safetensors").read_bytes() for name in ("whole", at))
        assert whole == killed, at


@pytest.mark.slow
def test_other_inputs_and_damage_are_refused(labelled, encoder, hubert_folder, tmp_path):
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
        train_classifier(load_labelled(root), encoder, tmp_path / "head", QUICK)
    weights = tmp_path / "head/head.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(InputError, match="does not have the weights of its card"):
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
    with pytest.raises(InputError, match=r"dev.jsonl could be read"):
        train_classifier(load_labelled(root), encoder, tmp_path / "other", QUICK)
    assert not (tmp_path / "other").exists()


def test_classes_come_equally_often_where_that_is_wanted(labelled, encoder, tmp_path):
    data = load_labelled(labelled(counts=(9, 4, 4)))  # five low, four high
    weights = Classification("ks", data, encoder.grid).weights(data.splits["train"])
    assert weights[::2].sum() == pytest.approx(1) and weights[1::2].sum() == pytest.approx(1)


pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")
pytest.importorskip("pandas", reason="s3prl's experts read their lists with pandas")

HOP = 320
SHAPES = [(1, 2, [1], 1), (3, 7, [13, 5, 1], 5), (2, 25, [1, 1], 64), (4, 3, [2, 31, 30, 7], 3)]  # B, S, lengths, D
CLASSES = {"ks": (12,), "sid": (1251,), "ic": (6, 14, 4), "er": (4,)}


@pytest.fixture(scope="module", autouse=True)
def _s3prl():
    """Its shim, and that of its programs: the expert of KS is not imported without."""
    register()
    stand_in_for_programs()


class Upstream(nn.Module):
    """Gives the states that it was made with, but for the second of sound that their featurizer begins with."""

    def __init__(self, states):
        super().__init__()
        self.states = states  # (B, S, T, D)

    def get_downsample_rates(self, key):
        return HOP

    def forward(self, waves):
        return {"hidden_states": list(self.states.unbind(1))}


def drawn(batch, count, lengths, width, seed=0):
    torch.manual_seed(seed)
    states = 3 * torch.randn(batch, count, max(lengths), width) + torch.randn(width)
    waves = [torch.zeros(n * HOP) for n in lengths]
    return states, waves


def their_featurizer(states, weights=None, **options):
    from s3prl.upstream.interfaces import Featurizer as Theirs

    theirs = Theirs(Upstream(states), upstream_device="cpu", **options)
    if weights is not None and states.shape[1] > 1:
        theirs.weights.data.copy_(weights)
    return theirs


def weighted(count, seed=1):
    ours = Featurizer(count)
    nn.init.normal_(ours.weights, generator=torch.Generator().manual_seed(seed))
    return ours


# ---- the head


def test_the_four_tasks_share_one_head():
    for task in TASKS:
        if task.name in CLASSES:
            assert task.config()["downstream_expert"]["modelrc"] == {
                "projector_dim": 256,
                "select": "UtteranceLevel",
                "UtteranceLevel": {"pooling": "MeanPooling"},
            }


def their_expert(name, width, classes):
    """An expert with its layers and without its data, which it would read when it is made."""
    task = next(t for t in TASKS if t.name == name)
    module = importlib.import_module(f"s3prl.downstream.{task.downstream}.expert")
    head = task.config()["downstream_expert"]["modelrc"]
    expert = module.DownstreamExpert.__new__(module.DownstreamExpert)
    nn.Module.__init__(expert)
    expert.projector = nn.Linear(width, head["projector_dim"])
    expert.model = module.UtteranceLevel(head["projector_dim"], sum(classes), **head["UtteranceLevel"])
    expert.objective = nn.CrossEntropyLoss()
    if name == "ic":
        expert.values_per_slot = list(classes)
        slots = zip(("action", "object", "location"), classes, strict=True)
        expert.Sy_intent = {slot: {i: f"{slot}-{i}" for i in range(n)} for slot, n in slots}
    if name == "er":
        expert.test_dataset = SimpleNamespace(idx2emotion={i: str(i) for i in range(4)})
    return expert


def means_of(states, lengths):
    """(B, S, D)."""
    return torch.stack([x[:, :n].mean(1) for x, n in zip(states, lengths, strict=True)])


def chosen_of(head, logits):
    """(B, slots) the likeliest class of every slot."""
    return torch.stack([of_slot.argmax(1) for of_slot in logits.split(head.classes, 1)], 1)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_loss_accuracy_and_gradients_are_the_experts(name, shape):
    batch, count, lengths, width = shape
    classes = CLASSES[name]
    states, waves = drawn(*shape)
    ours, expert = UtteranceClassifier(count, width, classes), their_expert(name, width, classes)
    ours.featurizer.weights.data.copy_(weighted(count).weights.data)
    expert.projector.load_state_dict(ours.projection.state_dict())
    expert.model.post_net.linear.load_state_dict(ours.output.state_dict())
    theirs = their_featurizer(states, ours.featurizer.weights.data)
    labels = torch.stack([torch.randint(n, (batch,)) for n in classes], 1)

    features = theirs(waves, Upstream(states)(waves))
    wanted, records = labels.numpy() if name == "ic" else labels[:, 0].tolist(), defaultdict(list)
    their_loss = expert("train", features, list(wanted), [str(i) for i in range(batch)], records=records)
    logits = ours(means_of(states, lengths))  # the mean may be taken first, as there is no non-linearity
    loss = ours.loss(logits, labels)
    torch.testing.assert_close(loss, their_loss, atol=1e-5, rtol=1e-5)
    assert (chosen_of(ours, logits) == labels).all(1).float().tolist() == records["acc"]
    loss.backward()
    their_loss.backward()
    pairs = [(ours.projection, expert.projector), (ours.output, expert.model.post_net.linear)]
    for mine, other in pairs:
        torch.testing.assert_close(mine.weight.grad, other.weight.grad, atol=1e-5, rtol=1e-3)
    torch.testing.assert_close(ours.featurizer.weights.grad, theirs.weights.grad, atol=1e-4, rtol=1e-3)


def test_an_intent_is_right_when_all_three_slots_are():
    """Labels that are the expert's own choice, but for one slot of one utterance."""
    expert, lengths = their_expert("ic", 4, CLASSES["ic"]), [3, 2, 5]
    torch.manual_seed(0)
    ours = UtteranceClassifier(1, 4, CLASSES["ic"])
    expert.projector.load_state_dict(ours.projection.state_dict())
    expert.model.post_net.linear.load_state_dict(ours.output.state_dict())
    states, _ = drawn(3, 1, lengths, 4)
    chosen = chosen_of(ours, ours(means_of(states, lengths)))
    labels = chosen.clone()
    labels[1, 2] = (labels[1, 2] + 1) % 4
    records = defaultdict(list)
    features = [states[i, 0, :n] for i, n in enumerate(lengths)]
    expert("dev", features, list(labels.numpy()), ["a", "b", "c"], records=records)
    assert records["acc"] == [1.0, 0.0, 1.0] == (chosen == labels).all(1).float().tolist()
