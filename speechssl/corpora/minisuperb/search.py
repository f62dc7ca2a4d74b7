"""QbE: documents that are searched, and queries, a word or two, spoken by voices that no document has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from random import Random

from speechssl.corpora.minisqa.text import occurrences
from speechssl.corpora.minisuperb.choices import anyone, sentences, varied
from speechssl.corpora.minisuperb.draws import Draw, numbered
from speechssl.corpora.utterances import DOCUMENTS
from speechssl.errors import InputError

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
