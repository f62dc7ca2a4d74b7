"""Read and write the records of a spoken-QA corpus: passages and questions in JSONL manifests.

A corpus is a folder with the manifests `<split>/passages.jsonl` and `<split>/questions.jsonl` of
every split, one record a line, and usually a `card.json`. Audio paths are absolute, relative to the
manifest, or relative to the corpus folder. A line needs only an `id`, a recording or a text, and in
questions `passage`; seconds that it leaves out are read from the recording. Times are half-open
intervals [start, end) in seconds from the beginning of the record's own audio; those of an answer
are from the beginning of its passage's audio.

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
from speechssl.audio import measure_duration
from speechssl.errors import InputError
from speechssl.schema import convert
from speechssl.stats import BootstrapUnits, choose_units, hide_voice

R = TypeVar("R", "Passage", "Question")
# A miniature is a small corpus with invented texts in the layout of a published one
# (tests/corpora). The title of its README and the cards made from it have these words.
INVENTED = "an invented miniature"
# fields that are written to a manifest only where they are not empty
RARE = ("transcript", "synthetic", "option_audio")
QUESTIONS = "questions.npy"  # beside a reader: hashes of the questions that it was trained on
TOLERANCE = 0.05  # seconds that a stated time may lie beyond the end of the audio
PADDING = 1.0  # seconds that times of an aligner may lie beyond it: they are padded and rounded
Seconds = Annotated[float, Meta(ge=0, le=1e9)]


class Span(NamedTuple):
    """A span is a word or a phone with its time in seconds."""

    text: str
    start: Seconds
    end: Seconds


@dataclass(frozen=True)
class Answer:
    """An answer is what one annotator marked in the passage, or wrote."""

    text: str = ""  # "" where only the times are known
    start: Seconds | None = None  # in the passage's audio; None where only the text is known
    end: Seconds | None = None
    # offset in the `written` text of the passage, None where the answer is not found there
    char_start: Annotated[int, Meta(ge=0)] | None = None

    def __post_init__(self) -> None:
        if (self.start is None) != (self.end is None):
            raise ValueError("it has only one of start and end")


@dataclass(frozen=True)
class Passage:
    """A passage is a recording to ask about, and a line of passages.jsonl."""

    id: str
    audio: str = ""  # path below the corpus, "" where there is only text
    seconds: Seconds = 0.0
    text: str = ""  # the words that are spoken, "" where they are not known
    speaker: str = ""
    language: str = "en"
    words: tuple[Span, ...] = ()
    phones: tuple[Span, ...] = ()
    transcript: str = ""  # by a recogniser, where the corpus has one
    synthetic: bool = False  # spoken by a synthesiser when the corpus was prepared

    @property
    def written(self) -> str:
        """Return the text, or else the transcript, which offsets of answers refer to."""
        return self.text or self.transcript


@dataclass(frozen=True)
class Question:
    """A question is about a passage, and is a line of questions.jsonl."""

    id: str
    passage: str  # id of its passage
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
        """Return the text, or else the transcript."""
        return self.text or self.transcript

    @property
    def option_ids(self) -> tuple[str, ...]:
        """Return the ids under which units and transcripts of the options' recordings are kept."""
        return tuple(f"{self.id}:option-{i}" for i in range(len(self.options)))


@dataclass(frozen=True)
class Corpus:
    """A corpus in memory has the records of one split."""

    root: Path
    split: str
    passages: dict[str, Passage]
    questions: tuple[Question, ...]

    @property
    def language(self) -> str:
        """Return the language of the first passage; "en" where there is none."""
        return next((passage.language for passage in self.passages.values()), "en")

    @property
    def records(self) -> list[Passage | Question]:
        """List the passages, then the questions."""
        return [*self.passages.values(), *self.questions]

    @property
    def answerable(self) -> tuple[Question, ...]:
        """List the questions that their passages answer."""
        return tuple(q for q in self.questions if q.answers)

    @property
    def choices(self) -> tuple[Question, ...]:
        """List the multiple-choice questions."""
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
    """Locate an answer in the written text of its passage. Returns its characters [first, last) and
    "", or None and the reason why it cannot be located.

    An answer is located by its offset if the text has the answer there, and otherwise by its
    occurrence if there is only one (in English: in whole words).
    """
    text = answer.text.strip()
    if not text:
        return None, "answers that are empty"
    start = answer.char_start
    if start is not None and written.startswith(answer.text, start):
        return (start, start + len(answer.text)), ""
    offsets = find_occurrences(written, text, language)
    if not offsets:
        return None, "answers that do not occur in the passage"
    if len(offsets) > 1:
        return None, "answers without offset that occur several times"
    return (offsets[0], offsets[0] + len(text)), ""


