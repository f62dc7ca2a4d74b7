"""NMSQA (DUAL, arXiv 2203.04911): SQuAD 1.1 read by speech synthesisers (train, dev), and questions read by people (test).

Three layouts are read, each as it was downloaded or unpacked: Parquet tables ({split}.parquet, or data/{split}-*.parquet of the
Hugging Face folder voidful/NMSQA) with recordings in folders or archives beside them, and the original release (CSV and TextGrids).

In dev all times `audio_full_*` are copies of `audio_segment_*`: times in the sentence, to which the lengths of the sentences before
it have to be added. In test they are times in the passage for the most part. So the time in the sentence, which must fit the
sentence's length, is moved by the exact lengths before it; `audio_full_*` is a check on it, and stands in where it cannot be used.
There are not as many times as texts: a row has the times of those of its different answers that occur in its sentence, in order.

- A passage is joined from its sentences' recordings (22,050 or 24,000 Hz), those that {split}_segment_id.json lists. Sentences that
  the release itself does not have are counted and left out as in the published system; nothing is shifted, as times are counted
  from the beginning of the sentence they are in. A question whose sentence is missing is set aside.
- A passage of which a listed recording is missing from the source is set aside with its questions: its published times would not
  hold.
- A split without recordings is text only. A split with some keeps what is whole: a system that listens needs audio throughout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.audio import duration
from speechssl.data.files import ARCHIVES, Recordings, archives_in, below, check_common, find_recordings, safe_name, stamp, unpacked
from speechssl.data.join import Joined, join_job, measure_job
from speechssl.data.nmsqa_release import (
    SEGMENT,
    About,
    Files,
    Interval,
    Row,
    Timed,
    by_passage,
    csv_rows,
    find_files,
    listed,
    parquet_rows,
    read_about,
    segment_of,
)
from speechssl.data.prepare import (
    Done,
    PrepareReport,
    SplitRecords,
    Wanted,
    check_used,
    in_parallel,
    is_invented,
    output_folder,
    synthesise_missing,
    write_corpus,
)
from speechssl.data.records import Answer, Passage, Question, Span
from speechssl.data.word_times import read_tiers
from speechssl.errors import InputError
from speechssl.io import hash_bytes, write_json

SLACK = 0.1  # seconds by which a time may lie beyond its recording, whose decoders differ; it then ends with it
AGREE, DRIFT = 0.1, 0.06  # seconds by which two readings may differ, and more for every sentence before (padding of MP3)

ADDED = ("answer times of which audio_full_* is relative to the segment", "the exact lengths of the segments before it were added")
CONFIRMED = ("answer times of which audio_full_* agrees with the segment's", "counted from the segments, exact to the sample")
COUNTED = ("answer times given in the segment only", "the exact lengths of the segments before it were added")
NEARER = ("answer times whose two readings fit and disagree", "the one nearer to where the text stands was taken")
WHOLE = ("answer times given in the passage only", "taken as they are")
OUTSIDE = ("answer times that are empty, not numbers, or outside the audio", "left out; the answer is scored by its text only")
ADRIFT = ("answer times relative to a segment whose place is not known", "left out; the answer is scored by its text only")
ELSEWHERE = ("answers in the row's segment whose offset names another place", "text and time kept as released")
GUESSED = ("answer times that are not one for every text in the segment", "given to the text that stands nearest")
UNKNOWN_WORDS = ("answer times whose words are not known", "kept with an empty text")
REPEATED = ("answers that repeat another of their question", "kept once")
OFFSET = ("answers whose offset does not match the context", "kept without an offset")
EMPTY = ("empty answers", "left out")
UNEVEN = ("questions with another number of times than of texts", "every time was paired with the text that it is of")
OTHERS = ("questions with audio_full_neg_* (other occurrences of the words)", "not taken for answers")
COPIES = ("questions about a later segment whose audio_full_* repeat audio_segment_*", "read as relative to the segment")
MOVED = ("questions about a later segment whose audio_full_* differ from audio_segment_*", "read as times in the passage")
TEXTLESS = ("answers without a usable time", "scored by their text only")


@dataclass(frozen=True)
class Layout:
    """The recording of a passage: its sentences' names, where they lie (None where that is not known), and its length."""

    names: tuple[str, ...]
    joined: Joined | None
    seconds: float
    comparable: bool = True  # whether times in the passage were counted in a recording as long as this one

    def piece(self, segment: str) -> int | None:
        return self.names.index(segment) if self.joined is not None and segment in self.names else None


