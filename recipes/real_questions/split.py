"""Split NMSQA's dev table by article into train, dev and test, as SQuAD JSON with the licence of
SQuAD's texts.

    python recipes/real_questions/split.py dev.parquet OUT --without dev_ids_also_in_test.txt

Every tenth article in the order of a draw by seed is dev, every tenth test, the others train, where
no --train is given. Passages of the questions that --without lists (those that NMSQA's test set
asks about as well) are left out of all three: nothing may be trained or tuned on them.
"""

import json
import random
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

import pyarrow.parquet as pq

parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
add = parser.add_argument
TRAIN = "train.parquet, or its parts, in the place of the other dev articles"
add("tables", type=Path, nargs="+", help="dev.parquet, or its parts")
add("out", type=Path)
add("--train", type=Path, nargs="+", default=[], help=TRAIN)
add("--without", type=Path, help="ids of questions, one a line, whose passages are left out")
add("--seed", type=int, default=0)
options = parser.parse_args()

COLUMNS = ["id", "title", "context", "question", "answers"]


def read(paths: list[Path]) -> list[dict]:
    return [row for path in paths for row in pq.read_table(path, columns=COLUMNS).to_pylist()]


rows = read(options.tables)
without = set(options.without.read_text().split()) if options.without else set()
left_out = {row["context"] for row in rows if row["id"] in without}
titles = sorted({row["title"] for row in rows})
random.Random(options.seed).shuffle(titles)
splits = {
    title: {0: "dev", 1: "test"}.get(i % 10, "" if options.train else "train")
    for i, title in enumerate(titles)
}
drawn = [(splits[row["title"]], row) for row in rows if splits[row["title"]]]
drawn += [("train", row) for row in read(options.train)]
articles: dict[tuple[str, str], dict[str, list[dict]]] = {}
for split, row in drawn:
    if row["context"] in left_out:
        continue
    answers = zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
    asked = {"id": row["id"], "question": row["question"]}
    asked["answers"] = [{"text": t, "answer_start": s} for t, s in answers]
    articles.setdefault((split, row["title"]), {}).setdefault(row["context"], []).append(asked)
options.out.mkdir(parents=True, exist_ok=True)
for split in ("train", "dev", "test"):
    data = []
    for (of, title), passages in articles.items():
        if of == split:
            asked_of = [{"context": context, "qas": qas} for context, qas in passages.items()]
            data.append({"title": title, "paragraphs": asked_of})
    path = options.out / f"{split}.json"
    path.write_text(json.dumps({"version": "1.1", "licence": "CC BY-SA 4.0", "data": data}))
    counts = [len(p["qas"]) for a in data for p in a["paragraphs"]]
    print(f"{path}: {len(data)} articles, {len(counts)} passages, {sum(counts)} questions")
questions = sum(row["context"] in left_out for row in rows)
print(f"left out: {len(left_out)} passages with {questions} questions")
