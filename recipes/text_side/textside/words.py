"""Spoken words and non-words, as `spoken_words.py` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.data.records import check_inside, read_lines
from speechssl.errors import InputError

MANIFEST = "words.jsonl"


@dataclass(frozen=True)
class SpokenWord:
    """A line of the manifest."""

    id: str
    audio: str
    word: str
    real: bool
    voice: str
    phones: str


Listed = Sequence[tuple[SpokenWord, np.ndarray]]  # with its units


def read_spoken_words(folder: Path) -> list[SpokenWord]:
    """The manifest. Raises InputError where there is none, or it is damaged."""
    words = []
    for number, values in read_lines(folder / MANIFEST):
        fields: dict[str, Any] = {
            name: values.get(name) for name in SpokenWord.__dataclass_fields__
        }
        if not all(
            isinstance(value, bool if name == "real" else str) for name, value in fields.items()
        ):
            place = f"{folder / MANIFEST}:{number}"
            raise InputError(f"{place} is no line of `spoken_words.py`; make the words again")
        check_inside(folder, fields["audio"], f"{folder / MANIFEST}:{number}")
        words.append(SpokenWord(**fields))
    return words
