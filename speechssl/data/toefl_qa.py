"""Prepare TOEFL-QA: listening comprehension with four options (Tseng et al., arXiv 1608.06378;
Chung et al., arXiv 1711.05345).

Every question is a text file that repeats its whole story (data/toefl-qa/README.md). The story
becomes a passage, with one sentence a line in its text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from speechssl.artifacts import hash_files
from speechssl.data.files import list_files
from speechssl.data.options import ToeflQa
from speechssl.data.prepare import PrepareReport, SplitRecords, make_source_error, prepare_corpus
from speechssl.data.records import Passage, Question

BROKEN = "it is not sentences, one question and four options with 0 or 1 behind them"
CORPUS = "toefl-qa"  # the name of the verb, and of the corpus in the report
PUBLISHED = {
    "train": {"passages": 150, "questions": 717},
    "dev": {"passages": 24, "questions": 124},
    "test": {"passages": 24, "questions": 122},
}
# test, type of story, number of the story, number of the question: "tpo_1-lecture_2_3"
FILE = re.compile(r"tpo_(\d+)-(conversation|lecture)_(\d+)_(\d+)")
LINE = re.compile(r"(SENTENCE|QUESTION|OPTION)\s+(.*)")
OPTION = re.compile(r"(.*\S)\s+([01])")  # "To return a book 1", with 1 behind the right option
# "so , um" and "25 $ ." have a space before punctuation: "so, um", "25 $."; in "over .And" the
# space was forgotten behind the mark: "over. And"
SPACE_BEFORE_MARK = re.compile(r"\s+([.,;:?!]+)(?=\s|$|(?<=[.?!])[A-Za-z])")
# "he 's" and "don 't" have a space before the apostrophe: "he's", "don't"
SPACE_BEFORE_APOSTROPHE = re.compile(r"(?<=[a-z]) '(?=(?:s|t|d|m|ll|re|ve)\b)")


def prepare_toefl_qa(o: ToeflQa) -> dict[str, Any]:
    """Prepare the splits that are there and return the data report.

    o.source: the repository, a folder above it, its folder data/, the folder of a split, or one
    file. Broken files are set aside. Raises InputError where there is no question, or none that can
    be used.
    """
    files = _find_files(o.source)

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        return {split: _make_records(split, paths, report) for split, paths in files.items()}

    settings = {"files": {split: hash_files(paths) for split, paths in files.items()}}
    about = {"source": "github.com/iamyuanchung/TOEFL-QA"}
    return prepare_corpus(CORPUS, o, settings, read, PUBLISHED, about)


def _find_files(source: Path) -> dict[str, list[Path]]:
    """Find the files of every split that has some, in the order of their numbers. The split is the
    name of the folder; files in a folder of another name are test. Raises InputError where there
    are none."""
    paths = list_files(source, "") if source.is_dir() else [source]
    numbered = []  # (test, type of story, story, question, file)
    for path in paths:
        match = FILE.fullmatch(path.name)
        if match:
            numbered.append((int(match[1]), match[2], int(match[3]), int(match[4]), path))
    files: dict[str, list[Path]] = {split: [] for split in PUBLISHED}
    for *_, path in sorted(numbered):
        folder = path.resolve().parent.name
        files[folder if folder in PUBLISHED else "test"].append(path)
    if not numbered:
        raise make_source_error(source, CORPUS)
    return {split: paths for split, paths in files.items() if paths}


def _read(path: Path) -> tuple[tuple[str, ...], Question] | None:
    """Read the sentences of a story, and the question, whose passage is named after the story
    (tpo_1-lecture_2). Returns None for a file without a whole question, or with lines of another
    kind."""
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
            return None
    options: list[str] = []
    correct: list[int] = []
    for option in by_kind["OPTION"]:
        match = OPTION.fullmatch(option.strip())
        if not match:  # no words, or no 0 or 1 behind them
            return None
        if match[2] == "1":
            correct.append(len(options))
        options.append(tidy(match[1]))
    is_whole = by_kind["SENTENCE"] and len(by_kind["QUESTION"]) == 1 and len(options) == 4
    if not is_whole:
        return None
    sentences = tuple(map(tidy, filter(str.strip, by_kind["SENTENCE"])))
    question = Question(
        id=path.name,
        passage=path.name.rpartition("_")[0],
        text=tidy(by_kind["QUESTION"][0]),
        options=tuple(options),
        correct=tuple(correct),
    )
    return sentences, question


def tidy(text: str) -> str:
    """Join words with single spaces, and none before punctuation: "so , um , 25 $ ." becomes "so,
    um, 25 $."."""
    joined = SPACE_BEFORE_MARK.sub(r"\1 ", " ".join(text.split()))
    return " ".join(SPACE_BEFORE_APOSTROPHE.sub("'", joined).split())


def _make_records(split: str, paths: Sequence[Path], report: PrepareReport) -> SplitRecords:
    """Make a passage of each story, and the questions about it. Where the files of a story have
    different sentences, each version becomes a passage, so that nothing is lost."""
    passage_ids: dict[tuple[str, tuple[str, ...]], str] = {}  # (story, sentences) -> passage
    versions: Counter[str] = Counter()  # story -> number of its versions
    questions: dict[str, Question] = {}
    for path in paths:
        report.count(split, "questions")
        content = _read(path)
        if content is None:
            report.set_aside(split, "questions", path.name, BROKEN)
            continue
        sentences, question = content
        story = question.passage
        if (story, sentences) not in passage_ids:
            versions[story] += 1
            version = f"-version-{versions[story]}" if versions[story] > 1 else ""
            passage_ids[story, sentences] = story + version
        reason = ""
        if question.id in questions:
            reason = "there is another file of this question"
        elif not question.text:
            reason = "the question has no words"
        elif not question.correct:
            reason = "no option is marked as right"
        if reason:
            report.set_aside(split, "questions", question.id, reason)
        else:
            questions[question.id] = replace(question, passage=passage_ids[story, sentences])
    passages = {
        name: Passage(name, text="\n".join(sentences))
        for (_, sentences), name in passage_ids.items()
    }
    report.count(split, "passages", len(passages))
    question_counts = Counter(q.passage for q in questions.values())
    chosen = set(report.slice(split, passages, question_counts))
    return SplitRecords(
        [p for p in passages.values() if p.id in chosen],
        [q for q in questions.values() if q.passage in chosen],
    )
