"""Read passages, questions and options that have no audio by synthetic voices (`--speak`), and mark
them as synthetic.

train, dev and test have different voices of espeak-ng; flite and festival have the same few voices
in every split. One voice reads a passage, sentence by sentence; another reads a question and its
options. Voices are drawn by the seed and the ids of passage and question alone, so that a slice of
a corpus sounds as the whole does. Words get times; phones do not, since they would be most of a
manifest.
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
MAX_CHARACTERS = 300

# ---- a text of any length is read by one voice, and each of its tokens gets a time


@dataclass(frozen=True)
class Reading:
    """A reading is a text that was read aloud. Words, offsets and `spoken` are those of its tokens,
    in order."""

    samples: np.ndarray  # (N,) float32 at 16 kHz
    words: tuple[Span, ...]  # a token that is not spoken takes no time: start = end
    offsets: tuple[int, ...]  # in the text
    spoken: tuple[bool, ...]  # whether the token is spoken: a dash is not

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE

    def times(self, start: int, end: int) -> tuple[float, float] | None:
        """Return the time from the first to the last spoken token of the characters [start, end);
        None where none of them is spoken."""
        inside = []
        for word, offset, spoken in zip(self.words, self.offsets, self.spoken, strict=True):
            if spoken and start < offset + len(word.text) and offset < end:
                inside.append(word)
        return (round(inside[0].start, 5), round(inside[-1].end, 5)) if inside else None


def read_aloud(text: str, voice: Voice, language: str) -> Reading:
    """Read a text, with PAUSE seconds between its sentences. Raises ValueError where nothing in it
    can be spoken."""
    words = normalise(text, language)
    if not any(word.spoken for word in words):
        raise ValueError("nothing in it can be spoken" if text.strip() else "it is empty")
    pieces: list[np.ndarray] = []
    times: list[tuple[int, int]] = []  # of every token, in samples of the synthesiser
    position, rate = 0, 1
    for part in _split_parts(words):
        if not any(word.spoken for word in part):
            times += [(position, position)] * len(part)
            continue
        spoken, part_times = _speak_part(part, voice, language)
        times += [(position + start, position + end) for start, end in part_times]
        rate = spoken.sample_rate
        ends_sentence = part[-1].ends or part[-1] is words[-1]
        pause = round(PAUSE * rate) if ends_sentence else 0
        pieces += [spoken.samples, np.zeros(pause, np.int16)]
        position += len(spoken.samples) + pause
    samples = resample(np.concatenate(pieces).astype(np.float32) / 32768, rate, SAMPLE_RATE)
    spans = [Span(w.text, a / rate, b / rate) for w, (a, b) in zip(words, times, strict=True)]
    offsets = tuple(word.start for word in words)
    return Reading(samples, tuple(spans), offsets, tuple(bool(word.spoken) for word in words))


def _split_parts(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Split a text into sentences. One of more than MAX_CHARACTERS is cut after the last comma in
    the second half of its part so far, or else between words."""
    part: list[Word] = []
    for word in words:
        if part and sum(len(w.spoken) + 2 for w in part) + len(word.spoken) > MAX_CHARACTERS:
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
    text = ""  # for the synthesiser
    begins = []  # offsets in it of the tokens that are spoken
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
    for mark in spoken.words:  # in the order of the text: the first event of a token counts
        starts.setdefault(bisect_right(begins, mark.position) - 1, mark.start)
    # starts never go back; a token without an event of its own begins half-way between the token
    # before and the next one with an event
    edges: list[int] = []
    last = 0
    for i in range(len(begins)):
        later = next((starts[k] for k in range(i, len(begins)) if k in starts), total)
        start = later if i in starts else (last + max(later, last)) // 2
        last = min(max(start, last), total)
        edges.append(last)
    # "_" is a pause, and "(en)" a change of language
    phones = [p for p in spoken.phones if p.text != "_" and not p.text.startswith("(")]
    phone_starts = [p.start for p in phones]
    spans: list[tuple[int, int]] = []
    for start, next_start in pairwise([*edges, total]):
        number = bisect_right(phone_starts, next_start - 1) - 1
        end = phones[number].end if number >= 0 and phones[number].end > start else next_start
        spans.append((start, max(start, min(end, next_start))))
    spans_left = iter(spans)
    times: list[tuple[int, int]] = []
    end = 0
    for word in part:
        start = end
        if word.spoken:
            start, end = next(spans_left)
        times.append((start, end))
    return spoken, times


