"""Keep the questions of Spoken-SQuAD's tests that a reader was not trained on, and add the text.

    python recipes/spoken_squad/held_out.py SPOKEN_SQUAD OUT SQUAD.json ...
        SQUAD.json: the articles that were held out, in SQuAD's layout (exp/real_questions/squad
        has dev.json and test.json)

The contexts of Spoken-SQuAD are transcripts. OUT gets its tests with the questions of SQUAD.json
alone, and dev-v1.1.json, which has the same questions with the contexts of SQuAD: a source for
run.sh. Paragraphs stay in their places, for recordings are called by these.
"""

import json
import sys
from pathlib import Path
from typing import Any

Articles = list[dict[str, Any]]  # of SQuAD: "title", and "paragraphs" with "context" and "qas"


def read_articles(path: Path) -> Articles:
    return json.loads(path.read_text("utf-8"))["data"]


def write_articles(path: Path, articles: Articles) -> None:
    path.write_text(json.dumps({"version": "1.1", "data": articles}), "utf-8")


def main(source: Path, out: Path, squad_files: list[Path]) -> None:
    squad = {}  # id of a question -> its context and itself, in SQuAD
    for path in squad_files:
        for article in read_articles(path):
            for paragraph in article["paragraphs"]:
                squad |= {q["id"]: (paragraph["context"], q) for q in paragraph["qas"]}
    tests = sorted(source.rglob("spoken_test*.json"))
    if not tests:
        sys.exit(f"speechssl: {source} has no spoken_test*.json; give the folder of Spoken-SQuAD")
    out.mkdir(parents=True, exist_ok=True)
    for path in tests:
        articles = read_articles(path)
        paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
        for paragraph in paragraphs:
            paragraph["qas"] = [q for q in paragraph["qas"] if q["id"] in squad]
        write_articles(out / path.name, articles)
        print(f"{out / path.name}: {sum(len(p['qas']) for p in paragraphs):,} questions")
    # all tests have the same passages and questions, at other error rates
    for paragraph in paragraphs:
        for number, question in enumerate(paragraph["qas"]):
            paragraph["context"], paragraph["qas"][number] = squad[question["id"]]
    write_articles(out / "dev-v1.1.json", articles)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
