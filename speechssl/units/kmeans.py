"""A codebook is fitted to a stream of features by k-means.

`fit_kmeans` takes a uniform sample of the frames (`Reservoir`) and clusters it: by mini-batches, as
HuBERT does, or, for many clusters, by Lloyd's algorithm (`lloyd`).

Letters: T frames, D dimensions, K clusters, S starts, C candidates.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.errors import InputError
from speechssl.units.codebook import PADDING, Codebook, Nearest, versions
from speechssl.units.options import BUDGET, STARTS

# So many clusters or more are fitted by Lloyd's algorithm; the published sizes, 50 to 500, by the
# published algorithm, mini-batches.
MANY = 1_000
# Lloyd's algorithm tries at most so many starts: the inertia of many clusters hardly depends on it.
MOST_STARTS = 3
# Its starts are sampled from so many frames a cluster: with 3 the inertia was 1.6 % above
# scikit-learn's, with 10 it was 0.3 % above.
START_FRAMES = 10
MAX_PASSES = 40  # of Lloyd's algorithm over all frames
MIN_GAIN = 2e-4  # relative decrease of the inertia that is worth another pass
PART = 1 << 14  # frames that are converted to float64 at a time


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
    dimensions of huge variance, which tell where in the 30 s a frame is and would decide all
    distances. The codebook takes features that are not scaled.

    The settings are HuBERT's (arXiv 2106.07447, section IV-A;
    examples/hubert/simple_kmeans/learn_kmeans.py of fairseq): mini-batches of 10,000 frames, at
    most 100 passes, no tolerance, an end after 100 batches without improvement, no reassignment, 20
    starts. In contrast, fairseq uses all frames of the recordings that it samples, and its starts
    and batches do not depend on the seed alone. From MANY clusters on, for which mini-batches take
    many minutes, `lloyd` fits instead. Raises InputError for fewer frames than clusters.
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
        "frames": int(reservoir.seen),
        "budget": budget,
        "seed": seed,
        "starts": starts,
        "standardise": standardise,
    }
    if clusters >= MANY:
        count = min(starts, MOST_STARTS)
        centres, inertia = lloyd(sample, clusters, seed, count)
        facts["algorithm"] = f"Lloyd's, from the best of {count} starts"
    else:
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
        centres, inertia = model.cluster_centers_, model.inertia_ / len(sample)  # of a frame
    facts["inertia"] = float(inertia)
    card = card | facts | {"padding": PADDING, "versions": versions()}
    if scale is None:
        return Codebook(centres.astype(np.float32), card)
    # with the scale s, |x / s - c|^2 is smallest where x.(c / s) - |c|^2 / 2 is largest
    centres = centres.astype(np.float64)
    offsets = (-np.square(centres).sum(1) / 2).astype(np.float32)
    return Codebook((centres / scale).astype(np.float32), card, offsets=offsets)


class Reservoir:
    """A reservoir keeps a uniform sample of at most `budget` frames of a stream (algorithm R). The
    sample does not depend on how the stream is cut."""

    def __init__(self, budget: int, seed: int) -> None:
        self.budget, self.seen = budget, 0
        self.rng = np.random.default_rng(seed)
        self.rows = np.empty((0, 0), np.float32)

    def add(self, frames: np.ndarray) -> None:
        """Add frames (T, D) of the stream."""
        free = max(self.budget - self.seen, 0)
        if free:
            self._append(frames[:free])
        self._replace_some(frames[free:])

    def _append(self, frames: np.ndarray) -> None:
        """Keep frames for which there is room."""
        needed = self.seen + len(frames)
        if len(self.rows) < needed:  # doubled, so that a large budget takes memory only when used
            size = min(max(needed, 2 * len(self.rows)), self.budget)
            grown = np.empty((size, frames.shape[1]), np.float32)
            if self.seen:
                grown[: len(self.rows)] = self.rows
            self.rows = grown
        self.rows[self.seen : needed] = frames
        self.seen = needed

    def _replace_some(self, frames: np.ndarray) -> None:
        """Let frame n of the stream replace a random frame of the sample with probability
        budget / n: it gets one of n slots at random, and the first `budget` slots are the
        sample."""
        numbers = np.arange(self.seen + 1, self.seen + len(frames) + 1)
        slots = self.rng.integers(0, numbers, endpoint=False)
        is_kept = slots < self.budget
        self.rows[slots[is_kept]] = frames[is_kept]  # the last of several in one slot stays
        self.seen += len(frames)

    @property
    def sample(self) -> np.ndarray:
        return self.rows[: min(self.seen, self.budget)]


@torch.inference_mode()
def lloyd(sample: np.ndarray, clusters: int, seed: int, starts: int) -> tuple[np.ndarray, float]:
    """Fit centroids (K, D) to frames (T, D), float32, by passes over all frames, each of which is
    mostly a product in bf16. Return the centroids, and their inertia divided by T.

    A pass costs less than a pass of scikit-learn's mini-batches, which need a hundred. The passes
    end when one lowers the inertia by a share of less than MIN_GAIN. A centroid without frames
    stays where it is.
    """
    frames = torch.from_numpy(np.ascontiguousarray(sample, np.float32))
    rng = np.random.default_rng(seed)
    size = min(START_FRAMES * clusters, len(frames))
    sampled = torch.from_numpy(rng.choice(len(frames), size, replace=False))
    start = kmeans_plus_plus(frames[sampled], clusters, rng, starts)
    centroids = frames[sampled[start]].double()
    squared_norms = sum(float(part.double().square().sum()) for part in frames.split(PART))
    best_inertia = np.inf
    for _ in range(MAX_PASSES):
        counts, sums = _sum_by_unit(frames, centroids)
        # the sum of |x - c|^2 is the sum of |x|^2 - 2 x.c + |c|^2
        products = float((centroids * sums).sum())
        squares = float((counts[:, None] * centroids.square()).sum())
        inertia = (squared_norms - 2 * products + squares) / len(frames)
        gain = 1 - inertia / max(best_inertia, 1e-30)
        if gain > 0:
            best_inertia, best = inertia, centroids
        if gain < MIN_GAIN:
            break
        means = sums / counts[:, None].clamp_min(1)
        centroids = torch.where(counts[:, None] > 0, means, centroids)
    return best.float().numpy(), best_inertia


def _sum_by_unit(
    frames: torch.Tensor, centroids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Assign frames (T, D) to centroids (K, D); return the number of frames of each centroid (K,)
    and their sums (K, D) float64."""
    units = torch.from_numpy(Nearest(centroids.float().numpy())(frames))
    counts = torch.bincount(units, minlength=len(centroids))
    sums = torch.zeros_like(centroids)
    for part, part_units in zip(frames.split(PART), units.split(PART), strict=True):
        sums.index_add_(0, part_units, part.double())
    return counts, sums


