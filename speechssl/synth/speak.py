"""Read passages, questions and options that have no audio by synthetic voices (`--speak`), and mark
them as synthetic.

Voices of espeak-ng are others in train, dev and test; flite and festival have the same few in every
split. One voice reads a passage, sentence by sentence; another reads a question and its options: by
the seed and the names of passage and question alone, so that a slice of a corpus sounds as the
whole does. Words get times, phones do not: they would be most of a manifest.
"""

from __future__ import annotations

import random
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.artifacts import read_json, write_json
from speechssl.audio import SAMPLE_RATE, resample, write_flac
from speechssl.data.files import safe_name
from speechssl.data.options import SpokenQA
from speechssl.data.prepare import PARTS, UNTIMED, PrepareReport, SplitRecords, run_parallel
from speechssl.data.records import Answer, Passage, Question, Span, locate
from speechssl.errors import MissingExtra
from speechssl.synth.minisqa import LANGUAGES, PAUSE, speakers, vocabulary
from speechssl.synth.synthesisers import Spoken, Voice, speak

# characters spoken at once: espeak-ng keeps the place of a word in a clause in 11 bits
LONGEST = 300

# ---- a text of any length read by one voice, sentence by sentence, with the time of every token
# that is written


@dataclass(frozen=True)
class Reading:
    """A text is read aloud. samples: (N,) float32 at 16 kHz. words, offsets and spoken are of the
    same tokens, in order."""

    samples: np.ndarray
    words: tuple[Span, ...]  # what is not spoken takes no time: start = end
    offsets: tuple[int, ...]  # of every token in the written text
    spoken: tuple[bool, ...]

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE

    def times(self, start: int, end: int) -> tuple[float, float] | None:
        """Return the seconds from the first to the last token spoken of the characters [start,
        end); None where none is."""
        inside = []
        for word, offset, spoken in zip(self.words, self.offsets, self.spoken, strict=True):
            if spoken and start < offset + len(word.text) and offset < end:
                inside.append(word)
        return (round(inside[0].start, 5), round(inside[-1].end, 5)) if inside else None


def read_aloud(text: str, voice: Voice, language: str) -> Reading:
    """Read a text, PAUSE seconds between its sentences. Raises ValueError where nothing in it can
    be spoken."""
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
        rate = spoken.sample_rate
        rest = round(PAUSE * rate) if part[-1].ends or part[-1] is words[-1] else 0
        pieces += [spoken.samples, np.zeros(rest, np.int16)]
        position += len(spoken.samples) + rest
    samples = resample(np.concatenate(pieces).astype(np.float32) / 32768, rate, SAMPLE_RATE)
    spans = [Span(w.text, a / rate, b / rate) for w, (a, b) in zip(words, marks, strict=True)]
    spoken_words = tuple(bool(w.spoken) for w in words)
    return Reading(samples, tuple(spans), tuple(w.start for w in words), spoken_words)


