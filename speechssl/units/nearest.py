"""The nearest centroid of every frame, by one product.

|x - c|^2 is smallest where the score x.c - |c|^2 / 2 is largest, so assignment is a product, a bias and an argmax; no distances
are formed. The middle of the centroids is taken off them first: it adds the same to all scores of a frame. What rounding may do
to a score is known: the product of bf16 numbers is off by at most 2^-7 |x| |c|, that of float32 by D 2^-24 |x| |c|. So bf16, where
the processor has it, settles the frames whose best centroid is ahead by more than that (nine in ten, of speech); float32 most of
the rest; and what is closer still is decided by true distances in float64. The answer is the argmin of the distances: the same
for any number of frames in a call, of threads, on any machine. Letters: T frames, D dimensions, K clusters, B frames of a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

CACHED = 1 << 18  # scores of a block: one megabyte, which stays in the second-level cache
EXACT = 1 << 20  # numbers that are taken to float64 at a time
HALF = 2.0**-8  # what rounding to bf16 may do, relatively
LOOSE = {"tf32": 2.0**-11, "bf16": HALF}  # the same, of a float32 product where torch was told to be that loose
Pairs = tuple[np.ndarray, np.ndarray]  # frames and units, (C,) each, in order of the frames


class Nearest:
    """Finds the nearest of the centroids (K, D) on one device; prepared once, used for every call."""

    def __init__(self, centroids: np.ndarray, device: torch.device | str = "cpu") -> None:
        self.device, self.centroids = torch.device(device), np.ascontiguousarray(centroids, np.float32)
        self.products = [Product.of(self.centroids, self.device, dtype) for dtype in _dtypes(self.device)]

    def __reduce__(self) -> tuple[type[Nearest], tuple[np.ndarray, str]]:
        return Nearest, (self.centroids, str(self.device))  # packed weights cannot be pickled

    @torch.inference_mode()
    def __call__(self, features: torch.Tensor) -> np.ndarray:
        """(T, D) float -> (T,) int64. Raises ValueError for features that are not finite."""
        features = features.detach().to(self.device, torch.float32)
        norms = torch.linalg.vector_norm(features, dim=1)
        if not bool(norms.isfinite().all()):
            raise ValueError("the features hold numbers that are not finite (NaN or infinity)")
        found, rest = np.zeros(len(features), np.int64), np.arange(len(features))
        for product in self.products:
            here = torch.from_numpy(rest).to(self.device)
            frames, units = (
                product.candidates(features[here], norms[here]) if len(rest) < len(found) else product.candidates(features, norms)
            )
            found[rest[frames]] = units  # that is it, where there is one
            doubtful = np.bincount(frames, minlength=len(rest)) > 1
            kept, rest = doubtful[frames], rest[doubtful]
            frames, units = (np.cumsum(doubtful) - 1)[frames[kept]], units[kept]
            if not len(rest):
                return found
        found[rest] = self._decide(features[torch.from_numpy(rest).to(self.device)].cpu().numpy(), frames, units)
        return found

    def _decide(self, features: np.ndarray, frames: np.ndarray, units: np.ndarray) -> np.ndarray:
        """(B, D) -> (B,): of each frame's candidates the nearest, the first of equals."""
        size = max(EXACT // features.shape[1], 1)
        parts = [slice(at, at + size) for at in range(0, len(frames), size)]
        pairs = ((features[frames[p]].astype(np.float64), self.centroids[units[p]].astype(np.float64)) for p in parts)
        distances = np.concatenate([np.square(x - c).sum(1) for x, c in pairs])
        firsts = np.searchsorted(frames, np.arange(len(features)))
        nearest = np.flatnonzero(distances == np.minimum.reduceat(distances, firsts)[frames])
        return units[nearest[np.searchsorted(nearest, firsts)]]


def _dtypes(device: torch.device) -> list[torch.dtype]:
    """The products to be tried, one after the other."""
    half = device.type == "cpu" and torch.backends.mkldnn.is_available() and torch.cpu._is_avx512_bf16_supported()
    return [torch.bfloat16, torch.float32] if half else [torch.float32]


@dataclass(frozen=True)
class Product:
    """Scores of features against centroids, and how far off they may be."""

    weight: torch.Tensor  # the centred centroids, as the product wants them
    bias: torch.Tensor  # (K,) float32
    dtype: torch.dtype  # of the product
    packed: bool  # by oneDNN: twice as fast as MKL on AMD, alike on Intel
    block: int  # B
    reach: float  # |c| of the centred centroid that is farthest out
    offset: float  # what rounding may do to the biases

    @classmethod
    def of(cls, centroids: np.ndarray, device: torch.device, dtype: torch.dtype) -> Product:
        exact = centroids.astype(np.float64)
        middle = exact.mean(0)
        centred = torch.from_numpy(exact - middle)
        biases = np.square(exact - middle).sum(1) / 2 + (exact - middle) @ middle  # x.c' - bias = (x - m).c' - |c'|^2 / 2
        reach, offset = float(centred.norm(dim=1).max()), float(np.abs(biases).max()) * 2.0**-23 + exact.shape[1] * 2.0**-120
        block = int(np.clip(CACHED // len(centred), 64, 1024)) if device.type == "cpu" else 1 << 15
        packed = device.type == "cpu" and torch.backends.mkldnn.is_available()
        weight = centred.to(device, dtype)
        weight = torch.ops.mkldnn._reorder_linear_weight(weight, block) if packed else weight
        return cls(weight, torch.from_numpy(-biases).to(device, torch.float32), dtype, packed, block, reach, offset)

    def candidates(self, features: torch.Tensor, norms: torch.Tensor) -> Pairs:
        """Every frame with every unit that could be its nearest. features: (T, D); norms: (T,), their lengths."""
        slack = self._relative(features.shape[1]) * self.reach * norms + self.offset
        blocks = zip(features.split(self.block), slack.split(self.block), strict=True)
        found = [self._candidates(*block) for block in blocks]
        frames = [number * self.block + part for number, (part, _) in enumerate(found)]
        return np.concatenate(frames), np.concatenate([units for _, units in found])

    def _relative(self, width: int) -> float:
        """How far off a score may be, for |x| |c| = 1: by rounding the inputs, and by summing in float32."""
        setting = torch.backends.mkldnn if self.bias.device.type == "cpu" else torch.backends.cuda
        rounding = HALF if self.dtype == torch.bfloat16 else LOOSE.get(setting.matmul.fp32_precision, 0.0)
        return 2 * rounding + rounding**2 + width * 2.0**-23

    def _candidates(self, features: torch.Tensor, slack: torch.Tensor) -> Pairs:
        scores = self._scores(features).float()
        best = scores.amax(1)
        if self.dtype == torch.bfloat16:  # the scores themselves are rounded
            slack = slack + HALF * (best.abs() + slack)
        return _at_least(scores, best - 2.1 * slack)

    def _scores(self, features: torch.Tensor) -> torch.Tensor:
        """(B, K)."""
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise(features.to(self.dtype), self.weight, self.bias, "none", [], "")
        return torch.addmm(self.bias, features, self.weight.T)


def _at_least(scores: torch.Tensor, least: torch.Tensor) -> Pairs:
    """Rows and columns, in order, of the scores (B, K) that are not below their row's `least` (B,)."""
    if scores.device.type == "cpu":  # numpy is five times as fast as torch at this
        places = np.flatnonzero(scores.numpy() >= least.numpy()[:, None])
        return places // scores.shape[1], places % scores.shape[1]
    rows, columns = (scores >= least[:, None]).nonzero(as_tuple=True)
    return rows.cpu().numpy(), columns.cpu().numpy()
