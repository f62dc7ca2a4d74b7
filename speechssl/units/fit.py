"""Codebooks: fitted on recordings drawn at random, transferred to another encoder, or imported from what others published.

`transfer_codebook` is for after continual pre-training: the units keep their numbers and their meaning, and what was trained on the
old ones (DUAL's reader, a unit language model) goes on.

`import_codebook` reads what fairseq and DUAL wrote with joblib, without running anything of the file (`encoders.unpickle`). joblib
writes a pickle of the estimator in which every array is a small wrapper, with the array's bytes right behind it.
"""

from __future__ import annotations

import bz2
import io
import lzma
import os
import pickle
import re
import struct
import warnings
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.augment.training import parse_distortions
from speechssl.data.files import Recording, draw, hash_contents, recordings_of
from speechssl.data.records import data_hash
from speechssl.encoders.load import load_encoder, single_threaded
from speechssl.encoders.unpickle import Inert, stand_in
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import hash_bytes
from speechssl.units.config import FitOptions, TransferOptions
from speechssl.units.features import SPECTRAL, encoder_features, features_of, frames_of, in_order, load_features
from speechssl.units.kmeans import Codebook, Reservoir, check_out, fit_kmeans, load_codebook, made_before, versions

ITERATIONS = 100  # of L-BFGS


def fit_units(source: Path, encoder: str, out: Path, options: FitOptions) -> Codebook:
    """Fit on recordings drawn from a prepared corpus (its passages), a manifest or a folder; once.

    encoder: folder, hub id or shipped name, or one of `SPECTRAL`. Recordings that cannot be used are listed and left out.
    Raises InputError where `out` cannot be written or is a codebook that was made from other inputs, where nothing can be used, and
    for options that exclude each other.
    """
    check_out(out)
    check_spectral(encoder, options.precision, options.device)
    if encoder in SPECTRAL and options.layer is not None:
        raise InputError(f"{encoder} has no layer {options.layer}; leave out --layer")
    workers = options.workers or len(os.sched_getaffinity(0))
    with single_threaded(workers) as pool:
        torch.set_num_threads(1)  # here too, or what an encoder folds as it is loaded had other bits; the end puts it back
        features = load_features(encoder, options.layer, options.smooth, options.precision, options.device, options.margin)
        recordings, data = drawn_from(source, options.recordings, options.split, options.seed, options.share)
        sampling: dict[str, Any]
        card, sampling = features.card | data, {"budget": options.budget, "seed": options.seed, "starts": options.starts}
        sampling["standardise"] = options.standardise
        card["margin"] = options.margin
        made = made_before(out, card | {"K": options.clusters} | sampling)
        if made is not None:
            return made
        codebook = fit_kmeans(frames_of(recordings, features, pool, workers), options.clusters, card, **sampling)
        codebook.save(out)
        return codebook


def check_spectral(encoder: str, precision: str | None, device: str) -> None:
    """Raises InputError for what only encoders have, where this is none of them."""
    if encoder not in SPECTRAL:
        return
    if precision not in (None, "fp32", "auto"):
        raise InputError(f"{encoder} is computed in fp32, not in {precision}; leave out --precision")
    if device not in ("auto", "cpu"):
        raise InputError(f"{encoder} is computed on the CPU, not on {device}; leave out --device")


def drawn_from(
    source: Path, count: int | None, split: str, seed: int, share: float | None = None
) -> tuple[list[Recording], dict[str, Any]]:
    """What `draw` takes of the passages of a prepared corpus or the recordings of another source, and what the card says of it."""
    chosen, drawn = draw(recordings_of(source, split), seed, share, count)
    is_corpus = any(source.glob("*/passages.jsonl"))
    return chosen, {"data": data_hash(source, split) if is_corpus else hash_contents(chosen)} | drawn


