"""The cascade: recognise passage and question, let a text encoder find the answer's words, look up their times."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from transformers import PreTrainedTokenizerBase

from speechssl.asr.protocol import Recogniser, TimedWord, Transcript
from speechssl.qa.dual import TimedAnswer
from speechssl.qa.reader import Example, Reader

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
