"""Sentences read aloud: the recordings that PR and ASR share, and those of ASV with its trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random

from speechssl.corpora.espeak import Voice
from speechssl.corpora.minisqa.voices import speakers
from speechssl.corpora.minisuperb.choices import LANGUAGE, anyone, sentences, varied, with_
from speechssl.corpora.minisuperb.draws import Draw
from speechssl.corpora.utterances import Trial

SENTENCES = "sentences"  # the folder, beside those of the tasks, of the recordings that PR and ASR share
WORDS = range(6, 14)  # of a sentence; 2 to 6 seconds
SAME_DAY = 2  # recordings of one voice in a row: the fewest recordings make both kinds of trial
TRIALS = 1000  # at most, of one speaker; as many of two


def phonetic(rng: Random, split: str, seed: int) -> Iterator[Draw]:
    """Every sentence once, by anyone of the split, with its phones."""
    return _read(rng, split, seed, phones=True)


def transcribed(rng: Random, split: str, seed: int) -> Iterator[Draw]:
    """The same recordings without phones."""
    return _read(rng, split, seed, phones=False)


def _read(rng: Random, split: str, seed: int, phones: bool) -> Iterator[Draw]:
    for text in sentences(split, seed, WORDS):
        voice, tilt, gain = varied(rng, anyone(rng, split)), rng.gauss(0, 0.1), rng.uniform(-12, 0)
        yield Draw("", text, voice, tilt=tilt, gain=gain, phones=phones, folder=f"../{SENTENCES}/audio")


def verified(rng: Random, split: str, seed: int) -> Iterator[Draw]:
    """The voices of the split in turn, two recordings each time, and every sentence once."""
    texts = sentences(split, seed)
    while True:
        for voice in speakers(LANGUAGE, split):
            for _ in range(SAME_DAY):
                changed = _changed(rng, voice)
                yield Draw("", next(texts), changed, tilt=rng.gauss(0, 0.45), gain=rng.uniform(-12, 0))


def _changed(rng: Random, voice: Voice) -> Voice:
    """More than `varied`: espeak-ng's variants are easily told apart."""
    return with_(voice, voice.rate * rng.uniform(0.8, 1.25), voice.pitch + rng.uniform(-18, 18), voice.range + rng.uniform(-25, 25))


def trials(split: str, drawn: Sequence[Draw], seed: int) -> list[Trial]:
    """As many of one speaker as of two, in random order; no two recordings of a split have the same words.

    Raises ValueError where not both kinds are possible.
    """
    rng = Random(f"minisuperb/asv/{split}/{seed}/trials")
    pairs = list(combinations(drawn, 2))
    kinds = {same: [p for p in pairs if (p[0].voice.name == p[1].voice.name) == same] for same in (True, False)}
    count = min(TRIALS, *map(len, kinds.values()))
    if not count:
        raise ValueError(f"{len(drawn)} recordings make no trials of one speaker and of two")
    found = [Trial(a.id, b.id, same) for same, of in kinds.items() for a, b in rng.sample(of, count)]
    return rng.sample(found, len(found))
