"""Helpers for tests of heads."""

import torch

from speechssl.superb.data import Batch
from speechssl.superb.train import load_best


def take_one(batch, i):
    """Return a batch of recording i of a batch alone, without padding."""
    n = int(batch.lengths[i])
    row = slice(i, i + 1)
    states = batch.states[row, :, :n]
    return Batch(batch.utterances[row], states, batch.lengths[row], batch.waves[row])


def same_weights(run, other):
    """Return whether the best heads of two runs have the same weights."""
    weights, other_weights = (load_best(r).state_dict() for r in (run, other))
    assert weights.keys() == other_weights.keys()
    return all(torch.equal(value, other_weights[name]) for name, value in weights.items())
