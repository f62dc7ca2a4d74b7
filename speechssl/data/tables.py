"""Tables of published corpora are read: Parquet, CSV and JSON, and the cells of rows."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from speechssl.artifacts import parse_json, read_text
from speechssl.audio import read_audio
from speechssl.errors import InputError, first_line

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile


Table = dict[str, Any]
# a document with its alignment is longer than the 128 KiB that are usual
csv.field_size_limit(1 << 30)
REMEDY = "save it as UTF-8 or download it again"
QUOTE = "quote a text that holds the delimiter, and double a quotation mark that is text"
QUOTED = re.compile(r'"((?:[^"]|"")*)"')  # a cell in quotation marks, those within it doubled


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
