"""SLUE-SQA-5 (SLUE phase 2, arXiv 2212.10525): questions of five corpora and documents of Spoken Wikipedia, both read by people.

Two layouts are read, each as downloaded or unpacked: Parquet with the recordings inside (the folder sqa5 of asapp/slue-phase-2 at
Hugging Face), and slue-sqa5.zip: slue-sqa5_{fine-tune,dev,test,verified-test}.tsv beside {split}/{question,document}/*.wav and
{split}/word2time/*.txt. Answers are times in the document; the measure is frame-level F1. A split without recordings is text only;
one with some keeps what is whole. A blind test has no answers: its questions are set aside.

Alignments (`word2time`) have an entry a token: word, normalised word, start, end; a punctuation mark has a word alone, or times of
-1. Answers are [normalised text, start, end] in seconds of the document. Of the texts the normalised ones are taken, with which
answers and words agree.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, duration, read_audio, write_flac
from speechssl.data.files import (
    ARCHIVES,
    archives_in,
    below,
    columns_of,
    files_below,
    list_of,
    number_of,
    read_parquet,
    read_tsv,
    safe_name,
    stamp,
    text_of,
    unpacked,
)
from speechssl.data.join import measure_job
from speechssl.data.prepare import (
    Done,
    PrepareReport,
    SplitRecords,
    Wanted,
    check_used,
    in_parallel,
    is_invented,
    output_folder,
    synthesise_missing,
    write_corpus,
)
from speechssl.data.records import Answer, Passage, Question, Span
from speechssl.data.sources import SUFFIXES
from speechssl.errors import InputError
from speechssl.io import write_json

SPLITS = ("train", "dev", "test", "verified_test")
NEEDED = ("question_id", "document_id")
COLUMNS = (
    *NEEDED,
    *("question_text", "raw_question_text", "normalized_question_text", "question_speaker_id"),
    *("document_text", "raw_document_text", "normalized_document_text", "document_speaker_id"),
    *("word2time", "answer_spans"),
)
QUESTIONS = ("normalized_question_text", "raw_question_text", "question_text")
DOCUMENTS = ("normalized_document_text", "raw_document_text", "document_text")

Spoken = tuple[str, float | None, float | None]  # answer, start, end


@dataclass(frozen=True)
class Row:
    """spans: None where there is no list of answers that could be read (a blind test has none)."""

    id: str
    document: str
    question: str
    text: str
    asker: str
    reader: str
    spans: tuple[Spoken, ...] | None
    recording: str  # of the question
    words: tuple[Span, ...] | None = field(default=None, compare=False)  # of the document; None where they lie beside the table


def split_of(name: str) -> str:
    """The split that a table or a folder is of by its name, "" for none."""
    name = name.lower()
    if "verified" in name:
        return "verified_test"
    known = {"train": ("fine-tune", "fine_tune", "finetune", "train"), "dev": ("dev", "validation"), "test": ("test",)}
    return next((split for split, words in known.items() if any(word in name for word in words)), "")


def find_tables(roots: Iterable[Path], only: Path | None = None) -> dict[str, list[Path]]:
    """By split. Raises InputError for a damaged Parquet file. Tables of SLUE's other tasks are passed over."""
    found: dict[str, list[Path]] = {}
    for _, path in files_below(roots, ".parquet", ".tsv"):
        split = split_of(path.parent.name if path.stem.isdecimal() else path.stem)
        if split and (only is None or path == only) and set(NEEDED) <= set(_columns(path)):
            found.setdefault(split, []).append(path)
    for split, paths in found.items():
        paths[:] = [path for path in paths if "blind" not in path.stem] or paths
        if len(paths) > 1 and not all("-of-" in path.name or path.stem.isdecimal() for path in paths):
            raise InputError(f"{paths[0]} and {paths[1]} are both tables of {split}; leave one of them in the folder")
    return {split: found[split] for split in SPLITS if split in found}


def _columns(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        return columns_of(path)
    try:
        with path.open(encoding="utf-8-sig") as file:
            return [name.strip().strip('"') for name in file.readline().split("\t")]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path} ({error}); download it again") from error


def rows_of(path: Path) -> Iterator[Row | int]:
    """The rows; of a TSV also the numbers of the lines that cannot be read. Raises InputError for damage."""
    if path.suffix == ".parquet":
        yield from (_row(cells) for cells in read_parquet(path, COLUMNS, batch=256))
        return
    rows, bad = read_tsv(path)
    yield from (_row(cells) for cells in rows)
    yield from bad


