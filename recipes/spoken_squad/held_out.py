"""Keep the questions of Spoken-SQuAD's tests that a reader was not trained on, and add the text.

    python recipes/spoken_squad/held_out.py SPOKEN_SQUAD OUT SQUAD.json ...
        SQUAD.json: the articles that were held out, in SQuAD's layout (exp/real_questions/squad
        has dev.json and test.json)

OUT has the tests with these questions alone, and their passages as written (dev-v1.1.json): a
source for run.sh. Paragraphs stay in their places, for recordings are known by them.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Paragraph = dict[str, Any]
Articles = list[dict[str, Any]]
Written = dict[str, tuple[str, dict[str, Any]]]  # by id: context and question


def read(path: Path) -> Articles:
    return json.loads(path.read_text("utf-8"))["data"]


def write(path: Path, articles: Articles) -> None:
    path.write_text(json.dumps({"version": "1.1", "data": articles}), "utf-8")


def by_question(paths: list[Path]) -> Written:
    """Return context and question by the question's id."""
    found = {}
    for path in paths:
        for article in read(path):
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    found[question["id"]] = paragraph["context"], question
    return found


def map_paragraphs(articles: Articles, change: Callable[[Paragraph], Paragraph]) -> Articles:
    """Return the articles with every paragraph changed, in its place."""
    return [article | {"paragraphs": [*map(change, article["paragraphs"])]} for article in articles]


def select(articles: Articles, written: Written) -> Articles:
    """Return the articles with the questions that are written somewhere, and no others."""

    def keep(paragraph: Paragraph) -> Paragraph:
        return paragraph | {"qas": [q for q in paragraph["qas"] if q["id"] in written]}

    return map_paragraphs(articles, keep)


def restore_written(articles: Articles, written: Written) -> Articles:
    """Replace contexts and questions of Spoken-SQuAD, which are transcripts, by those that are
    written in SQuAD."""

    def rewrite(paragraph: Paragraph) -> Paragraph:
        found = [written[q["id"]] for q in paragraph["qas"]]
        context = found[0][0] if found else paragraph["context"]
        return {"context": context, "qas": [question for _, question in found]}

    return map_paragraphs(articles, rewrite)


def main(source: Path, out: Path, squad: list[Path]) -> None:
    written = by_question(squad)
    tests = sorted(source.rglob("spoken_test*.json"))
    if not tests:
        sys.exit(f"speechssl: {source} has no spoken_test*.json; give the folder of Spoken-SQuAD")
    out.mkdir(parents=True, exist_ok=True)
    for path in tests:
        articles = select(read(path), written)
        write(out / path.name, articles)
        count = sum(len(p["qas"]) for article in articles for p in article["paragraphs"])
        print(f"{out / path.name}: {count:,} questions")
    write(out / "dev-v1.1.json", restore_written(articles, written))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
