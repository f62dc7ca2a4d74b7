"""Recordings are listed: of a prepared corpus, a manifest, a folder, or one audio file.

`list_recordings` lists all of a source, `recordings_of` those that are learned from, and `draw`
takes some of them at random.
"""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from msgspec import Meta
from tqdm import tqdm

from speechssl.artifacts import hash_json, read_text
from speechssl.audio import UNREAD
from speechssl.data.files import SUFFIXES, detect_delimiter, digest, files_below, read_csv
from speechssl.data.records import check_inside, data_hash, first_passages, load_corpus, read_lines
from speechssl.errors import InputError, make_printable
from speechssl.processes import is_main
from speechssl.schema import convert

MANIFESTS = (".jsonl", ".csv", ".txt", ".tsv")
SHARE = 0.1  # of the recordings that `draw` takes
LEAST = 400  # of them at least
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording is a file to be read, and the name of all that is made from it."""

    id: str
    # of a manifest a str: a Path is three times as large, and there may be a million
    file: str | Path
    seconds: float | None = None  # where the manifest has it
    line: int | None = None  # of the manifest

    @property
    def path(self) -> Path:
        return Path(self.file)


def list_recordings(
    source: Path | str, split: str | None = None, passages: int | None = None
) -> list[Recording]:
    """List all recordings of a source, with unique ids. No file is opened, so some may turn out not
    to be audio.

    source: with `split`, a prepared corpus: its passages (None: all; else the first so many), then
    their questions. Else
    a manifest: .jsonl with `audio` and perhaps `id` and `seconds` in every line; .csv with a column
    `audio` and perhaps `id`; .txt with a path a line; .tsv with a path in the first column, under
    the root in the first line where there is one (fairseq's). Paths are relative to the manifest;
    in its order.
    a folder: every file in it that ends in one of SUFFIXES, however deep (other audio is counted on
    stderr); the id is the path below the folder without its suffix, except where two files would
    share it. In the order of their ids.
    an audio file: that file.
    Raises InputError for a source that is none of these or holds nothing, and for ids that are not
    unique.
    """
    source = Path(source)
    kind = source.suffix.lower()
    wrong = ""
    recordings: list[Recording] = []
    if split is not None:
        data = first_passages(load_corpus(source, split), passages)
        recordings = [Recording(r.id, data.path(r), r.seconds) for r in data.records]
        for q in data.questions:
            for name, audio in zip(q.option_ids, q.option_audio, strict=False):
                recordings.append(Recording(name, source / audio))
    elif passages is not None:
        wrong = "has no passages to count without a split; give one with --split"
    elif source.is_dir():
        recordings = _list_folder(source)
    elif not source.exists():
        wrong = "does not exist; give a prepared corpus with --split, a manifest, a folder or audio"
    elif kind in MANIFESTS:
        recordings = list(read_manifest(source))
    elif kind in (*SUFFIXES, *UNREAD):
        recordings = [Recording(make_printable(source.stem), source)]
    else:
        suffixes = ", ".join((*MANIFESTS, *SUFFIXES))
        wrong = f"is neither a manifest nor audio by its name; give a file that ends in {suffixes}"
    if not wrong and not recordings:
        wrong = "has no recordings; give a corpus, manifest or folder that has some"
    if wrong:
        raise InputError(f"{source / (split or '')} {wrong}")
    _check_unique(recordings, source)
    return recordings


def recordings_of(source: Path, split: str) -> list[Recording]:
    """List the passages of a split of a prepared corpus, or the recordings of another source.
    Raises InputError where there are none."""
    if not any(source.glob("*/passages.jsonl")):
        return list_recordings(source)
    data = load_corpus(source, split)
    if not data.passages:
        raise InputError(
            f"{source / split} has no passages to learn from; prepare the corpus with some"
        )
    return [Recording(p.id, data.path(p)) for p in data.passages.values()]


def draw(
    recordings: Sequence[Item], seed: int, share: float | None = None, count: int | None = None
) -> tuple[list[Item], dict]:
    """Draw recordings at random from the whole list, in its order; return them and what a card says
    of them: `recordings` that were `drawn_from` all.

    Lists are in the order of speakers, so the first so many would be a few of them. count: exactly
    so many (all, where there are no more); share: that share of them, rounded up. With neither it
    is SHARE, as HuBERT (arXiv 2106.07447, section IV-A) fits its k-means on 10 % of LibriSpeech,
    but no fewer than LEAST recordings, or all: 10 % of a small corpus would leave few frames and
    voices. Raises InputError where both are given, or a share is not above 0 and at most 1.
    """
    if share is not None and (count is not None or not 0 < share <= 1):
        raise InputError("--share is above 0 and at most 1, and excludes --recordings; correct it")
    total = len(recordings)
    size = count or math.ceil(round((share or SHARE) * total, 6))
    if not count and share is None:
        size = max(size, LEAST)
    places = np.sort(np.random.default_rng(seed).choice(total, min(size, total), replace=False))
    return [recordings[i] for i in places], {"recordings": len(places), "drawn_from": total}


def hash_contents(recordings: Sequence[Recording]) -> str:
    """Hash the ids and the bytes of the files; of one that cannot be read, its id alone."""
    bar = tqdm(recordings, desc="hashing recordings", unit="file")
    return hash_json([[r.id, digest(r.path)] for r in bar])


def source_card(source: Path, split: str | None, passages: int | None) -> dict[str, Any]:
    """Return the entries of a card about a split of a prepared corpus; none for other sources."""
    if split is None:
        return {}
    return {"corpus": data_hash(source, split), "split": split, "passages": passages}


def read_manifest(path: Path) -> Iterator[Recording]:
    """Read the recordings of a .jsonl, .csv, .txt or .tsv, see `list_recordings`; ids may occur
    twice. Raises InputError for damage."""
    kind = path.suffix.lower()
    if kind == ".csv":
        yield from _read_fields(path, _csv_lines(path))
    elif kind == ".jsonl":
        yield from _read_fields(path, read_lines(path))
    else:
        yield from _read_paths(path, table=kind == ".tsv")


def audio_id(name: str) -> str:
    """Make the id of a recording that has none: its path without the suffix of audio."""
    suffix = Path(name).suffix
    return make_printable(name.removesuffix(suffix) if suffix.lower() in SUFFIXES else name)


def _check_unique(recordings: Sequence[Recording], source: Path) -> None:
    first: dict[str, Recording] = {}
    for recording in recordings:
        other = first.setdefault(recording.id, recording)
        if other is not recording:
            places = [
                f"{r.path}" + (f" (line {r.line})" if r.line else "") for r in (other, recording)
            ]
            raise InputError(
                f"{source} gives the id {recording.id} to {' and '.join(places)}; make ids unique"
            )


def _list_folder(folder: Path) -> list[Recording]:
    """List the files that are named like audio, however deep; hidden files are passed over."""
    splits = sorted(p.parent.name for p in folder.glob("*/passages.jsonl"))
    if splits:
        raise InputError(
            f"{folder} is a prepared corpus; choose a split of it with --split "
            f"{' or '.join(splits)}"
        )
    paths = [path for _, path in files_below([folder], *SUFFIXES, *UNREAD)]
    unread = Counter(p.suffix.lower() for p in paths if p.suffix.lower() in UNREAD)
    if unread and is_main():
        other = ", ".join(f"{number} {suffix}" for suffix, number in unread.items())
        tqdm.write(
            f"{folder}: passed over {other}; convert them to FLAC if they are wanted",
            file=sys.stderr,
        )
    paths = [path for path in paths if path.suffix.lower() in SUFFIXES]
    names = [path.relative_to(folder).as_posix() for path in paths]
    stems = Counter(map(audio_id, names))
    recordings = []
    for name, path in zip(names, paths, strict=True):
        unique = stems[audio_id(name)] == 1
        recordings.append(Recording(audio_id(name) if unique else make_printable(name), path))
    return sorted(recordings, key=lambda r: r.id)


def _csv_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number of its line, `audio` and `id` as far as it has them) for the rows of a CSV."""
    for number, row in enumerate(read_csv(path, detect_delimiter(path)), 2):
        cells = {name: row.get(name, "").strip() for name in ("audio", "id")}
        yield number, {name: cell for name, cell in cells.items() if cell}


@dataclass(frozen=True)
class ListedRecording:
    """A line of a manifest of recordings."""

    audio: Annotated[str, Meta(min_length=1)]
    id: Annotated[str, Meta(min_length=1)] | int | None = None
    seconds: Annotated[float, Meta(gt=0, le=1e9)] | None = None


def _read_fields(path: Path, lines: Iterable[tuple[int, dict[str, Any]]]) -> Iterator[Recording]:
    """Read the recordings of a manifest whose lines have `audio`, and perhaps `id` and
    `seconds`."""
    for number, values in lines:
        place = f"{path}:{number}"
        line = convert(values, ListedRecording, place)
        check_inside(path.parent, line.audio, place)
        name = audio_id(line.audio) if line.id is None else make_printable(str(line.id))
        yield Recording(name, os.path.join(path.parent, line.audio), line.seconds, number)


def _read_paths(path: Path, table: bool) -> Iterator[Recording]:
    """Read the recordings of a manifest with a path in every line, or in the first cell of every
    line of a table (.tsv), perhaps below a root in its first line."""
    lines = read_text(path, "check the path", "the manifest").split("\n")
    root = path.parent
    rows = [(n, line.strip("\r").split("\t")) for n, line in enumerate(lines, 1) if line.strip()]
    names = [(n, (cells[0] if table else "\t".join(cells)).strip()) for n, cells in rows]
    if names and (root / names[0][1]).is_dir():
        # fairseq's: the root, then paths and their numbers of samples
        check_inside(path.parent, names[0][1], f"{path}:{names[0][0]}")
        root /= names.pop(0)[1]
    elif table and len(names) > 1:
        # one column where all other lines have more: a root, unless it is a recording by its name
        number, name = names[0]
        alone = len(rows[0][1]) == 1 and all(len(cells) > 1 for _, cells in rows[1:])
        if alone and Path(name).suffix.lower() not in SUFFIXES:
            raise InputError(
                f"the root {name} in line {number} of {path} does not exist; correct line {number}"
            )
    for number, name in names:
        check_inside(root, name, f"{path}:{number}")
        yield Recording(audio_id(Path(name).as_posix()), os.path.join(root, name), line=number)