def _row(cells: Mapping[str, Any]) -> Row:
    return Row(
        text_of(cells["question_id"]),
        text_of(cells["document_id"]),
        next((text for name in QUESTIONS if (text := text_of(cells.get(name)).strip())), ""),
        next((text for name in DOCUMENTS if (text := text_of(cells.get(name)).strip())), ""),
        text_of(cells.get("question_speaker_id")),
        text_of(cells.get("document_speaker_id")),
        _spans(cells.get("answer_spans")),
        text_of(cells["question_id"]),
        _words(cells["word2time"]) if cells.get("word2time") is not None else None,
    )


def _spans(value: Any) -> tuple[Spoken, ...] | None:
    """From a record of lists, a list of records, or a list of lists as text."""
    if isinstance(value, str):
        value = _parsed(value)
    if isinstance(value, dict):
        value = list(zip(*(list_of(value.get(name)) for name in ("answer", "start_second", "end_second")), strict=False))
    if not isinstance(value, (list, tuple)):
        return None
    found = [tuple(v.get(n) for n in ("answer", "start_second", "end_second")) if isinstance(v, dict) else tuple(v) for v in value]
    if not all(len(v) == 3 and isinstance(v[0], str) for v in found):
        return None
    return tuple((text_of(v[0]).strip(), number_of(v[1]), number_of(v[2])) for v in found)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None


def _words(value: Any) -> tuple[Span, ...]:
    names = ("word", "normalized_word", "start_second", "end_second")
    if isinstance(value, dict):
        value = list(zip(*(list_of(value.get(name)) for name in names), strict=False))
    return tuple(_spoken_words(tuple(v.get(n) for n in names) if isinstance(v, dict) else v for v in list_of(value)))


def read_words(path: Path) -> tuple[Span, ...]:
    """A file of `word2time`. Raises InputError where it cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the alignment {path} ({error}); download it again") from error
    return tuple(_spoken_words(tuple(line.rstrip("\r").split("\t")) for line in lines))


def _spoken_words(entries: Iterable[Any]) -> Iterator[Span]:
    """Words with times; a word may have several in its normalised form."""
    for entry in entries:
        if len(entry) != 4:
            continue
        word, start, end = text_of(entry[1]).strip() or text_of(entry[0]).strip(), number_of(entry[2]), number_of(entry[3])
        if word and start is not None and end is not None and 0 <= start < end:
            yield Span(word, start, end)


def places(text: str, words: Iterable[Span]) -> list[int | None]:
    """Where every word stands in the text, None for one that does not follow within 40 characters."""
    found: list[int | None] = []
    at = 0
    for word in words:
        place = text.find(word.text, at, at + 40 + len(word.text))
        found.append(place if place >= 0 else None)
        at = place + len(word.text) if place >= 0 else at
    return found


KINDS = ("question", "document")
Key = tuple[str, str]  # question, document or word2time; id
Made = tuple[str, float | str]  # path, seconds or why it cannot be used


class Found:
    """Files by what they are of, recordings and alignments: those of the split itself first (verified_test is part of test)."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.files: dict[Key, dict[str, Path]] = {}
        for _, path in files_below(roots, *SUFFIXES, ".txt"):
            kind = path.parent.name
            if kind in (*KINDS, "word2time"):
                self.files.setdefault((kind, path.stem), {}).setdefault(split_of(path.parent.parent.name), path)

    def get(self, kind: str, name: str, split: str) -> Path | None:
        """The file of a split, or of the test that it is taken from, or of no split at all."""
        there = self.files.get((kind, name), {})
        order = (split, "test", "") if split == "verified_test" else (split, "")
        return next((there[s] for s in order if s in there), None)


def recordings(
    split: str, tables: Sequence[Path], wanted: Iterable[Key], found: Found, out: Path, workers: int
) -> dict[Key, tuple[Path, float | str]]:
    """Path and seconds (or why it cannot be used) of what is there. Recordings in Parquet are written as FLAC into `out`."""
    made: dict[Key, tuple[Path, float | str]] = {}
    wanted = set(wanted)
    groups = [(path, group) for path in tables if path.suffix == ".parquet" for group in _groups(path)]
    jobs = [(*group, out / split / "audio", some) for group in groups if (some := wanted & _keys(*group))]
    for done in tqdm(in_parallel(write_job, jobs, workers), f"writing {split}", len(jobs), unit="group", disable=not jobs):
        made |= done
    files = {key: path for key in wanted if key not in made and (path := found.get(*key, split)) is not None}
    to_read = [("\n".join(key), path) for key, path in files.items()]
    shown = tqdm(in_parallel(measure_job, to_read, workers), f"reading {split}", len(to_read), unit="file", disable=not to_read)
    for name, seconds in shown:
        kind, _, rest = name.partition("\n")
        made[kind, rest] = files[kind, rest], seconds
    return made


