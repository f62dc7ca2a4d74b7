"""Encode recordings under one condition into features of every system: step 1 of an evaluation.

All systems get the same samples. A system's features (such as units or a transcript) are kept in a
store, a line for each recording, until the predictions are written, so that a killed run goes on
with the next recording. A recording that one system cannot encode is still encoded by the others.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.artifacts import name_refused_file
from speechssl.audio import read_audio
from speechssl.augment import Condition, Distorter
from speechssl.augment.conditions import FrozenDistorter
from speechssl.errors import InputError
from speechssl.processes import trim_memory

TRIM_EVERY = 16  # recordings


@dataclass(frozen=True)
class Recording:
    """A recording of an evaluation has a file or the reason why it has none."""

    name: str  # unique; decides the random numbers of the distortion
    path: Path | InputError
    record: Any = None  # the passage or question that is spoken in it, if any


@dataclass
class Encoded:
    """One system's features of recordings, or their errors, are kept by the recordings' names."""

    features: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # the errors of the other recordings

    def check(self, label: str) -> None:
        """Raise InputError where all recordings failed."""
        if self.failed and not self.features:
            reason = next(iter(self.failed.values()))
            raise InputError(
                f"{label}: none of the {len(self.failed)} recordings could be encoded ({reason}); "
                "fix them"
            )


@dataclass(frozen=True)
class Job:
    """A job is a system that encodes some of the recordings."""

    name: str
    # Called with the record and samples (N,), float32 at 16 kHz (None where it needs no audio), by
    # several threads at once; returns features. Raises InputError or ValueError where it cannot.
    encode: Callable[[Any, Any], Any]
    recordings: Collection[str]  # names of those that the system needs
    needs_audio: bool = True
    store: JsonStore | None = None


def encode_recordings(
    jobs: Sequence[Job],
    recordings: Iterable[Recording],
    condition: Condition,
    distorter: Distorter | FrozenDistorter,
    workers: int,
    title: str,
) -> dict[str, Encoded]:
    """Encode every recording with every system that needs it; return the features by system.

    title: of the progress bar. A recording fails where it cannot be read or is silent, and for a
    system that cannot encode it. Raises InputError for missing or unreadable noise.
    """
    from speechssl.encoders.encoder import open_pool

    encoded = {job.name: Encoded(dict(job.store.features) if job.store else {}) for job in jobs}
    missing: list[tuple[Recording, list[Job]]] = []
    for recording in recordings:
        jobs_left = []
        for job in jobs:
            is_encoded = recording.name in encoded[job.name].features
            if recording.name in job.recordings and not is_encoded:
                jobs_left.append(job)
        if jobs_left:
            missing.append((recording, jobs_left))

    def encode(recording: Recording, jobs_left: Sequence[Job]) -> list[Any]:
        """Return the features of a recording, or the error, for each of these systems."""
        samples: Any = None
        if any(job.needs_audio for job in jobs_left):
            samples = _read(recording, condition, distorter)
        outputs = []
        for job in jobs_left:
            if job.needs_audio and isinstance(samples, Exception):
                outputs.append(samples)
                continue
            try:
                outputs.append(job.encode(recording.record, samples if job.needs_audio else None))
            except (InputError, ValueError) as error:
                outputs.append(error)
        return outputs

    with open_pool(workers) as pool:
        results = pool.map(lambda pair: encode(*pair), missing)
        progress = tqdm(results, title, len(missing), unit="file", disable=not missing)
        for number, outputs in enumerate(progress):
            recording, jobs_left = missing[number]
            if number % TRIM_EVERY == 0:
                trim_memory()
            for job, output in zip(jobs_left, outputs, strict=True):
                if isinstance(output, Exception):
                    encoded[job.name].failed[recording.name] = str(output)
                    continue
                encoded[job.name].features[recording.name] = output
                if job.store:
                    job.store.add(recording.name, output)
    return encoded


def _read(
    recording: Recording, condition: Condition, distorter: Distorter | FrozenDistorter
) -> Any:
    """Return distorted samples (N,), or the error where the recording cannot be read or is silent.
    Raises InputError for missing or unreadable noise."""
    if isinstance(recording.path, InputError):
        return recording.path
    try:
        samples = read_audio(recording.path)
    except (InputError, ValueError) as error:
        return error
    try:
        return distorter.apply(samples, condition, recording.name)
    except ValueError as error:  # silent speech
        return error


# ---- the store


class JsonStore:
    """A store is a file of JSON lines: first the hash of the inputs, then [name of a recording, its
    features] (`serialise`).

    `features` has the recordings that an interrupted run encoded; none where the file was made from
    other inputs. A recording whose line a kill cut short is encoded again. Only one process may use
    a store: the output folder is locked.
    """

    def __init__(self, path: Path, made_from: str) -> None:
        self.path, self.made_from = path, made_from
        self.features: dict[str, Any] = {}
        self._complete_bytes = 0  # length of the complete lines
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        if not lines or lines[0] != _encode_line(made_from):
            return
        complete_lines = [line for line in lines if line.endswith(b"\n")]
        self._complete_bytes = sum(map(len, complete_lines))
        for line in complete_lines[1:]:
            name, features = json.loads(line)
            self.features[name] = deserialise(features)

    def add(self, recording: str, features: Any) -> None:
        """Append the features of a recording."""
        content = _encode_line([recording, serialise(features)])
        if not self._complete_bytes:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            content = _encode_line(self.made_from) + content
        mode = "r+b" if self._complete_bytes else "wb"
        with name_refused_file(self.path), self.path.open(mode) as file:
            file.seek(self._complete_bytes)
            file.truncate()
            file.write(content)
        self._complete_bytes += len(content)

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)


def _encode_line(value: Any) -> bytes:
    """Encode a value as a line of JSON."""
    return json.dumps(value).encode() + b"\n"


def serialise(value: Any) -> Any:
    """Turn features into values of JSON. Arrays, tuples and dicts become {"array": ...}, {"tuple":
    ...} and {"dict": ...}; dataclasses and named tuples {"class": ..., "fields": ...}. Raises
    TypeError for any other type."""
    if isinstance(value, (np.ndarray, np.generic)):
        data = base64.b64encode(value.tobytes()).decode()
        return {"array": [value.dtype.str, value.shape, data]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [serialise(part) for part in value]
    if isinstance(value, dict):
        return {"dict": [[serialise(key), serialise(part)] for key, part in value.items()]}
    names = _list_fields(type(value))
    if names:
        parts = [serialise(getattr(value, name)) for name in names]
        return {"class": [type(value).__module__, type(value).__qualname__], "fields": parts}
    if isinstance(value, tuple):
        return {"tuple": [serialise(part) for part in value]}
    raise TypeError(f"features of the type {type(value).__name__}")


def deserialise(value: Any) -> Any:
    """Make the features from what `serialise` returned. Raises ValueError for a class that is no
    dataclass or named tuple of this package."""
    if isinstance(value, list):
        return [deserialise(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        kind, shape, data = value["array"]
        array = np.frombuffer(base64.b64decode(data), kind).reshape(shape).copy()
        return array if shape else array[()]
    if "dict" in value:
        return {deserialise(key): deserialise(part) for key, part in value["dict"]}
    if "tuple" in value:
        return tuple(deserialise(part) for part in value["tuple"])
    module, name = value["class"]
    is_ours = module.startswith("speechssl.")
    feature_class: Any = getattr(import_module(module), name) if is_ours else None
    if not _list_fields(feature_class):
        raise ValueError(f"{module}.{name} holds no features")
    return feature_class(*map(deserialise, value["fields"]))


def _list_fields(kind: Any) -> Sequence[str]:
    """List the names of the fields of a dataclass or named tuple; () for other classes."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return getattr(kind, "_fields", ())
