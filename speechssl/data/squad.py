"""Prepare SQuAD or DRCD JSON, with audio beside it or none: `squad` (English) and `drcd`
(Mandarin). Layouts: data/squad/README.md.

The family: SQuAD 1.1 and 2.0 (arXiv 1606.05250, 1806.03822), DRCD (arXiv 1806.00920) and corpora
with their schema. `read_squad` reads a file as it stands; `make_records` makes passages and
questions of it, with everything that is odd about them in the report.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from speechssl.artifacts import parse_json
from speechssl.data.files import audio_files, enter, load_json, number_of, truth_of
from speechssl.data.options import Drcd, Squad
from speechssl.data.prepare import (
    Attach,
    PrepareReport,
    SplitRecords,
    Take,
    Takes,
    make_take,
    prepare_texts,
    resolve_source,
    unique_id,
)
from speechssl.data.records import Answer, Passage, Question, Span
from speechssl.errors import InputError
from speechssl.text import language_of

SHAPE = (
    '{"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text", '
    '"answer_start"}]}]}]}]}'
)


@dataclass(frozen=True)
class SquadQa:
    """A question of a file. golds: its annotations, with offsets in the context where they are
    usable."""

    id: str  # "" where it has none
    text: str
    golds: tuple[Answer, ...]
    impossible: bool | None = None  # None where the file leaves it open
    transcript: str = ""  # what a recogniser made of it, where that stands beside the text


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of a file. article, number: its place, counted from 0."""

    article: int
    number: int
    id: str  # "" where it has none
    title: str
    context: str
    questions: tuple[SquadQa, ...]


def read_squad(path: Path) -> list[Paragraph]:
    """Read every paragraph of a file in its order.

    Raises InputError (one sentence that names the file) for one that cannot be read, is not whole
    JSON, or is of another schema.
    """

    content = load_json(path)
    paragraphs = []
    try:
        for i, article in enumerate(_list_in(content, "data", "it")):
            for j, paragraph in enumerate(_list_in(article, "paragraphs", f"data[{i}]")):
                place = f"data[{i}].paragraphs[{j}]"
                if not isinstance(paragraph, dict) or not isinstance(paragraph.get("context"), str):
                    raise TypeError(f"{place} has no text called context")
                qas = []
                if paragraph.get("qas") is not None:
                    qas = _list_in(paragraph, "qas", place)
                paragraphs.append(
                    Paragraph(
                        article=i,
                        number=j,
                        id=as_text(paragraph.get("id")),
                        title=as_text(article.get("title")),
                        context=as_text(paragraph["context"]),
                        questions=tuple(
                            _read_qa(qa, f"{place}.qas[{k}]") for k, qa in enumerate(qas)
                        ),
                    )
                )
    except TypeError as error:
        raise InputError(f"{path} is not SQuAD or DRCD JSON ({error}); expected {SHAPE}") from error
    return paragraphs


def _list_in(value: Any, name: str, place: str) -> list[Any]:
    if not isinstance(value, dict) or not isinstance(value.get(name), list):
        raise TypeError(f"{place} has no list called {name}")
    return list(value[name])


def _read_qa(qa: Any, place: str) -> SquadQa:
    if not isinstance(qa, dict) or "question" not in qa:
        raise TypeError(f"{place} has no question")
    try:
        golds = read_golds(qa.get("answers"))
        impossible = truth_of(qa.get("is_impossible"))
    except TypeError as error:
        raise TypeError(f"{place}: {error}") from error
    return SquadQa(as_text(qa.get("id")), as_text(qa["question"]), golds, impossible)


def is_squad(path: Path) -> bool:
    """Tell whether a JSON file begins as one of the family does; a file that is not whole JSON is
    for `read_squad` to refuse."""
    try:
        content = load_json(path)
    except InputError as error:
        return isinstance(error.__cause__, ValueError | RecursionError)
    return isinstance(content, dict) and isinstance(content.get("data"), list)


