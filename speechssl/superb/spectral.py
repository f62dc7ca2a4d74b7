"""SE and SS: clean speech out of noise, and two speakers out of their mixture, by masks of the heard spectrum.

Settings of s3prl's `downstream/{enhancement_stft2,separation_stft2}`, those with three BiLSTM-256 and log spectra. Recordings are
taken whole, as there. A mixture is what the encoder heard: where noise was added, improvements are over the noisy mixture, and what
is wanted stays the clean source.
Letters: B batch, N samples, F frames of the spectrum, K bins, M sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from speechssl.audio import read_audio
from speechssl.bootstrap import mean_interval
from speechssl.corpora.utterances import Utterance, UtteranceSet
from speechssl.corpora.voices import recording_units
from speechssl.errors import InputError
from speechssl.superb.masking import OVERLAP, Masker, MaskerShape, Stft, masked
from speechssl.superb.metrics.enhancement import SILENT, WORST_PESQ, pesq_wideband, si_sdr_improvement, stoi_percent
from speechssl.superb.task import Batch, Judgement, Measure, Settings
from speechssl.timing import FrameGrid

PUBLISHED = {
    "se": Settings(1e-3, 100_000, 8, 1_250, optimiser="AdamW"),
    "ss": Settings(1e-3, 150_000, 8, 2_000, optimiser="AdamW"),
}
RECORDINGS = 256  # clean ones that are kept in memory: 160 MB of ten seconds each

Score = Callable[[np.ndarray, np.ndarray, np.ndarray], float]  # clean (M, N), estimates (M, N), mixture (N,) -> how good


@dataclass(frozen=True)
class Enhancement:
    """One clean source. Raises InputError for an utterance without it, or an encoder whose hop is no multiple of the spectrum's."""

    data: UtteranceSet
    grid: FrameGrid
    hidden: int = 256
    layers: int = 3
    dropout: float = 0.1
    stft: Stft = Stft(512, 400, 160)

    name = "se"
    pooled = False
    wants_waves = True
    sources = 1

    def __post_init__(self) -> None:
        check_sources(self.data, self.sources)
        if self.grid.hop % self.stft.hop:
            raise InputError(
                f"{self.data.root} is enhanced in steps of {self.stft.hop} samples, of which the encoder's hop of "
                f"{self.grid.hop} is no multiple; leave the task out"
            )

    def build(self, states: int, width: int) -> Masker:
        return Masker(MaskerShape(states, width, self.stft.bins, self.sources, self.hidden, self.layers, self.dropout))

    def loss(self, head: nn.Module, batch: Batch) -> Tensor:
        """Mean absolute error of log(1 + magnitude), summed over the bins."""
        masks, heard, clean, frames = training_spectra(self, head, batch)
        error = masks * heard.abs().log1p()[:, None] - clean.abs().log1p()
        return (real(error.abs(), frames).sum((1, 2, 3)) / frames).mean()

    def predict(self, head: nn.Module, batch: Batch) -> list[np.ndarray]:
        """(2, N) float32 each: what was heard, and the estimate."""
        return estimates(self, head, batch)

    def judge(self, split: str, predicted: Mapping[str, np.ndarray], resamples: int) -> Judgement:
        """PESQ, STOI (percent) and the improvement in SI-SDR (dB); with 0 resamples, to choose heads as s3prl does, PESQ alone.

        What could not be heard has the worst PESQ, STOI 0 and an improvement of SILENT. Raises MissingExtra without the libraries.
        """
        scores: dict[str, tuple[Score, float]] = {
            "pesq": (lambda clean, found, _: pesq_wideband(clean[0], found[0]), WORST_PESQ),
            "stoi": (lambda clean, found, _: stoi_percent(clean[0], found[0]), 0.0),
            "si_sdri": (si_sdr_improvement, SILENT),
        }
        wanted = scores if resamples else {"pesq": scores["pesq"]}
        return Judgement(tuple(measure(self.data, split, predicted, name, *wanted[name], resamples) for name in wanted))


