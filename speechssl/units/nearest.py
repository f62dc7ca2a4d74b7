"""Frames find their nearest centroids by one matrix product, exactly.

|x - c|^2 is smallest where the score x.c - |c|^2 / 2 is largest, so assignment is a product, a bias
and an argmax. The middle of the centroids is taken off them first: it adds the same to all scores
of a frame. What rounding may do to a score is known: the product of bf16 numbers is off by at most
2^-6 |x| |c|, that of float32 by D 2^-24 |x| |c|. So bf16, where the processor has it, settles the
frames whose best centroid is ahead by more than that (nine in ten, of speech); float32 most of the
rest; and what is closer still is decided by true distances in float64. The answer is the argmin of
the distances: the same for any number of frames in a call, of threads, on any machine.

Letters: T frames, D dimensions, K clusters, B frames of a block, C candidates (frame, unit).
"""

from __future__ import annotations

import numpy as np
import torch

from speechssl.encoders.engines import cpu_capabilities

CACHED = 1 << 18  # scores of a block: one megabyte, which stays in the second-level cache
EXACT = 1 << 20  # numbers that are taken to float64 at a time
HALF = 2.0**-8  # what rounding to bf16 may do, relatively
# the same, of a float32 product where torch is allowed that error
LOOSE = {"tf32": 2.0**-11, "bf16": HALF}
Candidates = tuple[np.ndarray, np.ndarray]  # frames and units, (C,) each, in order of the frames


class Nearest:
    """It finds the nearest of the centroids (K, D) on one device: prepared once, used for every
    call. With offsets (K,) that is the centroid of the largest score x.c + offset."""

    def __init__(
        self,
        centroids: np.ndarray,
        device: torch.device | str = "cpu",
        offsets: np.ndarray | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.centroids = np.ascontiguousarray(centroids, np.float32)
        self.offsets = offsets
        self.products = [CentroidScores(self.centroids, self.device, torch.float32, offsets)]
        if self.device.type == "cpu" and cpu_capabilities().get("avx512_bf16"):
            half = CentroidScores(self.centroids, self.device, torch.bfloat16, offsets)
            self.products.insert(0, half)

    @torch.inference_mode()
    def __call__(self, features: torch.Tensor) -> np.ndarray:
        """Assign (T, D) float -> (T,) int64. Raises ValueError for features that are not finite."""
        features = features.detach().to(self.device, torch.float32)
        norms = torch.linalg.vector_norm(features, dim=1)
        if not bool(norms.isfinite().all()):
            raise ValueError("the features hold numbers that are not finite (NaN or infinity)")
        nearest = np.zeros(len(features), np.int64)
        rest = np.arange(len(features))  # frames that are not decided
        for product in self.products:
            frames, units = product.find_candidates(features, norms)
            nearest[rest[frames]] = units  # that is it, where there is one
            doubtful = np.bincount(frames, minlength=len(rest)) > 1
            undecided = doubtful[frames]
            places = np.cumsum(doubtful) - 1  # of the doubtful frames among themselves
            frames, units = places[frames[undecided]], units[undecided]
            rest = rest[doubtful]
            if not len(rest):
                return nearest
            left = torch.from_numpy(doubtful).to(self.device)
            features, norms = features[left], norms[left]
        nearest[rest] = self._decide(features.cpu().numpy(), frames, units)
        return nearest

    def _decide(self, features: np.ndarray, frames: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Choose the nearest of each frame's candidates in float64, the first of equals.

        features: (T, D); frames, units: (C,), frames in order; the answer is (T,).
        """
        size = max(EXACT // features.shape[1], 1)
        parts = []
        for at in range(0, len(frames), size):
            part_units = units[at : at + size]
            x = features[frames[at : at + size]].astype(np.float64)
            c = self.centroids[part_units].astype(np.float64)
            if self.offsets is None:
                parts.append(np.square(x - c).sum(1))
            else:
                parts.append(-(x * c).sum(1) - self.offsets[part_units])
        distances = np.concatenate(parts)
        firsts = np.searchsorted(frames, np.arange(len(features)))
        nearest = np.flatnonzero(distances == np.minimum.reduceat(distances, firsts)[frames])
        return units[nearest[np.searchsorted(nearest, firsts)]]


class CentroidScores:
    """Scores features against centroids, and knows how far off the scores may be. dtype: of the
    product."""

    def __init__(
        self,
        centroids: np.ndarray,
        device: torch.device,
        dtype: torch.dtype,
        offsets: np.ndarray | None = None,
    ) -> None:
        exact = centroids.astype(np.float64)
        middle = exact.mean(0)
        centred = exact - middle
        # x.c' - bias = (x - m).c' - |c'|^2 / 2
        biases = np.square(centred).sum(1) / 2 + centred @ middle
        if offsets is not None:
            biases = -offsets.astype(np.float64)
        on_cpu = device.type == "cpu"
        self.dtype = dtype
        self.block = int(np.clip(CACHED // len(centred), 64, 1024)) if on_cpu else 1 << 15
        self.weight = torch.from_numpy(centred).to(device, dtype)
        self.bias = torch.from_numpy(-biases).to(device, torch.float32)
        # |c| of the centred centroid that is farthest out
        self.reach = float(torch.from_numpy(centred).norm(dim=1).max())
        # what rounding may do to the biases
        self.offset = float(np.abs(biases).max()) * 2.0**-23 + exact.shape[1] * 2.0**-120

    def _relative_error(self, dimensions: int) -> float:
        """Bound how far off a score may be, for |x| |c| = 1, by rounding the inputs (and a product
        of bf16) and by summing in float32."""
        setting = torch.backends.mkldnn if self.bias.device.type == "cpu" else torch.backends.cuda
        # torch before 2.9 has one for all devices
        allowed = getattr(getattr(setting, "matmul", None), "fp32_precision", None)
        if not allowed:
            precision = torch.get_float32_matmul_precision()
            allowed = {"high": "tf32", "medium": "bf16"}.get(precision, "")
        rounding = HALF if self.dtype == torch.bfloat16 else LOOSE.get(allowed, 0.0)
        rounded = 3 if self.dtype == torch.bfloat16 else 2
        return rounded * rounding + 3 * rounding**2 + dimensions * 2.0**-23

    def find_candidates(self, features: torch.Tensor, norms: torch.Tensor) -> Candidates:
        """Pair every frame with every unit that could be its nearest. features: (T, D); norms:
        (T,), their lengths."""
        slack = self._relative_error(features.shape[1]) * self.reach * norms + self.offset
        parts = zip(features.split(self.block), slack.split(self.block), strict=True)
        blocks: list[Candidates] = []
        for number, (rows, wide) in enumerate(parts):
            scores = self._score(rows)
            least = scores.amax(1) - 2.1 * wide
            if scores.device.type == "cpu":  # numpy is five times as fast as torch at this
                places = np.flatnonzero(scores.numpy() >= least.numpy()[:, None])
                frames, units = places // scores.shape[1], places % scores.shape[1]
            else:
                found = (scores >= least[:, None]).nonzero().cpu().numpy()
                frames, units = found[:, 0], found[:, 1]
            blocks.append((number * self.block + frames, units))
        frames, units = zip(*blocks, strict=True)
        return np.concatenate(frames), np.concatenate(units)

    def _score(self, features: torch.Tensor) -> torch.Tensor:
        """Return the scores (B, K) of features (B, D)."""
        if self.dtype == torch.bfloat16:
            return self.bias + (features.to(self.dtype) @ self.weight.T).float()
        return torch.addmm(self.bias, features, self.weight.T)
