"""A codebook is centroids in a file, with a card of what made them; it gives frames their units.

`units fit` and `units import` write one (`kmeans.py`, `fit.py`); `load_codebook` reads it, and
`Codebook.assign` maps features to units: to the nearest centroids, which `Nearest` finds.

Letters: T frames, D dimensions, K units, C candidates (frame, unit that may be its nearest).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from speechssl.artifacts import hash_bytes, read_json, replacing, say_what_differs, write_json
from speechssl.checkpoints import SHIPPED, checkpoint_folder
from speechssl.errors import InputError
from speechssl.processes import cpu_capabilities

SUFFIX = ".safetensors"
# every utterance is encoded as it is, so that none depends on what it is batched with
PADDING = "none"
CACHED = 1 << 18  # scores of a block: one megabyte, which stays in the second-level cache
EXACT = 1 << 20  # numbers that are taken to float64 at a time
HALF = 2.0**-8  # what rounding to bf16 may do, relatively
# the same, of a float32 product where torch is allowed that error
LOOSE = {"tf32": 2.0**-11, "bf16": HALF}
Candidates = tuple[np.ndarray, np.ndarray]  # frames, in order, and units: (C,) each


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

    def segment(self, features: torch.Tensor, price: float) -> np.ndarray:
        """Assign (T, D) -> (T,) int64 so that the squared distances of the frames to their
        centroids and `price` for every change of unit are least in sum (DPDP, arXiv 2012.07551,
        with a price that is the same for segments of any length). Of a learned codebook the cost of
        a frame is its score, negative.
        """
        x = features.detach().cpu().double()
        centroids = torch.from_numpy(self.centroids).double()
        if self.offsets is None:
            costs = torch.cdist(x, centroids).square().numpy()
        else:
            costs = -(x @ centroids.T).numpy() - self.offsets
        return cheapest_path(costs, price)

    def save(self, path: Path | str) -> None:
        """Write `x.safetensors` and `x.card.json`."""
        path = Path(path)
        arrays = {"centroids": np.ascontiguousarray(self.centroids, np.float32)}
        if self.offsets is not None:
            arrays["offsets"] = np.ascontiguousarray(self.offsets, np.float32)
        with replacing(path) as temporary:
            save_file(arrays, temporary)
        write_json(_card_of(path), self.card | {"K": self.size, "hash": self.hash})


def cheapest_path(costs: np.ndarray, price: float) -> np.ndarray:
    """Find the sequence of units (T,) whose costs, with `price` for every change, are least in sum;
    by dynamic programming. costs: (T, K)."""
    frames, size = costs.shape
    # the unit before, where the cheapest path to a frame stays, is the same: -1
    came_from = np.full(frames, -1)
    stays = np.ones((frames, size), bool)
    total = costs[0].copy()
    for t in range(1, frames):
        came_from[t] = total.argmin()
        changed = total[came_from[t]] + price
        stays[t] = total <= changed
        total = np.minimum(total, changed) + costs[t]
    path = np.zeros(frames, np.int64)
    path[-1] = total.argmin()
    for t in range(frames - 1, 0, -1):
        path[t - 1] = path[t] if stays[t, path[t]] else came_from[t]
    return path


def load_codebook(path: Path | str) -> Codebook:
    """Load a codebook from a file, a shipped one by its name (`people-en/units.safetensors`), a
    folder of models, or OWNER/NAME of the hub.

    Raises InputError when the file or its card is missing or damaged, or the card is another
    codebook's.
    """
    file = SHIPPED / path if (SHIPPED / path).exists() else Path(path)
    if file.suffix != SUFFIX:
        folder = file if file.is_dir() else checkpoint_folder(path, "codebook")
        files = [f for f in sorted(folder.glob(f"*{SUFFIX}")) if _card_of(f).is_file()]
        candidates = [f for f in files if f.stem == "units"] or files
        if len(candidates) != 1:
            raise InputError(
                f"{folder} has {len(candidates) or 'no'} codebooks; give the {SUFFIX} file of "
                "`speechssl units fit`, with its .card.json beside it"
            )
        file = candidates[0]
    return _read(file)


def _card_of(path: Path) -> Path:
    return path.with_suffix(".card.json")


def _read(path: Path) -> Codebook:
    try:
        arrays = load_file(path)
        centroids = arrays["centroids"]
    except (OSError, SafetensorError, KeyError) as error:
        raise InputError(
            f"cannot read the codebook {path} ({error}); check the path, or fit it again with "
            "`speechssl units fit`"
        ) from error
    card = read_json(_card_of(path))
    codebook = Codebook(centroids, card, str(path), arrays.get("offsets"))
    if card.get("hash") != codebook.hash:
        raise InputError(f"{path} does not match its card; fit it again with `speechssl units fit`")
    return codebook


def check_out(path: Path) -> None:
    """Raise InputError where no codebook could be written by this name: to be known before hours of
    work."""
    if path.suffix != SUFFIX or path.is_dir():
        raise InputError(f"the codebook {path} must be a file named *{SUFFIX}; rename it")


def load_existing(out: Path, facts: dict[str, Any]) -> Codebook | None:
    """Load the codebook that is there, if one is. facts: the entries its card must have. Raises
    InputError where it says otherwise."""
    if not (out.is_file() and _card_of(out).is_file()):
        return None
    codebook = _read(out)
    differing = [k for k, v in facts.items() if codebook.card.get(k) != v]
    if differing:
        raise InputError(
            f"{out} was made from other inputs ({say_what_differs(differing)}); choose "
            "another file or delete it"
        )
    return codebook


def versions() -> dict[str, str]:
    """Return the versions of what a codebook depends on."""
    return {name: version(name) for name in ("speechssl", "torch", "scikit-learn", "numpy")}


# ---- the nearest centroid of every frame, exactly, by matrix products
#
# |x - c|^2 is smallest where the score x.c - |c|^2 / 2 is largest: a product and a bias. It is
# known how far off a rounded score may be, and so which units may be the nearest of a frame: its
# candidates. A product in bf16, where the processor has it, leaves nine in ten frames of speech
# one candidate; one in float32 decides most of the rest; true distances in float64 decide among
# what is left. So the answer is the argmin of the distances, the same for any number of frames in
# a call and of threads, on any machine.


class Nearest:
    """It finds the nearest of the centroids (K, D) on one device. It is prepared once and used for
    every call. With offsets (K,) the nearest is the centroid of the largest score x.c + offset."""

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
        undecided = np.arange(len(features))  # numbers of the frames, whose features are:
        rest, rest_norms = features, norms
        for product in self.products:
            places, units = product.find_candidates(rest, rest_norms)
            frames = undecided[places]
            nearest[frames] = units  # of a frame with one candidate, this is its unit
            counts = np.bincount(frames, minlength=len(features))
            undecided = np.flatnonzero(counts > 1)
            if not len(undecided):
                return nearest
            rows = torch.from_numpy(undecided).to(self.device)
            rest, rest_norms = features[rows], norms[rows]
        among_several = counts[frames] > 1
        frames, units = frames[among_several], units[among_several]
        nearest[undecided] = self._decide(features, frames, units)
        return nearest

    def _decide(self, features: torch.Tensor, frames: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Choose among the candidates of each frame the nearest in float64, the first of equals.

        features: (T, D); frames, units: the candidates, (C,) each. Returns a unit for each
        different frame, in order.
        """
        size = max(EXACT // features.shape[1], 1)
        distances = np.zeros(len(frames))
        for start in range(0, len(frames), size):
            part = slice(start, start + size)
            rows = torch.from_numpy(frames[part]).to(self.device)
            x = features[rows].cpu().numpy().astype(np.float64)
            c = self.centroids[units[part]].astype(np.float64)
            if self.offsets is None:
                distances[part] = np.square(x - c).sum(1)
            else:
                distances[part] = -(x * c).sum(1) - self.offsets[units[part]]
        nearest_first = np.lexsort((distances, frames))  # by frame, then by distance; it is stable
        _, firsts = np.unique(frames[nearest_first], return_index=True)
        return units[nearest_first[firsts]]


class CentroidScores:
    """It scores features against centroids by a product of one type, and knows how far off the
    scores may be.

    The middle of the centroids is taken off them first. That adds the same to all scores of a
    frame, and makes the numbers small, which are rounded less.
    """

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
        self.bias_error = float(np.abs(biases).max()) * 2.0**-23 + exact.shape[1] * 2.0**-120

    def find_candidates(self, features: torch.Tensor, norms: torch.Tensor) -> Candidates:
        """Pair every frame with every unit that may be its nearest. features: (T, D); norms: (T,),
        their lengths."""
        error = self._relative_error(features.shape[1]) * self.reach * norms + self.bias_error
        parts = zip(features.split(self.block), error.split(self.block), strict=True)
        frames: list[np.ndarray] = []
        units: list[np.ndarray] = []
        for number, (rows, error_of_rows) in enumerate(parts):
            scores = self._score(rows)
            # the best score and a candidate's may both be off; a little more for this sum itself
            least = scores.amax(1) - 2.1 * error_of_rows
            if scores.device.type == "cpu":  # numpy is five times as fast as torch at this
                places = np.flatnonzero(scores.numpy() >= least.numpy()[:, None])
                found, of_units = np.divmod(places, scores.shape[1])
            else:
                pairs = (scores >= least[:, None]).nonzero().cpu().numpy()
                found, of_units = pairs[:, 0], pairs[:, 1]
            frames.append(number * self.block + found)
            units.append(of_units)
        return np.concatenate(frames), np.concatenate(units)

    def _score(self, features: torch.Tensor) -> torch.Tensor:
        """Return the scores (T, K) of features (T, D)."""
        if self.dtype == torch.bfloat16:
            return self.bias + (features.to(self.dtype) @ self.weight.T).float()
        return torch.addmm(self.bias, features, self.weight.T)

    def _relative_error(self, dimensions: int) -> float:
        """Bound how far off x.c may be where |x| |c| = 1: by rounding x and c, and a product of
        bf16, and by summing in float32."""
        summing = dimensions * 2.0**-23
        if self.dtype == torch.bfloat16:
            return 3 * HALF + 3 * HALF**2 + summing
        setting = torch.backends.mkldnn if self.bias.device.type == "cpu" else torch.backends.cuda
        # torch before 2.9 has one setting for all devices
        allowed = getattr(getattr(setting, "matmul", None), "fp32_precision", None)
        if not allowed:
            precision = torch.get_float32_matmul_precision()
            allowed = {"high": "tf32", "medium": "bf16"}.get(precision, "")
        rounding = LOOSE.get(allowed, 0.0)
        return 2 * rounding + 3 * rounding**2 + summing
