"""`speechssl prepare spoken-words`: real words and non-words, spoken, for spot-the-word (sWUGGY, arXiv 2011.11588) and its kin.

sWUGGY's non-words are Wuggy's; here a word of a corpus and its non-word differ in one phone, by the rule in `SpokenWords`. Both
go to the synthesiser as phones, so that nothing but the phone tells them apart.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, resample, write_flac
from speechssl.data.records import data_hash, load_corpus, read_lines
from speechssl.errors import InputError
from speechssl.io import stage, write_text
from speechssl.synth.minisqa import speakers
from speechssl.synth.minisuperb import trimmed
from speechssl.synth.synthesisers import Voice, pronounce, speak_phones
from speechssl.text_side.config import SpokenWords
from speechssl.textlm import load_text_encoder, plain_words

KINDS = tuple(  # espeak-ng's phones of American English that take each other's place
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
EDGE = "#"  # of a word
QUIET = 0.05  # seconds before and after a word
MANIFEST = "words.jsonl"
_STRESS = re.compile("^[',%=]+")


@dataclass(frozen=True)
class Pair:
    """phones, other: of the word and of its non-word, with stress marks; place: of the one that differs."""

    word: str
    phones: tuple[str, ...]
    other: tuple[str, ...]
    place: int


@dataclass(frozen=True)
class SpokenWord:
    """A line of the manifest."""

    id: str
    audio: str
    word: str
    real: bool
    voice: str
    phones: str


def bare(phones: Sequence[str]) -> tuple[str, ...]:
    """Without stress marks."""
    return tuple(_STRESS.sub("", phone) for phone in phones)


def pairs_of(phones: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Neighbours in a word, its edges among them. phones: without stress."""
    return pairwise((EDGE, *phones, EDGE))


def non_word(phones: Sequence[str], pairs: Mapping[tuple[str, str], int], real: Collection[tuple[str, ...]]) -> Pair | None:
    """The non-word of a word; None where there is none. pairs: how often neighbours occur; real: pronunciations of words."""
    plain = bare(phones)

    def frequency(some: Sequence[str]) -> float:
        return sum(math.log(pairs[pair]) for pair in pairs_of(some)) / (len(some) + 1)

    found: list[tuple[float, int, str]] = []
    for place, phone in enumerate(plain):
        for other in next((kind for kind in KINDS if phone in kind), ()):
            made = (*plain[:place], other, *plain[place + 1 :])
            if other != phone and made not in real and all(pairs.get(pair) for pair in pairs_of(made)):
                found.append((abs(frequency(made) - frequency(plain)), place, other))
    if not found:
        return None
    _, place, other = min(found)
    mark = phones[place][: len(phones[place]) - len(plain[place])]
    return Pair("", tuple(phones), (*phones[:place], mark + other, *phones[place + 1 :]), place)


def choose_pairs(words: Mapping[str, int], count: int, fewest: int, avoided: Sequence[str]) -> list[Pair]:
    """Of the commonest words those that have a non-word, and no pronunciation that came before. words: how often each occurs.

    Raises InputError where there are fewer than `count`.
    """
    listed = sorted(words, key=lambda word: (-words[word], word))
    spoken = dict(zip(listed, pronounce(listed, "en-us", stress=True), strict=True))
    real = {bare(phones) for phones in spoken.values()} | {tuple(phones) for phones in pronounce(avoided, "en-us")}
    pairs = Counter(pair for phones in spoken.values() for pair in pairs_of(bare(phones)))
    found: list[Pair] = []
    taken: set[tuple[str, ...]] = set()
    for word, phones in spoken.items():
        plain = bare(phones)
        if len(found) < count and len(plain) >= fewest and plain not in taken and (made := non_word(phones, pairs, real | taken)):
            found.append(Pair(word, made.phones, made.other, made.place))
            taken |= {plain, bare(made.other)}
    if len(found) < count:
        raise InputError(
            f"only {len(found)} words of the corpus have {fewest} phones and a non-word, not {count}; "
            "give fewer --words or --phones"
        )
    return found


def make_spoken_words(o: SpokenWords) -> str:
    """Speak them (once); a line that says what came out.

    Raises InputError for a corpus that is not English, or too few words or voices; MissingExtra without the synthesiser.
    """
    voices = speakers("en", "test")
    if o.voices > len(voices):
        raise InputError(f"there are {len(voices)} voices that no training set has; give --voices {len(voices)} at most")
    inputs = {"data": data_hash(o.corpus, o.split), "avoid": o.avoid}
    with stage(o.out, inputs, {"words": o.words, "voices": o.voices, "phones": o.phones}) as step:
        if not step.done:
            corpus = load_corpus(o.corpus, o.split)
            if corpus.language != "en":
                raise InputError(f"{o.corpus} is in {corpus.language}; words are taken from an English corpus")
            written = [*(p.written for p in corpus.passages.values()), *(q.written for q in corpus.questions)]
            words = Counter(word for text in written for word in re.findall(r"[a-z]+", text.lower()))
            avoided: list[str] = []
            if o.avoid:
                _, tokenizer = load_text_encoder(o.avoid)
                avoided = [token.lstrip("Ġ▁") for token in tokenizer.convert_ids_to_tokens(plain_words(tokenizer))]
            pairs = choose_pairs(words, o.words, o.phones, avoided)
            lines = []
            for number, pair in enumerate(tqdm(pairs, desc="speaking words", unit="word")):
                for real, phones in ((True, pair.phones), (False, pair.other)):
                    for voice in voices[: o.voices]:
                        name = f"{number:04d}-{'word' if real else 'other'}-{voice.name}"
                        place = f"audio/{name}.flac"
                        write_flac(o.out / place, spoken(phones, voice))
                        lines.append(SpokenWord(name, place, pair.word, real, voice.name, " ".join(phones)))
            write_text(o.out / MANIFEST, "".join(json.dumps(asdict(line)) + "\n" for line in lines))
            listed = [{"word": p.word, "phones": " ".join(p.phones), "other": " ".join(p.other), "place": p.place} for p in pairs]
            step.finish(
                {"what": "spoken words", "words": len(pairs), "voices": [v.name for v in voices[: o.voices]], "pairs": listed}
            )
        return f"{o.out}: {step.card['words']} words and as many non-words by {len(step.card['voices'])} voices"


def spoken(phones: Sequence[str], voice: Voice) -> np.ndarray:
    """(N,) samples at 16 kHz between two short silences."""
    made = speak_phones(phones, voice)
    samples = trimmed(resample(made.samples.astype(np.float32) / 2**15, made.sample_rate, SAMPLE_RATE))
    return np.asarray(np.pad(samples, round(QUIET * SAMPLE_RATE)), np.float32)


def read_spoken_words(folder: Path) -> list[SpokenWord]:
    """The manifest. Raises InputError where there is none, or it is damaged."""
    found = []
    for number, values in read_lines(folder / MANIFEST):
        try:
            found.append(SpokenWord(**{name: _typed(values, name) for name in SpokenWord.__dataclass_fields__}))
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{folder / MANIFEST}:{number} is no line of `speechssl prepare spoken-words`; make the words again"
            ) from error
    return found


def _typed(values: Mapping[str, Any], name: str) -> Any:
    if not isinstance(values[name], bool if name == "real" else str):
        raise TypeError(name)
    return values[name]
