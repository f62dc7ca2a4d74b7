"""Prepare NMSQA (DUAL, arXiv 2203.04911): SQuAD 1.1 read by speech synthesisers (train, dev),
and questions read by people (test).

Layouts, irregularities and how they are handled: data/nmsqa/README.md. The time of an answer within
its sentence is moved by the exact lengths of the sentences before it; `audio_full_*`, which repeats
it in dev and counts from the passage's beginning in most of test, is a check on it, and stands in
where it cannot be used. There are not as many times as texts: a row has the times of those of its
different answers that occur in its sentence, in order.

Recordings are named `context-{article}_{paragraph}` (passage), the same with `_{segment}` (a
sentence of it), and `question-{article}_{paragraph}_{number}`; in test `{source}-{id}-c`, the same
with `-{segment}`, and `{source}-{id}-q`. Names are kept without folder and suffix.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from speechssl.artifacts import hash_bytes, write_json
from speechssl.audio import SAMPLE_RATE, duration
from speechssl.data import prepare
from speechssl.data.files import (
    ARCHIVES,
    SUFFIXES,
    enter,
    files_below,
    manifest_path,
    safe_name,
    stamp,
    unpack,
)
from speechssl.data.options import Nmsqa
from speechssl.data.pieces import Joined, decoded_seconds, write_joined
from speechssl.data.prepare import Done, PrepareReport, SplitRecords
from speechssl.data.records import Answer, Passage, Question, Span
from speechssl.data.squad import SquadQa, read_squad
from speechssl.data.tables import load_json, number_of, read_csv, read_header, read_parquet
from speechssl.data.textgrid import read_tiers
from speechssl.errors import InputError
from speechssl.schema import convert

# train is all of SQuAD 1.1 (87.6k rows at Hugging Face); passages of dev as its segment_id.json has
# them
PUBLISHED = {
    "train": {"questions": 87_599},
    "dev": {"questions": 10_570, "passages": 2_067},
    "test": {"questions": 171},
}
LAYOUT = (
    "give the folder (or one table) of the Parquet release (dev.parquet and the like), of the "
    "original one (dev-answer-span.csv "
    "and meta-dev.csv), or of voidful/NMSQA at Hugging Face (data/dev-*.parquet)"
)
ABOUT = {
    "source": (
        "NMSQA, github.com/DanielLin94144/DUAL-textless-SQA, huggingface.co/datasets/voidful/NMSQA"
    ),
    "paper": "arXiv 2203.04911",
    "licence": "CC BY-SA 4.0 (SQuAD's texts); see the release for the recordings",
}
# seconds by which a time may lie beyond its recording, whose decoders differ; it then ends with it
SLACK = 0.1
# seconds by which two readings may differ, and more for every sentence before (padding of MP3)
AGREE, DRIFT = 0.1, 0.06

# how the time of an answer that is kept was found
ADDED = (
    "answer times of which audio_full_* is relative to the segment, or missing",
    "the exact lengths of the segments before it were added",
)
CONFIRMED = (
    "answer times of which audio_full_* agrees with the segment's",
    "counted from the segments, exact to the sample",
)
NEARER = (
    "answer times whose two readings fit and disagree",
    "the one nearer to where the text stands was taken",
)
WHOLE = ("answer times given in the passage only", "taken as they are")
OUTSIDE = (
    "answer times that are empty, not numbers, outside the audio, or in a segment whose place is "
    "not known",
    "left out; the answer is scored by its text only",
)
GUESSED = (
    "answer times that are not one for every text in the segment",
    "given to the text that stands nearest",
)
TEXTLESS = ("answers without a usable time", "scored by their text only")
HOLES = ("passages of which the release misses segments", "no time is shifted; texts are whole")
# why items are set aside
NAMELESS = "it has neither an id nor a recording"
NO_ANSWERS = "its answers are missing from the source"
TIMES_ALONE = "its answers are times alone, and there is no recording to which they apply"
NO_RECORDING = "the release has no recording of it"
NOT_WHOLE = "recordings of its sentences are not in the source"
ANSWER_MISSING = "the sentence with its answer is missing from its passage's recording"


# ---- the tables of either release below a folder, by split, and one `NmsqaRow` a question; all
# times are kept, right or not

Cells = Mapping[str, str]
Interval = tuple[float, float]  # seconds
SEGMENT = re.compile(r"(.+)[-_](\d+)")


@dataclass(frozen=True)
class AnswerTime:
    """An answer is spoken at a time, as released: in seconds from the beginning of a segment, and
    of the passage."""

    segment: str  # recording of the sentence, "" where the table has none
    within: Interval | None
    whole: Interval | None
    text: str = ""  # its words, "" where the table leaves open which of the texts it is


@dataclass(frozen=True)
class NmsqaRow:
    """A row is a question. texts: (answer, its offset in the context or None); None where there is
    no list of answers at all."""

    id: str
    passage: str  # recording of the passage, "" where there is none
    recording: str  # of the question, "" where there is none
    context: str
    question: str
    texts: tuple[tuple[str, int | None], ...] | None
    times: tuple[AnswerTime, ...]
    speaker: str = ""
    asker: str = ""
    # segment -> its text, as far as the row has it
    segments: Mapping[str, str] = field(default_factory=dict)


def stem(path: str) -> str:
    """Return a recording's name without folder and suffix."""
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    return re.sub(r"\.(mp3|wav|flac|ogg)$", "", name, flags=re.IGNORECASE)


