"""Recordings are listed, and the files of a published corpus read: tables (Parquet, CSV) and their
cells, TextGrids, archives, pieces.

Pieces of a recording are decoded at their own rate and joined before they are resampled to 16 kHz:
the beginning of a piece is the exact sum of the lengths before it. Pieces that are resampled (or
cut into frames) one by one each gain or lose a little (fault 4 of the released DUAL code). Lengths
are those of the decoded samples; the header of an MP3 may only guess.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
import re
import sys
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, groupby
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
from msgspec import Meta
from tqdm import tqdm

from speechssl.artifacts import (
    hash_bytes,
    hash_json,
    parse_json,
    read_json,
    read_text,
    write_json,
)
from speechssl.audio import (
    SAMPLE_RATE,
    UNREAD,
    check_audio,
    read_audio,
    read_native,
    resample,
    write_flac,
)
from speechssl.data.records import check_inside, data_hash, first_passages, load_corpus, read_lines
from speechssl.errors import InputError, first_line, make_printable
from speechssl.processes import is_main
from speechssl.schema import convert

COMMON = (".wav", ".flac", ".mp3", ".ogg")  # of recordings in published corpora and of noise
SUFFIXES = (*COMMON, ".opus", ".aif", ".aiff", ".au")
MANIFESTS = (".jsonl", ".csv", ".txt", ".tsv")
SHARE = 0.1  # of the recordings that `draw` takes
LEAST = 400  # of them at least
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


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
    if count:
        size = count
    elif share is not None:
        size = math.ceil(round(share * total, 6))
    else:
        size = max(math.ceil(SHARE * total), LEAST)
    places = np.sort(np.random.default_rng(seed).choice(total, min(size, total), replace=False))
    return [recordings[i] for i in places], {"recordings": len(places), "drawn_from": total}


def hash_contents(recordings: Sequence[Recording]) -> str:
    """Hash the ids and the bytes of the files; of one that cannot be read, its id alone."""
    bar = tqdm(recordings, desc="hashing recordings", unit="file")
    return hash_json([[r.id, digest(r.path)] for r in bar])


def digest(path: Path) -> str:
    """Compute the SHA-256 of the contents of a file, 64 hex digits; empty where it cannot be
    read."""
    if not path.is_file():  # a pipe would be waited for
        return ""
    with suppress(OSError), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
    return ""


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


def source_card(source: Path, split: str | None, passages: int | None) -> dict[str, Any]:
    """Return the entries of a card about a split of a prepared corpus; none for other sources."""
    if split is None:
        return {}
    return {"corpus": data_hash(source, split), "split": split, "passages": passages}


def audio_id(name: str) -> str:
    """Make the id of a recording that has none: its path without the suffix of audio."""
    suffix = Path(name).suffix
    return make_printable(name.removesuffix(suffix) if suffix.lower() in SUFFIXES else name)


def _list_folder(folder: Path) -> list[Recording]:
    """List the files that are named like audio, however deep: links are followed, once; hidden
    files and pipes are passed over."""
    splits = sorted(p.parent.name for p in folder.glob("*/passages.jsonl"))
    if splits:
        raise InputError(
            f"{folder} is a prepared corpus; choose a split of it with --split "
            f"{' or '.join(splits)}"
        )

    def refuse(error: OSError) -> None:
        raise error

    names: list[str] = []
    seen: set[str] = set()  # folders
    unread: Counter[str] = Counter()  # suffixes
    for top, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        # which of two links is followed is no chance
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if os.path.realpath(top) in seen:
            folders.clear()
            continue
        seen.add(os.path.realpath(top))
        unread.update(Path(name).suffix.lower() for name in files if name[0] != ".")
        for name in (*files, *folders):
            path = Path(top, name)
            if name.startswith(".") or path.suffix.lower() not in SUFFIXES:
                continue
            if path.is_file() or path.is_dir() or not path.exists():
                names.append(path.relative_to(folder).as_posix())
    other = ", ".join(f"{unread[suffix]} {suffix}" for suffix in UNREAD if unread[suffix])
    if other and is_main():
        tqdm.write(
            f"{folder}: passed over {other}; convert them to FLAC if they are wanted",
            file=sys.stderr,
        )
    stems = Counter(map(audio_id, names))
    ids = [audio_id(name) if stems[audio_id(name)] == 1 else make_printable(name) for name in names]
    recordings = [Recording(i, folder / name) for i, name in zip(ids, names, strict=True)]
    return sorted(recordings, key=lambda r: r.id)


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


if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

Table = dict[str, Any]
# a document with its alignment is longer than the 128 KiB that are usual
csv.field_size_limit(1 << 30)


@contextmanager
def open_parquet(path: Path) -> Iterator[ParquetFile]:
    """Open a Parquet file. Raises InputError for a damaged file, whenever that is found."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path, pre_buffer=False) as file:
            check_columns(file.schema_arrow.names, path)
            yield file
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path} is not a whole Parquet file "
            f"({first_line(error).rstrip('.:')}); download it again"
        ) from error


