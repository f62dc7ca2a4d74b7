"""Step 1 of an evaluation, encode: recordings under one condition -> features of every system.

All systems get the same samples. Features lie in a store, a line for each recording, until the
predictions are written, so that a killed run goes on with the next recording. A recording that one
system cannot encode is still encoded by the others.
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


@dataclass(frozen=True)
class Recording:
    """A recording of an evaluation has a file or the reason why it has none."""

    name: str  # unique; decides the random numbers of the distortion
    path: Path | InputError
    record: Any = None  # the passage or question, if it is one


@dataclass
class Encoded:
    """One system has these features of the recordings, by their names."""

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
    # Record and samples (N,), float32 at 16 kHz (None where it needs no audio) -> features. Several
    # threads call it at once. It raises InputError or ValueError where it cannot encode.
    encode: Callable[[Any, Any], Any]
    recordings: Collection[str]  # names
    needs_audio: bool = True
    store: FeatureStore | None = None


def encode_recordings(
    jobs: Sequence[Job],
    recordings: Iterable[Recording],
    condition: Condition,
    distorter: Distorter | FrozenDistorter,
    workers: int,
    what: str,
) -> dict[str, Encoded]:
    """Encode every recording with every system that needs it; return the features by system.

    what: title of the progress bar. A recording fails where it cannot be read or is silent, and for
    a system that cannot encode it. Raises InputError for missing or unreadable noise.
    """
    from speechssl.encoders.encoder import single_threaded

    encoded = {job.name: Encoded(dict(job.store.features) if job.store else {}) for job in jobs}
    missing: list[tuple[Recording, list[Job]]] = []
    for recording in recordings:
        name = recording.name
        jobs_left = [
            j for j in jobs if name in j.recordings and name not in encoded[j.name].features
        ]
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

    with single_threaded(workers) as pool:
        results = pool.map(lambda pair: encode(*pair), missing)
        bar = tqdm(results, what, len(missing), unit="file", disable=not missing)
        for (recording, jobs_left), outputs in zip(missing, bar, strict=True):
            for job, features in zip(jobs_left, outputs, strict=True):
                if isinstance(features, Exception):
                    encoded[job.name].failed[recording.name] = str(features)
                    continue
                encoded[job.name].features[recording.name] = features
                if job.store:
                    job.store.add(recording.name, features)
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


class FeatureStore:
    """A store is a file of JSON lines: first the hash of the inputs, then recordings with features.

    `features` has the recordings that an interrupted run encoded; none where the file was made from
    other inputs. A last line that a kill cut short is encoded again. Only one process may use a
    store: the output folder is locked.
    """

    def __init__(self, path: Path, made_from: str) -> None:
        self.path, self.made_from = path, made_from
        self.features: dict[str, Any] = {}
        self._complete_bytes = 0  # length of the complete lines
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        if not lines or lines[0] != _line(made_from):
            return
        for line in lines:
            if line.endswith(b"\n"):
                if self._complete_bytes:
                    name, features = json.loads(line)
                    self.features[name] = from_json(features)
                self._complete_bytes += len(line)

    def add(self, recording: str, features: Any) -> None:
        """Append the features of a recording."""
        content = _line([recording, to_json(features)])
        if not self._complete_bytes:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            content = _line(self.made_from) + content
        mode = "r+b" if self._complete_bytes else "wb"
        with name_refused_file(self.path), self.path.open(mode) as file:
            file.seek(self._complete_bytes)
            file.truncate()
            file.write(content)
        self._complete_bytes += len(content)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def _line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def to_json(value: Any) -> Any:
    """Write features as JSON: arrays as bytes in base64; tuples, dataclasses and named tuples of
    this package by name. Raises TypeError for any other type."""
    if isinstance(value, (np.ndarray, np.generic)):
        return {"array": [value.dtype.str, value.shape, base64.b64encode(value.tobytes()).decode()]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [to_json(part) for part in value]
    if isinstance(value, dict):
        return {"dict": [[to_json(key), to_json(part)] for key, part in value.items()]}
    names = _fields(type(value))
    if names:
        parts = [to_json(getattr(value, name)) for name in names]
        return {"class": [type(value).__module__, type(value).__qualname__], "fields": parts}
    if isinstance(value, tuple):
        return {"tuple": [to_json(part) for part in value]}
    raise TypeError(f"features of the type {type(value).__name__}")


def from_json(value: Any) -> Any:
    """Read the JSON of `to_json`. Raises ValueError for a class that holds no features."""
    if isinstance(value, list):
        return [from_json(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        kind, shape, data = value["array"]
        array = np.frombuffer(base64.b64decode(data), kind).reshape(shape).copy()
        return array if shape else array[()]
    if "dict" in value:
        return {from_json(key): from_json(part) for key, part in value["dict"]}
    if "tuple" in value:
        return tuple(from_json(part) for part in value["tuple"])
    module, name = value["class"]
    kind = getattr(import_module(module), name) if module.startswith("speechssl.") else None
    if not _fields(kind):
        raise ValueError(f"{module}.{name} holds no features")
    return kind(*map(from_json, value["fields"]))  # type: ignore[misc]


def _fields(kind: Any) -> Sequence[str]:
    """Return the names of the fields of a dataclass or named tuple; () for other classes."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return getattr(kind, "_fields", ())
