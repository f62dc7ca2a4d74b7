"""The head of SUPERB's diarisation: who of K speakers speaks in a frame, by an LSTM (s3prl `downstream/diarization`).

Which output stands for whom is not said: a recording's loss is the least that any way of giving speakers to outputs has
(permutation-invariant training; Fujita et al. 2019). A binary cross-entropy is linear in its target, so that the cost of every pair
of an output and a speaker is had at once and the best way is an assignment, not a search through K! of them.
Letters: B batch, S hidden states, T frames, D width, K outputs, R speakers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn.functional import pad, softplus

from speechssl.superb.featurizer import Featurizer


@dataclass(frozen=True)
class ActivityShape:
    """Sizes of a head."""

    states: int  # S
    width: int  # D
    speakers: int  # K
    hidden: int = 512
    layers: int = 1


class SpeakerActivity(nn.Module):
    """Weighted sum, LSTM, linear. It hears no future, so that padding at the end never matters."""

    def __init__(self, shape: ActivityShape) -> None:
        super().__init__()
        self.shape = shape
        self.featurizer = Featurizer(shape.states)
        self.lstm = nn.LSTM(shape.width, shape.hidden, shape.layers, batch_first=True)
        self.output = nn.Linear(shape.hidden, shape.speakers)

    def forward(self, states: Tensor) -> Tensor:
        """Logits (B, T, K). states: (B, S, T, D)."""
        logits: Tensor = self.output(self.lstm(self.featurizer(states))[0])
        return logits


def permutation_free_loss(logits: Tensor, truth: Tensor, lengths: Tensor) -> Tensor:
    """Mean binary cross-entropy of the real frames and outputs, nats, with speakers given to outputs as is best for each recording.

    truth: (B, T, R) of 0 and 1. Outputs without a speaker (R < K) are to be silent; of more speakers than outputs (R > K) those are
    left out whom it costs most to follow. What is beyond a length never matters. lengths: (B,) real frames.
    """
    outputs, lengths = logits.shape[2], lengths.to(logits.device)
    real = torch.arange(logits.shape[1], device=logits.device)[:, None] < lengths[:, None, None]
    logits, truth = logits.masked_fill(~real, 0), truth.masked_fill(~real, 0)
    truth = pad(truth, (0, max(0, outputs - truth.shape[2])))
    silent = (softplus(logits) * real).sum(1)[..., None]
    costs = silent - logits.transpose(1, 2) @ truth  # (B, K, R)
    best = [linear_sum_assignment(np.nan_to_num(cost)) for cost in costs.detach().cpu().numpy()]
    chosen = [cost[rows, columns].sum() for cost, (rows, columns) in zip(costs, best, strict=True)]
    return torch.stack(chosen).sum() / (outputs * lengths.sum())