def read_golds(answers: Any) -> tuple[Answer, ...]:
    """Read answers: a list of dicts, a dict of lists, or one dict. Raises TypeError for anything
    else."""
    if answers is None:
        return ()
    if isinstance(answers, dict):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if not isinstance(texts, list):
            return read_golds([answers]) if texts is not None else ()
        starts = starts if isinstance(starts, list) else []
        answers = [
            {"text": t, "answer_start": s}
            for t, s in zip(texts, starts + [None] * len(texts), strict=False)
        ]
    if not isinstance(answers, list) or not all(isinstance(a, dict) for a in answers):
        raise TypeError("its answers are not a list of answers")
    # not every one is a count of characters: -1 is some files' "unknown"
    starts = (a.get("answer_start") for a in answers)
    offsets = [None if isinstance(start, bool) else number_of(start) for start in starts]
    whole = [int(n) if n is not None and n >= 0 and n.is_integer() else None for n in offsets]
    return tuple(
        Answer(as_text(a.get("text")), char_start=start)
        for a, start in zip(answers, whole, strict=True)
    )


def as_text(value: Any) -> str:
    """Make a text that can be written: a number as its digits, nothing as "", and half a surrogate
    pair as U+FFFD (offsets stay)."""
    text = "" if value is None else str(value)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


NO_TRANSCRIPT = "kept, though nothing can be made of it"
BY_TEXT = "kept without offset, scored by text only"


@dataclass(frozen=True)
class Style:
    """A style says how to take the texts of a file."""

    language: str = "en"
    transcribed_passages: bool = False  # contexts are what a recogniser made of speech
    transcribed_questions: bool = False
    offsets: bool = True  # False: those of another text, of no use here


@dataclass(frozen=True)
class Originals:
    """The texts that were read aloud, by the ids of their questions, of their paragraphs, and by
    title and place.

    wording: id of a question -> its text; also where nothing but that is known.
    """

    by_question: Mapping[str, tuple[Paragraph, SquadQa]] = field(default_factory=dict)
    paragraphs: Mapping[str, Paragraph] = field(default_factory=dict)
    places: Mapping[tuple[str, int], Paragraph] = field(default_factory=dict)
    wording: Mapping[str, str] = field(default_factory=dict)

    def find(self, paragraph: Paragraph) -> Paragraph | None:
        """Find the original of a paragraph, through its own id, those of its questions, or its
        place in the article."""
        if paragraph.id and paragraph.id in self.paragraphs:
            return self.paragraphs[paragraph.id]
        for question in paragraph.questions:
            if question.id in self.by_question:
                return self.by_question[question.id][0]
        return self.places.get((paragraph.title, paragraph.number))


def collect_originals(
    paragraphs: Iterable[Paragraph], wording: Mapping[str, str] | None = None
) -> Originals:
    """Collect the originals of paragraphs. wording: texts of further questions by id."""
    paragraphs = list(paragraphs)
    return Originals(
        {q.id: (p, q) for p in paragraphs for q in p.questions if q.id},
        {p.id: p for p in paragraphs if p.id},
        {(p.title, p.number): p for p in paragraphs if p.title},
        {**(wording or {}), **question_texts(paragraphs)},
    )


def question_texts(paragraphs: Iterable[Paragraph]) -> dict[str, str]:
    """Return the texts of questions by id."""
    return {q.id: q.text for p in paragraphs for q in p.questions if q.id and q.text.strip()}


