"""The weighted sum of hidden states; it is compared with s3prl's in `tasks/test_classification.py`."""

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
