"""A `.pt` of torch.save, or a codebook of joblib, is read by a restricted unpickler, which runs no
code in the file.

Tensors and arrays are rebuilt. Objects of the libraries that wrote the file (fairseq, omegaconf,
argparse, scikit-learn ...) become inert stand-ins that hold the values in the pickle. Everything
else is refused.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import re
import tarfile
import types
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy._core import multiarray

from speechssl.artifacts import hash_bytes
from speechssl.errors import InputError, cut_error

# Names that become stand-ins: classes of these packages, such as omegaconf.dictconfig.DictConfig,
# and some builtins.
INERT = re.compile(
    r"(fairseq|fairseq_cli|examples|omegaconf|hydra|argparse|numpy|sklearn|joblib|collections"
    r"|copyreg|copy_reg|enum|pathlib|typing)(\.\w+)+"
    r"|torch\.(Size|device)|_?operator\.getitem"
    r"|(builtins|__builtin__)\.(object|type|NoneType|bool|int|long|float|complex|str|unicode|bytes"
    r"|bytearray|list|tuple|dict|set|frozenset|slice|range|getattr)"
)
# Functions that a file may call, by name.
ALLOWED: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": torch._utils._rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": torch._utils._rebuild_tensor_v2,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "numpy.core.multiarray._reconstruct": multiarray._reconstruct,
    "numpy._core.multiarray._reconstruct": multiarray._reconstruct,
    "numpy.core.multiarray.scalar": multiarray.scalar,
    "numpy._core.multiarray.scalar": multiarray.scalar,
    # pickles of protocol 2 and below write bytes and objects in this way
    "_codecs.encode": lambda text, *_: str(text).encode("latin-1"),
    "copyreg._reconstructor": lambda kind, *_: kind(),
    "copy_reg._reconstructor": lambda kind, *_: kind(),
}
CLASSES = {
    "collections.OrderedDict": OrderedDict,
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
}


class Inert:
    """This stands for an object of a class that is not imported. It holds the values that it is
    given, and does nothing."""

    args: tuple[Any, ...]
    state: Any
    items: dict[Any, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Inert:
        self = super().__new__(cls)
        self.args, self.state, self.items = args, None, {}
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value

    def append(self, value: Any) -> None:
        self.items[len(self.items)] = value


class Restricted(pickle._Unpickler):  # type: ignore[name-defined]
    """This unpickler lets a file call only the functions above and make stand-ins. It is based on
    the unpickler in Python, because joblib writes the bytes of arrays between the opcodes."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)  # type: ignore[attr-defined, assignment]

    def __init__(self, file: Any, **options: Any) -> None:
        super().__init__(file, **options)
        self.file = file

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name in the pickle stands for. Raises UnpicklingError for other names."""
        full = f"{module}.{name}"
        if full in ALLOWED:
            # a new function, because a pickle could change the attributes of this one
            return lambda *args: ALLOWED[full](*args)
        if full in CLASSES:
            return CLASSES[full]
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if INERT.fullmatch(full):
            return type(re.sub(r"\W", "_", name), (Inert,), {})
        raise pickle.UnpicklingError(f"it would execute {full}; do not trust this file")

    def load_build(self) -> None:
        """Read the array behind a wrapper of joblib, as soon as the wrapper is complete."""
        super().load_build()  # type: ignore[misc]
        wrapper = self.stack[-1]  # type: ignore[attr-defined]
        if type(wrapper).__name__ != "NumpyArrayWrapper":
            return
        # after a wrapper follow the number of padding bytes and the padding (joblib from 1.2 on),
        # and the array
        if wrapper.state.get("numpy_array_alignment_bytes") is not None:
            self.file.read(self.file.read(1)[0])
        shape, dtype = wrapper.state["shape"], wrapper.state["dtype"]
        size = int(np.prod([int(n) for n in shape], dtype=object)) * dtype.itemsize
        numbers = np.frombuffer(self.file.read(max(size, 0)), dtype)
        order = wrapper.state["order"]
        wrapper.items["array"] = numbers.reshape(shape, order="F" if order == "F" else "C")

    dispatch[pickle.BUILD[0]] = load_build


def read_pt(path: Path) -> Any:
    """Read a file of torch.save: containers, numbers, tensors on the CPU, and `Inert` objects.

    Raises InputError for a file that is damaged, is not of torch.save, or uses names that no
    checkpoint needs.
    """
    module: Any = types.ModuleType("restricted")  # torch.load takes it for the pickle module
    module.Unpickler = Restricted
    module.load = lambda file, **options: Restricted(file, **options).load()
    try:
        mapped = False
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                records = archive.infolist()
                damaged = archive.testzip()  # checksums, which torch ignores
            if damaged:
                raise ValueError(f"{damaged} does not have its checksum")
            # torch.load would run the program
            if any(record.filename.endswith("/constants.pkl") for record in records):
                raise ValueError("it is a TorchScript program, not weights")
            # mapped to memory: the state of an optimiser is never read from the disk
            mapped = all(record.compress_type == zipfile.ZIP_STORED for record in records)
        elif tarfile.is_tarfile(path):  # torch.load would unpack it
            raise ValueError("it is in the tar format of torch before 0.2")
        return torch.load(
            path, map_location="cpu", weights_only=False, pickle_module=module, mmap=mapped
        )
    except Exception as error:  # a damaged pickle can raise anything
        raise InputError(
            f"cannot read {path} as a checkpoint of torch.save ({cut_error(error)}); fetch or "
            "make it again"
        ) from error


def replace_stand_ins(value: Any) -> Any:
    """Replace every stand-in in fairseq's settings by the value that it holds: a dictionary, list,
    number or text."""
    if isinstance(value, dict):
        items = {}
        for key, item in value.items():
            if isinstance(key, (str, int, Inert)):
                items[replace_stand_ins(key)] = replace_stand_ins(item)
        return items
    if isinstance(value, (list, tuple)):
        return [replace_stand_ins(item) for item in value]
    if not isinstance(value, Inert):
        return value
    state = value.state[0] if isinstance(value.state, tuple) and value.state else value.state
    # omegaconf's containers have their content in one attribute, its nodes in another
    if isinstance(state, dict):
        return replace_stand_ins(state.get("_content", state.get("_val", state)))
    if value.items:
        return replace_stand_ins(value.items)
    return replace_stand_ins(value.args[-1]) if value.args else None  # the value or name of an enum


# ---- codebooks of joblib: a pickle of the estimator, in which every array is a wrapper followed by
# the bytes of the array

# first bytes of a compressed file -> function that decompresses it
DECOMPRESSORS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZ": bz2.decompress,
    b"\xfd7zXZ": lzma.decompress,
    b"]\x00": lzma.decompress,
    b"\x78": zlib.decompress,
}


def read_centroids(path: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """Return (K, D) float32 `cluster_centers_`, and the origin of the file for the card. Raises
    InputError for a file that is no fitted KMeans or MiniBatchKMeans."""
    try:
        packed = path.read_bytes()
        content = packed
        for first_bytes, decompress in DECOMPRESSORS.items():
            if packed.startswith(first_bytes):
                content = decompress(packed)
        estimator = Restricted(io.BytesIO(content), encoding="latin-1").load()
        state = estimator.state
        centres = state["cluster_centers_"]
        centres = centres.items["array"] if isinstance(centres, Inert) else centres
        centres = np.ascontiguousarray(centres, np.float32)
    except Exception as error:  # a damaged pickle can raise anything
        raise InputError(
            f"cannot read {path} as a fitted KMeans or MiniBatchKMeans of joblib "
            f"({type(error).__name__}: {cut_error(error)}); fetch it again, or export its "
            "centroids where it was made"
        ) from error
    kind = type(estimator).__name__
    origin = {"file": path.name, "hash": hash_bytes(packed), "kind": kind}
    version = state.get("_sklearn_version")
    if isinstance(version, str):
        origin["scikit-learn"] = version
    return centres, origin
