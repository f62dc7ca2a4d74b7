"""HeySQuAD (Wu et al., arXiv 2304.13689): questions of SQuAD read by people (HeySQuAD_machine: by a synthesiser), contexts as text.

  train, dev      train-*.parquet and validation-*.parquet of the Hugging Face tables (or train/*.parquet and validation/*.parquet,
                  or JSON): audio, transcription, question, context, answers (a list of dicts), is_impossible, id
  NAME            HeySQuAD_json/*/NAME-COUNT.json, such as train-common-human-transcribed-48849.json: SQuAD JSON whose questions are
                  transcripts where "transcribed" is in the name, and whose count stands in its name

Tables in a folder whose name holds "machine" are the splits train-machine and dev-machine. The recordings are inside the tables and
are written as OUT/<split>/audio/*.flac; of the JSON files there are none.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.audio import duration, read_audio, write_flac
from speechssl.data.files import read_parquet
from speechssl.data.join import Attached, Takes, audio_name, damaged, with_passages, with_questions
from speechssl.data.prepare import (
    AudioSource,
    Job,
    PrepareReport,
    SplitRecords,
    Wanted,
    given,
    in_parallel,
    nothing_found,
    prepared,
)
from speechssl.data.squad import Asked, Paragraph, Style, as_text, is_squad, read_golds, read_squad, records_of
from speechssl.errors import InputError

PUBLISHED = {"train": {"questions": 71_990}, "dev": {"questions": 4_158}}  # of the people's questions
LAYOUT = (
    "give the folder of yijingwu/HeySQuAD_human with data/train-*.parquet and data/validation-*.parquet, "
    "or HeySQuAD_json of its GitHub repository"
)
ABOUT = {"title": "HeySQuAD", "language": "en", "source": "huggingface.co/datasets/yijingwu/HeySQuAD_human, arXiv 2304.13689"}
SPLIT = re.compile(r"(train|validation|valid|dev|test)")
NEEDED = ("id", "question", "context", "answers")
TEXTS = (*NEEDED, "transcription", "is_impossible")
COUNTED = re.compile(r"(.+?)-(\d+)")
AT_A_TIME = 256  # rows in memory: some 50 MB of recordings
TABLES = (".parquet", ".json", ".jsonl")
Row = dict[str, Any]


def prepare_heysquad(source: Path | str, out: Path | str, wanted: Wanted = Wanted()) -> dict[str, Any]:
    """Write `out` and return its data report.

    Raises InputError for a folder or file that is not of HeySQuAD, or a damaged file.
    """
    found = given(Path(source), LAYOUT)
    splits = _splits(found)
    if not splits:
        raise nothing_found(found, LAYOUT)
    files = {path.relative_to(found).as_posix() if found.is_dir() else path.name: path for s in splits.values() for path in s}
    options = {} if wanted.audio else {"audio": False}
    job = Job("heysquad", found, Path(out), files, _published(splits), ABOUT, options, wanted)

    def read(report: PrepareReport) -> Mapping[str, tuple[SplitRecords, AudioSource]]:
        return {split: _read(split, paths, wanted.audio, report) for split, paths in splits.items()}

    return prepared(job, read)


def _splits(source: Path) -> dict[str, list[Path]]:
    """Split -> the files that make it up."""
    paths = sorted(p for p in source.rglob("*") if p.suffix in TABLES) if source.is_dir() else [source]
    found: dict[str, list[Path]] = {}
    for path in (p for p in paths if not p.name.startswith(".") and _named(p)):
        found.setdefault(_split_of(path, source), []).append(path)
    return found


def _named(path: Path) -> str:
    """What the name of a file, or else of its folder, begins with; "" where that is no split."""
    named = SPLIT.match(path.name) or SPLIT.match(path.parent.name)
    return named[1] if named else ""


def _split_of(path: Path, source: Path) -> str:
    if path.suffix == ".json" and (name := COUNTED.fullmatch(path.stem)):
        return name[1]
    split = named if (named := _named(path)) in ("train", "test") else "dev"
    folders = [source.name, *path.relative_to(source).parts] if source.is_dir() else [source.parent.name, source.name]
    return f"{split}-machine" if any("machine" in folder.lower() for folder in folders) else split


def _published(splits: Mapping[str, Sequence[Path]]) -> dict[str, dict[str, int]]:
    """What the tables' card states, and what stands in the names of the JSON files."""
    named = {split: COUNTED.fullmatch(paths[0].stem) for split, paths in splits.items() if paths[0].suffix == ".json"}
    counted = {split: {"questions": int(name[2])} for split, name in named.items() if name}
    return counted or PUBLISHED


