"""Prepare SLUE-SQA-5 (SLUE phase 2, arXiv 2212.10525): questions of five corpora and documents
of Spoken Wikipedia, both read by people.

Layouts and irregularities: data/slue-sqa5/README.md. Alignments (`word2time`) have an entry a
token: word, normalised word, start, end; a punctuation mark has a word alone, or times of -1.
Answers are [normalised text, start, end] in seconds of the document.
"""

from __future__ import annotations

import ast
import csv
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from speechssl.artifacts import read_text, write_json
from speechssl.audio import SAMPLE_RATE, duration, write_flac
from speechssl.data import prepare
from speechssl.data.files import (
    ARCHIVES,
    SUFFIXES,
    archives_in,
    enter,
    files_below,
    manifest_path,
    safe_name,
    stamp,
    unpack,
)
from speechssl.data.options import SlueSqa5
from speechssl.data.pieces import decoded_seconds
from speechssl.data.prepare import Done, PrepareReport, SplitRecords
from speechssl.data.records import Answer, Passage, Question, Span
from speechssl.data.tables import (
    column_names,
    decode_cell,
    open_parquet,
    read_header,
    read_parquet,
    unquote,
)
from speechssl.errors import InputError
from speechssl.schema import convert

PUBLISHED = {
    "train": {"questions": 46_186},
    "dev": {"questions": 1_939},
    "test": {"questions": 2_382},
    "verified_test": {"questions": 408},
}
LAYOUT = (
    "give the folder sqa5 of asapp/slue-phase-2 (Parquet), or slue-sqa5.zip or what is in it "
    "(slue-sqa5_dev.tsv and so on, beside "
    "the folders fine-tune, dev and test)"
)
ABOUT = {
    "source": "SLUE-SQA-5, huggingface.co/datasets/asapp/slue-phase-2",
    "paper": "arXiv 2212.10525",
    "licence": "CC BY-SA 4.0 (documents); those of the five corpora that the questions are from",
    "metric": "frame F1",
}
SLACK = 0.1  # seconds by which an answer may end after its document, which it then ends with
# seconds by which the times of an answer and of its words may differ: they are rounded to 0.01
NEAR = 0.006

OUTSIDE = ("answers without a usable time in the document", "scored by their text only")
UNALIGNED = ("documents without an alignment (word2time)", "kept without words")
NAMELESS = "it has no id or no document"
BROKEN = "its line has another number of cells than the header"
BLIND = "its answers are not in the source (a blind test has none)"

NEEDED = ("question_id", "document_id")
KINDS = ("question", "document")
Key = tuple[str, str]  # question, document or word2time; id
Audio = tuple[Path, float | InputError]  # a recording, and its seconds or why it cannot be used


Number = float | None


@dataclass(frozen=True)
class AnswerSpans:
    """The record of lists about the answers of a row."""

    answer: tuple[str, ...]
    start_second: tuple[Number, ...]
    end_second: tuple[Number, ...]


@dataclass(frozen=True)
class Word2Time:
    """The record of lists about the words of a document."""

    word: tuple[str | None, ...]
    normalized_word: tuple[str | None, ...]
    start_second: tuple[Number, ...]
    end_second: tuple[Number, ...]


@dataclass(frozen=True)
class TableRow:
    """A row as a table has it, without its recordings."""

    question_id: str | None
    document_id: str | None
    normalized_question_text: str | None = None
    normalized_document_text: str | None = None
    question_speaker_id: str | None = None
    document_speaker_id: str | None = None
    word2time: Word2Time | None = None
    answer_spans: AnswerSpans | None = None


@dataclass(frozen=True)
class SlueRow:
    """A row is a question. spans: answer, start and end; empty where there are none (a blind test
    has none)."""

    id: str
    document: str
    question: str
    text: str
    asker: str
    reader: str
    spans: tuple[tuple[str, Number, Number], ...]
    recording: str  # of the question
    # of the document; None where they lie beside the table
    words: tuple[Span, ...] | None = field(default=None, compare=False)


# ---- tables


