"""Classification: the head on means and on frames, its training, and s3prl's own experts."""

import importlib
import json
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from speechssl.data.superb import load_labelled
from speechssl.superb import train
from speechssl.superb.data import (
    TRAINING,
    CachedLoader,
    HeadSettings,
    cache_states,
    encoder_card,
    list_split_recordings,
)
from speechssl.superb.export import TASKS
from speechssl.superb.tasks.classification import Classification, UtteranceClassifier
from speechssl.superb.train import HeadRun, train_heads

from ...files import untouched


@pytest.fixture(scope="module")
def run(labelled, encoder, tmp_path_factory):
    """Of a head on cached means, whose folder is not there yet."""
    folder = tmp_path_factory.mktemp("run")
    data = load_labelled(labelled())
    cache_states(encoder, list_split_recordings(data, TRAINING), folder / "features", True)
    task = Classification("ks", data, encoder.grid)
    loader = CachedLoader(data, folder / "features", True, False)
    settings = HeadSettings(1e-3, 60, 32, 20, patience=3)
    return HeadRun(task, loader, settings, 0, folder, rates=(1e-3, 1e-2))


def trained(run, folder, encoder):
    return train_heads([replace(run, folder=folder)], encoder_card(encoder))[0]


@pytest.mark.slow
def test_a_head_is_trained_once_saved_and_loaded(run, encoder, tmp_path):
    made = trained(run, tmp_path / "head", encoder)
    card = json.loads((tmp_path / "head/card.json").read_text())
    assert card["dev"]["acc"] == 100
    assert sum(card["layer_weights"]) == pytest.approx(1)
    dev = made.task.data.splits["dev"]
    predicted = train.predict({"it": (made.task, made.head)}, run.loader, dev, 3)["it"]
    found = made.task.evaluate("dev", predicted, 0)
    assert (found.measures[0].value, found.measures[0].n) == (100, 4)
    confusion = {"classes": ["high", "low"], "counts": [[2, 0], [0, 2]]}
    assert found.detail["confusion"]["keyword"] == confusion
    chosen = [made.task.choose(predicted[f"dev-{i}"]) for i in (0, 1)]
    assert chosen == [{"keyword": "low"}, {"keyword": "high"}]
    with untouched(tmp_path / "head"):
        again = trained(run, tmp_path / "head", encoder)
    assert again.weights == made.weights
    del predicted["dev-1"]  # an unreadable recording counts as wrong
    found = made.task.evaluate("dev", predicted, 50).measures[0]
    assert (found.value, found.n) == (75.0, 4)
    assert found.low <= 75 <= found.high
    assert made.task.evaluate("dev", {}, 50).measures[0].value == 0


def test_classes_come_equally_often_where_that_is_wanted(labelled, encoder):
    data = load_labelled(labelled(counts=(9, 4, 4)))  # five low, four high
    weights = Classification("ks", data, encoder.grid).weights(data.splits["train"])
    assert weights[::2].sum() == pytest.approx(1)
    assert weights[1::2].sum() == pytest.approx(1)


HOP = 320
# B, S, lengths, D
SHAPES = [(1, 2, [1], 1), (3, 7, [13, 5, 1], 5)]
CLASSES = {"ks": (12,), "sid": (1251,), "ic": (6, 14, 4), "er": (4,)}


class Upstream(nn.Module):
    """Gives the states that it was made with, but for the second of sound that their featurizer
    begins with."""

    def __init__(self, states):
        super().__init__()
        self.states = states  # (B, S, T, D)

    def get_downsample_rates(self, key):
        return HOP

    def forward(self, waves):
        return {"hidden_states": list(self.states.unbind(1))}


def their_expert(name, width, classes):
    """An expert with its layers and without its data, which it would read when it is made."""
    task = next(t for t in TASKS if t.name == name)
    module = importlib.import_module(f"s3prl.downstream.{task.downstream}.expert")
    head = task.config()["downstream_expert"]["modelrc"]
    expert, projected = (
        module.DownstreamExpert.__new__(module.DownstreamExpert),
        head["projector_dim"],
    )
    nn.Module.__init__(expert)
    expert.projector = nn.Linear(width, projected)
    expert.model = module.UtteranceLevel(projected, sum(classes), **head["UtteranceLevel"])
    expert.objective = nn.CrossEntropyLoss()
    if name == "ic":
        expert.values_per_slot = list(classes)
        slots = zip(("action", "object", "location"), classes, strict=True)
        expert.Sy_intent = {slot: {i: f"{slot}-{i}" for i in range(n)} for slot, n in slots}
    if name == "er":
        expert.test_dataset = SimpleNamespace(idx2emotion={i: str(i) for i in range(4)})
    return expert


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_loss_accuracy_and_gradients_are_the_experts(s3prl, name, shape):
    from s3prl.upstream.interfaces import Featurizer

    batch, count, lengths, width = shape
    classes = CLASSES[name]
    torch.manual_seed(0)
    states = 3 * torch.randn(batch, count, max(lengths), width) + torch.randn(width)
    waves = [torch.zeros(n * HOP) for n in lengths]
    ours, expert = UtteranceClassifier(count, width, classes), their_expert(name, width, classes)
    nn.init.normal_(ours.featurizer.weights)
    expert.projector.load_state_dict(ours.projection.state_dict())
    expert.model.post_net.linear.load_state_dict(ours.output.state_dict())
    theirs = Featurizer(Upstream(states), upstream_device="cpu")
    if count > 1:
        theirs.weights.data.copy_(ours.featurizer.weights.data)
    labels = torch.stack([torch.randint(n, (batch,)) for n in classes], 1)
    features, records = theirs(waves, Upstream(states)(waves)), defaultdict(list)
    wanted = list(labels.numpy()) if name == "ic" else labels[:, 0].tolist()
    names = [str(i) for i in range(batch)]
    their_loss = expert("train", features, wanted, names, records=records)
    # the mean may be taken first, as there is no non-linearity
    logits = ours(torch.stack([x[:, :n].mean(1) for x, n in zip(states, lengths, strict=True)]))
    loss = ours.loss(logits, labels)
    torch.testing.assert_close(loss, their_loss, atol=1e-5, rtol=1e-5)
    chosen = torch.stack([of_slot.argmax(1) for of_slot in logits.split(classes, 1)], 1)
    assert (chosen == labels).all(1).float().tolist() == records["acc"]
    loss.backward()
    their_loss.backward()
    pairs = [(ours.projection, expert.projector), (ours.output, expert.model.post_net.linear)]
    for mine, other in pairs:
        torch.testing.assert_close(mine.weight.grad, other.weight.grad, atol=1e-5, rtol=1e-3)
    gradients = ours.featurizer.weights.grad, theirs.weights.grad
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-3)
