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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, duration
from speechssl.data import nmsqa_release as release
from speechssl.data import prepare
from speechssl.data.files import ARCHIVES, Joined, archives_in, below, join_job, measure_job, read_tiers, safe_name, stamp, unpacked
from speechssl.data.prepare import Done, PrepareReport, SplitRecords, Wanted
from speechssl.data.records import Answer, Passage, Question, Span
from speechssl.errors import InputError
from speechssl.io import hash_bytes, write_json

PUBLISHED = {  # train is all of SQuAD 1.1 (87.6k rows at Hugging Face); passages of dev as its segment_id.json has them
    "train": {"questions": 87_599},
    "dev": {"questions": 10_570, "passages": 2_067},
    "test": {"questions": 171},
}
SOURCES = {"squad": ("SQuAD", 51), "newsqa": ("NewsQA", 104), "quac": ("QuAC", 16)}  # of test, by how recordings are called
LAYOUT = (
    "give the folder (or one table) of the Parquet release ({split}.parquet), of the original release ({split}-answer-span.csv and "
    "meta-{split}.csv), or of voidful/NMSQA at Hugging Face (data/{split}-*.parquet)"
)
ABOUT = {
    "source": "NMSQA, github.com/DanielLin94144/DUAL-textless-SQA, huggingface.co/datasets/voidful/NMSQA",
    "paper": "arXiv 2203.04911",
    "licence": "CC BY-SA 4.0 (SQuAD's texts); see the release for the recordings",
}
SLACK = 0.1  # seconds by which a time may lie beyond its recording, whose decoders differ; it then ends with it
AGREE, DRIFT = 0.1, 0.06  # seconds by which two readings may differ, and more for every sentence before (padding of MP3)

# what was found about times and answers that are kept, and what was done about it
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
OFFSET = ("answers whose offset does not match the context", "kept without an offset")
UNEVEN = ("questions with another number of times than of texts", "every time was paired with the text that it is of")
OTHERS = ("questions with audio_full_neg_* (other occurrences of the words)", "not taken for answers")
COPIES = ("questions about a later segment whose audio_full_* repeat audio_segment_*", "read as relative to the segment")
MOVED = ("questions about a later segment whose audio_full_* differ from audio_segment_*", "read as times in the passage")
TEXTLESS = ("answers without a usable time", "scored by their text only")
# about questions, passages and splits
BARE = (
    "questions whose table has no text of the passage",
    "their passage's text is that of its sentences, as far as their rows have it",
)
UNUSED = ("recordings of no whole passage with a question", "not used: the split is text only")
TEXT_ONLY = ("questions without audio or times in the release", "kept as text")
HOLES = ("passages of which the release misses segments", "joined from those it has; no time is shifted")
MISSING = (HOLES[0], "kept as text, which is whole")
UNANSWERED = ("questions whose list of answers is empty", "kept as not answered by their passage")
LONGER = (
    "passages with a recording of the whole that is not as long as their sentences",
    "the sentences were joined, and audio_full_*, which are of the other, are not used",
)
UNREAD_GRIDS = ("alignments (TextGrid) that cannot be read", "left out")
# why items are set aside
NAMELESS = "it has neither an id nor a recording"
NO_ANSWERS = "its answers are missing from the source"
TIMES_ALONE = "its answers are times alone, and there is no recording to which they apply"
NO_RECORDING = "the release has no recording of it"
NOT_WHOLE = "recordings of its sentences are not in the source"
ITS_PASSAGE = "its passage was set aside"
ANSWER_MISSING = "the sentence with its answer is missing from its passage's recording"


# ---- answers: where their times lie in the recording of the passage, and which of the texts each time is of


@dataclass(frozen=True)
class Layout:
    """The recording of a passage: its sentences' names, where they lie (None where that is not known), and its length."""

    names: tuple[str, ...]
    joined: Joined | None
    seconds: float
    comparable: bool = True  # whether times in the passage were counted in a recording as long as this one

    def piece(self, segment: str) -> int | None:
        return self.names.index(segment) if self.joined is not None and segment in self.names else None