def transfer_codebook(source: Path, encoder: str, codebook: Path, other: str, out: Path, options: TransferOptions) -> Codebook:
    """A codebook for the encoder `other` whose unit k means what unit k of `codebook`, made for `encoder`, means; once.

    Centroid k is the mean of the other encoder's features (same layer, same smoothing) over the frames of clean recordings that the
    old codebook gives unit k: one step of k-means from the old assignment. A linear head (`linear_head`) learns the old units of
    clean recordings from the features of these and of their distorted versions. The card keeps the share of clean frames that then
    have the same unit (`agreement`). Raises InputError where the encoders' frames do not fit each other, a unit never occurs, or
    options exclude each other.
    """
    linear = options.read_out == "linear"
    if options.distort and not linear:
        raise InputError("means are of clean speech; leave out --distort, or give --read-out linear")
    distort = (
        parse_distortions(options.distort, seed=options.seed, probability=(1, 1), snr=options.snr_range)
        if options.distort
        else None
    )
    check_out(out)
    old = load_codebook(codebook)
    before = features_of(old, encoder, options.precision, options.device)
    margin = before.margin if options.margin is None else options.margin
    after = load_features(other, before.layer, before.smooth, options.precision, options.device, margin)
    if before.grid != after.grid:
        raise InputError(f"{other} has other frames than {encoder}; fit a codebook for it with `speechssl units fit`")
    recordings, data = drawn_from(source, options.recordings, options.split, options.seed)
    card = after.card | data | {"carried_from": old.hash, "K": old.size, "seed": options.seed}
    if linear:
        card |= {"read_out": "linear head on the units of another encoder", "budget": options.budget}
        card |= {"distort": distort.card} if distort else {}
    if old.names[1:]:
        card["transferred_through"] = list(old.names[1:])
    if (made := made_before(out, card)) is not None:
        return made

    def pairs_of(recording: Recording) -> tuple[np.ndarray, list[np.ndarray]]:
        """(T,) old units; and features (T, D) of the other encoder, of clean and of distorted speech."""
        samples = read_audio(recording.path)
        units = old.assign(torch.cat(list(before.stream(samples))))
        versions = [samples] if distort is None else [samples, distort.apply(samples, recording.id)[0]]
        return units, [torch.cat(list(after.stream(version))).numpy() for version in versions]

    failed, used = {}, []
    counts, drawn = np.zeros(old.size), Reservoir(options.budget, options.seed)
    total: Any = 0.0
    workers = options.workers or len(os.sched_getaffinity(0))
    with single_threaded(workers) as pool:
        jobs = in_order(pool, pairs_of, recordings, workers)
        for recording, future in tqdm(jobs, total=len(recordings), desc="transferring units", unit="file"):
            try:
                units, versions = future.result()
                counts += np.bincount(units, minlength=old.size)
                if linear:
                    for features in versions:
                        drawn.add(np.column_stack([features, units]))
                else:
                    sums = np.zeros((old.size, versions[0].shape[1]))
                    np.add.at(sums, units, versions[0].astype(np.float64))
                    total = total + sums
                used.append(recording)
            except (InputError, ValueError) as error:
                failed[recording.id] = str(error)
        tell_set_aside(failed, "transferring units")
        if not counts.all():
            missing = int((counts == 0).sum())
            raise InputError(f"{missing} of {old.size} units never occur in these recordings; give more of them with --recordings")
        if linear:
            weights, offsets = linear_head(drawn.sample[:, :-1], drawn.sample[:, -1].astype(int), old.size)
            found = Codebook(weights, card, offsets=offsets)
        else:
            found = Codebook((total / counts[:, None]).astype(np.float32), card)

        def same(recording: Recording) -> np.ndarray:
            """(T,) whether both codebooks give a frame of clean speech the same unit."""
            samples = read_audio(recording.path)
            return old.assign(torch.cat(list(before.stream(samples)))) == found.assign(torch.cat(list(after.stream(samples))))

        shared = np.concatenate([future.result() for _, future in in_order(pool, same, used[:50], workers)])
    transferred = replace(found, card=card | {"agreement": round(float(shared.mean()), 4)})
    transferred.save(out)
    return transferred


def linear_head(features: np.ndarray, units: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Multinomial logistic regression: features (N, D) -> units (N,). Weights (K, D) and offsets (K,) float32 of raw features.

    A unit of which no frame was drawn is never given.
    """
    from sklearn.exceptions import ConvergenceWarning  # slow to import
    from sklearn.linear_model import LogisticRegression

    mean, scale = features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64) + 1e-9
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # ITERATIONS are enough: more change one frame in a thousand
        fitted = LogisticRegression(max_iter=ITERATIONS).fit((features - mean) / scale, units)
    rows, intercepts = fitted.coef_ / scale, fitted.intercept_
    if len(fitted.classes_) == 2:  # has one row, whose sign decides
        rows, intercepts = np.concatenate([-rows, rows]), np.concatenate([-intercepts, intercepts])
    weights, offsets = np.zeros((size, features.shape[1])), np.full(size, -1e9)
    weights[fitted.classes_], offsets[fitted.classes_] = rows, intercepts - rows @ mean
    return weights.astype(np.float32), offsets.astype(np.float32)


# ---- published codebooks

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


class _Refused(Exception):
    """Whole, but not what can be taken. The message goes on after the name of the file and ends with the remedy."""


def import_codebook(path: Path, out: Path, encoder: str, layer: int) -> Codebook:
    """Write the centroids of a joblib file as a codebook for a layer of an encoder, and return it; once.

    Raises InputError for a file that is not a fitted KMeans or MiniBatchKMeans, for centroids of another width than the layer, and
    where `out` cannot be written or is another codebook.
    """
    check_out(out)
    if encoder in SPECTRAL:
        raise InputError(f"{path} does not fit {encoder}, as fairseq scales its features differently; use `speechssl units fit`")
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
        if (module, name) == ("_codecs", "encode"):  # how pickles of protocol 2 and below write bytes
            return lambda text, *_: str(text).encode("latin-1")
        if name == "_reconstructor" and module in ("copyreg", "copy_reg"):  # how they write objects
            return lambda made, *_: made()
        if inert := stand_in(module, name):
            return inert
        raise _Refused(f"names {module}.{name}, which no codebook needs; only fitted KMeans and MiniBatchKMeans can be imported")

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
