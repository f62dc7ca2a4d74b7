"""Where recordings come from: a split of a prepared corpus, a manifest, a folder or one file, all as a list of ids and paths."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.data.records import Passage, Question, data_hash, first_passages, load_corpus, read_lines
from speechssl.errors import InputError, printable
from speechssl.processes import is_main

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".aif", ".aiff", ".au")
UNREAD = (
    ".m4a",
    ".mp4",
    ".aac",
    ".wma",
    ".amr",
    ".sph",
    ".ape",
    ".ac3",
    ".webm",
    ".mka",
    ".3gp",
)  # audio that `read_audio` does not open
LISTS = (".txt", ".tsv")


@dataclass(frozen=True)
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
        found = _of_corpus(source, split, passages)
    elif passages is not None:
        raise InputError(f"{source} has no passages to count where no split is named; name one with --split")
    elif source.is_dir():
        found = _of_folder(source)
    else:
        found = _of_file(source)
    if not found:
        raise InputError(f"{source / (split or '')} holds no recordings; give a corpus, manifest or folder that has some")
    _check_unique(found, source)
    return found


def source_card(source: Path, split: str | None, passages: int | None) -> dict[str, Any]:
    """What a split of a prepared corpus leaves in the card of what is made from it; nothing for other sources."""
    return {} if split is None else {"corpus": data_hash(source, split), "split": split, "passages": passages}


def _of_corpus(root: Path, split: str, passages: int | None) -> list[Recording]:
    data = first_passages(load_corpus(root, split), passages)
    records: list[Passage | Question] = [*data.passages.values(), *data.questions]
    options = [Recording(i, root / audio) for q in data.questions for i, audio in zip(q.option_ids, q.option_audio, strict=False)]
    return [Recording(r.id, data.path(r), r.seconds) for r in records] + options


def _of_folder(folder: Path) -> list[Recording]:
    if splits := sorted(p.parent.name for p in folder.glob("*/passages.jsonl")):
        raise InputError(f"{folder} is a prepared corpus; say which split of it with --split {' or '.join(splits)}")
    names = list(_audio_names(folder))
    stems = Counter(_stem(name) for name in names)
    ids = [_stem(name) if stems[_stem(name)] == 1 else printable(name) for name in names]
    return sorted((Recording(i, folder / name) for i, name in zip(ids, names, strict=True)), key=lambda r: r.id)


def _audio_names(folder: Path) -> Iterator[str]:
    """Paths below the folder of what is named like audio: links are followed, once; hidden files and pipes are passed over."""
    seen, unread = set(), Counter[str]()
    for top, folders, files in os.walk(folder, onerror=_unreadable, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))  # which of two links is followed is no chance
        if os.path.realpath(top) in seen:
            folders.clear()
            continue
        seen.add(os.path.realpath(top))
        for name in (*files, *folders):
            path = Path(top, name)
            unread[path.suffix.lower()] += name in files and name[0] != "."
            if path.suffix.lower() in SUFFIXES and name[0] != "." and (path.is_file() or path.is_dir() or not path.exists()):
                yield path.relative_to(folder).as_posix()
    _report_unread(folder, {suffix: unread[suffix] for suffix in UNREAD if unread[suffix]})


def _report_unread(folder: Path, unread: Mapping[str, int]) -> None:
    if unread and is_main():
        counts = ", ".join(f"{number} {suffix}" for suffix, number in unread.items())
        tqdm.write(f"{folder}: passed over {counts}; convert them to FLAC if they are wanted", file=sys.stderr)


def _unreadable(error: OSError) -> None:
    raise InputError(f"cannot list the folder {error.filename} ({error.strerror}); check the path and its permissions") from error


def _stem(name: str) -> str:
    suffix = Path(name).suffix
    return printable(name.removesuffix(suffix) if suffix.lower() in SUFFIXES else name)


def _of_file(path: Path) -> list[Recording]:
    suffix = path.suffix.lower()
    if not path.exists():
        raise InputError(f"{path} does not exist; give a prepared corpus with --split, a manifest, a folder or an audio file")
    if suffix == ".jsonl":
        return list(_of_jsonl(path))
    if suffix in LISTS:
        return list(_of_list(path))
    if suffix in SUFFIXES:
        return [Recording(printable(path.stem), path)]
    known = ", ".join((".jsonl", *LISTS, *SUFFIXES))
    raise InputError(f"{path} is neither a manifest nor audio by its name; give a folder or a file that ends in {known}")


def _of_jsonl(path: Path) -> Iterator[Recording]:
    for number, values in read_lines(path):
        audio, seconds = values.get("audio"), values.get("seconds")
        if not isinstance(audio, str) or not audio:
            raise InputError(f"{path}:{number} has no `audio`; give every line the path of its recording, relative to the manifest")
        name = values.get("id", _stem(audio))
        if not isinstance(name, (str, int)) or isinstance(name, bool) or name == "":
            raise InputError(f"{path}:{number} has the id {name!r}; give a text that no other line has")
        known = isinstance(seconds, (int, float)) and 0 < seconds < float("inf")
        yield Recording(printable(str(name)), path.parent / audio, float(seconds) if known else None, number)  # type: ignore[arg-type]


def _of_list(path: Path) -> Iterator[Recording]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the manifest {path} ({error}); check the path") from error
    table = path.suffix.lower() == ".tsv"
    numbered = [(n, line.split("\t")[0] if table else line) for n, line in enumerate(lines, 1) if line.strip()]
    numbered = [(n, name.strip()) for n, name in numbered]
    root = path.parent
    if numbered and (root / numbered[0][1]).is_dir():  # fairseq's: the root, then paths and their numbers of samples
        root /= numbered.pop(0)[1]
    elif table and _is_root(lines):
        number, name = numbered[0]
        raise InputError(f"the root {name} in line {number} of {path} does not exist; mend line {number}")
    yield from (Recording(_stem(Path(name).as_posix()), root / name, line=n) for n, name in numbered)


def _is_root(lines: Iterable[str]) -> bool:
    """Whether the first line has one column, which is no file by its name, and all others have more."""
    first, *rest = [line.strip("\r") for line in lines if line.strip()] or [""]
    return bool(rest) and "\t" not in first and Path(first.strip()).suffix.lower() not in SUFFIXES and all("\t" in x for x in rest)


def _check_unique(recordings: Iterable[Recording], source: Path) -> None:
    there: dict[str, Recording] = {}
    for recording in recordings:
        if recording.id in there:
            both = f"{_place(there[recording.id])} and {_place(recording)}"
            raise InputError(f"{source} gives the id {recording.id} to {both}; make ids unique")
        there[recording.id] = recording


def _place(recording: Recording) -> str:
    return f"{recording.path}" + (f" (line {recording.line})" if recording.line else "")