def _groups(path: Path) -> range:
    from pyarrow import parquet

    if not {f"{kind}_audio" for kind in KINDS} & set(columns_of(path)):
        return range(0)
    with parquet.ParquetFile(path, pre_buffer=False) as file:
        return range(file.num_row_groups)


def _keys(path: Path, group: int) -> set[Key]:
    """What a group of rows is about."""
    return {(kind, text_of(cells.get(f"{kind}_id"))) for cells in _batches(path, group, "id") for kind in KINDS}


def write_job(job: tuple[Path, int, Path, set[Key]]) -> dict[Key, tuple[Path, float | str]]:
    """A job for `in_parallel`: the recordings of a group of rows, those that are wanted, as FLAC, 16 kHz; those that are there
    already are left alone.
    """
    path, group, folder, wanted = job
    made: dict[Key, tuple[Path, float | str]] = {}
    for cells in _batches(path, group, "id", "audio"):
        for kind in KINDS:
            key, content = (kind, text_of(cells.get(f"{kind}_id"))), cells.get(f"{kind}_audio")
            if key in wanted and key not in made and isinstance(content, Mapping) and content.get("bytes"):
                made[key] = _written(content["bytes"], folder / f"{safe_name(f'{kind}-{key[1]}')}.flac", f"{path}: {kind} {key[1]}")
    return made


def _batches(path: Path, group: int, *what: str) -> Iterator[dict[str, Any]]:
    """Rows with these columns of documents and questions."""
    import pyarrow
    from pyarrow import parquet

    columns = [name for name in columns_of(path) if name in {f"{kind}_{w}" for kind in KINDS for w in what}]
    try:
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(16, row_groups=[group], columns=columns, use_threads=False):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is damaged in row group {group}; download it again") from error


def _written(content: bytes, out: Path, where: str) -> tuple[Path, float | str]:
    if out.is_file():
        return out, duration(out)
    with TemporaryDirectory() as folder:
        raw = Path(folder) / "recording"
        raw.write_bytes(content)
        try:
            samples = read_audio(raw)
        except InputError as error:
            return out, str(error).replace(str(raw), where)
    write_flac(out, samples)
    return out, len(samples) / SAMPLE_RATE


PUBLISHED = {
    "train": {"questions": 46_186},
    "dev": {"questions": 1_939},
    "test": {"questions": 2_382},
    "verified_test": {"questions": 408},
}
LAYOUT = (
    "give the folder sqa5 of asapp/slue-phase-2 (Parquet), or slue-sqa5.zip or what is in it (slue-sqa5_dev.tsv and so on, beside "
    "the folders fine-tune, dev and test)"
)
ABOUT = {
    "source": "SLUE-SQA-5, huggingface.co/datasets/asapp/slue-phase-2",
    "paper": "arXiv 2212.10525",
    "licence": "CC BY-SA 4.0 (documents); those of the five corpora that the questions are from",
    "metric": "frame F1",
}
SLACK = 0.1  # seconds by which an answer may end after its document, which it then ends with
NEAR = 0.006  # seconds by which the times of an answer and of its words may differ: they are rounded to 0.01

NO_RECORDINGS = (
    "questions of a split without recordings",
    "text only unless --speak reads them; times are kept as released, in released_times.json",
)
RENAMED = ("questions with the id of another question", "kept, a number added to the id")
OUTSIDE = ("answers without a usable time in the document", "scored by their text only")
OFFSET = ("answers that are not where their words stand in the text", "kept without an offset")
EMPTY = ("empty answers", "left out")
REPEATED = ("answers that repeat another of their question", "kept once")
UNALIGNED = ("documents without an alignment (word2time)", "kept without words")
TWICE = "it repeats another row"
NAMELESS = "it has no id or no document"
BROKEN = "its line has another number of cells than the header"
BLIND = "its answers are not in the source (a blind test has none)"
NO_QUESTION = "its question is empty and there is no recording of it"
NO_TEXT = "there is neither a recording nor a text of it"
NOT_FOUND = "its recording is not in the source"
UNUSABLE = "its recording cannot be used"
ITS_PASSAGE = "its document was set aside"