def read_parquet(
    path: Path,
    columns: Sequence[str] | None = None,
    batch: int = 1024,
    groups: Sequence[int] | None = None,
) -> Iterator[Table]:
    """Yield the rows, reading so many at a time. columns: those that are wanted, as far as they are
    there; groups: of rows, None for all.

    Raises InputError for damage.
    """
    with open_parquet(path) as file:
        present = None
        if columns is not None:
            present = [name for name in file.schema_arrow.names if name in columns]
        for rows in file.iter_batches(batch, row_groups=groups, columns=present, use_threads=False):
            yield from rows.to_pylist()


def column_names(path: Path) -> list[str]:
    """Read the names of a Parquet file's columns. Raises InputError for damage."""
    with open_parquet(path) as file:
        return list(file.schema_arrow.names)


def detect_delimiter(path: Path) -> str:
    """Detect the delimiter of a CSV file by its header: a comma, a tab, or a semicolon, as some
    spreadsheets write."""
    header = _text_lines(path)[:1] or [""]
    return max(",\t;", key=header[0].count)


def read_header(path: Path) -> list[str]:
    """Return the names of the columns of a CSV file, whatever its delimiter."""
    header = csv.reader(_text_lines(path)[:1], delimiter=detect_delimiter(path))
    return [name.strip() for name in next(header, [])]


def _text_lines(path: Path) -> list[str]:
    text = read_text(path, "save it as UTF-8 or download it again")
    return [line for line in re.split(r"\r\n|\r|\n", text) if line.strip()]


QUOTED = re.compile(r'"((?:[^"]|"")*)"')  # a cell in quotation marks, those within it doubled


def read_csv(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    """Read the rows of a CSV file with a header, names without the spaces around them.

    A file of tabs in which every line has as many cells as the header is read line by line: in most
    of them a quotation mark is text. Raises InputError for a file that is no CSV, for two columns
    of one name, and for a row with more cells than there are columns, or with quotation marks
    around what looks like further rows: text would be lost.
    """
    rows = [line.split("\t") for line in _text_lines(path)]
    if delimiter == "\t" and all(len(row) == len(rows[0]) for row in rows):
        table = [[_unquote(cell) for cell in row] for row in rows]
    else:
        table = _read_quoted(path, delimiter)
    names = [name.strip() for name in table[0]] if table else []
    check_columns(names, path)
    return [dict(zip(names, row, strict=False)) for row in table[1:]]


def _unquote(cell: str) -> str:
    match = QUOTED.fullmatch(cell)
    return match[1].replace('""', '"') if match else cell


def _read_quoted(path: Path, delimiter: str) -> list[list[str]]:
    """Read the rows by the rules of CSV, the header first. Raises InputError as `read_csv` does."""
    text = read_text(path, "save it as UTF-8 or download it again")
    table: list[list[str]] = []
    problem = ""
    try:
        for row in csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter):
            columns = len(table[0]) if table else len(row)
            if any(row[columns:]):
                problem = f"{len(row)} cells and the header {columns}"
            elif _swallows_row(row, delimiter, columns):
                problem = "a cell in quotation marks that goes on over a line like a row"
            if problem:
                break
            if row:
                table.append(row)
    except csv.Error as error:
        problem = f"no whole CSV ({error})"
    if problem:
        raise InputError(
            f"{path}, row {len(table)} has {problem}; put a text that holds the delimiter in "
            "quotation marks, and double a quotation mark that is text"
        )
    return table


