"""SE estimates clean speech from noisy speech, and SS two speakers from their mixture, both by
masks of the mixture's spectrum.

The settings are those of s3prl's `downstream/{enhancement_stft2,separation_stft2}`, with three
BiLSTM-256 and log spectra. Recordings are not cut, as in s3prl. The mixture is the encoder's input:
where noise was added, improvements are over the noisy mixture, and the target is still the clean
source.
SI-SDR does not come from torchmetrics, which would be a dependency for six lines, and gives silence
no bounded value.
Letters: B batch, S hidden states, T frames, D width, N samples, F frames of the spectrum, K bins, M
sources.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import permutations
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.data.superb import Utterance, UtteranceSet
from speechssl.encoders.hubert import mask_lengths
from speechssl.errors import InputError, MissingExtra
from speechssl.stats import Interval
from speechssl.superb.data import Batch, Featurizer, HeadEvaluation, Task, measure_rate
from speechssl.timing import FrameGrid

RECORDINGS = 256  # clean recordings that are kept in memory: 160 MB for ten seconds each
DROPOUT = 0.1
EPSILON = 1e-10  # is added to a magnitude before it divides

# ---- head


@dataclass(frozen=True)
class Stft:
    """Spectra are taken with a Hann window, frame f centred on sample f * hop; beyond the recording
    lies silence."""

    size: int  # samples of a transform
    window: int  # samples, at most size
    hop: int  # samples

    @property
    def bins(self) -> int:
        """Return K, the number of bins."""
        return self.size // 2 + 1

    def count_frames(self, samples: int) -> int:
        """Count the frames F of a recording of so many samples."""
        return 1 + samples // self.hop

    def transform(self, waves: Tensor) -> Tensor:
        """Transform waves (..., N) to complex spectra (..., F, K). Zeros after a shorter recording
        do not change its frames."""
        flat = waves.flatten(0, -2)
        spectra = torch.stft(
            flat, **self._make_settings(waves), pad_mode="constant", return_complex=True
        )
        return spectra.transpose(1, 2).unflatten(0, waves.shape[:-1])

    def invert(self, spectrum: Tensor, samples: int) -> Tensor:
        """Transform complex spectra (M, F, K) back to waves (M, N). s3prl leaves the last N mod hop
        samples silent; here they come from the frames too."""
        settings = self._make_settings(spectrum.real)
        return torch.istft(spectrum.transpose(1, 2), **settings, length=samples)

    def _make_settings(self, like: Tensor) -> dict[str, Any]:
        """Make torch's arguments. like: a tensor of the type and on the device of the window."""
        window = torch.hann_window(self.window, dtype=like.dtype, device=like.device)
        sizes = {"n_fft": self.size, "hop_length": self.hop, "win_length": self.window}
        return {**sizes, "window": window, "center": True}


class Masker(nn.Module):
    """The head is a weighted sum, BiLSTMs, dropout, and a linear layer with a sigmoid for each of M
    sources.

    It is s3prl's `SepRNN` (`downstream/{enhancement_stft2,separation_stft2}/model.py`). hidden:
    width of each direction.
    """

    def __init__(
        self, states: int, width: int, bins: int, sources: int, hidden: int, layers: int
    ) -> None:
        super().__init__()
        self.featurizer = Featurizer(states)
        self.recurrent = nn.LSTM(
            width, hidden, layers, batch_first=True, bidirectional=True, dropout=DROPOUT
        )
        self.dropout = nn.Dropout(DROPOUT)
        self.outputs = nn.ModuleList(nn.Linear(2 * hidden, bins) for _ in range(sources))

    def forward(self, states: Tensor, lengths: Tensor, frames: Tensor, repeat: int) -> Tensor:
        """Return masks (B, M, F, K) within 0 and 1, which mean nothing beyond a recording's frames.

        states: (B, S, T, D); lengths: (B,) real frames among the T; frames: (B,) real frames of the
        spectrum, at least 1; repeat: how often each frame of the encoder is repeated.
        """
        features = fit_frames(self.featurizer(states), lengths, frames, repeat)
        packed = pack_padded_sequence(
            features, frames.cpu(), batch_first=True, enforce_sorted=False
        )
        hidden, _ = pad_packed_sequence(self.recurrent(packed)[0], batch_first=True)
        hidden = self.dropout(hidden)
        return torch.stack([output(hidden).sigmoid() for output in self.outputs], 1)