@dataclass
class Split:
    """One split while it is put together. documents: id -> the first row about it."""

    name: str
    rows: list[Row]
    report: PrepareReport
    speak: bool
    documents: dict[str, Row] = field(default_factory=dict)
    made: dict[Key, tuple[Path, float | str]] = field(default_factory=dict)

    def remark(self, done: Done) -> None:
        self.report.remark(self.name, *done)

    def aside(self, kind: Any, name: str, reason: str, why: Any = None) -> None:
        self.report.set_aside(self.name, kind, name, reason, **({"why": why} if isinstance(why, str) else {}))

    def seconds(self, kind: str, name: str) -> float | str | None:
        """Of a recording, why it cannot be used, or None where there is none."""
        return self.made[kind, name][1] if (kind, name) in self.made else None

    @property
    def has_audio(self) -> bool:
        """Whether any question has a recording, and so has its document."""
        documents = (isinstance(self.seconds("question", r.recording), float) and r.document for r in self.rows)
        return any(d and isinstance(self.seconds("document", d), float) for d in documents)


def prepare_slue_sqa5(source: Path, out: Path, wanted: Wanted = Wanted()) -> dict[str, Any]:
    """Prepare what there is of SLUE-SQA-5 and return the data report.

    source: a folder in either layout, slue-sqa5.zip, or one table. Raises InputError, one sentence, for a folder in which nothing
    is known, and for damaged tables.
    """
    source, out = Path(source).resolve(), Path(out)
    root, only = (source.parent, source) if source.is_file() and source.suffix != ".zip" else (source, None)
    if not source.exists():
        raise InputError(f"{source} does not exist; {LAYOUT}")
    packed = [source] if source.suffix == ".zip" else [path for path in archives_in(source) if "sqa" in path.name]
    if not (root.is_dir() and find_tables([root], only)) and (only or not packed):
        raise InputError(f"{source} holds no table of SLUE-SQA-5; {LAYOUT}")
    made_from = stamp(root, ".parquet", ".tsv", *ARCHIVES) if root.is_dir() else {"bytes": root.stat().st_size}
    with output_folder(out, "slue-sqa5", source, made_from=made_from, **wanted.settings) as finished:
        if finished is not None:
            return finished
        roots = [root] if only else unpacked(root if root.is_dir() else root.parent, out, packed)
        tables = find_tables(roots, only)
        if not tables:
            raise InputError(f"{source} holds no table of SLUE-SQA-5, nor do its archives; {LAYOUT}")
        return _prepared(roots, tables, out, wanted, PrepareReport("slue-sqa5", PUBLISHED, wanted.passages, is_invented(source)))


def _prepared(
    roots: Sequence[Path], tables: Mapping[str, Sequence[Path]], out: Path, options: Wanted, report: PrepareReport
) -> dict[str, Any]:
    found = Found(roots)
    splits = [_read(name, paths, report, options.speak) for name, paths in tables.items()]
    by_split: dict[str, SplitRecords] = {}
    for split in splits:
        wanted = [("document", d) for d in split.documents] + [("question", r.recording) for r in split.rows]
        split.made = recordings(split.name, tables[split.name], dict.fromkeys(wanted), found, out, options.workers)
        by_split[split.name] = _draft(split, found, out)
    check_used(by_split, report, roots[0])
    return write_corpus(out, synthesise_missing(out, by_split, report, options), report, ABOUT)


def _read(name: str, paths: Sequence[Path], report: PrepareReport, speak: bool) -> Split:
    split = Split(name, [], report, speak)
    rows: dict[str, Row] = {}
    for path in paths:
        for row in rows_of(path):
            report.count(name, "questions")
            if isinstance(row, int):
                split.aside("questions", f"{path.name}:{row}", BROKEN)
            else:
                _take(row, rows, split)
    split.rows = list(rows.values())
    report.count(name, "passages", len(split.documents))
    wanted = report.slice(name, split.documents, Counter(row.document for row in split.rows))
    split.documents = {document: split.documents[document] for document in wanted}
    split.rows = [row for row in split.rows if row.document in split.documents]
    return split


def _take(row: Row, rows: dict[str, Row], split: Split) -> None:
    if row.id in rows and row != rows[row.id]:
        row = replace(row, id=next(i for n in count(2) if (i := f"{row.id}#{n}") not in rows))
        split.remark(RENAMED)
    if row.document in split.documents:
        row = replace(row, words=None)  # every row of Parquet has those of its document
    if reason := NAMELESS if not (row.id and row.document) else TWICE if row.id in rows else BLIND if not row.spans else "":
        split.aside("questions", row.id, reason)
    else:
        rows[row.id] = row
        split.documents.setdefault(row.document, row)