def placed(timed: Timed, layout: Layout, expected: float | None) -> tuple[Interval | None, Done]:
    """The time in the passage's recording, or None, and how it was found. expected: seconds at which its text should come."""
    piece, joined = layout.piece(timed.segment), layout.joined
    near = None
    if piece is not None and joined is not None and (inside := _inside(timed.within, joined.length(piece))):
        near = joined.moved(piece, inside[0]), min(joined.moved(piece, inside[1]), layout.seconds)
    far = _inside(timed.whole, layout.seconds) if layout.comparable else None
    copied = _copied(timed)
    if near is None:
        adrift = copied and timed.segment not in ("", *layout.names[:1])
        return (None, ADRIFT) if adrift and far else (far, WHOLE if far else OUTSIDE)
    if far is None or (copied and piece):
        return near, ADDED if copied else COUNTED
    if _apart(near, far) <= AGREE + DRIFT * (piece or 0):
        return near, CONFIRMED
    return min((near, far), key=lambda found: 0 if expected is None else abs(found[0] - expected)), NEARER


def _inside(interval: Interval | None, seconds: float) -> Interval | None:
    """The interval as far as it lies in [0, seconds), None where it does not begin there or ends more than SLACK after it."""
    if interval is None or not 0 <= interval[0] < min(interval[1], seconds) or interval[1] > seconds + SLACK:
        return None
    return interval[0], min(interval[1], seconds)


def _apart(a: Interval, b: Interval) -> float:
    return max(abs(a[0] - b[0]), abs(a[1] - b[1]))


def written_answers(row: Row, remark: Callable[[Done], None]) -> tuple[Answer, ...]:
    """The different answers of a row by text and offset; an offset is kept where the context holds the answer there."""
    kept = {}
    for text, offset in row.texts or ():
        if not text.strip():
            remark(EMPTY)
        elif (text, offset) in kept:
            remark(REPEATED)
        else:
            fits = offset is not None and offset >= 0 and row.context[offset : offset + len(text)] == text
            kept[text, offset] = Answer(text, char_start=offset if fits else None)
            if not fits:
                remark(OFFSET)
    return tuple(kept.values())


def spoken_answers(row: Row, layout: Layout, words: Sequence[Span], remark: Callable[[Done], None]) -> tuple[Answer, ...]:
    """The answers with the times that can be used, each with its own; a text that occurs twice comes twice.

    words: of the passage with their times, where there is an alignment; they give the text of a time that has none.
    """
    answers = written_answers(row, remark)
    timed: list[Answer] = []
    for time, answer in zip(row.times, _paired(row, answers, layout, remark), strict=True):
        expected = None  # seconds at which it would be sentence if all characters of the context took as long
        if answer is not None and answer.char_start is not None and row.context:
            expected = layout.seconds * answer.char_start / len(row.context)
        interval, how = placed(time, layout, expected)
        remark(how)
        if interval is not None:
            answer = answer or Answer(" ".join(word.text for word in words if _shares(word, interval)))
            if not answer.text:
                remark(UNKNOWN_WORDS)
            timed.append(Answer(answer.text, *interval, answer.char_start))
    used = {(answer.text, answer.char_start) for answer in timed}
    rest = [answer for answer in answers if (answer.text, answer.char_start) not in used]
    for _ in rest:
        remark(TEXTLESS)
    return (*dict.fromkeys(timed), *rest)