def time_answer(
    answer: Answer, written: str, reading: Reading, language: str
) -> tuple[tuple[float, float] | None, str]:
    """Find the time of an answer in a reading of `written`. Returns it and "", or None and why
    there is none."""
    place, why = locate(answer, written, language)
    times = reading.times(*place) if place else None
    if times and times[1] > times[0]:
        return times, ""
    return None, why or "answers of which nothing can be spoken"


# ---- corpora are spoken in groups, a passage with its questions each


@dataclass(frozen=True)
class _Group:
    """A group is a passage with its questions, of which some have no audio yet."""

    out: Path
    split: str
    passage: Passage
    questions: tuple[Question, ...]  # those that lack audio, or have options
    voices: Mapping[str, tuple[Voice, ...]]  # language -> voices that may read
    seed: int

    @property
    def part_path(self) -> Path:
        """Return the path of the file of what was spoken, which is written last and marks the group
        as done."""
        return self.out / self.split / PARTS / f"{safe_name(self.passage.id)}.json"

    def reader(self, name: str, language: str, other_than: str = "") -> Voice:
        """Draw a voice by the name of the record that is read; not `other_than` where there are
        others. Raises ValueError where no voice speaks the language."""
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
    """Give audio to every passage, question and option that has none; records that cannot be spoken
    are set aside.

    The text is spoken, or the transcript where there is none. Answers in passages that are spoken
    get times. Recordings are written below out/<split>/spoken. The same seed gives the same bytes
    on any number of workers, and a killed run goes on where it stopped. Raises MissingExtra or
    InputError where the synthesiser is not installed, or does not speak the language.
    """
    # raises here, and not in every worker, where there is no synthesiser
    speak("a", speakers("en", "train", o.synthesiser)[0])
    groups = {split: _make_groups(o, split, records) for split, records in by_split.items()}
    jobs: dict[Path, tuple[_Group]] = {}
    for of_split in groups.values():
        jobs |= {group.part_path: (group,) for group in of_split if not group.part_path.is_file()}
    run_parallel(_speak_group, jobs, o.workers, "synthesising", "passage")
    how = f"spoken by {o.synthesiser} (synthetic)"
    return {
        split: _merge_speech(split, records, groups[split], report, how)
        for split, records in by_split.items()
    }


def _make_groups(o: SpokenQA, split: str, records: SplitRecords) -> list[_Group]:
    """Make the groups of a split that have something to speak, or answers to time."""
    by_passage: dict[str, list[Question]] = {}
    for question in records.questions:
        by_passage.setdefault(question.passage, []).append(question)
    both: list[Passage | Question] = [*records.passages, *records.questions]
    languages = set(map(_language, both))
    voices = {
        language: speakers(language, voices_of(split), o.synthesiser)
        for language in sorted(languages & set(LANGUAGES))
    }
    groups = []
    for passage in records.passages:
        questions = []
        for q in by_passage.get(passage.id, ()):
            # answers in a passage that is spoken get times, even if the question has audio
            if not passage.audio or not q.audio or q.options:
                questions.append(q)
        if questions or not passage.audio:
            groups.append(_Group(o.out, split, passage, tuple(questions), voices, o.seed))
    return groups


def _language(record: Passage | Question) -> str:
    """Return the language of a record without its region: "zh" of "zh-TW"."""
    return re.split("[-_]", record.language.lower())[0]