def placed(timed: release.Timed, layout: Layout, expected: float | None) -> tuple[release.Interval | None, Done]:
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


def _inside(interval: release.Interval | None, seconds: float) -> release.Interval | None:
    """The interval as far as it lies in [0, seconds), None where it does not begin there or ends more than SLACK after it."""
    if interval is None or not 0 <= interval[0] < min(interval[1], seconds) or interval[1] > seconds + SLACK:
        return None
    return interval[0], min(interval[1], seconds)


def _apart(a: release.Interval, b: release.Interval) -> float:
    return max(abs(a[0] - b[0]), abs(a[1] - b[1]))


def _copied(time: release.Timed) -> bool:
    return time.within is not None and time.whole is not None and _apart(time.within, time.whole) < 1e-3


def written_answers(row: release.Row, remark: Callable[[Done], None]) -> tuple[Answer, ...]:
    """The different answers of a row by text and offset; an offset is kept where the context holds the answer there."""
    kept = {}
    for text, offset in row.texts or ():
        if not text.strip():
            remark(prepare.EMPTY)
        elif (text, offset) in kept:
            remark(prepare.REPEATED)
        else:
            fits = offset is not None and offset >= 0 and row.context[offset : offset + len(text)] == text
            kept[text, offset] = Answer(text, char_start=offset if fits else None)
            if not fits:
                remark(OFFSET)
    return tuple(kept.values())


def spoken_answers(row: release.Row, layout: Layout, words: Sequence[Span], remark: Callable[[Done], None]) -> tuple[Answer, ...]:
    """The answers with the times that can be used, each with its own; a text that occurs twice comes twice.

    words: of the passage with their times, where there is an alignment; they give the text of a time that has none.
    """
    answers = written_answers(row, remark)
    timed: list[Answer] = []
    for time, answer in zip(row.times, _paired(row, answers, layout, remark), strict=True):
        expected = None  # seconds at which it would be spoken if all characters of the context took as long
        if answer is not None and answer.char_start is not None and row.context:
            expected = layout.seconds * answer.char_start / len(row.context)
        interval, how = placed(time, layout, expected)
        remark(how)
        if interval is None:
            continue
        if answer is None:  # the words that lie in it by more than half
            shared = ((w, min(w.end, interval[1]) - max(w.start, interval[0])) for w in words)
            answer = Answer(" ".join(w.text for w, seconds in shared if 2 * seconds > w.end - w.start))
        if not answer.text:
            remark(UNKNOWN_WORDS)
        timed.append(Answer(answer.text, *interval, answer.char_start))
    used = {(answer.text, answer.char_start) for answer in timed}
    rest = [answer for answer in answers if (answer.text, answer.char_start) not in used]
    for _ in rest:
        remark(TEXTLESS)
    return (*dict.fromkeys(timed), *rest)


def _paired(row: release.Row, answers: Sequence[Answer], layout: Layout, remark: Callable[[Done], None]) -> list[Answer | None]:
    """The answer at every time of the row, None where there are no texts."""
    if not answers or not row.times:
        return [None] * len(row.times)

    def stands_in(answer: Answer, sentence: str) -> bool:
        at = row.context.find(sentence)
        return answer.char_start is not None and 0 <= at <= answer.char_start < at + len(sentence)

    def called(text: str, sentence: str) -> Answer | None:
        """The answer of this text; of several, the one that stands in the sentence."""
        found = [answer for answer in answers if answer.text == text]
        return min(found, key=lambda answer: not stands_in(answer, sentence), default=None)

    if all(time.text for time in row.times):
        return [called(time.text, row.segments.get(time.segment, "")) for time in row.times]
    sentence = row.segments.get(row.times[0].segment, "")
    texts = list(dict.fromkeys(a.text for a in answers if a.text in sentence or not sentence))
    if len(texts) == len(row.times):
        found = [called(text, sentence) for text in texts]
        for answer in found:
            if answer is not None and sentence and not stands_in(answer, sentence):
                remark(ELSEWHERE)
        return found
    if len(row.texts or ()) == len(row.times):
        return [called(text, sentence) for text, _ in row.texts or ()]
    for _ in row.times:
        remark(GUESSED)
    candidates = [a for a in answers if a.text in texts] or list(answers)
    return [min(candidates, key=lambda a, time=time: _away(a, time, row, sentence, layout)) for time in row.times]  # type: ignore[misc]


