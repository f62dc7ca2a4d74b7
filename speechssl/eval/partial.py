"""A killed run resumes with the next recording from what was encoded for a result that is not
written yet, a line a recording."""

from __future__ import annotations

import base64
import dataclasses
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.artifacts import name_refused_file
from speechssl.errors import InputError


def to_json(value: Any) -> Any:
    """Write features as JSON: arrays as bytes in base64; tuples, dataclasses and named tuples of
    this package by name.

    Raises TypeError for any other type.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return {"array": [value.dtype.str, value.shape, base64.b64encode(value.tobytes()).decode()]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [to_json(part) for part in value]
    if isinstance(value, dict):
        return {"dict": [[to_json(key), to_json(part)] for key, part in value.items()]}
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        names = (
            value._fields
            if hasattr(value, "_fields")
            else [field.name for field in dataclasses.fields(value)]
        )
        kind = type(value)
        return {
            "class": [kind.__module__, kind.__qualname__],
            "fields": [to_json(getattr(value, name)) for name in names],
        }
    if isinstance(value, tuple):
        return {"tuple": [to_json(part) for part in value]}
    raise TypeError(f"features of the type {type(value).__name__}")


def from_json(value: Any) -> Any:
    """Read what `to_json` wrote. Raises ValueError, KeyError or TypeError for what it does not
    write."""
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
    if not module.startswith("speechssl."):
        raise ValueError(f"{module} is no module of speechssl")
    kind = getattr(import_module(module), name)
    if not (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")):
        raise ValueError(f"{name} holds no features")
    return kind(*(from_json(part) for part in value["fields"]))  # type: ignore[operator]


class PartialResult:
    """This is a file of JSON lines beside the result: what it is made from, then recordings with
    features.

    features: of recordings that an interrupted run encoded, by `str` of what they are known by;
    none where the result would be made from something else. A last line that a kill cut short is
    encoded again. Not for several processes: the output folder is locked.
    """

    def __init__(self, path: Path, made_from: str) -> None:
        self.path, self.made_from = path, made_from
        self.features: dict[str, Any] = {}
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        self._whole = 0  # bytes of the lines that are kept
        for number, line in enumerate(lines):
            if not line.endswith(b"\n"):
                break
            try:
                content = json.loads(line)
                if number:
                    self.features[content[0]] = from_json(content[1])
                elif content != made_from:
                    break
            except (ValueError, KeyError, TypeError, AttributeError, ImportError, InputError):
                break
            self._whole += len(line)

    def add(self, recording: str, features: Any) -> None:
        """Add a recording. Raises InputError where the disk is full."""
        with name_refused_file(self.path):
            if not self._whole:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            lines = b"".join(
                map(
                    _line,
                    ([] if self._whole else [self.made_from]) + [[recording, to_json(features)]],
                )
            )
            with self.path.open("r+b" if self._whole else "wb") as file:
                file.seek(self._whole)
                file.truncate()
                file.write(lines)
            self._whole += len(lines)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def _line(content: Any) -> bytes:
    return json.dumps(content).encode() + b"\n"
