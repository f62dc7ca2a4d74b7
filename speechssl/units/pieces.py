"""Units that often follow each other are merged to one symbol, a piece, by byte pair encoding:
pieces are to units what word pieces are to letters. Where units are phones, a reader (the text
encoder that reads them) then sees a third of the symbols, and a common word is one symbol.

Acoustic BPE (arXiv 2310.14580) and Wav2Seq (arXiv 2205.01086) merge units of HuBERT in this way.
Where one of the units marks the end of a word, as in a recogniser of phones, pieces end there.
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
from speechssl.units.storage import iterate_units, read_units_card

PIECES_FILE = "pieces.json"  # in the folder of a reader
# Unit k is written as the character with this code plus k; Unicode's private area begins here.
FIRST_CODE = 0xE000


@dataclass(frozen=True)
class Pieces:
    """Pieces belong to the units of a codebook.

    card: the number of `units`, the hashes of their `codebooks`, the unit that is a word
    `boundary`, the `tokenizer` as the library writes it, and the settings of the units that the
    pieces were `made_from`.
    """

    card: dict[str, Any]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Return the tokeniser that joins units written as characters."""
        return Tokenizer.from_str(json.dumps(self.card["tokenizer"]))

    @property
    def size(self) -> int:
        """Return the number of pieces."""
        return int(self.tokenizer.get_vocab_size())

    @property
    def hash(self) -> str:
        """Return the hash of the pieces and of the units that they are made of."""
        return hash_json([self.card["tokenizer"], self.card["codebooks"]])

    def join(self, runs: RunLength) -> RunLength:
        """Join the units of a recording to pieces. The length of a piece, in frames, is the sum of
        its units'; unlike equal units, equal pieces may follow each other."""
        encoding = self.tokenizer.encode(to_characters(runs.units))
        ids = np.array(encoding.ids, runs.units.dtype)
        firsts = [first for first, _ in encoding.offsets]
        borders = runs.borders[[*firsts, len(runs)]]
        return RunLength(ids, np.diff(borders), runs.seconds)

    def spell(self, piece: int) -> list[int]:
        """Return the units of which a piece consists."""
        return [ord(letter) - FIRST_CODE for letter in self.tokenizer.id_to_token(piece) or ""]


def to_characters(units: Iterable[int]) -> str:
    """Write units as characters, which a tokeniser reads."""
    return "".join(chr(FIRST_CODE + int(unit)) for unit in units)


def fit_pieces(o: FitPieces) -> None:
    """Find the pieces of extracted units and write them.

    Raises InputError where there are no units, and for a --size that is not above their number.
    """
    source_card = read_units_card(o.units)
    size = int(source_card["K"])
    if o.size <= size:
        raise InputError(f"{o.units} has {size} units; give --size more pieces than that")
    if o.boundary is not None and o.boundary >= size:
        raise InputError(f"{o.units} has units 0 to {size - 1}, and no --boundary {o.boundary}")
    tokenizer = Tokenizer(models.BPE())
    if o.boundary is not None:
        boundary = to_characters([o.boundary])
        tokenizer.pre_tokenizer = pre_tokenizers.Split(boundary, "merged_with_previous")
    trainer = trainers.BpeTrainer(
        vocab_size=o.size,
        min_frequency=o.least,
        initial_alphabet=[to_characters([unit]) for unit in range(size)],
        show_progress=False,
    )

    utterances = list(iterate_units(o.units))
    texts = (to_characters(utterance.runs.units) for utterance in utterances)
    tokenizer.train_from_iterator(texts, trainer)
    pieces = Pieces(
        {
            "units": size,
            "codebooks": source_card["codebooks"],
            "boundary": o.boundary,
            "made_from": source_card["made_from"],
            "tokenizer": json.loads(tokenizer.to_str()),
        }
    )
    write_json(o.out, pieces.card)
    seconds = sum(utterance.seconds for utterance in utterances)
    units_rate = sum(len(utterance.runs) for utterance in utterances) / seconds
    pieces_rate = sum(len(pieces.join(utterance.runs)) for utterance in utterances) / seconds
    print(
        f"{o.out}: {pieces.size} pieces; {units_rate:.1f} units a second become {pieces_rate:.1f}"
    )


def load_pieces(path: Path) -> Pieces:
    """Read pieces from a file, or from the folder of a reader. Raises InputError where there are
    none."""
    card = read_json(path / PIECES_FILE if path.is_dir() else path)
    if "tokenizer" not in card or "codebooks" not in card:
        raise InputError(
            f"{path} holds no pieces of units; make them with `speechssl units pieces`"
        )
    return Pieces(card)