def _away(answer: Answer, time: release.Timed, row: release.Row, sentence: str, layout: Layout) -> float:
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


# ---- a split: its rows, each with its passage


@dataclass
class Spoken:
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
class Split:
    """One split while it is put together."""

    name: str
    files: release.Files
    report: PrepareReport
    about: Mapping[str, release.About]
    recordings: Mapping[str, Path]
    common: set[str]  # those of them that lie in folders of no split
    rows: list[release.Row] = field(default_factory=list)
    passages: dict[str, Spoken] = field(default_factory=dict)
    of_row: dict[str, str] = field(default_factory=dict)  # id of a question -> of its passage
    layouts: dict[str, Layout] = field(default_factory=dict)
    words: dict[str, tuple[Span, ...]] = field(default_factory=dict)

    def remark(self, done: Done, number: int = 1) -> None:
        self.report.remark(self.name, *done, number=number)

    def aside(self, kind: Any, name: str, reason: str, **more: Any) -> None:
        self.report.set_aside(self.name, kind, name, reason, **more)

    def question_recording(self, row: release.Row) -> str:
        """What the recording of a question is called, "" where there is none."""
        known = row.recording or str(self.files.questions.get(row.id, ""))
        names = (known, f"{known}-0", f"{known}_0", f"{known}-1") if known else ()
        return next((name for name in names if name in self.recordings), "")

    def is_answered(self, row: release.Row) -> bool:
        """Whether anything is known of its answers; else it is set aside."""
        if row.texts is None:
            self.aside("questions", row.id, NO_ANSWERS)
        elif not row.texts and not row.times:
            self.remark(UNANSWERED)
        return row.texts is not None


def read_split(name: str, files: release.Files, roots: Sequence[Path], report: PrepareReport) -> Split:
    """The rows that can be used, each with its passage. Raises InputError, before anything is counted, for damaged tables."""
    about = release.read_about(files.about)
    tables = (row for path in files.parquet for row in release.parquet_rows(path))
    read = list(tables if files.parquet else release.csv_rows(files, about))  # what cannot be read leaves nothing counted
    split = Split(name, files, report, about, *release.find_recordings(roots, name))
    rows: dict[str, release.Row] = {}
    for row in read:
        report.count(name, "questions")
        row = replace(row, id=row.id or row.recording)
        if row.id in rows and row != rows[row.id]:
            row = replace(row, id=prepare.numbered(row.id, rows))
            split.remark(prepare.RENAMED)
        if reason := NAMELESS if not row.id else prepare.TWICE if row.id in rows else "":
            split.aside("questions", row.id, reason, question=row.question)
        else:
            rows[row.id] = row
    # a row without a context gets the texts of its passage's sentences, in their order
    sentences: dict[str, dict[tuple[int, str], str]] = {}
    for row in rows.values():
        for segment, text in row.segments.items():
            number = release.SEGMENT.fullmatch(segment)
            sentences.setdefault(row.passage, {})[int(number[2]) if number else -1, segment] = text
    texts = {passage: " ".join(text for _, text in sorted(found.items())) for passage, found in sentences.items()}
    if bare := sum(not row.context.strip() for row in rows.values()):
        split.remark(BARE, bare)
    split.rows = [r if r.context.strip() else replace(r, context=texts.get(r.passage, "")) for r in rows.values()]
    # passages by their recording, or else by the recording of the question, or else by their text
    segments = release.by_passage(split.recordings)
    by_text = {row.context: row.passage for row in reversed(split.rows) if row.passage and row.context.strip()}
    for row in split.rows:
        question, asked = row.recording or str(files.questions.get(row.id, "")), ""
        if question.startswith("question-") or f"{question[:-1]}c" in segments:  # the passage's is called after the question's
            asked = f"{question[:-1]}c" if question.endswith("-q") else f"context-{question[9:].rpartition('_')[0]}"
        passage = row.passage or by_text.get(row.context) or asked or f"text-{hash_bytes(row.context.encode())}"
        split.of_row[row.id] = passage
        if passage not in split.passages:
            found, numbers = segments.get(passage, {}), files.listed(passage)
            expected = sorted(found) if numbers is None else numbers
            names = tuple(found[n] for n in expected if n in found)
            lost = tuple(release.segment_of(passage, n) for n in expected if n not in found)
            whole = split.recordings.get(passage) if lost or not names else None
            holed = expected != list(range(max(expected, default=-1) + 1))
            split.passages[passage] = Spoken(passage, row.context, row.speaker, names, whole, holed, lost)
    report.count(name, "passages", len(split.passages))
    return split


