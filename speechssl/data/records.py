"""Records of a spoken-QA corpus are read from JSONL manifests, and written to them.

A corpus is a folder: for every split `<split>/passages.jsonl` and `<split>/questions.jsonl`, one
record a line, and mostly a `card.json`. Audio paths are absolute, or relative to the manifest or
else to the corpus folder. A line may leave out all but `id` and, of a question, `passage`; seconds
that it leaves out are read from the recording. All times are seconds from the beginning of the
record's own audio; those of an answer from the beginning of its passage's audio. Half-open
intervals [start, end).

A corpus may be text only: its records then have no audio (""), no length (0 s), and its answers no
times.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
from msgspec import Meta

from speechssl.artifacts import hash_files, parse_json, read_json, write_lines
from speechssl.audio import length
from speechssl.errors import InputError
from speechssl.schema import convert
from speechssl.stats import BootstrapUnits, choose_units, unknown_voice

R = TypeVar("R", "Passage", "Question")
# stands in the title of the README of a miniature (tests/corpora), and in cards
INVENTED = "an invented miniature"
# fields that are written only where they are not empty
RARE = ("transcript", "synthetic", "option_audio")
QUESTIONS = "questions.npy"  # beside a reader: hashes of the questions that it was trained on
TOLERANCE = 0.05  # seconds that a stated time may lie beyond the end of the audio
Seconds = Annotated[float, Meta(ge=0, le=1e9)]


class Span(NamedTuple):
    """A span is a word or a phone with its time in seconds."""

    text: str
    start: Seconds
    end: Seconds


@dataclass(frozen=True)
class Answer:
    """An answer is one annotation. start, end: seconds in the passage's audio, None where only the
    text is known."""

    text: str
    start: Seconds | None = None
    end: Seconds | None = None
    # offset in what is `written` of the passage, None where that does not hold the answer
    char_start: Annotated[int, Meta(ge=0)] | None = None

    def __post_init__(self) -> None:
        if (self.start is None) != (self.end is None):
            raise ValueError("it has only one of start and end")


@dataclass(frozen=True)
class Passage:
    """A passage is a recording to ask about; a line of passages.jsonl."""

    id: str
    audio: str = ""  # path below the corpus, "" where there is only text
    seconds: Seconds = 0.0
    text: str = ""  # of what is spoken, "" where that is not known
    speaker: str = ""
    language: str = "en"
    words: tuple[Span, ...] = ()
    phones: tuple[Span, ...] = ()
    transcript: str = ""  # what a recogniser made of it, where the corpus has that
    synthetic: bool = False  # spoken by a synthesiser when the corpus was prepared

    @property
    def written(self) -> str:
        """The text, or else the transcript, which offsets of answers refer to."""
        return self.text or self.transcript


@dataclass(frozen=True)
class Question:
    """A question is about a passage; a line of questions.jsonl."""

    id: str
    passage: str  # id of the passage it is about
    audio: str = ""
    seconds: Seconds = 0.0
    text: str = ""
    speaker: str = ""
    language: str = "en"
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
        """The names of the options' recordings where units or transcripts are kept by name."""
        return tuple(f"{self.id}:option-{i}" for i in range(len(self.options)))


@dataclass(frozen=True)
class Corpus:
    """A split of a corpus in memory."""

    root: Path
    split: str
    passages: dict[str, Passage]
    questions: tuple[Question, ...]

    @property
    def language(self) -> str:
        """The language of the first passage; "en" where there is none."""
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
        """Return the path of a record's audio. Raises InputError for a record without audio."""
        if not record.audio:
            raise InputError(
                f"{record.id} of {self.root} is text only; prepare the corpus with --speak, or "
                "take systems that read what is written (text, cascade-given)"
            )
        return self.root / record.audio


def locate(answer: Answer, written: str, language: str) -> tuple[tuple[int, int] | None, str]:
    """Locate an answer in the written text of its passage: characters [first, last), or None and
    why there are none.

    By its offset where it has one that holds it, else by its only occurrence (of whole words in
    English).
    """
    text = answer.text.strip()
    if not text:
        return None, "answers that are empty"
    start = answer.char_start
    if start is not None and written.startswith(answer.text, start):
        return (start, start + len(answer.text)), ""
    offsets = occurrences(written, text, language)
    if not offsets:
        return None, "answers that do not occur in the passage"
    if len(offsets) > 1:
        return None, "answers without offset that occur several times"
    return (offsets[0], offsets[0] + len(text)), ""


