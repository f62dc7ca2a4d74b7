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
    Joined,
    archives_in,
    column_names,
    decoded_seconds,
    enter,
    files_below,
    list_of,
    load_json,
    manifest_path,
    number_of,
    open_csv,
    read_csv,
    read_parquet,
    read_tiers,
    safe_name,
    stamp,
    text_of,
    unpack,
    write_joined,
)
from speechssl.data.options import Nmsqa
from speechssl.data.prepare import Done, PrepareReport, SplitRecords
from speechssl.data.records import Answer, Passage, Question, Span
from speechssl.data.squad import SquadQa, read_squad
from speechssl.errors import InputError

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

# what was found about times and answers that are kept, and what was done about it
ADDED = (
    "answer times of which audio_full_* is relative to the segment",
    "the exact lengths of the segments before it were added",
)
CONFIRMED = (
    "answer times of which audio_full_* agrees with the segment's",
    "counted from the segments, exact to the sample",
)
COUNTED = (
    "answer times given in the segment only",
    "the exact lengths of the segments before it were added",
)
NEARER = (
    "answer times whose two readings fit and disagree",
    "the one nearer to where the text stands was taken",
)
WHOLE = ("answer times given in the passage only", "taken as they are")
OUTSIDE = (
    "answer times that are empty, not numbers, or outside the audio",
    "left out; the answer is scored by its text only",
)
ADRIFT = (
    "answer times relative to a segment whose place is not known",
    "left out; the answer is scored by its text only",
)
GUESSED = (
    "answer times that are not one for every text in the segment",
    "given to the text that stands nearest",
)
UNKNOWN_WORDS = ("answer times whose words are not known", "kept with an empty text")
OFFSET = ("answers whose offset does not match the context", "kept without an offset")
UNEVEN = (
    "questions with another number of times than of texts",
    "every time was paired with the text that it is of",
)
OTHERS = (
    "questions with audio_full_neg_* (other occurrences of the words)",
    "not taken for answers",
)
COPIES = (
    "questions about a later segment whose audio_full_* repeat audio_segment_*",
    "read as relative to the segment",
)
MOVED = (
    "questions about a later segment whose audio_full_* differ from audio_segment_*",
    "read as times in the passage",
)
TEXTLESS = ("answers without a usable time", "scored by their text only")
# about questions, passages and splits
TEXT_ONLY = ("questions without audio or times in the release", "kept as text")
HOLES = (
    "passages of which the release misses segments",
    "joined from those it has; no time is shifted",
)
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


# ---- the tables of either release below a folder, by split, and one `NmsqaRow` a question; all
# times are kept, right or not

Cells = Mapping[str, Any]
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
    others: int = 0  # times of other occurrences of the words, which are no answers


def stem(path: Any) -> str:
    """Return a recording's name without folder and suffix."""
    name = text_of(path).replace("\\", "/").rsplit("/", 1)[-1]
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
    """Return the text of the first of some columns that is not empty."""
    for name in names:
        text = text_of(cells.get(name))
        if text.strip():
            return text
    return ""


def read_intervals(cells: Cells, start: str, end: str) -> list[Interval | None]:
    """Pair two columns that hold numbers or lists; None where either is no number or there is only
    one of both."""
    pairs = zip_longest(list_of(cells.get(start)), list_of(cells.get(end)))
    numbers = ((number_of(a), number_of(b)) for a, b in pairs)
    return [None if a is None or b is None else (a, b) for a, b in numbers]


# ---- Parquet

TIMES = tuple(
    f"audio_{kind}_answer_{end}"
    for kind in ("full", "segment", "full_neg")
    for end in ("start", "end")
)
FIELDS = ("text", "answer_start", *TIMES)
QUESTION = "question"


