"""Who says what how in MiniSUPERB: every recording of a task as a list, decided by (task, split, seed) alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from random import Random

from speechssl.corpora.espeak import Voice
from speechssl.corpora.minisqa.text import generate_passage, load_language
from speechssl.corpora.minisqa.voices import speakers
from speechssl.corpora.minisuperb.words import INTENTS, KEYWORDS, SILENCE, STYLES, UNKNOWN, UNKNOWN_WORDS

LANGUAGE = "en"
SPEAKERS = 40  # that are to be identified, of the training voices
SENTENCE = range(6, 11)  # words; 2 to 4 seconds
CLIP = 1.0  # seconds that a keyword lies in


@dataclass(frozen=True)
class Draw:
    """One recording to be made."""

    id: str
    text: str  # "": nothing but faint background noise
    voice: Voice
    labels: dict[str, str]
    seconds: float = 0.0  # the recording is at least so long, what is said anywhere in it
    tilt: float = 0.0  # of the spectrum: more is brighter
    gain: float = 0.0  # dB
    seed: int = 0  # of where it lies in the recording, and of the noise


def draw(task: str, split: str, count: int, seed: int) -> list[Draw]:
    """The recordings of a split, `count` of them. Raises KeyError for an unknown task."""
    key = f"minisuperb/{task}/{split}/{seed}"
    found = islice(TASKS[task](Random(key), split, seed), count)
    return [
        replace(d, id=f"{task}-{split}-{number:05d}", seed=Random(f"{key}/{number}").getrandbits(32))
        for number, d in enumerate(found)
    ]


def _keywords(rng: Random, split: str, seed: int) -> Iterator[Draw]:
    """The twelve classes in turn: ten keywords, other words, and background noise."""
    while True:
        for label in (*KEYWORDS, UNKNOWN, SILENCE):
            text = {UNKNOWN: rng.choice(UNKNOWN_WORDS), SILENCE: ""}.get(label, label)
            gain = rng.uniform(-40, -20) if label == SILENCE else rng.uniform(-12, 0)
            yield Draw("", text, _varied(rng, _anyone(rng, split)), {"keyword": label}, CLIP, rng.gauss(0, 0.1), gain)


def _intents(rng: Random, split: str, seed: int) -> Iterator[Draw]:
    """The intents in turn. Training leaves the last phrase of each out."""
    while True:
        for intent in INTENTS:
            text = rng.choice(intent.phrases[:-1] if split == "train" else intent.phrases)
            labels = {"action": intent.action, "object": intent.object, "location": intent.location}
            yield Draw("", text, _varied(rng, _anyone(rng, split)), labels, tilt=rng.gauss(0, 0.1), gain=rng.uniform(-12, 0))


def _speakers(rng: Random, split: str, seed: int) -> Iterator[Draw]:
    """The speakers in turn, who are the same in every split, and every sentence once. How and through what they speak varies."""
    sentences = _sentences(split, seed)
    while True:
        for voice in speakers(LANGUAGE, "train")[:SPEAKERS]:
            labels = {"speaker": voice.name}
            yield Draw("", next(sentences), _varied(rng, voice), labels, tilt=rng.gauss(0, 0.2), gain=rng.uniform(-12, 0))


def _styles(rng: Random, split: str, seed: int) -> Iterator[Draw]:
    """Every sentence by one voice in every style: neither the words nor the voice tells which. Styles overlap."""
    for text in _sentences(split, seed):
        voice = _anyone(rng, split)
        for name, style in STYLES.items():
            rate = voice.rate * style.rate * rng.gauss(1, 0.07)
            pitch, spread = voice.pitch + style.pitch + rng.gauss(0, 8), voice.range + style.range + rng.gauss(0, 10)
            tilt, gain = style.tilt + rng.gauss(0, 0.15), style.gain + rng.gauss(0, 3)
            yield Draw("", text, _with(voice, rate, pitch, spread), {"style": name}, tilt=tilt, gain=min(gain, 0.0))


TASKS: dict[str, Callable[[Random, str, int], Iterator[Draw]]] = {
    "ks": _keywords,
    "ic": _intents,
    "sid": _speakers,
    "style": _styles,
}


def _anyone(rng: Random, split: str) -> Voice:
    return rng.choice(speakers(LANGUAGE, split))


def _varied(rng: Random, voice: Voice) -> Voice:
    """The voice on another day: no two recordings of it are alike."""
    return _with(voice, voice.rate * rng.uniform(0.85, 1.2), voice.pitch + rng.uniform(-12, 12), voice.range + rng.uniform(-15, 15))


def _with(voice: Voice, rate: float, pitch: float, spread: float) -> Voice:
    """Within what espeak-ng takes."""
    low, high = 0, 99
    rate, pitch, spread = min(max(rate, 80), 450), min(max(pitch, low), high), min(max(spread, low), high)
    return replace(voice, rate=round(rate), pitch=round(pitch), range=round(spread))


def _sentences(split: str, seed: int) -> Iterator[str]:
    """Different sentences of a split of MiniSQA, without end; those about people only, which no other split has."""
    seen, index = set(load_language(LANGUAGE).fillers), 0
    while True:
        for sentence in generate_passage(LANGUAGE, split, index, seed).sentences:
            if len(sentence.split()) in SENTENCE and sentence not in seen:
                seen.add(sentence)
                yield sentence
        index += 1
