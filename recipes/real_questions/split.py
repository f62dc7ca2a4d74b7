"""Split NMSQA's dev table by article into train, dev and test, as SQuAD JSON with the licence of
SQuAD's texts.

    python recipes/real_questions/split.py dev.parquet OUT --without dev_ids_also_in_test.txt

Articles are shuffled; of every ten the first is dev, the second test, the others train. With
--train, the questions of that table are train and the other dev articles are left out. Passages of
the questions that --without lists (those that NMSQA's test set asks about as well) are left out of
all three splits: nothing may be trained or tuned on them.
"""

import json
import random
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq

from speechssl.cli import run_program

SPLITS = ("train", "dev", "test")
COLUMNS = ["id", "title", "context", "question", "answers"]
# title of an article -> text of a passage -> its questions, as SQuAD writes them
Articles = dict[str, dict[str, list[dict]]]


def read_rows(paths: Iterable[Path]) -> list[dict]:
    """Read the rows of the tables, one a question."""
    return [row for path in paths for row in pq.read_table(path, columns=COLUMNS).to_pylist()]


def assign_splits(titles: Iterable[str], seed: int) -> dict[str, str]:
    """Return title -> split of shuffled articles."""
    shuffled = sorted(titles)
    random.Random(seed).shuffle(shuffled)
    first_of_ten = {0: "dev", 1: "test"}
    return {title: first_of_ten.get(i % 10, "train") for i, title in enumerate(shuffled)}


def group_questions(rows: Iterable[dict]) -> Articles:
    """Group questions by article and passage, and write them as SQuAD does."""
    articles: Articles = defaultdict(lambda: defaultdict(list))
    for row in rows:
        answers = zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
        question = {
            "id": row["id"],
            "question": row["question"],
            "answers": [{"text": text, "answer_start": start} for text, start in answers],
        }
        articles[row["title"]][row["context"]].append(question)
    return articles


def write_split(path: Path, articles: Articles) -> None:
    """Write a split in SQuAD's layout and print its size."""
    data = []
    for title, passages in articles.items():
        paragraphs = [{"context": text, "qas": questions} for text, questions in passages.items()]
        data.append({"title": title, "paragraphs": paragraphs})
    path.write_text(json.dumps({"version": "1.1", "licence": "CC BY-SA 4.0", "data": data}))
    counts = [len(questions) for passages in articles.values() for questions in passages.values()]
    print(f"{path}: {len(data)} articles, {len(counts)} passages, {sum(counts)} questions")


def main(options: Namespace) -> None:
    rows = read_rows(options.tables)
    excluded_ids = set(options.without.read_text().split()) if options.without else set()
    excluded_passages = {row["context"] for row in rows if row["id"] in excluded_ids}
    split_of = assign_splits({row["title"] for row in rows}, options.seed)
    rows_of: dict[str, list[dict]] = {split: [] for split in SPLITS}
    for row in rows:
        rows_of[split_of[row["title"]]].append(row)
    if options.train:
        rows_of["train"] = read_rows(options.train)
    options.out.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        allowed = [row for row in rows_of[split] if row["context"] not in excluded_passages]
        write_split(options.out / f"{split}.json", group_questions(allowed))
    questions = sum(row["context"] in excluded_passages for row in rows)
    print(f"left out: {len(excluded_passages)} passages with {questions} questions")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("tables", type=Path, nargs="+", help="dev.parquet, or its parts")
    add("out", type=Path)
    train = "train.parquet, or its parts, in the place of the other dev articles"
    add("--train", type=Path, nargs="+", default=[], help=train)
    add("--without", type=Path, help="ids of questions, one a line, whose passages are left out")
    add("--seed", type=int, default=0)
    run_program(main, parser)
