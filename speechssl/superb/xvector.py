"""The head of SUPERB's speaker verification: x-vectors (Snyder et al. 2018), trained by additive-margin softmax (Wang et al. 2018).

As s3prl's `downstream/sv_voxceleb1/model.py` (XVector, SP, UtteranceExtractor, AMSoftmaxLoss) with the settings of its
`configs/amsoftmax.yaml`, but for three things. Its pooling takes one frame of padding in where a batch mate is longer; here none is
ever seen. Its standard deviation of a single frame is NaN and recordings within the context of the TDNN make it fail; here a
recording of fewer than LEAST frames is repeated until it has so many. Its softmax overflows for large s; here it does not.
Letters: B batch, S hidden states, T frames, D width, P projection, E embedding (as wide as the projection), C speakers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, relu

from speechssl.superb.featurizer import Featurizer

CONTEXTS = ((5, 1), (3, 2), (3, 3), (1, 1), (1, 1))  # of every layer: frames that it sees, how far apart
CONTEXT = sum((frames - 1) * apart for frames, apart in CONTEXTS)  # 14 frames fewer come out than go in
LEAST = CONTEXT + 2  # a standard deviation needs two


@dataclass(frozen=True)
class XVectorShape:
    """Sizes of a head."""

    states: int  # S
    width: int  # D
    speakers: int  # C, of the training data
    projection: int = 512
    last: int = 1500  # width of the last layer of the TDNN


@dataclass(frozen=True)
class Margin:
    """Of the softmax."""

    scale: float = 30.0  # s
    margin: float = 0.4  # m: how much less the cosine with the right speaker is made


class XVector(nn.Module):
    """Weighted sum, projection, five layers over time, mean and standard deviation over time, and two layers."""

    def __init__(self, shape: XVectorShape, margin: Margin = Margin()) -> None:
        super().__init__()
        self.shape, self.margin = shape, margin
        self.featurizer = Featurizer(shape.states)
        self.projection = nn.Linear(shape.width, shape.projection)
        outputs = [shape.projection] * (len(CONTEXTS) - 1) + [shape.last]
        self.layers = nn.ModuleList(
            nn.Conv1d(shape.projection, output, frames, dilation=apart)
            for output, (frames, apart) in zip(outputs, CONTEXTS, strict=True)
        )
        self.embedding = nn.Linear(2 * shape.last, shape.projection)
        self.second = nn.Linear(shape.projection, shape.projection)
        self.speakers = nn.Parameter(nn.init.xavier_normal_(torch.empty(shape.projection, shape.speakers)))

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """(B, E) embeddings, which are compared by their cosine. states: (B, S, T, D); lengths: (B,) real frames, at least 1."""
        frames, lengths = repeated(self.projection(self.featurizer(states)), lengths.to(states.device), LEAST)
        hidden = frames.transpose(1, 2)
        for layer in self.layers:
            hidden = relu(layer(hidden))
        return relu(self.embedding(statistics(hidden, lengths - CONTEXT)))

    def loss(self, embeddings: Tensor, speakers: Tensor) -> Tensor:
        """Mean of -log of the softmax over s cos(speaker), the right one's cosine less m, in nats. speakers: (B,) numbers."""
        cosines = normalize(relu(self.second(embeddings)), dim=1) @ normalize(self.speakers, dim=0)
        right = nn.functional.one_hot(speakers, self.shape.speakers)
        return cross_entropy(self.margin.scale * (cosines - self.margin.margin * right), speakers)


def repeated(frames: Tensor, lengths: Tensor, least: int) -> tuple[Tensor, Tensor]:
    """(B, T, P) with their (B,) lengths; those shorter than `least` are repeated from their beginning until they are so long."""
    if not (lengths < least).any():
        return frames, lengths
    times = torch.arange(max(frames.shape[1], least), device=frames.device)
    around = torch.where(lengths[:, None] < least, times % lengths[:, None], times.clamp(max=frames.shape[1] - 1))
    return frames.gather(1, around[..., None].expand(-1, -1, frames.shape[2])), lengths.clamp(min=least)


def statistics(frames: Tensor, lengths: Tensor) -> Tensor:
    """(B, P, T) -> (B, 2P): means and standard deviations (over T - 1) of the real frames. lengths: (B,), at least 2."""
    real = (torch.arange(frames.shape[2], device=frames.device) < lengths[:, None])[:, None]
    frames = frames.masked_fill(~real, 0)
    mean = frames.sum(2) / lengths[:, None]
    squares = (frames - mean[..., None]).square().masked_fill(~real, 0).sum(2)
    return torch.cat([mean, (squares / (lengths[:, None] - 1)).clamp(min=1e-12).sqrt()], 1)  # the root of 0 has no gradient
