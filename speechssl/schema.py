"""Records, cards and lists that others wrote are validated here, once, where they enter.

A schema is a dataclass, a NamedTuple (a list in JSON) or a `msgspec.Struct`; its annotations say
what a field may hold (`Annotated[float, msgspec.Meta(ge=0)]`), and a ValueError of its
`__post_init__` says what its fields must be together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from speechssl.errors import InputError

T = TypeVar("T")


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
    Raises InputError, which names the place and the field: "FILE:12: Expected `float | null`, got
    `str` - at `$.answers[0].start`; correct the record".
    """
    if only and isinstance(value, Mapping):
        names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
        for name in value.keys() - set(names):
            raise InputError(f"{place}: there is no `{name}`; the fields are {', '.join(names)}")
    try:
        return msgspec.convert(value, type=kind, strict=strict)
    except msgspec.ValidationError as error:
        raise InputError(f"{place}: {error}; {remedy}") from error
