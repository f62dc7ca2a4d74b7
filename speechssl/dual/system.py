"""DUAL: spoken question answering without text (arXiv 2203.04911).

Encoder -> features of one layer -> k-means -> run-length units -> rows of a text encoder's embedding table -> span head -> seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechssl.dual.decode import Reader
from speechssl.dual.model import load_reader
from speechssl.encoders.load import SpeechEncoder
from speechssl.errors import InputError
from speechssl.timing import FrameGrid, RunLength, interval_of_units
from speechssl.units.features import UnitExtractor, extractor_of
from speechssl.units.kmeans import load_codebook


@dataclass(frozen=True)
class TimedAnswer:
    """An answer: seconds in the passage, a confidence in [0, 1], and the words where the system has words."""

    start: float
    end: float
    confidence: float
    text: str | None = None


@dataclass(frozen=True)
class Dual:
    """The end-to-end system."""

    extractor: UnitExtractor
    reader: Reader
    card: Mapping[str, Any]
    name: str = "dual"
    needs_audio: bool = True

    def encode(self, record: Any, samples: Any) -> RunLength:
        """samples: (N,) float32 at 16 kHz. Raises ValueError for audio shorter than one frame."""
        return self.extractor.units(samples)

    def answer_all(self, items: Sequence[tuple[RunLength, RunLength]]) -> list[TimedAnswer]:
        """(question, passage) units -> answers."""
        return answer_units(self.reader, self.extractor.grid, items)


def answer_units(reader: Reader, grid: FrameGrid, items: Sequence[tuple[RunLength, RunLength]]) -> list[TimedAnswer]:
    """(question, passage) units -> answers. grid: of the frames of the units."""
    spans = reader.read_many([(question.units, passage.units) for question, passage in items])
    return [
        TimedAnswer(*interval_of_units(grid, passage, s.first, s.last), s.confidence)
        for s, (_, passage) in zip(spans, items, strict=True)
    ]


def load_dual(folder: Path, codebook: Path, encoder: SpeechEncoder, name: str = "dual", bf16: bool = False) -> Dual:
    """The reader in `folder`, of the units of this codebook or of those that it was transferred from.

    Raises InputError when the codebook or the reader were made for other units.
    """
    return dual_of(folder, extractor_of(encoder, load_codebook(codebook)), name, bf16)


def dual_of(folder: Path, extractor: UnitExtractor, name: str = "dual", bf16: bool = False) -> Dual:
    """The reader in `folder` of these units. Raises InputError as `load_dual`."""
    model, layout, card = load_reader(folder, answering=True)
    check_units_of(folder, card, extractor, Path(extractor.codebook.name))
    made = {"dual": card["weights"], "layout": card["layout"], **extractor.card} | ({"bf16": True} if bf16 else {})
    return Dual(extractor, Reader(model, layout, bf16=bf16), made, name)


def check_units_of(folder: Path, card: Mapping[str, Any], extractor: UnitExtractor, codebook: Path) -> None:
    """Raises InputError where the reader in `folder`, with this card, was trained on units that mean something else."""
    units = card.get("units")
    if "units" not in card:
        raise InputError(f"{folder} is no reader of units; give one that was trained on those of {codebook}")
    if not isinstance(units, dict) or units.get("codebook") not in extractor.codebook.names:
        raise InputError(f"{folder} was trained on other units than those of {codebook}; train it again")
