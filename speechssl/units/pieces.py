"""Pieces of units are to units what word pieces are to letters: units that often follow each other
become one symbol, by byte pair encoding. Of phones a reader then sees a third of the symbols, and a
common word is one of them.

Acoustic BPE (arXiv 2310.14580) and Wav2Seq (arXiv 2205.01086) merge units of HuBERT in this way.
Where one of the units is the end of a word, as a recogniser of phones has it, pieces end there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from speechssl.artifacts import hash_json, read_json, write_json
from speechssl.errors import InputError
from speechssl.timing import RunLength
from speechssl.units.options import FitPieces
from speechssl.units.storage import iterate_units, units_card

PIECES_FILE = "pieces.json"  # in the folder of a reader
FIRST = 0xE000  # unit k is written as the character FIRST + k, from Unicode's private area on


@dataclass(frozen=True)
class Pieces:
    """These are the pieces of the units of a codebook.

    card: `units` K, `codebooks` whose unit k means what it means here, `tokenizer` as the library
    writes it, and what they were made from.
    """

    card: dict[str, Any]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Return the tokeniser that joins units, which are written as characters."""
        return Tokenizer.from_str(json.dumps(self.card["tokenizer"]))

    @property
    def size(self) -> int:
        """Return the number of pieces."""
        return int(self.tokenizer.get_vocab_size())

    @property
    def hash(self) -> str:
        """Return what tells them from other pieces."""
        return hash_json([self.card["tokenizer"], self.card["codebooks"]])

    def join(self, runs: RunLength) -> RunLength:
        """Write units as pieces: the length of a piece is that of its units, in frames. Equal
        pieces may follow each other."""
        encoding = self.tokenizer.encode(write_units(runs.units))
        ids = np.array(encoding.ids, runs.units.dtype)
        firsts = [first for first, _ in encoding.offsets]
        borders = runs.borders[[*firsts, len(runs)]]
        return RunLength(ids, np.diff(borders), runs.seconds)


def write_units(units: Iterable[int]) -> str:
    """Write units as characters."""
    return "".join(chr(FIRST + int(unit)) for unit in units)


def fit_pieces(o: FitPieces) -> None:
    """Find the pieces of extracted units and write them.

    Raises InputError where there are no units, or fewer pieces are asked for than there are units.
    """
    card = units_card(o.units)
    symbols = int(card["K"])
    if o.size <= symbols:
        raise InputError(f"{o.units} has {symbols} units; give --size more pieces than that")
    if o.boundary is not None and o.boundary >= symbols:
        raise InputError(f"{o.units} has units 0 to {symbols - 1}, and no --boundary {o.boundary}")
    tokenizer = Tokenizer(models.BPE())
    if o.boundary is not None:
        boundary = write_units([o.boundary])
        tokenizer.pre_tokenizer = pre_tokenizers.Split(boundary, "merged_with_previous")
    trainer = trainers.BpeTrainer(
        vocab_size=o.size,
        min_frequency=o.least,
        initial_alphabet=[write_units([unit]) for unit in range(symbols)],
        show_progress=False,
    )

    spoken = list(iterate_units(o.units))
    texts = (write_units(utterance.runs.units) for utterance in spoken)
    tokenizer.train_from_iterator(texts, trainer)
    card = {
        "units": symbols,
        "codebooks": card["codebooks"],
        "boundary": o.boundary,
        "made_from": card["made_from"],
        "tokenizer": json.loads(tokenizer.to_str()),
    }
    write_json(o.out, card)
    pieces = Pieces(card)
    seconds = sum(utterance.seconds for utterance in spoken)
    units = sum(len(utterance.runs) for utterance in spoken) / seconds
    joined = sum(len(pieces.join(utterance.runs)) for utterance in spoken) / seconds
    print(f"{o.out}: {pieces.size} pieces; {units:.1f} units a second become {joined:.1f}")


def load_pieces(path: Path) -> Pieces:
    """Read pieces from a file, or from the folder of a reader. Raises InputError where there are
    none."""
    card = read_json(path / PIECES_FILE if path.is_dir() else path)
    if "tokenizer" not in card or "codebooks" not in card:
        raise InputError(
            f"{path} holds no pieces of units; make them with `speechssl units pieces`"
        )
    return Pieces(card)
