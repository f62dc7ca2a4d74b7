"""Find, name, unpack and read the files of published corpora: archives, recordings, and tables in
Parquet, CSV and JSON."""

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
from itertools import islice
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from speechssl.artifacts import hash_bytes, parse_json, read_text
from speechssl.audio import read_audio
from speechssl.errors import InputError, cut_error

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

COMMON = (".wav", ".flac", ".mp3", ".ogg")  # suffixes of recordings in published corpora
SUFFIXES = (*COMMON, ".opus", ".aif", ".aiff", ".au")  # suffixes of all recordings that are read
ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
FIRST_MEMBERS = 20  # of an archive, which tell whether it was unpacked by hand
# name of the passage, and number of the segment: "PASSAGE_2"; in the test set of NMSQA
# "PASSAGE-c-2"
SEGMENT = re.compile(r"(.+)(?:_|(?<=-c)-)(\d+)")
LINE_BREAK = re.compile(r"\r\n|\r|\n")
Key = TypeVar("Key", bound=Hashable)
Row = dict[str, Any]  # column -> cell
# a cell may hold a document with its alignment, which is longer than the default of 128 KiB
csv.field_size_limit(1 << 30)
# ends of messages
REMEDY = "save it as UTF-8 or download it again"
QUOTE_REMEDY = "quote a text that holds the delimiter, and double a quotation mark that is text"
QUOTED = re.compile(r'"((?:[^"]|"")*)"')  # a quoted cell: "he said ""no"""


def is_hidden(path: Path | str) -> bool:
    """Return whether the name of a file begins with a point: killed runs, macOS and editors leave
    such files behind."""
    return os.path.basename(path).startswith(".")


def list_files(folder: Path, *suffixes: str) -> list[Path]:
    """List every file below a folder that has one of the suffixes, in order.

    Left out are hidden files and prepared corpora, since OUT may lie in SOURCE.
    """
    paths = []
    for top, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        if "settings.json" in names and Path(top) != folder:  # a prepared corpus
            folders.clear()
            continue
        for name in sorted(names):
            if name.lower().endswith(suffixes) and not is_hidden(name):
                paths.append(Path(top, name))
    return paths


def list_audio_files(folder: Path) -> list[Path]:
    """List every recording of a COMMON suffix below a folder, in order, without hidden files."""
    recordings = []
    for path in folder.rglob("*"):
        hidden = any(is_hidden(part) for part in path.relative_to(folder).parts)
        if path.suffix.lower() in COMMON and not hidden and path.is_file():
            recordings.append(path)
    return sorted(recordings)


