"""Records of a spoken-QA corpus and their JSONL manifests.

A corpus is a folder: for every split `<split>/passages.jsonl` and `<split>/questions.jsonl`, one
record a line, and mostly a `card.json`. Audio paths are absolute, or relative to the manifest or
else to the corpus folder. A line may leave out what stands in `DEFAULTS`, and `seconds`, which the
recording itself says. All times are seconds from the beginning of the record's own audio; those of
an answer from the beginning of its passage's audio. Half-open intervals [start, end).

A corpus may be text only: its records then have no audio (""), no length (0 s), and its answers no
times.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from speechssl.audio import length
from speechssl.errors import InputError
from speechssl.io import check_inside, hash_files, read_json, read_lines, write_lines
from speechssl.processes import is_main
from speechssl.stats import BootstrapUnits, choose_units, unknown_voice

R = TypeVar("R", "Passage", "Question")
# stands in the title of the README of a miniature (tests/corpora), and in cards
INVENTED = "an invented miniature"
# fields that are written only where they are not empty
RARE = ("transcript", "synthetic", "option_audio")
# of fields that a line may leave out
DEFAULTS = {"audio": "", "text": "", "speaker": "", "language": "en"}
TOLERANCE = 0.05  # seconds that a stated time may lie beyond the end of the audio


@dataclass(frozen=True)
class Span:
    """A word or a phone with its time in seconds."""

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class Answer:
    """One annotation of an answer. start, end: seconds in the passage's audio, None where only the
    text is known."""

    text: str
    start: float | None = None
    end: float | None = None
    # offset in what is `written` of the passage, None where that does not hold the answer
    char_start: int | None = None


@dataclass(frozen=True)
class Passage:
    """A recording to ask about; a line of passages.jsonl."""

    id: str
    audio: str  # path below the corpus, "" where there is only text
    seconds: float
    text: str  # of what is spoken, "" where that is not known
    speaker: str
    language: str
    words: tuple[Span, ...] = ()
    phones: tuple[Span, ...] = ()
    transcript: str = ""  # what a recogniser made of it, where the corpus has that
    synthetic: bool = False  # spoken by a synthesiser when the corpus was prepared

    @property
    def written(self) -> str:
        """The text, or else the transcript: what offsets of answers refer to."""
        return self.text or self.transcript


@dataclass(frozen=True)
class Question:
    """A question about a passage; a line of questions.jsonl."""

    id: str
    passage: str  # id of the passage it is about
    audio: str
    seconds: float
    text: str
    speaker: str
    language: str
    answers: tuple[Answer, ...] = ()  # empty: the passage does not answer it
    options: tuple[str, ...] = ()  # multiple choice
    correct: tuple[int, ...] = ()  # indices of the right options, in order
    relation: str = ""
    words: tuple[Span, ...] = ()
    phones: tuple[Span, ...] = ()
    transcript: str = ""
    synthetic: bool = False
    option_audio: tuple[str, ...] = ()  # paths below the corpus, one an option

    @property
    def written(self) -> str:
        """The text, or else the transcript."""
        return self.text or self.transcript

    @property
    def option_ids(self) -> tuple[str, ...]:
        """What the options' recordings are called where units or transcripts are kept by name."""
        return tuple(f"{self.id}:option-{i}" for i in range(len(self.options)))


@dataclass(frozen=True)
class Corpus:
    """One split of a corpus in memory."""

    root: Path
    split: str
    passages: dict[str, Passage]
    questions: tuple[Question, ...]

    @property
    def language(self) -> str:
        """Of the first passage; "en" where there is none."""
        return next((passage.language for passage in self.passages.values()), "en")

    @property
    def records(self) -> list[Passage | Question]:
        """The passages, then the questions."""
        return [*self.passages.values(), *self.questions]

    @property
    def answerable(self) -> tuple[Question, ...]:
        return tuple(q for q in self.questions if q.answers)

    @property
    def choices(self) -> tuple[Question, ...]:
        """The multiple-choice questions."""
        return tuple(q for q in self.questions if q.correct)

    def path(self, record: Passage | Question) -> Path:
        """Raises InputError for a record without audio."""
        if not record.audio:
            raise InputError(
                f"{record.id} of {self.root} is text only; prepare the corpus with --speak, or "
                "take systems that read what is "
                f"written (text, cascade-given)"
            )
        return self.root / record.audio


