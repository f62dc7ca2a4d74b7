"""SE and SS estimate clean speech from noisy speech, and two speakers from their mixture, by masks
of the mixture's spectrum.

Settings of s3prl's `downstream/{enhancement_stft2,separation_stft2}`, those with three BiLSTM-256
and log spectra. Recordings are taken whole, as there. The mixture is the encoder's input: where
noise was added, improvements are over the noisy mixture, and the target stays the clean source.
SI-SDR is not torchmetrics': that would be a dependency more for six lines, and gives silence no
bounded value.
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
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.data.superb import Utterance, UtteranceSet
from speechssl.errors import InputError, MissingExtra
from speechssl.superb.data import Batch, Featurizer, HeadEvaluation, Measure, rate_measure
from speechssl.timing import FrameGrid

RECORDINGS = 256  # clean ones that are kept in memory: 160 MB of ten seconds each
EPSILON = 1e-10  # beside a magnitude that is divided by

# clean (M, N), estimates (M, N), mixture (N,) -> value
Score = Callable[[np.ndarray, np.ndarray, np.ndarray], float]


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
        """Return K."""
        return self.size // 2 + 1

    def frames(self, samples: int) -> int:
        """Return F."""
        return 1 + samples // self.hop

    def spectrum(self, waves: Tensor) -> Tensor:
        """Transform (..., N) to complex (..., F, K). Zeros behind a shorter recording leave its
        frames as they are."""
        spectra = torch.stft(
            waves.reshape(-1, waves.shape[-1]),
            self.size,
            self.hop,
            self.window,
            self._hann(waves),
            center=True,
            pad_mode="constant",
            return_complex=True,
        )
        spectra = spectra.transpose(1, 2)
        return spectra.reshape(*waves.shape[:-1], *spectra.shape[1:])

    def wave(self, spectrum: Tensor, samples: int) -> Tensor:
        """Transform complex (M, F, K) back to (M, N). s3prl leaves the last N mod hop samples
        silent; here they are as the frames have them."""
        window = self._hann(spectrum.real)
        return torch.istft(
            spectrum.transpose(1, 2),
            self.size,
            self.hop,
            self.window,
            window,
            center=True,
            length=samples,
        )

    def _hann(self, like: Tensor) -> Tensor:
        return torch.hann_window(self.window, dtype=like.dtype, device=like.device)


class Masker(nn.Module):
    """The head is weighted sum, BiLSTMs, dropout, and a linear layer with a sigmoid for each of M
    sources.

    As s3prl's `SepRNN` (`downstream/{enhancement_stft2,separation_stft2}/model.py`); the default
    sizes are those published.
    hidden: of every direction.
    """

    def __init__(
        self,
        states: int,
        width: int,
        bins: int,
        sources: int,
        hidden: int = 256,
        layers: int = 3,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.featurizer = Featurizer(states)
        between = dropout * (layers > 1)
        self.recurrent = nn.LSTM(
            width, hidden, layers, batch_first=True, bidirectional=True, dropout=between
        )
        self.dropout = nn.Dropout(dropout)
        self.outputs = nn.ModuleList(nn.Linear(2 * hidden, bins) for _ in range(sources))

    def forward(self, states: Tensor, lengths: Tensor, frames: Tensor, repeat: int = 1) -> Tensor:
        """Return masks (B, M, F, K) within 0 and 1, without meaning beyond a recording's frames.

        states: (B, S, T, D); lengths: (B,) real ones of the T; frames: (B,) of the F, at least 1;
        repeat: of each frame.
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

    Every frame is repeated; surplus ones are cut off at the end and missing ones are 0. What the
    padding holds never matters.
    """
    features = features.repeat_interleave(repeat, 1)
    most = int(frames.max())
    features = pad(features, (0, 0, 0, max(most - features.shape[1], 0)))[:, :most]
    counts = torch.minimum(lengths * repeat, frames).to(features.device)
    real = torch.arange(most, device=features.device) < counts[:, None]
    return features.masked_fill(~real[..., None], 0)


def apply_masks(masks: Tensor, mixture: Tensor) -> Tensor:
    """Return the estimates, complex (..., M, F, K): masked log(1 + |X|) with the mixture's phase.

    masks: (..., M, F, K); mixture: complex (..., F, K).
    """
    level = mixture.abs()
    phase = mixture / (level + EPSILON)
    return torch.expm1(masks * level.log1p().unsqueeze(-3)) * phase.unsqueeze(-3)


# ---- tasks


def build_masker(task: Enhancement | Separation, states: int, width: int) -> Masker:
    return Masker(
        states, width, task.stft.bins, task.sources, task.hidden, task.layers, task.dropout
    )


def predict_masks(
    task: Enhancement | Separation, head: nn.Module, batch: Batch
) -> tuple[Tensor, Tensor, Tensor]:
    """Return masks (B, M, F, K), the complex spectrum of the mixture (B, F, K), and real frames
    (B,)."""
    device = batch.states.device
    waves = pad_sequence([torch.from_numpy(wave) for wave in batch.waves], batch_first=True)
    mixture = task.stft.spectrum(waves.to(device))
    frames = torch.tensor([task.stft.frames(len(wave)) for wave in batch.waves], device=device)
    repeat = task.grid.hop // task.stft.hop
    masks: Tensor = head(batch.states, batch.lengths.to(device), frames, repeat)
    return masks, mixture, frames


def training_spectra(
    task: Enhancement | Separation, head: nn.Module, batch: Batch
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return masks (B, M, F, K), complex spectra of the mixture (B, F, K) and of the clean sources
    (B, M, F, K), and frames (B,)."""
    masks, mixture, frames = predict_masks(task, head, batch)
    sources = []
    for utterance, wave in zip(batch.utterances, batch.waves, strict=True):
        sources.append(torch.from_numpy(clean_sources(task.data, utterance, len(wave))).T)
    clean = pad_sequence(sources, batch_first=True).transpose(1, 2).to(mixture.device)
    return masks, mixture, task.stft.spectrum(clean), frames


