"""Times of words: read from TextGrids or lists, and from the offset of an answer in a text to its time in the recording.

TextGrids are those of Praat and the Montreal Forced Aligner, long or short, in UTF-8 or UTF-16.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from speechssl.data.records import Answer, Passage, Span
from speechssl.errors import InputError

Interval = tuple[str, float, float]  # name, start, end in seconds
TOKEN = re.compile(r'"((?:[^"]|"")*)"|\[\s*\d*\s*\]|(?<![\w.])([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![\w.])')


def read_tiers(path: Path) -> Iterator[tuple[str, list[Interval]]]:
    """Names and intervals of the interval tiers, in order. Raises InputError for a file that is no TextGrid."""
    tokens = iter(_tokens(path))
    try:
        if [next(tokens), next(tokens)] != ["ooTextFile", "TextGrid"]:
            raise ValueError("no TextGrid")
        _, _, count = (float(next(tokens)) for _ in range(3))
        for _ in range(int(count)):
            kind, name = next(tokens), next(tokens)
            _, _, size = (float(next(tokens)) for _ in range(3))
            if kind == "IntervalTier":
                yield name, [_interval(tokens) for _ in range(int(size))]
            else:  # points
                _ = [(next(tokens), next(tokens)) for _ in range(int(size))]
    except (StopIteration, ValueError, RuntimeError) as error:
        raise InputError(f"cannot read {path} as a TextGrid; save it again from Praat as a text file") from error


def _interval(tokens: Iterator[str]) -> Interval:
    start, end = float(next(tokens)), float(next(tokens))
    return next(tokens), start, end


def _tokens(path: Path) -> list[str]:
    """Texts and free-standing numbers, in order: all there is to either format of a TextGrid."""
    try:
        content = path.read_bytes()
        text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path} as a TextGrid ({error}); save it again as UTF-8") from error
    found = (m for m in TOKEN.finditer(text) if m[1] is not None or m[2] is not None)
    return [m[2] if m[1] is None else m[1].replace('""', '"') for m in found]


def read_words(path: Path) -> tuple[Span, ...]:
    """A list of [word, start, end], seconds, in the order of time. Raises InputError, naming the file, for anything else."""
    try:
        words = tuple(Span(str(text), float(start), float(end)) for text, start, end in json.loads(path.read_text("utf-8-sig")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f'{path} is not a list of ["word", start, end] ({error}); write it anew or remove it') from error
    times = [time for word in words for time in (word.start, word.end)]
    if not all(map(math.isfinite, times)) or any(w.start >= w.end or w.start < 0 for w in words):
        raise InputError(f"{path} has a word that does not end after it starts; write it anew or remove it")
    return words


def places(text: str, words: Sequence[Span]) -> list[tuple[int, int]] | None:
    """Where each word stands in the text, [first, last) in characters; None where they are not the words of this text.

    Case and what lies between words (punctuation, white space) do not count.
    """
    at, found = 0, []
    folded = text.lower() if len(text.lower()) == len(text) else text
    for word in words:
        wanted = word.text.strip().lower()
        first = folded.find(wanted, at)
        if not wanted or first < 0 or any(c.isalnum() for c in text[at:first]):
            return None
        at = first + len(wanted)
        found.append((first, at))
    return found


def with_times(answers: Sequence[Answer], passage: Passage) -> tuple[Answer, ...]:
    """The answers, each with the time from its first to its last word where that is known."""
    spoken = places(passage.written, passage.words)
    return tuple(_timed(answer, passage.words, spoken) for answer in answers)


def _timed(answer: Answer, words: Sequence[Span], spoken: list[tuple[int, int]] | None) -> Answer:
    if answer.char_start is None or spoken is None:
        return answer
    end = answer.char_start + len(answer.text)
    touched = [word for word, (first, last) in zip(words, spoken, strict=True) if first < end and last > answer.char_start]
    return replace(answer, start=touched[0].start, end=touched[-1].end) if touched else answer
