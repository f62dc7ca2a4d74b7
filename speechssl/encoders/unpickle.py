"""Reads a `.pt` of torch.save without running anything that is in it: a restricted unpickler.

Tensors are rebuilt. Objects of the libraries that wrote the file (fairseq, omegaconf, argparse, numpy scalars ...) become inert
stand-ins that keep what the pickle gave them; their libraries are never imported. Whatever else a pickle asks for is refused.
"""

from __future__ import annotations

import pickle
import re
import tarfile
import types
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from speechssl.errors import InputError, first_line

INERT = re.compile(
    r"(fairseq|fairseq_cli|examples|omegaconf|hydra|argparse|numpy|sklearn|joblib|collections|copyreg|copy_reg|enum|pathlib|typing)(\.\w+)+"
    r"|torch\.(Size|device)|_codecs\.encode|_?operator\.getitem"
    r"|(builtins|__builtin__)\.(object|type|NoneType|bool|int|long|float|complex|str|unicode|bytes|bytearray|list|tuple|dict|set|frozenset"
    r"|slice|range|getattr)"
)


class Inert:
    """Stands in for an object of a class that is not imported. Keeps what it is given, and does nothing."""

    def __new__(cls, *given: Any, **named: Any) -> Inert:
        self = super().__new__(cls)
        self.given, self.state, self.items = given, None, {}
        return self

    def __init__(self, *given: Any, **named: Any) -> None:
        pass

    given: tuple[Any, ...]
    state: Any
    items: dict[Any, Any]

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value

    def append(self, value: Any) -> None:
        self.items[len(self.items)] = value


def stand_in(module: str, name: str) -> type[Inert] | None:
    """A class for objects that a pickle calls so; None for what is not known to be harmless."""
    return type(re.sub(r"\W", "_", name), (Inert,), {}) if INERT.fullmatch(f"{module}.{name}") else None


def read_pt(path: Path) -> Any:
    """What torch.save wrote: containers, numbers, tensors on the CPU, `Inert` for the rest.

    Raises InputError for a file that is damaged, is no such file, or asks for what no checkpoint needs.
    """

    class Restricted(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            full = f"{module}.{name}"
            if full in TENSORS:
                return lambda *given: TENSORS[full](*given)  # another function, lest a pickle change an attribute of the one
            if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
                return getattr(torch, name)
            if full == "collections.OrderedDict":
                return OrderedDict
            if inert := stand_in(module, name):
                return inert
            raise InputError(f"{path} would execute {full}, which no checkpoint of an encoder needs; do not trust this file")

    module: Any = types.ModuleType("restricted")  # what torch.load takes for the pickle module
    module.Unpickler, module.load = Restricted, lambda file, **options: Restricted(file, **options).load()
    try:
        # what torch.load would run (TorchScript) or unpack (old tar files), and checksums, which it ignores
        mapped = False
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                records = archive.infolist()
                if any(record.filename.endswith("/constants.pkl") for record in records):
                    raise InputError(f"{path} is a TorchScript program, not weights; give the state dict it was made from")
                if damaged := archive.testzip():
                    raise InputError(f"{path} is damaged ({damaged} does not have its checksum); fetch or make it again")
            mapped = all(record.compress_type == zipfile.ZIP_STORED for record in records)  # an optimiser's state is never read
        elif tarfile.is_tarfile(path):
            raise InputError(f"{path} is in the tar format of torch before 0.2; save its state dict again with a newer torch")
        return torch.load(path, map_location="cpu", weights_only=False, pickle_module=module, mmap=mapped)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"there is no file {path}; check the path") from None
    except Exception as error:  # a damaged pickle can raise anything
        raise InputError(
            f"cannot read {path} as a checkpoint of torch.save ({first_line(error)}); fetch or make it again"
        ) from error


def plain(value: Any) -> Any:
    """Stand-ins as the plain values they hold: settings as dictionaries, lists, numbers and text.

    Raises RecursionError for what holds itself.
    """
    if isinstance(value, dict):
        return {plain(key): plain(v) for key, v in value.items() if isinstance(key, (str, int, Inert))}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if not isinstance(value, Inert):
        return value
    state = value.state[0] if isinstance(value.state, tuple) and value.state else value.state
    if isinstance(state, dict):  # omegaconf's containers and nodes have what they hold in one attribute
        return plain(next((state[name] for name in ("_content", "_val") if name in state), state))
    if value.items:
        return plain(value.items)
    return plain(value.given[-1]) if value.given else None  # of an enum its value or name


def _tensor(storage: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> torch.Tensor:
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if min((offset, *size, *stride)) < 0 or (
        0 not in size and (last + 1) * storage.dtype.itemsize > storage._untyped_storage.nbytes()
    ):
        raise ValueError("a tensor reaches beyond its storage")  # torch would make the storage larger, with anything in it
    return torch._utils._rebuild_tensor(storage, offset, size, stride)


TENSORS: dict[str, Callable[..., torch.Tensor]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
}