@torch.inference_mode()
def estimate(task: Enhancement | Separation, head: nn.Module, batch: Batch) -> list[np.ndarray]:
    """Return (1 + M, N) float32 of each recording: the mixture, and the estimates (of several
    sources in no order)."""
    masks, mixture, frames = predict_masks(task, head, batch)
    estimated_spectra = apply_masks(masks, mixture)
    estimates = []
    for wave, spectra, count in zip(batch.waves, estimated_spectra, frames.tolist(), strict=True):
        estimated = task.stft.wave(spectra[:, :count], len(wave)).cpu().numpy()
        # the mixture goes along, for the improvement over it is what is scored
        estimates.append(np.concatenate([wave[None], estimated]).astype(np.float32))
    return estimates


def mean_score(
    data: UtteranceSet,
    split: str,
    predicted: Mapping[str, np.ndarray],
    name: str,
    score: Score,
    worst: float,
    resamples: int,
) -> Measure:
    """Return the mean over a split; an utterance without a prediction has the worst value."""
    values = []
    for utterance in data.splits[split]:
        if utterance.id not in predicted:
            values.append(worst)
            continue
        mixture, *estimates = predicted[utterance.id]
        clean = clean_sources(data, utterance, len(mixture))
        values.append(score(clean, np.stack(estimates), mixture))
    return rate_measure(name, values, None, data, split, resamples, scale=1)


def zero_padding(values: Tensor, frames: Tensor) -> Tensor:
    """Set (B, M, F, K) to zero beyond a recording's frames. frames: (B,)."""
    beyond = torch.arange(values.shape[2], device=values.device) >= frames[:, None]
    return values.masked_fill(beyond[:, None, :, None], 0)


def check_sources(data: UtteranceSet, count: int) -> None:
    """Raise InputError for an utterance that has not so many sources."""
    for split, utterances in data.splits.items():
        for utterance in utterances:
            if len(utterance.sources) != count:
                raise InputError(
                    f"{data.root / split}.jsonl, utterance {utterance.id}, has "
                    f"{len(utterance.sources)} sources; name {count} clean "
                    f"recording{'s' * (count > 1)} as its sources"
                )