def fit_frames(features: Tensor, lengths: Tensor, frames: Tensor, repeat: int) -> Tensor:
    """Fit the encoder's frames to those of the spectrum, as s3prl does: (B, T, D) -> (B, F, D).

    Every frame is repeated; surplus frames at the end are cut off and missing ones are 0. The
    contents of the padding never matter.
    """
    features = features.repeat_interleave(repeat, 1)
    longest = int(frames.max())
    features = pad(features, (0, 0, 0, max(longest - features.shape[1], 0)))[:, :longest]
    counts = torch.minimum(lengths * repeat, frames).to(features.device)
    return features.masked_fill(~mask_lengths(counts, longest)[..., None], 0)


def apply_masks(masks: Tensor, mixture: Tensor) -> Tensor:
    """Apply masks to a mixture; return the estimates, complex (..., M, F, K): masked log(1 + |X|)
    with the mixture's phase.

    masks: (..., M, F, K); mixture: complex (..., F, K).
    """
    level = mixture.abs()
    phase = mixture / (level + EPSILON)
    return torch.expm1(masks * level.log1p().unsqueeze(-3)) * phase.unsqueeze(-3)


# ---- tasks


@dataclass(frozen=True)
class Masking(Task):
    """SE and SS both predict masks. Raises InputError for an utterance with another number of
    sources than the task's."""

    data: UtteranceSet
    grid: FrameGrid
    hidden: int = 256
    layers: int = 3

    wants_waves = True
    sources: ClassVar[int]  # M
    stft: ClassVar[Any]  # a Stft

    def __post_init__(self) -> None:
        for split, utterances in self.data.splits.items():
            for utterance in utterances:
                if len(utterance.sources) != self.sources:
                    raise InputError(
                        f"{self.data.root / split}.jsonl, utterance {utterance.id}, has "
                        f"{len(utterance.sources)} sources; name {self.sources}, clean recordings"
                    )

    def build(self, states: int, width: int) -> Masker:
        bins = self.stft.bins
        return Masker(states, width, bins, self.sources, self.hidden, self.layers)

    def predict_masks(self, head: nn.Module, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return masks (B, M, F, K), the complex spectrum of the mixture (B, F, K), and real frames
        (B,)."""
        device = batch.states.device
        waves = pad_sequence([torch.from_numpy(wave) for wave in batch.waves], batch_first=True)
        mixture = self.stft.transform(waves.to(device))
        frames = torch.tensor(
            [self.stft.count_frames(len(wave)) for wave in batch.waves], device=device
        )
        repeat = self.grid.hop // self.stft.hop
        return head(batch.states, batch.lengths.to(device), frames, repeat), mixture, frames

    def read_clean_spectra(self, batch: Batch) -> Tensor:
        """Read the clean sources; return their complex spectra, (B, M, F, K)."""
        sources = []
        for utterance, wave in zip(batch.utterances, batch.waves, strict=True):
            sources.append(torch.from_numpy(read_sources(self.data, utterance, len(wave))).T)
        clean = pad_sequence(sources, batch_first=True).transpose(1, 2)
        spectra: Tensor = self.stft.transform(clean.to(batch.states.device))
        return spectra

    @torch.inference_mode()
    def predict(self, head: nn.Module, batch: Batch) -> list[np.ndarray]:
        """Return (1 + M, N) float32 of each recording: the mixture, and the estimates (of several
        sources in no order)."""
        masks, mixture, frames = self.predict_masks(head, batch)
        masked = apply_masks(masks, mixture)
        estimates = []
        for wave, spectra, count in zip(batch.waves, masked, frames.tolist(), strict=True):
            estimated = self.stft.invert(spectra[:, :count], len(wave)).cpu().numpy()
            # the score needs the mixture too: it is an improvement over the mixture
            estimates.append(np.concatenate([wave[None], estimated]).astype(np.float32))
        return estimates

    def measure_mean(
        self, split: str, predicted: Mapping[str, np.ndarray], metric: str, resamples: int
    ) -> Interval:
        """Measure the mean of a metric over a split; an utterance without a prediction has the
        worst value."""
        score, worst = SCORES[metric]
        values = []
        for utterance in self.data.splits[split]:
            if utterance.id not in predicted:
                values.append(worst)
                continue
            mixture, *estimates = predicted[utterance.id]
            clean = read_sources(self.data, utterance, len(mixture))
            values.append(score(clean, np.stack(estimates), mixture))
        return measure_rate(values, None, self.data, split, resamples, percent=False)


def read_sources(data: UtteranceSet, utterance: Utterance, samples: int) -> np.ndarray:
    """Read the clean sources, (M, N) float32, cut off or padded with silence to the mixture's
    length."""
    recordings = [_recording(data.root / path)[:samples] for path in utterance.sources]
    return np.stack([np.pad(x, (0, samples - len(x))) for x in recordings])


_recording = lru_cache(RECORDINGS)(read_audio)


def mask_padding(values: Tensor, frames: Tensor) -> Tensor:
    """Set values (B, M, F, K) to zero beyond a recording's real frames. frames: (B,)."""
    return values.masked_fill(~mask_lengths(frames, values.shape[2])[:, None, :, None], 0)


@dataclass(frozen=True)
class Enhancement(Masking):
    """Enhancement, the task `se`, has one clean source. Raises InputError for an utterance without
    it, and for an encoder whose hop is no multiple of the spectrum's hop."""

    name = "se"
    sources = 1
    stft = Stft(512, 400, 160)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grid.hop % self.stft.hop:
            raise InputError(
                f"{self.data.root} is enhanced in steps of {self.stft.hop} samples, and the "
                f"encoder's hop of {self.grid.hop} is no multiple; leave the task out"
            )

    def loss(self, head: nn.Module, batch: Batch) -> Tensor:
        """Return the mean absolute error of log(1 + magnitude), summed over the bins."""
        masks, mixture, frames = self.predict_masks(head, batch)
        clean = self.read_clean_spectra(batch)
        error = masks * mixture.abs().log1p()[:, None] - clean.abs().log1p()
        return (mask_padding(error.abs(), frames).sum((1, 2, 3)) / frames).mean()

    def evaluate(
        self, split: str, predicted: Mapping[str, np.ndarray], resamples: int
    ) -> HeadEvaluation:
        """Measure PESQ, STOI (percent) and the improvement in SI-SDR (dB); with 0 resamples PESQ
        alone, by which heads are chosen as in s3prl."""
        metrics = ("pesq", "stoi", "si_sdri") if resamples else ("pesq",)
        return HeadEvaluation(
            {metric: self.measure_mean(split, predicted, metric, resamples) for metric in metrics}
        )


@dataclass(frozen=True)
class Separation(Masking):
    """Separation, the task `ss`, has two speakers. The spectrum has the encoder's frames. Raises
    InputError for an utterance that is no mixture of two."""

    name = "ss"
    sources = 2

    @property
    def stft(self) -> Stft:
        return Stft(1024, 1024, self.grid.hop)

    def loss(self, head: nn.Module, batch: Batch) -> Tensor:
        """Return the mean squared error of log(1 + magnitude), summed over the bins, in the order
        of the sources that is best for each recording.

        The target magnitude is that of the source times the cosine of the angle between its phase
        and the mixture's; 0 where this is negative (NPSM).
        """
        masks, mixture, frames = self.predict_masks(head, batch)
        clean = self.read_clean_spectra(batch)
        level = mixture.abs()[:, None]
        tiny = torch.finfo(torch.float32).tiny
        aligned = (clean * mixture[:, None].conj()).real / (level + tiny)
        estimated = masks * level.log1p()
        targets = aligned.relu().log1p()
        errors = []
        for order in permutations(range(self.sources)):
            squares = (estimated - targets[:, list(order)]).square()
            errors.append(mask_padding(squares, frames).sum((1, 2, 3)))
        return (torch.stack(errors).amin(0) / (frames * self.sources)).mean()

    def evaluate(
        self, split: str, predicted: Mapping[str, np.ndarray], resamples: int
    ) -> HeadEvaluation:
        """Measure the improvement in SI-SDR (dB) in the better order of the two."""
        score = self.measure_mean(split, predicted, "si_sdri", resamples)
        return HeadEvaluation({"si_sdri": score})


# ---- measures, at 16 kHz

# dB, of either sign; beyond it SI-SDR is infinite or depends on the last bits of the samples
LIMIT = 100.0
# dB of an estimate without any sound: less than that of noise that is unrelated to the source
SILENT = -50.0
WORST_PESQ = 1.0  # lower end of the scale, for an estimate in which no utterance is found


def si_sdr(reference: np.ndarray, estimate: np.ndarray) -> float:
    """Return the scale-invariant signal-to-distortion ratio in dB within [-LIMIT, LIMIT]; SILENT
    for silence. Both (N,).

    Source: Le Roux et al. (arXiv 1811.02508); the mean is not removed, as in pb_bss_eval, which
    s3prl uses.
    """
    reference = np.asarray(reference, np.float64)
    estimate = np.asarray(estimate, np.float64)
    if not estimate.any():
        return SILENT
    projection = (estimate @ reference) / (reference @ reference) * reference
    error = estimate - projection
    with np.errstate(divide="ignore"):
        decibels = 10 * np.log10((projection @ projection) / (error @ error))
    return float(np.clip(decibels, -LIMIT, LIMIT))


def si_sdr_improvement(references: np.ndarray, estimates: np.ndarray, mixture: np.ndarray) -> float:
    """Return by how many dB the estimates are better than the mixture itself: the mean over the
    sources, in the best order.

    references, estimates: (M, N); mixture: (N,).
    """
    means = []
    for order in permutations(estimates):
        means.append(np.mean([si_sdr(*pair) for pair in zip(references, order, strict=True)]))
    return float(max(means) - np.mean([si_sdr(reference, mixture) for reference in references]))


def check_installed() -> None:
    """Raise MissingExtra, before a long run, where the packages of `pesq_wideband` and
    `stoi_percent` are missing."""
    if find_spec("pesq") is None or find_spec("pystoi") is None:
        raise MissingExtra("the task se", "superb")


def pesq_wideband(reference: np.ndarray, estimate: np.ndarray) -> float:
    """Return MOS-LQO of ITU-T P.862.2, 1.0 to 4.64 (package `pesq`, which compiles the ITU's C code
    when it is installed). Both (N,).

    It is WORST_PESQ where no utterance is found (silence) or N is below a quarter of a second.
    """
    from pesq import BufferTooShortError, NoUtterancesError, pesq

    try:
        return float(pesq(SAMPLE_RATE, reference, estimate, "wb"))
    except (BufferTooShortError, NoUtterancesError, ValueError):
        # ValueError where silence makes the score NaN
        return WORST_PESQ


def stoi_percent(reference: np.ndarray, estimate: np.ndarray) -> float:
    """Return STOI in percent (Taal et al. 2011, not extended; package `pystoi`). Both (N,).

    It is 0 (0.001) where less than 0.4 s of the reference is speech, which is too little for STOI.
    """
    from pystoi import stoi

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of too little speech
        return 100 * float(stoi(reference, estimate, SAMPLE_RATE, extended=False))


# metric -> function of clean (M, N), estimates (M, N) and mixture (N,); and the worst value
SCORES: dict[str, tuple[Callable[[np.ndarray, np.ndarray, np.ndarray], float], float]] = {
    "pesq": (lambda clean, estimates, _: pesq_wideband(clean[0], estimates[0]), WORST_PESQ),
    "stoi": (lambda clean, estimates, _: stoi_percent(clean[0], estimates[0]), 0.0),
    "si_sdri": (si_sdr_improvement, SILENT),
}
