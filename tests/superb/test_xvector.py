"""The x-vector head: s3prl's own modules, padding, recordings shorter than the context, and what training makes of it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.superb.tasks.verification import CONTEXT, LEAST, Margin, XVector, XVectorShape, repeated, statistics

ODD = [[16], [17, 40, 23], [31, 31], [399], [16, 90]]  # frames; one more than 15, of which s3prl's deviation is NaN


def made(states=3, width=6, speakers=5, projection=7, last=11, seed=0):
    torch.manual_seed(seed)
    head = XVector(XVectorShape(states, width, speakers, projection, last))
    torch.nn.init.normal_(head.featurizer.weights)
    return head


def batch(lengths, states=3, width=6, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(lengths), states, max(lengths), width, generator=generator), torch.tensor(lengths)


def test_the_published_sizes():
    head = XVector(XVectorShape(13, 768, 1211))
    sizes = [(x.in_channels, x.out_channels, x.kernel_size[0], x.dilation[0]) for x in head.layers]
    assert sizes == [(512, 512, 5, 1), (512, 512, 3, 2), (512, 512, 3, 3), (512, 512, 1, 1), (512, 1500, 1, 1)]
    assert (CONTEXT, head.embedding.in_features, head.speakers.shape) == (14, 3000, (512, 1211))
    assert (head.margin.scale, head.margin.margin) == (30, 0.4)


def s3prls(head):
    """Their model with the weights of ours, and their softmax."""
    pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")
    from speechssl.encoders.s3prl import import_hub

    import_hub()
    from s3prl.downstream.sv_voxceleb1.model import AMSoftmaxLoss, Model

    settings = {"agg_dim": head.shape.last, "dropout_p": 0.0, "batch_norm": False}
    model = Model(head.shape.projection, head.shape.last, "SP", "XVector", "UtteranceExtractor", settings)
    for theirs, ours in zip(model.framelevel_feature_extractor.module, head.layers, strict=True):
        weight = ours.weight.permute(0, 2, 1).flatten(1)  # theirs is a linear layer over the frames one after another
        theirs.kernel.load_state_dict({"weight": weight, "bias": ours.bias})
    model.utterancelevel_feature_extractor.linear1.load_state_dict(head.embedding.state_dict())
    model.utterancelevel_feature_extractor.linear2.load_state_dict(head.second.state_dict())
    softmax = AMSoftmaxLoss(head.shape.projection, head.shape.speakers, head.margin.scale, head.margin.margin)
    softmax.W.data.copy_(head.speakers)
    return model, softmax


@pytest.mark.parametrize("lengths", ODD)
@pytest.mark.parametrize(("width", "projection", "last", "speakers"), [(6, 7, 11, 5), (1, 2, 3, 2), (13, 32, 9, 40)])
def test_it_is_s3prls(lengths, width, projection, last, speakers):
    """`downstream/sv_voxceleb1`: embeddings, loss and gradients, of every recording by itself: their pooling takes padding in."""
    head = made(width=width, projection=projection, last=last, speakers=speakers)
    model, softmax = s3prls(head)
    (states, frames), numbers = batch(lengths, width=width), torch.arange(len(lengths)) % speakers
    embedded, trained = [], []
    for x, n in zip(states, lengths, strict=True):
        features, mask = head.projection(head.featurizer(x[None, :, :n])), torch.zeros(1, n - 14)
        embedded.append(model.inference(features, mask))
        trained.append(model(features, mask))
    ours, theirs = head(states, frames), torch.cat(embedded)
    assert torch.allclose(ours, theirs, atol=1e-5)
    loss, expected = head.loss(ours, numbers), softmax(torch.cat(trained), numbers)
    assert torch.allclose(loss, expected, atol=1e-4)
    parameters = [head.projection.weight, head.featurizer.weights]
    for mine, his in zip(torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters), strict=True):
        assert torch.allclose(mine, his, atol=1e-3, rtol=1e-3)


def test_the_fault_of_s3prls_pooling():
    """Why recordings go through theirs one by one above: next to a longer one, a frame of padding is taken in."""
    head = made()
    model, _ = s3prls(head)
    states, lengths = batch([40, 23])
    mask = torch.zeros(2, 26)
    mask[1, 9:] = -100_000.0
    theirs, ours = model.inference(head.projection(head.featurizer(states)), mask), head(states, lengths)
    assert torch.allclose(ours[0], theirs[0], atol=1e-5) and not torch.allclose(ours[1], theirs[1], atol=1e-4)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=5), st.integers(0, 99))
def test_batch_mates_and_padding_never_matter(lengths, seed):
    head = made(seed=seed)
    states, frames = batch(lengths, seed=seed)
    together = head(states, frames)
    for i, n in enumerate(lengths):
        assert torch.allclose(head(states[i : i + 1, :, :n], frames[i : i + 1])[0], together[i], atol=1e-5)
        states[i, :, n:] = 1e6
    assert torch.allclose(head(states, frames), together, atol=1e-5)


@pytest.mark.parametrize("frames", [1, 2, 13, 14, 15])
def test_a_short_recording_is_repeated(frames):
    head = made()
    states, lengths = batch([frames])
    around = states.repeat(1, 1, LEAST, 1)[:, :, :LEAST]
    found = head(states, lengths)
    assert torch.isfinite(found).all() and torch.allclose(found, head(around, torch.tensor([LEAST])), atol=1e-6)
    head.loss(found, torch.tensor([0])).backward()
    assert all(torch.isfinite(p.grad).all() for p in head.parameters())


def test_only_short_ones_are_repeated():
    frames = torch.arange(10.0).reshape(2, 5, 1)
    again, lengths = repeated(frames, torch.tensor([2, 5]), 4)
    assert lengths.tolist() == [4, 5] and again[0, :4, 0].tolist() == [0, 1, 0, 1] and torch.equal(again[1], frames[1])
    same, lengths = repeated(frames, torch.tensor([4, 5]), 4)
    assert torch.equal(same, frames) and lengths.tolist() == [4, 5]


def test_statistics_by_hand():
    frames = torch.tensor([[[1.0, 3.0, 5.0, float("nan")], [2.0, 2.0, 2.0, float("inf")]]], requires_grad=True)
    found = statistics(frames, torch.tensor([3]))
    assert torch.allclose(found, torch.tensor([[3.0, 2.0, 2.0, 0.0]]), atol=1e-5)
    found.sum().backward()
    assert torch.isfinite(frames.grad).all()


def test_the_margin_is_paid_by_the_right_speaker_alone():
    head, easy = made(), made()
    easy.margin = Margin(margin=0.0)
    states, lengths = batch([30, 30])
    numbers = torch.tensor([0, 1])
    assert head.loss(head(states, lengths), numbers) > easy.loss(easy(states, lengths), numbers)
    head.margin = Margin(scale=1e4)
    assert torch.isfinite(head.loss(head(states, lengths), numbers))
