"""The weighted sum of an encoder's hidden states (SUPERB, arXiv 2105.01051, section 3), as s3prl's `Featurizer` has it.

What counts as a hidden state: all that `SpeechEncoder.hidden_states` gives, L + 1 of them. Layer 0 is the input of the first
transformer layer: the output of the CNN after projection and positional convolution, which is what s3prl's upstreams of HuBERT and
wav2vec 2.0 give as their first state and what the benchmark calls the CNN output. Features without layers have one state.
Letters: B batch, S states (L + 1), T frames, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Featurizer(nn.Module):
    """S hidden states to one, by weights that are learnt and, through a softmax, sum to 1. They begin equal."""

    def __init__(self, states: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(states))

    @property
    def shares(self) -> Tensor:
        """(S,) how much of the sum each state is."""
        return self.weights.detach().softmax(0)

    def forward(self, states: Tensor) -> Tensor:
        """(B, S, ..., D) -> (B, ..., D). Raises ValueError for another number of states."""
        if states.shape[1] != len(self.weights):
            raise ValueError(f"{len(self.weights)} hidden states are to be summed, not {states.shape[1]}")
        return torch.einsum("s,bs...->b...", self.weights.softmax(0), states)
