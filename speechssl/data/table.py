"""Make a corpus of your own from tables: CSV, TSV, JSONL or Parquet files, folders that `datasets`
saves to disk, or rows in memory.

  SOURCE/[SPLIT/]passages.csv      id, audio; text, transcript, speaker, language, words
  SOURCE/[SPLIT/]questions.csv     id, passage, audio or text (or question); answers, or answer,
                                   start, end, char_start

A passage needs a recording or a text, and a question also the id of its passage. `audio` is a path,
relative to the table; a row in memory or of Parquet may hold the recording itself, as in
`datasets`: {"array", "sampling_rate"} or {"bytes", "path"}. `answers` is a text, a list of texts or
of {"text", "start", "end", "char_start"}, or SQuAD's {"text": [...], "answer_start": [...]}; in a
CSV it is JSON. Without the folder SPLIT, the split is `test`. Recordings that are files stay where
they are.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.artifacts import begin_stage, hash_files, parse_json
from speechssl.audio import SAMPLE_RATE, convert_samples, measure_duration, write_flac
from speechssl.data.files import (
    decode_cell,
    detect_delimiter,
    make_safe_name,
    read_csv,
    read_parquet,
)
from speechssl.data.options import TableCorpus
from speechssl.data.prepare import (
    ITS_PASSAGE,
    KINDS,
    UNUSABLE,
    PrepareReport,
    SplitRecords,
    make_once,
    write_corpus,
)
from speechssl.data.records import (
    Answer,
    Passage,
    Question,
    Seconds,
    Span,
    check_inside,
    check_question,
    check_spans,
    read_lines,
)
from speechssl.errors import InputError
from speechssl.schema import convert
from speechssl.text import find_language

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet", "")  # "": a folder of `Dataset.save_to_disk`
# every table needs at least one of these columns
NEEDED = {"passages": ("audio", "text", "context", "transcript"), "questions": ("passage",)}
NUMBERS = ("start", "end", "char_start")  # columns that hold numbers
WORDS = ("text", "context", "transcript", "question", "answer")  # columns that hold speech as text
# Texts that stand for an empty cell; in a column of WORDS only "" does, because "nan" may be a
# word.
NOTHING = ("", "nan", "<na>")
# texts that stand for an empty cell in a column of NUMBERS
NO_NUMBER = (*NOTHING, "none", "null", "na", "n/a", "#n/a", "nat", "-", "–", "?")
Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row is a passage or a question; cells that are empty have the defaults."""

    id: str = ""
    passage: str = ""
    audio: Any = None
    text: str = ""
    context: str = ""
    question: str = ""
    transcript: str = ""
    speaker: str = ""
    language: str = ""
    words: tuple[Span, ...] = ()
    answers: Any = None
    answer: str | None = None
    start: Seconds | None = None
    end: Seconds | None = None
    char_start: int | None = None


def prepare_table(o: TableCorpus) -> dict[str, Any]:
    """Make a prepared corpus of the tables in a folder; return the data report.

    Raises InputError for a folder without tables, a table that cannot be read, and a row that is
    not a passage or a question.
    """
    source, language = o.source.resolve(), find_language(o.language)
    folders = {"test": source}
    if not _find_tables(source):
        folders = {folder.name: folder for folder in sorted(source.glob("[!.]*/"))}
    tables: dict[str, dict[str, Path]] = {}  # split -> kind -> table
    for split, folder in folders.items():
        by_kind = _find_tables(folder)
        if by_kind:
            tables[split] = by_kind
    if not tables:
        raise InputError(
            f"{source} is no folder with a table called passages; put passages.csv and "
            "questions.csv there, or into split folders"
        )
    all_tables = [table for by_kind in tables.values() for table in by_kind.values()]
    files = sorted(file for table in all_tables for file in _list_files(table))
    made_from = {
        "corpus": source.name,
        "source": str(source),
        "files": [str(file.relative_to(source)) for file in files],
        "hash": hash_files(files),
        "language": language,
    }

    def make() -> dict[str, Any]:
        report = PrepareReport(source.name)
        records = {}
        for split, by_kind in tables.items():
            rows = {kind: _read_rows(table, kind) for kind, table in by_kind.items()}
            places = {kind: str(table) for kind, table in by_kind.items()}
            base = by_kind["passages"].parent
            maker = RecordMaker(split, o.out, language, base, report, source)
            records[split] = maker.make_records(rows, places)
        return write_corpus(o.out, records, report, {})

    return make_once(o.out, made_from, make)


