"""Assigning frames to clusters, and fitting many: speechssl against scikit-learn, in one process,
on the same float32 numbers.

Assignment has equal threads. Fitting is measured in processor time, which other work does not
change.

python recipes/speed/kmeans.py CONFIG EXP
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from common import row, save, settings
from sklearn.cluster import MiniBatchKMeans
from threadpoolctl import threadpool_limits

from speechssl.units.codebook import Codebook
from speechssl.units.kmeans import MOST_STARTS, lloyd

FRAMES = (1_500, 9_000, 90_000)  # of 30 s, 3 min, 30 min
CLUSTERS = (100, 500, 2_000)
WIDTH = 768  # HuBERT-base


def compare(
    frames: Sequence[int] = FRAMES,
    clusters: Sequence[int] = CLUSTERS,
    repeats: int = 7,
    spread: float = 1.0,
) -> list[dict[str, Any]]:
    """One row a size: medians of interleaved repeats. spread: of the frames about the centroids,
    whose own spread is 1."""
    return [row for k in clusters for row in _sizes(k, frames, repeats, spread)]


def _sizes(
    clusters: int, frames: Sequence[int], repeats: int, spread: float
) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(clusters)
    centroids = rng.standard_normal((clusters, WIDTH), np.float32)
    book, model = Codebook(centroids, {}), _estimator(centroids)
    for count in frames:
        features = centroids[rng.integers(0, clusters, count)] + np.float32(
            spread
        ) * rng.standard_normal((count, WIDTH), np.float32)
        tensor = torch.from_numpy(features)
        ours, theirs = book.assign(tensor), model.predict(features)
        seconds = _interleaved(
            repeats, lambda f=tensor: book.assign(f), lambda f=features: model.predict(f)
        )  # type: ignore[misc]
        yield {
            "stage": "kmeans",
            "frames": count,
            "clusters": clusters,
            "threads": torch.get_num_threads(),
            "seconds": seconds[0],
            "seconds_sklearn": seconds[1],
            "ratio_sklearn": seconds[1] / seconds[0],
            "agreement": float((ours == theirs).mean()),
        }


def _estimator(centroids: np.ndarray) -> MiniBatchKMeans:
    """scikit-learn's, with our centroids."""
    with warnings.catch_warnings(action="ignore"):  # there is nothing to fit
        model = MiniBatchKMeans(
            len(centroids), n_init=1, max_iter=1, batch_size=len(centroids)
        ).fit(centroids)
    model.cluster_centers_ = centroids.copy()
    return model


def _interleaved(repeats: int, *contenders: Callable[[], Any]) -> list[float]:
    """Median seconds of each, taken in turns; the machine is not stable."""
    found: list[list[float]] = [[] for _ in contenders]
    with threadpool_limits(torch.get_num_threads()):
        for _ in range(repeats):
            for times, run in zip(found, contenders, strict=True):
                begun = time.perf_counter()
                run()
                times.append(time.perf_counter() - begun)
    return [float(np.median(times)) for times in found]


def speechlike(count: int, seed: int = 0) -> np.ndarray:
    """(T, D) float32: 400 clouds whose variance falls from dimension to dimension, as that of
    features does, turned at random."""
    rng = np.random.default_rng(seed)
    turned = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0].astype(np.float32)
    scale = (1 / np.sqrt(np.arange(1, WIDTH + 1))).astype(np.float32)
    clouds = rng.standard_normal((400, WIDTH), np.float32) * scale
    return (
        clouds[rng.integers(0, 400, count)]
        + 0.7 * rng.standard_normal((count, WIDTH), np.float32) * scale
    ) @ turned


def fit(frames: int, clusters: int, beside: bool) -> dict[str, float]:
    """Processor and wall seconds and inertia of ours; where `beside`, how many times as much
    scikit-learn's mini-batches take."""
    features = speechlike(frames)
    begun, wall = time.process_time(), time.perf_counter()
    _, inertia = lloyd(features, clusters, 0, MOST_STARTS)
    spent, wall = time.process_time() - begun, time.perf_counter() - wall
    found = {"fit_seconds": spent, "fit_wall_seconds": wall, "inertia": inertia}
    if beside:
        hubert = {
            "batch_size": 10_000,
            "max_iter": 100,
            "tol": 0.0,
            "max_no_improvement": 100,
            "reassignment_ratio": 0.0,
        }
        begun = time.process_time()
        with threadpool_limits(torch.get_num_threads()):
            theirs = MiniBatchKMeans(clusters, n_init=MOST_STARTS, random_state=0, **hubert).fit(
                features
            )
        found |= {
            "fit_ratio_sklearn": (time.process_time() - begun) / spent,
            "inertia_over_sklearn": inertia / (theirs.inertia_ / frames),
        }
    return found


def main() -> None:
    step = settings("kmeans")
    sizes = step.values.pop("fits")
    for frames, clusters, beside in sizes:
        condition = f"fit {clusters} clusters of {frames} frames"
        results = fit(frames, clusters, beside)
        save(
            step.exp,
            [
                row("speechssl", "kmeans", condition, metric, value, None, 1)
                for metric, value in results.items()
            ],
        )
    for found in compare(**step.values):
        condition, n = f"{found['frames']} frames, K {found['clusters']}", step.values["repeats"]
        ratio = row(
            "speechssl", "kmeans", condition, "ratio_sklearn", found["ratio_sklearn"], None, n
        )
        save(
            step.exp,
            [
                ratio,
                row(
                    "speechssl",
                    "kmeans",
                    condition,
                    "same_units",
                    100 * found["agreement"],
                    None,
                    n,
                ),
            ],
        )


if __name__ == "__main__":
    main()
