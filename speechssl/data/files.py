"""Find and name the files of a published corpus, and unpack its archives."""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from speechssl.artifacts import hash_bytes
from speechssl.errors import InputError, first_line

COMMON = (".wav", ".flac", ".mp3", ".ogg")  # of recordings in published corpora and of noise
SUFFIXES = (*COMMON, ".opus", ".aif", ".aiff", ".au")
ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
SEGMENT = re.compile(r"(.+)(?:_|(?<=-c)-)(\d+)")
Key = TypeVar("Key", bound=Hashable)


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