def occurrences(written: str, text: str, language: str) -> list[int]:
    """Find the offsets of a text, those that overlap too; in English not within words."""

    def within_word(place: int) -> bool:
        return written[place - 1 : place].isalnum() and written[place : place + 1].isalnum()

    offsets = [match.start() for match in re.finditer(f"(?={re.escape(text)})", written)]
    if language == "zh":
        return offsets
    return [at for at in offsets if not (within_word(at) or within_word(at + len(text)))]


def write_records(path: Path, records: Iterable[Passage | Question]) -> None:
    """Write a manifest, whole or not at all."""
    write_lines(path, (compact(asdict(r)) for r in records))


def compact(record: dict[str, Any]) -> dict[str, Any]:
    """Round word and phone times, write a single right option as its index, and leave out empty
    fields that are rare."""
    for name in ("words", "phones"):
        record[name] = [[w.text, round(w.start, 5), round(w.end, 5)] for w in record[name]]
    right = record.get("correct")
    if right is not None and len(right) < 2:
        record["correct"] = right[0] if right else None
    return {name: value for name, value in record.items() if value or name not in RARE}


def read_records(root: Path, path: Path, kind: type[R]) -> Iterator[tuple[str, R]]:
    """Yield (file and line, record) for every line of a manifest of a corpus. kind: Passage or
    Question.

    Raises InputError naming file and line for a line that is not such a record, an id that occurs
    twice, and a recording that does not exist.
    """
    ids: set[str] = set()
    for number, values in read_lines(path):
        place = f"{path}:{number}"
        correct = values.get("correct")  # none, one, or a list
        if "correct" in values and not isinstance(correct, list):
            values["correct"] = [] if correct is None else [correct]
        measured = values.get("seconds") is not None
        record = convert(values | ({} if measured else {"seconds": 0.0}), kind, place, only=True)
        if record.id in ids:
            raise InputError(f"{place}: the id {record.id} occurs twice; make ids unique")
        ids.add(record.id)
        if "audio" not in values and not record.written:
            raise InputError(f"{place} has neither audio nor text; give it a recording")
        record = replace(record, audio=_find_audio(root, path, record.audio, place))
        if record.audio and not measured:
            record = replace(record, seconds=length(root / record.audio))
        for option in getattr(record, "option_audio", ()):
            _find_audio(root, path, option, place)
        yield place, record


def _find_audio(root: Path, manifest: Path, audio: str, place: str) -> str:
    """Return the path of a recording from the corpus on; a line may have that from the manifest
    on. Raises InputError for a path out of the corpus, and where there is no such file."""
    if not audio:
        return ""
    if not Path(audio).is_absolute() and (manifest.parent / audio).is_file():
        audio = (manifest.parent.relative_to(root) / audio).as_posix()
    check_inside(root, audio, place)
    if not (root / audio).is_file():
        raise InputError(
            f"{place} names {audio}, which does not exist in {root} or beside the manifest; "
            "restore it or remove the line"
        )
    return audio


def data_hash(root: Path | str, split: str) -> str:
    """Hash the manifests of a split; all that is made from it carries this, and is made again when
    it changes.

    Audio is known by its name in the manifest and is not hashed: give new recordings new names or a
    new corpus.
    """
    manifests = sorted((Path(root) / split).glob("*.jsonl"))
    # a kill leaves hidden ones
    return hash_files([path for path in manifests if not path.name.startswith(".")])


def data_facts(made_from: Mapping[str, Any], start: Path | None = None) -> dict[str, Any]:
    """Return the entries of a model's card about its data, by their hashes. made_from: with `data`,
    the split that it was trained on, and `eval_data`, that which chose its checkpoint, where there
    was one. start: the model that it goes on from."""
    facts = {name: made_from[name] for name in ("data", "eval_data") if name in made_from}
    earlier = sorted(training_data(read_json(start / "card.json"))) if start else []
    if earlier:
        facts["start_data"] = earlier
    return facts


