"""TOEFL-QA: a text file a question, with its whole story, its four options, and after each whether it is right."""

from __future__ import annotations

import random
from pathlib import Path

from speechssl.artefacts import write_text
from speechssl.corpora.miniature.telling import Asked, Content, Told

KINDS = ("conversation", "lecture")


def write_toefl_qa(told: Content, root: Path, rng: random.Random) -> None:
    """The first question of every split has two right options, as one in seven of the published."""
    for split, passages in told.items():
        for t in passages:
            story = f"tpo_{90 + t.index}-{KINDS[t.index % len(KINDS)]}_1"
            for i, question in enumerate(t.questions):
                right = {question.source.correct} | ({(question.source.correct + 1) % 4} if t.index == i == 0 else set())
                write_text(root / "data" / split / f"{story}_{i + 1}", _file(t, question, right))


def _file(told: Told, question: Asked, right: set[int]) -> str:
    answer = question.source.options[question.source.correct]
    options = [o if i not in right or o == answer else f"it was the {answer}" for i, o in enumerate(question.source.options)]
    lines = [f"SENTENCE {sentence} ." for sentence in told.spoken] + [f"QUESTION {question.spoken}"]
    return "\n".join([*lines, *(f"OPTION {text} {int(i in right)}" for i, text in enumerate(options))]) + "\n"
