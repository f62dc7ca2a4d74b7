"""A codebook holds K centroids: the unit of a frame is the index of the nearest. It is kept as a
file, beside a card that says how it was made.

`units fit` and `units import` write one (`kmeans.py`, `fit.py`); `load_codebook` reads it, and
`Codebook.assign` maps features to units, the nearest centroids, which `Nearest` finds.

Letters: T frames, D dimensions, K units, C candidates: pairs of a frame and a unit that may be its
nearest.
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

from speechssl.artifacts import hash_bytes, read_json, replace_file, say_what_differs, write_json
from speechssl.checkpoints import SHIPPED, fetch_checkpoint
from speechssl.errors import InputError

SUFFIX = ".safetensors"
# Cards state that utterances are not padded, so that none depends on the others in its batch.
PADDING = "none"
BLOCK_SCORES = 1 << 18  # scores of a block: one megabyte, which stays in the second-level cache
BLOCK_NUMBERS = 1 << 20  # numbers that are converted to float64 at a time
# Relative error of rounding the factors of a float32 product, by the precision that torch is
# allowed to compute it in.
ROUNDING = {"tf32": 2.0**-11, "bf16": 2.0**-8}
Candidates = tuple[np.ndarray, np.ndarray]  # frames, in order, and units: (C,) each


@dataclass(frozen=True)
class Codebook:
    """A codebook has centroids (K, D) float32, and a card that says what made them.

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
    def equivalents(self) -> tuple[str, ...]:
        """Return the hashes of the codebooks whose unit k means what it means here: its own comes
        first, then those that it was transferred from."""
        if "carried_from" not in self.card:
            return (self.hash,)
        return (self.hash, self.card["carried_from"], *self.card.get("transferred_through", ()))

    @property
    def lineage(self) -> dict[str, Any]:
        """Return the card entries that name this codebook as the source of a transferred one."""
        card: dict[str, Any] = {"carried_from": self.hash}
        if self.equivalents[1:]:
            card["transferred_through"] = list(self.equivalents[1:])
        return card

    def assign(self, features: torch.Tensor) -> np.ndarray:
        """Return the unit of every frame, (T, D) on any device -> (T,) int64: the index of the
        nearest centroid, or of the largest score; the first of equals.

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
        """Return units (T, D) -> (T,) int64 that change less often: those whose costs, with `price`
        for every change of unit, have the least sum.

        The cost of a frame is its squared distance to its centroid, or minus its score in a learned
        codebook. This is DPDP (arXiv 2012.07551) with a price that does not depend on the length of
        a segment.
        """
        x = features.detach().cpu().double()
        centroids = torch.from_numpy(self.centroids).double()
        if self.offsets is None:
            costs = torch.cdist(x, centroids).square().numpy()
        else:
            costs = -(x @ centroids.T).numpy() - self.offsets
        return find_cheapest_path(costs, price)

    def save(self, path: Path | str) -> None:
        """Write `x.safetensors` and `x.card.json`."""
        path = Path(path)
        arrays = {"centroids": np.ascontiguousarray(self.centroids, np.float32)}
        if self.offsets is not None:
            arrays["offsets"] = np.ascontiguousarray(self.offsets, np.float32)
        with replace_file(path) as temporary:
            save_file(arrays, temporary)
        write_json(_name_card(path), self.card | {"K": self.size, "hash": self.hash})


def find_cheapest_path(costs: np.ndarray, price: float) -> np.ndarray:
    """Find the sequence of units (T,) whose costs, with `price` for every change, have the least
    sum, by dynamic programming. costs: (T, K)."""
    frames, size = costs.shape
    # Whether the cheapest path to unit k at frame t comes from k; else it comes from best_before.
    stays = np.ones((frames, size), bool)
    best_before = np.zeros(frames, np.int64)
    total = costs[0].copy()
    for t in range(1, frames):
        best_before[t] = total.argmin()
        changed = total[best_before[t]] + price
        stays[t] = total <= changed
        total = np.minimum(total, changed) + costs[t]
    path = np.zeros(frames, np.int64)
    path[-1] = total.argmin()
    for t in range(frames - 1, 0, -1):
        path[t - 1] = path[t] if stays[t, path[t]] else best_before[t]
    return path


def load_codebook(path: Path | str) -> Codebook:
    """Load a codebook: from a file, by its name where it ships (`people-en/units.safetensors`),
    from a folder of models, or from OWNER/NAME of the hub.

    Raises InputError when the file or its card is missing or damaged, or the card is another
    codebook's.
    """
    file = SHIPPED / path if (SHIPPED / path).exists() else Path(path)
    if file.suffix != SUFFIX:
        folder = file if file.is_dir() else fetch_checkpoint(path, "codebook")
        files = [f for f in sorted(folder.glob(f"*{SUFFIX}")) if _name_card(f).is_file()]
        candidates = [f for f in files if f.stem == "units"] or files
        if len(candidates) != 1:
            raise InputError(
                f"{folder} has {len(candidates) or 'no'} codebooks; give the {SUFFIX} file of "
                "`speechssl units fit`, with its .card.json beside it"
            )
        file = candidates[0]
    return _read(file)


def _name_card(path: Path) -> Path:
    return path.with_suffix(".card.json")


def _read(path: Path) -> Codebook:
    """Read a codebook and its card. Raises InputError where either is missing, or they differ."""
    try:
        arrays = load_file(path)
        centroids = arrays["centroids"]
    except (OSError, SafetensorError, KeyError) as error:
        raise InputError(
            f"cannot read the codebook {path} ({error}); check the path, or fit it again with "
            "`speechssl units fit`"
        ) from error
    card = read_json(_name_card(path))
    codebook = Codebook(centroids, card, str(path), arrays.get("offsets"))
    if card.get("hash") != codebook.hash:
        raise InputError(f"{path} does not match its card; fit it again with `speechssl units fit`")
    return codebook


def check_out(path: Path) -> None:
    """Raise InputError where no codebook could be written by this name. Call it before hours of
    work."""
    if path.suffix != SUFFIX or path.is_dir():
        raise InputError(f"the codebook {path} must be a file named *{SUFFIX}; rename it")


def load_existing(out: Path, facts: dict[str, Any]) -> Codebook | None:
    """Load the codebook `out`; None where there is none yet. facts: entries that its card must
    have. Raises InputError where the card has others."""
    if not (out.is_file() and _name_card(out).is_file()):
        return None
    codebook = _read(out)
    differing = [k for k, v in facts.items() if codebook.card.get(k) != v]
    if differing:
        raise InputError(
            f"{out} was made from other inputs ({say_what_differs(differing)}); choose "
            "another file or delete it"
        )
    return codebook


def list_versions() -> dict[str, str]:
    """Return the versions of what a codebook depends on."""
    return {name: version(name) for name in ("speechssl", "torch", "scikit-learn", "numpy")}


# ---- the nearest centroid of every frame, exactly, by a matrix product
#
# |x - c|^2 is smallest where the score x.c - |c|^2 / 2 is largest: a product and a bias. The error
# of a rounded score has a known bound, which tells the units that may be the nearest of a frame:
# its candidates. Nearly all frames have one; distances in float64 decide the rest. So the answer is
# the argmin of the distances, for any number of frames in a call, any number of threads and any
# machine.


class Nearest:
    """A finder is prepared once for the centroids (K, D) on one device, and called to find the
    nearest. With offsets (K,) that is the centroid of the largest score x.c + offset.

    The mean of the centroids is subtracted from them first. That adds the same to all scores of a
    frame, and smaller numbers have smaller rounding errors.
    """

    def __init__(
        self,
        centroids: np.ndarray,
        device: torch.device | str = "cpu",
        offsets: np.ndarray | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.centroids = np.ascontiguousarray(centroids, np.float32)
        self.offsets = offsets
        exact = self.centroids.astype(np.float64)
        mean = exact.mean(0)
        centred = exact - mean
        # with c' = c - m: (x - m).c' - |c'|^2 / 2 = x.c' - (|c'|^2 / 2 + m.c')
        biases = -np.square(centred).sum(1) / 2 - centred @ mean
        if offsets is not None:
            biases = offsets.astype(np.float64)
        self.block = 1 << 15  # frames
        if self.device.type == "cpu":
            self.block = int(np.clip(BLOCK_SCORES // len(centred), 64, 1024))
        self.weight = torch.from_numpy(centred).to(self.device, torch.float32)
        self.bias = torch.from_numpy(biases).to(self.device, torch.float32)
        self.largest_norm = float(np.linalg.norm(centred, axis=1).max())
        # bound of the error of the rounded bias, with a term for underflow
        self.bias_error = float(np.abs(biases).max()) * 2.0**-23 + exact.shape[1] * 2.0**-120

    @torch.inference_mode()
    def __call__(self, features: torch.Tensor) -> np.ndarray:
        """Return the unit (T,) int64 of every frame of features (T, D). Raises ValueError for
        features that are not finite."""
        features = features.detach().to(self.device, torch.float32)
        norms = torch.linalg.vector_norm(features, dim=1)
        if not bool(norms.isfinite().all()):
            raise ValueError("the features hold numbers that are not finite (NaN or infinity)")
        frames, units = self._find_candidates(features, norms)
        nearest = np.zeros(len(features), np.int64)
        nearest[frames] = units  # right for frames with one candidate
        counts = np.bincount(frames, minlength=len(features))
        among_several = counts[frames] > 1
        if among_several.any():
            decided = self._decide(features, frames[among_several], units[among_several])
            nearest[counts > 1] = decided
        return nearest

    def _find_candidates(self, features: torch.Tensor, norms: torch.Tensor) -> Candidates:
        """Pair every frame with every unit that may be its nearest. features: (T, D); norms: (T,),
        their lengths."""
        errors = self._bound_error() * self.largest_norm * norms + self.bias_error
        blocks = zip(features.split(self.block), errors.split(self.block), strict=True)
        frames: list[np.ndarray] = []
        units: list[np.ndarray] = []
        for number, (rows, row_errors) in enumerate(blocks):
            scores = torch.addmm(self.bias, rows, self.weight.T)
            # the best score and a candidate's may both be off; 0.1 is for rounding in this line
            least = scores.amax(1) - 2.1 * row_errors
            if scores.device.type == "cpu":  # numpy is five times as fast as torch at this
                places = np.flatnonzero(scores.numpy() >= least.numpy()[:, None])
                block_rows, block_units = np.divmod(places, scores.shape[1])
            else:
                pairs = (scores >= least[:, None]).nonzero().cpu().numpy()
                block_rows, block_units = pairs.T
            frames.append(number * self.block + block_rows)
            units.append(block_units)
        return np.concatenate(frames), np.concatenate(units)

    def _bound_error(self) -> float:
        """Return a bound of the error of x.c where |x| |c| = 1: from rounding x and c, where torch
        may round them, and from summing in float32."""
        setting: Any = torch.backends.cuda
        if self.bias.device.type == "cpu":
            setting = torch.backends.mkldnn
        # torch before 2.9 has one setting for all devices
        allowed = getattr(getattr(setting, "matmul", None), "fp32_precision", None)
        if not allowed:
            precision = torch.get_float32_matmul_precision()
            allowed = {"high": "tf32", "medium": "bf16"}.get(precision, "")
        rounding = ROUNDING.get(allowed, 0.0)
        return 2 * rounding + 3 * rounding**2 + self.centroids.shape[1] * 2.0**-23

    def _decide(self, features: torch.Tensor, frames: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Choose among the candidates of each frame the nearest in float64, the first of equals.

        features: (T, D); frames, units: the candidates, (C,) each. Returns a unit for each
        different frame, in order.
        """
        size = max(BLOCK_NUMBERS // features.shape[1], 1)
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
