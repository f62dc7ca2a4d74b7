"""Published k-means codebooks: what fairseq and DUAL wrote with joblib, read without running anything of the file.

joblib writes a pickle of the estimator in which every array is a small wrapper, with the array's bytes right behind it. A pickle
may name any function and have it called, so this reader knows a handful of names only and gives inert stand-ins for them
(`encoders.unpickle`); any other name ends the reading. Neither joblib nor scikit-learn takes part.
"""

from __future__ import annotations

import bz2
import io
import lzma
import pickle
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from speechssl.encoders.load import load_encoder
from speechssl.encoders.unpickle import Inert
from speechssl.errors import InputError
from speechssl.io import hash_bytes
from speechssl.units.features import encoder_features
from speechssl.units.kmeans import Codebook, check_out, made_before, versions

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
    *(LookupError, ValueError, TypeError, AttributeError, ArithmeticError, MemoryError, RecursionError),
)
OLD = "was written by a joblib before 0.10, with its arrays apart; load it where it was made and write it again with a newer joblib"
JOBLIB = ("joblib.numpy_pickle", "sklearn.externals.joblib.numpy_pickle")
KNOWN = {  # (module, name) -> what it stands for
    **{(module, "NumpyArrayWrapper"): "NumpyArrayWrapper" for module in JOBLIB},
    **{(f"sklearn.cluster.{module}", name): name for module in ("_kmeans", "k_means_") for name in ESTIMATORS},
    **{("numpy", name): name for name in ("ndarray", "dtype")},
    **{(f"numpy.{core}.multiarray", name): name for core in ("core", "_core") for name in ("_reconstruct", "scalar")},
    **{(f"numpy.random.{m}", f"__{n}_ctor"): "random" for m in ("_pickle", "mtrand") for n in ("randomstate", "bit_generator")},
    ("numpy.random", "__RandomState_ctor"): "random",
    ("numpy.random.mtrand", "__RandomState_ctor"): "random",
    ("numpy.random.mtrand", "RandomState"): "random",
    ("numpy.random._mt19937", "MT19937"): "random",
    ("_codecs", "encode"): "encode",
    **{(module, "_reconstructor"): "_reconstructor" for module in ("copyreg", "copy_reg")},
    **{(module, "object"): "object" for module in ("builtins", "__builtin__")},
}


class _Refused(Exception):
    """Whole, but not what can be taken. The message goes on after the name of the file and ends with the remedy."""


def import_codebook(path: Path, out: Path, encoder: str, layer: int) -> Codebook:
    """Write the centroids of a joblib file as a codebook for a layer of an encoder, and return it; once.

    Raises InputError for a file that is not a fitted KMeans or MiniBatchKMeans, for centroids of another width than the layer, and
    where `out` cannot be written or is another codebook.
    """
    check_out(out)
    if encoder == "mfcc":
        raise InputError(
            f"fairseq's MFCCs are scaled differently from those here, so {path} does not fit mfcc; use `speechssl units fit`"
        )
    centroids, made = read_centroids(path)
    model = load_encoder(encoder)
    card = encoder_features(model, layer, 1).card
    if centroids.shape[1] != model.width:
        width = f"{centroids.shape[1]} dimensions, the layers of {encoder} {model.width}"
        raise InputError(f"the centroids of {path} have {width}; give the encoder that it was fitted on")
    codebook = Codebook(centroids, card | {"imported": made, "versions": versions()}, str(out))
    there = made_before(out, card | {"imported": made, "K": codebook.size, "hash": codebook.hash})
    if there is None:
        codebook.save(out)
    return there or codebook


