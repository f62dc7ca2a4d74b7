"""The files of a published corpus are found, named, unpacked and read: archives, recordings, and
tables in Parquet, CSV and JSON."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
import re
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from speechssl.artifacts import hash_bytes, parse_json, read_text
from speechssl.audio import read_audio
from speechssl.errors import InputError, first_line

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

COMMON = (".wav", ".flac", ".mp3", ".ogg")  # of recordings in published corpora and of noise
SUFFIXES = (*COMMON, ".opus", ".aif", ".aiff", ".au")
ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
SEGMENT = re.compile(r"(.+)(?:_|(?<=-c)-)(\d+)")
Key = TypeVar("Key", bound=Hashable)
Table = dict[str, Any]
# a document with its alignment is longer than the 128 KiB that are usual
csv.field_size_limit(1 << 30)
REMEDY = "save it as UTF-8 or download it again"
QUOTE = "quote a text that holds the delimiter, and double a quotation mark that is text"
QUOTED = re.compile(r'"((?:[^"]|"")*)"')  # a cell in quotation marks, those within it doubled


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


def group_segments(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """Group the names of parts ("PASSAGE_2", in NMSQA's test "PASSAGE-c-2"): whole -> number ->
    name."""
    segments: dict[str, dict[int, str]] = {}
    for name in names:
        match = SEGMENT.fullmatch(name)
        if match:
            segments.setdefault(match[1], {})[int(match[2])] = name
    return segments


def enter(recordings: dict[Key, Path], key: Key, path: Path, copies: bool = False) -> None:
    """Enter a recording under its key. Raises InputError where another file has the same name.

    copies: one of the same contents may lie elsewhere; the first counts.
    """
    other = recordings.setdefault(key, path)
    if other != path and not (copies and digest(other) == digest(path)):
        raise InputError(
            f"{other} and {path} are both called {path.stem}; rename or remove one of them"
        )


def check_shards(split: str, paths: Sequence[Path]) -> None:
    """Raise InputError where several files are all of one split, and not numbered as the parts of
    one."""
    parts = {path for path in paths if not ("-of-" in path.name or path.stem.isdecimal())}
    if parts and len(set(paths)) > 1:
        one, other = sorted(set(paths))[:2]
        raise InputError(
            f"both {one} and {other} look like {split}; leave one of them in the folder"
        )


def stamp(root: Path, *suffixes: str) -> dict[str, Any]:
    """Describe a source so that a change is seen: its tables and archives with their bytes, and how
    many recordings it has."""
    paths = [path for _, path in files_below([root], *suffixes)]
    tables = {path.relative_to(root).as_posix(): path.stat().st_size for path in paths}
    return {"files": tables, "recordings": len(files_below([root], *SUFFIXES))}


def digest(path: Path) -> str:
    """Compute the SHA-256 of the contents of a file, 64 hex digits; empty where it cannot be
    read."""
    if not path.is_file():  # a pipe would be waited for
        return ""
    with suppress(OSError), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
    return ""


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


# ---- tables, and the cells of their rows


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


def read_csv(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    """Read the rows of a CSV file with a header, names without the spaces around them.

    A file of tabs in which every line has as many cells as the header is read line by line: in most
    of them a quotation mark is text. Raises InputError for a file that is no CSV, for two columns
    of one name, and for a row with more cells than there are columns, or with quotation marks
    around what looks like further rows: text would be lost.
    """
    text = read_text(path, REMEDY)
    table = [line.split("\t") for line in re.split(r"\r\n|\r|\n", text) if line.strip()]
    if delimiter == "\t" and all(len(row) == len(table[0]) for row in table):
        table = [[unquote(cell) for cell in row] for row in table]
    else:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
        try:
            table = [row for row in reader if row]
        except csv.Error as error:
            place = f"{path}, line {reader.line_num}"
            raise InputError(f"{place} is no whole CSV ({error}); {QUOTE}") from error
    names = [name.strip() for name in table[0]] if table else []
    check_columns(names, path)
    for number, row in enumerate(table):
        if any(row[len(names) :]):
            cells = f"{len(row)} cells and the header {len(names)}"
            raise InputError(f"{path}, row {number} has {cells}; {QUOTE}")
        if _swallows_row(row, delimiter, len(names)):
            goes_on = "a cell in quotation marks that goes on over a line like a row"
            raise InputError(f"{path}, row {number} has {goes_on}; {QUOTE}")
    return [dict(zip(names, row, strict=False)) for row in table[1:]]


def read_header(path: Path) -> list[str]:
    """Return the names of the columns of a CSV file, whatever its delimiter."""
    header = read_text(path, REMEDY).splitlines()[:1]
    names = next(csv.reader(header, delimiter=detect_delimiter(path)), [])
    return [name.strip() for name in names]


def detect_delimiter(path: Path) -> str:
    """Detect the delimiter of a CSV file by its header: a comma, a tab, or a semicolon, as some
    spreadsheets write."""
    header = read_text(path, REMEDY).partition("\n")[0]
    return max(",\t;", key=header.count)


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


def number_of(value: Any) -> float | None:
    """Read a cell as a number; None where it is none, NaN or infinite."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


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


def unquote(cell: str) -> str:
    """Return what a cell in quotation marks holds, and any other as it is."""
    match = QUOTED.fullmatch(cell)
    return match[1].replace('""', '"') if match else cell


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
