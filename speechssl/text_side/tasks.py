"""Classification tasks: made of real text, GLUE's from a local folder, and sequences of other symbols.

A task is a folder with train.jsonl, dev.jsonl and test.jsonl, an example a line: {"id", "text", "pair", "label"}, or "symbols"
in the place of text and pair; task.json, where it is, has its name, what it was made of, and "metric": "spearman" where labels are
numbers. GLUE's folders are read as they are
published (gluebenchmark.com): its test sets have no labels, so that its dev set is tested here, and a tenth of its training set,
drawn with a fixed seed, is dev.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.errors import InputError
from speechssl.io import hash_files, read_json, read_lines, read_text, stage, write_json, write_text
from speechssl.text_side.config import SentenceTasks
from speechssl.text_side.data import load_text, sentences

SPLITS = ("train", "dev", "test")
ACCURACY, MCC, SPEARMAN = "accuracy", "mcc", "spearman"
PERPLEXITY, NATS = "perplexity", "nats"  # metrics that are not shares
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
class Task:
    """classes: their names; none: a number is predicted. metric: ACCURACY, MCC or SPEARMAN. hash: of its files."""

    name: str
    classes: tuple[str, ...]
    splits: Mapping[str, Sequence[TaskExample]]
    hash: str
    metric: str = ACCURACY
    note: str = ""  # what is invented about it

    @property
    def known(self) -> tuple[str, ...]:
        """The symbols that training has; none of a task of text."""
        return tuple(sorted({symbol for e in self.splits["train"] for symbol in e.symbols}))


def load_task(folder: Path) -> Task:
    """Raises InputError where there is no task, or it is damaged."""
    key = folder.name.lower().replace("_", "-")
    if (folder / "train.jsonl").is_file():
        return _own(folder)
    if key in GLUE:
        return _glue(folder, key)
    raise InputError(
        f"{folder} is no task; give a folder with train.jsonl, dev.jsonl and test.jsonl, or one of GLUE: {', '.join(GLUE)}"
    )


def _own(folder: Path) -> Task:
    about = read_json(folder / "task.json") if (folder / "task.json").is_file() else {}
    found: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {}  # split -> id, by which scores are kept -> place and line
    for split in SPLITS:
        path, found[split] = folder / f"{split}.jsonl", {}
        for number, values in read_lines(path):
            if not ("label" in values and ("symbols" in values or isinstance(values.get("text"), str))):
                raise InputError(f"{path}:{number} has no label, or neither text nor symbols; correct the line")
            name = str(values.get("id", len(found[split])))
            if name in found[split]:
                raise InputError(f"{path}:{number}: the id {name} is also that of {found[split][name][0]}; make ids unique")
            found[split][name] = f"{path}:{number}", values
        if not found[split]:
            raise InputError(f"{path} has no examples; make the task again")
    metric = str(about.get("metric", ACCURACY))
    classes = [] if metric == SPEARMAN else sorted({str(values["label"]) for _, values in found["train"].values()})
    if len(classes) == 1:
        raise InputError(f"{folder / 'train.jsonl'} has one label alone; give examples of two at least")
    splits: dict[str, list[TaskExample]] = {split: [] for split in SPLITS}
    for split, lines in found.items():
        for name, (place, values) in lines.items():
            label = values["label"]
            if classes and str(label) not in classes:
                raise InputError(f"{place} has the label {label!r}, which train.jsonl does not have; correct it")
            if not classes and not isinstance(label, (int, float)):
                raise InputError(f"{place} has the label {label!r}, where task.json says numbers; correct it")
            symbols = tuple(map(str, values.get("symbols", ())))
            wanted = float(classes.index(str(label)) if classes else label)
            splits[split].append(TaskExample(name, wanted, values.get("text", ""), values.get("pair"), symbols))
    hashed = hash_files([folder / f"{split}.jsonl" for split in SPLITS])
    return Task(str(about.get("task", folder.name)), tuple(classes), splits, hashed, metric, note=str(about.get("note", "")))


# ---- GLUE


@dataclass(frozen=True)
class GlueFormat:
    """Columns of text, second text and label, by name or, without a head, by place; and the file that is tested."""

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


def _glue(folder: Path, key: str) -> Task:
    form = GLUE[key]
    files = {"train": folder / "train.tsv", "test": folder / form.dev}
    rows = {split: list(_tsv(path, form)) for split, path in files.items()}
    classes = () if form.metric == SPEARMAN else tuple(sorted({label for *_, label in rows["train"]}))

    def example(name: str, text: str, pair: str | None, label: str) -> TaskExample:
        try:
            return TaskExample(name, float(label) if form.metric == SPEARMAN else float(classes.index(label)), text, pair)
        except ValueError as error:
            raise InputError(f"{folder} has the label {label!r} at {name}; it is not {key.upper()} as it is published") from error

    made = {split: [example(*row) for row in some] for split, some in rows.items()}
    order = np.random.default_rng(0).permutation(len(made["train"]))
    cut = max(1, len(order) // 10)
    splits = {"dev": [made["train"][i] for i in sorted(order[:cut])], "train": [made["train"][i] for i in sorted(order[cut:])]}
    return Task(key, classes, splits | {"test": made["test"]}, hash_files(list(files.values())), form.metric)


def _tsv(path: Path, form: GlueFormat) -> Iterator[tuple[str, str, str | None, str]]:
    """id, text, pair, label of every line. Quotation marks are text in GLUE."""
    lines = read_text(path, "give GLUE's folder as it is published").replace("\r\n", "\n").split("\n")
    rows = [line.split("\t") if line else [] for line in lines]
    wanted = [form.text, form.pair, form.label]
    head = {name: i for i, name in enumerate(rows[0])} if rows and isinstance(form.text, str) else {}
    try:
        text, pair, label = (None if w is None else w if isinstance(w, int) else head[w] for w in wanted)
        assert text is not None and label is not None
        found = [
            (f"{path.name}:{n}", row[text], None if pair is None else row[pair], row[label])
            for n, row in enumerate(rows[bool(head) :], 1 + bool(head))
            if row
        ]
    except (KeyError, IndexError) as error:
        raise InputError(
            f"{path} does not have the columns of GLUE's task ({error}); give its folder as it is published"
        ) from error
    if not found:
        raise InputError(f"{path} has no examples; give GLUE's folder as it is published")
    yield from found


# ---- tasks of real text


def make_sentence_tasks(o: SentenceTasks) -> list[str]:
    """Write the tasks, once; a line for each of what was made. Raises InputError where the text has too few documents."""
    text = load_text(o.source, o.split)
    settings = {"train": o.train, "test": o.test, "topics": o.topics, "seed": o.seed}
    with stage(o.out, {"text": text.hash}, settings) as step:
        if step.done:
            return [str(line) for line in step.card["made"]]
        documents = {
            name: kept
            for name, some in text.documents.items()
            if any(map(_long, (kept := [sentences(paragraph) for paragraph in some])))
        }
        if len(documents) < 3:
            raise InputError(
                f"{o.source} has {len(documents)} documents with sentences of {FEWEST} words; the tasks need at least 3, "
                "one file each"
            )
        rng = np.random.default_rng(o.seed)
        parts = _split_documents(documents, rng)
        sizes = {"train": o.train, "dev": o.test, "test": o.test}
        lines = []
        for name, make in (("order", _order), ("overlap", _overlap)):
            made = {split: make([documents[d] for d in parts[split]], sizes[split], rng) for split in SPLITS}
            lines.append(_write(o.out / name, name, made, text.source))
        lines.append(_write(o.out / "topic", "topic", _topic(documents, o.topics, sizes, rng), text.source))
        step.finish({"what": "sentence tasks", "text": text.source, "made": lines})
        return lines


Paragraphs = Sequence[Sequence[str]]  # sentences


def _long(some: Sequence[str]) -> list[str]:
    """Those of enough words."""
    return [sentence for sentence in some if len(sentence.split()) >= FEWEST]


def _split_documents(documents: Mapping[str, Paragraphs], rng: np.random.Generator) -> dict[str, list[str]]:
    """About 70, 15 and 15 % of the documents, at least one each."""
    names = [list(documents)[i] for i in rng.permutation(len(documents))]
    few = max(1, round(0.15 * len(names)))
    return {"dev": names[:few], "test": names[few : 2 * few], "train": names[2 * few :]}


def _some(items: Sequence[Any], count: int, rng: np.random.Generator) -> list[Any]:
    return [items[i] for i in rng.permutation(len(items))[:count]]


def _order(documents: Sequence[Paragraphs], count: int, rng: np.random.Generator) -> list[dict[str, str]]:
    successive = (pair for some in documents for paragraph in some for pair in pairwise(paragraph))
    pairs = [pair for pair in successive if len(_long(pair)) == 2]
    made = []
    for first, second in _some(pairs, count, rng):
        swapped = rng.random() < 0.5
        a, b = (second, first) if swapped else (first, second)
        made.append({"text": a, "pair": b, "label": "exchanged" if swapped else "in order"})
    return made


def _overlap(documents: Sequence[Paragraphs], count: int, rng: np.random.Generator) -> list[dict[str, str]]:
    """Words of another sentence of the document, at least half of which the first one does not have, or its own."""
    whole = [[s for paragraph in some for s in _long(paragraph)] for some in documents]
    places = [(i, n) for i, some in enumerate(whole) if len(some) > 1 for n in range(len(some))]
    made: list[dict[str, str]] = []
    for i, n in _some(places, len(places), rng):
        if len(made) == count:
            break
        sentence, inside = whole[i][n], bool(rng.random() < 0.5)
        other = n if inside else (n + 1 + int(rng.integers(len(whole[i]) - 1))) % len(whole[i])
        words = whole[i][other].split()
        first = int(rng.integers(len(words) - PIECE + 1))
        piece = words[first : first + PIECE]
        own = set(sentence.lower().split())
        if inside or sum(word.lower() not in own for word in piece) * 2 >= PIECE:
            made.append({"text": sentence, "pair": " ".join(piece), "label": "inside" if inside else "outside"})
    return made


def _topic(
    documents: Mapping[str, Paragraphs], topics: int, sizes: Mapping[str, int], rng: np.random.Generator
) -> dict[str, list[dict[str, str]]]:
    """Paragraphs are in one split alone, where a document has several; sentences, where it has one."""
    count = {name: sum(len(_long(paragraph)) for paragraph in some) for name, some in documents.items()}
    chosen = sorted(sorted(documents, key=lambda name: (-count[name], name))[:topics])
    made: dict[str, list[dict[str, str]]] = {split: [] for split in SPLITS}
    for name in chosen:
        pieces = [kept for paragraph in documents[name] if (kept := _long(paragraph))]
        pieces = pieces if len(pieces) > 2 else [[sentence] for kept in pieces for sentence in kept]
        few = max(1, round(0.15 * len(pieces)))
        for n, i in enumerate(rng.permutation(len(pieces))):
            split = "dev" if n < few else "test" if n < 2 * few else "train"
            made[split] += [{"text": s, "label": name} for s in pieces[i]]
    return {split: _some(some, sizes[split], rng) for split, some in made.items()}


def _write(folder: Path, name: str, made: Mapping[str, Sequence[dict[str, str]]], source: str) -> str:
    for split, examples in made.items():
        if not examples:
            raise InputError(
                f"the text {source} gives no examples of {name} for {split}; give a text with more and longer documents"
            )
        lines = (json.dumps({"id": f"{split}-{i}"} | e, ensure_ascii=False) + "\n" for i, e in enumerate(examples))
        write_text(folder / f"{split}.jsonl", "".join(lines))
    write_json(folder / "task.json", {"task": name, "text": source})
    return f"{folder}: {name}, " + ", ".join(f"{len(examples)} {split}" for split, examples in made.items())


# ---- scores: functions of weighted means of columns, so that a bootstrap draws items once for all of them


Score = Callable[[np.ndarray], np.ndarray]  # (..., C) means of columns -> (...)


def columns(metric: str, gold: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """(S, C) what the means are taken of. gold, predicted: (S,) classes or numbers."""
    if metric == MCC:
        a, b = gold == 1, predicted == 1
        return np.stack([a & b, a & ~b, ~a & b, ~a & ~b], axis=1).astype(np.float64)
    if metric == SPEARMAN:  # Pearson's correlation of ranks
        from scipy.stats import rankdata

        a, b = (rankdata(x) / len(x) for x in (gold, predicted))
        return np.stack([a, b, a * a, b * b, a * b], axis=1)
    if metric == PERPLEXITY:  # number of units, and their negative log-likelihood
        return np.stack([gold, predicted], axis=1).astype(np.float64)
    if metric == ACCURACY:  # half right, where two answers are as good as each other
        return np.maximum(1 - np.abs(gold - predicted), 0.0)[:, None].astype(np.float64)
    return predicted.astype(np.float64)[:, None]


def value(metric: str, means: np.ndarray) -> np.ndarray:
    """means: (..., C) of `columns`. Returns (...); 0 where a correlation is not defined, as for answers that are all alike."""
    if metric == MCC:
        tp, fn, fp, tn = np.moveaxis(means, -1, 0)
        above, below = tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    elif metric == SPEARMAN:
        a, b, aa, bb, ab = np.moveaxis(means, -1, 0)
        above, below = ab - a * b, np.sqrt(np.maximum((aa - a * a) * (bb - b * b), 0))
    elif metric == PERPLEXITY:
        return np.exp(means[..., 1] / means[..., 0])
    else:
        return means[..., 0]
    return np.where(below > 1e-12, above / np.maximum(below, 1e-12), 0.0)
