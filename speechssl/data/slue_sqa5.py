"""Prepare SLUE-SQA-5 (SLUE phase 2, arXiv 2212.10525): questions of five corpora and documents
of Spoken Wikipedia, both read by people.

Layouts and irregularities: data/slue-sqa5/README.md. Alignments (`word2time`) have an entry a
token: word, normalised word, start, end; a punctuation mark has a word alone, or times of -1.
Answers are [normalised text, start, end] in seconds of the document.
"""

from __future__ import annotations

import ast
import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from speechssl.artifacts import read_text
from speechssl.audio import SAMPLE_RATE, header_duration, write_flac
from speechssl.data import prepare
from speechssl.data.files import (
    ARCHIVES,
    SUFFIXES,
    check_shards,
    column_names,
    decode_cell,
    enter,
    files_below,
    open_parquet,
    read_header,
    read_parquet,
    safe_name,
    stamp,
    unpack,
    unquote,
)
from speechssl.data.options import SlueSqa5
from speechssl.data.prepare import Done, Measured, PrepareReport, SplitRecords
from speechssl.data.records import Answer, Passage, Question, Span
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
    "(slue-sqa5_dev.tsv and so on, beside the folders fine-tune, dev and test)"
)
ABOUT = {
    "source": "SLUE-SQA-5, huggingface.co/datasets/asapp/slue-phase-2",
    "paper": "arXiv 2212.10525",
    "licence": "CC BY-SA 4.0 (documents); those of the five corpora that the questions are from",
    "metric": "frame F1",
}
# seconds by which the times of an answer and of its words may differ: they are rounded to 0.01
NEAR = 0.006

OUTSIDE = ("answers without a usable time in the document", "scored by their text only")
UNALIGNED = ("documents without an alignment (word2time)", "kept without words")
BROKEN = "its line has another number of cells than the header"
BLIND = "its answers are not in the source (a blind test has none)"

KINDS = ("question", "document")
Key = tuple[str, str]  # question, document or word2time; id
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
class SlueRow:
    """A row is a question, as a table has it without its recordings. answer_spans: None in a blind
    test."""

    question_id: str
    document_id: str
    normalized_question_text: str = ""
    normalized_document_text: str = ""
    question_speaker_id: str = ""
    document_speaker_id: str = ""
    word2time: Word2Time | None = None
    answer_spans: AnswerSpans | None = None


# ---- tables


