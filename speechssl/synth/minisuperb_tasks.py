"""The tasks of MiniSUPERB: what each is drawn from, and how much of it is usual."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, cycle, pairwise
from pathlib import Path
from random import Random

import numpy as np

from speechssl.audio import SAMPLE_RATE, to_int16, write_flac
from speechssl.augment import NoiseBank, active_level
from speechssl.data.utterances import DOCUMENTS, SPLITS, SPLITS_OF, TOGETHER, Trial, Turn, Utterance
from speechssl.errors import InputError
from speechssl.signal import rms_level
from speechssl.synth import minisuperb_words as commands
from speechssl.synth.espeak import Voice
from speechssl.synth.minisqa import speakers
from speechssl.synth.minisqa_text import occurrences
from speechssl.synth.minisuperb_words import (
    INTENTS,
    KEYWORDS,
    LANGUAGE,
    SILENCE,
    STYLES,
    UNKNOWN,
    UNKNOWN_WORDS,
    Draw,
    Planned,
    anyone,
    numbered,
    render,
    sentences,
    trimmed,
    varied,
    with_,
)

# Who says what in the sets of labelled utterances: keywords, commands, speakers and styles.

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


# Sentences read aloud: the recordings that PR and ASR share, and those of ASV with its trials.

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


# QbE: documents that are searched, and queries, a word or two, spoken by voices that no document has.

SINGLE, PAIRED = 6, 4  # letters of a query of one word, and of each word of one of two, at least
COMMON = 0.1  # of the documents match a query at most
ENOUGH = 5  # matches; queries that have fewer are taken where there are no others


def plan(sizes: Mapping[str, int], seed: int) -> dict[str, list[Draw]]:
    """documents, dev and test. A word that a query of dev has is in none of test, and every query is another one.

    Raises InputError where the documents do not hold so many queries that match some of them and not all.
    """
    key = f"minisuperb/qbe/{DOCUMENTS}/{seed}"
    documents = numbered(_documents(Random(key), seed), key, f"qbe-{DOCUMENTS}", sizes[DOCUMENTS])
    found: dict[str, list[Draw]] = {DOCUMENTS: documents}
    for split, phrases in _phrases(documents, seed).items():
        if len(phrases) < sizes[split]:
            raise InputError(
                f"{len(documents)} documents hold {len(phrases)} queries for {split}, not {sizes[split]}; ask for more documents"
            )
        key = f"minisuperb/qbe/{split}/{seed}"
        found[split] = numbered(_queries(Random(key), split, phrases), key, f"qbe-{split}", sizes[split])
    return found


def _documents(rng: Random, seed: int) -> Iterator[Draw]:
    """Every sentence once, by the voices of training."""
    for text in sentences("train", seed):
        yield Draw("", text, varied(rng, anyone(rng, "train")), tilt=rng.gauss(0, 0.1), gain=rng.uniform(-12, 0))


def _queries(rng: Random, split: str, phrases: Mapping[str, Sequence[str]]) -> Iterator[Draw]:
    for text, matches in phrases.items():
        voice, tilt, gain = varied(rng, anyone(rng, split)), rng.gauss(0, 0.1), rng.uniform(-12, 0)
        yield Draw("", text, voice, tilt=tilt, gain=gain, matches=tuple(matches))


def _phrases(documents: Sequence[Draw], seed: int) -> dict[str, dict[str, list[str]]]:
    """split -> phrase -> ids of the documents that have it, in random order but those with many matches first."""
    holders = _holders(documents)
    rng = Random(f"minisuperb/qbe/queries/{seed}")
    words = sorted({word for phrase in holders for word in phrase.split()})
    owner = dict(zip(rng.sample(words, len(words)), ("dev", "test") * len(words), strict=False))
    order = sorted(rng.sample(sorted(holders), len(holders)), key=lambda phrase: -min(len(holders[phrase]), ENOUGH))
    used: set[str] = set()
    found: dict[str, dict[str, list[str]]] = {"dev": {}, "test": {}}
    for phrase in order:
        parts = phrase.split()
        if len(owners := {owner[word] for word in parts}) == 1 and not used.intersection(parts):
            used.update(parts)
            found[owners.pop()][phrase] = holders[phrase]
    return found


def _holders(documents: Sequence[Draw]) -> dict[str, list[str]]:
    """What may be searched for -> ids of the documents that have it.

    A phrase that is part of other words in some document ("work" of "works") is left out: whether it matches is a matter of taste.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    for document in documents:
        for phrase in dict.fromkeys(_parts(document.text.split())):
            found[phrase].append(document.id)
    most = max(round(COMMON * len(documents)), 1)
    rare = {phrase: ids for phrase, ids in found.items() if len(ids) <= most and len(ids) < len(documents)}
    return {phrase: ids for phrase, ids in rare.items() if not any(_inside(phrase, d.text) for d in documents)}


