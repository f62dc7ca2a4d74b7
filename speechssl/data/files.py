"""Recordings, and the files of a published corpus: tables (Parquet, CSV) and their cells,
TextGrids, archives, pieces.

Pieces of a recording are decoded at their own rate and joined before they are resampled to 16 kHz:
the beginning of a piece is the exact sum of the lengths before it. Pieces that are resampled (or
cut into frames) one by one each gain or lose a little (fault 4 of the released DUAL code). Lengths
are those of what is decoded; the header of an MP3 may only guess.
"""

from __future__ import annotations

import csv
import hashlib
import math
import os
import re
import shutil
import sys
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache, cached_property
from itertools import accumulate, groupby, islice
from math import ceil
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np
from tqdm import tqdm

from speechssl.audio import (
    SAMPLE_RATE,
    UNREAD,
    check_audio,
    read_audio,
    read_native,
    resample,
    write_flac,
)
from speechssl.data.records import data_hash, first_passages, load_corpus
from speechssl.errors import InputError, first_line, printable
from speechssl.io import (
    check_inside,
    hash_bytes,
    hash_json,
    parse_json,
    read_json,
    read_lines,
    read_text,
    replacing,
    write_json,
)
from speechssl.processes import is_main

COMMON = (".wav", ".flac", ".mp3", ".ogg")  # of recordings in published corpora and of noise
SUFFIXES = (*COMMON, ".opus", ".aif", ".aiff", ".au")
MANIFESTS = (".jsonl", ".csv", ".txt", ".tsv")
SHARE, LEAST = 0.1, 400  # of the recordings; and how many of them at least, see `draw`
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Recording:
    """A file to be read, and the name of what is made from it."""

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
    """All recordings of a source, with unique ids. No file is opened, so some may turn out not to
    be audio.

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
    if split is not None:
        data = first_passages(load_corpus(source, split), passages)
        recordings = [Recording(r.id, data.path(r), r.seconds) for r in data.records]
        for q in data.questions:
            recordings += [
                Recording(i, source / audio)
                for i, audio in zip(q.option_ids, q.option_audio, strict=False)
            ]
    elif passages is not None:
        raise InputError(
            f"{source} has no passages to count without a split; give one with --split"
        )
    elif source.is_dir():
        recordings = _of_folder(source)
    elif not source.exists():
        raise InputError(
            f"{source} does not exist; give a prepared corpus with --split, a "
            "manifest, a folder or an audio file"
        )
    elif source.suffix.lower() in MANIFESTS:
        recordings = list(read_manifest(source))
    elif source.suffix.lower() in (*SUFFIXES, *UNREAD):
        recordings = [Recording(printable(source.stem), source)]
    else:
        suffixes = ", ".join((*MANIFESTS, *SUFFIXES))
        raise InputError(
            f"{source} has a name that is neither a manifest's nor an audio file's; give a "
            f"folder or a file that ends in {suffixes}"
        )
    if not recordings:
        raise InputError(
            f"{source / (split or '')} has no recordings; give a corpus, manifest "
            "or folder that has some"
        )
    if len({r.id for r in recordings}) < len(recordings):
        twice = next(name for name, count in Counter(r.id for r in recordings).items() if count > 1)
        places = (
            f"{r.path}" + (f" (line {r.line})" if r.line else "")
            for r in recordings
            if r.id == twice
        )
        raise InputError(
            f"{source} gives the id {twice} to {' and '.join(islice(places, 2))}; make ids unique"
        )
    return recordings


def draw(
    recordings: Sequence[Item], seed: int, share: float | None = None, count: int | None = None
) -> tuple[list[Item], dict]:
    """A random choice of the whole list, kept in its order, and what a card says of it:
    `recordings` that were `drawn_from` all.

    Lists are in the order of speakers, so the first so many would be a few of them. count: exactly
    so many (all, where there are
    no more); share: that share of them, rounded up. With neither it is SHARE, as HuBERT (arXiv
    2106.07447, section IV-A) fits its k-means on 10 % of LibriSpeech, but no fewer than LEAST
    recordings, or all: 10 % of a small corpus would leave few frames and voices. Raises InputError
    where both are given, or a share is not above 0 and at most 1.
    """
    if share is not None and count is not None:
        raise InputError("--share and --recordings exclude each other; give one of them")
    if share is not None and not 0 < share <= 1:
        raise InputError(
            f"a share of {share:g} of the recordings cannot be drawn; give one "
            "above 0 and at most 1"
        )
    total = len(recordings)
    size = count or (
        max(math.ceil(SHARE * total), LEAST)
        if share is None
        else math.ceil(round(share * total, 6))
    )
    places = np.sort(np.random.default_rng(seed).choice(total, min(size, total), replace=False))
    return [recordings[i] for i in places], {"recordings": len(places), "drawn_from": total}


def hash_contents(recordings: Sequence[Recording]) -> str:
    """Of the ids and the bytes of the files; of one that cannot be read, of its id alone."""
    return hash_json(
        [[r.id, digest(r.path)] for r in tqdm(recordings, desc="hashing recordings", unit="file")]
    )


def digest(path: Path) -> str:
    """SHA-256 of the contents of a file, 64 hex digits; empty where it cannot be read."""
    try:
        if not path.is_file():  # a pipe would be waited for
            return ""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def recordings_of(source: Path, split: str) -> list[Recording]:
    """The passages of a split of a prepared corpus, or the recordings of another source. Raises
    InputError where there are none."""
    if not any(source.glob("*/passages.jsonl")):
        return list_recordings(source)
    data = load_corpus(source, split)
    if not data.passages:
        raise InputError(
            f"{source / split} has no passages to learn from; prepare the corpus with some"
        )
    return [Recording(p.id, data.path(p)) for p in data.passages.values()]


def source_card(source: Path, split: str | None, passages: int | None) -> dict[str, Any]:
    """What a split of a prepared corpus leaves in the card of what is made from it; nothing for
    other sources."""
    return (
        {}
        if split is None
        else {"corpus": data_hash(source, split), "split": split, "passages": passages}
    )


def id_of(name: str) -> str:
    """Of a recording that has none: its path without the suffix of audio."""
    suffix = Path(name).suffix
    return printable(name.removesuffix(suffix) if suffix.lower() in SUFFIXES else name)


def _of_folder(folder: Path) -> list[Recording]:
    """What is named like audio, however deep: links are followed, once; hidden files and pipes are
    passed over."""
    if splits := sorted(p.parent.name for p in folder.glob("*/passages.jsonl")):
        raise InputError(
            f"{folder} is a prepared corpus; choose a split of it with --split "
            f"{' or '.join(splits)}"
        )

    def unreadable(error: OSError) -> None:
        raise InputError(
            f"cannot list the folder {error.filename} ({error.strerror}); check the path and its "
            "permissions"
        ) from error

    names, seen, unread = list[str](), set[str](), Counter[str]()
    for top, folders, files in os.walk(folder, onerror=unreadable, followlinks=True):
        # which of two links is followed is no chance
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if os.path.realpath(top) in seen:
            folders.clear()
            continue
        seen.add(os.path.realpath(top))
        unread.update(Path(name).suffix.lower() for name in files if name[0] != ".")
        for path in (Path(top, name) for name in (*files, *folders) if name[0] != "."):
            if path.suffix.lower() in SUFFIXES and (
                path.is_file() or path.is_dir() or not path.exists()
            ):
                names.append(path.relative_to(folder).as_posix())
    if (
        other := ", ".join(f"{unread[suffix]} {suffix}" for suffix in UNREAD if unread[suffix])
    ) and is_main():
        tqdm.write(
            f"{folder}: passed over {other}; convert them to FLAC if they are wanted",
            file=sys.stderr,
        )
    stems = Counter(map(id_of, names))
    ids = [id_of(name) if stems[id_of(name)] == 1 else printable(name) for name in names]
    return sorted(
        (Recording(i, folder / name) for i, name in zip(ids, names, strict=True)),
        key=lambda r: r.id,
    )


def read_manifest(path: Path) -> Iterator[Recording]:
    """The recordings of a .jsonl, .csv, .txt or .tsv, see `list_recordings`; ids may occur twice.
    Raises InputError for damage."""
    if (kind := path.suffix.lower()) in (".jsonl", ".csv"):
        outside = total = 0
        rows = read_csv(path, delimiter_of(path)) if kind == ".csv" else ()
        cells = ({k: v.strip() for k, v in row.items() if v.strip()} for row in rows)
        for number, values in enumerate(cells, 2) if kind == ".csv" else read_lines(path):
            audio, seconds = values.get("audio"), values.get("seconds")
            if not isinstance(audio, str) or not audio:
                remedy = "give every line the path of its recording, relative to the manifest"
                raise InputError(f"{path}:{number} has no `audio`; {remedy}")
            total += 1
            outside += check_inside(path.parent, audio, f"{path}:{number}")
            name = values.get("id", id_of(audio))
            if not isinstance(name, (str, int)) or isinstance(name, bool) or name == "":
                raise InputError(
                    f"{path}:{number} has the id {name!r}; give a text that no other line has"
                )
            length = (
                float(seconds)
                if isinstance(seconds, (int, float)) and 0 < seconds < float("inf")
                else None
            )
            yield Recording(printable(str(name)), os.path.join(path.parent, audio), length, number)
        _warn_outside(path, outside, total)
        return
    lines = read_text(path, "check the path", "the manifest").split("\n")
    table, root = path.suffix.lower() == ".tsv", path.parent
    numbered = [
        (n, line.strip("\r").split("\t")) for n, line in enumerate(lines, 1) if line.strip()
    ]
    names = [(n, (cells[0] if table else "\t".join(cells)).strip()) for n, cells in numbered]
    rooted = bool(names) and (root / names[0][1]).is_dir()
    if rooted:  # fairseq's: the root, then paths and their numbers of samples
        check_inside(path.parent, names[0][1], f"{path}:{names[0][0]}")
        root /= names.pop(0)[1]
    elif (
        table
        and len(names) > 1
        and [len(cells) > 1 for _, cells in numbered] == [False] + [True] * (len(names) - 1)
    ):
        # one column where all other lines have more: a root, unless it is a recording by its name
        number, name = names[0]
        if Path(name).suffix.lower() not in SUFFIXES:
            raise InputError(
                f"the root {name} in line {number} of {path} does not exist; correct line {number}"
            )
    outside = 0
    for number, name in names:
        outside += check_inside(root, name, f"{path}:{number}")
        if (
            rooted
            and Path(name).is_absolute()
            and root.resolve() not in Path(name).resolve().parents
        ):
            raise InputError(
                f"{path}:{number} names {name}, which is not in the root {root} of "
                "its first line; correct the line"
            )
    if not rooted:  # else the first line says it
        _warn_outside(path, outside, len(names))
    yield from (
        Recording(id_of(Path(name).as_posix()), os.path.join(root, name), line=n)
        for n, name in names
    )


@cache  # once
def _warn_outside(path: Path, outside: int, lines: int) -> None:
    """Say on stderr how many recordings of a list lie outside its folder: whoever wrote it may have
    meant other files."""
    if outside and is_main():
        tqdm.write(
            f"{outside} of {lines} recordings of {path} lie outside its folder", file=sys.stderr
        )


if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

Table = dict[str, Any]
# a document with its alignment is longer than the 128 KiB that are usual
csv.field_size_limit(1 << 30)


@contextmanager
def open_parquet(path: Path) -> Iterator[ParquetFile]:
    """Raises InputError for a damaged file, whenever that is found."""
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
    """The rows, so many at a time. columns: those that are wanted, as far as they are there;
    groups: of rows, None for all.

    Raises InputError for damage.
    """
    with open_parquet(path) as file:
        present = (
            None
            if columns is None
            else [name for name in file.schema_arrow.names if name in columns]
        )
        for rows in file.iter_batches(batch, row_groups=groups, columns=present, use_threads=False):
            yield from rows.to_pylist()


def columns_of(path: Path) -> list[str]:
    """The names of a Parquet file's columns. Raises InputError for damage."""
    with open_parquet(path) as file:
        return list(file.schema_arrow.names)