def locate(answer: Answer, written: str, language: str) -> tuple[tuple[int, int] | None, str]:
    """The characters [first, last) of an answer in what is written of its passage, and why there
    are none ("" where there are).

    By its offset where it has one that holds it, else by its only occurrence (of whole words in
    English).
    """
    text = answer.text.strip()
    if not text:
        return None, "answers that are empty"
    start = answer.char_start
    if start is not None and written[start : start + len(answer.text)] == answer.text:
        return (start, start + len(answer.text)), ""
    offsets = occurrences(written, text, language)
    if len(offsets) != 1:
        return None, (
            "answers without offset that occur several times"
        ) if offsets else "answers that do not occur in the passage"
    return (offsets[0], offsets[0] + len(text)), ""


def occurrences(written: str, text: str, language: str) -> list[int]:
    """Offsets of a text, those that overlap too; in English not within words."""

    def within_word(place: int) -> bool:
        return (
            0 < place < len(written) and written[place - 1].isalnum() and written[place].isalnum()
        )

    offsets, start = [], written.find(text)
    while start >= 0:
        if language == "zh" or not (within_word(start) or within_word(start + len(text))):
            offsets.append(start)
        start = written.find(text, start + 1)
    return offsets


def write_records(path: Path, records: Iterable[Passage | Question]) -> None:
    """Write a manifest, whole or not at all."""
    write_lines(path, (compact(asdict(r)) for r in records))


def compact(record: dict[str, Any]) -> dict[str, Any]:
    """Word and phone times as [text, start, end] triples: a third of the bytes; one right option as
    its index."""
    for name in ("words", "phones"):
        record[name] = [[s["text"], round(s["start"], 5), round(s["end"], 5)] for s in record[name]]
    if len(right := record.get("correct", (0, 0))) < 2:
        record["correct"] = right[0] if right else None
    return {name: value for name, value in record.items() if value or name not in RARE}


def read_records(path: Path, kind: type[R], root: Path | None = None) -> Iterator[tuple[int, R]]:
    """(number of its line, record) for every line of a manifest. kind: Passage or Question.

    root: of the corpus, which audio paths are made relative to, and whose recordings say how long
    they are where a line does not; None: lines are taken as they are. Raises InputError naming file
    and line for a line that is not such a record.
    """
    names = {f.name for f in fields(kind)}
    for number, values in read_lines(path):
        if lacking := [
            name
            for name in ("id", *(["passage"] if kind is Question else []))
            if name not in values
        ]:
            raise InputError(
                f"{path}:{number} lacks {' and '.join(lacking)}; a "
                f"{kind.__name__.lower()} needs that"
            )
        if "audio" not in values and not (values.get("text") or values.get("transcript")):
            raise InputError(
                f"{path}:{number} is missing both audio and text; give the "
                f"{kind.__name__.lower()} a recording"
            )
        values = DEFAULTS | values
        if root is not None and isinstance(audio := values["audio"], str):
            # it may be relative to the manifest
            if audio and not Path(audio).is_absolute() and (path.parent / audio).is_file():
                values["audio"] = (path.parent.relative_to(root) / audio).as_posix()
            check_inside(root, values["audio"], f"{path}:{number}")
        if values.get("seconds") is None:
            values["seconds"] = _seconds(values["audio"], root, f"{path}:{number}")
        if kind is Question:
            answers = values.get("answers", [])
            if not isinstance(answers, list) or not all(
                isinstance(answer, dict) for answer in answers
            ):
                raise InputError(
                    f"{path}:{number}: the answers of this question are {answers!r}; write a "
                    "list such as "
                    '[{"text": "in 1904", "start": 61.2, "end": 62.1}]'
                )
            try:
                values["answers"] = tuple(_answer(**answer) for answer in answers)
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"{path}:{number}: an answer of this question is malformed "
                    f"({error}); correct it"
                ) from error
            for name in ("options", "option_audio"):
                texts = values.get(name, [])
                if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
                    raise InputError(
                        f"{path}:{number}: the {name} of this question are not a "
                        "list of texts; correct the line"
                    )
                values[name] = tuple(texts)
            if root is not None:
                for audio in values["option_audio"]:
                    check_inside(root, audio, f"{path}:{number}")
            right = values.get("correct")  # none, one, or a list
            values["correct"] = (
                () if right is None else tuple(right) if isinstance(right, list) else (right,)
            )
        if unknown := sorted(set(values) - names):
            raise InputError(
                f"{path}:{number} has the unknown field {unknown[0]!r}; the fields "
                f"are {', '.join(sorted(names))}"
            )
        try:
            for name in ("words", "phones"):
                values[name] = tuple(span_of(*entry) for entry in values.get(name, ()))
            record = kind(**values)
            for name in (
                "id",
                "audio",
                "text",
                "speaker",
                "language",
                "passage",
                "relation",
                "transcript",
            ):
                if not isinstance(getattr(record, name, ""), str):
                    raise TypeError(f"{name} is {getattr(record, name)!r}, which is not text")
            if (
                not math.isfinite(record.seconds)
                or record.seconds < 0
                or (record.audio != "" and record.seconds == 0)
            ):
                raise ValueError(f"seconds is {record.seconds}")
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{path}:{number} is not a {kind.__name__} record ({error}); correct the line"
            ) from error
        yield number, record


