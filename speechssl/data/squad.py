"""Any SQuAD or DRCD JSON, with audio beside it or none: `squad` (English) and `drcd` (Mandarin).

  SOURCE/*.json                    train, dev or test by name (else the name is the split); one file will do as well
  SOURCE/audio/[SPLIT/]NAME.wav    a passage or a question, NAME its id; a passage without an id is ARTICLE_PARAGRAPH, from 0
  SOURCE/audio/[SPLIT/]NAME_3.wav  ... or its segments, numbered from 0 or 1
  SOURCE/audio/[SPLIT/]NAME.words.json  optional, for a passage: [["word", start, end], ...], seconds in its (joined) recording

WAV, FLAC, MP3 or OGG. With the times of a passage's words its answers get times, through their offsets.

The family: SQuAD 1.1 and 2.0 (arXiv 1606.05250, 1806.03822), DRCD (arXiv 1806.00920) and corpora with their schema. DRCD adds ids
to articles, paragraphs and answers; SQuAD 2.0 adds `is_impossible` and `plausible_answers`; answers may also be one dict of lists,
as in Hugging Face's tables. Titles, ids and `qas` may be missing. `read_squad` reads a file as it stands; `records_of` makes
passages and questions of it, with everything that is odd about them in the report.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from speechssl.data.join import Take, Takes, audio_files, take_of
from speechssl.data.prepare import Job, PrepareReport, SplitRecords, Wanted, given, nothing_found, prepared
from speechssl.data.records import Answer, Passage, Question
from speechssl.data.word_times import read_words, with_times
from speechssl.errors import InputError
from speechssl.text import language_of

SHAPE = '{"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text", "answer_start"}]}]}]}]}'


@dataclass(frozen=True)
class Gold:
    """One annotation of an answer. start: characters from the beginning of the context, None without a usable one."""

    text: str
    start: int | None


@dataclass(frozen=True)
class Asked:
    """A question of a file."""

    id: str  # "" where it has none
    text: str
    golds: tuple[Gold, ...]
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
    asked: tuple[Asked, ...]

    @property
    def place(self) -> str:
        """A name for a paragraph without an id, and that of its recordings in Spoken-SQuAD."""
        return f"{self.article}_{self.number}"


def read_squad(path: Path) -> list[Paragraph]:
    """Every paragraph of a file in its order.

    Raises InputError (one sentence that names the file) for one that cannot be read, is not whole JSON, or is of another schema.
    """
    articles = _list(_load(path), "data", path, "it")
    return [paragraph for number, article in enumerate(articles) for paragraph in _paragraphs(number, article, path)]


def is_squad(path: Path) -> bool:
    """Whether a JSON file begins as one of the family does; a file that is not whole JSON is for `read_squad` to refuse."""
    try:
        return isinstance(_list(_load(path), "data", path, "it"), list)
    except InputError as error:
        return isinstance(error.__cause__, ValueError | RecursionError)


def read_golds(answers: Any) -> tuple[Gold, ...]:
    """A list of dicts, a dict of lists, or one dict. Raises TypeError for anything else."""
    if answers is None:
        return ()
    if isinstance(answers, dict):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if not isinstance(texts, list):
            return read_golds([answers]) if texts is not None else ()
        starts = starts if isinstance(starts, list) else []
        answers = [{"text": t, "answer_start": s} for t, s in zip(texts, starts + [None] * len(texts), strict=False)]
    if not isinstance(answers, list) or not all(isinstance(a, dict) for a in answers):
        raise TypeError("its answers are not a list of answers")
    return tuple(Gold(as_text(a.get("text")), _offset(a.get("answer_start"))) for a in answers)


def as_text(value: Any) -> str:
    """Text that can be written: a number as its digits, nothing as "", and half a surrogate pair as U+FFFD (offsets stay)."""
    text = "" if value is None else str(value)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}); check the path") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not whole JSON ({error}); copy or download it again") from error


def _paragraphs(number: int, article: Any, path: Path) -> Iterator[Paragraph]:
    title = as_text(article.get("title")) if isinstance(article, dict) else ""
    for i, paragraph in enumerate(_list(article, "paragraphs", path, f"data[{number}]")):
        place = f"data[{number}].paragraphs[{i}]"
        if not isinstance(paragraph, dict) or not isinstance(paragraph.get("context"), str):
            raise _wrong_schema(path, f"{place} has no text called context")
        asked = tuple(_asked(q, path, f"{place}.qas[{j}]") for j, q in enumerate(_questions(paragraph, path, place)))
        yield Paragraph(number, i, as_text(paragraph.get("id")), title, as_text(paragraph["context"]), asked)


def _questions(paragraph: dict[str, Any], path: Path, place: str) -> Sequence[Any]:
    return _list(paragraph, "qas", path, place) if paragraph.get("qas") is not None else ()


def _asked(question: Any, path: Path, place: str) -> Asked:
    if not isinstance(question, dict) or "question" not in question:
        raise _wrong_schema(path, f"{place} has no question")
    try:
        golds = read_golds(question.get("answers"))
    except TypeError as error:
        raise _wrong_schema(path, f"{place}: {error}") from error
    impossible = question.get("is_impossible")
    stated = bool(impossible) if impossible is not None else None
    return Asked(as_text(question.get("id")), as_text(question["question"]), golds, stated)


def _list(value: Any, name: str, path: Path, place: str) -> list[Any]:
    if not isinstance(value, dict) or not isinstance(value.get(name), list):
        raise _wrong_schema(path, f"{place} has no list called {name}")
    found: list[Any] = value[name]
    return found


def _wrong_schema(path: Path, why: str) -> InputError:
    return InputError(f"{path} is not SQuAD or DRCD JSON ({why}); expected {SHAPE}")


def _offset(value: Any) -> int | None:
    """Characters; None for what is no count of them, such as -1, which some files write for "unknown"."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number >= 0 and number.is_integer() else None


