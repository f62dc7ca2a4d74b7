"""Speak words and their non-words, for spot-the-word (sWUGGY, arXiv 2011.11588) and its kin.

The non-words of sWUGGY come from the program Wuggy. Here a word and its non-word go to the
synthesiser as phones, and differ in one of them.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.artifacts import write_lines
from speechssl.audio import SAMPLE_RATE, resample, write_flac
from speechssl.cli import script
from speechssl.data.records import hash_data, load_corpus, read_lines
from speechssl.errors import InputError
from speechssl.options import Count, argument, option
from speechssl.synth.minisqa import list_split_voices
from speechssl.synth.synthesisers import Voice, pronounce, speak_phones, trim_silence
from speechssl.textlm.encoders import load_text_encoder
from speechssl.textlm.symbols import list_words
from textside.runs import run_once


@dataclass(frozen=True, kw_only=True)
class SpokenWords:
    """speak words and non-words, for `probe.py` (needs speechssl[synth])

    Real words are the commonest of a split of an English corpus; each has a non-word that differs
    from it in one phone, as sWUGGY's have. The rule: the phone is replaced by one of its kind
    (stop, fricative, affricate, nasal, approximant; short, long or double vowel); both pairs of
    phones that arise occur in words of the corpus; the result is the pronunciation of no word of
    the corpus, nor of the vocabulary of --avoid; of all such, that one is taken whose pairs of
    phones are nearest in frequency to the word's. Both are spoken from phones by the same voices of
    espeak-ng, which no training set of MiniSQA has. OUT/words.jsonl is a manifest for `speechssl
    units extract`.

      python recipes/text_side/spoken_words.py corpus words --words 100
      speechssl units extract words/words.jsonl people-en/encoder people-en/units.safetensors \\
        word-units
    """

    corpus: Path = argument("prepared corpus in English")
    out: Path = argument("folder to make")
    split: str = option("train", "split of the corpus whose words are taken")
    words: Count = option(200, "number of words, each with its non-word")
    voices: Count = option(4, "voices that speak each of them, 16 at most")
    phones: Count = option(4, "fewest phones of a word")
    avoid: str | None = option(
        None,
        "text encoder whose vocabulary has real words that no non-word may sound like, such as "
        "minilm",
    )


MANIFEST = "words.jsonl"
KINDS = tuple(  # phones of espeak-ng's American English that may replace each other
    tuple(line.split())
    for line in (
        "p b t d k g",  # stops
        "f v T D s z S Z h",  # fricatives
        "tS dZ",  # affricates
        "m n N",  # nasals
        "l r w j",  # approximants
        "a aa E I 0 V U",  # short vowels
        "A: i: O: u: 3:",  # long vowels
        "eI aI aU OI oU",  # double vowels
    )
)
EDGE = "#"  # the neighbour of the first and of the last phone of a word
QUIET = 0.05  # seconds of silence before and after a word
_STRESS = re.compile("^[',%=]+")  # marks before a phone: "'eI" -> "eI"


@dataclass(frozen=True)
class SpokenWord:
    """A spoken word is a line of the manifest."""

    id: str
    audio: str
    word: str
    real: bool
    voice: str
    phones: str


WordsWithUnits = Sequence[tuple[SpokenWord, np.ndarray]]


def read_spoken_words(folder: Path) -> list[SpokenWord]:
    """Read the manifest."""
    return [SpokenWord(**values) for _, values in read_lines(folder / MANIFEST)]


@dataclass(frozen=True)
class Pair:
    """A word and its non-word differ in one phone."""

    word: str
    phones: tuple[str, ...]  # of the word, with stress marks
    other: tuple[str, ...]  # of the non-word, with stress marks
    place: int  # of the phone that differs


def remove_stress(phones: Sequence[str]) -> tuple[str, ...]:
    """Remove the stress marks."""
    return tuple(_STRESS.sub("", phone) for phone in phones)


def pair_neighbours(phones: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of neighbours in a word, its edges among them. phones: without stress."""
    return pairwise((EDGE, *phones, EDGE))


def make_non_word(
    word: str,
    phones: Sequence[str],
    pairs: Mapping[tuple[str, str], int],
    real: Collection[tuple[str, ...]],
) -> Pair | None:
    """Return a word with its non-word; None where there is none. pairs: how often neighbours occur;
    real: pronunciations of words."""
    plain = remove_stress(phones)

    def frequency(sequence: Sequence[str]) -> float:
        """Return the mean logarithm of how often neighbours occur."""
        logs = [math.log(pairs[pair]) for pair in pair_neighbours(sequence)]
        return sum(logs) / len(logs)

    # difference in frequency, place and phone
    candidates: list[tuple[float, int, str]] = []
    for place, phone in enumerate(plain):
        for other in next((kind for kind in KINDS if phone in kind), ()):
            variant = (*plain[:place], other, *plain[place + 1 :])
            possible = all(pairs.get(pair) for pair in pair_neighbours(variant))
            if variant not in real and possible:
                candidates.append((abs(frequency(variant) - frequency(plain)), place, other))
    if not candidates:
        return None
    _, place, other = min(candidates)
    mark = phones[place][: len(phones[place]) - len(plain[place])]
    return Pair(word, tuple(phones), (*phones[:place], mark + other, *phones[place + 1 :]), place)


