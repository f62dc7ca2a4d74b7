"""Noise on disk: a recording, a folder of them, or a manifest; all as a list of paths. Nothing is decoded here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from speechssl.errors import InputError

AUDIO_SUFFIXES = (".wav", ".flac", ".mp3", ".ogg")
MANIFESTS = (".jsonl", ".txt", ".tsv")


def noise_files(path: Path) -> list[Path]:
    """The recordings that a path stands for: itself, all below a folder in the order of their names, or those of a manifest.

    A manifest is .jsonl with `audio` in every line, .txt with a path a line, or .tsv with a path in the first column, under the
    root in its first line where there is one (fairseq's); paths are relative to it. Empty where there is no such file or folder.
    Raises InputError for a manifest that cannot be read or holds nothing.
    """
    if path.is_dir():
        return sorted(p for p in path.rglob("*") if p.suffix.lower() in AUDIO_SUFFIXES and not p.name.startswith("."))
    if not path.is_file():
        return []
    return _listed(path) if path.suffix.lower() in MANIFESTS else [path]


def _listed(path: Path) -> list[Path]:
    try:
        lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the list of noises {path} as UTF-8 text; check it") from error
    root = path.parent
    if path.suffix.lower() == ".tsv" and lines and "\t" not in lines[0] and Path(lines[0]).suffix.lower() not in AUDIO_SUFFIXES:
        root /= lines.pop(0).strip()
    if not lines:
        raise InputError(f"the list of noises {path} is empty; write a recording in every line")
    if path.suffix.lower() == ".jsonl":
        return [root / _audio(line, number, path) for number, line in enumerate(lines, 1)]
    return [root / line.split("\t")[0].strip() for line in lines]


def _audio(line: str, number: int, path: Path) -> str:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise InputError(f"{path}:{number} is not JSON; write one object a line with the recording as `audio`") from error
    if not isinstance(row, dict) or not isinstance(row.get("audio"), str):
        raise InputError(f"{path}:{number} has no `audio`; write the path of the recording there")
    return row["audio"]