NO_TRANSCRIPT = "kept, though nothing can be made of it"
BY_TEXT = "kept without offset, scored by text only"


@dataclass(frozen=True)
class Style:
    """How to take the texts of a file."""

    language: str = "en"
    transcribed_passages: bool = False  # contexts are what a recogniser made of speech
    transcribed_questions: bool = False
    offsets: bool = True  # False: those of another text, of no use here


@dataclass(frozen=True)
class Originals:
    """The texts that were read aloud, by the ids of their questions, of their paragraphs, and by title and place.

    wording: id of a question -> its text; also where nothing but that is known.
    """

    asked: Mapping[str, tuple[Paragraph, Asked]] = field(default_factory=dict)
    paragraphs: Mapping[str, Paragraph] = field(default_factory=dict)
    places: Mapping[tuple[str, int], Paragraph] = field(default_factory=dict)
    wording: Mapping[str, str] = field(default_factory=dict)

    def of(self, paragraph: Paragraph) -> Paragraph | None:
        """The original of a paragraph, through its own id, those of its questions, or its place in the article."""
        by_id = self.paragraphs.get(paragraph.id) if paragraph.id else None
        by_question = (self.asked[q.id][0] for q in paragraph.asked if q.id in self.asked)
        return by_id or next(by_question, None) or self.places.get((paragraph.title, paragraph.number))


def originals(paragraphs: Iterable[Paragraph], wording: Mapping[str, str] | None = None) -> Originals:
    """wording: texts of further questions by id."""
    paragraphs = list(paragraphs)
    return Originals(
        {q.id: (p, q) for p in paragraphs for q in p.asked if q.id},
        {p.id: p for p in paragraphs if p.id},
        {(p.title, p.number): p for p in paragraphs if p.title},
        {**(wording or {}), **worded(paragraphs)},
    )


def worded(paragraphs: Iterable[Paragraph]) -> dict[str, str]:
    """Id of a question -> its text."""
    return {q.id: q.text for p in paragraphs for q in p.asked if q.id and q.text.strip()}


