"""Prepare NMSQA (DUAL, arXiv 2203.04911): SQuAD 1.1 read by speech synthesisers (train, dev),
and questions read by people (test).

Layouts, irregularities and how they are handled: data/nmsqa/README.md. The release states the time
of an answer twice. The first is the time within its segment (a sentence); it is moved by the exact
lengths of the segments before it. The second, `audio_full_*`, repeats the first in dev, and counts
from the beginning of the passage in most of test: it is used to check the first, and in its place
where the first cannot be used.

Names of recordings, without folder and suffix, are:

                train, dev                                   test
    passage     context-{article}_{paragraph}                {source}-{id}-c
    segment     context-{article}_{paragraph}_{segment}      {source}-{id}-c-{segment}
    question    question-{article}_{paragraph}_{number}      {source}-{id}-q
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from speechssl.artifacts import hash_bytes
from speechssl.audio import SAMPLE_RATE, read_duration
from speechssl.data import prepare
from speechssl.data.files import (
    ARCHIVES,
    SEGMENT,
    SUFFIXES,
    add_recording,
    check_shards,
    describe_source,
    group_segments,
    list_files,
    load_json,
    make_safe_name,
    parse_number,
    read_csv,
    read_header,
    read_parquet,
    unpack,
)
from speechssl.data.options import Nmsqa
from speechssl.data.prepare import Interval, Joined, PrepareReport, Remark, SplitRecords, clip_time
from speechssl.data.records import TOLERANCE, Answer, Passage, Question, Span
from speechssl.data.squad import read_squad
from speechssl.data.textgrid import read_tiers
from speechssl.errors import InputError
from speechssl.schema import convert

# the training set is all of SQuAD 1.1 (87.6k rows at Hugging Face); segment_id.json of dev lists
# its passages
PUBLISHED = {
    "train": {"questions": 87_599},
    "dev": {"questions": 10_570, "passages": 2_067},
    "test": {"questions": 171},
}
ABOUT = {
    "source": (
        "NMSQA, github.com/DanielLin94144/DUAL-textless-SQA, huggingface.co/datasets/voidful/NMSQA"
    ),
    "paper": "arXiv 2203.04911",
    "licence": "CC BY-SA 4.0 (SQuAD's texts); see the release for the recordings",
}
# Two times of an answer agree if they differ by at most AGREE seconds, and DRIFT seconds for every
# segment before it: MP3 files are padded.
AGREE = 0.1
DRIFT = 0.06

# remarks on how the time of an answer that is kept was found: (what was found, what was done)
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
# reasons why items are set aside
NO_ID = "its row has no id"
NO_ANSWERS = "its answers are missing from the source"
NOT_WHOLE = "recordings of its sentences are not in the source"
ANSWER_MISSING = "the sentence with its answer is missing from its passage's recording"

# start and end in seconds, as a table states them, right or not
ReleasedTime = tuple[float | None, float | None]


@dataclass(frozen=True)
class AnswerTime:
    """An answer time is an annotation of the release. It states when an answer is spoken, counted
    from the beginning of its segment and of its passage."""

    segment: str  # recording of the sentence, "" where the table has none
    in_segment: ReleasedTime
    in_passage: ReleasedTime
    sentence: str = ""  # the text of the segment
    text: str = ""  # the answer, "" where the table does not say which of its answers this is


@dataclass(frozen=True)
class NmsqaRow:
    """A row is a question with its passage, its answers and their times."""

    id: str  # "" where the table has none
    passage: str  # recording of the passage, "" where there is none
    recording: str  # of the question, "" where there is none
    context: str
    question: str
    texts: tuple[tuple[str, int | None], ...]  # (answer, its offset in the context)
    times: tuple[AnswerTime, ...]
    speaker: str = ""  # of the passage
    asker: str = ""  # the speaker of the question


def name_recording(path: str | None) -> str:
    """Name a recording by its path, without folder and suffix."""
    name = (path or "").rpartition("/")[2]
    return re.sub(r"\.(mp3|wav|flac|ogg)$", "", name)


# ---- the files of a release

# word in the name of a file or a folder -> split
SPLIT_OF_WORD = {
    "train": "train",
    "tune": "train",
    "dev": "dev",
    "validation": "dev",
    "test": "test",
    "lxt": "test",
}


@dataclass
class Files:
    """The files of one split are sorted by what they hold."""

    parquet: list[Path] = field(default_factory=list)  # one table, or its shards
    # {split}-answer-span.csv: every line is an annotation
    spans: list[Path] = field(default_factory=list)
    # meta-{split}.csv: speaker, text and duration of a recording
    meta: list[Path] = field(default_factory=list)
    squad: list[Path] = field(default_factory=list)  # {split}-v1.1.json: the texts
    grids: dict[str, Path] = field(default_factory=dict)  # recording -> TextGrid
    recordings: dict[str, Path] = field(default_factory=dict)  # name -> file
    questions: dict[str, str] = field(default_factory=dict)  # id -> recording (hash2question)
    # passage, without "context-" -> numbers of the segments that the release has (segment_id)
    segment_ids: dict[str, list[str]] = field(default_factory=dict)

    def list_segment_numbers(self, passage: str, present: Iterable[int]) -> list[int]:
        """List the numbers of the segments of a passage: those in segment_id, or else those that
        are present."""
        listed = self.segment_ids.get(passage.removeprefix("context-"), present)
        return sorted(map(int, listed))


def find_split(text: str) -> str:
    """Find the split that a text names last: dev for "dev_audios", train for "fine-tune"; "" where
    it names none."""
    words = re.split(r"[^a-z]+", text.lower())
    splits = [SPLIT_OF_WORD[word] for word in words if word in SPLIT_OF_WORD]
    return splits[-1] if splits else ""


def find_files(roots: Sequence[Path], only: Path | None = None) -> dict[str, Files]:
    """Find the files of every split that has a table. Recordings and TextGrids lie in a folder that
    is named after their split.

    only: the one Parquet table to read, None for all. Raises InputError for two tables of a split,
    and for two recordings of one name whose contents differ.
    """
    splits = {split: Files() for split in PUBLISHED}
    sounds = (*SUFFIXES, ".textgrid")
    paths = {}  # file -> its folder, relative to the root
    for root in roots:
        for path in list_files(root, ".parquet", ".csv", ".json", *sounds):
            paths[path] = path.parent.relative_to(root).as_posix()
    for path, folder in paths.items():
        kind = path.suffix.lower()
        split = find_split(folder)
        if kind not in sounds:
            split = find_split(path.stem) or split
        if not split or (only is not None and kind == ".parquet" and path != only):
            continue
        files = splits[split]
        if kind == ".parquet":
            files.parquet.append(path)
        elif kind == ".textgrid":
            add_recording(files.grids, path.stem, path)
        elif kind in SUFFIXES:
            add_recording(files.recordings, path.stem, path)
        elif kind == ".csv":
            names = set(read_header(path))
            if "hash" in names:
                files.spans.append(path)
            elif "id" in names:
                files.meta.append(path)
        elif "segment_id" in path.stem:
            files.segment_ids = convert(load_json(path), dict[str, list[str]], path)
        elif "hash2question" in path.stem:
            files.questions = convert(load_json(path), dict[str, str], path)
        elif path.stem.endswith("v1.1"):
            files.squad.append(path)
    for split, files in splits.items():
        check_shards(split, files.parquet)
    return {split: files for split, files in splits.items() if files.parquet or files.spans}


# ---- Parquet

Numbers = tuple[float | None, ...] | None


@dataclass(frozen=True)
class Answers:
    """The answers of a row are parallel lists."""

    text: tuple[str, ...] | None = None
    answer_start: tuple[int, ...] | None = None
    audio_full_answer_start: Numbers = None
    audio_full_answer_end: Numbers = None
    audio_segment_answer_start: Numbers = None
    audio_segment_answer_end: Numbers = None


@dataclass(frozen=True)
class Row:
    """A row of a table has further columns, which are not read."""

    question: str
    context: str
    id: str | None = None
    answers: Answers | None = None
    content_segment_audio_path: str | None = None
    content_full_audio_path: str | None = None
    content_audio_speaker: str | None = None
    content_segment_text: str | None = None
    question_audio_path: str | None = None
    question_audio_speaker: str | None = None


def read_parquet_rows(path: Path) -> Iterator[NmsqaRow]:
    """Read the rows of a table. Raises InputError for a file that is damaged or is no table of
    NMSQA."""
    for number, cells in enumerate(read_parquet(path)):
        row = convert(cells, Row, f"{path}, row {number}", "give the published file")
        answers = row.answers or Answers()
        passage = name_recording(row.content_full_audio_path)
        segment = name_recording(row.content_segment_audio_path)
        if segment == passage:
            segment = ""
        sentence = row.content_segment_text or ""
        in_segment = zip_longest(
            answers.audio_segment_answer_start or (), answers.audio_segment_answer_end or ()
        )
        in_passage = zip_longest(
            answers.audio_full_answer_start or (), answers.audio_full_answer_end or ()
        )
        times = []
        for interval, in_whole in zip_longest(in_segment, in_passage, fillvalue=(None, None)):
            times.append(AnswerTime(segment, interval, in_whole, sentence))
        yield NmsqaRow(
            id=row.id or "",
            passage=passage,
            recording=name_recording(row.question_audio_path),
            context=row.context,
            question=row.question,
            texts=tuple(zip(answers.text or (), answers.answer_start or (), strict=False)),
            times=tuple(times),
            speaker=row.content_audio_speaker or "",
            asker=row.question_audio_speaker or "",
        )


# ---- the original release

Cells = Mapping[str, str]


def read_csv_rows(files: Files) -> Iterator[NmsqaRow]:
    """Yield the questions in the order of the tables, then those without an annotation that have a
    text or a recording.

    {split}-answer-span.csv has a line for every annotation: a segment and a time in it, a passage
    and a time in it, or both. meta-{split}.csv has a line for every recording; its texts are used
    where SQuAD's own are not in the source.
    """
    meta: dict[str, Cells] = {}  # recording -> its line in meta-{split}.csv
    for path in files.meta:
        for cells in read_csv(path):
            name = name_recording(cells["id"])
            if meta.setdefault(name, cells) != cells:
                raise InputError(f"{path} has two lines of {name} that differ; keep one of them")
    paragraphs = [paragraph for path in files.squad for paragraph in read_squad(path)]
    squad = {qa.id: (paragraph.context, qa) for paragraph in paragraphs for qa in paragraph.qas}
    # id of the question -> its lines in {split}-answer-span.csv
    annotations: dict[str, list[Cells]] = {}
    for path in files.spans:
        for cells in read_csv(path):
            annotations.setdefault(cells["hash"], []).append(cells)

    texts_of = {}  # recording -> its text
    for name, line in meta.items():
        texts_of[name] = line.get("text") or line.get("normalized_text", "")
    segments = group_segments(meta)
    for question_id in dict.fromkeys([*annotations, *files.questions, *squad]):
        lines = annotations.get(question_id, [])
        recording = files.questions.get(question_id, "")
        passage = _name_passage(recording, lines)
        names = segments.get(passage, {})
        numbers = files.list_segment_numbers(passage, names)
        sentences = {names[n]: texts_of[names[n]] for n in numbers if n in names}
        times = tuple(dict.fromkeys(_parse_time(cells, sentences) for cells in lines))
        if question_id in squad:
            context, qa = squad[question_id]
            question = qa.question
            texts = [(gold.text, gold.offset) for gold in qa.answers]
        else:
            context = " ".join(filter(None, sentences.values())) or texts_of.get(passage, "")
            question = texts_of.get(recording, "")
            texts = [(time.text, _find_words(context, time)) for time in times if time.text]
        speakers = [meta[s].get("speaker", "") for s in (passage, *sentences) if s in meta]
        yield NmsqaRow(
            id=question_id,
            passage=passage,
            recording=recording,
            context=context,
            question=question,
            texts=tuple(dict.fromkeys(texts)),
            times=times,
            speaker=speakers[0] if speakers else "",
            asker=meta.get(recording, {}).get("speaker", ""),
        )


def _name_passage(recording: str, lines: Sequence[Cells]) -> str:
    """Return the name of the passage of a question: the name in the question's annotations, or
    otherwise the one that fits the name of its recording."""
    for cells in lines:
        passage = _complete_name(cells.get("context_id") or cells.get("name_id", ""))
        if passage:
            return passage
        segment = SEGMENT.fullmatch(_complete_name(cells.get("utterance", "")))
        if segment:
            return segment[1]
    return _guess_passage(recording)


def _guess_passage(recording: str) -> str:
    """Guess the name of the passage of a question from its recording: context-1_2 for
    question-1_2_3, news-7-c for news-7-q."""
    passage = re.sub(r"^question-(.+)_\d+$", r"context-\1", recording)
    return re.sub("-q$", "-c", passage)


def _parse_time(cells: Cells, sentences: Mapping[str, str]) -> AnswerTime:
    """Parse a line of {split}-answer-span.csv. sentences: segment -> its text."""
    segment = _complete_name(cells.get("utterance", ""))
    return AnswerTime(
        segment=segment,
        in_segment=(parse_number(cells.get("start")), parse_number(cells.get("end"))),
        in_passage=(parse_number(cells.get("new_start")), parse_number(cells.get("new_end"))),
        sentence=sentences.get(segment, ""),
        text=cells.get("answer", ""),
    )


def _complete_name(cell: str) -> str:
    """Return the name of a passage or a segment. Some tables leave out its "context-", which is
    added here."""
    name = name_recording(cell)
    return f"context-{name}" if re.fullmatch(r"\d+(_\d+)+", name) else name


def _find_words(context: str, time: AnswerTime) -> int | None:
    """Find the offset of an answer in the context, from the beginning of its sentence on."""
    sentence_start = max(context.find(time.sentence), 0)
    offset = context.find(time.text, sentence_start)
    return offset if offset >= 0 else None


# ---- answers: their times in the recording of the passage


@dataclass(frozen=True)
class PassageLayout:
    """A layout says where the segments of a passage lie in its recording."""

    names: tuple[str, ...]  # of the segments, in order
    joined: Joined
    # whether the release counted times in the passage in a recording as long as this one
    comparable: bool = True

    @property
    def seconds(self) -> float:
        return self.joined.samples / SAMPLE_RATE

    def find_index(self, segment: str) -> int | None:
        return self.names.index(segment) if segment in self.names else None


def time_in_passage(
    time: AnswerTime, layout: PassageLayout, expected: float | None
) -> tuple[Interval | None, Remark]:
    """Find an answer time in the recording of the passage, or None where neither released time can
    be used; return also the remark that says how it was found. expected: the second at which the
    answer should begin, by its place in the text."""
    index = layout.find_index(time.segment)
    joined = layout.joined
    # the time in the segment, moved by the lengths of the segments before it
    moved = None
    if index is not None:
        in_segment = clip_time(*time.in_segment, joined.measure_piece(index))
        if in_segment:
            start, end = (joined.move_to_whole(index, seconds) for seconds in in_segment)
            moved = start, min(end, layout.seconds)
    released = clip_time(*time.in_passage, layout.seconds) if layout.comparable else None
    # Where both released times are equal outside the first segment, the time in the passage is a
    # copy of the time in the segment, and wrong.
    is_copy = time.in_segment == time.in_passage and time.segment not in ("", *layout.names[:1])
    if moved is None:
        return (None, OUTSIDE) if released is None or is_copy else (released, WHOLE)
    if released is None or is_copy:
        return moved, ADDED
    difference = max(abs(moved[0] - released[0]), abs(moved[1] - released[1]))
    if difference <= AGREE + DRIFT * (index or 0):
        return moved, CONFIRMED
    if expected is not None and abs(released[0] - expected) < abs(moved[0] - expected):
        return released, NEARER
    return moved, NEARER


def list_text_answers(row: NmsqaRow) -> tuple[Answer, ...]:
    """List the answers of a row, each (text, offset) once. An offset is kept where the context has
    the answer there."""
    answers = []
    for text, offset in row.texts:
        fits = offset is not None and row.context.startswith(text, offset)
        if text.strip():
            answers.append(Answer(text, char_start=offset if fits else None))
    return tuple(dict.fromkeys(answers))


def time_answers(
    row: NmsqaRow, layout: PassageLayout, remark: Callable[[Remark], None]
) -> tuple[Answer, ...]:
    """Make an answer for every time that can be used, and then the answers without a time. remark:
    is called with what was found and done for every answer."""
    answers = list_text_answers(row)
    with_times: list[Answer] = []
    for time, answer in zip(row.times, _match_times(row, answers, layout, remark), strict=True):
        # the second at which the answer would begin if all characters of the context took equally
        # long
        expected = None
        if answer.char_start is not None:
            expected = layout.seconds * answer.char_start / len(row.context)
        interval, how = time_in_passage(time, layout, expected)
        remark(how)
        if interval:
            with_times.append(Answer(answer.text, *interval, answer.char_start))
    used = {(answer.text, answer.char_start) for answer in with_times}
    without_times = [answer for answer in answers if (answer.text, answer.char_start) not in used]
    return (*dict.fromkeys(with_times), *without_times)


def _match_times(
    row: NmsqaRow,
    answers: Sequence[Answer],
    layout: PassageLayout,
    remark: Callable[[Remark], None],
) -> list[Answer]:
    """Choose the answer of every time of the row; an empty answer where there are no texts.

    1. Where the table states the text of each time, that text decides.
    2. Otherwise times and texts are matched in order, if there are as many times as texts in the
       sentence, or as texts in all.
    3. Otherwise every time gets the text that is nearest to it.
    """
    if not answers or not row.times:
        return [Answer("")] * len(row.times)

    if all(time.text for time in row.times):
        return [_choose_answer(row, answers, time.text, time.sentence) for time in row.times]
    sentence = row.times[0].sentence
    texts = list(dict.fromkeys(a.text for a in answers if a.text in sentence or not sentence))
    if len(texts) != len(row.times) and len(row.texts) == len(row.times):
        texts = [text for text, _ in row.texts]
    if len(texts) == len(row.times):
        return [_choose_answer(row, answers, text, sentence) for text in texts]
    for _ in row.times:
        remark(GUESSED)
    candidates = [a for a in answers if a.text in texts] or list(answers)
    return [
        min(candidates, key=partial(_measure_distance, time, row, layout)) for time in row.times
    ]


def _choose_answer(row: NmsqaRow, answers: Sequence[Answer], text: str, sentence: str) -> Answer:
    """Choose the answer with this text; of several, the one in the sentence."""
    first = row.context.find(sentence)
    matching = [answer for answer in answers if answer.text == text]
    for answer in matching:
        offset = answer.char_start
        if offset is not None and 0 <= first <= offset < first + len(sentence):
            return answer
    return matching[0] if matching else Answer(text)


def _measure_distance(
    time: AnswerTime, row: NmsqaRow, layout: PassageLayout, answer: Answer
) -> float:
    """Measure how far a time is from the place of an answer: |difference of the starts| +
    |difference of the ends|, where times are fractions of the seconds, and places fractions of the
    characters, of the sentence (or of the passage where the sentence is not known)."""
    index = layout.find_index(time.segment)
    if index is not None and time.sentence:
        text = time.sentence
        seconds = layout.joined.measure_piece(index)
        start, end = time.in_segment
    else:
        text = row.context
        seconds = layout.seconds
        start, end = time.in_passage
    first = text.find(answer.text)
    if first < 0 or start is None or end is None:
        return float("inf")
    last = first + len(answer.text)
    return abs(start / seconds - first / len(text)) + abs(end / seconds - last / len(text))


# ---- the records of a split


def read_rows(split: str, files: Files, report: PrepareReport) -> dict[str, NmsqaRow]:
    """Read the questions of a split by id. A passage without a name gets one: that of another row
    with the same text, the one that fits the question's recording, or a hash of the text. Raises
    InputError for damaged tables."""
    rows: dict[str, NmsqaRow] = {}
    tables = chain.from_iterable(map(read_parquet_rows, files.parquet))
    for row in tables if files.parquet else read_csv_rows(files):
        report.count(split, "questions")
        if not row.id:
            report.set_aside(split, "questions", row.id, NO_ID, question=row.question)
            continue
        name = report.make_unique_id(split, row.id, rows)
        recording = row.recording or files.questions.get(row.id, "")
        rows[name] = replace(row, id=name, recording=recording)
    by_text = {row.context: row.passage for row in reversed(rows.values()) if row.passage}
    for name, row in rows.items():
        if not row.passage:
            passage = by_text.get(row.context) or _guess_passage(row.recording)
            passage = passage or f"text-{hash_bytes(row.context.encode())}"
            rows[name] = replace(row, passage=passage)
    return rows


def make_records(split: str, files: Files, report: PrepareReport, o: Nmsqa) -> SplitRecords:
    """Make the records of a split, and join the segments of its passages.

    If at least one question and its passage have recordings, the records of the split have audio,
    and items without a recording are set aside (or spoken, with --speak). Otherwise the whole split
    is text only.
    """
    by_id = read_rows(split, files, report)
    first_rows, by_id = report.slice_rows(split, by_id, lambda row: row.passage)
    rows = by_id.values()

    present, missing = _find_segments(first_rows, files)
    joinable = {name: names for name, names in present.items() if names and not missing[name]}
    if not any(row.recording in files.recordings and row.passage in joinable for row in rows):
        report.remark(split, *prepare.NO_RECORDINGS, number=len(rows))
        files = replace(files, recordings={})
        joinable = {}
    # an item needs no recording with --speak, and in a split that is text only
    text_will_do = o.speak or not files.recordings

    jobs = {}
    for name, names in joinable.items():
        paths = [files.recordings[segment] for segment in names]
        jobs[name] = (paths, o.out / split / "audio" / f"{make_safe_name(name)}.flac")
    joined = prepare.run_parallel(
        _try_join_segments, jobs, o.workers, f"joining {split}", "passage"
    )
    passages: dict[str, Passage] = {}
    layouts: dict[str, PassageLayout] = {}
    for name, row in first_rows.items():
        recording: prepare.Measured | None = None
        words: tuple[Span, ...] = ()
        if name in joined:
            (_, out), result = jobs[name], joined[name]
            if isinstance(result, Joined):
                layout = _lay_out(tuple(present[name]), result, files.recordings.get(name))
                layouts[name] = layout
                recording = out, layout.seconds
                words = _read_passage_words(layout, files.grids)
            else:
                recording = out, result
        audio = prepare.choose_audio(recording, row.context, prepare.NO_TEXT, text_will_do, o.out)
        if audio == {"reason": prepare.NOT_FOUND} and present[name]:
            audio = {"reason": NOT_WHOLE, "missing": missing[name]}
        if isinstance(audio, dict):
            report.set_aside(split, "passages", name, **audio)
            continue
        path, seconds = audio
        passages[name] = Passage(
            id=name,
            audio=path,
            seconds=seconds,
            text=row.context,
            speaker=row.speaker,
            words=words,
        )

    paths_of = {}  # id of a question -> its recording
    for row in rows:
        if row.recording in files.recordings and row.passage in passages:
            paths_of[row.id] = files.recordings[row.recording]
    measured = prepare.measure_recordings(paths_of, o.workers, f"reading {split}")
    questions: list[Question] = []
    for row in rows:
        audio = prepare.choose_audio(
            measured.get(row.id), row.question, prepare.NO_QUESTION, text_will_do, o.out
        )
        layout_of_row = layouts.get(row.passage)
        reason = _explain_unusable(row, passages, layout_of_row)
        if reason:
            audio = {"reason": reason}
        if isinstance(audio, dict):
            report.set_aside(split, "questions", row.id, **audio)
            continue
        answers = list_text_answers(row)
        if layout_of_row:
            answers = time_answers(row, layout_of_row, lambda remark: report.remark(split, *remark))
        question = Question(row.id, row.passage, *audio, row.question, row.asker, "en", answers)
        if question.audio:
            longest = question.seconds + TOLERANCE
            words = tuple(w for w in read_words(row.recording, files.grids) if w.end <= longest)
            question = replace(question, words=words)
        questions.append(question)
    return SplitRecords(list(passages.values()), questions)


def _find_segments(
    names: Iterable[str], files: Files
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Find the segments of passages: passage -> recordings that are in the source, in order, and
    passage -> recordings that the release has and the source lacks."""
    present: dict[str, list[str]] = {}
    missing: dict[str, list[str]] = {}
    segments = group_segments(files.recordings)
    for name in names:
        by_number = segments.get(name, {})
        numbers = files.list_segment_numbers(name, by_number)
        mark = "-" if name.endswith("-c") else "_"
        present[name] = [by_number[n] for n in numbers if n in by_number]
        missing[name] = [f"{name}{mark}{n}" for n in numbers if n not in by_number]
    return present, missing