def training_data(card: Mapping[str, Any]) -> set[str]:
    """Return the hashes of the splits that a model was trained on, by its card: as `data_facts` has
    them, and of shipped models the split of the units or of the corpus that they name."""
    options = card.get("options") or {}
    found = {card.get("data"), *(card.get("start_data") or ())}
    if isinstance(card.get("units"), dict):
        found.add(card["units"].get("corpus"))
    for corpus in (card.get("corpus"), card.get("start_corpus")):
        manifests = corpus.get("manifests") if isinstance(corpus, dict) else None
        if isinstance(manifests, dict):
            found.add(manifests.get(options.get("split", "train")))
    return {value for value in found if isinstance(value, str)}


def hash_questions(questions: Iterable[Question]) -> np.ndarray:
    """Hash the texts of questions, by which they are known in every corpus that has them: uint32,
    sorted, each once; letters and digits count, in lower case."""
    texts = ("".join(filter(str.isalnum, question.text.casefold())) for question in questions)
    return np.unique(np.array([zlib.crc32(t.encode()) for t in texts if t], np.uint32))


def corpus_card(root: Path | str) -> dict[str, Any]:
    """Read the card of a corpus; of one without a card its name. Raises InputError for a card that
    is not JSON."""
    card = Path(root) / "card.json"
    return dict(read_json(card)) if card.is_file() else {"corpus": Path(root).resolve().name}


def synthetic_note(root: Path | str) -> str:
    """Return the note of every table of a corpus where a synthesiser spoke some of it, or it is
    invented, as its card has it; else ""."""
    return synthetic_sentence(str(corpus_card(root).get("synthetic") or ""))


def synthetic_sentence(note: str) -> str:
    """Make a sentence of `synthetic` of a card. A miniature that is only written has no speech to
    speak of."""
    if note == INVENTED:
        return f"{note.capitalize()}."
    return f"Synthetic speech: {note}." if note else ""


def load_corpus(root: Path | str, split: str) -> Corpus:
    """Read and check one split.

    Raises InputError (one sentence, naming file and line) for a missing manifest, a line that is
    not a record, a duplicate id, a missing audio file, an unknown passage, or an answer outside its
    passage.
    """
    root = Path(root)
    folder = root / split
    if Path(split).name != split or not (folder / "passages.jsonl").is_file():
        splits = sorted(p.parent.name for p in root.glob("*/passages.jsonl"))
        remedy = "prepare one with `speechssl prepare`"
        if splits:
            remedy = f"it has the splits {', '.join(splits)}: name one (--split)"
        raise InputError(
            f"{folder} is not a split of a prepared corpus (no passages.jsonl); {remedy}"
        )
    passages = {p.id: p for _, p in read_records(root, folder / "passages.jsonl", Passage)}
    questions: list[Question] = []
    for place, question in read_records(root, folder / "questions.jsonl", Question):
        check_question(question, passages, place)
        questions.append(question)
    return Corpus(root, split, passages, tuple(questions))


def check_question(question: Question, passages: Mapping[str, Passage], place: str) -> None:
    """Raise InputError for a question about a passage that is not there, and for options or times
    of answers that are none."""
    passage = passages.get(question.passage)
    options = len(question.options)
    problem = ""
    if passage is None:
        problem = f"the passage {question.passage} is not in passages.jsonl"
    elif not set(question.correct) <= set(range(options)):
        problem = f"correct is {question.correct}, but there are {options} options"
    elif len(question.option_audio) not in (0, options):
        problem = f"there are {len(question.option_audio)} option_audio for {options} options"
    else:
        for answer in question.answers:
            start, end = answer.start, answer.end
            if start is None or end is None or start < end <= passage.seconds + TOLERANCE:
                continue
            unit = guess_unit([(end, passage.seconds)])
            problem = (
                f"the answer [{start}, {end}) s does not lie in its passage "
                f"{passage.id} ([0, {passage.seconds:.2f}) s)"
            )
            problem += f", and its times look like {unit}" if unit else ""
            break
    if problem:
        raise InputError(f"{place}: {problem}; correct it")


