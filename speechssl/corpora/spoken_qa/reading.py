"""A text of any length read by one voice, sentence by sentence, with the time of every token that is written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from speechssl.audio import SAMPLE_RATE, resample
from speechssl.corpora.espeak import Spoken, Voice, speak
from speechssl.corpora.minisqa.speech import PAUSE
from speechssl.corpora.records import Answer, Span
from speechssl.corpora.spoken_qa.sayable import Word, sayable

LONGEST = 300  # characters said at once: espeak-ng keeps the place of a word in a clause in 11 bits


@dataclass(frozen=True)
class Reading:
    """samples: (N,) float32 at 16 kHz. words, offsets and said are of the same tokens, in order."""

    samples: np.ndarray
    words: tuple[Span, ...]  # what is not said takes no time: start = end
    offsets: tuple[int, ...]  # of every token in the written text
    said: tuple[bool, ...]

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE

    @property
    def unsaid(self) -> int:
        """Tokens with letters or digits that no voice said."""
        return sum(not said and any(map(str.isalnum, w.text)) for w, said in zip(self.words, self.said, strict=True))

    def times(self, start: int, end: int) -> tuple[float, float] | None:
        """Seconds from the first to the last token said of the characters [start, end); None where none is."""
        tokens = zip(self.words, self.offsets, self.said, strict=True)
        inside = [w for w, offset, said in tokens if said and start < offset + len(w.text) and offset < end]
        return (round(inside[0].start, 5), round(inside[-1].end, 5)) if inside else None


def read_aloud(text: str, voice: Voice, language: str) -> Reading:
    """Read a text, PAUSE seconds between its sentences. Raises ValueError where nothing in it can be said."""
    words = sayable(text, language)
    if not any(word.said for word in words):
        raise ValueError("nothing in it can be said" if text.strip() else "it is empty")
    pieces: list[np.ndarray] = []
    marks: list[tuple[int, int]] = []
    position, rate = 0, 1
    for part in _parts(words):
        if not any(word.said for word in part):
            marks += [(position, position)] * len(part)
            continue
        spoken, times = _say(part, voice, language)
        marks += [(position + a, position + b) for a, b in times]
        rest = round(PAUSE * spoken.sample_rate) if part[-1].ends or part[-1] is words[-1] else 0
        pieces += [spoken.samples, np.zeros(rest, np.int16)]
        position, rate = position + len(spoken.samples) + rest, spoken.sample_rate
    samples = resample(np.concatenate(pieces).astype(np.float32) / 32768, rate, SAMPLE_RATE)
    spans = tuple(Span(word.text, a / rate, b / rate) for word, (a, b) in zip(words, marks, strict=True))
    return Reading(samples, spans, tuple(w.start for w in words), tuple(bool(w.said) for w in words))


def _parts(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Sentences; one that is too long is cut after a comma where it has one in its second half, else between words."""
    part: list[Word] = []
    for word in words:
        if part and _length(part) + len(word.said) > LONGEST:
            cut = max((i for i, w in enumerate(part, 1) if w.pause and i > len(part) // 2), default=len(part))
            yield part[:cut]
            part = part[cut:]
        part.append(word)
        if word.ends:
            yield part
            part = []
    if part:
        yield part


def _length(part: Sequence[Word]) -> int:
    return sum(len(word.said) + 2 for word in part)


def _say(part: Sequence[Word], voice: Voice, language: str) -> tuple[Spoken, list[tuple[int, int]]]:
    """Speak one part. Returns the speech and the half-open time of every token, in samples of the synthesiser.

    A token begins with its first word event, and ends with its last phone before the next token begins.
    """
    text, places = _script(part, language)
    spoken = speak(text, voice)
    begins = [place for place in places if place is not None]
    starts: dict[int, int] = {}
    for mark in spoken.words:  # in the order of the text: the first counts
        starts.setdefault(bisect_right(begins, mark.position) - 1, mark.start)
    edges = _in_order([starts.get(i) for i in range(len(begins))], len(spoken.samples))
    ends = _ends(edges, spoken)
    times: list[tuple[int, int]] = []
    last, number = 0, 0
    for place in places:
        if place is None:
            times.append((last, last))
            continue
        times.append((edges[number], ends[number]))
        last, number = ends[number], number + 1
    return spoken, times


def _script(part: Sequence[Word], language: str) -> tuple[str, list[int | None]]:
    """What the synthesiser is given, and where in it each token begins; None for tokens that are not said."""
    text = ""
    places: list[int | None] = []
    for word in part:
        if not word.said:
            text += word.pause if text and text[-1].isalnum() else ""
            places.append(None)
            continue
        apart = " " if text and not (language == "zh" and _han(text[-1]) and _han(word.said[0])) else ""
        places.append(len(text) + len(apart))
        text += apart + word.said + word.pause
    return text, places


def _han(character: str) -> bool:
    return character >= "\u3000"  # with its punctuation


def _in_order(starts: Sequence[int | None], total: int) -> list[int]:
    """Starts that never go back; a token without an event of its own begins half-way to the next that has one."""
    found, last = [], 0
    for i, start in enumerate(starts):
        if start is None:
            later = next((s for s in starts[i + 1 :] if s is not None), total)
            start = (last + max(later, last)) // 2
        last = min(max(start, last), total)
        found.append(last)
    return found


def _ends(edges: Sequence[int], spoken: Spoken) -> list[int]:
    """The end of the last phone that begins in a token, and before the next one begins."""
    phones = [p for p in spoken.phones if p.text != "_" and not p.text.startswith("(")]  # "(en)": a change of language
    begins = [p.start for p in phones]
    ends = []
    for start, after in zip(edges, [*edges[1:], len(spoken.samples)], strict=True):
        last = bisect_right(begins, after - 1) - 1
        end = phones[last].end if last >= 0 and phones[last].end > start else after
        ends.append(max(start, min(end, after)))
    return ends


def timed(answer: Answer, written: str, reading: Reading, language: str) -> tuple[tuple[float, float] | None, str]:
    """The time of an answer in a reading of `written`, and why there is none ("" where there is).

    By its offset where it has one that holds it, else by its only occurrence (of whole words in English).
    """
    text = answer.text.strip()
    if not text:
        return None, "answers that are empty"
    start = answer.char_start
    if start is None or written[start : start + len(answer.text)] != answer.text:
        places = occurrences(written, text, language)
        if len(places) != 1:
            return None, "answers without offset that occur several times" if places else "answers that do not occur in the passage"
        start = places[0]
    times = reading.times(start, start + len(answer.text if answer.char_start == start else text))
    return (times, "") if times and times[1] > times[0] else (None, "answers of which nothing can be said")


def occurrences(written: str, text: str, language: str) -> list[int]:
    """Offsets of a text, those that overlap too; in English not within words."""
    found, start = [], written.find(text)
    while start >= 0:
        end = start + len(text)
        if language == "zh" or not (_within_word(written, start) or _within_word(written, end)):
            found.append(start)
        start = written.find(text, start + 1)
    return found


def _within_word(text: str, place: int) -> bool:
    """Whether letters or digits stand on both sides of a place."""
    return 0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum()
