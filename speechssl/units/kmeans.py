"""Codebooks are fitted by MiniBatch k-means on a frame budget, and applied by one matrix product.

|x - c|^2 is smallest where the score x.c - |c|^2 / 2 is largest, so assignment is a product, a bias
and an argmax. The middle of the centroids is taken off them first: it adds the same to all scores
of a frame. What rounding may do to a score is known: the product of bf16 numbers is off by at most
2^-7 |x| |c|, that of float32 by D 2^-24 |x| |c|. So bf16, where the processor has it, settles the
frames whose best centroid is ahead by more than that (nine in ten, of speech); float32 most of the
rest; and what is closer still is decided by true distances in float64. The answer is the argmin of
the distances: the same for any number of frames in a call, of threads, on any machine.

Letters: T frames, D dimensions, K clusters, B frames of a block, C candidates (frame, unit).
"""

from __future__ import annotations

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

from speechssl.artifacts import hash_bytes, read_json, replacing, say_what_differs, write_json
from speechssl.checkpoints import SHIPPED, checkpoint_folder
from speechssl.encoders.hubert import has_onednn
from speechssl.errors import InputError
from speechssl.schema import convert
from speechssl.units.options import BUDGET, STARTS

CACHED = 1 << 18  # scores of a block: one megabyte, which stays in the second-level cache
EXACT = 1 << 20  # numbers that are taken to float64 at a time
HALF = 2.0**-8  # what rounding to bf16 may do, relatively
# the same, of a float32 product where torch is allowed that error
LOOSE = {"tf32": 2.0**-11, "bf16": HALF}
Candidates = tuple[np.ndarray, np.ndarray]  # frames and units, (C,) each, in order of the frames


