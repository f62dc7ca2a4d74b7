"""What a task of SUPERB (arXiv 2105.01051) is: utterances in, a loss, predictions, and measures of them.

A task knows its data and its head; it knows nothing of encoders, caches, learning rates or noise.
Letters: B batch, S hidden states, T frames, D width, N samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from speechssl.data.superb import Utterance, UtteranceSet
from speechssl.stats import Interval
from speechssl.timing import FrameGrid


class Featurizer(nn.Module):
    """Weighted sum of S hidden states (SUPERB, section 3; s3prl's `Featurizer`): learnt weights that a softmax makes sum to 1.

    The states are all that `SpeechEncoder.hidden_states` gives, L + 1 of them. State 0 is the input of the first transformer layer
    (the CNN's output after projection and positional convolution), which s3prl's upstreams of HuBERT and wav2vec 2.0 give first and
    the benchmark calls the CNN output. Features without layers have one state. The weights begin equal.
    """

    def __init__(self, states: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(states))

    @property
    def shares(self) -> Tensor:
        """(S,) the weight of every state in the sum."""
        return self.weights.detach().softmax(0)

    def forward(self, states: Tensor) -> Tensor:
        """(B, S, ..., D) -> (B, ..., D)."""
        return torch.einsum("s,bs...->b...", self.weights.softmax(0), states)


@dataclass(frozen=True)
class Batch:
    """Some recordings with their features."""

    utterances: tuple[Utterance, ...]
    states: Tensor  # (B, S, T, D) float32, zeros beyond a length; (B, S, D) for tasks that use means over time
    lengths: Tensor  # (B,) real frames
    waves: tuple[np.ndarray, ...] = ()  # B of (N,) float32, the encoder's input, for tasks that use it


@dataclass(frozen=True)
class Measure:
    """A value with its 95 % interval, low to high, in the units of `results.unit`: percent, dB or a scale.

    drawn, groups: what the interval draws and of how many (`data.superb.recording_units`); "" and 0 without an interval.
    """

    metric: str  # "acc", "per", "wer", "eer", "mtwv", "der", "slot_f1", "slot_cer", "pesq", "stoi", "si_sdri", "min_dcf", ...
    value: float
    low: float
    high: float
    n: int  # items it is about
    drawn: str = ""
    groups: int = 0

    @classmethod
    def of(cls, metric: str, found: Interval) -> Measure:
        """From an interval on the measure's own scale."""
        return cls(metric, found.value, found.low, found.high, found.n, found.drawn, found.groups)

    @classmethod
    def fixed(cls, metric: str, value: float, n: int) -> Measure:
        """Without an interval."""
        return cls(metric, value, value, value, n)


@dataclass(frozen=True)
class Evaluation:
    """measures: heads are chosen by the first. detail: what figures are drawn from, JSON values.

    classification: {"confusion": {slot: {"classes": [...], "counts": [[by true class: predictions of each class]]}}};
    asv: {"det": {"false_alarms": [shares], "misses": [shares]}}, at most 200 points; sd: {"timeline": {"id", "seconds", "truth":
    [{"speaker", "start", "end"}], "predicted": [the same]}} of the first recording; qbe: {"layers": [MTWV of each on dev]};
    pr, asr, sf: {"examples": [{"id", "truth", "predicted"}]}, the first five.
    """

    measures: tuple[Measure, ...]
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HeadSettings:
    """How a head is trained. The published settings of each task are those of s3prl 0.4.18 (its config.yaml)."""

    learning_rate: float
    steps: int
    batch: int  # recordings in a step, accumulation included
    every: int  # steps between evaluations on dev
    optimiser: str = "Adam"  # or AdamW
    clip: float = 1.0  # gradient norm
    patience: int = 0  # evaluations without improvement before training ends; 0: never
    balanced: bool = False  # recordings are drawn so that all classes come equally often


class Task(Protocol):
    """A frozen dataclass a task: `Verification(data: UtteranceSet, grid: FrameGrid, ...sizes of the head...)`."""

    @property
    def name(self) -> str:
        """pr, asr, ks, qbe, sid, asv, sd, ic, sf, er, se or ss."""

    @property
    def data(self) -> UtteranceSet: ...

    @property
    def pooled(self) -> bool:
        """Whether the head uses the mean over time alone, (S, D) a recording."""

    @property
    def wants_waves(self) -> bool:
        """Whether batches contain the encoder's input."""

    @property
    def grid(self) -> FrameGrid:
        """Of the encoder: which samples a frame stands for."""

    def build(self, states: int, width: int) -> nn.Module:
        """A new head for S states of width D, with `featurizer: Featurizer`. Random weights come from torch's generator."""

    def loss(self, head: nn.Module, batch: Batch) -> Tensor:
        """The training loss, a scalar."""

    def predict(self, head: nn.Module, batch: Batch) -> list[Any]:
        """One a recording, JSON values or numpy arrays; independent of padding and of the rest of the batch."""

    def evaluate(self, split: str, predicted: Mapping[str, Any], resamples: int) -> Evaluation:
        """predicted: by the utterance's id. An utterance without one could not be read; it counts as wrong and is never left out.

        resamples: of the bootstrap that gives the intervals; 0: none ([value, value]), for evaluations on dev, which must be fast.
        """
