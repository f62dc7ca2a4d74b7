"""Span models on disk: config, weights, layout and card in one folder.

Matrices are kept as int8 (`int8.py`), everything else as it is. `safetensors` throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedModel

from speechssl.dual.data import Layout
from speechssl.dual.model import SpanModel
from speechssl.errors import InputError
from speechssl.int8 import dequantise, quantise
from speechssl.io import hash_files, read_json, replacing, write_json
from speechssl.textlm.symbols import SubwordUnits

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
    path = folder / "model.safetensors"
    try:
        packed, weights = load_file(path), hash_files([path])
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read the weights {path} ({error}); train or fetch the model again") from error
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
