"""Prepare NMSQA (DUAL, arXiv 2203.04911): SQuAD 1.1 read by speech synthesisers (train, dev),
and questions read by people (test).

Layouts, irregularities and how they are handled: data/nmsqa/README.md. The time of an answer within
its sentence is moved by the exact lengths of the sentences before it; `audio_full_*`, which repeats
it in dev and counts from the passage's beginning in most of test, is a check on it, and stands in
where it cannot be used.

Recordings are named `context-{article}_{paragraph}` (passage), the same with `_{segment}` (a
sentence of it), and `question-{article}_{paragraph}_{number}`; in test `{source}-{id}-c`, the same
with `-{segment}`, and `{source}-{id}-q`. Names are kept without folder and suffix.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from speechssl.artifacts import hash_bytes
from speechssl.audio import SAMPLE_RATE, header_duration
from speechssl.data import prepare
from speechssl.data.files import (
    ARCHIVES,
    SEGMENT,
    SUFFIXES,
    check_shards,
    enter,
    files_below,
    group_segments,
    load_json,
    number_of,
    read_csv,
    read_header,
    read_parquet,
    safe_name,
    stamp,
    unpack,
)
from speechssl.data.options import Nmsqa
from speechssl.data.prepare import Done, Interval, Joined, PrepareReport, SplitRecords, clip_time
from speechssl.data.records import Answer, Passage, Question, Span
from speechssl.data.squad import read_squad
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
NO_ID = "its row has no id"
NO_ANSWERS = "its answers are missing from the source"
NOT_WHOLE = "recordings of its sentences are not in the source"
ANSWER_MISSING = "the sentence with its answer is missing from its passage's recording"

Released = tuple[float | None, float | None]  # an interval as a table has it, right or not


@dataclass(frozen=True)
class AnswerTime:
    """An answer is spoken at a time, as released: in seconds from the beginning of a segment, and
    of the passage."""

    segment: str  # recording of the sentence, "" where the table has none
    within: Released
    whole: Released
    sentence: str = ""  # what is read in the segment
    text: str = ""  # its words, "" where the table leaves open which of the texts it is


@dataclass(frozen=True)
class NmsqaRow:
    """A row is a question. texts: (answer, its offset in the context or None)."""

    id: str  # "" where the table has none
    passage: str  # recording of the passage, "" where there is none
    recording: str  # of the question, "" where there is none
    context: str
    question: str
    texts: tuple[tuple[str, int | None], ...]
    times: tuple[AnswerTime, ...]
    speaker: str = ""
    asker: str = ""


def stem(path: str | None) -> str:
    """Return a recording's name without folder and suffix."""
    name = (path or "").rpartition("/")[2]
    return re.sub(r"\.(mp3|wav|flac|ogg)$", "", name)


# ---- the files of a release

