"""Batches for pre-training: random crops of a corpus in one array, masked and, where asked for, distorted.

The crops of a batch are equally long. Recordings that are longer than a crop are cut to it; shorter ones go into batches of their
own, of shorter crops and of correspondingly more of them, so that a batch is about the same seconds of audio: what fairseq's
`max_tokens` does with utterances of like length that are cut to the shortest of them.

Letters: B crops, N samples, T frames.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from tqdm import tqdm

from speechssl.augment.training import TrainingDistortions
from speechssl.errors import InputError
from speechssl.processes import is_main, processes
from speechssl.timing import FrameGrid
from speechssl.trainer import Batch

SHORTEST = 2.0  # seconds of a crop; both papers' settings in fairseq leave out shorter recordings (`min_sample_size` 32,000)
ALIKE = 1.1  # the longest over the shortest of a bucket, so that little of the longest is cut away
APART = 1.5  # the same of a bucket that grows because it would not fill a batch: rather cut than repeat, within limits
NO_LABEL = -1


@dataclass(frozen=True)
class MaskOptions:
    """Spans of frames to hide: `probability` times the frames, were there no overlap (`span_mask`; HuBERT: 0.80, length 10)."""

    probability: float = 0.65
    length: int = 10
    visible_weight: float = 0.0  # weight of frames that are not masked
    same_masks: bool = False  # all rows of a batch have equally many masked frames (`cut_to_same`)


def span_mask(rng: np.random.Generator, frames: int, probability: float, length: int) -> np.ndarray:
    """(T,) bool; frames * probability / length spans of `length` frames, at least two, that may overlap (fairseq's rule)."""
    count = max(int(frames * probability / length + rng.random()), 2)
    places = max(frames - length, 1)
    mask = np.zeros(frames, bool)
    for start in rng.choice(places, size=min(count, places), replace=False):
        mask[start : start + length] = True
    return mask


def cut_to_same(rng: np.random.Generator, masks: np.ndarray) -> np.ndarray:
    """(B, T) bool -> (B, T) bool: every row with as many masked frames as the row that has fewest; single frames are drawn.

    fairseq's `require_same_masks`, on in its HuBERT and wav2vec 2.0. Its rows are those of one GPU, these those of the whole batch.
    """
    fewest = int(masks.sum(axis=1).min())
    cut = np.zeros_like(masks)
    for row, mask in zip(cut, masks, strict=True):
        row[rng.choice(np.flatnonzero(mask), fewest, replace=False)] = True
    return cut


@dataclass(frozen=True)
class Bucket:
    """What a batch is drawn from: the numbers of its recordings, all longer than a crop, and the batch's shape."""

    recordings: np.ndarray
    frames: int  # of a crop
    crops: int  # of a batch


def shortest_crop(frames: int, frame_rate: float) -> int:
    """Frames of the shortest crop where the longest has `frames`: a recording that is not longer than it is never used."""
    return min(frames, round(SHORTEST * frame_rate))


def buckets(counts: np.ndarray, frames: int, crops: int, shortest: int) -> list[Bucket]:
    """Those with shorter crops in order of length, then the one with crops of full length; none where all are too short.

    counts: (recordings,) frames of every recording. frames, crops: of a batch of full length. shortest: of the shortest crop.
    """
    short = np.flatnonzero((counts > shortest) & (counts <= frames))
    short = short[np.argsort(counts[short], kind="stable")]
    # Fewer rows, by under a quarter of `crops`, that 2, 4, 8 ... processes can share: one process takes as many, so that a batch
    # stays the same. Another number of processes, or a larger one, leaves out what it cannot share.
    unit = math.lcm(math.gcd(crops, 1 << max((crops // 4).bit_length() - 1, 0)), processes())
    found = []
    while len(short):
        own = counts[short]
        length = int(own[0]) - 1
        rows = frames * crops // length // unit * unit
        alike, apart = np.searchsorted(own, own[0] * np.array([ALIKE, APART]), "right")
        taken = min(max(alike, rows), apart)
        found.append(Bucket(short[:taken], length, rows))
        short = short[taken:]
    long = np.flatnonzero(counts > frames)
    return found + ([Bucket(long, frames, crops)] if len(long) else [])


@dataclass(frozen=True)
class LabelledAudio:
    """A corpus in one array: samples (S,) int16 and labels (F,) int16, with the bounds of every utterance in both."""

    samples: np.ndarray
    sample_bounds: np.ndarray  # (utterances + 1,)
    labels: np.ndarray
    label_bounds: np.ndarray

    def __len__(self) -> int:
        return len(self.sample_bounds) - 1


def unlabelled(samples: np.ndarray, bounds: np.ndarray, grid: FrameGrid) -> LabelledAudio:
    """Audio that `Cropper` can cut without labels. samples: (S,) int16; bounds: (utterances + 1,), as `pack_audio` writes them."""
    frames = np.cumsum([0] + [grid.frames(int(n)) for n in np.diff(bounds)])
    return LabelledAudio(samples, bounds, np.broadcast_to(np.int16(0), frames[-1:]), frames)


@dataclass(frozen=True)
class Cropper:
    """Batches of random crops, a function of (seed, step) only.

    A batch is drawn from recordings of like length (`buckets`): where all are longer than `seconds`, from all of them.
    Labels are always those of the clean signal. With `distort` the encoder gets a distorted crop, and the batch says which domain
    it is of; with `clean` the batch holds the undistorted crops, too, for a teacher.
    """

    data: LabelledAudio
    grid: FrameGrid
    mask: MaskOptions
    crops: int = 10  # B of a batch of full length; a batch of shorter crops has more
    seconds: float = 4.0  # the longest crop
    seed: int = 0
    normalise: bool = True  # as the encoder wants its input
    distort: TrainingDistortions | None = None
    clean: bool = False
    horizon: int = 1  # updates over which the schedules of the distortions run
    accumulation: int = 1  # batches an update
    silence: float = 0.0  # share of the crops of which a part is silenced, before they are distorted
    second: TrainingDistortions | None = None  # what makes a second version of every crop, which is then distorted by itself

    def __call__(self, step: int) -> Batch:
        """samples (B, N), normalised; labels (B, T) and mask (B, T); with distortions the domains (B,), which update it is, how
        much of the training has passed, 0 to 1, and perhaps clean_samples (B, N); second (B, N) is the second version."""
        rng = np.random.default_rng([self.seed, step])
        bucket = self._draw_bucket(rng)
        frames = bucket.frames
        crops = [self._crop(rng, int(i), frames) for i in rng.choice(bucket.recordings, size=bucket.crops)]
        if self.silence:
            crops = [self._silenced(rng, *crop) for crop in crops]
        masks = np.stack([span_mask(rng, frames, self.mask.probability, self.mask.length) for _ in crops])
        if self.mask.same_masks:
            masks = cut_to_same(rng, masks)
        batch = {
            "labels": torch.from_numpy(np.stack([labels for _, labels in crops])),
            "mask": torch.from_numpy(masks),
        }
        samples = [crop for crop, _ in crops]
        progress = min(step / max(self.horizon * self.accumulation, 1), 1.0)
        if self.second is not None:
            others = [self.second.apply(crop, (self.seed, step, row, 1), progress)[0] for row, crop in enumerate(samples)]
            if self.distort is not None:
                others = [self.distort.apply(crop, (self.seed, step, row, 2), progress)[0] for row, crop in enumerate(others)]
            batch["second"] = self._stacked(others)
        if self.distort is None:
            return {"samples": self._stacked(samples)} | batch
        pairs = [self.distort.apply(crop, (self.seed, step, row), progress) for row, crop in enumerate(samples)]
        batch |= {
            "samples": self._stacked([distorted for distorted, _ in pairs]),
            "domains": torch.tensor([domain for _, domain in pairs]),
            "progress": torch.tensor(progress),
            "step": torch.tensor(step // self.accumulation),
        }
        return batch | ({"clean_samples": self._stacked(samples)} if self.clean else {})

    def audio_seconds(self, step: int) -> float:
        """Seconds of speech in the batch of this step."""
        bucket = self._draw_bucket(np.random.default_rng([self.seed, step]))
        return bucket.crops * bucket.frames / self.grid.frame_rate

    @cached_property
    def _buckets(self) -> list[Bucket]:
        frames = round(self.seconds * self.grid.frame_rate)
        shortest = shortest_crop(frames, self.grid.frame_rate)
        found = buckets(np.diff(self.data.label_bounds), frames, self.crops, shortest)
        if not found:
            raise InputError(_too_short(shortest / self.grid.frame_rate))
        return found

    def _draw_bucket(self, rng: np.random.Generator) -> Bucket:
        """In proportion to its batches, so that every recording is used equally often, as in fairseq's epochs.

        Where there is no choice, no number is drawn either.
        """
        if len(self._buckets) == 1:
            return self._buckets[0]
        weights = np.array([len(bucket.recordings) / bucket.crops for bucket in self._buckets])
        return self._buckets[rng.choice(len(weights), p=weights / weights.sum())]

    def _crop(self, rng: np.random.Generator, index: int, frames: int) -> tuple[np.ndarray, np.ndarray]:
        """Samples (N,) float32 of full scale 1, labels (T,) int64."""
        first, last = self.data.label_bounds[index : index + 2]
        frame = int(rng.integers(last - first - frames))
        start = int(self.data.sample_bounds[index]) + frame * self.grid.hop
        samples = self.data.samples[start : start + self.grid.samples_for(frames)].astype(np.float32) / 32768
        return samples, self.data.labels[first + frame : first + frame + frames].astype(np.int64)

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


def check_crops(lengths: Sequence[int], grid: FrameGrid, seconds: float) -> None:
    """Report on stderr how many recordings are too short for the shortest crop. Raises InputError where all are.

    lengths: samples of every recording, 0 for those that were set aside. seconds: of the longest crop.
    """
    hours = np.array([n for n in lengths if n]) / grid.sample_rate / 3600
    shortest = shortest_crop(round(seconds * grid.frame_rate), grid.frame_rate)
    used = np.array([grid.frames(n) > shortest for n in lengths if n], bool)
    if not used.any():
        raise InputError(_too_short(shortest / grid.frame_rate))
    if not used.all() and is_main():
        least = f"a crop of {shortest / grid.frame_rate:g} s, the shortest"
        tqdm.write(
            f"{(~used).sum()} of {len(used)} recordings are too short for {least}, "
            f"which leaves {hours[used].sum():.3g} of {hours.sum():.3g} h; a smaller --crop-seconds leaves more",
            file=sys.stderr,
        )


def _too_short(seconds: float) -> str:
    return f"no recording is longer than a crop of {seconds:g} s, the shortest; give a smaller --crop-seconds"
