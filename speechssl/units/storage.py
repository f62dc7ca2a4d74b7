"""Unit corpora on disk: a folder of Parquet parts and, written last, `_card.json`, which names
every part by its hash.

pandas, pyarrow and `datasets` take the folder as one table, since they pass over names that begin
with `_`; polars reads *.parquet. A part holds consecutive recordings, a row each; what made them
stands in the schema's metadata. The bytes of a part are a function of its rows and of pyarrow's
version.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from speechssl.errors import InputError
from speechssl.io import hash_bytes, read_json
from speechssl.timing import FrameGrid, RunLength

CARD, FAILED = "_card.json", "_failed.jsonl"
PART = re.compile(r"part-\d{5,}\.parquet")
READ: dict[str, Any] = {"page_checksum_verification": True, "pre_buffer": False}
SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "seconds": pa.float64(),
        "frames": pa.int32(),
        "units": pa.list_(pa.int32()),
        "lengths": pa.list_(pa.int32()),  # of runs of equal units, in frames
        "audio_hash": pa.string(),  # of the file that the units were made from
    }
)
WRITER: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": False,
    "version": "2.6",
}
WRITER |= {"data_page_version": "1.0", "write_page_checksum": True}
KEY = b"speechssl"  # of the card in the schema's metadata


@dataclass(frozen=True)
class UtteranceUnits:
    """The units of a recording."""

    id: str
    seconds: float
    runs: RunLength
    audio: str  # hash of the file


@dataclass(frozen=True)
class Part:
    """What a part holds. card: what made it."""

    utterances: Sequence[UtteranceUnits]
    card: dict[str, Any]


def part_name(index: int) -> str:
    return f"part-{index:05d}.parquet"


def encode(part: Part) -> bytes:
    """The bytes of a part."""
    rows = part.utterances
    columns = {
        "id": pa.array([u.id for u in rows], pa.string()),
        "seconds": pa.array([u.seconds for u in rows], pa.float64()),
        "frames": pa.array([u.runs.frames for u in rows], pa.int32()),
        "units": _lists([u.runs.units for u in rows]),
        "lengths": _lists([u.runs.lengths for u in rows]),
        "audio_hash": pa.array([u.audio for u in rows], pa.string()),
    }
    schema = SCHEMA.with_metadata({KEY: json.dumps(part.card, sort_keys=True).encode()})
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema), sink, **WRITER)
    return sink.getvalue().to_pybytes()


def _lists(arrays: Sequence[np.ndarray]) -> pa.Array:
    bounds = np.cumsum([0, *map(len, arrays)]).astype(np.int32)
    # there may be no units at all
    values = np.concatenate([np.zeros(0, np.int32), *arrays]).astype(np.int32)
    return pa.ListArray.from_arrays(bounds, values)


def decode(content: bytes) -> Part:
    """What `encode` was given. Raises ValueError for bytes that are not a whole part."""
    try:
        table = _read(pa.BufferReader(content))
        card = json.loads((table.schema.metadata or {})[KEY])
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ValueError(
            f"not a whole Parquet file of units: {str(error).splitlines()[0]}"
        ) from error
    if not table.schema.equals(SCHEMA):
        raise ValueError(f"its columns are {', '.join(table.schema.names)}")
    columns = (table[name].to_pylist() for name in ("id", "seconds", "audio_hash"))

    def arrays(column: pa.ChunkedArray) -> Iterator[np.ndarray]:
        for chunk in column.chunks:
            bounds, values = chunk.offsets.to_numpy(), chunk.values.to_numpy().astype(np.int64)
            yield from (values[a:b] for a, b in pairwise(bounds))

    units, lengths = (arrays(table[name]) for name in ("units", "lengths"))
    rows = zip(*columns, units, lengths, strict=True)
    return Part([UtteranceUnits(i, s, RunLength(u, n, s), a) for i, s, a, u, n in rows], card)


def part_card(path: Path) -> dict[str, Any] | None:
    """What made a part, from its footer; None for a Parquet file of something else. Raises
    ValueError for what is none."""
    try:
        with path.open("rb") as file:
            schema = pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"not a whole Parquet file: {str(error).splitlines()[0]}") from error
    try:
        card = json.loads((schema.metadata or {})[KEY])
    except (KeyError, ValueError):
        return None
    return card if isinstance(card, dict) and schema.equals(SCHEMA) else None


def part_columns(path: Path, names: Sequence[str]) -> list[list[Any]]:
    """Some columns of a part. Raises ValueError for bytes that are not a whole part."""
    try:
        with path.open("rb") as file:
            table = _read(file, list(names))
        return [table[name].to_pylist() for name in names]
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ValueError(
            f"not a whole Parquet file of units: {str(error).splitlines()[0]}"
        ) from error


def _read(file: Any, columns: list[str] | None = None) -> pa.Table:
    """By this thread. A thread of Arrow's (`read_table` begins one, whatever `use_threads` says)
    that lets go of a Python object while the program ends aborts it.
    """
    with pq.ParquetFile(file, **READ) as whole:
        return whole.read(columns, use_threads=False)


def units_card(folder: Path) -> dict[str, Any]:
    """The card of a finished unit corpus. Raises InputError where there is none, or what it says of
    parts and frames cannot be."""
    path = folder / CARD
    if not path.is_file():
        raise InputError(
            f"{folder} has no finished units (no {CARD}); extract them with "
            "`speechssl units extract`"
        )
    card: dict[str, Any] = read_json(path)
    try:
        if "grid" in card:
            FrameGrid(**card["grid"])
        if not all(
            PART.fullmatch(part["file"]) and isinstance(part["hash"], str) for part in card["parts"]
        ):
            raise ValueError("a part of another name")
    except (InputError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is not the card of units ({error}); extract them again with "
            "`speechssl units extract`"
        ) from error
    return card


def iterate_units(folder: Path | str) -> Iterator[UtteranceUnits]:
    """The utterances of a unit corpus of any size, one part in memory at a time.

    Raises InputError when the card or a part is missing or damaged, or a part is not the one that
    the card names.
    """
    folder = Path(folder)
    for listed in units_card(folder)["parts"]:
        path = folder / listed["file"]
        try:
            content = path.read_bytes()
            if hash_bytes(content) != listed["hash"]:
                raise ValueError(f"it is not the file that {CARD} describes")
            yield from decode(content).utterances
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot read the units {path} ({error}); extract them again with `speechssl "
                "units extract`"
            ) from error


def load_units(folder: Path | str) -> dict[str, RunLength]:
    """Unit sequences by id, as arrays of int32 that cannot be written. They lie in a nameless file
    of this process, so that their number is bounded by the disk; what is read often the system
    keeps in memory. Raises InputError as `iterate_units` does.
    """
    places: dict[str, tuple[int, int, float]] = {}
    at = 0
    with tempfile.TemporaryFile() as file:
        for utterance in iterate_units(folder):
            size = len(utterance.runs)
            places[utterance.id], at = (at, size, utterance.seconds), at + 2 * size
            np.stack([utterance.runs.units, utterance.runs.lengths]).astype(np.int32).tofile(file)
        file.flush()
        values = np.memmap(file, np.int32, "r") if at else np.zeros(0, np.int32)
    return {
        name: RunLength(
            values[first : first + size], values[first + size : first + 2 * size], seconds
        )
        for name, (first, size, seconds) in places.items()
    }