def group_segments(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """Group the names of segments by their passage: "PASSAGE_2" is ["PASSAGE"][2] of the result."""
    segments: dict[str, dict[int, str]] = {}
    for name in names:
        match = SEGMENT.fullmatch(name)
        if match:
            segments.setdefault(match[1], {})[int(match[2])] = name
    return segments


def add_recording(recordings: dict[Key, Path], key: Key, path: Path) -> None:
    """Add a recording under its key. Raises InputError where another file with other contents has
    this key; of copies the first counts."""
    other = recordings.setdefault(key, path)
    if other != path and hash_recording(other) != hash_recording(path):
        raise InputError(
            f"{other} and {path} are both called {path.stem}; rename or remove one of them"
        )


def check_shards(split: str, paths: Sequence[Path]) -> None:
    """Raise InputError where several files claim to be one split, unless all of them are numbered
    shards ("train-00001-of-00004.parquet" or "1.parquet")."""
    unnumbered = [path for path in paths if "-of-" not in path.name and not path.stem.isdecimal()]
    if unnumbered and len(set(paths)) > 1:
        one, other = sorted(set(paths))[:2]
        raise InputError(
            f"both {one} and {other} look like {split}; leave one of them in the folder"
        )


def describe_source(root: Path, *suffixes: str) -> dict[str, Any]:
    """Describe a source, so that a change of the source changes the description: by the sizes of
    its tables and archives (the files with these suffixes) and by the number of its recordings."""
    tables = {}
    for path in list_files(root, *suffixes):
        tables[path.relative_to(root).as_posix()] = path.stat().st_size
    return {"files": tables, "recordings": len(list_files(root, *SUFFIXES))}


def hash_recording(path: Path) -> str:
    """Compute the SHA-256 of a file, 64 hex digits; "" where it cannot be read."""
    if not path.is_file():  # reading a pipe would wait for its writer
        return ""
    with suppress(OSError), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
    return ""


def make_safe_name(name: str) -> str:
    """Make a file name of an id: the id itself where every file system can hold it, otherwise a
    short form with a hash.

    An id with capital letters gets a hash, since some file systems ignore case.
    """
    if re.fullmatch(r"[a-z0-9_][a-z0-9._-]{0,99}", name):
        return name
    short = re.sub("[^a-z0-9_-]+", "_", name.lower())[:60]
    return f"{short}.{hash_bytes(name.encode('utf-8', 'surrogatepass'))[:10]}"


def make_manifest_path(path: Path, out: Path) -> str:
    """Make the path of a recording for a manifest: relative to `out` if the recording lies below
    it, otherwise absolute."""
    with suppress(ValueError):
        return path.resolve().relative_to(out.resolve()).as_posix()
    return str(path.resolve())


def unpack(source: Path, out: Path, archives: Iterable[Path]) -> list[Path]:
    """Unpack archives of a source below `out`, each into a folder of its name that is whole or
    absent. An archive that was unpacked by hand is skipped. Returns the folders in which the corpus
    lies.

    Raises InputError for an archive that is truncated or damaged, or has members outside its
    folder.
    """
    for path in archives:
        folder = out / "unpacked" / path.relative_to(source)
        part = folder.with_name(f".{folder.name}")  # renamed to `folder` when it is whole
        if folder.is_dir():
            continue
        try:
            if path.suffix.lower() == ".zip":
                with zipfile.ZipFile(path) as archive:
                    files = [name for name in archive.namelist() if not name.endswith("/")]
                    if not _is_unpacked(path, files):
                        archive.extractall(part)
            else:
                with tarfile.open(path) as tape:
                    members = islice((member for member in tape if member.isfile()), FIRST_MEMBERS)
                    if not _is_unpacked(path, [member.name for member in members]):
                        tape.extractall(part, filter="data")
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise InputError(
                f"{path} is truncated or damaged ({cut_error(error)}); download it again, or "
                "unpack it by hand"
            ) from error
        if part.is_dir():
            part.rename(folder)
    return [source, out / "unpacked"] if (out / "unpacked").is_dir() else [source]


def _is_unpacked(archive: Path, members: Sequence[str]) -> bool:
    """Return whether most of the first members of an archive lie beside the archive, or in a folder
    of its name, as they do after unpacking by hand. A README may be that of another archive, and
    hidden files are not unpacked everywhere."""
    folders = (archive.parent, archive.parent / archive.name.split(".")[0])
    found = []
    for name in members:
        parts = PurePosixPath(name).parts
        if parts[0] != "__MACOSX" and not any(map(is_hidden, parts)):
            found.append(any((folder / name).exists() for folder in folders))
    found = found[:FIRST_MEMBERS]
    return 2 * sum(found) > len(found) or not found


# ---- tables, and the cells of their rows


def read_parquet(
    path: Path,
    columns: Sequence[str] | None = None,
    batch: int = 1024,
    groups: Sequence[int] | None = None,
) -> Iterator[Row]:
    """Yield the rows of a Parquet file. columns: the columns to read as far as the file has them,
    None for all; batch: rows in memory at a time; groups: the row groups to read, None for all.

    Raises InputError for a damaged file.
    """
    with open_parquet(path) as file:
        present = None
        if columns is not None:
            present = [name for name in file.schema_arrow.names if name in columns]
        for rows in file.iter_batches(batch, row_groups=groups, columns=present, use_threads=False):
            yield from rows.to_pylist()


@contextmanager
def open_parquet(path: Path) -> Iterator[ParquetFile]:
    """Open a Parquet file. Raises InputError for a damaged file, also while it is read."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path, pre_buffer=False) as file:
            check_columns(file.schema_arrow.names, path)
            yield file
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path} is not a whole Parquet file "
            f"({cut_error(error).rstrip('.:')}); download it again"
        ) from error


def read_csv(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    """Read the rows of a CSV or TSV file with a header. White space around the names of columns is
    removed.

    Raises InputError for a file that is no CSV, for two columns of one name, and for rows in which
    text would be lost: with more cells than there are columns, or with quotation marks around
    further rows (`_has_further_rows`).
    """
    text = read_text(path, REMEDY)
    rows = _split_tsv(text) if delimiter == "\t" else None
    if rows is None:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
        try:
            rows = [row for row in reader if row]
        except csv.Error as error:
            place = f"{path}, line {reader.line_num}"
            raise InputError(f"{place} is no whole CSV ({error}); {QUOTE_REMEDY}") from error
    names = [name.strip() for name in rows[0]] if rows else []
    check_columns(names, path)
    for number, row in enumerate(rows):
        if any(row[len(names) :]):
            problem = f"{len(row)} cells and the header {len(names)}"
        elif _has_further_rows(row, delimiter, len(names)):
            problem = "a cell in quotation marks that goes on over a line like a row"
        else:
            continue
        raise InputError(f"{path}, row {number} has {problem}; {QUOTE_REMEDY}")
    return [dict(zip(names, row, strict=False)) for row in rows[1:]]


def _split_tsv(text: str) -> list[list[str]] | None:
    """Split a text at line breaks and tabs, since in most TSV files a quotation mark is text.
    Returns None where rows differ in length: the file is then quoted as a CSV is."""
    rows = [line.split("\t") for line in LINE_BREAK.split(text) if line.strip()]
    if any(len(row) != len(rows[0]) for row in rows):
        return None
    return [[unquote(cell) for cell in row] for row in rows]


def read_header(path: Path) -> list[str]:
    """Read the names of the columns of a Parquet file, or of a CSV file of any delimiter."""
    if path.suffix == ".parquet":
        with open_parquet(path) as file:
            return list(file.schema_arrow.names)
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
    """Load a JSON file of a published corpus. Raises InputError where it does not exist or is
    not whole."""
    text = read_text(path, "check the path, or download it again")
    try:
        return parse_json(text)
    except ValueError as error:
        raise InputError(
            f"{path} is not whole JSON ({error}); correct it, or copy or download it again"
        ) from error


def parse_number(value: Any) -> float | None:
    """Parse the number in a cell; None where there is none, or it is NaN or infinite."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def decode_cell(content: bytes, where: str) -> np.ndarray:
    """Decode a recording whose file is the content of a table's cell. Returns samples (N,) at 16
    kHz. where: the name of the cell in errors. Raises InputError as `read_audio` does."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "recording"
        path.write_bytes(content)
        try:
            return read_audio(path)
        except InputError as error:
            raise InputError(str(error).replace(str(path), where)) from error


def unquote(cell: str) -> str:
    """Return a cell without its quotation marks, if it has some: `"say ""no"" now"` becomes `say
    "no" now`."""
    match = QUOTED.fullmatch(cell)
    return match[1].replace('""', '"') if match else cell


def _has_further_rows(row: Sequence[str], delimiter: str, columns: int) -> bool:
    """Return whether a cell of several lines holds further rows.

    The file

        id,text,speaker
        1,"he said,ann
        2,no",bob

    has one row with the cell 'he said,ann\\n2,no'. With the cells to its left and right, its first
    line is '1,he said,ann' and its last '2,no,bob': both have two commas, as rows have. A comma
    before white space or before three digits belongs to prose or to a number, and is not counted.
    """
    border = delimiter  # the pattern of a border between two cells
    if delimiter != "\t":
        border += r"(?!\s|[0-9]{3}(?![0-9]))"
    for cells_before, cell in enumerate(row):
        lines = LINE_BREAK.split(cell)
        borders = [len(re.findall(border, line)) for line in lines]
        borders[0] += cells_before
        borders[-1] += len(row) - cells_before - 1
        if delimiter == "\t" and any("\t" in line for line in lines[1:]):
            return True
        first_is_row = columns > 1 and borders[0] >= columns - 1
        if first_is_row and max(borders[1:], default=0) >= columns - 1:
            return True
    return False
