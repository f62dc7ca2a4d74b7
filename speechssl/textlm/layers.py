"""This module finds the layers of an encoder, and adds a shift, a vector such as the difference
between the means of two languages, to the output of a layer.

Layer 0 is the input of the first layer, layer n the output of the n-th. On disk a shift is a
safetensors file with the vector and, as metadata, its layer and its origin. Letters: B sequences, S
tokens in a sequence, H hidden width.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from speechssl.artifacts import hash_files, replace_file
from speechssl.errors import InputError

SHIFT = "shift.safetensors"  # file in the folder of a reader that was trained with a shift
Change = Callable[[torch.Tensor], torch.Tensor]  # (B, S, H) -> (B, S, H)


def find_layers(encoder: nn.Module) -> nn.ModuleList:
    """Return the layers of an encoder, in order.

    The layers are the only list of `num_hidden_layers` modules below its parent. Raises InputError
    for an encoder without such a list.
    """
    config: Any = encoder.config
    matches: dict[str, list[nn.ModuleList]] = {}
    for name, module in encoder.named_modules():
        if not isinstance(module, nn.ModuleList) or len(module) != config.num_hidden_layers:
            continue
        if not isinstance(module[0], nn.ModuleList):  # Funnel's blocks are lists of layers
            matches.setdefault(name.rpartition(".")[0], []).append(module)
    first = next(iter(matches.values()), [])
    # XLM has several such lists side by side (attentions, ffns); ALBERT has none
    if len(first) != 1:
        raise InputError(
            f"the layers of this encoder ({config.model_type}) are not "
            f"{config.num_hidden_layers} modules of their own; choose an "
            "encoder such as BERT, RoBERTa, DistilBERT or T5"
        )
    return first[0]


def check_layer(encoder: nn.Module, layer: int) -> None:
    """Raise InputError for a layer that the encoder does not have."""
    count = len(find_layers(encoder))
    if not 0 <= layer <= count:
        raise InputError(
            f"the encoder has no layer {layer}; choose 0 (what its first layer reads) to {count}"
        )


def hook_layer(encoder: nn.Module, layer: int, change: Change) -> torch.utils.hooks.RemovableHandle:
    """Replace the output of a layer by `change` of it, until the handle is removed or its `with`
    block ends."""
    layers = find_layers(encoder)

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            return (change(args[0]), *args[1:]), kwargs
        return args, kwargs | {"hidden_states": change(kwargs["hidden_states"])}

    def after(_: nn.Module, args: Any, output: Any) -> Any:
        return (change(output[0]), *output[1:]) if isinstance(output, tuple) else change(output)

    if layer == 0:
        return layers[0].register_forward_pre_hook(before, with_kwargs=True)
    return layers[layer - 1].register_forward_hook(after)


@dataclass(frozen=True, eq=False)
class Shift:
    """A shift is a vector that is added to the output of a layer."""

    layer: int
    vector: torch.Tensor  # (H,)
    origin: dict[str, Any] = field(default_factory=dict)  # the method, texts and encoder

    def attach(self, encoder: nn.Module) -> None:
        """Add the vector to every token of that layer from now on. Raises InputError where the
        encoder has no such layer, or another width."""
        check_layer(encoder, self.layer)
        width: Any = encoder.config.hidden_size  # type: ignore[union-attr]
        if len(self.vector) != width:
            raise InputError(
                f"the shift has {len(self.vector)} numbers and the encoder a width of {width}; "
                "give one of this encoder"
            )
        hook_layer(encoder, self.layer, lambda hidden: hidden + self.vector.to(hidden))

    def save(self, path: Path) -> None:
        """Write the shift; the same shift gives the same file."""
        # one entry, for safetensors writes several in any order
        facts = json.dumps({"layer": self.layer, "made": self.origin}, sort_keys=True)
        with replace_file(path) as temporary:
            save_file({"vector": self.vector.contiguous()}, temporary, {"shift": facts})


def load_shift(path: Path) -> tuple[Shift, dict[str, Any]]:
    """Load a shift, and the facts about it for a card. Raises InputError for a file that holds
    none."""
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads(file.metadata()["shift"])
            shift = Shift(facts["layer"], file.get_tensor("vector").float(), facts["made"])
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no shift ({error}); make it again") from error
    return shift, {"layer": shift.layer, "hash": hash_files([path])} | shift.origin
