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

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from speechssl.data.files import (
    SUFFIXES,
    columns_of,
    files_below,
    list_of,
    load_json,
    number_of,
    open_csv,
    read_csv,
    read_parquet,
    text_of,
)
from speechssl.data.squad import read_squad
from speechssl.errors import InputError

Cells = Mapping[str, Any]
Interval = tuple[float, float]  # seconds
SEGMENT = re.compile(r"(.+)[-_](\d+)")


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


def stem(path: Any) -> str:
    """A recording's name without folder and suffix."""
    name = text_of(path).replace("\\", "/").rsplit("/", 1)[-1]
    return re.sub(r"\.(mp3|wav|flac|ogg)$", "", name, flags=re.IGNORECASE)


def segment_of(passage: str, number: int) -> str:
    return f"{passage}{'-' if passage.endswith('-c') else '_'}{number}"


def by_passage(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """Passage -> number -> recording of its sentence, of all names that could be such."""
    found: dict[str, dict[int, str]] = {}
    for name in names:
        if match := SEGMENT.fullmatch(name):
            found.setdefault(match[1], {})[int(match[2])] = name
    return found


def first(cells: Cells, names: Iterable[str]) -> str:
    """The text of the first of some columns that is not empty."""
    return next((text for name in names if (text := text_of(cells.get(name))).strip()), "")


def intervals(cells: Cells, start: str, end: str) -> list[Interval | None]:
    """Pairs of two columns that hold numbers or lists; None where either is no number or there is only one of both."""
    pairs = zip_longest(list_of(cells.get(start)), list_of(cells.get(end)))
    numbers = ((number_of(a), number_of(b)) for a, b in pairs)
    return [None if a is None or b is None else (a, b) for a, b in numbers]


# ---- Parquet

TIMES = tuple(f"audio_{kind}_answer_{end}" for kind in ("full", "segment", "full_neg") for end in ("start", "end"))
FIELDS = ("text", "answer_start", *TIMES)
TEXTS = ("answers.text", "answers_text", "answer_text", "answer")  # columns that hold nothing but texts
QUESTIONS = ("question", "question_text", "question_normalized_text")  # columns, the first that is not empty
RECORDED = "question_audio_path"


def parquet_rows(path: Path) -> Iterator[Row]:
    """Whatever columns there are beside the questions. Raises InputError for a file that is damaged or is no table of NMSQA."""
    columns = columns_of(path)
    if RECORDED not in columns and not any(name in columns for name in QUESTIONS):
        raise InputError(f"{path} has no {QUESTIONS[0]}, which a table of NMSQA has; give the published file")
    for cells in read_parquet(path):
        answers = _answers(cells)
        found = answers or {}
        segment = stem(cells.get("content_segment_audio_path"))
        passage = stem(cells.get("content_full_audio_path")) or (named[1] if (named := SEGMENT.fullmatch(segment)) else "")
        sentence = first(cells, ("content_segment_text", "content_segment_normalized_text"))
        context = first(cells, ("context", "passage", "content_full_text", "content_text"))
        offsets = [number_of(value) for value in found.get("answer_start", ())]  # floating-point where one row lacks its offsets
        whole = [int(n) if n is not None and n.is_integer() else None for n in offsets]
        texts = tuple(zip(map(text_of, found.get("text", ())), whole + [None] * len(found.get("text", ())), strict=False))
        within = intervals(found, "audio_segment_answer_start", "audio_segment_answer_end")
        full = intervals(found, "audio_full_answer_start", "audio_full_answer_end")
        yield Row(
            first(cells, ("id", "question_id", "qid", "hash")),
            passage,
            stem(cells.get(RECORDED)),
            context if context or segment else sentence,
            first(cells, QUESTIONS),
            None if answers is None else texts,
            tuple(Timed("" if segment == passage else segment, near, far) for near, far in zip_longest(within, full)),
            text_of(cells.get("content_audio_speaker")),
            text_of(cells.get("question_audio_speaker")),
            {segment: sentence} if segment and sentence else {},
            len(found.get("audio_full_neg_answer_start", ())),
        )


def _answers(cells: Cells) -> dict[str, list[Any]] | None:
    """Field -> its values; None where the row has nothing at all about its answers."""
    flat: dict[str, list[Any]] = {}
    for name in FIELDS:  # the first column of this meaning that is not empty
        columns = TEXTS if name == "text" else (f"answers.{name}", f"answers_{name}", name)
        if column := next((column for column in columns if list_of(cells.get(column))), None):
            flat[name] = list_of(_plain(cells[column]))
    answers = _plain(cells.get("answers"))
    if isinstance(answers, str) and answers.strip():
        return flat | {"text": [answers]}
    if isinstance(answers, list):
        # records or texts: texts and offsets stay side by side; a record may have several times, or none
        records = [a if isinstance(a, dict) else {"text": a} for a in map(_plain, answers) if isinstance(a, (dict, str))]
        named: list[tuple[Any, Any]] = []
        for record in records:
            texts, starts = list_of(record.get("text")), list_of(record.get("answer_start"))
            named += zip(texts, starts + [None] * len(texts), strict=False)
        times = {name: [v for record in records for v in list_of(record.get(name))] for name in TIMES}
        return flat | {"text": [text for text, _ in named], "answer_start": [start for _, start in named]} | times
    if isinstance(answers, dict):
        found = {name: list_of(answers[name]) for name in FIELDS if answers.get(name) is not None}
        if "text" in found or any(found.values()):
            return flat | found
    return flat or None


def _plain(cell: Any) -> Any:
    """What JSON text holds; any other value as it stands."""
    if not isinstance(cell, str) or not cell.lstrip().startswith(("{", "[")):
        return cell
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell  # an answer may begin with a bracket


# ---- the original release

HASH = ("hash", "question_id", "qid", "id")
START = ("start", "new_start", "start_time")
NAME = ("id", "utterance_id", "utterance", "name_id", "name")
ABOUT = ("speaker", "duration", "text", "normalized_text", "transcription")
SEGMENTS = ("utterance", "utterance_id", "segment_id", "segment")
PASSAGES = ("context_id", "name_id", "passage_id", "utterance_id")


@dataclass(frozen=True)
class About:
    """The entry of a recording in a meta table."""

    text: str
    speaker: str
    seconds: float | None


def read_about(paths: Iterable[Path]) -> dict[str, About]:
    """By recording. Raises InputError for a file that is no CSV."""
    found: dict[str, About] = {}
    for cells in (cells for path in paths for cells in read_csv(path)):
        text = first(cells, ("text", "transcription", "normalized_text"))
        found.setdefault(stem(first(cells, NAME)), About(text, cells.get("speaker", ""), number_of(cells.get("duration"))))
    return found


def csv_rows(files: Files, about: Mapping[str, About]) -> Iterator[Row]:
    """The questions in the order of the tables, then those that have texts or a recording and no annotation."""
    segments = by_passage(about)
    squad = {q.id: (p.context, q) for path in files.squad for p in read_squad(path) for q in p.asked}
    annotations: dict[str, list[Cells]] = {}
    for cells in (cells for path in files.spans for cells in read_csv(path)):
        annotations.setdefault(first(cells, HASH), []).append(cells)
    for name in (*annotations, *(i for i in {**files.questions, **squad} if i not in annotations)):
        lines = annotations.get(name, [])
        recording = stem(files.questions.get(name)) or next((stem(c["question"]) for c in lines if c.get("question")), "")
        passage = next((p for cells in lines if (p := _passage(cells))), "")
        if not passage and (found := re.fullmatch(r"question-(\d+_\d+)_\d+", recording)):
            passage = f"context-{found[1]}"
        recording = recording or (f"{passage[:-1]}q" if passage.endswith("-c") else "")
        times = tuple(dict.fromkeys(map(_timed, lines)))
        # the recordings of the passage's sentences and their texts, in order: of those that the release lists, where it does
        there, numbers = segments.get(passage, {}), files.listed(passage)
        sentences = {there[n]: about[there[n]].text for n in sorted(there) if numbers is None or n in numbers}
        texts: list[tuple[str, int | None]] = []
        if name in squad:
            context, asked = squad[name]
            question, texts = asked.text, [(gold.text, gold.char_start) for gold in asked.golds]
        else:
            context = " ".join(filter(None, sentences.values())) or (about[passage].text if passage in about else "")
            question = about[recording].text if recording in about else ""
            for time in (time for time in times if time.text):  # its offset is looked for from where its sentence begins
                begin = context.find(sentences.get(time.segment, "")) if time.segment in sentences else 0
                at = context.find(time.text, max(begin, 0))
                texts.append((time.text, at if at >= 0 else None))
            texts = list(dict.fromkeys(texts))
        known = tuple(texts) if lines or name in squad else None
        speakers = (about[s].speaker for s in (passage, *sentences) if s in about)
        asker = about[recording].speaker if recording in about else ""
        yield Row(name, passage, recording, context, question, known, times, next(speakers, ""), asker, sentences)


def _timed(cells: Cells) -> Timed:
    name = _named(cells, (*SEGMENTS, *PASSAGES))
    near, far = (next(iter(intervals(cells, *names)), None) for names in (("start", "end"), ("new_start", "new_end")))
    text = first(cells, ("answer", "answer_text", "text"))
    return Timed(name, near, far, text) if _is_segment(name) else Timed("", None, far or near, text)


def _passage(cells: Cells) -> str:
    name = _named(cells, (*PASSAGES, *SEGMENTS))
    return re.sub(r"[-_]\d+$", "", name) if _is_segment(name) else name


def _named(cells: Cells, columns: Iterable[str]) -> str:
    """Derived tables leave out what stands before the numbers of a name."""
    name = stem(first(cells, columns))
    return f"context-{name}" if re.fullmatch(r"\d+(_\d+)+", name) else name


def _is_segment(name: str) -> bool:
    return bool(re.fullmatch(r"(context-)?\d+_\d+_\d+|.+-c[-_]\d+", name))


# ---- what lies where

WORDS: Mapping[str, tuple[str, ...]] = {"train": ("train", "tune"), "dev": ("dev", "validation"), "test": ("test", "lxt")}


@dataclass
class Files:
    """Of one split."""

    parquet: list[Path] = field(default_factory=list)  # one table, or its shards
    spans: list[Path] = field(default_factory=list)  # {split}-answer-span.csv: a line an annotation
    about: list[Path] = field(default_factory=list)  # meta-{split}.csv: speaker, text and duration of a recording
    squad: list[Path] = field(default_factory=list)  # {split}-v1.1.json: the texts
    grids: dict[str, Path] = field(default_factory=dict)  # recording -> TextGrid
    # of JSON files: "hash2question", id of a question -> its recording; "segment_id", passage (without "context-") -> the numbers
    # of the segments that the release has
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def questions(self) -> dict[str, Any]:
        """Id of a question -> its recording."""
        return self.objects.get("hash2question", {})

    def listed(self, passage: str) -> list[int] | None:
        """The numbers of a passage's segments that the release lists, None where it lists none."""
        known = self.objects.get("segment_id", {})
        numbers = known.get(passage, known.get(passage.removeprefix("context-")))
        if not isinstance(numbers, list):
            return None
        return sorted({int(number) for number in numbers if str(number).isdecimal()})


def find_files(roots: Sequence[Path], only: Path | None = None) -> dict[str, Files]:
    """By split, as far as there are tables. only: the one table that was asked for. Raises InputError for two tables of a split."""
    found = {split: Files() for split in WORDS}
    for root, path in files_below(roots, ".parquet", ".csv", ".json", ".textgrid"):
        if only is not None and path.suffix == ".parquet" and path != only:
            continue
        name = path.stem if splits_named(path.stem) else path.parent.relative_to(root).as_posix() + "/" + path.stem
        for files in (found[split] for split in splits_named(name)):
            kind = path.suffix.lower()
            if kind == ".parquet":
                files.parquet.append(path)
            elif kind == ".textgrid":
                files.grids.setdefault(path.stem, path)
            elif kind == ".csv":
                with open_csv(path) as rows:
                    names = {name.strip() for name in next(rows, [])}
                if names & set(HASH) and names & set(START):
                    files.spans.append(path)
                elif names & set(NAME) and names & set(ABOUT):
                    files.about.append(path)
            else:
                for what in ("segment_id", "hash2question"):
                    if what in path.stem and what not in files.objects:
                        files.objects[what] = load_json(path)
                        if not isinstance(files.objects[what], dict):
                            raise InputError(f"{path} is not a JSON object; download it again")
                if path.stem.endswith(("v1.1", "v2.0")):
                    files.squad.append(path)
    for split, files in found.items():
        # derived tables repeat the spans; of several Parquet files only shards belong together
        if published := [path for path in files.spans if "answer-span" in path.name or "answer_span" in path.name]:
            files.spans = published
        elif split != "test":
            files.spans = files.spans[:1]
        if len(files.parquet) > 1 and not all("-of-" in path.name or path.stem.isdecimal() for path in files.parquet):
            one, other = files.parquet[:2]
            raise InputError(f"{one} and {other} are both tables of {split}; leave one of them in the folder")
    return {split: files for split, files in found.items() if files.parquet or files.spans}


def splits_named(text: str) -> set[str]:
    """The splits that a name names: `dev_audios` is dev's, `fine-tune` train's."""
    words = set(re.split(r"[^a-z]+", text.lower()))
    return {split for split, known in WORDS.items() if words & set(known)}


def find_recordings(roots: Iterable[Path], split: str) -> tuple[dict[str, Path], set[str]]:
    """Recordings of a split by their names without suffix, and the names of those whose folders name no split at all.

    Of two recordings of one name, that in a folder of the split counts, and then the first by path (a release may hold one
    sorted by speakers, too).
    """
    own: dict[str, Path] = {}
    common: dict[str, Path] = {}
    for root, path in files_below(roots, *SUFFIXES):
        named = splits_named(path.parent.relative_to(root).as_posix())
        if split in named:
            own.setdefault(path.stem, path)
        elif not named:
            common.setdefault(path.stem, path)
    return {**common, **own}, common.keys() - own.keys()
