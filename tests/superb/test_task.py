"""The weighted sum of hidden states: equal weights at first, learnt ones after, and s3prl's numbers."""

from types import SimpleNamespace

import pytest
import torch

from speechssl.superb.task import Featurizer


def test_weights_begin_equal():
    states = torch.randn(2, 5, 7, 3)
    assert torch.allclose(Featurizer(5)(states), states.mean(1), atol=1e-6)
    assert torch.allclose(Featurizer(5).shares, torch.full((5,), 0.2))


def test_one_state_is_itself():
    states = torch.randn(2, 1, 7, 3)
    assert torch.equal(Featurizer(1)(states), states[:, 0])


def test_another_number_of_states_is_refused():
    with pytest.raises(ValueError, match="4 hidden states are to be summed, not 5"):
        Featurizer(4)(torch.zeros(1, 5, 2, 2))


@pytest.mark.parametrize("shape", [(1, 2, 1, 1), (3, 7, 13, 5), (2, 25, 1, 64)])
def test_it_is_s3prls(shape):
    pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")
    from speechssl.encoders.s3prl import import_hub

    import_hub()  # s3prl does not start without the shim
    from s3prl.nn import Featurizer as Theirs

    batch, count, frames, width = shape
    upstream = SimpleNamespace(hidden_sizes=[width] * count, downsample_rates=[320] * count, num_layers=count)
    theirs, ours, states = Theirs(upstream), Featurizer(count), torch.randn(shape)
    weights = torch.randn(count)
    for module in (theirs, ours):
        module.weights.data.copy_(weights)
    lengths = [torch.full((batch,), frames)] * count
    assert torch.allclose(ours(states), theirs(list(states.unbind(1)), lengths)[0], atol=1e-6)
    ours(states).square().sum().backward()
    theirs(list(states.unbind(1)), lengths)[0].square().sum().backward()
    assert torch.allclose(ours.weights.grad, theirs.weights.grad, rtol=1e-4, atol=1e-4)
