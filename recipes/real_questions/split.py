"""Split NMSQA's dev table by article into train, dev and test, as SQuAD JSON with the licence of
SQuAD's texts.

    python recipes/real_questions/split.py dev.parquet OUT --without dev_ids_also_in_test.txt

Every tenth article in the order of a draw by seed is dev, every tenth test, the others train, where
no --train is given. Passages of the questions that --without lists (those that NMSQA's test set
asks about as well) are left out of all three: nothing may be trained or tuned on them.
"""

import argparse
import json
import random
from pathlib import Path

import pyarrow.parquet as pq

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("tables", type=Path, nargs="+", help="dev.parquet, or its parts")
parser.add_argument("out", type=Path)
parser.add_argument(
    "--train",
    type=Path,
    nargs="+",
    default=[],
    help=("train.parquet, or its parts, in the place of the other dev articles"),
)
parser.add_argument(
    "--without", type=Path, help=("ids of questions, one a line, whose passages are left out")
)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

COLUMNS = ["id", "title", "context", "question", "answers"]
rows = [row for path in options.tables for row in pq.read_table(path, columns=COLUMNS).to_pylist()]
without = set(options.without.read_text().split()) if options.without else set()
left_out = {row["context"] for row in rows if row["id"] in without}
titles = sorted({row["title"] for row in rows})
random.Random(options.seed).shuffle(titles)
splits = {
    title: {0: "dev", 1: "test"}.get(i % 10, "" if options.train else "train")
    for i, title in enumerate(titles)
}
drawn = [(splits[row["title"]], row) for row in rows if splits[row["title"]]]
drawn += [
    ("train", row)
    for path in options.train
    for row in pq.read_table(path, columns=COLUMNS).to_pylist()
]
articles: dict[tuple[str, str], dict[str, list[dict]]] = {}
for split, row in drawn:
    if row["context"] in left_out:
        continue
    answers = zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
    asked = {
        "id": row["id"],
        "question": row["question"],
        "answers": [{"text": t, "answer_start": s} for t, s in answers],
    }
    articles.setdefault((split, row["title"]), {}).setdefault(row["context"], []).append(asked)
options.out.mkdir(parents=True, exist_ok=True)
for split in ("train", "dev", "test"):
    data = [
        {
            "title": title,
            "paragraphs": [{"context": context, "qas": qas} for context, qas in passages.items()],
        }
        for (of, title), passages in articles.items()
        if of == split
    ]
    (options.out / f"{split}.json").write_text(
        json.dumps({"version": "1.1", "licence": "CC BY-SA 4.0", "data": data})
    )
    passages = sum(len(a["paragraphs"]) for a in data)
    questions = sum(len(p["qas"]) for a in data for p in a["paragraphs"])
    print(
        f"{options.out / split}.json: {len(data)} articles, {passages} passages, {questions} "
        "questions"
    )
print(
    f"left out: {len(left_out)} passages with "
    f"{sum(row['context'] in left_out for row in rows)} questions"
)
