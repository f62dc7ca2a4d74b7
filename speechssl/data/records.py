"""Records of a spoken-QA corpus are read from JSONL manifests, and written to them.

A corpus is a folder: for every split `<split>/passages.jsonl` and `<split>/questions.jsonl`, one
record a line, and mostly a `card.json`. Audio paths are absolute, or relative to the manifest or
else to the corpus folder. A line may leave out the fields of `DEFAULTS`, and `seconds`, which the
recording itself says. All times are seconds from the beginning of the record's own audio; those of
an answer from the beginning of its passage's audio. Half-open intervals [start, end).

A corpus may be text only: its records then have no audio (""), no length (0 s), and its answers no
times.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from speechssl.artifacts import hash_files, parse_json, read_json, write_lines
from speechssl.audio import length
from speechssl.errors import InputError
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
    """A span is a word or a phone with its time in seconds."""

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class Answer:
    """An answer is one annotation. start, end: seconds in the passage's audio, None where only the
    text is known."""

    text: str
    start: float | None = None
    end: float | None = None
    # offset in what is `written` of the passage, None where that does not hold the answer
    char_start: int | None = None


@dataclass(frozen=True)
class Passage:
    """A passage is a recording to ask about; a line of passages.jsonl."""

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
        """The text, or else the transcript, which offsets of answers refer to."""
        return self.text or self.transcript


@dataclass(frozen=True)
class Question:
    """A question is about a passage; a line of questions.jsonl."""

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
    if start is not None and written[start : start + len(answer.text)] == answer.text:
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
        inside = 0 < place < len(written)
        return inside and written[place - 1].isalnum() and written[place].isalnum()

    offsets = []
    start = written.find(text)
    while start >= 0:
        if language == "zh" or not (within_word(start) or within_word(start + len(text))):
            offsets.append(start)
        start = written.find(text, start + 1)
    return offsets


def write_records(path: Path, records: Iterable[Passage | Question]) -> None:
    """Write a manifest, whole or not at all."""
    write_lines(path, (compact(asdict(r)) for r in records))


def compact(record: dict[str, Any]) -> dict[str, Any]:
    """Write word and phone times as [text, start, end] triples, a third of the bytes, and a single
    right option as its index."""
    for name in ("words", "phones"):
        record[name] = [[s["text"], round(s["start"], 5), round(s["end"], 5)] for s in record[name]]
    right = record.get("correct")
    if right is not None and len(right) < 2:
        record["correct"] = right[0] if right else None
    return {name: value for name, value in record.items() if value or name not in RARE}


def read_records(path: Path, kind: type[R], root: Path | None = None) -> Iterator[tuple[int, R]]:
    """Yield (number of its line, record) for every line of a manifest. kind: Passage or Question.

    root: of the corpus, which audio paths are made relative to, and whose recordings say how long
    they are where a line does not; None: lines are taken as they are. Raises InputError naming file
    and line for a line that is not such a record.
    """
    names = {f.name for f in fields(kind)}
    needed = ("id", "passage") if kind is Question else ("id",)
    for number, values in read_lines(path):
        place = f"{path}:{number}"
        lacking = [name for name in needed if name not in values]
        if lacking:
            raise InputError(
                f"{place} lacks {' and '.join(lacking)}; a {kind.__name__.lower()} needs that"
            )
        if "audio" not in values and not (values.get("text") or values.get("transcript")):
            raise InputError(
                f"{place} is missing both audio and text; give the "
                f"{kind.__name__.lower()} a recording"
            )
        values = DEFAULTS | values
        audio = values["audio"]
        if root is not None and isinstance(audio, str):
            # it may be relative to the manifest
            if audio and not Path(audio).is_absolute() and (path.parent / audio).is_file():
                values["audio"] = (path.parent.relative_to(root) / audio).as_posix()
            check_inside(root, values["audio"], place)
        if values.get("seconds") is None:
            values["seconds"] = _seconds(values["audio"], root, place)
        if kind is Question:
            _parse_question(values, place)
            if root is not None:
                for audio in values["option_audio"]:
                    check_inside(root, audio, place)
        unknown = sorted(set(values) - names)
        if unknown:
            raise InputError(
                f"{place} has the unknown field {unknown[0]!r}; the fields "
                f"are {', '.join(sorted(names))}"
            )
        try:
            for name in ("words", "phones"):
                values[name] = tuple(make_span(*entry) for entry in values.get(name, ()))
            record = kind(**values)
            _check_fields(record)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{place} is not a {kind.__name__} record ({error}); correct the line"
            ) from error
        yield number, record


TEXTS = ("id", "audio", "text", "speaker", "language", "passage", "relation", "transcript")


def _check_fields(record: Passage | Question) -> None:
    """Raise TypeError for a field that is not text, ValueError for seconds that are no length."""
    for name in TEXTS:
        if not isinstance(getattr(record, name, ""), str):
            raise TypeError(f"{name} is {getattr(record, name)!r}, which is not text")
    seconds = record.seconds
    if not math.isfinite(seconds) or seconds < 0 or (record.audio and seconds == 0):
        raise ValueError(f"seconds is {seconds}")


def _parse_question(values: dict[str, Any], place: str) -> None:
    """Parse the answers and options of the line of a question, in place. Raises InputError."""
    answers = values.get("answers", [])
    if not isinstance(answers, list) or not all(isinstance(answer, dict) for answer in answers):
        raise InputError(
            f"{place}: the answers of this question are {answers!r}; write a list such as "
            '[{"text": "in 1904", "start": 61.2, "end": 62.1}]'
        )
    try:
        values["answers"] = tuple(_answer(**answer) for answer in answers)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{place}: an answer of this question is malformed ({error}); correct it"
        ) from error
    for name in ("options", "option_audio"):
        texts = values.get(name, [])
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InputError(
                f"{place}: the {name} of this question are not a list of texts; correct the line"
            )
        values[name] = tuple(texts)
    right = values.get("correct")  # none, one, or a list
    if right is None:
        right = []
    values["correct"] = tuple(right) if isinstance(right, list) else (right,)


def make_span(text: Any, start: Any, end: Any) -> Span:
    """Make a word or phone of an entry of a manifest. Raises TypeError or ValueError for times that
    are no interval."""
    span = Span(str(text), float(start), float(end))
    if not -math.inf < span.start <= span.end < math.inf:
        raise ValueError(f"{span.text!r} lasts from {span.start} to {span.end} s")
    return span


def _absent(audio: str, root: Path | None, place: str) -> InputError:
    """Return the error for a recording that neither of the two readings of a relative path
    finds."""
    where = ""
    if root is not None and not Path(audio).is_absolute():
        where = f" in {root} or beside the manifest"
    return InputError(
        f"{place} names {audio}, which does not exist{where}; restore it or remove the line"
    )


def _seconds(audio: Any, root: Path | None, place: str) -> float:
    """Return the seconds of a recording; 0 where there is none. Raises InputError where it cannot
    be read."""
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
    """Make an answer of its fields. Raises TypeError or ValueError for fields that are none."""
    if not {"text"} <= set(values) <= {f.name for f in fields(Answer)}:
        raise TypeError(
            f"its fields are {', '.join(values) or 'none'}; it needs text, and may "
            "have start and end, and char_start"
        )
    answer = Answer(**values)
    if not isinstance(answer.text, str):
        raise TypeError(f"its text is {answer.text!r}")
    offset, start, end = answer.char_start, answer.start, answer.end
    if offset is not None and not (isinstance(offset, int) and offset >= 0):
        raise TypeError(f"its char_start is {offset!r}; leave it out where it is not known")
    if (start is None) != (end is None):
        raise ValueError("it has only one of start and end")
    if start is not None and end is not None and not math.isfinite(start + end):
        raise ValueError(f"its times are {start} and {end}")
    return answer


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
    found = {card.get("data"), *(card.get("start_data") or ())}
    units, options = card.get("units"), card.get("options")
    if isinstance(units, dict):
        found.add(units.get("corpus"))
    split = options.get("split", "train") if isinstance(options, dict) else "train"
    for corpus in (card.get("corpus"), card.get("start_corpus")):
        manifests = corpus.get("manifests") if isinstance(corpus, dict) else None
        if isinstance(manifests, dict):
            found.add(manifests.get(split))
    return {value for value in found if isinstance(value, str)}


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
    not JSON or lacks a field, a duplicate id, a missing audio file, an unknown passage, or an
    answer outside its passage.
    """
    root = Path(root)
    folder = root / split
    if not (folder / "passages.jsonl").is_file():
        splits = sorted(p.parent.name for p in root.glob("*/passages.jsonl"))
        remedy = "prepare one with `speechssl prepare`"
        if splits:
            remedy = f"it has the splits {', '.join(splits)}: name one (--split)"
        raise InputError(
            f"{folder} is not a split of a prepared corpus (no passages.jsonl); {remedy}"
        )
    warn_changed(root, split)
    passages: dict[str, Passage] = {}
    for place, passage in _read_manifest(root, folder / "passages.jsonl", Passage):
        _check_files(root, [passage.audio], place)
        passages[passage.id] = passage
    questions: list[Question] = []
    for place, question in _read_manifest(root, folder / "questions.jsonl", Question):
        _check_files(root, [question.audio, *question.option_audio], place)
        check_question(question, passages, place)
        questions.append(question)
    return Corpus(root, split, passages, tuple(questions))