def choose_pairs(
    words: Mapping[str, int], count: int, fewest: int, avoided: Sequence[str]
) -> list[Pair]:
    """Choose the commonest words that have a non-word, and none that sounds like one before.

    words: how often each occurs; fewest: phones of a word; avoided: real words that no non-word may
    sound like. Raises InputError where there are fewer than `count`.
    """
    listed = sorted(words, key=lambda word: (-words[word], word))
    spoken = dict(zip(listed, pronounce(listed, stress=True), strict=True))
    real = {remove_stress(phones) for phones in spoken.values()}
    real |= {tuple(phones) for phones in pronounce(avoided)}
    pairs = Counter(
        pair for phones in spoken.values() for pair in pair_neighbours(remove_stress(phones))
    )
    chosen: list[Pair] = []
    used: set[tuple[str, ...]] = set()
    for word, phones in spoken.items():
        plain = remove_stress(phones)
        if len(chosen) == count:
            break
        if len(plain) < fewest or plain in used:
            continue
        if candidate := make_non_word(word, phones, pairs, real | used):
            chosen.append(candidate)
            used |= {plain, remove_stress(candidate.other)}
    if len(chosen) < count:
        raise InputError(
            f"only {len(chosen)} words of the corpus have {fewest} phones and a non-word, not "
            f"{count}; give fewer --words or --phones"
        )
    return chosen


def make_spoken_words(o: SpokenWords) -> None:
    """Speak words and non-words (once).

    Raises InputError for too few words or voices; MissingExtra without the synthesiser.
    """
    voices = list_split_voices("en", "test")
    if o.voices > len(voices):
        raise InputError(f"no training set lacks more voices; give --voices {len(voices)} at most")
    voices = voices[: o.voices]
    inputs = {"data": hash_data(o.corpus, o.split), "avoid": o.avoid}
    options = {"words": o.words, "voices": o.voices, "phones": o.phones}

    def make() -> dict[str, Any]:
        avoided = list_real_words(o.avoid) if o.avoid else []
        pairs = choose_pairs(count_words(o.corpus, o.split), o.words, o.phones, avoided)
        lines = speak(pairs, voices, o.out)
        write_lines(o.out / MANIFEST, [asdict(line) for line in lines])
        return {
            "what": "spoken words",
            "words": len(pairs),
            "voices": [voice.name for voice in voices],
            "pairs": [asdict(pair) for pair in pairs],
        }

    card = run_once(o.out, inputs, options, make)
    count, spoken_by = card["words"], len(card["voices"])
    print(f"{o.out}: {count} words and as many non-words by {spoken_by} voices")


def count_words(corpus: Path, split: str) -> Counter[str]:
    """Count how often each word in Latin letters occurs."""
    data = load_corpus(corpus, split)
    written = [p.written for p in data.passages.values()] + [q.written for q in data.questions]
    return Counter(word for text in written for word in re.findall(r"[a-z]+", text.lower()))


def list_real_words(encoder: str) -> list[str]:
    """List the words of the vocabulary of a text encoder."""
    _, tokenizer = load_text_encoder(encoder)
    tokens = tokenizer.convert_ids_to_tokens(list_words(tokenizer))
    return [token.lstrip("Ġ▁") for token in tokens]


def speak(pairs: Sequence[Pair], voices: Sequence[Voice], out: Path) -> list[SpokenWord]:
    """Write the audio of every word and non-word by every voice; return the lines of the
    manifest."""
    lines = []
    for number, pair in enumerate(tqdm(pairs, desc="synthesising words", unit="word")):
        for real, phones in ((True, pair.phones), (False, pair.other)):
            for voice in voices:
                name = f"{number:04d}-{'word' if real else 'other'}-{voice.name}"
                place = f"audio/{name}.flac"
                write_flac(out / place, synthesise(phones, voice))
                spelled = " ".join(phones)
                lines.append(SpokenWord(name, place, pair.word, real, voice.name, spelled))
    return lines


def synthesise(phones: Sequence[str], voice: Voice) -> np.ndarray:
    """Return samples (N,) at 16 kHz, between two short silences."""
    audio = speak_phones(phones, voice)
    samples = audio.samples.astype(np.float32) / 2**15
    samples = trim_silence(resample(samples, audio.sample_rate, SAMPLE_RATE))
    return np.asarray(np.pad(samples, round(QUIET * SAMPLE_RATE)), np.float32)


if __name__ == "__main__":
    sys.exit(script(make_spoken_words, SpokenWords))
