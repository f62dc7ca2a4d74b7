"""The times of NMSQA's answers in the recording of their passage, decided for every time by which of its readings fits.

In dev all `audio_full_*` are copies of `audio_segment_*`: times in the sentence, to which the lengths of the sentences before it
have to be added. In test they are times in the passage for the most part. So the time in the sentence, which must fit the
sentence's length, is moved by the exact lengths before it; `audio_full_*` is a check on it, and stands in where it cannot be used.
There are not as many times as texts: a row has the times of those of its different answers that occur in its sentence, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from speechssl.corpora.records import Answer, Span
from speechssl.corpora.spoken_qa.joining import Joined
from speechssl.corpora.spoken_qa.ledger import Done
from speechssl.corpora.spoken_qa.nmsqa_rows import Interval, Row, Timed

SLACK = 0.1  # seconds by which a time may lie beyond its recording, whose decoders differ; it then ends with it
AGREE, DRIFT = 0.1, 0.06  # seconds by which two readings may differ, and more for every sentence before (padding of MP3)

ADDED = ("answer times of which audio_full_* is relative to the segment", "the exact lengths of the segments before it were added")
CONFIRMED = ("answer times of which audio_full_* agrees with the segment's", "counted from the segments, exact to the sample")
COUNTED = ("answer times given in the segment only", "the exact lengths of the segments before it were added")
NEARER = ("answer times whose two readings fit and disagree", "the one nearer to where the text stands was taken")
WHOLE = ("answer times given in the passage only", "taken as they are")
OUTSIDE = ("answer times that are empty, not numbers, or outside the audio", "left out; the answer is scored by its text only")
ADRIFT = ("answer times relative to a segment whose place is not known", "left out; the answer is scored by its text only")
ELSEWHERE = ("answers in the row's segment whose offset names another place", "text and time kept as released")
GUESSED = ("answer times that are not one for every text in the segment", "given to the text that stands nearest")
UNSAID = ("answer times whose words are not known", "kept with an empty text")
REPEATED = ("answers that repeat another of their question", "kept once")
OFFSET = ("answers whose offset does not match the context", "kept without an offset")
EMPTY = ("empty answers", "left out")
UNEVEN = ("questions with another number of times than of texts", "every time was paired with the text that it is of")
OTHERS = ("questions with audio_full_neg_* (other occurrences of the words)", "not taken for answers")
COPIES = ("questions about a later segment whose audio_full_* repeat audio_segment_*", "read as relative to the segment")
MOVED = ("questions about a later segment whose audio_full_* differ from audio_segment_*", "read as times in the passage")
TEXTLESS = ("answers without a usable time", "scored by their text only")


@dataclass(frozen=True)
class Layout:
    """The recording of a passage: its sentences' names, where they lie (None where that is not known), and its length."""

    names: tuple[str, ...]
    joined: Joined | None
    seconds: float
    comparable: bool = True  # whether times in the passage were counted in a recording as long as this one

    def piece(self, segment: str) -> int | None:
        return self.names.index(segment) if self.joined is not None and segment in self.names else None


def placed(timed: Timed, layout: Layout, expected: float | None) -> tuple[Interval | None, Done]:
    """The time in the passage's recording, or None, and how it was found. expected: seconds at which its text should be said."""
    piece, joined = layout.piece(timed.segment), layout.joined
    near = None
    if piece is not None and joined is not None and (inside := _inside(timed.within, joined.length(piece))):
        near = joined.moved(piece, inside[0]), min(joined.moved(piece, inside[1]), layout.seconds)
    far = _inside(timed.whole, layout.seconds) if layout.comparable else None
    copied = _copied(timed)
    if near is None:
        adrift = copied and timed.segment not in ("", *layout.names[:1])
        return (None, ADRIFT) if adrift and far else (far, WHOLE if far else OUTSIDE)
    if far is None or (copied and piece):
        return near, ADDED if copied else COUNTED
    if _apart(near, far) <= AGREE + DRIFT * (piece or 0):
        return near, CONFIRMED
    return min((near, far), key=lambda found: 0 if expected is None else abs(found[0] - expected)), NEARER


def _inside(interval: Interval | None, seconds: float) -> Interval | None:
    """The interval as far as it lies in [0, seconds), None where it does not begin there or ends more than SLACK after it."""
    if interval is None or not 0 <= interval[0] < min(interval[1], seconds) or interval[1] > seconds + SLACK:
        return None
    return interval[0], min(interval[1], seconds)


def _apart(a: Interval, b: Interval) -> float:
    return max(abs(a[0] - b[0]), abs(a[1] - b[1]))


def written_answers(row: Row, remark: Callable[[Done], None]) -> tuple[Answer, ...]:
    """The different answers of a row by text and offset; an offset is kept where the context holds the answer there."""
    kept = {}
    for text, offset in row.texts or ():
        if not text.strip():
            remark(EMPTY)
        elif (text, offset) in kept:
            remark(REPEATED)
        else:
            fits = offset is not None and offset >= 0 and row.context[offset : offset + len(text)] == text
            kept[text, offset] = Answer(text, char_start=offset if fits else None)
            if not fits:
                remark(OFFSET)
    return tuple(kept.values())