def split_records(split: Split, out: Path, speak: bool, workers: int) -> SplitRecords:
    """The records of a split: with audio where any question and its passage have recordings, else text only."""
    report = split.report
    for prefix, (corpus, published) in SOURCES.items():  # of the questions of test, as far as their recordings are named after them
        if number := sum(f"{row.passage or row.id}".lower().startswith(prefix) for row in split.rows):
            split.remark((f"questions from {corpus} (published {published})", "counted only"), number)
    wanted = report.slice(split.name, split.passages, Counter(split.of_row.values()))
    split.passages = {name: split.passages[name] for name in wanted}
    split.rows = [row for row in split.rows if split.of_row[row.id] in split.passages]
    for row in split.rows:  # what is odd about the times, whether there is audio or not, counted in questions
        if row.times and len(row.times) != len(row.texts or ()):
            split.remark(UNEVEN)
        if row.others:
            split.remark(OTHERS)
        if later := [t for t in row.times if t.within and t.whole and not t.segment.endswith(("_0", "-0", "-c"))]:
            split.remark(COPIES if all(map(_copied, later)) else MOVED)
    asked = {split.of_row[row.id] for row in split.rows if split.question_recording(row)}
    if any(split.passages[name].has_audio for name in asked):
        return _records_with_audio(split, out, speak, workers)
    if any(name in split.recordings for p in split.passages.values() for name in (p.id, *p.names)):
        split.remark(UNUSED, len(split.recordings))
    split.remark(prepare.NO_RECORDINGS, len(split.rows))
    released = {
        row.id: [{"segment": time.segment, "in_segment": time.within, "in_passage": time.whole} for time in row.times]
        for row in split.rows
        if row.times
    }
    write_json(out / split.name / "released_times.json", released)
    return _text_records(split)


def _text_records(split: Split) -> SplitRecords:
    """A split without audio."""
    passages = {p.id: Passage(p.id, "", 0.0, p.text, p.speaker, "en") for p in split.passages.values() if p.text.strip()}
    if holed := sum(passage.holed for passage in split.passages.values()):
        split.remark(MISSING, holed)
    for name in split.passages.keys() - passages.keys():
        split.aside("passages", name, prepare.NO_TEXT)
    questions: list[Question] = []
    for row in split.rows:
        if not split.is_answered(row):
            continue
        reason = ITS_PASSAGE if split.of_row[row.id] not in passages else prepare.NO_QUESTION if not row.question.strip() else ""
        if reason := reason or (TIMES_ALONE if row.times and not row.texts else ""):
            split.aside("questions", row.id, reason)
            continue
        answers = written_answers(row, split.remark)
        questions.append(Question(row.id, split.of_row[row.id], "", 0.0, row.question, row.asker, "en", answers))
        if not row.times:
            split.remark(TEXT_ONLY)
    return SplitRecords(list(passages.values()), questions)