def _read(split: str, paths: Sequence[Path], audio: bool, report: PrepareReport) -> tuple[SplitRecords, AudioSource]:
    if paths[0].suffix == ".json" and is_squad(paths[0]):
        style = Style("en", transcribed_questions="transcribed" in split)
        return records_of(split, [p for path in paths for p in read_squad(path)], style, report)[0], Takes()
    asked: dict[str, list[Asked]] = {}
    places: dict[Path, dict[int, str]] = {}
    taken: set[str] = set()
    for path in paths:
        for number, row in enumerate(read_rows(path, TEXTS)):
            name = _new_id(split, as_text(row["id"]) or f"{path.stem}-{number}", taken, report)
            asked.setdefault(as_text(row["context"]), []).append(_asked(name, row, path, number))
            places.setdefault(path, {})[number] = name
    paragraphs = [Paragraph(0, n, "", "", context, tuple(some)) for n, (context, some) in enumerate(asked.items())]
    records, _ = records_of(split, paragraphs, Style("en"), report)
    return records, Embedded(places) if audio else Takes()


def _new_id(split: str, name: str, taken: set[str], report: PrepareReport) -> str:
    """The id, or that with a number behind it where a row before has it: each row has a recording of its own."""
    new, number = name, 1
    while new in taken:
        number += 1
        new = f"{name}#{number}"
    if new != name:
        report.remark(split, "ids of questions that occur twice", "the later one has a number behind it")
    taken.add(new)
    return new


def _asked(name: str, row: Row, path: Path, number: int) -> Asked:
    try:
        golds = read_golds(row["answers"])
    except TypeError as error:
        raise InputError(f"{path}, row {number}: {error}; give the published table") from error
    impossible = None if row.get("is_impossible") is None else bool(row["is_impossible"])
    return Asked(name, as_text(row["question"]), golds, impossible, as_text(row.get("transcription")))


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Rows of a Parquet table, of JSON lines, or of a JSON list, with these columns as far as they are there.

    Raises InputError for a damaged file and for a table that lacks what a question needs.
    """
    rows = read_parquet(path, columns, AT_A_TIME) if path.suffix == ".parquet" else _json_rows(path)
    for number, row in enumerate(rows):
        if lacking := [name for name in columns if name in NEEDED and name not in row]:
            raise InputError(f"{path}, row {number}, has no {lacking[0]}; {LAYOUT}")
        yield row


def _json_rows(path: Path) -> Iterator[Row]:
    try:
        text = path.read_text("utf-8-sig").strip()
        rows = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not whole JSON ({error}); download it again") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path} is not a table of questions; {LAYOUT}")
    yield from rows


@dataclass(frozen=True)
class Embedded:
    """Recordings of questions inside tables. places: table -> number of the row -> id."""

    places: Mapping[Path, Mapping[int, str]]

    def attach(self, out: Path, split: str, records: SplitRecords, report: PrepareReport, workers: int) -> SplitRecords:
        wanted = {q.id for q in records.questions}
        rows = {path: {n: i for n, i in rows.items() if i in wanted} for path, rows in self.places.items()}
        jobs = [(out, split, path, some) for path, some in rows.items() if some]
        attached = {name: one for found in in_parallel(_saved, jobs, workers) for name, one in found}
        return with_questions(split, with_passages(split, records, {}, report), attached, report)


def _saved(job: tuple[Path, str, Path, Mapping[int, str]]) -> list[tuple[str, Attached]]:
    """(id, its recording) for the rows that have one. job: corpus, split, table, ids by row; called in other processes."""
    out, split, path, wanted = job
    found = []
    for number, row in zip(range(max(wanted) + 1), read_rows(path, ("audio",)), strict=False):
        if number in wanted and row.get("audio"):
            found.append((wanted[number], _write(row["audio"], out, audio_name(split, "questions", wanted[number]), path)))
    return found


def _write(cell: Any, out: Path, name: str, table: Path) -> Attached:
    """A cell is a dict of bytes and path, or a path alone; paths are below the folder of the table."""
    content, path = (cell.get("bytes"), cell.get("path")) if isinstance(cell, dict) else (None, cell)
    try:
        if not (out / name).is_file():
            if content is None and not path:
                return Attached(reason="it has no recording, and others have")
            write_flac(out / name, read_bytes(content) if content is not None else read_audio(table.parent / str(path)))
        return Attached(name, duration(out / name))
    except InputError as error:
        return damaged(error)


def read_bytes(content: bytes) -> np.ndarray:
    """The recording in these bytes, (N,) at 16 kHz. Raises InputError as `read_audio` does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording"
        path.write_bytes(content)
        return read_audio(path)
