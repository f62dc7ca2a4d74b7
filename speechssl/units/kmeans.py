"""K-means codebooks: fitted by MiniBatch k-means on a frame budget, applied by one matrix product (`nearest.py`).

Letters: T frames, D dimensions, K clusters.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from tqdm import tqdm

from speechssl.artefacts import hash_bytes, read_json, replacing, write_json
from speechssl.errors import InputError
from speechssl.shipped import SHIPPED
from speechssl.units.nearest import Nearest

SUFFIX = ".safetensors"
LATER = ("precision", "padding", "settings")  # keys that cards of older codebooks lack
BUDGET = 300_000  # frames that are kept of all that pass by
STARTS = 20  # fairseq's `n_init`, see `fit_kmeans`
PADDING = "none"  # every utterance is encoded as it is, so that none depends on what it is batched with


@dataclass(frozen=True)
class Codebook:
    """Centroids (K, D) float32 and the card that says what made them.

    The card's `encoder` (hash of the weights, or "mfcc"), `layer` and `frame_rate` decide whether it fits an encoder.
    """

    centroids: np.ndarray
    card: dict[str, Any]
    name: str = "the codebook"  # its file, for messages
    _prepared: dict[torch.device, Nearest] = field(default_factory=dict, repr=False, compare=False)

    @property
    def size(self) -> int:
        return len(self.centroids)

    @property
    def hash(self) -> str:
        return hash_bytes(np.ascontiguousarray(self.centroids, np.float32).tobytes())

    @property
    def names(self) -> tuple[str, ...]:
        """Hashes of the codebooks whose unit k means what it means here: its own, and that of what it was carried over from."""
        before = self.card.get("carried_from")
        return (self.hash, *((before,) if before else ()))

    def assign(self, features: torch.Tensor) -> np.ndarray:
        """(T, D) on any device -> (T,) int64 indices of the nearest centroid, the first of equals; see `nearest.py`.

        Raises ValueError when D differs or a feature is not finite.
        """
        if features.shape[-1] != self.centroids.shape[1]:
            raise ValueError(f"features have {features.shape[-1]} dimensions, the codebook {self.centroids.shape[1]}")
        if features.device not in self._prepared:
            self._prepared[features.device] = Nearest(self.centroids, features.device)
        return self._prepared[features.device](features)

    def save(self, path: Path | str) -> None:
        """Write `x.safetensors` and `x.card.json`."""
        path = Path(path)
        with replacing(path) as temporary:
            save_file({"centroids": np.ascontiguousarray(self.centroids, np.float32)}, temporary)
        write_json(path.with_suffix(".card.json"), self.card | {"K": self.size, "hash": self.hash})


def load_codebook(path: Path | str) -> Codebook:
    """path: a file, or a shipped one by its name, `minisqa-en/units.safetensors`.

    Raises InputError when the file or its card is missing or damaged, or the card is another codebook's.
    """
    shipped = SHIPPED / path
    return _read(shipped if shipped.is_file() else Path(path))


def _read(path: Path) -> Codebook:
    if not path.exists():
        raise InputError(f"cannot read the codebook {path} (there is no such file); check the path")
    try:
        centroids = load_file(path)["centroids"]
    except (OSError, SafetensorError, KeyError) as error:
        raise InputError(f"cannot read the codebook {path} ({error}); fit it again with `speechssl units fit`") from error
    codebook = Codebook(centroids, read_json(path.with_suffix(".card.json")), str(path))
    if codebook.card.get("hash") != codebook.hash:
        raise InputError(f"{path} is not the codebook its card describes; fit it again with `speechssl units fit`")
    return codebook


def check_out(path: Path) -> None:
    """Raises InputError where no codebook could be written by this name: to be known before hours of work, and nothing is made."""
    if path.suffix != SUFFIX:
        raise InputError(f"{path} is no name for a codebook, whose card goes beside it; end it in {SUFFIX}")
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a codebook to write; name a file in it")
    folder = next(p for p in path.absolute().parents if p.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be written, as {folder} is no folder that can be written; name another file")


def made_before(out: Path, wanted: dict[str, Any]) -> Codebook | None:
    """The codebook that is there, if one is. wanted: what its card must say. Raises InputError where it says otherwise."""
    if not (out.is_file() and out.with_suffix(".card.json").is_file()):
        return None
    made = _read(out)
    differing = [k for k, v in wanted.items() if made.card.get(k, v if k in LATER else None) != v]
    if differing:
        raise InputError(f"{out} was made from other inputs ({', '.join(differing)} differ); choose another file or delete it")
    return made


def smooth(features: torch.Tensor, width: int) -> torch.Tensor:
    """(T, D) -> (T, D): mean over `width` neighbouring frames (odd; 1 leaves them alone, edges average fewer).

    A phone lasts several frames; clusters of smoothed features change less often within one and are more alike between voices.
    Raises ValueError for an even width.
    """
    if width < 1 or width % 2 == 0:
        raise ValueError(f"smoothing takes an odd number of frames, not {width}")
    if width == 1:
        return features
    pooled = torch.nn.functional.avg_pool1d(features.T[None], width, 1, width // 2, count_include_pad=False)
    return pooled[0].T


def smooth_stream(pieces: Iterable[torch.Tensor], width: int) -> Iterator[torch.Tensor]:
    """`smooth` of pieces (T_i, D) of one sequence, to the bit, as they come: a frame waits for its `width` // 2 successors."""
    half, held, seen = width // 2, None, 0
    for piece in pieces:
        held = piece if held is None else torch.cat([held, piece])
        ready = len(held) - half  # frames of `held`, of which `seen` are only there as neighbours
        if ready > seen:
            yield smooth(held, width)[seen:ready]
            held, seen = held[max(ready - half, 0) :], min(ready, half)
    if held is not None and len(held) > seen:
        yield smooth(held, width)[seen:]