@contextmanager
def open_csv(
    path: Path, strict: bool = False, delimiter: str = ","
) -> Iterator[Iterator[list[str]]]:
    """The rows of a CSV file, the header first. Raises InputError for what is none."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield csv.reader(file, strict=strict, delimiter=delimiter)
    except UnicodeDecodeError as error:
        raise InputError(
            f"cannot read {path} as CSV (it is not UTF-8); save it as UTF-8 or download it again"
        ) from error
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}); check the path") from error
    except csv.Error as error:
        raise InputError(
            f"cannot read {path} as CSV ({error}); correct it or download it again"
        ) from error


def delimiter_of(path: Path) -> str:
    """What separates the columns of a CSV file by its header: a comma, a tab, or a semicolon, as
    some spreadsheets write."""
    with open_csv(path) as rows:
        header = ",".join(next(rows, []))
    return max(",\t;", key=header.count)


QUOTED = re.compile(r'"((?:[^"]|"")*)"')  # a cell in quotation marks, those within it doubled


def read_csv(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    """Rows of a CSV file with a header, names without what stands around them.

    A file of tabs in which every line has as many cells as the header is read line by line: in most
    of them a quotation mark is text. Raises InputError for what is no CSV, for a column or a row
    that is there twice over (two names are one, or quotation marks hold what looks like further
    rows), and for a row with more cells than there are columns: the rest of its text would be lost.
    """
    table = _plain_rows(path) if delimiter == "\t" else None
    if table is None:
        table = _quoted_rows(path, delimiter)
    names = [name.strip() for name in table[0]] if table else []
    check_columns(names, path)
    return [dict(zip(names, row, strict=False)) for row in table[1:]]


def _plain_rows(path: Path) -> list[list[str]] | None:
    """The cells between tabs, line by line; None where a line has another number of them than the
    first."""
    lines = re.split(r"\r\n|\r|\n", read_text(path, "save it as UTF-8 or download it again"))
    rows = [line.split("\t") for line in lines if line.strip()]
    if any(len(row) != len(rows[0]) for row in rows):
        return None

    def unquoted(cell: str) -> str:
        return match[1].replace('""', '"') if (match := QUOTED.fullmatch(cell)) else cell

    return [[unquoted(cell) for cell in row] for row in rows]


def _quoted_rows(path: Path, delimiter: str) -> list[list[str]]:
    """The rows by the rules of CSV, the header first. Raises InputError as `read_csv` does."""
    table: list[list[str]] = []
    with open_csv(path, strict=True, delimiter=delimiter) as rows:
        try:
            for row in rows:
                if not row:
                    continue
                between = {"\t": "tabs", ";": "semicolons"}.get(delimiter, "commas")
                columns = len(table[0]) if table else len(row)
                if any(row[columns:]):
                    counts = f"{len(row)} cells and the header {columns}"
                    raise InputError(
                        f"{path}, row {len(table)} has {counts}; put a text that "
                        f"holds {between} in quotation marks"
                    )
                if swallowed := _row_within(row, delimiter, columns):
                    raise InputError(
                        f"{path}, row {len(table)} has a cell in quotation marks that goes on "
                        "over the line "
                        f"{printable(swallowed)!r}, which looks like a row; double a quotation "
                        "mark that is text"
                    )
                table.append(row)
        except csv.Error as error:
            # not of quotation marks, but of what stands in no text
            if "expected" not in str(error):
                raise
            raise InputError(
                f"cannot read {path} as CSV ({error} in row {len(table)}); double a quotation "
                "mark that is text"
            ) from error
    return table


def _row_within(row: Sequence[str], delimiter: str, columns: int) -> str:
    """A line after the first one of a cell that has as many cells as there are columns, as the
    first line has; "" where there is none. With what is before and after the cell these are lines
    of the file.

    In prose there are no tabs, and a space or three digits follow a comma.
    """
    prose = re.compile(r"\s|[0-9]{3}(?![0-9])")

    def borders(line: str) -> int:
        return sum(not prose.match(rest) for rest in line.split(delimiter)[1:])

    for before, cell in enumerate(row):
        first, *others = re.split(r"\r\n|\r|\n", cell)
        for number, line in enumerate(others, 1):
            after = len(row) - before - 1 if number == len(others) else 0
            tabs = delimiter == "\t" and delimiter in line
            if tabs or (
                before + borders(first) >= columns - 1 <= borders(line) + after and columns > 1
            ):
                return line
    return ""


def check_columns(names: Sequence[str], path: Path) -> None:
    """Raises InputError where two columns have one name: only one of them would be read."""
    if twice := next((name for name, count in Counter(names).items() if name and count > 1), None):
        raise InputError(f"{path} has two columns called {twice}; rename or remove one of them")


def load_json(path: Path, halves: bool = False) -> Any:
    """What a JSON file of others holds. halves: as of `parse_json`.

    Raises InputError for one that is not there or not whole.
    """
    try:
        return parse_json(path.read_bytes().decode("utf-8-sig"), halves)
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}); check the path") from error
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
    """Names of the interval tiers of a TextGrid and their intervals (text, start, end in seconds),
    in order.

    TextGrids are those of Praat and the Montreal Forced Aligner, long or short, old or new, in
    UTF-8 or UTF-16. Where more intervals follow than a tier counts they are read, where fewer do
    the file was cut off. praatio 6.2 is not used: it reads one that is cut off as if it were whole,
    takes -0.1 for 0.1, and refuses 5e-05 and intervals that overlap or have no length, which
    aligners write. Raises InputError for a file that is no TextGrid, or not whole.
    """
    try:
        content = path.read_bytes()
        text = content.decode(
            "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        )
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read {path} as a TextGrid ({error}); save it again as UTF-8"
        ) from error
    # texts and free-standing numbers, in order: all there is to either format
    matches = [m for m in TOKEN.finditer(text) if m[1] is not None or m[2] is not None]
    tokens: list[str | float] = [
        float(m[2]) if m[1] is None else m[1].replace('""', '"') for m in matches
    ]
    try:
        return _tiers_of(tokens)
    except (EOFError, LookupError, TypeError, ValueError) as error:
        why = f" ({error})" if isinstance(error, EOFError) else ""
        raise InputError(
            f"cannot read {path} as a TextGrid{why}; save it again from Praat as a text file"
        ) from error


def _tiers_of(tokens: Sequence[str | float]) -> list[Tier]:
    """Raises EOFError where less follows than is counted, LookupError, TypeError or ValueError for
    what is no TextGrid."""
    if tokens[0] not in ("ooTextFile", "ooTextFile short") or tokens[1] != "TextGrid":
        raise TypeError("another header")
    tiers, found, place = list[Tier](), 0, 5  # after the two times and the number of tiers
    while place < len(tokens):
        (kind, name), (_, _, size) = (
            tokens[place : place + 2],
            map(float, tokens[place + 2 : place + 5]),
        )
        width = {"IntervalTier": 3, "TextTier": 2}[str(kind)]
        place += 5
        end = place  # of the entries, which begin with a number
        while end < len(tokens) and not isinstance(tokens[end], str):
            end += width
        entries = [
            tokens[i : i + width] for i in range(place, min(end, len(tokens) - width + 1), width)
        ]
        if len(entries) < size or end > len(tokens):
            raise EOFError(f"its tier {name} counts {size:g} and {len(entries)} follow")
        if width == 3:
            tiers.append(
                (
                    str(name),
                    [(str(label), float(start), float(stop)) for start, stop, label in entries],
                )
            )
        found, place = found + 1, end
    if found < float(tokens[4]):
        raise EOFError(f"it counts {tokens[4]:g} tiers and {found} follow")
    return tiers


def text_of(value: Any) -> str:
    """A cell as text: nothing, NaN and what is no text at all are empty."""
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def truth_of(value: Any) -> bool | None:
    """A cell as true or false, as it stands or as a word; None for an empty one. Raises TypeError
    for anything else."""
    word = str(value).strip().casefold() if isinstance(value, str | int | float) else value
    if word is None or word in ("", "none", "null", "nan"):
        return None
    if word in ("true", "yes", "1", "1.0"):
        return True
    if word in ("false", "no", "0", "0.0"):
        return False
    raise TypeError(f"{value!r} is neither true nor false")


def number_of(value: Any) -> float | None:
    """A cell as a number; None for what is none, NaN and infinity."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def list_of(value: Any) -> list[Any]:
    """A cell as a list; a lone value is one of one."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def files_below(roots: Iterable[Path], *suffixes: str) -> list[tuple[Path, Path]]:
    """(root, file below it) for every file whose name ends so, in the order of their paths.

    Passed over is what is hidden, and a folder in which a corpus was prepared: it may have been put
    into its source.
    """
    paths: list[tuple[Path, Path]] = []
    for root in roots:
        for top, folders, names in os.walk(root, followlinks=True):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            if "settings.json" in names and Path(top) != root:
                folders.clear()
                continue
            matching = (
                name
                for name in sorted(names)
                if name.lower().endswith(suffixes) and not name.startswith(".")
            )
            paths += [(root, Path(top, name)) for name in matching]
    return paths


def audio_files(folder: Path) -> list[Path]:
    """Every recording of a COMMON suffix below a folder, in order, without hidden files."""
    return sorted(
        p for p in folder.rglob("*") if p.suffix.lower() in COMMON and not p.name.startswith(".")
    )


def enter(recordings: dict[Key, Path], key: Key, path: Path, copies: bool = False) -> None:
    """Enter a recording under what it is looked up by. Raises InputError where another file has the
    same name.

    copies: one of the same contents may lie elsewhere (a release may hold recordings sorted by
    speakers, too); the first counts.
    """
    other = recordings.setdefault(key, path)
    if other != path and not (copies and digest(other) == digest(path)):
        raise InputError(
            f"{other} and {path} are both called {path.stem}; rename or remove one of them"
        )


def stamp(root: Path, *suffixes: str) -> dict[str, Any]:
    """What a changed source is known by: its tables and archives with their bytes, and how many
    recordings it has."""
    tables = {
        path.relative_to(root).as_posix(): path.stat().st_size
        for _, path in files_below([root], *suffixes)
    }
    return {"files": tables, "recordings": len(files_below([root], *SUFFIXES))}


def decoded(content: bytes, where: str) -> np.ndarray:
    """A recording that is a cell of a table, (N,) at 16 kHz. Raises InputError as `read_audio`
    does; where: the cell, for it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "recording"
        path.write_bytes(content)
        try:
            return read_audio(path)
        except InputError as error:
            raise InputError(str(error).replace(str(path), where)) from error


