"""A codebook is fitted to a stream of features by k-means.

`fit_kmeans` takes a uniform sample of the frames (`Reservoir`) and clusters it by mini-batches, as
HuBERT does.

Letters: T frames, D dimensions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.errors import InputError
from speechssl.units.codebook import PADDING, Codebook, list_versions
from speechssl.units.options import BUDGET, STARTS


def fit_kmeans(
    features: Iterable[np.ndarray],
    clusters: int,
    card: dict[str, Any],
    budget: int = BUDGET,
    seed: int = 0,
    starts: int = STARTS,
    standardise: bool = False,
) -> Codebook:
    """Fit k-means to a uniform sample of at most `budget` frames of a stream of (T, D) arrays; keep
    the best of `starts` k-means++ starts.

    standardise: scale every dimension to variance 1 before clustering. Whisper's layers have a few
    dimensions of huge variance, which tell where in its window of 30 s a frame is, and would decide
    all distances. The codebook itself takes features that are not scaled.

    The settings are HuBERT's (arXiv 2106.07447, section IV-A;
    examples/hubert/simple_kmeans/learn_kmeans.py of fairseq): mini-batches of 10,000 frames, at
    most 100 passes, no tolerance, an end after 100 batches without improvement, no reassignment, 20
    starts. In contrast, fairseq uses all frames of the recordings that it samples, and its starts
    and batches do not depend on the seed alone. Raises InputError for fewer frames than clusters.
    """
    from sklearn.cluster import MiniBatchKMeans

    reservoir = Reservoir(budget, seed)
    for frames in features:
        reservoir.add(np.asarray(frames, np.float32))
    sample = reservoir.sample
    if len(sample) < clusters:
        what = "more recordings" if reservoir.seen <= budget else "a larger --budget"
        raise InputError(
            f"{len(sample)} frames of speech cannot make {clusters} clusters; give "
            f"fewer --clusters or {what}"
        )
    scale = np.maximum(sample.std(0, dtype=np.float64), 1e-8) if standardise else None
    if scale is not None:
        sample = (sample / scale).astype(np.float32)
    tqdm.write(
        f"k-means: {clusters} clusters of {len(sample)} frames (of {reservoir.seen} seen)",
        file=sys.stderr,
    )
    facts: dict[str, Any] = {
        "frames": reservoir.seen,
        "budget": budget,
        "seed": seed,
        "starts": starts,
        "standardise": standardise,
    }
    model = MiniBatchKMeans(
        clusters,
        batch_size=10_000,
        max_iter=100,
        tol=0.0,
        n_init=starts,
        max_no_improvement=100,
        reassignment_ratio=0.0,
        random_state=seed,
    )
    model.fit(sample)
    facts["inertia"] = float(model.inertia_ / len(sample))  # of a frame
    card = card | facts | {"padding": PADDING, "versions": list_versions()}
    if scale is None:
        return Codebook(model.cluster_centers_.astype(np.float32), card)
    # with the scale s, |x / s - c|^2 is smallest where x.(c / s) - |c|^2 / 2 is largest
    centres = model.cluster_centers_.astype(np.float64)
    offsets = (-np.square(centres).sum(1) / 2).astype(np.float32)
    return Codebook((centres / scale).astype(np.float32), card, offsets=offsets)


class Reservoir:
    """A reservoir keeps a uniform sample of at most `budget` frames of a stream (algorithm R). The
    sample does not depend on how the stream is cut."""

    def __init__(self, budget: int, seed: int) -> None:
        self.budget, self.seen = budget, 0
        self.rng = np.random.default_rng(seed)
        self.parts: list[np.ndarray] = []  # of the sample

    def add(self, frames: np.ndarray) -> None:
        """Add frames (T, D) of the stream."""
        free = max(self.budget - self.seen, 0)
        if free:
            self.parts.append(frames[:free].astype(np.float32))  # a copy
            self.seen += len(frames[:free])
        if len(frames) > free:
            self._replace_some(frames[free:])

    def _replace_some(self, frames: np.ndarray) -> None:
        """Let frame n of the stream replace a random frame of the sample with probability
        budget / n: it gets one of n slots at random, and the first `budget` slots are the
        sample."""
        numbers = np.arange(self.seen + 1, self.seen + len(frames) + 1)
        slots = self.rng.integers(0, numbers, endpoint=False)
        is_kept = slots < self.budget
        self.sample[slots[is_kept]] = frames[is_kept]  # the last of several in one slot stays
        self.seen += len(frames)

    @property
    def sample(self) -> np.ndarray:
        """Return the frames of the sample, (T, D)."""
        if len(self.parts) > 1:
            self.parts = [np.concatenate(self.parts)]
        return self.parts[0]
