"""A corpus of your own is made from tables: CSV, TSV, JSONL or Parquet files, a folder that
`datasets` saves to disk, or rows in memory.

  SOURCE/[SPLIT/]passages.csv      id, audio; text, transcript, speaker, language, words
  SOURCE/[SPLIT/]questions.csv     id, passage, audio or text (or question); answers, or answer,
                                   start, end, char_start

A passage needs an audio, a question the id of its passage, and a recording or a text. `audio` is a
path, relative to the table; a row in memory or of Parquet may hold the recording itself, as
`datasets` has it: {"array", "sampling_rate"} or {"bytes", "path"}. `answers` is a list of {"text",
"start", "end", "char_start"} or of texts, SQuAD's {"text": [...], "answer_start": [...]}, or a
text; in a CSV as JSON. Without SPLIT in between, the split is `test`. Recordings that are files
stay where they are.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from speechssl.artifacts import hash_files, parse_json, stage
from speechssl.audio import SAMPLE_RATE, as_recording, length, write_flac
from speechssl.data.files import check_columns, decode_cell, read_csv, read_parquet, safe_name
from speechssl.data.options import TableCorpus
from speechssl.data.prepare import (
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
    Span,
    check_inside,
    check_question,
    make_span,
    read_lines,
)
from speechssl.errors import InputError
from speechssl.text import language_of

# "": a folder of `datasets.Dataset.save_to_disk`
SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet", "")
TIMES = ("start", "end")
# of tables -> the columns that are read, of which each row of passages has one of the first, each
# question the first
KINDS = {
    "passages": ("audio", "text", "context", "transcript", "id", "speaker", "language", "words"),
    "questions": (
        "passage",
        "audio",
        "text",
        "question",
        "id",
        "speaker",
        "language",
        "answers",
        "answer",
        *TIMES,
        "char_start",
    ),
}
Rows = Iterable[Mapping[str, Any]]


def prepare_table(o: TableCorpus) -> dict[str, Any]:
    """Make a prepared corpus of the tables in a folder; return the data report.

    Raises InputError for a folder without tables, a table that cannot be read, and a row that is
    not a passage or a question.
    """
    source, language = o.source, language_of(o.language)
    if source.is_file():
        raise InputError(
            f"{source} is a file; give the folder that holds passages.csv and questions.csv"
        )
    tables = {split: _find_tables(folder) for split, folder in _list_splits(source)}
    tables = {split: by_kind for split, by_kind in tables.items() if by_kind}
    if not tables:
        raise InputError(
            f"{source} has no table called passages; put passages.csv and "
            "questions.csv there, or into split folders"
        )
    files: list[Path] = []
    for by_kind in tables.values():
        for table in by_kind.values():
            files += _files(table)
    files.sort()
    made_from = {
        "corpus": source.resolve().name,
        "source": str(source.resolve()),
        "files": [str(file.relative_to(source)) for file in files],
        "hash": hash_files(files),
        "language": language,
    }

    def make() -> dict[str, Any]:
        report = PrepareReport(source.resolve().name)
        records = {}
        for split, by_kind in tables.items():
            rows = {
                kind: _read_rows(by_kind[kind], kind) if kind in by_kind else [] for kind in KINDS
            }
            places = {kind: str(by_kind.get(kind, source)) for kind in KINDS}
            records[split] = _Split(split, o.out, language, report, source).records(
                rows, places, next(iter(by_kind.values())).parent
            )
        return write_corpus(o.out, records, report, {})

    return make_once(o.out, made_from, make)


def make_corpus(
    out: Path | str, splits: Mapping[str, tuple[Rows, Rows]], language: str = "en"
) -> dict[str, Any]:
    """Make a prepared corpus of rows in memory, such as those of a `datasets.Dataset` or a list of
    dicts; return the data report.

    splits: name, such as "train" -> (rows of passages, rows of questions), with the columns that
    the module names; relative paths are relative to the folder one is in. language: of rows that do
    not say. Raises InputError for splits of another shape, a row that is not a passage or a
    question, and a folder that is not empty.
    """
    out = Path(out)
    if not isinstance(splits, Mapping) or not all(
        isinstance(pair, tuple | list) and len(pair) == 2 for pair in splits.values()
    ):
        raise InputError(
            "splits are a dict of pairs, rows of passages and rows of questions: "
            '{"test": (passages, questions)}'
        )
    with stage(out, {"what": "corpus of rows in memory"}) as step:
        if step.done:
            raise InputError(f"{out} holds a corpus already; choose another folder or delete it")
        report = PrepareReport(out.resolve().name)
        records = {}
        for split, (passages, questions) in splits.items():
            rows = {
                "passages": list(_undecoded(passages)),
                "questions": list(_undecoded(questions)),
            }
            places = {kind: f"{kind} of {split}" for kind in KINDS}
            records[split] = _Split(split, out, language, report).records(rows, places, Path.cwd())
        return write_corpus(out, records, report, {"source": "rows in memory"})


# ---- tables


def _list_splits(source: Path) -> list[tuple[str, Path]]:
    """List names and folders that may hold tables: the folder itself, as `test`, where it holds
    some."""
    if _find_tables(source):
        return [("test", source)]
    folders = [path for path in sorted(source.glob("*/")) if not path.name.startswith(".")]
    return [(path.name, path) for path in folders]


def _find_tables(folder: Path) -> dict[str, Path]:
    """Find the tables of a split, by their kind; none where there are no passages. Raises
    InputError where there are two of a kind."""
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


def _files(table: Path) -> list[Path]:
    return sorted(table.glob("*.arrow")) if table.is_dir() else [table]


def read_table(table: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table. Raises InputError for one that cannot be read."""
    if table.suffix == ".jsonl":
        yield from (row for _, row in read_lines(table))
    elif table.suffix == ".parquet":
        yield from read_parquet(table)
    elif table.is_dir():
        import pyarrow

        for path in _files(table):
            try:
                with pyarrow.memory_map(str(path)) as file:
                    for batch in pyarrow.ipc.open_stream(file):
                        check_columns(batch.schema.names, path)
                        yield from batch.to_pylist()
            except (pyarrow.ArrowException, OSError) as error:
                raise InputError(
                    f"cannot read {path} ({error}); save the data set again with `save_to_disk`"
                ) from error
    else:
        yield from read_csv(table, "\t" if table.suffix == ".tsv" else ",")


