"""Define options that several programs of the recipe have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from speechssl.dual.options import TEXT_ENCODER
from speechssl.errors import InputError
from speechssl.options import Count, Whole, argument, option

Objective = Literal["mlm", "whole-word", "span", "sentence-order", "replaced-token", "causal"]
Letters = Literal["own", "apart", "pinyin"]
Init = Literal["pretrained", "statistics", "default"]
LETTERS = (
    "letters of the second text: own, apart (every Latin letter becomes another character: English "
    "twice shares no symbol), or pinyin (Chinese in Latin letters, needs speechssl[chinese])"
)
RESULTS = "folder for results: runs/ and results.jsonl; several runs share it"
ARM = "name of this arm of the experiment in tables; the arm scratch is the baseline of the others"


@dataclass(frozen=True, kw_only=True)
class TwoLanguages:
    """Programs about two languages read texts or units of both with an encoder, and a lexicon."""

    first: Path = argument("text of the first language: folder of .txt files or a prepared corpus")
    second: Path = argument("text of the second language")
    encoder: str = argument(f"{TEXT_ENCODER}; or a reader of `train text-qa`")
    lexicon: str = option(
        "minisqa",
        "translations: file with two words a line, minisqa (English and Mandarin), or same (the "
        "commonest words, each its own)",
    )
    letters: Letters = option("own", LETTERS)
    units: Path | None = option(
        None,
        "read the speech of both corpora: units of the first, output of `speechssl units extract`",
    )
    second_units: Path | None = option(None, "units of the second, of the same codebook")
    sequences: Count = option(500, "pieces of each text that are read at most")
    length: Count = option(128, "tokens in a piece, specials included")
    batch: Count = option(16, "sequences that run together")
    seed: Whole = option(
        0, "seed of the run: that of the encoder's pre-training, which gives units their tokens"
    )

    def __post_init__(self) -> None:
        if (self.units is None) != (self.second_units is None):
            raise InputError(
                "both languages are read as units, or neither; give --units and --second-units"
            )