def kmeans_plus_plus(
    frames: torch.Tensor, clusters: int, rng: np.random.Generator, starts: int
) -> torch.Tensor:
    """Choose K of the frames (T, D), by their numbers (K,): the k-means++ start of least inertia
    among `starts`.

    The algorithm is greedy, as scikit-learn's: each centroid is the best of C = 2 + log K frames,
    which are sampled with probabilities proportional to their squared distances from the nearest
    centroid so far. All starts are computed together, because one large product is faster than
    several small ones.
    """
    frames = frames - frames.mean(0)  # the same distances, with smaller rounding errors
    norms = frames.square().sum(1)
    count, start_numbers = 2 + int(np.log(clusters)), torch.arange(starts)
    first = torch.from_numpy(rng.integers(0, len(frames), starts))
    # (S, T) squared distances from the nearest centroid of each start
    nearest = (norms + norms[first, None] - 2 * frames[first] @ frames.T).clamp_min(0)
    chosen = [first]
    for _ in range(clusters - 1):
        cumulative = nearest.double().cumsum(1)
        shares = torch.from_numpy(rng.random((starts, count)))
        sampled = torch.searchsorted(cumulative, shares * cumulative[:, -1:])
        candidates = sampled.clamp_max(len(frames) - 1)  # (S, C)
        # (S, C, T) squared distances from the nearest centroid if this candidate becomes one
        distances = torch.addmm(norms, frames[candidates.flatten()], frames.T, alpha=-2)
        distances = distances.view(starts, count, -1).add_(norms[candidates][..., None])
        distances = distances.clamp_min_(0)
        torch.minimum(distances, nearest[:, None], out=distances)
        best = distances.sum(2).argmin(1)
        nearest = distances[start_numbers, best].clone()
        chosen.append(candidates[start_numbers, best])
    return torch.stack(chosen)[:, nearest.sum(1).argmin()]