def parquet_rows(path: Path) -> Iterator[NmsqaRow]:
    """Read the rows of a table, with whatever columns there are beside the questions. Raises
    InputError for a file that is damaged or is no table of NMSQA."""
    columns = column_names(path)
    if QUESTION not in columns:
        raise InputError(
            f"{path} has no {QUESTION}, which a table of NMSQA has; give the published file"
        )
    for cells in read_parquet(path):
        answers = _answers(cells)
        by_field = answers or {}
        segment = stem(cells.get("content_segment_audio_path"))
        passage = stem(cells.get("content_full_audio_path"))
        match = SEGMENT.fullmatch(segment)
        if not passage and match:
            passage = match[1]
        sentence = text_of(cells.get("content_segment_text"))
        # floating-point where one row lacks its offsets
        offsets = [number_of(value) for value in by_field.get("answer_start", ())]
        whole = [int(n) if n is not None and n.is_integer() else None for n in offsets]
        answer_texts = [text_of(value) for value in by_field.get("text", ())]
        whole += [None] * len(answer_texts)
        texts = tuple(zip(answer_texts, whole, strict=False))
        within = read_intervals(by_field, "audio_segment_answer_start", "audio_segment_answer_end")
        full = read_intervals(by_field, "audio_full_answer_start", "audio_full_answer_end")
        timed_in = "" if segment == passage else segment
        yield NmsqaRow(
            id=text_of(cells.get("id")),
            passage=passage,
            recording=stem(cells.get("question_audio_path")),
            context=text_of(cells.get("context")),
            question=text_of(cells.get(QUESTION)),
            texts=None if answers is None else texts,
            times=tuple(AnswerTime(timed_in, a, b) for a, b in zip_longest(within, full)),
            speaker=text_of(cells.get("content_audio_speaker")),
            asker=text_of(cells.get("question_audio_speaker")),
            segments={segment: sentence} if segment and sentence else {},
            others=len(by_field.get("audio_full_neg_answer_start", ())),
        )


def _answers(cells: Cells) -> dict[str, list[Any]] | None:
    """Read the record of lists about the answers, field -> values; None where the row has nothing
    about its answers."""
    answers = cells.get("answers") or {}
    by_field = {name: list_of(answers[name]) for name in FIELDS if answers.get(name) is not None}
    return by_field if "text" in by_field or any(by_field.values()) else None


# ---- the original release: a line an annotation in {split}-answer-span.csv, which names a segment
# and times in it, a passage and times in it, or both; a line a recording in meta-{split}.csv, whose
# texts are taken where SQuAD's own are not there

HASH = ("hash", "question_id", "qid", "id")
START = ("start", "new_start", "start_time")
NAME = ("id", "utterance_id", "utterance", "name_id", "name")
DESCRIBED = ("speaker", "duration", "text", "normalized_text", "transcription")
SEGMENTS = ("utterance", "utterance_id", "segment_id", "segment")
PASSAGES = ("context_id", "name_id", "passage_id", "utterance_id")


@dataclass(frozen=True)
class Meta:
    """The entry of a recording in a meta table."""

    text: str
    speaker: str
    seconds: float | None


def read_meta(paths: Iterable[Path]) -> dict[str, Meta]:
    """Read meta tables, by recording. Raises InputError for a file that is no CSV."""
    by_recording: dict[str, Meta] = {}
    for path in paths:
        for cells in read_csv(path):
            text = first_text(cells, ("text", "transcription", "normalized_text"))
            entry = Meta(text, cells.get("speaker", ""), number_of(cells.get("duration")))
            by_recording.setdefault(stem(first_text(cells, NAME)), entry)
    return by_recording


