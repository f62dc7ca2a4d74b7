"""`--speak`: passages, questions and options that have no audio are read by synthetic voices, and marked as synthetic.

Voices of espeak-ng are others in train, dev and test; flite and festival have the same few in every split. One voice reads a
passage, sentence by sentence; another reads a question and its options: by the seed and the names of passage and question alone, so
that a slice of a corpus sounds as the whole does. Words get times, phones do not: they would be most of a manifest.
"""

from __future__ import annotations

import random
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.audio import SAMPLE_RATE, resample, write_flac
from speechssl.data.files import safe_name
from speechssl.data.prepare import PARTS, UNTIMED, PrepareReport, SplitRecords, in_parallel
from speechssl.data.records import Answer, Passage, Question, Span, locate
from speechssl.io import hash_json, read_json, write_json
from speechssl.synth.minisqa import ESPEAK, LANGUAGES, PAUSE, speakers
from speechssl.synth.normalise import Word, normalise
from speechssl.synth.synthesisers import Spoken, Voice, speak

LONGEST = 300  # characters spoken at once: espeak-ng keeps the place of a word in a clause in 11 bits
VERSION = 2  # of how texts are read; parts of another version are spoken again

# ---- a text of any length read by one voice, sentence by sentence, with the time of every token that is written


@dataclass(frozen=True)
class Reading:
    """samples: (N,) float32 at 16 kHz. words, offsets and spoken are of the same tokens, in order."""

    samples: np.ndarray
    words: tuple[Span, ...]  # what is not spoken takes no time: start = end
    offsets: tuple[int, ...]  # of every token in the written text
    spoken: tuple[bool, ...]

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE

    @property
    def skipped(self) -> int:
        """Tokens with letters or digits that no voice can read."""
        return sum(not spoken and any(map(str.isalnum, w.text)) for w, spoken in zip(self.words, self.spoken, strict=True))

    def times(self, start: int, end: int) -> tuple[float, float] | None:
        """Seconds from the first to the last token spoken of the characters [start, end); None where none is."""
        tokens = zip(self.words, self.offsets, self.spoken, strict=True)
        inside = [w for w, offset, spoken in tokens if spoken and start < offset + len(w.text) and offset < end]
        return (round(inside[0].start, 5), round(inside[-1].end, 5)) if inside else None


def read_aloud(text: str, voice: Voice, language: str) -> Reading:
    """Read a text, PAUSE seconds between its sentences. Raises ValueError where nothing in it can be spoken."""
    words = normalise(text, language)
    if not any(word.spoken for word in words):
        raise ValueError("nothing in it can be spoken" if text.strip() else "it is empty")
    pieces: list[np.ndarray] = []
    marks: list[tuple[int, int]] = []
    position, rate = 0, 1
    for part in _parts(words):
        if not any(word.spoken for word in part):
            marks += [(position, position)] * len(part)
            continue
        spoken, times = _speak_part(part, voice, language)
        marks += [(position + a, position + b) for a, b in times]
        rest = round(PAUSE * spoken.sample_rate) if part[-1].ends or part[-1] is words[-1] else 0
        pieces += [spoken.samples, np.zeros(rest, np.int16)]
        position, rate = position + len(spoken.samples) + rest, spoken.sample_rate
    samples = resample(np.concatenate(pieces).astype(np.float32) / 32768, rate, SAMPLE_RATE)
    spans = tuple(Span(word.text, a / rate, b / rate) for word, (a, b) in zip(words, marks, strict=True))
    return Reading(samples, spans, tuple(w.start for w in words), tuple(bool(w.spoken) for w in words))


