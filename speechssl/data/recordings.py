"""List the recordings of a prepared corpus, a manifest, a folder, or one audio file.

`list_recordings` lists all recordings of a source, `list_training_recordings` those that an encoder
or a codebook is trained on, and `sample_recordings` samples some of a list.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from msgspec import Meta
from tqdm import tqdm

from speechssl.artifacts import hash_json, read_text
from speechssl.audio import FFMPEG_SUFFIXES
from speechssl.data.files import (
    LINE_BREAK,
    QUOTE_REMEDY,
    SUFFIXES,
    detect_delimiter,
    hash_recording,
    list_files,
    read_csv,
)
from speechssl.data.records import (
    check_inside,
    hash_data,
    load_corpus,
    read_lines,
    take_first_passages,
)
from speechssl.errors import InputError, make_printable
from speechssl.schema import convert

MANIFESTS = (".jsonl", ".csv", ".txt", ".tsv")
AUDIO_SUFFIXES = (*SUFFIXES, *FFMPEG_SUFFIXES)
# By default `sample_recordings` samples this fraction of the recordings, but at least LEAST of
# them.
SHARE = 0.1
LEAST = 400
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording is an audio file with an id, under which everything made from it is stored."""

    id: str
    # a str where a manifest lists it: a Path is three times as large, and there may be a million
    file: str | Path
    seconds: float | None = None  # None where the manifest does not state them

    @property
    def path(self) -> Path:
        return Path(self.file)


def list_recordings(
    source: Path | str, split: str | None = None, passages: int | None = None
) -> list[Recording]:
    """List all recordings of a source, with unique ids. No audio file is opened, so some may turn
    out not to be audio. A source is one of these:

    - with `split`, a prepared corpus: its passages, or the first `passages` of them, then their
      questions and options;
    - a manifest, in its order: .jsonl with `audio` and perhaps `id` and `seconds` in every line;
      .csv with a column `audio` and perhaps `id`; .txt with a path a line; .tsv with a path in the
      first column, below the root in the first line where there is one (fairseq's). Paths are
      relative to the manifest;
    - a folder, in the order of the ids: every file in it that ends in one of AUDIO_SUFFIXES,
      however deep. The id is the path below the folder without its suffix, or with it where two
      files would share an id;
    - an audio file.

    Raises InputError for a source that is none of these or holds nothing, and for ids that are not
    unique.
    """
    source = Path(source)
    kind = source.suffix.lower()
    recordings: list[Recording] = []
    if split is not None:
        data = take_first_passages(load_corpus(source, split), passages)
        recordings = [Recording(r.id, data.path(r), r.seconds) for r in data.records]
        for q in data.questions:
            for name, audio in zip(q.option_ids, q.option_audio, strict=False):
                recordings.append(Recording(name, source / audio))
    elif passages is not None:
        raise InputError(
            f"{source} has no passages to count without a split; give one with --split"
        )
    elif source.is_dir():
        recordings = _list_folder(source)
    elif source.is_file() and kind in MANIFESTS:
        recordings = list(read_manifest(source))
    elif source.is_file() and kind in AUDIO_SUFFIXES:
        recordings = [Recording(make_printable(source.stem), source)]
    else:
        raise InputError(
            f"{source} does not exist, or is neither a manifest nor audio by its name; give a "
            f"folder, or a file that ends in {', '.join((*MANIFESTS, *AUDIO_SUFFIXES))}"
        )
    if not recordings:
        raise InputError(
            f"{source / (split or '')} has no recordings ({', '.join(AUDIO_SUFFIXES)}); give a "
            "source that has some"
        )
    _check_unique(recordings, source)
    return recordings


def list_training_recordings(source: Path, split: str) -> list[Recording]:
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


def sample_recordings(
    recordings: Sequence[Item], seed: int, share: float | None = None, count: int | None = None
) -> tuple[list[Item], dict]:
    """Sample recordings from a list without replacement, and keep their order. Returns them, and
    two entries of a card: `recordings`, how many were sampled, and `drawn_from`, how many there
    are.

    count: how many to sample (all, where there are fewer); share: otherwise which fraction to
    sample, rounded up. With neither, the fraction is SHARE, as HuBERT (arXiv 2106.07447, section
    IV-A) fits its k-means on 10 % of LibriSpeech, but at least LEAST recordings, because 10 % of a
    small corpus would have few frames and voices.
    """
    total = len(recordings)
    if count:
        size = count
    else:
        # rounded first: 0.07 * 100 is 7.000000000000001, which would become 8
        size = math.ceil(round((share or SHARE) * total, 6))
        if share is None:
            size = max(size, LEAST)
    chosen = np.random.default_rng(seed).choice(total, min(size, total), replace=False)
    sample = [recordings[i] for i in np.sort(chosen)]
    return sample, {"recordings": len(sample), "drawn_from": total}


