"""Prepare SLUE-SQA-5 (SLUE phase 2, arXiv 2212.10525): questions of five corpora about documents
of Spoken Wikipedia, both read by people.

Layouts and irregularities: data/slue-sqa5/README.md. An alignment (`word2time`) has an entry for
every token: word, normalised word, start, end. A punctuation mark has no normalised word, and no
times or times of -1. An answer is [normalised text, start, end], in seconds from the beginning of
the document.
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from speechssl.artifacts import read_text
from speechssl.data import prepare
from speechssl.data.files import (
    ARCHIVES,
    LINE_BREAK,
    SUFFIXES,
    add_recording,
    check_shards,
    describe_source,
    list_files,
    make_safe_name,
    open_parquet,
    read_header,
    read_parquet,
    unpack,
    unquote,
)
from speechssl.data.options import SlueSqa5
from speechssl.data.prepare import Measured, PrepareReport, Remark, SplitRecords
from speechssl.data.records import Answer, Passage, Question, Span
from speechssl.errors import InputError
from speechssl.schema import convert

PUBLISHED = {
    "train": {"questions": 46_186},
    "dev": {"questions": 1_939},
    "test": {"questions": 2_382},
    "verified_test": {"questions": 408},
}
ABOUT = {
    "source": "SLUE-SQA-5, huggingface.co/datasets/asapp/slue-phase-2",
    "paper": "arXiv 2212.10525",
    "licence": "CC BY-SA 4.0 (documents); those of the five corpora that the questions are from",
    "metric": "frame F1",
}
# seconds by which the times of an answer and of its words may differ: they are rounded to 0.01
NEAR = 0.006
# characters between two words of an alignment in the text: punctuation, or words without a time
MAX_GAP = 40

OUTSIDE = ("answers without a usable time in the document", "scored by their text only")
BROKEN = "its line has another number of cells than the header"
BLIND = "its answers are not in the source (a blind test has none)"

KINDS = ("question", "document")  # kinds of recordings
Key = tuple[str, str]  # kind, id
Place = tuple[str, str, str]  # split, kind (question, document or word2time), id
Seconds = float | None  # None: no time


# columns whose cells are records of parallel lists -> the names of these lists, in order
PARALLEL = {
    "answer_spans": ("answer", "start_second", "end_second"),
    "word2time": ("word", "normalized_word", "start_second", "end_second"),
}


@dataclass(frozen=True)
class SlueRow:
    """A row of a table is a question with its document; its recordings are read elsewhere."""

    question_id: str
    document_id: str
    normalized_question_text: str = ""
    normalized_document_text: str = ""
    question_speaker_id: str = ""
    document_speaker_id: str = ""
    # word, normalised word, start, end
    word2time: tuple[tuple[str | None, str | None, Seconds, Seconds], ...] | None = None
    # answer, start, end; None in a blind test
    answer_spans: tuple[tuple[str, Seconds, Seconds], ...] | None = None


# ---- tables


def find_split(name: str) -> str:
    """Find the split that a table or a folder is named after, "" for none."""
    words_of = {  # in this order: "verified_test" contains "test"
        "verified_test": ("verified",),
        "train": ("fine-tune", "train"),
        "dev": ("dev", "validation"),
        "test": ("test",),
    }
    for split, words in words_of.items():
        if any(word in name for word in words):
            return split
    return ""


def find_tables(roots: Iterable[Path], wanted_table: Path | None) -> dict[str, list[Path]]:
    """Find the tables by split; tables of the other tasks of SLUE are left out.

    wanted_table: the only table to read, None for all. Raises InputError for a damaged Parquet
    file, and two tables of a split.
    """
    tables: dict[str, list[Path]] = {}
    for path in chain.from_iterable(list_files(root, ".parquet", ".tsv") for root in roots):
        split = find_split(path.parent.name if path.stem.isdecimal() else path.stem)
        if not split or wanted_table not in (None, path):
            continue
        if {"question_id", "document_id"} <= set(read_header(path)):
            tables.setdefault(split, []).append(path)
    for split, paths in tables.items():
        # a blind test lies beside the same test with answers
        with_answers = [path for path in paths if "blind" not in path.stem]
        tables[split] = with_answers or paths
        check_shards(split, tables[split])
    return {split: tables[split] for split in PUBLISHED if split in tables}


def read_rows(path: Path) -> Iterator[SlueRow | int]:
    """Yield the rows of a table. For a line of a TSV that has another number of cells than the
    header, its line number is yielded instead.

    In some TSV files a quotation mark is text, in others it quotes a cell as in CSV. The file is
    split both ways, and the way is taken that makes more lines fit the header. Raises InputError
    for a damaged file.
    """
    if path.suffix == ".parquet":
        columns = list(SlueRow.__dataclass_fields__)
        for number, cells in enumerate(read_parquet(path, columns, batch=256)):
            for column, names in PARALLEL.items():
                if cells.get(column):
                    try:
                        lists = [cells[column][name] for name in names]
                        cells[column] = list(zip(*lists, strict=True))
                    except (KeyError, TypeError, ValueError) as error:
                        raise InputError(
                            f"{path}, row {number}: {column} is not equally long lists of "
                            f"{', '.join(names)}; give the published table"
                        ) from error
            yield convert(cells, SlueRow, f"{path}, row {number}", "give the published table")
        return

    lines = [line for line in LINE_BREAK.split(read_text(path, "download it again")) if line]
    plain = [[unquote(cell) for cell in line.split("\t")] for line in lines]
    quoted = list(csv.reader(lines, delimiter="\t"))

    def count_misfits(rows: list[list[str]]) -> int:
        return sum(len(row) != len(rows[0]) for row in rows)

    rows = min((plain, quoted), key=count_misfits)
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(rows[0]):
            yield number
            continue
        cells = dict(zip(rows[0], row, strict=True))
        answers = cells.pop("answer_spans", "")  # "[['an answer', 1.2, 1.9], ...]"
        with suppress(ValueError, SyntaxError):  # a blind test has none
            cells["answer_spans"] = ast.literal_eval(answers)
        yield convert(cells, SlueRow, f"{path}:{number}", "give the published table")


def read_words(path: Path) -> tuple[Span, ...]:
    """Read the words with times of a file of `word2time`. Raises InputError where it cannot be
    read."""
    entries = []
    for line in LINE_BREAK.split(read_text(path, "download it again", "the alignment")):
        cells = line.split("\t")
        if len(cells) == 4:
            times = convert(cells[2:], tuple[float, float], path, "download it again", strict=False)
            entries.append((cells[0], cells[1], *times))
    return _select_words(entries)


def _select_words(
    entries: Iterable[tuple[str | None, str | None, Seconds, Seconds]],
) -> tuple[Span, ...]:
    """Select the entries (word, normalised word, start, end) that have a word and a time. A
    normalised word may be several words, such as those of a number."""
    words = []
    for original, normalised, start, end in entries:
        word = (normalised or original or "").strip()
        if word and start is not None and end is not None and 0 <= start < end:
            words.append(Span(word, start, end))
    return tuple(words)


# ---- recordings


def index_files(roots: Iterable[Path]) -> dict[Place, Path]:
    """Index the recordings and alignments by split, kind and id."""
    files: dict[Place, Path] = {}
    for path in chain.from_iterable(list_files(root, *SUFFIXES, ".txt") for root in roots):
        kind = path.parent.name
        if kind in (*KINDS, "word2time"):
            split = find_split(path.parent.parent.name)
            add_recording(files, (split, kind, path.stem), path)
    return files


def find_file(files: Mapping[Place, Path], split: str, kind: str, name: str) -> Path | None:
    """Find a recording or an alignment of a split. Those of verified_test, which is a part of test,
    may lie in the folder of test."""
    part_of = split.removeprefix("verified_")
    return files.get((split, kind, name)) or files.get((part_of, kind, name))


def read_recordings(
    split: str, tables: Sequence[Path], keys: set[Key], files: Mapping[Place, Path], o: SlueSqa5
) -> dict[Key, Measured]:
    """Read the recordings with these keys, as far as they are in the source. Recordings in cells of
    Parquet tables are written as FLAC below `o.out`; others are files."""
    jobs: dict[tuple[Path, int], tuple[Any, ...]] = {}  # (table, row group) -> arguments
    for table in tables:
        if table.suffix != ".parquet":
            continue
        with open_parquet(table) as file:
            group_count = file.num_row_groups
        for group in range(group_count):
            group_keys: set[Key] = set()
            columns = [f"{kind}_id" for kind in KINDS]
            for cells in read_parquet(table, columns, groups=[group]):
                group_keys |= {(kind, cells[f"{kind}_id"]) for kind in KINDS}
            if group_keys & keys:
                jobs[table, group] = (table, group, o.out / split / "audio", group_keys & keys)
    recordings: dict[Key, Measured] = {}
    written = prepare.run_parallel(_write_recordings, jobs, o.workers, f"writing {split}", "group")
    for by_key in written.values():
        recordings |= by_key
    paths: dict[Key, Path] = {}
    for key in keys - recordings.keys():
        path = find_file(files, split, *key)
        if path is not None:
            paths[key] = path
    return recordings | prepare.measure_recordings(paths, o.workers, f"reading {split}")


def _write_recordings(path: Path, group: int, folder: Path, keys: set[Key]) -> dict[Key, Measured]:
    """Write the recordings of a row group as FLAC, 16 kHz, unless they are there already, and
    return their paths and seconds by their keys."""
    written: dict[Key, Measured] = {}
    columns = [f"{kind}_id" for kind in KINDS] + [f"{kind}_audio" for kind in KINDS]
    for cells in read_parquet(path, columns, batch=16, groups=[group]):
        for kind in KINDS:
            name = cells[f"{kind}_id"]
            key = (kind, name)
            content = cells.get(f"{kind}_audio")
            if key not in keys or key in written or not content:
                continue
            out = folder / f"{make_safe_name(f'{kind}-{name}')}.flac"
            try:
                seconds = prepare.write_cell(content["bytes"], f"{path}: {kind} {name}", out)
                written[key] = out, seconds
            except InputError as error:
                written[key] = out, error
    return written


# ---- splits


def prepare_slue_sqa5(o: SlueSqa5) -> dict[str, Any]:
    """Prepare as much of SLUE-SQA-5 as there is, and return the data report.

    o.source: a folder in either layout, slue-sqa5.zip, or one table. Raises InputError for a folder
    without tables of SLUE-SQA-5, and for damaged tables.
    """
    source = o.source.resolve()
    root = source
    wanted_table = None  # all tables are read
    archives = [path for path in list_files(source, *ARCHIVES) if "sqa" in path.name]
    if source.is_file():
        root = source.parent
        archives = [source] if source.suffix == ".zip" else []
        wanted_table = None if archives else source

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        roots = unpack(root, o.out, archives)
        tables = find_tables(roots, wanted_table)
        if not tables:
            raise prepare.make_source_error(source, "slue-sqa5")
        files = index_files(roots)
        return {
            split: make_records(split, paths, files, report, o) for split, paths in tables.items()
        }

    if source.is_file():  # other downloads beside it do not count
        tables = find_tables([root], wanted_table)
        paths = sorted([*archives, *chain(*tables.values())])
        recordings = [kind for _, kind, _ in index_files([root]) if kind in KINDS]
        made_from = {
            "files": {path.relative_to(root).as_posix(): path.stat().st_size for path in paths},
            "recordings": len(recordings),
        }
    else:
        made_from = describe_source(source, ".parquet", ".tsv", *ARCHIVES)
    return prepare.prepare_corpus("slue-sqa5", o, {"made_from": made_from}, read, PUBLISHED, ABOUT)


def read_questions(split: str, tables: Sequence[Path], report: PrepareReport) -> dict[str, SlueRow]:
    """Read the questions of a split that have answers, by id."""
    rows: dict[str, SlueRow] = {}
    documents: set[str] = set()
    for table in tables:
        for row in read_rows(table):
            report.count(split, "questions")
            if isinstance(row, int):
                report.set_aside(split, "questions", f"{table.name}:{row}", BROKEN)
            elif not row.answer_spans:
                report.set_aside(split, "questions", row.question_id, BLIND)
            else:
                if row.document_id in documents:
                    # every row repeats the words of its document: one copy is enough
                    row = replace(row, word2time=None)
                documents.add(row.document_id)
                rows[report.make_unique_id(split, row.question_id, rows)] = row
    return rows


def make_records(
    split: str,
    tables: Sequence[Path],
    files: Mapping[Place, Path],
    report: PrepareReport,
    o: SlueSqa5,
) -> SplitRecords:
    """Make the records of a split. If at least one question and its document have usable
    recordings, the records have audio, and items without a recording are set aside (or spoken, with
    --speak). Otherwise the whole split is text only."""
    rows = read_questions(split, tables, report)
    # the first row about a document has its words
    documents, rows = report.slice_rows(split, rows, lambda row: row.document_id)

    # for every row the keys of its question and its document
    pairs = [(("question", r.question_id), ("document", r.document_id)) for r in rows.values()]
    recordings = read_recordings(split, tables, set(chain(*pairs)), files, o)
    usable = {key for key, (_, seconds) in recordings.items() if isinstance(seconds, float)}
    if not any(usable.issuperset(pair) for pair in pairs):
        recordings = {}
        if rows:
            report.remark(split, *prepare.NO_RECORDINGS, number=len(rows))
    # an item needs no recording with --speak, and in a split that is text only
    text_will_do = o.speak or not recordings

    passages: dict[str, Passage] = {}
    for name, row in documents.items():
        text = row.normalized_document_text.strip()
        recording = recordings.get(("document", name))
        audio = prepare.choose_audio(recording, text, prepare.NO_TEXT, text_will_do, o.out)
        if isinstance(audio, dict):  # it says why the passage is set aside
            report.set_aside(split, "passages", name, **audio)
            continue
        path, seconds = audio
        alignment = find_file(files, split, "word2time", name)
        passages[name] = Passage(
            id=name,
            audio=path,
            seconds=seconds,
            text=text,
            speaker=row.document_speaker_id,
            words=_list_words(row, alignment, seconds),
        )
    questions: list[Question] = []
    for name, row in rows.items():
        passage = passages.get(row.document_id)
        if passage is None:
            report.set_aside(split, "questions", name, prepare.ITS_PASSAGE)
            continue
        text = row.normalized_question_text.strip()
        recording = recordings.get(("question", row.question_id))
        audio = prepare.choose_audio(recording, text, prepare.NO_QUESTION, text_will_do, o.out)
        if isinstance(audio, dict):
            report.set_aside(split, "questions", name, **audio)
            continue
        path, seconds = audio
        question = Question(
            id=name,
            passage=passage.id,
            audio=path,
            seconds=seconds,
            text=text,
            speaker=row.question_speaker_id,
            answers=_make_answers(row, passage, lambda remark: report.remark(split, *remark)),
        )
        questions.append(question)
    return SplitRecords(list(passages.values()), questions)


def _list_words(row: SlueRow, path: Path | None, seconds: float) -> tuple[Span, ...]:
    """List the words of a document that lie in its recording, from its row, or otherwise from
    `path`, the alignment beside the table. seconds: length of the recording."""
    words: tuple[Span, ...] = ()
    if row.word2time:
        words = _select_words(row.word2time)
    elif path is not None:
        words = read_words(path)
    return tuple(w._replace(end=min(w.end, seconds)) for w in words if w.start < seconds)


def _make_answers(
    row: SlueRow, passage: Passage, remark: Callable[[Remark], None]
) -> tuple[Answer, ...]:
    """Make the answers of a question, with times where the passage has audio that contains them."""
    answers: list[Answer] = []
    offsets = find_offsets(passage.text, passage.words)
    for text, start, end in row.answer_spans or ():
        text = text.strip()
        if not text:
            remark(prepare.EMPTY)
            continue
        offset = _find_answer(text, start, passage, offsets)
        time = prepare.clip_time(start, end, passage.seconds)
        if time is None and passage.audio:
            remark(OUTSIDE)
        start_second, end_second = time or (None, None)
        answers.append(Answer(text, start_second, end_second, offset))
    return tuple(dict.fromkeys(answers))


def _find_answer(
    text: str, start: Seconds, passage: Passage, offsets: Sequence[int | None]
) -> int | None:
    """Find the offset of an answer in the text of its passage: the offset of the word that begins
    at the answer's start, or otherwise of the answer's only occurrence; None where neither is
    found. offsets: for every word of the passage its offset in the text."""
    if start is not None:
        for word, offset in zip(passage.words, offsets, strict=True):
            begins_here = offset is not None and abs(word.start - start) < NEAR
            if begins_here and passage.text.startswith(text, offset):
                return offset
    return passage.text.index(text) if passage.text.count(text) == 1 else None


def find_offsets(text: str, words: Iterable[Span]) -> list[int | None]:
    """Find the offset of every word of an alignment in the text; None for a word that does not
    follow the word before it within MAX_GAP characters."""
    offsets: list[int | None] = []
    position = 0  # the end of the last word that was found
    for word in words:
        offset = text.find(word.text, position, position + MAX_GAP + len(word.text))
        if offset < 0:
            offsets.append(None)
            continue
        offsets.append(offset)
        position = offset + len(word.text)
    return offsets
