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

NAME = "TOEFL-QA"
CORPUS = "toefl-qa"  # as the verb and the report have it
PUBLISHED = {
    "train": {"passages": 150, "questions": 717},
    "dev": {"passages": 24, "questions": 124},
    "test": {"passages": 24, "questions": 122},
}
LAYOUT = "data/{train,dev,test}/tpo_{n}-{conversation|lecture}_{k}_{q}, a text file a question"
FILE = re.compile(r"(tpo_(\d+)-(conversation|lecture)_(\d+))_(\d+)(?:\.txt)?")
# kind -> how many, 0: some
LINES = {"SENTENCE": (0, "at least one"), "QUESTION": (1, "one"), "OPTION": (4, "four")}


class _Broken(Exception):
    """A file is no question: why, and in which line (from 1; 0 where there is none)."""


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
    of its name, wherever that is below the source, and as test those in the source itself. Raises
    InputError where there are none."""
    paths = [path for _, path in files_below([source], "")] if source.is_dir() else [source]
    numbered = []
    for path in paths:
        match = FILE.fullmatch(path.name)
        if match:
            order = int(match[2]), match[3], int(match[4]), int(match[5]), path
            numbered.append(order)
    files: dict[str, list[Path]] = {split: [] for split in PUBLISHED}
    for *_, path in sorted(numbered):
        folder = path.resolve().parent.name
        if folder in PUBLISHED or path.parent == source or path == source:
            files[folder if folder in PUBLISHED else "test"].append(path)
    files = {split: paths for split, paths in files.items() if paths}
    if not files:
        raise InputError(f"{source} has no questions of {NAME}; expected {LAYOUT}")
    return files


def _read(path: Path) -> tuple[tuple[str, ...], Question]:
    """Read the sentences of a story and the question, whose passage is the story (tpo_1-lecture_2).

    Raises _Broken for a file that is cut off or otherwise not as it should be.
    """
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", errors="replace")
    lines = [line for line in re.split(r"\r\n|\n|\r", text) if line.strip()]
    by_kind: dict[str, list[tuple[int, str]]] = {kind: [] for kind in LINES}
    for number, line in enumerate(lines, 1):
        kind, rest = (*line.split(maxsplit=1), "")[:2]
        if kind not in by_kind:
            raise _Broken(f"a line begins with {kind[:20]!r}, none of {', '.join(LINES)}", number)
        if kind != "SENTENCE" or rest.strip():
            by_kind[kind].append((number, rest))
    for kind, (count, expected) in LINES.items():
        if (count and len(by_kind[kind]) != count) or not by_kind[kind]:
            raise _Broken(f"it has {len(by_kind[kind])} lines {kind}, not {expected}", len(lines))
    options, correct = list[str](), list[int]()
    for number, rest in by_kind["OPTION"]:
        option, label = ("", *rest.rsplit(maxsplit=1))[-2:]
        if label not in ("0", "1"):
            raise _Broken(f"an option ends with {label[:20]!r}, not with 0 or 1", number)
        if not option.strip():
            raise _Broken("an option has no words", number)
        if label == "1":
            correct.append(len(options))
        options.append(tidy(option))
    name = path.name.removesuffix(".txt")
    sentences = tuple(tidy(rest) for _, rest in by_kind["SENTENCE"])
    story, question = name.rpartition("_")[0], tidy(by_kind["QUESTION"][0][1])
    return sentences, Question(
        name, story, "", 0.0, question, "", "en", options=tuple(options), correct=tuple(correct)
    )


def tidy(text: str) -> str:
    """Join words with single spaces, and none before punctuation: "so , um , 25 $ ." becomes "so,
    um, 25 $."."""
    joined = re.sub(r"\s+([.,;:?!]+)(?=\s|$|(?<=[.?!])[A-Za-z])", r"\1 ", " ".join(text.split()))
    return " ".join(re.sub(r"(?<=[a-z]) '(?=(?:s|t|d|m|ll|re|ve)\b)", "'", joined).split())


def _make_records(split: str, paths: Sequence[Path], report: PrepareReport) -> SplitRecords:
    """Make a passage of each story; of each version where its questions do not agree about it, so
    that nothing is lost."""
    read: list[tuple[Path, tuple[str, ...], Question]] = []
    for path in paths:
        try:
            read.append((path, *_read(path)))
        except _Broken as error:
            reason, line = error.args
            report.set_aside(split, "questions", path.stem, reason, file=path.name, line=line)
    names: dict[tuple[str, tuple[str, ...]], str] = {}  # (story, sentences) -> id of its passage
    versions: Counter[str] = Counter()
    for _, sentences, q in read:
        if (q.passage, sentences) not in names:
            versions[q.passage] += 1
            version = versions[q.passage]
            name = q.passage if version == 1 else f"{q.passage}-version-{version}"
            names[q.passage, sentences] = name
    passages = [
        Passage(name, "", 0.0, "\n".join(sentences), "", "en")
        for (_, sentences), name in names.items()
    ]
    report.count(split, "passages", len(passages))
    report.count(split, "questions", len(paths))
    usable: dict[str, tuple[tuple[str, ...], Question]] = {}
    for path, sentences, q in read:
        reason = "" if q.correct else "no option is marked as right"
        if q.id in usable:
            reason = "there is another file of this question"
        elif not q.text:
            reason = "the question has no words"
        if reason:
            report.set_aside(split, "questions", q.id, reason, file=path.name)
        else:
            usable[q.id] = sentences, q
    questions = [
        replace(q, passage=names[q.passage, sentences]) for sentences, q in usable.values()
    ]
    chosen = set(
        report.slice(split, (p.id for p in passages), Counter(q.passage for q in questions))
    )
    return SplitRecords(
        [p for p in passages if p.id in chosen], [q for q in questions if q.passage in chosen]
    )
