"""HuBERT pre-training: predict the cluster of every frame, hidden ones above all (arXiv 2106.07447, section II).

The published loss counts masked frames only. With targets that come from another reading of the same words by one neutral voice
(`corpora.minisqa` with `reference=True`; ContentVec's teacher, arXiv 2204.09224) the visible frames are worth learning from too,
because the answer is not in the input: `visible_weight` says how much.
Letters: B utterances, N samples, T frames, K clusters, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import HubertConfig, HubertModel, Wav2Vec2FeatureExtractor

from speechssl.audio import SAMPLE_RATE
from speechssl.errors import InputError
from speechssl.processes import mean_of_processes, processes
from speechssl.timing import FrameGrid
from speechssl.training import Batch


def small_config() -> HubertConfig:
    """The small HuBERT that ships: 4 convolutions to 50 Hz, 5 layers of 256, 4.7 M parameters. No dropout: it is slow on CPUs."""
    return HubertConfig(
        hidden_size=256,
        num_hidden_layers=5,
        num_attention_heads=4,
        intermediate_size=1024,
        conv_dim=(64, 128, 128, 256),
        conv_kernel=(10, 8, 8, 8),
        conv_stride=(5, 4, 4, 4),
        num_feat_extract_layers=4,
        feat_extract_norm="layer",  # no statistics over the utterance: padding and chunking leave the features alone
        num_conv_pos_embeddings=64,
        num_conv_pos_embedding_groups=16,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        feat_proj_dropout=0.0,
        layerdrop=0.0,
        vocab_size=32,
    )


@dataclass(frozen=True)
class MaskOptions:
    """Spans of frames to hide: `probability` times the frames, were there no overlap (`span_mask`; HuBERT: 0.80, length 10)."""

    probability: float = 0.65
    length: int = 10
    visible_weight: float = 0.0  # weight of frames that are not masked


class HubertPretraining(nn.Module):
    """Encoder, projection and label embeddings. Logits are cosines divided by 0.1 (section II-C)."""

    def __init__(self, encoder: HubertModel, clusters: int, width: int = 128, visible_weight: float = 0.0) -> None:
        super().__init__()
        self.encoder = encoder
        self.project = nn.Linear(encoder.config.hidden_size, width)
        self.labels = nn.Parameter(torch.randn(clusters, width))
        self.visible_weight = visible_weight

    def forward(self, samples: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> Batch:
        """samples: (B, N), normalised, unpadded; labels: (B, T) int; mask: (B, T) bool. Returns loss and accuracies."""
        features = self.encoder.feature_extractor(samples).transpose(1, 2)
        penalty = features.float().pow(2).mean()
        hidden = self.encoder.feature_projection(features)
        hidden = torch.where(mask[..., None], self.encoder.masked_spec_embed.to(hidden.dtype), hidden)
        hidden = self.encoder.encoder(hidden).last_hidden_state
        vectors = functional.normalize(self.project(hidden).float(), dim=-1)
        logits = vectors @ functional.normalize(self.labels, dim=-1).T / 0.1
        losses = functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        right = (logits.argmax(-1) == labels).float()
        masked, seen = _mean(losses, mask), _mean(losses, ~mask)
        loss = (masked + self.visible_weight * seen) / (1 + self.visible_weight)
        return {
            "loss": loss + 1e-3 * penalty,
            "masked_accuracy": _mean(right, mask).detach(),
            "visible_accuracy": _mean(right, ~mask).detach(),
        }


def _mean(values: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Over the batch, of which this may be one process's share: the mean of all shares' results is the mean over all of it."""
    return (values * where).sum() / mean_of_processes(where.sum()).clamp(min=1 / processes())


def span_mask(rng: np.random.Generator, frames: int, probability: float, length: int) -> np.ndarray:
    """(T,) bool; frames * probability / length spans of `length` frames, at least two, that may overlap (fairseq's rule)."""
    count = max(int(frames * probability / length + rng.random()), 2)
    mask = np.zeros(frames, bool)
    for start in rng.choice(max(frames - length, 1), size=min(count, max(frames - length, 1)), replace=False):
        mask[start : start + length] = True
    return mask


@dataclass(frozen=True)
class LabelledAudio:
    """A corpus in one array: samples (S,) int16 and labels (F,) int16, with the bounds of every utterance in both."""

    samples: np.ndarray
    sample_bounds: np.ndarray  # (utterances + 1,)
    labels: np.ndarray
    label_bounds: np.ndarray

    def __len__(self) -> int:
        return len(self.sample_bounds) - 1


@dataclass(frozen=True)
class Cropper:
    """Batches of crops, a function of (seed, step) only."""

    data: LabelledAudio
    grid: FrameGrid
    mask: MaskOptions
    crops: int = 10  # B
    seconds: float = 4.0
    seed: int = 0

    def __call__(self, step: int) -> Batch:
        rng = np.random.default_rng([self.seed, step])
        frames = round(self.seconds * self.grid.frame_rate)
        chosen = rng.choice(self._long_enough(frames), size=self.crops)
        crops = [self._crop(rng, int(i), frames) for i in chosen]
        return {
            "samples": torch.from_numpy(np.stack([s for s, _ in crops])),
            "labels": torch.from_numpy(np.stack([x for _, x in crops])),
            "mask": torch.from_numpy(np.stack([span_mask(rng, frames, self.mask.probability, self.mask.length) for _ in crops])),
        }

    def _long_enough(self, frames: int) -> np.ndarray:
        found = np.flatnonzero(np.diff(self.data.label_bounds) > frames)
        if not len(found):
            raise InputError(f"no recording is longer than a crop of {self.seconds} s; give a smaller --crop-seconds")
        return found

    def _crop(self, rng: np.random.Generator, index: int, frames: int) -> tuple[np.ndarray, np.ndarray]:
        first, last = self.data.label_bounds[index : index + 2]
        frame = int(rng.integers(last - first - frames))
        start = int(self.data.sample_bounds[index]) + frame * self.grid.hop
        samples = self.data.samples[start : start + self.grid.samples_for(frames)].astype(np.float32)
        samples = (samples - samples.mean()) / (samples.std() + 1e-5)
        return samples, self.data.labels[first + frame : first + frame + frames].astype(np.int64)


def save_encoder(encoder: HubertModel, folder: Path, normalise: bool = True, bf16: bool = False) -> None:
    """Save an ordinary Hugging Face folder: config, safetensors, feature extractor. bf16: half the bytes, weights rounded."""
    encoder.to(torch.bfloat16 if bf16 else torch.float32).save_pretrained(folder)
    Wav2Vec2FeatureExtractor(sampling_rate=SAMPLE_RATE, do_normalize=normalise).save_pretrained(folder)
