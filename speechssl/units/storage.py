"""Unit corpora are kept as a folder of Parquet parts and, written last, `_card.json`, which names
every part by its hash.

pandas, pyarrow and `datasets` take the folder as one table, since they pass over names that begin
with `_`; polars reads *.parquet. A part holds consecutive recordings, a row each; the settings that
made them stand in the schema's metadata. The bytes of a part are a function of its rows and of
pyarrow's version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from speechssl.artifacts import hash_bytes, read_json
from speechssl.errors import InputError, cut_error
from speechssl.timing import RunLength

CARD, FAILED = "_card.json", "_failed.jsonl"
INT_LISTS = pa.list_(pa.int32())
SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "seconds": pa.float64(),
        "frames": pa.int32(),
        "units": INT_LISTS,
        "lengths": INT_LISTS,  # of runs of equal units, in frames
        "audio_hash": pa.string(),  # of the file that the units were made from
    }
)
WRITE_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": False,
    "version": "2.6",
    "data_page_version": "1.0",
    "write_page_checksum": True,
}
CARD_KEY = b"speechssl"  # key of the part's card in the metadata of the Parquet schema


@dataclass(frozen=True)
class UtteranceUnits:
    """An utterance is a recording as units: a row of a part."""

    id: str
    seconds: float
    runs: RunLength
    audio_hash: str  # of the recording's file


@dataclass(frozen=True)
class Part:
    """A part holds the units of consecutive recordings. card: the settings that made it."""

    utterances: Sequence[UtteranceUnits]
    card: dict[str, Any]


def name_part(index: int) -> str:
    """Name the file of a part."""
    return f"part-{index:05d}.parquet"


def encode_part(part: Part) -> bytes:
    """Return the bytes of a part."""
    rows = [
        {
            "id": u.id,
            "seconds": u.seconds,
            "frames": u.runs.frames,
            "units": u.runs.units.astype(np.int32),
            "lengths": u.runs.lengths.astype(np.int32),
            "audio_hash": u.audio_hash,
        }
        for u in part.utterances
    ]
    schema = SCHEMA.with_metadata({CARD_KEY: json.dumps(part.card, sort_keys=True).encode()})
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink, **WRITE_OPTIONS)
    return sink.getvalue().to_pybytes()


def decode_part(content: bytes) -> Part:
    """Return the part that `encode_part` was given. Raises ValueError for bytes that are not a
    whole part."""
    try:
        # Read in this thread. An Arrow worker thread that frees a Python object at interpreter exit
        # aborts the program; read_table starts one even with use_threads=False.
        buffer = pa.BufferReader(content)
        with pq.ParquetFile(buffer, page_checksum_verification=True, pre_buffer=False) as file:
            table = file.read(use_threads=False)
        card = json.loads((table.schema.metadata or {})[CARD_KEY])
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ValueError(f"not a whole Parquet file of units: {cut_error(error)}") from error
    if not table.schema.equals(SCHEMA):
        raise ValueError(f"its columns are {', '.join(table.schema.names)}")
    columns = [table[name].to_pylist() for name in ("id", "seconds", "audio_hash")]
    columns += [_split_lists(table["units"]), _split_lists(table["lengths"])]
    utterances = []
    for name, seconds, audio_hash, units, lengths in zip(*columns, strict=True):
        runs = RunLength(units, lengths, seconds)
        utterances.append(UtteranceUnits(name, seconds, runs, audio_hash))
    return Part(utterances, card)


def _split_lists(column: pa.ChunkedArray) -> list[np.ndarray]:
    """Split a column of lists into an array (U,) int64 a row."""
    # int64, as units are when they are extracted: lengths are multiplied to sample numbers
    return [values.astype(np.int64) for values in column.to_numpy()]


def read_part_card(path: Path) -> dict[str, Any] | None:
    """Read the card of a part from its footer; None for a Parquet file of something else. Raises
    ValueError for a file that is no Parquet."""
    with path.open("rb") as file:
        schema = pq.read_schema(file)
    metadata = schema.metadata or {}
    return json.loads(metadata[CARD_KEY]) if CARD_KEY in metadata else None


def read_units_card(folder: Path) -> dict[str, Any]:
    """Read the card of a finished unit corpus. Raises InputError where there is none."""
    path = folder / CARD
    if not path.is_file():
        others = sorted(other.parent.name for other in folder.parent.glob(f"*/{CARD}"))
        remedy = "run `speechssl units extract`"
        if others:
            remedy = f"{folder.parent} has those of {', '.join(others)}: give --split, or {remedy}"
        raise InputError(f"{folder} has no finished units (no {CARD}); {remedy}")
    return dict(read_json(path))


def iterate_units(folder: Path | str) -> Iterator[UtteranceUnits]:
    """Yield the utterances of a unit corpus of any size, one part in memory at a time.

    Raises InputError when the card or a part is missing or damaged, or a part is not the one that
    the card names.
    """
    folder = Path(folder)
    for part in read_units_card(folder)["parts"]:
        path = folder / part["file"]
        try:
            content = path.read_bytes()
            if hash_bytes(content) != part["hash"]:
                raise ValueError(f"it is not the file that {CARD} describes")
            yield from decode_part(content).utterances
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot read the units {path} ({error}); extract them again with `speechssl "
                "units extract`"
            ) from error


def load_units(folder: Path | str) -> dict[str, RunLength]:
    """Load unit sequences by id, as arrays of int32. Raises InputError as `iterate_units` does."""
    sequences: dict[str, RunLength] = {}
    for utterance in iterate_units(folder):
        # int32, as on disk: a whole corpus takes half the memory
        units = utterance.runs.units.astype(np.int32)
        lengths = utterance.runs.lengths.astype(np.int32)
        sequences[utterance.id] = RunLength(units, lengths, utterance.seconds)
    return sequences
