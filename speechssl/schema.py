"""Records, cards and lists from files are validated here, once, when they are read.

A schema is a dataclass, a NamedTuple (a list in JSON) or a `msgspec.Struct`. Its annotations state
the values that a field may have (`Annotated[float, msgspec.Meta(ge=0)]`), and its `__post_init__`
raises ValueError for fields that do not fit each other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from speechssl.errors import InputError

T = TypeVar("T")
# Name of a JSON type in msgspec's messages -> its name in our messages.
_KINDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
# the end of a message of msgspec: " - at `$.answers[0].start`"
_FIELD = re.compile(r" - at `(?:\$\.?)?(.*)`$", re.DOTALL)


def convert(
    value: Any,
    kind: type[T],
    place: Path | str,
    remedy: str = "correct the record",
    only: bool = False,
    strict: bool = True,
) -> T:
    """Convert what a JSON or YAML reader returned into an instance of `kind`.

    kind: a schema, or any other type that msgspec knows, such as list[str]. place: the file, or
    the file and its line ("FILE:12"). only: refuse fields that `kind` does not have; otherwise they
    are ignored. strict: refuse values of another type, except integers where floats are expected;
    False: convert a text to the number in it as well, as cells of a CSV need.
    Raises InputError, which names the place and the field: "FILE:12: `answers[0].start` is a
    string, a number or null is expected; correct the record".
    """
    if only and isinstance(value, Mapping):
        names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
        for name in value.keys() - set(names):
            raise InputError(f"{place}: there is no `{name}`; the fields are {', '.join(names)}")
    try:
        return msgspec.convert(value, type=kind, strict=strict)
    except msgspec.ValidationError as error:
        raise InputError(f"{place}: {describe(error)}; {remedy}") from error


def describe(error: msgspec.ValidationError) -> str:
    """Say in one clause which field is wrong, and what is expected of it."""
    message = str(error)
    match = _FIELD.search(message)
    field = f"`{match[1]}`" if match and match[1] else "the record"
    reason = _FIELD.sub("", message)
    if missing := re.fullmatch(r"Object missing required field `(.*)`", reason):
        return f"{field} has no `{missing[1]}`"
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", reason):
        return f"{field} has a `{unknown[1]}`, which nothing reads"
    if kinds := re.fullmatch(r"Expected `([^`]*)`, got `(\w+)`", reason):
        expected = " or ".join(_KINDS.get(name, name) for name in kinds[1].split(" | "))
        return f"{field} is {_KINDS.get(kinds[2], kinds[2])}, {expected} is expected"
    # "Expected `float` >= 0.0"
    if limit := re.fullmatch(r"Expected `\w+` (\D+) ([\d.e+-]+)", reason):
        return f"{field} is not {limit[1]} {limit[2]}"
    return f"{field}: {reason[:1].lower()}{reason[1:]}"