def make_records(
    split: str,
    paragraphs: Sequence[Paragraph],
    style: Style,
    report: PrepareReport,
    originals: Originals | None = None,
) -> tuple[SplitRecords, dict[str, Paragraph]]:
    """Make the records of a split; return them, and by the id of its passage the paragraph that
    each was made from.

    Set aside are empty passages and questions, questions whose every answer is empty or that have
    none without being marked impossible, and repetitions; everything else is kept and its oddities
    are remarked. A question of which a recogniser made nothing is kept: it was asked, and nobody
    can answer it. Of a slice (`PrepareReport.first`) nothing is made of the paragraphs beyond it.
    originals: their texts become `text`, and offsets then are those in them.
    """
    report.count(split, "passages", len(paragraphs))
    report.count(split, "questions", sum(len(p.questions) for p in paragraphs))
    chosen = report.slice(
        split, range(len(paragraphs)), {i: len(p.questions) for i, p in enumerate(paragraphs)}
    )
    paragraphs = [paragraphs[i] for i in chosen]
    originals = originals or Originals()
    passages: dict[str, Passage] = {}
    questions: dict[str, Question] = {}
    sources: dict[str, Paragraph] = {}

    def remark(what: str, done: str) -> None:
        report.remark(split, what, done)

    def unique(name: str, taken: Mapping[str, object], kind: str) -> str:
        if name in taken:
            remark(f"ids of {kind} that occur twice", "the later one has a number behind it")
        return unique_id(name, taken)

    for paragraph in paragraphs:
        name = unique(
            paragraph.id or f"{paragraph.article}_{paragraph.number}", passages, "passages"
        )
        original = originals.find(paragraph)
        if originals.by_question and original is None:
            remark("passages without original", "kept with their transcript alone")
        transcribed = style.transcribed_passages
        text = "" if transcribed else paragraph.context
        if original:
            text = original.context
        transcript = paragraph.context if transcribed else ""
        passage = Passage(name, "", 0.0, text, "", style.language, transcript=transcript)
        if not passage.written.strip() and not transcribed:
            report.set_aside(split, "passages", name, "empty passage")
        else:
            passages[name], sources[name] = passage, paragraph
        if not paragraph.context.strip() and transcribed:
            remark("passages with an empty transcript", NO_TRANSCRIPT)
        for number, question in enumerate(paragraph.questions, 1):
            if not question.id:
                remark("questions without an id", "named after their passage")
            name = question.id or f"{passage.id}-{number}"
            if passage.id not in passages:
                report.set_aside(split, "questions", name, "its passage is set aside")
                continue
            transcribed = style.transcribed_questions
            transcript = question.text if transcribed else question.transcript
            text = originals.wording.get(question.id, "" if transcribed else question.text)
            if transcribed and not transcript.strip():
                remark("questions with an empty transcript", NO_TRANSCRIPT)
            original_golds: tuple[Answer, ...] = ()
            if question.id in originals.by_question:
                original_golds = originals.by_question[question.id][1].golds
            answers = []
            for gold in () if question.impossible else question.golds:
                if gold.text.strip():
                    start, odd = _find_offset(passage, gold, style, original_golds)
                    answers.append(Answer(gold.text, char_start=start))
                    if start is None:
                        remark(*odd)
                else:
                    remark("empty answers", "left out of their question")
            if question.impossible and question.golds:
                remark("questions marked impossible that have answers", "taken as unanswerable")
            q = Question(
                id=name,
                passage=passage.id,
                audio="",
                seconds=0.0,
                text=text,
                speaker="",
                language=style.language,
                answers=tuple(answers),
                transcript=transcript,
            )
            reason = ""
            if not q.written.strip() and not transcribed:
                reason = "empty question"
            elif not answers and question.impossible is not True:
                reason = "no answer, and not marked impossible"
                if question.golds:
                    reason = "every answer is empty"
            elif q == questions.get(name):
                reason = "the same question, word for word, with the same id"
            if reason:
                report.set_aside(split, "questions", name, reason)
            else:
                name = unique(name, questions, "questions")
                questions[name] = replace(q, id=name)
    empty = sum(not p.questions for p in paragraphs)
    if empty:
        report.remark(split, "passages without questions", "kept", empty)
    return SplitRecords(tuple(passages.values()), tuple(questions.values())), sources


def _find_offset(
    passage: Passage, gold: Answer, style: Style, original_golds: Sequence[Answer]
) -> tuple[int | None, tuple[str, str]]:
    """Find the offset of an answer in the written text of the passage, or None and a remark.
    original_golds: the answers in the original."""
    start, odd = gold.char_start, ("answers whose offset does not match", BY_TEXT)
    if style.transcribed_passages and passage.text:
        starts = [g.char_start for g in original_golds if g.text == gold.text]
        starts = [start for start in starts if start is not None]
        start = starts[0] if starts else None
        odd = ("answers that are not word for word in the original", BY_TEXT)
    elif not style.offsets:
        start = None
        odd = ("answers with offsets of another text", "offsets ignored, scored by text only")
    fits = start is not None and passage.written[start : start + len(gold.text)] == gold.text
    return (start if fits else None), odd


LAYOUT = (
    "give a SQuAD or DRCD JSON file, or the folder that holds train, dev or test JSON files "
    "and, if there is audio, audio/"
)
ABOUT = {
    "squad": {
        "title": "SQuAD JSON",
        "language": "en",
        "source": "rajpurkar.github.io/SQuAD-explorer, arXiv 1606.05250, 1806.03822",
        "licence": "CC BY-SA 4.0",
    },
    "drcd": {
        "title": "DRCD JSON",
        "language": "zh",
        "source": "github.com/DRCKnowledgeTeam/DRCD, arXiv 1806.00920",
        "licence": "CC BY-SA 3.0",
    },
}
PUBLISHED = {  # by the name of the published file
    "train-v1.1.json": ("train", 18_896, 87_599),
    "dev-v1.1.json": ("dev", 2_067, 10_570),
    "train-v2.0.json": ("train", 19_035, 130_319),
    "dev-v2.0.json": ("dev", 1_204, 11_873),
    "DRCD_training.json": ("train", 8_014, 26_936),
    "DRCD_dev.json": ("dev", 1_000, 3_524),
    "DRCD_test.json": ("test", 1_000, 3_493),
}
SPLITS = {
    "train": re.compile(r"train"),
    "dev": re.compile(r"dev|valid"),
    "test": re.compile(r"test"),
}
SEGMENT = re.compile(r"(.+)_(\d+)")
ENOUGH = 200  # paragraphs by which the language of a file is seen
CHINESE, LETTER = re.compile(r"[\u3400-\u9fff]"), re.compile(r"[^\W\d_]")


