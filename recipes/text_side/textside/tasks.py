"""Read classification tasks: made of real text, GLUE's from a local folder, and sequences of other
symbols.

A task is a folder with train.jsonl, dev.jsonl and test.jsonl, an example a line: {"id", "text",
"pair", "label"}, or "symbols" in the place of text and pair; task.json, where it exists, has its
name, its source, and "metric": "spearman" where labels are numbers. GLUE's folders are read as
they are published (gluebenchmark.com): its test sets have no labels, so that its dev set is tested
here.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from speechssl.artifacts import hash_files, hash_json, read_json
from speechssl.data.records import read_lines
from speechssl.errors import InputError, report_set_aside
from speechssl.schema import convert

SPLITS = ("train", "dev", "test")
ACCURACY, MCC, SPEARMAN = "accuracy", "mcc", "spearman"


@dataclass(frozen=True)
class TaskExample:
    """An example has a label, and one or two texts or symbols."""

    id: str
    label: float  # a class from 0, or a number (STS-B)
    text: str = ""
    pair: str | None = None
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextTask:
    """A task has splits of examples."""

    name: str
    classes: tuple[str, ...]  # names; (): a number is predicted
    splits: Mapping[str, Sequence[TaskExample]]
    hash: str  # of its files
    metric: str = ACCURACY  # or MCC or SPEARMAN
    note: str = ""

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Return the symbols of the training split; () of a task of text."""
        return tuple(sorted({symbol for e in self.splits["train"] for symbol in e.symbols}))


@dataclass(frozen=True)
class TaskLine:
    """A line of a task has a label, and a text or symbols."""

    label: str | int | float
    id: str | int | None = None
    text: str = ""
    pair: str | None = None
    symbols: str | list[str | int] = ""

    def __post_init__(self) -> None:
        if not self.text.strip() and not self.symbols:
            raise ValueError("there is neither text nor symbols")


@dataclass(frozen=True)
class TaskCard:
    """A card is the file task.json."""

    task: str = ""
    metric: Literal["accuracy", "mcc", "spearman"] = "accuracy"
    note: str = ""


def load_task(folder: Path) -> TextTask:
    """Load a task. Raises InputError where there is none, or where it is damaged."""
    key = folder.name.lower().replace("_", "-")
    if (folder / "train.jsonl").is_file():
        return load_prepared_task(folder)
    if key in GLUE:
        return load_glue(folder, key)
    raise InputError(
        f"{folder} is no task; give a folder with train.jsonl, dev.jsonl and test.jsonl, or one "
        f"of GLUE: {', '.join(GLUE)}"
    )


def load_prepared_task(folder: Path) -> TextTask:
    path = folder / "task.json"
    card = convert(read_json(path), TaskCard, path) if path.is_file() else TaskCard()
    files = {split: folder / f"{split}.jsonl" for split in SPLITS}
    lines: dict[str, list[TaskLine]] = {}
    for split, path in files.items():
        lines[split] = [convert(v, TaskLine, f"{path}:{n}") for n, v in read_lines(path)]
    classes: list[str] = []
    if card.metric != SPEARMAN:
        classes = sorted({str(line.label) for line in lines["train"]})
    splits: dict[str, list[TaskExample]] = {}
    for split, lines_of_split in lines.items():
        splits[split] = []
        for number, line in enumerate(lines_of_split):
            name = str(number if line.id is None else line.id)
            target = find_label(line.label, classes, files[split])
            symbols = tuple(map(str, line.symbols))
            splits[split].append(TaskExample(name, target, line.text, line.pair, symbols))
    known = {symbol for example in splits["train"] for symbol in example.symbols}
    for split, examples in splits.items():
        unknown = {symbol for example in examples for symbol in example.symbols} - known
        if unknown:
            raise InputError(
                f"{files[split]} has the symbol {min(unknown)!r}, which training does not have; "
                "leave it out"
            )
    hashed = hash_files(list(files.values()))
    name = card.task or folder.resolve().name
    return TextTask(name, tuple(classes), splits, hashed, card.metric, card.note)


def find_label(label: str | int | float, classes: Sequence[str], path: Path) -> float:
    """Return the number of a class; without classes, the label as a number. Raises InputError for a
    class that training does not have, or a label that is no number."""
    try:
        return float(classes.index(str(label)) if classes else label)
    except ValueError as error:
        raise InputError(
            f"{path} has the label {label!r}, which is none of training or no number; correct it"
        ) from error


# ---- GLUE


@dataclass(frozen=True)
class GlueFormat:
    """A file of GLUE has columns, by name or, without a head, by number."""

    text: str | int
    pair: str | int | None
    label: str | int
    dev: str = "dev.tsv"  # the file that is tested
    metric: str = ACCURACY


GLUE = {
    "cola": GlueFormat(3, None, 1, metric=MCC),
    "sst-2": GlueFormat("sentence", None, "label"),
    "mrpc": GlueFormat("#1 String", "#2 String", "Quality"),
    "sts-b": GlueFormat("sentence1", "sentence2", "score", metric=SPEARMAN),
    "qqp": GlueFormat("question1", "question2", "is_duplicate"),
    "mnli": GlueFormat("sentence1", "sentence2", "gold_label", "dev_matched.tsv"),
    "qnli": GlueFormat("question", "sentence", "label"),
    "rte": GlueFormat("sentence1", "sentence2", "label"),
    "wnli": GlueFormat("sentence1", "sentence2", "label"),
}


def load_glue(folder: Path, key: str) -> TextTask:
    form = GLUE[key]
    files = {"train": folder / "train.tsv", "test": folder / form.dev}
    frames = {split: read_glue(path, form) for split, path in files.items()}
    classes: tuple[str, ...] = ()
    if form.metric != SPEARMAN:
        classes = tuple(sorted(set(frames["train"].label)))
    examples: dict[str, list[TaskExample]] = {"train": [], "test": []}
    for split, frame in frames.items():
        for row in frame.itertuples():
            target = find_label(row.label, classes, files[split])
            pair = None if form.pair is None else row.pair
            examples[split].append(TaskExample(row.Index, target, row.text, pair))
    data = hash_json([hash_files(list(files.values())), "all of train"])
    return TextTask(key, classes, examples, data, form.metric)


def read_glue(path: Path, form: GlueFormat) -> pd.DataFrame:
    """Read a table of text, pair and label, whose index is the number of the line. Quotation marks
    are text in GLUE. A line that lacks a column or a text, as a few of QQP do, is reported and left
    out."""
    columns = {"text": form.text, "label": form.label}
    if form.pair is not None:
        columns["pair"] = form.pair
    named = isinstance(form.text, str)
    try:
        table = pd.read_csv(
            path, sep="\t", header=0 if named else None, dtype=str, quoting=csv.QUOTE_NONE,
            keep_default_na=False, encoding="utf-8-sig", index_col=False,
        )  # fmt: skip
        frame = pd.DataFrame({name: table[column] for name, column in columns.items()})
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{path} does not have the columns of GLUE's task ({error}); give its folder as it "
            "is published"
        ) from error
    frame.index = pd.Index([f"{path.name}:{n + 1 + named}" for n in range(len(frame))])
    frame = frame.fillna("")
    complete = (frame.map(str.strip) != "").all(axis=1)
    reason = "it has no text, or no label, in the columns of GLUE's task"
    lacking = dict.fromkeys(frame.index[~complete], reason)
    report_set_aside(lacking, f"the task {path.parent.name}", "line")
    return frame[complete]
