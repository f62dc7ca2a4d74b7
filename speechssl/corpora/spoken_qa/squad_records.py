"""From paragraphs of SQuAD JSON to passages and questions, with everything that is odd about them in the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from speechssl.corpora.records import Answer, Passage, Question
from speechssl.corpora.spoken_qa.drafts import Draft
from speechssl.corpora.spoken_qa.ledger import Ledger
from speechssl.corpora.spoken_qa.squad_schema import Asked, Paragraph

MUTE = "kept, though nothing can be made of it"
BY_TEXT = "kept without offset, scored by text only"


@dataclass(frozen=True)
class Style:
    """How to take the texts of a file."""

    language: str = "en"
    heard_passages: bool = False  # contexts are what a recogniser made of speech
    heard_questions: bool = False
    offsets: bool = True  # False: those of another text, of no use here


@dataclass(frozen=True)
class Originals:
    """The texts that were read out, by the ids of their questions, of their paragraphs, and by title and place.

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


def drafted(
    split: str, paragraphs: Sequence[Paragraph], style: Style, ledger: Ledger, originals: Originals | None = None
) -> tuple[Draft, dict[str, Paragraph]]:
    """The records of a split, and by the id of its passage the paragraph that each was made from.

    Set aside are empty passages and questions, questions whose every answer is empty or that have none without being marked
    impossible, and repetitions; everything else is kept and what is odd about it remarked. What a recogniser made nothing of is
    kept: it was asked, and nobody can answer it.
    Of a slice (`Ledger.first`) nothing is made of the paragraphs beyond it.
    originals: their texts become `text`, and offsets then are those in them.
    """
    ledger.count(split, "passages", len(paragraphs))
    ledger.count(split, "questions", sum(len(p.asked) for p in paragraphs))
    wanted = ledger.slice(split, range(len(paragraphs)), {i: len(p.asked) for i, p in enumerate(paragraphs)})
    paragraphs = [paragraphs[i] for i in wanted]
    made = _Maker(split, style, ledger, originals or Originals())
    for paragraph in paragraphs:
        made.take(paragraph)
    empty = sum(not p.asked for p in paragraphs)
    made.remark("passages without questions", "kept", empty)
    return Draft(tuple(made.passages.values()), tuple(made.questions.values())), made.sources


@dataclass
class _Maker:
    split: str
    style: Style
    ledger: Ledger
    originals: Originals
    passages: dict[str, Passage] = field(default_factory=dict)
    questions: dict[str, Question] = field(default_factory=dict)
    sources: dict[str, Paragraph] = field(default_factory=dict)
    names: Counter[str] = field(default_factory=Counter)

    def take(self, paragraph: Paragraph) -> None:
        name = self.unique(paragraph.id or paragraph.place, self.passages, "passages")
        passage = self.passage(name, paragraph)
        if not passage.written.strip() and not self.style.heard_passages:
            self.ledger.set_aside(self.split, "passages", name, "empty passage")
        else:
            self.passages[name], self.sources[name] = passage, paragraph
        if not paragraph.context.strip() and self.style.heard_passages:
            self.remark("passages with an empty transcript", MUTE)
        for number, asked in enumerate(paragraph.asked, 1):
            self.ask(asked, number, passage)

    def passage(self, name: str, paragraph: Paragraph) -> Passage:
        source = self.originals.of(paragraph)
        if self.originals.asked and source is None:
            self.remark("passages without original", "kept with their transcript alone")
        heard = self.style.heard_passages
        text = source.context if source else "" if heard else paragraph.context
        return Passage(name, "", 0.0, text, "", self.style.language, transcript=paragraph.context if heard else "")

    def ask(self, asked: Asked, number: int, passage: Passage) -> None:
        if not asked.id:
            self.remark("questions without an id", "named after their passage")
        name = asked.id or f"{passage.id}-{number}"
        if passage.id not in self.passages:
            self.ledger.set_aside(self.split, "questions", name, "its passage is set aside")
            return
        question, reason = self.question(asked, passage), ""
        if not question.written.strip() and not self.style.heard_questions:
            reason = "empty question"
        elif not question.answers and asked.impossible is not True:
            reason = "every answer is empty" if asked.golds else "no answer, and not marked impossible"
        elif name in self.questions and replace(question, id=name) == self.questions[name]:
            reason = "the same question, word for word, with the same id"
        if reason:
            self.ledger.set_aside(self.split, "questions", name, reason)
        else:
            name = self.unique(name, self.questions, "questions")
            self.questions[name] = replace(question, id=name)

    def question(self, asked: Asked, passage: Passage) -> Question:
        """Without an id yet."""
        heard = asked.text if self.style.heard_questions else asked.heard
        text = self.originals.wording.get(asked.id, "" if self.style.heard_questions else asked.text)
        if self.style.heard_questions and not heard.strip():
            self.remark("questions with an empty transcript", MUTE)
        answers = () if asked.impossible else tuple(self.answers(asked, passage))
        if asked.impossible and asked.golds:
            self.remark("questions marked impossible that have answers", "taken as unanswerable")
        return Question("", passage.id, "", 0.0, text, "", self.style.language, answers, transcript=heard)

    def answers(self, asked: Asked, passage: Passage) -> Iterable[Answer]:
        for gold in asked.golds:
            if not gold.text.strip():
                self.remark("empty answers", "left out of their question")
                continue
            start = self.offset(asked, gold.text, gold.start, passage)
            yield Answer(gold.text, char_start=start)

    def offset(self, asked: Asked, text: str, start: int | None, passage: Passage) -> int | None:
        """In what is written of the passage, or None, and says why."""
        if self.style.heard_passages and passage.text:
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
            self.ledger.remark(self.split, what, done, number)