class Reservoir:
    """A uniform sample of at most `budget` frames of a stream (algorithm R). It does not depend on how the stream is cut."""

    def __init__(self, budget: int, seed: int) -> None:
        self.budget, self.rng, self.seen = budget, np.random.default_rng(seed), 0
        self.rows: np.ndarray | None = None

    def add(self, frames: np.ndarray) -> None:
        """frames: (T, D)."""
        free = min(max(self.budget - self.seen, 0), len(frames))
        rows = self._room(self.seen + free, frames.shape[1])
        rows[self.seen : self.seen + free] = frames[:free]
        late = frames[free:]
        slots = self.rng.integers(0, np.arange(self.seen + free + 1, self.seen + len(frames) + 1), endpoint=False)
        kept = np.flatnonzero(slots < self.budget)[::-1]  # of those drawn to one slot the last one stays: it comes first here
        taken, first = np.unique(slots[kept], return_index=True)
        rows[taken] = late[kept[first]]
        self.seen += len(frames)

    def _room(self, size: int, width: int) -> np.ndarray:
        """The rows, at least min(size, budget) of them: they double as frames arrive, so that a budget takes none by itself."""
        there = 0 if self.rows is None else len(self.rows)
        if self.rows is None or there < min(size, self.budget):
            grown = np.empty((min(max(size, 2 * there, 1024), self.budget), width), np.float32)
            if self.rows is not None:
                grown[:there] = self.rows
            self.rows = grown
        return self.rows

    @property
    def sample(self) -> np.ndarray:
        if self.rows is None:
            raise ValueError("no frames were added")
        return self.rows[: min(self.seen, self.budget)]


def fit_kmeans(
    features: Iterable[np.ndarray],
    clusters: int,
    card: dict[str, Any],
    budget: int = BUDGET,
    seed: int = 0,
    starts: int = STARTS,
) -> Codebook:
    """Fit on a uniform sample of at most `budget` frames of a stream of (T, D) arrays; the best of `starts` k-means++ starts.

    Settings of HuBERT (arXiv 2106.07447, section IV-A; examples/hubert/simple_kmeans/learn_kmeans.py of fairseq): mini-batches of
    10,000 frames, at most 100 passes, no tolerance, an end after 100 batches without improvement, no reassignment, 20 starts.
    Different here: fairseq holds all frames of the recordings drawn, and its starts and batches are not decided by the seed alone.
    Raises InputError for fewer frames than clusters.
    """
    from sklearn.cluster import MiniBatchKMeans

    reservoir = Reservoir(budget, seed)
    for frames in features:
        reservoir.add(np.asarray(frames, np.float32))
    sample = reservoir.sample
    if len(sample) < clusters:
        what = "more recordings" if reservoir.seen <= budget else "a larger --budget"
        raise InputError(f"{len(sample)} frames of speech cannot make {clusters} clusters; give fewer --clusters or {what}")
    tqdm.write(f"k-means: {clusters} clusters of {len(sample)} frames (of {reservoir.seen} seen)", file=sys.stderr)
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
    made: dict[str, Any] = {"frames": int(reservoir.seen), "budget": budget, "seed": seed, "starts": starts}
    made["inertia"] = float(model.inertia_ / len(sample))
    return Codebook(model.cluster_centers_.astype(np.float32), card | made | {"padding": PADDING, "versions": versions()})


def versions() -> dict[str, str]:
    """Of what a codebook depends on."""
    return {name: version(name) for name in ("speechssl", "torch", "scikit-learn", "numpy")}