def _read_rows(table: Path, kind: str) -> list[dict[str, Any]]:
    """Read the rows of passages or of questions; stderr names columns that are not read. Raises
    InputError where there can be none."""
    rows = list(read_table(table))
    if not rows:
        raise InputError(f"{table} has no rows; fill it, or remove it")
    columns: dict[str, None] = {}  # in order
    for row in rows:
        columns |= dict.fromkeys(row)
    needed = KINDS[kind][: 4 if kind == "passages" else 1]
    if not any(name in columns for name in needed):
        has = f"{table} has no column {' or '.join(needed)}, but {', '.join(columns)}"
        raise InputError(
            f"{has}; columns have these names, in small letters, with commas in "
            "between (in a .tsv: tabs)"
        )
    unread = [name for name in columns if name and name not in KINDS[kind]]
    if unread:
        print(f"{table}: no column that is read is called {', '.join(unread)}", file=sys.stderr)
    return rows


# ---- rows


class _Split:
    """Makes the records of one split, and the recordings that are no files. root: the folder that
    relative paths may not lead out of."""

    def __init__(
        self, split: str, out: Path, language: str, report: PrepareReport, root: Path | None = None
    ) -> None:
        self.split, self.out = split, out
        self.language, self.report, self.root = language, report, root

    def records(
        self, rows: Mapping[str, Sequence[Mapping[str, Any]]], places: Mapping[str, str], base: Path
    ) -> SplitRecords:
        """Make the records of rows. base: folder that relative paths of audio are relative to.
        places: the names of the tables, for messages."""
        passages, aside = {}, set()
        for number, row in enumerate(rows["passages"], 1):
            place = f"{places['passages']}, row {number}"
            name = _text(row, "id") or _stem(_filled(row, "audio"), place)
            if name in passages or name in aside:
                raise InputError(f"{place}: the id {name} occurs twice; make ids unique")
            self.report.count(self.split, "passages")
            audio = self.audio(row, name, base, place)
            if audio is None:
                aside.add(name)
                self.report.set_aside(self.split, "passages", name, UNUSABLE)
                continue
            if not audio[0] and not _text(row, "text", "transcript"):
                raise InputError(
                    f"{place} has neither audio nor text; give the passage a recording"
                )
            text, words = _text(row, "text", "context"), _words(row, place)
            passages[name] = Passage(
                name,
                *audio,
                text,
                *self.voice(row, place),
                words,
                transcript=_text(row, "transcript"),
            )
        questions: dict[str, Question] = {}
        for number, row in enumerate(rows["questions"], 1):
            place = f"{places['questions']}, row {number}"
            name, passage = _text(row, "id") or f"{self.split}-{number}", _text(row, "passage")
            if name in questions:
                raise InputError(f"{place}: the id {name} occurs twice; make ids unique")
            if passage not in passages and passage not in aside:
                hint = f"such as {next(iter(passages), '')}"
                raise InputError(
                    f"{place} is about the passage {passage!r}, which the passages "
                    f"lack; give the id of one, {hint}"
                )
            self.report.count(self.split, "questions")
            answers = _answers(row, place)
            if passage in aside:
                self.report.set_aside(self.split, "questions", name, "its passage is set aside")
                continue
            audio = self.audio(row, name, base, place)
            if audio is None:
                self.report.set_aside(self.split, "questions", name, UNUSABLE)
                continue
            text = _text(row, "text", "question")
            if not audio[0] and not text:
                raise InputError(
                    f"{place} has neither audio nor text; give the question one of them"
                )
            questions[name] = Question(
                name, passage, *audio, text, *self.voice(row, place), answers=answers
            )
            check_question(questions[name], passages, place)
        return SplitRecords(list(passages.values()), list(questions.values()))

    def voice(self, row: Mapping[str, Any], place: str) -> tuple[str, str]:
        language = _text(row, "language") or self.language
        try:
            language_of(language)
        except InputError as error:
            raise InputError(f"{place}: {error}") from error
        return _text(row, "speaker"), language

    def audio(
        self, row: Mapping[str, Any], name: str, base: Path, place: str
    ) -> tuple[str, float] | None:
        """Return path and seconds; ("", 0) where the row has none, None where it cannot be used.
        Raises InputError for a missing file."""
        cell = _filled(row, "audio")
        if cell is None:
            return "", 0.0
        if isinstance(cell, str | Path):
            path = base / cell
            if self.root and not Path(cell).is_absolute():
                check_inside(self.root, str(path.relative_to(self.root)), place)
            if not path.is_file():
                raise InputError(
                    f"{place} names {path}, which does not exist; paths are relative to {base}"
                )
            path = path.resolve()
            try:
                return str(path), length(path)
            except InputError:
                return None
        try:
            if isinstance(cell, Mapping) and cell.get("bytes"):
                samples = decode_cell(cell["bytes"], f"{place}, audio")
            elif isinstance(cell, Mapping) and cell.get("path"):
                return self.audio({"audio": cell["path"]}, name, base, place)
            else:
                # a dict, or the decoder of newer versions of `datasets`, which answers to the same
                # names
                samples = as_recording(cell["array"], int(cell["sampling_rate"]), f"{place}, audio")
        except (TypeError, KeyError, ValueError) as error:
            raise InputError(
                f"{place} has an audio that is no path and has no array with its "
                "sampling_rate; give one"
            ) from error
        except InputError:
            return None
        path = Path(self.split) / "audio" / f"{safe_name(name)}.flac"
        write_flac(self.out / path, samples)
        return path.as_posix(), len(samples) / SAMPLE_RATE