def split_of(name: str) -> str:
    """Tell the split of a table or a folder by its name, "" for none."""
    name = name.lower()
    if "verified" in name:
        return "verified_test"
    by_split = {
        "train": ("fine-tune", "fine_tune", "finetune", "train"),
        "dev": ("dev", "validation"),
        "test": ("test",),
    }
    for split, words in by_split.items():
        if any(word in name for word in words):
            return split
    return ""


def find_tables(roots: Iterable[Path], only: Path | None = None) -> dict[str, list[Path]]:
    """Find the tables by split. Raises InputError for a damaged Parquet file. Tables of SLUE's
    other tasks are passed over."""
    tables: dict[str, list[Path]] = {}
    for _, path in files_below(roots, ".parquet", ".tsv"):
        split = split_of(path.parent.name if path.stem.isdecimal() else path.stem)
        if split and (only is None or path == only):
            read_columns = column_names if path.suffix == ".parquet" else read_header
            if set(NEEDED) <= set(read_columns(path)):
                tables.setdefault(split, []).append(path)
    for split, paths in tables.items():
        paths[:] = [path for path in paths if "blind" not in path.stem] or paths
        if len(paths) > 1 and not all(
            "-of-" in path.name or path.stem.isdecimal() for path in paths
        ):
            raise InputError(
                f"{paths[0]} and {paths[1]} are both tables of {split}; leave one "
                "of them in the folder"
            )
    return {split: tables[split] for split in PUBLISHED if split in tables}


def rows_of(path: Path) -> Iterator[SlueRow | int]:
    """Yield the rows; of a TSV then the numbers of the lines that have another number of cells than
    its header.

    SLUE's hold quotation marks that are text, and cells that are quoted as in CSV: of both
    readings, the one that fits more lines. Raises InputError for damage.
    """
    if path.suffix == ".parquet":
        columns = list(TableRow.__dataclass_fields__)
        for number, values in enumerate(read_parquet(path, columns, batch=256)):
            yield _make_row(values, f"{path}, row {number}")
        return

    content = read_text(path, "download it again")
    plain: list[list[str]] = []
    for line in content.split("\n"):
        if line.strip():
            plain.append([unquote(cell) for cell in line.rstrip("\r").split("\t")])
    quoted = [row for row in csv.reader(content.splitlines(keepends=True), delimiter="\t") if row]
    rows = min((plain, quoted), key=lambda rows: sum(len(row) != len(rows[0]) for row in rows))
    names = [name.strip() for name in rows[0]]
    for number, row in enumerate(rows[1:], 2):
        cells: dict[str, Any] = dict(zip(names, row, strict=False))
        if len(row) != len(names):
            yield number
            continue
        cells["answer_spans"] = _parse_spans(cells.get("answer_spans", ""))
        yield _make_row(cells, f"{path}:{number}")


def _parse_spans(text: str) -> dict[str, list[Any]] | None:
    """Parse a list of [answer, start, end] as JSON or as Python; None for another text."""
    for parse in (json.loads, ast.literal_eval):
        try:
            columns = list(zip(*parse(text), strict=True)) or [()] * 3
            return dict(zip(AnswerSpans.__dataclass_fields__, map(list, columns), strict=True))
        except (ValueError, SyntaxError, TypeError):
            continue
    return None


def _make_row(cells: Mapping[str, Any], place: str) -> SlueRow:
    """Make a row. Raises InputError for cells of another schema."""
    row = convert(cells, TableRow, place, "give the published table")
    words = None
    if row.word2time:
        times = row.word2time
        columns = (times.word, times.normalized_word, times.start_second, times.end_second)
        words = tuple(_words(zip(*columns, strict=False)))
    spans: list[tuple[str, Number, Number]] = []
    if row.answer_spans:
        answers = row.answer_spans
        for text, *time in zip(
            answers.answer, answers.start_second, answers.end_second, strict=False
        ):
            spans.append((text.strip(), time[0], time[1]))
    return SlueRow(
        id=row.question_id or "",
        document=row.document_id or "",
        question=(row.normalized_question_text or "").strip(),
        text=(row.normalized_document_text or "").strip(),
        asker=row.question_speaker_id or "",
        reader=row.document_speaker_id or "",
        spans=tuple(spans),
        recording=row.question_id or "",
        words=words,
    )


