"""Speak passages, questions and options that have no audio by synthetic voices (`--speak`), and
mark them as synthetic.

train, dev and test have different voices of espeak-ng; flite and festival have the same few voices
in every split. One voice reads a passage, sentence by sentence; another reads a question and its
options. The choice of a voice depends on the seed and the ids of passage and question alone, so
that a part of a corpus sounds like the whole. Words get times; phones do not, since their times
would be most of a manifest.
"""

from __future__ import annotations

import random
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, compress, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.artifacts import read_json, write_json
from speechssl.audio import SAMPLE_RATE, resample, write_flac
from speechssl.data.files import make_safe_name
from speechssl.data.options import SpokenQA
from speechssl.data.prepare import PARTS, UNTIMED, PrepareReport, SplitRecords, run_parallel
from speechssl.data.records import Answer, Passage, Question, Span, locate
from speechssl.errors import MissingExtra
from speechssl.synth.minisqa import (
    LANGUAGES,
    PAUSE,
    find_times,
    list_split_voices,
    load_vocabulary,
)
from speechssl.synth.synthesisers import Spoken, Voice, speak, try_voice
from speechssl.text import find_primary_tag

# Characters that are spoken at once, at most: espeak-ng keeps the place of a word in 11 bits.
MAX_CHARACTERS = 300

# ---- reading a text of any length by one voice, with a time for each of its tokens


@dataclass(frozen=True)
class Word:
    """A word is a token of a text, with what the synthesiser gets for it."""

    text: str
    start: int  # offset of the token in the text
    spoken: str  # what the synthesiser speaks, "" where nothing can be spoken
    pause: str = ""  # the punctuation that the synthesiser gets behind it
    ends_sentence: bool = False


@dataclass(frozen=True)
class Reading:
    """A reading is a text that was read aloud. Words, offsets and `spoken` have an entry for every
    token, in order."""

    samples: np.ndarray  # (N,) float32 at 16 kHz
    words: tuple[Span, ...]  # the tokens with their times; start = end where one is not spoken
    offsets: tuple[int, ...]  # of the tokens in the text
    spoken: tuple[bool, ...]  # False for a token that is not spoken, such as a dash

    @property
    def seconds(self) -> float:
        """Return the length of the reading."""
        return len(self.samples) / SAMPLE_RATE


def read_aloud(text: str, voice: Voice, language: str) -> Reading:
    """Read a text by a voice, with PAUSE seconds between its sentences. Raises ValueError where
    nothing in the text can be spoken."""
    words = normalise(text, language)
    if voice.engine == "espeak-ng":
        words = [replace(word, spoken=_MISREAD.get(word.spoken, word.spoken)) for word in words]
    if not any(word.spoken for word in words):
        raise ValueError("nothing in it can be spoken" if text.strip() else "it is empty")
    pieces: list[np.ndarray] = []
    times: list[tuple[int, int]] = []  # start and end of every token, in the synthesiser's samples
    position = 0  # the end of what was spoken so far
    rate = 1  # of the synthesiser; known when it has spoken
    for part in _split_parts(words):
        if not any(word.spoken for word in part):
            times += [(position, position)] * len(part)
            continue
        spoken, part_times = _speak_part(part, voice, language)
        times += [(position + start, position + end) for start, end in part_times]
        rate = spoken.sample_rate
        ends_sentence = part[-1].ends_sentence or part[-1] is words[-1]
        pause = round(PAUSE * rate) if ends_sentence else 0
        pieces += [spoken.samples, np.zeros(pause, np.int16)]
        position += len(spoken.samples) + pause
    samples = resample(np.concatenate(pieces).astype(np.float32) / 32768, rate, SAMPLE_RATE)
    spans = [Span(w.text, a / rate, b / rate) for w, (a, b) in zip(words, times, strict=True)]
    offsets = tuple(word.start for word in words)
    return Reading(samples, tuple(spans), offsets, tuple(bool(word.spoken) for word in words))


