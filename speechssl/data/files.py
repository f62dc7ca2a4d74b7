"""Files of a published corpus: tables (Parquet, CSV, TSV) and their cells, recordings by name and split, and archives."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from speechssl.data.sources import SUFFIXES
from speechssl.errors import InputError
from speechssl.io import hash_bytes, read_json, replacing, write_json

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
    """The first line of an error, as part of a sentence."""
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


WORDS: Mapping[str, tuple[str, ...]] = {"train": ("train", "tune"), "dev": ("dev", "validation"), "test": ("test", "lxt")}


@dataclass(frozen=True)
class Recordings:
    """Of one split. own: name without suffix -> path, of what lies in folders named after it; common: in folders that name none."""

    own: Mapping[str, Path]
    common: Mapping[str, Path]

    def __contains__(self, name: str) -> bool:
        return name in self.own or name in self.common

    def __getitem__(self, name: str) -> Path:
        return self.own.get(name) or self.common[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self.common, **self.own})


def files_below(roots: Iterable[Path], *suffixes: str) -> list[tuple[Path, Path]]:
    """(root, file below it) for every file whose name ends so, in the order of their paths.

    Passed over is what is hidden, and a folder in which a corpus was prepared: it may have been put into its source.
    """
    found: list[tuple[Path, Path]] = []
    for root in roots:
        for top, folders, names in os.walk(root, followlinks=True):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            if "settings.json" in names and Path(top) != root:
                folders.clear()
                continue
            wanted = (name for name in sorted(names) if name.lower().endswith(suffixes) and not name.startswith("."))
            found += [(root, Path(top, name)) for name in wanted]
    return found


def stamp(root: Path, *suffixes: str) -> dict[str, Any]:
    """What a changed source is known by: its tables and archives with their bytes, and how many recordings it has."""
    tables = {path.relative_to(root).as_posix(): path.stat().st_size for _, path in files_below([root], *suffixes)}
    return {"files": tables, "recordings": len(files_below([root], *SUFFIXES))}


def splits_named(text: str) -> set[str]:
    """The splits that a name names: `dev_audios` is dev's, `fine-tune` train's."""
    words = set(re.split(r"[^a-z]+", text.lower()))
    return {split for split, known in WORDS.items() if words & set(known)}


def find_recordings(roots: Iterable[Path], split: str) -> Recordings:
    """Of two recordings of one name, the first by path counts (a release may hold one sorted by speakers, too)."""
    own: dict[str, Path] = {}
    common: dict[str, Path] = {}
    for root, path in files_below(roots, *SUFFIXES):
        named = splits_named(path.parent.relative_to(root).as_posix())
        if split in named:
            own.setdefault(path.stem, path)
        elif not named:
            common.setdefault(path.stem, path)
    return Recordings(own, common)


def check_common(used: Mapping[str, Iterable[str]], recordings: Mapping[str, Recordings], source: Path) -> None:
    """Raises InputError where two splits would take one recording: both name theirs alike, and its folder names no split.

    used: split -> the names that it asks for.
    """
    owner: dict[str, str] = {}
    for split, names in used.items():
        for name in names:
            if name not in recordings[split] or name in recordings[split].own:
                continue
            if owner.setdefault(name, split) != split:
                path = recordings[split][name]
                raise InputError(
                    f"{path} may be of {owner[name]} or of {split}; put the recordings of each split of {source} in a folder "
                    f"that is named after it, such as {split}_audios"
                )


def safe_name(name: str) -> str:
    """An id as the name of a file: itself where every file system takes it as it is, else a short form with a hash.

    File systems may not tell upper case from lower case, so that an id with capitals is not taken as it is.
    """
    if re.fullmatch(r"[a-z0-9_][a-z0-9._-]{0,99}", name):
        return name
    return f"{re.sub('[^a-z0-9_-]+', '_', name.lower())[:60]}.{hash_bytes(name.encode('utf-8', 'surrogatepass'))[:10]}"


def below(path: Path, out: Path) -> str:
    """A recording's path as a manifest has it: relative to the corpus where it lies in it, else absolute."""
    with suppress(ValueError):
        return path.resolve().relative_to(out.resolve()).as_posix()
    return str(path.resolve())


ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
WANTED = (*SUFFIXES, ".textgrid", ".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt")
DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError)
Member = tuple[PurePosixPath, IO[bytes]]


def archives_in(source: Path) -> list[Path]:
    return [path for _, path in files_below([source], *ARCHIVES)] if source.is_dir() else []


def unpacked(source: Path, out: Path, archives: Sequence[Path] | None = None) -> list[Path]:
    """The folders to look into: the source, and one below `out` for the archives in it that do not lie unpacked beside themselves.

    archives: those of them that are wanted, None for all. One that an earlier run unpacked is left alone. Raises InputError for
    one that is cut off or damaged.
    """
    for path in archives_in(source) if archives is None else archives:
        folder = out / "unpacked" / path.relative_to(source)
        made_from = {"bytes": path.stat().st_size}
        done = folder / ".done.json"
        if not done.is_file() or read_json(done) != made_from:
            if _lies_beside(path):
                continue
            _unpack(path, folder)
            write_json(done, made_from)
    return [source, out / "unpacked"] if (out / "unpacked").is_dir() else [source]


def _lies_beside(path: Path) -> bool:
    """Whether the first file of use in an archive is there already, where unpacking it by hand would have put it."""
    with _members(path) as members:
        first = next((name for name, _ in members), None)
    return first is not None and any((folder / first).is_file() for folder in (path.parent, path.parent / path.name.split(".")[0]))


def _unpack(path: Path, folder: Path) -> None:
    with _members(path) as members:
        for name, content in members:
            with replacing(folder / name) as temporary, temporary.open("wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)


@contextmanager
def _members(path: Path) -> Iterator[Iterator[Member]]:
    """Files of use in an archive, in its order."""
    try:
        if path.name.lower().endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                files = [i for i in archive.infolist() if not i.is_dir() and _is_wanted(i.filename)]
                yield ((PurePosixPath(i.filename), archive.open(i)) for i in files)
        else:
            with tarfile.open(path, "r:*") as tape:
                wanted = (i for i in tape if i.isfile() and _is_wanted(i.name))
                yield ((PurePosixPath(i.name), file) for i in wanted if (file := tape.extractfile(i)))
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk, not the archive
            raise
        raise InputError(f"{path} is cut off or damaged ({first_line(error)}); download it again, or unpack it by hand") from error


def _is_wanted(name: str) -> bool:
    """Not what would leave the folder, nor what is hidden (macOS leaves such)."""
    parts = PurePosixPath(name).parts
    inside = bool(parts) and not name.startswith("/") and not any(part == ".." or part.startswith("._") for part in parts)
    return inside and "__MACOSX" not in parts and name.lower().endswith(WANTED)
