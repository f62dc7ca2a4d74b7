"""One question of NMSQA as either release has it, before anybody asks which of its times are right.

Recordings are named `context-{article}_{paragraph}` (passage), the same with `_{segment}`, and
`question-{article}_{paragraph}_{number}`; in test `{source}-{id}-c`, the same with `-{segment}`, and `{source}-{id}-q`.
Names are kept without folder and suffix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speechssl.corpora.spoken_qa.nmsqa_answers import answers_of
from speechssl.corpora.spoken_qa.tables import check_columns, columns_of, intervals, list_of, number_of, read_parquet, text_of

QUESTIONS = ("question", "question_text", "question_normalized_text")  # columns, the first that says something
RECORDED = "question_audio_path"
IDS = ("id", "question_id", "qid", "hash")
SEGMENT = re.compile(r"(.+)[-_](\d+)")
NUMBERS = re.compile(r"\d+(_\d+)+")  # derived tables leave out what stands before them

Interval = tuple[float, float]  # seconds


@dataclass(frozen=True)
class Timed:
    """Where an answer is said, as released: in seconds from the beginning of a segment, and of the passage."""

    segment: str  # recording of the sentence, "" where the table does not say
    within: Interval | None
    whole: Interval | None
    text: str = ""  # what is said there, "" where the table does not say which of the texts it is


@dataclass(frozen=True)
class Row:
    """A question. texts: (answer, its offset in the context or None); None where there is no list of answers at all."""

    id: str
    passage: str  # recording of the passage, "" where there is none
    recording: str  # of the question, "" where there is none
    context: str
    question: str
    texts: tuple[tuple[str, int | None], ...] | None
    times: tuple[Timed, ...]
    speaker: str = ""
    asker: str = ""
    segments: Mapping[str, str] = field(default_factory=dict)  # segment -> its text, as far as the row says
    others: int = 0  # times of other occurrences of the words, which are no answers


def parquet_rows(path: Path) -> Iterator[Row]:
    """Whatever columns there are beside the questions. Raises InputError for a file that is damaged or is no table of NMSQA."""
    columns = columns_of(path)
    if RECORDED not in columns and not any(name in columns for name in QUESTIONS):
        check_columns(path, columns, QUESTIONS[:1], "NMSQA")
    for cells in read_parquet(path):
        yield _row(cells, answers_of(cells))


def _row(cells: Mapping[str, Any], answers: Mapping[str, Any] | None) -> Row:
    segment = stem(cells.get("content_segment_audio_path"))
    passage = stem(cells.get("content_full_audio_path")) or passage_of(segment)
    said = _said(cells, "content_segment_text", "content_segment_normalized_text")
    context = _said(cells, "context", "passage", "content_full_text", "content_text")
    return Row(
        _said(cells, *IDS),
        passage,
        stem(cells.get(RECORDED)),
        context if context or segment else said,
        _said(cells, *QUESTIONS),
        None if answers is None else _texts(answers),
        tuple(_times(answers or {}, "" if segment == passage else segment)),
        text_of(cells.get("content_audio_speaker")),
        text_of(cells.get("question_audio_speaker")),
        {segment: said} if segment and said else {},
        len(list_of((answers or {}).get("audio_full_neg_answer_start"))),
    )


def _said(cells: Mapping[str, Any], *names: str) -> str:
    """The first of some columns that says something."""
    return next((text for name in names if (text := text_of(cells.get(name))).strip()), "")


def _texts(answers: Mapping[str, Any]) -> tuple[tuple[str, int | None], ...]:
    texts, offsets = list_of(answers.get("text")), list_of(answers.get("answer_start"))
    offsets += [None] * (len(texts) - len(offsets))
    return tuple((text_of(t), _offset(o)) for t, o in zip(texts, offsets, strict=False))


def _offset(value: Any) -> int | None:
    """A table in which one row lacks its offsets has those of all rows as floating-point numbers."""
    number = number_of(value)
    return int(number) if number is not None and number.is_integer() else None


def _times(answers: Mapping[str, Any], segment: str) -> Iterator[Timed]:
    """Both readings of every time. What is called neg is another occurrence of the words, no answer, and is not read."""
    within = intervals(answers, "audio_segment_answer_start", "audio_segment_answer_end")
    whole = intervals(answers, "audio_full_answer_start", "audio_full_answer_end")
    for i in range(max(len(within), len(whole))):
        yield Timed(segment, within[i] if i < len(within) else None, whole[i] if i < len(whole) else None)


def stem(path: Any) -> str:
    """A recording's name without folder and suffix."""
    name = text_of(path).replace("\\", "/").rsplit("/", 1)[-1]
    return re.sub(r"\.(mp3|wav|flac|ogg)$", "", name, flags=re.IGNORECASE)


def passage_of(segment: str) -> str:
    """`context-0_0_1` is a segment of `context-0_0`."""
    found = SEGMENT.fullmatch(segment)
    return found[1] if found else ""


def segment_of(passage: str, number: int) -> str:
    return f"{passage}{'-' if passage.endswith('-c') else '_'}{number}"


def is_segment(name: str) -> bool:
    return bool(re.fullmatch(r"(context-)?\d+_\d+_\d+|.+-c[-_]\d+", name))


def by_passage(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """Passage -> number -> recording of its sentence, of all names that could be such."""
    found: dict[str, dict[int, str]] = {}
    for name in names:
        if match := SEGMENT.fullmatch(name):
            found.setdefault(match[1], {})[int(match[2])] = name
    return found
