"""This module alone converts samples, frames, units and seconds into each other, in exact integers.

Letters: N samples, T frames, U units. A frame of a convolutional front end sees `receptive`
samples, and the next frame sees as many, `hop` samples later. Frame t *owns* the `hop` samples in
the middle of those that it sees, so that the frames tile the time axis without gap or overlap; the
first frame also owns everything before, the last everything after. A run-length unit owns the
frames that it was merged from. Times in seconds are sample numbers divided by the rate, once, at
the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class FrameGrid:
    """A grid is the frame arithmetic of a stack of unpadded convolutions.

    sample_rate: Hz. hop: samples between frames. receptive: samples a frame sees.
    """

    sample_rate: int
    hop: int
    receptive: int

    @classmethod
    def of_convolutions(
        cls, sample_rate: int, kernels: Sequence[int], strides: Sequence[int]
    ) -> FrameGrid:
        """Return the grid of convolutions with these kernels and strides (wav2vec 2.0 section 2:
        hop 320, receptive field 400)."""
        hop, receptive = 1, 1
        for kernel, stride in zip(kernels, strides, strict=True):
            receptive += (kernel - 1) * hop
            hop *= stride
        return cls(sample_rate, hop, receptive)

    @property
    def frame_rate(self) -> float:
        """Return the frames a second (Hz)."""
        return self.sample_rate / self.hop

    @property
    def offset(self) -> int:
        """Return the number of the first sample in the middle part of frame 0."""
        return (self.receptive - self.hop) // 2

    def count_frames(self, samples: int) -> int:
        """Return the number of frames T that N samples give; 0 when there are fewer samples than
        one receptive field."""
        return 0 if samples < self.receptive else (samples - self.receptive) // self.hop + 1

    def count_samples(self, frames: int) -> int:
        """Return the smallest number of samples that gives this many frames."""
        return 0 if frames <= 0 else (frames - 1) * self.hop + self.receptive

    def find_first_sample(self, frame: int) -> int:
        """Return the first sample that a frame owns (0 for frame 0); for frame = T, the end of the
        last hop."""
        return 0 if frame <= 0 else frame * self.hop + self.offset

    def find_frame(self, sample: int, frames: int) -> int:
        """Return the frame in [0, frames) that owns this sample. Raises ValueError when there is no
        frame at all."""
        if frames <= 0:
            raise ValueError("there are no frames")
        return min(max((sample - self.offset) // self.hop, 0), frames - 1)

    def find_start(self, frame: int) -> float:
        """Return the start of a frame in seconds."""
        return self.find_first_sample(frame) / self.sample_rate

    def find_sample(self, seconds: float) -> int:
        """Return the sample nearest to a time in seconds."""
        return round(seconds * self.sample_rate)


@dataclass(frozen=True)
class RunLength:
    """A recording is a sequence of units, each of which stands for a run of equal frames.

    seconds: length of the recording, at whose end the last unit ends; None: not known, and taken to
    be as short as this number of frames allows.
    """

    units: np.ndarray  # (U,) int
    lengths: np.ndarray  # (U,) int >= 1, in frames
    seconds: float | None = None

    def __post_init__(self) -> None:
        are_vectors = self.units.ndim == 1 and self.units.shape == self.lengths.shape
        if not are_vectors or (self.lengths < 1).any():
            raise ValueError(
                "units and lengths must be vectors of one size, every length at least 1"
            )

    @classmethod
    def of_frames(cls, frames: np.ndarray, seconds: float | None = None) -> RunLength:
        """Merge frames (T,) int to runs of one unit. seconds: of the recording."""
        frames = np.asarray(frames)
        if len(frames) == 0:
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), seconds)
        starts = np.flatnonzero(np.r_[True, frames[1:] != frames[:-1]])
        return cls(frames[starts], np.diff(np.r_[starts, len(frames)]), seconds)

    def __len__(self) -> int:
        return len(self.units)

    @property
    def frames(self) -> int:
        """Return the number of frames T."""
        return int(self.lengths.sum())

    @cached_property
    def borders(self) -> np.ndarray:
        """Return (U + 1,) the first frame of every unit, and at the end T."""
        return np.r_[0, np.cumsum(self.lengths)]

    def expand(self) -> np.ndarray:
        """Return (T,) the unit of every frame."""
        return np.repeat(self.units, self.lengths)

    def unit_at(self, frame: int) -> int:
        """Return the index of the unit that contains this frame; frames beyond either end belong to
        the first or last unit."""
        if not len(self):
            raise ValueError("there are no units")
        index = np.searchsorted(self.borders, frame, side="right") - 1
        return int(np.clip(index, 0, len(self) - 1))


def find_units(grid: FrameGrid, runs: RunLength, start: float, end: float) -> tuple[int, int]:
    """Find the span of units, both ends inclusive, that fits [start, end) seconds best: a label for
    a span head.

    The smallest span that contains the interval is too long by half a unit at either end on
    average. So the unit at an end is left out where the span then has a higher F1: twice the
    samples shared with the interval over the samples of both.
    0 <= first <= last always holds; the released code of DUAL has spans of -1 and empty ones.
    Raises ValueError for an interval that is empty or not finite.
    """
    if not (np.isfinite(start) and np.isfinite(end)) or end <= start:
        raise ValueError(f"[{start}, {end}) seconds is not an interval")
    start_sample = grid.find_sample(start)
    end_sample = max(grid.find_sample(end), start_sample + 1)
    first = runs.unit_at(grid.find_frame(start_sample, runs.frames))
    last = runs.unit_at(grid.find_frame(end_sample - 1, runs.frames))
    borders = find_unit_samples(grid, runs)
    # the containing span comes first, and max takes the first of equals
    spans = [(i, j) for i in (first, first + 1) for j in (last, last - 1) if i <= j]
    scores = {}
    for i, j in spans:
        left, right = int(borders[i]), int(borders[j + 1])
        overlap = max(min(right, end_sample) - max(left, start_sample), 0)
        scores[i, j] = 2 * overlap / (right - left + end_sample - start_sample)
    return max(scores, key=lambda span: scores[span])


def find_unit_samples(grid: FrameGrid, runs: RunLength) -> np.ndarray:
    """Return (U + 1,) the first sample that every unit owns, and at the end the end of the
    recording, where the last unit ends."""
    samples = runs.borders * grid.hop + grid.offset
    samples[0] = 0
    end = (
        grid.count_samples(runs.frames) if runs.seconds is None else grid.find_sample(runs.seconds)
    )
    # a padded recording may end before its last frame begins
    samples[-1] = max(end, samples[-2] + 1)
    return samples


def find_interval(grid: FrameGrid, runs: RunLength, first: int, last: int) -> tuple[float, float]:
    """Return the seconds [start, end) that units first to last own, both inclusive: the inverse of
    `find_units`."""
    if not 0 <= first <= last < len(runs):
        raise ValueError(f"units {first}..{last} are not among {len(runs)} units")
    borders = find_unit_samples(grid, runs)
    return float(borders[first] / grid.sample_rate), float(borders[last + 1] / grid.sample_rate)