def _try_join_segments(paths: Sequence[Path], out: Path) -> Joined | InputError:
    """Join the segments of a passage into `out`; return where they lie, or why they cannot be
    joined."""
    try:
        return prepare.write_joined(paths, out)
    except InputError as error:
        return error


def _explain_unusable(
    row: NmsqaRow, passages: Mapping[str, Passage], layout: PassageLayout | None
) -> str:
    """Say why a question cannot be used, whatever its recording; "" where it can. layout: that of
    its passage, None where the passage is text only."""
    if not row.texts and not (row.times and layout):
        return NO_ANSWERS
    if row.passage not in passages:
        return prepare.ITS_PASSAGE
    segments = {time.segment for time in row.times}
    if layout and segments and not segments & {"", *layout.names}:
        return ANSWER_MISSING
    return ""


def _lay_out(names: tuple[str, ...], joined: Joined, recording: Path | None) -> PassageLayout:
    """Say where the segments of a passage lie in its joined recording. recording: the whole passage
    as released, which may be longer than its segments, because people pause between them."""
    layout = PassageLayout(names, joined)
    if recording is None:
        return layout
    try:
        difference = abs(read_duration(recording) - layout.seconds)
    except InputError:  # a damaged file says nothing about the segments
        return layout
    return replace(layout, comparable=difference <= AGREE + DRIFT * len(names))