def released_times(row: Row) -> list[dict[str, Any]]:
    """The times of a row as they were released, to be kept where there is no audio to count them in."""
    return [{"segment": time.segment, "in_segment": time.within, "in_passage": time.whole} for time in row.times]


def remark_readings(rows: Iterable[Row], remark: Callable[[Done], None]) -> None:
    """What is odd about the times, whether there is audio or not, counted in questions."""
    for row in rows:
        if row.times and len(row.times) != len(row.texts or ()):
            remark(UNEVEN)
        if row.others:
            remark(OTHERS)
        later = [t for t in row.times if t.within and t.whole and not t.segment.endswith(("_0", "-0", "-c"))]
        if later:
            remark(COPIES if all(_copied(time) for time in later) else MOVED)


def _copied(time: Timed) -> bool:
    return time.within is not None and time.whole is not None and _apart(time.within, time.whole) < 1e-3


def _shares(word: Span, interval: Interval) -> bool:
    """Whether more than half of a word lies in an interval."""
    return 2 * (min(word.end, interval[1]) - max(word.start, interval[0])) > word.end - word.start


def _paired(row: Row, answers: Sequence[Answer], layout: Layout, remark: Callable[[Done], None]) -> list[Answer | None]:
    """The answer at every time of the row, None where there are no texts."""
    if not answers or not row.times:
        return [None] * len(row.times)
    if all(time.text for time in row.times):
        return [_called(time.text, answers, row.segments.get(time.segment, ""), row.context) for time in row.times]
    sentence = row.segments.get(row.times[0].segment, "")
    texts = list(dict.fromkeys(a.text for a in answers if a.text in sentence or not sentence))
    if len(texts) == len(row.times):
        found = [_called(text, answers, sentence, row.context) for text in texts]
        for answer in found:
            if answer is not None and sentence and not _stands_in(answer, sentence, row.context):
                remark(ELSEWHERE)
        return found
    if len(row.texts or ()) == len(row.times):
        return [_called(text, answers, sentence, row.context) for text, _ in row.texts or ()]
    for _ in row.times:
        remark(GUESSED)
    candidates = [a for a in answers if a.text in texts] or list(answers)
    return [min(candidates, key=lambda a, time=time: _away(a, time, row, sentence, layout)) for time in row.times]  # type: ignore[misc]


def _called(text: str, answers: Iterable[Answer], sentence: str, context: str) -> Answer | None:
    """The answer of this text; of several, the one that stands in the sentence."""
    found = [answer for answer in answers if answer.text == text]
    return min(found, key=lambda answer: not _stands_in(answer, sentence, context), default=None)


def _stands_in(answer: Answer, sentence: str, context: str) -> bool:
    at = context.find(sentence)
    return answer.char_start is not None and 0 <= at <= answer.char_start < at + len(sentence)


def _away(answer: Answer, time: Timed, row: Row, sentence: str, layout: Layout) -> float:
    """How far, in parts of the sentence (or else of the passage), a time is from where the letters of an answer stand in it."""
    piece, interval = layout.piece(time.segment), time.within
    if piece is not None and layout.joined is not None and interval is not None and sentence:
        text, seconds = sentence, layout.joined.length(piece)
    else:
        text, seconds, interval = row.context, layout.seconds, time.whole or time.within
    at = text.find(answer.text)
    if at < 0 or interval is None or not seconds:
        return float("inf")
    return abs(interval[0] / seconds - at / len(text)) + abs(interval[1] / seconds - (at + len(answer.text)) / len(text))


def of_durations(names: Sequence[str], durations: Sequence[float], seconds: float) -> Joined | None:
    """Where sentences lie in a recording of the whole, by their stated lengths; None where these do not add up to it."""
    lengths = tuple(round(duration * 16_000) for duration in durations)
    close = abs(sum(lengths) / 16_000 - seconds) <= AGREE + DRIFT * len(names)
    return Joined(lengths, (16_000,) * len(lengths), round(seconds * 16_000)) if names and close else None


