"""Prepare TOEFL-QA: listening comprehension with four options (Tseng et al., arXiv 1608.06378;
Chung et al., arXiv 1711.05345).

A text file a question, with the whole story in each: data/toefl-qa/README.md. The text of a passage
has a sentence a line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from speechssl.artifacts import hash_files
from speechssl.data.files import files_below
from speechssl.data.options import ToeflQa
from speechssl.data.prepare import PrepareReport, SplitRecords, prepare_corpus
from speechssl.data.records import Passage, Question
from speechssl.errors import InputError

CORPUS = "toefl-qa"  # as the verb and the report have it
PUBLISHED = {
    "train": {"passages": 150, "questions": 717},
    "dev": {"passages": 24, "questions": 124},
    "test": {"passages": 24, "questions": 122},
}
LAYOUT = "data/{train,dev,test}/tpo_{n}-{conversation|lecture}_{k}_{q}, a text file a question"
FILE = re.compile(r"tpo_(\d+)-(conversation|lecture)_(\d+)_(\d+)")
LINE = re.compile(r"(SENTENCE|QUESTION|OPTION)\s+(.*)")
OPTION = re.compile(r"(.*\S)\s+([01])")


class _Broken(Exception):
    """A file is no question: why."""


def prepare_toefl_qa(o: ToeflQa) -> dict[str, Any]:
    """Prepare the splits that are there and return the data report.

    source: the repository, a folder above it, its folder data/, a split's folder, or one file. A
    broken file is set aside. Raises InputError where there is no such file, or none can be used.
    """
    files = _find(o.source)

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        return {split: _make_records(split, paths, report) for split, paths in files.items()}

    settings = {"files": {split: hash_files(paths) for split, paths in files.items()}}
    about = {"source": "github.com/iamyuanchung/TOEFL-QA"}
    return prepare_corpus(CORPUS, o, settings, read, PUBLISHED, about)


def _find(source: Path) -> dict[str, list[Path]]:
    """Find the files of every split that has some, in the order of their numbers: those in a folder
    of its name, and as test those in another. Raises InputError where there are none."""
    paths = [path for _, path in files_below([source], "")] if source.is_dir() else [source]
    numbered = []
    for path in paths:
        match = FILE.fullmatch(path.name)
        if match:
            numbered.append((int(match[1]), match[2], int(match[3]), int(match[4]), path))
    files: dict[str, list[Path]] = {split: [] for split in PUBLISHED}
    for *_, path in sorted(numbered):
        folder = path.resolve().parent.name
        files[folder if folder in PUBLISHED else "test"].append(path)
    if not numbered:
        raise InputError(f"{source} has no questions of TOEFL-QA; expected {LAYOUT}")
    return {split: paths for split, paths in files.items() if paths}


def _read(path: Path) -> tuple[tuple[str, ...], Question]:
    """Read the sentences of a story and the question, whose passage is the story (tpo_1-lecture_2).

    Raises _Broken for a file that is cut off or otherwise not as it should be.
    """
    by_kind: dict[str, list[str]] = {"SENTENCE": [], "QUESTION": [], "OPTION": []}
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", errors="replace")
    for line in text.splitlines():
        match = LINE.match(line)
        if match:
            by_kind[match[1]].append(match[2])
        elif line.strip() and line.split()[0] not in by_kind:
            raise _Broken("a line is no SENTENCE, QUESTION or OPTION")
    options, correct = list[str](), list[int]()
    for text in by_kind["OPTION"]:
        match = OPTION.fullmatch(text.strip())
        if not match:
            raise _Broken("an option has no words, or no 0 or 1 behind them")
        if match[2] == "1":
            correct.append(len(options))
        options.append(tidy(match[1]))
    if not by_kind["SENTENCE"] or len(by_kind["QUESTION"]) != 1 or len(options) != 4:
        raise _Broken("it has not some sentences, one question and four options")
    sentences = tuple(map(tidy, filter(str.strip, by_kind["SENTENCE"])))
    return sentences, Question(
        path.name,
        path.name.rpartition("_")[0],
        text=tidy(by_kind["QUESTION"][0]),
        options=tuple(options),
        correct=tuple(correct),
    )


def tidy(text: str) -> str:
    """Join words with single spaces, and none before punctuation: "so , um , 25 $ ." becomes "so,
    um, 25 $."."""
    joined = re.sub(r"\s+([.,;:?!]+)(?=\s|$|(?<=[.?!])[A-Za-z])", r"\1 ", " ".join(text.split()))
    return " ".join(re.sub(r"(?<=[a-z]) '(?=(?:s|t|d|m|ll|re|ve)\b)", "'", joined).split())


def _make_records(split: str, paths: Sequence[Path], report: PrepareReport) -> SplitRecords:
    """Make a passage of each story; of each version where its questions do not agree about it, so
    that nothing is lost."""
    names: dict[tuple[str, tuple[str, ...]], str] = {}  # (story, sentences) -> id of its passage
    versions: Counter[str] = Counter()
    questions: dict[str, Question] = {}
    for path in paths:
        report.count(split, "questions")
        try:
            sentences, question = _read(path)
        except _Broken as error:
            report.set_aside(split, "questions", path.name, str(error))
            continue
        story = question.passage
        if (story, sentences) not in names:
            versions[story] += 1
            version = versions[story]
            names[story, sentences] = story if version == 1 else f"{story}-version-{version}"
        reason = "" if question.correct else "no option is marked as right"
        if question.id in questions:
            reason = "there is another file of this question"
        elif not question.text:
            reason = "the question has no words"
        if reason:
            report.set_aside(split, "questions", question.id, reason)
        else:
            questions[question.id] = replace(question, passage=names[story, sentences])
    passages = {
        name: Passage(name, text="\n".join(sentences)) for (_, sentences), name in names.items()
    }
    report.count(split, "passages", len(passages))
    asked = Counter(q.passage for q in questions.values())
    chosen = set(report.slice(split, passages, asked))
    return SplitRecords(
        [p for p in passages.values() if p.id in chosen],
        [q for q in questions.values() if q.passage in chosen],
    )
