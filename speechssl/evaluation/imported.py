"""Answers of a system that is not ours, scored as ours are and put beside them.

A JSON file of predictions has one value a question: a text (SQuAD's format), a pair [start, end] in seconds, or an object with
`text`, `start` and `end`, any of them left out; null or "" is no answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechssl.artefacts import hash_files, read_json, write_json
from speechssl.corpora.records import Corpus, data_hash, load_corpus
from speechssl.errors import InputError
from speechssl.evaluation.results import append_rows, read_rows, table
from speechssl.evaluation.spoken_qa import keep_scores, prediction_path, score
from speechssl.noise import Condition, parse_condition

FIELDS = ("text", "start", "end")


@dataclass(frozen=True)
class Imported:
    """A system that is known by its answers alone."""

    name: str
    card: Mapping[str, Any]


def import_predictions(corpus: Path, out: Path, file: Path, name: str, split: str, condition: str = "clean", seed: int = 0) -> str:
    """Score the predictions, append the rows, and return the table of everything in `out`/results.jsonl.

    condition: that in which they were made. Questions without a prediction count as not answered. Raises InputError for a file that
    does not hold predictions, or one of a question that the split does not ask.
    """
    if Path(name).name != name:  # a folder is called so
        raise InputError(f"{name!r} cannot be the name of a system; give a --name without slashes")
    data, heard = load_corpus(corpus, split), parse_condition(condition)
    answers = _answers(file, data)
    system = Imported(name, {"imported": hash_files([file])})
    kept = {
        "made_from": system.card["imported"],
        "data": data_hash(corpus, split),
        "seed": seed,
        "answers": answers,
        "transcripts": {},
        "failed": {},
    }
    _write(out, system, heard, kept)
    append_rows(out / "results.jsonl", score(kept, data, heard, system, seed, ""))
    keep_scores(out, kept, data, heard, system, "")
    left = sum(q.id not in answers for q in data.answerable)
    said = f"{len(answers):,} answers of {name}; {left:,} questions have none and count as not answered\n"
    return said + table(read_rows(out / "results.jsonl"))


def _write(out: Path, system: Imported, condition: Condition, kept: dict[str, Any]) -> None:
    path = prediction_path(out, system, condition)
    if path.is_file() and read_json(path).get("made_from") != kept["made_from"]:
        raise InputError(f"{path} holds other predictions called {system.name}; give another --name or remove them")
    write_json(path, kept)


def _answers(file: Path, data: Corpus) -> dict[str, dict[str, Any]]:
    found = read_json(file)
    if not isinstance(found, dict) or not found:
        raise InputError(f"{file} is not a JSON object of question -> answer; write one as SQuAD's scorer takes it")
    known = {q.id for q in data.questions}
    if unknown := [name for name in found if name not in known]:
        raise InputError(
            f"{file} answers {unknown[0]}, which {data.root / data.split} does not ask; name the corpus and its --split"
        )
    answerable = {q.id for q in data.answerable}
    return {name: _answer(file, name, value) for name, value in found.items() if name in answerable and value not in (None, "")}


def _answer(file: Path, name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        value = {"text": value}
    elif isinstance(value, list) and len(value) == 2:
        value = dict(zip(FIELDS[1:], value, strict=True))
    if not isinstance(value, dict) or not value.keys() <= set(FIELDS) or not _is_answer(*map(value.get, FIELDS)):
        raise InputError(f"{file}: the answer of {name} is {value!r}; give a text, [start, end] in seconds, or an object with both")
    return {**dict.fromkeys(FIELDS), **value, "confidence": None}


def _is_answer(text: Any, start: Any, end: Any) -> bool:
    if text is not None and not isinstance(text, str):
        return False
    if start is None and end is None:
        return text is not None
    numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x) for x in (start, end))
    return numbers and 0 <= start <= end
