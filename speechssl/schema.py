"""Records, cards and lists that others wrote are validated here, once, where they enter.

A schema is a dataclass, a NamedTuple (a list in JSON) or a `msgspec.Struct`; its annotations say
what a field may hold (`Annotated[float, msgspec.Meta(ge=0)]`), and a ValueError of its
`__post_init__` says what its fields must be together.
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
# JSON's kinds of values, as msgspec calls them
_KINDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
_FIELD = re.compile(r" - at `(?:\$\.?)?(.*)`$", re.DOTALL)


def convert(
    value: Any,
    kind: type[T],
    place: Path | str,
    remedy: str = "correct the record",
    only: bool = False,
    strict: bool = True,
) -> T:
    """Convert what a JSON or YAML reader returned into a `kind`. Names that `kind` does not have
    are ignored, or, with `only`, refused.

    kind: a schema, or any other type that msgspec knows, such as list[str]. place: the file, or
    the file and its line ("FILE:12"). An integer is taken for a number, and nothing else for what
    it is not; without `strict` a text is taken for the number in it, as in cells of a CSV.
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
    what = _FIELD.sub("", message)
    if lacking := re.fullmatch(r"Object missing required field `(.*)`", what):
        return f"{field} has no `{lacking[1]}`"
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        return f"{field} has a `{unknown[1]}`, which nothing reads"
    if kinds := re.fullmatch(r"Expected `([^`]*)`, got `(\w+)`", what):
        expected = " or ".join(_KINDS.get(name, name) for name in kinds[1].split(" | "))
        return f"{field} is {_KINDS.get(kinds[2], kinds[2])}, {expected} is expected"
    if limit := re.fullmatch(r"Expected `\w+` (\D+) ([\d.e+-]+)", what):
        return f"{field} is not {limit[1]} {limit[2]}"
    return f"{field}: {what[:1].lower()}{what[1:]}"
