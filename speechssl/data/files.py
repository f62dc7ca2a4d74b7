"""Files of a published corpus: tables (Parquet, CSV) and their cells, TextGrids, archives, and recordings in pieces.

Pieces of a recording are decoded at their own rate, their samples are counted, and what is joined is resampled to 16 kHz once: the
beginning of a piece is the exact sum of the lengths before it, whereas pieces that are resampled (or cut into frames) one by one
each gain or lose a little (fault 4 of the released DUAL code). Lengths are those of what is decoded; the header of an MP3 may only
guess.
"""

from __future__ import annotations

import csv
import math
import os
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, groupby
from math import ceil
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from speechssl.audio import SAMPLE_RATE, check_audio, read_audio, read_native, resample, write_flac
from speechssl.data.sources import SUFFIXES
from speechssl.errors import InputError
from speechssl.io import hash_bytes, parse_json, read_json, replacing, write_json

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

Table = dict[str, Any]
csv.field_size_limit(1 << 30)  # a document with its alignment is longer than the 128 KiB that are usual


@contextmanager
def open_parquet(path: Path) -> Iterator[ParquetFile]:
    """Raises InputError for a damaged file, whenever that is found."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path, pre_buffer=False) as file:
            yield file
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a whole Parquet file ({first_line(error)}); download it again") from error


def read_parquet(
    path: Path, columns: Sequence[str] | None = None, batch: int = 1024, groups: Sequence[int] | None = None
) -> Iterator[Table]:
    """The rows, so many at a time. columns: those that are wanted, as far as they are there; groups: of rows, None for all.

    Raises InputError for damage.
    """
    with open_parquet(path) as file:
        wanted = None if columns is None else [name for name in file.schema_arrow.names if name in columns]
        for rows in file.iter_batches(batch, row_groups=groups, columns=wanted, use_threads=False):
            yield from rows.to_pylist()


def columns_of(path: Path) -> list[str]:
    """The names of a Parquet file's columns. Raises InputError for damage."""
    with open_parquet(path) as file:
        return list(file.schema_arrow.names)


def first_line(error: BaseException) -> str:
    """The first line of an error, as part of a sentence."""
    return str(error).split("\n")[0].rstrip(".:")


@contextmanager
def open_csv(path: Path, strict: bool = False, delimiter: str = ",") -> Iterator[Iterator[list[str]]]:
    """The rows of a CSV file, the header first. Raises InputError for what is none."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield csv.reader(file, strict=strict, delimiter=delimiter)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path} as CSV ({error}); download it again or save it as UTF-8") from error


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file with a header, names without what stands around them. Raises InputError for what is none."""
    with open_csv(path, strict=True) as rows:
        names = [name.strip() for name in next(rows, [])]
        return [dict(zip(names, row, strict=False)) for row in rows if row]


def load_json(path: Path) -> Any:
    """What a JSON file of a corpus holds. Raises InputError for one that cannot be read or is not whole."""
    try:
        return parse_json(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}); check the path") from error
    except ValueError as error:
        raise InputError(f"{path} is not whole JSON ({error}); copy or download it again") from error


TOKEN = re.compile(r'"((?:[^"]|"")*)"|\[\s*\d*\s*\]|(?<![\w.])([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![\w.])')


def read_tiers(path: Path) -> Iterator[tuple[str, list[tuple[str, float, float]]]]:
    """Names of the interval tiers of a TextGrid and their intervals (text, start, end in seconds), in order.

    TextGrids are those of Praat and the Montreal Forced Aligner, long or short, in UTF-8 or UTF-16. praatio 6.2 is not used: it
    reads a short one that is cut off as if it were whole, and refuses intervals that overlap or have no length, which aligners
    write. Raises InputError for a file that is no TextGrid.
    """
    try:
        content = path.read_bytes()
        text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path} as a TextGrid ({error}); save it again as UTF-8") from error
    # texts and free-standing numbers, in order: all there is to either format
    found = (m for m in TOKEN.finditer(text) if m[1] is not None or m[2] is not None)
    tokens = (m[2] if m[1] is None else m[1].replace('""', '"') for m in found)
    try:
        if [next(tokens), next(tokens)] != ["ooTextFile", "TextGrid"]:
            raise ValueError("no TextGrid")
        _, _, count = (float(next(tokens)) for _ in range(3))
        for _ in range(int(count)):
            kind, name = next(tokens), next(tokens)
            _, _, size = (float(next(tokens)) for _ in range(3))
            if kind == "IntervalTier":
                times = ((float(next(tokens)), float(next(tokens)), next(tokens)) for _ in range(int(size)))
                yield name, [(label, start, end) for start, end, label in times]
            else:  # points
                _ = [(next(tokens), next(tokens)) for _ in range(int(size))]
    except (StopIteration, ValueError, RuntimeError) as error:
        raise InputError(f"cannot read {path} as a TextGrid; save it again from Praat as a text file") from error


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