def csv_rows(files: Files, meta: Mapping[str, Meta]) -> Iterator[NmsqaRow]:
    """Read the questions in the order of the tables, then those that have texts or a recording and
    no annotation."""
    segments = group_segments(meta)
    squad: dict[str, tuple[str, SquadQa]] = {}
    for path in files.squad:
        for paragraph in read_squad(path):
            squad |= {q.id: (paragraph.context, q) for q in paragraph.questions}
    annotations: dict[str, list[Cells]] = {}
    for path in files.spans:
        for cells in read_csv(path):
            annotations.setdefault(first_text(cells, HASH), []).append(cells)
    for name in dict.fromkeys([*annotations, *files.questions, *squad]):
        lines = annotations.get(name, [])
        recording, passage = _name_recordings(stem(files.questions.get(name)), lines)
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
            question = squad_question.text
            texts = [(gold.text, gold.char_start) for gold in squad_question.golds]
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
        recording = recording or stem(cells.get("question", ""))
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
    near = next(iter(read_intervals(cells, "start", "end")), None)
    far = next(iter(read_intervals(cells, "new_start", "new_end")), None)
    text = first_text(cells, ("answer", "answer_text", "text"))
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
    # of JSON files: "hash2question", id of a question -> its recording; "segment_id", passage
    # (without "context-") -> the numbers of the segments that the release has
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def questions(self) -> dict[str, Any]:
        """The recordings of questions, by id."""
        return self.objects.get("hash2question", {})

    def listed(self, passage: str) -> list[int] | None:
        """List the numbers of a passage's segments that the release has, None where it lists
        none."""
        segment_ids = self.objects.get("segment_id", {})
        numbers = segment_ids.get(passage, segment_ids.get(passage.removeprefix("context-")))
        if not isinstance(numbers, list):
            return None
        return sorted({int(number) for number in numbers if str(number).isdecimal()})


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
                with open_csv(path) as rows:
                    names = {name.strip() for name in next(rows, [])}
                if names & set(HASH) and names & set(START):
                    files.spans.append(path)
                elif names & set(NAME) and names & set(DESCRIBED):
                    files.meta.append(path)
            else:
                for what in ("segment_id", "hash2question"):
                    if what in path.stem and what not in files.objects:
                        files.objects[what] = load_json(path)
                        if not isinstance(files.objects[what], dict):
                            raise InputError(f"{path} is not a JSON object; download it again")
                if path.stem.endswith(("v1.1", "v2.0")):
                    files.squad.append(path)
    for split, files in splits.items():
        # derived tables repeat the spans; of several Parquet files only shards belong together
        published = [p for p in files.spans if "answer-span" in p.name or "answer_span" in p.name]
        if published:
            files.spans = published
        elif split != "test":
            files.spans = files.spans[:1]
        if len(files.parquet) > 1 and not all(
            "-of-" in path.name or path.stem.isdecimal() for path in files.parquet
        ):
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
            end = min(joined.moved(piece, inside[1]), layout.seconds)
            near = joined.moved(piece, inside[0]), end
    far = _clip(timed.whole, layout.seconds) if layout.comparable else None
    copied = _copied(timed)
    # a time in the passage that repeats one in a later segment is not one in the passage
    if near is None:
        if far is None:
            return None, OUTSIDE
        adrift = copied and timed.segment not in ("", *layout.names[:1])
        return (None, ADRIFT) if adrift else (far, WHOLE)
    if far is None or (copied and piece):
        return near, ADDED if copied else COUNTED
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


def written_answers(row: NmsqaRow, remark: Callable[[Done], None]) -> tuple[Answer, ...]:
    """Return the different answers of a row by text and offset; an offset is kept where the context
    holds the answer there."""
    answers = {}
    for text, offset in row.texts or ():
        if not text.strip():
            remark(prepare.EMPTY)
        elif (text, offset) in answers:
            remark(prepare.REPEATED)
        else:
            fits = (
                offset is not None
                and offset >= 0
                and row.context[offset : offset + len(text)] == text
            )
            answers[text, offset] = Answer(text, char_start=offset if fits else None)
            if not fits:
                remark(OFFSET)
    return tuple(answers.values())


