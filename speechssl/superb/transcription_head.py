"""The heads of PR, ASR and SF: weighted sum of hidden states, SpecAugment in training, projection, LSTM, CTC.

Source: s3prl 0.4.18, `downstream/asr/model.py` (`RNNs`) and `downstream/model.py` (`FrameLevel`) behind a projector. Outputs are
equal for real frames. Two things of theirs are left out: the end of a sentence is no symbol of ours (CTC has no need of it), and
frames of the padding are never read (their experts' greedy decoding reads them, which does no harm at their batch size of 1).
Letters: B batch, S hidden states, T frames, D width, V symbols.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from speechssl.asr.ctc import CtcHead, HeadShape
from speechssl.superb.featurizer import Featurizer
from speechssl.superb.specaugment import SpecAugment


class TranscriptionHead(nn.Module):
    """shape: of what follows the weighted sum, which is one state. masks: None for no SpecAugment."""

    def __init__(self, states: int, shape: HeadShape, masks: SpecAugment | None = None) -> None:
        super().__init__()
        self.featurizer = Featurizer(states)
        self.ctc = CtcHead(shape)
        self.masks = masks

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Log-probabilities (B, T, V). states: (B, S, T, D); lengths: (B,) real frames, at least 1."""
        return self.ctc(self._features(states, lengths), lengths)

    def loss(self, states: Tensor, lengths: Tensor, targets: Sequence[Sequence[int]]) -> Tensor:
        """CTC, nats a symbol, the mean over the batch; targets (numbers of symbols) too long for their frames add nothing."""
        return self.ctc.loss(self._features(states, lengths), lengths, targets)["loss"]

    def _features(self, states: Tensor, lengths: Tensor) -> Tensor:
        features: Tensor = self.featurizer(states)
        return self.masks(features, lengths) if self.masks and self.training else features