def _read_manifest(root: Path, path: Path, kind: type[R]) -> Iterator[tuple[str, R]]:
    """Yield (file and line, record). Raises InputError for an id that occurs twice."""
    ids: set[str] = set()
    for number, record in read_records(path, kind, root):
        place = f"{path}:{number}"
        if record.id in ids:
            raise InputError(f"{place}: the id {record.id} occurs twice; make ids unique")
        ids.add(record.id)
        yield place, record


def _check_files(root: Path, audio: Iterable[str], place: str) -> None:
    """Raise InputError for a recording that does not exist."""
    for name in audio:
        if name and not (root / name).is_file():
            raise _absent(name, root, place)


def check_question(question: Question, passages: Mapping[str, Passage], place: str) -> None:
    """Raise InputError for a question about a passage that is not there, and for options or times
    of answers that are none."""
    passage = passages.get(question.passage)
    if passage is None:
        raise InputError(
            f"{place} refers to the passage {question.passage}, which is not in "
            "passages.jsonl; correct the line"
        )
    options = len(question.options)
    right = question.correct
    valid = all(type(i) is int and 0 <= i < options for i in right)
    if not valid or len(set(right)) < len(right):
        shown = right[0] if len(right) == 1 else list(right)
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
            unit = guess_unit([(answer.end, passage.seconds)])
            looks = f", which look like {unit}" if unit else ""
            raise InputError(
                f"{place}: the answer [{answer.start}, {answer.end}) s lies outside its passage "
                f"{passage.id} ([0, {passage.seconds:.2f}) s); correct the times{looks}"
            )


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