def moved_words(grids: Iterable[tuple[int, Sequence[Span]]], joined: Joined) -> Iterator[Span]:
    """The words of sentences with their times in the passage."""
    for piece, words in grids:
        start = joined.starts[piece]
        yield from (Span(w.text, float(start + Fraction(w.start)), float(start + Fraction(w.end))) for w in words)


RENAMED = ("questions with the id of another question", "kept, a number added to the id")
TWICE = "it repeats another row"
BARE = (
    "questions whose table has no text of the passage",
    "their passage's text is that of its sentences, as far as their rows have it",
)
NAMELESS = "it has neither an id nor a recording"


@dataclass
class Spoken:
    """A passage while it is put together."""

    id: str
    text: str
    speaker: str
    names: tuple[str, ...] = ()  # recordings of its sentences, in order
    whole: Path | None = None  # a recording of all of it, taken where its sentences are not there
    holes: tuple[int, ...] = ()  # sentences that the release does not have
    lost: tuple[str, ...] = ()  # recordings that it has and the source does not

    @property
    def has_audio(self) -> bool:
        return bool((self.names and not self.lost) or self.whole)


@dataclass
class Split:
    """One split while it is put together."""

    name: str
    files: Files
    recordings: Recordings
    about: Mapping[str, About]
    rows: list[Row]
    passages: dict[str, Spoken]
    of_row: dict[str, str]  # id of a question -> of its passage
    layouts: dict[str, Layout] = field(default_factory=dict)
    words: dict[str, tuple[Span, ...]] = field(default_factory=dict)

    def question_recording(self, row: Row) -> str:
        """What the recording of a question is called, "" where there is none."""
        known = row.recording or str(self.files.questions.get(row.id, ""))
        names = (known, f"{known}-0", f"{known}_0", f"{known}-1") if known else ()
        return next((name for name in names if name in self.recordings), "")

    def keep(self, passages: Collection[str]) -> None:
        """Go on with these passages alone, and their questions."""
        self.passages = {name: self.passages[name] for name in passages}
        self.rows = [row for row in self.rows if self.of_row[row.id] in self.passages]

    @property
    def asked_for(self) -> list[str]:
        """The names of all recordings that are wanted, as far as they are there."""
        return [n for p in self.passages.values() for n in p.names] + [self.question_recording(row) for row in self.rows]


def read_split(name: str, files: Files, roots: Sequence[Path], report: PrepareReport) -> Split:
    """The rows that can be used, each with its passage. Raises InputError, before anything is counted, for damaged tables."""
    about = read_about(files.about)
    rows: dict[str, Row] = {}
    tables = (row for path in files.parquet for row in parquet_rows(path)) if files.parquet else csv_rows(files, about)
    for row in list(tables):  # a table that cannot be read leaves nothing counted
        report.count(name, "questions")
        row = replace(row, id=row.id or row.recording)
        if row.id in rows and row != rows[row.id]:
            row = replace(row, id=next(i for n in count(2) if (i := f"{row.id}#{n}") not in rows))
            report.remark(name, *RENAMED)
        if reason := NAMELESS if not row.id else TWICE if row.id in rows else "":
            report.set_aside(name, "questions", row.id, reason, question=row.question)
        else:
            rows[row.id] = row
    recordings = find_recordings(roots, name)
    split = Split(name, files, recordings, about, _with_contexts(rows.values(), name, report), {}, {})
    _find_passages(split)
    report.count(name, "passages", len(split.passages))
    return split


def _with_contexts(rows: Collection[Row], name: str, report: PrepareReport) -> list[Row]:
    """The rows; one without a context gets the texts of its passage's sentences, in their order."""
    sentences: dict[str, dict[tuple[int, str], str]] = {}
    for row in rows:
        for segment, text in row.segments.items():
            number = SEGMENT.fullmatch(segment)
            sentences.setdefault(row.passage, {})[int(number[2]) if number else -1, segment] = text
    texts = {passage: " ".join(text for _, text in sorted(found.items())) for passage, found in sentences.items()}
    bare = sum(not row.context.strip() for row in rows)
    if bare:
        report.remark(name, *BARE, number=bare)
    return [row if row.context.strip() else replace(row, context=texts.get(row.passage, "")) for row in rows]


