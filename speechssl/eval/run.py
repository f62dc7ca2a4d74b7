"""The evaluation loop, one for all: encode -> cache -> score.

`encode_recordings` reads and distorts every recording once, and lets every system encode it; `evaluate_files` finds which results
are missing, encodes for them (mostly so; batches or a feature cache will do as well), scores them, and leaves a file for each. The
promises:

- A result is one system under one condition, in one JSON file that is written whole or not at all; a killed run resumes with the
  next missing file.
- A file is made again where its inputs have changed, where it is damaged, and where it lists recordings that failed, since they may
  have been mended.
- A recording that one system cannot encode is no loss to the others. A system that can encode none is an error, raised once the
  results of the others are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from tqdm import tqdm

from speechssl.augment import Distorter
from speechssl.errors import InputError
from speechssl.io import hash_json, read_json, write_json

Key = TypeVar("Key", bound=Hashable)  # what a recording is known by


@dataclass(frozen=True)
class ResultFile:
    """Where the result of one system under one condition lies.

    made_from: hash of all that decides it. label: for messages, such as "dual, pink 5 dB".
    """

    system: str
    path: Path
    made_from: str
    label: str

    def read(self) -> dict[str, Any]:
        """Its contents. Raises InputError where they are not what was written."""
        contents = read_json(self.path)
        if not isinstance(contents, dict) or contents.get("hash") != hash_json({k: v for k, v in contents.items() if k != "hash"}):
            raise InputError(f"{self.path} was changed after it was written; delete it and evaluate again")
        return contents

    def write(self, values: Mapping[str, Any], failed: Mapping[str, str]) -> None:
        """failed: id of a recording -> why it could not be encoded."""
        contents = {"made_from": self.made_from, **values, "failed": dict(failed)}
        write_json(self.path, contents | {"hash": hash_json(contents)})

    @property
    def done(self) -> bool:
        """Whether it need not be made (again). A damaged file is reported."""
        if not self.path.is_file():
            return False
        try:
            contents = self.read()
        except InputError as error:
            tqdm.write(f"{error}; it is made again", file=sys.stderr)
            return False
        return contents["made_from"] == self.made_from and not contents["failed"]


@dataclass(frozen=True)
class Encoded(Generic[Key]):
    """What one system made of the recordings. failed: why there are no features of a recording."""

    features: dict[Key, Any] = field(default_factory=dict)
    failed: dict[Key, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Encoding(Generic[Key]):
    """How one system encodes. encode: of a recording and its samples, (N,) float32 at 16 kHz; None where it needs no audio.

    recordings: those that it needs; None: all. Several threads call `encode` at once.
    """

    encode: Callable[[Key, np.ndarray | None], Any]
    needs_audio: bool = True
    recordings: Collection[Key] | None = None


def encode_recordings(
    recordings: Iterable[Key],
    read: Callable[[Key], np.ndarray],
    distort: Callable[[np.ndarray, Key], np.ndarray],
    systems: Mapping[str, Encoding[Key]],
    workers: int,
    what: str,
) -> dict[str, Encoded[Key]]:
    """Every system's features of every recording. All get the same samples, so that those with a common encoder run it once.

    read: samples of a recording, (N,) float32 at 16 kHz. distort: samples, recording -> (N,) samples. what: for the progress bar.
    InputError and ValueError of `read` and of a system, and ValueError of `distort` (silent speech) are the recording's failure.
    Raises InputError as `distort` does: noise that cannot be had counts against no system.
    """
    from speechssl.encoders.load import single_threaded  # imports torch

    def one(recording: Key) -> dict[str, tuple[Any, str]]:
        """By system: features, or why there are none."""
        wanted = {name: s for name, s in systems.items() if s.recordings is None or recording in s.recordings}
        samples, unreadable = None, ""
        if any(s.needs_audio for s in wanted.values()):
            try:
                samples = read(recording)
            except (InputError, ValueError) as error:
                unreadable = str(error)
            else:
                try:  # apart from reading: an InputError of this one ends the run
                    samples = distort(samples, recording)
                except ValueError as error:
                    unreadable = str(error)
        found: dict[str, tuple[Any, str]] = {}
        for name, system in wanted.items():
            if system.needs_audio and unreadable:
                found[name] = None, unreadable
                continue
            try:
                found[name] = system.encode(recording, samples if system.needs_audio else None), ""
            except (InputError, ValueError) as error:
                found[name] = None, str(error)
        return found

    every = list(recordings)
    encoded: dict[str, Encoded[Key]] = {name: Encoded() for name in systems}
    with single_threaded(workers) as pool:
        bar = tqdm(pool.map(one, every), total=len(every), desc=what, unit="file", disable=not every)
        for recording, found in zip(every, bar, strict=True):
            for name, (features, reason) in found.items():
                if reason:
                    encoded[name].failed[recording] = reason
                else:
                    encoded[name].features[recording] = features
    return encoded


def evaluate_files(
    files: Sequence[ResultFile],
    encode: Callable[[Sequence[ResultFile]], Mapping[str, Encoded[str]]],
    score: Callable[[ResultFile, Mapping[str, Any]], Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """The contents of all files of one condition; those that are missing are made.

    encode: the missing files -> by system, what it made of the recordings; a system that is left out needs none.
    score: a file, its system's features by the recording's id -> the values to be written, beside `made_from` and `failed`.
    Raises InputError where a system could encode none of its recordings, after the files of the others are written.
    """
    missing = [file for file in files if not file.done]
    encoded = encode(missing) if missing else {}
    error = None
    for file in missing:
        found = encoded.get(file.system, Encoded())
        if found.failed and not found.features:
            reason = next(iter(found.failed.values()))
            which = f"none of the {len(found.failed)} recordings could be encoded"
            error = error or InputError(f"{file.label}: {which} ({reason}); fix them")
            continue
        file.write(score(file, found.features), found.failed)
    if error:
        raise error
    return [file.read() for file in files]


def check_conditions(found: Sequence[Any], distorter: Distorter) -> None:
    """Raises InputError for conditions of one name and for noise that cannot be had; call it before a long run.

    found: conditions, or the settings of a grid.
    """
    labels = [one.label for one in found]
    if twins := [label for i, label in enumerate(labels) if label in labels[:i]]:
        raise InputError(
            f"two conditions have the name {twins[0]!r}; rename a noise file, or evaluate them separately into two folders"
        )
    for one in found:
        distorter.check(getattr(one, "condition", one))
