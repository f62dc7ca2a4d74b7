"""Archives of a published corpus that nobody unpacked yet: what is of use in them goes below the folder that is being made."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from speechssl.artefacts import read_json, replacing, write_json
from speechssl.corpora.sources import SUFFIXES
from speechssl.corpora.spoken_qa.recordings import files_below
from speechssl.corpora.spoken_qa.tables import first_line
from speechssl.errors import InputError

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
