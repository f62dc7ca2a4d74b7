"""Files that are whole or absent, and the JSON cards that say what made them.

Everything is written under a temporary name and renamed. A card travels beside its artefact (`x.safetensors` and
`x.card.json`, or `card.json` in a folder) and holds what made it, from what (hashes), and with which settings.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speechssl.errors import InputError
from speechssl.processes import is_main, main_first

LOCKLESS = (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # file systems that lock no folders, such as NFS


@contextmanager
def locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """Hold the advisory lock of a folder; no lock file is left behind, and a killed process lets it go.

    Without fcntl (Windows), and on file systems that lock no folders, there is no lock. wait: for others who hold it; else
    InputError is raised where another process does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise InputError(f"another run is writing into {folder}; wait for it or choose another folder") from None
        except OSError as error:
            if error.errno not in LOCKLESS:
                raise
        yield
    finally:
        os.close(handle)


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` on success, remove it on failure."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    os.chmod(name, 0o644)
    try:
        yield Path(name)
        os.replace(name, path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # a write does not know where to
            error.filename = str(path)
        raise


def unusable(error: OSError, place: Path | str = "a file", machine: str = "") -> str:
    """What a file system refused, as one sentence. place: where, if the error does not say; machine: " on ..."."""
    where = f"{error.filename or place}{machine}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {where} is full; free space and give the same command"
    return f"cannot use {where} ({error.strerror or error}); check its path"


def write_text(path: Path | str, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n")


def read_json(path: Path | str) -> Any:
    """Raises InputError when the file is missing or is not JSON."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"cannot read {path} as JSON (there is no such file); check the path") from error
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path} as JSON ({error}); make it again with the command that wrote it") from error


@contextmanager
def claim(folder: Path, made_from: dict[str, Any]) -> Iterator[None]:
    """Write what a folder is made from before anything else goes into it; a folder begun here is removed again on InputError.

    Raises InputError where it was begun or finished from other inputs: what is in it would be taken for what is wanted.
    """
    with main_first():
        begun = is_main() and not (folder / "made_from.json").is_file()
        _claim(folder, made_from)
    try:
        yield
    except InputError:
        if begun:
            shutil.rmtree(folder)
        raise


def _claim(folder: Path, made_from: dict[str, Any]) -> None:
    path, wanted = folder / "made_from.json", json.loads(json.dumps(made_from))
    if not path.is_file():
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(f"{folder} is not empty and does not say what it was made from; choose another folder or delete it")
        write_json(path, wanted)
        return
    there = read_json(path)
    if there != wanted:
        names = ", ".join(differing(there, wanted))
        raise InputError(f"{folder} was made from other inputs ({names} differ); choose another folder or delete it")


def differing(a: Any, b: Any, name: str = "") -> list[str]:
    """Dotted names of the leaves that are not equal."""
    if not (isinstance(a, dict) and isinstance(b, dict)):
        return [] if a == b else [name or "all"]
    return [x for key in sorted(a.keys() | b.keys()) for x in differing(a.get(key), b.get(key), f"{name}.{key}".strip("."))]


def hash_bytes(*parts: bytes) -> str:
    """16 hex digits of the SHA-256 of the parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()[:16]


def hash_files(paths: Iterable[Path]) -> str:
    """16 hex digits over the contents of the files, in the order given."""
    return hash_bytes(*(hashlib.sha256(Path(p).read_bytes()).digest() for p in paths))


def hash_content(content: bytes) -> str:
    """What `hash_files` gives for one file with this content."""
    return hash_bytes(hashlib.sha256(content).digest())


def hash_json(value: Any) -> str:
    return hash_bytes(json.dumps(value, sort_keys=True, ensure_ascii=False).encode())
