"""The cascade with a recogniser that errs as often as is asked for: text QA on the reference text with simulated errors.

The errors are those of a real recogniser (`asr.confusions`). A word keeps its time whatever it is taken for; one that is inserted
shares the time of the word before it, by letters; the time of a deleted word is nobody's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from speechssl.asr.confusions import MOST, Confusions, Edit, said_words
from speechssl.asr.protocol import TimedWord, Transcript
from speechssl.corpora.records import Passage, Question, Span
from speechssl.errors import InputError
from speechssl.qa.cascade import TextCodec, answer_transcripts
from speechssl.qa.dual import TimedAnswer
from speechssl.qa.reader import Reader
from speechssl.text import joiner, language_of

PREFIX = "cascade-simulated"


@dataclass(frozen=True)
class SimulatedSystem:
    """wer: a fraction. seed: of the errors, together with the id of the record."""

    codec: TextCodec
    reader: Reader
    confusions: Confusions
    wer: float
    card: Mapping[str, Any]
    seed: int = 0
    listens: bool = False

    @property
    def name(self) -> str:
        return f"{PREFIX}@{100 * self.wer:g}"

    def hear(self, samples: Any) -> Transcript:
        """Raises ValueError: it reads records, see `hear_record`."""
        raise ValueError(f"the system {self.name} does not listen; evaluate it on a prepared corpus")

    def hear_record(self, record: Passage | Question, samples: Any) -> Transcript:
        """The reference text with errors. Raises ValueError where there is none, or in another language than that of the fit."""
        if language_of(record.language) != language_of(self.confusions.language):
            raise ValueError(f"{record.id} is in {record.language!r}, and the errors were fitted on {self.confusions.language!r}")
        spans = spoken(record)
        if not spans:
            raise ValueError(f"{record.id} has no reference text that errors could be made in")
        edits = self.confusions.simulate([s.text for s in spans], self.wer, record.id, self.seed)
        return Transcript(tuple(timed(edits, spans)), joiner(record.language))

    def answer_all(self, items: Sequence[tuple[Transcript, Transcript]]) -> list[TimedAnswer]:
        return answer_transcripts(self.codec, self.reader, items)


def parse_rate(name: str) -> float:
    """The word error rate of `cascade-simulated@30`: 0.3. Raises InputError for another name."""
    try:
        percent = float(name.removeprefix(f"{PREFIX}@"))
    except ValueError:
        percent = math.nan
    if not 0 < percent <= 100 * MOST:
        raise InputError(
            f"{name!r} names no word error rate; write {PREFIX}@30 for 30 %, with a number above 0 and at most {100 * MOST:g}"
        )
    return percent / 100


def spoken(record: Passage | Question) -> list[Span]:
    """The words (zh: characters) of the reference with their times, nan where the manifest has none."""
    if not record.words:
        return [Span(word, math.nan, math.nan) for word in said_words(record.text, record.language)]
    return [s for w in record.words for s in _shared(said_words(w.text, record.language), w)]


def timed(edits: Sequence[Edit], spans: Sequence[Span]) -> list[TimedWord]:
    """What is said, at the times of the reference words; several at one share its time."""
    found = []
    for place, some in groupby(edits, key=lambda edit: edit[1]):
        found += _shared([said for said, _ in some], spans[place])
    return [TimedWord(s.text, s.start, s.end, math.nan) for s in found]


def _shared(words: Sequence[str], span: Span) -> list[Span]:
    """The words one after another in the time of the span, by letters."""
    letters = [len(w) for w in words]
    step = (span.end - span.start) / max(sum(letters), 1)
    at = [span.start + step * sum(letters[:i]) for i in range(len(words))] + [span.end]
    return [Span(w, at[i], at[i + 1]) for i, w in enumerate(words)]
