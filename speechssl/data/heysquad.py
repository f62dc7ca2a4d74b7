"""Prepare HeySQuAD (Wu et al., arXiv 2304.13689): questions of SQuAD read by people, or by a
synthesiser, about contexts that are text.

Layouts: data/heysquad/README.md. Recordings are cells of the tables and are written as
OUT/<split>/audio/*.flac.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from speechssl.data import prepare
from speechssl.data.files import list_files, read_parquet
from speechssl.data.options import HeySquad
from speechssl.data.prepare import Attached, PrepareReport, SplitRecords
from speechssl.data.squad import Paragraph, SquadQa, Style, make_records, read_squad
from speechssl.errors import InputError
from speechssl.schema import convert

# the questions that people read
PUBLISHED = {"train": {"questions": 71_990}, "dev": {"questions": 4_158}}
ABOUT = {
    "title": "HeySQuAD",
    "language": "en",
    "source": "huggingface.co/datasets/yijingwu/HeySQuAD_human, arXiv 2304.13689",
    "licence": "CC BY-SA 4.0 (SQuAD's texts); see the release for the recordings",
}
SPLIT = re.compile("train|validation|dev|test")
# name of a JSON file that ends with the number of its questions: "dev-common-human-1002"
COUNTED = re.compile(r"(.+?)-(\d+)")
COLUMNS = ("id", "context", "question", "answers", "transcription", "is_impossible")
ROWS_IN_MEMORY = 256  # some 50 MB of recordings


@dataclass(frozen=True)
class Row(SquadQa):
    """A row of a table is a question with its context and its transcript by a recogniser."""

    context: str = ""
    transcription: str | None = ""


def prepare_heysquad(o: HeySquad) -> dict[str, Any]:
    """Write `o.out` and return its data report. Raises InputError for a source that is not of
    HeySQuAD, or damaged."""
    source = o.source.resolve()
    splits = _find_splits(source)
    published: dict[str, dict[str, int]] = {}  # JSON files have their count in their names
    files: dict[str, Path] = {}
    for split, paths in splits.items():
        files |= {f"{split}/{path.name}": path for path in paths}
        counted = COUNTED.fullmatch(paths[0].stem)
        if counted and paths[0].suffix == ".json":
            published[split] = {"questions": int(counted[2])}

    has_tables = any(paths[0].suffix == ".parquet" for paths in splits.values())
    if has_tables or not published:
        published = PUBLISHED | published

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        records: dict[str, SplitRecords] = {}
        for split, paths in splits.items():
            if paths[0].suffix == ".parquet":
                records[split] = _read_tables(split, paths, o, report)
                continue
            style = Style("en", transcribed_questions="transcribed" in split)
            paragraphs = [p for path in paths for p in read_squad(path)]
            records[split], _ = make_records(split, paragraphs, style, report)
        return records

    settings = {"files": prepare.stamp_files(files), "audio": o.audio}
    return prepare.prepare_corpus("heysquad", o, settings, read, published, ABOUT)


def _find_splits(source: Path) -> dict[str, list[Path]]:
    """Find the files of each split. The name of the file, or otherwise that of its folder, begins
    with the split. Raises InputError where there are no files."""
    splits: dict[str, list[Path]] = {}
    paths = [source]
    if source.is_dir():
        paths = list_files(source, ".parquet", ".json")
    for path in sorted(paths):
        match = SPLIT.match(path.name) or SPLIT.match(path.parent.name)
        counted = COUNTED.fullmatch(path.stem)
        if not match or path.suffix not in (".parquet", ".json"):
            continue
        split = "dev" if match[0] == "validation" else match[0]
        # the synthesised questions: ".../HeySQuAD_machine/data/train-0.parquet"
        if "machine" in "/".join(path.parts[-3:]).lower():
            split += "-machine"
        if path.suffix == ".json" and counted:
            split = counted[1]
        splits.setdefault(split, []).append(path)
    if not splits:
        raise prepare.make_source_error(source, "heysquad")
    return splits


def _read_tables(
    split: str, paths: Sequence[Path], o: HeySquad, report: PrepareReport
) -> SplitRecords:
    """Make the records of the rows of tables, and write their recordings below `o.out`."""
    by_context: dict[str, list[SquadQa]] = {}  # context -> its questions
    ids: dict[Path, dict[int, str]] = {}  # table -> number of the row -> id of its question
    taken: set[str] = set()
    for path in paths:
        for number, row in enumerate(_read_rows(path)):
            # each row is a question, even if its id occurred before: it has its own recording
            name = report.make_unique_id(split, row.id or f"{path.stem}-{number}", taken)
            taken.add(name)
            question = replace(row, id=name, transcript=row.transcription or "")
            by_context.setdefault(row.context, []).append(question)
            ids.setdefault(path, {})[number] = name
    paragraphs = [
        Paragraph(context, tuple(questions), number=n)
        for n, (context, questions) in enumerate(by_context.items())
    ]
    records, _ = make_records(split, paragraphs, Style("en"), report)
    if not o.audio:
        return records
    used = {q.id for q in records.questions}
    jobs = {}
    for path, ids_of_table in ids.items():
        used_rows = {number: name for number, name in ids_of_table.items() if name in used}
        jobs[path] = (o.out, split, path, used_rows)
    written = prepare.run_parallel(_write_recordings, jobs, o.workers, f"writing {split}", "table")
    attached: dict[str, Attached] = {}
    for by_id in written.values():
        attached |= by_id
    return prepare.attach(split, "questions", records, attached, report)


def _read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a table. Raises InputError for a damaged file, or one of another schema."""
    for number, cells in enumerate(read_parquet(path, COLUMNS, ROWS_IN_MEMORY)):
        answers = cells.get("answers")
        if isinstance(answers, dict):  # a record of lists, as some copies of the release have
            pairs = zip(answers["text"], answers["answer_start"], strict=True)
            cells["answers"] = [{"text": text, "answer_start": start} for text, start in pairs]
        yield convert(cells, Row, f"{path}, row {number}", "give the published table")


def _write_recordings(
    out: Path, split: str, table: Path, ids: Mapping[int, str]
) -> dict[str, Attached]:
    """Write the recordings of the rows that are used, and return them by the ids of their
    questions. ids: number of the row -> id of its question."""
    recordings: dict[str, Attached] = {}
    for number, row in enumerate(read_parquet(table, ("audio",), ROWS_IN_MEMORY)):
        cell = row.get("audio")
        if number not in ids or not cell:
            continue
        name = ids[number]
        audio = prepare.make_audio_path(split, "questions", name)
        try:
            where = f"{table}: question {name}"
            recordings[name] = audio, prepare.write_cell(cell["bytes"], where, out / audio)
        except InputError as error:
            recordings[name] = {"reason": prepare.UNUSABLE, "why": str(error)}
    return recordings
