"""Keep the questions of Spoken-SQuAD's tests that a reader was not trained on, and add the text.

    python recipes/spoken_squad/held_out.py SPOKEN_SQUAD OUT SQUAD.json ...
        SQUAD.json: the articles that were held out, in SQuAD's layout (exp/real_questions/squad
        has dev.json and test.json)

The contexts of Spoken-SQuAD are transcripts. OUT gets its tests with the questions of SQUAD.json
alone, and dev-v1.1.json, which has the same questions with the contexts of SQuAD: a source for
run.sh. Paragraphs stay in their places, for recordings are called by these.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from speechssl.cli import run_program
from speechssl.errors import InputError

Paragraph = dict[str, Any]  # of SQuAD: "context" and "qas"
Articles = list[dict[str, Any]]


class SquadQuestion(NamedTuple):
    """A question of SQuAD has the context that it is about."""

    context: str
    question: dict[str, Any]


SquadQuestions = dict[str, SquadQuestion]  # by id


def read_articles(path: Path) -> Articles:
    return json.loads(path.read_text("utf-8"))["data"]


def write_articles(path: Path, articles: Articles) -> None:
    path.write_text(json.dumps({"version": "1.1", "data": articles}), "utf-8")


def read_squad(paths: Iterable[Path]) -> SquadQuestions:
    """Read the questions of files of SQuAD."""
    questions = {}
    for path in paths:
        for article in read_articles(path):
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    questions[question["id"]] = SquadQuestion(paragraph["context"], question)
    return questions


def select_questions(paragraph: Paragraph, squad: SquadQuestions) -> Paragraph:
    """Return the paragraph with those questions alone that are in SQuAD's files."""
    return paragraph | {"qas": [q for q in paragraph["qas"] if q["id"] in squad]}


def restore_text(paragraph: Paragraph, squad: SquadQuestions) -> Paragraph:
    """Return the paragraph with context and questions of SQuAD; the context of a paragraph without
    questions stays."""
    originals = [squad[q["id"]] for q in paragraph["qas"]]
    context = originals[0].context if originals else paragraph["context"]
    return {"context": context, "qas": [original.question for original in originals]}


def change_paragraphs(
    articles: Articles,
    change: Callable[[Paragraph, SquadQuestions], Paragraph],
    squad: SquadQuestions,
) -> Articles:
    """Return the articles with every paragraph changed, in its place."""
    changed = []
    for article in articles:
        changed.append(article | {"paragraphs": [change(p, squad) for p in article["paragraphs"]]})
    return changed


def main(source: Path, out: Path, *squad_files: Path) -> None:
    squad = read_squad(squad_files)
    tests = sorted(source.rglob("spoken_test*.json"))
    if not tests:
        raise InputError(f"{source} has no spoken_test*.json; give the folder of Spoken-SQuAD")
    out.mkdir(parents=True, exist_ok=True)
    for path in tests:
        articles = change_paragraphs(read_articles(path), select_questions, squad)
        write_articles(out / path.name, articles)
        count = sum(len(p["qas"]) for article in articles for p in article["paragraphs"])
        print(f"{out / path.name}: {count:,} questions")
    # all tests have the same passages and questions, at other error rates
    write_articles(out / "dev-v1.1.json", change_paragraphs(articles, restore_text, squad))


if __name__ == "__main__":
    run_program(main)
