"""What the tests of all heads do with them."""

import torch

from speechssl.superb.data import Batch


def alone(batch, i):
    """One recording of a batch, without padding."""
    n = int(batch.lengths[i])
    return Batch(
        batch.utterances[i : i + 1],
        batch.states[i : i + 1, :, :n],
        batch.lengths[i : i + 1],
        batch.waves[i : i + 1],
    )


def learn(task, head, batch, steps, rate):
    """batch: or a function that gives one for every step."""
    optimiser = torch.optim.Adam(head.parameters(), rate)
    for _ in range(steps):
        optimiser.zero_grad()
        task.loss(head, batch() if callable(batch) else batch).backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimiser.step()