def make_corpus(
    out: Path | str, splits: Mapping[str, tuple[Rows, Rows]], language: str = "en"
) -> dict[str, Any]:
    """Make a prepared corpus of rows in memory, such as those of a `datasets.Dataset` or a list of
    dicts; return the data report.

    splits: name, such as "train" -> (rows of passages, rows of questions), with the columns of
    `speechssl.data.table`; relative paths are relative to the working folder. language: that of
    rows without one. Raises InputError for a row that is not a passage or a question, and an `out`
    that is not empty.
    """
    out = Path(out)
    with begin_stage(out, {"what": "corpus of rows in memory"}) as step:
        if step.done:
            raise InputError(f"{out} holds a corpus already; choose another folder or delete it")
        report = PrepareReport(out.resolve().name)
        records = {}
        for split, (passages, questions) in splits.items():
            rows = {"passages": _keep_encoded(passages), "questions": _keep_encoded(questions)}
            places = {kind: f"{kind} of {split}" for kind in KINDS}
            maker = RecordMaker(split, out, language, Path.cwd(), report)
            records[split] = maker.make_records(rows, places)
        return write_corpus(out, records, report, {"source": "rows in memory"})


# ---- tables


def _find_tables(folder: Path) -> dict[str, Path]:
    """Find the tables of a split: kind (passages or questions) -> table. Without a table of
    passages the result is empty. Raises InputError where there are two tables of a kind."""
    tables: dict[str, Path] = {}
    for kind in KINDS:
        paths = [folder / f"{kind}{suffix}" for suffix in SUFFIXES]
        existing = [path for path in paths if path.is_file() or any(path.glob("*.arrow"))]
        if len(existing) > 1:
            raise InputError(
                f"{folder} has both {existing[0].name} and {existing[1].name}; remove one of them"
            )
        if existing:
            tables[kind] = existing[0]
    return tables if "passages" in tables else {}


def _list_files(table: Path) -> list[Path]:
    """List the files of a table: one, or those of a folder of `Dataset.save_to_disk`."""
    return sorted(table.glob("*.arrow")) if table.is_dir() else [table]


