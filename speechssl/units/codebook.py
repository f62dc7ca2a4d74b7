"""A codebook is centroids in a file, with a card of what made them; it gives frames their units.

`units fit` and `units import` write one (`kmeans.py`, `fit.py`); `load_codebook` reads it, and
`Codebook.assign` maps features (T frames, D dimensions) to units (T,).
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
from speechssl.units.nearest import Nearest

SUFFIX = ".safetensors"
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
        write_json(_card_of(path), self.card | {"K": self.size, "hash": self.hash})


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
