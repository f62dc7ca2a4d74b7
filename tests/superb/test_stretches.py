"""Random stretches: where they begin, what they hold, and that the seed decides."""

import torch

from speechssl.superb.data import random_stretches
from speechssl.superb.task import Batch


def batch(*lengths):
    states = torch.zeros(len(lengths), 2, max(lengths), 1)
    for i, n in enumerate(lengths):
        states[i, :, :n, 0] = torch.arange(1.0, n + 1)
    return Batch((), states, torch.tensor(lengths))


def test_a_stretch_is_of_the_recording():
    torch.manual_seed(0)
    seen = set()
    for _ in range(200):
        found, starts = random_stretches(batch(12, 5, 3), 5)
        assert found.states.shape == (3, 2, 5, 1) and found.lengths.tolist() == [5, 5, 3] and starts[1:] == [0, 0]
        assert found.states[0, 1, :, 0].tolist() == [starts[0] + i for i in range(1, 6)]
        assert found.states[2, 0, :, 0].tolist() == [1, 2, 3, 0, 0]
        seen.add(starts[0])
    assert seen == set(range(8))  # every one there is


def test_the_seed_decides():
    torch.manual_seed(3)
    first = random_stretches(batch(900, 800), 100)[1]
    torch.manual_seed(3)
    assert random_stretches(batch(900, 800), 100)[1] == first != random_stretches(batch(900, 800), 100)[1]


def test_what_is_short_enough_is_left_alone():
    given = batch(4, 2)
    found, starts = random_stretches(given, 4)
    assert found is given and starts == [0, 0]