def safe_name(name: str) -> str:
    """An id as the name of a file: itself where every file system takes it as it is, else a short
    form with a hash.

    File systems may not tell upper case from lower case, so that an id with capitals is not taken
    as it is.
    """
    if re.fullmatch(r"[a-z0-9_][a-z0-9._-]{0,99}", name):
        return name
    return f"{re.sub('[^a-z0-9_-]+', '_', name.lower())[:60]}.{hash_bytes(name.encode('utf-8', 'surrogatepass'))[:10]}"


def manifest_path(path: Path, out: Path) -> str:
    """A recording's path as a manifest has it: relative to the corpus where it lies in it, else
    absolute."""
    with suppress(ValueError):
        return path.resolve().relative_to(out.resolve()).as_posix()
    return str(path.resolve())


ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
WANTED = (*SUFFIXES, ".textgrid", ".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt")


def archives_in(source: Path) -> list[Path]:
    return [path for _, path in files_below([source], *ARCHIVES)] if source.is_dir() else []


def unpacked(source: Path, out: Path, archives: Sequence[Path] | None = None) -> list[Path]:
    """The folders to look into: the source, and one below `out` for the archives in it that do not
    lie unpacked beside themselves.

    archives: those of them that are wanted, None for all. One that is unpacked already is left
    alone. Raises InputError for
    one that is truncated or damaged.
    """
    for path in archives_in(source) if archives is None else archives:
        folder, made_from = (
            out / "unpacked" / path.relative_to(source),
            {"bytes": path.stat().st_size},
        )
        done = folder / ".done.json"
        if done.is_file() and read_json(done) == made_from:
            continue
        # is the first file of use there already, where unpacking it by hand would have put it?
        with _members(path) as members:
            first = next((name for name, _ in members), None)
        if first is not None and any(
            (top / first).is_file() for top in (path.parent, path.parent / path.name.split(".")[0])
        ):
            continue
        with _members(path) as members:
            for name, content in members:
                with replacing(folder / name) as temporary, temporary.open("wb") as file:
                    shutil.copyfileobj(content, file, 1 << 20)
        write_json(done, made_from)
    return [source, out / "unpacked"] if (out / "unpacked").is_dir() else [source]