def span_of(text: Any, start: Any, end: Any) -> Span:
    """A word or phone of a manifest. Raises TypeError or ValueError for times that are no
    interval."""
    span = Span(str(text), float(start), float(end))
    if not -math.inf < span.start <= span.end < math.inf:
        raise ValueError(f"{span.text!r} lasts from {span.start} to {span.end} s")
    return span


def _absent(audio: str, root: Path | None, place: str) -> InputError:
    """Of a recording that is where neither of the two readings of a relative path looks for it
    (`_below`)."""
    where = (
        "" if root is None or Path(audio).is_absolute() else (f" in {root} or beside the manifest")
    )
    return InputError(
        f"{place} names {audio}, which does not exist{where}; restore it or remove the line"
    )


def _seconds(audio: Any, root: Path | None, place: str) -> float:
    """The length of a recording. Raises InputError where it cannot be read; 0 where there is
    none."""
    if not isinstance(audio, str) or not audio:
        return 0.0
    path = (root or Path()) / audio
    if not path.is_file():
        raise _absent(audio, root, place)
    try:
        return length(path)
    except InputError as error:
        raise InputError(f"{place}: {error}") from error


def _answer(**values: Any) -> Answer:
    """Raises TypeError or ValueError for what is not an answer."""
    if not {"text"} <= set(values) <= {f.name for f in fields(Answer)}:
        raise TypeError(
            f"its fields are {', '.join(values) or 'none'}; it needs text, and may "
            "have start and end, and char_start"
        )
    answer = Answer(**values)
    if not isinstance(answer.text, str):
        raise TypeError(f"its text is {answer.text!r}")
    if not isinstance(answer.char_start, int | None) or (
        answer.char_start is not None and answer.char_start < 0
    ):
        raise TypeError(
            f"its char_start is {answer.char_start!r}; leave it out where it is not known"
        )
    if (answer.start is None) != (answer.end is None):
        raise ValueError("it has only one of start and end")
    if (
        answer.start is not None
        and answer.end is not None
        and not math.isfinite(answer.start + answer.end)
    ):
        raise ValueError(f"its times are {answer.start} and {answer.end}")
    return answer


def data_hash(root: Path | str, split: str) -> str:
    """Hash of the manifests of a split; what is made from it carries this, and is made again when
    it changes.

    Audio is known by its name in the manifest and is not hashed: give new recordings new names or a
    new corpus.
    """
    # not what a kill left
    return hash_files(
        sorted(p for p in (Path(root) / split).glob("*.jsonl") if not p.name.startswith("."))
    )


def data_facts(made_from: Mapping[str, Any], start: Path | None = None) -> dict[str, Any]:
    """What the card of a model says of its data, by their hashes. made_from: with `data`, the split
    that it was trained on, and `eval_data`, that which chose its checkpoint, where there was one.
    start: the model that it goes on from.
    """
    facts = {name: made_from[name] for name in ("data", "eval_data") if name in made_from}
    earlier = sorted(training_data(read_json(start / "card.json"))) if start else []
    return facts | ({"start_data": earlier} if earlier else {})