WORDS = {"train": "train", "tune": "train", "dev": "dev", "validation": "dev"} | {
    "test": "test",
    "lxt": "test",
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
    recordings: dict[str, Path] = field(default_factory=dict)
    questions: dict[str, str] = field(default_factory=dict)  # id -> recording (hash2question)
    # passage, without "context-" -> numbers of the segments that the release has (segment_id)
    segment_ids: dict[str, list[str]] = field(default_factory=dict)

    def segments(self, passage: str, names: Mapping[int, str]) -> list[int]:
        """List the numbers of a passage's segments: those that the release lists, or else those of
        the names."""
        listed = self.segment_ids.get(passage.removeprefix("context-"), names)
        return sorted(map(int, listed))


def split_of(text: str) -> str:
    """Return the split that a text names last: "dev_audios" is dev's, "fine-tune" train's."""
    named = [WORDS[word] for word in re.split(r"[^a-z]+", text.lower()) if word in WORDS]
    return named[-1] if named else ""


def find_files(roots: Sequence[Path], only: Path | None = None) -> dict[str, Files]:
    """Find the files of every split that has a table; recordings and TextGrids lie in a folder that
    is named after their split.

    only: the one table that was asked for. Raises InputError for two tables of a split, and for two
    recordings of one name whose contents differ.
    """
    splits = {split: Files() for split in PUBLISHED}
    sounds = (*SUFFIXES, ".textgrid")
    for root, path in files_below(roots, ".parquet", ".csv", ".json", *sounds):
        kind = path.suffix.lower()
        split = split_of(path.parent.relative_to(root).as_posix())
        if kind not in sounds:
            split = split_of(path.stem) or split
        if not split or (only is not None and kind == ".parquet" and path != only):
            continue
        files = splits[split]
        if kind == ".parquet":
            files.parquet.append(path)
        elif kind == ".textgrid":
            enter(files.grids, path.stem, path, copies=True)
        elif kind in SUFFIXES:
            enter(files.recordings, path.stem, path, copies=True)
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
    """The record of lists about the answers of a row."""

    text: tuple[str, ...] | None = None
    answer_start: tuple[int, ...] | None = None
    audio_full_answer_start: Numbers = None
    audio_full_answer_end: Numbers = None
    audio_segment_answer_start: Numbers = None
    audio_segment_answer_end: Numbers = None


@dataclass(frozen=True)
class Row:
    """A row of a table, as far as its columns are read."""

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


def parquet_rows(path: Path) -> Iterator[NmsqaRow]:
    """Read the rows of a table. Raises InputError for a file that is damaged or is no table of
    NMSQA."""
    for number, cells in enumerate(read_parquet(path)):
        row = convert(cells, Row, f"{path}, row {number}", "give the published file")
        answers = row.answers or Answers()
        passage = stem(row.content_full_audio_path)
        segment = stem(row.content_segment_audio_path)
        sentence = row.content_segment_text or ""
        starts, ends = answers.audio_segment_answer_start, answers.audio_segment_answer_end
        within = zip_longest(starts or (), ends or ())
        starts, ends = answers.audio_full_answer_start, answers.audio_full_answer_end
        whole = zip_longest(starts or (), ends or ())
        times = []
        for near, far in zip_longest(within, whole, fillvalue=(None, None)):
            times.append(AnswerTime("" if segment == passage else segment, near, far, sentence))
        yield NmsqaRow(
            id=row.id or "",
            passage=passage,
            recording=stem(row.question_audio_path),
            context=row.context,
            question=row.question,
            texts=tuple(zip(answers.text or (), answers.answer_start or (), strict=False)),
            times=tuple(times),
            speaker=row.content_audio_speaker or "",
            asker=row.question_audio_speaker or "",
        )


# ---- the original release: a line an annotation in {split}-answer-span.csv, which names a segment
# and times in it, a passage and times in it, or both; a line a recording in meta-{split}.csv, whose
# texts are taken where SQuAD's own are not there

Cells = Mapping[str, str]


def csv_rows(files: Files) -> Iterator[NmsqaRow]:
    """Read the questions in the order of the tables, then those that have texts or a recording and
    no annotation."""
    meta: dict[str, Cells] = {}
    for path in files.meta:
        meta |= {stem(cells["id"]): cells for cells in read_csv(path)}
    paragraphs = [paragraph for path in files.squad for paragraph in read_squad(path)]
    squad = {qa.id: (paragraph.context, qa) for paragraph in paragraphs for qa in paragraph.qas}
    annotations: dict[str, list[Cells]] = {}
    for path in files.spans:
        for cells in read_csv(path):
            annotations.setdefault(cells["hash"], []).append(cells)

    def text_of(recording: str) -> str:
        cells = meta.get(recording, {})
        return cells.get("text") or cells.get("normalized_text", "")

    segments = group_segments(meta)
    for name in dict.fromkeys([*annotations, *files.questions, *squad]):
        lines = annotations.get(name, [])
        recording = files.questions.get(name, "")
        passage = _name_passage(recording, lines)
        names = segments.get(passage, {})
        numbers = files.segments(passage, names)
        sentences = {names[n]: text_of(names[n]) for n in numbers if n in names}
        times = tuple(dict.fromkeys(_answer_time(cells, sentences) for cells in lines))
        if name in squad:
            context, qa = squad[name]
            question = qa.question
            texts = [(gold.text, gold.offset) for gold in qa.answers]
        else:
            context = " ".join(filter(None, sentences.values())) or text_of(passage)
            question = text_of(recording)
            texts = [(time.text, _find_words(context, time)) for time in times if time.text]
        speakers = [meta[s].get("speaker", "") for s in (passage, *sentences) if s in meta]
        yield NmsqaRow(
            id=name,
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
    """Name the recording of a passage: as the lines of its annotations do, or else after that of
    the question."""
    for cells in lines:
        passage = _recording_name(cells.get("context_id") or cells.get("name_id", ""))
        match = SEGMENT.fullmatch(_recording_name(cells.get("utterance", "")))
        if passage or match:
            return passage or (match[1] if match else "")
    return _passage_of(recording)


def _passage_of(recording: str) -> str:
    """Name the recording of a passage after that of a question; "" after none."""
    passage = re.sub(r"^question-(.+)_\d+$", r"context-\1", recording)
    return re.sub("-q$", "-c", passage)


def _answer_time(cells: Cells, sentences: Mapping[str, str]) -> AnswerTime:
    columns = ("start", "end", "new_start", "new_end")
    start, end, new_start, new_end = (number_of(cells.get(name)) for name in columns)
    segment = _recording_name(cells.get("utterance", ""))
    sentence, text = sentences.get(segment, ""), cells.get("answer", "")
    return AnswerTime(segment, (start, end), (new_start, new_end), sentence, text)


def _recording_name(cell: str) -> str:
    """Name a recording; derived tables leave out the word before the numbers of a name."""
    name = stem(cell)
    return f"context-{name}" if re.fullmatch(r"\d+(_\d+)+", name) else name


def _find_words(context: str, time: AnswerTime) -> int | None:
    """Find the words of a time in the context, from where their sentence begins."""
    begin = max(context.find(time.sentence), 0)
    at = context.find(time.text, begin)
    return at if at >= 0 else None


# ---- answers: where their times lie in the recording of the passage, and which of the texts each
# time is of


@dataclass(frozen=True)
class PassageLayout:
    """The recording of a passage: the names of its sentences, and where they lie."""

    names: tuple[str, ...]
    joined: Joined
    # whether times in the passage were counted in a recording as long as this one
    comparable: bool = True

    @property
    def seconds(self) -> float:
        return self.joined.samples / SAMPLE_RATE

    def piece(self, segment: str) -> int | None:
        return self.names.index(segment) if segment in self.names else None


def time_in_passage(
    timed: AnswerTime, layout: PassageLayout, expected: float | None
) -> tuple[Interval | None, Done]:
    """Find the time in the passage's recording, or None, and say how it was found. expected:
    seconds at which its text should come."""
    piece, joined = layout.piece(timed.segment), layout.joined
    # the time in the segment, moved by the lengths of the segments before; far: that in the
    # passage, as released
    near = None
    if piece is not None:
        inside = clip_time(*timed.within, joined.length(piece))
        if inside:
            end = min(joined.move_to_whole(piece, inside[1]), layout.seconds)
            near = joined.move_to_whole(piece, inside[0]), end
    far = clip_time(*timed.whole, layout.seconds) if layout.comparable else None
    # a time in the passage that repeats one in a later segment is not one in the passage
    copied = timed.within == timed.whole
    if near is None:
        adrift = copied and timed.segment not in ("", *layout.names[:1])
        return (None, OUTSIDE) if far is None or adrift else (far, WHOLE)
    if far is None or (copied and piece):
        return near, ADDED
    difference = max(abs(near[0] - far[0]), abs(near[1] - far[1]))
    if difference <= AGREE + DRIFT * (piece or 0):
        return near, CONFIRMED
    if expected is not None and abs(far[0] - expected) < abs(near[0] - expected):
        return far, NEARER
    return near, NEARER


def written_answers(row: NmsqaRow) -> tuple[Answer, ...]:
    """Return the different answers of a row by text and offset; an offset is kept where the context
    holds the answer there."""
    answers = []
    for text, offset in row.texts:
        fits = offset is not None and row.context.startswith(text, offset)
        if text.strip():
            answers.append(Answer(text, char_start=offset if fits else None))
    return tuple(dict.fromkeys(answers))


def spoken_answers(
    row: NmsqaRow, layout: PassageLayout, remark: Callable[[Done], None]
) -> tuple[Answer, ...]:
    """Return the answers with the times that can be used, each with its own; a text that occurs
    twice comes twice."""
    answers = written_answers(row)
    timed: list[Answer] = []
    for time, answer in zip(row.times, _pair(row, answers, layout, remark), strict=True):
        # seconds at which it would be spoken if all characters of the context took as long
        expected = None
        if answer.char_start is not None:
            expected = layout.seconds * answer.char_start / len(row.context)
        interval, how = time_in_passage(time, layout, expected)
        remark(how)
        if interval:
            timed.append(Answer(answer.text, *interval, answer.char_start))
    used = {(answer.text, answer.char_start) for answer in timed}
    rest = [answer for answer in answers if (answer.text, answer.char_start) not in used]
    for _ in rest:
        remark(TEXTLESS)
    return (*dict.fromkeys(timed), *rest)


def _pair(
    row: NmsqaRow, answers: Sequence[Answer], layout: PassageLayout, remark: Callable[[Done], None]
) -> list[Answer]:
    """Choose the answer at every time of the row, an empty one where there are no texts.

    A time whose table names its words has the answer of these words. Else the times are those of
    the texts in the sentence, in order, or those of all texts, in order, where there are as many;
    else each has the text that stands nearest to it.
    """
    if not answers or not row.times:
        return [Answer("")] * len(row.times)

    def choose_answer(text: str, sentence: str) -> Answer:
        """Choose the answer of this text; of several, the one that stands in the sentence."""
        first = row.context.find(sentence)
        matching = [answer for answer in answers if answer.text == text]
        for answer in matching:
            at = answer.char_start
            if at is not None and 0 <= first <= at < first + len(sentence):
                return answer
        return matching[0] if matching else Answer(text)

    if all(time.text for time in row.times):
        return [choose_answer(time.text, time.sentence) for time in row.times]
    sentence = row.times[0].sentence
    texts = list(dict.fromkeys(a.text for a in answers if a.text in sentence or not sentence))
    if len(texts) != len(row.times) and len(row.texts) == len(row.times):
        texts = [text for text, _ in row.texts]
    if len(texts) == len(row.times):
        return [choose_answer(text, sentence) for text in texts]
    for _ in row.times:
        remark(GUESSED)
    candidates = [a for a in answers if a.text in texts] or list(answers)
    return [min(candidates, key=partial(_distance, time, row, layout)) for time in row.times]


def _distance(time: AnswerTime, row: NmsqaRow, layout: PassageLayout, answer: Answer) -> float:
    """Measure, in parts of the sentence (or else of the passage), how far a time is from where the
    letters of an answer stand in it."""
    piece = layout.piece(time.segment)
    text, seconds, interval = row.context, layout.seconds, time.whole
    if piece is not None and time.sentence:
        text, seconds, interval = time.sentence, layout.joined.length(piece), time.within
    at = text.find(answer.text)
    start, end = interval
    if at < 0 or start is None or end is None:
        return float("inf")
    begins = abs(start / seconds - at / len(text))
    return begins + abs(end / seconds - (at + len(answer.text)) / len(text))


# ---- a split: its rows, each with its passage


@dataclass(frozen=True)
class SpokenPassage:
    """A passage before its sentences are joined."""

    text: str
    speaker: str
    names: tuple[str, ...]  # recordings of its sentences, in order
    lost: tuple[str, ...]  # recordings that the release has and the source does not
    holed: bool  # the release does not have all its sentences


def read_rows(split: str, files: Files, report: PrepareReport) -> dict[str, NmsqaRow]:
    """Read the questions by id, all with the name of a passage: of its recording, or else of its
    text. Raises InputError for damaged tables."""
    tables = (row for path in files.parquet for row in parquet_rows(path))
    rows: dict[str, NmsqaRow] = {}
    for row in tables if files.parquet else csv_rows(files):
        report.count(split, "questions")
        if not row.id:
            report.set_aside(split, "questions", row.id, NO_ID, question=row.question)
            continue
        name = report.unique_id(split, row.id, rows)
        recording = row.recording or files.questions.get(row.id, "")
        rows[name] = replace(row, id=name, recording=recording)
    by_text = {row.context: row.passage for row in reversed(rows.values()) if row.passage}
    for name, row in rows.items():
        if not row.passage:
            passage = by_text.get(row.context) or _passage_of(row.recording)
            passage = passage or f"text-{hash_bytes(row.context.encode())}"
            rows[name] = replace(row, passage=passage)
    return rows


def collect_passages(rows: Iterable[NmsqaRow], files: Files) -> dict[str, SpokenPassage]:
    """Collect the passages of the questions, by name."""
    segments = group_segments(files.recordings)
    passages: dict[str, SpokenPassage] = {}
    for row in rows:
        if row.passage in passages:
            continue
        names = segments.get(row.passage, {})
        numbers = files.segments(row.passage, names)
        mark = "-" if row.passage.endswith("-c") else "_"
        lost = tuple(f"{row.passage}{mark}{n}" for n in numbers if n not in names)
        holed = numbers != list(range(len(numbers)))
        there = tuple(names[n] for n in numbers if n in names)
        passages[row.passage] = SpokenPassage(row.context, row.speaker, there, lost, holed)
    return passages


def make_records(split: str, files: Files, report: PrepareReport, o: Nmsqa) -> SplitRecords:
    """Make the records of a split: with audio where any question and its passage have recordings,
    else text only. Passages are joined."""
    rows = read_rows(split, files, report)
    found = collect_passages(rows.values(), files)
    report.count(split, "passages", len(found))
    chosen = report.slice(split, found, Counter(row.passage for row in rows.values()))
    asked = [row for row in rows.values() if row.passage in chosen]
    holed = sum(found[name].holed for name in chosen)
    if holed:
        report.remark(split, *HOLES, number=holed)
    whole = {name: found[name].names for name in chosen if not found[name].lost}
    recordings = files.recordings
    if not any(row.recording in recordings and whole.get(row.passage) for row in asked):
        report.remark(split, *prepare.NO_RECORDINGS, number=len(asked))
        recordings = {}
    text_will_do = o.speak or not recordings
    folder = o.out / split / "audio"
    jobs = {
        name: ([recordings[n] for n in names], folder / f"{safe_name(name)}.flac")
        for name, names in whole.items()
        if names and recordings
    }
    join = partial(prepare.attempt, prepare.write_joined)
    joined = prepare.run_parallel(join, jobs, o.workers, f"joining {split}", "passage")

    passages: dict[str, Passage] = {}
    layouts: dict[str, PassageLayout] = {}
    for name in chosen:
        passage, result = found[name], joined.get(name)
        if isinstance(result, Joined):
            layout = layouts[name] = _lay_out(passage.names, result, recordings.get(name))
            passages[name] = Passage(
                name,
                f"{split}/audio/{safe_name(name)}.flac",
                layout.seconds,
                passage.text,
                passage.speaker,
                "en",
                _passage_words(layout, files.grids),
            )
        elif text_will_do and passage.text.strip():
            passages[name] = Passage(name, "", 0.0, passage.text, passage.speaker, "en")
        elif text_will_do:
            report.set_aside(split, "passages", name, prepare.NO_TEXT)
        elif result is not None:
            report.set_aside(split, "passages", name, prepare.UNUSABLE, why=str(result))
        elif passage.names:
            report.set_aside(split, "passages", name, NOT_WHOLE, missing=list(passage.lost))
        else:
            report.set_aside(split, "passages", name, prepare.NOT_FOUND)

    paths = {}
    for row in asked:
        if row.recording in recordings and row.passage in passages:
            paths[row.id] = recordings[row.recording]
    measured = prepare.measure_recordings(paths, o.workers, f"reading {split}")
    questions: list[Question] = []
    for row in asked:
        layout_of_row = layouts.get(row.passage)
        segments = {time.segment for time in row.times}
        recording, textless = measured.get(row.id), prepare.NO_QUESTION
        audio = prepare.choose_audio(recording, row.question, textless, text_will_do, o.out)
        if not row.texts and not (row.times and layout_of_row):
            audio = {"reason": NO_ANSWERS}
        elif row.passage not in passages:
            audio = {"reason": prepare.ITS_PASSAGE}
        elif layout_of_row and segments and not segments & {"", *layout_of_row.names}:
            audio = {"reason": ANSWER_MISSING}
        if isinstance(audio, dict):
            report.set_aside(split, "questions", row.id, **audio)
            continue
        answers = written_answers(row)
        if layout_of_row:
            answers = spoken_answers(row, layout_of_row, lambda done: report.remark(split, *done))
        question = Question(row.id, row.passage, *audio, row.question, row.asker, "en", answers)
        if question.audio:
            question = replace(question, words=read_words(row.recording, files.grids))
        questions.append(question)
    return SplitRecords(list(passages.values()), questions)


def _lay_out(names: tuple[str, ...], joined: Joined, whole: Path | None) -> PassageLayout:
    """Lay out a passage. whole: a recording of all of it, which may be longer than its sentences:
    people pause between them."""
    layout = PassageLayout(names, joined)
    if whole is None:
        return layout
    try:
        apart = abs(header_duration(whole) - layout.seconds)
    except InputError:  # one that is damaged says nothing of the sentences
        return layout
    return replace(layout, comparable=apart <= AGREE + DRIFT * len(names))


def _passage_words(layout: PassageLayout, grids: Mapping[str, Path]) -> tuple[Span, ...]:
    """Move the words of all sentences to where they are in the passage."""
    words = []
    for piece, name in enumerate(layout.names):
        for word in read_words(name, grids):
            start = layout.joined.move_to_whole(piece, word.start)
            end = layout.joined.move_to_whole(piece, word.end)
            words.append(Span(word.text, start, end))
    return tuple(word for word in words if word.end <= layout.seconds + 0.05)


def read_words(name: str, grids: Mapping[str, Path]) -> tuple[Span, ...]:
    """Read the words of a TextGrid, of the tier that is named so or is first. Raises InputError
    where two are named so."""
    if name not in grids:
        return ()
    tiers = read_tiers(grids[name])
    named = [spans for title, spans in tiers if title.lower().endswith(("words", "word"))]
    if len(named) > 1:
        raise InputError(f"{grids[name]} has {len(named)} tiers of words; leave one of them")
    spans = named[0] if named else tiers[0][1] if tiers else []
    return tuple(Span(*span) for span in spans if span[0].strip() and span[2] > span[1] >= 0)


def prepare_nmsqa(o: Nmsqa) -> dict[str, Any]:
    """Prepare as much of NMSQA as there is, and return the data report.

    source: a folder in any of the layouts, or one table of it. Raises InputError, one sentence, for
    a folder in which nothing is known, and for damaged tables.
    """
    source = o.source.resolve()
    root, only = (source.parent, source) if source.is_file() else (source, None)

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        splits = find_files([root] if only else unpack(root, o.out), only)
        if not splits:
            raise InputError(f"{source} has no table of NMSQA, nor do its archives; {LAYOUT}")
        return {split: make_records(split, files, report, o) for split, files in splits.items()}

    settings = {"made_from": stamp(root, ".parquet", ".csv", ".json", *ARCHIVES)}
    return prepare.prepare_corpus("nmsqa", o, settings, read, PUBLISHED, ABOUT)