def _parts(words: Sequence[str]) -> Iterator[str]:
    """The words and pairs of words that are long enough to be heard."""
    yield from (word for word in words if len(word) >= SINGLE)
    yield from (f"{a} {b}" for a, b in pairwise(words) if min(len(a), len(b)) >= PAIRED)


def _inside(phrase: str, text: str) -> bool:
    return text.count(phrase) > occurrences(text, phrase, " ")


# SD: two people who talk with each other, and who speaks when, to the sample.

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


# Two voices at once (SS), and a voice in noise (SE): mixtures with what they were mixed of.

PEAK = 0.99  # of full scale: no mixture is louder
PAIR_WORDS, NOISY_WORDS = range(10, 15), range(5, 8)  # of a sentence; 3 to 4 seconds, 2 to 3 seconds
RATIOS = (0.0, 5.0)  # dB of the one voice over the other
SEEN, UNSEEN = "stand-in", "held-out"  # generated noises: of train and dev, of test
SNRS: Mapping[str, tuple[float, ...]] = {  # dB; those of VoiceBank-DEMAND (Valentini-Botinhao et al., SSW 2016)
    "train": (15, 10, 5, 0),
    "dev": (15, 10, 5, 0),
    "test": (17.5, 12.5, 7.5, 2.5),
}


@dataclass(frozen=True)
class Overlap:
    """Two voices that begin together and end with the shorter one, as in mode "min" of Libri2Mix."""

    id: str
    first: Draw
    second: Draw
    ratio: float  # dB, active level of the first over that of the second
    seed: int = 0

    def make(self, folder: Path) -> Utterance:
        first, second = trimmed(render(self.first)), trimmed(render(self.second))
        n = min(len(first), len(second))
        parts = first[:n], at_ratio(second[:n], active_level(first[:n]) - self.ratio)
        return _write(folder, self.id, parts, kept=2, speaker=TOGETHER.join((self.first.voice.name, self.second.voice.name)))


@dataclass(frozen=True)
class Noisy:
    """A voice in generated noise."""

    id: str
    clean: Draw
    noise: str  # SEEN or UNSEEN
    snr: float  # dB, active level of the speech over RMS of the noise
    seed: int = 0

    def make(self, folder: Path) -> Utterance:
        clean = render(self.clean)
        noise = NoiseBank.of(self.noise, seed=self.seed).sample(self.id, len(clean))
        gain = active_level(clean) - self.snr - rms_level(noise)
        return _write(folder, self.id, (clean, noise * 10 ** (gain / 20)), kept=1, speaker=self.clean.voice.name)


def at_ratio(samples: np.ndarray, level: float) -> np.ndarray:
    """samples (N,) at this active level in dB."""
    return np.asarray(samples * 10 ** ((level - active_level(samples)) / 20))


def _write(folder: Path, name: str, parts: tuple[np.ndarray, np.ndarray], kept: int, speaker: str = "") -> Utterance:
    """The sum of two parts (N,), and the first of them by themselves. They are rounded before they are added: the sum is exact."""
    scale = min(1.0, PEAK / float(np.abs(parts[0] + parts[1]).max()), *(PEAK / float(np.abs(part).max()) for part in parts))
    rounded = [to_int16(part * scale) for part in parts]
    sources = tuple(f"sources/{name}-{number}.flac" for number in range(1, kept + 1))
    for source, part in zip(sources, rounded, strict=False):
        write_flac(folder / source, part)
    write_flac(folder / "audio" / f"{name}.flac", rounded[0] + rounded[1])
    return Utterance(name, f"audio/{name}.flac", len(parts[0]) / SAMPLE_RATE, speaker, sources=sources)


