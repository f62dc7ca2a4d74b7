"""A helper for tests of heads."""

from speechssl.superb.data import Batch


def take_one(batch, i):
    """Return a batch of recording i of a batch alone, without padding."""
    n = int(batch.lengths[i])
    row = slice(i, i + 1)
    states = batch.states[row, :, :n]
    return Batch(batch.utterances[row], states, batch.lengths[row], batch.waves[row])
