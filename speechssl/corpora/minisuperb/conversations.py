"""SD: two people who talk with each other, and who speaks when, to the sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from speechssl.audio import SAMPLE_RATE, write_flac
from speechssl.corpora.minisqa.voices import speakers
from speechssl.corpora.minisuperb.choices import LANGUAGE, sentences, varied
from speechssl.corpora.minisuperb.draws import Draw, render, trimmed
from speechssl.corpora.utterances import Turn, Utterance

SECONDS = (8.0, 11.5)  # after which nobody begins to speak; a conversation lasts up to 15 s
TURNS = 8  # more than fit
INTERRUPTED = 0.7  # of the turns begin before the one before has ended,
SHARES = (0.2, 0.45)  # by this share of the shorter of the two: less than half, so that no one speaks twice at once
PAUSES = (0.1, 0.8)  # seconds, before the others
EDGES = (0.0, 0.5)  # seconds of silence at the beginning and at the end
LOUDER = 4.0  # dB that one is louder than the other, at most


@dataclass(frozen=True)
class Conversation:
    """Sentences of two voices in turn."""

    id: str
    turns: tuple[Draw, ...]
    seconds: float  # nobody begins to speak after that
    seed: int = 0  # of pauses and overlaps

    def make(self, folder: Path) -> Utterance:
        samples, turns = self.render()
        write_flac(folder / "audio" / f"{self.id}.flac", samples)
        return Utterance(self.id, f"audio/{self.id}.flac", len(samples) / SAMPLE_RATE, turns=turns)

    def render(self) -> tuple[np.ndarray, tuple[Turn, ...]]:
        """(N,) float32 at 16 kHz, silent but for the turns."""
        rng = np.random.default_rng(self.seed)
        said: list[tuple[int, np.ndarray]] = []  # where it begins
        turns: list[Turn] = []
        for drawn in self.turns:
            speech = trimmed(render(drawn))
            start = _begin(rng, said, len(speech))
            if start > self.seconds * SAMPLE_RATE:
                break
            said.append((start, speech))
            turns.append(Turn(drawn.voice.name, start / SAMPLE_RATE, (start + len(speech)) / SAMPLE_RATE))
        return _sum(said, _samples(rng, EDGES)), tuple(turns)


def _begin(rng: np.random.Generator, said: Sequence[tuple[int, np.ndarray]], n: int) -> int:
    """The sample where a turn of n samples begins."""
    if not said:
        return _samples(rng, EDGES)
    before, speech = said[-1]
    end = before + len(speech)
    if rng.random() < INTERRUPTED:
        return end - round(rng.uniform(*SHARES) * min(len(speech), n))
    return end + _samples(rng, PAUSES)


def _samples(rng: np.random.Generator, seconds: tuple[float, float]) -> int:
    return round(rng.uniform(*seconds) * SAMPLE_RATE)


def _sum(said: Sequence[tuple[int, np.ndarray]], after: int) -> np.ndarray:
    """Quieter as a whole where it would be beyond full scale. after: samples of silence at the end."""
    total = np.zeros(max(start + len(speech) for start, speech in said) + after, np.float32)
    for start, speech in said:
        total[start : start + len(speech)] += speech
    return np.asarray(total / max(1.0, float(np.abs(total).max())), np.float32)


def conversations(rng: Random, split: str, seed: int) -> Iterator[Conversation]:
    """Two voices of the split each, either may begin; and every sentence once."""
    texts = sentences(split, seed)
    while True:
        voices = [varied(rng, voice) for voice in rng.sample(speakers(LANGUAGE, split), 2)]
        gain, tilts = rng.uniform(-12, -LOUDER), [rng.gauss(0, 0.1) for _ in voices]
        gains = [gain, gain + rng.uniform(-LOUDER, LOUDER)]
        turns = tuple(Draw("", next(texts), voices[i % 2], tilt=tilts[i % 2], gain=gains[i % 2]) for i in range(TURNS))
        yield Conversation("", turns, rng.uniform(*SECONDS))
