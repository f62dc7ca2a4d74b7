"""Our featurizer and classification head against s3prl's own: the same weights, the same states, odd shapes, junk in the padding.

Theirs are run as their runner runs them: states -> `upstream/interfaces.Featurizer` -> the expert's `forward`, which projects,
pools by `downstream/model.py` and takes loss and accuracy. One thing is not compared, for it is a fault: their runner cuts
round(samples / hop) frames for an utterance, which is one more than most front ends give, so that a short one in a batch takes a
frame of its padding along. We count the frames that there are. (In their runner our upstream repeats the last one instead.)
"""

import importlib
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from speechssl.encoders.s3prl import stand_in_for_programs
from speechssl.encoders.s3prl_upstream import register
from speechssl.superb.s3prl_tasks import TASKS
from speechssl.superb.task import Featurizer
from speechssl.superb.tasks.classification import ClassifierShape, UtteranceClassifier, accuracy

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


# ---- the featurizer


@pytest.mark.parametrize("shape", SHAPES)
def test_the_featurizer_of_the_runner(shape):
    states, waves = drawn(*shape)
    ours = weighted(shape[1])
    theirs = their_featurizer(states, ours.weights.data)
    found, expected = ours(states), theirs(waves, Upstream(states)(waves))
    for i, (features, n) in enumerate(zip(expected, shape[2], strict=True)):
        assert features.shape == (n, shape[3])
        torch.testing.assert_close(found[i, :n], features, atol=2e-6, rtol=1e-5)
    sum(x.square().sum() for x in expected).backward()
    sum(found[i, :n].square().sum() for i, n in enumerate(shape[2])).backward()
    torch.testing.assert_close(ours.weights.grad, theirs.weights.grad, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_featurizer_of_the_package(shape):
    from s3prl.nn import Featurizer as Theirs

    states, _ = drawn(*shape)
    ours, count = weighted(shape[1]), shape[1]
    theirs = Theirs(SimpleNamespace(hidden_sizes=[shape[3]] * count, downsample_rates=[HOP] * count, num_layers=count))
    theirs.weights.data.copy_(ours.weights.data)
    lengths = [torch.tensor(shape[2])] * count
    summed, kept = theirs(list(states.unbind(1)), lengths)
    torch.testing.assert_close(ours(states), summed, atol=2e-6, rtol=1e-5)
    assert torch.equal(kept, lengths[0])


def test_layers_are_not_normalised_unless_they_are_told_to():
    """SUPERB sums states as they are (their defaults); with their option, ours gives theirs on states that were normalised."""
    shape = SHAPES[1]
    states, waves = drawn(*shape)
    ours = weighted(shape[1])
    plain, normalised = (their_featurizer(states, ours.weights.data, **o) for o in ({}, {"normalize": True}))
    assert plain.normalize is False
    given = Upstream(states)(waves)
    assert not torch.allclose(plain(waves, given)[0], normalised(waves, given)[0], atol=1e-2)
    summed = ours(nn.functional.layer_norm(states, states.shape[-1:]))
    torch.testing.assert_close(summed[0, : shape[2][0]], normalised(waves, given)[0], atol=2e-6, rtol=1e-5)


def test_one_state_has_no_weights_there_and_is_itself_here():
    states, waves = drawn(2, 1, [4, 3], 5)
    theirs = their_featurizer(states)
    assert not hasattr(theirs, "weights")
    for i, features in enumerate(theirs(waves, Upstream(states)(waves))):
        assert torch.equal(Featurizer(1)(states)[i, : len(features)], features)


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


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_loss_accuracy_and_gradients_are_the_experts(name, shape):
    batch, count, lengths, width = shape
    classes = CLASSES[name]
    states, waves = drawn(*shape)
    ours, expert = UtteranceClassifier(ClassifierShape(count, width, classes)), their_expert(name, width, classes)
    ours.featurizer.weights.data.copy_(weighted(count).weights.data)
    expert.projector.load_state_dict(ours.projection.state_dict())
    expert.model.post_net.linear.load_state_dict(ours.output.state_dict())
    theirs = their_featurizer(states, ours.featurizer.weights.data)
    labels, real = torch.stack([torch.randint(n, (batch,)) for n in classes], 1), torch.tensor(lengths)

    features = theirs(waves, Upstream(states)(waves))
    wanted, records = labels.numpy() if name == "ic" else labels[:, 0].tolist(), defaultdict(list)
    their_loss = expert("train", features, list(wanted), [str(i) for i in range(batch)], records=records)
    padded = states.clone()
    for i, n in enumerate(lengths):
        padded[i, :, n:] = torch.randn_like(padded[i, :, n:]) * 1e6
    logits = ours(padded, real)
    loss = ours.loss(logits, labels)
    torch.testing.assert_close(loss, their_loss, atol=1e-5, rtol=1e-5)
    chosen = ours.choose(logits)
    right = (chosen == labels).all(1).float().tolist()
    assert right == records["acc"] and accuracy(chosen, labels) == pytest.approx(sum(records["acc"]) / batch)
    loss.backward()
    their_loss.backward()
    pairs = [(ours.projection, expert.projector), (ours.output, expert.model.post_net.linear)]
    for mine, other in pairs:
        torch.testing.assert_close(mine.weight.grad, other.weight.grad, atol=1e-5, rtol=1e-3)
    torch.testing.assert_close(ours.featurizer.weights.grad, theirs.weights.grad, atol=1e-4, rtol=1e-3)
    means = torch.stack([states[i, :, :n].mean(1) for i, n in enumerate(lengths)])
    torch.testing.assert_close(ours.of_means(means), logits, atol=1e-4, rtol=1e-4)


def test_an_intent_is_right_when_all_three_slots_are():
    """Labels that are the expert's own choice, but for one slot of one utterance."""
    expert, lengths = their_expert("ic", 4, CLASSES["ic"]), [3, 2, 5]
    torch.manual_seed(0)
    ours = UtteranceClassifier(ClassifierShape(1, 4, CLASSES["ic"]))
    expert.projector.load_state_dict(ours.projection.state_dict())
    expert.model.post_net.linear.load_state_dict(ours.output.state_dict())
    states, _ = drawn(3, 1, lengths, 4)
    chosen = ours.choose(ours(states, torch.tensor(lengths)))
    labels = chosen.clone()
    labels[1, 2] = (labels[1, 2] + 1) % 4
    records = defaultdict(list)
    features = [states[i, 0, :n] for i, n in enumerate(lengths)]
    expert("dev", features, list(labels.numpy()), ["a", "b", "c"], records=records)
    assert records["acc"] == [1.0, 0.0, 1.0] and accuracy(chosen, labels) == pytest.approx(2 / 3)
