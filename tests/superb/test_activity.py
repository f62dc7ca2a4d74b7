"""The diarisation head and its loss: s3prl's own, any number of speakers, padding."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.superb.tasks.diarisation import ActivityShape, SpeakerActivity, permutation_free_loss


def made(states=3, width=6, speakers=2, hidden=8, layers=1):
    torch.manual_seed(0)
    head = SpeakerActivity(ActivityShape(states, width, speakers, hidden, layers))
    torch.nn.init.normal_(head.featurizer.weights)
    return head


def s3prls():
    pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")
    from speechssl.encoders.s3prl import import_hub

    import_hub()
    from s3prl.downstream.diarization.model import Model
    from s3prl.downstream.diarization.utils import pit_loss

    return Model, pit_loss


@pytest.mark.parametrize("lengths", [[1], [2, 1], [37], [5, 31, 17], [1, 40]])
@pytest.mark.parametrize(("width", "hidden", "speakers", "layers"), [(6, 8, 2, 1), (1, 3, 3, 1), (13, 5, 4, 2), (2, 1, 1, 1)])
def test_it_is_s3prls(lengths, width, hidden, speakers, layers):
    """`downstream/diarization`: logits, loss and gradients."""
    model_of, pit_loss = s3prls()
    head, frames = made(width=width, hidden=hidden, speakers=speakers, layers=layers), torch.tensor(lengths)
    model = model_of(width, speakers, layers, hidden)
    model.rnn.load_state_dict(head.lstm.state_dict())
    model.linear.load_state_dict(head.output.state_dict())
    states = torch.randn(len(lengths), 3, max(lengths), width)
    truth = (torch.rand(len(lengths), max(lengths), speakers) > 0.5).float()
    ours, theirs = head(states), model(head.featurizer(states))
    assert torch.allclose(ours, theirs, atol=1e-6)
    loss, expected = permutation_free_loss(ours, truth, frames), pit_loss(theirs, truth, frames)[0]
    assert torch.allclose(loss, expected, atol=1e-5)
    weights = head.featurizer.weights
    assert torch.allclose(*(torch.autograd.grad(x, weights)[0] for x in (loss, expected)), atol=1e-5)


@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
    st.integers(0, 99),
)
def test_who_is_who_does_not_matter_nor_what_is_beyond_a_length(outputs, speakers, lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    shape, frames = (len(lengths), max(lengths)), torch.tensor(lengths)
    logits = 3 * torch.randn(*shape, outputs, generator=generator)
    truth = (torch.rand(*shape, speakers, generator=generator) > 0.5).float()
    loss = permutation_free_loss(logits, truth, frames)
    order = torch.randperm(speakers, generator=generator)
    for i, n in enumerate(lengths):
        logits[i, n:], truth[i, n:] = float("nan"), 1
    assert torch.allclose(permutation_free_loss(logits, truth[..., order], frames), loss, atol=1e-5)
    assert loss >= 0


def test_more_speakers_than_outputs():
    truth = torch.tensor([[[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 1]]])
    said = 200 * truth[..., [1, 0]] - 100
    assert permutation_free_loss(said, truth, torch.tensor([4])) == pytest.approx(0, abs=1e-4)  # the third is left out


def test_fewer_speakers_than_outputs():
    truth = torch.tensor([[[1.0], [0]]])
    said = torch.tensor([[[-100.0, 100, -100], [-100, -100, -100]]])
    assert permutation_free_loss(said, truth, torch.tensor([2])) == pytest.approx(0, abs=1e-4)
    noisy = said + torch.tensor([200.0, 0, 0])
    assert permutation_free_loss(noisy, truth, torch.tensor([2])) == pytest.approx(200 / 6, rel=1e-4)  # that must be silent
    assert permutation_free_loss(said, torch.zeros(1, 2, 0), torch.tensor([2])) == pytest.approx(100 / 6, rel=1e-4)


def test_what_diverged_is_not_a_crash():
    assert torch.isnan(permutation_free_loss(torch.full((1, 3, 2), float("nan")), torch.ones(1, 3, 2), torch.tensor([3])))
