"""Audio in, run-length units out: an encoder, a layer, a codebook, and the corpus on disk that they make.

A unit corpus is one safetensors file a split (`units`, `lengths`, `bounds`) with the record ids and the card beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from tqdm import tqdm

from speechssl.artefacts import read_json, replacing, write_json
from speechssl.audio import read_audio
from speechssl.corpora.records import Passage, Question, data_hash, first_passages, load_corpus
from speechssl.encoders.speech_encoder import SpeechEncoder
from speechssl.errors import InputError
from speechssl.timing import FrameGrid, RunLength
from speechssl.units.kmeans import Codebook, smooth

PART = 500  # recordings that are written down together while a corpus is extracted


@dataclass(frozen=True)
class UnitExtractor:
    """Turns samples into units. Layer and smoothing are the codebook's: it was fitted on them."""

    encoder: SpeechEncoder
    codebook: Codebook

    def __post_init__(self) -> None:
        card = self.codebook.card
        if card.get("encoder") != self.encoder.hash:
            raise InputError(
                f"{self.codebook.name} was fitted on encoder {card.get('encoder')}, not on {self.encoder.name} "
                f"({self.encoder.hash}); fit one for this encoder with `speechssl units fit`"
            )

    @property
    def layer(self) -> int:
        return int(self.codebook.card["layer"])

    @property
    def grid(self) -> FrameGrid:
        return self.encoder.grid

    @property
    def card(self) -> dict[str, Any]:
        """What decides the units."""
        smoothing = int(self.codebook.card.get("smooth", 1))
        return {"encoder": self.encoder.hash, "layer": self.layer, "smooth": smoothing, "codebook": self.codebook.hash}

    def frames(self, samples: np.ndarray) -> np.ndarray:
        """(N,) float32 at 16 kHz -> (T,) the unit of every frame."""
        return self.codebook.assign(layer_features(self.encoder, samples, self.codebook.card))

    def units(self, samples: np.ndarray) -> RunLength:
        """(N,) float32 at 16 kHz -> run-length units."""
        return RunLength.of_frames(self.frames(samples))


def layer_features(encoder: SpeechEncoder, samples: np.ndarray, card: Mapping[str, Any]) -> torch.Tensor:
    """(T, D) features of a card's `layer`, averaged over its `smooth` frames."""
    return smooth(encoder.features(samples, int(card["layer"])), int(card.get("smooth", 1)))


@dataclass(frozen=True)
class Outcome:
    """What a batch came to: results by id, and what went wrong by id."""

    done: dict[str, RunLength]
    failed: dict[str, str]


def extract_many(
    extractor: UnitExtractor, items: Mapping[str, Callable[[], np.ndarray]], workers: int = 2, what: str = "units"
) -> Outcome:
    """Units of many recordings, one at a time, so that no utterance depends on another. items: id -> function that reads it.

    Items that raise InputError are set aside with their sentence; the rest is done.
    """

    def one(read: Callable[[], np.ndarray]) -> RunLength | str:
        try:
            return extractor.units(read())
        except (InputError, ValueError) as error:
            return str(error)

    with single_threaded(workers), ThreadPoolExecutor(workers) as pool:
        found = list(tqdm(pool.map(one, items.values()), total=len(items), desc=what, unit="file"))
    pairs = list(zip(items, found, strict=True))
    return Outcome({i: f for i, f in pairs if not isinstance(f, str)}, {i: f for i, f in pairs if isinstance(f, str)})