def hash_contents(recordings: Sequence[Recording]) -> str:
    """Hash the ids and the bytes of recordings; of a file that cannot be read, the id alone."""
    bar = tqdm(recordings, desc="hashing recordings", unit="file")
    return hash_json([[r.id, hash_recording(r.path)] for r in bar])


def describe_split(source: Path, split: str | None, passages: int | None) -> dict[str, Any]:
    """Make the entries of a card about a split of a prepared corpus; none for other sources.
    passages: how many of them are taken, None for all."""
    if split is None:
        return {}
    return {"corpus": hash_data(source, split), "split": split, "passages": passages}


def read_manifest(path: Path) -> Iterator[Recording]:
    """Read the recordings of a manifest, .jsonl, .csv, .txt or .tsv (see `list_recordings`). Ids
    may occur twice. Raises InputError for a manifest that is damaged."""
    kind = path.suffix.lower()
    if kind == ".csv":
        yield from _make_recordings(path, _read_csv_lines(path))
    elif kind == ".jsonl":
        yield from _make_recordings(path, read_lines(path))
    else:
        yield from _read_path_list(path, has_columns=kind == ".tsv")


def make_audio_id(name: str) -> str:
    """Make the id of a recording from its path: without the suffix of audio."""
    suffix = Path(name).suffix
    return make_printable(name.removesuffix(suffix) if suffix.lower() in AUDIO_SUFFIXES else name)


def _check_unique(recordings: Sequence[Recording], source: Path) -> None:
    """Raise InputError where two recordings have one id."""
    by_id: dict[str, Recording] = {}
    for recording in recordings:
        other = by_id.setdefault(recording.id, recording)
        if other is recording:
            continue
        raise InputError(
            f"{source} gives the id {recording.id} to {other.path} and {recording.path}; make ids "
            "unique"
        )


def _list_folder(folder: Path) -> list[Recording]:
    """List the files that are named like audio, however deep, without hidden ones."""
    splits = sorted(p.parent.name for p in folder.glob("*/passages.jsonl"))
    if splits:
        raise InputError(
            f"{folder} is a prepared corpus; choose a split of it with --split "
            f"{' or '.join(splits)}"
        )
    paths = list_files(folder, *AUDIO_SUFFIXES)
    names = [path.relative_to(folder).as_posix() for path in paths]
    id_counts = Counter(map(make_audio_id, names))
    recordings = []
    for name, path in zip(names, paths, strict=True):
        recording_id = make_audio_id(name)
        if id_counts[recording_id] > 1:  # a.wav and a.flac: the suffix tells them apart
            recording_id = make_printable(name)
        recordings.append(Recording(recording_id, path))
    return sorted(recordings, key=lambda r: r.id)


def _read_csv_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number of the line, cells of `audio` and `id` that are not empty) for every row of a
    CSV."""
    for number, row in enumerate(read_csv(path, detect_delimiter(path)), 2):
        cells = {name: row.get(name, "").strip() for name in ("audio", "id")}
        yield number, {name: cell for name, cell in cells.items() if cell}


@dataclass(frozen=True)
class ListedRecording:
    """A listed recording is a line of a manifest."""

    audio: Annotated[str, Meta(min_length=1)]
    id: Annotated[str, Meta(min_length=1)] | int | None = None
    seconds: Annotated[float, Meta(gt=0, le=1e9)] | None = None


def _make_recordings(
    path: Path, lines: Iterable[tuple[int, dict[str, Any]]]
) -> Iterator[Recording]:
    """Make the recordings of the numbered lines of a manifest, which have `audio`, and perhaps `id`
    and `seconds`."""
    for number, values in lines:
        place = f"{path}:{number}"
        line = convert(values, ListedRecording, place)
        check_inside(path.parent, line.audio, place)
        if LINE_BREAK.search(line.audio):
            raise InputError(
                f"{place}: the path {line.audio!r} has a line break in it; {QUOTE_REMEDY}"
            )
        name = make_audio_id(line.audio) if line.id is None else make_printable(str(line.id))
        yield Recording(name, os.path.join(path.parent, line.audio), line.seconds)


def _read_path_list(path: Path, has_columns: bool) -> Iterator[Recording]:
    """Read the recordings of a manifest with a path in every line (.txt), or in the first column of
    every line (.tsv); a root may stand in the first line."""
    names = []
    for line in LINE_BREAK.split(read_text(path, "check the path", "the manifest")):
        if line.strip():
            names.append((line.partition("\t")[0] if has_columns else line).strip())
    root = path.parent
    if names and (root / names[0]).is_dir():
        # fairseq's: the root, then paths and their numbers of samples
        check_inside(root, names[0], str(path))
        root /= names.pop(0)
    elif names and has_columns and Path(names[0]).suffix.lower() not in AUDIO_SUFFIXES:
        raise InputError(
            f"{path} begins with {names[0]}, which is neither audio nor a folder; correct it"
        )
    for name in names:
        check_inside(root, name, str(path))
        yield Recording(make_audio_id(Path(name).as_posix()), os.path.join(root, name))