def _swallows_row(row: Sequence[str], delimiter: str, columns: int) -> bool:
    """Tell whether a cell of several lines begins and goes on with lines of as many cells as there
    are columns. In prose there are no tabs, and a space or three digits follow a comma."""
    prose = "" if delimiter == "\t" else r"(?!\s|[0-9]{3}(?![0-9]))"
    for before, cell in enumerate(row):
        lines = re.split(r"\r\n|\r|\n", cell)
        borders = [len(re.findall(delimiter + prose, line)) for line in lines]
        borders[0] += before
        borders[-1] += len(row) - before - 1
        if delimiter == "\t" and any("\t" in line for line in lines[1:]):
            return True
        if columns > 1 and borders[0] >= columns - 1 and max(borders[1:], default=0) >= columns - 1:
            return True
    return False


def check_columns(names: Sequence[str], path: Path) -> None:
    """Raise InputError where two columns have one name: only one of them would be read."""
    for name, count in Counter(names).items():
        if name and count > 1:
            raise InputError(f"{path} has two columns called {name}; rename or remove one of them")


def load_json(path: Path) -> Any:
    """Load a JSON file of others.

    Raises InputError for one that is not there or not whole.
    """
    text = read_text(path, "check the path, or download it again")
    try:
        return parse_json(text)
    except ValueError as error:
        raise InputError(
            f"{path} is not whole JSON ({error}); correct it, or copy or download it again"
        ) from error


# a text, a comment, a number of an item, a free-standing number
TOKEN = re.compile(
    r'"((?:[^"]|"")*)"|!.*|\[\s*\d*\s*\]|(?<![\w.])([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![\w.])'
)
Tier = tuple[str, list[tuple[str, float, float]]]


def read_tiers(path: Path) -> list[Tier]:
    """Read the names of the interval tiers of a TextGrid and their intervals (text, start, end in
    seconds), in order.

    TextGrids are those of Praat and the Montreal Forced Aligner, long or short, old or new, in
    UTF-8 or UTF-16. Where more intervals follow than a tier counts they are read, where fewer do
    the file was cut off. praatio 6.2 is not used: it reads one that is cut off as if it were whole,
    takes -0.1 for 0.1, and refuses 5e-05 and intervals that overlap or have no length, which
    aligners write. Raises InputError for a file that is no TextGrid, or not whole.
    """
    try:
        content = path.read_bytes()
        wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
        # texts and free-standing numbers, in order: all there is to either format
        tokens: list[str | float] = []
        for match in TOKEN.finditer(content.decode("utf-16" if wide else "utf-8-sig")):
            if match[1] is not None:
                tokens.append(match[1].replace('""', '"'))
            elif match[2] is not None:
                tokens.append(float(match[2]))
        return _parse_tiers(tokens)
    except (EOFError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"cannot read {path} as a TextGrid ({error}); save it again from Praat as a text file"
        ) from error


def _parse_tiers(tokens: Sequence[str | float]) -> list[Tier]:
    """Parse the tokens of a TextGrid. Raises EOFError where less follows than is counted,
    LookupError, TypeError or ValueError for tokens of something else."""
    if tokens[0] not in ("ooTextFile", "ooTextFile short") or tokens[1] != "TextGrid":
        raise TypeError("another header")
    tiers: list[Tier] = []
    found, place = 0, 5  # after the two times and the number of tiers
    while place < len(tokens):
        kind, name = tokens[place : place + 2]
        _, _, size = map(float, tokens[place + 2 : place + 5])
        width = {"IntervalTier": 3, "TextTier": 2}[str(kind)]
        place += 5
        end = place  # of the entries, which begin with a number
        while end < len(tokens) and not isinstance(tokens[end], str):
            end += width
        last = min(end, len(tokens) - width + 1)
        entries = [tokens[i : i + width] for i in range(place, last, width)]
        if len(entries) < size or end > len(tokens):
            raise EOFError(f"its tier {name} counts {size:g} and {len(entries)} follow")
        if width == 3:
            intervals = [(str(label), float(start), float(stop)) for start, stop, label in entries]
            tiers.append((str(name), intervals))
        found += 1
        place = end
    if found < float(tokens[4]):
        raise EOFError(f"it counts {tokens[4]:g} tiers and {found} follow")
    return tiers


