"""Spoken words and non-words, as `spoken_words.py` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from speechssl.data.records import check_inside, read_lines
from speechssl.schema import convert

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
    """Return the manifest. Raises InputError where there is none, or it is damaged."""
    words = []
    for number, values in read_lines(folder / MANIFEST):
        place = f"{folder / MANIFEST}:{number}"
        word = convert(values, SpokenWord, place, "make the words again")
        check_inside(folder, word.audio, place)
        words.append(word)
    return words