def _draft(split: Split, found: Found, out: Path) -> SplitRecords:
    has_audio = split.has_audio
    if not has_audio and split.rows:
        split.report.remark(split.name, *NO_RECORDINGS, number=len(split.rows))
        write_json(out / split.name / "released_times.json", {row.id: row.spans for row in split.rows})
    passages = {name: p for name, row in split.documents.items() if (p := _passage(row, split, has_audio, found, out)) is not None}
    questions = (_question(row, split, has_audio, passages.get(row.document), out) for row in split.rows)
    return SplitRecords(list(passages.values()), [question for question in questions if question is not None])


def _why_unusable(split: Split, kind: Any, name: str, text: str, has_audio: bool) -> tuple[str, str | None]:
    """Why an item cannot be kept, "" where it can, and more about that."""
    seconds = split.seconds("document" if kind == "passages" else "question", name)
    if has_audio and not split.speak:
        return (UNUSABLE, seconds) if isinstance(seconds, str) else ("" if isinstance(seconds, float) else NOT_FOUND, None)
    if (has_audio and isinstance(seconds, float)) or text:
        return "", None
    return NO_TEXT if kind == "passages" else NO_QUESTION, None


def _passage(row: Row, split: Split, has_audio: bool, found: Found, out: Path) -> Passage | None:
    reason, why = _why_unusable(split, "passages", row.document, row.text, has_audio)
    if reason:
        split.aside("passages", row.document, reason, why)
        return None
    seconds = split.seconds("document", row.document) if has_audio else None
    if not isinstance(seconds, float):
        return Passage(row.document, "", 0.0, row.text, row.reader, "en")
    path = split.made["document", row.document][0]
    words = _document_words(row, split, found, seconds)
    return Passage(row.document, below(path, out), seconds, row.text, row.reader, "en", words)


def _document_words(row: Row, split: Split, found: Found, seconds: float) -> tuple[Span, ...]:
    words = row.words
    if words is None and (path := found.get("word2time", row.document, split.name)) is not None:
        words = read_words(path)
    if not words:
        split.remark(UNALIGNED)
    return tuple(replace(w, end=min(w.end, seconds)) for w in words or () if w.start < seconds)


def _question(row: Row, split: Split, has_audio: bool, passage: Passage | None, out: Path) -> Question | None:
    name = row.recording
    reason, why = _why_unusable(split, "questions", name, row.question, has_audio)
    if passage is None:
        reason, why = ITS_PASSAGE, None
    if reason or passage is None:
        split.aside("questions", row.id, reason, why)
        return None
    answers = _answers(row, passage, split.remark)
    seconds = split.seconds("question", name) if has_audio else None
    if not isinstance(seconds, float):
        return Question(row.id, row.document, "", 0.0, row.question, row.asker, "en", answers)
    audio = below(split.made["question", name][0], out)
    return Question(row.id, row.document, audio, seconds, row.question, row.asker, "en", answers)


def _answers(row: Row, passage: Passage, remark: Callable[[Done], None]) -> tuple[Answer, ...]:
    """With their times where there is audio that has them, and offsets: where the word that begins then stands in the text."""
    answers: dict[Answer, None] = {}
    standing = places(passage.text, passage.words)
    for text, start, end in row.spans or ():
        if not text:
            remark(EMPTY)
            continue
        fits = start is not None and end is not None and 0 <= start < end <= passage.seconds + SLACK and start < passage.seconds
        at = _offset(text, start, passage, standing)
        if at is None:
            remark(OFFSET)
        if passage.audio and not fits:
            remark(OUTSIDE)
        if fits and passage.audio and end is not None:
            answer = Answer(text, start, min(end, passage.seconds), at)
        else:
            answer = Answer(text, char_start=at)
        if answer in answers:
            remark(REPEATED)
        answers[answer] = None
    return tuple(answers)


def _offset(text: str, start: float | None, passage: Passage, standing: Sequence[int | None]) -> int | None:
    """Of an answer in the text. Without an alignment: where it stands, if that is one place only."""
    for word, at in zip(passage.words, standing, strict=True):
        if start is not None and at is not None and abs(word.start - start) < NEAR and passage.text.startswith(text, at):
            return at
    places_of_it = passage.text.count(text)
    return passage.text.index(text) if places_of_it == 1 else None