def overlaps(rng: Random, split: str, seed: int) -> Iterator[Overlap]:
    """Two voices of the split, and every sentence once."""
    texts = sentences(split, seed, PAIR_WORDS)
    while True:
        voices = rng.sample(speakers(LANGUAGE, split), 2)
        first, second = (Draw("", next(texts), varied(rng, v), tilt=rng.gauss(0, 0.1), gain=rng.uniform(-12, -3)) for v in voices)
        yield Overlap("", first, second, rng.uniform(*RATIOS))


def noisy(rng: Random, split: str, seed: int) -> Iterator[Noisy]:
    """Every sentence once, by anyone of the split, and the SNRs in turn."""
    for text, snr in zip(sentences(split, seed, NOISY_WORDS), cycle(SNRS[split]), strict=False):
        clean = Draw("", text, varied(rng, anyone(rng, split)), tilt=rng.gauss(0, 0.1), gain=rng.uniform(-12, -3))
        yield Noisy("", clean, UNSEEN if split == "test" else SEEN, snr)


DRAWN: dict[str, Callable[[Random, str, int], Iterator[Planned]]] = {  # of the generator, a split and the seed
    "pr": phonetic,
    "asr": transcribed,
    "ks": keywords,
    "sid": identities,
    "asv": verified,
    "sd": conversations,
    "ic": intents,
    "sf": commands.commands,
    "style": styles,
    "se": noisy,
    "ss": overlaps,
}
NAMES = {"pr": SENTENCES, "asr": SENTENCES}  # task -> whose recordings it has, where they are not its own
USUAL = {  # task -> utterances in train (qbe: documents), dev and test
    "pr": (900, 100, 200),
    "asr": (900, 100, 200),
    "ks": (2400, 300, 600),
    "qbe": (300, 40, 40),
    "sid": (1200, 240, 600),
    "asv": (800, 160, 160),
    "sd": (250, 40, 60),
    "ic": (1500, 300, 600),
    "sf": (1200, 150, 300),
    "style": (1200, 240, 480),
    "se": (300, 40, 60),
    "ss": (300, 40, 60),
}
LEAST = {  # utterances in each split, where one is too few
    "asv": (3, 3, 3),  # two of one voice, and one of another
    "qbe": (8, 1, 1),  # documents that match, and others
}
ONE = (1, 1, 1)


def splits_of(task: str) -> tuple[str, ...]:
    return SPLITS_OF.get(task, SPLITS)


def some_of(tasks: Sequence[str], share: float) -> dict[str, tuple[int, int, int]]:
    """Sizes for `Settings`: this share of the usual numbers, the fewest that will do at least. InputError for an unknown task."""
    if unknown := [task for task in tasks if task not in USUAL]:
        raise InputError(f"there is no set {unknown[0]}; choose from {', '.join(USUAL)}")
    found = {}
    for task in tasks:
        train, dev, test = (max(round(share * n), least) for n, least in zip(USUAL[task], LEAST.get(task, ONE), strict=True))
        found[task] = train, dev, test
    return found


def check_sizes(sizes: Mapping[str, Sequence[int]]) -> None:
    """Raises InputError for an unknown task, or numbers of utterances that cannot be made."""
    for task, counts in sizes.items():
        least = LEAST.get(task, ONE)
        if task not in USUAL or len(counts) != len(least) or any(n < m for n, m in zip(counts, least, strict=True)):
            raise InputError(
                f"cannot make {task} of {counts} utterances; give {', '.join(USUAL)} three numbers from {' '.join(map(str, least))}"
            )


def plan_of_tasks(task: str, sizes: Mapping[str, int], seed: int) -> Mapping[str, Sequence[Planned]]:
    """The recordings of each split, decided by (task, split, seed) alone; of queries by the number of documents too."""
    if task == "qbe":
        return plan(sizes, seed)
    return {split: draw(task, split, count, seed) for split, count in sizes.items()}


def draw(task: str, split: str, count: int, seed: int) -> list[Planned]:
    """The recordings of a split, `count` of them. Raises KeyError for an unknown task, and for qbe, which is planned as a whole."""
    name = NAMES.get(task, task)
    key = f"minisuperb/{name}/{split}/{seed}"
    return numbered(DRAWN[task](Random(key), split, seed), key, f"{name}-{split}", count)