@contextmanager
def _members(path: Path) -> Iterator[Iterator[tuple[PurePosixPath, IO[bytes]]]]:
    """Files of use in an archive, in its order: not what would leave the folder, nor what is hidden
    (macOS leaves such)."""

    def of_use(name: str) -> bool:
        parts = PurePosixPath(name).parts
        inside = (
            bool(parts)
            and not name.startswith("/")
            and not any(part == ".." or part.startswith("._") for part in parts)
        )
        return inside and "__MACOSX" not in parts and name.lower().endswith(WANTED)

    try:
        if path.name.lower().endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                files = [i for i in archive.infolist() if not i.is_dir() and of_use(i.filename)]
                yield ((PurePosixPath(i.filename), archive.open(i)) for i in files)
        else:
            with tarfile.open(path, "r:*") as tape:
                entries = (i for i in tape if i.isfile() and of_use(i.name))
                yield (
                    (PurePosixPath(i.name), file) for i in entries if (file := tape.extractfile(i))
                )
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk, not the archive
            raise
        raise InputError(
            f"{path} is truncated or damaged ({first_line(error).rstrip('.:')}); download it "
            "again, or unpack it by hand"
        ) from error


# ---- recordings in pieces


@dataclass(frozen=True)
class Joined:
    """Where the pieces lie in what was joined of them."""

    lengths: tuple[int, ...]  # (K,) samples of every piece, at its own rate
    rates: tuple[int, ...]  # (K,) Hz
    samples: int  # of the whole, at 16 kHz

    @cached_property
    def starts(self) -> tuple[Fraction, ...]:
        """(K + 1,) seconds before every piece, and of all, exactly."""
        return tuple(accumulate(map(Fraction, self.lengths, self.rates), initial=Fraction(0)))

    def length(self, piece: int) -> float:
        """Seconds of a piece."""
        return float(self.starts[piece + 1] - self.starts[piece])

    def moved(self, piece: int, seconds: float) -> float:
        """A time in a piece as the time in the whole."""
        return float(self.starts[piece] + Fraction(seconds))


def join(pieces: Sequence[tuple[np.ndarray, int]]) -> tuple[np.ndarray, Joined]:
    """The pieces (at least one) one after another at 16 kHz, float32 (N,), and where they lie.

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
        ends = list(
            accumulate(
                (Fraction(len(samples), rate) for rate, samples in runs), initial=Fraction(0)
            )
        )
        borders = [*(round(end * SAMPLE_RATE) for end in ends[:-1]), ceil(ends[-1] * SAMPLE_RATE)]
        whole = np.zeros(borders[-1], np.float32)
        for (rate, samples), start, end in zip(runs, borders, borders[1:], strict=False):
            # may end a sample before the next begins
            piece = resample(samples, rate, SAMPLE_RATE)[: end - start]
            whole[start : start + len(piece)] = piece
    return whole, Joined(
        tuple(len(s) for s, _ in pieces), tuple(rate for _, rate in pieces), len(whole)
    )


def write_joined(paths: Sequence[Path], out: Path) -> Joined:
    """Join recordings into one FLAC; `out` with the suffix .json, written last, has where they lie.
    What is there is left alone.

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
    """Of a recording that `read_audio` takes. Raises InputError for another."""
    return len(read_audio(path)) / SAMPLE_RATE