class Nearest:
    """Finds the nearest of the centroids (K, D) on one device; prepared once, used for every
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
        on_cpu = self.device.type == "cpu"
        if on_cpu and has_onednn() and torch.cpu._is_avx512_bf16_supported():
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
        self.packed = on_cpu and has_onednn()  # twice as fast as MKL on AMD, alike on Intel
        if self.packed:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight, self.block)
        self.bias = torch.from_numpy(-biases).to(device, torch.float32)
        # |c| of the centred centroid that is farthest out
        self.reach = float(torch.from_numpy(centred).norm(dim=1).max())
        # what rounding may do to the biases
        self.offset = float(np.abs(biases).max()) * 2.0**-23 + exact.shape[1] * 2.0**-120

    def _relative_error(self, dimensions: int) -> float:
        """Bound how far off a score may be, for |x| |c| = 1, by rounding the inputs and by summing
        in float32."""
        setting = torch.backends.mkldnn if self.bias.device.type == "cpu" else torch.backends.cuda
        # torch before 2.9 has one for all devices
        allowed = getattr(getattr(setting, "matmul", None), "fp32_precision", None)
        if not allowed:
            precision = torch.get_float32_matmul_precision()
            allowed = {"high": "tf32", "medium": "bf16"}.get(precision, "")
        rounding = HALF if self.dtype == torch.bfloat16 else LOOSE.get(allowed, 0.0)
        return 2 * rounding + rounding**2 + dimensions * 2.0**-23

    def find_candidates(self, features: torch.Tensor, norms: torch.Tensor) -> Candidates:
        """Pair every frame with every unit that could be its nearest. features: (T, D); norms:
        (T,), their lengths."""
        slack = self._relative_error(features.shape[1]) * self.reach * norms + self.offset
        parts = zip(features.split(self.block), slack.split(self.block), strict=True)
        blocks: list[Candidates] = []
        for number, (rows, wide) in enumerate(parts):
            scores = self._score(rows).float()
            best = scores.amax(1)
            if self.dtype == torch.bfloat16:  # the scores themselves are rounded
                wide = wide + HALF * (best.abs() + wide)
            least = best - 2.1 * wide
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
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise(
                features.to(self.dtype), self.weight, self.bias, "none", [], ""
            )
        return torch.addmm(self.bias, features, self.weight.T)


SUFFIX = ".safetensors"
# clusters from which on all frames are passed over; the published sizes, 50 to 500, keep the
# published algorithm
MANY = 1_000
MOST_STARTS = 3  # that are tried for so many clusters, whose inertia hardly depends on the start
# frames a cluster that a start is drawn from: with 3 the inertia was 1.6 % above scikit-learn's,
# with 10 0.3 %
START_FRAMES = 10
PASSES, ENOUGH = 40, 2e-4  # at most, and the relative gain that is worth another one
PART = 1 << 14  # frames that are taken to float64 at a time
# every utterance is encoded as it is, so that none depends on what it is batched with
PADDING = "none"


@dataclass(frozen=True)
class Codebook:
    """A codebook is centroids (K, D) float32, and the card that says what made them.

    The card's `encoder` (hash of the weights, "mfcc" or "fbank"), `layer` and `frame_rate` decide
    whether it fits an encoder.
    """

    centroids: np.ndarray
    card: dict[str, Any]
    name: str = "the codebook"  # its file, for messages
    # (K,) of a learned codebook: unit k has the score centroids[k] x + offsets[k]
    offsets: np.ndarray | None = None
    _nearest: dict[torch.device, Nearest] = field(default_factory=dict, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"Codebook({self.name}: {self.size} units of layer {self.card.get('layer')})"

    @property
    def size(self) -> int:
        return len(self.centroids)

    @property
    def hash(self) -> str:
        arrays = [self.centroids] if self.offsets is None else [self.centroids, self.offsets]
        return hash_bytes(*(np.ascontiguousarray(x, np.float32).tobytes() for x in arrays))

    @property
    def names(self) -> tuple[str, ...]:
        """The hashes of the codebooks whose unit k means what it means here: its own comes first,
        then all it was transferred from."""
        if "carried_from" not in self.card:
            return (self.hash,)
        return (self.hash, self.card["carried_from"], *self.card.get("transferred_through", ()))

    @property
    def lineage(self) -> dict[str, Any]:
        """The part of a card that says that unit k of another codebook means what it means here."""
        card: dict[str, Any] = {"carried_from": self.hash}
        if self.names[1:]:
            card["transferred_through"] = list(self.names[1:])
        return card

    def assign(self, features: torch.Tensor) -> np.ndarray:
        """Assign (T, D) on any device -> (T,) int64, the index of the nearest centroid, or of the
        largest score; the first of equals.

        Raises ValueError when D differs or a feature is not finite.
        """
        if features.shape[-1] != self.centroids.shape[1]:
            raise ValueError(
                f"features have {features.shape[-1]} dimensions, the codebook "
                f"{self.centroids.shape[1]}"
            )
        if features.device not in self._nearest:
            self._nearest[features.device] = Nearest(self.centroids, features.device, self.offsets)
        return self._nearest[features.device](features)

    def save(self, path: Path | str) -> None:
        """Write `x.safetensors` and `x.card.json`."""
        path = Path(path)
        arrays = {"centroids": np.ascontiguousarray(self.centroids, np.float32)}
        if self.offsets is not None:
            arrays["offsets"] = np.ascontiguousarray(self.offsets, np.float32)
        with replacing(path) as temporary:
            save_file(arrays, temporary)
        write_json(path.with_suffix(".card.json"), self.card | {"K": self.size, "hash": self.hash})


@dataclass(frozen=True)
class CodebookCard:
    """What is read of the card of a codebook."""

    hash: str
    encoder: str | None = None
    layer: int = 0
    smooth: int = 1
    margin: int = 0
    frame_rate: float = 50.0
    precision: str = "fp32"


def load_codebook(path: Path | str) -> Codebook:
    """Load a codebook from a file, a shipped one by its name (`people-en/units.safetensors`), a
    folder of models, or OWNER/NAME of the hub.

    Raises InputError when the file or its card is missing or damaged, or the card is another
    codebook's.
    """
    shipped = SHIPPED / path
    if shipped.is_file() or Path(path).is_file() or Path(path).suffix == SUFFIX:
        return _read(shipped if shipped.is_file() else Path(path))
    if Path(path).is_dir():
        folder = Path(path)
    elif shipped.is_dir():
        folder = shipped
    else:
        folder = checkpoint_folder(path, "codebook")
    files = sorted(folder.glob(f"*{SUFFIX}"))
    files = [file for file in files if file.with_suffix(".card.json").is_file()]
    candidates = [file for file in files if file.stem == "units"] or files
    if len(candidates) != 1:
        names = ", ".join(file.name for file in candidates[:3])
        raise InputError(
            f"{folder} has {'the codebooks ' + names if names else 'no codebook'}; give the "
            f"{SUFFIX} file of `speechssl units fit`, with its .card.json beside it"
        )
    return _read(candidates[0])


def _read(path: Path) -> Codebook:
    card_file = path.with_suffix(".card.json")
    remedy = "fit it again with `speechssl units fit`"
    try:
        arrays = load_file(path)
        centroids = arrays["centroids"]
        if centroids.ndim != 2 or not len(centroids):
            raise ValueError(f"its centroids have the shape {centroids.shape}, not (K, D)")
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        others = ", ".join(sorted(file.name for file in path.parent.glob(f"*{SUFFIX}"))[:3])
        beside = f"; beside it: {others}" if others and not path.exists() else ""
        raise InputError(
            f"cannot read the codebook {path} ({error}); check the path, or {remedy}{beside}"
        ) from error
    card = read_json(card_file)
    codebook = Codebook(centroids, card, str(path), arrays.get("offsets"))
    if convert(dict(card), CodebookCard, card_file, remedy).hash != codebook.hash:
        raise InputError(f"{path} does not match its card; {remedy}")
    return codebook


def check_out(path: Path) -> None:
    """Raise InputError where no codebook could be written by this name: to be known before hours of
    work."""
    if path.suffix != SUFFIX or path.is_dir():
        raise InputError(f"the codebook {path} must be a file named *{SUFFIX}; rename it")


def load_existing(out: Path, facts: dict[str, Any]) -> Codebook | None:
    """Load the codebook that is there, if one is. facts: the entries its card must have. Raises
    InputError where it says otherwise."""
    if not (out.is_file() and out.with_suffix(".card.json").is_file()):
        return None
    codebook = _read(out)
    differing = [k for k, v in facts.items() if codebook.card.get(k) != v]
    if differing:
        raise InputError(
            f"{out} was made from other inputs ({say_what_differs(differing)}); choose "
            "another file or delete it"
        )
    return codebook


def smooth(features: torch.Tensor, width: int) -> torch.Tensor:
    """Average (T, D) -> (T, D) over `width` neighbouring frames (odd; 1 leaves them alone, edges
    average fewer).

    A phone lasts several frames; clusters of smoothed features change less often within one and are
    more alike between voices.
    """
    if width == 1:
        return features
    pooled = torch.nn.functional.avg_pool1d(
        features.T[None], width, 1, width // 2, count_include_pad=False
    )
    return pooled[0].T


def smooth_stream(pieces: Iterable[torch.Tensor], width: int) -> Iterator[torch.Tensor]:
    """Apply `smooth` to pieces (T_i, D) of one sequence, to the bit, as they come: a frame waits
    for its `width` // 2 successors."""
    half = width // 2
    buffer, seen = None, 0
    for piece in pieces:
        buffer = piece if buffer is None else torch.cat([buffer, piece])
        # frames of `buffer`, of which `seen` are only there as neighbours
        ready = len(buffer) - half
        if ready > seen:
            yield smooth(buffer, width)[seen:ready]
            buffer, seen = buffer[max(ready - half, 0) :], min(ready, half)
    if buffer is not None and len(buffer) > seen:
        yield smooth(buffer, width)[seen:]