def segment_name(passage: str, number: int) -> str:
    return f"{passage}{'-' if passage.endswith('-c') else '_'}{number}"


def group_segments(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """Group the names that could be of sentences: passage -> number -> name."""
    segments: dict[str, dict[int, str]] = {}
    for name in names:
        match = SEGMENT.fullmatch(name)
        if match:
            segments.setdefault(match[1], {})[int(match[2])] = name
    return segments


def first_text(cells: Cells, names: Iterable[str]) -> str:
    """Return the first of some cells that is not empty."""
    return next((cells[name] for name in names if cells.get(name, "").strip()), "")


def pair_times(
    starts: Sequence[float | None] | None, ends: Sequence[float | None] | None
) -> list[Interval | None]:
    """Pair beginnings and ends; None where either is no number or there is only one of both."""
    intervals: list[Interval | None] = []
    for start, end in zip_longest(starts or (), ends or ()):
        if start is None or end is None or not math.isfinite(start + end):
            intervals.append(None)
        else:
            intervals.append((start, end))
    return intervals


# ---- Parquet

Numbers = tuple[float | None, ...] | None


@dataclass(frozen=True)
class Answers:
    """The record of lists about the answers of a row."""

    text: tuple[str, ...] | None = None
    answer_start: Numbers = None
    audio_full_answer_start: Numbers = None
    audio_full_answer_end: Numbers = None
    audio_segment_answer_start: Numbers = None
    audio_segment_answer_end: Numbers = None


@dataclass(frozen=True)
class Row:
    """A row of a table, as far as its columns are read."""

    question: str
    id: str | None = None
    context: str | None = None
    answers: Answers | None = None
    content_segment_audio_path: str | None = None
    content_full_audio_path: str | None = None
    content_audio_speaker: str | None = None
    content_segment_text: str | None = None
    question_audio_path: str | None = None
    question_audio_speaker: str | None = None


def parquet_rows(path: Path) -> Iterator[NmsqaRow]:
    """Read the rows of a table. Raises InputError for a file that is damaged or is no table of
    NMSQA."""
    for number, cells in enumerate(read_parquet(path)):
        row = convert(cells, Row, f"{path}, row {number}", "give the published file")
        answers = row.answers or Answers()
        segment = stem(row.content_segment_audio_path or "")
        passage = stem(row.content_full_audio_path or "")
        match = SEGMENT.fullmatch(segment)
        if not passage and match:
            passage = match[1]
        sentence = row.content_segment_text or ""
        within = pair_times(answers.audio_segment_answer_start, answers.audio_segment_answer_end)
        full = pair_times(answers.audio_full_answer_start, answers.audio_full_answer_end)
        texts = None
        if answers.text is not None or within or full:
            texts = tuple(_pair_offsets(answers.text or (), answers.answer_start or ()))
        timed_in = "" if segment == passage else segment
        yield NmsqaRow(
            id=row.id or "",
            passage=passage,
            recording=stem(row.question_audio_path or ""),
            context=row.context or "",
            question=row.question,
            texts=texts,
            times=tuple(AnswerTime(timed_in, a, b) for a, b in zip_longest(within, full)),
            speaker=row.content_audio_speaker or "",
            asker=row.question_audio_speaker or "",
            segments={segment: sentence} if segment and sentence else {},
        )


def _pair_offsets(
    texts: Sequence[str], starts: Sequence[float | None]
) -> Iterator[tuple[str, int | None]]:
    """Pair answers with their offsets, which are floating-point where one row lacks its own."""
    for text, start in zip_longest(texts, starts[: len(texts)]):
        yield text, None if start is None or not math.isfinite(start) else int(start)


# ---- the original release: a line an annotation in {split}-answer-span.csv, which names a segment
# and times in it, a passage and times in it, or both; a line a recording in meta-{split}.csv, whose
# texts are taken where SQuAD's own are not there

HASH, START, NAME = "hash", ("start", "new_start"), "id"
DESCRIBED = ("speaker", "duration", "text", "normalized_text")
SEGMENTS, PASSAGES = ("utterance",), ("context_id", "name_id")


@dataclass(frozen=True)
class Meta:
    """The entry of a recording in a meta table."""

    text: str
    speaker: str


def read_meta(paths: Iterable[Path]) -> dict[str, Meta]:
    """Read meta tables, by recording. Raises InputError for a file that is no CSV."""
    by_recording: dict[str, Meta] = {}
    for path in paths:
        for cells in read_csv(path):
            text = cells.get("text") or cells.get("normalized_text", "")
            by_recording.setdefault(stem(cells[NAME]), Meta(text, cells.get("speaker", "")))
    return by_recording


def csv_rows(files: Files, meta: Mapping[str, Meta]) -> Iterator[NmsqaRow]:
    """Read the questions in the order of the tables, then those that have texts or a recording and
    no annotation."""
    segments = group_segments(meta)
    squad: dict[str, tuple[str, SquadQa]] = {}
    for path in files.squad:
        for paragraph in read_squad(path):
            squad |= {q.id: (paragraph.context, q) for q in paragraph.qas}
    annotations: dict[str, list[Cells]] = {}
    for path in files.spans:
        for cells in read_csv(path):
            annotations.setdefault(cells[HASH], []).append(cells)
    for name in dict.fromkeys([*annotations, *files.questions, *squad]):
        lines = annotations.get(name, [])
        recording, passage = _name_recordings(files.questions.get(name, ""), lines)
        times = tuple(dict.fromkeys(map(_answer_time, lines)))
        # the recordings of the passage's sentences and their texts, in order: of those that the
        # release lists, where it does
        by_number, numbers = segments.get(passage, {}), files.listed(passage)
        sentences = {
            by_number[n]: meta[by_number[n]].text
            for n in sorted(by_number)
            if numbers is None or n in numbers
        }
        if name in squad:
            context, squad_question = squad[name]
            question = squad_question.question
            texts = [(gold.text, gold.offset) for gold in squad_question.answers]
        else:
            context = " ".join(filter(None, sentences.values()))
            if not context and passage in meta:
                context = meta[passage].text
            question = meta[recording].text if recording in meta else ""
            texts = _find_answers(context, sentences, times)
        speakers = [meta[s].speaker for s in (passage, *sentences) if s in meta]
        yield NmsqaRow(
            id=name,
            passage=passage,
            recording=recording,
            context=context,
            question=question,
            texts=tuple(texts) if lines or name in squad else None,
            times=times,
            speaker=speakers[0] if speakers else "",
            asker=meta[recording].speaker if recording in meta else "",
            segments=sentences,
        )


def _name_recordings(recording: str, lines: Sequence[Cells]) -> tuple[str, str]:
    """Name the recordings of a question and of its passage, each by the other where the lines of
    its annotations do not."""
    passage = ""
    for cells in lines:
        name = _recording_name(cells, (*PASSAGES, *SEGMENTS))
        passage = passage or (re.sub(r"[-_]\d+$", "", name) if _is_segment(name) else name)
    match = re.fullmatch(r"question-(\d+_\d+)_\d+", recording)
    if not passage and match:
        passage = f"context-{match[1]}"
    if not recording and passage.endswith("-c"):
        recording = f"{passage[:-1]}q"
    return recording, passage


def _find_answers(
    context: str, sentences: Mapping[str, str], times: Sequence[AnswerTime]
) -> list[tuple[str, int | None]]:
    """Find the words of every time in the context, from where their sentence begins."""
    texts: list[tuple[str, int | None]] = []
    for time in times:
        if time.text:
            begin = context.find(sentences[time.segment]) if time.segment in sentences else 0
            at = context.find(time.text, max(begin, 0))
            texts.append((time.text, at if at >= 0 else None))
    return list(dict.fromkeys(texts))


def _answer_time(cells: Cells) -> AnswerTime:
    name = _recording_name(cells, (*SEGMENTS, *PASSAGES))
    start, end, new_start, new_end = (
        [number_of(cells.get(column))] for column in ("start", "end", "new_start", "new_end")
    )
    (near,), (far,) = pair_times(start, end), pair_times(new_start, new_end)
    text = cells.get("answer", "")
    if _is_segment(name):
        return AnswerTime(name, near, far, text)
    return AnswerTime("", None, far or near, text)


def _recording_name(cells: Cells, columns: Iterable[str]) -> str:
    """Name a recording; derived tables leave out the word before the numbers of a name."""
    name = stem(first_text(cells, columns))
    return f"context-{name}" if re.fullmatch(r"\d+(_\d+)+", name) else name


def _is_segment(name: str) -> bool:
    return bool(re.fullmatch(r"(context-)?\d+_\d+_\d+|.+-c[-_]\d+", name))


# ---- the files of a release

WORDS: Mapping[str, tuple[str, ...]] = {
    "train": ("train", "tune"),
    "dev": ("dev", "validation"),
    "test": ("test", "lxt"),
}


@dataclass
class Files:
    """The files of one split."""

    parquet: list[Path] = field(default_factory=list)  # one table, or its shards
    spans: list[Path] = field(default_factory=list)  # {split}-answer-span.csv: a line an annotation
    # meta-{split}.csv: speaker, text and duration of a recording
    meta: list[Path] = field(default_factory=list)
    squad: list[Path] = field(default_factory=list)  # {split}-v1.1.json: the texts
    grids: dict[str, Path] = field(default_factory=dict)  # recording -> TextGrid
    questions: dict[str, str] = field(default_factory=dict)  # id -> recording (hash2question)
    # passage, without "context-" -> numbers of the segments that the release has (segment_id)
    segment_ids: dict[str, list[str]] | None = None

    def listed(self, passage: str) -> list[int] | None:
        """List the numbers of a passage's segments that the release has, None where it lists
        none."""
        numbers = (self.segment_ids or {}).get(passage.removeprefix("context-"))
        return None if numbers is None else sorted(set(map(int, numbers)))


def find_files(roots: Sequence[Path], only: Path | None = None) -> dict[str, Files]:
    """Find the files by split, as far as there are tables. only: the one table that was asked for.
    Raises InputError for two tables of a split."""
    splits = {split: Files() for split in WORDS}
    for root, path in files_below(roots, ".parquet", ".csv", ".json", ".textgrid"):
        if only is not None and path.suffix == ".parquet" and path != only:
            continue
        name = path.stem
        if not splits_named(name):
            name = f"{path.parent.relative_to(root).as_posix()}/{path.stem}"
        for split in splits_named(name):
            files = splits[split]
            kind = path.suffix.lower()
            if kind == ".parquet":
                files.parquet.append(path)
            elif kind == ".textgrid":
                files.grids.setdefault(path.stem, path)
            elif kind == ".csv":
                names = set(read_header(path))
                if HASH in names and names & set(START):
                    files.spans.append(path)
                elif NAME in names and names & set(DESCRIBED):
                    files.meta.append(path)
            elif "segment_id" in path.stem:
                files.segment_ids = convert(load_json(path), dict[str, list[str]], path)
            elif "hash2question" in path.stem:
                files.questions = convert(load_json(path), dict[str, str], path)
            elif path.stem.endswith(("v1.1", "v2.0")):
                files.squad.append(path)
    for split, files in splits.items():
        shards = all("-of-" in path.name or path.stem.isdecimal() for path in files.parquet)
        if len(files.parquet) > 1 and not shards:
            one, other = files.parquet[:2]
            raise InputError(
                f"{one} and {other} are both tables of {split}; leave one of them in the folder"
            )
    return {split: files for split, files in splits.items() if files.parquet or files.spans}


def splits_named(text: str) -> set[str]:
    """Return the splits that a text names: `dev_audios` is dev's, `fine-tune` train's."""
    words = set(re.split(r"[^a-z]+", text.lower()))
    return {split for split, synonyms in WORDS.items() if words & set(synonyms)}


def find_recordings(roots: Iterable[Path], split: str, alone: bool) -> dict[str, Path]:
    """Find the recordings of a split by their names without suffix: those in folders that are named
    after it, and where it is alone (recordings of two splits have the same names) those in folders
    of no split, too.

    Of two recordings of one name, that in a folder of the split counts; two in such folders have to
    be copies of each other.
    """
    of_split: dict[str, Path] = {}
    common: dict[str, Path] = {}
    for root, path in files_below(roots, *SUFFIXES):
        splits = splits_named(path.parent.relative_to(root).as_posix())
        if split in splits:
            enter(of_split, path.stem, path, copies=True)
        elif alone and not splits:
            enter(common, path.stem, path, copies=True)
    return {**common, **of_split}


# ---- answers: where their times lie in the recording of the passage, and which of the texts each
# time is of


@dataclass(frozen=True)
class PassageLayout:
    """The recording of a passage: its sentences' names, where they lie (None where that is not
    known), and its length."""

    names: tuple[str, ...]
    joined: Joined | None
    seconds: float
    # whether times in the passage were counted in a recording as long as this one
    comparable: bool = True

    def piece(self, segment: str) -> int | None:
        if self.joined is None or segment not in self.names:
            return None
        return self.names.index(segment)


def time_in_passage(
    timed: AnswerTime, layout: PassageLayout, expected: float | None
) -> tuple[Interval | None, Done]:
    """Find the time in the passage's recording, or None, and say how it was found. expected:
    seconds at which its text should come."""
    piece, joined = layout.piece(timed.segment), layout.joined
    # the time in the segment, moved by the lengths of the segments before; far: that in the
    # passage, as released
    near = None
    if piece is not None and joined is not None:
        inside = _clip(timed.within, joined.length(piece))
        if inside:
            end = min(joined.move_to_whole(piece, inside[1]), layout.seconds)
            near = joined.move_to_whole(piece, inside[0]), end
    far = _clip(timed.whole, layout.seconds) if layout.comparable else None
    copied = _copied(timed)
    # a time in the passage that repeats one in a later segment is not one in the passage
    if near is None:
        if far is None:
            return None, OUTSIDE
        adrift = copied and timed.segment not in ("", *layout.names[:1])
        return (None, OUTSIDE) if adrift else (far, WHOLE)
    if far is None or (copied and piece):
        return near, ADDED
    if _difference(near, far) <= AGREE + DRIFT * (piece or 0):
        return near, CONFIRMED
    if expected is not None and abs(far[0] - expected) < abs(near[0] - expected):
        return far, NEARER
    return near, NEARER


def _clip(interval: Interval | None, seconds: float) -> Interval | None:
    """Clip an interval to [0, seconds); None where it does not begin there or ends more than SLACK
    after it."""
    if interval is None:
        return None
    start, end = interval
    if not 0 <= start < min(end, seconds) or end > seconds + SLACK:
        return None
    return start, min(end, seconds)


def _difference(a: Interval, b: Interval) -> float:
    return max(abs(a[0] - b[0]), abs(a[1] - b[1]))


def _copied(time: AnswerTime) -> bool:
    """Tell whether the time in the passage repeats that in the segment."""
    if time.within is None or time.whole is None:
        return False
    return _difference(time.within, time.whole) < 1e-3


def written_answers(row: NmsqaRow) -> tuple[Answer, ...]:
    """Return the different answers of a row by text and offset; an offset is kept where the context
    holds the answer there."""
    answers = {}
    for text, offset in row.texts or ():
        if text.strip():
            fits = offset is not None and offset >= 0 and row.context.startswith(text, offset)
            answers[text, offset] = Answer(text, char_start=offset if fits else None)
    return tuple(answers.values())


def spoken_answers(
    row: NmsqaRow, layout: PassageLayout, words: Sequence[Span], remark: Callable[[Done], None]
) -> tuple[Answer, ...]:
    """Return the answers with the times that can be used, each with its own; a text that occurs
    twice comes twice.

    words: of the passage with their times, where there is an alignment; they give the text of a
    time that has none.
    """
    answers = written_answers(row)
    timed: list[Answer] = []
    for time, answer in zip(row.times, _pair(row, answers, layout, remark), strict=True):
        # seconds at which it would be spoken if all characters of the context took as long
        expected = None
        if answer is not None and answer.char_start is not None and row.context:
            expected = layout.seconds * answer.char_start / len(row.context)
        interval, how = time_in_passage(time, layout, expected)
        remark(how)
        if interval is None:
            continue
        if answer is None:  # the words that lie in it by more than half
            inside = []
            for w in words:
                shared = min(w.end, interval[1]) - max(w.start, interval[0])
                if 2 * shared > w.end - w.start:
                    inside.append(w.text)
            answer = Answer(" ".join(inside))
        timed.append(Answer(answer.text, *interval, answer.char_start))
    used = {(answer.text, answer.char_start) for answer in timed}
    rest = [answer for answer in answers if (answer.text, answer.char_start) not in used]
    for _ in rest:
        remark(TEXTLESS)
    return (*dict.fromkeys(timed), *rest)


def _pair(
    row: NmsqaRow, answers: Sequence[Answer], layout: PassageLayout, remark: Callable[[Done], None]
) -> list[Answer | None]:
    """Choose the answer at every time of the row, None where there are no texts.

    A time whose table names its words has the answer of these words. Else the times are those of
    the texts in the sentence, in order, or those of all texts, in order, where there are as many;
    else each has the text that stands nearest to it.
    """
    if not answers or not row.times:
        return [None] * len(row.times)

    def stands_in(answer: Answer, sentence: str) -> bool:
        at = row.context.find(sentence)
        return answer.char_start is not None and 0 <= at <= answer.char_start < at + len(sentence)

    def choose_answer(text: str, sentence: str) -> Answer | None:
        """Choose the answer of this text; of several, the one that stands in the sentence."""
        matching = [answer for answer in answers if answer.text == text]
        return min(matching, key=lambda answer: not stands_in(answer, sentence), default=None)

    if all(time.text for time in row.times):
        return [choose_answer(time.text, row.segments.get(time.segment, "")) for time in row.times]
    sentence = row.segments.get(row.times[0].segment, "")
    texts = list(dict.fromkeys(a.text for a in answers if a.text in sentence or not sentence))
    if len(texts) == len(row.times):
        return [choose_answer(text, sentence) for text in texts]
    if len(row.texts or ()) == len(row.times):
        return [choose_answer(text, sentence) for text, _ in row.texts or ()]
    for _ in row.times:
        remark(GUESSED)
    candidates = [a for a in answers if a.text in texts] or list(answers)
    return [
        min(candidates, key=partial(_distance, time, row, sentence, layout)) for time in row.times
    ]


def _distance(
    time: AnswerTime, row: NmsqaRow, sentence: str, layout: PassageLayout, answer: Answer
) -> float:
    """Measure, in parts of the sentence (or else of the passage), how far a time is from where the
    letters of an answer stand in it."""
    piece, interval = layout.piece(time.segment), time.within
    if piece is not None and layout.joined is not None and interval is not None and sentence:
        text, seconds = sentence, layout.joined.length(piece)
    else:
        text, seconds, interval = row.context, layout.seconds, time.whole or time.within
    at = text.find(answer.text)
    if at < 0 or interval is None or not seconds:
        return float("inf")
    start = abs(interval[0] / seconds - at / len(text))
    end = abs(interval[1] / seconds - (at + len(answer.text)) / len(text))
    return start + end


# ---- a split: its rows, each with its passage


@dataclass
class SpokenPassage:
    """A passage while it is put together."""

    id: str
    text: str
    speaker: str
    names: tuple[str, ...]  # recordings of its sentences, in order
    whole: Path | None  # a recording of all of it, taken where its sentences are not there
    holed: bool  # the release does not have all its sentences
    lost: tuple[str, ...]  # recordings that it has and the source does not

    @property
    def has_audio(self) -> bool:
        return bool((self.names and not self.lost) or self.whole)


@dataclass
class NmsqaSplit:
    """A split while it is put together."""

    name: str
    files: Files
    report: PrepareReport
    meta: Mapping[str, Meta]
    recordings: Mapping[str, Path]
    rows: list[NmsqaRow] = field(default_factory=list)
    passages: dict[str, SpokenPassage] = field(default_factory=dict)
    of_row: dict[str, str] = field(default_factory=dict)  # id of a question -> of its passage
    layouts: dict[str, PassageLayout] = field(default_factory=dict)
    words: dict[str, tuple[Span, ...]] = field(default_factory=dict)

    def remark(self, done: Done, number: int = 1) -> None:
        self.report.remark(self.name, *done, number=number)

    def aside(self, kind: Any, name: str, reason: str, **more: Any) -> None:
        self.report.set_aside(self.name, kind, name, reason, **more)

    def question_recording(self, row: NmsqaRow) -> str:
        """Name the recording of a question, "" where there is none."""
        base = row.recording or self.files.questions.get(row.id, "")
        names = (base, f"{base}-0", f"{base}_0", f"{base}-1") if base else ()
        return next((name for name in names if name in self.recordings), "")


def read_split(
    name: str, files: Files, roots: Sequence[Path], report: PrepareReport, alone: bool
) -> NmsqaSplit:
    """Read the rows that can be used, each with its passage. alone: there is no other split. Raises
    InputError for damaged tables."""
    meta = read_meta(files.meta)
    tables = (row for path in files.parquet for row in parquet_rows(path))
    read = tables if files.parquet else csv_rows(files, meta)
    split = NmsqaSplit(name, files, report, meta, find_recordings(roots, name, alone))
    rows: dict[str, NmsqaRow] = {}
    for row in read:
        report.count(name, "questions")
        row = replace(row, id=row.id or row.recording)
        if row.id in rows and row != rows[row.id]:
            row = replace(row, id=report.unique_id(name, row.id, rows))
        if not row.id:
            split.aside("questions", row.id, NAMELESS, question=row.question)
        elif row.id in rows:
            split.aside("questions", row.id, prepare.TWICE, question=row.question)
        else:
            rows[row.id] = row
    split.rows = list(rows.values())
    # passages by their recording, or else by the recording of the question, or else by their text
    segments = group_segments(split.recordings)
    by_text = {
        row.context: row.passage
        for row in reversed(split.rows)
        if row.passage and row.context.strip()
    }
    for row in split.rows:
        question = row.recording or files.questions.get(row.id, "")
        passage = row.passage or by_text.get(row.context, "")
        # the passage's is called after the question's
        if not passage and (question.startswith("question-") or f"{question[:-1]}c" in segments):
            passage = f"context-{question[9:].rpartition('_')[0]}"
            if question.endswith("-q"):
                passage = f"{question[:-1]}c"
        passage = passage or f"text-{hash_bytes(row.context.encode())}"
        split.of_row[row.id] = passage
        if passage not in split.passages:
            by_number, numbers = segments.get(passage, {}), files.listed(passage)
            expected = sorted(by_number) if numbers is None else numbers
            names = tuple(by_number[n] for n in expected if n in by_number)
            lost = tuple(segment_name(passage, n) for n in expected if n not in by_number)
            whole = split.recordings.get(passage) if lost or not names else None
            holed = expected != list(range(max(expected, default=-1) + 1))
            split.passages[passage] = SpokenPassage(
                passage, row.context, row.speaker, names, whole, holed, lost
            )
    report.count(name, "passages", len(split.passages))
    return split


def split_records(split: NmsqaSplit, o: Nmsqa) -> SplitRecords:
    """Make the records of a split: with audio where any question and its passage have recordings,
    else text only."""
    report = split.report
    chosen = report.slice(split.name, split.passages, Counter(split.of_row.values()))
    split.passages = {name: split.passages[name] for name in chosen}
    split.rows = [row for row in split.rows if split.of_row[row.id] in split.passages]
    holed = sum(passage.holed for passage in split.passages.values())
    if holed:
        split.remark(HOLES, holed)
    passage_ids = {split.of_row[row.id] for row in split.rows if split.question_recording(row)}
    if any(split.passages[name].has_audio for name in passage_ids):
        return _records_with_audio(split, o)
    split.remark(prepare.NO_RECORDINGS, len(split.rows))
    released = {
        row.id: [
            {"segment": time.segment, "in_segment": time.within, "in_passage": time.whole}
            for time in row.times
        ]
        for row in split.rows
        if row.times
    }
    write_json(o.out / split.name / "released_times.json", released)
    return _text_records(split)


def _text_records(split: NmsqaSplit) -> SplitRecords:
    """Make the records of a split without audio."""
    passages = {
        p.id: Passage(p.id, "", 0.0, p.text, p.speaker, "en")
        for p in split.passages.values()
        if p.text.strip()
    }
    for name in split.passages.keys() - passages.keys():
        split.aside("passages", name, prepare.NO_TEXT)
    questions: list[Question] = []
    for row in split.rows:
        passage, reason = split.of_row[row.id], ""
        if row.texts is None:
            reason = NO_ANSWERS
        elif passage not in passages:
            reason = prepare.ITS_PASSAGE
        elif not row.question.strip():
            reason = prepare.NO_QUESTION
        elif row.times and not row.texts:
            reason = TIMES_ALONE
        if reason:
            split.aside("questions", row.id, reason)
            continue
        answers = written_answers(row)
        questions.append(Question(row.id, passage, "", 0.0, row.question, row.asker, "en", answers))
    return SplitRecords(list(passages.values()), questions)


def _records_with_audio(split: NmsqaSplit, o: Nmsqa) -> SplitRecords:
    """Make the records of a split with audio, of all that is whole. Passages are joined where need
    be, or left to be synthesised."""
    folder, candidates = o.out / split.name / "audio", split.passages.values()
    parts = {
        p.id: ([split.recordings[n] for n in p.names], folder / f"{safe_name(p.id)}.flac")
        for p in candidates
        if not p.whole
    }
    parts = {name: job for name, job in parts.items() if split.passages[name].has_audio}
    joined = prepare.run_parallel(
        partial(prepare.attempt, write_joined), parts, o.workers, f"joining {split.name}", "passage"
    )
    whole = {p.id: (p.whole,) for p in candidates if p.whole}
    results = joined | prepare.run_parallel(
        partial(prepare.attempt, decoded_seconds), whole, o.workers, f"reading {split.name}"
    )
    passages: list[Passage] = []
    for p in candidates:
        result = results.get(p.id)
        if isinstance(result, Joined | float):
            passages.append(_passage(p, result, split, o.out))
        elif o.speak and p.text.strip():
            passages.append(Passage(p.id, "", 0.0, p.text, "", "en"))
        elif result is not None:
            split.aside("passages", p.id, prepare.UNUSABLE, why=str(result))
        elif p.lost and p.names:
            split.aside("passages", p.id, NOT_WHOLE, missing=list(p.lost))
        else:
            split.aside("passages", p.id, prepare.NOT_FOUND)
    usable = {passage.id for passage in passages}
    names = {row.id: split.question_recording(row) for row in split.rows}
    paths = {
        row.id: (split.recordings[names[row.id]],)
        for row in split.rows
        if names[row.id] and split.of_row[row.id] in usable
    }
    seconds = prepare.run_parallel(
        partial(prepare.attempt, decoded_seconds),
        paths,
        o.workers,
        f"reading {split.name}",
        "question",
    )
    questions = (_question(row, split, usable, seconds.get(row.id), o) for row in split.rows)
    return SplitRecords(passages, [question for question in questions if question is not None])


def _passage(
    passage: SpokenPassage, joined: Joined | float, split: NmsqaSplit, out: Path
) -> Passage:
    """Make the record of a passage, and note where its sentences lie, and its words. joined: its
    sentences, or the seconds of the recording of the whole."""
    if isinstance(joined, Joined):
        layout = PassageLayout(passage.names, joined, joined.samples / SAMPLE_RATE)
        # a recording of the whole may be longer than its sentences: people pause between them
        if passage.id in split.recordings:
            try:
                apart = abs(duration(split.recordings[passage.id]) - layout.seconds)
                layout = replace(layout, comparable=apart <= AGREE + DRIFT * len(passage.names))
            except InputError:
                pass  # one that is damaged says nothing
        audio = f"{split.name}/audio/{safe_name(passage.id)}.flac"
    else:
        # where the sentences lie in it is not known
        names = tuple(segment_name(passage.id, n) for n in split.files.listed(passage.id) or ())
        layout = PassageLayout(names, None, joined)
        audio = manifest_path(passage.whole or Path(), out)
    words: tuple[Span, ...] = ()
    if passage.id in split.files.grids and not passage.names:
        words = _grid(passage.id, split)
    elif layout.joined is not None:
        moved = []
        for piece, name in enumerate(layout.names):
            for w in _grid(name, split):
                start = layout.joined.move_to_whole(piece, w.start)
                end = layout.joined.move_to_whole(piece, w.end)
                moved.append(Span(w.text, start, end))
        words = tuple(word for word in moved if word.end <= layout.seconds + 0.05)
    split.layouts[passage.id], split.words[passage.id] = layout, words
    return Passage(passage.id, audio, layout.seconds, passage.text, passage.speaker, "en", words)


def _grid(name: str, split: NmsqaSplit) -> tuple[Span, ...]:
    """Read the words of a TextGrid, of the tier that is named so or is first."""
    if name not in split.files.grids:
        return ()
    tiers = read_tiers(split.files.grids[name])
    named = [tier for n, tier in tiers if n.lower().endswith(("words", "word"))] or [
        tier for _, tier in tiers[:1]
    ]
    tier = named[0] if named else []
    return tuple(
        Span(text, start, end) for text, start, end in tier if text.strip() and end > start >= 0
    )


def _question(
    row: NmsqaRow,
    split: NmsqaSplit,
    usable: set[str],
    seconds: float | InputError | None,
    o: Nmsqa,
) -> Question | None:
    """Make the record of a question, or set it aside.

    usable: passages; seconds: of its recording, why that cannot be used, or None where there is
    none.
    """
    passage, name = split.of_row[row.id], split.question_recording(row)
    layout = split.layouts.get(passage)
    segments = {time.segment for time in row.times}
    reason = ""
    if row.texts is None:
        reason = NO_ANSWERS
    elif not row.recording and not name:
        reason = NO_RECORDING
    elif passage not in usable:
        reason = prepare.ITS_PASSAGE
    elif seconds is None:
        reason = prepare.NOT_FOUND
    elif isinstance(seconds, InputError):
        reason = prepare.UNUSABLE
    elif layout and layout.joined and segments and not segments & {"", *layout.names}:
        reason = ANSWER_MISSING
    if o.speak and reason and reason not in (NO_ANSWERS, ANSWER_MISSING, prepare.ITS_PASSAGE):
        reason = "" if row.question.strip() else prepare.NO_QUESTION
    if reason:
        why = {"why": str(seconds)} if isinstance(seconds, InputError) else {}
        split.aside("questions", row.id, reason, **why)
        return None
    answers = (
        spoken_answers(row, layout, split.words[passage], split.remark)
        if layout
        else written_answers(row)
    )
    if not isinstance(seconds, float):
        return Question(row.id, passage, "", 0.0, row.question, row.asker, "en", answers)
    audio, words = manifest_path(split.recordings[name], o.out), _grid(name, split)
    return Question(
        row.id, passage, audio, seconds, row.question, row.asker, "en", answers, words=words
    )


# ---- the corpus


def prepare_nmsqa(o: Nmsqa) -> dict[str, Any]:
    """Prepare as much of NMSQA as there is, and return the data report.

    source: a folder in any of the layouts, or one table of it. Raises InputError, one sentence, for
    a folder in which nothing is known, and for damaged tables where no split is left.
    """
    source = o.source.resolve()
    root, only = (source.parent, source) if source.is_file() else (source, None)

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        roots = [root] if only else unpack(root, o.out)
        tables = find_files(roots, only)
        if not tables:
            raise InputError(f"{source} has no table of NMSQA, nor do its archives; {LAYOUT}")
        alone = len(tables) == 1
        splits = [read_split(n, files, roots, report, alone) for n, files in tables.items()]
        records = {split.name: split_records(split, o) for split in splits}
        return records

    settings = {"made_from": stamp(root, ".parquet", ".csv", ".json", *ARCHIVES)}
    return prepare.prepare_corpus("nmsqa", o, settings, read, PUBLISHED, ABOUT)
