"""Prepare SQuAD or DRCD JSON, with audio beside it or none: `squad` (English) and `drcd`
(Mandarin). Layouts: data/squad/README.md.

The family: SQuAD 1.1 and 2.0 (arXiv 1606.05250, 1806.03822), DRCD (arXiv 1806.00920) and corpora
with their schema. `read_squad` reads a file as it stands; `make_records` makes passages and
questions of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from speechssl.data.files import audio_files, enter, group_segments, load_json
from speechssl.data.options import Drcd, Squad
from speechssl.data.prepare import (
    BY_TEXT,
    EMPTY,
    ITS_PASSAGE,
    UNTIMED,
    PrepareReport,
    SplitRecords,
    Take,
    attach_takes,
    make_take,
    prepare_corpus,
    split_files,
    stamp_files,
)
from speechssl.data.records import Answer, Passage, Question, Span
from speechssl.errors import InputError
from speechssl.schema import convert
from speechssl.text import language_of


@dataclass(frozen=True)
class SquadAnswer:
    """An annotation of a file."""

    text: str
    answer_start: float | None = None

    @property
    def offset(self) -> int | None:
        """The offset in the context, None where it is no count: -1 is some files' "unknown"."""
        start = self.answer_start
        return int(start) if start is not None and start >= 0 else None


@dataclass(frozen=True)
class SquadQa:
    """A question of a file. transcript: what a recogniser made of it, where that stands beside the
    text."""

    question: str
    id: str = ""
    answers: tuple[SquadAnswer, ...] = ()
    is_impossible: bool | Literal["True", "true", "False", "false"] | None = None
    transcript: str = ""

    @property
    def impossible(self) -> bool:
        return str(self.is_impossible).lower() == "true"


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of a file. article, number: its place, counted from 0."""

    context: str
    qas: tuple[SquadQa, ...] = ()
    id: str = ""
    title: str = ""
    article: int = 0
    number: int = 0


@dataclass(frozen=True)
class Article:
    """An article of a file."""

    paragraphs: tuple[Paragraph, ...]
    title: str = ""


@dataclass(frozen=True)
class SquadFile:
    """A file of the family. licence: of somebody's own."""

    data: tuple[Article, ...]
    licence: str = ""


def load_squad(path: Path) -> SquadFile:
    """Load a file. Raises InputError (one sentence that names file and field) for one that cannot
    be read, is not whole JSON, or is of another schema."""
    return convert(load_json(path), SquadFile, path, "give SQuAD or DRCD JSON")


def read_squad(path: Path) -> list[Paragraph]:
    """Read every paragraph of a file in its order. Raises InputError as `load_squad` does."""
    paragraphs = []
    for i, article in enumerate(load_squad(path).data):
        for j, paragraph in enumerate(article.paragraphs):
            paragraphs.append(replace(paragraph, title=article.title, article=i, number=j))
    return paragraphs


@dataclass(frozen=True)
class Style:
    """A style says how to take the texts of a file."""

    language: str = "en"
    transcribed_passages: bool = False  # contexts are what a recogniser made of speech
    transcribed_questions: bool = False
    offsets: bool = True  # False: those of another text, of no use here


@dataclass(frozen=True)
class Originals:
    """The texts that were read aloud: paragraphs by title and place, and by the ids of their
    questions; questions by id."""

    places: Mapping[tuple[str, int], Paragraph] = field(default_factory=dict)
    paragraphs: Mapping[str, Paragraph] = field(default_factory=dict)
    questions: Mapping[str, SquadQa] = field(default_factory=dict)

    def find(self, paragraph: Paragraph) -> Paragraph | None:
        """Find the original of a paragraph, through the ids of its questions, or its place in the
        article."""
        for qa in paragraph.qas:
            if qa.id in self.paragraphs:
                return self.paragraphs[qa.id]
        return self.places.get((paragraph.title, paragraph.number))


