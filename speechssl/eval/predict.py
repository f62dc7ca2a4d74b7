"""Predict a system's answers from features, a row for each question: step 2 of an evaluation.

`predictions/<system>/<condition>.parquet` has the rows of a system under a condition, and in the
metadata of its schema their card. A file is whole or absent. It is made again where its inputs have
changed, and where recordings failed, which may have been mended. `pandas.read_parquet` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from speechssl.artifacts import hash_json, replace_file
from speechssl.augment import Condition
from speechssl.data.records import Corpus, Question
from speechssl.errors import InputError, cut_error

if TYPE_CHECKING:
    from speechssl.dual.system import TimedAnswer
    from speechssl.systems import System

BATCH = 64  # questions that are answered together
CARD = b"speechssl"  # key of the card in the metadata of the schema
Rows = list[dict[str, Any]]


# ---- files: a row for each item, and a card


def write_items(path: Path, rows: Rows, card: Mapping[str, Any]) -> None:
    """Write rows, which have the same columns, and their card, which names their inputs."""
    table = pa.Table.from_pylist(rows)
    text = json.dumps(card, sort_keys=True, ensure_ascii=False)
    with replace_file(path) as temporary:
        pq.write_table(table.replace_schema_metadata({CARD: text.encode()}), temporary)


def read_items(path: Path) -> tuple[Rows, dict[str, Any]]:
    """Read the rows and the card. Raises InputError as `read_card` does."""
    card = read_card(path)
    with pq.ParquetFile(path) as file:
        return file.read(use_threads=False).to_pylist(), card


def read_card(path: Path) -> dict[str, Any]:
    """Read the card alone. Raises InputError for a file that is damaged or of another program."""
    try:
        return dict(json.loads(pq.read_schema(path).metadata[CARD]))
    except (pa.ArrowException, KeyError, TypeError) as error:
        raise InputError(
            f"cannot read {path} ({cut_error(error)}); delete it and evaluate again"
        ) from error


def is_current(path: Path, made_from: str) -> bool:
    """Return whether a file exists, was made from the same inputs, and no recording failed."""
    if not path.is_file():
        return False
    card = read_card(path)
    return card["made_from"] == made_from and not card["failed"]


def make_prediction_path(out: Path, system: str, condition: Condition) -> Path:
    """Make the path of the predictions of a system under a condition."""
    return out / "predictions" / system / f"{condition.label.replace(' ', '-')}.parquet"


def read_predictions(path: Path) -> dict[str, Any]:
    """Read a file of predictions, in the form of `parse_predictions`."""
    return parse_predictions(*read_items(path))


def parse_predictions(rows: Rows, card: Mapping[str, Any]) -> dict[str, Any]:
    """Return the card of predictions, with the `rows`, the `transcripts` of passages and questions
    by id, and in spoken question answering the `answers` of answered questions by id."""
    predictions = {**card, "rows": rows, "transcripts": {}}
    for row in rows:
        for record, name in (("passage", row["passage"]), ("question", row["id"])):
            transcript = row.get(f"{record}_transcript")
            if transcript is not None:
                predictions["transcripts"][name] = transcript
    if card["task"] == "qa":
        predictions["answers"] = {row["id"]: row for row in rows if row["answered"]}
    return predictions


# ---- spoken question answering


def answer_questions(
    system: System, corpus: Corpus, features: Mapping[str, Any], where: str
) -> Rows:
    """Make a row for every answerable question; unknown times are None.

    features: those of the recordings, by id; a question is not answered where its own or those of
    its passage are missing. where: the condition, for the progress bar.
    """
    encoded = [q for q in corpus.answerable if q.id in features and q.passage in features]
    items = [(features[q.id], features[q.passage]) for q in encoded]
    answers: list[TimedAnswer] = []
    starts = range(0, len(items), BATCH)
    for start in tqdm(starts, f"{system.name} answers, {where}", unit="batch", disable=not items):
        answers += system.answer_all(items[start : start + BATCH])
    by_id = {q.id: asdict(answer) for q, answer in zip(encoded, answers, strict=True)}
    rows = []
    for question in corpus.answerable:
        answer = by_id.get(question.id, {})
        row = describe_question(question, features) | {"answered": bool(answer)}
        for name in ("text", "start", "end", "confidence"):
            value = answer.get(name)
            is_nan = value != value
            row[name] = None if is_nan else value
        rows.append(row)
    return rows


def describe_question(question: Question, features: Mapping[str, Any]) -> dict[str, Any]:
    """Make the first columns of a question's row: the ids of question and passage, and the
    transcripts of both, which are None without a recogniser."""
    row: dict[str, Any] = {"id": question.id, "passage": question.passage}
    for name, record in (("question", question.id), ("passage", question.passage)):
        # of the features only a `Transcript` has a text
        row[f"{name}_transcript"] = getattr(features.get(record), "text", None)
    return row


# ---- names of systems and their folders


def check_names(systems: Sequence[Any], out: Path) -> None:
    """Raise InputError where different systems would share a folder of predictions in `out`, now or
    with an earlier evaluation."""
    for system in systems:
        cards = [("this call", other.card) for other in systems if other.name == system.name]
        for path in sorted((out / "predictions" / system.name).glob("*.parquet")):
            cards.append((str(path), read_card(path)["card"]))
        for where, card in cards:
            key = find_difference(card, system.card)
            if key:
                raise InputError(
                    f"{where} has a system {system.name} with another {key} ({card.get(key)}); "
                    "evaluate this one into another folder"
                )


def find_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Find a key in which two cards differ; "" where they belong to the same system."""
    for key in {**new, **old}:
        if hash_json(old.get(key)) != hash_json(new.get(key)):
            return key
    return ""