def find_occurrences(written: str, text: str, language: str) -> list[int]:
    """Find the offsets of `text` in `written`. Occurrences may overlap; in English they begin and
    end with whole words."""

    def is_within_word(offset: int) -> bool:
        return written[offset - 1 : offset].isalnum() and written[offset : offset + 1].isalnum()

    offsets = [match.start() for match in re.finditer(f"(?={re.escape(text)})", written)]
    if language == "zh":
        return offsets
    return [o for o in offsets if not (is_within_word(o) or is_within_word(o + len(text)))]


def write_records(path: Path, records: Iterable[Passage | Question]) -> None:
    """Write a manifest; a killed run leaves the whole of it or nothing."""
    write_lines(path, (shorten_record(asdict(r)) for r in records))


def shorten_record(record: dict[str, Any]) -> dict[str, Any]:
    """Shorten a record for its line: times of words and phones are rounded, `correct` is a number
    where one option is right and null where none is, and empty fields that are RARE are left out.
    """
    for name in ("words", "phones"):
        record[name] = [[w.text, round(w.start, 5), round(w.end, 5)] for w in record[name]]
    correct = record.get("correct")
    if correct is not None and len(correct) < 2:
        record["correct"] = correct[0] if correct else None
    return {name: value for name, value in record.items() if value or name not in RARE}


