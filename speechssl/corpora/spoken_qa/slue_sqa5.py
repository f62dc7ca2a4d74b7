"""SLUE-SQA-5 (SLUE phase 2, arXiv 2212.10525): questions of five corpora and documents of Spoken Wikipedia, both read by people.

Two layouts are read, each as downloaded or unpacked: Parquet with the recordings inside (the folder sqa5 of asapp/slue-phase-2 at
Hugging Face), and slue-sqa5.zip: slue-sqa5_{fine-tune,dev,test,verified-test}.tsv beside {split}/{question,document}/*.wav and
{split}/word2time/*.txt. Answers are times in the document; the measure is frame-level F1. A split without recordings is text only;
one with some keeps what is whole. A blind test has no answers: its questions are set aside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from speechssl.artefacts import write_json
from speechssl.corpora.records import Answer, Passage, Question, Span
from speechssl.corpora.spoken_qa.archives import ARCHIVES, archives_in, unpacked
from speechssl.corpora.spoken_qa.claiming import claimed
from speechssl.corpora.spoken_qa.drafts import Draft, check_used, finish
from speechssl.corpora.spoken_qa.ledger import Done, Ledger, is_invented
from speechssl.corpora.spoken_qa.preparing import Wanted, spoken
from speechssl.corpora.spoken_qa.recordings import below, stamp
from speechssl.corpora.spoken_qa.slue_audio import Found, Key, recordings
from speechssl.corpora.spoken_qa.slue_rows import Row, find_tables, places, read_words, rows_of
from speechssl.errors import InputError

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

MUTE = (
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
    ledger: Ledger
    speak: bool
    documents: dict[str, Row] = field(default_factory=dict)
    made: dict[Key, tuple[Path, float | str]] = field(default_factory=dict)

    def remark(self, done: Done) -> None:
        self.ledger.remark(self.name, *done)

    def aside(self, kind: Any, name: str, reason: str, why: Any = None) -> None:
        self.ledger.set_aside(self.name, kind, name, reason, **({"why": why} if isinstance(why, str) else {}))

    def seconds(self, kind: str, name: str) -> float | str | None:
        """Of a recording, why it cannot be used, or None where there is none."""
        return self.made[kind, name][1] if (kind, name) in self.made else None

    @property
    def audible(self) -> bool:
        """Whether any question can be asked aloud."""
        heard = (isinstance(self.seconds("question", r.recording), float) and r.document for r in self.rows)
        return any(d and isinstance(self.seconds("document", d), float) for d in heard)


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
    with claimed(out, "slue-sqa5", source, made_from=made_from, **wanted.settings) as report:
        if report is not None:
            return report
        roots = [root] if only else unpacked(root if root.is_dir() else root.parent, out, packed)
        tables = find_tables(roots, only)
        if not tables:
            raise InputError(f"{source} holds no table of SLUE-SQA-5, nor do its archives; {LAYOUT}")
        return _prepared(roots, tables, out, wanted, Ledger("slue-sqa5", PUBLISHED, wanted.passages, is_invented(source)))


def _prepared(
    roots: Sequence[Path], tables: Mapping[str, Sequence[Path]], out: Path, options: Wanted, ledger: Ledger
) -> dict[str, Any]:
    found = Found(roots)
    splits = [_read(name, paths, ledger, options.speak) for name, paths in tables.items()]
    drafts: dict[str, Draft] = {}
    for split in splits:
        wanted = [("document", d) for d in split.documents] + [("question", r.recording) for r in split.rows]
        split.made = recordings(split.name, tables[split.name], dict.fromkeys(wanted), found, out, options.workers)
        drafts[split.name] = _draft(split, found, out)
    check_used(drafts, ledger, roots[0])
    return finish(out, spoken(out, drafts, ledger, options), ledger, ABOUT)


def _read(name: str, paths: Sequence[Path], ledger: Ledger, speak: bool) -> Split:
    split, rows = Split(name, [], ledger, speak), dict[str, Row]()
    for path in paths:
        for row in rows_of(path):
            ledger.count(name, "questions")
            if isinstance(row, int):
                split.aside("questions", f"{path.name}:{row}", BROKEN)
            else:
                _take(row, rows, split)
    split.rows = list(rows.values())
    ledger.count(name, "passages", len(split.documents))
    wanted = ledger.slice(name, split.documents, Counter(row.document for row in split.rows))
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


def _draft(split: Split, found: Found, out: Path) -> Draft:
    audible = split.audible
    if not audible and split.rows:
        split.ledger.remark(split.name, *MUTE, number=len(split.rows))
        write_json(out / split.name / "released_times.json", {row.id: row.spans for row in split.rows})
    passages = {name: p for name, row in split.documents.items() if (p := _passage(row, split, audible, found, out)) is not None}
    questions = (_question(row, split, audible, passages.get(row.document), out) for row in split.rows)
    return Draft(list(passages.values()), [question for question in questions if question is not None])


def _silence(split: Split, kind: Any, name: str, text: str, audible: bool) -> tuple[str, str | None]:
    """Why an item cannot be kept, "" where it can, and more about that."""
    seconds = split.seconds("document" if kind == "passages" else "question", name)
    if audible and not split.speak:
        return (UNUSABLE, seconds) if isinstance(seconds, str) else ("" if isinstance(seconds, float) else NOT_FOUND, None)
    if (audible and isinstance(seconds, float)) or text:
        return "", None
    return NO_TEXT if kind == "passages" else NO_QUESTION, None


def _passage(row: Row, split: Split, audible: bool, found: Found, out: Path) -> Passage | None:
    reason, why = _silence(split, "passages", row.document, row.text, audible)
    if reason:
        split.aside("passages", row.document, reason, why)
        return None
    seconds = split.seconds("document", row.document) if audible else None
    if not isinstance(seconds, float):
        return Passage(row.document, "", 0.0, row.text, row.reader, "en")
    path = split.made["document", row.document][0]
    words = _words(row, split, found, seconds)
    return Passage(row.document, below(path, out), seconds, row.text, row.reader, "en", words)


def _words(row: Row, split: Split, found: Found, seconds: float) -> tuple[Span, ...]:
    words = row.words
    if words is None and (path := found.get("word2time", row.document, split.name)) is not None:
        words = read_words(path)
    if not words:
        split.remark(UNALIGNED)
    return tuple(replace(w, end=min(w.end, seconds)) for w in words or () if w.start < seconds)


def _question(row: Row, split: Split, audible: bool, passage: Passage | None, out: Path) -> Question | None:
    name = row.recording
    reason, why = _silence(split, "questions", name, row.question, audible)
    if passage is None:
        reason, why = ITS_PASSAGE, None
    if reason or passage is None:
        split.aside("questions", row.id, reason, why)
        return None
    answers = _answers(row, passage, split.remark)
    seconds = split.seconds("question", name) if audible else None
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