def clean_sources(data: UtteranceSet, utterance: Utterance, samples: int) -> np.ndarray:
    """Read the clean sources, (M, N) float32, cut off or padded with silence to the mixture's
    length."""
    recordings = [_recording(data.root / path)[:samples] for path in utterance.sources]
    return np.stack([np.pad(x, (0, samples - len(x))) for x in recordings])


@lru_cache(RECORDINGS)
def _recording(path: Path) -> np.ndarray:
    samples = read_audio(path)
    samples.setflags(write=False)  # everyone gets the same array
    return samples


@dataclass(frozen=True)
class Enhancement:
    """Enhancement, the task `se`, has one clean source. Raises InputError for an utterance without
    it, or an encoder whose hop is no multiple of the spectrum's."""

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
    build, predict = build_masker, estimate

    def __post_init__(self) -> None:
        check_sources(self.data, self.sources)
        if self.grid.hop % self.stft.hop:
            raise InputError(
                f"{self.data.root} is enhanced in steps of {self.stft.hop} samples, and the "
                f"encoder's hop of {self.grid.hop} is no multiple; leave the task out"
            )

    def loss(self, head: nn.Module, batch: Batch) -> Tensor:
        """Return the mean absolute error of log(1 + magnitude), summed over the bins."""
        masks, mixture, clean, frames = training_spectra(self, head, batch)
        error = masks * mixture.abs().log1p()[:, None] - clean.abs().log1p()
        return (zero_padding(error.abs(), frames).sum((1, 2, 3)) / frames).mean()

    def evaluate(
        self, split: str, predicted: Mapping[str, np.ndarray], resamples: int
    ) -> HeadEvaluation:
        """Measure PESQ, STOI (percent) and the improvement in SI-SDR (dB); with 0 resamples, to
        choose heads as s3prl does, PESQ alone.

        A recording without a prediction has the worst PESQ, STOI 0 and an improvement of SILENT.
        Raises MissingExtra without the libraries.
        """
        scores: dict[str, tuple[Score, float]] = {
            "pesq": (lambda clean, estimated, _: pesq_wideband(clean[0], estimated[0]), WORST_PESQ),
            "stoi": (lambda clean, estimated, _: stoi_percent(clean[0], estimated[0]), 0.0),
            "si_sdri": (si_sdr_improvement, SILENT),
        }
        measures = []
        for name in scores if resamples else ("pesq",):
            score, worst = scores[name]
            measures.append(mean_score(self.data, split, predicted, name, score, worst, resamples))
        return HeadEvaluation(tuple(measures))


@dataclass(frozen=True)
class Separation:
    """Separation, the task `ss`, has two speakers. The spectrum has the encoder's frames. Raises
    InputError for an utterance that is no mixture of two."""

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
    build, predict = build_masker, estimate

    def __post_init__(self) -> None:
        check_sources(self.data, self.sources)

    @property
    def stft(self) -> Stft:
        return Stft(self.size, self.size, self.grid.hop)

    def loss(self, head: nn.Module, batch: Batch) -> Tensor:
        """Return the mean squared error of log(1 + magnitude), summed over the bins, in the order
        of the sources that is best in a recording.

        The target magnitude is that of the source times the cosine of its phase to the mixture's,
        where positive (NPSM).
        """
        masks, mixture, clean, frames = training_spectra(self, head, batch)
        level = mixture.abs()[:, None]
        tiny = torch.finfo(torch.float32).tiny
        aligned = (clean * mixture[:, None].conj()).real / (level + tiny)
        estimated = masks * level.log1p()
        targets = aligned.relu().log1p()
        errors = []
        for order in permutations(range(self.sources)):
            squares = (estimated - targets[:, list(order)]).square()
            errors.append(zero_padding(squares, frames).sum((1, 2, 3)))
        return (torch.stack(errors).amin(0) / (frames * self.sources)).mean()

    def evaluate(
        self, split: str, predicted: Mapping[str, np.ndarray], resamples: int
    ) -> HeadEvaluation:
        """Measure the improvement in SI-SDR (dB) in the better order of the two; SILENT without a
        prediction."""
        measure = mean_score(
            self.data, split, predicted, "si_sdri", si_sdr_improvement, SILENT, resamples
        )
        return HeadEvaluation((measure,))


