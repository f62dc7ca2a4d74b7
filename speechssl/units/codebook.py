"""A codebook holds K centroids: the unit of a frame is the index of the nearest. It is kept as a
file, beside a card that says how it was made.

`units fit` and `units import` write one (`kmeans.py`, `fit.py`); `load_codebook` reads it, and
`Codebook.assign` maps features to units, the nearest centroids, which `Nearest` finds.

Letters: T frames, D dimensions, K units.
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
BLOCK_SCORES = 1 << 18  # scores that are computed at a time
ROUNDING = 1e-14  # of float64 scores, relative to their largest terms


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
        card = read_json(_name_card(path))
        codebook = Codebook(arrays["centroids"], card, str(path), arrays.get("offsets"))
        if card.get("hash") != codebook.hash:
            raise ValueError("it does not match its card")
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise InputError(
            f"cannot read the codebook {path} ({error}); check the path, or fit it again with "
            "`speechssl units fit`"
        ) from error
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


# ---- the nearest centroid of every frame, by a matrix product
#
# |x - c|^2 is smallest where the score x.c - |c|^2 / 2 is largest: a product and a bias. In float64
# rounding errors are far below the differences of float32 features, so the answer does not depend
# on the number of frames in a call, the number of threads, or the machine.


class Nearest:
    """A finder is prepared once for the centroids (K, D) on one device, and called to find the
    nearest. With offsets (K,) that is the centroid of the largest score x.c + offset.

    The mean of the centroids is subtracted from them and from the frames first, for smaller numbers
    have smaller rounding errors.
    """

    def __init__(
        self,
        centroids: np.ndarray,
        device: torch.device | str = "cpu",
        offsets: np.ndarray | None = None,
    ) -> None:
        if torch.device(device).type == "mps":  # which has no float64
            device = "cpu"
        exact = torch.tensor(centroids, dtype=torch.float64, device=device)
        self.mean = exact.mean(0)
        self.centred = exact - self.mean
        if offsets is None:
            self.bias = -self.centred.square().sum(1) / 2
        else:
            self.bias = exact.new_tensor(offsets) + self.centred @ self.mean
        self.largest_norm = self.centred.norm(dim=1).max()
        self.block = max(BLOCK_SCORES // len(centroids), 64)  # frames

    @torch.inference_mode()
    def __call__(self, features: torch.Tensor) -> np.ndarray:
        """Return the unit (T,) int64 of every frame of features (T, D). Raises ValueError for
        features that are not finite."""
        features = features.detach().to(self.mean.device)
        if not bool(features.isfinite().all()):
            raise ValueError("the features hold numbers that are not finite (NaN or infinity)")
        units = []
        for rows in features.split(self.block):
            rows = rows.double() - self.mean
            scores = torch.addmm(self.bias, rows, self.centred.T)
            # the first of the scores that differ from the best by rounding alone
            best = scores.amax(1)
            terms = rows.norm(dim=1) * self.largest_norm + best.abs()
            least = best - ROUNDING * terms
            units.append((scores >= least[:, None]).int().argmax(1))
        return torch.cat(units).cpu().numpy()
