"""What the miniatures tell: passages and questions of MiniSQA's generator, written as published ones are, spoken by its voices."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from speechssl.audio import write_clip
from speechssl.corpora.espeak import Spoken, Voice, speak
from speechssl.corpora.minisqa.speech import PAUSE
from speechssl.corpora.minisqa.text import TextQuestion, generate_passage
from speechssl.corpora.minisqa.voices import speakers

STOPS = {"en": (".", " "), "zh": ("。", "")}  # what ends a sentence, and what stands between two


@dataclass(frozen=True)
class Asked:
    """A question that its passage answers."""

    text: str  # as it is written
    spoken: str
    answer: str
    start: int  # characters, of the answer in the context
    source: TextQuestion
    voice: Voice


@dataclass(frozen=True)
class Told:
    """A passage with its questions. written: sentences with capitals and full stops, of the same characters as those spoken."""

    split: str
    index: int
    language: str
    spoken: tuple[str, ...]
    written: tuple[str, ...]
    questions: tuple[Asked, ...]
    voice: Voice

    @property
    def context(self) -> str:
        return STOPS[self.language][1].join(self.written)

    @cached_property
    def sounds(self) -> tuple[Spoken, ...]:
        """The sentences, each with the pause after it."""
        return tuple(_with_pause(speak(sentence, self.voice)) for sentence in self.spoken)

    def times(self, question: Asked) -> tuple[float, float]:
        """Seconds of the answer from the beginning of its sentence."""
        sound, source = self.sounds[question.source.sentence], question.source
        stop = source.start + len(question.answer)
        inside = [w for w in sound.words if source.start < w.position + len(w.text) and w.position < stop]
        return inside[0].start / sound.sample_rate, inside[-1].end / sound.sample_rate

    def before(self, sentence: int) -> float:
        """Seconds of the sentences before this one."""
        return sum(len(sound.samples) for sound in self.sounds[:sentence]) / self.sounds[0].sample_rate


Content = dict[str, list[Told]]  # by split


def tell(language: str, split: str, count: int, seed: int, questions: int) -> Iterator[Told]:
    """`count` passages, each with `questions` questions that it answers; the voices and the values are those of the split alone."""
    for index in range(count):
        text = generate_passage(language, split, index, seed, questions, unanswerable=0.0)
        rng = random.Random(f"miniature {language} {split} {index} {seed}")
        voice, *others = rng.sample(speakers(language, split), k=len(speakers(language, split)))
        stop, between = STOPS[language]
        written = tuple(s[0].upper() + s[1:] + stop for s in text.sentences)
        asked = tuple(_asked(q, written, len(between), language, others[i % len(others)]) for i, q in enumerate(text.questions))
        yield Told(split, index, language, text.sentences, written, asked, voice)


def _asked(source: TextQuestion, written: Sequence[str], between: int, language: str, voice: Voice) -> Asked:
    assert source.answer is not None
    answer = written[source.sentence][source.start : source.start + len(source.answer)]
    start = sum(len(s) + between for s in written[: source.sentence]) + source.start
    text = source.text[0].upper() + source.text[1:] + ("?" if language == "en" else "？")
    return Asked(text, source.text, answer, start, source, voice)


def _with_pause(sound: Spoken) -> Spoken:
    return replace(sound, samples=np.concatenate([sound.samples, np.zeros(round(PAUSE * sound.sample_rate), np.int16)]))


def joined(told: Told) -> tuple[np.ndarray, int]:
    """The whole passage: samples (N,) int16, and their rate in Hz."""
    return np.concatenate([sound.samples for sound in told.sounds]), told.sounds[0].sample_rate


def record(path: Path, samples: np.ndarray, rate: int) -> None:
    """Write a recording in the format of its suffix, at its own rate."""
    write_clip(path, samples, 0.0, len(samples) / rate, rate)


def misheard(words: Sequence[str], rate: float, others: Sequence[str], rng: random.Random) -> list[str]:
    """What a recogniser with about this word error rate might have written: words replaced by others, or left out."""
    heard = []
    for word in words:
        if rng.random() >= rate:
            heard.append(word)
        elif rng.random() < 0.8:
            heard.append(rng.choice(others))
    return heard
