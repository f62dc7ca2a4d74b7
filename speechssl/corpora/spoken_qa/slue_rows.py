"""One question of SLUE-SQA-5 as either release has it: a row of Parquet with recordings inside, or of a TSV with files beside it.

Alignments (`word2time`) have an entry a token: word, normalised word, start, end; a punctuation mark has a word alone, or times of
-1. Answers are [normalised text, start, end] in seconds of the document. Of the texts the normalised ones are taken, with which
answers and words agree.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speechssl.corpora.records import Span
from speechssl.corpora.spoken_qa.recordings import files_below
from speechssl.corpora.spoken_qa.tables import columns_of, list_of, number_of, read_parquet, read_tsv, text_of
from speechssl.errors import InputError

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
    """Words that are said; a word may have several in its normalised form."""
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