def _records_with_audio(split: Split, out: Path, speak: bool, workers: int) -> SplitRecords:
    """A split with audio: what is whole. Passages are joined where need be, or left to be synthesised."""
    folder = out / split.name / "audio"
    jobs: list[tuple[Any, ...]] = [
        (p.id, [split.recordings[n] for n in p.names], folder / f"{safe_name(p.id)}.flac")
        for p in split.passages.values()
        if p.has_audio and p.whole is None
    ]
    joined = prepare.in_parallel(join_job, jobs, workers)
    shown = tqdm(joined, f"joining {split.name}", len(jobs), unit="passage", disable=not jobs)
    found: dict[str, Joined | float | str] = dict(shown)
    found |= dict(prepare.in_parallel(measure_job, [(p.id, p.whole) for p in split.passages.values() if p.whole], workers))
    passages: list[Passage] = []
    for p in split.passages.values():
        made = found.get(p.id)
        if made is not None and not isinstance(made, str):
            passages.append(_passage(p, made, split, out))
        elif speak and p.text.strip():
            passages.append(Passage(p.id, "", 0.0, p.text, "", "en"))
        elif made is not None:
            split.aside("passages", p.id, prepare.UNUSABLE, why=made)
        elif p.lost and p.names:
            split.aside("passages", p.id, NOT_WHOLE, missing=list(p.lost))
        else:
            split.aside("passages", p.id, prepare.NOT_FOUND)
    kept = {passage.id for passage in passages}
    names = {row.id: split.question_recording(row) for row in split.rows}
    jobs = [(row.id, split.recordings[names[row.id]]) for row in split.rows if names[row.id] and split.of_row[row.id] in kept]
    read = prepare.in_parallel(measure_job, jobs, workers)
    seconds = dict(tqdm(read, f"reading {split.name}", len(jobs), unit="question", disable=not jobs))
    questions = (_question(row, split, kept, seconds.get(row.id), out, speak) for row in split.rows)
    return SplitRecords(passages, [question for question in questions if question is not None])


def _passage(passage: Spoken, made: Joined | float, split: Split, out: Path) -> Passage:
    """made: of its sentences, or the seconds of the recording of the whole. Notes where its sentences lie, and its words."""
    if passage.holed:
        split.remark(HOLES)
    if isinstance(made, Joined):
        layout = Layout(passage.names, made, made.samples / SAMPLE_RATE)
        # a recording of the whole may be longer than its sentences: people pause between them
        if passage.id in split.recordings:
            try:
                apart = abs(duration(split.recordings[passage.id]) - layout.seconds)
                layout = replace(layout, comparable=apart <= AGREE + DRIFT * len(passage.names))
            except InputError:
                pass  # one that is damaged says nothing
        if not layout.comparable:
            split.remark(LONGER)
        audio = f"{split.name}/audio/{safe_name(passage.id)}.flac"
    else:
        # where the sentences lie in a recording of the whole: by the durations of the meta table, where these add up to it
        numbers = split.files.listed(passage.id) or sorted(release.by_passage(split.about).get(passage.id, {}))
        names = tuple(release.segment_of(passage.id, n) for n in numbers)
        lengths = tuple(round((split.about[n].seconds or 0.0) * 16_000) for n in names if n in split.about)
        close = abs(sum(lengths) / 16_000 - made) <= AGREE + DRIFT * len(names)
        whole = bool(names) and len(lengths) == len(names) and close
        layout = Layout(names, Joined(lengths, (16_000,) * len(lengths), round(made * 16_000)) if whole else None, made)
        audio = below(passage.whole or Path(), out)
    words: tuple[Span, ...] = ()
    if passage.id in split.files.grids and not passage.names:
        words = _grid(passage.id, split)
    elif layout.joined is not None:
        starts = zip(layout.names, layout.joined.starts, strict=False)
        moved = (
            Span(w.text, float(start + Fraction(w.start)), float(start + Fraction(w.end)))
            for name, start in starts
            for w in _grid(name, split)
        )
        words = tuple(word for word in moved if word.end <= layout.seconds + 0.05)
    split.layouts[passage.id], split.words[passage.id] = layout, words
    return Passage(passage.id, audio, layout.seconds, passage.text, passage.speaker, "en", words)


