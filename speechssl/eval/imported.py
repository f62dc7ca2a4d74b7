"""Score answers that any other system has written to a file: `speechssl evaluate predictions`.

Rows, predictions and scores are those of `speechssl evaluate qa`, for `report` and `compare`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from tqdm import tqdm

from speechssl.artifacts import hash_files, hold_output
from speechssl.augment import parse_condition
from speechssl.data.files import load_json
from speechssl.data.records import (
    TOLERANCE,
    Corpus,
    guess_unit,
    hash_data,
    load_corpus,
    read_lines,
)
from speechssl.errors import InputError
from speechssl.eval.options import Predictions
from speechssl.eval.predict import (
    Rows,
    make_prediction_path,
    parse_predictions,
    read_card,
    write_items,
)
from speechssl.eval.score import (
    METRICS,
    make_question_lines,
    measure_scores,
    score_questions,
    write_scores,
)
from speechssl.results import Row, append_rows, format_results, list_rows, read_rows
from speechssl.schema import convert
from speechssl.text import split_answer_tokens

IMPORTED = "imported"  # key in the card of a system whose answers were imported


def evaluate_predictions(o: Predictions) -> list[dict[str, Any]]:
    """Score the answers, print the table, and return the rows of `o.out`. Raises InputError where
    `import_predictions` does."""
    with hold_output(o.out):
        print(import_predictions(o))
        return list_rows(o.out)


def import_predictions(o: Predictions) -> str:
    """Score the predictions of another system, append the rows, and return the table of everything
    in `o.out`/results.jsonl.

    The file is JSON with one value for each question: a text (SQuAD's format), a pair [start, end]
    in seconds, or an object with some of `text`, `start` and `end`; null or "" is no answer. A
    .jsonl is VoiceBench's (arXiv 2410.17196), whose main.py writes a line a question with its text,
    `prompt`, and its answer, `response`. Scores are over all answerable questions. Questions
    without an answer and those that are not in the file are counted separately, and score 0. Raises
    InputError for a file that holds no predictions or a question that is not in the split, and
    where `o.out` has answers of a system of `speechssl evaluate qa` under the same name.
    """
    corpus = load_corpus(o.corpus, o.split)
    condition = parse_condition(o.condition)
    is_voicebench = o.file.suffix == ".jsonl"
    values = _read_voicebench(o.file, corpus) if is_voicebench else load_json(o.file)
    answers = _parse_answers(values, o.file, corpus)
    _check_seconds(o.file, answers, corpus)
    path = make_prediction_path(o.out, o.name, condition)
    for other in sorted(path.parent.glob("*.parquet")):
        if IMPORTED not in read_card(other)["card"]:
            raise InputError(
                f"{other} holds answers of a system of `evaluate`; give another --name than "
                f"{o.name}, or another folder"
            )
    in_file = sum(q.id in values for q in corpus.answerable)
    counts = {
        "answered": len(answers),
        "with no answer given": in_file - len(answers),
        "not in the file": len(corpus.answerable) - in_file,
    }
    file_hash = hash_files([o.file])
    card = {
        "task": "qa",
        "made_from": file_hash,
        "data": hash_data(o.corpus, o.split),
        "seed": o.seed,
        "card": {IMPORTED: file_hash},
        "counts": counts,
        "failed": {},
    }
    rows = _make_rows(corpus, answers)
    write_items(path, rows, card)
    predictions = parse_predictions(rows, card)
    scores = score_questions(predictions, corpus)
    results = []
    for metric, interval in measure_scores(scores, METRICS, {}, corpus, o.seed).items():
        row = Row.from_interval(
            interval,
            task="qa",
            system=o.name,
            encoder="",
            condition=condition.short,
            snr_db=condition.snr_db,
            metric=metric,
            seed=o.seed,
            card=file_hash,
        )
        results.append(row)
    append_rows(o.out / "results.jsonl", results)
    lines = make_question_lines(scores, corpus, {})
    write_scores(o.out, o.name, condition, lines, corpus, predictions, encoder="", counts=counts)
    summary = f"{o.name}: {_summarise(answers, counts)}"
    return f"{summary}\n{format_results(read_rows(o.out / 'results.jsonl'))}"


def _make_rows(corpus: Corpus, answers: Mapping[str, Mapping[str, Any]]) -> Rows:
    """Make the rows of predictions, one for each answerable question."""
    rows = []
    for question in corpus.answerable:
        answer = answers.get(question.id, {})
        row = {
            "id": question.id,
            "passage": question.passage,
            "confidence": None,
            "answered": bool(answer),
            "text": answer.get("text"),
            "start": answer.get("start"),
            "end": answer.get("end"),
        }
        rows.append(row)
    return rows


def _summarise(answers: Mapping[str, Mapping[str, Any]], counts: Mapping[str, int]) -> str:
    """Describe how many questions were answered, and in which forms."""
    with_times = sum(answer["start"] is not None for answer in answers.values())
    with_text = sum(answer["text"] is not None for answer in answers.values())
    counts_text = ", ".join(f"{count:,} {label}" for label, count in counts.items())
    return (
        f"{counts_text}; scores are over all {sum(counts.values()):,} questions, of which all but "
        f"the answered count 0; of the answers {with_times:,} have times and {with_text:,} text"
    )


@dataclass(frozen=True)
class VoiceBenchLine:
    """A line of VoiceBench has these fields, besides `reference` and the judge's `score`, which are
    not used."""

    prompt: str
    response: str


def _read_voicebench(file: Path, corpus: Corpus) -> dict[str, str]:
    """Read responses by the ids of questions. As the file has no ids, a prompt stands for all
    questions that have the same words (`split_answer_tokens`).

    Says on stderr how many prompts are no questions of the split. Raises InputError where all are
    none.
    """
    ids: dict[tuple[str, ...], list[str]] = {}
    for question in corpus.questions:
        words = tuple(split_answer_tokens(question.written, question.language))
        ids.setdefault(words, []).append(question.id)
    by_prompt: dict[tuple[str, ...], list[str]] = {}  # words of a prompt -> its responses
    prompts = unknown = 0  # numbers of prompts
    for number, values in read_lines(file):
        line = convert(values, VoiceBenchLine, f"{file}:{number}", "give a file of VoiceBench")
        words = tuple(split_answer_tokens(line.prompt, corpus.language))
        by_prompt.setdefault(words, []).append(line.response)
        prompts += 1
        unknown += words not in ids
    responses: dict[str, str] = {}
    for words in by_prompt.keys() & ids.keys():
        if len(set(by_prompt[words])) == 1:
            responses |= dict.fromkeys(ids[words], by_prompt[words][0])
        elif len(by_prompt[words]) == len(ids[words]):  # a line a question, in their order
            responses |= dict(zip(ids[words], by_prompt[words], strict=True))
        else:
            raise InputError(
                f"{file}: the prompt {' '.join(words)!r} has {len(by_prompt[words])} responses for "
                f"{len(ids[words])} questions of these words; give one for each"
            )
    sentence = (
        f"{file}: {unknown:,} of {prompts:,} prompts are no questions of "
        f"{corpus.root / corpus.split}"
    )
    if not responses:
        raise InputError(f"{sentence}; give its corpus and --split")
    if unknown:
        tqdm.write(f"{sentence}; left out", file=sys.stderr)
    return responses


def _parse_answers(values: Any, file: Path, corpus: Corpus) -> dict[str, dict[str, Any]]:
    """Return text, start and end for every answerable question that is answered. values: the
    content of the file, by question."""
    values = convert(
        values,
        dict[str, Any],
        file,
        "write a JSON object of question id -> answer, as SQuAD's scorer takes it",
    )
    if not values:
        raise InputError(f"{file} holds no answers; write one for every question id")
    ids = {q.id for q in corpus.questions}
    answerable = {q.id for q in corpus.answerable}
    answers = {}
    for name, value in values.items():
        if name not in ids:
            raise InputError(
                f"{file} has the question {name}, which is not in {corpus.root / corpus.split}; "
                "give its corpus and --split"
            )
        if name in answerable and value not in (None, ""):
            if isinstance(value, str):
                value = {"text": value}
            elif isinstance(value, list) and len(value) == 2:
                value = {"start": value[0], "end": value[1]}
            remedy = "give a text, [start, end] in seconds, or an object with both"
            answer = convert(value, Answer, f"{file}, the answer of {name}", remedy)
            answers[name] = msgspec.structs.asdict(answer)
    return answers


class Answer(msgspec.Struct, forbid_unknown_fields=True):
    """An answer of another system has a text, times in seconds, or both."""

    text: str | None = None
    start: float | None = None
    end: float | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is no answer."""
        times = [time for time in (self.start, self.end) if time is not None]
        if len(times) == 1 or (not times and self.text is None):
            raise ValueError("something of it is missing")
        if times and not 0 <= times[0] <= times[1] < math.inf:
            raise ValueError("it does not end after its start")


def _check_seconds(file: Path, answers: Mapping[str, Mapping[str, Any]], corpus: Corpus) -> None:
    """Warn on stderr of answers that end after their passages. Raises InputError where more than
    half of them do, which shows that they are not in seconds, and names the unit of time in which
    they would not."""
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
        f"{first} at {ends[first]:g} s, its passage at {seconds[first]:.2f} s); {advice} from "
        "where the recording begins"
    )
    if 2 * len(beyond) > len(ends):
        raise InputError(sentence)
    tqdm.write(sentence, file=sys.stderr)
