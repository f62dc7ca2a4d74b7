"""The SQuAD / DRCD family of JSON files: SQuAD 1.1 and 2.0 (arXiv 1606.05250, 1806.03822), DRCD (arXiv 1806.00920) and what is
made in their image.

`{"version", "data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text", "answer_start"}]}]}]}]}`.
DRCD adds ids to articles, paragraphs and answers; SQuAD 2.0 adds `is_impossible` and `plausible_answers`; answers may also be one
dict of lists, as in Hugging Face's tables. Titles, ids and `qas` may be missing. What a file says is read as it stands:
`squad_records.py` judges it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechssl.errors import InputError

SHAPE = '{"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text", "answer_start"}]}]}]}]}'


@dataclass(frozen=True)
class Gold:
    """One annotation of an answer. start: characters from the beginning of the context, None where nothing usable is said."""

    text: str
    start: int | None


@dataclass(frozen=True)
class Asked:
    """A question of a file."""

    id: str  # "" where it has none
    text: str
    golds: tuple[Gold, ...]
    impossible: bool | None = None  # None where the file does not say
    heard: str = ""  # what a recogniser made of it, where that stands beside the text


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of a file. article, number: its place, counted from 0."""

    article: int
    number: int
    id: str  # "" where it has none
    title: str
    context: str
    asked: tuple[Asked, ...]

    @property
    def place(self) -> str:
        """A name for a paragraph without an id, and that of its recordings in Spoken-SQuAD."""
        return f"{self.article}_{self.number}"


def read_squad(path: Path) -> list[Paragraph]:
    """Every paragraph of a file in its order.

    Raises InputError (one sentence that names the file) for one that cannot be read, is not whole JSON, or is of another schema.
    """
    articles = _list(_load(path), "data", path, "it")
    return [paragraph for number, article in enumerate(articles) for paragraph in _paragraphs(number, article, path)]


def is_squad(path: Path) -> bool:
    """Whether a JSON file begins as one of the family does; a file that is not whole JSON is for `read_squad` to refuse."""
    try:
        return isinstance(_list(_load(path), "data", path, "it"), list)
    except InputError as error:
        return isinstance(error.__cause__, ValueError | RecursionError)


def read_golds(answers: Any) -> tuple[Gold, ...]:
    """A list of dicts, a dict of lists, or one dict. Raises TypeError for anything else."""
    if answers is None:
        return ()
    if isinstance(answers, dict):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if not isinstance(texts, list):
            return read_golds([answers]) if texts is not None else ()
        starts = starts if isinstance(starts, list) else []
        answers = [{"text": t, "answer_start": s} for t, s in zip(texts, starts + [None] * len(texts), strict=False)]
    if not isinstance(answers, list) or not all(isinstance(a, dict) for a in answers):
        raise TypeError("its answers are not a list of answers")
    return tuple(Gold(as_text(a.get("text")), _offset(a.get("answer_start"))) for a in answers)


def as_text(value: Any) -> str:
    """Text that can be written: a number as its digits, nothing as "", and half a surrogate pair as U+FFFD (offsets stay)."""
    text = "" if value is None else str(value)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}); check the path") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not whole JSON ({error}); copy or download it again") from error


def _paragraphs(number: int, article: Any, path: Path) -> Iterator[Paragraph]:
    title = as_text(article.get("title")) if isinstance(article, dict) else ""
    for i, paragraph in enumerate(_list(article, "paragraphs", path, f"data[{number}]")):
        place = f"data[{number}].paragraphs[{i}]"
        if not isinstance(paragraph, dict) or not isinstance(paragraph.get("context"), str):
            raise _foreign(path, f"{place} has no text called context")
        asked = tuple(_asked(q, path, f"{place}.qas[{j}]") for j, q in enumerate(_questions(paragraph, path, place)))
        yield Paragraph(number, i, as_text(paragraph.get("id")), title, as_text(paragraph["context"]), asked)


def _questions(paragraph: dict[str, Any], path: Path, place: str) -> Sequence[Any]:
    return _list(paragraph, "qas", path, place) if paragraph.get("qas") is not None else ()


def _asked(question: Any, path: Path, place: str) -> Asked:
    if not isinstance(question, dict) or "question" not in question:
        raise _foreign(path, f"{place} has no question")
    try:
        golds = read_golds(question.get("answers"))
    except TypeError as error:
        raise _foreign(path, f"{place}: {error}") from error
    impossible = question.get("is_impossible")
    stated = bool(impossible) if impossible is not None else None
    return Asked(as_text(question.get("id")), as_text(question["question"]), golds, stated)


def _list(value: Any, name: str, path: Path, place: str) -> list[Any]:
    if not isinstance(value, dict) or not isinstance(value.get(name), list):
        raise _foreign(path, f"{place} has no list called {name}")
    found: list[Any] = value[name]
    return found


def _foreign(path: Path, why: str) -> InputError:
    return InputError(f"{path} is not SQuAD or DRCD JSON ({why}); expected {SHAPE}")


def _offset(value: Any) -> int | None:
    """Characters; None for what is no count of them, such as -1, which some files write for "unknown"."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number >= 0 and number.is_integer() else None