# name -> how many a second
UNITS = {"frames of 20 ms": 50, "milliseconds": 1000, "samples at 16 kHz": 16_000}


def guess_unit(ends: Iterable[tuple[float, float]]) -> str:
    """Guess the unit in which every time lies in its recording though in seconds some lie far
    beyond; "" where there is none.

    ends: pairs of a time and the seconds of its recording.
    """
    ends = list(ends)
    if all(end <= 2 * seconds for end, seconds in ends):
        return ""
    for unit, a_second in UNITS.items():
        if all(end / a_second <= seconds + TOLERANCE for end, seconds in ends):
            return unit
    return ""


def first_passages(corpus: Corpus, count: int | None) -> Corpus:
    """Return the first `count` passages with their questions; None: all."""
    if count is None:
        return corpus
    passages = dict(list(corpus.passages.items())[:count])
    questions = tuple(q for q in corpus.questions if q.passage in passages)
    return replace(corpus, passages=passages, questions=questions)


# ---- which voices training knew, and so what intervals draw (`stats.choose_units`)
#
# A system of spoken QA knows the speakers of the corpus's split `train`, where it has one. Other
# training (of an encoder on other recordings, of systems on another corpus) is not counted: cards
# name data, not voices.


def voices_of(corpus: Corpus) -> dict[str, str]:
    """Return who speaks in every passage and question, by its id; "" where that is not known, or
    training knew the voice: it is one of the split `train` of the corpus."""
    training_voices = known_voices(corpus.root)
    return {r.id: unknown_voice(r.speaker, training_voices) for r in corpus.records}


def known_voices(root: Path | str) -> frozenset[str]:
    """Return the speakers of passages and questions of the split `train` of a corpus; none where it
    has no such split."""
    return _speakers(Path(root) / "train", data_hash(root, "train"))


@lru_cache(8)
def _speakers(folder: Path, manifests: str) -> frozenset[str]:
    """Read the speakers of a split. manifests: their hash, so that those which were written anew
    are read anew."""
    speakers: set[str] = set()
    for path in folder.glob("*.jsonl"):
        speakers |= {str(values.get("speaker") or "") for _, values in read_lines(path)}
    return frozenset(speakers - {""})


def passage_units(
    corpus: Corpus, passages: Sequence[str], questions: Sequence[str] = ()
) -> BootstrapUnits:
    """Return the units that a bootstrap draws of questions, or of passages themselves.

    passages: of every item the id of its passage; questions: its own, so that the voice that asks
    is drawn beside the passage's: in noise it is the larger source of the two.
    """
    voices = voices_of(corpus)
    passage_voices = [voices[p] for p in passages]
    question_voices = [voices[q] for q in questions]
    return choose_units(passage_voices, passages, "passage", question_voices)


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number, object) of every line that is not empty, one in memory at a time.

    Raises InputError for what is no text and, naming it, for a line that is not a JSON object.
    """
    try:
        # not splitlines: a text may hold U+0085 or U+2028
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, _parse_record(line, f"{path}:{number}")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the manifest {path} ({error}); check the path") from error


def _parse_record(line: str, place: str) -> dict[str, Any]:
    """Parse a line of a manifest. place: file and number of the line, for the InputError."""
    try:
        record = parse_json(line)
    except ValueError as error:
        raise InputError(f"{place} is not JSON ({error}); correct or remove the line") from error
    if not isinstance(record, dict):
        raise InputError(f"{place} is not a JSON object; every line of a manifest is one record")
    return record


def check_inside(root: Path, audio: str, place: str) -> None:
    """Raise InputError for a relative path that leads out of the root by `..`: of a list that came
    from elsewhere it could be any file of this machine. Who means such a file writes its absolute
    path."""
    # an absolute path has no such beginning
    if ".." in audio and os.path.normpath(audio).split(os.sep)[0] == "..":
        raise InputError(
            f"{place} names {audio}, which leads out of {root}; move the file "
            "there, or give its absolute path"
        )
