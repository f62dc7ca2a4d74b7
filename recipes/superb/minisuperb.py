"""Make MiniSUPERB: a folder of synthetic utterances for every task of SUPERB.

    python recipes/superb/minisuperb.py --help

Every task has a generator of recordings (`PlannedUtterance`, `Conversation`, `Overlap`,
`NoisyUtterance`), which are decided by (task, split, seed) alone, and made by any number of
workers. What is spoken, and how, is in `texts/minisuperb.yaml`. The values of the open slots (OPEN)
belong to splits, by the hash that MiniSQA uses: training has about 70 % of them; dev and test have
those and new ones (10 % and 20 % of all). The values of the other slots, and the phrases, are the
same in all splits.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import combinations, cycle, islice, pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import yaml
from scipy import signal

from speechssl.artifacts import CORPUS_RECORD, begin_stage, hash_files, write_lines
from speechssl.audio import SAMPLE_RATE, read_duration, resample, to_int16, write_flac
from speechssl.augment import NoiseBank
from speechssl.cli import script
from speechssl.data import superb as sets
from speechssl.data.options import CORES, PROCESSES
from speechssl.data.prepare import run_parallel
from speechssl.data.speech_commands import KEYWORDS
from speechssl.data.superb import DOCUMENTS, Slot, Trial, Turn, Utterance
from speechssl.errors import InputError
from speechssl.options import Count, Share, Whole, argument, option
from speechssl.signal import measure_active_level, measure_rms_level
from speechssl.synth import minisqa
from speechssl.synth.minisqa import find_split, list_split_voices, split_phrases
from speechssl.synth.synthesisers import Spoken, Voice, speak, trim_silence

VERSION = 2  # of the generator; part of the card
LANGUAGE = "en"
TEXTS = Path(__file__).parent / "texts/minisuperb.yaml"  # says what each part of it is
CONTENT = yaml.safe_load(TEXTS.read_text(encoding="utf-8"))
# phone of espeak-ng -> phones of PR, "3" -> ("ER",)
PHONE_NAMES = {}
for line in split_phrases(CONTENT["phones"]):
    phone, *names = line.split()
    PHONE_NAMES[phone] = tuple(names)
PHONES = tuple(sorted({name for names in PHONE_NAMES.values() for name in names}))

# ---- a recording as it is planned and as it is made


@dataclass(frozen=True)
class PlannedUtterance:
    """An utterance is one voice that speaks once."""

    id: str  # "" until number_recordings
    text: str  # "": nothing but faint background noise
    voice: Voice
    labels: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0  # the recording is at least so long, the speech anywhere in it
    tilt: float = 0.0  # of the spectrum: more is brighter
    gain: float = 0.0  # dB
    seed: int = 0  # of the place of the speech in the recording, and of the noise
    slots: tuple[Slot, ...] = ()
    matches: tuple[str, ...] = ()
    phones: bool = False  # whether the manifest has its phones
    folder: str = "audio"  # where its audio goes, from the folder of its task

    def make(self, folder: Path) -> Utterance:
        """Make the recording, unless another task of the same recordings has made it."""
        audio = f"{self.folder}/{self.id}.flac"
        phones = ""
        if self.phones or not (folder / audio).is_file():
            spoken = speak(self.text, self.voice) if self.text else None
            phones = spell_phones(spoken) if self.phones else ""
            write_flac(folder / audio, render(self, spoken))
        return Utterance(
            self.id,
            audio,
            read_duration(folder / audio),
            speaker=self.voice.name,
            labels=self.labels,
            text=self.text,
            phones=phones,
            slots=self.slots,
            matches=self.matches,
        )


def render(planned: PlannedUtterance, spoken: Spoken | None = None) -> np.ndarray:
    """Return the recording, (N,) float32 at 16 kHz. spoken: the speech of its text; None: it is
    synthesised here."""
    rng = np.random.default_rng(planned.seed)
    if planned.text:
        spoken = spoken or speak(planned.text, planned.voice)
        samples = spoken.samples.astype(np.float32) / 32768
        samples = resample(samples, spoken.sample_rate, SAMPLE_RATE)
    else:
        samples = rng.standard_normal(round(planned.seconds * SAMPLE_RATE)).astype(np.float32)
    # brighter (tilt above 0) or darker (below 0) by a filter of one zero
    coloured = np.asarray(signal.lfilter([1.0, -max(min(planned.tilt, 0.9), -0.9)], [1.0], samples))
    silence = max(round(planned.seconds * SAMPLE_RATE) - len(coloured), 0)
    before = int(rng.integers(silence + 1))
    padded = np.pad(coloured, (before, silence - before))
    return np.asarray(padded / np.abs(padded).max() * 10 ** (planned.gain / 20), np.float32)


def spell_phones(spoken: Spoken | None) -> str:
    """Return the phones of English speech, "HH AH L OW". Raises KeyError for a phone that no
    English word has."""
    phones: list[str] = []
    for phone in spoken.all_phones if spoken else ():
        names = PHONE_NAMES[phone]
        # after a word that ends in r, espeak-ng writes the r that links it to a vowel once more
        linking = names == ("R",) and phones[-1:] in (["R"], ["ER"])
        phones += () if linking else names
    return " ".join(phones)


# ---- voices of a split, and sentences of MiniSQA, for all tasks

SENTENCE_WORDS = range(6, 11)  # words of a sentence; it lasts 2 to 4 seconds


def choose_voice(rng: Random, split: str) -> Voice:
    """Choose a voice of a split; test voices are not those of training."""
    return rng.choice(list_split_voices(LANGUAGE, split))


def vary_voice(rng: Random, voice: Voice) -> Voice:
    """Return the voice on another day: no two recordings of it are alike."""
    rate = voice.rate * rng.uniform(0.85, 1.2)
    pitch = voice.pitch + rng.uniform(-12, 12)
    return clamp(voice, rate, pitch, voice.range + rng.uniform(-15, 15))


def clamp(voice: Voice, rate: float, pitch: float, spread: float) -> Voice:
    """Return a voice with another rate, pitch and range, within the limits of espeak-ng."""
    rate = min(max(rate, 80), 450)
    pitch = min(max(pitch, 0), 99)
    spread = min(max(spread, 0), 99)
    return replace(voice, rate=round(rate), pitch=round(pitch), range=round(spread))


def plan_utterance(
    rng: Random, voice: Voice, text: str, tilts: float = 0.1, loudest: float = 0.0, **fields: Any
) -> PlannedUtterance:
    """Plan a text by the voice on another day, through a microphone and at a distance that vary.

    tilts: standard deviation of the tilt. loudest: dB. fields: other fields of the utterance.
    """
    voice = vary_voice(rng, voice)
    tilt = rng.gauss(0, tilts)
    return PlannedUtterance("", text, voice, tilt=tilt, gain=rng.uniform(-12, loudest), **fields)


def generate_sentences(split: str, seed: int, words: range = SENTENCE_WORDS) -> Iterator[str]:
    """Yield different sentences of a split of MiniSQA, without end. Only sentences about people are
    taken: no other split has them, whereas fillers are the same in all."""
    seen = set(minisqa.load_language(LANGUAGE).fillers)
    index = 0
    while True:
        for sentence in minisqa.generate_passage(LANGUAGE, split, index, seed).sentences:
            if len(sentence.split()) in words and sentence not in seen:
                seen.add(sentence)
                yield sentence
        index += 1


# ---- labelled utterances: keywords, commands, speakers and styles

SPEAKERS = 40  # training voices that are to be identified
CLIP = 1.0  # seconds of a recording with a keyword
UNKNOWN, SILENCE = "unknown", "silence"
OPEN = split_phrases(CONTENT["open"])  # slots whose values belong to splits
_SLOT = re.compile(r"\{(\w+)\}")


def sample_keywords(rng: Random, split: str, seed: int) -> Iterator[PlannedUtterance]:
    """Sample the twelve classes in turn: ten keywords, other words, and background noise."""
    others = split_phrases(CONTENT["unknown_words"])
    while True:
        for label in (*KEYWORDS, UNKNOWN, SILENCE):
            other_word = rng.choice(others)  # drawn for every class, so that draws stay the same
            text = {UNKNOWN: other_word, SILENCE: ""}.get(label, label)
            gain = rng.uniform(-40, -20) if label == SILENCE else rng.uniform(-12, 0)
            voice = vary_voice(rng, choose_voice(rng, split))
            tilt = rng.gauss(0, 0.1)
            labels = {"keyword": label}
            yield PlannedUtterance("", text, voice, labels, seconds=CLIP, tilt=tilt, gain=gain)


def sample_intents(rng: Random, split: str, seed: int) -> Iterator[PlannedUtterance]:
    """Sample the intents in turn. Training leaves the last phrase of each out."""
    commands = []  # labels and phrases
    for intent, phrases in CONTENT["commands"].items():
        action, object_name = intent.split("/")
        rooms = CONTENT["rooms"] if "{}" in phrases else {"none": ""}
        for room, words in rooms.items():
            labels = {"action": action, "object": object_name, "location": room}
            commands.append((labels, split_phrases(phrases.replace("{}", words))))
    for labels, texts in cycle(commands):
        text = rng.choice(texts[:-1] if split == "train" else texts)
        yield plan_utterance(rng, choose_voice(rng, split), text, labels=labels)


def sample_identities(rng: Random, split: str, seed: int) -> Iterator[PlannedUtterance]:
    """Sample the speakers in turn, who are the same in every split, and every sentence once. Their
    way of speaking and their microphone vary."""
    texts = generate_sentences(split, seed)
    for voice in cycle(list_split_voices(LANGUAGE, "train")[:SPEAKERS]):
        yield plan_utterance(rng, voice, next(texts), tilts=0.2, labels={"speaker": voice.name})


def sample_styles(rng: Random, split: str, seed: int) -> Iterator[PlannedUtterance]:
    """Sample every sentence by one voice in every style: neither the words nor the voice tell which
    style it is. Styles overlap."""
    for text in generate_sentences(split, seed):
        voice = choose_voice(rng, split)
        for name, style in CONTENT["styles"].items():
            rate = voice.rate * style["rate"] * rng.gauss(1, 0.07)
            pitch = voice.pitch + style["pitch"] + rng.gauss(0, 8)
            spread = voice.range + style["range"] + rng.gauss(0, 10)
            tilt = style["tilt"] + rng.gauss(0, 0.15)
            gain = min(style["gain"] + rng.gauss(0, 3), 0.0)
            varied_voice = clamp(voice, rate, pitch, spread)
            yield PlannedUtterance("", text, varied_voice, {"style": name}, tilt=tilt, gain=gain)


def sample_commands(rng: Random, split: str, seed: int) -> Iterator[PlannedUtterance]:
    """Sample the intents in turn, and their phrases uniformly, by any voice of the split."""
    for phrases in cycle(CONTENT["slot_commands"].values()):
        text, slots = fill_slots(rng, rng.choice(split_phrases(phrases)), split)
        yield plan_utterance(rng, choose_voice(rng, split), text, slots=slots)


def fill_slots(rng: Random, phrase: str, split: str) -> tuple[str, tuple[Slot, ...]]:
    """Return the words of a phrase, and its slots in their order, with values that the split may
    have: of an open slot in training its own, in dev and test those of training as well."""
    slots = []
    for name in _SLOT.findall(phrase):
        while True:
            # "a, b | c, d": one of a and b, then one of c and d
            pattern = rng.choice(CONTENT["slots"][name])
            value = " ".join(rng.choice(place.split(", ")) for place in pattern.split(" | "))
            if name not in OPEN or find_split(value) in ("train", split):
                break
        slots.append(Slot(name, value))
    values = iter(slots)
    return _SLOT.sub(lambda _: next(values).value, phrase), tuple(slots)


# ---- sentences read aloud: the recordings that PR and ASR share, and those of ASV with its trials

# the folder, beside those of the tasks, of the recordings that PR and ASR share
SENTENCES_FOLDER = "sentences"
READ_WORDS = range(6, 14)  # words of a sentence; it lasts 2 to 6 seconds
# recordings of one voice in a row, so that few recordings make both kinds of trial
IN_A_ROW = 2
TRIALS = 1000  # most trials of one speaker; there are as many of two


def sample_sentences(
    rng: Random, split: str, seed: int, phones: bool = False
) -> Iterator[PlannedUtterance]:
    """Sample every sentence once, by any voice of the split. phones: whether with its phones (PR)
    or without (ASR)."""
    folder = f"../{SENTENCES_FOLDER}/audio"
    for text in generate_sentences(split, seed, READ_WORDS):
        yield plan_utterance(rng, choose_voice(rng, split), text, phones=phones, folder=folder)


def sample_verification(rng: Random, split: str, seed: int) -> Iterator[PlannedUtterance]:
    """Sample the voices of the split in turn, two recordings each time, and every sentence once."""
    texts = generate_sentences(split, seed)
    for voice in cycle(list_split_voices(LANGUAGE, split)):
        for _ in range(IN_A_ROW):
            # voices vary more than by `vary_voice`: espeak-ng's are easily distinguished
            rate = voice.rate * rng.uniform(0.8, 1.25)
            pitch = voice.pitch + rng.uniform(-18, 18)
            varied_voice = clamp(voice, rate, pitch, voice.range + rng.uniform(-25, 25))
            tilt = rng.gauss(0, 0.45)
            gain = rng.uniform(-12, 0)
            yield PlannedUtterance("", next(texts), varied_voice, tilt=tilt, gain=gain)


def pair_trials(split: str, recordings: Sequence[PlannedUtterance], seed: int) -> list[Trial]:
    """Make as many trials of one speaker as of two, in random order; no two recordings of a split
    have the same words."""
    rng = Random(f"minisuperb/asv/{split}/{seed}/trials")
    kinds: dict[bool, list[Trial]] = {True: [], False: []}
    for a, b in combinations(recordings, 2):
        same = a.voice.name == b.voice.name
        kinds[same].append(Trial(a.id, b.id, same))
    count = min(TRIALS, *map(len, kinds.values()))
    chosen = rng.sample(kinds[True], count) + rng.sample(kinds[False], count)
    return rng.sample(chosen, len(chosen))


# ---- QbE: documents that are searched, and queries, a word or two, spoken by voices that no
# document has

SINGLE_LETTERS = 6  # fewest letters of a query of one word
PAIRED_LETTERS = 4  # fewest letters of each word of a query of two
GREATEST_SHARE = 0.1  # greatest share of the documents that match a query
# queries that fewer documents match are taken where there are no others
ENOUGH_MATCHES = 5


def plan_queries(sizes: Mapping[str, int], seed: int) -> dict[str, list[PlannedUtterance]]:
    """Plan documents, and queries of dev and test. No word is in queries of both, and no query
    occurs twice.

    Raises InputError where the documents do not hold so many queries that match some of them and
    not all.
    """
    key = f"minisuperb/qbe/{DOCUMENTS}/{seed}"
    rng = Random(key)
    utterances = (
        plan_utterance(rng, choose_voice(rng, "train"), text)
        for text in generate_sentences("train", seed)
    )
    documents = number_recordings(utterances, key, f"qbe-{DOCUMENTS}", sizes[DOCUMENTS])
    planned = {DOCUMENTS: documents}
    for split, matches in _choose_phrases(documents, seed).items():
        if len(matches) < sizes[split]:
            raise InputError(
                f"{len(documents)} documents contain {len(matches)} queries for {split}, not "
                f"{sizes[split]}; give more documents"
            )
        key = f"minisuperb/qbe/{split}/{seed}"
        rng = Random(key)
        queries = (
            plan_utterance(rng, choose_voice(rng, split), text, matches=tuple(ids))
            for text, ids in matches.items()
        )
        planned[split] = number_recordings(queries, key, f"qbe-{split}", sizes[split])
    return planned


def _choose_phrases(
    documents: Sequence[PlannedUtterance], seed: int
) -> dict[str, dict[str, list[str]]]:
    """Return split -> phrase -> ids of the documents that have it. Phrases are in random order, but
    those with ENOUGH_MATCHES come first. Words belong to dev and test in turn."""
    matches = _match_phrases(documents)
    rng = Random(f"minisuperb/qbe/queries/{seed}")
    vocabulary = sorted({word for phrase in matches for word in phrase.split()})
    shuffled = rng.sample(vocabulary, len(vocabulary))
    split_of_word = dict(zip(shuffled, cycle(("dev", "test")), strict=False))
    order = rng.sample(sorted(matches), len(matches))
    order.sort(key=lambda phrase: -min(len(matches[phrase]), ENOUGH_MATCHES))
    used: set[str] = set()
    chosen: dict[str, dict[str, list[str]]] = {"dev": {}, "test": {}}
    for phrase in order:
        words = phrase.split()
        splits = {split_of_word[word] for word in words}
        if len(splits) == 1 and not used.intersection(words):
            used.update(words)
            chosen[splits.pop()][phrase] = matches[phrase]
    return chosen


def _match_phrases(documents: Sequence[PlannedUtterance]) -> dict[str, list[str]]:
    """Return phrase -> ids of the documents that have it, of phrases that are long and rare enough.

    A phrase that is part of another word in some document ("work" of "works") is left out, for
    whether it matches there is not defined.
    """
    matches: defaultdict[str, list[str]] = defaultdict(list)
    for document in documents:
        words = document.text.split()
        phrases = [word for word in words if len(word) >= SINGLE_LETTERS]
        for a, b in pairwise(words):
            if min(len(a), len(b)) >= PAIRED_LETTERS:
                phrases.append(f"{a} {b}")
        for phrase in dict.fromkeys(phrases):
            matches[phrase].append(document.id)

    def is_part_of_word(phrase: str) -> bool:
        texts = (document.text for document in documents)
        return any(t.count(phrase) > minisqa.count_occurrences(t, phrase, " ") for t in texts)

    most = min(max(round(GREATEST_SHARE * len(documents)), 1), len(documents) - 1)
    rare = {phrase: ids for phrase, ids in matches.items() if len(ids) <= most}
    return {phrase: ids for phrase, ids in rare.items() if not is_part_of_word(phrase)}


# ---- SD: two people who talk with each other, and who speaks when, to the sample

# nobody begins to speak after so many seconds; a conversation lasts up to 15 s
SECONDS = (8.0, 11.5)
TURNS = 8  # more turns than fit
INTERRUPTED = 0.7  # share of the turns that begin before the one before has ended
# share of the shorter of two turns that overlaps: less than half, so that at most two overlap
SHARES = (0.2, 0.45)
PAUSES = (0.1, 0.8)  # seconds before a turn that does not interrupt
EDGES = (0.0, 0.5)  # seconds of silence at the beginning and at the end
LOUDER = 4.0  # dB by which one voice is louder than the other, at most


@dataclass(frozen=True)
class Conversation:
    """A conversation is sentences of two voices in turn."""

    id: str  # "" until number_recordings
    turns: tuple[PlannedUtterance, ...]
    seconds: float  # nobody begins to speak later
    seed: int = 0  # of pauses and overlaps

    def make(self, folder: Path) -> Utterance:
        samples, turns = self.render()
        write_flac(folder / "audio" / f"{self.id}.flac", samples)
        return Utterance(self.id, f"audio/{self.id}.flac", len(samples) / SAMPLE_RATE, turns=turns)

    def render(self) -> tuple[np.ndarray, tuple[Turn, ...]]:
        """Return the talk, (N,) float32 at 16 kHz, silent but for the turns, and the turns."""
        rng = np.random.default_rng(self.seed)
        spoken: list[tuple[int, np.ndarray]] = []  # first sample, and speech, of every turn
        turns: list[Turn] = []
        for planned in self.turns:
            speech = trim_silence(render(planned))
            if not spoken:
                start = round(rng.uniform(*EDGES) * SAMPLE_RATE)
            else:
                first, before = spoken[-1]
                start = first + len(before)
                if rng.random() < INTERRUPTED:
                    start -= round(rng.uniform(*SHARES) * min(len(before), len(speech)))
                else:
                    start += round(rng.uniform(*PAUSES) * SAMPLE_RATE)
            if start > self.seconds * SAMPLE_RATE:
                break
            spoken.append((start, speech))
            end = (start + len(speech)) / SAMPLE_RATE
            turns.append(Turn(planned.voice.name, start / SAMPLE_RATE, end))
        length = max(start + len(speech) for start, speech in spoken)
        total = np.zeros(length + round(rng.uniform(*EDGES) * SAMPLE_RATE), np.float32)
        for start, speech in spoken:
            total[start : start + len(speech)] += speech
        # all is made quieter where it would be beyond full scale
        peak = max(1.0, float(np.abs(total).max()))
        return np.asarray(total / peak, np.float32), tuple(turns)


def sample_conversations(rng: Random, split: str, seed: int) -> Iterator[Conversation]:
    """Sample two voices of the split for each conversation, and every sentence once."""
    texts = generate_sentences(split, seed)
    while True:
        voices = [
            vary_voice(rng, voice) for voice in rng.sample(list_split_voices(LANGUAGE, split), 2)
        ]
        gain = rng.uniform(-12, -LOUDER)
        tilts = [rng.gauss(0, 0.1) for _ in voices]
        gains = [gain, gain + rng.uniform(-LOUDER, LOUDER)]
        turns = []
        for turn in range(TURNS):
            i = turn % 2
            turns.append(PlannedUtterance("", next(texts), voices[i], tilt=tilts[i], gain=gains[i]))
        yield Conversation("", tuple(turns), rng.uniform(*SECONDS))


# ---- SS: two voices at once; SE: a voice in noise. A manifest names the sources of a mixture.

PEAK = 0.99  # greatest sample of a mixture; 1 is full scale
PAIR_WORDS = range(10, 15)  # words of a sentence of SS; it lasts 3 to 4 seconds
NOISY_WORDS = range(5, 8)  # words of a sentence of SE; it lasts 2 to 3 seconds
RATIOS = (0.0, 5.0)  # dB of the one voice over the other
SEEN, UNSEEN = "stand-in", "held-out"  # generated noises of train and dev, and of test
# SNRs in dB, as of VoiceBank-DEMAND (Valentini-Botinhao et al., SSW 2016)
SNRS: Mapping[str, tuple[float, ...]] = {
    "train": (15, 10, 5, 0),
    "dev": (15, 10, 5, 0),
    "test": (17.5, 12.5, 7.5, 2.5),
}


@dataclass(frozen=True)
class Overlap:
    """An overlap is two voices that begin together and end with the shorter one, as in mode "min"
    of Libri2Mix."""

    id: str  # "" until number_recordings
    first: PlannedUtterance
    second: PlannedUtterance
    ratio: float  # dB, active level of the first over that of the second
    seed: int = 0

    def make(self, folder: Path) -> Utterance:
        first, second = trim_silence(render(self.first)), trim_silence(render(self.second))
        n = min(len(first), len(second))
        gain = measure_active_level(first[:n]) - self.ratio - measure_active_level(second[:n])
        parts = first[:n], np.asarray(second[:n] * 10 ** (gain / 20))
        names = sets.TOGETHER.join((self.first.voice.name, self.second.voice.name))
        return _write_mixture(folder, self.id, parts, 2, names)


@dataclass(frozen=True)
class NoisyUtterance:
    """A noisy utterance is a voice in generated noise."""

    id: str  # "" until number_recordings
    clean: PlannedUtterance
    noise: str  # SEEN or UNSEEN
    snr: float  # dB, active level of the speech over RMS of the noise
    seed: int = 0

    def make(self, folder: Path) -> Utterance:
        clean = render(self.clean)
        noise = NoiseBank.open(self.noise, seed=self.seed).draw(self.id, len(clean)).noise
        gain = measure_active_level(clean) - self.snr - measure_rms_level(noise)
        parts = clean, noise * 10 ** (gain / 20)
        return _write_mixture(folder, self.id, parts, 1, self.clean.voice.name)


def _write_mixture(
    folder: Path, name: str, parts: tuple[np.ndarray, np.ndarray], targets: int, speaker: str
) -> Utterance:
    """Write the sum of two parts (N,), and the first `targets` of them by themselves. They are
    rounded before they are added: the sum is exact."""
    peaks = [float(np.abs(part).max()) for part in (parts[0] + parts[1], *parts)]
    scale = min(1.0, *(PEAK / peak for peak in peaks))
    rounded = [to_int16(part * scale) for part in parts]
    sources = [f"sources/{name}-{number}.flac" for number in range(1, targets + 1)]
    for source, part in zip(sources, rounded, strict=False):
        write_flac(folder / source, part)
    audio = f"audio/{name}.flac"
    write_flac(folder / audio, rounded[0] + rounded[1])
    return Utterance(name, audio, len(parts[0]) / SAMPLE_RATE, speaker, sources=tuple(sources))


def sample_overlaps(rng: Random, split: str, seed: int) -> Iterator[Overlap]:
    """Sample two voices of the split for each mixture, and every sentence once."""
    texts = generate_sentences(split, seed, PAIR_WORDS)
    while True:
        voices = rng.sample(list_split_voices(LANGUAGE, split), 2)
        first, second = (plan_utterance(rng, voice, next(texts), loudest=-3) for voice in voices)
        yield Overlap("", first, second, rng.uniform(*RATIOS))


def sample_noisy(rng: Random, split: str, seed: int) -> Iterator[NoisyUtterance]:
    """Sample every sentence once, by any voice of the split, and the SNRs in turn."""
    texts = generate_sentences(split, seed, NOISY_WORDS)
    for text, snr in zip(texts, cycle(SNRS[split]), strict=False):
        clean = plan_utterance(rng, choose_voice(rng, split), text, loudest=-3)
        yield NoisyUtterance("", clean, UNSEEN if split == "test" else SEEN, snr)


Planned = PlannedUtterance | Conversation | Overlap | NoisyUtterance

# ---- tasks and sizes

# task -> function that samples its recordings, called with a random generator, a split and the seed
GENERATORS: dict[str, Callable[[Random, str, int], Iterator[Planned]]] = {
    "pr": partial(sample_sentences, phones=True),
    "asr": sample_sentences,
    "ks": sample_keywords,
    "sid": sample_identities,
    "asv": sample_verification,
    "sd": sample_conversations,
    "ic": sample_intents,
    "sf": sample_commands,
    "style": sample_styles,
    "se": sample_noisy,
    "ss": sample_overlaps,
}
# task -> the folder of its recordings, where they are not its own
SHARED_RECORDINGS = {"pr": SENTENCES_FOLDER, "asr": SENTENCES_FOLDER}
USUAL_SIZES = {  # task -> utterances of train (qbe: documents), dev and test
    **dict.fromkeys(("pr", "asr"), (900, 100, 200)),
    "ks": (2400, 300, 600),
    "qbe": (300, 40, 40),
    "sid": (1200, 240, 600),
    "asv": (800, 160, 160),
    "sd": (250, 40, 60),
    "ic": (1500, 300, 600),
    "sf": (1200, 150, 300),
    "style": (1200, 240, 480),
    **dict.fromkeys(("se", "ss"), (300, 40, 60)),
}
SMALLEST_SIZES = {  # task -> fewest utterances of each split, where one is too few
    "asv": (3, 3, 3),  # two of one voice, and one of another
    "qbe": (8, 1, 1),  # documents that match a query, and others
}


def choose_sizes(task: str, share: float) -> dict[str, int]:
    """Return the number of utterances by split: a share of the usual numbers, and the smallest ones
    at least. Raises InputError for an unknown task."""
    if task not in USUAL_SIZES:
        raise InputError(f"there is no set {task}; choose from {', '.join(USUAL_SIZES)}")
    counts = zip(USUAL_SIZES[task], SMALLEST_SIZES.get(task, (1, 1, 1)), strict=True)
    sizes = (max(round(share * usual), least) for usual, least in counts)
    return dict(zip(sets.SPLITS_OF.get(task, sets.SPLITS), sizes, strict=True))


def plan_set(task: str, sizes: Mapping[str, int], seed: int) -> Mapping[str, Sequence[Planned]]:
    """Plan the recordings of each split; they depend on (task, split, seed) alone, and queries on
    the number of documents, too."""
    if task == "qbe":
        return plan_queries(sizes, seed)
    return {split: sample_recordings(task, split, count, seed) for split, count in sizes.items()}


def sample_recordings(task: str, split: str, count: int, seed: int) -> list[Any]:
    """Sample `count` recordings of a split, of any task but qbe, whose splits are planned
    together."""
    name = SHARED_RECORDINGS.get(task, task)
    key = f"minisuperb/{name}/{split}/{seed}"
    return number_recordings(
        GENERATORS[task](Random(key), split, seed), key, f"{name}-{split}", count
    )


def number_recordings(planned: Iterator[Planned], key: str, name: str, count: int) -> list[Any]:
    """Return the first `count` recordings, with ids and with seeds that follow from `key`."""
    numbered = []
    for number, recording in enumerate(islice(planned, count)):
        seed = Random(f"{key}/{number}").getrandbits(32)
        numbered.append(replace(recording, id=f"{name}-{number:05d}", seed=seed))
    return numbered


# ---- the corpus


@dataclass(frozen=True, kw_only=True)
class MiniSuperb:
    """make a small synthetic SUPERB: a set for each of its tasks, without a download (needs
    speechssl[synth])

    pr: phones; asr: words; ks: keywords; qbe: documents and spoken queries; sid: which of 40
    speakers; asv: whether two recordings have one speaker; sd: which of two speakers is active
    when; ic: intents; sf: slots of commands; style: speaking style (in the place of er, emotions);
    se: speech in noise; ss: two speakers at once. Each is a folder OUT/TASK with card.json and
    manifests for train, dev and test (qbe: documents, dev and test); pr and asr share recordings,
    OUT/sentences. The voices of dev and test do not occur in training, except in sid. Finished sets
    are kept; a killed run resumes with the same command.

      python recipes/superb/minisuperb.py sets
      python recipes/superb/minisuperb.py sets --tasks ks sid --scale 0.1
    """

    out: Path = argument("folder to make, with a folder for each set")
    tasks: tuple[str, ...] = option(tuple(USUAL_SIZES), "sets to make", least=1)
    share: Share = option(
        1.0,
        "number of utterances, as a share of the usual number (asr: 900 + 100 + 200)",
        name="scale",
    )
    seed: Whole = option(0, "seed of texts and voices; the same seed gives the same bytes")
    workers: Count = option(CORES, PROCESSES)


def prepare_minisuperb(o: MiniSuperb) -> dict[str, dict[str, Any]]:
    """Write `out`/<task> for every task and return their cards; finished sets are left alone.

    The bytes depend on tasks, share and seed, not on `workers`. Raises InputError for an unknown
    task, before anything is made, and for a folder that holds something else.
    """
    sizes = {task: choose_sizes(task, o.share) for task in o.tasks}
    cards = {}
    for task in o.tasks:
        cards[task] = prepare_set(o, task, sizes[task])
        print(f"{o.out / task}: {sets.format_sizes(cards[task])} utterances")
    return cards


def prepare_set(o: MiniSuperb, task: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Write the set of one task and return its card. sizes: utterances by split."""
    out = o.out / task
    made_from = {"corpus": "minisuperb", "version": VERSION, "seed": o.seed}
    of_task = made_from | {"task": task, "sizes": dict(sizes)}
    with ExitStack() as stack:
        # both folders are locked, for PR and ASR share one; the stage of the shared folder never
        # finishes: it is a lock, and a record of what the recordings were made from
        name = SHARED_RECORDINGS.get(task)
        if name:
            shared = made_from | {"recordings": name}
            stack.enter_context(begin_stage(o.out / name, shared, record=CORPUS_RECORD))
        step = stack.enter_context(begin_stage(out, of_task, record=CORPUS_RECORD))
        if step.done:
            return dict(step.card)
        planned: Mapping[str, Sequence[Any]] = plan_set(task, sizes, o.seed)
        jobs = {p.id: (p, out) for recordings in planned.values() for p in recordings}
        utterances = run_parallel(_make_recording, jobs, o.workers, f"synthesising {task}")
        files = {}
        for split, recordings in planned.items():
            files[split] = [_make_line(utterances[p.id]) for p in recordings]
            if task == "asv" and split != "train":
                pairs = pair_trials(split, recordings, o.seed)
                files[f"{split}.trials"] = [asdict(pair) for pair in pairs]
        for name, lines in files.items():
            write_lines(out / f"{name}.jsonl", lines)
        manifests = {name: hash_files([out / f"{name}.jsonl"]) for name in files}
        step.finish(of_task | {"manifests": manifests, "synthetic": "speech by espeak-ng"})
        return dict(step.card)


def _make_recording(planned: Planned, folder: Path) -> Utterance:
    return planned.make(folder)


def _make_line(utterance: Utterance) -> dict[str, Any]:
    """Return the line of an utterance in a manifest. Labelled ones have a text even if it is
    empty."""
    text = {"text": utterance.text} if utterance.labels else {}
    return sets.make_record(utterance) | text


if __name__ == "__main__":
    sys.exit(script(prepare_minisuperb, MiniSuperb))
