"""Classification tasks: made of real text, GLUE's from a local folder, and sequences of other
symbols.

A task is a folder with train.jsonl, dev.jsonl and test.jsonl, an example a line: {"id", "text",
"pair", "label"}, or "symbols"
in the place of text and pair; task.json, where it is, has its name, what it was made of, and
"metric": "spearman" where labels are numbers. GLUE's folders are read as they are published
(gluebenchmark.com): its test sets have no labels, so that its dev set is tested here, and a tenth
of its training set, drawn with a fixed seed, is dev.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.artifacts import hash_files, read_json, read_text
from speechssl.data.records import read_lines
from speechssl.errors import InputError, report_set_aside

SPLITS = ("train", "dev", "test")
METRICS = ACCURACY, MCC, SPEARMAN = "accuracy", "mcc", "spearman"


@dataclass(frozen=True)
class TaskExample:
    """label: a class from 0, or a number (STS-B). symbols: in the place of text."""

    id: str
    label: float
    text: str = ""
    pair: str | None = None
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextTask:
    """classes: their names; none: a number is predicted. metric: ACCURACY, MCC or SPEARMAN. hash:
    of its files."""

    name: str
    classes: tuple[str, ...]
    splits: Mapping[str, Sequence[TaskExample]]
    hash: str
    metric: str = ACCURACY
    note: str = ""  # what is invented about it

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The symbols that training has; none of a task of text."""
        return tuple(sorted({symbol for e in self.splits["train"] for symbol in e.symbols}))


def load_task(folder: Path) -> TextTask:
    """Raises InputError where there is no task, or it is damaged."""
    key = folder.name.lower().replace("_", "-")
    if (folder / "train.jsonl").is_file():
        return _prepared_task(folder)
    if key in GLUE:
        return _glue(folder, key)
    raise InputError(
        f"{folder} is no task; give a folder with train.jsonl, dev.jsonl and test.jsonl, or one "
        f"of GLUE: {', '.join(GLUE)}"
    )


def _prepared_task(folder: Path) -> TextTask:
    card = read_json(folder / "task.json") if (folder / "task.json").is_file() else {}
    task = (
        str(card.get("task", Path(os.path.abspath(folder)).name)) if isinstance(card, dict) else ""
    )
    if not task or "/" in task or task.startswith("."):
        raise InputError(
            f'{folder / "task.json"} has no name of a task ("task": a name of a folder); correct it'
        )
    # split -> id, by which scores are kept -> place and line
    by_split: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {}
    for split in SPLITS:
        path, by_split[split] = folder / f"{split}.jsonl", {}
        for number, values in read_lines(path):
            if reason := _amiss(values):
                raise InputError(f"{path}:{number} {reason}; correct the line")
            name = str(values.get("id", len(by_split[split])))
            if name in by_split[split]:
                raise InputError(
                    f"{path}:{number}: the id {name} is also that of "
                    f"{by_split[split][name][0]}; make ids unique"
                )
            by_split[split][name] = f"{path}:{number}", values
        if not by_split[split]:
            raise InputError(f"{path} has no examples; make the task again")
    every = [values for examples in by_split.values() for _, values in examples.values()]
    if len({"symbols" in values for values in every}) > 1:
        raise InputError(
            f"{folder} has lines with text and lines with symbols; make two tasks of them"
        )
    metric = str(card.get("metric", ACCURACY))
    if metric not in METRICS:
        raise InputError(
            f"{folder / 'task.json'} has the metric {metric}; choose one of {', '.join(METRICS)}"
        )
    classes = (
        []
        if metric == SPEARMAN
        else sorted({str(values["label"]) for _, values in by_split["train"].values()})
    )
    _check_classes(classes, metric, folder / "train.jsonl")
    splits: dict[str, list[TaskExample]] = {split: [] for split in SPLITS}
    for split, lines in by_split.items():
        for name, (place, values) in lines.items():
            label = values["label"]
            if classes and str(label) not in classes:
                raise InputError(
                    f"{place} has the label {label!r}, which train.jsonl does not have; correct it"
                )
            if not classes and isinstance(label, str):
                raise InputError(
                    f"{place} has the label {label!r}, where task.json says numbers; correct it"
                )
            symbols = tuple(map(str, values.get("symbols", ())))
            target = float(classes.index(str(label)) if classes else label)
            splits[split].append(
                TaskExample(name, target, values.get("text", ""), values.get("pair"), symbols)
            )
    hashed = hash_files([folder / f"{split}.jsonl" for split in SPLITS])
    return TextTask(task, tuple(classes), splits, hashed, metric, note=str(card.get("note", "")))