def training_data(card: Mapping[str, Any]) -> set[str]:
    """Hashes of the splits that a model was trained on, by its card: as `data_facts` has them, and
    of older cards the split of the units or of the corpus that they name.
    """
    found = {card.get("data"), *(card.get("start_data") or ())}
    units, options = card.get("units"), card.get("options")
    found |= {units.get("corpus")} if isinstance(units, dict) else set()
    split = options.get("split", "train") if isinstance(options, dict) else "train"
    for corpus in (card.get("corpus"), card.get("start_corpus")):
        manifests = corpus.get("manifests") if isinstance(corpus, dict) else None
        found |= {manifests.get(split)} if isinstance(manifests, dict) else set()
    return {value for value in found if isinstance(value, str)}


def corpus_card(root: Path | str) -> dict[str, Any]:
    """The card of a corpus; of one without a card its name. Raises InputError for a card that is
    not JSON."""
    card = Path(root) / "card.json"
    return dict(read_json(card)) if card.is_file() else {"corpus": Path(root).resolve().name}


def synthetic_note(root: Path | str) -> str:
    """The note of every table of a corpus where a synthesiser spoke some of it, or it is invented,
    as its card has it; else ""."""
    return synthetic_sentence(str(corpus_card(root).get("synthetic") or ""))


def synthetic_sentence(note: str) -> str:
    """note: `synthetic` of a card. A miniature that is only written has no speech to speak of."""
    if note == INVENTED:
        return f"{note.capitalize()}."
    return f"Synthetic speech: {note}." if note else ""


def load_corpus(root: Path | str, split: str) -> Corpus:
    """Read and check one split.

    Raises InputError (one sentence, naming file and line) for a missing manifest, a line that is
    not JSON or lacks a field, a duplicate id, a missing audio file, an unknown passage, or an
    answer outside its passage.
    """
    root = Path(root)
    folder = root / split
    if not (folder / "passages.jsonl").is_file():
        splits = sorted(p.parent.name for p in root.glob("*/passages.jsonl"))
        remedy = (
            (f"it has the splits {', '.join(splits)}: name one (--split)")
            if splits
            else "prepare one with `speechssl prepare`"
        )
        raise InputError(
            f"{folder} is not a split of a prepared corpus (no passages.jsonl); {remedy}"
        )
    warn_changed(root, split)
    passages: dict[str, Passage] = {}
    questions: dict[str, Question] = {}
    kinds: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("passages", Passage, passages),
        ("questions", Question, questions),
    )
    for name, kind, by_id in kinds:
        path = folder / f"{name}.jsonl"
        for number, record in read_records(path, kind, root):
            place = f"{path}:{number}"
            if record.id in by_id:
                raise InputError(f"{place}: the id {record.id} occurs twice; make ids unique")
            for audio in filter(None, (record.audio, *getattr(record, "option_audio", ()))):
                if not (root / audio).is_file():
                    raise _absent(audio, root, place)
            if isinstance(record, Question):
                check_question(record, passages, place)
            by_id[record.id] = record
    return Corpus(root, split, passages, tuple(questions.values()))


