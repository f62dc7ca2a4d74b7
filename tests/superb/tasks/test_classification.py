"""Tests of classification: a head is trained, saved and loaded, and compared with s3prl's."""

import importlib
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from speechssl.data.superb import load_labelled
from speechssl.superb import train
from speechssl.superb.data import HeadSettings, describe_encoder
from speechssl.superb.export import RUNNER_TASKS
from speechssl.superb.tasks.classification import Classification, UtteranceClassifier
from speechssl.superb.train import HeadRun, train_heads


@pytest.mark.slow
def test_a_head_is_trained_saved_and_evaluated(keywords, encoder, tmp_path):
    task, loader = keywords
    settings = HeadSettings(learning_rate=1e-3, steps=60, batch=32, every=20, patience=3)
    run = HeadRun(task, loader, settings, 0, tmp_path / "head", rates=(1e-3, 1e-2))
    (trained,) = train_heads([run], describe_encoder(encoder))
    assert trained.card["dev"]["acc"] == 100
    assert sum(trained.card["layer_weights"]) == pytest.approx(1)
    dev = task.data.splits["dev"]
    predicted = train.predict({"head": (task, trained.head)}, loader, dev, batch=3)["head"]
    evaluation = task.evaluate("dev", predicted, 0)
    assert evaluation.measures["acc"].value == 100
    assert evaluation.measures["acc"].n == 4
    confusion = {"classes": ["high", "low"], "counts": [[2, 0], [0, 2]]}
    assert evaluation.detail["confusion"]["keyword"] == confusion
    del predicted["dev-1"]  # an unreadable recording counts as wrong
    measure = task.evaluate("dev", predicted, resamples=50).measures["acc"]
    assert measure.value == 75
    assert measure.low <= 75 <= measure.high
    assert task.evaluate("dev", {}, resamples=50).measures["acc"].value == 0


def test_sampling_weights_balance_the_classes(labelled, encoder):
    data = load_labelled(labelled(counts=(9, 4, 4)))  # in training five low and four high
    weights = Classification("ks", data, encoder.grid).compute_weights(data.splits["train"])
    assert weights[::2].sum() == pytest.approx(1)
    assert weights[1::2].sum() == pytest.approx(1)


# ---- the head beside s3prl's

HOP = 320
CLASSES = {"ks": (12,), "sid": (1251,), "ic": (6, 14, 4), "er": (4,)}


class Upstream(nn.Module):
    """This upstream of s3prl gives the states that it was made with, whatever the waves."""

    def __init__(self, states):
        super().__init__()
        self.states = states  # (B, S, T, D)

    def get_downsample_rates(self, key):
        return HOP

    def forward(self, waves):
        return {"hidden_states": list(self.states.unbind(1))}


def make_expert(name, width, classes):
    """Make s3prl's expert with its layers, and without its data, which `__init__` would read."""
    task = next(t for t in RUNNER_TASKS if t.name == name)
    module = importlib.import_module(f"s3prl.downstream.{task.downstream}.expert")
    sizes = task.make_config()["downstream_expert"]["modelrc"]
    projection = sizes["projector_dim"]
    expert = module.DownstreamExpert.__new__(module.DownstreamExpert)
    nn.Module.__init__(expert)
    expert.projector = nn.Linear(width, projection)
    expert.model = module.UtteranceLevel(projection, sum(classes), **sizes["UtteranceLevel"])
    expert.objective = nn.CrossEntropyLoss()
    if name == "ic":
        expert.values_per_slot = list(classes)
        slots = zip(("action", "object", "location"), classes, strict=True)
        expert.Sy_intent = {slot: {i: f"{slot}-{i}" for i in range(n)} for slot, n in slots}
    if name == "er":
        expert.test_dataset = SimpleNamespace(idx2emotion={i: str(i) for i in range(4)})
    return expert


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize(("count", "lengths", "width"), [(2, [1], 1), (7, [13, 5, 1], 5)])
def test_loss_accuracy_and_gradients_are_s3prls(s3prl, name, count, lengths, width):
    """count: hidden states; lengths: frames of every recording."""
    from s3prl.upstream.interfaces import Featurizer

    classes = CLASSES[name]
    torch.manual_seed(0)
    states = 3 * torch.randn(len(lengths), count, max(lengths), width) + torch.randn(width)
    waves = [torch.zeros(n * HOP) for n in lengths]
    head, expert = UtteranceClassifier(count, width, classes), make_expert(name, width, classes)
    nn.init.normal_(head.featurizer.weights)
    expert.projector.load_state_dict(head.projection.state_dict())
    expert.model.post_net.linear.load_state_dict(head.output.state_dict())
    featurizer = Featurizer(Upstream(states), upstream_device="cpu")
    featurizer.weights.data.copy_(head.featurizer.weights.data)
    labels = torch.stack([torch.randint(n, (len(lengths),)) for n in classes], 1)
    features, records = featurizer(waves, Upstream(states)(waves)), defaultdict(list)
    expert_labels = list(labels.numpy()) if name == "ic" else labels[:, 0].tolist()
    names = [str(i) for i in range(len(lengths))]
    expected = expert("train", features, expert_labels, names, records=records)
    # we take the mean over time first, which is the same without a non-linearity
    means = [x[:, :n].mean(1) for x, n in zip(states, lengths, strict=True)]
    logits = head(torch.stack(means))
    loss = head.loss(logits, labels)
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
    predicted = torch.stack([slot.argmax(1) for slot in logits.split(classes, 1)], 1)
    assert (predicted == labels).all(1).float().tolist() == records["acc"]
    loss.backward()
    expected.backward()
    layers = [(head.projection, expert.projector), (head.output, expert.model.post_net.linear)]
    for layer, other in layers:
        torch.testing.assert_close(layer.weight.grad, other.weight.grad, atol=1e-5, rtol=1e-3)
    gradient, other_gradient = head.featurizer.weights.grad, featurizer.weights.grad
    torch.testing.assert_close(gradient, other_gradient, atol=1e-4, rtol=1e-3)