def read_words(path: Path) -> tuple[Span, ...]:
    """Read a file of `word2time`. Raises InputError where it cannot be read."""
    entries = []
    for line in read_text(path, "download it again", "the alignment").splitlines():
        cells = line.split("\t")
        if len(cells) == 4:
            times = convert(cells[2:], tuple[float, float], path, "download it again", strict=False)
            entries.append((cells[0], cells[1], *times))
    return tuple(_words(entries))


def _words(
    entries: Iterable[tuple[str | None, str | None, Number, Number]],
) -> Iterator[Span]:
    """Yield words with times; a word may have several in its normalised form."""
    for written, normalised, start, end in entries:
        word = (normalised or "").strip() or (written or "").strip()
        if word and start is not None and end is not None and 0 <= start < end < math.inf:
            yield Span(word, start, end)


# ---- recordings


class FileIndex:
    """Finds recordings and alignments by their ids: those of the split itself first (verified_test
    is part of test)."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.files: dict[Key, dict[str, Path]] = {}
        for _, path in files_below(roots, *SUFFIXES, ".txt"):
            kind = path.parent.name
            if kind in (*KINDS, "word2time"):
                by_split = self.files.setdefault((kind, path.stem), {})
                enter(by_split, split_of(path.parent.parent.name), path, copies=True)

    def get(self, kind: str, name: str, split: str) -> Path | None:
        """Return the file of a split, or of the test that it is taken from, or of no split at
        all."""
        by_split = self.files.get((kind, name), {})
        order = (split, "test", "") if split == "verified_test" else (split, "")
        return next((by_split[s] for s in order if s in by_split), None)


def read_recordings(
    split: str, tables: Sequence[Path], keys: set[Key], index: FileIndex, out: Path, workers: int
) -> dict[Key, Audio]:
    """Read as many of the recordings of these keys as there are. Recordings in Parquet are written
    as FLAC into `out`."""
    by_key: dict[Key, Audio] = {}
    jobs: dict[tuple[Path, int], tuple[Any, ...]] = {}
    for path in (path for path in tables if path.suffix == ".parquet"):
        with open_parquet(path) as file:
            inside = {f"{kind}_audio" for kind in KINDS} & set(file.schema_arrow.names)
            groups = file.num_row_groups
        for group in range(groups if inside else 0):
            of_group: set[Key] = set()
            for cells in read_parquet(path, [f"{kind}_id" for kind in KINDS], 16, [group]):
                of_group |= {(kind, cells.get(f"{kind}_id") or "") for kind in KINDS}
            if of_group & keys:
                jobs[path, group] = (path, group, out / split / "audio", of_group & keys)
    written = prepare.run_parallel(_write_recordings, jobs, workers, f"writing {split}", "group")
    for of_job in written.values():
        by_key |= of_job
    files: dict[Key, Path] = {}
    for key in keys:
        located = index.get(*key, split)
        if key not in by_key and located is not None:
            files[key] = located
    to_read = {key: (path,) for key, path in files.items()}
    read = prepare.run_parallel(
        partial(prepare.attempt, decoded_seconds), to_read, workers, f"reading {split}"
    )
    return by_key | {key: (files[key], seconds) for key, seconds in read.items()}


def _write_recordings(path: Path, group: int, folder: Path, keys: set[Key]) -> dict[Key, Audio]:
    """Write the recordings of a group of rows by their keys, as FLAC, 16 kHz; those that are there
    already are left alone."""
    written: dict[Key, Audio] = {}
    columns = [f"{kind}_id" for kind in KINDS] + [f"{kind}_audio" for kind in KINDS]
    for cells in read_parquet(path, columns, 16, [group]):
        for kind in KINDS:
            key = (kind, cells.get(f"{kind}_id") or "")
            content = cells.get(f"{kind}_audio")
            if key not in keys or key in written:
                continue
            if not content or not content.get("bytes"):
                continue
            out = folder / f"{safe_name(f'{kind}-{key[1]}')}.flac"
            try:
                if out.is_file():
                    written[key] = out, duration(out)
                else:
                    samples = decode_cell(content["bytes"], f"{path}: {kind} {key[1]}")
                    write_flac(out, samples)
                    written[key] = out, len(samples) / SAMPLE_RATE
            except InputError as error:
                written[key] = out, error
    return written


# ---- splits


@dataclass
class SlueSplit:
    """A split while it is put together. documents: id -> the first row about it."""

    name: str
    report: PrepareReport
    speak: bool
    rows: list[SlueRow] = field(default_factory=list)
    documents: dict[str, SlueRow] = field(default_factory=dict)
    recordings: dict[Key, Audio] = field(default_factory=dict)

    def remark(self, done: Done, number: int = 1) -> None:
        self.report.remark(self.name, *done, number=number)

    def seconds(self, kind: str, name: str) -> float | InputError | None:
        """Return the seconds of a recording, why it cannot be used, or None where there is none."""
        return self.recordings[kind, name][1] if (kind, name) in self.recordings else None


def prepare_slue_sqa5(o: SlueSqa5) -> dict[str, Any]:
    """Prepare as much of SLUE-SQA-5 as there is, and return the data report.

    source: a folder in either layout, slue-sqa5.zip, or one table. Raises InputError, one sentence,
    for a folder in which nothing is known, and for damaged tables.
    """
    source, out = o.source.resolve(), o.out
    root, only = source, None
    packed = [path for path in archives_in(source) if "sqa" in path.name]
    if source.is_file() and source.suffix == ".zip":
        root, packed = source.parent, [source]
    elif source.is_file():
        root, only = source.parent, source

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        roots = [root] if only else unpack(root, out, packed)
        if packed == [source]:
            roots = [out / "unpacked"]
        tables = find_tables(roots, only)
        if not tables:
            raise InputError(f"{source} has no table of SLUE-SQA-5, nor do its archives; {LAYOUT}")
        index = FileIndex(roots)
        splits = [_read(name, paths, report, o.speak) for name, paths in tables.items()]
        records: dict[str, SplitRecords] = {}
        for split in splits:
            keys = {("document", document) for document in split.documents}
            keys |= {("question", row.recording) for row in split.rows}
            split.recordings = read_recordings(
                split.name, tables[split.name], keys, index, out, o.workers
            )
            records[split.name] = _records(split, index, out)
        return records

    made_from: dict[str, Any] = {}
    if source.is_file():
        made_from = {"bytes": source.stat().st_size}
    elif source.is_dir():
        made_from = stamp(source, ".parquet", ".tsv", *ARCHIVES)
    return prepare.prepare_corpus("slue-sqa5", o, {"made_from": made_from}, read, PUBLISHED, ABOUT)


def _read(name: str, paths: Sequence[Path], report: PrepareReport, speak: bool) -> SlueSplit:
    split, rows = SlueSplit(name, report, speak), dict[str, SlueRow]()
    for path, row in ((p, row) for p in paths for row in rows_of(p)):
        report.count(name, "questions")
        if isinstance(row, int):
            report.set_aside(name, "questions", f"{path.name}:{row}", BROKEN)
            continue
        if row.id in rows and row != rows[row.id]:
            row = replace(row, id=report.unique_id(name, row.id, rows))
        if row.document in split.documents:
            row = replace(row, words=None)  # every row of Parquet has those of its document
        reason = ""
        if not row.id or not row.document:
            reason = NAMELESS
        elif row.id in rows:
            reason = prepare.TWICE
        elif not row.spans:
            reason = BLIND
        if reason:
            report.set_aside(name, "questions", row.id, reason)
        else:
            rows[row.id] = row
            split.documents.setdefault(row.document, row)
    report.count(name, "passages", len(split.documents))
    chosen = report.slice(name, split.documents, Counter(row.document for row in rows.values()))
    split.documents = {document: split.documents[document] for document in chosen}
    split.rows = [row for row in rows.values() if row.document in split.documents]
    return split


def _records(split: SlueSplit, index: FileIndex, out: Path) -> SplitRecords:
    """Make the records: with audio where any question and its document have recordings, else text
    only."""
    has_audio = any(
        isinstance(split.seconds("question", row.recording), float)
        and isinstance(split.seconds("document", row.document), float)
        for row in split.rows
    )
    if not has_audio and split.rows:
        split.remark(prepare.NO_RECORDINGS, len(split.rows))
        write_json(
            out / split.name / "released_times.json", {row.id: row.spans for row in split.rows}
        )
    passages: dict[str, Passage] = {}
    for name, row in split.documents.items():
        seconds = split.seconds("document", name)
        reason = _why_unusable(split, seconds, row.text, has_audio, prepare.NO_TEXT)
        if reason:
            split.report.set_aside(split.name, "passages", name, **reason)
        elif not has_audio or not isinstance(seconds, float):
            passages[name] = Passage(name, "", 0.0, row.text, row.reader, "en")
        else:
            words = row.words
            path = index.get("word2time", name, split.name)
            if words is None and path is not None:
                words = read_words(path)
            if not words:
                split.remark(UNALIGNED)
            words = tuple(
                w._replace(end=min(w.end, seconds)) for w in words or () if w.start < seconds
            )
            audio = manifest_path(split.recordings["document", name][0], out)
            passages[name] = Passage(name, audio, seconds, row.text, row.reader, "en", words)
    questions: list[Question] = []
    for row in split.rows:
        seconds, passage = split.seconds("question", row.recording), passages.get(row.document)
        reason = _why_unusable(split, seconds, row.question, has_audio, prepare.NO_QUESTION)
        if passage is None:
            reason = {"reason": prepare.ITS_PASSAGE}
        if reason or passage is None:
            split.report.set_aside(split.name, "questions", row.id, **reason)
            continue
        audio, length = "", 0.0
        if has_audio and isinstance(seconds, float):
            audio = manifest_path(split.recordings["question", row.recording][0], out)
            length = seconds
        answers = _answers(row, passage, split.remark)
        questions.append(
            Question(row.id, row.document, audio, length, row.question, row.asker, "en", answers)
        )
    return SplitRecords(list(passages.values()), questions)


def _why_unusable(
    split: SlueSplit, seconds: float | InputError | None, text: str, has_audio: bool, textless: str
) -> dict[str, Any]:
    """Say why an item cannot be kept, as set_aside.jsonl has it; empty where it can. textless: the
    reason for one without a text either."""
    if has_audio and isinstance(seconds, float):
        return {}
    if has_audio and not split.speak:
        if seconds:
            return {"reason": prepare.UNUSABLE, "why": str(seconds)}
        return {"reason": prepare.NOT_FOUND}
    return {} if text else {"reason": textless}


def _answers(row: SlueRow, passage: Passage, remark: Callable[[Done], None]) -> tuple[Answer, ...]:
    """Make the answers, with their times where there is audio that has them, and offsets: those of
    the word that begins then, or without an alignment of the only occurrence in the text."""
    answers: dict[Answer, None] = {}
    standing = places(passage.text, passage.words)
    for text, start, end in row.spans:
        if not text:
            remark(prepare.EMPTY)
            continue
        at = None
        for word, place in zip(passage.words, standing, strict=True):
            begins = start is not None and abs(word.start - start) < NEAR
            if begins and place is not None and passage.text.startswith(text, place):
                at = place
                break
        if at is None and passage.text.count(text) == 1:
            at = passage.text.index(text)
        answer = Answer(text, char_start=at)
        if passage.audio:
            seconds = passage.seconds
            if (
                start is None
                or end is None
                or not 0 <= start < min(end, seconds)
                or end > seconds + SLACK
            ):
                remark(OUTSIDE)
            else:
                answer = Answer(text, start, min(end, seconds), at)
        answers[answer] = None
    return tuple(answers)


def places(text: str, words: Iterable[Span]) -> list[int | None]:
    """Find every word in the text, None for one that does not follow within 40 characters."""
    offsets: list[int | None] = []
    at = 0
    for word in words:
        place = text.find(word.text, at, at + 40 + len(word.text))
        offsets.append(place if place >= 0 else None)
        at = place + len(word.text) if place >= 0 else at
    return offsets
