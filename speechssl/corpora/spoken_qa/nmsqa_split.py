"""A split of NMSQA while it is put together: its questions, each with its passage, and what there is to be heard of these."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from speechssl.artefacts import hash_bytes
from speechssl.corpora.records import Span
from speechssl.corpora.spoken_qa.ledger import Ledger
from speechssl.corpora.spoken_qa.nmsqa_csv import About, csv_rows, read_about
from speechssl.corpora.spoken_qa.nmsqa_files import Files, listed
from speechssl.corpora.spoken_qa.nmsqa_rows import SEGMENT, Row, by_passage, parquet_rows, segment_of
from speechssl.corpora.spoken_qa.nmsqa_times import Layout
from speechssl.corpora.spoken_qa.recordings import Recordings, find_recordings

RENAMED = ("questions with the id of another question", "kept, a number added to the id")
TWICE = "it repeats another row"
TOLD = (
    "questions whose table has no text of the passage",
    "their passage's text is that of its sentences, as far as their rows have it",
)
NAMELESS = "it has neither an id nor a recording"


@dataclass
class Spoken:
    """A passage while it is put together."""

    id: str
    text: str
    speaker: str
    names: tuple[str, ...] = ()  # recordings of its sentences, in order
    whole: Path | None = None  # a recording of all of it, taken where its sentences are not there
    holes: tuple[int, ...] = ()  # sentences that the release does not have
    lost: tuple[str, ...] = ()  # recordings that it has and the source does not

    @property
    def audible(self) -> bool:
        return bool((self.names and not self.lost) or self.whole)


@dataclass
class Split:
    """One split while it is put together."""

    name: str
    files: Files
    recordings: Recordings
    about: Mapping[str, About]
    rows: list[Row]
    passages: dict[str, Spoken]
    of_row: dict[str, str]  # id of a question -> of its passage
    layouts: dict[str, Layout] = field(default_factory=dict)
    words: dict[str, tuple[Span, ...]] = field(default_factory=dict)

    def question_recording(self, row: Row) -> str:
        """What the recording of a question is called, "" where there is none."""
        known = row.recording or str(self.files.questions.get(row.id, ""))
        names = (known, f"{known}-0", f"{known}_0", f"{known}-1") if known else ()
        return next((name for name in names if name in self.recordings), "")

    def keep(self, passages: Collection[str]) -> None:
        """Go on with these passages alone, and their questions."""
        self.passages = {name: self.passages[name] for name in passages}
        self.rows = [row for row in self.rows if self.of_row[row.id] in self.passages]

    @property
    def asked_for(self) -> list[str]:
        """The names of all recordings that are wanted, as far as they are there."""
        return [n for p in self.passages.values() for n in p.names] + [self.question_recording(row) for row in self.rows]


def read_split(name: str, files: Files, roots: Sequence[Path], ledger: Ledger) -> Split:
    """The rows that can be used, each with its passage. Raises InputError, before anything is counted, for damaged tables."""
    about = read_about(files.about)
    rows: dict[str, Row] = {}
    for row in list(_rows(files, about)):  # a table that cannot be read leaves nothing counted
        ledger.count(name, "questions")
        row = replace(row, id=row.id or row.recording)
        if row.id in rows and row != rows[row.id]:
            row = replace(row, id=next(i for n in count(2) if (i := f"{row.id}#{n}") not in rows))
            ledger.remark(name, *RENAMED)
        if reason := NAMELESS if not row.id else TWICE if row.id in rows else "":
            ledger.set_aside(name, "questions", row.id, reason, question=row.question)
        else:
            rows[row.id] = row
    recordings = find_recordings(roots, name)
    split = Split(name, files, recordings, about, _with_contexts(rows.values(), name, ledger), {}, {})
    _find_passages(split)
    ledger.count(name, "passages", len(split.passages))
    return split


def _rows(files: Files, about: Mapping[str, About]) -> Iterator[Row]:
    if not files.parquet:
        yield from csv_rows(files, about)
    for path in files.parquet:
        yield from parquet_rows(path)


def _with_contexts(rows: Collection[Row], name: str, ledger: Ledger) -> list[Row]:
    """The rows; one without a context gets the texts of its passage's sentences, in their order."""
    said: dict[str, dict[tuple[int, str], str]] = {}
    for row in rows:
        for segment, text in row.segments.items():
            number = SEGMENT.fullmatch(segment)
            said.setdefault(row.passage, {})[int(number[2]) if number else -1, segment] = text
    texts = {passage: " ".join(text for _, text in sorted(found.items())) for passage, found in said.items()}
    bare = sum(not row.context.strip() for row in rows)
    if bare:
        ledger.remark(name, *TOLD, number=bare)
    return [row if row.context.strip() else replace(row, context=texts.get(row.passage, "")) for row in rows]


def _find_passages(split: Split) -> None:
    """Passages by their recording, or else by the recording of the question, or else by their text."""
    segments = by_passage(split.recordings)
    by_text = {row.context: row.passage for row in reversed(split.rows) if row.passage and row.context.strip()}
    for row in split.rows:
        question = row.recording or str(split.files.questions.get(row.id, ""))
        about = _asked_about(question) if question.startswith("question-") or f"{question[:-1]}c" in segments else ""
        name = row.passage or by_text.get(row.context) or about or f"text-{hash_bytes(row.context.encode())}"
        split.of_row[row.id] = name
        if name not in split.passages:
            split.passages[name] = _spoken(name, row, split, segments.get(name, {}))


def _asked_about(question: str) -> str:
    """The passage of a question, both as their recordings are called."""
    return f"{question[:-1]}c" if question.endswith("-q") else f"context-{question[9:].rpartition('_')[0]}"


def _spoken(name: str, row: Row, split: Split, found: Mapping[int, str]) -> Spoken:
    """found: number -> recording of a sentence, of those that are in the source."""
    numbers = listed(split.files, name)
    expected = sorted(found) if numbers is None else numbers
    holes = tuple(sorted(set(range(max(expected, default=-1) + 1)) - set(expected)))
    lost = tuple(segment_of(name, n) for n in expected if n not in found)
    names = tuple(found[n] for n in expected if n in found)
    whole = split.recordings[name] if name in split.recordings and (lost or not names) else None
    return Spoken(name, row.context, row.speaker, names, whole, holes, lost)
