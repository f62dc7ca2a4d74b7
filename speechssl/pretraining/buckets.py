"""Recordings of like length, and how many crops a batch of them has.

Recordings that are longer than a crop are cut to it. The shorter ones go into batches of their own, of shorter crops and of
correspondingly more of them, so that a batch is about the same seconds of audio: what fairseq's `max_tokens` does, with batches of
utterances of like length that are cut to the shortest of them.
Letters: T frames of a recording.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from speechssl.processes import processes

SHORTEST = 2.0  # seconds of a crop; both papers' settings in fairseq leave out shorter recordings (`min_sample_size` 32,000)
ALIKE = 1.1  # the longest over the shortest of a bucket, so that little of the longest is cut away
APART = 1.5  # the same of a bucket that grows because it would not fill a batch: rather cut than repeat, within limits


@dataclass(frozen=True)
class Bucket:
    """What a batch is drawn from: the numbers of its recordings, all longer than a crop, and the batch's shape."""

    recordings: np.ndarray
    frames: int  # of a crop
    crops: int  # of a batch

    @property
    def weight(self) -> float:
        """Share of the batches, up to a factor: with it every recording is heard equally often, as in fairseq's epochs, and as
        those that are longer than a crop always were."""
        return len(self.recordings) / self.crops


def shortest_crop(frames: int, frame_rate: float) -> int:
    """Frames of the shortest crop where the longest has `frames`: what is not longer than it is never heard."""
    return min(frames, round(SHORTEST * frame_rate))


def buckets(counts: np.ndarray, frames: int, crops: int, shortest: int) -> list[Bucket]:
    """Those with shorter crops in order of length, then the one with crops of full length; none where all are too short.

    counts: (recordings,) T of every recording. frames, crops: of a batch of full length. shortest: frames of the shortest crop.
    """
    short = np.flatnonzero((counts > shortest) & (counts <= frames))
    short = short[np.argsort(counts[short], kind="stable")]
    found = []
    while len(short):
        bucket = _bucket(short, counts[short], frames * crops, crops)
        found.append(bucket)
        short = short[len(bucket.recordings) :]
    long = np.flatnonzero(counts > frames)
    return found + ([Bucket(long, frames, crops)] if len(long) else [])


def _bucket(recordings: np.ndarray, counts: np.ndarray, together: int, crops: int) -> Bucket:
    """The shortest of these. counts: in rising order. together: frames of a batch; crops: of full length in one."""
    frames = int(counts[0]) - 1
    rows = _divisible(together // frames, crops)
    alike, apart = np.searchsorted(counts, counts[0] * np.array([ALIKE, APART]), "right")
    return Bucket(recordings[: min(max(alike, rows), apart)], frames, rows)


def _divisible(rows: int, crops: int) -> int:
    """Fewer rows, by under a quarter of `crops`, that 2, 4, 8 ... processes can share: one process takes as many, so that a batch
    stays what it is. Another number of processes, or more, leaves out what it cannot share."""
    unit = math.gcd(crops, 1 << max((crops // 4).bit_length() - 1, 0))
    unit = math.lcm(unit, processes())
    return rows // unit * unit