def spoken_answers(row: Row, layout: Layout, words: Sequence[Span], remark: Callable[[Done], None]) -> tuple[Answer, ...]:
    """The answers with the times that can be used, each with its own; a text that is said twice comes twice.

    words: of the passage with their times, where an aligner said so; they name the words of a time that has no text.
    """
    answers = written_answers(row, remark)
    timed: list[Answer] = []
    for time, answer in zip(row.times, _paired(row, answers, layout, remark), strict=True):
        interval, how = placed(time, layout, _expected(row, answer, layout))
        remark(how)
        if interval is not None:
            answer = answer or Answer(" ".join(word.text for word in words if _shares(word, interval)))
            if not answer.text:
                remark(UNSAID)
            timed.append(Answer(answer.text, *interval, answer.char_start))
    said = {(answer.text, answer.char_start) for answer in timed}
    rest = [answer for answer in answers if (answer.text, answer.char_start) not in said]
    for _ in rest:
        remark(TEXTLESS)
    return (*dict.fromkeys(timed), *rest)


def released_times(row: Row) -> list[dict[str, Any]]:
    """The times of a row as they were released, to be kept where there is no audio to count them in."""
    return [{"segment": time.segment, "in_segment": time.within, "in_passage": time.whole} for time in row.times]


def remark_readings(rows: Iterable[Row], remark: Callable[[Done], None]) -> None:
    """What is odd about the times, whether there is audio or not, counted in questions."""
    for row in rows:
        if row.times and len(row.times) != len(row.texts or ()):
            remark(UNEVEN)
        if row.others:
            remark(OTHERS)
        later = [t for t in row.times if t.within and t.whole and not t.segment.endswith(("_0", "-0", "-c"))]
        if later:
            remark(COPIES if all(_copied(time) for time in later) else MOVED)


def _copied(time: Timed) -> bool:
    return time.within is not None and time.whole is not None and _apart(time.within, time.whole) < 1e-3


def _shares(word: Span, interval: Interval) -> bool:
    """Whether more than half of a word lies in an interval."""
    return 2 * (min(word.end, interval[1]) - max(word.start, interval[0])) > word.end - word.start


def _expected(row: Row, answer: Answer | None, layout: Layout) -> float | None:
    """Seconds at which an answer would be said if all characters of the context took as long."""
    if answer is None or answer.char_start is None or not row.context:
        return None
    return layout.seconds * answer.char_start / len(row.context)


def _paired(row: Row, answers: Sequence[Answer], layout: Layout, remark: Callable[[Done], None]) -> list[Answer | None]:
    """The answer that is said at every time of the row, None where there are no texts."""
    if not answers or not row.times:
        return [None] * len(row.times)
    if all(time.text for time in row.times):
        return [_called(time.text, answers, row.segments.get(time.segment, ""), row.context) for time in row.times]
    said = row.segments.get(row.times[0].segment, "")
    texts = list(dict.fromkeys(a.text for a in answers if a.text in said or not said))
    if len(texts) == len(row.times):
        found = [_called(text, answers, said, row.context) for text in texts]
        for answer in found:
            if answer is not None and said and not _stands_in(answer, said, row.context):
                remark(ELSEWHERE)
        return found
    if len(row.texts or ()) == len(row.times):
        return [_called(text, answers, said, row.context) for text, _ in row.texts or ()]
    for _ in row.times:
        remark(GUESSED)
    candidates = [a for a in answers if a.text in texts] or list(answers)
    return [min(candidates, key=lambda a, time=time: _away(a, time, row, said, layout)) for time in row.times]  # type: ignore[misc]


def _called(text: str, answers: Iterable[Answer], said: str, context: str) -> Answer | None:
    """The answer of this text; of several, the one that stands in the sentence."""
    found = [answer for answer in answers if answer.text == text]
    return min(found, key=lambda answer: not _stands_in(answer, said, context), default=None)


def _stands_in(answer: Answer, said: str, context: str) -> bool:
    at = context.find(said)
    return answer.char_start is not None and 0 <= at <= answer.char_start < at + len(said)


def _away(answer: Answer, time: Timed, row: Row, said: str, layout: Layout) -> float:
    """How far, in parts of the sentence (or else of the passage), a time is from where the letters of an answer stand in it."""
    piece, interval = layout.piece(time.segment), time.within
    if piece is not None and layout.joined is not None and interval is not None and said:
        text, seconds = said, layout.joined.length(piece)
    else:
        text, seconds, interval = row.context, layout.seconds, time.whole or time.within
    at = text.find(answer.text)
    if at < 0 or interval is None or not seconds:
        return float("inf")
    return abs(interval[0] / seconds - at / len(text)) + abs(interval[1] / seconds - (at + len(answer.text)) / len(text))


def of_durations(names: Sequence[str], durations: Sequence[float], seconds: float) -> Joined | None:
    """Where sentences lie in a recording of the whole, by their stated lengths; None where these do not add up to it."""
    lengths = tuple(round(duration * 16_000) for duration in durations)
    close = abs(sum(lengths) / 16_000 - seconds) <= AGREE + DRIFT * len(names)
    return Joined(lengths, (16_000,) * len(lengths), round(seconds * 16_000)) if names and close else None


def moved_words(grids: Iterable[tuple[int, Sequence[Span]]], joined: Joined) -> Iterator[Span]:
    """The words of sentences with their times in the passage."""
    for piece, words in grids:
        start = joined.starts[piece]
        yield from (Span(w.text, float(start + Fraction(w.start)), float(start + Fraction(w.end))) for w in words)
