"""The nearest centroid of every frame, by one product.

|x - c|^2 is smallest where the score x.c - |c|^2 / 2 is largest, so assignment is a product, a bias and an argmax; no distances
are formed. The middle of the centroids is taken off them first: it adds the same to all scores of a frame. A float32 score is off
by at most about D 2^-24 |x| |c|; frames whose best centroids are closer together than that are decided by their true distances
in float64. So the answer is the argmin of the distances: the same for any number of frames in a call, of threads, on any machine.
Letters: T frames, D dimensions, K clusters, B frames of a block.
"""

from __future__ import annotations

import numpy as np
import torch

CACHED = 1 << 18  # scores of a block: one megabyte, which stays in the second-level cache
EXACT = 1 << 20  # numbers that are taken to float64 at a time
ROUNDING = {"tf32": 2.0**-11, "bf16": 2.0**-8}  # of the inputs of a float32 product where torch was told to be that loose


class Nearest:
    """Finds the nearest of the centroids (K, D) on one device; prepared once, used for every call."""

    def __init__(self, centroids: np.ndarray, device: torch.device | str = "cpu") -> None:
        self.device, self.centroids = torch.device(device), np.ascontiguousarray(centroids, np.float32)
        exact = self.centroids.astype(np.float64)
        middle = exact.mean(0)
        centred = torch.from_numpy((exact - middle).astype(np.float32))
        biases = np.square(exact - middle).sum(1) / 2 + (exact - middle) @ middle  # x.c' - bias = (x - m).c' - |c'|^2 / 2
        self.bias = torch.from_numpy(-biases.astype(np.float32)).to(self.device)
        self.reach = float(centred.norm(dim=1).max())
        self.offset = float(np.abs(biases).max()) * 2.0**-23
        self.block = int(np.clip(CACHED // len(centred), 64, 1024)) if self.device.type == "cpu" else 1 << 15
        self.packed = self.device.type == "cpu" and torch.backends.mkldnn.is_available()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(centred, self.block) if self.packed else centred.to(self.device)

    def __reduce__(self) -> tuple[type[Nearest], tuple[np.ndarray, str]]:
        return Nearest, (self.centroids, str(self.device))  # packed weights cannot be pickled

    @torch.inference_mode()
    def __call__(self, features: torch.Tensor) -> np.ndarray:
        """(T, D) float -> (T,) int64. Raises ValueError for features that are not finite."""
        features = features.detach().to(self.device, torch.float32)
        norms = torch.linalg.vector_norm(features, dim=1)
        if not bool(norms.isfinite().all()):
            raise ValueError("the features hold numbers that are not finite (NaN or infinity)")
        slack = (features.shape[1] * 2.0**-24 + 2 * self._rounding()) * self.reach * norms + self.offset
        blocks = zip(features.split(self.block), slack.split(self.block), strict=True)
        return np.concatenate([np.zeros(0, np.int64), *(self._block(*block) for block in blocks)])

    def _block(self, features: torch.Tensor, slack: torch.Tensor) -> np.ndarray:
        """(B, D) float32 -> (B,) int64. slack: (B,), what a frame's scores may be off by."""
        scores = self._scores(features)
        rows, units = _close(scores, scores.amax(1) - 2.1 * slack)
        if len(rows) == len(features):  # every frame has one candidate
            return units
        return self._decide(features, rows, units)

    def _scores(self, features: torch.Tensor) -> torch.Tensor:
        """(B, K)."""
        if self.packed:  # oneDNN: twice as fast as MKL on AMD, alike on Intel
            return torch.ops.mkldnn._linear_pointwise(features, self.weight, self.bias, "none", [], "")
        return torch.addmm(self.bias, features, self.weight.T)

    def _rounding(self) -> float:
        """What torch may do to the inputs of a float32 product, by its global setting."""
        if self.device.type == "cpu":
            return ROUNDING.get(torch.backends.mkldnn.matmul.fp32_precision, 0.0)
        return ROUNDING.get(torch.backends.cuda.matmul.fp32_precision, 0.0)

    def _decide(self, features: torch.Tensor, rows: np.ndarray, units: np.ndarray) -> np.ndarray:
        """The nearest of each frame's candidates (the first of equals). rows, units: (C,), in order of the frames."""
        starts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
        counts = np.diff(np.r_[starts, len(rows)])
        nearest = units[starts].copy()
        doubtful = counts > 1
        chosen = np.flatnonzero(np.repeat(doubtful, counts))
        distances = self._distances(features, rows[chosen], units[chosen])
        firsts = np.r_[0, np.cumsum(counts[doubtful])[:-1]]
        least = np.minimum.reduceat(distances, firsts)
        at_least = np.flatnonzero(distances == np.repeat(least, counts[doubtful]))
        nearest[doubtful] = units[chosen[at_least[np.searchsorted(at_least, firsts)]]]
        return nearest

    def _distances(self, features: torch.Tensor, rows: np.ndarray, units: np.ndarray) -> np.ndarray:
        """(C,) float64 squared distances of frames `rows` from centroids `units`."""
        there, size = features[torch.from_numpy(np.unique(rows)).to(self.device)].cpu().numpy(), max(EXACT // features.shape[1], 1)
        place = np.searchsorted(np.unique(rows), rows)
        parts = [slice(at, at + size) for at in range(0, len(rows), size)]
        pairs = ((there[place[p]].astype(np.float64), self.centroids[units[p]].astype(np.float64)) for p in parts)
        return np.concatenate([np.square(x - c).sum(1) for x, c in pairs])


def _close(scores: torch.Tensor, least: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns, in order, of the scores (B, K) that are not below their row's `least` (B,)."""
    if scores.device.type == "cpu":  # numpy is five times as fast as torch at this
        return np.divmod(np.flatnonzero(scores.numpy() >= least.numpy()[:, None]), scores.shape[1])  # type: ignore[return-value]
    rows, units = (scores >= least[:, None]).nonzero(as_tuple=True)
    return rows.cpu().numpy(), units.cpu().numpy()
