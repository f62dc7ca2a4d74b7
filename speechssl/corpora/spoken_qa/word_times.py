"""From the offset of an answer in a text to its time in the recording, through the times of the words."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from speechssl.corpora.records import Answer, Passage, Span
from speechssl.errors import InputError


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
