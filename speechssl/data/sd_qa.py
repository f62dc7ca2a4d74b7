"""Prepare SD-QA (Faisal et al., arXiv 2109.12072): questions of TyDi QA read by people in 24
dialects of five languages; whole articles of Wikipedia as text.

Layout and irregularities: data/sd-qa/README.md. Every dialect is a split of its own, test-eng-usa,
whose questions have TyDi's ids. Answers are TyDi's minimal answers, of any annotator.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from speechssl.artifacts import parse_json, read_text
from speechssl.data.files import LINE_BREAK, add_recording, list_audio_files, list_files, read_csv
from speechssl.data.options import SdQa
from speechssl.data.prepare import (
    PrepareReport,
    SplitRecords,
    Take,
    attach_takes,
    make_source_error,
    prepare_corpus,
    stamp_files,
)
from speechssl.data.squad import Paragraph, SquadAnswer, SquadQa, Style, make_records
from speechssl.errors import InputError
from speechssl.schema import convert

LANGUAGES = {"arabic": "ar", "bengali": "bn", "english": "en", "korean": "ko", "swahili": "sw"}
# "language dialect dialect ..." (folders) -> recordings of each of these dialects in dev and in
# test, by the owners' data_link_report.txt
COUNTS = {
    "ara bhr dza egy jor mar sau tun": (708, 1_380),
    "ben dhaka": (427, 328),
    "ben ind": (427, 326),
    "eng aus gbr ind_n ind_s irl nga nzl phl usa zaf": (1_000, 1_031),
    "eng kenya": (972, 976),
    "kor korn kors": (371, 1_697),
    "swa kenya": (1_825, 2_383),
    "swa tanzania": (1_800, 2_330),
}
ABOUT = {
    "title": "SD-QA",
    "source": "github.com/ffaisal93/SD-QA, arXiv 2109.12072; TyDi QA, arXiv 2003.05002",
    "licence": "Apache-2.0",
}
# language, part, dialect, region of the recogniser: "english.dev.usa-en-US.jsonl.gz"
FILE = re.compile(r"([a-z]+)\.(dev|test)\.(\w+)-[a-z]{2}-([A-Z]{2})(?:\.txt)?\.jsonl(?:\.gz)?")
# Dialect -> region of the recogniser whose transcripts come first, where it would not be the first
# by name. There is a file for every recogniser that transcribed a dialect.
FIRST_REGIONS = {"ind": "IN", "tanzania": "TZ"}
YES_NO = "it is answered by yes or no"
PARAGRAPH = "it is answered by a paragraph without a shorter answer"
NO_ARTICLE = "its article is in no file of the release"


class Dialect(NamedTuple):
    """A dialect has its recordings of dev, or of test, in a folder."""

    folder: Path
    language: str  # english
    part: str  # dev or test

    @property
    def name(self) -> str:
        """Return the names of the folders of language and dialect: "eng-usa"."""
        return f"{self.folder.parent.name}-{self.folder.name}"

    @property
    def split(self) -> str:
        return f"{self.part}-{self.name}"

    @property
    def written(self) -> Path:
        """Return the file with the questions of the language as TyDi has them."""
        return self.folder.parent / f"{self.language}.{self.part}.txt"

    @property
    def metadata(self) -> Path:
        return self.folder / "metadata.csv"


@dataclass(frozen=True)
class ByteSpan:
    """A byte span has offsets in the UTF-8 bytes of an article; -1 stands for no answer."""

    plaintext_start_byte: int
    plaintext_end_byte: int


@dataclass(frozen=True)
class Candidate:
    """A candidate is the number of the paragraph that an annotator chose; -1 stands for none."""

    candidate_index: int


@dataclass(frozen=True)
class Annotation:
    """An annotation is the answer of one annotator."""

    minimal_answer: ByteSpan
    passage_answer: Candidate
    yes_no_answer: str = "NONE"


@dataclass(frozen=True)
class Example:
    """An example is a line of a file: a question as a recogniser understood it, and its article."""

    example_id: int
    document_plaintext: str
    document_title: str
    question_text: str
    annotations: tuple[Annotation, ...]


def prepare_sd_qa(o: SdQa) -> dict[str, Any]:
    """Write `o.out` and return its data report. Raises InputError for a source that is not of
    SD-QA, or damaged."""
    source = o.source.resolve()
    dialects = _find_files(source)
    present = {dialect.name for dialect in dialects}
    published = {}  # split of a dialect that is present -> its published count
    for names, (dev_count, test_count) in COUNTS.items():
        language, *dialect_folders = names.split()
        for folder in dialect_folders:
            name = f"{language}-{folder}"
            if name in present:
                published[f"dev-{name}"] = {"questions": dev_count}
                published[f"test-{name}"] = {"questions": test_count}
    files: dict[str, Path] = {}
    recordings = 0
    for dialect, paths in dialects.items():
        for path in (*paths, dialect.written, dialect.metadata):
            if path.is_file():
                files[f"{dialect.split}/{path.name}"] = path
        recordings += len(list_audio_files(dialect.folder)) if o.audio else 0

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        return {d.split: _read_dialect(d, paths, o, report) for d, paths in dialects.items()}

    settings = {"files": stamp_files(files), "recordings": recordings}
    return prepare_corpus("sd-qa", o, settings, read, published, ABOUT)


def _find_files(source: Path) -> dict[Dialect, list[Path]]:
    """Find the files of every dialect, one for each recogniser: that of FIRST_REGIONS first, that
    of American English last. Raises InputError where there are no files."""
    by_dialect: dict[Dialect, dict[str, Path]] = {}  # dialect -> region of the recogniser -> file
    for path in list_files(source, ".jsonl", ".jsonl.gz"):
        name = FILE.fullmatch(path.name)
        if name and name[1] in LANGUAGES:
            dialect = Dialect(path.parent, language=name[1], part=name[2])
            by_dialect.setdefault(dialect, {})[name[4]] = path
    if not by_dialect:
        raise make_source_error(source, "sd-qa")
    dialects = {}
    for dialect, by_region in by_dialect.items():
        first = FIRST_REGIONS.get(dialect.folder.name)
        regions = sorted(by_region, key=lambda region: (region != first, region == "US", region))
        dialects[dialect] = [by_region[region] for region in regions]
    return dialects


def _read_dialect(
    dialect: Dialect, paths: list[Path], o: SdQa, report: PrepareReport
) -> SplitRecords:
    """Make the records of a dialect. A question has the transcript of the first file that has the
    question."""
    split = dialect.split
    examples: dict[int, Example] = {}
    for path in paths:
        for example in _read_examples(path):
            examples.setdefault(example.example_id, example)
    written = _read_questions(dialect)
    articles: dict[tuple[str, str], list[SquadQa]] = {}  # (title, text) -> questions
    for example in examples.values():
        key = example.document_title, example.document_plaintext
        questions = articles.setdefault(key, [])
        qa = _make_qa(example, written)
        if isinstance(qa, str):
            report.count(split, "questions")
            report.set_aside(split, "questions", str(example.example_id), qa)
        else:
            questions.append(qa)
    paragraphs = [Paragraph(text, tuple(qas), id=title) for (title, text), qas in articles.items()]
    records, _ = make_records(split, paragraphs, Style(LANGUAGES[dialect.language]), report)
    sounds: dict[str, Path] = {}
    for path in list_audio_files(dialect.folder):
        add_recording(sounds, path.stem, path)
    for name in sorted(sounds.keys() - set(map(str, examples))):
        report.count(split, "questions")
        report.set_aside(split, "questions", name, NO_ARTICLE)
    takes = {name: Take((path,)) for name, path in sounds.items()} if o.audio else {}
    records = attach_takes(o, split, records, report, {}, takes)
    speakers = _read_speakers(dialect)
    with_speakers = [replace(q, speaker=speakers.get(q.id, "")) for q in records.questions]
    return SplitRecords(records.passages, with_speakers)


def _make_qa(example: Example, written: Mapping[str, str]) -> SquadQa | str:
    """Make a question with all its minimal answers; without answers, it is impossible. Return the
    reason instead where the question is answered, but by no span of the article.

    written: id -> the question as TyDi has it.
    """
    article = example.document_plaintext.encode()
    answers: dict[SquadAnswer, None] = {}  # an ordered set
    for annotation in example.annotations:
        span = annotation.minimal_answer
        first, last = span.plaintext_start_byte, span.plaintext_end_byte
        if 0 <= first < last:
            text = article[first:last].decode(errors="replace")
            offset = len(article[:first].decode(errors="replace"))  # in characters
            answers[SquadAnswer(text, offset)] = None
    if not answers:
        if any(a.yes_no_answer in ("YES", "NO") for a in example.annotations):
            return YES_NO
        if any(a.passage_answer.candidate_index >= 0 for a in example.annotations):
            return PARAGRAPH
    name = str(example.example_id)
    return SquadQa(
        question=written.get(name, ""),
        id=name,
        answers=tuple(answers),
        is_impossible=not answers,
        transcript=example.question_text,
    )


def _read_examples(path: Path) -> Iterator[Example]:
    """Yield the examples of a file. Raises InputError for a file that is damaged or has another
    schema."""
    try:
        open_file = gzip.open if path.suffix == ".gz" else open
        with open_file(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                yield convert(parse_json(line), Example, f"{path}:{number}", "download it again")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(f"{path} is not whole ({error}); download it again") from error


def _read_questions(dialect: Dialect) -> dict[str, str]:
    """Read the questions as TyDi has them, by id, from lines of id, a flag and text."""
    path = dialect.written
    text = read_text(path, "download it again") if path.is_file() else ""
    rows = [line.split("\t") for line in LINE_BREAK.split(text) if line]
    return {cells[0]: cells[-1].strip() for cells in rows}


def _read_speakers(dialect: Dialect) -> dict[str, str]:
    """Read the speakers of questions, where they are known: id of the question -> speaker."""
    rows = read_csv(dialect.metadata) if dialect.metadata.is_file() else ()
    return {row["example_id"]: row["user_id"] for row in rows if row["user_id"] != "na"}