def _read_passage_words(layout: PassageLayout, grids: Mapping[str, Path]) -> tuple[Span, ...]:
    """Read the words of all segments, with their times in the passage."""
    words = []
    for index, name in enumerate(layout.names):
        for word in read_words(name, grids):
            start = layout.joined.move_to_whole(index, word.start)
            end = layout.joined.move_to_whole(index, word.end)
            words.append(Span(word.text, start, end))
    return tuple(word for word in words if word.end <= layout.seconds + TOLERANCE)


def read_words(name: str, grids: Mapping[str, Path]) -> tuple[Span, ...]:
    """Read the words in the TextGrid of a recording: those of the first tier whose name ends in
    "words" or "word", or otherwise of the first tier."""
    if name not in grids:
        return ()
    tiers = read_tiers(grids[name])
    word_tiers = [spans for title, spans in tiers if title.lower().endswith(("words", "word"))]
    if len(word_tiers) > 1:
        raise InputError(f"{grids[name]} has {len(word_tiers)} tiers of words; keep one of them")
    candidates = word_tiers or [spans for _, spans in tiers]
    words = []
    for text, start, end in candidates[0] if candidates else ():
        if text.strip() and end > start >= 0:
            words.append(Span(text, start, end))
    return tuple(words)


def prepare_nmsqa(o: Nmsqa) -> dict[str, Any]:
    """Prepare as much of NMSQA as there is, and return the data report.

    o.source: a folder in any of the layouts, or one table of it. Raises InputError for a folder
    without tables of NMSQA, and for damaged tables.
    """
    source = o.source.resolve()
    is_table = source.is_file()
    root = source.parent if is_table else source

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        roots = [root] if is_table else unpack(root, o.out, list_files(root, *ARCHIVES))
        splits = find_files(roots, only=source if is_table else None)
        if not splits:
            raise prepare.make_source_error(source, "nmsqa")
        return {split: make_records(split, files, report, o) for split, files in splits.items()}

    settings = {"made_from": describe_source(root, ".parquet", ".csv", ".json", *ARCHIVES)}
    return prepare.prepare_corpus("nmsqa", o, settings, read, PUBLISHED, ABOUT)
