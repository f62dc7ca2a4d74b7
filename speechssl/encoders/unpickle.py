"""Reads a `.pt` of torch.save, or a codebook of joblib, without running anything that is in it:
restricted unpicklers.

Tensors are rebuilt. Objects of the libraries that wrote the file (fairseq, omegaconf, argparse,
numpy scalars ...) become inert stand-ins that keep what the pickle gave them; their libraries are
never imported. Whatever else a pickle asks for is refused.
"""

from __future__ import annotations

import bz2
import io
import lzma
import pickle
import re
import struct
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

from speechssl.artifacts import hash_bytes
from speechssl.errors import InputError, first_line

INERT = re.compile(
    r"(fairseq|fairseq_cli|examples|omegaconf|hydra|argparse|numpy|sklearn|joblib|collections|copyreg|copy_reg|enum|pathlib|typing)(\.\w+)+"
    r"|torch\.(Size|device)|_codecs\.encode|_?operator\.getitem"
    r"|(builtins|__builtin__)\.(object|type|NoneType|bool|int|long|float|complex|str|unicode|bytes|bytearray|list|tuple|dict|set|frozenset"
    r"|slice|range|getattr)"
)


class Inert:
    """Stands in for an object of a class that is not imported. Keeps what it is given, and does
    nothing."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Inert:
        self = super().__new__(cls)
        self.args, self.state, self.items = args, None, {}
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    args: tuple[Any, ...]
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
    return (
        type(re.sub(r"\W", "_", name), (Inert,), {})
        if INERT.fullmatch(f"{module}.{name}")
        else None
    )


def read_pt(path: Path) -> Any:
    """What torch.save wrote: containers, numbers, tensors on the CPU, `Inert` for the rest.

    Raises InputError for a file that is damaged, is no such file, or asks for what no checkpoint
    needs.
    """

    class Restricted(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            full = f"{module}.{name}"
            if full in TENSORS:
                # another function, lest a pickle change an attribute of the one
                return lambda *args: TENSORS[full](*args)
            if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
                return getattr(torch, name)
            if full == "collections.OrderedDict":
                return OrderedDict
            if inert := stand_in(module, name):
                return inert
            raise InputError(
                f"{path} would execute {full}, which no checkpoint of an encoder "
                "needs; do not trust this file"
            )

    module: Any = types.ModuleType("restricted")  # what torch.load takes for the pickle module
    module.Unpickler, module.load = (
        Restricted,
        lambda file, **options: Restricted(file, **options).load(),
    )
    try:
        # what torch.load would run (TorchScript) or unpack (old tar files), and checksums, which it
        # ignores
        mapped = False
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                records = archive.infolist()
                if any(record.filename.endswith("/constants.pkl") for record in records):
                    raise InputError(
                        f"{path} is a TorchScript program, not weights; give the "
                        "state dict it was made from"
                    )
                if damaged := archive.testzip():
                    raise InputError(
                        f"{path} is damaged ({damaged} does not have its checksum); "
                        "fetch or make it again"
                    )
            # an optimiser's state is never read
            mapped = all(record.compress_type == zipfile.ZIP_STORED for record in records)
        elif tarfile.is_tarfile(path):
            raise InputError(
                f"{path} is in the tar format of torch before 0.2; save its state "
                "dict again with a newer torch"
            )
        return torch.load(
            path, map_location="cpu", weights_only=False, pickle_module=module, mmap=mapped
        )
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"there is no file {path}; check the path") from None
    except Exception as error:  # a damaged pickle can raise anything
        raise InputError(
            f"cannot read {path} as a checkpoint of torch.save ({first_line(error)}); fetch or "
            "make it again"
        ) from error


def plain(value: Any) -> Any:
    """Stand-ins as the plain values they hold: settings as dictionaries, lists, numbers and text.

    Raises RecursionError for what holds itself.
    """
    if isinstance(value, dict):
        return {
            plain(key): plain(v) for key, v in value.items() if isinstance(key, (str, int, Inert))
        }
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if not isinstance(value, Inert):
        return value
    state = value.state[0] if isinstance(value.state, tuple) and value.state else value.state
    # omegaconf's containers and nodes have what they hold in one attribute
    if isinstance(state, dict):
        return plain(next((state[name] for name in ("_content", "_val") if name in state), state))
    if value.items:
        return plain(value.items)
    return plain(value.args[-1]) if value.args else None  # of an enum its value or name


def _tensor(
    storage: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
) -> torch.Tensor:
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if min((offset, *size, *stride)) < 0 or (
        0 not in size and (last + 1) * storage.dtype.itemsize > storage._untyped_storage.nbytes()
    ):
        # torch would make the storage larger, with anything in it
        raise ValueError("a tensor reaches beyond its storage")
    return torch._utils._rebuild_tensor(storage, offset, size, stride)


TENSORS: dict[str, Callable[..., torch.Tensor]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
}


# ---- codebooks of joblib: a pickle of the estimator, in which every array is a small wrapper with
# the array's bytes behind it

LIMIT = 1 << 30  # bytes of a file, unpacked: 100 times the largest published codebook
PACKERS: dict[bytes, Callable[[], Any]] = {  # first bytes -> decompressor
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31),
    b"BZ": bz2.BZ2Decompressor,
    b"\xfd7zXZ": lzma.LZMADecompressor,
    b"]\x00": lzma.LZMADecompressor,
    b"\x78": zlib.decompressobj,
}
ESTIMATORS = ("KMeans", "MiniBatchKMeans")
NUMBERS = re.compile(r"[fiu][1248]|b1")  # dtypes of what an estimator holds
DAMAGE = (
    *(pickle.UnpicklingError, struct.error, zlib.error, lzma.LZMAError, EOFError, OSError),
    *(
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
        MemoryError,
        RecursionError,
    ),
)
OLD = (
    "was written by a joblib before 0.10, with its arrays apart; load it where it was made and "
    "write it again with a newer joblib"
)


class _Refused(Exception):
    """Whole, but not what can be taken. The message goes on after the name of the file and ends
    with the remedy."""


def read_centroids(path: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """(K, D) float32 `cluster_centers_`, and what the card says about the file. Raises InputError
    for a file that is no fitted KMeans or MiniBatchKMeans."""
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read the codebook {path} ({error.strerror}); check the path"
        ) from error
    try:
        estimator = _Reader(io.BytesIO(_unpacked(packed))).load()
        kind = type(estimator).__name__
        if not isinstance(estimator, Inert) or kind not in ESTIMATORS:
            raise _Refused(
                f"holds {kind}, not a KMeans or MiniBatchKMeans; export its centroids "
                "where it was made"
            )
        state = estimator.state if isinstance(estimator.state, dict) else {}
        centres = _array(state.get("cluster_centers_"))
        if (
            centres is None
            or centres.ndim != 2
            or not centres.size
            or centres.dtype.kind != "f"
            or not np.isfinite(centres).all()
        ):
            raise _Refused(
                f"holds a {kind} without finite cluster_centers_ of the shape (K, D); "
                "fit it before it is written"
            )
        version = state.get("_sklearn_version")
        origin = {"file": path.name, "hash": hash_bytes(packed), "kind": kind}
        return np.ascontiguousarray(centres, np.float32), origin | (
            {"scikit-learn": version} if isinstance(version, str) else {}
        )
    except _Refused as refusal:
        raise InputError(f"{path} {refusal}") from refusal
    except DAMAGE as error:
        reason = f"{type(error).__name__}: {error}"[:100]
        raise InputError(
            f"{path} is cut off, damaged, or not a file of joblib ({reason}); download it again"
        ) from error


def _unpacked(packed: bytes) -> bytes:
    """The pickle, whatever it was compressed with."""
    if packed.startswith(b"ZF"):
        raise _Refused(OLD)
    if packed.startswith(b"\x04\x22\x4d\x18"):
        raise _Refused(
            "is compressed with LZ4; write it again by joblib.dump with another `compress`"
        )
    packer = next((make() for magic, make in PACKERS.items() if packed.startswith(magic)), None)
    content = packer.decompress(packed, LIMIT + 1) if packer else packed
    if len(content) > LIMIT:
        raise _Refused(f"holds more than {LIMIT} bytes, which no codebook does; check what it is")
    if packer and not packer.eof:
        raise EOFError("the compressed data end early")
    return content


def _array(inert: Any) -> np.ndarray | None:
    """The array that an object of the file stands for; None where it stands for none."""
    kind = type(inert).__name__ if isinstance(inert, Inert) else ""
    if kind == "NumpyArrayWrapper":
        shape, order, dtype, content = (
            *(inert.state[name] for name in ("shape", "order", "dtype")),
            inert.items["content"],
        )
    elif kind == "_reconstruct":  # of a plain pickle
        _, shape, dtype, fortran, content = inert.state
        order = "F" if fortran else "C"
    else:
        return None
    return np.frombuffer(content, _dtype(dtype)).reshape(shape, order="F" if order == "F" else "C")


def _dtype(inert: Any) -> np.dtype:
    """The type of number that an object of the file stands for. Raises _Refused for structures and
    objects."""
    kind = type(inert).__name__
    name = inert.args[0] if kind == "dtype" and inert.args else None
    if not isinstance(name, str) or not NUMBERS.fullmatch(name):
        raise _Refused(
            f"holds arrays of {name or kind}, not only of numbers; export its "
            "centroids where it was made"
        )
    return np.dtype((">" if inert.state and inert.state[1] == ">" else "<") + name)


class _Reader(pickle._Unpickler):  # type: ignore[name-defined]
    """All that a file can call are makers of stand-ins. The unpickler written in Python, for arrays
    lie between the opcodes."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)  # type: ignore[attr-defined, assignment]

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, encoding="latin-1")
        self.file = file

    def find_class(self, module: str, name: str) -> Any:
        if name in ("NDArrayWrapper", "ZNDArrayWrapper"):
            raise _Refused(OLD)
        # how pickles of protocol 2 and below write bytes
        if (module, name) == ("_codecs", "encode"):
            return lambda text, *_: str(text).encode("latin-1")
        if name == "_reconstructor" and module in ("copyreg", "copy_reg"):  # how they write objects
            return lambda kind, *_: kind()
        if inert := stand_in(module, name):
            return inert
        raise _Refused(
            f"names {module}.{name}, which no codebook needs; only fitted KMeans and "
            "MiniBatchKMeans can be imported"
        )

    def load_build(self) -> None:
        super().load_build()  # type: ignore[misc]
        wrapper = self.stack[-1]  # type: ignore[attr-defined]
        if type(wrapper).__name__ != "NumpyArrayWrapper":
            return
        # what follows a wrapper in the file: a count of padding, padding (joblib from 1.2 on), the
        # numbers
        if wrapper.state.get("numpy_array_alignment_bytes") is not None:
            self.file.read(self.file.read(1)[0])
        size = (
            int(np.prod([int(n) for n in wrapper.state["shape"]], dtype=object))
            * _dtype(wrapper.state["dtype"]).itemsize
        )
        wrapper.items["content"] = self.file.read(max(size, 0))
        if len(wrapper.items["content"]) != size:
            raise EOFError("an array is not whole")

    dispatch[pickle.BUILD[0]] = load_build