@dataclass(frozen=True)
class Separation:
    """Two speakers. The spectrum has the encoder's frames. Raises InputError for an utterance that is no mixture of two."""

    data: UtteranceSet
    grid: FrameGrid
    hidden: int = 256
    layers: int = 3
    dropout: float = 0.1
    size: int = 1024  # samples of a transform and of its window

    name = "ss"
    pooled = False
    wants_waves = True
    sources = 2

    def __post_init__(self) -> None:
        check_sources(self.data, self.sources)
        if OVERLAP * self.grid.hop > self.size:
            raise InputError(
                f"{self.data.root} is separated in windows of {self.size} samples, too few for the encoder's hop of "
                f"{self.grid.hop}; leave the task out"
            )

    @property
    def stft(self) -> Stft:
        return Stft(self.size, self.size, self.grid.hop)

    def build(self, states: int, width: int) -> Masker:
        return Masker(MaskerShape(states, width, self.stft.bins, self.sources, self.hidden, self.layers, self.dropout))

    def loss(self, head: nn.Module, batch: Batch) -> Tensor:
        """Mean squared error of log(1 + magnitude), summed over the bins, in the order of the sources that is best in a recording.

        The magnitude wanted is that of the source times the cosine of its phase to the mixture's, where positive (NPSM).
        """
        masks, heard, clean, frames = training_spectra(self, head, batch)
        aligned = (clean * heard[:, None].conj()).real / (heard.abs()[:, None] + torch.finfo(torch.float32).tiny)
        said, wanted = masks * heard.abs().log1p()[:, None], aligned.relu().log1p()
        orders = [wanted[:, list(order)] for order in permutations(range(self.sources))]
        errors = torch.stack([real((said - order).square(), frames).sum((1, 2, 3)) for order in orders])
        return (errors.amin(0) / (frames * self.sources)).mean()

    def predict(self, head: nn.Module, batch: Batch) -> list[np.ndarray]:
        """(3, N) float32 each: what was heard, and the two estimates in no order."""
        return estimates(self, head, batch)

    def judge(self, split: str, predicted: Mapping[str, np.ndarray], resamples: int) -> Judgement:
        """The improvement in SI-SDR (dB) in the better order of the two; SILENT for what could not be heard."""
        return Judgement((measure(self.data, split, predicted, "si_sdri", si_sdr_improvement, SILENT, resamples),))


def check_sources(data: UtteranceSet, count: int) -> None:
    """Raises InputError for an utterance that has not so many sources."""
    for split, found in data.splits.items():
        for utterance in found:
            if len(utterance.sources) != count:
                raise InputError(
                    f"{data.root / split}.jsonl, utterance {utterance.id}, has {len(utterance.sources)} sources; "
                    f"name {count} clean recording{'s' * (count > 1)} as its sources"
                )


def training_spectra(task: Enhancement | Separation, head: nn.Module, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Masks (B, M, F, K), complex spectra of the mixture (B, F, K) and of the clean sources (B, M, F, K), and frames (B,)."""
    masks, heard, frames = mask(task, head, batch)
    pairs = zip(batch.utterances, batch.waves, strict=True)
    clean = pad_sequence([torch.from_numpy(clean_sources(task.data, u, len(wave))).T for u, wave in pairs], batch_first=True)
    return masks, heard, task.stft.spectrum(clean.transpose(1, 2).to(heard.device)), frames


def mask(task: Enhancement | Separation, head: nn.Module, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Masks (B, M, F, K), the complex spectrum of what was heard (B, F, K), and real frames (B,)."""
    device = batch.states.device
    heard = task.stft.spectrum(pad_sequence([torch.from_numpy(wave) for wave in batch.waves], batch_first=True).to(device))
    frames = torch.tensor([task.stft.frames(len(wave)) for wave in batch.waves], device=device)
    masks: Tensor = head(batch.states, batch.lengths.to(device), frames, task.grid.hop // task.stft.hop)
    return masks, heard, frames


def real(values: Tensor, frames: Tensor) -> Tensor:
    """(B, M, F, K) with zeros beyond a recording's frames. frames: (B,)."""
    beyond = torch.arange(values.shape[2], device=values.device) >= frames[:, None]
    return values.masked_fill(beyond[:, None, :, None], 0)


@torch.inference_mode()
def estimates(task: Enhancement | Separation, head: nn.Module, batch: Batch) -> list[np.ndarray]:
    """(1 + M, N) float32 each: what was heard, and the estimates."""
    masks, heard, frames = mask(task, head, batch)
    found = []
    for wave, spectra, count in zip(batch.waves, masked(masks, heard), frames.tolist(), strict=True):
        estimated = task.stft.wave(spectra[:, :count], len(wave)).cpu().numpy()
        found.append(np.concatenate([wave[None], estimated]).astype(np.float32))
    return found


def measure(
    data: UtteranceSet, split: str, predicted: Mapping[str, np.ndarray], name: str, score: Score, worst: float, resamples: int
) -> Measure:
    """The mean over all utterances of a split. predicted: id -> (1 + M, N); one that is not in it has the worst."""
    values = []
    for utterance in data.splits[split]:
        found = predicted.get(utterance.id)
        if found is None:
            values.append(worst)
        else:
            values.append(score(clean_sources(data, utterance, found.shape[1]), found[1:], found[0]))
    if not resamples:
        return Measure.fixed(name, float(np.mean(values)), len(values))
    return Measure.of(name, mean_interval(values, recording_units(data, data.splits[split]), resamples=resamples))


def clean_sources(data: UtteranceSet, utterance: Utterance, samples: int) -> np.ndarray:
    """(M, N) float32, cut off or continued with silence where what was heard has another length."""
    found = [_recording(data.root / path)[:samples] for path in utterance.sources]
    return np.stack([np.pad(x, (0, samples - len(x))) for x in found])


@lru_cache(RECORDINGS)
def _recording(path: Path) -> np.ndarray:
    samples = read_audio(path)
    samples.setflags(write=False)
    return samples