def _parts(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Sentences; one that is too long is cut after a comma where it has one in its second half, else between words."""
    part: list[Word] = []
    for word in words:
        if part and sum(len(w.spoken) + 2 for w in part) + len(word.spoken) > LONGEST:
            cut = max((i for i, w in enumerate(part, 1) if w.pause and i > len(part) // 2), default=len(part))
            yield part[:cut]
            part = part[cut:]
        part.append(word)
        if word.ends:
            yield part
            part = []
    if part:
        yield part


def _speak_part(part: Sequence[Word], voice: Voice, language: str) -> tuple[Spoken, list[tuple[int, int]]]:
    """Speak one part. Returns the speech and the half-open time of every token, in samples of the synthesiser.

    A token begins with its first word event, and ends with its last phone before the next token begins.
    """
    # what the synthesiser is given, and where in it each token begins; None for tokens that are not spoken
    text = ""
    places: list[int | None] = []
    for word in part:
        if not word.spoken:
            text += word.pause if text and text[-1].isalnum() else ""
            places.append(None)
            continue
        chinese = language == "zh" and text[-1:] >= "\u3000" and word.spoken[0] >= "\u3000"  # with its punctuation
        apart = " " if text and not chinese else ""
        places.append(len(text) + len(apart))
        text += apart + word.spoken + word.pause
    spoken = speak(text, voice)
    total, begins = len(spoken.samples), [place for place in places if place is not None]
    starts: dict[int, int] = {}
    for mark in spoken.words:  # in the order of the text: the first counts
        starts.setdefault(bisect_right(begins, mark.position) - 1, mark.start)
    # starts that never go back; a token without an event of its own begins half-way to the next that has one
    edges: list[int] = []
    last = 0
    for i in range(len(begins)):
        if (start := starts.get(i)) is None:
            later = next((starts[k] for k in range(i + 1, len(begins)) if k in starts), total)
            start = (last + max(later, last)) // 2
        last = min(max(start, last), total)
        edges.append(last)
    # ends: of the last phone that begins in a token, and before the next one begins
    phones = [p for p in spoken.phones if p.text != "_" and not p.text.startswith("(")]  # "(en)": a change of language
    phone_starts = [p.start for p in phones]
    own: list[tuple[int, int]] = []
    for start, after in zip(edges, [*edges[1:], total], strict=True):
        number = bisect_right(phone_starts, after - 1) - 1
        end = phones[number].end if number >= 0 and phones[number].end > start else after
        own.append((start, max(start, min(end, after))))
    times: list[tuple[int, int]] = []
    for place in places:
        last = times[-1][1] if times else 0
        times.append((last, last) if place is None else own.pop(0))
    return spoken, times


def timed(answer: Answer, written: str, reading: Reading, language: str) -> tuple[tuple[float, float] | None, str]:
    """The time of an answer in a reading of `written`, and why there is none ("" where there is)."""
    place, why = locate(answer, written, language)
    times = reading.times(*place) if place else None
    return (times, "") if times and times[1] > times[0] else (None, why or "answers of which nothing can be spoken")


# ---- corpora: what is to be spoken, a passage with its questions at a time


@dataclass(frozen=True)
class _Group:
    """A passage with those of its questions that have something to be spoken; also a questions' group of a passage with audio."""

    out: Path
    split: str
    passage: Passage
    questions: tuple[Question, ...]
    voices: Mapping[str, tuple[Voice, ...]]  # language -> who may read
    seed: int

    @property
    def part(self) -> Path:
        """Where what was spoken is written down, last of all: it marks the group as done."""
        return self.out / self.split / PARTS / f"{safe_name(self.passage.id)}.json"

    @property
    def made_from(self) -> str:
        voices = {language: list(map(asdict, some)) for language, some in self.voices.items()}
        return hash_json([VERSION, self.seed, voices, asdict(self.passage), list(map(asdict, self.questions))])

    @property
    def done(self) -> bool:
        """Whether it was spoken, from the same texts by the same voices, and the recordings are there."""
        if not self.part.is_file():
            return False
        part = read_json(self.part)
        records = [part["passage"], *part["questions"].values()]
        paths = [a for r in records for a in (*filter(None, [r.get("audio")]), *r.get("option_audio", ()))]
        return bool(part["made_from"] == self.made_from) and all((self.out / path).is_file() for path in paths)

    def reader(self, name: str, language: str, other_than: str = "") -> Voice:
        """Drawn by the name of what is read. Raises ValueError where nobody speaks the language."""
        if not (some := self.voices.get(language)):
            raise ValueError(f"there are no voices for the language {language!r}; there are for {', '.join(LANGUAGES)}")
        others = [voice for voice in some if voice.name != other_than] or some
        return random.Random(f"{name} {self.seed}").choice(others)


def speak_drafts(
    out: Path,
    by_split: Mapping[str, SplitRecords],
    report: PrepareReport,
    seed: int = 0,
    workers: int = 1,
    synthesiser: str = ESPEAK,
) -> dict[str, SplitRecords]:
    """Give audio to every passage, question and option that has none; what cannot be spoken is set aside.

    The text is spoken, or the transcript where there is none. Answers in passages that are spoken get times. The recordings go to
    out/<split>/spoken; the same seed gives the same bytes on any number of workers, and a killed run goes on where it was.
    Raises MissingExtra or InputError where the synthesiser is not installed, or does not speak the language.
    """
    speak("a", speakers("en", "train", synthesiser)[0])  # raises at once, and not in every worker, where there is no synthesiser
    groups: dict[str, list[_Group]] = {}
    for split, records in by_split.items():
        asked: dict[str, list[Question]] = {}
        for question in records.questions:
            asked.setdefault(question.passage, []).append(question)
        every: list[Passage | Question] = [*records.passages, *records.questions]
        languages = sorted({_language(r) for r in every} & set(LANGUAGES))
        readers = {language: speakers(language, voices_of(split), synthesiser) for language in languages}
        groups[split] = []
        for passage in records.passages:
            own = asked.get(passage.id, ())
            questions = tuple(q for q in own if not passage.audio or not q.audio or (q.options and not q.option_audio))
            if not passage.audio or questions:
                groups[split].append(_Group(out, split, passage, questions, readers, seed))
    jobs = {group.part: (group,) for some in groups.values() for group in some if not group.done}
    in_parallel(_speak_group, jobs, workers, "synthesising", "passage")
    done = f"spoken by {synthesiser} (synthetic)"
    return {split: _spoken(split, records, groups[split], report, done) for split, records in by_split.items()}


def _language(record: Passage | Question) -> str:
    """ "zh" of "zh-TW"."""
    return re.split("[-_]", record.language.lower())[0]


def voices_of(split: str) -> str:
    """The split of MiniSQA whose voices speak a split: train, dev or test. Whatever is neither train nor dev is a test."""
    for name, prefixes in (("train", ("train",)), ("dev", ("dev", "val"))):
        if split.lower().startswith(prefixes):
            return name
    return "test"


# ---- synthesis, in one of many processes


def _speak_group(group: _Group) -> None:
    """Speak what is missing. A record of the part holds the fields that change, or the reason why it cannot be spoken."""
    passage, language = group.passage, _language(group.passage)
    record: dict[str, Any] = {}
    reading, asked = None, group.questions
    if not passage.audio:
        try:
            voice = group.reader(passage.id, language)
            reading = read_aloud(passage.written, voice, language)
        except ValueError as error:
            record, asked = {"reason": f"the passage cannot be spoken: {error}"}, ()
        else:
            record = _recorded(group, reading, voice, f"passages/{safe_name(passage.id)}")
    questions = {q.id: _speak_question(group, q, record.get("speaker", ""), reading) for q in asked}
    write_json(group.part, {"made_from": group.made_from, "passage": record, "questions": questions})


def _speak_question(group: _Group, question: Question, passage: str, reading: Reading | None) -> dict[str, Any]:
    """passage: who reads it."""
    name, language = f"questions/{safe_name(question.id)}", _language(question)
    try:
        voice = group.reader(f"{group.passage.id} {question.id}", language, passage)
        asked = None if question.audio else read_aloud(question.written, voice, language)
        options = [] if question.option_audio else [read_aloud(option, voice, language) for option in question.options]
    except ValueError as error:
        return {"reason": f"the question or one of its options cannot be spoken: {error}"}
    record = {} if asked is None else _recorded(group, asked, voice, name)
    if options:
        record["option_audio"] = [f"{group.split}/spoken/{name}.option-{i}.flac" for i in range(len(options))]
        for audio, option in zip(record["option_audio"], options, strict=True):
            write_flac(group.out / audio, option.samples)
        record["skipped"] = record.get("skipped", 0) + sum(option.skipped for option in options)
    if reading is not None:
        written, language = group.passage.written, _language(group.passage)
        record["answers"] = [timed(answer, written, reading, language) for answer in question.answers]
    return record


def _recorded(group: _Group, reading: Reading, voice: Voice, name: str) -> dict[str, Any]:
    audio = f"{group.split}/spoken/{name}.flac"
    write_flac(group.out / audio, reading.samples)
    words = [[w.text, round(w.start, 5), round(w.end, 5)] for w in reading.words]
    return {"audio": audio, "seconds": reading.seconds, "speaker": voice.name, "words": words, "skipped": reading.skipped}


def _spoken(split: str, records: SplitRecords, groups: Sequence[_Group], report: PrepareReport, done: str) -> SplitRecords:
    """The records with audio, without what could not be spoken. done: how, for the report."""
    parts = [read_json(group.part) for group in groups]
    readings = {group.passage.id: part["passage"] for group, part in zip(groups, parts, strict=True)}
    askings = {name: record for part in parts for name, record in part["questions"].items()}
    passages, questions = [], []
    for passage in records.passages:
        if "reason" in (spoken := readings.get(passage.id, {})):
            report.set_aside(split, "passages", passage.id, spoken["reason"])
        else:
            passages.append(replace(passage, **_changed(spoken)))
    names = {p.id for p in passages}
    for question in records.questions:
        spoken = askings.get(question.id, {})
        reason = spoken.get("reason") if question.passage in names else "its passage cannot be spoken"
        if reason:
            report.set_aside(split, "questions", question.id, reason)
        else:
            answers = question.answers
            if "answers" in spoken:  # with the times they have in the passage, where that was spoken
                times = [time or (None, None) for time, _ in spoken["answers"]]
                answers = tuple(replace(a, start=b, end=e) for a, (b, e) in zip(answers, times, strict=True))
            questions.append(replace(question, **_changed(spoken), answers=answers))
    counts: Counter[tuple[str, str]] = Counter()
    for record in [*readings.values(), *askings.values()]:
        kind = "passages" if "/passages/" in record.get("audio", "") else "questions"
        counts[f"{kind} without audio", done] += "audio" in record
        counts["options without audio", done] += len(record.get("option_audio", ()))
        counts["words that no voice can read", "kept in the text, not spoken"] += record.get("skipped", 0)
        for _, why in record.get("answers", ()):
            counts[why, UNTIMED] += bool(why)
    for (what, how), number in counts.items():
        if number:
            report.remark(split, what, how, number)
    return SplitRecords(passages, questions)


def _changed(spoken: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record that synthesis gave it."""
    fields = {name: spoken[name] for name in ("audio", "seconds", "speaker") if name in spoken}
    if "words" in spoken:
        fields |= {"words": tuple(Span(*word) for word in spoken["words"]), "phones": ()}
    if "option_audio" in spoken:
        fields["option_audio"] = tuple(spoken["option_audio"])
    return fields | ({"synthetic": True} if fields else {})