def read_table(table: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table. Raises InputError for one that cannot be read."""
    if table.suffix == ".jsonl":
        yield from (row for _, row in read_lines(table))
    elif table.suffix == ".parquet":
        yield from read_parquet(table)
    elif table.is_dir():
        import pyarrow

        for path in _list_files(table):
            try:
                with pyarrow.memory_map(str(path)) as file:
                    for batch in pyarrow.ipc.open_stream(file):
                        yield from batch.to_pylist()
            except (pyarrow.ArrowException, OSError) as error:
                raise InputError(
                    f"cannot read {path} ({error}); save the data set again with `save_to_disk`"
                ) from error
    else:
        yield from read_csv(table, "\t" if table.suffix == ".tsv" else detect_delimiter(table))


def _read_rows(table: Path, kind: str) -> list[dict[str, Any]]:
    """Read the rows of passages or of questions, and say on stderr which columns are not read.
    Raises InputError where all of the NEEDED columns are missing."""
    rows = list(read_table(table))
    columns: dict[str, None] = {}  # the columns of all rows, in order
    for row in rows:
        columns |= dict.fromkeys(row)
    if not any(name in columns for name in NEEDED[kind]):
        raise InputError(
            f"{table} has no rows with a column {' or '.join(NEEDED[kind])}, but "
            f"{', '.join(columns) or 'nothing'}; columns have these names, in small letters, with "
            "commas or semicolons in between (in a .tsv: tabs)"
        )
    unread = [name for name in columns if name and name not in Row.__dataclass_fields__]
    if unread:
        print(f"{table}: no column that is read is called {', '.join(unread)}", file=sys.stderr)
    return rows


def _keep_encoded(rows: Any) -> Rows:
    """Make rows of `datasets` give their recordings as paths or bytes, which are read here;
    decoding by `datasets` would need torchcodec."""
    for name, feature in (getattr(rows, "features", None) or {}).items():
        if getattr(feature, "decode", False):
            rows = rows.cast_column(name, type(feature)(decode=False))
    return rows


# ---- rows


@dataclass(frozen=True)
class RecordMaker:
    """A record maker makes the records of one split from rows."""

    split: str
    out: Path
    language: str  # of rows that do not state theirs
    base: Path  # relative paths of audio are relative to this folder
    report: PrepareReport
    root: Path | None = None  # relative paths must not lead out of this folder

    def make_records(self, rows: Mapping[Any, Rows], places: Mapping[Any, str]) -> SplitRecords:
        """Make the records of the rows of each kind. places: kind -> name of the table, for
        messages."""
        passages: dict[str, Passage] = {}
        aside: set[str] = set()  # ids of passages that are set aside
        for number, cells in enumerate(rows["passages"], 1):
            place = f"{places['passages']}, row {number}"
            row = read_row(cells, place)
            name = row.id or _name_audio(row.audio)
            if not name or name in passages or name in aside:
                raise InputError(f"{place}: the id {name!r} is empty or not its own; give it one")
            self.report.count(self.split, "passages")
            audio = self.find_audio(row.audio, name, place)
            if isinstance(audio, InputError):
                aside.add(name)
                self.report.set_aside(self.split, "passages", name, UNUSABLE, why=str(audio))
                continue
            text = read_words(row, "context", place)
            language = self.check_row(row, audio[0] or text or row.transcript, place)
            path, seconds = audio
            passages[name] = Passage(
                id=name,
                audio=path,
                seconds=seconds,
                text=text,
                speaker=row.speaker,
                language=language,
                words=row.words,
                transcript=row.transcript,
            )
            check_spans(passages[name], place)
        questions: dict[str, Question] = {}
        for number, cells in enumerate(rows.get("questions", ()), 1):
            place = f"{places['questions']}, row {number}"
            row = read_row(cells, place)
            name = row.id or f"{self.split}-{number}"
            if name in questions:
                raise InputError(f"{place}: the id {name!r} occurs twice; make ids unique")
            self.report.count(self.split, "questions")
            answers = read_answers(row, place)
            audio = self.find_audio(row.audio, name, place)
            if row.passage in aside:
                self.report.set_aside(self.split, "questions", name, ITS_PASSAGE)
                continue
            if isinstance(audio, InputError):
                self.report.set_aside(self.split, "questions", name, UNUSABLE, why=str(audio))
                continue
            text = read_words(row, "question", place)
            language = self.check_row(row, audio[0] or text, place)
            path, seconds = audio
            questions[name] = Question(
                id=name,
                passage=row.passage,
                audio=path,
                seconds=seconds,
                text=text,
                speaker=row.speaker,
                language=language,
                answers=answers,
            )
            check_question(questions[name], passages, place)
        return SplitRecords(list(passages.values()), list(questions.values()))

    def check_row(self, row: Row, content: str, place: str) -> str:
        """Return the language of a row. Raises InputError for a language other than en and zh, and
        for a row without content."""
        if not content:
            raise InputError(f"{place} has neither audio nor text; give it one of them")
        language = row.language or self.language
        try:
            find_language(language)
        except InputError as error:
            raise InputError(f"{place}: {error}") from error
        return language

    def find_audio(self, cell: Any, name: str, place: str) -> tuple[str, float] | InputError:
        """Return the path and the seconds of the recording in a cell. A cell with bytes or samples
        holds the recording itself, which is written as a FLAC.

        Returns ("", 0) for an empty cell, and the error of a recording that cannot be used. Raises
        InputError for a missing file.
        """
        if cell is None:
            return "", 0.0
        if isinstance(cell, Mapping) and not (cell.get("bytes") or "array" in cell):
            cell = cell.get("path") or cell
        if isinstance(cell, str | Path):
            path = self.base / cell
            if self.root and not Path(cell).is_absolute():
                check_inside(self.root, str(path.relative_to(self.root)), place)
            if not path.is_file():
                raise InputError(
                    f"{place} names {path}, which does not exist; paths are relative to {self.base}"
                )
            try:
                return str(path.resolve()), measure_duration(path)
            except InputError as error:
                return error
        where = f"{place}, audio"
        try:
            if isinstance(cell, Mapping) and cell.get("bytes"):
                samples = decode_cell(cell["bytes"], where)
            else:  # a dict, or the decoder of newer versions of `datasets`
                samples = convert_samples(cell["array"], int(cell["sampling_rate"]), where)
        except InputError as error:
            return error
        except (TypeError, KeyError, ValueError) as error:  # ValueError: ragged, or a rate of 0
            raise InputError(
                f"{where} is no path and has no array with its sampling_rate; give one"
            ) from error
        audio = f"{self.split}/audio/{make_safe_name(name)}.flac"
        write_flac(self.out / audio, samples)
        return audio, len(samples) / SAMPLE_RATE


def _name_audio(cell: Any) -> str:
    """Return the name of the file in a cell without its suffix; "" where there is no file."""
    path = cell.get("path") if isinstance(cell, Mapping) else cell
    return Path(path).stem if isinstance(path, str | Path) else ""


def read_row(cells: Mapping[str, Any], place: str) -> Row:
    """Read a row. Raises InputError for a cell that its column does not allow."""
    return convert(_clean(cells, place), Row, place, "correct the row", strict=False)


def read_words(row: Row, alias: str, place: str) -> str:
    """Read what a row says: its `text`, or the column `alias`. Raises InputError where both say
    something, and not the same."""
    other = str(getattr(row, alias))
    if row.text and other and row.text != other:
        raise InputError(f"{place}: text and {alias} differ; keep one of them")
    return row.text or other


def _clean(cells: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the cells that are not empty. Texts of JSON in the columns `words` and `answers` are
    parsed, and numbers in columns of texts become texts. Raises InputError for a text that begins
    like JSON and is not JSON."""
    values: dict[str, Any] = {}
    for name, value in cells.items():
        if isinstance(value, np.generic):
            value = value.item()
        if _is_empty(name, value):
            continue
        if name in ("words", "answers") and isinstance(value, str) and value.lstrip()[0] in "[{":
            try:
                value = parse_json(value)
            except ValueError as error:
                raise InputError(f"{place}: {name} is not whole JSON ({error})") from error
        elif isinstance(value, float) and value.is_integer():
            value = int(value)  # pandas makes 5.0 of 5 in a column with empty cells
        if isinstance(value, int | float) and name not in NUMBERS:
            value = str(value)
        values[name] = value
    return values


def _is_empty(name: str, value: Any) -> bool:
    """Return whether a cell of the column `name` is empty. pandas fills empty cells with NaN."""
    if isinstance(value, float):
        return math.isnan(value)
    if not isinstance(value, str):
        return value is None
    text = value.strip().casefold()
    if name in NUMBERS:
        return text in NO_NUMBER
    return text == "" if name in WORDS else text in NOTHING


def read_answers(row: Row, place: str) -> tuple[Answer, ...]:
    """Read the answers of a question: one answer in columns of its own, or a column `answers` with
    a text, a list of texts or of records, or a record of lists (as SQuAD has at Hugging Face)."""
    entries = row.answers
    if entries is None:
        answer = {"text": row.answer, "start": row.start, "end": row.end}
        entries = [answer | {"char_start": row.char_start}]
    elif isinstance(entries, str):
        entries = [entries]
    elif isinstance(entries, Mapping):
        columns = convert(entries, dict[str, list[Any]], f"{place}, answers", "correct the row")
        if len({len(values) for values in columns.values()}) > 1:
            lengths = ", ".join(f"{len(values)} {name}" for name, values in columns.items())
            raise InputError(f"{place}, answers: there are {lengths}; write as many of each")
        entries = [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]
    answers = []
    for entry in entries:
        values = _clean(entry if isinstance(entry, Mapping) else {"answer": entry}, place)
        for name, alias in (("text", "answer"), ("char_start", "answer_start")):
            if alias in values:
                values[name] = values.pop(alias)
        if values.keys() & {"text", "start", "end"}:
            answer = {"text": ""} | values
            where = f"{place}, answers"
            answers.append(convert(answer, Answer, where, "correct the row", strict=False))
    single = [name for name in NUMBERS if getattr(row, name) is not None]
    if row.answer is not None and row.answer not in [answer.text for answer in answers]:
        single.append("answer")
    if row.answers is not None and single:
        raise InputError(
            f"{place} has both answers and {single[0]}; put it into the entries of answers"
        )
    return tuple(answers)