def number_of(value: Any) -> float | None:
    """Read a cell as a number; None where it is none, NaN or infinite."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def files_below(roots: Iterable[Path], *suffixes: str) -> list[tuple[Path, Path]]:
    """List (root, file below it) for every file whose name ends so, in the order of their paths.

    Hidden files are passed over, and a folder in which a corpus was prepared: it may have been put
    into its source.
    """
    paths: list[tuple[Path, Path]] = []
    for root in roots:
        for top, folders, names in os.walk(root, followlinks=True):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            if "settings.json" in names and Path(top) != root:
                folders.clear()
                continue
            for name in sorted(names):
                if name.lower().endswith(suffixes) and not name.startswith("."):
                    paths.append((root, Path(top, name)))
    return paths


def audio_files(folder: Path) -> list[Path]:
    """List every recording of a COMMON suffix below a folder, in order, without hidden files."""
    return sorted(
        p for p in folder.rglob("*") if p.suffix.lower() in COMMON and not p.name.startswith(".")
    )


def enter(recordings: dict[Key, Path], key: Key, path: Path, copies: bool = False) -> None:
    """Enter a recording under its key. Raises InputError where another file has the same name.

    copies: one of the same contents may lie elsewhere (a release may hold recordings sorted by
    speakers, too); the first counts.
    """
    other = recordings.setdefault(key, path)
    if other != path and not (copies and digest(other) == digest(path)):
        raise InputError(
            f"{other} and {path} are both called {path.stem}; rename or remove one of them"
        )


def stamp(root: Path, *suffixes: str) -> dict[str, Any]:
    """Describe a source so that a change is seen: its tables and archives with their bytes, and how
    many recordings it has."""
    paths = [path for _, path in files_below([root], *suffixes)]
    tables = {path.relative_to(root).as_posix(): path.stat().st_size for path in paths}
    return {"files": tables, "recordings": len(files_below([root], *SUFFIXES))}


def decode_cell(content: bytes, where: str) -> np.ndarray:
    """Decode a recording that is a cell of a table, (N,) at 16 kHz. Raises InputError as
    `read_audio` does; where: the cell, for it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "recording"
        path.write_bytes(content)
        try:
            return read_audio(path)
        except InputError as error:
            raise InputError(str(error).replace(str(path), where)) from error


def safe_name(name: str) -> str:
    """Make the name of a file of an id: itself where every file system takes it as it is, else a
    short form with a hash.

    File systems may not tell upper case from lower case, so that an id with capitals is not taken
    as it is.
    """
    if re.fullmatch(r"[a-z0-9_][a-z0-9._-]{0,99}", name):
        return name
    short = re.sub("[^a-z0-9_-]+", "_", name.lower())[:60]
    return f"{short}.{hash_bytes(name.encode('utf-8', 'surrogatepass'))[:10]}"


def manifest_path(path: Path, out: Path) -> str:
    """Return a recording's path as a manifest has it: relative to the corpus where it lies in it,
    else absolute."""
    with suppress(ValueError):
        return path.resolve().relative_to(out.resolve()).as_posix()
    return str(path.resolve())


ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")


def archives_in(source: Path) -> list[Path]:
    return [path for _, path in files_below([source], *ARCHIVES)] if source.is_dir() else []


def unpack(source: Path, out: Path, archives: Sequence[Path] | None = None) -> list[Path]:
    """Unpack the archives of a source below `out`, each into a folder of its name that is whole or
    absent; return the folders to look into.

    archives: those of them that are wanted, None for all. Raises InputError for one that is
    truncated or damaged, or has members outside its folder.
    """
    for path in archives_in(source) if archives is None else archives:
        folder = out / "unpacked" / path.relative_to(source)
        part = folder.with_name(f".{folder.name}")
        if folder.is_dir():
            continue
        try:
            if path.suffix.lower() == ".zip":
                with zipfile.ZipFile(path) as archive:
                    if not _is_unpacked(path, archive.namelist()[0]):
                        archive.extractall(part)
            else:
                with tarfile.open(path) as tape:
                    first = tape.next()
                    if first and not _is_unpacked(path, first.name):
                        tape.extractall(part, filter="data")
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise InputError(
                f"{path} is truncated or damaged ({first_line(error)}); download it again, or "
                "unpack it by hand"
            ) from error
        if part.is_dir():
            part.rename(folder)
    return [source, out / "unpacked"] if (out / "unpacked").is_dir() else [source]


