"""What of a split of NMSQA is kept, as text or to be heard, and why the rest is set aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.artefacts import write_json
from speechssl.audio import duration
from speechssl.corpora.making import in_parallel
from speechssl.corpora.records import Passage, Question, Span
from speechssl.corpora.spoken_qa.drafts import Draft
from speechssl.corpora.spoken_qa.joining import Joined, joining, measuring
from speechssl.corpora.spoken_qa.ledger import Done, Ledger
from speechssl.corpora.spoken_qa.nmsqa_files import listed
from speechssl.corpora.spoken_qa.nmsqa_rows import Row, by_passage, segment_of
from speechssl.corpora.spoken_qa.nmsqa_split import Split, Spoken
from speechssl.corpora.spoken_qa.nmsqa_times import (
    AGREE,
    DRIFT,
    Layout,
    moved_words,
    of_durations,
    released_times,
    remark_readings,
    spoken_answers,
    written_answers,
)
from speechssl.corpora.spoken_qa.recordings import below, safe_name
from speechssl.corpora.textgrid import read_tiers
from speechssl.errors import InputError

SOURCES = {"squad": ("SQuAD", 51), "newsqa": ("NewsQA", 104), "quac": ("QuAC", 16)}  # of test, by how recordings are called
UNHEARD = ("recordings of no whole passage with a question", "not used: the split is text only")
SILENT = ("questions without audio or times in the release", "kept as text")
HOLES = ("passages of which the release misses segments", "joined from those it has; no time is shifted")
MISSING = (HOLES[0], "kept as text, which is whole")
MUTE = (
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
NOT_SAID = "the sentence with its answer is missing from its passage's recording"


def draft(split: Split, out: Path, ledger: Ledger, speak: bool, workers: int) -> Draft:
    """The records of a split: with audio where any question can be asked aloud, else text only."""
    _tell_sources(split, ledger)
    split.keep(ledger.slice(split.name, split.passages, Counter(split.of_row.values())))
    remark_readings(split.rows, _remarking(split.name, ledger))
    asked = {split.of_row[row.id] for row in split.rows if split.question_recording(row)}
    if any(split.passages[name].audible for name in asked):
        return _spoken_draft(split, out, ledger, speak, workers)
    if any(name in split.recordings for p in split.passages.values() for name in (p.id, *p.names)):
        ledger.remark(split.name, *UNHEARD, number=sum(1 for _ in split.recordings))
    ledger.remark(split.name, *MUTE, number=len(split.rows))
    write_json(out / split.name / "released_times.json", {row.id: released_times(row) for row in split.rows if row.times})
    return _written_draft(split, ledger)


def _tell_sources(split: Split, ledger: Ledger) -> None:
    """The corpora that the questions of test are from, as far as their recordings say so."""
    for prefix, (corpus, published) in SOURCES.items():
        number = sum(f"{row.passage or row.id}".lower().startswith(prefix) for row in split.rows)
        if number:
            ledger.remark(split.name, f"questions from {corpus} (published {published})", "counted only", number)


def _written_draft(split: Split, ledger: Ledger) -> Draft:
    """A split without audio."""
    passages = {p.id: Passage(p.id, "", 0.0, p.text, p.speaker, "en") for p in split.passages.values() if p.text.strip()}
    if holed := sum(bool(passage.holes) for passage in split.passages.values()):
        ledger.remark(split.name, *MISSING, number=holed)
    for name in split.passages.keys() - passages.keys():
        ledger.set_aside(split.name, "passages", name, NO_TEXT)
    questions: list[Question] = []
    for row in split.rows:
        reason = ITS_PASSAGE if split.of_row[row.id] not in passages else NO_QUESTION if not row.question.strip() else ""
        reason = reason or (TIMES_ALONE if row.times and not row.texts else "")
        if not _is_answered(row, split.name, ledger):
            continue
        if reason:
            ledger.set_aside(split.name, "questions", row.id, reason)
            continue
        answers = written_answers(row, _remarking(split.name, ledger))
        questions.append(Question(row.id, split.of_row[row.id], "", 0.0, row.question, row.asker, "en", answers))
        if not row.times:
            ledger.remark(split.name, *SILENT)
    return Draft(list(passages.values()), questions)


def _is_answered(row: Row, split: str, ledger: Ledger) -> bool:
    if row.texts is None:
        ledger.set_aside(split, "questions", row.id, NO_ANSWERS)
    elif not row.texts and not row.times:
        ledger.remark(split, *UNANSWERED)
    return row.texts is not None


def _remarking(split: str, ledger: Ledger) -> Callable[[Done], None]:
    def remark(done: Done) -> None:
        ledger.remark(split, *done)

    return remark


def _spoken_draft(split: Split, out: Path, ledger: Ledger, speak: bool, workers: int) -> Draft:
    """A split with audio: what is whole."""
    passages = list(_passages(split, out, ledger, speak, workers))
    kept = {passage.id for passage in passages}
    names = {row.id: split.question_recording(row) for row in split.rows}
    jobs = [(row.id, split.recordings[names[row.id]]) for row in split.rows if names[row.id] and split.of_row[row.id] in kept]
    seconds = dict(
        tqdm(in_parallel(measuring, jobs, workers), f"reading {split.name}", len(jobs), unit="question", disable=not jobs)
    )
    questions = (_question(row, split, kept, seconds.get(row.id), out, ledger, speak) for row in split.rows)
    return Draft(passages, [question for question in questions if question is not None])


def _passages(split: Split, out: Path, ledger: Ledger, speak: bool, workers: int) -> Iterator[Passage]:
    """Those that can be heard, joined where need be (or all of them, to be spoken); notes where their sentences lie."""
    joined = [p for p in split.passages.values() if p.audible and p.whole is None]
    folder = out / split.name / "audio"
    jobs: list[tuple[Any, ...]] = [
        (p.id, [split.recordings[n] for n in p.names], folder / f"{safe_name(p.id)}.flac") for p in joined
    ]
    shown = tqdm(in_parallel(joining, jobs, workers), f"joining {split.name}", len(jobs), unit="passage", disable=not jobs)
    found: dict[str, Any] = dict(shown)
    found |= dict(in_parallel(measuring, [(p.id, p.whole) for p in split.passages.values() if p.whole], workers))
    for passage in split.passages.values():
        made = found.get(passage.id)
        if made is None or isinstance(made, str):
            if speak and passage.text.strip():
                yield Passage(passage.id, "", 0.0, passage.text, "", "en")
            else:
                _set_aside(passage, made, split.name, ledger)
            continue
        yield _heard(passage, made, split, out, ledger)


def _set_aside(passage: Spoken, why: str | None, split: str, ledger: Ledger) -> None:
    if why is not None:
        ledger.set_aside(split, "passages", passage.id, UNUSABLE, why=why)
    elif passage.lost and passage.names:
        ledger.set_aside(split, "passages", passage.id, NOT_WHOLE, missing=list(passage.lost))
    else:
        ledger.set_aside(split, "passages", passage.id, NOT_FOUND)


def _heard(passage: Spoken, made: Joined | float, split: Split, out: Path, ledger: Ledger) -> Passage:
    if passage.holes:
        ledger.remark(split.name, *HOLES)
    if isinstance(made, Joined):
        layout = Layout(passage.names, made, made.seconds, _is_comparable(passage, made, split))
        if not layout.comparable:
            ledger.remark(split.name, *LONGER)
        audio = f"{split.name}/audio/{safe_name(passage.id)}.flac"
    else:
        layout = _stated(passage, made, split)
        audio = below(passage.whole or Path(), out)
    split.layouts[passage.id] = layout
    split.words[passage.id] = _words(passage, layout, split, ledger)
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


def _stated(passage: Spoken, seconds: float, split: Split) -> Layout:
    """Where the sentences lie in a recording of the whole: by the durations of the meta table, where these add up to it."""
    numbers = listed(split.files, passage.id) or sorted(by_passage(split.about).get(passage.id, {}))
    names = tuple(segment_of(passage.id, n) for n in numbers)
    durations = [split.about[n].seconds or 0.0 for n in names if n in split.about]
    joined = of_durations(names, durations, seconds) if len(durations) == len(names) else None
    return Layout(names, joined, seconds)


def _words(passage: Spoken, layout: Layout, split: Split, ledger: Ledger) -> tuple[Span, ...]:
    """The words of a passage, where TextGrids say when they are said."""
    if passage.id in split.files.grids and not passage.names:
        return _grid(passage.id, split, ledger)
    if layout.joined is None:
        return ()
    grids = [(k, _grid(name, split, ledger)) for k, name in enumerate(layout.names)]
    words = moved_words(grids, layout.joined)
    return tuple(word for word in words if word.end <= layout.seconds + 0.05)


def _grid(name: str, split: Split, ledger: Ledger) -> tuple[Span, ...]:
    """The words of a TextGrid, of the tier that is named so or is first."""
    if name not in split.files.grids:
        return ()
    try:
        tiers = dict(read_tiers(split.files.grids[name]))
    except InputError:
        ledger.remark(split.name, *UNREAD_GRIDS)
        return ()
    tier = next((t for n, t in tiers.items() if n.lower().endswith(("words", "word"))), next(iter(tiers.values()), []))
    return tuple(Span(text, start, end) for text, start, end in tier if text.strip() and end > start >= 0)


def _question(
    row: Row, split: Split, kept: set[str], seconds: float | str | None, out: Path, ledger: Ledger, speak: bool
) -> Question | None:
    """seconds: of its recording, why that cannot be used, or None where there is none."""
    if not _is_answered(row, split.name, ledger):
        return None
    reason = _unheard(row, split, kept, seconds)
    if reason and speak and reason not in (NOT_SAID, ITS_PASSAGE):
        reason = "" if row.question.strip() else NO_QUESTION
    if reason:
        ledger.set_aside(split.name, "questions", row.id, reason, **({"why": seconds} if isinstance(seconds, str) else {}))
        return None
    passage, remark = split.of_row[row.id], _remarking(split.name, ledger)
    layout = split.layouts.get(passage)
    answers = spoken_answers(row, layout, split.words[passage], remark) if layout else written_answers(row, remark)
    if not isinstance(seconds, float):
        return Question(row.id, passage, "", 0.0, row.question, row.asker, "en", answers)
    name = split.question_recording(row)
    audio, words = below(split.recordings[name], out), _grid(name, split, ledger)
    return Question(row.id, passage, audio, seconds, row.question, row.asker, "en", answers, words=words)


def _unheard(row: Row, split: Split, kept: set[str], seconds: float | str | None) -> str:
    """Why a question cannot be asked aloud, "" where it can."""
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
        return NOT_SAID
    return ""
