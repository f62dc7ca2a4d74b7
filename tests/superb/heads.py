"""What the tests of all heads do with them."""

from speechssl.superb.data import Batch


def alone(batch, i):
    """One recording of a batch, without padding."""
    n = int(batch.lengths[i])
    own = slice(i, i + 1)
    states = batch.states[own, :, :n]
    return Batch(batch.utterances[own], states, batch.lengths[own], batch.waves[own])