def _is_unpacked(archive: Path, member: str) -> bool:
    """Tell whether a member of an archive lies where unpacking it by hand puts it."""
    folders = (archive.parent, archive.parent / archive.name.split(".")[0])
    return any((folder / member).exists() for folder in folders)


# ---- recordings in pieces


@dataclass(frozen=True)
class Joined:
    """Says where the pieces lie in a recording that was joined of them."""

    lengths: tuple[int, ...]  # (K,) samples of every piece, at its own rate
    rates: tuple[int, ...]  # (K,) Hz
    samples: int  # of the whole, at 16 kHz

    @cached_property
    def starts(self) -> tuple[Fraction, ...]:
        """The seconds before every piece, and of all, exactly; (K + 1,)."""
        return tuple(accumulate(map(Fraction, self.lengths, self.rates), initial=Fraction(0)))

    def length(self, piece: int) -> float:
        """Return the seconds of a piece."""
        return float(self.starts[piece + 1] - self.starts[piece])

    def moved(self, piece: int, seconds: float) -> float:
        """Move a time in a piece to the whole."""
        return float(self.starts[piece] + Fraction(seconds))


def join(pieces: Sequence[tuple[np.ndarray, int]]) -> tuple[np.ndarray, Joined]:
    """Join the pieces (at least one) one after another at 16 kHz: float32 (N,), and where they lie.

    Pieces of one rate are resampled as a whole. Where rates change there is one resampling for
    every run of one rate, and each run begins at the exact sum of the lengths before it, to the
    nearest sample: an error of half a sample that does not add up.
    """
    runs = [
        (rate, np.concatenate([samples for samples, _ in run]))
        for rate, run in groupby(pieces, key=lambda piece: piece[1])
    ]
    if len(runs) == 1:
        whole = resample(runs[0][1], runs[0][0], SAMPLE_RATE)
    else:
        seconds = [Fraction(len(samples), rate) for rate, samples in runs]
        ends = list(accumulate(seconds, initial=Fraction(0)))
        borders = [*(round(end * SAMPLE_RATE) for end in ends[:-1]), ceil(ends[-1] * SAMPLE_RATE)]
        whole = np.zeros(borders[-1], np.float32)
        for (rate, samples), start, end in zip(runs, borders, borders[1:], strict=False):
            # may end a sample before the next begins
            piece = resample(samples, rate, SAMPLE_RATE)[: end - start]
            whole[start : start + len(piece)] = piece
    lengths = tuple(len(samples) for samples, _ in pieces)
    return whole, Joined(lengths, tuple(rate for _, rate in pieces), len(whole))


def write_joined(paths: Sequence[Path], out: Path) -> Joined:
    """Join recordings into one FLAC; `out` with the suffix .json, written last, has where they lie.
    A file that is there is left alone.

    Raises InputError naming the recording that cannot be read, and where the whole is silent or
    shorter than `read_audio` takes.
    """
    made_from = [
        {"file": path.name, "bytes": path.stat().st_size if path.is_file() else -1}
        for path in paths
    ]
    description = out.with_suffix(".json")
    if out.is_file() and description.is_file():
        card = read_json(description)
        if card.get("made_from") == made_from:
            return Joined(tuple(card["lengths"]), tuple(card["rates"]), card["samples"])
    samples, joined = join([read_native(path) for path in paths])
    check_audio(samples, SAMPLE_RATE, f"what was joined of {paths[0]} and {len(paths) - 1} more")
    write_flac(out, samples)
    write_json(description, {**asdict(joined), "made_from": made_from})
    return joined


def decoded_seconds(path: Path) -> float:
    """Return the seconds of a recording that `read_audio` takes. Raises InputError for another."""
    return len(read_audio(path)) / SAMPLE_RATE