def warn_changed(root: Path, split: str) -> None:
    """Say on stderr where the manifests of a split are not those that the card of the corpus names:
    edited, or damaged."""
    card = root / "card.json"
    manifests = read_json(card).get("manifests") if card.is_file() else None
    if not isinstance(manifests, dict) or split not in manifests:
        return
    if manifests[split] != data_hash(root, split) and is_main():
        tqdm.write(
            f"{root / split}: the manifests were changed after the corpus was prepared; "
            "prepare it again where that was not meant",
            file=sys.stderr,
        )


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


def known_voices(root: Path | str) -> frozenset[str]:
    """Return the speakers of passages and questions of the split `train` of a corpus; none where it
    has no such split."""
    return _speakers(Path(root) / "train", data_hash(root, "train"))


@lru_cache(8)
def _speakers(folder: Path, manifests: str) -> frozenset[str]:
    """Read the speakers of a split. manifests: their hash, so that those which were written anew
    are read anew."""
    speakers: set[str] = set()
    for name in ("passages", "questions"):
        path = folder / f"{name}.jsonl"
        if path.is_file():
            speakers.update(str(v["speaker"]) for _, v in read_lines(path) if v.get("speaker"))
    return frozenset(speakers)


def voices_of(corpus: Corpus) -> dict[str, str]:
    """Return who speaks in every passage and question, by its id; "" where that is not known, or
    training knew the voice."""
    training_voices = known_voices(corpus.root)
    return {r.id: unknown_voice(r.speaker, training_voices) for r in corpus.records}


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
                    yield number, _parse_record(line.removesuffix("\n"), f"{path}:{number}")
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


def check_inside(root: Path, audio: str, place: str) -> bool:
    """Return whether a path leads out of the root all the same: absolute, or through a folder that
    is a link.

    Raises InputError for a relative path that leads out by `..`: of a list that came from elsewhere
    it could be any file of this machine. Who means such a file writes its absolute path.
    """
    # an absolute path has no such beginning
    if ".." in audio and os.path.normpath(audio).split(os.sep)[0] == "..":
        raise InputError(
            f"{place} names {audio}, which leads out of {root}; move the file "
            "there, or give its absolute path"
        )
    folder = os.path.dirname(os.path.join(root, audio))
    return not _real_path(folder).startswith(_real_path(str(root)))


@lru_cache(10_000)  # a list names few folders
def _real_path(folder: str) -> str:
    """Resolve the links of a folder, and end it with a slash."""
    try:
        return os.path.join(os.path.realpath(folder), "")
    except ValueError:  # a name with a null byte, which no file has
        return folder
