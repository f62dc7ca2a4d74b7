"""Make classification tasks of real text: order, overlap, topic."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.artifacts import write_json, write_lines
from speechssl.cli import script
from speechssl.errors import InputError
from speechssl.options import Count, Whole, argument, option
from textside.data import Text, load_text, split_sentences
from textside.runs import keep_decisive, run_once
from textside.tasks import SPLITS


@dataclass(frozen=True, kw_only=True)
class SentenceTasks:
    """make sentence tasks of real text: order, overlap, topic

      order     two successive sentences: do they stand in their order?
      overlap   a sentence and a few words: are these words of the sentence?
      topic     a sentence: which of the documents is it from?

    Documents of order and overlap are in one split alone; of topic every document has sentences in
    all. SOURCE is a folder of .txt files or a prepared corpus; OUT gets a folder a task, which
    `classify.py` takes.

      python recipes/text_side/sentence_tasks.py texts/ exp/tasks
    """

    source: Path = argument("folder of .txt files, one of them, or a prepared corpus")
    out: Path = argument("folder for the tasks")
    split: str = option("train", "split of a prepared corpus")
    train: Count = option(2000, "examples of each task to train on")
    test: Count = option(500, "examples each of dev and test")
    topics: Count = option(8, "documents that topic is about: those with the most sentences")
    seed: Whole = option(0, "seed of the choice of examples")


FEWEST = 6  # fewest words of a sentence in a task
PIECE = 4  # words of the second text of overlap


Paragraphs = Sequence[Sequence[str]]  # each has sentences


def make_sentence_tasks(o: SentenceTasks) -> None:
    """Write the tasks, once. Raises InputError where the text has too few documents."""
    text = load_text(o.source, o.split)

    def make() -> dict[str, Any]:
        return {"what": "sentence tasks", "text": text.source, "made": write_tasks(text, o)}

    descriptions = run_once(o.out, {"text": text.hash}, keep_decisive(o), make)["made"]
    print(*descriptions, sep="\n")


def write_tasks(text: Text, o: SentenceTasks) -> list[str]:
    """Write the tasks; return a line that describes each."""
    documents = {}
    for name, paragraphs in text.documents.items():
        in_sentences = [split_sentences(paragraph) for paragraph in paragraphs]
        if any(_keep_long(paragraph) for paragraph in in_sentences):
            documents[name] = in_sentences
    if len(documents) < 3:
        raise InputError(
            f"{o.source} has {len(documents)} documents with sentences of {FEWEST} words; "
            "the tasks need at least 3, one file each"
        )
    rng = np.random.default_rng(o.seed)
    parts = _split_documents(documents, rng)
    sizes = {"train": o.train, "dev": o.test, "test": o.test}
    lines = []
    for name, make in (("order", _make_order), ("overlap", _make_overlap)):
        examples = {}
        for split in SPLITS:
            of_split = [documents[document] for document in parts[split]]
            examples[split] = make(of_split, sizes[split], rng)
        lines.append(_write(o.out / name, name, examples, text.source))
    topics = _make_topic(documents, o.topics, sizes, rng)
    return [*lines, _write(o.out / "topic", "topic", topics, text.source)]


def _keep_long(candidates: Sequence[str]) -> list[str]:
    """Keep the sentences of enough words."""
    return [sentence for sentence in candidates if len(sentence.split()) >= FEWEST]


def _split_documents(
    documents: Mapping[str, Paragraphs], rng: np.random.Generator
) -> dict[str, list[str]]:
    """Split the documents: about 70, 15 and 15 %, at least one each."""
    names = [list(documents)[i] for i in rng.permutation(len(documents))]
    few = max(1, round(0.15 * len(names)))
    return {"dev": names[:few], "test": names[few : 2 * few], "train": names[2 * few :]}


def _sample(items: Sequence[Any], count: int, rng: np.random.Generator) -> list[Any]:
    return [items[i] for i in rng.permutation(len(items))[:count]]


def _make_order(
    documents: Sequence[Paragraphs], count: int, rng: np.random.Generator
) -> list[dict[str, str]]:
    """Make pairs of successive sentences, in order or exchanged."""
    pairs = []  # of successive sentences
    for document in documents:
        for paragraph in document:
            pairs += [pair for pair in pairwise(paragraph) if len(_keep_long(pair)) == 2]
    examples = []
    for first, second in _sample(pairs, count, rng):
        swapped = rng.random() < 0.5
        a, b = (second, first) if swapped else (first, second)
        examples.append({"text": a, "pair": b, "label": "exchanged" if swapped else "in order"})
    return examples


def _make_overlap(
    documents: Sequence[Paragraphs], count: int, rng: np.random.Generator
) -> list[dict[str, str]]:
    """Make pairs of a sentence and words of it, or of another sentence of the document, at least
    half of which the first does not have."""
    candidates = []  # sentences of a document, number of one of them
    for document in documents:
        sentences = [s for paragraph in document for s in _keep_long(paragraph)]
        if len(sentences) > 1:
            candidates += [(sentences, n) for n in range(len(sentences))]
    examples: list[dict[str, str]] = []
    for sentences, n in _sample(candidates, len(candidates), rng):
        if len(examples) == count:
            break
        sentence = sentences[n]
        inside = bool(rng.random() < 0.5)
        other = n  # the sentence that the words are from
        if not inside:
            other = (n + 1 + int(rng.integers(len(sentences) - 1))) % len(sentences)
        words = sentences[other].split()
        first = int(rng.integers(len(words) - PIECE + 1))
        piece = words[first : first + PIECE]
        vocabulary = set(sentence.lower().split())
        if inside or sum(word.lower() not in vocabulary for word in piece) * 2 >= PIECE:
            label = "inside" if inside else "outside"
            examples.append({"text": sentence, "pair": " ".join(piece), "label": label})
    return examples


def _make_topic(
    documents: Mapping[str, Paragraphs],
    topics: int,
    sizes: Mapping[str, int],
    rng: np.random.Generator,
) -> dict[str, list[dict[str, str]]]:
    """Make sentences with the names of their documents. A paragraph is in one split alone where a
    document has three or more; a sentence, where it has fewer."""
    long_sentences = {}  # document -> its paragraphs without short sentences
    for name, document in documents.items():
        long_sentences[name] = list(filter(None, map(_keep_long, document)))

    def rank(name: str) -> tuple[int, str]:
        return -sum(map(len, long_sentences[name])), name

    examples: dict[str, list[dict[str, str]]] = {split: [] for split in SPLITS}
    # those with a sentence a split
    usable = [name for name in documents if sum(map(len, long_sentences[name])) >= len(SPLITS)]
    for name in sorted(sorted(usable, key=rank)[:topics]):
        paragraphs = long_sentences[name]
        if len(paragraphs) <= 2:
            paragraphs = [[sentence] for paragraph in paragraphs for sentence in paragraph]
        few = max(1, round(0.15 * len(paragraphs)))
        for n, i in enumerate(rng.permutation(len(paragraphs))):
            split = "train"
            if n < few:
                split = "dev"
            elif n < 2 * few:
                split = "test"
            examples[split] += [{"text": s, "label": name} for s in paragraphs[i]]
    return {split: _sample(of_split, sizes[split], rng) for split, of_split in examples.items()}


def _write(
    folder: Path, name: str, splits: Mapping[str, Sequence[dict[str, str]]], source: str
) -> str:
    """Write a task; return a line that describes it."""
    for split, examples in splits.items():
        if not examples:
            raise InputError(
                f"the text {source} gives no examples of {name} for {split}; give a text with "
                "more and longer documents"
            )
        named = [{"id": f"{split}-{i}"} | e for i, e in enumerate(examples)]
        write_lines(folder / f"{split}.jsonl", named)
    write_json(folder / "task.json", {"task": name, "text": source})
    counts = (f"{len(examples)} {split}" for split, examples in splits.items())
    return f"{folder}: {name}, {', '.join(counts)}"


if __name__ == "__main__":
    sys.exit(script(make_sentence_tasks, SentenceTasks))