def _parts(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Split a text into sentences; one that is too long is cut after a comma where it has one in
    its second half, else between words."""
    part: list[Word] = []
    for word in words:
        if part and sum(len(w.spoken) + 2 for w in part) + len(word.spoken) > LONGEST:
            commas = [i for i, w in enumerate(part, 1) if w.pause and i > len(part) // 2]
            cut = commas[-1] if commas else len(part)
            yield part[:cut]
            part = part[cut:]
        part.append(word)
        if word.ends:
            yield part
            part = []
    if part:
        yield part


def _speak_part(
    part: Sequence[Word], voice: Voice, language: str
) -> tuple[Spoken, list[tuple[int, int]]]:
    """Speak one part. Returns the speech and the half-open time of every token, in samples of the
    synthesiser.

    A token begins with its first word event, and ends with its last phone before the next token
    begins.
    """
    text = ""  # what the synthesiser is given
    begins = []  # where in it the tokens begin that are spoken
    for word in part:
        if not word.spoken:
            text += word.pause if text[-1:].isalnum() else ""
            continue
        chinese = language == "zh" and text[-1:] >= "\u3000" and word.spoken[0] >= "\u3000"
        text += " " if text and not chinese else ""
        begins.append(len(text))
        text += word.spoken + word.pause
    spoken = speak(text, voice)
    total = len(spoken.samples)
    starts: dict[int, int] = {}
    for mark in spoken.words:  # in the order of the text: the first counts
        starts.setdefault(bisect_right(begins, mark.position) - 1, mark.start)
    # starts that never go back; a token without an event of its own begins half-way to the next
    # that has one
    edges: list[int] = []
    last = 0
    for i in range(len(begins)):
        later = next((starts[k] for k in range(i, len(begins)) if k in starts), total)
        start = later if i in starts else (last + max(later, last)) // 2
        last = min(max(start, last), total)
        edges.append(last)
    # "(en)": a change of language
    phones = [p for p in spoken.phones if p.text != "_" and not p.text.startswith("(")]
    phone_starts = [p.start for p in phones]
    spans: list[tuple[int, int]] = []
    for start, after in pairwise([*edges, total]):
        number = bisect_right(phone_starts, after - 1) - 1
        end = phones[number].end if number >= 0 and phones[number].end > start else after
        spans.append((start, max(start, min(end, after))))
    times: list[tuple[int, int]] = []
    for word in part:
        last = times[-1][1] if times else 0
        times.append(spans.pop(0) if word.spoken else (last, last))
    return spoken, times


def time_answer(
    answer: Answer, written: str, reading: Reading, language: str
) -> tuple[tuple[float, float] | None, str]:
    """Find the time of an answer in a reading of `written`, and why there is none ("" where there
    is)."""
    place, why = locate(answer, written, language)
    times = reading.times(*place) if place else None
    if times and times[1] > times[0]:
        return times, ""
    return None, why or "answers of which nothing can be spoken"


# ---- corpora: what is to be spoken, a passage with its questions at a time


@dataclass(frozen=True)
class _Group:
    """A group is a passage with those of its questions that have something to be spoken; also a
    questions' group of a passage with audio."""

    out: Path
    split: str
    passage: Passage
    questions: tuple[Question, ...]
    voices: Mapping[str, tuple[Voice, ...]]  # language -> who may read
    seed: int

    @property
    def part(self) -> Path:
        """The file that lists the speech, written last of all: it marks the group as done."""
        return self.out / self.split / PARTS / f"{safe_name(self.passage.id)}.json"

    def reader(self, name: str, language: str, other_than: str = "") -> Voice:
        """Draw a voice by the name of the record that is read. Raises ValueError where nobody
        speaks the language."""
        voices = self.voices.get(language)
        if not voices:
            raise ValueError(
                f"there are no voices for the language {language!r}; there are for "
                f"{', '.join(LANGUAGES)}"
            )
        others = [voice for voice in voices if voice.name != other_than] or voices
        return random.Random(f"{name} {self.seed}").choice(others)


def speak_drafts(
    o: SpokenQA, by_split: Mapping[str, SplitRecords], report: PrepareReport
) -> dict[str, SplitRecords]:
    """Give audio to every passage, question and option that has none; what cannot be spoken is set
    aside.

    The text is spoken, or the transcript where there is none. Answers in passages that are spoken
    get times. The recordings go to out/<split>/spoken; the same seed gives the same bytes on any
    number of workers, and a killed run goes on where it was.
    Raises MissingExtra or InputError where the synthesiser is not installed, or does not speak the
    language.
    """
    # raises at once, and not in every worker, where there is no synthesiser
    speak("a", speakers("en", "train", o.synthesiser)[0])
    groups = {split: _group(o, split, records) for split, records in by_split.items()}
    jobs: dict[Path, tuple[_Group]] = {}
    for some in groups.values():
        jobs |= {group.part: (group,) for group in some if not group.part.is_file()}
    run_parallel(_speak_group, jobs, o.workers, "synthesising", "passage")
    how = f"spoken by {o.synthesiser} (synthetic)"
    return {
        split: _merge_speech(split, records, groups[split], report, how)
        for split, records in by_split.items()
    }


def _group(o: SpokenQA, split: str, records: SplitRecords) -> list[_Group]:
    """Find the passages and questions of a split that have something to be spoken."""
    by_passage: dict[str, list[Question]] = {}
    for question in records.questions:
        by_passage.setdefault(question.passage, []).append(question)
    every: list[Passage | Question] = [*records.passages, *records.questions]
    languages = set(map(_language, every))
    voices = {
        language: speakers(language, voices_of(split), o.synthesiser)
        for language in sorted(languages & set(LANGUAGES))
    }
    groups = []
    for passage in records.passages:
        questions = []
        for q in by_passage.get(passage.id, ()):
            if not (passage.audio and q.audio) or (q.options and not q.option_audio):
                questions.append(q)
        if questions or not passage.audio:
            groups.append(_Group(o.out, split, passage, tuple(questions), voices, o.seed))
    return groups


def _language(record: Passage | Question) -> str:
    """Return "zh" of "zh-TW"."""
    return re.split("[-_]", record.language.lower())[0]


def voices_of(split: str) -> str:
    """Choose the split of MiniSQA whose voices speak a split: train, dev or test. Whatever is
    neither train nor dev is a test."""
    if split.lower().startswith("train"):
        return "train"
    return "dev" if split.lower().startswith(("dev", "val")) else "test"


# ---- synthesis, in one of many processes


def _speak_group(group: _Group) -> None:
    """Speak the recordings that are missing. A record of the part holds the fields that change, or
    the reason why it cannot be spoken."""
    passage, language = group.passage, _language(group.passage)
    record: dict[str, Any] = {}
    reading, remaining = None, group.questions
    if not passage.audio:
        try:
            voice = group.reader(passage.id, language)
            reading = read_aloud(passage.written, voice, language)
            record = _write_recording(group, reading, voice, f"passages/{safe_name(passage.id)}")
        except ValueError as error:
            record, remaining = {"reason": f"the passage cannot be spoken: {error}"}, ()
    reader = record.get("speaker", "")
    questions = {q.id: _speak_question(group, q, reader, reading) for q in remaining}
    write_json(group.part, {"passage": record, "questions": questions})


def _speak_question(
    group: _Group, question: Question, passage: str, reading: Reading | None
) -> dict[str, Any]:
    """Speak a question and its options. passage: the voice that reads it."""
    name, language = f"questions/{safe_name(question.id)}", _language(question)
    try:
        voice = group.reader(f"{group.passage.id} {question.id}", language, passage)
        spoken = None if question.audio else read_aloud(question.written, voice, language)
        silent = () if question.option_audio else question.options
        options = [read_aloud(option, voice, language) for option in silent]
    except ValueError as error:
        return {"reason": f"the question or one of its options cannot be spoken: {error}"}
    record = {} if spoken is None else _write_recording(group, spoken, voice, name)
    if options:
        record["option_audio"] = []
    for i, option in enumerate(options):
        audio = f"{group.split}/spoken/{name}.option-{i}.flac"
        record["option_audio"].append(audio)
        write_flac(group.out / audio, option.samples)
    if reading is not None:
        written, language = group.passage.written, _language(group.passage)
        record["answers"] = [
            time_answer(answer, written, reading, language) for answer in question.answers
        ]
    return record


def _write_recording(group: _Group, reading: Reading, voice: Voice, name: str) -> dict[str, Any]:
    audio = f"{group.split}/spoken/{name}.flac"
    write_flac(group.out / audio, reading.samples)
    words = [[w.text, round(w.start, 5), round(w.end, 5)] for w in reading.words]
    return {"audio": audio, "seconds": reading.seconds, "speaker": voice.name, "words": words}


def _merge_speech(
    split: str, records: SplitRecords, groups: Sequence[_Group], report: PrepareReport, how: str
) -> SplitRecords:
    """Return the records with audio, without those that could not be spoken. how: for the
    report."""
    of_passages: dict[str, dict[str, Any]] = {}
    of_questions: dict[str, dict[str, Any]] = {}
    for group in groups:
        part = read_json(group.part)
        of_passages[group.passage.id] = part["passage"]
        of_questions |= part["questions"]
    passages, questions = [], []
    for passage in records.passages:
        spoken = of_passages.get(passage.id, {})
        if "reason" in spoken:
            report.set_aside(split, "passages", passage.id, spoken["reason"])
        else:
            passages.append(replace(passage, **_changed_fields(spoken)))
    names = {p.id for p in passages}
    for question in records.questions:
        spoken = of_questions.get(question.id, {})
        if question.passage not in names:
            report.set_aside(split, "questions", question.id, "its passage cannot be spoken")
        elif "reason" in spoken:
            report.set_aside(split, "questions", question.id, spoken["reason"])
        else:
            answers = list(question.answers)
            # with the times they have in the passage, where that was spoken
            for i, (times, _) in enumerate(spoken.get("answers", ())):
                start, end = times or (None, None)
                answers[i] = replace(answers[i], start=start, end=end)
            changed = _changed_fields(spoken)
            questions.append(replace(question, **changed, answers=tuple(answers)))
    for kind, made in (("passages", of_passages), ("questions", of_questions)):
        for record in made.values():
            if "audio" in record:
                report.remark(split, f"{kind} without audio", how)
            if "option_audio" in record:
                report.remark(split, "options without audio", how, len(record["option_audio"]))
            for _, why in record.get("answers", ()):
                if why:
                    report.remark(split, why, UNTIMED)
    return SplitRecords(passages, questions)


def _changed_fields(spoken: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record that synthesis gave it."""
    fields = {name: spoken[name] for name in ("audio", "seconds", "speaker") if name in spoken}
    if "words" in spoken:
        fields |= {"words": tuple(Span(*word) for word in spoken["words"]), "phones": ()}
    if "option_audio" in spoken:
        fields["option_audio"] = tuple(spoken["option_audio"])
    return fields | ({"synthetic": True} if fields else {})


# ---- text normalisation for synthesis, token by token: what is spoken changes, the written text
# never does
#
# espeak-ng reads no years (1922 as nineteen hundred twenty two), and % in English in the middle of
# Mandarin. Brackets, quotation marks and letters of other scripts are not spoken (but one alone is,
# by its name: "α" alpha). English numerals are those of num2words. Mandarin's are our own: from
# 10^8 on cn2an leaves out the 零 of a gap (100001001) and reads 万亿 as 万, so that spoken corpora
# would change. espeak-ng's Mandarin reads traditional characters as it does simplified ones, but
# spells the syllables xiong, qiong and jiong and 兒 in English letters: `_MISREAD` gives it what
# sounds like them.

_DIGITS = "零一二三四五六七八九"
LONGEST_NUMBER = 15  # digits that are still read as a number


def cardinal(digits: str) -> str:
    """Spell out a number: "1024" -> "one thousand twenty four"; one that is no number digit by
    digit."""
    return _digit_by_digit(digits) if _is_code(digits) else _numeral(int(digits), "cardinal")


def _is_code(digits: str) -> bool:
    """Tell digits with a leading zero, or more than LONGEST_NUMBER, from a number."""
    return len(digits) > LONGEST_NUMBER or (len(digits) > 1 and digits[0] == "0")


def _digit_by_digit(digits: str) -> str:
    return " ".join(_numeral(int(d), "cardinal") for d in digits)


@cache
def _numeral(number: int, to: str) -> str:
    """Spell out a number by num2words. Raises MissingExtra without num2words."""
    try:
        from num2words import num2words  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtra("reading numbers aloud", "synth") from error
    return str(num2words(number, to=to)).replace(" and ", " ").replace(",", "").replace("-", " ")


def year(digits: str) -> str:
    """Spell out four digits as a year where they may be one (1100 to 2099), else as a number."""
    return _numeral(int(digits), "year") if 1100 <= int(digits) < 2100 else cardinal(digits)


def plural(words: str) -> str:
    """Spell out a decade: "nineteen ninety" -> "nineteen nineties"."""
    return words[:-1] + "ies" if words.endswith("ty") else words + "s"


def ordinal(digits: str) -> str:
    """Spell out an ordinal: "19" -> "nineteenth"."""
    if _is_code(digits):
        return f"{_digit_by_digit(digits[:-1])} {_numeral(int(digits[-1]), 'ordinal')}"
    return _numeral(int(digits), "ordinal")


def mandarin_digits(digits: str) -> str:
    """Spell out digits, "1990" -> "一九九零": years, telephone numbers, decimal places."""
    return "".join(_DIGITS[int(d)] for d in digits)


def mandarin(digits: str) -> str:
    """Spell out a number: "1024" -> "一千零二十四"; one that is no number digit by digit."""
    if _is_code(digits):
        return mandarin_digits(digits)
    spoken = _mandarin(int(digits))
    return spoken[1:] if spoken.startswith("一十") else spoken


def _mandarin(number: int) -> str:
    """Spell out groups of four digits: 萬, 億, 萬億."""
    for size, name in ((10**12, "万亿"), (10**8, "亿"), (10**4, "万")):
        if number >= size:
            rest = number % size
            gap = "零" if 0 < rest < size // 10 else ""
            return _mandarin(number // size) + name + gap + (_mandarin(rest) if rest else "")
    spoken, gap = "", ""
    for size, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, number = divmod(number, size)
        if digit:
            spoken, gap = spoken + gap + _DIGITS[digit] + name, ""
        elif spoken:
            gap = "零"
    return spoken or _DIGITS[0]


HAN = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_LETTER = rf"(?![{HAN}])[^\W_]"
_ZH_TOKEN = re.compile(
    rf"[{HAN}]|{_LETTER}(?:(?:{_LETTER}|[.．,:'’&@/+_％%-])*(?:{_LETTER}|[%％]))?|(?:(?!{_LETTER})[^\s{HAN}])+"
)
_EN_TOKEN = re.compile(r"\S+")

_TABLES = vocabulary("reading.yaml")  # which says what they are
_CURRENCIES: dict[str, str] = _TABLES["currencies"]
_SYMBOLS: dict[str, str] = _TABLES["symbols"] | _CURRENCIES
_MISREAD = {
    character: spoken
    for spoken, characters in _TABLES["misread"].items()
    for character in characters
}
_PLAIN = str.maketrans(
    {
        **dict.fromkeys("’‘ʼ′", "'"),
        **dict.fromkeys("“”", '"'),
        **dict.fromkeys("–−‐‑", "-"),
        "—": "--",
    }
)
# marks that sound alike: what is spoken for them, in English and in Mandarin
_PAUSES = {
    "?？": ("?", "？"),
    "!！": ("!", "！"),
    ".。…;；": (".", "。"),
    ",，、:：-()": (",", "，"),
}
_RAISED = re.compile(r"(?<=\d)(?=[⁰¹²³⁴-⁹⁻¼-¾⅐-⅞])")  # 5½ is not 51/2, nor 10² 102
_ENDS = re.compile(r"[.!?…。！？；;][\"'”’」』）)\]》]*$")
_LINE_END = re.compile(r"\s*\n")
_NUMBER = re.compile(
    r"""(?P<money>[$£€¥])?(?P<digits>\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:(?<![a-z])\.(?P<places>\d+))?
        (?:(?P<ordinal>(?:st|nd|rd|th)(?![a-z]))|(?P<decade>'?s(?![a-z]))|(?P<percent>%))?""",
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True)
class Word:
    """A word is a token of the written text. spoken: the text that the synthesiser is given for it,
    "" where nothing can be spoken."""

    text: str
    start: int  # offset in the written text
    spoken: str
    pause: str = ""  # punctuation to speak after it
    ends: bool = False  # a sentence


def normalise(text: str, language: str) -> list[Word]:
    """Split a text, en or zh, into all its tokens. en: separated by white space; zh: characters,
    Latin runs, punctuation.

    A sentence ends at . ! ? … ; and at a line break, but not at an abbreviation.
    """
    chinese = language == "zh"
    tokens = [(m.start(), m.group()) for m in (_ZH_TOKEN if chinese else _EN_TOKEN).finditer(text)]
    plain = []
    for _, token in tokens:
        folded = unicodedata.normalize("NFKC", _RAISED.sub(" ", token))
        plain.append(folded.translate(_PLAIN))
    words: list[Word] = []
    for i, (start, token) in enumerate(tokens):
        core = plain[i].strip("\"'()[]")  # Dr., J. or U.S., whose points end no sentence
        initials = re.fullmatch(r"(?:[A-Za-z]\.)+", core)
        short = core.endswith(".") and bool(initials or _expanded(plain, i))
        line_ends = _LINE_END.match(text, start + len(token))
        ends = bool(line_ends or (_ENDS.search(plain[i]) and not short))
        spoken = (_mandarin_token if chinese else _english_token)(plain, i)
        words.append(Word(token, start, spoken, "" if short else _pause(plain[i], chinese), ends))
    return words


def _expanded(tokens: Sequence[str], i: int) -> str:
    """Expand an abbreviation; "" for other tokens. "No." is one before a number, "St." before a
    name."""
    core, after = tokens[i].strip("\"'()[],;:?!"), tokens[i + 1] if i + 1 < len(tokens) else ""
    name = core[:-1].lower()
    if not core.endswith(".") or name not in _TABLES["abbreviations"]:
        return ""
    follows = after[:1].isdigit() if name == "no" else after[:1].isupper()
    if name in _TABLES["also_words"] and not (core[:1].isupper() and follows):
        return ""
    return _TABLES["abbreviations"][name]


def _pause(token: str, chinese: bool) -> str:
    """Return the punctuation that changes how it is spoken, of a token that ends in some."""
    marks = re.split(r"[\w%]", token)[-1]
    for alike, (plain, wide) in _PAUSES.items():
        if any(mark in alike for mark in marks):
            return wide if chinese else plain
    return ""


def _english_token(tokens: Sequence[str], i: int) -> str:
    token = tokens[i].strip('"()[]{}*_|~^`\\')
    before, after = (tokens[i - 1] if i else ""), (tokens[i + 1] if i + 1 < len(tokens) else "")
    core = token.strip(".,;:?!…-").lower()
    whole = _expanded(tokens, i) or _TABLES["roman"].get(token.strip(".,;:?!'"))
    if whole:
        return str(whole)
    if core in _TABLES["scales"] and before[:1] in _CURRENCIES and any(map(str.isdigit, before)):
        return f"{core} {_CURRENCIES[before[0]]}"  # $25 million
    if re.fullmatch(r"(?:[A-Za-z]\.)+[A-Za-z]?", token.rstrip(",;:?!")):
        return " ".join(re.findall("[A-Za-z]", token))
    token = re.sub(r"^-(?=\d)", "minus ", token.replace("--", " "))
    token = re.sub(r"(?<=[\d%])-(?=\d)", " to ", token)
    token = re.sub(r"(?<=\d) (?=\d+⁄)", " and ", token)
    token = re.sub(r"(\d+)⁄(\d+)", lambda m: _fraction(m[1], m[2]), token)
    token = re.sub(r"(?<=\d):(?=\d)|[/\\]", " ", token)
    scaled = after.strip(".,;:?!").lower() in _TABLES["scales"]
    return _letters(_NUMBER.sub(lambda m: _number(m, scaled), token))


def _fraction(above: str, below: str) -> str:
    """Spell out a fraction: "3", "4" -> "three quarters"."""
    part = {"2": "half", "4": "quarter"}.get(below) or ordinal(below)
    if int(above) != 1:
        part = "halves" if part == "half" else f"{part}s"
    return f"{cardinal(above)} {part}"


def _number(match: re.Match[str], scaled: bool) -> str:
    digits, places = (match["digits"] or "").replace(",", ""), match["places"]
    if not digits and not places:
        return match.group()
    if places:
        # "3", "14": three point one four
        spoken = f"{cardinal(digits or '0')} point {_digit_by_digit(places)}"
    elif match["ordinal"]:
        spoken = ordinal(digits)
    elif len(match["digits"]) == 4 and not match["money"] and not match["percent"]:
        spoken = year(digits)
    else:
        spoken = cardinal(digits)
    if match["decade"]:
        spoken = plural(spoken) if digits.endswith("0") else f"{spoken}'s"
    money = "" if scaled or not match["money"] else _CURRENCIES[match["money"]]
    money = money.removesuffix("s") if spoken == "one" else money
    return f" {spoken} {'percent' if match['percent'] else ''} {money} "


def _letters(text: str) -> str:
    """Keep Latin letters, apostrophes and hyphens within words; symbols by name, single letters of
    other scripts too."""
    text = "".join(f" {_SYMBOLS[c]} " if c in _SYMBOLS else c for c in text)
    plain = ""
    for c in text:
        if c < "\u0100":
            plain += c
        else:  # without the accents that Latin-1 lacks: espeak-ng's English reads é, and names ş
            plain += "".join(filter(str.isalnum, unicodedata.normalize("NFKD", c)))
    pieces = re.findall(r"[^\W\d_]+(?:['.-][^\W\d_]+)*'?|\d+", plain)
    return " ".join(filter(None, map(_word, pieces)))


def _word(piece: str) -> str:
    if piece.isdecimal():  # digits of another script
        return cardinal("".join(str(int(d)) for d in piece))
    if all(c < "\u0250" for c in piece):
        return piece.strip("'") if re.search(r"[a-zA-Z]", piece) is None else piece.lstrip("'")
    if "-" in piece:
        return " ".join(filter(None, map(_word, piece.split("-"))))
    name = unicodedata.name(piece, "") if len(piece) == 1 else ""
    if name.startswith(("GREEK", "CYRILLIC", "HEBREW")):
        return name.split()[-1].lower()
    return ""


def _mandarin_token(tokens: Sequence[str], i: int) -> str:
    token, after = tokens[i], tokens[i + 1] if i + 1 < len(tokens) else ""
    if re.fullmatch(rf"[{HAN}]", token):
        return "" if token > "\uffff" else _MISREAD.get(token, token)
    # 二○○三, a circle for 〇
    if tokens[i - 1 : i] and tokens[i - 1] in _DIGITS and re.fullmatch("○+", token):
        return "零" * len(token)
    token = re.sub(r"\d", lambda m: str(int(m[0])), token)  # of other scripts
    token = token.replace("°C", "摄氏度").replace("°F", "华氏度")
    token = re.sub(r"^-(?=\d)", "负", token)
    token = re.sub(r"(?<=[\d%])[-~](?=\d)", "到", token)
    token = re.sub(r"(?<=\d):(?=\d)", "比", token)
    token = re.sub(r"(\d),(?=\d{3})", r"\1", token)
    token = re.sub(r"(\d+(?:\.\d+)?)%", r"百分之\1", token)
    token = re.sub(r"(?<=\d) (?=\d+⁄)", "又", token)
    token = re.sub(r"(\d+)[/⁄](\d+)", r"\2分之\1", token)
    token = re.sub(r"(\d+)\.(\d+)", lambda m: f"{mandarin(m[1])}点{mandarin_digits(m[2])}", token)
    years = re.fullmatch(r"(?:1\d{3}|20\d{2})(?:到(?:1\d{3}|20\d{2}))?", token)
    spell = mandarin_digits if after == "年" and years else mandarin
    token = re.sub(r"\d+", lambda m: spell(m[0]), token)
    token = "".join(_TABLES["zh_symbols"].get(c, c) for c in token)
    return " ".join(re.findall(rf"[{HAN}]+|[A-Za-zÀ-ÖØ-öø-ÿ]+(?:'[a-z]+)?|[α-ωΑ-Ω]", token))