def spoken_answers(
    row: NmsqaRow, layout: PassageLayout, words: Sequence[Span], remark: Callable[[Done], None]
) -> tuple[Answer, ...]:
    """Return the answers with the times that can be used, each with its own; a text that occurs
    twice comes twice.

    words: of the passage with their times, where there is an alignment; they give the text of a
    time that has none.
    """
    answers = written_answers(row, remark)
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
        if not answer.text:
            remark(UNKNOWN_WORDS)
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
        base = row.recording or str(self.files.questions.get(row.id, ""))
        names = (base, f"{base}-0", f"{base}_0", f"{base}-1") if base else ()
        return next((name for name in names if name in self.recordings), "")

    def is_answered(self, row: NmsqaRow) -> bool:
        """Tell whether anything is known of its answers; else it is set aside."""
        if row.texts is None:
            self.aside("questions", row.id, NO_ANSWERS)
        elif not row.texts and not row.times:
            self.remark(UNANSWERED)
        return row.texts is not None


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
            row = replace(row, id=prepare.unique_id(row.id, rows))
            split.remark(prepare.RENAMED)
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
        question = row.recording or str(files.questions.get(row.id, ""))
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
    # remarks on the times, whether there is audio or not, counted in questions
    for row in split.rows:
        if row.times and len(row.times) != len(row.texts or ()):
            split.remark(UNEVEN)
        if row.others:
            split.remark(OTHERS)
        both = [t for t in row.times if t.within and t.whole]
        later = [t for t in both if not t.segment.endswith(("_0", "-0", "-c"))]
        if later:
            split.remark(COPIES if all(map(_copied, later)) else MOVED)
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
    holed = sum(passage.holed for passage in split.passages.values())
    if holed:
        split.remark(MISSING, holed)
    for name in split.passages.keys() - passages.keys():
        split.aside("passages", name, prepare.NO_TEXT)
    questions: list[Question] = []
    for row in split.rows:
        if not split.is_answered(row):
            continue
        passage, reason = split.of_row[row.id], ""
        if passage not in passages:
            reason = ITS_PASSAGE
        elif not row.question.strip():
            reason = prepare.NO_QUESTION
        elif row.times and not row.texts:
            reason = TIMES_ALONE
        if reason:
            split.aside("questions", row.id, reason)
            continue
        answers = written_answers(row, split.remark)
        questions.append(Question(row.id, passage, "", 0.0, row.question, row.asker, "en", answers))
        if not row.times:
            split.remark(TEXT_ONLY)
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
    if passage.holed:
        split.remark(HOLES)
    if isinstance(joined, Joined):
        layout = PassageLayout(passage.names, joined, joined.samples / SAMPLE_RATE)
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
        # where the sentences lie in a recording of the whole: by the durations of the meta table,
        # where these add up to it
        numbers = split.files.listed(passage.id)
        if not numbers:
            numbers = sorted(group_segments(split.meta).get(passage.id, {}))
        names = tuple(segment_name(passage.id, n) for n in numbers)
        lengths = tuple(
            round((split.meta[n].seconds or 0.0) * 16_000) for n in names if n in split.meta
        )
        close = abs(sum(lengths) / 16_000 - joined) <= AGREE + DRIFT * len(names)
        pieces = None
        if names and len(lengths) == len(names) and close:
            pieces = Joined(lengths, (16_000,) * len(lengths), round(joined * 16_000))
        layout = PassageLayout(names, pieces, joined)
        audio = manifest_path(passage.whole or Path(), out)
    words: tuple[Span, ...] = ()
    if passage.id in split.files.grids and not passage.names:
        words = _grid(passage.id, split)
    elif layout.joined is not None:
        moved = []
        for piece, name in enumerate(layout.names):
            for w in _grid(name, split):
                start = layout.joined.moved(piece, w.start)
                end = layout.joined.moved(piece, w.end)
                moved.append(Span(w.text, start, end))
        words = tuple(word for word in moved if word.end <= layout.seconds + 0.05)
    split.layouts[passage.id], split.words[passage.id] = layout, words
    return Passage(passage.id, audio, layout.seconds, passage.text, passage.speaker, "en", words)


def _grid(name: str, split: NmsqaSplit) -> tuple[Span, ...]:
    """Read the words of a TextGrid, of the tier that is named so or is first."""
    if name not in split.files.grids:
        return ()
    try:
        tiers = read_tiers(split.files.grids[name])
    except InputError:
        split.remark(UNREAD_GRIDS)
        return ()
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
    if not split.is_answered(row):
        return None
    passage, name = split.of_row[row.id], split.question_recording(row)
    layout = split.layouts.get(passage)
    segments = {time.segment for time in row.times}
    reason = ""
    if not row.recording and not name:
        reason = NO_RECORDING
    elif passage not in usable:
        reason = ITS_PASSAGE
    elif seconds is None:
        reason = prepare.NOT_FOUND
    elif isinstance(seconds, InputError):
        reason = prepare.UNUSABLE
    elif layout and layout.joined and segments and not segments & {"", *layout.names}:
        reason = ANSWER_MISSING
    if reason and o.speak and reason not in (ANSWER_MISSING, ITS_PASSAGE):
        reason = "" if row.question.strip() else prepare.NO_QUESTION
    if reason:
        why = {"why": str(seconds)} if isinstance(seconds, InputError) else {}
        split.aside("questions", row.id, reason, **why)
        return None
    answers = (
        spoken_answers(row, layout, split.words[passage], split.remark)
        if layout
        else written_answers(row, split.remark)
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
    source, out = o.source.resolve(), o.out
    root, only = (source.parent, source) if source.is_file() else (source, None)
    if not root.is_dir():
        raise InputError(f"{source} does not exist; {LAYOUT}")
    if not find_files([root], only) and (only or not archives_in(root)):
        raise InputError(f"{source} has no table of NMSQA; {LAYOUT}")

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        roots = [root] if only else unpack(root, out)
        tables = find_files(roots, only)
        if not tables:
            raise InputError(
                f"{source} has no table of NMSQA, and neither do its archives; {LAYOUT}"
            )
        alone = len(tables) == 1
        splits = [read_split(n, files, roots, report, alone) for n, files in tables.items()]
        records = {split.name: split_records(split, o) for split in splits}
        prepare.check_used(records, report, source)
        return records

    settings = {"made_from": stamp(root, ".parquet", ".csv", ".json", *ARCHIVES)}
    return prepare.prepare_corpus("nmsqa", o, settings, read, PUBLISHED, ABOUT)