class Reservoir:
    """Keeps a uniform sample of at most `budget` frames of a stream (algorithm R). It does not
    depend on how the stream is cut."""

    def __init__(self, budget: int, seed: int) -> None:
        self.budget, self.seen = budget, 0
        self.rng = np.random.default_rng(seed)
        self.rows = np.empty((0, 0), np.float32)

    def add(self, frames: np.ndarray) -> None:
        """Add frames (T, D) of the stream."""
        free = min(max(self.budget - self.seen, 0), len(frames))
        needed = min(self.seen + free, self.budget)
        if len(self.rows) < needed:  # double: a budget takes no memory by itself
            size = min(max(needed, 2 * len(self.rows)), self.budget)
            grown = np.empty((size, frames.shape[1]), np.float32)
            if self.seen:
                grown[: len(self.rows)] = self.rows
            self.rows = grown
        self.rows[self.seen : self.seen + free] = frames[:free]
        late = frames[free:]
        # frame n of the stream goes to one of n slots, and stays if that is in the sample; of those
        # drawn to one slot the last one stays
        numbers = np.arange(self.seen + free + 1, self.seen + len(frames) + 1)
        slots = self.rng.integers(0, numbers, endpoint=False)
        kept = slots < self.budget
        self.rows[slots[kept]] = late[kept]
        self.seen += len(frames)

    @property
    def sample(self) -> np.ndarray:
        return self.rows[: min(self.seen, self.budget)]


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

    standardise: cluster features of which every dimension has variance 1. Whisper's layers have a
    few dimensions of huge variance that say where in the 30 s a frame is; without this they decide
    all distances. The codebook still takes features as they are.

    Settings of HuBERT (arXiv 2106.07447, section IV-A;
    examples/hubert/simple_kmeans/learn_kmeans.py of fairseq): mini-batches of 10,000 frames, at
    most 100 passes, no tolerance, an end after 100 batches without improvement, no reassignment, 20
    starts. Different here: fairseq holds all frames of the recordings drawn, and its starts and
    batches are not decided by the seed alone. From MANY clusters on, where mini-batches take many
    minutes, `lloyd` fits instead. Raises InputError for fewer frames than clusters.
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
        centres, inertia = model.cluster_centers_, model.inertia_ / len(sample)
    facts["inertia"] = float(inertia)
    card = card | facts | {"padding": PADDING, "versions": versions()}
    if scale is None:
        return Codebook(centres.astype(np.float32), card)
    # |x / s - c|^2 is smallest where x (c / s) - |c|^2 / 2 is largest
    centres = centres.astype(np.float64)
    offsets = (-np.square(centres).sum(1) / 2).astype(np.float32)
    return Codebook((centres / scale).astype(np.float32), card, offsets=offsets)


