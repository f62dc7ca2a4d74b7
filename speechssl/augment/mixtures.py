"""Frozen noise: a manifest with a row a mixture, so that every system, later run and laboratory gets the same.

A row says which recording (with its SHA-256) from which sample on, or which generator with which seed, and the SHA-256 of the noise
itself as 16-bit audio. Whoever applies it checks all of them, and refuses what has changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.audio import to_int16
from speechssl.augment.conditions import Condition, Distorter, parse_condition, perform
from speechssl.augment.noise import NoiseBank, Piece, recording, replay
from speechssl.errors import InputError
from speechssl.io import parse_json, write_text
from speechssl.signal import ACTIVE

Row = dict[str, Any]


def freeze(conditions: Sequence[Condition], lengths: Mapping[str, int], distorter: Distorter, path: Path) -> Path:
    """Write the mixtures of all conditions and utterances. lengths: samples at 16 kHz of each utterance, by its id. Returns `path`.

    Nothing is written unless all can be. Raises InputError for noise that cannot be had.
    """
    hashes: dict[Path, str] = {}
    sources: dict[tuple[str, str], Row] = {}  # by utterance and noise, which is the same at every SNR

    def entry(piece: Piece) -> Row:
        """A recording by its name, relative to the manifest where it lies below it, with its hash."""
        if piece.file not in hashes:
            hashes[piece.file] = _file_hash(piece.file)
        file, root = piece.file.resolve(), path.parent.resolve()
        name = str(file.relative_to(root) if file.is_relative_to(root) else file)
        return {"file": name, "sha256": hashes[piece.file], "offset": piece.offset}

    def source(step: Condition, key: str, n: int) -> Row:
        if step.name not in ("noise", "reverb", "rooms", "rir"):
            return {}
        what = step.kind if step.name == "noise" else step.text
        if (key, what) not in sources:
            draw = distorter.draw(step, key, n)
            if draw.pieces:
                of: Row = {"files": [entry(piece) for piece in draw.pieces]}
            else:
                of = {"generator": NoiseBank.of(step.kind).kind if step.name == "noise" else step.text, "key": key}
            sources[key, what] = {"source": of, "sha256": noise_hash(draw.noise)}
        return sources[key, what]

    rows = []
    for key, n in lengths.items():
        for condition in conditions:
            if condition.name == "clean":
                continue
            steps = [{"apply": step.text, **source(step, key, n)} for step in distorter.steps(condition, key)]
            facts = {"utterance": key, "samples": n, "condition": condition.text, "snr_db": condition.snr_db}
            rows.append(facts | distorter.card(condition) | {"steps": steps})
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


@dataclass(frozen=True)
class FrozenDistorter:
    """Applies the mixtures of a manifest and no others; for the rest as `Distorter`."""

    manifest: Path
    _rows: dict[tuple[str, str], Row] = field(default_factory=dict, init=False, repr=False, compare=False)
    _checked: dict[Path, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        path = self.manifest
        try:
            lines = path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read the frozen noises {path}; give a manifest that freezing wrote") from error
        for number, line in enumerate(lines, 1):
            try:
                row = parse_json(line)
                self._rows[row["utterance"], row["condition"]] = row
                _ = int(row["samples"]), int(row["seed"]), [step["apply"] for step in row["steps"]]
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(f"{path}:{number} is not a row of frozen noise; give a manifest that freezing wrote") from error
        if not self._rows:
            raise InputError(f"{path} contains no frozen noise; freeze it with a condition other than clean")

    @property
    def seed(self) -> int:
        """That it was frozen with."""
        return int(next(iter(self._rows.values()))["seed"])

    @property
    def conditions(self) -> list[Condition]:
        """Those of the manifest, in its order."""
        return [parse_condition(text) for text in dict.fromkeys(text for _, text in self._rows)]

    def check(self, condition: Condition) -> None:
        """Raises InputError for a condition that is not in the manifest, and for recordings that are missing or have changed."""
        rows = [row for (_, text), row in self._rows.items() if text == condition.text]
        if not rows and condition.name != "clean":
            raise InputError(f"{self.manifest} has no mixture of the condition {condition.text}; freeze it with this condition")
        for source in [step["source"] for row in rows for step in row["steps"] if "source" in step]:
            for entry in source.get("files", ()):
                self._piece(entry)

    def sources(self, condition: Condition) -> list[tuple[str, int]]:
        """Name with hash, and size, of the manifest: it decides all."""
        return [(f"{self.manifest.name} {_file_hash(self.manifest)}", self.manifest.stat().st_size)]

    def apply(self, samples: np.ndarray, condition: Condition, utterance_id: str) -> np.ndarray:
        """samples: (N,) at 16 kHz. Returns float32 (N,); "clean" gives the samples themselves.

        Raises InputError for a mixture that is not in the manifest or whose noise has changed, ValueError for silent speech.
        """
        if condition.name == "clean":
            return samples
        if (row := self._rows.get((utterance_id, condition.text))) is None:
            mixture = f"the utterance {utterance_id} in the condition {condition.text}"
            raise InputError(f"{self.manifest} has no mixture of {mixture}; freeze it with both")
        if row["samples"] != len(samples):
            counts = f"has {len(samples)} samples, not the {row['samples']} it was frozen with"
            raise InputError(f"the utterance {utterance_id} {counts} in {self.manifest}; delete that manifest and freeze it again")
        for step in row["steps"]:
            samples = perform(samples, parse_condition(step["apply"]), partial(self._noise, row, step), row.get("snr_over", ACTIVE))
        return samples

    def _noise(self, row: Row, step: Row, n: int) -> np.ndarray:
        """The noise (n,) or the impulse response of a step, as it was frozen."""
        source, condition = step["source"], parse_condition(step["apply"])
        if "files" not in source:
            made = NoiseBank(source["generator"], (), row["seed"]) if condition.name == "noise" else None
            noise = made.sample(source["key"], n) if made else Distorter(row["seed"]).draw(condition, source["key"], n).noise
        else:
            pieces = [self._piece(entry) for entry in source["files"]]
            noise = recording(pieces[0].file) if condition.name == "rir" else replay(pieces, n)
        if noise_hash(noise) != step["sha256"]:
            where = f"for the utterance {row['utterance']} in the condition {row['condition']}"
            raise InputError(
                f"{self.manifest} was frozen with another noise {where} than this version generates; delete it and freeze it again"
            )
        return noise

    def _piece(self, entry: Row) -> Piece:
        file = self.manifest.parent / entry["file"]
        if file not in self._checked:
            if not file.is_file():
                raise InputError(f"the noise {file} of {self.manifest} does not exist; restore it")
            self._checked[file] = _file_hash(file)
        if self._checked[file] != entry["sha256"]:
            other = f"the noise {file} is not the one that {self.manifest} was frozen with"
            raise InputError(f"{other}; restore it, or delete the manifest and freeze it again")
        return Piece(file, entry["offset"])


def noise_hash(noise: np.ndarray) -> str:
    """SHA-256 of the noise as 16-bit audio: two of the same sound have the same, whatever their level."""
    peak = max(float(np.abs(noise).max(initial=0)), 1e-30)
    return hashlib.sha256(to_int16(np.asarray(noise, np.float64) / peak * (32767 / 32768)).astype("<i2").tobytes()).hexdigest()


def _file_hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