def _grid(name: str, split: Split) -> tuple[Span, ...]:
    """The words of a TextGrid, of the tier that is named so or is first."""
    if name not in split.files.grids:
        return ()
    try:
        tiers = dict(read_tiers(split.files.grids[name]))
    except InputError:
        split.remark(UNREAD_GRIDS)
        return ()
    tier = next((t for n, t in tiers.items() if n.lower().endswith(("words", "word"))), next(iter(tiers.values()), []))
    return tuple(Span(text, start, end) for text, start, end in tier if text.strip() and end > start >= 0)


def _question(row: release.Row, split: Split, kept: set[str], seconds: Any, out: Path, speak: bool) -> Question | None:
    """kept: passages; seconds: of its recording, why that cannot be used, or None where there is none."""
    if not split.is_answered(row):
        return None
    passage, name = split.of_row[row.id], split.question_recording(row)
    layout, segments = split.layouts.get(passage), {time.segment for time in row.times}
    reason = ""
    if not row.recording and not name:
        reason = NO_RECORDING
    elif passage not in kept:
        reason = ITS_PASSAGE
    elif seconds is None:
        reason = prepare.NOT_FOUND
    elif isinstance(seconds, str):
        reason = prepare.UNUSABLE
    elif layout and layout.joined and segments and "" not in segments and not segments & set(layout.names):
        reason = ANSWER_MISSING
    if reason and speak and reason not in (ANSWER_MISSING, ITS_PASSAGE):
        reason = "" if row.question.strip() else prepare.NO_QUESTION
    if reason:
        split.aside("questions", row.id, reason, **({"why": seconds} if isinstance(seconds, str) else {}))
        return None
    answers = spoken_answers(row, layout, split.words[passage], split.remark) if layout else written_answers(row, split.remark)
    if not isinstance(seconds, float):
        return Question(row.id, passage, "", 0.0, row.question, row.asker, "en", answers)
    audio, words = below(split.recordings[name], out), _grid(name, split)
    return Question(row.id, passage, audio, seconds, row.question, row.asker, "en", answers, words=words)


# ---- the corpus


def prepare_nmsqa(source: Path, out: Path, wanted: Wanted = Wanted()) -> dict[str, Any]:
    """Prepare what there is of NMSQA and return the data report.

    source: a folder in any of the layouts, or one table of it. Raises InputError, one sentence, for a folder in which nothing is
    known, and for damaged tables where no split is left.
    """
    source, out = Path(source).resolve(), Path(out)
    root, only = (source.parent, source) if source.is_file() else (source, None)
    if not root.is_dir():
        raise InputError(f"{source} does not exist; {LAYOUT}")
    if not release.find_files([root], only) and (only or not archives_in(root)):
        raise InputError(f"{source} has no table of NMSQA; {LAYOUT}")

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        roots = [root] if only else unpacked(root, out)
        tables = release.find_files(roots, only)
        if not tables:
            raise InputError(f"{source} has no table of NMSQA, and neither do its archives; {LAYOUT}")
        # the splits whose tables can be read; the others are reported
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
        owner: dict[str, str] = {}  # of recordings in folders that name no split, which may not be of two
        for split in splits:
            for name in (*(n for p in split.passages.values() for n in p.names), *map(split.question_recording, split.rows)):
                if name in split.common and owner.setdefault(name, split.name) != split.name:
                    raise InputError(
                        f"{split.recordings[name]} may belong to {owner[name]} or to {split.name}; put the recordings of each "
                        f"split of {roots[0]} in a folder that is named after it, such as {split.name}_audios"
                    )
        made = {split.name: split_records(split, out, wanted.speak, wanted.workers) for split in splits}
        prepare.check_used(made, report, source)
        return made

    settings = {"made_from": stamp(root, ".parquet", ".csv", ".json", *ARCHIVES)}
    return prepare.prepared("nmsqa", source, out, wanted, settings, read, PUBLISHED, ABOUT)