def prepare_squad(o: Squad, corpus: Literal["squad", "drcd"] = "squad") -> dict[str, Any]:
    """Write `o.out` and return its data report. corpus: what the report and the card call it.

    A file that is none of the published ones may state its `licence` beside `data`; the card then
    has it.
    Raises InputError for a source without such a file, a damaged file, a language that is not its
    own, or word times that are none.
    """
    source = resolve_source(o.source, LAYOUT)
    language = language_of(o.language)  # refuses one without rules
    files: dict[str, Path] = {}
    for path in sorted(source.glob("*.json")) if source.is_dir() else [source]:
        if path.name.startswith(".") or (source.is_dir() and not is_squad(path)):
            continue
        split = split_of(path)
        if split in files:
            raise InputError(
                f"both {files[split]} and {path} look like {split}; give one of them, or rename one"
            )
        files[split] = path
    # of recordings; one for all splits where they have none
    folders: dict[str, Path] = {}
    for split in files:
        folder = source / "audio" / split
        folders[split] = folder if folder.is_dir() else source / "audio"
    sounds: dict[str, dict[str, Path]] = {}  # split -> name without suffix -> recording
    if o.audio and source.is_dir():
        for split, folder in folders.items():
            sounds[split] = {}
            for path in audio_files(folder) if folder.is_dir() else ():
                enter(sounds[split], path.stem, path)
    published: dict[str, dict[str, int]] = {}
    for path in files.values():
        if path.name in PUBLISHED:
            split, passages, questions = PUBLISHED[path.name]
            published[split] = {"passages": passages, "questions": questions}
    options: dict[str, Any] = {"language": language}
    if any(sounds.values()):
        options["recordings"] = {split: len(sounds.get(split, {})) for split in files}

    def read(report: PrepareReport) -> Mapping[str, tuple[SplitRecords, Attach]]:
        attached: dict[str, tuple[SplitRecords, Attach]] = {}
        for split, path in files.items():
            paragraphs = read_squad(path)
            _check_language(path, paragraphs, language)
            records, _ = make_records(split, paragraphs, Style(language), report)
            takes = _takes(records, sounds.get(split, {}))
            if takes.passages:
                records = _add_words(split, records, takes, folders[split], report)
            attached[split] = records, takes.attach
        return attached

    about = ABOUT[corpus]
    if not published:  # somebody's own, who may state its licence
        about = {"title": f"JSON in the layout of {about['title'].split()[0]}"}
        licences: set[str] = set()
        for path in files.values():
            values = load_json(path)
            if isinstance(values, dict) and values.get("licence"):
                licences.add(str(values["licence"]))
        if licences:
            about["licence"] = ", ".join(sorted(licences))
    about = about | {"language": language}
    return prepare_texts(corpus, o, files, read, LAYOUT, published, about, options)


def prepare_drcd(o: Drcd) -> dict[str, Any]:
    """Write `o.out` as `prepare_squad` does, and return its data report."""
    return prepare_squad(o, "drcd")


def split_of(path: Path) -> str:
    """Guess train, dev or test by the name of a file, or else return its name."""
    for split, pattern in SPLITS.items():
        if pattern.search(path.stem.lower()):
            return split
    return re.sub(r"[^\w.-]+", "-", path.stem)


def _check_language(path: Path, paragraphs: Sequence[Paragraph], language: str) -> None:
    """Raise InputError for Chinese that would be taken for another language, or the reverse: its
    rules would be wrong."""
    texts: list[str] = []
    for p in paragraphs[:ENOUGH]:
        texts += [p.context, *(q.text for q in p.questions)]
    chinese = sum(len(CHINESE.findall(text)) for text in texts)
    letters = sum(len(LETTER.findall(text)) for text in texts)
    if language != "zh" and 2 * chinese > letters:
        raise InputError(
            f"{path} is mostly in Chinese characters, but the language is {language!r}; use "
            "`speechssl prepare drcd`, or give --language zh"
        )
    if language == "zh" and 10 * chinese < letters:
        raise InputError(
            f"{path} has hardly any Chinese characters, but the language is 'zh'; use `speechssl "
            "prepare squad`, or give --language en"
        )


