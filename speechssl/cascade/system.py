"""The cascade with a recogniser that errs as often as is asked for: text QA on the reference text with simulated errors.

The errors are those of a real recogniser (`asr.confusions`). A word keeps its time whatever it is taken for; one that is inserted
shares the time of the word before it, by letters; the time of a deleted word is nobody's.
"""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from speechssl.cascade.confusions import MOST, Confusions, Edit, said_words
from speechssl.cascade.words import Recogniser, TimedWord, Transcript
from speechssl.data.records import Passage, Question, Span
from speechssl.dual.model import Example, Reader
from speechssl.dual.system import TimedAnswer
from speechssl.errors import InputError
from speechssl.text import joiner, language_of

# The cascade: recognise passage and question, let a text encoder find the answer's words, look up their times.

_HANZI = re.compile(r"[\u3400-\u9fff]")


@dataclass(frozen=True, eq=False)
class TextCodec:
    """Words to token ids and back to words, for one tokeniser."""

    tokenizer: PreTrainedTokenizerBase

    def encode(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Token ids (S,) and the index of the word each belongs to (S,). Punctuation around words is dropped, letters are
        lower-cased. A Chinese word is one character, whatever the tokeniser would join.
        """
        pieces = [self._pieces(w) for w in words]
        ids = np.array([i for piece in pieces for i in piece], np.int64)
        return ids, np.repeat(np.arange(len(words)), [len(piece) for piece in pieces])

    def _pieces(self, word: str) -> tuple[int, ...]:
        return _pieces(self.tokenizer, _bare(word.lower()))


def _bare(word: str) -> str:
    """Without what is punctuation, of any script, at both ends."""
    kept = [i for i, c in enumerate(word) if c not in string.punctuation and unicodedata.category(c)[0] != "P"]
    return word[kept[0] : kept[-1] + 1] if kept else ""


@lru_cache(maxsize=200_000)
def _pieces(tokenizer: PreTrainedTokenizerBase, word: str) -> tuple[int, ...]:
    """A piece that only marks where a word begins says nothing in Chinese, where every character would have one."""
    ids = tuple(tokenizer(f" {word}", add_special_tokens=False)["input_ids"]) if word else ()
    marked = len(ids) > 1 and _HANZI.match(word) and tokenizer.convert_ids_to_tokens(ids[0]) in ("▁", "Ġ")
    return ids[1:] if marked else ids


def text_example(codec: TextCodec, question: Sequence[str], passage: Sequence[str], first: int, last: int) -> Example | None:
    """A training example from words; first, last: the answer's words in the passage. None when they have no token."""
    asked, _ = codec.encode(question)
    ids, owners = codec.encode(passage)
    inside = np.flatnonzero((owners >= first) & (owners <= last))
    return Example(asked, ids, int(inside[0]), int(inside[-1])) if len(inside) else None


@dataclass(frozen=True)
class Cascade:
    """ASR + text QA."""

    recogniser: Recogniser
    codec: TextCodec
    reader: Reader

    def answer(self, passage: np.ndarray, question: np.ndarray) -> TimedAnswer:
        """passage, question: (N,) float32 at 16 kHz."""
        return self.answer_transcripts([(self.recogniser.transcribe(question), self.recogniser.transcribe(passage))])[0]

    def answer_transcripts(self, items: Sequence[tuple[Transcript, Transcript]]) -> list[TimedAnswer]:
        """(question, passage) transcripts -> answers; see `answer_transcripts`."""
        return answer_transcripts(self.codec, self.reader, items)


def answer_transcripts(codec: TextCodec, reader: Reader, items: Sequence[tuple[Transcript, Transcript]]) -> list[TimedAnswer]:
    """(question, passage) transcripts -> answers. A passage in which nothing was recognised gives an empty answer at 0 s.

    Times are nan where those of the words are.
    """
    coded = [(codec.encode(_words(q))[0], codec.encode(_words(p))) for q, p in items]
    usable = [i for i, (_, (ids, _)) in enumerate(coded) if len(ids)]
    choices = reader.read_many([(coded[i][0], coded[i][1][0]) for i in usable])
    found = dict(zip(usable, choices, strict=True))
    answers = []
    for i, (_, passage) in enumerate(items):
        if i not in found:
            answers.append(TimedAnswer(0.0, 0.0, 0.0, ""))
            continue
        owners = coded[i][1][1]
        words = passage.words[owners[found[i].first] : owners[found[i].last] + 1]
        answers.append(_timed(words, passage.separator, found[i].confidence))
    return answers


def _timed(words: Sequence[TimedWord], separator: str, confidence: float) -> TimedAnswer:
    return TimedAnswer(words[0].start, words[-1].end, confidence, separator.join(w.text for w in words))


def _words(transcript: Transcript) -> list[str]:
    return [w.text for w in transcript.words]


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
    needs_audio: bool = False

    @property
    def name(self) -> str:
        return f"{PREFIX}@{100 * self.wer:g}"

    def encode(self, record: Passage | Question | None, samples: Any) -> Transcript:
        """The reference text with errors. Raises ValueError where there is none, or in another language than that of the fit."""
        if record is None:
            raise ValueError(f"the system {self.name} reads the text of a corpus; evaluate it on a prepared corpus")
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
