"""Prepare HeySQuAD (Wu et al., arXiv 2304.13689): questions of SQuAD read by people, or by a
synthesiser; contexts as text.

Layouts: data/heysquad/README.md. Recordings are inside the tables and are written as
OUT/<split>/audio/*.flac.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from speechssl.audio import duration, write_flac
from speechssl.data import prepare
from speechssl.data.files import decode_cell, read_parquet, truth_of
from speechssl.data.options import HeySquad
from speechssl.data.prepare import Attach, Attached, PrepareReport, SplitRecords, Takes
from speechssl.data.squad import (
    Paragraph,
    SquadQa,
    Style,
    as_text,
    make_records,
    read_golds,
    read_squad,
)
from speechssl.errors import InputError

# of the people's questions
PUBLISHED = {"train": {"questions": 71_990}, "dev": {"questions": 4_158}}
LAYOUT = (
    "give the folder of yijingwu/HeySQuAD_human with data/train-*.parquet and "
    "data/validation-*.parquet, "
    "or HeySQuAD_json of its GitHub repository"
)
ABOUT = {
    "title": "HeySQuAD",
    "language": "en",
    "source": "huggingface.co/datasets/yijingwu/HeySQuAD_human, arXiv 2304.13689",
    "licence": "CC BY-SA 4.0 (SQuAD's texts); see the release for the recordings",
}
SPLIT = re.compile(r"(train|validation|valid|dev|test)")
NEEDED = ("id", "question", "context", "answers")
TEXTS = (*NEEDED, "transcription", "is_impossible")
COUNTED = re.compile(r"(.+?)-(\d+)")
AT_A_TIME = 256  # rows in memory: some 50 MB of recordings
TABLES = (".parquet", ".json")


def prepare_heysquad(o: HeySquad) -> dict[str, Any]:
    """Write `o.out` and return its data report. Raises InputError for a source that is not of
    HeySQuAD, or damaged."""
    source = prepare.resolve_source(o.source, LAYOUT)
    splits = _find_splits(source)
    files = {
        path.relative_to(source).as_posix() if source.is_dir() else path.name: path
        for s in splits.values()
        for path in s
    }
    # what the tables' card states, or what stands in the names of the JSON files
    matches = {
        split: COUNTED.fullmatch(paths[0].stem)
        for split, paths in splits.items()
        if paths[0].suffix == ".json"
    }
    published = {
        split: {"questions": int(match[2])} for split, match in matches.items() if match
    } or PUBLISHED

    def read(report: PrepareReport) -> Mapping[str, tuple[SplitRecords, Attach]]:
        return {split: _read(split, paths, o.audio, report) for split, paths in splits.items()}

    options = {"audio": o.audio}
    return prepare.prepare_texts("heysquad", o, files, read, LAYOUT, published, ABOUT, options)


def _find_splits(source: Path) -> dict[str, list[Path]]:
    """Find the files that make up each split, by the beginning of the name of a file, or else of
    its folder."""
    splits: dict[str, list[Path]] = {}
    for path in (
        sorted(p for p in source.rglob("*") if p.suffix in TABLES) if source.is_dir() else [source]
    ):
        match = SPLIT.match(path.name) or SPLIT.match(path.parent.name)
        if path.name.startswith(".") or not match:
            continue
        if path.suffix == ".json" and (name := COUNTED.fullmatch(path.stem)):
            split = name[1]
        else:
            split = match[1] if match[1] in ("train", "test") else "dev"
            folders = (
                [source.name, *path.relative_to(source).parts]
                if source.is_dir()
                else [source.parent.name, source.name]
            )
            split += "-machine" * any("machine" in folder.lower() for folder in folders)
        splits.setdefault(split, []).append(path)
    return splits


def _read(
    split: str, paths: Sequence[Path], audio: bool, report: PrepareReport
) -> tuple[SplitRecords, Attach]:
    if paths[0].suffix == ".json":
        style = Style("en", transcribed_questions="transcribed" in split)
        paragraphs = [p for path in paths for p in read_squad(path)]
        records, _ = make_records(split, paragraphs, style, report)
        return records, Takes().attach
    by_context: dict[str, list[SquadQa]] = {}  # context -> its questions
    places: dict[Path, dict[int, str]] = {}  # table -> number of the row -> id of its question
    taken: set[str] = set()
    for path in paths:
        for number, row in enumerate(read_rows(path, TEXTS)):
            id_in_table = as_text(row["id"]) or f"{path.stem}-{number}"
            name = prepare.unique_id(id_in_table, taken)  # each row has a recording of its own
            if name != id_in_table:
                report.remark(
                    split,
                    "ids of questions that occur twice",
                    "the later one has a number behind it",
                )
            taken.add(name)
            try:
                golds, impossible = read_golds(row["answers"]), truth_of(row.get("is_impossible"))
            except TypeError as error:
                raise InputError(
                    f"{path}, row {number}: {error}; give the published table"
                ) from error
            question = SquadQa(
                name, as_text(row["question"]), golds, impossible, as_text(row.get("transcription"))
            )
            by_context.setdefault(as_text(row["context"]), []).append(question)
            places.setdefault(path, {})[number] = name
    paragraphs = [
        Paragraph(0, n, "", "", context, tuple(questions))
        for n, (context, questions) in enumerate(by_context.items())
    ]
    records, _ = make_records(split, paragraphs, Style("en"), report)
    return records, partial(_attach, places) if audio else Takes().attach


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet table with these columns as far as they are there.

    Raises InputError for a damaged file and for a table that lacks a column that a question needs.
    """
    for number, row in enumerate(read_parquet(path, columns, AT_A_TIME)):
        lacking = [name for name in columns if name in NEEDED and name not in row]
        if lacking:
            raise InputError(f"{path}, row {number}, has no {lacking[0]}; {LAYOUT}")
        yield row


def _attach(
    places: Mapping[Path, Mapping[int, str]],
    out: Path,
    split: str,
    records: SplitRecords,
    report: PrepareReport,
    workers: int,
) -> SplitRecords:
    """Attach the recordings inside the tables to the questions. places: table -> number of the row
    -> id."""
    question_ids = {q.id for q in records.questions}
    jobs = {}
    for path, ids in places.items():
        used = {number: name for number, name in ids.items() if name in question_ids}
        if used:
            jobs[path] = (out, split, path, used)
    written = prepare.run_parallel(_write_recordings, jobs, workers, f"writing {split}", "table")
    attached: dict[str, Attached] = {}
    for by_id in written.values():
        attached |= by_id
    return prepare.attach(split, "questions", records, attached, report)


def _write_recordings(
    out: Path, split: str, table: Path, ids: Mapping[int, str]
) -> dict[str, Attached]:
    """Write the recordings of the rows that have one; return them by id. ids: number of a row ->
    id."""
    recordings: dict[str, Attached] = {}
    for number, row in zip(range(max(ids) + 1), read_rows(table, ("audio",)), strict=False):
        if number not in ids or not (cell := row.get("audio")):
            continue
        name, audio = ids[number], prepare.audio_name(split, "questions", ids[number])
        try:
            if not (out / audio).is_file():
                if not cell.get("bytes"):
                    recordings[name] = prepare.NOT_RECORDED
                    continue
                where = f"{table}: question {name}"
                write_flac(out / audio, decode_cell(cell["bytes"], where))
            recordings[name] = audio, duration(out / audio)
        except InputError as error:
            recordings[name] = prepare.damage_reason(error)
    return recordings