def voices_of(split: str) -> str:
    """Return the split of MiniSQA whose voices read a split: train or dev for splits whose names
    begin so, test for all others."""
    if split.lower().startswith("train"):
        return "train"
    return "dev" if split.lower().startswith(("dev", "val")) else "test"


# ---- synthesis, in one of many processes


def _speak_group(group: _Group) -> None:
    """Speak the recordings that are missing, and write the part: for the passage and each question
    the fields that change, or the reason why it cannot be spoken."""
    passage, language = group.passage, _language(group.passage)
    record: dict[str, Any] = {}
    reading = None
    questions = group.questions
    if not passage.audio:
        try:
            voice = group.reader(passage.id, language)
            reading = read_aloud(passage.written, voice, language)
            record = _write_recording(group, reading, voice, f"passages/{safe_name(passage.id)}")
        except ValueError as error:
            record = {"reason": f"the passage cannot be spoken: {error}"}
            questions = ()
    reader = record.get("speaker", "")
    spoken = {q.id: _speak_question(group, q, reader, reading) for q in questions}
    write_json(group.part_path, {"passage": record, "questions": spoken})


def _speak_question(
    group: _Group, question: Question, reader: str, reading: Reading | None
) -> dict[str, Any]:
    """Speak a question and its options. reader: the voice of its passage; reading: the passage, if
    it was spoken."""
    name, language = f"questions/{safe_name(question.id)}", _language(question)
    try:
        voice = group.reader(f"{group.passage.id} {question.id}", language, other_than=reader)
        spoken = None if question.audio else read_aloud(question.written, voice, language)
        options = [read_aloud(text, voice, language) for text in question.options]
    except ValueError as error:
        return {"reason": f"the question or one of its options cannot be spoken: {error}"}
    record = {} if spoken is None else _write_recording(group, spoken, voice, name)
    if options:
        record["option_audio"] = []
    for number, option in enumerate(options):
        audio = f"{group.split}/spoken/{name}.option-{number}.flac"
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
    """Return the records with the audio that was spoken; those that could not be spoken are set
    aside. how: the remark in the report on records without audio."""
    spoken_passages: dict[str, dict[str, Any]] = {}
    spoken_questions: dict[str, dict[str, Any]] = {}
    for group in groups:
        part = read_json(group.part_path)
        spoken_passages[group.passage.id] = part["passage"]
        spoken_questions |= part["questions"]
    passages, questions = [], []
    for passage in records.passages:
        spoken = spoken_passages.get(passage.id, {})
        if "reason" in spoken:
            report.set_aside(split, "passages", passage.id, spoken["reason"])
        else:
            passages.append(replace(passage, **_changed_fields(spoken)))
    passage_ids = {p.id for p in passages}
    for question in records.questions:
        spoken = spoken_questions.get(question.id, {})
        if question.passage not in passage_ids:
            report.set_aside(split, "questions", question.id, "its passage cannot be spoken")
        elif "reason" in spoken:
            report.set_aside(split, "questions", question.id, spoken["reason"])
        else:
            answers = list(question.answers)
            # where the passage was spoken, its answers get their times in it
            for i, (times, _) in enumerate(spoken.get("answers", ())):
                start, end = times or (None, None)
                answers[i] = replace(answers[i], start=start, end=end)
            changed = _changed_fields(spoken)
            questions.append(replace(question, **changed, answers=tuple(answers)))
    for kind, spoken_records in (("passages", spoken_passages), ("questions", spoken_questions)):
        for record in spoken_records.values():
            if "audio" in record:
                report.remark(split, f"{kind} without audio", how)
            if "option_audio" in record:
                report.remark(split, "options without audio", how, len(record["option_audio"]))
            for _, why in record.get("answers", ()):
                if why:
                    report.remark(split, why, UNTIMED)
    return SplitRecords(passages, questions)


