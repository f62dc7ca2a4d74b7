"""Where recordings come from: a split of a prepared corpus, a manifest, a folder or one file, all as a list of ids and paths."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.data.records import Passage, Question, check_inside, data_hash, first_passages, load_corpus, read_lines
from speechssl.errors import InputError, printable
from speechssl.processes import is_main

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".aif", ".aiff", ".au")
UNREAD = ".m4a .mp4 .aac .wma .amr .sph .ape .ac3 .webm .mka .3gp".split()  # audio that `read_audio` does not open
MANIFESTS = (".jsonl", ".txt", ".tsv")


@dataclass(frozen=True, slots=True)
class Recording:
    """A file to be read, and the name of what is made from it."""

    id: str
    path: Path
    seconds: float | None = None  # where the manifest has it
    line: int | None = None  # of the manifest


def list_recordings(source: Path | str, split: str | None = None, passages: int | None = None) -> list[Recording]:
    """All recordings of a source, with unique ids. No file is opened, so some may turn out not to be audio.

    source: with `split`, a prepared corpus: its passages (None: all; else the first so many), then their questions. Else
    a manifest: .jsonl with `audio` and perhaps `id` and `seconds` in every line; .txt with a path a line; .tsv with a path in the
    first column, under the root in the first line where there is one (fairseq's). Paths are relative to the manifest; in its order.
    a folder: every file in it that ends in one of SUFFIXES, however deep (other audio is counted on stderr); the id is the path
    below the folder without its suffix, except where two files would share it. In the order of their ids.
    an audio file: that file.
    Raises InputError for a source that is none of these or holds nothing, and for ids that are not unique.
    """
    source = Path(source)
    if split is not None:
        data = first_passages(load_corpus(source, split), passages)
        records: list[Passage | Question] = [*data.passages.values(), *data.questions]
        found = [Recording(r.id, data.path(r), r.seconds) for r in records]
        for q in data.questions:
            found += [Recording(i, source / audio) for i, audio in zip(q.option_ids, q.option_audio, strict=False)]
    elif passages is not None:
        raise InputError(f"{source} has no passages to count without a split; give one with --split")
    elif source.is_dir():
        found = _of_folder(source)
    elif not source.exists():
        raise InputError(f"{source} does not exist; give a prepared corpus with --split, a manifest, a folder or an audio file")
    elif source.suffix.lower() in MANIFESTS:
        found = list(read_manifest(source))
    elif source.suffix.lower() in SUFFIXES:
        found = [Recording(printable(source.stem), source)]
    else:
        known = ", ".join((*MANIFESTS, *SUFFIXES))
        raise InputError(
            f"{source} has a name that is neither a manifest's nor an audio file's; give a folder or a file that ends in {known}"
        )
    if not found:
        raise InputError(f"{source / (split or '')} has no recordings; give a corpus, manifest or folder that has some")
    first: dict[str, Recording] = {}
    for r in found:
        if (other := first.setdefault(r.id, r)) is not r:
            places = (f"{x.path}" + (f" (line {x.line})" if x.line else "") for x in (other, r))
            raise InputError(f"{source} gives the id {r.id} to {' and '.join(places)}; make ids unique")
    return found


def source_card(source: Path, split: str | None, passages: int | None) -> dict[str, Any]:
    """What a split of a prepared corpus leaves in the card of what is made from it; nothing for other sources."""
    return {} if split is None else {"corpus": data_hash(source, split), "split": split, "passages": passages}


def _stem(name: str) -> str:
    suffix = Path(name).suffix
    return printable(name.removesuffix(suffix) if suffix.lower() in SUFFIXES else name)


def _of_folder(folder: Path) -> list[Recording]:
    """What is named like audio, however deep: links are followed, once; hidden files and pipes are passed over."""
    if splits := sorted(p.parent.name for p in folder.glob("*/passages.jsonl")):
        raise InputError(f"{folder} is a prepared corpus; choose a split of it with --split {' or '.join(splits)}")

    def unreadable(error: OSError) -> None:
        raise InputError(
            f"cannot list the folder {error.filename} ({error.strerror}); check the path and its permissions"
        ) from error

    names, seen, unread = list[str](), set[str](), Counter[str]()
    for top, folders, files in os.walk(folder, onerror=unreadable, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))  # which of two links is followed is no chance
        if os.path.realpath(top) in seen:
            folders.clear()
            continue
        seen.add(os.path.realpath(top))
        unread.update(Path(name).suffix.lower() for name in files if name[0] != ".")
        for path in (Path(top, name) for name in (*files, *folders) if name[0] != "."):
            if path.suffix.lower() in SUFFIXES and (path.is_file() or path.is_dir() or not path.exists()):
                names.append(path.relative_to(folder).as_posix())
    if (other := ", ".join(f"{unread[suffix]} {suffix}" for suffix in UNREAD if unread[suffix])) and is_main():
        tqdm.write(f"{folder}: passed over {other}; convert them to FLAC if they are wanted", file=sys.stderr)
    stems = Counter(map(_stem, names))
    ids = [_stem(name) if stems[_stem(name)] == 1 else printable(name) for name in names]
    return sorted((Recording(i, folder / name) for i, name in zip(ids, names, strict=True)), key=lambda r: r.id)


def read_manifest(path: Path) -> Iterator[Recording]:
    """The recordings of a .jsonl, .txt or .tsv, see `list_recordings`; ids may occur twice. Raises InputError for damage."""
    if path.suffix.lower() == ".jsonl":
        for number, values in read_lines(path):
            audio, seconds = values.get("audio"), values.get("seconds")
            if not isinstance(audio, str) or not audio:
                wanted = "give every line the path of its recording, relative to the manifest"
                raise InputError(f"{path}:{number} has no `audio`; {wanted}")
            check_inside(path.parent, audio, f"{path}:{number}")
            name = values.get("id", _stem(audio))
            if not isinstance(name, (str, int)) or isinstance(name, bool) or name == "":
                raise InputError(f"{path}:{number} has the id {name!r}; give a text that no other line has")
            known = float(seconds) if isinstance(seconds, (int, float)) and 0 < seconds < float("inf") else None
            yield Recording(printable(str(name)), path.parent / audio, known, number)
        return
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the manifest {path} ({error}); check the path") from error
    table, root = path.suffix.lower() == ".tsv", path.parent
    numbered = [(n, line.strip("\r").split("\t")) for n, line in enumerate(lines, 1) if line.strip()]
    names = [(n, (cells[0] if table else "\t".join(cells)).strip()) for n, cells in numbered]
    rooted = bool(names) and (root / names[0][1]).is_dir()
    if rooted:  # fairseq's: the root, then paths and their numbers of samples
        root /= names.pop(0)[1]
    elif table and len(names) > 1 and [len(cells) > 1 for _, cells in numbered] == [False] + [True] * (len(names) - 1):
        number, name = names[0]  # one column where all other lines have more: a root, unless it is a recording by its name
        if Path(name).suffix.lower() not in SUFFIXES:
            raise InputError(f"the root {name} in line {number} of {path} does not exist; correct line {number}")
    for number, name in names:
        check_inside(root, name, f"{path}:{number}")
        if rooted and Path(name).is_absolute() and root.resolve() not in Path(name).resolve().parents:
            raise InputError(f"{path}:{number} names {name}, which is not in the root {root} of its first line; correct the line")
    yield from (Recording(_stem(Path(name).as_posix()), root / name, line=n) for n, name in names)
