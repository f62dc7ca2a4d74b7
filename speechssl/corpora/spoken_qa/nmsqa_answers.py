"""The answers of a row of NMSQA's Parquet tables, in whatever form a table has them.

Published is a record of lists: `{"text": [...], "answer_start": [...], "audio_full_answer_start": [...], ...}`. Read as such are
also a list of records (SQuAD's JSON), either of both as JSON text, texts alone, and columns of these names: `answer_start`,
`answers.text`, `answers_text`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from speechssl.corpora.spoken_qa.tables import list_of

TIMES = tuple(f"audio_{kind}_answer_{end}" for kind in ("full", "segment", "full_neg") for end in ("start", "end"))
FIELDS = ("text", "answer_start", *TIMES)
TEXTS = ("answers.text", "answers_text", "answer_text", "answer")  # columns that hold nothing but texts

Lists = dict[str, list[Any]]


def answers_of(cells: Mapping[str, Any]) -> Lists | None:
    """Field -> its values; None where the row says nothing at all about its answers."""
    flat = {name: value for name in FIELDS if (value := _column(cells, name)) is not None}
    found = _lists(_plain(cells.get("answers")))
    if found is None and not flat:
        return None
    return {name: [*list_of(_plain(flat.get(name)))] for name in FIELDS if name in flat} | (found or {})


def _column(cells: Mapping[str, Any], name: str) -> Any:
    """The first column of this meaning that says something."""
    columns = TEXTS if name == "text" else (f"answers.{name}", f"answers_{name}", name)
    return next((cells[column] for column in columns if list_of(cells.get(column))), None)


def _plain(cell: Any) -> Any:
    """What JSON text says; any other value as it stands."""
    if not isinstance(cell, str) or not cell.lstrip().startswith(("{", "[")):
        return cell
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell  # an answer may begin with a bracket


def _lists(answers: Any) -> Lists | None:
    """A record of lists, of one answer or of none; None for what says nothing of texts or times."""
    if isinstance(answers, str):
        return {"text": [answers]} if answers.strip() else None
    if isinstance(answers, list):
        return _merged(answers)
    if not isinstance(answers, dict):
        return None
    found = {name: list_of(answers[name]) for name in FIELDS if answers.get(name) is not None}
    return found if "text" in found or any(found.values()) else None


def _merged(answers: list[Any]) -> Lists:
    """Of a list of records or texts. Texts and offsets stay side by side; a record may have several times, or none."""
    records = [a if isinstance(a, dict) else {"text": a} for a in (_plain(a) for a in answers) if isinstance(a, (dict, str))]
    named = [(text, start) for r in records for text, start in _texts(r)]
    times = {name: [v for r in records for v in list_of(r.get(name))] for name in TIMES}
    return {"text": [text for text, _ in named], "answer_start": [start for _, start in named]} | times


def _texts(record: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    texts, starts = list_of(record.get("text")), list_of(record.get("answer_start"))
    return list(zip(texts, starts + [None] * len(texts), strict=False))