def records_of(
    split: str, paragraphs: Sequence[Paragraph], style: Style, report: PrepareReport, originals: Originals | None = None
) -> tuple[SplitRecords, dict[str, Paragraph]]:
    """The records of a split, and by the id of its passage the paragraph that each was made from.

    Set aside are empty passages and questions, questions whose every answer is empty or that have none without being marked
    impossible, and repetitions; everything else is kept and what is odd about it remarked. What a recogniser made nothing of is
    kept: it was asked, and nobody can answer it.
    Of a slice (`PrepareReport.first`) nothing is made of the paragraphs beyond it.
    originals: their texts become `text`, and offsets then are those in them.
    """
    report.count(split, "passages", len(paragraphs))
    report.count(split, "questions", sum(len(p.asked) for p in paragraphs))
    wanted = report.slice(split, range(len(paragraphs)), {i: len(p.asked) for i, p in enumerate(paragraphs)})
    paragraphs = [paragraphs[i] for i in wanted]
    made = _Maker(split, style, report, originals or Originals())
    for paragraph in paragraphs:
        made.take(paragraph)
    empty = sum(not p.asked for p in paragraphs)
    made.remark("passages without questions", "kept", empty)
    return SplitRecords(tuple(made.passages.values()), tuple(made.questions.values())), made.sources


@dataclass
class _Maker:
    split: str
    style: Style
    report: PrepareReport
    originals: Originals
    passages: dict[str, Passage] = field(default_factory=dict)
    questions: dict[str, Question] = field(default_factory=dict)
    sources: dict[str, Paragraph] = field(default_factory=dict)
    names: Counter[str] = field(default_factory=Counter)

    def take(self, paragraph: Paragraph) -> None:
        name = self.unique(paragraph.id or paragraph.place, self.passages, "passages")
        passage = self.passage(name, paragraph)
        if not passage.written.strip() and not self.style.transcribed_passages:
            self.report.set_aside(self.split, "passages", name, "empty passage")
        else:
            self.passages[name], self.sources[name] = passage, paragraph
        if not paragraph.context.strip() and self.style.transcribed_passages:
            self.remark("passages with an empty transcript", NO_TRANSCRIPT)
        for number, asked in enumerate(paragraph.asked, 1):
            self.ask(asked, number, passage)

    def passage(self, name: str, paragraph: Paragraph) -> Passage:
        source = self.originals.of(paragraph)
        if self.originals.asked and source is None:
            self.remark("passages without original", "kept with their transcript alone")
        transcribed = self.style.transcribed_passages
        text = source.context if source else "" if transcribed else paragraph.context
        return Passage(name, "", 0.0, text, "", self.style.language, transcript=paragraph.context if transcribed else "")

    def ask(self, asked: Asked, number: int, passage: Passage) -> None:
        if not asked.id:
            self.remark("questions without an id", "named after their passage")
        name = asked.id or f"{passage.id}-{number}"
        if passage.id not in self.passages:
            self.report.set_aside(self.split, "questions", name, "its passage is set aside")
            return
        question, reason = self.question(asked, passage), ""
        if not question.written.strip() and not self.style.transcribed_questions:
            reason = "empty question"
        elif not question.answers and asked.impossible is not True:
            reason = "every answer is empty" if asked.golds else "no answer, and not marked impossible"
        elif name in self.questions and replace(question, id=name) == self.questions[name]:
            reason = "the same question, word for word, with the same id"
        if reason:
            self.report.set_aside(self.split, "questions", name, reason)
        else:
            name = self.unique(name, self.questions, "questions")
            self.questions[name] = replace(question, id=name)

    def question(self, asked: Asked, passage: Passage) -> Question:
        """Without an id yet."""
        transcript = asked.text if self.style.transcribed_questions else asked.transcript
        text = self.originals.wording.get(asked.id, "" if self.style.transcribed_questions else asked.text)
        if self.style.transcribed_questions and not transcript.strip():
            self.remark("questions with an empty transcript", NO_TRANSCRIPT)
        answers = () if asked.impossible else tuple(self.answers(asked, passage))
        if asked.impossible and asked.golds:
            self.remark("questions marked impossible that have answers", "taken as unanswerable")
        return Question("", passage.id, "", 0.0, text, "", self.style.language, answers, transcript=transcript)

    def answers(self, asked: Asked, passage: Passage) -> Iterable[Answer]:
        for gold in asked.golds:
            if not gold.text.strip():
                self.remark("empty answers", "left out of their question")
                continue
            start = self.offset(asked, gold.text, gold.start, passage)
            yield Answer(gold.text, char_start=start)

    def offset(self, asked: Asked, text: str, start: int | None, passage: Passage) -> int | None:
        """In what is written of the passage, or None, which is remarked."""
        if self.style.transcribed_passages and passage.text:
            read = self.originals.asked.get(asked.id)
            starts = [g.start for g in read[1].golds if g.text == text] if read else []
            start = next((s for s in starts if s is not None), None)
            what, done = "answers that are not word for word in the original", BY_TEXT
        elif not self.style.offsets:
            start = None
            what, done = "answers with offsets of another text", "offsets ignored, scored by text only"
        else:
            what, done = "answers whose offset does not match", BY_TEXT
        if start is not None and passage.written[start : start + len(text)] == text:
            return start
        self.remark(what, done)
        return None

    def unique(self, name: str, known: Mapping[str, object], kind: str) -> str:
        """The name, with a number behind it where another has it."""
        if name not in known:
            return name
        self.remark(f"ids of {kind} that occur twice", "the later one has a number behind it")
        while True:
            self.names[name] += 1
            if (numbered := f"{name}#{self.names[name] + 1}") not in known:
                return numbered

    def remark(self, what: str, done: str, number: int = 1) -> None:
        if number:
            self.report.remark(self.split, what, done, number)