def _changed_fields(spoken: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record that change when it is spoken."""
    fields = {name: spoken[name] for name in ("audio", "seconds", "speaker") if name in spoken}
    if "words" in spoken:
        fields |= {"words": tuple(Span(*word) for word in spoken["words"]), "phones": ()}
    if "option_audio" in spoken:
        fields["option_audio"] = tuple(spoken["option_audio"])
    return fields | ({"synthetic": True} if fields else {})


# ---- text normalisation for synthesis, see `normalise`

_DIGITS = "零一二三四五六七八九"
LONGEST_NUMBER = 15  # digits that are still read as a number


def cardinal(digits: str) -> str:
    """Spell out a number, "1024" -> "one thousand twenty four", or a code digit by digit."""
    return _digit_by_digit(digits) if _is_code(digits) else _numeral(int(digits), "cardinal")


def _is_code(digits: str) -> bool:
    """Return whether digits are a code, such as a telephone number: more than LONGEST_NUMBER of
    them, or with a leading zero."""
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
    # espeak-ng by itself reads 1922 as nineteen hundred twenty two
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
    """Spell out a number, "1024" -> "一千零二十四", or a code digit by digit."""
    if _is_code(digits):
        return mandarin_digits(digits)
    spoken = _mandarin(int(digits))
    return spoken[1:] if spoken.startswith("一十") else spoken


def _mandarin(number: int) -> str:
    """Spell out a number in groups of four digits, with 万, 亿 and 万亿 between them."""
    # Not by cn2an: from 10^8 on it leaves out the 零 of a gap (100001001) and reads 万亿 as 万, so
    # that spoken corpora would change.
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
# a Chinese character; a run such as "3.5%" or "Wi-Fi"; or a run of punctuation
_ZH_TOKEN = re.compile(
    rf"[{HAN}]|{_LETTER}(?:(?:{_LETTER}|[.．,:'’&@/+_％%-])*(?:{_LETTER}|[%％]))?|(?:(?!{_LETTER})[^\s{HAN}])+"
)
_EN_TOKEN = re.compile(r"\S+")

_TABLES = vocabulary("reading.yaml")  # its comments explain the tables
_CURRENCIES: dict[str, str] = _TABLES["currencies"]
_SYMBOLS: dict[str, str] = _TABLES["symbols"] | _CURRENCIES
# espeak-ng's Mandarin reads traditional characters as it does simplified ones, but spells the
# syllables xiong, qiong and jiong and 兒 in English letters: it gets what sounds like them.
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
# between a number and a raised one: NFKC must not make 51/2 of 5½, or 102 of 10²
_RAISED = re.compile(r"(?<=\d)(?=[⁰¹²³⁴-⁹⁻¼-¾⅐-⅞])")
_ENDS = re.compile(r"[.!?…。！？；;][\"'”’」』）)\]》]*$")
_LINE_END = re.compile(r"\s*\n")
# "$1,250.50", "19th", "1990s", "5%", ".5"
_NUMBER = re.compile(
    r"""(?P<money>[$£€¥])?(?P<digits>\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:(?<![a-z])\.(?P<places>\d+))?
        (?:(?P<ordinal>(?:st|nd|rd|th)(?![a-z]))|(?P<decade>'?s(?![a-z]))|(?P<percent>%))?""",
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True)
class Word:
    """A word is a token of a text, with its text for the synthesiser."""

    text: str
    start: int  # offset in the text
    spoken: str  # the token for the synthesiser, "" where nothing can be spoken
    pause: str = ""  # punctuation behind it for the synthesiser
    ends: bool = False  # whether it ends a sentence


def normalise(text: str, language: str) -> list[Word]:
    """Normalise a text for the synthesiser: return its tokens, each with what is spoken for it.

    In English tokens are separated by white space; in Mandarin they are characters, runs of Latin
    letters or digits, and punctuation. A sentence ends at . ! ? … ; and at a line break, but not at
    an abbreviation. Brackets, quotation marks and letters of other scripts are not spoken, except a
    single letter, which is spoken by its name: alpha for "α". The text of a record never changes.
    """
    chinese = language == "zh"
    tokens = [(m.start(), m.group()) for m in (_ZH_TOKEN if chinese else _EN_TOKEN).finditer(text)]
    plain = []
    for _, token in tokens:
        folded = unicodedata.normalize("NFKC", _RAISED.sub(" ", token))
        plain.append(folded.translate(_PLAIN))
    words: list[Word] = []
    for i, (start, token) in enumerate(tokens):
        core = plain[i].strip("\"'()[]")
        initials = re.fullmatch(r"(?:[A-Za-z]\.)+", core)  # J. or U.S.
        # the point of an abbreviation ends no sentence
        is_short = core.endswith(".") and bool(initials or _expand_abbreviation(plain, i))
        line_ends = _LINE_END.match(text, start + len(token))
        ends = bool(line_ends or (_ENDS.search(plain[i]) and not is_short))
        spoken = _mandarin_token(plain, i) if chinese else _english_token(plain, i)
        pause = "" if is_short else _pause(plain[i], chinese)
        words.append(Word(token, start, spoken, pause, ends))
    return words


def _expand_abbreviation(tokens: Sequence[str], i: int) -> str:
    """Expand an abbreviation; "" for other tokens. "No." is one before a number only, and "St."
    before a name."""
    core, after = tokens[i].strip("\"'()[],;:?!"), tokens[i + 1] if i + 1 < len(tokens) else ""
    name = core[:-1].lower()
    if not core.endswith(".") or name not in _TABLES["abbreviations"]:
        return ""
    fits_next = after[:1].isdigit() if name == "no" else after[:1].isupper()
    if name in _TABLES["also_words"] and not (core[:1].isupper() and fits_next):
        return ""
    return _TABLES["abbreviations"][name]


def _pause(token: str, chinese: bool) -> str:
    """Return the punctuation at the end of a token as the synthesiser takes it; "" where it has
    none that is heard."""
    ending = re.split(r"[\w%]", token)[-1]
    for marks, (plain, wide) in _PAUSES.items():
        if any(mark in marks for mark in ending):
            return wide if chinese else plain
    return ""


def _english_token(tokens: Sequence[str], i: int) -> str:
    """Return an English token as it is spoken."""
    token = tokens[i].strip('"()[]{}*_|~^`\\')
    before, after = (tokens[i - 1] if i else ""), (tokens[i + 1] if i + 1 < len(tokens) else "")
    core = token.strip(".,;:?!…-").lower()
    expanded = _expand_abbreviation(tokens, i) or _TABLES["roman"].get(token.strip(".,;:?!'"))
    if expanded:
        return str(expanded)
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
    """Spell out a match of _NUMBER. scaled: "million" or the like follows, which gets the name of
    the currency."""
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
    """Keep Latin letters, and apostrophes, points and hyphens within words. Symbols, and single
    letters of other scripts, become their names."""
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
    """Return a run of letters or digits as it is spoken; "" for words of other scripts."""
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
    """Return a token of a Mandarin text as it is spoken."""
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
    # espeak-ng reads % in English in the middle of Mandarin
    token = re.sub(r"(\d+(?:\.\d+)?)%", r"百分之\1", token)
    token = re.sub(r"(?<=\d) (?=\d+⁄)", "又", token)
    token = re.sub(r"(\d+)[/⁄](\d+)", r"\2分之\1", token)
    token = re.sub(r"(\d+)\.(\d+)", lambda m: f"{mandarin(m[1])}点{mandarin_digits(m[2])}", token)
    years = re.fullmatch(r"(?:1\d{3}|20\d{2})(?:到(?:1\d{3}|20\d{2}))?", token)
    spell = mandarin_digits if after == "年" and years else mandarin
    token = re.sub(r"\d+", lambda m: spell(m[0]), token)
    token = "".join(_TABLES["zh_symbols"].get(c, c) for c in token)
    return " ".join(re.findall(rf"[{HAN}]+|[A-Za-zÀ-ÖØ-öø-ÿ]+(?:'[a-z]+)?|[α-ωΑ-Ω]", token))
