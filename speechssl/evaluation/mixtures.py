"""What the encoders of a grid hear: mixtures frozen before the first of them listens, the same for all and for later runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from speechssl.artefacts import hash_files, hash_json, read_json, write_json
from speechssl.audio import read_audio
from speechssl.errors import InputError
from speechssl.noise import Condition, Distorter
from speechssl.noise.frozen import FrozenDistorter, freeze


class Mixtures(Protocol):
    """Distorts recordings by their names, always alike."""

    @property
    def seed(self) -> int: ...
    def apply(self, samples: np.ndarray, condition: Condition, utterance: str) -> np.ndarray:
        """samples: (N,) float32 at 16 kHz. Raises InputError or ValueError where it cannot be distorted."""
        ...

    def made_from(self, condition: Condition, utterances: Sequence[str]) -> Any:
        """What decides these mixtures, as JSON values."""
        ...


@dataclass(frozen=True)
class LiveMixtures:
    """Made when they are heard."""

    distorter: Distorter

    @property
    def seed(self) -> int:
        return self.distorter.seed

    def apply(self, samples: np.ndarray, condition: Condition, utterance: str) -> np.ndarray:
        """samples: (N,) float32 at 16 kHz."""
        return self.distorter.apply(samples, condition, utterance)

    def made_from(self, condition: Condition, utterances: Sequence[str]) -> Any:
        return [list(source) for source in self.distorter.sources(condition)]


@dataclass(frozen=True)
class FrozenMixtures:
    """Those of a manifest. rows: (utterance, condition) -> hash of the line that describes the mixture."""

    frozen: FrozenDistorter
    rows: Mapping[tuple[str, str], str]

    @property
    def seed(self) -> int:
        return self.frozen.seed

    def apply(self, samples: np.ndarray, condition: Condition, utterance: str) -> np.ndarray:
        """samples: (N,) float32 at 16 kHz."""
        return self.frozen.apply(samples, condition, utterance)

    def made_from(self, condition: Condition, utterances: Sequence[str]) -> Any:
        """Of these utterances alone: a manifest that has grown leaves what was heard before as it is."""
        return hash_json([self.rows.get((utterance, condition.text), "") for utterance in utterances])


def freeze_mixtures(
    distorter: Distorter, recordings: Mapping[str, Path], conditions: Sequence[Condition], path: Path, workers: int = 2
) -> FrozenMixtures:
    """Write the manifest where it is not there or was made from other inputs. recordings: by the name that noise knows them by.

    Recordings that cannot be read are left out; they are told when they are to be heard. Raises InputError for noise that cannot be
    had, for noise that has changed since it was frozen, and where no recording can be read.
    """
    card, made_from = path.with_suffix(".card.json"), _made_from(distorter, recordings, conditions)
    if not _is_frozen(path, card, made_from):
        freeze(conditions, _lengths(recordings, workers), distorter, path)
        write_json(card, {"what": "frozen noise", "made_from": made_from, "hash": hash_files([path]), "seed": distorter.seed})
    frozen = FrozenDistorter(path)
    for condition in conditions:
        frozen.check(condition)
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return FrozenMixtures(frozen, {(row["utterance"], row["condition"]): hash_json(row) for row in lines})


def _made_from(distorter: Distorter, recordings: Mapping[str, Path], conditions: Sequence[Condition]) -> str:
    files = [[name, file_size(file)] for name, file in recordings.items()]
    noise = [[c.text, [list(source) for source in distorter.sources(c)]] for c in conditions]
    return hash_json([files, noise, distorter.seed])


def _is_frozen(path: Path, card: Path, made_from: str) -> bool:
    if not (path.is_file() and card.is_file()):
        return False
    try:
        there = read_json(card)
    except InputError:
        return False
    return bool(isinstance(there, dict) and there.get("made_from") == made_from and there.get("hash") == hash_files([path]))


def _lengths(recordings: Mapping[str, Path], workers: int) -> dict[str, int]:
    """Samples at 16 kHz of all that can be read."""

    def length(file: Path) -> int | str:
        try:
            return len(read_audio(file))
        except (InputError, ValueError) as error:
            return str(error)

    with ThreadPoolExecutor(workers) as pool:
        found = list(tqdm(pool.map(length, recordings.values()), total=len(recordings), desc="freezing noise", unit="file"))
    lengths = {name: n for name, n in zip(recordings, found, strict=True) if not isinstance(n, str)}
    if not lengths:
        raise InputError(f"none of the {len(found)} recordings can be read ({found[0] if found else 'there are none'}); mend them")
    return lengths


def file_size(path: Path) -> int:
    """In bytes; -1 for a file that is not there, which is told when it is to be heard."""
    return path.stat().st_size if path.is_file() else -1