def _find_passages(split: Split) -> None:
    """Passages by their recording, or else by the recording of the question, or else by their text."""
    segments = by_passage(split.recordings)
    by_text = {row.context: row.passage for row in reversed(split.rows) if row.passage and row.context.strip()}
    for row in split.rows:
        question = row.recording or str(split.files.questions.get(row.id, ""))
        about = _asked_about(question) if question.startswith("question-") or f"{question[:-1]}c" in segments else ""
        name = row.passage or by_text.get(row.context) or about or f"text-{hash_bytes(row.context.encode())}"
        split.of_row[row.id] = name
        if name not in split.passages:
            split.passages[name] = _spoken(name, row, split, segments.get(name, {}))


def _asked_about(question: str) -> str:
    """The passage of a question, both as their recordings are called."""
    return f"{question[:-1]}c" if question.endswith("-q") else f"context-{question[9:].rpartition('_')[0]}"


def _spoken(name: str, row: Row, split: Split, found: Mapping[int, str]) -> Spoken:
    """found: number -> recording of a sentence, of those that are in the source."""
    numbers = listed(split.files, name)
    expected = sorted(found) if numbers is None else numbers
    holes = tuple(sorted(set(range(max(expected, default=-1) + 1)) - set(expected)))
    lost = tuple(segment_of(name, n) for n in expected if n not in found)
    names = tuple(found[n] for n in expected if n in found)
    whole = split.recordings[name] if name in split.recordings and (lost or not names) else None
    return Spoken(name, row.context, row.speaker, names, whole, holes, lost)


SOURCES = {"squad": ("SQuAD", 51), "newsqa": ("NewsQA", 104), "quac": ("QuAC", 16)}  # of test, by how recordings are called
UNUSED = ("recordings of no whole passage with a question", "not used: the split is text only")
TEXT_ONLY = ("questions without audio or times in the release", "kept as text")
HOLES = ("passages of which the release misses segments", "joined from those it has; no time is shifted")
MISSING = (HOLES[0], "kept as text, which is whole")
NO_RECORDINGS = (
    "questions of a split without recordings",
    "text only unless --speak reads them; times are kept as released, in released_times.json",
)
UNANSWERED = ("questions whose list of answers is empty", "kept as not answered by their passage")
LONGER = (
    "passages with a recording of the whole that is not as long as their sentences",
    "the sentences were joined, and audio_full_*, which are of the other, are not used",
)
UNREAD_GRIDS = ("alignments (TextGrid) that cannot be read", "left out")
NO_ANSWERS = "its answers are missing from the source"
TIMES_ALONE = "its answers are times alone, and there is no recording to which they apply"
NO_QUESTION = "its question is empty and there is no recording of it"
NO_RECORDING = "the release has no recording of it"
NOT_FOUND = "its recording is not in the source"
NOT_WHOLE = "recordings of its sentences are not in the source"
UNUSABLE = "its recording cannot be used"
ITS_PASSAGE = "its passage was set aside"
NO_TEXT = "there is neither a recording nor a text of it"
ANSWER_MISSING = "the sentence with its answer is missing from its passage's recording"


def split_records(split: Split, out: Path, report: PrepareReport, speak: bool, workers: int) -> SplitRecords:
    """The records of a split: with audio where any question and its passage have recordings, else text only."""
    for prefix, (corpus, published) in SOURCES.items():  # of the questions of test, as far as their recordings are named after them
        if number := sum(f"{row.passage or row.id}".lower().startswith(prefix) for row in split.rows):
            report.remark(split.name, f"questions from {corpus} (published {published})", "counted only", number)
    split.keep(report.slice(split.name, split.passages, Counter(split.of_row.values())))
    remark_readings(split.rows, _remarking(split.name, report))
    asked = {split.of_row[row.id] for row in split.rows if split.question_recording(row)}
    if any(split.passages[name].has_audio for name in asked):
        return _records_with_audio(split, out, report, speak, workers)
    if any(name in split.recordings for p in split.passages.values() for name in (p.id, *p.names)):
        report.remark(split.name, *UNUSED, number=sum(1 for _ in split.recordings))
    report.remark(split.name, *NO_RECORDINGS, number=len(split.rows))
    write_json(out / split.name / "released_times.json", {row.id: released_times(row) for row in split.rows if row.times})
    return _text_records(split, report)