LAYOUT = "give a SQuAD or DRCD JSON file, or the folder that holds train, dev or test JSON files and, if there is audio, audio/"
ABOUT = {
    "squad": {
        "title": "SQuAD JSON",
        "language": "en",
        "source": "rajpurkar.github.io/SQuAD-explorer, arXiv 1606.05250, 1806.03822",
    },
    "drcd": {"title": "DRCD JSON", "language": "zh", "source": "github.com/DRCKnowledgeTeam/DRCD, arXiv 1806.00920"},
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
SPLITS = {"train": re.compile(r"train"), "dev": re.compile(r"dev|valid"), "test": re.compile(r"test")}
SEGMENT = re.compile(r"(.+)_(\d+)")
ENOUGH = 200  # paragraphs by which the language of a file is seen
CHINESE, LETTER = re.compile(r"[\u3400-\u9fff]"), re.compile(r"[^\W\d_]")


def prepare_squad(source: Path | str, out: Path | str, wanted: Wanted = Wanted(), language: str = "en") -> dict[str, Any]:
    """Write `out` and return its data report. language: of texts and speech.

    Raises InputError for a source without such a file, a damaged file, a language that is not its own, or word times that are none.
    """
    return _prepare("squad", source, out, wanted, language)


def prepare_drcd(source: Path | str, out: Path | str, wanted: Wanted = Wanted(), language: str = "zh") -> dict[str, Any]:
    """`prepare_squad` for Mandarin."""
    return _prepare("drcd", source, out, wanted, language)


def _prepare(corpus: str, source: Path | str, out: Path | str, wanted: Wanted, language: str) -> dict[str, Any]:
    found = given(Path(source), LAYOUT)
    language = language_of(language)  # refuses one without rules
    files = _files(found)
    if not files:
        raise nothing_found(found, LAYOUT)
    sounds = {split: _recordings(found, split) for split in files} if wanted.audio and found.is_dir() else {}
    recorded = {"recordings": {split: len(s) for split, s in sounds.items()}} if any(sounds.values()) else {}
    about = ABOUT[corpus] | {"language": language}
    options = {"language": language, **recorded}
    job = Job(corpus, found, Path(out), files, _published(files), about, options, wanted)

    def read(report: PrepareReport) -> Mapping[str, tuple[SplitRecords, Takes]]:
        return {split: _read(split, path, found, language, sounds.get(split, {}), report) for split, path in files.items()}

    return prepared(job, read)


def _files(source: Path) -> dict[str, Path]:
    """Split -> its file. Raises InputError where two files claim to be one split."""
    found: dict[str, Path] = {}
    for path in sorted(source.glob("*.json")) if source.is_dir() else [source]:
        if path.name.startswith(".") or (source.is_dir() and not is_squad(path)):
            continue
        split = split_of(path)
        if split in found:
            raise InputError(f"both {found[split]} and {path} look like {split}; give one of them, or rename one")
        found[split] = path
    return found


def split_of(path: Path) -> str:
    """train, dev or test by the name of a file, or else its name."""
    named = (split for split, pattern in SPLITS.items() if pattern.search(path.stem.lower()))
    return next(named, re.sub(r"[^\w.-]+", "-", path.stem))


def _published(files: Mapping[str, Path]) -> dict[str, dict[str, int]]:
    known = [PUBLISHED[path.name] for path in files.values() if path.name in PUBLISHED]
    return {split: {"passages": passages, "questions": questions} for split, passages, questions in known}


def _read(
    split: str, path: Path, source: Path, language: str, sounds: Mapping[str, Path], report: PrepareReport
) -> tuple[SplitRecords, Takes]:
    paragraphs = read_squad(path)
    _check_language(path, paragraphs, language)
    records, _ = records_of(split, paragraphs, Style(language), report)
    takes = _takes(records, sounds)
    folder = _audio_folder(source, split)
    return (_timed(split, records, takes, folder, report) if takes.passages else records), takes


def _check_language(path: Path, paragraphs: Sequence[Paragraph], language: str) -> None:
    """Raises InputError for Chinese that would be taken for another language, or the reverse: its rules would be wrong."""
    texts = [text for p in paragraphs[:ENOUGH] for text in (p.context, *(q.text for q in p.asked))]
    chinese, letters = (sum(len(pattern.findall(text)) for text in texts) for pattern in (CHINESE, LETTER))
    if language != "zh" and 2 * chinese > letters:
        raise InputError(
            f"{path} is mostly in Chinese characters, which the rules of {language!r} do not fit; use `speechssl prepare drcd`, "
            "or say --language zh"
        )
    if language == "zh" and 10 * chinese < letters:
        raise InputError(
            f"{path} has hardly a Chinese character, which the rules of 'zh' are for; use `speechssl prepare squad`, "
            "or say --language en"
        )


def _audio_folder(source: Path, split: str) -> Path:
    audio = source / "audio"
    return audio / split if (audio / split).is_dir() else audio


def _recordings(source: Path, split: str) -> dict[str, Path]:
    """Name of a file without its suffix -> the file."""
    folder = _audio_folder(source, split)
    return {path.stem: path for path in audio_files(folder)} if folder.is_dir() else {}


def _takes(records: SplitRecords, sounds: Mapping[str, Path]) -> Takes:
    segments: dict[str, dict[int, Path]] = {}
    for name, path in sounds.items():
        if parts := SEGMENT.fullmatch(name):
            segments.setdefault(parts[1], {})[int(parts[2])] = path
    passages = {p.id: take for p in records.passages if (take := _passage_take(p, sounds, segments))}
    questions = {q.id: Take((sounds[q.id],)) for q in records.questions if q.id in sounds}
    used = {path for take in (*passages.values(), *questions.values()) for path in take.paths}
    return Takes(passages, questions, sum(path not in used for path in sounds.values()))


def _passage_take(passage: Passage, sounds: Mapping[str, Path], segments: Mapping[str, Mapping[int, Path]]) -> Take | None:
    """The whole recording, or else the segments: from 0 where there is one of that number, else from 1."""
    if passage.id in sounds:
        return Take((sounds[passage.id],))
    if found := segments.get(passage.id):
        return take_of(found, 0 if 0 in found else 1)
    return None


def _timed(split: str, records: SplitRecords, takes: Takes, folder: Path, report: PrepareReport) -> SplitRecords:
    """With the words of the passages that have them, and times of the answers that lie in such words."""
    words = {p.id: read_words(path) for p in records.passages if (path := folder / f"{p.id}.words.json").is_file()}
    passages = {p.id: replace(p, words=words.get(p.id, ())) for p in records.passages}
    questions = [_question(q, passages[q.passage]) for q in records.questions]
    whole = [q for q in questions if (take := takes.passages.get(q.passage)) and not take.missing]
    if number := sum(answer.start is None for question in whole for answer in question.answers):
        report.remark(split, "answers without times", "scored by text only", number)
    return SplitRecords(tuple(passages.values()), questions)


def _question(question: Question, passage: Passage) -> Question:
    return replace(question, answers=with_times(question.answers, passage)) if passage.words else question