def _takes(records: SplitRecords, sounds: Mapping[str, Path]) -> Takes:
    """Find the recordings: of a passage the whole one, or else its segments, from 0 where there is
    one of that number, else from 1."""
    segments: dict[str, dict[int, Path]] = {}
    for name, path in sounds.items():
        match = SEGMENT.fullmatch(name)
        if match:
            segments.setdefault(match[1], {})[int(match[2])] = path
    passages = {}
    for passage in records.passages:
        if passage.id in sounds:
            passages[passage.id] = Take((sounds[passage.id],))
        elif passage.id in segments:
            parts = segments[passage.id]
            passages[passage.id] = make_take(parts, 0 if 0 in parts else 1)
    questions = {q.id: Take((sounds[q.id],)) for q in records.questions if q.id in sounds}
    return Takes(passages, questions)


# ---- times of words, and of the answers that lie in them


def _add_words(
    split: str, records: SplitRecords, takes: Takes, folder: Path, report: PrepareReport
) -> SplitRecords:
    """Add the words of the passages that have them, and times of the answers that lie in such
    words."""
    passages: dict[str, Passage] = {}
    for p in records.passages:
        path = folder / f"{p.id}.words.json"
        passages[p.id] = replace(p, words=read_words(path)) if path.is_file() else p
    questions: list[Question] = []
    untimed = 0  # answers in passages that have a whole recording
    for q in records.questions:
        answers = add_times(q.answers, passages[q.passage])
        questions.append(replace(q, answers=answers))
        take = takes.passages.get(q.passage)
        if take and not take.missing:
            untimed += sum(answer.start is None for answer in answers)
    if untimed:
        report.remark(split, "answers without times", "scored by text only", untimed)
    return SplitRecords(tuple(passages.values()), questions)


def read_words(path: Path) -> tuple[Span, ...]:
    """Read a list of [word, start, end], seconds, in the order of time. Raises InputError, naming
    the file, for anything else."""
    try:
        words = tuple(
            Span(str(text), float(start), float(end))
            for text, start, end in parse_json(path.read_text("utf-8-sig"))
        )
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f'{path} is not a list of ["word", start, end] ({error}); correct or remove the file'
        ) from error
    if any(not (math.isfinite(w.end) and 0 <= w.start < w.end) for w in words):
        raise InputError(
            f"{path} has a word that does not end after it starts; correct or remove the file"
        )
    return words


def places(text: str, words: Sequence[Span]) -> list[tuple[int, int]] | None:
    """Find each word in the text, [first, last) in characters; None where they are not the words of
    this text.

    Case, and punctuation and white space between words do not count.
    """
    at, bounds = 0, []
    folded = _lower(text)
    for word in words:
        needle = _lower(word.text.strip())
        first = folded.find(needle, at)
        if not needle or first < 0 or any(c.isalnum() for c in text[at:first]):
            return None
        at = first + len(needle)
        bounds.append((first, at))
    return bounds


def _lower(text: str) -> str:
    """Return the text in lower case, character by character, so that offsets stay: that of İ would
    be two."""
    if len(text.lower()) == len(text):
        return text.lower()
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def touched_words(
    spoken: Sequence[tuple[int, int]], first: int, last: int
) -> tuple[int, int] | None:
    """Return the first and last of the words at `places` that have a character of [first, last);
    None where none has."""
    inside = [i for i, (start, end) in enumerate(spoken) if start < last and end > first]
    return (inside[0], inside[-1]) if inside else None


def add_times(answers: Sequence[Answer], passage: Passage) -> tuple[Answer, ...]:
    """Give each answer the time from its first to its last word where that is known."""
    spoken = places(passage.written, passage.words) or ()
    timed = []
    for a in answers:
        span = None
        if a.char_start is not None:
            span = touched_words(spoken, a.char_start, a.char_start + len(a.text))
        if span:
            first, last = passage.words[span[0]], passage.words[span[1]]
            a = replace(a, start=first.start, end=last.end)
        timed.append(a)
    return tuple(timed)