def _text_records(split: Split, report: PrepareReport) -> SplitRecords:
    """A split without audio."""
    passages = {p.id: Passage(p.id, "", 0.0, p.text, p.speaker, "en") for p in split.passages.values() if p.text.strip()}
    if holed := sum(bool(passage.holes) for passage in split.passages.values()):
        report.remark(split.name, *MISSING, number=holed)
    for name in split.passages.keys() - passages.keys():
        report.set_aside(split.name, "passages", name, NO_TEXT)
    questions: list[Question] = []
    for row in split.rows:
        reason = ITS_PASSAGE if split.of_row[row.id] not in passages else NO_QUESTION if not row.question.strip() else ""
        reason = reason or (TIMES_ALONE if row.times and not row.texts else "")
        if not _is_answered(row, split.name, report):
            continue
        if reason:
            report.set_aside(split.name, "questions", row.id, reason)
            continue
        answers = written_answers(row, _remarking(split.name, report))
        questions.append(Question(row.id, split.of_row[row.id], "", 0.0, row.question, row.asker, "en", answers))
        if not row.times:
            report.remark(split.name, *TEXT_ONLY)
    return SplitRecords(list(passages.values()), questions)


def _is_answered(row: Row, split: str, report: PrepareReport) -> bool:
    if row.texts is None:
        report.set_aside(split, "questions", row.id, NO_ANSWERS)
    elif not row.texts and not row.times:
        report.remark(split, *UNANSWERED)
    return row.texts is not None


def _remarking(split: str, report: PrepareReport) -> Callable[[Done], None]:
    def remark(done: Done) -> None:
        report.remark(split, *done)

    return remark


def _records_with_audio(split: Split, out: Path, report: PrepareReport, speak: bool, workers: int) -> SplitRecords:
    """A split with audio: what is whole."""
    passages = list(_passages(split, out, report, speak, workers))
    kept = {passage.id for passage in passages}
    names = {row.id: split.question_recording(row) for row in split.rows}
    jobs = [(row.id, split.recordings[names[row.id]]) for row in split.rows if names[row.id] and split.of_row[row.id] in kept]
    seconds = dict(
        tqdm(in_parallel(measure_job, jobs, workers), f"reading {split.name}", len(jobs), unit="question", disable=not jobs)
    )
    questions = (_question(row, split, kept, seconds.get(row.id), out, report, speak) for row in split.rows)
    return SplitRecords(passages, [question for question in questions if question is not None])


def _passages(split: Split, out: Path, report: PrepareReport, speak: bool, workers: int) -> Iterator[Passage]:
    """Those with recordings, joined where need be (or all of them, to be synthesised); notes where their sentences lie."""
    joined = [p for p in split.passages.values() if p.has_audio and p.whole is None]
    folder = out / split.name / "audio"
    jobs: list[tuple[Any, ...]] = [
        (p.id, [split.recordings[n] for n in p.names], folder / f"{safe_name(p.id)}.flac") for p in joined
    ]
    shown = tqdm(in_parallel(join_job, jobs, workers), f"joining {split.name}", len(jobs), unit="passage", disable=not jobs)
    found: dict[str, Any] = dict(shown)
    found |= dict(in_parallel(measure_job, [(p.id, p.whole) for p in split.passages.values() if p.whole], workers))
    for passage in split.passages.values():
        made = found.get(passage.id)
        if made is None or isinstance(made, str):
            if speak and passage.text.strip():
                yield Passage(passage.id, "", 0.0, passage.text, "", "en")
            elif made is not None:
                report.set_aside(split.name, "passages", passage.id, UNUSABLE, why=made)
            elif passage.lost and passage.names:
                report.set_aside(split.name, "passages", passage.id, NOT_WHOLE, missing=list(passage.lost))
            else:
                report.set_aside(split.name, "passages", passage.id, NOT_FOUND)
            continue
        yield _passage(passage, made, split, out, report)


