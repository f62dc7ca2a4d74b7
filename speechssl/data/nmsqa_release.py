"""NMSQA as it is released: the tables of either release below a folder, by split, and one `Row` for every question.

Recordings are named `context-{article}_{paragraph}` (passage), the same with `_{segment}`, and
`question-{article}_{paragraph}_{number}`; in test `{source}-{id}-c`, the same with `-{segment}`, and `{source}-{id}-q`. Names are
kept without folder and suffix. All times are kept, right or not.

Parquet: answers are published as a record of lists, `{"text": [...], "answer_start": [...], "audio_full_answer_start": [...],
...}`. Read as such are also a list of records (SQuAD's JSON), either of both as JSON text, texts alone, and columns of these
names: `answer_start`, `answers.text`, `answers_text`.

The original release: a line an annotation in `{split}-answer-span.csv`, a line a recording in `meta-{split}.csv`. Texts come from
`{split}-v1.1.json` of SQuAD where that lies beside them, else from the meta tables: a passage's is that of its segments, one
after another. Annotations name a segment and times in it (`utterance`, `start`, `end`), a passage and times in it (`context_id`,
`new_start`, `new_end`), or both. Times of 0 to 0 are what the aligner wrote where it did not find the answer.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from speechssl.data.files import (
    check_columns,
    columns_of,
    files_below,
    intervals,
    list_of,
    number_of,
    read_csv,
    read_object,
    read_parquet,
    splits_named,
    text_of,
)
from speechssl.errors import InputError

TIMES = tuple(f"audio_{kind}_answer_{end}" for kind in ("full", "segment", "full_neg") for end in ("start", "end"))
FIELDS = ("text", "answer_start", *TIMES)
TEXTS = ("answers.text", "answers_text", "answer_text", "answer")  # columns that hold nothing but texts

Lists = dict[str, list[Any]]


def answers_of(cells: Mapping[str, Any]) -> Lists | None:
    """Field -> its values; None where the row has nothing at all about its answers."""
    flat = {name: value for name in FIELDS if (value := _column(cells, name)) is not None}
    found = _lists(_plain(cells.get("answers")))
    if found is None and not flat:
        return None
    return {name: [*list_of(_plain(flat.get(name)))] for name in FIELDS if name in flat} | (found or {})


def _column(cells: Mapping[str, Any], name: str) -> Any:
    """The first column of this meaning that is not empty."""
    columns = TEXTS if name == "text" else (f"answers.{name}", f"answers_{name}", name)
    return next((cells[column] for column in columns if list_of(cells.get(column))), None)


def _plain(cell: Any) -> Any:
    """What JSON text holds; any other value as it stands."""
    if not isinstance(cell, str) or not cell.lstrip().startswith(("{", "[")):
        return cell
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell  # an answer may begin with a bracket


def _lists(answers: Any) -> Lists | None:
    """A record of lists, of one answer or of none; None for what has neither texts nor times."""
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


QUESTIONS = ("question", "question_text", "question_normalized_text")  # columns, the first that is not empty
RECORDED = "question_audio_path"
IDS = ("id", "question_id", "qid", "hash")
SEGMENT = re.compile(r"(.+)[-_](\d+)")
NUMBERS = re.compile(r"\d+(_\d+)+")  # derived tables leave out what stands before them

Interval = tuple[float, float]  # seconds


@dataclass(frozen=True)
class Timed:
    """When an answer is spoken, as released: in seconds from the beginning of a segment, and of the passage."""

    segment: str  # recording of the sentence, "" where the table has none
    within: Interval | None
    whole: Interval | None
    text: str = ""  # its words, "" where the table leaves open which of the texts it is


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
    segments: Mapping[str, str] = field(default_factory=dict)  # segment -> its text, as far as the row has it
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
    sentence = _first_text(cells, "content_segment_text", "content_segment_normalized_text")
    context = _first_text(cells, "context", "passage", "content_full_text", "content_text")
    return Row(
        _first_text(cells, *IDS),
        passage,
        stem(cells.get(RECORDED)),
        context if context or segment else sentence,
        _first_text(cells, *QUESTIONS),
        None if answers is None else _texts_and_offsets(answers),
        tuple(_times(answers or {}, "" if segment == passage else segment)),
        text_of(cells.get("content_audio_speaker")),
        text_of(cells.get("question_audio_speaker")),
        {segment: sentence} if segment and sentence else {},
        len(list_of((answers or {}).get("audio_full_neg_answer_start"))),
    )


def _first_text(cells: Mapping[str, Any], *names: str) -> str:
    """The first of some columns that is not empty."""
    return next((text for name in names if (text := text_of(cells.get(name))).strip()), "")


def _texts_and_offsets(answers: Mapping[str, Any]) -> tuple[tuple[str, int | None], ...]:
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


SEGMENTS = ("utterance", "utterance_id", "segment_id", "segment")
PASSAGES = ("context_id", "name_id", "passage_id", "utterance_id")
ANSWERS = ("answer", "answer_text", "text")
TRANSCRIPTIONS = ("text", "transcription", "normalized_text")

Cells = Mapping[str, str]


@dataclass(frozen=True)
class About:
    """The entry of a recording in a meta table."""

    text: str
    speaker: str
    seconds: float | None


def read_about(paths: Iterable[Path]) -> dict[str, About]:
    """By recording. Raises InputError for a file that is no CSV."""
    found: dict[str, About] = {}
    for path in paths:
        for cells in read_csv(path):
            name = stem(first(cells, NAME))
            found.setdefault(name, About(first(cells, TRANSCRIPTIONS), cells.get("speaker", ""), number_of(cells.get("duration"))))
    return found


def first(cells: Cells, names: Iterable[str]) -> str:
    """The first of some columns that is not empty."""
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
        yield _csv_row(name, groups.get(name, []), release)


def _csv_row(name: str, lines: list[Cells], release: Release) -> Row:
    recording = stem(release.files.questions.get(name)) or next((stem(c["question"]) for c in lines if c.get("question")), "")
    times = tuple(dict.fromkeys(_timed(cells) for cells in lines))
    passage = next((p for cells in lines if (p := _passage(cells))), "") or _passage_of_question(recording)
    recording = recording or (f"{passage[:-1]}q" if passage.endswith("-c") else "")
    context, question, texts = _csv_texts(name, passage, recording, times, release)
    known = bool(lines) or name in release.squad
    speakers = (release.about[s].speaker for s in (passage, *release.of_passage(passage)) if s in release.about)
    asker = release.about[recording].speaker if recording in release.about else ""
    sentences = release.of_passage(passage)
    return Row(name, passage, recording, context, question, texts if known else None, times, next(speakers, ""), asker, sentences)


def _csv_texts(
    name: str, passage: str, recording: str, times: tuple[Timed, ...], release: Release
) -> tuple[str, str, tuple[tuple[str, int | None], ...]]:
    """Context, question and answers: SQuAD's where it is there, else those of the meta tables."""
    if squad := release.squad.get(name):
        return squad["context"], squad["question"], squad["answers"]
    sentences = release.of_passage(passage)
    context = " ".join(filter(None, sentences.values())) or _text(passage, release.about)
    found = dict.fromkeys(_found(time, context, sentences) for time in times if time.text)
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