@contextmanager
def single_threaded(workers: int) -> Iterator[None]:
    """One torch thread a worker: many small models side by side beat one small model on many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(before // workers, 1))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def extract_corpus(
    extractor: UnitExtractor, corpus: Path, split: str, out: Path, workers: int = 2, passages: int | None = None
) -> dict[str, str]:
    """Write the units of the first `passages` passages (None: all) of a split and of their questions, once.

    Returns the items set aside: id -> why.
    """
    card = extractor.card | {"corpus": data_hash(corpus, split), "split": split, "passages": passages}
    path = out / f"{split}.safetensors"
    if path.is_file() and path.with_suffix(".card.json").is_file():
        made = read_json(path.with_suffix(".card.json"))
        if made.get("made_from") == card:
            return dict(made["failed"]) and _retry(extractor, corpus, path, made, workers)
    data = first_passages(load_corpus(corpus, split), passages)
    records: list[Passage | Question] = [*data.passages.values(), *data.questions]
    units: dict[str, RunLength] = {}
    failed: dict[str, str] = {}
    parts = []
    for number, first in enumerate(range(0, len(records), PART)):
        chosen = {r.id: partial(read_audio, data.path(r)) for r in records[first : first + PART]}
        part = out / "parts" / f"{split}-{number:05d}.safetensors"
        outcome = _extract_part(extractor, chosen, part, card, workers)
        units |= outcome.done
        failed |= outcome.failed
        parts.append(part)
    save_units(path, units, {"made_from": card, "failed": failed, "frame_rate": extractor.grid.frame_rate})
    for part in parts:
        part.unlink()
        part.with_suffix(".card.json").unlink()
    return failed


def _retry(extractor: UnitExtractor, corpus: Path, path: Path, made: dict[str, Any], workers: int) -> dict[str, str]:
    """Try what was set aside once more: it may have been mended since. Returns what is still set aside."""
    data = load_corpus(corpus, made["made_from"]["split"])
    records: list[Passage | Question] = [*data.passages.values(), *data.questions]
    again = {r.id: partial(read_audio, data.path(r)) for r in records if r.id in made["failed"]}
    outcome = extract_many(extractor, again, workers, "units, set aside before")
    if outcome.done:
        units = load_units(path) | outcome.done
        ordered = {r.id: units[r.id] for r in records if r.id in units}
        save_units(path, ordered, {k: v for k, v in made.items() if k != "ids"} | {"failed": outcome.failed})
    return outcome.failed


def _extract_part(
    extractor: UnitExtractor, items: Mapping[str, Callable[[], np.ndarray]], path: Path, card: dict[str, Any], workers: int
) -> Outcome:
    """Units of a part of a split; what a killed run finished is read back."""
    if path.with_suffix(".card.json").is_file():
        made = read_json(path.with_suffix(".card.json"))
        if made["made_from"] == card and set(made["ids"]) | set(made["failed"]) == set(items):
            return Outcome(load_units(path), made["failed"])
    outcome = extract_many(extractor, items, workers, f"units, {path.stem}")
    save_units(path, outcome.done, {"made_from": card, "failed": outcome.failed})
    return outcome


def save_units(path: Path, units: Mapping[str, RunLength], card: dict[str, Any]) -> None:
    """Write unit sequences by id. The card is written last and marks the file as whole."""
    values = list(units.values())
    nothing = np.zeros(0, np.int32)  # there may be no units at all
    arrays: dict[str, np.ndarray] = {
        "units": np.concatenate([nothing, *(u.units for u in values)]).astype(np.int32),
        "lengths": np.concatenate([nothing, *(u.lengths for u in values)]).astype(np.int32),
        "bounds": np.cumsum([0] + [len(u) for u in values]).astype(np.int64),
    }
    path.with_suffix(".card.json").unlink(missing_ok=True)  # the old card must not stand beside the new file
    with replacing(path) as temporary:
        save_file(arrays, temporary)
    write_json(path.with_suffix(".card.json"), card | {"ids": list(units)})


def load_units(path: Path) -> dict[str, RunLength]:
    """Unit sequences by id. Raises InputError when the file or its card is missing or damaged."""
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read the units {path} ({error}); extract them with `speechssl units extract`") from error
    ids, bounds = read_json(path.with_suffix(".card.json")).get("ids", []), arrays.get("bounds", np.zeros(0, np.int64))
    if len(bounds) != len(ids) + 1:
        raise InputError(f"{path} is not the file its card describes; extract it with `speechssl units extract`")
    return {
        name: RunLength(arrays["units"][a:b].astype(np.int64), arrays["lengths"][a:b].astype(np.int64))
        for name, a, b in zip(ids, bounds[:-1], bounds[1:], strict=True)
    }
