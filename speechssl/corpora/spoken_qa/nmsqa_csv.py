"""The original release of NMSQA: a line an annotation in `{split}-answer-span.csv`, a line a recording in `meta-{split}.csv`.

Texts come from `{split}-v1.1.json` of SQuAD where that lies beside them, else from the meta tables: a passage's is that of its
segments, one after another. Annotations name a segment and times in it (`utterance`, `start`, `end`), a passage and times in it
(`context_id`, `new_start`, `new_end`), or both. Times of 0 to 0 are what the aligner wrote where it did not find the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from speechssl.corpora.spoken_qa.nmsqa_files import HASH, NAME, Files, listed
from speechssl.corpora.spoken_qa.nmsqa_rows import NUMBERS, Interval, Row, Timed, by_passage, is_segment, passage_of, stem
from speechssl.corpora.spoken_qa.tables import number_of, read_csv, text_of
from speechssl.errors import InputError

SEGMENTS = ("utterance", "utterance_id", "segment_id", "segment")
PASSAGES = ("context_id", "name_id", "passage_id", "utterance_id")
ANSWERS = ("answer", "answer_text", "text")
TEXTS = ("text", "transcription", "normalized_text")

Cells = Mapping[str, str]


@dataclass(frozen=True)
class About:
    """What a meta table says of a recording."""

    text: str
    speaker: str
    seconds: float | None


def read_about(paths: Iterable[Path]) -> dict[str, About]:
    """By recording. Raises InputError for a file that is no CSV."""
    found: dict[str, About] = {}
    for path in paths:
        for cells in read_csv(path):
            name = stem(first(cells, NAME))
            found.setdefault(name, About(first(cells, TEXTS), cells.get("speaker", ""), number_of(cells.get("duration"))))
    return found


def first(cells: Cells, names: Iterable[str]) -> str:
    """The first of some columns that says something."""
    return next((cells[name] for name in names if cells.get(name, "").strip()), "")


@dataclass(frozen=True)
class Release:
    """The tables of a split, read."""

    files: Files
    about: Mapping[str, About]
    squad: Mapping[str, Mapping[str, Any]]

    @cached_property
    def segments(self) -> dict[str, dict[int, str]]:
        return by_passage(self.about)

    def of_passage(self, passage: str) -> dict[str, str]:
        """The recordings of a passage's sentences and their texts, in order: of those that the release lists, where it does."""
        found, numbers = self.segments.get(passage, {}), listed(self.files, passage)
        return {found[n]: self.about[found[n]].text for n in sorted(found) if numbers is None or n in numbers}


def csv_rows(files: Files, about: Mapping[str, About]) -> Iterator[Row]:
    """The questions in the order of the tables, then those that have texts or a recording and no annotation."""
    release = Release(files, about, dict(_squad(files.squad)))
    groups: dict[str, list[Cells]] = {}
    for path in files.spans:
        for cells in read_csv(path):
            groups.setdefault(first(cells, HASH), []).append(cells)
    for name in (*groups, *(i for i in {**files.questions, **release.squad} if i not in groups)):
        yield _row(name, groups.get(name, []), release)


def _row(name: str, lines: list[Cells], release: Release) -> Row:
    recording = stem(release.files.questions.get(name)) or next((stem(c["question"]) for c in lines if c.get("question")), "")
    times = tuple(dict.fromkeys(_timed(cells) for cells in lines))
    passage = next((p for cells in lines if (p := _passage(cells))), "") or _passage_of_question(recording)
    recording = recording or (f"{passage[:-1]}q" if passage.endswith("-c") else "")
    context, question, texts = _texts(name, passage, recording, times, release)
    known = bool(lines) or name in release.squad
    speakers = (release.about[s].speaker for s in (passage, *release.of_passage(passage)) if s in release.about)
    asker = release.about[recording].speaker if recording in release.about else ""
    said = release.of_passage(passage)
    return Row(name, passage, recording, context, question, texts if known else None, times, next(speakers, ""), asker, said)


def _texts(
    name: str, passage: str, recording: str, times: tuple[Timed, ...], release: Release
) -> tuple[str, str, tuple[tuple[str, int | None], ...]]:
    """Context, question and answers: SQuAD's where it is there, else what the meta tables say."""
    if squad := release.squad.get(name):
        return squad["context"], squad["question"], squad["answers"]
    said = release.of_passage(passage)
    context = " ".join(filter(None, said.values())) or _text(passage, release.about)
    found = dict.fromkeys(_found(time, context, said) for time in times if time.text)
    return context, _text(recording, release.about), tuple(found)


def _text(name: str, about: Mapping[str, About]) -> str:
    return about[name].text if name in about else ""


def _found(time: Timed, context: str, segments: Mapping[str, str]) -> tuple[str, int | None]:
    """An answer and its offset in the context, looked for from where its segment begins."""
    begin = context.find(segments.get(time.segment, "")) if time.segment in segments else 0
    at = context.find(time.text, max(begin, 0))
    return time.text, at if at >= 0 else None


def _timed(cells: Cells) -> Timed:
    name = _named(first(cells, (*SEGMENTS, *PASSAGES)))
    segment = name if is_segment(name) else ""
    near, far = _interval(cells, "start", "end"), _interval(cells, "new_start", "new_end")
    if not segment:
        near, far = None, far or near
    return Timed(segment, near, far, first(cells, ANSWERS))


def _interval(cells: Cells, start: str, end: str) -> Interval | None:
    a, b = number_of(cells.get(start)), number_of(cells.get(end))
    return None if a is None or b is None else (a, b)


def _passage(cells: Cells) -> str:
    name = _named(first(cells, (*PASSAGES, *SEGMENTS)))
    return passage_of(name) if is_segment(name) else name


def _named(name: str) -> str:
    name = stem(name)
    return f"context-{name}" if NUMBERS.fullmatch(name) else name


def _passage_of_question(recording: str) -> str:
    found = re.fullmatch(r"question-(\d+_\d+)_\d+", recording)
    return f"context-{found[1]}" if found else ""


def _squad(paths: Iterable[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Context, question and answers by the id of the question."""
    for path in paths:
        try:
            for article in json.loads(path.read_text(encoding="utf-8-sig"))["data"]:
                for paragraph in article["paragraphs"]:
                    for question in paragraph["qas"]:
                        texts = tuple((text_of(a["text"]), a.get("answer_start")) for a in question["answers"])
                        yield question["id"], {"context": paragraph["context"], "question": question["question"], "answers": texts}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is not JSON of SQuAD ({error!r}); download it again") from error