def collect_originals(
    paragraphs: Iterable[Paragraph], questions: Iterable[Paragraph] = ()
) -> Originals:
    """Collect the originals of paragraphs. questions: paragraphs of which the questions alone are
    originals."""
    paragraphs = list(paragraphs)
    return Originals(
        {(p.title, p.number): p for p in paragraphs if p.title},
        {qa.id: p for p in paragraphs for qa in p.qas if qa.id},
        {qa.id: qa for p in (*questions, *paragraphs) for qa in p.qas if qa.question.strip()},
    )


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
    none without being marked impossible, and repetitions. A question of which a recogniser made
    nothing is kept: it was asked, and nobody can answer it. originals: their texts become `text`,
    and offsets then are those in them.
    """
    report.count(split, "passages", len(paragraphs))
    report.count(split, "questions", sum(len(p.qas) for p in paragraphs))
    asked = {i: len(p.qas) for i, p in enumerate(paragraphs)}
    originals = originals or Originals()
    passages: dict[str, Passage] = {}
    questions: dict[str, Question] = {}
    sources: dict[str, Paragraph] = {}
    for paragraph in [paragraphs[i] for i in report.slice(split, range(len(paragraphs)), asked)]:
        name = paragraph.id or f"{paragraph.article}_{paragraph.number}"
        name = report.unique_id(split, name, passages)
        passage = _make_passage(name, paragraph, style, originals.find(paragraph))
        if passage.written.strip() or style.transcribed_passages:
            passages[name], sources[name] = passage, paragraph
        else:
            report.set_aside(split, "passages", name, "empty passage")
        for number, qa in enumerate(paragraph.qas, 1):
            name = qa.id or f"{passage.id}-{number}"
            if passage.id not in passages:
                report.set_aside(split, "questions", name, ITS_PASSAGE)
                continue
            question = _make_question(name, qa, passage, style, originals)
            reason = _why_unusable(question, qa, style)
            if not reason and question == questions.get(name):
                reason = "the same question, word for word, with the same id"
            if reason:
                report.set_aside(split, "questions", name, reason)
                continue
            name = report.unique_id(split, name, questions)
            questions[name] = replace(question, id=name)
            answers = () if qa.impossible else qa.answers
            lost = sum(answer.char_start is None for answer in question.answers)
            for done, number_of in ((EMPTY, len(answers) - len(question.answers)), (BY_TEXT, lost)):
                if number_of:
                    report.remark(split, *done, number=number_of)
    return SplitRecords(tuple(passages.values()), tuple(questions.values())), sources


def _make_passage(
    name: str, paragraph: Paragraph, style: Style, original: Paragraph | None
) -> Passage:
    text, transcript = paragraph.context, ""
    if style.transcribed_passages:
        text, transcript = "", paragraph.context
    if original:
        text = original.context
    return Passage(name, text=text, language=style.language, transcript=transcript)


def _make_question(
    name: str, qa: SquadQa, passage: Passage, style: Style, originals: Originals
) -> Question:
    """Make a question with its answers, those that are not empty, and offsets that hold them."""
    text, transcript = qa.question, qa.transcript
    if style.transcribed_questions:
        text, transcript = "", qa.question
    original = originals.questions.get(qa.id)
    golds = () if qa.impossible else qa.answers
    starts = [(gold.text, gold.offset if style.offsets else None) for gold in golds]
    if style.transcribed_passages and passage.text:
        in_original = {gold.text: gold.offset for gold in original.answers} if original else {}
        starts = [(gold.text, in_original.get(gold.text)) for gold in golds]
    answers = []
    for words, start in starts:
        fits = start is not None and passage.written.startswith(words, start)
        if words.strip():
            answers.append(Answer(words, char_start=start if fits else None))
    return Question(
        name,
        passage.id,
        text=original.question if original else text,
        language=style.language,
        answers=tuple(answers),
        transcript=transcript,
    )


def _why_unusable(question: Question, qa: SquadQa, style: Style) -> str:
    """Say why a question cannot be used; "" where it can."""
    if not question.written.strip() and not style.transcribed_questions:
        return "empty question"
    if question.answers or qa.impossible:
        return ""
    return "every answer is empty" if qa.answers else "no answer, and not marked impossible"


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
SPLITS = {"train": "train", "dev": "dev|valid", "test": "test"}
FAMILY = re.compile(rb'"(data|paragraphs)"\s*:\s*\[')  # in the beginning of a file
ENOUGH = 200  # paragraphs by which the language of a file is seen


def prepare_squad(o: Squad, corpus: Literal["squad", "drcd"] = "squad") -> dict[str, Any]:
    """Write `o.out` and return its data report. corpus: what the report and the card call it.

    A file that is none of the published ones may state its `licence` beside `data`; the card then
    has it. Raises InputError for a source without such a file, a damaged file, a language that is
    not its own, or word times that are none.
    """
    source, language = o.source.resolve(), language_of(o.language)
    files = split_files(source, ".json", partial(split_of, source), LAYOUT)
    sounds = {split: _find_recordings(source, split) for split in files if o.audio}
    published: dict[str, dict[str, int]] = {}
    for path in files.values():
        if path.name in PUBLISHED:
            split, passages, questions = PUBLISHED[path.name]
            published[split] = {"passages": passages, "questions": questions}
    settings: dict[str, Any] = {"files": stamp_files(files), "language": language}
    if any(sounds.values()):
        settings["recordings"] = {split: len(found) for split, found in sounds.items()}
    about = ABOUT[corpus]
    if not published:  # somebody's own, who may state its licence
        about = {"title": f"JSON in the layout of {about['title'].split()[0]}"}
        licences = {load_squad(path).licence for path in files.values()} - {""}
        if licences:
            about["licence"] = ", ".join(sorted(licences))
    names = {split: path.name for split, path in files.items()}

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        splits: dict[str, SplitRecords] = {}
        for split, path in files.items():
            paragraphs = read_squad(path)
            _check_language(path, paragraphs, language)
            records, _ = make_records(split, paragraphs, Style(language), report)
            found = sounds.get(split, {})
            takes = _take_passages(records, found)
            if takes:
                folder = _audio_folder(source, split)
                records = _add_words(split, records, takes, folder, report)
            questions = {q.id: Take((found[q.id],)) for q in records.questions if q.id in found}
            splits[split] = attach_takes(o, split, records, report, takes, questions)
        return splits

    card = {**about, "language": language, "files": names}
    return prepare_corpus(corpus, o, settings, read, published, card)


def _audio_folder(source: Path, split: str) -> Path:
    """Return the folder of a split's recordings: one for all splits where they have none."""
    folder = source / "audio" / split
    return folder if folder.is_dir() else source / "audio"