@torch.inference_mode()
def lloyd(sample: np.ndarray, clusters: int, seed: int, starts: int) -> tuple[np.ndarray, float]:
    """Fit centroids (K, D) to frames (T, D), float32, by passes over all frames, each a product in
    bf16; return them and their inertia a frame.

    A pass costs less than that of scikit-learn's mini-batches, of which it needs a hundred. They
    end when one lowers the inertia by less than ENOUGH of it. A centroid without frames stays where
    it is.
    """
    frames = torch.from_numpy(np.ascontiguousarray(sample, np.float32))
    rng = np.random.default_rng(seed)
    size = min(START_FRAMES * clusters, len(frames))
    sample_ids = torch.from_numpy(rng.choice(len(frames), size, replace=False))
    start = kmeans_plus_plus(frames[sample_ids], clusters, rng, starts)
    centroids = frames[sample_ids[start]].double()
    length = sum(float(part.double().square().sum()) for part in frames.split(PART))
    before = np.inf
    for _ in range(PASSES):
        units = torch.from_numpy(Nearest(centroids.float().numpy())(frames))
        counts = torch.bincount(units, minlength=clusters)
        sums = torch.zeros_like(centroids)
        for part, part_units in zip(frames.split(PART), units.split(PART), strict=True):
            sums.index_add_(0, part_units, part.double())
        # sum of |x - c|^2 = |x|^2 - 2 x.c + |c|^2
        products = float((centroids * sums).sum())
        squares = float((counts[:, None] * centroids.square()).sum())
        inertia = (length - 2 * products + squares) / len(frames)
        gained = 1.0 if before == np.inf else 1 - inertia / max(before, 1e-30)
        if gained > 0:
            before, fitted = inertia, centroids
        if gained < ENOUGH:
            break
        centroids = torch.where(counts[:, None] > 0, sums / counts[:, None].clamp_min(1), centroids)
    return fitted.float().numpy(), before


def kmeans_plus_plus(
    frames: torch.Tensor, clusters: int, rng: np.random.Generator, starts: int
) -> torch.Tensor:
    """Choose K of the frames (T, D), by their numbers (K,): the k-means++ start of least inertia
    among `starts`.

    Greedy, as scikit-learn's: each centroid is the best of 2 + log K frames drawn by their distance
    from those before. All starts go on together, so that a product of some rows becomes one of
    many.
    """
    frames = frames - frames.mean(0)  # the same distances, of which float32 keeps more
    norms = frames.square().sum(1)
    trials, places = 2 + int(np.log(clusters)), torch.arange(starts)
    first = torch.from_numpy(rng.integers(0, len(frames), starts))
    closest = (norms + norms[first, None] - 2 * frames[first] @ frames.T).clamp_min(0)  # (S, T)
    chosen = [first]
    for _ in range(clusters - 1):
        reached = closest.double().cumsum(1)
        drawn = torch.from_numpy(rng.random((starts, trials))) * reached[:, -1:]
        candidates = torch.searchsorted(reached, drawn).clamp_max(len(frames) - 1)  # (S, C)
        distances = torch.addmm(norms, frames[candidates.flatten()], frames.T, alpha=-2)
        distances = distances.view(starts, trials, -1).add_(norms[candidates][..., None])
        distances = distances.clamp_min_(0)
        torch.minimum(distances, closest[:, None], out=distances)
        best = distances.sum(2).argmin(1)
        closest = distances[places, best].clone()
        chosen.append(candidates[places, best])
    return torch.stack(chosen)[:, closest.sum(1).argmin()]


def versions() -> dict[str, str]:
    """Return the versions of what a codebook depends on."""
    return {name: version(name) for name in ("speechssl", "torch", "scikit-learn", "numpy")}