def split_of(name: str) -> str:
    """Tell the split of a table or a folder by its name, "" for none."""
    by_split = {
        "verified_test": ("verified",),
        "train": ("fine-tune", "train"),
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
            columns = column_names(path) if path.suffix == ".parquet" else read_header(path)
            if {"question_id", "document_id"} <= set(columns):
                tables.setdefault(split, []).append(path)
    for split, paths in tables.items():
        paths[:] = [path for path in paths if "blind" not in path.stem] or paths
        check_shards(split, paths)
    return {split: tables[split] for split in PUBLISHED if split in tables}


def rows_of(path: Path) -> Iterator[SlueRow | int]:
    """Yield the rows; of a TSV also the numbers of the lines that have another number of cells than
    its header.

    SLUE's hold quotation marks that are text, and cells that are quoted as in CSV: of both
    readings, the one that fits more lines. Raises InputError for damage.
    """
    if path.suffix == ".parquet":
        columns = list(SlueRow.__dataclass_fields__)
        for number, values in enumerate(read_parquet(path, columns, batch=256)):
            yield convert(values, SlueRow, f"{path}, row {number}", "give the published table")
        return

    lines = [line for line in read_text(path, "download it again").splitlines() if line]
    plain = [[unquote(cell) for cell in line.split("\t")] for line in lines]
    quoted = list(csv.reader(lines, delimiter="\t"))
    rows = min((plain, quoted), key=lambda rows: sum(len(row) != len(rows[0]) for row in rows))
    for number, row in enumerate(rows[1:], 2):
        cells: dict[str, Any] = dict(zip(rows[0], row, strict=False))
        if len(row) != len(rows[0]):
            yield number
            continue
        cells["answer_spans"] = _parse_spans(cells.get("answer_spans", ""))
        yield convert(cells, SlueRow, f"{path}:{number}", "give the published table")


def _parse_spans(text: str) -> dict[str, list[Any]] | None:
    """Parse a list of [answer, start, end]; None for another text."""
    try:
        columns = list(zip(*ast.literal_eval(text), strict=True))
        return dict(zip(AnswerSpans.__dataclass_fields__, map(list, columns), strict=True))
    except (ValueError, SyntaxError, TypeError):
        return None


def read_words(path: Path) -> tuple[Span, ...]:
    """Read a file of `word2time`. Raises InputError where it cannot be read."""
    entries = []
    for line in read_text(path, "download it again", "the alignment").splitlines():
        cells = line.split("\t")
        if len(cells) == 4:
            times = convert(cells[2:], tuple[float, float], path, "download it again", strict=False)
            entries.append((cells[0], cells[1], *times))
    return _timed_words(entries)


def _timed_words(
    entries: Iterable[tuple[str | None, str | None, Number, Number]],
) -> tuple[Span, ...]:
    """Return the words with times; a word may have several in its normalised form."""
    words = []
    for written, normalised, start, end in entries:
        word = (normalised or written or "").strip()
        if word and start is not None and end is not None and 0 <= start < end:
            words.append(Span(word, start, end))
    return tuple(words)


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
        """Return the file of a split, or of the test that it is taken from."""
        by_split = self.files.get((kind, name), {})
        return by_split.get(split) or by_split.get(split.removeprefix("verified_"))


def read_recordings(
    split: str, tables: Sequence[Path], keys: set[Key], index: FileIndex, o: SlueSqa5
) -> dict[Key, Measured]:
    """Read as many of the recordings of these keys as there are. Recordings in Parquet are written
    as FLAC into `o.out`."""
    jobs: dict[tuple[Path, int], tuple[Any, ...]] = {}
    for table in (table for table in tables if table.suffix == ".parquet"):
        with open_parquet(table) as file:
            groups = file.num_row_groups
        for group in range(groups):
            of_group: set[Key] = set()
            for cells in read_parquet(table, [f"{kind}_id" for kind in KINDS], 16, [group]):
                of_group |= {(kind, cells[f"{kind}_id"]) for kind in KINDS}
            if of_group & keys:
                jobs[table, group] = (table, group, o.out / split / "audio", of_group & keys)
    recordings: dict[Key, Measured] = {}
    written = prepare.run_parallel(_write_recordings, jobs, o.workers, f"writing {split}", "group")
    for of_job in written.values():
        recordings |= of_job
    files: dict[Key, Path] = {}
    for key in keys - recordings.keys():
        path = index.get(*key, split)
        if path is not None:
            files[key] = path
    return recordings | prepare.measure_recordings(files, o.workers, f"reading {split}")


def _write_recordings(path: Path, group: int, folder: Path, keys: set[Key]) -> dict[Key, Measured]:
    """Write the recordings of a group of rows by their keys, as FLAC, 16 kHz; those that are there
    already are left alone."""
    written: dict[Key, Measured] = {}
    columns = [f"{kind}_id" for kind in KINDS] + [f"{kind}_audio" for kind in KINDS]
    for cells in read_parquet(path, columns, 16, [group]):
        for kind in KINDS:
            key = kind, cells[f"{kind}_id"]
            content = cells.get(f"{kind}_audio")
            if key not in keys or key in written or not content:
                continue
            out = folder / f"{safe_name(f'{kind}-{key[1]}')}.flac"
            try:
                if out.is_file():
                    written[key] = out, header_duration(out)
                else:
                    samples = decode_cell(content["bytes"], f"{path}: {kind} {key[1]}")
                    write_flac(out, samples)
                    written[key] = out, len(samples) / SAMPLE_RATE
            except InputError as error:
                written[key] = out, error
    return written


# ---- splits


def prepare_slue_sqa5(o: SlueSqa5) -> dict[str, Any]:
    """Prepare as much of SLUE-SQA-5 as there is, and return the data report.

    source: a folder in either layout, slue-sqa5.zip, or one table. Raises InputError, one sentence,
    for a folder in which nothing is known, and for damaged tables.
    """
    source = o.source.resolve()
    root = source.parent if source.is_file() else source
    only = source if source.is_file() and source.suffix != ".zip" else None
    archives = [path for _, path in files_below([root], *ARCHIVES) if "sqa" in path.name]
    if source.is_file():
        archives = [] if only else [source]

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        roots = unpack(root, o.out, archives)
        tables = find_tables(roots, only)
        if not tables:
            raise InputError(f"{source} has no table of SLUE-SQA-5, nor do its archives; {LAYOUT}")
        index = FileIndex(roots)
        return {
            split: make_records(split, paths, index, report, o) for split, paths in tables.items()
        }

    made_from = stamp(root, ".parquet", ".tsv", *ARCHIVES)
    return prepare.prepare_corpus("slue-sqa5", o, {"made_from": made_from}, read, PUBLISHED, ABOUT)


def read_rows(split: str, tables: Sequence[Path], report: PrepareReport) -> dict[str, SlueRow]:
    """Read the questions that have answers, by id."""
    rows: dict[str, SlueRow] = {}
    documents: set[str] = set()
    for table in tables:
        for row in rows_of(table):
            report.count(split, "questions")
            if isinstance(row, int):
                report.set_aside(split, "questions", f"{table.name}:{row}", BROKEN)
            elif not row.answer_spans or not row.answer_spans.answer:
                report.set_aside(split, "questions", row.question_id, BLIND)
            else:
                if row.document_id in documents:
                    row = replace(row, word2time=None)  # every row repeats those of its document
                documents.add(row.document_id)
                rows[report.unique_id(split, row.question_id, rows)] = row
    return rows


def make_records(
    split: str, tables: Sequence[Path], index: FileIndex, report: PrepareReport, o: SlueSqa5
) -> SplitRecords:
    """Make the records: with audio where any question and its document have recordings, else text
    only."""
    rows = read_rows(split, tables, report)
    documents: dict[str, SlueRow] = {}
    for row in rows.values():
        documents.setdefault(row.document_id, row)
    report.count(split, "passages", len(documents))
    asked = Counter(row.document_id for row in rows.values())
    chosen = report.slice(split, documents, asked)
    rows = {name: row for name, row in rows.items() if row.document_id in chosen}
    keys = {("document", document) for document in chosen}
    keys |= {("question", row.question_id) for row in rows.values()}
    recordings = read_recordings(split, tables, keys, index, o)
    usable = {key for key, (_, seconds) in recordings.items() if isinstance(seconds, float)}
    spoken = any(
        {("question", row.question_id), ("document", row.document_id)} <= usable
        for row in rows.values()
    )
    if not spoken:
        recordings = {}
        if rows:
            report.remark(split, *prepare.NO_RECORDINGS, number=len(rows))
    text_will_do = o.speak or not spoken

    passages: dict[str, Passage] = {}
    for name in chosen:
        row = documents[name]
        text = row.normalized_document_text.strip()
        recording = recordings.get(("document", name))
        audio = prepare.choose_audio(recording, text, prepare.NO_TEXT, text_will_do, o.out)
        if isinstance(audio, dict):
            report.set_aside(split, "passages", name, **audio)
            continue
        path, seconds = audio
        words = _words_of(row, index.get("word2time", name, split), seconds)
        if path and not words:
            report.remark(split, *UNALIGNED)
        passages[name] = Passage(name, path, seconds, text, row.document_speaker_id, "en", words)
    questions: list[Question] = []
    for name, row in rows.items():
        text = row.normalized_question_text.strip()
        recording = recordings.get(("question", row.question_id))
        audio = prepare.choose_audio(recording, text, prepare.NO_QUESTION, text_will_do, o.out)
        passage = passages.get(row.document_id)
        if passage is None:
            report.set_aside(split, "questions", name, prepare.ITS_PASSAGE)
        elif isinstance(audio, dict):
            report.set_aside(split, "questions", name, **audio)
        else:
            answers = _answers(row, passage, lambda done: report.remark(split, *done))
            asker = row.question_speaker_id
            questions.append(Question(name, passage.id, *audio, text, asker, "en", answers))
    return SplitRecords(list(passages.values()), questions)


def _words_of(row: SlueRow, path: Path | None, seconds: float) -> tuple[Span, ...]:
    """Return the words of a document: of its row, or of the alignment beside the table."""
    times = row.word2time
    words: tuple[Span, ...] = ()
    if times:
        columns = (times.word, times.normalized_word, times.start_second, times.end_second)
        words = _timed_words(zip(*columns, strict=True))
    elif path is not None:
        words = read_words(path)
    return tuple(w._replace(end=min(w.end, seconds)) for w in words if w.start < seconds)


def _answers(row: SlueRow, passage: Passage, remark: Callable[[Done], None]) -> tuple[Answer, ...]:
    """Make the answers, with their times where there is audio that has them, and offsets: those of
    the word that begins then, or without an alignment of the only occurrence in the text."""
    spans = row.answer_spans or AnswerSpans((), (), ())
    answers: dict[Answer, None] = {}
    standing = places(passage.text, passage.words)
    for text, start, end in zip(spans.answer, spans.start_second, spans.end_second, strict=True):
        text = text.strip()
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
        time = prepare.clip_time(start, end, passage.seconds)
        if time:
            answer = Answer(text, *time, at)
        elif passage.audio:
            remark(OUTSIDE)
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