def _find_recordings(source: Path, split: str) -> dict[str, Path]:
    """Find the recordings of a split: name without suffix -> file."""
    sounds: dict[str, Path] = {}
    for path in audio_files(_audio_folder(source, split)):
        enter(sounds, path.stem, path)
    return sounds


def prepare_drcd(o: Drcd) -> dict[str, Any]:
    """Write `o.out` as `prepare_squad` does, and return its data report."""
    return prepare_squad(o, "drcd")


def split_of(source: Path, path: Path) -> str:
    """Guess train, dev or test by the name of a file, or else return its name; "" for one that lies
    deeper than the source, or begins as no file of the family does."""
    if path != source:
        with path.open("rb") as file:
            begin = file.read(1 << 16)
        if path.parent != source or not FAMILY.search(begin):
            return ""
    for split, pattern in SPLITS.items():
        if re.search(pattern, path.stem.lower()):
            return split
    return re.sub(r"[^\w.-]+", "-", path.stem)


def _check_language(path: Path, paragraphs: Sequence[Paragraph], language: str) -> None:
    """Raise InputError for Chinese that would be taken for another language, or the reverse: its
    rules would be wrong."""
    paragraphs = paragraphs[:ENOUGH]
    text = " ".join(
        [*(p.context for p in paragraphs), *(qa.question for p in paragraphs for qa in p.qas)]
    )
    chinese = len(re.findall(r"[\u3400-\u9fff]", text))
    letters = sum(map(str.isalpha, text))
    if language != "zh" and 2 * chinese > letters:
        raise InputError(f"{path} is mostly in Chinese characters; give --language zh")
    if language == "zh" and 10 * chinese < letters:
        raise InputError(f"{path} has hardly any Chinese characters; give --language en")


def _take_passages(records: SplitRecords, sounds: Mapping[str, Path]) -> dict[str, Take]:
    """Find the recordings of passages: the whole one, or else its segments, from 0 where there is
    one of that number, else from 1."""
    segments = group_segments(sounds)
    takes = {}
    for passage in records.passages:
        names = segments.get(passage.id, {})
        if passage.id in sounds:
            takes[passage.id] = Take((sounds[passage.id],))
        elif names:
            parts = {number: sounds[name] for number, name in names.items()}
            takes[passage.id] = make_take(parts, 0 if 0 in parts else 1)
    return takes


# ---- times of words, and of the answers that lie in them


def _add_words(
    split: str,
    records: SplitRecords,
    takes: Mapping[str, Take],
    folder: Path,
    report: PrepareReport,
) -> SplitRecords:
    """Add the words of the passages that have them, and times of the answers that lie in such
    words."""
    passages: dict[str, Passage] = {}
    for p in records.passages:
        path = folder / f"{p.id}.words.json"
        passages[p.id] = p
        if path.is_file():
            words = convert(load_json(path), tuple[Span, ...], path, 'write [["word", 0.1, 0.4]]')
            passages[p.id] = replace(p, words=words)
    questions: list[Question] = []
    untimed = 0  # answers in passages that have a whole recording
    for q in records.questions:
        answers = add_times(q.answers, passages[q.passage])
        questions.append(replace(q, answers=answers))
        if q.passage in takes and not takes[q.passage].missing:
            untimed += sum(answer.start is None for answer in answers)
    if untimed:
        report.remark(split, "answers in recordings", UNTIMED, untimed)
    return SplitRecords(tuple(passages.values()), questions)


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