def check_question(question: Question, passages: Mapping[str, Passage], place: str) -> None:
    """Raises InputError for a question about a passage that is not there, and for options or times
    of answers that are none."""
    if (passage := passages.get(question.passage)) is None:
        raise InputError(
            f"{place} refers to the passage {question.passage}, which is not in "
            "passages.jsonl; correct the line"
        )
    options = len(question.options)
    right = question.correct
    if any(type(i) is not int or i not in range(options) for i in right) or len(set(right)) < len(
        right
    ):
        shown = question.correct[0] if len(question.correct) == 1 else list(question.correct)
        raise InputError(
            f"{place}: correct is {shown!r}, but there are {options} options; correct the line"
        )
    if question.option_audio and len(question.option_audio) != options:
        raise InputError(
            f"{place} has {len(question.option_audio)} option_audio for {options} "
            "options; correct the line"
        )
    for answer in question.answers:
        if answer.start is None or answer.end is None:
            continue
        if answer.end <= answer.start:
            what = "is reversed" if answer.end < answer.start else "has no length"
            raise InputError(
                f"{place}: the answer [{answer.start}, {answer.end}) s {what}; start comes "
                "before end: correct the times"
            )
        if not passage.audio and not passage.seconds:
            raise InputError(
                f"{place}: the answer has times, but its passage {passage.id} no "
                "recording; leave out start and end"
            )
        if not 0 <= answer.start < answer.end <= passage.seconds + TOLERANCE:
            unit = unit_of([(answer.end, passage.seconds)])
            raise InputError(
                f"{place}: the answer [{answer.start}, {answer.end}) s lies outside its passage "
                f"{passage.id} "
                f"([0, {passage.seconds:.2f}) s); correct the "
                f"times{f', which look like {unit}' if unit else ''}"
            )


# name -> how many a second
UNITS = {"frames of 20 ms": 50, "milliseconds": 1000, "samples at 16 kHz": 16_000}


def unit_of(ends: Iterable[tuple[float, float]]) -> str:
    """The unit in which every time lies in its recording though in seconds some lie far beyond; ""
    where there is none.

    ends: pairs of a time and the seconds of its recording.
    """
    ends = list(ends)
    if all(end <= 2 * seconds for end, seconds in ends):
        return ""
    return next(
        (
            u
            for u, n in UNITS.items()
            if all(end / n <= seconds + TOLERANCE for end, seconds in ends)
        ),
        "",
    )


def warn_changed(root: Path, split: str) -> None:
    """Say on stderr where the manifests of a split are not those that the card of the corpus names:
    edited, or damaged."""
    card = root / "card.json"
    manifests = read_json(card).get("manifests") if card.is_file() else None
    if (
        isinstance(manifests, dict)
        and manifests.get(split, now := data_hash(root, split)) != now
        and is_main()
    ):
        say = f"{root / split}: the manifests were changed after the corpus was prepared"
        tqdm.write(f"{say}; prepare it again where that was not meant", file=sys.stderr)


def first_passages(corpus: Corpus, count: int | None) -> Corpus:
    """The first `count` passages with their questions; None: all."""
    if count is None:
        return corpus
    passages = dict(list(corpus.passages.items())[:count])
    return replace(
        corpus,
        passages=passages,
        questions=tuple(q for q in corpus.questions if q.passage in passages),
    )


# ---- which voices training knew, and so what intervals draw (`stats.choose_units`)
#
# A system of spoken QA knows the speakers of the corpus's split `train`, where it has one. Other
# training (of an encoder on other recordings, of systems on another corpus) is not counted: cards
# name data, not voices.


def known_voices(root: Path | str) -> frozenset[str]:
    """The speakers of passages and questions of the split `train` of a corpus; none where it has no
    such split."""
    return _speakers(Path(root) / "train", data_hash(root, "train"))


@lru_cache(8)
def _speakers(folder: Path, manifests: str) -> frozenset[str]:
    """manifests: their hash, so that those which were written anew are read anew."""
    paths = [
        path for name in ("passages", "questions") if (path := folder / f"{name}.jsonl").is_file()
    ]
    return frozenset(
        str(v["speaker"]) for path in paths for _, v in read_lines(path) if v.get("speaker")
    )


def voices_of(corpus: Corpus) -> dict[str, str]:
    """Who speaks in every passage and question, by its id; "" where that is not known, or training
    knew the voice."""
    training_voices = known_voices(corpus.root)
    return {r.id: unknown_voice(r.speaker, training_voices) for r in corpus.records}


def passage_units(
    corpus: Corpus, passages: Sequence[str], questions: Sequence[str] = ()
) -> BootstrapUnits:
    """What is drawn of questions, or of passages themselves. passages: of every item the id of its
    passage; questions: its own, so that the voice that asks is drawn beside the passage's: in noise
    it is the larger source of the two.
    """
    voices = voices_of(corpus)
    return choose_units(
        [voices[p] for p in passages], passages, "passage", [voices[q] for q in questions]
    )
