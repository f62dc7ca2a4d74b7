"""Encode recordings under one condition into features of every system: step 1 of an evaluation.

All systems get the same samples. A system's features (such as units or a transcript) are kept in a
store, a line for each recording, until the predictions are written, so that a killed run goes on
with the next recording. A recording that one system cannot encode is still encoded by the others.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
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
    names_left = {j.name: set(j.recordings) - encoded[j.name].features.keys() for j in jobs}
    missing: list[tuple[Recording, list[Job]]] = []
    for recording in recordings:
        jobs_left = [job for job in jobs if recording.name in names_left[job.name]]
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
        self._first_line = _encode_line({"made_from": made_from})
        content = path.read_bytes() if path.is_file() else b""
        self._goes_on = content.startswith(self._first_line)
        if self._goes_on:
            complete_bytes = content.rindex(b"\n") + 1
            os.truncate(path, complete_bytes)
            for line in content[:complete_bytes].splitlines()[1:]:
                name, features = json.loads(line)
                self.features[name] = deserialise(features)

    def add(self, recording: str, features: Any) -> None:
        """Append the features of a recording."""
        content = _encode_line([recording, serialise(features)])
        if not self._goes_on:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            content = self._first_line + content
        with name_refused_file(self.path), self.path.open("ab" if self._goes_on else "wb") as file:
            file.write(content)
        self._goes_on = True


def _encode_line(value: Any) -> bytes:
    """Encode a value as a line of JSON."""
    return json.dumps(value).encode() + b"\n"


def serialise(features: Any) -> list[Any]:
    """Turn features into values of JSON: the module and name of their class, and what they hold."""
    kind = type(features)
    content = msgspec.to_builtins(features, enc_hook=_encode_array)
    return [kind.__module__, kind.__qualname__, content]


def deserialise(values: Sequence[Any]) -> Any:
    """Make the features from what `serialise` returned. Raises ValueError for a class that is
    neither of this package nor built in, ValidationError or TypeError for one without fields."""
    module, name, content = values
    if module != "builtins" and not module.startswith("speechssl."):
        raise ValueError(f"{module}.{name} holds no features")
    kind = getattr(import_module(module), name)
    return msgspec.convert(content, kind, dec_hook=_decode_array)


def _encode_array(value: np.ndarray | np.generic) -> Any:
    """Turn an array, or one of numpy's numbers, into values of JSON."""
    if isinstance(value, np.generic):
        return value.item()
    return [value.dtype.str, value.shape, base64.b64encode(value.tobytes()).decode()]


def _decode_array(kind: type, value: Sequence[Any]) -> np.ndarray:
    """Make the array from what `_encode_array` returned. kind: that of the field, an array."""
    dtype, shape, data = value
    return np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()
