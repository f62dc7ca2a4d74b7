"""A vector that is added to the output of a layer of a text encoder: from one language's mean to another's.

Layer 0 is what the first layer reads, layer n what the n-th gives. On disk a shift is a safetensors file with the vector and, as
metadata, its layer and what made it. Letters: B sequences, S tokens in a sequence, H hidden width.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from speechssl.errors import InputError
from speechssl.io import hash_files, replacing

SHIFT = "shift.safetensors"  # of a reader that was trained with one
Change = Callable[[torch.Tensor], torch.Tensor]  # (B, S, H) -> (B, S, H)


def layers_of(encoder: nn.Module) -> nn.ModuleList:
    """Its layers, in order. Raises InputError where they are not a list of their own, as ALBERT's, which are one."""
    config: Any = encoder.config
    found = [m for m in encoder.modules() if isinstance(m, nn.ModuleList) and len(m) == config.num_hidden_layers]
    if not found:
        raise InputError(
            f"the layers of this encoder ({config.model_type}) are not {config.num_hidden_layers} modules of their own; choose an "
            "encoder such as BERT, RoBERTa, DistilBERT or T5"
        )
    return found[0]


def check_layer(encoder: nn.Module, layer: int) -> None:
    """Raises InputError for a layer that there is not."""
    count = len(layers_of(encoder))
    if not 0 <= layer <= count:
        raise InputError(f"the encoder has no layer {layer}; choose 0 (what its first layer reads) to {count}")


def changed(encoder: nn.Module, layer: int, change: Change) -> torch.utils.hooks.RemovableHandle:
    """What `change` makes of a layer's output takes its place, until the handle is removed or its `with` block ends.

    Raises InputError where there is no such layer.
    """
    check_layer(encoder, layer)
    layers = layers_of(encoder)

    def before(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if given:
            return (change(given[0]), *given[1:]), named
        return given, named | {"hidden_states": change(named["hidden_states"])}

    def after(_: nn.Module, given: Any, made: Any) -> Any:
        return (change(made[0]), *made[1:]) if isinstance(made, tuple) else change(made)

    return (
        layers[layer - 1].register_forward_hook(after) if layer else layers[0].register_forward_pre_hook(before, with_kwargs=True)
    )


@contextmanager
def listening(encoder: nn.Module) -> Iterator[list[torch.Tensor]]:
    """Within the block, a run of the encoder leaves the outputs of all layers in the list, layer 0 first; the block empties it."""
    states: list[torch.Tensor] = []

    def keep(hidden: torch.Tensor) -> torch.Tensor:
        states.append(hidden)
        return hidden

    with ExitStack() as stack:
        for layer in range(len(layers_of(encoder)) + 1):
            stack.enter_context(changed(encoder, layer, keep))
        yield states


@dataclass(frozen=True, eq=False)
class Shift:
    """vector: (H,). made: method, texts and encoder that it comes from."""

    layer: int
    vector: torch.Tensor
    made: dict[str, Any] = field(default_factory=dict)

    def attach(self, encoder: nn.Module) -> None:
        """Add the vector to every token of that layer from now on. Raises InputError where it does not fit the encoder."""
        if len(self.vector) != encoder.config.hidden_size:  # type: ignore[union-attr]
            raise InputError(
                f"the shift has {len(self.vector)} numbers and the encoder a width of {encoder.config.hidden_size}; make "  # type: ignore[union-attr]
                "one of this encoder with `speechssl text vector`"
            )
        changed(encoder, self.layer, lambda hidden: hidden + self.vector.to(hidden))

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # one entry: safetensors writes several in any order, and the same shift is the same file
        about = {"shift": json.dumps({"layer": self.layer, "made": self.made}, sort_keys=True)}
        with replacing(path) as temporary:
            save_file({"vector": self.vector.contiguous()}, temporary, about)


def load_shift(path: Path) -> tuple[Shift, dict[str, Any]]:
    """A shift, and what a card says of it. Raises InputError where there is none."""
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})["shift"])
            shift = Shift(int(about["layer"]), file.get_tensor("vector").float(), about["made"])
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"{path} is no shift ({error}); make one with `speechssl text vector`") from error
    return shift, {"layer": shift.layer, "hash": hash_files([path])} | shift.made
