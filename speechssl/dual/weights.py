"""Span models on disk: config, weights, layout and card in one folder.

Matrices are kept as int8 (`qa/int8.py`), everything else as it is. `safetensors` throughout.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save, save_file
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedModel

from speechssl.dual.data import Layout
from speechssl.dual.model import SpanModel
from speechssl.errors import InputError
from speechssl.io import SHIPPED, hash_content, hash_files, read_json, replacing, write_json
from speechssl.textlm.symbols import SubwordUnits

# Matrices as int8 with one scale a row: a quarter of float32; the largest error of a weight is 1/254 of its row's largest.

SCALE = ".row_scale"


def quantise(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Matrices (R, C) as int8 plus `name.row_scale` (R,) float32; what `dequantise` returns is packed to the same bits."""
    packed: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        if value.ndim != 2 or not value.is_floating_point():
            packed[name] = value.contiguous()
            continue
        # scales of 17 significant bits, rounded up: 127 times one is then exact in float32, and gives the same scale again
        scale = value.float().abs().amax(1).clamp(min=1e-12) / 127
        scale = ((scale.view(torch.int32) + 127) & ~127).view(torch.float32)
        packed[name] = torch.round(value / scale[:, None]).to(torch.int8)
        packed[name + SCALE] = scale
    return packed


def dequantise(packed: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inverse of `quantise`, in float32."""
    scales = {name: value for name, value in packed.items() if name.endswith(SCALE)}
    return {
        name: value.float() * scales[name + SCALE][:, None] if name + SCALE in scales else value.float()
        for name, value in packed.items()
        if name not in scales
    }


# A reader's weights as their difference from another reader's: two that grew out of one text encoder ship as one and a bit.
#
# `difference.safetensors` stands for a `model.safetensors` and gives its bytes back, every one of them. The other reader's
# matrix, in
# the steps of this one's rows, foretells most of an int8 matrix; what is left is small numbers, which Huffman codes make
# shorter (of
# SpeechBERT's 11 MB 2.6 are left, of DUAL's 5.7).

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


M = TypeVar("M", bound=nn.Module)
Build: TypeAlias = Callable[[PreTrainedModel, nn.Embedding, dict[str, Any]], M]


class Saved(Protocol):
    """What `save_reader` asks of a model."""

    encoder: PreTrainedModel
    embedding: nn.Embedding

    def state_dict(self) -> dict[str, torch.Tensor]: ...


def save_reader(folder: Path, model: Saved, layout: Layout, card: dict[str, Any]) -> None:
    """Write model.safetensors, config.json and, last, card.json."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / "model.safetensors") as temporary:
        save_file(quantise(model.state_dict()), temporary)
    config = model.encoder.config.to_dict() | {"symbols": list(model.embedding.weight.shape)}
    if (subwords := getattr(model, "subwords", None)) is not None:
        config["subwords"] = subwords.shape
    config.pop("_name_or_path", None)  # a path of the machine it was trained on
    write_json(folder / "config.json", config)
    write_json(folder / "card.json", card | {"layout": asdict(layout), "weights": hash_files([folder / "model.safetensors"])})


def load_reader(folder: Path) -> tuple[SpanModel, Layout, dict[str, Any]]:
    """Raises InputError when a file is missing or damaged, weights are missing, or the card is another model's."""
    return load_model(folder, lambda encoder, embedding, facts: SpanModel(encoder, embedding, facts["subword_units"]))


def load_model(
    folder: Path, build: Callable[[PreTrainedModel, nn.Embedding, dict[str, Any]], M]
) -> tuple[M, Layout, dict[str, Any]]:
    """What `save_reader` left. Raises as `load_reader`.

    build: (encoder, embedding, facts) -> the model, without its weights; facts: the card, and `subword_units`, None without.
    """
    card, config = read_json(folder / "card.json"), read_json(folder / "config.json")
    path, packed, weights = _read(folder)
    if card.get("weights") != weights:
        raise InputError(f"{path} is not the file its card describes; train or fetch the model again")
    try:
        rows, width = config.pop("symbols")
        shape = config.pop("subwords", None)
        subwords = SubwordUnits.of_shape(rows, width, **shape) if shape else None
        encoder = AutoModel.from_config(AutoConfig.for_model(**config))
        model = build(encoder, nn.Embedding(rows, width), card | {"subword_units": subwords})
        layout = Layout(**card["layout"])
    except Exception as error:  # transformers and huggingface_hub have their own for a config that makes no sense
        raise InputError(
            f"{folder} does not describe a reader ({' '.join(repr(error).split())[:160]}); train or fetch the model again"
        ) from error
    try:
        found = model.load_state_dict(dequantise(packed), strict=False)
    except RuntimeError as error:  # torch lists every weight of another shape
        raise InputError(f"{path} does not fit its config: weights have other shapes; train or fetch the model again") from error
    if found.missing_keys or found.unexpected_keys:
        keys = [*found.missing_keys, *found.unexpected_keys]
        some = ", ".join(keys[:3])
        raise InputError(f"{path} does not fit its config: {len(keys)} weights missing or left over ({some} ...); train it again")
    return model.eval().requires_grad_(False), layout, card


def _read(folder: Path) -> tuple[Path, dict[str, torch.Tensor], str]:
    """The file that holds the weights, what it holds, and the hash of `model.safetensors`, whether it is that or its difference."""
    path = folder / "model.safetensors"
    if not path.exists() and (folder / DIFFERENCE).exists():
        packed = load_difference(folder / DIFFERENCE)
        return folder / DIFFERENCE, packed, hash_content(save(packed))
    try:
        return path, load_file(path), hash_files([path])
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read the weights {path} ({error}); train or fetch the model again") from error
