"""What a task of SUPERB is to those who train its head and judge it: utterances in, a loss, predictions, and measures of them.

A task knows its data and its head; it knows nothing of encoders, caches, learning rates or noise. Its head is a module whose
`featurizer` sums the hidden states by learnt weights.
Letters: B batch, S hidden states, T frames, D width, N samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from speechssl.data.utterances import Utterance, UtteranceSet
from speechssl.stats import Interval
from speechssl.timing import FrameGrid

# The weighted sum of an encoder's hidden states (SUPERB, arXiv 2105.01051, section 3), as s3prl's `Featurizer` has it.
#
# What counts as a hidden state: all that `SpeechEncoder.hidden_states` gives, L + 1 of them. Layer 0 is the input of the first
# transformer layer: the output of the CNN after projection and positional convolution, which is what s3prl's upstreams of
# HuBERT and
# wav2vec 2.0 give as their first state and what the benchmark calls the CNN output. Features without layers have one state.
# Letters: B batch, S states (L + 1), T frames, D width.


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


@dataclass(frozen=True)
class Batch:
    """Some recordings, as an encoder heard them."""

    utterances: tuple[Utterance, ...]
    states: Tensor  # (B, S, T, D) float32, zeros beyond a length; (B, S, D) where the task sees means over time alone
    lengths: Tensor  # (B,) real frames
    waves: tuple[np.ndarray, ...] = ()  # B of (N,) float32 as they were heard, for tasks that want them


@dataclass(frozen=True)
class Measure:
    """How well a task is done. value, low, high: percent, dB or a scale (`evaluation.results`); low to high: the 95 % interval.

    drawn, groups: what the interval draws and of how many (`corpora.voices.recording_units`); "", 0: there is none.
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
        """An interval on the measure's own scale."""
        return cls(metric, found.value, found.low, found.high, found.n, found.drawn, found.groups)

    @classmethod
    def fixed(cls, metric: str, value: float, n: int) -> Measure:
        """Without an interval."""
        return cls(metric, value, value, value, n)


@dataclass(frozen=True)
class Judgement:
    """measures: the first is what heads are chosen by. detail: what figures are drawn from, JSON values.

    classification: {"confusion": {slot: {"classes": [...], "counts": [[of the truth: how often each was said]]}}};
    asv: {"det": {"false_alarms": [shares], "misses": [shares]}}, at most 200 points; sd: {"timeline": {"id", "seconds", "truth":
    [{"speaker", "start", "end"}], "said": [the same]}} of the first recording; qbe: {"layers": [MTWV of each on dev]};
    pr, asr, sf: {"examples": [{"id", "truth", "said"}]}, the first five.
    """

    measures: tuple[Measure, ...]
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """How a head is trained. The defaults of each task are those published (s3prl 0.4.18's config.yaml of it)."""

    learning_rate: float
    steps: int
    batch: int  # recordings in a step, accumulation included
    every: int  # steps between looks at dev
    optimiser: str = "Adam"  # or AdamW
    clip: float = 1.0  # gradient norm
    patience: int = 0  # looks without a better one until it ends; 0: never
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
        """Whether the head sees the mean over time alone, (S, D) a recording."""

    @property
    def wants_waves(self) -> bool:
        """Whether batches must carry what was heard."""

    @property
    def grid(self) -> FrameGrid:
        """Of the encoder: which samples a frame stands for."""

    def build(self, states: int, width: int) -> nn.Module:
        """A new head for S states of width D, with `featurizer: Featurizer`. Random weights come from torch's generator."""

    def loss(self, head: nn.Module, batch: Batch) -> Tensor:
        """What training makes small: a scalar."""

    def predict(self, head: nn.Module, batch: Batch) -> list[Any]:
        """What the head says about every recording, in JSON values or numpy arrays. No padding and no batch mate matters to it."""

    def judge(self, split: str, predicted: Mapping[str, Any], resamples: int) -> Judgement:
        """predicted: by the id of the utterance. One that is not in it could not be heard and counts as wrong, never as left out.

        resamples: of the bootstrap that gives the intervals; 0: they are [value, value] (looks at dev, which must be fast).
        """
