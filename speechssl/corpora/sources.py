"""Where recordings come from: a split of a prepared corpus, a manifest, or a folder, all as a list of ids and paths."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from speechssl.corpora.records import Passage, Question, load_corpus, read_lines
from speechssl.errors import InputError

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg")


@dataclass(frozen=True)
class Recording:
    """A file to be read, and the name of what is made from it."""

    id: str
    path: Path


def list_recordings(source: Path, split: str | None = None) -> list[Recording]:
    """All recordings of a source in the order of their ids, which are unique. Raises InputError where there are none."""
    if split is not None:
        data = load_corpus(source, split)
        records: list[Passage | Question] = [*data.passages.values(), *data.questions]
        found = [Recording(r.id, data.path(r)) for r in records]
    elif source.is_dir():
        paths = [p for p in source.rglob("*") if p.suffix.lower() in SUFFIXES]
        found = [Recording(p.relative_to(source).with_suffix("").as_posix(), p) for p in paths]
    elif source.suffix == ".jsonl":
        values = [v for _, v in read_lines(source)]
        found = [Recording(str(v.get("id", Path(v["audio"]).stem)), source.parent / v["audio"]) for v in values]
    elif source.is_file():
        lines = [line for line in source.read_text(encoding="utf-8").splitlines() if line.strip()]
        found = [Recording(Path(line).stem, source.parent / line) for line in lines]
    else:
        raise InputError(f"{source} does not exist; give a prepared corpus, a manifest or a folder of audio files")
    if not found:
        raise InputError(f"{source} holds no recordings; give a corpus, manifest or folder that has some")
    return sorted(found, key=lambda r: r.id)
