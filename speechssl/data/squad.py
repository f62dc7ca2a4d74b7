"""Prepare SQuAD or DRCD JSON, with or without audio beside it: `squad` (English) and `drcd`
(Mandarin). Layouts: data/squad/README.md.

SQuAD 1.1 and 2.0 (arXiv 1606.05250, 1806.03822), DRCD (arXiv 1806.00920) and other corpora share
the schema of their files. `read_squad` reads a file as it stands; `make_records` makes passages and
questions of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from speechssl.data.files import add_recording, group_segments, list_audio_files, load_json
from speechssl.data.options import Drcd, Squad
from speechssl.data.prepare import (
    BY_TEXT,
    EMPTY,
    IMPOSSIBLE,
    ITS_PASSAGE,
    PrepareReport,
    SplitRecords,
    Take,
    attach_takes,
    find_split_files,
    make_take,
    prepare_corpus,
    stamp_files,
)
from speechssl.data.records import Answer, Passage, Question, Span
from speechssl.errors import InputError
from speechssl.schema import convert
from speechssl.text import find_language

# `is_impossible` as JSON, Python, people, spreadsheets and pandas write it, in lower case
FLAGS = dict.fromkeys(("true", "yes", "1", "1.0"), True)
FLAGS |= dict.fromkeys(("false", "no", "0", "0.0", "none", "null", "nan", ""), False)


@dataclass(frozen=True)
class SquadAnswer:
    """An answer is one annotation."""

    text: str
    answer_start: float | None = None

    @property
    def offset(self) -> int | None:
        """Return the offset in the context; None where it is unknown, which some files write as
        -1."""
        start = self.answer_start
        return int(start) if start is not None and start >= 0 else None


@dataclass(frozen=True)
class SquadQa:
    """A question has its answers with it."""

    question: str
    id: str = ""
    answers: tuple[SquadAnswer, ...] = ()
    is_impossible: bool | float | str | None = None  # one of FLAGS
    transcript: str = ""  # a recogniser's, in corpora that have it beside the text of the question

    @property
    def impossible(self) -> bool:
        """Return whether the context does not answer the question (SQuAD 2.0)."""
        return FLAGS[str(self.is_impossible).strip().lower()]

    def __post_init__(self) -> None:
        if str(self.is_impossible).strip().lower() not in FLAGS:
            raise ValueError(f"is_impossible is {self.is_impossible!r}; write true or false")


@dataclass(frozen=True)
class Paragraph:
    """A paragraph is a context with the questions about it."""

    context: str
    qas: tuple[SquadQa, ...] = ()
    id: str = ""
    title: str = ""  # of its article
    article: int = 0  # number of its article, from 0
    number: int = 0  # of the paragraph in its article, from 0


@dataclass(frozen=True)
class Article:
    """An article has paragraphs."""

    paragraphs: tuple[Paragraph, ...]
    title: str = ""


@dataclass(frozen=True)
class SquadFile:
    """A file has articles."""

    data: tuple[Article, ...]
    licence: str = ""  # stated by some users' own files


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
    """A style says what the texts of a file are."""

    language: str = "en"
    transcribed_passages: bool = False  # contexts are transcripts of a recogniser
    transcribed_questions: bool = False
    offsets: bool = True  # False: offsets of answers refer to another text, and are ignored


@dataclass(frozen=True)
class Originals:
    """The originals are the texts that were read aloud, of which a file has only transcripts."""

    # (title of the article, number in it) -> paragraph
    by_place: Mapping[tuple[str, int], Paragraph] = field(default_factory=dict)
    # id of a question -> its paragraph
    by_question: Mapping[str, Paragraph] = field(default_factory=dict)
    questions: Mapping[str, SquadQa] = field(default_factory=dict)  # id -> question

    def find(self, paragraph: Paragraph) -> Paragraph | None:
        """Find the original of a paragraph by the ids of its questions, or otherwise by its title
        and its number in the article."""
        for qa in paragraph.qas:
            if qa.id in self.by_question:
                return self.by_question[qa.id]
        return self.by_place.get((paragraph.title, paragraph.number))


def collect_originals(
    paragraphs: Iterable[Paragraph], with_questions: Iterable[Paragraph] = ()
) -> Originals:
    """Collect the original paragraphs and questions. with_questions: further paragraphs, of which
    only the questions are originals."""
    paragraphs = list(paragraphs)
    qas = [qa for p in (*with_questions, *paragraphs) for qa in p.qas]
    return Originals(
        by_place={(p.title, p.number): p for p in paragraphs if p.title},
        by_question={qa.id: p for p in paragraphs for qa in p.qas if qa.id},
        questions={qa.id: qa for qa in qas if qa.question.strip()},
    )


def make_records(
    split: str,
    paragraphs: Sequence[Paragraph],
    style: Style,
    report: PrepareReport,
    originals: Originals | None = None,
) -> tuple[SplitRecords, dict[str, Paragraph]]:
    """Make the records of a split. Returns them, and for every passage, by id, the paragraph that
    it was made from.

    Set aside are empty passages and questions, repeated questions, questions whose answers are all
    empty, and questions that have no answer and are not marked impossible. A question with an empty
    transcript is kept: it was asked, though its words are lost. originals: their texts become the
    `text` of the records, and offsets then refer to these.
    """
    report.count(split, "passages", len(paragraphs))
    report.count(split, "questions", sum(len(p.qas) for p in paragraphs))
    question_counts = {i: len(p.qas) for i, p in enumerate(paragraphs)}
    originals = originals or Originals()
    passages: dict[str, Passage] = {}
    questions: dict[str, Question] = {}
    sources: dict[str, Paragraph] = {}
    for index in report.slice(split, range(len(paragraphs)), question_counts):
        paragraph = paragraphs[index]
        name = paragraph.id or f"{paragraph.article}_{paragraph.number}"
        name = report.make_unique_id(split, name, passages)
        passage = _make_passage(name, paragraph, style, originals.find(paragraph))
        if passage.written.strip() or style.transcribed_passages:
            passages[name] = passage
            sources[name] = paragraph
        else:
            report.set_aside(split, "passages", name, "empty passage")
        for number, qa in enumerate(paragraph.qas, 1):
            name = qa.id or f"{passage.id}-{number}"
            if passage.id not in passages:
                report.set_aside(split, "questions", name, ITS_PASSAGE)
                continue
            question = _make_question(name, qa, passage, style, originals)
            reason = _explain_unusable(question, qa, style)
            if not reason and question == questions.get(name):
                reason = "the same question, word for word, with the same id"
            if reason:
                report.set_aside(split, "questions", name, reason)
                continue
            name = report.make_unique_id(split, name, questions)
            questions[name] = replace(question, id=name)
            left_out = 0 if qa.impossible else len(qa.answers) - len(question.answers)
            if left_out:
                report.remark(split, *EMPTY, number=left_out, name=name)
            if qa.impossible and qa.answers:
                report.remark(split, *IMPOSSIBLE, name=name)
            without_offset = sum(answer.char_start is None for answer in question.answers)
            if without_offset:
                report.remark(split, *BY_TEXT, number=without_offset, name=name)
    return SplitRecords(tuple(passages.values()), tuple(questions.values())), sources


def _make_passage(
    name: str, paragraph: Paragraph, style: Style, original: Paragraph | None
) -> Passage:
    """Make a passage, with the text of its original where there is one."""
    text, transcript = paragraph.context, ""
    if style.transcribed_passages:
        text, transcript = "", paragraph.context
    if original:
        text = original.context
    return Passage(name, text=text, language=style.language, transcript=transcript)


def _make_question(
    name: str, qa: SquadQa, passage: Passage, style: Style, originals: Originals
) -> Question:
    """Make a question with its answers that are not empty. An answer keeps its offset if the
    passage has it there."""
    text, transcript = qa.question, qa.transcript
    if style.transcribed_questions:
        text, transcript = "", qa.question
    original = originals.questions.get(qa.id)
    annotations = () if qa.impossible else qa.answers
    if style.transcribed_passages and passage.text:
        # offsets in the file are those in the transcript, and not in the original text
        offsets = {answer.text: answer.offset for answer in original.answers} if original else {}
        starts = [offsets.get(answer.text) for answer in annotations]
    elif style.offsets:
        starts = [answer.offset for answer in annotations]
    else:
        starts = [None] * len(annotations)
    answers = []
    for annotation, start in zip(annotations, starts, strict=True):
        answer = annotation.text
        fits = start is not None and passage.written.startswith(answer, start)
        if answer.strip():
            answers.append(Answer(answer, char_start=start if fits else None))
    return Question(
        name,
        passage.id,
        text=original.question if original else text,
        language=style.language,
        answers=tuple(answers),
        transcript=transcript,
    )


def _explain_unusable(question: Question, qa: SquadQa, style: Style) -> str:
    """Say why a question cannot be used; "" where it can."""
    if not question.written.strip() and not style.transcribed_questions:
        return "empty question"
    if question.answers or qa.impossible:
        return ""
    return "every answer is empty" if qa.answers else "no answer, and not marked impossible"


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
PUBLISHED = {  # name of a published file -> its split, and numbers of passages and questions
    "train-v1.1.json": ("train", 18_896, 87_599),
    "dev-v1.1.json": ("dev", 2_067, 10_570),
    "train-v2.0.json": ("train", 19_035, 130_319),
    "dev-v2.0.json": ("dev", 1_204, 11_873),
    "DRCD_training.json": ("train", 8_014, 26_936),
    "DRCD_dev.json": ("dev", 1_000, 3_524),
    "DRCD_test.json": ("test", 1_000, 3_493),
}
SPLITS = {"train": "train", "dev": "dev|valid", "test": "test"}  # split -> pattern of file names
# every file of the schema has this in its first 64 KiB
SCHEMA = re.compile(rb'"(data|paragraphs)"\s*:\s*\[')
LANGUAGE_PARAGRAPHS = 200  # the language of a file is checked by its first paragraphs


def prepare_squad(o: Squad, corpus: Literal["squad", "drcd"] = "squad") -> dict[str, Any]:
    """Write `o.out` and return its data report. corpus: its name in the report and the card.

    Files of your own may state their `licence` beside `data`, for the card. Raises InputError for a
    source without SQuAD JSON, a damaged file, texts in another language than `o.language`, or
    damaged word times.
    """
    source, language = o.source.resolve(), find_language(o.language)
    files = find_split_files(source, partial(find_split, source), corpus)
    recordings: dict[str, dict[str, Path]] = {}  # split -> name -> file
    if o.audio:
        for split in files:
            recordings[split] = _find_recordings(_find_audio_folder(source, split), files)
    published: dict[str, dict[str, int]] = {}
    for path in files.values():
        if path.name in PUBLISHED:
            split, passages, questions = PUBLISHED[path.name]
            published[split] = {"passages": passages, "questions": questions}
    settings: dict[str, Any] = {"files": stamp_files(files), "language": language}
    if any(recordings.values()):
        settings["recordings"] = {split: len(by_name) for split, by_name in recordings.items()}
    about = ABOUT[corpus]
    if not published:  # files of your own, which may state their licence
        about = {"title": f"JSON in the layout of {about['title'].split()[0]}"}
        licences = {load_squad(path).licence for path in files.values()} - {""}
        if licences:
            about["licence"] = ", ".join(sorted(licences))
    names = {split: path.name for split, path in files.items()}

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        splits: dict[str, SplitRecords] = {}
        owners: dict[Path, str] = {}  # recording -> its split
        for split, path in files.items():
            paragraphs = read_squad(path)
            _check_language(path, paragraphs, language)
            records, _ = make_records(split, paragraphs, Style(language), report)
            by_name = recordings.get(split, {})
            passage_takes = _find_passage_takes(records, by_name)
            if passage_takes:
                records = _add_words(records, _find_audio_folder(source, split))
            question_takes = {
                q.id: Take((by_name[q.id],)) for q in records.questions if q.id in by_name
            }
            for take in (*passage_takes.values(), *question_takes.values()):
                for recording in take.paths:
                    if owners.setdefault(recording, split) != split:
                        raise InputError(
                            f"{recording} has a name of {owners[recording]} and of {split}; put "
                            "the recordings of each split into a folder audio/SPLIT"
                        )
            splits[split] = attach_takes(o, split, records, report, passage_takes, question_takes)
        return splits

    card = {**about, "language": language, "files": names}
    return prepare_corpus(corpus, o, settings, read, published, card)


def _find_audio_folder(source: Path, split: str) -> Path:
    """Find the folder of the recordings of a split: audio/SPLIT where there is one, else audio."""
    folder = source / "audio"
    return folder / split if (folder / split).is_dir() else folder


def _find_recordings(folder: Path, splits: Collection[str]) -> dict[str, Path]:
    """Find the recordings in a folder, but for those in its folders of other splits: name without
    suffix -> file."""
    recordings: dict[str, Path] = {}
    for path in list_audio_files(folder):
        if path.relative_to(folder).parts[0] not in splits:
            add_recording(recordings, path.stem, path)
    return recordings


def prepare_drcd(o: Drcd) -> dict[str, Any]:
    """Write `o.out` as `prepare_squad` does, and return its data report."""
    return prepare_squad(o, "drcd")


def find_split(source: Path, path: Path) -> str:
    """Find the split of a file: train, dev or test if its name has that word, otherwise its name.
    Files in subfolders of the source, and files that do not begin like SQuAD JSON, give ""."""
    if path != source:
        with path.open("rb") as file:
            beginning = file.read(1 << 16)
        if path.parent != source or not SCHEMA.search(beginning):
            return ""
    for split, pattern in SPLITS.items():
        if re.search(pattern, path.stem.lower()):
            return split
    return re.sub(r"[^\w.-]+", "-", path.stem)


def _check_language(path: Path, paragraphs: Sequence[Paragraph], language: str) -> None:
    """Raise InputError for Chinese texts where another language was given, or other texts where
    Chinese was given: they would be split and compared by the wrong rules."""
    text = ""
    for paragraph in paragraphs[:LANGUAGE_PARAGRAPHS]:
        text += " ".join([paragraph.context, *(qa.question for qa in paragraph.qas)])
    chinese = len(re.findall(r"[\u3400-\u9fff]", text))
    letters = sum(map(str.isalpha, text))
    # in doubt the language that was given is right: Chinese texts have at least a tenth of Chinese
    # characters, and others at most half
    is_chinese = 10 * chinese >= letters if language == "zh" else 2 * chinese > letters
    if is_chinese != (language == "zh"):
        raise InputError(
            f"{path} has {chinese:,} Chinese characters among {letters:,} letters; give --language "
            f"{'zh' if is_chinese else 'en'}"
        )


def _find_passage_takes(records: SplitRecords, recordings: Mapping[str, Path]) -> dict[str, Take]:
    """Find the recordings of passages: the whole passage (ID.wav), or otherwise its segments
    (ID_0.wav, ...), which are numbered from 0 or from 1."""
    segments = group_segments(recordings)
    takes = {}
    for passage in records.passages:
        names = segments.get(passage.id, {})
        if passage.id in recordings:
            takes[passage.id] = Take((recordings[passage.id],))
        elif names:
            files = {number: recordings[name] for number, name in names.items()}
            takes[passage.id] = make_take(files, 0 if 0 in files else 1)
    return takes


# ---- times of words, and of the answers that they make up


def _add_words(records: SplitRecords, folder: Path) -> SplitRecords:
    """Add the words of passages from ID.words.json, where there is such a file, and the times of
    answers that consist of such words."""
    passages: dict[str, Passage] = {}
    for p in records.passages:
        path = folder / f"{p.id}.words.json"
        passages[p.id] = p
        if path.is_file():
            words = convert(load_json(path), tuple[Span, ...], path, 'write [["word", 0.1, 0.4]]')
            passages[p.id] = replace(p, words=words)
    questions = []
    for q in records.questions:
        questions.append(replace(q, answers=add_times(q.answers, passages[q.passage])))
    return SplitRecords(tuple(passages.values()), questions)


def find_word_places(text: str, words: Sequence[Span]) -> list[tuple[int, int]] | None:
    """Find the place of every word in the text, [first, last) in characters; None where the text
    does not consist of these words.

    Case does not matter, nor do punctuation and white space between words.
    """
    end = 0  # the end of the word before
    bounds = []
    lower = _lower(text)
    for word in words:
        lower_word = _lower(word.text.strip())
        first = lower.find(lower_word, end)
        if not lower_word or first < 0 or any(c.isalnum() for c in text[end:first]):
            return None
        end = first + len(lower_word)
        bounds.append((first, end))
    return bounds


def _lower(text: str) -> str:
    """Return the text in lower case with the same offsets: a character such as İ, which would
    become two, stays as it is."""
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def find_touched_words(
    places: Sequence[tuple[int, int]], first: int, last: int
) -> tuple[int, int] | None:
    """Return the numbers of the first and the last word with a character in [first, last); None
    where there is none. places: of the words in the text, see `find_word_places`."""
    inside = [i for i, (start, end) in enumerate(places) if start < last and end > first]
    return (inside[0], inside[-1]) if inside else None


def add_times(answers: Sequence[Answer], passage: Passage) -> tuple[Answer, ...]:
    """Give each answer with an offset the time from its first to its last word, where the times of
    the words are known."""
    places = find_word_places(passage.written, passage.words) or ()
    with_times = []
    for answer in answers:
        touched = None
        if answer.char_start is not None:
            end = answer.char_start + len(answer.text)
            touched = find_touched_words(places, answer.char_start, end)
        if touched:
            first, last = (passage.words[number] for number in touched)
            answer = replace(answer, start=first.start, end=last.end)
        with_times.append(answer)
    return tuple(with_times)