def _amiss(values: Mapping[str, Any]) -> str:
    """What is wrong with the line of an example; "" where nothing is."""
    label, text, pair, symbols = (values.get(name) for name in ("label", "text", "pair", "symbols"))
    if label is None or label == "" or isinstance(label, (list, dict)):
        return "has no label"
    if isinstance(label, float) and not math.isfinite(label):
        return f"has the label {label}"
    if "symbols" in values:
        valid = (
            isinstance(symbols, (str, list))
            and symbols
            and all(isinstance(s, (str, int)) and s != "" for s in symbols)
        )
        return "" if valid else "has no symbols, as a text or as a list of names"
    if not (isinstance(text, str) and text.strip()):
        return "has neither text nor symbols"
    return "" if pair is None or (isinstance(pair, str) and pair.strip()) else "has an empty pair"


def _check_classes(classes: Sequence[str], metric: str, path: Path) -> None:
    """classes: none where numbers are predicted. Raises InputError for one alone, or for more than
    two of Matthews' correlation."""
    if len(classes) == 1:
        raise InputError(f"{path} has one label alone; give examples of two at least")
    if metric == MCC and len(classes) != 2:
        raise InputError(f"{path} has {len(classes)} labels, and {MCC} is of two; correct it")


# ---- GLUE


@dataclass(frozen=True)
class GlueFormat:
    """Columns of text, second text and label, by name or, without a head, by place; and the file
    that is tested."""

    text: str | int
    pair: str | int | None
    label: str | int
    dev: str = "dev.tsv"
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


def _glue(folder: Path, key: str) -> TextTask:
    form = GLUE[key]
    files = {"train": folder / "train.tsv", "test": folder / form.dev}
    rows = {split: list(_tsv(path, form)) for split, path in files.items()}
    classes = (
        () if form.metric == SPEARMAN else tuple(sorted({label for *_, label in rows["train"]}))
    )
    _check_classes(classes, form.metric, files["train"])
    if len(rows["train"]) < 2:
        raise InputError(
            f"{files['train']} has one example alone; give GLUE's folder as it is published"
        )

    def example(name: str, text: str, pair: str | None, label: str) -> TaskExample:
        try:
            target = float(label if form.metric == SPEARMAN else classes.index(label))
            if not math.isfinite(target):
                raise ValueError(label)
            return TaskExample(name, target, text, pair)
        except ValueError as error:
            raise InputError(
                f"{folder} has the label {label!r} at {name}; it is not "
                f"{key.upper()} as it is published"
            ) from error

    examples = {split: [example(*row) for row in split_rows] for split, split_rows in rows.items()}
    order = np.random.default_rng(0).permutation(len(train := examples["train"]))
    cut = max(1, len(order) // 10)
    splits = {
        "dev": [train[i] for i in sorted(order[:cut])],
        "train": [train[i] for i in sorted(order[cut:])],
    }
    return TextTask(
        key,
        classes,
        splits | {"test": examples["test"]},
        hash_files(list(files.values())),
        form.metric,
    )


def _tsv(path: Path, form: GlueFormat) -> Iterator[tuple[str, str, str | None, str]]:
    """id, text, pair, label of every line. Quotation marks are text in GLUE.

    A line that lacks a column or a text is listed and left out, as QQP has a few; more than one in
    a hundred are refused.
    """
    lines = (
        read_text(path, "give GLUE's folder as it is published").replace("\r\n", "\n").split("\n")
    )
    rows = [line.split("\t") if line else [] for line in lines]
    fields = [form.text, form.pair, form.label]
    head = (
        {name: i for i, name in enumerate(rows[0])} if rows and isinstance(form.text, str) else {}
    )
    try:
        text, pair, label = (
            None if w is None else w if isinstance(w, int) else head[w] for w in fields
        )
    except KeyError as error:
        raise InputError(
            f"{path} does not have the columns of GLUE's task ({error}); give its folder as it "
            "is published"
        ) from error
    assert text is not None and label is not None
    examples, lacking = [], {}
    for n, row in enumerate(rows[bool(head) :], 1 + bool(head)):
        cells = [
            row[i].strip() if i < len(row) else "" for i in (text, pair, label) if i is not None
        ]
        if row and all(cells):
            examples.append(
                (f"{path.name}:{n}", row[text], None if pair is None else row[pair], row[label])
            )
        elif row:
            lacking[f"{path.name}:{n}"] = (
                "it has no text, or no label, in the columns of GLUE's task"
            )
    if len(lacking) * 100 > len(examples):
        places = (
            f"{len(lacking)} of {len(lacking) + len(examples)} lines, such as "
            f"{next(iter(lacking))},"
        )
        raise InputError(
            f"{places} lack a text or a label in {path.parent}; give GLUE's folder "
            "as it is published"
        )
    if not examples:
        raise InputError(f"{path} has no examples; give GLUE's folder as it is published")
    report_set_aside(lacking, f"the task {path.parent.name}", "line")
    yield from examples