def _split_parts(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Split a text into parts: its sentences. Before a part would have more than MAX_CHARACTERS, it
    is cut after its last comma, if that is in its second half, or otherwise between words."""
    part: list[Word] = []
    for word in words:
        length = sum(len(w.spoken) + 2 for w in part)  # with a space and a mark behind every word
        if part and length + len(word.spoken) > MAX_CHARACTERS:
            commas = [i for i, w in enumerate(part, 1) if w.pause and i > len(part) // 2]
            cut = commas[-1] if commas else len(part)
            yield part[:cut]
            part = part[cut:]
        part.append(word)
        if word.ends_sentence:
            yield part
            part = []
    if part:
        yield part


def _speak_part(
    part: Sequence[Word], voice: Voice, language: str
) -> tuple[Spoken, list[tuple[int, int]]]:
    """Speak one part. Returns the speech, and for every token the half-open interval of its
    samples, at the synthesiser's rate."""
    text, begins = _write_part(part, language)
    spoken = speak(text, voice)
    remaining_spans = iter(_find_spans(spoken, begins))
    times: list[tuple[int, int]] = []
    end = 0
    for word in part:
        start = end  # a token that is not spoken lies at the end of the one before it
        if word.spoken:
            start, end = next(remaining_spans)
        times.append((start, end))
    return spoken, times


def _write_part(part: Sequence[Word], language: str) -> tuple[str, list[int]]:
    """Write a part for the synthesiser. Returns the text, and the offsets in it of the tokens that
    are spoken."""
    text = ""
    begins = []
    for word in part:
        if not word.spoken:
            text += word.pause if text[-1:].isalnum() else ""
            continue
        # no space stands between two Chinese characters
        is_chinese = language == "zh" and text[-1:] >= "\u3000" and word.spoken[0] >= "\u3000"
        text += " " if text and not is_chinese else ""
        begins.append(len(text))
        text += word.spoken + word.pause
    return text, begins


def _find_spans(spoken: Spoken, begins: Sequence[int]) -> list[tuple[int, int]]:
    """Find the samples of every token that is spoken. begins: offsets of these tokens in the text.

    A token begins with the first word event of the synthesiser that lies in it, and ends with the
    last phone before the next token begins.
    """
    total = len(spoken.samples)
    starts: dict[int, int] = {}  # number of a spoken token -> first sample
    for mark in spoken.words:  # in the order of the text: the first event of a token counts
        starts.setdefault(bisect_right(begins, mark.position) - 1, mark.start)
    # Starts never decrease. A token without an event begins half-way between the start of the token
    # before it and that of the next token with an event.
    edges: list[int] = []  # the first sample of every spoken token
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
    return spans


def time_answer(
    answer: Answer, written: str, reading: Reading, language: str
) -> tuple[tuple[float, float] | None, str]:
    """Find the time of an answer in a reading of the text `written`. Returns the time and "", or
    None and the reason why there is none."""
    place, why = locate(answer, written, language)
    times = None
    if place:
        words = tuple(compress(reading.words, reading.spoken))
        offsets = tuple(compress(reading.offsets, reading.spoken))
        times = find_times(words, offsets, *place)
    if times and times[1] > times[0]:
        return times, ""
    return None, why or "answers of which nothing can be spoken"


# ---- speaking a corpus in groups; a group is a passage with its questions


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
        """Return the path of the group's part: a file with the records that were spoken, which is
        written last and marks the group as done."""
        return self.out / self.split / PARTS / f"{make_safe_name(self.passage.id)}.json"

    def draw_voice(self, name: str, language: str, other_than: str = "") -> Voice:
        """Draw a voice, which depends on the seed and `name` alone. It is not the voice called
        `other_than` where there are others. Raises ValueError where no voice speaks the
        language."""
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
    """Give audio to every passage, question and option that has none. Records that cannot be spoken
    are set aside.

    The text is spoken, or the transcript where there is no text. Answers in passages that are
    spoken get times. Recordings are written below out/<split>/spoken. The same seed gives the same
    bytes on any number of workers, and a killed run goes on where it stopped. Raises MissingExtra
    or InputError where the synthesiser is not installed, or does not speak the language.
    """
    groups = {split: _make_groups(o, split, records) for split, records in by_split.items()}
    jobs: dict[Path, tuple[_Group]] = {}
    for group in chain(*groups.values()):
        if not group.part_path.is_file():
            jobs[group.part_path] = (group,)
    run_parallel(_speak_group, jobs, o.workers, "synthesising", "passage")
    return {
        split: _merge_speech(split, records, groups[split], report)
        for split, records in by_split.items()
    }


def _make_groups(o: SpokenQA, split: str, records: SplitRecords) -> list[_Group]:
    """Make the groups of a split that have something to speak, or answers to time."""
    by_passage: dict[str, list[Question]] = {}
    for question in records.questions:
        by_passage.setdefault(question.passage, []).append(question)
    all_records: list[Passage | Question] = [*records.passages, *records.questions]
    languages = set(map(_find_language, all_records))
    voices = {
        language: list_split_voices(language, choose_voice_split(split), o.synthesiser)
        for language in sorted(languages & set(LANGUAGES))
    }
    for language, of_language in voices.items():  # what is missing raises here, not in every worker
        try_voice(of_language[0], language)
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


def _find_language(record: Passage | Question) -> str:
    """Find the language of a record: "zh" of "zh-TW" and "cmn", another tag without its region."""
    primary = find_primary_tag(record.language)
    return "zh" if primary == "cmn" else primary


def choose_voice_split(split: str) -> str:
    """Choose the split of MiniSQA whose voices read a split: train or dev for splits whose names
    begin so, test for all others."""
    if split.lower().startswith("train"):
        return "train"
    return "dev" if split.lower().startswith(("dev", "val")) else "test"


# ---- synthesis, in one of many processes


def _speak_group(group: _Group) -> None:
    """Speak the recordings that are missing, and write the part of the group: for the passage and
    each question the fields that change, or the reason why it cannot be spoken."""
    passage = group.passage
    language = _find_language(passage)
    record: dict[str, Any] = {}
    reading = None
    questions = group.questions
    if not passage.audio:
        try:
            voice = group.draw_voice(passage.id, language)
            reading = read_aloud(passage.written, voice, language)
            record = _write_recording(
                group, reading, voice, f"passages/{make_safe_name(passage.id)}"
            )
        except ValueError as error:
            record = {"reason": f"the passage cannot be spoken: {error}"}
            questions = ()
    reader = record.get("speaker", "")
    spoken = {q.id: _speak_question(group, q, reader, reading) for q in questions}
    write_json(group.part_path, {"passage": record, "questions": spoken})


def _speak_question(
    group: _Group, question: Question, reader: str, reading: Reading | None
) -> dict[str, Any]:
    """Speak a question and its options, and return the fields of its record that change. reader:
    name of the voice that reads the passage; reading: of the passage, if it was spoken."""
    name = f"questions/{make_safe_name(question.id)}"
    language = _find_language(question)
    try:
        voice = group.draw_voice(f"{group.passage.id} {question.id}", language, other_than=reader)
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
        passage = group.passage
        record["answers"] = [
            time_answer(answer, passage.written, reading, _find_language(passage))
            for answer in question.answers
        ]
    return record


def _write_recording(group: _Group, reading: Reading, voice: Voice, name: str) -> dict[str, Any]:
    """Write a reading as a FLAC, and return the fields of its record that change."""
    audio = f"{group.split}/spoken/{name}.flac"
    write_flac(group.out / audio, reading.samples)
    words = [[w.text, round(w.start, 5), round(w.end, 5)] for w in reading.words]
    return {"audio": audio, "seconds": reading.seconds, "speaker": voice.name, "words": words}


def _merge_speech(
    split: str, records: SplitRecords, groups: Sequence[_Group], report: PrepareReport
) -> SplitRecords:
    """Return the records with the audio that was spoken, and set aside those that could not be
    spoken."""
    spoken_passages: dict[str, dict[str, Any]] = {}
    spoken_questions: dict[str, dict[str, Any]] = {}
    for group in groups:
        part = read_json(group.part_path)
        spoken_passages[group.passage.id] = part["passage"]
        spoken_questions |= part["questions"]
    passages: list[Passage] = []
    questions: list[Question] = []
    for passage in records.passages:
        spoken = spoken_passages.get(passage.id, {})
        if "reason" in spoken:
            report.set_aside(split, "passages", passage.id, spoken["reason"])
        else:
            passages.append(replace(passage, **_collect_changed_fields(spoken)))
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
            for i, (times, why) in enumerate(spoken.get("answers", ())):
                start, end = times or (None, None)
                answers[i] = replace(answers[i], start=start, end=end)
                if why:
                    report.remark(split, why, UNTIMED)
            changed = _collect_changed_fields(spoken)
            questions.append(replace(question, **changed, answers=tuple(answers)))
    return SplitRecords(passages, questions)


def _collect_changed_fields(spoken: Mapping[str, Any]) -> dict[str, Any]:
    """Collect the fields of a record that change when it is spoken, from those in the part."""
    fields = {name: value for name, value in spoken.items() if name != "answers"}
    if "words" in fields:
        fields |= {"words": tuple(Span(*word) for word in fields["words"]), "phones": ()}
    if "option_audio" in fields:
        fields["option_audio"] = tuple(fields["option_audio"])
    return fields | ({"synthetic": True} if fields else {})


# ---- normalisation of a text for the synthesiser, see `normalise`

_DIGITS = "零一二三四五六七八九"
LONGEST_NUMBER = 15  # digits; more of them are read one by one


def spell_cardinal(digits: str) -> str:
    """Spell out a number, "1024" -> "one thousand twenty four". A code is spelled digit by
    digit."""
    return _spell_digits(digits) if _is_code(digits) else _spell_numeral(int(digits), "cardinal")


def _is_code(digits: str) -> bool:
    """Return whether digits are a code, such as a telephone number: more than LONGEST_NUMBER of
    them, or with a leading zero."""
    return len(digits) > LONGEST_NUMBER or (len(digits) > 1 and digits[0] == "0")


def _spell_digits(digits: str) -> str:
    """Spell out digits one by one: "14" -> "one four"."""
    return " ".join(_spell_numeral(int(d), "cardinal") for d in digits)


@cache
def _spell_numeral(number: int, to: str) -> str:
    """Spell out a number by num2words. to: a form of num2words, such as "cardinal". Raises
    MissingExtra without num2words."""
    try:
        from num2words import num2words  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtra("reading numbers aloud", "synth") from error
    return str(num2words(number, to=to)).replace(" and ", " ").replace(",", "").replace("-", " ")


def spell_year(digits: str) -> str:
    """Spell out four digits as a year if they may be one (1100 to 2099), otherwise as a number."""
    # espeak-ng by itself reads 1922 as nineteen hundred twenty two
    is_year = 1100 <= int(digits) < 2100
    return _spell_numeral(int(digits), "year") if is_year else spell_cardinal(digits)


def _make_decade(words: str) -> str:
    """Make a decade of a year in words: "nineteen ninety" -> "nineteen nineties"."""
    return words[:-1] + "ies" if words.endswith("ty") else words + "s"


def spell_ordinal(digits: str) -> str:
    """Spell out an ordinal: "19" -> "nineteenth"."""
    if _is_code(digits):
        return f"{_spell_digits(digits[:-1])} {_spell_numeral(int(digits[-1]), 'ordinal')}"
    return _spell_numeral(int(digits), "ordinal")


def spell_mandarin_digits(digits: str) -> str:
    """Spell out digits one by one, as in years, telephone numbers and decimal places: "1990" ->
    "一九九零"."""
    return "".join(_DIGITS[int(d)] for d in digits)


def spell_mandarin(digits: str) -> str:
    """Spell out a number, "1024" -> "一千零二十四". A code is spelled digit by digit."""
    if _is_code(digits):
        return spell_mandarin_digits(digits)
    spoken = _spell_groups(int(digits))
    return spoken[1:] if spoken.startswith("一十") else spoken


def _spell_groups(number: int) -> str:
    """Spell out a number in groups of four digits, with 万, 亿 and 万亿 between them."""
    # Not by cn2an: from 10^8 on it leaves out the 零 of a gap (100001001) and reads 万亿 as 万, so
    # that spoken corpora would change.
    for size, name in ((10**12, "万亿"), (10**8, "亿"), (10**4, "万")):
        if number >= size:
            rest = number % size
            gap = "零" if 0 < rest < size // 10 else ""
            spoken_rest = _spell_groups(rest) if rest else ""
            return _spell_groups(number // size) + name + gap + spoken_rest
    spoken = ""
    gap = ""  # "零" after digits that are 0
    for size, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, number = divmod(number, size)
        if digit:
            spoken += gap + _DIGITS[digit] + name
            gap = ""
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

_TABLES = load_vocabulary("reading.yaml")  # its comments explain the tables
_CURRENCIES: dict[str, str] = _TABLES["currencies"]
_SYMBOLS: dict[str, str] = _TABLES["symbols"] | _CURRENCIES
# Character that espeak-ng misreads -> characters that sound like it. espeak-ng's Mandarin reads
# traditional and simplified characters, but spells the syllables xiong, qiong and jiong, and 兒, in
# English letters.
_MISREAD: dict[str, str] = {}
for _sounds_like, _characters in _TABLES["misread"].items():
    _MISREAD |= dict.fromkeys(_characters, _sounds_like)
# typographic variants -> plain punctuation
_PLAIN = str.maketrans(
    {
        **dict.fromkeys("’‘ʼ′", "'"),
        **dict.fromkeys("“”", '"'),
        **dict.fromkeys("–−‐‑", "-"),
        "—": "--",
    }
)
# marks that sound alike -> the mark for the synthesiser, in English and in Mandarin
_PAUSES = {
    "?？": ("?", "？"),
    "!！": ("!", "！"),
    ".。…;；": (".", "。"),
    ",，、:：-()": (",", "，"),
}
# the place between a number and a raised one: NFKC must not make 51/2 of 5½, or 102 of 10²
_RAISED = re.compile(r"(?<=\d)(?=[⁰¹²³⁴-⁹⁻¼-¾⅐-⅞])")
# the end of a sentence, with closing quotation marks and brackets
_ENDS = re.compile(r"[.!?…。！？；;][\"'”’」』）)\]》]*$")
_LINE_END = re.compile(r"\s*\n")
# "$1,250.50", "19th", "1990s", "5%", ".5"
_NUMBER = re.compile(
    r"""(?P<money>[$£€¥])?(?P<digits>\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:(?<![a-z])\.(?P<places>\d+))?
        (?:(?P<ordinal>(?:st|nd|rd|th)(?![a-z]))|(?P<decade>'?s(?![a-z]))|(?P<percent>%))?""",
    re.VERBOSE | re.IGNORECASE,
)


def normalise(text: str, language: str) -> list[Word]:
    """Normalise a text for the synthesiser. Returns its tokens, each with what is spoken for it.

    In English tokens are separated by white space; in Mandarin they are characters, runs of Latin
    letters or digits, and punctuation. A sentence ends at . ! ? … ; and at a line break, but not at
    an abbreviation. Brackets, quotation marks and letters of other scripts are not spoken, except a
    single letter, which is spoken by its name: alpha for "α". The text of a record never changes.
    """
    is_mandarin = language == "zh"
    pattern = _ZH_TOKEN if is_mandarin else _EN_TOKEN
    tokens = [(m.start(), m.group()) for m in pattern.finditer(text)]
    plain = []
    for _, token in tokens:
        folded = unicodedata.normalize("NFKC", _RAISED.sub(" ", token))
        plain.append(folded.translate(_PLAIN))
    words: list[Word] = []
    for i, (start, token) in enumerate(tokens):
        core = plain[i].strip("\"'()[]")
        initials = re.fullmatch(r"(?:[A-Za-z]\.)+", core)  # J. or U.S.
        # the point of an abbreviation ends no sentence
        is_abbreviation = core.endswith(".") and bool(initials or _expand_abbreviation(plain, i))
        line_ends = _LINE_END.match(text, start + len(token))
        ends_sentence = bool(line_ends or (_ENDS.search(plain[i]) and not is_abbreviation))
        spoken = _spell_mandarin_token(plain, i) if is_mandarin else _spell_english_token(plain, i)
        pause = "" if is_abbreviation else _choose_pause(plain[i], is_mandarin)
        words.append(Word(token, start, spoken, pause, ends_sentence))
    return words


def _expand_abbreviation(tokens: Sequence[str], i: int) -> str:
    """Expand the token number i if it is an abbreviation; "" for other tokens. "No." is an
    abbreviation only before a number, and "St." only before a name."""
    core = tokens[i].strip("\"'()[],;:?!")
    after = tokens[i + 1] if i + 1 < len(tokens) else ""
    name = core[:-1].lower()
    if not core.endswith(".") or name not in _TABLES["abbreviations"]:
        return ""
    fits_next = after[:1].isdigit() if name == "no" else after[:1].isupper()
    if name in _TABLES["also_words"] and not (core[:1].isupper() and fits_next):
        return ""
    return _TABLES["abbreviations"][name]


def _choose_pause(token: str, is_mandarin: bool) -> str:
    """Choose the mark that the synthesiser gets for the punctuation at the end of a token; "" where
    that is not heard."""
    ending = re.split(r"[\w%]", token)[-1]
    for marks, (plain, wide) in _PAUSES.items():
        if any(mark in marks for mark in ending):
            return wide if is_mandarin else plain
    return ""


def _spell_english_token(tokens: Sequence[str], i: int) -> str:
    """Spell the English token number i as it is spoken."""
    token = tokens[i].strip('"()[]{}*_|~^`\\')
    before = tokens[i - 1] if i else ""
    after = tokens[i + 1] if i + 1 < len(tokens) else ""
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
    token = re.sub(r"(\d+)⁄(\d+)", lambda m: _spell_fraction(m[1], m[2]), token)
    token = re.sub(r"(?<=\d):(?=\d)|[/\\]", " ", token)
    scaled = after.strip(".,;:?!").lower() in _TABLES["scales"]
    return _keep_letters(_NUMBER.sub(lambda m: _spell_number(m, scaled), token))


def _spell_fraction(above: str, below: str) -> str:
    """Spell out a fraction: "3", "4" -> "three quarters"."""
    part = {"2": "half", "4": "quarter"}.get(below) or spell_ordinal(below)
    if int(above) != 1:
        part = "halves" if part == "half" else f"{part}s"
    return f"{spell_cardinal(above)} {part}"


def _spell_number(match: re.Match[str], scaled: bool) -> str:
    """Spell out a match of _NUMBER. scaled: whether a word such as "million" follows, behind which
    the name of the currency is spoken."""
    digits = (match["digits"] or "").replace(",", "")
    places = match["places"]
    if not digits and not places:
        return match.group()
    if places:
        # "3", "14": three point one four
        spoken = f"{spell_cardinal(digits or '0')} point {_spell_digits(places)}"
    elif match["ordinal"]:
        spoken = spell_ordinal(digits)
    elif len(match["digits"]) == 4 and not match["money"] and not match["percent"]:
        spoken = spell_year(digits)
    else:
        spoken = spell_cardinal(digits)
    if match["decade"]:
        spoken = _make_decade(spoken) if digits.endswith("0") else f"{spoken}'s"
    money = "" if scaled or not match["money"] else _CURRENCIES[match["money"]]
    money = money.removesuffix("s") if spoken == "one" else money
    return f" {spoken} {'percent' if match['percent'] else ''} {money} "


def _keep_letters(text: str) -> str:
    """Keep Latin letters, and apostrophes, points and hyphens within words. Symbols, and single
    letters of other scripts, become their names."""
    text = "".join(f" {_SYMBOLS[c]} " if c in _SYMBOLS else c for c in text)
    plain = ""
    for c in text:
        if c < "\u0100":
            plain += c
        else:  # remove accents that Latin-1 lacks: espeak-ng's English reads é, but names ş
            plain += "".join(filter(str.isalnum, unicodedata.normalize("NFKD", c)))
    runs = re.findall(r"[^\W\d_]+(?:['.-][^\W\d_]+)*'?", plain)
    return " ".join(filter(None, map(_read_run, runs)))


def _read_run(run: str) -> str:
    """Spell a run of letters as it is spoken; "" for words of other scripts."""
    if all(c < "\u0250" for c in run):
        return run if re.search(r"[a-zA-Z]", run) else run.rstrip("'")
    if "-" in run:
        return " ".join(filter(None, map(_read_run, run.split("-"))))
    name = unicodedata.name(run, "") if len(run) == 1 else ""
    if name.startswith(("GREEK", "CYRILLIC", "HEBREW")):
        return name.split()[-1].lower()
    return ""


def _spell_mandarin_token(tokens: Sequence[str], i: int) -> str:
    """Spell the token number i of a Mandarin text as it is spoken."""
    token = tokens[i]
    after = tokens[i + 1] if i + 1 < len(tokens) else ""

    def write_decimal(match: re.Match[str]) -> str:
        return f"{spell_mandarin(match[1])}点{spell_mandarin_digits(match[2])}"

    if re.fullmatch(rf"[{HAN}]", token):
        return "" if token > "\uffff" else token
    # 二○○三, a circle for 〇
    if tokens[i - 1 : i] and tokens[i - 1] in _DIGITS and re.fullmatch("○+", token):
        return "零" * len(token)
    token = re.sub(r"\d", lambda m: str(int(m[0])), token)  # digits of other scripts
    token = token.replace("°C", "摄氏度").replace("°F", "华氏度")
    token = re.sub(r"^-(?=\d)", "负", token)
    token = re.sub(r"(?<=[\d%])[-~](?=\d)", "到", token)
    token = re.sub(r"(?<=\d):(?=\d)", "比", token)
    token = re.sub(r"(\d),(?=\d{3})", r"\1", token)
    # espeak-ng reads % in English in the middle of Mandarin
    token = re.sub(r"(\d+(?:\.\d+)?)%", r"百分之\1", token)
    token = re.sub(r"(?<=\d) (?=\d+⁄)", "又", token)
    token = re.sub(r"(\d+)[/⁄](\d+)", r"\2分之\1", token)
    token = re.sub(r"(\d+)\.(\d+)", write_decimal, token)
    # "1990" or "1990到1995" before 年
    years = re.fullmatch(r"(?:1\d{3}|20\d{2})(?:到(?:1\d{3}|20\d{2}))?", token)
    spell = spell_mandarin_digits if after == "年" and years else spell_mandarin
    token = re.sub(r"\d+", lambda m: spell(m[0]), token)
    token = "".join(_TABLES["zh_symbols"].get(c, c) for c in token)
    return " ".join(re.findall(rf"[{HAN}]+|[A-Za-zÀ-ÖØ-öø-ÿ]+(?:'[a-z]+)?|[α-ωΑ-Ω]", token))
