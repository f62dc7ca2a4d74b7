"""The recordings of a published corpus by name and split, wherever below its folder they were unpacked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechssl.artefacts import hash_bytes
from speechssl.corpora.sources import SUFFIXES
from speechssl.errors import InputError

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
    """What tells whether a source is what it was: its tables and archives with their bytes, and how many recordings it has."""
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
    """Raises InputError where two splits would take one recording: both name theirs alike, and its folder does not say whose it is.

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
