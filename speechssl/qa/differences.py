"""A reader's weights as their difference from another reader's: two that grew out of one text encoder ship as one and a bit.

`difference.safetensors` stands for a `model.safetensors` and gives its bytes back, every one of them. The other reader's matrix, in
the steps of this one's rows, foretells most of an int8 matrix; what is left is small numbers, which Huffman codes make shorter (of
SpeechBERT's 11 MB 2.6 are left, of DUAL's 5.7).
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save, save_file

from speechssl.artefacts import hash_files, replacing
from speechssl.errors import InputError
from speechssl.qa.int8 import SCALE, dequantise
from speechssl.shipped import SHIPPED

DIFFERENCE = "difference.safetensors"
CODED = ".difference"
State: TypeAlias = dict[str, torch.Tensor]


def save_difference(model: Path, base: Path, out: Path) -> None:
    """Write `model`, a file of `save_reader`, as its difference from `base`, another.

    base: in a folder beside that of `out`, where it is looked for afterwards. Raises ValueError where what comes back is not
    `model` to the byte.
    """
    packed, foretold = load_file(model), dequantise(load_file(base))
    state: State = {}
    for name, matrix in packed.items():
        if name + SCALE in packed and name in foretold and foretold[name].shape == matrix.shape:
            state[name + CODED] = _coded(matrix - _guess(foretold[name], packed[name + SCALE]))
        else:
            state[name] = matrix
    facts = {"base": base.relative_to(out.parent.parent).as_posix(), "weights": hash_files([base])}
    with replacing(out) as temporary:
        save_file(state, temporary, {"difference": json.dumps(facts, sort_keys=True)})  # several keys have no order
    if save(load_difference(out)) != model.read_bytes():
        out.unlink()
        raise ValueError(f"{model} would not come back from its difference to {base}: `save_reader` did not write it")


def load_difference(path: Path) -> State:
    """What the `model.safetensors` held. Raises InputError where the file or the one it needs is missing, damaged or another."""
    try:
        with safe_open(path, "pt") as file:
            said, state = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        facts = json.loads(said["difference"])
        base, weights = facts["base"], facts["weights"]
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"cannot read the weights {path} ({error}); train or fetch the model again") from error
    foretold = dequantise(load_file(_base(path, base, weights)))
    try:
        return {name.removesuffix(CODED): _restored(name, state, foretold) for name in state}
    except (zlib.error, KeyError, ValueError, RuntimeError) as error:
        raise InputError(f"{path} is damaged ({error}); train or fetch the model again") from error


def _base(path: Path, base: str, weights: str) -> Path:
    """The other reader's file: that of the same set of models, else that of one which ships."""
    for folder in (path.parent.parent, *sorted(SHIPPED.glob("*/"))):
        if (folder / base).is_file() and hash_files([folder / base]) == weights:
            return folder / base
    raise InputError(
        f"{path} is a difference from {path.parent.parent / base}, which is missing or another; fetch the models again"
    )


def _guess(other: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """(R, C) int16: the other's weights in steps of these rows."""
    return torch.round(other / scale[:, None]).clamp(-127, 127).to(torch.int16)


def _coded(rest: torch.Tensor) -> torch.Tensor:
    """Bytes: a difference is known by its remainder of 256."""
    coder = zlib.compressobj(9, strategy=zlib.Z_HUFFMAN_ONLY)
    content = coder.compress(rest.to(torch.uint8).numpy().tobytes()) + coder.flush()
    return torch.from_numpy(np.frombuffer(content, np.uint8).copy())


def _restored(name: str, state: State, foretold: State) -> torch.Tensor:
    if not name.endswith(CODED):
        return state[name]
    plain = name.removesuffix(CODED)
    rest = np.frombuffer(zlib.decompress(state[name].numpy().tobytes()), np.uint8).astype(np.int16)
    guess = _guess(foretold[plain], state[plain + SCALE])
    return (guess + torch.from_numpy(rest).view(guess.shape)).to(torch.int8)  # a remainder of 256, as int8 counts