def _passage(passage: Spoken, made: Joined | float, split: Split, out: Path, report: PrepareReport) -> Passage:
    if passage.holes:
        report.remark(split.name, *HOLES)
    if isinstance(made, Joined):
        layout = Layout(passage.names, made, made.seconds, _is_comparable(passage, made, split))
        if not layout.comparable:
            report.remark(split.name, *LONGER)
        audio = f"{split.name}/audio/{safe_name(passage.id)}.flac"
    else:
        # where the sentences lie in a recording of the whole: by the durations of the meta table, where these add up to it
        numbers = listed(split.files, passage.id) or sorted(by_passage(split.about).get(passage.id, {}))
        names = tuple(segment_of(passage.id, n) for n in numbers)
        durations = [split.about[n].seconds or 0.0 for n in names if n in split.about]
        layout = Layout(names, of_durations(names, durations, made) if len(durations) == len(names) else None, made)
        audio = below(passage.whole or Path(), out)
    split.layouts[passage.id] = layout
    split.words[passage.id] = _words(passage, layout, split, report)
    return Passage(passage.id, audio, layout.seconds, passage.text, passage.speaker, "en", split.words[passage.id])


def _is_comparable(passage: Spoken, made: Joined, split: Split) -> bool:
    """Whether a recording of the whole, if there is one, is as long as its sentences: people pause between them."""
    if passage.id not in split.recordings:
        return True
    try:
        seconds = duration(split.recordings[passage.id])
    except InputError:
        return True
    return abs(seconds - made.seconds) <= AGREE + DRIFT * len(passage.names)


def _words(passage: Spoken, layout: Layout, split: Split, report: PrepareReport) -> tuple[Span, ...]:
    """The words of a passage, where there are TextGrids of it."""
    if passage.id in split.files.grids and not passage.names:
        return _grid(passage.id, split, report)
    if layout.joined is None:
        return ()
    grids = [(k, _grid(name, split, report)) for k, name in enumerate(layout.names)]
    words = moved_words(grids, layout.joined)
    return tuple(word for word in words if word.end <= layout.seconds + 0.05)


def _grid(name: str, split: Split, report: PrepareReport) -> tuple[Span, ...]:
    """The words of a TextGrid, of the tier that is named so or is first."""
    if name not in split.files.grids:
        return ()
    try:
        tiers = dict(read_tiers(split.files.grids[name]))
    except InputError:
        report.remark(split.name, *UNREAD_GRIDS)
        return ()
    tier = next((t for n, t in tiers.items() if n.lower().endswith(("words", "word"))), next(iter(tiers.values()), []))
    return tuple(Span(text, start, end) for text, start, end in tier if text.strip() and end > start >= 0)


def _question(
    row: Row, split: Split, kept: set[str], seconds: float | str | None, out: Path, report: PrepareReport, speak: bool
) -> Question | None:
    """seconds: of its recording, why that cannot be used, or None where there is none."""
    if not _is_answered(row, split.name, report):
        return None
    reason = _why_unusable(row, split, kept, seconds)
    if reason and speak and reason not in (ANSWER_MISSING, ITS_PASSAGE):
        reason = "" if row.question.strip() else NO_QUESTION
    if reason:
        report.set_aside(split.name, "questions", row.id, reason, **({"why": seconds} if isinstance(seconds, str) else {}))
        return None
    passage, remark = split.of_row[row.id], _remarking(split.name, report)
    layout = split.layouts.get(passage)
    answers = spoken_answers(row, layout, split.words[passage], remark) if layout else written_answers(row, remark)
    if not isinstance(seconds, float):
        return Question(row.id, passage, "", 0.0, row.question, row.asker, "en", answers)
    name = split.question_recording(row)
    audio, words = below(split.recordings[name], out), _grid(name, split, report)
    return Question(row.id, passage, audio, seconds, row.question, row.asker, "en", answers, words=words)


