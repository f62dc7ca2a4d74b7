"""The head of SUPERB's enhancement and separation: three BiLSTMs that give a mask of the heard spectrum for every source.

As s3prl's `SepRNN` (`downstream/{enhancement_stft2,separation_stft2}/model.py`): weighted sum, BiLSTMs, dropout, and a linear
layer with a sigmoid for each source. A mask multiplies log(1 + |X|), X being the short-time spectrum of what was heard, whose phase
is kept. Frames of the encoder are brought to those of the spectrum as there: each is repeated where the spectrum has more of them,
and at the end surplus ones are cut off and missing ones are 0.
Letters: B batch, S hidden states, T frames, D width, N samples, F frames of the spectrum, K bins, M sources.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from speechssl.superb.featurizer import Featurizer

OVERLAP = 2.5  # hops in a window, at least: 400 / 160 of the published settings
EPSILON = 1e-10  # beside a magnitude that is divided by


@dataclass(frozen=True)
class Stft:
    """Short-time spectra with a Hann window, frame f centred on sample f * hop; beyond the recording lies silence.

    Raises ValueError for windows that are longer than the transform, or that overlap too little to give the samples back.
    """

    size: int  # samples of a transform
    window: int  # samples, at most size
    hop: int  # samples

    def __post_init__(self) -> None:
        if not 1 <= OVERLAP * self.hop <= self.window <= self.size:
            raise ValueError(f"a window of {self.window} samples fits neither {self.size} nor hops of {self.hop}")

    @property
    def bins(self) -> int:
        """K."""
        return self.size // 2 + 1

    def frames(self, samples: int) -> int:
        """F."""
        return 1 + samples // self.hop

    def spectrum(self, waves: Tensor) -> Tensor:
        """(..., N) -> complex (..., F, K). Zeros behind a shorter recording leave its frames as they are."""
        flat = waves.reshape(-1, waves.shape[-1])
        found = torch.stft(
            flat, self.size, self.hop, self.window, self._hann(waves), center=True, pad_mode="constant", return_complex=True
        )
        return found.transpose(1, 2).reshape(*waves.shape[:-1], found.shape[2], found.shape[1])

    def wave(self, spectrum: Tensor, samples: int) -> Tensor:
        """Complex (M, F, K) -> (M, N). s3prl leaves the last N mod hop samples silent; here they are as the frames have them."""
        window = self._hann(spectrum.real)
        return torch.istft(spectrum.transpose(1, 2), self.size, self.hop, self.window, window, center=True, length=samples)

    def _hann(self, like: Tensor) -> Tensor:
        return torch.hann_window(self.window, dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class MaskerShape:
    """Sizes of a head. The defaults are those published."""

    states: int  # S
    width: int  # D
    bins: int  # K
    sources: int  # M
    hidden: int = 256  # of every direction
    layers: int = 3
    dropout: float = 0.1


class Masker(nn.Module):
    """Hidden states to M masks."""

    def __init__(self, shape: MaskerShape) -> None:
        super().__init__()
        self.shape = shape
        self.featurizer = Featurizer(shape.states)
        self.recurrent = nn.LSTM(
            shape.width,
            shape.hidden,
            shape.layers,
            batch_first=True,
            bidirectional=True,
            dropout=shape.dropout * (shape.layers > 1),
        )
        self.dropout = nn.Dropout(shape.dropout)
        self.outputs = nn.ModuleList(nn.Linear(2 * shape.hidden, shape.bins) for _ in range(shape.sources))

    def forward(self, states: Tensor, lengths: Tensor, frames: Tensor, repeat: int = 1) -> Tensor:
        """(B, M, F, K) within 0 and 1, without meaning beyond a recording's frames.

        states: (B, S, T, D); lengths: (B,) real ones of the T; frames: (B,) of the F, at least 1; repeat: of each frame.
        """
        features = fitted(self.featurizer(states), lengths, frames, repeat)
        packed = pack_padded_sequence(features, frames.cpu(), batch_first=True, enforce_sorted=False)
        found, _ = pad_packed_sequence(self.recurrent(packed)[0], batch_first=True)
        found = self.dropout(found)
        return torch.stack([output(found).sigmoid() for output in self.outputs], 1)


def fitted(features: Tensor, lengths: Tensor, frames: Tensor, repeat: int) -> Tensor:
    """(B, T, D) -> (B, F, D): every frame repeated, what is missing or beyond the end 0; what the padding holds never matters."""
    found = features.repeat_interleave(repeat, 1)
    most = int(frames.max())
    found = pad(found, (0, 0, 0, max(most - found.shape[1], 0)))[:, :most]
    real = torch.arange(most, device=found.device) < torch.minimum(lengths * repeat, frames).to(found.device)[:, None]
    return found.masked_fill(~real[..., None], 0)


def masked(masks: Tensor, heard: Tensor) -> Tensor:
    """Complex (..., M, F, K), the estimates. masks: (..., M, F, K); heard: complex (..., F, K)."""
    level = heard.abs()
    phase = heard / (level + EPSILON)
    return torch.expm1(masks * level.log1p().unsqueeze(-3)) * phase.unsqueeze(-3)