def read_records(root: Path, path: Path, kind: type[R]) -> Iterator[tuple[str, R]]:
    """Yield ("FILE:LINE", record) for every line of a manifest of a corpus. kind: Passage or
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
        has_seconds = bool(values.get("seconds"))  # 0 is a length that is not known, too
        if not has_seconds:
            values["seconds"] = 0.0
        record = convert(values, kind, place, only=True)
        if record.id in ids:
            raise InputError(f"{place}: the id {record.id} occurs twice; make ids unique")
        ids.add(record.id)
        if "audio" not in values and not record.written:
            raise InputError(f"{place} has neither audio nor text; give it a recording")
        record = replace(record, audio=_find_audio(root, path, record.audio, place))
        if record.audio and not has_seconds:
            record = replace(record, seconds=measure_duration(root / record.audio))
        check_spans(record, place)
        for option in getattr(record, "option_audio", ()):
            _find_audio(root, path, option, place)
        yield place, record


def _find_audio(root: Path, manifest: Path, audio: str, place: str) -> str:
    """Return the path of a recording relative to the corpus, or absolute. audio: the path in the
    line, which may be relative to the manifest. Raises InputError for a path that leads out of the
    corpus, and for a missing file."""
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


def hash_data(root: Path | str, split: str) -> str:
    """Hash the manifests of a split. Everything made from the split states this hash, and is made
    again when it changes.

    Recordings are identified by their names in the manifest and are not hashed: recordings that
    change need new names or a new corpus.
    """
    # killed runs leave hidden manifests behind
    return hash_files(sorted((Path(root) / split).glob("[!.]*.jsonl")))


def collect_data_facts(made_from: Mapping[str, Any], start: Path | None = None) -> dict[str, Any]:
    """Collect the entries of a model's card about its data, which are hashes of splits.

    made_from: has the hash of the training split, `data`, and that of the split by which the
    checkpoint was chosen, if any, `eval_data`. start: the model from which training began, if any;
    the splits that it was trained on become `start_data`.
    """
    facts = {name: made_from[name] for name in ("data", "eval_data") if name in made_from}
    earlier = sorted(list_training_hashes(read_json(start / "card.json"))) if start else []
    if earlier:
        facts["start_data"] = earlier
    return facts


def list_training_hashes(card: Mapping[str, Any]) -> set[str]:
    """List the hashes of the splits that a model was trained on according to its card: those that
    `collect_data_facts` wrote, and in cards of shipped models that of the split of their units or
    corpora."""
    hashes = {card.get("data"), *(card.get("start_data") or ())}
    if isinstance(card.get("units"), dict):
        hashes.add(card["units"].get("corpus"))
    split = (card.get("options") or {}).get("split", "train")
    for corpus in (card.get("corpus"), card.get("start_corpus")):
        manifests = corpus.get("manifests") if isinstance(corpus, dict) else None
        if isinstance(manifests, dict):
            hashes.add(manifests.get(split))
    return {value for value in hashes if isinstance(value, str)}


def hash_questions(questions: Iterable[Question]) -> np.ndarray:
    """Hash the texts of questions, so that a question is recognised in any corpus. Returns the
    hashes, uint32, sorted, each once. Only the letters and digits of a text count, in lower case.
    """
    texts = ("".join(filter(str.isalnum, question.text.casefold())) for question in questions)
    return np.unique(np.array([zlib.crc32(t.encode()) for t in texts if t], np.uint32))


def read_corpus_card(root: Path | str) -> dict[str, Any]:
    """Read the card of a corpus. A corpus without a card is named after its folder. Raises
    InputError for a card that is not JSON."""
    card = Path(root) / "card.json"
    return dict(read_json(card)) if card.is_file() else {"corpus": Path(root).resolve().name}


def read_synthetic_note(root: Path | str) -> str:
    """Read from the card of a corpus the sentence below tables which says that the corpus is partly
    synthetic, or invented; "" for other corpora."""
    return write_synthetic_sentence(str(read_corpus_card(root).get("synthetic") or ""))


def write_synthetic_sentence(note: str) -> str:
    """Write `note`, the entry `synthetic` of a card, as a sentence; "" for an empty note. The note
    of a miniature without recordings says only that it is invented."""
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
    """Raise InputError for a question whose passage is missing, and for options or answer times
    that are impossible."""
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
            if start is None or end is None:
                if answer.text:
                    continue
                problem = "an answer has neither text nor start and end"
                break
            if start < end <= passage.seconds + TOLERANCE:
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


def check_spans(record: Passage | Question, place: str) -> None:
    """Raise InputError for words or phones that end before they begin, or more than PADDING after
    their recording."""
    for span in (*record.words, *record.phones):
        if record.seconds and not span.start <= span.end <= record.seconds + PADDING:
            unit = guess_unit([(span.end, record.seconds)])
            raise InputError(
                f"{place}: {span.text!r} is said from {span.start:g} to {span.end:g} s and the "
                f"recording lasts {record.seconds:.2f} s"
                + (f"; its times look like {unit}" if unit else "")
                + "; correct its times"
            )


# unit of time -> its number in a second
UNITS = {"frames of 20 ms": 50, "milliseconds": 1000, "samples at 16 kHz": 16_000}


def guess_unit(ends: Iterable[tuple[float, float]]) -> str:
    """Guess in which unit times were written by mistake: a unit in which all times lie in their
    recordings. Returns "" where there is no such unit, where the times may be seconds, or where a
    length is 0.

    ends: pairs of a time and the seconds of its recording.
    """
    ends = list(ends)
    if all(end <= 2 * seconds for end, seconds in ends) or not all(s for _, s in ends):
        return ""
    for unit, per_second in UNITS.items():
        if all(end / per_second <= seconds + TOLERANCE for end, seconds in ends):
            return unit
    return ""


def take_first_passages(corpus: Corpus, count: int | None) -> Corpus:
    """Take the first `count` passages of a corpus and their questions; None stands for all."""
    if count is None:
        return corpus
    passages = dict(list(corpus.passages.items())[:count])
    questions = tuple(q for q in corpus.questions if q.passage in passages)
    return replace(corpus, passages=passages, questions=questions)


# ---- speakers: a bootstrap interval resamples them where there are enough (`stats.choose_units`)


def find_voices(corpus: Corpus) -> dict[str, str]:
    """Return the speaker of every passage and question: id -> speaker. The speaker is "" where it
    is not known, and where it also occurs in the split `train` of the corpus."""
    training_voices = read_known_voices(corpus.root)
    return {r.id: hide_voice(r.speaker, training_voices) for r in corpus.records}


def read_known_voices(root: Path | str) -> frozenset[str]:
    """Read the speakers of the split `train` of a corpus; none where it has no such split.

    A system of spoken QA that was trained on that split knows these speakers. Speakers of other
    training data (of the encoder, or of another corpus) are not counted, because cards name data
    and not speakers.
    """
    return _read_speakers(Path(root) / "train", hash_data(root, "train"))


@lru_cache(8)
def _read_speakers(folder: Path, manifests: str) -> frozenset[str]:
    """Read the speakers of a split. manifests: their hash; when it changes, they are read again."""
    speakers: set[str] = set()
    for path in folder.glob("[!.]*.jsonl"):
        speakers |= {str(values.get("speaker") or "") for _, values in read_lines(path)}
    return frozenset(speakers - {""})


def choose_groups(
    corpus: Corpus, passages: Sequence[str], questions: Sequence[str] = ()
) -> BootstrapUnits:
    """Return the groups of items (speakers, or passages) that a bootstrap resamples.

    passages: for every item the id of its passage; questions: the ids of the items, if they are
    questions. The speakers of questions are then resampled as well as those of passages, because in
    noise they are the larger source of variance.
    """
    voices = find_voices(corpus)
    passage_voices = [voices[p] for p in passages]
    question_voices = [voices[q] for q in questions]
    return choose_units(passage_voices, passages, "passage", question_voices)


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number, object) of every line of a JSONL file that is not empty, one at a time.

    Raises InputError for a file that is no text, and for a line that is not a JSON object.
    """
    try:
        # not by splitlines, which would also split at U+0085 and U+2028 within a text
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
        if not isinstance(record, dict):
            raise ValueError("every line is one record")
    except ValueError as error:
        raise InputError(f"{place} is not a JSON object ({error}); correct the line") from error
    return record


def check_inside(root: Path, audio: str, place: str) -> None:
    """Raise InputError for a relative path that leads out of the root by `..`. An absolute path is
    allowed."""
    if ".." in audio and os.path.normpath(audio).split(os.sep)[0] == "..":
        raise InputError(
            f"{place} names {audio}, which leads out of {root}; move the file "
            "there, or give its absolute path"
        )
