"""Batches for pre-training: crops of equal length from a corpus in one array, masked and, where asked for, distorted.

The crops of a batch are alike; another batch may have shorter ones, and more of them, from recordings that are no longer.

Letters: B crops, N samples, T frames.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from tqdm import tqdm

from speechssl.errors import InputError
from speechssl.pretraining.buckets import Bucket, buckets, shortest_crop
from speechssl.pretraining.masking import MaskOptions, cut_to_same, span_mask
from speechssl.processes import is_main
from speechssl.timing import FrameGrid
from speechssl.training import Batch

NO_LABEL = -1


class Distortions(Protocol):
    """What is done to a crop of speech (`noise.training`)."""

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the domain labels; the first is clean."""
        ...

    def apply(self, samples: np.ndarray, key: tuple[int, ...], progress: float) -> tuple[np.ndarray, int]:
        """samples: (N,) float32, full scale 1. Returns what is heard, (N,), and its domain. progress: 0 to 1 of the training."""
        ...


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
    """Batches of crops, a function of (seed, step) only.

    A batch is drawn from recordings of like length (`buckets`): where all are longer than `seconds`, from all of them.
    Labels are always those of the clean signal. With `distort` the encoder hears a distorted crop, and the batch says which domain
    it is of; with `clean` the batch holds the undistorted crops, too, for a teacher.
    """

    data: LabelledAudio
    grid: FrameGrid
    mask: MaskOptions
    crops: int = 10  # B of a batch of full length; a batch of shorter crops has more
    seconds: float = 4.0  # the longest crop
    seed: int = 0
    normalise: bool = True  # as the encoder wants its input
    distort: Distortions | None = None
    clean: bool = False
    horizon: int = 1  # updates over which the schedules of the distortions run
    accumulation: int = 1  # batches an update
    silence: float = 0.0  # share of the crops of which a part is silenced, before they are distorted

    def __call__(self, step: int) -> Batch:
        rng = np.random.default_rng([self.seed, step])
        bucket = self._drawn(rng)
        frames = bucket.frames
        chosen = rng.choice(bucket.recordings, size=bucket.crops)
        crops = [self._crop(rng, int(i), frames) for i in chosen]
        if self.silence:
            crops = [self._silenced(rng, *crop) for crop in crops]
        masks = np.stack([span_mask(rng, frames, self.mask.probability, self.mask.length) for _ in crops])
        if self.mask.same_masks:
            masks = cut_to_same(rng, masks)
        batch = self._heard([samples for samples, _ in crops], step) | {
            "labels": torch.from_numpy(np.stack([labels for _, labels in crops])),
            "mask": torch.from_numpy(masks),
        }
        return batch

    def audio_seconds(self, step: int) -> float:
        """Seconds of speech in the batch of this step."""
        bucket = self._drawn(np.random.default_rng([self.seed, step]))
        return bucket.crops * bucket.frames / self.grid.frame_rate

    def _drawn(self, rng: np.random.Generator) -> Bucket:
        """What the batch is drawn from; where there is no choice, no number is drawn either."""
        if len(self._buckets) == 1:
            return self._buckets[0]
        weights = np.array([bucket.weight for bucket in self._buckets])
        return self._buckets[rng.choice(len(weights), p=weights / weights.sum())]

    @cached_property
    def _buckets(self) -> list[Bucket]:
        frames = round(self.seconds * self.grid.frame_rate)
        shortest = shortest_crop(frames, self.grid.frame_rate)
        found = buckets(np.diff(self.data.label_bounds), frames, self.crops, shortest)
        if not found:
            raise InputError(_too_short(shortest / self.grid.frame_rate))
        return found

    def _heard(self, crops: list[np.ndarray], step: int) -> Batch:
        """samples (B, N), normalised; with distortions their domains (B,), which update it is, and how much of the training has
        passed, 0 to 1; perhaps the clean crops."""
        if self.distort is None:
            return {"samples": self._stacked(crops)}
        progress = min(step / max(self.horizon * self.accumulation, 1), 1.0)
        pairs = [self.distort.apply(crop, (self.seed, step, row), progress) for row, crop in enumerate(crops)]
        batch = {
            "samples": self._stacked([samples for samples, _ in pairs]),
            "domains": torch.tensor([domain for _, domain in pairs]),
            "progress": torch.tensor(progress),
            "step": torch.tensor(step // self.accumulation),
        }
        return batch | ({"clean_samples": self._stacked(crops)} if self.clean else {})

    def _silenced(self, rng: np.random.Generator, samples: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Perhaps with silence before and after, as short recordings have it, three quarters at most; noise is added there too.

        Frames that see any of it have no label (-1): the targets know nothing of it.
        """
        if rng.random() >= self.silence:
            return samples, labels
        silent = rng.uniform(0, 0.75) * len(samples)
        first = int(silent * rng.random())
        last = len(samples) - int(silent) + first
        starts = np.arange(len(labels)) * self.grid.hop
        unseen = (starts < first) | (starts + self.grid.receptive > last)
        samples = np.concatenate([np.zeros(first, np.float32), samples[first:last], np.zeros(len(samples) - last, np.float32)])
        return samples, np.where(unseen, NO_LABEL, labels)

    def _stacked(self, crops: list[np.ndarray]) -> torch.Tensor:
        if self.normalise:
            crops = [(crop - crop.mean()) / (crop.std() + 1e-5) for crop in crops]
        return torch.from_numpy(np.stack(crops))

    def _crop(self, rng: np.random.Generator, index: int, frames: int) -> tuple[np.ndarray, np.ndarray]:
        """Samples (N,) float32 of full scale 1, labels (T,) int64."""
        first, last = self.data.label_bounds[index : index + 2]
        frame = int(rng.integers(last - first - frames))
        start = int(self.data.sample_bounds[index]) + frame * self.grid.hop
        samples = self.data.samples[start : start + self.grid.samples_for(frames)].astype(np.float32) / 32768
        return samples, self.data.labels[first + frame : first + frame + frames].astype(np.int64)


def check_crops(lengths: Sequence[int], grid: FrameGrid, seconds: float) -> None:
    """Say on stderr how many recordings are too short for the shortest crop, and are never heard. Raises InputError where all are.

    lengths: samples of every recording, 0 for those that were set aside. seconds: of the longest crop.
    """
    hours = np.array([n for n in lengths if n]) / grid.sample_rate / 3600
    shortest = shortest_crop(round(seconds * grid.frame_rate), grid.frame_rate)
    heard = np.array([grid.frames(n) > shortest for n in lengths if n], bool)
    if not heard.any():
        raise InputError(_too_short(shortest / grid.frame_rate))
    if not heard.all() and is_main():
        least = f"a crop of {shortest / grid.frame_rate:g} s, the shortest"
        tqdm.write(
            f"{(~heard).sum()} of {len(heard)} recordings are too short for {least}, "
            f"which leaves {hours[heard].sum():.3g} of {hours.sum():.3g} h; a smaller --crop-seconds leaves more",
            file=sys.stderr,
        )


def _too_short(seconds: float) -> str:
    return f"no recording is longer than a crop of {seconds:g} s, the shortest; give a smaller --crop-seconds"
