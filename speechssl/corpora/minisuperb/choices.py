"""Who speaks and what is said, where every task chooses alike: voices of a split, and sentences of MiniSQA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from speechssl.corpora.espeak import Voice
from speechssl.corpora.minisqa.text import generate_passage, load_language
from speechssl.corpora.minisqa.voices import speakers

LANGUAGE = "en"
SENTENCE = range(6, 11)  # words; 2 to 4 seconds


def anyone(rng: Random, split: str) -> Voice:
    return rng.choice(speakers(LANGUAGE, split))


def varied(rng: Random, voice: Voice) -> Voice:
    """The voice on another day: no two recordings of it are alike."""
    return with_(voice, voice.rate * rng.uniform(0.85, 1.2), voice.pitch + rng.uniform(-12, 12), voice.range + rng.uniform(-15, 15))


def with_(voice: Voice, rate: float, pitch: float, spread: float) -> Voice:
    """Within what espeak-ng takes."""
    low, high = 0, 99
    rate, pitch, spread = min(max(rate, 80), 450), min(max(pitch, low), high), min(max(spread, low), high)
    return replace(voice, rate=round(rate), pitch=round(pitch), range=round(spread))


def sentences(split: str, seed: int, words: range = SENTENCE) -> Iterator[str]:
    """Different sentences of a split of MiniSQA, without end; those about people only, which no other split has."""
    seen, index = set(load_language(LANGUAGE).fillers), 0
    while True:
        for sentence in generate_passage(LANGUAGE, split, index, seed).sentences:
            if len(sentence.split()) in words and sentence not in seen:
                seen.add(sentence)
                yield sentence
        index += 1
