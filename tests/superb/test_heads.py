"""The classification head: means first or last, padding that does not matter, several slots, and s3prl's own modules."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.superb.tasks.classification import ClassifierShape, UtteranceClassifier, accuracy, numbers


def made(states=4, width=6, classes=(3,), seed=0):
    torch.manual_seed(seed)
    head = UtteranceClassifier(ClassifierShape(states, width, classes, projection=8))
    torch.nn.init.normal_(head.featurizer.weights)
    return head


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 7), st.integers(0, 99))
def test_the_head_on_means_is_the_head_on_frames(lengths, states, seed):
    head = made(states, seed=seed)
    frames = torch.randn(len(lengths), states, max(lengths), 6)
    means = torch.stack([x[:, :n].mean(1) for x, n in zip(frames, lengths, strict=True)])
    assert torch.allclose(head(frames, torch.tensor(lengths)), head.of_means(means), atol=1e-5)


def test_padding_never_matters():
    head, frames, lengths = made(), torch.randn(2, 4, 9, 6), torch.tensor([9, 5])
    before = head(frames, lengths)
    frames[1, :, 5:] = float("nan")
    assert torch.equal(head(frames, lengths), before)


def test_there_is_no_non_linearity():
    head, a, b = made(), torch.randn(3, 4, 6), torch.randn(3, 4, 6)
    assert torch.allclose(head.of_means(a) + head.of_means(b), 2 * head.of_means((a + b) / 2), atol=1e-5)


def test_slots_add_their_losses_and_all_must_be_right():
    head, labels = made(classes=(3, 2)), torch.tensor([[0, 1], [2, 0]])
    logits = head.of_means(torch.randn(2, 4, 6))
    cross = torch.nn.functional.cross_entropy
    assert torch.allclose(head.loss(logits, labels), cross(logits[:, :3], labels[:, 0]) + cross(logits[:, 3:], labels[:, 1]))
    assert torch.equal(head.choose(logits), torch.stack([logits[:, :3].argmax(1), logits[:, 3:].argmax(1)], 1))
    assert accuracy(torch.tensor([[0, 1], [2, 1]]), labels) == 0.5


def test_labels_become_numbers():
    assert numbers([["b", "x"], ["a", "y"]], [("a", "b"), ("x", "y")]).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(("lengths", "classes"), [([1], (2,)), ([17, 3, 9], (12,)), ([5, 31], (6, 14, 4))])
def test_it_is_s3prls(lengths, classes):
    """`downstream/model.py`, which the experts of all four tasks use behind a projector, and `nn/linear.py`."""
    pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")
    from speechssl.encoders.s3prl import import_hub

    import_hub()
    from s3prl.downstream.model import UtteranceLevel
    from s3prl.nn.linear import MeanPoolingLinear

    head, lengths = made(classes=classes), torch.tensor(lengths)
    frames = torch.randn(len(lengths), 4, int(lengths.max()), 6)
    summed, projector = head.featurizer(frames), torch.nn.Linear(6, 8)
    model, whole = UtteranceLevel(8, sum(classes), pooling="MeanPooling"), MeanPoolingLinear(6, sum(classes), 8)
    projector.load_state_dict(head.projection.state_dict())
    model.post_net.linear.load_state_dict(head.output.state_dict())
    whole.hidden_layers[0].load_state_dict(head.projection.state_dict())
    whole.final_proj.load_state_dict(head.output.state_dict())
    assert torch.allclose(head(frames, lengths), model(projector(summed), lengths)[0], atol=1e-5)
    assert torch.allclose(head(frames, lengths), whole(summed, lengths), atol=1e-5)