def _why_unusable(row: Row, split: Split, kept: set[str], seconds: float | str | None) -> str:
    """Why a question cannot be used with its recording, "" where it can."""
    if not row.recording and not split.question_recording(row):
        return NO_RECORDING
    if split.of_row[row.id] not in kept:
        return ITS_PASSAGE
    if seconds is None:
        return NOT_FOUND
    if isinstance(seconds, str):
        return UNUSABLE
    layout = split.layouts.get(split.of_row[row.id])
    segments = {time.segment for time in row.times}
    if layout and layout.joined and segments and "" not in segments and not segments & set(layout.names):
        return ANSWER_MISSING
    return ""


PUBLISHED = {  # train is all of SQuAD 1.1 (87.6k rows at Hugging Face); passages of dev as its segment_id.json has them
    "train": {"questions": 87_599},
    "dev": {"questions": 10_570, "passages": 2_067},
    "test": {"questions": 171},
}
LAYOUT = (
    "give the folder (or one table) of the Parquet release ({split}.parquet), of the original release ({split}-answer-span.csv and "
    "meta-{split}.csv), or of voidful/NMSQA at Hugging Face (data/{split}-*.parquet)"
)
ABOUT = {
    "source": "NMSQA, github.com/DanielLin94144/DUAL-textless-SQA, huggingface.co/datasets/voidful/NMSQA",
    "paper": "arXiv 2203.04911",
    "licence": "CC BY-SA 4.0 (SQuAD's texts); see the release for the recordings",
}


def prepare_nmsqa(source: Path, out: Path, wanted: Wanted = Wanted()) -> dict[str, Any]:
    """Prepare what there is of NMSQA and return the data report.

    source: a folder in any of the layouts, or one table of it. Raises InputError, one sentence, for a folder in which nothing is
    known, and for damaged tables where no split is left.
    """
    source, out = Path(source).resolve(), Path(out)
    root, only = (source.parent, source) if source.is_file() else (source, None)
    if not root.is_dir():
        raise InputError(f"{source} does not exist; {LAYOUT}")
    if not find_files([root], only) and (only or not archives_in(root)):
        raise InputError(f"{source} holds no table of NMSQA; {LAYOUT}")
    made_from = stamp(root, ".parquet", ".csv", ".json", *ARCHIVES)
    with output_folder(out, "nmsqa", source, made_from=made_from, **wanted.settings) as finished:
        if finished is not None:
            return finished
        roots = [root] if only else unpacked(root, out)
        tables = find_files(roots, only)
        if not tables:
            raise InputError(f"{source} holds no table of NMSQA, nor do its archives; {LAYOUT}")
        report = PrepareReport("nmsqa", PUBLISHED, wanted.passages, is_invented(root))
        splits = _readable(roots, tables, report)
        check_common({s.name: s.asked_for for s in splits}, {s.name: s.recordings for s in splits}, roots[0])
        made = {split.name: split_records(split, out, report, wanted.speak, wanted.workers) for split in splits}
        check_used(made, report, roots[0])
        return write_corpus(out, synthesise_missing(out, made, report, wanted), report, ABOUT)


def _readable(roots: Sequence[Path], tables: Mapping[str, Files], report: PrepareReport) -> list[Split]:
    """The splits whose tables can be read; the others are reported. Raises InputError where none can."""
    splits: list[Split] = []
    errors: dict[str, InputError] = {}
    for name, files in tables.items():
        try:
            splits.append(read_split(name, files, roots, report))
        except InputError as error:
            errors[name] = error
    if not splits:
        raise next(iter(errors.values()))
    for name, why in errors.items():
        report.count(name, "questions", 0)
        report.remark(name, f"splits that cannot be read ({name})", f"nothing was made of it: {why}")
    return splits