# ---- measures, at 16 kHz

LIMIT = 100.0  # dB, either way: what would be infinite, or hangs on the last bits of the samples
# dB of an estimate without any sound: below that of noise that is unrelated to the source
SILENT = -50.0
WORST_PESQ = 1.0  # the lower end of its scale: of an estimate in which no utterance is found
EXTRA = "superb"


def si_sdr(reference: np.ndarray, estimate: np.ndarray) -> float:
    """Return how much of the estimate is the reference, at any level, in dB within [-LIMIT, LIMIT];
    SILENT for silence or NaN. Both (N,).

    Le Roux et al. (arXiv 1811.02508) without removal of the mean, as pb_bss_eval has it, which
    s3prl uses.
    Raises ValueError for a silent reference or another length.
    """
    reference = np.asarray(reference, np.float64)
    estimate = np.asarray(estimate, np.float64)
    if reference.shape != estimate.shape or not reference.any():
        raise ValueError(
            f"a reference {reference.shape} of an estimate {estimate.shape} must be "
            "as long and not silent"
        )
    if not np.isfinite(estimate).all() or not estimate.any():
        return SILENT
    projection = (estimate @ reference) / (reference @ reference) * reference
    error = estimate - projection
    with np.errstate(divide="ignore"):
        decibels = 10 * np.log10((projection @ projection) / (error @ error))
    return float(np.clip(decibels, -LIMIT, LIMIT))


def si_sdr_improvement(references: np.ndarray, estimates: np.ndarray, mixture: np.ndarray) -> float:
    """Return by how many dB the estimates are better than the mixture itself: the mean over the
    sources, in the order that is best.

    references, estimates: (K, N); mixture: (N,).
    """
    table = np.array(
        [[si_sdr(reference, estimate) for estimate in estimates] for reference in references]
    )
    best = max(
        np.mean([table[i, j] for i, j in enumerate(order)])
        for order in permutations(range(len(estimates)))
    )
    return float(best - np.mean([si_sdr(reference, mixture) for reference in references]))


def check_installed() -> None:
    """Raise MissingExtra, before a long run, without the packages that `pesq_wideband` and
    `stoi_percent` need."""
    for package, measure in (("pesq", "PESQ"), ("pystoi", "STOI")):
        if find_spec(package) is None:
            raise MissingExtra(f"the task se (its measure {measure})", EXTRA)


def pesq_wideband(reference: np.ndarray, estimate: np.ndarray) -> float:
    """Return MOS-LQO of ITU-T P.862.2, 1.0 to 4.64 (package `pesq`, which compiles the ITU's C code
    when it is installed). Both (N,).

    WORST_PESQ where no utterance is found (silence) or N is below a quarter of a second. Raises
    MissingExtra without the package.
    """
    try:
        from pesq import BufferTooShortError, NoUtterancesError, pesq
    except ImportError:
        raise MissingExtra("PESQ", EXTRA) from None
    if not np.isfinite(estimate).all():
        return WORST_PESQ
    try:
        return float(pesq(SAMPLE_RATE, reference, estimate, "wb"))
    except (BufferTooShortError, NoUtterancesError, ValueError):
        # the last where silence makes it NaN
        return WORST_PESQ


def stoi_percent(reference: np.ndarray, estimate: np.ndarray) -> float:
    """Return STOI in percent (Taal et al. 2011, not extended; package `pystoi`). Both (N,).

    0 (0.001) where less than 0.4 s of the reference is speech, which is too little for it. Raises
    MissingExtra without the package.
    """
    try:
        from pystoi import stoi
    except ImportError:
        raise MissingExtra("STOI", EXTRA) from None
    if not np.isfinite(estimate).all():
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of too little speech
        return 100 * float(stoi(reference, estimate, SAMPLE_RATE, extended=False))
