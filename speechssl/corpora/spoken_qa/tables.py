"""Tables of published corpora (Parquet, CSV, TSV) as rows, and their cells, which may be empty in any of the ways there are."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from speechssl.errors import InputError

Table = dict[str, Any]
csv.field_size_limit(1 << 30)  # a document with its alignment is longer than the 128 KiB that are usual


def read_parquet(path: Path, columns: Sequence[str] | None = None, batch: int = 1024) -> Iterator[Table]:
    """The rows, so many at a time. columns: those that are wanted, as far as they are there. Raises InputError for damage."""
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            known = file.schema_arrow.names
            wanted = None if columns is None else [name for name in columns if name in known]
            for rows in file.iter_batches(batch, columns=wanted, use_threads=False):
                yield from rows.to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a whole Parquet file ({first_line(error)}); download it again") from error


def columns_of(path: Path) -> list[str]:
    """The names of a Parquet file's columns. Raises InputError for damage."""
    import pyarrow
    from pyarrow import parquet

    try:
        return list(parquet.read_schema(path).names)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a whole Parquet file ({first_line(error)}); download it again") from error


def first_line(error: BaseException) -> str:
    """What an error says, as part of a sentence."""
    return str(error).split("\n")[0].rstrip(".:")


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file with a header, names without what stands around them. Raises InputError for what is none."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            names = [name.strip() for name in next(reader, [])]
            return [dict(zip(names, row, strict=False)) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path} as CSV ({error}); download it again or save it as UTF-8") from error


def read_tsv(path: Path) -> tuple[list[dict[str, str]], list[int]]:
    """Rows of a tab-separated file with a header, and the numbers of the lines that have another number of cells than it.

    SLUE's hold quotation marks that are text, and cells that are quoted as in CSV: of both readings, the one that fits more lines.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            content = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path} ({error}); download it again") from error
    plain = [[_unquoted(cell) for cell in line.rstrip("\r").split("\t")] for line in content.split("\n") if line.strip()]
    quoted = [row for row in csv.reader(content.splitlines(keepends=True), delimiter="\t") if row]
    return min((_fitting(rows) for rows in (plain, quoted)), key=lambda found: len(found[1]))


def _unquoted(cell: str) -> str:
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def _fitting(rows: Sequence[Sequence[str]]) -> tuple[list[dict[str, str]], list[int]]:
    names = [name.strip() for name in rows[0]] if rows else []
    numbered = list(enumerate(rows[1:], 2))
    fits = [dict(zip(names, row, strict=True)) for _, row in numbered if len(row) == len(names)]
    return fits, [number for number, row in numbered if len(row) != len(names)]


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object. Raises InputError for what is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path} as JSON ({error}); download it again") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} is no JSON object; download it again")
    return content


def check_columns(path: Path, found: Iterable[str], needed: Iterable[str], corpus: str) -> None:
    """Raises InputError naming what is not there."""
    if missing := [name for name in needed if name not in set(found)]:
        raise InputError(f"{path} has no {', '.join(missing)}, which a table of {corpus} has; give the published file")


def text_of(value: Any) -> str:
    """A cell as text: nothing, NaN and what is no text at all are empty."""
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def number_of(value: Any) -> float | None:
    """A cell as a number; None for what is none, NaN and infinity."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def list_of(value: Any) -> list[Any]:
    """A cell as a list; a lone value is one of one."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def intervals(cells: Mapping[str, Any], start: str, end: str) -> list[tuple[float, float] | None]:
    """Pairs of two columns that hold lists; None where either is no number or there is only one of both."""
    starts, ends = list_of(cells.get(start)), list_of(cells.get(end))
    size = max(len(starts), len(ends))
    pairs = zip(starts + [None] * (size - len(starts)), ends + [None] * (size - len(ends)), strict=True)
    numbers = ((number_of(a), number_of(b)) for a, b in pairs)
    return [None if a is None or b is None else (a, b) for a, b in numbers]
