"""Who says what in the sets of labelled utterances: keywords, commands, speakers and styles."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from speechssl.corpora.minisqa.voices import speakers
from speechssl.corpora.minisuperb.choices import LANGUAGE, anyone, sentences, varied, with_
from speechssl.corpora.minisuperb.draws import Draw
from speechssl.corpora.minisuperb.words import INTENTS, KEYWORDS, SILENCE, STYLES, UNKNOWN, UNKNOWN_WORDS

SPEAKERS = 40  # that are to be identified, of the training voices
CLIP = 1.0  # seconds that a keyword lies in


def keywords(rng: Random, split: str, seed: int) -> Iterator[Draw]:
    """The twelve classes in turn: ten keywords, other words, and background noise."""
    while True:
        for label in (*KEYWORDS, UNKNOWN, SILENCE):
            text = {UNKNOWN: rng.choice(UNKNOWN_WORDS), SILENCE: ""}.get(label, label)
            gain = rng.uniform(-40, -20) if label == SILENCE else rng.uniform(-12, 0)
            yield Draw("", text, varied(rng, anyone(rng, split)), {"keyword": label}, CLIP, rng.gauss(0, 0.1), gain)


def intents(rng: Random, split: str, seed: int) -> Iterator[Draw]:
    """The intents in turn. Training leaves the last phrase of each out."""
    while True:
        for intent in INTENTS:
            text = rng.choice(intent.phrases[:-1] if split == "train" else intent.phrases)
            labels = {"action": intent.action, "object": intent.object, "location": intent.location}
            yield Draw("", text, varied(rng, anyone(rng, split)), labels, tilt=rng.gauss(0, 0.1), gain=rng.uniform(-12, 0))


def identities(rng: Random, split: str, seed: int) -> Iterator[Draw]:
    """The speakers in turn, who are the same in every split, and every sentence once. How and through what they speak varies."""
    texts = sentences(split, seed)
    while True:
        for voice in speakers(LANGUAGE, "train")[:SPEAKERS]:
            labels = {"speaker": voice.name}
            yield Draw("", next(texts), varied(rng, voice), labels, tilt=rng.gauss(0, 0.2), gain=rng.uniform(-12, 0))


def styles(rng: Random, split: str, seed: int) -> Iterator[Draw]:
    """Every sentence by one voice in every style: neither the words nor the voice tells which. Styles overlap."""
    for text in sentences(split, seed):
        voice = anyone(rng, split)
        for name, style in STYLES.items():
            rate = voice.rate * style.rate * rng.gauss(1, 0.07)
            pitch, spread = voice.pitch + style.pitch + rng.gauss(0, 8), voice.range + style.range + rng.gauss(0, 10)
            tilt, gain = style.tilt + rng.gauss(0, 0.15), style.gain + rng.gauss(0, 3)
            yield Draw("", text, with_(voice, rate, pitch, spread), {"style": name}, tilt=tilt, gain=min(gain, 0.0))