def decoded(content: bytes, where: str) -> np.ndarray:
    """A recording that is a cell of a table, (N,) at 16 kHz. Raises InputError as `read_audio` does; where: the cell, for it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "recording"
        path.write_bytes(content)
        try:
            return read_audio(path)
        except InputError as error:
            raise InputError(str(error).replace(str(path), where)) from error


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


def archives_in(source: Path) -> list[Path]:
    return [path for _, path in files_below([source], *ARCHIVES)] if source.is_dir() else []


def unpacked(source: Path, out: Path, archives: Sequence[Path] | None = None) -> list[Path]:
    """The folders to look into: the source, and one below `out` for the archives in it that do not lie unpacked beside themselves.

    archives: those of them that are wanted, None for all. One that is unpacked already is left alone. Raises InputError for
    one that is truncated or damaged.
    """
    for path in archives_in(source) if archives is None else archives:
        folder, made_from = out / "unpacked" / path.relative_to(source), {"bytes": path.stat().st_size}
        done = folder / ".done.json"
        if done.is_file() and read_json(done) == made_from:
            continue
        with _members(path) as members:  # is the first file of use there already, where unpacking it by hand would have put it?
            first = next((name for name, _ in members), None)
        if first is not None and any((top / first).is_file() for top in (path.parent, path.parent / path.name.split(".")[0])):
            continue
        with _members(path) as members:
            for name, content in members:
                with replacing(folder / name) as temporary, temporary.open("wb") as file:
                    shutil.copyfileobj(content, file, 1 << 20)
        write_json(done, made_from)
    return [source, out / "unpacked"] if (out / "unpacked").is_dir() else [source]


@contextmanager
def _members(path: Path) -> Iterator[Iterator[tuple[PurePosixPath, IO[bytes]]]]:
    """Files of use in an archive, in its order: not what would leave the folder, nor what is hidden (macOS leaves such)."""

    def wanted(name: str) -> bool:
        parts = PurePosixPath(name).parts
        inside = bool(parts) and not name.startswith("/") and not any(part == ".." or part.startswith("._") for part in parts)
        return inside and "__MACOSX" not in parts and name.lower().endswith(WANTED)

    try:
        if path.name.lower().endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                files = [i for i in archive.infolist() if not i.is_dir() and wanted(i.filename)]
                yield ((PurePosixPath(i.filename), archive.open(i)) for i in files)
        else:
            with tarfile.open(path, "r:*") as tape:
                entries = (i for i in tape if i.isfile() and wanted(i.name))
                yield ((PurePosixPath(i.name), file) for i in entries if (file := tape.extractfile(i)))
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk, not the archive
            raise
        raise InputError(
            f"{path} is truncated or damaged ({first_line(error)}); download it again, or unpack it by hand"
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

    Pieces of one rate are resampled as a whole. Where rates change there is one resampling for every run of one rate, and each run
    begins at the exact sum of the lengths before it, to the nearest sample: an error of half a sample that does not add up.
    """
    runs = [(rate, np.concatenate([samples for samples, _ in run])) for rate, run in groupby(pieces, key=lambda piece: piece[1])]
    if len(runs) == 1:
        whole = resample(runs[0][1], runs[0][0], SAMPLE_RATE)
    else:
        ends = list(accumulate((Fraction(len(samples), rate) for rate, samples in runs), initial=Fraction(0)))
        borders = [*(round(end * SAMPLE_RATE) for end in ends[:-1]), ceil(ends[-1] * SAMPLE_RATE)]
        whole = np.zeros(borders[-1], np.float32)
        for (rate, samples), start, end in zip(runs, borders, borders[1:], strict=False):
            piece = resample(samples, rate, SAMPLE_RATE)[: end - start]  # may end a sample before the next begins
            whole[start : start + len(piece)] = piece
    return whole, Joined(tuple(len(s) for s, _ in pieces), tuple(rate for _, rate in pieces), len(whole))


def write_joined(paths: Sequence[Path], out: Path) -> Joined:
    """Join recordings into one FLAC; `out` with the suffix .json, written last, has where they lie. What is there is left alone.

    Raises InputError naming the recording that cannot be read, and where the whole is silent or shorter than `read_audio` takes.
    """
    made_from = [{"file": path.name, "bytes": path.stat().st_size if path.is_file() else -1} for path in paths]
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


def join_job(job: tuple[str, list[Path], Path]) -> tuple[str, Joined | str]:
    """For `in_parallel`: (name, recordings, FLAC to write) -> (name, where they lie, or why they could not be joined)."""
    name, paths, out = job
    try:
        return name, write_joined(paths, out)
    except InputError as error:
        return name, str(error)


def measure_job(job: tuple[str, Path]) -> tuple[str, float | str]:
    """For `in_parallel`: (name, recording) -> (name, its seconds as decoded, or why it cannot be used)."""
    name, path = job
    try:
        return name, len(read_audio(path)) / SAMPLE_RATE
    except InputError as error:
        return name, str(error)