def _undecoded(rows: Any) -> Rows:
    """Keep the recordings in rows of `datasets` as files or bytes, which are read here; it would
    need torchcodec to."""
    for name, feature in (getattr(rows, "features", None) or {}).items():
        if getattr(feature, "decode", False):
            rows = rows.cast_column(name, type(feature)(decode=False))
    return rows


# written where there is no number; as texts they are words
NO_NUMBER = ("none", "null", "na", "n/a", "#n/a", "nat", "-", "–", "?")
NAN = ("nan", "<na>")


def _filled(row: Mapping[str, Any], *names: str) -> Any:
    """Return the first of the cells that is not empty; None where all are. NaN, which pandas has in
    the place of an empty cell, is one."""
    for value in (row.get(name) for name in names):
        if isinstance(value, str):
            word = value.strip().casefold()
            if not word or (word in NAN and "text" not in names and "answer" not in names):
                continue
        if value is not None and not (isinstance(value, float) and math.isnan(value)):
            return value
    return None


def _text(row: Mapping[str, Any], *names: str) -> str:
    """Read a cell as text. A whole number has no point: pandas makes 5.0 of 5 where a column has
    empty cells."""
    value = _filled(row, *names)
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _number(row: Mapping[str, Any], *names: str) -> float | None:
    """Read a cell as a number, None where it is empty. Raises ValueError or TypeError for a cell
    that is none, or has no end."""
    value = _filled(row, *names)
    if value is None or (isinstance(value, str) and value.strip().casefold() in NO_NUMBER):
        return None
    number = float(value)
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(f"{names[0]} is {value!r}")
    return number