SPLITS = ("train", "dev", "test")
HASH = ("hash", "question_id", "qid", "id")
START = ("start", "new_start", "start_time")
NAME = ("id", "utterance_id", "utterance", "name_id", "name")
ABOUT = ("speaker", "duration", "text", "normalized_text", "transcription")


@dataclass
class Files:
    """Of one split."""

    parquet: list[Path] = field(default_factory=list)  # one table, or its shards
    spans: list[Path] = field(default_factory=list)  # {split}-answer-span.csv: a line an annotation
    about: list[Path] = field(default_factory=list)  # meta-{split}.csv: speaker, text and duration of a recording
    squad: list[Path] = field(default_factory=list)  # {split}-v1.1.json: the texts
    grids: dict[str, Path] = field(default_factory=dict)  # recording -> TextGrid
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)  # "segment_id" and "hash2question"

    def __bool__(self) -> bool:
        return bool(self.parquet or self.spans)

    @property
    def segments(self) -> dict[str, Any]:
        """Passage (without "context-") -> the numbers of the segments that the release has."""
        return self.objects.get("segment_id", {})

    @property
    def questions(self) -> dict[str, Any]:
        """Id of a question -> its recording."""
        return self.objects.get("hash2question", {})


def find_files(roots: Sequence[Path], only: Path | None = None) -> dict[str, Files]:
    """By split, as far as there are tables. only: the one table that was asked for. Raises InputError for two tables of a split."""
    found = {split: Files() for split in SPLITS}
    for root, path in files_below(roots, ".parquet", ".csv", ".json", ".textgrid"):
        if only is not None and path.suffix == ".parquet" and path != only:
            continue
        name = path.stem if splits_named(path.stem) else path.parent.relative_to(root).as_posix() + "/" + path.stem
        for split in splits_named(name) & found.keys():
            _take(found[split], path)
    for split, files in found.items():
        _choose(files, split)
    return {split: files for split, files in found.items() if files}


def _take(files: Files, path: Path) -> None:
    kind = path.suffix.lower()
    if kind == ".parquet":
        files.parquet.append(path)
    elif kind == ".textgrid":
        files.grids.setdefault(path.stem, path)
    elif kind == ".csv":
        names = header(path)
        if any(name in names for name in HASH) and any(name in names for name in START):
            files.spans.append(path)
        elif any(name in names for name in NAME) and any(name in names for name in ABOUT):
            files.about.append(path)
    else:
        _take_json(files, path)


def _take_json(files: Files, path: Path) -> None:
    for kind in ("segment_id", "hash2question"):
        if kind in path.stem and kind not in files.objects:
            files.objects[kind] = read_object(path)
    if path.stem.endswith(("v1.1", "v2.0")):
        files.squad.append(path)


def _choose(files: Files, split: str) -> None:
    """Derived tables repeat the spans; of several Parquet files only shards belong together."""
    if published := [path for path in files.spans if "answer-span" in path.name or "answer_span" in path.name]:
        files.spans = published
    elif split != "test":
        files.spans = files.spans[:1]
    if len(files.parquet) > 1 and not all("-of-" in path.name or path.stem.isdecimal() for path in files.parquet):
        first, second = files.parquet[:2]
        raise InputError(f"{first} and {second} are both tables of {split}; leave one of them in the folder")


def header(path: Path) -> list[str]:
    """The names of a CSV file's columns. Raises InputError where it is none."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return [name.strip() for name in next(csv.reader(file), [])]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path} as CSV ({error}); download it again or save it as UTF-8") from error


def listed(files: Files, passage: str) -> list[int] | None:
    """The numbers of a passage's segments that the release lists, None where it lists none."""
    known: Mapping[str, Any] = files.segments
    numbers = known.get(passage, known.get(passage.removeprefix("context-")))
    if not isinstance(numbers, list):
        return None
    return sorted({int(number) for number in numbers if str(number).isdecimal()})