def read_centroids(path: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """(K, D) float32 `cluster_centers_`, and what the card says about the file. Raises InputError as `import_codebook` does."""
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the codebook {path} ({error.strerror}); check the path") from error
    try:
        estimator = _Reader(io.BytesIO(_unpacked(packed))).load()
        kind = type(estimator).__name__
        if not isinstance(estimator, Inert) or kind not in ESTIMATORS:
            raise _Refused(f"holds {kind}, not a KMeans or MiniBatchKMeans; export its centroids where it was made")
        state = estimator.state if isinstance(estimator.state, dict) else {}
        centres = _array(state.get("cluster_centers_"))
        if centres is None or centres.ndim != 2 or not centres.size or centres.dtype.kind != "f" or not np.isfinite(centres).all():
            raise _Refused(f"holds a {kind} without finite cluster_centers_ of the shape (K, D); fit it before it is written")
        version = state.get("_sklearn_version")
        made = {"file": path.name, "hash": hash_bytes(packed), "kind": kind}
        return np.ascontiguousarray(centres, np.float32), made | ({"scikit-learn": version} if isinstance(version, str) else {})
    except _Refused as refusal:
        raise InputError(f"{path} {refusal}") from refusal
    except DAMAGE as error:
        reason = f"{type(error).__name__}: {error}"[:100]
        raise InputError(f"{path} is cut off, damaged, or not a file of joblib ({reason}); download it again") from error


def _unpacked(packed: bytes) -> bytes:
    """The pickle, whatever it was compressed with."""
    if packed.startswith(b"ZF"):
        raise _Refused(OLD)
    if packed.startswith(b"\x04\x22\x4d\x18"):
        raise _Refused("is compressed with LZ4; write it again by joblib.dump with another `compress`")
    packer = next((make() for magic, make in PACKERS.items() if packed.startswith(magic)), None)
    content = packer.decompress(packed, LIMIT + 1) if packer else packed
    if len(content) > LIMIT:
        raise _Refused(f"holds more than {LIMIT} bytes, which no codebook does; check what it is")
    if packer and not packer.eof:
        raise EOFError("the compressed data end early")
    return content


def _array(stand_in: Any) -> np.ndarray | None:
    """The array that an object of the file stands for; None where it stands for none."""
    kind = type(stand_in).__name__ if isinstance(stand_in, Inert) else ""
    if kind == "NumpyArrayWrapper":
        shape, order, dtype, content = *(stand_in.state[name] for name in ("shape", "order", "dtype")), stand_in.items["content"]
    elif kind == "_reconstruct":  # of a plain pickle
        _, shape, dtype, fortran, content = stand_in.state
        order = "F" if fortran else "C"
    else:
        return None
    return np.frombuffer(content, _dtype(dtype)).reshape(shape, order="F" if order == "F" else "C")


def _dtype(stand_in: Any) -> np.dtype:
    """The type of number that an object of the file stands for. Raises _Refused for structures and objects."""
    kind = type(stand_in).__name__
    name = stand_in.given[0] if kind == "dtype" and stand_in.given else None
    if not isinstance(name, str) or not NUMBERS.fullmatch(name):
        raise _Refused(f"holds arrays of {name or kind}, not only of numbers; export its centroids where it was made")
    return np.dtype((">" if stand_in.state and stand_in.state[1] == ">" else "<") + name)


class _Reader(pickle._Unpickler):  # type: ignore[name-defined]
    """All that a file can call are makers of stand-ins. The unpickler written in Python, for arrays lie between the opcodes."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)  # type: ignore[attr-defined, assignment]

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, encoding="latin-1")
        self.file = file

    def find_class(self, module: str, name: str) -> Any:
        if name in ("NDArrayWrapper", "ZNDArrayWrapper"):
            raise _Refused(OLD)
        kind = KNOWN.get((module, name))
        if kind is None:
            raise _Refused(
                f"names {module}.{name}, which no codebook needs; only fitted KMeans and MiniBatchKMeans can be imported"
            )
        if kind == "encode":  # how pickles of protocol 2 and below write bytes
            return lambda text, *_: str(text).encode("latin-1")
        if kind == "_reconstructor":  # how they write objects
            return lambda made, *_: made()
        return type(kind, (Inert,), {})

    def load_build(self) -> None:
        super().load_build()  # type: ignore[misc]
        made = self.stack[-1]  # type: ignore[attr-defined]
        if type(made).__name__ != "NumpyArrayWrapper":
            return
        # what follows a wrapper in the file: a count of padding, padding (joblib from 1.2 on), the numbers
        if made.state.get("numpy_array_alignment_bytes") is not None:
            self.file.read(self.file.read(1)[0])
        size = int(np.prod([int(n) for n in made.state["shape"]], dtype=object)) * _dtype(made.state["dtype"]).itemsize
        made.items["content"] = self.file.read(max(size, 0))
        if len(made.items["content"]) != size:
            raise EOFError("an array is not whole")

    dispatch[pickle.BUILD[0]] = load_build