def _stem(audio: Any, place: str) -> str:
    path = audio.get("path") if isinstance(audio, Mapping) else audio
    if not isinstance(path, str | Path) or not str(path):
        raise InputError(f"{place} has no id and no audio file to be called after; give it an id")
    return Path(path).stem


def _json(value: Any, name: str, place: str) -> Any:
    """Parse a cell of a CSV that begins as JSON does; return others as they are."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        return parse_json(value)
    except ValueError as error:
        raise InputError(f"{place}: {name} is not whole JSON ({error}); correct it") from error


def _words(row: Mapping[str, Any], place: str) -> tuple[Span, ...]:
    try:
        return tuple(
            make_span(*entry) for entry in _json(_filled(row, "words") or (), "words", place)
        )
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{place}: words are not [text, start, end] in seconds; correct them"
        ) from error


def _answers(row: Mapping[str, Any], place: str) -> tuple[Answer, ...]:
    entries = _json(_filled(row, "answers"), "answers", place)
    if entries is None:
        entries = [{name: row.get(name) for name in ("answer", *TIMES, "char_start")}]
    if isinstance(entries, str | int | float):
        entries = [{"text": entries}]
    if isinstance(entries, Mapping):
        columns = {name: list(values) for name, values in entries.items()}
        cells = zip(*columns.values(), strict=True)
        entries = [dict(zip(columns, values, strict=True)) for values in cells]
    answers = []
    try:
        for entry in entries:
            answer = {"text": entry} if isinstance(entry, str | int | float) else entry
            start, end = (_number(answer, name) for name in TIMES)
            offset = _number(answer, "char_start", "answer_start")
            text = _text(answer, "text", "answer")
            if text or start is not None or end is not None:
                char_start = None if offset is None else int(offset)
                answers.append(Answer(text, start, end, char_start))
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{place}: its answers are neither a text nor text, start and end "
            f"({error}); correct them"
        ) from error
    for a in answers:
        if a.char_start is not None and a.char_start < 0:
            raise InputError(
                f"{place}: an answer has the char_start {a.char_start}; leave it "
                "out where it is not known"
            )
        if (a.start is None) != (a.end is None):
            raise InputError(
                f"{place}: an answer has only one of start and end; give both, or neither"
            )
    return tuple(answers)
