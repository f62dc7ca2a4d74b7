"""Answers of a system that is not ours are scored as those of our own."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.artifacts import hash_files, hold_output
from speechssl.augment import parse_condition
from speechssl.data.records import TOLERANCE, Corpus, data_hash, guess_unit, load_corpus
from speechssl.data.tables import load_json
from speechssl.errors import InputError
from speechssl.eval.options import Predictions
from speechssl.eval.predict import prediction_path, read_card, read_predictions, write_items
from speechssl.eval.score import (
    METRICS,
    measure_scores,
    question_lines,
    score_questions,
    write_scores,
)
from speechssl.results import Row, append_rows, list_rows, read_rows, results_table

IMPORTED = "imported"  # in the card of a system that is not ours


def evaluate_predictions(o: Predictions) -> list[dict[str, Any]]:
    """Score the answers, print the table, and return the rows of `o.out`. Raises InputError as
    `import_predictions` does."""
    with hold_output(o.out):
        print(import_predictions(o))
        return list_rows(o.out)


def import_predictions(o: Predictions) -> str:
    """Score the predictions of another system, append the rows, and return the table of everything
    in `o.out`/results.jsonl.

    The file is JSON with one value a question: a text (SQuAD's format), a pair [start, end] in
    seconds, or an object with `text`, `start` and `end`, any of them left out; null or "" is no
    answer. Scores are over all questions that have an answer: those with no answer given and those
    that are not in the file are counted apart, and count 0. Raises InputError for a file that does
    not hold predictions, or one of a question that the split does not ask.
    """
    corpus, condition = load_corpus(o.corpus, o.split), parse_condition(o.condition)
    given = load_json(o.file)
    answers = _parse_answers(given, o.file, corpus)
    _check_seconds(o.file, answers, corpus)
    found = sum(q.id in given for q in corpus.answerable)
    counts = {
        "answered": len(answers),
        "with no answer given": found - len(answers),
        "not in the file": len(corpus.answerable) - found,
    }
    file_hash = hash_files([o.file])
    card = {
        "task": "qa",
        "made_from": file_hash,
        "data": data_hash(o.corpus, o.split),
        "seed": o.seed,
        "card": {IMPORTED: file_hash},
        "counts": counts,
        "failed": {},
    }
    path = prediction_path(o.out, o.name, condition)
    _check_others(path, file_hash)
    none = {"text": None, "start": None, "end": None}
    rows = []
    for question in corpus.answerable:
        answer = answers.get(question.id, none)
        row = {"id": question.id, "passage": question.passage, "answered": answer is not none}
        rows.append(row | answer | {"confidence": None})
    write_items(path, rows, card)
    predictions = read_predictions(path)
    scored = score_questions(predictions, corpus)
    results = []
    for metric, value in measure_scores(scored, METRICS, {}, corpus, o.seed).items():
        cell = ("qa", o.name, "", condition.short, condition.snr_db, metric)
        results.append(Row.from_interval(value, *cell, o.seed, file_hash))
    append_rows(o.out / "results.jsonl", results)
    lines = question_lines(scored, corpus, {})
    write_scores(o.out, o.name, condition, lines, corpus, predictions, encoder="", counts=counts)
    parts = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    return (
        f"{o.name}: {parts}; scores are over all {len(corpus.answerable):,} questions, of which "
        f"all but the answered count 0\n{results_table(read_rows(o.out / 'results.jsonl'))}"
    )


def _check_others(path: Path, file_hash: str) -> None:
    """Raise InputError where the folder of these predictions has a system of ours, or the file has
    those of another file; other conditions may be by other files."""
    for other in sorted(path.parent.glob("*.parquet")):
        card = read_card(other)
        ours = IMPORTED not in card["card"]
        if ours or (other == path and card["made_from"] != file_hash):
            what = "answers of a system of `evaluate`" if ours else "other predictions"
            raise InputError(
                f"{other} holds {what} called {path.parent.name}; give another --name, or another "
                "folder"
            )


def _parse_answers(given: Any, file: Path, corpus: Corpus) -> dict[str, dict[str, Any]]:
    """Return text, start and end of every question that has an answer and is answered."""
    if not isinstance(given, dict) or not given:
        raise InputError(
            f"{file} holds no answers; write a JSON object of question id -> "
            "answer, as SQuAD's scorer takes it"
        )
    ids = {q.id for q in corpus.questions}
    answerable = {q.id for q in corpus.answerable}
    answers = {}
    for name, value in given.items():
        if name not in ids:
            raise InputError(
                f"{file} has the question {name}, which is not in {corpus.root / corpus.split}; "
                "give its corpus and --split"
            )
        if name in answerable and value not in (None, ""):
            answer = _parse_answer(value)
            if answer is None:
                raise InputError(
                    f"{file}: the answer of {name} is {value!r}; give a text, [start, end] in "
                    "seconds (the start first), or an object with both"
                )
            answers[name] = answer
    return answers


def _parse_answer(value: Any) -> dict[str, Any] | None:
    """Return text, start and end; None for what is no answer."""
    if isinstance(value, str):
        return {"text": value, "start": None, "end": None}
    if isinstance(value, list) and len(value) == 2:
        value = {"start": value[0], "end": value[1]}
    if not isinstance(value, dict) or not value.keys() <= {"text", "start", "end"}:
        return None
    text, start, end = (value.get(name) for name in ("text", "start", "end"))
    if not isinstance(text, (str, type(None))):
        return None
    if start is None and end is None:
        return {"text": text, "start": None, "end": None} if text is not None else None
    for time in (start, end):
        if isinstance(time, bool) or not isinstance(time, (int, float)) or not math.isfinite(time):
            return None
    if not 0 <= start <= end:  # type: ignore[operator]
        return None
    return {"text": text, "start": start, "end": end}


def _check_seconds(file: Path, answers: Mapping[str, Mapping[str, Any]], corpus: Corpus) -> None:
    """Say on stderr how many answers end after their recordings, and in which unit they would not.

    Raises InputError where that is most of them: they are no seconds.
    """
    seconds = {q.id: corpus.passages[q.passage].seconds for q in corpus.questions}
    ends = {}
    for name, answer in answers.items():
        if answer["end"] is not None and seconds[name] > 0:
            ends[name] = answer["end"]
    beyond = [name for name, end in ends.items() if end > seconds[name] + TOLERANCE]
    if not beyond:
        return
    first = beyond[0]
    unit = guess_unit((end, seconds[name]) for name, end in ends.items())
    advice = f"the times look like {unit}: give seconds" if unit else "give seconds"
    sentence = (
        f"{file}: {len(beyond):,} of {len(ends):,} timed answers end after their passages (that of "
        f"{first} at {ends[first]:g} s, its passage at {seconds[first]:.2f} s); {advice}"
    )
    if 2 * len(beyond) > len(ends):
        raise InputError(f"{sentence} from where the recording begins")
    tqdm.write(sentence, file=sys.stderr)
